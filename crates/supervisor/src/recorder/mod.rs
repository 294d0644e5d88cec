//! Recordings: `understudy record` takes the log of a group into a file, `understudy replay` feeds one to the same
//! program.
//!
//! Both are supervisors of a plainer kind than `run`'s: nobody is promoted, so nobody is watched but for its end. `run
//! --record` has the recorder in a thread of its own ([`beside`]).

pub(crate) mod beside;
mod checkpoints;
pub mod cluster;
mod facts;
mod feed;
mod images;
mod making;
mod piece;
pub mod record;
pub mod replay;
mod rings;
mod state;
pub(crate) mod surroundings;
mod take;
mod tape;

use std::ffi::OsString;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

use crate::error::Error;
pub use take::why_cut;

/// The same path, at least `bytes` long: strings lie on the stack, and a replay, whose paths are other ones, has to
/// have as many bytes of them.
fn padded(path: &Path, bytes: usize) -> PathBuf {
    let path = path.as_os_str().as_bytes();
    let mut padded = vec![b'/'; bytes.saturating_sub(path.len())];
    padded.extend_from_slice(path);
    PathBuf::from(OsString::from_vec(padded))
}

fn of_recording(path: &Path, cause: recording::Error) -> Error {
    match cause {
        recording::Error::Io(cause) => Error::file("read", path, cause),
        other => Error::NotReplayed(format!("{}: {other}", path.display())),
    }
}
