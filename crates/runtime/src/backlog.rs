//! What the rings hold that this copy has not applied.

use core::sync::atomic::Ordering;

use us_abi::event::Header;
use us_ring::Position;

use crate::thread::{self, RingMemory};
use crate::{seats, state};

/// Whether the ring of any other slot than `but` holds an event of this kind that has not been applied.
pub fn is_unapplied(but: u32, wanted: impl Fn(&Header) -> bool) -> bool {
    let Some(header) = state::header() else { return false };
    let mut found = false;
    for slot in (0..header.slots.load(Ordering::Acquire)).filter(|slot| *slot != but) {
        // A ring that this copy has not mapped yet is left to the thread's maker.
        if !thread::shared(slot).has_ring() {
            found |= state::entry(slot).tail.0.acquire() > seats::head(slot).acquire();
            continue;
        }
        found |= unapplied(slot).any(|event| wanted(&event));
    }
    found
}

/// Every event in a slot's ring that has not been applied.
pub fn unapplied(slot: u32) -> impl Iterator<Item = Header> {
    unapplied_at(slot).map(|(_, event)| event)
}

/// The same, with where each lies.
pub fn unapplied_at(slot: u32) -> impl Iterator<Item = (u64, Header)> {
    let (mut at, tail) = (seats::head(slot).acquire(), state::entry(slot).tail.0.acquire());
    if tail > at && !is_mapped(slot) {
        at = tail;
    }
    us_ring::events(RingMemory::of(slot), at, tail)
}

/// Whether this copy has mapped a slot's ring: a thread that it has not made yet has none.
pub fn is_mapped(slot: u32) -> bool {
    thread::shared(slot).has_ring() || thread::map_ring(slot)
}
