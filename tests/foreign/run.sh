#!/usr/bin/env bash
# What `make foreign` does: the programs of tests/foreign/programs, natively, bare and protected. Bounded: each run
# ends at FOREIGN_SECONDS.
set -uo pipefail
cd "$(dirname "$0")/../.."
: "${TARGET:=target}" "${JOBS:=1}" "${FOREIGN_SECONDS:=60}" "${ONLY:=}" "${SETUP:=}"
if [[ -n $SETUP ]]; then tests/foreign/setup.sh || exit 1; fi
only=()
if [[ -n $ONLY ]]; then only=(--only "$ONLY"); fi
# Programs that are not alone on a port or a processor see each other: one at a time, unless JOBS says otherwise.
exec "$TARGET"/release/kit foreign --jobs "$JOBS" --timeout "$FOREIGN_SECONDS" "${only[@]}"
