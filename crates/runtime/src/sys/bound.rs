//! Calls that bind a process to itself: what they make cannot be made again in a copy, or would end it.
//!
//! A filter of system calls (seccomp) judges the runtime's own calls as well, those of a re-clone first of all, and an
//! asynchronous transfer is of one address space. From such a call on there is no standby, and nobody asks for one.

use core::sync::atomic::{AtomicU32, Ordering};

use us_abi::{Cause, GroupState};

use crate::clone;
use crate::raw::{failed, nr};
use crate::state::{self, Role};
use crate::sys::dispatch;
use crate::sys::gate::Call;
use crate::thread::Thread;

/// What a coordinator says that was asked too late.
pub const WHY: &[u8] = b"a system call has bound the process to itself";

const FREE: u32 = 0;
/// Until its exec, and no child of it.
const ITSELF: u32 = 1;
/// With all that come after it: children and new images have the filter too.
const FOR_EVER: u32 = 2;

static BOUND: AtomicU32 = AtomicU32::new(FREE);

/// Whether no standby can be made of this process.
pub fn is_bound() -> bool {
    BOUND.load(Ordering::SeqCst) != FREE
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
}

/// What a refused call binds, and for how long.
fn bond(call: &Call) -> u32 {
    const SECCOMP: u64 = 317;
    const PR_SET_SECCOMP: u64 = 22;
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
    const ARCH_SET_FS: u64 = 0x1002;
    call.nr == nr::ARCH_PRCTL && call.args[0] == ARCH_SET_FS
}

/// Whether a refused call is one of those.
pub fn binds(call: &Call) -> bool {
    bond(call) != FREE
}

/// Makes such a call, in a primary or a child that has not joined. One that fails has bound nothing.
pub fn make(thread: &mut Thread, call: &Call, name: &str) -> i64 {
    let before = BOUND.fetch_max(bond(call), Ordering::SeqCst);
    if before == FREE {
        clone::await_idle();
        thread.newborn = false;
        say(Cause::Bound, name);
    }
    let result = loop {
        if let Some(result) = dispatch::make_unlogged(thread, call) {
            break result;
        }
    };
    if before == FREE && failed(result) {
        BOUND.store(FREE, Ordering::SeqCst);
        say(Cause::RefusedCall, name);
    }
    result
}

/// Gives the standby up, and says why there is none, whatever was said before.
fn say(cause: Cause, name: &str) {
    let Some(header) = state::header().filter(|_| state::role() == Role::Primary) else { return };
    let why: [&[u8]; 3] = [b"system call ", name.as_bytes(), b" cannot be replayed"];
    crate::seats::drop_spares(header, cause, &why);
    crate::stop_logging();
    state::overwrite_text(&header.why.0, cause as u32, &why);
    header.dropped.0.store(cause as u32, Ordering::Release);
    header.state.0.store(GroupState::Unprotected as u32, Ordering::Release);
    state::attention();
}
