//! Why a checkpoint cannot be read or written.

use std::fmt;
use std::io;

/// Why a checkpoint cannot be read or written. `Display` is a clause without the file's name.
#[derive(Debug)]
pub enum Error {
    /// The file is no checkpoint.
    NotACheckpoint,
    /// It is one of another version of the format.
    Version(u32),
    /// A chunk, at this offset, is not what was written.
    Damaged {
        /// Where the chunk begins, bytes.
        at: u64,
        /// What is wrong with it.
        what: &'static str,
    },
    /// It ends before its end was written, at this offset.
    Cut(u64),
    /// The system.
    System(io::Error),
}

impl From<io::Error> for Error {
    fn from(cause: io::Error) -> Error {
        Error::System(cause)
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::NotACheckpoint => write!(f, "it is not a checkpoint"),
            Error::Version(version) => {
                write!(f, "it is a checkpoint of format {version}, and this version reads {}", crate::VERSION)
            }
            Error::Damaged { at, what } => write!(f, "it is damaged at byte {at}: {what}"),
            Error::Cut(at) => {
                write!(f, "it is cut off behind byte {at}: whoever wrote it did not come to its end")
            }
            Error::System(cause) => cause.fmt(f),
        }
    }
}

impl std::error::Error for Error {}
