//! How far ahead of its standby may a primary's thread run before it lets that come nearer?
//!
//! All threads together may be as many events ahead as their standby applies in the time of a lead, one of them half of that. How many
//! these are is measured ([`pool`]): an event of a server's takes the better part of a microsecond, one of a lock ten nanoseconds.
//! To look at the others costs a cache miss each, so a thread looks when it has used up a part of what it has
//! whatever the others do, and is told then how far it may go without another look.

/// Time that a standby may need for what it has not applied, ns, if nothing else is said.
pub const LEAD_NS: u64 = 2_000_000;
/// The same in microseconds, as a group's configuration has it.
pub const LEAD_US: u32 = (LEAD_NS / 1000) as u32;
/// The least that all threads together may be ahead, events: what they are before anything has been measured.
pub const POOL_MIN: u64 = 2048;
/// The most: what a standby applies of a lock's in a lead. With the part of a ring that stays in a cache (a quarter of that) both
/// copies of a program that does nothing but lock slept in turn, and a lock cost twice as much.
pub const POOL_MAX: u64 = 131_072;

/// The least, and the most, with a lead of so many ns.
pub fn bounds(lead_ns: u64) -> (u64, u64) {
    let part = |events: u64| (events * lead_ns / LEAD_NS).max(256);
    (part(POOL_MIN), part(POOL_MAX))
}

/// The least that one thread may be ahead whatever the others do, however many there are.
pub const EVENTS_MIN: u64 = 96;
/// Bytes of a common event in a ring.
pub const EVENT_BYTES: u64 = 24;
/// Bytes that are copied in the time of an event.
const LARGE_BYTES: u64 = 4096;
/// So many bytes between two looks, and more, hold few events: the ring has gone back to its beginning.
pub const LEAP_BYTES: u64 = 512 << 10;
/// The most between two looks, bytes. A thread whose events have been large may have small ones from now on: two thousand of a
/// server's, which its standby applies in a millisecond.
pub const STRETCH_MAX: u64 = 128 << 10;
/// Marks that a thread keeps on its way: where it was when so many parts of its allowance were used up.
pub const MARKS: usize = 4;

/// Events of all threads together that may be unapplied, after a wait: in `ns` the standby has applied `applied`. Where it
/// `had_all` before the end, it could have applied more; it was given no more. A rate that is taken over a time in which the
/// standby had caught up says what the program made, and a program that rests now and then would be bound by its rest.
pub fn pool(old: u64, applied: u64, ns: u64, had_all: bool, lead_ns: u64) -> u64 {
    let new = (u128::from(applied) * u128::from(lead_ns) / u128::from(ns.max(1))) as u64;
    let new = match had_all {
        true => old.max(new),
        // One who sleeps is woken first, and may wait for a processor: a short wait says less than a long one.
        false if new < old && ns < lead_ns / 4 => old.midpoint(new),
        false => new,
    };
    let (min, max) = bounds(lead_ns);
    new.clamp(min, max)
}

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
    /// Bytes that an event of this thread's has, on the average.
    event_bytes: u64,
    /// Marks at which nothing is to be looked at: the others had left so much of what all together may have.
    free: u64,
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
            event_bytes: EVENT_BYTES,
            free: 0,
        }
    }

    /// All zero: of a thread that has no ring.
    pub const fn unused() -> Pace {
        Pace { marks: [0; MARKS], next: 0, bytes: 0, events: 0, used: 0, event_bytes: 0, free: 0 }
    }

    /// Counts what has been written since the last time, up to the position `at`, and in all `events` published; the mark that
    /// the standby should have passed, if it is time to look.
    pub fn count(&mut self, at: u64, events: u64, threads: u64, pool: u64) -> Option<u64> {
        let bytes = (at - self.bytes).min(LEAP_BYTES);
        let new = events - self.events + bytes / LARGE_BYTES;
        self.used += new;
        if new != 0 && bytes < LEAP_BYTES {
            self.event_bytes = (self.event_bytes * 7 + bytes / new).div_ceil(8);
        }
        (self.bytes, self.events) = (at, events);
        if self.used < allowance(threads, pool) / MARKS as u64 {
            return None;
        }
        self.used = 0;
        let due = core::mem::replace(&mut self.marks[self.next], at);
        self.next = (self.next + 1) % MARKS;
        if self.free != 0 {
            self.free -= 1;
            return None;
        }
        Some(due)
    }

    /// The thread has not passed its mark. Whether it may go on nevertheless, where all together are `lead` bytes ahead and
    /// this one `own`: it gets its share of what is left. Threads of a server take turns in being busy, and who has more to
    /// do than the others need not wait for what those leave unused.
    pub fn goes_on(&mut self, lead: u64, own: u64, threads: u64, pool: u64) -> bool {
        let [lead, own] = [lead, own].map(|bytes| bytes / self.event_bytes.max(1));
        let all = pool.saturating_sub(lead) / threads;
        self.free = all.min(most(pool).saturating_sub(own)) * MARKS as u64 / allowance(threads, pool);
        if self.free == 0 {
            return false;
        }
        // The first of them begins here.
        self.free -= 1;
        true
    }

    /// Bytes that it may write before its lead is to be counted again: the part of its allowance that is between two marks, in
    /// events as large as its own are.
    pub fn stretch(&self, threads: u64, pool: u64) -> u64 {
        let event = self.event_bytes.clamp(EVENT_BYTES, LARGE_BYTES);
        let events = allowance(threads, pool) / MARKS as u64;
        (events * event).min((events * EVENT_BYTES).max(STRETCH_MAX))
    }

    /// The mark before the last one.
    pub fn before_last(&self) -> u64 {
        self.marks[(self.next + MARKS - 2) % MARKS]
    }
}

