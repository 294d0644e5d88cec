//! What is behind the descriptors of processes that stand still, as the kernel tells it.

use std::collections::HashMap;
use std::fs;
use std::io::Read;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::{FileTypeExt, MetadataExt};

use checkpoint::{Descriptor, Holder, Lock, Object, Registered, Watch};
use rustix::pipe::SpliceFlags;

use super::memory::Pieces;
use super::{raw, sockets};
use crate::proc;
use crate::proc::text::{self, field};

/// Type of the file system of message queues.
const QUEUES: i64 = 0x1980_0202;
/// The device whose every opening makes a terminal.
const MASTERS: (u32, u32) = (5, 2);

/// Bytes of a file without a name that a checkpoint has room for.
const REMOVED_BYTES: u64 = 32 << 20;

/// What a pipe holds where the kernel does not say.
const PIPE_BYTES: u32 = 64 << 10;

/// What becomes of the program, and what a description is for.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Then {
    /// It goes on, and what is written down goes on later.
    GoesOn,
    /// It ends.
    Ends,
    /// It goes on, and another machine follows it: connections are its as well.
    IsFollowed,
}

/// A copy that stands still, and whose it is.
pub(super) struct Standing {
    /// Its number.
    pub(super) pid: u32,
    /// That of the process itself, which stands still as well.
    pub(super) primary: u32,
    held: OwnedFd,
}

impl Standing {
    /// # Errors
    /// When it is gone.
    pub(super) fn new(pid: u32, primary: u32) -> Result<Standing, String> {
        let held = rustix::process::pidfd_open(
            crate::child::raw(pid).ok_or("the copy is gone")?,
            rustix::process::PidfdFlags::empty(),
        )
        .map_err(|cause| format!("the copy is gone: {cause}"))?;
        Ok(Standing { pid, primary, held })
    }

    /// Takes a descriptor of the copy's.
    pub(super) fn borrow(&self, fd: i32) -> Result<OwnedFd, String> {
        rustix::process::pidfd_getfd(&self.held, fd, rustix::process::PidfdGetfdFlags::empty())
            .map_err(|cause| format!("cannot look at descriptor {fd}: {cause}"))
    }
}

/// A descriptor of a copy's.
pub(super) struct Open<'a> {
    /// Whose it is.
    pub(super) of: &'a Standing,
    pub(super) fd: i32,
    pub(super) name: String,
    flags: u32,
    info: String,
}

impl Open<'_> {
    /// Whether both are one open file.
    fn is_same(&self, other: &Open) -> bool {
        self.name == other.name && raw::is_same_file((self.of.pid, self.fd), (other.of.pid, other.fd))
    }

    fn is_of(&self, of: &Standing) -> bool {
        self.of.pid == of.pid
    }
}

/// The `fdinfo` of a descriptor.
fn told_of_descriptor(pid: u32, fd: impl std::fmt::Display) -> std::io::Result<String> {
    let info = proc::bytes(pid, format_args!("fdinfo/{fd}"))?;
    Ok(String::from_utf8_lossy(&info).into_owned())
}

/// The descriptors of each copy, and what is behind them.
///
/// # Errors
/// What no checkpoint can have, in words.
pub(super) fn all(
    copies: &[Standing],
    pieces: &Pieces,
    then: Then,
) -> Result<(Vec<Vec<Descriptor>>, Vec<Object>), String> {
    let fail = |cause: std::io::Error| format!("cannot list the descriptors of the copy: {cause}");
    let mut open = Vec::new();
    for of in copies {
        for fd in proc::numbers(of.pid, "fd").map_err(fail)? {
            let name = fs::read_link(proc::descriptor(of.pid, fd)).map_err(fail)?.into_os_string();
            let info = told_of_descriptor(of.pid, fd).map_err(fail)?;
            let flags = text::octal_field(&info, "flags:").unwrap_or(0);
            open.push(Open { of, fd: fd as i32, name: name.to_string_lossy().into_owned(), flags, info });
        }
    }
    let (mut all, mut objects) = (vec![Vec::new(); copies.len()], Vec::new());
    // Of each name those that are not another number for one before them: which, and its object.
    let mut firsts: HashMap<&str, Vec<(usize, usize)>> = HashMap::new();
    for (at, one) in open.iter().enumerate() {
        let of_name = firsts.entry(&one.name).or_default();
        let same = of_name.iter().find(|(first, _)| one.is_same(&open[*first])).map(|(_, object)| *object);
        let object = match same {
            Some(object) => object,
            None => {
                let whose = copies.iter().position(|of| one.is_of(of)).unwrap_or(0);
                objects.push(
                    object(one, (&open, copies), pieces, then).map_err(|why| in_process(why, whose, one))?,
                );
                of_name.push((at, objects.len() - 1));
                objects.len() - 1
            }
        };
        let Some(own) = copies.iter().position(|of| one.is_of(of)).map(|index| &mut all[index]) else {
            continue;
        };
        // Of two numbers for one open file the first has its locks; those of a process each process has for itself.
        let is_first = !own.iter().any(|other: &Descriptor| other.object == object);
        let mut locks =
            if is_first && one.name.starts_with('/') { locks(one.of.primary, one.fd)? } else { Vec::new() };
        locks.retain(|lock| same.is_none() || lock.holder == Holder::Process);
        own.push(Descriptor {
            fd: one.fd,
            closes: one.flags & libc::O_CLOEXEC as u32 != 0,
            signal: match one.flags & libc::O_ASYNC as u32 {
                0 => 0,
                _ => raw::signal_of(&one.of.borrow(one.fd)?),
            },
            object,
            flags: one.flags & !(libc::O_CLOEXEC as u32),
            locks,
        });
    }
    Ok((all, objects))
}

