#!/usr/bin/env bash
# Makes a package of what `make build` has made: package.sh tarball|deb. It lies in TARGET/package.
set -euo pipefail
cd "$(dirname "$0")/.."
: "${TARGET:=target}"
TARGET=$(cd "$TARGET" && pwd)
export TARGET
version=$(sed -n '/^\[workspace.package\]/,/^$/s/^version = "\(.*\)"/\1/p' Cargo.toml)
# The same files make the same package, whenever that is.
: "${SOURCE_DATE_EPOCH:=$(git log -1 --format=%ct 2>/dev/null || date +%s)}"
export SOURCE_DATE_EPOCH
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
out=$TARGET/package
mkdir -p "$out"

# lay PREFIX: the files of an installation at PREFIX, below $work/root, without what a debugger alone reads of the command.
lay() {
    umask 022
    DESTDIR=$work/root PREFIX=$1 scripts/install.sh install
    strip --strip-debug "$work/root$1/bin/understudy" "$work/root$1/lib/understudy/libunderstudy.so"
}

tarball() {
    local name=understudy-$version-linux-x86_64
    lay /usr/local
    mv "$work/root/usr/local" "$work/$name"
    tar -C "$work" --sort=name --owner=0 --group=0 --numeric-owner --mtime="@$SOURCE_DATE_EPOCH" -cf - "$name" \
        | gzip -9n >"$out/$name.tar.gz"
    echo "$out/$name.tar.gz"
}

deb() {
    local root=$work/root name=understudy_${version}_amd64.deb doc=$work/root/usr/share/doc/understudy
    export ZSH_FOLDER=/usr/share/zsh/vendor-completions
    lay /usr
    gzip -9n "$root"/usr/share/man/man1/*.1
    rm "$doc/LICENSE"
    mv "$doc/CHANGELOG.md" "$doc/changelog" && gzip -9n "$doc/changelog"
    cat >"$doc/copyright" <<'EOF'
Format: https://www.debian.org/doc/packaging-manuals/copyright-format/1.0/
Upstream-Name: understudy

Files: *
Copyright: the authors of understudy
License: Apache-2.0
 The full text is in /usr/share/common-licenses/Apache-2.0.
EOF
    mkdir -p "$root/DEBIAN"
    cat >"$root/DEBIAN/control" <<EOF
Package: understudy
Version: $version
Architecture: amd64
Maintainer: the authors of understudy <nobody@localhost>
Installed-Size: $(du -sk --exclude=DEBIAN "$root" | cut -f1)
Depends: libc6 (>= 2.34), libgcc-s1
Suggests: gdb
Section: admin
Priority: optional
Description: live copy of a running program, ready to take over
 Understudy keeps a standby of an unmodified, multithreaded program. When the
 program is killed, the standby goes on: the same sockets, the same bytes, no
 reconnect. It also records programs and replays them in a debugger.
EOF
    maintainer_scripts "$root/DEBIAN"
    (cd "$root" && find usr -type f -print0 | sort -z | xargs -0 md5sum >DEBIAN/md5sums)
    find "$root" -newermt "@$SOURCE_DATE_EPOCH" -print0 | xargs -0r touch --no-dereference --date="@$SOURCE_DATE_EPOCH"
    dpkg-deb --root-owner-group --build "$root" "$out/$name" >/dev/null
    echo "$out/$name"
}

# maintainer_scripts FOLDER: systemd reads the units anew where it runs. Nothing is started, stopped or restarted: what runs, goes on.
maintainer_scripts() {
    cat >"$1/postinst" <<'EOF'
#!/bin/sh
set -e
if [ -d /run/systemd/system ]; then systemctl daemon-reload || true; fi
EOF
    cat >"$1/prerm" <<'EOF'
#!/bin/sh
set -e
if [ "$1" = remove ] && [ -d /run/systemd/system ]; then
    for unit in $(systemctl list-units --plain --no-legend 'understudy@*.service' understudy-node.service | cut -d ' ' -f 1); do
        echo "$unit goes on until it is stopped, and cannot be started again: systemctl disable --now $unit" >&2
    done
fi
EOF
    cat >"$1/postrm" <<'EOF'
#!/bin/sh
set -e
if [ "$1" = purge ]; then
    # Of units that were enabled.
    find /etc/systemd/system -path '*.wants/understudy[@-]*.service' -type l -delete 2>/dev/null || true
fi
if [ "$1" != upgrade ] && [ -d /run/systemd/system ]; then systemctl daemon-reload || true; fi
EOF
    chmod 755 "$1"/postinst "$1"/prerm "$1"/postrm
}

case ${1:-} in
    tarball) tarball ;;
    deb) deb ;;
    *) echo "usage: package.sh tarball|deb" >&2; exit 2 ;;
esac
