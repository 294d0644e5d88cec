//! The mirrored world: a copy on another machine than its primary has kernel objects of its own, under the primary's numbers.
//!
//! A replay knows descriptors as numbers. A *mirror* is a replay that may take over, so it makes each object when the log says that
//! the primary has, and does with it what the log says was done: at the call's turn, with the call's own arguments, which it has as
//! well as the primary. What reaches others is not done but noted: no address is taken, nobody is connected to, until this copy
//! takes over ([`socket`]). Files are written in the folders that both machines have ([`files`]).
//!
//! What is in doubt at the end has not been done here, whatever the primary had done: it is done then. A `close` alone is done when it
//! begins, as the log orders it.

mod connection;
mod files;
pub mod identity;
mod joined;
mod socket;
mod streams;

use core::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, Ordering};

use us_abi::{SegmentHeader, world};
use us_calls::FdUse;

use crate::fdtable::{self, Kind, SHADOWED};
use crate::guest::{self, GuestMut};
use crate::kernel::{
    F_DUPFD, F_DUPFD_CLOEXEC, F_GETFD, F_OFD_SETLK, F_OFD_SETLKW, F_SETFD, F_SETFL, F_SETLK, F_SETLKW,
    FD_CLOEXEC, MSG_PEEK, O_CLOEXEC, WNOHANG, WNOWAIT,
};
use crate::lock::Lock;
use crate::raw::{call6, failed};
use crate::{connections, members, seats, state, verdict};

pub use connection::{begins, ended, ends, in_child, queued, wrote_nothing};
pub use files::wrote;
pub use joined::begin_joined;
pub use streams::took;

/// What a number stands for here.
#[repr(u8)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Thing {
    /// Nothing of ours.
    None = world::thing::NONE as u8,
    /// A regular file that is written here as well.
    Written = world::thing::WRITTEN as u8,
    /// A regular file that is not, or only read.
    Read = world::thing::READ as u8,
    /// An end of a pipe or of a pair of sockets.
    Stream = world::thing::STREAM as u8,
    /// An eventfd, whose value the shadow counts.
    Counter = world::thing::COUNTER as u8,
    /// A timer.
    Timer = world::thing::TIMER as u8,
    /// A socket that may listen.
    Socket = world::thing::SOCKET as u8,
    /// One that is connected: to nobody here.
    Connection = world::thing::CONNECTION as u8,
    /// Another object, made here as there.
    Other = world::thing::OTHER as u8,
}

static THINGS: [AtomicU8; SHADOWED] = [const { AtomicU8::new(0) }; SHADOWED];

const ALL: [Thing; 9] = [
    Thing::None,
    Thing::Written,
    Thing::Read,
    Thing::Stream,
    Thing::Counter,
    Thing::Timer,
    Thing::Socket,
    Thing::Connection,
    Thing::Other,
];

/// Held while an object is made and moved to its number: until then it has the number of another one that is to come.
static LOCK: Lock = Lock::new();

/// This copy has just taken over, and is not all live yet.
static HAS_TAKEN_OVER: AtomicBool = AtomicBool::new(false);

/// Numbers of the standard descriptors' copies, with which outputs are shown whatever the program does with its own; plus one.
static STANDARD: [AtomicU32; 3] = [const { AtomicU32::new(0) }; 3];

fn thing(number: i32) -> Thing {
    let kind = THINGS.get(number as u32 as usize).map_or(0, |place| place.load(Ordering::Relaxed));
    ALL[usize::from(kind).min(ALL.len() - 1)]
}

fn set_thing(number: i32, thing: Thing) {
    if let Some(place) = THINGS.get(number as u32 as usize) {
        place.store(thing as u8, Ordering::Relaxed);
    }
}

/// Whether this copy has taken over a moment ago: what was in doubt had not been begun here, but for a `close`, which had been done.
pub fn has_taken_over() -> bool {
    HAS_TAKEN_OVER.load(Ordering::Relaxed)
}

