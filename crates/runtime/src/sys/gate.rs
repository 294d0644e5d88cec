//! Where intercepted system calls enter the runtime.
//!
//! A patched site jumps to its stub, which jumps to [`gate`] with the registers as the `syscall` instruction would have found
//! them, and in rcx where the gate goes back to. Nothing is written to the stack that the site stood on. A trapped one arrives through SIGSYS: the handler
//! lets the thread go on at [`trap_gate`], outside the signal frame, so that a call
//! that blocks there is interrupted, parked and unwound like any other. Both stay on the thread's own stack, and leave
//! any other for the [gate's](crate::sys::gate_stack).
//!
//! What must hold: the `syscall` instruction changes rax, rcx and r11 only. The C library's code may keep
//! live values in any other register, vector registers included, and the runtime, compiled for SSE2, uses
//! xmm0 to xmm15 (the upper halves of wider registers are left alone by such code). So all sixteen are
//! saved: about 8 ns. rbx, rbp and r12 to r15 are preserved by every function of the C ABI.

use core::arch::naked_asm;
use core::mem::offset_of;
use core::sync::atomic::AtomicU32;

use crate::context::{Context, reg};
use crate::sys::gate_stack;
use crate::thread::Thread;
use crate::thread::gate_stack::GateStack;
use crate::{call, raw, tls};

/// The frame of the record that has just been pushed. The register has where the instruction stands or stood: to an unwinder
/// this frame was called there, since a stub has no tables, and a cancelled thread would leave out the clean-ups of all its
/// callers.
macro_rules! record {
    ($site:literal) => {
        concat!(
            "mov rbp, rsp\n",
            // CFA: *(rbp + 16). rbp: at rbp. rip: at rbp - 8.
            ".cfi_escape 0x0f, 0x03, 0x76, 0x10, 0x06\n",
            ".cfi_escape 0x10, 0x06, 0x02, 0x76, 0x00\n",
            concat!("push ", $site, "\n"),
            ".cfi_escape 0x10, 0x10, 0x02, 0x76, 0x78\n",
            "sub rsp, 320\n",
            "and rsp, -64\n",
        )
    };
}

/// Saves the vector registers, above 64 bytes of the frame's own.
macro_rules! save_vectors {
    () => {
        concat!(
            "movaps [rsp + 64], xmm0\n",
            "movaps [rsp + 80], xmm1\n",
            "movaps [rsp + 96], xmm2\n",
            "movaps [rsp + 112], xmm3\n",
            "movaps [rsp + 128], xmm4\n",
            "movaps [rsp + 144], xmm5\n",
            "movaps [rsp + 160], xmm6\n",
            "movaps [rsp + 176], xmm7\n",
            "movaps [rsp + 192], xmm8\n",
            "movaps [rsp + 208], xmm9\n",
            "movaps [rsp + 224], xmm10\n",
            "movaps [rsp + 240], xmm11\n",
            "movaps [rsp + 256], xmm12\n",
            "movaps [rsp + 272], xmm13\n",
            "movaps [rsp + 288], xmm14\n",
            "movaps [rsp + 304], xmm15\n",
        )
    };
}

/// What [`save_vectors`] has saved.
macro_rules! load_vectors {
    () => {
        concat!(
            "movaps xmm0, [rsp + 64]\n",
            "movaps xmm1, [rsp + 80]\n",
            "movaps xmm2, [rsp + 96]\n",
            "movaps xmm3, [rsp + 112]\n",
            "movaps xmm4, [rsp + 128]\n",
            "movaps xmm5, [rsp + 144]\n",
            "movaps xmm6, [rsp + 160]\n",
            "movaps xmm7, [rsp + 176]\n",
            "movaps xmm8, [rsp + 192]\n",
            "movaps xmm9, [rsp + 208]\n",
            "movaps xmm10, [rsp + 224]\n",
            "movaps xmm11, [rsp + 240]\n",
            "movaps xmm12, [rsp + 256]\n",
            "movaps xmm13, [rsp + 272]\n",
            "movaps xmm14, [rsp + 288]\n",
            "movaps xmm15, [rsp + 304]\n",
        )
    };
}

/// From here the frame's record has the guest's stack pointer, the return address into the stub and rbp, on whichever stack
/// that is; rbp points at it. Unwinders read the record: the guest's stack may be another one.
macro_rules! serve {
    () => {
        concat!(
            record!("r11"),
            // struct Call at rsp; vector registers above it.
            "mov [rsp], rax\n",
            "mov [rsp + 8], rdi\n",
            "mov [rsp + 16], rsi\n",
            "mov [rsp + 24], rdx\n",
            "mov [rsp + 32], r10\n",
            "mov [rsp + 40], r8\n",
            "mov [rsp + 48], r9\n",
            "mov rax, [rbp + 8]\n",
            "mov [rsp + 56], rax\n",
            save_vectors!(),
            "cld\n",
            "mov rdi, rsp\n",
            "call us_enter\n",
            "mov rdi, [rsp + 8]\n",
            "mov rsi, [rsp + 16]\n",
            "mov rdx, [rsp + 24]\n",
            "mov r10, [rsp + 32]\n",
            "mov r8, [rsp + 40]\n",
            "mov r9, [rsp + 48]\n",
            load_vectors!(),
        )
    };
}

