//! What the supervisor does for a family: it forms it, fences all of it at the death of one, and ends it with the first log.

use us_order::family::{self, Fallen, Phase, Together};

use super::world::*;
use super::{Label, Successors};
use crate::mutation::Mutation;

/// Adds its next steps, and what may befall the group.
pub fn steps(cx: &Context, world: &World, out: &mut Successors) {
    match world.watch {
        Watch::Begun => list(cx, world, out),
        Watch::Fencing => fence(cx, world, out),
        Watch::Idle => {
            (0..PROCESSES).for_each(|p| notice(world, p, out));
            form(cx, world, out);
        }
    }
    (0..PROCESSES).for_each(|p| clone_child(world, p, out));
    (0..PROCESSES).for_each(|p| fall(cx, world, p, out));
}

/// Kills of processes, and losses of standbys.
pub fn faults(cx: &Context, world: &World, out: &mut Successors) {
    for p in 0..PROCESSES {
        let process = &world.all[p];
        let may_be_lost = !family::may_take_over(process.is_member, world.family.phase);
        // What is lost where nothing follows is lost, and no question of these rules.
        if process.primary.life != Life::Running || !process.is_protected || !process.is_member || may_be_lost
        {
            continue;
        }
        // A member's first words in a family are those of all: until then the header does not speak of a standby.
        if world.kills > 0 && world.family.phase != Phase::Forming {
            let mut next = *world;
            next.kills -= 1;
            next.all[p].primary.life = Life::Dead;
            out.push((next, Label::supervisor(p, "is killed")));
        }
        if world.losses > 0 && world.family.phase == Phase::Active {
            let mut next = *world;
            next.losses -= 1;
            next.all[p].forget_log();
            if !cx.has(Mutation::FamilyLogEndsOfOne) && Phase::CAN_BREAK.contains(&next.family.phase) {
                next.family.phase = Phase::Broken;
            }
            out.push((next, Label::supervisor(p, "loses its standby")));
        }
    }
}

/// A process has died.
fn notice(world: &World, p: usize, out: &mut Successors) {
    let process = &world.all[p];
    if process.primary.life != Life::Dead || process.over != Over::No || !process.is_protected {
        return;
    }
    let mut next = *world;
    if world.family.phase == Phase::Active {
        next.family.phase = Phase::Promoting;
        next.watch = Watch::Begun;
        return out.push((next, Label::supervisor(p, "is seen to have died: all take over")));
    }
    // Somebody was first: once that is over.
    if world.family.phase != Phase::Promoting && family::together(world.family.phase, true) == Together::Alone
    {
        (next.all[p].over, next.all[p].is_protected) = (Over::Draining, false);
        out.push((next, Label::supervisor(p, "was left behind: its standby takes over by itself")));
    }
}

/// Who takes over.
fn list(cx: &Context, world: &World, out: &mut Successors) {
    let mut next = *world;
    for process in &mut next.all {
        let is_there = matches!(process.primary.life, Life::Running | Life::Dead);
        let takes_part = is_there && family::takes_part(process.is_member, process.is_protected);
        if takes_part && (process.primary.life == Life::Dead || !cx.has(Mutation::FamilyDeathOfOne)) {
            (process.over, process.is_protected) = (Over::Chosen, false);
        }
    }
    next.watch = Watch::Fencing;
    next.family.fallen = 0;
    out.push((next, Label::supervisor(PROCESSES, "chooses those who take over")));
}

/// Kills them one by one, and tells their standbys when all of them are dead.
fn fence(cx: &Context, world: &World, out: &mut Successors) {
    let is_chosen = |process: &Process| process.over == Over::Chosen;
    let lives = |process: &Process| is_chosen(process) && process.primary.life == Life::Running;
    let mut next = *world;
    if let Some(p) = world.all.iter().position(lives) {
        next.all[p].primary.life = Life::Dead;
        return out.push((next, Label::supervisor(p, "is fenced")));
    }
    let family = &mut next.family;
    let fallen = if cx.has(Mutation::FamilyFallenCounted) { 0 } else { family.fallen };
    let left = world.all.iter().filter(|process| is_chosen(process)).count();
    let chosen = u32::try_from(left).expect("few processes") + u32::from(family.fallen);
    let members = family::to_take_over(chosen, fallen.into());
    family.members = u8::try_from(members).expect("few processes");
    (family.settled, family.whole, family.live, family.put_back) = (0, 0, 0, false);
    if members == 0 {
        family.phase = Phase::Broken;
    }
    next.all
        .iter_mut()
        .filter(|process| is_chosen(process))
        .for_each(|process| process.over = Over::Draining);
    next.watch = Watch::Idle;
    out.push((next, Label::supervisor(PROCESSES, "has fenced all, and tells their standbys")));
}

