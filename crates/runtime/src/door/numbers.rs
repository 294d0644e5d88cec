//! Numbers of processes and threads: the guest's, which are the group's for ever, and the kernel's.

use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use linux_raw_sys::general::{__user_cap_header_struct, f_owner_ex, flock, sigevent};
use us_abi::{Cause, Process};
use us_calls::Row;
use us_world::timer::ProcessorClock;

use crate::call::Call;
use crate::door::recorded::recorded;
use crate::door::{copies, own_files, timer, usage, wait};
use crate::guest::{GuestMut, GuestPtr, Plain, part};
use crate::kernel::{SIGEV_THREAD_ID, SOL_SOCKET, TIMER_ABSTIME};
use crate::members::{self, leader, mail};
use crate::raw::Timespec;
use crate::state::Role;
use crate::sys::spans;
use crate::thread::{self, Mode, Thread};
use crate::{fdtable, raw, seats, state, tls, verdict};

/// The kernel's number for a number of the group's.
pub fn to_kernel(number: u64) -> u64 {
    let value = number as u32 as i32;
    let guest = state::GUEST_PID.load(Ordering::Relaxed) as i32;
    if value < -1 {
        // A process group.
        return u64::from(leader::to_kernel(value.unsigned_abs()).wrapping_neg());
    }
    let real = state::REAL_PID.load(Ordering::Relaxed) as i32;
    if value == guest {
        return real as u64;
    }
    if value > 1
        && let Some(primary) = members::primary_of(value as u32)
    {
        return u64::from(primary);
    }
    let mut found = number;
    thread::for_each(|other| {
        // Only a promoted copy has threads whose numbers differ.
        let tid = other.real_tid.load(Ordering::Relaxed);
        if tid != 0 && other.guest_tid() as i32 == value {
            found = u64::from(tid);
        }
    });
    found
}

/// Calls that name a process or a thread: kill, tgkill, sched_*, prlimit ... The guest uses the group's
/// numbers; [`translate`] gives the kernel its own when the call is really made.
pub fn named(thread: &mut Thread, row: &'static Row, call: &Call) -> i64 {
    if !matches!(row.nr, SETPGID | SETSID) {
        return recorded(thread, row, call);
    }
    let result = recorded(thread, row, call);
    leader::follow(call, result);
    if thread.calls() != Mode::Replay {
        leader::has_changed(if row.nr == SETSID { 0 } else { call.args[0] as u32 });
    } else if !state::is_detached() {
        join_group();
    }
    result
}

/// As a standby: see [`leader::join`].
pub fn join_group() {
    if let Some(header) = state::header() {
        leader::join(header.primary_pid.load(Ordering::Acquire));
    }
}

/// A setsid that the kernel has refused because a standby is still in a group with the number of this copy, which that has left:
/// made again once the standby has followed. One that does not come to that ends: the program would be refused what it may do.
pub fn session(mut make: impl FnMut() -> i64) -> i64 {
    /// For a copy that has just died, and is in its group until the supervisor has asked the kernel for it.
    const REAPED_NS: u64 = 30_000_000;
    /// For a copy to be ended.
    const ENDED_NS: u64 = 1_000_000_000;
    const PAUSE_NS: u64 = 200_000;
    let own = state::REAL_PID.load(Ordering::Relaxed);
    let start = raw::now_ns();
    let mut last_seen = start;
    loop {
        let result = make();
        if result != raw::err::EPERM || leader::group_of(0) == Some(own) {
            return result;
        }
        // A relative in that group is what keeps it there natively, too.
        if members::listed().any(|other| leader::group_of(members::primary(other)) == Some(own)) {
            return result;
        }
        let now = raw::now_ns();
        if let Some(copy) = seats::copies().find(|pid| *pid != own && leader::group_of(*pid) == Some(own)) {
            last_seen = now;
            let late_ns = (now - start).saturating_sub(2 * state::LAG_TIMEOUT_NS.load(Ordering::Relaxed));
            if late_ns > ENDED_NS {
                return result;
            }
            if late_ns > 0 {
                verdict::drop_standby(
                    Cause::Behind,
                    &[b"the standby keeps the program from making a session"],
                );
                copies::end(copy);
            }
        } else if now - last_seen > REAPED_NS || !seats::is_followed() && last_seen == start {
            return result;
        }
        raw::nap(PAUSE_NS);
    }
}

