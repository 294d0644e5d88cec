#!/usr/bin/env bash
# The package under a real systemd: installed, its five servers swapped for Debian's own units as the book says, their primaries
# killed under a client that checks every answer; notifications, watchdog, reload, socket activation, reboot, upgrade, removal.
#
#   tests/install/systemd.sh [ROOT...]      default: the roots below target/roots whose names end with -units, else this machine's own
#
# tests/foreign/rootfs.sh trixie target/roots/trixie-units PACKAGE... makes a root; `--packages` says which packages it wants. A root
# does not change. A line for each case, and the counts at the end. Needs root; what cannot be tried here is skipped, with the reason.
set -uo pipefail
cd "$(dirname "$0")/../.."
if [[ ${1:-} == --packages ]]; then
    echo systemd systemd-sysv dbus libpam-systemd procps iproute2 redis-server nginx-light memcached mosquitto postgresql \
        python3 curl
    exit 0
fi
: "${TARGET:=target}" "${KILLS:=3}"
TARGET=$(cd "$TARGET" && pwd)
export TARGET
. tests/install/machine.sh
. tests/install/cases.sh
work=$(mktemp -d /tmp/understudy-units-XXXXXX)
finish() {
    machine_stop
    rm -rf "$work"
}
trap finish EXIT
trap 'exit 130' INT TERM
# case_ NAME COMMAND...: a case, unless others were asked for.
case_() {
    if [[ -z ${ONLY:-} || $1 == *$ONLY* || $1 == *"package is installed"* ]]; then try "$@"; fi
}

# unit_is NAME PROPERTY VALUE
unit_is() {
    local is
    is=$(inside systemctl show -P "$2" "understudy@$1.service")
    [[ $is == "$3" ]] || { echo "understudy@$1: $2 is $is, not $3"; return 1; }
}
journal() { inside journalctl -o cat --no-pager -n 20 -u "understudy@$1"; }
user_of() {
    local user
    user=$(inside systemctl show -P User "understudy@$1")
    echo "${user:-root}"
}
status() { inside understudy status "$1" --user "$(user_of "$1")" "${@:2}"; }
protected() { inside understudy wait "$1" --user "$(user_of "$1")" --protected --timeout 30; }
primaries() { status "$1" --json | grep -A 1 '"primary": {' | grep -o '[0-9]*$\|[0-9]*,$' | tr -d ,; }
failovers() { status "$1" --json | grep -c '"blackout_us"'; }

