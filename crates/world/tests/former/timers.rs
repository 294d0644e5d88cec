//! Random timers and waits: what is left of them, and which calls in doubt have set one, by the rules here and by what stood in the
//! runtime before. Where they differ, the reason is one of five.

use std::cell::RefCell;
use std::collections::BTreeMap;

use proptest::prelude::*;
use proptest::test_runner::TestRunner;
use us_world::patience::{self, Patience};
use us_world::timer::{self, Clock, Now, Owner, Setter, Setting, Time, Whose};

/// What stood in the runtime, with what a release build did where a number overflows.
mod former {
    /// first expiry, interval, moment, whether that is absolute, ticket
    pub type Kept = (u64, u64, u64, bool, u64);

    pub fn load([seconds, parts, first_seconds, first_parts]: [u64; 4], unit_ns: u64) -> (u64, u64) {
        let ns = |seconds: u64, parts: u64| {
            seconds.saturating_mul(1_000_000_000).saturating_add(parts.wrapping_mul(unit_ns))
        };
        (ns(seconds, parts), ns(first_seconds, first_parts))
    }

    pub fn left(kept: Kept, fired_at: u64, now_ns: u64, cpu_time: bool) -> Option<(u64, u64)> {
        let (value, interval, set_ns, absolute, set_at) = kept;
        let fired = fired_at > set_at;
        if value == 0 || (interval == 0 && fired) {
            return None;
        }
        if cpu_time || absolute {
            return Some((value, interval));
        }
        let due = set_ns.wrapping_add(value);
        if due > now_ns {
            return Some((due - now_ns, interval));
        }
        let next = if interval == 0 { 1000 } else { interval - (now_ns - due) % interval };
        Some((next.max(1000), interval))
    }

    pub fn note(time: [u64; 4], unit_ns: u64, now: u64, waits: bool, has_come: bool) -> Kept {
        let (interval, mut value) =
            (time[0] * 1_000_000_000 + time[1] * unit_ns, time[2] * 1_000_000_000 + time[3] * unit_ns);
        let waits = waits && !has_come;
        if value == 0 && (interval != 0 || waits) {
            value = 1;
        }
        (value, interval, now, false, 0)
    }

    pub fn words((value, interval): (u64, u64), unit_ns: u64) -> [u64; 4] {
        let ns = 1_000_000_000;
        match unit_ns {
            1 => [interval / ns, interval % ns, value / ns, value % ns],
            _ => [interval / ns, interval / 1000 % 1_000_000, value / ns, value / 1000 % 1_000_000],
        }
    }

    pub fn whose(signal: i32, code: i32, timer: u32) -> Option<u32> {
        match code {
            0x80 if signal == 14 => Some(u32::MAX),
            -2 => Some(timer),
            _ => None,
        }
    }

    /// Of a timerfd_settime; any other call was made again.
    pub fn is_set(is_timer: bool, flags: u64, new: [[i64; 2]; 2], old: u64) -> bool {
        let is_time = |[s, ns]: [i64; 2]| s >= 0 && (0..1_000_000_000).contains(&ns);
        is_timer && old == 0 && flags & 0xffff_ffff <= 3 && is_time(new[0]) && is_time(new[1])
    }

    pub fn left_of_wait(whole_ns: u64, began_ns: u64, now_ns: u64) -> u64 {
        whole_ns.saturating_sub(now_ns.saturating_sub(began_ns))
    }

    pub fn whole(sec: i64, nsec: i64) -> u64 {
        if sec < 0 { 0 } else { (sec as u64).wrapping_mul(1_000_000_000).wrapping_add(nsec as u64) }
    }
}

const CASES: u32 = 20_000;
/// What the kernel has at most.
const KTIME_MAX: u64 = i64::MAX as u64;

fn runner() -> TestRunner {
    let mut config = ProptestConfig::with_cases(CASES);
    config.failure_persistence = None;
    TestRunner::new(config)
}

fn seconds() -> impl Strategy<Value = u64> {
    prop_oneof![8 => 0u64..4, 2 => 0u64..100_000, 1 => 0u64..=i64::MAX as u64]
}

/// Interval and first expiry as the guest has them.
fn words(unit_ns: u64) -> impl Strategy<Value = [u64; 4]> {
    let parts = move || prop_oneof![Just(0), 0u64..4, 0u64..1_000_000_000 / unit_ns];
    (seconds(), parts(), seconds(), parts()).prop_map(Into::into)
}

