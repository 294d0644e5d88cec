//! Every program of the library, exhaustively.

use us_sim::{explore, library};

#[test]
fn the_protocol_survives_every_kill() {
    let mut failures = 0;
    for program in library::all() {
        let start = std::time::Instant::now();
        let report = explore::check(&program, None);
        println!(
            "{:20} {:>8} primary states, {:>6} kills, {:>9} standby states, {:>3} outcomes, {} refused, {:?}",
            program.name,
            report.primary_states,
            report.kills,
            report.standby_states,
            report.outcomes.len(),
            report.refusals,
            start.elapsed()
        );
        if let Some(failure) = &report.failure {
            println!("{}: {}: {failure}", program.name, program.why);
            failures += 1;
            continue;
        }
        // A primary that was never killed in the middle would make the rest of this test idle.
        assert!(report.kills > 1 && report.primary_states > report.kills, "{}", program.name);
        // A program that may be refused and never is no longer tests what it is there for.
        assert_eq!(program.may_refuse, report.refusals > 0, "{}", program.name);
    }
    assert_eq!(failures, 0, "see the traces above");
}
