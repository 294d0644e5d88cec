#!/usr/bin/env bash
# Programs that run for long, and nobody is killed: LONG_SECONDS (600) each, natively first where that shows something.
# Loopback only; what is started here is ended here, by pid.
#
#   tests/foreign/long.sh               all of them
#   tests/foreign/long.sh chromium      one: chromium, vsftpd, threads, storm, web
set -uo pipefail
top=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
understudy=${UNDERSTUDY:-${TARGET:-$top/target}/release/understudy}
: "${LONG_SECONDS:=600}" "${LONG_TIMES:=50}"
work=$(mktemp -d "${TMPDIR:-/tmp}/long.XXXXXX")
chmod 755 "$work"
server=
cleanup() {
    if [[ -n $server ]]; then kill "$server" 2>/dev/null; wait "$server" 2>/dev/null; fi
    rm -rf "$work"
}
trap cleanup EXIT
. "$top/tests/foreign/verdict.sh"
# of NAME WAY RIGHT ALL
of() {
    local right=
    (($3 != $4 || $4 == 0)) || right=yes
    verdict "long-$1" "$2" "$3 of $4" "$right"
}
# What `under` starts a program as.
as=()
# under WAY COMMAND...
under() {
    local way=$1
    shift
    case $way in
        native) exec "${as[@]}" "$@" ;;
        bare) exec "${as[@]}" "$understudy" run -q --standbys 0 -- "$@" ;;
        protected) exec "${as[@]}" "$understudy" run -q -- "$@" ;;
    esac
}

