//! The way back: a process without a standby asks its primary for one, its first or another.
//!
//! The primary is asked by a word in the header and a signal that makes one of its threads look there; which
//! thread does not matter, and one that sits in a call that nothing interrupts is passed over for the next.
//! When to ask is a rule of `us_order::reclone`; whether to ask at all, of [`crate::reprotect`].

use std::sync::atomic::Ordering;

use serde_json::json;
use us_abi::{CONFIG_AUTO, Cause, GroupState, command, leaving};
use us_order::family::Phase;
use us_order::reclone::Backoff;

use super::Watch;
use crate::child::Child;
use crate::clock;
use crate::history::Reclone;
use crate::knock::Knock;
use crate::options::Verbosity;
use crate::reprotect::{self, Situation};
use crate::segment::{clear_text, read_text, wake};
use crate::{family, memory, proc};

/// How long the primary may take to answer.
const ANSWER_NS: u64 = 3_000_000_000;

/// Pause between two looks at an answer that is being written; its end rings the bell as well.
const UNFINISHED_NS: u64 = 1_000_000;

/// The word may be gone so long before there is an answer. It is wiped away by an exec at the same moment.
const WIPED_NS: u64 = 50_000_000;

/// A standby that is gone.
#[derive(Clone, Debug)]
struct Lost {
    at_ns: u64,
    cause: u32,
    why: String,
    /// Whether the program's threads took turns beside it.
    in_turns: bool,
}

/// Where the process stands on its way back.
#[derive(Clone, Copy, Debug)]
enum Stage {
    /// It has a standby, or is to have none.
    Idle,
    /// The primary is to be asked at this moment.
    Waits(u64),
    /// It has been asked, at this moment.
    Asked(u64),
}

/// What is known of standbys lost and made again.
#[derive(Debug)]
pub(super) struct Back {
    stage: Stage,
    backoff: Backoff,
    lost: Option<Lost>,
    /// How long the last standby lived, and how long its making had stopped the program.
    stretch_ns: u64,
    pause_ns: u64,
    /// The header's counters, as far as they have been acted on.
    clones: u32,
    failures: u32,
    knock: Knock,
    /// The last request was for one besides the heir.
    asked_for_spare: bool,
    /// Since when the word is gone and there is no answer.
    wiped_ns: Option<u64>,
}

impl Back {
    pub(super) fn new() -> Back {
        Back {
            stage: Stage::Idle,
            backoff: Backoff::default(),
            lost: None,
            stretch_ns: 0,
            pause_ns: 0,
            clones: 0,
            failures: 0,
            knock: Knock::default(),
            asked_for_spare: false,
            wiped_ns: None,
        }
    }
}

