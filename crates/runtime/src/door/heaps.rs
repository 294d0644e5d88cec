//! Where an allocator's mappings lie in threads that take turns.
//!
//! The kernel would choose an address by what else is mapped, and that differs between the copies. In turn they map the same, in
//! the same order, so each counts for itself and nothing of it has to be in the log. What is taken is left to the next try: whether
//! an address is free, of those that only such mappings have, is the same in every copy too.

use core::sync::atomic::{AtomicU64, Ordering};

use us_abi::{HEAPS_ADDRESS, HEAPS_BYTES};

use crate::call::Call;
use crate::kernel::{MAP_FIXED, MAP_FIXED_NOREPLACE};
use crate::raw::err;
use crate::state;
use crate::thread::Thread;

const PAGE: u64 = 4096;
/// Mappings of so many bytes begin at a multiple of it, so that they may have large pages.
const HUGE: u64 = 2 << 20;
/// So many places in a row may be taken before the kernel is asked.
const TRIES: u32 = 64;

/// The next address, from [`HEAPS_ADDRESS`] on. Changed by the thread with the turn.
static NEXT: AtomicU64 = AtomicU64::new(0);

/// Whether an allocator's mappings of this thread are placed here.
pub fn applies(thread: &Thread) -> bool {
    thread.turn.is_own() && state::takes_live_turns()
}

/// An allocator's mmap: `make` makes the call, at the address that it asks for if that is free.
pub fn map(thread: &Thread, call: &Call, make: impl Fn(&Call) -> i64) -> i64 {
    if !applies(thread) || call.args[3] & (MAP_FIXED | MAP_FIXED_NOREPLACE) != 0 {
        return make(call);
    }
    let at = |address: u64| {
        let mut call = *call;
        call.args[0] = address;
        call.args[3] |= MAP_FIXED_NOREPLACE;
        make(&call)
    };
    // An allocator that wishes for an address wishes for a neighbour of what it has.
    if call.args[0].is_multiple_of(PAGE) && is_between(call.args[0]) {
        let result = at(call.args[0]);
        if result != err::EEXIST {
            return result;
        }
    }
    place(call.args[1], at).unwrap_or_else(|| make(call))
}

/// Offers `make` one place after the other for so many bytes, while it answers that one is taken. `None` if all were.
pub fn place(bytes: u64, mut make: impl FnMut(u64) -> i64) -> Option<i64> {
    (0..TRIES).map(|_| make(offer(bytes))).find(|result| *result != err::EEXIST)
}

/// A mapping has grown where it is: nothing is offered inside it.
pub fn grown(start: u64, bytes: u64) {
    let (start, end) = (start.wrapping_sub(HEAPS_ADDRESS as u64), bytes.next_multiple_of(PAGE) + PAGE);
    let end = start.saturating_add(end);
    let next = NEXT.load(Ordering::Relaxed);
    if (start..end).contains(&next) && end < HEAPS_BYTES as u64 {
        NEXT.store(end, Ordering::Relaxed);
    }
}

fn is_between(address: u64) -> bool {
    address.wrapping_sub(HEAPS_ADDRESS as u64) < HEAPS_BYTES as u64
}

fn offer(bytes: u64) -> u64 {
    let (grain, bytes) = (if bytes >= HUGE { HUGE } else { PAGE }, bytes.next_multiple_of(PAGE));
    let start = NEXT.load(Ordering::Relaxed).next_multiple_of(grain);
    let end = start.saturating_add(bytes).saturating_add(PAGE);
    // Back at the beginning most of what has been there is gone.
    let start = if end > HEAPS_BYTES as u64 { 0 } else { start };
    NEXT.store(start.saturating_add(bytes).saturating_add(PAGE), Ordering::Relaxed);
    (HEAPS_ADDRESS as u64).wrapping_add(start)
}
