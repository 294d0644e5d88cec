//! The kernel as witness: input and output made such that the kernel itself notes in the log how far it came.
//!
//! recvmmsg and sendmmsg store the count of bytes of each message before they return. With that header in
//! the ring's unpublished slot, a primary killed on its way out of the call has still told its successor
//! what was moved, whoever else uses the socket. Where no such call exists (pipes, eventfds), a [pattern](super::pattern) in
//! the slot shows that a read has got something.
//!
//! # Safety
//! All of it lies in the calling thread's ring, above the tail, at places that the thread has reserved.

use core::sync::atomic::Ordering;

use us_abi::event::{CallArgs, Header, ReturnHead};
use us_abi::{LAG_LIMIT_MIN, PAYLOAD_BYTES_MAX, RING_STEP, ThreadEntry};
use us_ring::Position;

use us_world::Told;

use crate::door::{held, numbers};
use crate::fdtable;
use crate::guest::{GuestMut, GuestPtr, part};
use crate::raw::err::{EAGAIN, EINTR, ENOTSOCK};
use crate::raw::nr::{RECVMMSG, SENDMMSG};
use crate::raw::{self, failed};
use crate::real::single_threaded;
use crate::state;
use crate::sys::spans::{self, MessageHeader, Vector};
use crate::thread::{Mode, Thread};

/// The kernel's flag of that name: on a datagram its whole length is told, a stream's bytes are thrown away.
pub const MSG_TRUNC: u64 = crate::kernel::MSG_TRUNC;

/// The upper bytes of every mark in a slot's first word, where an event's header has the length: none is so long.
const MARKS: u64 = 0x7573;
/// First word of a slot in which a message call is under way.
const MESSAGE_MARK: u64 = 0x7573_6d65_7373_6167;
/// First word of a slot in which an output to a pipe goes on piece by piece.
const PIECES_MARK: u64 = 0x7573_7069_6563_6573;
/// First word of a slot whose call moves a file's position: the second says where that was before.
const POSITION_MARK: u64 = 0x7573_706f_7369_7469;
/// First word of a slot whose call reads to the program's own buffer: what came is gone with it.
const ELSEWHERE_MARK: u64 = 0x7573_656c_7365_7768;
/// The count of a message that has not been moved.
const NEVER: u32 = u32::MAX;
/// First word of a slot in which a call of several messages is under way: the second says where their headers lie, and how many.
const MANY_MARK: u64 = 0x7573_6d61_6e79_6d73;
/// Most payload of a message that is gathered and then put in its final order, bytes.
pub const GATHERED_MAX: u64 = 216 << 10;
/// Most that a call gets of a ring before it is made, bytes: its event, and what that is put together from.
pub const SLOT_MAX: usize = 480 << 10;
const _: () = assert!(SLOT_MAX + 4096 < RING_STEP && SLOT_MAX + 4096 < LAG_LIMIT_MIN as usize);
/// Longest name of a sender, bytes.
pub const NAME_MAX: usize = 128;
/// Most control data of a message that is received into a slot, bytes.
pub const CONTROL_MAX: u64 = 16 << 10;
pub(super) const HEAD: usize = size_of::<Header>() + size_of::<ReturnHead>();

/// The kernel's `struct mmsghdr`, and what belongs to it.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Message {
    header: MessageHeader,
    moved: u32,
    /// What the guest's own address buffer holds.
    name_capacity: u32,
    vector: Vector,
    name: [u8; NAME_MAX],
}

/// Bytes behind the data that an in-place message needs.
pub const fn tail_bytes(data: usize) -> usize {
    data.next_multiple_of(8) - data + size_of::<Message>()
}

fn slot_of(place: *mut u8) -> *mut u64 {
    // SAFETY: the payload's place follows its header.
    unsafe { place.sub(size_of::<Header>()).cast() }
}

