//! Every broken rule is caught by some program.

use us_sim::explore::{self, Failure};
use us_sim::{library, mutation::Mutation, program::Program};

/// The shortest failure that a broken rule leads to, how many programs catch it, and which was first.
fn catch(programs: &[Program], mutation: Mutation) -> Option<(usize, &Program, Failure)> {
    let caught = |joint: bool| {
        // The one large program catches nothing that the others do not, and would take nearly all the time.
        let programs = programs.iter().filter(|p| p.name != "accept-herd" && mutation.concerns(p));
        let failures = programs.filter_map(|program| {
            let report = match joint {
                false => explore::check(program, Some(mutation)),
                // Small enough for the search without the split; only such runs show what a standby
                // concludes from an event that is not there yet.
                true if matches!(program.name, "slot-reuse" | "unlocked-writers") => {
                    explore::joint(program, Some(mutation), None)
                }
                true => return None,
            };
            report.failure.map(|failure| (program, failure))
        });
        failures.collect::<Vec<_>>()
    };
    let mut failures = caught(false);
    if failures.is_empty() {
        failures = caught(true);
    }
    let count = failures.len();
    let shortest = failures.into_iter().min_by_key(|(_, failure)| failure.trace.len())?;
    Some((count, shortest.0, shortest.1))
}

#[test]
fn every_broken_rule_is_caught() {
    let programs = library::all();
    let mut missed = Vec::new();
    for mutation in Mutation::ALL {
        match catch(&programs, mutation) {
            Some((count, program, failure)) => {
                println!("{mutation:?}: caught by {count} programs; shortest: {}: {failure}\n", program.name);
            }
            None => missed.push(mutation),
        }
    }
    assert!(missed.is_empty(), "no program catches {missed:?}: nothing shows that these rules are needed");
}
