//! One guest, run once: natively, under protection, or under protection with kills; and the judgement.

use std::ffi::OsString;
use std::fs;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::ExitStatus;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use anyhow::Result;

use crate::events::{self, Event};
use crate::guest::{End, Guest};
use crate::place::Place;
use crate::process::{Ended, Launch, Sink};
use crate::strike::{Account, Assassin, Plan, Target, protected_command};

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
    /// Something was not; the run's folder is left for the reader.
    Fail {
        /// One complaint a line.
        why: String,
        /// The run's folder.
        dir: PathBuf,
    },
}

/// What all runs of one kit call share.
pub struct Stage<'a> {
    /// Folders.
    pub place: &'a Place,
    /// The binary; `None` when only native runs are asked for.
    pub understudy: Option<&'a Path>,
    /// The longest that a run may take.
    pub limit: Duration,
}

impl Stage<'_> {
    /// Runs the guest without Understudy; compared with `reference` if there is one.
    pub fn native(&self, guest: &Guest, sink: Sink, reference: Option<&Reference>) -> Result<Verdict> {
        let dir = self.place.fresh(&guest.name)?;
        let ended = launch(guest, program(guest), &dir, sink)?.finish(self.limit)?;
        let mut complaints = judge_output(guest, &ended, reference);
        complaints.extend(judge_native_status(guest.wants.end, ended.status));
        complaints.extend(judge_remains(&dir, &ended));
        let active = ended.elapsed;
        verdict(complaints, dir, ended, active, 0)
    }

    /// Runs the guest under protection, killing one of its copies for every plan.
    pub fn protected(
        &self,
        guest: &Guest,
        sink: Sink,
        reference: &Reference,
        plans: &[Plan],
    ) -> Result<(Verdict, Account)> {
        let understudy = self.understudy.expect("protected modes are planned only with a binary");
        let dir = self.place.fresh(&guest.name)?;
        let group = group_name(&dir);
        let events_file = dir.join("events");
        let command = protected_command(understudy, &group, &events_file, program(guest));
        let tree = launch(guest, command, &dir, sink)?;
        let over = AtomicBool::new(false);
        let (ended, account) = thread::scope(|scope| {
            let assassin = Assassin { events: &events_file, understudy, group: &group, over: &over };
            let killer = scope.spawn(move || assassin.strike_each(plans));
            let ended = tree.finish(self.limit);
            over.store(true, Ordering::Release);
            (ended, killer.join().expect("the assassin does not panic"))
        });
        let ended = ended?;
        let active = account.protected_at.map_or(Duration::ZERO, |at| ended.at.saturating_duration_since(at));
        let lifecycle = events::read_all(&events_file);
        let unexpected = judge_events(&guest.wants.allowed, &lifecycle, &Kills::of(plans, &account));
        let remains = judge_remains(&dir, &ended);
        if unexpected.is_empty()
            && remains.is_empty()
            && killed_unprotected(&account, &lifecycle, ended.status)
        {
            return Ok((verdict(Vec::new(), dir, ended, active, 0)?, Account::default()));
        }
        let mut complaints = judge_output(guest, &ended, Some(reference));
        let promoted = lifecycle.iter().filter(|event| event.name == "promoted").count();
        if !(complaints.is_empty() && killed_while_leaving(&account, promoted, ended.status)) {
            complaints.extend(judge_code(guest.wants.end, ended.status));
        }
        complaints.extend(remains);
        complaints.extend(unexpected);
        if !(complaints.is_empty() || plans.is_empty()) {
            complaints.push(format!("kills, each after protection: {account}"));
        }
        Ok((verdict(complaints, dir, ended, active, promoted)?, account))
    }
}

/// A group name that is unique on the machine while this kit runs.
pub fn group_name(dir: &Path) -> String {
    let serial = dir.file_name().and_then(|name| name.to_str()).unwrap_or("run");
    let number = serial.splitn(3, '-').take(2).collect::<Vec<_>>().join("-");
    format!("kit-{number}")
}

