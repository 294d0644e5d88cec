//! System calls by `int 0x80`: numbers and arguments of the kernel's 32-bit table, in other registers.
//!
//! Syscall User Dispatch traps them like any other, and the numbers mean other calls here. Nobody but the program knows what one
//! does, so a standby is given up before it is made. It is made in the signal handler: the instruction changes no register but
//! rax, and behind a gate it would have changed two.

use core::sync::atomic::Ordering;

use us_abi::Cause;

use crate::context::{Context, reg};
use crate::door::{numbers, refused, wait};
use crate::thread::{Mode, Thread};
use crate::verdict::give_up_log;
use crate::{members, state, tls};

const NAME: &[u8] = b"by int 0x80";

/// Makes the call of the interrupted thread for it.
///
/// # Safety
/// The kernel's context of this thread, behind such an instruction.
pub unsafe fn make(context: &mut Context) {
    let thread = tls::current();
    if !thread.is_null() {
        // SAFETY: the block of the calling thread, which was in guest code.
        leave_log(unsafe { &mut *thread });
    }
    let r = &context.regs;
    let mut registers =
        [r[reg::RAX], r[reg::RBX], r[reg::RCX], r[reg::RDX], r[reg::RSI], r[reg::RDI], r[reg::RBP]];
    // SAFETY: as above.
    let known = if members::is_numbered() { unsafe { thread.as_ref() } } else { None };
    let answer = known.and_then(|thread| of_numbers(thread, &mut registers));
    // SAFETY: the guest's own call.
    context.regs[reg::RAX] = answer.unwrap_or_else(|| unsafe { interrupt(&mut registers) });
}

/// The answer to those that ask for a number. In those that name a process or a thread to signal, the kernel's takes its place.
fn of_numbers(thread: &Thread, registers: &mut [u64; 7]) -> Option<u64> {
    const GETPID: u64 = 20;
    const GETPPID: u64 = 64;
    const GETTID: u64 = 224;
    const KILL: u64 = 37;
    const TKILL: u64 = 238;
    const TGKILL: u64 = 270;
    let named: &[usize] = match registers[0] {
        GETPID => return Some(u64::from(state::GUEST_PID.load(Ordering::Relaxed))),
        GETPPID => return Some(wait::parent() as u64),
        GETTID => return Some(u64::from(thread.guest_tid())),
        KILL | TKILL => &[1],
        TGKILL => &[1, 2],
        _ => &[],
    };
    named.iter().for_each(|at| registers[*at] = numbers::to_kernel(registers[*at]));
    None
}

/// Nobody follows from here on.
fn leave_log(thread: &mut Thread) {
    refused::await_live(thread, &[b"a refused call where the log has an event: ", NAME]);
    if thread.calls() == Mode::Record {
        give_up_log(Cause::RefusedCall, &[b"a system call ", NAME, b" cannot be replayed"]);
    }
}

/// Loads rax, rbx, rcx, rdx, rsi, rdi and rbp, and executes the instruction; the result.
#[unsafe(naked)]
unsafe extern "C" fn interrupt(_registers: &mut [u64; 7]) -> u64 {
    core::arch::naked_asm!(
        "push rbx",
        "push rbp",
        "mov rax, [rdi]",
        "mov rbx, [rdi + 8]",
        "mov rcx, [rdi + 16]",
        "mov rdx, [rdi + 24]",
        "mov rsi, [rdi + 32]",
        "mov rbp, [rdi + 48]",
        "mov rdi, [rdi + 40]",
        "int 0x80",
        "pop rbp",
        "pop rbx",
        "ret",
    )
}
