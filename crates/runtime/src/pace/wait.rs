//! Threads that wait until their standby has come nearer: one of them looks for all.
//!
//! Each look is a nap, a few cache lines and two changes of what runs on a processor. With a look of each thread's own, thirty
//! threads spent more time looking than their standby gained.

use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use us_abi::{SegmentHeader, THREADS_MAX};

use super::{standby_lately, threads};
use crate::{raw, seats};

/// Between two looks at a standby that is waited for, ns: at first, and at the most. Each look costs a few microseconds.
const LOOK_NS: u64 = 20_000;
/// See `LOOK_NS`.
const LOOK_MAX_NS: u64 = 160_000;
/// Who has not looked for so long does not any more, ns: it has been stopped, or has ended in another process's copy.
const ABSENT_NS: u64 = 4_000_000;
/// Nobody needs to look for itself that often, ns, and with each that waits less often.
const ALONE_NS: u64 = 5_000_000;
/// See `ALONE_NS`.
const ALONE_EACH_NS: u64 = 40_000;

/// What a slot's thread waits for.
struct Wish {
    /// The position that its standby is to reach.
    position: AtomicU64,
    /// 1 while it waits: a futex.
    waits: AtomicU32,
}

static WISHES: [Wish; THREADS_MAX] =
    [const { Wish { position: AtomicU64::new(0), waits: AtomicU32::new(0) } }; THREADS_MAX];
/// How many wait.
static COUNT: AtomicU32 = AtomicU32::new(0);
/// The slot, and one, of the thread that looks; 0 for none.
static LOOKER: AtomicU32 = AtomicU32::new(0);
/// When it looked last, ns.
static LOOKED_NS: AtomicU64 = AtomicU64::new(0);
/// What the standbys had applied then, and since when that is so, ns.
static APPLIED: [AtomicU64; 2] = [const { AtomicU64::new(0) }; 2];

/// A thread that waits.
pub struct Waiting {
    slot: u32,
    looks: bool,
    pause_ns: u64,
    /// When it last woke.
    pub now_ns: u64,
}

impl Waiting {
    /// The thread of this slot waits until its standby is at `position`.
    pub fn begin(slot: u32, position: u64, now_ns: u64) -> Waiting {
        let wish = &WISHES[slot as usize];
        wish.position.store(position, Ordering::Relaxed);
        // Before the look at who looks: one that leaves does it the other way round, and either sees the other.
        wish.waits.store(1, Ordering::SeqCst);
        COUNT.fetch_add(1, Ordering::Relaxed);
        Waiting { slot, looks: false, pause_ns: LOOK_NS, now_ns }
    }

    /// Whether it is this thread that looks for all; it becomes the one if there is none.
    pub fn looks(&mut self) -> bool {
        let own = self.slot + 1;
        let looker = LOOKER.load(Ordering::SeqCst);
        self.looks = looker == own
            || (looker == 0 || self.now_ns.saturating_sub(LOOKED_NS.load(Ordering::Relaxed)) > ABSENT_NS)
                && LOOKER.compare_exchange(looker, own, Ordering::SeqCst, Ordering::Relaxed).is_ok();
        if self.looks {
            LOOKED_NS.store(self.now_ns, Ordering::Relaxed);
        }
        self.looks
    }

    /// Sleeps until it is time to look, or somebody who has looked says that it is.
    pub fn wait(&mut self) {
        if self.looks {
            raw::nap(self.pause_ns);
            self.pause_ns = (self.pause_ns * 2).min(LOOK_MAX_NS);
        } else {
            let alone_ns = ALONE_NS + ALONE_EACH_NS * u64::from(COUNT.load(Ordering::Relaxed));
            let waits = &WISHES[self.slot as usize].waits;
            raw::futex_wait(waits, 1, alone_ns);
            waits.store(1, Ordering::SeqCst);
        }
        self.now_ns = raw::now_ns();
    }

    /// What the standbys have applied, and since when there is nothing new, ns. Who looks wakes all whose wish has come true.
    pub fn look(&self, header: &SegmentHeader) -> (u64, u64) {
        let [applied, since_ns] = &APPLIED;
        if self.looks {
            LOOKED_NS.store(self.now_ns, Ordering::Relaxed);
            let new = standby_lately(header, self.now_ns).0;
            if applied.swap(new, Ordering::Relaxed) != new {
                since_ns.store(self.now_ns, Ordering::Relaxed);
            }
            for (slot, wish) in waiting(header) {
                let head = seats::slowest(slot).unwrap_or(u64::MAX);
                if slot != self.slot && head >= wish.position.load(Ordering::Relaxed) {
                    wake(wish);
                }
            }
        }
        (applied.load(Ordering::Relaxed), since_ns.load(Ordering::Relaxed))
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        WISHES[self.slot as usize].waits.store(0, Ordering::SeqCst);
        COUNT.fetch_sub(1, Ordering::Relaxed);
        if self.looks {
            let _ = LOOKER.compare_exchange(self.slot + 1, 0, Ordering::SeqCst, Ordering::Relaxed);
        }
        // Another one is to look from here on. Whoever leaves asks: the one that was woken for it may have been about to.
        if LOOKER.load(Ordering::SeqCst) == 0
            && let Some(header) = crate::state::header()
            && let Some((_, next)) = waiting(header).next()
        {
            wake(next);
        }
    }
}

/// Whoever waits, with its slot.
fn waiting(header: &SegmentHeader) -> impl Iterator<Item = (u32, &'static Wish)> {
    let slots = (threads(header) as usize).min(THREADS_MAX);
    (0..).zip(&WISHES[..slots]).filter(|(_, wish)| wish.waits.load(Ordering::SeqCst) == 1)
}

fn wake(wish: &Wish) {
    if wish.waits.swap(0, Ordering::AcqRel) == 1 {
        raw::futex_wake(&wish.waits, 1);
    }
}
