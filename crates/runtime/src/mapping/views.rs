//! Shared mappings of files, and a standby's stand-ins for them.
//!
//! A standby has bytes of its own where its primary shows a file (`memory.rs`, `door/memory.rs`): the file is of the
//! primary's time. Of each the standby keeps the mapping itself too, at another address. When it is promoted, that goes
//! back to where the guest has it: else the guest would see for ever what the file once held, and a database that reads
//! through a mapping what it writes by calls would build on pages that are gone.
//!
//! What the copy has stored in a writable one belongs in the file then, unless other processes share the mapping: they have
//! seen what the dead primary wrote, and have written themselves, so what is there stays. Code of its own making, which the
//! program has mapped a second time to run it, is nobody else's.
//!
//! Until then a stand-in follows the outputs of the program itself: the log says that they were made, and the standby
//! has the bytes.

use core::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use crate::fdtable::{self, Kind};
use crate::kernel::MAP_FIXED;
use crate::mapping::pieces;
use crate::mapping::touched::Touched;
use crate::members::{self, of_family};
use crate::raw::{self, failed, nr};
use crate::sys::spans::{self, Source};
use crate::{guest, twins};

const PAGE: u64 = 4096;
const READ: u64 = 1;
const WRITE: u64 = 2;
const EXEC: u64 = 4;

/// A shared mapping of a file, as a standby has it.
pub struct View {
    /// Where the guest has it: a stand-in.
    pub start: u64,
    /// Its length.
    pub bytes: u64,
    /// Where the mapping itself is kept, 0 for nowhere.
    pub at: u64,
    /// Where in the file it begins.
    pub offset: u64,
    /// The file, as [`fdtable::kept`] has it of a descriptor.
    pub file: u64,
    /// What the guest may do there.
    pub protection: u64,
}

struct Kept {
    is_used: AtomicBool,
    start: AtomicU64,
    /// 0 while the entry is being filled, and once the guest has the mapping itself.
    bytes: AtomicU64,
    at: AtomicU64,
    offset: AtomicU64,
    file: AtomicU64,
    protection: AtomicU64,
}

const KEPT_MAX: usize = 256;
static KEPT: [Kept; KEPT_MAX] = [const {
    Kept {
        is_used: AtomicBool::new(false),
        start: AtomicU64::new(0),
        bytes: AtomicU64::new(0),
        at: AtomicU64::new(0),
        offset: AtomicU64::new(0),
        file: AtomicU64::new(0),
        protection: AtomicU64::new(0),
    }
}; KEPT_MAX];

/// Whether there is one.
static ANY: AtomicBool = AtomicBool::new(false);
/// Whether there is one whose memory the guest may write to, and so have locks in.
static ANY_WRITABLE: AtomicBool = AtomicBool::new(false);

impl Kept {
    fn get(&self) -> View {
        let word = |word: &AtomicU64| word.load(Ordering::Relaxed);
        View {
            bytes: self.bytes.load(Ordering::Acquire),
            start: word(&self.start),
            at: word(&self.at),
            offset: word(&self.offset),
            file: word(&self.file),
            protection: word(&self.protection),
        }
    }

    fn set(&self, view: &View) {
        self.start.store(view.start, Ordering::Relaxed);
        self.at.store(view.at, Ordering::Relaxed);
        self.offset.store(view.offset, Ordering::Relaxed);
        self.file.store(view.file, Ordering::Relaxed);
        self.protection.store(view.protection, Ordering::Relaxed);
        self.bytes.store(view.bytes, Ordering::Release);
    }

    fn clear(&self) {
        self.bytes.store(0, Ordering::Relaxed);
        self.at.store(0, Ordering::Relaxed);
        self.is_used.store(false, Ordering::Release);
    }
}

/// One more. False if there is no room.
pub fn add(view: &View) -> bool {
    let claim = |kept: &&Kept| !kept.is_used.swap(true, Ordering::AcqRel);
    let Some(kept) = KEPT.iter().find(claim) else { return false };
    kept.set(view);
    ANY.store(true, Ordering::Release);
    if view.protection & WRITE != 0 {
        ANY_WRITABLE.store(true, Ordering::Relaxed);
    }
    true
}

