//! The state of a program and its standby, and their steps.

use super::{Broken, Program};

/// One operation of a thread. `r` names a register of the thread, `v` a place in memory.
#[derive(Clone, Copy, Debug)]
pub enum Op {
    /// Plain: r.0 = v.1.
    Load(u8, u8),
    /// Plain: r.0 = v.(r.1).
    LoadAt(u8, u8),
    /// Plain: v.0 = r.1.
    Store(u8, u8),
    /// Atomic: r.0 and v.1 change places.
    Exchange(u8, u8),
    /// Atomic: r.0 = v.1, and v.1 += .2.
    Add(u8, u8, u8),
    /// Atomic: v.0 = r.2 if it is r.1, r.3 = 1; otherwise r.1 = v.0, r.3 = 0.
    Compare(u8, u8, u8, u8),
    /// The same, where the text says that r.1 is a constant.
    CompareConstant(u8, u8, u8, u8),
    /// r.0 = .1.
    Imm(u8, u8),
    /// r.0 = r.1 + .2.
    Sum(u8, u8, u8),
    /// Jump to .2 if r.0 == .1.
    If(u8, u8, u8),
    /// Jump to .1 if r.0 is odd.
    IfOdd(u8, u8),
    /// Jump to .2 if r.0 != r.1.
    IfNot(u8, u8, u8),
    /// Jump.
    Goto(u8),
    /// A call that shows r.0 to the outside.
    Put(u8),
}

impl Op {
    fn place(self) -> Option<usize> {
        match self {
            Op::Exchange(_, v) | Op::Add(_, v, _) | Op::Compare(v, ..) | Op::CompareConstant(v, ..) => {
                Some(usize::from(v))
            }
            _ => None,
        }
    }
}

/// Registers of a thread.
const REGISTERS: usize = 4;
/// Events of a thread that are not applied.
const RING: usize = 2;

/// A thread of a copy.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
struct Thread {
    pc: u8,
    registers: [u8; REGISTERS],
    /// Of a primary's: how far it is in an atomic instruction.
    phase: u8,
    /// What that has left.
    left: Left,
    /// With a broken rule: its ticket.
    ticket: u8,
}

/// What an atomic instruction has left: the old value, and whether a comparison did not fail.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
struct Left {
    old: u8,
    succeeded: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Event {
    Atomic { pc: u8, place: u8, ticket: u8, left: Left },
    Put { pc: u8, value: u8 },
}

/// A copy.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Copy {
    memory: Vec<u8>,
    /// Of each place: the next ticket, counted from the one that is due in the standby, and whether somebody holds the clock.
    clocks: Vec<(u8, bool)>,
    threads: Vec<Thread>,
}

/// What a run came to: what each thread has put out, and the memory.
pub type Outcome = (Vec<Vec<u8>>, Vec<u8>);

/// All there is.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct World {
    primary: Option<Copy>,
    standby: Option<Copy>,
    /// Of each thread: what has not been applied.
    log: Vec<Vec<Event>>,
    shown: Vec<Vec<u8>>,
    /// The standby has gone another way.
    pub has_diverged: bool,
    /// Whether the program's threads have all ended in the copy that counts.
    ended: bool,
}

impl World {
    /// The program without copies.
    #[must_use]
    pub fn alone(program: &Program) -> World {
        let threads = program.threads.len();
        let mut copy = Copy {
            memory: program.memory.clone(),
            clocks: vec![(0, false); program.memory.len()],
            threads: vec![Thread::default(); threads],
        };
        program.threads.iter().enumerate().for_each(|(t, code)| copy.settle(t, code));
        World {
            primary: Some(copy),
            standby: None,
            log: vec![Vec::new(); threads],
            shown: vec![Vec::new(); threads],
            has_diverged: false,
            ended: false,
        }
    }

    /// The program and its standby.
    #[must_use]
    pub fn protected(program: &Program) -> World {
        let alone = World::alone(program);
        World { standby: alone.primary.clone(), ..alone }
    }

    /// What the run has come to, at its end.
    #[must_use]
    pub fn outcome(&self) -> Option<Outcome> {
        let last = self.primary.as_ref().or(self.standby.as_ref())?;
        self.ended.then(|| (self.shown.clone(), last.memory.clone()))
    }

    /// All that may come next.
    #[must_use]
    pub fn steps(&self, program: &Program, broken: Option<Broken>) -> Vec<World> {
        let mut all = Vec::new();
        for t in 0..program.threads.len() {
            if self.primary.is_some() {
                all.extend(self.primary_step(program, broken, t));
            }
            if self.standby.is_some() {
                all.extend(self.standby_step(program, broken, t));
            }
        }
        if self.primary.is_some() && self.standby.is_some() && !self.ended {
            all.push(World { primary: None, ..self.clone() });
        }
        for world in &mut all {
            let last = world.primary.as_ref().or(world.standby.as_ref());
            let is_done = |copy: &Copy| {
                let mut threads = copy.threads.iter().zip(&program.threads);
                threads.all(|(thread, code)| usize::from(thread.pc) >= code.len())
            };
            world.ended = last.is_some_and(is_done);
        }
        all
    }

