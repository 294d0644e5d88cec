//! The standby's poller at a promotion: gaps, settlement, and the gate.

use us_order::{adopt, gap, live, settle};

use crate::explore::{Context, Label, Successors};
use crate::local::descriptor_of;
use crate::mutation::Mutation;
use crate::program::Op;
use crate::standby::{at, is_kernel_call};
use crate::world::*;

/// Adds the possible next steps of the poller.
pub fn steps(cx: &Context, world: &World, out: &mut Successors) {
    match world.phase {
        Phase::Draining => {
            for clock in 0..CLOCKS {
                skip_gap(cx, world, clock, out);
            }
            if drained(world) {
                let mut next = *world;
                if cx.has(Mutation::GoLiveBeforeSettlement) {
                    next.phase = Phase::Drained;
                    out.push((next, Label::poller("opens the gate before settlement")));
                } else {
                    settle_and_open(cx, &mut next);
                    out.push((next, Label::poller("settles and opens the gate")));
                }
            }
        }
        Phase::Drained => {
            let mut next = *world;
            settle_and_open(cx, &mut next);
            out.push((next, Label::poller("settles, late")));
        }
        Phase::Replay | Phase::Live => {}
    }
}

fn drained(world: &World) -> bool {
    live::may_go_live(
        (0..SLOTS).map(|t| live::RingView { head: world.head[t].into(), tail: world.rings.tail[t].into() }),
    )
}

fn skip_gap(cx: &Context, world: &World, clock: usize, out: &mut Successors) {
    if cx.has(Mutation::GapNeverSkipped) {
        return;
    }
    let heads_only = cx.has(Mutation::GapFromHeadsOnly);
    let pending = (0..SLOTS).flat_map(|t| {
        let events = world.unconsumed(t);
        let seen = if heads_only { events.len().min(1) } else { events.len() };
        events[..seen].iter().map(|e| gap::Pending { clock: e.clock.into(), ticket: e.ticket.into() })
    });
    let lowest = gap::lowest_unconsumed(pending, u32::try_from(clock).expect("few clocks"));
    if let Some(to) = gap::skip_to(world.standby.clocks[clock].into(), lowest) {
        let mut next = *world;
        next.standby.clocks[clock] = u8::try_from(to).expect("few tickets");
        if clock < usize::from(HASHED) && cx.mutation.is_none_or(|m| m == Mutation::PublishAfterRelease) {
            next.blame(Violation::MutexGap);
        }
        out.push((next, Label::poller("skips a gap")));
    }
}

/// A call in doubt.
#[derive(Clone, Copy)]
struct Doubt {
    t: usize,
    op: Op,
    number: usize,
    then: (u8, u8),
}

fn doubts(cx: &Context, world: &World) -> Vec<Doubt> {
    (0..SLOTS)
        .filter_map(|t| {
            let thread = world.standby.threads[t];
            let op = cx.program.code[usize::from(thread.pc)];
            let open = thread.status == Status::Running && thread.phase == at::ENTERED && is_kernel_call(op);
            let number = descriptor_of(op).map_or(0, |r| usize::from(thread.regs[usize::from(r)]));
            open.then_some(Doubt { t, op, number, then: thread.then })
        })
        .collect()
}

/// Settles every in-doubt call from what the kernel knows, then lets all threads act.
pub fn settle_and_open(cx: &Context, world: &mut World) {
    world.phase = Phase::Live;
    let doubts = doubts(cx, world);
    if cx.has(Mutation::ReissueWithoutSettlement) {
        for doubt in &doubts {
            world.standby.threads[doubt.t].phase = at::BEGIN;
        }
        return;
    }
    // Closes first: a number whose close was not done is no orphan.
    for doubt in doubts.iter().filter(|d| matches!(d.op, Op::Close(_))) {
        let settled = settle_close(cx, world, doubt);
        if settled == settle::Settled::Reissue {
            world.standby.shadow[doubt.number].object = doubt.then.0;
        }
        carry_out(cx, world, doubt, settled, (0, 0));
    }
    settle_makers(cx, world, &doubts);
    settle_streams(cx, world, &doubts);
}

fn settle_close(cx: &Context, world: &World, doubt: &Doubt) -> settle::Settled {
    let now = world.kernel.fds[doubt.number];
    let mut generation = world.standby.shadow[doubt.number].generation;
    if cx.has(Mutation::CloseByNumberOnly) {
        return if now == 0 { settle::Settled::Done(0) } else { settle::Settled::Reissue };
    }
    if cx.has(Mutation::CloseWithoutGeneration) {
        generation = doubt.then.1;
    }
    // The kernel's word for a socket or file says which object it is, never which of its openings.
    let then = settle::Identity { object: doubt.then.0.into(), generation: doubt.then.1.into() };
    settle::close(then, (now != 0).then_some(now.into()), generation.into())
}

