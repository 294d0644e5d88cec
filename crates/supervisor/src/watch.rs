//! The supervisor's main thread while the program runs: signals, ends of processes, and what follows from
//! what the group's processes write into the segment.
//!
//! Ends of processes are learnt from SIGCHLD alone, not by polling their descriptors: the descriptor of a
//! process that a debugger holds is readable long before the process can be reaped, and would spin.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use serde_json::{Value, json};
use us_abi::{Cause, GroupState, command, leaving, slot};
use us_order::detect::{self, Decision};

use crate::child::Child;
use crate::clock;
use crate::events::Voice;
use crate::folder::{GroupFolder, Meta, ProcessId};
use crate::history::{Divergence, Failover, History};
use crate::options::Verbosity;
use crate::run::{say_started, started};
use crate::segment::{read_text, wake, write_text};
use crate::sentry::{Shared, fail_over, state, verdict};
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
    /// The failover that is told once `end` is known.
    failover: Option<Failover>,
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
    fallen: Option<Fallen>,
    epoch: u32,
    /// The last state of which an event was written.
    said: GroupState,
    /// Signals to pass on once there is a primary to take them.
    held: Vec<i32>,
    /// Slot and beginning of each late signal already counted.
    late: HashMap<usize, u64>,
    last_words_said: bool,
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
            fallen: None,
            epoch: 0,
            said: GroupState::Starting,
            held: Vec::new(),
            late: HashMap::new(),
            last_words_said: false,
            answer_by_ns,
        };
        watch.save();
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
            self.look();
            if let Some(end) = self.reap() {
                return self.finish(end);
            }
            self.pass_signals_on();
            self.sleep();
        }
    }

    /// The supervisor itself cannot do its work: the program goes on without it.
    pub fn give_up(&mut self, why: &str) {
        self.drop_protection(Cause::CannotReplay, why);
    }

    fn state(&self) -> GroupState {
        state(&self.shared.segment)
    }

    fn leaving(&self) -> u32 {
        self.shared.segment.header().leaving.0.load(Ordering::Acquire)
    }

    fn dropped(&self) -> bool {
        self.shared.segment.header().dropped.0.load(Ordering::Acquire) != 0
    }

    /// Whether the program ends by its own will, its standby with it.
    fn ends_by_itself(&self) -> bool {
        matches!(self.leaving(), leaving::EXIT | leaving::SIGNAL)
    }

    // ---- Sleeping and signals ----

    fn sleep(&mut self) {
        let timeout_ns = [self.until_answer_ns(), self.until_late_ns()].into_iter().flatten().min();
        let timeout = timeout_ns
            .map(|ns| Timespec { tv_sec: (ns / 1_000_000_000) as i64, tv_nsec: (ns % 1_000_000_000) as i64 });
        let mut fds =
            [PollFd::new(&self.signals.fd, PollFlags::IN), PollFd::new(&self.shared.bell, PollFlags::IN)];
        // Interrupted or timed out: the loop looks at everything anyway.
        let _ = poll(&mut fds, timeout.as_ref());
        let _ = rustix::io::read(&self.shared.bell, &mut [0u8; 8]);
        while let Some(arrived) = self.signals.next() {
            // A key of the terminal reaches the whole foreground group: the primary has its own copy.
            if arrived.signal != libc::SIGCHLD && !arrived.from_kernel {
                self.held.push(arrived.signal);
            }
        }
    }

    fn pass_signals_on(&mut self) {
        // Between two primaries a signal waits for the one that can act on it, and that we have heard of.
        let settled = self.state() != GroupState::Promoting
            && self.shared.segment.header().epoch.load(Ordering::Acquire) == self.epoch;
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
        self.attach_standby();
        self.notice_promotion();
        self.notice_drop();
        if self.until_answer_ns() == Some(0) {
            self.drop_protection(Cause::CannotClone, "the runtime was not loaded");
        }
        if self.state() == GroupState::Unprotected && self.standby.is_none() {
            self.announce_unprotected();
        }
        self.tell_failover();
    }

    fn attach_standby(&mut self) {
        let pid = self.shared.segment.header().standby_pid.load(Ordering::Acquire);
        // A standby that was given up before we looked has been one all the same: it is told of, and then ended.
        let given_up = self.state() == GroupState::Unprotected && self.said == GroupState::Starting;
        if self.standby.is_some() || pid == 0 || !(self.state() == GroupState::Protected || given_up) {
            return;
        }
        match Child::of_child(pid) {
            Some(child) => {
                self.standby = Some(child);
                self.said = GroupState::Protected;
                self.history.protected(clock::monotonic_ns());
                self.save();
                self.voice.event("protected", json!({ "primary": self.primary.pid, "standby": pid }));
                let line = format!("{} is protected, standby pid {pid}", self.folder.name);
                self.voice.say(Verbosity::Verbose, &line);
            }
            None => self.lose_standby("the standby's process is gone"),
        }
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
        let failover = Failover {
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
        let fallen = self.fallen.get_or_insert(Fallen { pid: old.pid, end: None, failover: None });
        fallen.failover = Some(failover);
        self.history.unprotected(death_ns);
        self.meta.primary = ProcessId::of(self.primary.pid);
        self.save();
    }

    /// Writes the failover down once it is known how the old primary ended.
    fn tell_failover(&mut self) {
        let Some(fallen) = &mut self.fallen else { return };
        let Some(end) = fallen.end else { return };
        let Some(mut failover) = fallen.failover.take() else { return };
        failover.reason = end.words();
        let mut fields = serde_json::to_value(&failover).unwrap_or_default();
        if let Value::Object(fields) = &mut fields {
            fields.insert("primary".into(), self.primary.pid.into());
        }
        self.voice.event("promoted", fields);
        let line = format!(
            "{}: the primary was {}; the standby, pid {}, took over in {:.1} ms; calls in doubt: {}, unsettled: {}",
            self.folder.name,
            failover.reason,
            self.primary.pid,
            failover.blackout_us as f64 / 1000.0,
            failover.in_doubt,
            failover.unsettled,
        );
        self.voice.say(Verbosity::Normal, &line);
        self.history.failovers.push(failover);
        self.fallen = None;
        self.save();
        self.announce_unprotected();
    }

    /// The runtime, or we, no longer want the standby.
    fn notice_drop(&mut self) {
        // Read in this order: a standby counts itself as promoted before it drops its own role, and one that
        // does both while we look must not be taken for a diverged one and killed.
        if !self.dropped() || self.shared.segment.header().epoch.load(Ordering::Acquire) != self.epoch {
            return;
        }
        if self.state() == GroupState::Promoting {
            // It diverged on its way to being live. Kept until it is reaped: its end is then the group's.
            return self.standby.iter().for_each(Child::kill);
        }
        let Some(standby) = self.standby.take() else { return };
        // Reaped with the orphans: its end says nothing any more.
        standby.kill();
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
        self.voice.event("diverged", serde_json::to_value(&divergence).unwrap_or_default());
        self.history.divergences.push(divergence);
        self.save();
    }

    // ---- Losing protection ----

    fn lose_standby(&mut self, why: &str) {
        let lost = self.standby.take().map_or(0, |standby| standby.pid);
        let now = self.shared.segment.header().standby_pid.load(Ordering::Acquire);
        if self.leaving() == leaving::EXEC || (now != 0 && now != lost) {
            // The program replaces itself: the new image answers, or is found not to.
            self.said = GroupState::Starting;
            self.answer_by_ns = clock::monotonic_ns() + START_TIMEOUT_MS * 1_000_000;
            return;
        }
        self.shared.segment.header().standby_pid.store(0, Ordering::Release);
        if self.ends_by_itself() {
            return;
        }
        self.voice.event("standby_lost", json!({ "why": why }));
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
    }

    fn announce_unprotected(&mut self) {
        let in_failover = self.fallen.as_ref().is_some_and(|fallen| fallen.failover.is_some());
        if self.said == GroupState::Unprotected || self.state() != GroupState::Unprotected || in_failover {
            return;
        }
        self.said = GroupState::Unprotected;
        self.history.unprotected(clock::monotonic_ns());
        self.save();
        let why = read_text(&self.shared.segment.header().why.0);
        let (code, why) = why.unwrap_or((0, "no reason was given".into()));
        self.voice.event("unprotected", json!({ "why": why }));
        let asked_for = code == Cause::NotAsked as u32;
        let level = if asked_for { Verbosity::Verbose } else { Verbosity::Normal };
        self.voice.say(level, &format!("{} runs unprotected: {why}", self.folder.name));
    }

    fn say_last_words(&mut self) {
        if self.last_words_said {
            return;
        }
        if let Some((line, words)) = read_text(&self.shared.segment.header().last_words.0) {
            self.last_words_said = true;
            self.voice.say(Verbosity::Normal, &format!("the runtime failed: {words} (line {line})"));
        }
    }

    // ---- Ends of processes ----

    /// Reaps every child that has ended; the group's end, if this was it.
    fn reap(&mut self) -> Option<End> {
        while let Some(pid) = spawn::next_ended_child() {
            // What the process wrote before it ended comes first.
            self.look();
            let Some(end) = spawn::reap(pid) else { continue };
            let group_end = if pid == self.primary.pid {
                self.primary_ended(end)
            } else if self.standby.as_ref().is_some_and(|standby| standby.pid == pid) {
                self.standby_ended(end)
            } else {
                self.fallen_ended(pid, end);
                None
            };
            if group_end.is_some() {
                return group_end;
            }
        }
        None
    }

    fn primary_ended(&mut self, end: End) -> Option<End> {
        // The net under the death notices. An exit that said nothing is still an exit, as natively.
        if self.standby.is_some()
            && self.state() == GroupState::Protected
            && verdict(&self.shared.segment, cause_of(end)) == Decision::Promote
        {
            fail_over(&self.shared, &self.primary);
        }
        // The command, too: the standby may be live and out of `Promoting` before this line is reached.
        let command = self.shared.segment.header().command.0.load(Ordering::Acquire);
        let takes_over = self.state() == GroupState::Promoting || command == command::PROMOTE;
        if self.standby.is_some() && takes_over {
            self.fallen = Some(Fallen { pid: self.primary.pid, end: Some(end), failover: None });
            return None;
        }
        Some(end)
    }

    fn standby_ended(&mut self, end: End) -> Option<End> {
        if self.state() == GroupState::Promoting {
            self.standby = None;
            self.say_last_words();
            let line = format!("{}: the standby could not take over: {}", self.folder.name, end.words());
            self.voice.say(Verbosity::Normal, &line);
            self.voice.event("standby_lost", json!({ "why": end.words() }));
            return self.fallen.as_ref().and_then(|fallen| fallen.end);
        }
        self.lose_standby(&format!("the standby's process is gone: {}", end.words()));
        None
    }

    /// An adopted orphan, a standby that was dropped, or the primary from before a promotion.
    fn fallen_ended(&mut self, pid: u32, end: End) {
        if let Some(fallen) = self.fallen.as_mut().filter(|fallen| fallen.pid == pid) {
            fallen.end = Some(end);
            self.tell_failover();
        }
    }

    fn finish(mut self, end: End) -> End {
        if let Some(fallen) = self.fallen.as_mut().filter(|fallen| fallen.end.is_none()) {
            fallen.end = spawn::reap(fallen.pid);
        }
        self.tell_failover();
        // The primary ends its standby first; one that is still here would otherwise outlive the group. It may
        // be one of which we have not heard yet.
        let named = self.shared.segment.header().standby_pid.load(Ordering::Acquire);
        if let Some(standby) = self.standby.take().or_else(|| Child::of_child(named)) {
            standby.kill();
            spawn::reap(standby.pid);
        }
        self.say_last_words();
        self.shared.segment.header().state.0.store(GroupState::Ended as u32, Ordering::Release);
        let fields = match end {
            End::Exited(code) => json!({ "exit_code": code }),
            End::Killed(signal) => {
                json!({ "exit_code": 128 + signal, "signal": crate::signals::name(signal) })
            }
        };
        self.voice.event("ended", fields);
        self.voice.say(Verbosity::Verbose, &format!("{} ended: {}", self.folder.name, end.words()));
        end
    }

    fn save(&self) {
        // A full disk costs `status` its history, nothing else.
        let _ = self.folder.write_json("meta.json", &self.meta);
        let _ = self.folder.write_json("history.json", &self.history);
    }
}

/// A wait status in the words of the rules.
fn cause_of(end: End) -> detect::Cause {
    use libc::{SIGABRT, SIGBUS, SIGFPE, SIGILL, SIGKILL, SIGSEGV, SIGSYS, SIGTRAP};
    match end {
        End::Exited(_) => detect::Cause::Exited,
        End::Killed(SIGKILL) => detect::Cause::Killed,
        End::Killed(SIGSEGV | SIGBUS | SIGILL | SIGFPE | SIGABRT | SIGSYS | SIGTRAP) => detect::Cause::Fault,
        End::Killed(_) => detect::Cause::Signal,
    }
}
