//! Writing a checkpoint.

use std::io::Write;

use serde::{Deserialize, Serialize};

use crate::{
    Base, CHUNK_BYTES, Digest, Error, Head, Index, MARK, Owner, PAGE_BYTES, VERSION, WHOSE_BYTES, kind,
};

/// How hard zstd tries: of a redis' memory this makes 8.9 times less at 1030 MB/s, where level 1 makes 9.7 times less at 866.
const LEVEL: i32 = -1;

/// What a checkpoint ends with.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sums {
    /// Chunks of pages.
    pub chunks: u64,
    /// Bytes of pages.
    pub bytes: u64,
}

/// Writes one checkpoint from its beginning to its end.
pub struct Writer<W: Write> {
    to: W,
    sums: Sums,
    written: u64,
    owner: Owner,
    runs: Vec<(u64, u64)>,
    /// The next pages are of another mapping.
    is_apart: bool,
    pages: Vec<u8>,
    seed: Option<u64>,
    index: Index,
    base: Option<Base>,
    compressor: zstd::bulk::Compressor<'static>,
    /// What is to be compressed in one piece, and what has become of it: the room is used again.
    whole: Vec<u8>,
    smaller: Vec<u8>,
}

/// Compresses `content` to the beginning of `room`; how long it is then.
fn compress(
    compressor: &mut zstd::bulk::Compressor<'static>,
    content: &[u8],
    room: &mut Vec<u8>,
) -> Result<usize, Error> {
    room.resize(room.len().max(zstd::zstd_safe::compress_bound(content.len())), 0);
    Ok(compressor.compress_to_buffer(content, &mut room[..])?)
}

impl<W: Write> Writer<W> {
    /// Begins one.
    ///
    /// # Errors
    /// The file's.
    pub fn new(mut to: W, head: &Head) -> Result<Writer<W>, Error> {
        to.write_all(MARK)?;
        to.write_all(&VERSION.to_le_bytes())?;
        let mut writer = Writer {
            to,
            sums: Sums::default(),
            written: MARK.len() as u64 + 4,
            owner: Owner::Process(0),
            runs: Vec::new(),
            is_apart: false,
            pages: Vec::with_capacity(CHUNK_BYTES),
            seed: head.seed,
            index: Index::default(),
            base: None,
            compressor: zstd::bulk::Compressor::new(LEVEL)?,
            whole: Vec::new(),
            smaller: Vec::new(),
        };
        let head = serde_json::to_vec(head).map_err(std::io::Error::from)?;
        writer.chunk(kind::HEAD, &head)?;
        Ok(writer)
    }

    /// The pages that this one has are left out. The head says which it is, and has its seed.
    pub fn build_on(&mut self, base: Base) {
        self.base = Some(base);
    }

    /// Bytes of the file so far.
    pub fn written(&self) -> u64 {
        self.written
    }

    /// What comes next is this one's; at the beginning the first process's.
    ///
    /// # Errors
    /// The file's.
    pub fn begin(&mut self, owner: Owner) -> Result<(), Error> {
        self.flush()?;
        self.owner = owner;
        Ok(())
    }

    /// What comes next is of another mapping: no run goes over two.
    pub fn begin_mapping(&mut self) {
        self.is_apart = true;
    }

    /// Adds memory from this address on.
    ///
    /// # Errors
    /// The file's.
    pub fn pages(&mut self, mut address: u64, mut bytes: &[u8]) -> Result<(), Error> {
        while !bytes.is_empty() {
            let (now, later) = bytes.split_at(bytes.len().min(CHUNK_BYTES - self.pages.len()));
            let is_apart = std::mem::take(&mut self.is_apart);
            match self.runs.last_mut().filter(|_| !is_apart) {
                Some((start, len)) if *start + *len == address => *len += now.len() as u64,
                _ => self.runs.push((address, now.len() as u64)),
            }
            self.pages.extend_from_slice(now);
            if self.pages.len() == CHUNK_BYTES {
                self.flush()?;
            }
            (address, bytes) = (address + now.len() as u64, later);
        }
        Ok(())
    }

    /// Adds memory that may be in the base as well: whole pages, and what is behind the last one. How many bytes it has not.
    ///
    /// # Errors
    /// The file's.
    pub fn memory(&mut self, address: u64, bytes: &[u8]) -> Result<u64, Error> {
        let Some(seed) = self.seed else { return self.pages(address, bytes).map(|()| bytes.len() as u64) };
        let (pages, rest) = bytes.as_chunks::<PAGE_BYTES>();
        let (mut from, mut added) = (0, 0);
        for (at, page) in pages.iter().enumerate() {
            let place = address + (at * PAGE_BYTES) as u64;
            let digest = Digest::of(seed, page);
            let is_known =
                self.base.as_ref().is_some_and(|base| base.index.find(self.owner, place) == Some(digest));
            self.index.add(self.owner, place, digest);
            if is_known {
                added += self.changed(address, bytes, from, at)?;
                from = at + 1;
            }
        }
        added += self.changed(address, bytes, from, pages.len())?;
        self.pages(address + (bytes.len() - rest.len()) as u64, rest)?;
        Ok(added + rest.len() as u64)
    }

