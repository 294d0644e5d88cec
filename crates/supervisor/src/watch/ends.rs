//! Ends of copies: whose it was, and what follows.

use std::sync::atomic::Ordering;

use serde_json::json;
use us_abi::{Cause, GroupState, WILL, broken, command, kin, leaving};
use us_order::detect::{self, Decision};

use super::Watch;
use super::said::Fallen;
use crate::child::Child;
use crate::history::{Ended, Lost};
use crate::options::Verbosity;
use crate::reap::{End, Reaped};
use crate::segment::{read_text, wake};
use crate::sentry::{fail_over, verdict};
use crate::{clock, family, memory, proc};

/// Copies that end within this time have ended together.
const TOGETHER_NS: u64 = 1_000_000_000;

/// The end of a process for good.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Over {
    /// How, if the kernel has told us or could still be asked.
    pub(crate) end: Option<Reaped>,
    /// It is we who have reaped it.
    is_reaped: bool,
}

impl Watch<'_> {
    /// Whether the kernel's `pid` is a copy of this process, or was one.
    pub(crate) fn knows(&self, pid: u32) -> bool {
        let copies = [Some(&self.primary), self.standby.as_ref(), self.ending.as_ref()];
        copies.into_iter().flatten().chain(self.spares.copies()).any(|copy| copy.pid == pid)
            || self.spares.is_ending(pid)
            || self.fallen.iter().any(|fallen| fallen.pid() == pid)
            || self.shared.segment.header().standby_pid.load(Ordering::Acquire) == pid
    }

    /// The kernel's numbers of its copies, as far as they may be our children.
    pub(crate) fn copies(&self) -> impl Iterator<Item = u32> {
        let copies = [Some(&self.primary), self.standby.as_ref(), self.ending.as_ref()].into_iter().flatten();
        let fallen = self.fallen.iter().map(Fallen::copy);
        copies.chain(self.spares.copies()).chain(fallen).map(|copy| copy.pid)
    }

    /// Whether our ended child `pid` need not be reaped at once: a copy of a process that goes on. One that ends, or becomes
    /// another program, waits until its standby is.
    pub(crate) fn may_rest(&self, pid: u32) -> bool {
        self.shared.segment.slots() > 1
            && self.leaving() == leaving::NO
            && self.copies().any(|copy| copy == pid)
    }

    /// Our child `pid` has ended; `false` when it is nobody of this process.
    pub(crate) fn child_ended(&mut self, pid: u32, end: &Reaped) -> bool {
        if self.spares.any() {
            // One that has taken over is not the heir any more, whether we had heard of it or not.
            self.notice_copies();
        }
        if pid == self.primary.pid {
            self.is_polled = false;
            self.primary_ended(Some(*end), true);
        } else if self.standby.as_ref().is_some_and(|standby| standby.pid == pid) {
            match self.state() == GroupState::Promoting && self.is_promoted() {
                true => self.ended_at_once(end),
                false => self.standby_ended(end),
            }
        } else if self.spare_ended(pid, end.end()) {
            // One of several.
        } else if self.ending.take_if(|ending| ending.pid == pid).is_some() {
            // Its successor may be asked for.
        } else if let Some(fallen) = self.fallen.iter_mut().find(|fallen| fallen.pid() == pid) {
            fallen.is_gone_by(Some(*end), true);
            self.tell_failovers();
        } else {
            return false;
        }
        true
    }

    /// Copies whose descriptors are to be polled.
    pub(crate) fn polled(&self) -> impl Iterator<Item = &Child> {
        let primary = Some(&self.primary).filter(|_| self.is_polled && self.over.is_none());
        primary.into_iter().chain(self.fallen.iter().filter(|fallen| fallen.is_polled).map(Fallen::copy))
    }

    /// The descriptor of the copy `pid` has become readable.
    pub(crate) fn copy_gone(&mut self, pid: u32) {
        let seen = proc::read(pid);
        let end = seen.and_then(|process| process.reaped(pid));
        // One that has become ours meanwhile we shall be told of.
        let ours = seen.is_some_and(|process| process.parent == std::process::id());
        if pid == self.primary.pid {
            self.is_polled = false;
        }
        self.fallen
            .iter_mut()
            .filter(|fallen| fallen.pid() == pid)
            .for_each(|fallen| fallen.is_polled = false);
        if ours {
            return;
        }
        // What the process wrote before it ended comes first. Its standby may be live by now.
        self.look();
        if pid == self.primary.pid {
            self.primary_ended(end, false);
        } else if let Some(fallen) = self.fallen.iter_mut().find(|fallen| fallen.pid() == pid) {
            fallen.is_gone_by(end, false);
            self.tell_failovers();
        }
    }

    fn primary_ended(&mut self, end: Option<Reaped>, is_reaped: bool) {
        if self.over.is_some() {
            return;
        }
        // One that was somebody else's child can be found gone first, and come to us afterwards.
        if let Some(fallen) = self.fallen.iter_mut().find(|fallen| fallen.pid() == self.primary.pid) {
            return fallen.is_gone_by(end, is_reaped);
        }
        // It may have died before it could say all that there is to say of a new standby.
        let has_one = matches!(self.state(), GroupState::Protected | GroupState::Promoting);
        self.attach_standby(has_one);
        let pid = self.primary.pid;
        if self.wants_many() {
            self.notice_copies();
        }
        if self.primary.pid != pid {
            // It had a successor, of which we hear only now.
            self.fallen.iter_mut().filter(|fallen| fallen.pid() == pid).for_each(|fallen| {
                fallen.is_gone_by(end, is_reaped);
            });
            return self.tell_failovers();
        }
        // The net under the death notices. An exit that said nothing is still an exit, as natively. Where others take over they
        // are waited for, not here: see `notice_left_behind`.
        let with_family = family::is_promoting(&self.shared);
        if self.standby.is_some()
            && !with_family
            && self.state() == GroupState::Protected
            && verdict(&self.shared, cause_of(end)) == Decision::Promote
        {
            fail_over(&self.shared, &self.primary, clock::monotonic_ns());
        }
        // The command, too: the standby may be live and out of `Promoting` before this line is reached.
        let command = self.shared.segment.header().command.0.load(Ordering::Acquire);
        // A family's sentry may have begun, and not have come to this process.
        let takes_over = self.state() == GroupState::Promoting
            || command == command::PROMOTE
            || with_family
            || family::is_promoting(&self.shared);
        if self.standby.is_some() && takes_over {
            let mut fallen = Fallen::new(self.primary.clone(), false);
            fallen.is_gone_by(end, is_reaped);
            return self.fallen.push_back(fallen);
        }
        // What it has done behind what its standby has repeated is in the memory of the others.
        family::break_up(
            &self.shared.roster,
            self.shared.segment.header(),
            broken::MEMBERS,
            "a process that shares memory has ended",
        );
        self.over = Some(Over { end: self.or_as_willed(end), is_reaped });
    }

    /// The end of a primary that was killed when it was about to end: as it wanted to.
    fn or_as_willed(&self, end: Option<Reaped>) -> Option<Reaped> {
        let place = self.shared.place;
        let will = self.shared.roster.get(place).map_or(0, |entry| entry.will.load(Ordering::SeqCst));
        match end {
            Some(reaped @ Reaped { status: libc::SIGKILL, .. }) if will & WILL != 0 => {
                Some(Reaped { status: will & !WILL, ..reaped })
            }
            end => end,
        }
    }

    /// The standby has become primary, and has ended before we heard that it was live: a program that was killed just before
    /// its end. How that one ended is how the process has.
    fn ended_at_once(&mut self, end: &Reaped) {
        let word = &self.shared.segment.header().state.0;
        let (from, to) = (GroupState::Promoting as u32, GroupState::Unprotected as u32);
        let _ = word.compare_exchange(from, to, Ordering::AcqRel, Ordering::Acquire);
        // It may have been about to say that it is no standby any more.
        let dropped = &self.shared.segment.header().dropped.0;
        let cause = Cause::Promoted as u32;
        let _ = dropped.compare_exchange(0, cause, Ordering::AcqRel, Ordering::Acquire);
        self.notice_promotion();
        self.primary_ended(Some(*end), true);
    }

    /// The primary has died while the others of its family took over, and before its threads could give notice of their deaths: a
    /// standby that was ready too late to be one of them takes over behind them.
    pub(super) fn notice_left_behind(&mut self) {
        let is_left = self.standby.is_some()
            && self.state() == GroupState::Protected
            && self.fallen.iter().any(|fallen| fallen.pid() == self.primary.pid);
        if is_left
            && !family::is_promoting(&self.shared)
            && verdict(&self.shared, detect::Cause::Killed) == Decision::Promote
        {
            fail_over(&self.shared, &self.primary, clock::monotonic_ns());
        }
    }

    /// The primary is gone, and so is the standby that was to take over: one that goes another way than the log says so by
    /// the same words as at any other time.
    pub(super) fn notice_nobody(&mut self) {
        let primary = self.primary.pid;
        let is_left = self.over.is_some() || self.standby.is_some() || self.is_promoted();
        if let Some(fallen) = self.fallen.iter().find(|fallen| fallen.pid() == primary && !is_left) {
            self.over = Some(Over { end: fallen.end, is_reaped: fallen.is_reaped });
        }
    }

    fn standby_ended(&mut self, reaped: &Reaped) {
        let end = reaped.end();
        self.standby_end = Some((end, clock::monotonic_ns()));
        if self.state() == GroupState::Promoting {
            // Named no more: it may stay unreaped for a moment, and whoever hears of the primary's end behind this would
            // take it up again and wait for it for ever.
            let ended = self.standby.take().map_or(0, |standby| standby.pid);
            let named = &self.shared.segment.header().standby_pid;
            let _ = named.compare_exchange(ended, 0, Ordering::AcqRel, Ordering::Acquire);
            self.say_last_words();
            if self.next_takes_over(end) {
                return;
            }
            family::cannot_take_over(&self.shared, cause_of(Some(*reaped)) == detect::Cause::Fault);
            // Killed by one of its group while it took over: as that one wanted.
            if !self.shared.roster.is_doomed(self.shared.place) {
                if cause_of(Some(*reaped)) == detect::Cause::Fault {
                    let primary_end = self
                        .fallen
                        .iter()
                        .find(|fallen| fallen.pid() == self.primary.pid)
                        .and_then(|fallen| fallen.end);
                    let again = match primary_end.is_some_and(|primary| primary.end() == end) {
                        true => ", as its primary was: the program's own fault repeats in its copy",
                        false => "",
                    };
                    let name = self.name();
                    let line = format!("{name}: the standby could not take over: {}{again}", end.words());
                    self.say(Verbosity::Normal, line);
                }
                self.event("standby_lost", json!({ "why": end.words() }));
            }
            // If the primary is not gone yet, its end will be that of the process.
            let primary = self.primary.pid;
            if let Some(fallen) = self.fallen.iter().find(|fallen| fallen.pid() == primary) {
                let is_reaped = fallen.is_reaped;
                // Of what its primary was fenced for: the same fault has ended both.
                let end = match cause_of(Some(*reaped)) {
                    detect::Cause::Fault => Some(*reaped),
                    _ => self.or_as_willed(fallen.end),
                };
                self.over = Some(Over { end, is_reaped });
            }
            return;
        }
        let pid = self.standby.take().map_or(0, |standby| standby.pid);
        if pid != 0 && self.shared.relieved.swap(0, Ordering::AcqRel) == pid {
            return self.lose_standby(pid, memory::RELIEF);
        }
        self.lose_standby(pid, &format!("the standby's process is gone: {}", end.words()));
    }

    /// Whether the process has ended for good.
    pub(crate) fn over(&self) -> Option<Over> {
        self.over
    }

    /// Everything is over: nothing may be left of the process. The standby's pid, which is to be reaped.
    pub(crate) fn finish(&mut self) -> Option<u32> {
        self.tell_all();
        // A short program has come and gone before we looked, and was protected all the same.
        let first = self.shared.segment.header().first_standby.load(Ordering::Acquire);
        if first != 0 && !self.protected_said {
            self.say_protected(first);
        }
        // The primary ends its standby first; one that is still here would otherwise outlive the group. It may
        // be one of which we have not heard yet, or of which its maker could not tell any more.
        let header = self.shared.segment.header();
        header.command.0.store(command::END, Ordering::Release);
        wake(&header.command.0);
        let named = header.standby_pid.load(Ordering::Acquire);
        let standby = self.standby.take().or_else(|| self.copy_named(named)).map(|standby| {
            standby.kill();
            standby.pid
        });
        self.end_spares();
        self.say_last_words();
        self.answer_switch(&json!({ "error": "the program has ended" }));
        self.protection_ends(clock::monotonic_ns());
        self.shared.segment.header().state.0.store(GroupState::Ended as u32, Ordering::Release);
        self.set_clone_error(None);
        self.shared.dismiss();
        standby
    }

    /// Why the process, which was once protected and was killed from outside the group, is no more. `None` of any other end.
    pub(crate) fn loss(&self, over: Over) -> Option<Lost> {
        let header = self.shared.segment.header();
        let cause = cause_of(over.end);
        let could_not = self.standby_end.is_some() && self.state() == GroupState::Promoting;
        let program = self.program.clone()?;
        if self.ends_by_itself()
            || self.shared.roster.is_doomed(self.shared.place)
            || cause == detect::Cause::Fault
            || !(cause == detect::Cause::Killed || could_not)
        {
            return None;
        }
        let end = over.end.map_or("killed".into(), |end| end.end().words());
        let is_now = |ended_ns| clock::monotonic_ns().saturating_sub(ended_ns) < TOGETHER_NS;
        let why = match self.standby_end {
            Some((standby, _)) if could_not => {
                let said = read_text(&header.why.0).filter(|_| self.dropped()).map(|(_, why)| why);
                let why = said.unwrap_or_else(|| standby.words());
                format!("its primary was {end}; the standby could not take over: {why}")
            }
            Some((standby, ended_ns)) if is_now(ended_ns) => {
                format!("its primary was {end}, its standby {}", standby.words())
            }
            _ => {
                let why = read_text(&header.why.0).map_or(String::new(), |(_, why)| format!(": {why}"));
                let failed = self.clone_error().map_or(String::new(), |error| format!("; {error}"));
                format!("its primary was {end} while there was no standby{why}{failed}")
            }
        };
        let entry = self.shared.roster.get(self.shared.place);
        Some(Lost {
            process: self.guest_pid(),
            parent: entry.map_or(0, |entry| entry.parent.load(Ordering::Acquire)),
            program,
            at: clock::now_text(),
            why,
        })
    }

    /// Adds what it leaves behind; `false` when that is nothing.
    pub(crate) fn leave_sums(&self, sums: &mut Ended) -> bool {
        let before = sums.clone();
        let (header, segment) = (self.shared.segment.header(), &self.shared.segment);
        sums.epochs += header.epoch.load(Ordering::Acquire);
        for entry in (0..segment.slots()).map(|at| segment.thread(at)) {
            let skipped = entry.skipped.load(Ordering::Acquire);
            sums.bytes += entry.tail.0.load(Ordering::Acquire).saturating_sub(skipped);
            for (sum, applied) in sums.by_class.iter_mut().zip(&entry.events) {
                let applied = applied.load(Ordering::Acquire);
                *sum += applied;
                sums.events += applied;
            }
        }
        for (call, count) in (0..).zip(&header.refused) {
            let count = count.load(Ordering::Acquire);
            if count > 0 {
                *sums.refused.entry(call).or_default() += count;
            }
        }
        *sums != before
    }

    /// Says in the roster what there is to say of the end. The number of the parent that is to be sent SIGCHLD.
    pub(crate) fn sign_off(&self, over: Over) -> Option<u32> {
        let (roster, place) = (&self.shared.roster, self.shared.place);
        let lives = |pid| proc::read(pid).is_some_and(|process| process.alive());
        let entry = roster.get(place)?;
        // Its standby was the one that the kernel would have told us of as its primary, and could not take over.
        let refused = roster.primary_of(place) != self.primary.pid;
        let is_ours = over.is_reaped || entry.kin.load(Ordering::Acquire) == kin::ADOPTED;
        let told = match over.end {
            // Its parent asks the kernel; or we do when it has given the process to us.
            _ if !is_ours => None,
            Some(end) if over.is_reaped => roster.ended(place, &end, lives),
            end if refused => {
                // Nobody has told us how: by our fence, or by what it was fenced for.
                let end = self.or_as_willed(Some(end.unwrap_or(Reaped::by(libc::SIGKILL))))?;
                roster.ended(place, &end, lives)
            }
            _ => None,
        };
        roster.is_final(place);
        if told.is_none() && !over.is_reaped {
            roster.nobody_follows(place);
        }
        roster.orphan(place.pid);
        told
    }
}

/// A wait status in the words of the rules. One that nobody could tell us of is that of a violent end, since a program
/// that ends by its own will says so.
fn cause_of(end: Option<Reaped>) -> detect::Cause {
    use libc::{SIGABRT, SIGBUS, SIGFPE, SIGILL, SIGKILL, SIGSEGV, SIGSYS, SIGTRAP};
    match end.map(Reaped::end) {
        Some(End::Exited(_)) => detect::Cause::Exited,
        None | Some(End::Killed(SIGKILL)) => detect::Cause::Killed,
        Some(End::Killed(SIGSEGV | SIGBUS | SIGILL | SIGFPE | SIGABRT | SIGSYS | SIGTRAP)) => {
            detect::Cause::Fault
        }
        Some(End::Killed(_)) => detect::Cause::Signal,
    }
}
