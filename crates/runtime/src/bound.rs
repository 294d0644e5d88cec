//! Calls that bind a process to itself: what they make cannot be made again in a copy, or would end it.
//!
//! A filter of system calls (seccomp) judges the runtime's own calls as well, those of a re-clone first of all, and an
//! asynchronous transfer is of one address space. From such a call on there is no standby, and nobody asks for one.
//!
//! A process that shares this one's memory (a clone that is neither a thread nor a vfork) also runs on its block, and a copy
//! would have it for half a caller: no standby is made while it lives.
//!
//! Before a filter is set the runtime *leaves* the process: the kernel gets the program's own dispositions, mask and signal
//! stack, dispatch is switched off, and each door makes the call that it was called for and no other. A filter that allows what
//! the program does then allows all there is.

use core::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use crate::call::Call;
use crate::raw::{self, nr};
use crate::state;

/// What a coordinator says that was asked too late.
pub const WHY: &[u8] = b"a system call has bound the process to itself";

/// Not at all.
pub const FREE: u32 = 0;
/// Until its exec, and no child of it.
const ITSELF: u32 = 1;
/// With all that come after it: children and new images have the filter too.
pub const FOR_EVER: u32 = 2;

/// For how long the process is bound.
pub static BOUND: AtomicU32 = AtomicU32::new(FREE);

/// See [`has_left`].
pub static LEFT: AtomicBool = AtomicBool::new(false);

/// Whether the runtime has left this process: nothing is made of a call but the call.
#[inline(always)]
pub fn has_left() -> bool {
    LEFT.load(Ordering::Relaxed)
}

/// Whether no standby can be made of this process.
pub fn is_bound() -> bool {
    BOUND.load(Ordering::SeqCst) != FREE || is_memory_shared()
}

/// Processes that were made with this one's memory, 0 where there is none.
static SHARERS: [AtomicU32; 8] = [const { AtomicU32::new(0) }; 8];

/// One has been made.
pub fn shares_memory_with(pid: u32) {
    let enter =
        |place: &AtomicU32| place.compare_exchange(0, pid, Ordering::SeqCst, Ordering::Relaxed).is_ok();
    // The others are asked first: those that have ended make room.
    let _ = is_memory_shared();
    if !SHARERS.iter().any(enter) {
        BOUND.fetch_max(ITSELF, Ordering::SeqCst);
    }
}

/// Whether any of them still has it. Where the kernel does not say, it has.
fn is_memory_shared() -> bool {
    use crate::raw::nr::KCMP;
    const KCMP_VM: u64 = 1;
    let own = u64::from(state::REAL_PID.load(Ordering::Relaxed));
    let has_it = |place: &&AtomicU32| {
        let pid = place.load(Ordering::SeqCst);
        if pid == 0 {
            return false;
        }
        // SAFETY: a question.
        let order = unsafe { raw::call6(KCMP, [own, u64::from(pid), KCMP_VM, 0, 0, 0]) };
        if order > 0 || order == raw::err::ESRCH {
            let _ = place.compare_exchange(pid, 0, Ordering::SeqCst, Ordering::Relaxed);
            return false;
        }
        true
    };
    SHARERS.iter().filter(has_it).count() != 0
}

/// Whether the image behind an exec would be bound as well.
pub fn outlives_exec() -> bool {
    BOUND.load(Ordering::SeqCst) == FOR_EVER
}

/// In a forked child.
pub fn in_child() {
    if BOUND.load(Ordering::SeqCst) == ITSELF {
        BOUND.store(FREE, Ordering::SeqCst);
    }
    SHARERS.iter().for_each(|place| place.store(0, Ordering::SeqCst));
}

/// What a refused call binds, and for how long.
pub fn bond(call: &Call) -> u32 {
    use crate::kernel::PR_SET_SECCOMP;
    use crate::raw::nr::SECCOMP;
    const SECCOMP_GET: u64 = 2; // and what asks for sizes, 3
    match call.nr {
        SECCOMP if call.args[0] & 0xffff_ffff < SECCOMP_GET => FOR_EVER,
        SECCOMP => FREE,
        nr::PRCTL if call.args[0] & 0xffff_ffff == PR_SET_SECCOMP => FOR_EVER,
        _ if moves_thread_pointer(call) => ITSELF,
        number if us_calls::row(number).is_some_and(|row| row.sticky) => ITSELF,
        _ => FREE,
    }
}

/// Whether a call changes the thread pointer: a copy's threads are made with libc's.
pub fn moves_thread_pointer(call: &Call) -> bool {
    use crate::kernel::ARCH_SET_FS;
    call.nr == nr::ARCH_PRCTL && call.args[0] == ARCH_SET_FS
}

/// Whether a refused call is one of those.
pub fn binds(call: &Call) -> bool {
    bond(call) != FREE
}
