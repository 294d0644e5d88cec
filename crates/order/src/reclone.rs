//! The standby is gone: how long until the primary is asked for another?
//!
//! A clone stops every thread for a moment and makes both copies write each page once more. Where the log
//! keeps failing, a clone after each failure would cost more than the protection between two failures is
//! worth; where it failed once in a day, every moment without a standby is too long. So the delay follows
//! from what has been seen: it doubles while standbys do not live as long as the delay before them, and
//! shrinks again as they do. One that has lived for many times what its making cost was worth that, however often
//! it happens: the next one comes at once.

/// Shortest delay after a standby was lost, ns, where others were lost before it and soon.
pub const DELAY_MIN_NS: u64 = 20_000_000;

/// Delay after the first loss, or after a long life, ns: nothing says that the next one will be lost as well.
pub const AT_ONCE_NS: u64 = 1_000_000;

/// Such a life, ns.
pub const LONG_LIFE_NS: u64 = 1_000_000_000;

/// A life of so many pauses has paid for its making. A pause counts as [`AT_ONCE_NS`] at least: both copies write each page once more.
pub const PAID_PAUSES: u64 = PAUSE_PART;

/// Delay of a new process's first standby, from its joining, ns: one that is gone by then is not worth a clone.
pub const NEWBORN_NS: u64 = 10_000_000;

/// Longest delay, ns.
pub const DELAY_MAX_NS: u64 = 10_000_000_000;

/// Longest delay after a standby that was made and lost, ns. What its making costs is bounded by the pauses; a primary that is
/// killed meanwhile is lost.
pub const LOST_MAX_NS: u64 = 2_000_000_000;

/// Clones may stop the program for one part of its time in so many.
pub const PAUSE_PART: u64 = 10;

/// And for so long at once, ns, before that is asked: one clone that has stopped it for long says nothing yet.
pub const PAUSE_CREDIT_NS: u64 = 1_000_000_000;

/// So many attempts in a row may be overtaken before that counts as a failure: a program that makes processes without a pause
/// would stand still again and again for nothing.
pub const OVERTAKEN_MAX: u32 = 8;

/// Why there is no standby.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Loss {
    /// It is the primary now. That says nothing against the log.
    Promoted,
    /// It diverged, was too slow, was killed, or the log could not carry it on.
    Dropped,
    /// There never was one: the process, or the program in it, is new.
    Newborn,
}

/// The delay before the next attempt.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Backoff {
    delay_ns: u64,
    /// The last answer.
    waits_ns: u64,
    /// Pauses that no time has made up for, ns.
    paused_ns: u64,
    /// Attempts that were overtaken since the last one that was not.
    overtaken: u32,
}

impl Backoff {
    /// A standby is gone that had lived for `stretch_ns` and whose making had stopped the program for `pause_ns`.
    /// The time to wait, ns.
    #[must_use]
    pub fn lost(&mut self, loss: Loss, stretch_ns: u64, pause_ns: u64) -> u64 {
        match loss {
            Loss::Promoted => return 0,
            // Nothing has failed, so nothing is learnt from it.
            Loss::Newborn => return NEWBORN_NS,
            Loss::Dropped => {}
        }
        let has_paid = stretch_ns >= PAID_PAUSES.saturating_mul(pause_ns.max(AT_ONCE_NS));
        let is_one_of_many =
            !has_paid && (self.overtaken == OVERTAKEN_MAX || self.delay_ns != 0 && stretch_ns < LONG_LIFE_NS);
        self.delay_ns = match stretch_ns.checked_div(self.delay_ns) {
            // It did not live as long as it had been waited for.
            Some(0..2) if has_paid => self.delay_ns / 2,
            Some(0) => self.delay_ns.saturating_mul(2),
            Some(times) => self.delay_ns / times,
            None => DELAY_MIN_NS,
        };
        self.overtaken = 0;
        self.delay_ns = self.delay_ns.clamp(DELAY_MIN_NS, LOST_MAX_NS);
        let waits_ns =
            if is_one_of_many || self.delay_ns > DELAY_MIN_NS { self.delay_ns } else { AT_ONCE_NS };
        self.pay(waits_ns, stretch_ns, pause_ns)
    }

    /// Those who were to get standbys together were not all who should have: a process came or went while the program stood
    /// still for `pause_ns`. The time to wait, ns.
    #[must_use]
    pub fn overtaken(&mut self, pause_ns: u64) -> u64 {
        if self.overtaken == OVERTAKEN_MAX {
            return self.lost(Loss::Dropped, 0, pause_ns);
        }
        self.overtaken += 1;
        self.pay(NEWBORN_NS, 0, pause_ns)
    }

    /// What `delay_ns` becomes, so that pauses take no more than their part of the time.
    fn pay(&mut self, delay_ns: u64, stretch_ns: u64, pause_ns: u64) -> u64 {
        let passed_ns = self.waits_ns.saturating_add(stretch_ns);
        self.paused_ns = self.paused_ns.saturating_sub(passed_ns / PAUSE_PART).saturating_add(pause_ns);
        let too_much_ns = self.paused_ns.saturating_sub(PAUSE_CREDIT_NS);
        self.waits_ns = delay_ns.max(too_much_ns.saturating_mul(PAUSE_PART).min(LOST_MAX_NS));
        self.waits_ns
    }

