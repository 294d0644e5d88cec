//! The primary's kernel calls: `Enter`, the mark, the effect, `Return`, each with the tickets that the table of system
//! calls gives it.

use us_calls::Order;

use crate::explore::Context;
use crate::local::*;
use crate::mutation::Mutation;
use crate::primary::{Step, at};
use crate::program::Op;
use crate::world::*;

/// When a call takes its tickets.
#[must_use]
pub fn order_of(cx: &Context, op: Op) -> Order {
    match row_of(op).order {
        Order::Return if cx.has(Mutation::AcquiringCallTicketAtEntry) => Order::Enter,
        Order::Enter if cx.has(Mutation::ReleasingCallTicketAtReturn) => Order::Return,
        order => order,
    }
}

impl Step<'_> {
    /// One step of a kernel call.
    pub(crate) fn call(&mut self) -> Option<&'static str> {
        let order = order_of(self.cx, self.op);
        let late_enter = self.cx.has(Mutation::EnterPublishedAfterEffect);
        let late_mark = self.cx.has(Mutation::MarkLeftAfterEffect);
        let phase = self.thread().phase;
        match phase {
            at::BEGIN if order.at_entry() => {
                self.take_ticket(KERNEL);
                self.phase(at::ENTER);
                Some("takes a ticket")
            }
            at::BEGIN | at::ENTER if late_enter => {
                self.phase(at::EFFECT);
                Some("begins, unpublished")
            }
            at::BEGIN | at::ENTER => {
                self.publish_enter(order);
                self.phase(at::MARK);
                Some("publishes ENTER")
            }
            at::MARK if late_mark => {
                self.phase(at::EFFECT);
                Some("leaves no mark")
            }
            at::MARK => {
                self.world.rings.entered[self.t] = true;
                self.phase(at::EFFECT);
                Some("leaves its mark: the kernel is entered")
            }
            at::EFFECT => self.effect(order, late_enter, late_mark),
            at::LATE => {
                if late_enter {
                    self.publish_enter(order);
                }
                self.world.rings.entered[self.t] = true;
                self.phase(behind_effect(order));
                Some("says so (too late)")
            }
            at::TICKET => {
                self.take_ticket(KERNEL);
                self.phase(at::RETURN);
                Some("takes a ticket")
            }
            _ => self.publish_return(order),
        }
    }

    fn publish_enter(&mut self, order: Order) {
        let digest = digest(self.op, &self.world.primary, self.t);
        let moved = self.thread().moved;
        self.thread().from = moved;
        self.publish(Kind::Enter, if order.at_entry() { KERNEL } else { NO_CLOCK }, digest, moved);
        if self.cx.program.turns && row_of(self.op).blocks {
            self.give_turn();
        }
    }

    /// A write moves one byte a step: it may be cut anywhere.
    fn effect(&mut self, order: Order, late_enter: bool, late_mark: bool) -> Option<&'static str> {
        let moved = self.thread().moved;
        let (result, data) = self.kernel(moved);
        (self.thread().result, self.thread().data) = (result, data);
        match self.op {
            Op::Read(..) => {
                self.world.rings.scratch[self.t] = result;
                self.world.rings.noted[self.t] = 1;
            }
            Op::Write(_, _, len) => {
                self.thread().moved = result;
                let so_far = result - self.thread().from;
                self.world.rings.noted[self.t] = so_far;
                self.thread().result = so_far;
                if result < len {
                    return Some("the kernel takes a byte");
                }
            }
            _ => {}
        }
        self.phase(if late_enter || late_mark { at::LATE } else { behind_effect(order) });
        Some("the call takes effect")
    }

    fn kernel(&mut self, at: u8) -> (u8, u8) {
        let World { kernel, primary, .. } = &mut self.world;
        kernel_call(kernel, primary, self.t, self.op, at).unwrap_or_else(|violation| {
            self.world.blame(violation);
            (EBADF, 0)
        })
    }

    fn publish_return(&mut self, order: Order) -> Option<&'static str> {
        let Thread { result, data, pc, .. } = *self.thread();
        self.publish(Kind::Return, if order.at_return() { KERNEL } else { NO_CLOCK }, result, data);
        if self.cx.program.turns && row_of(self.op).blocks {
            set_result(&mut self.world.primary, self.t, self.op, result, data);
            self.thread().next_pc = pc + 1;
            self.phase(crate::local::at::TURN);
        } else {
            finish_call(self.cx.program, &mut self.world.primary, self.t, self.op, result, data);
        }
        Some("publishes RETURN")
    }

    // ---- Turns ----

    /// Takes the turn: an event, behind which guest code runs. Where whoever has it waits without giving it back, at
    /// its side.
    pub(crate) fn take_turn(&mut self) -> Option<&'static str> {
        let turns = self.world.primary.turns;
        let passes_over = turns.had != 0 && self.is_holder_stuck();
        if turns.had != 0 && !passes_over {
            return None;
        }
        let number = turns.next;
        self.publish_event(Event {
            kind: Kind::Turn,
            pc: 0,
            clock: NO_CLOCK,
            ticket: number,
            a: u8::from(passes_over),
            b: 0,
        });
        let side = &mut self.world.primary;
        (side.turns.next, side.turns.had) = (number + 1, number + 1);
        side.threads[self.t].turn = number + 1;
        let pc = side.threads[self.t].next_pc;
        go(self.cx.program, side, self.t, pc);
        Some(if passes_over { "takes the turn at the other's side" } else { "takes the turn" })
    }

    /// Whether the thread that has the turn waits where it is not given back.
    fn is_holder_stuck(&self) -> bool {
        let side = &self.world.primary;
        let has = |thread: &&Thread| thread.turn == side.turns.had && thread.status == Status::Running;
        side.threads.iter().find(has).is_some_and(|thread| thread.phase == at::WAITING)
    }

    /// Gives it back, if it has it. Another one may have taken the next by now, at this one's side.
    pub(crate) fn give_turn(&mut self) {
        let own = std::mem::take(&mut self.thread().turn);
        let had = &mut self.world.primary.turns.had;
        if own != 0 && *had == own {
            *had = 0;
        }
    }

    /// Before a wait for a lock: the log says that there is one.
    pub(crate) fn pause(&mut self) -> Option<&'static str> {
        if !self.cx.has(Mutation::YieldNotLogged) {
            self.publish(Kind::Yield, NO_CLOCK, 0, 0);
        }
        self.give_turn();
        self.phase(at::ASLEEP);
        Some("yields its turn and sleeps")
    }

    /// Behind such a wait: the turn first, and then another look at the lock.
    pub(crate) fn wake_up(&mut self) -> Option<&'static str> {
        let pc = self.thread().pc;
        self.thread().next_pc = pc;
        self.phase(crate::local::at::TURN);
        Some("wakes")
    }
}

fn behind_effect(order: Order) -> u8 {
    if order.at_return() { at::TICKET } else { at::RETURN }
}
