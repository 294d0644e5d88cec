//! Turns of threads that compute are given back at milestones, which a copy finds again, and signals interrupt them there.
//!
//! A thread that comes to no door for long would be passed over, and whoever goes on at its side races with it: Python's threads ask
//! for the interpreter by a flag that the computing one reads without a lock. Nothing counts a thread's instructions for us (there need
//! not be such a counter, and those that there are count too much). So branches of the program's text are *milestones*
//! ([`crate::sys::milestones`]): a thread counts those that it passes, and a place between two doors is a number. A primary gives its turn
//! back at a milestone if others have waited for it, and the *Yield* says at which. It publishes how many it has passed, every
//! [`STEP_NS`] or so; a copy goes no further than that, since such a *Yield* may still come. Up to where its primary has been
//! everything is known.
//!
//! # Safety
//! What is left until the next look at a milestone lies in the thread's own storage, and is its own; a coordinator sets it where it stands
//! still.

use core::arch::global_asm;
use core::sync::atomic::{AtomicBool, Ordering};

use us_abi::event::{EventKind, Header, NO_TICKET};

use crate::members::of_family;
use crate::milestones::{ENDLESS, go_on, look_never, pass_none};
use crate::state::Decimal;
use crate::sys::milestones;
use crate::thread::{Mode, Thread};
use crate::turns::{logical, successor, turn_order};
use crate::verdict::report_divergence;
use crate::{raw, real, recorder, state, tls, turns};

/// Of a *Yield*: its turn was given back at the milestone with the number in the ticket.
pub const AT_MILESTONE: u8 = 16;

/// What its call says: a signal interrupts the thread behind the door of this milestone; the next event is that signal, or one that says
/// that there was none after all.
const SIGNAL: u16 = 1;
const NO_SIGNAL: u16 = 2;

/// Between two looks of a computing thread, ns.
const STEP_NS: u64 = 50_000;
/// Milestones between two looks, at most.
const STEP_MAX: u64 = 1 << 20;
/// How long a copy sleeps until it looks again how far its primary has come, ns.
const REST_NS: u64 = 100_000;
/// How long a primary waits for a copy that is too far behind, ns.
const PATIENCE_NS: u64 = 10_000_000;

/// In front of a clone, while every thread stands still: in the log that begins then, or for a successor, nothing has been passed, and what has been found becomes a milestone.
pub fn count_anew() {
    if !is_counted_anew() {
        return;
    }
    milestones::make();
    crate::thread::for_each(|thread| {
        if thread.has_ring() {
            pass_none(thread.entry());
        }
    });
}

// By name: the gate is assembly.
global_asm!(".globl us_milestone", ".hidden us_milestone", "us_milestone: jmp {look}", look = sym look);

/// What a stub says of its milestone, see [`us_sites::emit_milestone_stub`].
#[repr(C)]
struct Head {
    at: u64,
    zero: u64,
    done: u64,
}

/// At a milestone behind which nothing was left: where the thread goes on.
extern "C" fn look(head: &Head, _address: u64, _registers: *mut [u64; 12]) -> u64 {
    let words = tls::own_atomic_words();
    // Handlers that run meanwhile pass milestones of their own.
    // SAFETY: the calling thread's own storage.
    let kept = unsafe { words.read() };
    // SAFETY: the calling thread's own block; no reference to it is held here.
    let thread = unsafe { tls::current().as_mut() };
    let interrupted = match thread {
        Some(thread) if thread.borrowed.load(Ordering::Relaxed) == 0 => look_at(thread).then_some(thread),
        // In a child on its parent's stack, which has kept the number.
        _ => {
            look_never();
            None
        }
    };
    // SAFETY: as above.
    unsafe { words.write(kept) };
    if let Some(thread) = interrupted {
        milestones::stop_behind(thread);
    }
    head.done
}

/// Whether this process may count milestones: not in the turns of several.
fn may_be_counted() -> bool {
    turn_order::is_of_process() || !state::is_serial() && !of_family::is_member()
}

