#!/usr/bin/env bash
# Every test, and one line for the whole at the end: "N passed, N failed, N skipped". A step that fails
# does not stop the later ones. `make test` has built the release binaries before.
set -uo pipefail
cd "$(dirname "$0")/.."

: "${CARGO:=cargo}" "${TARGET:=target}" "${SEEDS:=2}" "${RUNS:=5}" "${JOBS:=4}" "${UNSTEADY:=6}"
mkdir -p "$TARGET/test-logs"
TARGET=$(cd "$TARGET" && pwd)
logs=$TARGET/test-logs
kit=$TARGET/release/kit
export UNDERSTUDY=$TARGET/release/understudy
# The command's own tests start the library that is shipped, not one of another profile.
export UNDERSTUDY_LIB=$TARGET/release/libunderstudy.so

# What whoever starts this has open is in no test: a checkpoint, say, refuses what it cannot hold.
for path in /proc/$$/fd/*; do
    fd=${path##*/}
    if ((fd > 2 && fd != 255)) && [[ -e $path || -L $path ]]; then
        echo "closed: descriptor $fd, $(readlink "$path")"
        eval "exec $fd>&-"
    fi
done

passed=0 failed=0 skipped=0
summary=() failing=()

# Sums what a log says in the words of the test harness of Rust or of the kit. A kit that was ended before
# its last line has still said what passed and what failed.
counts() {
    awk '
        /^test result: / { for (i = 2; i <= NF; i++) n[$i] = $(i - 1); p += n["passed;"]; f += n["failed;"]; s += n["ignored;"] }
        /^[0-9]+ passed, [0-9]+ failed, [0-9]+ skipped$/ { p += $1; f += $3; s += $5; said = 1 }
        /^pass  / { passes++ }
        /^(FAIL|RACE)  / { fails++ }
        END { if (!said) { p += passes; f += fails }; print p + 0, f + 0, s + 0 }
    ' "$1"
}

# What failed and the line behind it, which says why, said once more behind the summary: the end of a log is all that some show of it.
failures() {
    local line
    while IFS= read -r line; do
        failing+=("$1: $line")
    done < <(grep -aE -A1 '^(FAIL|RACE)  |^test .* FAILED$|panicked at ' "$2" | grep -v '^--$' | cut -c 1-300 | head -40)
}

# step NAME COMMAND...: runs it, shows its output, adds its counts. A step that fails without a failed
# count (it did not build, it crashed), or passes without any count (it tested nothing), is one failure.
step() {
    local name=$1 log=$logs/$1.log begin=$SECONDS status p f s note=
    shift
    printf '\n=== %s: %s\n' "$name" "$*"
    "$@" 2>&1 | tee "$log"
    status=${PIPESTATUS[0]}
    read -r p f s < <(counts "$log")
    ((status == 0)) || failures "$name" "$log"
    if ((status != 0 && f == 0)); then
        f=1 note=", ended with status $status"
    elif ((status == 124)); then
        ((f += 1))
        note=", ended at its limit"
    elif ((status == 0 && p + f + s == 0)); then
        f=1 note=", tested nothing"
    fi
    ((passed += p, failed += f, skipped += s))
    summary+=("$(printf '%-20s %5d passed %3d failed %3d skipped  %4d s%s' "$name" "$p" "$f" "$s" $((SECONDS - begin)) "$note")")
}

# whole NAME COMMAND...: a step that counts as one case.
whole() {
    local name=$1
    shift
    step "$name" bash -c '"$@" && echo "1 passed, 0 failed, 0 skipped"' whole "$@"
}

# skip NAME WHY: a step that cannot run here.
skip() {
    printf '\n=== %s: skipped: %s\n' "$1" "$2"
    ((skipped += 1))
    summary+=("$(printf '%-20s skipped: %s' "$1" "$2")")
}

# The library with faults: guests run with it, and the command's tests have it break its invariants. Sums that overflow end it.
faults() {
    env CARGO_PROFILE_RELEASE_OVERFLOW_CHECKS=true "$CARGO" build --release -p us-runtime --features faults --target-dir "$TARGET/faults"
}
loom() {
    env RUSTFLAGS="--cfg loom" "$CARGO" test --release -p us-ring --test loom --target-dir "$TARGET/loom" "$@"
}
# All at a time: each ends with a part that one processor compiles alone.
builds() {
    local pid pids=() status=0
    faults & pids+=($!)
    "$CARGO" test --workspace --no-run & pids+=($!)
    loom --no-run & pids+=($!)
    for pid in "${pids[@]}"; do wait "$pid" || status=$?; done
    return "$status"
}
export CARGO TARGET
export -f builds faults loom
whole builds builds
export UNDERSTUDY_FAULTY=$TARGET/faults/release/libunderstudy.so
step crates "$CARGO" test --workspace --no-fail-fast
step ring-loom loom
if "$CARGO" +nightly miri --version >/dev/null 2>&1; then
    step ring-miri env MIRIFLAGS=-Zmiri-disable-isolation PROPTEST_CASES=16 \
        "$CARGO" +nightly miri test -p us-ring --test bytes --target-dir "$TARGET/miri"
