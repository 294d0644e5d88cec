//! `inspect`: whole recordings, unfinished ones, damaged ones, and what is none.

mod common;

use std::fs;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use common::{Sandbox, golden, text};
use recording::{Header, How, Image, Writer};
use serde_json::Value;
use us_abi::event::{AFTER_WAIT, EventKind, NO_TICKET, op};

fn event(kind: EventKind, call: u16, ticket: u64, payload: &[u8]) -> Vec<u8> {
    let word = kind as u64 | u64::from(call) << 16 | (payload.len() as u64) << 32;
    let mut bytes = [word.to_le_bytes(), ticket.to_le_bytes()].concat();
    bytes.extend_from_slice(payload);
    bytes.resize(bytes.len().next_multiple_of(16), 0);
    bytes
}

fn call(number: u16, ticket: u64, result: i64, out: &[u8]) -> Vec<u8> {
    let args = [&7i32.to_le_bytes()[..], &[1; 4], &(out.len() as u64).to_le_bytes()].concat();
    let back = [&result.to_le_bytes()[..], &[0; 8], out].concat();
    [event(EventKind::Enter, number, NO_TICKET, &args), event(EventKind::Return, number, ticket, &back)]
        .concat()
}

/// A few of everything, by two processes of which one replaces itself.
fn record(path: &Path) -> Writer {
    let header = Header {
        program: vec![b"server".into(), b"--name=<&\xff>\x1b[2J".into()],
        started_unix_ns: 1_795_183_199_999_000_000,
        understudy: "0.1.0".into(),
        ..Header::default()
    };
    let mut writer = Writer::create_timeless(path, &header).unwrap();
    for (number, parent, how) in
        [(0, None, How::Started), (1, Some(0), How::Forked), (2, Some(1), How::Executed)]
    {
        let pid = if number == 0 { 4711 } else { 4712 };
        writer.image(&Image { number, pid, parent, how, facts: Vec::new() }).unwrap();
    }
    let (read, write, epoll_wait, unknown) = (0, 1, 232, 511);
    let mut main = Vec::new();
    for n in 0..200u64 {
        main.extend(event(EventKind::Mutex, 0, 2 * n, &[]));
        main.extend(event(EventKind::Mutex, AFTER_WAIT, 2 * n + 1, &[]));
        main.extend(event(EventKind::Ordered, op::SEM_POST << 12 | 77, n, &[]));
        main.extend(event(EventKind::Time, 0, 1_795_183_200_000_000_000 + n * n, &[]));
        main.extend(call(epoll_wait, n, 1, &[5; 12]));
        main.extend(call(read, n, 90, &[b'a' + (n % 20) as u8; 90]));
        main.extend(call(write, n, 50, &[]));
    }
    main.extend(event(EventKind::Signal, 15, 7, &[0; 128]));
    main.extend(call(unknown, NO_TICKET, -38, &[]));
    writer.events(0, 0, &main).unwrap();
    let thread =
        [event(EventKind::ThreadStart, 0, NO_TICKET, &[9; 16]), event(EventKind::Barrier, 0, 0, &[])];
    writer.events(0, 1, &thread.concat()).unwrap();
    writer.events(2, 0, &event(EventKind::Time, 0, 5, &[])).unwrap();
    writer.end(2, 0, &[]).unwrap();
    writer.end(0, 9, &[]).unwrap();
    writer
}

struct Case {
    sandbox: Sandbox,
    file: PathBuf,
}

fn case() -> Case {
    let sandbox = Sandbox::new("silent");
    let file = sandbox.folder.path().join("recording");
    Case { sandbox, file }
}

impl Case {
    fn inspect(&self, options: &[&str]) -> std::process::Output {
        self.sandbox.output(&[&["inspect", self.file.to_str().unwrap()], options].concat())
    }

    fn json(&self) -> Value {
        let out = self.inspect(&["--json"]);
        assert_eq!((out.status.code(), text(&out.stderr).as_str()), (Some(0), ""));
        serde_json::from_slice(&out.stdout).unwrap()
    }
}

#[test]
fn a_whole_recording() {
    let case = case();
    record(&case.file).finish().unwrap();
    let picture = case.sandbox.folder.path().join("picture.svg");
    let out = case.inspect(&["--plot", picture.to_str().unwrap()]);
    assert_eq!((out.status.code(), text(&out.stderr).as_str()), (Some(0), ""));
    golden("inspect.txt", &text(&out.stdout));
    golden("inspect.svg", &fs::read_to_string(picture).unwrap());
    golden("inspect.json", &text(&case.inspect(&["--json"]).stdout));
}

