//! Calls whose buffers depend on a command: ioctl, fcntl, prctl, socket options, clone.
//!
//! Everything here is asked with the register's whole value; commands are `int`s, so only the low half counts.

use crate::Order;

/// Which way the bytes at argument 2 of an ioctl go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum IoctlDir {
    /// The kernel reads.
    In,
    /// The kernel writes.
    Out,
    /// Both.
    InOut,
}

/// What an ioctl does with argument 2.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum IoctlOut {
    /// `len` bytes in direction `dir`.
    Bytes {
        /// Direction.
        dir: IoctlDir,
        /// Bytes at argument 2.
        len: u32,
    },
    /// Argument 2 is a plain number, or ignored.
    Scalar,
    /// The result is a new descriptor; argument 2 is a plain number, or ignored.
    Creates,
    /// A `struct ifreq`: the first 16 bytes (the name) enter the digest, since the rest is a union with whatever
    /// lay there; with `out`, all 40 bytes are written.
    Ifreq {
        /// The kernel writes.
        out: bool,
    },
    /// `struct ifconf`, 16 bytes: the `int` at offset 0 is a length before and after the call, and that many
    /// bytes are at the pointer at offset 8. Not in the digest.
    Ifconf,
    /// SIOCETHTOOL: a `struct ifreq` whose pointer at offset 16 is a structure's that begins with a command:
    /// [`ethtool_out`].
    Ethtool,
    /// The kernel reads a structure that holds pointers: nothing is written, nothing enters the digest.
    Opaque,
    /// A process or session number, 4 bytes, is written (`out`) or read: translated like getpid's.
    Pid {
        /// The kernel writes.
        out: bool,
    },
    /// Nobody knows: treat as refused.
    Unknown,
}

/// What the third argument of fcntl is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FcntlArg {
    /// Not used.
    None,
    /// A number.
    Scalar,
    /// A process (or, negative, group) number, to be translated (F_SETOWN).
    Pid,
    /// `struct f_owner_ex`, 8 bytes: a kind and a number to be translated; `out`: written by the kernel.
    OwnerEx {
        /// The kernel writes.
        out: bool,
    },
    /// `struct flock`, 32 bytes. Bytes 0..4 and 8..24 enter the digest, the rest is padding and an owner that
    /// the kernel ignores. `out`: all of it is written, the owner's number at 24 to be translated.
    Flock {
        /// The kernel writes.
        out: bool,
    },
    /// The kernel reads `len` bytes.
    In {
        /// Bytes.
        len: u32,
    },
    /// The kernel writes `len` bytes.
    Out {
        /// Bytes.
        len: u32,
    },
}

/// The shape of one fcntl command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Fcntl {
    /// The third argument.
    pub arg: FcntlArg,
    /// When it takes its ticket.
    pub order: Order,
    /// The result is a new descriptor.
    pub creates: bool,
    /// May sleep (F_SETLKW and kin).
    pub blocks: bool,
    /// The result is a process (or, negative, group) number, to be translated (F_GETOWN).
    pub pid_result: bool,
}

/// The policy of one prctl option.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Prctl {
    /// Both copies execute it.
    Local,
    /// The primary executes it; `out` bytes at argument 1 are written (0: none).
    Recorded {
        /// Bytes at argument 1.
        out: u32,
    },
    /// The runtime keeps it: a standby's own value differs until promotion (its name says what it is).
    Shadow,
    /// Both execute it at the same ticket.
    Mirror,
    /// The standby is given up.
    Refused,
    /// Answered with this errno in every copy.
    Denied(i32),
}

/// What the value of a socket option holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SockOpt {
    /// Bytes.
    Plain,
    /// A pointer: keep the value out of the digest.
    Pointer,
    /// The value written holds a new descriptor (SO_PEERPIDFD).
    Creates,
    /// Maps memory, writes through a pointer, or counts in another unit than bytes: refuse.
    Refused,
}