/// Whether a slot's first word is a mark, and no event's header.
#[inline(always)]
const fn is_mark(word: u64) -> bool {
    word >> 48 == MARKS
}

pub(super) fn mark(place: *mut u8, word: u64, second: u64) {
    let slot = slot_of(place);
    // SAFETY: the reserved event's own header, which is written when the event is published.
    unsafe {
        slot.add(1).write_volatile(second);
        slot.write_volatile(word);
    }
}

/// Makes a message call with `message`, which lies in the slot at `place`. `None`: this is no socket.
#[inline(always)]
fn make(thread: &Thread, nr: u64, fd: u64, place: *mut u8, message: *mut Message, flags: u64) -> Option<i64> {
    mark(place, MESSAGE_MARK, message as u64 - slot_of(place) as u64);
    let args = [fd, message as u64, 1, flags, 0, 0];
    let mut room: spans::Control;
    if nr == SENDMMSG && state::is_renumbered() {
        room = [0; 32];
        // SAFETY: filled in by the caller.
        let header = unsafe { &mut (*message).header };
        header.control = spans::with_credentials(header.control, header.control_len, &mut room);
    }
    // SAFETY: the guest's own transfer, with a header of ours.
    let result = unsafe { raw::marked(nr, &args, &thread.pending, mark_of(thread)) };
    match result {
        ENOTSOCK => {
            mark(place, 0, 0);
            None
        }
        // SAFETY: the kernel has filled the count in.
        1 => Some(i64::from(unsafe { (&raw const (*message).moved).read_volatile() })),
        EAGAIN | EINTR => Some(result),
        _ if nr == SENDMMSG => Some(result),
        // SAFETY: the count lies in the slot, and the call is the one above.
        _ => Some(unsafe { held::what_came_first(thread, &args, &raw const (*message).moved, result) }),
    }
}

fn message(header: MessageHeader) -> Message {
    Message { header, moved: NEVER, name_capacity: 0, vector: Vector::default(), name: [0; NAME_MAX] }
}

/// Sends a message whose header and vectors are the guest's. `None`: make the call in the plain way.
pub fn send(thread: &mut Thread, fd: u64, header: MessageHeader, flags: u64) -> Option<i64> {
    send_with(thread, fd, header, None, flags)
}

/// Sends one span of the guest's memory.
pub fn send_span(thread: &mut Thread, fd: u64, span: Vector, name: (u64, u32), flags: u64) -> Option<i64> {
    let (name, name_len) = name;
    let header = MessageHeader { name, name_len, vector_count: 1, ..MessageHeader::default() };
    send_with(thread, fd, header, Some(span), flags)
}

fn send_with(
    thread: &mut Thread,
    fd: u64,
    header: MessageHeader,
    span: Option<Vector>,
    flags: u64,
) -> Option<i64> {
    let place = thread.reserve(size_of::<ReturnHead>() + size_of::<Message>())?;
    // SAFETY: reserved; 16-byte aligned.
    unsafe {
        let at = place.add(size_of::<ReturnHead>()).cast::<Message>();
        at.write(message(header));
        if let Some(span) = span {
            (*at).vector = span;
            (*at).header.vectors = &raw mut (*at).vector as u64;
        }
        make(thread, SENDMMSG, fd, place, at, flags)
    }
}

/// Receives into the slot at `place`, behind its head, where the published event will have the bytes.
pub fn receive(thread: &Thread, fd: u64, place: *mut u8, bytes: usize, flags: u64) -> Option<i64> {
    // SAFETY: the caller has reserved `bytes` and `tail_bytes` of them.
    unsafe {
        let data = place.add(size_of::<ReturnHead>());
        let at = data.add(bytes.next_multiple_of(8)).cast::<Message>();
        let vectors = &raw mut (*at).vector as u64;
        at.write(message(MessageHeader { vectors, vector_count: 1, ..MessageHeader::default() }));
        (*at).vector = Vector { base: data as u64, len: bytes as u64 };
        make(thread, RECVMMSG, fd, place, at, flags)
    }
}

