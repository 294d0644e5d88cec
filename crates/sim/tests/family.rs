//! Processes that share memory: every program is right, and every broken rule is caught by one.

use us_sim::family::{check, library};
use us_sim::mutation::Mutation;

#[test]
fn every_program_is_right_whenever_one_is_killed() {
    let mut failures = 0;
    for program in library::all() {
        let start = std::time::Instant::now();
        let report = check(&program, None);
        let (states, ends) = (report.states, report.outcomes.len());
        println!("{:20} {states:>9} states, {ends:>3} ends, {:?}", program.name, start.elapsed());
        if let Some((violation, trace)) = report.failure {
            println!("{}: {}: {violation:?}\n    {}", program.name, program.why, trace.join("\n    "));
            failures += 1;
        }
    }
    assert_eq!(failures, 0, "see the traces above");
}

#[test]
fn every_broken_rule_is_caught() {
    let programs = library::all();
    let mut missed = Vec::new();
    for mutation in Mutation::ALL.into_iter().filter(|mutation| mutation.is_of_family()) {
        let start = std::time::Instant::now();
        let caught: Vec<_> = programs
            .iter()
            .filter_map(|program| {
                check(program, Some(mutation))
                    .failure
                    .map(|(violation, trace)| (program.name, violation, trace))
            })
            .collect();
        match caught.iter().min_by_key(|(.., trace)| trace.len()) {
            Some((name, violation, trace)) => {
                let steps = trace.join("\n    ");
                let (programs, took) = (caught.len(), start.elapsed());
                println!(
                    "{mutation:?}: {programs} programs, {took:?}; shortest: {name}: {violation:?}\n    {steps}\n"
                );
            }
            None => missed.push(mutation),
        }
    }
    assert!(missed.is_empty(), "no program catches {missed:?}: nothing shows that these rules are needed");
}
