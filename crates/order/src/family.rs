//! Processes that share memory which no log tells of (a *family*): who may take a turn, who may leave, who takes over.
//!
//! Their standbys share one copy of the memory, and come by the same bytes by taking the same turns. So three things must hold.
//! Every turn has a standby that takes it as well: a child takes none before it has a standby, and a process leaves only when its
//! standby has ended its last one. Nobody acts on the memory between the first death and the moment at which the copy's bytes have
//! been put back into it: what is written there is forgotten. And they are put back when every standby has come to the end of its
//! log.

use crate::turns;

/// What a family is at.
#[repr(u32)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Phase {
    /// There is none.
    #[default]
    None = 0,
    /// Its members stand still, and each forks.
    Forming = 1,
    /// Its standbys follow.
    Active = 2,
    /// One of its logs has ended, and with it all of them.
    Broken = 3,
    /// Its primaries are fenced, its standbys take over.
    Promoting = 4,
}

impl Phase {
    /// From its number; what is none reads as [`Phase::Broken`].
    #[inline]
    #[must_use]
    pub const fn from_number(number: u32) -> Phase {
        match number {
            0 => Phase::None,
            1 => Phase::Forming,
            2 => Phase::Active,
            4 => Phase::Promoting,
            _ => Phase::Broken,
        }
    }

    /// Whether members have logs, which standbys follow or have followed to their ends.
    #[must_use]
    pub const fn has_order(self) -> bool {
        matches!(self, Phase::Active | Phase::Promoting)
    }

    /// Whether those who stand still for the forming wait on.
    #[must_use]
    pub const fn may_become_whole(self) -> bool {
        matches!(self, Phase::Forming | Phase::Active)
    }

    /// Where the end of one log is the end of all. While standbys take over nobody's log goes on.
    pub const CAN_BREAK: [Phase; 2] = [Phase::Active, Phase::Forming];
}

/// What a thread of a member's primary does that comes to take a turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Turn {
    /// It takes one, like any other.
    Take,
    /// It waits: what it would do now the memory is about to forget.
    Wait,
    /// The order has ended, and so has the log of its process.
    Ended,
}

/// See [`Turn`].
#[inline]
#[must_use]
pub const fn turn(phase: Phase) -> Turn {
    match phase {
        Phase::Active => Turn::Take,
        Phase::Promoting => Turn::Wait,
        Phase::None | Phase::Forming | Phase::Broken => Turn::Ended,
    }
}

/// Whether all members have come to a place where each waits for the others: before the fork, behind it, before the memory is put
/// back, and before anybody is live.
#[must_use]
pub const fn are_all(here: u32, members: u32) -> bool {
    here >= members
}

/// Whether a member that ends by its own will may go: its standby has ended the turn in which it did the last of what it did.
/// Before that nobody could follow the turns behind it.
#[must_use]
pub const fn is_followed(turn: u64, ended: u64) -> bool {
    ended >= turns::after(turn)
}

/// Whether a member that has left waits before it ends its standby: it may be one of those who take over, and its standby is
/// awaited by all. It leaves first and looks then; whoever has them take over says so first, and looks then who is a member.
#[must_use]
pub const fn waits_to_end(phase: Phase) -> bool {
    matches!(phase, Phase::Promoting)
}

/// Whether a process is fenced and its standby takes over at the death of another one. A child that has no standby yet has not
/// begun to run either, and stays as it is.
#[must_use]
pub const fn takes_part(is_member: bool, is_protected: bool) -> bool {
    is_member && is_protected
}

/// What comes of the death of a member.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Together {
    /// All have been told to take over.
    Begun,
    /// This process's standby takes over with the others, or nobody's does.
    Settled,
    /// The others have taken over. This standby was ready when they had begun to, and has taken no turn: it may by itself.
    Alone,
}

/// What has come of the death of a member, where somebody else was the first to have all of them take over, or nobody could.
/// `phase` is what the family is at once that is over.
#[must_use]
pub const fn together(phase: Phase, is_still_protected: bool) -> Together {
    match phase {
        Phase::Broken | Phase::Promoting => Together::Settled,
        _ if is_still_protected => Together::Alone,
        _ => Together::Settled,
    }
}