impl Watch<'_> {
    /// Whether no copy of the primary can be made any more. The runtime may have left it, and a signal would be the program's own.
    pub(super) fn is_bound(&self) -> bool {
        self.shared.segment.header().dropped.0.load(Ordering::Acquire) == Cause::Bound as u32
    }

    /// Makes a thread of the primary look at the header's command.
    pub(super) fn knock(&self, knock: &mut Knock) {
        // The signal would end a program that has no runtime in it, and one that replaces itself a moment later.
        if !self.is_bound() && self.leaving() == leaving::NO {
            knock.at(&self.shared.segment, self.primary.pid);
        }
    }

    /// Takes a command back; `false` when it has been answered meanwhile.
    pub(super) fn take_back(&self, asked: u32) -> bool {
        let word = &self.shared.segment.header().command.0;
        let back = word.compare_exchange(asked, command::FOLLOW, Ordering::SeqCst, Ordering::Acquire).is_ok();
        wake(word);
        back
    }

    /// A stretch under protection of this length has ended at `at_ns`.
    pub(super) fn note_stretch(&mut self, stretch_ns: u64, at_ns: u64) {
        self.back.stretch_ns = stretch_ns;
        let in_turns = self.takes_turns();
        self.back.lost = Some(Lost { at_ns, cause: 0, why: String::new(), in_turns });
    }

    /// Why the last attempt to make a standby did not succeed, until one does.
    pub(super) fn clone_error(&self) -> Option<String> {
        self.book.borrow().history.reclone_errors.get(&self.guest_pid()).cloned()
    }

    pub(super) fn set_clone_error(&self, why: Option<&str>) {
        let errors = &mut self.book.borrow_mut().history.reclone_errors;
        match why {
            Some(why) => errors.insert(self.guest_pid(), why.into()),
            None => errors.remove(&self.guest_pid()),
        };
    }

    /// Whether the primary is to be asked, now or later.
    pub(super) fn wants_standby(&self) -> bool {
        let header = self.shared.segment.header();
        let situation = Situation {
            state: self.state(),
            cause: self.cause(),
            leaving: self.leaving(),
            has_runtime: header.primary_pid.load(Ordering::Acquire) == self.primary.pid,
        };
        self.is_standby_wanted(situation.cause)
            && !self.shared.roster.is_doomed(self.shared.place)
            && self.standby.is_none()
            && self.dropped()
            && !self.is_promoted()
            && reprotect::is_due(situation)
    }

    fn is_standby_wanted(&self, cause: u32) -> bool {
        let meta = &self.book.borrow().meta;
        reprotect::is_wanted(meta.standbys, meta.reprotect, cause)
    }

    /// Whether the primary has been asked for a standby, and has not answered.
    pub(super) fn is_asked(&self) -> bool {
        matches!(self.back.stage, Stage::Asked(_))
    }

    /// Whether an attempt is under way that has not failed yet: nothing need be said until it has.
    pub(super) fn comes_back_at_once(&self) -> bool {
        let promoted = self.back.lost.as_ref().is_some_and(|lost| lost.cause == Cause::Promoted as u32);
        promoted && self.clone_error().is_none() && !matches!(self.back.stage, Stage::Idle)
    }

    /// When to look again, CLOCK_MONOTONIC ns.
    pub(super) fn back_at_ns(&self) -> Option<u64> {
        match self.back.stage {
            Stage::Idle => None,
            // A standby that is still being ended says so by SIGCHLD.
            Stage::Waits(_) if self.is_one_ending() => None,
            Stage::Waits(at_ns) => Some(at_ns),
            Stage::Asked(at_ns) => Some(self.back.knock.due_ns.min(at_ns + ANSWER_NS)),
        }
    }

    /// One step on the way back.
    pub(super) fn come_back(&mut self) {
        if let Stage::Asked(at_ns) = self.back.stage {
            return self.hear_answer(at_ns);
        }
        let wants = self.wants_standby() || self.wants_spare();
        if !wants || (self.is_kin && !self.is_born_into_family()) {
            self.back.stage = Stage::Idle;
            return;
        }
        let now = clock::monotonic_ns();
        if let Stage::Idle = self.back.stage {
            let delay_ns = if self.standby.is_some() { self.spare_delay_ns() } else { self.note_loss(now) };
            // One that is born into a family waits for its standby, and begins with it.
            let delay_ns = if self.is_born_into_family() { 0 } else { delay_ns };
            self.back.stage = Stage::Waits(now + delay_ns);
        }
        match self.back.stage {
            // What a standby that is not quite dead writes would be taken for its successor's word.
            Stage::Waits(at_ns) if now >= at_ns && !self.is_one_ending() => self.ask(now),
            _ => {}
        }
    }

    /// Keeps what the primary clears when it has a standby again; how long to wait, ns.
    fn note_loss(&mut self, now_ns: u64) -> u64 {
        let (cause, why) = read_text(&self.shared.segment.header().why.0)
            .unwrap_or_else(|| (0, "no reason was given".into()));
        let at_ns = self.back.lost.as_ref().map_or(now_ns, |lost| lost.at_ns);
        let in_turns = self.takes_turns();
        self.back.lost = Some(Lost { at_ns, cause, why, in_turns });
        let back = &mut self.back;
        let delay_ns = back.backoff.lost(reprotect::loss(cause), back.stretch_ns, back.pause_ns);
        back.stretch_ns = 0;
        delay_ns
    }

    fn ask(&mut self, now_ns: u64) {
        if self.stands_for_checkpoint() {
            // Whoever asked for anything else would have it go on.
            self.back.stage = Stage::Waits(now_ns + WIPED_NS);
            return;
        }
        // A process that is gone before it is asked needs none.
        if let Err(cause) = self.start_sentry() {
            return self.not_made(&format!("cannot start a thread: {cause}"));
        }
        if let Some(why) = self.obstacle() {
            return self.not_made(why);
        }
        self.say_last_words();
        self.last_words_said = false;
        let header = self.shared.segment.header();
        self.clear_seats();
        clear_text(&header.last_words.0);
        clear_text(&header.clone_error.0);
        header.parked.store(0, Ordering::Release);
        self.back.failures = header.clone_failures.load(Ordering::Acquire);
        if self.standby.is_none() {
            header.command.0.store(command::CLONE, Ordering::SeqCst);
        } else if !self.ask_beside() {
            self.back.stage = Stage::Waits(now_ns + WIPED_NS);
            return;
        }
        wake(&header.command.0);
        self.back.asked_for_spare = self.standby.is_some();
        self.back.stage = Stage::Asked(now_ns);
        self.back.wiped_ns = None;
        let mut knock = Knock::default();
        self.knock(&mut knock);
        self.back.knock = knock;
    }

    /// Why the primary is not to be asked at this moment, if it is not.
    fn obstacle(&self) -> Option<&'static str> {
        if proc::is_traced(self.primary.pid) {
            return Some("it is traced by a debugger: the request for a standby would stop it");
        }
        memory::is_scarce(self.primary.pid).then_some("too little memory is free for another copy")
    }

    fn is_born_into_family(&self) -> bool {
        family::has(&self.shared.roster, self.shared.segment.header())
            && family::state(&self.shared.roster) == Phase::Active
    }

    /// Whether it gets its standbys together with those with whom it shares memory.
    pub(crate) fn set_kin(&mut self, is_kin: bool) {
        self.is_kin = is_kin;
    }

    /// Whether it can be asked for a standby together with others. If it has one by itself that is given up.
    pub(crate) fn is_ready_for_family(&mut self) -> bool {
        if self.state() == GroupState::Protected && self.standby.is_some() {
            self.drop_protection(
                Cause::CannotReplay,
                "processes that share memory get their standbys together",
            );
        }
        !self.is_asked() && self.ending.is_none() && self.wants_standby()
    }

    /// Asks it for one, as a member of this family.
    pub(crate) fn ask_for_family(&mut self, number: u32) {
        let now = clock::monotonic_ns();
        let _ = self.note_loss(now);
        self.shared.segment.header().family.store(number, Ordering::SeqCst);
        self.ask(now);
    }

    pub(super) fn stop_asking(&mut self) {
        self.back.stage = Stage::Idle;
    }

    fn hear_answer(&mut self, asked_ns: u64) {
        let header = self.shared.segment.header();
        let now = clock::monotonic_ns();
        let late = now >= asked_ns + ANSWER_NS;
        // The rest of a good answer is still being written.
        let between = self.state() == GroupState::Unprotected && !self.dropped();
        let unfinished = between || self.state() == GroupState::Protected || self.is_cloned();
        let (wanted, is_answered) = match self.back.asked_for_spare {
            true => (self.wants_spare() || self.wants_standby(), false),
            false => (self.wants_standby(), self.standby.is_some()),
        };
        if self.back.asked_for_spare && self.standby.is_none() && self.is_cloned() && !self.has_followers() {
            // It was made, and given up with the heir: nobody will take it up, and the next one is asked for as an heir.
            self.take_back(command::CLONE);
            self.forget_clone();
        } else if self.standby.is_none() && unfinished && !late {
            self.back.knock.due_ns = now + UNFINISHED_NS;
        } else if is_answered || !wanted {
            // It exits, or replaces itself, or has its standby already.
            self.take_back(command::CLONE);
            self.back.stage = Stage::Idle;
        } else if header.clone_failures.load(Ordering::Acquire) != self.back.failures {
            if self.back.asked_for_spare && self.standby.is_none() {
                // The heir was lost meanwhile: the next one is asked for as such.
                self.take_back(command::CLONE);
                self.back.stage = Stage::Idle;
                return;
            }
            let why = read_text(&header.clone_error.0);
            self.not_made(&why.map_or("the primary gave no reason".into(), |(_, why)| why));
        } else if header.command.0.load(Ordering::SeqCst) != command::CLONE && !late {
            match *self.back.wiped_ns.get_or_insert(now) {
                since_ns if now >= since_ns + WIPED_NS => self.ask(now),
                since_ns => self.back.knock.due_ns = since_ns + WIPED_NS,
            }
        } else if !late {
            let mut knock = self.back.knock;
            self.knock(&mut knock);
            self.back.knock = knock;
        } else {
            // Whether or not the word still stands. An answer that comes after all is heard.
            self.not_made("the primary did not answer in time");
        }
    }

    fn not_made(&mut self, why: &str) {
        self.take_back(command::CLONE);
        self.back.failures = self.shared.segment.header().clone_failures.load(Ordering::Acquire);
        let delay_ns = self.back.backoff.failed();
        self.back.stage = Stage::Waits(clock::monotonic_ns() + delay_ns);
        self.book.borrow_mut().history.failed_reclones += 1;
        let news = self.clone_error().as_deref() != Some(why);
        self.set_clone_error(Some(why));
        self.save();
        if news {
            let line = format!("{}: a new standby could not be made: {why}", self.name());
            self.say(Verbosity::Normal, line);
        }
        self.announce_unprotected();
    }

    /// Whether a standby has been made of the running primary that has not been taken up yet.
    pub(super) fn is_cloned(&self) -> bool {
        self.shared.segment.header().clones.load(Ordering::Acquire) != self.back.clones
    }

    /// The process has a standby that was made at our wish. Whether that has been told: of a first one it is not.
    pub(super) fn taken_up(&mut self, standby: &Child) -> bool {
        let header = self.shared.segment.header();
        self.back.clones = header.clones.load(Ordering::Acquire);
        self.back.failures = header.clone_failures.load(Ordering::Acquire);
        self.back.pause_ns = header.clone_pause_ns.load(Ordering::Acquire);
        self.take_back(command::CLONE);
        self.back.stage = Stage::Idle;
        let now = clock::monotonic_ns();
        let lost = self.back.lost.take().unwrap_or(Lost {
            at_ns: now,
            cause: 0,
            why: String::new(),
            in_turns: true,
        });
        if lost.cause == Cause::Newborn as u32 {
            return false;
        }
        let reclone = Reclone {
            process: self.guest_pid(),
            at: clock::now_text(),
            reason: reprotect::reason(lost.cause).into(),
            why: lost.why,
            pause_us: self.back.pause_ns / 1000,
            bytes: header.clone_bytes.load(Ordering::Acquire),
            gap_us: now.saturating_sub(lost.at_ns) / 1000,
        };
        let mut fields = serde_json::to_value(&reclone).unwrap_or_default();
        fields["primary"] = json!(self.primary.pid);
        fields["standby"] = json!(standby.pid);
        fields["order"] = json!(self.order_of_threads());
        let takes_turns = self.takes_turns();
        // Processes that share memory take them without a race.
        let by_itself = header.config.flags & CONFIG_AUTO != 0 && header.family.load(Ordering::Acquire) == 0;
        let races = takes_turns && by_itself && (lost.cause == Cause::Diverged as u32 || !lost.in_turns);
        if races && proc::read(self.primary.pid).is_some_and(|primary| primary.threads > 1) {
            self.book.borrow().folder.remember_race(self.primary.pid);
        }
        let line = format!(
            "{} is protected again after {:.1} ms, standby pid {}{}; the program paused for {:.1} ms",
            self.name(),
            reclone.gap_us as f64 / 1000.0,
            standby.pid,
            if takes_turns { ", its threads take turns" } else { "" },
            reclone.pause_us as f64 / 1000.0,
        );
        self.book.borrow_mut().history.reclones.push(reclone);
        // Before it is told: whoever hears of it and asks for the status finds it there.
        self.save();
        self.event("recloned", fields);
        self.say(Verbosity::Normal, line);
        true
    }

    /// Whether its threads take turns, as `status` says it.
    pub(super) fn order_of_threads(&self) -> &'static str {
        if self.takes_turns() { "serial" } else { "schedule" }
    }

    fn takes_turns(&self) -> bool {
        self.shared.segment.header().turns.load(Ordering::Acquire) != 0
    }

    /// A standby came by another way: whatever had become of the last one is no reason for it.
    pub(super) fn forget_loss(&mut self) {
        self.back.lost = None;
        self.set_clone_error(None);
    }

    /// The primary has answered with a spare. How long the program stood still for it, ns.
    pub(super) fn note_answer(&mut self) -> u64 {
        let header = self.shared.segment.header();
        self.back.clones = header.clones.load(Ordering::Acquire);
        self.back.failures = header.clone_failures.load(Ordering::Acquire);
        self.take_back(command::CLONE);
        self.back.stage = Stage::Idle;
        header.clone_pause_ns.load(Ordering::Acquire)
    }

    /// It is gone before it could be taken up.
    pub(super) fn forget_clone(&mut self) {
        self.back.clones = self.shared.segment.header().clones.load(Ordering::Acquire);
        self.back.stage = Stage::Idle;
    }

    /// Whether the header speaks of a standby: one that follows, or one that was given up before we looked.
    pub(super) fn has_new_standby(&self) -> bool {
        let given_up = self.state() == GroupState::Unprotected
            && self.dropped()
            && ((self.said == GroupState::Starting && !self.is_newborn()) || self.is_cloned());
        // Of one that we have asked for the counter is written last.
        let whole = !matches!(self.back.stage, Stage::Asked(_)) || self.is_cloned();
        (self.state() == GroupState::Protected && whole) || given_up
    }
}
