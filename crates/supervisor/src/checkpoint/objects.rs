//! What is behind the descriptors of a program that is put together.

use std::ffi::CString;
use std::fs;
use std::io::{self, Write};
use std::os::fd::{AsFd, AsRawFd, OwnedFd, RawFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use checkpoint::{Descriptor, Head, Holder, Object, Process, Watch};
use rustix::event::EventfdFlags;
use rustix::fs::{FileType, MemfdFlags, inotify};
use rustix::pipe::PipeFlags;

use super::{raw, sockets};
use crate::proc;

/// Where descriptors are kept until they get their numbers.
type Lift<'a> = &'a dyn Fn(RawFd) -> Result<RawFd, String>;

/// Opens a process, by its index, or one that has ended.
type Opens<'a> = &'a dyn Fn(Option<usize>) -> Result<OwnedFd, String>;

/// Makes those objects of a checkpoint for which `of` names a descriptor; one of each, -1 for one that is not made. `memory`:
/// the files of shared memory. `opens`: how a process is opened, once there are others.
///
/// # Errors
/// Which one cannot be made, and why.
pub(super) fn make<'a>(
    head: &Head,
    of: impl Fn(usize) -> Option<&'a Descriptor>,
    memory: &[RawFd],
    opens: Opens,
    lift: Lift,
) -> Result<Vec<RawFd>, String> {
    let (mut pipes, mut pairs, mut rooms) = (Vec::new(), Vec::new(), Vec::new());
    let mut removed = Vec::new();
    let mut all = Vec::new();
    for (index, object) in head.objects.iter().enumerate() {
        let Some(one) = of(index) else {
            all.push(-1);
            continue;
        };
        let made = match object {
            Object::Pipe { number, room, content } => {
                end_of_pipe(&mut pipes, (*number, *room), content, one, lift)
            }
            Object::Pair { number, kind, content, room, is_shut, tells_sender } => {
                end_of_pair(&mut pairs, (*number, *kind), content, *is_shut, lift)
                    .inspect(|own| rooms.push((*own, *room, *tells_sender)))
            }
            Object::Removed { number, name, content, position } => {
                let first = removed.iter().find(|(known, _)| known == number).map(|(_, fd)| *fd);
                let file = removed_file(first, (name, content, *position), one);
                file.and_then(|fd| lift(fd.as_raw_fd())).inspect(|fd| removed.push((*number, *fd)))
            }
            object => simple(object, one, memory, opens).and_then(|fd| lift(fd.as_raw_fd())),
        };
        let fd = made.map_err(|why| format!("descriptor {}: {why}", one.fd))?;
        // Signals name the number under which they were asked for, which this one has not yet.
        raw::set_flags(fd, one.flags & !(libc::O_ASYNC as u32));
        if one.signal != 0 {
            raw::set_signal(fd, one.signal);
        }
        all.push(fd);
    }
    sockets::connect(head, &all);
    // Last: what was in a pair needed room.
    for (fd, room, tells_sender) in rooms {
        let _ = raw::set_option(&fd, libc::SOL_SOCKET, libc::SO_SNDBUF, room);
        let _ = raw::set_option(&fd, libc::SOL_SOCKET, libc::SO_PASSCRED, tells_sender.into());
    }
    // The other end of what a process has left behind that has ended: kept, nobody would come to the end of it.
    let ends = pipes.iter().map(|(_, reader, writer)| [*reader, *writer]);
    let ends = ends.chain(pairs.iter().map(|(_, both)| *both)).flatten();
    ends.filter(|end| !all.contains(end)).for_each(raw::close);
    Ok(all)
}

/// Fills those of a process's epoll sets that `are_its`, when every descriptor has its number. What has been closed since it was
/// watched is watched no more.
pub(super) fn watch(head: &Head, process: &Process, are_its: impl Fn(usize) -> bool) {
    for (index, object) in head.objects.iter().enumerate() {
        let set = process.descriptors.iter().find(|one| one.object == index && are_its(index));
        if let (Object::Epoll(watched), Some(set)) = (object, set) {
            for one in watched {
                let _ = raw::watch(set.fd, one.fd, one.events, one.data);
            }
        }
    }
}

