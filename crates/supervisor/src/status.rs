//! `status`: every group as CLI.md describes it.

use std::collections::{BTreeMap, VecDeque};

use serde::Serialize;
use us_abi::{CLASS_NAMES, Cause, GroupState, RING_BYTES};

use crate::clock;
use crate::error::Error;
use crate::folder::{self, Found, Meta};
use crate::history::{Divergence, Failover, History, Reclone};
use crate::proc;
use crate::reprotect::{self, Situation};
use crate::snapshot::{Progress, Snapshot};

/// What `status --json` prints.
#[derive(Clone, Debug, Serialize)]
pub struct Status {
    /// Version of these fields.
    pub version: u32,
    /// In order of their names.
    pub groups: Vec<Group>,
}

/// One group.
#[derive(Clone, Debug, Serialize)]
pub struct Group {
    /// Its name.
    pub name: String,
    /// `--order`.
    pub order: String,
    /// Promotions so far.
    pub epoch: u32,
    /// `starting`, `protected`, `reprotecting`, `unprotected`, `ended`.
    pub state: &'static str,
    /// Why it is unprotected.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub why: Option<String>,
    /// Share of its life under protection, 0 to 1.
    pub protected_share: f64,
    /// Its start, RFC 3339.
    pub since: String,
    /// PROGRAM and its arguments.
    pub program: Vec<String>,
    /// Pid of its supervisor, 0 when that is gone.
    pub supervisor_pid: u32,
    /// Its processes, the program itself first.
    pub processes: Vec<GuestProcess>,
    /// Events published.
    pub events_total: u64,
    /// Bytes published.
    pub bytes_total: u64,
    /// Events applied, by class.
    pub events_by_class: BTreeMap<&'static str, u64>,
    /// The last thousand, in order; `epoch` is how many there have been.
    pub failovers: VecDeque<Failover>,
    /// The last thousand, in order.
    pub reclones: VecDeque<Reclone>,
    /// How many there have been.
    pub reclones_total: u64,
    /// Attempts that did not succeed.
    pub reclones_failed: u64,
    /// The last thousand, in order.
    pub divergences: VecDeque<Divergence>,
    /// How many there have been.
    pub divergences_total: u64,
    /// Calls that cannot be replayed, by name.
    pub refused_calls: BTreeMap<String, u32>,
    /// Signals that waited too long for a thread's next door.
    pub signals_late: u64,
    /// The probe, if there is one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub probe: Option<Probe>,
    /// What a client can rely on.
    pub guarantee: String,
}

/// `--probe`.
#[derive(Clone, Debug, Serialize)]
pub struct Probe {
    /// The command.
    pub command: String,
    /// It is not asked while there is no standby that could take over.
    pub waits: bool,
}

/// One process of the guest.
#[derive(Clone, Debug, Serialize)]
pub struct GuestProcess {
    /// The pid it knows as its own.
    pub guest_pid: u32,
    /// The copy whose effects are real; `null` at the moment between two.
    pub primary: Option<PrimaryCopy>,
    /// The copies that follow.
    pub standbys: Vec<StandbyCopy>,
}

/// A primary.
#[derive(Clone, Debug, Serialize)]
pub struct PrimaryCopy {
    /// Kernel's pid.
    pub pid: u32,
    /// Threads.
    pub threads: u32,
    /// CPU time, seconds.
    pub cpu_s: f64,
    /// Resident bytes.
    pub rss_bytes: u64,
}

/// A standby.
#[derive(Clone, Debug, Serialize)]
pub struct StandbyCopy {
    /// Kernel's pid.
    pub pid: u32,
    /// `cloning`, `following`, `behind`, `diverged`, `promoting`.
    pub state: &'static str,
    /// Events published and not applied.
    pub lag_events: u64,
    /// Bytes published and not applied.
    pub lag_bytes: u64,
    /// CPU time, seconds.
    pub cpu_s: f64,
    /// Resident bytes.
    pub rss_bytes: u64,
}

/// The groups that this user may see, or the one called `name`. Leftovers of dead groups are cleared away.
///
/// # Errors
/// [`Error::NoSuchGroup`] when `name` is given and there is none.
pub fn read(name: Option<&str>) -> Result<Status, Error> {
    let groups: Vec<Group> = folder::groups()
        .iter()
        .filter(|found| name.is_none_or(|name| found.name == name))
        .filter(|found| found.has_supervisor() || !found.remove_if_dead())
        .filter_map(group)
        .collect();
    match name {
        Some(name) if groups.is_empty() => Err(Error::NoSuchGroup(name.into())),
        _ => Ok(Status { version: 1, groups }),
    }
}