/// Says of which process it is, if that is not the program's first.
fn in_process(why: String, whose: usize, one: &Open) -> String {
    if whose == 0 { why } else { format!("process {}: {why}", one.of.primary) }
}

fn object(
    open: &Open,
    (all, copies): (&[Open], &[Standing]),
    pieces: &Pieces,
    then: Then,
) -> Result<Object, String> {
    let Open { of, fd, name, info, .. } = open;
    let Standing { pid, primary, .. } = **of;
    let no_checkpoint =
        |what: &str| Err(format!("descriptor {fd} is {what}, which no checkpoint can have yet"));
    if open.flags & libc::O_ASYNC as u32 != 0 {
        // To which of us, that one's runtime knows.
        let owner = raw::owner(&of.borrow(*fd)?);
        if owner != 0 && !all.iter().any(|other| other.of.primary as i32 == owner) {
            return no_checkpoint("one that sends signals to somebody else");
        }
    }
    if name.starts_with('/') {
        let path = proc::descriptor(pid, fd);
        let status =
            fs::metadata(&path).map_err(|cause| format!("cannot look at descriptor {fd}: {cause}"))?;
        let kind = status.file_type();
        if rustix::fs::statfs(&path).is_ok_and(|of| of.f_type == QUEUES) {
            return no_checkpoint("a message queue");
        }
        if kind.is_char_device()
            && (rustix::fs::major(status.rdev()), rustix::fs::minor(status.rdev())) == MASTERS
        {
            return no_checkpoint("a terminal of its own");
        }
        // What the kernel tells of a process is of the copy.
        let rest = [pid, primary].iter().find_map(|pid| proc::told_of(pid, name));
        if rest.is_some_and(|rest| rest.starts_with("task/")) {
            return no_checkpoint("what the kernel tells of one thread");
        }
        let name = &rest.map_or_else(|| name.clone(), proc::own);
        if kind.is_char_device() && (is_terminal(status.rdev()) || *fd <= 2 && !name.starts_with("/dev/null"))
        {
            return Ok(Object::Inherited((*fd).min(2)));
        }
        // Where it is followed it shows what it shows where its supervisor there does.
        if then == Then::IsFollowed
            && kind.is_file()
            && let Some(number) = standard_of((status.dev(), status.ino()))
        {
            return Ok(Object::Inherited(number));
        }
        let position = field(info, "pos:").and_then(|text| text.parse().ok()).unwrap_or(0);
        if let Some(piece) = pieces.find((status.dev(), status.ino())) {
            return Ok(Object::Memory { piece, position });
        }
        if let Some(name) = name.strip_suffix(" (deleted)") {
            if !kind.is_file() || status.len() > REMOVED_BYTES {
                return no_checkpoint("something that has been removed");
            }
            let is_same = |other: &&Open| {
                let it = fs::metadata(proc::descriptor(other.of.pid, other.fd));
                other.name == open.name
                    && it.is_ok_and(|it| (it.dev(), it.ino()) == (status.dev(), status.ino()))
            };
            // Opened more than once it is one file still.
            let first = all.iter().position(|other| is_same(&other)).unwrap_or(0);
            let is_first = all.get(first).is_some_and(|first| first.fd == open.fd && first.is_of(of));
            let content = if is_first { fs::read(&path) } else { Ok(Vec::new()) };
            let content = content.map_err(|cause| format!("cannot read descriptor {fd}: {cause}"))?;
            return Ok(Object::Removed { number: first as u64, name: name.to_owned(), content, position });
        }
        let there = fs::metadata(name).ok();
        let is_of_process = proc::told_of("self", name).is_some();
        if !is_of_process
            && there.is_none_or(|there| (there.dev(), there.ino()) != (status.dev(), status.ino()))
        {
            return no_checkpoint("something to which no path leads");
        }
        if kind.is_fifo() {
            return named_pipe(open, all);
        }
        return Ok(Object::File { path: name.clone(), position });
    }
    let number = || text::object_number(name);
    match name.split_once(':').map_or("", |(kind, _)| kind) {
        "pipe" => pipe(open, all, number().unwrap_or(0)),
        "socket" => sockets::describe(open, all, then),
        "anon_inode" if name.ends_with("[eventfd]") => Ok(Object::Events {
            count: text::hex_field(info, "eventfd-count:").unwrap_or(0),
            is_semaphore: field(info, "eventfd-semaphore:") == Some("1"),
        }),
        "anon_inode" if name.ends_with("[timerfd]") => {
            timer(info).ok_or(format!("the kernel does not tell enough of the timer {fd}"))
        }
        "anon_inode" if name.ends_with("[signalfd]") => {
            Ok(Object::Signals(text::hex_field(info, "sigmask:").unwrap_or(0)))
        }
        "anon_inode" if name.ends_with("inotify") => watches(open),
        "anon_inode" if name.ends_with("[pidfd]") => match process(info, copies) {
            Some(process) => Ok(Object::Process(process)),
            None => no_checkpoint("a pidfd of a process that is none of the program's"),
        },
        "anon_inode" if name.ends_with("[eventpoll]") => Ok(Object::Epoll(registered(info))),
        _ => no_checkpoint(name),
    }
}

