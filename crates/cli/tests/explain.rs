//! `explain`, and what of a divergence is kept.

mod common;

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::process::Command;

use common::{Sandbox, kill, pid, racing, runtime, text, wait_for};
use rustix::process::Signal;
use serde_json::Value;

/// The first event of a divergence that could be looked at: where the processors are busy, some cannot.
fn named(sandbox: &Sandbox) -> Value {
    let is_named =
        |event: &Value| event["event"] == "explained" && event["explained"]["function"] == "decides";
    wait_for(|| sandbox.events().into_iter().find(is_named), "a divergence with its function")
}

#[test]
fn a_divergence_is_kept_with_what_explains_it() {
    let Some(library) = runtime("a_divergence_is_kept_with_what_explains_it") else { return };
    let sandbox = Sandbox::with_library(&library, "");
    let mut running = sandbox.start_program(&["--order", "schedule"], "g", racing());
    let found = named(&sandbox);
    let told = &found["explained"];
    assert_eq!((&told["library"], &told["thread_name"]), (&"racing".into(), &"racer".into()), "{found}");
    assert_eq!(told["turns"], false);
    let frames = told["standby"]["frames"].as_array().unwrap();
    for function in ["decides", "racer"] {
        let is_it = |frame: &Value| frame["function"] == function && frame["library"] == "racing";
        assert!(frames.iter().any(is_it), "{frames:?}");
    }
    let is_getppid = |side: &str| told[side].as_str().unwrap().contains("getppid");
    assert!(is_getppid("log") != is_getppid("copy"), "{told}");
    explained_to_people(&sandbox, &found["number"].to_string());
    // And once the group has ended.
    drop(running.child.stdin.take());
    assert_eq!(running.finish().0, Some(0));
    explained_to_people(&sandbox, &found["number"].to_string());
    let status = text(&sandbox.output(&["status", "g"]).stdout);
    assert!(status.contains("; in decides of racing\n"), "{status}");
    sandbox.assert_clean();
}

fn explained_to_people(sandbox: &Sandbox, number: &str) {
    let list = sandbox.output(&["status", "g", "--divergences"]);
    let list = text(&list.stdout);
    assert!(list.starts_with("TIMES  FUNCTION") && list.contains("decides of racing  racer"), "{list}");
    let out = sandbox.output(&["explain", "g", "--divergence", number]);
    let said = text(&out.stdout);
    for part in [
        &format!("\ng: divergence {number} of "),
        "(racer)",
        "  the log has:   ",
        "  in:            decides of racing\n",
        "  the copy's call stack:\n",
    ] {
        assert!(said.contains(part), "{part:?} is not in {said}");
    }
    assert!(text(&sandbox.output(&["explain", "g"]).stdout).contains("\ng: divergence "));
    let all: Value = serde_json::from_slice(&sandbox.output(&["explain", "g", "--json"]).stdout).unwrap();
    let divergences = all["divergences"].as_array().unwrap();
    assert!(divergences.iter().any(|found| found["explained"]["function"] == "decides"), "{all}");
    let missing = sandbox.output(&["explain", "g", "--divergence", "999"]);
    assert_eq!(missing.status.code(), Some(1));
    assert!(text(&missing.stderr).starts_with("understudy: g: of its divergences the ones from 1 to "));
    let file = sandbox.folder.path().join("report");
    let written = sandbox.output(&["explain", "g", "--report", file.to_str().unwrap()]);
    assert!(written.status.success() && text(&written.stdout).contains("only you can read it"));
    assert_eq!(file.metadata().unwrap().permissions().mode() & 0o7777, 0o600);
    let report: Value = serde_json::from_slice(&std::fs::read(&file).unwrap()).unwrap();
    assert!(report["contains"].as_str().unwrap().contains("functions"));
    assert!(report.to_string().contains("decides"));
    // It writes over nothing.
    assert!(!sandbox.output(&["explain", "g", "--report", file.to_str().unwrap()]).status.success());
    std::fs::remove_file(file).unwrap();
}

