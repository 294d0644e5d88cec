//! The rings of a segment as files: the supervisor reads and writes them by `pread` and `pwrite`, and maps only their
//! heads and tails.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicU64, Ordering};

use rustix::fs::OFlags;
use us_abi::{EVENT_ALIGN, EventKind, Header, RING_BYTES, RING_STEP, RINGS_OFFSET};

use crate::dir::Dir;
use crate::error::Error;
use crate::segment::Segment;

/// A segment with its rings.
#[derive(Debug)]
pub struct Rings {
    /// Header and thread table.
    pub segment: Segment,
    file: File,
}

fn place(slot: usize, position: u64) -> (u64, usize) {
    let at = position as usize % RING_BYTES;
    ((RINGS_OFFSET + slot * RING_BYTES + at) as u64, RING_BYTES - at)
}

impl Rings {
    /// The rings of a segment that is mapped already.
    ///
    /// # Errors
    /// When its file cannot be opened.
    pub fn new(segment: Segment, dir: &Dir, name: &str) -> Result<Rings, Error> {
        let file = dir.file(name, OFlags::RDWR);
        Ok(Rings { segment, file: file.map_err(|cause| Error::file("open", dir.at(name), cause))? })
    }

    /// Published and not applied yet, of a replay: where it begins and ends, bytes since the start.
    pub fn waiting(&self, slot: usize) -> (u64, u64) {
        let entry = self.segment.thread(slot);
        between(&entry.head.0, &entry.tail.0)
    }

    /// Published and not taken yet, of a recorded process.
    pub fn untaken(&self, slot: usize) -> (u64, u64) {
        let entry = self.segment.thread(slot);
        between(&entry.taken.0, &entry.tail.0)
    }

    /// Whether what has been read from `from` on was still the log: a producer that waits for us no longer may have
    /// written over it, up to an event beyond its tail.
    pub fn is_intact(&self, slot: usize, from: u64) -> bool {
        let tail = self.segment.thread(slot).tail.0.load(Ordering::Acquire);
        tail + 2 * RING_STEP as u64 <= from + RING_BYTES as u64
    }

    /// Copies bytes of a ring.
    ///
    /// # Errors
    /// When the file cannot be read.
    pub fn read(&self, slot: usize, from: u64, to: &mut [u8]) -> io::Result<()> {
        let (at, before_end) = place(slot, from);
        let (first, rest) = to.split_at_mut(before_end.min(to.len()));
        self.file.read_exact_at(first, at)?;
        self.file.read_exact_at(rest, place(slot, 0).0)
    }

    /// Gives everything before `to` back to the producer.
    pub fn release(&self, slot: usize, to: u64) {
        self.segment.thread(slot).taken.0.store(to, Ordering::Release);
    }

    /// A recorder is to take what comes from here on; what is there already has been written down. Before anybody publishes.
    pub fn is_taken_from_here(&self) {
        for slot in 0..self.segment.slots() {
            self.release(slot, self.segment.thread(slot).tail.0.load(Ordering::Acquire));
        }
        self.segment.header().recorder.0.store(us_abi::recorder::TAKES, Ordering::Release);
    }

    /// Bytes that may be written to a ring now.
    pub fn room(&self, slot: usize) -> usize {
        let entry = self.segment.thread(slot);
        let used = entry.tail.0.load(Ordering::Acquire).wrapping_sub(entry.head.0.load(Ordering::Acquire));
        RING_BYTES.saturating_sub(used as usize)
    }

    /// Writes over a piece of the segment's head.
    ///
    /// # Errors
    /// When the file cannot be written.
    pub fn write_head(&self, at: usize, bytes: &[u8]) -> io::Result<()> {
        self.file.write_all_at(bytes, at as u64)
    }

    /// Writes whole events, for which there is room, and publishes them.
    ///
    /// # Errors
    /// When the file cannot be written: the file system is full.
    pub fn write(&self, slot: usize, events: &[u8]) -> io::Result<()> {
        let entry = self.segment.thread(slot);
        let tail = entry.tail.0.load(Ordering::Acquire);
        let (at, before_end) = place(slot, tail);
        let (first, rest) = events.split_at(before_end.min(events.len()));
        self.file.write_all_at(first, at)?;
        self.file.write_all_at(rest, place(slot, 0).0)?;
        entry.tail.0.store(tail + events.len() as u64, Ordering::Release);
        Ok(())
    }
}

/// From where to where, as two processes say that may say anything.
fn between(from: &AtomicU64, to: &AtomicU64) -> (u64, u64) {
    let from = from.load(Ordering::Acquire);
    (from, to.load(Ordering::Acquire).clamp(from, from.saturating_add(RING_BYTES as u64)))
}

/// The bytes that the event at the start of `bytes` takes, and its kind; `None` if it is not whole.
pub fn first_event(bytes: &[u8]) -> Option<(usize, u8)> {
    let length = u32::from_le_bytes(bytes.get(4..8)?.try_into().ok()?);
    let size = Header::size(length);
    (size <= bytes.len()).then(|| (size, bytes[0]))
}

/// An event as it lies in a ring.
pub fn event(kind: EventKind, flags: u8, payload: &[u8]) -> Vec<u8> {
    let mut bytes = Header::word(kind, flags, 0, payload.len() as u32).to_le_bytes().to_vec();
    bytes.extend_from_slice(&us_abi::NO_TICKET.to_le_bytes());
    bytes.extend_from_slice(payload);
    bytes.resize(bytes.len().next_multiple_of(EVENT_ALIGN), 0);
    bytes
}
