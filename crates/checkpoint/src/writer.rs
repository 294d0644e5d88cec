//! Writing a checkpoint.

use std::io::Write;

use serde::{Deserialize, Serialize};

use crate::{CHUNK_BYTES, Error, Head, MARK, Owner, VERSION, WHOSE_BYTES, kind};

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
    compressor: zstd::bulk::Compressor<'static>,
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
            compressor: zstd::bulk::Compressor::new(1)?,
        };
        let head = serde_json::to_vec(head).map_err(std::io::Error::from)?;
        writer.chunk(kind::HEAD, &head)?;
        Ok(writer)
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

    fn flush(&mut self) -> Result<(), Error> {
        if self.runs.is_empty() {
            return Ok(());
        }
        let mut content = Vec::with_capacity(WHOSE_BYTES + 16 * self.runs.len() + self.pages.len());
        content.extend(self.owner.bytes());
        content.extend((self.runs.len() as u32).to_le_bytes());
        for (start, len) in self.runs.drain(..) {
            content.extend(start.to_le_bytes());
            content.extend(len.to_le_bytes());
        }
        content.append(&mut self.pages);
        self.sums.chunks += 1;
        self.sums.bytes += content.len() as u64;
        self.chunk(kind::PAGES, &content)
    }

    /// Whether pieces of it become smaller: of what does not, compression takes most of the time.
    fn shrinks(&mut self, content: &[u8]) -> Result<bool, Error> {
        const PIECE: usize = 8 << 10;
        const PIECES: usize = 8;
        if content.len() < 4 * PIECE * PIECES {
            return Ok(true);
        }
        for piece in content.chunks(content.len() / PIECES).map(|part| &part[..PIECE.min(part.len())]) {
            // A fiftieth at least.
            if self.compressor.compress(piece)?.len() * 50 < piece.len() * 49 {
                return Ok(true);
            }
        }
        Ok(false)
    }

    fn chunk(&mut self, kind: u32, content: &[u8]) -> Result<(), Error> {
        let compressed = if self.shrinks(content)? { Some(self.compressor.compress(content)?) } else { None };
        let stored =
            compressed.as_deref().filter(|compressed| compressed.len() < content.len()).unwrap_or(content);
        for word in [kind, content.len() as u32, stored.len() as u32, crc32c::crc32c(stored)] {
            self.to.write_all(&word.to_le_bytes())?;
        }
        self.to.write_all(stored)?;
        self.written += (crate::FRONT_BYTES + stored.len()) as u64;
        Ok(())
    }

    /// Ends it, and gives the file back.
    ///
    /// # Errors
    /// The file's.
    pub fn finish(mut self) -> Result<W, Error> {
        self.flush()?;
        let sums = serde_json::to_vec(&self.sums).map_err(std::io::Error::from)?;
        self.chunk(kind::END, &sums)?;
        self.to.flush()?;
        Ok(self.to)
    }
}
