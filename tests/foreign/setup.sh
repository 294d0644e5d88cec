#!/usr/bin/env bash
# Installs the Debian packages that the programs of tests/foreign/programs need (as root, about a gigabyte). A package
# that this Debian does not have is named, and its programs are skipped.
set -uo pipefail
top=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
kit=${TARGET:-$top/target}/release/kit

missing=() absent=()
for list in "$top"/tests/foreign/programs "$top"/tests/foreign/suites; do
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

# As in scripts/setup.sh: no server of the system is started, and the owner's policy is put back.
policy=/usr/sbin/policy-rc.d
saved=
restore() {
    rm -f "$policy"
    if [[ -n $saved ]]; then mv "$saved" "$policy"; fi
}
if [[ -e $policy || -L $policy ]]; then
    saved=$policy.before-foreign
    mv "$policy" "$saved"
fi
trap restore EXIT
printf '#!/bin/sh\nexit 101\n' >"$policy"
chmod 755 "$policy"
export DEBIAN_FRONTEND=noninteractive
apt-get -o DPkg::Lock::Timeout=600 -q -y install --no-install-recommends "${missing[@]}"
