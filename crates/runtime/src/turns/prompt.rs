//! Which calls that may wait will not: where the order of turns is computed others wait for those.
//!
//! A call that waits for the world leaves the race, and comes back at a moment of the world's. One of which it is known beforehand that
//! the kernel answers at once keeps its place: the write of a line does not make the order another one.

use linux_raw_sys::general::{LOCK_NB, O_NONBLOCK};
use linux_raw_sys::ioctl::{
    FIOASYNC, FIOCLEX, FIONBIO, FIONCLEX, FIONREAD, TCGETS, TIOCGPGRP, TIOCGSID, TIOCGWINSZ,
};
use us_calls::{Door, EpollDoor, Policy, Row};

use crate::fdtable::{self, Stat};
use crate::guest::GuestPtr;
use crate::kernel::{F_OFD_SETLKW, F_SETLKW, MSG_DONTWAIT, TIMER_ABSTIME, WNOHANG};
use crate::raw::{self, Timespec, nr};
use crate::thread::turn::Waits;
use crate::turns::logical::Until;

const POLLIN: u64 = 1;
const POLLOUT: u64 = 4;
const POLLNVAL: u64 = 32;

/// What a call with these arguments waits for, as far as can be known.
pub fn waits(row: &Row, args: &[u64; 6]) -> Waits {
    if matches!(row.policy, Policy::Special(Door::Sleep)) {
        return sleep(row, args).map_or(Waits::ForWorld, Waits::For);
    }
    if is_prompt(row, args) { Waits::ForNobody } else { Waits::ForWorld }
}

fn is_prompt(row: &Row, args: &[u64; 6]) -> bool {
    let Policy::Special(door) = row.policy else {
        return row.name == "flock" && args[1] & u64::from(LOCK_NB) != 0;
    };
    let flags = match door {
        Door::Recv | Door::Send | Door::RecvMmsg | Door::SendMmsg => args[3],
        Door::RecvMsg | Door::SendMsg => args[2],
        _ => 0,
    };
    if flags & MSG_DONTWAIT != 0 {
        return true;
    }
    match door {
        Door::Open | Door::Close => true,
        Door::Read | Door::Recv | Door::Readv | Door::RecvMsg | Door::RecvMmsg => is_ready(args[0], POLLIN),
        Door::Write | Door::Send | Door::Writev | Door::SendMsg | Door::SendMmsg => {
            is_ready(args[0], POLLOUT)
        }
        // What has come another thread may take first that waits there already: this one would wait for the world, and all
        // others for it. Six workers at one epoll set were 130 times slower so.
        Door::Accept => is_nonblocking(args[0]),
        Door::Epoll(EpollDoor::Wait) => args[3] == 0 && row.name != "epoll_pwait2",
        Door::Poll => args[2] == 0 && row.name == "poll",
        Door::Fcntl => !matches!(args[1], F_SETLKW | F_OFD_SETLKW),
        Door::Ioctl => asks(args[1]),
        Door::Wait => args[if row.name == "waitid" { 3 } else { 2 }] & WNOHANG != 0,
        _ => is_of_file(row, args),
    }
}

/// Whether the kernel answers at once: there is something, or this descriptor is not waited for. What is no descriptor is an error.
fn is_ready(fd: u64, events: u64) -> bool {
    raw::poll(fd as i32, events) & (events | POLLNVAL) as i64 != 0 || is_nonblocking(fd)
}

fn is_nonblocking(fd: u64) -> bool {
    fdtable::status_flags(fd as i32) & i64::from(O_NONBLOCK) != 0
}

/// Whether an ioctl only asks, or sets a flag: stdio asks for a terminal before it writes to a device.
fn asks(request: u64) -> bool {
    [TCGETS, TIOCGWINSZ, TIOCGPGRP, TIOCGSID, FIONREAD, FIONBIO, FIOASYNC, FIOCLEX, FIONCLEX]
        .contains(&(request as u32))
}

/// Calls about a file's contents wait for a disk at the most.
fn is_of_file(row: &Row, args: &[u64; 6]) -> bool {
    const OF_FILES: [&str; 6] = ["fsync", "fdatasync", "pread64", "pwrite64", "sendfile", "copy_file_range"];
    OF_FILES.contains(&row.name) && Stat::of(args[0] as i32).is_some_and(|stat| stat.is_regular())
}

/// How long a sleep is, ns.
fn sleep(row: &Row, args: &[u64; 6]) -> Option<u64> {
    let of_clock = u64::from(row.nr) == nr::CLOCK_NANOSLEEP;
    let time = GuestPtr::<Timespec>::at(args[if of_clock { 2 } else { 0 }]).load()?;
    if of_clock && args[1] & TIMER_ABSTIME != 0 {
        return Some(Until { clock: args[0], time }.left_ns());
    }
    Some(time.ns())
}
