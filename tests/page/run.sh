#!/usr/bin/env bash
# The page of `understudy serve` in a browser: what it shows of a group, before and after a failover, and that a name that
# looks like markup stays a name. Ends with "N passed, N failed, N skipped". --keep FILE leaves a picture of the page there.
set -uo pipefail
cd "$(dirname "$0")/../.."

: "${TARGET:=target}"
understudy=$(realpath "$TARGET/release/understudy")
keep=
if [[ ${1:-} == --keep ]]; then keep=$(realpath -- "$2"); fi

browser=$(command -v chromium || command -v chromium-browser || command -v google-chrome)
if [[ -z $browser ]]; then
    echo "skip  the page in a browser: there is no chromium"
    echo "0 passed, 0 failed, 1 skipped"
    exit 0
fi

work=$(mktemp -d)
export UNDERSTUDY_DIR=$work/state
runner= server=
cleanup() {
    trap - EXIT
    "$understudy" stop page --timeout 3 >/dev/null 2>&1
    for pid in $server $runner; do kill "$pid" 2>/dev/null; done
    wait 2>/dev/null
    rm -rf "$work"
}
trap cleanup EXIT
trap 'exit 130' INT TERM

passed=0 failed=0
# check WHAT COMMAND...: one line for each.
check() {
    local what=$1
    shift
    if "$@" >"$work/said" 2>&1; then
        echo "pass  $what"
        ((passed += 1))
    else
        echo "FAIL  $what"
        sed 's/^/    /' "$work/said"
        ((failed += 1))
    fi
}
finish() {
    echo "$passed passed, $failed failed, 0 skipped"
    exit $((failed != 0))
}

# Were its name markup, the page would have an element `planted` and a script would have run.
hostile='<b id=planted>'
cp "$(command -v sleep)" "$work/$hostile"
"$understudy" run -q --name page --events "$work/events" -- "$work/$hostile" 300 &
runner=$!
"$understudy" serve --metrics 127.0.0.1:0 >"$work/address" &
server=$!
"$understudy" wait page --protected --timeout 30 >/dev/null || { echo "FAIL  the program is not protected"; failed=1; finish; }
for _ in {1..100}; do
    address=$(sed -n 's|^http://\(.*\)/metrics$|\1|p' "$work/address")
    if [[ -n $address ]]; then break; fi
    sleep 0.1
done

# browse OPTION...: the page after some looks. A browser as root needs --no-sandbox; its own profile goes with the folder.
browse() {
    HOME=$work timeout -k 5 60 "$browser" --headless=new --no-sandbox --disable-gpu --disable-dev-shm-usage \
        --user-data-dir="$work/profile" --enable-logging=stderr --virtual-time-budget=4000 "$@" "http://$address/" \
        2>"$work/browser"
}
has() { grep -qF -- "$1" "$work/dom" || { echo "not on the page: $1"; cat "$work/dom"; false; }; }
count() {
    local found
    found=$(grep -oF -- "$1" "$work/dom" | wc -l)
    ((found == $2)) || { echo "$found times, not $2: $1"; false; }
}

# dump TEXT: what the script has put on the page, once TEXT is there; `serve` looks at the groups each second. The script's own
# text is on the page as well, and left out.
dump() {
    for _ in {1..8}; do
        browse --dump-dom | sed -n '/<p id="note"/,/<\/main>/p' >"$work/dom"
        if has "$1" >/dev/null; then break; fi
        sleep 1
    done
}

dump '<section>'
check "the group is shown" has '<span class="name">page</span>'
check "it is protected" has '<span class="state protected">protected</span>'
check "four plots" count '<figure>' 4
check "lag and events are curves" count '<polyline' 2
check "the name of the program is text" has '&lt;b id=planted&gt;'
check "and nothing else" count '<b id' 0
check "each process has its standby" has 'standby '
check "no trouble" has '<p id="trouble" role="alert"></p>'
# A violation of the policy, or a mistake of the script's, is told on the console.
check "the console is silent" bash -c '! grep -E "CONSOLE" "$1"' silent "$work/browser"

primary=$(sed -n 's/.*"event":"protected".*"primary":\([0-9]*\).*/\1/p' "$work/events" | head -1)
kill -KILL "$primary"
for _ in {1..100}; do
    if grep -q '"event":"recloned"' "$work/events"; then break; fi
    sleep 0.1
done
dump 'failovers: 1, new standbys: 1'
check "a failover is counted" has 'failovers: 1, new standbys: 1'
check "its blackout is a bar" grep -q 'title>up to [0-9.]* [mµ]s: 1<' "$work/dom"
if [[ -n $keep ]]; then browse --window-size=1100,720 --screenshot="$keep" >/dev/null; fi

"$understudy" stop page --timeout 3 >/dev/null
dump 'Ended in the last day'
check "its end is told" has '<h2>Ended in the last day</h2>'
check "and how it ended" has ': killed by SIGTERM'
check "no plot is left of it" count '<figure>' 0
finish
