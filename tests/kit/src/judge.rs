//! What counts as a failure of a run: its output, its end, its events, and what is left behind.

use std::collections::BTreeMap;
use std::env;
use std::fs;
use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;
use std::process::ExitStatus;

use crate::events::Event;
use crate::guest::{End, Guest};
use crate::process::Ended;
use crate::strike::{Account, Plan, ROOT, Target};

/// How `understudy run` ends when the last copy died of SIGKILL.
const BY_SIGKILL: i32 = 128 + 9;

/// Complaints about what a guest wrote to stdout.
pub fn judge_output(guest: &Guest, ended: &Ended, reference: Option<&[u8]>) -> Vec<String> {
    let mut complaints = Vec::new();
    if !ended.stdout.ends_with(b"\nok\n") && ended.stdout != b"ok\n" {
        complaints.push("stdout does not end with a line \"ok\"".to_owned());
    }
    if let Some(reference) = reference.filter(|_| !guest.wants.varies) {
        complaints.extend(difference(reference, &ended.stdout));
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

/// A complaint about how a native run ended.
pub fn judge_native_status(expected: End, status: Option<ExitStatus>) -> Option<String> {
    let Some(status) = status else { return Some("timed out".to_owned()) };
    let got = match (status.code(), status.signal()) {
        (Some(code), _) => End::Code(code),
        (None, signal) => End::Signal(signal.unwrap_or(0)),
    };
    (got != expected).then(|| format!("ended with {got:?}, expected {expected:?}"))
}

/// A complaint about how `understudy run` ended.
pub fn judge_code(expected: End, status: Option<ExitStatus>) -> Option<String> {
    let Some(status) = status else { return Some("timed out".to_owned()) };
    let expected = expected.as_code();
    (status.code() != Some(expected))
        .then(|| format!("understudy run ended with {status}, expected {expected}"))
}

/// The last kill came after protection had ended, for a reason that the guest is allowed, and before anybody could
/// know: the program is rightly lost. That is our mistake, and the run shows nothing.
pub fn killed_unprotected(account: &Account, lifecycle: &[Event], status: Option<ExitStatus>) -> bool {
    let promoted = count(lifecycle, "promoted");
    let of_copies = |event: &&Event| {
        let others = ["started", "behind", "confirmed", "explained", "lost", "ended"];
        !others.contains(&event.name.as_str()) && !event.name.starts_with("record")
    };
    let last = lifecycle.iter().rfind(of_copies).map(|event| event.name.as_str());
    let dropped = matches!(last, Some("diverged" | "standby_lost" | "unprotected"));
    dropped
        && account.sent(Target::Primary) + account.again > promoted
        && status.and_then(|status| status.code()) == Some(BY_SIGKILL)
}

/// The one that was to take over was killed as well, when the process had just given its other standbys up for what no log
/// carries: nobody could know. That is our mistake, and the run shows nothing.
pub fn killed_with_its_only_standby(
    account: &Account,
    lifecycle: &[Event],
    status: Option<ExitStatus>,
) -> bool {
    let gone =
        ["the standby's process is gone", "the standby did not free", "the spare standby did not come"];
    let is_left_alone = |event: &Event| {
        let why = event.fields.get("why").and_then(|why| why.as_str());
        event.name == "spare_lost" && why.is_some_and(|why| !gone.iter().any(|gone| why.starts_with(gone)))
    };
    account.again > 0
        && lifecycle.iter().any(is_left_alone)
        && status.and_then(|status| status.code()) == Some(BY_SIGKILL)
}

/// The last kill came after the program had announced its end: nothing is left that a standby could take over, and
/// whoever waits sees the signal, as natively. Its output is complete; the kill counts as missed.
pub fn killed_while_leaving(account: &Account, promoted: usize, status: Option<ExitStatus>) -> bool {
    account.sent(Target::Primary) + account.again > promoted
        && status.and_then(|status| status.code()) == Some(BY_SIGKILL)
}

/// A child process whose primary was killed and that was not taken over: the kill came after it had announced its end,
/// or its exec. Its parent sees the signal, as natively, and a guest that checks how its children end rightly
/// complains. That is our mistake, and the run shows nothing.
pub fn child_killed_at_its_end(account: &Account, lifecycle: &[Event]) -> Option<u32> {
    let mut owed: BTreeMap<u32, usize> = BTreeMap::new();
    for hit in account.hits().filter(|hit| hit.target == Target::Primary && hit.process != ROOT) {
        *owed.entry(hit.process).or_default() += 1;
    }
    let took_over = |process: u32| {
        let of_it = |event: &&Event| event.number("process") == Some(u64::from(process));
        lifecycle.iter().filter(of_it).filter(|event| event.name == "promoted").count()
    };
    owed.into_iter().find(|(process, kills)| *kills > took_over(*process)).map(|(process, _)| process)
}

/// How often an event was told.
pub fn count(lifecycle: &[Event], name: &str) -> usize {
    lifecycle.iter().filter(|event| event.name == name).count()
}

/// Complaints about processes and files that are still there. `group` is the name of a protected run's group.
pub fn judge_remains(dir: Option<&PathBuf>, ended: &Ended, group: Option<&str>) -> Vec<String> {
    let mut complaints = Vec::new();
    if !ended.left_behind.is_empty() {
        complaints.push(format!("processes left behind: {:?}", ended.left_behind));
    }
    let entries = dir.and_then(|dir| fs::read_dir(dir.join("tmp")).ok());
    let files: Vec<_> = entries.into_iter().flatten().flatten().map(|entry| entry.file_name()).collect();
    if !files.is_empty() {
        complaints.push(format!("files left behind: {files:?}"));
    }
    // At the limit the kit has killed the supervisor as well.
    complaints.extend(group.filter(|_| ended.status.is_some()).and_then(judge_folder));
    complaints
}

/// A complaint about a group's folder that is there although the group has ended.
pub fn judge_folder(group: &str) -> Option<String> {
    let own = || PathBuf::from(format!("/dev/shm/understudy-{}", rustix::process::geteuid().as_raw()));
    let state = env::var_os("UNDERSTUDY_DIR").filter(|path| !path.is_empty()).map_or_else(own, PathBuf::from);
    let entries = fs::read_dir(state.join(group)).ok()?;
    let files: Vec<_> = entries.flatten().map(|entry| entry.file_name()).collect();
    Some(format!("the group's folder is left behind, with {files:?}"))
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
    /// What was planned, and done.
    pub fn of(plans: &[Plan], account: &Account) -> Self {
        let primary = plans.iter().any(|plan| plan.target == Target::Primary);
        Self { primary, standbys: account.sent(Target::Standby) }
    }
}

/// Complaints about a run's events. A process without a standby is expected only after a promotion, which uses one
/// up, and after a kill of the standby; a standby lost by anything else never is, nor a divergence, nor the runtime's own
/// failure. `allowed` are event names, each with its reason.
pub fn judge_events(allowed: &[(String, String)], lifecycle: &[Event], kills: &Kills) -> Vec<String> {
    let mut complaints = Vec::new();
    let mut explained: BTreeMap<Option<u64>, bool> = BTreeMap::new();
    let mut lost = 0;
    for event in lifecycle {
        let explained = explained.entry(event.number("process")).or_default();
        let complaint = match event.name.as_str() {
            "promoted" => {
                *explained |= kills.primary;
                !kills.primary
            }
            "standby_lost" => {
                lost += 1;
                *explained |= lost <= kills.standbys;
                lost > kills.standbys
            }
            "unprotected" => !*explained,
            "diverged" | "malformed" | "runtime_failed" => true,
            "recloned" => {
                *explained = false;
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

/// A complaint if no process but the program itself was ever protected.
pub fn judge_tree(lifecycle: &[Event]) -> Option<String> {
    let root =
        lifecycle.iter().find(|event| event.name == "started").and_then(|event| event.number("primary"));
    let of_child = |event: &Event| event.number("process").is_some_and(|process| Some(process) != root);
    let protected = |event: &Event| event.name == "protected" && of_child(event);
    (!lifecycle.iter().any(protected)).then(|| "no child process was ever protected".to_owned())
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use serde_json::{Value, json};

    use super::{Kills, child_killed_at_its_end, difference, judge_events, judge_folder, judge_tree};
    use crate::events::Event;
    use crate::strike::{Account, Hit, ROOT, Strike, Target};

    fn event(name: &str, fields: Value) -> Event {
        Event { name: name.to_owned(), fields }
    }

    fn complaints(names: &[&str], kills: Kills, allowed: &[&str]) -> usize {
        let allowed: Vec<_> = allowed.iter().map(|name| ((*name).to_owned(), "a test".to_owned())).collect();
        let events: Vec<Event> = names.iter().map(|name| event(name, json!({}))).collect();
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
    fn a_promotion_explains_nothing_about_another_process() {
        let primary = Kills { primary: true, standbys: 0 };
        let told = |name: &str, process: u64| event(name, json!({ "process": process }));
        let with = |process| [told("protected", 1), told("promoted", 1), told("unprotected", process)];
        assert_eq!(judge_events(&[], &with(1), &primary).len(), 0);
        assert_eq!(judge_events(&[], &with(2), &primary).len(), 1);
    }

    #[test]
    fn a_tree_has_a_protected_child() {
        let started = event("started", json!({ "primary": 7 }));
        let of = |process: u64| event("protected", json!({ "primary": process, "process": process }));
        assert!(judge_tree(&[started.clone(), of(7)]).is_some());
        assert!(judge_tree(&[started, of(7), of(8)]).is_none());
    }

    #[test]
    fn a_child_that_is_killed_is_taken_over() {
        let hit = |process, target| Strike::Sent(Hit { target, process, pid: 9, delay: Duration::ZERO });
        let account = |strikes| Account { protected_at: None, strikes, again: 0 };
        let promoted = [event("promoted", json!({ "process": 20 }))];
        let two = vec![hit(20, Target::Primary), hit(ROOT, Target::Primary), hit(21, Target::Standby)];
        assert_eq!(child_killed_at_its_end(&account(two.clone()), &promoted), None);
        assert_eq!(child_killed_at_its_end(&account(two), &[]), Some(20));
        let three = vec![hit(20, Target::Primary), hit(20, Target::Primary)];
        assert_eq!(child_killed_at_its_end(&account(three), &promoted), Some(20));
    }

    #[test]
    fn no_folder_is_no_complaint() {
        assert_eq!(judge_folder("kit-no-such-group"), None);
    }

    #[test]
    fn the_first_difference_is_named() {
        assert_eq!(difference(b"a\nb\n", b"a\nb\n"), None);
        let words = difference(b"a\nbcd\n", b"a\nbxd\n").expect("they differ");
        assert!(words.contains("byte 3, line 2") && words.contains("bxd"), "{words}");
        assert!(difference(b"a\n", b"").is_some());
    }
}
