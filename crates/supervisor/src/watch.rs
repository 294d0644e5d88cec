//! One process of a group: its primary, its standby, and what follows from what they write into their segment.
//!
//! The main thread looks at every process whenever anything has happened. Ends of our children are learnt from SIGCHLD
//! alone, not by polling their descriptors: the descriptor of a process that a debugger holds is readable long
//! before the process can be reaped, and would spin. A primary that is somebody else's child can be known by its
//! descriptor only, which is polled until it has been readable once.

mod back;
mod confirm;
mod ends;
mod explain;
mod loss;
mod said;
mod spares;
mod switch;

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use us_abi::{Cause, GroupState, SIGNAL_WAIT_NS_MAX, leaving, slot};

use self::back::Back;
use self::confirm::Confirm;
pub(crate) use self::ends::Over;
use self::explain::Look;
use self::said::{Fallen, Word};
use self::spares::Spares;
use self::switch::{Fenced, Switch};
use crate::book::{Explaining, SharedBook};
use crate::child::Child;
use crate::clock;
use crate::family;
use crate::folder::ProcessId;
use crate::history::{Divergence, Failover, Stretches};
use crate::reap::End;
use crate::segment::read_text;
use crate::sentry::{Shared, state};
use crate::{proc, reap, spawn};

/// How long the runtime may take to answer before the program counts as unprotected, ms.
const START_TIMEOUT_MS: u64 = 10_000;

/// Overrides [`START_TIMEOUT_MS`]; for tests.
pub const ENV_START_TIMEOUT: &str = "UNDERSTUDY_START_TIMEOUT_MS";

/// One process being watched.
pub(crate) struct Watch<'a> {
    book: SharedBook<'a>,
    shared: Arc<Shared>,
    /// Whether its sentry runs.
    has_sentry: bool,
    /// Whether it is the program itself.
    is_root: bool,
    /// Whether the group is judged by it, and signals go to it.
    pub(crate) leads: bool,
    /// Whether it has been found to be a daemon.
    pub(crate) is_daemon: bool,
    primary: Child,
    /// Whether the primary's descriptor is to be polled: the kernel tells somebody else of its end.
    is_polled: bool,
    standby: Option<Child>,
    /// A standby that is no longer wanted and has not been reaped yet.
    ending: Option<Child>,
    spares: Spares,
    /// In the order of their falls: a large one may take longer to be gone than its successor lives.
    fallen: VecDeque<Fallen>,
    words: Vec<Word>,
    back: Back,
    switch: Option<Switch>,
    fenced: Option<Fenced>,
    epoch: u32,
    /// When we heard last that a standby had become primary.
    promoted_ns: Option<u64>,
    /// The last state of which an event was written.
    said: GroupState,
    /// Whether a new program's runtime is waited for.
    is_awaited: bool,
    answer_by_ns: u64,
    stretches: Stretches,
    /// Slot and beginning of each late signal already counted.
    late: HashMap<usize, u64>,
    last_words_said: bool,
    /// Whether it has been told that the process is protected.
    protected_said: bool,
    over: Option<Over>,
    /// How its last standby ended, if by itself, and when; nobody has followed that one.
    standby_end: Option<(End, u64)>,
    /// The name of its program when it was last found to be protected, `None` if it never was.
    program: Option<String>,
    /// Whether it gets its standbys together with those with whom it shares memory.
    is_kin: bool,
    confirm: Confirm,
}

