//! Calls in doubt that change an epoll set.
//!
//! From the moment at which the kernel has armed a descriptor its next event may be another thread's, who handles it
//! and arms the next, all before the call that armed it comes back. Such a call, made again by a copy that is live,
//! would give the descriptor to a second thread. So it is made good before anybody acts, oldest first: what the log's
//! registrations say is made true in the kernel's set, whether the dead primary had done it or not.

/// What a call does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// `EPOLL_CTL_ADD`.
    Add,
    /// `EPOLL_CTL_DEL`.
    Delete,
    /// `EPOLL_CTL_MOD`, and anything else: the kernel refuses it.
    Modify,
}

/// What the kernel says to a change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    /// It is done.
    Done,
    /// ENOENT: the descriptor is not in the set.
    Missing,
    /// EEXIST: it is.
    There,
    /// EINVAL.
    Invalid,
    /// Any other error.
    Refused,
}

/// What a call in doubt says of itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Control {
    /// What it does.
    pub change: Change,
    /// The registration that it has made in the log's table, unless it deletes.
    pub own: Option<u32>,
}

/// The registrations of one descriptor in one set: the log's, and the kernel's.
pub trait Registrations {
    /// The one that was made last, as the log has it.
    fn newest(&mut self) -> Option<u32>;
    /// How many the log has: one that replaces another stands beside it until it is known to have done so.
    fn count(&mut self) -> usize;
    /// Whether the call that made a registration is in doubt itself.
    fn is_in_doubt(&mut self, registration: u32) -> bool;
    /// Does with the kernel's set what a registration says.
    fn make(&mut self, registration: u32, change: Change) -> Answer;
}

/// What becomes of a call.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Good {
    /// It has succeeded.
    Done,
    /// It has failed: the descriptor was there (EEXIST).
    WasThere,
    /// It is made again, live: it fails, or says nothing that the table knows.
    #[default]
    Again,
}

/// Makes one call good. The calls on one descriptor come here in the order of their tickets.
pub fn make_good(call: Control, set: &mut impl Registrations) -> Good {
    let Some(newest) = set.newest() else { return Good::Again };
    if call.change == Change::Delete {
        // Who has seen it gone may have added the descriptor again, and that is no longer in doubt.
        if set.count() > 1 && !set.is_in_doubt(newest) {
            return Good::Done;
        }
        return match set.make(newest, Change::Delete) {
            Answer::Done | Answer::Missing => Good::Done,
            Answer::There | Answer::Invalid | Answer::Refused => Good::Again,
        };
    }
    let Some(own) = call.own else { return Good::Again };
    if newest != own {
        // A younger one is there: whoever made it had this one's event.
        return Good::Done;
    }
    if call.change == Change::Add {
        match set.make(own, Change::Add) {
            Answer::Done => return Good::Done,
            Answer::There if set.count() > 1 => return Good::WasThere,
            // It is this very call that has added it: as it says.
            Answer::There => {}
            Answer::Missing | Answer::Invalid | Answer::Refused => return Good::Again,
        }
    }
    match set.make(own, Change::Modify) {
        Answer::Done => Good::Done,
        // An exclusive one cannot be modified, and is there as it was asked for.
        Answer::Invalid if call.change == Change::Add => Good::Done,
        _ => Good::Again,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// A set with one descriptor: what the kernel has armed, and what the log says.
    #[derive(Clone, Copy)]
    struct Fake {
        armed: Option<u32>,
        newest: Option<u32>,
        count: usize,
        in_doubt: bool,
        is_exclusive: bool,
    }

    impl Registrations for Fake {
        fn newest(&mut self) -> Option<u32> {
            self.newest
        }
        fn count(&mut self) -> usize {
            self.count
        }
        fn is_in_doubt(&mut self, _registration: u32) -> bool {
            self.in_doubt
        }
        fn make(&mut self, registration: u32, change: Change) -> Answer {
            match (change, self.armed) {
                (Change::Add, None) | (Change::Modify, Some(_))
                    if !self.is_exclusive || change == Change::Add =>
                {
                    self.armed = Some(registration);
                    Answer::Done
                }
                (Change::Modify, Some(_)) => Answer::Invalid,
                (Change::Add, Some(_)) => Answer::There,
                (Change::Delete, Some(_)) => {
                    self.armed = None;
                    Answer::Done
                }
                (Change::Delete | Change::Modify, None) => Answer::Missing,
                _ => Answer::Refused,
            }
        }
    }

    const ALONE: Fake = Fake { armed: None, newest: Some(7), count: 1, in_doubt: true, is_exclusive: false };

    fn control(change: Change) -> Control {
        Control { change, own: (change != Change::Delete).then_some(7) }
    }

    proptest! {
        /// Whether the dead primary had done it or not: afterwards the kernel has what the log says.
        #[test]
        fn a_change_is_done_once(was_done: bool, change in prop_oneof![Just(Change::Add), Just(Change::Delete), Just(Change::Modify)]) {
            let before = if change == Change::Add { None } else { Some(3) };
            let after = if change == Change::Delete { None } else { Some(7) };
            let mut set = Fake { armed: if was_done { after } else { before }, ..ALONE };
            prop_assert_eq!(make_good(control(change), &mut set), Good::Done);
            prop_assert_eq!(set.armed, after);
        }
    }

    #[test]
    fn what_somebody_has_armed_since_stays() {
        let mut set = Fake { newest: Some(9), armed: Some(9), ..ALONE };
        assert_eq!(make_good(control(Change::Modify), &mut set), Good::Done);
        assert_eq!(set.armed, Some(9));
        let mut set = Fake { newest: Some(9), armed: Some(9), count: 2, in_doubt: false, ..ALONE };
        assert_eq!(make_good(control(Change::Delete), &mut set), Good::Done);
        assert_eq!(set.armed, Some(9), "added again by who has seen it gone");
    }

    #[test]
    fn an_add_of_what_is_there_fails_as_it_did() {
        let mut set = Fake { armed: Some(3), count: 2, ..ALONE };
        assert_eq!(make_good(control(Change::Add), &mut set), Good::WasThere);
        assert_eq!(set.armed, Some(3));
    }

    #[test]
    fn an_exclusive_one_that_was_added_is_done() {
        let mut set = Fake { armed: Some(7), is_exclusive: true, ..ALONE };
        assert_eq!(make_good(control(Change::Add), &mut set), Good::Done);
        assert_eq!(make_good(control(Change::Modify), &mut set), Good::Again, "it fails, as it did");
    }

    #[test]
    fn what_the_log_does_not_know_is_made_again() {
        assert_eq!(make_good(control(Change::Add), &mut Fake { newest: None, ..ALONE }), Good::Again);
        let unknown = Control { change: Change::Modify, own: None };
        assert_eq!(make_good(unknown, &mut Fake { armed: Some(7), ..ALONE }), Good::Again);
    }
}
