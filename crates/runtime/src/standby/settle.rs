//! Calls in doubt: begun by the primary, and the log does not say that they returned.
//!
//! Settling completes the log: where the kernel shows that a call was done, the missing `Return` is appended
//! to the dead thread's ring, and its successor applies it like any other. Where it was not done, nothing
//! is appended, and the call is made again, live. By the poller, while nobody acts.

use core::sync::atomic::Ordering;

use us_abi::event::{CallArgs, EventKind, Header, NO_TICKET, RETURN_PARTIAL, ReturnHead};
use us_abi::{PAYLOAD_BYTES_MAX, RING_BYTES, RINGS_ADDRESS, SegmentHeader};
use us_calls::{Door, Policy, Row};
use us_order::settle::{Identity, Pipe, Settled, TcpSent};
use us_ring::Position;

use crate::door::table;
use crate::fdtable::{self, Kind, Shadow};
use crate::raw;
use crate::state;
use crate::sys::witness::{self, Testimony};
use crate::thread::{self, RingMemory, Thread};

const SOCKADDR_MAX: usize = 128;

/// A call in doubt.
struct Doubt {
    slot: u32,
    row: &'static Row,
    args: CallArgs,
}

/// The call in doubt of a slot, if there is one. Its ring is drained.
fn doubt_of(thread: &Thread) -> Option<Doubt> {
    if thread.in_doubt == u64::MAX || thread.ring.0.is_null() {
        return None;
    }
    let (number, args) = thread.doubted;
    let row = us_calls::row(u64::from(number))?;
    Some(Doubt { slot: thread.slot, row, args })
}

/// Calls `f` for every call in doubt whose ring is drained.
fn for_doubts(mut f: impl FnMut(Doubt)) {
    thread::for_each(|thread| {
        let entry = thread.entry();
        if entry.tail.0.acquire() == entry.head.0.acquire()
            && let Some(doubt) = doubt_of(thread)
        {
            f(doubt);
        }
    });
}

/// Settles every call in doubt. Returns how many there were, and how many could not be settled.
pub fn all(_header: &SegmentHeader) -> (u32, u32) {
    let (mut in_doubt, mut unsettled) = (0, 0);
    let mut claimed = [-1i32; 64];
    // A write and a read in doubt on one pipe explain its contents only together: before either is completed.
    let mut pipes = [None; 64];
    for_doubts(|doubt| {
        if let Some(shadow) = fdtable::get(doubt.args.fd)
            && shadow.kind() == Kind::Pipe
            && let Some(moved) = pipe(shadow)
            && let Some(place) = pipes.iter_mut().find(|place| place.is_none())
        {
            *place = Some((doubt.slot, moved));
        }
    });
    let piped = |slot| pipes.iter().flatten().find(|(of, _)| *of == slot).map(|(_, moved)| *moved);
    // Closes first: a number whose close is still to come looks like one that a call has just made.
    for closes in [true, false] {
        for_doubts(|doubt| {
            if closes != matches!(doubt.row.policy, Policy::Special(Door::Close)) {
                return;
            }
            in_doubt += 1;
            if !settle(&doubt, &mut claimed, piped(doubt.slot)) {
                unsettled += 1;
            }
        });
    }
    (in_doubt, unsettled)
}

/// A thread creation in doubt is settled early: the child may have run and logged, and everybody waits for it.
pub fn creations(_header: &SegmentHeader) {
    for_doubts(|doubt| {
        if u64::from(doubt.row.nr) != raw::nr::CLONE || doubt.args.fd != -1 || doubt.args.len == 0 {
            return;
        }
        let child = doubt.args.len as u32;
        let entry = state::entry(child);
        let at = entry.head.0.acquire();
        if entry.tail.0.acquire() <= at || !super::promote::is_mapped(child) {
            return;
        }
        let ring = RingMemory((RINGS_ADDRESS + child as usize * 2 * RING_BYTES) as *mut u8);
        let at = behind_skips(ring, at, entry.tail.0.acquire());
        // SAFETY: an event below the tail of a mapped ring. Only the start of a new thread is a sign of life: other
        // events are still those of the slot's last thread.
        if unsafe { ring.at(at).cast::<Header>().read() }.kind == EventKind::ThreadStart as u8 {
            complete(&doubt, 0, ReturnHead::default(), &[]);
        }
    });
}

