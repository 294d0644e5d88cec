//! An image of a program for another machine that is to follow it: what that one has to know of the descriptors, and what it makes of
//! them. It has objects of its own, of which nobody hears before it takes over: a listener is a socket that is to listen, a connection
//! is one that nobody is at the other end of.

use std::collections::HashMap;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::sync::atomic::Ordering;

use checkpoint::{Descriptor, Head, Known, Object, Socket};
use us_abi::connection::{self, of_machine};
use us_abi::world::{ADDRESS_BYTES, Row, thing};

use super::descriptors::Standing;
use super::sockets;
use crate::gate::kernel;
use crate::proc;
use crate::segment::Segment;

/// Bits of a socket's number that the log does not have.
const BEYOND_LOG: u64 = 15 << 60;

/// What is known of a connection's use, and holds for its successor as well.
const LASTS: u32 = connection::ENDED | connection::UNCOUNTED;

/// Of each descriptor what its object does not tell, while the program stands still.
///
/// # Errors
/// What no other machine can have, in words.
pub(super) fn known(
    of: &Standing,
    descriptors: &[Descriptor],
    objects: &[Object],
    segment: &Segment,
) -> Result<Vec<Known>, String> {
    let flags: HashMap<u64, u32> = segment
        .known_connections()
        .map(|(_, identity, row)| (identity, row.flags.load(Ordering::Acquire) & LASTS))
        .collect();
    let machine = of_machine(segment.connection_table().machine.load(Ordering::Acquire));
    let mut all = Vec::new();
    for one in descriptors {
        let cannot =
            |what: &str| Err(format!("descriptor {} is {what}, which no other machine can have", one.fd));
        let none = Known { fd: one.fd, ..Known::default() };
        all.push(match &objects[one.object] {
            Object::Process(_) => return cannot("a pidfd"),
            Object::Broken { .. } => return cannot("a connection that nobody knows"),
            Object::File { .. } => {
                let file = fs::metadata(proc::descriptor(of.pid, one.fd));
                Known { file: file.map_or([0; 2], |file| [file.dev(), file.ino()]), ..none }
            }
            Object::Socket(socket) if sockets::is_connection(socket) => {
                let own = of.borrow(one.fd)?;
                let cookie = kernel::get_all(&own, libc::SOL_SOCKET, libc::SO_COOKIE);
                let cookie = cookie.and_then(|bytes| bytes.first_chunk().copied()).map(u64::from_ne_bytes);
                let identity = cookie.map_or(0, |cookie| cookie & !BEYOND_LOG ^ machine);
                let away = kernel::waiting(&own).map_or(u64::MAX, |(away, _)| away.max(0) as u64);
                Known { unacknowledged: away, flags: flags.get(&identity).copied().unwrap_or(0), ..none }
            }
            _ => none,
        });
    }
    Ok(all)
}

/// Has the objects of a program be those of a copy that follows it here. What each number stands for then; `shown` are the descriptors
/// at which it shows standard output and error.
pub(super) fn follow(head: &mut Head, shown: [i32; 2]) -> Vec<Row> {
    let known: HashMap<i32, Known> = head.joins.iter().flatten().map(|known| (known.fd, *known)).collect();
    let things: Vec<(u32, Option<Socket>)> = head.objects.iter_mut().map(change).collect();
    let mut rows: Vec<Row> = (1..)
        .zip(shown)
        .map(|(number, fd)| {
            // Its place in the row says which it is.
            Row { fd, thing: thing::SHOWN, backlog: number, ..Row::NONE }
        })
        .collect();
    for one in head.processes.iter().flat_map(|process| &process.descriptors) {
        let (what, socket) = &things[one.object];
        let known = known.get(&one.fd).copied().unwrap_or_default();
        let mut row = Row {
            fd: one.fd,
            thing: *what,
            flags: known.flags,
            known: known.file,
            unacknowledged: known.unacknowledged,
            ..Row::NONE
        };
        if let Some(socket) = socket.as_ref().filter(|_| *what == thing::SOCKET) {
            row.backlog = socket.backlog.map_or(0, |backlog| backlog as u32 + 1);
            if sockets::has_name(socket.domain, &socket.name) {
                (row.own, row.addresses[0]) = address(&socket.name);
            }
            (row.other, row.addresses[1]) = address(&socket.peer);
        }
        rows.push(row);
    }
    rows
}

fn address(bytes: &[u8]) -> (u32, [u64; ADDRESS_BYTES / 8]) {
    let mut words = [0u64; ADDRESS_BYTES / 8];
    for (word, bytes) in words.iter_mut().zip(bytes.chunks(8)) {
        let mut whole = [0; 8];
        whole[..bytes.len()].copy_from_slice(bytes);
        *word = u64::from_ne_bytes(whole);
    }
    (bytes.len().min(ADDRESS_BYTES) as u32, words)
}

/// Makes of an object what stands for it in a copy that follows; what that is, and of a socket what it is to be.
fn change(object: &mut Object) -> (u32, Option<Socket>) {
    let what = match object {
        Object::Inherited(_) => thing::NONE,
        Object::File { path, position } => match fs::metadata(&*path) {
            Ok(status) if status.is_file() => thing::READ,
            Ok(_) => thing::OTHER,
            // Something has to have its number.
            Err(_) => {
                (*path, *position) = ("/dev/null".into(), 0);
                thing::OTHER
            }
        },
        Object::Removed { .. } => thing::WRITTEN,
        // A write may come to its end in the log before the read that has made room for it.
        Object::Pipe { room, .. } => {
            *room = room.saturating_mul(2);
            thing::STREAM
        }
        Object::Pair { .. } | Object::Ended { .. } => thing::STREAM,
        // It is given its value at a take-over, as the log counts it.
        Object::Events { count, .. } => {
            *count = 0;
            thing::COUNTER
        }
        Object::Timer { .. } => thing::TIMER,
        Object::Socket(socket) => {
            let is_to_be = socket.clone();
            (socket.name, socket.backlog, socket.peer) = (Vec::new(), None, Vec::new());
            let what = if sockets::is_connection(&is_to_be) { thing::CONNECTION } else { thing::SOCKET };
            return (what, Some(is_to_be));
        }
        Object::NamedPipe { .. }
        | Object::Memory { .. }
        | Object::Signals(_)
        | Object::Process(_)
        | Object::Epoll(_)
        | Object::Watches(_)
        | Object::Broken { .. } => thing::OTHER,
    };
    (what, None)
}

/// Rows as they lie in the file.
pub(super) fn bytes(rows: &[Row]) -> Vec<u8> {
    let mut all = Vec::new();
    for row in rows {
        all.extend_from_slice(&row.fd.to_ne_bytes());
        for word in [row.thing, row.own, row.other, row.backlog, row.flags] {
            all.extend_from_slice(&word.to_ne_bytes());
        }
        let words = row.known.iter().chain([&row.unacknowledged]).chain(row.addresses.iter().flatten());
        words.for_each(|word| all.extend_from_slice(&word.to_ne_bytes()));
    }
    all
}