/// What the flags of clone share with the new task.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sharing {
    /// A thread with its own TLS: the usual pthread.
    Thread,
    /// A child with its own memory.
    Process,
    /// vfork: the parent sleeps, memory is shared.
    Vfork,
    /// Shared memory, but no thread block of its own: passed through, protection pauses.
    Foreign,
}

const fn bytes(dir: IoctlDir, len: u32) -> IoctlOut {
    IoctlOut::Bytes { dir, len }
}

/// What ioctl `request` does with argument 2.
///
/// Requests that encode their size are believed only for kinds of device whose structures are known to be flat:
/// the size says nothing of pointers inside, and bytes written behind one would be missing in the standby.
pub const fn ioctl_out(request: u64) -> IoctlOut {
    let request = request as u32;
    match request >> 8 {
        0x00 => files(request),
        0x12 => block(request),
        0x4c => loop_device(request),
        0x54 => terminal(request),
        0x89 => socket(request),
        0xb7 => namespace(request),
        // PIDFD_GET_*_NAMESPACE.
        0xff if request <= 0xff0a => IoctlOut::Creates,
        _ => sized(request),
    }
}

/// FIBMAP, FIGETBSZ.
const fn files(request: u32) -> IoctlOut {
    match request {
        0x01 => bytes(IoctlDir::InOut, 4),
        0x02 => bytes(IoctlDir::Out, 4),
        _ => IoctlOut::Unknown,
    }
}

/// Block devices, the requests that carry no size.
const fn block(request: u32) -> IoctlOut {
    match request {
        // BLKROSET
        0x125d => bytes(IoctlDir::In, 4),
        // BLKROGET, BLKSSZGET, BLKIOMIN, BLKIOOPT, BLKALIGNOFF, BLKPBSZGET, BLKDISCARDZEROES
        0x125e | 0x1268 | 0x1278..=0x127c => bytes(IoctlDir::Out, 4),
        // BLKRRPART, BLKFLSBUF, BLKRASET, BLKFRASET
        0x125f | 0x1261 | 0x1262 | 0x1264 => IoctlOut::Scalar,
        // BLKGETSIZE, BLKRAGET, BLKFRAGET
        0x1260 | 0x1263 | 0x1265 => bytes(IoctlDir::Out, 8),
        // BLKSECTGET, BLKROTATIONAL
        0x1267 | 0x127e => bytes(IoctlDir::Out, 2),
        // BLKDISCARD, BLKSECDISCARD, BLKZEROOUT
        0x1277 | 0x127d | 0x127f => bytes(IoctlDir::In, 16),
        _ => IoctlOut::Unknown,
    }
}

/// Loop devices.
const fn loop_device(request: u32) -> IoctlOut {
    match request {
        // LOOP_SET_FD, LOOP_CLR_FD, LOOP_CHANGE_FD, LOOP_SET_CAPACITY .. LOOP_SET_BLOCK_SIZE, LOOP_CTL_*
        0x4c00 | 0x4c01 | 0x4c06..=0x4c09 | 0x4c80..=0x4c82 => IoctlOut::Scalar,
        // LOOP_SET_STATUS64, LOOP_GET_STATUS64, LOOP_CONFIGURE
        0x4c04 => bytes(IoctlDir::In, 232),
        0x4c05 => bytes(IoctlDir::Out, 232),
        0x4c0a => bytes(IoctlDir::In, 304),
        _ => IoctlOut::Unknown,
    }
}

