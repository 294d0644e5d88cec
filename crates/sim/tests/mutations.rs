//! Every broken rule is caught by some program.

use us_sim::explore::{self, Context, Copies, Failure};
use us_sim::{library, mutation::Mutation, program::Program};

/// Programs that are too large for this, and catch nothing that the others do not.
const LARGE: [&str; 1] = ["accept-herd"];
/// Of searches with further standbys these as well.
const LARGE_WITH_COPIES: [&str; 6] =
    ["shared-clock", "signalled-write", "dup-and-accept", "signal-passed-on", "exact-wakes", "two-mutexes"];
/// Small enough for the search without the split.
const SMALL: [&str; 5] = ["slot-reuse", "unlocked-writers", "locked-writes", "hand-off", "long-write"];

/// The shortest failure that a broken rule leads to, how many programs catch it, and which was first.
fn catch(programs: &[Program], mutation: Mutation) -> Option<(usize, &Program, Failure)> {
    let (copies, joint) = (mutation.copies(), mutation.needs_joint());
    let is_fit = |p: &&Program| {
        let large = LARGE.contains(&p.name) || copies != Copies::None && LARGE_WITH_COPIES.contains(&p.name);
        if joint { SMALL.contains(&p.name) } else { !large }
    };
    let programs = programs.iter().filter(is_fit).filter(|p| mutation.concerns(p));
    let failures: Vec<_> = programs
        .filter_map(|program| {
            let cx = Context::new(program, Some(mutation), copies);
            let report = if joint { explore::joint_with(cx, None) } else { explore::check_with(cx) };
            report.failure.map(|failure| (program, failure))
        })
        .collect();
    let count = failures.len();
    let shortest = failures.into_iter().min_by_key(|(_, failure)| failure.trace.len())?;
    Some((count, shortest.0, shortest.1))
}

#[test]
fn every_broken_rule_is_caught() {
    let programs = library::all();
    let mut missed = Vec::new();
    let is_of_programs = |mutation: &Mutation| !mutation.is_of_family() && !mutation.is_of_ring();
    for mutation in Mutation::ALL.into_iter().filter(is_of_programs) {
        let start = std::time::Instant::now();
        let caught = catch(&programs, mutation);
        let took = start.elapsed();
        match caught {
            Some((count, program, failure)) => {
                println!("{mutation:?}: {count} programs, {took:?}; shortest: {}: {failure}\n", program.name);
            }
            None => missed.push(mutation),
        }
    }
    assert!(missed.is_empty(), "no program catches {missed:?}: nothing shows that these rules are needed");
}
