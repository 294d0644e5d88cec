//! A copy that acts without telling: the program natively, and the promoted copy.

use us_order::wait;

use crate::explore::{Context, Label, Successors};
use crate::local::{self, *};
use crate::mutation::Mutation;
use crate::program::Op;
use crate::standby::at;
use crate::world::*;

/// Adds the possible next steps of a live thread.
pub fn steps(cx: &Context, world: &World, t: usize, out: &mut Successors) {
    let thread = world.standby.threads[t];
    let op = cx.program.code[usize::from(thread.pc)];
    let mut step = Live { cx, world: *world, t, op };
    let what = match op {
        _ if thread.phase == at::START => step.at_once("starts live", thread.pc),
        // Live, nobody takes turns.
        _ if thread.phase == local::at::TURN => step.at_once("goes on without a turn", thread.next_pc),
        Op::Lock(_) | Op::Try(..) | Op::Wait(_) | Op::TryWait(..) | Op::Rd(_) | Op::Wr(_) => {
            step.acquisition(out)
        }
        Op::CondWait(c, _) | Op::TimedWait(c, _, _) => step.cond_wait(c, out),
        Op::Unlock(_) | Op::RwUnlock(_) => {
            release(&mut step.world.standby, t, op);
            step.next(0, "unlocks")
        }
        // The thread decided in replay that nobody can be waiting, and was overtaken by the promotion.
        Op::Signal(_) | Op::Broadcast(_) if thread.phase == at::STALE => {
            step.next(0, "wakes nobody, being late")
        }
        Op::Signal(c) | Op::Broadcast(c) if cx.native => return step.wake_as_posix_allows(c, out),
        Op::Signal(c) | Op::Broadcast(c) => {
            step.world.standby.waiters[usize::from(c)].wake(op);
            step.next(0, "wakes")
        }
        Op::Post(s) => {
            step.world.standby.sems[usize::from(s)] += 1;
            step.next(0, "posts")
        }
        Op::Barrier(n, _) => step.barrier(n),
        Op::OnceEnter(o, to) => step.once(o, to),
        Op::OnceLeave(_) | Op::OnceAbort(_) => {
            end_once(&mut step.world.standby, op);
            step.next(0, "ends the initialiser")
        }
        Op::Create(slot, entry, _) => step.create(usize::from(slot), entry, out),
        Op::Join(slot) if join(&mut step.world.standby, slot) => step.next(0, "joins"),
        Op::Join(_) => None,
        op if is_kernel_call(op) => step.call(),
        Op::End => {
            step.world.standby.threads[t].status = Status::Ended;
            step.world.standby.threads[t].phase = 0;
            Some("ends")
        }
        _ => unreachable!("local operation at a door: {op:?}"),
    };
    if let Some(what) = what {
        out.push((step.world, Label::standby(t, thread.pc, what)));
    }
}

struct Live<'a> {
    cx: &'a Context<'a>,
    world: World,
    t: usize,
    op: Op,
}

