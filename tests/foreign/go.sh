#!/usr/bin/env bash
# tests/foreign/go.sh: a Go program (dynamic, by cgo), natively, alone and protected: it must never notice. RUNS of each, 5.
set -euo pipefail
cd "$(dirname "$0")/go"
: "${UNDERSTUDY:=../../../target/release/understudy}" "${RUNS:=5}"
UNDERSTUDY=$(realpath "$UNDERSTUDY")
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
GOFLAGS=-mod=mod GOPROXY=off GOTOOLCHAIN=local GOCACHE=$place/cache CGO_ENABLED=1 go build -o "$place/program" .
for ((run = 0; run < RUNS; run++)); do
    for command in "" "$UNDERSTUDY run --standbys 0 --" "$UNDERSTUDY run --"; do
        # shellcheck disable=SC2086 # words of a command
        said=$(timeout 60 $command "$place/program" 2>"$place/stderr") || { echo "status $? of: $command"; head -20 "$place/stderr"; exit 1; }
        [[ $said == ok ]] || { echo "said $said: $command"; exit 1; }
    done
done
