//! One guest, run once: natively, under protection, or under protection with kills; and the judgement.

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use anyhow::Result;

use crate::events;
use crate::guest::Guest;
use crate::judge::{self, Kills};
use crate::place::Place;
use crate::process::{Ended, Launch, Sink};
use crate::servers::recorded;
use crate::strike::{Account, Assassin, Plan, protected_command, status};

/// What a native run showed: the truth that the other modes are compared with.
pub struct Reference {
    /// Its stdout.
    pub stdout: Vec<u8>,
    /// How long it ran.
    pub elapsed: Duration,
}

/// The judgement of one run.
pub enum Verdict {
    /// All as expected.
    Pass {
        /// How long it ran.
        elapsed: Duration,
        /// Its stdout.
        stdout: Vec<u8>,
        /// From the first protection (natively: from the start) to the end: where a kill can fall.
        active: Duration,
        /// Promotions that happened.
        promoted: usize,
    },
    /// A kill met a child process at its end: the run shows nothing.
    Void,
    /// Something was not; the run's folder is left for the reader.
    Fail {
        /// One complaint a line.
        why: String,
        /// The run's folder.
        dir: PathBuf,
    },
}

/// What is done to a protected run.
#[derive(Clone, Copy, Default)]
pub struct Ordeal<'a> {
    /// Kills from outside.
    pub plans: &'a [Plan],
    /// Whether a recording is made besides, and replayed.
    pub recorded: bool,
    /// A runtime whose copies die and are late at named points, and the seed of its chances.
    pub faults: Option<(&'a Path, u64)>,
}

impl Ordeal<'_> {
    /// The kills that explain a run's events.
    fn kills(&self, account: &Account) -> Kills {
        if self.faults.is_some() {
            return Kills { primary: true, standbys: usize::MAX };
        }
        Kills::of(self.plans, account)
    }
}

/// What all runs of one kit call share.
#[derive(Clone, Copy)]
pub struct Stage<'a> {
    /// Folders.
    pub place: &'a Place,
    /// The binary; `None` when only native runs are asked for.
    pub understudy: Option<&'a Path>,
    /// Standbys that each guest has.
    pub standbys: u32,
    /// The order that all have, in place of the one that each asks for.
    pub order: Option<&'a str>,
    /// The longest that a run may take.
    pub limit: Duration,
}

