//! Turns in a computed order: the rules are enough, and each is needed.

use us_sim::logical::{ALL, Program, check, ends, guarded, timed};

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
