//! Signals as the kernel delivers them: into a queue, or, faults and the last resort, in place.
//!
//! # Safety
//! Handlers run on the runtime's own stack, with every signal blocked; they touch the calling thread's block and
//! atomics only.

use core::sync::atomic::AtomicBool;

use us_abi::SIGNAL_WAIT_NS_MAX;

use super::doors::{held, kernel_mask, set_mask};
use super::*;
use crate::fault::{self, Point};

/// Ends the program by a signal's default action: the standby first, then this process by that signal.
pub(super) fn end_by(signal: i32) -> ! {
    process::leave(leaving::SIGNAL, signal);
    let default = Action::default();
    let all = 0u64;
    // SAFETY: back to the default action, unblocked, and sent to ourselves: the status is the one a parent expects.
    unsafe {
        call4(raw::nr::RT_SIGACTION, signal as u64, &raw const default as u64, 0, 8);
        call4(raw::nr::RT_SIGPROCMASK, 2, &raw const all as u64, 0, 8);
        let pid = raw::call1(raw::nr::GETPID, 0) as u64;
        raw::call3(raw::nr::TGKILL, pid, u64::from(raw::gettid()), signal as u64);
        raw::call1(raw::nr::EXIT_GROUP, 128 + signal as u64);
    }
    crate::last_words(&[b"a fatal signal did not end the program"])
}

/// The runtime's handler for asynchronous signals.
///
/// # Safety
/// Called by the kernel.
pub(super) unsafe extern "C" fn on_signal(signal: i32, info: *const Info, context: *mut Context) {
    // SAFETY: the kernel's siginfo and context; the calling thread's own block, whose queue only this handler,
    // which blocks every signal, writes to.
    unsafe {
        let mut info = *info;
        info.recall();
        let Some(thread) = tls::current().as_mut() else {
            if signal != SIGCANCEL {
                orphan(signal, &info, &mut *context);
            }
            return;
        };
        let context = &mut *context;
        fault::at(Point::Signal, 0);
        if signal != SIGCANCEL || thread.cancel.load(Ordering::Relaxed) == 0 {
            if signal == 17 && !sigchld::is_news(&mut info.0) {
                return unnoticed(thread, context);
            }
            info.adopt();
            info.stamp();
            if !mail::arrived(&mut info) {
                return unnoticed(thread, context);
            }
            thread.queue.push(&info);
            context.mask |= held(thread);
        }
        thread.pending.store(1, Ordering::SeqCst);
        if state::header().is_some() && state::role() == Role::Primary {
            let entry = thread.entry();
            if entry.pending_signal.load(Ordering::Relaxed) == 0 {
                // The oldest counts: with one signal after another none of them would ever be late.
                entry.pending_since_ns.store(raw::now_ns(), Ordering::Relaxed);
                entry.pending_signal.store(signal, Ordering::Release);
            }
        }
        if let Some(exit) = raw::rewind(context.regs[reg::RIP]) {
            context.regs[reg::RIP] = exit;
            return;
        }
        if signal != SIGCANCEL
            && disposition(signal).handler == SIG_DFL
            && ENDING & bit(signal) != 0
            && state::role() != Role::Standby
        {
            // Nobody's handler runs, so no door is needed: the program ends here and now.
            end_by(signal);
        }
        if thread.calls() == Mode::Solo && thread.borrowed.load(Ordering::Relaxed) == 0 {
            // No log, so no need for a door.
            deliver_in_place(thread, context);
        } else {
            // The supervisor is to see to it that this does not take long. Inside a door as well: it may have looked for
            // signals already, and the guest compute for an hour behind it.
            state::attention();
        }
    }
}

/// A signal waits for the calling thread's next door, as one that has just come.
pub fn put_into_queue(thread: &mut Thread, info: &Info) {
    thread.queue.push(info);
    thread.pending.store(1, Ordering::SeqCst);
    let entry = thread.entry();
    if entry.pending_signal.load(Ordering::Relaxed) == 0 {
        entry.pending_since_ns.store(raw::now_ns(), Ordering::Relaxed);
        entry.pending_signal.store(info.signal(), Ordering::Release);
        state::attention();
    }
}

/// What came is nothing for the guest: a call that it has interrupted goes on, and nobody must notice.
fn unnoticed(thread: &Thread, context: &mut Context) {
    thread.pending.store(1, Ordering::SeqCst);
    if let Some(exit) = raw::rewind(context.regs[reg::RIP]) {
        context.regs[reg::RIP] = exit;
    }
}

