//! This thread's block, reached by one initial-exec TLS slot.
//!
//! # Safety
//! libc's dynamic TLS may allocate on first use; the static slot of a preloaded library does not. A
//! thread that the runtime has not met (the first instructions of a new one) reads null. Once the guest has made threads by
//! itself, or has changed a thread pointer, that slot is not relied on any more.

use core::arch::{asm, global_asm};
use core::sync::atomic::{AtomicU8, AtomicU32, AtomicU64, Ordering};

use crate::thread::{self, Shared, Thread};
use crate::{bound, guest, raw, state};

/// Offset of a thread's number inside glibc's control block.
pub static TID_OFFSET: AtomicU64 = AtomicU64::new(0);
/// Offset of the word there that is zero once the thread is gone.
pub static END_OFFSET: AtomicU64 = AtomicU64::new(0);

global_asm!(
    ".section .tbss,\"awT\",@nobits",
    ".globl us_thread",
    ".hidden us_thread",
    ".type us_thread, @object",
    ".size us_thread, 64",
    ".balign 64",
    // Behind the pointer, what stubs of atomic instructions keep: see `us_sites::ATOMIC_WORDS`.
    "us_thread: .zero 64",
    ".text",
);

/// Not 0 once a thread may run whose thread pointer is not libc's: made by a clone of the guest's own, or changed by
/// `arch_prctl`. Then the slot above may lie in anybody's memory, or nowhere.
pub static FOREIGN: AtomicU8 = AtomicU8::new(0);

/// From here on threads are known by the kernel's numbers.
pub fn are_foreign() {
    FOREIGN.store(1, Ordering::SeqCst);
}

/// Whether they are.
#[inline(always)]
pub fn may_be_foreign() -> bool {
    FOREIGN.load(Ordering::Relaxed) != 0
}

/// Value of a block's `borrowed` while a process is made that shares the memory and nothing else: the block is its maker's alone.
pub const SIDE_BY_SIDE: u8 = 4;

/// The calling thread's block, null for a thread unknown to the runtime.
#[inline(always)]
pub fn current() -> *mut Thread {
    if may_be_foreign() {
        return by_number();
    }
    let thread: *mut Thread;
    // SAFETY: reads the slot that this library's TLS segment reserves in every thread.
    unsafe {
        asm!("mov {0}, qword ptr [rip + us_thread@GOTTPOFF]", "mov {0}, qword ptr fs:[{0}]", out(reg) thread,
            options(pure, readonly, nostack, preserves_flags));
    }
    thread
}

/// The shared part of the calling thread's block.
#[inline(always)]
pub fn shared() -> Option<&'static Shared> {
    let own = current();
    // SAFETY: a block's, which is never freed.
    (!own.is_null()).then(|| unsafe { thread::shared_of(own) })
}

/// The calling thread's block, without the thread pointer.
#[cold]
#[inline(never)]
fn by_number() -> *mut Thread {
    let find = |is: &dyn Fn(&Shared) -> bool| {
        thread::slots().find(|slot| is(thread::shared(*slot))).map(thread::own)
    };
    let tid = raw::gettid();
    if let Some(own) = find(&|block| block.runs_as.load(Ordering::Relaxed) == tid) {
        return own;
    }
    // SAFETY: asks for a number.
    let pid = unsafe { raw::call1(raw::nr::GETPID, 0) } as u32;
    if pid == state::REAL_PID.load(Ordering::Relaxed) {
        return core::ptr::null_mut();
    }
    // A child that borrows its parent's memory, and its block.
    let pointer = thread_pointer();
    let lent = |block: &Shared| !matches!(block.borrowed.load(Ordering::Relaxed), 0 | SIDE_BY_SIDE);
    find(&|block| lent(block) && block.handle.load(Ordering::Relaxed) == pointer)
        .or_else(|| find(&lent))
        .unwrap_or(core::ptr::null_mut())
}

/// What stubs of atomic instructions keep of this thread's registers, see [`us_sites::emit_atomic_stub`].
pub type AtomicWords = [u64; us_sites::ATOMIC_WORDS];
/// Where it lies behind the block's pointer.
const WORDS_AT: u64 = 8;