/// Terminals, and the requests every descriptor has (FIONREAD, FIONBIO ...).
const fn terminal(request: u32) -> IoctlOut {
    match request {
        // TCGETS, TIOCGLCKTRMIOS
        0x5401 | 0x5456 => bytes(IoctlDir::Out, 36),
        // TCSETS, TCSETSW, TCSETSF, TIOCSLCKTRMIOS
        0x5402..=0x5404 | 0x5457 => bytes(IoctlDir::In, 36),
        // TCGETA; TCSETA, TCSETAW, TCSETAF
        0x5405 => bytes(IoctlDir::Out, 18),
        0x5406..=0x5408 => bytes(IoctlDir::In, 18),
        // TCSBRK, TCXONC, TCFLSH, TIOCEXCL, TIOCNXCL, TIOCSCTTY; TIOCCONS; TIOCNOTTY; TCSBRKP; TIOCSBRK, TIOCCBRK;
        // TIOCVHANGUP; FIONCLEX, FIOCLEX; TIOCMIWAIT
        0x5409..=0x540e | 0x541d | 0x5422 | 0x5425 | 0x5427 | 0x5428 | 0x5437 | 0x5450 | 0x5451 | 0x545c => {
            IoctlOut::Scalar
        }
        // TIOCGPGRP, TIOCGSID; TIOCSPGRP
        0x540f | 0x5429 => IoctlOut::Pid { out: true },
        0x5410 => IoctlOut::Pid { out: false },
        // TIOCOUTQ (SIOCOUTQ), TIOCMGET, TIOCGSOFTCAR, FIONREAD (TIOCINQ, SIOCINQ), TIOCGETD
        0x5411 | 0x5415 | 0x5419 | 0x541b | 0x5424 => bytes(IoctlDir::Out, 4),
        // TIOCSTI
        0x5412 => bytes(IoctlDir::In, 1),
        // TIOCGWINSZ; TIOCSWINSZ
        0x5413 => bytes(IoctlDir::Out, 8),
        0x5414 => bytes(IoctlDir::In, 8),
        // TIOCMBIS, TIOCMBIC, TIOCMSET, TIOCSSOFTCAR, TIOCPKT, FIONBIO, TIOCSETD, FIOASYNC
        0x5416..=0x5418 | 0x541a | 0x5420 | 0x5421 | 0x5423 | 0x5452 => bytes(IoctlDir::In, 4),
        // TIOCGRS485; TIOCSRS485
        0x542e => bytes(IoctlDir::Out, 32),
        0x542f => bytes(IoctlDir::InOut, 32),
        // TIOCGPTPEER
        0x5441 => IoctlOut::Creates,
        // TIOCGICOUNT
        0x545d => bytes(IoctlDir::Out, 80),
        // FIOQSIZE
        0x5460 => bytes(IoctlDir::Out, 8),
        _ => IoctlOut::Unknown,
    }
}

/// Sockets and network interfaces.
const fn socket(request: u32) -> IoctlOut {
    match request {
        // FIOSETOWN, SIOCSPGRP; FIOGETOWN, SIOCGPGRP
        0x8901 | 0x8902 => IoctlOut::Pid { out: false },
        0x8903 | 0x8904 => IoctlOut::Pid { out: true },
        // SIOCATMARK, SIOCOUTQNSD
        0x8905 | 0x894b => bytes(IoctlDir::Out, 4),
        // SIOCGSTAMP, SIOCGSTAMPNS
        0x8906 | 0x8907 => bytes(IoctlDir::Out, 16),
        // SIOCADDRT, SIOCDELRT: a route names its device through a pointer
        0x890b | 0x890c => IoctlOut::Opaque,
        0x8912 => IoctlOut::Ifconf,
        0x8946 => IoctlOut::Ethtool,
        // SIOCGIFNAME, -FLAGS, -ADDR, -DSTADDR, -BRDADDR, -NETMASK, -METRIC, -MEM, -MTU, -ENCAP, -HWADDR, -SLAVE,
        // -INDEX, -PFLAGS, -COUNT, -TXQLEN, -MAP; SIOCGMIIPHY, SIOCGMIIREG
        0x8910 | 0x8913 | 0x8915 | 0x8917 | 0x8919 | 0x891b | 0x891d | 0x891f | 0x8921 | 0x8925 | 0x8927
        | 0x8929 | 0x8933 | 0x8935 | 0x8938 | 0x8942 | 0x8947 | 0x8948 | 0x8970 => {
            IoctlOut::Ifreq { out: true }
        }
        // their setters, SIOCADDMULTI, SIOCDELMULTI, SIOCDIFADDR, SIOCSMIIREG
        0x8911
        | 0x8914
        | 0x8916
        | 0x8918
        | 0x891a
        | 0x891c
        | 0x891e
        | 0x8920
        | 0x8922..=0x8924
        | 0x8926
        | 0x8930..=0x8932
        | 0x8934
        | 0x8936
        | 0x8937
        | 0x8943
        | 0x8949
        | 0x8971 => IoctlOut::Ifreq { out: false },
        // SIOCGSKNS
        0x894c => IoctlOut::Creates,
        // SIOCDARP, SIOCGARP, SIOCSARP: 68 bytes
        0x8953 | 0x8955 => bytes(IoctlDir::In, 68),
        0x8954 => bytes(IoctlDir::InOut, 68),
        _ => IoctlOut::Unknown,
    }
}

