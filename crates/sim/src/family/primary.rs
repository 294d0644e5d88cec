//! What the copies do that act. `us_order::family` says who takes a turn, and who leaves.

use us_order::family::{self, Phase, Turn};
use us_order::turns;

use super::world::*;
use super::{Label, Successors};
use crate::mutation::Mutation;

/// Adds the next steps of a process's primary.
pub fn steps(cx: &Context, world: &World, p: usize, out: &mut Successors) {
    let process = &world.all[p];
    if process.primary.life != Life::Running {
        return;
    }
    if process.stands {
        return stand(cx, world, p, out);
    }
    if process.asked && may_stand(&process.primary) {
        let mut next = *world;
        let side = &mut next.all[p].primary;
        if side.step == Step::Given {
            // The call came back with nothing done, and begins again.
            side.step = Step::Guest;
        }
        next.all[p].stands = true;
        next.all[p].asked = false;
        next.family.standing += 1;
        out.push((next, Label::primary(p, "stands still")));
    }
    let mut next = *world;
    if let Some(what) = act(cx, &mut next, p) {
        out.push((next, Label::primary(p, what)));
    }
}

/// Whether it may be held where it is: in guest code, or in a call that is not made.
fn may_stand(side: &Side) -> bool {
    matches!(side.step, Step::Turn | Step::Guest | Step::Store | Step::Given)
}

/// What of the shared memory, and of the outside, the primary changes: one step.
fn act(cx: &Context, world: &mut World, p: usize) -> Option<&'static str> {
    let phase = world.family.phase;
    let process = &mut world.all[p];
    let logs = process.is_protected || process.over != Over::No;
    let op = cx.op(&process.primary);
    let side = &mut process.primary;
    match side.step {
        Step::Newborn if cx.has(Mutation::FamilyChildActsAlone) => {
            side.step = Step::Turn;
            Some("goes on without a standby")
        }
        Step::Newborn if process.is_protected => {
            side.step = Step::Turn;
            Some("has its standby")
        }
        Step::Newborn if !phase.has_order() => {
            process.is_member = false;
            side.step = Step::Turn;
            Some("is of no family")
        }
        Step::Newborn => None,
        Step::Turn if !logs || !process.is_member => {
            side.step = side.resume;
            Some("goes on")
        }
        Step::Turn => take(cx, world, p),
        Step::Taken => {
            side.step = side.resume;
            let number = side.turn - 1;
            process.publish(Kind::Turn, number);
            Some("logs its turn")
        }
        Step::Store => {
            let Op::Add(word) = op else { unreachable!("only an addition stores") };
            world.memory[usize::from(word)] = side.hand + 1;
            side.pc += 1;
            side.step = Step::Guest;
            Some("writes the word")
        }
        Step::Guest => begin(world, p, op, logs),
        Step::Entered => {
            side.step = Step::Given;
            give(world, p);
            Some("gives the turn back")
        }
        Step::Given => {
            let byte = side.register;
            if logs {
                side.step = Step::Made;
                process.done = true;
            } else {
                side.pass();
            }
            world.put(p, byte);
            Some("puts it out")
        }
        Step::Made => {
            side.pass();
            process.done = false;
            process.publish(Kind::Return, 0);
            Some("logs the return")
        }
        Step::Forking => fork(world, p, op),
        Step::Forked => {
            side.pc += 1;
            side.step = Step::Guest;
            process.done = false;
            process.publish(Kind::Return, 0);
            Some("logs the child")
        }
        Step::Departing => depart(cx, world, p),
        Step::Left if family::waits_to_end(phase) && !cx.has(Mutation::FamilyEndsWhilePromoting) => None,
        Step::Left => {
            end(world, p);
            Some("ends, and its standby with it")
        }
    }
}

fn take(cx: &Context, world: &mut World, p: usize) -> Option<&'static str> {
    let phase = match world.family.phase {
        Phase::Promoting if cx.has(Mutation::FamilyTurnWhilePromoting) => Phase::Active,
        phase => phase,
    };
    match family::turn(phase) {
        Turn::Take if world.family.had == 0 => {
            let side = &mut world.all[p].primary;
            side.turn = world.family.next + 1;
            side.step = Step::Taken;
            world.family.had = side.turn;
            world.family.next += 1;
            Some("takes the turn")
        }
        Turn::Take | Turn::Wait => None,
        Turn::Ended if world.all[p].over != Over::No => None,
        Turn::Ended => {
            world.all[p].forget_log();
            world.all[p].primary.step = world.all[p].primary.resume;
            Some("finds that the order has ended, and goes on without a standby")
        }
    }
}

/// Gives the turn back.
fn give(world: &mut World, p: usize) {
    let side = &mut world.all[p].primary;
    if side.turn != 0 && side.turn == world.family.had {
        world.family.had = 0;
    }
    side.turn = 0;
}