/// Its distance from the thread pointer, in every thread of libc's.
pub fn atomic_words() -> i32 {
    let distance: u64;
    // SAFETY: reads what the loader has noted.
    unsafe {
        asm!("mov {0}, qword ptr [rip + us_thread@GOTTPOFF]", out(reg) distance,
            options(pure, readonly, nostack, preserves_flags));
    }
    (distance + WORDS_AT) as i64 as i32
}

/// Where what is left until a thread's next look at a milestone lies, behind those.
const LEFT_AT: i32 = size_of::<AtomicWords>() as i32;

/// Its distance from the thread pointer.
pub fn left_at_milestones() -> i32 {
    atomic_words() + LEFT_AT
}

/// That of the calling thread, one of libc's.
pub fn own_atomic_words() -> *mut AtomicWords {
    let pointer: u64;
    // SAFETY: the x86-64 TLS ABI keeps the thread pointer at its own start.
    unsafe { asm!("mov {0}, fs:[0]", out(reg) pointer, options(pure, readonly, nostack, preserves_flags)) };
    pointer.wrapping_add_signed(atomic_words().into()) as *mut AtomicWords
}

/// Sets the calling thread's block; one that ends has none any more.
pub fn set_current(thread: *mut Thread) {
    if let Some(last) = shared() {
        last.runs_as.store(0, Ordering::Relaxed);
    }
    if !thread.is_null() {
        // A filter of the program's need not allow the question; libc's word has the answer as long as all threads are libc's.
        let is_asked = may_be_foreign() || !bound::has_left();
        let tid = if is_asked { raw::gettid() } else { tid_of(thread_pointer()) };
        // SAFETY: the calling thread's own block.
        unsafe { thread::shared_of(thread) }.runs_as.store(tid, Ordering::Relaxed);
    } else if may_be_foreign() {
        // Who ends need not be libc's.
        return;
    }
    // SAFETY: writes the slot that this library's TLS segment reserves in every thread.
    unsafe {
        asm!("mov {1}, qword ptr [rip + us_thread@GOTTPOFF]", "mov qword ptr fs:[{1}], {0}", in(reg) thread,
            out(reg) _, options(nostack, preserves_flags));
    }
}

/// The address of the calling thread's control block: glibc's `pthread_self()`.
pub fn thread_pointer() -> u64 {
    if may_be_foreign() {
        return base();
    }
    let pointer: u64;
    // SAFETY: the x86-64 TLS ABI keeps the thread pointer at its own start.
    unsafe { asm!("mov {0}, fs:[0]", out(reg) pointer, options(pure, readonly, nostack, preserves_flags)) };
    pointer
}

/// The thread pointer as the kernel has it.
fn base() -> u64 {
    const ARCH_GET_FS: u64 = 0x1003;
    let mut base = 0u64;
    // SAFETY: the kernel writes one word.
    unsafe { raw::call2(raw::nr::ARCH_PRCTL, ARCH_GET_FS, &raw mut base as u64) };
    base
}

/// Whether an address is that of a control block of libc's, to go by what stands there.
pub fn is_libc(pointer: u64) -> bool {
    const SELF: u64 = 16;
    pointer != 0
        && guest::load::<u64>(pointer) == Some(pointer)
        && guest::load::<u64>(pointer + SELF) == Some(pointer)
}

/// Whether the calling thread, which has no block, is none of libc's: it has been made behind libc's back, and nothing of
/// it is ours.
pub fn is_outside() -> bool {
    may_be_foreign() && {
        let pointer = base();
        let number = || tid_of(pointer);
        !is_libc(pointer) || number() != raw::gettid()
    }
}

/// The word with libc's number of the thread behind a handle.
pub fn tid_word(handle: u64) -> &'static AtomicU32 {
    // SAFETY: the control block of a thread that has not been joined yet, or lies in a stack of ours.
    unsafe { &*((handle + TID_OFFSET.load(Ordering::Relaxed)) as *const AtomicU32) }
}

/// The word that the kernel clears at the end of the thread behind a handle: that one, or since glibc 2.43 another.
pub fn end_word(handle: u64) -> &'static AtomicU32 {
    // SAFETY: as above.
    unsafe { &*((handle + END_OFFSET.load(Ordering::Relaxed)) as *const AtomicU32) }
}

/// The number of the thread behind a handle, as libc knows it: the kernel's, or the group's. 0, up to glibc 2.42, once the thread is gone.
pub fn tid_of(handle: u64) -> u32 {
    tid_word(handle).load(Ordering::Acquire)
}
