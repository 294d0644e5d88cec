#![cfg_attr(not(test), no_std)]
#![forbid(unsafe_code)]
//! Finds the system calls of a loaded program text and turns each into a jump.
//!
//! `syscall` is two bytes; a jump that reaches anywhere near is five. So each site gives up a few whole
//! instructions around it, its *window*, which a stub executes in its place:
//!
//! ```text
//!   mov  $39, %eax        jmp stub ───▶  mov  $39, %eax            displaced, before
//!   syscall          ▶    int3           lea  behind(%rip), %rcx   rcx and r11 are the instruction's to destroy
//!   cmp  $-4096, %rax     cmp …   ◀──┐   jmp  *gate(%rip)          all but rax, rcx, r11, flags survive
//!   ja   error            ja  …      └─  behind: jmp  back         displaced, after, would precede this
//! ```
//!
//! A stub writes nothing to the stack that it was called on: code in front of a `syscall` may stand a few bytes above the
//! end of a coroutine's.
//!
//! Where no window is safe, padding near the site may help out: the two bytes of the `syscall` become a short jump to it, and
//! the long one stands there. Padding counts only behind an instruction that control does not pass, so nobody arrives.
//!
//! Three parts, no allocation and no lock, for a process that has not run its first instruction yet:
//! [`scan`] finds and classifies, [`emit_stub`] and [`emit_patch`] produce bytes, and the caller, who owns
//! the memory, writes them. [`vdso`] lists what the kernel's own library exports. What a scan has decided can be
//! kept for the next image of the same text: [`write_plan`], [`find_plan`].
//!
//! # Texts of which nothing is known
//!
//! In the C library two bytes that look like a `syscall` are one. Elsewhere they may be a constant of a cipher. So
//! [`scan_program`] looks at a place only if the bytes around it leave no doubt: a number loaded just before the
//! instruction, or the comparison of its result with an error just behind it. By the same rule it finds readings of the
//! processor's time-stamp counter ([`Kind::Counter`]), which no kernel sees and no other copy can repeat.
//!
//! # Why a window is safe
//!
//! Nothing may ever arrive *inside* a window, since its bytes are gone. Arriving at its first byte is fine.
//!
//! - *Direct branches.* Whatever looks like a far branch, at any offset of the text, counts as one. Short
//!   branches are decoded around each site, from an instruction start that is known and not guessed (of any
//!   15 offsets in a row one is a start: all are followed until they meet). Where bytes do not decode (data
//!   between functions), every offset counts as a short branch too for the next [`DOUBT`] bytes, and no
//!   site is taken there.
//! - *Returns.* A `call` is never displaced, so no return address lies inside a window. That covers
//!   `setjmp`, which is a call, and exception landing pads, which no compiler puts behind a plain instruction.
//! - *Jump tables.* A table entry is the start of a `case`. Control also falls into what lies inside a window
//!   from the instruction before it, so a `case` there would have to be one that its predecessor falls
//!   through to: behind a `syscall` that means a case which expects a system call's result in `rax`, and at
//!   a `syscall` one which expects its number there, from two different places, with a table dispatch that
//!   itself needs registers in between. Further back it is less absurd, so a window that displaces more
//!   before the `syscall` than what loads `rax`, or saves `r11`, which the call destroys on every way to it, is
//!   not taken within [`SWITCH_REACH`] of an indirect jump.
//! - *Signal handlers.* They return to where they came from, and nobody can be inside a window while it is
//!   written: no thread exists yet.

mod atomic_stub;
mod atomics;
mod choose;
mod decode;
pub mod elf;
mod emit;
mod entries;
pub mod maps;
mod milestone;
mod plan;
mod program;
pub mod references;
mod scan;
pub mod vdso;

pub use atomic_stub::{ATOMIC_HEAD, ATOMIC_STUB_MAX, ATOMIC_WORDS, Ways, emit_atomic_stub, is_compare};
pub use atomics::{Atomic, AtomicOp, Atomics, NO_REGISTER, scan_atomics, target_words};
pub use emit::{
    CloneStub, EmitError, PATCH_MAX, STUB_MAX, Stub, emit_clone_stub, emit_counter_stub, emit_hop,
    emit_patch, emit_stub,
};
pub use entries::{Entry, Functions, Memory, each_entry, judge};
pub use milestone::{Branch, MILESTONE_STUB_MAX, MilestoneWays, branch_at, distance_to, emit_milestone_stub};
pub use plan::{Plan, find_plan, fingerprint, plan_words, write_plan};
pub use program::{has_own_futexes, has_program_sites, scan_program};
pub use scan::{DOUBT, SWITCH_REACH, ScanError, scan};

/// Bytes of the jump that replaces a window's beginning.
pub const JUMP_LEN: usize = 5;

