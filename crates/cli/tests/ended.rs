//! What is said of groups that have ended, and `wait`.

mod common;

use std::process::Stdio;
use std::time::Instant;

use common::{Sandbox, is_alive, kill, pid, terminal, text, wait_for};
use rustix::process::Signal;
use serde_json::Value;

#[test]
fn status_says_for_a_day_how_a_group_has_ended() {
    let sandbox = Sandbox::new("follow");
    let running = sandbox.start("g", &["wait"]);
    kill(pid(&sandbox.wait_for_event("protected")["primary"]), Signal::KILL);
    sandbox.wait_for_event("recloned");
    assert!(sandbox.output(&["stop", "g"]).status.success());
    let code = running.finish().0;
    let out = sandbox.output(&["status", "g"]);
    assert_eq!(out.status.code(), Some(3));
    let said = text(&out.stdout);
    let at = sandbox.event("promoted").unwrap();
    for part in [
        "g ended at 20",
        "Z: exit code 7\n",
        "guest wait, started at 20",
        "% of the time; failovers: 1, divergences: 0, processes lost: 0\n",
        &format!("g: failover {}: killed by SIGKILL", at["at"].as_str().unwrap()),
    ] {
        assert!(said.contains(part), "{part:?} is not in {said}");
    }
    assert_eq!(code, Some(7));
    let found: Value = serde_json::from_slice(&sandbox.output(&["status", "--json", "g"]).stdout).unwrap();
    let ended = &found["ended"][0];
    assert_eq!((&ended["name"], &ended["exit_code"]), (&"g".into(), &7.into()));
    assert_eq!(found["groups"].as_array().unwrap().len(), 0);
    let all = text(&sandbox.output(&["status"]).stdout);
    assert!(all.starts_with("no groups\nended: g, at 20") && all.ends_with("Z: exit code 7\n"), "{all}");
    let late = text(&sandbox.output(&["failover", "g"]).stderr);
    assert!(
        late.starts_with("understudy: g has ended at 20") && late.ends_with("Z: exit code 7\n"),
        "{late}"
    );
    let unknown = sandbox.output(&["status", "h"]);
    assert_eq!(
        (text(&unknown.stderr), unknown.status.code()),
        ("understudy: there is no group named h; no group is running; ended last: g\n".into(), Some(3))
    );
    sandbox.assert_clean();
}

#[test]
fn a_name_means_the_group_that_runs() {
    let sandbox = Sandbox::new("follow");
    assert!(sandbox.output(&["run", "--name", "g", "true"]).status.success());
    let _running = sandbox.start("g", &["wait"]);
    sandbox.wait_for_event("protected");
    let out = sandbox.output(&["status", "g"]);
    assert_eq!(out.status.code(), Some(0));
    assert!(!text(&out.stdout).contains("ended"), "{}", text(&out.stdout));
    let unknown = text(&sandbox.output(&["signal", "h", "TERM"]).stderr);
    assert_eq!(unknown, "understudy: there is no group named h; running: g\n");
    assert_eq!(text(&sandbox.output(&["names"]).stdout), "g\n");
}

#[test]
fn a_group_whose_end_nobody_saw() {
    let sandbox = Sandbox::new("follow");
    let mut running = sandbox.start("g", &["wait"]);
    let primary = pid(&sandbox.wait_for_event("protected")["primary"]);
    running.child.kill().unwrap();
    running.child.wait().unwrap();
    kill(primary, Signal::KILL);
    wait_for(|| (!is_alive(primary)).then_some(()), "the primary to end");
    let out = sandbox.output(&["status", "g"]);
    let said = text(&out.stdout);
    assert!(said.contains("Z: nobody saw how: its supervisor had been killed before\n"), "{said}");
    assert_eq!(out.status.code(), Some(3));
    sandbox.assert_clean();
}

#[test]
fn a_recording_is_named_when_it_ends() {
    let sandbox = Sandbox::new("silent");
    let mut command = sandbox.understudy(&["record", "--name", "g", "--", "true"]);
    let out = command.current_dir(sandbox.folder.path()).output().unwrap();
    assert_eq!(text(&out.stderr), "understudy: recorded into true.understudy\n");
    let said = text(&sandbox.output(&["status", "g"]).stdout);
    assert!(said.contains("g: recorded into ") && said.contains("/true.understudy\n"), "{said}");
}

