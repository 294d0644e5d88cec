//! `run` as the program and its user see it: refusals, exit codes, signals, descriptors, names.

mod common;

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use common::{Sandbox, built, kill, text};
use rustix::process::Signal;

fn file(folder: &Path, name: &str, content: &[u8], mode: u32) -> PathBuf {
    let path = folder.join(name);
    fs::write(&path, content).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
    path
}

/// The guest's bytes with the path of its loader changed to one of the same length.
fn other_loader() -> Vec<u8> {
    let mut bytes = fs::read(&built().guest).unwrap();
    let loader = b"/lib64/ld-linux-x86-64.so.2";
    let at = bytes.windows(loader.len()).position(|window| window == loader).expect("the guest is dynamic");
    bytes[at..at + loader.len()].copy_from_slice(b"/lib64/ld-musl--x86-64.so.1");
    bytes
}

#[test]
fn programs_that_cannot_be_run_or_protected() {
    let sandbox = Sandbox::new("silent");
    let folder = sandbox.folder.path();
    let guest = fs::read(&built().guest).unwrap();
    let mut foreign = guest.clone();
    foreign[18] = 183;
    let static_guest = built().static_guest.clone();
    let script = format!("#!{}\n", static_guest.display());
    let table = [
        (folder.join("missing"), 127, "not found"),
        ("no-such-program-anywhere".into(), 127, "not found"),
        ("".into(), 127, "not found"),
        (folder.into(), 126, "it is a folder"),
        ("/dev/null".into(), 126, "not a regular file"),
        (file(folder, "plain", b"hello", 0o644), 126, "permission denied"),
        (file(folder, "junk", b"hello", 0o755), 126, "neither an ELF file nor a script"),
        (file(folder, "empty", b"", 0o755), 126, "neither an ELF file nor a script"),
        (file(folder, "cut", &guest[..40], 0o755), 125, "a damaged ELF file"),
        (file(folder, "foreign", &foreign, 0o755), 125, "not an x86-64 program"),
        (file(folder, "setuid", &guest, 0o4755), 125, "setuid"),
        (file(folder, "setgid", &guest, 0o2755), 125, "setgid"),
        (file(folder, "musl", &other_loader(), 0o755), 125, "not glibc's"),
        (static_guest, 125, "statically linked"),
        (file(folder, "script", script.as_bytes(), 0o755), 125, "its interpreter"),
        (file(folder, "lost", b"#!/no/such/interpreter\n", 0o755), 126, "does not exist"),
    ];
    for (program, code, reason) in table {
        let out = sandbox.output(&["run", "--", program.to_str().unwrap()]);
        let said = text(&out.stderr);
        assert_eq!(out.status.code(), Some(code), "{program:?}: {said}");
        assert!(said.contains(reason) && said.starts_with("understudy: "), "{program:?}: {said}");
        assert_eq!(said.lines().count(), 1, "one sentence: {said}");
        assert_eq!(text(&out.stdout), "");
        sandbox.assert_clean();
    }
}

