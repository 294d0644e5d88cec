//! Turns in a computed order, explored: every interleaving of a program's threads, by the clocks that the runtime has.
//!
//! A program is right if all its interleavings put down the same: who has had which lock, whose sleep has ended, in which order. And if
//! each comes to an end.

use std::collections::HashSet;

use us_order::logical::{At, Logical};

pub mod promoted;

/// What a thread does next.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Op {
    /// Something that orders nothing: it takes its time.
    Work,
    /// Takes a lock.
    Lock(u8),
    /// Gives it back.
    Unlock(u8),
    /// Sleeps for so many ticks.
    Sleep(u8),
    /// Makes this thread.
    Create(u8),
    /// Waits for its end.
    Join(u8),
}

/// A rule that is broken on purpose.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Broken {
    /// Who comes to a door passes it.
    NobodyWaits,
    /// Who finds a lock held stays in the race.
    SleeperIsAwaited,
    /// Who sleeps for a lock comes back when it sees that it is free.
    SleeperWakesItself,
    /// A new thread enters the race when it first runs.
    ChildEntersItself,
    /// A thread's end is seen when the kernel says so.
    EndIsTheKernels,
    /// A sleep ends at its time, wherever the others are.
    TimeIsAClocks,
    /// A thread that computes while others wait is passed over.
    ComputingIsPassedOver,
    /// Of equal clocks the one goes first that comes first.
    TiesByMoment,
}

/// All of them.
pub const ALL: [Broken; 8] = [
    Broken::NobodyWaits,
    Broken::SleeperIsAwaited,
    Broken::SleeperWakesItself,
    Broken::ChildEntersItself,
    Broken::EndIsTheKernels,
    Broken::TimeIsAClocks,
    Broken::ComputingIsPassedOver,
    Broken::TiesByMoment,
];

/// The threads' code. The first one begins.
pub type Program = Vec<Vec<Op>>;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Phase {
    /// There is no such thread yet.
    Unborn,
    /// In guest code.
    Runs,
    /// At a door, for its turn.
    Waits,
    /// In its turn, which a copy takes over in the middle.
    Acts,
    /// Until it is woken.
    Sleeps,
    /// Until a time, which has not come.
    SleepsOn,
    /// That has come.
    Awake,
    /// Behind its last instruction.
    Ended,
}

const THREADS: usize = 4;
const END: u64 = 100;
const OWN: u64 = 200;

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct World {
    times: Logical<THREADS>,
    phase: [Phase; THREADS],
    at: [u8; THREADS],
    held: [bool; 3],
    /// Who has come by what.
    trace: Vec<(u8, u8)>,
}

/// What an exploration saw.
#[derive(Clone, Debug, Default)]
pub struct Report {
    /// Distinct states.
    pub states: usize,
    /// Distinct ends.
    pub ends: HashSet<Vec<(u8, u8)>>,
    /// A state from which no thread comes on, before the end.
    pub is_stuck: bool,
}

impl Report {
    /// One end, and nobody stuck.
    #[must_use]
    pub fn is_right(&self) -> bool {
        self.ends.len() == 1 && !self.is_stuck
    }
}

/// Explores a program.
#[must_use]
pub fn check(program: &Program, broken: Option<Broken>) -> Report {
    explore(program, HashSet::from([World::first()]), broken)
}

/// All that may come of these.
fn explore(program: &Program, mut seen: HashSet<World>, broken: Option<Broken>) -> Report {
    let mut todo: Vec<World> = seen.iter().cloned().collect();
    let mut report = Report::default();
    while let Some(world) = todo.pop() {
        let mut comes_on = false;
        for thread in 0..program.len() {
            for next in world.steps(program, thread, broken) {
                comes_on = true;
                if seen.insert(next.clone()) {
                    todo.push(next);
                }
            }
        }
        if world.phase[..program.len()].iter().all(|phase| *phase == Phase::Ended) {
            report.ends.insert(world.trace.clone());
        } else if !comes_on {
            report.is_stuck = true;
        }
    }
    report.states = seen.len();
    report
}

impl World {
    fn first() -> World {
        let mut first = World {
            times: Logical::new(),
            phase: [Phase::Unborn; THREADS],
            at: [0; THREADS],
            held: [false; 3],
            trace: Vec::new(),
        };
        first.times.enter(0);
        first.phase[0] = Phase::Runs;
        first
    }