/// The position of the first event that says something.
fn behind_skips(ring: RingMemory, mut at: u64, tail: u64) -> u64 {
    loop {
        // SAFETY: below the tail of a mapped ring.
        let header = unsafe { ring.at(at).cast::<Header>().read() };
        let next = at + Header::size(header.len) as u64;
        if header.kind != EventKind::Skip as u8 || next >= tail {
            return at;
        }
        at = next;
    }
}

/// Appends the `Return` that the dead primary could not.
fn complete(doubt: &Doubt, flags: u8, head: ReturnHead, bytes: &[u8]) {
    let entry = state::entry(doubt.slot);
    let ring = RingMemory((RINGS_ADDRESS + doubt.slot as usize * 2 * RING_BYTES) as *mut u8);
    let at = entry.tail.0.acquire();
    let len = size_of::<ReturnHead>() + bytes.len().min(PAYLOAD_BYTES_MAX);
    let header = Header {
        kind: EventKind::Return as u8,
        flags,
        call: doubt.row.nr,
        len: len as u32,
        ticket: NO_TICKET,
    };
    let place = ring.at(at);
    // SAFETY: above the tail of a ring whose producer is dead; there is room, since everything below is applied.
    // The bytes may already lie in place: input that the kernel put into the slot.
    unsafe {
        place.cast::<Header>().write(header);
        place.add(size_of::<Header>()).cast::<ReturnHead>().write(head);
        let data = place.add(size_of::<Header>() + size_of::<ReturnHead>());
        if !core::ptr::eq(data, bytes.as_ptr()) {
            core::ptr::copy(bytes.as_ptr(), data, len - size_of::<ReturnHead>());
        }
    }
    entry.tail.0.release(at + Header::size(len as u32) as u64);
}

/// Settles one call. `false` if the kernel cannot tell.
fn settle(doubt: &Doubt, claimed: &mut [i32], piped: Option<(u64, u64)>) -> bool {
    let Policy::Special(door) = doubt.row.policy else { return true };
    match door {
        Door::Write | Door::Writev | Door::Send | Door::SendMsg | Door::Sendfile => output(doubt, piped),
        Door::Read | Door::Recv => input(doubt, true, piped),
        Door::Readv | Door::RecvMsg => input(doubt, false, piped),
        Door::Close => close(doubt, claimed),
        Door::Open | Door::Socket | Door::Accept | Door::Dup => creation(doubt, door, claimed),
        _ => true,
    }
}

fn done(doubt: &Doubt, settled: Settled) -> bool {
    match settled {
        Settled::Done(bytes) => complete(doubt, 0, ReturnHead { result: bytes as i64, identity: 0 }, &[]),
        Settled::Continue(bytes) => {
            complete(doubt, RETURN_PARTIAL, ReturnHead { result: bytes as i64, identity: 0 }, &[]);
        }
        Settled::Reissue => {}
        Settled::Unknown => return false,
    }
    true
}

/// Where the next event of a slot would have been written.
fn slot_place(slot: u32) -> *mut u8 {
    let ring = RingMemory((RINGS_ADDRESS + slot as usize * 2 * RING_BYTES) as *mut u8);
    ring.at(state::entry(slot).tail.0.acquire())
}

fn output(doubt: &Doubt, piped: Option<(u64, u64)>) -> bool {
    const PWRITE64: u16 = 18;
    if matches!(doubt.row.nr, PWRITE64 | 296 | 328) {
        // The same bytes at the same place: made again as it is.
        return true;
    }
    let (fd, len) = (doubt.args.fd, doubt.args.len);
    match witness::testimony(slot_place(doubt.slot)) {
        Testimony::Nothing => return true,
        Testimony::Moved(0) => return done(doubt, Settled::Done(0)),
        Testimony::Moved(moved) => {
            return done(doubt, us_order::settle::write(len, moved.into(), is_nonblocking(fd)));
        }
        Testimony::None => {}
    }
    let Some(shadow) = fdtable::get(fd) else { return false };
    let logged = shadow.bytes_written();
    let moved = match shadow.kind() {
        kind @ (Kind::Tcp | Kind::TcpAccepted) => tcp(fd, kind)
            .and_then(|tcp| us_order::settle::tcp_written(tcp.sent))
            .and_then(|all| all.checked_sub(logged)),
        Kind::File => fdtable::position(fd).and_then(|now| us_order::settle::file_moved(now, logged)),
        // An append puts the position at the end of what it wrote; any other place than before means done.
        Kind::Append => fdtable::position(fd).map(|now| if now == logged { 0 } else { len }),
        Kind::Pipe => match piped {
            Some((written, _)) => Some(written),
            None => return opaque_output(doubt),
        },
        _ => return opaque_output(doubt),
    };
    match moved {
        Some(moved) => done(doubt, us_order::settle::write(len, moved, is_nonblocking(fd))),
        None => {
            opaque_output(doubt);
            false
        }
    }
}

