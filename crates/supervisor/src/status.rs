//! `status`: every group, its copies and what happened to it. The fields are those of `status --json`.

use std::collections::{BTreeMap, VecDeque};

use serde::Serialize;
use us_abi::{CLASS_NAMES, CLASSES, Cause, GroupState, RING_BYTES};

use crate::computed::Computed;
use crate::ended::{self, Ended};
use crate::error::Error;
use crate::folder::{self, Found, Meta, Recording};
use crate::gate::{GATE, Standing};
use crate::history::{Divergence, Failover, History, Lost, Reclone};
use crate::place::{self, Other};
use crate::recorder::cluster::MACHINES;
use crate::recorder::replay::mirror::{Following, MIRROR};
use crate::reprotect::{self, Situation};
use crate::snapshot::{Listed, Progress, Snapshot, call_name};
use crate::{clock, proc};

/// What `status --json` prints.
#[derive(Clone, Debug, Serialize)]
pub struct Status {
    /// Version of these fields.
    pub version: u32,
    /// In order of their names.
    pub groups: Vec<Group>,
    /// Of other users, for root: how many, and no more.
    pub others: Vec<Other>,
    /// Those that have ended in the last day, the last one first.
    pub ended: Vec<Ended>,
}

/// One group.
#[derive(Clone, Debug, Serialize)]
pub struct Group {
    /// Its name.
    pub name: String,
    /// `--order`.
    pub order: String,
    /// Promotions so far, of all processes.
    pub epoch: u32,
    /// `starting`, `protected`, `reprotecting`, `unprotected`, `ended`: the program's own, or when that has ended the
    /// oldest other process's.
    pub state: &'static str,
    /// Why it is unprotected.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub why: Option<String>,
    /// Share of its life under protection, 0 to 1.
    pub protected_share: f64,
    /// For how long it has been protected without a break, seconds; 0 while it is not.
    pub protected_s: f64,
    /// Its start, RFC 3339.
    pub since: String,
    /// PROGRAM and its arguments.
    pub program: Vec<String>,
    /// Pid of its supervisor, 0 when that is gone.
    pub supervisor_pid: u32,
    /// Its processes, the program itself first, the others in the order of their births.
    pub processes: Vec<GuestProcess>,
    /// Events published.
    pub events_total: u64,
    /// Bytes published.
    pub bytes_total: u64,
    /// Events applied, by class.
    pub events_by_class: BTreeMap<&'static str, u64>,
    /// The last thousand, in order; `epoch` is how many there have been.
    pub failovers: VecDeque<Failover>,
    /// How many have been written down: one is when it is known how the primary ended, a moment after `epoch` counts it.
    pub failovers_total: u64,
    /// Calls of all failovers of which nobody can say whether they were done.
    pub unsettled_total: u64,
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
    /// Processes that were killed and that nobody took over for: the last thousand, in order. The last of them are listed with
    /// the others, as `lost`.
    pub lost: VecDeque<Lost>,
    /// How many there have been.
    pub lost_total: u64,
    /// Calls that cannot be replayed, by name.
    pub refused_calls: BTreeMap<String, u32>,
    /// Signals that waited too long for a thread's next door.
    pub signals_late: u64,
    /// The recording that is written, if there is one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub recording: Option<Recording>,
    /// The other machine whose program this group mirrors, and how far it is.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mirror: Option<Following>,
    /// The gate of its service's address.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gate: Option<Standing>,
    /// Other machines that keep the recording.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub machines: Vec<node::Seen>,
    /// The probe, if there is one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub probe: Option<Probe>,
    /// How long threads of the processes that live have waited for a standby that had to free room in a full ring, ms.
    pub lag_waits_ms: u64,
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
    /// Its parent's, 0 if that is not of the group or has ended.
    pub parent_pid: u32,
    /// The name of its program, as `ps` shows it.
    pub program: String,
    /// As the group's, and `lost`: killed, and nobody took over.
    pub state: &'static str,
    /// It is not protected, and is to be in a moment.
    #[serde(skip)]
    pub is_coming: bool,
    /// Since its birth, seconds.
    pub age_s: f64,
    /// The version of the runtime in it, with the beginning of its build id.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub runtime: Option<String>,
    /// How its threads are ordered: `schedule`, `serial` with turns, or `deterministic`.
    pub order: &'static str,
    /// Of an order that is computed: what it has come to.
    #[serde(flatten)]
    pub computed: Option<Computed>,
    /// Why it is unprotected.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub why: Option<String>,
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
/// [`Error::NoSuchGroup`] when `name` is given, and none of that name runs or has ended in the last day.
pub fn read(name: Option<&str>) -> Result<Status, Error> {
    let groups: Vec<Group> = folder::groups()
        .iter()
        .filter(|found| name.is_none_or(|name| found.name == name))
        .filter(|found| found.has_supervisor() || !found.remove_if_dead())
        .filter_map(group)
        .collect();
    let is_meant = |ended: &Ended| match name {
        // One that runs again has the name now.
        Some(name) => ended.name == name && groups.is_empty(),
        None => true,
    };
    let ended: Vec<Ended> = ended::all().into_iter().filter(is_meant).collect();
    match name {
        Some(name) if groups.is_empty() && ended.is_empty() => Err(Error::NoSuchGroup(name.into())),
        _ => Ok(Status { version: 1, groups, others: place::others(), ended }),
    }
}

/// One process as it is found.
struct Member {
    guest_pid: u32,
    parent_pid: u32,
    /// Kernel's pid of its primary.
    primary: u32,
    /// `None` when it has not joined.
    snapshot: Option<Snapshot>,
    progress: Progress,
    state: &'static str,
    why: Option<String>,
    /// Since its birth, seconds.
    age_s: f64,
}

impl Member {
    /// Whether it is not protected, and is to be in a moment.
    fn is_coming(&self) -> bool {
        match self.snapshot.as_ref().map(Snapshot::state) {
            None => self.age_s < YOUNG_S,
            // Behind, or between two.
            Some(GroupState::Starting | GroupState::Protected | GroupState::Promoting) => {
                self.state != "protected"
            }
            Some(_) => self.state == "reprotecting",
        }
    }

