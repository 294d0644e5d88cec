//! A sandbox for one test: its own state folder, a stand-in for the runtime, and everything ended at the end.

#![allow(dead_code, reason = "each test binary uses its own part")]

use std::io::Read;
use std::mem::offset_of;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use serde_json::Value;
use us_abi::{
    DeathNotice, Process, ROSTER_BYTES, Roster, RosterHeader, SEGMENT_BYTES, SegmentHeader, THREADS_OFFSET,
    Text, ThreadEntry,
};

/// Longest wait for something that is sure to come; only a failing test waits so long.
const PATIENCE: Duration = Duration::from_secs(60);

/// Programs compiled once for all tests of a binary.
pub struct Built {
    pub stand_in: PathBuf,
    pub guest: PathBuf,
    pub static_guest: PathBuf,
    pub recorded: PathBuf,
}

pub fn built() -> &'static Built {
    static BUILT: OnceLock<Built> = OnceLock::new();
    BUILT.get_or_init(|| {
        let flags: Vec<String> = offsets().iter().map(|(name, at)| format!("-D{name}={at}")).collect();
        let flags: Vec<&str> = flags.iter().map(String::as_str).chain(["-shared", "-fPIC"]).collect();
        Built {
            stand_in: compile("stand_in.c", "stand_in.so", &flags),
            guest: compile("guest.c", "guest", &[]),
            static_guest: compile("guest.c", "guest-static", &["-static"]),
            recorded: compile("recorded.c", "recorded", &["-g", "-pthread"]),
        }
    })
}

/// A program built with this sanitizer, `None` where the compiler has none.
pub fn sanitized(sanitizer: &str) -> Option<PathBuf> {
    let empty = ["-xc", "/dev/null", "-shared", "-o", "/dev/null", &format!("-fsanitize={sanitizer}")];
    let there = Command::new("cc").args(empty).output().is_ok_and(|out| out.status.success());
    let flags = [&format!("-fsanitize={sanitizer}"), "-pthread", "-fPIE", "-pie"];
    there.then(|| compile("sanitized.c", &format!("sanitized-{sanitizer}"), &flags))
}

/// A program, and a library that stands in front of libc's functions for it.
pub fn interposed() -> (PathBuf, PathBuf) {
    let library = ["-DLIBRARY", "-shared", "-fPIC", "-ldl"];
    let program = compile("interposed.c", "interposed", &["-pthread"]);
    (program, compile("interposed.c", "interposed.so", &library))
}

/// A program whose copies differ.
pub fn racing() -> &'static Path {
    static RACING: OnceLock<PathBuf> = OnceLock::new();
    RACING.get_or_init(|| compile("racing.c", "racing", &["-g", "-O1", "-pthread"]))
}

/// A program that takes a while, in the middle of which something goes wrong.
pub fn corrupted() -> &'static Path {
    static CORRUPTED: OnceLock<PathBuf> = OnceLock::new();
    CORRUPTED.get_or_init(|| compile("corrupted.c", "corrupted", &["-g", "-O1", "-pthread"]))
}

/// Compiles into the build's own folder, under another name first: tests of another binary may be using it.
pub fn compile(source: &str, name: &str, flags: &[&str]) -> PathBuf {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/common").join(source);
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("us-cli");
    std::fs::create_dir_all(&folder).unwrap();
    let new = folder.join(format!("{name}.{}", std::process::id()));
    let done = Command::new("cc").arg("-o").arg(&new).arg(source).args(flags).output().expect("cc is needed");
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    let path = folder.join(name);
    std::fs::rename(new, &path).unwrap();
    path
}

