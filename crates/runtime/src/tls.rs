//! This thread's block, reached by one initial-exec TLS slot.
//!
//! # Safety
//! libc's dynamic TLS may allocate on first use; the static slot of a preloaded library does not. A
//! thread that the runtime has not met (the first instructions of a new one) reads null.

use core::arch::{asm, global_asm};

use crate::thread::Thread;

global_asm!(
    ".section .tbss,\"awT\",@nobits",
    ".globl us_thread",
    ".hidden us_thread",
    ".type us_thread, @object",
    ".size us_thread, 8",
    ".balign 8",
    "us_thread: .zero 8",
    ".text",
);

/// The calling thread's block, null for a thread unknown to the runtime.
#[inline(always)]
pub fn current() -> *mut Thread {
    let thread: *mut Thread;
    // SAFETY: reads the slot that this library's TLS segment reserves in every thread.
    unsafe {
        asm!("mov {0}, qword ptr [rip + us_thread@GOTTPOFF]", "mov {0}, qword ptr fs:[{0}]", out(reg) thread,
            options(pure, readonly, nostack, preserves_flags));
    }
    thread
}

/// Sets the calling thread's block.
pub fn set_current(thread: *mut Thread) {
    // SAFETY: writes the slot that this library's TLS segment reserves in every thread.
    unsafe {
        asm!("mov {1}, qword ptr [rip + us_thread@GOTTPOFF]", "mov qword ptr fs:[{1}], {0}", in(reg) thread,
            out(reg) _, options(nostack, preserves_flags));
    }
}

/// The address of the calling thread's control block: glibc's `pthread_self()`.
pub fn thread_pointer() -> u64 {
    let pointer: u64;
    // SAFETY: the x86-64 TLS ABI keeps the thread pointer at its own start.
    unsafe { asm!("mov {0}, fs:[0]", out(reg) pointer, options(pure, readonly, nostack, preserves_flags)) };
    pointer
}
