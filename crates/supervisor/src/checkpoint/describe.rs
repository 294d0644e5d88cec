//! What a copy that stands still is made of, as the kernel tells it.

use std::collections::HashMap;
use std::fs;
use std::io::Read;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::sync::atomic::Ordering;

use checkpoint::{Descriptor, Head, Holder, Lock, Mapping, Object, Place, Registered, Watch};
use rustix::pipe::SpliceFlags;
use rustix::process::Pid;
use us_abi::{THREAD_ENTRY_BYTES, VERSION};
use us_sites::maps::WRITE;

use super::raw;
use crate::clock;
use crate::proc;
use crate::proc::text::{self, field};
use crate::recorder::surroundings;
use crate::segment::Segment;

/// A head, and what of the segment goes with it.
pub(crate) struct Described {
    pub(crate) head: Head,
    pub(super) entries: Vec<u8>,
}

/// What a program goes on to change when it no longer stands still.
pub(super) struct Shared {
    descriptors: Vec<Descriptor>,
    objects: Vec<Object>,
    entries: Vec<u8>,
    name: Vec<u8>,
}

impl Shared {
    /// Looks at what the program `primary`, which stands still, and its copy `pid` share. `ends` if the program does not go on.
    ///
    /// # Errors
    /// What no checkpoint can have, in words.
    pub(super) fn look(pid: u32, primary: u32, segment: &Segment, ends: bool) -> Result<Shared, String> {
        // Those that have just been made, and those that have ended and that nobody has asked about.
        if proc::children(primary).next().is_some() {
            return Err("the program has made a process, and has not waited for its end".into());
        }
        let (descriptors, objects) = descriptors([pid, primary], ends)?;
        let mut name = proc::bytes(primary, "comm").unwrap_or_default();
        name.pop();
        Ok(Shared { descriptors, objects, entries: segment.thread_entries(), name })
    }
}

/// Describes the copy `pid`, which stands still for ever. What is not known yet is the group's, its program and order, and what the
/// files that are mapped hold.
///
/// # Errors
/// What no checkpoint can have, in words.
pub(super) fn describe(pid: u32, segment: &Segment, shared: Shared) -> Result<Described, String> {
    let text = |name: &str| {
        proc::bytes(pid, name).map_err(|cause| format!("cannot read {name} of the copy: {cause}"))
    };
    let stand = &segment.header().stand;
    let place = Place {
        context: stand.context.load(Ordering::Relaxed),
        resume: stand.resume.load(Ordering::Relaxed),
        tls: stand.tls.load(Ordering::Relaxed),
        folder: stand.folder.load(Ordering::Relaxed),
    };
    let link = |name: &str| {
        let path = proc::link(pid, name).map_err(|cause| format!("cannot read {name}: {cause}"))?;
        path.into_os_string().into_string().map_err(|_| format!("the path of {name} is not UTF-8"))
    };
    is_as_we_are(&text("status")?, link("root")?)?;
    let (mappings, files) = mappings(&text("maps")?)?;
    let auxiliary = text("auxv")?.chunks_exact(8).map(word).collect();
    let slots = (shared.entries.len() / THREAD_ENTRY_BYTES) as u32;
    Ok(Described {
        entries: shared.entries,
        head: Head {
            program: Vec::new(),
            executable: link("exe")?,
            order: String::new(),
            taken: clock::now_text(),
            kernel: surroundings::kernel(),
            processor: proc::features(),
            segment_version: VERSION,
            pid: segment.header().guest_pid.load(Ordering::Relaxed),
            name: shared.name,
            folder: link("cwd")?,
            umask: proc::umask(pid).unwrap_or(0o22),
            oom_score: proc::oom_score(pid).unwrap_or(0),
            leads: leads(pid),
            limits: limits(pid),
            slots,
            place,
            areas: areas(&text("stat")?, stand.heap_end.load(Ordering::Relaxed))?,
            auxiliary,
            mappings,
            files,
            descriptors: shared.descriptors,
            objects: shared.objects,
        },
    })
}

