//! The memory of a family: which it is, and the copy that the standbys share.
//!
//! Each member has the copy mapped out of the guest's sight, from its forming on: a child inherits it. A standby puts it
//! where the guest has the memory, and keeps the memory itself as a view (`mapping/views.rs`).

use core::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering};

use us_abi::{COPIES_ADDRESS, COPIES_BYTES, Family, KEPT_ADDRESS, Region};

use crate::mapping::touched::Touched;
use crate::mapping::views;
use crate::raw::{self, failed, nr};
use crate::sys::own_table::with_own_table;
use crate::{guest, members, own_file, paths, twins};

const PAGE: u64 = 4096;
const READ_WRITE: u64 = 3;
const PIECES_MAX: usize = 64;

/// A mapping of the guest's, and the copy's at another address.
struct Piece {
    start: AtomicU64,
    bytes: AtomicU64,
    copy: AtomicU64,
    offset: AtomicU64,
    region: AtomicU32,
}

static PIECES: [Piece; PIECES_MAX] = [const {
    Piece {
        start: AtomicU64::new(0),
        bytes: AtomicU64::new(0),
        copy: AtomicU64::new(0),
        offset: AtomicU64::new(0),
        region: AtomicU32::new(0),
    }
}; PIECES_MAX];
static COUNT: AtomicUsize = AtomicUsize::new(0);

fn pieces() -> &'static [Piece] {
    &PIECES[..COUNT.load(Ordering::Acquire).min(PIECES_MAX)]
}

impl Piece {
    fn get(&self) -> (u64, u64, u64, u64) {
        let [start, bytes, copy, offset] =
            [&self.start, &self.bytes, &self.copy, &self.offset].map(|word| word.load(Ordering::Relaxed));
        (start, bytes, copy, offset)
    }
}

/// Whether it is an address of the copy, where it lies out of sight.
pub fn is_copy(address: u64) -> bool {
    pieces().iter().map(Piece::get).any(|(_, bytes, copy, _)| address.wrapping_sub(copy) < bytes)
}

/// Where the copy of the mapping at `start` is.
pub fn copy_of(start: u64, bytes: u64) -> Option<u64> {
    pieces().iter().map(Piece::get).find(|piece| piece.0 == start && piece.1 == bytes).map(|piece| piece.2)
}

/// Forgets the last family's. By the coordinator, in a process that is of none.
pub fn forget() {
    for piece in pieces() {
        let (_, bytes, copy, _) = piece.get();
        if bytes != 0 {
            piece.bytes.store(0, Ordering::Relaxed);
            // SAFETY: a mapping of ours that nobody else knows.
            unsafe { raw::call2(nr::MUNMAP, copy, bytes) };
        }
    }
    COUNT.store(0, Ordering::Release);
}

/// The region of that object, and whether it is this process that has to copy it.
fn claim(family: &Family, object: u64) -> Option<(usize, bool)> {
    family.regions.iter().enumerate().find_map(|(at, region)| {
        match region.object.compare_exchange(0, object, Ordering::AcqRel, Ordering::Acquire) {
            Ok(_) => Some((at, true)),
            Err(found) => (found == object).then_some((at, false)),
        }
    })
}

const FULL: &[u8] = b"more memory is shared between processes than can be listed";

/// A mapping of shared memory becomes a piece of the family that is being formed. By the coordinator, which has a table of
/// descriptors of its own, while no member runs.
pub fn add(start: u64, bytes: u64, object: u64, offset: u64) -> Result<(), &'static [u8]> {
    let family = members::family().ok_or(FULL)?;
    let (region, first) = claim(family, object).ok_or(FULL)?;
    // Or another part of what this process has claimed already.
    let copies = first || is_claimed_here(region);
    if !add_copy(start, bytes, offset, region, copies) {
        return Err(b"no room for a copy of shared memory");
    }
    if copies {
        CLAIMED[region].store(1, Ordering::Relaxed);
        note_range(&family.regions[region], offset, bytes);
    }
    Ok(())
}