else
    skip ring-miri "no nightly toolchain with miri"
fi
# The same entry on a bounded number of cases is one of the tests of the crate.
if "$CARGO" +nightly fuzz --version >/dev/null 2>&1; then
    whole recording-fuzz "$CARGO" +nightly fuzz run --target-dir "$TARGET/fuzz" recording -- -max_total_time=30 -max_len=65536
    whole checkpoint-fuzz "$CARGO" +nightly fuzz run --target-dir "$TARGET/fuzz" checkpoint -- -max_total_time=30 -max_len=65536
else
    skip recording-fuzz "no nightly toolchain with cargo-fuzz"
    skip checkpoint-fuzz "no nightly toolchain with cargo-fuzz"
fi
# Many times what it takes: only a runtime that hangs in many guests meets this end.
limit=${GUESTS_LIMIT:-$((800 + 200 * SEEDS))}
# A machine that is busy loses a race in some thousand runs: those are made again, and counted.
step guests timeout -k 60 "$limit" "$kit" guests --mode all --seeds "$SEEDS" --jobs "$JOBS" --unsteady "$UNSTEADY"
# Copies die and are late at named points, in windows that a kill from outside hardly ever meets.
step guests-faults timeout -k 60 400 "$kit" guests --mode faults --faulty "$TARGET/faults/release/libunderstudy.so" --jobs "$JOBS" --timeout 30 --unsteady 8
# A replay begins at states that were kept while a program was recorded.
step middle timeout -k 60 500 "$kit" guests --mode middle --jobs "$JOBS" --timeout 30 --unsteady 6
# A program is written into a file, ended there, and goes on from it.
step checkpoints timeout -k 60 500 "$kit" guests --mode checkpoint --jobs "$JOBS" --timeout 30 --unsteady 6
step upgrades timeout -k 60 500 "$kit" guests --mode upgrade --jobs "$JOBS" --timeout 30 --unsteady 6
# Several standbys: the one that takes over is killed as well.
for guests in clone tcp file mutex cond epoll turns tree; do
    # Of a message queue that processes share a call in doubt is a guess, and a storm with two standbys asks often.
    step "spares-$guests" timeout -k 10 240 "$kit" guests --mode storm --standbys 2 --only "${guests}_" --jobs "$JOBS" --unsteady 3
done
# The same where the order is computed and threads run beside each other between doors.
for guests in cancel clone cond signal stdio thread; do
    step "ordered-$guests" timeout -k 10 240 "$kit" guests --mode storm --standbys 2 --order deterministic --only "${guests}_" --jobs "$JOBS" --unsteady 3
done
step spares-faults timeout -k 10 120 "$kit" guests --mode faults --faulty "$TARGET/faults/release/libunderstudy.so" --standbys 2 --only proc_ --seeds 10 --jobs "$JOBS" --unsteady 1
step spares-recorded timeout -k 10 120 "$kit" guests --mode beside --standbys 2 --only tcp_ --jobs "$JOBS" --unsteady 1
# As in a container: a pid namespace of its own whose first process has its session outside, and the capabilities that engines leave.
apart=(unshare --pid --fork --mount-proc --kill-child)
left=-all
for capability in chown dac_override fowner fsetid kill setgid setuid setpcap net_bind_service net_raw sys_chroot mknod audit_write setfcap; do
    left+=,+$capability
done
contained=("${apart[@]}" setpriv --bounding-set "$left" "--inh-caps=-all")
if "${contained[@]}" true 2>/dev/null; then
    step contained-rights timeout -k 10 120 "${contained[@]}" "$kit" guests --mode kill --only rights --seeds 5 --jobs "$JOBS"
    step contained-nginx timeout -k 10 60 "${contained[@]}" "$kit" nginx --timeout 20 --kills 6
else
    skip contained "needs root and namespaces"
