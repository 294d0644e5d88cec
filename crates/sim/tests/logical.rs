//! Turns in a computed order: the rules are enough, and each is needed.

use us_sim::logical::{ALL, Program, check, ends, guarded, promoted, timed};

fn programs() -> [(&'static str, Program); 3] {
    [("guarded", guarded()), ("timed", timed()), ("ends", ends())]
}

#[test]
fn every_interleaving_comes_to_the_same() {
    for (name, program) in programs() {
        let report = check(&program, None);
        println!("{name}: {} states, {} ends", report.states, report.ends.len());
        assert!(report.is_right(), "{name}: {} ends, stuck: {}", report.ends.len(), report.is_stuck);
    }
}

#[test]
fn every_broken_rule_is_found() {
    for broken in ALL {
        let found = |(name, program): (&'static str, Program)| {
            let report = check(&program, Some(broken));
            println!("{broken:?}, {name}: {} ends, stuck: {}", report.ends.len(), report.is_stuck);
            !report.is_right()
        };
        assert!(programs().into_iter().any(found), "{broken:?}");
    }
}

#[test]
fn a_copy_that_takes_over_anywhere_goes_on_as_if_nobody_had_died() {
    for (name, program) in programs() {
        let (report, alone) = (promoted::check(&program, None), check(&program, None));
        println!("{name}: {} states, {} ends", report.states, report.ends.len());
        assert!(report.is_right(), "{name}: {} ends, stuck: {}", report.ends.len(), report.is_stuck);
        assert_eq!(report.ends, alone.ends, "{name}");
    }
}

#[test]
fn every_broken_rule_of_a_copy_is_found() {
    for broken in promoted::ALL {
        let found = |(name, program): (&'static str, Program)| {
            let report = promoted::check(&program, Some(broken));
            println!("{broken:?}, {name}: {} ends, stuck: {}", report.ends.len(), report.is_stuck);
            !report.is_right()
        };
        assert!(programs().into_iter().any(found), "{broken:?}");
    }
}
