//! When replaying ends and acting begins.

/// How far a ring has been consumed. Counts of events (or bytes) since the ring was made; they never wrap.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RingView {
    /// Consumed: applied in full, clock advanced.
    pub head: u64,
    /// Published.
    pub tail: u64,
}

impl RingView {
    /// True when nothing is left to apply.
    #[must_use]
    pub fn is_drained(self) -> bool {
        self.head >= self.tail
    }
}

/// True when no ring of the group holds an unconsumed event, so that settlement may begin.
///
/// Rings of threads that do not exist yet in the standby are part of the group. One thread that goes live
/// while another still has an event to apply can take the lock, the semaphore count or the descriptor number
/// that the event speaks of. Valid only when rings are final; then a drained ring stays drained, and the
/// rings may be looked at one after the other.
#[must_use]
pub fn may_go_live(mut rings: impl Iterator<Item = RingView>) -> bool {
    rings.all(RingView::is_drained)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_undrained_ring_keeps_everybody_back() {
        let done = RingView { head: 4, tail: 4 };
        let busy = RingView { head: 3, tail: 4 };
        assert!(may_go_live([done, done].into_iter()));
        assert!(!may_go_live([done, busy].into_iter()));
        assert!(may_go_live(core::iter::empty()));
    }
}
