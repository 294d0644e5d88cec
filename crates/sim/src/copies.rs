//! More standbys than one: made of a running program by a clone, or following beside the first as a spare.

use crate::explore::{Context, Copies, Label, Successors};
use crate::local::{START_PENDING, finish, is_kernel_call};
use crate::mutation::Mutation;
use crate::primary::at as acts;
use crate::program::Op;
use crate::standby::{self, at, take_back};
use crate::world::*;
use crate::{local, promote};

// ---- A clone ----

/// Adds the clone of a running program: every thread stands still, in guest code or in a door that has come back from
/// its wait with nothing done, and the program forks. The log begins anew behind it.
pub fn clone(cx: &Context, world: &World, out: &mut Successors) {
    if !cx.makes_clones() || world.copies >= cx.copies_max {
        return;
    }
    match world.phase {
        Phase::Replay if (0..SLOTS).all(|t| is_parked(cx, world, t)) => {}
        Phase::Live if !world.refused => {
            let mut promoted = *world;
            promoted.primary = as_primary(cx, &world.standby);
            if (0..SLOTS).all(|t| is_parked(cx, &promoted, t)) {
                out.push((
                    forked(cx, &promoted),
                    Label::poller("the promoted copy is cloned: a new log begins"),
                ));
            }
            return;
        }
        _ => return,
    }
    out.push((
        forked(cx, world),
        Label::poller("the standby is lost, the primary is cloned: a new log begins"),
    ));
}

/// Whether a thread of the primary stands where it may be cloned.
fn is_parked(cx: &Context, world: &World, t: usize) -> bool {
    let thread = world.primary.threads[t];
    let op = cx.program.code[usize::from(thread.pc)];
    match thread.phase {
        _ if thread.status != Status::Running => true,
        acts::BEGIN | local::at::TURN | acts::ASLEEP => true,
        acts::WAITING => matches!(op, Op::CondWait(..) | Op::TimedWait(..) | Op::Barrier(..)),
        acts::WOKEN => true,
        // What may wait is broken off. A read that has had its byte is not waiting.
        acts::MARK | acts::EFFECT if cx.program.turns && thread.moved > 0 => false,
        acts::MARK | acts::EFFECT => is_kernel_call(op) && local::row_of(op).blocks,
        acts::PUBLISH => cx.has(Mutation::ClonedInsideDoor),
        _ => false,
    }
}

fn forked(cx: &Context, world: &World) -> World {
    let mut next = *world;
    let side = &mut next.primary;
    for thread in &mut side.threads {
        if matches!(thread.phase, acts::MARK | acts::EFFECT) {
            // Both copies begin the call again, with what is left of it.
            thread.phase = acts::BEGIN;
            if cx.has(Mutation::CloneForgetsPart) {
                thread.moved = 0;
            }
        }
        if cx.program.turns && thread.status == Status::Running {
            // All begin to take turns where they go on.
            if thread.phase != local::at::TURN && thread.phase != acts::WAITING {
                (thread.next_pc, thread.phase) = (thread.pc, local::at::TURN);
            }
            thread.turn = 0;
        }
    }
    side.turns = Turns::default();
    next.standby = as_standby(cx, &next.primary, &world.kernel);
    next.head = [0; SLOTS];
    next.rings = local::empty_rings();
    next.phase = Phase::Replay;
    (next.spare, next.spare_head) = (next.standby, next.head);
    next.copies += 1;
    next
}

/// The fork of a parked primary, as the standby that it is from here on.
fn as_standby(cx: &Context, primary: &Side, kernel: &Kernel) -> Side {
    let mut side = *primary;
    for thread in &mut side.threads {
        thread.phase = match thread.phase {
            acts::BEGIN if thread.moved > 0 => at::AGAIN,
            acts::WAITING => at::WAITING,
            acts::WOKEN => at::WOKEN,
            local::at::TURN => local::at::TURN,
            _ => at::BEGIN,
        };
        thread.stash_pc = 0;
    }
    // What settlement compares with is asked from the kernel.
    for (shadow, object) in side.shadow.iter_mut().zip(kernel.fds) {
        *shadow = Shadow { object, generation: u8::from(object != 0) };
    }
    if cx.program.shared_conds {
        // Of these a standby keeps no queue.
        side.waiters = Default::default();
    }
    if !cx.has(Mutation::CloneTakesNoStock) {
        (side.written, side.read) = (kernel.out_len, kernel.consumed);
    }
    side
}