/// `None` when the group ended while it was looked at.
fn group(found: &Found) -> Option<Group> {
    let meta = found.meta()?;
    let snapshot = found.snapshot()?;
    let history: History = found.read_json("history.json").unwrap_or_default();
    let supervised = found.has_supervisor();
    let (state, why) = state_and_why(&meta, &snapshot, &history, supervised);
    let progress = snapshot.progress();
    Some(Group {
        name: found.name.clone(),
        order: meta.order.clone(),
        epoch: snapshot.epoch(),
        state,
        protected_share: history.protected_share(meta.since_ns, clock::monotonic_ns()),
        supervisor_pid: if supervised { meta.supervisor.pid } else { 0 },
        processes: vec![process(found, &meta, &snapshot, &progress, supervised)],
        since: meta.since,
        program: meta.program,
        events_total: progress.applied + progress.lag_events,
        bytes_total: progress.bytes,
        events_by_class: CLASS_NAMES.into_iter().zip(progress.by_class).collect(),
        guarantee: guarantee(state, why.as_deref(), &history),
        failovers: history.failovers.last,
        reclones: history.reclones.last,
        reclones_total: history.reclones.total,
        reclones_failed: history.failed_reclones,
        divergences: history.divergences.last,
        divergences_total: history.divergences.total,
        probe: meta.probe.map(|command| Probe { command, waits: state != "protected" }),
        refused_calls: snapshot.refused().into_iter().collect(),
        signals_late: history.signals_late,
        why,
    })
}

fn state_and_why(
    meta: &Meta,
    snapshot: &Snapshot,
    history: &History,
    supervised: bool,
) -> (&'static str, Option<String>) {
    if !supervised {
        // Whatever the segment says: nobody would notice the primary's death.
        return ("unprotected", Some("the supervisor is gone".into()));
    }
    match snapshot.state() {
        GroupState::Starting => ("starting", None),
        GroupState::Protected => ("protected", None),
        GroupState::Ended => ("ended", None),
        GroupState::Promoting => ("unprotected", Some("the standby takes over at this moment".into())),
        GroupState::Unprotected => {
            let (cause, why) = snapshot.why().unwrap_or_else(|| (0, "no reason was given".into()));
            let situation = Situation {
                state: GroupState::Unprotected,
                cause,
                leaving: snapshot.leaving(),
                has_runtime: snapshot.has_runtime(),
            };
            if !meta.reprotect || !reprotect::is_due(situation) {
                return ("unprotected", Some(why));
            }
            let failed = history.reclone_error.as_ref();
            let failed = failed.map_or(String::new(), |error| format!("; no new one could be made: {error}"));
            ("reprotecting", Some(why + &failed))
        }
    }
}

fn process(
    found: &Found,
    meta: &Meta,
    snapshot: &Snapshot,
    progress: &Progress,
    supervised: bool,
) -> GuestProcess {
    let primary = found.primary().unwrap_or(meta.primary);
    let primary = proc::read(primary.pid).map(|process| PrimaryCopy {
        pid: primary.pid,
        threads: process.threads,
        cpu_s: process.cpu_s,
        rss_bytes: process.rss_bytes,
    });
    let standby = found.standby().filter(|_| supervised);
    let standbys = standby.and_then(|standby| Some((standby.pid, proc::read(standby.pid)?)));
    GuestProcess {
        guest_pid: snapshot.guest_pid(),
        primary,
        standbys: standbys
            .map(|(pid, process)| StandbyCopy {
                pid,
                state: standby_state(snapshot, progress),
                lag_events: progress.lag_events,
                lag_bytes: progress.lag_bytes,
                cpu_s: process.cpu_s,
                rss_bytes: process.rss_bytes,
            })
            .into_iter()
            .collect(),
    }
}

fn standby_state(snapshot: &Snapshot, progress: &Progress) -> &'static str {
    let cause = snapshot.why().map(|(code, _)| code).filter(|_| snapshot.dropped());
    match snapshot.state() {
        _ if cause == Some(Cause::Diverged as u32) => "diverged",
        _ if cause == Some(Cause::Behind as u32) => "behind",
        GroupState::Starting => "cloning",
        GroupState::Promoting => "promoting",
        // The primary would soon have to wait for room.
        _ if progress.lag_bytes_max > RING_BYTES as u64 / 2 => "behind",
        _ => "following",
    }
}

fn guarantee(state: &str, why: Option<&str>, history: &History) -> String {
    let so_far = match history.unsettled {
        0 => String::new(),
        count => format!("; {count} calls of earlier failovers may have been done twice or not at all"),
    };
    match state {
        "protected" => format!("exactly once; survives process death on this machine{so_far}"),
        _ => format!("none{}{so_far}", why.map_or(String::new(), |why| format!(": {why}"))),
    }
}
