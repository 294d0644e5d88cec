//! The doors written by hand.

/// A door written by hand.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Door {
    /// read, pread64: into the ring, then copied out; larger than an event: in pieces.
    Read,
    /// readv, preadv, preadv2.
    Readv,
    /// recvfrom.
    Recv,
    /// recvmsg.
    RecvMsg,
    /// recvmmsg.
    RecvMmsg,
    /// write, pwrite64: begun before, done after.
    Write,
    /// writev, pwritev, pwritev2.
    Writev,
    /// sendto.
    Send,
    /// sendmsg.
    SendMsg,
    /// sendmmsg.
    SendMmsg,
    /// sendfile, copy_file_range: bytes move inside the kernel; in doubt, the offsets tell.
    Sendfile,
    /// msgrcv, mq_timedreceive: a message taken from a queue, into the ring.
    Receive,
    /// getdents, getdents64: the directory's offset is logged before, so that a call in doubt can be repeated.
    Getdents,
    /// semctl: how much GETALL writes is asked first.
    Semctl,
    /// splice, tee.
    Splice,
    /// vmsplice: the kernel keeps references to guest pages after the call.
    Vmsplice,
    /// open, openat, openat2, creat: a descriptor with an identity in the shadow table.
    Open,
    /// close.
    Close,
    /// close_range.
    CloseRange,
    /// dup, dup2, dup3.
    Dup,
    /// pipe, pipe2.
    Pipe,
    /// socket, socketpair.
    Socket,
    /// accept, accept4.
    Accept,
    /// connect: in doubt, the socket's state tells.
    Connect,
    /// The epoll family: data words are tokens.
    Epoll(EpollDoor),
    /// poll, ppoll.
    Poll,
    /// select, pselect6.
    Select,
    /// mmap: the result travels in the log, files through the helper task.
    Mmap,
    /// munmap: local, but the runtime's own ranges are kept out of reach and shared maps leave the family.
    Munmap,
    /// mremap: like mmap for the address.
    Mremap,
    /// brk.
    Brk,
    /// madvise: local, but fork-related advice (MADV_DONTFORK, MADV_WIPEONFORK) would punch holes into the next
    /// re-clone and is only remembered, and MADV_REMOVE reaches the file.
    Madvise,
    /// mlock and kin: the primary's at once, the standby's at promotion.
    Mlock,
    /// shmat, shmdt: memory shared with other processes.
    Shm,
    /// clone, clone3, fork, vfork.
    Clone,
    /// execve, execveat: the standby is gone before the image is.
    Exec,
    /// exit of one thread.
    Exit,
    /// exit_group.
    ExitGroup,
    /// Numbers of processes and threads: the group's, not the kernel's.
    Identity,
    /// A call that names a process or thread by such a number: translated at the door, then recorded.
    Pid,
    /// Signals.
    Signal(SignalDoor),
    /// futex and futex_*: the runtime's own restartable wait.
    Futex,
    /// Clocks, read without a trap where possible.
    Time,
    /// nanosleep and kin: interruptible, the standby does not sleep.
    Sleep,
    /// Interval and POSIX timers, alarm: a shadow made real at promotion.
    Timer,
    /// chdir, fchdir, chroot: shadowed, applied at promotion.
    Chdir,
    /// State of the process itself that must be true in both copies (credentials, rlimits, umask): the
    /// primary executes and logs, the standby executes the same at the same ticket and compares.
    Mirror,
    /// State of the calling thread where each copy runs elsewhere (affinity, priority): the primary's is
    /// real and logged, the standby's is a shadow made real at promotion.
    Thread,
    /// fcntl, by command.
    Fcntl,
    /// ioctl, by request.
    Ioctl,
    /// prctl, by option.
    Prctl,
    /// wait4, waitid: child numbers are the group's.
    Wait,
    /// set_robust_list, set_tid_address, rseq, arch_prctl: local, but the runtime's own registration comes first.
    ThreadArea,
    /// signalfd: bound to the reader's process; an object of the re-open class.
    Signalfd,
    /// inotify, timerfd, pidfd and others whose descriptor must enter the shadow table.
    Object,
}

/// The epoll family.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum EpollDoor {
    /// epoll_create, epoll_create1.
    Create,
    /// epoll_ctl: the data word becomes a token.
    Ctl,
    /// epoll_wait, epoll_pwait, epoll_pwait2: tokens become data words again.
    Wait,
}

/// What a signal call does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum SignalDoor {
    /// rt_sigaction: both copies keep the disposition, the runtime's handler stands in the kernel.
    Action,
    /// rt_sigprocmask: the guest's mask is a shadow; SIGSYS is kept out of the real one.
    Mask,
    /// sigaltstack: local, shadowed for the re-clone.
    Stack,
    /// rt_sigreturn: the guest's frame is emulated.
    Return,
    /// kill, tkill, tgkill, rt_sigqueueinfo ...: numbers translated, primary only.
    Send,
    /// rt_sigtimedwait: takes a signal from the queue, blocks.
    Wait,
    /// pause, rt_sigsuspend: blocks until a handler has run.
    Suspend,
    /// rt_sigpending: what the kernel holds and what the runtime queued.
    Pending,
}

impl Door {
    /// Whether each copy acts on its own memory, thread or shadow behind it: nothing outside, and no event that a signal
    /// could be delivered at.
    pub const fn both_execute(self) -> bool {
        matches!(
            self,
            Door::Munmap
                | Door::Brk
                | Door::Madvise
                | Door::Mremap
                | Door::Futex
                | Door::Identity
                | Door::Mirror
                | Door::ThreadArea
                | Door::Time
        )
    }
}
