//! The content of a chunk as events.

use std::collections::HashMap;

use us_abi::{EventKind, Header, NO_TICKET};

use crate::CHUNK_MAX;
use crate::bytes::{Fault, Get, unzigzag};
use crate::encode::{SLOTS_MAX, item_size};
use crate::event;
use crate::predict::{
    CLOCK, DICTIONARY, LONG, State, TICKET_NONE, TICKET_ZERO, VARIES, Word, args, enters, get, is_hashed,
    ret, returns,
};
use crate::shelf::{Place, SHARE_MIN};
use crate::streams::{Columns, Stream, Unpacker};

/// What a chunk of events holds.
#[derive(Debug)]
pub enum Found {
    /// Events.
    Run(Run),
    /// An image, or its end: whose, which of both, and what is told.
    Item(u32, u64, Vec<u8>),
}

/// A stretch of one slot's stream.
#[derive(Debug)]
pub struct Run {
    pub image: u32,
    pub slot: u16,
    pub events: u64,
    pub bytes: Vec<u8>,
}

/// Appends the payload at a place.
pub type Fetch<'a> = dyn FnMut(Place, &mut Vec<u8>) -> Result<(), Fault> + 'a;

/// The runs of one chunk.
#[derive(Debug)]
pub struct Decoder {
    columns: Columns,
    words: Vec<Word>,
    clocks: Vec<u16>,
    slots: HashMap<(u32, u16), usize>,
    states: Vec<State>,
    state: usize,
    /// Bytes that events may still take.
    room: usize,
}

impl Decoder {
    /// Of a chunk with this content.
    pub fn new(unpacker: &mut Unpacker, content: &[u8]) -> Result<Decoder, Fault> {
        Ok(Decoder {
            columns: Columns::unpack(unpacker, content)?,
            words: Vec::new(),
            clocks: Vec::new(),
            slots: HashMap::new(),
            states: Vec::new(),
            state: 0,
            room: CHUNK_MAX,
        })
    }

    /// The next one, `None` behind the last. With `costs`, adds what each event takes in the file.
    pub fn next(&mut self, costs: Option<&mut Vec<f32>>, fetch: &mut Fetch) -> Result<Option<Found>, Fault> {
        let runs = self.columns.of(Stream::Runs);
        if runs.is_at_end() {
            return match self.columns.are_at_end() {
                true => Ok(None),
                false => Err("a column is longer than its events".into()),
            };
        }
        let (image, what, count) =
            runs.with(|get| Ok((get.number("image")?, get.varint()?, get.varint()?)))?;
        match u16::try_from(what) {
            Ok(slot) => self.run(image, slot, count, costs, fetch).map(|run| Some(Found::Run(run))),
            Err(_) => self.item(image, what, count).map(Some),
        }
    }

    fn item(&mut self, image: u32, what: u64, length: u64) -> Result<Found, Fault> {
        let length = usize::try_from(length).ok().filter(|length| *length < CHUNK_MAX);
        let length = length.filter(|length| item_size(*length) <= self.room);
        let length = length.ok_or("more bytes than a chunk may have")?;
        let mut bytes = Vec::new();
        self.columns.of(Stream::Items).copy(length, &mut bytes)?;
        self.room -= item_size(length);
        Ok(Found::Item(image, what, bytes))
    }

    fn run(
        &mut self,
        image: u32,
        slot: u16,
        events: u64,
        mut costs: Option<&mut Vec<f32>>,
        fetch: &mut Fetch,
    ) -> Result<Run, Fault> {
        if events == 0 {
            return Err("a stretch of no events".into());
        }
        self.turn(image, slot)?;
        let mut bytes = Vec::new();
        let mut before = self.columns.cost();
        for _ in 0..events {
            self.event(&mut bytes, fetch)?;
            if let Some(costs) = costs.as_deref_mut() {
                let now = self.columns.cost();
                costs.push(now - before);
                before = now;
            }
        }
        self.room -= bytes.len();
        Ok(Run { image, slot, events, bytes })
    }

    fn turn(&mut self, image: u32, slot: u16) -> Result<(), Fault> {
        let next = self.states.len();
        let state = *self.slots.entry((image, slot)).or_insert(next);
        if state == next {
            if next == SLOTS_MAX {
                return Err("more slots than a chunk may have".into());
            }
            let like = self.states.get(self.state).cloned().unwrap_or_default();
            self.states.push(like);
        }
        self.state = state;
        Ok(())
    }

    /// Appends the next event.
    fn event(&mut self, to: &mut Vec<u8>, fetch: &mut Fetch) -> Result<(), Fault> {
        let word = self.word()?;
        let len = match word.length {
            VARIES => self.columns.of(Stream::Lengths).with(|get| get.number("length"))?,
            length => u32::from(length),
        };
        if to.len() + Header::size(len) > self.room {
            return Err("more bytes of events than a chunk may have".into());
        }
        let clock = if is_hashed(word.kind) { self.clock()? } else { 0 };
        let call = word.call | clock;
        let ticket = match word.ticket {
            TICKET_NONE => NO_TICKET,
            TICKET_ZERO => 0,
            _ => self.ticket(word.kind, clock)?,
        };
        let header = Header { kind: word.kind, flags: word.flags, call, len, ticket };
        event::write(to, header, &[]);
        if len > 0 {
            self.payload(&header, to, fetch)?;
            to.resize(to.len().next_multiple_of(us_abi::EVENT_ALIGN), 0);
        }
        Ok(())
    }