#[test]
fn every_divergence_and_that_of_a_spare_is_explained() {
    let Some(library) = runtime("every_divergence_and_that_of_a_spare_is_explained") else { return };
    let sandbox = Sandbox::with_library(&library, "");
    let running = sandbox.start_program(&["--order", "schedule", "--standbys", "2"], "g", racing());
    sandbox.wait_for_events("diverged", 2);
    named(&sandbox);
    // The last may be at work.
    let of =
        |name: &str| sandbox.events().into_iter().filter(|event| event["event"] == name).collect::<Vec<_>>();
    let explained =
        wait_for(|| Some(of("explained")).filter(|all| all.len() == of("diverged").len()), "each");
    for event in explained {
        let told = &event["explained"];
        let is_seen = told["standby"]["missing"].is_null() || told["primary"]["missing"].is_null();
        assert_eq!(told["function"] == "decides", is_seen, "{event:#}");
    }
    kill(running.child.id(), Signal::KILL);
    drop(running);
}

#[test]
fn what_could_not_be_seen_is_said() {
    let sandbox = Sandbox::new("diverge");
    let _running = sandbox.start_with(&["--no-reprotect"], "g", &["wait"]);
    let explained = sandbox.wait_for_event("explained");
    assert_eq!(explained["reason"], "write of 5 bytes differs");
    let said = text(&sandbox.output(&["explain", "g"]).stdout);
    assert!(said.contains("  the copy had:  write of 5 bytes differs\n"), "{said}");
    let none = sandbox.output(&["explain", "h"]);
    assert_eq!(none.status.code(), Some(3));
}

/// Stores and asks for what expires within seconds: memcached's maintainer of lists has something to do.
const EXPIRING: &str = r#"
use IO::Socket::INET;
my $s;
until ($s = IO::Socket::INET->new('127.0.0.1:7312')) { select undef, undef, undef, 0.1 }
while (1) {
    my ($key, $life) = (int rand 60000, 1 + int rand 3);
    print $s "set k$key 0 $life 2000\r\n", 'x' x 2000, "\r\nget k1\r\n";
    while (<$s>) { last if /^END/ }
}"#;

/// Of a program that nobody here wrote: its race is known, and so is the thread.
#[test]
fn a_trial_names_the_racing_thread_of_memcached() {
    const NAME: &str = "a_trial_names_the_racing_thread_of_memcached";
    let Some(library) = runtime(NAME) else { return };
    let has =
        |program: &str| Command::new("which").arg(program).output().is_ok_and(|out| out.status.success());
    if !has("memcached") || !has("perl") {
        eprintln!("{NAME}: skipped, needs memcached and perl");
        return;
    }
    let sandbox = Sandbox::with_library(&library, "");
    let script = sandbox.folder.path().join("expiring");
    fs::write(&script, EXPIRING).unwrap();
    let load = format!("for n in 1 2 3; do perl {} & done; wait", script.display());
    let memcached = ["memcached", "-u", "root", "-m", "64", "-l", "127.0.0.1", "-p", "7312"];
    let words = [&["doctor", "--json", "--seconds", "8", "--load", &load, "--"][..], &memcached].concat();
    // It is a race: on a busy machine it may not come in so short a time.
    let found = (0..4).find_map(|_| {
        let found: Value = serde_json::from_slice(&sandbox.output(&words).stdout).unwrap();
        let seen = found["runs"][1]["divergences"].as_array().unwrap().clone();
        seen.into_iter().find(|one| {
            one["explained"]["thread"] == "mc-lrumaint" || one.to_string().contains("mc-lrumaint")
        })
    });
    assert!(found.is_some(), "no divergence of mc-lrumaint");
    sandbox.assert_clean();
}

/// Of a program that ends by itself, be it under its load, the time counts as its own and not as the load's.
#[test]
fn a_trial_counts_the_time_of_a_program_that_ends() {
    let Some(library) = runtime("a_trial_counts_the_time_of_a_program_that_ends") else { return };
    let sandbox = Sandbox::with_library(&library, "");
    let busy = ["timeout", "1.5", "sh", "-c", "while :; do :; done"];
    let words = [&["doctor", "--json", "--load", "sleep 20", "--seconds", "3", "--"][..], &busy].concat();
    let found: Value = serde_json::from_slice(&sandbox.output(&words).stdout).unwrap();
    for run in found["runs"].as_array().unwrap() {
        assert!(run["ended_by_itself"] == true && run["cpu_s"].as_f64() > Some(0.2), "{run:#}");
    }
    sandbox.assert_clean();
}