/// The supervisor has seen that a signal waits too long: its thread computes. No copy can find this instruction
/// again, so the standby is given up and the signal delivered where it is due.
///
/// # Safety
/// In the SIGSYS handler, with the kernel's own frame.
pub unsafe fn nudged(context: &mut Context) {
    crate::clone::notice_command();
    // SAFETY: the caller's frame.
    if unsafe { park::in_handler(context) } {
        return;
    }
    // SAFETY: the calling thread's own block.
    let Some(thread) = (unsafe { tls::current().as_mut() }) else { return };
    if state::role() != Role::Primary || thread.borrowed.load(Ordering::Relaxed) != 0 {
        return;
    }
    if thread.calls() == Mode::Replay {
        // Promoted while it computes. With nothing left to apply it goes live here as well as at a door.
        let computes = !trap::is_in_door(context.regs[reg::RIP]);
        if !computes || !state::LIVE.load(Ordering::Acquire) || thread.peek().is_some() {
            return;
        }
        crate::standby::promote::go_live(thread);
        context.mask = kernel_mask(thread.mask);
    }
    thread.pending.store(1, Ordering::SeqCst);
    if let Some(exit) = raw::rewind(context.regs[reg::RIP]) {
        context.regs[reg::RIP] = exit;
        return;
    }
    // SAFETY: the caller's frame.
    unsafe { deliver_in_place(thread, context) };
}

/// At a door without an event, where nothing can be delivered as one. A thread that passes no other door (it waits for a
/// handler's word in a loop around `sched_yield`, or in futex calls of its own) must get its signals all the same: without
/// a log here and now, otherwise when they are late.
#[cold]
#[inline(never)]
pub fn deliver_late(thread: &mut Thread) {
    if thread.making || thread.calls() == Mode::Replay || !has_deliverable(thread) {
        return;
    }
    if thread.calls() == Mode::Record {
        let (entry, now) = (thread.entry(), raw::now_ns());
        if entry.pending_signal.load(Ordering::Relaxed) == 0 {
            // It became due by a change of the mask: from here on it waits.
            entry.pending_since_ns.store(now, Ordering::Relaxed);
            entry.pending_signal.store(waiting_signal(thread), Ordering::Release);
            return state::attention();
        }
        if now.saturating_sub(entry.pending_since_ns.load(Ordering::Relaxed)) < SIGNAL_WAIT_NS_MAX {
            return;
        }
        give_up_for_signal(thread);
    }
    nothing_is_late(thread);
    deliver_cancellation(thread);
    deliver(thread);
}

/// The first of the signals that are due, or what stands for a cancellation.
fn waiting_signal(thread: &Thread) -> i32 {
    let signals = thread.queue.waiting() & !thread.mask;
    if cancel::is_due(thread) { SIGCANCEL } else { signals.trailing_zeros() as i32 + 1 }
}

/// No copy can find this instruction again.
fn give_up_for_signal(thread: &Thread) {
    let number = state::Decimal::new(waiting_signal(thread) as u64);
    let why: &[&[u8]] =
        &[b"signal ", number.bytes(), b" was due in a thread that computes: it is delivered at once"];
    crate::give_up_log(Cause::CannotReplay, why);
}

/// Delivers what waits on top of the interrupted guest code. Inside the runtime it does nothing: a door is near.
///
/// # Safety
/// In a signal handler, with the kernel's own frame.
unsafe fn deliver_in_place(thread: &mut Thread, context: &mut Context) {
    if trap::is_in_door(context.regs[reg::RIP]) {
        return;
    }
    let cancelled = cancel::is_due(thread);
    if !cancelled && thread.queue.deliverable(thread.mask) == 0 {
        nothing_is_late(thread);
        return;
    }
    if thread.calls() == Mode::Record {
        give_up_for_signal(thread);
    }
    nothing_is_late(thread);
    if cancelled {
        apply_mask(thread.mask);
        cancel::end_thread();
    }
    thread.pending.store(0, Ordering::SeqCst);
    loop {
        if thread.calls() != Mode::Solo {
            // A handler ran, and meanwhile there is a log again: the rest waits for a door.
            thread.pending.store(1, Ordering::SeqCst);
            return;
        }
        let Some(info) = thread.queue.take(thread.mask) else { return };
        members::seen(info.signal(), info.sent());
        mail::is_taken(mail::letter_of(&info));
        let action = disposition(info.signal());
        if action.handler <= SIG_IGN {
            handle(thread, &info);
            continue;
        }
        if action.flags & SA_RESETHAND != 0 {
            DISPOSITIONS[info.signal() as usize].handler.store(SIG_DFL, Ordering::Release);
        }
        // SAFETY: the caller's frame.
        unsafe { fault_in_place(thread, &action, info.signal(), &info, context) };
    }
}

