//! The standby: waits for its turn, applies, advances the clock, then the head.

use us_order::{create, once, ticket, turns, wait};

use crate::explore::{Context, Label, Successors};
use crate::live;
use crate::local::{self, *};
use crate::mutation::Mutation;
use crate::program::Op;
use crate::world::*;

/// Steps inside an operation of the standby, or of the promoted copy.
pub mod at {
    /// Nothing of the operation has been done.
    pub const BEGIN: u8 = 0;
    /// The ENTER of a call has been consumed.
    pub const ENTERED: u8 = 1;
    /// The log says that a creation has made its thread; this copy's is still to be made.
    pub const CREATED: u8 = 2;
    /// In a wait begun in replay: for an event, or for a barrier's round.
    pub const WAITING: u8 = 3;
    /// In a wait begun live.
    pub const WAITING_LIVE: u8 = 4;
    /// A wake-up that was decided to be nobody's.
    pub const STALE: u8 = 5;
    /// The event of a wait has been applied; the place in the queue is still to be left.
    pub const LEAVING: u8 = 6;
    /// A broken rule has released the mutex of a wait before joining the queue.
    pub const RELEASED: u8 = 7;
    /// A wait is over, and the log has said nothing yet: the mutex is to be taken again.
    pub const WOKEN: u8 = 8;
    /// EXIT has been consumed.
    pub const ENDING: u8 = 9;
    /// The effect has been applied, the clock not yet advanced.
    pub const CLOCK: u8 = 10;
    /// The clock has been advanced, the head not yet.
    pub const HEAD: u8 = 11;
    /// A broken rule has advanced the head before the effect.
    pub const EARLY: u8 = 12;
    /// A call that had begun begins again, perhaps with the rest of a transfer.
    pub const AGAIN: u8 = 13;
    /// Behind a *Yield*: the turn is still to be given to others.
    pub const YIELDED: u8 = 14;
    /// START is to be consumed.
    pub const START: u8 = 20;
}

/// Adds the possible next steps of a thread of the standby, in any phase of a promotion.
pub fn steps(cx: &Context, world: &World, t: usize, out: &mut Successors) {
    let thread = world.standby.threads[t];
    if thread.status != Status::Running {
        return;
    }
    let op = cx.program.code[usize::from(thread.pc)];
    let applying = matches!(thread.phase, at::CLOCK | at::HEAD | at::EARLY | at::LEAVING | at::YIELDED);
    if !applying && acts(cx, world, t, op) {
        return live::steps(cx, world, t, out);
    }
    let mut step = Replay { cx, world: *world, t, op };
    if let Some(what) = step.any() {
        out.push((step.world, Label::standby(t, thread.pc, what)));
    }
}

fn acts(cx: &Context, world: &World, t: usize, op: Op) -> bool {
    let drained = world.head_event(t).is_none();
    let in_doubt = world.standby.threads[t].phase == at::ENTERED && is_kernel_call(op);
    match world.phase {
        Phase::Live => true,
        Phase::Drained => !in_doubt,
        Phase::Draining => drained && !in_doubt && cx.has(Mutation::GoLiveBeforeOthersDrain),
        Phase::Replay | Phase::Attended | Phase::Settled | Phase::Spare => false,
    }
}

/// What a waiter does with its place once the log has said how its wait ended.
pub fn leave_wait(cx: &Context, side: &mut Side, t: usize, c: usize) -> &'static str {
    let Thread { result, pc, .. } = side.threads[t];
    let queue = &mut side.waiters[c];
    let woken = !forgets_waiters(cx) && !queue.has(t);
    if !cx.has(Mutation::CondWaiterLeftInQueue) {
        queue.leave(t);
    }
    let passes_on = wait::passes_on(woken, result == 1) && !cx.has(Mutation::CondTimeoutKeepsSignal);
    if passes_on {
        queue.wake_one();
    }
    finish(cx.program, side, t, register_of(cx.program.code[usize::from(pc)]), result);
    if passes_on { "leaves and passes the signal on" } else { "leaves the wait" }
}

/// Before a call in doubt is made again, or the log says that it was: what its beginning had done to the shadow table.
pub fn take_back(side: &mut Side, t: usize, op: Op) {
    let thread = &side.threads[t];
    if let Op::Close(r) = op {
        let number = usize::from(thread.regs[usize::from(r)]);
        side.shadow[number].object = thread.then.0;
    }
}

