//! The standby's poller at a promotion: gaps, settlement, and the gate.

use us_order::{adopt, gap, live};
use us_world::{Copy, Direction, Identity, Part, Settled, Stream, Told, Verdict, Verdicts};

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
        if settled == Settled::Reissue {
            world.standby.shadow[doubt.number].object = doubt.then.0;
        }
        carry_out(cx, world, doubt, settled, (0, 0));
    }
    settle_makers(cx, world, &doubts);
    settle_streams(cx, world, &doubts);
}

fn settle_close(cx: &Context, world: &World, doubt: &Doubt) -> Settled {
    let now = world.kernel.fds[doubt.number];
    let mut generation = world.standby.shadow[doubt.number].generation;
    if cx.has(Mutation::CloseByNumberOnly) {
        return if now == 0 { Settled::Done(0) } else { Settled::Reissue };
    }
    if cx.has(Mutation::CloseWithoutGeneration) {
        generation = doubt.then.1;
    }
    // The kernel's word for a socket or file says which object it is, never which of its openings.
    let then = Identity { object: doubt.then.0.into(), generation: doubt.then.1.into() };
    us_world::close(then, (now != 0).then_some(now.into()), generation.into())
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
                (Settled::Done(0), (u8::try_from(number).expect("few numbers"), object - 1))
            }
            None => (Settled::Reissue, (0, 0)),
        };
        carry_out(cx, world, doubt, settled, answer);
    }
}

/// What the rules of `us-world` may ask the model's kernel and its rings.
struct Asked<'a> {
    world: &'a World,
    kind: us_world::Kind,
}

impl Asked<'_> {
    fn object(&self, number: i32) -> usize {
        let number = usize::try_from(number).expect("few numbers");
        usize::from(self.world.kernel.fds[number].saturating_sub(1))
    }

    fn part(&self, doubt: &Doubt) -> Option<Part> {
        let (direction, len) = match doubt.op {
            Op::Write(_, _, len) => (Direction::Out, len),
            Op::Read(..) => (Direction::In, 1),
            _ => return None,
        };
        let object = usize::from(doubt.then.0.saturating_sub(1));
        let noted = u32::from(self.world.rings.noted[doubt.t]);
        Some(Part {
            slot: u32::try_from(doubt.t).expect("few threads"),
            fd: i32::try_from(doubt.number).expect("few numbers"),
            direction,
            len: len.into(),
            entered: true,
            is_told: false,
            is_in_slot: true,
            from: None,
            told: match self.kind.evidence(direction, true) {
                us_world::Evidence::Message if noted > 0 => Told::Moved(noted),
                us_world::Evidence::Message => Told::Nothing,
                _ => Told::None,
            },
            copy: Copy::No,
            stream: Some(Stream {
                key: u32::try_from(object + 1).expect("few objects"),
                kind: self.kind,
                read: self.world.standby.read[object].into(),
                written: self.world.standby.written[object].into(),
                is_private: false,
                is_shut: false,
                has_failed: false,
            }),
        })
    }
}

impl us_world::Kernel for Asked<'_> {
    const PATTERN_MAX: u64 = 8;

    fn tcp(&mut self, number: i32) -> Option<us_world::TcpFigures> {
        const ESTABLISHED: u8 = 1;
        let object = self.object(number);
        Some(us_world::TcpFigures {
            state: ESTABLISHED,
            acked: self.world.kernel.out_len[object].into(),
            received: self.world.kernel.consumed[object].into(),
            ..us_world::TcpFigures::default()
        })
    }

    fn touched(&mut self, part: &Part) -> us_world::Touched {
        us_world::Touched::UpTo(self.world.rings.noted[part.slot as usize].into())
    }

    fn whole_records(&mut self, _part: &Part, bytes: u64) -> u64 {
        bytes
    }

    // The model has no pipes, eventfds or files.
    fn queued(&mut self, _number: i32) -> Option<u64> {
        None
    }
    fn event_count(&mut self, _number: i32) -> Option<u64> {
        None
    }
    fn position(&mut self, _number: i32) -> Option<u64> {
        None
    }
    fn size(&mut self, _number: i32) -> Option<u64> {
        None
    }
    fn set_position(&mut self, _number: i32, _position: u64) -> bool {
        false
    }
    fn lies_at(&mut self, _part: &Part, _from: u64, _bytes: u64) -> Option<bool> {
        None
    }
    fn came_from(&mut self, _part: &Part, _from: u64, _bytes: u64) -> Option<bool> {
        None
    }
    fn first_word(&mut self, _part: &Part) -> u64 {
        0
    }
}

/// By the rules that the runtime has.
fn settle_streams(cx: &Context, world: &mut World, doubts: &[Doubt]) {
    let mut list = [None; SLOTS];
    let mut verdicts = Verdicts::new(&mut list);
    let mut asked = Asked { world, kind: cx.program.streams };
    let parts: Vec<_> = doubts.iter().filter_map(|doubt| asked.part(doubt)).collect();
    us_world::judge(&parts, &mut asked, &mut verdicts);
    for doubt in doubts {
        let Some(mut verdict) = verdicts.of(u32::try_from(doubt.t).expect("few threads")) else { continue };
        if cx.has(Mutation::SharedStreamGuessed) && verdict == Verdict::Unknown {
            verdict = Verdict::Again;
        }
        let (len, answer) = match doubt.op {
            Op::Write(_, _, len) => (len, (len, doubt.then.0 - 1)),
            _ => (1, (world.rings.scratch[doubt.t], 0)),
        };
        let settled = match verdict {
            Verdict::Again => Settled::Reissue,
            Verdict::Moved(moved) => us_world::write(len.into(), moved, false),
            Verdict::Failed | Verdict::Unknown => Settled::Unknown,
        };
        carry_out(cx, world, doubt, settled, answer);
    }
}

fn carry_out(cx: &Context, world: &mut World, doubt: &Doubt, settled: Settled, answer: (u8, u8)) {
    let thread = &mut world.standby.threads[doubt.t];
    thread.then = (0, 0);
    thread.phase = match settled {
        Settled::Done(_) => {
            (thread.result, thread.data) = answer;
            at::SETTLED
        }
        Settled::Continue(_) if cx.has(Mutation::PartialWriteRepeated) => at::BEGIN,
        Settled::Continue(n) => at::PARTLY + u8::try_from(n).expect("short writes"),
        Settled::Reissue => at::BEGIN,
        Settled::Unknown => {
            world.refused = true;
            at::BEGIN
        }
    };
}
