//! Calls that are made a second time after a promotion.
//!
//! A call in doubt may have been done. For names and addresses the kernel shows it by an error: the name
//! is gone already, the socket has its peer. Whether the first attempt would have met that error too is
//! known from what was there just before it, which the primary looks up and puts into the `Enter`.

use core::mem::{MaybeUninit, offset_of};

use linux_raw_sys::general::{STATX_BTIME, STATX_INO, linux_dirent64, statx};
use linux_raw_sys::net::{__kernel_sockaddr_storage, sockaddr_in, sockaddr_un};
use us_world::repeat::{Repeat, Seen, is_taken_away, repeated};
use us_world::{Direction, Transfer};

use crate::call::Call;
use crate::door::transfer::takes;
use crate::door::{taken, taken_away};
use crate::fdtable::AT_FDCWD;
use crate::guest::{GuestMut, GuestPtr, part};
use crate::kernel::{RENAME_EXCHANGE, SEEK_CUR, SEEK_SET, XATTR_CREATE};
use crate::raw::nr::{
    BIND, CONNECT, COPY_FILE_RANGE, GETDENTS, GETPEERNAME, GETSOCKNAME, MSGGET, RECVMMSG, RENAMEAT2, SEMGET,
    SENDFILE, SENDMMSG, SHMGET, SHUTDOWN, SPLICE, TEE, VMSPLICE,
};
use crate::sys::spans;
use crate::{fdtable, raw};

const LSEEK: u64 = raw::nr::LSEEK;
const GETSOCKOPT: u64 = raw::nr::GETSOCKOPT;
const IPC_EXCL: u64 = 0o2000;
const FALLOCATE: u64 = raw::nr::FALLOCATE;
/// FALLOC_FL_COLLAPSE_RANGE and FALLOC_FL_INSERT_RANGE.
const RANGES_MOVE: u64 = 0x28;

/// Which kind a call is, and where the name lies that it makes or takes away: folder and path.
#[inline]
fn kind(nr: u64, args: &[u64; 6]) -> Option<(Repeat, u64, u64)> {
    let found = match nr {
        84 | 87 => (Repeat::Removal, AT_FDCWD, args[0]),
        263 => (Repeat::Removal, args[0], args[1]),
        83 | 133 => (Repeat::Making, AT_FDCWD, args[0]),
        86 | 88 => (Repeat::Making, AT_FDCWD, args[1]),
        258 | 259 => (Repeat::Making, args[0], args[1]),
        265 => (Repeat::Making, args[2], args[3]),
        266 => (Repeat::Making, args[1], args[2]),
        82 => (Repeat::Renaming, AT_FDCWD, args[0]),
        264 | 316 => (Repeat::Renaming, args[0], args[1]),
        CONNECT => (Repeat::Connecting, args[0], 0),
        BIND => (Repeat::Binding, args[0], 0),
        SHUTDOWN => (Repeat::Shutting, args[0], 0),
        188..=190 if args[4] & XATTR_CREATE != 0 => (Repeat::Creating, args[0], args[1]),
        197..=199 => (Repeat::Erasing, args[0], args[1]),
        _ => return None,
    };
    Some(found)
}

/// What a primary notes before such a call; 0 for every other.
#[inline]
pub fn look(nr: u64, args: &[u64; 6]) -> u64 {
    match kind(nr, args) {
        None => look_at_others(nr, args),
        Some((Repeat::Creating | Repeat::Erasing, what, name)) => {
            // getxattr, lgetxattr and fgetxattr have the numbers behind their writers'.
            let reader = if nr < 191 { nr + 3 } else { nr - 6 };
            // SAFETY: asks for a size.
            u64::from(!raw::failed(unsafe { raw::call4(reader, what, name, 0, 0) }))
        }
        Some((Repeat::Connecting | Repeat::Shutting, fd, _)) => u64::from(has_peer(fd)),
        Some((Repeat::Binding, fd, _)) => u64::from(is_bound(fd)),
        Some((_, folder, path)) => object(folder, path),
    }
}

/// As [`look`], for what works on no name.
#[inline]
fn look_at_others(nr: u64, args: &[u64; 6]) -> u64 {
    match nr {
        FALLOCATE if args[1] & RANGES_MOVE != 0 => fdtable::size(args[0] as i32).unwrap_or(0),
        MSGGET | SEMGET | SHMGET if exclusive(nr, args).is_some() => {
            // SAFETY: asks whether there is an object with this key.
            u64::from(!raw::failed(unsafe { raw::call3(nr, args[0], 0, 0) }))
        }
        // One more than where it is: what this log says of a file that others move as well is old.
        LSEEK
            if is_relative(args)
                && fdtable::get(args[0] as i32).is_some_and(|shadow| !shadow.is_private()) =>
        {
            fdtable::position(args[0] as i32).map_or(0, |position| position + 1)
        }
        _ => u64::from(taken_away::is_there(nr, args)),
    }
}

