//! How far ahead of its standby a primary's thread runs: as far as the standby can come after in a few milliseconds.
//!
//! What is not applied at the primary's death is what a client waits for. A full ring is a tenth of a second of that, and
//! where both copies share busy processors every ring is full: the primary is the faster one, for a standby's threads wait
//! for each other's events. So a thread that is a millisecond or two ahead lets its standby come nearer. It costs no
//! throughput that a full ring would not have cost a moment later.
//!
//! It is a wish, not a bound: a standby that does not move at all is not waited for. Only a full ring is
//! ([`Thread::reserve`]).

use core::sync::atomic::{AtomicU64, Ordering};

use us_abi::{RING_STEP, SegmentHeader};
use us_order::pace::{LEAP_BYTES, POOL_MIN, bounds, pool};
use us_ring::Position;

use crate::{raw, seats, state};

mod wait;

use wait::Waiting;

const _: () = assert!(LEAP_BYTES == RING_STEP as u64);

/// How long a standby of which nothing moves is waited for, ns.
const PATIENCE_NS: u64 = 10_000_000;
/// Longest wait at one mark, ns: where the thread's own copy computes, for example.
const WAIT_MAX_NS: u64 = 50_000_000;
/// To look at the ring of a slot takes so long, ns, and to look at what has been applied of it ten times as long: one part in
/// four of a processor's time, and one in a hundred, goes into that at the most.
const LOOK_AT_SLOT_NS: u64 = 25;

/// What a primary's thread knows of its lead, and of waits that were for nothing.
#[derive(Clone, Copy, Debug, Default)]
pub struct Pace {
    lead: us_order::pace::Pace,
    /// What had been applied, of all threads, when the standby did not move while it was waited for: it is stopped, or gets
    /// no processor.
    still: u64,
    /// Where this thread's own copy stood when others moved and it did not: it computes.
    busy: u64,
}

impl Pace {
    /// Of a thread whose ring is empty at this position.
    pub const fn at(position: u64) -> Pace {
        Pace { lead: us_order::pace::Pace::at(position), still: u64::MAX, busy: u64::MAX }
    }

    /// All zero: of a thread that has no ring.
    pub const fn unused() -> Pace {
        Pace { lead: us_order::pace::Pace::unused(), still: 0, busy: 0 }
    }

    /// Bytes that the thread may write, one event of `bytes` among them, before the lead is to be counted again.
    pub fn stretch(&self, bytes: usize) -> u64 {
        let Some(header) = state::header() else { return u64::MAX };
        // A read reserves what it may get, which is seldom what it gets.
        self.lead.stretch(threads(header), POOL.load(Ordering::Relaxed)) + bytes as u64
    }
}

/// Events that all threads may be ahead together.
static POOL: AtomicU64 = AtomicU64::new(POOL_MIN);

/// The group's lead, ns: before there are two copies.
pub fn set_lead(lead_ns: u64) {
    state::LEAD_NS.store(lead_ns, Ordering::Relaxed);
    POOL.store(bounds(lead_ns).0, Ordering::Relaxed);
}

/// Events that the standby has applied. Its positions would not do: they leap where a ring goes back to its beginning.
fn applied(header: &SegmentHeader) -> u64 {
    let entries = (0..header.slots.load(Ordering::Relaxed)).map(state::entry);
    let counts = entries.flat_map(|entry| entry.events.iter().chain([&entry.begun]));
    counts.map(|count| count.load(Ordering::Relaxed)).sum()
}

/// How much the standby applies in a time, taken by who looks for the others as well.
struct Learning {
    start_ns: u64,
    events: u64,
}

/// When that was asked last, ns.
static LEARNT_NS: AtomicU64 = AtomicU64::new(0);

impl Learning {
    /// From now on, unless it has been asked a moment ago.
    fn begin(header: &SegmentHeader, now_ns: u64) -> Option<Learning> {
        let pause_ns = threads(header) * LOOK_AT_SLOT_NS * 1000;
        if now_ns.wrapping_sub(LEARNT_NS.load(Ordering::Relaxed)) < pause_ns {
            return None;
        }
        LEARNT_NS.store(now_ns, Ordering::Relaxed);
        Some(Learning { start_ns: now_ns, events: applied(header) })
    }

