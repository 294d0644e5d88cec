//! `record --checkpoint-interval` and `replay --from`, with the real runtime: `$UNDERSTUDY_LIB`, or `libunderstudy.so` beside the
//! binary. Without one the tests say so and check nothing.

mod common;

use std::fs;
use std::path::{Path, PathBuf};

use common::{Sandbox, corrupted, runtime, text};

/// A sandbox with the recording of a guest that runs for a while, what that has shown, and its checkpoints in order.
struct Recorded {
    sandbox: Sandbox,
    file: PathBuf,
    shown: String,
    checkpoints: Vec<u64>,
}

impl Recorded {
    fn new(test: &str) -> Option<Recorded> {
        Recorded::of(test, &["well"])
    }

    /// The same of the guest with these arguments.
    fn of(test: &str, arguments: &[&str]) -> Option<Recorded> {
        let sandbox = Sandbox::with_library(&runtime(test)?, "");
        let file = sandbox.folder.path().join("r");
        let words = ["record", "--checkpoint-interval", "0.03", "-o", path(&file), path(corrupted())];
        let done = sandbox.output(&[&words, arguments].concat());
        // Without an argument it finds out what is wrong, and aborts.
        let code = if arguments.is_empty() { 134 } else { 0 };
        assert_eq!(done.status.code(), Some(code), "{}", text(&done.stderr));
        let mut recorded = Recorded { shown: text(&done.stdout), sandbox, file, checkpoints: Vec::new() };
        let names = fs::read_dir(recorded.folder()).unwrap().map(|entry| entry.unwrap().file_name());
        recorded.checkpoints = names.filter_map(|name| name.to_str()?.parse().ok()).collect();
        recorded.checkpoints.sort_unstable();
        assert!(!recorded.checkpoints.is_empty());
        Some(recorded)
    }

    fn folder(&self) -> PathBuf {
        self.file.with_file_name("r.checkpoints")
    }

    fn replay(&self, from: u64) -> std::process::Output {
        self.sandbox.output(&["replay", "--from", &from.to_string(), path(&self.file)])
    }

    fn is_refused(&self, from: u64, why: &str) {
        let done = self.replay(from);
        let said = text(&done.stderr);
        assert_eq!(done.status.code(), Some(125), "{said}");
        assert!(said.contains(why), "{said}");
    }
}

fn path(path: &Path) -> &str {
    path.to_str().unwrap()
}

#[test]
fn a_replay_begins_at_the_last_checkpoint_before_an_event() {
    let Some(recorded) = Recorded::new("a_replay_begins_at_the_last_checkpoint_before_an_event") else {
        return;
    };
    let (first, last) = (recorded.checkpoints[0], *recorded.checkpoints.last().unwrap());
    for (from, at) in [(first, first), (u64::MAX, last), (last, last)] {
        let done = recorded.replay(from);
        assert!(done.status.success(), "{}", text(&done.stderr));
        assert!(recorded.shown.ends_with(&text(&done.stdout)), "{}", text(&done.stdout));
        assert!(text(&done.stderr).contains(&format!("from event {at} on")), "{}", text(&done.stderr));
    }
    let done = recorded.replay(first - 1);
    assert_eq!(text(&done.stdout), recorded.shown);
    assert!(text(&done.stderr).contains("no checkpoint before event"), "{}", text(&done.stderr));
}

/// From the end of the recording, and from a state near it; and once more from the place that was found.
#[test]
fn a_debugger_goes_back_to_what_broke_a_variable() {
    let test = "a_debugger_goes_back_to_what_broke_a_variable";
    let Some(recorded) = Recorded::of(test, &[]) else { return };
    if std::process::Command::new("gdb").arg("--version").output().is_err() {
        eprintln!("{test} skipped: gdb is not installed");
        return;
    }
    let last_before = recorded.checkpoints[recorded.checkpoints.len() / 2].to_string();
    for from in [&[][..], &["--from", &last_before]] {
        let commands = ["-ex", "continue", "-ex", "watch kept.sum", "-ex", "reverse-continue", "-ex", "bt 1"];
        let again = ["-ex", "reverse-continue", "-ex", "bt 1", "-ex", "reverse-continue 100"];
        let words =
            [&["replay", "--gdb", path(&recorded.file)], from, &["--", "-batch"], &commands, &again].concat();
        let done = recorded.sandbox.output(&words);
        let (out, error) = (text(&done.stdout), text(&done.stderr));
        let (_, shown) = out.split_once("Hardware watchpoint 1: kept.sum").expect(&error);
        // gdb on the way back shows nothing of what it passes.
        let values: Vec<&str> = shown.lines().filter(|line| line.contains(" value = ")).collect();
        let found = ["Old value = 3000", "New value = 5", "Old value = 2000", "New value = 3000"];
        assert_eq!(values, found, "{out}{error}");
        let frames: Vec<&str> = shown.lines().filter(|line| line.starts_with("#0 ")).collect();
        assert!(frames[0].contains("work (") && frames[1].contains("main ("), "{out}{error}");
        assert!(error.contains("no stop before this place"), "{out}{error}");
        recorded.sandbox.assert_clean();
    }
}

#[test]
fn what_is_no_checkpoint_of_this_recording_is_refused() {
    let Some(recorded) = Recorded::new("what_is_no_checkpoint_of_this_recording_is_refused") else { return };
    let first = recorded.checkpoints[0];
    let file = recorded.folder().join(first.to_string());
    let whole = fs::read(&file).unwrap();
    let put = |bytes: &[u8]| fs::write(&file, bytes).unwrap();
    put(&whole[..whole.len() / 2]);
    recorded.is_refused(first, "it is cut off");
    let mut flipped = whole.clone();
    flipped[whole.len() / 2] ^= 4;
    put(&flipped);
    recorded.is_refused(first, "it is damaged");
    put(b"");
    recorded.is_refused(first, "it is not a checkpoint");
    // Of the same program, and of another run.
    let Some(other) = Recorded::new("what_is_no_checkpoint_of_this_recording_is_refused") else { return };
    let foreign = fs::read(other.folder().join(other.checkpoints[0].to_string())).unwrap();
    put(&foreign);
    recorded.is_refused(first, "it is not of this recording");
    put(&whole);
    assert!(recorded.replay(first).status.success());
    // It is no program that goes on by itself.
    let done = recorded.sandbox.output(&["run", "--from", path(&file)]);
    assert_eq!(done.status.code(), Some(125));
    assert!(text(&done.stderr).contains("replay --from begins at it"), "{}", text(&done.stderr));
    use std::os::unix::fs::PermissionsExt;
    fs::set_permissions(&file, fs::Permissions::from_mode(0o666)).unwrap();
    recorded.is_refused(first, "others can have written it");
}

#[test]
fn checkpoints_that_are_there_are_not_written_over() {
    let Some(recorded) = Recorded::new("checkpoints_that_are_there_are_not_written_over") else { return };
    fs::remove_file(&recorded.file).unwrap();
    let words = ["record", "--checkpoint-interval", "1", "-o", path(&recorded.file), path(corrupted())];
    let done = recorded.sandbox.output(&words);
    assert_eq!(done.status.code(), Some(125));
    assert!(text(&done.stderr).contains("r.checkpoints already exists"), "{}", text(&done.stderr));
    assert!(!recorded.file.exists());
}
