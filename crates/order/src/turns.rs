//! Do the threads of a program take turns beside their standby, and how long may one of them have its turn?
//!
//! A program whose standby has diverged has races that no lock orders; with turns the order of its loads and stores is
//! repeated as well. They cost it all processors but one, so where they do not help, or where threads mostly wait for one
//! that computes, they rest for a while. The while grows, but nothing is given up for good: a program has phases.

use core::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

/// A standby that has diverged sooner than this counts, ns.
pub const SHORT_LIFE_NS: u64 = 60_000_000_000;
/// One in turns that has diverged sooner than this has gained nothing by them, ns.
const NO_GAIN_NS: u64 = 1_000_000_000;
/// So many of those in a row, and turns rest.
const NO_GAIN: u32 = 4;
/// Processor time that a thread may use up in one turn while another waits, ns. It computes, or it spins on what another one
/// would have to change: the next turn is then taken at its side. With 50 ms a compiler's thread, or a collector of garbage,
/// was passed over again and again and raced with the others; with 200 ms Java and node come to it hardly ever.
pub const COMPUTES_NS: u64 = 200_000_000;
/// The same where processes take turns, ns: what they share they may change at each other's side, and nobody could repeat it.
/// They have doors where they wait for each other, so it is rarely needed.
pub const SHARED_COMPUTES_NS: u64 = 1_000_000_000;
/// In a recording: how long the process that has the turn is looked for, ns, and how long one is waited for that uses no processor.
pub const GONE_NS: u64 = 100_000_000;
/// See [`GONE_NS`].
pub const RECORDED_WAITS_NS: u64 = 10_000_000_000;
/// It grows so many times by [`GROWTH`], each time a thread that was passed over has raced with the others.
const LEVELS: u32 = 1;
const GROWTH: u64 = 4;
/// The time of a clock in which a thread with the turn uses no processor, ns: it waits where the turn is not given back.
const WAITS_NS: u64 = 500_000_000;
/// A thread that has used so little of it, ns, has not run at all.
const RUNS_NS: u64 = 1_000_000;
/// The longest time of a clock, ns: other programs leave it no processor.
const STARVES_NS: u64 = 5_000_000_000;
/// Turns that were passed over may take one part of the time in so many, in which threads wait for them.
const WAIT_PART: u64 = 10;
/// And so much at once, ns, before that is asked.
const WAIT_CREDIT_NS: u64 = 1_000_000_000;
/// The shortest rest, and the longest, ns.
const REST_MIN_NS: u64 = 10_000_000_000;
const REST_MAX_NS: u64 = 600_000_000_000;
/// The bytes of executable memory from which on a program makes its code as it runs: a compiler's, not a trampoline or a
/// regular expression.
pub const MADE_CODE_BYTES: u64 = 256 << 10;

/// Waits of threads, by futex calls of the program's own, from which on it has locks of its own.
pub const OWN_WAITS: u32 = 8;
/// A wait on a condition variable that ends by its time so soon, ns, while another thread computes for half of it, may be one for an
/// interpreter's lock: Python's take 5 ms, Ruby's 100. It is one if the thread waits there again, and has held the mutex meanwhile: it
/// has set a flag, and whoever has the interpreter reads that without a lock.
const ASKS_NS: u64 = 150_000_000;

/// Whether a wait that took `waited_ns` until its time was up, while the process computed for `computed_ns`, may be a question of that kind.
#[must_use]
pub fn may_ask(waited_ns: u64, computed_ns: u64) -> bool {
    waited_ns <= ASKS_NS && computed_ns >= waited_ns / 2
}

/// Whether a thread that others wait for is passed over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Passed {
    /// It comes to a door in time.
    No,
    /// It computes, or spins on what another one would have to change: the next turn is taken at its side, in every copy.
    Over,
    /// It has ended, and its turn with it.
    Gone,
}

/// How far the turns of those who follow the log have come. Each counts to the number of the next one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Behind {
    /// Turns that have begun.
    pub begun: u64,
    /// Turns that have ended, and all before them.
    pub ended: u64,
}

