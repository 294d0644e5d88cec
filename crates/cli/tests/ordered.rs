//! `--order serial` and `--order deterministic` with the real runtime: a race has one outcome, with a standby and without.
//! `$UNDERSTUDY_LIB`, or `libunderstudy.so` beside the binary. Without one the tests say so and check nothing.

mod common;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use common::{Sandbox, compile, runtime, text};

/// A guest of the racey family.
fn guest(name: &str) -> PathBuf {
    let flags = ["-O2", "-pthread", "-D_GNU_SOURCE"];
    compile(
        &format!("../../../../guests/{name}.c"),
        &format!("{name}-{:?}", std::thread::current().id()),
        &flags,
    )
}

/// What a guest prints in that many runs, with the digest of its order where the world has no part in that, and how often.
fn outcomes(
    sandbox: &Sandbox,
    name: &str,
    order: &str,
    standbys: &str,
    runs: usize,
) -> BTreeMap<String, usize> {
    let program = guest(name);
    let events = sandbox.folder.path().join("order-events");
    let words = ["run", "-q", "--standbys", standbys, "--order", order, "--events", events.to_str().unwrap()];
    let words = [&words[..], &["--", program.to_str().unwrap()]].concat();
    let mut all = BTreeMap::new();
    for _ in 0..runs {
        let done = sandbox.output(&words);
        assert_eq!(done.status.code(), Some(0), "{}", text(&done.stderr));
        let ended = std::fs::read_to_string(&events).unwrap();
        let ended: serde_json::Value = serde_json::from_str(ended.lines().last().unwrap()).unwrap();
        assert_eq!(ended["event"], "ended", "{ended}");
        assert!(ended["order_turns"].as_u64() > Some(0), "{ended}");
        let digest = match ended["order_placed"].as_u64() {
            Some(0) => ended["order_digest"].as_str().unwrap(),
            _ => "the world's",
        };
        *all.entry(text(&done.stdout) + digest).or_default() += 1;
    }
    all
}

/// One outcome, whoever follows.
fn is_one(test: &str, name: &str, order: &str) {
    let Some(library) = runtime(test) else { return };
    let sandbox = Sandbox::with_library(&library, "");
    let mut all = outcomes(&sandbox, name, order, "0", 12);
    for standbys in ["1", "2"] {
        for (outcome, count) in outcomes(&sandbox, name, order, standbys, 4) {
            *all.entry(outcome).or_default() += count;
        }
    }
    assert_eq!(all.len(), 1, "{name}, {order}: {all:?}");
    assert!(all.keys().all(|outcome| outcome.starts_with("signature ")), "{all:?}");
}

#[test]
fn turns_make_a_race_without_locks_one() {
    is_one("turns", "racey_unguarded", "serial");
}

#[test]
fn turns_make_a_barriers_race_one() {
    is_one("turns-barrier", "racey_barrier", "serial");
}

#[test]
fn turns_make_a_race_of_atomics_one() {
    is_one("turns-lockfree", "racey_lockfree", "serial");
}

#[test]
fn calls_that_need_not_wait_keep_their_place() {
    is_one("turns-calls", "racey_calls", "serial");
}

#[test]
fn computed_locks_around_a_connection_are_one() {
    is_one("computed-tcp", "racey_tcp", "deterministic");
}

#[test]
fn computed_locks_are_one() {
    is_one("computed", "racey_guarded", "deterministic");
}

#[test]
fn computed_barriers_and_conditions_are_one() {
    is_one("computed-barrier", "racey_barrier", "deterministic");
}

#[test]
fn what_the_program_puts_in_order_is_one() {
    is_one("sdk", "racey_sdk", "deterministic");
}

/// How often a copy has gone another way in the group that has ended last.
fn last_divergences(sandbox: &Sandbox) -> u64 {
    let ended: serde_json::Value =
        serde_json::from_slice(&sandbox.output(&["status", "--json"]).stdout).unwrap();
    ended["ended"][0]["divergences_total"].as_u64().unwrap()
}

