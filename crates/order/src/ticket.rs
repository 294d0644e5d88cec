//! When an event's turn has come.

/// Whether the event with this ticket may be applied: every earlier one of its clock has been.
///
/// Once its event is due, and until the clock is moved on behind it, the clock *shows* its ticket. A clock that is
/// beyond a ticket whose event is still to be applied means that two events had one ticket, or that a ticket was
/// skipped that was not lost: the model looks for it.
#[inline(always)]
#[must_use]
pub fn is_due(clock: u64, ticket: u64) -> bool {
    clock >= ticket
}

/// The clock's value once the event with this ticket has been applied.
#[inline(always)]
#[must_use]
pub fn after(ticket: u64) -> u64 {
    ticket + 1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_event_waits_for_those_before_it() {
        assert!(is_due(4, 4));
        assert!(!is_due(3, 4));
        assert!(is_due(after(4), 5));
    }
}
