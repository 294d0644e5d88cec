//! The primary: does, then tells. One function call is one step; a kill may come between any two.

use crate::explore::{Context, Label, Successors};
use crate::local::*;
use crate::mutation::Mutation;
use crate::program::Op;
use crate::standby::leave_wait;
use crate::world::*;

/// Steps inside an operation of the primary.
pub mod at {
    /// Nothing of the operation has been done.
    pub const BEGIN: u8 = 0;
    /// A ticket is to be taken.
    pub const TICKET: u8 = 1;
    /// The event is to be published.
    pub const PUBLISH: u8 = 2;
    /// Waits for a condition, or for a barrier's round.
    pub const WAITING: u8 = 3;
    /// The deadline of the wait has passed, and its place in the queue is left.
    pub const WOKEN: u8 = 4;
    /// A failed try is to be published.
    pub const PUBLISH_FAILURE: u8 = 5;
    /// The call, or the creation, is to be made.
    pub const EFFECT: u8 = 6;
    /// The ticket of the `Enter` has been taken.
    pub const ENTER: u8 = 7;
    /// The `Return` is to be published.
    pub const RETURN: u8 = 8;
    /// The `Enter` is out, the kernel not yet entered.
    pub const MARK: u8 = 9;
    /// A broken rule has what should have been said before the effect still to say.
    pub const LATE: u8 = 10;
    /// The log is to hear that a call that had begun begins again.
    pub const AGAIN: u8 = 11;
    /// The log is to hear how far a transfer came that has been cut off.
    pub const CUT: u8 = 12;
    /// A wait that was ended by the log, in a copy that acts by now: its place in the queue is still to be left.
    pub const LEAVING: u8 = 13;
    /// The log has a creation of which this copy has still to make the thread.
    pub const MAKE: u8 = 14;
    /// Waits for a lock, its turn given to others.
    pub const ASLEEP: u8 = 15;
}

/// Adds the possible next steps of a thread of the primary.
pub fn steps(cx: &Context, world: &World, t: usize, out: &mut Successors) {
    let thread = world.primary.threads[t];
    if thread.status != Status::Running {
        return;
    }
    let op = cx.program.code[usize::from(thread.pc)];
    if thread.phase == START_PENDING {
        return start(cx, world, t, out);
    }
    let mut step = Step { cx, world: *world, t, op };
    let what = match op {
        _ if thread.phase == crate::local::at::TURN => step.take_turn(),
        _ if thread.phase == at::AGAIN => step.begin_again(),
        _ if thread.phase == at::CUT => step.cut_off(),
        Op::Lock(_) | Op::Try(..) | Op::Wait(_) | Op::TryWait(..) | Op::Rd(_) | Op::Wr(_) => {
            step.acquisition()
        }
        Op::CondWait(..) | Op::TimedWait(..) => step.cond_wait(),
        Op::Unlock(_) | Op::RwUnlock(_) => step.unlock(),
        Op::Signal(c) | Op::Broadcast(c) => step.wake(c),
        Op::Post(s) => step.post(s),
        Op::Barrier(n, _) => step.barrier(n),
        Op::OnceEnter(o, to) => step.once(o, to),
        Op::OnceLeave(_) | Op::OnceAbort(_) => step.leave_once(),
        Op::Create(slot, entry, _) => step.create(usize::from(slot), entry, out),
        Op::Join(slot) => step.join(slot),
        op if is_kernel_call(op) => step.call(),
        Op::End => step.end(),
        _ => unreachable!("local operation at a door: {op:?}"),
    };
    if let Some(what) = what {
        out.push((step.world, Label::primary(t, thread.pc, what)));
    }
}

/// One step of a thread.
pub(crate) struct Step<'a> {
    pub(crate) cx: &'a Context<'a>,
    pub(crate) world: World,
    pub(crate) t: usize,
    pub(crate) op: Op,
}

