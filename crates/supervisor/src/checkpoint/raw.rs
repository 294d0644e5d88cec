//! System calls on descriptors by their numbers, for which there is no safe wrapper.
//!
//! # Safety
//! Each call is made by numbers, with memory that lives until it returns and is as large as it says. In a process that is about
//! to become another program the numbers below that program's highest one are nobody's any more: see [`close_below`].

use std::ffi::CStr;
use std::io::{Error, Result};
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::path::Path;
use std::ptr;

use checkpoint::{Holder, Lock};

use crate::gate::kernel;

fn known(result: i32) -> Result<i32> {
    if result == -1 { Err(Error::last_os_error()) } else { Ok(result) }
}

fn owned(result: i32) -> Result<OwnedFd> {
    // SAFETY: a new descriptor is the caller's.
    known(result).map(|fd| unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Whether two descriptors, each of a process, stand for one open file.
pub(super) fn is_same_file((pid, one): (u32, RawFd), (other_pid, other): (u32, RawFd)) -> bool {
    const KCMP_FILE: i32 = 0;
    // SAFETY: see the module.
    unsafe { libc::syscall(libc::SYS_kcmp, pid, other_pid, KCMP_FILE, one, other) == 0 }
}

/// A limit of a process, soft and hard; of our own with 0.
pub(super) fn limit(pid: u32, kind: u32) -> Option<[u64; 2]> {
    let mut limit = libc::rlimit { rlim_cur: libc::RLIM_INFINITY, rlim_max: libc::RLIM_INFINITY };
    let none = ptr::null::<libc::rlimit>();
    // SAFETY: see the module.
    let told = unsafe { libc::syscall(libc::SYS_prlimit64, pid, kind, none, &raw mut limit) } == 0;
    told.then_some([limit.rlim_cur, limit.rlim_max])
}

/// An option of a socket that is a number.
pub(super) fn option(socket: &OwnedFd, level: i32, name: i32) -> Option<i32> {
    let bytes = kernel::get_all(socket, level, name)?;
    bytes.try_into().ok().map(i32::from_ne_bytes)
}

/// The descriptor of this number.
fn lent(socket: &impl AsRawFd) -> BorrowedFd<'_> {
    // SAFETY: see the module.
    unsafe { BorrowedFd::borrow_raw(socket.as_raw_fd()) }
}

/// Sets an option of a socket that is a number.
pub(super) fn set_option(socket: &impl AsRawFd, level: i32, name: i32, value: i32) -> Result<()> {
    kernel::set(lent(socket), level, name, &value)
}

/// The filter of packets (classic BPF) of a socket: its instructions, none without one.
pub(super) fn filter(socket: &OwnedFd) -> Vec<u8> {
    const SO_GET_FILTER: i32 = libc::SO_ATTACH_FILTER;
    let of = |room: *mut libc::c_void, mut count: u32| {
        // SAFETY: see the module; the kernel counts instructions here.
        let result = unsafe {
            libc::getsockopt(socket.as_raw_fd(), libc::SOL_SOCKET, SO_GET_FILTER, room, &raw mut count)
        };
        if result == 0 { count as usize } else { 0 }
    };
    let count = of(ptr::null_mut(), 0);
    let mut bytes = vec![0u8; count * size_of::<libc::sock_filter>()];
    let got = if count == 0 { 0 } else { of(bytes.as_mut_ptr().cast(), count as u32) };
    bytes.truncate(got * size_of::<libc::sock_filter>());
    bytes
}

/// Gives a socket a filter of packets.
pub(super) fn set_filter(socket: &OwnedFd, instructions: &[u8]) -> Result<()> {
    let (own, _) = instructions.as_chunks::<{ size_of::<libc::sock_filter>() }>();
    let mut own: Vec<u64> = own.iter().map(|one| u64::from_ne_bytes(*one)).collect();
    let program = libc::sock_fprog { len: own.len() as u16, filter: own.as_mut_ptr().cast() };
    kernel::set(socket, libc::SOL_SOCKET, libc::SO_ATTACH_FILTER, &program)
}

/// Has a connection reset when it is closed.
pub(super) fn reset_at_close(socket: &impl AsRawFd) {
    let linger = libc::linger { l_onoff: 1, l_linger: 0 };
    let _ = kernel::set(lent(socket), libc::SOL_SOCKET, libc::SO_LINGER, &linger);
}

/// How many connections may wait at a listening TCP socket; `None` of any other.
pub(super) fn backlog(socket: &OwnedFd) -> Option<i32> {
    const TCP_INFO: i32 = 11;
    /// Of a listener: the number of segments that have been acknowledged out of order, in a connection.
    const BACKLOG_AT: usize = 28;
    let info = kernel::get_all(socket, libc::IPPROTO_TCP, TCP_INFO)?;
    let told = info.get(BACKLOG_AT..BACKLOG_AT + 4)?.try_into().map_or(0, i32::from_le_bytes);
    (told > 0).then_some(told)
}

/// The bytes of a socket's own address, none if it cannot be told.
pub(super) fn name(socket: &OwnedFd) -> Vec<u8> {
    // SAFETY: see the module.
    address(|to, len| unsafe { libc::getsockname(socket.as_raw_fd(), to, len) })
}

/// The bytes of its peer's address, none without one.
pub(super) fn peer(socket: &OwnedFd) -> Vec<u8> {
    // SAFETY: see the module.
    address(|to, len| unsafe { libc::getpeername(socket.as_raw_fd(), to, len) })
}

fn address(ask: impl FnOnce(*mut libc::sockaddr, *mut u32) -> i32) -> Vec<u8> {
    let mut bytes = vec![0u8; size_of::<libc::sockaddr_storage>()];
    let mut len = bytes.len() as u32;
    let result = ask(bytes.as_mut_ptr().cast(), &raw mut len);
    bytes.truncate(if result == 0 { len as usize } else { 0 });
    bytes
}

/// Has a socket of messages send to an address, by its bytes.
pub(super) fn connect(socket: RawFd, peer: &[u8]) -> Result<()> {
    // SAFETY: see the module.
    known(unsafe { libc::connect(socket, peer.as_ptr().cast(), peer.len() as u32) }).map(|_| ())
}

/// Gives a socket an address, by its bytes.
pub(super) fn bind(socket: &OwnedFd, name: &[u8]) -> Result<()> {
    // SAFETY: see the module.
    known(unsafe { libc::bind(socket.as_raw_fd(), name.as_ptr().cast(), name.len() as u32) }).map(|_| ())
}

/// Has a socket accept connections.
pub(super) fn listen(socket: &OwnedFd, backlog: i32) -> Result<()> {
    // SAFETY: see the module.
    known(unsafe { libc::listen(socket.as_raw_fd(), backlog) }).map(|_| ())
}

/// A new socket.
pub(super) fn socket(domain: i32, kind: i32, protocol: i32) -> Result<OwnedFd> {
    // SAFETY: see the module.
    owned(unsafe { libc::socket(domain, kind | libc::SOCK_CLOEXEC, protocol) })
}

/// A file, with these flags.
pub(super) fn open(path: &CStr, flags: i32) -> Result<OwnedFd> {
    // SAFETY: see the module.
    owned(unsafe { libc::open(path.as_ptr(), flags | libc::O_CLOEXEC) })
}

/// The file with this handle on the file system that is mounted there: root finds it.
pub(super) fn by_handle(mount: &Path, kind: i32, handle: &[u8]) -> Option<OwnedFd> {
    const HANDLE_BYTES: usize = 128;
    #[repr(C)]
    struct Handle {
        bytes: u32,
        kind: i32,
        handle: [u8; HANDLE_BYTES],
    }
    let mount = std::fs::File::open(mount).ok()?;
    let mut whole = Handle { bytes: handle.len() as u32, kind, handle: [0; HANDLE_BYTES] };
    whole.handle.get_mut(..handle.len())?.copy_from_slice(handle);
    let how = libc::O_PATH | libc::O_CLOEXEC;
    // SAFETY: see the module.
    let file = unsafe { libc::syscall(libc::SYS_open_by_handle_at, mount.as_raw_fd(), &raw mut whole, how) };
    owned(file as i32).ok()
}

/// Another number for a descriptor.
pub(super) fn duplicate(fd: RawFd) -> Result<OwnedFd> {
    // SAFETY: see the module.
    owned(unsafe { libc::fcntl(fd, libc::F_DUPFD_CLOEXEC, 0) })
}

/// Another number for a descriptor, at least `above`; nobody closes it but [`close_below`] and an exec.
pub(super) fn lift(fd: RawFd, above: RawFd) -> Result<RawFd> {
    // SAFETY: see the module.
    known(unsafe { libc::fcntl(fd, libc::F_DUPFD_CLOEXEC, above) })
}

/// Gives the open file behind `from` the number `to` as well.
pub(super) fn place(from: RawFd, to: RawFd, closes: bool) -> Result<()> {
    let how = if closes { libc::O_CLOEXEC } else { 0 };
    // SAFETY: see the module.
    known(unsafe { libc::dup3(from, to, how) }).map(|_| ())
}

/// Closes every descriptor below this one: from here on they are another program's.
///
/// # Safety
/// Nobody uses one of them any more.
pub(super) unsafe fn close_below(fd: RawFd) {
    // SAFETY: the caller's promise.
    unsafe { libc::syscall(libc::SYS_close_range, 0, fd - 1, 0) };
}

/// Bytes of System V's memory of this number; `None` if there is none, or it ends with the last process that has it.
pub(super) fn system_v_bytes(number: u32) -> Option<u64> {
    // SAFETY: plain data, which the kernel fills.
    let (got, told) = unsafe {
        let mut told: libc::shmid_ds = std::mem::zeroed();
        (libc::shmctl(number as i32, libc::IPC_STAT, &raw mut told), told)
    };
    const ENDS: u32 = 0o1000;
    (got == 0 && u32::from(told.shm_perm.mode) & ENDS == 0).then_some(told.shm_segsz as u64)
}

/// Makes a child of this process's parent. 0 in it, negative if there is none.
pub(super) fn fork_beside() -> i64 {
    let flags = libc::CLONE_PARENT | libc::SIGCHLD;
    // SAFETY: a fork of a process of one thread.
    unsafe { libc::syscall(libc::SYS_clone, flags, 0, 0, 0, 0) }
}

/// Ends this child without any of its parent's endings.
pub(super) fn end_here() -> ! {
    // SAFETY: ends this process.
    unsafe { libc::_exit(us_abi::exit::CANNOT_PROTECT) }
}

/// Sets the status flags of an open file that can be changed.
pub(super) fn set_flags(fd: RawFd, flags: u32) {
    const CHANGEABLE: i32 =
        libc::O_NONBLOCK | libc::O_APPEND | libc::O_ASYNC | libc::O_DIRECT | libc::O_NOATIME;
    // SAFETY: see the module.
    unsafe { libc::fcntl(fd, libc::F_SETFL, flags as i32 & CHANGEABLE) };
}

/// Whom an open file sends signals: a process, a group of them below zero, 0 for nobody.
pub(super) fn owner(file: &OwnedFd) -> i32 {
    // SAFETY: see the module.
    unsafe { libc::fcntl(file.as_raw_fd(), libc::F_GETOWN) }
}

/// Which signal that is, 0 for SIGIO.
pub(super) fn signal_of(file: &OwnedFd) -> i32 {
    // SAFETY: see the module.
    unsafe { libc::fcntl(file.as_raw_fd(), GET_SIGNAL) }.max(0)
}

/// Sets it.
pub(super) fn set_signal(fd: RawFd, signal: i32) {
    // SAFETY: see the module.
    unsafe { libc::fcntl(fd, SET_SIGNAL, signal) };
}

const SET_SIGNAL: i32 = 10;
const GET_SIGNAL: i32 = 11;

/// Where an open file is, if it has a position.
pub(super) fn position(fd: RawFd) -> Option<u64> {
    // SAFETY: see the module.
    u64::try_from(unsafe { libc::lseek(fd, 0, libc::SEEK_CUR) }).ok()
}

/// Closes a descriptor that [`lift`] has made.
pub(super) fn close(fd: RawFd) {
    // SAFETY: see the module.
    unsafe { libc::close(fd) };
}

/// Takes a lock by a descriptor, without waiting for it.
pub(super) fn lock(fd: RawFd, lock: &Lock) -> Result<()> {
    let how = if lock.is_exclusive { libc::F_WRLCK } else { libc::F_RDLCK };
    let length = lock.last.map_or(0, |last| last.saturating_sub(lock.first).saturating_add(1));
    let part = libc::flock {
        l_type: how as i16,
        l_whence: libc::SEEK_SET as i16,
        l_start: lock.first as i64,
        l_len: length as i64,
        l_pid: 0,
    };
    let whole = if lock.is_exclusive { libc::LOCK_EX } else { libc::LOCK_SH } | libc::LOCK_NB;
    // SAFETY: see the module.
    known(unsafe {
        match lock.holder {
            Holder::Process => libc::fcntl(fd, libc::F_SETLK, &raw const part),
            Holder::OpenFile => libc::fcntl(fd, libc::F_OFD_SETLK, &raw const part),
            Holder::Whole => libc::flock(fd, whole),
        }
    })
    .map(|_| ())
}

/// Whether somebody has a file open to write to it: then nobody is given a lease to read it.
pub(super) fn is_open_for_writing(file: &impl AsRawFd) -> bool {
    // SAFETY: see the module.
    unsafe {
        let refused = libc::fcntl(file.as_raw_fd(), libc::F_SETLEASE, libc::F_RDLCK) == -1
            && Error::last_os_error().kind() == std::io::ErrorKind::WouldBlock;
        libc::fcntl(file.as_raw_fd(), libc::F_SETLEASE, libc::F_UNLCK);
        refused
    }
}

/// Puts an epoll set's member in place.
pub(super) fn watch(set: RawFd, fd: RawFd, events: u32, data: u64) -> Result<()> {
    let mut event = libc::epoll_event { events, u64: data };
    // SAFETY: see the module.
    known(unsafe { libc::epoll_ctl(set, libc::EPOLL_CTL_ADD, fd, &raw mut event) }).map(|_| ())
}

/// A new epoll set.
pub(super) fn epoll() -> Result<OwnedFd> {
    // SAFETY: see the module.
    owned(unsafe { libc::epoll_create1(libc::EPOLL_CLOEXEC) })
}

/// A timer that is read, as it was.
pub(super) fn timer(clock: i32, ticks: u64, left: [(i64, i64); 2]) -> Result<OwnedFd> {
    const SET_TICKS: libc::Ioctl = 0x4008_5400;
    // SAFETY: see the module.
    let timer = owned(unsafe { libc::timerfd_create(clock, libc::TFD_CLOEXEC) })?;
    let [mut value, interval] = left;
    if value == (0, 0) && interval != (0, 0) {
        // It has just come, and comes again: zero would be never.
        value = (0, 1);
    }
    let [value, interval] = [value, interval].map(|(tv_sec, tv_nsec)| libc::timespec { tv_sec, tv_nsec });
    let times = libc::itimerspec { it_interval: interval, it_value: value };
    // SAFETY: see the module.
    known(unsafe { libc::timerfd_settime(timer.as_raw_fd(), 0, &times, ptr::null_mut()) })?;
    if ticks != 0 {
        // SAFETY: see the module.
        known(unsafe { libc::ioctl(timer.as_raw_fd(), SET_TICKS, &raw const ticks) })?;
    }
    Ok(timer)
}

/// Signals that are read.
pub(super) fn signals(mask: u64) -> Result<OwnedFd> {
    // SAFETY: see the module.
    unsafe {
        let fd = libc::syscall(libc::SYS_signalfd4, -1, &raw const mask, size_of::<u64>(), libc::SFD_CLOEXEC);
        owned(fd as i32)
    }
}

/// A pair of local sockets.
pub(super) fn pair(kind: i32) -> Result<(OwnedFd, OwnedFd)> {
    let mut ends = [0i32; 2];
    // SAFETY: see the module.
    known(unsafe { libc::socketpair(libc::AF_UNIX, kind | libc::SOCK_CLOEXEC, 0, ends.as_mut_ptr()) })?;
    Ok((owned(ends[0])?, owned(ends[1])?))
}

/// Sends one message, at once or not at all.
pub(super) fn send(socket: RawFd, message: &[u8]) -> Result<()> {
    let how = libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL;
    // SAFETY: see the module.
    let sent = unsafe { libc::send(socket, message.as_ptr().cast(), message.len(), how) };
    match sent {
        -1 => Err(Error::last_os_error()),
        sent if sent as usize == message.len() => Ok(()),
        _ => Err(Error::other("there is not as much room as there was")),
    }
}

/// Says that nothing more comes.
pub(super) fn shut(socket: RawFd) {
    // SAFETY: see the module.
    unsafe { libc::shutdown(socket, libc::SHUT_WR) };
}

/// What waits to be read at a socket, which keeps it: message by message, or in pieces.
///
/// # Errors
/// Also where descriptors come with it, or who has sent it.
pub(super) fn waiting(socket: &OwnedFd) -> Result<Vec<Vec<u8>>> {
    const MESSAGE_BYTES: usize = 1 << 20;
    let before = option(socket, libc::SOL_SOCKET, libc::SO_PEEK_OFF).unwrap_or(-1);
    set_option(socket, libc::SOL_SOCKET, libc::SO_PEEK_OFF, 0)?;
    let mut all = Vec::new();
    let mut buffer = vec![0u8; MESSAGE_BYTES];
    let how = libc::MSG_PEEK | libc::MSG_DONTWAIT;
    let mut more = false;
    loop {
        let mut part = libc::iovec { iov_base: buffer.as_mut_ptr().cast(), iov_len: buffer.len() };
        // SAFETY: plain data, in which zeros mean nothing; see the module.
        let (got, flags) = unsafe {
            let mut message: libc::msghdr = std::mem::zeroed();
            (message.msg_iov, message.msg_iovlen) = (&raw mut part, 1);
            (libc::recvmsg(socket.as_raw_fd(), &raw mut message, how), message.msg_flags)
        };
        // The end of a stream is an empty piece.
        if got <= 0 {
            break;
        }
        // There is no room for what comes beside the bytes.
        more |= flags & libc::MSG_CTRUNC != 0;
        all.push(buffer[..got as usize].to_vec());
    }
    set_option(socket, libc::SOL_SOCKET, libc::SO_PEEK_OFF, before)?;
    if more {
        return Err(Error::other("descriptors wait there, or messages that say who has sent them"));
    }
    Ok(all)
}

/// Whether the other end of a local connection has said that nothing more comes.
pub(super) fn is_at_end(socket: &OwnedFd) -> bool {
    is_told(socket, libc::POLLRDHUP)
}

/// Whether nobody has the other end of a pipe or local connection any more.
pub(super) fn is_alone(end: &OwnedFd) -> bool {
    is_told(end, libc::POLLHUP | libc::POLLERR)
}

/// Whether `poll` tells one of these at once.
fn is_told(fd: &OwnedFd, events: i16) -> bool {
    let mut asked = libc::pollfd { fd: fd.as_raw_fd(), events, revents: 0 };
    // SAFETY: see the module.
    unsafe { libc::poll(&raw mut asked, 1, 0) == 1 && asked.revents & events != 0 }
}

/// The number of the socket at the other end of a local connection, by the number of this one.
pub(super) fn local_peer(number: u64) -> Option<u64> {
    const NETLINK_SOCK_DIAG: i32 = 4;
    const SOCK_DIAG_BY_FAMILY: u16 = 20;
    const REQUEST: u16 = 1;
    const SHOW_PEER: u32 = 4;
    const PEER: u16 = 2;
    // A message's head; the question, and the answer behind it, in front of its attributes.
    const HEAD: usize = 16;
    const QUESTION: usize = 24;
    const ANSWER: usize = 16;
    let diagnosis = socket(libc::AF_NETLINK, libc::SOCK_RAW, NETLINK_SOCK_DIAG).ok()?;
    let mut question = Vec::with_capacity(HEAD + QUESTION);
    question.extend(((HEAD + QUESTION) as u32).to_ne_bytes());
    question.extend(SOCK_DIAG_BY_FAMILY.to_ne_bytes());
    question.extend(REQUEST.to_ne_bytes());
    question.extend([0u8; 8]);
    question.extend([libc::AF_UNIX as u8, 0, 0, 0]);
    for word in [u32::MAX, u32::try_from(number).ok()?, SHOW_PEER, u32::MAX, u32::MAX] {
        question.extend(word.to_ne_bytes());
    }
    send(diagnosis.as_raw_fd(), &question).ok()?;
    let mut answer = [0u8; 4096];
    // SAFETY: see the module.
    let got = unsafe { libc::recv(diagnosis.as_raw_fd(), answer.as_mut_ptr().cast(), answer.len(), 0) };
    let answer = answer.get(..usize::try_from(got).ok()?)?;
    let kind = u16::from_ne_bytes(answer.get(4..6)?.try_into().ok()?);
    let mut rest = answer.get(HEAD + ANSWER..).filter(|_| kind == SOCK_DIAG_BY_FAMILY)?;
    while let (Some(bytes), Some(name)) = (rest.get(..2), rest.get(2..4)) {
        let bytes = usize::from(u16::from_ne_bytes(bytes.try_into().ok()?));
        if u16::from_ne_bytes(name.try_into().ok()?) == PEER {
            return Some(u32::from_ne_bytes(rest.get(4..8)?.try_into().ok()?).into());
        }
        rest = rest.get(bytes.max(4).next_multiple_of(4)..)?;
    }
    None
}

/// Reads the memory of another process: copied once, where its `mem` in `/proc` copies twice.
///
/// # Errors
/// The kernel's; less than all has been read then. What the process itself may not read is not read.
pub(super) fn read_memory(pid: u32, address: u64, to: &mut [u8]) -> Result<()> {
    let mut done = 0;
    while done < to.len() {
        let rest = &mut to[done..];
        let local = libc::iovec { iov_base: rest.as_mut_ptr().cast(), iov_len: rest.len() };
        let from = address + done as u64;
        let remote = libc::iovec { iov_base: from as *mut libc::c_void, iov_len: rest.len() };
        // SAFETY: the kernel writes to `rest` alone, and as much as that has; the other address is the other process's.
        let got = unsafe { libc::process_vm_readv(pid as libc::pid_t, &local, 1, &remote, 1, 0) };
        match got {
            0 => return Err(std::io::ErrorKind::UnexpectedEof.into()),
            got if got > 0 => done += got as usize,
            _ => return Err(Error::last_os_error()),
        }
    }
    Ok(())
}
