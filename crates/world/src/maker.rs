//! Calls in doubt that make descriptors, and the descriptors that the table has and the log has not.
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

/// Which numbers a duplicate may have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// dup: the lowest that was free.
    Lowest,
    /// F_DUPFD: the lowest from here on.
    From(u32),
    /// dup2, dup3: this one. If it was free, it shows who has made it; if it was open, the call is made again.
    At(u32),
}

impl Place {
    /// Whether it may have this one.
    #[must_use]
    pub const fn can_be(self, fd: i32) -> bool {
        match self {
            Place::Lowest => true,
            Place::From(least) => fd as u32 >= least,
            Place::At(number) => fd as u32 == number,
        }
    }
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

/// A call in doubt that has entered the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Maker {
    /// What it makes.
    pub class: Class,
    /// The descriptor that it has made; without one it is made again.
    pub made: Option<i32>,
}

impl Maker {
    /// Of which nothing is known yet.
    #[must_use]
    pub const fn of(class: Class) -> Maker {
        Maker { class, made: None }
    }
}

/// What becomes of an orphan.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Fate {
    /// Nobody knows whose it is: it stays open.
    #[default]
    Open,
    /// A call has made it, and gets it.
    Given,
    /// It is closed: its call makes another one.
    Closed,
}

/// A descriptor that is nobody's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Orphan {
    /// Its number.
    pub fd: i32,
    /// What becomes of it.
    pub fate: Fate,
}

impl Orphan {
    /// Of which nothing is known yet.
    #[must_use]
    pub const fn of(fd: i32) -> Orphan {
        Orphan { fd, fate: Fate::Open }
    }
}

/// What a judgement may ask of descriptors. By one thread while nobody acts.
pub trait Descriptors {
    /// Whether the maker with this place in the list has made this very descriptor: of a duplicate, whether it is the same open
    /// file; of a connection, whether it has the listener's address; of a file, whether the path leads to it.
    fn has_made(&mut self, maker: usize, fd: i32) -> bool;
    /// What it looks like.
    fn class_of(&mut self, fd: i32) -> Class;
}

/// Gives every orphan to the call that made it, or says that it is closed, or left.
///
/// Which of two equal calls gets which of two orphans does not matter, since neither has returned to anybody. What nobody outside
/// can have noticed (a pipe, an eventfd, a new socket) no call is asked about: it is closed, and made again, and the lowest number
/// is free for it, as it was.
pub fn judge(makers: &mut [Maker], orphans: &mut [Orphan], asked: &mut impl Descriptors) {
    // Duplicates first: of an orphan the kernel says for certain whether it is one of a given descriptor. Everything else goes by
    // what it looks like (the listener's address, the path), and a duplicate of a connection looks like one that has just been
    // accepted.
    for first in [true, false] {
        for (at, maker) in makers.iter_mut().enumerate() {
            if (maker.class == Class::Duplicate) != first {
                continue;
            }
            let is_its = |orphan: &&mut Orphan| orphan.fate == Fate::Open && asked.has_made(at, orphan.fd);
            if let Some(orphan) = orphans.iter_mut().find(is_its) {
                orphan.fate = Fate::Given;
                maker.made = Some(orphan.fd);
            }
        }
    }
    for orphan in orphans.iter_mut().filter(|orphan| orphan.fate == Fate::Open) {
        let class = asked.class_of(orphan.fd);
        let makes_another =
            |maker: &Maker| maker.made.is_none() && (maker.class == class || maker.class == Class::Anything);
        if makers.iter().any(makes_another) {
            orphan.fate = Fate::Closed;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Descriptors of which each shows who has made it, and what it looks like.
    struct Fake {
        /// By number.
        by: [Option<usize>; 8],
        like: [Class; 8],
    }

    impl Descriptors for Fake {
        fn has_made(&mut self, maker: usize, fd: i32) -> bool {
            self.by[fd as usize] == Some(maker)
        }
        fn class_of(&mut self, fd: i32) -> Class {
            self.like[fd as usize]
        }
    }

    #[test]
    fn only_what_nobody_knows_is_an_orphan() {
        let number = |is_logged, is_claimed| Number { is_logged, is_claimed };
        assert!(is_orphan(number(false, false)));
        assert!(!is_orphan(number(true, false)) && !is_orphan(number(false, true)));
    }

    #[test]
    fn a_duplicate_is_where_it_was_to_be() {
        assert!(Place::Lowest.can_be(0));
        assert!(Place::From(10).can_be(10) && !Place::From(10).can_be(9));
        assert!(Place::At(10).can_be(10) && !Place::At(10).can_be(11));
    }

    #[test]
    fn whoever_can_be_certain_chooses_first() {
        // Any accept would take it: it has the listener's address.
        struct Alike;
        impl Descriptors for Alike {
            fn has_made(&mut self, _maker: usize, _fd: i32) -> bool {
                true
            }
            fn class_of(&mut self, _fd: i32) -> Class {
                Class::Accepted
            }
        }
        let mut makers = [Maker::of(Class::Accepted), Maker::of(Class::Duplicate)];
        let mut orphans = [Orphan::of(5)];
        judge(&mut makers, &mut orphans, &mut Alike);
        assert_eq!([makers[0].made, makers[1].made], [None, Some(5)]);
        assert_eq!(orphans[0].fate, Fate::Given);
    }

    #[test]
    fn what_is_made_again_is_not_left_behind() {
        let like = [
            Class::Pipe,
            Class::Socket,
            Class::Named,
            Class::Pipe,
            Class::Pipe,
            Class::Pipe,
            Class::Pipe,
            Class::Pipe,
        ];
        let mut fake = Fake { by: [None; 8], like };
        let mut fates = |class| {
            let mut orphans = [Orphan::of(0), Orphan::of(1), Orphan::of(2)];
            judge(&mut [Maker::of(class)], &mut orphans, &mut fake);
            orphans.map(|orphan| orphan.fate)
        };
        assert_eq!(fates(Class::Pipe), [Fate::Closed, Fate::Open, Fate::Open]);
        assert_eq!(fates(Class::Anything), [Fate::Closed; 3]);
        assert_eq!(fates(Class::Accepted), [Fate::Open; 3]);
    }

    proptest! {
        /// Each orphan goes to at most one call, each call gets at most one, and only one that it has made.
        #[test]
        fn nothing_is_given_twice(by in proptest::array::uniform8(proptest::option::of(0usize..5)), duplicates in 0usize..6) {
            let mut makers: [Maker; 5] = core::array::from_fn(|at| {
                Maker::of(if at < duplicates { Class::Duplicate } else { Class::Named })
            });
            let mut orphans: [Orphan; 8] = core::array::from_fn(|fd| Orphan::of(fd as i32));
            judge(&mut makers, &mut orphans, &mut Fake { by, like: [Class::Pipe; 8] });
            for (at, maker) in makers.iter().enumerate() {
                let first = by.iter().position(|made_by| *made_by == Some(at));
                prop_assert_eq!(maker.made, first.map(|fd| fd as i32));
            }
            let given = orphans.iter().filter(|orphan| orphan.fate == Fate::Given).count();
            prop_assert_eq!(given, makers.iter().filter(|maker| maker.made.is_some()).count());
        }
    }
}