fi
for server in echo redis memcached threads16 pbzip2; do
    step "$server-native" "$kit" "$server" --timeout 30 --native
    step "$server-protected" "$kit" "$server" --timeout 30 --no-kill
    step "$server-kill" "$kit" "$server" --timeout 30 --runs "$RUNS"
done
# Programs of several processes: a slice of what `kit nginx --runs 10 --kills 12` shows.
for server in nginx python shell; do
    step "$server-kill" timeout -k 10 60 "$kit" "$server" --timeout 20 --runs 2
    step "$server-life" timeout -k 10 60 "$kit" "$server" --timeout 20 --kills 6
done
for server in "apache --mpm event" "apache --mpm worker" haproxy mosquitto; do
    name=${server/ --mpm /-}
    # shellcheck disable=SC2086 # the flags are words of their own
    step "$name-kill" timeout -k 10 60 "$kit" $server --timeout 20 --runs 2
    # shellcheck disable=SC2086
    step "$name-life" timeout -k 10 60 "$kit" $server --timeout 20 --kills 6
done
# Sixty of the hundred that `kit stop --runs 20` tries.
step stop timeout -k 10 90 "$kit" stop --no-kill --timeout 20 --runs 12
step both timeout -k 10 90 "$kit" both --no-kill --timeout 20 --runs 10
step signals timeout -k 10 120 "$kit" signals --timeout 20 --runs 4
# Its standbys take over together: docs/decisions/0036-families.md.
if ((EUID != 0)) || setpriv --reuid postgres --regid postgres --clear-groups test -x "$kit"; then
    step postgres-protected timeout -k 10 60 "$kit" postgres --timeout 30 --requests 3000 --no-kill
    step postgres-kill timeout -k 10 120 "$kit" postgres --timeout 30 --requests 3000 --runs 2
else
    skip postgres "the user postgres cannot reach $kit"
fi
for server in redis memcached threads16 echo; do
    step "$server-life" "$kit" "$server" --timeout 30 --kills 12
done
if command -v go >/dev/null; then
    whole go timeout -k 10 180 tests/foreign/go.sh
else
    skip go "no go toolchain"
fi
step sanitized tests/foreign/sanitized.sh
step full tests/foreign/full.sh
if command -v python3 >/dev/null; then
    step book timeout -k 10 300 tests/book/run.py
else
    skip book "no python3"
fi
if command -v python3 >/dev/null; then
    step matrix tests/foreign/matrix.py --check
else
    skip matrix "no python3"
fi
if command -v python3 >/dev/null; then
    step checkpoint-servers timeout -k 10 200 tests/checkpoint/run.py "$UNDERSTUDY" "$RUNS"
else
    skip checkpoint-servers "no python3"
fi
if command -v python3 >/dev/null; then
    step order timeout -k 10 300 tests/order/run.py "$UNDERSTUDY" 20 "$RUNS"
    step scripted timeout -k 10 300 tests/order/scripted.py "$UNDERSTUDY" "$RUNS"
else
    skip order "no python3"
fi
if command -v python3 >/dev/null; then
    step cluster timeout -k 10 900 tests/cluster/run.py "$UNDERSTUDY" 2
else
    skip cluster "no python3"
fi
if command -v mdbook >/dev/null || [[ -x $TARGET/tools/bin/mdbook ]]; then
    whole book-build timeout -k 10 60 scripts/book.sh
else
    skip book-build "no mdbook; make docs compiles it"
fi
step page timeout -k 10 300 tests/page/run.sh
step install timeout -k 10 300 tests/install/run.sh
# The package's units under a systemd of their own.
step systemd env KILLS=2 timeout -k 10 400 tests/install/systemd.sh
# A race of one run in two hundred, caught and repeated.
whole race bench/race-demo --bin "$TARGET/release" --replays 20
# A slice: `make chaos` goes on for longer.
step chaos "$TARGET/release/chaos" --timeout 30 --seconds 20
step ledger "$TARGET/release/ledger" --understudy "$UNDERSTUDY" --target "$TARGET/ledger"
# Figures are for `make bench`; here the benchmarks only have to work still.
if command -v python3 >/dev/null; then
    whole bench-smoke bench/run --smoke --bin "$TARGET/release"
else
    skip bench-smoke "no python3"
fi

printf '\n'
printf '%s\n' "${summary[@]}"
((${#failing[@]} == 0)) || printf 'failed: %s\n' "${failing[@]}"
printf 'logs: %s\n' "$logs"
echo "$passed passed, $failed failed, $skipped skipped"
((failed == 0))