/// Whether the turn with this number may begin in a copy that follows: the one before it has ended, or, where it was
/// taken at the side of that one, has begun.
///
/// The two are read one after the other, `begun` first: a turn that has ended has begun before.
#[inline(always)]
#[must_use]
pub fn is_due(number: u64, passed_over: bool, behind: Behind) -> bool {
    behind.ended >= number || (passed_over && behind.begun >= number)
}

/// What the counts of [`Behind`] come to, at the least, once the turn with this number has begun, or ended. One that
/// was passed over may end behind those that came after it.
#[inline(always)]
#[must_use]
pub const fn after(number: u64) -> u64 {
    number + 1
}

/// What a process knows of its races. One thread at a time may call [`Turns::diverged`] and [`Turns::passed_over`].
#[derive(Debug, Default)]
pub struct Turns {
    races: AtomicBool,
    level: AtomicU32,
    /// Standbys in a row that turns have not helped.
    no_gain: AtomicU32,
    /// Until when turns rest, ns, and how long the last rest was.
    until_ns: AtomicU64,
    rest_ns: AtomicU64,
    /// Waits for turns that were passed over and that no time has made up for, ns, as of `at_ns`.
    waited_ns: AtomicU64,
    at_ns: AtomicU64,
    /// Bytes of executable memory that the program has made.
    made_code: AtomicU64,
    /// Waits by futex calls of the program's own.
    own_waits: AtomicU32,
}

impl Turns {
    /// Of a process of which nothing is known.
    pub const fn new() -> Turns {
        Turns {
            races: AtomicBool::new(false),
            level: AtomicU32::new(0),
            no_gain: AtomicU32::new(0),
            until_ns: AtomicU64::new(0),
            rest_ns: AtomicU64::new(0),
            waited_ns: AtomicU64::new(0),
            at_ns: AtomicU64::new(0),
            made_code: AtomicU64::new(0),
            own_waits: AtomicU32::new(0),
        }
    }

    /// Whether threads take turns beside a standby that is made `now_ns`. Where the user asks for turns, nothing has to be known.
    pub fn are_taken(&self, now_ns: u64, is_asked_for: bool) -> bool {
        (is_asked_for || self.races.load(Ordering::Relaxed))
            && self.until_ns.load(Ordering::Relaxed) <= now_ns
    }

    /// The program has made `bytes` more of executable memory. Whether it is now known to race by that: just-in-time compilers and
    /// the collectors of garbage that come with them are atomics of their own. True once.
    pub fn made_code(&self, bytes: u64) -> bool {
        let before = self.made_code.fetch_add(bytes, Ordering::Relaxed);
        let all = before.saturating_add(bytes);
        before < MADE_CODE_BYTES && all >= MADE_CODE_BYTES && self.races()
    }

    /// A thread of the program waits by a futex call of the program's own. Whether it is now known to race by that: its locks are
    /// atomics of its own, and no door sees who takes one. True once.
    pub fn own_wait(&self) -> bool {
        // The count stays where it is behind that: it must not come round.
        self.own_waits.load(Ordering::Relaxed) < OWN_WAITS
            && self.own_waits.fetch_add(1, Ordering::Relaxed) + 1 == OWN_WAITS
            && self.races()
    }

    /// Whether the program is known to race.
    pub fn is_known(&self) -> bool {
        self.races.load(Ordering::Relaxed)
    }

    /// The program is known to race: its own text has such calls, it has raced in an earlier run, or its threads ask each other by
    /// flags. Or such a wait was interrupted by a signal: without turns no log has an event for that. Whether that is news.
    pub fn races(&self) -> bool {
        !self.races.swap(true, Ordering::Relaxed)
    }