#[test]
fn a_trial_names_the_function_and_says_what_to_set() {
    let Some(library) = runtime("a_trial_names_the_function_and_says_what_to_set") else { return };
    let sandbox = Sandbox::with_library(&library, "");
    let racing = racing().to_str().unwrap();
    let trial = |more: &[&str]| {
        let words = [&["doctor", "--load", "sleep 3", "--seconds", "3"], more, &["--", racing]].concat();
        sandbox.output(&words)
    };
    let found: Value = serde_json::from_slice(&trial(&["--json"]).stdout).unwrap();
    let runs = found["runs"].as_array().unwrap();
    assert_eq!((&runs[0]["order"], &runs[0]["divergences_total"]), (&Value::Null, &0.into()));
    assert_eq!((&runs[1]["order"], &runs[2]["order"]), (&"schedule".into(), &"serial".into()));
    let divergences = runs[1]["divergences"].as_array().unwrap();
    assert!(divergences.iter().any(|found| found["explained"]["function"] == "decides"), "{found:#}");
    assert!(runs[1]["divergences_total"].as_u64() >= Some(1) && runs[0]["time_s"].as_f64() > Some(0.1));
    let group = runs[1]["group"].as_str().unwrap();
    assert!(text(&sandbox.output(&["explain", group]).stdout).contains("decides of racing"));
    let said = text(&trial(&[]).stdout);
    for part in
        ["--order schedule", "Where copies differed with --order schedule:\n", "decides of racing  racer"]
    {
        assert!(said.contains(part), "{part:?} is not in {said}");
    }
    sandbox.assert_clean();
    let missing = sandbox.output(&["doctor", "--load", "true"]);
    assert_eq!(missing.status.code(), Some(2));
    let refused = sandbox.output(&["doctor", "--load", "true", "--", "/nowhere/at/all"]);
    assert_eq!(refused.status.code(), Some(1));
}

/// Nobody knows whether a message is in a queue that is full: the one that is waited for may have filled it.
#[test]
fn a_call_that_nobody_can_settle_is_named() {
    let Some(library) = runtime("a_call_that_nobody_can_settle_is_named") else { return };
    let sandbox = Sandbox::with_library(&library, "");
    let mut running = sandbox.start("g", &["counter"]);
    let primary = pid(&sandbox.wait_for_event("protected")["primary"]);
    let waits = || {
        let tasks = fs::read_dir(format!("/proc/{primary}/task")).unwrap().flatten();
        let stats = tasks.filter_map(|task| fs::read_to_string(task.path().join("stat")).ok());
        stats.into_iter().any(|stat| stat.contains("(sender) S")).then_some(())
    };
    wait_for(waits, "the sender to wait");
    kill(primary, Signal::KILL);
    let promoted = sandbox.wait_for_event("promoted");
    assert_eq!(promoted["unsettled"], 1, "{promoted}");
    let call = &promoted["unsettled_calls"][0];
    assert_eq!((&call["call"], &call["outcome"]), (&"write".into(), &"again".into()), "{call}");
    assert_eq!(call["thread_name"], "sender");
    let named = format!(
        "unsettled 1: write on descriptor {} by thread {} (sender), made again\n",
        call["descriptor"], call["thread"]
    );
    let says = |arguments: &[&str]| {
        let out = sandbox.output(arguments);
        assert_eq!(out.status.code(), Some(0), "{arguments:?}: {}", text(&out.stderr));
        assert!(text(&out.stdout).contains(&named), "{named:?} is not in {}", text(&out.stdout));
    };
    sandbox.wait_for_event("recloned");
    says(&["status", "g"]);
    says(&["explain", "g"]);
    kill(running.child.id(), Signal::TERM);
    running.wait_for_output("12 came\n");
    let (code, said) = running.finish();
    assert_eq!(code, Some(0));
    assert!(said.contains(&named), "{said}");
    says(&["explain", "g"]);
    sandbox.assert_clean();
}
