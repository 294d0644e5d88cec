//! Timers that a process takes with it when it dies (`setitimer`, `alarm`, `timer_create`), and calls in doubt that set one.
//!
//! Every copy knows what each timer was set to and when, since the moment travels in the log. A promotion sets them again with
//! what is left. The processor time that a dead process used up nobody knows: timers of processor time start over.

const SECOND_NS: u64 = 1_000_000_000;
/// What one that is overdue gets, ns.
const AT_ONCE_NS: u64 = 1000;

/// What a timer is set to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Time {
    /// First expiry, ns: from now on, or by the timer's clock; 0 for a timer that is not set.
    pub first_ns: u64,
    /// Between two expiries, ns; 0 for one that expires once.
    pub interval_ns: u64,
}

impl Time {
    /// From an `itimerval` or `itimerspec`: the interval, then the first expiry, each as seconds and parts of `unit_ns`.
    #[must_use]
    pub const fn from_words([seconds, parts, first_seconds, first_parts]: [u64; 4], unit_ns: u64) -> Time {
        const fn ns(seconds: u64, parts: u64, unit_ns: u64) -> u64 {
            seconds.saturating_mul(SECOND_NS).saturating_add(parts.saturating_mul(unit_ns))
        }
        Time { first_ns: ns(first_seconds, first_parts, unit_ns), interval_ns: ns(seconds, parts, unit_ns) }
    }

    /// The same back. Rounded up: nothing expires early, and what has less than a unit left is still set.
    #[must_use]
    pub const fn words(self, unit_ns: u64) -> [u64; 4] {
        const fn parts(ns: u64, unit_ns: u64) -> [u64; 2] {
            let (units, second) = (ns.div_ceil(unit_ns), SECOND_NS / unit_ns);
            [units / second, units % second]
        }
        let ([seconds, of_it], [first_seconds, of_first]) =
            (parts(self.interval_ns, unit_ns), parts(self.first_ns, unit_ns));
        [seconds, of_it, first_seconds, of_first]
    }
}

/// What a timer counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Clock {
    /// Time, which goes on while a process is dead.
    Time,
    /// The processor time of its process or of a thread.
    Processor,
}

/// A clock of processor time that has the number of its process or thread in it, as the kernel writes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProcessorClock {
    /// Whose time it counts; 0 for the caller's.
    pub number: u32,
    /// That of one thread.
    pub is_thread: bool,
    /// What it counts of it: 0 in user mode and in the kernel, by ticks; 1 in user mode; 2 all, to the nanosecond.
    pub part: usize,
}

impl ProcessorClock {
    const OF_THREAD: i32 = 4;
    const PART: i32 = 3;
    /// In the place of a part: the clock of a descriptor.
    const OF_DESCRIPTOR: i32 = 3;

    /// Whether a clock is one.
    #[must_use]
    pub const fn is_one(clock: i32) -> bool {
        clock < 0 && clock & Self::PART != Self::OF_DESCRIPTOR
    }

    /// What a clock counts, if it is one.
    #[must_use]
    pub const fn of(clock: i32) -> Option<ProcessorClock> {
        if !Self::is_one(clock) {
            return None;
        }
        let (number, part) = (!(clock >> 3) as u32, (clock & Self::PART) as usize);
        Some(ProcessorClock { number, is_thread: clock & Self::OF_THREAD != 0, part })
    }

    /// The clock itself.
    #[must_use]
    pub const fn word(self) -> i32 {
        let of = if self.is_thread { Self::OF_THREAD } else { 0 };
        !(self.number as i32) << 3 | of | self.part as i32
    }
}

/// The moment of a promotion.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Now {
    /// CLOCK_MONOTONIC, ns.
    pub monotonic_ns: u64,
    /// The timer's own clock, ns.
    pub own_ns: u64,
}

/// What the log says of a timer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Setting {
    /// What it was set to.
    pub time: Time,
    /// CLOCK_MONOTONIC in the primary when it was set, ns.
    pub set_ns: u64,
    /// Its first expiry is a moment of its own clock.
    pub is_absolute: bool,
    /// Ticket of the call that set it.
    pub set_at: u64,
}

impl Setting {
    /// At a clone, where `left` is what the kernel says: a log begins here, and what has expired before is not in it. `waits`: a
    /// signal like the timer's waits to be taken, and may be another one's. `has_come`: one of this timer has come since it was set.
    #[must_use]
    pub const fn at_clone(left: Time, now_ns: u64, waits: bool, has_come: bool) -> Setting {
        // One whose signal waits to be taken shows as nothing left: it runs on when that is taken, and it has not been yet.
        let is_due = left.first_ns == 0 && (left.interval_ns != 0 || (waits && !has_come));
        let first_ns = if is_due { 1 } else { left.first_ns };
        Setting { time: Time { first_ns, ..left }, set_ns: now_ns, is_absolute: false, set_at: 0 }
    }

