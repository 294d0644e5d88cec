//! A fork whose copy is nobody's child but the supervisor's.

use core::sync::atomic::Ordering;

use crate::raw::{self, failed, nr};
use crate::state;

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
    use crate::raw::nr::WAIT4;
    const ALL_KINDS: u64 = 0x4000_0000;
    let mut made = -11i64;
    // SAFETY: see there; the child in between is ours alone.
    unsafe {
        let between = fork_through(&raw mut made);
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
unsafe extern "C" fn fork_through(_made: *mut i64) -> i64 {
    core::arch::naked_asm!(
        "mov r9, rdi",
        "mov edi, 0x44500", // VM FILES VFORK SYSVSEM, and no signal
        "xor esi, esi",
        "xor edx, edx",
        "xor r10d, r10d",
        "xor r8d, r8d",
        "mov eax, 56",
        "syscall",
        "test rax, rax",
        "jnz 2f",
        "mov edi, 0x40411", // FILES SYSVSEM, SIGCHLD
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