/// The fields that scripts rely on.
#[test]
fn the_contract() {
    let case = case();
    record(&case.file).finish().unwrap();
    let found = case.json();
    assert_eq!((&found["version"], &found["complete"]), (&1.into(), &true.into()));
    assert_eq!((&found["processes"], &found["images"], &found["threads"]), (&2.into(), &3.into(), &3.into()));
    assert_eq!(found["program"][0], "server");
    assert!(found["duration_s"].is_f64());
    assert_eq!(found["bytes_file"], case.file.metadata().unwrap().len());
    assert_eq!(
        found["by_call"]["read"],
        serde_json::json!({
            "events": 400, "bytes": 200 * (32 + 16 + 112), "bytes_file": found["by_call"]["read"]["bytes_file"]
        })
    );
    assert_eq!(found["by_call"]["syscall_511"]["events"], 2);
    let classes: Vec<&String> = found["by_class"].as_object().unwrap().keys().collect();
    assert_eq!(classes.len(), us_abi::CLASSES);
    let of = |class: &str| found["by_class"][class]["events"].as_u64().unwrap();
    assert_eq!((of("lock"), of("cond"), of("time"), of("poll"), of("memory")), (401, 200, 201, 400, 0));
    let sum = |table: &str, field: &str| -> u64 {
        found[table].as_object().unwrap().values().map(|count| count[field].as_u64().unwrap()).sum()
    };
    for (field, total) in [("events", "events"), ("bytes", "bytes_raw")] {
        let total = found[total].as_u64().unwrap();
        assert_eq!(sum("by_class", field), total);
        assert_eq!(sum("by_message", field), total);
        assert_eq!(sum("by_call", field) + sum("by_operation", field), total);
    }
    assert!(sum("by_class", "bytes_file") <= case.file.metadata().unwrap().len());
}

#[test]
fn an_unfinished_one() {
    let case = case();
    drop(record(&case.file));
    let length = case.file.metadata().unwrap().len();
    let found = case.json();
    assert_eq!((&found["complete"], &found["broken"]["damaged"]), (&false.into(), &false.into()));
    assert_eq!(found["broken"]["offset"], length);
    assert_eq!(found["events"], 200 * 10 + 1 + 2 + 2 + 1);
    // Cut in the last chunk, it says where the last good one ends.
    fs::File::options().write(true).open(&case.file).unwrap().set_len(length - 1).unwrap();
    let found = case.json();
    assert!(found["broken"]["offset"].as_u64().unwrap() < length - 1);
    let out = case.inspect(&[]);
    assert!(
        text(&out.stdout).contains("\ncomplete: false; unfinished: ends at byte "),
        "{}",
        text(&out.stdout)
    );
}

#[test]
fn a_damaged_one() {
    let case = case();
    record(&case.file).finish().unwrap();
    let file = fs::File::options().read(true).write(true).open(&case.file).unwrap();
    let at = case.file.metadata().unwrap().len() - 60;
    let mut byte = [0];
    file.read_exact_at(&mut byte, at).unwrap();
    file.write_all_at(&[byte[0] ^ 4], at).unwrap();
    let found = case.json();
    assert_eq!((&found["complete"], &found["broken"]["damaged"]), (&false.into(), &true.into()));
    assert!(found["events"].as_u64().unwrap() > 2000);
    let out = case.inspect(&[]);
    assert!(text(&out.stdout).contains("\ncomplete: false; damaged at byte "), "{}", text(&out.stdout));
}

#[test]
fn no_recording_at_all() {
    let case = case();
    let said = |case: &Case| {
        let out = case.inspect(&["--json"]);
        assert_eq!((out.status.code(), text(&out.stdout).as_str()), (Some(1), ""));
        text(&out.stderr)
    };
    assert!(said(&case).contains("No such file"));
    fs::write(&case.file, "hello, this is a text").unwrap();
    let name = case.file.display();
    assert_eq!(
        said(&case),
        format!("understudy: cannot read {name}: not a recording: it does not begin as one\n")
    );
    record(&case.file.with_extension("good"));
    let good = fs::read(case.file.with_extension("good")).unwrap();
    fs::write(&case.file, &good[..30]).unwrap();
    assert!(said(&case).contains("cut off before its first event: nothing can be replayed"));
}
