//! Whether a thread creation in doubt has made its thread, and when a standby may make one.
//!
//! The parent publishes `ENTER` before the call and `RETURN` after it; the child publishes `START` before anything
//! else. The child may be far ahead when the parent is killed before its `RETURN`, and others may have learned from
//! it. So such a creation cannot wait for settlement, which waits for drained rings, which wait for the child: while
//! rings are being drained, its `RETURN` is appended as soon as the child is seen to exist.

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

/// How a thread that had a slot ends its use of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// There was none, or somebody has joined it.
    Joined,
    /// Nobody joins it: its end is enough.
    Detached,
    /// It is still to be joined.
    Joinable,
}

/// A slot in a standby, as its next maker sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Slot {
    /// How many threads it has had in this copy.
    pub made: u32,
    /// One of them is being made just now.
    pub is_being_made: bool,
    /// What becomes of the last.
    pub fate: Fate,
}

/// Whether the next maker may take a slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// At once.
    Free,
    /// When its last thread is gone.
    WhenGone,
    /// Not before something has changed.
    NotYet,
}

/// Whether a standby's thread may make the `generation`-th thread of a slot.
///
/// The log orders a creation neither behind the end of the slot's last thread, nor behind its joining, nor behind its
/// making by another. Too early, the new thread would find the old one's events, and a joiner that comes late would
/// wait for the new one.
#[must_use]
pub fn place_of(slot: Slot, generation: u32) -> Place {
    let its_turn = slot.made.wrapping_add(1) == generation && !slot.is_being_made;
    match slot.fate {
        Fate::Joined if its_turn => Place::Free,
        Fate::Detached if its_turn => Place::WhenGone,
        _ => Place::NotYet,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slot_is_taken_in_the_order_of_its_threads_and_behind_their_joining() {
        let slot = Slot { made: 1, is_being_made: false, fate: Fate::Joined };
        assert_eq!(place_of(slot, 2), Place::Free);
        assert_eq!(place_of(slot, 3), Place::NotYet);
        assert_eq!(place_of(Slot { is_being_made: true, ..slot }, 2), Place::NotYet);
        assert_eq!(place_of(Slot { fate: Fate::Joinable, ..slot }, 2), Place::NotYet);
        assert_eq!(place_of(Slot { fate: Fate::Detached, ..slot }, 2), Place::WhenGone);
    }

    #[test]
    fn only_a_start_in_front_is_a_sign_of_life() {
        let has = |seen: &[Seen]| has_child(seen.iter().copied());
        assert!(has(&[Seen::Start]) && has(&[Seen::Skip, Seen::Start, Seen::Other]));
        assert!(!has(&[]) && !has(&[Seen::Skip]));
        assert!(!has(&[Seen::Other, Seen::Start]), "the slot's last thread has still to end");
    }
}
