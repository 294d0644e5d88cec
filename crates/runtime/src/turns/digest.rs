//! What is told of a computed order: its digest, and how many turns there were.
//!
//! Every copy keeps both, each turn in its place: a copy that takes over goes on with them. Those who act show them in the segment.

use core::sync::atomic::{AtomicU64, Ordering};

use us_abi::SegmentHeader;
use us_order::digest::{Decided, Digest};

use crate::state;

static DIGEST: AtomicU64 = AtomicU64::new(0);
static TURNS: AtomicU64 = AtomicU64::new(0);
/// Of these: whose place the world has said.
static PLACED: AtomicU64 = AtomicU64::new(0);

/// The last of them: its clock and slot.
static LAST: AtomicU64 = AtomicU64::new(u64::MAX);

/// Of a door's kind: a function that only changes what others wait for. The next number is one that acquires.
pub const FUNCTION: u16 = 1;
/// The kind of the first system call; the others lie behind it.
const CALLS: u16 = 16;

/// The kind of a system call.
pub const fn of_call(nr: u16) -> u16 {
    CALLS + nr
}

/// By the thread whose turn begins, before anybody else can have the next one. One that it has had already, and takes anew behind a
/// clone, is the same turn: between two of a thread its clock goes on.
pub fn add(turn: Decided) {
    let last = turn.clock << 16 | u64::from(turn.slot);
    if LAST.load(Ordering::Relaxed) == last {
        return;
    }
    LAST.store(last, Ordering::Relaxed);
    // One has the turn: plain additions are enough.
    let (turns, placed) =
        (TURNS.load(Ordering::Relaxed) + 1, PLACED.load(Ordering::Relaxed) + u64::from(turn.is_placed));
    let digest = Digest::from_word(DIGEST.load(Ordering::Relaxed)).with(turn).word();
    TURNS.store(turns, Ordering::Relaxed);
    PLACED.store(placed, Ordering::Relaxed);
    DIGEST.store(digest, Ordering::Relaxed);
    if !state::is_standby()
        && let Some(header) = state::header()
    {
        show(header, digest, turns, placed);
    }
}

fn show(header: &SegmentHeader, digest: u64, turns: u64, placed: u64) {
    header.order_turns.store(turns, Ordering::Relaxed);
    header.order_placed.store(placed, Ordering::Relaxed);
    header.order_digest.store(digest, Ordering::Relaxed);
}

/// In a program's image that begins in a process of the group: with what the one before has left.
pub fn go_on(header: &SegmentHeader) {
    TURNS.store(header.order_turns.load(Ordering::Relaxed), Ordering::Relaxed);
    PLACED.store(header.order_placed.load(Ordering::Relaxed), Ordering::Relaxed);
    DIGEST.store(header.order_digest.load(Ordering::Relaxed), Ordering::Relaxed);
}

/// In a forked child, which has had no turn.
pub fn forget() {
    for word in [&TURNS, &PLACED, &DIGEST] {
        word.store(0, Ordering::Relaxed);
    }
    LAST.store(u64::MAX, Ordering::Relaxed);
}