/// What the write and the read in doubt on a pipe have moved, if both ends are the group's alone and the figures
/// allow one answer.
fn pipe(shadow: &Shadow) -> Option<(u64, u64)> {
    const FIONREAD: u64 = 0x541b;
    if !shadow.is_private() {
        return None;
    }
    let (mut writers, mut readers) = (0, 0);
    let mut view = Pipe {
        queued: 0,
        logged: shadow.bytes_written().checked_sub(shadow.bytes_read())?,
        write_len: 0,
        read_len: 0,
        slot_touched: false,
    };
    let mut fd = -1;
    for_doubts(|doubt| {
        if !fdtable::get(doubt.args.fd).is_some_and(|other| other.same_stream(shadow)) {
            return;
        }
        let Policy::Special(door) = doubt.row.policy else { return };
        match door {
            Door::Write | Door::Writev => {
                writers += 1;
                view.write_len = doubt.args.len;
            }
            Door::Read | Door::Readv => {
                readers += 1;
                view.read_len = doubt.args.len;
                view.slot_touched = witness::touched(slot_place(doubt.slot)) != Some(Some(0));
            }
            _ => return,
        }
        fd = doubt.args.fd;
    });
    let mut queued = 0i32;
    // SAFETY: the kernel writes one int.
    if unsafe { raw::call3(raw::nr::IOCTL, fd as u64, FIONREAD, &raw mut queued as u64) } != 0 {
        return None;
    }
    view.queued = queued as u64;
    if writers > 1 || readers > 1 { None } else { us_order::settle::pipe(view) }
}

/// A pipe, a datagram, a local socket: the kernel keeps no count. A write that could go on was inside the kernel
/// for all but a few instructions of the time between its `Enter` and its `Return`, so it was done; one
/// that cannot go on now was waiting, and is made again.
fn opaque_output(doubt: &Doubt) -> bool {
    const POLLOUT: u64 = 4;
    let mut poll = (doubt.args.fd as u32 as u64) | POLLOUT << 32;
    // SAFETY: the kernel reads and writes one struct pollfd.
    let ready =
        unsafe { raw::call3(raw::nr::POLL, &raw mut poll as u64, 1, 0) } == 1 && poll >> 48 & POLLOUT != 0;
    if ready {
        done(doubt, Settled::Done(doubt.args.len));
    }
    false
}

/// Input: what the kernel handed over lies in the slot behind the ring's tail, if it was read into the ring.
fn input(doubt: &Doubt, in_ring: bool, piped: Option<(u64, u64)>) -> bool {
    let fd = doubt.args.fd;
    if matches!(doubt.row.nr, 17 | 295 | 327) {
        return true;
    }
    let Some(shadow) = fdtable::get(fd) else { return true };
    // SAFETY: blocks are never freed; the thread sleeps until the bell rings.
    let so_far = unsafe { (*thread::block(doubt.slot)).pieces };
    let place = slot_place(doubt.slot);
    match witness::testimony(place) {
        Testimony::Nothing if so_far == 0 => return true,
        Testimony::Nothing => {
            let head = ReturnHead { result: so_far as i64, identity: 0 };
            complete(doubt, RETURN_PARTIAL, head, &[]);
            return true;
        }
        Testimony::Moved(moved) => {
            let bytes = witness::compose(place, doubt.row.nr.into());
            received(doubt, so_far + u64::from(moved), bytes);
            return true;
        }
        Testimony::None => {}
    }
    let left = doubt.args.len.saturating_sub(so_far);
    let moved = match shadow.kind() {
        kind @ (Kind::Tcp | Kind::TcpAccepted) => {
            let logged = shadow.bytes_read();
            tcp(fd, kind).and_then(|tcp| tcp.read).and_then(|all| all.checked_sub(logged))
        }
        Kind::File | Kind::Append => {
            let logged = shadow.bytes_written();
            fdtable::position(fd).and_then(|now| us_order::settle::file_moved(now, logged))
        }
        Kind::Pipe => match (piped, witness::touched(place)) {
            (Some((_, read)), _) => Some(read),
            (None, Some(touched)) => touched.map(|bytes| bytes as u64),
            (None, None) => None,
        },
        _ => match witness::touched(place) {
            Some(touched) => touched.map(|bytes| bytes as u64),
            // Killed between two pieces, or before the first.
            None => Some(0),
        },
    };
    let Some(moved) = moved else {
        if so_far > 0 {
            complete(doubt, RETURN_PARTIAL, ReturnHead { result: so_far as i64, identity: 0 }, &[]);
        }
        return false;
    };
    match us_order::settle::read(left, moved) {
        Settled::Done(bytes) if in_ring && bytes as usize <= PAYLOAD_BYTES_MAX - size_of::<ReturnHead>() => {
            received(doubt, so_far + bytes, bytes as usize);
            true
        }
        Settled::Done(_) | Settled::Unknown => false,
        _ if so_far > 0 => {
            // Earlier pieces of the same read are applied.
            complete(doubt, RETURN_PARTIAL, ReturnHead { result: so_far as i64, identity: 0 }, &[]);
            true
        }
        _ => true,
    }
}

