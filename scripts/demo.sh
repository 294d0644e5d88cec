#!/usr/bin/env bash
# Counts against redis over one connection, kills redis with SIGKILL in the middle, and shows that the
# count goes on: same connection, no number lost or repeated. `make demo` has built everything before.
set -euo pipefail
cd "$(dirname "$0")/.."
: "${TARGET:=target}"
understudy=$TARGET/release/understudy
name=demo-$$
count_to=${COUNT:-30000}

work=$(mktemp -d)
runner=
cleanup() {
    local status=$?
    trap - EXIT INT TERM
    exec 3>&- 2>/dev/null || true
    if [[ -n $runner ]] && kill -0 "$runner" 2>/dev/null; then
        "$understudy" stop "$name" --timeout 3 >/dev/null 2>&1 || kill -KILL "$runner" 2>/dev/null || true
        wait "$runner" 2>/dev/null || true
    fi
    rm -rf "$work"
    exit "$status"
}
trap cleanup EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

fail() {
    echo "demo: $1" >&2
    if [[ -s $work/events ]]; then
        echo "demo: lifecycle events:" >&2
        cat "$work/events" >&2
    fi
    if [[ -s $work/log ]]; then tail -n 20 "$work/log" >&2; fi
    exit 1
}

# A port is free if nobody accepts on it; should somebody take it in between, redis says so and ends.
for _ in {1..50}; do
    port=$((20000 + RANDOM % 12000))
    (exec 9<>"/dev/tcp/127.0.0.1/$port") 2>/dev/null || break
done

echo "\$ understudy run --name $name -- redis-server --port $port"
"$understudy" run --name "$name" --events "$work/events" -- \
    redis-server --port "$port" --bind 127.0.0.1 --save "" --dir "$work" >"$work/log" 2>&1 &
runner=$!

for ((tries = 0; ; tries++)); do
    if ! kill -0 "$runner" 2>/dev/null; then fail "the server ended"; fi
    if ((tries > 300)); then fail "the server does not answer"; fi
    if grep -q '"event":"protected"' "$work/events" 2>/dev/null &&
        { exec 3<>"/dev/tcp/127.0.0.1/$port"; } 2>/dev/null; then
        break
    fi
    sleep 0.1
done

# Its exit code says whether the group is protected.
show() {
    "$understudy" status "$name" "$@" || (($? == 4))
}

primary() {
    show --json | tr -d '[:space:]' | sed -nE 's/.*"primary":\{([^}]*)\}.*/\1/p' |
        sed -nE 's/.*"pid":([0-9]+).*/\1/p'
}

victim=$(primary)
if [[ -z $victim ]]; then fail "no primary in the status"; fi
# Killing a server that nobody protects would prove nothing.
if ! show --json | tr -d '[:space:]' | grep -q '"state":"protected"'; then
    fail "the group is not protected"
fi
echo
show
echo
echo "counting to $count_to over one connection; the primary is pid $victim"

# The killer waits until the count is a third done: it reads the number that the counter leaves behind.
(
    while [[ $(cat "$work/progress" 2>/dev/null || echo 0) -lt $((count_to / 3)) ]]; do sleep 0.01; done
    echo "\$ kill -KILL $victim"
    kill -KILL "$victim"
) &
killer=$!

longest=0 at=0
for ((n = 1; n <= count_to; n++)); do
    before=${EPOCHREALTIME/./}
    printf 'INCR demo\r\n' >&3 || fail "the connection broke at $n"
    IFS= read -r -t 20 reply <&3 || fail "no answer to request $n"
    now=${EPOCHREALTIME/./}
    if [[ $reply != ":$n"$'\r' ]]; then fail "request $n was answered ${reply@Q}"; fi
    if ((now - before > longest)); then longest=$((now - before)) at=$n; fi
    if ((n % 1000 == 0)); then echo "$n" >"$work/progress"; fi
done
wait "$killer" || fail "the primary was gone before it was killed"
after=$(primary)

echo "counted to $count_to: no answer lost, none repeated, no reconnect"
if [[ -z $after || $after == "$victim" ]]; then fail "no other process took over"; fi
echo "the primary is pid $after now; pid $victim is dead"
printf 'longest wait for an answer: %d.%03d ms (at %d)\n' $((longest / 1000)) $((longest % 1000)) "$at"
echo
show
