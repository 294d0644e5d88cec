//! The thread that coordinates a clone: its beginning and its end.
//!
//! The program must not see it. Whoever counts threads to see whether it is alone (a sandbox before it makes its own name
//! spaces, and the kernel for it) gives up. So nobody runs from before it begins until the kernel has no such thread any more.

use core::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use us_abi::{SegmentHeader, command};

use super::{STAGE_TIMEOUT_NS, coordinate, fail, park};
use crate::context::Context;
use crate::door::limits;
use crate::raw::{self, nr};
use crate::state::{self, Role};
use crate::sys::gate;
use crate::thread::Stack;
use crate::{bound, real, tls};

/// A coordinator is at work.
static BUSY: AtomicBool = AtomicBool::new(false);
/// The coordinator's stack, kept for the next one. No mapping of its own: those that the guest's libc makes later would lie
/// elsewhere than in a replay.
static STACK: Stack = Stack::new();
/// Not 0 while a coordinator is on that stack. The kernel's to clear, when the thread is gone.
static ON_STACK: AtomicU32 = AtomicU32::new(0);
/// How often a lone thread has been asked where it would not have parked at once.
static PUT_OFF: AtomicU32 = AtomicU32::new(0);
/// How often it may be. Behind that it is in a wait that nothing of ours ends.
const PUT_OFF_MAX: u32 = 4;
/// A lone thread is to start the coordinator where it parks next.
static PROMISED: AtomicBool = AtomicBool::new(false);

/// The header of a primary that the supervisor asks for a clone.
fn asked() -> Option<&'static SegmentHeader> {
    let is_asked = |header: &&SegmentHeader| {
        matches!(
            header.command.0.load(Ordering::Acquire),
            command::CLONE | command::PARK | command::CHECKPOINT
        )
    };
    state::header().filter(is_asked).filter(|_| state::role() == Role::Primary)
}

/// In the SIGSYS handler: starts a coordinator if the supervisor asks for one and none is there.
/// A lone thread in the middle of a door, which would go on with that, does so at its next one.
pub fn notice_command(context: &Context) {
    let Some(header) = asked() else { return };
    if real::single_threaded()
        && !park::comes_at_once(context)
        && PUT_OFF.fetch_add(1, Ordering::Relaxed) < PUT_OFF_MAX
    {
        if let Some(thread) = tls::shared()
            && thread.borrowed.load(Ordering::Relaxed) == 0
        {
            PROMISED.store(true, Ordering::Release);
            thread.pending.store(1, Ordering::SeqCst);
        }
        return;
    }
    begin(header);
}

/// Whether the calling thread is to park at its next door.
pub fn has_promised() -> bool {
    PROMISED.load(Ordering::Relaxed)
}

/// At a place where a thread parks: keeps what a lone one has promised. Whether a coordinator is there now.
pub fn keep_promise() -> bool {
    if !PROMISED.swap(false, Ordering::AcqRel) || !real::single_threaded() {
        return false;
    }
    asked().is_some_and(begin)
}

/// Whether it has begun.
fn begin(header: &'static SegmentHeader) -> bool {
    if BUSY.swap(true, Ordering::AcqRel) {
        return false;
    }
    PUT_OFF.store(0, Ordering::Relaxed);
    PROMISED.store(false, Ordering::Relaxed);
    if bound::is_bound() {
        fail(header, &[bound::WHY]);
        return false;
    }
    let blocked = crate::signal::mask_of_faults();
    let mut mask = 0u64;
    // SETTLS is not needed: it uses no TLS.
    // VM FS FILES SIGHAND THREAD SYSVSEM CHILD_CLEARTID
    const CLONE: u64 = 0x100 | 0x200 | 0x400 | 0x800 | 0x1_0000 | 0x4_0000 | 0x20_0000;
    // SAFETY: a thread on its own stack that inherits a mask with every asynchronous signal blocked.
    unsafe {
        raw::call4(nr::RT_SIGPROCMASK, 2, &raw const blocked as u64, &raw mut mask as u64, 8);
        // On the stack that the next one is to have the last one may still be on its way out.
        while ON_STACK.load(Ordering::Acquire) != 0 {
            raw::nap(20_000);
        }
        ON_STACK.store(1, Ordering::Release);
        park::want();
        let spawn = || gate::spawn(CLONE, STACK.top(), coordinate, 0, &raw const ON_STACK);
        let first = spawn();
        let made = first > 0 || first == raw::err::EAGAIN && limits::lift_processes() && spawn() > 0;
        // Not for longer: this thread may be about to make a child, which is to fail.
        limits::put_back();
        raw::call4(nr::RT_SIGPROCMASK, 2, &raw const mask as u64, 0, 8);
        if !made {
            park::unwant();
            ON_STACK.store(0, Ordering::Release);
            fail(header, &[b"the coordinator of the clone could not be started"]);
        }
        made
    }
}

