//! How a process that cannot open the files of its group's folder asks the supervisor for them.
//!
//! It connects to a socket whose name follows from the folder's path, and sends one message: a byte that says for what the file is
//! to be opened, and the file's name in the folder. The answer is a byte, and the descriptor unless that is refused.

/// For reading.
pub const READ: u8 = 0;
/// For reading and writing.
pub const READ_WRITE: u8 = 2;
/// Made, for reading and writing.
pub const MAKE: u8 = 3;
/// Made if it is not there, for reading and writing.
pub const MAKE_OR_FIND: u8 = 4;

/// The longest message.
pub const REQUEST_BYTES_MAX: usize = 64;

/// Bytes of the socket's name.
pub const NAME_BYTES: usize = PREFIX.len() + 16;

const PREFIX: &[u8] = b"understudy/files/";

/// The socket's name, for the folder with this path, which ends with `/`. The name is abstract: it is in no folder.
pub fn name(folder: &[u8]) -> [u8; NAME_BYTES] {
    const BASIS: u64 = 0xcbf2_9ce4_8422_2325;
    const PRIME: u64 = 0x100_0000_01b3;
    let mut hash = folder.iter().fold(BASIS, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(PRIME));
    let mut name = [0; NAME_BYTES];
    name[..PREFIX.len()].copy_from_slice(PREFIX);
    for digit in &mut name[PREFIX.len()..] {
        *digit = b"0123456789abcdef"[(hash >> 60) as usize];
        hash <<= 4;
    }
    name
}
