//! When an event's turn has come.

/// What a waiting thread learns by comparing its event's ticket with the local clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Turn {
    /// Apply the event now, then advance the clock to [`after`](after()), and only then the ring's head.
    Now,
    /// Earlier tickets of this clock are outstanding.
    NotYet,
    /// The clock has passed the ticket: the two copies no longer tell the same story (a divergence).
    Passed,
}

/// Compares a local clock with the ticket of the event at a ring's head.
#[must_use]
pub fn turn(clock: u64, ticket: u64) -> Turn {
    match ticket.cmp(&clock) {
        core::cmp::Ordering::Equal => Turn::Now,
        core::cmp::Ordering::Greater => Turn::NotYet,
        core::cmp::Ordering::Less => Turn::Passed,
    }
}

/// The clock's value once the event with this ticket has been applied.
#[must_use]
pub fn after(ticket: u64) -> u64 {
    ticket + 1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn turns() {
        assert_eq!(turn(4, 4), Turn::Now);
        assert_eq!(turn(3, 4), Turn::NotYet);
        assert_eq!(turn(5, 4), Turn::Passed);
        assert_eq!(turn(after(4), 5), Turn::Now);
    }
}
