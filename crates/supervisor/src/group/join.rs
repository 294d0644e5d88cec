//! The roster's news: who has joined the group.
//!
//! Whatever a guest says there is looked at before it is believed: a file of the right size and owner, a process that
//! descends from us. Most children of a shell are gone before we come to look, and nothing of them may stay.

use std::rc::Rc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex};

use us_abi::Process;
use us_abi::asked::SETTLED_NS;

use super::Group;
use crate::checkpoint::restore::Restored;
use crate::child::Child;
use crate::clock;
use crate::dir::Dir;
use crate::error::Error;
use crate::folder::member;
use crate::options::Verbosity;
use crate::roster::Place;
use crate::run::explain;
use crate::segment::Segment;
use crate::sentry::Shared;
use crate::watch::Watch;
use crate::{proc, spawn};

/// One that has been listed a moment ago may join, and be killed before it could say so.
const YOUNG_NS: u64 = 1_000_000_000;

/// Pause between two looks at the roster while there are such, and where nobody rings.
const LOOK_NS: u64 = 50_000_000;

/// Pause between two looks for such where there was none at the last.
const ASK_NS: u64 = 500_000_000;

/// Processor time after which a process computes, s.
const COMPUTES_S: f64 = 0.05;

/// Why a process that says it has joined is not watched.
enum Refusal {
    /// It has ended.
    Gone,
    /// It cannot be.
    Cannot(Error),
}

impl<'a> Group<'a> {
    /// Takes in whoever has joined since the last look.
    pub(super) fn read_roster(&mut self) {
        let news = Some(self.roster.header().news.0.load(Ordering::Acquire));
        let now = clock::monotonic_ns();
        if news == self.news && self.roster_at_ns.is_none_or(|at_ns| now < at_ns) {
            return;
        }
        self.news = news;
        let mut joined = Vec::new();
        let mut is_young = false;
        self.seen.retain(|place, _| self.roster.get(*place).is_some());
        self.roster.forget_ended(spawn::exists);
        for (place, entry) in self.roster.listed().filter(|(place, _)| *place != self.root) {
            let count = entry.joined.load(Ordering::Acquire);
            if count == 0 {
                is_young |= now.saturating_sub(place.born_ns) < YOUNG_NS;
            } else if self.seen.insert(place, count) != Some(count) {
                joined.push((place, self.roster.primary_of(place)));
            }
        }
        self.roster_at_ns = (is_young || self.is_without_reader).then_some(now + LOOK_NS);
        joined.into_iter().for_each(|(place, primary)| self.take_in(place, primary));
    }

    /// Looks for processes that compute and have not joined. They tell nobody of themselves.
    pub(super) fn ask_who_computes(&mut self) {
        let now = clock::monotonic_ns();
        if now < self.ask_at_ns {
            return;
        }
        let mut is_any = false;
        for (place, entry) in self.roster.listed().filter(|(place, _)| *place != self.root) {
            if entry.joined.load(Ordering::Acquire) == 0 {
                is_any = true;
                self.ask_to_join(place, entry, now);
            }
        }
        self.ask_at_ns = now + if is_any { SETTLED_NS } else { ASK_NS };
    }

    /// Asks a process to join that passes no door at which it could: it has computed for so long that it would have done so at its
    /// next call that may wait.
    fn ask_to_join(&self, place: Place, entry: &Process, now: u64) {
        use us_abi::asked::{MAY, NOW};
        if now.saturating_sub(place.born_ns) < SETTLED_NS || entry.asked.load(Ordering::Acquire) != MAY {
            return;
        }
        let pid = self.roster.primary_of(place);
        let computes = |process: proc::Process| process.state == 'R' && process.cpu_s >= COMPUTES_S;
        if !proc::read(pid).is_some_and(computes) || Child::of_descendant(pid).is_none() {
            return;
        }
        // From here on it executes nothing else.
        if entry.asked.compare_exchange(MAY, NOW, Ordering::AcqRel, Ordering::Acquire).is_ok() {
            if proc::takes_nudges(pid) {
                spawn::nudge(pid, pid);
            }
            let _ = entry.asked.compare_exchange(NOW, MAY, Ordering::AcqRel, Ordering::Acquire);
        }
    }

