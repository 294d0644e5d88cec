//! The gates before and behind an atomic instruction of the program's.
//!
//! A stub ([`us_sites::emit_atomic_stub`]) jumps here with what three registers and the flags were in the thread's own storage, the
//! address of the memory in rcx, and its head in rdx. It loads all of them again where the gate sends it, so these three and the flags
//! are the gate's. In a primary nothing else is touched, and the stack neither: some ten nanoseconds. Whatever is out of the ordinary
//! goes to the door ([`crate::door::atomics`]) with all registers saved.
//!
//! Between the two gates a primary holds the address's clock, so the order of the tickets is that of the instructions; and the
//! event is published before the clock is given back.

use core::arch::naked_asm;
use core::mem::offset_of;
use core::sync::atomic::AtomicU8;

use us_abi::RING_BYTES;
use us_abi::event::EventKind;
use us_ring::Producer;
use us_sites::AtomicOp;

use crate::clock::{ATOMIC_FACTOR, ATOMICS, AtomicClock};
use crate::sys::atomics::{HIGHEST_SHARED, LOWEST_SHARED};
use crate::sys::gate::{self, choose_stack, load_vectors, record, save_vectors};
use crate::thread::atomics::Atomics;
use crate::thread::ends::Ends;
use crate::thread::{Mode, Shared, TO_SHARED, Thread};
use crate::tls;

/// Whether the gates do the ordinary by themselves. A library with faults has a place to die at in the door.
pub static IS_SHORT: AtomicU8 = AtomicU8::new(!cfg!(feature = "faults") as u8);

const HELD: usize = offset_of!(Thread, atomics) + offset_of!(Atomics, held);
const TAIL: usize = offset_of!(Thread, atomics) + offset_of!(Atomics, tail);
const ADDRESS: usize = offset_of!(Thread, atomics) + offset_of!(Atomics, address);
const HEAD: usize = offset_of!(Thread, atomics) + offset_of!(Atomics, head);
const KEPT: usize = offset_of!(Thread, atomics) + offset_of!(Atomics, kept);
const FOLLOWS: usize = offset_of!(Thread, atomics) + offset_of!(Atomics, follows);
const PRODUCER: usize = offset_of!(Thread, ends) + offset_of!(Ends, producer);
const AT: usize = PRODUCER + offset_of!(Producer, at);
const LIMIT: usize = PRODUCER + offset_of!(Producer, limit);
const EVENTS: usize = PRODUCER + offset_of!(Producer, events);
const RING: usize = offset_of!(Thread, ends) + offset_of!(Ends, ring);
/// Distances back to the shared part.
const LOCK_MODE: usize = TO_SHARED - offset_of!(Shared, lock_mode);
const BORROWED: usize = TO_SHARED - offset_of!(Shared, borrowed);
const PENDING: usize = TO_SHARED - offset_of!(Shared, pending);

const LOCK: usize = offset_of!(AtomicClock, held);
const CLOCK_SHIFT: u32 = size_of::<AtomicClock>().trailing_zeros();
/// Room for the longest event, and a skip.
const ROOM: usize = 64;
/// Places in a stub's head.
const GO: usize = 8;
const DONE: usize = 16;
const OP: usize = 24;
const BEHIND: usize = 32;
/// What stands behind the block's pointer in the thread's own storage.
const WORD_RAX: usize = 8;
const WORD_RDX: usize = 8 + 16;
const WORD_VALUE: usize = 8 + 40;
/// The zero flag as `lahf` has it, in the upper byte of ax.
const ZERO: u32 = 0x4000;
const VALUE_LEN: u64 = 16;

