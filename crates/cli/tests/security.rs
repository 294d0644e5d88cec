//! Other users of the machine: what they make where ours would be, and what they write where root looks. `docs/SECURITY.md`
//! says which line of it each test holds.

mod common;

use std::fs;
use std::io::Read;
use std::os::unix::fs::{PermissionsExt, chown, symlink};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use common::{Sandbox, built, is_alive, text, wait_for};
use serde_json::Value;

/// Whether other users can be played; says why if not.
fn is_root(test: &str) -> bool {
    let root = rustix::process::geteuid().is_root();
    if !root {
        eprintln!("{test} skipped: only root can act as another user");
    }
    root
}

/// A user that no list knows, with a folder where that user's groups would be.
struct Stranger {
    uid: u32,
    folder: PathBuf,
}

impl Stranger {
    /// Each test has its own, by `number`.
    fn new(number: u32) -> Stranger {
        let uid = 61_000 + number;
        let folder = PathBuf::from(format!("/dev/shm/understudy-{uid}"));
        let _ = fs::remove_dir_all(&folder);
        fs::create_dir(&folder).unwrap();
        fs::set_permissions(&folder, PermissionsExt::from_mode(0o700)).unwrap();
        let stranger = Stranger { uid, folder };
        stranger.owns(&stranger.folder);
        stranger
    }

    fn owns(&self, path: &Path) {
        chown(path, Some(self.uid), Some(self.uid)).unwrap();
    }

    /// The folder of a group of the stranger's.
    fn group(&self, name: &str) -> PathBuf {
        let path = self.folder.join(name);
        fs::create_dir(&path).unwrap();
        self.owns(&path);
        self.write(&path.join("sites"), "");
        path
    }

    fn fifo(&self, path: &Path) {
        assert!(Command::new("mkfifo").arg(path).status().unwrap().success());
        self.owns(path);
    }

    fn write(&self, path: &Path, words: &str) {
        fs::write(path, words).unwrap();
        self.owns(path);
    }
}

impl Drop for Stranger {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.folder);
    }
}

/// A process that nobody may end.
struct Victim(Child);

impl Victim {
    fn new() -> Victim {
        Victim(Command::new("sleep").arg("1000").spawn().unwrap())
    }

    /// A `meta.json` in which it is a group's primary, supervisor and all.
    fn meta(&self) -> String {
        let pid = self.0.id();
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
        let start = stat.rsplit_once(") ").unwrap().1.split(' ').nth(19).unwrap().to_owned();
        let id = format!(r#"{{"pid":{pid},"start":{start}}}"#);
        format!(
            r#"{{"version":1,"program":["x"],"order":"auto","since":"2026-01-01T00:00:00Z","since_ns":1,
            "supervisor":{id},"root":{pid},"lead":{pid},"primary":{id},"standbys":1,"reprotect":true,"probe":null}}"#
        )
    }
}