    fn take_in(&mut self, place: Place, primary: u32) {
        // One that has made itself another segment: what we had of it is no more.
        if let Some(at) = self.watches.iter().position(|watch| watch.shared().place == place) {
            let standby = self.watches.remove(at).let_go();
            self.outcome.dying.extend(standby);
        }
        match self.admit(place, primary) {
            Ok(watch) => self.watches.push(watch),
            Err(refusal) => {
                if let Refusal::Cannot(cause) = &refusal {
                    let line = format!(
                        "{}: process {} runs unprotected: {}",
                        self.name(),
                        place.pid,
                        explain(cause)
                    );
                    self.say(Verbosity::Normal, &line);
                }
                // Nobody will take over for it: its parent need not wait for us to say so at its death.
                self.roster.is_final(place);
                // Of an adopted one that says nothing. Where nothing is left to be reaped, a parent that has died
                // since was told of its end, and the next copy of that one asks here what it meant. What is left
                // comes to us: we say more then.
                if matches!(refusal, Refusal::Gone) && proc::read(primary).is_none() {
                    self.roster.nobody_follows(place);
                }
                match (&self.recorder, &refusal) {
                    (Some(recorder), Refusal::Gone) => recorder.ended(place.pid, None),
                    (Some(_), Refusal::Cannot(_)) => {}
                    (None, _) => _ = self.dir().remove(member(place.pid)),
                }
                if matches!(refusal, Refusal::Gone) {
                    self.roster.orphan(place.pid);
                }
            }
        }
    }

    pub(super) fn dir(&self) -> Arc<Dir> {
        Arc::clone(&self.book.borrow().folder.dir)
    }

    /// Begins to watch a process that goes on from a checkpoint.
    pub(crate) fn go_on_with(&mut self, restored: Restored) {
        let Some(segment) = restored.segment else { return };
        let found =
            self.roster.listed().find(|(place, _)| place.at == restored.place && place.pid == restored.pid);
        let Some((place, entry)) = found else { return };
        self.seen.insert(place, entry.joined.load(Ordering::Acquire));
        let shared = self.shared(place, segment, &restored.child);
        self.watches.push(Watch::restored(Rc::clone(&self.book), shared, restored.child));
    }

    fn shared(&self, place: Place, segment: Segment, primary: &Child) -> Arc<Shared> {
        Arc::new(Shared {
            segment,
            roster: Arc::clone(&self.roster),
            place,
            primary: Mutex::new(Some(primary.clone())),
            standby_pid: AtomicU32::new(0),
            choice: std::sync::Mutex::new(()),
            bell: Arc::clone(&self.bell),
            done: AtomicBool::new(false),
            scores: Mutex::default(),
            relieved: AtomicU32::new(0),
        })
    }

    /// Begins to watch a process that says it has joined.
    fn admit(&mut self, place: Place, pid: u32) -> Result<Watch<'a>, Refusal> {
        if self.watches.len() <= 1 {
            spawn::raise_descriptor_limit();
        }
        let primary = Child::of_descendant(pid).filter(Child::is_alive).ok_or_else(|| why_not(pid))?;
        let segment = Segment::open(&self.dir(), &member(place.pid)).map_err(Refusal::Cannot)?;
        let header = segment.header();
        let says = [&header.guest_pid, &header.primary_pid, &header.supervisor_pid];
        let says = says.map(|word| word.load(Ordering::Acquire));
        if says != [place.pid, pid, std::process::id()] {
            return Err(Refusal::Cannot(Error::Refused("its segment is another process's".into())));
        }
        let shared = self.shared(place, segment, &primary);
        Ok(Watch::member(Rc::clone(&self.book), shared, primary))
    }
}

/// Why `pid` cannot be held on to.
fn why_not(pid: u32) -> Refusal {
    match proc::read(pid).is_some_and(|process| process.alive()) {
        true => Refusal::Cannot(Error::Refused("its process cannot be watched".into())),
        false => Refusal::Gone,
    }
}