/// Whether a seek goes from where the file is to somewhere else.
fn is_relative(args: &[u64; 6]) -> bool {
    args[2] & 0xffff_ffff == SEEK_CUR && args[1] != 0
}

/// The arguments to make a call in doubt again with: a position relative to one that the first attempt may have
/// moved is taken from what was noted before it, or from the log instead.
fn arguments(nr: u64, args: &[u64; 6], before: u64) -> [u64; 6] {
    let mut args = *args;
    let fd = args[0] as i32;
    let Some(position) = fdtable::get(fd).and_then(|shadow| shadow.position()) else { return args };
    match nr {
        LSEEK if is_relative(&args) => {
            args[1] = before.checked_sub(1).unwrap_or(position).wrapping_add(args[1]);
            args[2] = SEEK_SET;
        }
        // SAFETY: the folder's position is put back to where the log says it was.
        GETDENTS | raw::nr::GETDENTS64 => unsafe {
            raw::call3(LSEEK, args[0], position, SEEK_SET);
        },
        _ => {}
    }
    args
}

/// Makes a call in doubt a second time, in the light of what the dead primary had noted before it, and of whether it
/// had entered the kernel.
pub fn make(nr: u64, args: &[u64; 6], noted: (u64, bool), mut execute: impl FnMut(&[u64; 6]) -> i64) -> i64 {
    use crate::raw::err::EEXIST;
    let (before, entered) = noted;
    if entered && let Some(result) = done(nr, args, before) {
        return result;
    }
    let result = execute(&arguments(nr, args, before));
    if !raw::failed(result) || !entered {
        return result;
    }
    if let Some(flags) = exclusive(nr, args)
        && result == EEXIST
        && before == 0
    {
        // It is there because the first attempt has made it.
        let mut args = *args;
        args[flags] &= !IPC_EXCL;
        return execute(&args);
    }
    match kind(nr, args) {
        Some((kind, fd, _)) => {
            let now = match (kind, nr) {
                (Repeat::Renaming, 82) => object(AT_FDCWD, args[1]),
                (Repeat::Renaming, _) => object(args[2], args[3]),
                (Repeat::Binding, _) => u64::from(has_address(fd, args[1])),
                _ => 0,
            };
            repeated(kind, -result as i32, Seen { before, now }).unwrap_or(result)
        }
        None if is_echo(nr, args, before, -result) => 0,
        None => result,
    }
}

/// What was there before a call that is about to be made without a log, where an interruption may leave it under way.
#[inline(always)]
pub fn seen(call: &Call, noted: Option<(u64, bool)>) -> u64 {
    match noted {
        Some((before, _)) => before,
        None if call.nr == CONNECT => look(call.nr, &call.args),
        None => 0,
    }
}

/// What is known of a call that a signal has interrupted and that is made again: a connection goes on being made. One
/// that there was already answers as it would have without the signal.
pub fn interrupted(nr: u64, noted: Option<(u64, bool)>, seen: u64) -> Option<(u64, bool)> {
    match noted {
        Some((before, _)) => Some((before, true)),
        None => (nr == CONNECT).then_some((seen, true)),
    }
}

/// The result of a call that must not be made a second time, because the first has been done and would be undone, or
/// its outcome taken.
fn done(nr: u64, args: &[u64; 6], before: u64) -> Option<i64> {
    use crate::raw::err::EINPROGRESS;
    if is_exchange(nr, args) {
        return (before != 0 && object(args[0], args[1]) != before).then_some(0);
    }
    if let Some((kind @ (Repeat::Removal | Repeat::Renaming), folder, path)) = kind(nr, args) {
        return is_taken_away(kind, Seen { before, now: object(folder, path) }).then_some(0);
    }
    match nr {
        FALLOCATE if args[1] & RANGES_MOVE != 0 => {
            (fdtable::size(args[0] as i32).unwrap_or(0) != before).then_some(0)
        }
        CONNECT if before == 0 && is_under_way(args[0]) => Some(EINPROGRESS),
        _ => None,
    }
}

/// Whether a call gives two names each other's objects.
fn is_exchange(nr: u64, args: &[u64; 6]) -> bool {
    nr == RENAMEAT2 && args[4] & RENAME_EXCHANGE != 0
}

/// Whether a TCP socket that does not wait has begun to connect: it does so still, or it is connected, or the error
/// waits.
fn is_under_way(fd: u64) -> bool {
    const O_NONBLOCK: i64 = linux_raw_sys::general::O_NONBLOCK as i64;
    const POLLERR: i64 = linux_raw_sys::general::POLLERR as i64;
    let flags = fdtable::status_flags(fd as i32);
    flags >= 0
        && flags & O_NONBLOCK != 0
        && tcp_state(fd).is_some_and(|state| state != TCP_CLOSE || raw::poll(fd as i32, 0) & POLLERR != 0)
}