# kill_one NAME: a primary, any of its processes' where it has several; then the group is protected again.
kill_one() {
    local all pid before
    protected "$1" || { status "$1"; return 1; }
    mapfile -t all < <(primaries "$1")
    ((${#all[@]} > 0)) || { echo "no primary"; status "$1"; return 1; }
    pid=${all[RANDOM % ${#all[@]}]}
    before=$(failovers "$1")
    inside kill -KILL "$pid" || return 1
    more() { (($(failovers "$1") > $2)); }
    wait_for more "$1" "$before" && protected "$1" || { echo "$pid was killed, of ${all[*]}"; status "$1"; return 1; }
}

# Where systemd's own word for the service that it takes the place of.
declare -A instead=([redis]=redis-server [memcached]=memcached [nginx]=nginx [postgresql]=postgresql [mosquitto]=mosquitto)

swap() {
    local name=$1
    inside systemctl disable --now "${instead[$name]}" || return 1
    inside systemctl enable --now "understudy@$name" || { journal "$name"; return 1; }
    unit_is "$name" ActiveState active && protected "$name" && [[ $(status "$name") == *protected* ]] || { journal "$name"; return 1; }
    ! inside systemctl is-active -q "${instead[$name]}" || { echo "${instead[$name]} runs as well"; return 1; }
}

# One connection, over kills.
serves() {
    local name=$1 n client code
    rm -f "$machine/run-enough"
    if [[ $name == postgresql ]]; then
        postgres_session >"$work/client" 2>&1 &
    else
        INSIDE_S=120 inside perl /opt/client.pl "$name" /run-enough >"$work/client" 2>&1 &
    fi
    client=$!
    sleep 0.5
    for ((n = 0; n < KILLS; n++)); do
        kill_one "$name" || { touch "$machine/run-enough"; wait "$client"; cat "$work/client"; journal "$name"; return 1; }
        sleep 0.3
    done
    touch "$machine/run-enough"
    wait "$client"
    code=$?
    unit_is "$name" NRestarts 0 && unit_is "$name" ActiveState active && ((code == 0)) || { cat "$work/client"; status "$name"; journal "$name"; return 1; }
}

# A session of psql's that counts in a table; what it is told comes from a loop, until there is enough.
postgres_session() {
    local said=$work/psql n
    {
        echo "drop table if exists client; create table client (n int); insert into client values (0);"
        until [[ -e $machine/run-enough ]]; do
            echo "update client set n = n + 1 returning n;"
            sleep 0.005
        done
    } | INSIDE_S=120 inside setpriv --reuid postgres --regid postgres --clear-groups psql -X -A -t -q -v ON_ERROR_STOP=1 postgres >"$said" 2>&1 || {
        tail -n 3 "$said"
        return 1
    }
    n=$(grep -c '^[0-9]' "$said")
    [[ $(grep '^[0-9]' "$said") == "$(seq "$n")" ]] && ((n > 10)) || { echo "$n answers, and not in order"; tail -n 3 "$said"; return 1; }
    echo "$n answers"
}

# Within its unit's time, and nothing is left of it; a second start works.
stops() {
    local name=$1 begun=$SECONDS group code
    group=$(inside systemctl show -P ControlGroup "understudy@$name")
    inside systemctl stop "understudy@$name" || { echo "stop ended with $?"; journal "$name"; return 1; }
    ((SECONDS - begun <= 5)) || { echo "it took $((SECONDS - begun)) s"; journal "$name"; return 1; }
    unit_is "$name" Result success && unit_is "$name" ActiveState inactive || { journal "$name"; return 1; }
    ! inside cat "/sys/fs/cgroup$group/cgroup.procs" 2>/dev/null | grep . || { echo "processes are left"; return 1; }
    # Its last words.
    status "$name" >"$work/last"
    code=$?
    ((code == 3)) && grep -q "ended at" "$work/last" || { echo "status ended with $code:"; cat "$work/last"; return 1; }
}
starts_again() { inside systemctl start "understudy@$1" && protected "$1" || { journal "$1"; return 1; }; }

# What a reload is for: the new settings, by the same process.
reload_nginx() {
    local before
    before=$(inside systemctl show -P MainPID understudy@nginx)
    echo 'add_header X-Reloaded yes;' >"$machine/etc/nginx/conf.d/reloaded.conf"
    inside systemctl reload understudy@nginx || return 1
    reloaded() { inside perl -MIO::Socket::INET -e '
        $s = IO::Socket::INET->new("127.0.0.1:80") or exit 1;
        print $s "GET / HTTP/1.0\r\n\r\n"; $a = join "", <$s>; exit($a !~ /X-Reloaded: yes/)'; }
    wait_for reloaded && unit_is nginx MainPID "$before" && protected nginx && kill_one nginx && reloaded
}
reload_postgres() {
    local sql=(inside setpriv --reuid postgres --regid postgres --clear-groups psql -X -A -t postgres -c)
    "${sql[@]}" "alter system set work_mem = '5MB'" >/dev/null && inside systemctl reload understudy@postgresql || return 1
    shows() { [[ $("${sql[@]}" 'show work_mem') == 5MB ]]; }
    wait_for shows && kill_one postgresql && shows
}

# ---- Programs of one's own ----

# What --events journal: says there.
in_the_journal() {
    mkdir -p "$machine/etc/understudy"
    echo 'OPTIONS=--events journal:' >"$machine/etc/understudy/redis.conf"
    inside systemctl restart understudy@redis && protected redis && kill_one redis || return 1
    promoted() {
        inside journalctl -o json --no-pager UNDERSTUDY_GROUP=redis UNDERSTUDY_EVENT=promoted |
            grep '"UNDERSTUDY_REASON":"killed by SIGKILL"' | grep '"PRIORITY":"5"' | grep -q '"_SYSTEMD_UNIT":"understudy@redis.service"'
    }
    wait_for promoted || { inside journalctl -o json --no-pager -n 5; return 1; }
    rm "$machine/etc/understudy/redis.conf"
    inside systemctl restart understudy@redis && protected redis
}

own_program() {
    cat >"$machine/opt/own.pl" <<'PERL'
# Says that it is ready and well, as systemd wants it; counts lines on what it listens to; is unwell once /run/unwell is there.
use strict;
use IO::Socket::UNIX;
use IO::Socket::INET;
use IO::Select;
my ($to, $every) = ($ENV{NOTIFY_SOCKET} // '', ($ENV{WATCHDOG_USEC} // 1e12) / 4e6);
die "the watchdog is of $ENV{WATCHDOG_PID}, and not of $$\n" if defined $ENV{WATCHDOG_PID} && $ENV{WATCHDOG_PID} != $$;
die "descriptors are of $ENV{LISTEN_PID}, and not of $$\n" if defined $ENV{LISTEN_PID} && $ENV{LISTEN_PID} != $$;
my $manager;
if ($to) {
    $to =~ s/^@/\0/;
    $manager = IO::Socket::UNIX->new(Type => SOCK_DGRAM, Peer => $to) or die "no manager: $!\n";
}
my $listener = $ENV{LISTEN_FDS}
    ? IO::Socket::INET->new_from_fd(3, 'r+')
    : IO::Socket::INET->new(LocalAddr => '127.0.0.1', LocalPort => 7001, Listen => 5, ReuseAddr => 1);
$listener or die "cannot listen: $!\n";
my ($count, $next) = (0, 0);
my $all = IO::Select->new($listener);
$SIG{HUP} = sub { $count = 100 };
$manager->send("READY=1\nSTATUS=counting") if $manager;
while (1) {
    $manager->send("WATCHDOG=1\nSTATUS=at $count") if $manager && !-e '/run/unwell';
    for my $one ($all->can_read($every < 1 ? $every : 1)) {
        if ($one == $listener) { $all->add(scalar $one->accept); next; }
        if (sysread($one, my $line, 100)) { syswrite($one, ++$count . "\n") } else { $all->remove($one); close $one }
    }
}
PERL
    mkdir -p "$machine/etc/understudy" "$machine/etc/systemd/system/understudy@watched.service.d"
    printf 'PROGRAM=/usr/bin/perl /opt/own.pl\n' | tee "$machine/etc/understudy/watched.conf" >"$machine/etc/understudy/late.conf"
    printf '[Service]\nType=notify\nWatchdogSec=2\n' >"$machine/etc/systemd/system/understudy@watched.service.d/own.conf"
    printf '[Socket]\nListenStream=127.0.0.1:7002\n' >"$machine/etc/systemd/system/understudy@late.socket"
    inside systemctl daemon-reload
}
# asked PORT: the number that it has come to.
asked() { inside bash -c 'exec 3<>/dev/tcp/127.0.0.1/$1 && echo >&3 && read -r -t 10 -u 3 n && echo "$n"' ask "$1"; }

notifies() {
    own_program && inside systemctl start understudy@watched && unit_is watched SubState running || { journal watched; return 1; }
    [[ $(asked 7001) == 1 ]] && kill_one watched && [[ $(asked 7001) == 2 ]] || { journal watched; return 1; }
    # What the promoted copy says arrives as well.
    says() { unit_is watched StatusText "at 2"; }
    wait_for says && unit_is watched MainPID "$(inside systemctl show -P MainPID understudy@watched)"
}
is_watched() {
    # Longer than the watchdog waits: it was fed, before and after the kill.
    sleep 3
    unit_is watched NRestarts 0 && unit_is watched ActiveState active || { journal watched; return 1; }
    inside systemctl reload understudy@watched || return 1
    hundred() { (($(asked 7001) > 100)); }
    wait_for hundred || return 1
    inside touch /run/unwell
    restarted() { unit_is watched NRestarts 1; }
    wait_for restarted || { journal watched; return 1; }
    inside rm /run/unwell
    wait_for unit_is watched SubState running && inside systemctl stop understudy@watched
    inside journalctl -o cat --no-pager -u understudy@watched | grep -q -i "watchdog timeout" || { journal watched; return 1; }
}
on_demand() {
    own_program && inside systemctl start understudy@late.socket && unit_is late ActiveState inactive || return 1
    [[ $(asked 7002) == 1 ]] && unit_is late ActiveState active && kill_one late && [[ $(asked 7002) == 2 ]] || { journal late; return 1; }
    inside systemctl stop understudy@late.service && [[ $(asked 7002) == 1 ]] || { journal late; return 1; }
    inside systemctl stop understudy@late.socket understudy@late.service
}
# A program that ignores SIGTERM is killed with all of its copies when the unit's time is over.
stubborn() {
    local begun group
    printf "PROGRAM=/bin/sh -c 'trap \"\" TERM; while :; do sleep 1; done'\n" >"$machine/etc/understudy/stubborn.conf"
    mkdir -p "$machine/etc/systemd/system/understudy@stubborn.service.d"
    printf '[Service]\nTimeoutStopSec=2\n' >"$machine/etc/systemd/system/understudy@stubborn.service.d/own.conf"
    inside systemctl daemon-reload
    inside systemctl start understudy@stubborn && protected stubborn || { journal stubborn; return 1; }
    group=$(inside systemctl show -P ControlGroup understudy@stubborn)
    begun=$SECONDS
    inside systemctl stop understudy@stubborn
    ((SECONDS - begun <= 5)) || { echo "it took $((SECONDS - begun)) s"; return 1; }
    ! inside cat "/sys/fs/cgroup$group/cgroup.procs" 2>/dev/null | grep . || { echo "processes are left"; return 1; }
}

# ---- An ordinary user ----

# With the last session of one logind removes what the user has in /dev/shm, unless the user lingers. A group of a unit's goes on.
logs_out() {
    local uid=1234 primary
    inside sh -c 'id ordinary 2>/dev/null || useradd -u 1234 -m ordinary' || return 1
    mkdir -p "$machine/etc/systemd/logind.conf.d"
    printf '[Login]\nRemoveIPC=yes\nUserStopDelaySec=0\n' >"$machine/etc/systemd/logind.conf.d/own.conf"
    inside systemctl restart systemd-logind || return 1
    of_ordinary() { inside understudy "$@" --user ordinary; }
    session() {
        inside systemd-run -q -u session -p User=ordinary -p PAMName=login sleep 1000 && wait_for inside loginctl show-user ordinary &&
            inside systemctl stop session
    }
    doctor_says() { inside setpriv --reuid $uid --regid $uid --clear-groups understudy doctor | grep '  logout  ' | grep -q "$1"; }
    inside systemd-run -q -u lasting -p User=ordinary understudy run --name nap -- sleep 1000 &&
        of_ordinary wait nap --protected --timeout 20 || return 1
    inside loginctl enable-linger ordinary && session && doctor_says "leaves the groups' files" || return 1
    sleep 2
    of_ordinary status nap || { echo "its files are gone, although its user lingers"; return 1; }
    inside loginctl disable-linger ordinary && session && doctor_says "takes the groups' files along" || return 1
    is_removed() { inside test ! -e /dev/shm/understudy-$uid; }
    wait_for is_removed || return 1
    is_told() { inside journalctl -o cat --no-pager -u lasting | grep -q 'nap was removed, by a logout'; }
    wait_for is_told || { inside journalctl -o cat --no-pager -u lasting; return 1; }
    # Protected all the same: by its first standby, and by the next one.
    for _ in 1 2; do
        primary=$(inside pgrep -u ordinary -x sleep | head -n 1)
        inside kill -KILL "$primary" || return 1
        sleep 1
        inside systemctl is-active -q lasting || { inside journalctl -o cat --no-pager -u lasting; return 1; }
    done
    inside systemctl stop lasting
    ! inside pgrep -u ordinary || { echo "processes are left"; return 1; }
}

# ---- A container ----

# As contrib/container has it: understudy is process 1, nobody is above it, and what it starts is no service manager.
is_process_1() {
    local run one out=$work/one code leader
    (container setpriv --reuid redis --regid redis --clear-groups understudy run --name redis -- \
        sh -c 'for n in 1 2 3 4 5; do sh -c "sleep 0.3 & exit"; done; exec redis-server --port 6390 --save ""' >"$out" 2>&1) &
    run=$!
    one() { pgrep -P "$(pgrep -P "$run" -x unshare || echo "$run")" -x understudy; }
    wait_for one || { cat "$out"; return 1; }
    leader=$(one)
    here() { timeout 30 nsenter -t "$leader" -m -u -i -n -p --root env -C / LC_ALL=C.UTF-8 "$@"; }
    here understudy wait redis --user redis --protected --timeout 20 || { cat "$out"; return 1; }
    here redis-cli -p 6390 incr n && here kill -KILL "$(here understudy status redis --user redis | awk 'NR == 2 { print $3 }')" || return 1
    wait_for here redis-cli -p 6390 incr n && here understudy wait redis --user redis --protected --timeout 20 || { cat "$out"; return 1; }
    [[ $(here redis-cli -p 6390 get n) == 2 ]] || { echo "its memory is lost"; cat "$out"; return 1; }
    sleep 0.5
    ! here ps -eo stat=,comm= | grep '^Z' || { echo "zombies"; return 1; }
    here ps -eo pid=,comm= | grep -q '^ *1 understudy$' || { here ps -e; return 1; }
    # As a container engine stops it, from outside.
    kill -TERM "$leader"
    wait "$run"
    code=$?
    ((code == 0)) && grep -q 'Received SIGTERM' "$out" || { echo "it ended with $code"; cat "$out"; return 1; }
}

# ---- The book ----

# README and the book, by what the package has brought, in /usr/bin.
book_is_there() {
    local folder=$machine/book
    if [[ -e $folder ]]; then return; fi
    mkdir -p "$folder/docs" "$folder/tests" "$folder/target/release"
    cp README.md "$folder/" && cp -r docs/book "$folder/docs/" && cp -r tests/book "$folder/tests/"
    ln -s /usr/bin/understudy "$folder/target/release/understudy"
}
book() {
    book_is_there
    INSIDE_S=240 inside env TARGET=/book/target python3 /book/tests/book/run.py
}
# The block of the servers' page that needs systemd, as it is printed.
book_of_servers() {
    book_is_there
    INSIDE_S=240 inside env TARGET=/book/target python3 /book/tests/book/run.py --systemd /book/docs/book/servers.md
}

# ---- The package (the index of manual pages is no concern of ours, and takes long) ----

package() {
    cp "$1" "$machine/understudy.deb" && inside dpkg --no-triggers -i /understudy.deb && inside understudy doctor >"$work/doctor" || { cat "$work/doctor"; return 1; }
}
# The same files under a later version's name.
upgrade() {
    local main
    rm -rf "$work/later"
    dpkg-deb -R "$TARGET"/package/understudy_*_amd64.deb "$work/later" && sed -i 's/^Version: .*/&+1/' "$work/later/DEBIAN/control" &&
        dpkg-deb -Znone --root-owner-group --build "$work/later" "$work/later.deb" >/dev/null || return 1
    main=$(inside systemctl show -P MainPID understudy@redis)
    package "$work/later.deb" && unit_is redis MainPID "$main" && serves redis && unit_is redis MainPID "$main" || return 1
    # What systemd has read is what lies there.
    unit_is redis NeedDaemonReload no && inside systemctl restart understudy@redis && protected redis && serves redis
}
removal() {
    local main
    main=$(inside systemctl show -P MainPID understudy@redis)
    inside dpkg --no-triggers -r understudy >"$work/removed" 2>&1 || { cat "$work/removed"; return 1; }
    # Service goes on, and systemd stops it still.
    inside redis-cli set kept 1 | grep -qx OK && inside kill -0 "$main" || { cat "$work/removed"; return 1; }
    grep -q 'understudy@redis' "$work/removed" || { echo "nobody says what still runs"; cat "$work/removed"; return 1; }
    inside systemctl stop understudy@redis && ! inside kill -0 "$main" 2>/dev/null || { echo "it cannot be stopped"; return 1; }
    inside dpkg --no-triggers -P understudy || return 1
    ! inside sh -c 'find /usr /lib /etc -name "*understudy*" ! -path "/etc/understudy*" ! -path "*/own.*" | grep -v -e /etc/systemd/system/understudy@' || return 1
    inside systemctl enable --now redis-server && inside redis-cli ping | grep -qx PONG
}
reboot() {
    local name
    machine_restart || return 1
    for name in "$@"; do
        wait_for protected "$name" && unit_is "$name" ActiveState active && ! inside systemctl is-active -q "${instead[$name]}" ||
            { inside systemctl status --no-pager "understudy@$name" "${instead[$name]}"; journal "$name"; return 1; }
    done
}

# ---- ----

on() {
    local root=$1 servers=() name
    mkdir -p "$work/machine"
    machine=$work/machine/root
    machine_start "$root" "$work/machine" >"$work/start" 2>&1 || {
        skip "everything" "$(tail -n 1 "$work/start")"
        machine_stop
        return
    }
    cp tests/install/client.pl "$machine/opt/"
    mkdir -p "$machine/var/www/html" && echo hello >"$machine/var/www/html/understudy.txt"
    # A client that stays is what is tried here: nginx closes each connection after a thousand requests by itself.
    mkdir -p "$machine/etc/nginx/conf.d" && echo 'keepalive_requests 1000000000;' >"$machine/etc/nginx/conf.d/stay.conf"
    case_ "the package is installed" package "$(ls "$TARGET"/package/understudy_*_amd64.deb)"
    # Of this machine another step tries it.
    if [[ $root != / ]] && inside sh -c 'command -v python3 && command -v curl' >/dev/null; then
        case_ "every command of the book" book
        case_ "the book's way to protected servers" book_of_servers
    fi
    for name in redis memcached nginx mosquitto postgresql; do
        if inside systemctl cat "${instead[$name]}" >/dev/null 2>&1; then servers+=("$name"); else skip "$name" "is not installed there"; fi
    done
    for name in "${servers[@]}"; do
        case_ "$name takes the place of its unit" swap "$name"
        case_ "$name serves over $KILLS kills" serves "$name"
        case_ "$name stops in time" stops "$name"
        case_ "$name starts again" starts_again "$name"
    done
    if [[ " ${servers[*]} " == *" nginx "* ]]; then case_ "nginx reloads" reload_nginx; fi
    if [[ " ${servers[*]} " == *" postgresql "* ]]; then case_ "postgresql reloads" reload_postgres; fi
    if [[ " ${servers[*]} " == *" redis "* ]]; then case_ "events in the journal" in_the_journal; fi
    case_ "notifications of a copy" notifies
    case_ "a watchdog" is_watched
    case_ "socket activation" on_demand
    case_ "a program that does not stop" stubborn
    if inside sh -c 'ls /lib/*/security/pam_systemd.so && command -v useradd loginctl' >/dev/null 2>&1; then
        case_ "an ordinary user logs out" logs_out
    else
        skip "an ordinary user logs out" "no pam_systemd there"
    fi
    if [[ " ${servers[*]} " == *" redis "* ]]; then case_ "process 1 of a container" is_process_1; fi
    case_ "a reboot" reboot "${servers[@]}"
    if [[ " ${servers[*]} " == *" redis "* ]]; then
        case_ "an upgrade under a running service" upgrade
        case_ "removal under a running service" removal
    fi
    machine_stop
}

where=here
reason=$(machine_can_run) || { skip "a systemd of its own" "$reason"; sum_up; exit; }
if ! command -v dpkg-deb >/dev/null; then skip "the package" "no dpkg-deb"; sum_up; exit; fi
scripts/package.sh deb >/dev/null || { echo "FAIL  the package cannot be made"; sum_up; exit 1; }
roots=("$@")
if ((${#roots[@]} == 0)); then mapfile -t roots < <(compgen -G "$TARGET/roots/*-units/.complete" | xargs -r -n 1 dirname); fi
if ((${#roots[@]} == 0)); then roots=(/); fi
for root in "${roots[@]}"; do
    where=$(. "$root/etc/os-release" && echo "$ID $VERSION_ID")
    if [[ -x $root/lib/systemd/systemd ]]; then on "$root"; else skip "everything" "no systemd in $root"; fi
done
sum_up
