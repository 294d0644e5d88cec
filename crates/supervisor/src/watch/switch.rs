//! Switches that somebody wants: a person, by `understudy failover`, or the group's probe.
//!
//! A planned switch first parks the primary, so that the standby finds no call in doubt. One that cannot be
//! parked because it does not react is switched all the same: it is then a failover like any other.

use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use serde_json::{Value, json};
use us_abi::{GroupState, command, leaving};
use us_order::detect::{Cause, Decision};

use super::Watch;
use crate::checkpoint;
use crate::checkpoint::take::{One, Refusal};
use crate::child::Child;
use crate::clock;
use crate::history::Failover;
use crate::knock::Knock;
use crate::proc;
use crate::request;
use crate::segment::wake;
use crate::sentry::{fail_over, verdict};

/// How long the primary may take to park.
const PARK_NS: u64 = 1_000_000_000;

/// The header's word that every thread stands still.
const PARKED: u32 = 1;

/// The reason of a planned switch.
const REASON: &str = "planned";

/// A planned switch under way.
#[derive(Debug)]
pub(super) struct Switch {
    caller: UnixStream,
    since_ns: u64,
    knock: Knock,
}

/// The primary that we end ourselves, and what for.
#[derive(Clone, Copy, Debug)]
pub(super) struct Fenced {
    pub(super) pid: u32,
    pub(super) reason: &'static str,
}

