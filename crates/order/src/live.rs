//! When replaying ends and acting begins.

/// How far a ring has been consumed. Counts of events (or bytes) since the ring was made; they never wrap.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RingView {
    /// Consumed: applied in full, clock advanced.
    pub head: u64,
    /// Published.
    pub tail: u64,
}

/// How much a standby has still to apply, in the rings of its whole group.
///
/// A promotion waits for zero: before anything is settled, and again before anybody acts. Rings of threads that do not
/// exist yet in the standby are part of the group. One thread that goes live while another still has an event to apply
/// can take the lock, the semaphore count or the descriptor number that the event speaks of. Valid only when rings are
/// final; then a drained ring stays drained, and the rings may be looked at one after the other.
#[must_use]
pub fn unapplied(rings: impl Iterator<Item = RingView>) -> u64 {
    // Where more has been applied than was published there is nothing left, and an invariant is broken (`crate::invariant`).
    rings.map(|ring| ring.tail.saturating_sub(ring.head)).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_undrained_ring_keeps_everybody_back() {
        let done = RingView { head: 4, tail: 4 };
        let busy = RingView { head: 3, tail: 4 };
        assert_eq!(unapplied([done, done].into_iter()), 0);
        assert_eq!(unapplied([done, busy].into_iter()), 1);
        assert_eq!(unapplied(core::iter::empty()), 0);
    }
}
