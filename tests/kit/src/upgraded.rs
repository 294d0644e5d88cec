//! One guest into which other versions of the runtime are put while it runs.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result};

use crate::events;
use crate::guest::Guest;
use crate::judge;
use crate::process::Sink;
use crate::strike::protected_command;
use crate::trial::{Reference, Stage, Verdict, group_name, launch, program, verdict};

/// One in so many upgrades is followed by a planned switch: the copy that is made of the new version takes over.
const SWITCHES: usize = 2;

impl Stage<'_> {
    /// Runs the guest under protection, with an upgrade behind each of these times: it prints what it prints, and ends as it ends. How
    /// many there were.
    pub fn upgraded(
        &self,
        guest: &Guest,
        reference: &Reference,
        times: &[Duration],
    ) -> Result<(Verdict, usize)> {
        let understudy = self.understudy.expect("upgrades are planned only with a binary");
        let dir = self.place.fresh(&guest.name)?;
        let group = group_name(&dir);
        let events_file = dir.join("events");
        let versions = [other_version(understudy, &dir, 1)?, other_version(understudy, &dir, 2)?];
        let command = protected_command(understudy, 1, &group, &events_file, program(guest));
        let tree = launch(guest, command, &dir, Sink::File)?;
        events::await_protected(&events_file);
        let mut done = 0;
        for (at, pause) in times.iter().enumerate() {
            thread::sleep(*pause);
            let mut command = Command::new(understudy);
            command.args(["upgrade", &group, "--library"]).arg(&versions[at % versions.len()]);
            let output = command.output().context("an upgrade")?;
            if output.status.success() {
                done += 1;
            }
            if at % SWITCHES == 1 {
                let _ = Command::new(understudy).args(["failover", &group]).output();
            }
        }
        let ended = tree.finish(self.limit)?;
        let mut complaints = judge::judge_output(guest, &ended, Some(&reference.stdout));
        complaints.extend(judge::judge_code(guest.wants.end, ended.status));
        for version in &versions {
            let _ = fs::remove_file(version);
        }
        let active = ended.elapsed;
        Ok((verdict(complaints, dir, ended, active, 0)?, done))
    }
}

/// Another version of the same code: its build id is another one.
///
/// # Errors
/// When there is no library beside the command, or it has none.
pub fn other_version(understudy: &Path, dir: &Path, number: u8) -> Result<PathBuf> {
    const MARK: &[u8] = b"GNU\0";
    let library = understudy.with_file_name("libunderstudy.so");
    let mut bytes = fs::read(&library).with_context(|| format!("{}", library.display()))?;
    let mark = bytes.windows(MARK.len()).position(|window| window == MARK).context("a build id")?;
    bytes[mark + MARK.len()] = number;
    let path = dir.join(format!("libunderstudy.so.{number}"));
    fs::write(&path, bytes)?;
    Ok(path)
}
