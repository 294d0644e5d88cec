//! Whether this process is of a family (`family`), and what its members say to each other in the roster.

use core::sync::atomic::{AtomicU32, Ordering, fence};

use us_abi::{CONFIG_AUTO, CONFIG_SERIAL, Family, SegmentHeader, TAKERS, TurnOrder, broken, phase};
use us_order::family::{self as rules, Phase};

use crate::state::{self, Role};
use crate::{members, raw};

/// Between two looks at the others, ns.
pub const LOOK_NS: u64 = 100_000;

/// How long one that is none of those who take over waits for them, ns.
pub const OTHERS_NS: u64 = 6_000_000_000;

/// What a process says that should be one of a family and is not yet.
pub const WHY: &[u8] = b"processes that share memory get their standbys together";

/// What is said where a family is no more.
pub const ENDED: &[u8] = b"the order of processes that share memory has ended";

/// The number of the family that this process is of, 0 for none.
pub static NUMBER: AtomicU32 = AtomicU32::new(0);

/// Whether this process is of a family.
#[inline(always)]
pub fn is_member() -> bool {
    NUMBER.load(Ordering::Relaxed) != 0
}

/// The number of the family that this process is of.
pub fn number() -> u32 {
    NUMBER.load(Ordering::Relaxed)
}

/// The family that this process is of.
pub fn own() -> Option<&'static Family> {
    members::family().filter(|_| is_member())
}

/// The turns of the family, `None` for a process by itself.
#[inline(always)]
pub fn order() -> Option<&'static TurnOrder> {
    if is_member() { members::family().map(|family| &family.order) } else { None }
}

/// What that family is at: nothing, for a process by itself, or once there is another one.
pub fn phase() -> Phase {
    let Some(family) = own() else { return Phase::None };
    let phase = Phase::from_number(family.state.0.load(Ordering::Acquire));
    if family.number.load(Ordering::Relaxed) == number() { phase } else { Phase::None }
}

/// Whether this process may be one of a family's: turns are allowed, and nobody records.
pub fn may_be() -> bool {
    let flags = members::config::get().map_or(0, |config| config.flags);
    flags & (CONFIG_AUTO | CONFIG_SERIAL) != 0 && !state::is_recorded() && !state::is_detached()
}

/// How much memory processes must share to be a family, bytes.
pub fn least_bytes() -> u64 {
    members::family().map_or(u64::MAX, us_abi::Family::least)
}

/// Whether a process that shares so much memory would be one of a family, and is by itself.
pub fn would_be_wanted(bytes: u64) -> bool {
    let is_possible = |family: &Family| family.wanted.load(Ordering::Acquire) != us_abi::FAMILY_HOPELESS;
    bytes >= least_bytes() && !is_member() && may_be() && members::family().is_some_and(is_possible)
}

/// This process goes another way again and again although its threads take turns: others change what it reads. If it shares
/// memory at all, of whatever size, that is to be followed as well.
pub fn may_be_small() {
    if let Some(family) = members::family().filter(|_| may_be()) {
        family.small.store(1, Ordering::Release);
    }
}

/// This process should be of a family. False if families have been tried and do not last.
pub fn want() -> bool {
    let Some(family) = members::family() else { return false };
    if family.wanted.load(Ordering::Acquire) == us_abi::FAMILY_HOPELESS {
        return false;
    }
    let _ = family.wanted.compare_exchange(0, 1, Ordering::AcqRel, Ordering::Relaxed);
    members::tell();
    true
}

/// Whether the clone that is asked for is one of a family that is being formed.
pub fn is_forming(header: &SegmentHeader) -> bool {
    let Some(family) = members::family() else { return false };
    let asked = header.family.load(Ordering::Acquire);
    asked != 0
        && asked == family.number.load(Ordering::Acquire)
        && family.state.0.load(Ordering::Acquire) == phase::FORMING
}

/// This process has no standby in the family that it was to be of.
pub fn fail(why: &[u8]) {
    fail_with(&[why]);
}

/// The same, with the reason in parts.
pub fn fail_with(why: &[&[u8]]) {
    break_up(why);
    leave_now();
}

/// What ends one log ends those of all.
pub fn break_up(why: &[&[u8]]) {
    let Some(family) = own().filter(|family| family.number.load(Ordering::Relaxed) == number()) else {
        return;
    };
    for from in Phase::CAN_BREAK.map(|phase| phase as u32) {
        let state = &family.state.0;
        if state.compare_exchange(from, phase::BROKEN, Ordering::AcqRel, Ordering::Acquire).is_ok() {
            state::overwrite_text(&family.why, broken::LOG, why);
            raw::futex_wake_shared(&family.order.word.0);
            members::tell();
        }
    }
}

/// This process is of no family any more, and its threads take no turns.
pub fn leave() {
    if NUMBER.swap(0, Ordering::Relaxed) != 0 {
        state::take_turns(false);
        if let Some(header) = state::header() {
            header.family.store(0, Ordering::Release);
            header.turns.store(0, Ordering::Release);
        }
    }
}

/// The same as a primary whose standby is about to be ended. While the others take over it stands still: if it was still one
/// of them when they began, it is killed here, and its standby is awaited by all.
pub fn leave_now() {
    let was = number();
    leave();
    // Either whoever has them take over sees that this process has left, or we see that they do.
    fence(Ordering::SeqCst);
    let Some(family) = members::family().filter(|_| was != 0 && state::role() == Role::Primary) else {
        return;
    };
    let start = raw::now_ns();
    while rules::waits_to_end(Phase::from_number(family.state.0.load(Ordering::SeqCst)))
        && family.number.load(Ordering::Acquire) == was
        && raw::now_ns() - start < OTHERS_NS
    {
        raw::nap(LOOK_NS);
    }
}

/// Notes who has a turn, so that the standbys know whom to wake for it. By its primary, before the log says so.
pub fn note_taker(number: u64) {
    if let (Some(family), Some(at)) = (own(), members::own().and_then(members::index_of)) {
        family.takers[number as usize % TAKERS].store(at as u32 + 1, Ordering::Relaxed);
    }
}

/// The turns below `number` have ended: whoever has that one may sleep on an event that has come meanwhile.
pub fn kick(number: u64) {
    let Some(family) = own().filter(|family| family.order.next.load(Ordering::Acquire) > number) else {
        return;
    };
    let taker = family.takers[number as usize % TAKERS].load(Ordering::Relaxed);
    if let Some(kick) = family.kicks.get((taker as usize).wrapping_sub(1)) {
        kick.fetch_add(1, Ordering::AcqRel);
        raw::futex_wake_shared(kick);
    }
}

/// What the threads of this process's standby sleep on.
pub fn own_kick() -> Option<&'static AtomicU32> {
    let family = own()?;
    family.kicks.get(members::index_of(members::own()?)?)
}

/// The family that this copy takes over with. `None` by itself: also when the others were about to when it was made, and
/// have; then it has not taken a turn.
pub fn taking_over() -> Option<&'static Family> {
    own().filter(|_| rules::is_together(phase()))
}

/// The family that this copy takes over with. It is of none any more.
pub fn taken_over() -> Option<&'static Family> {
    let family = taking_over();
    leave();
    family
}
