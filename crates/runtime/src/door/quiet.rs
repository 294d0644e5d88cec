//! Files that nobody changes: a standby maps them itself, and no byte of them travels.
//!
//! A file is quiet if it lies on a disk, was last changed some seconds ago, and this process has it open for reading only. A
//! standby maps the same one, by the descriptor if that still stands for it, else by its path, and compares device, inode,
//! size and times before and behind. A clone leaves such mappings as they are. Once the program opens the file to write it, the
//! standby is made anew: pages that nobody has touched yet show what is in the file by then.

use core::ffi::CStr;
use core::sync::atomic::{AtomicU64, Ordering};

use us_abi::Cause;
use us_abi::event::{EventKind, NO_TICKET, ReturnHead};

use super::mapped;
use crate::call::Call;
use crate::fdtable::{self, AT_FDCWD, Stat};
use crate::raw::{self, failed, nr};
use crate::state::{Decimal, joined};
use crate::sys::own_table::with_own_table;
use crate::thread::Thread;

/// In the identity of a mapping's `Return`: behind the head are [`Facts`] and a path instead of bytes.
pub const QUIET: u64 = 1 << 62;
/// A mapping of fewer bytes is carried: that costs less than to ask.
const LEAST_BYTES: u64 = 64 << 10;
/// How long ago a file was changed, at least, ns.
const AGE_NS: u64 = 2_000_000_000;
/// Bytes of the longest path, with its NUL.
const PATH_MAX: usize = 1024;

/// What a file is, and how it was when it was mapped.
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Facts {
    device: u64,
    inode: u64,
    bytes: u64,
    modified_ns: u64,
    changed_ns: u64,
}

impl Facts {
    /// `None` of what is no regular file.
    fn new(stat: Stat) -> Option<Facts> {
        let [modified_ns, changed_ns] = stat.times_ns();
        let facts = Facts { device: stat.dev, inode: stat.ino, bytes: stat.size, modified_ns, changed_ns };
        stat.is_regular().then_some(facts)
    }

    fn at(path: u64) -> Option<Facts> {
        Stat::at(AT_FDCWD, path, 0).and_then(Facts::new)
    }

    fn of(fd: u64) -> Option<Facts> {
        Stat::of(fd as i32).and_then(Facts::new)
    }

    fn identity(&self) -> u64 {
        fdtable::kept(fdtable::identity_of(self.device, self.inode))
    }

    /// Whether nobody changes it, as far as can be seen. `file_system`: the call that tells of that, and of what.
    fn is_quiet(&self, file_system: (u64, u64)) -> bool {
        // Of what is in memory alone, a store into a mapping changes no time; some files are made as they are read.
        const MOVING: [u64; 7] =
            [0x0102_1994, 0x8584_58f6, 0x9fa0, 0x6265_6572, 0x9584_58f6, 0x6462_6720, 0x6367_7270];
        let mut about = [0u64; 15];
        let lately = raw::real_ns().saturating_sub(AGE_NS);
        // SAFETY: the kernel writes one struct statfs of 120 bytes.
        self.modified_ns.max(self.changed_ns) < lately
            && !fdtable::is_written(self.identity())
            && unsafe { raw::call2(file_system.0, file_system.1, about.as_mut_ptr() as u64) } == 0
            && !MOVING.contains(&about[0])
    }
}

/// Whether the file at `path`, the end of a line of `maps`, is that one and quiet. The coordinator asks.
pub fn is_quiet_at(path: &[u8], device: u64, inode: u64) -> bool {
    use crate::raw::nr::STATFS;
    let mut text = [0u8; PATH_MAX];
    let Some(place) = text.get_mut(..path.len()) else { return false };
    place.copy_from_slice(path);
    let Ok(path) = CStr::from_bytes_until_nul(&text) else { return false };
    let path = path.as_ptr() as u64;
    let facts = Facts::at(path).filter(|facts| (facts.device, facts.inode) == (device, inode));
    facts.is_some_and(|facts| facts.is_quiet((STATFS, path)))
}

/// As a primary: what the standby needs to map the file behind `call` itself, if it can.
pub fn facts(call: &Call) -> Option<Facts> {
    use crate::raw::nr::FSTATFS;
    let [_, bytes, _, _, fd, _] = call.args;
    let is_read_only = fdtable::get(fd as i32).is_some_and(fdtable::Shadow::is_read_only);
    if bytes <= LEAST_BYTES || !is_read_only {
        return None;
    }
    Facts::of(fd).filter(|facts| facts.is_quiet((FSTATFS, fd)))
}

