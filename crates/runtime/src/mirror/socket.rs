//! Sockets of a mirror: what they are to be is noted, and nobody hears of them before this copy takes over.
//!
//! Then who listened listens at the same address. Who was connected finds that the connection has been reset, as by the other side.

use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use linux_raw_sys::general as k;
use us_abi::world;

use super::{Thing, call, close, make, put, set_thing, thing};
use crate::fdtable::{self, Stat};
use crate::guest;
use crate::kernel::{AF_INET, AF_UNIX, SO_DOMAIN, SO_TYPE, SOCK_STREAM, SOL_SOCKET};
use crate::lock::Lock;
use crate::raw::{self, failed};

const KIND: u64 = 0xf;
const SO_REUSEADDR: u64 = 2;
const SO_LINGER: u64 = 13;
const EINPROGRESS: i64 = -115;

/// Sockets that are bound, listen, or send to one address.
const NOTES: usize = 1024;
/// Bytes of the longest address, a path's.
const ADDRESS: usize = 112;

/// What such a socket is to be.
struct Note {
    /// The inode of the one that stands for it here, 0: of none.
    inode: AtomicU64,
    /// Bytes of its own address, and of the one that it sends to; `listen`'s number plus one.
    own: AtomicU32,
    other: AtomicU32,
    backlog: AtomicU32,
    addresses: [[AtomicU64; ADDRESS / 8]; 2],
}

static POOL: [Note; NOTES] = [const {
    Note {
        inode: AtomicU64::new(0),
        own: AtomicU32::new(0),
        other: AtomicU32::new(0),
        backlog: AtomicU32::new(0),
        addresses: [const { [const { AtomicU64::new(0) }; ADDRESS / 8] }; 2],
    }
}; NOTES];

/// That of the socket behind this number, if it has one.
fn found(inode: u64) -> Option<&'static Note> {
    POOL.iter().find(|note| note.inode.load(Ordering::Relaxed) == inode)
}

/// The same; one is begun if it has none.
fn note_of(number: i32) -> Option<&'static Note> {
    let inode = Stat::of(number)?.ino;
    if let Some(known) = found(inode) {
        return Some(known);
    }
    let free = found(0).or_else(|| {
        forget_closed();
        found(0)
    })?;
    free.own.store(0, Ordering::Relaxed);
    free.other.store(0, Ordering::Relaxed);
    free.backlog.store(0, Ordering::Relaxed);
    free.inode.store(inode, Ordering::Relaxed);
    Some(free)
}

fn forget_closed() {
    for note in &POOL {
        let inode = note.inode.load(Ordering::Relaxed);
        let mut is_open = false;
        fdtable::for_known(|fd, _| {
            is_open |= matches!(thing(fd), Thing::Socket | Thing::Connection)
                && Stat::of(fd).is_some_and(|stat| stat.ino == inode);
        });
        if !is_open {
            note.inode.store(0, Ordering::Relaxed);
        }
    }
}

/// Nothing is noted.
pub(super) fn forget() {
    POOL.iter().for_each(|note| note.inode.store(0, Ordering::Relaxed));
}

/// What a socket is to be, as the image of the program has it.
pub(super) fn note(row: &world::Row) {
    if row.own == 0 && row.other == 0 && row.backlog == 0 {
        return;
    }
    let Some(note) = note_of(row.fd) else { return };
    for (which, bytes) in [row.own, row.other].into_iter().enumerate() {
        note.set_address(which, row.addresses[which].as_ptr() as u64, bytes.into());
    }
    note.backlog.store(row.backlog, Ordering::Relaxed);
}

impl Note {
    fn set_address(&self, which: usize, at: u64, bytes: u64) {
        let bytes = (bytes as usize).min(ADDRESS);
        let mut words = [0u64; ADDRESS / 8];
        if guest::read(words.as_mut_ptr().cast(), at, bytes) {
            self.addresses[which].iter().zip(words).for_each(|(to, word)| to.store(word, Ordering::Relaxed));
            let count = [&self.own, &self.other][which];
            count.store(bytes as u32, Ordering::Relaxed);
        }
    }

    fn address(&self, which: usize) -> ([u64; ADDRESS / 8], u64) {
        let words = core::array::from_fn(|at| self.addresses[which][at].load(Ordering::Relaxed));
        (words, [&self.own, &self.other][which].load(Ordering::Relaxed).into())
    }
}

