//! `record` and `replay` with the real runtime: `$UNDERSTUDY_LIB`, or `libunderstudy.so` beside the binary. Without one
//! the tests say so and check nothing.

mod common;

use std::io::{BufRead, BufReader, Read};
use std::path::Path;
use std::process::{Command, Output, Stdio};

use common::{Sandbox, built, is_alive, kill, pid, runtime, text, wait_for};
use recording::{Events, Item, Reader, Writer};
use rustix::process::{Pid, Resource, Rlimit, Signal};
use serde_json::Value;
use us_abi::EventKind;

fn sandbox(test: &str) -> Option<Sandbox> {
    runtime(test).map(|library| Sandbox::with_library(&library, ""))
}

/// The program to record, as a string.
fn program() -> &'static str {
    built().recorded.to_str().unwrap()
}

/// A file in the sandbox, outside the state folder.
fn place(sandbox: &Sandbox, name: &str) -> String {
    sandbox.folder.path().join(name).to_str().unwrap().into()
}

fn record(sandbox: &Sandbox, file: &str, command: &[&str]) -> Output {
    sandbox.output(&[&["record", "-o", file, "--"], command].concat())
}

fn replay(sandbox: &Sandbox, arguments: &[&str]) -> Output {
    sandbox.output(&[&["replay"], arguments].concat())
}

fn said(out: &Output) -> (Option<i32>, String, String) {
    (out.status.code(), text(&out.stdout), text(&out.stderr))
}

/// Records `command`, which ends with `code`, and replays it: several times, and several at the same time.
fn comes_back(test: &str, code: i32, command: &[&str]) {
    let Some(sandbox) = sandbox(test) else { return };
    let file = place(&sandbox, "r");
    let recorded = said(&record(&sandbox, &file, command));
    assert_eq!(recorded.0, Some(code), "{recorded:?}");
    assert!(!recorded.1.is_empty(), "{recorded:?}");
    always(&sandbox, &file, &recorded);
}

/// Every replay of `file` says what was said when it was recorded.
fn always(sandbox: &Sandbox, file: &str, recorded: &(Option<i32>, String, String)) {
    for _ in 0..3 {
        assert_eq!(&said(&replay(sandbox, &[file])), recorded);
    }
    let piped =
        || sandbox.understudy(&["replay", file]).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn();
    let together: Vec<_> = (0..4).map(|_| piped().unwrap()).collect();
    for one in together {
        assert_eq!(&said(&one.wait_with_output().unwrap()), recorded);
    }
    sandbox.assert_clean();
}

#[test]
fn a_pipeline() {
    let script = format!("{} lines 50 | sort -r | head -n 20; {} exit 3 | cat; exit 5", program(), program());
    comes_back("a_pipeline", 5, &["sh", "-c", &script]);
}

#[test]
fn threads() {
    comes_back("threads", 0, &[program(), "threads"]);
}

#[test]
fn an_exec() {
    let script = format!("echo before; exec {} exit 3", program());
    comes_back("an_exec", 3, &["sh", "-c", &script]);
}

#[test]
fn an_exec_of_itself() {
    comes_back("an_exec_of_itself", 0, &[program(), "self"]);
}

#[test]
fn an_exit_code() {
    comes_back("an_exit_code", 3, &[program(), "exit", "3"]);
}

#[test]
fn a_program_that_kills_itself() {
    comes_back("a_program_that_kills_itself", 137, &[program(), "die", "9"]);
}

#[test]
fn an_abort() {
    comes_back("an_abort", 134, &[program(), "die", "6"]);
}

#[test]
fn a_crash() {
    comes_back("a_crash", 139, &[program(), "crash"]);
}

#[test]
fn a_program_that_is_killed() {
    let Some(sandbox) = sandbox("a_program_that_is_killed") else { return };
    let (file, events) = (place(&sandbox, "r"), place(&sandbox, "events"));
    for signal in [Signal::KILL, Signal::SEGV] {
        let mut command =
            sandbox.understudy(&["record", "-o", &file, "--events", &events, program(), "sleep"]);
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let program = pid(&sandbox.wait_for_event("started")["primary"]);
        // Killed in the write itself, it may have been read and not been logged: in doubt, and no replay makes it.
        wait_for(|| sleeps(program).then_some(()), "the program to sleep");
        kill(program, signal);
        let out = child.wait_with_output().unwrap();
        let code = 128 + signal.as_raw();
        assert_eq!(out.status.code(), Some(code), "{}", text(&out.stderr));
        always(&sandbox, &file, &(Some(code), line, String::new()));
        std::fs::remove_file(&events).unwrap();
        std::fs::remove_file(&file).unwrap();
    }
}