/// What a gathered receive fills in the guest's memory.
#[derive(Clone, Copy)]
pub enum Shape {
    /// recvmsg: the header at this address.
    Message(GuestMut<MessageHeader>),
    /// recvfrom: buffer, its length, address, address of its length.
    From([u64; 4]),
    /// readv: the vectors and their count.
    Vectors(GuestPtr<Vector>, u64),
}

impl Shape {
    /// Bytes asked for.
    pub fn wanted(self) -> u64 {
        match self {
            Shape::Message(at) => spans::message_bytes(at.address()),
            Shape::From([_, len, ..]) => len,
            Shape::Vectors(list, count) => spans::vector_bytes(list.address(), count),
        }
    }

    /// Where the first byte would go, 0 for nowhere.
    pub fn first(self) -> u64 {
        let of = |list: GuestPtr<Vector>| list.load().map_or(0, |vector| vector.base);
        match self {
            Shape::Message(at) => of(GuestPtr::at(at.written().unwrap_or_default().vectors)),
            Shape::From([to, ..]) => to,
            Shape::Vectors(list, _) => of(list),
        }
    }
}

/// Receives name, control data and at most `wanted` bytes of payload into the slot, behind the room for the published event,
/// and hands them to the guest. `None`: make the call in the plain way.
pub fn gather(thread: &mut Thread, fd: u64, shape: Shape, wanted: u64, flags: u64) -> Option<i64> {
    let given = match shape {
        Shape::Message(at) => at.written()?,
        _ => MessageHeader::default(),
    };
    let (name_room, name_capacity) = match shape {
        Shape::Message(_) => (given.name != 0, given.name_len),
        Shape::From([_, _, at, len]) => (at != 0 && len != 0, GuestPtr::<u32>::at(len).load().unwrap_or(0)),
        Shape::Vectors(..) => (false, 0),
    };
    let control = if given.control == 0 { 0 } else { given.control_len };
    let wanted =
        if wanted > GATHERED_MAX { fdtable::most_of_one_message(fd as i32)?.min(wanted) } else { wanted };
    if wanted > GATHERED_MAX
        || control > CONTROL_MAX
        || name_capacity as i32 > 4096
        || (name_capacity as i32) < 0
    {
        return None;
    }
    let final_bytes = (32 + NAME_MAX + control as usize + wanted as usize).next_multiple_of(16);
    let all = size_of::<ReturnHead>()
        + final_bytes
        + size_of::<Message>()
        + control as usize
        + wanted as usize
        + 32;
    debug_assert!(all <= SLOT_MAX && final_bytes <= PAYLOAD_BYTES_MAX - size_of::<ReturnHead>());
    let place = thread.reserve(all)?;
    // SAFETY: all of it reserved.
    let (at, result) = unsafe {
        let at = place.add(size_of::<ReturnHead>() + final_bytes).cast::<Message>();
        let control_at = at.add(1).cast::<u8>();
        let data = control_at.add((control as usize).next_multiple_of(8));
        at.write(message(MessageHeader {
            name: if name_room { &raw mut (*at).name as u64 } else { 0 },
            name_len: if name_room { NAME_MAX as u32 } else { given.name_len },
            vectors: &raw mut (*at).vector as u64,
            vector_count: 1,
            control: if control == 0 { 0 } else { control_at as u64 },
            control_len: control,
            ..MessageHeader::default()
        }));
        (*at).name_capacity = if name_room { name_capacity } else { 0 };
        (*at).vector = Vector { base: data as u64, len: wanted };
        (at, make(thread, RECVMMSG, fd, place, at, flags)?)
    };
    if failed(result) {
        return Some(result);
    }
    // SAFETY: filled in by the kernel; nobody else writes there.
    let got = unsafe { &*at };
    let tcp = fdtable::get(fd as i32).is_some_and(|shadow| shadow.kind().is_tcp());
    // A stream's bytes that are thrown away are written nowhere.
    let bytes = if tcp && flags & MSG_TRUNC != 0 { 0 } else { result as u64 };
    Some(if hand_over(got, shape, bytes) { result } else { raw::err::EFAULT })
}

