//! The gate's own stack.
//!
//! A `syscall` instruction needs no stack. Code that makes one may stand a few bytes above the end of a coroutine's
//! stack, of a goroutine's, of a small signal stack; a door needs some thousand. So the gate changes to a stack of the
//! runtime's own wherever the thread is not on the stack that it was born with, or near the end of that.
//!
//! A guest's handler runs on the guest's stack, below the code that it interrupts, and the gate that has delivered
//! it waits. The handler's own calls must not touch that gate's frames, and the handler need not come back: it may leave by
//! longjmp, or change to another coroutine and come back much later. So the memory is cut into pieces. One is
//! current; a gate that waits for a handler keeps its piece, and another becomes current meanwhile.
//!
//! Whether a handler can still come back is seen by a word on its stack, above its return address: who has left by
//! longjmp leaves it to be overwritten. It is looked at when no other piece is free. If there is none, the gate stays on
//! the caller's stack.
//!
//! # Safety
//! Only the thread itself changes what is here, and a piece is used by nobody but the gate that has entered on it.

use core::arch::asm;
use core::mem::offset_of;

use crate::thread::Thread;
use crate::thread::gate_stack::{GateStack, PIECES};
use crate::thread::signal::Signals;
use crate::{guest, raw};

/// Bytes of one piece: ten times of what the deepest door was seen to use, and the unwinder above it.
const PIECE_BYTES: u64 = 64 << 10;
/// Bytes of all pieces.
pub const BYTES: u64 = PIECE_BYTES * PIECES as u64;
/// Where less than this is left of a thread's own stack, the gate changes too: programs give their threads 16 KiB.
const MARGIN: u64 = 16 << 10;
/// Most of a main thread's stack that counts as its own. Below that lies what the kernel may give to others.
const MAIN_BYTES_MAX: u64 = 8 << 20;

impl GateStack {
    /// The piece that an address lies in.
    fn piece_of(&self, sp: u64) -> Option<usize> {
        let distance = sp.wrapping_sub(self.low);
        (self.low != 0 && distance < BYTES).then_some((distance / PIECE_BYTES) as usize)
    }

    fn end_of(&self, piece: usize) -> u64 {
        self.low + (piece as u64 + 1) * PIECE_BYTES
    }

    /// Makes a free piece the current one.
    fn choose(&mut self) {
        let mut free = self.waits.iter().position(|place| *place == 0);
        if free.is_none() {
            for piece in 0..PIECES {
                let place = self.waits[piece];
                if guest::load::<u64>(place) != Some(self.word(piece)) {
                    self.waits[piece] = 0;
                    free = Some(piece);
                }
            }
        }
        self.top = free.map_or(0, |piece| self.end_of(piece));
    }

    /// What stands at the end of a waiting piece's handler's stack.
    fn word(&self, piece: usize) -> u64 {
        !self.end_of(piece)
    }
}

/// A thread begins, with that stack: what its slot's last one has left behind is void.
pub fn begin(thread: &mut Thread, low: u64, end: u64) {
    let stack = &mut thread.gate_stack;
    stack.own_low = (low + MARGIN).min(end);
    stack.own_end = end;
    if stack.low == 0 {
        const GUARD: u64 = 4096;
        // SAFETY: new memory, with a page below it that nobody may touch.
        let memory = unsafe {
            let memory = raw::call6(raw::nr::MMAP, [0, BYTES + GUARD, 3, 0x4022, u64::MAX, 0]);
            if raw::failed(memory) {
                return;
            }
            raw::call3(raw::nr::MPROTECT, memory as u64, GUARD, 0);
            memory as u64
        };
        stack.low = memory + GUARD;
        stack.end = stack.low + BYTES;
    }
    stack.waits = [0; PIECES];
    stack.choose();
}

/// The same for the main thread, whose arguments end at that address.
pub fn begin_main(thread: &mut Thread, end: u64) {
    use crate::kernel::RLIMIT_STACK;
    use crate::raw::nr::PRLIMIT64;
    let mut limit = [0u64; 2];
    // SAFETY: the kernel writes two words.
    unsafe { raw::call4(PRLIMIT64, 0, RLIMIT_STACK, 0, limit.as_mut_ptr() as u64) };
    let end = end.next_multiple_of(4096);
    begin(thread, end.saturating_sub(limit[0].min(MAIN_BYTES_MAX)), end);
}

/// The same for a thread whose control block is there, on a stack that begins at `low` (0: not known).
pub fn begin_thread(thread: &mut Thread, low: u64, control_block: u64) {
    let known = low != 0 && low < control_block;
    begin(thread, if known { low } else { control_block }, control_block);
}

/// The stack pointer here.
#[inline(always)]
fn here() -> u64 {
    let sp: u64;
    // SAFETY: reads a register.
    unsafe { asm!("mov {0}, rsp", out(reg) sp, options(nomem, nostack, preserves_flags)) };
    sp
}

