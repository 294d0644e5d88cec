//! `kit SERVER --record`: the server is recorded while its clients talk to it, and replayed: the replay ends as the server did
//! and finds nothing that went another way. Then the recording is changed in what the server did, and the replay must notice.

use std::ffi::OsString;
use std::fs;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use recording::{Events, Item, Reader, Writer};
use us_abi::EventKind;

use super::Run;
use crate::process::{Ended, Launch, Sink};
use crate::rng::Rng;

/// What a replay that is not the recording ends with.
const NOT_THE_RECORDING: i32 = 125;

/// System calls that put something out: write, sendto, sendmsg, writev.
const OUTPUTS: [u16; 4] = [1, 44, 46, 20];

/// Offset of the digest of what a call puts out, in its `Enter`: behind the header, the descriptor comes first.
const DIGEST: usize = 20;

/// The command line that records `program` into `file`.
pub fn command(
    understudy: &Path,
    serial: bool,
    group: &str,
    file: &Path,
    program: Vec<OsString>,
) -> Vec<OsString> {
    let mut command: Vec<OsString> = vec![understudy.into(), "record".into(), "-q".into()];
    if serial {
        command.extend(["--order", "serial"].map(OsString::from));
    }
    command.extend(["--name".into(), group.into(), "-o".into(), file.into(), "--".into()]);
    command.extend(program);
    command
}

/// Complaints about the replays of the recording `file` in `dir` of a server that has ended as `ended`.
pub fn judge(run: &Run, dir: &Path, file: &Path, ended: &Ended) -> Result<Vec<String>> {
    let mut complaints = Vec::new();
    let shown = fs::read(dir.join("stdout")).unwrap_or_default();
    let (again, said) = replay(run, dir, file, "replay", false)?;
    if again.stdout != shown {
        complaints.push("the replay's stdout differs from the server's".to_owned());
    }
    let code = |ended: &Ended| {
        ended.status.map(|status| status.code().unwrap_or(128 + status.signal().unwrap_or(0)))
    };
    if code(&again) != code(ended) {
        complaints.push(format!(
            "the replay ended with {:?}, the server with {:?}",
            code(&again),
            code(ended)
        ));
    }
    complaints.extend(said.lines().filter(|line| line.starts_with("understudy")).map(str::to_owned));
    if !complaints.is_empty() {
        return Ok(complaints);
    }
    for damage in [Damage::Output, Damage::End] {
        let other = dir.join("other");
        let _ = fs::remove_file(&other);
        ensure!(changed(file, &other, damage, run.seed)?, "the recording has nothing to change");
        let (again, said) = replay(run, dir, &other, "other-replay", true)?;
        if code(&again) != Some(NOT_THE_RECORDING) {
            complaints
                .push(format!("a recording with another {damage:?} was replayed with {:?}", code(&again)));
            complaints.push(said);
        }
    }
    Ok(complaints)
}

fn replay(run: &Run, dir: &Path, file: &Path, name: &str, force: bool) -> Result<(Ended, String)> {
    let understudy = run.understudy.as_deref().context("a replay needs Understudy")?;
    let folder = dir.join(name);
    fs::create_dir_all(folder.join("tmp"))?;
    let mut command: Vec<OsString> = vec![understudy.into(), "replay".into()];
    if force {
        command.push("--force".into());
    }
    command.push(file.into());
    let tree = Launch { command, dir: folder.clone(), stdin: None, sink: Sink::Pipe }.spawn()?;
    let ended = tree.finish(run.limit.max(Duration::from_secs(60)))?;
    let said = fs::read_to_string(folder.join("stderr")).unwrap_or_default();
    Ok((ended, said))
}

/// What of a recording is changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Damage {
    /// The bytes of one of its outputs.
    Output,
    /// How a process ended.
    End,
}

/// Copies a recording with one thing changed. False if there is none of the kind.
fn changed(from: &Path, to: &Path, damage: Damage, seed: u64) -> Result<bool> {
    let outputs = count_outputs(from)?;
    let mut chosen = Rng::new(seed, "damage").below(outputs.max(1));
    let mut done = false;
    let mut reader = Reader::open(from)?;
    let mut writer = Writer::create_timeless(to, &reader.header().clone())?;
    while let Some(item) = reader.next()? {
        match item {
            Item::Image(image) => writer.image(&image)?,
            Item::Events { image, slot, mut bytes } => {
                for at in output_places(&bytes) {
                    if damage == Damage::Output && chosen == 0 && !done {
                        bytes[at + DIGEST] ^= 1;
                        done = true;
                    }
                    chosen = chosen.saturating_sub(1);
                }
                writer.events(image, slot, &bytes)?;
            }
            Item::End { image, status, facts } => {
                let other = damage == Damage::End && !done;
                done |= other;
                // Another code. Of which signal a process died from outside only the recording says.
                let changed = if status & 0x7f == 0 { status ^ 1 << 8 } else { 3 << 8 };
                writer.end(image, if other { changed } else { status }, &facts)?;
            }
            Item::Complete(_) => {}
        }
    }
    writer.finish()?;
    Ok(done)
}

fn count_outputs(file: &Path) -> Result<u64> {
    let (mut reader, mut count) = (Reader::open(file)?, 0);
    while let Some(item) = reader.next()? {
        if let Item::Events { bytes, .. } = item {
            count += output_places(&bytes).len() as u64;
        }
    }
    Ok(count)
}

/// Where the beginnings of calls that put something out lie.
fn output_places(bytes: &[u8]) -> Vec<usize> {
    let mut at = 0;
    let mut found = Vec::new();
    for event in Events::new(bytes) {
        if event.header.kind == EventKind::Enter as u8
            && OUTPUTS.contains(&event.header.call)
            && event.size() >= 32
        {
            found.push(at);
        }
        at += event.size();
    }
    found
}
