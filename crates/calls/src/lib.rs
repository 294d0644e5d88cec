#![no_std]
//! The policy of every x86-64 system call, one row each.
//!
//! The dispatcher, `docs/SYSCALLS.md` and the completeness test are all derived from the table in
//! [`TABLE`], so that there is one place to look when somebody asks "what happens to this call?".
//! The crate is pure: no unsafe, no I/O, no allocation; numbers in, shapes out. It reads no guest
//! memory: where a length depends on guest memory ([`Out::SockLen`], `iovec` arrays) the row says which
//! argument to look at and the caller looks.
//!
//! Three rules decide a row:
//!
//! * what only touches memory or the calling thread is executed by both copies ([`Policy::Local`]);
//! * what touches the shared descriptor table or the outside is executed by the primary alone
//!   ([`Policy::Recorded`], [`Policy::Special`]): a standby that executed it would close the primary's
//!   sockets or write its bytes twice;
//! * what leaves state in the primary's address space that a replay cannot build is
//!   [`Policy::Refused`]: the program is served, the standby is given up.
//!
//! A number without a row is treated as [`Policy::Refused`].

use us_abi::event::{AFTER_WAIT, EventKind, MUTEX_HOW};
use us_abi::{CLASS_NAMES, CLASSES};

mod buffer;
mod door;
mod guests;
mod shape;
mod table;

pub use buffer::{In, Out};
pub use door::{Door, EpollDoor, SignalDoor};
pub use shape::{
    ETHTOOL_GLINKSETTINGS, Fcntl, FcntlArg, IoctlDir, IoctlOut, Prctl, Sharing, SockOpt, clone_sharing,
    command_out, ethtool_out, fcntl_shape, ioctl_out, prctl_shape, sockopt_shape,
};
pub use table::{HIGHEST, TABLE};

/// One system call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Row {
    /// The number in `rax`.
    pub nr: u16,
    /// The kernel's name, as in `unistd_64.h` without `__NR_`.
    pub name: &'static str,
    /// What each copy does with the call.
    pub policy: Policy,
    /// When the call takes its ticket of the kernel clock.
    pub order: Order,
    /// What the call does to the descriptor table.
    pub fd: FdUse,
    /// What the kernel writes into guest memory, to be logged and copied out.
    pub outs: &'static [Out],
    /// What enters the digest that the standby compares.
    pub inputs: &'static [In],
    /// Where `status --json` counts the call.
    pub class: Class,
    /// The call may sleep for as long as it likes: a pending guest signal must be looked for, and the window
    /// between looking and sleeping closed (a signal that falls into it is slept through).
    pub blocks: bool,
    /// Linux may end the call with EINTR, as signal(7) and the calls' own pages say. Of any other, EINTR is an answer that no
    /// program looks for: what breaks one off is the runtime's look for signals before it, and it is made again.
    pub interrupts: bool,
    /// The kernel makes the call again behind handlers with SA_RESTART, as signal(7) says; of a socket that has been given
    /// a time-out it does not.
    pub restarts: bool,
    /// Only for refused calls: a re-clone does not bring protection back, since the kernel object stays bound to
    /// the primary's address space or to its threads. Protection is off for as long as the object exists.
    pub sticky: bool,
    /// It leaves events in the log. Only there may a signal be delivered at entry: a standby looks at its ring at such calls,
    /// and at no others.
    pub has_events: bool,
    /// Nothing is different after it: whether it was made, and how often, nobody can tell. So it is never in doubt, and one
    /// event says all of it.
    pub observes: bool,
    /// The program in `guests/` that exercises the row (file name without `.c`); empty if there is none yet.
    pub guest: &'static str,
    /// One clause for whoever wonders; never empty for refused and denied calls.
    pub why: &'static str,
}

/// What each copy does with the call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Policy {
    /// Both copies execute it and nothing is logged.
    Local,
    /// The primary executes it and logs result and output bytes; the standby copies them out and executes
    /// nothing.
    Recorded,
    /// Like `Recorded`, but the door is written by hand.
    Special(Door),
    /// The primary executes it; the standby cannot be carried on and is lost until a re-clone; counted and
    /// named in `status`.
    Refused,
    /// Answered with this (positive) errno in every copy without being executed.
    Denied(i32),
    /// The same where the process has copies or may get some, as on a kernel that was built without it: programs have another
    /// way. Where it never will, the primary executes it.
    Declined(i32),
}

/// When the call takes its ticket of the kernel clock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Order {
    /// Never: nobody can observe it, or it tells nothing of what others did.
    None,
    /// At entry: the call may release others (write, send, close, kill, unlink ...).
    Enter,
    /// At return: the call may have waited for, or read, what others did (read, accept, stat, wait4 ...).
    Return,
    /// Two tickets, one at entry and one at return: the call passes something on *and* learns from others, as a
    /// lock file, a semaphore or a rename does. With one ticket at entry, `open(O_CREAT|O_EXCL)` that succeeded
    /// because of another thread's unlink could be replayed before that unlink; with one at return, what the
    /// thread wrote before a mkdir would not be there for the thread that saw the directory.
    Both,
}