/// Changes to a stack of the gate's, or stays below the red zone of the one that rsp points to: the thread's own, one of the
/// gate's (a function of libc's that the runtime has called), or that of a thread without another. The register has the
/// guest's stack pointer then.
macro_rules! choose_stack {
    ($register:literal) => {
        concat!(
            // Where thread pointers may be anybody's, it stays.
            "cmp byte ptr [rip + {foreign}], 0\n",
            "jne 3f\n",
            concat!("mov ", $register, ", qword ptr [rip + us_thread@GOTTPOFF]\n"),
            concat!("mov ", $register, ", qword ptr fs:[", $register, "]\n"),
            concat!("test ", $register, ", ", $register, "\n"),
            "jz 3f\n",
            concat!("cmp rsp, [", $register, " + {own_low}]\n"),
            "jb 2f\n",
            concat!("cmp rsp, [", $register, " + {own_end}]\n"),
            "jb 3f\n",
            concat!("2: cmp rsp, [", $register, " + {low}]\n"),
            "jb 2f\n",
            concat!("cmp rsp, [", $register, " + {end}]\n"),
            "jb 3f\n",
            concat!("2: mov ", $register, ", [", $register, " + {top}]\n"),
            concat!("test ", $register, ", ", $register, "\n"),
            "jz 3f\n",
            concat!("xchg rsp, ", $register, "\n"),
            "jmp 4f\n",
            concat!("3: mov ", $register, ", rsp\n"),
            "lea rsp, [rsp - 128]\n",
            "4:\n",
        )
    };
}

pub(super) use {choose_stack, load_vectors, record, save_vectors};

/// The whole of an entry that chooses its stack: what [`choose_stack`] asks for stands behind its lines.
macro_rules! entry_asm {
    ($($line:tt)*) => {
        naked_asm!(
            $($line)*
            own_low = const OWN_LOW,
            own_end = const OWN_END,
            low = const LOW,
            end = const END,
            top = const TOP,
            foreign = sym tls::FOREIGN,
        )
    };
}

/// Entry from a stub: rcx says where in the stub it goes back to.
#[unsafe(naked)]
pub unsafe extern "C" fn gate() {
    entry_asm!(
        ".cfi_startproc",
        ".cfi_def_cfa rsp, 0",
        ".cfi_register rip, rcx",
        choose_stack!("r11"),
        "push r11",
        "push rcx",
        "push rbp",
        "movsxd r11, dword ptr [rcx + 3]",
        "add r11, rcx",
        serve!(),
        "mov rcx, [rbp + 8]",
        "mov r11, [rbp + 16]",
        "mov rbp, [rbp]",
        ".cfi_def_cfa r11, 0",
        ".cfi_restore rbp",
        ".cfi_register rip, rcx",
        "mov rsp, r11",
        // Not `ret`, see `raw::blocking`.
        "jmp rcx",
        ".cfi_endproc",
    )
}

/// The same from a stub of the program's own text. What makes a thread, or a child on its parent's stack, returns twice, and
/// what ends a handler never: such a call is made by the stub's own instruction, and trapped there.
#[unsafe(naked)]
pub unsafe extern "C" fn program_gate() {
    naked_asm!(
        "cmp eax, {clone}",
        "je 2f",
        "cmp eax, {vfork}",
        "je 2f",
        "cmp eax, {clone3}",
        "je 2f",
        "cmp eax, {sigreturn}",
        "jne {gate}",
        "2: sub rcx, 2",
        "jmp rcx",
        clone = const raw::nr::CLONE,
        vfork = const call::VFORK,
        clone3 = const call::CLONE3,
        sigreturn = const raw::nr::RT_SIGRETURN,
        gate = sym gate,
    )
}

