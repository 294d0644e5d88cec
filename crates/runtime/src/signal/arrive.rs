//! Signals as the kernel delivers them: into a queue, or, faults and the last resort, in place.
//!
//! # Safety
//! Handlers run on the runtime's own stack, with every signal blocked; they touch the calling thread's block and
//! atomics only.

use core::sync::atomic::AtomicBool;

use us_abi::SIGNAL_WAIT_NS_MAX;

use super::doors::{held, kernel_mask};
use super::interrupt::deliver_in_place;
use super::*;
use crate::above::above;
use crate::family;
use crate::fault::{self, Point};
use crate::members::of_family;
use crate::missing;
use crate::sys::{atomics, milestones};

/// Ends the program by a signal's default action: the standby first, then this process by that signal.
pub(super) fn end_by(signal: i32) -> ! {
    above().end_by(signal);
    let default = Action::default();
    // Nothing else: the handler of another signal that waits would leave this one blocked, and the end would be an exit.
    let others = !bit(signal);
    // SAFETY: back to the default action, unblocked, and sent to ourselves: the status is the one a parent expects.
    unsafe {
        call4(raw::nr::RT_SIGACTION, signal as u64, &raw const default as u64, 0, 8);
        call4(raw::nr::RT_SIGPROCMASK, 2, &raw const others as u64, 0, 8);
        let pid = raw::call1(raw::nr::GETPID, 0) as u64;
        raw::call3(raw::nr::TGKILL, pid, u64::from(raw::gettid()), signal as u64);
        raw::call1(raw::nr::EXIT_GROUP, 128 + signal as u64);
    }
    crate::verdict::last_words(&[b"a fatal signal did not end the program"])
}

/// Whether a signal that has come ends the program, whose handler for it is none.
fn ends_by_default(thread: &Thread, signal: i32) -> bool {
    disposition(signal).handler == SIG_DFL
        && signal != SIGCANCEL
        && ENDING & bit(signal) & !thread.signals.mask != 0
}

/// Whether the caller is a child in the memory of the thread that this block is of.
fn is_child_of(thread: &Thread) -> bool {
    // SAFETY: asks for a number.
    let pid = || unsafe { raw::call1(raw::nr::GETPID, 0) } as u32;
    thread.borrowed.load(Ordering::Relaxed) != 0 && pid() != state::REAL_PID.load(Ordering::Relaxed)
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
                match tls::is_outside() {
                    true => deliver_outside(signal, &info, &mut *context),
                    false => orphan(signal, &info, &mut *context),
                }
            }
            return;
        };
        let context = &mut *context;
        if ends_by_default(thread, signal) && is_child_of(thread) {
            // On its parent's block, whose queue is no place for it.
            end_by(signal);
        }
        fault::at(Point::Signal, 0);
        if signal != SIGCANCEL || thread.cancel.load(Ordering::Relaxed) == 0 {
            if signal == 17 && !above().is_news(&mut info) {
                return unnoticed(thread, context);
            }
            info.adopt();
            above().came(&info);
            info.stamp();
            if !mail::arrived(&mut info) {
                return unnoticed(thread, context);
            }
            thread.queue.push(&info);
            context.mask |= held(thread);
        }
        thread.pending.store(1, Ordering::SeqCst);
        if state::header().is_some() && state::role() == Role::Primary {
            note_due(thread, signal);
        }
        if raw::rewind(context, &thread.pending) {
            return;
        }
        if ends_by_default(thread, signal) && state::role() != Role::Standby {
            // Nobody's handler runs, so no door is needed: the program ends here and now.
            end_by(signal);
        }
        if thread.calls() == Mode::Solo && thread.borrowed.load(Ordering::Relaxed) == 0 {
            // No log, so no need for a door.
            let is_in_door = trap::is_in_door(context.regs[reg::RIP]);
            deliver_in_place(thread, context);
            if is_in_door {
                // It may have looked already, as below.
                state::attention();
            }
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
    ask_about(thread, info.signal());
}

/// As [`note_due`], and the supervisor is asked to look. Whether it is.
fn ask_about(thread: &mut Thread, signal: i32) -> bool {
    let is_new = note_due(thread, signal);
    if is_new {
        state::attention();
    }
    is_new
}