/// The supervisor's own standard descriptor of that file, which the program has of it.
fn standard_of(file: (u64, u64)) -> Option<i32> {
    (0..=2).find(|number| {
        let own = fs::metadata(proc::descriptor("self", number));
        own.is_ok_and(|own| (own.dev(), own.ino()) == file)
    })
}

/// The locks that the program has taken by a descriptor. The kernel tells them of the program itself: those of a process the copy
/// has not.
fn locks(primary: u32, fd: i32) -> Result<Vec<Lock>, String> {
    let info = told_of_descriptor(primary, fd)
        .map_err(|cause| format!("cannot see the locks of descriptor {fd}: {cause}"))?;
    let all = text::locks(&info).map(|lock| {
        let (holder, lock) = lock.and_then(|lock| {
            let holder = match lock.kind {
                "POSIX" => Holder::Process,
                "OFDLCK" => Holder::OpenFile,
                "FLOCK" => Holder::Whole,
                _ => return None,
            };
            Some((holder, lock))
        })?;
        Some(Lock { holder, is_exclusive: lock.is_exclusive, first: lock.first, last: lock.last })
    });
    all.collect::<Option<_>>()
        .ok_or(format!("descriptor {fd} is a file with a lease, which no checkpoint can have yet"))
}

/// Which of these processes a pidfd is of, or that it has ended; `None` for one that lives and is another. A child that has ended and
/// was not asked for has ended here.
fn process(info: &str, copies: &[Standing]) -> Option<Option<usize>> {
    // The kernel says -1 of one that was asked for.
    let Some(pid) = field(info, "Pid:").and_then(|text| text.parse().ok()) else { return Some(None) };
    let index = copies.iter().position(|of| of.primary == pid);
    let has_ended = || proc::read(pid).is_none_or(|process| !process.alive());
    (index.is_some() || has_ended()).then_some(index)
}

fn is_terminal(device: u64) -> bool {
    const TTY: [u32; 3] = [4, 5, 88];
    const PSEUDO: std::ops::RangeInclusive<u32> = 136..=143;
    let major = rustix::fs::major(device);
    TTY.contains(&major) || PSEUDO.contains(&major)
}

fn timer(info: &str) -> Option<Object> {
    let text::Expiry { clock, ticks, left } = text::expiry(info)?;
    Some(Object::Timer { clock, ticks, left })
}

fn registered(info: &str) -> Vec<Registered> {
    text::watched(info).map(|(fd, events, data)| Registered { fd, events, data }).collect()
}

/// Events of inotify, and how they are told: `IN_ALL_EVENTS`, `IN_EXCL_UNLINK`, `IN_ONESHOT`. The kernel has bits of its own
/// beside them.
const WATCHED: u32 = 0x8400_0fff;