#[test]
fn wrong_usage() {
    let sandbox = Sandbox::new("silent");
    let table: [(&[&str], &str); 33] = [
        (&[], "Usage"),
        (&["nonsense"], "nonsense"),
        (&["run"], "PROGRAM"),
        (&["run", "--"], "PROGRAM"),
        (&["run", "--nonsense", "true"], "--nonsense"),
        (&["run", "--standbys", "9", "true"], "0, 1, 2 or 3"),
        (&["run", "--standbys", "-1", "true"], "--standbys"),
        (&["run", "--name", "a/b", "true"], "A-Z"),
        (&["run", "--name", "..", "true"], "cannot be"),
        (&["run", "--name", "", "true"], "A-Z"),
        (&["run", "--verify", "maybe", "true"], "maybe"),
        (&["run", "--lag-timeout", "0", "true"], "lag-timeout"),
        (&["run", "--cpus", "0-1", "true"], "PRIMARY:STANDBY"),
        (&["run", "-q", "-v", "true"], "cannot be used with"),
        (&["run", "--probe-interval", "0", "true"], "probe-interval"),
        (&["run", "--probe-interval", "abc", "true"], "a number of milliseconds, 10 to 3600000"),
        (&["run", "--lag-timeout", "x", "true"], "a number of milliseconds, 1 to 600000"),
        (&["run", "--cpus", "0-99", "true"], "no colon is in it; PRIMARY:STANDBY is meant"),
        (&["run", "--cpus", "0:999", "true"], "STANDBY: there is no processor 999 to use here, only "),
        (&["man", "nonsense"], "there is no command nonsense; there are: run, status, explain, top, wait"),
        (&["wait", "x", "--protected", "--ended"], "cannot be used with"),
        (&["status", "--watch=0"], "a number of seconds, 0.1 to 86400"),
        (&["run", "--metrics", "127.0.0.1", "true"], "ADDR:PORT, as in 127.0.0.1:9464 or [::1]:9464"),
        (&["run", "--lag-limit", "1KiB", "true"], "the largest event must fit"),
        (&["run", "--lag-limit", "many", "true"], "not a unit"),
        (
            &["run", "--order", "serial", "--record", "x", "true"],
            "--order serial with --record is not available",
        ),
        (&["run", "--atomics", "on", "true"], "--atomics on needs --order schedule"),
        (&["run", "--order", "nonsense", "true"], "[possible values: auto, schedule, deterministic, serial]"),
        (
            &["run", "--order", "deterministic", "--record", "x", "true"],
            "--order deterministic with --record is not available",
        ),
        (&["record", "--order", "deterministic", "true"], "is not available in this version"),
        (&["top"], "top needs a terminal"),
        (&["signal", "x", "NONSENSE"], "NONSENSE"),
        (&["stop", "x", "--timeout", "-1"], "timeout"),
    ];
    for (arguments, reason) in table {
        let out = sandbox.output(arguments);
        let said = text(&out.stderr);
        assert_eq!(out.status.code(), Some(2), "{arguments:?}: {said}");
        assert!(said.contains(reason), "{arguments:?}: {said}");
        assert_eq!(text(&out.stdout), "");
    }
    sandbox.assert_clean();
}

#[test]
fn surroundings_that_do_not_allow_protection() {
    let sandbox = Sandbox::new("silent");
    let ends = |command: &[&str], code: i32, variable: &str, value: &Path, reason: &str| {
        let out = sandbox.understudy(command).env(variable, value).output().unwrap();
        let said = text(&out.stderr);
        assert_eq!(out.status.code(), Some(code), "{said}");
        assert!(said.contains(reason), "{said}");
    };
    let refused =
        |variable: &str, value: &Path, reason: &str| ends(&["run", "true"], 125, variable, value, reason);
    refused(
        "UNDERSTUDY_LIB",
        Path::new("/no/such/library.so"),
        "names /no/such/library.so, and no such file is there",
    );
    let spaced = sandbox.folder.path().join("a b.so");
    fs::copy(&built().stand_in, &spaced).unwrap();
    refused("UNDERSTUDY_LIB", &spaced, "a space is in its path");
    // Without a place there is no group, but the program runs.
    let runs = |place: &str, reason: &str| {
        ends(&["run", "sh", "-c", "exit 5"], 5, "UNDERSTUDY_DIR", Path::new(place), reason);
    };
    runs("/proc/nonsense", "sh runs unprotected: cannot make /proc/nonsense");
    runs("/dev/null", "/dev/null");
    // Unless that is not wanted.
    let required = ["run", "--require-protection", "sh", "-c", "exit 5"];
    let reason = "sh cannot be protected: cannot make /proc/nonsense";
    ends(&required, 125, "UNDERSTUDY_DIR", Path::new("/proc/nonsense"), reason);
    let out = sandbox.output(&["run", "--require-protection", "--standbys", "0", "true"]);
    assert_eq!(out.status.code(), Some(2));
    let out = sandbox.output(&["run", "--events", "/no/such/folder/events", "true"]);
    assert_eq!(out.status.code(), Some(125));
    assert!(text(&out.stderr).contains("cannot write events to"));
    sandbox.assert_clean();
}