impl Described {
    /// Reads the files that are mapped: what the checkpoint does not hold must be the same where it goes on.
    ///
    /// # Errors
    /// Which one cannot be read.
    pub(super) fn read_files(&mut self) -> Result<(), String> {
        self.head.files.iter_mut().try_for_each(|known| file(&known.path).map(|now| *known = now))
    }
}

fn word(bytes: &[u8]) -> u64 {
    bytes.try_into().map_or(0, u64::from_le_bytes)
}

/// A process that goes on is started by a supervisor: it has its user, its root and its rights.
fn is_as_we_are(status: &[u8], root: String) -> Result<(), String> {
    const KEPT: [&str; 9] =
        ["Uid:", "Gid:", "Groups:", "CapInh:", "CapPrm:", "CapEff:", "CapBnd:", "CapAmb:", "NoNewPrivs:"];
    let own = proc::lossy("self", "status");
    let status = String::from_utf8_lossy(status);
    if KEPT.iter().any(|name| field(&status, name) != field(&own, name)) {
        return Err("the program has another user or other rights than the supervisor".into());
    }
    if field(&status, "Seccomp:").is_some_and(|mode| mode != "0") {
        return Err("the program has set a filter of system calls".into());
    }
    let own_root = proc::link("self", "root").ok();
    if own_root.is_none_or(|own| own.to_str() != Some(&root)) {
        return Err("the program is in another root folder than the supervisor".into());
    }
    Ok(())
}

/// Whether a copy leads a session or a process group that is not ours: it has them of the program.
fn leads(pid: u32) -> [bool; 2] {
    let pid = crate::child::raw(pid);
    let differs =
        |one: rustix::io::Result<Pid>, own: Option<Pid>| one.ok().is_some_and(|one| Some(one) != own);
    [
        differs(rustix::process::getsid(pid), rustix::process::getsid(None).ok()),
        differs(rustix::process::getpgid(pid), rustix::process::getpgid(None).ok()),
    ]
}

fn limits(pid: u32) -> Vec<[u64; 2]> {
    const LIMITS: u32 = 16;
    (0..LIMITS).map(|kind| raw::limit(pid, kind).unwrap_or([u64::MAX; 2])).collect()
}

/// See [`Head::areas`].
fn areas(stat: &[u8], heap_end: u64) -> Result<[u64; 11], String> {
    let [code, code_end, data, data_end, heap, stack, a, a_end, e, e_end] =
        text::areas(stat).ok_or("the kernel does not tell where the program's parts are")?;
    Ok([code, code_end, data, data_end, heap, heap_end, stack, a, a_end, e, e_end])
}

// ---- Memory ----

/// Whether a mapping of that name is the kernel's own.
pub(super) fn is_kernels(name: &str) -> bool {
    ["[vvar]", "[vvar_vclock]", "[vdso]"].contains(&name)
}

/// What is mapped, and which files; what those hold is not read here.
fn mappings(maps: &[u8]) -> Result<(Vec<Mapping>, Vec<checkpoint::File>), String> {
    let (mut all, mut files, mut known) = (Vec::new(), Vec::new(), HashMap::new());
    for (mapping, name) in text::mappings(maps) {
        let name = &*String::from_utf8_lossy(name);
        if us_abi::is_of_group(mapping.start as usize) || name == "[vsyscall]" {
            continue;
        }
        let kernel = is_kernels(name).then(|| name.to_owned());
        if mapping.shared && mapping.protection & WRITE != 0 {
            return Err(format!("{name} is mapped to be written by others as well"));
        }
        let is_gone = name.ends_with(" (deleted)");
        let file = match mapping.inode {
            0 => None,
            // Its pages are the only ones.
            _ if is_gone || name.starts_with("/dev/zero") => {
                return Err(format!("{name} is mapped, and has no file any more"));
            }
            _ => {
                let index = *known.entry(name.to_owned()).or_insert(files.len());
                if index == files.len() {
                    files.push(checkpoint::File { path: name.to_owned(), bytes: 0, checksum: 0 });
                }
                Some((index, mapping.offset))
            }
        };
        all.push(Mapping {
            start: mapping.start,
            end: mapping.end,
            protection: mapping.protection as u32,
            grows: name == "[stack]",
            file,
            kernel,
        });
    }
    Ok((all, files))
}

