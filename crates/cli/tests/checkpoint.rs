//! Incremental checkpoints: what goes on from one has every page as it was, and what is missing is told.

mod common;

use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::OnceLock;

use common::{Running, Sandbox, compile, kill, pid, runtime, text, wait_for};
use rustix::process::Signal;

/// The program of these tests, compiled once.
fn shadowed() -> &'static Path {
    static SHADOWED: OnceLock<PathBuf> = OnceLock::new();
    SHADOWED.get_or_init(|| compile("shadowed.c", "shadowed", &["-O2"]))
}

/// The last number that the program has said.
fn last(out: &str) -> u64 {
    out.lines().filter_map(|line| line.parse().ok()).next_back().unwrap_or(0)
}

/// Takes a checkpoint, and says how large it is.
fn take(sandbox: &Sandbox, more: &[&str], file: &str) -> u64 {
    let done = sandbox.output(&[&["checkpoint", "g", "-o", file][..], more].concat());
    assert!(done.status.success(), "{}", text(&done.stderr));
    std::fs::metadata(file).unwrap().len()
}

/// Lets the program write some hundred pages.
fn on(running: &mut Running) -> u64 {
    for _ in 0..2 {
        running.wait_for_output("\n");
    }
    last(&running.out)
}

/// Goes on from a checkpoint for a while; the first number that it says.
fn go_on(sandbox: &Sandbox, more: &[&str], file: &str) -> u64 {
    let mut command =
        sandbox.understudy(&[&["run", "--quiet", "--name", "again", "--from", file][..], more].concat());
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let mut out = BufReader::new(child.stdout.take().unwrap());
    let mut line = String::new();
    out.read_line(&mut line).unwrap();
    // With its standard input the program ends.
    let done = child.wait_with_output().unwrap();
    assert!(done.status.success(), "{line}{}", text(&done.stderr));
    last(&line)
}

/// What a checkpoint is refused with.
fn refused(sandbox: &Sandbox, more: &[&str], file: &str) -> String {
    let done = sandbox.output(&[&["run", "--name", "again", "--from", file][..], more].concat());
    assert!(!done.status.success());
    text(&done.stderr)
}

#[test]
fn a_chain_of_checkpoints_goes_on_from_each() {
    let Some(library) = runtime("a_chain_of_checkpoints_goes_on_from_each") else { return };
    let sandbox = Sandbox::with_library(&library, "");
    let folder = sandbox.folder.path().join("files");
    std::fs::create_dir(&folder).unwrap();
    let path = |name: &str| folder.join(name).to_str().unwrap().to_owned();
    let mut running = sandbox.start_program(&[], "g", shadowed());
    sandbox.wait_for_event("protected");
    let mut steps = vec![last(&running.out)];
    let whole = take(&sandbox, &["--keep"], &path("0"));
    for number in 1..=4 {
        steps.push(on(&mut running));
        if number == 3 {
            // The copies that were kept are of the last primary then, and of the base before.
            let epoch = sandbox.group()["epoch"].as_u64();
            kill(pid(&sandbox.group()["processes"][0]["primary"]["pid"]), Signal::KILL);
            sandbox.wait_for_event("promoted");
            assert_ne!(sandbox.group()["epoch"].as_u64(), epoch);
            sandbox.wait_for_event("recloned");
            steps[number] = on(&mut running);
        }
        let base = path(&(number - 1).to_string());
        let keep: &[&str] = if number % 2 == 0 { &["--keep"] } else { &[] };
        let bytes =
            take(&sandbox, &[&["--incremental", &base][..], keep].concat(), &path(&number.to_string()));
        assert!(bytes < whole / 4 * 3, "{bytes} of {whole}");
    }
    drop(running.child.stdin.take());
    running.finish();
    for (number, at_least) in steps.iter().enumerate() {
        let got = go_on(&sandbox, &[], &path(&number.to_string()));
        assert!(got > *at_least, "checkpoint {number} went on from {got}, and was behind {at_least}");
    }
    // Moved together, they find each other.
    let moved = sandbox.folder.path().join("moved");
    std::fs::rename(&folder, &moved).unwrap();
    let path = |name: &str| moved.join(name).to_str().unwrap().to_owned();
    assert!(go_on(&sandbox, &[], &path("4")) > steps[4]);
    // Another one in the place of a base is not taken for it.
    std::fs::rename(path("0"), path("kept")).unwrap();
    assert!(refused(&sandbox, &[], &path("4")).contains("cannot be opened"));
    std::fs::copy(path("1"), path("0")).unwrap();
    assert!(refused(&sandbox, &[], &path("4")).contains("it is another checkpoint"));
    // One byte of a page in the middle of the right one.
    let mut bytes = std::fs::read(path("kept")).unwrap();
    let at = bytes.len() / 2;
    bytes[at] ^= 1;
    std::fs::write(path("0"), bytes).unwrap();
    assert!(refused(&sandbox, &[], &path("4")).contains("its checksum is another"));
    sandbox.assert_clean();
}

