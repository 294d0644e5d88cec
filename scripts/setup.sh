#!/usr/bin/env bash
# Installs what the build and the tests use and a bare Debian with Rust does not have. Does nothing, and
# needs neither root nor a network, when everything is there.
set -euo pipefail

# program that shows it is there : package
needed=(
    cc:gcc                      # links every crate; compiles the guests
    g++:g++                     # guests in C++
    /usr/include/stdio.h:libc6-dev
    /usr/include/linux/futex.h:linux-libc-dev
    nm:binutils                 # make check looks at the library's symbols
    redis-server:redis-server   # servers that the tests kill
    redis-cli:redis-tools
    memcached:memcached
    pbzip2:pbzip2
    nginx:nginx-light           # a master with workers
    apache2:apache2             # children with threads each
    haproxy:haproxy             # four threads before another server
    mosquitto:mosquitto         # one thread and many clients
    /usr/lib/postgresql:postgresql # processes that share memory
    python3:python3             # a server with threads; the benchmarks
    make:make                   # make -j4 under protection
    gdb:gdb                     # back traces of what a failed test was doing
    openssl:openssl             # keys of machines that keep logs
    /bin/ip:iproute2            # two machines in network namespaces
    ps:procps
)

missing=()
for entry in "${needed[@]}"; do
    what=${entry%%:*} package=${entry##*:}
    case $what in
        /*) [[ -e $what ]] ;;
        *) command -v "$what" >/dev/null ;;
    esac || missing+=("$package")
done
if ! command -v "${CARGO:-cargo}" >/dev/null; then
    echo "setup: cargo is not on PATH; install Rust 1.90 or newer (rustup.rs), then run this again" >&2
    exit 1
fi
if ((${#missing[@]} == 0)); then
    exit 0
fi

echo "setup: installing ${missing[*]}"
if ((EUID != 0)); then
    echo "setup: not root; run: sudo make setup" >&2
    exit 1
fi

. "$(dirname "${BASH_SOURCE[0]}")/packages.sh"
install_packages "${missing[@]}"