/// In a new standby: what was in doubt then is so no more.
pub fn forget() {
    HAS_TAKEN_OVER.store(false, Ordering::Relaxed);
}

/// Says why this copy cannot take over, and ends: the log is kept.
fn give_up(why: &[&[u8]]) -> ! {
    verdict::last_words(why)
}

fn call(number: u32, args: [u64; 6]) -> i64 {
    // SAFETY: a call of the guest's that the log has, on an object of ours; or one of ours on such an object.
    unsafe { call6(number.into(), args) }
}

fn close(fd: i64) {
    call(linux_raw_sys::general::__NR_close, [fd as u64, 0, 0, 0, 0, 0]);
}

/// Gives a new object its number.
fn put(made: i64, number: i32, what: Thing) {
    use linux_raw_sys::general::{__NR_dup3, __NR_fcntl};
    if made != i64::from(number) {
        let flags = call(__NR_fcntl, [made as u64, F_GETFD, 0, 0, 0, 0]);
        let how = if flags as u64 & FD_CLOEXEC != 0 { O_CLOEXEC } else { 0 };
        call(__NR_dup3, [made as u64, number as u64, how, 0, 0, 0]);
        close(made);
    }
    set_thing(number, what);
}

/// Makes what the primary has made, by the same call.
fn make(number: u32, args: &[u64; 6], as_fd: i32, what: Thing) {
    let made = call(number, *args);
    if failed(made) {
        give_up(&[us_calls::name(number.into()).as_bytes(), b" made nothing on this machine"]);
    }
    put(made, as_fd, what);
}

/// Two at once: the numbers stand where the guest has had them written.
fn make_pair(number: u32, args: &[u64; 6], at: usize) {
    let Some(wanted) = GuestMut::<[i32; 2]>::at(args[at]).written() else { return };
    let mut made = [0i32; 2];
    let mut own = *args;
    own[at] = &raw mut made as u64;
    if failed(call(number, own)) {
        give_up(&[us_calls::name(number.into()).as_bytes(), b" made nothing on this machine"]);
    }
    // The first may have the number that is wanted for the second.
    let second = raise(made[1]);
    put(made[0].into(), wanted[0], Thing::Stream);
    put(second, wanted[1], Thing::Stream);
    streams::made(wanted);
}

/// The same object under a number that nobody wants, as far as can be known.
fn raise(fd: i32) -> i64 {
    use linux_raw_sys::general::__NR_fcntl;
    let flags = call(__NR_fcntl, [fd as u64, F_GETFD, 0, 0, 0, 0]);
    let dup = if flags as u64 & FD_CLOEXEC != 0 { F_DUPFD_CLOEXEC } else { 0 };
    let raised = call(__NR_fcntl, [fd as u64, dup, 512, 0, 0, 0]);
    let raised = if failed(raised) { call(__NR_fcntl, [fd as u64, dup, 64, 0, 0, 0]) } else { raised };
    if failed(raised) {
        return fd.into();
    }
    close(fd.into());
    raised
}

/// The descriptor for what was shown on standard output, or error.
pub fn standard(number: u64) -> u64 {
    let kept = STANDARD.get(number as usize).map_or(0, |place| place.load(Ordering::Relaxed));
    if kept == 0 { number } else { u64::from(kept - 1) }
}

/// At the beginning: keeps the standard descriptors, which the program may close.
pub fn begin() {
    use linux_raw_sys::general::__NR_fcntl;
    files::begin();
    connection::begin();
    for (number, place) in STANDARD.iter().enumerate().skip(1) {
        let kept = call(__NR_fcntl, [number as u64, F_DUPFD_CLOEXEC, 800, 0, 0, 0]);
        if !failed(kept) {
            place.store(kept as u32 + 1, Ordering::Relaxed);
        }
    }
}

/// A call whose whole answer the log has brought. At its turn.
#[inline(always)]
pub fn answered(number: u16, args: &[u64; 6], result: i64) {
    if state::is_mirrored() {
        follow_locked(number.into(), args, result);
    }
}