/// Copies what has come to where the guest's own call would have put it. False where that has no place for the sender's name, or for
/// what the header is to say: like the kernel, behind the bytes.
fn hand_over(got: &Message, shape: Shape, bytes: u64) -> bool {
    let data = got.vector.base;
    let name_part = got.header.name_len.min(got.name_capacity).min(NAME_MAX as u32) as usize;
    let scatter = |list, count| scatter_bytes(data, list, count, bytes.min(got.vector.len));
    let put_name = |name: u64, name_len: GuestMut<u32>| {
        GuestMut::<u8>::at(name).copy_from(got.name.as_ptr(), name_part)
            && name_len.store(&got.header.name_len)
    };
    match shape {
        Shape::Vectors(list, count) => {
            scatter(list.address(), count);
            true
        }
        Shape::From([buffer, len, name, name_len]) => {
            GuestMut::<u8>::at(buffer).copy_from(data as *const u8, bytes.min(len) as usize);
            name == 0 || name_len == 0 || put_name(name, GuestMut::at(name_len))
        }
        Shape::Message(at) => {
            let given = at.written().unwrap_or_default();
            scatter(given.vectors, given.vector_count);
            let is_named = given.name == 0 || put_name(given.name, part!(at, MessageHeader, name_len));
            // The kernel drops what of this it cannot write.
            GuestMut::<u8>::at(given.control)
                .copy_from(got.header.control as *const u8, got.header.control_len as usize);
            is_named
                && part!(at, MessageHeader, control_len).store(&got.header.control_len)
                && part!(at, MessageHeader, flags).store(&got.header.flags)
        }
    }
}

/// Copies so many bytes to the places of a list.
pub fn scatter_bytes(data: u64, list: u64, count: u64, bytes: u64) {
    let mut from = data;
    spans::for_vectors(list, count, bytes, &mut |base, part| {
        GuestMut::<u8>::at(base).copy_from(from as *const u8, part);
        from += part as u64;
    });
}

/// An output of `len` bytes, behind `done` others of the same call, is about to be made such that it does not wait, and that
/// the pipe takes all of it.
pub fn begin_piece(thread: &Thread, place: *mut u8, done: u64, len: u64) {
    // In this order: a kill between any two of them finds what is true.
    thread.entry().entered[0].store(u64::MAX, Ordering::SeqCst);
    mark(place, PIECES_MARK, done << 32 | len);
}

/// It has been made: so much is done.
pub fn end_piece(thread: &Thread, place: *mut u8, done: u64) {
    mark(place, PIECES_MARK, done << 32);
    thread.entry().entered[0].store(u64::MAX, Ordering::SeqCst);
}

/// Notes where a file is before a call that moves its position, if others than this thread may do so at the same time.
pub fn note_position(thread: &mut Thread, fd: i32, shadow: &fdtable::Shadow, out: bool) {
    if !shadow.kind().is_file() || (shadow.is_private() && single_threaded()) {
        return;
    }
    if let Some(before) = fdtable::next_place(fd, shadow, out)
        && let Some(place) = thread.reserve(size_of::<ReturnHead>())
    {
        mark(place, POSITION_MARK, before);
    }
}

/// Notes that what the call brings does not come into its slot, which has room for so many bytes.
pub fn mark_elsewhere(thread: &mut Thread, bytes: usize) {
    if let Some(place) = thread.reserve(size_of::<ReturnHead>() + bytes) {
        mark(place, ELSEWHERE_MARK, 0);
    }
}

