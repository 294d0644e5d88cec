//! A thread's two ends of its ring: of the log that it writes, and of the one that it follows.

use core::sync::atomic::{AtomicU64, Ordering};

use us_abi::RING_BYTES;
use us_ring::{Consumer, Position, Producer};

use crate::pace::Pace;
use crate::thread::ring::RingMemory;
use crate::{seats, state};

/// Both ends. One of them is in use, by the mode of the copy.
pub struct Ends {
    /// The writing end.
    pub producer: Producer,
    /// The reading end.
    pub consumer: Consumer,
    /// The ring's bytes.
    pub ring: RingMemory,
    /// What the reading end publishes: how far this copy has come.
    pub head: *const AtomicU64,
    /// Bytes of the event handed out by `next` and not yet given back.
    pub open: usize,
    /// How far the writing end is ahead of the standby.
    pub pace: Pace,
    /// Signals that come behind the `Return` which was taken last, as a standby.
    pub announced: u8,
}

impl Ends {
    /// Of no ring.
    pub(super) const fn unused() -> Ends {
        Ends {
            producer: Producer::new(0, 0),
            consumer: Consumer::new(0),
            ring: RingMemory(core::ptr::null_mut()),
            head: core::ptr::null(),
            open: 0,
            pace: Pace::unused(),
            announced: 0,
        }
    }

    /// Points both ends at a slot's ring, at the positions where its last user left them.
    pub(super) fn attach(&mut self, slot: u32) {
        let own = seats::head(slot);
        let (tail, head) = (state::entry(slot).tail.0.acquire(), own.acquire());
        self.ring = RingMemory::of(slot);
        self.head = own;
        let window = state::LAG_LIMIT.load(Ordering::Relaxed).min(RING_BYTES as u64);
        self.producer = Producer::new(tail, window);
        self.pace = Pace::at(tail);
        self.consumer = Consumer::new(head);
    }
}
