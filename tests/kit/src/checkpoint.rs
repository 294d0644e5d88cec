//! One guest of which a checkpoint is taken, and that goes on from it.

use std::ffi::OsString;
use std::fs::{self, OpenOptions};
use std::io::Read;
use std::path::Path;
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};

use crate::events;
use crate::guest::Guest;
use crate::judge;
use crate::process::Sink;
use crate::strike::protected_command;
use crate::trial::{Reference, Stage, Verdict, group_name, launch, program, verdict};

/// What has become of it.
pub enum Checkpointed {
    /// It went on from the checkpoint, or ended before one was taken: judged.
    Judged(Verdict),
    /// There is no checkpoint of it, for this reason; it went on without one.
    Refused(String),
}

impl Stage<'_> {
    /// Runs the guest under protection, takes a checkpoint after so long, ends it there, and goes on from the checkpoint: both together
    /// print what the guest prints, and the second ends as it ends.
    pub fn checkpointed(&self, guest: &Guest, reference: &Reference, at: Duration) -> Result<Checkpointed> {
        let understudy = self.understudy.expect("checkpoints are planned only with a binary");
        let dir = self.place.fresh(&guest.name)?;
        let group = group_name(&dir);
        let (events_file, checkpoint) = (dir.join("events"), dir.join("checkpoint"));
        let command = protected_command(understudy, 1, &group, &events_file, program(guest));
        // What a pipe has taken is not there a second time.
        let tree = launch(guest, command, &dir, Sink::File)?;
        events::await_protected(&events_file);
        let take = |how: &[&str], file: &Path| {
            let mut command = Command::new(understudy);
            let taken = command.args(["checkpoint", "--json", &group]).args(how).arg("-o").arg(file).output();
            taken.context("taking a checkpoint")
        };
        // Every other time there is one before, behind which the program goes on as if nothing had been: what it prints is
        // judged all the same. Not always: many a guest has ended by then.
        thread::sleep(at / 2);
        if at.as_micros().is_multiple_of(2) {
            take(&[], &dir.join("before"))?;
        }
        thread::sleep(at / 2);
        let taken = take(&["--stop"], &checkpoint)?;
        let ended = tree.finish(self.limit)?;
        if !taken.status.success() {
            return self.without(guest, reference, (dir, ended), &taken.stderr);
        }
        let answer: serde_json::Value = serde_json::from_slice(&taken.stdout).context("an answer")?;
        for (lost, why) in [
            ("connections_reset", "its connections are reset where it goes on"),
            ("sockets_emptied", "datagrams wait at its sockets, and are lost where it goes on"),
        ] {
            if answer[lost] != 0 {
                fs::remove_dir_all(&dir)?;
                return Ok(Checkpointed::Refused(why.into()));
            }
        }
        let again = ["run", "-q", "--name", &group, "--from"].map(OsString::from);
        let stdout = OpenOptions::new().read(true).write(true).open(dir.join("stdout"))?;
        let mut child = Command::new(understudy)
            .args(again)
            .arg(&checkpoint)
            .current_dir(dir.join("tmp"))
            .stdin(Stdio::null())
            .stdout(stdout.try_clone()?)
            .stderr(fs::File::create(dir.join("stderr"))?)
            .spawn()?;
        let begun = Instant::now();
        let status = loop {
            match child.try_wait()? {
                Some(status) => break Some(status),
                None if begun.elapsed() > self.limit => {
                    let _ = Command::new(understudy).args(["stop", "--signal", "KILL", &group]).output();
                    child.wait()?;
                    break None;
                }
                None => thread::sleep(Duration::from_millis(2)),
            }
        };
        let mut all = crate::process::Ended { status, ..ended };
        all.stdout.clear();
        fs::File::open(dir.join("stdout"))?.read_to_end(&mut all.stdout)?;
        let mut complaints = judge::judge_output(guest, &all, Some(&reference.stdout));
        complaints.extend(judge::judge_code(guest.wants.end, status));
        let active = all.elapsed;
        Ok(Checkpointed::Judged(verdict(complaints, dir, all, active, 0)?))
    }

    /// There is no checkpoint: the guest has gone on, and is judged by that.
    fn without(
        &self,
        guest: &Guest,
        reference: &Reference,
        (dir, ended): (std::path::PathBuf, crate::process::Ended),
        said: &[u8],
    ) -> Result<Checkpointed> {
        let mut complaints = judge::judge_output(guest, &ended, Some(&reference.stdout));
        complaints.extend(judge::judge_code(guest.wants.end, ended.status));
        let is_well = complaints.is_empty();
        let active = ended.elapsed;
        let judged = verdict(complaints, dir, ended, active, 0)?;
        let why = reason(&String::from_utf8_lossy(said));
        let is_over = ["there is no group", "ended before", "is about to end", "is gone"];
        if !is_well || is_over.iter().any(|words| why.contains(words)) {
            return Ok(Checkpointed::Judged(judged));
        }
        Ok(Checkpointed::Refused(why))
    }
}

/// What an answer says against a checkpoint, without the numbers that differ from run to run.
fn reason(said: &str) -> String {
    let why =
        said.trim().split_once(": ").and_then(|(_, rest)| rest.split_once(": ")).map_or(said, |(_, why)| why);
    why.chars().filter(|letter| !letter.is_ascii_digit()).collect::<String>().trim().to_owned()
}