impl Drop for Victim {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The command without the sandbox's own place, as a machine's users call it.
fn understudy(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_understudy"));
    command.args(arguments).env_remove("UNDERSTUDY_DIR").env_remove("XDG_RUNTIME_DIR");
    command.env("UNDERSTUDY_LIB", &built().stand_in).env("STAND_IN", "silent").stdin(Stdio::null());
    command
}

/// Its output, which must come at once. Read while it runs: a long one does not fit into a pipe.
fn at_once(command: &mut Command) -> Output {
    let begun = Instant::now();
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let (stdout, stderr) = (reader(child.stdout.take()), reader(child.stderr.take()));
    let status = loop {
        if let Some(status) = child.try_wait().unwrap() {
            break status;
        }
        if begun.elapsed() > Duration::from_secs(8) {
            let _ = child.kill();
            let _ = child.wait();
            panic!("it hangs: {:?}, {:?}", stdout.join(), stderr.join());
        }
        std::thread::sleep(Duration::from_millis(2));
    };
    Output { status, stdout: stdout.join().unwrap(), stderr: stderr.join().unwrap() }
}

fn reader(pipe: Option<impl Read + Send + 'static>) -> std::thread::JoinHandle<Vec<u8>> {
    std::thread::spawn(move || {
        let mut all = Vec::new();
        pipe.unwrap().read_to_end(&mut all).unwrap();
        all
    })
}

#[test]
fn a_place_that_somebody_else_owns_is_not_used() {
    let sandbox = Sandbox::new("silent");
    let state = sandbox.state();
    fs::create_dir(&state).unwrap();
    if is_root("a_place_that_somebody_else_owns_is_not_used") {
        // The groups' owner would swap a folder for a link between two of root's steps.
        chown(&state, Some(65534), None).unwrap();
        let out = sandbox.output(&["run", "--name", "g", "true"]);
        let said = text(&out.stderr);
        assert_eq!(out.status.code(), Some(0), "{said}");
        assert!(
            said.contains("true runs unprotected") && said.contains("it belongs to another user"),
            "{said}"
        );
        assert_eq!(fs::read_dir(&state).unwrap().count(), 0);
        chown(&state, Some(0), None).unwrap();
    }
    fs::set_permissions(&state, PermissionsExt::from_mode(0o777)).unwrap();
    let out = sandbox.output(&["run", "true"]);
    assert_eq!(out.status.code(), Some(0));
    assert!(text(&out.stderr).contains("other users may write to it"), "{}", text(&out.stderr));
    fs::set_permissions(&state, PermissionsExt::from_mode(0o700)).unwrap();
    assert_eq!(sandbox.output(&["run", "true"]).status.code(), Some(0));
}

#[test]
fn a_name_that_somebody_else_has_taken_is_passed_over() {
    if !is_root("a_name_that_somebody_else_has_taken_is_passed_over") {
        return;
    }
    let stranger = Stranger::new(1);
    // Made by another user, who waits for this one's groups.
    chown(&stranger.folder, Some(61_999), None).unwrap();
    fs::set_permissions(&stranger.folder, PermissionsExt::from_mode(0o777)).unwrap();
    let session = tempfile::tempdir().unwrap();
    stranger.owns(session.path());
    let run = |session: Option<&Path>| {
        let mut command = understudy(&["run", "--", "sh", "-c", "echo $UNDERSTUDY_SEGMENT"]);
        command.uid(stranger.uid).gid(stranger.uid).envs(session.map(|path| ("XDG_RUNTIME_DIR", path)));
        at_once(&mut command)
    };
    let out = run(None);
    assert_eq!((out.status.code(), text(&out.stdout)), (Some(0), "\n".into()));
    let said = text(&out.stderr);
    assert!(said.contains("belongs to another user") && said.contains("understudy-61001"), "{said}");
    let out = run(Some(session.path()));
    assert_eq!(out.status.code(), Some(0), "{}", text(&out.stderr));
    assert!(text(&out.stdout).starts_with(session.path().to_str().unwrap()), "{}", text(&out.stdout));
    let left: Vec<_> = fs::read_dir(session.path().join("understudy")).unwrap().flatten().collect();
    assert!(left.iter().all(|entry| entry.file_name() == us_supervisor::ended::FOLDER), "{left:?}");
    assert_eq!(fs::read_dir(&stranger.folder).unwrap().count(), 0, "nothing has been put there");
}

#[test]
fn root_counts_what_others_have_and_opens_none_of_it() {
    if !is_root("root_counts_what_others_have_and_opens_none_of_it") {
        return;
    }
    let (stranger, victim) = (Stranger::new(2), Victim::new());
    let kept = tempfile::tempdir().unwrap();
    fs::write(kept.path().join("file"), "kept").unwrap();
    stranger.fifo(&stranger.group("waits").join("meta.json"));
    stranger.write(&stranger.group("dead").join("meta.json"), "{}");
    symlink("/dev/zero", stranger.group("endless").join("meta.json")).unwrap();
    symlink(kept.path(), stranger.folder.join("link")).unwrap();
    stranger.write(&stranger.group("lies").join("meta.json"), &victim.meta());
    stranger.group("\u{1b}[31mred");
    let others = |out: &Output| {
        let found: Value = serde_json::from_slice(&out.stdout).unwrap();
        let others = found["others"].as_array().unwrap().clone();
        (found, others.into_iter().find(|other| other["uid"] == stranger.uid))
    };
    let (found, other) = others(&at_once(&mut understudy(&["status", "--json"])));
    assert_eq!(other.unwrap()["groups"], 5);
    assert!(found["groups"].as_array().unwrap().iter().all(|group| group["name"] != "lies"));
    let shown = text(&at_once(&mut understudy(&["status"])).stdout);
    assert!(shown.contains("5 of user 61002") && !shown.contains('\u{1b}'), "{shown:?}");
    // Nothing of root's own is found under these names.
    for arguments in [&["stop", "lies"][..], &["signal", "lies", "KILL"], &["failover", "lies"]] {
        let out = at_once(&mut understudy(arguments));
        let said = text(&out.stderr);
        assert!(said.starts_with("understudy: there is no group named lies; "), "{said}");
    }
    // Asked for it, root is that user, and can do what that user can.
    for user in ["61002", "all"] {
        let shown = text(&at_once(&mut understudy(&["status", "--user", user])).stdout);
        assert!(!shown.contains('\u{1b}'), "{shown:?}");
    }
    let user = ["--user", "61002"];
    for arguments in [&["stop", "lies", "--timeout", "0"][..], &["signal", "lies", "KILL"]] {
        let out = at_once(understudy(arguments).args(user));
        assert_eq!(out.status.code(), Some(125), "{}", text(&out.stderr));
    }
    assert!(is_alive(victim.0.id()) && kept.path().join("file").exists());
}

#[test]
fn a_folder_of_another_users_is_not_counted_by_its_name() {
    if !is_root("a_folder_of_another_users_is_not_counted_by_its_name") {
        return;
    }
    let stranger = Stranger::new(3);
    stranger.group("g");
    chown(&stranger.folder, Some(61_999), None).unwrap();
    let out = at_once(&mut understudy(&["status", "--json"]));
    let found: Value = serde_json::from_slice(&out.stdout).unwrap();
    assert!(found["others"].as_array().unwrap().iter().all(|other| other["uid"] != stranger.uid), "{found}");
}

#[test]
fn root_sees_and_stops_a_users_group_as_that_user() {
    if !is_root("root_sees_and_stops_a_users_group_as_that_user") {
        return;
    }
    let stranger = Stranger::new(4);
    let mut run = understudy(&["run", "--name", "g", "--", "sleep", "1000"]);
    let mut run = run.uid(stranger.uid).gid(stranger.uid).spawn().unwrap();
    let groups = |arguments: &[&str]| -> Vec<Value> {
        let out = at_once(&mut understudy(arguments));
        let found: Value = serde_json::from_slice(&out.stdout).unwrap();
        found["groups"].as_array().unwrap().clone()
    };
    wait_for(|| (!groups(&["status", "--json", "--user", "61004"]).is_empty()).then_some(()), "the group");
    assert!(groups(&["status", "--json"]).iter().all(|group| group["name"] != "g"));
    let all = groups(&["status", "--json", "--user", "all"]);
    assert!(all.iter().any(|group| group["name"] == "g" && group["uid"] == stranger.uid));
    let out = at_once(understudy(&["status", "--user", "0"]).uid(stranger.uid).gid(stranger.uid));
    assert!(text(&out.stderr).contains("only root may"), "{}", text(&out.stderr));
    let out = at_once(&mut understudy(&["stop", "g", "--user", "61004"]));
    assert_eq!(out.status.code(), Some(0), "{}", text(&out.stderr));
    assert_eq!(run.wait().unwrap().code(), Some(143));
}

#[test]
fn nothing_planted_in_our_own_folder_is_followed() {
    let sandbox = Sandbox::new("silent");
    let kept = sandbox.folder.path().join("kept");
    fs::create_dir(&kept).unwrap();
    fs::write(kept.join("file"), "kept").unwrap();
    fs::create_dir_all(sandbox.state().join("g")).unwrap();
    fs::write(sandbox.state().join("g/sites"), "").unwrap();
    for name in ["meta.json", "meta.json.new", "segment", "roster", "control"] {
        symlink(kept.join("file"), sandbox.state().join("g").join(name)).unwrap();
    }
    symlink(&kept, sandbox.state().join("g/folder")).unwrap();
    symlink(&kept, sandbox.state().join("linked")).unwrap();
    let out = sandbox.output(&["run", "--name", "g", "true"]);
    assert_eq!(out.status.code(), Some(0), "{}", text(&out.stderr));
    let out = sandbox.output(&["run", "--name", "linked", "--", "sh", "-c", "exit 7"]);
    assert_eq!(out.status.code(), Some(7), "{}", text(&out.stderr));
    assert!(text(&out.stderr).contains("runs unprotected"), "{}", text(&out.stderr));
    fs::remove_file(sandbox.state().join("linked")).unwrap();
    assert_eq!(fs::read_to_string(kept.join("file")).unwrap(), "kept");
    assert_eq!(fs::read_dir(&kept).unwrap().count(), 1);
    sandbox.assert_clean();
}

#[test]
fn only_what_groups_have_made_is_removed() {
    let sandbox = Sandbox::new("silent");
    // A place that its user has named, and in which there is more.
    let papers = sandbox.state().join("papers");
    fs::create_dir_all(&papers).unwrap();
    fs::write(papers.join("letter"), "kept").unwrap();
    for arguments in [&["status"][..], &["status", "papers"], &["stop", "papers"], &["run", "true"]] {
        sandbox.output(arguments);
    }
    let out = sandbox.output(&["run", "--name", "papers", "--", "sh", "-c", "exit 7"]);
    assert_eq!(out.status.code(), Some(7));
    assert!(text(&out.stderr).contains("runs unprotected"), "{}", text(&out.stderr));
    assert!(text(&out.stderr).contains("does not belong to a group"), "{}", text(&out.stderr));
    assert_eq!(fs::read_to_string(papers.join("letter")).unwrap(), "kept");
}

#[test]
fn what_a_killed_supervisor_left_goes_with_the_next_run() {
    let sandbox = Sandbox::new("silent");
    let mut command = sandbox.understudy(&["run", "--name", "g", "--", "sh", "-c", "kill -KILL 0"]);
    // The signal reaches the whole process group: program, copies and supervisor.
    command.process_group(0).status().unwrap();
    assert!(sandbox.state().join("g").exists());
    // The shell was told of the supervisor's end, and of nobody else's.
    sandbox.await_processes();
    assert_eq!(sandbox.output(&["run", "--name", "other", "true"]).status.code(), Some(0));
    sandbox.assert_clean();
}

#[test]
fn a_signal_to_the_whole_process_group_comes_once() {
    let sandbox = Sandbox::new("silent");
    let script = "for s in USR1 ALRM VTALRM PROF IO PWR RTMIN; do trap \"echo $s\" $s; done
        for s in USR1 ALRM VTALRM PROF IO PWR RTMIN; do kill -$s 0; sleep 0.05; done; exit 3";
    let mut command = sandbox.understudy(&["run", "--name", "g", "--", "bash", "-c", script]);
    let out = command.process_group(0).output().unwrap();
    assert_eq!(out.status.code(), Some(3), "{}", text(&out.stderr));
    assert_eq!(text(&out.stdout), "USR1\nALRM\nVTALRM\nPROF\nIO\nPWR\nRTMIN\n");
    sandbox.assert_clean();
}

#[test]
fn a_strangers_recording_is_a_program() {
    let Some(runtime) = common::runtime("a_strangers_recording_is_a_program") else { return };
    if !is_root("a_strangers_recording_is_a_program") {
        return;
    }
    let sandbox = Sandbox::with_library(&runtime, "");
    let file = sandbox.folder.path().join("recording");
    let name = file.to_str().unwrap();
    assert_eq!(sandbox.output(&["record", "-o", name, "--", "echo", "ran"]).status.code(), Some(0));
    chown(&file, Some(61_000), None).unwrap();
    let out = sandbox.output(&["replay", name]);
    assert_eq!((out.status.code(), text(&out.stdout)), (Some(125), String::new()));
    assert!(text(&out.stderr).contains("belongs to user 61000: a recording is a program"), "{out:?}");
    assert_eq!(text(&sandbox.output(&["replay", "--force", name]).stdout), "ran\n");
    chown(&file, Some(0), None).unwrap();
    assert_eq!(text(&sandbox.output(&["replay", name]).stdout), "ran\n");
}

#[test]
fn what_a_program_is_called_does_not_act_on_the_terminal() {
    let sandbox = Sandbox::new("follow");
    let word = "\u{1b}]0;x\u{7}\n\u{9b}31m\u{202e}";
    let probe = format!("true {word}");
    let _running = sandbox.start_with(&["--probe", &probe, "--standbys", "0"], "g", &["wait", word]);
    for arguments in [&["status"][..], &["status", "--json"], &["doctor", word], &["inspect", word]] {
        let out = sandbox.output(arguments);
        let shown = text(&out.stdout) + &text(&out.stderr);
        assert!(!shown.contains(['\u{1b}', '\u{7}', '\u{9b}', '\u{202e}']), "{arguments:?}: {shown:?}");
    }
    assert_eq!(sandbox.group()["program"][2], word, "JSON says it all the same");
    assert!(sandbox.event("started").is_some_and(|event| event["program"][2] == word));
    let raw = fs::read_to_string(sandbox.events_path()).unwrap();
    assert!(!raw.contains(['\u{1b}', '\u{9b}', '\u{202e}']), "{raw:?}");
}

#[test]
fn a_fifo_for_events_holds_nobody_up() {
    let sandbox = Sandbox::new("silent");
    let fifo = sandbox.folder.path().join("fifo");
    assert!(Command::new("mkfifo").arg(&fifo).status().unwrap().success());
    let run = || {
        sandbox.understudy(&[
            "run",
            "--events",
            fifo.to_str().unwrap(),
            "--",
            "sh",
            "-c",
            "sleep 0.3; exit 3",
        ])
    };
    assert_eq!(at_once(&mut run()).status.code(), Some(3), "nobody reads");
    let mut late = run().spawn().unwrap();
    std::thread::sleep(Duration::from_millis(100));
    let read = fs::read_to_string(&fifo).unwrap();
    assert_eq!(late.wait().unwrap().code(), Some(3));
    assert!(read.contains("\"ended\""), "{read:?}");
}

/// Each copy has its own processor, and the one that takes over has the primary's.
#[test]
fn copies_are_pinned_where_cpus_says() {
    let Some(library) = common::runtime("copies_are_pinned_where_cpus_says") else { return };
    let allowed = |pid: u32| {
        let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
        let list = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:\t"));
        list.unwrap_or_default().to_string()
    };
    if !allowed(std::process::id()).starts_with('0')
        || std::thread::available_parallelism().map_or(1, usize::from) < 2
    {
        eprintln!("copies_are_pinned_where_cpus_says: skipped, processors 0 and 1 are not both to be had");
        return;
    }
    let sandbox = Sandbox::with_library(&library, "");
    let running = sandbox.start_with(&["--cpus", "0:1"], "g", &["wait"]);
    let protected = sandbox.wait_for_event("protected");
    let (primary, standby) = (common::pid(&protected["primary"]), common::pid(&protected["standby"]));
    assert_eq!((allowed(primary), allowed(standby)), ("0".into(), "1".into()));
    common::kill(primary, rustix::process::Signal::KILL);
    let recloned = sandbox.wait_for_event("recloned");
    assert_eq!(common::pid(&recloned["primary"]), standby);
    assert_eq!((allowed(standby), allowed(common::pid(&recloned["standby"]))), ("0".into(), "1".into()));
    drop(running);
}

#[test]
fn cpus_that_are_not_there() {
    let sandbox = Sandbox::new("silent");
    let out = sandbox.output(&["run", "--cpus", "0:1023", "true"]);
    let said = text(&out.stderr);
    assert_eq!(out.status.code(), Some(2), "{said}");
    assert!(said.contains("--cpus") && said.contains("STANDBY"), "{said}");
}