fn sleeps(pid: u32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    stat.rsplit_once(") ").is_some_and(|(_, rest)| rest.starts_with('S'))
}

// ---- Files that are not whole, not there, or not ours ----

/// A recording of several chunks, and what it said.
fn long_one(sandbox: &Sandbox, file: &str) -> String {
    let out = record(sandbox, file, &[program(), "lines", "100"]);
    assert_eq!(out.status.code(), Some(0), "{}", text(&out.stderr));
    text(&out.stdout)
}

/// Replays the beginning of what had `whole` as its output; says why it ends, which has `why` in it.
fn begins(sandbox: &Sandbox, file: &str, whole: &str, why: &str) {
    let (code, out, error) = said(&replay(sandbox, &[file]));
    assert_eq!(code, Some(125), "{error}");
    assert!(whole.starts_with(&out) && out.len() < whole.len() && !out.is_empty(), "{out}");
    assert!(error.contains(file) && error.contains(why), "{error}");
}

#[test]
fn what_is_not_whole_is_replayed_up_to_there() {
    let Some(sandbox) = sandbox("what_is_not_whole_is_replayed_up_to_there") else { return };
    let (file, broken) = (place(&sandbox, "r"), place(&sandbox, "broken"));
    let whole = long_one(&sandbox, &file);
    let bytes = std::fs::read(&file).unwrap();
    let middle = bytes.len() * 3 / 5;
    std::fs::write(&broken, &bytes[..middle]).unwrap();
    begins(&sandbox, &broken, &whole, "unfinished: ends at byte ");
    let mut bytes = bytes;
    bytes[middle] ^= 4;
    std::fs::write(&broken, &bytes).unwrap();
    begins(&sandbox, &broken, &whole, "damaged at byte ");
    sandbox.assert_clean();
}

/// The last words of a recording, or of one of its processes, before it goes on unrecorded.
#[test]
fn a_log_that_ends_before_its_process_says_so() {
    let Some(sandbox) = sandbox("a_log_that_ends_before_its_process_says_so") else { return };
    let file = place(&sandbox, "r");
    let script = format!("{} refused; echo $?", program());
    for command in [&[program(), "refused"][..], &["sh", "-c", &script]] {
        let (code, out, error) = said(&record(&sandbox, &file, command));
        assert!(
            code == Some(if command.len() == 2 { 5 } else { 0 }) && out.contains("behind it\n"),
            "{error}"
        );
        let why = "system call ioperm cannot be replayed";
        assert!(error.contains(&format!(" ends here: {why}")), "{error}");
        let found: Value =
            serde_json::from_str(&text(&sandbox.output(&["inspect", "--json", &file]).stdout)).unwrap();
        assert_eq!((&found["complete"], &found["cut"][0]["why"]), (&false.into(), &why.into()));
        let (code, _, error) = said(&replay(&sandbox, &[&file]));
        assert_eq!(code, Some(125), "{error}");
        assert!(error.contains(&format!(" ends before it did: {why}")), "{error}");
        std::fs::remove_file(&file).unwrap();
    }
    sandbox.assert_clean();
}

/// What a child of vfork's stores is not in the log: the replay ends of it, and is not taken for the recording.
#[test]
fn a_replay_that_ends_otherwise_says_so() {
    let Some(sandbox) = sandbox("a_replay_that_ends_otherwise_says_so") else { return };
    let file = place(&sandbox, "r");
    assert_eq!(record(&sandbox, &file, &[program(), "vfork"]).status.code(), Some(4));
    let (code, _, error) = said(&replay(&sandbox, &[&file]));
    assert_eq!(code, Some(125), "{error}");
    assert!(error.contains(" ended with 139, the recording with 4"), "{error}");
    sandbox.assert_clean();
}