fn offsets() -> Vec<(&'static str, usize)> {
    vec![
        ("SEGMENT", SEGMENT_BYTES),
        ("SUPERVISOR_PID", offset_of!(SegmentHeader, supervisor_pid)),
        ("ROOT_PID", offset_of!(SegmentHeader, root_pid)),
        ("GUEST_PID", offset_of!(SegmentHeader, guest_pid)),
        ("PRIMARY_PID", offset_of!(SegmentHeader, primary_pid)),
        ("STANDBY_PID", offset_of!(SegmentHeader, standby_pid)),
        ("EPOCH", offset_of!(SegmentHeader, epoch)),
        ("STATE", offset_of!(SegmentHeader, state)),
        ("ATTENTION", offset_of!(SegmentHeader, attention)),
        ("COMMAND", offset_of!(SegmentHeader, command)),
        ("LEAVING", offset_of!(SegmentHeader, leaving)),
        ("DROPPED", offset_of!(SegmentHeader, dropped)),
        ("LIVE_NS", offset_of!(SegmentHeader, live_ns)),
        ("IN_DOUBT", offset_of!(SegmentHeader, in_doubt)),
        ("SLOTS", offset_of!(SegmentHeader, slots)),
        ("WHY", offset_of!(SegmentHeader, why)),
        ("CLONE_ERROR", offset_of!(SegmentHeader, clone_error)),
        ("CLONE_FAILURES", offset_of!(SegmentHeader, clone_failures)),
        ("CLONES", offset_of!(SegmentHeader, clones)),
        ("CLONE_PAUSE_NS", offset_of!(SegmentHeader, clone_pause_ns)),
        ("CLONE_BYTES", offset_of!(SegmentHeader, clone_bytes)),
        ("PARKED", offset_of!(SegmentHeader, parked)),
        ("DEATH_NS", offset_of!(SegmentHeader, death_ns)),
        ("TEXT_CODE", offset_of!(Text, code)),
        ("TEXT_LEN", offset_of!(Text, len)),
        ("TEXT_WORDS", offset_of!(Text, words)),
        ("THREADS", THREADS_OFFSET),
        ("PRIMARY_TID", offset_of!(ThreadEntry, primary_tid)),
        ("THREAD_STATE", offset_of!(ThreadEntry, state)),
        ("NOTICE_WORD", offset_of!(ThreadEntry, notice) + offset_of!(DeathNotice, word)),
        ("NOTICE_NEXT", offset_of!(ThreadEntry, notice) + offset_of!(DeathNotice, next)),
        ("CONFIG_END", offset_of!(SegmentHeader, supervisor_pid)),
        ("ROSTER", ROSTER_BYTES),
        ("USED", offset_of!(RosterHeader, used)),
        ("NEWS", offset_of!(RosterHeader, news)),
        ("PROCESSES", offset_of!(Roster, processes)),
        ("PROCESS_BYTES", size_of::<Process>()),
        ("PROCESS_STATE", offset_of!(Process, state)),
        ("PROCESS_PID", offset_of!(Process, pid)),
        ("PROCESS_PARENT", offset_of!(Process, parent)),
        ("PROCESS_JOINED", offset_of!(Process, joined)),
        ("PROCESS_KIN", offset_of!(Process, kin)),
        ("PROCESS_END", offset_of!(Process, end)),
        ("PROCESS_BORN_NS", offset_of!(Process, born_ns)),
    ]
}

/// The real runtime: `$UNDERSTUDY_LIB`, or `libunderstudy.so` beside the binary. Without one the test says that it is skipped.
pub fn runtime(test: &str) -> Option<PathBuf> {
    let beside = Path::new(env!("CARGO_BIN_EXE_understudy")).with_file_name("libunderstudy.so");
    library(test, "UNDERSTUDY_LIB", beside, "the runtime")
}

/// The runtime that is built with faults: `$UNDERSTUDY_FAULTY`, or where `make test` builds it. Without one the test says that
/// it is skipped.
pub fn faulty_runtime(test: &str) -> Option<PathBuf> {
    let built = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/faults/release/libunderstudy.so");
    library(test, "UNDERSTUDY_FAULTY", built, "the runtime with faults")
}

fn library(test: &str, variable: &str, otherwise: PathBuf, what: &str) -> Option<PathBuf> {
    let path = std::env::var_os(variable).map_or(otherwise, PathBuf::from);
    if !path.is_file() {
        eprintln!("{test} skipped: {} does not exist; build {what} first", path.display());
    }
    path.canonicalize().ok()
}