    /// What may come next of a thread, none where it waits.
    fn steps(&self, program: &Program, thread: usize, broken: Option<Broken>) -> Vec<World> {
        let mut next = self.clone();
        let op = program[thread].get(usize::from(self.at[thread])).copied();
        match self.phase[thread] {
            Phase::Unborn | Phase::Ended => return Vec::new(),
            Phase::Runs => {
                if broken == Some(Broken::ChildEntersItself) && self.times.at(thread) == At::Gone {
                    next.times.enter(thread);
                }
                if op == Some(Op::Work) {
                    next.at[thread] += 1;
                    let mut all = vec![next];
                    let is_here = self.times.at(thread) == At::Here;
                    if broken == Some(Broken::ComputingIsPassedOver) && is_here && self.is_awaited(thread) {
                        let mut passed = self.clone();
                        passed.times.leave(thread);
                        all.push(passed);
                    }
                    return all;
                }
                if self.times.at(thread) == At::Away {
                    next.times.come_back(thread);
                }
                if op.is_none() && broken == Some(Broken::EndIsTheKernels) {
                    next.end(thread);
                } else {
                    next.phase[thread] = Phase::Waits;
                }
            }
            Phase::Waits if next.begins(thread, broken) => next.door(thread, op, broken),
            Phase::Waits => return Vec::new(),
            Phase::Acts => next.door(thread, op, broken),
            Phase::Sleeps if self.times.at(thread) == At::Here => next.phase[thread] = Phase::Waits,
            Phase::Sleeps => {
                let is_free = matches!(op, Some(Op::Lock(lock)) if !self.held[usize::from(lock)]);
                if broken != Some(Broken::SleeperWakesItself) || !is_free {
                    return Vec::new();
                }
                next.times.come_back(thread);
                next.phase[thread] = Phase::Waits;
            }
            Phase::SleepsOn => {
                if broken == Some(Broken::TimeIsAClocks) {
                    next.times.come_back(thread);
                }
                next.phase[thread] = Phase::Awake;
            }
            Phase::Awake => {
                if !(next.times.begin_in_time(thread) || next.times.begin(thread)) {
                    return Vec::new();
                }
                next.pass(thread, 9);
            }
        }
        vec![next]
    }

    /// Whether somebody waits for this thread, who computes.
    fn is_awaited(&self, thread: usize) -> bool {
        let waits = |phase: &Phase| matches!(phase, Phase::Waits | Phase::Awake);
        self.times.least() == Some(thread) && self.phase.iter().any(waits)
    }

    fn begins(&mut self, thread: usize, broken: Option<Broken>) -> bool {
        let is_here = self.times.at(thread) == At::Here;
        let is_least = |times: &Logical<THREADS>| {
            times.least().is_some_and(|least| times.clock(least) == times.clock(thread))
        };
        match broken {
            Some(Broken::NobodyWaits) => true,
            Some(Broken::TiesByMoment) if is_here && is_least(&self.times) => true,
            _ => self.times.begin(thread),
        }
    }

    /// The door has been passed.
    fn pass(&mut self, thread: usize, what: u8) {
        self.trace.push((thread as u8, what));
        self.times.tick(thread, 1);
        self.at[thread] += 1;
        self.phase[thread] = Phase::Runs;
    }

    fn sleep(&mut self, thread: usize, key: u64, ticks: Option<u64>) {
        self.times.sleep(thread, key, ticks);
        self.phase[thread] = if ticks.is_some() { Phase::SleepsOn } else { Phase::Sleeps };
    }

    /// In its turn.
    fn door(&mut self, thread: usize, op: Option<Op>, broken: Option<Broken>) {
        match op {
            Some(Op::Lock(lock)) if self.held[usize::from(lock)] => {
                if broken != Some(Broken::SleeperIsAwaited) {
                    self.sleep(thread, u64::from(lock) * 4, None);
                }
            }
            Some(Op::Lock(lock)) => {
                self.held[usize::from(lock)] = true;
                self.pass(thread, lock);
            }
            Some(Op::Unlock(lock)) => {
                self.held[usize::from(lock)] = false;
                if broken != Some(Broken::SleeperWakesItself) {
                    self.times.wake(u64::from(lock) * 4);
                }
                self.pass(thread, 4 + lock);
            }
            Some(Op::Sleep(ticks)) => self.sleep(thread, OWN + thread as u64 * 4, Some(ticks.into())),
            Some(Op::Create(other)) => {
                if broken != Some(Broken::ChildEntersItself) {
                    self.times.enter(other.into());
                }
                self.phase[usize::from(other)] = Phase::Runs;
                self.pass(thread, 7);
            }
            Some(Op::Join(other)) => {
                if self.times.at(other.into()) == At::Gone {
                    self.pass(thread, 8);
                } else {
                    self.sleep(thread, END + u64::from(other) * 4, None);
                }
            }
            Some(Op::Work) => {}
            None => self.end(thread),
        }
    }

    fn end(&mut self, thread: usize) {
        self.times.exit(thread);
        while self.times.wake(END + thread as u64 * 4).is_some() {}
        self.phase[thread] = Phase::Ended;
    }
}

/// Threads that race for a lock, and for a second one.
#[must_use]
pub fn guarded() -> Program {
    use Op::{Create, Join, Lock, Unlock, Work};
    let racer = vec![Work, Lock(0), Work, Unlock(0), Lock(0), Unlock(0)];
    vec![
        vec![Create(1), Create(2), Lock(0), Unlock(0), Join(1), Lock(0), Unlock(0), Join(2)],
        racer,
        vec![Lock(1), Lock(0), Work, Unlock(0), Unlock(1), Work],
    ]
}

/// A thread that sleeps beside others.
#[must_use]
pub fn timed() -> Program {
    use Op::{Create, Lock, Sleep, Unlock, Work};
    vec![
        vec![Create(1), Create(2), Sleep(2), Lock(0), Unlock(0)],
        vec![Lock(0), Work, Unlock(0), Work, Lock(0), Unlock(0)],
        vec![Work, Lock(1), Unlock(1)],
    ]
}

/// A thread that waits for the end of another one, at the very time of that.
#[must_use]
pub fn ends() -> Program {
    use Op::{Create, Join, Lock, Unlock};
    vec![
        vec![Create(1), Create(2), Lock(0), Join(1), Unlock(0), Join(2)],
        vec![Lock(1), Unlock(1)],
        vec![Lock(2), Unlock(2), Lock(2), Unlock(2)],
    ]
}
