//! The programs.

use crate::program::{Op::*, Program, Src};

/// All programs of the library.
#[must_use]
pub fn all() -> Vec<Program> {
    [locks(), counts(), conditions(), waits(), threads(), calls(), turns()].into_iter().flatten().collect()
}

/// Mutexes and trylock.
fn locks() -> Vec<Program> {
    let critical = |k: u16| [Lock(0), Append(0, k), Write(3, Src::Var(0), 1), Unlock(0)];
    let mut tolerant = try_then_lock();
    tolerant.spurious_try = true;
    vec![
        tolerant,
        Program::new(
            "locked-writes",
            "the order of critical sections is visible outside",
            &[&critical(1), &critical(2)],
        ),
        Program::new(
            "two-mutexes",
            "per-lock orders in parallel, and nested",
            &[
                &[Lock(0), Append(0, 1), Lock(1), Append(1, 1), Unlock(1), Unlock(0)],
                &[Lock(1), Append(1, 2), Unlock(1), Lock(0), Append(0, 2), Unlock(0)],
                &[Lock(0), Append(0, 3), Unlock(0)],
            ],
        ),
        Program::new(
            "trylock",
            "a success does not say that the last holder's unlock has happened in the standby",
            &[
                &[Lock(0), Append(0, 1), Unlock(0)],
                &[Try(0, 0), IfReg(0, 0, 4), Append(0, 2), Unlock(0), Write(3, Src::Reg(0), 1)],
            ],
        ),
    ]
}

/// A failed try tells that somebody holds the lock; the holder's LOCK may die unpublished, and another thread may be
/// first afterwards.
#[must_use]
pub fn try_then_lock() -> Program {
    Program::new(
        "try-then-lock",
        "after a failover a failed try may turn out to have failed for no reason",
        &[
            &[Lock(0), Append(0, 1), Unlock(0)],
            &[Try(0, 0), IfReg(0, 1, 3), Lock(0), Append(0, 2), Unlock(0), Write(3, Src::Reg(0), 1)],
        ],
    )
}

/// Semaphores and rwlocks on one hashed clock: gaps.
fn counts() -> Vec<Program> {
    vec![
        Program::new(
            "hand-off",
            "a semaphore carries a variable, another one brings it back",
            &[&[Append(0, 1), Post(0), Wait(1), Write(3, Src::Var(0), 1)], &[Wait(0), Append(0, 2), Post(1)]],
        ),
        Program::new(
            "shared-clock",
            "two semaphores on one clock: gaps in the middle, lower tickets behind other events",
            &[
                &[Lock(0), Append(0, 1), Unlock(0), Post(0)],
                &[Lock(0), Append(0, 2), Unlock(0), Wait(0), Lock(0), Append(0, 3), Unlock(0)],
                &[Post(1), TryWait(1, 0), Post(1)],
            ],
        ),
        Program::new(
            "semaphore-as-lock",
            "an order that only hashed tickets keep",
            &[
                &[Wait(0), Append(0, 1), Post(0)],
                &[Wait(0), Append(0, 2), Write(3, Src::Var(0), 1), Post(0)],
                &[Wait(0), Append(0, 3), Post(0)],
            ],
        )
        .with_sems([1, 0]),
        Program::new(
            "rwlock",
            "readers together, writers alone",
            &[
                &[Wr(0), Append(0, 1), RwUnlock(0)],
                &[Rd(0), Write(3, Src::Var(0), 1), RwUnlock(0)],
                &[Wr(0), Append(0, 2), RwUnlock(0)],
            ],
        ),
    ]
}

