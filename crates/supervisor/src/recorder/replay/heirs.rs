//! Who goes on when a mirror takes over: the program, and the children that it has made by forks. They take over together: a connection
//! may be several processes'.

use std::io;
use std::mem::offset_of;
use std::sync::atomic::Ordering;
use std::time::Duration;

use us_abi::{Config, SegmentHeader, command};

use super::Replay;
use crate::checkpoint::restore::Restored;
use crate::child::Child;
use crate::error::Error;
use crate::reap::Reaped;
use crate::recorder::feed::Fed;
use crate::recorder::rings::Rings;
use crate::roster::Roster;
use crate::{clock, proc, roster, segment, spawn};

/// So long a process may take to be live.
const LIVE_NS: u64 = 20_000_000_000;

/// So long one may take to end.
const END_NS: u64 = 1_000_000_000;

/// A process that goes on.
pub(super) struct Heir {
    pub(super) fed: Fed,
    pub(super) child: Child,
}

impl Replay<'_> {
    /// The program, and then its children. Besides those whose end is in no log, by their images: a child that has executed something
    /// has nothing here of what it was given.
    pub(super) fn heirs(&mut self) -> Option<(Vec<Heir>, Vec<u32>)> {
        let root = self.root.as_ref()?.image;
        let (mut heirs, mut ended) = (Vec::new(), Vec::new());
        for fed in std::mem::take(&mut self.fed) {
            let goes_on = self.kin.contains(&fed.image) && fed.ending.is_none();
            match Child::of_child(fed.process()).filter(|child| goes_on && child.is_alive()) {
                Some(child) => heirs.push(Heir { fed, child }),
                None => ended.push(fed),
            }
        }
        let ends = ended.into_iter().filter_map(|fed| self.end_one(&fed)).collect();
        let at = heirs.iter().position(|heir| heir.fed.image == root)?;
        heirs[..=at].rotate_right(1);
        // Children of which the log has nothing yet wait for that.
        let is_unwanted = |pid: &u32| heirs.iter().all(|heir| heir.child.pid != *pid);
        proc::children(std::process::id()).filter(is_unwanted).for_each(end);
        for heir in &heirs {
            self.enter(heir);
        }
        Some((heirs, ends))
    }

    /// The process ends here, as by a signal if the log does not say how; then it is told by its image.
    fn end_one(&self, fed: &Fed) -> Option<u32> {
        // What is recorded from here on has no part of it.
        let _ = std::fs::remove_file(&fed.path);
        let process = fed.process();
        if process > 1 && proc::is_descendant(process, std::process::id()) {
            end(process);
        }
        if fed.ending.is_some() {
            return None;
        }
        if let Some((place, _)) = self.roster.find(fed.pid) {
            self.roster.ended(place, &Reaped::by(libc::SIGKILL), |_| true);
        }
        Some(fed.image)
    }

    fn enter(&self, heir: &Heir) {
        let (guest_pid, pid) = (heir.fed.pid, heir.child.pid);
        let found = self.roster.find(guest_pid);
        let at = found.map_or(roster::ROOT, |(place, _)| place.at);
        self.roster.enter_restored(at, guest_pid, pid, false);
        if let Some((_, entry)) = found.filter(|_| at != roster::ROOT) {
            // It has a segment.
            entry.joined.store(1, Ordering::Release);
            entry.has_inherited.store(1, Ordering::Release);
        }
    }
}

/// Ends a process, and waits for a while until it is gone.
fn end(pid: u32) {
    spawn::signal(pid, libc::SIGKILL);
    let is_gone = || proc::read(pid).is_none_or(|process| !process.alive());
    let until_ns = clock::monotonic_ns() + END_NS;
    while !is_gone() && clock::monotonic_ns() < until_ns {
        std::thread::sleep(Duration::from_micros(200));
    }
}

impl Heir {
    /// Its segment is a program's from here on, and no replay's. Of the machine that has it now, if its log goes on.
    pub(super) fn is_program(&self, config: &Config, recorded_by: Option<u64>) -> Result<(), Error> {
        if let Some(machine) = recorded_by {
            self.fed.rings.is_taken_from_here();
            self.fed.rings.segment.connection_table().machine.store(machine, Ordering::Release);
        }
        write_config(&self.fed.rings, config).map_err(|cause| Error::file("write", &self.fed.path, cause))
    }

