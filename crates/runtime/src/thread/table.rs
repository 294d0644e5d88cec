//! The blocks of all threads.

use core::cell::UnsafeCell;
use core::mem::offset_of;
use core::sync::atomic::{AtomicPtr, AtomicU32, Ordering};

use us_abi::{THREADS_MAX, THREADS_READY};

use crate::raw;
use crate::thread::own_turns;
use crate::thread::shared::Shared;
use crate::thread::{Mode, Thread};
use crate::{seats, state};

/// One thread's block.
#[repr(C)]
struct Block {
    shared: Shared,
    own: UnsafeCell<Thread>,
}

// SAFETY: the owner's part is reached by a raw pointer only; the module says who may make a reference of it.
unsafe impl Sync for Block {}

/// From the owner's part back to the shared one.
pub const TO_SHARED: usize = offset_of!(Block, own);
const _: () = assert!(offset_of!(Block, shared) == 0 && TO_SHARED == size_of::<Shared>());

static TABLE: [Block; THREADS_READY] =
    [const { Block { shared: Shared::unused(), own: UnsafeCell::new(Thread::unused()) } }; THREADS_READY];

/// The other blocks: more than a kernel allows threads, in a table of pieces, each of which is memory only once it is used.
const PIECES: usize = 1024;
const IN_A_PIECE: usize = 128;
static MORE: [AtomicPtr<Block>; PIECES] = [const { AtomicPtr::new(core::ptr::null_mut()) }; PIECES];
/// Threads that can have a block beyond the slots. They have no ring: with one of them there is no log.
pub const BEYOND_MAX: usize = THREADS_READY + PIECES * IN_A_PIECE - THREADS_MAX;
/// Why there is no log then.
pub const BEYOND: &[u8] = b"the program has more threads at once than can be followed, 4095";
const _: () = assert!(THREADS_MAX == 4096, "what BEYOND says");

/// Whether a slot is none of those with a ring.
pub fn is_beyond(slot: u32) -> bool {
    slot as usize >= THREADS_MAX
}

/// The block of a slot. A copy may be told of one that it has had no thread in: its block is made then.
fn block(slot: u32) -> &'static Block {
    let Some(at) = (slot as usize).checked_sub(THREADS_READY) else { return &TABLE[slot as usize] };
    let piece = made(&MORE[at / IN_A_PIECE]);
    assert!(!piece.is_null(), "no memory for the block of a thread");
    // SAFETY: inside the piece, which is never freed.
    unsafe { &*piece.add(at % IN_A_PIECE) }
}

/// What any thread may touch of a slot's block.
pub fn shared(slot: u32) -> &'static Shared {
    &block(slot).shared
}

/// The owner's part of a slot's block: for its thread, and for whoever [stands in](standing) for it. Nothing is read, and no
/// reference is made.
pub fn own(slot: u32) -> *mut Thread {
    let block = block(slot);
    // The whole of it: `shared_of` goes back from the owner's part.
    (&raw const *block).expose_provenance();
    // By the address alone: where the owner has handed its reference on, this is reached by that one.
    core::ptr::with_exposed_provenance_mut(block.own.get().addr())
}

/// The shared part that lies before an owner's part.
///
/// # Safety
/// `own` is that of a block, which is never freed.
#[inline(always)]
pub unsafe fn shared_of(own: *const Thread) -> &'static Shared {
    // Not by the reference that the pointer may come from: that is the owner's part's alone.
    // SAFETY: a `Thread` exists in a block only, at this distance from its shared part.
    unsafe { &*core::ptr::with_exposed_provenance(own.addr() - TO_SHARED) }
}