/// Logs where such a file has been mapped.
pub fn log(thread: &mut Thread, call: &Call, result: i64, facts: &Facts) {
    use crate::raw::nr::READLINK;
    let [_, bytes, _, _, fd, _] = call.args;
    note(facts.identity());
    let most = size_of::<ReturnHead>() + size_of::<Facts>() + PATH_MAX;
    let Some(place) = thread.reserve(most) else { return };
    let link = joined(&[b"/proc/self/fd/", Decimal::new(fd).bytes()]);
    // SAFETY: head, facts and path lie one behind the other in what is reserved; the kernel writes no more than it is told.
    let path_bytes = unsafe {
        place.cast::<ReturnHead>().write(ReturnHead { result, identity: QUIET });
        let place = place.add(size_of::<ReturnHead>());
        place.cast::<Facts>().write_unaligned(*facts);
        let place = place.add(size_of::<Facts>());
        let got = raw::call3(READLINK, link.as_ptr() as u64, place as u64, PATH_MAX as u64 - 1);
        // One that is cut off would name another file.
        let got = if (1..PATH_MAX as i64 - 1).contains(&got) { got as usize } else { 0 };
        place.add(got).write(0);
        got + 1
    };
    let payload = size_of::<ReturnHead>() + size_of::<Facts>() + path_bytes;
    thread.publish(EventKind::Return, 0, nr::MMAP as u16, NO_TICKET, payload);
    mapped::add_in_reach(thread, fd as i32, result as u64, bytes);
}

/// As a standby: maps the file that the log tells of, as `args` say. Gives this copy up if it is not there any more.
pub fn map(args: &[u64; 6], told: &[u8]) -> i64 {
    let (Some(facts), Some(path)) = (told.get(..size_of::<Facts>()), told.get(size_of::<Facts>()..)) else {
        return raw::err::EINVAL;
    };
    // SAFETY: so many bytes are there, and every pattern is a value.
    let facts = unsafe { facts.as_ptr().cast::<Facts>().read_unaligned() };
    note(facts.identity());
    if let Some(made) = by_descriptor(args, args[4], &facts) {
        return made;
    }
    match CStr::from_bytes_until_nul(path) {
        Ok(path) if !path.is_empty() => {
            let made = with_own_table(|| by_path(args, path, &facts));
            if !failed(made) {
                return made;
            }
        }
        _ => {}
    }
    crate::verdict::end_standby(
        Cause::CannotReplay,
        &[b"a file that is mapped is gone, or has changed, before the standby had it"],
    )
}

/// By a descriptor: it may become another file's while it is looked at.
fn by_descriptor(args: &[u64; 6], fd: u64, facts: &Facts) -> Option<i64> {
    let is_it = || Facts::of(fd).as_ref() == Some(facts);
    if !is_it() {
        return None;
    }
    let [address, bytes, protection, flags, _, offset] = *args;
    // SAFETY: the mapping that the guest has asked for, in this copy.
    let made = unsafe { raw::call6(nr::MMAP, [address, bytes, protection, flags, fd, offset]) };
    if !failed(made) && !is_it() {
        // SAFETY: it has just been made.
        unsafe { raw::call2(nr::MUNMAP, made as u64, bytes) };
        return None;
    }
    Some(made)
}

fn by_path(args: &[u64; 6], path: &CStr, facts: &Facts) -> i64 {
    const NONBLOCK_CLOEXEC: u64 = 0o2004000;
    // A FIFO that lies there now would see a reader come.
    if Facts::at(path.as_ptr() as u64).as_ref() != Some(facts) {
        return raw::err::EINVAL;
    }
    // SAFETY: the kernel reads a path; the table is this thread's own, and goes with it.
    let fd = unsafe { raw::call3(nr::OPEN, path.as_ptr() as u64, NONBLOCK_CLOEXEC, 0) };
    if failed(fd) { fd } else { by_descriptor(args, fd as u64, facts).unwrap_or(raw::err::EINVAL) }
}

/// Files of which it is known which they are.
const FILES: usize = 512;
/// The files that a standby has mapped, or kept mapped, itself: their identities, in the order in which they came, and then 0.
static MAPPED: [AtomicU64; FILES] = [const { AtomicU64::new(0) }; FILES];
/// Bits of [`MORE`].
const BITS: u64 = 4096;
/// Those for which there was no room: a bit for each. One bit may be of several.
static MORE: [AtomicU64; BITS as usize / 64] = [const { AtomicU64::new(0) }; BITS as usize / 64];

fn bit(identity: u64) -> (&'static AtomicU64, u64) {
    let at = identity >> 8 & (BITS - 1);
    (&MORE[at as usize / 64], 1 << (at % 64))
}

/// The file is such a one.
pub fn note(identity: u64) {
    for place in &MAPPED {
        match place.compare_exchange(0, identity, Ordering::Relaxed, Ordering::Relaxed) {
            Ok(_) => return,
            Err(other) if other == identity => return,
            Err(_) => {}
        }
    }
    let (word, bit) = bit(identity);
    word.fetch_or(bit, Ordering::Relaxed);
}

/// Whether it is, or may be.
fn is_noted(identity: u64) -> bool {
    let (word, bit) = bit(identity);
    let mut known = MAPPED.iter().map(|place| place.load(Ordering::Relaxed)).take_while(|other| *other != 0);
    known.any(|other| other == identity) || word.load(Ordering::Relaxed) & bit != 0
}

/// Before the mappings are listed for the first standby.
pub fn forget() {
    MAPPED.iter().chain(&MORE).for_each(|word| word.store(0, Ordering::Relaxed));
}

/// As a primary: the program has opened `fd` to write it.
pub fn opened_to_write(fd: i32) {
    if fdtable::get(fd).is_some_and(|shadow| is_noted(shadow.identity.load(Ordering::Relaxed))) {
        crate::verdict::drop_standby(
            Cause::CannotReplay,
            &[b"a file that is mapped is opened to be written"],
        );
    }
}