/// Whether the gate that has called here runs on one of its own.
pub fn is_here(thread: &Thread) -> bool {
    thread.gate_stack.piece_of(here()).is_some()
}

/// The stack pointer of the guest's code that has called the runtime here.
pub fn guests(thread: &Thread) -> u64 {
    guests_at(thread, here())
}

/// The guest's stack pointer behind one that may be the gate's.
pub fn guests_at(thread: &Thread, sp: u64) -> u64 {
    let stack = &thread.gate_stack;
    match stack.piece_of(sp) {
        // SAFETY: the gate's frame begins with it, at the end of the piece that it runs on.
        Some(piece) => unsafe { ((stack.end_of(piece) - 8) as *const u64).read() },
        None => sp,
    }
}

/// Where a trapped call's gate begins, for a guest's stack pointer: as `choose_stack` does for a patched one. On the gate's in
/// any case if a child is to go on there below the stack pointer while its parent waits in the gate.
pub fn for_trap(thread: &Thread, sp: u64, lends: bool) -> u64 {
    let stack = &thread.gate_stack;
    let stays = !lends && is_own(thread, sp);
    if stays || stack.piece_of(sp).is_some() || stack.top == 0 { sp - RED_ZONE } else { stack.top }
}

/// Bytes below the stack pointer that the guest's code may use.
pub const RED_ZONE: u64 = 128;

/// A gate that waits for a handler.
#[derive(Debug)]
pub struct Waiting {
    piece: usize,
    /// Where the handler's stack begins.
    pub top: u64,
}

/// Before a guest's handler: if the code that it interrupts stands on the gate's stack, the gate keeps its piece, and the
/// handler gets the guest's stack, or the one that ends at `alternate`.
pub fn wait_for_handler(thread: &mut Thread, interrupted: u64, alternate: Option<u64>) -> Option<Waiting> {
    let piece = thread.gate_stack.piece_of(interrupted)?;
    let below = guests_at(thread, interrupted).wrapping_sub(RED_ZONE);
    let top = (alternate.unwrap_or(below) & !15) - 16;
    let stack = &mut thread.gate_stack;
    // SAFETY: the guest's stack below everything that its code uses, where the kernel would have put a frame of some hundred
    // bytes.
    unsafe { (top as *mut u64).write(stack.word(piece)) };
    stack.waits[piece] = top;
    stack.choose();
    Some(Waiting { piece, top })
}

/// The handler has returned.
pub fn came_back(thread: &mut Thread, waiting: &Waiting) {
    let stack = &mut thread.gate_stack;
    stack.waits[waiting.piece] = 0;
    stack.top = stack.end_of(waiting.piece);
}

/// Makes a vfork, of any kind: parent and child return from it one after the other, from the same frames. What the child has
/// made of them the parent must not find, so it puts them back.
///
/// # Safety
/// The call is the guest's own, and lets the child run first on memory and stack of its parent.
pub unsafe fn lend(thread: &Thread, nr: u64, args: &[u64; 6]) -> i64 {
    let stack = &thread.gate_stack;
    let Some(piece) = stack.piece_of(here()) else {
        // No room for a copy: as well as it goes.
        // SAFETY: the caller's promise.
        return unsafe { raw::call6(nr, *args) };
    };
    let end = stack.end_of(piece);
    // SAFETY: the piece's lower end is free: neither its gate nor the child comes near it.
    unsafe { call_and_put_back(nr, args, end - PIECE_BYTES, end) }
}

/// Copies what lies between the stack pointer and `end` to `copy`, makes the call, and puts it back where the call has a
/// result.
#[unsafe(naked)]
unsafe extern "C" fn call_and_put_back(_nr: u64, _args: *const [u64; 6], _copy: u64, _end: u64) -> i64 {
    core::arch::naked_asm!(
        "push rbx",
        "push rbp",
        "push r12",
        "push r13",
        "push r14",
        "mov rax, rdi",
        "mov rbx, rsi",
        "mov rbp, rdx",
        "mov r12, rcx",
        "sub r12, rsp",
        "mov rsi, rsp",
        "mov rdi, rbp",
        "mov rcx, r12",
        "rep movsb",
        "mov rdi, [rbx]",
        "mov rsi, [rbx + 8]",
        "mov rdx, [rbx + 16]",
        "mov r10, [rbx + 24]",
        "mov r8, [rbx + 32]",
        "mov r9, [rbx + 40]",
        "syscall",
        "test rax, rax",
        "jz 2f",
        "mov rsi, rbp",
        "mov rdi, rsp",
        "mov rcx, r12",
        "rep movsb",
        "2: pop r14",
        "pop r13",
        "pop r12",
        "pop rbp",
        "pop rbx",
        "ret",
    )
}

