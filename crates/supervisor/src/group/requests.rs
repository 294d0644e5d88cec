//! What somebody wants of the group: callers at the desk, and the probe.

use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use serde_json::{Value, json};
use us_abi::end;

use super::{Group, Held};
use crate::checkpoint::files::Wanted;
use crate::checkpoint::take::{One, Refusal};
use crate::checkpoint::{self, bases::BaseFile, output::Output};
use crate::clock;
use crate::options::Verbosity;
use crate::probe::{self, Finding, Probe};
use crate::proc;
use crate::reap::Reaped;
use crate::request;
use crate::roster::{Ends, Place};
use crate::upgrade;
use crate::watch::Watch;

/// Where a checkpoint goes, and what it builds on.
type Files = (Output, Option<BaseFile>);

impl<'a> Group<'a> {
    // ---- Callers ----

    /// Hears what callers want.
    pub(super) fn hear_requests(&mut self) {
        self.requests.extend(self.desk.as_mut().map(|desk| desk.requests()).unwrap_or_default());
        for (what, caller) in std::mem::take(&mut self.requests) {
            let mut words = what.split_ascii_whitespace();
            let refusal = match (words.next(), words.next()) {
                (Some(request::FAILOVER), pid) => match self.whom(pid) {
                    Some(watch) => {
                        let back = watch.ask_switch(caller);
                        self.requests.extend(back.map(|caller| (what, caller)));
                        continue;
                    }
                    None => self.nobody(pid),
                },
                (Some(request::CHECKPOINT), Some(_)) if self.watches.iter().any(Watch::is_busy) => {
                    self.requests.push((what, caller));
                    continue;
                }
                (Some(request::CHECKPOINT), Some(number)) => {
                    let more: Vec<&str> = words.collect();
                    let stops = more.contains(&request::AND_STOP);
                    let after = |what: &str| more.iter().find_map(|word| word.strip_prefix(what));
                    let (key, base) = (after(request::AND_SEAL), after(request::AND_BUILD_ON));
                    let files = after(request::AND_FILES);
                    match self.take_checkpoint(&caller, (number, key, base, files), stops) {
                        Ok((copies, described, files)) => {
                            let stopped = self.watches.iter().filter(|_| stops);
                            let ends: Vec<_> = stopped.map(Watch::end_when_written).collect();
                            let then = move |is_written| ends.into_iter().for_each(|end| end(is_written));
                            let writer = checkpoint::take::write_beside(
                                copies,
                                described,
                                files,
                                (self.shelf.clone(), more.contains(&request::AND_KEEP)),
                                caller,
                                then,
                            );
                            if writer.is_err() {
                                self.watches.iter().for_each(Watch::let_go_from_checkpoint);
                            }
                            self.writers.extend(writer);
                            continue;
                        }
                        Err(Refusal::Later(why)) => match self.may_try_again() {
                            true => {
                                self.requests.push((what, caller));
                                continue;
                            }
                            false => why,
                        },
                        Err(Refusal::Never(why)) => {
                            self.checkpoint_by = None;
                            why
                        }
                    }
                }
                (Some(request::UPGRADE), Some(_)) if self.watches.iter().any(Watch::is_busy) => {
                    self.requests.push((what, caller));
                    continue;
                }
                (Some(request::UPGRADE), Some(number)) => match self.upgrade(&caller, number) {
                    Ok(done) => {
                        request::answer(caller, &done);
                        continue;
                    }
                    Err(Refusal::Later(_)) if self.may_try_again() => {
                        self.requests.push((what, caller));
                        continue;
                    }
                    Err(why) => {
                        self.checkpoint_by = None;
                        why.into_why()
                    }
                },
                (Some(request::STOP), None) => {
                    self.is_stopping = true;
                    request::answer(caller, &json!({}));
                    continue;
                }
                (Some(request::SIGNAL), Some(number)) => match crate::signals::parse(number) {
                    Ok(number) => {
                        self.held.push(Held { number, caller: Some(caller) });
                        continue;
                    }
                    Err(why) => why,
                },
                (Some(request::KILL), None) => {
                    self.roster.doom_all();
                    request::answer(caller, &json!({}));
                    continue;
                }
                _ => format!("{what:?} is not a request"),
            };
            request::answer(caller, &json!({ "error": refusal }));
        }
        self.watches.iter_mut().filter(|watch| watch.is_switching()).for_each(Watch::drive_switch);
    }

