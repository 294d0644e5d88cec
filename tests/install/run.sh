#!/usr/bin/env bash
# Installs what was built, packs it, and uses it as a user would: as root, as an ordinary user, in a bare root, as process 1 of a pid
# namespace, over an upgrade. A line for each case, and the counts at the end. Needs root; what cannot be tried here is skipped.
set -uo pipefail
cd "$(dirname "$0")/../.."
: "${TARGET:=target}" "${BARE:=${TARGET}/roots/bookworm}"
TARGET=$(cd "$TARGET" && pwd)
export TARGET
work=$(mktemp -d /tmp/understudy-install-XXXXXX)
where=
. tests/install/cases.sh
groups=()

finish() {
    # Groups of cases that failed, by name.
    local group
    for group in "${groups[@]}"; do "$TARGET/release/understudy" stop "$group" --timeout 1 >/dev/null 2>&1; done
    rm -rf "$work"
}
trap finish EXIT

# primary COMMAND... GROUP: the kernel's number of its primary, by the table of status.
primary() { "${@:1:$#-1}" status "${@: -1}" | awk 'NR == 2 { print $3 }'; }

# survives COMMAND...: a program under this command (words in front of it included) outlives a kill with its memory: a shell that
# counts the lines it is given.
survives() {
    local name=install-$RANDOM$RANDOM dir at answer
    groups+=("$name")
    dir=$(mktemp -d "$work/run-XXXXXX")
    chmod 755 "$work" && chmod 777 "$dir"
    mkfifo -m 666 "$dir/in" && : >"$dir/out" && chmod 666 "$dir/out"
    "$@" run --name "$name" -- sh -c 'n=0; while read -r line; do n=$((n + 1)); echo "$n $line"; done' <"$dir/in" >"$dir/out" 2>"$dir/err" &
    local run=$!
    exec 9>"$dir/in"
    "$@" wait "$name" --timeout 30 || { cat "$dir/err"; return 1; }
    echo before >&9
    wait_for grep -qx '1 before' "$dir/out" || return 1
    at=$(primary "$@" "$name")
    if [[ ! $at =~ ^[0-9]+$ ]]; then echo "no primary: $at"; return 1; fi
    "${between[@]}" || return 1
    # In the pid namespace that it has: the number is ours.
    kill -KILL "$at" || return 1
    echo after >&9
    wait_for grep -qx '2 after' "$dir/out" || { cat "$dir/err"; return 1; }
    wait_for "$@" status "$name" || { cat "$dir/err"; return 1; }
    exec 9>&-
    wait "$run"
    local code=$?
    answer=$("$@" status "$name" 2>&1)
    if ((code != 0)) || [[ $answer != *": exit code 0"*"failovers: 1"* ]]; then
        echo "ended with $code: $answer"
        cat "$dir/err"
        return 1
    fi
}
between=(true)

root=$work/root
install_into() { DESTDIR=$1 make --no-print-directory -s install PREFIX=/usr/local; }
command=$root/usr/local/bin/understudy

all_is_there() {
    local file
    for file in bin/understudy lib/understudy/libunderstudy.so share/man/man1/understudy.1 share/man/man1/understudy-run.1 \
        share/bash-completion/completions/understudy share/zsh/site-functions/_understudy \
        share/fish/vendor_completions.d/understudy.fish lib/systemd/system/understudy@.service \
        lib/systemd/system/understudy@redis.service.d/50-redis.conf share/doc/understudy/docs/LIMITS.md share/doc/understudy/docs/book/quick-start.md \
        share/doc/understudy/contrib/prometheus/understudy.rules.yml; do
        [[ -s $root/usr/local/$file ]] || { echo "$file is missing"; return 1; }
    done
    ! find "$root" -name '*.new' | grep . && ! grep -rl '@BIN@' "$root/usr/local/lib/systemd"
}

try "install into a folder" install_into "$root"
try "everything is there" all_is_there
try "doctor finds nothing missing" "$command" doctor -- sh
try "a kill is survived, as root" survives "$command"
if ((EUID == 0)); then
    try "a kill is survived, as an ordinary user" survives setpriv --reuid 65534 --regid 65534 --clear-groups "$command"
else
    skip "as an ordinary user" "needs root to become one"
fi

# Files are replaced while a group runs: what it has, it keeps.
inode() { stat -c %i "$root/usr/local/lib/understudy/libunderstudy.so"; }
upgrade() {
    local before
    before=$(inode)
    install_into "$root"
    [[ $(inode) != "$before" ]] || { echo "the runtime was written over in place"; return 1; }
}
between=(upgrade)
try "an upgrade under a running group" survives "$command"
# Another version's file in the place of the runtime must not reach who runs already.
broken() { echo "not a library" >"$work/broken" && mv -f "$work/broken" "$root/usr/local/lib/understudy/libunderstudy.so"; }
between=(broken)
try "another runtime under a running group" survives "$command"
between=(true)
install_into "$root"