    /// The primary could not make one. The time to wait, ns.
    #[must_use]
    pub fn failed(&mut self) -> u64 {
        self.delay_ns = self.delay_ns.saturating_mul(2).clamp(DELAY_MIN_NS, DELAY_MAX_NS);
        self.delay_ns
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const MS: u64 = 1_000_000;

    #[test]
    fn a_promotion_never_waits_and_changes_nothing() {
        let mut backoff = Backoff::default();
        for _ in 0..5 {
            let _ = backoff.lost(Loss::Dropped, 0, 0);
        }
        let before = backoff;
        assert_eq!(backoff.lost(Loss::Promoted, 0, 1 << 40), 0);
        assert_eq!(backoff, before);
    }

    #[test]
    fn a_new_process_waits_a_little_and_its_failures_count() {
        let mut backoff = Backoff::default();
        for _ in 0..5 {
            assert_eq!(backoff.lost(Loss::Newborn, 0, 0), NEWBORN_NS);
        }
        assert_eq!(backoff, Backoff::default());
        assert_eq!([backoff.failed(), backoff.failed()], [20 * MS, 40 * MS]);
        assert_eq!(backoff.lost(Loss::Newborn, MS, 40 * MS), NEWBORN_NS);
        assert_eq!(backoff.failed(), 80 * MS);
    }

    #[test]
    fn a_storm_comes_to_one_attempt_in_two_seconds() {
        let mut backoff = Backoff::default();
        let delays: [u64; 12] = core::array::from_fn(|_| backoff.lost(Loss::Dropped, 5 * MS, 0) / MS);
        assert_eq!(delays, [1, 40, 80, 160, 320, 640, 1280, 2000, 2000, 2000, 2000, 2000]);
    }

    #[test]
    fn only_the_first_of_many_losses_is_mended_at_once() {
        let mut backoff = Backoff::default();
        let mut lost = |stretch| backoff.lost(Loss::Dropped, stretch, 50 * MS);
        assert_eq!([lost(5 * MS), lost(400 * MS), lost(400 * MS)], [AT_ONCE_NS, DELAY_MIN_NS, DELAY_MIN_NS]);
        assert_eq!([lost(LONG_LIFE_NS), lost(400 * MS)], [AT_ONCE_NS, DELAY_MIN_NS]);
    }

    #[test]
    fn lives_that_have_paid_for_their_making_are_followed_by_others_at_once() {
        let mut backoff = Backoff::default();
        let delays: [u64; 6] = core::array::from_fn(|_| backoff.lost(Loss::Dropped, 40 * MS, MS));
        assert_eq!(delays, [AT_ONCE_NS; 6]);
        // Behind a storm they have to be several.
        let _: [u64; 8] = core::array::from_fn(|_| backoff.lost(Loss::Dropped, MS, MS));
        let delays: [u64; 7] = core::array::from_fn(|_| backoff.lost(Loss::Dropped, 40 * MS, MS) / MS);
        assert_eq!(delays, [1000, 500, 250, 125, 62, 31, 1]);
    }

    #[test]
    fn failed_attempts_count_like_standbys_that_died_at_once() {
        let mut backoff = Backoff::default();
        assert_eq!([backoff.failed(), backoff.failed(), backoff.failed()], [20 * MS, 40 * MS, 80 * MS]);
        assert_eq!(backoff.lost(Loss::Dropped, MS, 0), 160 * MS);
    }

    #[test]
    fn a_long_life_is_a_clean_record() {
        let mut backoff = Backoff::default();
        for _ in 0..20 {
            let _ = backoff.failed();
        }
        assert_eq!(backoff.lost(Loss::Dropped, 60_000 * MS, 0), 10_000 * MS / 6);
        assert_eq!(backoff.lost(Loss::Dropped, 3_600_000 * MS, 0), AT_ONCE_NS);
    }

    #[test]
    fn one_expensive_clone_delays_nothing_and_many_are_rare() {
        let mut backoff = Backoff::default();
        let lives: [u64; 8] = core::array::from_fn(|_| backoff.lost(Loss::Dropped, 700 * MS, 300 * MS) / MS);
        assert_eq!(lives, [1, 20, 20, 20, 2000, 2000, 2000, 2000]);
        // A calm makes up for it.
        assert_eq!(backoff.lost(Loss::Dropped, 60_000 * MS, 300 * MS), AT_ONCE_NS);
    }

    #[test]
    fn whoever_was_overtaken_is_back_soon_but_not_for_ever() {
        let mut backoff = Backoff::default();
        for _ in 0..OVERTAKEN_MAX {
            assert_eq!(backoff.overtaken(5 * MS), NEWBORN_NS);
        }
        assert_eq!([backoff.overtaken(5 * MS), backoff.overtaken(5 * MS)], [DELAY_MIN_NS, NEWBORN_NS]);
        // What else has failed is not forgotten for it.
        let mut backoff = Backoff::default();
        let _ = (backoff.lost(Loss::Dropped, 0, 0), backoff.overtaken(5 * MS));
        assert_eq!(backoff.lost(Loss::Dropped, 0, 0), 40 * MS);
    }

    proptest! {
        /// Whatever happens, the delay stays within its bounds and pauses take at most their part of the time.
        #[test]
        fn bounded(lives in proptest::collection::vec((0u64..20_000 * MS, 0u64..50 * MS), 1..100)) {
            let mut backoff = Backoff::default();
            let (mut time, mut paused) = (0, 0);
            for (stretch, pause) in lives {
                let delay = backoff.lost(Loss::Dropped, stretch, pause);
                prop_assert!((AT_ONCE_NS..=LOST_MAX_NS).contains(&delay));
                paused += pause;
                time += stretch + delay;
                prop_assert!(paused <= PAUSE_CREDIT_NS + time / PAUSE_PART + MS);
            }
        }
    }
}
