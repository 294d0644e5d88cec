//! Atomic instructions of a program's own: the rules are enough, and each is needed.

use us_sim::atomics::{Broken, Violation, check, library};

#[test]
fn every_program_keeps_its_order() {
    for program in library::all() {
        let report = check(&program, None);
        println!("{}: {} states, {} ends", program.name, report.states, report.outcomes.len());
        assert_eq!(report.failure, None, "{}", program.name);
    }
}

#[test]
fn every_broken_rule_is_found() {
    let found = |broken| {
        let programs = library::all();
        let by: Vec<_> = programs
            .iter()
            .filter_map(|program| Some((program.name, check(program, Some(broken)).failure?)))
            .collect();
        println!("{broken:?}: {by:?}");
        !by.is_empty()
    };
    for broken in [
        Broken::NoOrder,
        Broken::PublishedLate,
        Broken::FailureConsumes,
        Broken::FailureIsMade,
        Broken::ExchangeIsMade,
        Broken::ExchangeIsEarly,
        Broken::ConstantIsNotAwaited,
        Broken::LiveBeforeDrained,
    ] {
        assert!(found(broken), "{broken:?}");
    }
}

/// What is not promised.
#[test]
fn readers_of_a_sequence_lock_go_another_way() {
    assert_eq!(check(&library::seqlock(), None).failure, Some(Violation::Diverged));
}
