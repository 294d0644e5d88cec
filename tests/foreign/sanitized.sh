#!/usr/bin/env bash
# Three guests, built with each sanitizer of gcc and clang, natively and under run: they must start, say the same and end with
# the same status. Those whose runtime wants to be the first in the process run unprotected, and run says so.
set -uo pipefail
top=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
understudy=${UNDERSTUDY:-${TARGET:-$top/target}/release/understudy}
work=$(mktemp -d "${TMPDIR:-/tmp}/sanitized.XXXXXX")
trap 'rm -rf "$work"' EXIT
passed=0 failed=0 skipped=0
fail() {
    echo "FAIL  $1"
    ((failed += 1))
}
# run NAME COMMAND...: its stdout and status to NAME.out, its stderr to NAME.err
run() {
    local name=$1 status
    shift
    timeout 120 "$@" >"$work/$name.out" 2>"$work/$name.err" </dev/null
    status=$?
    echo "status $status" >>"$work/$name.out"
}
for compiler in gcc clang; do
    for sanitizer in address thread undefined leak memory; do
        if ! command -v "$compiler" >/dev/null; then
            echo "skip  $compiler $sanitizer: no $compiler"
            ((skipped += 1))
            continue
        fi
        if ! echo 'int main(void) { return 0; }' | "$compiler" -xc - "-fsanitize=$sanitizer" -o "$work/empty" 2>/dev/null; then
            echo "skip  $compiler $sanitizer: the compiler has no such sanitizer, or not its library"
            ((skipped += 1))
            continue
        fi
        for guest in mutex_normal tcp_self_talk fork_wait; do
            name=$compiler-$sanitizer-$guest
            if ! "$compiler" -O1 -g -w -pthread "-fsanitize=$sanitizer" "$top/guests/$guest.c" -o "$work/$name" 2>"$work/build"; then
                fail "$name: $(head -n 1 "$work/build")"
                continue
            fi
            run native "$work/$name"
            run bare "$understudy" run --standbys 0 -- "$work/$name"
            run protected "$understudy" run -- "$work/$name"
            for way in bare protected; do
                if ! cmp -s "$work/native.out" "$work/$way.out"; then
                    fail "$name $way: $(diff "$work/native.out" "$work/$way.out" | head -n 4 | tr '\n' ' ') $(tail -n 2 "$work/$way.err")"
                elif [[ $sanitizer != undefined && $way == protected ]] && ! grep -q 'built with a sanitizer' "$work/$way.err"; then
                    fail "$name $way: nobody says that it is not protected: $(tail -n 2 "$work/$way.err")"
                else
                    echo "pass  $name $way"
                    ((passed += 1))
                fi
            done
        done
    done
done
echo "$passed passed, $failed failed, $skipped skipped"
((failed == 0))
