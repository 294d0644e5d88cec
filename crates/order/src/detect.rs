//! The primary is gone, or seems to be: what now?

/// Why the primary said it would leave, published in the segment *before* it leaves. A robust futex also fires
/// on exec, exit and the end of any thread; without this word each of them would look like a death.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Leaving {
    /// Nothing was said.
    No,
    /// The program exits, execs, or is ended by a signal whose default action it did not change.
    Yes,
    /// A fatal fault: published before the core is written, which can take seconds.
    Dying,
}

/// How the primary ended, as far as is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cause {
    /// Every thread's robust futex says so; no wait status yet.
    OwnersDied,
    /// SIGKILL: the out-of-memory killer, a person, or our own fence.
    Killed,
    /// SIGSEGV, SIGBUS, SIGILL, SIGFPE, SIGABRT, SIGSYS, SIGTRAP: the program's own failure.
    Fault,
    /// Any other signal: somebody asked the program to end.
    Signal,
    /// A normal exit with a status.
    Exited,
}

/// What the standby is good for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standby {
    /// Follows the log.
    Following,
    /// Did something else than the log says; never promoted.
    Diverged,
    /// There is none, or a re-clone has not finished.
    Absent,
}

/// The supervisor's decision.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Decision {
    /// Fence, then promote the standby.
    Promote,
    /// The program has ended as it would have natively: end the standby, pass the status on.
    End,
    /// The program should live on, but nobody can carry it: end, and say that protection was missing.
    Unprotected,
}

/// Decides what to do about a primary that has ended.
///
/// `Leaving::Yes` wins over any cause: a program on its way out that is killed in the middle of it is not
/// brought back, as its standby would repeat an exit whose effects may be visible already.
#[must_use]
pub fn decide(leaving: Leaving, cause: Cause, standby: Standby) -> Decision {
    let ended_itself = match (leaving, cause) {
        (Leaving::Yes, _) => true,
        (Leaving::Dying, _) => false,
        (Leaving::No, Cause::OwnersDied | Cause::Killed | Cause::Fault) => false,
        // An exit or a default-action signal publishes `leaving` first. Without the word something outside the
        // runtime ended the program in an orderly way: natively it would be over.
        (Leaving::No, Cause::Signal | Cause::Exited) => true,
    };
    match (ended_itself, standby) {
        (true, _) => Decision::End,
        (false, Standby::Following) => Decision::Promote,
        (false, Standby::Diverged | Standby::Absent) => Decision::Unprotected,
    }
}

/// True when the primary can have no further effect: *every* registered thread's robust futex says that its owner
/// died, or the process has been reaped. One thread's word is not enough, another may still be in a system call.
#[must_use]
pub fn is_fenced(mut owner_died: impl Iterator<Item = bool>, reaped: bool) -> bool {
    let mut any = false;
    let all = owner_died.all(|dead| {
        any = true;
        dead
    });
    reaped || (any && all)
}

#[cfg(test)]
mod tests {
    use super::*;

    const CAUSES: [Cause; 5] = [Cause::OwnersDied, Cause::Killed, Cause::Fault, Cause::Signal, Cause::Exited];

    #[test]
    fn a_leaving_program_is_never_brought_back() {
        for cause in CAUSES {
            for standby in [Standby::Following, Standby::Diverged, Standby::Absent] {
                assert_eq!(decide(Leaving::Yes, cause, standby), Decision::End);
            }
        }
    }

    #[test]
    fn only_a_following_standby_is_promoted() {
        for leaving in [Leaving::No, Leaving::Yes, Leaving::Dying] {
            for cause in CAUSES {
                assert_ne!(decide(leaving, cause, Standby::Diverged), Decision::Promote);
                assert_ne!(decide(leaving, cause, Standby::Absent), Decision::Promote);
            }
        }
    }

    #[test]
    fn violent_ends_promote_and_plain_signals_do_not() {
        for cause in [Cause::OwnersDied, Cause::Killed, Cause::Fault] {
            assert_eq!(decide(Leaving::No, cause, Standby::Following), Decision::Promote);
        }
        assert_eq!(decide(Leaving::No, Cause::Signal, Standby::Following), Decision::End);
        assert_eq!(decide(Leaving::No, Cause::Exited, Standby::Following), Decision::End);
        assert_eq!(decide(Leaving::Dying, Cause::OwnersDied, Standby::Following), Decision::Promote);
    }

    #[test]
    fn one_living_thread_is_no_fence() {
        assert!(!is_fenced([true, false].into_iter(), false));
        assert!(is_fenced([true, true].into_iter(), false));
        assert!(!is_fenced(core::iter::empty(), false));
        assert!(is_fenced([false].into_iter(), true));
    }
}
