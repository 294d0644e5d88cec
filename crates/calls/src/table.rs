//! The rows, by number.
//!
//! How to read one: number, name, policy, order, class; then what it does to descriptors (`fd`), what the kernel
//! writes (`outs`), what enters the digest (`ins`), and a word of explanation (`why`). `I3` is the low half of
//! argument 3, `L3` all of it, `S3` the string there. Output buffers of calls that both copies execute are not
//! listed: nothing of them is logged.

use crate::FdUse::{
    Closes, ClosesRange, Command, Creates, CreatesAt, CreatesFrom, CreatesPair, CreatesUnless, Dups,
    InMemory, Message, Process, Uses, UsesAt, UsesAtTwo, UsesTwo,
};
use crate::Policy::{Declined, Denied, Local, Recorded, Refused, Special};
use crate::guests::GUESTS;
use crate::{Class, Door, EpollDoor, FdUse, In, Order, Out, Policy, Row, SignalDoor};

const ENOSYS: i32 = 38;

const I0: In = In::Int { arg: 0 };
const I1: In = In::Int { arg: 1 };
const I2: In = In::Int { arg: 2 };
const I3: In = In::Int { arg: 3 };
const I4: In = In::Int { arg: 4 };
const I5: In = In::Int { arg: 5 };
const L0: In = In::Scalar { arg: 0 };
const L1: In = In::Scalar { arg: 1 };
const L2: In = In::Scalar { arg: 2 };
const L3: In = In::Scalar { arg: 3 };
const L4: In = In::Scalar { arg: 4 };
const L5: In = In::Scalar { arg: 5 };
const S0: In = In::Str { arg: 0 };
const S1: In = In::Str { arg: 1 };
const S2: In = In::Str { arg: 2 };
const S3: In = In::Str { arg: 3 };
const S4: In = In::Str { arg: 4 };

// Sizes of the kernel's own structures, in bytes; a test compares them with libc's.
const STAT: u32 = 144;
const STATX: u32 = 256;
const STATFS: u32 = 120;
const RUSAGE: u32 = 144;
const TIMESPEC: u32 = 16;
const TIMEVAL: u32 = 16;
const ITIMER: u32 = 32;
const SYSINFO: u32 = 112;
const UTSNAME: u32 = 390;
const RLIMIT: u32 = 16;
const TMS: u32 = 32;
const SIGINFO: u32 = 128;
// waitid fills in single fields and leaves the rest of the structure alone.
const WAIT_SIGINFO: u32 = 28;
const TIMEX: u32 = 208;
const EPOLL_EVENT: u32 = 12;
const POLLFD: u32 = 8;
const MQ_ATTR: u32 = 64;

const fn r(nr: u16, name: &'static str, policy: Policy, order: Order, class: Class) -> Row {
    Row {
        nr,
        name,
        policy,
        order,
        fd: FdUse::None,
        outs: &[],
        inputs: &[],
        class,
        blocks: false,
        interrupts: waits_for_others(class),
        restarts: !matches!(class, Class::Poll | Class::Signal | Class::Time),
        sticky: false,
        observes: false,
        has_events: has_events(policy),
        guest: "",
        why: "",
    }
}

/// Input, output and waits: signal(7) counts them all among the calls that a handler interrupts.
/// See [`Row::has_events`].
const fn has_events(policy: Policy) -> bool {
    match policy {
        Recorded | Refused => true,
        Special(door) => !door.both_execute() && !matches!(door, Door::Mmap | Door::Prctl | Door::Signal(_)),
        Local | Policy::Denied(_) | Declined(_) => false,
    }
}

const fn waits_for_others(class: Class) -> bool {
    matches!(class, Class::Read | Class::Write | Class::Poll)
}

/// Both copies execute it.
const fn local(nr: u16, name: &'static str, class: Class) -> Row {
    r(nr, name, Local, Order::None, class)
}

/// Recorded, ticket at return: it learns.
const fn learn(nr: u16, name: &'static str) -> Row {
    r(nr, name, Recorded, Order::Return, Class::Other)
}

/// Recorded, ticket at entry: others may see it.
const fn act(nr: u16, name: &'static str) -> Row {
    r(nr, name, Recorded, Order::Enter, Class::Other)
}

/// Recorded, tickets at entry and return: others may see it and its result tells of others.
const fn both(nr: u16, name: &'static str) -> Row {
    r(nr, name, Recorded, Order::Both, Class::Other)
}

/// Recorded, no ticket: it tells nothing of what others did.
const fn plain(nr: u16, name: &'static str) -> Row {
    r(nr, name, Recorded, Order::None, Class::Other)
}

/// Credentials and the like: both execute at the same ticket.
const fn mirror(nr: u16, name: &'static str) -> Row {
    r(nr, name, Special(Door::Mirror), Order::Enter, Class::Other)
        .why("both copies execute it at the same ticket")
}

/// Group numbers instead of the kernel's.
const fn identity(nr: u16, name: &'static str) -> Row {
    r(nr, name, Special(Door::Identity), Order::None, Class::Other).why("the group's number in every copy")
}

/// State of the calling thread, shadowed in the standby.
const fn thread(nr: u16, name: &'static str) -> Row {
    r(nr, name, Special(Door::Thread), Order::Enter, Class::Thread)
        .why("the primary's is real, the standby's a shadow until promotion")
}

/// Scheduling state of a thread, read.
const fn thread_get(nr: u16, name: &'static str) -> Row {
    r(nr, name, Special(Door::Thread), Order::Return, Class::Thread).why("thread numbers are the group's")
}

const fn signal(nr: u16, name: &'static str, door: SignalDoor, order: Order) -> Row {
    r(nr, name, Special(Door::Signal(door)), order, Class::Signal)
}

const fn special(nr: u16, name: &'static str, door: Door, order: Order, class: Class) -> Row {
    r(nr, name, Special(door), order, class)
}

const fn refused(nr: u16, name: &'static str, why: &'static str) -> Row {
    r(nr, name, Refused, Order::Enter, Class::Other).why(why)
}

/// Programs have another way, and take it where the kernel has no such call.
const fn declined(nr: u16, name: &'static str, why: &'static str) -> Row {
    r(nr, name, Declined(ENOSYS), Order::None, Class::Other).why(why)
}

/// The kernel itself has no such call any more (or never had).
const fn gone(nr: u16, name: &'static str) -> Row {
    r(nr, name, Denied(ENOSYS), Order::None, Class::Other)
        .why("the kernel has no such call and says the same")
}

impl Row {
    const fn fd(mut self, fd: FdUse) -> Row {
        self.fd = fd;
        self
    }

    const fn outs(mut self, outs: &'static [Out]) -> Row {
        self.outs = outs;
        self
    }

    const fn ins(mut self, inputs: &'static [In]) -> Row {
        self.inputs = inputs;
        self
    }

    const fn class(mut self, class: Class) -> Row {
        self.class = class;
        self.interrupts |= waits_for_others(class);
        self
    }

    /// For one that ends with EINTR whatever the handler's flags.
    const fn never_restarts(mut self) -> Row {
        self.restarts = false;
        self
    }

    const fn blocks(mut self) -> Row {
        self.blocks = true;
        self
    }

    const fn interrupts(mut self) -> Row {
        self.interrupts = true;
        self
    }

    /// For one that changes nothing.
    const fn observes(mut self) -> Row {
        self.observes = true;
        self
    }

    const fn sticky(mut self) -> Row {
        self.sticky = true;
        self
    }

    const fn why(mut self, why: &'static str) -> Row {
        self.why = why;
        self
    }
}

const fn fx(arg: u8, len: u32) -> Out {
    Out::Fixed { arg, len }
}

const fn fin(arg: u8, len: u32) -> In {
    In::Fixed { arg, len }
}

const fn bytes(arg: u8, len_arg: u8) -> In {
    In::Bytes { arg, len_arg }
}

const fn upto(arg: u8, len_arg: u8) -> Out {
    Out::ResultUpTo { arg, len_arg }
}

const fn iov(arg: u8, count_arg: u8) -> In {
    In::Iovec { arg, count_arg }
}

const fn iov_lens(arg: u8, count_arg: u8) -> In {
    In::IovecLens { arg, count_arg }
}

