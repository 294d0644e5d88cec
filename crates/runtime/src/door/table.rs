//! Calls that change the descriptor table.
//!
//! Only the primary changes it. What a new number stands for (its identity) travels in the log, because a
//! standby that asked the kernel would be told about the future.

use core::sync::atomic::Ordering::Relaxed;

use us_abi::event::ReturnHead;
use us_calls::{FdUse, Row};
use us_world::{Direction, Transfer};

use crate::call::Call;
use crate::door::recorded::{begin, end, execute, recorded, recorded_with, take_begin_with, take_end};
use crate::door::refused::refused;
use crate::door::{epoll, mapped, numbers, own_files, owner, quiet};
use crate::fdtable::{self, Kind};
use crate::guest::GuestMut;
use crate::kernel::{O_ACCMODE, O_RDONLY, O_WRONLY};
use crate::raw::nr::{ACCEPT, ACCEPT4, EVENTFD, EVENTFD2, OPEN, OPENAT, PIPE2, SOCKET};
use crate::signal::{self, Plan};
use crate::sys::spans;
use crate::thread::{Mode, Thread};
use crate::{mirror, state};

/// Kind in the highest four bits of the identity: travels with it.
pub(super) fn pack(identity: u64, kind: Kind) -> u64 {
    fdtable::kept(identity) | (kind as u64) << 60
}

/// What travels for a descriptor that turned up at a promotion.
pub fn identity_of(fd: i32, accepted: bool) -> u64 {
    let (identity, kind) = fdtable::identify(fd);
    pack(identity, if accepted && kind == Kind::Tcp { Kind::TcpAccepted } else { kind })
}

fn unpack(packed: u64) -> (u64, Kind) {
    (fdtable::kept(packed), Kind::from_number((packed >> 60) as u8))
}

/// A new descriptor, in every copy. `packed` is what the primary found out, 0 if it did not ask.
pub fn opened(_thread: &mut Thread, fd: i32, packed: u64) {
    if let Some(shadow) = fdtable::get(fd) {
        let (identity, kind) = unpack(packed);
        shadow.open(if kind == Kind::None { Kind::Other } else { kind }, identity);
    }
    numbers::means(fd, None);
}

/// A descriptor has come with a message, in every copy. Each asks the kernel what it is: where the number means something else by
/// now, its end stands in the log behind this, and nobody settles anything before. Without it a read in doubt of a socket that came
/// so lost what it had read. Others have it, too, and what has been moved before is not known: nothing is counted.
pub fn received(thread: &mut Thread, fd: i32) {
    let (identity, kind) = if state::is_detached() { (0, Kind::Other) } else { fdtable::identify(fd) };
    let kind = match kind {
        Kind::Tcp | Kind::Socket => Kind::Socket,
        Kind::Pipe | Kind::File | Kind::Append => kind,
        _ => Kind::Other,
    };
    opened(thread, fd, pack(identity, kind));
    if let Some(shadow) = fdtable::get(fd) {
        shadow.set_private(false);
        shadow.seek(fdtable::NOWHERE);
        if kind == Kind::Pipe && fdtable::status_flags(fd) & O_ACCMODE as i64 == O_WRONLY as i64 {
            shadow.set_write_end();
        }
    }
}

/// A descriptor is gone, in every copy.
pub fn closed(fd: i32) {
    if let Some(shadow) = fdtable::get(fd) {
        shadow.close();
        epoll::forget(fd);
    }
    numbers::means(fd, None);
}

/// Any call that makes, closes or duplicates descriptors.
pub fn changing(thread: &mut Thread, row: &'static Row, call: &Call) -> i64 {
    if row.nr as u64 == crate::raw::nr::FCNTL {
        return fcntl(thread, row, call);
    }
    let args = call.args;
    let fd_use = row.fd;
    if matches!(fd_use, FdUse::Closes(_) | FdUse::ClosesRange { .. }) {
        return closing(thread, row, call);
    }
    if let FdUse::Dups { to: Some(to), .. } = fd_use
        && thread.calls() == Mode::Record
    {
        let to = args[to as usize] & 0xffff_ffff;
        mapped::before_closing(to, to);
    }
    let result = recorded_with(
        thread,
        row,
        call,
        move |_, call, result| identify(fd_use, call, result),
        move |thread, result, identity| apply(thread, row, &args, result, identity),
    );
    if how_opened(call.nr, &args).is_some_and(|how| how != O_RDONLY) && thread.calls() == Mode::Record {
        quiet::opened_to_write(result as i32);
    }
    result
}

