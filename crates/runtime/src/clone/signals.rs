//! Signals that wait in the kernel, behind a mask, when a copy is made: a fork has none of them.
//!
//! Those that the program has sent to itself are in the log before the clone, so the copy would never hear of them again. Each
//! thread that has some takes them and puts them back, in the same order, while everything stands still; the copy finds
//! what they were. What others have sent is sent again by those who know of it (`members`), timers are set again.
//!
//! # Safety
//! The table is written by one parked thread at a time, at the coordinator's word, and read by the copy's first thread.

use core::cell::UnsafeCell;
use core::sync::atomic::{AtomicUsize, Ordering};

use us_world::pending::Target;

use super::park::{Place, word};
use crate::members;
use crate::proc;
use crate::raw::{self, failed};
use crate::siginfo::{Info, SI_QUEUE, SI_TKILL, SI_USER};
use crate::signal;
use crate::state;

/// Signals that one clone can carry; more are not sent again.
const KEPT_MAX: usize = 4096;

struct Kept(UnsafeCell<[(Info, Target); KEPT_MAX]>);
// SAFETY: see the module.
unsafe impl Sync for Kept {}

static KEPT: Kept = Kept(UnsafeCell::new([(Info([0; 16]), Target::slot(0)); KEPT_MAX]));
static COUNT: AtomicUsize = AtomicUsize::new(0);

/// Not cancellation, libc's own, nor what the runtime parks threads with.
const OTHERS: u64 = !(1 << 30 | 1 << 31 | 1 << 32 | 1 << 8 | 1 << 18);

/// By the coordinator, while every thread stands still: has each take note of its own, and one of the process's.
pub fn collect(places: impl Iterator<Item = *mut Place>, leader: *mut Place) {
    COUNT.store(0, Ordering::Relaxed);
    if !signal::has_sent() {
        return;
    }
    for place in places {
        // SAFETY: parked threads' places are the coordinator's.
        let place = unsafe { &mut *place };
        let tid = place.tid.load(Ordering::Acquire);
        if tid == 0 {
            continue;
        }
        let Some((own, all)) = proc::pending_signals(tid) else { continue };
        let shared = if core::ptr::eq(place, leader) { all & !own } else { 0 };
        (place.pending, place.pending_shared) = (own & OTHERS, shared & OTHERS);
        if place.pending | place.pending_shared == 0 {
            continue;
        }
        place.word.store(word::TELL, Ordering::Release);
        raw::futex_wake(&place.word, 1);
        while place.word.load(Ordering::Acquire) == word::TELL {
            raw::nap(20_000);
        }
    }
}

/// By a parked thread, at the coordinator's word: every signal is blocked.
pub fn tell(place: &Place) {
    // SAFETY: null, or parked with its block.
    let target = match unsafe { place.block.as_ref() } {
        Some(thread) => Target::slot(thread.slot()),
        // A thread in its first instructions, of which its maker has the number already.
        None => Target::numbered(crate::tls::tid_of(place.tls)),
    };
    take(place.pending, target);
    take(place.pending_shared, Target::PROCESS);
}

/// Takes what waits of `set`, notes it, and sends it again to where it was.
fn take(set: u64, target: Target) {
    let from = COUNT.load(Ordering::Relaxed);
    let mut to = from;
    let now = [0u64; 2];
    while set != 0 && to < KEPT_MAX {
        // SAFETY: the caller's turn; takes what waits, without waiting.
        unsafe {
            let place = &mut (*KEPT.0.get())[to];
            *place = (Info([0; 16]), target);
            let info = &raw mut place.0 as u64;
            if failed(raw::call4(
                raw::nr::RT_SIGTIMEDWAIT,
                &raw const set as u64,
                info,
                now.as_ptr() as u64,
                8,
            )) {
                break;
            }
        }
        to += 1;
    }
    for at in from..to {
        // SAFETY: as above.
        let info = unsafe { &(*KEPT.0.get())[at].0 };
        info.send((target != Target::PROCESS).then(raw::gettid));
    }
    COUNT.store(to, Ordering::Release);
}

/// In the copy, which still has its primary's numbers: what the program has sent to itself, and to which slot, or to
/// which thread that has none yet ([`Target::numbered`]).
pub fn each(f: &mut dyn FnMut(Info, Target)) {
    let primary = state::header().map_or(0, |header| header.primary_pid.load(Ordering::Relaxed));
    for at in 0..COUNT.swap(0, Ordering::Acquire) {
        // SAFETY: the copy's first thread, alone.
        let (mut info, target) = unsafe { (*KEPT.0.get())[at] };
        // What it queued says the number that it knows itself by.
        let own = [primary, state::GUEST_PID.load(Ordering::Relaxed)];
        let is_own =
            matches!(info.code(), SI_USER | SI_QUEUE | SI_TKILL) && own.contains(&(info.0[2] as u32));
        if is_own && members::sender_of_raised(info.signal()).is_none() {
            info.adopt_from(primary);
            f(info, target);
        }
    }
}