/// A file that is mapped, and what it holds.
pub(super) fn file(path: &str) -> Result<checkpoint::File, String> {
    let fail = |cause: std::io::Error| format!("cannot read {path}, which is mapped: {cause}");
    let mut file = fs::File::open(path).map_err(fail)?;
    let (mut bytes, mut checksum) = (0u64, 0);
    let mut buffer = vec![0; 1 << 20];
    loop {
        match file.read(&mut buffer).map_err(fail)? {
            0 => break,
            got => {
                bytes += got as u64;
                checksum = crc32c::crc32c_append(checksum, &buffer[..got]);
            }
        }
    }
    Ok(checkpoint::File { path: path.to_owned(), bytes, checksum })
}

// ---- Descriptors ----

/// Type of the file system of message queues.
const QUEUES: i64 = 0x1980_0202;
/// The device whose every opening makes a terminal.
const MASTERS: (u32, u32) = (5, 2);

/// Bytes of a file without a name that a checkpoint has room for.
const REMOVED_BYTES: u64 = 32 << 20;

/// What a pipe holds where the kernel does not say.
const PIPE_BYTES: u32 = 64 << 10;

struct Open {
    fd: i32,
    name: String,
    flags: u32,
    info: String,
}

/// The `fdinfo` of a descriptor.
fn told_of_descriptor(pid: u32, fd: impl std::fmt::Display) -> std::io::Result<String> {
    let info = proc::bytes(pid, format_args!("fdinfo/{fd}"))?;
    Ok(String::from_utf8_lossy(&info).into_owned())
}

fn descriptors([pid, primary]: [u32; 2], ends: bool) -> Result<(Vec<Descriptor>, Vec<Object>), String> {
    let fail = |cause: std::io::Error| format!("cannot list the descriptors of the copy: {cause}");
    let mut open = Vec::new();
    for fd in proc::numbers(pid, "fd").map_err(fail)? {
        let name = fs::read_link(proc::descriptor(pid, fd)).map_err(fail)?.into_os_string();
        let info = told_of_descriptor(pid, fd).map_err(fail)?;
        let flags = text::octal_field(&info, "flags:").unwrap_or(0);
        open.push(Open { fd: fd as i32, name: name.to_string_lossy().into_owned(), flags, info });
    }
    let held = rustix::process::pidfd_open(
        crate::child::raw(pid).ok_or("the copy is gone")?,
        rustix::process::PidfdFlags::empty(),
    )
    .map_err(|cause| format!("the copy is gone: {cause}"))?;
    let (mut all, mut objects) = (Vec::new(), Vec::new());
    for (at, one) in open.iter().enumerate() {
        let same = open[..at]
            .iter()
            .position(|other| other.name == one.name && raw::is_same_file(pid, other.fd, one.fd));
        let object = match same {
            Some(before) => {
                let before: &Descriptor = &all[before];
                before.object
            }
            None => {
                objects.push(object((&held, ends), [pid, primary], one, &open)?);
                objects.len() - 1
            }
        };
        // Of two numbers for one open file the first has its locks.
        let is_file = same.is_none() && one.name.starts_with('/');
        all.push(Descriptor {
            fd: one.fd,
            closes: one.flags & libc::O_CLOEXEC as u32 != 0,
            object,
            flags: one.flags & !(libc::O_CLOEXEC as u32),
            locks: if is_file { locks(primary, one.fd)? } else { Vec::new() },
        });
    }
    Ok((all, objects))
}

