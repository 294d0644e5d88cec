//! The file that a recording is written to.

use std::fs;
use std::io::{self, IoSlice, Seek, SeekFrom, Write};
use std::time::Instant;

use crate::chunk::{CHUNK_HEAD, Head, Kind, STORED_MAX, file_head};
use crate::shelf::Place;
use crate::source::Source;
use crate::{CONTENT_MAX, Error, content};

/// Where the times of the chunks come from.
#[derive(Debug)]
pub enum Clock {
    /// The machine's: so many nanoseconds at this moment.
    Running(Instant, u64),
    /// From the number of chunks.
    Counting,
}

/// Writes chunks.
#[derive(Debug)]
pub struct Output {
    file: Source,
    clock: Clock,
    chunks: u64,
    written: u64,
    broken: bool,
}

impl Output {
    /// Begins the file.
    pub fn begin(file: fs::File, clock: Clock) -> Result<Output, Error> {
        let mut output = Output { file: Source::File(file), clock, chunks: 0, written: 0, broken: false };
        output.append(&mut [IoSlice::new(&file_head())])?;
        Ok(output)
    }

    /// Goes on behind the chunk that ends at this place, whatever stands there.
    pub fn resume(mut file: fs::File, at: Place, clock: Clock) -> Result<Output, Error> {
        file.set_len(at.offset)?;
        file.seek(SeekFrom::Start(at.offset))?;
        let file = Source::File(file);
        Ok(Output { file, clock, chunks: at.number, written: at.offset, broken: false })
    }

    /// The file, to be read again.
    pub fn source(&self) -> &Source {
        &self.file
    }

    /// Where the next chunk begins.
    pub fn place(&self) -> Place {
        Place { offset: self.written, number: self.chunks }
    }

    /// Bytes so far.
    pub fn written(&self) -> u64 {
        self.written
    }

    /// Since the file was begun, nanoseconds.
    pub fn now(&self) -> u64 {
        match self.clock {
            Clock::Running(begun, before) => before + begun.elapsed().as_nanos() as u64,
            Clock::Counting => self.chunks * 1_000_000,
        }
    }

    /// Writes a chunk that holds no events.
    pub fn small(&mut self, kind: Kind, bytes: &[u8]) -> Result<(), Error> {
        if bytes.len() > CONTENT_MAX {
            return Err(Error::Misuse(format!("{} bytes are too many for a chunk", bytes.len())));
        }
        let mut packed = Vec::new();
        content::pack(bytes, &mut packed);
        self.chunk(kind, &[&packed])
    }

    /// Writes a chunk whose content comes in pieces.
    pub fn chunk(&mut self, kind: Kind, content: &[&[u8]]) -> Result<(), Error> {
        let stored: usize = content.iter().map(|piece| piece.len()).sum();
        debug_assert!(stored <= STORED_MAX);
        let crc = content.iter().fold(0, |crc, piece| crc32c::crc32c_append(crc, piece));
        let head = Head { kind, number: self.chunks, at_ns: self.now(), stored: stored as u32, crc };
        let head: [u8; CHUNK_HEAD] = head.to_bytes();
        let mut pieces: Vec<IoSlice> = std::iter::once(&head[..])
            .chain(content.iter().copied())
            .filter(|piece| !piece.is_empty())
            .map(IoSlice::new)
            .collect();
        self.append(&mut pieces)?;
        self.chunks += 1;
        Ok(())
    }

    /// After a failure nothing is written any more: a chunk behind a torn one could not be found.
    fn append(&mut self, pieces: &mut [IoSlice]) -> Result<(), Error> {
        if self.broken {
            return Err(Error::Io(io::Error::other("an earlier write has failed")));
        }
        let bytes: usize = pieces.iter().map(|piece| piece.len()).sum();
        let Source::File(file) = &mut self.file else { return Ok(()) };
        if let Err(cause) = write_all(file, pieces) {
            self.broken = true;
            // A reader then finds an unfinished file that ends with a whole chunk.
            let _ = file.set_len(self.written);
            return Err(Error::Io(cause));
        }
        self.written += bytes as u64;
        Ok(())
    }
}

fn write_all(file: &mut fs::File, mut pieces: &mut [IoSlice]) -> io::Result<()> {
    while !pieces.is_empty() {
        match file.write_vectored(pieces) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(written) => IoSlice::advance_slices(&mut pieces, written),
            Err(cause) if cause.kind() == io::ErrorKind::Interrupted => {}
            Err(cause) => return Err(cause),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::fs::OpenOptions;

    use super::*;

    /// `/dev/full` takes nothing: as a file system that is full.
    #[test]
    fn after_a_failure_nothing_is_written() {
        let file = OpenOptions::new().write(true).open("/dev/full").unwrap();
        let mut output =
            Output { file: Source::File(file), clock: Clock::Counting, chunks: 0, written: 0, broken: false };
        let first = output.small(Kind::Header, b"header").unwrap_err();
        assert!(matches!(&first, Error::Io(cause) if cause.kind() == io::ErrorKind::StorageFull), "{first}");
        let second = output.small(Kind::Header, b"header").unwrap_err();
        assert_eq!((second.to_string().as_str(), output.written()), ("an earlier write has failed", 0));
    }
}
