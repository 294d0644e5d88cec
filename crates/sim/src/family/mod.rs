//! Processes that share memory, explored: every interleaving of their primaries, their standbys and the supervisor, with a
//! kill between any two steps. The rules are those of [`us_order::family`] and [`us_order::turns`].
//!
//! A run is right if no standby goes another way, nobody waits for ever, and what was put out, and the memory in the end, is what
//! the processes could have made of it natively.

pub mod library;
pub mod primary;
pub mod standby;
pub mod supervisor;
pub mod trace;
pub mod world;

use std::collections::{HashSet, VecDeque};
use std::fmt;

use self::world::{Context, Life, Outcome, PROCESSES, Program, Violation, World};
use crate::hash::Fingerprint;
use crate::mutation::Mutation;

/// One step.
#[derive(Clone, Copy, Debug)]
pub struct Label {
    who: &'static str,
    process: usize,
    what: &'static str,
}

impl Label {
    /// Of a primary.
    #[must_use]
    pub fn primary(process: usize, what: &'static str) -> Label {
        Label { who: "primary", process, what }
    }

    /// Of a standby.
    #[must_use]
    pub fn standby(process: usize, what: &'static str) -> Label {
        Label { who: "standby", process, what }
    }

    /// Of the supervisor, about one process or about all.
    #[must_use]
    pub fn supervisor(process: usize, what: &'static str) -> Label {
        Label { who: "supervisor", process, what }
    }
}

impl fmt::Display for Label {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.process {
            PROCESSES => write!(f, "{:<10}    {}", self.who, self.what),
            process => write!(f, "{:<10} P{process} {}", self.who, self.what),
        }
    }
}

/// The possible next worlds.
pub type Successors = Vec<(World, Label)>;

/// What an exploration saw.
#[derive(Clone, Debug, Default)]
pub struct Report {
    /// Distinct states.
    pub states: usize,
    /// Distinct ends.
    pub outcomes: HashSet<Outcome>,
    /// The first violation and the way to it.
    pub failure: Option<(Violation, Vec<String>)>,
}

/// Explores a program.
#[must_use]
pub fn check(program: &Program, mutation: Option<Mutation>) -> Report {
    let cx = Context { program, mutation };
    let native = native(program);
    let mut report = Report::default();
    let mut nodes: Vec<(usize, Option<Label>)> = vec![(0, None)];
    let start = World::new(program);
    let mut seen = HashSet::from([Fingerprint::of(start)]);
    let mut queue = VecDeque::from([(start, 0)]);
    let mut next = Successors::new();
    while let Some((world, node)) = queue.pop_front() {
        next.clear();
        let violation = judge(&cx, &world, &native, &mut report.outcomes, &mut next);
        if let Some(violation) = violation {
            let mut lines = Vec::new();
            let mut at = node;
            while let (parent, Some(label)) = nodes[at] {
                lines.push(label.to_string());
                at = parent;
            }
            lines.reverse();
            report.failure = Some((violation, lines));
            break;
        }
        for (world, label) in next.drain(..) {
            if seen.insert(Fingerprint::of(world)) {
                nodes.push((node, Some(label)));
                queue.push_back((world, nodes.len() - 1));
            }
        }
    }
    report.states = seen.len();
    report
}

/// What is wrong with a world, and the worlds behind it.
fn judge(
    cx: &Context,
    world: &World,
    native: &HashSet<Outcome>,
    outcomes: &mut HashSet<Outcome>,
    next: &mut Successors,
) -> Option<Violation> {
    if world.bad.is_some() {
        return world.bad;
    }
    if world.is_lost() {
        return None;
    }
    if let Some(outcome) = world.outcome() {
        outcomes.insert(outcome);
        return (!native.contains(&outcome)).then_some(Violation::NotNative);
    }
    proceed(cx, world, next);
    if next.is_empty() {
        return Some(Violation::Deadlock);
    }
    supervisor::faults(cx, world, next);
    None
}

/// Adds every step but the faults.
pub(crate) fn proceed(cx: &Context, world: &World, next: &mut Successors) {
    (0..PROCESSES).for_each(|p| primary::steps(cx, world, p, next));
    (0..PROCESSES).for_each(|p| standby::steps(cx, world, p, next));
    supervisor::steps(cx, world, next);
}

/// All ends that the program can have without copies.
#[must_use]
pub fn native(program: &Program) -> HashSet<Outcome> {
    let alone = Program { forms: true, ..program.clone() };
    let cx = Context { program: &alone, mutation: None };
    let mut start = World::new(&alone);
    (start.forms, start.kills, start.losses) = (0, 0, 0);
    let mut seen = HashSet::from([Fingerprint::of(start)]);
    let mut stack = vec![start];
    let mut outcomes = HashSet::new();
    let mut next = Successors::new();
    while let Some(world) = stack.pop() {
        next.clear();
        (0..PROCESSES).for_each(|p| primary::steps(&cx, &world, p, &mut next));
        if next.is_empty() {
            let ended = world.all.iter().all(|process| process.primary.life != Life::Running);
            assert!(ended, "{}: stands still natively", program.name);
            outcomes.extend(world.outcome());
        }
        stack.extend(
            next.drain(..).map(|(world, _)| world).filter(|world| seen.insert(Fingerprint::of(world))),
        );
    }
    outcomes
}
