//! A ring and its readers: every program is right, and every broken rule is caught by one.

use us_sim::mutation::Mutation;
use us_sim::ring::{check, programs};

#[test]
fn every_reader_finds_every_event_wherever_the_writer_is_killed() {
    let mut failures = 0;
    for program in programs() {
        let report = check(&program, None);
        println!("{:16} {:>7} states", program.name, report.states);
        if let Some((violation, trace)) = report.failure {
            println!("{}: {}: {violation:?}\n    {}", program.name, program.why, trace.join("\n    "));
            failures += 1;
        }
    }
    assert_eq!(failures, 0, "see the traces above");
}

#[test]
fn every_broken_rule_is_caught() {
    for mutation in Mutation::ALL.into_iter().filter(|mutation| mutation.is_of_ring()) {
        let caught: Vec<_> = programs()
            .iter()
            .filter_map(|program| {
                let (violation, trace) = check(program, Some(mutation)).failure?;
                Some((program.name, violation, trace))
            })
            .collect();
        let shortest = caught.iter().min_by_key(|(.., trace)| trace.len());
        let Some((name, violation, trace)) = shortest else {
            panic!("no program catches {mutation:?}: nothing shows that this rule is needed");
        };
        let steps = trace.join("\n    ");
        println!("{mutation:?}: {} programs; shortest: {name}: {violation:?}\n    {steps}\n", caught.len());
    }
}
