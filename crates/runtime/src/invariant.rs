//! What must hold of this process's log (`us_order::invariant`), looked at where nobody is in a hurry: by the poller, at a
//! clone, at a promotion, and where a ring asks for room.
//!
//! Somebody may have written into the segment, or a rule of ours is wrong. The name is left as last words, and a primary goes on
//! without a log; a standby ends.

use core::sync::atomic::{AtomicU64, Ordering};

use us_abi::event::Header;
use us_abi::{Cause, SegmentHeader};
use us_order::gap::Pending;
use us_order::invariant::{self as rules, Invariant};
use us_order::live::RingView;
use us_ring::Position;

use crate::state::{self, Role};
use crate::{backlog, fault, seats, verdict};

/// Says which one is broken. In a primary there is no log from here on; a standby does not come back from here.
#[cold]
#[inline(never)]
fn broken(which: Invariant) {
    let why: [&[u8]; 2] = [b"an invariant is broken: ", which.name().as_bytes()];
    if let Some(header) = state::header() {
        state::write_text(&header.last_words.0, 1, &why);
    }
    match state::role() {
        Role::Primary => verdict::give_up_log(Cause::CannotReplay, &why),
        _ => verdict::end_standby(Cause::Diverged, &why),
    }
}

/// As the standby at `seat`, or as the primary that it follows: it has applied nothing that was not published.
pub fn applied_is_published(header: &SegmentHeader, seat: u32) {
    let which = Invariant::AppliedIsPublished;
    let views = seats::views(seat, header);
    let views = views.map(|view| RingView { head: fault::planted(which, view.head), ..view });
    if !rules::applied_is_published(views) {
        broken(which);
    }
}

/// Before the tail of this ring moves: whether it is where its thread left it.
pub fn one_writer(slot: u32, at: u64) -> bool {
    let is_so = fault::planted(Invariant::OneWriter, state::entry(slot).tail.0.acquire()) == at;
    if !is_so {
        broken(Invariant::OneWriter);
    }
    is_so
}

/// Where the tails of all rings are, together.
fn tails(header: &SegmentHeader) -> u64 {
    let tails = (0..header.slots.load(Ordering::Acquire)).map(|slot| state::entry(slot).tail.0.acquire());
    tails.fold(0, u64::wrapping_add)
}

/// The rings at a moment behind which nobody writes.
pub struct Still {
    which: Invariant,
    tails: u64,
    appended: u64,
}

impl Still {
    /// A promotion begins: the primary is fenced.
    pub fn final_now(header: &SegmentHeader) -> Still {
        Still::now(Invariant::RingsAreFinal, header)
    }

    /// Every thread is parked.
    pub fn parked_now(header: &SegmentHeader) -> Still {
        Still::now(Invariant::NobodyWritesParked, header)
    }

    fn now(which: Invariant, header: &SegmentHeader) -> Still {
        Still { which, tails: tails(header), appended: APPENDED.load(Ordering::Relaxed) }
    }

    /// Whether they are what they were, but for what settling has appended.
    pub fn goes_on(&self, header: &SegmentHeader) -> bool {
        let appended = APPENDED.load(Ordering::Relaxed).wrapping_sub(self.appended);
        let is_so = fault::planted(self.which, tails(header)) == self.tails.wrapping_add(appended);
        if !is_so {
            broken(self.which);
        }
        is_so
    }
}

/// Bytes that settling has appended to the rings of dead primaries, in this copy.
static APPENDED: AtomicU64 = AtomicU64::new(0);

/// Settling has appended so much.
pub fn has_appended(bytes: usize) {
    APPENDED.fetch_add(bytes as u64, Ordering::Relaxed);
}

/// The primary is fenced: what the rings hold of one clock, which showed so much before, has tickets in order. `pending` says
/// which clock's ticket an event has.
pub fn tickets_ascend<Clock: PartialEq>(
    header: &SegmentHeader,
    clock: &Clock,
    shown: u64,
    pending: impl Fn(Header) -> Option<Pending<Clock>>,
) {
    let shown = fault::planted(Invariant::ClockIsNotAhead, shown);
    for slot in 0..header.slots.load(Ordering::Acquire) {
        // In the tests the first of them comes from beyond all others.
        let mut is_first = true;
        let planted = |event: Header| {
            let event = pending(event)?;
            let is_one = event.clock == *clock && core::mem::take(&mut is_first);
            let ticket =
                if is_one { fault::planted(Invariant::TicketsAscend, event.ticket) } else { event.ticket };
            Some(Pending { ticket, ..event })
        };
        if let Some(which) = rules::broken_by(clock, shown, backlog::unapplied(slot).map(planted)) {
            return broken(which);
        }
    }
}
