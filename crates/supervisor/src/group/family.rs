//! When the processes of a group that share memory get their standbys, all at one moment, and lose them.

use std::collections::HashSet;
use std::sync::atomic::Ordering;

use us_abi::{FAMILY_HOPELESS, broken, phase};
use us_order::family::{Phase, are_all};
use us_order::reclone::{Backoff, Loss};

use super::Group;
use crate::options::Verbosity;
use crate::proc::Object;
use crate::segment::read_text;
use crate::watch::Watch;
use crate::{clock, family, proc};

/// Between two looks whether all are ready, ns.
const LOOK_NS: u64 = 5_000_000;
/// How long the forming may take, ns.
const FORM_NS: u64 = 4_000_000_000;
/// Looks at processes of which one cannot be a member, until that is given up.
const LOOKS_MAX: u32 = 2_000;

/// What is known of families formed and ended.
#[derive(Debug, Default)]
pub(super) struct Kinship {
    backoff: Backoff,
    /// When to look again, CLOCK_MONOTONIC ns.
    pub(super) look_at_ns: Option<u64>,
    /// Not before this.
    not_before_ns: u64,
    /// When the present one began to be formed, and when it was complete.
    begun_ns: u64,
    complete_ns: u64,
    looks: u32,
}

impl Group<'_> {
    /// Acts on what has become of the family.
    pub(super) fn drive_family(&mut self) {
        self.kinship.look_at_ns = None;
        let now = clock::monotonic_ns();
        match family::state(&self.roster) {
            Phase::None => self.form(now),
            Phase::Forming if now > self.kinship.begun_ns + FORM_NS => self.end_family(now),
            Phase::Forming => {
                self.kinship.look_at_ns = Some(now + LOOK_NS);
                self.verify();
            }
            Phase::Active if self.kinship.complete_ns == 0 => self.is_complete(now),
            Phase::Broken => self.end_family(now),
            _ => {}
        }
    }

    /// All stand still: looks whether they are all who share the memory. A child that was made meanwhile may not have come to
    /// list itself.
    fn verify(&mut self) {
        let family = self.roster.family();
        let number = family.number.load(Ordering::Acquire);
        let all = family.members.load(Ordering::Acquire);
        let standing = family.standing.load(Ordering::Acquire);
        if family.verified.load(Ordering::Acquire) == number || !are_all(standing, all) {
            return;
        }
        let folder = self.dir().path().to_string_lossy().into_owned();
        let is_one =
            |watch: &&crate::watch::Watch| family::has(&self.roster, watch.shared().segment.header());
        let members: HashSet<u32> =
            self.watches.iter().filter(is_one).map(|watch| watch.primary().pid).collect();
        let objects: HashSet<Object> = members
            .iter()
            .flat_map(|pid| proc::common_memory(*pid, &folder))
            .map(|(object, _)| object)
            .collect();
        let has_one =
            |pid: u32| proc::common_memory(pid, &folder).iter().any(|(object, _)| objects.contains(object));
        let own = std::process::id();
        let stranger = proc::all()
            .filter(|pid| !members.contains(pid) && proc::is_descendant(*pid, own))
            .find(|pid| has_one(*pid));
        match stranger {
            None => family.verified.store(number, Ordering::SeqCst),
            Some(pid) => {
                let why = format!("process {pid} has joined meanwhile");
                family::give_up(&self.roster, &why);
                self.end_family(clock::monotonic_ns());
            }
        }
    }

    /// Whether no family is there, nor comes, for the moment. One that is there is ended: a checkpoint is taken of processes that
    /// stand by themselves.
    pub(super) fn is_none_there(&self) -> bool {
        let why = "a checkpoint is taken";
        if family::state(&self.roster) == Phase::Active {
            let headers = self.watches.iter().map(|watch| watch.shared().segment.header());
            headers.for_each(|header| family::break_up(&self.roster, header, broken::MEMBERS, why));
        }
        family::state(&self.roster) == Phase::None
    }

    fn is_complete(&mut self, now: u64) {
        self.kinship.complete_ns = now;
        self.kinship.looks = 0;
        let members = self.roster.family().members.load(Ordering::Acquire);
        let line = format!("{}: {members} processes that share memory follow one order", self.name());
        self.say(Verbosity::Verbose, &line);
    }

    /// At the end of a family. Until then a child that opens memory by its name maps the copy by its own: one that had gone
    /// would be made anew, and empty.
    fn remove_copies(&self, number: u32) {
        let folder = self.dir();
        for region in 0..us_abi::REGIONS_MAX {
            let _ = folder.remove(format!("family.{number}.{region}"));
        }
    }

    /// One of the logs has ended: so have all.
    fn end_family(&mut self, now: u64) {
        let family = self.roster.family();
        let (code, why) = read_text(&family.why).unwrap_or_default();
        let line = format!("{}: the order of processes that share memory has ended: {why}", self.name());
        self.say(Verbosity::Verbose, &line);
        let number = family.number.load(Ordering::Acquire);
        family.state.0.store(phase::BROKEN, Ordering::SeqCst);
        let roster = std::sync::Arc::clone(&self.roster);
        for watch in &mut self.watches {
            if family::has(&roster, watch.shared().segment.header()) {
                watch.leave_family();
            }
        }
        self.remove_copies(number);
        let kinship = &mut self.kinship;
        let delay_ns = match kinship.complete_ns {
            // It says nothing against the next one, whose members may stay for long.
            0 if code == broken::MEMBERS => kinship.backoff.overtaken(now.saturating_sub(kinship.begun_ns)),
            0 => kinship.backoff.lost(Loss::Dropped, 0, 0),
            since_ns => kinship.backoff.lost(Loss::Dropped, now.saturating_sub(since_ns), 0),
        };
        self.kinship.not_before_ns = now + delay_ns;
        self.kinship.complete_ns = 0;
        let family = self.roster.family();
        family.wanted.store(1, Ordering::Release);
        family.state.0.store(phase::NONE, Ordering::SeqCst);
        self.kinship.look_at_ns = Some(self.kinship.not_before_ns);
    }

    /// Forms a family if one is wanted, and all who are to be of it stand ready.
    fn form(&mut self, now: u64) {
        if self.roster.family().wanted.load(Ordering::Acquire) != 1 {
            return;
        }
        if self.checkpoint_by.is_some() || self.watches.iter().any(Watch::stands_for_checkpoint) {
            // It has ended for a checkpoint's sake.
            self.kinship.look_at_ns = Some(now + LOOK_NS);
            return;
        }
        self.kinship.complete_ns = 0;
        if now < self.kinship.not_before_ns {
            self.kinship.look_at_ns = Some(self.kinship.not_before_ns);
            return;
        }
        let folder = self.dir().path().to_string_lossy().into_owned();
        let members = self.members(&folder);
        let Some(members) = members else { return self.look_later(now) };
        if members.is_empty() {
            self.roster.family().wanted.store(0, Ordering::Release);
            // Who is told that it belongs to others asks for nothing by itself, and would not find that it does.
            self.watches.iter_mut().for_each(|watch| watch.set_kin(false));
            return;
        }
        let mut ready = true;
        for (at, watch) in self.watches.iter_mut().enumerate() {
            let is_one = members.contains(&at);
            watch.set_kin(is_one);
            ready &= !is_one || watch.is_ready_for_family();
        }
        if !ready {
            return self.look_later(now);
        }
        self.remove_copies(self.roster.family().number.load(Ordering::Acquire));
        let number = family::begin(self.roster.family(), members.len() as u32);
        self.kinship.begun_ns = now;
        self.kinship.look_at_ns = Some(now + LOOK_NS);
        for at in members {
            self.watches[at].ask_for_family(number);
        }
    }

    fn look_later(&mut self, now: u64) {
        self.kinship.looks += 1;
        self.kinship.look_at_ns = Some(now + LOOK_NS);
        if self.kinship.looks > LOOKS_MAX {
            // One of them cannot be asked. Each gets a standby by itself, as good as that can be.
            self.roster.family().wanted.store(FAMILY_HOPELESS, Ordering::Release);
            self.watches.iter_mut().for_each(|watch| watch.set_kin(false));
        }
    }

    /// Which of those that are watched share memory of that size. `None` while another process has it, too.
    fn members(&self, folder: &str) -> Option<Vec<usize>> {
        let shared: Vec<Vec<(Object, u64)>> =
            self.watches.iter().map(|watch| proc::common_memory(watch.primary().pid, folder)).collect();
        let least = self.roster.family().least();
        let is_large = |all: &Vec<(Object, u64)>| all.iter().map(|(_, bytes)| bytes).sum::<u64>() >= least;
        let objects: HashSet<&Object> =
            shared.iter().filter(|all| is_large(all)).flatten().map(|(object, _)| object).collect();
        let has_one = |all: &Vec<(Object, u64)>| all.iter().any(|(object, _)| objects.contains(object));
        let watched: HashSet<u32> = self.watches.iter().map(|watch| watch.primary().pid).collect();
        let strangers = self.roster.listed().map(|(place, _)| self.roster.primary_of(place));
        for pid in strangers.filter(|pid| !watched.contains(pid)) {
            if has_one(&proc::common_memory(pid, folder)) && proc::read(pid).is_some_and(|one| one.alive()) {
                return None;
            }
        }
        Some(shared.iter().enumerate().filter(|(_, all)| has_one(all)).map(|(at, _)| at).collect())
    }
}
