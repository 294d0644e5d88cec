//! What a signal makes of the call that it has come before, or in.

use us_calls::{Door, FdUse, Policy, SignalDoor};

use super::*;
use crate::above::above;
use crate::recorder;

/// What follows an interrupted call: how many signals are delivered at this door, and whether the call is
/// made again. Decided by the primary before it publishes the `Return`, and carried in its flags.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    signals: u8,
    restart: bool,
    abandoned: bool,
    spurious: bool,
    parks: bool,
    /// See [`Thread::late`].
    late: bool,
}

const FLAG_RESTART: u8 = 4;

impl Plan {
    /// Nobody has interrupted.
    pub const NOTHING: Plan =
        Plan { signals: 0, restart: false, abandoned: false, spurious: false, parks: false, late: false };

    /// Nobody has been interrupted: so many signals are delivered.
    pub(super) const fn delivering(signals: u8) -> Plan {
        Plan { signals, ..Plan::NOTHING }
    }

    /// A wait whose end is logged before its handlers run has been ended by what waits here.
    pub fn of_wait(thread: &Thread, has_deadline: bool) -> Plan {
        let signals = thread.queue.deliverable(thread.signals.mask).min(15) as u8;
        Plan { signals, restart: !interrupts(thread, has_deadline), ..Plan::NOTHING }
    }

    /// What an event with these flags has announced.
    pub const fn announced(flags: u8) -> Plan {
        Plan { signals: flags >> 4, restart: flags & FLAG_RESTART != 0, ..Plan::NOTHING }
    }

    /// For the flags of the `Return`.
    pub const fn flags(self) -> u8 {
        self.signals << 4 | if self.restart { FLAG_RESTART } else { 0 }
    }

    /// Whether the thread has stood still in the middle of the call, and the log is another than that in which it
    /// began: nothing has happened, nothing is to be logged, the door begins again.
    pub const fn is_abandoned(self) -> bool {
        self.abandoned
    }

    /// Whether the call is made again.
    pub const fn restarts(self) -> bool {
        self.restart
    }

    /// Whether it was interrupted for no signal that the guest is to see.
    pub const fn is_spurious(self) -> bool {
        self.spurious
    }

    /// Delivers the signals, as a primary. True if the call is to be made again.
    #[inline(always)]
    pub fn carry_out(self, thread: &mut Thread) -> bool {
        let is_nothing = self.signals == 0 && !self.late && !self.parks;
        if !is_nothing || thread.cancel.load(Ordering::Relaxed) != 0 {
            self.carry_out_all(thread);
        }
        self.restart
    }

    #[cold]
    #[inline(never)]
    fn carry_out_all(self, thread: &mut Thread) {
        self.each(thread, false);
        if cancellation::is_due(thread) {
            // By somebody who has heard of a handler: the call, if it is made again, does not wait.
            thread.pending.store(1, Ordering::SeqCst);
        }
        if self.late {
            come_late(thread);
        }
        if self.parks {
            above().stand_still(thread);
        }
    }

    /// The same where none of them has come to this copy: the log says so.
    pub fn none_came(self, thread: &mut Thread) {
        (0..self.signals).for_each(|_| announced::none_came(thread));
    }

    pub(super) fn each(self, thread: &mut Thread, in_rounds: bool) {
        for at in 0..self.signals {
            if follows(thread) {
                (at..self.signals).for_each(|_| announced::none_came(thread));
                break;
            }
            deliver_cancellation(thread);
            thread.signals.in_rounds = in_rounds;
            let delivered = deliver_one(thread);
            thread.signals.in_rounds = false;
            if !delivered {
                // A door inside an earlier one's handler has delivered it.
                announced::none_came(thread);
            }
        }
    }

    /// Takes the signals that follow a `Return` with this result, as a standby. True if the call is to be made again: behind
    /// handlers, or since the signals that ended it were lost with the primary that had announced them. Nobody is told of a
    /// handler that has not run.
    #[inline]
    pub fn replay(thread: &mut Thread, flags: u8, result: i64) -> bool {
        let has_come = take_announced(thread, flags, false);
        flags & FLAG_RESTART != 0 || !has_come && result == err::EINTR
    }
}

/// Takes the signals that an event with these flags has announced, as a standby. False if there were to be some, and the first
/// has not come.
pub(super) fn take_announced(thread: &mut Thread, flags: u8, in_rounds: bool) -> bool {
    let stops = thread.stops;
    let mut has_come = true;
    for at in 0..flags >> 4 {
        thread.signals.in_rounds = in_rounds;
        has_come &= replay_next(thread) || at > 0;
        thread.signals.in_rounds = false;
        // Promoted in the handler, and cloned there: the copy has found the others in its own log.
        if thread.stops != stops && follows(thread) {
            break;
        }
    }
    has_come
}

/// Whether the kernel would make this call again after a handler with SA_RESTART.
fn restartable(thread: &Thread, row: &Row) -> bool {
    row.restarts && !has_time_out(thread.begun().asked[0], row)
}