    /// A standby that had lived for `lived_ns` has diverged. Whether it was made for threads `in_turns`, and whether one of them
    /// was passed over meanwhile.
    pub fn diverged(&self, now_ns: u64, lived_ns: u64, in_turns: bool, was_passed_over: bool) {
        if lived_ns >= SHORT_LIFE_NS {
            return self.rest_ns.store(0, Ordering::Relaxed);
        }
        self.races.store(true, Ordering::Relaxed);
        if !in_turns {
            return;
        }
        let no_gain = if lived_ns < NO_GAIN_NS { self.no_gain.load(Ordering::Relaxed) + 1 } else { 0 };
        self.no_gain.store(no_gain, Ordering::Relaxed);
        let level = self.level.load(Ordering::Relaxed);
        if was_passed_over && level < LEVELS {
            self.level.store(level + 1, Ordering::Relaxed);
            // That may be all that was missing.
            self.no_gain.store(0, Ordering::Relaxed);
        } else if was_passed_over || no_gain >= NO_GAIN {
            self.rest(now_ns);
        }
    }

    /// A thread has waited `waited_ns` for a turn that another one did not give back. Whether turns rest from here on: too much of
    /// the program's time goes there.
    pub fn passed_over(&self, now_ns: u64, waited_ns: u64) -> bool {
        let passed_ns = now_ns.saturating_sub(self.at_ns.swap(now_ns, Ordering::Relaxed));
        let left_ns = self.waited_ns.load(Ordering::Relaxed).saturating_sub(passed_ns / WAIT_PART);
        let all_ns = left_ns.saturating_add(waited_ns);
        let is_too_much = all_ns >= WAIT_CREDIT_NS + 2 * self.computes_ns();
        self.waited_ns.store(if is_too_much { 0 } else { all_ns }, Ordering::Relaxed);
        if is_too_much {
            self.rest(now_ns);
        }
        is_too_much
    }

    /// Whether a thread that others have waited for since `clock_ns`, and that has used `cpu_ns` of processor time since then, is
    /// passed over.
    pub fn is_too_long(&self, cpu_ns: u64, clock_ns: u64) -> bool {
        self.computes_too_long(cpu_ns) || clock_ns > WAITS_NS && cpu_ns < RUNS_NS || clock_ns > STARVES_NS
    }

    /// Whether it is for that processor time alone.
    pub fn computes_too_long(&self, cpu_ns: u64) -> bool {
        cpu_ns > self.computes_ns()
    }

    fn computes_ns(&self) -> u64 {
        COMPUTES_NS * GROWTH.pow(self.level.load(Ordering::Relaxed).min(LEVELS))
    }

