//! Memory that the guest has advised not to be in a child, or to be empty there: `MADV_DONTFORK`, `MADV_WIPEONFORK`.
//!
//! A copy is a child in the kernel's eyes and the same process in the guest's. The advice is taken back for the moment of
//! the fork, and given again on both sides.

use core::sync::atomic::{AtomicBool, Ordering};

use crate::proc;
use crate::raw;
use crate::raw::nr::MADVISE;
use crate::sys::room::Room;

const DONTFORK: u64 = 10;
const DOFORK: u64 = 11;
const WIPEONFORK: u64 = 18;
const KEEPONFORK: u64 = 19;

#[derive(Clone, Copy)]
struct Range {
    start: u64,
    len: u64,
    advice: u64,
}

/// Filled by the coordinator and read by the thread that forks, while nobody else runs.
static LIST: Room<Range> = Room::new();
/// Such advice has been given. Without it nobody has to look: that costs a walk over all memory.
static ASKED: AtomicBool = AtomicBool::new(false);

/// The guest gives this advice about some of its memory.
pub fn note(advice: u64) {
    if matches!(advice, DONTFORK | WIPEONFORK) {
        ASKED.store(true, Ordering::Relaxed);
    }
}

/// Lists such memory. By the coordinator, while every thread stands still. False if there is no memory for the list.
pub fn list() -> bool {
    LIST.clear();
    if !ASKED.load(Ordering::Relaxed) {
        return true;
    }
    let (mut all, mut last) = (true, None);
    let read = proc::each_detail(|line| {
        if let Some(range) = proc::range(line) {
            last = Some(range);
        } else if let (Some(flags), Some((start, end))) = (line.strip_prefix(b"VmFlags:"), last) {
            let has = |flag: &[u8]| flags.split(|byte| *byte == b' ').any(|word| word == flag);
            // What is a device's, or grows by itself, is not the guest's to advise about.
            for (flag, advice) in [(b"dc", DONTFORK), (b"wf", WIPEONFORK)] {
                if has(flag) && !has(b"io") {
                    all &= LIST.push(Range { start, len: end - start, advice });
                }
            }
        }
    });
    read && all
}

fn each(f: impl Fn(Range) -> u64) {
    // SAFETY: listed while everybody stood still; the guest's own memory, of which nothing but the advice changes.
    unsafe {
        for range in LIST.all() {
            raw::call3(MADVISE, range.start, range.len, f(*range));
        }
    }
}

/// Before the fork.
pub fn take_back() {
    each(|range| if range.advice == DONTFORK { DOFORK } else { KEEPONFORK });
}

/// Behind it, on both sides.
pub fn give_again() {
    each(|range| range.advice);
}
