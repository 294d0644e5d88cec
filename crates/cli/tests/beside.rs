//! `run --record` with a live standby, and the real runtime: `$UNDERSTUDY_LIB`, or `libunderstudy.so` beside the binary.
//! Without one the tests say so and check nothing.

mod common;

use std::io::{BufRead, BufReader, Read, Write};
use std::process::Stdio;

use common::{Running, Sandbox, built, kill, pid, runtime, text, wait_for};
use rustix::process::{Pid, Resource, Rlimit, Signal};
use serde_json::Value;

fn sandbox(test: &str) -> Option<Sandbox> {
    runtime(test).map(|library| Sandbox::with_library(&library, ""))
}

/// A file in the sandbox, outside the state folder.
fn place(sandbox: &Sandbox) -> String {
    sandbox.folder.path().join("r").to_str().unwrap().into()
}

/// The guest that says a number for each SIGUSR1, recorded beside a standby.
struct Counting<'a> {
    sandbox: &'a Sandbox,
    running: Running<'a>,
    file: String,
    count: u32,
    said: String,
}

impl<'a> Counting<'a> {
    fn start(sandbox: &'a Sandbox, options: &[&str], guest: &[&str]) -> Counting<'a> {
        let file = place(sandbox);
        let running = sandbox.start_with(&[&["--record", &file], options].concat(), "g", guest);
        sandbox.wait_for_event("protected");
        Counting { sandbox, running, file, count: 0, said: "ready\n".into() }
    }

    fn counts(&mut self) {
        self.count += 1;
        self.sandbox.output(&["signal", "g", "USR1"]);
        let line = format!("count {}\n", self.count);
        self.running.wait_for_output(&line);
        self.said += &line;
    }

    /// Waits until the group is protected; its program's process.
    fn protected(&self) -> Value {
        let protected = || Some(self.sandbox.group()).filter(|group| group["state"] == "protected");
        wait_for(protected, "protection")["processes"][0].clone()
    }

    /// Kills it and waits for its successor: a signal to one that is dead would be lost.
    fn kill_primary(&self) {
        let before = self.sandbox.events().iter().filter(|event| event["event"] == "promoted").count();
        kill(pid(&self.protected()["primary"]["pid"]), Signal::KILL);
        self.sandbox.wait_for_events("promoted", before + 1);
    }

    /// Ends it; what `run` said. The replay says and does what the program did.
    fn comes_back(self) -> String {
        kill(self.running.child.id(), Signal::TERM);
        let (code, said) = self.running.finish();
        assert_eq!(code, Some(143), "{said}");
        for _ in 0..2 {
            let replay = self.sandbox.output(&["replay", &self.file]);
            let expected = (Some(143), self.said.clone(), String::new());
            assert_eq!((replay.status.code(), text(&replay.stdout), text(&replay.stderr)), expected);
        }
        self.sandbox.assert_clean();
        said
    }
}

#[test]
fn a_pipeline() {
    let Some(sandbox) = sandbox("a_pipeline") else { return };
    let (file, program) = (place(&sandbox), built().recorded.to_str().unwrap());
    let script =
        format!("{program} lines 50 | sort -r | head -n 20; {program} exit 3 | cat; sleep 0.1; exit 5");
    let run = sandbox.output(&["run", "-q", "--record", &file, "--", "sh", "-c", &script]);
    assert_eq!(run.status.code(), Some(5), "{}", text(&run.stderr));
    let replay = sandbox.output(&["replay", &file]);
    assert_eq!((replay.status.code(), text(&replay.stdout)), (Some(5), text(&run.stdout)));
    assert_eq!(text(&replay.stderr), text(&run.stderr));
    sandbox.assert_clean();
}

#[test]
fn a_recording_goes_on_over_failovers() {
    let Some(sandbox) = sandbox("a_recording_goes_on_over_failovers") else { return };
    let mut counting = Counting::start(&sandbox, &[], &["count"]);
    for _ in 0..4 {
        counting.counts();
        counting.kill_primary();
        counting.counts();
    }
    counting.counts();
    let recording = sandbox.group()["recording"].clone();
    assert_eq!((&recording["file"], &recording["ended"]), (&counting.file.clone().into(), &Value::Null));
    let file = counting.file.clone();
    let said = counting.comes_back();
    assert_eq!(said.matches("took over in").count(), 4, "{said}");
    let events = text(&sandbox.output(&["inspect", "--events", &file]).stdout);
    assert_eq!(events.matches(" failover ").count(), 4, "{events}");
}

#[test]
fn a_planned_failover_is_recorded_too() {
    let Some(sandbox) = sandbox("a_planned_failover_is_recorded_too") else { return };
    let mut counting = Counting::start(&sandbox, &[], &["count"]);
    counting.counts();
    counting.protected();
    let switched = sandbox.output(&["failover", "g"]);
    assert!(switched.status.success(), "{}", text(&switched.stderr));
    counting.counts();
    counting.comes_back();
}

#[test]
fn a_lost_standby_costs_the_recording_nothing() {
    let Some(sandbox) = sandbox("a_lost_standby_costs_the_recording_nothing") else { return };
    let mut counting = Counting::start(&sandbox, &[], &["count"]);
    for round in 1..=3 {
        kill(pid(&counting.protected()["standbys"][0]["pid"]), Signal::KILL);
        sandbox.wait_for_events("standby_lost", round);
        counting.counts();
        sandbox.wait_for_events("recloned", round);
        counting.counts();
    }
    counting.kill_primary();
    counting.counts();
    counting.comes_back();
}

#[test]
fn a_recording_goes_on_without_any_standby() {
    let Some(sandbox) = sandbox("a_recording_goes_on_without_any_standby") else { return };
    let mut counting = Counting::start(&sandbox, &["--no-reprotect"], &["count"]);
    counting.kill_primary();
    counting.counts();
    sandbox.wait_for_event("unprotected");
    counting.counts();
    counting.comes_back();
}

#[test]
fn an_exec() {
    let Some(sandbox) = sandbox("an_exec") else { return };
    let mut counting = Counting::start(&sandbox, &[], &["replace"]);
    sandbox.output(&["signal", "g", "USR1"]);
    counting.running.wait_for_output("ready\n");
    counting.said += "ready\n";
    counting.counts();
    counting.kill_primary();
    counting.counts();
    counting.comes_back();
}

/// A recording that cannot be written costs the recording alone.
#[test]
fn a_full_disk_costs_no_protection() {
    let Some(sandbox) = sandbox("a_full_disk_costs_no_protection") else { return };
    let (file, events) = (place(&sandbox), sandbox.events_path());
    // What does not compress.
    let noise = sandbox.folder.path().join("noise");
    let mut state = 1u64;
    let next = |_| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (state >> 56) as u8
    };
    std::fs::write(&noise, (0..8 << 20).map(next).collect::<Vec<u8>>()).unwrap();
    let script = format!(
        "echo begin; read line; cat {} > /dev/null; echo written; read line; echo end",
        noise.display()
    );
    let options = ["run", "--name", "g", "--record", &file, "--events", events.to_str().unwrap()];
    let mut command = sandbox.understudy(&[&options[..], &["--", "sh", "-c", &script]].concat());
    let mut child =
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut input = child.stdin.take().unwrap();
    let mut out = BufReader::new(child.stdout.take().unwrap());
    let mut whole = String::new();
    out.read_line(&mut whole).unwrap();
    // Of the supervisor alone. Its segment is there by now, and large.
    let limit = Rlimit { current: Some(4 << 20), maximum: Some(4 << 20) };
    rustix::process::prlimit(Pid::from_raw(child.id() as i32), Resource::Fsize, limit).unwrap();
    input.write_all(b"go\n").unwrap();
    out.read_line(&mut whole).unwrap();
    assert_eq!(whole, "begin\nwritten\n");
    let why = sandbox.wait_for_event("recording_ended")["why"].as_str().unwrap().to_owned();
    assert!(why.contains("the recording ends here: ") && why.contains(&file), "{why}");
    let group =
        wait_for(|| Some(sandbox.group()).filter(|group| group["state"] == "protected"), "protection");
    assert_eq!(group["recording"]["ended"], why.as_str());
    kill(pid(&group["processes"][0]["primary"]["pid"]), Signal::KILL);
    sandbox.wait_for_event("promoted");
    input.write_all(b"go\n").unwrap();
    out.read_to_string(&mut whole).unwrap();
    let out = child.wait_with_output().unwrap();
    assert_eq!(out.status.code(), Some(0), "{}", text(&out.stderr));
    assert_eq!(whole, "begin\nwritten\nend\n");
    let replay = sandbox.output(&["replay", &file]);
    assert!(text(&replay.stderr).contains("unfinished: ends at byte "), "{}", text(&replay.stderr));
    sandbox.assert_clean();
}

/// What no log can carry ends the recording of that process; a new standby is made of it.
#[test]
fn a_call_that_cannot_be_replayed() {
    let Some(sandbox) = sandbox("a_call_that_cannot_be_replayed") else { return };
    let mut counting = Counting::start(&sandbox, &[], &["count", "refused"]);
    counting.counts();
    counting.counts();
    kill(counting.running.child.id(), Signal::USR2);
    let why = sandbox.wait_for_event("recording_ended")["why"].as_str().unwrap().to_owned();
    assert!(why.contains("system call ptrace cannot be replayed"), "{why}");
    sandbox.wait_for_event("recloned");
    counting.running.wait_for_output("refused\n");
    counting.kill_primary();
    kill(counting.running.child.id(), Signal::TERM);
    assert_eq!(counting.running.finish().0, Some(143));
    let replay = sandbox.output(&["replay", &counting.file]);
    assert_eq!(text(&replay.stdout), "ready\ncount 1\ncount 2\n");
    assert!(
        text(&replay.stderr).contains(" ends before it did: system call ptrace cannot be replayed"),
        "{}",
        text(&replay.stderr)
    );
    sandbox.assert_clean();
}