    /// Takes a checkpoint of the program, into the caller's file.
    fn take_checkpoint(
        &mut self,
        caller: &UnixStream,
        (number, key, base, files): (&str, Option<&str>, Option<&str>, Option<&str>),
        stops: bool,
    ) -> Result<(Vec<checkpoint::take::Copy>, checkpoint::take::Described, Files), Refusal> {
        let key = || key.map(|number| checkpoint::output::callers_key(caller, number)).transpose();
        let base = base.map(|number| BaseFile::of_caller(caller, number, key()?));
        let base = base.transpose().map_err(Refusal::Never)?;
        let files =
            files.map(|number| Wanted::of_caller(caller, number)).transpose().map_err(Refusal::Never)?;
        let file = checkpoint::output::callers_file(caller, number).map_err(Refusal::Never)?;
        let output = Output::new(file, key().map_err(Refusal::Never)?)
            .map_err(|cause| Refusal::Never(format!("cannot write the checkpoint: {cause}")))?;
        if !self.watches.first().is_some_and(Watch::is_root) {
            return Err(Refusal::Never("the program has ended".into()));
        }
        if !self.is_none_there() {
            return Err(Refusal::Later("processes that share memory are about to follow one order".into()));
        }
        // Most who stand in the way do so before anybody stands still.
        let places: Vec<(Place, u32)> =
            self.watches.iter().map(|watch| (watch.shared().place, watch.primary().pid)).collect();
        self.strangers(&places)?;
        let mut all =
            self.watches.iter().map(Watch::for_checkpoint).collect::<Result<Vec<One>, Refusal>>()?;
        let (copies, mut described) =
            checkpoint::take::take(&mut all, &self.roster, |_| self.strangers(&places), stops, files)?;
        drop(all);
        self.checkpoint_by = None;
        let meta = &self.book.borrow().meta;
        (described.head.program, described.head.order) = (meta.program.clone(), meta.order.clone());
        Ok((copies, described, (output, base)))
    }

    /// Puts the version of the runtime that the caller has in a file into all processes. Those that have it are left alone, so that
    /// who asks again goes on where the last one has stopped.
    fn upgrade(&mut self, caller: &UnixStream, number: &str) -> Result<Value, Refusal> {
        let new = self.versions.take(caller, number)?;
        if self.recorder.is_some() {
            return Err(Refusal::Never("it is being recorded, and a recording has one version".into()));
        }
        if !self.is_none_there() {
            return Err(Refusal::Later("processes that share memory are about to follow one order".into()));
        }
        let dir = Arc::clone(&self.book.borrow().folder.dir);
        let mut all = self.watches.iter().map(Watch::for_checkpoint).collect::<Result<Vec<One>, _>>()?;
        let (mut ready, mut refusal, mut had) = (Vec::new(), None, 0);
        for (at, one) in all.iter().enumerate() {
            match upgrade::prepare(one, &new, &mut self.versions, &dir) {
                Ok(Some(one)) => ready.push((at, one)),
                Ok(None) => {
                    self.versions.keep(&new);
                    had += 1;
                }
                Err(why) => refusal = refusal.or(Some(format!("process {}: {why}", one.place.pid))),
            }
        }
        if let Some(why) = refusal {
            ready.iter().for_each(|(_, one)| upgrade::discard(one, &dir));
            return Err(Refusal::Never(why));
        }
        let (mut stood, mut failed) = (Vec::new(), None);
        for (at, one) in &ready {
            if failed.is_some() {
                upgrade::discard(one, &dir);
                continue;
            }
            match upgrade::perform(&mut all[*at], one, &dir) {
                Ok(ms) => {
                    self.versions.keep(&new);
                    stood.push(ms);
                }
                Err(why) => failed = Some(why),
            }
        }
        drop(all);
        match failed {
            Some(why) => Err(why),
            None => {
                self.checkpoint_by = None;
                Ok(upgrade::answer(&new, &stood, had))
            }
        }
    }