#[derive(Default)]
struct Seen(RefCell<BTreeMap<&'static str, u32>>);

impl Seen {
    fn add(&self, what: &'static str) {
        *self.0.borrow_mut().entry(what).or_default() += 1;
    }

    fn are(&self, all: &[&str]) {
        println!("{:#?}", self.0.borrow());
        for what in all {
            assert!(self.0.borrow().get(what).is_some_and(|count| *count > 20), "too rarely: {what}");
        }
    }
}

const FAR: &str = "longer than the numbers: was due at once";
const SHORT: &str = "less than a unit left: was not set any more";
const BEAT: &str =
    "set to a moment that is over, and repeats: was set to that moment, and all since then counted again";

#[test]
fn what_is_left_of_a_timer_is_what_was() {
    let seen = Seen::default();
    let setting = (prop_oneof![Just(1u64), Just(1000)], any::<bool>(), any::<bool>()).prop_flat_map(
        |(unit_ns, is_absolute, is_cpu)| {
            (Just((unit_ns, is_absolute && unit_ns == 1, is_cpu)), words(unit_ns))
        },
    );
    let times = (0u64..5_000_000_000, 0u64..8_000_000_000, 0u64..8_000_000_000);
    let tickets = (0u64..4, 0u64..4);
    let result = runner().run(&(setting, times, tickets), |(setting, times, tickets)| {
        let ((unit_ns, is_absolute, is_cpu), words) = setting;
        let ((set_ns, later_ns, own_ns), (set_at, fired_at)) = (times, tickets);
        let now = Now { monotonic_ns: set_ns + later_ns, own_ns };
        let (interval, value) = former::load(words, unit_ns);
        let kept = (value, interval, set_ns, is_absolute, set_at);
        let was =
            former::left(kept, fired_at, now.monotonic_ns, is_cpu).map(|left| former::words(left, unit_ns));
        let time = Time::from_words(words, unit_ns);
        prop_assert_eq!(time, Time { first_ns: value, interval_ns: interval });
        let setting = Setting { time, set_ns, is_absolute, set_at };
        let clock = if is_cpu { Clock::Processor } else { Clock::Time };
        let is = setting.left(fired_at, now, clock).map(|left| left.words(unit_ns));
        if was == is {
            seen.add(if is.is_some() { "set" } else { "not set" });
            return Ok(());
        }
        let why = match was {
            _ if is_absolute && interval != 0 && value <= own_ns => BEAT,
            _ if set_ns.checked_add(value).is_none() => FAR,
            Some([.., seconds, parts]) if unit_ns > 1 && [seconds, parts] == [0, 0] => SHORT,
            _ if unit_ns > 1 && interval % unit_ns != 0 => "rounded up",
            // Rounded up to a unit, where it was cut off.
            Some([_, _, seconds, parts]) if unit_ns > 1 => {
                let [_, _, now_seconds, now_parts] = is.unwrap_or_default();
                let by = (now_seconds * 1_000_000 + now_parts).checked_sub(seconds * 1_000_000 + parts);
                prop_assert_eq!(by, Some(1), "was {:?}, is {:?}", was, is);
                "rounded up"
            }
            _ => return Err(TestCaseError::fail(format!("was {was:?}, is {is:?}: {setting:?} {now:?}"))),
        };
        seen.add(why);
        Ok(())
    });
    result.expect("the same, or a reason");
    seen.are(&["set", "not set", FAR, BEAT, "rounded up"]);
}

/// What is rare among random times is tried by itself.
#[test]
fn less_than_a_unit_is_not_nothing() {
    let result = runner().run(&(1u64..1000, 1u64..2_000_000, 1u64..999), |(us, set_ns, left_ns)| {
        let kept = (us * 1000, 0, set_ns, false, 1);
        let now_ns = set_ns + us * 1000 - left_ns;
        let was = former::left(kept, 0, now_ns, false).map(|left| former::words(left, 1000));
        let setting = Setting {
            time: Time { first_ns: us * 1000, interval_ns: 0 },
            set_ns,
            is_absolute: false,
            set_at: 1,
        };
        let now = Now { monotonic_ns: now_ns, own_ns: 0 };
        let is = setting.left(0, now, Clock::Time).map(|left| left.words(1000));
        prop_assert_eq!((was, is), (Some([0; 4]), Some([0, 0, 0, 1])), "{}", SHORT);
        Ok(())
    });
    result.expect("set again, where it was not");
}

#[test]
fn what_a_clone_notes_is_what_it_noted() {
    let result = runner().run(
        &(words(1), 0u64..1 << 60, any::<bool>(), any::<bool>()),
        |(mut words, now, waits, has_come)| {
            // What the kernel tells is never more than it can hold.
            words[0] %= KTIME_MAX / 1_000_000_000;
            words[2] %= KTIME_MAX / 1_000_000_000;
            let (value, interval, set_ns, is_absolute, set_at) = former::note(words, 1, now, waits, has_come);
            let time = Time { first_ns: value, interval_ns: interval };
            let is = Setting::at_clone(Time::from_words(words, 1), now, waits, has_come);
            prop_assert_eq!(is, Setting { time, set_ns, is_absolute, set_at });
            Ok(())
        },
    );
    result.expect("the same");
}

const PROCESSORS: &str = "a timer of processor time: was nobody's";

#[test]
fn a_signal_is_the_timers_whose_it_was() {
    let seen = Seen::default();
    let signals = prop_oneof![Just(14), Just(26), Just(27), 1i32..65];
    let codes = prop_oneof![Just(0x80), Just(-2), Just(0), Just(-6)];
    let result = runner().run(&(signals, codes, 0u32..300), |(signal, code, number)| {
        let was = former::whose(signal, code, number);
        let is = timer::whose(signal, code, number);
        let as_before = is.map(|whose| match whose {
            Whose::Interval(0) => u32::MAX,
            Whose::Interval(_) => u32::MAX - 1,
            Whose::Made(number) => number,
        });
        if was != as_before {
            prop_assert!(was.is_none() && matches!(is, Some(Whose::Interval(1 | 2))));
            seen.add(PROCESSORS);
        }
        Ok(())
    });
    result.expect("the same, or a reason");
    seen.are(&[PROCESSORS]);
}

const HEARD: &str = "a process's timer whose signal was taken: was set again, and heard again";

#[test]
fn a_call_in_doubt_has_set_a_timer_if_it_had() {
    let seen = Seen::default();
    let parts = || prop_oneof![4 => 0i64..1_000_000_000, 1 => -2i64..1_000_000_010];
    let pair = || (prop_oneof![4 => 0i64..3, 1 => -1i64..9], parts()).prop_map(|(s, ns)| [s, ns]);
    let call = (any::<bool>(), 0u64..5, [pair(), pair()], 0u64..2);
    let result = runner().run(&(call, 0u64..4, 0u64..4), |(call, set_at, fired_at)| {
        let (is_timer, flags, new, old) = call;
        let was = former::is_set(is_timer, flags, new, old);
        let is_time = |time| timer::is_time(time, 1);
        let is_refused = !is_timer || flags > 3 || !is_time(new[0]) || !is_time(new[1]);
        let tells = old != 0;
        prop_assert_eq!(timer::was_set(Setter { of: Owner::Descriptor, is_refused, tells }), was);
        seen.add(if was { "done" } else { "made again" });
        let [[s, ns], [first_s, first_ns]] = new.map(|pair| pair.map(|part| part.max(0) as u64));
        let time = Time::from_words([s, ns, first_s, first_ns], 1);
        let of = Owner::Process { time, set_at, fired_at };
        if timer::was_set(Setter { of, is_refused, tells }) {
            prop_assert!(fired_at > set_at && time.interval_ns == 0 && !tells);
            seen.add(HEARD);
        }
        Ok(())
    });
    result.expect("the same, or a reason");
    // Random intervals are hardly ever none.
    seen.are(&["done", "made again"]);
    let once = Time { first_ns: 1, interval_ns: 0 };
    let of = Owner::Process { time: once, set_at: 1, fired_at: 2 };
    assert!(timer::was_set(Setter { of, is_refused: false, tells: false }), "{HEARD}");
}

const LONG: &str = "a wait longer than the numbers: was over soon";

#[test]
fn what_is_left_of_a_wait_is_what_was() {
    let seen = Seen::default();
    let secs = prop_oneof![6 => 0i64..10, 1 => -3i64..0, 2 => 0i64..=i64::MAX];
    let times = (0u64..1 << 62, 0u64..12_000_000_000);
    let result = runner().run(&(secs, 0i64..1_000_000_000, times), |(sec, nsec, (began_ns, later_ns))| {
        let (was, is) = (former::whole(sec, nsec), patience::whole_ns(sec, nsec));
        if was != is {
            prop_assert!(i128::from(sec) * 1_000_000_000 + i128::from(nsec) > i128::from(u64::MAX));
            prop_assert_eq!(is, u64::MAX);
            seen.add(LONG);
        }
        let now_ns = began_ns + later_ns;
        let wait = Patience { began_ns, whole_ns: is };
        let left_ns = former::left_of_wait(is, began_ns, now_ns);
        prop_assert_eq!(wait.left_ns(now_ns), left_ns);
        prop_assert_eq!(wait.left_ms(now_ns), left_ns.div_ceil(1_000_000));
        Ok(())
    });
    result.expect("the same, or a reason");
    seen.are(&[LONG]);
}
