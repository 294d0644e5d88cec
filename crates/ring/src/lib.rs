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
use us_abi::{EVENT_ALIGN, RING_BYTES, RING_NEAR, RING_PIECE, RING_STEP};

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

/// Who reads a ring: each by its position, or `None` for one that holds nobody up.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub struct Readers {
    /// The slowest of the standbys that follow.
    pub standby: Option<u64>,
    /// The recorder.
    pub recorder: Option<u64>,
}

impl Readers {
    /// The position behind which the producer must not write. `None` if nobody reads.
    #[inline]
    pub fn slowest(self) -> Option<u64> {
        match (self.standby, self.recorder) {
            (Some(one), Some(other)) => Some(one.min(other)),
            (one, other) => one.or(other),
        }
    }
}

/// Every event from `at` up to `tail`, with its position: of a ring in which nobody writes or frees what lies between them.
pub fn events(memory: impl Memory, mut at: u64, tail: u64) -> impl Iterator<Item = (u64, Header)> {
    core::iter::from_fn(move || {
        if at >= tail {
            return None;
        }
        let (header, here) = (header_at(&memory, at), at);
        at += Header::size(header.len) as u64;
        Some((here, header))
    })
}

fn header_at(memory: &impl Memory, at: u64) -> Header {
    Header::from_words(memory.get(at), memory.get(at + 8))
}

/// What became of a request for room.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use]
pub enum Room {
    /// There is room.
    Made,
    /// A reader has to free some first.
    Full,
    /// The ring's file system has no memory for it.
    NoMemory,
}

/// The writing end's own knowledge: where it is, and up to where it may write without asking.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub struct Producer {
    /// Position of the next event.
    pub at: u64,
    /// Up to here may be written without asking: the consumer has freed it, and no boundary lies before it.
    pub limit: u64,
    /// Bytes that may lie between the two ends: the ring's size, or less.
    pub window: u64,
    /// Bytes from the ring's beginning on that are known to have memory.
    pub populated: usize,
    /// Events published.
    pub events: u64,
}

impl Producer {
    /// A producer that continues at `tail`, and lets at most `window` bytes lie between the two ends. It asks for room before its
    /// first event: nobody knows yet who reads, and what memory there is.
    pub const fn new(tail: u64, window: u64) -> Producer {
        Producer { at: tail, limit: tail, window, populated: 0, events: 0 }
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

    /// Whether a reader that is at `head` leaves no room for `bytes`.
    pub const fn is_held_by(&self, head: u64, bytes: usize) -> bool {
        self.at + bytes as u64 > head + self.window
    }

    /// Moves the limit so far that `bytes` fit, if the slowest reader, at `head`, allows it; at most `lead` bytes ahead. Where the
    /// event would cross a boundary and that reader keeps up, the ring first goes back to its beginning; the second value is the
    /// bytes that it left out for that.
    ///
    /// `back` puts memory behind a part of the ring, of which it gets the first byte, counted from the ring's beginning, and
    /// the length. Nothing is written where there is none.
    pub fn make_room(
        &mut self,
        bytes: usize,
        head: u64,
        lead: u64,
        (memory, tail): (&mut impl Memory, &impl Position),
        mut back: impl FnMut(usize, usize) -> bool,
    ) -> (Room, u64) {
        let mut skipped = 0;
        if let Some(distance) = self.way_back(bytes, head) {
            // Its place may be the first of a page.
            if !self.populate(EVENT_ALIGN, &mut back) {
                return (Room::NoMemory, 0);
            }
            self.go_back(distance, memory, tail);
            skipped = distance;
        }
        self.extend(bytes, head);
        self.limit = self.limit.min(self.at.saturating_add(lead));
        let room = match self.fits(bytes) {
            false => Room::Full,
            true if self.populate(bytes, &mut back) => Room::Made,
            true => Room::NoMemory,
        };
        (room, skipped)
    }

    /// Where an event of `bytes` would cross a boundary, and the slowest consumer, at `head`, keeps up: the bytes by which the
    /// ring then goes back to its beginning. The memory in use stays small and warm in the cache, while the whole ring is there
    /// for a consumer that falls behind.
    ///
    /// Until the boundary the limit allows writing, so that the skip itself has a place.
    fn way_back(&mut self, bytes: usize, head: u64) -> Option<u64> {
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
    fn go_back(&mut self, distance: u64, memory: &mut impl Memory, tail: &impl Position) {
        let rest = distance - EVENT_ALIGN as u64;
        memory.put(self.at, Header::word(EventKind::Skip, 0, 0, rest as u32));
        memory.put(self.at + 8, NO_TICKET);
        self.publish(distance as usize, tail);
    }

    /// Moves the limit as far as the slowest consumer, at `head`, and the next boundary allow.
    fn extend(&mut self, bytes: usize, head: u64) {
        let mut boundary = self.boundary();
        if self.crosses(bytes, boundary) {
            // The ring does not go back here.
            boundary += RING_STEP as u64;
        }
        self.limit = (boundary - EVENT_ALIGN as u64).min(head + self.window);
    }

    /// Makes sure that there is memory behind the next `bytes` before they are written: a file system that is full would kill
    /// the guest at its first event otherwise. The limit stays within what there is.
    fn populate(&mut self, bytes: usize, back: &mut impl FnMut(usize, usize) -> bool) -> bool {
        let start = self.at as usize & (RING_BYTES - 1);
        let end = (start + bytes).next_multiple_of(RING_PIECE).min(RING_BYTES);
        if end > self.populated {
            if !back(self.populated, end - self.populated) {
                // Whoever asks again must not take the limit's word for it.
                self.limit = self.at;
                return false;
            }
            self.populated = end;
        }
        if self.populated < RING_BYTES {
            self.limit = self.limit.min(self.at + (self.populated - start) as u64);
        }
        true
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
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
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

    /// The header of the event at the front, behind whatever says nothing. `None` if there is none by now.
    pub fn front(
        &mut self,
        memory: &impl Memory,
        tail: &impl Position,
        head: &impl Position,
    ) -> Option<Header> {
        while self.ready() || self.ready_after_refresh(tail) {
            let header = header_at(memory, self.at);
            if !self.passes(&header, head) {
                return Some(header);
            }
        }
        None
    }

    /// Gives the event at the front back at once, if it says nothing. Whether it did.
    #[inline(always)]
    pub fn passes(&mut self, header: &Header, head: &impl Position) -> bool {
        let is_skip = header.kind == EventKind::Skip as u8;
        if is_skip {
            self.release(Header::size(header.len), head);
        }
        is_skip
    }

    /// Gives the applied event's `bytes` back to the producer.
    #[inline(always)]
    pub fn release(&mut self, bytes: usize, head: &impl Position) {
        self.at += bytes as u64;
        head.release(self.at);
    }
}