/// True where a standby keeps no queue of waiters: its signals are for nobody, and whoever is promoted in a wait
/// returns from it.
fn forgets_waiters(cx: &Context) -> bool {
    cx.program.shared_conds || cx.has(Mutation::CondWaitersReturnAtPromotion)
}

struct Replay<'a> {
    cx: &'a Context<'a>,
    world: World,
    t: usize,
    op: Op,
}

type What = Option<&'static str>;

impl Replay<'_> {
    fn thread(&mut self) -> &mut Thread {
        &mut self.world.standby.threads[self.t]
    }

    fn next(&mut self, what: &'static str) -> What {
        finish(self.cx.program, &mut self.world.standby, self.t, None, 0);
        Some(what)
    }

    fn set(&mut self, result: u8, object: u8) {
        if let Some(r) = register_of(self.op) {
            self.thread().regs[usize::from(r)] = result;
            self.thread().objects[usize::from(r)] = object;
        }
    }

    fn diverge(&mut self) -> What {
        self.world.blame(Violation::Divergence);
        Some("diverges")
    }

    fn event(&self) -> Option<Event> {
        if self.world.standby.threads[self.t].phase == at::EARLY {
            return Some(self.world.rings.events[self.t][usize::from(self.world.head[self.t] - 1)]);
        }
        self.world.head_event(self.t)
    }

    /// Where the thread is inside its operation, whatever a broken rule made of its phase.
    fn phase(&self) -> u8 {
        let thread = self.world.standby.threads[self.t];
        if thread.phase == at::EARLY { thread.next_phase } else { thread.phase }
    }

    fn any(&mut self) -> What {
        match self.thread().phase {
            at::CLOCK => return self.advance_clock(),
            at::HEAD => return self.advance_head(),
            at::YIELDED => return self.give_turn(),
            _ => {}
        }
        if self.phase() == at::START {
            let pc = self.thread().pc;
            let next = if self.cx.program.turns { local::at::TURN } else { 0 };
            self.thread().next_pc = pc;
            return self.consume(&[Kind::Start], pc, next, |_, _| true);
        }
        if self.cx.program.turns {
            if self.phase() == local::at::TURN {
                return self.take_turn();
            }
            if self.event().is_some_and(|event| event.kind == Kind::Yield) {
                let pc = self.thread().pc;
                return self.consume(&[Kind::Yield], pc, at::YIELDED, |_, _| true);
            }
        }
        match self.op {
            Op::Lock(_) | Op::Try(..) | Op::Wait(_) | Op::TryWait(..) | Op::Rd(_) | Op::Wr(_) => {
                self.acquisition()
            }
            Op::CondWait(c, _) | Op::TimedWait(c, _, _) => self.cond_wait(usize::from(c)),
            Op::Unlock(_) | Op::RwUnlock(_) => {
                release(&mut self.world.standby, self.t, self.op);
                self.next("unlocks")
            }
            Op::Signal(_) | Op::Broadcast(_) if self.phase() == at::STALE => self.next("wakes nobody"),
            Op::Signal(_) | Op::Broadcast(_)
                if forgets_waiters(self.cx) || self.cx.has(Mutation::CondSignalsUnknownToStandby) =>
            {
                self.thread().phase = at::STALE;
                Some("sees that it replays")
            }
            Op::Signal(c) | Op::Broadcast(c) => {
                self.world.standby.waiters[usize::from(c)].wake(self.op);
                self.next("wakes")
            }
            Op::Post(s) => self.event_then_next(&[Kind::Ordered], move |step, _| {
                step.world.standby.sems[usize::from(s)] += 1;
                true
            }),
            Op::Barrier(n, _) => self.barrier(n),
            Op::OnceEnter(o, to) => self.once(o, to),
            Op::OnceLeave(_) | Op::OnceAbort(_) => {
                end_once(&mut self.world.standby, self.op);
                self.next("ends the initialiser")
            }
            Op::Create(slot, entry, _) => self.create(usize::from(slot), entry),
            Op::Join(slot) if join(&mut self.world.standby, slot) => self.next("joins"),
            Op::Join(_) => None,
            Op::End => self.end(),
            _ => self.call(),
        }
    }

    fn advance_clock(&mut self) -> What {
        let early = self.cx.has(Mutation::HeadAdvancedBeforeApply);
        let at = self.world.head[self.t] - u8::from(early);
        let event = self.world.rings.events[self.t][usize::from(at)];
        self.world.standby.clocks[usize::from(event.clock)] = small(ticket::after(event.ticket.into()));
        if early {
            self.go_on();
        } else {
            self.thread().phase = at::HEAD;
        }
        Some("advances the clock")
    }

    fn advance_head(&mut self) -> What {
        self.world.head[self.t] += 1;
        self.go_on();
        Some("advances the head")
    }

    fn go_on(&mut self) {
        let Thread { next_pc, next_phase, .. } = *self.thread();
        if next_phase == 0 {
            go(self.cx.program, &mut self.world.standby, self.t, next_pc);
            return;
        }
        self.thread().next_phase = 0;
        self.thread().phase = next_phase;
        if next_phase != local::at::TURN {
            self.thread().next_pc = 0;
        }
    }

    // ---- Turns ----

    /// By the log: when the turns before it have ended. The event stays in the ring until then.
    fn take_turn(&mut self) -> What {
        let event = self.event()?;
        if event.kind != Kind::Turn {
            return self.diverge();
        }
        let Turns { begun, ended, .. } = self.world.standby.turns;
        let behind = turns::Behind { begun: begun.into(), ended: ended.into() };
        let passed_over = event.a == 1 && !self.cx.has(Mutation::PassedOverAwaitsEnd);
        if !turns::is_due(event.ticket.into(), passed_over, behind) && !self.cx.has(Mutation::TurnNotAwaited)
        {
            return None;
        }
        let after = small(turns::after(event.ticket.into()));
        self.world.head[self.t] += 1;
        self.world.standby.turns.begun = begun.max(after);
        self.thread().turn = after;
        let pc = self.thread().next_pc;
        go(self.cx.program, &mut self.world.standby, self.t, pc);
        Some("has the turn")
    }

    fn end_turn(&mut self) {
        let own = std::mem::take(&mut self.thread().turn);
        let ended = &mut self.world.standby.turns.ended;
        if own != 0 {
            *ended = small(turns::after(u64::from(own) - 1)).max(*ended);
        }
    }

    /// Behind a *Yield*: others have the turn, and then this thread again.
    fn give_turn(&mut self) -> What {
        self.end_turn();
        let pc = self.thread().pc;
        self.thread().next_pc = pc;
        self.thread().phase = local::at::TURN;
        Some("gives its turn")
    }

    /// Applies the event at the head if it is there, is one of `kinds`, and is due. `effect` answers false if it must
    /// wait for a local thread.
    fn consume(
        &mut self,
        kinds: &[Kind],
        next_pc: u8,
        next_phase: u8,
        effect: impl Fn(&mut Self, Event) -> bool,
    ) -> What {
        let event = self.event()?;
        if !kinds.contains(&event.kind) || event.pc != self.thread().pc {
            return self.diverge();
        }
        if event.clock != NO_CLOCK {
            let clock = self.world.standby.clocks[usize::from(event.clock)];
            let free = self.cx.has(Mutation::TryLockReplayedWithoutWaiting) && matches!(self.op, Op::Try(..));
            if !ticket::is_due(clock.into(), event.ticket.into()) && !free {
                return None;
            }
            if clock > event.ticket {
                self.world.blame(Violation::TicketPassed);
            }
        }
        let early = self.cx.has(Mutation::HeadAdvancedBeforeApply);
        if early && self.thread().phase != at::EARLY {
            self.thread().next_phase = self.thread().phase;
            self.thread().phase = at::EARLY;
            self.world.head[self.t] += 1;
            return Some("advances the head (too early)");
        }
        if !effect(self, event) {
            return None;
        }
        (self.thread().next_pc, self.thread().next_phase) = (next_pc, next_phase);
        match (event.clock, early) {
            (NO_CLOCK, true) => self.go_on(),
            (NO_CLOCK, false) => self.thread().phase = at::HEAD,
            _ => self.thread().phase = at::CLOCK,
        }
        Some("applies its event")
    }

    fn event_then_next(&mut self, kinds: &[Kind], effect: impl Fn(&mut Self, Event) -> bool) -> What {
        let next = self.thread().pc + 1;
        self.consume(kinds, next, 0, effect)
    }

    fn acquisition(&mut self) -> What {
        let kind = if clock_of(self.op) < HASHED { Kind::Lock } else { Kind::Ordered };
        let kinds = [kind, Kind::TryFailed];
        let is_try = matches!(self.op, Op::Try(..) | Op::TryWait(..));
        self.event_then_next(if is_try { &kinds } else { &kinds[..1] }, move |step, event| {
            if event.kind == Kind::TryFailed {
                step.set(0, 0);
                return true;
            }
            step.set(u8::from(is_try), 0);
            let (t, op) = (step.t, step.op);
            if let (Op::Try(m, _), true) = (op, step.cx.has(Mutation::TryLockReplayedWithoutWaiting)) {
                let owner = &mut step.world.standby.mutex[usize::from(m)];
                let taken = *owner != 0;
                *owner = u8::try_from(t).expect("few slots") + 1;
                if taken {
                    step.world.blame(Violation::MutualExclusion);
                }
                return true;
            }
            acquire(&mut step.world.standby, t, op)
        })
    }

    fn cond_wait(&mut self, c: usize) -> What {
        let keeps = self.cx.has(Mutation::CondWaitKeepsMutex);
        let late = self.cx.has(Mutation::CondWaiterJoinsAfterRelease);
        let (t, op, pc) = (self.t, self.op, self.thread().pc);
        match self.phase() {
            at::BEGIN => {
                if !late && !forgets_waiters(self.cx) {
                    self.world.standby.waiters[c].join(t);
                }
                if !keeps {
                    release(&mut self.world.standby, t, op);
                }
                self.thread().phase = if late { at::RELEASED } else { at::WAITING };
                Some(if late { "unlocks" } else { "joins, unlocks and waits for its event" })
            }
            at::RELEASED => {
                self.world.standby.waiters[c].join(t);
                self.thread().phase = at::WAITING;
                Some("joins (too late)")
            }
            at::LEAVING => Some(leave_wait(self.cx, &mut self.world.standby, t, c)),
            at::WOKEN => self.event_then_next(&[Kind::Lock], move |step, event| {
                step.set(event.a, 0);
                acquire(&mut step.world.standby, t, op)
            }),
            // The place is left only now: the event says whether a signal that came for this thread was for it.
            _ => self.consume(&[Kind::Lock], pc, at::LEAVING, move |step, event| {
                if keeps {
                    release(&mut step.world.standby, t, op);
                }
                step.thread().result = event.a;
                acquire(&mut step.world.standby, t, op)
            }),
        }
    }

    fn barrier(&mut self, n: u8) -> What {
        if self.phase() == at::BEGIN {
            if self.cx.has(Mutation::BarrierArrivesAtEvent) && self.event().is_none() {
                return None;
            }
            arrive(&mut self.world.standby, self.t, n);
            self.thread().phase = at::WAITING;
            return Some("arrives");
        }
        self.event_then_next(&[Kind::Barrier], |step, event| {
            let Some(mark) = round_complete(&step.world.standby, step.t) else { return false };
            let taken = step.world.standby.serial[mark];
            let serial = us_order::barrier::is_serial(Some(event.a == 1), taken);
            step.world.standby.serial[mark] |= serial;
            step.set(u8::from(serial), 0);
            true
        })
    }

    fn once(&mut self, o: u8, to: u8) -> What {
        let run = self.event().filter(|e| e.kind == Kind::Run);
        let ticketless = self.cx.has(Mutation::OnceRunWithoutTicket);
        let clock_value = self.world.standby.clocks[usize::from(HASHED)].into();
        let view = once::OnceView {
            local: match self.world.standby.once[usize::from(o)] {
                OnceState::Idle => once::Local::Idle,
                OnceState::Running => once::Local::Running,
                OnceState::Done => once::Local::Done,
            },
            object_clock: HASHED.into(),
            clock_value,
            run_at_head: run.map(|e| (HASHED.into(), if ticketless { clock_value } else { e.ticket.into() })),
            live: false,
        };
        match once::decide(view) {
            once::Once::Pass if self.thread().phase != at::EARLY => {
                go(self.cx.program, &mut self.world.standby, self.t, to);
                Some("finds it done")
            }
            once::Once::Run => self.event_then_next(&[Kind::Run], move |step, _| {
                step.world.standby.once[usize::from(o)] = OnceState::Running;
                true
            }),
            _ => None,
        }
    }

    fn create(&mut self, slot: usize, entry: u8) -> What {
        let pc = self.thread().pc;
        match (self.phase(), self.event().map(|event| event.kind)) {
            (at::BEGIN | at::AGAIN, _) => self.consume(&[Kind::Enter], pc, at::ENTERED, |step, event| {
                step.thread().data = event.b;
                true
            }),
            (at::ENTERED, Some(Kind::Again)) => self.consume(&[Kind::Again], pc, at::AGAIN, |_, _| true),
            (at::ENTERED, Some(Kind::Return)) if self.event().is_some_and(|event| event.a == 0) => self
                .event_then_next(&[Kind::Return], |step, _| {
                    step.set(0, 0);
                    true
                }),
            // The slot was free in the primary; here its last thread may still have events to apply, or be joined.
            (at::ENTERED, _) => {
                self.consume(&[Kind::Return], pc, at::CREATED, move |step, _| step.may_take(slot))
            }
            _ => {
                let start = if self.cx.has(Mutation::StartNotPublished) { at::BEGIN } else { at::START };
                spawn(self.cx.program, &mut self.world.standby, slot, entry, start);
                finish(self.cx.program, &mut self.world.standby, self.t, register_of(self.op), 1);
                Some("creates")
            }
        }
    }

    fn may_take(&mut self, slot: usize) -> bool {
        let side = &self.world.standby;
        let makes = |thread: &Thread| {
            let op = self.cx.program.code[usize::from(thread.pc)];
            thread.phase == at::CREATED && matches!(op, Op::Create(other, ..) if usize::from(other) == slot)
        };
        let seen = create::Slot {
            made: side.generation[slot].into(),
            is_being_made: side.threads.iter().any(makes),
            fate: fate_of(self.cx.program, side, slot),
        };
        let is_gone = side.threads[slot].status != Status::Running;
        match create::place_of(seen, side.threads[self.t].data.into()) {
            _ if self.cx.has(Mutation::SlotTakenWhileBusy) => true,
            create::Place::Free => true,
            create::Place::WhenGone => is_gone,
            create::Place::NotYet => is_gone && self.cx.has(Mutation::SlotTakenBeforeJoin),
        }
    }

    fn end(&mut self) -> What {
        if self.phase() == at::ENDING {
            self.end_turn();
            self.thread().status = Status::Ended;
            self.thread().phase = at::BEGIN;
            return Some("ends");
        }
        let pc = self.thread().pc;
        self.consume(&[Kind::Exit], pc, at::ENDING, |_, _| true)
    }

    fn call(&mut self) -> What {
        let pc = self.thread().pc;
        if matches!(self.phase(), at::BEGIN | at::AGAIN) {
            return self.consume(&[Kind::Enter], pc, at::ENTERED, Self::enter);
        }
        match self.event()?.kind {
            Kind::Again => self.consume(&[Kind::Again], pc, at::AGAIN, |step, _| {
                take_back(&mut step.world.standby, step.t, step.op);
                true
            }),
            Kind::Part => self.consume(&[Kind::Part], pc, at::AGAIN, |step, event| {
                step.world.standby.written[usize::from(event.b)] += event.a;
                step.thread().moved += event.a;
                true
            }),
            _ if self.cx.program.turns && row_of(self.op).blocks => {
                self.consume(&[Kind::Return], pc + 1, local::at::TURN, Self::returned)
            }
            _ => self.event_then_next(&[Kind::Return], Self::returned),
        }
    }

    fn enter(&mut self, event: Event) -> bool {
        if digest(self.op, &self.world.standby, self.t) != event.a || self.thread().moved != event.b {
            self.world.blame(Violation::Divergence);
        }
        if self.cx.program.turns && row_of(self.op).blocks {
            self.end_turn();
        }
        if let Some(r) = descriptor_of(self.op) {
            let number = usize::from(self.thread().regs[usize::from(r)]);
            let shadow = &mut self.world.standby.shadow[number.min(FDS - 1)];
            let then = (shadow.object, shadow.generation);
            if matches!(self.op, Op::Close(_)) {
                shadow.object = 0;
            }
            self.thread().then = then;
        }
        true
    }

    fn returned(&mut self, event: Event) -> bool {
        let object = usize::from(event.b);
        match self.op {
            op if makes_descriptor(op) => {
                let shadow = &mut self.world.standby.shadow[usize::from(event.a)];
                let occupied = shadow.object != 0;
                *shadow = Shadow { object: event.b + 1, generation: shadow.generation + 1 };
                if occupied {
                    self.world.blame(Violation::Divergence);
                }
                self.set(event.a, event.b);
            }
            Op::Write(..) => self.world.standby.written[object] += event.a,
            Op::Read(..) => {
                self.world.standby.read[object] += 1;
                self.set(event.a, 0);
            }
            _ => {}
        }
        true
    }
}

fn small(ticket: u64) -> u8 {
    u8::try_from(ticket).expect("few tickets")
}
