//! A child that is made like vfork, until it executes its file: it runs on its parent's memory, and on the block of its parent's
//! thread. Its calls are its own: they are made, and nothing is logged.
//!
//! One that an instruction of the program's own has made makes its other calls by such instructions too, and its exec would pass
//! no door. So dispatch is [armed](begin) in it, as in any thread. What it does that dispatch or the block would not stand
//! ends that, and it goes on as it does natively ([`steps_out`]).

use core::sync::atomic::Ordering;

use super::numbers;
use crate::call::{self, Call};
use crate::context::{Context, reg};
use crate::door::{exec, spawn};
use crate::raw::{call6, failed, nr};
use crate::signal::{self, child};
use crate::sys::{gate_stack, trap};
use crate::thread::Thread;
use crate::{bound, members, milestones, state, tls};

/// Value of [`Thread::borrowed`]: by a child in which dispatch is armed.
const ARMED: u8 = 3;

/// In the child, before it returns to its own code.
pub fn begin(thread: &mut Thread, flags: u64) {
    use crate::kernel::CLONE_PARENT;
    // Where parent and child have the same frames, its traps would be written over them.
    if flags & CLONE_PARENT != 0
        || spawn::is_elsewhere(flags)
        || !exec::leads_into_group()
        || !gate_stack::is_here(thread)
    {
        return;
    }
    child::begin(thread);
    if trap::arm(thread) {
        thread.borrowed.store(ARMED, Ordering::Relaxed);
    }
}

fn is_armed(thread: &Thread) -> bool {
    thread.borrowed.load(Ordering::Relaxed) == ARMED
}

/// Any call of such a child that comes to a door.
pub fn call(thread: &mut Thread, call: &Call) -> i64 {
    use crate::kernel::SIG_SETMASK;
    let is_armed = is_armed(thread);
    match call.nr {
        nr::RT_SIGPROCMASK if is_armed => return child::mask(thread, call),
        nr::RT_SIGACTION if is_armed => {
            if let Some(result) = child::action(thread, call) {
                return result;
            }
        }
        nr::RT_SIGPROCMASK if call.args[0] == SIG_SETMASK && call.args[1] != 0 => {
            // The kernel has the whole of it: nothing of what its parent blocks is the child's any more.
            thread.signals.is_of_child = true;
        }
        59 | exec::EXECVEAT => {
            return exec::borrowed(thread, call, |thread, to_new_image| {
                if is_armed {
                    child::hand_on(thread, to_new_image);
                } else if !thread.signals.is_of_child {
                    signal::hand_on_mask(thread, to_new_image);
                }
            });
        }
        _ => {}
    }
    let args = if members::is_numbered() { numbers::named_in(call.nr as u16, call.args) } else { call.args };
    // SAFETY: the guest's own call.
    let result = unsafe { call6(call.nr, args) };
    match call.nr {
        nr::GETPPID if !failed(result) => i64::from(parent(is_armed, result as u32)),
        _ => result,
    }
}

/// What it sees as its parent, of which the kernel has this number: also when that has failed over meanwhile.
fn parent(is_armed: bool, kernels: u32) -> u32 {
    let maker = state::GUEST_PID.load(Ordering::Relaxed);
    if is_armed && members::is_between(maker) { maker } else { numbers::to_guest(kernels) }
}

/// Before a trapped call of such a child: true if the thread is to make it again, without dispatch from now on. Further children,
/// the end of a handler, another signal stack, a filter, dispatch itself, and the other table of calls.
pub fn steps_out(context: &mut Context, is_of_386: bool) -> bool {
    const BYTES: u64 = 2; // of either instruction
    // SAFETY: the calling thread's own block.
    let Some(thread) = (unsafe { tls::current().as_mut() }).filter(|thread| is_armed(thread)) else {
        return false;
    };
    let regs = &context.regs;
    let (number, first) = (regs[reg::RAX], regs[reg::RDI] & 0xffff_ffff);
    let asked = Call { nr: number, args: [first, 0, 0, 0, 0, 0], caller: 0 };
    let is_odd = is_of_386
        || call::may_lend(number)
        || matches!(number, spawn::FORK | nr::RT_SIGRETURN | nr::SIGALTSTACK)
        || number == nr::PRCTL && first == trap::PR_SET_SYSCALL_USER_DISPATCH
        || bound::binds(&asked);
    if is_odd {
        thread.borrowed.store(spawn::OUR_MEMORY, Ordering::Relaxed);
        thread.signals.is_of_child = true;
        trap::disarm();
        child::end(thread, context);
        context.regs[reg::RIP] -= BYTES;
    }
    is_odd
}

/// A child is about to borrow this thread's block.
pub fn borrows(thread: &Thread) {
    milestones::lend(thread);
    thread.borrowed.store(spawn::OUR_MEMORY, Ordering::Relaxed);
}

/// After a child has stopped to borrow this thread's block, in its parent.
pub fn ended(thread: &mut Thread) {
    thread.borrowed.store(0, Ordering::Relaxed);
    milestones::give_back(thread);
    thread.signals.is_of_child = false;
    exec::give_back(thread);
}
