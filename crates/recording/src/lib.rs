//! A recording: the log of a whole group of processes in one file.
//!
//! `docs/RECORDING.md` has the format to the byte. A file is a head and chunks; a chunk has a length and two checksums,
//! and what it holds can be read without any chunk behind it. So a file can be read while it is written, and one that is
//! cut or damaged can be read up to there.
//!
//! What comes back is what was given, but for two things that say nothing: *Skip* events are left out, and the padding
//! behind a payload, which in a ring is whatever lay there before, is zero.
#![forbid(unsafe_code)]

mod bytes;
mod chunk;
mod content;
mod decode;
mod encode;
mod error;
mod event;
#[doc(hidden)]
pub mod fuzz;
mod header;
mod output;
mod predict;
mod reader;
mod shelf;
mod source;
mod streams;
mod whole;
mod writer;

pub use error::Error;
pub use event::{Event, Events, canonical};
pub use header::{Complete, File, Header, How, Image, Item, Mark};
pub use reader::Reader;
pub use whole::{Chunks, is_whole};
pub use writer::Writer;

/// Events of one chunk, bytes as they lay in the rings: no reader needs memory for more.
pub const CHUNK_MAX: usize = 4 << 20;

/// Content of a chunk that holds no events: arguments, environment, facts. Bytes.
pub const CONTENT_MAX: usize = 16 << 20;

/// Version of the format. A reader knows one.
pub const VERSION: u32 = 4;