/// What comes of the end of a standby that was to take over with others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fallen {
    /// The others wait for one fewer.
    Fewer,
    /// Nobody takes over.
    Nobody,
}

/// See [`Fallen`]. A fault of the program's own repeats in the standby, in guest code and so before that has settled: the others need
/// not wait for it, as they would not for a process that has ended. Any other end loses the memory that is common.
#[must_use]
pub const fn fallen(is_fault: bool, members: u32) -> Fallen {
    if is_fault && members > 1 { Fallen::Fewer } else { Fallen::Nobody }
}

/// For how many those wait who take over, of whom `chosen` were chosen when they were fenced: `fallen` have come to a fault of their
/// own before they were counted.
#[must_use]
pub const fn to_take_over(chosen: u32, fallen: u32) -> u32 {
    chosen.saturating_sub(fallen)
}

/// Whether a standby may take over at all: it follows for itself alone, or in a family whose order goes on. One whose family is
/// gone, and that has not been told so, was left behind when the others took over: it has not begun to follow anything.
#[must_use]
pub const fn may_take_over(is_member: bool, phase: Phase) -> bool {
    !is_member || !matches!(phase, Phase::Broken)
}

/// Whether a copy that is told to take over does so with others, and waits for them.
#[must_use]
pub const fn is_together(phase: Phase) -> bool {
    matches!(phase, Phase::Promoting)
}

/// Whether the copy that has just gone live, behind `before` others, is the last: then there is no family any more.
#[must_use]
pub const fn is_last(before: u32, members: u32) -> bool {
    before + 1 == members
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: [Phase; 5] = [Phase::None, Phase::Forming, Phase::Active, Phase::Broken, Phase::Promoting];

    #[test]
    fn a_phase_is_its_number() {
        ALL.iter().for_each(|phase| assert_eq!(Phase::from_number(*phase as u32), *phase));
        assert_eq!(Phase::from_number(77), Phase::Broken, "what nobody knows is no order");
    }

    #[test]
    fn a_turn_is_taken_in_an_order_that_goes_on_and_in_no_other() {
        ALL.iter().for_each(|phase| assert_eq!(turn(*phase) == Turn::Take, *phase == Phase::Active));
        assert_eq!(turn(Phase::Promoting), Turn::Wait);
    }

    #[test]
    fn nobody_waits_for_an_order_that_has_ended() {
        for phase in ALL {
            assert!(!(Phase::CAN_BREAK.contains(&phase) && waits_to_end(phase)));
            assert_eq!(turn(phase) == Turn::Ended, !phase.has_order());
        }
    }

    #[test]
    fn a_member_goes_when_its_last_turn_has_been_followed() {
        assert!(!is_followed(4, 4), "all before it");
        assert!(is_followed(4, 5) && is_followed(4, 9));
    }

    #[test]
    fn a_child_without_a_standby_is_left_alone() {
        assert!(takes_part(true, true));
        assert!(!takes_part(true, false) && !takes_part(false, true));
    }

    #[test]
    fn a_standby_that_was_ready_too_late_takes_over_behind_the_others() {
        assert_eq!(together(Phase::None, true), Together::Alone);
        assert_eq!(together(Phase::None, false), Together::Settled);
        assert_eq!(together(Phase::Promoting, true), Together::Settled);
        assert!(may_take_over(true, Phase::None) && !may_take_over(true, Phase::Broken));
        assert!(may_take_over(false, Phase::Broken));
    }

    #[test]
    fn nobody_waits_for_one_that_has_come_to_a_fault() {
        assert_eq!(fallen(true, 2), Fallen::Fewer);
        assert_eq!((fallen(true, 1), fallen(false, 3)), (Fallen::Nobody, Fallen::Nobody));
        assert_eq!((to_take_over(3, 1), to_take_over(1, 1)), (2, 0));
    }

    #[test]
    fn the_last_of_all_says_that_it_is_over() {
        assert!(!is_last(0, 2) && is_last(1, 2));
        assert!(are_all(2, 2) && !are_all(1, 2) && are_all(3, 2));
    }
}
