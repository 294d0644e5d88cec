//! The words shared between the guest process and the supervisor.
//!
//! Two programs meet only here: `libunderstudy.so` inside the guest, and `understudy` outside it. The
//! crate holds `repr(C)` types, numbers and const assertions, nothing that runs. A change of any layout
//! bumps [`VERSION`]; both sides refuse a segment of another version.
#![no_std]
#![forbid(unsafe_code)]

pub mod checkpoint;
pub mod config;
pub mod connections;
pub mod event;
pub mod family;
pub mod handout;
pub mod image;
pub mod limits;
pub mod races;
pub mod registry;
pub mod roster;
pub mod segment;
pub mod upgrade;
pub mod world;

pub use checkpoint::{Stand, stand};
pub use config::*;
pub use connections::*;
pub use event::{CallArgs, EventKind, Header, NO_TICKET, ReturnHead};
pub use family::*;
pub use image::{ImageHead, Inherited, how};
pub use limits::*;
pub use registry::*;
pub use roster::*;
pub use segment::*;
pub use upgrade::VERSIONS_MAX;

/// First eight bytes of a segment: `UNDERSTU` read as a little-endian number.
pub const MAGIC: u64 = u64::from_le_bytes(*b"UNDERSTU");

/// Version of every layout in this crate. Bumped by any change to it.
pub const VERSION: u32 = 26;

/// Environment variable by which the supervisor tells the runtime the path of its segment. The runtime
/// removes it (and itself from `LD_PRELOAD`) before the guest's code can see its environment.
pub const ENV_SEGMENT: &str = "UNDERSTUDY_SEGMENT";

/// Environment variable holding what `LD_PRELOAD` was before the supervisor added the runtime.
pub const ENV_PRELOAD: &str = "UNDERSTUDY_PRELOAD";

/// Environment variable of an image under limits of memory: what of RLIMIT_DATA and of RLIMIT_AS is the runtime's, of each in the
/// soft and in the hard one, bytes, in decimal with commas between them.
pub const ENV_LIMITS: &str = "UNDERSTUDY_LIMITS";
/// Variable with the key of an image's random numbers, decimal: with `--seed`. The runtime takes it out before the program's first
/// instruction, and gives each image that is executed a key of its own.
pub const ENV_SEED: &str = "UNDERSTUDY_SEED";

/// Exit codes of `understudy` itself (the guest's own code is passed through otherwise).
pub mod exit {
    /// The command was understood and could not be done: no such group, a check that failed.
    pub const FAILED: i32 = 1;
    /// Wrong usage of the command line.
    pub const USAGE: i32 = 2;
    /// `status NAME`: it does not run.
    pub const NOT_RUNNING: i32 = 3;
    /// `status NAME`: it runs, and a kill would end it.
    pub const UNPROTECTED: i32 = 4;
    /// Could not protect, or an internal error; nothing was run.
    pub const CANNOT_PROTECT: i32 = 125;
    /// A replay is not the recording, or the recording not the whole run: never what the program itself ended with.
    pub const NOT_REPLAYED: i32 = 125;
    /// The program exists but cannot be executed.
    pub const NOT_EXECUTABLE: i32 = 126;
    /// The program was not found.
    pub const NOT_FOUND: i32 = 127;
}
