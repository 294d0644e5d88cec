//! How far ahead of its standby a primary's thread runs: as far as the standby can come after in a few milliseconds.
//!
//! What is not applied at the primary's death is what a client waits for. A full ring is a tenth of a second of that, and
//! where both copies share busy processors every ring is full: the primary is the faster one, for a standby's threads wait
//! for each other's events. So a thread that is some hundred events ahead lets its standby come nearer. It costs no
//! throughput that a full ring would not have cost a moment later.
//!
//! It is a wish, not a bound: a standby that does not move at all is not waited for. Only a full ring is
//! ([`Thread::reserve`]).

use core::sync::atomic::Ordering;

use us_abi::{RING_STEP, SegmentHeader};
use us_ring::{Position, Producer};

use crate::thread::{Mode, Thread};
use crate::{raw, state};

/// Events of all threads together that may be unapplied: a millisecond or two of a standby's work.
const EVENTS: u64 = 2048;
/// The least, and the most, of one thread.
const EVENTS_MIN: u64 = 96;
/// See `EVENTS_MIN`.
const EVENTS_MAX: u64 = 1024;
/// Bytes of a common event in a ring.
const EVENT_BYTES: u64 = 24;
/// Bytes that are copied in the time of an event.
const LARGE_BYTES: u64 = 4096;
/// Marks that a thread keeps on its way: where it was when so many parts of its allowance were used up.
const MARKS: usize = 4;
/// How long a standby of which nothing moves is waited for, ns.
const PATIENCE_NS: u64 = 10_000_000;
/// Longest wait at one mark, ns: where the thread's own copy computes, for example.
const WAIT_MAX_NS: u64 = 50_000_000;
/// Between two looks at a standby that is waited for, ns.
const LOOK_NS: u64 = 20_000;

/// What a primary's thread knows of its lead.
#[derive(Clone, Copy, Debug, Default)]
pub struct Pace {
    /// Positions, the latest one before `next`.
    marks: [u64; MARKS],
    next: usize,
    /// Where the lead was counted last.
    bytes: u64,
    /// Events that had been published then.
    events: u64,
    /// Of the part of the allowance that is in use, in events.
    used: u64,
    /// What had been applied, of all threads, when the standby did not move while it was waited for: it is stopped, or gets
    /// no processor.
    still: u64,
    /// Where this thread's own copy stood when others moved and it did not: it computes.
    busy: u64,
}

impl Pace {
    /// Of a thread whose ring is empty at this position.
    pub const fn at(position: u64) -> Pace {
        Pace {
            marks: [position; MARKS],
            next: 0,
            bytes: position,
            events: 0,
            used: 0,
            still: u64::MAX,
            busy: u64::MAX,
        }
    }

    /// Nothing known yet.
    pub const fn new() -> Pace {
        Pace::at(0)
    }

    /// Counts what has been written since the last time; the mark that the standby should have passed, if it is time
    /// to look.
    fn count(&mut self, producer: &Producer, allowance: u64) -> Option<u64> {
        let bytes = (producer.at - self.bytes).min(RING_STEP as u64);
        self.used += producer.events - self.events + bytes / LARGE_BYTES;
        (self.bytes, self.events) = (producer.at, producer.events);
        if self.used < allowance / MARKS as u64 {
            return None;
        }
        self.used = 0;
        let due = core::mem::replace(&mut self.marks[self.next], producer.at);
        self.next = (self.next + 1) % MARKS;
        Some(due)
    }

    /// The mark before the last one.
    fn before_last(&self) -> u64 {
        self.marks[(self.next + MARKS - 2) % MARKS]
    }
}

/// Events that one thread may be ahead.
fn allowance(header: &SegmentHeader) -> u64 {
    let threads = u64::from(header.slots.load(Ordering::Relaxed)).max(1);
    (EVENTS / threads).clamp(EVENTS_MIN, EVENTS_MAX)
}

/// Bytes that may be written before the lead is to be counted again.
pub fn stretch(bytes: usize) -> u64 {
    let Some(header) = state::header() else { return u64::MAX };
    // A read reserves what it may get, which is seldom what it gets.
    allowance(header) / MARKS as u64 * EVENT_BYTES + bytes as u64
}

/// Lets the standby come nearer, if it is time for that.
pub fn keep(thread: &mut Thread) {
    let Some(header) = state::header() else { return };
    let Some(due) = thread.pace.count(&thread.producer, allowance(header)) else { return };
    let head = || thread.entry().head.0.acquire();
    let first = head();
    if first >= due || first == thread.pace.busy {
        return;
    }
    let before = applied(header);
    if before == thread.pace.still {
        return;
    }
    // One long wait, and not one at every mark.
    let enough = thread.pace.before_last();
    // Its poller may be napping for longer than this thread is going to wait.
    raw::futex_wake_shared(&header.command.0);
    let start = raw::now_ns();
    let mut moved = (start, before);
    loop {
        raw::nap(LOOK_NS);
        let (head, now, so_far) = (head(), raw::now_ns(), applied(header));
        if head >= enough || thread.calls() != Mode::Record {
            return;
        }
        if so_far != moved.1 {
            moved = (now, so_far);
        }
        if now - moved.0 > PATIENCE_NS {
            thread.pace.still = so_far;
            return;
        }
        if now - start > WAIT_MAX_NS {
            thread.pace.busy = head;
            return;
        }
    }
}

/// What the standby has applied, of all threads: a number that changes as long as it does anything.
fn applied(header: &SegmentHeader) -> u64 {
    let slots = header.slots.load(Ordering::Acquire);
    (0..slots).fold(0, |sum, slot| sum.wrapping_add(state::entry(slot).head.0.acquire()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mark_is_due_when_the_allowance_is_used_up() {
        let mut pace = Pace::at(0);
        let mut producer = Producer::new(0, 0);
        let mut due = Vec::new();
        for _ in 0..600 {
            producer.at += 32;
            producer.events += 1;
            due.extend(pace.count(&producer, 400));
        }
        assert_eq!(due, [0, 0, 0, 0, 3200, 6400]);
    }

    #[test]
    fn large_events_count_by_their_bytes() {
        let mut pace = Pace::at(0);
        let producer = Producer { at: 16 << 10, events: 1, ..Producer::new(0, 0) };
        assert_eq!(pace.count(&producer, 24), None);
        assert_eq!(pace.used, 5);
        let producer = Producer { at: 32 << 10, events: 2, ..producer };
        assert_eq!(pace.count(&producer, 24), Some(0));
    }
}