fn program(guest: &Guest) -> Vec<OsString> {
    let mut command = vec![guest.binary.clone().into_os_string()];
    command.extend(guest.wants.args.iter().map(OsString::from));
    command
}

fn launch(guest: &Guest, command: Vec<OsString>, dir: &Path, sink: Sink) -> Result<crate::process::Tree> {
    let stdin = guest.wants.stdin.as_ref().map(|text| text.clone().into_bytes());
    Launch { command, dir: dir.to_path_buf(), stdin, sink }.spawn()
}

fn verdict(
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

fn judge_output(guest: &Guest, ended: &Ended, reference: Option<&Reference>) -> Vec<String> {
    let mut complaints = Vec::new();
    if !ended.stdout.ends_with(b"\nok\n") && ended.stdout != b"ok\n" {
        complaints.push("stdout does not end with a line \"ok\"".to_owned());
    }
    if let Some(reference) = reference.filter(|_| !guest.wants.varies) {
        complaints.extend(difference(&reference.stdout, &ended.stdout));
    }
    complaints
}

/// The first place where two outputs differ, in words.
pub fn difference(expected: &[u8], got: &[u8]) -> Option<String> {
    if expected == got {
        return None;
    }
    let at = expected.iter().zip(got).take_while(|(a, b)| a == b).count();
    let line = expected[..at].iter().filter(|byte| **byte == b'\n').count() + 1;
    let show = |bytes: &[u8]| {
        let start = bytes[..at].iter().rposition(|byte| *byte == b'\n').map_or(0, |p| p + 1);
        let text: Vec<u8> =
            bytes[start..].iter().copied().take_while(|byte| *byte != b'\n').take(100).collect();
        String::from_utf8_lossy(&text).into_owned()
    };
    Some(format!(
        "stdout differs from the native run at byte {at}, line {line} ({} bytes, expected {})\n  expected: {}\n  got:      {}",
        got.len(),
        expected.len(),
        show(expected),
        show(got)
    ))
}

fn judge_native_status(expected: End, status: Option<ExitStatus>) -> Option<String> {
    let Some(status) = status else { return Some("timed out".to_owned()) };
    let got = match (status.code(), status.signal()) {
        (Some(code), _) => End::Code(code),
        (None, signal) => End::Signal(signal.unwrap_or(0)),
    };
    (got != expected).then(|| format!("ended with {got:?}, expected {expected:?}"))
}

fn judge_code(expected: End, status: Option<ExitStatus>) -> Option<String> {
    let Some(status) = status else { return Some("timed out".to_owned()) };
    let expected = expected.as_code();
    (status.code() != Some(expected))
        .then(|| format!("understudy run ended with {status}, expected {expected}"))
}

/// How `understudy run` ends when the last copy died of SIGKILL.
const BY_SIGKILL: i32 = 128 + 9;

/// The last kill came after protection had ended, for a reason that the guest is allowed, and before anybody could
/// know: the program is rightly lost. That is our mistake, and the run shows nothing.
fn killed_unprotected(account: &Account, lifecycle: &[Event], status: Option<ExitStatus>) -> bool {
    let promoted = lifecycle.iter().filter(|event| event.name == "promoted").count();
    let of_copies = |event: &&Event| !matches!(event.name.as_str(), "started" | "ended");
    let last = lifecycle.iter().rfind(of_copies).map(|event| event.name.as_str());
    let dropped = matches!(last, Some("diverged" | "standby_lost" | "unprotected"));
    dropped
        && account.sent(Target::Primary) > promoted
        && status.and_then(|status| status.code()) == Some(BY_SIGKILL)
}

/// The last kill came after the program had announced its end: nothing is left that a standby could take over, and
/// whoever waits sees the signal, as natively. Its output is complete; the kill counts as missed.
fn killed_while_leaving(account: &Account, promoted: usize, status: Option<ExitStatus>) -> bool {
    account.sent(Target::Primary) > promoted && status.and_then(|status| status.code()) == Some(BY_SIGKILL)
}

fn judge_remains(dir: &Path, ended: &Ended) -> Vec<String> {
    let mut complaints = Vec::new();
    if !ended.left_behind.is_empty() {
        complaints.push(format!("processes left behind: {:?}", ended.left_behind));
    }
    let files: Vec<_> = fs::read_dir(dir.join("tmp"))
        .map(|entries| entries.flatten().map(|entry| entry.file_name()).collect())
        .unwrap_or_default();
    if !files.is_empty() {
        complaints.push(format!("files left behind: {files:?}"));
    }
    complaints
}

/// The kills of a run, as far as they explain its events.
#[derive(Clone, Copy, Debug, Default)]
pub struct Kills {
    /// Promotions may happen.
    pub primary: bool,
    /// Standbys that were killed.
    pub standbys: usize,
}

impl Kills {
    fn of(plans: &[Plan], account: &Account) -> Self {
        let primary = plans.iter().any(|plan| plan.target == Target::Primary);
        Self { primary, standbys: account.sent(Target::Standby) }
    }
}

/// Complaints about a run's events. Being without a standby is expected only after a promotion, which uses one
/// up, and after a kill of the standby; a standby lost by anything else never is, nor a divergence. `allowed` are
/// event names, each with its reason.
pub fn judge_events(allowed: &[(String, String)], lifecycle: &[Event], kills: &Kills) -> Vec<String> {
    let mut complaints = Vec::new();
    let (mut explained, mut lost) = (false, 0);
    for event in lifecycle {
        let complaint = match event.name.as_str() {
            "promoted" => {
                explained |= kills.primary;
                !kills.primary
            }
            "standby_lost" => {
                lost += 1;
                explained |= lost <= kills.standbys;
                lost > kills.standbys
            }
            "unprotected" => !explained,
            "diverged" | "malformed" => true,
            "recloned" => {
                explained = false;
                false
            }
            _ => false,
        };
        if complaint && !allowed.iter().any(|(name, _)| *name == event.name) {
            complaints.push(format!("event {}: {}", event.name, event.fields));
        }
    }
    if !lifecycle.iter().any(|event| event.name == "protected") {
        complaints.push("the group was never protected".to_owned());
    }
    complaints
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::{Kills, difference, judge_events};
    use crate::events::Event;

    fn complaints(names: &[&str], kills: Kills, allowed: &[&str]) -> usize {
        let allowed: Vec<_> = allowed.iter().map(|name| ((*name).to_owned(), "a test".to_owned())).collect();
        let events: Vec<Event> =
            names.iter().map(|name| Event { name: (*name).to_owned(), fields: json!({}) }).collect();
        judge_events(&allowed, &events, &kills).len()
    }

    #[test]
    fn the_standby_may_be_lost_only_to_a_kill() {
        let (none, one) = (Kills::default(), Kills { primary: false, standbys: 1 });
        let primary = Kills { primary: true, standbys: 0 };
        assert_eq!(complaints(&["started", "protected", "ended"], none, &[]), 0);
        assert_eq!(complaints(&["started", "ended"], none, &[]), 1);
        assert_eq!(complaints(&["protected", "standby_lost"], primary, &[]), 1);
        assert_eq!(complaints(&["protected", "promoted", "unprotected", "recloned"], primary, &[]), 0);
        assert_eq!(complaints(&["protected", "promoted", "standby_lost"], primary, &[]), 1);
        assert_eq!(complaints(&["protected", "promoted"], none, &[]), 1);
        assert_eq!(complaints(&["protected", "promoted", "diverged"], primary, &[]), 1);
        assert_eq!(complaints(&["protected", "diverged"], none, &["diverged"]), 0);
        assert_eq!(complaints(&["protected", "standby_lost", "unprotected", "recloned"], one, &[]), 0);
        assert_eq!(complaints(&["protected", "standby_lost", "recloned", "standby_lost"], one, &[]), 1);
    }

    #[test]
    fn the_first_difference_is_named() {
        assert_eq!(difference(b"a\nb\n", b"a\nb\n"), None);
        let words = difference(b"a\nbcd\n", b"a\nbxd\n").expect("they differ");
        assert!(words.contains("byte 3, line 2") && words.contains("bxd"), "{words}");
        assert!(difference(b"a\n", b"").is_some());
    }
}