const EPOLL_WAIT: Door = Door::Epoll(EpollDoor::Wait);
const EPOLL_CREATE: Door = Door::Epoll(EpollDoor::Create);
const AIO: &str = "an aio context lives in one address space: no copy can have it";
const OBJECT: &str = "the descriptor enters the shadow table";
const IDENTITY_ARG: &str = "process numbers are translated at the door";
const MEMORY_ORDER: &str = "the address travels in the log; the standby asks for the same";
const SHADOW_TIMER: &str = "timers belong to the process: a shadow, made real at promotion";
const SHADOW_CWD: &str = "the standby follows, and looks whether it has come to the same folder";
const OWN_AREA: &str = "local; the runtime's own registration for the thread must survive";
const GROUP_WAIT: &str = "child numbers are the group's; the outcome is recorded";
const LOCKED: &str = "the answer is the primary's; a standby locks what it can";
const KEYS: &str = "thread and process keyrings belong to the primary's credentials and are not inherited";

/// Every row, ascending.
const ROWS: &[Row] = &[
    special(0, "read", Door::Read, Order::Return, Class::Read)
        .fd(Uses(0))
        .outs(&[Out::Result { arg: 1 }])
        .ins(&[I0, L2])
        .blocks()
        .why("read into the ring first: what was consumed must not die with the primary"),
    special(1, "write", Door::Write, Order::Enter, Class::Write)
        .fd(Uses(0))
        .ins(&[I0, L2, bytes(1, 2)])
        .blocks()
        .why("begun before, done after; settled from the kernel when in doubt"),
    special(2, "open", Door::Open, Order::Both, Class::Other)
        .interrupts()
        .fd(Creates)
        .ins(&[S0, I1, I2])
        .blocks()
        .why(OBJECT),
    special(3, "close", Door::Close, Order::Enter, Class::Other)
        .interrupts()
        .fd(Closes(0))
        .ins(&[I0])
        .why("the number may be another file's by the time it is in doubt: identity decides"),
    learn(4, "stat").observes().outs(&[fx(1, STAT)]).ins(&[S0]),
    learn(5, "fstat").observes().fd(Uses(0)).outs(&[fx(1, STAT)]).ins(&[I0]),
    learn(6, "lstat").observes().outs(&[fx(1, STAT)]).ins(&[S0]),
    special(7, "poll", Door::Poll, Order::Return, Class::Poll)
        .fd(InMemory)
        .outs(&[Out::ArgItems { arg: 0, count_arg: 1, size: POLLFD }])
        .ins(&[I1, I2, In::Pollfds { arg: 0, count_arg: 1 }])
        .blocks()
        .why("an interruptible wait"),
    learn(8, "lseek").fd(Uses(0)).ins(&[I0, L1, I2]),
    special(9, "mmap", Door::Mmap, Order::Return, Class::Memory)
        .fd(Uses(4))
        .ins(&[L1, I2, I3, I4, L5])
        .why(MEMORY_ORDER),
    local(10, "mprotect", Class::Memory),
    special(11, "munmap", Door::Munmap, Order::Enter, Class::Memory)
        .ins(&[L1])
        .why("both execute it; the ticket keeps a neighbour's new map from being torn away"),
    special(12, "brk", Door::Brk, Order::Return, Class::Memory).why(MEMORY_ORDER),
    signal(13, "rt_sigaction", SignalDoor::Action, Order::Enter)
        .ins(&[I0, L3])
        .why("both keep the disposition; the kernel sees the runtime's handler"),
    signal(14, "rt_sigprocmask", SignalDoor::Mask, Order::None)
        .ins(&[I0, L3])
        .why("the mask is a shadow; SIGSYS stays out of the real one"),
    signal(15, "rt_sigreturn", SignalDoor::Return, Order::None)
        .why("called by the guest's restorer: the frame is emulated"),
    special(16, "ioctl", Door::Ioctl, Order::Both, Class::Other)
        .interrupts()
        .fd(Command)
        .outs(&[Out::Ioctl])
        .ins(&[I0, I1, In::Ioctl])
        .blocks()
        .why("by request number; an unknown one is refused"),
    special(17, "pread64", Door::Read, Order::Return, Class::Read)
        .fd(Uses(0))
        .outs(&[Out::Result { arg: 1 }])
        .ins(&[I0, L2, L3])
        .blocks()
        .why("read into the ring first"),
    special(18, "pwrite64", Door::Write, Order::Enter, Class::Write)
        .fd(Uses(0))
        .ins(&[I0, L2, L3, bytes(1, 2)])
        .blocks()
        .why("begun before, done after"),
    special(19, "readv", Door::Readv, Order::Return, Class::Read)
        .fd(Uses(0))
        .outs(&[Out::Iovec { arg: 1, count_arg: 2 }])
        .ins(&[I0, L2, iov_lens(1, 2)])
        .blocks()
        .why("read into the ring first, then scattered"),
    special(20, "writev", Door::Writev, Order::Enter, Class::Write)
        .fd(Uses(0))
        .ins(&[I0, L2, iov(1, 2)])
        .blocks()
        .why("begun before, done after"),
    learn(21, "access").observes().ins(&[S0, I1]),
    special(22, "pipe", Door::Pipe, Order::Return, Class::Other)
        .fd(CreatesPair { arg: 0 })
        .outs(&[fx(0, 8)])
        .why(OBJECT),
    special(23, "select", Door::Select, Order::Return, Class::Poll)
        .fd(InMemory)
        .outs(&[
            Out::FdSet { arg: 1, nfds_arg: 0 },
            Out::FdSet { arg: 2, nfds_arg: 0 },
            Out::FdSet { arg: 3, nfds_arg: 0 },
            Out::Always { arg: 4, len: TIMEVAL },
        ])
        .ins(&[
            I0,
            In::FdSet { arg: 1, nfds_arg: 0 },
            In::FdSet { arg: 2, nfds_arg: 0 },
            In::FdSet { arg: 3, nfds_arg: 0 },
            fin(4, TIMEVAL),
        ])
        .blocks()
        .why("an interruptible wait"),
    local(24, "sched_yield", Class::Thread),
    special(25, "mremap", Door::Mremap, Order::Both, Class::Memory).ins(&[L1, L2, I3]).why(MEMORY_ORDER),
    act(26, "msync")
        .class(Class::Memory)
        .ins(&[L1, I2])
        .why("primary only: the standby's copy of a shared mapping is anonymous"),
    learn(27, "mincore")
        .class(Class::Memory)
        .outs(&[Out::Pages { arg: 2, len_arg: 1 }])
        .ins(&[L1])
        .why("tells of the primary's page cache, which differs"),
    special(28, "madvise", Door::Madvise, Order::None, Class::Memory)
        .why("local, but MADV_DONTFORK, MADV_WIPEONFORK and MADV_REMOVE"),
    learn(29, "shmget").class(Class::Memory).ins(&[I0, L1, I2]),
    special(30, "shmat", Door::Shm, Order::Return, Class::Memory)
        .ins(&[I0, I2])
        .why("one memory for several processes: they form a family"),
    act(31, "shmctl").class(Class::Memory).outs(&[Out::ByCommand { arg: 2, cmd_arg: 1 }]).ins(&[I0, I1]),
    special(32, "dup", Door::Dup, Order::Return, Class::Other)
        .fd(Dups { from: 0, to: None })
        .ins(&[I0])
        .why(OBJECT),
    special(33, "dup2", Door::Dup, Order::Both, Class::Other)
        .fd(Dups { from: 0, to: Some(1) })
        .ins(&[I0, I1])
        .why("closes the target: identity decides when in doubt"),
    signal(34, "pause", SignalDoor::Suspend, Order::Return)
        .interrupts()
        .blocks()
        .why("a door at which signals are delivered"),
    special(35, "nanosleep", Door::Sleep, Order::None, Class::Time)
        .interrupts()
        .outs(&[Out::Always { arg: 1, len: TIMESPEC }])
        .ins(&[fin(0, TIMESPEC)])
        .blocks()
        .why("the standby does not sleep"),
    special(36, "getitimer", Door::Timer, Order::None, Class::Time)
        .outs(&[fx(1, ITIMER)])
        .ins(&[I0])
        .why(SHADOW_TIMER),
    special(37, "alarm", Door::Timer, Order::Enter, Class::Time).ins(&[I0]).why(SHADOW_TIMER),
    special(38, "setitimer", Door::Timer, Order::Enter, Class::Time)
        .outs(&[fx(2, ITIMER)])
        .ins(&[I0, fin(1, ITIMER)])
        .why(SHADOW_TIMER),
    identity(39, "getpid"),
    special(40, "sendfile", Door::Sendfile, Order::Enter, Class::Write)
        .fd(UsesTwo(0, 1))
        .outs(&[fx(2, 8)])
        .ins(&[I0, I1, fin(2, 8), L3])
        .blocks()
        .why("no bytes in the log: in doubt, offsets tell"),
    special(41, "socket", Door::Socket, Order::Return, Class::Other)
        .fd(Creates)
        .ins(&[I0, I1, I2])
        .why(OBJECT),
    special(42, "connect", Door::Connect, Order::Enter, Class::Other)
        .interrupts()
        .fd(Uses(0))
        .ins(&[I0, In::SockAddr { arg: 1, len_arg: 2 }])
        .blocks()
        .why("in doubt, the socket's state tells"),
    special(43, "accept", Door::Accept, Order::Return, Class::Other)
        .interrupts()
        .fd(CreatesFrom(0))
        .outs(&[Out::SockLen { arg: 1, len_arg: 2 }])
        .ins(&[I0])
        .blocks()
        .why("a connection accepted and not logged is found again in the table"),
    special(44, "sendto", Door::Send, Order::Enter, Class::Write)
        .fd(Uses(0))
        .ins(&[I0, L2, bytes(1, 2), I3, In::SockAddr { arg: 4, len_arg: 5 }])
        .blocks()
        .why("begun before, done after"),
    special(45, "recvfrom", Door::Recv, Order::Return, Class::Read)
        .fd(Uses(0))
        .outs(&[upto(1, 2), Out::SockLen { arg: 4, len_arg: 5 }])
        .ins(&[I0, L2, I3])
        .blocks()
        .why("read into the ring first"),
    special(46, "sendmsg", Door::SendMsg, Order::Enter, Class::Write)
        .fd(Message(0))
        .ins(&[I0, In::Msghdr { arg: 1 }, I2])
        .blocks()
        .why("may carry descriptors out"),
    special(47, "recvmsg", Door::RecvMsg, Order::Return, Class::Read)
        .fd(Message(0))
        .outs(&[Out::Msghdr { arg: 1 }])
        .ins(&[I0, I2])
        .blocks()
        .why("may carry descriptors in: they enter the shadow table"),
    act(48, "shutdown").fd(Uses(0)).ins(&[I0, I1]),
    act(49, "bind").fd(Uses(0)).ins(&[I0, In::SockAddr { arg: 1, len_arg: 2 }]),
    act(50, "listen").fd(Uses(0)).ins(&[I0, I1]),
    learn(51, "getsockname")
        .observes()
        .fd(Uses(0))
        .outs(&[fx(2, 4), Out::SockLen { arg: 1, len_arg: 2 }])
        .ins(&[I0]),
    learn(52, "getpeername")
        .observes()
        .fd(Uses(0))
        .outs(&[fx(2, 4), Out::SockLen { arg: 1, len_arg: 2 }])
        .ins(&[I0]),
    special(53, "socketpair", Door::Socket, Order::Return, Class::Other)
        .fd(CreatesPair { arg: 3 })
        .outs(&[fx(3, 8)])
        .ins(&[I0, I1, I2])
        .why(OBJECT),
    act(54, "setsockopt")
        .fd(Uses(0))
        .ins(&[I0, I1, I2, I4, In::SockOpt])
        .why("options whose value holds a pointer (filters) keep it out of the digest"),
    learn(55, "getsockopt")
        .fd(Uses(0))
        .outs(&[Out::SockLen { arg: 3, len_arg: 4 }])
        .ins(&[I0, I1, I2])
        .why("a few options make descriptors or map memory: see sockopt_shape"),
    special(56, "clone", Door::Clone, Order::Enter, Class::Thread)
        .ins(&[L0])
        .why("a thread takes a slot and a ring; a process makes its own standby"),
    special(57, "fork", Door::Clone, Order::Enter, Class::Thread)
        .why("the child makes its own standby at birth"),
    special(58, "vfork", Door::Clone, Order::Enter, Class::Thread)
        .why("memory is shared until exec: passed through, protection pauses"),
    special(59, "execve", Door::Exec, Order::Enter, Class::Thread)
        .fd(Process)
        .ins(&[S0, In::StrArray { arg: 1 }])
        .why("waits until the standby is gone; the new image makes a new one"),
    special(60, "exit", Door::Exit, Order::Enter, Class::Thread)
        .ins(&[I0])
        .why("leaving is published first: a robust futex that fires is not death"),
    special(61, "wait4", Door::Wait, Order::Return, Class::Thread)
        .interrupts()
        .outs(&[fx(1, 4), fx(3, RUSAGE)])
        .ins(&[I0, I2])
        .blocks()
        .why(GROUP_WAIT),
    signal(62, "kill", SignalDoor::Send, Order::Enter).ins(&[I0, I1]).why(IDENTITY_ARG),
    plain(63, "uname").observes().outs(&[fx(0, UTSNAME)]),
    learn(64, "semget").class(Class::Lock).ins(&[I0, I1, I2]),
    both(65, "semop")
        .interrupts()
        .never_restarts()
        .class(Class::Lock)
        .ins(&[I0, L2, In::Items { arg: 1, count_arg: 2, size: 6 }])
        .blocks()
        .why("undo lists are shared with the standby (CLONE_SYSVSEM)"),
    special(66, "semctl", Door::Semctl, Order::Both, Class::Lock)
        .outs(&[Out::ByCommand { arg: 3, cmd_arg: 2 }])
        .ins(&[I0, I1, I2])
        .why("GETALL writes as much as the set is large: asked first"),
    special(67, "shmdt", Door::Shm, Order::Enter, Class::Memory).why("both copies detach what they attached"),
    learn(68, "msgget").ins(&[I0, I1]),
    act(69, "msgsnd")
        .interrupts()
        .never_restarts()
        .class(Class::Write)
        .ins(&[I0, L2, In::Msgbuf { arg: 1, len_arg: 2 }, I3])
        .blocks(),
    special(70, "msgrcv", Door::Receive, Order::Return, Class::Read)
        .interrupts()
        .never_restarts()
        .outs(&[Out::Msgbuf { arg: 1 }])
        .ins(&[I0, L2, L3, I4])
        .blocks()
        .why("a message taken must not die with the primary"),
    act(71, "msgctl").outs(&[Out::ByCommand { arg: 2, cmd_arg: 1 }]).ins(&[I0, I1]),
    special(72, "fcntl", Door::Fcntl, Order::Both, Class::Other)
        .interrupts()
        .fd(Command)
        .outs(&[Out::Fcntl])
        .ins(&[I0, I1, In::Fcntl])
        .blocks()
        .why("by command: see fcntl_shape"),
    both(73, "flock").interrupts().class(Class::Lock).fd(Uses(0)).ins(&[I0, I1]).blocks(),
    act(74, "fsync").interrupts().fd(Uses(0)).ins(&[I0]),
    act(75, "fdatasync").fd(Uses(0)).ins(&[I0]),
    act(76, "truncate").interrupts().ins(&[S0, L1]),
    act(77, "ftruncate").interrupts().fd(Uses(0)).ins(&[I0, L1]),
    special(78, "getdents", Door::Getdents, Order::Return, Class::Read)
        .fd(Uses(0))
        .outs(&[Out::Result { arg: 1 }])
        .ins(&[I0, I2])
        .why("in doubt, the directory's offset is put back"),
    learn(79, "getcwd").observes().outs(&[Out::Result { arg: 0 }]).ins(&[L1]),
    special(80, "chdir", Door::Chdir, Order::Enter, Class::Other).ins(&[S0]).why(SHADOW_CWD),
    special(81, "fchdir", Door::Chdir, Order::Enter, Class::Other).fd(Uses(0)).ins(&[I0]).why(SHADOW_CWD),
    both(82, "rename").ins(&[S0, S1]),
    both(83, "mkdir").ins(&[S0, I1]),
    act(84, "rmdir").ins(&[S0]),
    special(85, "creat", Door::Open, Order::Both, Class::Other)
        .interrupts()
        .fd(Creates)
        .ins(&[S0, I1])
        .blocks()
        .why(OBJECT),
    both(86, "link").ins(&[S0, S1]),
    act(87, "unlink").ins(&[S0]),
    both(88, "symlink").ins(&[S0, S1]),
    learn(89, "readlink").observes().outs(&[Out::Result { arg: 1 }]).ins(&[S0, I2]),
    act(90, "chmod").ins(&[S0, I1]),
    act(91, "fchmod").fd(Uses(0)).ins(&[I0, I1]),
    act(92, "chown").ins(&[S0, I1, I2]),
    act(93, "fchown").fd(Uses(0)).ins(&[I0, I1, I2]),
    act(94, "lchown").ins(&[S0, I1, I2]),
    mirror(95, "umask").ins(&[I0]),
    special(96, "gettimeofday", Door::Time, Order::None, Class::Time)
        .outs(&[fx(0, TIMEVAL), fx(1, 8)])
        .why("time is input"),
    mirror(97, "getrlimit").outs(&[fx(1, RLIMIT)]).ins(&[I0]),
    plain(98, "getrusage").outs(&[fx(1, RUSAGE)]).ins(&[I0]),
    plain(99, "sysinfo").observes().outs(&[fx(0, SYSINFO)]),
    plain(100, "times").class(Class::Time).outs(&[fx(0, TMS)]),
    refused(
        101,
        "ptrace",
        "a debugger holds real threads of real processes; what it peeks has no length here",
    ),
    plain(102, "getuid").observes(),
    learn(103, "syslog").outs(&[upto(1, 2)]).ins(&[I0, I2]).blocks(),
    plain(104, "getgid").observes(),
    mirror(105, "setuid").ins(&[I0]),
    mirror(106, "setgid").ins(&[I0]),
    plain(107, "geteuid").observes(),
    plain(108, "getegid").observes(),
    special(109, "setpgid", Door::Pid, Order::Enter, Class::Other).ins(&[I0, I1]).why(IDENTITY_ARG),
    learn(110, "getppid").observes().why("the group's number while the parent lives"),
    learn(111, "getpgrp").observes(),
    special(112, "setsid", Door::Pid, Order::Enter, Class::Other)
        .why("leadership of a session is a real process's: it dies with the primary"),
    mirror(113, "setreuid").ins(&[I0, I1]),
    mirror(114, "setregid").ins(&[I0, I1]),
    plain(115, "getgroups")
        .observes()
        .outs(&[Out::ResultItemsUpTo { arg: 1, count_arg: 0, size: 4 }])
        .ins(&[I0]),
    mirror(116, "setgroups").ins(&[I0, In::Items { arg: 1, count_arg: 0, size: 4 }]),
    mirror(117, "setresuid").ins(&[I0, I1, I2]),
    plain(118, "getresuid").observes().outs(&[fx(0, 4), fx(1, 4), fx(2, 4)]),
    mirror(119, "setresgid").ins(&[I0, I1, I2]),
    plain(120, "getresgid").observes().outs(&[fx(0, 4), fx(1, 4), fx(2, 4)]),
    special(121, "getpgid", Door::Pid, Order::Return, Class::Other).observes().ins(&[I0]).why(IDENTITY_ARG),
    mirror(122, "setfsuid").ins(&[I0]),
    mirror(123, "setfsgid").ins(&[I0]),
    special(124, "getsid", Door::Pid, Order::Return, Class::Other).observes().ins(&[I0]).why(IDENTITY_ARG),
    special(125, "capget", Door::Pid, Order::None, Class::Other)
        .outs(&[Out::Always { arg: 0, len: 4 }, Out::CapData { arg: 1, header_arg: 0 }])
        .ins(&[fin(0, 8)])
        .why("the header names a thread: translated at the door"),
    mirror(126, "capset").ins(&[fin(0, 8)]),
    signal(127, "rt_sigpending", SignalDoor::Pending, Order::Return)
        .outs(&[Out::ArgBytes { arg: 0, len_arg: 1 }])
        .ins(&[L1])
        .why("what the kernel holds and what the runtime has queued"),
    signal(128, "rt_sigtimedwait", SignalDoor::Wait, Order::Return)
        .interrupts()
        .outs(&[fx(1, SIGINFO)])
        .ins(&[fin(0, 8), fin(2, TIMESPEC), L3])
        .blocks()
        .why("takes from the runtime's queue first"),
    signal(129, "rt_sigqueueinfo", SignalDoor::Send, Order::Enter).ins(&[I0, I1]).why(IDENTITY_ARG),
    signal(130, "rt_sigsuspend", SignalDoor::Suspend, Order::Return)
        .interrupts()
        .ins(&[fin(0, 8), L1])
        .blocks()
        .why("a door at which signals are delivered"),
    signal(131, "sigaltstack", SignalDoor::Stack, Order::None)
        .why("both keep it; remembered for the re-clone"),
    act(132, "utime").ins(&[S0, fin(1, 16)]),
    both(133, "mknod").ins(&[S0, I1, I2]),
    gone(134, "uselib"),
    mirror(135, "personality").ins(&[I0]),
    plain(136, "ustat").observes().outs(&[fx(1, 32)]).ins(&[I0]),
    learn(137, "statfs").observes().outs(&[fx(1, STATFS)]).ins(&[S0]),
    learn(138, "fstatfs").observes().fd(Uses(0)).outs(&[fx(1, STATFS)]).ins(&[I0]),
    refused(139, "sysfs", "the length of the name that it writes is not told"),
    thread_get(140, "getpriority").ins(&[I0, I1]),
    thread(141, "setpriority").ins(&[I0, I1, I2]),
    thread(142, "sched_setparam").ins(&[I0, fin(1, 4)]),
    thread_get(143, "sched_getparam").outs(&[fx(1, 4)]).ins(&[I0]),
    thread(144, "sched_setscheduler").ins(&[I0, I1, fin(2, 4)]),
    thread_get(145, "sched_getscheduler").ins(&[I0]),
    local(146, "sched_get_priority_max", Class::Thread).why("a constant"),
    local(147, "sched_get_priority_min", Class::Thread).why("a constant"),
    thread_get(148, "sched_rr_get_interval").outs(&[fx(1, TIMESPEC)]).ins(&[I0]),
    special(149, "mlock", Door::Mlock, Order::None, Class::Memory).ins(&[L1]).why(LOCKED),
    special(150, "munlock", Door::Mlock, Order::None, Class::Memory).ins(&[L1]).why(LOCKED),
    special(151, "mlockall", Door::Mlock, Order::None, Class::Memory).ins(&[I0]).why(LOCKED),
    special(152, "munlockall", Door::Mlock, Order::None, Class::Memory).why(LOCKED),
    act(153, "vhangup"),
    local(154, "modify_ldt", Class::Memory)
        .why("the table belongs to the address space and is copied by fork"),
    act(155, "pivot_root")
        .ins(&[S0, S1])
        .why("the kernel moves the root of every process that had the old one"),
    gone(156, "_sysctl"),
    special(157, "prctl", Door::Prctl, Order::Enter, Class::Other)
        .outs(&[Out::Prctl])
        .ins(&[I0, In::Prctl])
        .why("by option: see prctl_shape"),
    special(158, "arch_prctl", Door::ThreadArea, Order::None, Class::Thread).ins(&[I0]).why(OWN_AREA),
    learn(159, "adjtimex").class(Class::Time).outs(&[fx(0, TIMEX)]).ins(&[fin(0, 4)]),
    mirror(160, "setrlimit").ins(&[I0, fin(1, RLIMIT)]),
    special(161, "chroot", Door::Chdir, Order::Enter, Class::Other).ins(&[S0]).why(SHADOW_CWD),
    act(162, "sync"),
    act(163, "acct").ins(&[S0]),
    act(164, "settimeofday").class(Class::Time).ins(&[fin(0, TIMEVAL), fin(1, 8)]),
    act(165, "mount")
        .ins(&[S0, S1, S2, L3])
        .why("the mount namespace is shared: the effect is outside the process"),
    act(166, "umount2").ins(&[S0, I1]).why("the mount namespace is shared"),
    act(167, "swapon").ins(&[S0, I1]),
    act(168, "swapoff").ins(&[S0]),
    act(169, "reboot").ins(&[I0, I1, I2]).why("no copy survives the kernel"),
    act(170, "sethostname").ins(&[I1, bytes(0, 1)]),
    act(171, "setdomainname").ins(&[I1, bytes(0, 1)]),
    refused(172, "iopl", "port instructions would be executed by every copy").sticky(),
    refused(173, "ioperm", "port instructions would be executed by every copy").sticky(),
    gone(174, "create_module"),
    act(175, "init_module").ins(&[L1, bytes(0, 1), S2]).why("all effect is in the kernel"),
    act(176, "delete_module").ins(&[S0, I1]).why("all effect is in the kernel"),
    gone(177, "get_kernel_syms"),
    gone(178, "query_module"),
    both(179, "quotactl").outs(&[Out::ByCommand { arg: 3, cmd_arg: 0 }]).ins(&[I0, S1, I2]),
    gone(180, "nfsservctl"),
    gone(181, "getpmsg"),
    gone(182, "putpmsg"),
    gone(183, "afs_syscall"),
    gone(184, "tuxcall"),
    gone(185, "security"),
    identity(186, "gettid"),
    plain(187, "readahead").fd(Uses(0)).ins(&[I0, L1, L2]),
    act(188, "setxattr").ins(&[S0, S1, L3, bytes(2, 3), I4]),
    act(189, "lsetxattr").ins(&[S0, S1, L3, bytes(2, 3), I4]),
    act(190, "fsetxattr").fd(Uses(0)).ins(&[I0, S1, L3, bytes(2, 3), I4]),
    learn(191, "getxattr").observes().outs(&[upto(2, 3)]).ins(&[S0, S1, L3]),
    learn(192, "lgetxattr").observes().outs(&[upto(2, 3)]).ins(&[S0, S1, L3]),
    learn(193, "fgetxattr").observes().fd(Uses(0)).outs(&[upto(2, 3)]).ins(&[I0, S1, L3]),
    learn(194, "listxattr").observes().outs(&[upto(1, 2)]).ins(&[S0, L2]),
    learn(195, "llistxattr").observes().outs(&[upto(1, 2)]).ins(&[S0, L2]),
    learn(196, "flistxattr").observes().fd(Uses(0)).outs(&[upto(1, 2)]).ins(&[I0, L2]),
    act(197, "removexattr").ins(&[S0, S1]),
    act(198, "lremovexattr").ins(&[S0, S1]),
    act(199, "fremovexattr").fd(Uses(0)).ins(&[I0, S1]),
    signal(200, "tkill", SignalDoor::Send, Order::Enter).ins(&[I0, I1]).why(IDENTITY_ARG),
    special(201, "time", Door::Time, Order::None, Class::Time).outs(&[fx(0, 8)]).why("time is input"),
    special(202, "futex", Door::Futex, Order::Both, Class::Lock)
        .interrupts()
        .ins(&[I1])
        .blocks()
        .why("the runtime's own restartable wait; no thread is left inside the kernel's"),
    thread(203, "sched_setaffinity").ins(&[I0, I1, bytes(2, 1)]),
    thread_get(204, "sched_getaffinity").outs(&[Out::Result { arg: 2 }]).ins(&[I0, I1]),
    gone(205, "set_thread_area"),
    declined(206, "io_setup", AIO),
    declined(207, "io_destroy", AIO),
    declined(208, "io_getevents", AIO).blocks(),
    declined(209, "io_submit", AIO),
    declined(210, "io_cancel", AIO),
    gone(211, "get_thread_area"),
    gone(212, "lookup_dcookie"),
    special(213, "epoll_create", EPOLL_CREATE, Order::Return, Class::Poll).fd(Creates).ins(&[I0]).why(OBJECT),
    gone(214, "epoll_ctl_old"),
    gone(215, "epoll_wait_old"),
    refused(216, "remap_file_pages", "rearranges a shared mapping that the standby has as anonymous memory"),
    special(217, "getdents64", Door::Getdents, Order::Return, Class::Read)
        .fd(Uses(0))
        .outs(&[Out::Result { arg: 1 }])
        .ins(&[I0, I2])
        .why("in doubt, the directory's offset is put back"),
    special(218, "set_tid_address", Door::ThreadArea, Order::None, Class::Thread)
        .why("local; answers the group's number"),
    special(219, "restart_syscall", Door::Sleep, Order::None, Class::Time)
        .blocks()
        .why("issued by the kernel itself after a stop: the interrupted wait goes on"),
    both(220, "semtimedop")
        .interrupts()
        .never_restarts()
        .class(Class::Lock)
        .ins(&[I0, L2, In::Items { arg: 1, count_arg: 2, size: 6 }, fin(3, TIMESPEC)])
        .blocks()
        .why("undo lists are shared with the standby (CLONE_SYSVSEM)"),
    plain(221, "fadvise64").fd(Uses(0)).ins(&[I0, L1, L2, I3]),
    special(222, "timer_create", Door::Timer, Order::Enter, Class::Time)
        .outs(&[fx(2, 4)])
        .ins(&[I0])
        .why(SHADOW_TIMER),
    special(223, "timer_settime", Door::Timer, Order::Enter, Class::Time)
        .outs(&[fx(3, ITIMER)])
        .ins(&[I0, I1, fin(2, ITIMER)])
        .why(SHADOW_TIMER),
    special(224, "timer_gettime", Door::Timer, Order::None, Class::Time)
        .outs(&[fx(1, ITIMER)])
        .ins(&[I0])
        .why(SHADOW_TIMER),
    special(225, "timer_getoverrun", Door::Timer, Order::None, Class::Time).ins(&[I0]).why(SHADOW_TIMER),
    special(226, "timer_delete", Door::Timer, Order::Enter, Class::Time).ins(&[I0]).why(SHADOW_TIMER),
    act(227, "clock_settime").class(Class::Time).ins(&[I0, fin(1, TIMESPEC)]),
    special(228, "clock_gettime", Door::Time, Order::None, Class::Time)
        .outs(&[fx(1, TIMESPEC)])
        .ins(&[I0])
        .why("time is input"),
    plain(229, "clock_getres").observes().class(Class::Time).outs(&[fx(1, TIMESPEC)]).ins(&[I0]),
    special(230, "clock_nanosleep", Door::Sleep, Order::None, Class::Time)
        .interrupts()
        .outs(&[Out::Always { arg: 3, len: TIMESPEC }])
        .ins(&[I0, I1, fin(2, TIMESPEC)])
        .blocks()
        .why("the standby does not sleep"),
    special(231, "exit_group", Door::ExitGroup, Order::Enter, Class::Thread)
        .fd(Process)
        .ins(&[I0])
        .why("waits until the standby is gone, or the end of file comes late"),
    special(232, "epoll_wait", EPOLL_WAIT, Order::Return, Class::Poll)
        .fd(Uses(0))
        .outs(&[Out::ResultItems { arg: 1, size: EPOLL_EVENT }])
        .ins(&[I0, I2, I3])
        .blocks()
        .why("tokens become data words again"),
    special(233, "epoll_ctl", Door::Epoll(EpollDoor::Ctl), Order::Enter, Class::Poll)
        .fd(UsesTwo(0, 2))
        .ins(&[I0, I1, I2, fin(3, 4)])
        .why("the data word, often a pointer, becomes a token"),
    // Not which thread: one that has ended is asked for by a number that nobody has, and it has not ended in every copy.
    signal(234, "tgkill", SignalDoor::Send, Order::Enter).ins(&[I0, I2]).why(IDENTITY_ARG),
    act(235, "utimes").ins(&[S0, fin(1, 32)]),
    gone(236, "vserver"),
    local(237, "mbind", Class::Memory),
    local(238, "set_mempolicy", Class::Memory),
    plain(239, "get_mempolicy")
        .class(Class::Memory)
        .outs(&[fx(0, 4), Out::NodeMask { arg: 1, bits_arg: 2 }])
        .ins(&[L2, I4])
        .why("may tell where a page of the primary lies"),
    special(240, "mq_open", Door::Object, Order::Both, Class::Other)
        .fd(Creates)
        .ins(&[S0, I1, I2])
        .why(OBJECT),
    act(241, "mq_unlink").ins(&[S0]),
    act(242, "mq_timedsend")
        .interrupts()
        .class(Class::Write)
        .fd(Uses(0))
        .ins(&[I0, L2, bytes(1, 2), I3, fin(4, TIMESPEC)])
        .blocks(),
    special(243, "mq_timedreceive", Door::Receive, Order::Return, Class::Read)
        .interrupts()
        .fd(Uses(0))
        .outs(&[Out::Result { arg: 1 }, fx(3, 4)])
        .ins(&[I0, L2, fin(4, TIMESPEC)])
        .blocks()
        .why("a message taken must not die with the primary"),
    refused(244, "mq_notify", "the notification is bound to the primary's process")
        .fd(Uses(0))
        .ins(&[I0])
        .sticky(),
    act(245, "mq_getsetattr").fd(Uses(0)).outs(&[fx(2, MQ_ATTR)]).ins(&[I0, fin(1, 8)]),
    act(246, "kexec_load").ins(&[L1, L3]).why("all effect is in the kernel"),
    special(247, "waitid", Door::Wait, Order::Return, Class::Thread)
        .interrupts()
        .outs(&[fx(2, WAIT_SIGINFO), fx(4, RUSAGE)])
        .ins(&[I0, I1, I3])
        .blocks()
        .why(GROUP_WAIT),
    refused(248, "add_key", KEYS),
    refused(249, "request_key", KEYS),
    refused(250, "keyctl", KEYS),
    thread(251, "ioprio_set").ins(&[I0, I1, I2]),
    thread_get(252, "ioprio_get").ins(&[I0, I1]),
    special(253, "inotify_init", Door::Object, Order::Return, Class::Other).fd(Creates).why(OBJECT),
    act(254, "inotify_add_watch").fd(Uses(0)).ins(&[I0, S1, I2]),
    act(255, "inotify_rm_watch").fd(Uses(0)).ins(&[I0, I1]),
    special(256, "migrate_pages", Door::Pid, Order::None, Class::Memory).ins(&[I0, L1]).why(IDENTITY_ARG),
    special(257, "openat", Door::Open, Order::Both, Class::Other)
        .interrupts()
        .fd(CreatesAt(0))
        .ins(&[I0, S1, I2, I3])
        .blocks()
        .why(OBJECT),
    both(258, "mkdirat").fd(UsesAt(0)).ins(&[I0, S1, I2]),
    both(259, "mknodat").fd(UsesAt(0)).ins(&[I0, S1, I2, I3]),
    act(260, "fchownat").fd(UsesAt(0)).ins(&[I0, S1, I2, I3, I4]),
    act(261, "futimesat").fd(UsesAt(0)).ins(&[I0, S1, fin(2, 32)]),
    learn(262, "newfstatat").observes().fd(UsesAt(0)).outs(&[fx(2, STAT)]).ins(&[I0, S1, I3]),
    act(263, "unlinkat").fd(UsesAt(0)).ins(&[I0, S1, I2]),
    both(264, "renameat").fd(UsesAtTwo(0, 2)).ins(&[I0, S1, I2, S3]),
    both(265, "linkat").fd(UsesAtTwo(0, 2)).ins(&[I0, S1, I2, S3, I4]),
    both(266, "symlinkat").fd(UsesAt(1)).ins(&[S0, I1, S2]),
    learn(267, "readlinkat").observes().fd(UsesAt(0)).outs(&[Out::Result { arg: 2 }]).ins(&[I0, S1, I3]),
    act(268, "fchmodat").fd(UsesAt(0)).ins(&[I0, S1, I2]),
    learn(269, "faccessat").observes().fd(UsesAt(0)).ins(&[I0, S1, I2]),
    special(270, "pselect6", Door::Select, Order::Return, Class::Poll)
        .fd(InMemory)
        .outs(&[
            Out::FdSet { arg: 1, nfds_arg: 0 },
            Out::FdSet { arg: 2, nfds_arg: 0 },
            Out::FdSet { arg: 3, nfds_arg: 0 },
            Out::Always { arg: 4, len: TIMESPEC },
        ])
        .ins(&[
            I0,
            In::FdSet { arg: 1, nfds_arg: 0 },
            In::FdSet { arg: 2, nfds_arg: 0 },
            In::FdSet { arg: 3, nfds_arg: 0 },
            fin(4, TIMESPEC),
        ])
        .blocks()
        .why("an interruptible wait; argument 5 points at a mask and its size"),
    special(271, "ppoll", Door::Poll, Order::Return, Class::Poll)
        .fd(InMemory)
        .outs(&[Out::ArgItems { arg: 0, count_arg: 1, size: POLLFD }, Out::Always { arg: 2, len: TIMESPEC }])
        .ins(&[I1, In::Pollfds { arg: 0, count_arg: 1 }, fin(2, TIMESPEC), L4])
        .blocks()
        .why("an interruptible wait"),
    refused(
        272,
        "unshare",
        "the standby stays in the old namespaces or the shared table; a re-clone follows",
    )
    .ins(&[L0]),
    special(273, "set_robust_list", Door::ThreadArea, Order::None, Class::Thread).ins(&[L1]).why(OWN_AREA),
    special(274, "get_robust_list", Door::ThreadArea, Order::None, Class::Thread)
        .ins(&[I0])
        .why("answers the guest's head, not the runtime's"),
    special(275, "splice", Door::Splice, Order::Enter, Class::Write)
        .fd(UsesTwo(0, 2))
        .outs(&[fx(1, 8), fx(3, 8)])
        .ins(&[I0, fin(1, 8), I2, fin(3, 8), L4, I5])
        .blocks()
        .why("no bytes in the log: in doubt, offsets and pipes tell"),
    special(276, "tee", Door::Splice, Order::Enter, Class::Write)
        .fd(UsesTwo(0, 1))
        .ins(&[I0, I1, L2, I3])
        .blocks()
        .why("no bytes in the log"),
    act(277, "sync_file_range").interrupts().fd(Uses(0)).ins(&[I0, L1, L2, I3]),
    special(278, "vmsplice", Door::Vmsplice, Order::Enter, Class::Write)
        .fd(Uses(0))
        .ins(&[I0, L2, I3])
        .blocks()
        .why("the kernel keeps guest pages after the call; from a pipe it writes them"),
    special(279, "move_pages", Door::Pid, Order::None, Class::Memory)
        .outs(&[Out::ArgItems { arg: 4, count_arg: 1, size: 4 }])
        .ins(&[I0, L1, I5])
        .why(IDENTITY_ARG),
    act(280, "utimensat").fd(UsesAt(0)).ins(&[I0, S1, fin(2, 32), I3]),
    special(281, "epoll_pwait", EPOLL_WAIT, Order::Return, Class::Poll)
        .fd(Uses(0))
        .outs(&[Out::ResultItems { arg: 1, size: EPOLL_EVENT }])
        .ins(&[I0, I2, I3, L5])
        .blocks()
        .why("tokens become data words again"),
    special(282, "signalfd", Door::Signalfd, Order::Enter, Class::Signal)
        .fd(CreatesUnless(0))
        .ins(&[I0, fin(1, 8), L2])
        .why("reads the reader's signals: opened again at promotion"),
    special(283, "timerfd_create", Door::Object, Order::Return, Class::Time)
        .fd(Creates)
        .ins(&[I0, I1])
        .why(OBJECT),
    special(284, "eventfd", Door::Object, Order::Return, Class::Other).fd(Creates).ins(&[I0]).why(OBJECT),
    act(285, "fallocate").interrupts().fd(Uses(0)).ins(&[I0, I1, L2, L3]),
    act(286, "timerfd_settime").class(Class::Time).fd(Uses(0)).outs(&[fx(3, ITIMER)]).ins(&[
        I0,
        I1,
        fin(2, ITIMER),
    ]),
    learn(287, "timerfd_gettime").observes().class(Class::Time).fd(Uses(0)).outs(&[fx(1, ITIMER)]).ins(&[I0]),
    special(288, "accept4", Door::Accept, Order::Return, Class::Other)
        .interrupts()
        .fd(CreatesFrom(0))
        .outs(&[Out::SockLen { arg: 1, len_arg: 2 }])
        .ins(&[I0, I3])
        .blocks()
        .why("a connection accepted and not logged is found again in the table"),
    special(289, "signalfd4", Door::Signalfd, Order::Enter, Class::Signal)
        .fd(CreatesUnless(0))
        .ins(&[I0, fin(1, 8), L2, I3])
        .why("reads the reader's signals: opened again at promotion"),
    special(290, "eventfd2", Door::Object, Order::Return, Class::Other)
        .fd(Creates)
        .ins(&[I0, I1])
        .why(OBJECT),
    special(291, "epoll_create1", EPOLL_CREATE, Order::Return, Class::Poll)
        .fd(Creates)
        .ins(&[I0])
        .why(OBJECT),
    special(292, "dup3", Door::Dup, Order::Both, Class::Other)
        .fd(Dups { from: 0, to: Some(1) })
        .ins(&[I0, I1, I2])
        .why("closes the target: identity decides when in doubt"),
    special(293, "pipe2", Door::Pipe, Order::Return, Class::Other)
        .fd(CreatesPair { arg: 0 })
        .outs(&[fx(0, 8)])
        .ins(&[I1])
        .why(OBJECT),
    special(294, "inotify_init1", Door::Object, Order::Return, Class::Other)
        .fd(Creates)
        .ins(&[I0])
        .why(OBJECT),
    special(295, "preadv", Door::Readv, Order::Return, Class::Read)
        .fd(Uses(0))
        .outs(&[Out::Iovec { arg: 1, count_arg: 2 }])
        .ins(&[I0, L2, iov_lens(1, 2), L3])
        .blocks()
        .why("read into the ring first, then scattered"),
    special(296, "pwritev", Door::Writev, Order::Enter, Class::Write)
        .fd(Uses(0))
        .ins(&[I0, L2, iov(1, 2), L3])
        .blocks()
        .why("begun before, done after"),
    signal(297, "rt_tgsigqueueinfo", SignalDoor::Send, Order::Enter).ins(&[I0, I2]).why(IDENTITY_ARG),
    refused(298, "perf_event_open", "counts the primary's threads and maps a ring into its memory")
        .fd(Creates)
        .sticky(),
    special(299, "recvmmsg", Door::RecvMmsg, Order::Return, Class::Read)
        .fd(Message(0))
        .outs(&[Out::Mmsghdr { arg: 1 }, fx(4, TIMESPEC)])
        .ins(&[I0, I2, I3, fin(4, TIMESPEC)])
        .blocks()
        .why("read into the ring first; may carry descriptors in"),
    refused(300, "fanotify_init", "each event read from it makes a descriptor that no door sees")
        .fd(Creates)
        .ins(&[I0, I1])
        .sticky(),
    act(301, "fanotify_mark").fd(UsesTwo(0, 3)).ins(&[I0, I1, L2, I3, S4]),
    mirror(302, "prlimit64")
        .outs(&[fx(3, RLIMIT)])
        .ins(&[I0, I1, fin(2, RLIMIT)])
        .why("its own: both execute at the same ticket; another's: number translated, primary only"),
    learn(303, "name_to_handle_at")
        .fd(UsesAt(0))
        .outs(&[Out::FileHandle { arg: 2 }, fx(3, 4)])
        .ins(&[I0, S1, I4]),
    special(304, "open_by_handle_at", Door::Open, Order::Both, Class::Other)
        .fd(CreatesAt(0))
        .ins(&[I0, fin(1, 8), I2])
        .why(OBJECT),
    learn(305, "clock_adjtime").class(Class::Time).outs(&[fx(1, TIMEX)]).ins(&[I0, fin(1, 4)]),
    act(306, "syncfs").fd(Uses(0)).ins(&[I0]),
    special(307, "sendmmsg", Door::SendMmsg, Order::Enter, Class::Write)
        .fd(Message(0))
        .outs(&[Out::MmsgLens { arg: 1 }])
        .ins(&[I0, I2, In::Mmsghdr { arg: 1, count_arg: 2 }, I3])
        .blocks()
        .why("may carry descriptors out"),
    refused(308, "setns", "the standby stays in the old namespace; a re-clone follows")
        .fd(Uses(0))
        .ins(&[I0, I1]),
    plain(309, "getcpu").observes().outs(&[fx(0, 4), fx(1, 4)]),
    special(310, "process_vm_readv", Door::Pid, Order::Return, Class::Memory)
        .outs(&[Out::Iovec { arg: 1, count_arg: 2 }])
        .ins(&[I0, L2, L4, L5])
        .why("of itself (unwinders probe so) each copy reads its own memory; of another it is recorded"),
    refused(311, "process_vm_writev", "the other process's standby does not see the bytes"),
    special(312, "kcmp", Door::Pid, Order::Return, Class::Other).ins(&[I0, I1, I2]).why(IDENTITY_ARG),
    act(313, "finit_module").fd(Uses(0)).ins(&[I0, S1, I2]).why("all effect is in the kernel"),
    thread(314, "sched_setattr").ins(&[I0, I2]),
    thread_get(315, "sched_getattr").outs(&[Out::ArgBytes { arg: 1, len_arg: 2 }]).ins(&[I0, I2, I3]),
    both(316, "renameat2").fd(UsesAtTwo(0, 2)).ins(&[I0, S1, I2, S3, I4]),
    refused(317, "seccomp", "the filter also judges the runtime's own calls, those of a re-clone among them")
        .sticky(),
    plain(318, "getrandom").observes().interrupts().outs(&[Out::Result { arg: 0 }]).ins(&[L1, I2]),
    special(319, "memfd_create", Door::Object, Order::Return, Class::Memory)
        .fd(Creates)
        .ins(&[S0, I1])
        .why(OBJECT),
    act(320, "kexec_file_load").fd(UsesTwo(0, 1)).ins(&[I0, I1, L2, L4]).why("all effect is in the kernel"),
    refused(321, "bpf", "its commands write through pointers inside a union and make descriptors")
        .fd(InMemory)
        .ins(&[I0]),
    special(322, "execveat", Door::Exec, Order::Enter, Class::Thread)
        .fd(Process)
        .ins(&[I0, S1, In::StrArray { arg: 2 }, I4])
        .why("waits until the standby is gone; the new image makes a new one"),
    refused(323, "userfaultfd", "faults of one address space: no copy's faults would arrive")
        .fd(Creates)
        .sticky(),
    local(324, "membarrier", Class::Thread).why("registration belongs to the address space"),
    special(325, "mlock2", Door::Mlock, Order::None, Class::Memory).ins(&[L1, I2]).why(LOCKED),
    special(326, "copy_file_range", Door::Sendfile, Order::Enter, Class::Write)
        .fd(UsesTwo(0, 2))
        .outs(&[fx(1, 8), fx(3, 8)])
        .ins(&[I0, fin(1, 8), I2, fin(3, 8), L4, I5])
        .blocks()
        .why("no bytes in the log: in doubt, offsets tell"),
    special(327, "preadv2", Door::Readv, Order::Return, Class::Read)
        .fd(Uses(0))
        .outs(&[Out::Iovec { arg: 1, count_arg: 2 }])
        .ins(&[I0, L2, iov_lens(1, 2), L3, I5])
        .blocks()
        .why("read into the ring first, then scattered"),
    special(328, "pwritev2", Door::Writev, Order::Enter, Class::Write)
        .fd(Uses(0))
        .ins(&[I0, L2, iov(1, 2), L3, I5])
        .blocks()
        .why("begun before, done after"),
    local(329, "pkey_mprotect", Class::Memory),
    mirror(330, "pkey_alloc").class(Class::Memory).ins(&[I0, I1]),
    mirror(331, "pkey_free").class(Class::Memory).ins(&[I0]),
    learn(332, "statx").observes().fd(UsesAt(0)).outs(&[fx(4, STATX)]).ins(&[I0, S1, I2, I3]),
    declined(333, "io_pgetevents", AIO).blocks(),
    special(334, "rseq", Door::ThreadArea, Order::None, Class::Thread).ins(&[I1, I2, I3]).why(OWN_AREA),
    local(335, "uretprobe", Class::Other).why("called only from the kernel's own trampoline"),
    local(336, "uprobe", Class::Other).why("called only from the kernel's own trampoline"),
    signal(424, "pidfd_send_signal", SignalDoor::Send, Order::Enter)
        .fd(Uses(0))
        .ins(&[I0, I1, I3])
        .why("the descriptor may name a process that has been replaced since"),
    r(425, "io_uring_setup", Denied(ENOSYS), Order::None, Class::Other)
        .why("completions arrive in shared memory without a door; programs fall back"),
    r(426, "io_uring_enter", Denied(ENOSYS), Order::None, Class::Other).interrupts().why("no ring can exist"),
    r(427, "io_uring_register", Denied(ENOSYS), Order::None, Class::Other).why("no ring can exist"),
    special(428, "open_tree", Door::Object, Order::Return, Class::Other)
        .fd(CreatesAt(0))
        .ins(&[I0, S1, I2])
        .why(OBJECT),
    act(429, "move_mount")
        .fd(UsesAtTwo(0, 2))
        .ins(&[I0, S1, I2, S3, I4])
        .why("the mount namespace is shared"),
    special(430, "fsopen", Door::Object, Order::Return, Class::Other).fd(Creates).ins(&[S0, I1]).why(OBJECT),
    act(431, "fsconfig")
        .fd(Uses(0))
        .ins(&[I0, I1, S2, I4])
        .why("the value's kind depends on the command and stays out of the digest"),
    special(432, "fsmount", Door::Object, Order::Return, Class::Other)
        .fd(CreatesFrom(0))
        .ins(&[I0, I1, I2])
        .why(OBJECT),
    special(433, "fspick", Door::Object, Order::Return, Class::Other)
        .fd(CreatesAt(0))
        .ins(&[I0, S1, I2])
        .why(OBJECT),
    special(434, "pidfd_open", Door::Object, Order::Return, Class::Thread)
        .fd(Creates)
        .ins(&[I0, I1])
        .why("names a real process: opened again when that process is replaced"),
    special(435, "clone3", Door::Clone, Order::Enter, Class::Thread)
        .ins(&[L1, fin(0, 8)])
        .why("a thread takes a slot and a ring; a process makes its own standby"),
    special(436, "close_range", Door::CloseRange, Order::Enter, Class::Other)
        .fd(ClosesRange { first: 0, last: 1 })
        .ins(&[I0, I1, I2])
        .why("spares the runtime's descriptors; CLOSE_RANGE_UNSHARE would part the table"),
    special(437, "openat2", Door::Open, Order::Both, Class::Other)
        .interrupts()
        .fd(CreatesAt(0))
        .ins(&[I0, S1, L3, bytes(2, 3)])
        .blocks()
        .why(OBJECT),
    special(438, "pidfd_getfd", Door::Object, Order::Return, Class::Other)
        .fd(CreatesFrom(0))
        .ins(&[I0, I1, I2])
        .why(OBJECT),
    learn(439, "faccessat2").observes().fd(UsesAt(0)).ins(&[I0, S1, I2, I3]),
    refused(
        440,
        "process_madvise",
        "the descriptor names the primary: no copy may advise its own memory with it",
    )
    .fd(Uses(0))
    .ins(&[I0, L2, I3, I4]),
    special(441, "epoll_pwait2", EPOLL_WAIT, Order::Return, Class::Poll)
        .fd(Uses(0))
        .outs(&[Out::ResultItems { arg: 1, size: EPOLL_EVENT }])
        .ins(&[I0, I2, fin(3, TIMESPEC), L5])
        .blocks()
        .why("tokens become data words again"),
    act(442, "mount_setattr")
        .fd(UsesAt(0))
        .ins(&[I0, S1, I2, L4, bytes(3, 4)])
        .why("the mount namespace is shared"),
    both(443, "quotactl_fd").fd(Uses(0)).outs(&[Out::ByCommand { arg: 3, cmd_arg: 1 }]).ins(&[I0, I1, I2]),
    special(444, "landlock_create_ruleset", Door::Object, Order::Return, Class::Other)
        .fd(Creates)
        .ins(&[L1, bytes(0, 1), I2])
        .why("with a flag it answers a version, no descriptor"),
    act(445, "landlock_add_rule").fd(Uses(0)).ins(&[I0, I1, I3]),
    refused(
        446,
        "landlock_restrict_self",
        "bound to the thread; the standby cannot use a descriptor that may be closed by then",
    )
    .fd(Uses(0))
    .ins(&[I0, I1]),
    refused(447, "memfd_secret", "memory that is to exist once would exist twice")
        .fd(Creates)
        .ins(&[I0])
        .sticky(),
    act(448, "process_mrelease").fd(Uses(0)).ins(&[I0, I1]),
    special(449, "futex_waitv", Door::Futex, Order::Return, Class::Lock)
        .interrupts()
        .ins(&[I1, I2])
        .blocks()
        .why("the runtime's own restartable wait"),
    local(450, "set_mempolicy_home_node", Class::Memory),
    learn(451, "cachestat").observes().fd(Uses(0)).outs(&[fx(2, 40)]).ins(&[I0, fin(1, 16), I3]),
    act(452, "fchmodat2").fd(UsesAt(0)).ins(&[I0, S1, I2, I3]),
    refused(453, "map_shadow_stack", "a re-clone cannot put a thread back onto its shadow stack").sticky(),
    special(454, "futex_wake", Door::Futex, Order::Enter, Class::Lock)
        .ins(&[L1, I2, I3])
        .why("begun before: others may see it"),
    special(455, "futex_wait", Door::Futex, Order::Return, Class::Lock)
        .ins(&[L1, L2, I3])
        .blocks()
        .why("the runtime's own restartable wait"),
    special(456, "futex_requeue", Door::Futex, Order::Enter, Class::Lock)
        .ins(&[I1, I2, I3])
        .why("begun before: others may see it"),
    learn(457, "statmount")
        .outs(&[Out::ArgBytes { arg: 1, len_arg: 2 }])
        .ins(&[L2, I3, fin(0, 24)])
        .why("offsets inside the buffer, no addresses"),
    learn(458, "listmount").outs(&[Out::ResultItems { arg: 1, size: 8 }]).ins(&[L2, I3, fin(0, 24)]),
    plain(459, "lsm_get_self_attr").outs(&[Out::SockLen { arg: 1, len_arg: 2 }]).ins(&[I0, I3]),
    mirror(460, "lsm_set_self_attr").ins(&[I0, I2, bytes(1, 2), I3]),
    plain(461, "lsm_list_modules").outs(&[Out::SockLen { arg: 0, len_arg: 1 }]).ins(&[I2]),
    local(462, "mseal", Class::Memory)
        .why("a sealed private file mapping cannot be replaced at a re-clone: the copy goes unprotected"),
    act(463, "setxattrat").fd(UsesAt(0)).ins(&[I0, S1, I2, S3, L5]),
    learn(464, "getxattrat")
        .observes()
        .fd(UsesAt(0))
        .outs(&[Out::XattrArgs { arg: 4 }])
        .ins(&[I0, S1, I2, S3, L5]),
    learn(465, "listxattrat").observes().fd(UsesAt(0)).outs(&[upto(3, 4)]).ins(&[I0, S1, I2, L4]),
    act(466, "removexattrat").fd(UsesAt(0)).ins(&[I0, S1, I2, S3]),
    special(467, "open_tree_attr", Door::Object, Order::Return, Class::Other)
        .fd(CreatesAt(0))
        .ins(&[I0, S1, I2, L4, bytes(3, 4)])
        .why(OBJECT),
    learn(468, "file_getattr")
        .observes()
        .fd(UsesAt(0))
        .outs(&[Out::ArgBytes { arg: 2, len_arg: 3 }])
        .ins(&[I0, S1, L3, I4]),
    act(469, "file_setattr").fd(UsesAt(0)).ins(&[I0, S1, L3, bytes(2, 3), I4]),
    learn(470, "listns").outs(&[Out::ResultItems { arg: 1, size: 8 }]).ins(&[L2, I3]),
    local(471, "rseq_slice_yield", Class::Thread),
];