/// Before the instruction.
#[unsafe(naked)]
pub unsafe extern "C" fn enter() {
    naked_asm!(
        "mov rax, qword ptr [rip + us_thread@GOTTPOFF]",
        "mov rax, qword ptr fs:[rax]",
        "test rax, rax",
        "jz 8f",
        "cmp byte ptr [rax - {lock_mode}], {record}",
        "jne 7f",
        "cmp byte ptr [rax - {borrowed}], 0",
        "jne 8f",
        "cmp dword ptr [rax - {pending}], 0",
        "jne {slow}",
        "cmp byte ptr [rip + {short}], 0",
        "je {slow}",
        "cmp rcx, [rip + {lowest}]",
        "jae 6f",
        "5: mov [rax + {address}], rcx",
        "mov rcx, [rax + {limit}]",
        "sub rcx, [rax + {at}]",
        "cmp rcx, {room}",
        "jl 9f",
        "mov rcx, [rax + {address}]",
        "shr rcx, 4",
        "imul rcx, rcx, {factor}",
        "shr rcx, 52",
        "shl ecx, {shift}",
        "mov [rax + {head}], rdx",
        "lea rdx, [rip + {clocks}]",
        "add rcx, rdx",
        "mov edx, 1",
        "xchg edx, [rcx + {lock}]",
        "test edx, edx",
        "mov rdx, [rax + {head}]",
        "jnz 9f",
        "mov [rax + {held}], rcx",
        "8: mov rdx, [rdx + {go}]",
        "jmp rdx",
        // Memory that processes may share is not ordered.
        "6: cmp rcx, [rip + {highest}]",
        "jb 8b",
        "jmp 5b",
        // One thread only, so far.
        "7: cmp byte ptr [rax - {lock_mode}], {solo}",
        "je 8b",
        "cmp byte ptr [rax - {borrowed}], 0",
        "jne 8b",
        "jmp {slow}",
        "9: mov rcx, [rax + {address}]",
        "jmp {slow}",
        lock_mode = const LOCK_MODE,
        borrowed = const BORROWED,
        pending = const PENDING,
        record = const Mode::Record as u8,
        solo = const Mode::Solo as u8,
        short = sym IS_SHORT,
        lowest = sym LOWEST_SHARED,
        highest = sym HIGHEST_SHARED,
        address = const ADDRESS,
        limit = const LIMIT,
        at = const AT,
        room = const ROOM,
        factor = const ATOMIC_FACTOR,
        shift = const CLOCK_SHIFT,
        head = const HEAD,
        clocks = sym ATOMICS,
        lock = const LOCK,
        held = const HELD,
        go = const GO,
        slow = sym slow_enter,
    )
}

/// Behind it: rax has the flags, as `lahf` and `seto` leave them.
#[unsafe(naked)]
pub unsafe extern "C" fn leave() {
    naked_asm!(
        "mov rcx, qword ptr [rip + us_thread@GOTTPOFF]",
        "mov rcx, qword ptr fs:[rcx]",
        "test rcx, rcx",
        "jz 8f",
        "cmp qword ptr [rcx + {held}], 0",
        "je 7f",
        "cmp byte ptr [rip + {short}], 0",
        "je {slow}",
        "mov [rcx + {kept}], rsi",
        "mov [rcx + {kept} + 8], rdi",
        // Operation and clock.
        "mov rsi, [rcx + {held}]",
        "lea rdi, [rip + {clocks}]",
        "neg rdi",
        "add rdi, rsi",
        "shr edi, {shift}",
        "shl edi, 16",
        // Who has not said what the old value was?
        "cmp byte ptr [rdx + {op}], {exchange}",
        "je 3f",
        "test eax, {zero}",
        "jnz 2f",
        "cmp byte ptr [rdx + {op}], {compare}",
        "je 4f",
        "cmp byte ptr [rdx + {op}], {wide}",
        "je 4f",
        // An event of sixteen bytes.
        "2: movzx eax, ah",
        "shl eax, 8",
        "or eax, edi",
        "movzx edi, byte ptr [rdx + {op}]",
        "shl edi, 28",
        "lea eax, [rax + rdi + {kind}]",
        "mov rdi, [rcx + {at}]",
        "and edi, {mask}",
        "add rdi, [rcx + {ring}]",
        "mov [rdi], rax",
        "mov rax, [rsi]",
        "mov [rdi + 8], rax",
        "inc rax",
        "mov [rsi], rax",
        "mov rax, [rcx + {at}]",
        "add rax, 16",
        "6: mov [rcx + {at}], rax",
        "inc qword ptr [rcx + {events}]",
        "mov rdi, [rcx + {tail}]",
        "mov [rdi], rax",
        "mov dword ptr [rsi + {lock}], 0",
        "mov qword ptr [rcx + {held}], 0",
        "mov rsi, [rcx + {kept}]",
        "mov rdi, [rcx + {kept} + 8]",
        "8: mov rdx, [rdx + {done}]",
        "jmp rdx",
        // One of 32, with the value: of an exchange in its register, whose operation is 0.
        "3: movzx eax, ah",
        "shl eax, 8",
        "lea eax, [rax + rdi + {kind}]",
        "movabs rdi, {len}",
        "or rax, rdi",
        "mov rdi, [rcx + {at}]",
        "and edi, {mask}",
        "add rdi, [rcx + {ring}]",
        "mov [rdi], rax",
        "mov rax, qword ptr [rip + us_thread@GOTTPOFF]",
        "mov rax, qword ptr fs:[rax + {word_value}]",
        "mov [rdi + 16], rax",
        "mov qword ptr [rdi + 24], 0",
        "5: mov rax, [rsi]",
        "mov [rdi + 8], rax",
        "inc rax",
        "mov [rsi], rax",
        "mov rax, [rcx + {at}]",
        "add rax, 32",
        "jmp 6b",
        // Of a comparison that has failed, in rax and rdx.
        "4: movzx eax, ah",
        "shl eax, 8",
        "or eax, edi",
        "movzx edi, byte ptr [rdx + {op}]",
        "shl edi, 28",
        "lea eax, [rax + rdi + {kind}]",
        "movabs rdi, {len}",
        "or rax, rdi",
        "mov rdi, [rcx + {at}]",
        "and edi, {mask}",
        "add rdi, [rcx + {ring}]",
        "mov [rdi], rax",
        "mov rax, qword ptr [rip + us_thread@GOTTPOFF]",
        "mov rax, qword ptr fs:[rax + {word_rax}]",
        "mov [rdi + 16], rax",
        "mov rax, qword ptr [rip + us_thread@GOTTPOFF]",
        "mov rax, qword ptr fs:[rax + {word_rdx}]",
        "mov [rdi + 24], rax",
        "jmp 5b",
        "7: cmp byte ptr [rcx + {follows}], 0",
        "je 8b",
        "jmp {slow}",
        held = const HELD,
        short = sym IS_SHORT,
        kept = const KEPT,
        clocks = sym ATOMICS,
        shift = const CLOCK_SHIFT,
        op = const OP,
        exchange = const AtomicOp::Exchange as u8,
        zero = const ZERO,
        compare = const AtomicOp::CompareExchange as u8,
        wide = const AtomicOp::CompareExchangeWide as u8,
        kind = const EventKind::Atomic as u8,
        at = const AT,
        mask = const RING_BYTES - 1,
        ring = const RING,
        events = const EVENTS,
        tail = const TAIL,
        lock = const LOCK,
        done = const DONE,
        follows = const FOLLOWS,
        len = const VALUE_LEN << 32,
        word_value = const WORD_VALUE,
        word_rax = const WORD_RAX,
        word_rdx = const WORD_RDX,
        slow = sym slow_leave,
    )
}