impl Watch<'_> {
    /// Whether a standby could take over at this moment.
    pub(crate) fn can_switch(&self) -> bool {
        self.standby.is_some()
            && self.state() == GroupState::Protected
            && verdict(&self.shared, Cause::Killed) == Decision::Promote
    }

    /// Whether there is a standby that we have not taken up yet, or a primary of which we have not heard.
    fn is_between(&self) -> bool {
        let untaken = self.state() == GroupState::Protected && self.standby.is_none() && !self.dropped();
        untaken || self.state() == GroupState::Promoting || self.is_promoted()
    }

    /// When to look again, CLOCK_MONOTONIC ns.
    pub(super) fn switch_at_ns(&self) -> Option<u64> {
        let switch = self.switch.as_ref().filter(|_| self.fenced.is_none())?;
        let answered = self.shared.segment.header().parked.load(Ordering::Acquire) != 0;
        let end_ns = switch.since_ns + PARK_NS;
        Some(if answered { end_ns } else { switch.knock.due_ns.min(end_ns) })
    }

    /// Somebody wants a planned switch. The caller again if it is not known yet whether that can be met.
    pub(crate) fn ask_switch(&mut self, caller: UnixStream) -> Option<UnixStream> {
        let refusal = if self.switch.is_some() {
            "a switch is under way".into()
        } else if self.stands_for_checkpoint() {
            "a checkpoint is being written".into()
        } else if self.is_between() {
            return Some(caller);
        } else if !self.can_switch() {
            self.why_no_switch()
        } else {
            self.begin_switch(caller);
            return None;
        };
        request::answer(caller, &json!({ "error": refusal }));
        None
    }

    /// Whether it is about to have another primary, or its first standby: nothing else is asked of it meanwhile.
    pub(crate) fn is_busy(&self) -> bool {
        self.is_between() || self.is_asked() || self.switch.is_some()
    }

    /// The process as one that is to be in a checkpoint.
    ///
    /// # Errors
    /// Why it cannot be.
    pub(crate) fn for_checkpoint(&self) -> Result<One<'_>, Refusal> {
        let named = |why: &str| match self.is_root {
            true => why.to_owned(),
            false => format!("process {}: {why}", self.guest_pid()),
        };
        if self.leaving() != leaving::NO {
            // What it has executed may have no runtime, or not yet.
            let has_runtime = proc::catches(self.primary.pid, libc::SIGSYS);
            let name = proc::name(self.primary.pid).unwrap_or_default();
            return Err(Refusal::Later(named(&match has_runtime {
                true => "the program is about to end".into(),
                false => format!("{name} runs without the runtime"),
            })));
        }
        if self.is_bound() {
            return Err(Refusal::Never(named("a system call has bound the process to itself")));
        }
        let mut knock = Knock::default();
        Ok(One {
            place: self.shared.place,
            segment: &self.shared.segment,
            primary: self.primary.pid,
            knock: Box::new(move || self.knock(&mut knock)),
        })
    }

    /// Whether it stands still for a checkpoint, or is about to.
    pub(crate) fn stands_for_checkpoint(&self) -> bool {
        self.shared.segment.header().command.0.load(Ordering::Acquire) == command::CHECKPOINT
    }

    /// Nobody writes it: a program that stands still for that goes on.
    pub(crate) fn let_go_from_checkpoint(&self) {
        checkpoint::take::give_up(&self.shared.segment);
    }

    /// Ends a process that stands still, once it is known to be written; otherwise it goes on.
    pub(crate) fn end_when_written(&self) -> impl FnOnce(bool) + Send + 'static {
        let shared = Arc::clone(&self.shared);
        // The standby first: it must not take over.
        let copies: Vec<Child> =
            self.standby.iter().chain(self.spares.copies()).chain([&self.primary]).cloned().collect();
        move |is_written| match is_written {
            true => {
                shared.roster.doom_all();
                copies.iter().for_each(Child::kill);
            }
            false => checkpoint::take::give_up(&shared.segment),
        }
    }

    /// Whether a planned switch is under way.
    pub(crate) fn is_switching(&self) -> bool {
        self.switch.is_some()
    }

    fn why_no_switch(&self) -> String {
        let header = self.shared.segment.header();
        let why =
            crate::segment::read_text(&header.why.0).map_or(String::new(), |(_, why)| format!(": {why}"));
        match self.state() {
            GroupState::Starting => "there is no standby yet".into(),
            GroupState::Protected | GroupState::Promoting if self.leaving() != leaving::NO => {
                "the program is ending".into()
            }
            _ if self.wants_standby() => format!("there is no standby yet; one is being made{why}"),
            _ => format!("there is no standby{why}"),
        }
    }

    fn begin_switch(&mut self, caller: UnixStream) {
        let header = self.shared.segment.header();
        header.parked.store(0, Ordering::Release);
        header.command.0.store(command::PARK, Ordering::SeqCst);
        wake(&header.command.0);
        let mut knock = Knock::default();
        self.knock(&mut knock);
        self.switch = Some(Switch { caller, since_ns: clock::monotonic_ns(), knock });
    }

    /// One step of a planned switch.
    pub(crate) fn drive_switch(&mut self) {
        let Some(switch) = self.switch.as_ref().filter(|_| self.fenced.is_none()) else { return };
        let (since_ns, mut knock) = (switch.since_ns, switch.knock);
        if self.state() == GroupState::Promoting {
            // It died before we could end it. The switch happens all the same.
            return;
        }
        if !self.can_switch() {
            self.take_back(command::PARK);
            let why = self.why_no_switch();
            return self.answer_switch(&json!({ "error": why }));
        }
        let parked = self.shared.segment.header().parked.load(Ordering::Acquire);
        match (parked, clock::monotonic_ns() >= since_ns + PARK_NS) {
            // For the program's clients the blackout began when its threads were stopped.
            (PARKED, _) | (0, true) => return self.fence(REASON, since_ns),
            (0, false) => {}
            // A thread would not: its standby is about to be given up, and must not be counted on.
            (_, false) => return,
            (_, true) => {
                self.take_back(command::PARK);
                return self
                    .answer_switch(&json!({ "error": "a thread of the program could not be parked" }));
            }
        }
        self.knock(&mut knock);
        if let Some(switch) = &mut self.switch {
            switch.knock = knock;
        }
    }

    /// Ends the primary; the standby takes over.
    pub(crate) fn fence(&mut self, reason: &'static str, since_ns: u64) {
        self.fenced = Some(Fenced { pid: self.primary.pid, reason });
        let begun = fail_over(&self.shared, &self.primary, since_ns);
        // The sentry may have been first, and the standby live by now. If not, there was none any more.
        if !begun && self.state() != GroupState::Promoting && !self.is_promoted() {
            self.fenced = None;
        }
    }

    /// Tells the caller of a switch, if there is one, of the failover.
    pub(super) fn switched(&mut self, failover: &Failover) {
        let mut answer = serde_json::to_value(failover).unwrap_or_default();
        answer["primary"] = json!(self.primary.pid);
        answer["epoch"] = json!(self.epoch);
        self.answer_switch(&answer);
    }

    /// Ends a switch with this answer.
    pub(super) fn answer_switch(&mut self, answer: &Value) {
        if let Some(switch) = self.switch.take() {
            request::answer(switch.caller, answer);
        }
    }
}
