#!/usr/bin/env bash
# Formatting, lints, tidiness and documents. Reads only: what it finds, `make fix` or a person mends.
set -uo pipefail
cd "$(dirname "$0")/.."
: "${CARGO:=cargo}"

bad=()
run() {
    echo "--- $*"
    "$@" || bad+=("$*")
}

run "$CARGO" fmt --all --check
# The runtime has a panic handler of its own, so it cannot be built with the test harness.
run "$CARGO" clippy --workspace --exclude us-runtime --all-targets --quiet -- -D warnings
run "$CARGO" clippy -p us-runtime --quiet -- -D warnings
run env RUSTFLAGS="--cfg loom" "$CARGO" clippy -p us-ring --all-targets --quiet --target-dir "${TARGET:-target}/loom" -- -D warnings
# The symbols that are looked at are those of the library that is shipped.
run "$CARGO" build --release --quiet -p us-runtime -p us-cli -p us-ledger
run env UNDERSTUDY_LIB="${TARGET:-target}/release/libunderstudy.so" "$CARGO" test --quiet -p us-tidy
run scripts/docs.sh --check
run "${TARGET:-target}/release/ledger" --understudy "${TARGET:-target}/release/understudy" --target "${TARGET:-target}/ledger"
python=(bench/run bench/soak bench/suite/*.py tests/*/*.py tests/foreign/load/*.py crates/supervisor/src/*/*/*.py)
if command -v python3 >/dev/null; then
    # Compiled and thrown away: no folder of Python's own is left in the tree.
    run python3 -W error -c 'import sys; [compile(open(name, encoding="utf-8").read(), name, "exec") for name in sys.argv[1:]]' "${python[@]}"
    run bench/run --readme
fi
if command -v ruff >/dev/null; then
    run ruff check --no-cache "${python[@]}"
fi
for script in scripts/*.sh tests/foreign/*.sh tests/install/*.sh tests/page/*.sh .ci/run; do
    run bash -n "$script"
done

if ((${#bad[@]})); then
    printf 'check failed: %s\n' "${bad[@]}"
    exit 1
fi
echo "check passed"