fn simple(object: &Object, one: &Descriptor, memory: &[RawFd], opens: Opens) -> Result<OwnedFd, String> {
    let cannot = |what: String| move |cause: io::Error| format!("cannot {what}: {cause}");
    match object {
        Object::Inherited(number) => {
            let own = raw::duplicate(*number).or_else(|_| raw::open(c"/dev/null", libc::O_RDWR));
            own.map_err(cannot("take a stream over".into()))
        }
        Object::File { path, position } => {
            let words = c_path(path)?;
            let flags = one.flags as i32 & !MAKING;
            let file = raw::open(&words, flags).map_err(cannot(format!("open {path}")))?;
            // What has no position has none.
            let _ = rustix::fs::seek(&file, rustix::fs::SeekFrom::Start(*position));
            Ok(file)
        }
        Object::NamedPipe { path, room, content } => named_pipe(path, *room, content, one),
        Object::Events { count, is_semaphore } => {
            let how = if *is_semaphore { EventfdFlags::SEMAPHORE } else { EventfdFlags::empty() };
            let events = rustix::event::eventfd(0, how | EventfdFlags::CLOEXEC)
                .map_err(|cause| format!("cannot make an eventfd: {cause}"))?;
            rustix::io::write(&events, &count.to_le_bytes())
                .map_err(|cause| format!("cannot set an eventfd: {cause}"))?;
            Ok(events)
        }
        Object::Memory { piece, position } => open_again(memory[*piece], *position, one),
        Object::Timer { clock, ticks, left } => {
            raw::timer(*clock, *ticks, *left).map_err(cannot("set a timer".into()))
        }
        Object::Process(index) => opens(*index),
        Object::Signals(mask) => raw::signals(*mask).map_err(cannot("make a signalfd".into())),
        Object::Watches(watches) => watched(watches),
        Object::Epoll(_) => raw::epoll().map_err(cannot("make an epoll set".into())),
        Object::Socket(socket) => sockets::make(socket),
        Object::Broken { domain } => {
            sockets::broken(*domain).map_err(cannot("make a broken connection".into()))
        }
        Object::Ended { is_written } => {
            let (reader, writer) = new_pipe(None)?;
            Ok(if *is_written { writer } else { reader })
        }
        Object::Pipe { .. } | Object::Pair { .. } | Object::Removed { .. } => {
            Err("others may have it as well".into())
        }
    }
}

/// A path as the kernel takes it.
fn c_path(path: &str) -> Result<CString, String> {
    CString::new(path).map_err(|_| "its path has a zero byte".to_owned())
}

/// The open file behind a number of ours once more, as the program had it open.
fn open_again(fd: RawFd, position: u64, one: &Descriptor) -> Result<OwnedFd, String> {
    let path = c_path(&proc::descriptor("self", fd).to_string_lossy())?;
    // What leads to it is a link.
    let mut flags = one.flags as i32 & !(MAKING | libc::O_NOFOLLOW);
    if flags & TMPFILE != 0 {
        flags &= !libc::O_TMPFILE;
    }
    let file =
        raw::open(&path, flags).map_err(|cause| format!("cannot open a file without a name: {cause}"))?;
    let _ = rustix::fs::seek(&file, rustix::fs::SeekFrom::Start(position));
    Ok(file)
}

/// What only the first opening of a file says.
const MAKING: i32 = libc::O_CREAT | libc::O_EXCL | libc::O_TRUNC;
/// What `O_TMPFILE` says besides that it is a folder.
const TMPFILE: i32 = libc::O_TMPFILE & !libc::O_DIRECTORY;

/// A file without a name, with what is in it: of several open ones the `first` has made it.
fn removed_file(
    first: Option<RawFd>,
    (name, content, position): (&str, &[u8], u64),
    one: &Descriptor,
) -> Result<OwnedFd, String> {
    if let Some(first) = first {
        return open_again(first, position, one);
    }
    let cannot = |what: &str, cause: io::Error| format!("cannot {what}: {cause}");
    let file = removed(name, one).map_err(|cause| cannot("make a file without a name", cause))?;
    let mut file = fs::File::from(file);
    file.write_all(content).map_err(|cause| cannot("fill a file without a name", cause))?;
    // It was made to be filled.
    open_again(file.as_raw_fd(), position, one)
}