/// The recording at `from` with its events and ends changed.
fn changed(from: &str, to: &str, event: impl Fn(u8, u16, &mut [u8]), status: impl Fn(i32) -> i32) {
    let mut reader = Reader::open(Path::new(from)).unwrap();
    let mut writer = Writer::create_timeless(Path::new(to), &reader.header().clone()).unwrap();
    while let Some(item) = reader.next().unwrap() {
        match item {
            Item::Image(image) => writer.image(&image).unwrap(),
            Item::Events { image, slot, mut bytes } => {
                let sizes: Vec<_> = Events::new(&bytes).map(|one| (one.size(), one.header)).collect();
                let mut at = 0;
                for (size, header) in sizes {
                    event(header.kind, header.call, &mut bytes[at..at + size]);
                    at += size;
                }
                writer.events(image, slot, &bytes).unwrap();
            }
            Item::End { image, status: ended, facts } => writer.end(image, status(ended), &facts).unwrap(),
            Item::Complete(_) => {}
        }
    }
    writer.finish().unwrap();
}

/// The log of one thread ends before that of the others, as where the recorder was killed between two rings: what follows from
/// what is missing cannot be replayed, and that is no other way.
#[test]
fn what_is_cut_off_between_two_threads_replays_to_its_end() {
    let Some(sandbox) = sandbox("what_is_cut_off_between_two_threads_replays_to_its_end") else { return };
    let (file, other) = (place(&sandbox, "r"), place(&sandbox, "other"));
    said(&record(&sandbox, &file, &[program(), "threads"]));
    let mut all = 0;
    let mut reader = Reader::open(Path::new(&file)).unwrap();
    while let Some(item) = reader.next().unwrap() {
        if let Item::Events { slot: 1, bytes, .. } = item {
            all += Events::new(&bytes).count();
        }
    }
    let mut left = all / 2;
    let mut reader = Reader::open(Path::new(&file)).unwrap();
    let mut writer = Writer::create_timeless(Path::new(&other), &reader.header().clone()).unwrap();
    while let Some(item) = reader.next().unwrap() {
        match item {
            Item::Image(image) => writer.image(&image).unwrap(),
            Item::Events { image, slot: 1, bytes } => {
                let kept: Vec<usize> = Events::new(&bytes).take(left).map(|one| one.size()).collect();
                left -= kept.len();
                writer.events(image, 1, &bytes[..kept.iter().sum()]).unwrap();
            }
            Item::Events { image, slot, bytes } => writer.events(image, slot, &bytes).unwrap(),
            Item::End { .. } | Item::Complete(_) => {}
        }
    }
    drop(writer);
    let (code, _, words) = said(&replay(&sandbox, &["--force", &other]));
    assert!(words.contains("replayed to its end, but it is incomplete"), "{words}");
    assert_eq!(code, Some(125), "{words}");
    sandbox.assert_clean();
}

/// A recording that is sound as a file, of a program that did something else: written to another place, written other
/// bytes, ended with another code.
#[test]
fn what_a_recorded_program_did_is_compared() {
    let Some(sandbox) = sandbox("what_a_recorded_program_did_is_compared") else { return };
    let (file, other) = (place(&sandbox, "r"), place(&sandbox, "other"));
    let recorded = said(&record(&sandbox, &file, &[program(), "exit", "3"]));
    changed(&file, &other, |_, _, _| {}, |status| status);
    assert_eq!(said(&replay(&sandbox, &["--force", &other])), recorded);
    let in_call = |nr: u16, at: usize| {
        move |kind: u8, call: u16, bytes: &mut [u8]| {
            if kind != EventKind::Return as u8 && call == nr && bytes.len() >= 32 {
                bytes[16 + at] ^= 1;
            }
        }
    };
    const WRITE: u16 = 1;
    const EXIT_GROUP: u16 = 231;
    for (nr, at) in [(WRITE, 0), (WRITE, 4), (WRITE, 8), (EXIT_GROUP, 8)] {
        std::fs::remove_file(&other).unwrap();
        changed(&file, &other, in_call(nr, at), |status| status);
        let (code, _, error) = said(&replay(&sandbox, &["--force", &other]));
        assert_eq!(code, Some(125), "{nr} {at} {error}");
        assert!(error.contains("went another way than the recording"), "{nr} {at} {error}");
    }
    std::fs::remove_file(&other).unwrap();
    changed(&file, &other, |_, _, _| {}, |_| 7 << 8);
    let (code, _, error) = said(&replay(&sandbox, &["--force", &other]));
    assert_eq!(code, Some(125), "{error}");
    assert!(error.contains(" ended with 3, the recording with 7"), "{error}");
    sandbox.assert_clean();
}