impl Step<'_> {
    pub(crate) fn thread(&mut self) -> &mut Thread {
        &mut self.world.primary.threads[self.t]
    }

    pub(crate) fn phase(&mut self, phase: u8) {
        self.thread().phase = phase;
    }

    fn next(&mut self, result: u8) {
        finish(self.cx.program, &mut self.world.primary, self.t, register_of(self.op), result);
    }

    pub(crate) fn take_ticket(&mut self, clock: u8) {
        let clock = &mut self.world.primary.clocks[usize::from(clock)];
        let ticket = *clock;
        *clock += 1;
        self.thread().ticket = ticket;
    }

    pub(crate) fn publish(&mut self, kind: Kind, clock: u8, a: u8, b: u8) {
        let Thread { pc, ticket, .. } = *self.thread();
        let ticket = if clock == NO_CLOCK { 0 } else { ticket };
        self.publish_event(Event { kind, pc, clock, ticket, a, b });
    }

    pub(crate) fn publish_event(&mut self, event: Event) {
        let tail = &mut self.world.rings.tail[self.t];
        self.world.rings.events[self.t][usize::from(*tail)] = event;
        self.world.rings.scratch[self.t] = 0;
        self.world.rings.noted[self.t] = 0;
        self.world.rings.entered[self.t] = false;
        *tail += 1;
    }

    fn begin_again(&mut self) -> Option<&'static str> {
        if !self.cx.has(Mutation::AgainNotLogged) {
            self.publish(Kind::Again, NO_CLOCK, 0, 0);
        }
        self.phase(at::BEGIN);
        Some("says that the call begins again")
    }

    fn cut_off(&mut self) -> Option<&'static str> {
        let Thread { moved, from, data, .. } = *self.thread();
        self.publish(Kind::Part, NO_CLOCK, moved - from, data);
        self.phase(at::BEGIN);
        Some("publishes how far the call came")
    }

    fn acquisition(&mut self) -> Option<&'static str> {
        let (cx, t, op) = (self.cx, self.t, self.op);
        let clock = clock_of(op);
        let is_try = matches!(op, Op::Try(..) | Op::TryWait(..));
        let phase = self.thread().phase;
        match phase {
            at::BEGIN if cx.has(Mutation::TicketBeforeAcquire) && !is_try => {
                self.take_ticket(clock);
                self.phase(at::EFFECT);
                Some("takes a ticket (too early)")
            }
            at::EFFECT if acquire(&mut self.world.primary, t, op) => {
                self.phase(at::PUBLISH);
                Some("acquires")
            }
            at::BEGIN if acquire(&mut self.world.primary, t, op) => {
                if clock < HASHED {
                    // Only the holder can touch the clock: no other step can come between.
                    self.take_ticket(clock);
                    self.phase(at::PUBLISH);
                    if cx.has(Mutation::PublishAfterRelease) && matches!(op, Op::Lock(_)) {
                        self.thread().stash_pc = self.thread().pc + 1;
                        self.next(1);
                    }
                    return Some("acquires and takes a ticket");
                }
                self.phase(at::TICKET);
                Some("acquires")
            }
            at::BEGIN if is_try => {
                self.phase(at::PUBLISH_FAILURE);
                Some("tries in vain")
            }
            at::BEGIN if cx.program.turns => self.pause(),
            at::ASLEEP if is_free(&self.world.primary, t, op) => self.wake_up(),
            at::TICKET => {
                self.take_ticket(clock);
                self.phase(at::PUBLISH);
                Some("takes a ticket")
            }
            at::PUBLISH => {
                let result = self.thread().result;
                self.publish(if clock < HASHED { Kind::Lock } else { Kind::Ordered }, clock, result, 0);
                self.next(u8::from(is_try));
                Some("publishes")
            }
            at::PUBLISH_FAILURE => {
                self.publish(Kind::TryFailed, NO_CLOCK, 0, 0);
                self.next(0);
                Some("publishes the failure")
            }
            _ => None,
        }
    }

    fn cond_wait(&mut self) -> Option<&'static str> {
        let (Op::CondWait(c, m) | Op::TimedWait(c, m, _)) = self.op else { unreachable!() };
        let (cx, t, op) = (self.cx, self.t, self.op);
        let phase = self.thread().phase;
        match phase {
            at::BEGIN => {
                self.world.primary.waiters[usize::from(c)].join(t);
                release(&mut self.world.primary, t, op);
                self.phase(at::WAITING);
                Some("unlocks and waits")
            }
            at::LEAVING => Some(leave_wait(cx, &mut self.world.primary, t, c.into())),
            at::WAITING if self.world.primary.waiters[usize::from(c)].has(t) => {
                if matches!(op, Op::TimedWait(..)) {
                    self.world.primary.waiters[usize::from(c)].leave(t);
                    self.thread().result = 1;
                    self.phase(at::WOKEN);
                    return Some("times out");
                }
                None
            }
            at::WAITING | at::WOKEN if acquire(&mut self.world.primary, t, op) => {
                self.take_ticket(m);
                self.phase(at::PUBLISH);
                Some("re-acquires and takes a ticket")
            }
            at::PUBLISH => {
                let result = self.thread().result;
                self.publish(Kind::Lock, m, result, 0);
                self.next(result);
                Some("publishes")
            }
            _ => None,
        }
    }

    fn wake(&mut self, c: u8) -> Option<&'static str> {
        self.world.primary.waiters[usize::from(c)].wake(self.op);
        self.next(0);
        Some("wakes")
    }

    fn unlock(&mut self) -> Option<&'static str> {
        let (t, op) = (self.t, self.op);
        if let Op::Unlock(m) = op {
            let stash = self.thread().stash_pc;
            let owed =
                stash != 0 && matches!(self.cx.program.code[usize::from(stash - 1)], Op::Lock(l) if l == m);
            if owed && self.thread().phase == at::BEGIN {
                self.thread().ticket = self.world.primary.clocks[usize::from(m)] - 1;
                release(&mut self.world.primary, t, op);
                self.phase(at::PUBLISH);
                return Some("unlocks, its LOCK not published");
            }
            if owed {
                let ticket = self.thread().ticket;
                self.publish_event(Event { kind: Kind::Lock, pc: stash - 1, clock: m, ticket, a: 0, b: 0 });
                self.thread().stash_pc = 0;
                self.next(0);
                return Some("publishes its LOCK late");
            }
        }
        release(&mut self.world.primary, t, op);
        self.next(0);
        Some("unlocks")
    }

    fn post(&mut self, s: u8) -> Option<&'static str> {
        let order = if self.cx.has(Mutation::ReleaseTicketAfterEffect) {
            [at::EFFECT, at::TICKET, at::PUBLISH]
        } else if self.cx.has(Mutation::ReleasePublishedAfterEffect) {
            [at::TICKET, at::EFFECT, at::PUBLISH]
        } else {
            [at::TICKET, at::PUBLISH, at::EFFECT]
        };
        let done = usize::from(self.thread().phase);
        let what = match order[done] {
            at::TICKET => {
                self.take_ticket(HASHED);
                "takes a ticket"
            }
            at::PUBLISH => {
                self.publish(Kind::Ordered, HASHED, 0, 0);
                "publishes"
            }
            _ => {
                self.world.primary.sems[usize::from(s)] += 1;
                "posts"
            }
        };
        if done + 1 == order.len() {
            self.next(0);
        } else {
            self.thread().phase += 1;
        }
        Some(what)
    }

    fn barrier(&mut self, n: u8) -> Option<&'static str> {
        let phase = self.thread().phase;
        match phase {
            at::BEGIN => {
                arrive(&mut self.world.primary, self.t, n);
                self.phase(at::WAITING);
                Some("arrives")
            }
            at::WAITING => {
                let mark = round_complete(&self.world.primary, self.t)?;
                let serial = us_order::barrier::is_serial(None, self.world.primary.serial[mark]);
                self.world.primary.serial[mark] |= serial;
                self.thread().result = u8::from(serial);
                self.phase(at::PUBLISH);
                Some("passes the barrier")
            }
            _ => {
                let result = self.thread().result;
                self.publish(Kind::Barrier, NO_CLOCK, result, 0);
                self.next(result);
                Some("publishes")
            }
        }
    }

    fn once(&mut self, o: u8, to: u8) -> Option<&'static str> {
        match (self.thread().phase, self.world.primary.once[usize::from(o)]) {
            (at::BEGIN, OnceState::Idle) => {
                self.world.primary.once[usize::from(o)] = OnceState::Running;
                self.phase(at::TICKET);
                if self.cx.has(Mutation::OnceRunPublishedAtEnd) {
                    self.next(0);
                }
                Some("becomes the runner")
            }
            (at::BEGIN, OnceState::Done) => {
                go(self.cx.program, &mut self.world.primary, self.t, to);
                Some("finds it done")
            }
            (at::TICKET, _) => {
                self.take_ticket(HASHED);
                self.phase(at::PUBLISH);
                Some("takes a ticket")
            }
            (at::PUBLISH, _) => {
                let ticketless = self.cx.has(Mutation::OnceRunWithoutTicket);
                self.publish(Kind::Run, if ticketless { NO_CLOCK } else { HASHED }, 0, 0);
                self.next(0);
                Some("publishes RUN")
            }
            _ => None,
        }
    }

    fn leave_once(&mut self) -> Option<&'static str> {
        if self.cx.has(Mutation::OnceRunPublishedAtEnd) {
            let pc = (0..self.thread().pc).rev();
            let enter =
                pc.into_iter().find(|&p| matches!(self.cx.program.code[usize::from(p)], Op::OnceEnter(..)));
            self.take_ticket(HASHED);
            let Thread { ticket, .. } = *self.thread();
            let pc = enter.expect("an OnceEnter precedes");
            self.publish_event(Event { kind: Kind::Run, pc, clock: HASHED, ticket, a: 0, b: 0 });
        }
        end_once(&mut self.world.primary, self.op);
        self.next(0);
        Some("ends the initialiser")
    }

    fn create(&mut self, slot: usize, entry: u8, out: &mut Successors) -> Option<&'static str> {
        let slot_u8 = u8::try_from(slot).expect("few slots");
        let phase = self.thread().phase;
        match phase {
            // Stands for "some other slot would be chosen": a slot is free once its thread has ended.
            at::BEGIN if !is_claimable(self.cx.program, &self.world.primary, slot) => None,
            at::MAKE => {
                spawn(self.cx.program, &mut self.world.primary, slot, entry, START_PENDING);
                self.next(1);
                Some("creates, as the log has it")
            }
            at::BEGIN => {
                let generation = self.world.primary.generation[slot] + 1;
                self.publish(Kind::Enter, NO_CLOCK, slot_u8, generation);
                self.phase(at::EFFECT);
                Some("publishes ENTER")
            }
            at::EFFECT => {
                if self.cx.program.creates_fail {
                    let mut failed = Step { cx: self.cx, world: self.world, t: self.t, op: self.op };
                    failed.thread().result = 0;
                    failed.phase(at::RETURN);
                    let pc = failed.thread().pc;
                    out.push((failed.world, Label::primary(self.t, pc, "fails to create")));
                }
                let start = if self.cx.has(Mutation::StartNotPublished) { at::BEGIN } else { START_PENDING };
                spawn(self.cx.program, &mut self.world.primary, slot, entry, start);
                self.thread().result = 1;
                self.phase(at::RETURN);
                Some("creates")
            }
            _ => {
                let result = self.thread().result;
                self.publish(Kind::Return, NO_CLOCK, result, slot_u8);
                self.next(result);
                Some("publishes RETURN")
            }
        }
    }

    fn join(&mut self, slot: u8) -> Option<&'static str> {
        join(&mut self.world.primary, slot).then(|| {
            self.next(0);
            "joins"
        })
    }

    fn end(&mut self) -> Option<&'static str> {
        let phase = self.thread().phase;
        match phase {
            at::BEGIN => {
                self.publish(Kind::Exit, NO_CLOCK, 0, 0);
                self.phase(at::EFFECT);
                Some("publishes EXIT")
            }
            _ => {
                self.give_turn();
                self.thread().status = Status::Ended;
                self.phase(at::BEGIN);
                Some("ends")
            }
        }
    }
}

fn start(cx: &Context, world: &World, t: usize, out: &mut Successors) {
    let mut step = Step { cx, world: *world, t, op: Op::End };
    let pc = step.thread().pc;
    let generation = step.world.primary.generation[t];
    step.publish(Kind::Start, NO_CLOCK, 0, generation);
    if cx.program.turns {
        step.thread().next_pc = pc;
        step.phase(crate::local::at::TURN);
    } else {
        go(cx.program, &mut step.world.primary, t, pc);
    }
    out.push((step.world, Label::primary(t, pc, "publishes START")));
}