/// Completes an input whose bytes lie in the slot already.
fn received(doubt: &Doubt, result: u64, bytes: usize) {
    // SAFETY: the dead primary's reserved slot, contiguous in the doubled mapping.
    let data = unsafe {
        let start = slot_place(doubt.slot).add(size_of::<Header>() + size_of::<ReturnHead>());
        core::slice::from_raw_parts(start, bytes)
    };
    complete(doubt, RETURN_PARTIAL, ReturnHead { result: result as i64, identity: 0 }, data);
}

struct Tcp {
    sent: TcpSent,
    read: Option<u64>,
}

/// What the kernel has moved on a TCP socket, read until two readings agree.
fn tcp(fd: i32, kind: Kind) -> Option<Tcp> {
    let mut last = reading(fd)?;
    for _ in 0..100 {
        let now = reading(fd)?;
        if now == last {
            break;
        }
        last = now;
    }
    let (state, acked, received, inq, outq) = last;
    // FIN_WAIT1, FIN_WAIT2, TIME_WAIT, LAST_ACK, CLOSING.
    let fin_queued = matches!(state, 4 | 5 | 6 | 9 | 11);
    // TIME_WAIT, CLOSE_WAIT, LAST_ACK, CLOSING.
    let fin_received = matches!(state, 6 | 8 | 9 | 11);
    Some(Tcp {
        sent: TcpSent { acked, outq, syn_counted: kind == Kind::Tcp, fin_queued },
        read: us_order::settle::tcp_read(received, inq, fin_received),
    })
}

/// State, bytes acknowledged, received, unread, unacknowledged.
fn reading(fd: i32) -> Option<(u8, u64, u64, u64, u64)> {
    const SIOCINQ: u64 = 0x541b;
    const SIOCOUTQ: u64 = 0x5411;
    const IPPROTO_TCP: u64 = 6;
    const TCP_INFO: u64 = 11;
    let mut info = [0u64; 32];
    let mut len = 256u32;
    let (mut inq, mut outq) = (0i32, 0i32);
    let args = [fd as u64, IPPROTO_TCP, TCP_INFO, info.as_mut_ptr() as u64, &raw mut len as u64, 0];
    // SAFETY: the kernel writes at most 256 bytes of struct tcp_info, and two ints.
    unsafe {
        if raw::call6(raw::nr::GETSOCKOPT, args) != 0
            || raw::call3(raw::nr::IOCTL, fd as u64, SIOCINQ, &raw mut inq as u64) != 0
            || raw::call3(raw::nr::IOCTL, fd as u64, SIOCOUTQ, &raw mut outq as u64) != 0
        {
            return None;
        }
    }
    // tcpi_bytes_acked is at byte 120, tcpi_bytes_received at 128.
    Some((info[0] as u8, info[15], info[16], inq as u64, outq as u64))
}