/// A signal waits from here on. The oldest counts: with one after another none of them would ever be late. True if this is it.
pub(super) fn note_due(thread: &mut Thread, signal: i32) -> bool {
    if thread.entry().pending_signal.load(Ordering::Relaxed) != 0 {
        return false;
    }
    thread.signals.due_cpu_ns = raw::computed_ns(raw::gettid());
    thread.entry().pending_since_ns.store(raw::now_ns(), Ordering::Relaxed);
    thread.entry().pending_signal.store(signal, Ordering::Release);
    true
}

/// What came is nothing for the guest: a call that it has interrupted goes on, and nobody must notice.
fn unnoticed(thread: &Thread, context: &mut Context) {
    thread.pending.store(1, Ordering::SeqCst);
    raw::rewind(context, &thread.pending);
}

/// The supervisor has seen that a signal waits too long: its thread computes. No copy can find this instruction
/// again, so the standby is given up and the signal delivered where it is due.
///
/// # Safety
/// In the SIGSYS handler, with the kernel's own frame.
pub unsafe fn nudged(context: &mut Context, was_open: bool) {
    // SAFETY: the caller's frame.
    if unsafe { above().commanded(context) } {
        return;
    }
    // SAFETY: the calling thread's own block.
    let Some(thread) = (unsafe { tls::current().as_mut() }) else { return };
    if state::role() == Role::Child {
        if is_asked_to_join(thread, context) {
            above().join(thread);
        }
        return;
    }
    if runs_guest_code(thread, context) && milestones::is_led(context) {
        return;
    }
    if family::is_to_stand() && computes_in_standby(thread, context) {
        family::stand_in_guest_code(thread);
    }
    if state::role() != Role::Primary || thread.borrowed.load(Ordering::Relaxed) != 0 {
        if was_open {
            unnoticed(thread, context);
        }
        return;
    }
    if thread.calls() == Mode::Replay && !hears(thread, Some(context)) {
        return;
    }
    thread.pending.store(1, Ordering::SeqCst);
    if raw::rewind(context, &thread.pending) {
        return;
    }
    // SAFETY: the caller's frame.
    unsafe { deliver_in_place(thread, context) };
}

/// Whether a process that computes is to join where it is. At a door it does so at its next call.
fn is_asked_to_join(thread: &Thread, context: &Context) -> bool {
    thread.newborn && runs_guest_code(thread, context)
}

/// Whether the handler stands above guest code of a thread in memory of its own.
fn runs_guest_code(thread: &Thread, context: &Context) -> bool {
    thread.borrowed.load(Ordering::Relaxed) == 0 && !trap::is_in_door(context.regs[reg::RIP])
}

/// Whether a thread of a standby that has applied all that there is runs guest code.
fn computes_in_standby(thread: &mut Thread, context: &Context) -> bool {
    state::is_standby()
        && runs_guest_code(thread, context)
        && thread.calls() == Mode::Replay
        && thread.peek().is_none()
}

/// Whether this copy has been promoted, and the thread has nothing left to apply.
fn may_go_live(thread: &mut Thread) -> bool {
    state::LIVE.load(Ordering::SeqCst) && thread.peek().is_none()
}

/// This copy may have been promoted while the thread met no door. If it computes at `context` and has nothing left to apply, it
/// goes live here: true. If it is at a door, the door says so to it: it may sleep on memory of the guest's, or be about to,
/// and hears no bell there.
pub(super) fn hears(thread: &mut Thread, context: Option<&mut Context>) -> bool {
    if !may_go_live(thread) {
        return false;
    }
    match context {
        Some(context) if !trap::is_in_door(context.regs[reg::RIP]) => {
            above().go_live(thread);
            context.mask = kernel_mask(thread.signals.mask);
            return true;
        }
        context => {
            thread.pending.store(1, Ordering::SeqCst);
            if let Some(context) = context {
                raw::rewind(context, &thread.pending);
            }
        }
    }
    false
}

/// The calling thread is called to life where it goes through a door next.
pub fn nudged_at_door(thread: &mut Thread) {
    if state::role() == Role::Primary && thread.calls() == Mode::Replay {
        hears(thread, None);
    }
}

