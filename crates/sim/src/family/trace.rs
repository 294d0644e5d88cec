//! One failover of a family, step by step, for people.

use std::fmt::Write as _;

use super::world::{Context, Kind, PROCESSES, Process, Program, World};
use super::{Label, Successors, proceed, supervisor};
use crate::walk::Random;

/// The trace of one run: a schedule by the seed, and a kill behind so many steps; without a number in the middle.
#[must_use]
pub fn trace(program: &Program, seed: u64, kill_at: Option<usize>) -> String {
    let cx = Context { program, mutation: None };
    let undisturbed = run(&cx, seed, usize::MAX).len();
    let kill = kill_at.unwrap_or(undisturbed / 2).min(undisturbed);
    let mut text =
        format!("{}: {}\nseed {seed}, one is killed behind step {kill}\n\n", program.name, program.why);
    let mut before = World::new(program);
    for (number, (world, label)) in run(&cx, seed, kill).iter().enumerate() {
        let line = format!("{:>3}  {label}", number + 1);
        let changes = changes(&before, world);
        let _ = if changes.is_empty() {
            writeln!(text, "{line}")
        } else {
            writeln!(text, "{line:<66}  [{}]", changes.join(", "))
        };
        before = *world;
    }
    text
}

fn run(cx: &Context, seed: u64, kill: usize) -> Vec<(World, Label)> {
    let mut random = Random::new(seed);
    let mut steps: Vec<(World, Label)> = Vec::new();
    let mut next = Successors::new();
    let mut world = World::new(cx.program);
    let mut is_to_come = kill != usize::MAX;
    loop {
        next.clear();
        if is_to_come && steps.len() >= kill {
            // Losses of standbys are another matter.
            supervisor::faults(cx, &World { losses: 0, ..world }, &mut next);
            for (world_then, _) in &mut next {
                world_then.losses = world.losses;
            }
        }
        is_to_come &= next.is_empty();
        if next.is_empty() {
            proceed(cx, &world, &mut next);
        }
        if next.is_empty() {
            return steps;
        }
        let step = next[random.below(next.len())];
        world = step.0;
        steps.push(step);
    }
}

/// What has changed for others.
fn changes(before: &World, now: &World) -> Vec<String> {
    let mut all = Vec::new();
    if before.memory != now.memory {
        all.push(format!("memory {:?} -> {:?}", before.memory, now.memory));
    }
    if before.copy != now.copy {
        all.push(format!("copy {:?} -> {:?}", before.copy, now.copy));
    }
    let (then, family) = (&before.family, &now.family);
    if then.phase != family.phase {
        all.push(format!("{:?} -> {:?}", then.phase, family.phase).to_lowercase());
    }
    if then.had != family.had {
        all.push(match family.had {
            0 => "nobody has the turn".into(),
            had => format!("turn {} is had", had - 1),
        });
    }
    if then.behind.ended != family.behind.ended {
        all.push(format!("turns before {} have ended", family.behind.ended));
    }
    for (p, (then, process)) in before.all.iter().zip(&now.all).enumerate() {
        let at = |process: &Process, place: u8| {
            let event = process.ring[usize::from(place)];
            match event.kind {
                Kind::Turn => format!("Turn {}", event.value),
                kind => format!("{kind:?}"),
            }
        };
        if process.tail > then.tail {
            all.push(format!("log P{p} + {}", at(process, then.tail)));
        }
        if process.head > then.head {
            all.push(format!("log P{p} - {}", at(process, then.head)));
        }
    }
    for p in (0..PROCESSES).filter(|p| before.out_len[*p] != now.out_len[*p]) {
        all.push(format!("out P{p} {}", now.out[p][usize::from(before.out_len[p])]));
    }
    all
}