    fn rest(&self, now_ns: u64) {
        let rest_ns = (self.rest_ns.load(Ordering::Relaxed) * 2).clamp(REST_MIN_NS, REST_MAX_NS);
        self.rest_ns.store(rest_ns, Ordering::Relaxed);
        self.until_ns.store(now_ns.saturating_add(rest_ns), Ordering::Relaxed);
        self.no_gain.store(0, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_turn_waits_for_the_end_of_the_last_or_for_its_beginning() {
        let behind = Behind { begun: 3, ended: 2 };
        assert!(is_due(2, false, behind) && !is_due(3, false, behind) && is_due(3, true, behind));
        assert!(!is_due(after(3), true, behind));
    }

    const MS: u64 = 1_000_000;
    const S: u64 = 1000 * MS;

    #[test]
    fn the_first_short_life_is_enough() {
        let turns = Turns::new();
        assert!(!turns.are_taken(S, false));
        turns.diverged(S, SHORT_LIFE_NS, false, false);
        assert!(!turns.are_taken(S, false), "once in a minute is no reason");
        turns.diverged(S, SHORT_LIFE_NS - 1, false, false);
        assert!(turns.are_taken(S, false));
    }

    #[test]
    fn a_compilers_memory_is_reason_enough_once() {
        let turns = Turns::new();
        assert!(!turns.made_code(64 << 10));
        assert!(!turns.are_taken(S, false));
        assert!(turns.made_code(192 << 10));
        assert!(turns.are_taken(S, false));
        assert!(!turns.made_code(1 << 30));
        assert!(!turns.made_code(u64::MAX / 2));
    }

    #[test]
    fn locks_of_its_own_are_reason_enough_once() {
        let turns = Turns::new();
        assert!(!(1..OWN_WAITS).any(|_| turns.own_wait()));
        assert!(turns.own_wait() && turns.are_taken(S, false));
        assert!(!(0..100).any(|_| turns.own_wait()));
        assert!(!turns.races(), "known already");
        let turns = Turns::new();
        assert!(!turns.is_known() && turns.races() && turns.is_known() && !turns.races());
    }

    #[test]
    fn a_race_with_one_that_was_passed_over_gives_longer_turns_first() {
        let turns = Turns::new();
        turns.diverged(S, S, false, false);
        let mut now = 2 * S;
        for limit in [200, 800] {
            assert!(!turns.is_too_long(limit * MS, 2 * S));
            assert!(turns.is_too_long(limit * MS + 1, 2 * S));
            assert!(turns.are_taken(now, false));
            turns.diverged(now, MS, true, true);
            now += S;
        }
        assert!(!turns.are_taken(now, false), "longer ones there are none");
        assert!(!turns.are_taken(now - S + REST_MIN_NS - 1, false));
        assert!(turns.are_taken(now - S + REST_MIN_NS, false), "but it was not for good");
    }

    #[test]
    fn a_thread_that_waits_is_told_from_one_that_starves() {
        let turns = Turns::new();
        assert!(turns.is_too_long(0, WAITS_NS + 1));
        assert!(!turns.is_too_long(0, WAITS_NS));
        assert!(!turns.is_too_long(RUNS_NS, 4 * S));
        assert!(turns.is_too_long(RUNS_NS, STARVES_NS + 1));
    }

    #[test]
    fn rests_grow_and_a_long_life_ends_that() {
        let turns = Turns::new();
        turns.diverged(0, 0, false, false);
        let mut now = 0;
        let mut rest = |turns: &Turns| {
            (0..NO_GAIN).for_each(|_| turns.diverged(now, NO_GAIN_NS - 1, true, false));
            let rest = turns.until_ns.load(Ordering::Relaxed) - now;
            now += rest;
            rest / S
        };
        assert_eq!([rest(&turns), rest(&turns), rest(&turns)], [10, 20, 40]);
        (0..20).for_each(|_| _ = rest(&turns));
        assert_eq!(rest(&turns), 600);
        turns.diverged(now, SHORT_LIFE_NS, true, false);
        (0..NO_GAIN).for_each(|_| turns.diverged(now, 0, true, false));
        assert_eq!(turns.until_ns.load(Ordering::Relaxed), now + REST_MIN_NS);
    }

    #[test]
    fn a_wait_for_one_that_computes_is_told_from_one_for_a_moment() {
        assert!(may_ask(5 * MS, 5 * MS) && may_ask(100 * MS, 50 * MS));
        assert!(!may_ask(5 * MS, MS), "nobody computes");
        assert!(!may_ask(S, S), "a second is a clock's tick");
    }

    #[test]
    fn turns_that_gain_something_stay() {
        let turns = Turns::new();
        for second in 0..1000 {
            turns.diverged(second * S, NO_GAIN_NS, true, false);
            assert!(turns.are_taken(second * S, false));
        }
    }

    #[test]
    fn threads_that_always_wait_are_let_go_and_those_that_rarely_do_are_not() {
        let turns = Turns::new();
        turns.diverged(0, 0, false, false);
        let times = (1..).find(|time| turns.passed_over(time * COMPUTES_NS, COMPUTES_NS)).unwrap();
        assert!((7..10).contains(&times), "{times}");
        assert!(!turns.are_taken(S, false));
        let turns = Turns::new();
        turns.diverged(0, 0, false, false);
        assert!(!(1..1000).any(|second| turns.passed_over(10 * second * S, 2 * COMPUTES_NS)));
    }
}