/// Events that one thread of so many may be ahead whatever the others do.
pub fn allowance(threads: u64, pool: u64) -> u64 {
    (pool / threads).clamp(EVENTS_MIN, most(pool))
}

/// The most of one thread.
const fn most(pool: u64) -> u64 {
    pool / 4 * 3
}

#[cfg(test)]
mod tests {
    extern crate std;
    use super::*;
    use std::vec::Vec;

    const BUSY: u64 = 16;

    fn marks_of(pace: &mut Pace, from: u64, steps: u64, bytes: u64) -> Vec<u64> {
        (from + 1..=from + steps)
            .filter_map(|event| pace.count(event * bytes, event, BUSY, POOL_MIN))
            .collect()
    }

    #[test]
    fn the_pool_is_what_the_standby_applies_in_the_time() {
        // Of a server's events 0.6 us each; of a lock's 10 ns, and no more than the cache takes.
        assert_eq!(pool(POOL_MIN, 5_000, 3_000_000, false, LEAD_NS), 3_333);
        assert_eq!(pool(POOL_MIN, 400_000, 4_000_000, false, LEAD_NS), POOL_MAX);
        assert_eq!(pool(POOL_MIN, 10, 4_000_000, false, LEAD_NS), POOL_MIN);
        // From locks to requests: at once, or in ten short waits.
        assert_eq!(pool(POOL_MAX, 5_000, 3_000_000, false, LEAD_NS), 3_333);
        let mut now = POOL_MAX;
        for _ in 0..10 {
            now = pool(now, 500, 300_000, false, LEAD_NS);
        }
        assert!((3_333..3_500).contains(&now), "{now}");
    }

    #[test]
    fn a_standby_that_had_nothing_more_to_apply_is_not_slow() {
        assert_eq!(pool(10_000, 10, 4_000_000, true, LEAD_NS), 10_000);
        assert_eq!(pool(10_000, 1_000, 100_000, true, LEAD_NS), 20_000);
    }

    #[test]
    fn a_longer_lead_is_more_events() {
        assert_eq!(bounds(LEAD_NS), (POOL_MIN, POOL_MAX));
        assert_eq!(bounds(LEAD_NS / 10), (256, POOL_MAX / 10));
        assert_eq!(pool(POOL_MIN, 5_000, 3_000_000, false, 5 * LEAD_NS), 16_666);
    }

