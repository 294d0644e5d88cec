//! Which system calls are libc's own: made by its locks, and not by a guest that has its `syscall` function make them.

use core::sync::atomic::{AtomicU64, Ordering};

use crate::call::Call;
use crate::real;

/// Bytes of libc's `syscall` function, and more than its one instruction is away from its beginning.
const FUNCTION_BYTES: u64 = 64;

/// Executable ranges of the C library and of the loader.
static RANGES: [[AtomicU64; 2]; 2] = [const { [const { AtomicU64::new(0) }; 2] }; 2];

/// Remembers where libc and the loader lie. In the constructor.
pub fn remember(ranges: [(u64, u64); 2]) {
    for (place, (start, end)) in RANGES.iter().zip(ranges) {
        place[0].store(start, Ordering::Relaxed);
        place[1].store(end, Ordering::Relaxed);
    }
}

/// Whether this address lies in libc's text or the loader's.
pub fn has(address: u64) -> bool {
    let bound = |word: &AtomicU64| word.load(Ordering::Relaxed);
    RANGES.iter().any(|[start, end]| (bound(start)..bound(end)).contains(&address))
}

/// Whether libc, or the loader, made this call for itself.
pub fn is_own(call: &Call) -> bool {
    // SAFETY: behind the call in every stub, and in the trap's gate, stands the distance to the place of the instruction.
    let distance = unsafe { ((call.caller + 3) as *const i32).read_unaligned() };
    let site = call.caller.wrapping_add_signed(i64::from(distance));
    let function = real::SYSCALL.get() as u64;
    has(site) && !(function..function + FUNCTION_BYTES).contains(&site)
}