/// The highest number with a row.
pub const HIGHEST: u16 = ROWS[ROWS.len() - 1].nr;

/// The rows by number; `None` where the kernel has no call.
pub static TABLE: [Option<Row>; HIGHEST as usize + 1] = spread();

const fn spread() -> [Option<Row>; HIGHEST as usize + 1] {
    let mut table = [None; HIGHEST as usize + 1];
    let mut i = 0;
    while i < ROWS.len() {
        let mut row = ROWS[i];
        assert!(i == 0 || ROWS[i - 1].nr < row.nr, "rows ascend, no number twice");
        row.guest = guest_of(row.name);
        table[row.nr as usize] = Some(row);
        i += 1;
    }
    table
}

/// The guest that exercises a call, from `guests.rs`.
const fn guest_of(name: &str) -> &'static str {
    let mut i = 0;
    while i < GUESTS.len() {
        let (guest, calls) = GUESTS[i];
        let mut j = 0;
        while j < calls.len() {
            if same(calls[j].as_bytes(), name.as_bytes()) {
                return guest;
            }
            j += 1;
        }
        i += 1;
    }
    ""
}

// A guest that names no call, misspelt for instance, would leave a row without its test in silence.
const _: () = {
    let mut i = 0;
    while i < GUESTS.len() {
        let mut j = 0;
        while j < GUESTS[i].1.len() {
            let mut k = 0;
            while !same(ROWS[k].name.as_bytes(), GUESTS[i].1[j].as_bytes()) {
                k += 1;
                assert!(k < ROWS.len(), "guests.rs names a call that has no row");
            }
            j += 1;
        }
        i += 1;
    }
};

const fn same(a: &[u8], b: &[u8]) -> bool {
    if a.len() != b.len() {
        return false;
    }
    let mut i = 0;
    while i < a.len() {
        if a[i] != b[i] {
            return false;
        }
        i += 1;
    }
    true
}
