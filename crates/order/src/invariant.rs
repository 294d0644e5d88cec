//! What holds of every log, whatever happens: judged wherever a look costs nothing, in what ships as well.
//!
//! Each has a name. Where one does not hold, somebody's memory or a rule is broken, and whoever finds it says the name
//! and gives up what is built on the log: the standby, and not the program.

use crate::gap::Pending;
use crate::live::RingView;

/// What must hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Invariant {
    /// A reader is never past the writer.
    AppliedIsPublished = 1,
    /// A thread publishes the tickets that it takes from one clock in their order.
    TicketsAscend = 2,
    /// A clock shows no more than the ticket of an event that is still to be applied.
    ClockIsNotAhead = 3,
    /// Nobody but a ring's thread moves its tail.
    OneWriter = 4,
    /// Once a primary is fenced its rings grow by what settling appends, and by nothing else.
    RingsAreFinal = 5,
    /// Nothing is published while every thread is parked.
    NobodyWritesParked = 6,
}

impl Invariant {
    /// What is said of one that is broken: that it should hold.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Invariant::AppliedIsPublished => "nothing is applied before it is published",
            Invariant::TicketsAscend => "a thread publishes its tickets of one clock in order",
            Invariant::ClockIsNotAhead => "no clock is past an event that is still to be applied",
            Invariant::OneWriter => "a ring has one writer",
            Invariant::RingsAreFinal => "the rings of a dead primary are final",
            Invariant::NobodyWritesParked => "nothing is published while every thread is parked",
        }
    }
}

/// Whether no ring has been applied beyond what was published. The heads are read before the tails.
#[must_use]
pub fn applied_is_published(mut rings: impl Iterator<Item = RingView>) -> bool {
    rings.all(|ring| ring.head <= ring.tail)
}

/// Which invariant the tickets of one clock break, in the events that one ring still holds. `shown` is what the clock showed
/// before the ring's head was read, and later than the fence: the events are all that there will be.
///
/// The first event may have been applied already, and its head be about to move: nothing is said of it.
#[must_use]
pub fn broken_by<Clock: PartialEq>(
    clock: &Clock,
    shown: u64,
    unapplied: impl Iterator<Item = Option<Pending<Clock>>>,
) -> Option<Invariant> {
    let mut last = None;
    for (number, event) in unapplied.enumerate() {
        let Some(event) = event.filter(|event| event.clock == *clock) else { continue };
        if last.is_some_and(|last| event.ticket <= last) {
            return Some(Invariant::TicketsAscend);
        }
        if number > 0 && event.ticket < shown {
            return Some(Invariant::ClockIsNotAhead);
        }
        last = Some(event.ticket);
    }
    None
}

#[cfg(test)]
mod tests {
    extern crate std;
    use std::vec::Vec;

    use super::*;
    use proptest::prelude::*;

    fn events(tickets: &[u64]) -> impl Iterator<Item = Option<Pending<u8>>> {
        tickets.iter().map(|&ticket| Some(Pending { clock: 0, ticket }))
    }

    #[test]
    fn a_reader_past_its_writer() {
        let sound = RingView { head: 4, tail: 4 };
        let broken = RingView { head: 5, tail: 4 };
        assert!(applied_is_published([sound, sound].into_iter()));
        assert!(!applied_is_published([sound, broken].into_iter()));
    }

    #[test]
    fn tickets_of_a_ring() {
        assert_eq!(broken_by(&0, 3, events(&[3, 4, 9])), None);
        assert_eq!(broken_by(&0, 4, events(&[3, 4, 9])), None, "the first may have been applied");
        assert_eq!(broken_by(&0, 3, events(&[3, 5, 4])), Some(Invariant::TicketsAscend));
        assert_eq!(broken_by(&0, 3, events(&[3, 3])), Some(Invariant::TicketsAscend));
        assert_eq!(broken_by(&0, 5, events(&[3, 4, 9])), Some(Invariant::ClockIsNotAhead));
    }

    #[test]
    fn other_clocks_and_events_without_a_ticket_say_nothing() {
        let other = [Some(Pending { clock: 1, ticket: 0 }), None, Some(Pending { clock: 0, ticket: 7 })];
        assert_eq!(broken_by(&0, 7, other.into_iter()), None);
    }

    #[test]
    fn each_has_a_number_and_a_name_of_its_own() {
        const ALL: [Invariant; 6] = [
            Invariant::AppliedIsPublished,
            Invariant::TicketsAscend,
            Invariant::ClockIsNotAhead,
            Invariant::OneWriter,
            Invariant::RingsAreFinal,
            Invariant::NobodyWritesParked,
        ];
        for (at, one) in ALL.into_iter().enumerate() {
            assert_eq!(one as usize, at + 1);
            assert!(ALL[at + 1..].iter().all(|other| other.name() != one.name()));
        }
    }

    proptest! {
        /// Threads that take tickets from one clock and publish them at once, one of them behind the other in each ring, and a
        /// standby that has applied all below any ticket: nothing is ever found.
        #[test]
        fn an_honest_log_breaks_nothing(takers in proptest::collection::vec(0usize..4, 0..60), applied in 0u64..60) {
            let mut rings = [const { Vec::new() }; 4];
            for (ticket, taker) in takers.iter().enumerate() {
                rings[*taker].push(ticket as u64);
            }
            for ring in rings {
                let left: Vec<u64> = ring.into_iter().filter(|ticket| *ticket >= applied).collect();
                prop_assert_eq!(broken_by(&0, applied, events(&left)), None);
            }
        }
    }
}
