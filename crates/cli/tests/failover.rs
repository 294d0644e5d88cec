//! What the supervisor does when a copy dies, with a stand-in for the runtime.

mod common;

use common::{Sandbox, is_alive, kill, pid};
use rustix::process::Signal;

/// Kills the primary of a protected group; the group goes on in its standby.
fn failover(stand_in: &'static str) {
    let sandbox = Sandbox::new(stand_in);
    let mut running = sandbox.start_with(&["--no-reprotect"], "g", &["wait"]);
    let protected = sandbox.wait_for_event("protected");
    kill(pid(&protected["primary"]), Signal::KILL);
    running.wait_for_output("ready\n");
    let promoted = sandbox.wait_for_event("promoted");
    assert_eq!(promoted["reason"], "killed by SIGKILL");
    assert_eq!(promoted["primary"], protected["standby"]);
    assert_eq!((&promoted["in_doubt"], &promoted["unsettled"]), (&1.into(), &0.into()));
    assert!(promoted["blackout_us"].as_u64().unwrap() < 60_000_000, "{promoted}");

    assert_eq!(sandbox.wait_for_event("unprotected")["why"], "the standby was promoted");
    let group = sandbox.group();
    assert_eq!(group["epoch"], 1);
    assert_eq!(group["state"], "unprotected");
    assert_eq!(group["failovers"][0]["reason"], "killed by SIGKILL");
    assert_eq!(group["processes"][0]["guest_pid"], protected["primary"]);
    assert_eq!(group["processes"][0]["primary"]["pid"], protected["standby"]);

    // Signals go to the new primary, and its exit code is the group's.
    kill(running.child.id(), Signal::TERM);
    running.wait_for_output("signal 15\n");
    let (code, said) = running.finish();
    assert_eq!(code, Some(7));
    assert!(said.contains("took over in"), "{said}");
    assert_eq!(sandbox.event("ended").unwrap()["exit_code"], 7);
    sandbox.assert_clean();
}

#[test]
fn a_killed_primary_is_noticed_by_its_threads() {
    failover("follow");
}

#[test]
fn a_killed_primary_is_noticed_by_its_end_when_no_thread_tells() {
    failover("mute");
}

#[test]
fn the_program_goes_on_without_its_standby() {
    let sandbox = Sandbox::new("follow");
    let mut running = sandbox.start_with(&["--no-reprotect"], "g", &["wait"]);
    let standby = pid(&sandbox.wait_for_event("protected")["standby"]);
    kill(standby, Signal::KILL);
    let why = "the standby's process is gone: killed by SIGKILL";
    assert_eq!(sandbox.wait_for_event("standby_lost")["why"], why);
    assert_eq!(sandbox.wait_for_event("unprotected")["why"], why);
    assert_eq!(sandbox.group()["why"], why);
    kill(running.child.id(), Signal::TERM);
    running.wait_for_output("signal 15\n");
    assert_eq!(running.finish().0, Some(7));
    sandbox.assert_clean();
}

#[test]
fn a_standby_that_dies_at_once_is_lost() {
    let sandbox = Sandbox::new("die");
    let running = sandbox.start("g", &["wait"]);
    sandbox.wait_for_event("standby_lost");
    kill(running.child.id(), Signal::TERM);
    assert_eq!(running.finish().0, Some(7));
    sandbox.assert_clean();
}

#[test]
fn a_diverged_standby_is_ended_and_never_promoted() {
    let sandbox = Sandbox::new("diverge");
    let running = sandbox.start_with(&["--no-reprotect"], "g", &["wait"]);
    let protected = sandbox.wait_for_event("protected");
    assert_eq!(sandbox.wait_for_event("diverged")["reason"], "write of 5 bytes differs");
    sandbox.wait_for_event("unprotected");
    assert_eq!(sandbox.group()["divergences"][0]["reason"], "write of 5 bytes differs");
    common::wait_for(|| (!is_alive(pid(&protected["standby"]))).then_some(()), "the standby to end");
    kill(pid(&protected["primary"]), Signal::KILL);
    assert_eq!(running.finish().0, Some(137));
    assert_eq!(sandbox.event("promoted"), None);
    sandbox.assert_clean();
}

