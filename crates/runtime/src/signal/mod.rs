//! Guest signals: queued when they arrive, delivered at the thread's next door, as an event.
//!
//! A handler may read and change anything, so it must run at a point that every copy can find again. The
//! runtime's own handler stands in the kernel for every signal that the guest handles or that would end
//! it; asynchronous ones are put into the thread's queue, and a door delivers them. Faults of the guest's
//! own making are delivered in place: they repeat.

use core::mem::offset_of;
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};

use linux_raw_sys::general::kernel_sigaction;
use us_abi::event::{EventKind, NO_TICKET, ReturnHead};
use us_abi::{Cause, leaving};
use us_calls::{Class, Row};

use crate::above::above;
use crate::call::Call;
use crate::clock::{self, KERNEL};
use crate::context::{Context, reg};
use crate::event::Event;
use crate::guest::{GuestMut, GuestPtr, Plain};
use crate::kernel::{SA_NODEFER, SA_ONSTACK, SA_RESETHAND, SA_RESTART, SA_RESTORER, SA_SIGINFO};
use crate::log::{Next, has_ticket};
use crate::members::{self, mail};
use crate::raw::{self, call4, err};
use crate::siginfo::{Info, SI_TKILL, bit};
use crate::state::{self, Role};
use crate::sys::{gate, gate_stack, trap, wall};
use crate::thread::signal::Stack;
use crate::thread::{Mode, Thread};
use crate::{guest, tls, turns};

mod announced;
mod arrive;
pub mod cancellation;
pub mod child;
pub mod death;
mod doors;
pub mod entries;
mod frame;
pub mod identity;
mod info;
mod interrupt;
mod plan;
mod run;
mod sigsys;

use announced::{follows, replay_next};
use arrive::end_by;
pub use arrive::{deliver_late, entered, filtered, nudged, nudged_at_door, put_into_queue, sent};
pub use doors::*;
pub use frame::returned;
pub use info::{forget_put_back, has_sent, sends};
use plan::come_late;
pub use plan::{Plan, ends_wait, is_late_no_more, plan};
pub use run::deliver_trapped;
use run::handle;
pub use sigsys::{awaits_own, has_sent_own};

const SIGNALS: usize = 65;
const SIGILL: i32 = linux_raw_sys::general::SIGILL as i32;
const SIGTRAP: i32 = linux_raw_sys::general::SIGTRAP as i32;
const SIGBUS: i32 = linux_raw_sys::general::SIGBUS as i32;
const SIGFPE: i32 = linux_raw_sys::general::SIGFPE as i32;
const SIGKILL: i32 = linux_raw_sys::general::SIGKILL as i32;
const SIGSEGV: i32 = linux_raw_sys::general::SIGSEGV as i32;
const SIGSTOP: i32 = linux_raw_sys::general::SIGSTOP as i32;
/// What the runtime traps and wakes threads with.
pub const SIGSYS: i32 = linux_raw_sys::general::SIGSYS as i32;
/// What the C library cancels threads with.
const SIGCANCEL: i32 = 32;

/// What the C library changes the ids of all threads with.
pub const SIGSETXID: i32 = 33;

const SIG_DFL: u64 = 0;
const SIG_IGN: u64 = 1;
/// `si_code`: by the kernel itself.
const SI_KERNEL: i32 = linux_raw_sys::general::SI_KERNEL as i32;
/// What an instruction of the guest's own brings about.
const FAULTS: u64 = bit(SIGILL) | bit(SIGTRAP) | bit(SIGBUS) | bit(SIGFPE) | bit(SIGSEGV);

/// Signals whose default action ends a process and that somebody outside sends: caught, so that a plain
/// `kill` ends the program instead of promoting its standby.
const ENDING: u64 = bit(1)
    | bit(2)
    | bit(3)
    | bit(10)
    | bit(12)
    | bit(13)
    | bit(14)
    | bit(15)
    | bit(16)
    | bit(24)
    | bit(25)
    | bit(26)
    | bit(27)
    | bit(29)
    | bit(30)
    | bit(SIGSYS);

/// The kernel's `struct sigaction`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
struct Action {
    handler: u64,
    flags: u64,
    restorer: u64,
    mask: u64,
}

const _: () = assert!(
    size_of::<Action>() == size_of::<kernel_sigaction>()
        && offset_of!(Action, flags) == offset_of!(kernel_sigaction, sa_flags)
        && offset_of!(Action, restorer) == offset_of!(kernel_sigaction, sa_restorer)
        && offset_of!(Action, mask) == offset_of!(kernel_sigaction, sa_mask)
);
// SAFETY: numbers, and addresses that only the guest follows.
unsafe impl Plain for Action {}

/// The guest's dispositions. Written under the kernel's own ordering: by the door, at the call's turn.
struct Disposition {
    handler: AtomicU64,
    flags: AtomicU64,
    restorer: AtomicU64,
    mask: AtomicU64,
}

