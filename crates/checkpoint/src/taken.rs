//! Files that were taken with a checkpoint. Their copies lie in a folder beside it; what they are is in its head.

use serde::{Deserialize, Serialize};

/// What was taken.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Taken {
    /// Folders of which all was taken.
    pub volumes: Vec<String>,
    /// Files, by path: a folder stands in front of what is in it.
    pub files: Vec<TakenFile>,
}

/// One file, as it was.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TakenFile {
    /// Where it was. Its copy has the same path, in the folder of the copies.
    pub path: String,
    /// Its mode, without its type.
    pub mode: u32,
    /// Its user and group.
    pub owner: [u32; 2],
    /// When it was written to last, seconds and nanoseconds.
    pub written: (i64, i64),
    /// What it holds.
    pub content: Content,
}

/// What a file holds.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Content {
    /// Others.
    Folder,
    /// The name of another one.
    Link(String),
    /// Nothing: it is a pipe.
    Pipe,
    /// Bytes, of which there is a copy.
    File {
        /// How many.
        bytes: u64,
        /// The checksum of all of them (CRC-32C).
        checksum: u32,
    },
}