    /// Whether a signal that waited at the clone is this timer's, which the kernel showed with `left`: it fires at once in a copy that
    /// takes over, and is not raised besides.
    #[must_use]
    pub const fn explains(self, left: Time, waits: bool) -> bool {
        waits && left.first_ns == 0 && self.time.first_ns != 0
    }

    /// What to set at a promotion; `None` for a timer that is not set, or done. `fired_at`: the ticket at which a signal of it was
    /// taken last.
    #[must_use]
    pub const fn left(self, fired_at: u64, now: Now, clock: Clock) -> Option<Time> {
        let Time { first_ns, interval_ns } = self.time;
        if first_ns == 0 || (interval_ns == 0 && fired_at > self.set_at) {
            return None;
        }
        if matches!(clock, Clock::Processor) {
            return Some(self.time);
        }
        let (due_ns, now_ns) = match self.is_absolute {
            true => (first_ns, now.own_ns),
            false => (self.set_ns.saturating_add(first_ns), now.monotonic_ns),
        };
        if due_ns > now_ns {
            let first_ns = if self.is_absolute { due_ns } else { due_ns - now_ns };
            return Some(Time { first_ns, interval_ns });
        }
        // Overdue: the signal was lost with the primary, or was one of many.
        let next_ns = match interval_ns {
            0 if self.is_absolute => return Some(self.time),
            0 => AT_ONCE_NS,
            _ => interval_ns - (now_ns - due_ns) % interval_ns,
        };
        let next_ns = if next_ns < AT_ONCE_NS { AT_ONCE_NS } else { next_ns };
        let first_ns = if self.is_absolute { now_ns.saturating_add(next_ns) } else { next_ns };
        Some(Time { first_ns, interval_ns })
    }
}

/// Whose signal this is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Whose {
    /// The interval timer of this number.
    Interval(usize),
    /// The timer that was made by `timer_create` with this number.
    Made(u32),
}

/// The signals of the interval timers: SIGALRM, SIGVTALRM, SIGPROF.
pub const INTERVAL_SIGNALS: [i32; 3] = [14, 26, 27];

/// The timer that has sent a signal, by the signal, its `si_code` and what its siginfo has in a timer's place.
#[must_use]
pub fn whose(signal: i32, code: i32, timer: u32) -> Option<Whose> {
    const SI_KERNEL: i32 = 0x80;
    const SI_TIMER: i32 = -2;
    match code {
        SI_KERNEL => INTERVAL_SIGNALS.iter().position(|its| *its == signal).map(Whose::Interval),
        SI_TIMER => Some(Whose::Made(timer)),
        _ => None,
    }
}

/// A call in doubt that sets a timer. The kernel was entered with it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Setter {
    /// What the timer is of.
    pub of: Owner,
    /// The kernel would have refused it: it fails again.
    pub is_refused: bool,
    /// It tells what the timer had left: only the kernel can, once more.
    pub tells: bool,
}

/// Who has a timer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Owner {
    /// A descriptor, which outlives the process.
    Descriptor,
    /// The process, with which it died.
    Process {
        /// What it was set to.
        time: Time,
        /// Ticket of the call.
        set_at: u64,
        /// Ticket at which a signal of the timer was taken last.
        fired_at: u64,
    },
}

/// Whether the call was done, and is not to be made again: another thread may have had the end of the first one. One of a process
/// starts over with the process, unless the log shows that it has expired.
#[must_use]
pub const fn was_set(setter: Setter) -> bool {
    if setter.is_refused || setter.tells {
        return false;
    }
    match setter.of {
        Owner::Descriptor => true,
        Owner::Process { time, set_at, fired_at } => {
            time.first_ns != 0 && time.interval_ns == 0 && fired_at > set_at
        }
    }
}

