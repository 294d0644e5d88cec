//! Having a program look at what is asked of it.

use std::sync::atomic::Ordering;

use us_abi::{TID_MASK, slot};

use crate::segment::Segment;
use crate::{clock, proc, spawn};

/// Between two signals.
const NUDGE_NS: u64 = 20_000_000;

/// Signals to a program's threads, one after the other, until somebody has looked.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Knock {
    /// When the next is due.
    pub(crate) due_ns: u64,
    /// The slot to begin with.
    slot: usize,
}

impl Knock {
    /// Makes a thread of the process `pid` look at its header's command, if it is time for another signal.
    pub(crate) fn at(&mut self, segment: &Segment, pid: u32) {
        let now = clock::monotonic_ns();
        if now < self.due_ns {
            return;
        }
        self.due_ns = now + NUDGE_NS;
        let slots = segment.slots();
        let able = |at: &usize| {
            let entry = segment.thread(*at);
            let notice = entry.notice.word.load(Ordering::Acquire);
            // After an exec that said nothing the notices are those of dead threads.
            entry.state.load(Ordering::Acquire) == slot::RUNNING
                && !entry.died()
                && notice & TID_MASK == entry.primary_tid.load(Ordering::Acquire)
                && notice & TID_MASK != 0
        };
        let at = (self.slot..slots).chain(0..self.slot.min(slots)).find(able);
        self.slot = at.map_or(0, |at| at + 1);
        // Where no thread has given notice yet, the first one may hear it all the same.
        let tid = at.map_or(pid, |at| segment.thread(at).primary_tid.load(Ordering::Acquire));
        if proc::takes_nudges(pid) {
            spawn::nudge(pid, tid);
        }
    }
}