impl Stage<'_> {
    /// Runs the guest without Understudy; compared with `reference` if there is one.
    pub fn native(&self, guest: &Guest, sink: Sink, reference: Option<&Reference>) -> Result<Verdict> {
        let dir = self.place.fresh(&guest.name)?;
        let ended = launch(guest, program(guest), &dir, sink)?.finish(self.limit)?;
        let mut complaints = judge::judge_output(guest, &ended, reference.map(|told| &told.stdout[..]));
        complaints.extend(judge::judge_native_status(guest.wants.end, ended.status));
        complaints.extend(judge::judge_remains(Some(&dir), &ended, None));
        let active = ended.elapsed;
        verdict(complaints, dir, ended, active, 0)
    }

    /// Runs the guest under protection, killing one of its copies for every plan.
    pub fn protected(
        &self,
        guest: &Guest,
        sink: Sink,
        reference: &Reference,
        ordeal: Ordeal,
    ) -> Result<(Verdict, Account)> {
        let Ordeal { plans, recorded, faults } = ordeal;
        let understudy = self.understudy.expect("protected modes are planned only with a binary");
        let dir = self.place.fresh(&guest.name)?;
        let group = group_name(&dir);
        let events_file = dir.join("events");
        let mut command = protected_command(understudy, self.standbys, &group, &events_file, program(guest));
        let file = dir.join("recording");
        if recorded {
            command.splice(2..2, ["--record".into(), file.clone().into()]);
        } else if let Some(order) = self.order {
            command.splice(2..2, ["--order", order].map(Into::into));
        } else if guest.wants.turns.is_some() {
            command.splice(2..2, ["--order".into(), "serial".into()]);
        } else if guest.wants.schedule.is_some() {
            command.splice(2..2, ["--order", "schedule", "--atomics", "on"].map(Into::into));
        }
        if let Some((library, seed)) = faults {
            let mut library_is = OsString::from("UNDERSTUDY_LIB=");
            library_is.push(library);
            let words = ["env".into(), library_is, format!("UNDERSTUDY_FAULTS={}", seed + 1).into()];
            command.splice(0..0, words);
        }
        let tree = launch(guest, command, &dir, sink)?;
        let over = AtomicBool::new(false);
        let (ended, account) = thread::scope(|scope| {
            let assassin = Assassin {
                events: &events_file,
                understudy,
                group: &group,
                tree: guest.wants.tree,
                primaries_only: guest.wants.family.is_some(),
                over: &over,
            };
            let killer = scope.spawn(move || assassin.strike_each(plans));
            let ended = tree.finish(self.limit);
            over.store(true, Ordering::Release);
            (ended, killer.join().expect("the assassin does not panic"))
        });
        let ended = ended?;
        if ended.status.is_none() {
            // Whoever asks clears away what a dead group has left.
            status(understudy, &group);
        }
        let active = account.protected_at.map_or(Duration::ZERO, |at| ended.at.saturating_duration_since(at));
        let lifecycle = events::read_all(&events_file);
        let mut allowed = guest.wants.allowed.clone();
        if let Some(why) = guest.wants.stale.as_ref().filter(|_| recorded) {
            allowed.extend(["diverged", "unprotected"].map(|event| (event.into(), why.clone())));
        }
        if judge::killed_with_its_only_standby(&account, &lifecycle, ended.status) {
            fs::remove_dir_all(&dir)?;
            return Ok((Verdict::Void, account));
        }
        let mut unexpected = judge::judge_events(&allowed, &lifecycle, &ordeal.kills(&account));
        let is_lost = judge::killed_unprotected(&account, &lifecycle, ended.status);
        // What is killed for good does not clear its files away.
        unexpected.extend(judge::judge_remains((!is_lost).then_some(&dir), &ended, Some(&group)));
        if unexpected.is_empty() && is_lost {
            return Ok((verdict(Vec::new(), dir, ended, active, 0)?, Account::default()));
        }
        let mut complaints = judge::judge_output(guest, &ended, Some(&reference.stdout));
        let promoted = judge::count(&lifecycle, "promoted");
        if !(complaints.is_empty() && judge::killed_while_leaving(&account, promoted, ended.status)) {
            complaints.extend(judge::judge_code(guest.wants.end, ended.status));
        }
        let met_its_end = judge::child_killed_at_its_end(&account, &lifecycle).is_some();
        if !complaints.is_empty() && unexpected.is_empty() && ended.status.is_some() && met_its_end {
            fs::remove_dir_all(&dir)?;
            return Ok((Verdict::Void, account));
        }
        complaints.extend(unexpected);
        let alone = judge::judge_tree(&lifecycle).filter(|_| guest.wants.tree);
        if alone.is_some() && complaints.is_empty() && !plans.is_empty() {
            // The program went its way, and on a busy machine no child was long enough a member: made again, and counted.
            fs::remove_dir_all(&dir)?;
            return Ok((Verdict::Void, account));
        }
        complaints.extend(alone);
        if recorded && complaints.is_empty() {
            let may_end = guest.wants.no_record.is_some() || guest.wants.serial.is_some();
            complaints.extend(self.judge_beside(&ended, sink, (&dir, &file), &lifecycle, may_end)?);
        }
        if !(complaints.is_empty() || plans.is_empty()) {
            complaints.push(format!("kills, each after protection: {account}"));
        }
        Ok((verdict(complaints, dir, ended, active, promoted)?, account))
    }
}

impl Stage<'_> {
    /// Runs the guest under the runtime with nobody to follow: it must not notice.
    pub fn bare(&self, guest: &Guest, sink: Sink, reference: &Reference) -> Result<Verdict> {
        let understudy = self.understudy.expect("bare runs are planned only with a binary");
        let dir = self.place.fresh(&guest.name)?;
        let group = group_name(&dir);
        let mut command: Vec<OsString> = vec![understudy.into()];
        command.extend(["run", "-q", "--standbys", "0", "--name", &group, "--"].map(OsString::from));
        command.extend(program(guest));
        let ended = launch(guest, command, &dir, sink)?.finish(self.limit)?;
        let mut complaints = judge::judge_output(guest, &ended, Some(&reference.stdout));
        complaints.extend(judge::judge_code(guest.wants.end, ended.status));
        complaints.extend(judge::judge_remains(Some(&dir), &ended, Some(&group)));
        let active = ended.elapsed;
        verdict(complaints, dir, ended, active, 0)
    }

    /// Records the guest, and replays the recording twice: each shows what the recorded run has shown, byte for byte.
    pub fn recorded(&self, guest: &Guest, sink: Sink, reference: &Reference) -> Result<Verdict> {
        let understudy = self.understudy.expect("recorded runs are planned only with a binary");
        let dir = self.place.fresh(&guest.name)?;
        let group = group_name(&dir);
        let file = dir.join("recording");
        let serial = guest.wants.serial.is_some();
        let command = recorded::command(understudy, serial, &group, &file, program(guest));
        let ended = launch(guest, command, &dir, sink)?.finish(self.limit)?;
        let mut complaints = judge::judge_output(guest, &ended, Some(&reference.stdout));
        complaints.extend(judge::judge_code(guest.wants.end, ended.status));
        complaints.extend(judge::judge_remains(Some(&dir), &ended, Some(&group)));
        for replay in 1..=REPLAYS {
            if !complaints.is_empty() {
                break;
            }
            let folder = dir.join(format!("replay-{replay}"));
            fs::create_dir_all(folder.join("tmp"))?;
            let command = vec![understudy.into(), "replay".into(), file.clone().into()];
            let again =
                Launch { command, dir: folder.clone(), stdin: None, sink }.spawn()?.finish(self.limit)?;
            let what = |text: String| format!("replay {replay}: {text}");
            if again.stdout != ended.stdout {
                complaints.push(what("stdout differs from the recorded run's".into()));
            }
            complaints.extend(judge::judge_code(guest.wants.end, again.status).into_iter().map(what));
            let said = fs::read_to_string(folder.join("stderr")).unwrap_or_default();
            let ours = said.lines().filter(|line| line.starts_with("understudy"));
            complaints.extend(ours.map(|line| what(line.to_owned())));
        }
        let active = ended.elapsed;
        verdict(complaints, dir, ended, active, 0)
    }
}

