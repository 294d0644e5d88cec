//! Events as the content of a chunk.

use std::collections::HashMap;
use std::io;

use us_abi::{CallArgs, EventKind, Header, ReturnHead};

use crate::bytes::{varint, zigzag};
use crate::event::Event;
use crate::predict::{
    CLOCK, DICTIONARY, LONG, State, TICKET_GIVEN, VARIES, Word, args, enters, is_hashed, put, ret, returns,
};
use crate::shelf::{Place, SHARE_MIN};
use crate::streams::{Packer, Stream, Streams};

/// Slots that one chunk may speak of: each costs the reader memory for what it expects next.
pub const SLOTS_MAX: usize = 1024;

/// In place of a slot: an image is told of.
pub const IMAGE: u64 = 1 << 16;

/// In place of a slot: an image is at its end.
pub const END: u64 = IMAGE + 1;

/// What an image or an end takes of a chunk's room, bytes.
pub fn item_size(bytes: usize) -> usize {
    bytes + 16
}

/// A ticket so far from all lanes of a thread's mutexes belongs to one that it has not taken lately.
pub const LOCK_FAR: u64 = 1 << 12;

/// A time so far from all lanes is that of another clock: some quarter of an hour, in nanoseconds.
pub const TIME_FAR: u64 = 1 << 40;

/// The events that wait for the end of their chunk.
#[derive(Debug)]
pub struct Encoder {
    streams: Streams,
    words: Words,
    clocks: Clocks,
    slots: HashMap<(u32, u16), usize>,
    states: Vec<State>,
    /// Whose events are coming, where its state is, and how many there were.
    run: Option<(u32, u16)>,
    state: usize,
    events: u64,
    raw: usize,
    packer: Packer,
}

impl Encoder {
    /// An empty chunk.
    pub fn new() -> io::Result<Encoder> {
        Ok(Encoder {
            streams: Streams::default(),
            words: Words::default(),
            clocks: Clocks::default(),
            slots: HashMap::new(),
            states: Vec::new(),
            run: None,
            state: 0,
            events: 0,
            raw: 0,
            packer: Packer::new()?,
        })
    }

    /// Bytes of the chunk's room that are taken: those of the events as they come back, and those of the rest.
    pub fn raw(&self) -> usize {
        self.raw
    }

    /// Whether events of this slot may go into this chunk.
    pub fn takes(&self, image: u32, slot: u16) -> bool {
        self.slots.len() < SLOTS_MAX || self.slots.contains_key(&(image, slot))
    }

    /// Adds one event of a slot, and where the rest of its payload is, if the file has it.
    #[inline]
    pub fn push(&mut self, image: u32, slot: u16, event: &Event, shared: Option<Place>) {
        if self.run != Some((image, slot)) {
            self.turn(image, slot);
        }
        self.events += 1;
        self.raw += event.size();
        let header = &event.header;
        let word = Word::of(header);
        self.words.put(word, &mut self.streams);
        if word.length == VARIES {
            varint(self.streams.of(Stream::Lengths), header.len.into());
        }
        let state = &mut self.states[self.state];
        if is_hashed(header.kind) {
            self.clocks.put(header.call & CLOCK, &mut self.streams);
        }
        if word.ticket == TICKET_GIVEN {
            put_ticket(state, header, &mut self.streams);
        }
        if header.len > 0 {
            put_payload(state, header, event.payload, shared, &mut self.streams);
        }
    }

    /// Goes on with another slot. One that is new to the chunk expects what the one before it expects: it is often a
    /// thread of the same kind.
    fn turn(&mut self, image: u32, slot: u16) {
        self.end_run();
        let next = self.states.len();
        let state = *self.slots.entry((image, slot)).or_insert(next);
        if state == next {
            let like = self.states.get(self.state).cloned().unwrap_or_default();
            self.states.push(like);
        }
        (self.run, self.state) = (Some((image, slot)), state);
    }

    /// Adds what stands between events, `what` being [`IMAGE`] or [`END`].
    pub fn put_item(&mut self, image: u32, what: u64, bytes: &[u8]) {
        self.end_run();
        let runs = self.streams.of(Stream::Runs);
        [image.into(), what, bytes.len() as u64].into_iter().for_each(|number| varint(runs, number));
        self.streams.of(Stream::Items).extend_from_slice(bytes);
        self.raw += item_size(bytes.len());
    }

    fn end_run(&mut self) {
        if let Some((image, slot)) = self.run.take() {
            let runs = self.streams.of(Stream::Runs);
            [image.into(), slot.into(), self.events].into_iter().for_each(|number| varint(runs, number));
            self.events = 0;
        }
    }

    /// Gives the content of the chunk, in pieces, to `write`; the next chunk is empty.
    pub fn finish<R>(&mut self, write: impl FnOnce(&[&[u8]]) -> R) -> R {
        self.end_run();
        let result = self.streams.pack(&mut self.packer, write);
        self.words = Words::default();
        self.clocks = Clocks::default();
        self.slots.clear();
        self.states.clear();
        self.state = 0;
        self.raw = 0;
        result
    }
}

/// What of a payload may be shared: all but the head of a return.
pub fn rest<'a>(event: &Event<'a>) -> &'a [u8] {
    let head = if returns(event.header.kind, event.header.len) { 16 } else { 0 };
    &event.payload[head..]
}

