//! What the standbys of a family do: they follow, and take over together.

use us_order::{family, turns};

use super::primary::after;
use super::world::*;
use super::{Label, Successors};
use crate::mutation::Mutation;

/// Adds the next steps of a process's standby.
pub fn steps(cx: &Context, world: &World, p: usize, out: &mut Successors) {
    let process = &world.all[p];
    if process.standby.life != Life::Running {
        return;
    }
    let mut next = *world;
    if is_at_fault(cx, process) {
        next.all[p].standby.life = Life::Dead;
        return out.push((next, Label::standby(p, "comes to the fault, and dies of it")));
    }
    if let Some(what) = follow(cx, &mut next, p) {
        out.push((next, Label::standby(p, what)));
    }
    if process.over == Over::No || process.over == Over::Chosen || process.front().is_some() {
        return;
    }
    let mut next = *world;
    if let Some(what) = take_over(cx, &mut next, p) {
        out.push((next, Label::standby(p, what)));
    }
}

/// Whether it is about to run into a fault of the program's, of which the log says nothing. One that does so before its primary has
/// died is one that is lost.
fn is_at_fault(cx: &Context, process: &Process) -> bool {
    let is_there = process.standby.step == Step::Guest && cx.op(&process.standby) == Op::Fault;
    is_there && process.front().is_none() && process.over != Over::No
}

/// Whether it waits for an event.
fn waits(cx: &Context, side: &Side) -> bool {
    match side.step {
        Step::Turn | Step::Given | Step::Forked | Step::Departing => true,
        Step::Guest => matches!(cx.op(side), Op::Put | Op::Fork(_) | Op::End),
        _ => false,
    }
}

/// One step by the log, on the copy of the memory.
fn follow(cx: &Context, world: &mut World, p: usize) -> Option<&'static str> {
    let process = &mut world.all[p];
    let op = cx.op(&process.standby);
    let front = process.front();
    let side = &mut process.standby;
    match (side.step, op) {
        (Step::Turn, _) => {
            let event = front?;
            if event.kind != Kind::Turn {
                goes_another_way(world, p);
                return Some("is to take a turn, and the log says something else");
            }
            if !turns::is_due(event.value.into(), false, world.family.behind) {
                return None;
            }
            side.turn = event.value + 1;
            side.step = side.resume;
            process.head += 1;
            let begun = &mut world.family.behind.begun;
            *begun = (*begun).max(after(event.value + 1));
            Some("takes the turn")
        }
        (Step::Store, Op::Add(word)) => {
            world.copy[usize::from(word)] = side.hand + 1;
            side.pc += 1;
            side.step = Step::Guest;
            Some("writes the word")
        }
        (Step::Guest, Op::Load(word)) => {
            side.register = world.copy[usize::from(word)];
            side.pc += 1;
            Some("reads the word")
        }
        (Step::Guest, Op::Add(word)) => {
            side.hand = world.copy[usize::from(word)];
            side.step = Step::Store;
            Some("reads the word to add to it")
        }
        (Step::Guest, Op::Yield) => {
            side.pass();
            give(world, p);
            Some("gives the turn to others")
        }
        (Step::Guest, Op::Put | Op::Fork(_)) => {
            let event = front?;
            let digest = if op == Op::Put { side.register } else { 0 };
            if event != (Event { kind: Kind::Enter, value: digest }) {
                goes_another_way(world, p);
                return Some("puts out something else than the log says");
            }
            side.step = if op == Op::Put { Step::Entered } else { Step::Forked };
            process.head += 1;
            Some("applies the call's beginning")
        }
        (Step::Guest, Op::End | Op::Fault) => {
            front?;
            side.step = Step::Departing;
            process.head += 1;
            give(world, p);
            Some("gives its last turn back")
        }
        (Step::Entered, _) => {
            side.step = Step::Given;
            give(world, p);
            Some("gives the turn back")
        }
        (Step::Given | Step::Forked, _) => {
            front?;
            process.head += 1;
            if op == Op::Put {
                side.pass();
            } else {
                side.pc += 1;
                side.step = Step::Guest;
            }
            Some("applies the return")
        }
        _ => None,
    }
}

/// It does something else than the log says. Where the order has ended that is so, and its standby is about to be ended anyway.
fn goes_another_way(world: &mut World, p: usize) {
    if world.family.phase.has_order() {
        return world.blame(Violation::Diverged);
    }
    world.all[p].forget_log();
}

fn give(world: &mut World, p: usize) {
    let side = &mut world.all[p].standby;
    if side.turn != 0 {
        let ended = &mut world.family.behind.ended;
        *ended = (*ended).max(after(side.turn));
        side.turn = 0;
    }
}

/// One step of a promotion. The ring is empty.
fn take_over(cx: &Context, world: &mut World, p: usize) -> Option<&'static str> {
    let family = &mut world.family;
    let process = &mut world.all[p];
    let together = family::is_together(family.phase);
    let members = u32::from(family.members);
    match process.over {
        Over::No | Over::Chosen => None,
        Over::Draining => {
            let begun = matches!(process.standby.step, Step::Entered | Step::Given | Step::Forked);
            let in_doubt = begun && process.done;
            if in_doubt {
                process.publish(Kind::Return, 0);
            }
            process.done = false;
            process.over = Over::Settled;
            Some(if in_doubt { "settles: the call was done" } else { "settles" })
        }
        Over::Settled => {
            if !waits(cx, &process.standby) && !cx.has(Mutation::FamilySettledInGuestCode) {
                return None;
            }
            process.over = Over::Waiting;
            family.settled += 1;
            Some("stands at a door, and has settled everything")
        }
        Over::Waiting => {
            let all = family::are_all(family.settled.into(), members);
            if together && !all && !cx.has(Mutation::FamilyActsBeforeAllSettled) {
                return None;
            }
            if together && !family.put_back && !cx.has(Mutation::FamilyMemoryNotPutBack) {
                family.put_back = true;
                world.memory = world.copy;
            }
            family.whole += 1;
            process.over = Over::Whole;
            Some("sees that the memory is put back")
        }
        Over::Whole => {
            let all = family::are_all(family.whole.into(), members);
            if together && !all && !cx.has(Mutation::FamilyActsBeforeAllSettled) {
                return None;
            }
            if together {
                let before = family.live;
                family.live += 1;
                if family::is_last(before.into(), members) {
                    family.phase = family::Phase::None;
                }
            }
            go_live(process);
            Some("is live")
        }
    }
}

/// The copy is the process from here on, without a log.
fn go_live(process: &mut Process) {
    let mut side = process.standby;
    side.turn = 0;
    // A fork that was in doubt and not done is made again.
    side.step = match side.step {
        Step::Forked => Step::Forking,
        Step::Departing => Step::Left,
        step => step,
    };
    process.forget_log();
    process.primary = side;
}
