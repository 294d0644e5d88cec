//! Whether a group without a standby gets another, and in which words its loss is told. For the supervisor,
//! which acts on it, and for `status`, which must say the same without asking it.

use us_abi::{Cause, GroupState, leaving};
use us_order::reclone::Loss;

/// What the segment says that matters here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Situation {
    /// The group's state.
    pub state: GroupState,
    /// Code of the reason why there is no standby: a [`Cause`], 0 for none given.
    pub cause: u32,
    /// A value of [`leaving`].
    pub leaving: u32,
    /// The runtime has said who is primary: it is there to be asked.
    pub has_runtime: bool,
}

/// Whether the primary is to be asked for a new standby, now or later.
pub fn is_due(situation: Situation) -> bool {
    let never = [Cause::NotAsked, Cause::SupervisorLost, Cause::Bound];
    let wanted = never.iter().all(|cause| *cause as u32 != situation.cause);
    // A program on its way out needs none, and one that is being replaced by exec answers by itself.
    let stays = situation.leaving == leaving::NO;
    situation.state == GroupState::Unprotected && wanted && stays && situation.has_runtime
}

/// Whether a process that has no standby for this reason is to have one, by what the group was started with.
pub fn is_wanted(standbys: u32, reprotect: bool, cause: u32) -> bool {
    // A first standby protects; only those behind it protect anew. One that an upgrade has ended was no failure's.
    let is_its_turn = [Cause::Newborn, Cause::Upgraded].iter().any(|one| *one as u32 == cause);
    standbys > 0 && (reprotect || is_its_turn)
}

/// What the loss says about the log.
pub fn loss(cause: u32) -> Loss {
    match cause {
        cause if cause == Cause::Promoted as u32 || cause == Cause::Upgraded as u32 => Loss::Promoted,
        cause if cause == Cause::Newborn as u32 => Loss::Newborn,
        _ => Loss::Dropped,
    }
}

/// A loss in a word or two: `reason` of an entry of `reclones`.
pub fn reason(cause: u32) -> &'static str {
    const WORDS: [(Cause, &str); 11] = [
        (Cause::Diverged, "divergence"),
        (Cause::Behind, "behind"),
        (Cause::StandbyLost, "standby lost"),
        (Cause::RefusedCall, "refused call"),
        (Cause::Promoted, "promotion"),
        (Cause::CannotClone, "not made"),
        (Cause::CannotReplay, "not replayable"),
        (Cause::Exec, "exec"),
        (Cause::Newborn, "new process"),
        (Cause::Bound, "bound"),
        (Cause::Upgraded, "upgrade"),
    ];
    WORDS.iter().find(|(code, _)| *code as u32 == cause).map_or("unknown", |(_, words)| words)
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOST: Situation = Situation {
        state: GroupState::Unprotected,
        cause: Cause::Promoted as u32,
        leaving: leaving::NO,
        has_runtime: true,
    };

    #[test]
    fn a_running_program_whose_standby_is_gone_gets_another() {
        assert!(is_due(LOST));
        assert!(is_due(Situation { cause: 0, ..LOST }));
        assert!(is_due(Situation { cause: Cause::RefusedCall as u32, ..LOST }));
        assert!(is_due(Situation { cause: Cause::Newborn as u32, ..LOST }));
    }

    #[test]
    fn nobody_else_does() {
        for state in [GroupState::Starting, GroupState::Protected, GroupState::Promoting, GroupState::Ended] {
            assert!(!is_due(Situation { state, ..LOST }));
        }
        for leaving in [leaving::EXIT, leaving::SIGNAL, leaving::EXEC, leaving::DYING] {
            assert!(!is_due(Situation { leaving, ..LOST }));
        }
        for cause in [Cause::NotAsked, Cause::SupervisorLost, Cause::Bound] {
            assert!(!is_due(Situation { cause: cause as u32, ..LOST }));
        }
        assert!(!is_due(Situation { has_runtime: false, ..LOST }));
    }

    #[test]
    fn every_cause_has_its_words() {
        assert_eq!((reason(6), reason(2), reason(5)), ("promotion", "divergence", "refused call"));
        assert_eq!(reason(99), "unknown");
        assert_eq!((loss(6), loss(2), loss(11)), (Loss::Promoted, Loss::Dropped, Loss::Newborn));
    }

    #[test]
    fn a_first_standby_is_no_second_one() {
        let [newborn, promoted] = [Cause::Newborn as u32, Cause::Promoted as u32];
        assert!(is_wanted(1, false, Cause::Upgraded as u32));
        assert!(is_wanted(1, true, newborn) && is_wanted(1, true, promoted));
        assert!(is_wanted(1, false, newborn) && !is_wanted(1, false, promoted));
        assert!(!is_wanted(0, false, newborn) && !is_wanted(0, true, promoted));
    }
}