#[cold]
fn follow_locked(number: u32, args: &[u64; 6], result: i64) {
    LOCK.with(|| follow(number, args, result));
}

fn follow(number: u32, args: &[u64; 6], result: i64) {
    use linux_raw_sys::general as k;
    if socket::follow(number, args, result) || failed(result) || files::follow(number, args, result) {
        return;
    }
    identity::follow(number, args);
    let fd = result as i32;
    match number {
        k::__NR_pipe | k::__NR_pipe2 => make_pair(number, args, 0),
        k::__NR_socketpair => make_pair(number, args, 3),
        k::__NR_eventfd | k::__NR_eventfd2 => {
            let mut empty = *args;
            empty[0] = 0;
            make(number, &empty, fd, Thing::Counter);
        }
        k::__NR_timerfd_create => make(number, args, fd, Thing::Timer),
        k::__NR_epoll_create | k::__NR_epoll_create1 | k::__NR_inotify_init | k::__NR_inotify_init1 => {
            make(number, args, fd, Thing::Other);
        }
        k::__NR_memfd_create => make(number, args, fd, Thing::Written),
        k::__NR_signalfd | k::__NR_signalfd4 if args[0] as i32 == -1 => make(number, args, fd, Thing::Other),
        k::__NR_signalfd | k::__NR_signalfd4 => {
            call(number, *args);
        }
        k::__NR_timerfd_settime => {
            let mut own = *args;
            own[3] = 0;
            call(number, own);
        }
        k::__NR_dup | k::__NR_dup2 | k::__NR_dup3 => {
            duplicate(args[0] as i32, fd, number == k::__NR_dup3 && args[2] & O_CLOEXEC != 0);
        }
        k::__NR_fcntl => controlled(args, fd),
        k::__NR_ioctl => {
            const FIOCLEX: u64 = 0x5451;
            const FIONCLEX: u64 = 0x5450;
            const FIONBIO: u64 = 0x5421;
            if matches!(args[1] & 0xffff_ffff, FIOCLEX | FIONCLEX | FIONBIO) {
                call(number, *args);
            }
        }
        k::__NR_wait4 => {
            let status = guest::load::<i32>(args[1]).filter(|_| args[1] != 0).unwrap_or(0);
            if result > 0 && status & 0x7f != 0x7f && status != 0xffff {
                asked_for(result as u32);
            }
        }
        k::__NR_waitid if args[3] & WNOWAIT == 0 => {
            // Kind of news, and the number.
            const ENDS: [i32; 3] = [1, 2, 3];
            let told = guest::load::<[i32; 4]>(args[2]).filter(|_| args[2] != 0).unwrap_or_default();
            if ENDS.contains(&told[2]) {
                asked_for(told[3] as u32);
            }
        }
        k::__NR_close_range => _ = call(number, *args),
        k::__NR_sendfile | k::__NR_splice | k::__NR_sendmmsg | k::__NR_recvmmsg => {
            [args[0], args[1], args[2]].iter().for_each(|number| connection::is_uncounted(*number as i32));
        }
        k::__NR_readv => streams::has_taken(args[0] as i32, result as u64),
        k::__NR_recvmsg if args[2] & MSG_PEEK == 0 => streams::has_taken(args[0] as i32, result as u64),
        k::__NR_recvfrom if args[3] & MSG_PEEK == 0 => streams::has_taken(args[0] as i32, result as u64),
        _ => {}
    }
}

/// The end of a child has been told: it is nobody's any more.
fn asked_for(child: u32) {
    if let Some(entry) = members::find(child) {
        members::strike_off(entry);
    }
}