    /// As if its primary had just died, and the log were at its end.
    fn promote(&self) {
        let header = self.fed.rings.segment.header();
        header.standby_pid.store(0, Ordering::Release);
        header.death_ns.0.store(clock::monotonic_ns(), Ordering::Release);
        header.chosen.store(self.child.pid, Ordering::Release);
        header.promotions.store(1, Ordering::Release);
        let word = &header.command.0;
        word.store(command::PROMOTE, Ordering::Release);
        segment::wake(word);
    }

    /// Whether its listeners are there, and it waits for its connections.
    fn asks(&self) -> bool {
        let asked = &self.fed.rings.segment.connection_table().rebuild;
        asked.load(Ordering::Acquire) == us_abi::rebuild::ASKED
    }

    /// It is live: it is told to take over no more.
    pub(super) fn has_taken_over(&self) {
        let word = &self.fed.rings.segment.header().command.0;
        let _ = word.compare_exchange(command::PROMOTE, command::FOLLOW, Ordering::AcqRel, Ordering::Acquire);
    }

    fn goes_on(&self) {
        let asked = &self.fed.rings.segment.connection_table().rebuild;
        asked.store(us_abi::rebuild::DONE, Ordering::Release);
        segment::wake(asked);
    }

    fn live_ns(&self) -> Option<u64> {
        let live_ns = self.fed.rings.segment.header().live_ns.load(Ordering::Acquire);
        Some(live_ns).filter(|live_ns| *live_ns != 0)
    }

    /// Waits until `is_there`, or it is clear that this will not be.
    fn is_to(&self, until_ns: u64, is_there: impl Fn(&Heir) -> bool) -> bool {
        while !is_there(self) {
            if !self.child.is_alive() || clock::monotonic_ns() > until_ns {
                return false;
            }
            std::thread::sleep(Duration::from_micros(200));
        }
        true
    }

    /// Why it has not come to be live.
    pub(super) fn why_not(&self) -> String {
        self.fed.divergence().unwrap_or_else(|| "it did not come to be live".into())
    }

    /// For the group that watches it.
    pub(super) fn restored(self, roster: &Roster) -> Restored {
        let at = roster.find(self.fed.pid).map_or(roster::ROOT, |(place, _)| place.at);
        Restored { place: at, pid: self.fed.pid, child: self.child, segment: Some(self.fed.rings.segment) }
    }
}

/// Has all of them take over, and `rebuild` make the connections of those that are there. When each was live, if it came to be.
pub(super) fn take_over(heirs: &[Heir], rebuild: impl FnOnce(&[&Heir])) -> Vec<Option<u64>> {
    let until_ns = clock::monotonic_ns() + LIVE_NS;
    // The program first: most have their listeners of it.
    let (program, children) = heirs.split_at(1.min(heirs.len()));
    for some in [program, children] {
        some.iter().for_each(Heir::promote);
        for heir in some {
            heir.is_to(until_ns, |heir| heir.asks() || heir.live_ns().is_some());
        }
    }
    let there: Vec<&Heir> = heirs.iter().filter(|heir| heir.asks()).collect();
    rebuild(&there);
    there.iter().for_each(|heir| heir.goes_on());
    let live = |heir: &Heir| {
        let is_live = heir.is_to(until_ns, |heir| heir.live_ns().is_some());
        if !is_live {
            spawn::signal(heir.child.pid, libc::SIGKILL);
        }
        heir.live_ns().filter(|_| is_live)
    };
    heirs.iter().map(live).collect()
}

/// What a segment says that it is for, anew: from a replay's to a program's.
fn write_config(rings: &Rings, config: &Config) -> io::Result<()> {
    let base = offset_of!(SegmentHeader, config);
    let words = [
        (offset_of!(Config, lag_timeout_ms), config.lag_timeout_ms),
        (offset_of!(Config, standbys), config.standbys),
        (offset_of!(Config, verify), config.verify),
        (offset_of!(Config, flags), config.flags),
        (offset_of!(Config, lead_us), config.lead_us),
    ];
    for (at, word) in words {
        rings.write_head(base + at, &word.to_ne_bytes())?;
    }
    rings.write_head(base + offset_of!(Config, lag_limit), &config.lag_limit.to_ne_bytes())
}
