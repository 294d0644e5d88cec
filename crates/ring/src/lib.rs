//! Lock-free single-producer single-consumer rings over shared memory.
//!
//! The only place that knows how `tail` and `head` order the bytes between them. Positions count bytes
//! since the start and never wrap; memory is addressed by position, and whoever provides [`Memory`]
//! masks it (the runtime maps each ring twice in a row, so an event is always contiguous).
//!
//! Publication: the bytes of an event are written, then `tail` is stored with release; the consumer loads
//! `tail` with acquire, so it sees whole events or none, also when the producer is killed between any two
//! instructions. The consumer stores `head` with release after it has applied the event, and the producer
//! loads it with acquire before it overwrites those bytes.
#![cfg_attr(not(any(test, loom)), no_std)]
#![forbid(unsafe_code)]

use us_abi::event::{EventKind, Header, NO_TICKET};
use us_abi::{EVENT_ALIGN, RING_BYTES, RING_NEAR, RING_STEP};

/// A position shared by the two sides. Implemented by `core`'s `AtomicU64`, and by loom's in its tests.
pub trait Position {
    /// Loads with acquire: everything before the matching store is visible afterwards.
    fn acquire(&self) -> u64;
    /// Stores with release: everything before it is visible to whoever acquires it.
    fn release(&self, value: u64);
}

impl Position for core::sync::atomic::AtomicU64 {
    #[inline(always)]
    fn acquire(&self) -> u64 {
        self.load(core::sync::atomic::Ordering::Acquire)
    }
    #[inline(always)]
    fn release(&self, value: u64) {
        self.store(value, core::sync::atomic::Ordering::Release);
    }
}

/// The bytes of a ring, addressed by position.
pub trait Memory {
    /// Writes eight bytes at a position that is a multiple of eight.
    fn put(&mut self, at: u64, value: u64);
    /// Reads eight bytes at a position that is a multiple of eight.
    fn get(&self, at: u64) -> u64;
}

/// The position behind which the producer must not write, of the readers that are in use: each given as its position, or
/// `None` for one that holds nobody up. `None` if nobody reads.
#[inline]
pub fn slower(one: Option<u64>, other: Option<u64>) -> Option<u64> {
    match (one, other) {
        (Some(one), Some(other)) => Some(one.min(other)),
        (one, other) => one.or(other),
    }
}

/// The writing end's own knowledge: where it is, and up to where it may write without asking.
#[derive(Debug, Clone, Copy, Default)]
pub struct Producer {
    /// Position of the next event.
    pub at: u64,
    /// Up to here may be written without asking: the consumer has freed it, and no boundary lies before it.
    pub limit: u64,
    /// Bytes that may lie between the two ends: the ring's size, or less.
    pub window: u64,
    /// Events published.
    pub events: u64,
}

impl Producer {
    /// A producer that continues at `tail`, with the consumer at `head`.
    pub const fn new(tail: u64, head: u64) -> Producer {
        Producer { at: tail, limit: head + RING_BYTES as u64, window: RING_BYTES as u64, events: 0 }
    }

    /// Whether `bytes` fit, by what is known without touching the consumer's cache line.
    #[inline(always)]
    pub const fn fits(&self, bytes: usize) -> bool {
        self.at + bytes as u64 <= self.limit
    }

    /// The next position behind the current one at which the ring may go back to its beginning.
    const fn boundary(&self) -> u64 {
        (self.at / RING_STEP as u64 + 1) * RING_STEP as u64
    }

    /// Whether an event of `bytes` leaves no place for a skip before the boundary. One that ended just there would be behind it:
    /// a ring of events that are all of one size would never go back.
    const fn crosses(&self, bytes: usize, boundary: u64) -> bool {
        self.at + (bytes + EVENT_ALIGN) as u64 > boundary
    }

    /// Where an event of `bytes` would cross a boundary, and the slowest consumer, at `head`, keeps up: the bytes by which the
    /// ring then goes back to its beginning ([`Producer::go_back`]). The memory in use stays small and warm in the cache, while the
    /// whole ring is there for a consumer that falls behind.
    ///
    /// Until the boundary the limit allows writing, so that the skip itself has a place.
    pub fn way_back(&mut self, bytes: usize, head: u64) -> Option<u64> {
        let boundary = self.boundary();
        let distance = (self.at / RING_BYTES as u64 + 1) * RING_BYTES as u64 - self.at;
        if !self.crosses(bytes, boundary)
            || self.at - head > RING_NEAR as u64
            || distance < 2 * EVENT_ALIGN as u64
        {
            return None;
        }
        self.limit = boundary;
        Some(distance)
    }

    /// Publishes an event that says nothing and is `distance` bytes long, as [`Producer::way_back`] gave it. Only its header is
    /// written.
    pub fn go_back(&mut self, distance: u64, memory: &mut impl Memory, tail: &impl Position) {
        let rest = distance - EVENT_ALIGN as u64;
        memory.put(self.at, Header::word(EventKind::Skip, 0, 0, rest as u32));
        memory.put(self.at + 8, NO_TICKET);
        self.publish(distance as usize, tail);
    }

    /// Moves the limit as far as the slowest consumer, at `head`, and the next boundary allow. Whether `bytes` fit then.
    pub fn extend(&mut self, bytes: usize, head: u64) -> bool {
        let mut boundary = self.boundary();
        if self.crosses(bytes, boundary) {
            // The ring does not go back here.
            boundary += RING_STEP as u64;
        }
        self.limit = (boundary - EVENT_ALIGN as u64).min(head + self.window);
        self.fits(bytes)
    }

    /// Makes the `bytes` from the current position visible. They must have been written.
    #[inline(always)]
    pub fn publish(&mut self, bytes: usize, tail: &impl Position) {
        self.at += bytes as u64;
        self.events += 1;
        tail.release(self.at);
    }

    /// Writes and publishes an event of two words; the caller has made sure that it fits.
    #[inline(always)]
    pub fn push(&mut self, word: u64, ticket: u64, memory: &mut impl Memory, tail: &impl Position) {
        memory.put(self.at, word);
        memory.put(self.at + 8, ticket);
        self.publish(16, tail);
    }
}

/// The reading end's own knowledge: where it is, and how far the producer was when last asked.
#[derive(Debug, Clone, Copy, Default)]
pub struct Consumer {
    /// Position of the next event to apply.
    pub at: u64,
    /// `tail` when it was last read. Kept, because reading it pulls the line that the producer writes
    /// at every event: an eager reader makes the primary several times slower.
    pub known: u64,
}

impl Consumer {
    /// A consumer at `head` that knows nothing of the tail yet.
    pub const fn new(head: u64) -> Consumer {
        Consumer { at: head, known: head }
    }

    /// Whether an event is there, by what is known.
    #[inline(always)]
    pub const fn ready(&self) -> bool {
        self.at < self.known
    }

    /// Whether an event is there, after a look at the producer's position.
    #[inline]
    pub fn ready_after_refresh(&mut self, tail: &impl Position) -> bool {
        self.known = tail.acquire();
        self.ready()
    }

    /// Gives the applied event's `bytes` back to the producer.
    #[inline(always)]
    pub fn release(&mut self, bytes: usize, head: &impl Position) {
        self.at += bytes as u64;
        head.release(self.at);
    }
}