/// `fcntl`: a duplicate, flags and locks.
fn controlled(args: &[u64; 6], result: i32) {
    let mut own = *args;
    match args[1] & 0xffff_ffff {
        F_DUPFD | F_DUPFD_CLOEXEC => {
            return duplicate(args[0] as i32, result, args[1] & 0xffff_ffff == F_DUPFD_CLOEXEC);
        }
        F_SETFD | F_SETFL => {}
        // Nobody else has our objects: none waits.
        F_SETLK | F_SETLKW => own[1] = F_SETLK,
        F_OFD_SETLK | F_OFD_SETLKW => own[1] = F_OFD_SETLK,
        _ => return,
    }
    call(linux_raw_sys::general::__NR_fcntl, own);
}

fn duplicate(from: i32, to: i32, is_closed_at_exec: bool) {
    if from != to {
        let how = if is_closed_at_exec { O_CLOEXEC } else { 0 };
        call(linux_raw_sys::general::__NR_dup3, [from as u64, to as u64, how, 0, 0, 0]);
        set_thing(to, thing(from));
        streams::duplicated(from, to);
    }
}

/// A call that closes begins. At its turn.
pub fn closes(fd_use: FdUse, args: &[u64; 6]) {
    LOCK.with(|| match fd_use {
        FdUse::Closes(at) => close_number(args[at as usize] as i32),
        FdUse::ClosesRange { first, last } if args[2] == 0 => {
            let last = (args[last as usize] & 0xffff_ffff).min(SHADOWED as u64 - 1);
            for number in args[first as usize] & 0xffff_ffff..=last {
                if fdtable::get(number as i32).is_some_and(|shadow| shadow.kind() != Kind::None) {
                    close_number(number as i32);
                }
            }
        }
        _ => {}
    });
}

fn close_number(number: i32) {
    // Ours have numbers that the program does not.
    if fdtable::get(number).is_some_and(|shadow| shadow.kind() != Kind::None) {
        close(number.into());
        set_thing(number, Thing::None);
        streams::closed(number);
    }
}

/// A set is told of a number, or forgets one. At the call's turn.
pub fn registered(epoll: i32, operation: u64, fd: i32, event: [u64; 2]) {
    use linux_raw_sys::general::__NR_epoll_ctl;
    LOCK.with(|| {
        // As the kernel packs it.
        let mut packed = [0u8; 12];
        packed[..4].copy_from_slice(&(event[0] as u32).to_le_bytes());
        packed[4..].copy_from_slice(&event[1].to_le_bytes());
        let at = packed.as_ptr() as u64;
        call(__NR_epoll_ctl, [epoll as u64, operation, fd as u64, at, 0, 0]);
    });
}

/// By the poller, when all that came has been applied: from here on this is a program, and no replay.
pub fn take_over(header: &SegmentHeader) {
    LOCK.with(|| {
        for place in &STANDARD {
            let kept = place.swap(0, Ordering::Relaxed);
            if kept != 0 {
                close(i64::from(kept - 1));
            }
        }
        streams::take_over();
        socket::take_over();
    });
    // Children that had ended before are in no log of ours any more.
    const MANY: u32 = 1 << 16;
    let reap = || {
        use linux_raw_sys::general::__NR_wait4;
        call(__NR_wait4, [u64::MAX, 0, WNOHANG, 0, 0, 0]) > 0
    };
    (0..MANY).take_while(|_| reap()).count();
    fdtable::is_on_machine(connections::table().machine.load(Ordering::Acquire));
    fdtable::distrust();
    HAS_TAKEN_OVER.store(true, Ordering::Relaxed);
    state::IS_RESTORED.store(true, Ordering::Relaxed);
    seats::sit(0, false);
    // The supervisor has changed it a moment ago.
    // SAFETY: a word of the mapped segment.
    let flags = unsafe { (&raw const header.config.flags).read_volatile() };
    state::set_purpose(flags);
    // SAFETY: every thread sleeps until this copy is live.
    unsafe { members::config::keep(&header.config) };
    state::LAG_TIMEOUT_NS.store(u64::from(header.config.lag_timeout_ms) * 1_000_000, Ordering::Relaxed);
    state::LAG_LIMIT.store(header.config.lag_limit, Ordering::Relaxed);
}
