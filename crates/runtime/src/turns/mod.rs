//! `--order serial`: one thread of the whole group runs at a time, and another only when it comes to a door where it may
//! wait. What threads, and processes that share memory, do to each other without any lock is then in an order, and a
//! replay repeats it: the order of turns is all that it needs.
//!
//! A turn is given back in front of every call that may block, and behind the wait for a lock; taking it again is an
//! event. Where a thread waits for a lock only a look at the log tells a replay that it does: *Yield* comes first.

pub mod digest;
pub mod doors;
pub mod history;
pub mod live_turns;
pub mod logical;
pub mod milestones;
mod prompt;
mod restore;
pub mod successor;
pub mod turn_order;

use us_abi::event::{EventKind, Header, NO_TICKET};
use us_calls::{Policy, Row};

use crate::members::of_family;
use crate::raw::nr;
use crate::state;
use crate::thread::turn::Waits;
use crate::thread::{Mode, Thread};
use crate::turns::logical::{End, Until};
use crate::verdict::report_divergence;

/// Doors behind which a thread that is waited for goes on, until it gives others a turn.
const DOORS: u32 = 64;

/// Takes the turn: the next guest instruction of this thread is nobody else's at the same time. Where turns are had in doors alone,
/// a function that is none does not have one behind a wait that it did not have before.
#[inline]
pub fn take(thread: &mut Thread) {
    if state::is_serial() && !thread.turn.is_apart() && doors::may_take(thread) {
        turn_order::take(thread);
    }
}

