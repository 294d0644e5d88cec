//! Both ends of a function that orders threads, where the order is computed.
//!
//! With `--order serial` a door only counts: after so many others have a turn. With `--order deterministic` threads run at the same time,
//! and a door is what the turn is for: it is taken at its beginning and given back at its end, one tick later.

use crate::sys::gate_stack::clear;
use crate::thread::Thread;
use crate::turns::{self, digest, logical};
use crate::{state, tls};

/// A function that changes what others wait for, and that no log has an event of.
pub const CHANGES: u32 = 0;
/// One of which the log has an event, or that begins with a wait: others may have a turn before it.
pub const ACQUIRES: u32 = 1;

/// The body of a function of libc's that orders threads: a [`crate::sys::gate_stack::frame`], where threads take turns between the
/// two ends of a door.
macro_rules! ordered_frame {
    ($kind:ident, $body:path $(, $caller:literal)?) => {
        crate::sys::gate_stack::frame!(
            $body,
            [$($caller)?],
            ["lea rax, [rip + {body}]", "mov r8d, {kind}", "jmp {in_turn}",],
            kind = const crate::turns::doors::$kind,
            in_turn = sym crate::turns::doors::in_turn,
        )
    };
}
pub(crate) use ordered_frame;

/// What a door's beginning has come to.
const NOTHING: u64 = 0;
const IS_TO_GIVE: u64 = 1;

/// Calls the function in rax, whose four arguments are in the registers for them and whose kind is in r8, between the two ends of a door.
///
/// # Safety
/// Where the function would begin.
#[unsafe(naked)]
pub unsafe extern "C" fn in_turn() {
    core::arch::naked_asm!(
        ".cfi_startproc",
        "push rdi",
        ".cfi_adjust_cfa_offset 8",
        "push rsi",
        ".cfi_adjust_cfa_offset 8",
        "push rdx",
        ".cfi_adjust_cfa_offset 8",
        "push rcx",
        ".cfi_adjust_cfa_offset 8",
        "push rax",
        ".cfi_adjust_cfa_offset 8",
        "mov rsi, rdi",
        "mov edi, r8d",
        "call {begin}",
        "mov r8, rax",
        "pop rax",
        ".cfi_adjust_cfa_offset -8",
        "pop rcx",
        ".cfi_adjust_cfa_offset -8",
        "pop rdx",
        ".cfi_adjust_cfa_offset -8",
        "pop rsi",
        ".cfi_adjust_cfa_offset -8",
        "pop rdi",
        ".cfi_adjust_cfa_offset -8",
        "push r8",
        ".cfi_adjust_cfa_offset 8",
        "call rax",
        "pop rdi",
        ".cfi_adjust_cfa_offset -8",
        "push rax",
        ".cfi_adjust_cfa_offset 8",
        "call {end}",
        "pop rax",
        ".cfi_adjust_cfa_offset -8",
        "jmp {clear}",
        ".cfi_endproc",
        begin = sym begin,
        end = sym end,
        clear = sym clear,
    )
}

extern "C" fn begin(kind: u32, object: u64) -> u64 {
    // SAFETY: the calling thread's own block; no reference to it is held here.
    let Some(thread) = (unsafe { tls::current().as_mut() }) else { return NOTHING };
    if !logical::applies(thread) {
        return NOTHING;
    }
    thread.turn.set_object(object);
    thread.turn.set_door(digest::FUNCTION + kind as u16);
    if state::is_parallel() {
        return if enter(thread) { IS_TO_GIVE } else { NOTHING };
    }
    if kind == ACQUIRES {
        turns::at_lock(thread);
    }
    NOTHING
}

extern "C" fn end(begun: u64) {
    if begun != IS_TO_GIVE {
        return;
    }
    // SAFETY: as in `begin`.
    if let Some(thread) = unsafe { tls::current().as_mut() } {
        leave(thread);
    }
}

/// Whether a thread may take the turn where it is.
pub fn may_take(thread: &Thread) -> bool {
    !state::is_parallel() || thread.turn.is_in_door() || !logical::applies(thread)
}

/// With `--order deterministic`: takes the turn for a door. False if it is this thread's already.
pub fn enter(thread: &mut Thread) -> bool {
    if !state::is_parallel() || !logical::applies(thread) || thread.turn.is_own() {
        return false;
    }
    thread.turn.set_in_door(true);
    turns::take(thread);
    true
}

/// Gives it back.
pub fn leave(thread: &mut Thread) {
    thread.turn.set_in_door(false);
    if thread.turn.is_own() {
        turns::let_others(thread);
    } else if logical::applies(thread) {
        // It has stood still in the turn, and another log has begun since.
        logical::let_others(thread);
    }
}

/// A door whose end is the end of a scope. Nothing below it may be left by unwinding.
pub struct Scope(u64);

impl Scope {
    /// Begins one, about the object at this address.
    #[inline(always)]
    pub fn begin(object: usize) -> Scope {
        Scope(if state::is_parallel() { begin(CHANGES, object as u64) } else { NOTHING })
    }
}

impl Drop for Scope {
    #[inline(always)]
    fn drop(&mut self) {
        end(self.0);
    }
}
