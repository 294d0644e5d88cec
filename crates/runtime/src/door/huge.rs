//! Huge pages for the program's large memory, with `--huge-pages`: a new standby's page tables are five hundred times smaller
//! there, and making them is what the program stands still for.
//!
//! It is advice, and the program's own comes after it: what it says to a range counts, and the kernel gives none to a program
//! that wants none (`PR_SET_THP_DISABLE`).

use core::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use crate::call::Call;
use crate::kernel::{MADV_HUGEPAGE, MAP_ANONYMOUS, MAP_PRIVATE, MAP_STACK, MAP_TYPE, PROT_WRITE};
use crate::raw::{self, failed};

/// The least that is advised, bytes: neighbours of one kind become one mapping, which may have room for a huge page.
const LARGE: u64 = 1 << 20;

static IS_WANTED: AtomicBool = AtomicBool::new(false);
/// Up to here the heap has been advised.
static HEAP_END: AtomicU64 = AtomicU64::new(0);

/// Before there are two copies.
pub fn want(is_wanted: bool) {
    IS_WANTED.store(is_wanted, Ordering::Relaxed);
    if is_wanted {
        // SAFETY: asks where the heap ends.
        HEAP_END.store(unsafe { raw::call1(raw::nr::BRK, 0) } as u64, Ordering::Relaxed);
    }
}

/// Memory has been mapped, if the call has succeeded.
#[inline]
pub fn mapped(call: &Call, result: i64) {
    let [_, bytes, prot, flags, ..] = call.args;
    if IS_WANTED.load(Ordering::Relaxed)
        && bytes >= LARGE
        && prot & PROT_WRITE != 0
        && flags & (MAP_TYPE | MAP_ANONYMOUS | MAP_STACK) == MAP_PRIVATE | MAP_ANONYMOUS
        && !failed(result)
    {
        advise(result as u64, bytes);
    }
}

/// The heap ends at this address, as brk has told.
#[inline]
pub fn heap(end: i64) {
    if !IS_WANTED.load(Ordering::Relaxed) || failed(end) {
        return;
    }
    let (end, last) = (end as u64, HEAP_END.load(Ordering::Relaxed));
    if end < last {
        HEAP_END.store(end, Ordering::Relaxed);
    } else if end - last >= LARGE {
        HEAP_END.store(end, Ordering::Relaxed);
        let start = last & !0xfff;
        advise(start, end - start);
    }
}

fn advise(start: u64, bytes: u64) {
    // SAFETY: changes nothing of what the memory holds; a kernel without huge pages refuses.
    unsafe { raw::call3(raw::nr::MADVISE, start, bytes, MADV_HUGEPAGE) };
}