/// Calls a door with the head, the address, and the registers that a stub does not keep; it says where to go on. The frame's
/// record is as in [`crate::sys::gate`].
macro_rules! slow {
    ($door:literal) => {
        naked_asm!(
            ".cfi_startproc",
            ".cfi_def_cfa rsp, 0",
            ".cfi_register rip, rdx",
            choose_stack!("rax"),
            "push rax",
            "push qword ptr [rdx + {done}]",
            "push rbp",
            "mov rax, [rdx + {behind}]",
            record!("rax"),
            save_vectors!(),
            "sub rsp, 128",
            "mov [rsp], rbx",
            "mov [rsp + 8], rsi",
            "mov [rsp + 16], rdi",
            "mov [rsp + 24], r8",
            "mov [rsp + 32], r9",
            "mov [rsp + 40], r10",
            "mov [rsp + 48], r11",
            "mov [rsp + 56], r12",
            "mov [rsp + 64], r13",
            "mov [rsp + 72], r14",
            "mov [rsp + 80], r15",
            "mov rax, [rbp]",
            "mov [rsp + 88], rax",
            "cld",
            "mov rdi, rdx",
            "mov rsi, rcx",
            "mov rdx, rsp",
            concat!("call ", $door),
            "mov rdx, rax",
            "mov rax, [rsp + 88]",
            "mov [rbp], rax",
            "mov rbx, [rsp]",
            "mov rsi, [rsp + 8]",
            "mov rdi, [rsp + 16]",
            "mov r8, [rsp + 24]",
            "mov r9, [rsp + 32]",
            "mov r10, [rsp + 40]",
            "mov r11, [rsp + 48]",
            "mov r12, [rsp + 56]",
            "mov r13, [rsp + 64]",
            "mov r14, [rsp + 72]",
            "mov r15, [rsp + 80]",
            "add rsp, 128",
            load_vectors!(),
            "mov rsp, rbp",
            "pop rbp",
            ".cfi_def_cfa rsp, 16",
            ".cfi_restore rbp",
            ".cfi_register rip, rdx",
            "add rsp, 8",
            "pop rsp",
            ".cfi_def_cfa rsp, 0",
            "jmp rdx",
            ".cfi_endproc",
            done = const DONE,
            behind = const BEHIND,
            own_low = const gate::OWN_LOW,
            own_end = const gate::OWN_END,
            low = const gate::LOW,
            end = const gate::END,
            top = const gate::TOP,
            foreign = sym tls::FOREIGN,
        )
    };
}

#[unsafe(naked)]
unsafe extern "C" fn slow_enter() {
    slow!("us_atomic_enter")
}

#[unsafe(naked)]
unsafe extern "C" fn slow_leave() {
    slow!("us_atomic_leave")
}

/// At a milestone ([`us_sites::emit_milestone_stub`]), where nothing is left to be counted down. It comes and goes as an atomic instruction does.
#[unsafe(naked)]
pub unsafe extern "C" fn milestone() {
    slow!("us_milestone")
}
