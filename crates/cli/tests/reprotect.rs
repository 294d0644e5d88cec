//! What the supervisor does to bring protection back, and switches on request, with a stand-in for the runtime.

mod common;

use common::{Running, Sandbox, is_alive, kill, pid, text, wait_for};
use rustix::process::Signal;
use serde_json::Value;

/// Ends the program through its supervisor; its exit code tells that the last copy took the signal.
fn end(sandbox: &Sandbox, mut running: Running) -> String {
    kill(running.child.id(), Signal::TERM);
    running.wait_for_output("signal 15\n");
    let (code, said) = running.finish();
    assert_eq!(code, Some(7), "{said}");
    sandbox.assert_clean();
    said
}

/// Waits until `status` shows this state.
fn wait_for_state(sandbox: &Sandbox, state: &str) -> Value {
    wait_for(|| Some(sandbox.group()).filter(|group| group["state"] == state), &format!("the state {state}"))
}

fn names(sandbox: &Sandbox) -> Vec<String> {
    sandbox.events().iter().map(|event| event["event"].as_str().unwrap().to_owned()).collect()
}

#[test]
fn a_group_survives_one_kill_after_the_other() {
    const KILLS: usize = 20;
    let sandbox = Sandbox::new("follow");
    let running = sandbox.start("g", &["wait"]);
    let mut primary = pid(&sandbox.wait_for_event("protected")["primary"]);
    for round in 1..=KILLS {
        kill(primary, Signal::KILL);
        let recloned = sandbox.wait_for_events("recloned", round);
        assert_eq!(recloned["reason"], "promotion");
        assert_eq!((&recloned["pause_us"], &recloned["bytes"]), (&1234.into(), &4096.into()));
        assert_ne!(pid(&recloned["primary"]), primary);
        primary = pid(&recloned["primary"]);
    }
    let group = wait_for_state(&sandbox, "protected");
    assert_eq!(group["epoch"], KILLS);
    assert_eq!((&group["reclones_total"], &group["reclones_failed"]), (&KILLS.into(), &0.into()));
    assert_eq!(group["failovers"].as_array().unwrap().len(), KILLS);
    assert_eq!(group["reclones"][KILLS - 1]["why"], "the standby was promoted");
    assert_eq!(group["processes"][0]["primary"]["pid"], primary);
    assert_eq!(group["guarantee"], "exactly once; survives process death on this machine");
    let share = group["protected_share"].as_f64().unwrap();
    assert!(share > 0.0 && share <= 1.0, "{share}");
    // Each is told in its place, however long a dead primary takes to be gone.
    let mut expected = vec!["started", "protected"];
    expected.extend(["promoted", "recloned"].repeat(KILLS));
    assert_eq!(names(&sandbox), expected);
    let table = text(&sandbox.output(&["status"]).stdout);
    assert!(table.contains("10 new standbys before these"), "{table}");
    end(&sandbox, running);
}

#[test]
fn many_failovers_leave_nothing_behind_in_the_supervisor() {
    let sandbox = Sandbox::new("follow");
    let running = sandbox.start("g", &["wait"]);
    sandbox.wait_for_event("protected");
    let held = || {
        let folder = |name: &str| std::fs::read_dir(format!("/proc/{}/{name}", running.child.id())).unwrap();
        (folder("fd").count(), folder("task").count())
    };
    let mut after_first = None;
    for round in 1..=50 {
        let group = wait_for_state(&sandbox, "protected");
        kill(pid(&group["processes"][0]["primary"]["pid"]), Signal::KILL);
        sandbox.wait_for_events("recloned", round);
        wait_for(|| (*after_first.get_or_insert_with(held) == held()).then_some(()), "as few descriptors");
    }
    assert_eq!(sandbox.group()["epoch"], 50);
    end(&sandbox, running);
}

#[test]
fn a_lost_standby_is_replaced() {
    let sandbox = Sandbox::new("follow");
    let running = sandbox.start("g", &["wait"]);
    let protected = sandbox.wait_for_event("protected");
    kill(pid(&protected["standby"]), Signal::KILL);
    let recloned = sandbox.wait_for_event("recloned");
    assert_eq!(recloned["reason"], "standby lost");
    assert_eq!(recloned["why"], "the standby's process is gone: killed by SIGKILL");
    assert_eq!(recloned["primary"], protected["primary"]);
    assert_ne!(recloned["standby"], protected["standby"]);
    assert_eq!(names(&sandbox), ["started", "protected", "standby_lost", "unprotected", "recloned"]);
    let group = wait_for_state(&sandbox, "protected");
    assert_eq!((&group["epoch"], &group["reclones"][0]["reason"]), (&0.into(), &"standby lost".into()));
    assert_eq!(group.get("why"), None);
    end(&sandbox, running);
}