impl Live<'_> {
    fn next(&mut self, result: u8, what: &'static str) -> Option<&'static str> {
        finish(self.cx.program, &mut self.world.standby, self.t, register_of(self.op), result);
        Some(what)
    }

    fn at_once(&mut self, what: &'static str, pc: u8) -> Option<&'static str> {
        go(self.cx.program, &mut self.world.standby, self.t, pc);
        Some(what)
    }

    fn acquisition(&mut self, out: &mut Successors) -> Option<&'static str> {
        let is_try = matches!(self.op, Op::Try(..) | Op::TryWait(..));
        if is_try && self.cx.program.spurious_try {
            let mut failed = Live { world: self.world, ..*self };
            failed.next(0, "");
            let pc = self.world.standby.threads[self.t].pc;
            out.push((failed.world, Label::standby(self.t, pc, "fails for no reason")));
        }
        if acquire(&mut self.world.standby, self.t, self.op) {
            return self.next(u8::from(is_try), "acquires live");
        }
        if is_try { self.next(0, "tries in vain") } else { None }
    }

    fn cond_wait(&mut self, c: u8, out: &mut Successors) -> Option<&'static str> {
        let (cx, t) = (self.cx, self.t);
        let side = &mut self.world.standby;
        let thread = side.threads[t];
        let queue = &mut side.waiters[usize::from(c)];
        let timed = matches!(self.op, Op::TimedWait(..));
        match thread.phase {
            at::BEGIN => {
                queue.join(t);
                release(side, t, self.op);
                side.threads[t].phase = at::WAITING_LIVE;
                Some("joins, unlocks and waits live")
            }
            at::RELEASED => {
                queue.join(t);
                side.threads[t].phase = at::WAITING;
                Some("joins (too late)")
            }
            at::WAITING
                if cx.program.shared_conds && cx.has(Mutation::SharedCondWaiterNotWokenAtPromotion) =>
            {
                queue.join(t);
                side.threads[t].phase = at::WAITING_LIVE;
                Some("goes on waiting")
            }
            _ if queue.has(t) => {
                if !timed {
                    return None;
                }
                queue.leave(t);
                side.threads[t].result = 1;
                Some("times out")
            }
            _ => {
                // Its deadline may pass before it has the mutex.
                let woken = !cx.has(Mutation::CondTimeoutDropsSignal);
                if timed && thread.result == 0 && wait::told(woken, 1) != 0 {
                    let mut late = self.world;
                    late.standby.threads[t].result = 1;
                    out.push((late, Label::standby(t, thread.pc, "times out, though woken")));
                }
                acquire(&mut self.world.standby, t, self.op)
                    .then(|| self.next(thread.result, "re-acquires live"))?
            }
        }
    }

    /// The promoted copy wakes the oldest; the programs must be content with less.
    fn wake_as_posix_allows(self, c: u8, out: &mut Successors) {
        let pc = self.world.standby.threads[self.t].pc;
        for left in self.world.standby.waiters[usize::from(c)].wake_all_ways(self.op) {
            let mut step = Live { world: self.world, ..self };
            step.world.standby.waiters[usize::from(c)] = left;
            step.next(0, "wakes");
            out.push((step.world, Label::standby(self.t, pc, "wakes")));
        }
    }

    fn barrier(&mut self, n: u8) -> Option<&'static str> {
        let side = &mut self.world.standby;
        if side.threads[self.t].phase == at::BEGIN {
            arrive(side, self.t, n);
            side.threads[self.t].phase = at::WAITING;
            return Some("arrives");
        }
        let mark = round_complete(side, self.t)?;
        let mut serial = us_order::barrier::is_serial(None, side.serial[mark]);
        if self.cx.has(Mutation::BarrierSerialIgnoresLog) {
            serial = side.threads[self.t].data == 1;
        }
        side.serial[mark] |= serial;
        self.next(u8::from(serial), "passes the barrier live")
    }

    fn once(&mut self, o: u8, to: u8) -> Option<&'static str> {
        match self.world.standby.once[usize::from(o)] {
            OnceState::Idle => {
                self.world.standby.once[usize::from(o)] = OnceState::Running;
                self.next(0, "becomes the runner")
            }
            OnceState::Running => None,
            OnceState::Done => self.at_once("finds it done", to),
        }
    }

    fn create(&mut self, slot: usize, entry: u8, out: &mut Successors) -> Option<&'static str> {
        let thread = self.world.standby.threads[self.t];
        if thread.phase == at::CREATED {
            spawn(self.cx.program, &mut self.world.standby, slot, entry, 0);
            return self.next(1, "creates, as the log has it");
        }
        if !is_claimable(self.cx.program, &self.world.standby, slot) {
            return None;
        }
        if self.cx.program.creates_fail {
            let mut failed = Live { world: self.world, ..*self };
            failed.next(0, "");
            out.push((failed.world, Label::standby(self.t, thread.pc, "fails to create")));
        }
        spawn(self.cx.program, &mut self.world.standby, slot, entry, 0);
        self.next(1, "creates live")
    }

    fn call(&mut self) -> Option<&'static str> {
        let moved = self.world.standby.threads[self.t].moved;
        let World { kernel, standby, .. } = &mut self.world;
        let (result, data) = match kernel_call(kernel, standby, self.t, self.op, moved) {
            Ok(answer) => answer,
            Err(violation) => {
                self.world.blame(violation);
                (EBADF, 0)
            }
        };
        if matches!(self.op, Op::Write(_, _, len) if result < len) {
            self.world.standby.threads[self.t].moved = result;
            return Some("writes a byte");
        }
        if self.cx.program.turns && row_of(self.op).blocks {
            // Guest code behind it is a step of its own: what it does is guarded by no lock.
            set_result(&mut self.world.standby, self.t, self.op, result, data);
            let thread = &mut self.world.standby.threads[self.t];
            (thread.next_pc, thread.phase) = (thread.pc + 1, local::at::TURN);
        } else {
            finish_call(self.cx.program, &mut self.world.standby, self.t, self.op, result, data);
        }
        Some("calls the kernel")
    }
}