/// A child process is or has been made: see [`fdtable::child_made`].
pub fn child_made() {
    fdtable::child_made();
    members::has_relatives();
}

/// By descriptor: one more than the group's number of the process that it was opened for, 0 for any other.
static MEANT: [AtomicU32; DESCRIPTORS] = [const { AtomicU32::new(0) }; DESCRIPTORS];
const DESCRIPTORS: usize = 4096;

/// A descriptor is one of this process now, or of none.
pub fn means(fd: i32, pid: Option<u32>) {
    if let Some(meant) = MEANT.get(fd as u32 as usize) {
        meant.store(pid.map_or(0, |pid| pid + 1), Ordering::Relaxed);
    }
}

/// The process that a descriptor was opened for.
pub fn meant_by(fd: i32) -> Option<u32> {
    MEANT.get(fd as u32 as usize)?.load(Ordering::Relaxed).checked_sub(1)
}

/// Where the calling thread of a process with a segment notes a signal that it has counted.
fn note_of_sent() -> Option<&'static AtomicU64> {
    let is_primary = || state::header().is_some() && state::role() == Role::Primary;
    Some(&tls::shared().filter(|thread| thread.has_ring() && is_primary())?.entry().sent)
}

/// Signals within the group are counted.
fn note_send(number: u64, args: &[u64; 6], has_letter: bool) {
    const REAL_TIME: u32 = 32;
    let signal = match number {
        raw::nr::KILL | raw::nr::RT_SIGQUEUEINFO => args[1],
        raw::nr::TGKILL | raw::nr::RT_TGSIGQUEUEINFO => args[2],
        _ => return,
    };
    // Of queued ones there is a letter. One of a standard number may have no letter of its own, and is counted.
    let has_letter = has_letter && signal as u32 >= REAL_TIME;
    if signal as u32 != 0 && !has_letter {
        let (target, signal) = (args[0] as u32 as i32, u64::from(signal as u32));
        members::note_send(target, signal);
        if let Some(note) = note_of_sent() {
            note.store(members::noted(target, signal), Ordering::SeqCst);
        }
    }
}

/// Whether a call's first argument is the number of a process that may be between two copies: kill, rt_sigqueueinfo,
/// tgkill; setpgid, getpgid, getsid; prlimit64, pidfd_open.
pub fn names_a_process(nr: u16) -> bool {
    matches!(nr, 62 | 129 | 234 | 297 | 109 | 121 | 124 | 302 | 434)
}

/// kill, rt_sigqueueinfo, tgkill, rt_tgsigqueueinfo.
fn sends_a_signal(nr: u64) -> bool {
    matches!(nr, 62 | 129 | 234 | 297)
}