#[test]
fn a_standby_that_keeps_diverging_is_replaced_more_and_more_rarely() {
    let sandbox = Sandbox::new("diverge");
    let running = sandbox.start("g", &["wait"]);
    let last = sandbox.wait_for_events("recloned", 4);
    assert_eq!((&last["reason"], &last["why"]), (&"divergence".into(), &"write of 5 bytes differs".into()));
    // The first at once, then after forty milliseconds, and twice as long each time.
    let gaps: Vec<u64> = sandbox
        .events()
        .iter()
        .filter(|event| event["event"] == "recloned")
        .map(|event| event["gap_us"].as_u64().unwrap())
        .collect();
    assert!((1..gaps.len()).all(|loss| gaps[loss] >= 20_000 << loss), "{gaps:?}");
    assert!(sandbox.group()["divergences_total"].as_u64().unwrap() >= 4);
    end(&sandbox, running);
}

#[test]
fn no_reprotect_means_no_second_standby() {
    let sandbox = Sandbox::new("follow");
    let running = sandbox.start_with(&["--no-reprotect"], "g", &["wait"]);
    kill(pid(&sandbox.wait_for_event("protected")["primary"]), Signal::KILL);
    sandbox.wait_for_event("unprotected");
    assert_eq!(sandbox.group()["state"], "unprotected");
    end(&sandbox, running);
    assert_eq!(sandbox.event("recloned"), None);
}

#[test]
fn a_standby_that_cannot_be_made_is_said_and_tried_for_again() {
    let sandbox = Sandbox::new("barren");
    let running = sandbox.start("g", &["wait"]);
    kill(pid(&sandbox.wait_for_event("protected")["primary"]), Signal::KILL);
    let failed = |group: &Value| group["reclones_failed"].as_u64().unwrap() >= 3;
    let group = wait_for(|| Some(sandbox.group()).filter(failed), "three attempts");
    assert_eq!(group["state"], "reprotecting");
    let why = "the standby was promoted; no new one could be made: a thread could not be parked";
    assert_eq!(group["why"], why);
    assert_eq!(sandbox.event("unprotected").unwrap()["why"], "the standby was promoted");
    let said = end(&sandbox, running);
    // However often it was tried.
    assert_eq!(
        said.matches("a new standby could not be made: a thread could not be parked").count(),
        1,
        "{said}"
    );
}

#[test]
fn a_primary_that_does_not_answer_runs_on() {
    let sandbox = Sandbox::new("busy");
    let running = sandbox.start("g", &["wait"]);
    kill(pid(&sandbox.wait_for_event("protected")["standby"]), Signal::KILL);
    let group = wait_for(
        || Some(sandbox.group()).filter(|group| group["reclones_failed"].as_u64() > Some(0)),
        "an attempt to be given up",
    );
    assert_eq!(group["state"], "reprotecting");
    assert!(group["why"].as_str().unwrap().ends_with("the primary did not answer in time"), "{group}");
    end(&sandbox, running);
}

#[test]
fn a_primary_that_is_killed_while_it_is_asked_ends_the_group() {
    let sandbox = Sandbox::new("busy");
    let running = sandbox.start("g", &["wait"]);
    let protected = sandbox.wait_for_event("protected");
    kill(pid(&protected["standby"]), Signal::KILL);
    sandbox.wait_for_event("unprotected");
    kill(pid(&protected["primary"]), Signal::KILL);
    assert_eq!(running.finish().0, Some(137));
    assert_eq!(sandbox.event("promoted"), None);
    sandbox.assert_clean();
}

// ---- Planned switches ----

fn planned(stand_in: &'static str) {
    let sandbox = Sandbox::new(stand_in);
    let running = sandbox.start("g", &["wait"]);
    let protected = sandbox.wait_for_event("protected");
    let out = sandbox.output(&["failover", "g", "--json"]);
    assert!(out.status.success(), "{}", text(&out.stderr));
    let done: Value = serde_json::from_slice(&out.stdout).unwrap();
    assert_eq!((&done["reason"], &done["epoch"]), (&"planned".into(), &1.into()));
    assert_eq!(done["primary"], protected["standby"]);
    assert!(done["blackout_us"].as_u64().unwrap() < 60_000_000, "{done}");
    assert_eq!(sandbox.wait_for_event("promoted")["reason"], "planned");
    assert!(!is_alive(pid(&protected["primary"])));
    sandbox.wait_for_event("recloned");
    let out = sandbox.output(&["failover", "g"]);
    let said = text(&out.stdout);
    assert!(said.starts_with("g: pid ") && said.contains(" took over, blackout "), "{said}");
    let group = wait_for_state(&sandbox, "protected");
    assert_eq!((&group["epoch"], &group["failovers"][1]["reason"]), (&2.into(), &"planned".into()));
    end(&sandbox, running);
}

