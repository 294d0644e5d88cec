//! Who runs an initialiser (`pthread_once`, `call_once`, `__cxa_guard_acquire`).
//!
//! The runner marks the object as running, takes a ticket of the object's clock, publishes `RUN` and only
//! then runs the initialiser. Completion and abort log nothing: like an unlock, they follow from the
//! runner's own replay, and every event of the initialiser is published before them. Threads that pass
//! publish nothing either (compilers inline that check, so it cannot be logged).
//!
//! A standby thread at such an object therefore does not know whether a `RUN` at its ring's head is meant
//! for *this* object or for a later one. The ticket tells: when it is due, the runner of this object, if it was
//! another thread, has already begun here too, because its `RUN` has a lower ticket of the same clock.

/// State of the local object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Local {
    /// Nobody has run the initialiser, or the last runner aborted.
    Idle,
    /// A local thread is running it.
    Running,
    /// It has completed.
    Done,
}

/// What the standby thread sees.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OnceView {
    /// The local object.
    pub local: Local,
    /// Number of the clock that the object hashes to.
    pub object_clock: u32,
    /// Present value of that clock.
    pub clock_value: u64,
    /// Clock and ticket of the event at the head of this thread's ring, if it is a `RUN`.
    pub run_at_head: Option<(u32, u64)>,
    /// Threads are live.
    pub live: bool,
}

/// What the standby thread does now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Once {
    /// Return: the object is initialised. A `RUN` at the head belongs to a later call.
    Pass,
    /// Consume the `RUN` (mark running, advance the clock, then the head) and run the initialiser.
    Run,
    /// Live: take the object as the primary would.
    RunLive,
    /// Look again when the local object, the clock, the ring or the phase changes.
    Wait,
}

/// Decides for a standby thread at an object.
#[must_use]
pub fn decide(view: OnceView) -> Once {
    match (view.local, view.run_at_head) {
        (Local::Done, _) => Once::Pass,
        (Local::Running, _) => Once::Wait,
        (Local::Idle, Some((clock, ticket))) if clock == view.object_clock && ticket == view.clock_value => {
            Once::Run
        }
        (Local::Idle, _) if view.live => Once::RunLive,
        (Local::Idle, _) => Once::Wait,
    }
}

/// Whether a `RUN` that is due on another clock than the local object's is meant for this object all the same: it lies on the
/// heap, where addresses drift apart between the copies, and so do the clocks that they hash to. `others_run` says whether
/// any other thread's ring holds a `RUN` that has not been applied. Had another thread run this object's initialiser, its
/// `RUN` would have been published before this thread could come by, and to the one at its head.
#[must_use]
pub fn is_own(view: OnceView, is_due: bool, others_run: bool) -> bool {
    let is_drifted = view.run_at_head.is_some_and(|(clock, _)| clock != view.object_clock);
    view.local == Local::Idle && is_drifted && is_due && !others_run
}

#[cfg(test)]
mod tests {
    use super::*;

    const VIEW: OnceView =
        OnceView { local: Local::Idle, object_clock: 7, clock_value: 3, run_at_head: None, live: false };

    #[test]
    fn a_run_counts_only_when_due_on_this_clock() {
        assert_eq!(decide(OnceView { run_at_head: Some((7, 3)), ..VIEW }), Once::Run);
        assert_eq!(decide(OnceView { run_at_head: Some((7, 4)), ..VIEW }), Once::Wait);
        assert_eq!(decide(OnceView { run_at_head: Some((8, 3)), ..VIEW }), Once::Wait);
    }

    #[test]
    fn a_due_run_is_for_another_object_while_somebody_runs_this_one() {
        assert_eq!(decide(OnceView { local: Local::Running, run_at_head: Some((7, 3)), ..VIEW }), Once::Wait);
        assert_eq!(decide(OnceView { local: Local::Done, run_at_head: Some((7, 3)), ..VIEW }), Once::Pass);
    }

    #[test]
    fn a_drifted_object_is_known_by_there_being_no_other_run() {
        let drifted = OnceView { run_at_head: Some((8, 3)), ..VIEW };
        assert!(is_own(drifted, true, false));
        assert!(!is_own(drifted, true, true));
        assert!(!is_own(drifted, false, false));
        assert!(!is_own(OnceView { local: Local::Running, ..drifted }, true, false));
        assert!(!is_own(OnceView { run_at_head: Some((7, 4)), ..VIEW }, true, false));
        assert!(!is_own(VIEW, true, false));
    }

    #[test]
    fn without_an_event_only_a_live_thread_runs() {
        assert_eq!(decide(VIEW), Once::Wait);
        assert_eq!(decide(OnceView { live: true, ..VIEW }), Once::RunLive);
    }
}