fn option(number: i32, name: u64) -> u64 {
    let (mut value, mut len) = (0u32, 4u32);
    let at = [&raw mut value as u64, &raw mut len as u64];
    call(k::__NR_getsockopt, [number as u64, SOL_SOCKET, name, at[0], at[1], 0]);
    value.into()
}

fn set_option(number: i64, name: u64, value: &[u32]) {
    let bytes = size_of_val(value) as u64;
    call(k::__NR_setsockopt, [number as u64, SOL_SOCKET, name, value.as_ptr() as u64, bytes, 0]);
}

/// A call about sockets. False if it is none of those.
pub(super) fn follow(number: u32, args: &[u64; 6], result: i64) -> bool {
    let [a, b, c, ..] = *args;
    let fd = a as i32;
    match number {
        k::__NR_connect if !failed(result) || result == EINPROGRESS => connect(fd, b, c),
        _ if failed(result) => return number == k::__NR_connect,
        k::__NR_socket => make(number, args, result as i32, Thing::Socket),
        k::__NR_bind => {
            if let Some(note) = note_of(fd) {
                note.set_address(0, b, c);
            }
        }
        k::__NR_listen => {
            if let Some(note) = note_of(fd) {
                note.backlog.store(b as u32 + 1, Ordering::Relaxed);
            }
        }
        k::__NR_accept | k::__NR_accept4 => {
            const HOW: u64 = 0o2_004_000;
            let how = if number == k::__NR_accept4 { args[3] & HOW } else { 0 };
            let socket = [option(fd, SO_DOMAIN), option(fd, SO_TYPE) | how, 0, 0, 0, 0];
            let made = call(k::__NR_socket, socket);
            if failed(made) {
                super::give_up(&[b"no socket can be made on this machine"]);
            }
            put(made, result as i32, Thing::Connection);
        }
        k::__NR_setsockopt => _ = call(number, *args),
        _ => return false,
    }
    true
}

fn connect(fd: i32, at: u64, bytes: u64) {
    if option(fd, SO_TYPE) & KIND == SOCK_STREAM {
        set_thing(fd, Thing::Connection);
    } else if let Some(note) = note_of(fd) {
        note.set_address(1, at, bytes);
    }
}

/// At the end: sockets become what is noted.
pub(super) fn take_over() {
    fdtable::for_known(|fd, _| {
        if thing(fd) == Thing::Socket {
            become_noted(fd);
        }
    });
    super::connection::take_over();
    let mut helpers = Helpers { inet: -1, unix: -1 };
    fdtable::for_known(|fd, _| {
        if thing(fd) == Thing::Connection {
            helpers.reset(fd);
        }
    });
    for helper in [helpers.inet, helpers.unix].into_iter().filter(|helper| *helper >= 0) {
        close(helper);
    }
}

fn become_noted(fd: i32) {
    let Some(note) = Stat::of(fd).and_then(|stat| found(stat.ino)) else { return };
    let (address, bytes) = note.address(0);
    if bytes != 0 && !is_bound(fd) {
        bind(fd, &address, bytes);
    }
    let (other, bytes) = note.address(1);
    if bytes != 0 {
        call(k::__NR_connect, [fd as u64, other.as_ptr() as u64, bytes, 0, 0, 0]);
    }
    let backlog = note.backlog.load(Ordering::Relaxed);
    if backlog != 0 && failed(call(k::__NR_listen, [fd as u64, u64::from(backlog - 1), 0, 0, 0, 0])) {
        trouble(b"an address at which the program listened cannot be listened at on this machine");
    }
    // Others may be the same socket.
    note.inode.store(0, Ordering::Relaxed);
}

/// Whether it has its address: another process that has the same socket may have been here before.
fn is_bound(fd: i32) -> bool {
    let (mut name, mut len) = ([0u64; 16], 128u32);
    call(k::__NR_getsockname, [fd as u64, name.as_mut_ptr() as u64, &raw mut len as u64, 0, 0, 0]);
    // A port, or a name behind the family.
    if name[0] & 0xffff == AF_UNIX { len > 2 } else { name[0] >> 16 & 0xffff != 0 }
}