/// Maps the copy of a piece, and fills it if `copies`. False if that is not possible.
fn add_copy(start: u64, bytes: u64, offset: u64, region: usize, copies: bool) -> bool {
    use crate::raw::nr::FTRUNCATE;
    let mut path = [0u8; paths::PATH_BYTES];
    if paths::family_path(crate::members::of_family::number(), region, &mut path).is_none() {
        return false;
    }
    // SAFETY: a file of the group's folder, in a table of ours; a new mapping.
    unsafe {
        let file = own_file::open(path.as_ptr(), own_file::MAKE_OR_FIND);
        if failed(file) {
            return false;
        }
        let end = offset + bytes;
        if (raw::call3(nr::LSEEK, file as u64, 0, 2) as u64) < end {
            raw::call2(FTRUNCATE, file as u64, end);
        }
        let at = free_address(bytes);
        let copy = raw::call6(nr::MMAP, [at, bytes, READ_WRITE, SHARED_NOREPLACE, file as u64, offset]);
        let whole = !copies || fill(file as u64, start, bytes, offset);
        raw::call1(nr::CLOSE, file as u64);
        !failed(copy) && whole && list(start, bytes, offset, region, copy as u64)
    }
}

/// Shared, and where nothing is.
const SHARED_NOREPLACE: u64 = 0x10_0001;

/// Where the next copy may lie: behind all others, each of which is a page away from the next.
fn free_address(bytes: u64) -> u64 {
    let ends =
        pieces().iter().map(Piece::get).filter(|piece| piece.1 != 0).map(|piece| piece.2 + piece.1 + PAGE);
    let at = ends.max().unwrap_or(COPIES_ADDRESS as u64);
    if at + bytes > (COPIES_ADDRESS + COPIES_BYTES) as u64 { 0 } else { at }
}

/// Where the next mapping is kept.
static NEXT_KEPT: AtomicU64 = AtomicU64::new(KEPT_ADDRESS as u64);

/// In a new copy, which keeps nothing yet.
pub fn keeps_nothing() {
    NEXT_KEPT.store(KEPT_ADDRESS as u64, Ordering::Relaxed);
}

/// In a standby: where the mapping is to be kept that the guest has at `start`. Out of the way of the primary's own mappings, which
/// have to lie at the same places here, and of which the kernel may choose some. `None` for anywhere.
pub fn place_for(start: u64, bytes: u64) -> Option<u64> {
    let shared = members::of_family::is_member().then(|| copy_of(start, bytes)).flatten();
    shared.map(|copy| copy + COPIES_BYTES as u64).or_else(|| {
        let at = NEXT_KEPT.fetch_add(bytes.next_multiple_of(PAGE) + PAGE, Ordering::Relaxed);
        (at + bytes < (KEPT_ADDRESS + COPIES_BYTES) as u64).then_some(at)
    })
}

fn list(start: u64, bytes: u64, offset: u64, region: usize, copy: u64) -> bool {
    let free = pieces().iter().position(|piece| piece.bytes.load(Ordering::Relaxed) == 0);
    let at = free.unwrap_or(COUNT.load(Ordering::Relaxed));
    let Some(piece) = PIECES.get(at) else { return false };
    for (word, value) in [(&piece.start, start), (&piece.copy, copy), (&piece.offset, offset)] {
        word.store(value, Ordering::Relaxed);
    }
    piece.region.store(region as u32, Ordering::Relaxed);
    piece.bytes.store(bytes, Ordering::Relaxed);
    COUNT.fetch_max(at + 1, Ordering::AcqRel);
    true
}

/// As a primary: a mapping of shared memory that its process has just made, in its turn, becomes a piece of the family. What is
/// there nobody in it has changed but by calls, or it would be known. The region's number.
pub fn add_new(start: u64, bytes: u64, object: u64, offset: u64) -> Option<u64> {
    let family = members::family()?;
    let (region, first) = claim(family, object)?;
    let bytes = bytes.next_multiple_of(PAGE);
    let [from, to] = family.regions[region].range.each_ref().map(|word| word.load(Ordering::Acquire));
    if !first && (offset < from || offset + bytes > to) {
        return None;
    }
    if first {
        note_range(&family.regions[region], offset, bytes);
    }
    let added = with_own_table(|| i64::from(add_copy(start, bytes, offset, region, first)));
    (added == 1).then_some(region as u64)
}

/// The same as a standby: the copy itself, where the guest is to have the memory. False if it cannot be.
pub fn follow_new(start: u64, bytes: u64, region: u64, offset: u64, protection: u64) -> bool {
    const MAYMOVE_FIXED: u64 = 3;
    let bytes = bytes.next_multiple_of(PAGE);
    if with_own_table(|| i64::from(add_copy(start, bytes, offset, region as usize, false))) != 1 {
        return false;
    }
    let Some(copy) = copy_of(start, bytes) else { return false };
    // SAFETY: an old length of zero makes a second mapping of shared pages, at an address that the log says is free.
    unsafe {
        !failed(raw::call6(nr::MREMAP, [copy, 0, bytes, MAYMOVE_FIXED, start, 0]))
            && !failed(raw::call3(nr::MPROTECT, start, bytes, protection))
    }
}

