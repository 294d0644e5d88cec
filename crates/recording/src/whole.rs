//! Chunks as bytes: what is sent to another machine, and kept there.

use std::fs;

use crate::chunk::{CHUNK_HEAD, FILE_HEAD, Head, file_head};
use crate::source::Source;

/// The chunks of a file as they stand in it. That of number 0 has the file's head before it.
#[derive(Debug)]
pub struct Chunks(Source);

impl Chunks {
    /// Of this file, which may be being written.
    pub fn of(file: fs::File) -> Chunks {
        Chunks(Source::File(file))
    }

    /// Bytes of the chunk of this number, which begins there; `None` if it is not there whole. Its content is not looked at.
    pub fn length(&self, number: u64, offset: u64) -> Option<usize> {
        let before = before(number);
        let at = offset.checked_add(before as u64)?;
        let head = self.0.read(at, CHUNK_HEAD).ok()?;
        let head = Head::from_bytes(&head.try_into().ok()?, number).ok()?;
        let length = before + CHUNK_HEAD + head.stored as usize;
        let there = self.0.length().ok()?;
        (offset + length as u64 <= there).then_some(length)
    }

    /// The chunk of this number, which begins there; `None` if it is not there whole, or damaged.
    pub fn read(&self, number: u64, offset: u64) -> Option<Vec<u8>> {
        let bytes = self.0.read(offset, self.length(number, offset)?).ok()?;
        is_whole(&bytes, number).then_some(bytes)
    }
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