// ---- A spare ----

/// Adds the steps of a spare while another standby takes over: it applies what the dead primary had logged, then what
/// settling has appended, and closes gaps by the same rule. Whether it has nothing more to apply.
pub fn attend(cx: &Context, world: &World, out: &mut Successors) -> bool {
    let first = out.len();
    let mut swapped = *world;
    swapped.swap();
    (0..SLOTS).for_each(|t| standby::steps(cx, &swapped, t, out));
    promote::skip_gaps(cx, &swapped, out);
    for (next, label) in &mut out[first..] {
        next.swap();
        label.is_of_spare();
    }
    swapped.unapplied() == 0
}

/// Who has taken over goes live, and its log goes on: the spare follows it as its heir.
pub fn handed_over(cx: &Context, world: &World) -> World {
    let mut next = *world;
    next.primary = as_primary(cx, &world.standby);
    (next.standby, next.head) = (world.spare, world.spare_head);
    if next.unapplied() == 0 {
        // All that is behind the heads.
        next.rings.events = [[NO_EVENT; RING]; SLOTS];
        (next.rings.tail, next.head) = ([0; SLOTS], [0; SLOTS]);
    }
    (next.spare, next.spare_head) = (next.standby, next.head);
    next.scan = None;
    next.phase = Phase::Replay;
    next.copies += 1;
    next
}

/// A promoted copy as the primary that it is from here on: where its threads are, in the words of one that acts.
fn as_primary(cx: &Context, promoted: &Side) -> Side {
    let mut side = *promoted;
    for t in 0..SLOTS {
        let thread = side.threads[t];
        if thread.status != Status::Running {
            continue;
        }
        let op = cx.program.code[usize::from(thread.pc)];
        let in_doubt = thread.phase == at::ENTERED && (is_kernel_call(op) || matches!(op, Op::Create(..)));
        if in_doubt {
            take_back(&mut side, t, op);
        }
        side.threads[t].phase = match thread.phase {
            _ if in_doubt => acts::AGAIN,
            at::CREATED => acts::MAKE,
            at::WAITING | at::WAITING_LIVE | at::RELEASED if thread.result == 1 => acts::WOKEN,
            at::WAITING | at::WAITING_LIVE | at::RELEASED => acts::WAITING,
            at::WOKEN => acts::WOKEN,
            at::LEAVING => acts::LEAVING,
            at::ENDING => acts::EFFECT,
            at::START => START_PENDING,
            local::at::TURN => local::at::TURN,
            at::YIELDED => {
                (side.threads[t].turn, side.threads[t].next_pc) = (0, thread.pc);
                local::at::TURN
            }
            at::STALE => {
                finish(cx.program, &mut side, t, None, 0);
                acts::BEGIN
            }
            _ => acts::BEGIN,
        };
        if cx.copies != Copies::Spares {
            // No turns are taken before there is a log that tells of them.
            side.threads[t].turn = 0;
        }
    }
    go_on_with_turns(cx, &mut side);
    side
}

/// In a log that goes on the turns do as well: all that have been taken are applied, and whoever has the last one goes on with it.
fn go_on_with_turns(cx: &Context, side: &mut Side) {
    let last = side.turns.begun;
    let has_last = |thread: &Thread| thread.status == Status::Running && thread.turn == last;
    let is_had = last != 0 && side.threads.iter().any(has_last);
    side.turns.had = if is_had && !cx.has(Mutation::TurnFreeAtPromotion) { last } else { 0 };
    side.turns.next = if cx.has(Mutation::TurnsNumberedAnew) { 0 } else { last };
}
