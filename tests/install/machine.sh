# Sourced: a systemd of its own over a root file system, in namespaces, without a network, of which nothing is left afterwards.
#
#   machine_can_run             says why not, if it cannot
#   machine_start ROOT WORK     over ROOT, which does not change; what the machine writes lies in the folder WORK, a tmpfs
#   machine_restart             the same machine, begun anew: a reboot
#   inside COMMAND...           in it; its exit code
#   container COMMAND...        a container over the root of the machine
#   machine_stop                ends it; WORK keeps nothing
#
# As root. The machine has a cgroup of its own below the caller's, and cgroups of version 2 alone.

machine_leader= machine_run= machine_group= machine_work=
machine_apart=(unshare -m -p -f -u -i -n --kill-child --propagation private)

# machine ROOT (cgroups|-) SHM COMMAND...: in namespaces of their own, makes ROOT the root, with what belongs into any, and becomes
# COMMAND. SHM is the size of /dev/shm.
machine_root='
    root=$1 groups=$2 shm=$3
    shift 3
    mount --rbind "$root" "$root" && cd "$root"
    mount -t proc proc proc
    mount -t sysfs -o ro sysfs sys
    if [[ $groups == cgroups ]]; then mount -t cgroup2 cgroup2 sys/fs/cgroup; fi
    mount -t tmpfs -o mode=755 dev dev
    for node in null zero full random urandom tty; do touch dev/$node && mount --bind /dev/$node dev/$node; done
    mkdir dev/shm dev/pts
    mount -t tmpfs -o mode=1777,size=$shm shm dev/shm
    mount -t devpts -o newinstance,ptmxmode=666,mode=620,gid=5 devpts dev/pts
    ln -s pts/ptmx dev/ptmx && ln -s /proc/self/fd dev/fd
    ln -s /proc/self/fd/0 dev/stdin && ln -s /proc/self/fd/1 dev/stdout && ln -s /proc/self/fd/2 dev/stderr
    mount -t tmpfs -o mode=755 run run
    mkdir -p .before && pivot_root . .before
    cd / && umount -l /.before && rmdir /.before
    ip link set lo up 2>/dev/null || true
    exec env -i container=other PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin "$@"'

# container COMMAND...: COMMAND as the first process of a container over the root of the machine, without a systemd and with 64 MB
# of /dev/shm, as container engines give; in the place of the caller.
container() { exec "${machine_apart[@]}" bash -euc "$machine_root" machine "$machine_work/root" - 64m "$@"; }

machine_can_run() {
    ((EUID == 0)) || { echo "needs root"; return 1; }
    local word
    for word in unshare nsenter findmnt; do
        command -v "$word" >/dev/null || { echo "no $word"; return 1; }
    done
    [[ -n $(machine_cgroups) ]] || { echo "no cgroups of version 2"; return 1; }
    unshare -m -p -f -u -i -n -C --propagation private true 2>/dev/null || { echo "no namespaces"; return 1; }
}

machine_cgroups() { findmnt -n -o TARGET -t cgroup2 | head -n 1; }

machine_start() {
    local root=$1
    machine_work=$2
    mount -t tmpfs -o size=2g,mode=755 tmpfs "$machine_work" || return 1
    mkdir "$machine_work"/{upper,inner,root}
    mount -t overlay -o "lowerdir=$root,upperdir=$machine_work/upper,workdir=$machine_work/inner" overlay "$machine_work/root" ||
        return 1
    # Empty: systemd makes one, and takes this start for the first.
    rm -f "$machine_work/root/etc/machine-id" && : >"$machine_work/root/etc/machine-id"
    # This machine's own root has more in it than what is asked for.
    if [[ $root == / ]]; then find "$machine_work/root/etc/systemd/system/multi-user.target.wants" "$machine_work/root"/etc/rc?.d -type l -delete; fi
    # Nobody logs in, and no disk is to be mounted.
    rm -f "$machine_work/root/etc/fstab" "$machine_work/root/etc/hostname"
    echo standby-test >"$machine_work/root/etc/hostname"
    machine_boot
}

machine_boot() {
    local n unshare state
    machine_group=$(machine_cgroups)/understudy-machine-$$
    mkdir "$machine_group" || return 1
    setsid bash -c 'echo $$ >"$1/cgroup.procs" && shift && exec "$@"' machine "$machine_group" \
        "${machine_apart[@]}" -C bash -euc "$machine_root" machine "$machine_work/root" cgroups 50% \
        /lib/systemd/systemd systemd.unit=multi-user.target systemd.log_target=journal </dev/null >"$machine_work/console" 2>&1 &
    machine_run=$!
    for n in {1..100}; do
        # setsid has become bash, and that has become unshare: its child is the first process.
        unshare=$(pgrep -P "$machine_run" -x systemd) && break
        sleep 0.1
    done
    machine_leader=$unshare
    [[ -n $machine_leader ]] || { echo "no systemd starts here: $(tail -n 1 "$machine_work/console")"; return 1; }
    for n in {1..400}; do
        # It ends with another code than 0 where any unit has failed, which may be one that no machine of this kind can start.
        state=$(inside systemctl is-system-running 2>/dev/null)
        if [[ $state == running || $state == degraded ]]; then return 0; fi
        sleep 0.1
    done
    echo "it does not come up: $(inside systemctl list-jobs --no-pager 2>&1 | head -n 5 | tr '\n' ' ')"
    return 1
}

inside() { timeout "${INSIDE_S:-60}" nsenter -t "$machine_leader" -m -u -i -n -p -C --root env -C / LC_ALL=C.UTF-8 "$@"; }

machine_halt() {
    local n
    if [[ -n $machine_run ]]; then
        # The first process of a pid namespace takes all of it along.
        kill -KILL "$machine_leader" 2>/dev/null || kill -KILL "$machine_run" 2>/dev/null
        wait "$machine_run" 2>/dev/null
        machine_run= machine_leader=
    fi
    if [[ -n $machine_group && -d $machine_group ]]; then
        for n in {1..50}; do
            find "$machine_group" -depth -type d -exec rmdir {} + 2>/dev/null
            [[ -d $machine_group ]] || break
            sleep 0.1
        done
    fi
}

machine_restart() {
    local n
    inside systemctl poweroff >/dev/null 2>&1
    for n in {1..300}; do
        kill -0 "$machine_leader" 2>/dev/null || break
        sleep 0.1
    done
    if kill -0 "$machine_leader" 2>/dev/null; then echo "it does not shut down"; return 1; fi
    machine_halt
    machine_boot
}

machine_stop() {
    machine_halt
    if [[ -n $machine_work ]]; then
        umount "$machine_work/root" "$machine_work" 2>/dev/null || umount -l "$machine_work/root" "$machine_work" 2>/dev/null
        machine_work=
    fi
}
