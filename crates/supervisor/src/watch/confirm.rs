//! Whether the standby keeps up: one that has not applied what was logged half a second ago does not count as protection.
//!
//! It may be behind by more than it will apply in a moment, or stand still for ever because it has gone another way. A kill would
//! cost more than a millisecond in the first case, and the program in the other.

use std::sync::atomic::Ordering;

use serde_json::json;
use us_abi::GroupState;

use super::Watch;
use crate::clock;
use crate::options::Verbosity;

/// From one look to the next, and the age of what must have been applied.
const LOOK_NS: u64 = 500_000_000;

/// What was seen at the last look.
#[derive(Debug, Default)]
pub(super) struct Confirm {
    at_ns: u64,
    /// Of this standby.
    standby: u32,
    /// Where the log of each thread ended.
    tails: Vec<u64>,
    /// Since when it is behind, 0 if it keeps up. One that has just been made does: it has all that was logged before.
    behind_since_ns: u64,
}

impl Watch<'_> {
    /// When to look again, CLOCK_MONOTONIC ns.
    pub(super) fn confirm_at_ns(&self) -> Option<u64> {
        (self.standby.is_some() && self.state() == GroupState::Protected).then(|| {
            if self.confirm.at_ns == 0 { clock::monotonic_ns() } else { self.confirm.at_ns + LOOK_NS }
        })
    }

    /// One look.
    pub(super) fn confirm_standby(&mut self) {
        if self.state() == GroupState::Promoting {
            // Its end counts from the death; whether there is somebody to go on is not known yet.
            let death_ns = self.shared.segment.header().death_ns.0.load(Ordering::Acquire);
            self.count_protection(false, if death_ns == 0 { clock::monotonic_ns() } else { death_ns });
        }
        let pid = self.standby.as_ref().map_or(0, |standby| standby.pid);
        if pid == 0 || self.state() != GroupState::Protected {
            if self.confirm.behind_since_ns != 0 {
                self.set_behind(0);
            }
            self.confirm = Confirm::default();
            return;
        }
        let now = clock::monotonic_ns();
        if self.confirm.standby == pid && now < self.confirm.at_ns + LOOK_NS {
            return;
        }
        self.shared.keep_score(self.primary.pid);
        let segment = &self.shared.segment;
        let seat = segment.header().heir.load(Ordering::Acquire) as usize;
        // Heads first: what is logged meanwhile must not count as applied, nor as missing.
        let heads: Vec<u64> = (0..segment.slots()).map(|at| segment.head(at, seat)).collect();
        let tails =
            (0..segment.slots()).map(|at| segment.thread(at).tail.0.load(Ordering::Acquire)).collect();
        let behind_since_ns = self.confirm.behind_since_ns;
        let seen = Confirm { at_ns: now, standby: pid, tails, behind_since_ns };
        let before = std::mem::replace(&mut self.confirm, seen);
        let keeps_up =
            before.standby != pid || before.tails.iter().zip(&heads).all(|(tail, head)| head >= tail);
        match (keeps_up, behind_since_ns) {
            (true, 0) => {}
            (true, _) => self.set_behind(0),
            (false, 0) => self.set_behind(before.at_ns),
            (false, _) => {}
        }
    }

    /// The standby is behind since `since_ns`, or, where that is 0, is so no longer.
    fn set_behind(&mut self, since_ns: u64) {
        let now = clock::monotonic_ns();
        let of_ns = now.saturating_sub(self.confirm.behind_since_ns);
        self.confirm.behind_since_ns = since_ns;
        {
            let behind = &mut self.book.borrow_mut().history.behind;
            match since_ns {
                0 => behind.remove(&self.guest_pid()),
                _ => behind.insert(self.guest_pid(), clock::now_text()),
            };
        }
        let follows = self.standby.is_some() && self.state() == GroupState::Protected;
        if since_ns != 0 {
            self.count_protection(false, since_ns);
            self.event("behind", json!({ "standby": self.confirm.standby }));
            let line = format!(
                "{}: the standby is behind: it has not applied what was logged half a second ago",
                self.name()
            );
            self.say(Verbosity::Verbose, line);
        } else if follows {
            self.count_protection(true, now);
            self.event(
                "confirmed",
                json!({ "standby": self.confirm.standby, "behind_ms": of_ns / 1_000_000 }),
            );
        }
        self.save();
    }

    /// Time counts as protected from here on, or does no longer. The standby's own life is another matter.
    fn count_protection(&mut self, is_protected: bool, at_ns: u64) {
        if !self.leads {
            return;
        }
        let stretches = &mut self.book.borrow_mut().history.stretches;
        match is_protected {
            true => stretches.protected(at_ns),
            false => _ = stretches.unprotected(at_ns),
        }
    }
}