/// At a clone: whether it begins to count again. In a log that goes on that is so for a successor alone.
pub fn is_counted_anew() -> bool {
    may_be_counted() && (successor::is_made() || !recorder::went_on_at_clone())
}

/// Whether those that this thread passes are counted in a log.
pub fn are_counted(thread: &Thread) -> bool {
    may_be_counted() && !logical::applies(thread)
}

/// True if a signal interrupts the thread behind this door.
fn look_at(thread: &mut Thread) -> bool {
    let counts = are_counted(thread);
    match thread.calls() {
        Mode::Record if counts => record(thread),
        Mode::Replay if counts => follow(thread),
        _ => {
            let passed = thread.milestones.until.load(Ordering::Relaxed);
            go_on(thread, passed, ENDLESS);
            false
        }
    }
}

/// Whether a signal waits that this thread does not block.
fn has_signal(thread: &Thread) -> bool {
    thread.pending.load(Ordering::Relaxed) != 0 && thread.queue.deliverable(thread.signals.mask) > 0
}

/// As a primary: gives the turn to those who have waited for it, and says how far it has come, and whether it is interrupted there.
fn record(thread: &mut Thread) -> bool {
    let (passed, log) =
        (thread.milestones.until.load(Ordering::Relaxed), thread.milestones.log.load(Ordering::Relaxed));
    let told = thread.entry().milestones.load(Ordering::Acquire);
    if passed < told {
        // The dead primary has been through here, and gave nothing back up to there: a spare may have come further than this copy.
        go_on(thread, passed, told - passed);
        return false;
    }
    let is_in_order = thread.turn.is_own() || !state::is_serial() || real::single_threaded();
    let has_signal = is_in_order && has_signal(thread);
    if has_signal || thread.turn.is_own() && turn_order::is_urged(thread) {
        thread.push(EventKind::Yield, AT_MILESTONE, if has_signal { SIGNAL } else { 0 }, passed);
        turns::let_others(thread);
        turns::take(thread);
        if thread.milestones.log.load(Ordering::Relaxed) != log {
            // It has stood still meanwhile, and another log counts from there.
            return false;
        }
        if thread.calls() != Mode::Record {
            // This is a copy that was made meanwhile: the next one may be where the turn is given back again.
            go_on(thread, passed, 1);
            return has_signal;
        }
        thread.milestones.looked_ns.store(0, Ordering::Relaxed);
    }
    // Behind the *Yield*: who reads this number finds that.
    thread.entry().milestones.store(passed, Ordering::Release);
    keep_lead(thread, passed);
    let step = next_step(thread);
    go_on(thread, passed, step);
    has_signal
}

/// A thread has come out of the door of a milestone at which a signal waited, and there is none for it any more.
pub fn is_not_interrupted(thread: &mut Thread) {
    thread.push(EventKind::Yield, AT_MILESTONE, NO_SIGNAL, NO_TICKET);
}

/// The same in a copy: whether the log says so.
pub fn takes_no_signal(thread: &mut Thread, event: &Header) -> bool {
    let is_told = is_one(event) && event.call == NO_SIGNAL;
    if is_told {
        thread.take_front(event);
    }
    is_told
}

/// Milestones until the next look: some tens of microseconds.
fn next_step(thread: &Thread) -> u64 {
    let now_ns = raw::now_ns();
    let looked_ns = thread.milestones.looked_ns.swap(now_ns, Ordering::Relaxed);
    let took_ns = now_ns.saturating_sub(looked_ns);
    let step = thread.milestones.step.load(Ordering::Relaxed);
    let step = match took_ns {
        // It has waited for its turn, or for its copy: how long it computed is not known.
        _ if looked_ns == 0 => step,
        ..STEP_NS => (2 * step).min(STEP_MAX),
        _ if took_ns > 4 * STEP_NS => (step / 2).max(1),
        _ => step,
    };
    thread.milestones.step.store(step, Ordering::Relaxed);
    step
}

