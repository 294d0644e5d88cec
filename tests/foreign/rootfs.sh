#!/usr/bin/env bash
# Makes the root file system of another Debian, to run programs under another C library:
#
#   tests/foreign/rootfs.sh NAME DIR [PACKAGE...]     NAME as debootstrap knows it: bullseye, trixie, sid
#   tests/foreign/rootfs.sh --enter DIR COMMAND...    COMMAND in there, with /proc, /sys and the machine's /dev mounted
#
# Takes the mirror from apt's settings, needs root and debootstrap, and does nothing where DIR is complete.
# COMMAND finds the built programs of this tree in /understudy, and the tree itself in /tree, read-only.
set -euo pipefail
top=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)

fail() { echo "rootfs: $*" >&2; exit 1; }

if [[ ${1:-} == --enter ]]; then
    dir=${2:?rootfs: which folder?}
    shift 2
    (($#)) || fail "which command?"
    [[ -e $dir/.complete ]] || fail "$dir is no root file system of this script's"
    # In a mount namespace of its own, so that nothing is left mounted, however the command ends.
    exec unshare -m --propagation private bash -euc '
        dir=$1 built=$2 tree=$3
        shift 3
        mount -t proc proc "$dir/proc"
        mount --rbind /dev "$dir/dev"
        mount --rbind /sys "$dir/sys"
        mount -t tmpfs run "$dir/run"
        mount --bind "$built" "$dir/understudy"
        mount -o remount,bind,ro "$dir/understudy"
        mkdir -p "$dir/tree"
        mount --bind "$tree" "$dir/tree"
        mount -o remount,bind,ro "$dir/tree"
        exec chroot "$dir" "$@"' enter "$dir" "$(realpath "${BUILT:-$top/target/release}")" "$top" "$@"
fi

name=${1:?rootfs: which distribution?}
dir=${2:?rootfs: which folder?}
packages=$(IFS=,; echo "${*:3}")
[[ -e $dir/.complete ]] && exit 0
((EUID == 0)) || fail "needs root"
command -v debootstrap >/dev/null || fail "needs debootstrap"
[[ ! -e $dir || -e $dir/.begun ]] || fail "$dir is there and not of this script's making"

# The archive that this machine's own packages come from; its security archive has another label.
mirror=$(apt-get indextargets --format '$(ORIGIN)|$(LABEL)|$(REPO_URI)' 'Created-By: Packages' |
    sed -n 's/^Debian|Debian|//p' | sort -u | head -n 1)
[[ -n $mirror ]] || fail "apt knows no archive of Debian's: apt-get update"

# One that was cut short is begun anew: debootstrap does not go on where it was.
rm -rf "$dir"
mkdir -p "$dir"
touch "$dir/.begun"
log=$dir.log
# In a mount namespace: debootstrap mounts /proc in there, and a run that is ended would leave it.
timeout -k 10 "${LIMIT:-900}" unshare -m --propagation private \
    debootstrap --variant=minbase ${packages:+--include="$packages"} "$name" "$dir" "$mirror" >"$log" 2>&1 ||
    fail "debootstrap failed: $(tail -n 2 "$log" | tr '\n' ' ')"
mkdir -p "$dir/understudy"
rm -rf "$dir"/var/cache/apt/archives/*.deb
touch "$dir/.complete"