/// The owner's part of a block whose owner is not running, for another thread.
///
/// # Safety
/// One of these holds, and goes on to hold as long as the reference is used:
/// - the slot is claimed by the caller and its next thread does not exist yet;
/// - every other thread of the process is parked (`clone/park.rs`), and the caller is the coordinator, or the first thread of
///   the copy that was forked then. A thread parks in guest code, where it has no reference to its block, or at a door, which
///   hands its reference on to the park ([`Thread::shared_with_guest`]): the owner reads every field anew when it goes on;
/// - the process has no other thread (a forked child), and the slot is not the caller's.
pub unsafe fn standing(slot: u32) -> &'static mut Thread {
    // SAFETY: the caller's.
    unsafe { &mut *own(slot) }
}

/// Makes the block of a slot, if it does not exist. False without memory.
pub fn exists(slot: u32) -> bool {
    let at = (slot as usize).checked_sub(THREADS_READY);
    at.is_none_or(|at| !made(&MORE[at / IN_A_PIECE]).is_null())
}

/// A piece, which is made if it does not exist; null without memory.
fn made(piece: &AtomicPtr<Block>) -> *mut Block {
    let known = piece.load(Ordering::Acquire);
    if !known.is_null() {
        return known;
    }
    let bytes = (size_of::<Block>() * IN_A_PIECE) as u64;
    // SAFETY: new memory, all zero, as an unused block is; page-aligned, as a block must be to 128 bytes. Where two make it
    // at once nobody has seen the second one's.
    unsafe {
        let memory = raw::call6(raw::nr::MMAP, [0, bytes, 3, 0x4022, u64::MAX, 0]);
        if raw::failed(memory) {
            return known;
        }
        let new = core::ptr::with_exposed_provenance_mut(memory as usize);
        match piece.compare_exchange(known, new, Ordering::AcqRel, Ordering::Acquire) {
            Ok(_) => new,
            Err(first) => {
                raw::call2(raw::nr::MUNMAP, memory as u64, bytes);
                first
            }
        }
    }
}

/// One past the highest slot that has ever been used in this copy.
pub static SLOTS: AtomicU32 = AtomicU32::new(1);

/// Every slot that has ever been used in this copy.
pub fn slots() -> core::ops::Range<u32> {
    0..SLOTS.load(Ordering::Acquire)
}

/// Runs `f` on the shared part of every slot that has ever been used.
pub fn for_each(f: impl FnMut(&'static Shared)) {
    slots().map(shared).for_each(f);
}

/// The threads that the guest calls `tid`, of those that have a ring.
pub fn called(tid: u32) -> impl Iterator<Item = &'static Shared> {
    slots().map(shared).filter(move |thread| thread.guest_tid() == tid && thread.has_ring())
}

/// Whether a running thread logs nothing. While every thread stands still.
pub fn is_any_silent() -> bool {
    let mut any = false;
    for_each(|thread| {
        let runs = thread.has_ring() && thread.entry().state.load(Ordering::Acquire) == us_abi::slot::RUNNING;
        any |= runs && thread.calls() == Mode::Solo;
    });
    any
}

/// Rings the bell of every thread that sleeps although its ring has an event. Returns how far the furthest of
/// them is behind, bytes; 0 if there was none.
pub fn wake_sleepers() -> u64 {
    let mut woken = 0;
    for_each(|thread| {
        if thread.parked.load(Ordering::Acquire) {
            let ring = seats::view(seats::own(), thread.slot());
            if ring.tail > ring.head {
                thread.parked.store(false, Ordering::Relaxed);
                thread.ring_bell();
                woken = woken.max(ring.tail - ring.head);
            }
        }
    });
    woken
}

/// Rings every bell.
pub fn wake_all() {
    for_each(Shared::ring_bell);
}

/// Puts every thread that records into solo mode. Others are left alone: one that was promoted and is not yet live
/// has something to do first.
pub fn stop_logging() {
    let (from, to) = (Mode::Record as u8, Mode::Solo as u8);
    for_each(|thread| {
        let _ = thread.lock_mode.compare_exchange(from, to, Ordering::Relaxed, Ordering::Relaxed);
        let _ = thread.call_mode.compare_exchange(from, to, Ordering::Relaxed, Ordering::Relaxed);
    });
    if state::takes_live_turns() {
        own_turns::nobody_waits();
    }
}