static DISPOSITIONS: [Disposition; SIGNALS] = [const {
    Disposition {
        handler: AtomicU64::new(0),
        flags: AtomicU64::new(0),
        restorer: AtomicU64::new(0),
        mask: AtomicU64::new(0),
    }
}; SIGNALS];

fn disposition(signal: i32) -> Action {
    let place = &DISPOSITIONS[signal as usize % SIGNALS];
    Action {
        handler: place.handler.load(Ordering::Acquire),
        flags: place.flags.load(Ordering::Relaxed),
        restorer: place.restorer.load(Ordering::Relaxed),
        mask: place.mask.load(Ordering::Relaxed),
    }
}

/// The signals that the guest ignores: bit n-1 for signal n.
pub fn ignored() -> u64 {
    (1..SIGNALS as i32)
        .filter(|signal| disposition(*signal).handler == SIG_IGN)
        .fold(0, |all, signal| all | bit(signal))
}

/// Ignores these signals, and gives all others their default: as an image begins.
pub fn set_ignored(ignored: u64) {
    for signal in 1..SIGNALS as i32 {
        let handler = if ignored & bit(signal) != 0 { SIG_IGN } else { SIG_DFL };
        DISPOSITIONS[signal as usize].handler.store(handler, Ordering::Relaxed);
    }
}

/// Whether the ends of children are nobody's news: they leave nothing behind, and no wait tells of them.
pub fn discards_children() -> bool {
    const SIGCHLD: i32 = linux_raw_sys::general::SIGCHLD as i32;
    use crate::kernel::SA_NOCLDWAIT;
    let action = disposition(SIGCHLD);
    action.handler == SIG_IGN || action.flags & SA_NOCLDWAIT != 0
}

/// The mask that a call puts in force while it waits (ppoll, pselect, epoll_pwait), as the guest's.
fn waiting_mask(call: &Call) -> Option<u64> {
    use crate::raw::nr::{EPOLL_PWAIT, EPOLL_PWAIT2, PPOLL, PSELECT6};
    let at = match call.nr {
        PPOLL => call.args[3],
        EPOLL_PWAIT | EPOLL_PWAIT2 => call.args[4],
        PSELECT6 => GuestPtr::at(call.args[5]).given().ok()??,
        _ => 0,
    };
    GuestPtr::at(at).given().ok().flatten()
}

/// Puts a call's own mask in force, in shadow: the kernel gets it with the call. Returns the mask to restore.
#[inline(always)]
pub fn begin_waiting(thread: &mut Thread, row: &Row, call: &Call) -> Option<u64> {
    if row.class != Class::Poll {
        return None;
    }
    let mask = waiting_mask(call)?;
    let before = core::mem::replace(&mut thread.signals.mask, mask);
    thread.signals.is_of_call = true;
    if thread.queue.deliverable(mask) > 0 {
        thread.pending.store(1, Ordering::SeqCst);
    }
    Some(before)
}

/// Restores the guest's mask after the call and its handlers.
#[inline(always)]
pub fn end_waiting(thread: &mut Thread, before: Option<u64>) {
    if let Some(mask) = before {
        thread.signals.is_of_call = false;
        set_mask(thread, mask);
    }
}

/// After a call without a log: delivers, and tells whether the call is to be made again.
#[inline(always)]
pub fn solo_restart(thread: &mut Thread, row: &Row, result: i64) -> bool {
    let plan = plan(thread, row, result);
    plan.carry_out(thread)
}

/// Delivers everything that waits and is not blocked, as a copy whose effects are real. At a door.
#[cold]
#[inline(never)]
pub fn deliver(thread: &mut Thread) {
    if state::is_standby() {
        return;
    }
    // Whoever goes on elsewhere than behind the handler finds a call that was interrupted.
    thread.shown.result = err::EINTR;
    deliver_all(thread);
}

/// The same behind a call, whose result handlers are shown. Whether there was anything.
fn deliver_all(thread: &mut Thread) -> bool {
    thread.pending.store(0, Ordering::SeqCst);
    let mut has_come = false;
    while deliver_one(thread) {
        has_come = true;
        if follows(thread) {
            break;
        }
    }
    has_come
}

/// Before a call that the dead primary had not begun: what the promotion has raised again does not break it off, unless it
/// is one that waits for signals.
pub fn deliver_raised(thread: &mut Thread, row: &Row) {
    if !matches!(row.class, Class::Poll | Class::Signal | Class::Time)
        && thread.pending.load(Ordering::Relaxed) != 0
    {
        deliver(thread);
    }
}

/// At the door of a lock, before it is taken.
#[cold]
#[inline(never)]
pub fn deliver_at_lock(thread: &mut Thread) {
    if thread.locks() == Mode::Record || thread.calls() == Mode::Solo {
        // Whoever waits for the lock looks at what comes from here on.
        deliver_and_look(thread);
    }
}

