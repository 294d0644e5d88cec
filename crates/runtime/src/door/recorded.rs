//! The generic recorded call: what every door that is not written by hand does.
//!
//! Primary: `Enter` (with a ticket if the call releases), the call, `Return` (with a ticket if it
//! acquires) and the bytes that the kernel wrote. Standby: takes both, waits its turn, copies the bytes
//! to where its own kernel would have written them. In solo mode: the call, and nothing else.

use core::sync::atomic::Ordering;

use us_abi::event::{CallArgs, EventKind, NO_TICKET, RETURN_MORE, ReturnHead};
use us_calls::{Door, Policy, Row};

use crate::call::Call;
use crate::clock::{self, KERNEL};
use crate::door::answer::log_outputs;
use crate::door::patience::{self, Patience};
use crate::door::{again, numbers, observe, pending, pidfd, taken, transfer, usage, wait, witness};
use crate::event::Event;
use crate::fault::{self, Point};
use crate::guest::GuestMut;
use crate::log::{Next, has_ticket};
use crate::raw::{self, Look};
use crate::signal::{self, Plan};
use crate::sys::spans::{self, Before};
use crate::thread::{Mode, Thread};
use crate::{members, mirror, turns};

/// Executes the guest's call for real. A call that may block is not entered while a signal is queued.
#[inline(always)]
pub fn execute(thread: &Thread, row: &Row, nr: u64, args: &[u64; 6]) -> i64 {
    let (translated, mut room);
    let args = if members::is_numbered() {
        room = numbers::Room::default();
        translated = numbers::translate(row, args, &mut room);
        &translated
    } else {
        args
    };
    // SAFETY: the guest's own call, to be executed by the copy whose effects are real.
    unsafe { if row.blocks { raw::blocking(nr, args, &thread.pending) } else { raw::call6(nr, *args) } }
}

/// As [`execute`]; where not all of the answer is the kernel's, the rest as well.
#[inline(always)]
pub(super) fn act(thread: &Thread, row: &Row, nr: u64, args: &[u64; 6]) -> i64 {
    match row.policy {
        Policy::Special(Door::Wait) => wait::make(thread, nr, args),
        _ if members::is_numbered() && nr == pidfd::SEND_SIGNAL => by_descriptor(thread, row, args),
        _ if members::is_numbered() && numbers::names_a_process(row.nr) => {
            let result = numbers::send(nr, args, |args| execute(thread, row, nr, args));
            numbers::answered(row, args, result)
        }
        _ if members::is_numbered() && numbers::answers_a_number(row.nr) => {
            numbers::answered(row, args, execute(thread, row, nr, args))
        }
        _ => execute(thread, row, nr, args),
    }
}

#[cold]
fn by_descriptor(thread: &Thread, row: &Row, args: &[u64; 6]) -> i64 {
    let Some((row, args)) = pidfd::by_number(args) else {
        return execute(thread, row, pidfd::SEND_SIGNAL, args);
    };
    let nr = row.nr.into();
    numbers::send(nr, &args, |args| execute(thread, row, nr, args))
}

/// As [`execute`], for a call of which the log has an `Enter`: leaves a mark where its `Return` will be, as the last
/// thing before the kernel is entered.
#[inline(always)]
pub fn execute_marked(thread: &mut Thread, row: &Row, nr: u64, args: &[u64; 6]) -> i64 {
    static NOTHING: Look = Look::new();
    if thread.reserve(size_of::<ReturnHead>()).is_none() {
        return execute(thread, row, nr, args);
    }
    let (translated, mut room);
    let args = if members::is_numbered() {
        room = numbers::Room::default();
        translated = numbers::translate(row, args, &mut room);
        &translated
    } else {
        args
    };
    let pending = if row.blocks { &thread.pending } else { &NOTHING };
    fault::at(Point::Call, nr as u32);
    // SAFETY: the guest's own call, to be executed by the copy whose effects are real.
    let result = unsafe { raw::marked(nr, args, pending, witness::mark_of(thread)) };
    fault::at(Point::Called, nr as u32);
    result
}

