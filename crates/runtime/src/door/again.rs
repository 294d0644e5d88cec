//! Calls that are made a second time after a promotion.
//!
//! A call in doubt may have been done. For names and addresses the kernel shows it by an error: the name
//! is gone already, the socket has its peer. Whether the first attempt would have met that error too is
//! known from what was there just before it, which the primary looks up and puts into the `Enter`.

use us_order::settle::{Repeat, Seen, repeated};

use crate::fdtable;
use crate::raw;
use crate::sys::guest;

const LSEEK: u64 = raw::nr::LSEEK;
const GETDENTS: u64 = 78;
const CONNECT: u64 = 42;
const BIND: u64 = 49;
const GETPEERNAME: u64 = 52;
const GETSOCKNAME: u64 = 51;
const NEWFSTATAT: u64 = 262;
const AT_FDCWD: u64 = -100i64 as u64;
const SEEK_SET: u64 = 0;
const SEEK_CUR: u64 = 1;

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
        _ => return None,
    };
    Some(found)
}

/// What a primary notes before such a call; 0 for every other.
#[inline]
pub fn look(nr: u64, args: &[u64; 6]) -> u64 {
    match kind(nr, args) {
        None => 0,
        Some((Repeat::Connecting, fd, _)) => u64::from(has_peer(fd)),
        Some((Repeat::Binding, fd, _)) => u64::from(is_bound(fd)),
        Some((_, folder, path)) => object(folder, path),
    }
}

/// The arguments to make a call in doubt again with: a position relative to one that the first attempt may have
/// moved is taken from the log instead.
pub fn arguments(nr: u64, args: &[u64; 6]) -> [u64; 6] {
    let mut args = *args;
    let fd = args[0] as i32;
    let Some(position) = fdtable::get(fd).and_then(|shadow| shadow.position()) else { return args };
    match nr {
        LSEEK if args[2] & 0xffff_ffff == SEEK_CUR => {
            args[1] = position.wrapping_add(args[1]);
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

/// The result of a call that has been made again, in the light of what the dead primary had noted.
pub fn result(nr: u64, args: &[u64; 6], before: u64, result: i64) -> i64 {
    if !raw::failed(result) {
        return result;
    }
    let Some((kind, fd, _)) = kind(nr, args) else { return result };
    let now = match (kind, nr) {
        (Repeat::Renaming, 82) => object(AT_FDCWD, args[1]),
        (Repeat::Renaming, _) => object(args[2], args[3]),
        (Repeat::Binding, _) => u64::from(has_address(fd, args[1])),
        _ => 0,
    };
    repeated(kind, -result as i32, Seen { before, now }).unwrap_or(result)
}

/// Notes where a call has left a position, in every copy.
pub fn note_position(nr: u64, args: &[u64; 6], result: i64) {
    let Some(shadow) = fdtable::get(args[0] as i32) else { return };
    match nr {
        LSEEK => shadow.seek(result as u64),
        raw::nr::GETDENTS64 | GETDENTS if result > 0 => {
            // The last entry's `d_off`, 8 bytes into it; `d_reclen` follows.
            let (mut at, mut offset) = (0, 0);
            while at < result {
                offset = guest::load::<u64>(args[1] + at as u64 + 8).unwrap_or(0);
                match guest::load::<u16>(args[1] + at as u64 + 16) {
                    Some(len) if len > 0 => at += i64::from(len),
                    _ => return,
                }
            }
            shadow.seek(offset);
        }
        _ => {}
    }
}

/// The object behind a name, never following a link at its end; 0 for none.
fn object(folder: u64, path: u64) -> u64 {
    const AT_SYMLINK_NOFOLLOW: u64 = 0x100;
    let mut stat = [0u64; 18];
    // SAFETY: the kernel writes one struct stat of 144 bytes.
    let known =
        unsafe { raw::call4(NEWFSTATAT, folder, path, stat.as_mut_ptr() as u64, AT_SYMLINK_NOFOLLOW) } == 0;
    if known { (stat[0].rotate_left(40) ^ stat[1]) | 1 << 63 } else { 0 }
}

/// Whether a socket is connected or about to be.
fn has_peer(fd: u64) -> bool {
    const IPPROTO_TCP: u64 = 6;
    const TCP_INFO: u64 = 11;
    const TCP_CLOSE: u8 = 7;
    let (mut state, mut len) = (0u8, 1u32);
    let args = [fd, IPPROTO_TCP, TCP_INFO, &raw mut state as u64, &raw mut len as u64, 0];
    // SAFETY: the kernel writes at most one byte, and the length.
    if unsafe { raw::call6(raw::nr::GETSOCKOPT, args) } == 0 {
        return state != TCP_CLOSE;
    }
    name(GETPEERNAME, fd).is_some()
}

fn name(nr: u64, fd: u64) -> Option<[u8; 128]> {
    let mut name = [0u8; 128];
    let mut len = 128u32;
    // SAFETY: the kernel writes at most 128 bytes, and the length.
    let known = unsafe { raw::call3(nr, fd, name.as_mut_ptr() as u64, &raw mut len as u64) } == 0;
    known.then_some(name)
}

/// Whether a socket has an address of its own: a port, or a path.
fn is_bound(fd: u64) -> bool {
    name(GETSOCKNAME, fd).is_some_and(|name| name[2..4] != [0, 0])
}

/// Whether a socket has the address at `wanted`; any port where none in particular was asked for.
fn has_address(fd: u64, wanted: u64) -> bool {
    const AF_UNIX: u16 = 1;
    let Some(have) = name(GETSOCKNAME, fd) else { return false };
    if have[2..4] == [0, 0] {
        return false;
    }
    match (guest::load::<u16>(wanted), guest::load::<[u8; 2]>(wanted + 2)) {
        (Some(AF_UNIX), _) => {
            let len = guest::string_len(wanted + 2).min(107);
            let mut path = [0u8; 108];
            guest::read(path.as_mut_ptr(), wanted + 2, len);
            have[2..2 + len] == path[..len] && have[2 + len] == 0
        }
        (Some(_), Some(port)) => port == [0, 0] || port == have[2..4],
        _ => false,
    }
}