#[test]
fn what_is_no_recording() {
    let Some(sandbox) = sandbox("what_is_no_recording") else { return };
    let file = place(&sandbox, "r");
    let missing = said(&replay(&sandbox, &[&file]));
    assert_eq!(missing.0, Some(125), "{missing:?}");
    assert!(missing.2.contains(&file) && missing.2.contains("No such file"), "{missing:?}");
    for bytes in [&b""[..], b"\x7fELF and more than sixteen bytes"] {
        std::fs::write(&file, bytes).unwrap();
        let none = said(&replay(&sandbox, &[&file]));
        assert_eq!(none.0, Some(125), "{none:?}");
        assert!(none.2.contains(&format!("{file}: not a recording")), "{none:?}");
    }
    sandbox.assert_clean();
}

#[test]
fn a_file_that_cannot_be_made() {
    let Some(sandbox) = sandbox("a_file_that_cannot_be_made") else { return };
    let (there, ran) = (place(&sandbox, "there"), place(&sandbox, "ran"));
    std::fs::write(&there, "precious").unwrap();
    let nowhere = place(&sandbox, "no/such/folder/r");
    for (file, why) in [(&there, "already exists"), (&nowhere, "No such file or directory")] {
        let out = said(&record(&sandbox, file, &["touch", &ran]));
        // As when nothing can be protected: never what the program itself could have ended with.
        assert_eq!(out.0, Some(125), "{out:?}");
        assert!(out.2.contains(file) && out.2.contains(why), "{out:?}");
        assert!(!Path::new(&ran).exists());
    }
    assert_eq!(std::fs::read(&there).unwrap(), b"precious");
    // A program that is not there leaves no file.
    let file = place(&sandbox, "r");
    assert_eq!(record(&sandbox, &file, &["/no/such/program"]).status.code(), Some(127));
    assert!(!Path::new(&file).exists());
    sandbox.assert_clean();
}

#[test]
fn another_program_is_refused() {
    let Some(sandbox) = sandbox("another_program_is_refused") else { return };
    let (file, copy) = (place(&sandbox, "r"), place(&sandbox, "copy"));
    std::fs::copy(program(), &copy).unwrap();
    assert_eq!(record(&sandbox, &file, &[&copy, "exit", "3"]).status.code(), Some(3));
    std::fs::remove_file(&copy).unwrap();
    let gone = said(&replay(&sandbox, &[&file]));
    assert_eq!((gone.0, gone.1.as_str()), (Some(125), ""));
    assert!(gone.2.contains(&format!("{copy} does not exist here")), "{gone:?}");
    std::fs::copy(&built().guest, &copy).unwrap();
    let other = said(&replay(&sandbox, &[&file]));
    assert_eq!((other.0, other.1.as_str()), (Some(125), ""));
    assert!(other.2.contains(&format!("{copy} is another file: build id ")), "{other:?}");
    sandbox.assert_clean();
}

#[test]
fn until_an_event() {
    let Some(sandbox) = sandbox("until_an_event") else { return };
    let file = place(&sandbox, "r");
    let whole = long_one(&sandbox, &file);
    let found: Value = serde_json::from_slice(&sandbox.output(&["inspect", "--json", &file]).stdout).unwrap();
    let events = found["events"].as_u64().unwrap();
    let half = (events / 2).to_string();
    let (code, out, error) = said(&replay(&sandbox, &["--until", &half, &file]));
    assert_eq!(code, Some(0), "{error}");
    assert!(whole.starts_with(&out) && out.len() < whole.len() && !out.is_empty(), "{out}");
    assert!(error.contains(&format!("stopped before event {half}")), "{error}");
    // More than there are: all of them.
    let more = (events + 1).to_string();
    let told = format!("understudy: {file}: ends at event {events}: there is no event {more}\n");
    assert_eq!(said(&replay(&sandbox, &["--until", &more, &file])), (Some(0), whole, told));
    sandbox.assert_clean();
}

