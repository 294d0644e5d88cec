//! How a thread counts the milestones that it passes, see [`crate::turns::milestones`].

use core::sync::atomic::Ordering;

use us_abi::ThreadEntry;

use crate::guest::GuestMut;
use crate::thread::Shared;
pub use crate::thread::milestones::are_none;
use crate::tls;

/// As many as nobody passes.
pub const ENDLESS: u64 = 1 << 62;

/// What is left until the calling thread's next look.
fn left() -> GuestMut<u64> {
    of(tls::thread_pointer())
}

fn of(handle: u64) -> GuestMut<u64> {
    GuestMut::at(handle.wrapping_add_signed(tls::left_at_milestones().into()))
}

/// A thread has passed none: its slot is about to have another one, or a log begins.
pub fn pass_none(entry: &ThreadEntry) {
    entry.milestones.store(0, Ordering::Release);
    entry.milestones_followed.store(0, Ordering::Relaxed);
}

/// The calling thread begins: it looks at its first milestone.
pub fn begin(thread: &Shared) {
    if !are_none() {
        thread.milestones.begin();
        left().store(&1);
    }
}

/// A log begins, and this thread stands still. One that has ended has left its storage to others, and one that has not begun begins
/// with [`begin`].
pub fn reset(thread: &Shared) {
    if !are_none() && thread.runs_as.load(Ordering::Relaxed) != 0 {
        thread.milestones.begin();
        of(thread.handle.load(Ordering::Relaxed)).store(&1);
    }
}

/// A child is about to run on this thread's stack and storage, in the primary alone.
pub fn lend(thread: &Shared) {
    if !are_none() {
        thread.milestones.lent.store(left().written().unwrap_or(ENDLESS), Ordering::Relaxed);
    }
}

/// And does so no longer.
pub fn give_back(thread: &Shared) {
    // One that has lent nothing, or before there were any, has nothing to be given back.
    let lent = thread.milestones.lent.swap(0, Ordering::Relaxed);
    if lent != 0 {
        left().store(&lent);
    }
}

/// As a copy: an event has been applied. Until the next one it is not known how far this thread may go.
#[inline(always)]
pub fn look_again(thread: &Shared) {
    if !are_none() {
        look_soon(thread);
    }
}

#[cold]
#[inline(never)]
fn look_soon(thread: &Shared) {
    let passed = passed(thread);
    go_on(thread, passed, 1);
}

/// How many it has passed.
fn passed(thread: &Shared) -> u64 {
    let until = thread.milestones.until.load(Ordering::Relaxed);
    until.wrapping_sub(left().written().unwrap_or(0))
}

/// It has passed so many, and looks again behind some more.
pub fn go_on(thread: &Shared, passed: u64, more: u64) {
    thread.milestones.until.store(passed.wrapping_add(more), Ordering::Relaxed);
    left().store(&more);
}

/// As a primary, whose thread waits next, and says so in no event: it has passed so many. What its copy does up to there others may wait
/// for, who have a lock behind this thread.
#[inline(always)]
pub fn tell(thread: &Shared) {
    if !are_none() {
        tell_passed(thread);
    }
}

#[cold]
#[inline(never)]
fn tell_passed(thread: &Shared) {
    let passed = passed(thread);
    // One that counts nothing has gone as far as nobody goes.
    if passed < ENDLESS {
        // Beyond the last one, since each *Yield* up to it is in the log.
        thread.entry().milestones.store(passed.wrapping_add(1), Ordering::Release);
    }
}

/// The calling thread looks at none any more.
pub fn look_never() {
    left().store(&ENDLESS);
}
