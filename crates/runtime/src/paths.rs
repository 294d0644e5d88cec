//! Paths that this process remembers: of the runtime's library, and of files in the group's folder.

use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use crate::{guest, state};

/// Longest path, with its NUL.
pub const PATH_BYTES: usize = 4096;

/// Path of the runtime's library, and of the group's folder with the last `/`: each with its NUL.
static PATHS: [[AtomicU64; PATH_BYTES / 8]; 2] = [const { [const { AtomicU64::new(0) }; PATH_BYTES / 8] }; 2];

const LIBRARY: usize = 0;

const FOLDER: usize = 1;

/// Which segment in the folder is this process's: the number in its name, 0 for the group's first one.
pub static SEGMENT: AtomicU32 = AtomicU32::new(0);

/// Remembers where the library is, and the folder of the segment. In the constructor.
///
/// # Safety
/// Both strings end with NUL.
pub unsafe fn remember(library: *const u8, segment: *const u8) {
    for (place, from) in [(LIBRARY, library), (FOLDER, segment)] {
        let to = PATHS[place].as_ptr().cast_mut().cast::<u8>();
        for at in 0..PATH_BYTES - 1 {
            // SAFETY: the source ends with NUL, where the loop stops; the target is large enough, and no other
            // thread exists.
            unsafe {
                let byte = *from.add(at);
                if byte == 0 {
                    break;
                }
                to.add(at).write(byte);
            }
        }
    }
    // SAFETY: written a moment ago; the path of a file has a separator.
    unsafe {
        let folder = PATHS[FOLDER].as_ptr().cast_mut().cast::<u8>();
        let len = guest::string_len(folder as u64);
        let end = (0..len).rev().find(|at| *folder.add(*at) == b'/').map_or(0, |at| at + 1);
        let name = core::slice::from_raw_parts(folder.add(end), len - end);
        let number = name.strip_prefix(b"segment.").unwrap_or(b"");
        let number = number.iter().fold(0u32, |sum, digit| sum * 10 + u32::from(digit.wrapping_sub(b'0')));
        SEGMENT.store(number, Ordering::Relaxed);
        folder.add(end).write_bytes(0, len - end);
    }
}

fn remembered(place: usize) -> &'static [u8] {
    let path = PATHS[place].as_ptr().cast::<u8>();
    // SAFETY: written in the constructor; it ends with NUL inside the array.
    unsafe { core::slice::from_raw_parts(path, guest::string_len(path as u64)) }
}

/// The runtime's library.
pub fn library() -> &'static [u8] {
    remembered(LIBRARY)
}

/// The group's folder; a NUL stands behind it.
pub fn folder() -> &'static [u8] {
    remembered(FOLDER)
}

/// A file in the group's folder: its name in parts, with a NUL behind it.
fn in_folder(name: &[&[u8]], to: &mut [u8; PATH_BYTES]) -> Option<()> {
    let folder = remembered(FOLDER);
    if folder.is_empty() {
        return None;
    }
    let mut at = 0;
    for part in [folder].iter().chain(name) {
        to.get_mut(at..at + part.len())?.copy_from_slice(part);
        at += part.len();
    }
    *to.get_mut(at)? = 0;
    Some(())
}

/// The path of the segment of the process with this number.
pub fn segment_path(pid: u32, to: &mut [u8; PATH_BYTES]) -> Option<()> {
    in_folder(&[b"segment.", state::Decimal::new(u64::from(pid)).bytes()], to)
}

/// The path of what stands for a file that processes share by a mapping, in a replay: by the file's identity.
pub fn shared_path(identity: u64, to: &mut [u8; PATH_BYTES]) -> Option<()> {
    in_folder(&[b"shared.", state::Decimal::new(identity).bytes()], to)
}

/// The path of a family's copy of shared memory: the family's number, and which memory it is.
pub fn family_path(family: u32, region: usize, to: &mut [u8; PATH_BYTES]) -> Option<()> {
    let (family, region) = (state::Decimal::new(u64::from(family)), state::Decimal::new(region as u64));
    in_folder(&[b"family.", family.bytes(), b".", region.bytes()], to)
}

/// The path of the steps by which another version of the runtime comes into this process.
pub fn upgrade_path(to: &mut [u8; PATH_BYTES]) -> Option<()> {
    let pid = state::GUEST_PID.load(Ordering::Relaxed);
    in_folder(&[b"upgrade.", state::Decimal::new(u64::from(pid)).bytes()], to)
}

/// The path of the roster.
pub fn roster_path(to: &mut [u8; PATH_BYTES]) -> Option<()> {
    in_folder(&[b"roster"], to)
}

/// The path of the registry.
pub fn registry_path(to: &mut [u8; PATH_BYTES]) -> Option<()> {
    in_folder(&[b"registry"], to)
}

/// The path of what is known of programs that race.
pub fn races_path(to: &mut [u8; PATH_BYTES]) -> Option<()> {
    in_folder(&[b"races"], to)
}

/// The path of the plans of patched texts.
pub fn plans_path(to: &mut [u8; PATH_BYTES]) -> Option<()> {
    in_folder(&[b"sites"], to)
}
