//! Calls in doubt that make descriptors.
//!
//! A number that the table has and the shadow has not is an *orphan*: a call has made it and could not say so. A
//! connection that was accepted, a file that was opened or a duplicate is given to the call that made it. What nobody
//! outside can have noticed (a pipe, an eventfd, a new socket) is closed, and its call made again: that needs no
//! guess, and the lowest number is free for it, as it was. By the poller, while nobody acts.
//!
//! What follows from what is `us_world::maker`; here is what the kernel is asked for it.

use us_abi::event::ReturnHead;
use us_calls::{Door, EpollDoor, FdUse, IoctlOut, Policy};
use us_world::maker::{self, Class, Descriptors, Fate, Maker, Number, Orphan, Place};

use crate::door::table;
use crate::fdtable::{self, AT_FDCWD, Kind, Stat};
use crate::standby::settle::{Doubt, complete, for_doubts};
use crate::standby::unsettled::{Unsettled, tail_of};
use crate::sys::room::Room;
use crate::{guest, proc, raw};

const SOCKADDR_MAX: usize = 128;
/// System call numbers.
const IOCTL: u16 = linux_raw_sys::general::__NR_ioctl as u16;
const MQ_OPEN: u16 = linux_raw_sys::general::__NR_mq_open as u16;
const OPEN_TREE: u16 = linux_raw_sys::general::__NR_open_tree as u16;
const FSMOUNT: u16 = linux_raw_sys::general::__NR_fsmount as u16;
const PIDFD_GETFD: u16 = linux_raw_sys::general::__NR_pidfd_getfd as u16;
const OPEN_TREE_ATTR: u16 = linux_raw_sys::general::__NR_open_tree_attr as u16;

/// Numbers that are nobody's orphans, the orphans, and the calls that may have made them, in the same order as what each makes.
/// The poller's, which alone settles.
static CLAIMED: Room<i32> = Room::new();
static ORPHANS: Room<Orphan> = Room::new();
static DOUBTS: Room<Doubt> = Room::new();
static MAKERS: Room<Maker> = Room::new();

/// Numbers that are nobody's orphans.
pub struct Claimed {
    /// There was no memory for one: then nothing is an orphan for certain.
    is_short: bool,
}

impl Claimed {
    /// None yet.
    pub fn new() -> Claimed {
        CLAIMED.clear();
        Claimed { is_short: false }
    }

    /// This one is spoken for.
    pub fn add(&mut self, fd: i32) {
        self.is_short |= !CLAIMED.push(fd);
    }

    fn has(&self, fd: i32) -> bool {
        // SAFETY: the poller's list; it is the one that asks.
        self.is_short || unsafe { CLAIMED.all() }.contains(&fd)
    }
}

fn class_of(doubt: &Doubt) -> Option<Class> {
    let Policy::Special(door) = doubt.row.policy else { return None };
    match door {
        Door::Accept => Some(Class::Accepted),
        Door::Pipe => Some(Class::Pipe),
        Door::Socket => Some(Class::Socket),
        Door::Open => Some(Class::Named),
        Door::Object => Some(match doubt.row.nr {
            MQ_OPEN | OPEN_TREE | FSMOUNT | OPEN_TREE_ATTR => Class::Named,
            PIDFD_GETFD => Class::Anything,
            _ => Class::Anonymous,
        }),
        Door::Ioctl if us_calls::ioctl_out(doubt.asked[1] & 0xffff_ffff) == IoctlOut::Creates => {
            Some(Class::Named)
        }
        // One that changes a descriptor is made again.
        Door::Signalfd if doubt.row.fd.changes(&doubt.asked) => None,
        Door::Signalfd | Door::Epoll(EpollDoor::Create) => Some(Class::Anonymous),
        Door::Dup => Some(Class::Duplicate),
        Door::Fcntl if matches!(doubt.asked[1] & 0xffff_ffff, 0 | 1030) => Some(Class::Duplicate),
        _ => None,
    }
}

/// Whether a call makes descriptors.
pub fn makes(doubt: &Doubt) -> bool {
    class_of(doubt).is_some()
}

