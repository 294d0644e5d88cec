//! The columns of a chunk: like goes with like, and each is compressed for itself.

use std::fmt;
use std::io::Cursor;
use std::ops::Range;

use crate::CHUNK_MAX;
use crate::bytes::{Fault, Get, varint};
use crate::content::{PLAIN, ZSTD};

/// A column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stream {
    /// Whose events follow, and how many: image, slot, count.
    Runs,
    /// Images and ends that stand between them.
    Items,
    /// One byte an event: which of the dictionary's headers it has.
    Heads,
    /// The dictionary.
    Words,
    /// Payload lengths that are not in the dictionary.
    Lengths,
    /// Tickets of mutexes: lane and size.
    Locks,
    /// Their differences.
    LockBytes,
    /// Which hashed clock.
    Clocks,
    /// Tickets of hashed clocks: size.
    Hashed,
    /// Their differences.
    HashedBytes,
    /// Tickets of the kernel clock, and whatever else is a ticket: size.
    Kernel,
    /// Their differences.
    KernelBytes,
    /// Times: lane and size.
    Times,
    /// Their differences.
    TimeBytes,
    /// Arguments of calls: what is as before.
    Arguments,
    /// Descriptors.
    Descriptors,
    /// Digests.
    Digests,
    /// Bytes asked to move.
    Asked,
    /// Results of calls: what is as before.
    Returns,
    /// Results.
    Results,
    /// Identities.
    Identities,
    /// Short payloads.
    Data,
    /// Long payloads.
    Bulk,
    /// Where the longest are that have come before.
    Shared,
}

/// How many there are.
pub const STREAMS: usize = Stream::Shared as usize + 1;

/// Bytes of all columns of a chunk. An event without payload takes 28 bytes at worst, where it lay in 16.
pub const COLUMNS_MAX: usize = 2 * CHUNK_MAX;

/// Shorter columns share a frame: a frame of its own costs some twenty bytes.
const ALONE: usize = 2048;

/// Level for columns: small numbers, much alike.
const COLUMN_LEVEL: i32 = 3;

/// Level for long payloads: as fast as a recorder must be.
const BULK_LEVEL: i32 = -1;

/// Where a column lies: in the frame that several share, or alone.
pub const SHARED: u8 = 0xff;

/// The columns of a chunk that is being made.
#[derive(Debug)]
pub struct Streams([Vec<u8>; STREAMS]);

impl Default for Streams {
    fn default() -> Streams {
        Streams([const { Vec::new() }; STREAMS])
    }
}

impl Streams {
    /// One of them.
    #[inline(always)]
    pub fn of(&mut self, stream: Stream) -> &mut Vec<u8> {
        &mut self.0[stream as usize]
    }

    /// Two of them.
    #[inline(always)]
    pub fn two(&mut self, first: Stream, second: Stream) -> (&mut Vec<u8>, &mut Vec<u8>) {
        let (first, second) = (first as usize, second as usize);
        let (low, high) = self.0.split_at_mut(second);
        (&mut low[first], &mut high[0])
    }

    /// Gives the content of the chunk, in pieces, to `write`; the columns are empty afterwards, with the memory that they
    /// had. What does not compress is given from where it lies.
    pub fn pack<R>(&mut self, packer: &mut Packer, write: impl FnOnce(&[&[u8]]) -> R) -> R {
        packer.begin();
        let mut pieces = Vec::new();
        for (at, column) in self.0.iter().enumerate() {
            varint(&mut packer.table, column.len() as u64);
            if column.len() < ALONE {
                packer.shared.extend_from_slice(column);
                packer.table.push(SHARED);
            } else {
                let is_bulk = at == Stream::Bulk as usize;
                let piece = packer.frame(column, is_bulk);
                pieces.push((&column[..], piece));
            }
        }
        let shared = std::mem::take(&mut packer.shared);
        let last = packer.frame(&shared, false);
        pieces.push((&shared, last));
        let content: Vec<&[u8]> = std::iter::once(&packer.table[..])
            .chain(
                pieces.into_iter().map(|(plain, packed)| packed.map_or(plain, |range| &packer.frames[range])),
            )
            .collect();
        let result = write(&content);
        packer.shared = shared;
        self.0.iter_mut().for_each(Vec::clear);
        result
    }
}

