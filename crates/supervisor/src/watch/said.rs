//! What is said of a process, each in its place: a failover is told once it is known how the old primary ended, and
//! what came after it is told after it.

use std::sync::atomic::Ordering;

use serde_json::{Value, json};
use us_abi::{Cause, GroupState, SegmentHeader, ThreadEntry, UnsettledCall, settlement, slot};

use super::Watch;
use crate::child::Child;
use crate::clock;
use crate::history::{Failover, Unsettled};
use crate::options::Verbosity;
use crate::proc;
use crate::reap::{self, Reaped};
use crate::segment::read_text;
use crate::snapshot::call_name;
use crate::symbols;

/// The reason of a failover where the kernel has told somebody else how the primary ended.
const UNKNOWN: &str = "killed";

/// A primary that is no more.
#[derive(Debug)]
pub(super) struct Fallen {
    copy: Child,
    /// Its descriptor is to be polled: it is not we who reap it.
    pub(super) is_polled: bool,
    /// How it ended; known once its address space is gone, which may be after the standby is live.
    pub(super) end: Option<Reaped>,
    /// It is gone, whether its end is known or not.
    is_gone: bool,
    /// It is we who have reaped it.
    pub(super) is_reaped: bool,
    /// The failover that is told once `end` is known, or at once where we ended the primary ourselves.
    failover: Option<Failover>,
    /// It has been told.
    told: bool,
}

/// What is to be said once a failover before it has been told.
#[derive(Debug)]
pub(super) enum Word {
    Event(&'static str, Value),
    Line(Verbosity, String),
}

impl Fallen {
    pub(super) fn new(copy: Child, is_polled: bool) -> Fallen {
        Fallen { copy, is_polled, end: None, is_gone: false, is_reaped: false, failover: None, told: false }
    }

    pub(super) fn pid(&self) -> u32 {
        self.copy.pid
    }

    pub(super) fn copy(&self) -> &Child {
        &self.copy
    }

    pub(super) fn tell_of(&mut self, failover: Failover) {
        self.failover = Some(failover);
    }

    /// It is gone; how it ended, if somebody could say.
    pub(super) fn is_gone_by(&mut self, end: Option<Reaped>, is_reaped: bool) {
        self.end = self.end.or(end);
        self.is_reaped |= is_reaped;
        self.is_gone = true;
        self.is_polled = false;
    }

    fn reason(&self) -> Option<String> {
        let known = self.end.map(|end| end.end().words());
        known.or_else(|| self.is_gone.then(|| UNKNOWN.into()))
    }
}

/// Of the calls that a copy could not settle when it took over, those that it has named.
pub(super) fn unsettled_calls(header: &SegmentHeader) -> Vec<Unsettled> {
    let count = header.unsettled.load(Ordering::Acquire) as usize;
    header.unsettled_calls.iter().take(count).map(unsettled).collect()
}

fn unsettled(told: &UnsettledCall) -> Unsettled {
    let descriptor = Some(told.fd.load(Ordering::Relaxed)).filter(|fd| *fd >= 0);
    let call = told.call.load(Ordering::Relaxed);
    if call == settlement::NO_CALL {
        let (thread_name, outcome) = (String::new(), "open".into());
        return Unsettled { call: None, descriptor, thread: 0, thread_name, outcome };
    }
    let outcome = match told.outcome.load(Ordering::Relaxed) {
        settlement::DONE => "done",
        settlement::SHORT => "short",
        _ => "again",
    };
    let name: Vec<u8> =
        told.name.iter().flat_map(|word| word.load(Ordering::Relaxed).to_le_bytes()).collect();
    Unsettled {
        call: Some(call_name(call as usize)),
        descriptor,
        thread: told.guest_tid.load(Ordering::Relaxed),
        thread_name: symbols::plain(name.split(|byte| *byte == 0).next().unwrap_or_default()),
        outcome: outcome.into(),
    }
}

impl Watch<'_> {
    /// The process in a line for people.
    pub(crate) fn name(&self) -> String {
        let group = &self.book.borrow().folder.name;
        if self.is_root { group.clone() } else { format!("{group}: process {}", self.guest_pid()) }
    }

    /// Writes each failover down once it is known how the old primary ended, and what had to wait for that.
    pub(super) fn tell_failovers(&mut self) {
        for at in 0..self.fallen.len() {
            let fallen = &mut self.fallen[at];
            if fallen.told {
                continue;
            }
            let Some(mut failover) = fallen.failover.take() else { break };
            if failover.reason.is_empty() {
                let Some(reason) = fallen.reason() else {
                    fallen.failover = Some(failover);
                    break;
                };
                failover.reason = reason;
            }
            fallen.told = true;
            self.tell_failover(failover);
        }
        // One that is not gone yet is reaped at the process's end at the latest.
        self.fallen.retain(|fallen| !fallen.told || !fallen.is_gone);
        self.tell_rest();
    }

    /// The end of everything: nothing waits any more for how a fallen primary ended.
    pub(super) fn tell_all(&mut self) {
        for fallen in self.fallen.iter_mut().filter(|fallen| !fallen.is_gone) {
            let pid = fallen.copy.pid;
            let end = if fallen.is_polled { proc::end_of(pid).map(Reaped::by) } else { reap::take(pid) };
            fallen.is_gone_by(end, !fallen.is_polled);
        }
        self.tell_failovers();
        // A fallen primary whose standby could not take over keeps nobody waiting any more.
        self.fallen.clear();
        self.tell_rest();
    }