fn is_nonblocking(fd: i32) -> bool {
    const F_GETFL: u64 = 3;
    const O_NONBLOCK: i64 = 0o4000;
    // SAFETY: asks for flags.
    let flags = unsafe { raw::call2(raw::nr::FCNTL, fd as u64, F_GETFL) };
    flags >= 0 && flags & O_NONBLOCK != 0
}

fn close(doubt: &Doubt, claimed: &mut [i32]) -> bool {
    let fd = doubt.args.fd;
    let Some(shadow) = fdtable::get(fd) else { return false };
    let (now, kind) = fdtable::identify(fd);
    let object = shadow.identity.load(Ordering::Relaxed);
    let now = (kind != Kind::None).then(|| if object == 0 { 0 } else { table::kept(now) });
    // SAFETY: blocks are never freed; the thread sleeps until the bell rings.
    let then = unsafe { (*thread::block(doubt.slot)).pieces } as u32;
    let generation = shadow.generation.load(Ordering::Relaxed);
    let settled = us_order::settle::close(Identity { object, generation: then }, now, generation);
    if settled == Settled::Reissue {
        // Not yet closed, and about to be: nobody's orphan.
        claim(claimed, fd);
    }
    done(doubt, settled)
}

fn claim(claimed: &mut [i32], fd: i32) {
    if let Some(place) = claimed.iter_mut().find(|place| **place < 0) {
        *place = fd;
    }
}

/// A descriptor that the table has and the shadow has not belongs to a call that made it and could not say so.
fn creation(doubt: &Doubt, door: Door, claimed: &mut [i32]) -> bool {
    let mut found = -1;
    fdtable::for_open(|fd| {
        let known = fdtable::get(fd).is_none_or(|shadow| shadow.kind() != Kind::None);
        if found < 0 && !known && !claimed.contains(&fd) && plausible(doubt, door, fd) {
            found = fd;
        }
    });
    if found < 0 {
        return true;
    }
    claim(claimed, found);
    let identity = table::identity_of(found, door == Door::Accept);
    let head = ReturnHead { result: i64::from(found), identity };
    let mut bytes = [0u8; 4 + SOCKADDR_MAX];
    let len = if door == Door::Accept { peer_name(found, &mut bytes) } else { 0 };
    complete(doubt, 0, head, &bytes[..len]);
    true
}

/// Whether a call could have made this descriptor.
fn plausible(doubt: &Doubt, door: Door, fd: i32) -> bool {
    const DUP: u16 = 32;
    if door == Door::Dup {
        // dup2 and dup3 name their number and are simply made again.
        let (source, found) = (fdtable::identify(doubt.args.fd), fdtable::identify(fd));
        return doubt.row.nr == DUP && source.1 != Kind::None && source == found;
    }
    let local = local_name(fd);
    match door {
        Door::Accept => local.is_some() && same_port(local, local_name(doubt.args.fd)),
        Door::Socket => local.is_some_and(|name| name[2..8] == [0; 6]),
        _ => local.is_none(),
    }
}

fn same_port(a: Option<[u8; SOCKADDR_MAX]>, b: Option<[u8; SOCKADDR_MAX]>) -> bool {
    match (a, b) {
        // Family and port; or, for local sockets, the path.
        (Some(a), Some(b)) => a[..4] == b[..4],
        _ => false,
    }
}

fn name_by(nr: u64, fd: i32, name: &mut [u8]) -> Option<u32> {
    let mut len = name.len() as u32;
    // SAFETY: the kernel writes at most `len` bytes and the length.
    let result = unsafe { raw::call3(nr, fd as u64, name.as_mut_ptr() as u64, &raw mut len as u64) };
    (result == 0).then_some(len)
}

/// Local address of a socket, `None` for anything else.
fn local_name(fd: i32) -> Option<[u8; SOCKADDR_MAX]> {
    const GETSOCKNAME: u64 = 51;
    let mut name = [0u8; SOCKADDR_MAX];
    name_by(GETSOCKNAME, fd, &mut name).map(|_| name)
}

/// The outputs of an accept: the length word, then the peer's address. Returns their bytes.
fn peer_name(fd: i32, bytes: &mut [u8; 4 + SOCKADDR_MAX]) -> usize {
    const GETPEERNAME: u64 = 52;
    let Some(len) = name_by(GETPEERNAME, fd, &mut bytes[4..]) else { return 0 };
    bytes[..4].copy_from_slice(&len.to_le_bytes());
    4 + (len as usize).min(SOCKADDR_MAX)
}
