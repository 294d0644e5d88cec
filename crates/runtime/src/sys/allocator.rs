//! What glibc's allocator asks of the kernel, once, in whichever thread gets there first.
//!
//! Allocators are opaque: which thread trims a heap, or opens a new arena, depends on addresses and on who
//! found a lock taken, and differs between the copies. The two questions glibc's asks on the way would be
//! logged in one thread and looked for in another. So they are answered in every copy with the answer of a
//! system without `/proc` and `/sys`, for which glibc has defaults: memory is not strictly accounted, and
//! the number of processors is that of the affinity mask.
//!
//! Only in a multithreaded process, where the order is in danger: a program that reads these files itself
//! does so when it starts.
//!
//! Where an allocator's own library lies is kept here, too.

use core::sync::atomic::{AtomicUsize, Ordering};

use crate::call::Call;
use crate::guest;
use crate::raw::nr::OPENAT;
use crate::thread::{Mode, Thread};

const READ_ONLY_CLOEXEC: u64 = 0o2000000;
const QUESTIONS: [&[u8]; 2] = [b"/proc/sys/vm/overcommit_memory\0", PROCESSORS];
const PROCESSORS: &[u8] = b"/sys/devices/system/cpu/online\0";
/// Where libc counts processors next, if the first place is not there.
const PROCESSORS_ELSE: &[u8] = b"/proc/stat\0";

/// First address of the allocator's library, 0 for none.
static START: AtomicUsize = AtomicUsize::new(0);
/// One past its last address.
static END: AtomicUsize = AtomicUsize::new(0);

/// Remembers where the allocator's library lies. In the constructor.
pub fn remember((start, end): (u64, u64)) {
    START.store(start as usize, Ordering::Relaxed);
    END.store(end as usize, Ordering::Relaxed);
}

/// Whether the code at `caller` belongs to an allocator. Allocators take mutexes in an order that depends
/// on addresses; logged, redis with jemalloc diverged after 15 000 events.
#[inline(always)]
pub fn opaque(caller: usize) -> bool {
    let start = START.load(Ordering::Relaxed);
    caller.wrapping_sub(start) < END.load(Ordering::Relaxed).wrapping_sub(start)
}

/// Whether a call is one of those questions.
pub fn asks(thread: &mut Thread, call: &Call) -> bool {
    if thread.locks() == Mode::Solo || call.nr != OPENAT || call.args[2] & 0xffff_ffff != READ_ONLY_CLOEXEC {
        return false;
    }
    let mut start = [0u8; 8];
    // A path that is shorter than this, at the end of what can be read, is none of them.
    let is_likely = guest::read(start.as_mut_ptr(), call.args[1], start.len())
        && QUESTIONS.iter().chain([&PROCESSORS_ELSE]).any(|path| path[..start.len()] == start);
    let goes_on = core::mem::take(&mut thread.lately.counts_processors);
    is_likely && is_asked(thread, call, goes_on)
}

#[inline(never)]
fn is_asked(thread: &mut Thread, call: &Call, goes_on: bool) -> bool {
    if goes_on && names(call, PROCESSORS_ELSE) {
        return true;
    }
    thread.lately.counts_processors = names(call, PROCESSORS);
    QUESTIONS.iter().any(|path| names(call, path))
}

fn names(call: &Call, path: &[u8]) -> bool {
    let mut start = [0u8; 31];
    let start = &mut start[..path.len()];
    guest::read(start.as_mut_ptr(), call.args[1], start.len()) && start == path
}