    fn tell_failover(&mut self, failover: Failover) {
        let mut fields = serde_json::to_value(&failover).unwrap_or_default();
        fields["primary"] = self.primary.pid.into();
        let line = format!(
            "{}: the primary is gone ({}); the standby, pid {}, took over in {:.1} ms; calls in doubt: {}, {}",
            self.name(),
            failover.reason,
            self.primary.pid,
            failover.blackout_us as f64 / 1000.0,
            failover.in_doubt,
            failover.unsettled_words(),
        );
        let mut book = self.book.borrow_mut();
        book.voice.event("promoted", fields);
        book.voice.say(Verbosity::Normal, &line);
        book.history.unsettled += u64::from(failover.unsettled);
        book.history.failovers.push(failover.clone());
        book.save();
        drop(book);
        self.switched(&failover);
        self.announce_unprotected();
    }

    /// Says what had to wait for a failover to be told.
    fn tell_rest(&mut self) {
        if self.fallen.iter().all(|fallen| fallen.told) {
            let mut book = self.book.borrow_mut();
            for word in std::mem::take(&mut self.words) {
                match word {
                    Word::Event(event, fields) => book.voice.event(event, fields),
                    Word::Line(level, line) => book.voice.say(level, &line),
                }
            }
        }
    }

    /// Writes an event, behind the failover that came before it.
    pub(super) fn event(&mut self, event: &'static str, mut fields: Value) {
        fields["process"] = self.guest_pid().into();
        self.words.push(Word::Event(event, fields));
        self.tell_rest();
    }

    /// Says a line, behind the failover that came before it.
    pub(super) fn say(&mut self, level: Verbosity, line: String) {
        self.words.push(Word::Line(level, line));
        self.tell_rest();
    }

    pub(super) fn say_protected(&mut self, standby: u32) {
        self.protected_said = true;
        self.event("protected", json!({ "primary": self.primary.pid, "standby": standby }));
        let line = format!("{} is protected, standby pid {standby}", self.name());
        self.say(Verbosity::Verbose, line);
    }

    pub(super) fn announce_unprotected(&mut self) {
        let in_failover = self.fallen.iter().any(|fallen| fallen.failover.is_some());
        let said_or_untrue = self.said == GroupState::Unprotected || self.state() != GroupState::Unprotected;
        // One that is new need not be spoken of before its first standby could not be made.
        let waits = self.is_newborn() && self.clone_error().is_none();
        // A reason that is being cleared: there is a standby, or about to be one. The answer may have been heard already.
        let arrives = self.is_coming() && read_text(&self.shared.segment.header().why.0).is_none();
        // A spare is about to be the heir.
        let followed = self.wants_many()
            && (self.is_promoted() || self.spares.any() || self.has_followers() || self.ends_by_itself());
        // Killed together with its standby: one sentence says so, at the end.
        let could_have = self.standby_end.is_some() || self.cause() == Cause::Promoted as u32;
        let dies = !said_or_untrue && could_have && self.is_dying();
        if said_or_untrue || dies || in_failover || waits || arrives || followed || self.comes_back_at_once()
        {
            return;
        }
        let why = read_text(&self.shared.segment.header().why.0);
        if why.is_none() && (self.state() != GroupState::Unprotected || self.is_coming()) {
            // Its first standby has come since the state was looked at.
            return;
        }
        self.said = GroupState::Unprotected;
        self.protection_ends(clock::monotonic_ns());
        self.save();
        let (code, mut why) = why.unwrap_or((0, "no reason was given".into()));
        if code == Cause::Newborn as u32 {
            why = self.clone_error().unwrap_or_default();
        }
        self.event("unprotected", json!({ "why": why }));
        let asked_for = code == Cause::NotAsked as u32;
        let level = if asked_for { Verbosity::Verbose } else { Verbosity::Normal };
        self.say(level, format!("{} runs unprotected: {why}", self.name()));
    }

    /// Whether there is a standby, or about to be one: the primary takes back first that it had none, and then the reason.
    fn is_coming(&self) -> bool {
        self.is_asked() || self.is_cloned() || self.standby.is_some() || !self.dropped()
    }

    /// Whether the primary is dead, or has begun to be.
    fn is_dying(&self) -> bool {
        let segment = &self.shared.segment;
        let is_dead =
            |entry: &ThreadEntry| entry.state.load(Ordering::Acquire) == slot::RUNNING && entry.died();
        !self.primary.is_alive() || (0..segment.slots()).any(|at| is_dead(segment.thread(at)))
    }

    pub(super) fn say_last_words(&mut self) {
        if self.last_words_said {
            return;
        }
        if let Some((line, words)) = read_text(&self.shared.segment.header().last_words.0) {
            self.last_words_said = true;
            self.event("runtime_failed", json!({ "why": words, "line": line }));
            self.say(Verbosity::Normal, format!("the runtime failed: {words} (line {line})"));
        }
    }
}