/// Conditions.
fn conditions() -> Vec<Program> {
    let consumer = [Lock(0), IfVar(0, 1, 4), CondWait(0, 0), Goto(1), Dec(0), Append(1, 2), Unlock(0)];
    let condition = Program::new(
        "condition",
        "a signal that is in no log",
        &[&consumer, &[Lock(0), Inc(0), Append(1, 1), Unlock(0), Signal(0)]],
    );
    let mut shared = condition.clone();
    (shared.name, shared.why) = ("shared-condition", "no queue tells who waits: a promotion ends all waits");
    shared.shared_conds = true;
    // Says how many are asleep, and takes its return for a token: there must be one.
    let exact = |k: u16| {
        [
            Lock(0),
            Inc(0),
            Signal(1),
            CondWait(0, 0),
            IfVar(1, 0, 8),
            Dec(1),
            Append(2, k),
            Goto(9),
            Append(2, 3),
            Signal(1),
            Unlock(0),
        ]
    };
    vec![
        condition,
        shared,
        Program::new(
            "exact-wakes",
            "every return is taken for a token: nobody may be woken for nothing, nor forgotten",
            &[
                &exact(1),
                &exact(2),
                &[
                    Lock(0),
                    IfVar(0, 2, 4),
                    CondWait(1, 0),
                    Goto(1),
                    Inc(1),
                    Signal(0),
                    IfVar(1, 0, 9),
                    CondWait(1, 0),
                    Goto(6),
                    Inc(1),
                    Signal(0),
                    Unlock(0),
                ],
            ],
        ),
        Program::new(
            "signal-passed-on",
            "a waiter whose deadline has passed was woken in the standby, the next one in the primary",
            &[
                &[
                    Lock(0),
                    IfVar(0, 1, 5),
                    TimedWait(0, 0, 0),
                    IfReg(0, 1, 6),
                    Goto(1),
                    Signal(0),
                    Append(1, 1),
                    Unlock(0),
                ],
                &[Lock(0), IfVar(0, 1, 4), CondWait(0, 0), Goto(1), Append(1, 2), Unlock(0)],
                &[Lock(0), Set(0, 1), Signal(0), Unlock(0)],
            ],
        ),
        Program::new(
            "two-waiters",
            "a broadcast, and each waiter takes one token",
            &[
                &[Lock(0), IfVar(0, 0, 4), Dec(0), Goto(6), CondWait(0, 0), Goto(1), Append(1, 1), Unlock(0)],
                &[Lock(0), IfVar(0, 0, 4), Dec(0), Goto(6), CondWait(0, 0), Goto(1), Append(1, 2), Unlock(0)],
                &[Lock(0), Inc(0), Inc(0), Broadcast(0), Unlock(0)],
            ],
        ),
        Program::new(
            "timed-wait",
            "the deadline and the signal race",
            &[
                &[
                    Lock(0),
                    IfVar(0, 1, 5),
                    TimedWait(0, 0, 0),
                    IfReg(0, 1, 5),
                    Goto(1),
                    Append(1, 2),
                    Unlock(0),
                    Write(3, Src::Reg(0), 1),
                ],
                &[Lock(0), Set(0, 1), Append(1, 1), Signal(0), Unlock(0)],
            ],
        ),
    ]
}

/// Programs whose returns from a wait are counted, and one is too many after a failover: the standby gives a signal to
/// the first that waits in its queue, and that is not always the one that the primary gave it to.
#[must_use]
pub fn surplus_wakes() -> [Program; 3] {
    let timed = [Lock(0), TimedWait(0, 0, 0), Unlock(0)];
    let signal = [Lock(0), Signal(0), Set(0, 1), Unlock(0)];
    // Waits only if variable 0 is set, and counts its return in variable 1.
    let later = [Lock(0), IfVar(0, 0, 5), TimedWait(0, 0, 0), IfReg(0, 1, 5), Inc(1), Unlock(0)];
    [
        Program::new(
            "silent-timeout",
            "the first waiter's deadline has passed and its event is not there: both waiters get the one signal",
            &[&timed, &timed, &signal],
        ),
        Program::new(
            "passed-to-the-next",
            "the waiter that the signal is passed on to came after the signal",
            &[&timed, &later, &signal],
        ),
        Program::new(
            "signalled-again",
            "sent without the mutex, used by a logged return, and sent again by the promoted copy",
            &[&[Lock(0), TimedWait(0, 0, 0), IfReg(0, 1, 4), Set(0, 1), Unlock(0)], &later, &[Signal(0)]],
        ),
    ]
}