/// What is told of a guest that runs to its end, by an Understudy that remembers races so.
fn told_of(sandbox: &Sandbox, guest: &Path, races: &str) -> String {
    let mut command = sandbox.understudy(&["run", "--name", "g", "--", guest.to_str().unwrap()]);
    let done = command.env("UNDERSTUDY_RACES", races).output().unwrap();
    assert_eq!(done.status.code(), Some(0), "{}", text(&done.stderr));
    text(&done.stderr)
}

/// A signal that comes to a thread which computes waits for a milestone on its way, and costs no standby, or hardly ever one.
#[test]
fn signals_interrupt_computing_threads_at_milestones() {
    let test = "signals_interrupt_computing_threads_at_milestones";
    let Some(library) = runtime(test) else { return };
    let sandbox = Sandbox::with_library(&library, "");
    let guest = compile("../../../../guests/signal_computing.c", test, &["-O1", "-pthread", "-D_GNU_SOURCE"]);
    for _ in 0..2 {
        let told = told_of(&sandbox, &guest, "off");
        let lost = told.matches("it is delivered at once").count();
        // A search that finds nothing is not begun again at once, and each signal until then costs one: none in 35 of 40 runs, five in
        // two. Without milestones it is each of 150, as fast as standbys are made.
        assert!(lost <= 10, "{lost} standbys: {told}");
        assert!(told.contains("gives its turn back at a milestone"), "no milestone: {told}");
        assert!(!told.contains("its content is another"), "{told}");
    }
    sandbox.assert_clean();
}

/// Threads that ask each other by flags take turns from the first question on, and not only once a copy has gone another way.
#[test]
fn questions_by_flags_are_seen() {
    let test = "questions_by_flags_are_seen";
    let Some(library) = runtime(test) else { return };
    let sandbox = Sandbox::with_library(&library, "");
    let guest = compile("../../../../guests/turns_asks.c", test, &["-O2", "-pthread", "-D_GNU_SOURCE"]);
    let run = |races: &str| told_of(&sandbox, &guest, races);
    let mut divergences = 0;
    for _ in 0..10 {
        let told = run("off");
        assert!(told.contains("its threads take turns"), "{told}");
        divergences += last_divergences(&sandbox);
    }
    // The copy may have been at the flag before.
    assert!(divergences <= 3, "{divergences} in 10 runs");
    run("");
    let told = run("");
    assert!(!told.contains("unprotected"), "known from the beginning: {told}");
    sandbox.assert_clean();
}

/// A thread that computes gives its turn back where a copy finds the place again: behind the first milestone nothing diverges.
#[test]
fn turns_are_given_back_at_milestones() {
    let test = "turns_are_given_back_at_milestones";
    let Some(library) = runtime(test) else { return };
    let sandbox = Sandbox::with_library(&library, "");
    let guest = compile("../../../../guests/turns_milestones.c", test, &["-O2", "-pthread", "-D_GNU_SOURCE"]);
    for _ in 0..3 {
        let told = told_of(&sandbox, &guest, "off");
        let (_, behind) = told
            .split_once("gives its turn back at a milestone")
            .unwrap_or_else(|| panic!("no milestone: {told}"));
        assert!(!behind.contains("its content is another"), "{told}");
        // The standby that has it takes the place of one that follows until then.
        assert!(told.contains("is protected by its spare standby"), "{told}");
        assert!(!told.contains("unprotected: a thread computes"), "{told}");
    }
    sandbox.assert_clean();
}

