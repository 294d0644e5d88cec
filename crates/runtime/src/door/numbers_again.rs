//! Numbers that the kernel gives away again though the guest knows somebody by them.
//!
//! A promoted copy, and each thread of it, keeps the numbers of its dead primary, which are free as far as the kernel knows. Once it
//! has come round, the next thread or child has such a number. Two threads of one number are one to every lock that has an owner,
//! and two of anything are one to whoever sends a signal, waits, or asks. So a thread that comes to such a number is called by
//! another, and for a child the number is passed over.

use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use super::thread::is_gone;
use crate::sys::own_table::with_own_table;
use crate::thread::{self, Mode, Shared, Thread};
use crate::{members, raw, state};

/// No number of the kernel's is as high (PID_MAX_LIMIT).
const BEYOND: u32 = 1 << 22;

/// The numbers of living threads and relatives that the kernel calls by others.
fn kept() -> impl Iterator<Item = u32> {
    let threads = thread::slots().map(thread::shared).filter(|other| {
        state::is_renumbered() && other.real_tid.load(Ordering::Acquire) != 0 && !is_gone(other)
    });
    let relatives = members::listed().map(|entry| entry.pid.load(Ordering::Relaxed));
    threads.map(Shared::guest_tid).chain(relatives.filter(|pid| members::primary_of(*pid).is_some()))
}

/// The group's number for a thread that has just been made, and has none: what the kernel calls it, unless another one has that.
/// The maker asks, and the thread itself: the first one decides.
pub(super) fn named_unlike_others(thread: &Shared, tid: u32) -> u32 {
    let mut number = tid;
    while members::is_numbered() && kept().any(|other| other == number) {
        number += BEYOND;
    }
    thread.decide_guest_tid(number)
}

/// The number that was given away last, as far as is known, and when, in units of 2^20 ns.
static LAST: AtomicU64 = AtomicU64::new(0);

/// The kernel's numbers are below this one (pid_max); 0: not known yet.
static LIMIT: AtomicU32 = AtomicU32::new(0);

/// Asks the kernel for it, once, in a thread with a descriptor table of its own. Without `/proc` it is what a kernel has that was told
/// nothing.
fn learn_limit(number: u32) {
    const USUAL: u32 = 1 << 15;
    if LIMIT.load(Ordering::Relaxed) != 0 {
        return;
    }
    let mut text = [0u8; 16];
    let bytes = raw::read_path(c"/proc/sys/kernel/pid_max", &mut text);
    let said = text.get(..bytes.max(0) as usize).unwrap_or_default();
    let limit = raw::decimal(said.trim_ascii_end()).filter(|limit| *limit <= u64::from(BEYOND));
    let usual = if number < USUAL { USUAL } else { BEYOND };
    LIMIT.store(limit.map_or(usual, |limit| limit as u32), Ordering::Relaxed);
}

/// How far it is from one number to another that comes behind it, where the kernel comes round at this limit.
const fn distance(from: u32, to: u32, limit: u32) -> u32 {
    /// The kernel begins there then (RESERVED_PIDS).
    const FIRST: u32 = 300;
    match to {
        _ if to > from => to - from,
        _ if to < FIRST => u32::MAX,
        _ => limit.saturating_sub(from) + to - FIRST + 1,
    }
}

/// Before a process is made, by a copy that acts: uses those of the kernel's next numbers up that are kept. A thread of ours,
/// which ends at once, has each of them for a moment.
pub(super) fn pass_kept(thread: &Thread) {
    /// So many numbers others may use between a look and the call.
    const NEAR: u32 = 16;
    /// And so many of them in this time: nobody looks where the next one that is kept is further away.
    const FAR: u32 = 8192;
    const SOON: u64 = 50;
    /// At most so many at a time.
    const PASSED_MAX: u32 = 8192;
    if thread.calls() == Mode::Replay || !members::is_numbered() || kept().next().is_none() {
        return;
    }
    let nearest = |from| {
        let limit = LIMIT.load(Ordering::Relaxed);
        kept().map(|number| distance(from, number, limit)).min().unwrap_or(u32::MAX)
    };
    let now = raw::now_ns() >> 20;
    let last = LAST.load(Ordering::Relaxed);
    if now - (last >> 32) <= SOON && nearest(last as u32) > FAR {
        return;
    }
    for _ in 0..PASSED_MAX {
        let made = with_own_table(|| {
            let number = raw::gettid();
            learn_limit(number);
            i64::from(number)
        });
        if made <= 0 {
            return;
        }
        LAST.store(now << 32 | made as u64, Ordering::Relaxed);
        if nearest(made as u32) > NEAR {
            return;
        }
    }
}
