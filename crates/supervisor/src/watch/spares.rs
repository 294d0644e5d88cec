//! Standbys besides the heir: they follow the same log, and one of them is heir when there is none.
//!
//! The rest of the watch knows the heir alone, as `standby`. When that has taken over or is lost, a spare *moves up* at
//! once: the process is protected again without a clone, and another spare is asked for like any new standby.

use std::sync::atomic::Ordering;

use serde_json::json;
use us_abi::{Cause, GroupState, SEATS, alone, command, leaving, seat};
use us_order::reclone::{Backoff, Loss};

use super::Watch;
use crate::child::Child;
use crate::clock;
use crate::history::Reclone;
use crate::options::Verbosity;
use crate::reap::End;
use crate::segment::{clear_text, read_text, wake};
use crate::sentry::choose;

/// A spare standby.
#[derive(Debug)]
struct Spare {
    seat: usize,
    copy: Child,
    since_ns: u64,
}

/// The spares of a process.
#[derive(Debug)]
pub(super) struct Spares {
    following: Vec<Spare>,
    /// No longer wanted, and not reaped yet.
    ending: Vec<Child>,
    backoff: Backoff,
    /// Why it has one standby, as of the last look at [`alone`].
    alone: u32,
    /// Why the last one is gone, and how long it had lived, ns.
    lost: Option<(Loss, u64)>,
}

impl Spares {
    pub(super) fn new() -> Spares {
        Spares {
            following: Vec::new(),
            ending: Vec::new(),
            backoff: Backoff::default(),
            alone: alone::NO,
            lost: None,
        }
    }

    pub(super) fn copies(&self) -> impl Iterator<Item = &Child> {
        self.following.iter().map(|spare| &spare.copy)
    }

    pub(super) fn any(&self) -> bool {
        !self.following.is_empty()
    }

    pub(super) fn is_ending(&self, pid: u32) -> bool {
        self.ending.iter().any(|ending| ending.pid == pid)
    }
}