/// Wherever it stops: an event of one thread may follow from one of another that is behind that place in the file.
#[test]
fn until_any_event_of_several_threads() {
    let Some(sandbox) = sandbox("until_any_event_of_several_threads") else { return };
    let file = place(&sandbox, "r");
    let (code, whole, error) = said(&record(&sandbox, &file, &[program(), "threads"]));
    assert_eq!(code, Some(0), "{error}");
    let found: Value = serde_json::from_slice(&sandbox.output(&["inspect", "--json", &file]).stdout).unwrap();
    let events = found["events"].as_u64().unwrap();
    for event in [3, 7, 11, 13, 17].map(|part| events * part / 20) {
        let event = event.to_string();
        let (code, out, error) = said(&replay(&sandbox, &["--until", &event, &file]));
        assert_eq!(code, Some(0), "{event} of {events}: {error}");
        assert!(whole.starts_with(&out), "{event}: {out}");
    }
    sandbox.assert_clean();
}

// ---- Signals, debuggers, limits ----

#[test]
fn signals_reach_the_recorded_program() {
    let Some(sandbox) = sandbox("signals_reach_the_recorded_program") else { return };
    let guest = built().guest.to_str().unwrap();
    for (signal, number) in [(Signal::INT, 2), (Signal::TERM, 15)] {
        let file = place(&sandbox, &format!("r{number}"));
        let mut command = sandbox.understudy(&["record", "-o", &file, "--", guest, "wait"]);
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let mut out = BufReader::new(child.stdout.take().unwrap());
        let mut whole = String::new();
        out.read_line(&mut whole).unwrap();
        kill(child.id(), signal);
        out.read_to_string(&mut whole).unwrap();
        let code = child.wait().unwrap().code();
        assert_eq!((code, whole.as_str()), (Some(7), format!("ready\nsignal {number}\n").as_str()));
        always(&sandbox, &file, &(code, whole, String::new()));
    }
}

#[test]
fn signals_end_a_replay() {
    let Some(sandbox) = sandbox("signals_end_a_replay") else { return };
    let file = place(&sandbox, "r");
    let script = format!("for i in 1 2; do {} threads & done; wait", program());
    let whole = record(&sandbox, &file, &["sh", "-c", &script]).stdout;
    for signal in [Signal::INT, Signal::TERM] {
        // Nobody reads: it waits in the middle for room in the pipe.
        let (reader, writer) = std::io::pipe().unwrap();
        rustix::pipe::fcntl_setpipe_size(&writer, 4096).unwrap();
        let mut command = sandbox.understudy(&["replay", &file]);
        let mut child = command.stdout(writer).stderr(Stdio::piped()).spawn().unwrap();
        drop(command);
        // One of the two may have had all its turns before the other.
        wait_for(|| (sandbox.processes().len() >= 3).then_some(()), "the replay's processes");
        kill(child.id(), signal);
        wait_for(|| child.try_wait().unwrap(), "the replay to end");
        let (code, _, error) = said(&child.wait_with_output().unwrap());
        assert_eq!(code, Some(125));
        assert!(error.contains("interrupted"), "{error}");
        sandbox.assert_clean();
        drop(reader);
    }
    // Whoever reads late still gets everything.
    let mut command = sandbox.understudy(&["replay", &file]);
    let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    std::thread::sleep(std::time::Duration::from_millis(500));
    assert_eq!(child.wait_with_output().unwrap().stdout.len(), whole.len());
    sandbox.assert_clean();
}

/// A program whose last words nobody has read yet when its log has come to its end.
#[test]
fn a_slow_reader_gets_everything() {
    let Some(sandbox) = sandbox("a_slow_reader_gets_everything") else { return };
    let file = place(&sandbox, "r");
    let script = "head -c 200000 /dev/zero; kill -9 $$";
    let out = record(&sandbox, &file, &["sh", "-c", script]);
    assert_eq!((out.status.code(), out.stdout.len()), (Some(137), 200_000));
    let mut command = sandbox.understudy(&["replay", &file]);
    let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    std::thread::sleep(std::time::Duration::from_secs(4));
    let out = child.wait_with_output().unwrap();
    assert_eq!((out.status.code(), out.stdout.len()), (Some(137), 200_000), "{}", text(&out.stderr));
    sandbox.assert_clean();
}