/// A standby that was chosen to take over has come to a fault of the program's own: that is how the process has ended.
fn fall(cx: &Context, world: &World, p: usize, out: &mut Successors) {
    let process = &world.all[p];
    let is_fenced = process.primary.life == Life::Dead;
    if process.standby.life != Life::Dead || process.over == Over::No || !is_fenced {
        return;
    }
    let mut next = *world;
    next.all[p].forget_log();
    next.all[p].primary = Side { life: Life::Ended, ..Side::default() };
    let family = &mut next.family;
    match family::fallen(true, family.members.into()) {
        _ if world.watch == Watch::Fencing => family.fallen += 1,
        _ if family.phase != Phase::Promoting || cx.has(Mutation::FamilyFaultAwaited) => {}
        Fallen::Fewer => family.members -= 1,
        Fallen::Nobody => family.phase = Phase::Broken,
    }
    out.push((next, Label::supervisor(p, "has ended of its own fault: the others wait for one fewer")));
}

/// A child of a family's gets its standby before it does anything.
fn clone_child(world: &World, p: usize, out: &mut Successors) {
    let process = &world.all[p];
    let is_newborn = process.primary.step == Step::Newborn && process.primary.life == Life::Running;
    if !is_newborn || process.is_protected || !world.family.phase.has_order() {
        return;
    }
    let mut next = *world;
    let process = &mut next.all[p];
    process.standby = Side { step: Step::Turn, ..process.primary };
    process.is_protected = true;
    let is_late = world.family.phase == Phase::Promoting;
    let what = if is_late { "gets a standby while others take over" } else { "gets a standby" };
    out.push((next, Label::supervisor(p, what)));
}

/// Those who share memory get their standbys together.
fn form(cx: &Context, world: &World, out: &mut Successors) {
    let mut next = *world;
    let family = &mut next.family;
    match family.phase {
        Phase::None if world.forms > 0 => {
            let runs = |process: &Process| process.primary.life == Life::Running;
            let is_ready = |process: &Process| !process.is_protected && process.primary.step != Step::Left;
            let members = world.all.iter().filter(|process| runs(process)).count();
            if members < 2 || !world.all.iter().filter(|process| runs(process)).all(is_ready) {
                return;
            }
            let members = u8::try_from(members).expect("few processes");
            *family = Family { phase: Phase::Forming, members, ..Family::default() };
            next.all.iter_mut().filter(|process| runs(process)).for_each(|process| process.asked = true);
            next.forms -= 1;
            out.push((next, Label::supervisor(PROCESSES, "asks all who share the memory to stand still")));
        }
        Phase::Forming
            if !family.verified && family::are_all(family.standing.into(), family.members.into()) =>
        {
            let is_stranger = |process: &Process| process.primary.life == Life::Running && !process.stands;
            let what = if world.all.iter().any(is_stranger) && !cx.has(Mutation::FamilyStrangersIgnored) {
                family.phase = Phase::Broken;
                "finds somebody else who shares the memory: there is no family"
            } else {
                family.verified = true;
                "finds that nobody else shares the memory"
            };
            out.push((next, Label::supervisor(PROCESSES, what)));
        }
        Phase::Broken if !world.all.iter().any(|process| process.stands) => {
            family.phase = Phase::None;
            for process in next.all.iter_mut().filter(|process| process.primary.life == Life::Running) {
                process.asked = false;
                if process.is_member {
                    process.forget_log();
                }
            }
            out.push((next, Label::supervisor(PROCESSES, "says that the family is no more")));
        }
        _ => {}
    }
}
