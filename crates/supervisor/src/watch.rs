//! The supervisor's main thread while the program runs: signals, ends of processes, and what follows from
//! what the group's processes write into the segment.
//!
//! Ends of processes are learnt from SIGCHLD alone, not by polling their descriptors: the descriptor of a
//! process that a debugger holds is readable long before the process can be reaped, and would spin.

mod back;
mod ends;
mod switch;

use std::collections::{HashMap, VecDeque};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use rustix::event::{PollFd, PollFlags, poll};
use serde_json::{Value, json};
use us_abi::{Cause, GroupState, leaving, slot};

use self::back::Back;
use self::switch::{Fenced, Switch};
use crate::child::Child;
use crate::clock;
use crate::events::Voice;
use crate::folder::{GroupFolder, Meta, ProcessId};
use crate::history::{Divergence, Failover, History};
use crate::options::Verbosity;
use crate::probe::{self, Probe};
use crate::request::Desk;
use crate::run::{say_started, started};
use crate::segment::{read_text, wake, write_text};
use crate::sentry::{Shared, state};
use crate::spawn::{self, End, Signals};

/// How long the runtime may take to answer before the program counts as unprotected, ms.
const START_TIMEOUT_MS: u64 = 10_000;

/// Overrides [`START_TIMEOUT_MS`]; for tests.
pub const ENV_START_TIMEOUT: &str = "UNDERSTUDY_START_TIMEOUT_MS";

/// A signal that has waited longer for its thread's next door is late, ns.
pub const SIGNAL_WAIT_NS_MAX: u64 = 10_000_000;

/// A primary that is no more.
#[derive(Debug)]
struct Fallen {
    pid: u32,
    /// How it ended; known once its address space is gone, which may be after the standby is live.
    end: Option<End>,
    /// The failover that is told once `end` is known, or at once where we ended the primary ourselves.
    failover: Option<Failover>,
    /// It has been told.
    told: bool,
}

/// What is to be said once a failover before it has been told.
#[derive(Debug)]
enum Word {
    Event(&'static str, Value),
    Line(Verbosity, String),
}

impl Fallen {
    fn new(pid: u32, end: Option<End>, failover: Option<Failover>) -> Fallen {
        Fallen { pid, end, failover, told: false }
    }
}

/// One group being watched.
pub struct Watch<'a> {
    folder: &'a GroupFolder,
    meta: Meta,
    shared: Arc<Shared>,
    signals: Signals,
    voice: Voice,
    history: History,
    primary: Child,
    standby: Option<Child>,
    /// A standby that is no longer wanted and has not been reaped yet.
    ending: Option<Child>,
    /// In the order of their falls: a large one may take longer to be gone than its successor lives.
    fallen: VecDeque<Fallen>,
    words: Vec<Word>,
    back: Back,
    desk: Option<Desk>,
    /// Requests that wait until it is known whether they can be met.
    requests: Vec<(String, UnixStream)>,
    switch: Option<Switch>,
    fenced: Option<Fenced>,
    probe: Option<Probe>,
    epoch: u32,
    /// The last state of which an event was written.
    said: GroupState,
    /// Signals to pass on once there is a primary to take them.
    held: Vec<i32>,
    /// Slot and beginning of each late signal already counted.
    late: HashMap<usize, u64>,
    last_words_said: bool,
    /// Whether it has been told that the program is protected.
    protected_said: bool,
    answer_by_ns: u64,
}