manual() {
    local page named
    for page in "$root"/usr/local/share/man/man1/*.1; do
        groff -man -Tutf8 -ww -z "$page" 2>&1 | grep . && return 1
        # Pages that it names are there.
        while read -r named; do
            [[ -e $root/usr/local/share/man/man1/$named.1 ]] || { echo "$page names $named"; return 1; }
        done < <(sed 's/\\-/-/g' "$page" | grep -o 'understudy-[a-z]*(1)' | sed 's/(1)//' | sort -u)
    done
    # Every option that the help of a command has is on its page. grep reads to the end: with -q it would end sed now and then.
    for page in run status top wait stop failover signal doctor record replay inspect; do
        while read -r named; do
            sed 's/\\-/-/g' "$root/usr/local/share/man/man1/understudy-$page.1" | grep -e "fB$named\\\\f" >/dev/null ||
                { echo "$page: $named is not on the page"; return 1; }
        done < <("$command" "$page" --help | grep -o -e '^ *\(-., \)\?--[a-z-]*' | grep -o -e '--[a-z-]*')
    done
}
# Whoever has the package alone reads on: what a document refers to is there, but for what only the tree has.
documents() {
    local folder=$root/usr/local/share/doc/understudy page to
    while IFS=: read -r page to; do
        to=${to#](} to=${to%%#*}
        if [[ -z $to || $to == *://* || $to =~ (bench|crates|docs/man)/ ]]; then continue; fi
        [[ -e $(dirname "$page")/$to ]] || { echo "${page#"$folder/"} refers to $to"; return 1; }
    done < <(grep -r -o --include='*.md' ']([^)]*' "$folder")
}
try "what the documents refer to" documents
if command -v groff >/dev/null; then try "the manual pages" manual; else skip "the manual pages" "no groff"; fi

in_bash() {
    local name=install-$RANDOM$RANDOM share=$root/usr/local/share
    groups+=("$name")
    "$command" run -q --name "$name" -- sleep 60 &
    wait_for "$command" wait "$name" --timeout 30 || return 1
    local said
    said=$(PATH=$root/usr/local/bin:$PATH bash --norc -c '
        source "$1"
        COMP_WORDS=(understudy status "") COMP_CWORD=2
        _understudy_and_groups understudy "" status
        echo "${COMPREPLY[@]}"
        COMP_WORDS=(understudy run --lag-) COMP_CWORD=2
        _understudy_and_groups understudy --lag- run
        echo "${COMPREPLY[@]}"' bash "$share/bash-completion/completions/understudy")
    "$command" stop "$name"
    [[ $said == *"$name"*"--lag-limit --lag-timeout"* ]] || { echo "completed: $said"; return 1; }
}
try "completions of bash" in_bash
of_zsh() {
    zsh -n "$root/usr/local/share/zsh/site-functions/_understudy" &&
        (($(grep -c ':_understudy_groups' "$root/usr/local/share/zsh/site-functions/_understudy") == 9))
}
if command -v zsh >/dev/null; then try "completions of zsh" of_zsh; else skip "completions of zsh" "no zsh"; fi
of_fish() {
    local file=$root/usr/local/share/fish/vendor_completions.d/understudy.fish said
    fish --no-execute "$file" &&
        said=$(PATH=$root/usr/local/bin:$PATH fish --no-config -c "source $file; complete -C 'understudy wai'") &&
        [[ $said == wait* ]]
}
if command -v fish >/dev/null; then try "completions of fish" of_fish; else skip "completions of fish" "no fish"; fi

units() {
    # At the place that the units name.
    local at=$work/prefix unit
    PREFIX=$at scripts/install.sh install
    for unit in @example @redis @memcached @nginx @postgresql @mosquitto -node; do
        SYSTEMD_UNIT_PATH=$at/lib/systemd/system: systemd-analyze verify --man=no "understudy$unit.service" >"$work/verified" 2>&1 || { cat "$work/verified"; return 1; }
        if grep -F "$at" "$work/verified"; then return 1; fi
    done
}
if command -v systemd-analyze >/dev/null; then try "the units" units; else skip "the units" "no systemd"; fi

# The first process of a container has nobody above it: it reaps who is left to it, and passes SIGTERM on.
as_process_1() {
    local out=$work/one
    timeout 60 unshare --pid --fork --mount-proc --kill-child "$command" run --name one-$$ -- sh -c '
        trap "echo got it; exit 3" TERM
        # Orphans, by the thousand if nobody took them.
        for n in 1 2 3 4 5; do sh -c "sleep 0.1 & exit" ; done
        sleep 1
        echo "zombies: $(ps -eo stat= | grep -c ^Z)"
        echo "first: $(ps -o comm= -p 1)"
        kill -TERM 1 2>/dev/null
        while :; do sleep 0.1; done' >"$out" 2>&1 &
    local run=$!
    wait_for grep -q first: "$out" || { cat "$out"; return 1; }
    # From outside, as a container engine sends it.
    kill -TERM "$(pgrep -P "$run" -x unshare | head -n 1 | xargs -r pgrep -P)" || { cat "$out"; return 1; }
    wait "$run"
    local code=$?
    grep -qx "zombies: 0" "$out" && grep -qx "first: understudy" "$out" && grep -qx "got it" "$out" && ((code == 3)) ||
        { echo "ended with $code"; cat "$out"; return 1; }
}
if ((EUID == 0)) && command -v pgrep >/dev/null; then
    try "process 1 of a pid namespace" as_process_1
else
    skip "process 1 of a pid namespace" "needs root and procps"
fi

# As in most containers: a process that has become another user's may not be traced, and the kernel hides how it ended.
hidden_end() {
    local name=install-$RANDOM$RANDOM events=$work/hidden child
    groups+=("$name")
    setpriv --bounding-set -sys_ptrace --inh-caps -sys_ptrace "$command" run -q --name "$name" --events "$events" -- \
        perl -MPOSIX -e 'if (!fork) { sleep 1; POSIX::setuid(65534) } sleep 1 while 1' &
    local run=$!
    members() { (($(grep -c -e '"event":"protected"' -e '"event":"recloned"' "$events") >= 2)); }
    wait_for members || { cat "$events"; return 1; }
    child=$(grep -o '"process":[0-9]*' "$events" | cut -d : -f 2 | grep -v -x "$(grep -o '"primary":[0-9]*' "$events" | head -n 1 | cut -d : -f 2)" | head -n 1)
    is_other() { [[ $(stat -c %u "/proc/$child") == 65534 ]]; }
    wait_for is_other || return 1
    sleep 0.5
    kill -KILL "$child"
    promoted() { grep -q '"event":"promoted".*"process":'"$child" "$events"; }
    wait_for promoted || { cat "$events"; return 1; }
    "$command" stop "$name"
    wait "$run"
    grep '"event":"promoted"' "$events" | grep -q '"reason":"killed' || { cat "$events"; return 1; }
}
if ((EUID == 0)) && command -v perl >/dev/null; then
    try "an end that the kernel hides" hidden_end
else
    skip "an end that the kernel hides" "needs root and perl"
fi

try "the tarball" scripts/package.sh tarball
unpacked() {
    mkdir "$work/anywhere" && tar -C "$work/anywhere" --strip-components=1 -xzf "$TARGET"/package/understudy-*.tar.gz &&
        survives "$work/anywhere/bin/understudy"
}
try "a kill is survived, from the tarball" unpacked

if command -v dpkg-deb >/dev/null; then
    try "the Debian package" scripts/package.sh deb
    package=$(ls "$TARGET"/package/understudy_*_amd64.deb)
    if ((EUID == 0)) && [[ -e $BARE/.complete ]]; then
        in_bare() {
            cp "$package" "$BARE/understudy.deb"
            BUILT=$TARGET/release tests/foreign/rootfs.sh --enter "$BARE" sh -euc '
                dpkg -i /understudy.deb >/dev/null
                export UNDERSTUDY_DIR=/run/groups
                mkdir -m 700 -p "$UNDERSTUDY_DIR"
                mkfifo /run/in
                understudy run --name g -- sh -c "n=0; while read -r line; do n=\$((n + 1)); echo \"\$n \$line\"; done" </run/in >/run/out &
                exec 9>/run/in
                understudy wait g
                echo before >&9
                sleep 0.5
                kill -KILL "$(understudy status g | awk "NR == 2 { print \$3 }")"
                echo after >&9
                understudy wait g
                sleep 0.5
                exec 9>&-
                wait $!
                grep -qx "1 before" /run/out
                grep -qx "2 after" /run/out
                understudy status g || test $? = 3
                dpkg -P understudy >/dev/null
                test ! -e /usr/bin/understudy'
        }
        try "a kill is survived, from the package in a bare root" in_bare
    else
        skip "the package in a bare root" "tests/foreign/rootfs.sh bookworm $BARE makes one (as root)"
    fi
else
    skip "the Debian package" "no dpkg-deb"
fi

away() {
    DESTDIR=$root make --no-print-directory -s uninstall PREFIX=/usr/local
    ! find "$root" ! -type d | grep .
}
try "uninstall leaves nothing" away

sum_up