    fn primary_step(&self, program: &Program, broken: Option<Broken>, t: usize) -> Option<World> {
        let mut world = self.clone();
        let is_logged = world.standby.is_some();
        let copy = world.primary.as_mut()?;
        let thread = copy.threads[t];
        let op = *program.threads[t].get(usize::from(thread.pc))?;
        if (op.place().is_some() || matches!(op, Op::Put(_))) && world.log[t].len() >= RING {
            return None;
        }
        let Some(place) = op.place() else {
            let shown = copy.plain(t, op);
            copy.settle(t, &program.threads[t]);
            if let Some(value) = shown {
                world.shown[t].push(value);
                if is_logged {
                    world.log[t].push(Event::Put { pc: thread.pc, value });
                }
            }
            return Some(world);
        };
        let is_late = broken == Some(Broken::PublishedLate);
        let ticket = copy.clocks[place].0;
        let event = Event::Atomic { pc: thread.pc, place: place as u8, ticket, left: thread.left };
        match thread.phase {
            0 if copy.clocks[place].1 => return None,
            // Nobody else can see that the clock is held, and the instruction not yet made.
            0 => {
                copy.clocks[place].1 = true;
                copy.threads[t].left = copy.atomic(t, op);
                copy.threads[t].phase = 1;
                return Some(world);
            }
            1 if is_late => {
                copy.clocks[place] = (ticket + u8::from(is_logged), false);
                // The ticket has been taken; what is published is the event that has it.
                copy.threads[t].ticket = ticket;
                copy.threads[t].phase = 2;
                return Some(world);
            }
            1 => copy.clocks[place] = (ticket + u8::from(is_logged), false),
            _ => {}
        }
        let event = match event {
            Event::Atomic { pc, place, left, .. } if is_late => {
                Event::Atomic { pc, place, left, ticket: thread.ticket }
            }
            event => event,
        };
        if is_logged {
            world.log[t].push(event);
        }
        let thread = &mut copy.threads[t];
        (thread.phase, thread.left, thread.ticket) = (0, Left::default(), 0);
        thread.pc += 1;
        copy.settle(t, &program.threads[t]);
        Some(world)
    }

    /// The standby has applied the next instruction on this place.
    fn pass(&mut self, place: u8) {
        let less = |ticket: &mut u8| *ticket = ticket.saturating_sub(1);
        for event in self.log.iter_mut().flatten() {
            if let Event::Atomic { place: other, ticket, .. } = event
                && *other == place
            {
                less(ticket);
            }
        }
        if let Some(primary) = &mut self.primary {
            less(&mut primary.clocks[usize::from(place)].0);
            primary
                .threads
                .iter_mut()
                .filter(|thread| thread.phase == 2)
                .for_each(|thread| less(&mut thread.ticket));
        }
    }

    fn standby_step(&self, program: &Program, broken: Option<Broken>, t: usize) -> Option<World> {
        let mut world = self.clone();
        let is_dead = world.primary.is_none();
        let is_drained = world.log.iter().all(Vec::is_empty) || broken == Some(Broken::LiveBeforeDrained);
        let copy = world.standby.as_mut()?;
        let thread = copy.threads[t];
        let op = *program.threads[t].get(usize::from(thread.pc))?;
        let is_door = op.place().is_some() || matches!(op, Op::Put(_));
        if !is_door {
            copy.plain(t, op);
            copy.settle(t, &program.threads[t]);
            return Some(world);
        }
        let Some(event) = world.log[t].first().copied() else {
            if !is_dead || !is_drained {
                return None;
            }
            if op.place().is_some() {
                copy.atomic(t, op);
                copy.threads[t].pc += 1;
            } else if let Some(value) = copy.plain(t, op) {
                world.shown[t].push(value);
            }
            copy.settle(t, &program.threads[t]);
            return Some(world);
        };
        match (event, op) {
            (Event::Put { pc, value }, Op::Put(_)) if pc == thread.pc => {
                world.has_diverged = copy.plain(t, op) != Some(value);
                copy.settle(t, &program.threads[t]);
                world.log[t].remove(0);
            }
            (Event::Atomic { pc, place, ticket, left }, _) if pc == thread.pc && op.place().is_some() => {
                if ticket != 0 && broken != Some(Broken::NoOrder) {
                    return None;
                }
                let is_applied = copy.follow(t, op, left, broken)?;
                copy.settle(t, &program.threads[t]);
                if !is_applied {
                    return Some(world);
                }
                world.log[t].remove(0);
                world.pass(place);
            }
            _ => world.has_diverged = true,
        }
        Some(world)
    }
}

