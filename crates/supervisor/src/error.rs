//! What can go wrong before, around and after a run, and the exit code of each.

use std::fmt;
use std::io;
use std::path::PathBuf;

use us_abi::exit;

/// An error of the supervisor. `Display` is one clear sentence; the cause, if any, is in `source()`.
#[derive(Debug)]
pub enum Error {
    /// The command line asks for something that does not exist.
    Usage(String),
    /// The program was not found.
    NotFound(String),
    /// The program exists but cannot be executed.
    NotExecutable {
        /// The program as typed.
        program: String,
        /// Why.
        reason: String,
    },
    /// The program can be executed, but not protected.
    CannotProtect {
        /// The program as typed.
        program: String,
        /// Why.
        reason: String,
    },
    /// The runtime library is missing or cannot be preloaded.
    Runtime(String),
    /// The program could be run, but not as it was asked for: why.
    NothingRun(String),
    /// A group of this name is alive.
    NameInUse(String),
    /// No group has this name.
    NoSuchGroup(String),
    /// A process of the group would not end.
    StillAlive(String),
    /// The supervisor cannot do what it was asked for, and why.
    Refused(String),
    /// A replay is not the recording, or cannot be.
    NotReplayed(String),
    /// A step on a file failed.
    File {
        /// The step, as in "cannot {step} {path}".
        step: &'static str,
        /// The file.
        path: PathBuf,
        /// The cause.
        cause: io::Error,
    },
    /// A step on the system failed.
    System {
        /// The step, as in "cannot {step}".
        step: &'static str,
        /// The cause.
        cause: io::Error,
    },
}

impl Error {
    /// A failed step on a file.
    pub fn file(step: &'static str, path: impl Into<PathBuf>, cause: impl Into<io::Error>) -> Error {
        Error::File { step, path: path.into(), cause: cause.into() }
    }

    /// A failed step on the system.
    pub fn system(step: &'static str, cause: impl Into<io::Error>) -> Error {
        Error::System { step, cause: cause.into() }
    }

    /// The exit code by which `understudy` reports this error.
    pub fn exit_code(&self) -> i32 {
        match self {
            Error::Usage(_) => exit::USAGE,
            Error::NotFound(_) => exit::NOT_FOUND,
            Error::NotExecutable { .. } => exit::NOT_EXECUTABLE,
            Error::NoSuchGroup(_) | Error::StillAlive(_) | Error::Refused(_) => exit::FAILED,
            Error::NotReplayed(_) => exit::NOT_REPLAYED,
            _ => exit::CANNOT_PROTECT,
        }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::Usage(text)
            | Error::Runtime(text)
            | Error::NothingRun(text)
            | Error::Refused(text)
            | Error::NotReplayed(text) => f.write_str(text),
            Error::NotFound(program) if program.contains('/') => write!(f, "{program}: not found"),
            Error::NotFound(program) => {
                write!(f, "{program}: not found in PATH")
            }
            Error::NotExecutable { program, reason } => write!(f, "{program} cannot be executed: {reason}"),
            Error::CannotProtect { program, reason } => write!(f, "{program} cannot be protected: {reason}"),
            Error::NameInUse(name) => write!(f, "a group named {name} is running; choose another --name"),
            Error::NoSuchGroup(name) => write!(f, "there is no group named {name}"),
            Error::StillAlive(name) => write!(f, "{name} has not ended"),
            Error::File { step, path, .. } => write!(f, "cannot {step} {}", path.display()),
            Error::System { step, .. } => write!(f, "cannot {step}"),
        }
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Error::File { cause, .. } | Error::System { cause, .. } => Some(cause),
            _ => None,
        }
    }
}