fn object(
    (held, ends): (&OwnedFd, bool),
    [pid, primary]: [u32; 2],
    open: &Open,
    all: &[Open],
) -> Result<Object, String> {
    let Open { fd, name, info, .. } = open;
    let no_checkpoint =
        |what: &str| Err(format!("descriptor {fd} is {what}, which no checkpoint can have yet"));
    if open.flags & libc::O_ASYNC as u32 != 0 {
        return no_checkpoint("one that sends signals");
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
        let position = field(info, "pos:").and_then(|text| text.parse().ok()).unwrap_or(0);
        if let Some(name) = name.strip_suffix(" (deleted)") {
            if !kind.is_file() || status.len() > REMOVED_BYTES {
                return no_checkpoint("something that has been removed");
            }
            let content = fs::read(&path).map_err(|cause| format!("cannot read descriptor {fd}: {cause}"))?;
            return Ok(Object::Removed { name: name.to_owned(), content, position });
        }
        let there = fs::metadata(name).ok();
        let is_of_process = proc::told_of("self", name).is_some();
        if !is_of_process
            && there.is_none_or(|there| (there.dev(), there.ino()) != (status.dev(), status.ino()))
        {
            return no_checkpoint("something to which no path leads");
        }
        if kind.is_fifo() {
            return named_pipe(held, open, all);
        }
        return Ok(Object::File { path: name.clone(), position });
    }
    let number = || text::object_number(name);
    match name.split_once(':').map_or("", |(kind, _)| kind) {
        "pipe" => pipe(held, open, all, number().unwrap_or(0)),
        "socket" => socket((held, ends), open, all),
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
        "anon_inode" if name.ends_with("inotify") => watches(held, open),
        "anon_inode" if name.ends_with("[eventpoll]") => Ok(Object::Epoll(registered(info))),
        _ => no_checkpoint(name),
    }
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
fn watches(held: &OwnedFd, open: &Open) -> Result<Object, String> {
    let fd = open.fd;
    if rustix::io::ioctl_fionread(borrow(held, fd)?) != Ok(0) {
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

/// Takes a descriptor of the copy's.
fn borrow(held: &OwnedFd, fd: i32) -> Result<OwnedFd, String> {
    rustix::process::pidfd_getfd(held, fd, rustix::process::PidfdGetfdFlags::empty())
        .map_err(|cause| format!("cannot look at descriptor {fd}: {cause}"))
}

fn pipe(held: &OwnedFd, open: &Open, all: &[Open], number: u64) -> Result<Object, String> {
    let writes = |open: &Open| open.flags & libc::O_ACCMODE as u32 != 0;
    let has_other = all.iter().any(|other| other.name == open.name && writes(other) != writes(open));
    if !has_other {
        return Ok(match open.fd {
            0..=2 => Object::Inherited(open.fd),
            _ => Object::Ended { is_written: writes(open) },
        });
    }
    let end = borrow(held, open.fd)?;
    let room = rustix::pipe::fcntl_getpipe_size(&end).map_or(PIPE_BYTES, |room| room as u32);
    let content = if writes(open) { Vec::new() } else { content(&end, room)? };
    Ok(Object::Pipe { number, room, content })
}

/// A pipe that has a name. Others may have it as well, and what is in it is theirs then; see [`Object::NamedPipe`].
fn named_pipe(held: &OwnedFd, open: &Open, all: &[Open]) -> Result<Object, String> {
    let reads = |open: &Open| open.flags & libc::O_ACCMODE as u32 != libc::O_WRONLY as u32;
    let first = all.iter().find(|other| other.name == open.name && reads(other));
    let end = borrow(held, open.fd)?;
    let room = rustix::pipe::fcntl_getpipe_size(&end).map_or(PIPE_BYTES, |room| room as u32);
    let is_first = first.is_some_and(|first| first.fd == open.fd);
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

/// Options that a socket keeps: level and name. Each is a number.
const OPTIONS: [(i32, i32); 10] = [
    (libc::SOL_SOCKET, libc::SO_REUSEADDR),
    (libc::SOL_SOCKET, libc::SO_REUSEPORT),
    (libc::SOL_SOCKET, libc::SO_KEEPALIVE),
    (libc::SOL_SOCKET, libc::SO_BROADCAST),
    (libc::SOL_SOCKET, libc::SO_PASSCRED),
    (libc::IPPROTO_IPV6, libc::IPV6_V6ONLY),
    (libc::IPPROTO_TCP, libc::TCP_NODELAY),
    (libc::IPPROTO_TCP, libc::TCP_DEFER_ACCEPT),
    (libc::IPPROTO_TCP, libc::TCP_FASTOPEN),
    (libc::IPPROTO_IP, libc::IP_TRANSPARENT),
];

/// The number of a pair of local sockets both of whose ends this process has: that of the lower end.
fn pair_of(domain: i32, open: &Open, all: &[Open]) -> Option<u64> {
    let number = |open: &Open| open.name.strip_prefix("socket:[")?.strip_suffix(']')?.parse::<u64>().ok();
    let own = number(open).filter(|_| domain == libc::AF_UNIX)?;
    let peer = raw::local_peer(own)?;
    all.iter().any(|other| number(other) == Some(peer)).then_some(own.min(peer))
}

fn socket((held, ends): (&OwnedFd, bool), open: &Open, all: &[Open]) -> Result<Object, String> {
    let socket = borrow(held, open.fd)?;
    let of = |name| {
        raw::option(&socket, libc::SOL_SOCKET, name).ok_or(format!("descriptor {} is no socket", open.fd))
    };
    let (domain, kind, protocol) = (of(libc::SO_DOMAIN)?, of(libc::SO_TYPE)?, of(libc::SO_PROTOCOL)?);
    let listens = of(libc::SO_ACCEPTCONN)? != 0;
    let has_peer = rustix::net::getpeername(socket.as_fd()).is_ok();
    let options: Vec<(i32, i32, i32)> = OPTIONS
        .iter()
        .filter_map(|(level, name)| {
            let value = raw::option(&socket, *level, *name).filter(|value| *value != 0);
            value.map(|value| (*level, *name, value))
        })
        .collect();
    if ends && matches!(domain, libc::AF_INET | libc::AF_INET6) {
        // Whoever goes on wants the addresses at once, which the kernel would keep for what has become of the connections.
        let _ = raw::set_option(&socket, libc::SOL_SOCKET, libc::SO_REUSEADDR, 1);
        if has_peer {
            raw::reset_at_close(&socket);
        }
    }
    if let Some(number) = pair_of(domain, open, all).filter(|_| !listens) {
        let content = raw::waiting(&socket)
            .map_err(|cause| format!("cannot look into descriptor {}: {cause}", open.fd))?;
        // The kernel doubles what is set.
        let room = raw::option(&socket, libc::SOL_SOCKET, libc::SO_SNDBUF).unwrap_or(0) / 2;
        return Ok(Object::Pair { room, number, kind, content, is_shut: raw::is_at_end(&socket) });
    }
    if domain == libc::AF_UNIX
        && !listens
        && !has_peer
        && !raw::waiting(&socket).unwrap_or_default().is_empty()
    {
        return Err(format!("descriptor {} is a local socket with messages that nobody has read", open.fd));
    }
    if !listens && has_peer {
        return Ok(if open.fd <= 2 { Object::Inherited(open.fd) } else { Object::Broken { domain } });
    }
    Ok(Object::Socket {
        domain,
        kind,
        protocol,
        name: raw::name(&socket),
        backlog: listens.then(|| raw::backlog(&socket).unwrap_or(libc::SOMAXCONN)),
        options,
    })
}