impl<'a> Watch<'a> {
    /// A group whose program has just been started.
    pub fn new(
        folder: &'a GroupFolder,
        meta: Meta,
        shared: Arc<Shared>,
        signals: Signals,
        voice: Voice,
        primary: Child,
        probe: Option<probe::Order>,
    ) -> Watch<'a> {
        let asked = std::env::var(ENV_START_TIMEOUT).ok().and_then(|text| text.parse().ok());
        let answer_by_ns = clock::monotonic_ns() + asked.unwrap_or(START_TIMEOUT_MS) * 1_000_000;
        let mut watch = Watch {
            folder,
            meta,
            shared,
            signals,
            voice,
            history: History::default(),
            primary,
            standby: None,
            ending: None,
            fallen: VecDeque::new(),
            words: Vec::new(),
            back: Back::new(),
            desk: None,
            requests: Vec::new(),
            switch: None,
            fenced: None,
            probe: probe.map(Probe::new),
            epoch: 0,
            said: GroupState::Starting,
            held: Vec::new(),
            late: HashMap::new(),
            last_words_said: false,
            protected_said: false,
            answer_by_ns,
        };
        watch.save();
        watch.open_desk();
        watch.voice.event("started", started(&watch.meta));
        say_started(&watch.voice, &watch.folder.name, &watch.meta);
        if watch.meta.standbys == 0 {
            watch.drop_protection(Cause::NotAsked, "started with --standbys 0");
        }
        watch
    }

    /// Watches until the last copy has ended; how it ended.
    pub fn until_the_end(mut self) -> End {
        loop {
            if let Some(end) = self.reap() {
                return self.finish(end);
            }
            self.look();
            self.pass_signals_on();
            self.sleep();
        }
    }

    /// The supervisor itself cannot do its work: the program goes on without it.
    pub fn give_up(&mut self, why: &str) {
        self.meta.reprotect = false;
        self.drop_protection(Cause::CannotReplay, why);
    }

    fn open_desk(&mut self) {
        match Desk::open(&self.folder.path) {
            Ok(desk) => self.desk = Some(desk),
            Err(cause) => self.say(Verbosity::Verbose, format!("no requests can be taken: {cause}")),
        }
    }

    fn state(&self) -> GroupState {
        state(&self.shared.segment)
    }

    fn leaving(&self) -> u32 {
        // After a command has been stored: either we see that the program leaves, or it sees the command.
        self.shared.segment.header().leaving.0.load(Ordering::SeqCst)
    }

    fn dropped(&self) -> bool {
        self.shared.segment.header().dropped.0.load(Ordering::Acquire) != 0
    }

    /// Whether a standby has become primary of which we have not heard yet.
    fn is_promoted(&self) -> bool {
        self.shared.segment.header().epoch.load(Ordering::Acquire) != self.epoch
    }

    /// Whether the program ends by its own will, its standby with it.
    fn ends_by_itself(&self) -> bool {
        matches!(self.leaving(), leaving::EXIT | leaving::SIGNAL)
    }

    // ---- Sleeping and signals ----

    fn sleep(&mut self) {
        let now = clock::monotonic_ns();
        let moments = [self.back_at_ns(), self.switch_at_ns(), self.probe_at_ns()];
        let waits = moments.map(|moment| moment.map(|at_ns| at_ns.saturating_sub(now)));
        let timeout_ns =
            [self.until_answer_ns(), self.until_late_ns()].into_iter().chain(waits).flatten().min();
        let timeout = timeout_ns.map(clock::timespec);
        let mut fds =
            vec![PollFd::new(&self.signals.fd, PollFlags::IN), PollFd::new(&self.shared.bell, PollFlags::IN)];
        let callers = self.desk.iter().flat_map(|desk| desk.fds());
        fds.extend(callers.map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN)));
        // Interrupted or timed out: the loop looks at everything anyway.
        let _ = poll(&mut fds, timeout.as_ref());
        drop(fds);
        let _ = rustix::io::read(&self.shared.bell, &mut [0u8; 8]);
        while let Some(arrived) = self.signals.next() {
            // A key of the terminal reaches the whole foreground group: the primary has its own copy.
            if arrived.signal != libc::SIGCHLD && !arrived.from_kernel {
                self.held.push(arrived.signal);
            }
        }
    }

    fn pass_signals_on(&mut self) {
        // Between two primaries a signal waits for the one that can act on it, and that we have heard of. One
        // that is parked for its standby's sake is a primary no more.
        let settled = self.switch.is_none() && self.state() != GroupState::Promoting && !self.is_promoted();
        if settled {
            self.held.drain(..).for_each(|signal| self.primary.signal(signal));
        }
    }

    /// Time left for the runtime's first answer, `None` when it has come.
    fn until_answer_ns(&self) -> Option<u64> {
        (self.state() == GroupState::Starting)
            .then(|| self.answer_by_ns.saturating_sub(clock::monotonic_ns()))
    }

    /// Time until the oldest waiting signal is late, `None` when none waits.
    fn until_late_ns(&mut self) -> Option<u64> {
        let now = clock::monotonic_ns();
        let mut next = None;
        for at in 0..self.shared.segment.slots() {
            let entry = self.shared.segment.thread(at);
            if entry.state.load(Ordering::Acquire) != slot::RUNNING
                || entry.pending_signal.load(Ordering::Acquire) == 0
            {
                continue;
            }
            let since = entry.pending_since_ns.load(Ordering::Acquire);
            if now.saturating_sub(since) < SIGNAL_WAIT_NS_MAX {
                next = Some(since + SIGNAL_WAIT_NS_MAX - now).min(next.or(Some(u64::MAX)));
            } else {
                // Its thread computes, and only it can deliver.
                let primary = self.shared.segment.header().primary_pid.load(Ordering::Acquire);
                spawn::nudge(primary, entry.primary_tid.load(Ordering::Acquire));
                next = Some(SIGNAL_WAIT_NS_MAX).min(next.or(Some(u64::MAX)));
                if self.late.insert(at, since) != Some(since) {
                    self.history.signals_late += 1;
                    self.save();
                }
            }
        }
        next
    }

    // ---- What the segment says ----

    fn look(&mut self) {
        self.attach_standby(self.has_new_standby());
        self.notice_promotion();
        self.notice_drop();
        if self.state() == GroupState::Starting && self.said != GroupState::Starting {
            self.start_anew();
        }
        if self.until_answer_ns() == Some(0) {
            self.drop_protection(Cause::CannotClone, "the runtime was not loaded");
        }
        self.come_back();
        if self.state() == GroupState::Unprotected && self.standby.is_none() {
            self.announce_unprotected();
        }
        self.tell_failovers();
        self.hear_requests();
        self.drive_switch();
        self.drive_probe();
    }

    /// The program replaces itself: the new image answers, or is found not to.
    fn start_anew(&mut self) {
        self.said = GroupState::Starting;
        let now = clock::monotonic_ns();
        self.protection_ends(now);
        self.answer_by_ns = now + START_TIMEOUT_MS * 1_000_000;
    }

    /// Takes up the standby that the header names, if `is_new`.
    fn attach_standby(&mut self, is_new: bool) {
        let pid = self.shared.segment.header().standby_pid.load(Ordering::Acquire);
        // A standby that was given up before we looked has been one all the same: it is told of, and then ended.
        if self.standby.is_some() || pid == 0 || !is_new {
            return;
        }
        // A promotion of which we have not heard yet comes first: its standby is the primary of this one.
        if self.is_promoted() {
            return;
        }
        let cloned = self.is_cloned();
        let child = Child::of_child(pid);
        if cloned && let Some(child) = &child {
            self.taken_up(child);
        }
        match child {
            Some(child) => {
                self.shared.standby_pid.store(pid, Ordering::Release);
                self.standby = Some(child);
                self.said = GroupState::Protected;
                self.history.protected(clock::monotonic_ns());
                self.forget_loss();
                self.save();
                if !cloned {
                    self.say_protected(pid);
                }
            }
            None => {
                self.forget_clone();
                self.lose_standby(pid, "the standby's process is gone");
            }
        }
    }

    fn say_protected(&mut self, standby: u32) {
        self.protected_said = true;
        self.event("protected", json!({ "primary": self.primary.pid, "standby": standby }));
        let line = format!("{} is protected, standby pid {standby}", self.folder.name);
        self.say(Verbosity::Verbose, line);
    }

    /// The standby says that it is primary now.
    fn notice_promotion(&mut self) {
        let header = self.shared.segment.header();
        let epoch = header.epoch.load(Ordering::Acquire);
        // Not "is unprotected": the new primary may have ended already.
        if epoch == self.epoch || self.state() == GroupState::Promoting {
            return;
        }
        self.epoch = epoch;
        let Some(standby) = self.standby.take() else { return };
        let live_ns = header.live_ns.load(Ordering::Acquire);
        let death_ns = header.death_ns.0.load(Ordering::Acquire);
        let mut failover = Failover {
            at: clock::now_text(),
            reason: String::new(),
            blackout_us: live_ns.saturating_sub(death_ns) / 1000,
            in_doubt: header.in_doubt.load(Ordering::Acquire),
            unsettled: header.unsettled.load(Ordering::Acquire),
        };
        header.standby_pid.store(0, Ordering::Release);
        let old = std::mem::replace(&mut self.primary, standby);
        if let Ok(mut primary) = self.shared.primary.lock() {
            *primary = Some(self.primary.clone());
        }
        if let Some(fenced) = self.fenced.take_if(|fenced| fenced.pid == old.pid) {
            failover.reason = fenced.reason.into();
        }
        match self.fallen.iter_mut().find(|fallen| fallen.pid == old.pid) {
            Some(fallen) => fallen.failover = Some(failover),
            None => self.fallen.push_back(Fallen::new(old.pid, None, Some(failover))),
        }
        self.protection_ends(death_ns);
        self.meta.primary = ProcessId::of(self.primary.pid);
        self.save();
    }

    /// Writes each failover down once it is known how the old primary ended, and what had to wait for that.
    fn tell_failovers(&mut self) {
        for at in 0..self.fallen.len() {
            let fallen = &mut self.fallen[at];
            if fallen.told {
                continue;
            }
            let Some(mut failover) = fallen.failover.take() else { break };
            if failover.reason.is_empty() {
                let Some(end) = fallen.end else {
                    fallen.failover = Some(failover);
                    break;
                };
                failover.reason = end.words();
            }
            fallen.told = true;
            self.tell_failover(failover);
        }
        // One that is not reaped yet is reaped at the group's end at the latest.
        self.fallen.retain(|fallen| !fallen.told || fallen.end.is_none());
        self.tell_rest();
    }

    fn tell_failover(&mut self, failover: Failover) {
        let mut fields = serde_json::to_value(&failover).unwrap_or_default();
        fields["primary"] = self.primary.pid.into();
        self.voice.event("promoted", fields);
        let line = format!(
            "{}: the primary is gone ({}); the standby, pid {}, took over in {:.1} ms; calls in doubt: {}, unsettled: {}",
            self.folder.name,
            failover.reason,
            self.primary.pid,
            failover.blackout_us as f64 / 1000.0,
            failover.in_doubt,
            failover.unsettled,
        );
        self.voice.say(Verbosity::Normal, &line);
        self.history.unsettled += u64::from(failover.unsettled);
        self.history.failovers.push(failover.clone());
        self.save();
        self.switched(&failover);
        self.announce_unprotected();
    }

    /// Says what had to wait for a failover to be told.
    fn tell_rest(&mut self) {
        if self.fallen.iter().all(|fallen| fallen.told) {
            for word in std::mem::take(&mut self.words) {
                match word {
                    Word::Event(event, fields) => self.voice.event(event, fields),
                    Word::Line(level, line) => self.voice.say(level, &line),
                }
            }
        }
    }

    /// Writes an event, behind the failover that came before it.
    fn event(&mut self, event: &'static str, fields: Value) {
        self.words.push(Word::Event(event, fields));
        self.tell_rest();
    }

    /// Says a line, behind the failover that came before it.
    fn say(&mut self, level: Verbosity, line: String) {
        self.words.push(Word::Line(level, line));
        self.tell_rest();
    }

    /// The runtime, or we, no longer want the standby.
    fn notice_drop(&mut self) {
        // Read in this order: a standby counts itself as promoted before it drops its own role, and one that
        // does both while we look must not be taken for a diverged one and killed.
        if !self.dropped() || self.is_promoted() {
            return;
        }
        if self.state() == GroupState::Promoting {
            // It diverged on its way to being live. Kept until it is reaped: its end is then the group's.
            return self.standby.iter().for_each(Child::kill);
        }
        let Some(standby) = self.standby.take() else { return };
        // Reaped with the orphans: its end says nothing any more.
        standby.kill();
        self.ending = Some(standby);
        let header = self.shared.segment.header();
        header.standby_pid.store(0, Ordering::Release);
        if self.ends_by_itself() {
            return;
        }
        self.leave_protected();
        self.note_divergence();
        self.say_last_words();
    }

    fn note_divergence(&mut self) {
        let header = self.shared.segment.header();
        let Some((code, reason)) = read_text(&header.why.0) else { return };
        if code != Cause::Diverged as u32 {
            return;
        }
        let divergence = Divergence {
            at: clock::now_text(),
            reason,
            thread: header.diverged_slot.load(Ordering::Acquire),
            position: header.diverged_at.load(Ordering::Acquire),
        };
        self.event("diverged", serde_json::to_value(&divergence).unwrap_or_default());
        self.history.divergences.push(divergence);
        self.save();
    }

    // ---- Losing protection ----

    /// The standby, which had the pid `lost`, has ended by itself.
    fn lose_standby(&mut self, lost: u32, why: &str) {
        let now = self.shared.segment.header().standby_pid.load(Ordering::Acquire);
        if self.leaving() == leaving::EXEC || (now != 0 && now != lost) {
            return self.start_anew();
        }
        self.shared.segment.header().standby_pid.store(0, Ordering::Release);
        if self.ends_by_itself() {
            return;
        }
        self.event("standby_lost", json!({ "why": why }));
        self.say_last_words();
        self.drop_protection(Cause::StandbyLost, why);
    }

    /// Tells the primary to log no more, with the reason unless there is one already.
    fn drop_protection(&mut self, cause: Cause, why: &str) {
        let header = self.shared.segment.header();
        let first = header.dropped.0.compare_exchange(0, 1, Ordering::AcqRel, Ordering::Acquire).is_ok();
        if first {
            write_text(&header.why.0, cause as u32, why);
        }
        wake(&header.dropped.0);
        self.leave_protected();
        self.announce_unprotected();
    }

    /// Moves the state to `Unprotected`, unless a promotion or the end has begun.
    fn leave_protected(&mut self) {
        let word = &self.shared.segment.header().state.0;
        let to = GroupState::Unprotected as u32;
        for from in [GroupState::Starting as u32, GroupState::Protected as u32] {
            let _ = word.compare_exchange(from, to, Ordering::AcqRel, Ordering::Acquire);
        }
        wake(word);
        self.protection_ends(clock::monotonic_ns());
    }

    fn announce_unprotected(&mut self) {
        let in_failover = self.fallen.iter().any(|fallen| fallen.failover.is_some());
        let said_or_untrue = self.said == GroupState::Unprotected || self.state() != GroupState::Unprotected;
        if said_or_untrue || in_failover || self.comes_back_at_once() {
            return;
        }
        self.said = GroupState::Unprotected;
        self.protection_ends(clock::monotonic_ns());
        self.save();
        let why = read_text(&self.shared.segment.header().why.0);
        let (code, why) = why.unwrap_or((0, "no reason was given".into()));
        self.event("unprotected", json!({ "why": why }));
        let asked_for = code == Cause::NotAsked as u32;
        let level = if asked_for { Verbosity::Verbose } else { Verbosity::Normal };
        self.say(level, format!("{} runs unprotected: {why}", self.folder.name));
    }

    fn say_last_words(&mut self) {
        if self.last_words_said {
            return;
        }
        if let Some((line, words)) = read_text(&self.shared.segment.header().last_words.0) {
            self.last_words_said = true;
            self.say(Verbosity::Normal, format!("the runtime failed: {words} (line {line})"));
        }
    }

    fn save(&self) {
        // A full disk costs `status` its history, nothing else.
        let _ = self.folder.write_json("meta.json", &self.meta);
        let _ = self.folder.write_json("history.json", &self.history);
    }
}