/// A program that has raced in one run takes turns from the beginning in the next one, and one that is told to forget does not.
#[test]
fn a_race_is_remembered() {
    let test = "a_race_is_remembered";
    let Some(library) = runtime(test) else { return };
    let sandbox = Sandbox::with_library(&library, "");
    let guest = compile("../../../../guests/turns_race.c", test, &["-O2", "-pthread", "-D_GNU_SOURCE"]);
    let divergences = |races: &str| {
        let words = ["run", "-q", "--name", "g", "--", guest.to_str().unwrap()];
        let mut command = sandbox.understudy(&words);
        command.env("UNDERSTUDY_RACES", races);
        assert_eq!(command.output().unwrap().status.code(), Some(0));
        last_divergences(&sandbox)
    };
    let first = (0..200).map(|_| divergences("off")).find(|count| *count > 0);
    assert!(first.is_some(), "a race that shows without turns");
    let known = sandbox.state().join("@races");
    assert!(!known.exists(), "off remembers nothing");
    // A run that ends before it has a standby again shows nothing that turns would mend. Threads that have asked each other by flags
    // are known without a divergence, and from then on there is none.
    let is_known = |_| {
        divergences("");
        known.exists()
    };
    assert!((0..200).any(is_known), "a race that is remembered");
    assert_eq!((0..6).map(|_| divergences("")).sum::<u64>(), 0, "known from the beginning");
    assert!((0..200).map(|_| divergences("off")).any(|count| count > 0), "off knows nothing");
    sandbox.assert_clean();
}

/// What a guest prints with a seed, and how often a copy took over. `kills`: primaries of any of its processes.
fn drawn(
    sandbox: &Sandbox,
    program: &Path,
    (order, seed): (&str, &str),
    standbys: &str,
    kills: usize,
) -> (String, usize) {
    let words =
        ["run", "-q", "--name", "drawn", "--standbys", standbys, "--order", order, "--seed", seed, "--"];
    let mut command = sandbox.understudy(&words);
    let mut running = command.arg(program).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut killed = 0;
    while killed < kills && running.try_wait().unwrap().is_none() {
        let status: serde_json::Value =
            serde_json::from_slice(&sandbox.output(&["status", "--json"]).stdout).unwrap();
        let processes = status["groups"][0]["processes"].as_array().cloned().unwrap_or_default();
        if let Some(last) = processes.last().filter(|last| last["state"] == "protected") {
            common::kill(common::pid(&last["primary"]["pid"]), rustix::process::Signal::KILL);
            killed += 1;
        }
        std::thread::sleep(std::time::Duration::from_millis(40));
    }
    let done = running.wait_with_output().unwrap();
    assert_eq!(done.status.code(), Some(0), "{}", text(&done.stderr));
    (text(&done.stdout), killed)
}

#[test]
fn random_numbers_follow_from_a_seed() {
    let test = "random_numbers_follow_from_a_seed";
    let Some(library) = runtime(test) else { return };
    let sandbox = Sandbox::with_library(&library, "");
    let program = guest("random_seeded");
    let (first, _) = drawn(&sandbox, &program, ("serial", "7"), "0", 0);
    assert!(first.ends_with("ok\n"), "{first}");
    let numbers: std::collections::BTreeSet<_> =
        first.lines().filter_map(|line| line.split(' ').nth(3)).collect();
    assert_eq!(numbers.len(), 960, "no two threads or processes draw the same: {first}");
    for order in ["serial", "deterministic"] {
        for (standbys, kills) in [("0", 0), ("1", 0), ("1", 3), ("2", 5)] {
            let (again, killed) = drawn(&sandbox, &program, (order, "7"), standbys, kills);
            assert!(again == first, "{order}, {standbys} standbys, {killed} kills: {again} and not {first}");
            assert_eq!(killed, kills, "{order}, {standbys} standbys");
        }
    }
    let (other, _) = drawn(&sandbox, &program, ("serial", "8"), "0", 0);
    let same = other.lines().filter(|line| first.lines().any(|of_first| of_first == *line)).count();
    assert_eq!((other.len(), same), (first.len(), 1), "all but the last line: {other}");
    let refused = sandbox.output(&["run", "--seed", "7", "--", "true"]);
    assert_eq!(refused.status.code(), Some(2), "{}", text(&refused.stderr));
    assert!(text(&refused.stderr).contains("--order serial"), "{}", text(&refused.stderr));
    sandbox.assert_clean();
}