/// Whether two numbers are what the kernel takes for seconds and nanoseconds, or for microseconds: parts of `unit_ns`.
#[must_use]
pub const fn is_time([seconds, parts]: [i64; 2], unit_ns: i64) -> bool {
    seconds >= 0 && parts >= 0 && parts < SECOND_NS as i64 / unit_ns
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const MS: u64 = 1_000_000;

    fn set(first_ns: u64, interval_ns: u64) -> Setting {
        let time = Time { first_ns, interval_ns };
        Setting { time, set_ns: 100 * MS, is_absolute: false, set_at: 10 }
    }

    fn at(now_ns: u64) -> Now {
        Now { monotonic_ns: now_ns, own_ns: now_ns }
    }

    #[test]
    fn one_that_expires_once_does_so_once() {
        let left =
            |fired_at, now| set(50 * MS, 0).left(fired_at, at(now), Clock::Time).map(|time| time.first_ns);
        assert_eq!(left(0, 120 * MS), Some(30 * MS));
        assert_eq!(left(0, 151 * MS), Some(AT_ONCE_NS), "nobody has taken its signal");
        assert_eq!(left(11, 120 * MS), None, "its signal was taken");
        assert_eq!(left(9, 120 * MS), Some(30 * MS), "that was of an earlier setting");
        assert_eq!(set(0, 5).left(0, at(0), Clock::Time), None, "it is not set");
    }

    #[test]
    fn one_that_repeats_keeps_its_beat() {
        let left = |now| set(10 * MS, 4 * MS).left(99, at(now), Clock::Time).map(|time| time.first_ns);
        assert_eq!(left(117 * MS), Some(MS), "due at 110, 114, 118");
        assert_eq!(left(118 * MS), Some(4 * MS));
        let absolute = Setting { time: Time { first_ns: 110 * MS, interval_ns: 4 * MS }, ..set(0, 0) };
        let absolute = Setting { is_absolute: true, ..absolute };
        let left = absolute.left(99, at(117 * MS), Clock::Time);
        assert_eq!(
            left.map(|time| time.first_ns),
            Some(118 * MS),
            "not once more for each time that is over"
        );
    }

    #[test]
    fn what_is_as_good_as_never_is_that_again() {
        let far = Time::from_words([0, 0, i64::MAX as u64, 999_999_999], 1);
        let left = Setting { time: far, ..set(0, 0) }.left(0, at(117 * MS), Clock::Time);
        assert!(left.is_some_and(|time| time.first_ns >= far.first_ns - 117 * MS));
    }

    #[test]
    fn a_signal_that_waits_at_a_clone_is_still_to_come() {
        let none = Time::default();
        assert_eq!(Setting::at_clone(none, 7, true, false).time.first_ns, 1);
        assert_eq!(Setting::at_clone(none, 7, true, true).time.first_ns, 0, "it is another timer's");
        assert_eq!(Setting::at_clone(none, 7, false, false).time.first_ns, 0);
        assert!(Setting::at_clone(none, 7, true, false).explains(none, true));
        assert!(!Setting::at_clone(none, 7, true, true).explains(none, true));
        let soon = Time { first_ns: 5, ..none };
        assert!(!Setting::at_clone(soon, 7, true, false).explains(soon, true), "it has not fired");
        let every = Time { first_ns: 0, interval_ns: 9 };
        assert_eq!(Setting::at_clone(every, 7, false, true).time.first_ns, 1, "it repeats");
    }

    #[test]
    fn a_call_in_doubt_sets_a_descriptors_timer_once() {
        let setter = Setter { of: Owner::Descriptor, is_refused: false, tells: false };
        assert!(was_set(setter));
        assert!(
            !was_set(Setter { is_refused: true, ..setter }) && !was_set(Setter { tells: true, ..setter })
        );
        let of = |time, fired_at| Setter { of: Owner::Process { time, set_at: 10, fired_at }, ..setter };
        let once = Time { first_ns: 1, interval_ns: 0 };
        assert!(was_set(of(once, 11)), "its signal was taken behind it");
        assert!(!was_set(of(once, 9)), "it died with the process");
        assert!(!was_set(of(Time { interval_ns: 5, ..once }, 11)), "nobody counts those of one that repeats");
        assert!(!was_set(of(Time::default(), 11)));
    }

    #[test]
    fn a_clock_says_whose_time_it_counts() {
        let of = |number, is_thread, part| ProcessorClock { number, is_thread, part };
        assert_eq!(ProcessorClock::of(-6), Some(of(0, false, 2)), "the calling process");
        assert_eq!(ProcessorClock::of(-2), Some(of(0, true, 2)), "the calling thread");
        for clock in [of(0, false, 0), of(4711, true, 1), of((1 << 22) - 1, false, 2)] {
            assert_eq!(ProcessorClock::of(clock.word()), Some(clock));
        }
        assert_eq!(ProcessorClock::of(!5 << 3 | 3), None, "a descriptor's");
        assert_eq!(ProcessorClock::of(2), None);
    }

    #[test]
    fn a_signal_says_whose_it_is() {
        assert_eq!(whose(27, 0x80, 5), Some(Whose::Interval(2)));
        assert_eq!(whose(34, -2, 5), Some(Whose::Made(5)));
        assert_eq!((whose(14, 0, 5), whose(11, 0x80, 0)), (None, None));
    }

    proptest! {
        #[test]
        fn words_say_what_they_were_made_of(
            seconds in 0u64..10_000, parts in 0u64..1_000_000, first in 0u64..10_000, of_first in 0u64..1_000_000,
            unit_ns in prop_oneof![Just(1u64), Just(1000)]
        ) {
            let words = [seconds, parts, first, of_first];
            prop_assert_eq!(Time::from_words(words, unit_ns).words(unit_ns), words);
        }

        #[test]
        fn what_is_left_is_still_set(first_ns in 1u64.., interval_ns in 0u64.., set_ns in 0u64.., now in 0u64..) {
            let setting = Setting { set_ns, ..set(first_ns, interval_ns) };
            let left = setting.left(0, at(now), Clock::Time);
            prop_assert!(left.is_some_and(|time| time.first_ns > 0 && time.words(1000)[2..] != [0, 0]));
        }
    }
}