/// Makes such a call for real, by `attempt`. About a process whose primary is dead and whose standby is not yet known as its
/// successor, when it is.
pub fn send(call: u64, args: &[u64; 6], mut attempt: impl FnMut(&[u64; 6]) -> i64) -> i64 {
    const PATIENCE_NS: u64 = 3_000_000_000;
    let start = raw::now_ns();
    let letter = mail::post(call, args);
    let counted = members::Sending::begin();
    note_send(call, args, letter.is_some());
    let mut counted = Some(counted);
    let mut args = *args;
    let info;
    if let Some(letter) = letter {
        info = letter.info();
        args[mail::info_at(call)] = &raw const info as u64;
    }
    let target = args[0] as u32 as i32;
    loop {
        let lives = letter.map_or(0, |_| mail::lives_of(target as u32));
        let primary = || members::primary_of(target as u32).unwrap_or(target as u32);
        let asked = primary();
        let result = attempt(&args);
        if counted.take().is_some()
            && let Some(note) = note_of_sent()
        {
            note.store(0, Ordering::Relaxed);
        }
        // Of one that is there it is the kernel's answer: it has no such thread. A group is changed by its process as well.
        let has_gone = || call == u64::from(SETPGID) || primary() != asked || !members::exists(asked);
        let between =
            result == raw::err::ESRCH && target > 1 && members::is_between(target as u32) && has_gone();
        if !between || raw::now_ns() - start > PATIENCE_NS {
            if let Some(letter) = letter {
                letter.is_sent(!raw::failed(result));
                if !raw::failed(result) && mail::lives_of(target as u32) != lives {
                    // It went to one that is dead, or was thrown away by one that was promoted just then and looked through
                    // the letters before this one was said to be sent.
                    continue;
                }
            }
            if call == u64::from(SETPGID)
                && result == raw::err::ESRCH
                && members::is_in_group(args[0] as u32, args[1] as u32)
            {
                return 0;
            }
            return match result {
                raw::err::ESRCH => of_unasked(call, target).unwrap_or(result),
                result => result,
            };
        }
        members::await_news();
    }
}

/// What the kernel would answer about a process that has ended and that its parent has not asked for, or about a group that has
/// only such processes: its zombie was that one's first parent's to ask for, which has failed over.
fn of_unasked(call: u64, target: i32) -> Option<i64> {
    let is_left = |entry: &&Process| !wait::leaves_nothing(entry.pid.load(Ordering::Relaxed));
    match target {
        ..-1 if sends_a_signal(call) => {
            let group = leader::to_kernel(target.unsigned_abs());
            members::unasked_in(group).find(is_left).map(|_| 0)
        }
        2.. => {
            let entry = members::unasked(target as u32).filter(is_left)?;
            match call as u16 {
                GETPGID => members::group_of(entry).map(i64::from),
                GETSID => entry.session.load(Ordering::Relaxed).checked_sub(1).map(i64::from),
                _ => sends_a_signal(call).then_some(0),
            }
        }
        _ => None,
    }
}

/// Which of the first three arguments of a call are numbers of processes or threads.
fn numbers_in(nr: u16, args: &[u64; 6]) -> [bool; 3] {
    const F_SETOWN: u32 = linux_raw_sys::general::F_SETOWN;
    const PRIO_PROCESS: u32 = linux_raw_sys::general::PRIO_PROCESS;
    const IOPRIO_WHO_PROCESS: u32 = 1;
    let which = args[0] as u32;
    match nr {
        // kill, tkill, rt_sigqueueinfo; setpgid, getpgid, getsid; sched_*; migrate_pages, move_pages, process_vm_*; prlimit64;
        // get_robust_list; pidfd_open
        62 | 200 | 129 | 109 | 121 | 124 | 142..=145 | 148 | 203 | 204 | 314 | 315 => [true, false, false],
        256 | 279 | 310 | 311 | 302 | 274 | 434 => [true, false, false],
        // tgkill, rt_tgsigqueueinfo, kcmp
        234 | 297 | 312 => [true, true, false],
        // getpriority, setpriority; ioprio_set, ioprio_get
        140 | 141 => [false, which == PRIO_PROCESS, false],
        251 | 252 => [false, which == IOPRIO_WHO_PROCESS, false],
        72 => [false, false, args[1] as u32 == F_SETOWN],
        _ => [false; 3],
    }
}

/// The largest of them is a `sigevent`.
type Words = [u64; size_of::<sigevent>() / size_of::<u64>()];

/// Where what the arguments of a call point at is copied to.
#[derive(Default)]
pub struct Room {
    words: Words,
    control: spans::Control,
    path: own_files::Path,
}

