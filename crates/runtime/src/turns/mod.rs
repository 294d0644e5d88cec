//! `--order serial`: one thread of the whole group runs at a time, and another only when it comes to a door where it may
//! wait. What threads, and processes that share memory, do to each other without any lock is then in an order, and a
//! replay repeats it: the order of turns is all that it needs.
//!
//! A turn is given back in front of every call that may block, and behind the wait for a lock; taking it again is an
//! event. Where a thread waits for a lock only a look at the log tells a replay that it does: *Yield* comes first.

pub mod live_turns;
pub mod turn_order;

use us_abi::event::{EventKind, Header, NO_TICKET};
use us_calls::{Policy, Row};

use crate::members::of_family;
use crate::raw::nr;
use crate::state;
use crate::thread::{Mode, Thread};
use crate::verdict::report_divergence;

/// Doors behind which a thread that is waited for goes on, until it gives others a turn.
const DOORS: u32 = 64;

/// Takes the turn: the next guest instruction of this thread is nobody else's at the same time.
#[inline]
pub fn take(thread: &mut Thread) {
    if state::is_serial() {
        turn_order::take(thread);
    }
}

/// Whether this thread takes turns.
#[inline(always)]
pub fn applies(thread: &Thread) -> bool {
    !state::takes_live_turns() || live_turns::applies(thread)
}

/// Gives it back.
#[inline]
pub fn give(thread: &mut Thread) {
    if !thread.turn.is_own() {
        return;
    }
    thread.turn.set_own(false);
    turn_order::give(thread);
}

/// The event at the front of the ring, which must be of this kind.
fn front(thread: &mut Thread, kind: EventKind) -> Header {
    loop {
        match thread.peek() {
            Some(header) if header.kind == kind as u8 => return header,
            Some(other) => {
                let number = |value: u64| state::Decimal::new(value);
                let (ours, theirs) = (number(kind as u64), number(u64::from(other.kind)));
                report_divergence(
                    thread,
                    &[b"a turn: event kind ", ours.bytes(), b" where the log has kind ", theirs.bytes()],
                )
            }
            None => thread.wait_more(),
        }
    }
}

/// Before a wait for a lock, in a door that a replay passes without waiting.
#[inline]
pub fn pause(thread: &mut Thread) {
    // Who follows waits here for nothing but moments; what is a wait, the log says.
    if thread.turn.is_own() && thread.calls() != Mode::Replay {
        if thread.calls() == Mode::Record {
            thread.push(EventKind::Yield, 0, 0, NO_TICKET);
        }
        give(thread);
    }
}

/// Gives back the last turn of a process, whose end is in no log but a recording's: others may come to more doors before it.
/// A *Yield* says where it was.
pub fn give_last(thread: &mut Thread) {
    if ends_by_yield() { pause(thread) } else { give(thread) }
}

/// Whether the log says by a *Yield* where the last turn ended: in a recording the end itself does.
fn ends_by_yield() -> bool {
    state::takes_live_turns() && !state::is_recorded()
}

/// The same in a standby. A signal that came at the door of the end was delivered in turn: one that is delivered here after the
/// turn was given back would wait for another turn, of which the log says nothing.
pub fn follow_last(thread: &mut Thread) {
    while ends_by_yield() && thread.turn.is_own() && thread.calls() == Mode::Replay {
        match thread.peek() {
            Some(header) if header.kind == EventKind::Signal as u8 => thread.take_signal(),
            Some(_) => {
                let header = front(thread, EventKind::Yield);
                thread.take_front(&header);
                give(thread);
            }
            None => thread.wait_more(),
        }
    }
    if state::takes_live_turns() && thread.calls() == Mode::Replay {
        // Where the process is recorded its end has been in the log.
        give(thread);
    }
}

