//! Memory that a fork does not separate, or does not freeze.
//!
//! A shared mapping is shared with the copy as well; a private mapping of a file shows what is in the file when
//! it is first touched, which for a standby is the primary's future (7 where 6 was right). The coordinator lists
//! such mappings while everything stands still, and the copy puts its own bytes in their place before anybody goes
//! on. Of a writable shared mapping the copy keeps the mapping itself too, at another address: when it is promoted, it
//! goes back to where the guest has it. What the copy has written then belongs there, unless other processes share the
//! mapping: they have seen what the dead primary wrote, and have written themselves, so what is there stays.

use core::cell::UnsafeCell;
use core::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

use us_abi::{
    RING_BYTES, RINGS_ADDRESS, ROSTER_ADDRESS, ROSTER_BYTES, SEGMENT_ADDRESS, SEGMENT_BYTES, THREADS_MAX,
};

use super::{proc, twins};
use crate::door::numbers;
use crate::raw::{self, failed, nr};
use crate::sys::guest;

/// Mappings that can be copied.
const LISTED_MAX: usize = 1024;
/// Bytes that are copied at most: the program stands still meanwhile.
const BYTES_MAX: u64 = 1 << 30;

#[derive(Clone, Copy)]
struct Mapping {
    start: u64,
    end: u64,
    protection: u64,
    /// Writable and shared: what is written there belongs to others as well.
    written_through: bool,
    /// Device and inode of the file of a private mapping, zeros for a shared one.
    private_of: (u64, u64),
}

struct List(UnsafeCell<[Mapping; LISTED_MAX]>);
// SAFETY: filled by the coordinator and read by the copy's leader, while nobody else runs.
unsafe impl Sync for List {}
static LIST: List = List(UnsafeCell::new(
    [Mapping { start: 0, end: 0, protection: 0, written_through: false, private_of: (0, 0) }; LISTED_MAX],
));
static LISTED: AtomicUsize = AtomicUsize::new(0);

/// Files with an executable mapping: the program and its libraries, whose private data pages nobody changes.
struct Programs {
    files: [(u64, u64); PROGRAMS_MAX],
    count: usize,
}
const PROGRAMS_MAX: usize = 256;

impl Programs {
    fn add(&mut self, file: (u64, u64)) {
        if self.count < PROGRAMS_MAX && !self.has(file) {
            self.files[self.count] = file;
            self.count += 1;
        }
    }
    fn has(&self, file: (u64, u64)) -> bool {
        self.files[..self.count].contains(&file)
    }
}

/// Lists what has to be copied. By the coordinator, while every thread stands still.
pub fn list() -> Result<(), &'static [u8]> {
    let mut programs = Programs { files: [(0, 0); PROGRAMS_MAX], count: 0 };
    // SAFETY: the coordinator's own while everybody stands still.
    let list = unsafe { &mut *LIST.0.get() };
    let (mut listed, mut all) = (0, true);
    let read = proc::each_mapping(|line| {
        let Some(map) = Line::parse(line) else { return };
        if map.protection & EXEC != 0 && map.inode != 0 {
            programs.add((map.device, map.inode));
        }
        if is_ours(map.start) || map.protection & READ == 0 || !(map.shared || map.inode != 0) {
            return;
        }
        let Some(place) = list.get_mut(listed) else {
            all = false;
            return;
        };
        *place = Mapping {
            start: map.start,
            end: map.end,
            protection: map.protection,
            written_through: map.shared && map.protection & WRITE != 0,
            private_of: if map.shared { (0, 0) } else { (map.device, map.inode) },
        };
        listed += 1;
    });
    // A library's first mapping comes before its executable one: only now is it known what is one.
    let (mut kept, mut bytes) = (0, 0);
    for at in 0..listed {
        if !programs.has(list[at].private_of) {
            list[kept] = list[at];
            bytes += list[at].end - list[at].start;
            kept += 1;
        }
    }
    LISTED.store(kept, Ordering::Release);
    let shared = list[..kept].iter().filter(|mapping| mapping.written_through);
    twins::choose(shared.map(|mapping| (mapping.start, mapping.end)));
    if !read {
        return Err(b"the list of mappings cannot be read");
    }
    if !all || bytes > BYTES_MAX {
        return Err(b"more is mapped of files or shared than can be copied");
    }
    Ok(())
}

/// Whether there is nothing to copy.
pub fn is_empty() -> bool {
    LISTED.load(Ordering::Acquire) == 0
}

