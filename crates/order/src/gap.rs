//! Tickets that died with the primary.
//!
//! A thread takes a ticket with one atomic add and publishes the event a few instructions later. Killed in
//! between, it leaves a ticket that no ring holds: a *gap*. Events behind the gap are good: whatever can
//! have influenced them was published before them, so the lost event influenced nobody.

/// An unconsumed event of a ring, as far as gaps are concerned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pending<Clock> {
    /// Name of the clock that the event's ticket belongs to.
    pub clock: Clock,
    /// The ticket.
    pub ticket: u64,
}

/// The lowest ticket of `clock` among all unconsumed events of all rings.
///
/// The caller passes *every* event between head and tail of *every* ring, those of threads that the standby
/// has not created yet included. Ring heads are not enough: a lower ticket may sit behind an event that
/// waits for another clock.
#[must_use]
pub fn lowest_unconsumed<Clock: PartialEq>(
    pending: impl Iterator<Item = Pending<Clock>>,
    clock: &Clock,
) -> Option<u64> {
    pending.filter(|p| p.clock == *clock).map(|p| p.ticket).min()
}

/// The value to which a clock must be advanced because its next tickets were never published, or `None` if
/// there is no gap.
///
/// Valid only when rings are final (the primary is fenced): before that, the event may still come. Read the clock
/// *after* the scan that gave `lowest_unconsumed`. A gap that is reported then is stable, since the event that
/// would move the clock does not exist, and a plain store is enough. Read before the scan, the clock may be stale and
/// the store may set it back behind an event that has just been applied; a repeated scan heals that, but
/// tickets would be given twice after the promotion.
#[must_use]
pub fn skip_to(clock_value: u64, lowest_unconsumed: Option<u64>) -> Option<u64> {
    lowest_unconsumed.filter(|&lowest| lowest > clock_value)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn no_gap_without_a_later_event() {
        assert_eq!(skip_to(5, None), None);
        assert_eq!(skip_to(5, Some(5)), None);
        assert_eq!(skip_to(5, Some(7)), Some(7));
    }

    #[test]
    fn a_clock_beyond_an_event_is_no_gap() {
        // The event has been applied, its clock advanced, its head not yet: it still counts as unconsumed.
        assert_eq!(skip_to(6, Some(5)), None);
    }

    #[test]
    fn other_clocks_do_not_count() {
        let events = [Pending { clock: 1, ticket: 3 }, Pending { clock: 2, ticket: 9 }];
        assert_eq!(lowest_unconsumed(events.into_iter(), &2), Some(9));
        assert_eq!(lowest_unconsumed(events.into_iter(), &3), None);
    }

    proptest! {
        /// Skipping and applying reaches every published ticket once, in order, whatever is missing.
        #[test]
        fn skipping_visits_all_in_order(mut tickets in proptest::collection::btree_set(0u64..64, 0..40)) {
            let published = tickets.clone();
            let mut clock = 0;
            let mut last = None;
            let mut applied = 0;
            while !tickets.is_empty() {
                let pending = tickets.iter().map(|&ticket| Pending { clock: 0, ticket });
                clock = skip_to(clock, lowest_unconsumed(pending, &0)).unwrap_or(clock);
                prop_assert!(tickets.remove(&clock));
                prop_assert!(last < Some(clock));
                last = Some(clock);
                clock = crate::ticket::after(clock);
                applied += 1;
            }
            prop_assert_eq!(applied, published.len());
        }
    }
}