#[test]
fn unknown_groups() {
    let sandbox = Sandbox::new("silent");
    for (arguments, code) in [(&["status", "x"][..], 3), (&["stop", "x"], 1), (&["signal", "x", "TERM"], 1)] {
        let out = sandbox.output(arguments);
        assert_eq!(out.status.code(), Some(code));
        assert_eq!(text(&out.stderr), "understudy: there is no group named x; no group is running\n");
    }
    assert!(!sandbox.state().exists(), "looking must not make a folder");
}

#[test]
fn the_exit_code_is_the_programs() {
    let sandbox = Sandbox::new("silent");
    let guest = built().guest.to_str().unwrap();
    for (arguments, code) in [
        (["exit", "0"], 0),
        (["exit", "3"], 3),
        (["exit", "255"], 255),
        (["die", "9"], 137),
        (["die", "15"], 143),
    ] {
        let out = sandbox.output(&["run", guest, arguments[0], arguments[1]]);
        assert_eq!(out.status.code(), Some(code));
        assert_eq!((text(&out.stdout), text(&out.stderr)), (String::new(), String::new()));
    }
    sandbox.assert_clean();
}

#[test]
fn the_three_streams_are_the_programs_own() {
    use std::io::Write;
    let sandbox = Sandbox::new("silent");
    let mut command = sandbox.understudy(&["run", "--", "sh", "-c", "cat; echo err >&2"]);
    let mut child =
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let sent: Vec<u8> = (0..=255).cycle().take(200_000).collect();
    let mut stdin = child.stdin.take().unwrap();
    let copy = sent.clone();
    let writer = std::thread::spawn(move || stdin.write_all(&copy).unwrap());
    let out = child.wait_with_output().unwrap();
    writer.join().unwrap();
    assert!(out.stdout == sent, "{} bytes of {}", out.stdout.len(), sent.len());
    assert_eq!(text(&out.stderr), "err\n");
    sandbox.assert_clean();
}

#[test]
fn the_program_inherits_what_run_was_given() {
    let sandbox = Sandbox::new("silent");
    let run = format!("{} run -- ", env!("CARGO_BIN_EXE_understudy"));
    let native = |script: String| {
        let mut command = sandbox.understudy(&[]);
        let command_of_sh = {
            let mut sh = std::process::Command::new("sh");
            sh.arg("-c").arg(script).stdin(Stdio::null());
            for (name, value) in command.get_envs() {
                if let Some(value) = value {
                    sh.env(name, value);
                }
            }
            sh
        };
        command = command_of_sh;
        let out = command.output().unwrap();
        assert!(out.status.success(), "{}", text(&out.stderr));
        text(&out.stdout)
    };
    let guest = built().guest.to_str().unwrap();
    // Dispositions and the mask, plain and with signals ignored; descriptors, also with a closed stdin.
    for (setting, program) in [
        ("", format!("{guest} signals")),
        ("trap '' PIPE HUP USR1;", format!("{guest} signals")),
        ("", "ls -l /proc/self/fd | wc -l".into()),
        ("exec 0<&-;", "ls -l /proc/self/fd | wc -l".into()),
        ("exec 7</dev/null;", "readlink /proc/self/fd/7".into()),
    ] {
        assert_eq!(
            native(format!("{setting} {run}{program}")),
            native(format!("{setting} {program}")),
            "{setting}"
        );
    }
    assert!(native(format!("trap '' PIPE; {run}{guest} signals")).contains("ignored 13"));
    // The same process group, so that the terminal's keys and job control work as they do natively.
    let groups = native(format!("ps -o pgid= -p $$; {run}sh -c 'ps -o pgid= -p $$'"));
    let lines: Vec<&str> = groups.lines().collect();
    assert_eq!(lines[0], lines[1]);
    sandbox.assert_clean();
}

