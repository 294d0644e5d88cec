//! What can go wrong with a recording, and where.

use std::fmt;
use std::io;
use std::path::PathBuf;

/// Why a recording cannot be written or read on.
#[derive(Debug)]
pub enum Error {
    /// The file is there already. A recording is never written over.
    Exists(PathBuf),
    /// The file system says no. A writer that has met this writes nothing more.
    Io(io::Error),
    /// The file does not begin as a recording does.
    NotARecording(String),
    /// It is a recording of a version that this reader does not know.
    Version(u32),
    /// From here on the file says nothing that can be believed; everything before is good.
    Damaged {
        /// Where the chunk begins, bytes.
        offset: u64,
        /// Its number; the header's chunk is 0.
        chunk: u64,
        /// What is wrong.
        what: String,
    },
    /// The file ends here without having been finished: its writer still writes, or is gone.
    Unfinished {
        /// End of the last whole chunk, bytes.
        offset: u64,
        /// How many whole chunks there are.
        chunk: u64,
        /// Bytes behind `offset`: the beginning of a chunk.
        rest: u64,
    },
    /// The caller broke a rule of the writer; nothing has been written.
    Misuse(String),
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::Exists(path) => write!(f, "{} exists already", path.display()),
            Error::Io(cause) => write!(f, "{cause}"),
            Error::NotARecording(why) => write!(f, "not a recording: {why}"),
            Error::Version(found) => {
                write!(f, "a recording of version {found}; this program reads version {}", crate::VERSION)
            }
            Error::Damaged { offset, chunk, what } => {
                write!(f, "damaged at byte {offset}, in chunk {chunk}: {what}")
            }
            Error::Unfinished { chunk: 0, .. } => {
                write!(f, "cut off before its first event: nothing can be replayed")
            }
            Error::Unfinished { offset, chunk, rest: 0 } => {
                write!(f, "unfinished: ends at byte {offset}, after {chunk} chunks")
            }
            Error::Unfinished { offset, chunk, rest } => {
                write!(
                    f,
                    "unfinished: ends at byte {offset}, in chunk {chunk}, of which {rest} bytes are there"
                )
            }
            Error::Misuse(what) => write!(f, "{what}"),
        }
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Error::Io(cause) => Some(cause),
            _ => None,
        }
    }
}

impl From<io::Error> for Error {
    fn from(cause: io::Error) -> Error {
        Error::Io(cause)
    }
}