#[test]
fn a_debugger_stops_at_the_same_place() {
    let test = "a_debugger_stops_at_the_same_place";
    let Some(sandbox) = sandbox(test) else { return };
    if Command::new("gdb").arg("--version").stdout(Stdio::null()).status().is_err() {
        eprintln!("{test} skipped: gdb is not installed");
        return;
    }
    let file = place(&sandbox, "r");
    let out = record(&sandbox, &file, &[program(), "crash"]);
    assert_eq!(out.status.code(), Some(139));
    let commands = ["-batch", "-ex", "break crash", "-ex", "continue", "-ex", "p where", "-ex", "continue"];
    let commands = [&["--gdb", &file, "--"], &commands[..], &["-ex", "bt"]].concat();
    let mut seen = Vec::new();
    for _ in 0..2 {
        let (_, out, error) = said(&replay(&sandbox, &commands));
        assert!(out.contains(text(&record_line(&file, &sandbox)).trim()), "{out}{error}");
        for needle in ["Breakpoint 1, crash (where=0x0)", "$1 = (int *) 0x0", "SIGSEGV", "#1 ", "in main"] {
            assert!(out.contains(needle), "no {needle:?}: {out}{error}");
        }
        seen.push(out.lines().filter(|line| line.starts_with('#')).map(String::from).collect::<Vec<_>>());
        sandbox.assert_clean();
    }
    assert_eq!(seen[0], seen[1]);
    // A replay does not die by itself of a signal that was sent: gdb stops there, and does not wait for ever.
    let killed = place(&sandbox, "killed");
    assert_eq!(record(&sandbox, &killed, &[program(), "die", "6"]).status.code(), Some(134));
    let commands = ["--gdb", &killed, "--", "-batch", "-ex", "continue"];
    let (code, out, error) = said(&replay(&sandbox, &commands));
    assert!(
        out.contains("received signal SIGSTOP") && error.contains("was killed by SIGABRT"),
        "{out}{error}"
    );
    assert_eq!(code, Some(0), "{error}");
    sandbox.assert_clean();
}

/// What the recorded program said.
fn record_line(file: &str, sandbox: &Sandbox) -> Vec<u8> {
    replay(sandbox, &[file]).stdout
}

/// A recording that comes to a limit, as on a full disk, costs the recording alone.
#[test]
fn a_full_disk_costs_the_recording_only() {
    let Some(sandbox) = sandbox("a_full_disk_costs_the_recording_only") else { return };
    let file = place(&sandbox, "r");
    let mut command = sandbox.understudy(&["record", "-o", &file, "--", program(), "lines", "1000"]);
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut out = BufReader::new(child.stdout.take().unwrap());
    let mut whole = String::new();
    out.read_line(&mut whole).unwrap();
    // Of the recorder alone. Its segment is there by now, and large.
    let limit = Rlimit { current: Some(4 << 20), maximum: Some(4 << 20) };
    let recorder = Pid::from_raw(child.id() as i32);
    rustix::process::prlimit(recorder, Resource::Fsize, limit).unwrap();
    let begun = std::time::Instant::now();
    out.read_to_string(&mut whole).unwrap();
    let out = child.wait_with_output().unwrap();
    assert_eq!(out.status.code(), Some(0), "{}", text(&out.stderr));
    // It has not waited for room in its rings, which would take the lag timeout of ten seconds.
    assert!(begun.elapsed().as_secs() < 8, "{:?}", begun.elapsed());
    assert_eq!(whole.lines().count(), 1001);
    let error = text(&out.stderr);
    assert!(error.contains("the recording ends here: ") && error.contains(&file), "{error}");
    assert_eq!(error.lines().count(), 1, "{error}");
    assert!(std::fs::metadata(&file).unwrap().len() <= 4 << 20);
    begins(&sandbox, &file, &whole, "unfinished: ends at byte ");
    assert!(!is_alive(recorder.unwrap().as_raw_nonzero().get() as u32));
    sandbox.assert_clean();
}