fn bind(fd: i32, address: &[u64; ADDRESS / 8], bytes: u64) {
    const IP_FREEBIND: u64 = 15;
    const IPV6_FREEBIND: u64 = 78;
    const IPPROTO_IPV6: u64 = 41;
    let at = address.as_ptr() as u64;
    let family = address[0] & 0xffff;
    let bind = || call(k::__NR_bind, [fd as u64, at, bytes, 0, 0, 0]);
    if !failed(bind()) {
        return;
    }
    let first = (address[0] >> 16) as u8;
    if family == AF_UNIX && first != 0 {
        // What another socket has left there, of which nobody takes connections.
        let probe = call(k::__NR_socket, [AF_UNIX, option(fd, SO_TYPE), 0, 0, 0, 0]);
        let is_left = failed(call(k::__NR_connect, [probe as u64, at, bytes, 0, 0, 0]));
        close(probe);
        if is_left {
            // A path with its NUL, which the room behind the address has.
            call(k::__NR_unlink, [at + 2, 0, 0, 0, 0, 0]);
        }
    } else {
        // The address may come to this machine a moment later.
        let on = 1u32;
        let own = [(0, IP_FREEBIND), (IPPROTO_IPV6, IPV6_FREEBIND)];
        let (level, name) = own[usize::from(family != AF_INET)];
        call(k::__NR_setsockopt, [fd as u64, level, name, &raw const on as u64, 4, 0]);
    }
    if failed(bind()) && !is_bound(fd) {
        trouble(b"an address that the program had cannot be bound on this machine");
    }
}

/// Something is not as it was: said once, and the program goes on.
fn trouble(what: &[u8]) {
    static SAID: Lock = Lock::new();
    if SAID.try_take() {
        raw::stderr(b"understudy: ");
        raw::stderr(what);
        raw::stderr(b"\n");
    }
}

/// Listeners of ours, to which what was connected is connected and reset.
struct Helpers {
    inet: i64,
    unix: i64,
}

impl Helpers {
    fn reset(&mut self, fd: i32) {
        // A duplicate of one that has been reset.
        let (mut name, mut len) = ([0u64; 16], 128u32);
        let ask = |name: u64, len: u64| call(k::__NR_getpeername, [fd as u64, name, len, 0, 0, 0]);
        if !failed(ask(name.as_mut_ptr() as u64, &raw mut len as u64)) {
            return;
        }
        let domain = option(fd, SO_DOMAIN);
        let helper = if domain == AF_UNIX { &mut self.unix } else { &mut self.inet };
        if *helper < 0 {
            *helper = listener(domain);
        }
        let len = 128u32;
        let mut len = if failed(*helper) { return } else { len };
        let at = (&raw mut len) as u64;
        call(k::__NR_getsockname, [*helper as u64, name.as_mut_ptr() as u64, at, 0, 0, 0]);
        if domain != AF_UNIX && domain != AF_INET {
            // The same as the other family sees it.
            let port = name[0] >> 16 & 0xffff;
            name = [0; 16];
            name[0] = domain | port << 16;
            name[1] = 0;
            name[2] = 0x0100_007f_ffff_0000;
            len = 28;
        }
        // It may be asked not to wait, and need not here.
        let connected = call(k::__NR_connect, [fd as u64, name.as_ptr() as u64, len.into(), 0, 0, 0]);
        if failed(connected) && connected != EINPROGRESS {
            return;
        }
        let other = call(k::__NR_accept4, [*helper as u64, 0, 0, 0, 0, 0]);
        if domain == AF_UNIX {
            // With something unread the end is a reset.
            let byte = 0u8;
            call(k::__NR_write, [fd as u64, &raw const byte as u64, 1, 0, 0, 0]);
        } else {
            set_option(other, SO_LINGER, &[1, 0]);
        }
        close(other);
        set_thing(fd, Thing::Other);
    }
}

fn listener(domain: u64) -> i64 {
    let domain = if domain == AF_UNIX { AF_UNIX } else { AF_INET };
    let made = call(k::__NR_socket, [domain, SOCK_STREAM, 0, 0, 0, 0]);
    if failed(made) {
        return made;
    }
    let (address, bytes) = match domain {
        // The kernel gives a name.
        AF_UNIX => ([AF_UNIX, 0], 2),
        _ => ([AF_INET | 0x0100_007f << 32, 0], 16u64),
    };
    set_option(made, SO_REUSEADDR, &[1]);
    call(k::__NR_bind, [made as u64, address.as_ptr() as u64, bytes, 0, 0, 0]);
    call(k::__NR_listen, [made as u64, 16, 0, 0, 0, 0]);
    made
}
