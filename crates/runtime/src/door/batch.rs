//! recvmmsg and sendmmsg: several messages in a call.
//!
//! The kernel notes behind each message's header how many bytes it has moved, before it looks for the next one. With the headers, and
//! what comes in, in the ring's unpublished slot, a primary killed in the call has still told its successor which
//! messages were moved.
//!
//! A slot holds so many messages; a call for more is made in parts, each with an `Enter` and a `Return`. Each
//! part waits for its first message only: the kernel keeps an error behind the first one at the socket, and would keep
//! there what the runtime interrupts its own threads with.
//!
//! # Safety
//! All of it lies in the calling thread's ring, above the tail, at places that the thread has reserved.

use core::cell::Cell;
use core::mem::offset_of;

use linux_raw_sys::net::mmsghdr;
use us_abi::PAYLOAD_BYTES_MAX;
use us_abi::event::ReturnHead;
use us_calls::Row;

use crate::call::Call;
use crate::door::recorded::{execute_marked, recorded, recorded_with};
use crate::door::witness::{self, CONTROL_MAX, NAME_MAX, SLOT_MAX, Shape};
use crate::door::{again, buffers, carry, message, numbers};
use crate::guest::{GuestMut, GuestPtr, part};
use crate::kernel::{MSG_DONTWAIT, MSG_ERRQUEUE, MSG_OOB};
use crate::raw::err::{EAGAIN, EINTR};
use crate::raw::{Timespec, failed};
use crate::sys::spans::{self, Control, MESSAGES_MAX, MMSG_BYTES, MMSG_LEN_OFFSET, MessageHeader, Vector};
use crate::thread::Thread;
use crate::{fdtable, state};

/// The kernel's flag of that name, which its headers keep to themselves.
const MSG_WAITFORONE: u64 = 0x10000;
/// The count of a message that has not been moved.
const NEVER: u32 = u32::MAX;
/// Messages that one call may have: the kernel's own limit.
const MESSAGES: u64 = 1024;
/// What an event says of a message in front of its name: count, and length of name, of control data, and flags.
const HEADS: usize = 4 + 4 + 8 + 4;

/// The kernel's `struct mmsghdr`.
#[repr(C)]
#[derive(Clone, Copy)]
struct Entry {
    header: MessageHeader,
    moved: u32,
    /// What the guest's own address buffer holds. To the kernel this is padding.
    name_capacity: u32,
}

const _: () = assert!(
    size_of::<Entry>() == MMSG_BYTES as usize && offset_of!(Entry, moved) == MMSG_LEN_OFFSET as usize
);

/// Whether a call of one part ends with an identity that says: another part follows.
const FOLLOWS: u64 = 1;

/// recvmmsg.
pub fn receive(thread: &mut Thread, row: &'static Row, call: &Call) -> i64 {
    let [fd, list, count, flags, time_out, _] = call.args;
    let shadow = fdtable::get(fd as i32);
    if flags & MSG_ERRQUEUE == 0
        && let Some(error) = shadow.and_then(fdtable::Shadow::take_late_error)
    {
        return error;
    }
    let count = (count & 0xffff_ffff).min(MESSAGES);
    let waits_for_all = flags & (MSG_DONTWAIT | MSG_WAITFORONE) == 0;
    let mut got = 0;
    loop {
        let place = list.wrapping_add(got * MMSG_BYTES);
        let first_only = if got > 0 && !waits_for_all { MSG_DONTWAIT } else { MSG_WAITFORONE };
        let most = (count - got).min(MESSAGES_MAX as u64);
        // The kernel looks at no sixth argument; settlement does.
        let args = [fd, place, most, flags | first_only, time_out, u64::from(waits_for_all)];
        let (result, follows) = receive_part(thread, row, &Call { args, ..*call });
        if failed(result) {
            if got == 0 {
                return result;
            }
            if !matches!(result, EAGAIN | EINTR)
                && let Some(shadow) = shadow
            {
                shadow.set_late_error(result);
            }
            return got as i64;
        }
        got += result as u64;
        if !follows || got >= count || is_over(time_out) || is_urgent(place, result as u64) {
            return got as i64;
        }
    }
}

/// One part: its result, and whether another one follows.
fn receive_part(thread: &mut Thread, row: &'static Row, part: &Call) -> (i64, bool) {
    thread.begun_mut().asked = part.args;
    let follows = Cell::new(false);
    let identify = |thread: &mut Thread, part: &Call, result: i64| {
        let asked = witness::many_of(thread).map_or(part.args[2], |(_, count)| count);
        identity(&part.args, result, asked)
    };
    let applied = |thread: &mut Thread, result: i64, identity: u64| {
        again::note(part.nr, &part.args, result);
        for index in 0..result as u64 {
            message::received_control(thread, GuestMut::at(part.args[1] + index * MMSG_BYTES));
        }
        follows.set(identity == FOLLOWS);
    };
    let result = recorded_with(thread, row, part, identify, applied);
    (result, follows.get())
}

