//! A program that runs to its end: natively, and under protection with kills in the middle. Both must show the same.

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use anyhow::Result;

use super::{Failure, Run};
use crate::events;
use crate::judge::{Kills, child_killed_at_its_end, count, judge_events, judge_folder};
use crate::process::{Ended, Launch, Sink};
use crate::strike::{Account, Assassin, Plan, protected_command, status};
use crate::trial::group_name;

/// How often a kill that came too late is tried again, earlier.
pub const RETRIES: u32 = 6;

/// What is run.
pub struct Job<'a> {
    /// For the run's folder.
    pub label: &'a str,
    /// Program and arguments.
    pub program: Vec<OsString>,
    /// It makes processes that are protected too, and no kill comes before one is.
    pub tree: bool,
    /// Fills the current folder that it will have.
    pub prepare: &'a dyn Fn(&Path) -> Result<()>,
}

/// A run that ended well.
pub struct Executed {
    /// Its output, its end.
    pub ended: Ended,
    /// Its folder.
    pub dir: PathBuf,
    /// Promotions that happened.
    pub promoted: usize,
    /// The kills, in words.
    pub kills: String,
    /// A kill met a child process at its end: what it shows or made may be wrong without anybody's fault.
    pub is_void: bool,
}

impl Job<'_> {
    /// Runs it: natively, or with a kill for each of `plans`.
    pub fn execute(&self, run: &Run, plans: Option<&[Plan]>) -> Result<Executed, Failure> {
        let dir = run.place.fresh(self.label)?;
        let (events_file, group) = (dir.join("events"), group_name(&dir));
        (self.prepare)(&dir.join("tmp")).map_err(|error| Failure::of(error, &dir))?;
        let understudy = run.understudy.as_deref().filter(|_| plans.is_some());
        let command = match understudy {
            Some(understudy) => {
                protected_command(understudy, run.standbys, &group, &events_file, self.program.clone())
            }
            None => self.program.clone(),
        };
        // A file: of a write to somebody else's pipe that is larger than the pipe, nobody can tell how much went out.
        let tree = Launch { command, dir: dir.clone(), stdin: None, sink: Sink::File }.spawn()?;
        let over = AtomicBool::new(false);
        let (ended, account) = thread::scope(|scope| {
            let killer = understudy.zip(plans).map(|(understudy, plans)| {
                let assassin = Assassin {
                    events: &events_file,
                    understudy,
                    group: &group,
                    tree: self.tree,
                    primaries_only: false,
                    over: &over,
                };
                scope.spawn(move || assassin.strike_each(plans))
            });
            let ended = tree.finish(run.limit);
            over.store(true, Ordering::Release);
            let killed = |killer: thread::ScopedJoinHandle<'_, Account>| killer.join();
            (ended, killer.map(killed).transpose().expect("the assassin does not panic").unwrap_or_default())
        });
        let ended = ended.map_err(|error| Failure::of(error, &dir))?;
        let lifecycle = events::read_all(&events_file);
        let mut complaints = Vec::new();
        if understudy.is_some() {
            let kills = Kills { primary: run.kill, standbys: 0 };
            complaints.extend(judge_events(&[], &lifecycle, &kills));
            complaints.extend(judge_folder(&group).filter(|_| ended.status.is_some()));
        }
        if !ended.left_behind.is_empty() {
            complaints.push(format!("processes left behind: {:?}", ended.left_behind));
        }
        let is_void = child_killed_at_its_end(&account, &lifecycle).is_some();
        match ended.status {
            None => {
                complaints.push("timed out".to_owned());
                // Whoever asks clears away what a dead group has left.
                understudy.and_then(|understudy| status(understudy, &group));
            }
            Some(status) if !status.success() && !is_void => complaints.push(format!("ended with {status}")),
            Some(_) => {}
        }
        let kills = account.to_string();
        if complaints.is_empty() {
            return Ok(Executed { ended, dir, promoted: count(&lifecycle, "promoted"), kills, is_void });
        }
        complaints.push(format!("kills, each after protection: {kills}"));
        let stderr = fs::read(dir.join("stderr")).unwrap_or_default();
        let said = String::from_utf8_lossy(&stderr);
        complaints.extend(said.lines().take(5).map(|line| format!("stderr: {line}")));
        Err(Failure { why: complaints.join("\n"), dir: Some(dir) })
    }
}

impl Executed {
    /// Removes its folder.
    pub fn remove(&self) -> Result<()> {
        Ok(fs::remove_dir_all(&self.dir)?)
    }
}