#[test]
fn a_base_is_encrypted_as_what_builds_on_it() {
    let Some(library) = runtime("a_base_is_encrypted_as_what_builds_on_it") else { return };
    let sandbox = Sandbox::with_library(&library, "");
    let path = |name: &str| sandbox.folder.path().join(name).to_str().unwrap().to_owned();
    let key = path("key");
    make_key(Path::new(&key));
    let mut running = sandbox.start_program(&[], "g", shadowed());
    sandbox.wait_for_event("protected");
    let whole = take(&sandbox, &["--encrypt", &key], &path("0"));
    let at_least = on(&mut running);
    let bytes = take(&sandbox, &["--encrypt", &key, "--incremental", &path("0")], &path("1"));
    assert!(bytes < whole / 4 * 3, "{bytes} of {whole}");
    let plain = sandbox.output(&["checkpoint", "g", "-o", &path("2"), "--incremental", &path("0")]);
    assert!(text(&plain.stderr).contains("it is encrypted, and no key was given"), "{}", text(&plain.stderr));
    assert!(!Path::new(&path("2")).exists());
    let none = sandbox.output(&["checkpoint", "g", "-o", &path("2"), "--incremental", &key]);
    assert!(text(&none.stderr).contains("it is not a checkpoint"), "{}", text(&none.stderr));
    drop(running.child.stdin.take());
    running.finish();
    assert!(go_on(&sandbox, &["--decrypt", &key], &path("1")) > at_least);
    assert!(refused(&sandbox, &[], &path("1")).contains("it is encrypted"));
    sandbox.assert_clean();
}

/// A container begins like this: its first process has its session and its process group outside, where their number is 0.
#[test]
fn a_session_outside_of_the_container_is_nobodys() {
    const TEST: &str = "a_session_outside_of_the_container_is_nobodys";
    let Some(library) = runtime(TEST) else { return };
    let apart = ["--pid", "--fork", "--mount-proc", "--kill-child"];
    let works = std::process::Command::new("unshare").args(apart).arg("true").output();
    if !works.is_ok_and(|done| done.status.success()) {
        eprintln!("{TEST}: skipped, needs root and namespaces");
        return;
    }
    let sandbox = Sandbox::with_library(&library, "");
    let path = |name: &str| sandbox.folder.path().join(name).to_str().unwrap().to_owned();
    let inside = |script: &str| {
        let mut command = std::process::Command::new("unshare");
        command.args(apart).args(["sh", "-ec", script, env!("CARGO_BIN_EXE_understudy")]);
        command.arg(shadowed()).env("UNDERSTUDY_DIR", sandbox.state()).env("UNDERSTUDY_LIB", &library);
        command.current_dir(sandbox.folder.path());
        command
    };
    let script = "mkfifo in; \"$0\" run --name g --events events -- \"$1\" < in > out & exec 3> in
        for i in $(seq 3000); do grep -q protected events 2> none && test -s out && break; sleep 0.02; done
        \"$0\" checkpoint g -o inside; touch taken
        for i in $(seq 3000); do test -e asked && break; sleep 0.02; done
        exec 3>&-; wait";
    let mut running = inside(script).spawn().unwrap();
    wait_for(|| Path::new(&path("taken")).exists().then_some(()), "the checkpoint that is taken inside");
    // The supervisor does not know the number of who asks from outside, and cannot reach what that has open.
    let outside = sandbox.output(&["checkpoint", "g", "-o", &path("outside")]);
    assert!(text(&outside.stderr).contains("outside of the container"), "{}", text(&outside.stderr));
    std::fs::write(path("asked"), "").unwrap();
    assert!(running.wait().unwrap().success());
    let again = "\"$0\" run --quiet --name again --from inside < /dev/null";
    let done = inside(again).output().unwrap();
    assert!(done.status.success(), "{}", text(&done.stderr));
    sandbox.assert_clean();
}

/// A container's filter is the supervisor's as well, and keeps addresses random: a checkpoint needs none that are equal, a recording does.
#[test]
fn a_filter_that_the_supervisor_has_is_not_the_programs() {
    let Some(library) = runtime("a_filter_that_the_supervisor_has_is_not_the_programs") else { return };
    let filtered = compile("filtered.c", "filtered", &[]);
    let sandbox = Sandbox::with_library(&library, "");
    let path = |name: &str| sandbox.folder.path().join(name).to_str().unwrap().to_owned();
    let inside = |arguments: &[&str]| {
        let mut command = std::process::Command::new(&filtered);
        command.arg(env!("CARGO_BIN_EXE_understudy")).args(arguments).stdin(Stdio::null());
        command.env("UNDERSTUDY_DIR", sandbox.state()).env("UNDERSTUDY_LIB", &library);
        command
    };
    let program = shadowed().to_str().unwrap();
    for start in [&["record", "-o"][..], &["run", "--record"]] {
        let done = inside(&[start, &[&path("recording"), "--", program]].concat()).output().unwrap();
        assert!(text(&done.stderr).contains("keeps a program's addresses random"), "{}", text(&done.stderr));
        assert_eq!(done.status.code(), Some(125));
        assert!(!Path::new(&path("recording")).exists());
    }
    let events = sandbox.events_path();
    let mut command = inside(&["run", "--name", "g", "--events", events.to_str().unwrap(), "--", program]);
    let mut running = command.stdin(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap();
    sandbox.wait_for_event("protected");
    take(&sandbox, &[], &path("taken"));
    drop(running.stdin.take());
    assert!(running.wait().unwrap().success());
    let again = ["run", "--quiet", "--name", "again", "--from", &path("taken")];
    let done = inside(&again).output().unwrap();
    assert!(done.status.success(), "{}", text(&done.stderr));
    sandbox.assert_clean();
}

/// A key that nobody else can read.
fn make_key(path: &Path) {
    use std::os::unix::fs::OpenOptionsExt;
    let mut key = [0; 32];
    std::fs::File::open("/dev/urandom").unwrap().read_exact(&mut key).unwrap();
    let mut how = std::fs::OpenOptions::new();
    let mut file = how.write(true).create_new(true).mode(0o600).open(path).unwrap();
    std::io::Write::write_all(&mut file, &key).unwrap();
}