/// A file without a name, where it had one; in memory if it never was anywhere else.
fn removed(name: &str, one: &Descriptor) -> io::Result<OwnedFd> {
    let folder = Path::new(name).parent().filter(|_| !name.starts_with("/memfd:"));
    let folder = folder.and_then(|folder| CString::new(folder.as_os_str().as_bytes()).ok());
    // The folder may be behind a link.
    let flags = one.flags as i32 & !(MAKING | libc::O_NOFOLLOW | libc::O_ACCMODE);
    let on_disk = folder.map(|folder| raw::open(&folder, flags | libc::O_TMPFILE | libc::O_RDWR));
    on_disk.and_then(Result::ok).map_or_else(
        || {
            let name = name.trim_start_matches("/memfd:");
            Ok(rustix::fs::memfd_create(name, MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?)
        },
        Ok,
    )
}

// ---- Pipes ----

fn new_pipe(room: Option<u32>) -> Result<(OwnedFd, OwnedFd), String> {
    let (reader, writer) = rustix::pipe::pipe_with(PipeFlags::CLOEXEC)
        .map_err(|cause| format!("cannot make a pipe: {cause}"))?;
    if let Some(room) = room {
        rustix::pipe::fcntl_setpipe_size(&writer, room as usize)
            .map_err(|cause| format!("cannot make a pipe of {room} bytes: {cause}"))?;
    }
    Ok((reader, writer))
}

/// One end of a pipe; both are made with the first one.
fn end_of_pipe(
    pipes: &mut Vec<(u64, RawFd, RawFd)>,
    (number, room): (u64, u32),
    content: &[u8],
    one: &Descriptor,
    lift: Lift,
) -> Result<RawFd, String> {
    let known = pipes.iter().find(|(other, ..)| *other == number).copied();
    let (_, reader, writer) = match known {
        Some(pipe) => pipe,
        None => {
            let (reader, writer) = new_pipe(Some(room))?;
            let pipe = (number, lift(reader.as_raw_fd())?, lift(writer.as_raw_fd())?);
            pipes.push(pipe);
            pipe
        }
    };
    if !content.is_empty() {
        let to = raw::duplicate(writer).map_err(|cause| cause.to_string())?;
        let wrote = rustix::io::write(to.as_fd(), content);
        if wrote != Ok(content.len()) {
            return Err("what was in the pipe does not fit into the new one".into());
        }
    }
    let writes = one.flags & libc::O_ACCMODE as u32 != 0;
    Ok(if writes { writer } else { reader })
}

/// An end of a pipe that has a name, or both. What was in it is put there if nobody has kept the pipe, and with it what is in it.
fn named_pipe(path: &str, room: u32, content: &[u8], one: &Descriptor) -> Result<OwnedFd, String> {
    let cannot = |cause: io::Error| format!("cannot open {path}: {cause}");
    let words = c_path(path)?;
    // Of one end alone the opening would wait for the other.
    let both = raw::open(&words, libc::O_RDWR | libc::O_NONBLOCK).map_err(cannot)?;
    if !rustix::fs::fstat(&both).is_ok_and(|status| FileType::from_raw_mode(status.st_mode) == FileType::Fifo)
    {
        return Err(format!("{path} is no pipe any more"));
    }
    let own = raw::open(&words, one.flags as i32 & libc::O_ACCMODE | libc::O_NONBLOCK).map_err(cannot)?;
    if !content.is_empty() && rustix::io::ioctl_fionread(&both) == Ok(0) {
        let _ = rustix::pipe::fcntl_setpipe_size(&both, room as usize);
        if rustix::io::write(&both, content) != Ok(content.len()) {
            return Err(format!("what was in {path} does not fit into it"));
        }
    }
    Ok(own)
}

/// A descriptor of the program's by which a file can be mapped in which it has a lock of the process: to open it anew and close it
/// would give that back.
pub(super) fn locked(head: &Head, process: &Process, path: &str) -> Option<RawFd> {
    let is_of = |one: &&Descriptor| matches!(&head.objects[one.object], Object::File { path: own, .. } if own == path);
    let all = || process.descriptors.iter().filter(is_of);
    all().flat_map(|one| &one.locks).find(|lock| lock.holder == Holder::Process)?;
    all().find(|one| one.flags & libc::O_ACCMODE as u32 == libc::O_RDWR as u32).map(|one| one.fd)
}

/// Takes the locks that the program had, when every descriptor has its number and no other of ours is left: whoever closes one of a
/// file gives the process's locks on it back.
///
/// # Errors
/// Which one somebody else has now.
pub(super) fn lock(head: &Head, process: &Process) -> Result<(), String> {
    for one in &process.descriptors {
        let path = match head.objects.get(one.object) {
            Some(Object::File { path, .. }) => path,
            _ => "its file",
        };
        for lock in &one.locks {
            let cannot = |cause: &str| {
                Err(format!("descriptor {}: the lock on {path} cannot be had: {cause}", one.fd))
            };
            let is_mapped = || head.files.iter().any(|file| file.path == *path);
            if lock.holder == Holder::Process && locked(head, process, path).is_none() && is_mapped() {
                // It is opened once more, to be mapped, and closed.
                return cannot(
                    "the file is mapped as well, and cannot be mapped by a descriptor that the program has",
                );
            }
            raw::lock(one.fd, lock).or_else(|cause| cannot(&cause.to_string()))?;
        }
    }
    Ok(())
}

/// Most numbers of watches that have been given back, and are passed over.
const PASSED_MAX: u32 = 1 << 20;

/// A descriptor of inotify, with watches of the numbers that the program knows.
fn watched(watches: &[Watch]) -> Result<OwnedFd, String> {
    let set = inotify::init(inotify::CreateFlags::CLOEXEC | inotify::CreateFlags::NONBLOCK)
        .map_err(|cause| format!("cannot make a descriptor of inotify: {cause}"))?;
    // Which nobody else watches, nor changes.
    let nothing = rustix::fs::memfd_create("understudy-watch", MemfdFlags::CLOEXEC)
        .map_err(|cause| format!("cannot make a file in memory: {cause}"))?;
    let nothing = proc::descriptor("self", nothing.as_raw_fd());
    let mut ordered: Vec<&Watch> = watches.iter().collect();
    ordered.sort_by_key(|watch| watch.number);
    // The kernel counts up from one.
    let mut next = 1;
    for watch in ordered {
        let cannot = |cause: &dyn std::fmt::Display| format!("cannot watch {}: {cause}", watch.path);
        if watch.number < next || watch.number > PASSED_MAX {
            return Err(cannot(&"its number cannot be had"));
        }
        while next < watch.number {
            let passed = inotify::add_watch(&set, &nothing, inotify::WatchFlags::DELETE_SELF);
            let passed = passed.and_then(|number| inotify::remove_watch(&set, number));
            passed.map_err(|cause| cannot(&cause))?;
            next += 1;
        }
        let events = inotify::WatchFlags::from_bits_retain(watch.events);
        let number =
            inotify::add_watch(&set, Path::new(&watch.path), events).map_err(|cause| cannot(&cause))?;
        if number as u32 != watch.number {
            return Err(cannot(&"it has another number"));
        }
        next = watch.number + 1;
    }
    // What tells of the numbers that were passed over.
    let mut told = [0; 4096];
    while rustix::io::read(&set, &mut told).is_ok_and(|bytes| bytes != 0) {}
    Ok(set)
}

// ---- Sockets ----

/// Room in a pair of sockets while it is filled.
const FILL_BYTES: i32 = 64 << 20;

/// One end of a pair; both are made with the first one.
fn end_of_pair(
    pairs: &mut Vec<(u64, [RawFd; 2])>,
    (number, kind): (u64, i32),
    content: &[Vec<u8>],
    is_shut: bool,
    lift: Lift,
) -> Result<RawFd, String> {
    let known = pairs.iter().find(|(other, _)| *other == number).map(|(_, ends)| *ends);
    let [own, peer] = match known {
        Some([first, second]) => [second, first],
        None => {
            let (one, other) =
                raw::pair(kind).map_err(|cause| format!("cannot make a pair of sockets: {cause}"))?;
            let ends = [lift(one.as_raw_fd())?, lift(other.as_raw_fd())?];
            pairs.push((number, ends));
            ends
        }
    };
    if !content.is_empty() {
        // Best without a bound, which needs a right.
        for name in [libc::SO_SNDBUF, libc::SO_SNDBUFFORCE] {
            let _ = raw::set_option(&peer, libc::SOL_SOCKET, name, FILL_BYTES);
        }
    }
    for message in content {
        raw::send(peer, message).map_err(|cause| format!("what was in it does not fit: {cause}"))?;
    }
    if is_shut {
        raw::shut(peer);
    }
    Ok(own)
}
