//! What people and scripts read: help, man page, completions, `status --json`, `doctor`.

mod common;

use std::process::Command;

use common::{Sandbox, golden, text};
use serde_json::Value;

#[test]
fn help() {
    let sandbox = Sandbox::new("silent");
    for (name, arguments) in [
        ("help.txt", &["--help"][..]),
        ("help-run.txt", &["run", "--help"]),
        ("help-status.txt", &["status", "--help"]),
        ("help-explain.txt", &["explain", "--help"]),
        ("help-stop.txt", &["stop", "--help"]),
        ("help-signal.txt", &["signal", "--help"]),
        ("help-failover.txt", &["failover", "--help"]),
        ("help-doctor.txt", &["doctor", "--help"]),
        ("help-inspect.txt", &["inspect", "--help"]),
        ("help-top.txt", &["top", "--help"]),
        ("help-serve.txt", &["serve", "--help"]),
        ("help-wait.txt", &["wait", "--help"]),
        ("help-man.txt", &["man", "--help"]),
        ("help-node.txt", &["node", "--help"]),
    ] {
        let out = sandbox.output(arguments);
        assert!(out.status.success());
        golden(name, &text(&out.stdout));
    }
}

#[test]
fn manual_and_completions() {
    let sandbox = Sandbox::new("silent");
    let manual = text(&sandbox.output(&["man"]).stdout);
    assert!(manual.contains(".TH understudy") && manual.contains("understudy\\-run"), "{manual}");
    let folder = sandbox.folder.path().join("pages");
    assert!(sandbox.output(&["man", "--output", folder.to_str().unwrap()]).status.success());
    // A page for each command that the first one names, and for no other.
    let mut pages: Vec<String> = std::fs::read_dir(&folder)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    let mut named: Vec<String> = manual
        .lines()
        .filter_map(|line| line.replace("\\-", "-").strip_suffix("(1)").map(|name| format!("{name}.1")))
        .filter(|name| name.starts_with("understudy-"))
        .chain(["understudy.1".into()])
        .collect();
    pages.sort();
    named.sort();
    assert_eq!(pages, named);
    for page in &pages {
        let page = std::fs::read(folder.join(page)).unwrap();
        assert!(page.is_ascii() && text(&page).contains(".TH understudy"), "{}", text(&page));
    }
    assert_eq!(
        sandbox.output(&["man", "run"]).stdout,
        std::fs::read(folder.join("understudy-run.1")).unwrap()
    );
    for shell in ["bash", "zsh", "fish"] {
        let out = sandbox.output(&["completions", shell]);
        assert!(out.status.success() && text(&out.stdout).contains("understudy"), "{shell}");
    }
}

/// Asserts that `value` has exactly these keys.
fn keys(value: &Value, expected: &[&str]) {
    let mut found: Vec<&str> = value.as_object().unwrap().keys().map(String::as_str).collect();
    let mut expected = expected.to_vec();
    found.sort_unstable();
    expected.sort_unstable();
    assert_eq!(found, expected);
}

#[test]
fn status_has_the_fields_of_the_contract() {
    let sandbox = Sandbox::new("follow");
    let _running = sandbox.start("g", &["stubborn"]);
    sandbox.wait_for_event("protected");
    let group = sandbox.group();
    keys(
        &group,
        &[
            "name",
            "order",
            "epoch",
            "state",
            "protected_share",
            "protected_s",
            "since",
            "program",
            "processes",
            "events_total",
            "bytes_total",
            "events_by_class",
            "lag_waits_ms",
            "lost",
            "lost_total",
            "failovers",
            "failovers_total",
            "unsettled_total",
            "reclones",
            "reclones_total",
            "reclones_failed",
            "divergences_total",
            "divergences",
            "refused_calls",
            "guarantee",
            "supervisor_pid",
            "signals_late",
        ],
    );
    keys(
        &group["events_by_class"],
        &["lock", "cond", "read", "write", "poll", "time", "memory", "thread", "signal", "other"],
    );
    let process = &group["processes"][0];
    keys(process, &["guest_pid", "order", "parent_pid", "program", "state", "age_s", "primary", "standbys"]);
    assert_eq!((&process["parent_pid"], &process["program"]), (&0.into(), &"guest".into()));
    assert_eq!(process["state"], "protected");
    keys(&process["primary"], &["pid", "threads", "cpu_s", "rss_bytes"]);
    keys(&process["standbys"][0], &["pid", "state", "lag_events", "lag_bytes", "cpu_s", "rss_bytes"]);
    assert_eq!((&group["name"], &group["order"]), (&"g".into(), &"schedule".into()));
    assert_eq!(
        (&group["state"], &process["standbys"][0]["state"]),
        (&"protected".into(), &"following".into())
    );
    assert_eq!(group["guarantee"], "exactly once; survives process death on this machine");
    let share = group["protected_share"].as_f64().unwrap();
    assert!(share > 0.0 && share <= 1.0, "{share}");
    let out = sandbox.output(&["stop", "g", "--signal", "KILL"]);
    assert!(out.status.success());
}

