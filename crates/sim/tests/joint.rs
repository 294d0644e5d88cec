//! The split of the search is sound, and rings may be short.

use us_sim::explore::{Context, Copies};
use us_sim::{explore, library};

/// Programs whose joint state space is small.
const SMALL: [&str; 16] = [
    "locked-writes",
    "hand-off",
    "condition",
    "shared-condition",
    "timed-wait",
    "signal-passed-on",
    "trylock",
    "slot-reuse",
    "detached",
    "create",
    "once-twice",
    "one-clock",
    "long-write",
    "signalled-write",
    "unlocked-writers",
    "unlocked-readers",
];

#[test]
fn the_split_search_sees_what_the_joint_search_sees() {
    for program in library::all().iter().filter(|p| SMALL.contains(&p.name)) {
        let split = explore::check(program, None);
        let joint = explore::joint(program, None, None);
        println!("{:20} {} joint states", program.name, joint.standby_states);
        assert!(split.failure.is_none() && joint.failure.is_none(), "{}: {:?}", program.name, joint.failure);
        assert_eq!(split.outcomes, joint.outcomes, "{}", program.name);
        assert_eq!(split.refusals > 0, joint.refusals > 0, "{}", program.name);
    }
}

#[test]
fn the_same_with_further_standbys() {
    const TINY: [&str; 5] = ["locked-writes", "hand-off", "condition", "long-write", "unlocked-writers"];
    for program in library::all().iter().filter(|p| TINY.contains(&p.name)) {
        for copies in [Copies::Clones, Copies::Spares] {
            let cx = Context::new(program, None, copies);
            let (split, joint) = (explore::check_with(cx), explore::joint_with(cx, None));
            println!("{:20} {copies:?}: {} joint states", program.name, joint.standby_states);
            assert!(
                split.failure.is_none() && joint.failure.is_none(),
                "{}: {:?}",
                program.name,
                joint.failure
            );
            assert_eq!(split.outcomes, joint.outcomes, "{}", program.name);
            assert_eq!(split.refusals > 0, joint.refusals > 0, "{}", program.name);
        }
    }
}

#[test]
fn a_ring_of_one_event_stops_nobody_for_good() {
    for program in library::all().iter().filter(|p| SMALL.contains(&p.name)) {
        let report = explore::joint(program, None, Some(1));
        println!("{:20} {} joint states with short rings", program.name, report.standby_states);
        assert!(report.failure.is_none(), "{}: {}", program.name, report.failure.expect("checked"));
    }
}
