//! Pipes, pairs of sockets, eventfds and timers of a mirror: what went in goes in, what came out is taken out.

use core::sync::atomic::{AtomicU64, Ordering};

use super::{LOCK, Thing, call, give_up, set_thing, thing};
use crate::fdtable::{self, SHADOWED};
use crate::raw::{self, failed};
use crate::sys::spans::{self, Source};

/// Bytes that were read from a number before the call that wrote them came to its end in the log.
static OWED: [AtomicU64; SHADOWED] = [const { AtomicU64::new(0) }; SHADOWED];

const POLLIN: u64 = 1;
const POLLOUT: u64 = 4;

fn owed(number: i32) -> Option<&'static AtomicU64> {
    OWED.get(number as u32 as usize)
}

/// A pipe or a pair is there.
pub(super) fn made(ends: [i32; 2]) {
    use linux_raw_sys::general::{__NR_fcntl, F_GETPIPE_SZ, F_SETPIPE_SZ};
    ends.into_iter().for_each(closed);
    // A write may come to its end in the log before the read that has made room for it.
    let [_, end] = ends.map(|fd| fd as u64);
    let room = call(__NR_fcntl, [end, F_GETPIPE_SZ.into(), 0, 0, 0, 0]);
    if room > 0 {
        call(__NR_fcntl, [end, F_SETPIPE_SZ.into(), room as u64 * 2, 0, 0, 0]);
    }
}

/// Nothing is owed.
pub(super) fn forget() {
    OWED.iter().for_each(|owed| owed.store(0, Ordering::Relaxed));
}

pub(super) fn duplicated(_from: i32, to: i32) {
    closed(to);
}

pub(super) fn closed(number: i32) {
    if let Some(owed) = owed(number) {
        owed.store(0, Ordering::Relaxed);
    }
}

/// A call has brought so many bytes, or a message of them. At its turn.
pub fn took(number: i32, bytes: u64) {
    if thing(number) != Thing::None {
        LOCK.with(|| has_taken(number, bytes));
    }
}

/// The same, by who holds the lock.
pub(super) fn has_taken(number: i32, bytes: u64) {
    match thing(number) {
        Thing::Stream => take_out(number, bytes),
        Thing::Timer => tick(number),
        Thing::Written | Thing::Read => super::files::passed(number, bytes),
        _ => {}
    }
}

fn take_out(number: i32, bytes: u64) {
    use linux_raw_sys::general::__NR_read;
    let Some(owed) = owed(number) else { return };
    let mut left = owed.load(Ordering::Relaxed) + bytes;
    let mut room = [0u8; 1024];
    while left > 0 && raw::poll(number, POLLIN) as u64 & POLLIN != 0 {
        let part = left.min(room.len() as u64);
        let done = call(__NR_read, [number as u64, room.as_mut_ptr() as u64, part, 0, 0, 0]);
        if failed(done) || done == 0 {
            break;
        }
        left -= done as u64;
    }
    owed.store(left, Ordering::Relaxed);
}

/// A timer's expirations have been read: it goes on as it was set, from now on if it had not come so far here.
fn tick(number: i32) {
    use linux_raw_sys::general::{__NR_read, __NR_timerfd_gettime, __NR_timerfd_settime};
    let mut expired = 0u64;
    if raw::poll(number, POLLIN) as u64 & POLLIN != 0 {
        call(__NR_read, [number as u64, &raw mut expired as u64, 8, 0, 0, 0]);
        return;
    }
    let mut time = [0u64; 4];
    call(__NR_timerfd_gettime, [number as u64, time.as_mut_ptr() as u64, 0, 0, 0, 0]);
    let [seconds, nanoseconds, ..] = time;
    let next = [seconds, nanoseconds, seconds, nanoseconds];
    call(__NR_timerfd_settime, [number as u64, 0, next.as_ptr() as u64, 0, 0, 0]);
}

/// Calls `f` with each piece of what an output has moved.
pub(super) fn for_pieces(source: Source, bytes: u64, mut f: impl FnMut(u64, u64)) {
    match source {
        Source::Span(span) => f(span.base, span.len.min(bytes)),
        Source::Vectors(list, count) => {
            spans::for_vectors(list, count, bytes, &mut |base, part| f(base, part as u64));
        }
        Source::Message(at) => {
            let Some(header) = crate::guest::load::<spans::MessageHeader>(at) else { return };
            spans::for_vectors(header.vectors, header.vector_count, bytes, &mut |base, part| {
                f(base, part as u64);
            });
        }
    }
}

/// Puts into a pipe, or to the other one of a pair, what the log says went there.
pub(super) fn put_in(number: i32, source: Source, bytes: u64) {
    use linux_raw_sys::general::__NR_write;
    for_pieces(source, bytes, |mut base, mut left| {
        while left > 0 {
            let ready = raw::poll(number, POLLOUT) as u64;
            if ready & !POLLOUT != 0 {
                // Nobody reads there any more.
                return;
            }
            if ready & POLLOUT == 0 {
                give_up(&[b"a pipe of the program holds more than one of this machine's"]);
            }
            let done = call(__NR_write, [number as u64, base, left, 0, 0, 0]);
            if failed(done) || done == 0 {
                return;
            }
            base += done as u64;
            left -= done as u64;
        }
    });
}

/// At the end: what is owed is paid, and counters have their values.
pub(super) fn take_over() {
    use linux_raw_sys::general::__NR_write;
    fdtable::for_known(|fd, shadow| match thing(fd) {
        Thing::Stream => take_out(fd, 0),
        Thing::Counter => {
            let counts = shadow.counts();
            let value = counts.written.wrapping_sub(counts.read);
            // Another process may have it as well, and have been here before.
            let is_set = raw::poll(fd, POLLIN) as u64 & POLLIN != 0;
            if !is_set && value != 0 && value < u64::MAX / 2 {
                call(__NR_write, [fd as u64, &raw const value as u64, 8, 0, 0, 0]);
            }
            // Others may be the same counter.
            fdtable::for_known(|other, same| {
                if shadow.same_stream(same) {
                    set_thing(other, Thing::Other);
                }
            });
        }
        _ => {}
    });
}