impl Copy {
    /// Makes what comes next and touches no memory: it is a part of the step before.
    fn settle(&mut self, t: usize, code: &[Op]) {
        while let Some(op) = code.get(usize::from(self.threads[t].pc)) {
            match op {
                Op::Imm(..) | Op::Sum(..) | Op::If(..) | Op::IfOdd(..) | Op::IfNot(..) | Op::Goto(..) => {
                    self.plain(t, *op);
                }
                _ => break,
            }
        }
    }

    /// What is no atomic instruction. What it shows to the outside, if it does.
    fn plain(&mut self, t: usize, op: Op) -> Option<u8> {
        let Copy { memory, threads, .. } = self;
        let Thread { pc, registers: r, .. } = &mut threads[t];
        let mut next = *pc + 1;
        let mut shown = None;
        let at = usize::from;
        match op {
            Op::Load(to, v) => r[at(to)] = memory[at(v)],
            Op::LoadAt(to, v) => r[at(to)] = memory[at(r[at(v)])],
            Op::Store(v, from) => memory[at(v)] = r[at(from)],
            Op::Imm(to, value) => r[at(to)] = value,
            Op::Sum(to, from, value) => r[at(to)] = r[at(from)].wrapping_add(value),
            Op::If(what, value, to) if r[at(what)] == value => next = to,
            Op::IfOdd(what, to) if r[at(what)] % 2 == 1 => next = to,
            Op::IfNot(one, other, to) if r[at(one)] != r[at(other)] => next = to,
            Op::Goto(to) => next = to,
            Op::Put(what) => shown = Some(r[at(what)]),
            _ => {}
        }
        *pc = next;
        shown
    }

    /// An atomic instruction, made here.
    fn atomic(&mut self, t: usize, op: Op) -> Left {
        let r = &mut self.threads[t].registers;
        let at = usize::from;
        match op {
            Op::Exchange(x, v) => {
                let old = std::mem::replace(&mut self.memory[at(v)], r[at(x)]);
                r[at(x)] = old;
                Left { old, succeeded: true }
            }
            Op::Add(x, v, value) => {
                let old = self.memory[at(v)];
                self.memory[at(v)] = old.wrapping_add(value);
                r[at(x)] = old;
                Left { old, succeeded: true }
            }
            Op::Compare(v, with, new, flag) | Op::CompareConstant(v, with, new, flag) => {
                let old = self.memory[at(v)];
                let succeeded = old == r[at(with)];
                if succeeded {
                    self.memory[at(v)] = r[at(new)];
                } else {
                    r[at(with)] = old;
                }
                r[at(flag)] = u8::from(succeeded);
                Left { old, succeeded }
            }
            _ => unreachable!("no atomic instruction"),
        }
    }

    /// The same in a standby, of which the log says what it has left. `None` to wait; false if the event stays.
    fn follow(&mut self, t: usize, op: Op, logged: Left, broken: Option<Broken>) -> Option<bool> {
        let at = usize::from;
        let is = |rule| broken == Some(rule);
        let mut is_applied = true;
        match op {
            Op::Exchange(x, v) => {
                let (new, now) = (self.threads[t].registers[at(x)], self.memory[at(v)]);
                if now != logged.old && logged.old == new && !is(Broken::ExchangeIsMade) {
                    self.threads[t].registers[at(x)] = logged.old;
                } else if now != logged.old && now == new && !is(Broken::ExchangeIsEarly) {
                    return None;
                } else {
                    self.atomic(t, op);
                }
            }
            Op::Compare(v, with, _, flag) | Op::CompareConstant(v, with, _, flag) => {
                let would = self.memory[at(v)] == self.threads[t].registers[at(with)];
                let is_constant = matches!(op, Op::CompareConstant(..)) && !is(Broken::ConstantIsNotAwaited);
                if logged.succeeded && !would && is_constant {
                    return None;
                }
                if !logged.succeeded && would && !is(Broken::FailureIsMade) {
                    let registers = &mut self.threads[t].registers;
                    (registers[at(with)], registers[at(flag)]) = (logged.old, 0);
                } else {
                    let left = self.atomic(t, op);
                    is_applied = left.succeeded || !logged.succeeded || is(Broken::FailureConsumes);
                }
            }
            _ => {
                self.atomic(t, op);
            }
        }
        self.threads[t].pc += 1;
        Some(is_applied)
    }
}
