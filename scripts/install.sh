#!/usr/bin/env bash
# Puts what `make build` has made where it belongs, or takes it away: install.sh install|uninstall.
#
# PREFIX (/usr/local) is where it will be run, DESTDIR a folder in front of that. A file that is there is replaced by a rename: a
# group that runs keeps the files that it has begun with.
set -euo pipefail
cd "$(dirname "$0")/.."
: "${TARGET:=target}" "${PREFIX:=/usr/local}" "${DESTDIR:=}" "${ZSH_FOLDER:=$PREFIX/share/zsh/site-functions}"
root=$DESTDIR$PREFIX
bash_file=$root/share/bash-completion/completions/understudy
fish_file=$root/share/fish/vendor_completions.d/understudy.fish
zsh_file=$DESTDIR$ZSH_FOLDER/_understudy
units=$root/lib/systemd/system

# put MODE FILE: what comes from stdin, whole or not at all.
put() {
    mkdir -p "$(dirname "$2")"
    cat >"$2.new"
    chmod "$1" "$2.new"
    mv -f "$2.new" "$2"
}

install_all() {
    local page unit
    # Nobody who starts now meets a new command and an old runtime for longer than a moment.
    put 755 "$root/lib/understudy/libunderstudy.so" <"$TARGET/release/libunderstudy.so"
    put 755 "$root/bin/understudy" <"$TARGET/release/understudy"
    for page in docs/man/*.1; do put 644 "$root/share/man/man1/${page##*/}" <"$page"; done
    "$TARGET/release/understudy" completions bash | put 644 "$bash_file"
    "$TARGET/release/understudy" completions fish | put 644 "$fish_file"
    "$TARGET/release/understudy" completions zsh | put 644 "$zsh_file"
    while read -r unit; do
        sed "s|@BIN@|$PREFIX/bin|g" "contrib/systemd/$unit" | put 644 "$units/$unit"
    done < <(each_unit)
    # As they lie in the tree: they refer to each other.
    for page in README.md CHANGELOG.md LICENSE docs/*.md docs/*.svg docs/book/*.md docs/decisions/*.md \
        contrib/systemd/README.md contrib/{cluster,container,grafana,prometheus}/*; do
        put 644 "$root/share/doc/understudy/$page" <"$page"
    done
}

each_unit() {
    (cd contrib/systemd && find . -type f ! -name README.md | sed 's|^\./||' | sort)
}

uninstall_all() {
    local page unit
    rm -f "$root/bin/understudy" "$root/lib/understudy/libunderstudy.so" "$bash_file" "$fish_file" "$zsh_file"
    for page in docs/man/*.1; do rm -f "$root/share/man/man1/${page##*/}"; done
    while read -r unit; do
        rm -f "$units/$unit"
        # The folder of a drop-in, which may hold the user's own.
        if [[ $unit == */* ]]; then rmdir --ignore-fail-on-non-empty "$units/${unit%/*}" 2>/dev/null || true; fi
    done < <(each_unit)
    rm -rf "$root/share/doc/understudy"
    rmdir --ignore-fail-on-non-empty "$root/lib/understudy" 2>/dev/null || true
}

case ${1:-} in
    install) install_all ;;
    uninstall) uninstall_all ;;
    *) echo "usage: install.sh install|uninstall" >&2; exit 2 ;;
esac
