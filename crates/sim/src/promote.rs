//! The standby's poller at a promotion: gaps, creations in doubt, settlement, and the gate.

use us_order::create::{self, Seen};
use us_order::gap;

use crate::copies;
use crate::explore::{Context, Label, Successors};
use crate::mutation::Mutation;
use crate::program::Op;
use crate::settle;
use crate::standby::at;
use crate::world::*;

/// Adds the possible next steps of the poller.
pub fn steps(cx: &Context, world: &World, out: &mut Successors) {
    let mut next = *world;
    match world.phase {
        Phase::Draining => {
            skip_gaps(cx, world, out);
            complete_creations(cx, world, out);
            if world.unapplied() > 0 {
                return;
            }
            if cx.has(Mutation::GoLiveBeforeSettlement) {
                next.phase = Phase::Drained;
                out.push((next, Label::poller("opens the gate before settlement")));
                return;
            }
            let early = cx.has(Mutation::SettledBeforeSpareDrained) || cx.has(Mutation::SpareNotAwaited);
            if cx.is_attended(world) && !early {
                (next.phase, next.scan) = (Phase::Attended, None);
                out.push((next, Label::poller("has drained every ring, and waits for the spare")));
                return;
            }
            settle::all(cx, &mut next);
            out.push((next, Label::poller("has drained every ring, and settles the calls in doubt")));
        }
        Phase::Attended => {
            if copies::attend(cx, world, out) {
                settle::all(cx, &mut next);
                out.push((next, Label::poller("settles the calls in doubt")));
            }
        }
        Phase::Drained => {
            settle::all(cx, &mut next);
            out.push((next, Label::poller("settles, late")));
        }
        Phase::Settled if world.unapplied() == 0 => {
            next.scan = None;
            if cx.is_attended(world) {
                next.phase = Phase::Spare;
                out.push((next, Label::poller("waits for the spare")));
            } else {
                next.phase = Phase::Live;
                out.push((next, Label::poller("opens the gate: all are live")));
            }
        }
        Phase::Spare => {
            if copies::attend(cx, world, out) || cx.has(Mutation::SpareNotAwaited) {
                let what = "opens the gate: all are live and log, the spare is heir";
                out.push((copies::handed_over(cx, world), Label::poller(what)));
            }
        }
        Phase::Settled | Phase::Replay | Phase::Live => {}
    }
}

/// Tickets that the primary took and never published are skipped, where somebody waits for that. One step looks
/// through all rings, another one reads the clock and moves it: threads go on between the two.
pub fn skip_gaps(cx: &Context, world: &World, out: &mut Successors) {
    if cx.has(Mutation::GapNeverSkipped) {
        return;
    }
    let clock_of = |clock: u8| u64::from(world.standby.clocks[usize::from(clock)]);
    let mut next = *world;
    if let Some((clock, shown, lowest)) = world.scan {
        let stale = cx.has(Mutation::GapClockReadBeforeScan);
        let (shown, lowest) = if stale {
            (shown.into(), lowest_of(cx, world, clock))
        } else {
            (clock_of(clock), lowest.map(u64::from))
        };
        next.scan = None;
        if let Some(to) = gap::skip_to(shown, lowest) {
            next.standby.clocks[usize::from(clock)] = u8::try_from(to).expect("few tickets");
        }
        out.push((next, Label::poller("skips the tickets that died with the primary")));
        return;
    }
    for clock in (0..=KERNEL).filter(|clock| is_awaited(world, *clock)) {
        let lowest = lowest_of(cx, world, clock);
        if gap::skip_to(clock_of(clock), lowest).is_none() && !cx.has(Mutation::GapClockReadBeforeScan) {
            continue;
        }
        let mut next = *world;
        let seen = lowest.map(|lowest| u8::try_from(lowest).expect("few tickets"));
        next.scan = Some((clock, world.standby.clocks[usize::from(clock)], seen));
        if clock < HASHED && cx.mutation.is_none_or(|m| m == Mutation::PublishAfterRelease) {
            next.blame(Violation::MutexGap);
        }
        out.push((next, Label::poller("looks through all rings, and finds a gap")));
    }
}

/// Whether a thread waits for a ticket of this clock.
fn is_awaited(world: &World, clock: u8) -> bool {
    (0..SLOTS).any(|t| {
        let due = world.standby.clocks[usize::from(clock)];
        let runs = world.standby.threads[t].status == Status::Running;
        runs && world.head_event(t).is_some_and(|event| event.clock == clock && event.ticket > due)
    })
}

fn lowest_of(cx: &Context, world: &World, clock: u8) -> Option<u64> {
    let heads_only = cx.has(Mutation::GapFromHeadsOnly);
    let pending = (0..SLOTS).flat_map(|t| {
        let events = world.unconsumed(t);
        let seen = if heads_only { events.len().min(1) } else { events.len() };
        events[..seen].iter().map(|e| gap::Pending { clock: e.clock, ticket: e.ticket.into() })
    });
    gap::lowest_unconsumed(pending, &clock)
}

/// Of a creation in doubt whose thread is seen to exist the missing `Return` is appended at once.
fn complete_creations(cx: &Context, world: &World, out: &mut Successors) {
    if cx.has(Mutation::CreateWaitsForSettlement) {
        return;
    }
    for t in 0..SLOTS {
        let thread = world.standby.threads[t];
        let Op::Create(slot, ..) = cx.program.code[usize::from(thread.pc)] else { continue };
        let in_doubt = thread.status == Status::Running && thread.phase == at::ENTERED;
        if !in_doubt || world.head_event(t).is_some() {
            continue;
        }
        let seen = |event: &Event| if event.kind == Kind::Start { Seen::Start } else { Seen::Other };
        if create::has_child(world.unconsumed(usize::from(slot)).iter().map(seen)) {
            let mut next = *world;
            next.append(t, Event { kind: Kind::Return, pc: thread.pc, a: 1, ..NO_EVENT });
            out.push((next, Label::poller_for(t, "completes the creation: the child has left its START")));
        }
    }
}