/// A state folder and what runs in it.
pub struct Sandbox {
    pub folder: tempfile::TempDir,
    library: PathBuf,
    stand_in: &'static str,
    /// The number of the invariant that the runtime with faults breaks, 0 for none.
    pub breaks: u32,
}

impl Sandbox {
    /// With a runtime that answers as `stand_in` says: `follow`, `silent` (never), `mute` (without death
    /// notices), `die`, `diverge`, `refuse`, `deaf` (the standby outlives its supervisor), `barren` (cannot make
    /// a second standby), `busy` (does not answer requests), `restless` (does not park),
    /// `unparkable` (says that it cannot), `solitary` (children do not join).
    pub fn new(stand_in: &'static str) -> Sandbox {
        Sandbox::with_library(&built().stand_in, stand_in)
    }

    pub fn with_library(library: &Path, stand_in: &'static str) -> Sandbox {
        Sandbox { folder: tempfile::tempdir().unwrap(), library: library.into(), stand_in, breaks: 0 }
    }

    pub fn state(&self) -> PathBuf {
        self.folder.path().join("state")
    }

    pub fn events_path(&self) -> PathBuf {
        self.folder.path().join("events")
    }

    pub fn understudy(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_understudy"));
        command
            .args(arguments)
            .env("UNDERSTUDY_DIR", self.state())
            .env("UNDERSTUDY_LIB", &self.library)
            .env("STAND_IN", self.stand_in)
            .env("UNDERSTUDY_BREAKS", self.breaks.to_string())
            .stdin(Stdio::null());
        command
    }

    pub fn output(&self, arguments: &[&str]) -> Output {
        self.understudy(arguments).output().unwrap()
    }

    /// Starts `run` on the guest with events in the sandbox, and waits for the guest's "ready".
    pub fn start(&self, name: &str, guest: &[&str]) -> Running<'_> {
        self.start_with(&[], name, guest)
    }

    /// The same with more options of `run`.
    pub fn start_with(&self, options: &[&str], name: &str, guest: &[&str]) -> Running<'_> {
        let events = self.events_path();
        let mut command = self.understudy(&["run", "--name", name, "--events", events.to_str().unwrap()]);
        command.args(options).arg("--").arg(&built().guest).args(guest);
        self.running(command)
    }

    /// The same of another program, which waits for the end of its standard input.
    pub fn start_program(&self, options: &[&str], name: &str, program: &Path) -> Running<'_> {
        let events = self.events_path();
        let mut command = self.understudy(&["run", "--name", name, "--events", events.to_str().unwrap()]);
        command.args(options).arg("--").arg(program).stdin(Stdio::piped());
        self.running(command)
    }

    fn running(&self, mut command: Command) -> Running<'_> {
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut running = Running { child: command.spawn().unwrap(), sandbox: self, out: String::new() };
        running.wait_for_output("ready\n");
        running
    }

    pub fn events(&self) -> Vec<Value> {
        let text = std::fs::read_to_string(self.events_path()).unwrap_or_default();
        let whole = text.rsplit_once('\n').map_or("", |(whole, _)| whole);
        whole.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }

    pub fn event(&self, name: &str) -> Option<Value> {
        self.events().into_iter().find(|event| event["event"] == name)
    }

    pub fn wait_for_event(&self, name: &str) -> Value {
        wait_for(|| self.event(name), &format!("event {name}"))
    }

    /// Waits until `events` of this name are there; the last of them.
    pub fn wait_for_events(&self, name: &str, count: usize) -> Value {
        let last = || self.events().into_iter().filter(|event| event["event"] == name).nth(count - 1);
        wait_for(last, &format!("{count} events {name}"))
    }

    /// `status --json`, and the one group in it.
    pub fn group(&self) -> Value {
        let out = self.output(&["status", "--json"]);
        assert!(out.status.success());
        let status: Value = serde_json::from_slice(&out.stdout).unwrap();
        assert_eq!(status["groups"].as_array().unwrap().len(), 1, "{status}");
        status["groups"][0].clone()
    }

    /// Nothing is left: no group's folder, no process that knows this sandbox. How groups have ended is kept.
    pub fn assert_clean(&self) {
        let mut left: Vec<_> = std::fs::read_dir(self.state()).into_iter().flatten().flatten().collect();
        let stays = [us_supervisor::ended::FOLDER, us_supervisor::races::KNOWN];
        left.retain(|entry| !stays.iter().any(|name| entry.file_name() == *name));
        assert!(left.is_empty(), "{left:?}");
        self.await_processes();
    }

    /// Waits until no process knows this sandbox.
    pub fn await_processes(&self) {
        wait_for(|| self.processes().is_empty().then_some(()), "every process of the group to end");
    }

    /// Living processes whose environment names this sandbox.
    pub fn processes(&self) -> Vec<u32> {
        let needle = self.state().to_string_lossy().into_owned();
        let entries = std::fs::read_dir("/proc").unwrap().flatten();
        let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
        pids.filter(|pid| is_alive(*pid))
            .filter(|pid: &u32| {
                let environment = std::fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
                String::from_utf8_lossy(&environment).contains(&needle)
            })
            .collect()
    }
}