/// The first step of an operation.
fn begin(world: &mut World, p: usize, op: Op, logs: bool) -> Option<&'static str> {
    let process = &mut world.all[p];
    let side = &mut process.primary;
    match op {
        Op::Load(word) => {
            side.register = world.memory[usize::from(word)];
            side.pc += 1;
            Some("reads the word")
        }
        Op::Add(word) => {
            side.hand = world.memory[usize::from(word)];
            side.step = Step::Store;
            Some("reads the word to add to it")
        }
        Op::Put if logs => {
            side.step = Step::Entered;
            let digest = side.register;
            process.publish(Kind::Enter, digest);
            Some("logs that the call begins")
        }
        Op::Put => {
            side.step = Step::Given;
            Some("begins the call")
        }
        Op::Yield => {
            side.pass();
            give(world, p);
            Some("gives the turn to others")
        }
        Op::Fork(_) => {
            side.step = Step::Forking;
            if logs {
                process.publish(Kind::Enter, 0);
            }
            Some("begins to fork")
        }
        Op::End | Op::Fault if logs && process.is_member => {
            side.step = Step::Departing;
            process.publish(Kind::Yield, 0);
            // Which turn was the last is kept.
            let last = process.primary.turn;
            give(world, p);
            world.all[p].primary.turn = last;
            Some("gives its last turn back, and is about to end")
        }
        Op::End | Op::Fault => {
            end(world, p);
            Some("ends")
        }
    }
}

fn fork(world: &mut World, p: usize, op: Op) -> Option<&'static str> {
    let Op::Fork(entry) = op else { unreachable!("only a fork makes a child") };
    let child = world.all.iter().position(|process| process.primary.life == Life::Absent).expect("room");
    let is_member = world.all[p].is_member && world.family.phase.has_order();
    let step = if is_member { Step::Newborn } else { Step::Turn };
    let side = Side { life: Life::Running, pc: entry, step, ..Side::default() };
    world.all[child] = Process { primary: side, is_member, ..Process::default() };
    let parent = &mut world.all[p];
    let logs = parent.is_protected || parent.over != Over::No;
    parent.done = logs;
    if logs {
        parent.primary.step = Step::Forked;
    } else {
        parent.primary.pc += 1;
        parent.primary.step = Step::Guest;
    }
    Some("makes the child")
}

/// It is about to end, and leaves once its standby has done what it has done.
fn depart(cx: &Context, world: &mut World, p: usize) -> Option<&'static str> {
    let process = &mut world.all[p];
    let last = u64::from(process.primary.turn.max(1) - 1);
    let is_followed = process.primary.turn == 0 || family::is_followed(last, world.family.behind.ended);
    let goes = is_followed || !world.family.phase.has_order() || cx.has(Mutation::FamilyLeavesUnfollowed);
    if !goes {
        return None;
    }
    process.is_member = false;
    process.primary.step = Step::Left;
    Some("leaves the family")
}

fn end(world: &mut World, p: usize) {
    let process = &mut world.all[p];
    let (was_asked, over) = (process.asked, process.over);
    process.forget_log();
    // Whoever was chosen to take over is waited for.
    process.over = over;
    process.asked = false;
    process.primary = Side { life: Life::Ended, ..Side::default() };
    if was_asked && world.family.phase == Phase::Forming {
        // The members are not who they were.
        world.family.phase = Phase::Broken;
    }
}

// ---- Forming ----

/// It stands still: it forks with the others, and goes on with them. Who finds that all are there does not look whether the family
/// is still being formed: others may be ahead.
fn stand(cx: &Context, world: &World, p: usize, out: &mut Successors) {
    let mut next = *world;
    let family = &mut next.family;
    let process = &mut next.all[p];
    let here = match (process.has_forked, process.is_ready) {
        (false, _) => family.standing,
        (true, false) => family.forked,
        (true, true) => family.ready,
    };
    let is_early = !process.has_forked && cx.has(Mutation::FamilyForkedBeforeAllStand);
    let is_seen = process.has_forked || family.verified;
    let goes_on = family::are_all(here.into(), family.members.into()) && is_seen;
    let what = if process.is_ready && goes_on {
        if family.phase == Phase::Forming {
            family.phase = Phase::Active;
        }
        let is_one = family.phase.has_order();
        (process.stands, process.has_forked, process.is_ready) = (false, false, false);
        (process.is_member, process.is_protected) = (is_one, is_one);
        if !is_one {
            process.forget_log();
        }
        "goes on, as one of the family"
    } else if process.has_forked && goes_on {
        process.is_ready = true;
        family.ready += 1;
        "says that its standby is good"
    } else if goes_on || is_early {
        if !family.copied {
            family.copied = true;
            next.copy = next.memory;
        }
        process.has_forked = true;
        if process.primary.step != Step::Turn {
            (process.primary.resume, process.primary.step) = (process.primary.step, Step::Turn);
        }
        process.primary.turn = 0;
        process.standby = process.primary;
        family.forked += 1;
        "forks"
    } else if !family.phase.may_become_whole() {
        process.forget_log();
        (process.stands, process.has_forked, process.is_ready) = (false, false, false);
        "goes on: there is no family"
    } else {
        return;
    };
    out.push((next, Label::primary(p, what)));
}

/// What the counts of turns come to in a copy that follows.
pub(super) fn after(turn: u8) -> u64 {
    turns::after(u64::from(turn) - 1)
}