fn is_ours(address: u64) -> bool {
    let within = |start: usize, bytes: usize| address.wrapping_sub(start as u64) < bytes as u64;
    within(SEGMENT_ADDRESS, SEGMENT_BYTES)
        || within(RINGS_ADDRESS, 2 * THREADS_MAX * RING_BYTES)
        || within(ROSTER_ADDRESS, ROSTER_BYTES.next_multiple_of(PAGE as usize))
        || is_kept(address)
}

/// In the copy, by its only thread: puts own bytes in place of everything that is listed.
pub fn make_own() -> bool {
    (0..LISTED.load(Ordering::Acquire)).all(|at| {
        // SAFETY: filled before the fork.
        let mapping = unsafe { *LIST.0.get().cast::<Mapping>().add(at) };
        // SAFETY: nobody else runs in this copy.
        unsafe { make_one_own(mapping) }
    })
}

/// # Safety
/// Nobody uses the mapping meanwhile.
unsafe fn make_one_own(mapping: Mapping) -> bool {
    const MAYMOVE: u64 = 1;
    const FIXED: u64 = 2;
    let len = mapping.end - mapping.start;
    // SAFETY: new memory takes the place of a mapping of the same length.
    unsafe {
        let own = raw::call6(nr::MMAP, [0, len, READ | WRITE, 0x22, u64::MAX, 0]);
        if failed(own) {
            return false;
        }
        let own = own as u64;
        for page in (0..len).step_by(PAGE as usize) {
            // Behind the end of a file there is nothing to read, natively as here.
            guest::read((own + page) as *mut u8, twins::source(mapping.start + page), PAGE as usize);
        }
        if mapping.protection != READ | WRITE {
            raw::call3(nr::MPROTECT, own, len, mapping.protection);
        }
        if mapping.written_through && !keep(mapping) {
            return false;
        }
        let to = [own, len, len, MAYMOVE | FIXED, mapping.start, 0];
        !failed(raw::call6(nr::MREMAP, to))
    }
}

const PAGE: u64 = 4096;
const READ: u64 = 1;
const WRITE: u64 = 2;
const EXEC: u64 = 4;

/// A mapping of a file that is out of the guest's sight until this copy is promoted.
struct Kept {
    /// Where the guest has it.
    start: AtomicU64,
    bytes: AtomicU64,
    /// Where it is kept, 0 for none.
    at: AtomicU64,
}
const KEPT_MAX: usize = 256;
static KEPT: [Kept; KEPT_MAX] =
    [const { Kept { start: AtomicU64::new(0), bytes: AtomicU64::new(0), at: AtomicU64::new(0) } }; KEPT_MAX];

/// Whether there is one.
static ANY_KEPT: AtomicBool = AtomicBool::new(false);

fn is_kept(address: u64) -> bool {
    KEPT.iter().any(|kept| {
        let at = kept.at.load(Ordering::Relaxed);
        at != 0 && address.wrapping_sub(at) < kept.bytes.load(Ordering::Relaxed)
    })
}

/// # Safety
/// A mapping of the guest's, about to be replaced.
unsafe fn keep(mapping: Mapping) -> bool {
    let Some(kept) = KEPT.iter().find(|kept| kept.at.load(Ordering::Relaxed) == 0) else { return false };
    let len = mapping.end - mapping.start;
    // SAFETY: an old length of zero makes a second mapping of shared pages.
    let at = unsafe { raw::call6(nr::MREMAP, [mapping.start, 0, len, 1, 0, 0]) };
    if failed(at) {
        return false;
    }
    kept.start.store(mapping.start, Ordering::Relaxed);
    kept.bytes.store(len, Ordering::Relaxed);
    kept.at.store(at as u64, Ordering::Relaxed);
    ANY_KEPT.store(true, Ordering::Relaxed);
    true
}

/// The guest's mapping of a range is going, in a standby: what is kept for it goes as well.
pub fn unmapped(start: u64, bytes: u64) {
    for kept in KEPT.iter().filter(|kept| kept.at.load(Ordering::Relaxed) != 0) {
        let (from, len) = (kept.start.load(Ordering::Relaxed), kept.bytes.load(Ordering::Relaxed));
        if start <= from && from + len <= start + bytes {
            // SAFETY: a mapping of ours that nobody else knows.
            unsafe { raw::call2(nr::MUNMAP, kept.at.load(Ordering::Relaxed), len) };
            kept.at.store(0, Ordering::Relaxed);
        }
    }
}