impl Room {
    /// Where the kernel finds it, as long as nothing else is put here.
    fn put<T: Plain>(&mut self, value: T) -> u64 {
        const { assert!(size_of::<T>() <= size_of::<Words>() && align_of::<T>() <= align_of::<Words>()) };
        let place = (&raw mut self.words).cast::<T>();
        // SAFETY: there is room for it, as has just been asserted.
        unsafe { place.write(value) };
        place as u64
    }
}

/// The arguments of a call, in which those that name a process or a thread have the kernel's number.
pub fn named_in(nr: u16, mut args: [u64; 6]) -> [u64; 6] {
    for (at, names) in numbers_in(nr, &args).into_iter().enumerate() {
        if names {
            args[at] = to_kernel(args[at]);
        }
    }
    args
}

/// The arguments of a call with the kernel's numbers in place of the group's. What an argument points at and names a thread
/// as well is copied to `room`, which has to live as long as the call.
#[cold]
pub fn translate(row: &Row, guests: &[u64; 6], room: &mut Room) -> [u64; 6] {
    use us_calls::{Door, Policy};
    let mut args = named_in(row.nr, *guests);
    if matches!(row.policy, Policy::Special(Door::Timer)) {
        if row.nr == TIMER_SETTIME
            && let Some(time) = timer::own_time(&args)
        {
            args[2] = room.put(time);
        }
        args[0] = timer::to_kernel(row, args[0]);
    }
    own_files::translate(row, &mut args, &mut room.path);
    match row.nr {
        SETPGID => args[1] = leader::wanted(guests).into(),
        IOCTL if args[1] as u32 == TIOCSPGRP => {
            if let Some(group) = GuestPtr::<u32>::at(args[2]).load() {
                args[2] = room.put(leader::to_kernel(group));
            }
        }
        TIMER_CREATE => {
            args[0] = u64::from(clock_to_kernel(args[0] as u32 as i32) as u32);
            let event = GuestPtr::<sigevent>::at(args[1]);
            if let Ok(Some(mut event)) = event.given()
                && event.sigev_notify as u64 == SIGEV_THREAD_ID
            {
                // SAFETY: an event of this kind has a number there.
                let tid = unsafe { event._sigev_un._tid };
                event._sigev_un._tid = to_kernel(tid as u32 as u64) as i32;
                args[1] = room.put(event);
            }
        }
        CLOCK_NANOSLEEP => {
            let clock = args[0] as u32 as i32;
            let until = GuestPtr::<Timespec>::at(args[2]).load().filter(|_| args[1] & TIMER_ABSTIME != 0);
            if let Some(until) = until.filter(|until| usage::is_clock(clock) && until.sec >= 0) {
                let until = Timespec::from_ns(usage::to_own(clock, until.ns()));
                args[2] = room.put(until);
            }
            args[0] = u64::from(clock_to_kernel(clock) as u32);
        }
        CLOCK_GETRES => args[0] = u64::from(clock_to_kernel(args[0] as u32 as i32) as u32),
        FCNTL if args[1] as u32 == F_SETOWN_EX => {
            if let Some(f_owner_ex { type_, pid }) = GuestPtr::at(args[2]).load()
                && type_ as u32 <= F_OWNER_PID
            {
                args[2] = room.put(f_owner_ex { type_, pid: to_kernel(pid as u32 as u64) as i32 });
            }
        }
        CAPGET => {
            if let Some(__user_cap_header_struct { version, pid }) = GuestPtr::at(args[0]).load()
                && pid != 0
            {
                let pid = to_kernel(pid as u32 as u64) as i32;
                args[0] = room.put(__user_cap_header_struct { version, pid });
            }
        }
        SENDMSG => {
            if let Some(header) = GuestPtr::<spans::MessageHeader>::at(args[1]).load() {
                let control = spans::with_credentials(header.control, header.control_len, &mut room.control);
                if control != header.control {
                    args[1] = room.put(spans::MessageHeader { control, ..header });
                }
            }
        }
        _ => {}
    }
    args
}

