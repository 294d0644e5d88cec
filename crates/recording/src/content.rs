//! Contents that are no events: one piece, compressed if that makes it smaller.

use crate::CONTENT_MAX;
use crate::bytes::{Fault, Get, Put};

/// Bytes as they are.
pub const PLAIN: u8 = 0;
/// A zstd frame.
pub const ZSTD: u8 = 1;

const LEVEL: i32 = 3;

/// Coding, length, bytes.
pub fn pack(content: &[u8]) -> Vec<u8> {
    let packed = zstd::bulk::compress(content, LEVEL).ok().filter(|packed| packed.len() < content.len());
    let mut put = Put::default();
    put.u8(if packed.is_some() { ZSTD } else { PLAIN });
    put.u32(content.len() as u32);
    put.0.extend_from_slice(packed.as_deref().unwrap_or(content));
    put.0
}

/// The opposite of [`pack`].
pub fn unpack(stored: &[u8]) -> Result<Vec<u8>, Fault> {
    let get = &mut Get(stored);
    let (coding, length) = (get.u8()?, get.u32()? as usize);
    if length > CONTENT_MAX {
        return Err(format!("a content of {length} bytes"));
    }
    decode(coding, get.0, length)
}

/// Exactly `length` bytes out of `stored`.
pub fn decode(coding: u8, stored: &[u8], length: usize) -> Result<Vec<u8>, Fault> {
    let bytes = match coding {
        PLAIN => stored.to_vec(),
        ZSTD => zstd::bulk::decompress(stored, length).map_err(|cause| format!("zstd: {cause}"))?,
        other => return Err(format!("unknown coding {other}")),
    };
    match bytes.len() == length {
        true => Ok(bytes),
        false => Err(format!("{} bytes where {length} are announced", bytes.len())),
    }
}
