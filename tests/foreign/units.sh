#!/usr/bin/env bash
# Debian's own units of five servers, with all their hardening, under a systemd of their own: a container over an overlay
# of this machine's root, without a network, which is gone afterwards (as root; wants systemd-container).
#
#   tests/foreign/units.sh                  every unit: does it start, serve, survive the death of its primary?
#   tests/foreign/units.sh redis-server     one
#
# A unit's line ends with what `run` said: it must serve before and after the kill, or say beforehand why it is not protected.
set -uo pipefail
top=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
bin=${UNDERSTUDY_BIN:-${TARGET:-$top/target}/release}
((EUID == 0)) || { echo "units: not root"; exit 1; }
command -v systemd-nspawn >/dev/null || { echo "units: skipped: systemd-container is not installed"; exit 0; }

work=$(mktemp -d "${TMPDIR:-/tmp}/units.XXXXXX")
log=$work.log
booted=
cleanup() {
    if [[ -n $booted ]]; then kill "$booted" 2>/dev/null; wait "$booted" 2>/dev/null; fi
    umount "$work/root" "$work" 2>/dev/null
    rmdir "$work" 2>/dev/null
}
trap cleanup EXIT
mount -t tmpfs -o size=1g tmpfs "$work" || exit 1
mkdir "$work"/{upper,inner,root}
mount -t overlay -o "lowerdir=/,upperdir=$work/upper,workdir=$work/inner" overlay "$work/root" || exit 1
: >"$work/root/etc/machine-id"
mkdir -p "$work/root/usr/lib/understudy"
# A folder that units with NoExecPaths let programs be executed in.
cp "$bin/understudy" "$bin/libunderstudy.so" "$work/root/usr/lib/understudy/"
timeout 900 systemd-nspawn -q -D "$work/root" --private-network --register=no --keep-unit -M "units-$$" \
    --console=pipe -b systemd.unit=basic.target </dev/null >"$log" 2>&1 &
booted=$!

# The container's first process: the child of systemd-nspawn, which is the child of timeout.
leader=
for _ in {1..100}; do
    nspawn=$(pgrep -P "$booted" -x systemd-nspawn) && leader=$(pgrep -P "$nspawn" -x systemd) && break
    sleep 0.1
done
[[ -n $leader ]] || { echo "units: skipped: no systemd starts here: $(tail -1 "$log")"; exit 0; }
inside() { timeout 60 nsenter -t "$leader" -m -u -i -n -p -C "$@"; }
for _ in {1..300}; do
    inside systemctl is-system-running 2>/dev/null | grep -qx -e running -e degraded && break
    sleep 0.1
done
inside ip link set lo up

. "$top/tests/foreign/verdict.sh"
# What `run` has said so far in the unit NAME; what of it is about the first process; the last of that.
told() { inside journalctl -o cat -u "$1" --no-pager 2>/dev/null; }
of_first() {
    local first
    first=$(grep '"event":"started"' <<<"$1" | tail -1 | grep -o '"primary":[0-9]*' | grep -o '[0-9]*$')
    grep "\"process\":$first[,}]" <<<"$1" | grep -E '"event":"(protected|recloned|unprotected|standby_lost|diverged|promoted)"'
}
is_protected() { of_first "$1" | tail -1 | grep -q -E '"event":"(protected|recloned)"'; }
# answer COMMAND: what a client gets, as soon as it gets any.
answer() {
    local got= n
    for n in {1..60}; do
        got=$(inside timeout 10 sh -c "$1" 2>/dev/null | tail -1) && [[ -n $got && $got != 000 ]] && break
        sleep 0.5
    done
    echo "$got"
}
# unit NAME COMMAND ASK LINES...: the unit with its command under run, and what a client asks.
unit() {
    local name=$1 command=$2 ask=$3 folder=$work/root/etc/systemd/system/$1.service.d why= before after= pid said n
    shift 3
    mkdir -p "$folder"
    # The notification comes from the program, and systemd's main process is the supervisor.
    printf '[Service]\nNotifyAccess=all\nPIDFile=\nExecStart=\nExecStart=/usr/lib/understudy/understudy run %s --events - -- %s\n' \
        "${RUN_FLAGS:-}" "$command" >"$folder/under.conf"
    printf '%s\n' "$@" >>"$folder/under.conf"
    inside systemctl daemon-reload
    inside timeout 40 systemctl start "$name" >/dev/null 2>&1 || why="does not start"
    before=$(answer "$ask")
    # A race of the program's own ends protection for a moment: `run` says so, and the kill is to come while it says `protected`.
    for n in {1..100}; do
        said=$(told "$name")
        ! is_protected "$said" || break
        [[ $said != *"runs unprotected: a filter"* ]] || break
        sleep 0.2
    done
    if is_protected "$said"; then
        pid=$(of_first "$said" | tail -1 | grep -o '"primary":[0-9]*' | grep -o '[0-9]*$')
        inside kill -KILL "$pid" 2>/dev/null
        for n in {1..50}; do
            said=$(told "$name")
            [[ $said != *'"event":"promoted"'* ]] || break
            sleep 0.2
        done
        after=$(answer "$ask")
        [[ $said == *'"event":"promoted"'* ]] || why="nobody took over: $(tail -1 <<<"$said" | cut -c1-160)"
        said="served before and behind the kill: $after"
    else
        said="is not protected, and says so before it serves: $(grep -o 'runs unprotected: .*' <<<"$said" | head -1)"
        after=$before
        [[ $said == *"runs unprotected: "* ]] || why="is not protected, and does not say why"
    fi
    if [[ -z $why && -n $before && $before == "$after" ]]; then
        verdict "unit-$name" protected "$said" yes
    else
        verdict "unit-$name" protected "$why; before the kill: $before; behind it: $after" ''
        [[ -z ${VERBOSE:-} ]] || told "$name" | tail -20
    fi
    inside timeout 30 systemctl stop "$name" >/dev/null 2>&1
}

wanted() { ((${#only[@]} == 0)) || [[ " ${only[*]} " == *" $1 "* ]]; }
only=("$@")
version=$(basename "$(ls -d /usr/lib/postgresql/* 2>/dev/null | tail -1)" 2>/dev/null)
wanted redis-server && unit redis-server "/usr/bin/redis-server /etc/redis/redis.conf --supervised systemd --daemonize no" \
    'redis-cli set a 5 && redis-cli get a'
wanted memcached && unit memcached "/usr/share/memcached/scripts/systemd-memcached-wrapper /etc/memcached.conf" \
    "printf 'set a 0 0 2\\r\\nhi\\r\\nget a\\r\\nquit\\r\\n' | nc -q 1 127.0.0.1 11211 | sed -n 3p"
wanted nginx && unit nginx "/usr/sbin/nginx -g 'daemon off; master_process on;'" \
    "curl -s -o /dev/null -w '%{http_code}' http://127.0.0.1/" 'Type=simple' 'ExecStop='
wanted apache2 && unit apache2 "/usr/sbin/apachectl -D FOREGROUND" \
    "curl -s -o /dev/null -w '%{http_code}' http://127.0.0.1/" 'Type=simple' 'ExecStop='
[[ -n $version ]] && wanted postgresql && unit "postgresql@$version-main" \
    "/usr/lib/postgresql/$version/bin/postgres -D /var/lib/postgresql/$version/main -c config_file=/etc/postgresql/$version/main/postgresql.conf" \
    "setpriv --reuid postgres --regid postgres --clear-groups psql -At -c 'select 6*7' postgres" \
    'Type=simple' 'ExecStop=' 'User=postgres' 'RuntimeDirectory=postgresql'
sum_up
