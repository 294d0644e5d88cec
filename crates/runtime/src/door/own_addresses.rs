//! The addresses that are the runtime's, where a program without it has nothing.
//!
//! A program that sweeps its address space (a sandbox, a loader that wants room at a fixed place) names them like any other. Both
//! copies execute such a call: without this, primary and standby die of the same one.
//!
//! Nor does it get memory there: an address that it only prefers, as allocators draw them at random, is one that it cannot have.

use us_abi::{COPIES_ADDRESS, GUEST_MAPS_ADDRESS, RING_BYTES, RINGS_ADDRESS, ROSTER_ADDRESS, THREADS_MAX};

use crate::call::Call;
use crate::kernel::{MAP_FIXED, MAP_FIXED_NOREPLACE, MREMAP_FIXED};
use crate::raw::nr::{MBIND, SET_MEMPOLICY_HOME_NODE};
use crate::raw::{self, err, nr};

/// Where each range that is the runtime's begins, and the address behind it. The first has the roster, the segment and the rings.
const OURS: [(u64, u64); 2] = [
    (ROSTER_ADDRESS as u64, (RINGS_ADDRESS + THREADS_MAX * 2 * RING_BYTES) as u64),
    (COPIES_ADDRESS as u64, GUEST_MAPS_ADDRESS as u64),
];

/// mlock, munlock, pkey_mprotect, mlock2, mseal.
const OF_A_RANGE: [u64; 5] = [149, 150, 329, 325, 462];
const PAGE: u64 = 4096;

/// The range of ours that a range of the guest's touches.
fn touched(start: u64, bytes: u64) -> Option<(u64, u64)> {
    let end = start.saturating_add(bytes);
    OURS.into_iter().find(|&(first, last)| start < last && end > first)
}

/// What a call that touches our addresses gets: as if nothing were mapped there; and no memory where the program wants some.
/// `None`: the call is the kernel's.
#[inline]
pub fn answer(call: &Call) -> Option<i64> {
    let [start, bytes, third, fourth, fifth, _] = call.args;
    match call.nr {
        nr::MUNMAP => touched(start, bytes).map(|ours| unmap_around(start, bytes, ours)),
        nr::MPROTECT | nr::MADVISE => touched(start, bytes).map(|_| err::ENOMEM),
        nr::MMAP if fourth & MAP_FIXED_NOREPLACE != 0 => is_between(start, bytes).then_some(err::EEXIST),
        nr::MMAP if fourth & MAP_FIXED != 0 => touched(start, bytes).map(|_| err::ENOMEM),
        nr::MREMAP => touched(start, bytes.max(1)).map(|_| err::EFAULT).or_else(|| {
            let moves = fourth & MREMAP_FIXED != 0 && touched(fifth, third).is_some();
            moves.then_some(err::ENOMEM)
        }),
        MBIND | SET_MEMPOLICY_HOME_NODE => touched(start, bytes).map(|_| err::EFAULT),
        number if OF_A_RANGE.contains(&number) => touched(start, bytes).map(|_| err::ENOMEM),
        _ => None,
    }
}

/// Whether a range touches the addresses from our first to our last, in which new threads' stacks are put as well.
fn is_between(start: u64, bytes: u64) -> bool {
    start < GUEST_MAPS_ADDRESS as u64 && start.saturating_add(bytes) > ROSTER_ADDRESS as u64
}

/// A mapping that prefers such an address has no preference: the kernel would put it into a hole of ours, where the calls above know
/// nothing of it, and a ring or a thread's stack would come on top of it.
#[inline]
pub fn without_preference(call: &Call) -> Call {
    let [start, bytes, _, flags, ..] = call.args;
    let mut call = *call;
    if start != 0 && flags & (MAP_FIXED | MAP_FIXED_NOREPLACE) == 0 && is_between(start, bytes) {
        call.args[0] = 0;
    }
    call
}

/// Unmaps what lies below and above our range.
fn unmap_around(start: u64, bytes: u64, (first, last): (u64, u64)) -> i64 {
    let end = start.saturating_add(bytes);
    if !start.is_multiple_of(PAGE) {
        return err::EINVAL;
    }
    for (from, to) in [(start, first.min(end)), (last.max(start), end)] {
        if from < to {
            let part = Call { nr: nr::MUNMAP, args: [from, to - from, 0, 0, 0, 0], caller: 0 };
            // The other range of ours may be in it.
            // SAFETY: the guest's own call on its own memory, without ours.
            let result = answer(&part).unwrap_or_else(|| unsafe { raw::call6(part.nr, part.args) });
            if result != 0 {
                return result;
            }
        }
    }
    0
}
