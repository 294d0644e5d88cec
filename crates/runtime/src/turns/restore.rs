//! The race of [`crate::turns::logical`] in a copy that takes over.
//!
//! The copy has kept it: each thread here has changed it as far as it has come. So nobody has to ask how far its primary's threads had
//! come behind the log. Only of a thread in a call the copy does not know where it is: whether the kernel would answer at once was
//! for the primary to ask.

use core::sync::atomic::Ordering;

use us_abi::THREADS_MAX;
use us_order::logical::At;

use crate::turns::logical::{self, HAS_BEGUN, NOBODY, OWNER, WATCHER, place};
use crate::{state, thread};

/// At a promotion, before anybody is live.
pub fn restore() {
    if !HAS_BEGUN.load(Ordering::Relaxed) || !state::is_computed() {
        return;
    }
    WATCHER.store(NOBODY, Ordering::Relaxed);
    logical::with(THREADS_MAX, |times| {
        each(|slot| {
            let (own, turn) = (slot as usize, &thread::shared(slot).turn);
            if turn.is_out() {
                match place_of(slot) {
                    (place::HERE, clock) => times.put_back(own, clock),
                    (place::AWAY, _) => times.leave(own),
                    _ => {}
                }
            }
            if turn.glances() && matches!(times.at(own), At::Asleep { .. }) {
                times.come_back(own);
            }
        });
        // One that was passed over is in no order: it must not come before the one whose turn it is. Who has given that back
        // meanwhile is not the owner any more before its clock goes on.
        let owner = OWNER.load(Ordering::Relaxed) as usize;
        if owner < THREADS_MAX {
            each(|slot| {
                if slot as usize != owner && times.is_before(slot as usize, owner) {
                    times.come_back(slot as usize);
                }
            });
        }
    });
}

/// Every thread with a place in the segment that has not ended in this copy.
fn each(mut act: impl FnMut(u32)) {
    thread::for_each(|thread| {
        if !thread::is_beyond(thread.slot()) && thread.has_ring() && !thread.turn.has_ended() {
            act(thread.slot());
        }
    });
}

/// What the segment says of a thread.
fn place_of(slot: u32) -> (u64, u64) {
    let word = state::entry(slot).logical.load(Ordering::Acquire);
    (word & ((1 << place::BITS) - 1), word >> place::BITS)
}
