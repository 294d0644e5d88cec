//! The handler of SIGSYS: a trapped system call, a word of the supervisor's, or the program's own.

use core::sync::atomic::Ordering;

use crate::above::above;
use crate::context::{Context, reg};
use crate::raw;
use crate::siginfo::{Info, SI_USER};
use crate::signal::{death, identity};
use crate::state;
use crate::sys::trap::{SYS_SECCOMP, SYS_USER_DISPATCH, has_swallowed_trap};
use crate::sys::{gate, vdso, wall};
use crate::thread::Thread;
use crate::tls;

/// The calling thread is about to send itself a SIGSYS.
pub fn awaits_own(thread: &Thread) {
    thread.awaits_own.store(true, Ordering::Relaxed);
}

/// The call that sends it is over. The kernel keeps one of each standard signal: if the runtime's own waited for the thread when
/// the call came to the kernel, the program's was thrown away, and is sent again. None is blocked, so what was sent has come in
/// when the call returns.
#[inline]
pub fn has_sent_own(thread: &Thread, result: i64, call: impl Fn() -> Option<Info>) {
    if thread.awaits_own.load(Ordering::Relaxed) {
        send_own_again(thread, result, call);
    }
}

#[cold]
fn send_own_again(thread: &Thread, result: i64, info: impl Fn() -> Option<Info>) {
    /// As often as the runtime's own can be in the way, and more.
    const TRIES: u32 = 100;
    for _ in 0..TRIES {
        let Some(mut info) = info().filter(|_| !raw::failed(result)) else { break };
        info.set_sender(state::REAL_PID.load(Ordering::Relaxed));
        info.send(Some(raw::gettid()));
        if !thread.awaits_own.load(Ordering::Relaxed) {
            return;
        }
    }
    thread.awaits_own.store(false, Ordering::Relaxed);
}

/// Whether a SIGSYS that stands for no call is the supervisor's or the runtime's, and not the program's. Without memory
/// for its siginfo the kernel says that nobody has sent it.
fn is_nudge(info: &Info) -> bool {
    let sender = info.sender();
    info.code() == us_abi::NUDGE_CODE || info.code() == SI_USER && (sender == 0 || death::is_told_by(sender))
}

/// The SIGSYS handler: sends the thread through the gate, outside the signal frame.
///
/// # Safety
/// Called by the kernel.
pub unsafe extern "C" fn on_sigsys(_signal: i32, info: *const Info, context: *mut Context) {
    // SAFETY: the kernel's siginfo.
    let said = unsafe { *info };
    let code = said.code();
    if code == SYS_SECCOMP {
        // SAFETY: the kernel's context of this thread.
        return unsafe { super::filtered(&said, &mut *context) };
    }
    // SAFETY: the kernel's context of this thread.
    let is_trap = code == SYS_USER_DISPATCH || unsafe { has_swallowed_trap(&*context) };
    if code != SYS_USER_DISPATCH {
        // Whosever it is: of two only one waits.
        identity::answer();
        if !is_nudge(&said) {
            // SAFETY: the calling thread's own block.
            if let Some(thread) = unsafe { tls::current().as_ref() } {
                thread.awaits_own.store(false, Ordering::Relaxed);
            }
            // SAFETY: the kernel's context of this thread.
            unsafe { super::sent(&said, &mut *context) };
        } else if is_trap {
            // Only the trap is handled now; whoever sent the signal sends it again, and may have done so for the last time.
            death::look();
            // SAFETY: the calling thread's own block.
            if let Some(thread) = unsafe { tls::current().as_mut() } {
                super::nudged_at_door(thread);
            }
        } else {
            death::look();
            let was_open = tls::shared().is_some_and(wall::look);
            // SAFETY: the kernel's context of this thread.
            unsafe { super::nudged(&mut *context, was_open) };
        }
    }
    if !is_trap {
        return;
    }
    let is_of_386 = code == SYS_USER_DISPATCH && is_call_of_386(&said);
    // SAFETY: the kernel's context of this thread, behind a system call of the guest's.
    if unsafe { above().steps_out(&mut *context, is_of_386) } {
        return;
    }
    if is_of_386 {
        // SAFETY: the kernel's context of this thread.
        return unsafe { above().call_of_386(&mut *context) };
    }
    // SAFETY: the kernel's context of this thread, behind a system call of the guest's.
    if unsafe { (*context).regs[reg::RAX] == raw::nr::RT_SIGRETURN && super::returned(&mut *context) } {
        return;
    }
    if let Some(header) = state::header() {
        header.trapped.fetch_add(1, Ordering::Relaxed);
    }
    // SAFETY: the kernel's context of this thread; rip is behind the `syscall` instruction. rax holds the
    // system call's number: the kernel rolls the registers back for a dispatched call.
    unsafe {
        let context = &mut *context;
        if vdso::is_inside(context.regs[reg::RIP]) {
            // Called by ourselves, to read a clock: it must not come back to the door that called.
            let regs = &context.regs;
            let args = [
                regs[reg::RDI],
                regs[reg::RSI],
                regs[reg::RDX],
                regs[reg::R10],
                regs[reg::R8],
                regs[reg::R9],
            ];
            context.regs[reg::RAX] = raw::call6(regs[reg::RAX], args) as u64;
            return;
        }
        if !above().redirect_clone(context) {
            gate::redirect(context);
        }
    }
}

const ARCHITECTURE_386: u32 = 0x4000_0003;

/// Whether a trap was a call by `int 0x80`.
fn is_call_of_386(info: &Info) -> bool {
    info.machine() == ARCHITECTURE_386
}