/// Compresses. Keeps its memory from chunk to chunk.
pub struct Packer {
    columns: zstd::bulk::Compressor<'static>,
    bulk: zstd::bulk::Compressor<'static>,
    /// Where each column is, and how long.
    table: Vec<u8>,
    /// Columns that share a frame.
    shared: Vec<u8>,
    /// What has been compressed, one behind the other.
    frames: Vec<u8>,
}

impl fmt::Debug for Packer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Packer").finish_non_exhaustive()
    }
}

impl Packer {
    /// Asks for zstd's memory.
    pub fn new() -> std::io::Result<Packer> {
        Ok(Packer {
            columns: zstd::bulk::Compressor::new(COLUMN_LEVEL)?,
            bulk: zstd::bulk::Compressor::new(BULK_LEVEL)?,
            table: Vec::new(),
            shared: Vec::new(),
            frames: Vec::new(),
        })
    }

    fn begin(&mut self) {
        self.table.clear();
        self.shared.clear();
        self.frames.clear();
        self.table.push(STREAMS as u8);
    }

    /// Compresses `bytes` and says where they are then; `None` if they are stored as they are. Adds coding and length
    /// to the table.
    fn frame(&mut self, bytes: &[u8], is_bulk: bool) -> Option<Range<usize>> {
        let is_worth_it = !is_bulk || self.is_worth_it(bytes);
        let packed = is_worth_it.then(|| self.compress(bytes, is_bulk)).flatten();
        let packed = packed.filter(|packed| packed.len() < bytes.len());
        self.table.push(if packed.is_some() { ZSTD } else { PLAIN });
        varint(&mut self.table, packed.as_ref().map_or(bytes.len(), Range::len) as u64);
        packed
    }

    /// Appends to `frames`; where it is then, `None` if zstd fails, which costs space and no event.
    fn compress(&mut self, bytes: &[u8], is_bulk: bool) -> Option<Range<usize>> {
        let begin = self.frames.len();
        self.frames.reserve(zstd::zstd_safe::compress_bound(bytes.len()));
        let mut frames = Cursor::new(&mut self.frames);
        frames.set_position(begin as u64);
        let compressor = if is_bulk { &mut self.bulk } else { &mut self.columns };
        let size = compressor.compress_to_buffer(bytes, &mut frames).ok()?;
        Some(begin..begin + size)
    }

    /// Whether long payloads compress, by samples: what does not (an archive, a film, TLS) is stored at the speed of
    /// memory.
    fn is_worth_it(&mut self, bytes: &[u8]) -> bool {
        const SAMPLES: usize = 16;
        const SAMPLE: usize = 1024;
        if bytes.len() < 4 * SAMPLES * SAMPLE {
            return true;
        }
        let step = bytes.len() / SAMPLES;
        let sample: Vec<u8> =
            (0..SAMPLES).flat_map(|at| &bytes[at * step..at * step + SAMPLE]).copied().collect();
        let packed = self.compress(&sample, true);
        packed.is_none_or(|packed| {
            self.frames.truncate(packed.start);
            packed.len() < sample.len() / 64 * 63
        })
    }
}

/// A column that is being read.
#[derive(Debug, Default)]
pub struct Column {
    bytes: Vec<u8>,
    at: usize,
    /// Bytes in the file for each of its bytes.
    cost: f32,
}

impl Column {
    /// Reads from where the last reading ended.
    #[inline(always)]
    pub fn with<'a, T>(
        &'a mut self,
        read: impl FnOnce(&mut Get<'a>) -> Result<T, Fault>,
    ) -> Result<T, Fault> {
        let mut get = Get(&self.bytes[self.at..]);
        let value = read(&mut get)?;
        self.at = self.bytes.len() - get.0.len();
        Ok(value)
    }

    /// The next byte.
    #[inline(always)]
    pub fn u8(&mut self) -> Result<u8, Fault> {
        let byte = *self.bytes.get(self.at).ok_or("a column ends too early")?;
        self.at += 1;
        Ok(byte)
    }

    /// The next number.
    #[inline(always)]
    pub fn varint(&mut self) -> Result<u64, Fault> {
        self.with(Get::varint)
    }

    /// Appends the next bytes to `to`.
    #[inline(always)]
    pub fn copy(&mut self, length: usize, to: &mut Vec<u8>) -> Result<(), Fault> {
        self.with(|get| get.take(length).map(|bytes| to.extend_from_slice(bytes)))
    }