/// What a descriptor of inotify watches. The kernel tells of files, and not where they are.
fn watches(open: &Open) -> Result<Object, String> {
    let fd = open.fd;
    if rustix::io::ioctl_fionread(open.of.borrow(fd)?) != Ok(0) {
        return Err(format!(
            "descriptor {fd} is of inotify, and events wait there, which only the program can read"
        ));
    }
    let path = |watch: text::Watch| {
        let device = (watch.device >> 20, watch.device & 0xf_ffff);
        let (kind, handle) = &watch.handle;
        let file = proc::mounts(device).iter().find_map(|mount| raw::by_handle(mount, *kind, handle))?;
        let path = proc::link("self", format_args!("fd/{}", file.as_raw_fd())).ok()?;
        // It may be out of our sight, or have been removed.
        let found = fs::metadata(&path).ok().filter(|found| found.ino() == watch.inode)?;
        let is_same = (rustix::fs::major(found.dev()), rustix::fs::minor(found.dev())) == device;
        let path = path.to_str().filter(|_| is_same)?.to_owned();
        Some(Watch { number: watch.number, path, events: watch.events & WATCHED })
    };
    let all = text::watches(&open.info).map(|watch| watch.and_then(path));
    let all: Option<Vec<_>> = all.collect();
    all.map(Object::Watches).ok_or(format!(
        "descriptor {fd} is of inotify, and only root finds out where the files are that it watches"
    ))
}

fn pipe(open: &Open, all: &[Open], number: u64) -> Result<Object, String> {
    let writes = |open: &Open| open.flags & libc::O_ACCMODE as u32 != 0;
    let has_other = all.iter().any(|other| other.name == open.name && writes(other) != writes(open));
    let end = open.of.borrow(open.fd)?;
    if !has_other && is_given(open, &end) {
        return Ok(Object::Inherited(open.fd));
    }
    let room = rustix::pipe::fcntl_getpipe_size(&end).map_or(PIPE_BYTES, |room| room as u32);
    let first = all.iter().find(|other| other.name == open.name && !writes(other));
    let is_first = first.is_some_and(|first| first.fd == open.fd && first.is_of(open.of));
    let content = if is_first { content(&end, room)? } else { Vec::new() };
    if !has_other && content.is_empty() {
        return Ok(Object::Ended { is_written: writes(open) });
    }
    // What a process has left in it that has ended since is there as well.
    Ok(Object::Pipe { number, room, content })
}

/// Whether a standard stream, whose other end the program has not, is what the program was started with, or is somebody else's: not so
/// where nobody has the other end any more, who was of the program then. What such a one has left is to be read to its end.
pub(super) fn is_given(open: &Open, end: &OwnedFd) -> bool {
    let is_ours =
        || (0..=2).any(|own| fs::read_link(proc::descriptor("self", own)).is_ok_and(|own| own == *open.name));
    open.fd <= 2 && (!raw::is_alone(end) || is_ours())
}

/// A pipe that has a name. Others may have it as well, and what is in it is theirs then; see [`Object::NamedPipe`].
fn named_pipe(open: &Open, all: &[Open]) -> Result<Object, String> {
    let reads = |open: &Open| open.flags & libc::O_ACCMODE as u32 != libc::O_WRONLY as u32;
    let first = all.iter().find(|other| other.name == open.name && reads(other));
    let end = open.of.borrow(open.fd)?;
    let room = rustix::pipe::fcntl_getpipe_size(&end).map_or(PIPE_BYTES, |room| room as u32);
    let is_first = first.is_some_and(|first| first.fd == open.fd && first.is_of(open.of));
    let content = if is_first { content(&end, room)? } else { Vec::new() };
    Ok(Object::NamedPipe { path: open.name.clone(), room, content })
}

/// What is in a pipe, which keeps it.
fn content(end: &OwnedFd, room: u32) -> Result<Vec<u8>, String> {
    let fail = |cause: rustix::io::Errno| format!("cannot look into a pipe: {cause}");
    let (reader, writer) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC).map_err(fail)?;
    // One that may not be as large holds what there is room for.
    let _ = rustix::pipe::fcntl_setpipe_size(&writer, room as usize);
    let got = rustix::pipe::tee(end, &writer, room as usize, SpliceFlags::NONBLOCK);
    let mut bytes = vec![0; got.unwrap_or(0)];
    fs::File::from(reader)
        .read_exact(&mut bytes)
        .map_err(|cause| format!("cannot look into a pipe: {cause}"))?;
    Ok(bytes)
}