/// The errors of calls that take something away, or join something, and find that done. Which groups a socket has joined
/// is not looked at before: these calls are made where it is known.
fn is_echo(nr: u64, args: &[u64; 6], before: u64, error: i64) -> bool {
    const EEXIST: i64 = linux_raw_sys::errno::EEXIST as i64;
    const EADDRINUSE: i64 = linux_raw_sys::errno::EADDRINUSE as i64;
    const EADDRNOTAVAIL: i64 = linux_raw_sys::errno::EADDRNOTAVAIL as i64;
    match nr {
        // setsockopt: groups joined and left.
        54 => matches!(error, EADDRINUSE | EADDRNOTAVAIL | EEXIST),
        _ => taken_away::is_echo(nr, args, before != 0, error),
    }
}

/// Where the flags lie of a call that makes a new System V object or fails.
fn exclusive(nr: u64, args: &[u64; 6]) -> Option<usize> {
    let flags = match nr {
        MSGGET => 1,
        SEMGET | SHMGET => 2,
        _ => return None,
    };
    // Without a key nothing can be found again.
    (args[0] & 0xffff_ffff != 0 && args[flags] & IPC_EXCL != 0).then_some(flags)
}

/// Whether a call sets a position and counts nothing: a copy that acts asks the kernel for those.
pub fn is_position(nr: u64) -> bool {
    matches!(nr, LSEEK | GETDENTS | raw::nr::GETDENTS64)
}

/// Notes what a call has done to positions and counts, in every copy, at the call's turn or, where it acts, before its thread can
/// park: settling a later call compares the kernel's with these.
pub fn note(nr: u64, args: &[u64; 6], result: i64) {
    use crate::kernel::SHUT_RD;
    let count = |fd: u64, f: &dyn Fn(&fdtable::Shadow)| {
        if let Some(shadow) = fdtable::get(fd as i32) {
            f(shadow);
        }
    };
    let bytes = result as u64;
    match nr {
        SENDFILE => {
            count(args[0], &|shadow| shadow.count(Direction::Out, Transfer::of(bytes)));
            if args[2] == 0 {
                count(args[1], &|shadow| shadow.count(Direction::In, Transfer::of(bytes)));
            }
        }
        SPLICE | COPY_FILE_RANGE => {
            if args[1] == 0 {
                count(args[0], &|shadow| shadow.count(Direction::In, Transfer::of(bytes)));
            }
            if args[3] == 0 {
                count(args[2], &|shadow| shadow.count(Direction::Out, Transfer::of(bytes)));
            }
        }
        TEE => count(args[1], &|shadow| shadow.count(Direction::Out, Transfer::of(bytes))),
        VMSPLICE => count(args[0], &|shadow| match shadow.is_write_end() {
            true => shadow.count(Direction::Out, Transfer::of(bytes)),
            false => shadow.count(Direction::In, Transfer::of(bytes)),
        }),
        SENDMMSG => count(args[0], &|shadow| {
            shadow.count(Direction::Out, Transfer::of(spans::messages_bytes(args[1], bytes)))
        }),
        RECVMMSG if takes(args[3]) => count(args[0], &|shadow| {
            shadow.count(Direction::In, Transfer::of(spans::messages_bytes(args[1], bytes)))
        }),
        GETSOCKOPT if taken::asks_error(args) => {
            let error = GuestMut::<i32>::at(args[3]).written().unwrap_or(0);
            count(args[0], &|shadow| shadow.note_error(-i64::from(error)));
        }
        SHUTDOWN if args[1] & 0xffff_ffff != SHUT_RD => count(args[0], &fdtable::Shadow::set_shut),
        LSEEK | GETDENTS | raw::nr::GETDENTS64 => note_position(nr, args, result),
        _ => {}
    }
}

fn note_position(nr: u64, args: &[u64; 6], result: i64) {
    let Some(shadow) = fdtable::get(args[0] as i32) else { return };
    match nr {
        LSEEK => shadow.seek(result as u64),
        raw::nr::GETDENTS64 | GETDENTS if result > 0 => {
            // The last entry's. The entries of either call begin alike.
            let (mut at, mut offset) = (0, 0);
            while at < result {
                let entry = GuestMut::<linux_dirent64>::at(args[1].wrapping_add(at as u64));
                offset = part!(entry, linux_dirent64, d_off).written().unwrap_or(0);
                match part!(entry, linux_dirent64, d_reclen).written() {
                    Some(len) if len > 0 => at += i64::from(len),
                    _ => return,
                }
            }
            shadow.seek(offset as u64);
        }
        _ => {}
    }
}

