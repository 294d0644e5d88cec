//! Other versions of the runtime in a program that runs, and what its clients see.

mod common;

use std::io::{BufRead, BufReader, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use common::{Sandbox, compile, kill, pid, runtime, text};
use rustix::process::Signal;

const UPGRADES: usize = 20;

/// Another version of the same code: its build id is another one.
fn other_version(library: &Path, folder: &Path, number: u8) -> PathBuf {
    let mut bytes = std::fs::read(library).unwrap();
    let mark = bytes.windows(4).position(|window| window == b"GNU\0").unwrap();
    bytes[mark + 4] = number;
    let path = folder.join(format!("version{number}.so"));
    std::fs::write(&path, bytes).unwrap();
    path
}

/// Lets the clients end also where something is not as it should be, which would not be said before.
struct AtEnd<'a>(&'a AtomicBool);

impl Drop for AtEnd<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Sends one number after the other and compares each answer, until it is told to stop. How many there were.
fn count(port: u16, stop: &AtomicBool) -> u64 {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    let mut answers = BufReader::new(stream.try_clone().unwrap());
    for number in 0.. {
        let line = format!("{number}\n");
        stream.write_all(line.as_bytes()).unwrap();
        let mut answer = String::new();
        answers.read_line(&mut answer).unwrap();
        assert_eq!(answer, line);
        if stop.load(Ordering::Relaxed) {
            return number;
        }
    }
    0
}

#[test]
fn no_client_notices_twenty_upgrades() {
    let Some(library) = runtime("no_client_notices_twenty_upgrades") else { return };
    let sandbox = Sandbox::with_library(&library, "");
    let versions = [1, 2].map(|number| other_version(&library, sandbox.folder.path(), number));
    let server = compile("upgraded.c", "upgraded", &["-pthread"]);
    let running = sandbox.start_program(&[], "g", &server);
    let protected = sandbox.wait_for_event("protected");
    let port: u16 = running.out.lines().next().unwrap().parse().unwrap();
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let _end = AtEnd(&stop);
        let clients: Vec<_> = (0..3).map(|_| scope.spawn(|| count(port, &stop))).collect();
        let mut runtimes = std::collections::BTreeSet::new();
        for round in 0..UPGRADES {
            let version = versions[round % 2].to_str().unwrap();
            let done = sandbox.output(&["upgrade", "g", "--library", version]);
            assert!(done.status.success(), "{}", text(&done.stderr));
            sandbox.wait_for_events("recloned", round + 1);
            runtimes.insert(sandbox.group()["processes"][0]["runtime"].to_string());
        }
        assert_eq!(runtimes.len(), 2, "{runtimes:?}");
        // Nothing of the program has moved, and the last version's copy takes over as any does.
        let primary = pid(&sandbox.group()["processes"][0]["primary"]["pid"]);
        assert_eq!(primary, pid(&protected["primary"]));
        kill(primary, Signal::KILL);
        sandbox.wait_for_event("promoted");
        std::thread::sleep(Duration::from_millis(100));
        stop.store(true, Ordering::Relaxed);
        for client in clients {
            assert!(client.join().unwrap() > 0);
        }
    });
    let group = sandbox.group();
    assert_eq!(group["divergences_total"], 0);
    assert_eq!(group["reclones"][0]["reason"], "upgrade");
    kill(running.child.id(), Signal::TERM);
    running.finish();
}

#[test]
fn what_cannot_take_its_place_is_refused_and_nothing_happens() {
    let test = "what_cannot_take_its_place_is_refused_and_nothing_happens";
    let Some(library) = runtime(test) else { return };
    let sandbox = Sandbox::with_library(&library, "");
    let folder = sandbox.folder.path();
    let running = sandbox.start("g", &["wait"]);
    sandbox.wait_for_event("protected");
    let refused = |library: &Path, why: &str| {
        let done = sandbox.output(&["upgrade", "g", "--library", library.to_str().unwrap()]);
        assert_eq!(done.status.code(), Some(1));
        assert!(text(&done.stderr).contains(why), "{}", text(&done.stderr));
    };
    refused(&common::built().stand_in, "it is no runtime");
    let whole = std::fs::read(&library).unwrap();
    let cut = folder.join("cut.so");
    for part in 0..16 {
        std::fs::write(&cut, &whole[..whole.len() * part / 16]).unwrap();
        refused(&cut, "it is no runtime");
    }
    // The sum of how its data is laid out stands behind its version.
    let changed = |from: &[u8], to: &[u8]| {
        let mut bytes = std::fs::read(other_version(&library, folder, 9)).unwrap();
        let at = bytes.windows(from.len()).position(|window| window == from).unwrap();
        bytes[at..at + to.len()].copy_from_slice(to);
        let path = folder.join("changed.so");
        std::fs::write(&path, bytes).unwrap();
        path
    };
    let about = format!("{} ", env!("CARGO_PKG_VERSION"));
    let other = format!("{about}zzzz");
    refused(&changed(about.as_bytes(), other.as_bytes()), "laid out in another way");
    let older = about.replacen(|digit: char| digit.is_ascii_digit() && digit != '0', "0", 1);
    refused(&changed(about.as_bytes(), older.as_bytes()), "is older than");
    let same = sandbox.output(&["upgrade", "g", "--library", library.to_str().unwrap()]);
    assert!(text(&same.stdout).contains("already"), "{}", text(&same.stdout));
    let group = sandbox.group();
    assert_eq!((&group["state"], &group["reclones_total"]), (&"protected".into(), &0.into()));
    kill(running.child.id(), Signal::TERM);
    assert_eq!(running.finish().0, Some(7));
    sandbox.assert_clean();
}