/// Whether that was noted.
pub fn is_elsewhere(slot: *const u8) -> bool {
    // SAFETY: the place of a header in a mapped ring.
    unsafe { slot.cast::<u64>().read() == ELSEWHERE_MARK }
}

/// Where a file was before the call whose slot this is, if that was noted.
pub fn position_before(slot: *const u8) -> Option<u64> {
    // SAFETY: the place of a header in a mapped ring.
    let (word, before) = unsafe { (slot.cast::<u64>().read(), slot.cast::<u64>().add(1).read()) };
    (word == POSITION_MARK).then_some(before)
}

/// What the slot of a dead primary says: `slot` is where its next event would have been. `entered` as of its mark.
pub fn told(slot: *const u8, entered: bool) -> Told {
    // SAFETY: the place of a header in a mapped ring.
    let (word, pieces) = unsafe { (slot.cast::<u64>().read(), slot.cast::<u64>().add(1).read()) };
    if word == PIECES_MARK {
        let (done, len) = (pieces >> 32, pieces & 0xffff_ffff);
        return match (done + len, entered) {
            (0, _) => Told::Nothing,
            (moved, true) => Told::Moved(moved as u32),
            (_, false) if done == 0 => Told::Nothing,
            (_, false) => Told::Moved(done as u32),
        };
    }
    let Some(message) = message_in(slot) else { return Told::None };
    match message.moved {
        NEVER => Told::Nothing,
        moved => Told::Moved(moved),
    }
}

/// A call of so many messages, whose headers lie at `list`, is about to be made with the slot at `place`.
pub fn mark_many(place: *mut u8, list: *mut u8, count: u64) {
    mark(place, MANY_MARK, (list as u64 - slot_of(place) as u64) | count << 32);
}

/// Where the headers of a call of several messages lie in a slot, and how many there are. `None`: there is no such call.
pub fn many_in(slot: *mut u8) -> Option<(*mut u8, u64)> {
    // SAFETY: as in `message_in`.
    unsafe {
        let (word, second) = (slot.cast::<u64>().read(), slot.cast::<u64>().add(1).read());
        let (offset, count) = (second as u32 as usize, second >> 32);
        let fits = offset.is_multiple_of(8) && offset <= SLOT_MAX && count <= SLOT_MAX as u64 / 64;
        (word == MANY_MARK && fits).then(|| (slot.add(offset), count))
    }
}

/// The same of the call that the thread has just made.
pub fn many_of(thread: &Thread) -> Option<(*mut u8, u64)> {
    let is_logged = thread.calls() == Mode::Record;
    is_logged.then(|| many_in(thread.ends.ring.at(thread.ends.producer.at))).flatten()
}

fn message_in(slot: *const u8) -> Option<Message> {
    // SAFETY: the slot lies in a mapped ring, whose doubled mapping holds any offset below a quarter of it.
    unsafe {
        let (word, offset) = (slot.cast::<u64>().read(), slot.cast::<u64>().add(1).read());
        if word != MESSAGE_MARK || offset as usize > 2 * PAYLOAD_BYTES_MAX || offset % 8 != 0 {
            return None;
        }
        Some(slot.add(offset as usize).cast::<Message>().read())
    }
}

/// Where the data of a slot's `Return` lie.
pub fn data_of(slot: *mut u8) -> *mut u8 {
    // SAFETY: within the doubled mapping of a ring.
    unsafe { slot.add(HEAD) }
}

/// Calls `f` with every descriptor that came with the message in a slot.
pub fn rights(slot: *const u8, f: impl FnMut(i32)) {
    if let Some(got) = message_in(slot)
        && got.moved != NEVER
    {
        spans::for_rights(got.header.control, got.header.control_len, f);
    }
}