/// Whether a call may tell of a process, process group or session: getpgrp, setsid; getpgid, getsid; ioctl; who holds a lock, is at
/// the other end of a socket, or has used an object of System V last.
pub fn answers_a_number(nr: u16) -> bool {
    matches!(nr, GETPGRP | SETSID | GETPGID | GETSID | IOCTL | FCNTL | GETSOCKOPT | SHMCTL | MSGCTL | SEMCTL)
}

/// The group's numbers in place of the kernel's in what such a call has answered.
#[cold]
pub fn answered(row: &Row, args: &[u64; 6], result: i64) -> i64 {
    if raw::failed(result) {
        return result;
    }
    match row.nr {
        GETPGRP | GETPGID | GETSID => leader::to_guest(result as u32).into(),
        // The roster does not know of it yet.
        SETSID => state::GUEST_PID.load(Ordering::Relaxed).into(),
        IOCTL if matches!(args[1] as u32, TIOCGPGRP | TIOCGSID) => {
            let place = GuestMut::<u32>::at(args[2]);
            if let Some(group) = place.written() {
                place.store(&leader::to_guest(group));
            }
            result
        }
        FCNTL if args[1] as u32 == F_GETLK => {
            told_at(part!(GuestMut::<flock>::at(args[2]), flock, l_pid));
            result
        }
        FCNTL if args[1] as u32 == F_GETOWN_EX => {
            let place = GuestMut::<f_owner_ex>::at(args[2]);
            if place.written().is_some_and(|owner: f_owner_ex| owner.type_ as u32 <= F_OWNER_PID) {
                told_at(part!(place, f_owner_ex, pid));
            }
            result
        }
        GETSOCKOPT if args[1] & 0xffff_ffff == SOL_SOCKET && args[2] as u32 == SO_PEERCRED => {
            let given = GuestPtr::<u32>::at(args[4]).load();
            if given.is_some_and(|bytes| bytes as usize >= size_of::<i32>()) {
                told_at(GuestMut::at(args[3]));
            }
            result
        }
        SHMCTL if matches!(args[1] as u32, STAT | SHM_STAT | SHM_STAT_ANY) => {
            told_both(args[2].wrapping_add(SHMID64_DS_CPID));
            result
        }
        MSGCTL if matches!(args[1] as u32, STAT | MSG_STAT | MSG_STAT_ANY) => {
            told_both(args[2].wrapping_add(MSQID64_DS_LSPID));
            result
        }
        SEMCTL if args[2] as u32 == SEM_GETPID => told(result as u32).into(),
        _ => result,
    }
}