    /// Whether the base has a page at this address.
    pub fn is_in_base(&self, address: u64) -> bool {
        self.base.as_ref().is_some_and(|base| base.index.find(self.owner, address).is_some())
    }

    /// The page at this address is as it [is in the base](Writer::is_in_base): who says so knows it, and need not read it.
    pub fn unchanged(&mut self, address: u64) {
        let known = self.base.as_ref().and_then(|base| base.index.find(self.owner, address));
        known.into_iter().for_each(|digest| self.index.add(self.owner, address, digest));
    }

    /// Adds the pages from one to another, of memory that begins at this address.
    fn changed(&mut self, address: u64, bytes: &[u8], from: usize, to: usize) -> Result<u64, Error> {
        let (from, to) = (from * PAGE_BYTES, to * PAGE_BYTES);
        // A page that began in one chunk and ended in the next would not be found again.
        if !self.pages.len().is_multiple_of(PAGE_BYTES) {
            self.flush()?;
        }
        self.pages(address + from as u64, &bytes[from..to])?;
        Ok((to - from) as u64)
    }

    fn flush(&mut self) -> Result<(), Error> {
        if self.runs.is_empty() {
            return Ok(());
        }
        let mut places = Vec::with_capacity(WHOSE_BYTES + 16 * self.runs.len());
        places.extend(self.owner.bytes());
        places.extend((self.runs.len() as u32).to_le_bytes());
        for (start, len) in self.runs.drain(..) {
            places.extend(start.to_le_bytes());
            places.extend(len.to_le_bytes());
        }
        self.sums.chunks += 1;
        self.sums.bytes += (places.len() + self.pages.len()) as u64;
        let mut pages = std::mem::take(&mut self.pages);
        let done = self.chunk_of(kind::PAGES, &places, &pages);
        pages.clear();
        self.pages = pages;
        done
    }

    /// Whether pieces of it become smaller: of what does not, compression takes most of the time.
    fn shrinks(&mut self, content: &[u8]) -> Result<bool, Error> {
        const PIECE: usize = 8 << 10;
        const PIECES: usize = 8;
        if content.len() < 4 * PIECE * PIECES {
            return Ok(true);
        }
        for piece in content.chunks(content.len() / PIECES).map(|part| &part[..PIECE.min(part.len())]) {
            let len = compress(&mut self.compressor, piece, &mut self.smaller)?;
            // A fiftieth at least.
            if len * 50 < piece.len() * 49 {
                return Ok(true);
            }
        }
        Ok(false)
    }

    fn chunk(&mut self, kind: u32, content: &[u8]) -> Result<(), Error> {
        self.chunk_of(kind, &[], content)
    }

    /// A chunk whose content is in two places. Only what becomes smaller is copied into one.
    fn chunk_of(&mut self, kind: u32, front: &[u8], content: &[u8]) -> Result<(), Error> {
        let bytes = front.len() + content.len();
        let mut stored = [front, content];
        if self.shrinks(content)? {
            self.whole.clear();
            self.whole.extend_from_slice(front);
            self.whole.extend_from_slice(content);
            let len = compress(&mut self.compressor, &self.whole, &mut self.smaller)?;
            if len < bytes {
                stored = [&self.smaller[..len], &[]];
            }
        }
        let len = stored[0].len() + stored[1].len();
        let checksum = crc32c::crc32c_append(crc32c::crc32c(stored[0]), stored[1]);
        for word in [kind, bytes as u32, len as u32, checksum] {
            self.to.write_all(&word.to_le_bytes())?;
        }
        stored.iter().try_for_each(|part| self.to.write_all(part))?;
        self.written += (crate::FRONT_BYTES + len) as u64;
        Ok(())
    }

    /// Ends it, and gives the file back.
    ///
    /// # Errors
    /// The file's.
    pub fn finish(mut self) -> Result<W, Error> {
        self.flush()?;
        let index = std::mem::take(&mut self.index);
        for content in index.chunks() {
            self.chunk(kind::INDEX, &content)?;
        }
        let sums = serde_json::to_vec(&self.sums).map_err(std::io::Error::from)?;
        self.chunk(kind::END, &sums)?;
        self.to.flush()?;
        Ok(self.to)
    }
}