/// Puts the payload of the missing `Return` together, behind the slot's head, as the call of this number and
/// order of outputs has it. Returns its bytes. The pieces that were received in place lie there already.
pub fn compose(slot: *mut u8, nr: u64) -> usize {
    use crate::raw::nr::{RECVFROM, RECVMSG};
    let Some(got) = message_in(slot) else { return 0 };
    // The message lies at the same distance from its slot in every copy, since rings have fixed addresses.
    let data = got.vector.base as *const u8;
    // SAFETY: within the reserved slot of a ring whose producer is dead; `gather` keeps the final place and the parts
    // that are copied there apart.
    unsafe {
        let start = slot.add(HEAD);
        let bytes = (got.moved as usize).min(got.vector.len as usize);
        if core::ptr::eq(data, start) {
            return bytes;
        }
        let mut at = start;
        let mut put = |from: *const u8, count: usize| {
            core::ptr::copy(from, at, count);
            at = at.add(count);
        };
        let name_len = got.header.name_len;
        let name = name_len.min(got.name_capacity).min(NAME_MAX as u32) as usize;
        if nr == RECVMSG {
            put((&raw const name_len).cast(), 4);
            put((&raw const got.header.control_len).cast(), 8);
            put((&raw const got.header.flags).cast(), 4);
            put(got.name.as_ptr(), name);
            numbers::told_in(got.header.control, got.header.control_len);
            put(got.header.control as *const u8, got.header.control_len as usize);
        }
        put(data, bytes);
        if nr == RECVFROM && got.header.name != 0 {
            put((&raw const name_len).cast(), 4);
            put(got.name.as_ptr(), name);
        }
        at.offset_from(start) as usize
    }
}

/// Where the mark goes that a call leaves when the kernel is entered: the position of its `Return`, which is reserved.
/// The slot's header is cleared: once it says something, the event is whole.
pub fn mark_of(thread: &Thread) -> *mut u64 {
    let slot = thread.ends.ring.at(thread.ends.producer.at).cast::<u64>();
    // SAFETY: the reserved event's own header, above the tail.
    unsafe {
        if !is_mark(slot.read()) {
            slot.write_volatile(0);
        }
    }
    let entered = &thread.entry().entered;
    entered[1].store(thread.ends.producer.at, Ordering::Relaxed);
    entered.as_ptr().cast_mut().cast()
}

/// A slot has been laid out, with a mark of its own, for a call that is made in another way: what is written there from now
/// on belongs to this call. An event that is whole and not published would not be known for one otherwise.
pub fn is_laid_out(thread: &Thread) {
    thread.entry().entered[0].store(thread.ends.producer.at, Ordering::SeqCst);
}

/// Before the `Enter` of a call that an earlier primary had entered, and that may be found done: whoever succeeds this
/// one, too, takes it for entered, also if no second attempt has been made.
pub fn enter_again(thread: &mut Thread) {
    if let Some(place) = thread.reserve(size_of::<CallArgs>()) {
        // What an earlier round of the ring has left in the `Return`'s place would be taken for one that is whole.
        // SAFETY: room for an event's header behind the payload is reserved with it; it is aligned, and above the tail.
        unsafe { place.add(size_of::<CallArgs>()).cast::<u64>().write_volatile(0) };
        let behind = thread.ends.producer.at + Header::size(size_of::<CallArgs>() as u32) as u64;
        thread.entry().entered[0].store(behind, Ordering::Release);
    }
}

/// Whether the dead primary had entered the kernel with the call whose `Return` would have been at the tail of a ring.
/// If not, the call was not made.
pub fn entered(entry: &ThreadEntry) -> bool {
    entry.entered[0].load(Ordering::Acquire) == entry.tail.0.acquire()
}

/// The event that the dead primary had written whole, and not yet published: its header comes last. The call had been
/// entered.
pub fn unpublished(slot: *const u8) -> Option<Header> {
    // SAFETY: the place of a header in a mapped ring.
    let (word, header) = unsafe { (slot.cast::<u64>().read(), slot.cast::<Header>().read()) };
    (word != 0 && !is_mark(word)).then_some(header)
}