/// At the door of a lock that the dead primary had not taken: what was sent before is delivered before. Whoever has seen a
/// lock given back, or a semaphore posted, has had the signals of the thread that did it. Whether they would have broken
/// the wait off is remembered for those that say so.
#[cold]
pub fn deliver_promoted(thread: &mut Thread) {
    if thread.pending.load(Ordering::Relaxed) != 0 {
        thread.signals.broken_off.0 |= interrupts(thread, true);
        thread.signals.broken_off.1 |= interrupts(thread, false);
        deliver(thread);
    }
}

/// Whether the kernel would end a wait on a futex with EINTR for what is about to be delivered. One with a deadline is not
/// begun again, whatever the handler's flags.
pub fn interrupts(thread: &Thread, has_deadline: bool) -> bool {
    thread.queue.deliverable(thread.signals.mask) > 0
        && (has_deadline || !thread.queue.each_deliverable(thread.signals.mask).all(is_restarting))
}

/// Whether calls that this signal's handler breaks off are made again.
pub fn is_restarting(signal: i32) -> bool {
    disposition(signal).flags & SA_RESTART != 0
}

/// Whether a signal waits that the guest's mask lets through.
pub fn has_deliverable(thread: &Thread) -> bool {
    thread.queue.deliverable(thread.signals.mask) > 0 || cancellation::is_due(thread)
}

/// Whoever broke a call of this thread off wants nothing of it any more. What comes meanwhile still breaks off the next one.
pub fn look_again(thread: &Thread) {
    thread.pending.store(0, Ordering::SeqCst);
    if has_deliverable(thread) {
        thread.pending.store(1, Ordering::SeqCst);
    }
}

/// The same before a wait that is no cancellation point.
pub fn sleep_on(thread: &Thread) {
    thread.pending.store(0, Ordering::SeqCst);
    if interrupts(thread, true) {
        thread.pending.store(1, Ordering::SeqCst);
    }
}

/// Whether a call's door has something to deliver before the call.
#[inline(always)]
pub fn is_due(thread: &Thread) -> bool {
    thread.pending.load(Ordering::Relaxed) | thread.cancel.load(Ordering::Relaxed) != 0
}

/// Delivers at the door of a call that may be a cancellation point.
#[cold]
#[inline(never)]
pub fn deliver_at_call(thread: &mut Thread, row: Option<&Row>) {
    deliver_cancellation(thread);
    if thread.pending.load(Ordering::Relaxed) == 0 {
        return;
    }
    let ends = row.is_some_and(|row| row.blocks && ends_wait(thread, row));
    deliver_and_look(thread);
    if ends {
        come_late(thread);
    }
}

/// As [`deliver`], at a door where a thread may be cancelled: somebody who has heard of its handler may do so at once, and the
/// notice of that is gone with those of the signals.
fn deliver_and_look(thread: &mut Thread) {
    deliver_cancellation(thread);
    deliver(thread);
    deliver_cancellation(thread);
}

/// Ends this thread if it is to be cancelled here; the log says so.
fn deliver_cancellation(thread: &mut Thread) {
    if cancellation::is_due(thread) && !state::is_standby() {
        log_cancellation(thread);
    }
}

/// A door that is a cancellation point in itself and has no event of its own.
pub fn cancellation_point(thread: &mut Thread) {
    if thread.cancel.load(Ordering::Relaxed) != 0 && cancellation::is_enabled() && !state::is_standby() {
        log_cancellation(thread);
    }
}

/// Ends the calling thread as cancelled, and says so in the log.
pub fn log_cancellation(thread: &mut Thread) -> ! {
    if thread.calls() == Mode::Record {
        let info = Info::new(SIGCANCEL, 0);
        thread.append(EventKind::Signal, 0, SIGCANCEL as u16, NO_TICKET, &info);
    }
    cancellation::end_thread();
}

/// A thread that goes live finds the request that reached it before.
pub fn notice_cancellation(thread: &Thread) {
    // Pairs with the fence in `cancellation::ask`: either that side sees us live, or we see its request.
    fence(Ordering::SeqCst);
    if thread.cancel.load(Ordering::Relaxed) != 0 {
        thread.pending.store(1, Ordering::SeqCst);
    }
}

/// The supervisor need not look any more: left standing, the next signal would be late as soon as it comes.
pub fn nothing_is_late(thread: &Thread) {
    if state::header().is_some() && state::role() == Role::Primary {
        thread.entry().pending_signal.store(0, Ordering::Relaxed);
    }
}

/// A block gets another thread: nothing waits for that one.
pub fn reset(thread: &mut Thread) {
    thread.queue.reset();
    nothing_is_late(thread);
    thread.cancel.store(0, Ordering::Relaxed);
    thread.pending.store(0, Ordering::Relaxed);
}

