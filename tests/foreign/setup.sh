#!/usr/bin/env bash
# Installs the Debian packages that the programs of tests/foreign/programs need (as root, about a gigabyte). A package
# that this Debian does not have is named, and its programs are skipped.
set -uo pipefail
top=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
kit=${TARGET:-$top/target}/release/kit

missing=() absent=()
for list in "$top"/tests/foreign/programs "$top"/tests/foreign/busy "$top"/tests/foreign/suites; do
    [[ -e $list ]] || continue
    while read -r package; do
        dpkg-query -W -f '${db:Status-Status}' "$package" 2>/dev/null | grep -qx installed && continue
        if apt-cache show "$package" >/dev/null 2>&1; then missing+=("$package"); else absent+=("$package"); fi
    done < <("$kit" foreign --root "$top" --list "$list" --packages)
done
((${#absent[@]} == 0)) || echo "foreign: this Debian has no ${absent[*]}"
((${#missing[@]})) || exit 0
echo "foreign: installing ${missing[*]}"
if ((EUID != 0)); then
    echo "foreign: not root; run: sudo make foreign SETUP=1" >&2
    exit 1
fi

. "$top/scripts/packages.sh"
install_packages "${missing[@]}"
