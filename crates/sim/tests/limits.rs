//! Limits that are accepted and documented. If one of these tests fails, its limit is gone: say so in the documents.

use us_sim::mutation::Mutation;
use us_sim::program::Program;
use us_sim::world::Violation;
use us_sim::{explore, library};

fn violation(program: &Program, mutation: Option<Mutation>) -> Option<Violation> {
    let failure = explore::check(program, mutation).failure?;
    println!("{}: {}: {failure}\n", program.name, program.why);
    Some(failure.violation)
}

#[test]
fn a_failed_try_may_look_spurious_after_a_failover() {
    assert_eq!(violation(&library::try_then_lock(), None), Some(Violation::NotNative));
}

#[test]
fn a_wait_may_return_for_nothing_after_a_failover() {
    for program in library::surplus_wakes() {
        assert_eq!(violation(&program, None), Some(Violation::NotNative), "{}", program.name);
    }
}

/// What becomes of such a return: a program whose waits are in loops is right even if every wait returns for nothing.
#[test]
fn a_program_that_waits_in_loops_does_not_see_it() {
    for name in ["condition", "two-waiters", "timed-wait", "signal-passed-on", "signalled-write"] {
        let program = library::all().into_iter().find(|p| p.name == name).expect("a program of the library");
        assert_eq!(violation(&program, Some(Mutation::CondWaitersReturnAtPromotion)), None, "{name}");
    }
}
