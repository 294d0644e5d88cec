//! Programs that have raced: what is known of them the next time that they are started.
//!
//! A program whose threads race is found out by its first divergence, and a kill before that is noticed ends it. So the user's state
//! folder remembers which files have raced, and each group has a copy, which the runtime reads when an image begins. All of it
//! lies in memory, as the groups do: it is bounded, and gone with the next boot.

use std::os::unix::fs::MetadataExt;

use us_abi::races::{RECORD_BYTES, RECORDS_MAX};

use crate::dir::Dir;
use crate::proc;

/// The state folder's file. No group can have that name.
pub const KNOWN: &str = "@races";
/// The copy in a group's folder.
const COPY: &str = "races";
/// `off`: nothing is known, and nothing remembered.
const ENV: &str = "UNDERSTUDY_RACES";

const BYTES_MAX: u64 = (RECORDS_MAX * RECORD_BYTES) as u64;

fn is_off() -> bool {
    std::env::var_os(ENV).is_some_and(|value| value == "off")
}

fn known(state: &Dir) -> Vec<u8> {
    let mut known = state.read(KNOWN, BYTES_MAX).unwrap_or_default();
    known.truncate(known.len() / RECORD_BYTES * RECORD_BYTES);
    known
}

/// Gives a group that begins what is known. Without it an image knows nothing.
pub fn copy(state: &Dir, group: &Dir) {
    let known = if is_off() { Vec::new() } else { known(state) };
    let _ = group.replace(COPY, &known);
}

/// The threads of the process `pid` have raced: remembers the file that it executes. What is there for longest is forgotten where there
/// is no more room. Two groups that remember at once may lose one.
pub fn remember(state: &Dir, group: &Dir, pid: u32) {
    let Some(record) = record_of(pid).filter(|_| !is_off()) else { return };
    let mut known = known(state);
    if known.chunks_exact(RECORD_BYTES).any(|one| one == record) {
        return;
    }
    if known.len() == RECORDS_MAX * RECORD_BYTES {
        known.drain(..RECORD_BYTES);
    }
    known.extend_from_slice(&record);
    for (folder, name) in [(state, KNOWN), (group, COPY)] {
        let _ = folder.replace(name, &known);
    }
}

/// A file as the runtime knows it by `/proc/self/exe`.
fn record_of(pid: u32) -> Option<[u8; RECORD_BYTES]> {
    let file = proc::executable(pid)?;
    let changed_ns = file.mtime().wrapping_mul(1_000_000_000).wrapping_add(file.mtime_nsec());
    let words = [file.dev(), file.ino(), file.size(), changed_ns as u64];
    let mut record = [0; RECORD_BYTES];
    for (place, word) in record.chunks_exact_mut(8).zip(words) {
        place.copy_from_slice(&word.to_le_bytes());
    }
    Some(record)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_remembered_once_and_the_oldest_is_forgotten() {
        let place = tempfile::tempdir().expect("a folder");
        let state = Dir::open(place.path()).expect("its own");
        let group = state.make_folder("g").expect("one in it");
        remember(&state, &group, std::process::id());
        remember(&state, &group, std::process::id());
        let own = record_of(std::process::id()).expect("this program");
        assert_eq!(known(&state), own);
        assert_eq!(group.read(COPY, BYTES_MAX).expect("a copy"), own);
        let other = state.make_folder("h").expect("another");
        copy(&state, &other);
        assert_eq!(other.read(COPY, BYTES_MAX).expect("a copy"), own);

        let full: Vec<u8> = (0..RECORDS_MAX).flat_map(|n| [n as u8 + 1; RECORD_BYTES]).collect();
        state.replace(KNOWN, &full).expect("written");
        remember(&state, &group, std::process::id());
        assert_eq!(known(&state), [&full[RECORD_BYTES..], &own[..]].concat());
        // Cut off, and too long: what is whole counts, or nothing.
        state.replace(KNOWN, &own[..20]).expect("written");
        assert!(known(&state).is_empty());
        state.replace(KNOWN, &[7; BYTES_MAX as usize + 1]).expect("written");
        assert!(known(&state).is_empty());
    }
}