/// Bytes below a door's frames that are cleared: somewhat more than the deepest door was seen to use.
pub const CLEARED: u64 = 8 << 10;
/// The same of libc's functions, which go less deep.
const CLEARED_BY_FUNCTIONS: u64 = 4 << 10;

/// Whether that place is on the thread's own stack, and not near its lower end.
#[inline(always)]
fn is_own(thread: &Thread, place: u64) -> bool {
    (thread.gate_stack.own_low..thread.gate_stack.own_end).contains(&place)
}

/// Where threads take turns, whether a door's frames are cleared at that place: a collector of garbage that takes any word on a
/// stack for a pointer must find the same in every copy. A signal stack may be an array on the thread's own, and small.
pub fn is_cleared(thread: &Thread, place: u64) -> bool {
    let [alternate, _, bytes] = thread.signals.alt_stack;
    is_own(thread, place) && place.wrapping_sub(alternate) >= bytes
}

/// The body of a function of libc's that is the runtime's: it goes on in `$body`, with its caller's address in `$caller`; where
/// threads take turns the lines `$in_turns` say how, with their operands.
macro_rules! frame {
    ($body:path, [$($caller:literal)?], [$($in_turns:literal,)+], $($operands:tt)*) => {
        core::arch::naked_asm!(
            ".cfi_startproc",
            $(concat!("mov ", $caller, ", [rsp]"),)?
            "cmp byte ptr [rip + {turns}], 0",
            "jne 2f",
            "jmp {body}",
            "2:",
            $($in_turns,)+
            ".cfi_endproc",
            body = sym $body,
            turns = sym crate::state::TURNS,
            $($operands)*
        )
    };
}
pub(crate) use frame;

/// A [`frame`] that leaves nothing of its own below the stack pointer where threads take turns.
macro_rules! clean_frame {
    ($body:path $(, $caller:literal)?) => {
        crate::sys::gate_stack::frame!(
            $body,
            [$($caller)?],
            [
                "sub rsp, 8",
                ".cfi_adjust_cfa_offset 8",
                "call {body}",
                "add rsp, 8",
                ".cfi_adjust_cfa_offset -8",
                "jmp {clear}",
            ],
            clear = sym crate::sys::gate_stack::clear,
        )
    };
}
pub(crate) use clean_frame;

/// Instructions that clear `{bytes}` bytes, or `{words}` words, below the stack pointer; they keep rax.
macro_rules! clear_below {
    () => {
        "mov rdx, rax
        lea rdi, [rsp - {bytes}]
        mov ecx, {words}
        xor eax, eax
        rep stosq
        mov rax, rdx"
    };
}
pub(crate) use clear_below;

/// Clears what lies below its caller's frame, see [`is_cleared`], and returns what is in rax.
///
/// # Safety
/// Where a function would return: nothing lives below the stack pointer.
#[unsafe(naked)]
pub unsafe extern "C" fn clear() {
    core::arch::naked_asm!(
        "mov rcx, qword ptr [rip + us_thread@GOTTPOFF]",
        "mov rcx, qword ptr fs:[rcx]",
        "test rcx, rcx",
        "jz 2f",
        "cmp rsp, [rcx + {own_low}]",
        "jb 2f",
        "cmp rsp, [rcx + {own_end}]",
        "jae 2f",
        "mov rdi, rsp",
        "sub rdi, [rcx + {alternate}]",
        "cmp rdi, [rcx + {alternate} + 16]",
        "jb 2f",
        clear_below!(),
        // What is left in registers that a function may change is found on the stack once something saves them: the next gate,
        // or the loader where it binds a name.
        "xor edx, edx",
        "xor esi, esi",
        "xor edi, edi",
        "xor r8d, r8d",
        "xor r9d, r9d",
        "xor r10d, r10d",
        "xor r11d, r11d",
        "pxor xmm0, xmm0",
        "pxor xmm1, xmm1",
        "pxor xmm2, xmm2",
        "pxor xmm3, xmm3",
        "pxor xmm4, xmm4",
        "pxor xmm5, xmm5",
        "pxor xmm6, xmm6",
        "pxor xmm7, xmm7",
        "pxor xmm8, xmm8",
        "pxor xmm9, xmm9",
        "pxor xmm10, xmm10",
        "pxor xmm11, xmm11",
        "pxor xmm12, xmm12",
        "pxor xmm13, xmm13",
        "pxor xmm14, xmm14",
        "pxor xmm15, xmm15",
        "2: ret",
        own_low = const offset_of!(Thread, gate_stack) + offset_of!(GateStack, own_low),
        own_end = const offset_of!(Thread, gate_stack) + offset_of!(GateStack, own_end),
        alternate = const offset_of!(Thread, signals) + offset_of!(Signals, alt_stack),
        bytes = const CLEARED_BY_FUNCTIONS,
        words = const CLEARED_BY_FUNCTIONS / 8,
    )
}