/// Gives every orphan to the call that made it, or throws it away. Calls and orphans of which nothing is known, because there was
/// no memory to ask, are unsettled: such a call is made again, such an orphan stays open.
pub fn settle(claimed: &mut Claimed, unsettled: &mut Unsettled<'_>) {
    DOUBTS.clear();
    MAKERS.clear();
    for_doubts(|doubt| {
        let Some(class) = class_of(&doubt).filter(|_| doubt.entered()) else { return };
        if !DOUBTS.push(doubt) {
            unsettled.add(&doubt, tail_of(doubt.slot));
        } else if !MAKERS.push(Maker::of(class)) {
            DOUBTS.truncate(MAKERS.count());
            unsettled.add(&doubt, tail_of(doubt.slot));
        }
    });
    if MAKERS.count() == 0 {
        return;
    }
    ORPHANS.clear();
    fdtable::for_open(|fd| {
        let is_logged = fdtable::get(fd).is_none_or(|shadow| shadow.kind() != Kind::None);
        // Whether it is claimed is asked only of what is in no log.
        let is_claimed = !is_logged && (claimed.has(fd) || is_closing(fd));
        if maker::is_orphan(Number { is_logged, is_claimed }) && !ORPHANS.push(Orphan::of(fd)) {
            unsettled.add_descriptor(fd);
        }
    });
    // SAFETY: the poller's lists, to which nothing below adds.
    let (doubts, makers, orphans) = unsafe { (DOUBTS.all(), MAKERS.all_mut(), ORPHANS.all_mut()) };
    maker::judge(makers, orphans, &mut Table { doubts });
    for (doubt, maker) in doubts.iter().zip(makers) {
        if let Some(fd) = maker.made {
            give(doubt, maker.class, fd);
        }
    }
    for orphan in orphans.iter().filter(|orphan| orphan.fate == Fate::Closed) {
        // SAFETY: nobody knows of this descriptor: its call has not returned to anybody, and is made again.
        unsafe { raw::call1(raw::nr::CLOSE, orphan.fd as u64) };
    }
}

/// The table of open files, as the calls in doubt may have left it.
struct Table<'a> {
    doubts: &'a [Doubt],
}

impl Descriptors for Table<'_> {
    fn has_made(&mut self, maker: usize, fd: i32) -> bool {
        let doubt = &self.doubts[maker];
        class_of(doubt).is_some_and(|class| made_by(doubt, class, fd))
    }

    fn class_of(&mut self, fd: i32) -> Class {
        class_of_orphan(fd)
    }
}

/// Closes files of `/proc` that a copy had open for a moment when it was killed, while it was being cloned or took over: nobody
/// else knows of them, and the guest would find their numbers taken. One that a thread is about to close is no such file.
pub fn close_left_open(claimed: &Claimed) {
    fdtable::for_open(|fd| {
        let known = fdtable::get(fd).is_none_or(|shadow| shadow.kind() != Kind::None);
        let mut name = [0u8; 64];
        if !known
            && !claimed.has(fd)
            && !is_closing(fd)
            && proc::object_name(fd, &mut name).is_some_and(|name| name.starts_with(b"/proc/"))
        {
            // SAFETY: a number that the log does not know.
            unsafe { raw::call1(raw::nr::CLOSE, fd as u64) };
        }
    });
}

/// Whether a close_range in doubt is about to close a number.
fn is_closing(fd: i32) -> bool {
    const CLOEXEC: u64 = 4;
    let mut closing = false;
    for_doubts(|doubt| {
        let [first, last, flags, ..] = doubt.asked.map(|number| number & 0xffff_ffff);
        closing |= matches!(doubt.row.policy, Policy::Special(Door::CloseRange))
            && flags & CLOEXEC == 0
            && (first..=last).contains(&(fd as u64));
    });
    closing
}

fn class_of_orphan(fd: i32) -> Class {
    let mut name = [0u8; 64];
    match proc::object_name(fd, &mut name) {
        Some(name) if name.starts_with(b"pipe:") => Class::Pipe,
        Some(name) if name.starts_with(b"socket:") => {
            // What has an address came from accept, whose connection must not be cut off.
            let named = local_name(fd).is_some_and(|name| name[2..8] != [0; 6]);
            if named { Class::Accepted } else { Class::Socket }
        }
        Some(name) if name.starts_with(b"/") && !name.starts_with(b"/memfd:") => Class::Named,
        _ => Class::Anonymous,
    }
}

/// Whether a call has made this very descriptor.
fn made_by(doubt: &Doubt, class: Class, fd: i32) -> bool {
    match class {
        Class::Duplicate => {
            let place = match doubt.row.fd {
                FdUse::Dups { to: Some(to), .. } => Place::At(doubt.asked[to as usize] as u32),
                _ if doubt.row.nr == raw::nr::FCNTL as u16 => Place::From(doubt.asked[2] as u32),
                _ => Place::Lowest,
            };
            place.can_be(fd) && is_same(doubt.args.fd, fd)
        }
        Class::Accepted => {
            local_name(fd).is_some_and(|name| same_address(&name, local_name(doubt.args.fd).as_ref()))
        }
        Class::Named => is_opened_by(doubt, fd),
        Class::Pipe | Class::Socket | Class::Anonymous | Class::Anything => false,
    }
}

fn is_same(a: i32, b: i32) -> bool {
    if fdtable::is_same_file(a, a) {
        return fdtable::is_same_file(a, b);
    }
    // A kernel that does not compare open files.
    let (source, found) = (fdtable::identify(a), fdtable::identify(b));
    source.1 != Kind::None && source == found
}