/// Dup and open: descriptors of the table that the log does not know are given to the calls that made them.
fn settle_makers(cx: &Context, world: &mut World, doubts: &[Doubt]) {
    const DUP: u64 = 100;
    let makers: Vec<_> = doubts.iter().filter(|d| matches!(d.op, Op::Open(..) | Op::Dup(..))).collect();
    let calls: Vec<_> = makers
        .iter()
        .map(|d| match d.op {
            Op::Open(origin, _) => adopt::Origin { source: origin.into() },
            _ => adopt::Origin { source: DUP + u64::from(d.then.0) },
        })
        .collect();
    let numbers: Vec<_> =
        (0..FDS).filter(|&n| world.kernel.fds[n] != 0 && world.standby.shadow[n].object == 0).collect();
    let orphans: Vec<_> = numbers
        .iter()
        .map(|&n| {
            let object = world.kernel.fds[n];
            let dup = adopt::Origin { source: DUP + u64::from(object) };
            let origin = world.kernel.origin[usize::from(object - 1)];
            if calls.contains(&dup) { dup } else { adopt::Origin { source: origin.into() } }
        })
        .collect();
    if adopt::has_foundling(&calls, &orphans) && !cx.has(Mutation::OrphansIgnored) {
        world.refused = true;
    }
    for (i, doubt) in makers.iter().enumerate() {
        let found = adopt::orphan_of(i, &calls, &orphans).filter(|_| !cx.has(Mutation::OrphansIgnored));
        let (settled, answer) = match found {
            Some(at) => {
                let (number, object) = (numbers[at], world.kernel.fds[numbers[at]]);
                world.standby.shadow[number].object = object;
                (settle::Settled::Done(0), (u8::try_from(number).expect("few numbers"), object - 1))
            }
            None => (settle::Settled::Reissue, (0, 0)),
        };
        carry_out(cx, world, doubt, settled, answer);
    }
}

fn settle_streams(cx: &Context, world: &mut World, doubts: &[Doubt]) {
    let stream = |d: &Doubt| usize::from(d.then.0.saturating_sub(1));
    let len_of = |d: &Doubt| match d.op {
        Op::Write(_, _, len) => u64::from(len),
        _ => 0,
    };
    for doubt in doubts {
        let object = stream(doubt);
        let same = |d: &&Doubt| {
            stream(d) == object && std::mem::discriminant(&d.op) == std::mem::discriminant(&doubt.op)
        };
        match doubt.op {
            Op::Write(_, _, len) => {
                let mut moved =
                    u64::from(world.kernel.out_len[object].saturating_sub(world.standby.written[object]));
                let all = doubts.iter().filter(same).map(len_of).sum();
                let settled = if cx.has(Mutation::SharedStreamGuessed) {
                    let before: u64 =
                        doubts.iter().filter(same).take_while(|d| d.t != doubt.t).map(len_of).sum();
                    moved = moved.saturating_sub(before).min(len.into());
                    settle::write(len.into(), moved, false)
                } else {
                    settle::shared_write(len.into(), all, moved, false)
                };
                carry_out(cx, world, doubt, settled, (len, doubt.then.0 - 1));
            }
            Op::Read(..) => {
                let moved =
                    u64::from(world.kernel.consumed[object].saturating_sub(world.standby.read[object]));
                let readers = doubts.iter().filter(same).count();
                let settled = settle::shared_read(1, readers, moved);
                let data = world.rings.scratch[doubt.t];
                carry_out(cx, world, doubt, settled, (data, 0));
            }
            _ => {}
        }
    }
}

fn carry_out(cx: &Context, world: &mut World, doubt: &Doubt, settled: settle::Settled, answer: (u8, u8)) {
    let thread = &mut world.standby.threads[doubt.t];
    thread.then = (0, 0);
    thread.phase = match settled {
        settle::Settled::Done(_) => {
            (thread.result, thread.data) = answer;
            at::SETTLED
        }
        settle::Settled::Continue(_) if cx.has(Mutation::PartialWriteRepeated) => at::BEGIN,
        settle::Settled::Continue(n) => at::PARTLY + u8::try_from(n).expect("short writes"),
        settle::Settled::Reissue => at::BEGIN,
        settle::Settled::Unknown => {
            world.refused = true;
            at::BEGIN
        }
    };
}
