#!/bin/sh
# Fetches Debian 13's C library (glibc 2.41) and unpacks it into a folder: fetch_trixie_libc.sh FOLDER
#
# The machine's own package client does it, from the mirror that the machine is configured for, with a
# private configuration: nothing of the system's sources, lists or cache is read again or changed.
# Exit code 77: not possible here (no mirror, no network, no Debian), with the reason on stderr.
set -eu

folder=${1:?usage: fetch_trixie_libc.sh FOLDER}
unpacked=$folder/usr/lib/x86_64-linux-gnu/libc.so.6
[ -e "$unpacked" ] && exit 0

skip() {
    echo "fetch_trixie_libc.sh: $1" >&2
    exit 77
}

command -v apt-get >/dev/null && command -v dpkg-deb >/dev/null || skip "no Debian package client"
keys=/usr/share/keyrings/debian-archive-keyring.gpg
[ -r "$keys" ] || skip "no Debian archive keys in $keys"

# Both forms of a source entry; security and third-party archives do not end in /debian.
mirror=$(cat /etc/apt/sources.list /etc/apt/sources.list.d/*.list /etc/apt/sources.list.d/*.sources 2>/dev/null |
    sed -n -e 's/^URIs: *\([^ ]*\).*/\1/p' -e 's/^deb \(\[[^]]*\] \)\{0,1\}\([^ ]*\) .*/\2/p' |
    grep '/debian/*$' | head -n 1) || true
[ -n "$mirror" ] || skip "no Debian mirror in the machine's sources"

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir -p "$work/state/lists/partial" "$work/cache/archives/partial" "$work/etc"
echo "deb [signed-by=$keys arch=amd64] $mirror trixie main" >"$work/etc/sources.list"

client() {
    timeout 120 apt-get -q \
        -o Dir::Etc::sourcelist="$work/etc/sources.list" -o Dir::Etc::sourceparts=/dev/null \
        -o Dir::State="$work/state" -o Dir::State::status=/dev/null -o Dir::Cache="$work/cache" \
        -o Debug::NoLocking=1 -o Acquire::Languages=none -o Acquire::Retries=1 -o APT::Sandbox::User= "$@"
}

client update >"$work/log" 2>&1 || skip "the list of packages was not available: $(tail -n 1 "$work/log")"
(cd "$work" && client download libc6 >"$work/log" 2>&1) || skip "libc6 was not available: $(tail -n 1 "$work/log")"
dpkg-deb -x "$work"/libc6_*.deb "$work/root"
# Last, and in one step: a folder that exists is whole, also when two tests fetch at once.
mkdir -p "$(dirname "$folder")"
mv -T "$work/root" "$folder" 2>/dev/null || [ -e "$unpacked" ]
