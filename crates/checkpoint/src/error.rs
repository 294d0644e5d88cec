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
    /// It is sealed in another version of the format.
    SealVersion(u32),
    /// It is sealed, and no key was given.
    Sealed,
    /// A key was given, and it is not sealed.
    NotSealed,
    /// It is sealed with another key, or its first bytes are damaged.
    OtherKey,
    /// A chunk, at this offset, is not what was written.
    Damaged {
        /// Where the chunk begins, bytes.
        at: u64,
        /// What is wrong with it.
        what: &'static str,
    },
    /// It has no list of its pages: one of an older version, or of a recording.
    NoBase,
    /// It ends before its end was written, at this offset.
    Cut(u64),
    /// The system.
    System(io::Error),
}

impl From<io::Error> for Error {
    fn from(cause: io::Error) -> Error {
        // What is read may be opened meanwhile, and that says more than the system does.
        cause.downcast().unwrap_or_else(Error::System)
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::NotACheckpoint => write!(f, "it is not a checkpoint"),
            Error::Version(version) => {
                write!(
                    f,
                    "it is a checkpoint of format {version}, and this version reads {} to {}",
                    crate::VERSION_MIN,
                    crate::VERSION
                )
            }
            Error::SealVersion(version) => {
                write!(
                    f,
                    "it is encrypted in format {version}, and this version reads {}",
                    crate::SEAL_VERSION
                )
            }
            Error::Sealed => write!(f, "it is encrypted, and no key was given"),
            Error::NotSealed => write!(f, "it is not encrypted, and whoever has the key did not write it"),
            Error::OtherKey => {
                write!(f, "it is encrypted with another key, or damaged in its first bytes")
            }
            Error::Damaged { at, what } => write!(f, "it is damaged at byte {at}: {what}"),
            Error::NoBase => write!(f, "nothing can build on it: it has no list of its pages"),
            Error::Cut(at) => {
                write!(f, "it is cut off behind byte {at}: whoever wrote it did not come to its end")
            }
            Error::System(cause) => cause.fmt(f),
        }
    }
}

impl std::error::Error for Error {}