#[test]
fn events_have_the_fields_of_the_contract() {
    let sandbox = Sandbox::new("follow");
    let running = sandbox.start("g", &["wait"]);
    sandbox.wait_for_event("protected");
    assert!(sandbox.output(&["stop", "g"]).status.success());
    running.finish();
    let events = sandbox.events();
    let names: Vec<&str> = events.iter().map(|event| event["event"].as_str().unwrap()).collect();
    assert_eq!(names, ["started", "protected", "ended"]);
    assert!(events.iter().all(|event| event["group"] == "g" && event["t"].as_str().unwrap().ends_with('Z')));
    let raw = std::fs::read_to_string(sandbox.events_path()).unwrap();
    assert!(raw.lines().all(|line| line.starts_with(r#"{"t":""#)), "{raw}");
}

#[test]
fn doctor_says_what_it_costs_and_the_way_out() {
    let sandbox = Sandbox::new("follow");
    let out = Command::new("sh")
        .args(["-c", "ulimit -d 30000; exec \"$0\" doctor", env!("CARGO_BIN_EXE_understudy")])
        .env("UNDERSTUDY_DIR", sandbox.state())
        .output()
        .unwrap();
    let said = text(&out.stdout);
    let limits = said.lines().find(|line| line.contains("limits")).unwrap();
    assert!(
        limits.starts_with("FAILED") && limits.ends_with(": programs run unprotected; a higher limit"),
        "{said}"
    );
    assert_eq!(out.status.code(), Some(1));
    let json: Value = serde_json::from_slice(&sandbox.output(&["doctor", "--json"]).stdout).unwrap();
    for check in json["checks"].as_array().unwrap() {
        assert!(check["ok"] == false || check["way_out"].is_null(), "{check}");
    }
}

/// What a container takes away: capabilities, and room in `/dev/shm`.
#[test]
fn doctor_knows_a_container() {
    let sandbox = Sandbox::new("follow");
    let small = "mkdir -p small && mount -t tmpfs -o size=64m none small && chmod 700 small && export UNDERSTUDY_DIR=$PWD/small";
    let less = "setpriv --bounding-set -sys_ptrace --inh-caps -sys_ptrace";
    let mut command = Command::new("unshare");
    let script = format!("{small} && exec {less} \"$0\" doctor");
    command.args(["-m", "sh", "-ec", &script, env!("CARGO_BIN_EXE_understudy")]);
    let out = command.current_dir(sandbox.folder.path()).output().unwrap();
    let said = text(&out.stdout);
    if !rustix::process::geteuid().is_root() || said.is_empty() {
        eprintln!("doctor_knows_a_container: skipped, needs root and namespaces: {}", text(&out.stderr));
        return;
    }
    let line = |name: &str| said.lines().find(|line| line.contains(name)).unwrap_or_default().to_string();
    let (room, users) = (line("room in it"), line("users' processes"));
    assert!(room.starts_with("note") && room.contains("64 MiB") && room.contains("--shm-size"), "{said}");
    assert!(
        users.starts_with("note") && users.ends_with("nor its call stacks; --cap-add SYS_PTRACE"),
        "{said}"
    );
    // None of it keeps anything from being protected. (A test's command has no runtime beside it.)
    assert!(said.lines().all(|line| !line.starts_with("FAILED") || line.contains("runtime")), "{said}");
}

#[test]
fn doctor_gives_the_reason_that_run_gives() {
    let sandbox = Sandbox::new("silent");
    let refused = common::built().static_guest.to_str().unwrap();
    let out = sandbox.output(&["doctor", "--json", "--", refused]);
    assert_eq!(out.status.code(), Some(1));
    let found: Value = serde_json::from_slice(&out.stdout).unwrap();
    assert_eq!(found["program"]["ok"], false);
    let said = text(&sandbox.output(&["run", "--", refused]).stderr);
    assert_eq!(said, format!("understudy: {}\n", found["program"]["why"].as_str().unwrap()));
    assert!(text(&sandbox.output(&["doctor", "--", "sleep"]).stdout).contains("sleep can be protected"));
    assert!(!sandbox.state().exists());
}