/// Lets a standby come nearer that is further behind than the group's lead: what it has not computed at this copy's death clients wait
/// for. Events do not say how far that is, since there are none.
fn keep_lead(thread: &mut Thread, passed: u64) {
    let followed = |thread: &Thread| thread.entry().milestones_followed.load(Ordering::Relaxed);
    let milestones = &thread.milestones;
    let awaited = milestones.awaited.load(Ordering::Relaxed);
    let start_ns = raw::now_ns();
    let first = followed(thread);
    if first < awaited && first != milestones.still.load(Ordering::Relaxed) {
        let lead_ns = state::LEAD_NS.load(Ordering::Relaxed);
        if start_ns.saturating_sub(milestones.since_ns.load(Ordering::Relaxed)) < lead_ns {
            return;
        }
        while followed(thread) < awaited && thread.calls() == Mode::Record {
            if raw::now_ns() - start_ns > PATIENCE_NS {
                // It gets no processor, or is stopped: who waits for that waits for nothing.
                let now = followed(thread);
                thread.milestones.still.store(if now == first { now } else { u64::MAX }, Ordering::Relaxed);
                break;
            }
            raw::nap(REST_NS);
        }
        thread.milestones.looked_ns.store(0, Ordering::Relaxed);
    }
    thread.milestones.awaited.store(passed, Ordering::Relaxed);
    thread.milestones.since_ns.store(raw::now_ns(), Ordering::Relaxed);
}

/// The primary is dead, and this copy takes over: no *Yield* comes any more.
static IS_FINAL: AtomicBool = AtomicBool::new(false);

/// The rings are as they stay, or this copy is the primary. A thread that has applied everything goes on to its next door: it may have a
/// lock that another one needs for what it has still to apply.
pub fn set_final(is_final: bool) {
    IS_FINAL.store(is_final, Ordering::Release);
}

/// As a copy: goes as far as its primary has been, and gives its turn back where that did.
fn follow(thread: &mut Thread) -> bool {
    let (passed, log) =
        (thread.milestones.until.load(Ordering::Relaxed), thread.milestones.log.load(Ordering::Relaxed));
    thread.entry().milestones_followed.store(passed, Ordering::Relaxed);
    let step = next_step(thread);
    loop {
        // First the number, then the log: a *Yield* below the number is there.
        let known = thread.entry().milestones.load(Ordering::Acquire);
        match thread.peek() {
            Some(event) if is_one(&event) => {
                if event.ticket > passed {
                    go_on(thread, passed, step.min(event.ticket - passed));
                    return false;
                }
                if event.ticket < passed {
                    let numbers = [event.ticket, passed, known].map(Decimal::new);
                    let [at, passed, known] = numbers.each_ref().map(Decimal::bytes);
                    let is_signals: &[u8] = if event.call == SIGNAL { b", for a signal" } else { b"" };
                    let parts: [&[u8]; 8] = [
                        b"a turn was to be given back at milestone ",
                        at,
                        is_signals,
                        b", and this copy is at ",
                        passed,
                        b" of ",
                        known,
                        b" that are known",
                    ];
                    report_divergence(thread, &parts);
                }
                thread.take_front(&event);
                turns::let_others(thread);
                turns::take(thread);
                if event.call == SIGNAL && thread.milestones.log.load(Ordering::Relaxed) == log {
                    go_on(thread, passed, 1);
                    return true;
                }
            }
            // Its next event comes at a door, and it has been behind that.
            Some(_) => {
                go_on(thread, passed, step);
                return false;
            }
            None if known > passed => {
                go_on(thread, passed, step.min(known - passed));
                return false;
            }
            None if state::LIVE.load(Ordering::Acquire) => thread.wait_more(),
            None if IS_FINAL.load(Ordering::Acquire) => {
                go_on(thread, passed, step);
                return false;
            }
            None => thread.rest(REST_NS),
        }
        thread.milestones.looked_ns.store(0, Ordering::Relaxed);
        if thread.milestones.log.load(Ordering::Relaxed) != log {
            return false;
        }
        if thread.calls() != Mode::Replay {
            go_on(thread, passed, 1);
            return false;
        }
    }
}

/// Whether this event is a turn that was given back at a milestone.
pub fn is_one(event: &Header) -> bool {
    event.kind == EventKind::Yield as u8 && event.flags & AT_MILESTONE != 0
}