    /// Whether it has a standby that would take over, or does at this moment: it is there without a primary, too.
    fn goes_on(&self) -> bool {
        let state = self.snapshot.as_ref().map(Snapshot::state);
        matches!(state, Some(GroupState::Protected | GroupState::Promoting))
    }
}

/// What all processes come to, those that have ended included.
#[derive(Default)]
struct Sums {
    epoch: u32,
    events: u64,
    bytes: u64,
    by_class: [u64; CLASSES],
    refused: BTreeMap<String, u32>,
    room_wait_ns: u64,
}

/// `None` when the group ended while it was looked at.
fn group(found: &Found) -> Option<Group> {
    let meta = found.meta()?;
    let history: History = found.read_json("history.json").unwrap_or_default();
    let supervised = found.has_supervisor();
    let all = members(found, &meta, &history, supervised);
    let sums = sums(&history, &all);
    // One that has ended, and whose parent has not asked yet, is there no more. The program's own end is the group's.
    let is_alive = |pid| found.is_ours(pid) && proc::read(pid).is_some_and(|process| process.alive());
    let is_there =
        |member: &Member| member.guest_pid == meta.root || member.goes_on() || is_alive(member.primary);
    let members: Vec<Member> = all.into_iter().filter(is_there).collect();
    let lead = members.iter().find(|member| member.guest_pid == meta.lead).or(members.first());
    let mirror: Option<Following> = found.read_json(MIRROR);
    let (state, why) = match lead {
        Some(lead) => (lead.state, lead.why.clone()),
        // One that must not follow has no process, and says why.
        None if mirror.is_some() && supervised => ("astray", None),
        None => elsewhere(found, &history, supervised)?,
    };
    let state = match mirror.as_ref().map(|mirror| mirror.state.as_str()) {
        None => state,
        Some(own) => {
            ["following", "apart", "joining"].into_iter().find(|known| *known == own).unwrap_or("astray")
        }
    };
    let why = why.filter(|_| mirror.is_none());
    let lost = history.lost.last.iter().rev().take(LOST_SHOWN).rev().map(lost_process);
    Some(Group {
        name: found.name.clone(),
        order: order_of_group(&meta.order, &members),
        epoch: sums.epoch,
        state,
        protected_share: history.stretches.protected_share(meta.since_ns, clock::monotonic_ns()),
        protected_s: match state {
            "protected" => seconds_since(history.stretches.protected_since_ns),
            _ => 0.0,
        },
        supervisor_pid: if supervised { meta.supervisor.pid } else { 0 },
        processes: members.iter().map(|member| process(found, member, supervised)).chain(lost).collect(),
        since: meta.since,
        program: meta.program,
        events_total: sums.events,
        bytes_total: sums.bytes,
        events_by_class: CLASS_NAMES.into_iter().zip(sums.by_class).collect(),
        guarantee: guarantee(state, why.as_deref(), &history),
        failovers_total: history.failovers.total,
        unsettled_total: history.unsettled,
        failovers: history.failovers.last,
        reclones: history.reclones.last,
        reclones_total: history.reclones.total,
        reclones_failed: history.failed_reclones,
        divergences: history.divergences.last,
        divergences_total: history.divergences.total,
        lost: history.lost.last,
        lost_total: history.lost.total,
        recording: meta.recording,
        machines: found.read_json(MACHINES).unwrap_or_default(),
        gate: found.read_json(GATE),
        mirror,
        probe: meta.probe.map(|command| Probe { command, waits: state != "protected" }),
        refused_calls: sums.refused,
        lag_waits_ms: sums.room_wait_ns / 1_000_000,
        signals_late: history.signals_late,
        why,
    })
}

/// State of a group whose segment is of another version of Understudy's: its supervisor, which is too, has written down whether
/// there is a standby. `None` when the group has ended.
fn elsewhere(found: &Found, history: &History, supervised: bool) -> Option<(&'static str, Option<String>)> {
    let has_segment = found.dir.identity(folder::SEGMENT).is_some();
    let why = "it runs under another version of understudy, which does not show more to this one";
    let state = if history.stretches.protected_since_ns > 0 { "protected" } else { "unprotected" };
    (has_segment && supervised).then(|| (state, Some(why.into())))
}

/// The group's processes, the program itself first.
fn members(found: &Found, meta: &Meta, history: &History, supervised: bool) -> Vec<Member> {
    let mut members: Vec<Member> = root(found, meta)
        .into_iter()
        .map(|listed| member(found, meta, history, &listed, supervised))
        .collect();
    let others = found.roster().into_iter().filter(|listed| listed.pid != meta.root);
    members.extend(others.map(|listed| member(found, meta, history, &listed, supervised)));
    members
}

/// The program itself, while it has not ended: its segment speaks for it.
fn root(found: &Found, meta: &Meta) -> Option<Listed> {
    let snapshot = found.snapshot(meta, meta.root)?;
    let ended = snapshot.state() == GroupState::Ended && meta.lead != meta.root;
    let primary = if meta.lead == meta.root { found.primary().unwrap_or(meta.primary).pid } else { 0 };
    let guest_pid = snapshot.guest_pid();
    (!ended).then_some(Listed {
        pid: guest_pid,
        parent: 0,
        primary,
        joined: true,
        born_ns: meta.since_ns,
        is_first: true,
    })
}

fn member(found: &Found, meta: &Meta, history: &History, listed: &Listed, supervised: bool) -> Member {
    let snapshot = listed.joined.then(|| found.snapshot(meta, listed.pid)).flatten();
    let age_s = seconds_since(listed.born_ns);
    let (state, why) = match &snapshot {
        Some(snapshot) => state_and_why(meta, snapshot, history, supervised),
        None => ("unprotected", Some(why_not_joined(found, listed, age_s))),
    };
    Member {
        guest_pid: listed.pid,
        parent_pid: listed.parent,
        // Of one moment with the state.
        primary: snapshot.as_ref().map_or(listed.primary, Snapshot::primary_pid),
        progress: snapshot.as_ref().map(Snapshot::progress).unwrap_or_default(),
        snapshot,
        state,
        why,
        age_s,
    }
}

/// Time since a moment of CLOCK_MONOTONIC; 0 where there was none.
fn seconds_since(ns: u64) -> f64 {
    if ns == 0 { 0.0 } else { clock::monotonic_ns().saturating_sub(ns) as f64 / 1e9 }
}

/// Who has not joined in this time does not join at all.
const YOUNG_S: f64 = 1.0;

/// What a process takes of a file system to begin its log there, and a little of what the others take meanwhile.
const BEGINNING: u64 = 2 << 20;

fn why_not_joined(found: &Found, listed: &Listed, age_s: f64) -> String {
    let is_full = || place::free(&found.dir).is_some_and(|free| free < BEGINNING);
    match listed.joined {
        _ if age_s < YOUNG_S => "it has just been made".into(),
        true => "it is not watched".into(),
        false if is_full() => format!(
            "it could not join where there is no room: {}; the way out is {}",
            found.dir.path().display(),
            place::WAY_OUT
        ),
        false => "it is not under the runtime".into(),
    }
}

fn sums(history: &History, members: &[Member]) -> Sums {
    let ended = &history.ended;
    let mut sums = Sums {
        epoch: ended.epochs,
        events: ended.events,
        bytes: ended.bytes,
        by_class: ended.by_class,
        refused: BTreeMap::new(),
        room_wait_ns: 0,
    };
    let mut refused: Vec<(u32, u32)> = ended.refused.iter().map(|(call, count)| (*call, *count)).collect();
    for member in members {
        sums.events += member.progress.applied + member.progress.lag_events;
        sums.bytes += member.progress.bytes;
        for (sum, count) in sums.by_class.iter_mut().zip(member.progress.by_class) {
            *sum += count;
        }
        if let Some(snapshot) = &member.snapshot {
            sums.epoch += snapshot.epoch();
            sums.room_wait_ns += snapshot.room_wait_ns();
            refused.extend(snapshot.refused());
        }
    }
    for (call, count) in refused {
        *sums.refused.entry(call_name(call as usize)).or_default() += count;
    }
    sums
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
        GroupState::Protected => match history.behind.get(&snapshot.guest_pid()) {
            None => ("protected", None),
            Some(since) => ("unprotected", Some(format!("{BEHIND}, as of {since}"))),
        },
        GroupState::Ended => ("ended", None),
        GroupState::Promoting => {
            let since_s = clock::monotonic_ns().saturating_sub(snapshot.death_ns()) / 1_000_000_000;
            let why = match since_s {
                1..1_000_000 => format!("the standby has been taking over for {since_s} seconds"),
                _ => "the standby is taking over".into(),
            };
            ("unprotected", Some(why))
        }
        GroupState::Unprotected => {
            let unsaid = if snapshot.is_recorded() { "it is being recorded" } else { "no reason was given" };
            let (cause, why) = snapshot.why().unwrap_or_else(|| (0, unsaid.into()));
            let situation = Situation {
                state: GroupState::Unprotected,
                cause,
                leaving: snapshot.leaving(),
                has_runtime: snapshot.has_runtime(),
            };
            let wanted = reprotect::is_wanted(meta.standbys, meta.reprotect, cause);
            if !wanted || !reprotect::is_due(situation) {
                return ("unprotected", Some(why));
            }
            let failed = history.reclone_errors.get(&snapshot.guest_pid());
            let failed = failed.map_or(String::new(), |error| format!("; no new one could be made: {error}"));
            ("reprotecting", Some(why + &failed))
        }
    }
}

