//! Contents that are no events: one piece, compressed if that makes it smaller.

use crate::CONTENT_MAX;
use crate::bytes::{Fault, Get};
use crate::streams::Unpacker;

/// Bytes as they are.
pub const PLAIN: u8 = 0;
/// A zstd frame.
pub const ZSTD: u8 = 1;

const LEVEL: i32 = 3;

/// Appends coding, length and bytes.
pub fn pack(content: &[u8], to: &mut Vec<u8>) {
    let packed = zstd::bulk::compress(content, LEVEL).ok().filter(|packed| packed.len() < content.len());
    to.push(if packed.is_some() { ZSTD } else { PLAIN });
    to.extend_from_slice(&(content.len() as u32).to_le_bytes());
    to.extend_from_slice(packed.as_deref().unwrap_or(content));
}

/// The opposite of [`pack`].
pub fn unpack(unpacker: &mut Unpacker, stored: &[u8]) -> Result<Vec<u8>, Fault> {
    let get = &mut Get(stored);
    let (coding, length) = (get.u8()?, get.u32()? as usize);
    if length > CONTENT_MAX {
        return Err(format!("a content of {length} bytes"));
    }
    unpacker.decode(coding, get.0, length)
}
