//! Syscall user dispatch: the wall around the shared descriptor table.
//!
//! Armed for a thread, it turns every system call that does not come from the runtime's own text into a
//! SIGSYS. The selector byte always says BLOCK: toggling it would open the wall for whoever interrupts.

use core::sync::atomic::Ordering;

use crate::context::{Context, reg};
use crate::kernel::PR_SYS_DISPATCH_ON;
use crate::raw;
use crate::siginfo::Info;
use crate::sys::{atomics, milestones, vdso, versions};
use crate::thread::Shared;

/// An option of prctl.
pub const PR_SET_SYSCALL_USER_DISPATCH: u64 = crate::kernel::PR_SET_SYSCALL_USER_DISPATCH;

/// The text of this version of the runtime: start and length.
pub fn text_range() -> (u64, u64) {
    const PT_LOAD: u32 = 1;
    const PF_X: u32 = 1;
    let mut text = (0, 0);
    versions::each_segment(|kind, flags, address, bytes| {
        if kind == PT_LOAD && flags & PF_X != 0 {
            text = (address, bytes);
        }
    });
    text
}

/// Whether an instruction is of this version of the runtime. The range is asked for once: the handlers want it
/// often. Each version has its own.
pub fn is_runtime(ip: u64) -> bool {
    use core::sync::atomic::{AtomicU64, Ordering};
    #[unsafe(link_section = ".us_own")]
    static START: AtomicU64 = AtomicU64::new(0);
    #[unsafe(link_section = ".us_own")]
    static LEN: AtomicU64 = AtomicU64::new(0);
    if LEN.load(Ordering::Acquire) == 0 {
        let (start, len) = text_range();
        START.store(start, Ordering::Relaxed);
        LEN.store(len, Ordering::Release);
    }
    ip.wrapping_sub(START.load(Ordering::Relaxed)) < LEN.load(Ordering::Relaxed)
}

/// Whether a thread at this instruction is inside a door: in the runtime's own text, in the stub of an atomic instruction, or in
/// the kernel's vDSO, which only the runtime still calls. Taken for guest code there, a thread was parked between the reading of a clock and
/// the event that carries it, and both copies wrote that event.
pub fn is_in_door(ip: u64) -> bool {
    is_runtime(ip) || vdso::is_inside(ip) || atomics::is_inside(ip) || milestones::is_inside(ip)
}

/// Arms the calling thread. `false` where the kernel cannot.
pub fn arm(thread: &Shared) -> bool {
    let (start, len) = versions::passes();
    thread.selector.store(BLOCK, Ordering::Release);
    let args =
        [PR_SET_SYSCALL_USER_DISPATCH, PR_SYS_DISPATCH_ON, start, len, thread.selector.as_ptr() as u64, 0];
    // SAFETY: the selector lives as long as the process; the range is our own texts.
    unsafe { raw::call6(raw::nr::PRCTL, args) == 0 }
}

/// Lets all threads' calls pass, and disarms the calling thread: the runtime leaves the process.
pub fn open_all() {
    const ALLOW: u8 = 0;
    select(ALLOW);
    disarm();
}

/// Disarms the calling thread.
pub fn disarm() {
    // SAFETY: an attribute of the calling thread.
    unsafe { raw::call6(raw::nr::PRCTL, [PR_SET_SYSCALL_USER_DISPATCH, 0, 0, 0, 0, 0]) };
}

/// Takes that back for the other threads; the calling one is to be [armed](arm).
pub fn close_all() {
    select(BLOCK);
}

const BLOCK: u8 = 1;

fn select(value: u8) {
    crate::thread::for_each(|thread| thread.selector.store(value, Ordering::Release));
}

/// Code in a SIGSYS's siginfo that says: syscall user dispatch.
pub const SYS_USER_DISPATCH: i32 = linux_raw_sys::general::SYS_USER_DISPATCH as i32;
/// The same: a filter of the guest's (seccomp).
pub const SYS_SECCOMP: i32 = linux_raw_sys::general::SYS_SECCOMP as i32;

/// Whether a SIGSYS that somebody sent stands for a trap as well. The kernel keeps one of each standard signal: if ours
/// was pending when the guest made a system call, the trap's own is dropped, the call is not made, and the thread
/// finds itself behind it with the call's number for a result. Such a place is known by the instruction before it and
/// by rcx, which the instruction has set; a return through the gate leaves another value there.
///
/// # Safety
/// The kernel's context of this thread.
pub unsafe fn has_swallowed_trap(context: &Context) -> bool {
    const SYSCALL: u16 = 0x050f;
    let ip = context.regs[reg::RIP];
    // A thread that the runtime does not know is not armed.
    if crate::tls::current().is_null() || context.regs[reg::RCX] != ip || is_runtime(ip) {
        return false;
    }
    crate::guest::load::<u16>(ip - 2) == Some(SYSCALL)
}

/// Asks a thread of this process to look up. False if there is none.
pub fn nudge(tid: u32) -> bool {
    use crate::kernel::SIGSYS;
    let process = u64::from(crate::state::REAL_PID.load(core::sync::atomic::Ordering::Relaxed));
    let mut info = Info::default();
    (info.0[0], info.0[1]) = (SIGSYS, u64::from(us_abi::NUDGE_CODE as u32));
    let at = &raw const info as u64;
    // SAFETY: a signal that the runtime handles, to a thread of this process.
    unsafe { !raw::failed(raw::call4(raw::nr::RT_TGSIGQUEUEINFO, process, u64::from(tid), SIGSYS, at)) }
}
