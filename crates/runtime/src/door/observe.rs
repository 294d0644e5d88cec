//! Calls that change nothing: one event, and no doubt about it. A primary that dies inside such a call has done nothing that
//! must not be done again, so nobody asks whether it was done.

use us_abi::event::{CallArgs, EventKind, ReturnHead};
use us_calls::{FdUse, Row};

use crate::call::Call;
use crate::door::{answer, recorded, wait};
use crate::fault::{self, Point};
use crate::mirror::identity;
use crate::raw::nr;
use crate::signal::{self, Plan};
use crate::sys::spans::{self, Before};
use crate::thread::{Mode, Thread};

/// A whole call of a row that [observes](Row::observes).
#[inline(always)]
pub fn observe(thread: &mut Thread, row: &'static Row, call: &Call) -> i64 {
    // In the caller's own frame, like the way to here: behind a system call each return costs a misprediction.
    if row.outs.is_empty()
        && thread.calls() == Mode::Record
        && let Some(result) = record(thread, row, call, asked(thread, row, call), |thread, flags, head| {
            thread.append(EventKind::Call, flags, row.nr, recorded::return_ticket(row), &head);
        })
    {
        return result;
    }
    observe_in_any_mode(thread, row, call)
}

#[inline(never)]
fn observe_in_any_mode(thread: &mut Thread, row: &'static Row, call: &Call) -> i64 {
    thread.attempt(|thread, mode| match mode {
        Mode::Record => record_outputs(thread, row, call),
        Mode::Replay => replay(thread, row, call, asked(thread, row, call)),
        Mode::Solo => solo(thread, row, call),
    })
}

#[inline(never)]
fn record_outputs(thread: &mut Thread, row: &'static Row, call: &Call) -> Option<i64> {
    let mut before = Before::nothing();
    before.look(row, &call.args);
    record(thread, row, call, asked(thread, row, call), |thread, flags, head| {
        answer::log_answer(thread, row, call, &before, EventKind::Call, flags, head);
    })
}

/// One attempt, of which `log` publishes the event. `identity`: what the call is asked.
#[inline(always)]
pub(super) fn record(
    thread: &mut Thread,
    row: &'static Row,
    call: &Call,
    identity: u64,
    log: impl FnOnce(&mut Thread, u8, ReturnHead),
) -> Option<i64> {
    fault::at(Point::Call, call.nr as u32);
    let result = act(thread, row, call);
    let plan = signal::plan(thread, row, result);
    if plan.is_abandoned() {
        return None;
    }
    log(thread, plan.flags(), ReturnHead { result, identity });
    (!plan.carry_out(thread)).then_some(result)
}

#[inline(never)]
fn solo(thread: &mut Thread, row: &'static Row, call: &Call) -> Option<i64> {
    let result = act(thread, row, call);
    (!signal::solo_restart(thread, row, result)).then_some(result)
}

/// One attempt of a standby, at an event of [`record`]'s. `asked`: what this copy asks, as its primary's `identity`.
#[inline(never)]
pub(super) fn replay(thread: &mut Thread, row: &'static Row, call: &Call, asked: u64) -> Option<i64> {
    let mut before = Before::nothing();
    before.look(row, &call.args);
    let taken = recorded::take_answer(thread, row, call, &before, EventKind::Call, |_, _| ());
    let Some((head, flags)) = taken else {
        signal::deliver_raised(thread, row);
        return None;
    };
    if head.identity != asked {
        recorded::mismatch(thread, row, &arguments_of(head.identity), &arguments_of(asked));
    }
    (!Plan::replay(thread, flags, head.result)).then_some(head.result)
}

#[inline(always)]
fn act(thread: &Thread, row: &Row, call: &Call) -> i64 {
    if call.nr == nr::GETPPID {
        return wait::parent();
    }
    let result = recorded::act(thread, row, call.nr, &call.args);
    if identity::differ() {
        identity::tell(call.nr, &call.args, result);
    }
    result
}

/// What the call was asked, in the place of an identity: its descriptor below, the digest above.
#[inline(always)]
fn asked(thread: &Thread, row: &Row, call: &Call) -> u64 {
    if row.fd == FdUse::None && row.inputs.is_empty() {
        return 0;
    }
    let CallArgs { fd, digest, .. } = spans::arguments(row, call, thread.verify);
    u64::from(fd as u32) | u64::from(digest) << 32
}

fn arguments_of(asked: u64) -> CallArgs {
    CallArgs { fd: asked as i32, digest: (asked >> 32) as u32, len: 0 }
}