/// At a door without an event, where nothing can be delivered as one. A thread that passes no other door (it waits for a
/// handler's word in a loop around `sched_yield`, or in futex calls of its own) must get its signals all the same: without
/// a log here and now, otherwise when they are late. Whether a handler has run.
#[cold]
#[inline(never)]
pub fn deliver_late(thread: &mut Thread) -> bool {
    if thread.calls() == Mode::Replay {
        if !thread.is_between_calls() || !may_go_live(thread) {
            return false;
        }
        // It passes no other door: in a loop around `sched_yield`, say. Nobody else tells it.
        above().go_live(thread);
    }
    if !has_deliverable(thread) {
        return false;
    }
    // In the middle of making a thread a handler would stand between the two events of that, and the thread is soon behind it.
    if thread.making {
        return false;
    }
    if thread.calls() == Mode::Record {
        // It may have become due by a change of the mask.
        if ask_about(thread, waiting_signal(thread)) || waited_ns(thread) < SIGNAL_WAIT_NS_MAX {
            return false;
        }
        give_up_for_signal(thread);
    }
    nothing_is_late(thread);
    deliver_alone(thread)
}

/// Delivers what waits, without a log. Behind a handler in which one has begun the rest waits for a door with an event: a copy that
/// waited here for the next one might have a lock that others wait for, and nothing says that it is given back.
fn deliver_alone(thread: &mut Thread) -> bool {
    deliver_cancellation(thread);
    // Whoever goes on elsewhere than behind the handler finds a call that was interrupted.
    thread.shown.result = err::EINTR;
    let mut has_come = false;
    while thread.calls() == Mode::Solo && deliver_one(thread) {
        has_come = true;
    }
    match thread.calls() {
        Mode::Solo => deliver_cancellation(thread),
        // It may pass no such door, and nobody asks for what nobody has noticed.
        Mode::Record if has_deliverable(thread) => drop(ask_about(thread, waiting_signal(thread))),
        _ => {}
    }
    has_come
}

/// How long the oldest waiting signal has waited, ns.
pub(super) fn waited_ns(thread: &Thread) -> u64 {
    raw::now_ns().saturating_sub(thread.entry().pending_since_ns.load(Ordering::Relaxed))
}

/// The first of the signals that are due, or what stands for a cancellation.
fn waiting_signal(thread: &Thread) -> i32 {
    let signals = thread.queue.waiting() & !thread.signals.mask;
    if cancellation::is_due(thread) { SIGCANCEL } else { signals.trailing_zeros() as i32 + 1 }
}