/// The same, of a mapping that a standby repeats. The descriptor may be another file's by now, or closed: then there is no
/// mapping to keep, only outputs to follow.
pub fn add_repeated(start: u64, args: &[u64; 6]) {
    let [_, bytes, protection, _, fd, offset] = *args;
    let Some(shadow) = fdtable::get(fd as i32) else { return };
    let file = fdtable::kept(shadow.identity.load(Ordering::Relaxed));
    let is_it = || {
        !crate::state::is_detached() && fdtable::kept(fdtable::identify_as(fd as i32, |_| false).0) == file
    };
    let mut at = 0;
    if is_it() {
        use crate::kernel::{MAP_FIXED_NOREPLACE, MAP_SHARED};
        let wanted = pieces::place_for(start, bytes.next_multiple_of(PAGE)).unwrap_or(0);
        let how = MAP_SHARED | if wanted == 0 { 0 } else { MAP_FIXED_NOREPLACE };
        // SAFETY: new memory.
        let mapped = unsafe { raw::call6(nr::MMAP, [wanted, bytes, protection, how, fd, offset]) };
        if !failed(mapped) && is_it() {
            at = mapped as u64;
        } else if !failed(mapped) {
            // SAFETY: of ours alone.
            unsafe { raw::call2(nr::MUNMAP, mapped as u64, bytes) };
        }
    }
    let view = View { start, bytes: bytes.next_multiple_of(PAGE), at, offset, file, protection };
    if !add(&view) && at != 0 {
        // SAFETY: of ours alone.
        unsafe { raw::call2(nr::MUNMAP, at, bytes) };
    }
}

/// Whether it is an address of a mapping that is kept.
pub fn is_kept(address: u64) -> bool {
    KEPT.iter().map(Kept::get).any(|view| view.at != 0 && address.wrapping_sub(view.at) < view.bytes)
}

/// Where the mapping is kept that the guest has at `start`.
pub fn kept_at(start: u64, bytes: u64) -> Option<u64> {
    let view = KEPT.iter().map(Kept::get).find(|view| view.bytes == bytes && view.start == start)?;
    (view.at != 0).then_some(view.at)
}

/// Takes a copy's stand-in at `base` away, of which `at` bytes have come: the primary died before it had told all of them. The call is
/// made anew, and may say that its place must be free.
pub fn never_was(call: &crate::call::Call, base: i64, at: u64) {
    if at > 0 && !failed(base) && call.args[3] & MAP_FIXED == 0 {
        unmapped(base as u64, call.args[1]);
        // SAFETY: the program has not been told of it.
        unsafe { raw::call2(nr::MUNMAP, base as u64, call.args[1]) };
    }
}

/// The guest's mapping of a range is going, or replaced, in a standby: what is kept for it goes as well.
pub fn unmapped(start: u64, bytes: u64) {
    if !ANY.load(Ordering::Relaxed) {
        return;
    }
    let end = start.saturating_add(bytes.next_multiple_of(PAGE));
    for kept in &KEPT {
        let view = kept.get();
        let last = view.start + view.bytes;
        let (from, to) = (start.max(view.start), end.min(last));
        if view.bytes == 0 || from >= to {
            continue;
        }
        if view.at != 0 {
            // SAFETY: a mapping of ours that nobody else knows.
            unsafe { raw::call2(nr::MUNMAP, view.at + (from - view.start), to - from) };
        }
        let part = |from: u64, to: u64| {
            let ahead = from - view.start;
            let at = if view.at == 0 { 0 } else { view.at + ahead };
            View { start: from, bytes: to - from, at, offset: view.offset + ahead, ..view }
        };
        match (from > view.start, to < last) {
            (false, false) => kept.clear(),
            (true, false) => kept.set(&part(view.start, from)),
            (false, true) => kept.set(&part(to, last)),
            (true, true) => {
                kept.set(&part(view.start, from));
                add(&part(to, last));
            }
        }
    }
}

/// The guest has moved a mapping, in a standby.
pub fn moved(start: u64, bytes: u64, to: u64, new: u64) {
    const MAYMOVE: u64 = 1;
    let (bytes, new) = (bytes.next_multiple_of(PAGE), new.next_multiple_of(PAGE));
    for kept in KEPT.iter().filter(|_| ANY.load(Ordering::Relaxed)) {
        let view = kept.get();
        if view.bytes == 0 || view.start != start || view.bytes != bytes {
            continue;
        }
        let mut at = 0;
        if view.at != 0 {
            // SAFETY: a mapping of ours that nobody else knows.
            let there = unsafe { raw::call6(nr::MREMAP, [view.at, bytes, new, MAYMOVE, 0, 0]) };
            at = if failed(there) { 0 } else { there as u64 };
        }
        kept.set(&View { start: to, bytes: new, at, ..view });
        return;
    }
    unmapped(start, bytes);
}

