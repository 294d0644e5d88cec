//! What can go wrong, and a seeded choice of it.

use std::fmt;
use std::time::Duration;

use us_kit::rng::Rng;

/// One fault. Each is injected into a group that is protected, and is over when the group is protected again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// SIGKILL to the primary.
    KillPrimary,
    /// SIGKILL to the standby.
    KillStandby,
    /// SIGKILL to the primary while the standby stands still; it goes on so much later.
    KillPrimaryOfStopped(Duration),
    /// SIGSTOP to the standby: its rings may fill until it is dropped. So much later it goes on, if it is still wanted.
    StopStandby(Duration),
    /// The same, but so much later it is killed.
    StopAndKillStandby(Duration),
    /// SIGSTOP to the primary: the probe must notice, and the standby must take over although the primary is not dead.
    StopPrimary,
    /// `understudy failover`.
    PlannedFailover,
    /// A burst of data through the program, as fast as it takes it.
    FillRings,
    /// A call of the program's that no standby can follow.
    RefusedCall,
    /// SIGKILL to the supervisor: nobody watches any more, and the program serves on. Always the last one.
    KillSupervisor,
}

impl Fault {
    /// Every kind, with a length of time where one is wanted.
    pub fn all(some: Duration) -> [Self; 10] {
        [
            Self::KillPrimary,
            Self::KillStandby,
            Self::KillPrimaryOfStopped(some),
            Self::StopStandby(some),
            Self::StopAndKillStandby(some),
            Self::StopPrimary,
            Self::PlannedFailover,
            Self::FillRings,
            Self::RefusedCall,
            Self::KillSupervisor,
        ]
    }

    /// How often it comes, against the others.
    fn weight(self) -> u64 {
        match self {
            Self::KillPrimary => 8,
            Self::KillStandby | Self::PlannedFailover | Self::RefusedCall => 3,
            Self::KillPrimaryOfStopped(_) | Self::FillRings => 2,
            // These take their time.
            Self::StopStandby(_) | Self::StopAndKillStandby(_) | Self::StopPrimary => 1,
            // It can only be the last.
            Self::KillSupervisor => 6,
        }
    }

    /// Promotions that follow from it.
    pub fn promotions(self) -> u64 {
        let promotes = matches!(
            self,
            Self::KillPrimary | Self::KillPrimaryOfStopped(_) | Self::StopPrimary | Self::PlannedFailover
        );
        u64::from(promotes)
    }

    /// Standbys whose loss it explains.
    pub fn standbys(self) -> usize {
        let loses = matches!(self, Self::KillStandby | Self::StopStandby(_) | Self::StopAndKillStandby(_));
        usize::from(loses)
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, out: &mut fmt::Formatter) -> fmt::Result {
        match self {
            Self::KillPrimary => out.write_str("kill primary"),
            Self::KillStandby => out.write_str("kill standby"),
            Self::KillPrimaryOfStopped(time) => write!(out, "kill primary, standby stopped for {time:?}"),
            Self::StopStandby(time) => write!(out, "stop standby for {time:?}"),
            Self::StopAndKillStandby(time) => write!(out, "stop standby for {time:?} and kill it"),
            Self::StopPrimary => out.write_str("stop primary"),
            Self::PlannedFailover => out.write_str("planned failover"),
            Self::FillRings => out.write_str("fill rings"),
            Self::RefusedCall => out.write_str("refused call"),
            Self::KillSupervisor => out.write_str("kill supervisor"),
        }
    }
}

/// A fault and how long to wait before it, once the group is protected.
#[derive(Clone, Copy, Debug)]
pub struct Act {
    /// The wait.
    pub after: Duration,
    /// The fault.
    pub fault: Fault,
}

/// The acts of a round: the same for the same seed. `possible` says what the program under test can take.
pub fn schedule(rng: &mut Rng, possible: impl Fn(Fault) -> bool) -> Vec<Act> {
    let count = 3 + rng.below(6);
    let mut acts: Vec<Act> = Vec::new();
    for at in 0..count {
        // Some come the very moment the group is protected.
        let longest_us = if rng.below(4) == 0 { 2_000 } else { 300_000 };
        let after = Duration::from_micros(rng.below(longest_us));
        let some = Duration::from_millis(10 + rng.below(900));
        let last = at + 1 == count;
        // The probe takes seconds to notice: once a round is enough.
        let again = acts.iter().any(|act| act.fault == Fault::StopPrimary);
        let choice: Vec<Fault> = Fault::all(some)
            .into_iter()
            .filter(|fault| possible(*fault))
            .filter(|fault| last || *fault != Fault::KillSupervisor)
            .filter(|fault| !again || *fault != Fault::StopPrimary)
            .collect();
        let mut ball = rng.below(choice.iter().map(|fault| fault.weight()).sum());
        let drawn = choice.into_iter().find(|fault| {
            let here = ball < fault.weight();
            ball = ball.saturating_sub(fault.weight());
            here
        });
        acts.extend(drawn.map(|fault| Act { after, fault }));
    }
    acts
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;
    use std::mem::discriminant;

    use us_kit::rng::Rng;

    use super::{Fault, schedule};

    #[test]
    fn a_seed_is_a_schedule_and_every_fault_comes() {
        let mut seen = HashSet::new();
        for seed in 0..200 {
            let acts = schedule(&mut Rng::new(seed, "x"), |_| true);
            let again = schedule(&mut Rng::new(seed, "x"), |_| true);
            assert_eq!(format!("{acts:?}"), format!("{again:?}"));
            assert!((3..=8).contains(&acts.len()));
            let supervisor = acts.iter().position(|act| act.fault == Fault::KillSupervisor);
            assert!(supervisor.is_none_or(|at| at + 1 == acts.len()), "{acts:?}");
            seen.extend(acts.iter().map(|act| discriminant(&act.fault)));
        }
        assert_eq!(seen.len(), Fault::all(std::time::Duration::ZERO).len());
    }

    #[test]
    fn what_is_impossible_never_comes() {
        let only = |fault| fault == Fault::KillPrimary;
        let acts = schedule(&mut Rng::new(3, "x"), only);
        assert!(acts.iter().all(|act| act.fault == Fault::KillPrimary));
    }
}