/// Publishes that a call begins.
#[inline(always)]
pub fn begin(thread: &mut Thread, row: &Row, args: CallArgs) {
    let ticket = if row.order.at_entry() { clock::kernel_ticket() } else { NO_TICKET };
    thread.append(EventKind::Enter, 0, row.nr, ticket, &args);
    turns::begun(thread);
}

/// Takes the ticket of an acquiring call, after it has returned.
#[inline(always)]
pub fn return_ticket(row: &Row) -> u64 {
    if row.order.at_return() { clock::kernel_ticket() } else { NO_TICKET }
}

/// Publishes that a call has returned, with nothing but its result.
#[inline(always)]
pub fn end(thread: &mut Thread, row: &Row, flags: u8, head: ReturnHead) {
    let ticket = return_ticket(row);
    thread.append(EventKind::Return, flags, row.nr, ticket, &head);
}

/// Takes the `Enter` of a call, as a standby. `None` when this copy is live instead.
#[inline]
pub fn take_begin(thread: &mut Thread, row: &Row, args: &CallArgs) -> Option<()> {
    let Next::Event(event) = thread.expect(EventKind::Enter, row.nr) else {
        signal::deliver_raised(thread, row);
        return None;
    };
    let logged = event.arguments();
    if logged.fd != args.fd || logged.len != args.len || (thread.verify && logged.digest != args.digest) {
        mismatch(thread, row, &logged, args);
    }
    has_begun(thread, row, &event);
    Some(())
}

/// As [`take_begin`], for a call that is still to come: its door compares what [has begun](Thread::begun).
pub fn take_begin_as_logged(thread: &mut Thread, row: &Row) -> bool {
    let Next::Event(event) = thread.expect(EventKind::Enter, row.nr) else { return false };
    has_begun(thread, row, &event);
    true
}

fn has_begun(thread: &mut Thread, row: &Row, event: &Event) {
    let logged = event.arguments();
    if has_ticket(event.header.ticket) {
        clock::wait(thread, &KERNEL.0, event.header.ticket);
        clock::pass(&KERNEL.0, event.header.ticket);
        thread.begun_mut().ticket = event.header.ticket;
    }
    thread.doubt.set_open(true);
    (thread.begun_mut().call, thread.begun_mut().pieces) = ((row.nr, logged), 0);
    thread.close_begun();
    turns::begun(thread);
}

/// As [`take_begin`], for a call whose `len` the standby does not know: it is handed to `apply` at the
/// call's turn and returned.
pub fn take_begin_with(
    thread: &mut Thread,
    row: &Row,
    fd: i32,
    digest: u32,
    apply: impl FnOnce(&mut Thread, u64),
) -> Option<u64> {
    let Next::Event(event) = thread.expect(EventKind::Enter, row.nr) else {
        signal::deliver_raised(thread, row);
        return None;
    };
    let logged = event.arguments();
    if logged.fd != fd || (thread.verify && logged.digest != digest) {
        mismatch(thread, row, &logged, &CallArgs { fd, digest, len: logged.len });
    }
    if has_ticket(event.header.ticket) {
        clock::wait(thread, &KERNEL.0, event.header.ticket);
        thread.begun_mut().ticket = event.header.ticket;
    }
    thread.begun_mut().pieces = 0;
    apply(thread, logged.len);
    if has_ticket(event.header.ticket) {
        clock::pass(&KERNEL.0, event.header.ticket);
    }
    thread.doubt.set_open(true);
    thread.begun_mut().call = (row.nr, logged);
    thread.close_begun();
    turns::begun(thread);
    Some(logged.len)
}