/// NS_GET_USERNS, NS_GET_PARENT, NS_GET_NSTYPE, NS_GET_OWNER_UID.
const fn namespace(request: u32) -> IoctlOut {
    match request {
        0xb701 | 0xb702 => IoctlOut::Creates,
        0xb703 => IoctlOut::Scalar,
        0xb704 => bytes(IoctlDir::Out, 4),
        _ => IoctlOut::Unknown,
    }
}

/// Requests that encode direction and size, with the kernel's own exceptions first.
const fn sized(request: u32) -> IoctlOut {
    match request {
        // FS_IOC_GETFLAGS, FS_IOC_GETVERSION; FS_IOC_SETFLAGS, FS_IOC_SETVERSION: they say long and mean int
        0x8008_6601 | 0x8008_7601 => return bytes(IoctlDir::Out, 4),
        0x4008_6602 | 0x4008_7602 => return bytes(IoctlDir::In, 4),
        // BLKBSZGET, BLKBSZSET: they say size_t and mean int
        0x8008_1270 => return bytes(IoctlDir::Out, 4),
        0x4008_1271 => return bytes(IoctlDir::In, 4),
        // FICLONE: the argument is a descriptor
        0x4004_9409 => return IoctlOut::Scalar,
        // FICLONERANGE
        0x4020_940d => return bytes(IoctlDir::In, 32),
        // TUNSETIFF, TUNSETQUEUE, TUNGETIFF: they say int and mean struct ifreq
        0x4004_54ca | 0x8004_54d2 => return IoctlOut::Ifreq { out: true },
        0x4004_54d9 => return IoctlOut::Ifreq { out: false },
        // TUNSETNOCSUM .. TUNSETGROUP, TUNSETOFFLOAD: they say int and mean the number itself
        0x4004_54c8 | 0x4004_54c9 | 0x4004_54cb..=0x4004_54ce | 0x4004_54d0 => return IoctlOut::Scalar,
        // TUNATTACHFILTER, TUNDETACHFILTER hold a pointer; TUNSETTXFILTER and TUNGETFILTER are not flat
        0x4010_54d5 | 0x4010_54d6 => return IoctlOut::Opaque,
        0x4004_54d1 | 0x8010_54db => return IoctlOut::Unknown,
        _ => {}
    }
    let (kind, number, len) = ((request >> 8) & 0xff, request & 0xff, (request >> 16) & 0x3fff);
    let flat = match kind {
        // 0x12 block devices, 'E' input devices, 'R' random, 'T' terminals, 'W' watchdogs, 0x89 sockets,
        // 0x8a epoll, 'p' clocks
        0x12 | 0x45 | 0x52 | 0x54 | 0x57 | 0x89 | 0x8a | 0x70 => true,
        // FS_IOC_FSGETXATTR, FS_IOC_FSSETXATTR, FIFREEZE, FITHAW, FITRIM: other 'X' are XFS's, with pointers
        0x58 => matches!(number, 31 | 32 | 119..=121),
        // PIDFD_GET_INFO
        0xff => number == 11,
        _ => false,
    };
    // RNDADDENTROPY carries its bytes behind the structure, RNDGETPOOL too.
    if !flat || len == 0 || (kind == 0x52 && (number == 2 || number == 3)) {
        return IoctlOut::Unknown;
    }
    match request >> 30 {
        1 => bytes(IoctlDir::In, len),
        2 => bytes(IoctlDir::Out, len),
        3 => bytes(IoctlDir::InOut, len),
        _ => IoctlOut::Unknown,
    }
}