/// Serves a reading of the time-stamp counter from a stub, where rax says. The record is as in `serve`; all other registers
/// are kept, for the instruction destroys two only, and this takes those.
macro_rules! counter_gate {
    ($processor:literal) => {
        entry_asm!(
            ".cfi_startproc",
            ".cfi_def_cfa rsp, 0",
            ".cfi_register rip, rax",
            choose_stack!("rdx"),
            "push rdx",
            "push rax",
            "push rbp",
            "movsxd rdx, dword ptr [rax + 3]",
            "add rdx, rax",
            record!("rdx"),
            "mov [rsp], rcx",
            "mov [rsp + 8], r11",
            "mov [rsp + 16], rdi",
            "mov [rsp + 24], rsi",
            "mov [rsp + 32], r8",
            "mov [rsp + 40], r9",
            "mov [rsp + 48], r10",
            save_vectors!(),
            "cld",
            $processor,
            "call us_counter",
            load_vectors!(),
            "mov rcx, [rsp]",
            "mov r11, [rsp + 8]",
            "mov rdi, [rsp + 16]",
            "mov rsi, [rsp + 24]",
            "mov r8, [rsp + 32]",
            "mov r9, [rsp + 40]",
            "mov r10, [rsp + 48]",
            "mov rsp, rbp",
            "pop rbp",
            ".cfi_def_cfa rsp, 16",
            ".cfi_restore rbp",
            ".cfi_offset rip, -16",
            "pop rdx",
            ".cfi_register rip, rdx",
            "pop rsp",
            ".cfi_def_cfa rsp, 0",
            "jmp rdx",
            ".cfi_endproc",
        )
    };
}

/// Entry from the stub of an `rdtsc`: rax says where in the stub it goes back to, with the value in rax.
#[unsafe(naked)]
pub unsafe extern "C" fn counter_gate() {
    counter_gate!("xor edi, edi")
}

/// The same of an `rdtscp`: the number of the processor goes into rcx.
#[unsafe(naked)]
pub unsafe extern "C" fn processor_gate() {
    counter_gate!("mov rdi, rsp")
}

/// Where a block has the thread's stacks.
pub(super) const OWN_LOW: usize = offset_of!(Thread, gate_stack) + offset_of!(GateStack, own_low);
/// Where a block has the thread's stacks.
pub(super) const OWN_END: usize = offset_of!(Thread, gate_stack) + offset_of!(GateStack, own_end);
/// Where a block has the thread's stacks.
pub(super) const LOW: usize = offset_of!(Thread, gate_stack) + offset_of!(GateStack, low);
/// Where a block has the thread's stacks.
pub(super) const END: usize = offset_of!(Thread, gate_stack) + offset_of!(GateStack, end);
/// Where a block has the thread's stacks.
pub(super) const TOP: usize = offset_of!(Thread, gate_stack) + offset_of!(GateStack, top);

/// Where the SIGSYS handler sends a thread: rsp points at the record, and r11 has the address behind the `syscall`
/// instruction. The handler has written the record, so that nothing is written to a coroutine's stack.
#[unsafe(naked)]
pub unsafe extern "C" fn trap_gate() {
    naked_asm!(
        // Unwinders see this as the function that was called at the trapped instruction.
        ".cfi_startproc",
        ".cfi_register rip, r11",
        serve!(),
        "mov r11, [rbp - 8]",
        "mov rcx, [rbp + 16]",
        "mov rbp, [rbp]",
        ".cfi_def_cfa rcx, 0",
        ".cfi_restore rbp",
        ".cfi_register rip, r11",
        "mov rsp, rcx",
        ".cfi_def_cfa rsp, 0",
        // Behind a system call that the gate has made, rcx must not be what the instruction would have left there, see
        // `trap::has_swallowed_trap`.
        "xor ecx, ecx",
        "jmp r11",
        ".cfi_endproc",
        // In place of the stub of a patched site: what stands behind its call, see `us_sites::emit_stub`.
        ".globl us_trap_caller",
        ".hidden us_trap_caller",
        "us_trap_caller:",
        ".byte 0x0f, 0x1f, 0x80, 0, 0, 0, 0",
    )
}

unsafe extern "C" {
    static us_trap_caller: u8;
}

/// Lets the interrupted thread go on at the gate, for the system call that was trapped.
///
/// # Safety
/// In the SIGSYS handler, with the kernel's own frame; rip is behind the `syscall` instruction.
pub unsafe fn redirect(context: &mut Context) {
    let regs = &mut context.regs;
    let sp = regs[reg::RSP];
    // SAFETY: the calling thread's own block.
    let end = match unsafe { tls::current().as_ref() } {
        Some(thread) => gate_stack::for_trap(thread, sp, call::may_lend(regs[reg::RAX])),
        None => sp - gate_stack::RED_ZONE,
    } & !7;
    let record = [regs[reg::RBP], &raw const us_trap_caller as u64, sp];
    regs[reg::RSP] = end - size_of_val(&record) as u64;
    // SAFETY: the gate's own stack, or the guest's below everything that its code uses.
    unsafe { (regs[reg::RSP] as *mut [u64; 3]).write(record) };
    regs[reg::R11] = regs[reg::RIP];
    regs[reg::RIP] = trap_gate as *const () as u64;
}

/// The guest's rip, rsp and rbp at the system call of the gate with this frame pointer.
///
/// # Safety
/// The frame pointer of a gate that has not returned.
pub unsafe fn guest_position(frame: u64) -> [u64; 3] {
    let record = frame as *const u64;
    // SAFETY: the record, and what the gate has noted below it for unwinders.
    unsafe { [record.sub(1).read(), record.add(2).read(), record.read()] }
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