/// No copy can find this instruction again.
pub(super) fn give_up_for_signal(thread: &Thread) {
    let number = state::Decimal::new(waiting_signal(thread) as u64);
    let why: &[&[u8]] =
        &[b"signal ", number.bytes(), b" was due in a thread that computes: it is delivered at once"];
    crate::verdict::give_up_log(Cause::CannotReplay, why);
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

/// A signal for a thread that is none of libc's: its handler runs here and now, as natively.
///
/// # Safety
/// In a signal handler, with the kernel's own frame.
unsafe fn deliver_outside(signal: i32, info: &Info, context: &mut Context) {
    let action = disposition(signal);
    if action.handler == SIG_DFL && ENDING & bit(signal) != 0 {
        end_by(signal);
    }
    if action.handler <= SIG_IGN {
        return;
    }
    if action.flags & SA_RESETHAND != 0 {
        DISPOSITIONS[signal as usize].handler.store(SIG_DFL, Ordering::Release);
    }
    let own = if action.flags & SA_NODEFER != 0 { 0 } else { bit(signal) };
    let during = (context.mask | action.mask | own) & mask_of_faults();
    // SAFETY: the mask of the calling thread; the guest's handler, called as the kernel would call it.
    unsafe {
        call4(raw::nr::RT_SIGPROCMASK, 2, &raw const during as u64, 0, 8);
        let handler: extern "C" fn(i32, *const Info, *mut Context) = core::mem::transmute(action.handler);
        handler(signal, info, context);
    }
}

/// A new thread has its block: what waited for that comes in.
pub fn entered(thread: &Thread) {
    if ORPHANS.load(Ordering::Acquire) {
        apply_mask(thread.signals.mask);
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
        if (*info).code() <= 0 {
            return sent(&*info, place);
        }
        if signal == SIGSEGV && is_fetch(place) && wall::trespassed((*info).address()) {
            return;
        }
        if signal == SIGBUS && missing::replace((*info).address()) {
            return;
        }
        if signal == SIGTRAP
            && (milestones::is_behind_one((*info).code(), place) && interrupt::stepped(place)
                || atomics::trapped(place))
        {
            return;
        }
        atomics::faulted(place);
        match tls::current().as_mut() {
            Some(thread) => force(thread, signal, &*info, place),
            None if tls::is_outside() && disposition(signal).handler > SIG_IGN => {
                deliver_outside(signal, &*info, place);
            }
            None => die_of_fault(signal),
        }
    }
}

/// Whether a fault came of executing what is there, and not of reading or writing it.
fn is_fetch(context: &Context) -> bool {
    const FETCH: u64 = 0x10;
    context.regs[reg::ERROR] & FETCH != 0
}

/// A signal that the kernel never blocks for us, SIGSYS or that of a fault, and that somebody has sent: an ordinary one. Whether
/// the guest blocks or ignores it the shadow says.
///
/// # Safety
/// In a signal handler, with the kernel's own frame.
pub unsafe fn sent(info: &Info, context: &mut Context) {
    let signal = info.signal();
    // SAFETY: the calling thread's own block.
    if let Some(thread) = unsafe { tls::current().as_ref() }
        && thread.signals.mask & bit(signal) == 0
    {
        match disposition(signal).handler {
            SIG_IGN => return unnoticed(thread, context),
            SIG_DFL if FAULTS & bit(signal) != 0 => return die_of(signal),
            SIG_DFL if state::is_standby() => return unnoticed(thread, context),
            _ => {}
        }
    }
    // SAFETY: the caller's frame.
    unsafe { on_signal(signal, &raw const *info, &raw mut *context) };
}

/// A filter of system calls has trapped a call. Those of the guest are made by the runtime for it, in a door: the guest is told
/// there. One of the runtime's own is one that cannot be made.
///
/// # Safety
/// In a signal handler, with the kernel's own frame.
pub unsafe fn filtered(info: &Info, context: &mut Context) {
    let number = context.regs[reg::RAX];
    // SAFETY: the calling thread's own block.
    let thread = unsafe { tls::current().as_mut() };
    if !trap::is_runtime(context.regs[reg::RIP]) {
        match thread {
            // SAFETY: the caller's frame, of guest code.
            Some(thread) => unsafe { force(thread, SIGSYS, info, context) },
            None => end_by(SIGSYS),
        }
        return;
    }
    context.regs[reg::RAX] = err::ENOSYS as u64;
    if let Some(thread) = thread
        // SAFETY: an entry of this thread's that has not returned.
        && unsafe { thread.shown.entry.as_ref().is_some_and(|entry| (*entry.call).nr == number) }
    {
        (thread.shown.is_trapped, thread.shown.trap) = (true, *info);
    }
}

/// A signal that the kernel does not let pass by: where it is blocked or ignored, it ends the program. It repeats in every copy,
/// so it is no event.
///
/// # Safety
/// In a signal handler, with the kernel's own frame.
unsafe fn force(thread: &mut Thread, signal: i32, info: &Info, context: &mut Context) {
    let action = disposition(signal);
    if action.handler <= SIG_IGN || thread.signals.mask & bit(signal) != 0 {
        return if signal == SIGSYS { end_by(signal) } else { die_of_fault(signal) };
    }
    // SAFETY: the caller's frame.
    unsafe {
        if !frame::push(thread, &action, info, context) {
            no_room(thread, signal, context);
        }
    }
}

/// The stack of a handler has no room for its frame: that is a fault in itself, and the last one if it was one already.
///
/// # Safety
/// As for [`force`].
pub(super) unsafe fn no_room(thread: &mut Thread, signal: i32, context: &mut Context) {
    if signal == SIGSEGV {
        return die_of_fault(SIGSEGV);
    }
    let info = Info::new(SIGSEGV, SI_KERNEL);
    // SAFETY: the caller's frame.
    unsafe { force(thread, SIGSEGV, &info, context) };
}

/// A fault of the guest's own ends the process. It repeats in the copy, so one of a family ends as by an ending signal: the
/// others' standbys would wait for one that cannot come to the log's end.
pub(super) fn die_of_fault(signal: i32) {
    if state::role() == Role::Primary && of_family::is_member() {
        end_by(signal);
    }
    die_of(signal);
}

fn die_of(signal: i32) {
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
