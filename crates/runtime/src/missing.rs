//! Pages of the group's files that their file system has no room for.
//!
//! A segment is a sparse file: a page of a ring exists once it is touched, and where it cannot, who touches it gets SIGBUS. What is
//! known beforehand is asked for beforehand (`populate`); a look at a slot that nobody has written, and whatever else is
//! not, ends in `replace`: a page of zeros takes the missing one's place in this copy, which says the same as one that nobody has written. What is
//! written there reaches nobody, so the log ends, and protection with it.

use core::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use us_abi::{
    Cause, RING_BYTES, RING_PIECE, RINGS_ADDRESS, SEGMENT_ADDRESS, SPARES_BYTES, SPARES_OFFSET,
    THREAD_ENTRY_BYTES, THREADS_MAX, THREADS_OFFSET, THREADS_READY, command, slot,
};

use crate::paths;
use crate::raw::{self, failed, nr};
use crate::state::{self, Role};
use crate::thread::{self, RingMemory, Shared};

const PAGE: u64 = 4096;
/// What is said where there is no room; the group's folder follows.
pub const WHY: &[u8] = b"no room for the log in ";

/// A page of some ring is this copy's own.
static REPLACED: AtomicBool = AtomicBool::new(false);

/// Whether `address` lies in a ring. What else is in the segment exists from the beginning.
fn is_ours(address: u64) -> bool {
    let rings = RINGS_ADDRESS as u64..(RINGS_ADDRESS + 2 * THREADS_MAX * RING_BYTES) as u64;
    state::header().is_some() && rings.contains(&address)
}

/// There is no log any more: the place is full.
#[cold]
pub fn give_up() {
    crate::verdict::give_up_log(Cause::CannotReplay, &[WHY, paths::folder()]);
}

/// Makes sure that there is memory behind a part of a ring, whose address this is.
pub fn populate(address: u64, bytes: usize) -> bool {
    use crate::kernel::MADV_POPULATE_WRITE;
    use crate::raw::err::EFAULT;
    // SAFETY: populates pages of our own shared mapping, or reports that it cannot.
    let result = unsafe { raw::call3(nr::MADVISE, address, bytes as u64, MADV_POPULATE_WRITE) };
    // A kernel that does not know it says EINVAL: what is missing then ends in `replace`.
    result != EFAULT && result != raw::err::ENOMEM
}

/// Slots of which the segment's head has memory.
static SLOTS: AtomicU32 = AtomicU32::new(THREADS_READY as u32);

/// This process has another segment, with memory for so many slots.
pub fn has_slots(slots: u32) {
    SLOTS.store(slots.max(THREADS_READY as u32), Ordering::Relaxed);
}

/// Makes sure that the segment's head has memory for a slot, whose predecessors have theirs. By one thread at a time.
pub fn has_entries(slot: u32) -> bool {
    if slot < SLOTS.load(Ordering::Relaxed) || state::header().is_none() {
        return true;
    }
    let entries =
        [THREADS_OFFSET + slot as usize * THREAD_ENTRY_BYTES, SPARES_OFFSET + slot as usize * SPARES_BYTES];
    // None of them lies in two pages.
    let is_there = entries
        .into_iter()
        .all(|offset| populate((SEGMENT_ADDRESS + offset) as u64 & !(PAGE - 1), PAGE as usize));
    if is_there {
        SLOTS.store(slot + 1, Ordering::Relaxed);
    }
    is_there
}

/// Whether every running thread could begin a log. While all stand still.
pub fn is_room_for_all() -> bool {
    use crate::raw::nr::STATFS;
    let mut runs = 0u64;
    thread::for_each(|thread| runs += u64::from(is_running(thread)));
    let mut status = [0u64; 15];
    // SAFETY: the folder's path ends with NUL; the kernel writes one struct statfs.
    let asked = unsafe { raw::call2(STATFS, paths::folder().as_ptr() as u64, status.as_mut_ptr() as u64) };
    let [_, block, _, _, free, ..] = status;
    if asked == 0 && block.saturating_mul(free) > 2 * runs * RING_PIECE as u64 {
        return true;
    }
    // It may be there all the same: most rings have been in use before.
    let mut all = true;
    thread::for_each(|thread| {
        all = all && (!is_running(thread) || populate(RingMemory::of(thread.slot()).0 as u64, RING_PIECE));
    });
    all
}

fn is_running(thread: &Shared) -> bool {
    thread.has_ring() && thread.entry().state.load(Ordering::Acquire) == slot::RUNNING
}

/// Before a copy is made, while every thread stands still: rings are shared again.
pub fn share_again() -> bool {
    if !REPLACED.swap(false, Ordering::Relaxed) {
        return true;
    }
    let mut all = true;
    thread::for_each(|thread| all = all && (!thread.has_ring() || thread::map_ring(thread.slot())));
    all
}

/// Puts a page of zeros where the kernel could not find the one that was touched. False if that is no page of ours, or if there is
/// nothing that can be done.
///
/// # Safety
/// In the handler of a SIGBUS at `address`, which is the kernel's.
pub unsafe fn replace(address: u64) -> bool {
    const READ_WRITE: u64 = 3;
    const PRIVATE_FIXED_ANONYMOUS: u64 = 0x32;
    if !is_ours(address) {
        return false;
    }
    match state::role() {
        Role::Primary => give_up(),
        // It is about to be the primary, and nobody else has what it has.
        Role::Standby if is_promoted() => {}
        Role::Standby => crate::verdict::give_up_standby(&[WHY, paths::folder()]),
        Role::Child | Role::Outside => return false,
    }
    REPLACED.store(true, Ordering::Relaxed);
    let page = address & !(PAGE - 1);
    // SAFETY: a page of the runtime's own mapping, which has no memory behind it.
    let mapped =
        unsafe { raw::call6(nr::MMAP, [page, PAGE, READ_WRITE, PRIVATE_FIXED_ANONYMOUS, u64::MAX, 0]) };
    !failed(mapped)
}

fn is_promoted() -> bool {
    let orders = |header: &us_abi::SegmentHeader| header.command.0.load(Ordering::Acquire);
    state::header().is_some_and(|header| orders(header) == command::PROMOTE)
}
