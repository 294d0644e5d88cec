//! Ends: of copies, of processes, and of the group.

use std::sync::atomic::Ordering;
use std::time::Duration;

use serde_json::{Value, json};

use super::Group;
use crate::clock;
use crate::ended::Ended;
use crate::folder::{SEGMENT, member};
use crate::history::Lost;
use crate::options::Verbosity;
use crate::reap::{self, End, Reaped};
use crate::service::Relay;
use crate::snapshot::Snapshot;
use crate::spawn::{self};
use crate::watch::{Over, Watch};
use crate::{proc, roster, signals};

/// A child that is about to leave the program's session may not have come to it when the program ends.
const GRACE_NS: u64 = 500_000_000;

/// A process in a session of its own that does not outlive the program by so much ends with it.
const BRIEF_NS: u64 = 500_000_000;

/// A child that has been made a moment before the program's end may not be listed yet. It will be, within this time.
const BIRTH_NS: u64 = 5_000_000_000;

/// Pause between two looks at processes of whose ends nobody tells us.
const LOOK_NS: u64 = 10_000_000;

/// How long the news of a process's end waits until its killed standby is gone.
const BURIAL: Duration = Duration::from_millis(200);

/// How long the end of the group waits for a standby that takes over at that moment.
const PROMOTION_NS: u64 = 5_000_000_000;

/// How long the end of the group waits for a divergence to be explained.
const EXPLANATION: Duration = Duration::from_millis(100);

/// What is known of the group's end.
#[derive(Debug)]
pub(super) struct Outcome {
    /// How the program itself ended, and when.
    root: Option<(End, u64)>,
    /// How the last daemon ended of which that is known.
    daemon: Option<End>,
    /// Sessions that the program was in.
    sessions: Vec<u32>,
    /// Somebody has asked `run` to end by SIGTERM, and the program was told so. What it leaves behind then is no daemon:
    /// sshd's sessions outlive it.
    pub(super) is_awaited: bool,
    /// When it is too late to become a daemon.
    grace_ends_ns: Option<u64>,
    /// When to look again.
    look_at_ns: Option<u64>,
    /// Standbys of processes that have ended, to be reaped.
    pub(super) dying: Vec<u32>,
    /// Processes whose end has been told, and when: their first primaries may come to us behind that, where a parent dies slowly.
    buried: Vec<(u32, u64)>,
}

impl Outcome {
    pub(super) fn new(root: u32) -> Outcome {
        // It began in ours. One of its own has its number; in a promoted copy, that copy's.
        let own = proc::read(std::process::id()).map_or(0, |process| process.session);
        Outcome {
            root: None,
            daemon: None,
            sessions: vec![own, root],
            is_awaited: false,
            grace_ends_ns: None,
            look_at_ns: None,
            dying: Vec::new(),
            buried: Vec::new(),
        }
    }

    fn reap_dying(&mut self) {
        for standby in std::mem::take(&mut self.dying) {
            reap::reap(standby);
        }
    }

    /// What the group has come to.
    fn end(&self) -> End {
        match self.root {
            Some((End::Exited(0), _)) | None => self.daemon.unwrap_or(End::Exited(0)),
            Some((end, _)) => end,
        }
    }
}

impl<'a> Group<'a> {
    /// Watches until the group is over; how it ended.
    pub(crate) fn until_the_end(mut self) -> End {
        loop {
            self.read_roster();
            self.ask_who_computes();
            self.relay.iter().for_each(Relay::pass_on);
            self.reap();
            self.look();
            self.bury();
            if self.is_over() {
                return self.finish();
            }
            self.pass_signals_on();
            self.sleep();
        }
    }