/// Waits until no coordinator is at work. The process is bound: one that is at work gives up, and no other begins.
pub fn await_idle() {
    while BUSY.load(Ordering::SeqCst) {
        raw::nap(100_000);
    }
}

/// Waits, for a few seconds at most, until nobody is asked to park. *Leaving* has been said: a coordinator that is at
/// work gives up, and the supervisor takes its word back.
pub fn await_quiet(header: &SegmentHeader) {
    state::attention();
    let start = raw::now_ns();
    let asked = || {
        matches!(
            header.command.0.load(Ordering::SeqCst),
            command::CLONE | command::PARK | command::CHECKPOINT
        )
    };
    while (asked() || BUSY.load(Ordering::SeqCst)) && raw::now_ns() - start < 2 * STAGE_TIMEOUT_NS {
        raw::nap(100_000);
    }
}

/// Futex: the number of the last coordinator that is known to be gone.
static GONE: AtomicU32 = AtomicU32::new(0);
/// One of those who wait for a coordinator's end looks for it.
static IS_WATCHED: AtomicBool = AtomicBool::new(false);

/// The kernel's number of the coordinator.
static COORDINATOR: AtomicU32 = AtomicU32::new(0);

/// The number of the coordinator that the caller stands still for.
pub fn number() -> u32 {
    COORDINATOR.load(Ordering::Acquire)
}

/// Waits until the coordinator of this number is gone. One of those it has let go looks, and the others sleep: thousands that
/// look leave it no processor, and it needs some to end.
pub fn await_end_of(coordinator: u32) {
    /// Who has missed a wake looks for itself.
    const LOOK_NS: u64 = 100_000_000;
    loop {
        let gone = GONE.load(Ordering::Acquire);
        if gone == coordinator {
            return;
        }
        if !IS_WATCHED.swap(true, Ordering::AcqRel) {
            while ON_STACK.load(Ordering::Acquire) != 0 && raw::has_thread(coordinator) {
                // Not a private one: the kernel's wake is not.
                raw::futex_wait_shared(&ON_STACK, 1, LOOK_NS);
            }
            raw::await_end(coordinator);
            GONE.store(coordinator, Ordering::Release);
            IS_WATCHED.store(false, Ordering::Release);
            raw::futex_wake(&GONE, i32::MAX as u32);
            return;
        }
        if !raw::has_thread(coordinator) {
            return;
        }
        raw::futex_wait(&GONE, gone, LOOK_NS);
    }
}

/// By a lone thread that does not park: one that has given up meanwhile, since nobody wants a copy any more, is on its way out, and
/// the program is not to see it.
pub fn see_off() {
    if ON_STACK.load(Ordering::Acquire) != 0 && !park::is_wanted() && real::single_threaded() {
        await_end_of(number());
    }
}

/// By the coordinator: it is there.
pub(super) fn has_begun() {
    // The kernel may give a number twice.
    GONE.store(0, Ordering::Release);
    COORDINATOR.store(raw::gettid(), Ordering::Release);
}

/// By the coordinator: another may begin.
pub(super) fn is_done() {
    BUSY.store(false, Ordering::Release);
}

/// In a forked process, which has none.
pub(super) fn forget() {
    ON_STACK.store(0, Ordering::Release);
    PROMISED.store(false, Ordering::Relaxed);
    IS_WATCHED.store(false, Ordering::Relaxed);
    BUSY.store(false, Ordering::Release);
}
