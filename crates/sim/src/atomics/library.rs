//! The programs.

use super::Program;
use super::world::Op::{self, *};

/// A program of threads with this code.
fn program(name: &'static str, why: &'static str, memory: &[u8], threads: &[&[Op]]) -> Program {
    let threads = threads.iter().map(|thread| thread.to_vec()).collect();
    Program { name, why, threads, memory: memory.to_vec() }
}

/// All whose order the rules keep.
#[must_use]
pub fn all() -> Vec<Program> {
    // Places: 0 is the word, 1 what it guards.
    let counts: &[Op] = &[Add(0, 0, 1), Put(0), Add(0, 0, 1), Put(0)];
    let retries: &[Op] = &[Load(0, 0), Sum(1, 0, 3), Compare(0, 0, 1, 2), If(2, 0, 1), Put(0)];
    let spins: &[Op] = &[
        Imm(0, 1),
        Exchange(0, 0),
        If(0, 1, 0),
        Load(1, 1),
        Sum(1, 1, 1),
        Store(1, 1),
        Imm(0, 0),
        Store(0, 0),
        Put(1),
    ];
    let tries: &[Op] =
        &[Imm(0, 0), Imm(1, 1), CompareConstant(0, 0, 1, 2), If(2, 0, 6), Imm(3, 0), Store(0, 3), Put(2)];
    let gives_back: &[Op] = &[Add(0, 0, 255), If(0, 1, 3), Goto(5), Imm(1, 9), Store(1, 1), Put(0)];
    // The head has the node's place and four times a count; a node has the next one's.
    let pops: &[Op] =
        &[Load(0, 0), If(0, 0, 6), LoadAt(1, 0), Compare(0, 0, 1, 2), If(2, 0, 1), Goto(6), Put(0)];
    vec![
        program("atomics-counter", "the order of additions", &[0], &[counts, counts]),
        program("atomics-retry", "a retry loop around a comparison", &[1], &[retries, retries, retries]),
        program("atomics-spin", "a lock given back by a plain store", &[0, 0], &[spins, spins]),
        program("atomics-try", "a lock that is only tried", &[0], &[tries, tries, tries]),
        program("atomics-references", "the last one frees", &[3, 0], &[gives_back, gives_back, gives_back]),
        program("atomics-stack", "a stack from which threads pop", &[3, 0, 1, 2], &[pops, pops, pops]),
    ]
}

/// A sequence lock: its readers' plain loads are in no order, and no rule helps.
#[must_use]
pub fn seqlock() -> Program {
    let writes: &[Op] = &[Add(0, 0, 1), Imm(1, 7), Store(1, 1), Add(0, 0, 1)];
    let reads: &[Op] = &[Load(0, 0), IfOdd(0, 0), Load(1, 1), Load(2, 0), IfNot(0, 2, 0), Put(1)];
    program("atomics-seqlock", "readers of a sequence lock", &[0, 0], &[writes, reads])
}