/// The guest has unmapped a range, in every copy.
pub fn unmapped(start: u64, bytes: u64) {
    let end = start.saturating_add(bytes.next_multiple_of(PAGE));
    for piece in pieces() {
        let (from, len, copy, _) = piece.get();
        if len != 0 && from < end && start < from + len {
            // Of a part that stays there is no copy any more either: a child would be told of it as of something new.
            piece.bytes.store(0, Ordering::Relaxed);
            // SAFETY: a mapping of ours that nobody else knows.
            unsafe { raw::call2(nr::MUNMAP, copy, len) };
        }
    }
}

/// Regions that this process has copied for the family that is being formed.
static CLAIMED: [AtomicU32; us_abi::REGIONS_MAX] = [const { AtomicU32::new(0) }; us_abi::REGIONS_MAX];

fn is_claimed_here(region: usize) -> bool {
    CLAIMED[region].load(Ordering::Relaxed) != 0
}

/// Before the first piece.
pub fn begin() {
    forget();
    CLAIMED.iter().for_each(|claimed| claimed.store(0, Ordering::Relaxed));
}

fn note_range(region: &Region, offset: u64, bytes: u64) {
    let [from, to] = &region.range;
    if to.load(Ordering::Relaxed) == 0 {
        from.store(offset, Ordering::Relaxed);
    }
    from.fetch_min(offset, Ordering::AcqRel);
    to.fetch_max(offset + bytes, Ordering::AcqRel);
}

/// Whether all that this process has of the memory has been copied, by whomever. Behind the forks of all.
pub fn are_whole() -> bool {
    let Some(family) = members::family() else { return false };
    pieces().iter().all(|piece| {
        let (_, bytes, _, offset) = piece.get();
        if bytes == 0 {
            return true;
        }
        let region = &family.regions[piece.region.load(Ordering::Relaxed) as usize];
        let [from, to] = region.range.each_ref().map(|word| word.load(Ordering::Acquire));
        offset >= from && offset + bytes <= to
    })
}

/// Writes what is there into the copy's file. Pages that nobody has touched stay holes.
///
/// # Safety
/// A mapping of the guest's; the file is the caller's.
unsafe fn fill(file: u64, start: u64, bytes: u64, offset: u64) -> bool {
    const PWRITE: u64 = 18;
    let mut touched = Touched::new();
    let mut at = 0;
    while at < bytes {
        let mut run = 0;
        while at + run < bytes && touched.has(start + at + run) {
            run += PAGE;
        }
        if run == 0 {
            at += PAGE;
            continue;
        }
        let mut done = 0;
        while done < run {
            // SAFETY: the kernel reads the guest's pages, or says that it cannot.
            let put = unsafe { raw::call4(PWRITE, file, start + at + done, run - done, offset + at + done) };
            if put <= 0 {
                return false;
            }
            done += put as u64;
        }
        at += run;
    }
    true
}

/// At a promotion, when all standbys stand still: the bytes of the copy go into the memory itself, of each region by one of
/// them. All primaries are dead; a child that has not begun sees them as if it had been so.
pub fn put_back(family: &Family) {
    for piece in pieces() {
        let (start, bytes, _, _) = piece.get();
        if bytes == 0 {
            continue;
        }
        let at = piece.region.load(Ordering::Relaxed) as usize;
        let region = &family.regions[at];
        let mine = region.put_back.compare_exchange(
            0,
            crate::family::own_mark(),
            Ordering::AcqRel,
            Ordering::Acquire,
        );
        if mine.is_ok() || mine == Err(crate::family::own_mark()) {
            put_back_one(start, bytes);
        }
    }
}

fn put_back_one(start: u64, bytes: u64) {
    let Some(real) = views::kept_at(start, bytes) else { return };
    let (mut ours, mut theirs) = (Touched::new(), Touched::new());
    for page in (0..bytes).step_by(PAGE as usize) {
        let is_new = ours.has(start + page) || theirs.has(real + page);
        if is_new && twins::page(real + page) != twins::page(start + page) {
            guest::write(real + page, (start + page) as *const u8, PAGE as usize);
        }
    }
}