/// Whether the socket that a call is about has been given a time after which such a call ends (SO_RCVTIMEO, SO_SNDTIMEO).
fn has_time_out(fd: u64, row: &Row) -> bool {
    use crate::kernel::{SO_RCVTIMEO, SO_SNDTIMEO, SOL_SOCKET};
    let puts_out = row.class == Class::Write || row.policy == Policy::Special(Door::Connect);
    let option = if puts_out { SO_SNDTIMEO } else { SO_RCVTIMEO };
    let is_about_one = matches!(row.fd, FdUse::Uses(0) | FdUse::CreatesFrom(0) | FdUse::Message(0));
    let (mut time, mut bytes) = (raw::Timespec::default(), 16u32);
    let args = [fd, SOL_SOCKET, option, &raw mut time as u64, &raw mut bytes as u64, 0];
    // SAFETY: the kernel writes the words that it is given; of anything but a socket it writes nothing.
    is_about_one && unsafe { raw::call6(raw::nr::GETSOCKOPT, args) } == 0 && (time.sec != 0 || time.nsec != 0)
}

/// Whether what is about to be delivered would end a wait in this call with EINTR.
pub fn ends_wait(thread: &Thread, row: &Row) -> bool {
    row.interrupts
        && thread.queue.deliverable(thread.signals.mask) > 0
        && !(thread.queue.each_deliverable(thread.signals.mask).all(is_restarting)
            && restartable(thread, row))
}

/// Signals have been delivered before a call that they would have ended had they come a little later. A program that looks
/// at a flag of its handler's and then waits takes it for granted that one that has come before the look was seen there: it
/// must not sleep now as if nothing had come. The supervisor asks it to look up, as for one that computes.
#[cold]
pub(super) fn come_late(thread: &mut Thread) {
    if state::header().is_some() && state::role() == Role::Primary && !thread.signals.late {
        thread.signals.late = true;
        nothing_is_late(thread);
        arrive::note_due(thread, SIGSYS);
        state::attention();
    }
}

/// The call is over: it did not wait, or it has ended with EINTR.
#[cold]
#[inline(never)]
pub fn is_late_no_more(thread: &mut Thread) {
    thread.signals.late = false;
    if !has_deliverable(thread) {
        nothing_is_late(thread);
    }
}

/// Decides what follows a call. The kernel would deliver on the way out of any call, whatever its result: a
/// `raise` returns after its handler has run. A call may be broken off though nothing has come: a signal that the guest ignores,
/// and that one of its threads happens to block, wakes another one, which throws it away (a reminder of the supervisor's, right
/// behind a promotion). Where the kernel does not begin such a call again by itself (a socket's own time-out) it is begun here.
#[inline(always)]
pub fn plan(thread: &mut Thread, row: &Row, result: i64) -> Plan {
    if thread.pending.load(Ordering::Relaxed) == 0 && result != err::EINTR {
        return Plan::NOTHING;
    }
    interrupted(thread, row, result)
}

#[cold]
fn interrupted(thread: &mut Thread, row: &Row, result: i64) -> Plan {
    thread.shown.result = result;
    let broken = result == err::EINTR;
    // The log in which the call has begun goes on: that it ended with nothing done, and what the kernel wrote all the same
    // (the rest of a time), is part of it. The thread stands still behind that.
    let logged = thread.calls() == Mode::Record && recorder::goes_on_while_parking();
    if broken && logged && !has_deliverable(thread) && above().is_to_stand_still() {
        return Plan { restart: true, spurious: true, parks: true, ..Plan::NOTHING };
    }
    if broken && !logged && above().stand_still(thread) {
        return Plan { restart: true, abandoned: true, ..Plan::NOTHING };
    }
    // A call that has taken something is not cancelled: what it took would be lost.
    let cancelled = broken && cancellation::is_due(thread);
    let signals = (thread.queue.deliverable(thread.signals.mask) + u32::from(cancelled)).min(15) as u8;
    // Not the kernel's answer: what waits is delivered, and then the call is made.
    let unentered = broken && thread.pending.was_unentered();
    if signals == 0 {
        // One that is to park does so at its next door.
        thread.pending.store(u32::from(above().is_promised()), Ordering::SeqCst);
        // What has come since we looked has been taken back with the notice.
        if has_deliverable(thread) {
            thread.pending.store(1, Ordering::SeqCst);
        }
        if thread.signals.late {
            return Plan { restart: unentered, ..Plan::NOTHING };
        }
        // Everything that waits is blocked by the guest's mask: nobody must notice the interruption.
        nothing_is_late(thread);
        return Plan { restart: broken, spurious: true, ..Plan::NOTHING };
    }
    // What its own mask lets through, or a call that waits for nothing else, it waits for, whenever that came.
    let awaited =
        thread.signals.is_of_call || row.policy == Policy::Special(Door::Signal(SignalDoor::Suspend));
    // A call that never waits the kernel never breaks off: what did was our look for signals before the call was made.
    let unmade = unentered && !awaited || !row.interrupts;
    let ends = ends_wait(thread, row);
    let restart = broken && (unmade || !ends);
    Plan { signals, restart, late: restart && ends && row.blocks, ..Plan::NOTHING }
}
