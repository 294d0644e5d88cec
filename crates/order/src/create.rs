//! Whether a thread creation in doubt has made its thread.
//!
//! The parent publishes `ENTER` before the call and `RETURN` after it; the child publishes `START` before anything else.
//! The child may be far ahead when the parent is killed before its `RETURN`, and others may have learned from it. So
//! such a creation cannot wait for settlement, which waits for drained rings, which wait for the child: while rings are
//! being drained, its `RETURN` is appended as soon as the child is seen to exist.

/// An event that has not been applied, of the ring that belongs to the slot that a creation names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Seen {
    /// One that says nothing.
    Skip,
    /// The start of a thread.
    Start,
    /// Anything else.
    Other,
}

/// Whether the creation has made its thread, by what the slot's ring holds that has not been applied.
///
/// Slots are used again: events before the start are those of the slot's last thread, which has to apply them first.
#[must_use]
pub fn has_child(mut unapplied: impl Iterator<Item = Seen>) -> bool {
    unapplied.find(|seen| *seen != Seen::Skip) == Some(Seen::Start)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_start_in_front_is_a_sign_of_life() {
        let has = |seen: &[Seen]| has_child(seen.iter().copied());
        assert!(has(&[Seen::Start]) && has(&[Seen::Skip, Seen::Start, Seen::Other]));
        assert!(!has(&[]) && !has(&[Seen::Skip]));
        assert!(!has(&[Seen::Other, Seen::Start]), "the slot's last thread has still to end");
    }
}