#[test]
fn wait_for_protection() {
    let sandbox = Sandbox::new("follow");
    // It is there before the group is.
    let waiting = sandbox.understudy(&["wait", "g", "--protected"]).stderr(Stdio::piped()).spawn().unwrap();
    std::thread::sleep(std::time::Duration::from_millis(100));
    let running = sandbox.start("g", &["wait"]);
    let out = waiting.wait_with_output().unwrap();
    assert_eq!((out.status.code(), text(&out.stderr)), (Some(0), String::new()));
    let late = sandbox.output(&["wait", "g", "--ended", "--timeout", "0.1"]);
    assert_eq!(
        (late.status.code(), text(&late.stderr)),
        (Some(1), "understudy: g has not ended after 0.1 s\n".into())
    );
    let ending = sandbox.understudy(&["wait", "g", "--ended"]).spawn().unwrap();
    assert!(sandbox.output(&["stop", "g"]).status.success());
    running.finish();
    assert_eq!(ending.wait_with_output().unwrap().status.code(), Some(0));
    // Of one that is gone there is nothing more to wait for.
    let begun = Instant::now();
    assert_eq!(sandbox.output(&["wait", "g", "--ended"]).status.code(), Some(0));
    let gone = sandbox.output(&["wait", "g", "--timeout", "0.1"]);
    let said = text(&gone.stderr);
    assert!(
        said.starts_with("understudy: g has ended at 20") && said.ends_with("Z: exit code 7\n"),
        "{said}"
    );
    assert_eq!(gone.status.code(), Some(3));
    assert!(begun.elapsed().as_secs() < 20);
    let unknown = sandbox.output(&["wait", "h", "--timeout", "0.1"]);
    assert_eq!(
        (unknown.status.code(), text(&unknown.stderr)),
        (Some(3), "understudy: there is no group named h; no group is running; ended last: g\n".into())
    );
}

#[test]
fn wait_for_a_while_of_protection() {
    let sandbox = Sandbox::new("follow");
    let begun = Instant::now();
    let running = sandbox.start("g", &["wait"]);
    assert_eq!(sandbox.output(&["wait", "g", "--for", "0.7"]).status.code(), Some(0));
    let held = begun.elapsed().as_secs_f64();
    assert!(held >= 0.7, "{held}");
    assert!(sandbox.group()["protected_s"].as_f64().unwrap() >= 0.7);
    // What was before the command counts.
    let asked = Instant::now();
    assert_eq!(sandbox.output(&["wait", "g", "--for", "0.6"]).status.code(), Some(0));
    assert!(asked.elapsed().as_secs_f64() < 0.6);
    let late = sandbox.output(&["wait", "g", "--for", "1000", "--timeout", "0.1"]);
    let said = text(&late.stderr);
    let (before, after) =
        ("understudy: g is not protected after 0.1 s, but has been for the last ", " s only\n");
    assert!(said.starts_with(before) && said.ends_with(after), "{said}");
    assert_eq!(late.status.code(), Some(4));
    // A failover begins it anew.
    assert!(sandbox.output(&["failover", "g"]).status.success());
    assert_eq!(sandbox.output(&["wait", "g", "--for", "0"]).status.code(), Some(0));
    let now = sandbox.group()["protected_s"].as_f64().unwrap();
    assert!(now < begun.elapsed().as_secs_f64() - held, "{now}");
    assert!(sandbox.output(&["stop", "g"]).status.success());
    running.finish();
}

#[test]
fn a_wait_is_shown_on_a_terminal() {
    let sandbox = Sandbox::new("silent");
    let (ours, theirs) = common::terminal(80);
    let waiting = sandbox.understudy(&["wait", "h", "--timeout", "1.7"]).stderr(theirs).status().unwrap();
    assert_eq!(waiting.code(), Some(3));
    rustix::io::ioctl_fionbio(&ours, true).unwrap();
    let mut bytes = [0; 65536];
    let length = rustix::io::read(&ours, &mut bytes).unwrap();
    let shown = text(&bytes[..length]);
    // Gone again before the last word.
    let (line, last) = shown.split_once("understudy: there is no group named h").unwrap();
    assert!(
        line.contains("h is not there yet") && line.ends_with("\u{1b}[2K") && !last.contains("yet"),
        "{shown:?}"
    );
}