/// An instruction that no other copy can repeat, and what can be done about it: a `syscall`, or a reading of the time-stamp
/// counter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Site {
    /// Offset of the instruction from the start of the text, in bytes.
    pub at: u32,
    /// Its own bytes: 2, or 3 for an `rdtscp`.
    pub(crate) insn_len: u8,
    /// Offset of the window's first byte. Equals `at` if there is no window.
    pub patch_start: u32,
    /// Bytes of the window, 5 to 15, or 2 where a short jump leads to padding nearby; 0 if the site must not be patched.
    pub patch_len: u8,
    /// How the site is reached.
    pub kind: Kind,
    /// The system call number, if an instruction just before loads a constant. `None` means that it is
    /// known only at run time: the gate must then expect any call, `vfork` and `clone` among them.
    pub nr: Option<u32>,
    /// Address of the text's first byte, as given to [`scan`].
    pub text_addr: u64,
    /// Offset of [`JUMP_LEN`] bytes of padding to which a window of two bytes jumps; 0 for none.
    pub(crate) hop: u32,
    /// The window's bytes, as found.
    pub(crate) bytes: [u8; decode::LONGEST],
    /// Offset from `at - ZONE_BEFORE` of each instruction (or, below, of each branch target), as a bit.
    pub(crate) starts: u64,
    pub(crate) targets: u64,
    /// An indirect jump lies within [`SWITCH_REACH`].
    pub(crate) switch_near: bool,
    /// The site lies within [`DOUBT`] bytes behind something that does not decode.
    pub(crate) doubtful: bool,
}

impl Site {
    /// A slot to be filled by [`scan`].
    pub const EMPTY: Site = Site {
        at: 0,
        insn_len: 2,
        patch_start: 0,
        patch_len: 0,
        kind: Kind::Unpatchable(Reason::NoWindow),
        nr: None,
        text_addr: 0,
        hop: 0,
        bytes: [0; decode::LONGEST],
        starts: 0,
        targets: 0,
        switch_near: false,
        doubtful: false,
    };

    /// Address of the instruction.
    pub fn syscall_addr(&self) -> u64 {
        self.text_addr + u64::from(self.at)
    }

    /// Address of the window's first byte: where the jump is written.
    pub fn patch_addr(&self) -> u64 {
        self.text_addr + u64::from(self.patch_start)
    }

    /// Address of the first instruction behind the window: where the stub goes back to.
    pub fn back_addr(&self) -> u64 {
        self.patch_addr() + u64::from(self.patch_len)
    }

    /// Address of the padding to which a window of two bytes jumps, if it does: the jump to the stub is written there.
    pub fn hop_addr(&self) -> Option<u64> {
        (self.hop != 0).then(|| self.text_addr + u64::from(self.hop))
    }

    /// The lowest offset that a patch of this site writes to.
    pub(crate) fn first_written(&self) -> usize {
        if self.hop == 0 { self.patch_start as usize } else { self.patch_start.min(self.hop) as usize }
    }

    /// The offset behind the highest one.
    pub(crate) fn behind_written(&self) -> usize {
        let behind = self.patch_start as usize + usize::from(self.patch_len);
        if self.hop == 0 { behind } else { behind.max(self.hop as usize + JUMP_LEN) }
    }

    /// The window's original bytes: compare them with the text just before writing, and never write over
    /// a text that has changed since.
    pub fn window(&self) -> &[u8] {
        &self.bytes[..usize::from(self.patch_len)]
    }

    /// Whether a [`Kind::Counter`] tells the processor as well: an `rdtscp`.
    pub fn tells_processor(&self) -> bool {
        self.insn_len == 3
    }

    /// Whether the site has a window.
    pub fn is_patchable(&self) -> bool {
        self.patch_len != 0
    }

    /// Offset of the instruction within the window.
    pub(crate) fn syscall_at(&self) -> usize {
        (self.at - self.patch_start) as usize
    }

    /// Offset behind it.
    pub(crate) fn behind_at(&self) -> usize {
        self.syscall_at() + usize::from(self.insn_len)
    }
}

/// What stands at a site.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// `syscall` and whole instructions behind it are displaced.
    After,
    /// `mov $nr,%eax; syscall` is displaced.
    Before {
        /// The number loaded.
        nr: u32,
    },
    /// Instructions on both sides are displaced, or more than the `mov` before.
    Mixed,
    /// `clone`, `clone3` or `vfork` as glibc writes them in assembly: the child returns on another stack, or
    /// on the parent's while the parent sleeps, so a gate that keeps a return address on the stack would send
    /// one of them astray. See [`emit_clone_stub`].
    CloneLike,
    /// `rdtsc`, or `rdtscp`, which tells the processor as well; and whole instructions behind it.
    Counter,
    /// An atomic instruction of the program's own, see [`scan_atomics`].
    Atomic,
    /// `rt_sigreturn`. Unwinders know a signal frame by these very bytes: leave them alone.
    SigReturn,
    /// Left as it is, to be caught by other means.
    Unpatchable(Reason),
}

/// Why a site cannot be patched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    /// No five bytes around it can be displaced: calls, other system calls or code of unknown kind.
    NoWindow,
    /// There would be a window, but a branch lands inside.
    BranchTarget,
    /// Only a window that reaches back too far would do, and a jump table may be near.
    SwitchNear,
    /// Neither is a number loaded before it nor a result looked at behind it: it may be data.
    NoContext,
    /// The text just before does not decode, so nobody knows where instructions start.
    Doubt,
}