impl Drop for Sandbox {
    fn drop(&mut self) {
        // After a failed assertion: end what the test left, by pid.
        for pid in self.processes() {
            kill(pid, rustix::process::Signal::KILL);
        }
    }
}

/// A group being run.
pub struct Running<'a> {
    pub child: Child,
    sandbox: &'a Sandbox,
    pub out: String,
}

impl Running<'_> {
    /// Reads the guest's output until it ends with `text`.
    pub fn wait_for_output(&mut self, text: &str) {
        let out = self.child.stdout.as_mut().unwrap();
        let from = self.out.len();
        while !self.out[from..].ends_with(text) {
            let mut byte = [0];
            assert_eq!(out.read(&mut byte).unwrap(), 1, "the output ended: {:?}", self.out);
            self.out.push(byte[0] as char);
        }
    }

    /// Waits for the end; exit code and stderr.
    pub fn finish(mut self) -> (Option<i32>, String) {
        let status = wait_for(|| self.child.try_wait().unwrap(), "run to end");
        let mut said = String::new();
        self.child.stderr.take().unwrap().read_to_string(&mut said).unwrap();
        (status.code(), said)
    }
}

impl Drop for Running<'_> {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

pub fn wait_for<T>(mut look: impl FnMut() -> Option<T>, what: &str) -> T {
    let begun = Instant::now();
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(begun.elapsed() < PATIENCE, "waited in vain for {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

pub fn kill(pid: u32, signal: rustix::process::Signal) {
    if let Some(pid) = rustix::process::Pid::from_raw(pid as i32) {
        let _ = rustix::process::kill_process(pid, signal);
    }
}

pub fn is_alive(pid: u32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit_once(") ").is_some_and(|(_, rest)| !rest.starts_with('Z') && !rest.starts_with('X'))
}

pub fn pid(value: &Value) -> u32 {
    value.as_u64().unwrap() as u32
}

pub fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Compares with `golden/<name>`; `UPDATE_GOLDEN=1` writes it.
pub fn golden(name: &str, found: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden").join(name);
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        std::fs::write(&path, found).unwrap();
    }
    let expected = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(expected == found, "{name} differs; UPDATE_GOLDEN=1 writes it. Found:\n{found}");
}

/// A terminal of this many columns: both its ends.
pub fn terminal(columns: u16) -> (std::os::fd::OwnedFd, std::os::fd::OwnedFd) {
    use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
    let ours = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
    grantpt(&ours).unwrap();
    unlockpt(&ours).unwrap();
    let name = ptsname(&ours, Vec::new()).unwrap();
    let flags = rustix::fs::OFlags::RDWR | rustix::fs::OFlags::NOCTTY;
    let theirs = rustix::fs::open(&name, flags, rustix::fs::Mode::empty()).unwrap();
    let size = rustix::termios::Winsize { ws_row: 24, ws_col: columns, ws_xpixel: 0, ws_ypixel: 0 };
    rustix::termios::tcsetwinsize(&theirs, size).unwrap();
    (ours, theirs)
}
