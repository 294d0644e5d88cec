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
for script in scripts/*.sh tests/foreign/*.sh tests/install/*.sh tests/page/*.sh .ci/run; do
    run bash -n "$script"
done

if ((${#bad[@]})); then
    printf 'check failed: %s\n' "${bad[@]}"
    exit 1
fi
echo "check passed"
