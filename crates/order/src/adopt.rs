//! Descriptors that the table has and the log has not.
//!
//! An accept or open that returned in the kernel, but was never logged, leaves a descriptor that the shadow
//! table does not know: an *orphan*. It belongs to an in-doubt call that could have made it. Left alone, a client
//! would be connected to nobody and a number would be lost for good.

/// What a call makes, or what an orphan is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Class {
    /// An end of an unnamed pipe.
    Pipe,
    /// A socket without a name and without a peer's.
    Socket,
    /// Something of the kernel's own without a name: epoll, eventfd, timerfd, memfd ...
    Anonymous,
    /// Something with a path.
    Named,
    /// A connection that was accepted: never thrown away.
    Accepted,
    /// A duplicate of a descriptor: as above.
    Duplicate,
    /// Of a call: whatever another process has open.
    Anything,
}

/// What is known of a number that the table has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Number {
    /// The log has given it away, and not taken it back.
    pub is_logged: bool,
    /// A close in doubt that was not done names it, or another call has brought it and says so.
    pub is_claimed: bool,
}

/// Whether a number is nobody's. Closes in doubt are settled first: a number whose close is still to come looks like
/// one that a call has just made.
#[must_use]
pub fn is_orphan(number: Number) -> bool {
    !number.is_logged && !number.is_claimed
}

/// In which round a call that makes descriptors chooses among the orphans; rounds count from 0 to [`ROUNDS`].
///
/// Duplicates first: of an orphan the kernel says for certain whether it is one of a given descriptor. Everything
/// else goes by what it looks like (the listener's address, the path), and a duplicate of a connection looks like one
/// that has just been accepted.
#[must_use]
pub fn round_of(class: Class) -> usize {
    if class == Class::Duplicate { 0 } else { 1 }
}

/// How many rounds there are.
pub const ROUNDS: usize = 2;

/// The position of the orphan that a call gets: the first that it has made. `made` answers that, and answers no for one
/// that has been given to another call.
///
/// Which of two equal calls gets which of two orphans does not matter, since neither has returned to anybody.
#[must_use]
pub fn orphan_of(orphans: usize, made: impl FnMut(&usize) -> bool) -> Option<usize> {
    (0..orphans).find(made)
}

/// Whether an orphan that no call has got is closed: some call of its class is in doubt, and will make another one.
/// Of what nobody outside can have noticed no call says that it has made this very one.
#[must_use]
pub fn is_thrown_away(orphan: Class, mut in_doubt: impl Iterator<Item = Class>) -> bool {
    in_doubt.any(|class| class == orphan || class == Class::Anything)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_nobody_knows_is_an_orphan() {
        let number = |is_logged, is_claimed| Number { is_logged, is_claimed };
        assert!(is_orphan(number(false, false)));
        assert!(!is_orphan(number(true, false)) && !is_orphan(number(false, true)));
    }

    #[test]
    fn the_first_that_fits_is_given_and_none_is_given_twice() {
        let mut given = [false; 3];
        let mut next = || {
            let at = orphan_of(3, |at| *at != 0 && !given[*at]);
            at.inspect(|at| given[*at] = true)
        };
        assert_eq!([next(), next(), next()], [Some(1), Some(2), None]);
    }

    #[test]
    fn whoever_can_be_certain_chooses_first() {
        assert!(round_of(Class::Duplicate) < round_of(Class::Accepted));
        assert!(round_of(Class::Duplicate) < round_of(Class::Named) && round_of(Class::Named) < ROUNDS);
    }

    #[test]
    fn what_is_made_again_is_not_left_behind() {
        let doubts = [Class::Accepted, Class::Pipe];
        assert!(is_thrown_away(Class::Pipe, doubts.into_iter()));
        assert!(!is_thrown_away(Class::Socket, doubts.into_iter()));
        assert!(is_thrown_away(Class::Socket, [Class::Anything].into_iter()));
    }
}
