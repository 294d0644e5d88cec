//! `explain`, and what of a divergence is kept.

mod common;

use std::os::unix::fs::PermissionsExt;

use common::{Sandbox, kill, racing, runtime, text, wait_for};
use rustix::process::Signal;
use serde_json::Value;

#[test]
fn a_divergence_is_kept_with_what_explains_it() {
    let Some(library) = runtime("a_divergence_is_kept_with_what_explains_it") else { return };
    let sandbox = Sandbox::with_library(&library, "");
    let mut running = sandbox.start_program(&["--order", "schedule", "--no-reprotect"], "g", racing());
    let diverged = sandbox.wait_for_event("explained");
    let told = &diverged["explained"];
    assert_eq!((&told["function"], &told["library"]), (&"decides".into(), &"racing".into()), "{diverged}");
    assert_eq!((&told["thread_name"], &told["turns"]), (&"racer".into(), &false.into()));
    let frames = told["standby"]["frames"].as_array().unwrap();
    for (function, library) in [("decides", "racing"), ("racer", "racing"), ("start_thread", "libc.so.6")] {
        let is_it = |frame: &&Value| frame["function"] == function && frame["library"] == library;
        // Only a libc with its symbols knows the last.
        assert!(frames.iter().any(|frame| is_it(&frame)) || library == "libc.so.6", "{frames:?}");
    }
    assert!(
        told["log"].as_str().unwrap().contains("getppid")
            != told["copy"].as_str().unwrap().contains("getppid")
    );
    explained_to_people(&sandbox);
    // And once the group has ended.
    drop(running.child.stdin.take());
    assert_eq!(running.finish().0, Some(0));
    explained_to_people(&sandbox);
    let status = text(&sandbox.output(&["status", "g"]).stdout);
    assert!(status.contains("; in decides of racing\n"), "{status}");
    sandbox.assert_clean();
}

fn explained_to_people(sandbox: &Sandbox) {
    let list = sandbox.output(&["status", "g", "--divergences"]);
    let list = text(&list.stdout);
    assert!(
        list.starts_with("TIMES  FUNCTION") && list.contains("\n1      decides of racing  racer"),
        "{list}"
    );
    let out = sandbox.output(&["explain", "g"]);
    let said = text(&out.stdout);
    for part in [
        "\ng: divergence 1 of 1, ",
        "(racer)",
        "  the log has:   ",
        "  in:            decides of racing\n",
        "  the copy's call stack:\n",
    ] {
        assert!(said.contains(part), "{part:?} is not in {said}");
    }
    let all: Value = serde_json::from_slice(&sandbox.output(&["explain", "g", "--json"]).stdout).unwrap();
    assert_eq!((&all["divergences_total"], &all["first"]), (&1.into(), &1.into()));
    assert_eq!(all["divergences"][0]["explained"]["function"], "decides");
    let missing = sandbox.output(&["explain", "g", "--divergence", "2"]);
    assert_eq!(missing.status.code(), Some(1));
    assert_eq!(text(&missing.stderr), "understudy: g: of its divergences the ones from 1 to 1 are kept\n");
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
    sandbox.wait_for_events("explained", 2);
    // The last may be at work.
    let of =
        |name: &str| sandbox.events().into_iter().filter(|event| event["event"] == name).collect::<Vec<_>>();
    let explained =
        wait_for(|| Some(of("explained")).filter(|all| all.len() == of("diverged").len()), "each");
    let is_named = |event: &&Value| event["explained"]["function"] == "decides";
    assert_eq!(explained.iter().filter(is_named).count(), explained.len(), "{explained:#?}");
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