/// The shape of fcntl command `cmd`; `None` for an unknown one, to be treated as refused.
pub const fn fcntl_shape(cmd: u64) -> Option<Fcntl> {
    let plain =
        Fcntl { arg: FcntlArg::None, order: Order::Return, creates: false, blocks: false, pid_result: false };
    let set = Fcntl { arg: FcntlArg::Scalar, order: Order::Enter, ..plain };
    let lock = Fcntl { arg: FcntlArg::Flock { out: false }, order: Order::Both, ..plain };
    Some(match cmd as u32 {
        // F_DUPFD, F_DUPFD_CLOEXEC
        0 | 1030 => Fcntl { arg: FcntlArg::Scalar, creates: true, ..plain },
        // F_GETFD, F_GETFL, F_GETSIG, F_GETLEASE, F_CREATED_QUERY, F_GETPIPE_SZ, F_GET_SEALS
        1 | 3 | 11 | 1025 | 1028 | 1032 | 1034 => plain,
        // F_SETFD, F_SETFL, F_SETSIG, F_SETLEASE, F_NOTIFY, F_SETPIPE_SZ, F_ADD_SEALS
        2 | 4 | 10 | 1024 | 1026 | 1031 | 1033 => set,
        // F_GETLK, F_OFD_GETLK
        5 | 36 => Fcntl { arg: FcntlArg::Flock { out: true }, ..plain },
        // F_SETLK, F_OFD_SETLK; F_SETLKW, F_OFD_SETLKW
        6 | 37 => lock,
        7 | 38 => Fcntl { blocks: true, ..lock },
        // F_SETOWN, F_GETOWN, F_SETOWN_EX, F_GETOWN_EX, F_GETOWNER_UIDS
        8 => Fcntl { arg: FcntlArg::Pid, ..set },
        9 => Fcntl { pid_result: true, ..plain },
        15 => Fcntl { arg: FcntlArg::OwnerEx { out: false }, ..set },
        16 => Fcntl { arg: FcntlArg::OwnerEx { out: true }, ..plain },
        17 => Fcntl { arg: FcntlArg::Out { len: 8 }, ..plain },
        // F_DUPFD_QUERY compares
        1027 => Fcntl { arg: FcntlArg::Scalar, ..plain },
        // F_GET_RW_HINT, F_GET_FILE_RW_HINT; F_SET_RW_HINT, F_SET_FILE_RW_HINT
        1035 | 1037 => Fcntl { arg: FcntlArg::Out { len: 8 }, ..plain },
        1036 | 1038 => Fcntl { arg: FcntlArg::In { len: 8 }, ..set },
        _ => return None,
    })
}

