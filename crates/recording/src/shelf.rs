//! Long payloads that come again: stored once, in a chunk of their own, and fetched from there.

use std::collections::{HashMap, VecDeque};

use crate::CONTENT_MAX;
use crate::bytes::Fault;
use crate::chunk::{CHUNK_HEAD, Head, Kind};
use crate::content;
use crate::source::Source;
use crate::streams::Unpacker;

/// Rest of a payload from which it is worth a look whether it comes again, bytes.
pub const SHARE_MIN: usize = 4096;

/// Payloads that a writer remembers: of 64 MiB, if each is as short as they may be.
const REMEMBERED: usize = 16 << 10;

/// Decoded payloads that are kept at hand, bytes.
const AT_HAND: usize = 2 << 20;

/// Where a payload's chunk begins, and its number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Place {
    /// Bytes from the file's beginning, never 0.
    pub offset: u64,
    /// Chunks before it.
    pub number: u64,
}

/// Payloads of a file that have been fetched lately.
#[derive(Debug, Default)]
pub struct AtHand {
    payloads: HashMap<Place, Vec<u8>>,
    order: VecDeque<Place>,
    bytes: usize,
}

impl AtHand {
    /// The payload at `place`, believing nothing.
    pub fn fetch(&mut self, source: &Source, unpacker: &mut Unpacker, place: Place) -> Result<&[u8], Fault> {
        if !self.payloads.contains_key(&place) {
            let payload = read(source, unpacker, place)?;
            self.put(place, payload);
        }
        Ok(&self.payloads[&place])
    }

    fn put(&mut self, place: Place, payload: Vec<u8>) {
        self.bytes += payload.len();
        while self.bytes > AT_HAND
            && let Some(oldest) = self.order.pop_front()
        {
            self.bytes -= self.payloads.remove(&oldest).map_or(0, |gone| gone.len());
        }
        self.order.push_back(place);
        self.payloads.insert(place, payload);
    }
}

fn read(source: &Source, unpacker: &mut Unpacker, place: Place) -> Result<Vec<u8>, Fault> {
    let fault = |cause: &dyn std::fmt::Display| {
        format!("the payload that it shares, at byte {}: {cause}", place.offset)
    };
    let head = source.read(place.offset, CHUNK_HEAD).map_err(|cause| fault(&cause))?;
    let head = <[u8; CHUNK_HEAD]>::try_from(&head[..]).map_err(|_| fault(&"is not there"))?;
    let head = Head::from_bytes(&head, place.number).map_err(|cause| fault(&cause))?;
    if head.kind != Kind::Payload {
        return Err(fault(&"another kind of chunk"));
    }
    let content = source.read(place.offset + CHUNK_HEAD as u64, head.stored as usize);
    let content = content.map_err(|cause| fault(&cause))?;
    if content.len() != head.stored as usize || crc32c::crc32c(&content) != head.crc {
        return Err(fault(&"the checksum of its content is wrong"));
    }
    content::unpack(unpacker, &content).map_err(|cause| fault(&cause))
}

/// What a writer knows of a payload with this checksum and length.
#[derive(Clone, Copy, Debug)]
enum Known {
    /// It has come once, among the events.
    Once,
    /// It has a chunk.
    At(Place),
}

/// What a writer has seen lately.
#[derive(Debug)]
pub struct Shelf {
    known: HashMap<(u32, usize), Known>,
    order: VecDeque<(u32, usize)>,
    at_hand: AtHand,
    unpacker: Unpacker,
}

/// What is to be done with a payload.
#[derive(Debug, PartialEq, Eq)]
pub enum Advice {
    /// Put it among the events.
    Inline,
    /// It has come before: give it a chunk, and tell.
    Keep,
    /// It is in the file, here.
    Shared(Place),
}

impl Shelf {
    /// An empty one.
    pub fn new() -> std::io::Result<Shelf> {
        let (known, order) = (HashMap::new(), VecDeque::new());
        Ok(Shelf { known, order, at_hand: AtHand::default(), unpacker: Unpacker::new()? })
    }

    fn key(payload: &[u8]) -> (u32, usize) {
        (crc32c::crc32c(payload), payload.len())
    }

    /// Looks at a payload. What is shared is the same byte for byte: it has been read again and compared, since a checksum
    /// may be another payload's as well.
    pub fn look(&mut self, source: &Source, payload: &[u8]) -> Advice {
        if payload.len() < SHARE_MIN || payload.len() > CONTENT_MAX {
            return Advice::Inline;
        }
        let key = Shelf::key(payload);
        match self.known.get(&key).copied() {
            None => {
                if self.order.len() == REMEMBERED
                    && let Some(oldest) = self.order.pop_front()
                {
                    self.known.remove(&oldest);
                }
                self.order.push_back(key);
                self.known.insert(key, Known::Once);
                Advice::Inline
            }
            Some(Known::Once) => Advice::Keep,
            Some(Known::At(place)) => match self.at_hand.fetch(source, &mut self.unpacker, place) {
                Ok(before) if before == payload => Advice::Shared(place),
                _ => Advice::Inline,
            },
        }
    }

    /// The payload has a chunk now.
    pub fn kept(&mut self, payload: &[u8], place: Place) {
        self.known.insert(Shelf::key(payload), Known::At(place));
        self.at_hand.put(place, payload.to_vec());
    }
}
