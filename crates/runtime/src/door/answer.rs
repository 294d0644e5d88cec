//! What a call has answered, into the log: its result and what the kernel wrote.

use us_abi::PAYLOAD_BYTES_MAX;
use us_abi::event::{EventKind, NO_TICKET, RETURN_MORE, ReturnHead};
use us_calls::Row;

use crate::call::Call;
use crate::door::recorded::return_ticket;
use crate::guest::GuestPtr;
use crate::sys::spans::{self, Before};
use crate::thread::Thread;

/// Publishes the `Return` with what the kernel wrote; in several events if it is long.
pub fn log_outputs(
    thread: &mut Thread,
    row: &Row,
    call: &Call,
    before: &Before,
    flags: u8,
    head: ReturnHead,
) {
    log_answer(thread, row, call, before, EventKind::Return, flags, head);
}

/// As [`log_outputs`], as a `Return` or a `Call`.
#[inline(never)]
pub(super) fn log_answer(
    thread: &mut Thread,
    row: &Row,
    call: &Call,
    before: &Before,
    kind: EventKind,
    flags: u8,
    head: ReturnHead,
) {
    let ticket = return_ticket(row);
    if row.outs.is_empty() {
        thread.append(kind, flags, row.nr, ticket, &head);
        return;
    }
    let total = spans::total(row, &call.args, head.result, before);
    let first = total.min(PAYLOAD_BYTES_MAX - size_of::<ReturnHead>());
    let mut chunk = Chunk {
        thread,
        row,
        ticket,
        kind,
        flags,
        head,
        place: core::ptr::null_mut(),
        used: 0,
        room: first,
        left: total,
    };
    if !chunk.open() {
        return;
    }
    spans::for_each(row, &call.args, head.result, before, &mut |from, bytes| chunk.put(from, bytes));
    chunk.close(0);
}

/// Spreads one result over as many events as it needs.
struct Chunk<'a> {
    thread: &'a mut Thread,
    row: &'a Row,
    ticket: u64,
    kind: EventKind,
    flags: u8,
    head: ReturnHead,
    place: *mut u8,
    used: usize,
    room: usize,
    left: usize,
}

impl Chunk<'_> {
    fn open(&mut self) -> bool {
        self.room = self.left.min(PAYLOAD_BYTES_MAX - size_of::<ReturnHead>());
        self.used = 0;
        self.place =
            self.thread.reserve(size_of::<ReturnHead>() + self.room).unwrap_or(core::ptr::null_mut());
        if self.place.is_null() {
            return false;
        }
        // SAFETY: reserved, aligned.
        unsafe { self.place.cast::<ReturnHead>().write(self.head) };
        true
    }

    fn put(&mut self, mut from: u64, mut bytes: usize) {
        while bytes > 0 && !self.place.is_null() {
            let part = bytes.min(self.room - self.used);
            // SAFETY: inside the reserved payload. What cannot be read stays what it was: the kernel wrote there
            // a moment ago, so only a guest that unmaps it meanwhile loses, and only in its standby.
            let to = unsafe { self.place.add(size_of::<ReturnHead>() + self.used) };
            GuestPtr::<u8>::at(from).copy_to(to, part);
            self.used += part;
            self.left -= part;
            from += part as u64;
            bytes -= part;
            if self.used == self.room && self.left > 0 {
                self.close(RETURN_MORE);
                self.open();
            }
        }
    }

    fn close(&mut self, more: u8) {
        if self.place.is_null() {
            return;
        }
        let (ticket, flags) = if more != 0 { (NO_TICKET, more) } else { (self.ticket, self.flags) };
        self.thread.publish(self.kind, flags, self.row.nr, ticket, size_of::<ReturnHead>() + self.used);
    }
}