/// The policy of prctl option `option`; an unknown one is refused.
pub const fn prctl_shape(option: u64) -> Prctl {
    match option as u32 {
        // PDEATHSIG: the kernel's parent of a copy is not the guest's. NAME: a standby's says what it is.
        // CHILD_SUBREAPER: were it real at once, an orphaned standby would land among the guest's children.
        // GET_TID_ADDRESS, TIMER_CREATE_RESTORE_IDS: the runtime's own business.
        1 | 2 | 15 | 16 | 36 | 37 | 40 | 77 => Prctl::Shadow,
        // DUMPABLE, KEEPCAPS, CAPBSET_READ and _DROP, SECUREBITS, MCE_KILL, NO_NEW_PRIVS, CAP_AMBIENT,
        // SPECULATION_CTRL, IO_FLUSHER, MDWE
        3 | 4 | 7 | 8 | 23 | 24 | 27 | 28 | 33 | 34 | 38 | 39 | 47 | 52 | 53 | 57 | 58 | 65 | 66 => {
            Prctl::Mirror
        }
        // UNALIGN, FPEMU, FPEXC, TIMING, ENDIAN, GET_SECCOMP, TSC, TIMERSLACK, SET_MM, THP_DISABLE, MPX,
        // TAGGED_ADDR_CTRL, MEMORY_MERGE, FUTEX_HASH, RSEQ_SLICE_EXTENSION; SET_VMA, GET_AUXV: memory or the
        // calling thread alone, or EINVAL on this architecture
        5
        | 6
        | 9..=14
        | 19..=21
        | 25
        | 26
        | 29
        | 30
        | 35
        | 41..=46
        | 50
        | 51
        | 54..=56
        | 60
        | 61
        | 63
        | 64
        | 67..=73
        | 78
        | 79
        | 0x5356_4d41
        | 0x4155_5856 => Prctl::Local,
        // TASK_PERF_EVENTS_DISABLE and _ENABLE; SET_PTRACER
        31 | 32 | 0x5961_6d61 => Prctl::Recorded { out: 0 },
        // SYSCALL_USER_DISPATCH: the guest's would replace ours, the wall before the shared table. Kernels
        // before 5.11 say EINVAL.
        59 => Prctl::Denied(22),
        // SET_SECCOMP (22), SCHED_CORE (62), shadow stacks (74 to 76) and what is not known yet.
        _ => Prctl::Refused,
    }
}

/// What socket option `name` of `level` holds; `set` for setsockopt, else getsockopt.
pub const fn sockopt_shape(level: u64, name: u64, set: bool) -> SockOpt {
    match (level as u32, name as u32, set) {
        // SO_ATTACH_FILTER, SO_ATTACH_REUSEPORT_CBPF; SO_GET_FILTER counts instructions, not bytes
        (1, 26 | 51, true) => SockOpt::Pointer,
        (1, 26, false) => SockOpt::Refused,
        // SO_PEERPIDFD
        (1, 77, false) => SockOpt::Creates,
        // TCP_ZEROCOPY_RECEIVE maps pages into the primary
        (6, 35, false) => SockOpt::Refused,
        // ip_tables, ip6_tables, arp_tables replace rules through pointers; ebtables read through one
        (0 | 41, 64..=69 | 96..=99, true) => SockOpt::Pointer,
        (0, 128..=131, _) => SockOpt::Refused,
        // PACKET_RX_RING, PACKET_TX_RING; every ring of AF_XDP: shared memory without a door
        (263, 5 | 13, true) | (283, _, _) => SockOpt::Refused,
        // SCTP_SOCKOPT_PEELOFF and _FLAGS make a descriptor, SCTP_SOCKOPT_CONNECTX3 reads through a pointer
        (132, 102 | 122, false) => SockOpt::Creates,
        (132, 111, _) => SockOpt::Refused,
        _ => SockOpt::Plain,
    }
}

