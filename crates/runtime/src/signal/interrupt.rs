//! Signals that interrupt guest code where it computes.
//!
//! Without a log, and as a last resort, where the thread happens to be. With one at a milestone ([`crate::turns::milestones`]): the
//! log says at which, and every copy stops at the first instruction of the guest's behind that milestone's door.

use super::arrive::{self, give_up_for_signal, no_room, waited_ns};
use super::doors::{held, kernel_mask};
use super::*;
use crate::sys::milestones;
use crate::turns::{milestones as places, successor};
use crate::verdict::report_divergence;

/// Processor time that a thread has used since its oldest signal came, ns, from which on it computes. Another one is on its way
/// to a door, and waits for a processor.
const COMPUTES_NS: u64 = 5_000_000;
/// The longest that one waits for that, ns.
const STARVES_NS: u64 = 1_000_000_000;
/// Processor time of a thread for which a signal waits, while a milestone is looked for on its way, ns.
const REACHES_NS: u64 = 100_000_000;
/// How long a copy sleeps until it looks again whether the signal has come, ns.
const REST_NS: u64 = 100_000;

/// Delivers what waits on top of the interrupted guest code. Inside the runtime it does nothing: a door is near.
///
/// # Safety
/// In a signal handler, with the kernel's own frame.
pub(super) unsafe fn deliver_in_place(thread: &mut Thread, context: &mut Context) {
    if trap::is_in_door(context.regs[reg::RIP]) {
        return;
    }
    let cancelled = cancellation::is_due(thread);
    if !cancelled && thread.queue.deliverable(thread.signals.mask) == 0 {
        nothing_is_late(thread);
        return;
    }
    if thread.calls() == Mode::Record {
        let now_ns = raw::computed_ns(raw::gettid());
        // The thread of a copy has begun anew.
        let computed_ns = now_ns.checked_sub(thread.signals.due_cpu_ns).unwrap_or(now_ns);
        if computed_ns < COMPUTES_NS && waited_ns(thread) < STARVES_NS {
            // It has hardly run since then, and natively would not have had its signal either. A door is near, and if not, the
            // supervisor asks again.
            return;
        }
        // One that has been found is there in a moment.
        let may_reach = computed_ns < REACHES_NS || milestones::is_near();
        if may_reach && waited_ns(thread) < STARVES_NS && is_to_reach_milestone(thread) {
            return;
        }
        give_up_for_signal(thread);
    }
    nothing_is_late(thread);
    if cancelled {
        apply_mask(thread.signals.mask);
        cancellation::end_thread();
    }
    thread.pending.store(0, Ordering::SeqCst);
    loop {
        if thread.calls() != Mode::Solo {
            // A handler ran, and meanwhile there is a log again: the rest waits for a door.
            thread.pending.store(1, Ordering::SeqCst);
            return;
        }
        let Some(info) = thread.queue.take(thread.signals.mask) else { return };
        // The next one, if there is one, interrupts this one's handler at its first instruction.
        // SAFETY: the caller's frame.
        if !unsafe { interrupt(thread, &info, context) } {
            return;
        }
    }
}

/// A signal that has been taken interrupts guest code. False if that is the end of it.
///
/// # Safety
/// In a signal handler, with the kernel's own frame, of guest code.
unsafe fn interrupt(thread: &mut Thread, info: &Info, context: &mut Context) -> bool {
    is_received(info);
    let action = disposition(info.signal());
    if action.handler <= SIG_IGN {
        handle(thread, info);
        context.mask = kernel_mask(thread.signals.mask | held(thread));
        return true;
    }
    // SAFETY: the caller's frame.
    unsafe {
        let has_room = frame::push(thread, &action, info, context);
        if !has_room {
            no_room(thread, info.signal(), context);
        }
        has_room
    }
}

/// Whether a thread that computes, and for which a signal waits, is to wait for a milestone: one is looked for on its way. Behind that it
/// is interrupted there, in every copy.
fn is_to_reach_milestone(thread: &Thread) -> bool {
    places::are_counted(thread) && milestones::is_coming(raw::gettid(), successor::is_coming)
}

/// In the handler of a trap behind one instruction: whether it is one that the runtime has asked for.
///
/// # Safety
/// In a signal handler, with the kernel's own frame.
pub(super) unsafe fn stepped(context: &mut Context) -> bool {
    // SAFETY: the calling thread's own block.
    let Some(thread) = (unsafe { tls::current().as_mut() }) else { return false };
    match milestones::comes_out(thread, context) {
        Some(is_out) => {
            if is_out {
                // SAFETY: the caller's frame, of guest code.
                unsafe { arrive_behind_milestone(thread, context) };
            }
            true
        }
        None if milestones::stepped(context) => {
            if milestones::has_found() && thread.pending.load(Ordering::Relaxed) != 0 {
                // SAFETY: as above; in a door this does nothing.
                unsafe { deliver_in_place(thread, context) };
            }
            true
        }
        None => false,
    }
}

/// A thread has come out of the door of a milestone at which a signal waited: it is interrupted here, in every copy.
///
/// # Safety
/// In a signal handler, with the kernel's own frame, of guest code.
unsafe fn arrive_behind_milestone(thread: &mut Thread, context: &mut Context) {
    let info = match thread.calls() {
        // SAFETY: the caller's frame.
        Mode::Solo => return unsafe { deliver_in_place(thread, context) },
        Mode::Record => take_and_log(thread),
        Mode::Replay => follow(thread, context),
    };
    if let Some(info) = info {
        // SAFETY: as above.
        unsafe { interrupt(thread, &info, context) };
    }
}

/// As a primary: takes the first of the signals that wait, and logs it.
fn take_and_log(thread: &mut Thread) -> Option<Info> {
    let info = take(thread);
    match &info {
        Some(info) => log(thread, info),
        None => places::is_not_interrupted(thread),
    }
    info
}

/// As a copy: the signal that the log has. `None` where it has none; or this copy has taken over meanwhile, and the signal comes again.
fn follow(thread: &mut Thread, context: &mut Context) -> Option<Info> {
    loop {
        match thread.peek() {
            Some(event) if event.kind == EventKind::Signal as u8 => {
                let event = thread.open_front();
                return taken(thread, event);
            }
            Some(event) if places::takes_no_signal(thread, &event) => return None,
            Some(_) => {
                report_divergence(thread, &[b"an interrupted computation where the log has something else"]);
            }
            None if arrive::hears(thread, Some(context)) => {
                // A spare has met the same mark, and waits for what the log says of it.
                return if thread.calls() == Mode::Record { take_and_log(thread) } else { None };
            }
            None => thread.rest(REST_NS),
        }
    }
}