/// The program has put out `result` bytes from `source` to a descriptor, as a standby's log says: its stand-ins of that file
/// show them. `at` is the place in the file, where the call says it.
pub fn written(fd: i32, at: Option<u64>, end: u64, source: Source, result: i64) {
    if !ANY.load(Ordering::Relaxed) || result <= 0 {
        return;
    }
    let Some(shadow) = fdtable::get(fd) else { return };
    let mut place = match (shadow.kind(), at) {
        (Kind::File, Some(at)) => at,
        (Kind::File, None) => match shadow.position() {
            Some(position) => position,
            None => return,
        },
        // Where an appending output ended is in the log.
        (Kind::Append, None) => end.saturating_sub(result as u64),
        _ => return,
    };
    let file = fdtable::kept(shadow.identity.load(Ordering::Relaxed));
    let mut put = |base: u64, bytes: u64| {
        for view in KEPT.iter().map(Kept::get).filter(|view| view.bytes != 0 && view.file == file) {
            // What is kept alike the log tells of by itself.
            if !twins::contains(view.start as usize) {
                show(&view, place, base, bytes);
            }
        }
        place += bytes;
    };
    match source {
        Source::Span(span) => put(span.base, (result as u64).min(span.len)),
        Source::Vectors(list, count) => {
            spans::for_vectors(list, count, result as u64, &mut |base, part| put(base, part as u64));
        }
        Source::Message(_) => {}
    }
}

/// Puts the bytes at `base`, which were written at `place` of the file, into a stand-in.
fn show(view: &View, place: u64, base: u64, bytes: u64) {
    let (from, to) = (place.max(view.offset), (place + bytes).min(view.offset + view.bytes));
    if from >= to {
        return;
    }
    let address = view.start + (from - view.offset);
    let (first, len) = (address & !(PAGE - 1), to - from);
    let span = (address + len - first).next_multiple_of(PAGE);
    // SAFETY: our own anonymous memory; other threads see it readable throughout.
    unsafe {
        if view.protection & WRITE == 0 {
            raw::call3(nr::MPROTECT, first, span, READ | WRITE);
        }
        guest::write(address, (base + (from - place)) as *const u8, len as usize);
        if view.protection & WRITE == 0 {
            raw::call3(nr::MPROTECT, first, span, view.protection);
        }
    }
}

/// Whether an object lies in memory that this standby has copied and that other processes may share: its state here
/// says nothing.
pub fn is_elsewhere(object: usize) -> bool {
    is_any_elsewhere()
        && KEPT
            .iter()
            .map(Kept::get)
            .any(|view| view.protection & WRITE != 0 && (object as u64).wrapping_sub(view.start) < view.bytes)
}

/// Whether relatives share memory with this standby's primary, which it has as it once was.
pub fn is_any_elsewhere() -> bool {
    // What a family shares is where its standbys follow it.
    ANY_WRITABLE.load(Ordering::Relaxed) && members::may_have_relatives() && !of_family::is_member()
}

/// Locks are taken for real from here on.
pub fn nothing_is_elsewhere() {
    ANY.store(false, Ordering::Relaxed);
    ANY_WRITABLE.store(false, Ordering::Relaxed);
    KEPT.iter().for_each(Kept::clear);
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

/// Whether the guest has that file's memory mapped to run it.
fn is_code(file: u64) -> bool {
    file != 0 && KEPT.iter().map(Kept::get).any(|view| view.file == file && view.protection & EXEC != 0)
}

fn put_back(which: impl Fn(u64) -> bool) {
    let mut is_in_call = false;
    crate::thread::for_each(|thread| is_in_call |= thread.has_ring() && thread.doubt.is_open());
    const MAYMOVE_FIXED: u64 = 3;
    let has_code = KEPT.iter().any(|kept| kept.protection.load(Ordering::Relaxed) & EXEC != 0);
    let is_code = KEPT.each_ref().map(|kept| has_code && is_code(kept.file.load(Ordering::Relaxed)));
    for (kept, is_code) in KEPT.iter().zip(is_code) {
        if !which(kept.start.load(Ordering::Relaxed)) {
            continue;
        }
        let View { start, bytes, protection, .. } = kept.get();
        let at = kept.at.swap(0, Ordering::Relaxed);
        if at == 0 || bytes == 0 {
            continue;
        }
        let is_alike = protection & WRITE != 0 && twins::redo(start, at, is_in_call);
        let is_ours = || !members::may_have_relatives() || is_code;
        let is_ours_to_write = protection & WRITE != 0 && !is_alike && is_ours();
        let (mut ours, mut theirs) = (Touched::new(), Touched::new());
        for page in (0..if is_ours_to_write { bytes } else { 0 }).step_by(PAGE as usize) {
            // Only what differs: a page that is written becomes dirty, and a hole a block. Behind the file's end the copy
            // fails, as the guest's own store would have. What is in neither is not looked at: it would be in both from then on.
            let is_there = ours.has(start + page) || theirs.has(at + page);
            if is_there && twins::page(at + page) != twins::page(start + page) {
                guest::write(at + page, (start + page) as *const u8, PAGE as usize);
            }
        }
        // SAFETY: the kept mapping takes the place of our anonymous one.
        unsafe { raw::call6(nr::MREMAP, [at, bytes, bytes, MAYMOVE_FIXED, start, 0]) };
        // It is the file from here on, which has the log's last outputs already: others may have written over them.
        kept.file.store(0, Ordering::Relaxed);
    }
}
