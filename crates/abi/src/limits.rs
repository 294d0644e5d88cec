//! Every limit in one place, with the relations between them asserted.

use crate::registry::{REGISTRY_ADDRESS, REGISTRY_BYTES};
use crate::roster::{ROSTER_ADDRESS, ROSTER_BYTES};
use crate::upgrade::BERTH_BYTES;

/// Bytes of one thread's ring. A power of two: positions wrap by masking. That is how far a standby may be
/// behind; what a ring costs is the part that has been used, and a ring whose standby keeps up goes back to
/// its beginning after every [`RING_STEP`].
pub const RING_BYTES: usize = 8 << 20;

/// Bytes after which the producer looks whether it can go back to the ring's beginning. Small enough to stay
/// in the second-level cache, large enough for an event of any size.
pub const RING_STEP: usize = 512 << 10;

/// A standby that is at most so far behind keeps up, bytes.
pub const RING_NEAR: usize = RING_STEP / 2;
/// Memory of a ring is made ready in pieces of this many bytes.
pub const RING_PIECE: usize = 64 << 10;

/// Largest payload of one event, bytes. A longer result spans several events, so that a reader with a
/// buffer larger than the ring never sees a short read that it would not see natively.
pub const PAYLOAD_BYTES_MAX: usize = 256 << 10;

/// Smallest `--lag-limit`, bytes: one event of the largest size must fit, and another beside it.
pub const LAG_LIMIT_MIN: u64 = 2 * PAYLOAD_BYTES_MAX as u64 + 4096;

/// Thread slots of one process. A slot is reused once its thread is gone.
pub const THREADS_MAX: usize = 4096;

/// Slots whose memory is there from the beginning. That of the others is asked for when they are taken.
pub const THREADS_READY: usize = 1024;

/// Hashed clocks for objects that cannot carry their own.
pub const CLOCKS: usize = 4096;

/// Events are aligned to this many bytes, so a header never straddles a cache line.
pub const EVENT_ALIGN: usize = 16;

/// Bytes of the segment before the thread table.
pub const HEADER_BYTES: usize = 64 << 10;

/// Bytes of one entry of the thread table.
pub const THREAD_ENTRY_BYTES: usize = 512;

/// Offset of the thread table in the segment.
pub const THREADS_OFFSET: usize = SPARES_OFFSET + THREADS_MAX * SPARES_BYTES;

/// Standbys that a process may have.
pub const SEATS: usize = 3;

/// Bytes of one entry of the table of spare standbys.
pub const SPARE_ENTRY_BYTES: usize = 64;

/// Bytes of a slot's entries in the table of spare standbys: of the second seat, and of the third.
pub const SPARES_BYTES: usize = (SEATS - 1) * SPARE_ENTRY_BYTES;

/// Offset of the table of spare standbys.
pub const SPARES_OFFSET: usize = HEADER_BYTES;

/// Offset of the first ring.
pub const RINGS_OFFSET: usize = 4 << 20;

/// What of the head of a segment a process touches that uses so many slots: offset and bytes of the header with the spares'
/// entries, and of the threads' entries.
pub const fn head_parts(slots: usize) -> [(usize, usize); 2] {
    let slots = if slots < THREADS_READY { THREADS_READY } else { slots };
    [(0, SPARES_OFFSET + slots * SPARES_BYTES), (THREADS_OFFSET, slots * THREAD_ENTRY_BYTES)]
}

/// Bytes of a whole segment. Sparse: a ring costs memory once its thread exists.
pub const SEGMENT_BYTES: usize = RINGS_OFFSET + THREADS_MAX * RING_BYTES;

/// System call numbers counted in [`SegmentHeader::refused`](crate::segment::SegmentHeader::refused).
pub const CALLS_MAX: usize = 512;

/// Address at which every copy maps the segment. Outside the ranges used by the kernel's default
/// layouts and by the sanitizers' shadows.
pub const SEGMENT_ADDRESS: usize = 0x2a00_0000_0000;

/// Tables of the library that may be written, and signal stacks: what of a limit of data (RLIMIT_DATA) is the runtime's, bytes.
/// `tests/tidy/tests/symbols.rs` holds the library to it.
pub const LIBRARY_DATA_BYTES: u64 = 34 << 20;

/// Addresses of the library and of what it needs, poller, coordinator and the like, generously: what the loader maps counts
/// against a limit of memory (RLIMIT_AS), bytes. The berth of later versions is among them.
pub const LIBRARY_BYTES: u64 = (44 << 20) + BERTH_BYTES as u64;

/// Address of the doubled ring mappings: slot `n` has its ring twice in a row from
/// `RINGS_ADDRESS + n * 2 * RING_BYTES`, so that no event ever wraps.
pub const RINGS_ADDRESS: usize = 0x2a80_0000_0000;

/// A signal that has waited longer for its thread's next door is late, ns.
pub const SIGNAL_WAIT_NS_MAX: u64 = 10_000_000;

/// Address of the first thread stack; one [`STACK_STRIDE`] for each of the first [`THREADS_READY`] slots.
pub const STACKS_ADDRESS: usize = 0x2b00_0000_0000;