/// The identity of a part that has brought so many messages, of which it was made for `asked`.
fn identity(args: &[u64; 6], result: i64, asked: u64) -> u64 {
    let is_full = result as u64 == asked;
    let goes_on = result > 0 && (is_full || args[5] != 0 && !carry::is_nonblocking(args[0]));
    if goes_on { FOLLOWS } else { 0 }
}

/// Whether the time is over after which no further message is waited for: the kernel leaves there what is left of it.
fn is_over(time_out: u64) -> bool {
    time_out != 0
        && GuestMut::<Timespec>::at(time_out).written().is_none_or(|left| left.sec == 0 && left.nsec == 0)
}

/// Whether the last of the messages is one out of band, behind which the kernel looks for no further one.
fn is_urgent(list: u64, count: u64) -> bool {
    let last = GuestMut::<MessageHeader>::at(list + (count - 1) * MMSG_BYTES).written();
    last.is_some_and(|header| u64::from(header.flags) & MSG_OOB != 0)
}

/// What a slot needs for the messages that it can hold.
#[derive(Clone, Copy, Default)]
struct Layout {
    messages: u64,
    /// Most bytes of the event.
    event: usize,
    /// Bytes of names, control data and payloads.
    spare: usize,
    /// Most bytes of one message, where there is room for more.
    most: Option<u64>,
}

impl Layout {
    /// Of the first messages of a list: those that the kernel would find written well, and that a slot holds.
    fn of(thread: &mut Thread, fd: u64, list: u64, count: u64) -> Layout {
        let mut layout = Layout { event: size_of::<Timespec>(), ..Layout::default() };
        for index in 0..count.min(MESSAGES_MAX as u64) {
            let at = GuestMut::<MessageHeader>::at(list.wrapping_add(index * MMSG_BYTES));
            let Some(given) = at.written() else { break };
            let (name, control) = (Self::name_room(&given), Self::control_room(&given));
            let room = spans::vector_bytes(given.vectors, given.vector_count);
            if room > fdtable::DATAGRAM_MAX && layout.most.is_none() {
                layout.most = Some(fdtable::most_of_one_message(fd as i32).unwrap_or(u64::MAX));
            }
            let wanted = layout.wanted(&given);
            if (given.name_len as i32) < 0
                || control > CONTROL_MAX
                || wanted > SLOT_MAX as u64
                || !buffers::are_there(thread, Shape::Message(at), wanted)
            {
                break;
            }
            let (control, wanted) = (control as usize, wanted as usize);
            let next = Layout {
                messages: index + 1,
                event: layout.event + HEADS + name + control + wanted,
                spare: layout.spare + padded(name) + padded(control) + padded(wanted),
                most: layout.most,
            };
            if next.event > PAYLOAD_BYTES_MAX - size_of::<ReturnHead>() || next.bytes() > SLOT_MAX {
                break;
            }
            layout = next;
        }
        layout
    }

    /// Bytes of a message's that are asked for.
    fn wanted(&self, given: &MessageHeader) -> u64 {
        spans::vector_bytes(given.vectors, given.vector_count).min(self.most.unwrap_or(u64::MAX))
    }

    fn name_room(given: &MessageHeader) -> usize {
        if given.name == 0 { 0 } else { NAME_MAX }
    }

    fn control_room(given: &MessageHeader) -> u64 {
        if given.control == 0 { 0 } else { given.control_len }
    }

    fn list_at(&self) -> usize {
        size_of::<ReturnHead>() + self.event.next_multiple_of(16)
    }

    fn vectors_at(&self) -> usize {
        self.list_at() + self.messages as usize * size_of::<Entry>()
    }

    fn time_at(&self) -> usize {
        self.vectors_at() + self.messages as usize * size_of::<Vector>()
    }

    fn bytes(&self) -> usize {
        self.time_at() + size_of::<Timespec>() + self.spare
    }
}

const fn padded(bytes: usize) -> usize {
    bytes.next_multiple_of(8)
}