/// Takes a `Return`, as a standby: waits its turn and hands the event to `apply` before it is given back.
/// `None` when this copy is live instead: the call is in doubt and to be made.
#[inline]
pub fn take_end<R>(
    thread: &mut Thread,
    row: &Row,
    apply: impl FnOnce(&mut Thread, ReturnHead, &[u8], u8) -> R,
) -> Option<R> {
    take_end_of(thread, row, EventKind::Return, apply)
}

/// As [`take_end`], of a `Return` or of a `Call`.
#[inline(always)]
fn take_end_of<R>(
    thread: &mut Thread,
    row: &Row,
    kind: EventKind,
    apply: impl FnOnce(&mut Thread, ReturnHead, &[u8], u8) -> R,
) -> Option<R> {
    let Next::Event(event) = thread.expect(kind, row.nr) else {
        return None;
    };
    let ticket = event.header.ticket;
    if has_ticket(ticket) {
        clock::wait(thread, &KERNEL.0, ticket);
        thread.begun_mut().ticket = ticket;
    } else if row.order.at_return() {
        // Completed by settlement: behind everything.
        thread.begun_mut().ticket = KERNEL.0.load(Ordering::Acquire);
    }
    let (head, bytes) = event.returned();
    thread.shown.result = head.result;
    thread.ends.announced = event.header.flags >> 4;
    let result = apply(thread, head, bytes, event.header.flags);
    if matches!(head.result, raw::err::EPIPE | raw::err::EFBIG) {
        pending::sent_with(thread, row, head.result, event.header.flags >> 4);
    }
    if has_ticket(ticket) {
        clock::pass(&KERNEL.0, ticket);
    }
    if event.header.flags & RETURN_MORE == 0 {
        thread.doubt.set_open(false);
        thread.count(row.class);
    }
    thread.close();
    Some(result)
}

#[cold]
pub(super) fn mismatch(thread: &Thread, row: &Row, logged: &CallArgs, ours: &CallArgs) -> ! {
    let number = crate::state::Decimal::new;
    crate::verdict::report_divergence(
        thread,
        &[
            b"arguments of ",
            row.name.as_bytes(),
            b" differ: descriptor ",
            number(ours.fd as u32 as u64).bytes(),
            b" not ",
            number(logged.fd as u32 as u64).bytes(),
            b", length ",
            number(ours.len).bytes(),
            b" not ",
            number(logged.len).bytes(),
            if ours.digest == logged.digest { b"" } else { b", other content" },
        ],
    )
}

/// A whole recorded call.
pub fn recorded(thread: &mut Thread, row: &'static Row, call: &Call) -> i64 {
    if row.observes {
        return observe::observe(thread, row, call);
    }
    let mask = signal::begin_waiting(thread, row, call);
    let note = |thread: &mut Thread, result, _| {
        if crate::state::is_standby() || !again::is_position(call.nr) {
            again::note(call.nr, &call.args, result);
        }
        if row.policy == Policy::Special(Door::Wait) && crate::state::is_standby() {
            wait::is_logged(thread, call, result);
        }
        if matches!(call.nr, usage::GETRUSAGE | usage::TIMES) {
            usage::told(thread, call);
        }
    };
    let result = recorded_with(thread, row, call, |_, _, _| 0, note);
    signal::end_waiting(thread, mask);
    result
}

/// As [`recorded`]; `identify` runs in the primary after a call that succeeded and gives the identity that
/// travels in the log; `applied` runs in every copy with result and identity.
pub fn recorded_with(
    thread: &mut Thread,
    row: &'static Row,
    call: &Call,
    identify: impl Fn(&mut Thread, &Call, i64) -> u64,
    applied: impl Fn(&mut Thread, i64, u64),
) -> i64 {
    let (mut again, mut patience) = (None, Patience::default());
    // Before the loop: what the other modes need is computed in front of that, each time.
    if thread.calls() == Mode::Record {
        let mut before = Before::nothing();
        before.look(row, &call.args);
        let result =
            record_attempt(thread, row, call, &before, &mut patience, &mut again, &identify, &applied);
        if let Some(result) = result {
            return result;
        }
    }
    recorded_in_any_mode(thread, row, call, patience, again, identify, applied)
}

