//! Ends of processes: whose it was, and what follows.

use std::sync::atomic::Ordering;

use serde_json::json;
use us_abi::{GroupState, command};
use us_order::detect::{self, Decision};

use super::{Fallen, Watch};
use crate::child::Child;
use crate::clock;
use crate::options::Verbosity;
use crate::segment::wake;
use crate::sentry::{fail_over, verdict};
use crate::spawn::{self, End};

impl Watch<'_> {
    /// Reaps every child that has ended; the group's end, if this was it.
    pub(super) fn reap(&mut self) -> Option<End> {
        while let Some(pid) = spawn::next_ended_child() {
            // What the process wrote before it ended comes first.
            self.look();
            let Some(end) = spawn::reap(pid) else { continue };
            let group_end = if pid == self.primary.pid {
                self.primary_ended(end)
            } else if self.standby.as_ref().is_some_and(|standby| standby.pid == pid) {
                self.standby_ended(end)
            } else {
                self.other_ended(pid, end);
                None
            };
            if group_end.is_some() {
                return group_end;
            }
        }
        None
    }

    fn primary_ended(&mut self, end: End) -> Option<End> {
        // It may have died before it could say all that there is to say of a new standby.
        let has_one = matches!(self.state(), GroupState::Protected | GroupState::Promoting);
        self.attach_standby(has_one);
        // The net under the death notices. An exit that said nothing is still an exit, as natively.
        if self.standby.is_some()
            && self.state() == GroupState::Protected
            && verdict(&self.shared.segment, cause_of(end)) == Decision::Promote
        {
            fail_over(&self.shared, &self.primary, clock::monotonic_ns());
        }
        // The command, too: the standby may be live and out of `Promoting` before this line is reached.
        let command = self.shared.segment.header().command.0.load(Ordering::Acquire);
        let takes_over = self.state() == GroupState::Promoting || command == command::PROMOTE;
        if self.standby.is_some() && takes_over {
            self.fallen.push_back(Fallen::new(self.primary.pid, Some(end), None));
            return None;
        }
        Some(end)
    }

    fn standby_ended(&mut self, end: End) -> Option<End> {
        if self.state() == GroupState::Promoting {
            self.standby = None;
            self.say_last_words();
            let line = format!("{}: the standby could not take over: {}", self.folder.name, end.words());
            self.say(Verbosity::Normal, line);
            self.event("standby_lost", json!({ "why": end.words() }));
            let primary = self.primary.pid;
            return self.fallen.iter().find(|fallen| fallen.pid == primary).and_then(|fallen| fallen.end);
        }
        let pid = self.standby.take().map_or(0, |standby| standby.pid);
        self.lose_standby(pid, &format!("the standby's process is gone: {}", end.words()));
        None
    }

    /// An adopted orphan, a standby that was dropped, the primary from before a promotion, or a probe.
    fn other_ended(&mut self, pid: u32, end: End) {
        self.ending.take_if(|ending| ending.pid == pid);
        if let Some(fallen) = self.fallen.iter_mut().find(|fallen| fallen.pid == pid) {
            fallen.end = Some(end);
            self.tell_failovers();
        }
        if let Some(finding) = self.probe.as_mut().and_then(|probe| probe.ended(pid, end)) {
            self.act_on(finding);
        }
    }

    /// Everything is over: nothing may be left of the group.
    pub(super) fn finish(mut self, end: End) -> End {
        self.probe = None;
        for fallen in self.fallen.iter_mut().filter(|fallen| fallen.end.is_none()) {
            fallen.end = spawn::reap(fallen.pid);
        }
        self.tell_failovers();
        // A fallen primary whose standby could not take over keeps nobody waiting any more.
        self.fallen.clear();
        self.tell_rest();
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
        if let Some(standby) = self.standby.take().or_else(|| Child::of_child(named)) {
            standby.kill();
            spawn::reap(standby.pid);
        }
        self.say_last_words();
        self.answer_switch(&json!({ "error": "the program has ended" }));
        self.shared.segment.header().state.0.store(GroupState::Ended as u32, Ordering::Release);
        let fields = match end {
            End::Exited(code) => json!({ "exit_code": code }),
            End::Killed(signal) => {
                json!({ "exit_code": 128 + signal, "signal": crate::signals::name(signal) })
            }
        };
        self.event("ended", fields);
        self.say(Verbosity::Verbose, format!("{} ended: {}", self.folder.name, end.words()));
        end
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
