//! Atomic instructions of a program's own, explored: every interleaving of a primary and its standby, with a kill between any two
//! steps. Loads and stores are steps as well here, and no copy orders them.
//!
//! A run is right if the standby never goes another way, every state can still come to an end, and what the threads put out, and
//! the memory in the end, is what the program could have made of it natively.

pub mod library;
pub mod world;

use std::collections::{HashMap, HashSet, VecDeque};

use self::world::{Op, Outcome, World};
use crate::hash::Fingerprint;

/// A rule that is broken on purpose.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Broken {
    /// A standby's thread waits for no ticket.
    NoOrder,
    /// The event is published behind the release of its clock.
    PublishedLate,
    /// A comparison that fails in the standby alone consumes the event that says it did not.
    FailureConsumes,
    /// One that failed is made as it comes, though it would succeed in the standby.
    FailureIsMade,
    /// An exchange that met a lock held is made, though the lock is free in the standby.
    ExchangeIsMade,
    /// An exchange that took a lock is made while it is still held in the standby.
    ExchangeIsEarly,
    /// A comparison with a constant is not waited for.
    ConstantIsNotAwaited,
    /// Threads act for real before all have applied what the log has.
    LiveBeforeDrained,
}

/// A program.
#[derive(Clone, Debug)]
pub struct Program {
    /// Its name in reports.
    pub name: &'static str,
    /// What it is there to provoke.
    pub why: &'static str,
    /// The threads' code.
    pub threads: Vec<Vec<Op>>,
    /// The memory at the start.
    pub memory: Vec<u8>,
}

/// What went wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Violation {
    /// The standby is at something else than the log says, or puts out something else.
    Diverged,
    /// An end that the program cannot have natively.
    NotNative,
    /// A state from which no end can be reached.
    Stuck,
}

/// What an exploration saw.
#[derive(Clone, Debug, Default)]
pub struct Report {
    /// Distinct states.
    pub states: usize,
    /// Distinct ends.
    pub outcomes: HashSet<Outcome>,
    /// The first violation.
    pub failure: Option<Violation>,
}

/// Explores a program.
#[must_use]
pub fn check(program: &Program, broken: Option<Broken>) -> Report {
    let native: HashSet<Outcome> =
        reach(program, None, World::alone(program)).ends.into_iter().map(|it| it.1).collect();
    let states = reach(program, broken, World::protected(program));
    let mut report = Report { states: states.from.len(), ..Report::default() };
    report.outcomes = states.ends.iter().map(|it| it.1.clone()).collect();
    report.failure = if states.has_diverged {
        Some(Violation::Diverged)
    } else if !report.outcomes.is_subset(&native) {
        Some(Violation::NotNative)
    } else if !states.all_end() {
        Some(Violation::Stuck)
    } else {
        None
    };
    report
}

/// Each state's number, and of each number those of the states that it is reached from.
#[derive(Default)]
struct States {
    numbers: HashMap<u128, u32>,
    from: Vec<Vec<u32>>,
    ends: Vec<(u32, Outcome)>,
    has_diverged: bool,
}

impl States {
    /// The number of a state, and whether it is new.
    fn number(&mut self, world: &World) -> (u32, bool) {
        let next = self.from.len() as u32;
        let number = *self.numbers.entry(Fingerprint::of(world)).or_insert(next);
        if number == next {
            self.from.push(Vec::new());
        }
        (number, number == next)
    }

    /// Whether every state can come to an end.
    fn all_end(&self) -> bool {
        let mut seen = vec![false; self.from.len()];
        let mut queue: Vec<u32> = self.ends.iter().map(|(number, _)| *number).collect();
        while let Some(number) = queue.pop() {
            if !std::mem::replace(&mut seen[number as usize], true) {
                queue.extend(&self.from[number as usize]);
            }
        }
        seen.into_iter().all(|it| it)
    }
}

/// All that can be reached.
fn reach(program: &Program, broken: Option<Broken>, start: World) -> States {
    let mut states = States::default();
    let mut queue = VecDeque::from([(states.number(&start).0, start)]);
    while let Some((number, world)) = queue.pop_front() {
        if world.has_diverged {
            states.has_diverged = true;
            break;
        }
        if let Some(outcome) = world.outcome() {
            states.ends.push((number, outcome));
        }
        for next in world.steps(program, broken) {
            let (to, is_new) = states.number(&next);
            states.from[to as usize].push(number);
            if is_new {
                queue.push_back((to, next));
            }
        }
    }
    states
}