/// At the front of a replay's ring is a *Yield*: what the recorded thread did there was to wait.
pub fn follow_pause(thread: &mut Thread) {
    let header = front(thread, EventKind::Yield);
    thread.take_front(&header);
    give(thread);
    if of_family::is_member() {
        skip_answer(thread);
    }
    take(thread);
}

/// How a wait for an object that processes share has ended is in the log. A thread that follows the order of locks hears of
/// the same from the object's own event.
fn skip_answer(thread: &mut Thread) {
    let is_answer =
        |header: &Header| header.kind == EventKind::Call as u8 && u64::from(header.call) == nr::FUTEX;
    if let Some(header) = awaited(thread).filter(is_answer) {
        thread.take_front(&header);
    }
}

/// The event at the front of the ring, waited for; `None` once this copy is live.
pub fn awaited(thread: &mut Thread) -> Option<Header> {
    while thread.calls() == Mode::Replay {
        match thread.peek() {
            None => thread.wait_more(),
            header => return header,
        }
    }
    None
}

/// The same, as often as the log says.
fn follow_pauses(thread: &mut Thread) {
    while awaited(thread).is_some_and(|header| header.kind == EventKind::Yield as u8) {
        follow_pause(thread);
    }
}

/// Whether this copy waits for nothing itself: what the recorded one waited for, the log says.
#[inline]
pub fn is_followed(thread: &Thread) -> bool {
    state::is_serial() && state::is_detached() && thread.calls() == Mode::Replay
}

/// At a look at a clock: a thread that computes between such looks comes to no other door, and others wait for it.
pub fn at_look(thread: &mut Thread) {
    if !thread.turn.is_own() {
        return;
    }
    match thread.calls() {
        Mode::Record if is_to_pause(thread) => {
            pause(thread);
            take(thread);
        }
        Mode::Replay => follow_pauses(thread),
        _ => {}
    }
}

/// Whether a thread that records gives others a turn at this door, though it waits for nothing.
fn is_to_pause(thread: &mut Thread) -> bool {
    turn_order::is_urged(thread) || has_passed_doors(thread)
}

/// Counts this door. Whether it is one at which a thread gives its turn to others who wait for it.
fn has_passed_doors(thread: &mut Thread) -> bool {
    thread.turn.count_door().is_multiple_of(DOORS) && turn_order::is_wanted()
}

/// Around a system call. `true` if the turn has to be taken again.
#[inline]
pub fn before_call(thread: &mut Thread, row: &Row, has_events: bool) -> bool {
    let heard = thread.turn.take_heard();
    if !thread.turn.is_own() {
        return false;
    }
    // The end of a process is in no log but a recording.
    let has_events = has_events && (u64::from(row.nr) != nr::EXIT_GROUP || !state::takes_live_turns());
    let is_recorded = matches!(row.policy, Policy::Recorded);
    let is_anybodys = is_followed(thread) || of_family::is_member() || is_recorded;
    if has_events && is_anybodys && thread.calls() == Mode::Replay {
        // Where it waited for a lock that is free here: the wait comes before the call. So does a turn given to others, who may
        // change what the call puts out.
        follow_pauses(thread);
    }
    if u64::from(row.nr) == nr::SCHED_YIELD {
        give(thread);
        return true;
    }
    if row.blocks {
        // What it puts out, others may be about to change: it is looked at in turn.
        thread.turn.set_gives(true);
        return true;
    }
    // Others may change what an allocator's call is about: see `heaps`.
    let may_be_urged = is_recorded && !heard;
    if has_events
        && thread.calls() == Mode::Record
        && (has_passed_doors(thread) || may_be_urged && turn_order::is_urged(thread))
    {
        pause(thread);
        take(thread);
    }
    false
}

/// The call has begun.
#[inline(always)]
pub fn begun(thread: &mut Thread) {
    if thread.turn.gives() {
        thread.turn.set_gives(false);
        give(thread);
    }
}

/// And has returned.
pub fn after_call(thread: &mut Thread) {
    // One that was answered without being made.
    begun(thread);
    take(thread);
}
