//! Random walks through programs that are too large to exhaust.
//!
//! One seed gives one program and one schedule; a failure names the seed, and the same seed repeats it.

use crate::explore::{Context, Copies, Label, Successors};
use crate::local::initial;
use crate::mutation::Mutation;
use crate::program::{Op, Program, Src};
use crate::world::*;
use crate::{primary, promote, standby};

/// A small generator of random numbers (xorshift), so that a seed means the same everywhere.
#[derive(Clone, Debug)]
pub struct Random(u64);

impl Random {
    /// Starts from a seed; neighbouring seeds give unrelated sequences.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        let mut random = Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
        (0..8).for_each(|_| {
            random.below(2);
        });
        random
    }

    /// A number below `n`, which is not 0.
    pub fn below(&mut self, n: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        usize::try_from(self.0 >> 33).expect("31 bits") % n
    }
}

/// A program of four threads, made of blocks that leave the same traces in whatever order they run.
#[must_use]
pub fn random_program(random: &mut Random) -> Program {
    let threads: Vec<Vec<Op>> = (0..4u8)
        .map(|t| {
            let mut code = Vec::new();
            let mut written = 0;
            for part in 0..2 {
                for _ in 0..3 {
                    block(random, t, &mut written, &mut code);
                }
                if part == 0 {
                    code.push(Op::Barrier(4, 2));
                }
            }
            code.extend([Op::Open(t, 0), Op::Write(0, Src::Const(t), 2), Op::Close(0)]);
            code
        })
        .collect();
    let threads: Vec<&[Op]> = threads.iter().map(Vec::as_slice).collect();
    Program::new("random", "what nobody thought of", &threads).with_sems([1, 0])
}

fn block(random: &mut Random, t: u8, written: &mut u8, code: &mut Vec<Op>) {
    let here = u8::try_from(code.len()).expect("small program");
    match random.below(8) {
        0 => code.extend([Op::Lock(0), Op::Inc(0), Op::Unlock(0)]),
        1 => code.extend([Op::Lock(1), Op::Lock(0), Op::Inc(0), Op::Inc(1), Op::Unlock(0), Op::Unlock(1)]),
        2 => code.extend([Op::Wait(0), Op::Inc(2), Op::Post(0)]),
        3 => code.extend([Op::Wr(0), Op::Inc(3), Op::RwUnlock(0)]),
        4 => code.extend([Op::Rd(0), Op::RwUnlock(0)]),
        // Taken or not, nothing else changes: register 1 is no part of the summary.
        5 => code.extend([Op::Try(1, 1), Op::IfReg(1, 0, here + 3), Op::Unlock(1)]),
        6 => {
            let once = u8::try_from(random.below(2)).expect("two");
            code.extend([
                Op::OnceEnter(once, here + 5),
                Op::Lock(1),
                Op::Inc(1),
                Op::Unlock(1),
                Op::OnceLeave(once),
            ]);
        }
        // One writer at a time: with several in doubt on one stream the failover may be refused.
        _ if *written < 2 => {
            *written += 1;
            code.extend([Op::Lock(2), Op::Write(3, Src::Const(10 * t + *written), 1), Op::Unlock(2)]);
        }
        _ => code.extend([Op::Lock(2), Op::Unlock(2)]),
    }
}

/// What every run of a random program leaves, whatever the order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Summary {
    vars: [u16; 4],
    serials: u32,
    shared_stream: Vec<u8>,
    own_streams: Vec<Vec<u8>>,
    open: Vec<u8>,
}

impl Summary {
    fn of(side: &Side, kernel: &Kernel) -> Self {
        let stream = |o: usize| kernel.out[o][..usize::from(kernel.out_len[o])].to_vec();
        let mut shared_stream = stream(0);
        shared_stream.sort_unstable();
        let mut own_streams: Vec<_> = (1..usize::from(kernel.made)).map(stream).collect();
        own_streams.sort_unstable();
        let serials = side.threads.iter().map(|t| u32::from(t.regs[2])).sum();
        Self { vars: side.vars, serials, shared_stream, own_streams, open: kernel.fds.to_vec() }
    }
}

/// Walks once: natively, or as primary and standby with a kill after `kill_after` steps.
///
/// # Errors
///
/// The violation, and the last steps before it.
pub fn walk(
    program: &Program,
    mutation: Option<Mutation>,
    random: &mut Random,
    kill_after: Option<usize>,
) -> Result<Summary, (Violation, Vec<String>)> {
    let cx = match kill_after {
        None => Context::native(program),
        Some(_) => Context::new(program, mutation, Copies::None),
    };
    let mut world = initial(program);
    let mut trace: Vec<Label> = Vec::new();
    let mut next = Successors::new();
    if kill_after.is_none() {
        world.phase = Phase::Live;
    }
    for step in 0.. {
        let fail = |violation, trace: &[Label]| {
            let last = trace.len().saturating_sub(60);
            Err((violation, trace[last..].iter().map(|l| format!("{l:?}")).collect()))
        };
        if let Some(bad) = world.bad {
            return fail(bad, &trace);
        }
        if world.refused {
            return fail(Violation::Refused, &trace);
        }
        if world.phase == Phase::Replay && kill_after == Some(step) {
            world.phase = Phase::Draining;
        }
        next.clear();
        if world.phase == Phase::Replay {
            (0..SLOTS).for_each(|t| primary::steps(&cx, &world, t, &mut next));
        }
        (0..SLOTS).for_each(|t| standby::steps(&cx, &world, t, &mut next));
        promote::steps(&cx, &world, &mut next);
        if next.is_empty() {
            if !world.standby.has_ended() {
                return fail(Violation::Deadlock, &trace);
            }
            if world.phase == Phase::Replay
                && Summary::of(&world.primary, &world.kernel) != Summary::of(&world.standby, &world.kernel)
            {
                return fail(Violation::ReplayDiffers, &trace);
            }
            break;
        }
        let (chosen, label) = next[random.below(next.len())];
        world = chosen;
        trace.push(label);
    }
    Ok(Summary::of(&world.standby, &world.kernel))
}