impl Order {
    /// Whether a ticket is taken at entry.
    pub const fn at_entry(self) -> bool {
        matches!(self, Order::Enter | Order::Both)
    }

    /// Whether a ticket is taken at return.
    pub const fn at_return(self) -> bool {
        matches!(self, Order::Return | Order::Both)
    }
}

/// Which argument is a descriptor, and what a successful call does to the table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FdUse {
    /// No descriptor at all.
    None,
    /// Argument is a descriptor.
    Uses(u8),
    /// Two arguments are descriptors.
    UsesTwo(u8, u8),
    /// Argument is a directory descriptor, `AT_FDCWD` allowed: relative paths then use the *shadowed* cwd.
    UsesAt(u8),
    /// Two directory descriptors (renameat, linkat).
    UsesAtTwo(u8, u8),
    /// The result is a new descriptor.
    Creates,
    /// Argument is a descriptor and the result is a new one (accept, fspick, fsmount).
    CreatesFrom(u8),
    /// Argument is a directory descriptor or `AT_FDCWD` and the result is a new descriptor (openat).
    CreatesAt(u8),
    /// Two new descriptors are written as `int[2]` at argument `arg` (pipe, socketpair).
    CreatesPair {
        /// The array.
        arg: u8,
    },
    /// The call makes a new descriptor when argument is -1 and changes the one given otherwise (signalfd).
    CreatesUnless(u8),
    /// Argument is closed, whatever the result but EBADF.
    Closes(u8),
    /// Every descriptor from `args[first]` to `args[last]`, inclusive, is closed (close_range).
    ClosesRange {
        /// First descriptor.
        first: u8,
        /// Last descriptor, saturated: `~0` is usual.
        last: u8,
    },
    /// The result is a duplicate of `args[from]`; with `to` it replaces (and closes) `args[to]`.
    Dups {
        /// The original.
        from: u8,
        /// The number asked for (dup2, dup3).
        to: Option<u8>,
    },
    /// Argument 0 is a descriptor; what happens depends on the command (fcntl, ioctl).
    Command,
    /// Descriptors are named in guest memory (poll, select, io_submit).
    InMemory,
    /// Argument is a socket whose control data may carry descriptors in or out (sendmsg, recvmsg).
    Message(u8),
    /// Every close-on-exec descriptor is closed (execve), or the whole table (exit).
    Process,
}

impl FdUse {
    /// Whether a call with these arguments changes a descriptor where another one of its kind makes one (signalfd).
    pub const fn changes(self, args: &[u64; 6]) -> bool {
        matches!(self, FdUse::CreatesUnless(arg) if args[arg as usize] as i32 != -1)
    }
}

/// The classes of `events_by_class` in `status --json`, in its order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Class {
    /// Locks and futexes.
    Lock,
    /// Condition variables; no system call of its own.
    Cond,
    /// Input.
    Read,
    /// Output.
    Write,
    /// Waiting for descriptors.
    Poll,
    /// Clocks, timers, sleeps.
    Time,
    /// Address space.
    Memory,
    /// Threads and processes.
    Thread,
    /// Signals.
    Signal,
    /// The rest.
    Other,
}

impl Class {
    /// Its place among the counters of the segment, and in [`us_abi::CLASS_NAMES`].
    pub const fn index(self) -> usize {
        let index = self as usize;
        assert!(index < CLASSES);
        index
    }

    /// That of an event: what a standby counts when it has applied it, and what a recording is counted by.
    pub const fn of_event(kind: EventKind, call: u16) -> Class {
        match kind {
            EventKind::Mutex if call & MUTEX_HOW == AFTER_WAIT => Class::Cond,
            EventKind::Mutex
            | EventKind::Ordered
            | EventKind::Barrier
            | EventKind::OnceRun
            | EventKind::Atomic
            | EventKind::Common
            | EventKind::Alike => Class::Lock,
            EventKind::Time => Class::Time,
            EventKind::Enter | EventKind::Return | EventKind::Call => match row(call as u64) {
                Some(row) => row.class,
                None => Class::Other,
            },
            EventKind::Signal => Class::Signal,
            EventKind::ThreadStart | EventKind::ThreadExit | EventKind::Yield | EventKind::Turn => {
                Class::Thread
            }
            EventKind::Output => Class::Write,
            EventKind::Image
            | EventKind::Skip
            | EventKind::Again
            | EventKind::Failover
            | EventKind::Gate
            | EventKind::Picture => Class::Other,
        }
    }

    /// The key in `status --json`.
    pub const fn name(self) -> &'static str {
        CLASS_NAMES[self.index()]
    }
}

/// The row of a call by the number in `rax`, or `None` for a number that the table does not know (to be
/// treated as [`Policy::Refused`]; x32 numbers, which carry bit 30, are among them).
#[inline]
pub const fn row(nr: u64) -> Option<&'static Row> {
    if nr < TABLE.len() as u64 { TABLE[nr as usize].as_ref() } else { None }
}

/// The call's name, `"unknown"` for a number without a row.
pub fn name(nr: u64) -> &'static str {
    row(nr).map_or("unknown", |row| row.name)
}