/// The object behind a name, never following a link at its end; 0 for none. With the time of its making, where the file
/// system keeps one: the next object may get the number of one that is gone.
fn object(folder: u64, path: u64) -> u64 {
    use crate::kernel::AT_SYMLINK_NOFOLLOW;
    use crate::raw::nr::STATX;
    const INO_AND_BTIME: u64 = (STATX_INO | STATX_BTIME) as u64;
    let mut stat = MaybeUninit::<statx>::zeroed();
    let place = stat.as_mut_ptr() as u64;
    // SAFETY: the kernel reads a path, and writes one struct statx.
    let asked = unsafe { raw::call6(STATX, [folder, path, AT_SYMLINK_NOFOLLOW, INO_AND_BTIME, place, 0]) };
    if asked == 0 {
        // SAFETY: numbers, of which all were zero before.
        let stat = unsafe { stat.assume_init() };
        let ns = u64::from(stat.stx_btime.tv_nsec);
        let made = (stat.stx_btime.tv_sec as u64).wrapping_mul(1_000_000_000).wrapping_add(ns);
        let device = u64::from(stat.stx_dev_major) | u64::from(stat.stx_dev_minor) << 32;
        return (device.rotate_left(40) ^ stat.stx_ino ^ made.rotate_left(20)) | 1 << 63;
    }
    let stat = fdtable::Stat::at(folder, path, AT_SYMLINK_NOFOLLOW);
    stat.map_or(0, |stat| (stat.dev.rotate_left(40) ^ stat.ino) | 1 << 63)
}

/// Whether a socket is connected or about to be.
fn has_peer(fd: u64) -> bool {
    tcp_state(fd).map_or_else(|| name(GETPEERNAME, fd).is_some(), |state| state != TCP_CLOSE)
}

const TCP_CLOSE: u8 = 7;

/// The state of a TCP socket, `None` for anything else.
fn tcp_state(fd: u64) -> Option<u8> {
    use crate::kernel::TCP_INFO;
    const IPPROTO_TCP: u64 = linux_raw_sys::net::IPPROTO_TCP as u64;
    let (mut state, mut len) = (0u8, 1u32);
    let args = [fd, IPPROTO_TCP, TCP_INFO, &raw mut state as u64, &raw mut len as u64, 0];
    // SAFETY: the kernel writes at most one byte, and the length.
    (unsafe { raw::call6(raw::nr::GETSOCKOPT, args) } == 0).then_some(state)
}

fn name(nr: u64, fd: u64) -> Option<Name> {
    let mut name: Name = [0; _];
    let mut len = size_of::<Name>() as u32;
    // SAFETY: the kernel writes at most so many bytes, and the length.
    let known = unsafe { raw::call3(nr, fd, name.as_mut_ptr() as u64, &raw mut len as u64) } == 0;
    known.then_some(name)
}

/// An address of any family.
type Name = [u8; size_of::<__kernel_sockaddr_storage>()];

/// Where an address of the internet has its port, and a local one its path.
const PORT: usize = offset_of!(sockaddr_in, sin_port);
const PATH: usize = offset_of!(sockaddr_un, sun_path);

fn port(name: &Name) -> [u8; 2] {
    [name[PORT], name[PORT + 1]]
}

/// Whether a socket has an address of its own: a port, or a path.
fn is_bound(fd: u64) -> bool {
    name(GETSOCKNAME, fd).is_some_and(|name| port(&name) != [0, 0])
}

/// Whether a socket has the address at `wanted`; any port where none in particular was asked for.
fn has_address(fd: u64, wanted: u64) -> bool {
    const AF_UNIX: u16 = linux_raw_sys::net::AF_UNIX as u16;
    let Some(have) = name(GETSOCKNAME, fd) else { return false };
    if port(&have) == [0, 0] {
        return false;
    }
    let (local, inet) = (GuestPtr::<sockaddr_un>::at(wanted), GuestPtr::<sockaddr_in>::at(wanted));
    match (part!(local, sockaddr_un, sun_family).load(), part!(inet, sockaddr_in, sin_port).load()) {
        (Some(AF_UNIX), _) => {
            let mut path = [0u8; size_of::<sockaddr_un>() - PATH];
            let given = part!(local, sockaddr_un, sun_path).bytes();
            let len = given.string_len().min(path.len() - 1);
            given.fill(&mut path[..len]);
            have[PATH..PATH + len] == path[..len] && have[PATH + len] == 0
        }
        (Some(_), Some(wanted)) => wanted == 0 || wanted.to_ne_bytes() == port(&have),
        _ => false,
    }
}
