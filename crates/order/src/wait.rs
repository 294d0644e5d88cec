//! How a wait on a condition ends, in a copy that keeps the queue of those who wait.
//!
//! Waking logs nothing; what a waiter does next, its re-acquisition of the mutex, is logged with what it is told. A
//! standby's queue is its primary's: joined before the mutex is released, and left when the log, or its own clock,
//! has ended the wait.

/// Whether a waiter that leaves hands a signal on to the next one: it has been woken, and its wait has ended otherwise.
///
/// By the log: in the primary it had left before the signal came, and that got somebody else. By a cancellation: it
/// has no use for it.
#[must_use]
pub fn passes_on(woken: bool, ended_otherwise: bool) -> bool {
    woken && ended_otherwise
}

/// What a waiter is told that has ended its wait with `result` by itself: one that has been woken meanwhile was
/// woken, whatever its deadline says.
#[must_use]
pub fn told(woken: bool, result: i32) -> i32 {
    if woken { 0 } else { result }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_signal_is_lost_and_none_is_doubled() {
        assert!(passes_on(true, true) && !passes_on(true, false) && !passes_on(false, true));
        assert_eq!((told(true, 110), told(false, 110), told(false, 0)), (0, 110, 0));
    }
}
