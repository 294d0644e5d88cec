//! A copy that follows the turns, and takes over at any moment: its threads go on as those of a run in which nobody died.
//!
//! The log has the turns, each with its thread and that one's clock. What a turn has done to the race is in no log: the copy's own
//! threads do it again. So where the copy stands, between two turns or inside one, its race stands as well.

use std::collections::HashSet;

use us_order::logical::{At, Logical};

use super::{Op, Phase, Program, Report, THREADS, World, explore};

/// A rule of following, or of a promotion, that is broken on purpose.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Broken {
    /// Who follows changes the race only by the log's turns: nobody wakes.
    FollowerWakesNobody,
    /// Every sleeper looks again when the copy takes over.
    PromotionWakesAll,
    /// The race is what the dead primary had made of it, which may have come further than its log.
    RaceIsThePrimarys,
    /// The one whose turn it was comes for another one.
    OwnerBeginsAnew,
}

/// All of them.
pub const ALL: [Broken; 4] = [
    Broken::FollowerWakesNobody,
    Broken::PromotionWakesAll,
    Broken::RaceIsThePrimarys,
    Broken::OwnerBeginsAnew,
];

/// A turn in the log, and the race behind it in the primary.
struct Turn {
    thread: usize,
    clock: u64,
    times: Logical<THREADS>,
}

/// A copy, and how many turns it has begun.
#[derive(Clone, PartialEq, Eq, Hash)]
struct Copy {
    world: World,
    begun: usize,
}

/// Explores a program whose primary dies behind any turn, and whose copy has come anywhere up to there.
#[must_use]
pub fn check(program: &Program, broken: Option<Broken>) -> Report {
    let log = log_of(program);
    let first = Copy { world: World::first(), begun: 0 };
    let (mut seen, mut todo) = (HashSet::from([first.clone()]), vec![first]);
    let mut promoted = HashSet::new();
    while let Some(copy) = todo.pop() {
        promoted.insert(copy.promote(&log, broken));
        for thread in 0..program.len() {
            if let Some(next) = copy.step(program, thread, &log, broken)
                && seen.insert(next.clone())
            {
                todo.push(next);
            }
        }
    }
    explore(program, promoted, None)
}

/// What the primary of one run has logged.
fn log_of(program: &Program) -> Vec<Turn> {
    let (mut world, mut log) = (World::first(), Vec::new());
    while let Some((thread, next)) =
        (0..program.len()).find_map(|thread| Some((thread, world.steps(program, thread, None).pop()?)))
    {
        if matches!(world.phase[thread], Phase::Waits | Phase::Awake) {
            log.push(Turn { thread, clock: world.times.due(thread), times: next.times.clone() });
        }
        world = next;
    }
    log
}

impl Copy {
    /// What comes next of a thread that follows.
    fn step(&self, program: &Program, thread: usize, log: &[Turn], broken: Option<Broken>) -> Option<Copy> {
        let mut next = self.clone();
        let op = program[thread].get(usize::from(self.world.at[thread])).copied();
        let is_turn = log.get(self.begun).is_some_and(|turn| turn.thread == thread)
            && !self.world.phase.contains(&Phase::Acts);
        match self.world.phase[thread] {
            Phase::Unborn | Phase::Ended => return None,
            Phase::Runs if op == Some(Op::Work) => next.world.at[thread] += 1,
            Phase::Runs => next.world.phase[thread] = Phase::Waits,
            Phase::SleepsOn => next.world.phase[thread] = Phase::Awake,
            Phase::Acts => {
                let asleep = |at: At| matches!(at, At::Asleep { .. });
                next.world.door(thread, op, None);
                if broken == Some(Broken::FollowerWakesNobody)
                    && (0..THREADS).any(|other| {
                        other != thread
                            && asleep(self.world.times.at(other))
                            && !asleep(next.world.times.at(other))
                    })
                {
                    let times = &mut next.world.times;
                    *times = self.world.times.clone();
                    match op {
                        None => times.exit(thread),
                        Some(_) => times.tick(thread, 1),
                    }
                }
            }
            Phase::Waits | Phase::Sleeps | Phase::Awake if !is_turn => return None,
            phase => {
                next.world.times.follow(thread, log[self.begun].clock);
                next.begun += 1;
                if phase == Phase::Awake {
                    next.world.pass(thread, 9);
                } else {
                    next.world.phase[thread] = Phase::Acts;
                }
            }
        }
        Some(next)
    }

    /// Its primary has died, and the log has no more turns.
    fn promote(&self, log: &[Turn], broken: Option<Broken>) -> World {
        let mut world = self.world.clone();
        match broken {
            Some(Broken::PromotionWakesAll) => {
                for thread in 0..THREADS {
                    if matches!(world.times.at(thread), At::Asleep { is_timed: false, .. }) {
                        world.times.come_back(thread);
                    }
                }
            }
            Some(Broken::RaceIsThePrimarys) if self.begun != 0 => {
                world.times = log[self.begun - 1].times.clone();
            }
            Some(Broken::OwnerBeginsAnew) => {
                for phase in &mut world.phase {
                    if *phase == Phase::Acts {
                        *phase = Phase::Runs;
                    }
                }
                for thread in 0..THREADS {
                    if self.world.phase[thread] == Phase::Acts {
                        world.times.come_back(thread);
                    }
                }
            }
            _ => {}
        }
        world
    }
}