impl Stage<'_> {
    /// Judges a recording that was made beside standbys: it replays as the run went, whoever was killed meanwhile, unless it
    /// has ended before the program did, and said so. `may_end` if it may without a kill.
    fn judge_beside(
        &self,
        ended: &Ended,
        sink: Sink,
        (dir, file): (&Path, &Path),
        lifecycle: &[events::Event],
        may_end: bool,
    ) -> Result<Vec<String>> {
        let understudy = self.understudy.expect("recorded runs are planned only with a binary");
        let mut complaints = Vec::new();
        let is_cut = lifecycle.iter().find(|event| event.name == "recording_ended");
        if let Some(event) = is_cut.filter(|_| !may_end) {
            complaints.push(format!("the recording did not go on: {}", event.fields));
        }
        if is_cut.is_some() || may_end {
            return Ok(complaints);
        }
        let folder = dir.join("replay");
        fs::create_dir_all(folder.join("tmp"))?;
        let command = vec![understudy.into(), "replay".into(), file.into()];
        let again = Launch { command, dir: folder.clone(), stdin: None, sink }.spawn()?.finish(self.limit)?;
        if again.stdout != ended.stdout {
            complaints.push("replay: stdout differs from the recorded run's".into());
        }
        if again.status.and_then(|status| status.code()) != ended.status.and_then(|status| status.code()) {
            complaints.push(format!("replay: ended with {:?}, not {:?}", again.status, ended.status));
        }
        let said = fs::read_to_string(folder.join("stderr")).unwrap_or_default();
        let ours = said.lines().filter(|line| line.starts_with("understudy"));
        complaints.extend(ours.map(|line| format!("replay: {line}")));
        Ok(complaints)
    }
}

/// Replays of one recording.
const REPLAYS: u32 = 2;

/// A group name that is unique on the machine while this kit runs.
pub fn group_name(dir: &Path) -> String {
    let serial = dir.file_name().and_then(|name| name.to_str()).unwrap_or("run");
    let number = serial.splitn(3, '-').take(2).collect::<Vec<_>>().join("-");
    format!("kit-{number}")
}

/// The guest's command.
pub fn program(guest: &Guest) -> Vec<OsString> {
    let mut command = vec![guest.binary.clone().into_os_string()];
    command.extend(guest.wants.args.iter().map(OsString::from));
    command
}

/// Starts a command in the guest's place.
///
/// # Errors
/// When it cannot be started.
pub fn launch(guest: &Guest, command: Vec<OsString>, dir: &Path, sink: Sink) -> Result<crate::process::Tree> {
    let stdin = guest.wants.stdin.as_ref().map(|text| text.clone().into_bytes());
    Launch { command, dir: dir.to_path_buf(), stdin, sink }.spawn()
}

/// The judgement, by its complaints.
///
/// # Errors
/// When the run's folder cannot be removed.
pub fn verdict(
    complaints: Vec<String>,
    dir: PathBuf,
    ended: Ended,
    active: Duration,
    promoted: usize,
) -> Result<Verdict> {
    if complaints.is_empty() {
        fs::remove_dir_all(&dir)?;
        return Ok(Verdict::Pass { elapsed: ended.elapsed, stdout: ended.stdout, active, promoted });
    }
    let mut why = complaints.join("\n");
    let stderr = fs::read(dir.join("stderr")).unwrap_or_default();
    for line in String::from_utf8_lossy(&stderr).lines().take(5) {
        why += &format!("\nstderr: {line}");
    }
    Ok(Verdict::Fail { why, dir })
}
