//! Standbys behind the first: clones of a running program, and spares behind a failover.

use us_sim::explore::{Context, Copies, check_with};
use us_sim::library;

/// Three accepts in doubt take a minute, and show nothing that two do not.
const LARGE: &str = "accept-herd";

fn explore(copies: Copies, copies_max: u8, is_fit: impl Fn(&str) -> bool) {
    let mut failures = 0;
    for program in library::all().iter().filter(|p| is_fit(p.name)) {
        let start = std::time::Instant::now();
        let cx = Context { copies_max, ..Context::new(program, None, copies) };
        if cx.copies == Copies::None {
            continue;
        }
        let report = check_with(cx);
        println!(
            "{:20} {copies_max} {copies:?}: {:>8} primary states, {:>7} kills, {:>9} standby states, {:>3} ends, {:?}",
            program.name,
            report.primary_states,
            report.kills,
            report.standby_states,
            report.outcomes.len(),
            start.elapsed()
        );
        if let Some(failure) = &report.failure {
            println!("{}: {}: {failure}", program.name, program.why);
            failures += 1;
        }
    }
    assert_eq!(failures, 0, "see the traces above");
}

#[test]
fn a_clone_at_any_moment_is_as_good_a_standby_as_the_first() {
    explore(Copies::Clones, 1, |name| name != LARGE);
}

#[test]
fn a_spare_takes_over_behind_a_failover() {
    explore(Copies::Spares, 1, |name| name != LARGE);
}

/// A clone of a clone, a spare behind a spare.
#[test]
fn so_is_the_one_behind_that() {
    // `made` takes four minutes, and shows nothing that `made-by-each` does not.
    const SLOW: [&str; 11] = [
        LARGE,
        "shared-clock",
        "signalled-write",
        "dup-and-accept",
        "echo",
        "close-and-accept",
        "two-mutexes",
        "exact-wakes",
        "signal-passed-on",
        "unlocked-senders",
        "made",
    ];
    for copies in [Copies::Clones, Copies::Spares] {
        explore(copies, 2, |name| !SLOW.contains(&name));
    }
}
