//! What every copy does alike: local operations and effects on a side's objects and on the kernel.

use us_order::create::Fate;

use crate::program::{Op, Program, Src};
use crate::queue::Queue;
use crate::world::*;

/// The state before the first step of a program. Descriptor 0 is open in every register 3.
#[must_use]
pub fn initial(program: &Program) -> World {
    let mut side = Side {
        threads: [Thread::default(); SLOTS],
        clocks: [0; CLOCKS],
        mutex: [0; 3],
        waiters: [Queue::default(); 2],
        sems: program.sems,
        readers: 0,
        writer: 0,
        arrived: 0,
        round: 0,
        serial: [false; 2],
        once: [OnceState::Idle; 2],
        vars: [0; 4],
        generation: [0; SLOTS],
        joined: [false; SLOTS],
        shadow: [Shadow::default(); FDS],
        written: [0; OBJECTS],
        read: [0; OBJECTS],
        turns: Turns::default(),
    };
    side.shadow[0] = Shadow { object: 1, generation: 1 };
    let mut kernel = Kernel {
        fds: [0; FDS],
        origin: [0; OBJECTS],
        out: [[0; OUT]; OBJECTS],
        out_len: [0; OBJECTS],
        consumed: [0; OBJECTS],
        made: 1,
        stranger: Stranger::Waits,
    };
    kernel.fds[0] = 1;
    for (t, &entry) in program.entries.iter().enumerate() {
        spawn(program, &mut side, t, entry, if program.turns { at::TURN } else { 0 });
    }
    World {
        primary: side,
        standby: side,
        rings: empty_rings(),
        head: [0; SLOTS],
        kernel,
        spare: side,
        spare_head: [0; SLOTS],
        scan: None,
        copies: 0,
        phase: Phase::Replay,
        refused: false,
        bad: None,
    }
}

/// What has become of a slot's last thread.
#[must_use]
pub fn fate_of(program: &Program, side: &Side, slot: usize) -> Fate {
    match side.generation[slot] {
        0 => Fate::Joined,
        _ if side.joined[slot] => Fate::Joined,
        _ if program.detached => Fate::Detached,
        _ => Fate::Joinable,
    }
}

/// Whether a copy that acts may give a slot to a new thread.
#[must_use]
pub fn is_claimable(program: &Program, side: &Side, slot: usize) -> bool {
    match fate_of(program, side, slot) {
        Fate::Joined => true,
        Fate::Detached => side.threads[slot].status != Status::Running,
        Fate::Joinable => false,
    }
}

/// Joins a slot's thread, if that has ended.
pub fn join(side: &mut Side, slot: u8) -> bool {
    let slot = usize::from(slot);
    let has_ended = side.threads[slot].status == Status::Ended;
    side.joined[slot] |= has_ended;
    has_ended
}

/// Rings without an event.
#[must_use]
pub fn empty_rings() -> Rings {
    Rings {
        events: [[NO_EVENT; RING]; SLOTS],
        tail: [0; SLOTS],
        scratch: [0; SLOTS],
        noted: [0; SLOTS],
        entered: [false; SLOTS],
    }
}

/// The phase of a primary's new thread that has not yet published its START.
pub const START_PENDING: u8 = 20;

/// Makes a slot's thread exist; `phase` is where it begins.
pub fn spawn(program: &Program, side: &mut Side, t: usize, entry: u8, phase: u8) {
    side.threads[t] =
        Thread { status: Status::Running, pc: entry, phase, next_pc: entry, ..Thread::default() };
    side.generation[t] += 1;
    side.joined[t] = false;
    if phase == 0 {
        go(program, side, t, entry);
    }
}

/// Where a thread is that needs the turn before it runs guest code: alike in every copy.
pub mod at {
    /// It takes the turn, and goes on at `next_pc`.
    pub const TURN: u8 = 40;
}

/// Its order, by the row of the call that stands for it in the table of system calls.
#[must_use]
pub fn row_of(op: Op) -> &'static us_calls::Row {
    let nr = match op {
        Op::Read(..) => 0,
        Op::Write(..) => 1,
        Op::Close(_) => 3,
        Op::Dup(..) => 32,
        Op::DupTo(..) => 33,
        Op::Open(..) => 43,  // accept
        Op::Make(..) => 290, // eventfd2
        _ => unreachable!("not a kernel call: {op:?}"),
    };
    us_calls::row(nr).expect("a row of the table")
}