    /// Reaps every child that has ended, and hears of copies that are other people's children.
    fn reap(&mut self) {
        for (place, pid) in std::mem::take(&mut self.gone) {
            if let Some(watch) = self.watches.iter_mut().find(|watch| watch.shared().place == place) {
                watch.copy_gone(pid);
            }
        }
        self.bury();
        while let Some((pid, status, user)) = reap::next_standing_child() {
            let parent = self.roster.stands(pid, status, user);
            self.tell_parent(parent);
        }
        while let Some(pid) = self.next_ended_child() {
            self.read_roster();
            // What the process wrote before it ended comes first.
            if self.is_ours(pid) {
                self.look();
            }
            self.note_session(pid);
            // What a process has said stands before its end: of who has been reaped nobody knows whose it was.
            self.relay.iter().for_each(Relay::pass_on);
            let Some(reaped) = self.take(pid) else { continue };
            self.child_ended(pid, &reaped);
            self.bury();
        }
    }

    /// A child that has ended, and of which nobody knows that yet. The kernel names those first that wait for the undertaker, and
    /// then only our copies are asked for one by one; he rings.
    fn next_ended_child(&self) -> Option<u32> {
        let pid = reap::next_ended_child()?;
        if !self.undertaker.has(pid) {
            return Some(pid);
        }
        let mut copies = self.watches.iter().flat_map(Watch::copies);
        copies.find(|pid| !self.undertaker.has(*pid) && reap::end_of(*pid).is_some())
    }

    /// How the child `pid` has ended. It is reaped, or will be.
    fn take(&mut self, pid: u32) -> Option<Reaped> {
        let watch = self.watches.iter().find(|watch| watch.primary().pid == pid);
        watch.iter().for_each(|watch| watch.shared().keep_score(pid));
        if self.watches.iter().any(|watch| watch.may_rest(pid))
            && let Some(end) = reap::end_of(pid)
            && self.undertaker.takes(pid)
        {
            return Some(end);
        }
        reap::take(pid)
    }

    /// Whether `pid` is more to us than an orphan.
    fn is_ours(&self, pid: u32) -> bool {
        self.watches.iter().any(|watch| watch.knows(pid))
            || self.probe.as_ref().is_some_and(|probe| probe.is(pid))
    }

    fn note_session(&mut self, pid: u32) {
        let root = self.watches.iter().any(|watch| watch.is_root() && watch.primary().pid == pid);
        if root && let Some(process) = proc::read(pid) {
            self.outcome.sessions.push(process.session);
        }
    }

    fn child_ended(&mut self, pid: u32, reaped: &Reaped) {
        self.outcome.dying.retain(|dying| *dying != pid);
        // Each of them is asked: one may be of two minds about a number.
        if self.watches.iter_mut().any(|watch| watch.child_ended(pid, reaped)) {
            return;
        }
        if let Some(finding) = self.probe.as_mut().and_then(|probe| probe.ended(pid, reaped.end())) {
            return self.act_on(finding);
        }
        // An orphan of the group's that nobody watched.
        if let Some((place, entry)) = self.roster.with_primary(pid) {
            let joined = entry.joined.load(Ordering::Acquire) != 0;
            let parent = self.roster.ended(place, reaped, is_alive);
            self.roster.orphan(place.pid);
            self.tell_parent(parent);
            self.roster.forget_unasked(is_alive);
            if joined {
                let _ = self.dir().remove(member(place.pid));
            }
        } else if self.roster.find(pid).is_none()
            && !self.outcome.buried.iter().any(|(buried, _)| *buried == pid)
            && self.watches.iter().any(|watch| watch.has_lately_a_primary(PROMOTION_NS))
        {
            // No former copy, which has its number in the roster still: perhaps somebody's child, which a primary had made that is
            // dead, and which was ended before it came to list itself.
            // Of the last promotions nobody is still to come.
            self.roster.forget_unlisted(clock::monotonic_ns().saturating_sub(PROMOTION_NS));
            self.roster.ended_unlisted(pid, reaped);
        }
    }

    /// A child of this process has ended of which the kernel tells nobody but us.
    fn tell_parent(&self, parent: Option<u32>) {
        let Some((parent, _)) = parent.and_then(|parent| self.roster.find(parent)) else { return };
        self.signal_primary(self.roster.primary_of(parent), libc::SIGCHLD);
    }

    fn signal_primary(&self, primary: u32, number: i32) {
        let told = self.watches.iter().any(|watch| watch.signal_copy(primary, number));
        if !told {
            spawn::signal(primary, number);
        }
    }