const SETPGID: u16 = linux_raw_sys::general::__NR_setpgid as u16;
const SETSID: u16 = linux_raw_sys::general::__NR_setsid as u16;
const GETPGRP: u16 = linux_raw_sys::general::__NR_getpgrp as u16;
const GETPGID: u16 = linux_raw_sys::general::__NR_getpgid as u16;
const GETSID: u16 = linux_raw_sys::general::__NR_getsid as u16;
const IOCTL: u16 = linux_raw_sys::general::__NR_ioctl as u16;
const TIOCGPGRP: u32 = linux_raw_sys::ioctl::TIOCGPGRP;
const TIOCSPGRP: u32 = linux_raw_sys::ioctl::TIOCSPGRP;
const TIOCGSID: u32 = linux_raw_sys::ioctl::TIOCGSID;
const TIMER_CREATE: u16 = linux_raw_sys::general::__NR_timer_create as u16;
const TIMER_SETTIME: u16 = linux_raw_sys::general::__NR_timer_settime as u16;
const CLOCK_NANOSLEEP: u16 = linux_raw_sys::general::__NR_clock_nanosleep as u16;
const CLOCK_GETRES: u16 = linux_raw_sys::general::__NR_clock_getres as u16;
const CAPGET: u16 = linux_raw_sys::general::__NR_capget as u16;
const SENDMSG: u16 = linux_raw_sys::general::__NR_sendmsg as u16;
const FCNTL: u16 = linux_raw_sys::general::__NR_fcntl as u16;
const GETSOCKOPT: u16 = linux_raw_sys::general::__NR_getsockopt as u16;
const SHMCTL: u16 = linux_raw_sys::general::__NR_shmctl as u16;
const MSGCTL: u16 = linux_raw_sys::general::__NR_msgctl as u16;
const SEMCTL: u16 = linux_raw_sys::general::__NR_semctl as u16;
const F_GETLK: u32 = linux_raw_sys::general::F_GETLK;
const F_GETOWN_EX: u32 = linux_raw_sys::general::F_GETOWN_EX;
const SO_PEERCRED: u32 = linux_raw_sys::net::SO_PEERCRED;
/// Commands of System V's objects, and where two numbers of processes lie in what is told: in a `struct shmid64_ds`, in a
/// `struct msqid64_ds`.
const STAT: u32 = raw::IPC_STAT as u32;
const MSG_STAT: u32 = 11;
const MSG_STAT_ANY: u32 = 13;
const SHM_STAT: u32 = 13;
const SHM_STAT_ANY: u32 = 15;
const SEM_GETPID: u32 = 11;
const SHMID64_DS_CPID: u64 = 80;
const MSQID64_DS_LSPID: u64 = 96;
const F_SETOWN_EX: u32 = linux_raw_sys::general::F_SETOWN_EX;
/// Owner of a descriptor's signals: a thread (0) or a process (1); above that a group of processes.
pub const F_OWNER_PID: u32 = linux_raw_sys::general::F_OWNER_PID;

/// The kernel's number of a clock that counts the processor time of one process or thread: such a clock has that one's
/// number in it. Any other clock is as it was.
#[inline(always)]
pub fn clock_to_kernel(clock: i32) -> i32 {
    if clock >= 0 || !members::is_numbered() { clock } else { clock_of_another(clock) }
}

#[cold]
fn clock_of_another(clock: i32) -> i32 {
    let Some(counted) = ProcessorClock::of(clock).filter(|counted| counted.number != 0) else { return clock };
    ProcessorClock { number: to_kernel(counted.number.into()) as u32, ..counted }.word()
}

/// The group's number for what the kernel tells of any process: of this one, a thread of it, another one of the group, or one that is
/// dead and was the primary of one. Any other number is as it was.
#[cold]
pub fn told(number: u32) -> u32 {
    let own = to_guest(number);
    if own == number { members::known_soon(number).unwrap_or(number) } else { own }
}

/// As [`told`], of a number that the kernel has written into the guest's memory.
fn told_at(place: GuestMut<i32>) {
    if let Some(number) = place.written().filter(|number| *number > 0) {
        place.store(&(told(number as u32) as i32));
    }
}

/// The same of two, one behind the other: who made a shared segment, and used it last; who sent to a queue last, and received.
fn told_both(place: u64) {
    told_at(GuestMut::at(place));
    told_at(GuestMut::at(place.wrapping_add(4)));
}

/// As [`told`], of the senders in the control data of a message that has come. Behind the kernel, where this copy acts, and before
/// the log has it; and for what a dead primary had received. Told twice is told once.
pub fn told_in(control: u64, len: u64) {
    if members::is_numbered() && control != 0 && len != 0 {
        spans::for_credentials(control, len, |place| told_at(GuestMut::at(place)));
    }
}

/// The group's number for a number of this process or of one of its threads.
pub fn to_guest(number: u32) -> u32 {
    if number == state::REAL_PID.load(Ordering::Relaxed) {
        return state::GUEST_PID.load(Ordering::Relaxed);
    }
    let mut found = number;
    thread::for_each(|other| {
        if other.real_tid.load(Ordering::Relaxed) == number {
            found = other.guest_tid();
        }
    });
    found
}