/// Moves a thread to `pc` and through the local operations there.
pub fn go(program: &Program, side: &mut Side, t: usize, pc: u8) {
    let Side { threads, vars, .. } = side;
    let thread = &mut threads[t];
    (thread.pc, thread.phase) = (pc, 0);
    (thread.ticket, thread.result, thread.data, thread.then) = (0, 0, 0, (0, 0));
    (thread.next_pc, thread.next_phase) = (0, 0);
    (thread.moved, thread.from) = (0, 0);
    loop {
        let mut next = thread.pc + 1;
        match program.code[usize::from(thread.pc)] {
            Op::Append(v, k) => vars[usize::from(v)] = vars[usize::from(v)].wrapping_mul(4).wrapping_add(k),
            Op::Set(v, k) => vars[usize::from(v)] = k,
            Op::Inc(v) => vars[usize::from(v)] += 1,
            Op::Dec(v) => vars[usize::from(v)] -= 1,
            Op::Load(r, v) => {
                let [object, number] = vars[usize::from(v)].to_be_bytes();
                (thread.regs[usize::from(r)], thread.objects[usize::from(r)]) = (number, object);
            }
            Op::Store(v, r) => {
                let bytes = [thread.objects[usize::from(r)], thread.regs[usize::from(r)]];
                vars[usize::from(v)] = u16::from_be_bytes(bytes);
            }
            Op::IfVar(v, x, to) if vars[usize::from(v)] == x => next = to,
            Op::IfReg(r, x, to) if thread.regs[usize::from(r)] == x => next = to,
            Op::IfVar(..) | Op::IfReg(..) => {}
            Op::Goto(to) => next = to,
            _ => return,
        }
        thread.pc = next;
    }
}

/// Gives an operation's result to its register and moves on.
pub fn finish(program: &Program, side: &mut Side, t: usize, register: Option<u8>, result: u8) {
    let thread = &mut side.threads[t];
    if let Some(r) = register {
        thread.regs[usize::from(r)] = result;
        thread.objects[usize::from(r)] = 0;
    }
    let pc = thread.pc + 1;
    go(program, side, t, pc);
}

/// The register that an operation's result goes to.
#[must_use]
pub fn register_of(op: Op) -> Option<u8> {
    match op {
        Op::Try(_, r)
        | Op::TimedWait(_, _, r)
        | Op::TryWait(_, r)
        | Op::Barrier(_, r)
        | Op::Create(_, _, r)
        | Op::Open(_, r)
        | Op::Dup(_, r)
        | Op::DupTo(_, _, r)
        | Op::Make(r)
        | Op::Read(_, r) => Some(r),
        _ => None,
    }
}

/// True for the calls that promotion must settle.
#[must_use]
pub fn is_kernel_call(op: Op) -> bool {
    makes_descriptor(op) || matches!(op, Op::Close(_) | Op::Write(..) | Op::Read(..))
}

/// True for those that make a descriptor.
#[must_use]
pub fn makes_descriptor(op: Op) -> bool {
    matches!(op, Op::Open(..) | Op::Dup(..) | Op::DupTo(..) | Op::Make(_))
}

/// The clock of an ordered operation.
#[must_use]
pub fn clock_of(op: Op) -> u8 {
    match op {
        Op::Lock(m) | Op::Try(m, _) | Op::CondWait(_, m) | Op::TimedWait(_, m, _) => m,
        _ if is_kernel_call(op) => KERNEL,
        _ => HASHED,
    }
}

/// Tries the effect of an acquisition on a side's object; false if it must wait.
pub fn acquire(side: &mut Side, t: usize, op: Op) -> bool {
    let slot = u8::try_from(t).expect("few slots") + 1;
    match op {
        Op::Lock(m) | Op::Try(m, _) | Op::CondWait(_, m) | Op::TimedWait(_, m, _) => {
            let owner = &mut side.mutex[usize::from(m)];
            let free = *owner == 0;
            if free {
                *owner = slot;
            }
            free
        }
        Op::Wait(s) | Op::TryWait(s, _) => {
            let value = &mut side.sems[usize::from(s)];
            let free = *value > 0;
            *value = value.saturating_sub(1);
            free
        }
        Op::Rd(_) => {
            let free = side.writer == 0;
            if free {
                side.readers |= 1 << t;
            }
            free
        }
        Op::Wr(_) => {
            let free = side.writer == 0 && side.readers == 0;
            if free {
                side.writer = slot;
            }
            free
        }
        _ => unreachable!("not an acquisition: {op:?}"),
    }
}

/// Whether an acquisition would find its object free.
#[must_use]
pub fn is_free(side: &Side, t: usize, op: Op) -> bool {
    {
        let mut tried = *side;
        acquire(&mut tried, t, op)
    }
}

/// Arrives at the barrier; the last of `n` completes the round.
pub fn arrive(side: &mut Side, t: usize, n: u8) {
    side.threads[t].ticket = side.round;
    side.arrived += 1;
    if side.arrived == n {
        side.arrived = 0;
        side.round += 1;
        side.serial[usize::from(side.round & 1)] = false;
        side.threads[t].data = 1;
    }
}

/// If the thread's round is complete: where its serial mark is.
#[must_use]
pub fn round_complete(side: &Side, t: usize) -> Option<usize> {
    let mine = side.threads[t].ticket;
    (side.round != mine).then_some(usize::from((mine + 1) & 1))
}