impl<'a> Watch<'a> {
    /// The program itself, which has just been started.
    pub(crate) fn root(book: SharedBook<'a>, shared: Arc<Shared>, primary: Child) -> Watch<'a> {
        let asked = std::env::var(ENV_START_TIMEOUT).ok().and_then(|text| text.parse().ok());
        let answer_by_ns = clock::monotonic_ns() + asked.unwrap_or(START_TIMEOUT_MS) * 1_000_000;
        let mut watch = Watch::new(book, shared, primary);
        watch.is_root = true;
        watch.leads = true;
        watch.is_awaited = true;
        watch.answer_by_ns = answer_by_ns;
        watch
    }

    /// A process that goes on from a checkpoint, and has not said so yet.
    pub(crate) fn restored(book: SharedBook<'a>, shared: Arc<Shared>, primary: Child) -> Watch<'a> {
        let mut watch = Watch::new(book, shared, primary);
        watch.is_awaited = true;
        watch.answer_by_ns = clock::monotonic_ns() + START_TIMEOUT_MS * 1_000_000;
        watch
    }

    /// A process that has joined the group.
    pub(crate) fn member(book: SharedBook<'a>, shared: Arc<Shared>, primary: Child) -> Watch<'a> {
        let mut watch = Watch::new(book, shared, primary);
        watch.is_polled = true;
        // Of a number that is used again.
        watch.set_clone_error(None);
        watch
    }

    fn new(book: SharedBook<'a>, shared: Arc<Shared>, primary: Child) -> Watch<'a> {
        shared.roster.kin.add(&shared);
        Watch {
            book,
            shared,
            has_sentry: false,
            is_root: false,
            leads: false,
            is_daemon: false,
            primary,
            is_polled: false,
            standby: None,
            ending: None,
            spares: Spares::new(),
            fallen: VecDeque::new(),
            words: Vec::new(),
            back: Back::new(),
            switch: None,
            fenced: None,
            epoch: 0,
            promoted_ns: None,
            said: GroupState::Starting,
            is_awaited: false,
            answer_by_ns: 0,
            stretches: Stretches::default(),
            late: HashMap::new(),
            last_words_said: false,
            protected_said: false,
            over: None,
            standby_end: None,
            program: None,
            is_kin: false,
            confirm: Confirm::default(),
        }
    }

    /// The pid by which it knows itself.
    pub(crate) fn guest_pid(&self) -> u32 {
        self.shared.place.pid
    }

    /// Its segment, and where it stands in the roster.
    pub(crate) fn shared(&self) -> &Arc<Shared> {
        &self.shared
    }

    /// Whether it is the program itself.
    pub(crate) fn is_root(&self) -> bool {
        self.is_root
    }

    /// Its copy whose effects are real.
    pub(crate) fn primary(&self) -> &Child {
        &self.primary
    }

    /// Starts the thread that waits for what the process writes, if it does not run. Not at once: most children of a
    /// shell write nothing before they are gone.
    ///
    /// # Errors
    /// When the system has no room for it.
    pub(crate) fn start_sentry(&mut self) -> std::io::Result<()> {
        if !self.has_sentry {
            crate::sentry::start(Arc::clone(&self.shared))?;
            self.has_sentry = true;
        }
        Ok(())
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

    /// Code of the reason why there is no standby.
    fn cause(&self) -> u32 {
        read_text(&self.shared.segment.header().why.0).map_or(0, |(code, _)| code)
    }

    /// Whether it has no standby because it is new.
    fn is_newborn(&self) -> bool {
        self.state() == GroupState::Unprotected && self.cause() == Cause::Newborn as u32
    }

    /// Whether a standby is becoming primary, or has become it and we have not heard of it yet.
    pub(crate) fn is_between_primaries(&self) -> bool {
        self.state() == GroupState::Promoting || self.is_promoted()
    }

    /// Whether a standby is becoming primary, or has become it within these nanoseconds.
    pub(crate) fn has_lately_a_primary(&self, within_ns: u64) -> bool {
        let is_late = |since_ns| clock::monotonic_ns().saturating_sub(since_ns) < within_ns;
        self.is_between_primaries() || self.promoted_ns.is_some_and(is_late)
    }

    /// Whether a standby has become primary of which we have not heard yet.
    fn is_promoted(&self) -> bool {
        self.shared.segment.header().epoch.load(Ordering::Acquire) != self.epoch
    }

    /// Whether the program ends by its own will, its standby with it.
    fn ends_by_itself(&self) -> bool {
        matches!(self.leaving(), leaving::EXIT | leaving::SIGNAL)
    }

    fn save(&self) {
        self.book.borrow().save();
    }

    // ---- Times and signals ----

    /// When to look again, CLOCK_MONOTONIC ns.
    pub(crate) fn look_at_ns(&mut self) -> Option<u64> {
        let answer = self.until_answer_ns().map(|left_ns| clock::monotonic_ns() + left_ns);
        [answer, self.late_at_ns(), self.back_at_ns(), self.switch_at_ns(), self.confirm_at_ns()]
            .into_iter()
            .flatten()
            .min()
    }

    /// Sends the process a signal, so that it gets it once whatever becomes of its primary. `false` where there is nobody at this
    /// moment who could act on it, or of whom we have not heard; one that is parked for its standby's sake is a primary no more.
    ///
    /// It is counted in the roster before the kernel is asked. While the lock is held no promotion begins, so the one that comes
    /// next finds the count, and raises what the log does not say was taken.
    pub(crate) fn pass_on(&self, number: i32) -> bool {
        let Ok(_named) = self.shared.primary.lock() else { return false };
        if self.switch.is_some() || self.is_between_primaries() {
            return false;
        }
        self.shared.roster.note_signal(self.shared.place, number);
        self.primary.signal(number);
        true
    }

    /// Sends a signal to the copy that the kernel knows as `pid`; `false` when that is none of ours.
    pub(crate) fn signal_copy(&self, pid: u32, number: i32) -> bool {
        let copies = [Some(&self.primary), self.standby.as_ref()].into_iter().flatten();
        let copy = copies.chain(self.spares.copies()).find(|copy| copy.pid == pid);
        copy.inspect(|copy| copy.signal(number)).is_some()
    }

    /// Time left for the runtime's first answer, `None` when it has come.
    fn until_answer_ns(&self) -> Option<u64> {
        (self.state() == GroupState::Starting)
            .then(|| self.answer_by_ns.saturating_sub(clock::monotonic_ns()))
    }

    /// When the oldest waiting signal is late, `None` when none waits.
    fn late_at_ns(&mut self) -> Option<u64> {
        let now = clock::monotonic_ns();
        let mut next: Option<u64> = None;
        for at in 0..self.shared.segment.slots() {
            let entry = self.shared.segment.thread(at);
            if entry.state.load(Ordering::Acquire) != slot::RUNNING
                || entry.pending_signal.load(Ordering::Acquire) == 0
            {
                continue;
            }
            let since = entry.pending_since_ns.load(Ordering::Acquire);
            let mut due = since.saturating_add(SIGNAL_WAIT_NS_MAX);
            if now.saturating_sub(since) >= SIGNAL_WAIT_NS_MAX {
                due = now + SIGNAL_WAIT_NS_MAX;
                // Its thread computes, and only it can deliver.
                let primary = self.shared.segment.header().primary_pid.load(Ordering::Acquire);
                if primary == self.primary.pid && proc::takes_nudges(primary) {
                    spawn::nudge(primary, entry.primary_tid.load(Ordering::Acquire));
                }
                if self.late.insert(at, since) != Some(since) {
                    self.book.borrow_mut().history.signals_late += 1;
                    self.save();
                }
            }
            next = Some(next.map_or(due, |so_far| so_far.min(due)));
        }
        next
    }

    // ---- What the segment says ----

    /// Acts on what has changed.
    pub(crate) fn look(&mut self) {
        if self.over.is_some() {
            return;
        }
        self.attach_standby(self.has_new_standby());
        self.notice_copies();
        // One that was born into it as well.
        self.is_kin |= family::has(&self.shared.roster, self.shared.segment.header());
        match self.state() == GroupState::Starting {
            true if !self.is_awaited => self.start_anew(),
            awaited => self.is_awaited = awaited,
        }
        if self.until_answer_ns() == Some(0) {
            self.drop_protection(Cause::CannotClone, "the runtime was not loaded");
        }
        self.come_back();
        if self.back_at_ns().is_none() && !self.ends_by_itself() {
            // No time has been set at which to look again: somebody must ring. Without it the look is a late one.
            let _ = self.start_sentry();
        }
        if self.state() == GroupState::Unprotected && self.standby.is_none() {
            self.announce_unprotected();
        }
        self.tell_failovers();
        self.drive_switch();
        self.notice_left_behind();
        self.notice_nobody();
        self.confirm_standby();
    }

    /// The program replaces itself: the new image answers, or is found not to.
    fn start_anew(&mut self) {
        self.is_kin = false;
        self.said = GroupState::Starting;
        self.is_awaited = true;
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
        let child = self.copy_named(pid);
        let told = match &child {
            Some(child) if cloned => self.taken_up(child),
            _ => false,
        };
        match child {
            Some(child) => {
                // Before the sentry may choose it.
                self.shared.raise_score(pid, self.primary.pid);
                self.shared.watch_memory(pid, self.primary.pid);
                self.shared.standby_pid.store(pid, Ordering::Release);
                self.standby = Some(child);
                self.standby_end = None;
                self.program = Some(proc::name(self.primary.pid).unwrap_or_default());
                self.said = GroupState::Protected;
                self.protection_begins();
                self.forget_loss();
                self.save();
                if !told {
                    self.say_protected(pid);
                }
            }
            None => {
                self.forget_clone();
                self.lose_standby(pid, "the standby's process is gone");
            }
        }
    }

    /// The process that the segment names as a copy. Who may write the segment need not have our rights: then the kernel has
    /// to say so as well, or that its writer could signal that process.
    fn copy_named(&self, pid: u32) -> Option<Child> {
        let own = self.primary.pid;
        // The program's own is our child from the first moment.
        let child = if self.is_root { Child::of_child(pid) } else { Child::of_descendant(pid) }?;
        let is_one = || reap::share_descriptors(own, pid) || proc::may_signal(own, pid);
        (!self.shared.roster.is_mixed() || is_one()).then_some(child)
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
        self.promoted_ns = Some(clock::monotonic_ns());
        let Some(standby) = self.standby.take() else { return };
        let live_ns = header.live_ns.load(Ordering::Acquire);
        let death_ns = header.death_ns.0.load(Ordering::Acquire);
        let mut failover = Failover {
            process: self.guest_pid(),
            at: clock::now_text(),
            reason: String::new(),
            blackout_us: live_ns.saturating_sub(death_ns) / 1000,
            in_doubt: header.in_doubt.load(Ordering::Acquire),
            unsettled: header.unsettled.load(Ordering::Acquire),
            unsettled_calls: said::unsettled_calls(header),
        };
        header.standby_pid.store(0, Ordering::Release);
        let old = std::mem::replace(&mut self.primary, standby);
        if let Ok(mut primary) = self.shared.primary.lock() {
            *primary = Some(self.primary.clone());
        }
        if let Some(fenced) = self.fenced.take_if(|fenced| fenced.pid == old.pid) {
            failover.reason = fenced.reason.into();
        }
        // A child that the old primary made just before its death may have been listed behind it.
        if self.shared.roster.adopt_children(self.guest_pid(), live_ns, spawn::exists) {
            self.shared.roster.tell();
        }
        if !self.fallen.iter().any(|fallen| fallen.pid() == old.pid) {
            self.fallen.push_back(Fallen::new(old.clone(), self.is_polled));
        }
        self.fallen.iter_mut().filter(|fallen| fallen.pid() == old.pid).for_each(|fallen| {
            fallen.tell_of(failover.clone());
        });
        // This one is our child.
        self.is_polled = false;
        self.protection_ends(death_ns);
        if self.leads {
            self.book.borrow_mut().meta.primary = ProcessId::of(self.primary.pid);
        }
        self.save();
    }

    /// The runtime, or we, no longer want the standby.
    fn notice_drop(&mut self) {
        // Read in this order: a standby counts itself as promoted before it drops its own role, and one that
        // does both while we look must not be taken for a diverged one and killed.
        if !self.dropped() || self.is_promoted() {
            return;
        }
        if self.state() == GroupState::Promoting {
            // It diverged on its way to being live. Kept until it is reaped: its end is then the process's.
            return self.standby.iter().for_each(Child::kill);
        }
        let Some(standby) = self.standby.take() else { return };
        let header = self.shared.segment.header();
        let seat = header.heir.load(Ordering::Acquire) as usize;
        // Until here it has followed. The time of the look is none of its life: the longer that was, the sooner the next one comes.
        let gone_ns = clock::monotonic_ns();
        let look = self.look_at_divergence(standby.pid, seat, &header.why.0);
        // Reaped with the orphans: its end says nothing any more.
        standby.kill();
        let pid = standby.pid;
        self.let_end(standby);
        let named = &self.shared.segment.header().standby_pid;
        let _ = named.compare_exchange(pid, 0, Ordering::AcqRel, Ordering::Acquire);
        if self.ends_by_itself() {
            return;
        }
        self.protection_ends(gone_ns);
        self.leave_protected();
        self.note_divergence(look);
        self.say_last_words();
    }

    fn note_divergence(&mut self, look: Option<Look>) {
        let header = self.shared.segment.header();
        let Some((code, reason)) = read_text(&header.why.0) else { return };
        if code == Cause::Diverged as u32 {
            self.put_divergence_down(reason, look);
        }
    }

    /// Of the standby, or of a spare, that says so last.
    fn put_divergence_down(&mut self, reason: String, look: Option<Look>) {
        let (thread, position) = self.diverged_at(&reason);
        let divergence = Divergence {
            process: self.guest_pid(),
            at: clock::now_text(),
            reason,
            thread,
            position,
            explained: None,
        };
        self.event("diverged", serde_json::to_value(&divergence).unwrap_or_default());
        let mut book = self.book.borrow_mut();
        book.history.divergences.push(divergence);
        let number = book.history.divergences.total;
        book.explaining.extend(look.map(|heard| Explaining { number, heard }));
        book.save();
    }

    // ---- Time under protection ----

    fn protection_begins(&mut self) {
        let now = clock::monotonic_ns();
        self.stretches.protected(now);
        if self.leads {
            self.book.borrow_mut().history.stretches.protected(now);
        }
    }

    /// A stretch under protection ends at `at_ns`.
    fn protection_ends(&mut self, at_ns: u64) {
        if self.leads {
            self.book.borrow_mut().history.stretches.unprotected(at_ns);
        }
        if let Some(stretch_ns) = self.stretches.unprotected(at_ns) {
            self.note_stretch(stretch_ns, at_ns);
        }
    }

    /// From now on the group is judged by this process.
    pub(crate) fn take_the_lead(&mut self) {
        self.leads = true;
        let now = clock::monotonic_ns();
        let mut book = self.book.borrow_mut();
        book.meta.lead = self.shared.place.pid;
        book.meta.primary = ProcessId::of(self.primary.pid);
        book.history.stretches.unprotected(now);
        if self.stretches.protected_since_ns != 0 {
            book.history.stretches.protected(now);
        }
        book.save();
    }
}
