//! Calls in doubt of which the kernel could not tell whether they were done: how many, and which the first of them were.

use core::sync::atomic::Ordering;

use us_abi::event::{Header, RETURN_PARTIAL};
use us_abi::{SegmentHeader, UNSETTLED_KEPT, UnsettledCall, settlement};
use us_ring::Position;

use crate::standby::settle::Doubt;
use crate::state;
use crate::thread::{self, RingMemory};

/// Those of one promotion. The poller's, while nobody acts.
pub struct Unsettled<'a> {
    header: &'a SegmentHeader,
    count: u32,
}

impl<'a> Unsettled<'a> {
    /// None yet.
    pub fn new(header: &'a SegmentHeader) -> Unsettled<'a> {
        Unsettled { header, count: 0 }
    }

    /// How many.
    pub fn count(&self) -> u32 {
        self.count
    }

    /// One more, after all has been done with it that will be. `tail` is where the log of its thread ended before.
    pub fn add(&mut self, doubt: &Doubt, tail: u64) {
        let Some(kept) = self.next() else { return };
        kept.call.store(doubt.row.nr.into(), Ordering::Relaxed);
        kept.fd.store(doubt.args.fd, Ordering::Relaxed);
        kept.guest_tid.store(state::entry(doubt.slot).guest_tid.load(Ordering::Relaxed), Ordering::Relaxed);
        kept.outcome.store(outcome(doubt.slot, tail), Ordering::Relaxed);
        let name = u128::from_le_bytes(thread::shared(doubt.slot).place.name());
        kept.name[0].store(name as u64, Ordering::Relaxed);
        kept.name[1].store((name >> 64) as u64, Ordering::Relaxed);
    }

    /// A descriptor that some call has made, and that stays open.
    pub fn add_descriptor(&mut self, fd: i32) {
        let Some(kept) = self.next() else { return };
        kept.call.store(settlement::NO_CALL, Ordering::Relaxed);
        kept.fd.store(fd, Ordering::Relaxed);
    }

    /// Counts one; its place, if it is one of the first.
    fn next(&mut self) -> Option<&'a UnsettledCall> {
        let at = self.count as usize;
        self.count += 1;
        if at < UNSETTLED_KEPT { self.header.unsettled_calls.get(at) } else { None }
    }
}

/// What its thread finds: settling has appended a `Return` at `tail`, or nothing.
fn outcome(slot: u32, tail: u64) -> u32 {
    if tail_of(slot) == tail {
        return settlement::AGAIN;
    }
    // SAFETY: in a mapped ring, where this thread has appended it. Nobody writes there before a thread is live.
    let appended = unsafe { RingMemory::of(slot).at(tail).cast::<Header>().read() };
    if appended.flags & RETURN_PARTIAL != 0 { settlement::SHORT } else { settlement::DONE }
}

/// Where the log of a slot ends.
pub fn tail_of(slot: u32) -> u64 {
    state::entry(slot).tail.0.acquire()
}