/// Makes a part of a recvmmsg for real, into the slot. `None`: make the call in the plain way.
pub fn take(thread: &mut Thread, row: &'static Row, args: &[u64; 6]) -> Option<i64> {
    let [fd, given, count, flags, time_out, _] = *args;
    // A stream's bytes that are thrown away are written nowhere.
    if flags & witness::MSG_TRUNC != 0 && fdtable::get(fd as i32).is_some_and(|shadow| shadow.kind().is_tcp())
    {
        return None;
    }
    let layout = Layout::of(thread, fd, given, count);
    let time = if time_out == 0 { None } else { Some(GuestMut::<Timespec>::at(time_out).written()?) };
    if layout.messages == 0 || time.is_some_and(|time| !GuestMut::at(time_out).store(&time)) {
        return None;
    }
    let place = thread.reserve(layout.bytes())?;
    // SAFETY: all of it reserved, and laid out as `Layout` has counted it.
    let (list, time_at) = unsafe {
        let list = place.add(layout.list_at()).cast::<Entry>();
        let vectors = place.add(layout.vectors_at()).cast::<Vector>();
        let time_at = place.add(layout.time_at()).cast::<Timespec>();
        let mut spare = time_at.add(1).cast::<u8>();
        let mut take = |bytes: usize| {
            let at = spare;
            spare = spare.add(padded(bytes));
            at
        };
        for index in 0..layout.messages as usize {
            let at = GuestMut::<MessageHeader>::at(given + index as u64 * MMSG_BYTES);
            let given = at.written()?;
            let (name, control) = (Layout::name_room(&given), Layout::control_room(&given));
            let wanted = layout.wanted(&given);
            let (name_at, control_at, data) = (take(name), take(control as usize), take(wanted as usize));
            if wanted != 0 {
                // What the kernel takes out of a queue is lost if the memory for it is only to be found, and the process killed then.
                data.write_volatile(0);
            }
            vectors.add(index).write(Vector { base: data as u64, len: wanted });
            let header = MessageHeader {
                name: if name == 0 { 0 } else { name_at as u64 },
                name_len: if name == 0 { given.name_len } else { NAME_MAX as u32 },
                vectors: vectors.add(index) as u64,
                vector_count: 1,
                control: if control == 0 { 0 } else { control_at as u64 },
                control_len: given.control_len,
                ..MessageHeader::default()
            };
            let name_capacity = if name == 0 { 0 } else { given.name_len };
            list.add(index).write(Entry { header, moved: NEVER, name_capacity });
        }
        time_at.write(time.unwrap_or_default());
        (list, time_at)
    };
    witness::mark_many(place, list.cast(), layout.messages);
    let time_at = if time_out == 0 { 0 } else { time_at as u64 };
    let result =
        execute_marked(thread, row, row.nr.into(), &[fd, list as u64, layout.messages, flags, time_at, 0]);
    for index in 0..result.max(0) as u64 {
        // SAFETY: as above; the kernel has filled it in.
        let entry = unsafe { &*list.add(index as usize) };
        hand_over(entry, GuestMut::at(given + index * MMSG_BYTES));
    }
    if result > 0
        && let Some(left) = GuestPtr::<Timespec>::at(time_at).load()
    {
        GuestMut::at(time_out).store(&left);
    }
    Some(result)
}

impl Entry {
    /// Bytes of the sender's name that the guest has a place for.
    fn name_bytes(&self) -> usize {
        self.header.name_len.min(self.name_capacity).min(NAME_MAX as u32) as usize
    }

    fn control_bytes(&self) -> usize {
        if self.header.control == 0 { 0 } else { self.header.control_len as usize }
    }

    fn vector(&self) -> Vector {
        // SAFETY: in the slot, as `take` has laid it out.
        unsafe { (self.header.vectors as *const Vector).read() }
    }
}

/// Copies a message that has come to where the guest's own call would have put it.
fn hand_over(entry: &Entry, to: GuestMut<mmsghdr>) {
    let at = GuestMut::<MessageHeader>::at(to.address());
    let given = at.written().unwrap_or_default();
    let Vector { base, len } = entry.vector();
    witness::scatter_bytes(base, given.vectors, given.vector_count, u64::from(entry.moved).min(len));
    if given.name != 0 {
        GuestMut::<u8>::at(given.name).copy_from(entry.header.name as *const u8, entry.name_bytes());
        part!(at, MessageHeader, name_len).store(&entry.header.name_len);
    }
    GuestMut::<u8>::at(given.control).copy_from(entry.header.control as *const u8, entry.control_bytes());
    part!(at, MessageHeader, control_len).store(&entry.header.control_len);
    part!(at, MessageHeader, flags).store(&entry.header.flags);
    part!(to, mmsghdr, msg_len).store(&entry.moved);
}

/// The messages in the slot of a dead primary, up to the last that has come.
fn come(slot: *mut u8) -> impl Iterator<Item = Entry> {
    let (list, count) = witness::many_in(slot).unwrap_or((core::ptr::null_mut(), 0));
    // SAFETY: so many headers lie there, as `take` or `put_out` has laid them out. Rings have the same addresses in every copy.
    (0..count as usize)
        .map(move |index| unsafe { list.cast::<Entry>().add(index).read_unaligned() })
        .take_while(|entry| entry.moved != NEVER)
}