/// The same where guest code begins, which is in no turn with `--order deterministic`.
#[inline]
pub fn take_for_guest(thread: &mut Thread) {
    if !state::is_parallel() {
        take(thread);
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
    hand_over(thread, logical::leave);
}

/// Gives it to the next, and comes for another at once, whatever lies between: who waits for nobody keeps its place.
#[inline]
pub fn let_others(thread: &mut Thread) {
    hand_over(thread, logical::let_others);
}

/// Gives the turn back, if it is this thread's; where it is then in a computed order, `goes` says.
#[inline(always)]
fn hand_over(thread: &mut Thread, goes: fn(&Thread)) {
    if !thread.turn.is_own() {
        return;
    }
    thread.turn.set_own(false);
    if logical::applies(thread) {
        goes(thread);
    }
    turn_order::give(thread);
}

/// Of a *Yield* in a computed order: the thread sleeps there. The two words behind the event's header are what it sleeps on and for how
/// many ticks.
const SLEEPS: u8 = 1;
/// It does not sleep longer than those.
const TIMED: u8 = 2;
/// What it sleeps on is a place in the object that its door is about.
const IN_OBJECT: u8 = 4;
/// Who wakes it may be unknown to a copy.
const GLANCES: u8 = 8;
/// The most bytes that an object has.
const OBJECT_BYTES: u64 = 64;

/// What a thread sleeps on.
#[derive(Clone, Copy)]
pub struct On {
    /// Its address.
    pub key: u64,
    /// Whether those who wake there do so in every copy, in their turns. If not, who sleeps looks again in a copy that takes over.
    pub is_alike: bool,
}

impl On {
    /// A word of an object that every copy has, and changes as the log says.
    pub fn alike(key: u64) -> On {
        On { key, is_alike: true }
    }
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
    let logs = thread.calls() == Mode::Record;
    if logs {
        crate::milestones::tell(thread);
    }
    // Who follows waits here for nothing but moments; what is a wait, the log says.
    if thread.turn.is_own() && thread.calls() != Mode::Replay {
        if logs {
            thread.push(EventKind::Yield, 0, 0, NO_TICKET);
        }
        let_others(thread);
    }
}

/// Sleeps on a word with this value until somebody wakes those there, where the order is computed: in the turn it is known that there
/// is something to wait for, and behind it the turn is this thread's again. What the kernel would answer. `None` where it is not
/// computed.
pub fn sleep(thread: &mut Thread, on: On, until: Option<&Until>) -> Option<i64> {
    sleep_as(thread, on, until, false, || true)
}

/// The same on a word that a thread outside of all turns may change, which wakes whoever sleeps then: `is_to_wait` looks once more.
pub fn sleep_while(
    thread: &mut Thread,
    on: On,
    until: Option<&Until>,
    is_to_wait: impl Fn() -> bool,
) -> Option<i64> {
    sleep_as(thread, on, until, false, is_to_wait)
}

/// The same where a thread that has been cancelled is to end: it is interrupted, and the caller looks.
pub fn sleep_at_point(thread: &mut Thread, on: On, until: Option<&Until>) -> Option<i64> {
    sleep_as(thread, on, until, true, || true)
}

fn sleep_as(
    thread: &mut Thread,
    on: On,
    until: Option<&Until>,
    is_point: bool,
    is_to_wait: impl Fn() -> bool,
) -> Option<i64> {
    if !thread.turn.is_own() || !logical::decides(thread) {
        return None;
    }
    let wait = until.map(Until::ticks);
    if thread.calls() == Mode::Record {
        // Before anybody else has a turn: whoever follows gives this one back here.
        let place = on.key.wrapping_sub(thread.turn.object());
        let in_object = place < OBJECT_BYTES;
        let flag = |is_set: bool, flag: u8| if is_set { flag } else { 0 };
        let flags =
            SLEEPS | flag(wait.is_some(), TIMED) | flag(in_object, IN_OBJECT) | flag(!on.is_alike, GLANCES);
        let words = [if in_object { place } else { on.key }, wait.unwrap_or(0)];
        thread.append(EventKind::Yield, flags, 0, NO_TICKET, &words);
    }
    fall_asleep(thread, on, wait);
    if !is_to_wait() {
        logical::wake_up(thread);
    }
    let end = logical::sleep(thread, until, is_point);
    take(thread);
    Some(answer(end))
}

/// The same of a wait whose end is an event, which comes before the turn: that is given, and not taken again.
pub fn sleep_apart(thread: &mut Thread, key: u64, until: Option<&Until>) -> i64 {
    fall_asleep(thread, On::alike(key), until.map(Until::ticks));
    if thread.calls() == Mode::Replay {
        // How it ends, the log says.
        return 0;
    }
    answer(logical::sleep(thread, until, false))
}

/// The rest of such a wait, in a copy whose primary began it.
pub fn sleep_on(thread: &mut Thread, until: Option<&Until>) -> i64 {
    answer(logical::sleep(thread, until, false))
}

fn fall_asleep(thread: &mut Thread, on: On, wait: Option<u64>) {
    thread.turn.set_own(false);
    thread.turn.set_glances(!on.is_alike);
    logical::fall_asleep(thread, on.key, wait);
    turn_order::give(thread);
}

fn answer(end: End) -> i64 {
    match end {
        End::Woken => 0,
        End::TimedOut => crate::raw::err::ETIMEDOUT,
        End::Interrupted => crate::raw::err::EINTR,
    }
}

/// The program says that what this thread does from here on depends on nobody: it is in no order until [`end_apart`].
pub fn begin_apart(thread: &mut Thread) {
    if thread.turn.is_section() || thread.turn.is_apart() {
        return;
    }
    doors::enter(thread);
    give(thread);
    thread.turn.set_in_door(false);
    thread.turn.set_apart(true);
}

/// It comes back.
pub fn end_apart(thread: &mut Thread) {
    if !thread.turn.is_apart() {
        return;
    }
    thread.turn.set_apart(false);
    if doors::enter(thread) {
        return doors::leave(thread);
    }
    take(thread);
}

/// The end of a thread, in its last turn. Those who wait for it sleep on `key`.
pub fn end(thread: &mut Thread, key: u64) {
    thread.turn.set_ended();
    if thread.turn.is_own() {
        logical::exit(thread, thread.slot(), key);
    }
    give(thread);
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
                let_others(thread);
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
    if milestones::is_one(&header) {
        report_divergence(thread, &[b"a door where the log has a turn that was given back before it"]);
    }
    let [key, ticks] = thread.front_words(&header);
    thread.take_front(&header);
    if !logical::applies(thread) || !thread.turn.is_own() {
        give(thread);
    } else if header.flags & SLEEPS == 0 {
        let_others(thread);
    } else {
        // Its own word, wherever that lies in this copy.
        let from = if header.flags & IN_OBJECT != 0 { thread.turn.object() } else { 0 };
        let on = On { key: from.wrapping_add(key), is_alike: header.flags & GLANCES == 0 };
        fall_asleep(thread, on, (header.flags & TIMED != 0).then_some(ticks));
    }
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
#[inline(always)]
pub fn at_look(thread: &mut Thread) {
    if thread.turn.is_own() {
        at_look_in_turn(thread);
    }
}

#[cold]
fn at_look_in_turn(thread: &mut Thread) {
    let is_last = is_last_door(thread);
    match thread.calls() {
        Mode::Record | Mode::Solo if is_last => {
            pause(thread);
            take(thread);
        }
        Mode::Record if is_to_pause(thread) => {
            pause(thread);
            take(thread);
        }
        Mode::Replay => follow_pauses(thread),
        _ => {}
    }
}

/// At the beginning of a lock's door, of which the log has an event, in threads that run one at a time.
pub fn at_lock(thread: &mut Thread) {
    if thread.turn.is_own() && is_last_door(thread) && thread.calls() != Mode::Replay {
        pause(thread);
        take(thread);
    }
}

/// Counts this door where the order is computed, in every copy. Whether others have their turn here, whoever waits.
fn is_last_door(thread: &Thread) -> bool {
    logical::applies(thread) && !state::is_parallel() && thread.turn.count_door().is_multiple_of(DOORS)
}

/// Whether a thread that records gives others a turn at this door, though it waits for nothing.
fn is_to_pause(thread: &mut Thread) -> bool {
    if logical::applies(thread) {
        return false;
    }
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
        let_others(thread);
        return true;
    }
    if row.blocks {
        // What it puts out, others may be about to change: it is looked at in turn.
        thread.turn.set_gives(true);
        if logical::decides(thread) {
            let asked = thread.begun().asked;
            let waits = prompt::waits(row, &asked);
            thread.turn.set_waits(waits);
            logical::announce(thread, waits);
            if thread.calls() == Mode::Solo {
                // Nothing says that it begins.
                begun(thread);
            }
        }
        return true;
    }
    if logical::applies(thread) {
        if has_events && is_last_door(thread) && thread.calls() != Mode::Replay {
            pause(thread);
            take(thread);
        }
        return false;
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
        if !logical::applies(thread) || !thread.turn.is_own() {
            return give(thread);
        }
        thread.turn.set_out(true);
        match thread.turn.waits() {
            // For whom its primary's waits is not known here.
            _ if thread.calls() == Mode::Replay => give(thread),
            Waits::ForWorld => give(thread),
            Waits::ForNobody => let_others(thread),
            Waits::For(wait_ns) => {
                thread.turn.set_own(false);
                logical::sleep_in_kernel(thread, wait_ns);
                turn_order::give(thread);
            }
        }
    }
}

/// And has returned.
pub fn after_call(thread: &mut Thread) {
    // One that was answered without being made.
    begun(thread);
    take(thread);
}
