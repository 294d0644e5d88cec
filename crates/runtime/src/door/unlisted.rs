//! Children that have not listed themselves yet: a promoted copy finds those that its dead primary had made.

use core::sync::atomic::{AtomicU32, Ordering};

use crate::{members, raw, state};

/// The last children that this process has made, in every copy.
static RECENT: [AtomicU32; 64] = [const { AtomicU32::new(0) }; 64];
static NEXT: AtomicU32 = AtomicU32::new(0);
/// How long after a promotion a child may come to list itself, ns.
const BIRTH_NS: u64 = 500_000_000;

/// In a forked child: it has made none.
pub fn forget() {
    RECENT.iter().for_each(|recent| recent.store(0, Ordering::Relaxed));
}

/// A fork has returned this.
pub fn note_forked(result: i64) {
    if result > 0 {
        let at = NEXT.fetch_add(1, Ordering::Relaxed) as usize % RECENT.len();
        RECENT[at].store(result as u32, Ordering::Relaxed);
    }
}

/// Waits until something has changed, for as long as there may be between the supervisor's reaping of a child and its word of that:
/// on a busy machine it may be interrupted there. Whether it has.
pub(super) fn await_word(mut has_changed: impl FnMut() -> bool) -> bool {
    const REAPING_MS: u32 = 20;
    (0..REAPING_MS).any(|_| {
        raw::nap(1_000_000);
        has_changed()
    })
}

/// Whether there is a child that the dead primary had made and that has not come to list itself, nor can the kernel tell
/// of it any more: `pid`, or any. Waits for a moment if so.
pub fn await_birth(pid: Option<u32>) -> bool {
    let since = state::promoted_ns();
    if since == 0 || raw::now_ns() - since > BIRTH_NS {
        return false;
    }
    let own = state::GUEST_PID.load(Ordering::Relaxed);
    let recent = || {
        RECENT.iter().filter_map(|recent| {
            let child = recent.load(Ordering::Relaxed);
            (child != 0 && pid.is_none_or(|pid| pid == child)).then_some((recent, child))
        })
    };
    let mut is_any_gone = false;
    for (_, child) in recent() {
        if members::claim_end(child, own) {
            return true;
        }
        if members::find(child).is_none() {
            if members::exists(child) {
                raw::nap(100_000);
                return true;
            }
            is_any_gone = true;
        }
    }
    if !is_any_gone {
        return false;
    }
    // The supervisor has reaped it, perhaps, and says so in a moment.
    let is_any = await_word(|| recent().any(|(_, child)| members::claim_end(child, own)));
    if !is_any {
        // Asked for no more.
        recent().for_each(|(recent, child)| {
            let _ = recent.compare_exchange(child, 0, Ordering::Relaxed, Ordering::Relaxed);
        });
    }
    is_any
}