fn process(found: &Found, member: &Member, supervised: bool) -> GuestProcess {
    let is_ours = found.is_ours(member.primary);
    let primary = proc::read(member.primary).filter(|_| is_ours).map(|process| PrimaryCopy {
        pid: member.primary,
        threads: process.threads,
        cpu_s: process.cpu_s,
        rss_bytes: process.rss_bytes,
    });
    let standby = member.snapshot.as_ref().filter(|_| supervised).and_then(|snapshot| {
        let pid = Some(snapshot.standby_pid()).filter(|pid| found.is_ours(*pid))?;
        let process = proc::read(pid)?;
        Some(StandbyCopy {
            pid,
            state: match &member.why {
                Some(why) if why.starts_with(BEHIND) => "behind",
                _ => standby_state(snapshot, &member.progress),
            },
            lag_events: member.progress.lag_events,
            lag_bytes: member.progress.lag_bytes,
            cpu_s: process.cpu_s,
            rss_bytes: process.rss_bytes,
        })
    });
    GuestProcess {
        guest_pid: member.guest_pid,
        parent_pid: member.parent_pid,
        program: proc::name(member.primary).unwrap_or_default(),
        state: member.state,
        is_coming: member.is_coming(),
        age_s: member.age_s,
        runtime: member.snapshot.as_ref().and_then(Snapshot::runtime),
        order: order(member),
        computed: member.snapshot.as_ref().and_then(Snapshot::computed),
        why: member.why.clone(),
        primary,
        standbys: standby.into_iter().chain(spares(found, member, supervised)).collect(),
    }
}

