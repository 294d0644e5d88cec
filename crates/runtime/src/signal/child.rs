//! The signals of a child that borrows its parent's memory and has dispatch armed: the kernel never blocks SIGSYS there, nor has
//! another handler for it than the runtime's. What the child has asked for is in shadow, until its exec.
//!
//! Its dispositions are its own in the kernel, the block is its parent's. So nothing here changes what the parent has.

use super::doors::{blockable, changed, install_trap, mask_of_faults};
use super::*;
use crate::thread::signal::OfChild;

/// It has just been made, and has what its parent has.
pub fn begin(thread: &mut Thread) {
    thread.signals.child = OfChild { mask: thread.signals.mask, system: disposition(SIGSYS).handler };
}

/// Its rt_sigprocmask.
pub fn mask(thread: &mut Thread, call: &Call) -> i64 {
    let [how, set, old, size, ..] = call.args;
    if size != 8 {
        return err::EINVAL;
    }
    let before = thread.signals.child.mask;
    let after = match changed(before, how, GuestPtr::at(set)) {
        Ok(after) => blockable(after),
        Err(error) => return error,
    };
    let told = GuestMut::at(old).tell(&before);
    if told != 0 {
        return told;
    }
    thread.signals.child.mask = after;
    set_in_kernel(after & mask_of_faults());
    0
}

fn set_in_kernel(mask: u64) {
    // SAFETY: the mask of the calling thread.
    unsafe { call4(raw::nr::RT_SIGPROCMASK, 2, &raw const mask as u64, 0, 8) };
}

/// Its rt_sigaction of SIGSYS. `None` for any other, which is the kernel's to answer.
pub fn action(thread: &mut Thread, call: &Call) -> Option<i64> {
    let [signal, new, old, size, ..] = call.args;
    if signal as i32 != SIGSYS || size != 8 {
        return None;
    }
    let before = Action { handler: thread.signals.child.system, ..Action::default() };
    match GuestPtr::<Action>::at(new).given() {
        Ok(after) => thread.signals.child.system = after.map_or(before.handler, |after| after.handler),
        Err(error) => return Some(error),
    }
    Some(GuestMut::at(old).tell(&before))
}

/// Before its exec, and after one that has failed: the new image begins with what it has asked for.
pub fn hand_on(thread: &Thread, to_new_image: bool) {
    let OfChild { mask, system } = thread.signals.child;
    if !to_new_image {
        install_trap();
        return set_in_kernel(mask & mask_of_faults());
    }
    let kept = Action { handler: if system == SIG_IGN { SIG_IGN } else { SIG_DFL }, ..Action::default() };
    // SAFETY: a disposition of this process's own.
    unsafe { call4(raw::nr::RT_SIGACTION, SIGSYS as u64, &raw const kept as u64, 0, 8) };
    set_in_kernel(mask);
}

/// It goes on without dispatch, behind the signal frame that we are in.
pub fn end(thread: &Thread, context: &mut Context) {
    hand_on(thread, true);
    context.mask = thread.signals.child.mask;
}
