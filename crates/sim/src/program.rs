//! The little programs that the explorer runs.

/// A byte that a program writes.
#[derive(Clone, Copy, Debug)]
pub enum Src {
    /// This byte.
    Const(u8),
    /// The low byte of a variable: makes memory visible to the outside.
    Var(u8),
    /// A register of the thread.
    Reg(u8),
}

/// One operation of a thread. `r` names a register of the thread, `v` a variable that all threads share.
///
/// Local operations run together with the step before them, which is sound for race-free programs only; every
/// program of the library guards its variables.
#[derive(Clone, Copy, Debug)]
pub enum Op {
    /// Acquire a mutex.
    Lock(u8),
    /// Release a mutex.
    Unlock(u8),
    /// Try to acquire mutex .0; r.1 = 1 if acquired, else 0.
    Try(u8, u8),
    /// Wait on condition .0 with mutex .1.
    CondWait(u8, u8),
    /// The same with a deadline, which may pass at any time; r.2 = 1 if it did.
    TimedWait(u8, u8, u8),
    /// Wake one waiter.
    Signal(u8),
    /// Wake all waiters.
    Broadcast(u8),
    /// Post a semaphore.
    Post(u8),
    /// Wait for a semaphore.
    Wait(u8),
    /// Try a semaphore; r.1 = 1 if it was taken.
    TryWait(u8, u8),
    /// Lock a rwlock for reading.
    Rd(u8),
    /// Lock a rwlock for writing.
    Wr(u8),
    /// Unlock a rwlock.
    RwUnlock(u8),
    /// Meet .0 threads; r.1 = 1 for the serial one.
    Barrier(u8, u8),
    /// Enter once-object .0: run what follows, or wait and jump to .1.
    OnceEnter(u8, u8),
    /// The initialiser has completed.
    OnceLeave(u8),
    /// The initialiser failed; the next thread runs it.
    OnceAbort(u8),
    /// Start slot .0 at .1; r.2 = 1 if it worked.
    Create(u8, u8, u8),
    /// Wait for the end of a slot's thread.
    Join(u8),
    /// Open (or accept from) origin .0; r.1 = the number.
    Open(u8, u8),
    /// Duplicate r.0; r.1 = the number.
    Dup(u8, u8),
    /// Duplicate r.0 to the number .1, which is free; r.2 = the number.
    DupTo(u8, u8, u8),
    /// Make something of the kernel's own without a name, as eventfd does; r.0 = the number.
    Make(u8),
    /// Close the number in r.0.
    Close(u8),
    /// Write .2 bytes, .1 and its successors, to the stream in r.0.
    Write(u8, Src, u8),
    /// Read one byte from the stream in r.0 to r.1.
    Read(u8, u8),
    /// Local: v.0 = 4 v.0 + .1, so that a variable tells the order of its writers.
    Append(u8, u16),
    /// Local: v.0 = .1.
    Set(u8, u16),
    /// Local: v.0 += 1.
    Inc(u8),
    /// Local: v.0 -= 1.
    Dec(u8),
    /// Local: r.0 = v.1 (with what a descriptor in it stands for).
    Load(u8, u8),
    /// Local: v.0 = r.1.
    Store(u8, u8),
    /// Local: jump to .2 if v.0 == .1.
    IfVar(u8, u16, u8),
    /// Local: jump to .2 if r.0 == .1.
    IfReg(u8, u8, u8),
    /// Local: jump.
    Goto(u8),
    /// The thread ends.
    End,
}

/// A program: code in one array, and where the first threads start.
#[derive(Clone, Debug)]
pub struct Program {
    /// Its name in reports.
    pub name: &'static str,
    /// What it is there to provoke.
    pub why: &'static str,
    /// All threads' code.
    pub code: Vec<Op>,
    /// Entry of the threads that exist from the beginning, slot 0 first.
    pub entries: Vec<u8>,
    /// Initial values of the semaphores.
    pub sems: [u8; 2],
    /// Creates may fail.
    pub creates_fail: bool,
    /// A try may fail though the object is free, as C11 and C++ allow. Counts for the native outcomes only.
    pub spurious_try: bool,
    /// Some kills cannot be settled, and the failover says so.
    pub may_refuse: bool,
    /// The conditions are shared between processes: no queue of waiters is kept.
    pub shared_conds: bool,
    /// What its streams are.
    pub streams: us_world::Kind,
    /// One thread at a time runs guest code.
    pub turns: bool,
    /// Nobody joins the threads that it makes.
    pub detached: bool,
    /// A process shares the table that is no copy: once the program has opened something it does so, too ([`crate::stranger`]).
    pub stranger: bool,
}

impl Program {
    /// A program of threads that exist from the beginning; jumps are relative to the start of their thread.
    #[must_use]
    pub fn new(name: &'static str, why: &'static str, threads: &[&[Op]]) -> Self {
        let mut code = Vec::new();
        let mut entries = Vec::new();
        for thread in threads {
            let base = u8::try_from(code.len()).expect("small program");
            entries.push(base);
            code.extend(thread.iter().map(|op| relocate(*op, base)));
            code.push(Op::End);
        }
        Self {
            name,
            why,
            code,
            entries,
            sems: [0; 2],
            creates_fail: false,
            spurious_try: false,
            may_refuse: false,
            shared_conds: false,
            streams: us_world::Kind::TcpAccepted,
            turns: false,
            detached: false,
            stranger: false,
        }
    }

    /// Keeps only the first `n` threads at the beginning; the others wait for a create that names them by the
    /// number of their thread.
    #[must_use]
    pub fn start_only(mut self, n: usize) -> Self {
        let entries = self.entries.clone();
        for op in &mut self.code {
            if let Op::Create(_, entry, _) = op {
                *entry = entries[usize::from(*entry)];
            }
        }
        self.entries.truncate(n);
        self
    }

    /// Sets the semaphores' initial values.
    #[must_use]
    pub fn with_sems(mut self, sems: [u8; 2]) -> Self {
        self.sems = sems;
        self
    }
}

fn relocate(op: Op, base: u8) -> Op {
    match op {
        Op::OnceEnter(o, to) => Op::OnceEnter(o, base + to),
        Op::IfVar(v, x, to) => Op::IfVar(v, x, base + to),
        Op::IfReg(r, x, to) => Op::IfReg(r, x, base + to),
        Op::Goto(to) => Op::Goto(base + to),
        other => other,
    }
}