/// Barriers, once.
fn waits() -> Vec<Program> {
    vec![
        Program::new(
            "barrier",
            "two rounds, one serial thread each",
            &[
                &[Lock(0), Append(0, 1), Unlock(0), Barrier(2, 0), Write(3, Src::Reg(0), 1), Barrier(2, 1)],
                &[Lock(0), Append(0, 2), Unlock(0), Barrier(2, 0), Barrier(2, 1)],
            ],
        ),
        Program::new(
            "once-twice",
            "two once-objects on one clock: whose is the RUN at the head?",
            &[
                &[
                    OnceEnter(0, 4),
                    Append(0, 1),
                    Append(1, 1),
                    OnceLeave(0),
                    Lock(0),
                    Append(2, 1),
                    Unlock(0),
                ],
                &[
                    OnceEnter(0, 4),
                    Append(0, 2),
                    Append(1, 1),
                    OnceLeave(0),
                    OnceEnter(1, 7),
                    Append(1, 2),
                    OnceLeave(1),
                    Lock(0),
                    Append(2, 2),
                    Unlock(0),
                ],
            ],
        ),
        Program::new(
            "once-acts",
            "an initialiser with events and an effect outside",
            &[
                &[
                    OnceEnter(0, 6),
                    Lock(0),
                    Append(0, 1),
                    Unlock(0),
                    Write(3, Src::Const(7), 1),
                    OnceLeave(0),
                    Lock(0),
                    Append(0, 3),
                    Unlock(0),
                ],
                &[
                    OnceEnter(0, 6),
                    Lock(0),
                    Append(0, 2),
                    Unlock(0),
                    Write(3, Src::Const(8), 1),
                    OnceLeave(0),
                ],
            ],
        ),
        Program::new(
            "one-clock",
            "rwlock, semaphore and once on one clock",
            &[
                &[Wr(0), Append(0, 1), RwUnlock(0), Post(0), OnceEnter(0, 7), Append(1, 1), OnceLeave(0)],
                &[
                    OnceEnter(0, 3),
                    Append(1, 2),
                    OnceLeave(0),
                    Wait(0),
                    Rd(0),
                    Write(3, Src::Var(0), 1),
                    RwUnlock(0),
                ],
            ],
        ),
        Program::new(
            "once-aborted",
            "an initialiser that fails the first two times: who tried in which order?",
            &[
                &[OnceEnter(0, 7), Append(0, 1), Inc(1), IfVar(1, 3, 6), OnceAbort(0), Goto(7), OnceLeave(0)],
                &[OnceEnter(0, 7), Append(0, 2), Inc(1), IfVar(1, 3, 6), OnceAbort(0), Goto(7), OnceLeave(0)],
                &[OnceEnter(0, 7), Append(0, 3), Inc(1), IfVar(1, 3, 6), OnceAbort(0), Goto(7), OnceLeave(0)],
            ],
        ),
    ]
}