/// Whether a descriptor is what the path of an open leads to, opened in the same way.
fn is_opened_by(doubt: &Doubt, fd: i32) -> bool {
    const SHOWN: u64 = 0o3 | 0o2000 | 0o4000 | 0o10000000; // access mode, O_APPEND, O_NONBLOCK, O_PATH
    use crate::kernel::{O_NOFOLLOW, O_PATH};
    let asked = &doubt.asked;
    let (folder, path, flags) = match doubt.row.nr {
        2 => (AT_FDCWD, asked[0], asked[1]),
        85 => (AT_FDCWD, asked[0], 1),
        257 => (asked[0], asked[1], asked[2]),
        437 => (asked[0], asked[1], guest::load::<u64>(asked[2]).unwrap_or(0)),
        MQ_OPEN => return is_queue(asked[0], fd),
        IOCTL => return is_terminal_of(asked[0], fd),
        _ => return false,
    };
    let nofollow = if flags & (O_NOFOLLOW | O_PATH) == O_NOFOLLOW | O_PATH { 0x100 } else { 0 };
    let files = Stat::at(folder, path, nofollow).zip(Stat::of(fd));
    files.is_some_and(|(wanted, found)| wanted.is_same(&found))
        && fdtable::status_flags(fd) as u64 & SHOWN == flags & SHOWN
}

/// Whether a descriptor is the terminal behind this master, which an ioctl has opened. Left open it would hang the terminal up for
/// nobody.
fn is_terminal_of(master: u64, fd: i32) -> bool {
    use crate::kernel::TIOCGPTN;
    const MAJOR: u64 = 136;
    let mut minor = 0u32;
    // SAFETY: the kernel writes one word.
    let known = unsafe { raw::call3(IOCTL.into(), master, TIOCGPTN, &raw mut minor as u64) } == 0;
    let minor = u64::from(minor);
    let device = MAJOR << 8 | minor & 0xff | (minor & !0xff) << 12;
    known && Stat::of(fd).is_some_and(|found| found.rdev == device)
}

/// Whether a descriptor is the message queue of this name, which the kernel knows without a slash.
fn is_queue(name: u64, fd: i32) -> bool {
    let mut have = [0u8; 256];
    let mut wanted = [0u8; 256];
    let len = guest::string_len(name).min(255);
    guest::read(wanted.as_mut_ptr(), name, len);
    let wanted = wanted[..len].strip_prefix(b"/").unwrap_or(&wanted[..len]);
    proc::object_name(fd, &mut have).and_then(|have| have.strip_prefix(b"/")) == Some(wanted)
}

/// Appends the `Return` of the call that made a descriptor.
fn give(doubt: &Doubt, class: Class, fd: i32) {
    let accepted = class == Class::Accepted;
    let identity = if class == Class::Duplicate { 0 } else { table::identity_of(fd, accepted) };
    let mut bytes = [0u8; 4 + SOCKADDR_MAX];
    let len = if accepted { peer_name(doubt, fd, &mut bytes) } else { 0 };
    complete(doubt, 0, ReturnHead { result: i64::from(fd), identity }, &bytes[..len]);
}

/// Whether two local addresses are those of a listener and its connection: family and port, or, for local sockets,
/// the path.
fn same_address(a: &[u8; SOCKADDR_MAX], b: Option<&[u8; SOCKADDR_MAX]>) -> bool {
    const AF_UNIX: [u8; 2] = [1, 0];
    let Some(b) = b else { return false };
    if a[..2] == AF_UNIX { a == b } else { a[..4] == b[..4] }
}

fn name_by(nr: u64, fd: i32, name: &mut [u8]) -> Option<u32> {
    let mut len = name.len() as u32;
    // SAFETY: the kernel writes at most `len` bytes and the length.
    let result = unsafe { raw::call3(nr, fd as u64, name.as_mut_ptr() as u64, &raw mut len as u64) };
    (result == 0).then_some(len)
}

/// Local address of a socket, `None` for anything else.
fn local_name(fd: i32) -> Option<[u8; SOCKADDR_MAX]> {
    use crate::raw::nr::GETSOCKNAME;
    let mut name = [0u8; SOCKADDR_MAX];
    name_by(GETSOCKNAME, fd, &mut name).map(|_| name)
}

/// The outputs of an accept: the length word, then as much of the peer's address as the guest has room for. Returns
/// their bytes.
fn peer_name(doubt: &Doubt, fd: i32, bytes: &mut [u8; 4 + SOCKADDR_MAX]) -> usize {
    use crate::raw::nr::GETPEERNAME;
    let [_, address, room, ..] = doubt.asked;
    if address == 0 || room == 0 {
        return 0;
    }
    let Some(len) = name_by(GETPEERNAME, fd, &mut bytes[4..]) else { return 0 };
    bytes[..4].copy_from_slice(&len.to_le_bytes());
    let room = guest::load::<u32>(room).unwrap_or(0) as usize;
    4 + (len as usize).min(SOCKADDR_MAX).min(room)
}