    #[test]
    fn a_mark_is_due_when_the_allowance_is_used_up() {
        let due = marks_of(&mut Pace::at(0), 0, 6 * 32, 32);
        assert_eq!(allowance(BUSY, POOL_MIN), 128);
        assert_eq!(due, [0, 0, 0, 0, 32 * 32, 64 * 32]);
    }

    #[test]
    fn large_events_count_by_their_bytes() {
        let mut pace = Pace::at(0);
        assert_eq!(pace.count(16 << 10, 1, 1000, POOL_MIN), None);
        assert_eq!(pace.used, 5);
        pace.used = 23;
        assert_eq!(pace.count(32 << 10, 2, 1000, POOL_MIN), Some(0));
    }

    #[test]
    fn a_thread_with_large_events_is_not_asked_at_each_of_them() {
        let mut pace = Pace::at(0);
        assert_eq!(pace.stretch(BUSY, POOL_MIN), 32 * EVENT_BYTES);
        // A server of files: eight events and 10 KiB a request.
        for request in 1..100u64 {
            pace.count(request * 10_500, request * 8, 1, POOL_MIN);
        }
        assert_eq!(pace.stretch(1, POOL_MIN), STRETCH_MAX);
        // Of many small ones as many as before, however much they may be.
        assert_eq!(Pace::at(0).stretch(1, POOL_MAX), 24_576 * EVENT_BYTES);
    }

    #[test]
    fn a_busy_thread_uses_what_the_others_leave() {
        let goes_on = |lead: u64, own: u64, threads| {
            let mut pace = Pace::at(0);
            let goes_on = pace.goes_on(lead * EVENT_BYTES, own * EVENT_BYTES, threads, POOL_MIN);
            (goes_on, pace.free)
        };
        assert_eq!(goes_on(128, 128, BUSY), (true, 2));
        assert_eq!(goes_on(1024, 128, BUSY), (true, 1));
        assert_eq!(goes_on(2000, 128, BUSY), (false, 0));
        assert_eq!(goes_on(1600, 1600, BUSY), (false, 0));
        assert_eq!(goes_on(1536, 1536, 1), (false, 0));
    }

    #[test]
    fn what_was_left_is_used_up_at_the_next_marks() {
        let mut pace = Pace::at(0);
        assert_eq!(marks_of(&mut pace, 0, 128, 32).len(), 4);
        assert!(pace.goes_on(128 * 32, 128 * 32, BUSY, POOL_MIN));
        let free = pace.free as usize;
        assert_eq!(marks_of(&mut pace, 128, 128, 32).len(), 4 - free);
    }

    #[test]
    fn however_they_take_turns_all_together_stay_within_what_they_may_have() {
        // Nothing is applied: each of the threads runs until it is told to wait.
        for threads in [1u64, 2, 5, 16] {
            let mut paces: Vec<(Pace, u64)> = (0..threads).map(|_| (Pace::at(0), 0)).collect();
            let mut waits = std::vec![false; threads as usize];
            while waits.contains(&false) {
                for at in 0..threads as usize {
                    // One of them is the busiest.
                    let steps = if at == 0 { 40 } else { 10 };
                    for _ in 0..steps {
                        let lead: u64 = paces.iter().map(|(_, events)| events * EVENT_BYTES).sum();
                        let (pace, events) = &mut paces[at];
                        if waits[at] {
                            break;
                        }
                        *events += 1;
                        waits[at] = pace
                            .count(*events * EVENT_BYTES, *events, threads, POOL_MIN)
                            .is_some_and(|due| {
                                // At first marks are those of the beginning, which has been applied.
                                due != 0 || *events > allowance(threads, POOL_MIN)
                            })
                            && !pace.goes_on(lead, *events * EVENT_BYTES, threads, POOL_MIN);
                    }
                }
            }
            let all: u64 = paces.iter().map(|(_, events)| *events).sum();
            assert!(all <= POOL_MIN + threads * allowance(threads, POOL_MIN), "{threads} threads: {all}");
            assert!(paces.iter().all(|(_, events)| *events <= most(POOL_MIN) + allowance(threads, POOL_MIN)));
        }
    }
}