    /// Draws the consequences of every process that has ended for good.
    fn bury(&mut self) {
        while let Some((at, over)) =
            self.watches.iter().enumerate().find_map(|(at, watch)| Some((at, watch.over()?)))
        {
            let watch = self.watches.remove(at);
            self.bury_one(watch, over);
        }
    }

    fn bury_one(&mut self, mut watch: Watch<'a>, over: Over) {
        let lost = watch.loss(over);
        let now = clock::monotonic_ns();
        self.outcome.buried.retain(|(_, since_ns)| now < since_ns + PROMOTION_NS);
        self.outcome.buried.push((watch.guest_pid(), now));
        // Before anybody is told: whoever has waited for a member finds nobody of it in its process group.
        let standby = watch.finish();
        let copies = watch.ended_spares().into_iter().chain(standby);
        self.outcome.dying.extend(copies.filter(|copy| !reap::reap_within(*copy, BURIAL)));
        if let Some(lost) = lost {
            self.put_loss_down(&watch.name(), lost);
        }
        let end = over.end.map(Reaped::end);
        if watch.is_root() {
            self.probe = None;
            self.outcome.root = Some((end.unwrap_or(End::Exited(0)), clock::monotonic_ns()));
        }
        // What ends together with the program, in a session of its own or not, is not what it has left behind.
        let outlives = |(_, ended_ns): (End, u64)| clock::monotonic_ns() >= ended_ns + BRIEF_NS;
        if watch.is_daemon && self.outcome.root.is_some_and(outlives) {
            self.outcome.daemon = end.or(self.outcome.daemon);
        }
        self.keep_sums(&watch);
        // Who has given up our user may have written so of somebody who has not.
        let ours = rustix::process::geteuid().as_raw();
        let may_ask =
            |pid: u32| !self.roster.is_mixed() || proc::owner(pid).is_some_and(|owner| owner != ours);
        for (primary, signal) in self.roster.mourners(watch.guest_pid(), may_ask) {
            self.signal_primary(primary, signal);
        }
        self.tell_parent(watch.sign_off(over));
        if let Some(recorder) = &self.recorder {
            recorder.ended(watch.guest_pid(), over.end.map(|reaped| reaped.status));
            return;
        }
        // Last: giving the memory of a file back takes its time, and its parent waits for what has been said. Of a recorded
        // process the recorder does so.
        if !watch.is_root() {
            watch.shared().segment.remove(&self.dir(), &member(watch.shared().place.pid));
        }
    }

    /// Says, and keeps for `status`, that a process is gone for whom somebody was to take over.
    fn put_loss_down(&self, name: &str, lost: Lost) {
        let mut book = self.book.borrow_mut();
        book.voice.event("lost", serde_json::to_value(&lost).unwrap_or_default());
        book.voice.say(Verbosity::Normal, &format!("{name} is lost: {}", lost.why));
        book.history.lost.push(lost);
        book.save();
    }

    fn keep_sums(&self, watch: &Watch<'a>) {
        let mut book = self.book.borrow_mut();
        if watch.leave_sums(&mut book.history.ended) {
            book.save();
        }
    }

    // ---- The end of the group ----

    /// When to look again, CLOCK_MONOTONIC ns.
    pub(super) fn outcome_at_ns(&self) -> Option<u64> {
        self.outcome.look_at_ns
    }

    /// Whether the group has come to its end: the program has, and nobody is left whom we should stay for.
    fn is_over(&mut self) -> bool {
        self.outcome.look_at_ns = None;
        let Some((_, ended_ns)) = self.outcome.root else { return false };
        let now = clock::monotonic_ns();
        if !self.is_anybody_left() {
            self.outcome.reap_dying();
            self.outcome.look_at_ns = Some(now + LOOK_NS);
            return now >= ended_ns + BIRTH_NS || !self.is_anybody_unlisted();
        }
        self.outcome.look_at_ns = Some(now + LOOK_NS);
        if self.is_stopping {
            self.choose_lead(|_| true);
            return false;
        }
        if self.watches.iter().any(Watch::is_between_primaries) && now < ended_ns + PROMOTION_NS {
            return false;
        }
        if !self.outcome.is_awaited && self.find_daemons() {
            // Of its end we shall hear.
            self.outcome.look_at_ns = None;
            self.outcome.grace_ends_ns = None;
            self.choose_lead(|watch| watch.is_daemon);
            return false;
        }
        now >= *self.outcome.grace_ends_ns.get_or_insert(now + GRACE_NS)
    }