#[test]
fn wait_says_why_there_is_no_protection() {
    let sandbox = Sandbox::new("follow");
    let _running = sandbox.start_with(&["--standbys", "0"], "g", &["wait"]);
    sandbox.wait_for_event("unprotected");
    let out = sandbox.output(&["wait", "g", "--timeout", "0.1"]);
    assert_eq!(
        text(&out.stderr),
        "understudy: g is not protected after 0.1 s, but unprotected: started with --standbys 0\n"
    );
    assert_eq!(out.status.code(), Some(4));
    assert_eq!(sandbox.output(&["status", "g"]).status.code(), Some(4));
}

/// What `status` shows on a terminal.
fn shown(sandbox: &Sandbox, arguments: &[&str], columns: u16, no_colour: &str) -> String {
    let (ours, theirs) = terminal(columns);
    let mut command = sandbox.understudy(arguments);
    command.env("TERM", "xterm").env("NO_COLOR", no_colour).stdout(theirs);
    let mut child = command.spawn().unwrap();
    drop(command);
    let mut bytes = Vec::new();
    let mut part = [0; 4096];
    // At the end of the last writer a terminal says EIO.
    while let Ok(length) = rustix::io::read(&ours, &mut part) {
        bytes.extend(&part[..length]);
        // A watch goes on until it is ended.
        if length == 0 || text(&bytes).matches("\u{1b}[H").count() >= 2 {
            break;
        }
    }
    let _ = child.kill();
    child.wait().unwrap();
    text(&bytes).replace('\r', "")
}

#[test]
fn colours_and_columns_are_the_terminals() {
    let sandbox = Sandbox::new("follow");
    let _running = sandbox.start("g", &["wait"]);
    sandbox.wait_for_event("protected");
    let wide = shown(&sandbox, &["status", "g"], 200, "");
    assert!(wide.contains("PROTECTED\n") && wide.contains("\u{1b}[32mprotected\u{1b}[0m"), "{wide}");
    assert!(!shown(&sandbox, &["status", "g"], 200, "1").contains('\u{1b}'));
    let narrow = shown(&sandbox, &["status", "g"], 40, "1");
    assert!(narrow.starts_with("NAME") && narrow.lines().take(2).all(|line| line.len() <= 40), "{narrow}");
    assert!(!text(&sandbox.output(&["status", "g"]).stdout).contains('\u{1b}'), "a pipe has no colours");
    let watched = shown(&sandbox, &["status", "--watch=0.1"], 200, "1");
    assert_eq!(watched.matches("NAME").count().min(1), 1, "{watched}");
    assert!(watched.starts_with("\u{1b}[H\u{1b}[2J"), "{watched:?}");
}

#[test]
fn a_group_of_another_version_is_shown_and_can_be_stopped() {
    use std::os::unix::fs::FileExt;

    let sandbox = Sandbox::new("follow");
    let running = sandbox.start("g", &["wait"]);
    sandbox.wait_for_event("protected");
    let segment = std::fs::File::options().write(true).open(sandbox.state().join("g/segment")).unwrap();
    let at = std::mem::offset_of!(us_abi::SegmentHeader, version) as u64;
    segment.write_all_at(&(us_abi::VERSION + 1).to_ne_bytes(), at).unwrap();
    let out = sandbox.output(&["status", "g", "--json"]);
    let found: Value = serde_json::from_slice(&out.stdout).unwrap();
    let group = &found["groups"][0];
    assert_eq!((out.status.code(), &group["state"]), (Some(0), &"protected".into()));
    assert_eq!(
        group["why"],
        "it runs under another version of understudy, which does not show more to this one"
    );
    assert_eq!(group["processes"].as_array().unwrap().len(), 0);
    let said = text(&sandbox.output(&["status", "g"]).stdout);
    assert!(said.contains("g: it runs under another version of understudy"), "{said}");
    assert!(sandbox.output(&["stop", "g"]).status.success());
    assert_eq!(running.finish().0, Some(7));
    sandbox.assert_clean();
}