impl Watch<'_> {
    /// Who has taken over, who has been given up, who is new, and who is heir now.
    pub(super) fn notice_copies(&mut self) {
        self.notice_promotion();
        self.notice_drop();
        self.attach_spares();
        self.move_up();
    }

    /// Whether it is to have spares, as long as nothing is against it.
    pub(super) fn wants_many(&self) -> bool {
        self.book.borrow().meta.standbys > 1
            || self.wants_successor()
            || self.spares.any()
            || self.has_followers()
            || self.is_anybody_unheard()
    }

    /// Whether a copy has been given up that we have not heard of: it is to be ended before another is made.
    fn is_anybody_unheard(&self) -> bool {
        let is_left = |seat: &us_abi::Seat| {
            seat.state.load(Ordering::Acquire) == seat::DROPPED && seat.pid.load(Ordering::Acquire) != 0
        };
        self.shared.segment.header().seats.iter().any(is_left)
    }

    /// Whether the primary wants a standby that takes the heir's place. It gives that up once there is one.
    fn wants_successor(&self) -> bool {
        self.shared.segment.header().successor.load(Ordering::Acquire) != 0
    }

    /// Takes up spares of which we have not heard, and lets go those that have been given up.
    fn attach_spares(&mut self) {
        if !self.wants_many() {
            return;
        }
        self.notice_obstacles();
        // Of one that we have asked for the counter is written last.
        let whole = !self.is_asked() || self.is_cloned();
        for at in 0..SEATS {
            let seat = &self.shared.segment.header().seats[at];
            let (state, pid) = (seat.state.load(Ordering::Acquire), seat.pid.load(Ordering::Acquire));
            let known = self.spares.following.iter().position(|spare| spare.seat == at);
            match (state, known) {
                (seat::FOLLOWS, None) if pid != 0 && whole && !self.is_promoted() => {
                    self.attach_spare(at, pid)
                }
                (seat::DROPPED, Some(known)) => self.let_spare_go(known),
                (seat::DROPPED, None) if pid != 0 => self.end_unheard(pid),
                _ => {}
            }
        }
    }

    /// What keeps it to one standby is said, once each time.
    fn notice_obstacles(&mut self) {
        let now = self.shared.segment.header().alone.load(Ordering::Acquire);
        if std::mem::replace(&mut self.spares.alone, now) == now {
            return;
        }
        let why = match now {
            alone::MEMORY => "it has memory that other processes may share",
            alone::FAMILY => "processes that share memory take over together",
            _ => return,
        };
        let line = format!("{}: it has one standby: {why}", self.name());
        self.say(Verbosity::Normal, line);
    }

    fn attach_spare(&mut self, at: usize, pid: u32) {
        // One whose number this once was, or the primary itself.
        if pid == self.primary.pid || self.spares.is_ending(pid) {
            return;
        }
        let child = self.copy_named(pid);
        let cloned = self.is_cloned();
        let Some(copy) = child else {
            // Gone before we looked; or not ours yet, since its maker is still between.
            return;
        };
        self.shared.raise_score(pid, self.primary.pid);
        self.shared.watch_memory(pid, self.primary.pid);
        self.spares.following.push(Spare { seat: at, copy, since_ns: clock::monotonic_ns() });
        match cloned {
            true => self.spare_is_made(pid),
            false => {
                self.event("spare_standby", json!({ "standby": pid }));
                let line = format!("{} has a spare standby, pid {pid}", self.name());
                self.say(Verbosity::Verbose, line);
            }
        }
        self.save();
    }

    /// One has been given up before we heard of it. As long as it is there it takes for its own whatever a next log says, and
    /// whoever sits where it sat is given up for that.
    fn end_unheard(&mut self, pid: u32) {
        let is_other = pid == self.primary.pid
            || self.standby.as_ref().is_some_and(|standby| standby.pid == pid)
            || self.ending.as_ref().is_some_and(|ending| ending.pid == pid)
            || self.spares.is_ending(pid);
        if let Some(copy) = if is_other { None } else { self.copy_named(pid) } {
            copy.kill();
            self.spares.ending.push(copy);
        }
    }

    /// The heir is not wanted any more. Another that is not reaped yet, since a spare had moved up meanwhile, is still waited for.
    pub(super) fn let_end(&mut self, heir: Child) {
        self.spares.ending.extend(self.ending.replace(heir));
    }

    /// A spare was made at our wish, or one that takes the heir's place at the primary's.
    fn spare_is_made(&mut self, pid: u32) {
        let pause_us = self.note_answer() / 1000;
        let bytes = self.shared.segment.header().clone_bytes.load(Ordering::Acquire);
        let reclone = Reclone {
            process: self.guest_pid(),
            at: clock::now_text(),
            reason: "spare".into(),
            why: String::new(),
            pause_us,
            bytes,
            gap_us: 0,
        };
        let mut fields = serde_json::to_value(&reclone).unwrap_or_default();
        fields["primary"] = json!(self.primary.pid);
        fields["standby"] = json!(pid);
        fields["order"] = json!(self.order_of_threads());
        self.set_clone_error(None);
        self.book.borrow_mut().history.reclones.push(reclone);
        self.save();
        self.event("recloned", fields);
        let line = format!(
            "{} has a spare standby, pid {pid}; the program paused for {:.1} ms",
            self.name(),
            pause_us as f64 / 1000.0
        );
        self.say(Verbosity::Verbose, line);
    }

    /// It has been given up, by itself or by the primary.
    fn let_spare_go(&mut self, known: usize) {
        let spare = self.spares.following.remove(known);
        let lived_ns = clock::monotonic_ns().saturating_sub(spare.since_ns);
        let text = &self.shared.segment.header().seats[spare.seat].why;
        let look = self.look_at_divergence(spare.copy.pid, spare.seat, text);
        spare.copy.kill();
        self.spares.lost = Some((Loss::Dropped, lived_ns));
        let pid = spare.copy.pid;
        self.spares.ending.push(spare.copy);
        if self.ends_by_itself() || self.leaving() == leaving::EXEC {
            return;
        }
        let header = self.shared.segment.header();
        let (code, reason) = read_text(&header.seats[spare.seat].why).unwrap_or_default();
        if code == Cause::Diverged as u32 {
            return self.put_divergence_down(reason, look);
        }
        self.event("spare_lost", json!({ "standby": pid, "why": reason }));
        self.save();
    }

    /// The end of a spare; `false` if `pid` is none.
    pub(super) fn spare_ended(&mut self, pid: u32, end: End) -> bool {
        self.attach_spares();
        if let Some(at) = self.spares.ending.iter().position(|ending| ending.pid == pid) {
            self.spares.ending.remove(at);
            // Its number may be another process's from here on.
            for seat in &self.shared.segment.header().seats {
                if seat.state.load(Ordering::Acquire) == seat::DROPPED {
                    let _ = seat.pid.compare_exchange(pid, 0, Ordering::AcqRel, Ordering::Acquire);
                }
            }
            return true;
        }
        let Some(at) = self.spares.following.iter().position(|spare| spare.copy.pid == pid) else {
            return false;
        };
        let spare = self.spares.following.remove(at);
        let lived_ns = clock::monotonic_ns().saturating_sub(spare.since_ns);
        self.spares.lost = Some((Loss::Dropped, lived_ns));
        let seat = &self.shared.segment.header().seats[spare.seat];
        if seat.pid.load(Ordering::Acquire) == pid {
            seat.pid.store(0, Ordering::Release);
            let _ = seat.state.compare_exchange(
                seat::FOLLOWS,
                seat::DROPPED,
                Ordering::AcqRel,
                Ordering::Acquire,
            );
        }
        if !self.ends_by_itself() && self.leaving() != leaving::EXEC {
            let why = format!("the standby's process is gone: {}", end.words());
            self.event("spare_lost", json!({ "standby": pid, "why": why }));
        }
        true
    }

    /// Whether a spare follows, be it one of which we have not heard.
    pub(super) fn has_followers(&self) -> bool {
        let follows = |seat: &us_abi::Seat| seat.state.load(Ordering::Acquire) == seat::FOLLOWS;
        self.shared.segment.header().seats.iter().any(follows)
    }

    /// Whether a copy that is not wanted is still there: what it writes would be taken for its successor's word.
    pub(super) fn is_one_ending(&self) -> bool {
        self.ending.is_some() || !self.spares.ending.is_empty()
    }

    /// Before another is asked for: seats in which nobody is left are free.
    pub(super) fn clear_seats(&self) {
        for (at, seat) in self.shared.segment.header().seats.iter().enumerate() {
            let given_up = seat.state.load(Ordering::Acquire) == seat::DROPPED;
            if given_up && !self.spares.following.iter().any(|spare| spare.seat == at) {
                seat.pid.store(0, Ordering::Release);
                clear_text(&seat.why);
                seat.state.store(seat::FREE, Ordering::Release);
            }
        }
    }

    /// Whether the primary is to be asked for a standby besides the heir.
    pub(super) fn wants_spare(&self) -> bool {
        if !self.wants_many() {
            return false;
        }
        let meta = &self.book.borrow().meta;
        let header = self.shared.segment.header();
        meta.reprotect
            && !self.is_kin
            && header.alone.load(Ordering::Acquire) == alone::NO
            && self.standby.is_some()
            && self.switch.is_none()
            && 1 + self.spares.following.len() < meta.standbys as usize + usize::from(self.wants_successor())
            && self.state() == GroupState::Protected
            && header.dropped.0.load(Ordering::Acquire) == 0
            && self.leaving() == leaving::NO
            && !self.is_promoted()
            && !self.shared.roster.is_doomed(self.shared.place)
    }

    /// How long to wait before the primary is asked, ns.
    pub(super) fn spare_delay_ns(&mut self) -> u64 {
        let (loss, lived_ns) = self.spares.lost.take().unwrap_or((Loss::Promoted, 0));
        let pause_ns = self.shared.segment.header().clone_pause_ns.load(Ordering::Acquire);
        self.spares.backoff.lost(loss, lived_ns, pause_ns)
    }

    /// Asks the primary while it has an heir. Unless it is dying: then the heir has just been told to take over.
    pub(super) fn ask_beside(&self) -> bool {
        let word = &self.shared.segment.header().command.0;
        word.compare_exchange(command::FOLLOW, command::CLONE, Ordering::SeqCst, Ordering::Acquire).is_ok()
    }

    // ---- The next heir ----

    /// Whether the primary is known to be dead.
    fn is_fallen(&self) -> bool {
        self.fallen.iter().any(|fallen| fallen.pid() == self.primary.pid)
    }

    /// Where there is no heir and there is a spare, the spare is the heir. `false` if there is nobody.
    pub(super) fn move_up(&mut self) -> bool {
        let lost = self.standby.is_none() && self.dropped() && self.state() == GroupState::Unprotected;
        let stays = matches!(self.leaving(), leaving::NO | leaving::DYING);
        if !lost || self.is_promoted() || !stays {
            return false;
        }
        // The reason is gone once there is another heir.
        let why = read_text(&self.shared.segment.header().why.0).map(|(_, why)| why).unwrap_or_default();
        while let Some(spare) = self.name_heir() {
            let header = self.shared.segment.header();
            let pid = spare.copy.pid;
            if self.is_fallen() {
                // Its predecessor failed on its way to take over.
                header.state.0.store(GroupState::Promoting as u32, Ordering::Release);
                self.standby = Some(spare.copy);
                choose(&self.shared, pid);
                return true;
            }
            for time in [&header.death_ns.0, &header.drained_ns, &header.live_ns] {
                time.store(0, Ordering::Relaxed);
            }
            let word = &header.command.0;
            let _ =
                word.compare_exchange(command::PROMOTE, command::FOLLOW, Ordering::AcqRel, Ordering::Acquire);
            self.standby = Some(spare.copy);
            self.said = GroupState::Protected;
            let state = &header.state.0;
            let (from, to) = (GroupState::Unprotected as u32, GroupState::Protected as u32);
            let _ = state.compare_exchange(from, to, Ordering::AcqRel, Ordering::Acquire);
            if self.dropped() {
                // Given up in this very moment.
                self.leave_protected();
                self.notice_drop();
                continue;
            }
            wake(state);
            self.protection_begins();
            self.forget_loss();
            self.save();
            self.event("moved_up", json!({ "primary": self.primary.pid, "standby": pid, "why": why }));
            let behind = if why.is_empty() { String::new() } else { format!(": {why}") };
            let line = format!("{} is protected by its spare standby, pid {pid}{behind}", self.name());
            self.say(Verbosity::Normal, line);
            // The sentry looks at death notices again.
            let attention = &self.shared.segment.header().attention.0;
            attention.fetch_add(1, Ordering::AcqRel);
            wake(attention);
            return true;
        }
        false
    }

    /// The first spare that still follows is named as heir in the header. What the primary reads meanwhile counts its
    /// position at every moment: as a spare's, as both, as the heir's.
    fn name_heir(&mut self) -> Option<Spare> {
        while !self.spares.following.is_empty() {
            let spare = self.spares.following.remove(0);
            let header = self.shared.segment.header();
            let seat = &header.seats[spare.seat];
            header.heir.store(spare.seat as u32, Ordering::Release);
            header.standby_pid.store(spare.copy.pid, Ordering::Release);
            self.shared.standby_pid.store(spare.copy.pid, Ordering::Release);
            // Whoever drops every standby drops the spares first, and then changes this word: as long as the spare
            // follows, it speaks of the last heir.
            let dropped = &header.dropped.0;
            let mut before = dropped.load(Ordering::Acquire);
            let follows = || seat.state.load(Ordering::Acquire) == seat::FOLLOWS;
            let mut is_heir = follows();
            while is_heir
                && let Err(now) = dropped.compare_exchange(before, 0, Ordering::AcqRel, Ordering::Acquire)
            {
                before = now;
                is_heir = follows();
            }
            let (from, to) = (seat::FOLLOWS, seat::FREE);
            if is_heir {
                if seat.state.compare_exchange(from, to, Ordering::AcqRel, Ordering::Acquire).is_ok() {
                    clear_text(&header.why.0);
                    return Some(spare);
                }
                let _ = dropped.compare_exchange(0, before, Ordering::AcqRel, Ordering::Acquire);
            }
            header.standby_pid.store(0, Ordering::Release);
            let _ = seat.state.compare_exchange(from, seat::DROPPED, Ordering::AcqRel, Ordering::Acquire);
            spare.copy.kill();
            self.spares.ending.push(spare.copy);
        }
        None
    }

    /// The heir has ended on its way to take over: another does. `false` if there is nobody.
    pub(super) fn next_takes_over(&mut self, end: End) -> bool {
        if self.shared.roster.is_doomed(self.shared.place) {
            return false;
        }
        self.attach_spares();
        let shared = std::sync::Arc::clone(&self.shared);
        let _choice = shared.choice.lock();
        let Some(spare) = self.name_heir() else { return false };
        let line = format!("{}: a standby could not take over: {}", self.name(), end.words());
        self.say(Verbosity::Normal, line);
        self.event("standby_lost", json!({ "why": end.words() }));
        let pid = spare.copy.pid;
        self.standby = Some(spare.copy);
        choose(&self.shared, pid);
        true
    }

    /// Ends all spares: the process is over, or left alone. Waits for nobody.
    pub(super) fn end_spares(&mut self) {
        self.attach_spares();
        for spare in self.spares.following.drain(..) {
            let seat = &self.shared.segment.header().seats[spare.seat].state;
            let _ = seat.compare_exchange(seat::FOLLOWS, seat::DROPPED, Ordering::AcqRel, Ordering::Acquire);
            spare.copy.kill();
            self.spares.ending.push(spare.copy);
        }
    }

    /// Pids of spares that have still to be reaped.
    pub(crate) fn ended_spares(&self) -> Vec<u32> {
        self.spares.ending.iter().map(|copy| copy.pid).collect()
    }
}