#[test]
fn a_planned_switch() {
    planned("follow");
}

#[test]
fn a_primary_that_does_not_park_is_switched_all_the_same() {
    planned("restless");
}

#[test]
fn a_primary_that_cannot_park_stays_and_gets_a_new_standby() {
    let sandbox = Sandbox::new("unparkable");
    let running = sandbox.start("g", &["wait"]);
    let protected = sandbox.wait_for_event("protected");
    let out = sandbox.output(&["failover", "g"]);
    let said = text(&out.stderr);
    assert_eq!(out.status.code(), Some(1));
    assert!(said.contains("a planned failover was called off"), "{said}");
    let recloned = sandbox.wait_for_event("recloned");
    assert_eq!(
        (&recloned["reason"], &recloned["primary"]),
        (&"not replayable".into(), &protected["primary"])
    );
    assert_eq!(sandbox.event("promoted"), None);
    end(&sandbox, running);
}

#[test]
fn there_is_no_switch_without_a_standby() {
    let sandbox = Sandbox::new("follow");
    let refused = |why: &str| {
        let out = sandbox.output(&["failover", "g"]);
        let said = text(&out.stderr);
        assert_eq!((out.status.code(), said.contains(why)), (Some(1), true), "{said}");
    };
    refused("there is no group named g");
    let running = sandbox.start_with(&["--no-reprotect"], "g", &["wait"]);
    sandbox.wait_for_event("protected");
    assert!(sandbox.output(&["failover", "g"]).status.success());
    refused("g: there is no standby: the standby was promoted");
    end(&sandbox, running);
    let running = sandbox.start_with(&["--standbys", "0"], "g", &["wait"]);
    refused("g: there is no standby: started with --standbys 0");
    end(&sandbox, running);
}

#[test]
fn without_a_supervisor_there_is_no_switch() {
    let sandbox = Sandbox::new("follow");
    let mut running = sandbox.start("g", &["wait"]);
    sandbox.wait_for_event("protected");
    running.child.kill().unwrap();
    running.child.wait().unwrap();
    let out = sandbox.output(&["failover", "g"]);
    assert_eq!((out.status.code(), text(&out.stderr).contains("the supervisor is gone")), (Some(1), true));
    assert!(sandbox.output(&["stop", "g"]).status.success());
    sandbox.assert_clean();
}

// ---- The probe ----

/// A command that fails while the group's primary is stopped: it looks where a client would only wait.
fn not_stopped(sandbox: &Sandbox) -> String {
    let pid = sandbox.folder.path().join("primary");
    format!("! grep -q '^State:.T' /proc/$(cat {})/status", pid.display())
}

#[test]
fn a_probe_that_fails_three_times_fences_a_stopped_primary() {
    let sandbox = Sandbox::new("follow");
    let command = not_stopped(&sandbox);
    let running = sandbox.start_with(&["--probe", &command, "--probe-interval", "100"], "g", &["wait"]);
    let primary = pid(&sandbox.wait_for_event("protected")["primary"]);
    std::fs::write(sandbox.folder.path().join("primary"), primary.to_string()).unwrap();
    let group = sandbox.group();
    assert_eq!((&group["probe"]["command"], &group["probe"]["waits"]), (&command.into(), &false.into()));
    kill(primary, Signal::STOP);
    let promoted = sandbox.wait_for_event("promoted");
    assert_eq!(promoted["reason"], "probe failed 3 times");
    std::fs::write(sandbox.folder.path().join("primary"), promoted["primary"].to_string()).unwrap();
    wait_for(|| (!is_alive(primary)).then_some(()), "the stopped primary to end");
    sandbox.wait_for_event("recloned");
    end(&sandbox, running);
}

#[test]
fn a_probe_that_hangs_counts_as_failed_and_leaves_nothing() {
    let sandbox = Sandbox::new("follow");
    let options = ["--no-reprotect", "--probe", "sleep 1000 & wait", "--probe-interval", "50"];
    let running = sandbox.start_with(&options, "g", &["wait"]);
    assert_eq!(sandbox.wait_for_event("promoted")["reason"], "probe failed 3 times");
    // Nobody could take over any more: the probe waits, and says so.
    sandbox.wait_for_event("unprotected");
    let group = sandbox.group();
    assert_eq!(group["probe"]["waits"], true);
    assert!(text(&sandbox.output(&["status"]).stdout).contains("the probe waits until there is a standby"));
    end(&sandbox, running);
}