    /// Whether everything has been read.
    pub fn is_at_end(&self) -> bool {
        self.at == self.bytes.len()
    }
}

/// The columns of a chunk that is being read.
#[derive(Debug)]
pub struct Columns([Column; STREAMS]);

/// Where one column lies.
struct Place {
    length: usize,
    coding: u8,
    stored: usize,
}

impl Columns {
    /// Reads a content.
    pub fn unpack(unpacker: &mut Unpacker, content: &[u8]) -> Result<Columns, Fault> {
        let get = &mut Get(content);
        let streams = get.u8()? as usize;
        if streams != STREAMS {
            return Err(format!("{streams} columns"));
        }
        let places: Vec<Place> = (0..STREAMS).map(|_| place(get)).collect::<Result<_, _>>()?;
        let (coding, stored) = (get.u8()?, get.number("length")?);
        let is_shared = |place: &&Place| place.coding == SHARED;
        let length = places.iter().try_fold(0usize, |sum, place| sum.checked_add(place.length));
        if length.is_none_or(|length| length > COLUMNS_MAX) {
            return Err("columns of more bytes than a chunk may have".into());
        }
        let length = places.iter().filter(is_shared).map(|place| place.length).sum();
        let mut columns = [const { Column { bytes: Vec::new(), at: 0, cost: 0.0 } }; STREAMS];
        for (column, place) in columns.iter_mut().zip(&places).filter(|(_, place)| place.coding != SHARED) {
            column.bytes = unpacker.decode(place.coding, get.take(place.stored)?, place.length)?;
            column.cost = place.stored as f32 / place.length.max(1) as f32;
        }
        let shared = unpacker.decode(coding, get.take(stored)?, length)?;
        get.end()?;
        let get = &mut Get(&shared);
        for (column, place) in columns.iter_mut().zip(&places).filter(|(_, place)| place.coding == SHARED) {
            column.bytes = get.take(place.length)?.to_vec();
            column.cost = stored as f32 / length.max(1) as f32;
        }
        Ok(Columns(columns))
    }

    /// One of them.
    #[inline(always)]
    pub fn of(&mut self, stream: Stream) -> &mut Column {
        &mut self.0[stream as usize]
    }

    /// Two of them.
    #[inline(always)]
    pub fn two(&mut self, first: Stream, second: Stream) -> (&mut Column, &mut Column) {
        let (low, high) = self.0.split_at_mut(second as usize);
        (&mut low[first as usize], &mut high[0])
    }

    /// What each holds.
    pub fn bytes(&self) -> impl Iterator<Item = &[u8]> {
        self.0.iter().map(|column| &column.bytes[..])
    }

    /// Whether everything has been read.
    pub fn are_at_end(&self) -> bool {
        self.0.iter().all(Column::is_at_end)
    }

    /// What everything that has been read takes in the file, bytes.
    pub fn cost(&self) -> f32 {
        self.0.iter().map(|column| column.at as f32 * column.cost).sum()
    }
}

fn place(get: &mut Get) -> Result<Place, Fault> {
    let (length, coding) = (get.number("length")?, get.u8()?);
    let stored = if coding == SHARED { 0 } else { get.number("length")? };
    Ok(Place { length, coding, stored })
}

/// Decompresses. Keeps its memory from chunk to chunk.
pub struct Unpacker(zstd::bulk::Decompressor<'static>);

impl fmt::Debug for Unpacker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Unpacker").finish_non_exhaustive()
    }
}

impl Unpacker {
    /// Asks for zstd's memory.
    pub fn new() -> std::io::Result<Unpacker> {
        Ok(Unpacker(zstd::bulk::Decompressor::new()?))
    }

    /// Exactly `length` bytes out of `stored`. The caller has bounded `length`.
    pub fn decode(&mut self, coding: u8, stored: &[u8], length: usize) -> Result<Vec<u8>, Fault> {
        let bytes = match coding {
            PLAIN if stored.len() == length => stored.to_vec(),
            PLAIN => return Err(format!("{} bytes where {length} are announced", stored.len())),
            ZSTD => self.0.decompress(stored, length).map_err(|cause| format!("zstd: {cause}"))?,
            other => return Err(format!("unknown coding {other}")),
        };
        match bytes.len() == length {
            true => Ok(bytes),
            false => Err(format!("{} bytes where {length} are announced", bytes.len())),
        }
    }
}
