//! The head of a file and the head of a chunk.

use crate::bytes::{Fault, Get, Put};
use crate::{CHUNK_MAX, CONTENT_MAX};

/// First bytes of a file.
pub const MAGIC: [u8; 8] = *b"\x89USrec\r\n";

/// Bytes of the file's head: magic, version, CRC32C of both.
pub const FILE_HEAD: usize = 16;

/// Bytes of a chunk's head.
pub const CHUNK_HEAD: usize = 40;

/// First bytes of a chunk. Zeros, as a file system leaves them behind a crash, are no chunk.
const MARK: [u8; 4] = *b"chnk";

/// What a chunk holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A [`Header`](crate::Header).
    Header = 1,
    /// An [`Image`](crate::Image).
    Image = 2,
    /// Events.
    Events = 3,
    /// An end.
    End = 4,
    /// A [`Complete`](crate::Complete).
    Complete = 5,
    /// A payload that events of later chunks share.
    Payload = 6,
}

/// The head of a chunk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Head {
    /// What it holds.
    pub kind: Kind,
    /// Chunks before it.
    pub number: u64,
    /// Since the file was made, nanoseconds.
    pub at_ns: u64,
    /// Bytes behind the head.
    pub stored: u32,
    /// CRC32C of them.
    pub crc: u32,
}

/// Bytes that a content can take in the file: events that do not compress are a little longer as columns.
pub const STORED_MAX: usize = if CONTENT_MAX > 3 * CHUNK_MAX { CONTENT_MAX } else { 3 * CHUNK_MAX } + 4096;

/// The file's first bytes.
pub fn file_head() -> [u8; FILE_HEAD] {
    let mut head = [0; FILE_HEAD];
    head[..8].copy_from_slice(&MAGIC);
    head[8..12].copy_from_slice(&crate::VERSION.to_le_bytes());
    let crc = crc32c::crc32c(&head[..12]);
    head[12..].copy_from_slice(&crc.to_le_bytes());
    head
}

impl Head {
    /// As it is written.
    pub fn to_bytes(self) -> [u8; CHUNK_HEAD] {
        let mut put = Put::default();
        put.0.extend_from_slice(&MARK);
        put.u32(self.kind as u32);
        put.u64(self.number);
        put.u64(self.at_ns);
        put.u32(self.stored);
        put.u32(self.crc);
        put.u32(0);
        let crc = crc32c::crc32c(&put.0);
        put.u32(crc);
        put.0.try_into().expect("the fields are forty bytes")
    }

    /// Reads it, believing nothing; `number` is the one it must have.
    pub fn from_bytes(bytes: &[u8; CHUNK_HEAD], number: u64) -> Result<Head, Fault> {
        if bytes[..4] != MARK {
            return Err("no chunk begins here".into());
        }
        let get = &mut Get(&bytes[4..]);
        let (kind, found, at_ns) = (get.u32()?, get.u64()?, get.u64()?);
        let (stored, crc, zero, own) = (get.u32()?, get.u32()?, get.u32()?, get.u32()?);
        if crc32c::crc32c(&bytes[..CHUNK_HEAD - 4]) != own {
            return Err("the checksum of the chunk's head is wrong".into());
        }
        let kind = match kind {
            1 => Kind::Header,
            2 => Kind::Image,
            3 => Kind::Events,
            4 => Kind::End,
            5 => Kind::Complete,
            6 => Kind::Payload,
            other => return Err(format!("a chunk of unknown kind {other}")),
        };
        if found != number {
            return Err(format!("chunk {found} stands here"));
        }
        if zero != 0 || stored as usize > STORED_MAX {
            return Err(format!("a chunk of {stored} bytes"));
        }
        Ok(Head { kind, number, at_ns, stored, crc })
    }
}