/// Whether a thread without a block has been hit, and blocks what it was hit by.
static ORPHANS: AtomicBool = AtomicBool::new(false);

/// A signal that hit a thread before it had a block: ending ones end. One that was meant for this very thread waits in the
/// kernel until the thread is known (pthread_kill may be called before the thread has run), others are sent on to the
/// process. A thread that the runtime never meets is left alone by them from now on.
fn orphan(signal: i32, info: &Info, context: &mut Context) {
    if disposition(signal).handler == SIG_DFL && ENDING & bit(signal) != 0 {
        end_by(signal);
    }
    ORPHANS.store(true, Ordering::Release);
    context.mask |= bit(signal);
    info.send((info.code() == SI_TKILL).then(raw::gettid));
}

/// A new thread has its block: what waited for that comes in.
pub fn entered(thread: &Thread) {
    if ORPHANS.load(Ordering::Acquire) {
        apply_mask(thread.mask);
    }
}

/// The runtime's handler for faults: those of its own probing of guest memory, and the guest's.
///
/// # Safety
/// Called by the kernel.
pub(super) unsafe extern "C" fn on_fault(signal: i32, info: *const Info, context: *mut Context) {
    // SAFETY: the kernel's siginfo and context of this thread.
    unsafe {
        let place = &mut *context;
        if let Some(exit) = guest::fault_exit(place.regs[reg::RIP]) {
            place.regs[reg::RIP] = exit;
            return;
        }
        let code = (*info).0[1] as u32 as i32;
        if code <= 0 {
            // Sent by somebody: an ordinary signal.
            if disposition(signal).handler > SIG_IGN {
                on_signal(signal, info, context);
                return;
            }
        }
        let action = disposition(signal);
        if action.handler > SIG_IGN
            && let Some(thread) = tls::current().as_mut()
        {
            fault_in_place(thread, &action, signal, &*info, place);
            return;
        }
        die_of_fault(signal);
    }
}

/// A fault with a handler of the guest's: it repeats in every copy, so it is no event.
///
/// # Safety
/// Called in the signal handler, with the kernel's own frame.
unsafe fn fault_in_place(
    thread: &mut Thread,
    action: &Action,
    signal: i32,
    info: &Info,
    context: &mut Context,
) {
    let before = thread.mask;
    let own = if action.flags & SA_NODEFER != 0 { 0 } else { bit(signal) };
    set_mask(thread, before | action.mask | own);
    context.mask = before;
    let sp = context.regs[reg::RSP];
    // SAFETY: the guest's handler with the kernel's own context, so that what it changes there takes effect.
    unsafe { invoke(thread, action, signal, info, (&raw mut *context).cast(), sp) };
    set_mask(thread, context.mask);
    context.mask = kernel_mask(thread.mask) | held(thread);
}

fn die_of_fault(signal: i32) {
    if state::role() == Role::Primary
        && let Some(header) = state::header()
    {
        // Whoever takes over is on its way as soon as this is said, and ends this copy with a kill. If nobody can, the parent
        // hears of the fault all the same.
        if let Some(own) = members::own() {
            own.will.store(signal | us_abi::WILL, Ordering::SeqCst);
        }
        // The core may take long to be written; the standby need not wait for that.
        header.leaving.0.store(leaving::DYING, Ordering::SeqCst);
        state::attention();
    }
    let default = Action::default();
    // SAFETY: the instruction faults again, now with the default action. A sent signal is sent again.
    unsafe {
        call4(raw::nr::RT_SIGACTION, signal as u64, &raw const default as u64, 0, 8);
        let pid = raw::call1(raw::nr::GETPID, 0) as u64;
        raw::call3(raw::nr::TGKILL, pid, u64::from(raw::gettid()), signal as u64);
    }
}
