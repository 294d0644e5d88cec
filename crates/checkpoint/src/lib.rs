//! A parked program in a file.
//!
//! A checkpoint is a mark, a version and chunks: the [`Head`], which says what the program's processes are made of, any number of
//! chunks of pages, each of one [`Owner`], the [`Index`] of all pages, and the sums at its end. An incremental one holds the pages that
//! are others than in its [`Base`]. Each chunk has its length and a checksum, and is compressed where that is of use. A reader
//! believes no length that is above its bounds, checks a chunk before it looks at it, and takes a checkpoint without its sums for cut.
//! All of it can be [sealed](Sealer).
#![forbid(unsafe_code)]

mod error;
pub mod fuzz;
mod head;
mod index;
mod owner;
mod reader;
mod seal;
mod taken;
mod writer;

pub use error::Error;
pub use head::{
    BuiltOn, Descriptor, File, Head, Holder, Identity, Known, Lock, Mapping, Object, Place, Process,
    Recorded, Registered, Rights, Shared, Socket, Watch,
};
pub use index::{Base, Digest, Index, Skip};
pub use owner::Owner;
pub use reader::{Pages, Reader};
pub use seal::{KEY_BYTES, Key, Opener, Sealer, is_sealed};
pub use taken::{Content, Taken, TakenFile};
pub use writer::{Sums, Writer};

/// What a checkpoint begins with; behind it the version, a little-endian `u32`.
pub const MARK: &[u8; 16] = b"understudy point";

/// Version of the format that this crate writes.
pub const VERSION: u32 = 4;

/// The first version that it reads: that had no [`Index`], and the one behind it no files that were [taken](Taken) with it.
pub const VERSION_MIN: u32 = 2;

/// What a sealed checkpoint begins with; behind it the version, a little-endian `u32`.
pub const SEAL: &[u8; 16] = b"understudy seal\n";

/// Version of the seal that this crate makes and opens.
pub const SEAL_VERSION: u32 = 1;

/// Bytes of a page.
pub const PAGE_BYTES: usize = 4096;

/// Bytes of pages in one chunk, at most.
pub const CHUNK_BYTES: usize = 1 << 20;

/// Bytes of a head, at most: descriptors with the contents of pipes are in it.
pub(crate) const HEAD_BYTES: usize = 256 << 20;

/// Bytes in front of a chunk's runs: whose they are, and how many.
pub(crate) const WHOSE_BYTES: usize = 12;

/// Bytes in front of a chunk's content: its kind, its bytes, its bytes as they are stored, their checksum.
pub(crate) const FRONT_BYTES: usize = 16;

/// What a chunk is.
pub(crate) mod kind {
    /// The [`Head`](crate::Head), as JSON.
    pub const HEAD: u32 = 1;
    /// Runs of memory: whose, how many, address and bytes of each, and what stands there.
    pub const PAGES: u32 = 2;
    /// The [`Sums`](crate::Sums), as JSON.
    pub const END: u32 = 3;
    /// A part of the [`Index`](crate::Index).
    pub const INDEX: u32 = 4;
}
