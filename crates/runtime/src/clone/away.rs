//! A fork whose copy is nobody's child but the supervisor's.

use core::sync::atomic::Ordering;

use crate::raw::{self, failed, nr};
use crate::{kernel, state};

/// Whether the supervisor is this process's parent, and so could be its copy's.
pub(super) fn is_supervised() -> bool {
    // SAFETY: asks for a number.
    let parent = unsafe { raw::call1(nr::GETPPID, 0) } as u32;
    state::header().is_some_and(|header| header.supervisor_pid.load(Ordering::Relaxed) == parent)
}

/// Forks a copy whose parent is neither this process nor the guest that is its parent: their waits must not see it. A
/// process in between, which borrows our memory and has no signal for its end, makes it and is gone; the kernel gives the
/// copy to the supervisor. 0 in the copy.
pub(super) fn fork_away() -> i64 {
    const FILES_SYSVSEM: u64 = 0x4_0400;
    fork_away_as(FILES_SYSVSEM | kernel::SIGCHLD)
}

/// The same with these flags.
pub(super) fn fork_away_as(flags: u64) -> i64 {
    use crate::raw::nr::WAIT4;
    const ALL_KINDS: u64 = 0x4000_0000;
    let mut made = -11i64;
    // SAFETY: see there; the child in between is ours alone.
    unsafe {
        let between = fork_through(&raw mut made, flags);
        if between == 0 {
            return 0;
        }
        if failed(between) {
            return between;
        }
        raw::call4(WAIT4, between as u64, 0, ALL_KINDS, 0);
        (&raw const made).read_volatile()
    }
}

/// The process in between runs on this very stack while its parent sleeps, and pushes nothing.
#[unsafe(naked)]
unsafe extern "C" fn fork_through(_made: *mut i64, _flags: u64) -> i64 {
    core::arch::naked_asm!(
        "mov r9, rdi",
        "mov r8, rsi",
        "mov edi, 0x44500", // VM FILES VFORK SYSVSEM, and no signal
        "xor esi, esi",
        "xor edx, edx",
        "xor r10d, r10d",
        // r8 would be a thread's storage, which none gets.
        "mov eax, 56",
        "syscall",
        "test rax, rax",
        "jnz 2f",
        "mov rdi, r8",
        "mov eax, 56",
        "syscall",
        "test rax, rax",
        "jz 2f",
        "mov [r9], rax",
        "xor edi, edi",
        "mov eax, 60",
        "syscall",
        "ud2",
        "2: ret",
    )
}
