//! Losing protection.

use std::sync::atomic::Ordering;

use serde_json::json;
use us_abi::{Cause, GroupState, broken, command, leaving};

use super::Watch;
use crate::clock;
use crate::family;
use crate::segment::{wake, write_text};

impl Watch<'_> {
    /// The standby, which had the pid `lost`, has ended by itself.
    pub(super) fn lose_standby(&mut self, lost: u32, why: &str) {
        let named = &self.shared.segment.header().standby_pid;
        let now = named.load(Ordering::Acquire);
        // An exec has ended it. A supervisor that is late finds the new image running, which may have no standby yet: without
        // the last of the three a loss would be reported that is none.
        let by_exec = self.leaving() == leaving::EXEC || (now != 0 && now != lost) || self.is_newborn();
        if by_exec {
            // Unless the new image has named its own: the old one's number must not be taken for that.
            let _ = named.compare_exchange(lost, 0, Ordering::AcqRel, Ordering::Acquire);
            return self.start_anew();
        }
        named.store(0, Ordering::Release);
        if self.ends_by_itself() {
            return;
        }
        self.event("standby_lost", json!({ "why": why }));
        self.say_last_words();
        self.stop_log(Cause::StandbyLost, why);
        self.leave_protected();
        self.move_up();
        self.announce_unprotected();
    }

    /// Tells the primary to log no more, with the reason unless there is one already.
    pub(crate) fn drop_protection(&mut self, cause: Cause, why: &str) {
        self.stop_log(cause, why);
        self.end_spares();
        self.leave_protected();
        self.announce_unprotected();
    }

    fn stop_log(&self, cause: Cause, why: &str) {
        let header = self.shared.segment.header();
        let first = header.dropped.0.compare_exchange(0, 1, Ordering::AcqRel, Ordering::Acquire).is_ok();
        if first {
            write_text(&header.why.0, cause as u32, why);
        }
        family::break_up(&self.shared.roster, header, broken::LOG, why);
        wake(&header.dropped.0);
    }

    /// The order of the family has ended, whoever was the cause.
    pub(crate) fn leave_family(&mut self) {
        self.take_back(command::CLONE);
        self.stop_log(Cause::CannotReplay, "the order of processes that share memory has ended");
        self.leave_protected();
        self.shared.segment.header().family.store(0, Ordering::Release);
        self.stop_asking();
    }

    /// Moves the state to `Unprotected`, unless a promotion or the end has begun.
    pub(super) fn leave_protected(&mut self) {
        let word = &self.shared.segment.header().state.0;
        let to = GroupState::Unprotected as u32;
        for from in [GroupState::Starting as u32, GroupState::Protected as u32] {
            let _ = word.compare_exchange(from, to, Ordering::AcqRel, Ordering::Acquire);
        }
        wake(word);
        self.protection_ends(clock::monotonic_ns());
    }

    /// The supervisor leaves while the process lives: it goes on alone, without a log that nobody reads. The standby's
    /// pid, which is to be reaped.
    pub(crate) fn let_go(&mut self) -> Option<u32> {
        self.take_back(command::CLONE);
        self.take_back(command::PARK);
        self.stop_log(Cause::SupervisorLost, "the group has ended");
        self.leave_protected();
        self.answer_switch(&json!({ "error": "the program has ended" }));
        // Its death is its end from now on, and its parent need not wait for us to say so.
        self.shared.roster.is_final(self.shared.place);
        self.shared.dismiss();
        self.end_spares();
        let standby = self.standby.take();
        standby.map(|standby| {
            standby.kill();
            standby.pid
        })
    }
}