#[inline]
fn put_ticket(state: &mut State, header: &Header, streams: &mut Streams) {
    let ticket = header.ticket;
    let (next, control, bytes) = if header.kind == EventKind::Mutex as u8 {
        let (control, bytes) = streams.two(Stream::Locks, Stream::LockBytes);
        return state.locks.put(ticket, 1, LOCK_FAR, control, bytes);
    } else if header.kind == EventKind::Time as u8 {
        let (control, bytes) = streams.two(Stream::Times, Stream::TimeBytes);
        return state.times.put(ticket, 0, TIME_FAR, control, bytes);
    } else if is_hashed(header.kind) {
        let (control, bytes) = streams.two(Stream::Hashed, Stream::HashedBytes);
        (state.hashed(header.call & CLOCK), control, bytes)
    } else {
        let (control, bytes) = streams.two(Stream::Kernel, Stream::KernelBytes);
        (&mut state.kernel, control, bytes)
    };
    put(0, zigzag(ticket.wrapping_sub(*next) as i64), control, bytes);
    *next = ticket.wrapping_add(1);
}

#[inline]
fn put_payload(
    state: &mut State,
    header: &Header,
    payload: &[u8],
    shared: Option<Place>,
    streams: &mut Streams,
) {
    let mut rest = payload;
    if enters(header.kind, header.len) {
        put_arguments(state, header.call, payload, streams);
        return;
    }
    if returns(header.kind, header.len) {
        let (head, behind) = payload.split_at(16);
        put_return(state, header.call, head, behind.len() as i64, streams);
        rest = behind;
    }
    if rest.len() >= SHARE_MIN {
        let column = streams.of(Stream::Shared);
        varint(column, shared.map_or(0, |place| place.offset));
        if let Some(place) = shared {
            return varint(column, place.number);
        }
    }
    let column = if rest.len() < LONG { Stream::Data } else { Stream::Bulk };
    streams.of(column).extend_from_slice(rest);
}

fn long(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes were cut"))
}

fn put_arguments(state: &mut State, call: u16, payload: &[u8], streams: &mut Streams) {
    let first = long(payload, 0);
    let new = CallArgs { fd: first as i32, digest: (first >> 32) as u32, len: long(payload, 8) };
    let seen = &mut state.seen(call).args;
    let mut same = 0;
    if new.fd == seen.fd {
        same |= args::FD;
    } else {
        varint(streams.of(Stream::Descriptors), zigzag(new.fd.into()));
    }
    if new.digest == seen.digest {
        same |= args::DIGEST;
    } else {
        streams.of(Stream::Digests).extend_from_slice(&new.digest.to_le_bytes());
    }
    if new.len == seen.len {
        same |= args::ASKED;
    } else {
        varint(streams.of(Stream::Asked), new.len);
    }
    streams.of(Stream::Arguments).push(same);
    *seen = new;
}

fn put_return(state: &mut State, call: u16, head: &[u8], behind: i64, streams: &mut Streams) {
    let new = ReturnHead { result: long(head, 0) as i64, identity: long(head, 8) };
    let seen = &mut state.seen(call).head;
    let mut same = 0;
    if new.result == behind {
        same |= ret::COUNT;
    } else if new.result == seen.result {
        same |= ret::RESULT;
    } else {
        varint(streams.of(Stream::Results), zigzag(new.result));
    }
    if new.identity == seen.identity {
        same |= ret::IDENTITY;
    } else {
        streams.of(Stream::Identities).extend_from_slice(&new.identity.to_le_bytes());
    }
    streams.of(Stream::Returns).push(same);
    *seen = new;
}

/// The dictionary of headers.
#[derive(Debug)]
struct Words {
    /// Keys and their numbers, by a hash; open addressing, at most half full.
    table: Box<[(u64, u16); Words::PLACES]>,
    count: usize,
    last: (u64, u8),
}

impl Default for Words {
    fn default() -> Words {
        Words { table: Box::new([(0, Words::FREE); Words::PLACES]), count: 0, last: (u64::MAX, 0) }
    }
}

impl Words {
    const PLACES: usize = 512;
    const FREE: u16 = u16::MAX;

    #[inline]
    fn put(&mut self, word: Word, streams: &mut Streams) {
        let key = word.key();
        if key != self.last.0 {
            self.find(key, streams);
        }
        streams.of(Stream::Heads).push(self.last.1);
    }

    /// Sets `last`, with a new number if the word is new.
    fn find(&mut self, key: u64, streams: &mut Streams) {
        let mut place = (key.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 55) as usize;
        while self.table[place].1 != Words::FREE && self.table[place].0 != key {
            place = (place + 1) % Words::PLACES;
        }
        if self.table[place].1 != Words::FREE {
            self.last = (key, self.table[place].1 as u8);
            return;
        }
        streams.of(Stream::Words).extend_from_slice(&key.to_le_bytes()[..6]);
        if self.count == DICTIONARY {
            // Not remembered: it is written again each time.
            self.last = (u64::MAX, DICTIONARY as u8);
            return;
        }
        self.table[place] = (key, self.count as u16);
        self.last = (key, self.count as u8);
        self.count += 1;
    }
}

/// The dictionary of hashed clocks.
#[derive(Debug, Default)]
struct Clocks {
    numbers: Vec<u8>,
    count: usize,
}

impl Clocks {
    fn put(&mut self, clock: u16, streams: &mut Streams) {
        const NEW: u8 = DICTIONARY as u8;
        if self.numbers.is_empty() {
            self.numbers = vec![NEW; CLOCK as usize + 1];
        }
        let number = &mut self.numbers[clock as usize];
        if *number != NEW {
            return streams.of(Stream::Clocks).push(*number);
        }
        streams.of(Stream::Words).extend_from_slice(&clock.to_le_bytes());
        let taken = self.count.min(DICTIONARY);
        streams.of(Stream::Clocks).push(taken as u8);
        if taken < DICTIONARY {
            *number = taken as u8;
            self.count += 1;
        }
    }
}