/// A thread ends: the mask that counts is that of its own code, in every copy. libc blocks everything for a thread's last
/// instructions, libc's own first signal with it, which is in no mask of a guest's.
pub fn begin_last(thread: &mut Thread) {
    if thread.signals.mask & bit(SIGCANCEL) != 0 {
        thread.signals.mask = thread.signals.mask_before;
    }
}

/// What an ending thread has taken off the kernel's hands is delivered, as natively it was before the thread could end; of what
/// its mask blocks, the process's goes back to the process, and its own ends with it. As a copy that acts.
pub fn deliver_last(thread: &mut Thread) {
    // Nothing comes any more.
    let all = blockable(!0);
    apply_mask(all);
    while thread.calls() != Mode::Replay && deliver_one(thread) {
        apply_mask(all);
    }
    while thread.calls() != Mode::Replay
        && let Some(info) = thread.queue.take(0)
    {
        if info.code() != SI_TKILL {
            mail::is_taken(mail::letter_of(&info));
            mail::without_letter(&info).send(None);
        }
    }
}

fn deliver_one(thread: &mut Thread) -> bool {
    let Some(info) = take(thread) else { return false };
    if thread.calls() == Mode::Record {
        log(thread, &info);
    }
    is_received(&info);
    handle(thread, &info);
    true
}

/// Takes the first of the signals that wait and are not blocked.
fn take(thread: &mut Thread) -> Option<Info> {
    thread.pending.store(0, Ordering::SeqCst);
    let info = thread.queue.take(thread.signals.mask);
    if thread.queue.deliverable(thread.signals.mask) > 0 {
        thread.pending.store(1, Ordering::SeqCst);
    } else {
        nothing_is_late(thread);
    }
    info
}

/// Logs that one is delivered.
fn log(thread: &mut Thread, info: &Info) {
    // What its sender did before is applied before: a delivery acquires.
    let ticket = clock::kernel_ticket();
    thread.append(EventKind::Signal, 0, info.signal() as u16, ticket, info);
}

/// A signal has left its queue: whoever sent it need not send it again for a relative that takes over.
fn is_received(info: &Info) {
    members::seen(info.signal(), info.sent());
    mail::is_taken(mail::letter_of(info));
}

/// Runs the guest's handler for a logged signal, as a standby.
pub fn replay(thread: &mut Thread, event: Event) {
    let Some(info) = taken(thread, event) else { return };
    is_received(&info);
    let restarts = is_restarting(info.signal());
    handle(thread, &info);
    thread.signals.broken_off.0 = true;
    thread.signals.broken_off.1 |= !restarts;
}

/// A signal of the log's, as a standby; its event is given back first: a handler's own events follow it in the ring. `None` if it was
/// announced, and delivered elsewhere.
fn taken(thread: &mut Thread, event: Event) -> Option<Info> {
    let mut info = Info([0; 16]);
    for (word, bytes) in info.0.iter_mut().zip(event.payload().chunks_exact(8)) {
        *word = bytes.first_chunk::<8>().map_or(0, |bytes| u64::from_le_bytes(*bytes));
    }
    let ticket = event.header.ticket;
    if info.signal() == 0 {
        thread.close();
        return None;
    }
    if has_ticket(ticket) {
        clock::wait(thread, &KERNEL.0, ticket);
        clock::pass(&KERNEL.0, ticket);
        thread.begun_mut().ticket = ticket;
    }
    thread.close();
    thread.count(Class::Signal);
    if info.signal() == SIGCANCEL && !has_ticket(ticket) {
        cancellation::end_thread();
    }
    consumed(thread, &info, true, ticket);
    Some(info)
}

/// A signal has been taken, in a standby: it must not come again at a promotion.
pub fn consumed(thread: &Thread, info: &Info, exact: bool, ticket: u64) {
    above().consumed(thread.slot(), info, exact, ticket);
}

/// Whether a signal that is sent now would wait, or run a handler, rather than be thrown away.
pub fn waits(signal: i32) -> bool {
    const STOPPING: u64 = bit(SIGSTOP) | bit(20) | bit(21) | bit(22);
    if signal < 1 || signal as usize >= SIGNALS || signal == SIGKILL {
        return false;
    }
    let handler = disposition(signal).handler;
    !is_ignored(signal, handler) && (handler != SIG_DFL || STOPPING & bit(signal) == 0)
}

/// Whether the kernel throws a signal away that has this handler.
fn is_ignored(signal: i32, handler: u64) -> bool {
    const THROWN_AWAY: u64 = bit(17) | bit(18) | bit(23) | bit(28);
    handler == SIG_IGN || handler == SIG_DFL && THROWN_AWAY & bit(signal) != 0
}