/// Threads.
fn threads() -> Vec<Program> {
    vec![
        Program::new(
            "create",
            "the child is ahead of its parent's return, and others have learned from it",
            &[
                &[Create(2, 2, 0), Join(2), Write(3, Src::Var(0), 1)],
                &[Wait(0), Append(0, 1), Post(1)],
                &[Append(0, 2), Post(0), Wait(1), Append(0, 3)],
            ],
        )
        .start_only(2),
        Program {
            detached: true,
            ..Program::new(
                "detached",
                "a slot is used again without a join",
                &[
                    &[Create(1, 1, 0), Wait(0), Create(1, 1, 1), Wait(0), Write(3, Src::Var(0), 1)],
                    &[Append(0, 1), Post(0), Lock(0), Append(1, 1), Unlock(0)],
                ],
            )
            .start_only(1)
        },
        Program::new(
            "joined-late",
            "a slot is used again once its thread is joined, by another one than its next maker",
            &[
                &[Create(2, 2, 0), Post(0), Create(2, 2, 1), Join(2)],
                &[Wait(0), Join(2), Post(1)],
                &[Wait(1), Append(0, 1)],
            ],
        )
        .with_sems([0, 1])
        .start_only(2),
        {
            let mut program = Program::new(
                "slot-reuse",
                "a second thread in the same slot, and creates that fail",
                &[
                    &[
                        Create(1, 1, 0),
                        IfReg(0, 0, 3),
                        Join(1),
                        Create(1, 1, 1),
                        IfReg(1, 0, 6),
                        Join(1),
                        Lock(0),
                        Append(0, 1),
                        Unlock(0),
                    ],
                    &[Lock(0), Append(0, 2), Unlock(0)],
                ],
            )
            .start_only(1);
            program.creates_fail = true;
            program
        },
    ]
}

/// Kernel calls.
fn calls() -> Vec<Program> {
    vec![
        Program::new(
            "long-write",
            "a write of two bytes may be cut in the middle",
            &[&[Write(3, Src::Const(1), 2), Write(3, Src::Const(5), 1)], &[Lock(0), Append(0, 1), Unlock(0)]],
        ),
        Program::new(
            "signalled-write",
            "a condition orders two writes on one stream; the second one passes the number on",
            &[
                &[
                    Lock(0),
                    IfVar(0, 1, 4),
                    CondWait(0, 0),
                    Goto(1),
                    Unlock(0),
                    Write(3, Src::Const(5), 2),
                    Dup(3, 0),
                ],
                &[Write(3, Src::Const(1), 2), Lock(0), Set(0, 1), Signal(0), Unlock(0), Dup(3, 0), Close(0)],
            ],
        ),
        Program::new(
            "echo",
            "consumed input is neither lost nor read twice",
            &[
                &[Read(3, 0), Write(3, Src::Reg(0), 1), Read(3, 0), Write(3, Src::Reg(0), 1)],
                &[Open(1, 0), Write(0, Src::Const(9), 1), Close(0)],
            ],
        ),
        Program::new(
            "close-and-accept",
            "a close in doubt, and an accept that has taken its number",
            &[
                &[Open(1, 0), Write(0, Src::Const(1), 1), Close(0)],
                &[Open(2, 0), Write(0, Src::Const(2), 1), Close(0)],
            ],
        ),
        Program::new(
            "close-and-dup",
            "the number is taken again by a duplicate of the same object",
            &[&[Dup(3, 0), Close(0)], &[Dup(3, 0), Write(0, Src::Const(2), 1)]],
        ),
        Program::new(
            "accept-herd",
            "three accepts in doubt, two of them on one listener",
            &[
                &[Open(1, 0), Write(0, Src::Const(1), 1)],
                &[Open(1, 0), Write(0, Src::Const(2), 1)],
                &[Open(2, 0)],
            ],
        ),
        Program::new(
            "passed-on",
            "one thread accepts, another one serves and closes",
            &[
                &[Open(1, 0), Store(0, 0), Post(0), Open(1, 1), Write(1, Src::Const(1), 1)],
                &[Wait(0), Load(0, 0), Write(0, Src::Const(2), 1), Close(0)],
            ],
        ),
        Program::new(
            "dup-and-accept",
            "an accept and a duplicate of a connection in doubt: both would explain the new number",
            &[
                &[Open(1, 0), Store(0, 0), Post(0), Open(1, 1), Write(1, Src::Const(1), 1)],
                &[Wait(0), Load(0, 0), Dup(0, 1), Write(1, Src::Const(2), 1), Close(1)],
            ],
        ),
        Program::new(
            "dup-to-and-accept",
            "the same with a number that the duplicate names: no call looks for one that it made",
            &[
                &[Open(1, 0), Store(0, 0), Post(0), Open(1, 1), Write(1, Src::Const(1), 1)],
                &[Wait(0), Load(0, 0), DupTo(0, 4, 1), Write(1, Src::Const(2), 1), Close(1)],
            ],
        ),
        Program::new(
            "made",
            "what has no name is closed and made again, and gets its number again",
            &[
                &[Make(0), Write(3, Src::Reg(0), 1), Make(1), Write(3, Src::Reg(1), 1), Close(0)],
                &[Open(1, 0), Write(0, Src::Const(1), 1), Close(0)],
            ],
        ),
        Program::new(
            "made-by-each",
            "what has no name is closed and made again by each copy that takes over, and nobody sees how often",
            &[&[Make(0), Close(0), Make(0), Close(0), Open(1, 0), Write(0, Src::Const(1), 1), Close(0)]],
        ),
        Program {
            stranger: true,
            ..Program::new(
                "stranger",
                "somebody who shares the table has opened what no call has made",
                &[&[Open(1, 0), Write(0, Src::Const(1), 1), Close(0)]],
            )
        },
        {
            let mut program = Program::new(
                "unlocked-writers",
                "two writers on one stream: some kills leave two readings, and are refused",
                &[&[Write(3, Src::Const(1), 1)], &[Write(3, Src::Const(2), 1)]],
            );
            program.may_refuse = true;
            program
        },
        {
            let mut program = Program::new(
                "unlocked-readers",
                "two readers on one stream: likewise",
                &[&[Read(3, 0)], &[Read(3, 0)]],
            );
            program.may_refuse = true;
            program
        },
        {
            let mut program = Program::new(
                "unlocked-senders",
                "the same on a socket of datagrams: the kernel notes in each slot how far its call came",
                &[
                    &[Write(3, Src::Const(1), 1), Write(3, Src::Const(3), 1)],
                    &[Write(3, Src::Const(5), 1), Write(3, Src::Const(7), 1)],
                ],
            );
            program.streams = us_world::Kind::Socket;
            program
        },
        {
            let mut program = Program::new(
                "unlocked-receivers",
                "two readers of what keeps no count: each slot shows what has come",
                &[&[Read(3, 0), Read(3, 1)], &[Read(3, 0), Read(3, 1)]],
            );
            program.streams = us_world::Kind::Other;
            program
        },
    ]
}