#[test]
fn the_environment_gains_the_runtime_and_keeps_what_was_there() {
    let sandbox = Sandbox::new("silent");
    let lines = |preload: Option<&str>| {
        let mut command = sandbox.understudy(&["run", "env"]);
        command.env_remove("LD_PRELOAD").env("KEPT", "a=b c");
        if let Some(preload) = preload {
            command.env("LD_PRELOAD", preload);
        }
        let out = command.output().unwrap();
        text(&out.stdout).lines().map(String::from).collect::<Vec<_>>()
    };
    let library = built().stand_in.canonicalize().unwrap();
    let plain = lines(None);
    assert!(plain.contains(&"KEPT=a=b c".into()));
    assert!(plain.contains(&format!("LD_PRELOAD={}", library.display())));
    assert!(!plain.iter().any(|line| line.starts_with("UNDERSTUDY_PRELOAD=")));
    let chained = lines(Some("libc.so.6"));
    assert!(chained.contains(&format!("LD_PRELOAD=libc.so.6:{}", library.display())));
    assert!(chained.contains(&"UNDERSTUDY_PRELOAD=libc.so.6".into()));
    sandbox.assert_clean();
}

#[test]
fn signals_sent_to_run_reach_the_program() {
    for (signal, number) in [(Signal::TERM, 15), (Signal::INT, 2), (Signal::HUP, 1), (Signal::USR1, 10)] {
        let sandbox = Sandbox::new("silent");
        let mut running = sandbox.start("g", &["wait"]);
        kill(running.child.id(), signal);
        running.wait_for_output(&format!("signal {number}\n"));
        assert_eq!(running.finish().0, Some(7));
        sandbox.assert_clean();
    }
}

#[test]
fn a_runtime_that_never_answers_is_said() {
    let sandbox = Sandbox::new("silent");
    let mut command = sandbox.understudy(&["run", "--events", "-", "--", "sh", "-c", "sleep 0.5"]);
    let out = command.env("UNDERSTUDY_START_TIMEOUT_MS", "1").output().unwrap();
    let said = text(&out.stderr);
    assert_eq!(out.status.code(), Some(0));
    assert!(said.contains("runs unprotected: the runtime was not loaded"), "{said}");
    assert!(said.contains(r#""event":"unprotected","process":"#), "{said}");
    assert!(said.contains(r#","why":"the runtime was not loaded""#), "{said}");
    sandbox.assert_clean();
}

#[test]
fn names() {
    let sandbox = Sandbox::new("silent");
    let guest = built().guest.to_str().unwrap();
    let mut children = Vec::new();
    for expected in ["guest", "guest-2", "guest-3"] {
        children.push(sandbox.understudy(&["run", guest, "stubborn"]).stdout(Stdio::null()).spawn().unwrap());
        common::wait_for(
            || (sandbox.output(&["status", expected]).status.code() == Some(4)).then_some(()),
            expected,
        );
    }
    let out = sandbox.output(&["run", "--name", "guest-2", "true"]);
    assert_eq!(out.status.code(), Some(125));
    assert!(text(&out.stderr).contains("a group named guest-2 is running"));
    let table = text(&sandbox.output(&["status"]).stdout);
    assert_eq!(table.lines().filter(|line| line.starts_with("guest")).count(), 6, "{table}");
    for name in ["guest", "guest-2", "guest-3"] {
        assert!(sandbox.output(&["stop", name, "--signal", "KILL"]).status.success());
    }
    for mut child in children {
        assert_eq!(child.wait().unwrap().code(), Some(137));
    }
    sandbox.assert_clean();
}

#[test]
fn orphans_of_the_program_are_reaped_and_outlive_nothing() {
    let sandbox = Sandbox::new("silent");
    // The grandchild's parent ends at once: `run` adopts it and must not take its end for the program's.
    let script = "(sh -c 'exit 5' &); sleep 0.2; ps -o stat= --ppid $PPID | grep -c Z; exit 4";
    let out = sandbox.output(&["run", "sh", "-c", script]);
    assert_eq!((text(&out.stdout).as_str(), out.status.code()), ("0\n", Some(4)));
    sandbox.assert_clean();
}