/// The payload of the missing `Return` of a recvmmsg, put together in its slot: its bytes, and what it says of the call. `None`:
/// nothing was taken.
pub fn received(slot: *mut u8, asked: &[u64; 6]) -> Option<(usize, ReturnHead)> {
    let (list, count) = witness::many_in(slot)?;
    let start = witness::data_of(slot);
    let (mut at, mut result) = (start, 0);
    let mut put = |from: *const u8, bytes: usize| {
        // SAFETY: what is copied lies apart from where it goes, and that is as long as the longest event.
        unsafe {
            core::ptr::copy_nonoverlapping(from, at, bytes);
            at = at.add(bytes);
        }
    };
    for entry in come(slot) {
        let Vector { base, len } = entry.vector();
        put((&raw const entry.moved).cast(), 4);
        put((&raw const entry.header.name_len).cast(), 4);
        put((&raw const entry.header.control_len).cast(), 8);
        put((&raw const entry.header.flags).cast(), 4);
        put(entry.header.name as *const u8, entry.name_bytes());
        numbers::told_in(entry.header.control, entry.control_bytes() as u64);
        put(entry.header.control as *const u8, entry.control_bytes());
        put(base as *const u8, u64::from(entry.moved).min(len) as usize);
        result += 1;
    }
    if result == 0 {
        return None;
    }
    if asked[4] != 0 {
        let behind = count as usize * (size_of::<Entry>() + size_of::<Vector>());
        // SAFETY: there lies the time that is left.
        put(unsafe { list.add(behind) }, size_of::<Timespec>());
    }
    // SAFETY: both in one slot.
    let bytes = unsafe { at.offset_from(start) } as usize;
    Some((bytes, ReturnHead { result, identity: identity(asked, result, count) }))
}

/// Calls `f` with every descriptor that has come with a message in a slot.
pub fn rights(slot: *mut u8, mut f: impl FnMut(i32)) {
    come(slot).for_each(|entry| spans::for_rights(entry.header.control, entry.header.control_len, &mut f));
}

/// sendmmsg. Descriptors that go out are no longer the group's alone.
pub fn send(thread: &mut Thread, row: &'static Row, call: &Call) -> i64 {
    for index in 0..(call.args[2] & 0xffff_ffff).min(MESSAGES) {
        message::lend_descriptors(GuestPtr::at(call.args[1].wrapping_add(index * MMSG_BYTES)));
    }
    recorded(thread, row, call)
}

/// Makes a sendmmsg for real: the kernel puts each message's count into its header as it goes. `None`: make the call in the plain way.
pub fn put_out(thread: &mut Thread, row: &'static Row, args: &[u64; 6]) -> Option<i64> {
    let count = (args[2] & 0xffff_ffff).min(MESSAGES);
    if count == 0 {
        return None;
    }
    let (event, bytes) = ((count as usize * 4).next_multiple_of(16), (count * MMSG_BYTES) as usize);
    let controls = if state::is_renumbered() { count as usize * size_of::<Control>() } else { 0 };
    let place = thread.reserve(size_of::<ReturnHead>() + event + bytes + controls)?;
    // SAFETY: reserved.
    let (list, controls) = unsafe {
        let list = place.add(size_of::<ReturnHead>() + event);
        (list.cast::<Entry>(), list.add(bytes).cast::<Control>())
    };
    if !GuestPtr::<u8>::at(args[1]).copy_to(list.cast(), bytes) {
        return None;
    }
    for index in 0..count as usize {
        // SAFETY: one of the headers above; where this process has another number for the kernel there is room for control data.
        unsafe {
            let Entry { header, moved, .. } = &mut *list.add(index);
            *moved = NEVER;
            if state::is_renumbered() {
                let room = &mut *controls.add(index);
                header.control = spans::with_credentials(header.control, header.control_len, room);
            }
        }
    }
    witness::mark_many(place, list.cast(), count);
    let result = execute_marked(thread, row, row.nr.into(), &[args[0], list as u64, count, args[3], 0, 0]);
    for index in 0..result.max(0) as u64 {
        let to = GuestMut::<mmsghdr>::at(args[1]).nth(index);
        // SAFETY: as above; the kernel has written there.
        part!(to, mmsghdr, msg_len).store(&unsafe { (*list.add(index as usize)).moved });
    }
    Some(result)
}

/// The counts of a dead primary's sendmmsg, put together in its slot: how many messages have left.
pub fn sent(slot: *mut u8) -> usize {
    let counts = witness::data_of(slot).cast::<u32>();
    come(slot)
        .enumerate()
        .map(|(index, entry)| {
            // SAFETY: the event's place, apart from the headers.
            unsafe { counts.add(index).write_unaligned(entry.moved) }
        })
        .count()
}
