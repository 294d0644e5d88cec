//! Files that are taken with a checkpoint: what goes on from it finds them as they were at its moment, whatever has become of them.

mod common;

use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::OnceLock;
use std::time::Duration;

use common::{Running, Sandbox, compile, runtime, text};

/// The program of these tests, compiled once.
fn ledgered() -> &'static Path {
    static LEDGERED: OnceLock<PathBuf> = OnceLock::new();
    LEDGERED.get_or_init(|| compile("ledgered.c", "ledgered", &["-O2"]))
}

/// A program with its files, and where its checkpoint goes.
struct Trial<'a> {
    sandbox: &'a Sandbox,
}

impl Trial<'_> {
    fn path(&self, name: &str) -> String {
        self.sandbox.folder.path().join(name).to_str().unwrap().to_owned()
    }

    fn start(&self, more: &[&str]) -> Running<'_> {
        std::fs::create_dir(self.path("files")).unwrap();
        let files = self.path("files");
        let script = self.path("start");
        std::fs::write(
            &script,
            format!("#!/bin/sh\nexec {} {files} {}\n", ledgered().display(), more.join(" ")),
        )
        .unwrap();
        std::fs::set_permissions(&script, std::os::unix::fs::PermissionsExt::from_mode(0o700)).unwrap();
        let running = self.sandbox.start_program(&[], "g", Path::new(&script));
        self.sandbox.wait_for_event("protected");
        running
    }

    /// Takes a checkpoint with files; what it says of them.
    fn take(&self, more: &[&str]) -> serde_json::Value {
        let (file, copies) = (self.path("taken"), self.path("copies"));
        let words = ["checkpoint", "g", "--json", "-o", &file, "--with-files", &copies];
        let done = self.sandbox.output(&[&words[..], more].concat());
        assert!(done.status.success(), "{}", text(&done.stderr));
        serde_json::from_slice(&done.stdout).unwrap()
    }

    /// Goes on from it, for a while, and ends well.
    fn go_on(&self) -> String {
        let (file, copies) = (self.path("taken"), self.path("copies"));
        let mut command =
            self.sandbox.understudy(&["run", "--name", "again", "--from", &file, "--with-files", &copies]);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let mut out = BufReader::new(child.stdout.take().unwrap());
        let mut line = String::new();
        // It begins three logs at least.
        for _ in 0..20 {
            line.clear();
            out.read_line(&mut line).unwrap();
        }
        let done = child.wait_with_output().unwrap();
        assert!(done.status.success(), "{line}{}", text(&done.stderr));
        assert!(line.trim().parse::<u64>().is_ok(), "{line}");
        text(&done.stderr)
    }

    /// What it is refused with, without the files that were taken unless `more` says where they are.
    fn refused(&self, more: &[&str]) -> String {
        let done = self
            .sandbox
            .output(&[&["run", "--name", "again", "--from", &self.path("taken")][..], more].concat());
        assert_eq!(done.status.code(), Some(125), "{}", text(&done.stdout));
        text(&done.stderr)
    }

    fn kill(&self, mut running: Running) {
        let _ = self.sandbox.output(&["stop", "g", "--signal", "KILL"]);
        drop(running.child.stdin.take());
        running.child.wait().unwrap();
    }
}

/// The files go on for a while behind the checkpoint, and the program is killed in the middle of a step.
fn a_trial(name: &str, more: &[&str]) {
    let Some(library) = runtime(name) else { return };
    for wait in [30, 170, 90] {
        let sandbox = Sandbox::with_library(&library, "");
        let trial = Trial { sandbox: &sandbox };
        let running = trial.start(more);
        std::thread::sleep(Duration::from_millis(wait));
        let answer = trial.take(&["--volume", &trial.path("files")]);
        assert!(answer["files"].as_u64() >= Some(3), "{answer}");
        std::thread::sleep(Duration::from_millis(500));
        trial.kill(running);
        let why = trial.refused(&[]);
        assert!(why.contains("is not what it was: --with-files FOLDER puts back"), "{why}");
        let told = trial.go_on();
        assert!(told.contains("as the checkpoint has them; what was there now is in"), "{told}");
        // Once more: nothing of it is used up.
        trial.go_on();
        let kept = PathBuf::from(trial.path("copies")).join("replaced-2");
        assert!(kept.exists());
    }
}

#[test]
fn files_are_those_of_the_moment() {
    a_trial("files_are_those_of_the_moment", &[]);
}

/// Without them there is no checkpoint of such a program, unless it ends there.
#[test]
fn a_file_that_is_written_by_a_mapping_is_that_of_the_moment() {
    a_trial("a_file_that_is_written_by_a_mapping_is_that_of_the_moment", &["mapped"]);
}

