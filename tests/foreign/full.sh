#!/usr/bin/env bash
# Guests whose groups live in a place that is full every few hundredths of a second (containers have 64 MB of /dev/shm): they must
# say and end as natively, protected or not. Needs root, for a file system of its own. ROUNDS of each, 5.
set -uo pipefail
top=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
understudy=${UNDERSTUDY:-${TARGET:-$top/target}/release/understudy}
guests=${TARGET:-$top/target}/guests
: "${ROUNDS:=5}" "${MEBIBYTES:=16}"
if [[ ${1:-} != inside ]]; then
    if ((EUID != 0)) || ! unshare -m true 2>/dev/null; then
        echo "skip  full: needs root, and a mount namespace"
        echo "0 passed, 0 failed, 1 skipped"
        exit 0
    fi
    exec unshare -m --propagation private "$0" inside
fi
place=$(mktemp -d "${TMPDIR:-/tmp}/full.XXXXXX")
mount -t tmpfs -o "size=${MEBIBYTES}m,mode=700" full "$place" || exit 1
(
    while sleep "0.0$((RANDOM % 9))$((RANDOM % 9 + 1))"; do
        cat /dev/zero >"$place/.fill" 2>/dev/null
        sleep "0.0$((RANDOM % 9))$((RANDOM % 9 + 1))"
        : >"$place/.fill"
    done
) 2>/dev/null &
filler=$!
trap 'kill $filler; wait $filler 2>/dev/null; umount -l "$place"; rmdir "$place"' EXIT
passed=0 failed=0
for guest in tcp_self_talk lock_storm file_big_read thread_churn tree_busy_child relay_pipes; do
    program=$guests/$guest
    if [[ ! -x $program ]]; then
        echo "FAIL  full $guest: not built; kit guests --mode native --only $guest"
        ((failed += 1))
        continue
    fi
    wanted=$("$program" 2>&1 </dev/null; echo "status $?")
    for ((round = 0; round < ROUNDS; round++)); do
        got=$(UNDERSTUDY_DIR=$place timeout 60 "$understudy" run -q -- "$program" 2>&1 </dev/null; echo "status $?")
        if [[ $got == "$wanted" ]]; then
            ((passed += 1))
        else
            echo "FAIL  full $guest: $(tail -n 2 <<<"$got" | tr '\n' ' ')"
            ((failed += 1))
        fi
    done
done
echo "$passed passed, $failed failed, 0 skipped"
((failed == 0))
