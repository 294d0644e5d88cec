//! Where a slot's ring lies in this process.

use core::sync::atomic::Ordering;

use us_abi::{RING_BYTES, RINGS_ADDRESS, RINGS_OFFSET, SEGMENT_ADDRESS};
use us_ring::Memory;

use crate::raw;
use crate::state;

/// The bytes of a ring, mapped twice in a row.
#[derive(Clone, Copy, Debug)]
pub struct RingMemory(pub *mut u8);

impl RingMemory {
    /// The ring of a slot.
    pub fn of(slot: u32) -> RingMemory {
        RingMemory((RINGS_ADDRESS + slot as usize * 2 * RING_BYTES) as *mut u8)
    }

    /// The address of a position.
    #[inline(always)]
    pub fn at(self, position: u64) -> *mut u8 {
        // SAFETY: masked into the first of the two mappings.
        unsafe { self.0.add(position as usize & (RING_BYTES - 1)) }
    }
}

impl Memory for RingMemory {
    #[inline(always)]
    fn put(&mut self, at: u64, value: u64) {
        // SAFETY: inside the doubled mapping, eight-byte aligned; the consumer does not read past the tail.
        unsafe { self.at(at).cast::<u64>().write(value) }
    }
    #[inline(always)]
    fn get(&self, at: u64) -> u64 {
        // SAFETY: inside the doubled mapping, below the acquired tail.
        unsafe { self.at(at).cast::<u64>().read() }
    }
}

/// Maps a slot's ring twice in a row. In a group only.
pub fn map_ring(slot: u32) -> bool {
    let Some(header) = state::header() else { return true };
    let base = (SEGMENT_ADDRESS + RINGS_OFFSET + slot as usize * RING_BYTES) as u64;
    let target = (RINGS_ADDRESS + slot as usize * 2 * RING_BYTES) as u64;
    header.slots.fetch_max(slot + 1, Ordering::AcqRel);
    // SAFETY: an old size of zero makes a second mapping of shared pages; both targets lie in our own range. The
    // memory of a ring that already has both is simply mapped again.
    unsafe {
        for half in 0..2 {
            const MAYMOVE_FIXED: u64 = 3;
            let at = target + half * RING_BYTES as u64;
            let result = raw::call6(raw::nr::MREMAP, [base, 0, RING_BYTES as u64, MAYMOVE_FIXED, at, 0]);
            if raw::failed(result) {
                return false;
            }
        }
    }
    true
}