/// Address space set aside for the stack of one slot, bytes.
pub const STACK_STRIDE: usize = 1 << 30;

/// Address of the stacks of the other slots; one [`MORE_STACKS_STRIDE`] each.
pub const MORE_STACKS_ADDRESS: usize = STACKS_ADDRESS + THREADS_READY * STACK_STRIDE;

/// Address space set aside for the stack of one of those, bytes.
pub const MORE_STACKS_STRIDE: usize = 128 << 20;

/// Where the stack of a slot may lie: its range begins at this address and has so many bytes.
pub const fn stack_range(slot: usize) -> (usize, usize) {
    match slot.checked_sub(THREADS_READY) {
        None => (STACKS_ADDRESS + slot * STACK_STRIDE, STACK_STRIDE),
        Some(more) => (MORE_STACKS_ADDRESS + more * MORE_STACKS_STRIDE, MORE_STACKS_STRIDE),
    }
}

/// The slot in whose range of stack an address lies, if it does in any.
pub const fn slot_of_stack(address: usize) -> Option<usize> {
    let (end, _) = stack_range(THREADS_MAX);
    match address {
        _ if address < STACKS_ADDRESS || address >= end => None,
        _ if address < MORE_STACKS_ADDRESS => Some((address - STACKS_ADDRESS) / STACK_STRIDE),
        _ => Some(THREADS_READY + (address - MORE_STACKS_ADDRESS) / MORE_STACKS_STRIDE),
    }
}

/// Address at which mappings asked for by guest code are placed when it names no address.
pub const GUEST_MAPS_ADDRESS: usize = 0x2d00_0000_0000;

/// Address at which an allocator's mappings are placed while threads take turns.
pub const HEAPS_ADDRESS: usize = 0x4000_0000_0000;

/// Address space set aside for them, bytes.
pub const HEAPS_BYTES: usize = 8 << 40;

/// Address of the copies of memory that a family shares, out of the guest's sight. Fixed, so that what a process's own
/// allocator maps lies where it would without them, in every copy.
pub const COPIES_ADDRESS: usize = 0x2c80_0000_0000;

/// Bytes set aside for the copies; the memory itself lies so much above its copy in a standby.
pub const COPIES_BYTES: usize = 1 << 37;

/// Address of what else a standby of a family keeps out of sight.
pub const KEPT_ADDRESS: usize = COPIES_ADDRESS + 2 * COPIES_BYTES;

/// Whether an address lies in what each process of a group maps for itself and no copy takes over: segment, rings, roster, registry.
pub const fn is_of_group(address: usize) -> bool {
    let ranges = [
        (SEGMENT_ADDRESS, SEGMENT_BYTES),
        (RINGS_ADDRESS, 2 * THREADS_MAX * RING_BYTES),
        (ROSTER_ADDRESS, ROSTER_BYTES.next_multiple_of(4096)),
        (REGISTRY_ADDRESS, REGISTRY_BYTES.next_multiple_of(4096)),
    ];
    let mut at = 0;
    while at < ranges.len() {
        if address.wrapping_sub(ranges[at].0) < ranges[at].1 {
            return true;
        }
        at += 1;
    }
    false
}

const _: () = {
    assert!(is_of_group(SEGMENT_ADDRESS) && !is_of_group(SEGMENT_ADDRESS + SEGMENT_BYTES));
    assert!(stack_range(THREADS_MAX).0 <= COPIES_ADDRESS);
    assert!(matches!(slot_of_stack(stack_range(THREADS_MAX - 1).0), Some(slot) if slot == THREADS_MAX - 1));
    assert!(
        matches!(slot_of_stack(stack_range(THREADS_READY).0 - 1), Some(slot) if slot == THREADS_READY - 1)
    );
    assert!(KEPT_ADDRESS + COPIES_BYTES <= GUEST_MAPS_ADDRESS);
    assert!(RING_BYTES.is_power_of_two());
    assert!(PAYLOAD_BYTES_MAX + 4096 < RING_STEP);
    assert!(RING_STEP.is_multiple_of(RING_PIECE));
    assert!(RING_BYTES.is_multiple_of(RING_STEP) && RING_BYTES >= 4 * RING_STEP);
    assert!(CLOCKS.is_power_of_two() && CLOCKS <= 1 << 12);
    assert!(THREADS_OFFSET + THREADS_MAX * THREAD_ENTRY_BYTES <= RINGS_OFFSET);
    // An entry lies in one page.
    assert!(4096 % THREAD_ENTRY_BYTES == 0 && THREADS_OFFSET.is_multiple_of(THREAD_ENTRY_BYTES));
    assert!(4096 % SPARES_BYTES == 0 && SPARES_OFFSET.is_multiple_of(SPARES_BYTES));
    assert!(SEGMENT_ADDRESS + SEGMENT_BYTES <= RINGS_ADDRESS);
    assert!(RINGS_ADDRESS + THREADS_MAX * 2 * RING_BYTES <= STACKS_ADDRESS);
};

/// `si_code` of the SIGSYS with which the supervisor and the runtime ask a thread to look up: it tells their SIGSYS
/// from one that the program sends itself. Negative, so that the kernel lets one process queue it for another.
pub const NUDGE_CODE: i32 = -0x5553;