    /// Which processes of the group, besides these, have ended and have not been asked for.
    fn strangers(&self, known: &[(Place, u32)]) -> Result<Ends, Refusal> {
        let mut ended = Ends::new();
        let is_known = |pid: u32| known.iter().any(|(_, primary)| *primary == pid);
        let in_the_way = |pid: u32, number: u32| {
            let name = proc::name(pid).unwrap_or_default();
            Refusal::Later(format!(
                "process {number} ({name}) has not come to a point where it can be followed"
            ))
        };
        for (place, entry) in self.roster.listed() {
            let is_over = entry.end.load(Ordering::Acquire) == end::ENDED;
            if is_over || known.iter().any(|(known, _)| *known == place) {
                continue;
            }
            let primary = self.roster.primary_of(place);
            match proc::read(primary) {
                Some(process) if process.alive() => return Err(in_the_way(primary, place.pid)),
                Some(process) => {
                    let how = process.reaped(primary);
                    ended.insert(place.at, how.unwrap_or_else(|| Reaped::by(process.status)));
                }
                None => {}
            }
        }
        for child in known.iter().flat_map(|(_, primary)| proc::children(*primary)) {
            // A former copy is its parent's until that one asks for it.
            let is_listed = || self.roster.listed().any(|(place, _)| place.pid == child);
            match proc::read(child) {
                Some(process) if process.alive() && !is_known(child) => return Err(in_the_way(child, child)),
                Some(process) if !process.alive() && !is_listed() => {
                    let why = "the program has made a process, and has not waited for its end";
                    return Err(Refusal::Later(why.into()));
                }
                _ => {}
            }
        }
        Ok(ended)
    }

    /// Whether what stands in a checkpoint's way may be gone in a moment: not for long.
    fn may_try_again(&mut self) -> bool {
        const FOR_NS: u64 = 5_000_000_000;
        // On a machine that stood still meanwhile the time is over before the second one.
        const TRIES_MIN: u32 = 2;
        let now = clock::monotonic_ns();
        let (by_ns, tries) = self.checkpoint_by.get_or_insert((now + FOR_NS, 0));
        *tries += 1;
        let is_early = now < *by_ns || *tries <= TRIES_MIN;
        if !is_early {
            self.checkpoint_by = None;
        }
        is_early
    }

    /// When to look again for a checkpoint's sake, CLOCK_MONOTONIC ns.
    pub(super) fn checkpoint_at_ns(&self) -> Option<u64> {
        const PAUSE_NS: u64 = 20_000_000;
        let is_wanted = self.checkpoint_by.is_some() && !self.requests.is_empty();
        is_wanted.then(|| clock::monotonic_ns() + PAUSE_NS)
    }

    /// That a caller means none of the processes here, and which there are.
    fn nobody(&self, pid: Option<&str>) -> String {
        let Some(pid) = pid else { return "the program has ended".into() };
        let all: Vec<String> = self.watches.iter().map(|watch| watch.guest_pid().to_string()).collect();
        let all = if all.is_empty() { "none is".into() } else { format!("these are: {}", all.join(", ")) };
        format!("no process {pid} is protected here; {all}")
    }

    /// The process that a caller means: the one that leads, or the one that knows itself by this number.
    fn whom(&mut self, pid: Option<&str>) -> Option<&mut Watch<'a>> {
        match pid {
            None => self.lead(),
            Some(pid) => {
                let pid: u32 = pid.parse().ok()?;
                self.watches.iter_mut().find(|watch| watch.guest_pid() == pid)
            }
        }
    }

    // ---- The probe ----

    /// When to look again, CLOCK_MONOTONIC ns.
    pub(super) fn probe_at_ns(&self) -> Option<u64> {
        self.probe.as_ref().and_then(Probe::look_at_ns)
    }

    /// Whether the program's standby could take over.
    fn can_switch_root(&mut self) -> bool {
        self.root().is_some_and(|root| root.can_switch() && !root.is_switching())
    }

    fn root(&mut self) -> Option<&mut Watch<'a>> {
        self.watches.iter_mut().find(|watch| watch.is_root())
    }

    /// One step of the probe.
    pub(super) fn drive_probe(&mut self) {
        let now = clock::monotonic_ns();
        let can_switch = self.can_switch_root();
        let Some(probe) = &mut self.probe else { return };
        match (can_switch, probe.is_on()) {
            (true, false) => {
                probe.begin(now);
                self.say(Verbosity::Verbose, &format!("{}: the probe begins", self.name()));
            }
            (false, true) => {
                probe.pause();
                let line = format!("{}: the probe waits until there is a standby", self.name());
                self.say(Verbosity::Verbose, &line);
            }
            (true, true) => {
                let finding = probe.look(now);
                self.act_on(finding);
            }
            (false, false) => {}
        }
    }

    /// Draws the consequence of what the probe found.
    pub(super) fn act_on(&mut self, finding: Finding) {
        match finding {
            Finding::Nothing => {}
            Finding::Failed(why) => {
                self.say(Verbosity::Verbose, &format!("{}: the probe failed: {why}", self.name()));
            }
            // Asked anew: it may have lost its standby since the probe began.
            Finding::Fence => {
                if let Some(root) = self.root().filter(|root| root.can_switch()) {
                    root.fence(probe::REASON, clock::monotonic_ns());
                }
            }
        }
    }
}