/// Releases a mutex or rwlock.
pub fn release(side: &mut Side, t: usize, op: Op) {
    match op {
        Op::Unlock(m) | Op::CondWait(_, m) | Op::TimedWait(_, m, _) => side.mutex[usize::from(m)] = 0,
        Op::RwUnlock(_) if side.readers & (1 << t) != 0 => side.readers &= !(1 << t),
        Op::RwUnlock(_) => side.writer = 0,
        _ => unreachable!("not a release: {op:?}"),
    }
}

/// Leaves or aborts an initialiser.
pub fn end_once(side: &mut Side, op: Op) {
    match op {
        Op::OnceLeave(o) => side.once[usize::from(o)] = OnceState::Done,
        Op::OnceAbort(o) => side.once[usize::from(o)] = OnceState::Idle,
        _ => unreachable!("not the end of an initialiser: {op:?}"),
    }
}

/// The register that names an operation's descriptor.
#[must_use]
pub fn descriptor_of(op: Op) -> Option<u8> {
    match op {
        Op::Dup(r, _) | Op::DupTo(r, ..) | Op::Close(r) | Op::Write(r, _, _) | Op::Read(r, _) => Some(r),
        _ => None,
    }
}

/// The bytes of a write.
#[must_use]
pub fn byte_of(side: &Side, t: usize, src: Src) -> u8 {
    match src {
        Src::Const(x) => x,
        Src::Var(v) => side.vars[usize::from(v)].to_be_bytes()[1],
        Src::Reg(r) => side.threads[t].regs[usize::from(r)],
    }
}

/// Executes a kernel call (of a write, its byte number `at`); returns result and identity or data.
///
/// The number must mean what the program believes it means: every program of the library keeps its own
/// descriptors apart, so anything else was done by a wrong promotion.
pub fn kernel_call(
    kernel: &mut Kernel,
    side: &Side,
    t: usize,
    op: Op,
    at: u8,
) -> Result<(u8, u8), Violation> {
    let thread = &side.threads[t];
    let (number, object) = match descriptor_of(op) {
        Some(r) => (usize::from(thread.regs[usize::from(r)]), thread.objects[usize::from(r)]),
        None if matches!(op, Op::Make(_)) => (0, kernel.next_nameless()),
        None => (0, kernel.made),
    };
    if descriptor_of(op).is_some() && kernel.fds.get(number).copied() != Some(object + 1) {
        return Err(Violation::WrongDescriptor);
    }
    let index = usize::from(object);
    if matches!(op, Op::Open(..) | Op::Make(_)) && index == OBJECTS {
        // Only a program that opens more than it does natively comes to that.
        return Err(Violation::NotNative);
    }
    Ok(match op {
        Op::Open(origin, _) => {
            kernel.made += 1;
            kernel.origin[index] = origin;
            (install(kernel, object), object)
        }
        Op::Make(_) => {
            kernel.made = kernel.made.max(object + 1);
            kernel.origin[index] = ANONYMOUS;
            (install(kernel, object), object)
        }
        Op::Dup(..) => (install(kernel, object), object),
        Op::DupTo(_, to, _) => {
            kernel.fds[usize::from(to)] = object + 1;
            (to, object)
        }
        Op::Close(_) => {
            kernel.fds[number] = 0;
            (0, 0)
        }
        Op::Write(_, src, _) => {
            let len = &mut kernel.out_len[index];
            kernel.out[index][usize::from(*len)] = byte_of(side, t, src) + at;
            *len += 1;
            (at + 1, object)
        }
        Op::Read(..) => {
            kernel.consumed[index] += 1;
            (kernel.consumed[index], object)
        }
        _ => unreachable!("not a kernel call: {op:?}"),
    })
}

/// Gives an object the lowest number that is free.
pub fn install(kernel: &mut Kernel, object: u8) -> u8 {
    let number = kernel.fds.iter().position(|&f| f == 0).expect("a free number");
    kernel.fds[number] = object + 1;
    u8::try_from(number).expect("few numbers")
}

/// Gives a kernel call's result to the thread.
pub fn set_result(side: &mut Side, t: usize, op: Op, result: u8, data: u8) {
    if let Some(r) = register_of(op) {
        side.threads[t].regs[usize::from(r)] = result;
        side.threads[t].objects[usize::from(r)] = if matches!(op, Op::Read(..)) { 0 } else { data };
    }
}

/// Gives a kernel call's result to the thread and moves on.
pub fn finish_call(program: &Program, side: &mut Side, t: usize, op: Op, result: u8, data: u8) {
    set_result(side, t, op, result, data);
    let pc = side.threads[t].pc + 1;
    go(program, side, t, pc);
}

/// What ENTER tells about a call's inputs, so that the standby can compare.
#[must_use]
pub fn digest(op: Op, side: &Side, t: usize) -> u8 {
    match op {
        Op::Write(_, src, _) => byte_of(side, t, src),
        _ => 0,
    }
}