/// close, close_range. The shadow forgets the number at the call's beginning, which has the ticket: at its end
/// another thread may have been given the number, in this copy or in the primary.
fn closing(thread: &mut Thread, row: &'static Row, call: &Call) -> i64 {
    let args = call.args;
    let mut forgotten = false;
    // What the number meant before the first attempt.
    let mut meant = None;
    thread.attempt(|thread, mode| {
        let ours = spans::arguments(row, call, thread.verify);
        match mode {
            Mode::Solo => {
                if !forgotten {
                    forget(row.fd, &args);
                }
                let result = execute(thread, row, call.nr, &args);
                signal::solo_restart(thread, row, result);
                Some(result)
            }
            Mode::Record => {
                match row.fd {
                    FdUse::Closes(arg) => {
                        let fd = args[arg as usize] & 0xffff_ffff;
                        mapped::before_closing(fd, fd);
                    }
                    _ => mapped::before_closing(args[0] & 0xffff_ffff, args[1] & 0xffff_ffff),
                }
                begin(thread, row, ours);
                forget(row.fd, &args);
                let result = execute(thread, row, call.nr, &args);
                let plan = signal::plan(thread, row, result);
                if plan.is_abandoned() {
                    return Some(result);
                }
                end(thread, row, plan.flags(), ReturnHead { result, identity: 0 });
                plan.carry_out(thread);
                Some(result)
            }
            Mode::Replay => {
                take_begin_with(thread, row, ours.fd, ours.digest, |thread, _| {
                    // What settling has to know is there before the event is given back.
                    thread.begun_mut().pieces = *meant.get_or_insert_with(|| meaning_of(ours.fd));
                    if state::is_mirrored() {
                        mirror::closes(row.fd, &args);
                    }
                    forget(row.fd, &args);
                })?;
                forgotten = true;
                let (result, flags) = take_end(thread, row, |_, head, _, flags| (head.result, flags))?;
                thread.begun_mut().pieces = 0;
                Plan::replay(thread, flags, result);
                Some(result)
            }
        }
    })
}

/// What settling compares a number with that is being closed: its generation, and above that whether it was open.
fn meaning_of(fd: i32) -> u64 {
    fdtable::get(fd).map_or(0, |shadow| {
        u64::from(shadow.generation.load(Relaxed)) | u64::from(shadow.kind() != Kind::None) << 32
    })
}

/// Takes the numbers that a call closes out of the shadow.
fn forget(fd_use: FdUse, args: &[u64; 6]) {
    match fd_use {
        FdUse::Closes(arg) => closed(args[arg as usize] as i32),
        FdUse::ClosesRange { first, last } => {
            const CLOSE_RANGE_CLOEXEC: u64 = 4;
            if args[2] & CLOSE_RANGE_CLOEXEC == 0 {
                let last = (args[last as usize] & 0xffff_ffff).min(fdtable::SHADOWED as u64 - 1);
                for fd in args[first as usize] & 0xffff_ffff..=last {
                    if fdtable::get(fd as i32).is_some_and(|shadow| shadow.kind() != Kind::None) {
                        closed(fd as i32);
                    }
                }
            }
        }
        _ => {}
    }
}

/// The access mode with which a call opens a file, if it is one that says it.
fn how_opened(nr: u64, args: &[u64; 6]) -> Option<u64> {
    use crate::raw::nr::CREAT;
    match nr {
        OPEN => Some(args[1] & O_ACCMODE),
        OPENAT => Some(args[2] & O_ACCMODE),
        CREAT => Some(O_WRONLY),
        _ => None,
    }
}

/// What the primary finds out about a new descriptor.
fn identify(fd_use: FdUse, call: &Call, result: i64) -> u64 {
    use crate::kernel::O_APPEND;
    let fd = match fd_use {
        FdUse::Creates | FdUse::CreatesFrom(_) | FdUse::CreatesAt(_) => result as i32,
        // Both ends of a pipe are one object.
        FdUse::CreatesPair { arg } if !is_socketpair(arg) => {
            return fdtable::identify(pair(&call.args, arg)[0]).0;
        }
        _ => return 0,
    };
    match call.nr {
        EVENTFD | EVENTFD2 => pack(fdtable::identify(fd).0, Kind::Event),
        ACCEPT | ACCEPT4 => {
            let listener = fdtable::get(call.args[0] as i32).map_or(Kind::Other, fdtable::Shadow::kind);
            let kind = if listener == Kind::Tcp { Kind::TcpAccepted } else { Kind::Socket };
            pack(fdtable::cookie(fd), kind)
        }
        SOCKET => {
            let tcp = matches!(call.args[0], 2 | 10) && call.args[1] & 0xf == 1;
            pack(fdtable::cookie(fd), if tcp { Kind::Tcp } else { Kind::Socket })
        }
        // What it was asked for says as much as the kernel would: a server that opens a file for each request pays for
        // every question.
        OPEN | OPENAT => {
            let flags = if call.nr == OPEN { call.args[1] } else { call.args[2] };
            let (identity, kind) = fdtable::identify_as(fd, |_| flags & O_APPEND != 0);
            pack(identity, kind)
        }
        _ => {
            let (identity, kind) = fdtable::identify(fd);
            pack(identity, kind)
        }
    }
}