# A page whose script must have run, natively, alone and protected, once without the sandbox, and as nobody with it: user, pid and network
# namespaces, a chroot, filters of system calls.
chromium() {
    command -v chromium >/dev/null || { skip chromium "not installed"; return; }
    pages chromium --no-sandbox
    ((EUID == 0)) || { skip chromium-sandbox "not root"; return; }
    mkdir -m 700 "$work/nobody"
    chown nobody: "$work/nobody"
    pages chromium-sandbox
}
pages() { # NAME [FLAG...]
    local page='data:text/html,<p id=a>x</p><script>document.getElementById("a").textContent=6*7</script>' way right n name=$1
    local as=() home=$work until=$((SECONDS + LONG_SECONDS))
    shift
    if (($# == 0)); then as=(setpriv --reuid nobody --regid nogroup --clear-groups) home=$work/nobody; fi
    for way in native bare protected; do
        right=0
        for ((n = 0; n < LONG_TIMES && SECONDS < until; n++)); do
            (cd "$home" && HOME=$home under "$way" timeout 60 chromium --headless "$@" --disable-gpu --user-data-dir="$home/c" \
                --dump-dom "$page") 2>/dev/null | grep -q '>42<' && ((right += 1))
        done
        of "$name" "$way" "$right" "$n"
        until=$((SECONDS + LONG_SECONDS))
    done
}

# A child for each connection, which it waits for in a handler. As root it also becomes another user.
vsftpd() {
    command -v vsftpd >/dev/null && command -v curl >/dev/null || { skip vsftpd "not installed"; return; }
    local way right n until
    mkdir -p "$work/pub" "$work/empty"
    seq 1 2000 >"$work/pub/n"
    chmod 755 "$work/pub"
    printf '%s\n' listen=YES listen_address=127.0.0.1 listen_port=46253 background=NO anonymous_enable=YES "anon_root=$work/pub" \
        "secure_chroot_dir=$work/empty" seccomp_sandbox=NO pasv_min_port=46254 pasv_max_port=46299 >"$work/v.conf"
    if ((EUID != 0)) || ! id ftp >/dev/null 2>&1; then
        echo "note  vsftpd: not root, or no user ftp: its children stay what they are"
        echo run_as_launching_user=YES >>"$work/v.conf"
    fi
    for way in native bare protected; do
        (under "$way" vsftpd "$work/v.conf") >/dev/null 2>&1 &
        server=$!
        sleep 1
        # Nothing is to be found out about the others.
        right=0 n=0 until=$((SECONDS + LONG_SECONDS / 10 + 1))
        [[ $way != protected ]] || until=$((SECONDS + LONG_SECONDS))
        while ((SECONDS < until)); do
            ((n += 1))
            curl -s --max-time 20 ftp://127.0.0.1:46253/n | cmp -s - "$work/pub/n" && ((right += 1))
        done
        # The server that answered last is the one that was started.
        kill -0 "$server" 2>/dev/null || ((n += 1))
        kill "$server" 2>/dev/null
        wait "$server" 2>/dev/null
        server=
        of vsftpd "$way" "$right" "$n"
    done
}

# A server of Go's, linked with libc, whose threads, signals and stacks are its own business; its profiler signals too.
web() {
    command -v go >/dev/null && command -v ab >/dev/null || { skip web "no go, or no ab"; return; }
    (cd "$top/tests/foreign/go" && GOFLAGS=-mod=mod GOPROXY=off GOTOOLCHAIN=local GOCACHE="$work/cache" CGO_ENABLED=1 go build -o "$work/w" ./web) ||
        { of web build 0 1; return; }
    local way address for count profile all
    for way in native bare protected; do
        for profile in plain profiled; do
            for=$((LONG_SECONDS / 20 + 1))
            [[ $way != bare ]] || for=$((LONG_SECONDS / 10 + 1))
            [[ $way$profile != protectedplain ]] || for=$LONG_SECONDS
            (under "$way" "$work/w" "$profile") >"$work/address" 2>"$work/web-$way-$profile" &
            server=$!
            for ((n = 0; n < 100; n++)); do
                address=$(head -n 1 "$work/address")
                [[ -z $address ]] || break
                sleep 0.1
            done
            # One client keeps its connections, the other makes a new one for each request.
            ab -q -k -r -t "$for" -n 100000000 -c 12 "http://$address/" >"$work/kept" 2>&1 &
            count=$!
            ab -q -r -t "$for" -n 100000000 -c 3 "http://$address/collect" >"$work/made" 2>&1
            wait "$count"
            # Once it is over it still answers, and it is the one that was started.
            all=0
            [[ $(curl -s --max-time 10 "http://$address/") == "20000 00001" ]] && ((all += 1))
            kill -0 "$server" 2>/dev/null && ((all += 1))
            for count in kept made; do
                echo "      $way $profile $count: $(awk '/^(Complete|Failed) requests|^Non-2xx/ { printf "%s ", $0 }' "$work/$count")"
                grep -q '^Failed requests: *0$' "$work/$count" && ! grep -q '^Non-2xx' "$work/$count" && ((all += 1))
            done
            kill "$server" 2>/dev/null
            wait "$server" 2>/dev/null
            server=
            ((all == 4)) || tail -n 20 "$work/web-$way-$profile"
            of web "$way" "$all" 4
        done
    done
}

# Detached threads that each make the next one, for a tenth of the time, ten times.
threads() {
    command -v gcc >/dev/null || { skip threads "no gcc"; return; }
    cat >"$work/t.c" <<'C'
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>
static atomic_int ended;
static time_t until;
static void *next(void *arg)
{
    pthread_t thread;
    pthread_attr_t detached;
    if (time(NULL) >= until) { ended++; return arg; }
    pthread_attr_init(&detached);
    pthread_attr_setdetachstate(&detached, PTHREAD_CREATE_DETACHED);
    while (pthread_create(&thread, &detached, next, arg)) usleep(1000);
    return arg;
}
int main(int argc, char **argv)
{
    until = time(NULL) + atoi(argv[argc - 1]);
    for (int i = 0; i < 4; i++) { pthread_t t; pthread_create(&t, NULL, next, NULL); pthread_detach(t); }
    while (ended < 4) usleep(10000);
    puts("ok");
    return 0;
}
C
    gcc -O2 -w -pthread "$work/t.c" -o "$work/t"
    local way right n for=$(((LONG_SECONDS + 9) / 10))
    for way in native bare protected; do
        right=0
        for ((n = 0; n < 10; n++)); do
            # Natively once: nothing is to be found out there.
            [[ $way$n != native1 ]] || break
            [[ $( (under "$way" timeout $((for + 60)) "$work/t" "$for") 2>/dev/null) == ok ]] && ((right += 1))
        done
        of threads "$way" "$right" "$n"
    done
}

for name in ${*:-threads web vsftpd chromium}; do "$name"; done
sum_up