/// How many bytes shmctl (31), semctl (66), msgctl (71), quotactl (179) or quotactl_fd (443) write with command `cmd`;
/// `None` when it is not told by the command (GETALL, unknown ones).
pub const fn command_out(nr: u64, cmd: u64) -> Option<u32> {
    if matches!(nr, 179 | 443) {
        return quota_out(cmd as u32 >> 8);
    }
    // IPC_64 (0x100) marks the structures that this architecture has anyway.
    Some(match (nr, cmd as u32 & !0x100) {
        // IPC_RMID, IPC_SET; SHM_LOCK, SHM_UNLOCK; GETPID, GETVAL, GETNCNT, GETZCNT, SETVAL, SETALL
        (31 | 66 | 71, 0 | 1) | (31, 11 | 12) | (66, 11 | 12 | 14..=17) => 0,
        // IPC_STAT and the _STAT, _STAT_ANY of each
        (31, 2 | 13 | 15) => 112,
        (66, 2 | 18 | 20) => 104,
        (71, 2 | 11 | 13) => 120,
        // IPC_INFO; SHM_INFO, SEM_INFO, MSG_INFO
        (31, 3) => 72,
        (31, 14) => 48,
        (66, 3 | 19) => 40,
        (71, 3 | 12) => 32,
        _ => return None,
    })
}

/// The same of quotactl, by the command without its kind of quota.
const fn quota_out(command: u32) -> Option<u32> {
    Some(match command {
        // Q_SYNC, Q_QUOTAON, Q_QUOTAOFF, Q_SETINFO, Q_SETQUOTA; Q_XQUOTAON, -OFF, Q_XSETQLIM, Q_XQUOTARM, Q_XQUOTASYNC
        0x80_0001..=0x80_0003 | 0x80_0006 | 0x80_0008 | 0x5801 | 0x5802 | 0x5804 | 0x5806 | 0x5807 => 0,
        // Q_GETFMT; Q_GETINFO; Q_GETQUOTA, Q_GETNEXTQUOTA
        0x80_0004 => 4,
        0x80_0005 => 24,
        0x80_0007 | 0x80_0009 => 72,
        // Q_XGETQUOTA, Q_XGETNEXTQUOTA; Q_XGETQSTAT; Q_XGETQSTATV
        0x5803 | 0x5809 => 112,
        0x5805 => 80,
        0x5808 => 160,
        _ => return None,
    })
}

/// How many bytes lie at the pointer of an interface's SIOCETHTOOL once it has been asked `command`: `None` for commands
/// that change something, and for answers whose length is told elsewhere. Those of ETHTOOL_GLINKSETTINGS are followed by
/// three masks of as many words as its byte 15 says, if that is above 0.
pub const fn ethtool_out(command: u32) -> Option<u32> {
    Some(match command {
        // GSET; GDRVINFO; GWOL
        0x01 => 44,
        0x03 => 196,
        0x05 => 20,
        // GMSGLVL; GLINK; GRXCSUM, GTXCSUM, GSG; GTSO; GUFO; GGSO; GFLAGS; GPFLAGS; GGRO
        0x07 | 0x0a | 0x14 | 0x16 | 0x18 | 0x1e | 0x21 | 0x23 | 0x25 | 0x27 | 0x2b => 8,
        // GCOALESCE; GRINGPARAM, GCHANNELS; GPAUSEPARAM
        0x0e => 92,
        0x10 | 0x3c => 36,
        0x12 => 16,
        // GET_TS_INFO; GEEE; GLINKSETTINGS
        0x41 => 44,
        0x44 => 40,
        ETHTOOL_GLINKSETTINGS => 48,
        _ => return None,
    })
}

/// See [`ethtool_out`].
pub const ETHTOOL_GLINKSETTINGS: u32 = 0x4c;

const CLONE_VM: u64 = 0x100;
const CLONE_VFORK: u64 = 0x4000;
const CLONE_THREAD: u64 = 0x1_0000;
const CLONE_SETTLS: u64 = 0x8_0000;

/// What `flags` of clone or clone3 share with the new task.
pub const fn clone_sharing(flags: u64) -> Sharing {
    if flags & CLONE_VM == 0 {
        Sharing::Process
    } else if flags & CLONE_THREAD != 0 && flags & CLONE_SETTLS != 0 {
        Sharing::Thread
    } else if flags & CLONE_THREAD == 0 && flags & CLONE_VFORK != 0 {
        Sharing::Vfork
    } else {
        Sharing::Foreign
    }
}
