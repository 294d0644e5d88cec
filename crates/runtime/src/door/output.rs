//! What a program shows: outputs to the standard descriptors are counted over all processes, so that a replay shows them
//! again in that order.

use core::sync::atomic::Ordering;

use us_abi::event::{EventKind, RETURN_OUTPUT};

use crate::guest::GuestPtr;
use crate::log::Next;
use crate::raw::{self, failed, nr};
use crate::sys::spans::{self, MessageHeader, Source};
use crate::thread::{Mode, Thread};
use crate::{fdtable, members, mirror, state};

/// How long a replay waits for the outputs of others that come before its own, naps of [`NAP_NS`]. One may be missing:
/// its process was killed before it could say so.
const PATIENCE: u32 = 100_000;
const NAP_NS: u64 = 50_000;

/// In the program's first process: what its standard descriptors stand for.
pub fn remember_standard() {
    let Some(roster) = members::header() else { return };
    for (fd, place) in roster.standard.iter().enumerate() {
        let known = fdtable::get(fd as i32).map_or(0, |shadow| shadow.identity.load(Ordering::Relaxed));
        place.store(fdtable::kept(known), Ordering::Relaxed);
    }
}

/// Whether outputs to the standard descriptors are counted.
#[inline(always)]
pub fn is_counted() -> bool {
    state::is_recorded()
}

/// Which of them an output with this result has gone to, as a recorded process: 1 for output, 2 for errors, 0 for
/// neither.
#[inline]
pub fn shown_at(fd: i32, result: i64) -> u8 {
    if is_counted() && result > 0 { standard(fd) } else { 0 }
}

fn standard(fd: i32) -> u8 {
    let Some(roster) = members::header() else { return 0 };
    let Some(shadow) = fdtable::get(fd) else { return 0 };
    let identity = fdtable::kept(shadow.identity.load(Ordering::Relaxed));
    if identity == 0 || shadow.kind() == fdtable::Kind::None {
        return 0;
    }
    (1..3).find(|at| roster.standard[*at].load(Ordering::Relaxed) == identity).unwrap_or(0) as u8
}

/// The flag for the `Return` of an output that was shown there.
#[inline]
pub fn flag(shown_at: u8) -> u8 {
    if shown_at != 0 { RETURN_OUTPUT } else { 0 }
}

/// Behind the `Return`, as a recorded process.
pub fn log(thread: &mut Thread, shown_at: u8) {
    if shown_at == 0 || thread.calls() != Mode::Record {
        return;
    }
    let Some(roster) = members::header() else { return };
    let ticket = roster.outputs.0.fetch_add(1, Ordering::AcqRel);
    thread.push(EventKind::Output, shown_at, 0, ticket);
}

/// Behind the `Return`, as one who follows. A replay shows it.
pub fn replay(thread: &mut Thread, fd: i32, source: Source, result: i64, flags: u8) {
    if flags & RETURN_OUTPUT == 0 {
        return;
    }
    let Next::Event(event) = thread.expect(EventKind::Output, 0) else {
        // Promoted between the two.
        return log(thread, standard(fd));
    };
    let (to, ticket) = (u64::from(event.header.flags), event.header.ticket);
    thread.close();
    if !state::is_detached() {
        return;
    }
    let Some(roster) = members::header() else { return };
    let turn = &roster.outputs.0;
    for _ in 0..PATIENCE {
        if turn.load(Ordering::Acquire) >= ticket {
            break;
        }
        raw::nap(NAP_NS);
    }
    show(mirror::standard(to), source, result as u64);
    turn.fetch_max(ticket + 1, Ordering::AcqRel);
}

fn show(to: u64, source: Source, bytes: u64) {
    match source {
        Source::Span(span) => put(to, span.base, bytes.min(span.len) as usize),
        Source::Vectors(list, count) => {
            spans::for_vectors(list, count, bytes, &mut |base, part| put(to, base, part));
        }
        Source::Message(at) => {
            let Some(header) = GuestPtr::<MessageHeader>::at(at).load() else { return };
            spans::for_vectors(header.vectors, header.vector_count, bytes, &mut |base, part| {
                put(to, base, part);
            });
        }
    }
}

/// Writes all of it, or as much as anybody wants.
fn put(to: u64, mut from: u64, mut bytes: usize) {
    while bytes > 0 {
        // SAFETY: the guest's own buffer, which it has written out at this place in the recording.
        let done = unsafe { raw::call3(nr::WRITE, to, from, bytes as u64) };
        match done {
            raw::err::EINTR => {}
            raw::err::EAGAIN => raw::nap(NAP_NS),
            done if failed(done) || done == 0 => return,
            done => {
                from += done as u64;
                bytes -= done as usize;
            }
        }
    }
}
