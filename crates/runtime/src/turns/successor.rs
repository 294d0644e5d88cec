//! A successor: a standby that takes the heir's place once it is there, since its text has a milestone that the heir's has not.
//!
//! The heir follows until then: nobody counts the new milestone before every thread stands still for the clone, and there the heir is
//! given up. So a kill meets one of the two at every moment.

use core::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use us_abi::{Cause, SegmentHeader, alone};

use crate::sys::milestones;
use crate::verdict::{drop_heir, drop_standby};
use crate::{raw, seats, state};

/// Why a standby is given up for another whose text has one more milestone.
pub const WHY: &[u8] =
    b"a thread computes while others wait: from here on it gives its turn back at a milestone";
/// How long a successor may take to come, ns.
const COMES_NS: u64 = 500_000_000;
/// When it was asked for, CLOCK_MONOTONIC ns; 0 for not.
static ASKED_NS: AtomicU64 = AtomicU64::new(0);
/// Whether the standby that is being made is one: then it counts from its beginning, in a log that goes on.
static IS_MADE: AtomicBool = AtomicBool::new(false);

/// A milestone has been chosen, and the next standby has it: asks for a successor. Whether it is on its way; if not, the heir has to be
/// given up first.
pub fn is_coming() -> bool {
    let Some(header) = state::header() else { return false };
    let may_be = header.alone.load(Ordering::Acquire) == alone::NO
        && state::has_standby()
        && !state::is_recorded()
        && !state::is_mirrored();
    let now_ns = raw::now_ns();
    let asked_ns = ASKED_NS.load(Ordering::Relaxed);
    if !may_be || asked_ns != 0 && now_ns.saturating_sub(asked_ns) > COMES_NS {
        not_wanted(header);
        return false;
    }
    if asked_ns == 0 && ASKED_NS.compare_exchange(0, now_ns, Ordering::Relaxed, Ordering::Relaxed).is_ok() {
        header.successor.store(1, Ordering::Release);
        state::attention();
    }
    true
}

/// None is wanted, or there is one.
fn not_wanted(header: &SegmentHeader) {
    header.successor.store(0, Ordering::Release);
    ASKED_NS.store(0, Ordering::Relaxed);
}

/// A clone begins, of a spare or not.
pub fn clone_begins(header: &SegmentHeader, is_spare: bool) {
    let is_wanted = header.successor.load(Ordering::Acquire) != 0 && milestones::is_chosen();
    IS_MADE.store(is_spare && is_wanted, Ordering::Relaxed);
}

/// Whether the standby of this clone is one.
pub fn is_made() -> bool {
    IS_MADE.load(Ordering::Relaxed)
}

/// Every thread stands still, and the successor in this seat is there: nobody else follows from here on.
pub fn takes_place(header: &SegmentHeader, seat: u32) {
    seats::drop_others(header, Some(seat), Cause::CannotReplay, &[WHY]);
    // The last heir may have died, and this one have moved up already.
    if header.heir.load(Ordering::Acquire) != seat {
        drop_heir(header, Cause::CannotReplay, &[WHY]);
    }
    not_wanted(header);
}

/// A clone has made an heir where there was nobody: with the milestone, if one was chosen.
pub fn is_heir(header: &SegmentHeader) {
    if !milestones::is_chosen() {
        not_wanted(header);
    }
}

/// There is none after all. Nobody can follow if the milestone is there.
pub fn is_not_made(header: &SegmentHeader) {
    if !milestones::is_chosen() {
        not_wanted(header);
        drop_standby(Cause::CannotReplay, &[WHY]);
    }
}

/// As a copy that takes over, before anybody follows it: one that has come meanwhile has another text.
pub fn take_over(header: &SegmentHeader) {
    if header.successor.load(Ordering::Acquire) != 0 {
        seats::drop_spares(header, Cause::CannotReplay, &[WHY]);
    }
    not_wanted(header);
    IS_MADE.store(false, Ordering::Relaxed);
}
