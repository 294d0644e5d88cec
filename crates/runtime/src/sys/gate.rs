//! Where intercepted system calls enter the runtime.
//!
//! A patched site jumps to its stub, which steps over the red zone and calls [`gate`] with the registers
//! as the `syscall` instruction would have found them. A trapped one arrives through SIGSYS: the handler
//! lets the thread go on at [`trap_gate`], on its own stack and outside the signal frame, so that a call
//! that blocks there is interrupted, parked and unwound like any other.
//!
//! What must hold: the `syscall` instruction changes rax, rcx and r11 only. The C library's code may keep
//! live values in any other register, vector registers included, and the runtime, compiled for SSE2, uses
//! xmm0 to xmm15 (the upper halves of wider registers are left alone by such code). So all sixteen are
//! saved: about 8 ns. rbx, rbp and r12 to r15 are preserved by every function of the C ABI.

use core::arch::naked_asm;
use core::sync::atomic::AtomicU32;

use crate::sys::dispatch;

/// A system call as the guest made it.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Call {
    /// Its number.
    pub nr: u64,
    /// Its arguments.
    pub args: [u64; 6],
    /// An address inside the code that made it.
    pub caller: u64,
}

/// Entry from a stub. `rsp` points at the return address into the stub.
#[unsafe(naked)]
pub unsafe extern "C" fn gate() {
    naked_asm!(
        ".cfi_startproc",
        "push rbp",
        ".cfi_def_cfa_offset 16",
        ".cfi_offset rbp, -16",
        "mov rbp, rsp",
        ".cfi_def_cfa_register rbp",
        // To an unwinder this frame was called where the `syscall` instruction stands or stood: a stub has no tables, and
        // a cancelled thread would leave out the clean-ups of all its callers.
        "mov rcx, [rbp + 8]",
        "movsxd r11, dword ptr [rcx + 3]",
        "add r11, rcx",
        "push r11",
        ".cfi_def_cfa rbp, 144",
        ".cfi_offset rbp, -144",
        ".cfi_offset rip, -152",
        "sub rsp, 320",
        "and rsp, -64",
        // struct Call at rsp; vector registers above it.
        "mov [rsp], rax",
        "mov [rsp + 8], rdi",
        "mov [rsp + 16], rsi",
        "mov [rsp + 24], rdx",
        "mov [rsp + 32], r10",
        "mov [rsp + 40], r8",
        "mov [rsp + 48], r9",
        "mov rax, [rbp + 8]",
        "mov [rsp + 56], rax",
        "movaps [rsp + 64], xmm0",
        "movaps [rsp + 80], xmm1",
        "movaps [rsp + 96], xmm2",
        "movaps [rsp + 112], xmm3",
        "movaps [rsp + 128], xmm4",
        "movaps [rsp + 144], xmm5",
        "movaps [rsp + 160], xmm6",
        "movaps [rsp + 176], xmm7",
        "movaps [rsp + 192], xmm8",
        "movaps [rsp + 208], xmm9",
        "movaps [rsp + 224], xmm10",
        "movaps [rsp + 240], xmm11",
        "movaps [rsp + 256], xmm12",
        "movaps [rsp + 272], xmm13",
        "movaps [rsp + 288], xmm14",
        "movaps [rsp + 304], xmm15",
        "cld",
        "mov rdi, rsp",
        "call {dispatch}",
        "mov rdi, [rsp + 8]",
        "mov rsi, [rsp + 16]",
        "mov rdx, [rsp + 24]",
        "mov r10, [rsp + 32]",
        "mov r8, [rsp + 40]",
        "mov r9, [rsp + 48]",
        "movaps xmm0, [rsp + 64]",
        "movaps xmm1, [rsp + 80]",
        "movaps xmm2, [rsp + 96]",
        "movaps xmm3, [rsp + 112]",
        "movaps xmm4, [rsp + 128]",
        "movaps xmm5, [rsp + 144]",
        "movaps xmm6, [rsp + 160]",
        "movaps xmm7, [rsp + 176]",
        "movaps xmm8, [rsp + 192]",
        "movaps xmm9, [rsp + 208]",
        "movaps xmm10, [rsp + 224]",
        "movaps xmm11, [rsp + 240]",
        "movaps xmm12, [rsp + 256]",
        "movaps xmm13, [rsp + 272]",
        "movaps xmm14, [rsp + 288]",
        "movaps xmm15, [rsp + 304]",
        "mov rsp, rbp",
        "pop rbp",
        ".cfi_def_cfa rsp, 8",
        ".cfi_offset rip, -8",
        ".cfi_restore rbp",
        // Not `ret`, see `raw::blocking`.
        "pop rcx",
        ".cfi_def_cfa rsp, 0",
        ".cfi_register rip, rcx",
        "jmp rcx",
        ".cfi_endproc",
        dispatch = sym dispatch::enter,
    )
}

/// Entry from the SIGSYS handler, which has put the address behind the `syscall` instruction into rcx (a
/// register that the instruction destroys anyway).
#[unsafe(naked)]
pub unsafe extern "C" fn trap_gate() {
    naked_asm!(
        // Unwinders see this as the function that was called at the trapped instruction.
        ".cfi_startproc",
        ".cfi_def_cfa rsp, 0",
        ".cfi_register rip, rcx",
        "lea rsp, [rsp - 128]",
        ".cfi_def_cfa rsp, 128",
        "push rcx",
        ".cfi_def_cfa rsp, 136",
        ".cfi_offset rip, -136",
        // The gate takes for granted that it was called below a red zone, and that the distance to the place which it is
        // to name stands behind the call: this very place, from where unwinders go on by the lines above.
        "lea rsp, [rsp - 128]",
        "call {gate}",
        ".byte 0x0f, 0x1f, 0x80, 0, 0, 0, 0",
        "lea rsp, [rsp + 128]",
        // Not by `jmp rcx`: behind a system call that the gate has made, rcx must not be what the instruction would have
        // left there, see `trap::has_swallowed_trap`.
        "xor ecx, ecx",
        "ret 128",
        ".cfi_endproc",
        gate = sym gate,
    )
}

/// The runtime's own signal restorer: it lies in the range whose system calls are let through.
#[unsafe(naked)]
pub unsafe extern "C" fn restorer() {
    // In the longer encoding: unwinders and debuggers know a signal frame by exactly these nine bytes.
    naked_asm!(".byte 0x48, 0xc7, 0xc0, 15, 0, 0, 0", "syscall", "ud2")
}

/// A raw clone that runs `entry(argument)` in the child on the given stack and ends the child's thread
/// when it returns. With CLONE_CHILD_CLEARTID the kernel clears `gone` when the thread has left its stack.
///
/// # Safety
/// The stack must be the child's alone; `entry` must not use TLS unless the flags give it its own.
#[unsafe(naked)]
pub unsafe extern "C" fn spawn(
    _flags: u64,
    _stack_top: *mut u8,
    _entry: extern "C" fn(u64),
    _argument: u64,
    _gone: *const AtomicU32,
) -> i64 {
    naked_asm!(
        "and rsi, -16",
        "sub rsi, 16",
        "mov [rsi], rdx",
        "mov [rsi + 8], rcx",
        "xor edx, edx",
        "mov r10, r8",
        "xor r8d, r8d",
        "mov eax, 56",
        "syscall",
        "test rax, rax",
        "jz 2f",
        "ret",
        "2: xor ebp, ebp",
        "pop rax",
        "pop rdi",
        "call rax",
        "xor edi, edi",
        "mov eax, 60",
        "syscall",
        "ud2",
    )
}