    /// Whether any process of the group is known to live.
    fn is_anybody_left(&self) -> bool {
        let listed = || self.roster.listed().map(|(place, _)| self.roster.primary_of(place));
        !self.watches.is_empty()
            || listed().any(|pid| proc::is_descendant(pid, std::process::id()) && is_alive(pid))
    }

    /// Whether a child that we have been left is under the runtime, and has not come to say so; or is about to end, as a standby that
    /// was being made when its primary died. Whoever has waited for us finds nobody of the program, in no process group.
    fn is_anybody_unlisted(&self) -> bool {
        let roster = self.dir().at(roster::NAME);
        let is_one_of_us = |pid| proc::maps(pid, &roster) || proc::has_no_memory(pid);
        reap::has_children() && proc::children(std::process::id()).any(is_one_of_us)
    }

    /// Whether there is a process that the program has left as a daemon: in a session of its own.
    fn find_daemons(&mut self) -> bool {
        let sessions = &self.outcome.sessions;
        for watch in self.watches.iter_mut().filter(|watch| !watch.is_daemon) {
            let session = proc::read(watch.primary().pid).map(|process| process.session);
            watch.is_daemon = session.is_some_and(|session| session != 0 && !sessions.contains(&session));
        }
        self.watches.iter().any(|watch| watch.is_daemon)
    }

    /// The oldest of those that may is judged, and takes the signals, in the program's place.
    fn choose_lead(&mut self, may: impl Fn(&Watch<'a>) -> bool) {
        if self.watches.iter().any(|watch| watch.leads) {
            return;
        }
        let oldest = self
            .watches
            .iter_mut()
            .filter(|watch| may(watch))
            .min_by_key(|watch| watch.shared().place.born_ns);
        if let Some(watch) = oldest {
            watch.take_the_lead();
            let pid = watch.guest_pid();
            self.say(
                Verbosity::Verbose,
                &format!("{}: the program has ended; process {pid} goes on", self.name()),
            );
        }
    }

    /// Everything is over: nothing of ours may be left. Who lives goes on alone.
    fn finish(mut self) -> End {
        self.roster.header().closing.store(1, Ordering::SeqCst);
        for watch in &mut std::mem::take(&mut self.watches) {
            self.outcome.dying.extend(watch.let_go());
            self.outcome.dying.extend(watch.ended_spares());
        }
        self.roster.listed().for_each(|(place, _)| self.roster.is_final(place));
        self.outcome.reap_dying();
        for writer in std::mem::take(&mut self.writers) {
            // One that has panicked has answered nobody.
            let _ = writer.join();
        }
        self.undertaker.finish();
        if let Some(recorder) = &mut self.recorder {
            recorder.finish();
        }
        self.hear_recorder();
        let end = self.outcome.end();
        let mut fields = match end {
            End::Exited(code) => json!({ "exit_code": code }),
            End::Killed(signal) => json!({ "exit_code": 128 + signal, "signal": signals::name(signal) }),
        };
        let mut book = self.book.borrow_mut();
        book.await_explanations(EXPLANATION);
        let computed = Snapshot::read(&book.folder.dir, SEGMENT).and_then(|root| root.computed());
        if let (Some(all), Ok(Value::Object(more))) =
            (fields.as_object_mut(), serde_json::to_value(&computed))
        {
            all.extend(more);
        }
        let ended = Ended::of(&book.folder.name, &book.meta, &book.history, Some(end));
        book.folder.keep_end(&Ended { computed, ..ended });
        book.voice.event("ended", fields);
        book.voice.say(Verbosity::Verbose, &format!("{} ended: {}", book.folder.name, end.words()));
        end
    }
}

fn is_alive(pid: u32) -> bool {
    proc::read(pid).is_some_and(|process| process.alive())
}
