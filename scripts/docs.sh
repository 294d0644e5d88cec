#!/usr/bin/env bash
# Writes the documents that are derived from code; with --check only says whether they are current.
set -euo pipefail
cd "$(dirname "$0")/.."
: "${CARGO:=cargo}"

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# derive FILE COMMAND...: FILE is what COMMAND prints.
stale=0
derive() {
    local file=$1
    shift
    "$@" >"$work/new"
    if [[ ${check:-} ]]; then
        cmp -s "$work/new" "$file" || {
            echo "$file is not current: run 'make docs'"
            stale=1
        }
    else
        mkdir -p "$(dirname "$file")"
        cp "$work/new" "$file"
    fi
}

if [[ ${1:-} == --check ]]; then check=1; fi
derive docs/SYSCALLS.md "$CARGO" run --quiet -p us-calls --example table
"$CARGO" run --quiet -p us-cli -- man --output "$work/man"
for page in "$work"/man/*.1; do
    derive "docs/man/${page##*/}" cat "$page"
done
for page in docs/man/*.1; do
    if [[ ! -e $work/man/${page##*/} ]]; then
        echo "$page is of no command: remove it"
        stale=1
    fi
done
exit "$stale"