/// Threads that take turns: what they do to each other without any lock is repeated.
fn turns() -> Vec<Program> {
    let programs = [
        Program::new(
            "turns-race",
            "two threads change a variable without a lock, and show the outside what they have seen",
            &[
                &[
                    Append(0, 1),
                    Lock(0),
                    Unlock(0),
                    Append(0, 2),
                    Load(0, 0),
                    Write(3, Src::Reg(0), 1),
                    Append(0, 1),
                ],
                &[Append(0, 3), Load(0, 0), Write(3, Src::Reg(0), 1), Append(0, 3)],
            ],
        ),
        Program::new(
            "turns-lock",
            "a lock is held over a call that waits: who wants it yields",
            &[
                &[Lock(0), Write(3, Src::Const(1), 1), Append(0, 1), Unlock(0), Append(1, 1)],
                &[
                    Append(1, 2),
                    Lock(0),
                    Append(0, 2),
                    Unlock(0),
                    Append(1, 3),
                    Load(0, 1),
                    Write(3, Src::Reg(0), 1),
                ],
            ],
        ),
        Program::new(
            "turns-passed-over",
            "a thread waits where it does not give its turn back, for one who needs it",
            &[
                &[Barrier(2, 0), Lock(0), Append(0, 1), Unlock(0)],
                &[Lock(0), Append(0, 2), Unlock(0), Barrier(2, 1), Write(3, Src::Reg(1), 1)],
            ],
        ),
    ];
    // Sockets whose writers may be in doubt together.
    programs.map(|program| Program { turns: true, streams: us_world::Kind::Socket, ..program }).into()
}