    fn word(&mut self) -> Result<Word, Fault> {
        let (heads, words) = self.columns.two(Stream::Heads, Stream::Words);
        let number = heads.u8()? as usize;
        if let Some(word) = self.words.get(number) {
            return Ok(*word);
        }
        let word = words.with(Word::get)?;
        match number {
            DICTIONARY => {}
            number if number == self.words.len() => self.words.push(word),
            number => return Err(format!("entry {number} of the dictionary is not there")),
        }
        Ok(word)
    }

    fn clock(&mut self) -> Result<u16, Fault> {
        let number = self.columns.of(Stream::Clocks).u8()? as usize;
        if let Some(clock) = self.clocks.get(number) {
            return Ok(*clock);
        }
        let words = self.columns.of(Stream::Words);
        let clock = words.with(|get| Ok(u16::from_le_bytes([get.u8()?, get.u8()?])))?;
        match number {
            _ if clock > CLOCK => return Err(format!("{clock} is no clock")),
            DICTIONARY => {}
            number if number == self.clocks.len() => self.clocks.push(clock),
            number => return Err(format!("clock {number} of the dictionary is not there")),
        }
        Ok(clock)
    }

    fn ticket(&mut self, kind: u8, clock: u16) -> Result<u64, Fault> {
        let state = &mut self.states[self.state];
        let (next, control, bytes) = if kind == EventKind::Mutex as u8 {
            let (control, bytes) = self.columns.two(Stream::Locks, Stream::LockBytes);
            return state.locks.get(1, control, bytes);
        } else if kind == EventKind::Time as u8 {
            let (control, bytes) = self.columns.two(Stream::Times, Stream::TimeBytes);
            return state.times.get(0, control, bytes);
        } else if is_hashed(kind) {
            let (control, bytes) = self.columns.two(Stream::Hashed, Stream::HashedBytes);
            (state.hashed(clock), control, bytes)
        } else {
            let (control, bytes) = self.columns.two(Stream::Kernel, Stream::KernelBytes);
            (&mut state.kernel, control, bytes)
        };
        let (_, off) = get(control, bytes)?;
        let ticket = next.wrapping_add(unzigzag(off) as u64);
        *next = ticket.wrapping_add(1);
        Ok(ticket)
    }

    fn payload(&mut self, header: &Header, to: &mut Vec<u8>, fetch: &mut Fetch) -> Result<(), Fault> {
        let mut rest = header.len as usize;
        if enters(header.kind, header.len) {
            return self.arguments(header.call, to);
        }
        if returns(header.kind, header.len) {
            rest -= 16;
            self.head(header.call, rest as i64, to)?;
        }
        if rest >= SHARE_MIN {
            let offset = self.columns.of(Stream::Shared).varint()?;
            if offset != 0 {
                let number = self.columns.of(Stream::Shared).varint()?;
                let before = to.len();
                fetch(Place { offset, number }, to)?;
                return match to.len() - before == rest {
                    true => Ok(()),
                    false => Err("a shared payload of another length".into()),
                };
            }
        }
        let column = if rest < LONG { Stream::Data } else { Stream::Bulk };
        self.columns.of(column).copy(rest, to)
    }

    fn arguments(&mut self, call: u16, to: &mut Vec<u8>) -> Result<(), Fault> {
        let same = self.columns.of(Stream::Arguments).u8()?;
        let seen = &mut self.states[self.state].seen(call).args;
        if same & args::FD == 0 {
            let fd = unzigzag(self.columns.of(Stream::Descriptors).varint()?);
            seen.fd = i32::try_from(fd).map_err(|_| format!("{fd} is no descriptor"))?;
        }
        if same & args::DIGEST == 0 {
            seen.digest = self.columns.of(Stream::Digests).with(Get::u32)?;
        }
        if same & args::ASKED == 0 {
            seen.len = self.columns.of(Stream::Asked).varint()?;
        }
        to.extend_from_slice(&seen.fd.to_le_bytes());
        to.extend_from_slice(&seen.digest.to_le_bytes());
        to.extend_from_slice(&seen.len.to_le_bytes());
        Ok(())
    }

    fn head(&mut self, call: u16, behind: i64, to: &mut Vec<u8>) -> Result<(), Fault> {
        let same = self.columns.of(Stream::Returns).u8()?;
        let seen = &mut self.states[self.state].seen(call).head;
        if same & ret::COUNT != 0 {
            seen.result = behind;
        } else if same & ret::RESULT == 0 {
            seen.result = unzigzag(self.columns.of(Stream::Results).varint()?);
        }
        if same & ret::IDENTITY == 0 {
            seen.identity = self.columns.of(Stream::Identities).with(Get::u64)?;
        }
        to.extend_from_slice(&seen.result.to_le_bytes());
        to.extend_from_slice(&seen.identity.to_le_bytes());
        Ok(())
    }
}
