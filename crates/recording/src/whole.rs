//! Chunks as bytes: what is sent to another machine, and kept there.

use std::fs;

use crate::chunk::{CHUNK_HEAD, FILE_HEAD, Head, file_head};
use crate::source::Source;

/// So much of the file is read at once: most chunks are some hundred bytes, and each by itself would be five system calls.
const AHEAD: usize = 128 << 10;

/// The chunks of a file as they stand in it. That of number 0 has the file's head before it.
#[derive(Debug)]
pub struct Chunks {
    source: Source,
    /// What has been read of the file is the first `there` bytes, which begin at `at` in it.
    ahead: Vec<u8>,
    there: usize,
    at: u64,
}

impl Chunks {
    /// Of this file, which may be being written.
    pub fn of(file: fs::File) -> Chunks {
        Chunks { source: Source::File(file), ahead: vec![0; AHEAD], there: 0, at: 0 }
    }

    /// Bytes of the chunk of this number, which begins there; `None` if it is not there whole. Its content is not looked at.
    pub fn length(&mut self, number: u64, offset: u64) -> Option<usize> {
        self.chunk(number, offset, |bytes| Some(bytes.len()))
    }

    /// The chunk of this number, which begins there; `None` if it is not there whole, or damaged.
    pub fn read(&mut self, number: u64, offset: u64) -> Option<Vec<u8>> {
        self.chunk(number, offset, |bytes| is_whole(bytes, number).then(|| bytes.to_vec()))
    }

    /// Looks at the chunk in what has been read, and else in the file: its writer may have taken a torn one back since.
    fn chunk<T>(&mut self, number: u64, offset: u64, look: impl Fn(&[u8]) -> Option<T>) -> Option<T> {
        let begin = offset.checked_sub(self.at).and_then(|begin| usize::try_from(begin).ok());
        let known = begin.and_then(|begin| self.ahead[..self.there].get(begin..));
        let found = known.and_then(|known| look(known.get(..stored(known, number)?)?));
        if found.is_some() {
            return found;
        }
        self.fill(offset, AHEAD)?;
        let length = stored(&self.ahead[..self.there], number)?;
        if length > self.there {
            // Larger than what was read, or torn.
            let end = offset.checked_add(length as u64)?;
            (end <= self.source.length().ok()?).then(|| self.fill(offset, length))??;
        }
        look(self.ahead[..self.there].get(..length)?)
    }

    /// Reads so many bytes from there, or those that there are.
    fn fill(&mut self, offset: u64, bytes: usize) -> Option<()> {
        self.ahead.resize(bytes, 0);
        (self.at, self.there) = (offset, 0);
        self.there = self.source.read_into(offset, &mut self.ahead).ok()?;
        Some(())
    }
}

/// Bytes of the chunk of this number that begins these bytes, by its head.
fn stored(bytes: &[u8], number: u64) -> Option<usize> {
    let before = before(number);
    let head = bytes.get(before..)?.first_chunk::<CHUNK_HEAD>()?;
    let head = Head::from_bytes(head, number).ok()?;
    Some(before + CHUNK_HEAD + head.stored as usize)
}

fn before(number: u64) -> usize {
    if number == 0 { FILE_HEAD } else { 0 }
}

/// Whether these bytes are the whole chunk of this number, and nothing else.
pub fn is_whole(bytes: &[u8], number: u64) -> bool {
    let Some((begin, rest)) = bytes.split_at_checked(before(number)) else { return false };
    let Some((head, content)) = rest.split_first_chunk::<CHUNK_HEAD>() else { return false };
    (begin.is_empty() || *begin == file_head())
        && Head::from_bytes(head, number)
            .is_ok_and(|head| head.stored as usize == content.len() && head.crc == crc32c::crc32c(content))
}