/// What was there before a call that is made again, and whether an earlier primary had entered the kernel with it.
type Noted = Option<(u64, bool)>;

/// An attempt of a primary that logs.
#[expect(clippy::too_many_arguments, reason = "one call in its two places")]
#[inline(always)]
fn record_attempt(
    thread: &mut Thread,
    row: &'static Row,
    call: &Call,
    before: &Before,
    patience: &mut Patience,
    again: &mut Noted,
    identify: &impl Fn(&mut Thread, &Call, i64) -> u64,
    applied: &impl Fn(&mut Thread, i64, u64),
) -> Option<i64> {
    let mut arguments = spans::arguments(row, call, thread.verify);
    let waits = again.is_some_and(|(noted, _)| patience.continues(call, noted));
    // What was there before the first attempt: whoever makes the next one is to compare with that, too.
    let seen = again.map_or_else(|| again::look(call.nr, &call.args), |(noted, _)| noted);
    arguments.len = if waits { patience.begin(call) } else { patience.begin(call) | seen };
    let args = patience.args(call);
    if again.is_some_and(|(_, entered)| entered) {
        witness::enter_again(thread);
    }
    begin(thread, row, arguments);
    let result = match *again {
        Some(noted) if !waits => {
            again::make(call.nr, &call.args, noted, |args| taken::make(thread, row, call.nr, args))
        }
        _ => taken::make(thread, row, call.nr, args),
    };
    let identity = if raw::failed(result) { 0 } else { identify(thread, call, result) };
    if !raw::failed(result) {
        applied(thread, result, identity);
    }
    let plan = signal::plan(thread, row, result);
    if plan.is_abandoned() {
        return None;
    }
    let result =
        if result == raw::err::EINTR && !plan.restarts() { patience.tell_rest(call) } else { result };
    log_outputs(thread, row, call, before, plan.flags(), ReturnHead { result, identity });
    if crate::state::is_gated() {
        transfer::is_uncounted(row.nr, &call.args);
    }
    if plan.carry_out(thread) {
        *again = again::interrupted(call.nr, *again, seen);
        return None;
    }
    Some(result)
}

#[inline(never)]
fn recorded_in_any_mode(
    thread: &mut Thread,
    row: &'static Row,
    call: &Call,
    mut patience: Patience,
    // What the dead primary had noted before a call in doubt that is made again.
    mut again: Noted,
    identify: impl Fn(&mut Thread, &Call, i64) -> u64,
    applied: impl Fn(&mut Thread, i64, u64),
) -> i64 {
    thread.attempt(|thread, mode| {
        let mut before = Before::nothing();
        before.look(row, &call.args);
        match mode {
            Mode::Solo => {
                let seen = again::seen(call, again);
                let result = match again {
                    None => act(thread, row, call.nr, patience.args(call)),
                    Some((noted, _)) if patience.continues(call, noted) => {
                        execute(thread, row, call.nr, patience.args(call))
                    }
                    Some(noted) => {
                        again::make(call.nr, &call.args, noted, |args| act(thread, row, call.nr, args))
                    }
                };
                // Before any handler: a copy that is made in one would do it once more, and ask for what has changed since.
                if !raw::failed(result) {
                    let identity = identify(thread, call, result);
                    applied(thread, result, identity);
                }
                if signal::solo_restart(thread, row, result) {
                    again = again::interrupted(call.nr, again, seen);
                    return None;
                }
                Some(if result == raw::err::EINTR { patience.tell_rest(call) } else { result })
            }
            Mode::Record => {
                record_attempt(thread, row, call, &before, &mut patience, &mut again, &identify, &applied)
            }
            Mode::Replay => {
                let ours = spans::arguments(row, call, thread.verify);
                let noted = take_begin_with(thread, row, ours.fd, ours.digest, |_, _| ())?;
                let taken = take_outputs(thread, row, call, &before, |thread, head| {
                    if !raw::failed(head.result) {
                        applied(thread, head.result, head.identity);
                    }
                });
                let Some((head, flags)) = taken else {
                    // In doubt, and the kernel does not show that it was done: done now, by us. Or by one that has taken over
                    // before, and that is in doubt as well: what counts is what there was before the first.
                    let entered = thread.begun().was_entered;
                    again =
                        Some(again.map_or((noted, entered), |(first, before)| (first, before || entered)));
                    return None;
                };
                if Plan::replay(thread, flags, patience::ended(call, head.result)) {
                    again = again::interrupted(call.nr, again, noted);
                    return None;
                }
                Some(head.result)
            }
        }
    })
}