fn apply(thread: &mut Thread, row: &Row, args: &[u64; 6], result: i64, identity: u64) {
    use crate::kernel::O_DIRECT;
    let nr = u64::from(row.nr);
    match row.fd {
        // The descriptor is what it was, and where it was: in sets as well.
        use_of if use_of.changes(args) => {}
        FdUse::Creates | FdUse::CreatesFrom(_) | FdUse::CreatesAt(_) | FdUse::CreatesUnless(_) => {
            opened(thread, result as i32, identity);
            own_files::opened(row, args);
            if nr == crate::raw::nr::PIDFD_OPEN {
                numbers::means(result as i32, Some(args[0] as u32));
            }
            let Some(shadow) = fdtable::get(result as i32) else { return };
            if how_opened(nr, args) == Some(O_RDONLY) {
                shadow.set_read_only();
            }
            let kind = shadow.kind();
            if kind == Kind::Event || kind.is_file() || kind.is_counted() {
                shadow.set_private(true);
            }
            if kind == Kind::Event {
                shadow.count(Direction::Out, Transfer { bytes: 8, word: args[0] & 0xffff_ffff, position: 0 });
            }
        }
        FdUse::CreatesPair { arg } => {
            let ends = pair(args, arg);
            let kind = if is_socketpair(arg) { Kind::Socket } else { Kind::Pipe };
            opened(thread, ends[0], pack(identity, kind));
            match (kind, fdtable::get(ends[0]), fdtable::get(ends[1])) {
                // What is in a pipe is what went in at one end and did not come out at the other.
                (Kind::Pipe, Some(read_end), Some(write_end)) => {
                    // A read from a pipe of packets throws away what does not fit: its contents cannot be counted.
                    read_end.set_private(nr != PIPE2 || args[1] & O_DIRECT == 0);
                    write_end.share(read_end);
                    write_end.set_write_end();
                }
                _ => opened(thread, ends[1], pack(0, kind)),
            }
        }
        FdUse::Dups { from, .. } => duplicated(args[from as usize] as i32, result as i32),
        _ => {}
    }
}

/// The two descriptors that a call has made.
fn pair(args: &[u64; 6], arg: u8) -> [i32; 2] {
    GuestMut::at(args[arg as usize]).written().unwrap_or([-1; 2])
}

/// socketpair has its array behind three numbers, pipe has it first.
fn is_socketpair(arg: u8) -> bool {
    arg == 3
}

/// `new` is the same open file as `old`.
fn duplicated(old: i32, new: i32) {
    if old == new {
        return;
    }
    let (Some(from), Some(to)) = (fdtable::get(old), fdtable::get(new)) else { return };
    epoll::forget(new);
    numbers::means(new, numbers::meant_by(old));
    to.share(from);
}

fn fcntl(thread: &mut Thread, row: &'static Row, call: &Call) -> i64 {
    match us_calls::fcntl_shape(call.args[1] & 0xffff_ffff) {
        None => refused(thread, call, "fcntl"),
        Some(shape) if shape.creates => {
            let from = call.args[0] as i32;
            recorded_with(thread, row, call, |_, _, _| 0, move |_, result, _| duplicated(from, result as i32))
        }
        Some(_) if owner::concerns(call.args[1]) => owner::fcntl(thread, row, call),
        Some(_) => recorded(thread, row, call),
    }
}

/// ioctl, by request.
pub fn ioctl(thread: &mut Thread, row: &'static Row, call: &Call) -> i64 {
    match us_calls::ioctl_out(call.args[1] & 0xffff_ffff) {
        us_calls::IoctlOut::Unknown => refused(thread, call, "ioctl"),
        us_calls::IoctlOut::Ethtool if !spans::is_known_to_ethtool(call.args[2]) => {
            refused(thread, call, "ioctl")
        }
        us_calls::IoctlOut::Creates => recorded_with(
            thread,
            row,
            call,
            |_, _, _| 0,
            |thread, result, _| opened(thread, result as i32, 0),
        ),
        _ => recorded(thread, row, call),
    }
}