/// Lost processes that are listed with those that live, at most.
const LOST_SHOWN: usize = 16;

/// One that is no more.
fn lost_process(lost: &Lost) -> GuestProcess {
    GuestProcess {
        guest_pid: lost.process,
        parent_pid: lost.parent,
        program: lost.program.clone(),
        state: "lost",
        is_coming: false,
        age_s: 0.0,
        runtime: None,
        order: "schedule",
        computed: None,
        why: Some(lost.why.clone()),
        primary: None,
        standbys: Vec::new(),
    }
}

fn order(member: &Member) -> &'static str {
    member.snapshot.as_ref().map_or("schedule", Snapshot::order)
}

/// What was asked for; with `auto`, as it is with the first process.
fn order_of_group(asked: &str, members: &[Member]) -> String {
    match asked {
        "auto" => members.first().map_or("schedule", order).into(),
        asked => asked.into(),
    }
}

/// The standbys besides the one that takes over.
fn spares(found: &Found, member: &Member, supervised: bool) -> Vec<StandbyCopy> {
    let Some(snapshot) = member.snapshot.as_ref().filter(|_| supervised) else { return Vec::new() };
    let copy = |(seat, pid): (usize, u32)| {
        let process = proc::read(pid).filter(|_| found.is_ours(pid))?;
        let progress = snapshot.progress_at(seat);
        let behind = progress.lag_bytes_max > RING_BYTES as u64 / 2;
        Some(StandbyCopy {
            pid,
            state: if behind { "behind" } else { "following" },
            lag_events: progress.lag_events,
            lag_bytes: progress.lag_bytes,
            cpu_s: process.cpu_s,
            rss_bytes: process.rss_bytes,
        })
    };
    snapshot.spares().into_iter().filter_map(copy).collect()
}

/// Of a standby that a kill would have to wait for, perhaps for ever.
const BEHIND: &str = "the standby is behind: it has not applied what was logged half a second ago";

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
    let lost = match (history.lost.total, history.lost.last.back()) {
        (0, _) | (_, None) => String::new(),
        (1, Some(lost)) => format!("; process {} was lost at {}: {}", lost.process, lost.at, lost.why),
        (count, Some(lost)) => {
            format!("; {count} processes were lost, {} the last, at {}: {}", lost.process, lost.at, lost.why)
        }
    };
    match state {
        "protected" => format!("exactly once; survives process death on this machine{so_far}{lost}"),
        _ => format!("none{}{so_far}{lost}", why.map_or(String::new(), |why| format!(": {why}"))),
    }
}