    /// What the standby has applied while it was waited for says how far it may be behind. `had_all`: it came to the end of what
    /// the waiting thread had written, and may be quicker than that.
    fn end(&self, header: &SegmentHeader, now_ns: u64, had_all: bool) {
        // A new segment's counts begin anew.
        if let Some(new) = applied(header).checked_sub(self.events) {
            let lead_ns = state::LEAD_NS.load(Ordering::Relaxed);
            let old = POOL.load(Ordering::Relaxed);
            POOL.store(pool(old, new, now_ns - self.start_ns, had_all, lead_ns), Ordering::Relaxed);
        }
    }
}

fn threads(header: &SegmentHeader) -> u64 {
    u64::from(header.slots.load(Ordering::Relaxed)).max(1)
}

/// Lets the standby come nearer to the thread of this slot, which has written up to `at`, and so many events; if it is time for
/// that. Given up once the thread does not record any more. How long it has waited, ns.
pub fn keep(pace: &mut Pace, slot: u32, at: u64, written: u64, records: impl Fn() -> bool) -> u64 {
    let Some(header) = state::header() else { return 0 };
    let (threads, pool) = (threads(header), POOL.load(Ordering::Relaxed));
    let Some(due) = pace.lead.count(at, written, threads, pool) else { return 0 };
    let head = || seats::slowest(slot).unwrap_or(u64::MAX);
    let first = head();
    if first >= due || first == pace.busy {
        return 0;
    }
    let start = raw::now_ns();
    let (before, lead) = standby_lately(header, start);
    if before == pace.still || pace.lead.goes_on(lead, at - first, threads, pool) {
        return 0;
    }
    // One long wait, and not one at every mark.
    let enough = pace.lead.before_last();
    // Its poller may be napping for longer than this thread is going to wait.
    raw::futex_wake_shared(&header.command.0);
    let mut waiting = Waiting::begin(slot, enough, start);
    let mut learning = None;
    loop {
        if waiting.looks() && learning.is_none() {
            learning = Learning::begin(header, waiting.now_ns);
        }
        waiting.wait();
        let (head, now) = (head(), waiting.now_ns);
        if !records() {
            return now - start;
        }
        if head >= enough {
            if let Some(learning) = learning {
                learning.end(header, now, head >= at);
            }
            return now - start;
        }
        let (so_far, moved_ns) = waiting.look(header);
        if now.saturating_sub(moved_ns.max(start)) > PATIENCE_NS {
            pace.still = so_far;
            return now - start;
        }
        if now - start > WAIT_MAX_NS {
            pace.busy = head;
            return now - start;
        }
    }
}

/// What [`standby`] said last, and when, ns. Who reads them while another writes may have two that do not belong together: a
/// thread goes on, or waits, at the next mark instead.
static LATELY: [AtomicU64; 3] = [const { AtomicU64::new(0) }; 3];

/// As [`standby`], asked now or a moment ago: each thread asks, and there may be thousands.
fn standby_lately(header: &SegmentHeader, now_ns: u64) -> (u64, u64) {
    let [applied, lead, then_ns] = &LATELY;
    if now_ns.wrapping_sub(then_ns.load(Ordering::Relaxed)) < threads(header) * LOOK_AT_SLOT_NS * 4 {
        return (applied.load(Ordering::Relaxed), lead.load(Ordering::Relaxed));
    }
    let new = standby(header);
    applied.store(new.0, Ordering::Relaxed);
    lead.store(new.1, Ordering::Relaxed);
    then_ns.store(now_ns, Ordering::Relaxed);
    new
}

/// What the standbys have applied, of all threads: a number that changes as long as one does anything. And the bytes that the
/// last is behind, or more: where a ring has gone back to its beginning there are bytes without events.
fn standby(header: &SegmentHeader) -> (u64, u64) {
    let slots = header.slots.load(Ordering::Acquire);
    let followers = seats::followers();
    (0..slots).fold((0, 0), |(applied, lead), slot| {
        // The heads first: they are never past a tail that is read later.
        let heads = followers.clone().map(|seat| seats::head_of(seat, slot).acquire());
        let (sum, last) =
            heads.fold((0, u64::MAX), |(sum, last), head| (u64::wrapping_add(sum, head), last.min(head)));
        let behind = state::entry(slot).tail.0.acquire().saturating_sub(last).min(RING_STEP as u64);
        (u64::wrapping_add(applied, sum), lead + behind)
    })
}