/// One attempt at a call as a copy that acts; `made` hears of its result. `None` if it is to be made again, perhaps in another
/// mode.
pub fn recorded_once(
    thread: &mut Thread,
    row: &'static Row,
    call: &Call,
    made: impl Fn(&mut Thread, i64),
) -> Option<i64> {
    if thread.calls() == Mode::Solo {
        let result = act(thread, row, call.nr, &call.args);
        made(thread, result);
        return (!signal::solo_restart(thread, row, result)).then_some(result);
    }
    let mut before = Before::nothing();
    before.look(row, &call.args);
    begin(thread, row, spans::arguments(row, call, thread.verify));
    let result = taken::make(thread, row, call.nr, &call.args);
    made(thread, result);
    let plan = signal::plan(thread, row, result);
    if plan.is_abandoned() {
        return None;
    }
    log_outputs(thread, row, call, &before, plan.flags(), ReturnHead { result, identity: 0 });
    (!plan.carry_out(thread)).then_some(result)
}

/// Copies what the primary's kernel wrote to where this standby's would have, over as many `Return` events
/// as there are; `applied` runs at the call's turn, before anybody who comes later. `None`: live.
pub fn take_outputs(
    thread: &mut Thread,
    row: &'static Row,
    call: &Call,
    before: &Before,
    applied: impl Fn(&mut Thread, ReturnHead),
) -> Option<(ReturnHead, u8)> {
    take_answer(thread, row, call, before, EventKind::Return, applied)
}

/// As [`take_outputs`], of a `Return` or of a `Call`.
#[inline(always)]
pub(super) fn take_answer(
    thread: &mut Thread,
    row: &'static Row,
    call: &Call,
    before: &Before,
    kind: EventKind,
    applied: impl Fn(&mut Thread, ReturnHead),
) -> Option<(ReturnHead, u8)> {
    let mut skip = 0usize;
    let mut is_placed = true;
    loop {
        let (mut head, flags, bytes) = take_end_of(thread, row, kind, |thread, head, bytes, flags| {
            let mut source = bytes;
            let mut at = 0usize;
            // Lengths that the kernel returned through memory come first in the stream and are stored before
            // the spans that depend on them are computed.
            spans::for_each(row, &call.args, head.result, before, &mut |to, len| {
                let (start, end) = (at, at + len);
                at = end;
                let from = start.max(skip);
                let part = end.saturating_sub(from).min(source.len());
                if part > 0 {
                    is_placed &=
                        GuestMut::<u8>::at(to + (from - start) as u64).copy_from(source.as_ptr(), part);
                    source = &source[part..];
                }
            });
            // Before the event is given back: who takes over there says so to those that follow.
            thread.begun_mut().is_in_pieces = kind == EventKind::Call && flags & RETURN_MORE != 0;
            if flags & RETURN_MORE == 0 {
                applied(thread, head);
                mirror::answered(row.nr, &call.args, head.result);
            }
            (head, flags, bytes.len())
        })?;
        if flags & RETURN_MORE == 0 {
            // Of a call in doubt that was done: nobody has found out yet that its answer has no place.
            if !is_placed && !raw::failed(head.result) {
                head.result = raw::err::EFAULT;
            }
            return Some((head, flags));
        }
        skip += bytes;
    }
}