#[test]
fn a_standby_that_cannot_take_over_ends_the_group_as_its_primary_ended() {
    let sandbox = Sandbox::new("refuse");
    let running = sandbox.start("g", &["wait"]);
    kill(pid(&sandbox.wait_for_event("protected")["primary"]), Signal::KILL);
    let (code, said) = running.finish();
    assert_eq!(code, Some(137));
    assert!(said.contains("could not take over"), "{said}");
    assert_eq!(sandbox.event("promoted"), None);
    sandbox.assert_clean();
}

#[test]
fn an_exit_is_no_death() {
    let sandbox = Sandbox::new("follow");
    for code in [0, 3] {
        let guest = common::built().guest.to_str().unwrap();
        let events = sandbox.events_path();
        let out = sandbox.output(&[
            "run",
            "--events",
            events.to_str().unwrap(),
            "--",
            guest,
            "exit",
            &code.to_string(),
        ]);
        assert_eq!(out.status.code(), Some(code));
        assert_eq!(common::text(&out.stderr), "");
    }
    assert_eq!(sandbox.event("promoted"), None);
    assert_eq!(sandbox.event("standby_lost"), None);
    sandbox.assert_clean();
}

#[test]
fn stop_ends_a_stubborn_program_without_a_promotion() {
    let sandbox = Sandbox::new("follow");
    let running = sandbox.start("g", &["stubborn"]);
    sandbox.wait_for_event("protected");
    let out = sandbox.output(&["stop", "g", "--timeout", "0.1"]);
    assert!(out.status.success(), "{}", common::text(&out.stderr));
    assert_eq!(running.finish().0, Some(137));
    assert_eq!(sandbox.event("promoted"), None);
    sandbox.assert_clean();
}

#[test]
fn stop_by_sigkill_is_no_failover() {
    let sandbox = Sandbox::new("follow");
    let running = sandbox.start("g", &["wait"]);
    sandbox.wait_for_event("protected");
    assert!(sandbox.output(&["stop", "g", "--signal", "KILL"]).status.success());
    assert_eq!(running.finish().0, Some(137));
    assert_eq!(sandbox.event("promoted"), None);
    sandbox.assert_clean();
}

#[test]
fn without_its_supervisor_the_program_goes_on_unprotected() {
    let sandbox = Sandbox::new("follow");
    let mut running = sandbox.start("g", &["wait"]);
    let protected = sandbox.wait_for_event("protected");
    running.child.kill().unwrap();
    running.child.wait().unwrap();
    common::wait_for(|| (!is_alive(pid(&protected["standby"]))).then_some(()), "the standby to end");
    let group = sandbox.group();
    assert_eq!((&group["state"], &group["why"]), (&"unprotected".into(), &"the supervisor is gone".into()));
    assert_eq!(
        sandbox.output(&["run", "--name", "g", "true"]).status.code(),
        Some(125),
        "the name is in use"
    );
    assert!(sandbox.output(&["signal", "g", "USR1"]).status.success());
    running.wait_for_output("signal 10\n");
    assert!(sandbox.output(&["stop", "g"]).status.success());
    sandbox.assert_clean();
}

/// Kills the supervisor and the primary; looking at the group then clears it away, its standby too.
fn dead_group(stand_in: &'static str, look: &[&str], said: &str) {
    let sandbox = Sandbox::new(stand_in);
    let mut running = sandbox.start("g", &["wait"]);
    let protected = sandbox.wait_for_event("protected");
    running.child.kill().unwrap();
    running.child.wait().unwrap();
    kill(pid(&protected["primary"]), Signal::KILL);
    common::wait_for(|| (!is_alive(pid(&protected["primary"]))).then_some(()), "the primary to end");
    assert!(sandbox.state().join("g").exists());
    assert!(common::text(&sandbox.output(look).stdout).starts_with(said));
    sandbox.assert_clean();
}

#[test]
fn status_clears_a_dead_group_away() {
    dead_group("follow", &["status"], "no groups\n");
}

#[test]
fn status_ends_a_standby_that_outlived_its_group() {
    dead_group("deaf", &["status"], "no groups\n");
}

#[test]
fn a_dead_groups_name_is_free_again() {
    dead_group("deaf", &["run", "--name", "g", "echo", "again"], "again\n");
}

#[test]
fn stop_clears_a_dead_group_away() {
    dead_group("deaf", &["stop", "g"], "");
}