/// What the program does not touch is copied while it runs.
#[test]
fn the_program_stands_still_for_what_has_changed_alone() {
    let Some(library) = runtime("the_program_stands_still_for_what_has_changed_alone") else { return };
    let sandbox = Sandbox::with_library(&library, "");
    let trial = Trial { sandbox: &sandbox };
    let running = trial.start(&[]);
    let large = PathBuf::from(trial.path("files")).join("below/large");
    std::fs::create_dir(large.parent().unwrap()).unwrap();
    std::fs::write(&large, vec![7; 32 << 20]).unwrap();
    std::fs::write(large.with_file_name("changed"), "before").unwrap();
    std::os::unix::fs::symlink("large", large.with_file_name("link")).unwrap();
    std::thread::sleep(Duration::from_millis(200));
    let answer = trial.take(&["--volume", &trial.path("files")]);
    assert!(answer["file_bytes"].as_u64() > Some(32 << 20), "{answer}");
    assert!(answer["file_bytes_standing"].as_u64() < Some(1 << 20), "{answer}");
    trial.kill(running);
    std::fs::write(large.with_file_name("changed"), "behind").unwrap();
    std::fs::write(large.with_file_name("new"), "new").unwrap();
    std::fs::remove_file(&large).unwrap();
    std::fs::remove_file(large.with_file_name("link")).unwrap();
    trial.go_on();
    assert_eq!(std::fs::read(large.with_file_name("link")).unwrap(), vec![7; 32 << 20]);
    assert_eq!(std::fs::read(large.with_file_name("changed")).unwrap(), b"before");
    assert!(!large.with_file_name("new").exists());
    // Nothing is lost of what was there.
    let aside =
        PathBuf::from(format!("{}/replaced-1{}", trial.path("copies"), large.parent().unwrap().display()));
    assert_eq!(std::fs::read(aside.join("changed")).unwrap(), b"behind");
    assert_eq!(std::fs::read(aside.join("new")).unwrap(), b"new");
}

#[test]
fn what_cannot_be_put_back_is_refused() {
    let Some(library) = runtime("what_cannot_be_put_back_is_refused") else { return };
    let sandbox = Sandbox::with_library(&library, "");
    let trial = Trial { sandbox: &sandbox };
    let running = trial.start(&[]);
    let asked = |more: &[&str]| {
        let done = sandbox.output(&[&["checkpoint", "g", "-o", &trial.path("none")][..], more].concat());
        assert!(!done.status.success());
        assert!(!Path::new(&trial.path("none")).exists());
        text(&done.stderr)
    };
    let (files, copies) = (trial.path("files"), trial.path("copies"));
    let why = asked(&["--with-files", &files]);
    assert!(why.contains("cannot make"), "{why}");
    let why = asked(&["--with-files", &format!("{files}/copies"), "--volume", &files]);
    assert!(why.contains("of which all is taken"), "{why}");
    assert!(!Path::new(&format!("{files}/copies")).exists());
    let why = asked(&["--with-files", &copies, "--volume", &trial.path("nowhere")]);
    assert!(why.contains("cannot find"), "{why}");
    trial.take(&[]);
    std::thread::sleep(Duration::from_millis(50));
    trial.kill(running);
    let copy = PathBuf::from(format!("{copies}{files}/data.0"));
    let held = std::fs::read(&copy).unwrap();
    std::fs::write(&copy, [&held[..], b"!"].concat()).unwrap();
    let why = trial.refused(&["--with-files", &copies]);
    assert!(why.contains("is not the copy that was taken with it"), "{why}");
    std::fs::write(&copy, &held).unwrap();
    let mut writer = std::fs::OpenOptions::new().append(true).open(format!("{files}/data.0")).unwrap();
    writer.write_all(b"!").unwrap();
    let why = trial.refused(&["--with-files", &copies]);
    assert!(why.contains("somebody has it open to write to it"), "{why}");
    drop(writer);
    // Nothing was moved away so far.
    assert!(!Path::new(&format!("{copies}/replaced-1")).exists());
    let _ = std::fs::remove_file(format!("{files}/journal.0"));
    let mut later = Vec::new();
    for entry in std::fs::read_dir(&files).unwrap() {
        later.push(entry.unwrap().path());
    }
    // Only what it had open is there again, so what it made later is taken away by hand.
    later.retain(|path| !Path::new(&format!("{copies}{}", path.display())).exists());
    later.iter().for_each(|path| std::fs::remove_file(path).unwrap());
    trial.go_on();
}