/// Whether an object lies in memory that this standby has copied and that other processes may share: its state here
/// says nothing.
pub fn is_elsewhere(object: usize) -> bool {
    ANY_KEPT.load(Ordering::Relaxed)
        && numbers::may_have_relatives()
        && KEPT.iter().any(|kept| {
            (object as u64).wrapping_sub(kept.start.load(Ordering::Relaxed))
                < kept.bytes.load(Ordering::Relaxed)
        })
}

/// Whether relatives share memory with this standby's primary, which it has as it once was.
pub fn is_any_elsewhere() -> bool {
    ANY_KEPT.load(Ordering::Relaxed) && numbers::may_have_relatives()
}

/// Locks are taken for real from here on.
pub fn nothing_is_elsewhere() {
    ANY_KEPT.store(false, Ordering::Relaxed);
    for kept in &KEPT {
        kept.bytes.store(0, Ordering::Relaxed);
    }
}

/// At a promotion, while no thread acts: the mappings go back to where the guest has them, with what it has written in
/// this copy if it has them for itself.
pub fn make_real() {
    put_back(|_| true);
}

/// The same of what is not kept alike: a thread may wait for what it can see nowhere else. What is kept alike comes last,
/// since whatever the log still has to tell of is done once more there.
pub fn make_unknown_real() {
    put_back(|start| !twins::contains(start as usize));
}

fn put_back(which: impl Fn(u64) -> bool) {
    let mut is_in_call = false;
    crate::thread::for_each(|thread| is_in_call |= !thread.ring.0.is_null() && thread.in_doubt != u64::MAX);
    const MAYMOVE_FIXED: u64 = 3;
    for kept in KEPT.iter().filter(|kept| which(kept.start.load(Ordering::Relaxed))) {
        let at = kept.at.swap(0, Ordering::Relaxed);
        if at == 0 {
            continue;
        }
        let (start, len) = (kept.start.load(Ordering::Relaxed), kept.bytes.load(Ordering::Relaxed));
        let is_alike = twins::redo(start, at, is_in_call);
        let written = if is_alike || numbers::may_have_relatives() { 0 } else { len };
        for page in (0..written).step_by(PAGE as usize) {
            // Only what differs: a page that is written becomes dirty, and a hole a block. Behind the file's end the copy
            // fails, as the guest's own store would have.
            if !is_same_page(at + page, start + page) {
                guest::write(at + page, (start + page) as *const u8, PAGE as usize);
            }
        }
        // SAFETY: the kept mapping takes the place of our anonymous one.
        unsafe { raw::call6(nr::MREMAP, [at, len, len, MAYMOVE_FIXED, start, 0]) };
    }
}

fn is_same_page(a: u64, b: u64) -> bool {
    let (mut one, mut other) = ([0u8; PAGE as usize], [0u8; PAGE as usize]);
    guest::read(one.as_mut_ptr(), a, one.len()) == guest::read(other.as_mut_ptr(), b, other.len())
        && one == other
}

/// One line of `/proc/self/maps`.
struct Line {
    start: u64,
    end: u64,
    protection: u64,
    shared: bool,
    device: u64,
    inode: u64,
}

impl Line {
    fn parse(line: &[u8]) -> Option<Line> {
        let mut fields = line.split(|byte| *byte == b' ').filter(|field| !field.is_empty());
        let range = fields.next()?;
        let dash = range.iter().position(|byte| *byte == b'-')?;
        let flags = fields.next()?;
        let _offset = fields.next()?;
        let device = fields.next()?;
        let inode = fields.next()?;
        let on = |at: usize, sign: u8, bit: u64| if flags.get(at) == Some(&sign) { bit } else { 0 };
        Some(Line {
            start: hex(&range[..dash])?,
            end: hex(&range[dash + 1..])?,
            protection: on(0, b'r', READ) | on(1, b'w', WRITE) | on(2, b'x', EXEC),
            shared: flags.get(3) == Some(&b's'),
            device: device.iter().fold(0, |value, byte| value << 8 ^ u64::from(*byte)),
            inode: inode.iter().fold(0, |value, digit| value * 10 + u64::from(digit.wrapping_sub(b'0'))),
        })
    }
}

fn hex(digits: &[u8]) -> Option<u64> {
    digits.iter().try_fold(0u64, |value, digit| Some(value << 4 | u64::from((*digit as char).to_digit(16)?)))
}
