//! What the log counts of a stream.

/// What a stream has moved, as the log has it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Bytes read.
    pub read: u64,
    /// Bytes written; of a file, or folder, its position.
    pub written: u64,
}

/// One transfer that the log has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Transfer {
    /// Bytes moved.
    pub bytes: u64,
    /// The first eight of them as a number, for an eventfd.
    pub word: u64,
    /// Where the file was behind an appending write.
    pub position: u64,
}

impl Transfer {
    /// One of which nothing but its length counts.
    pub const fn of(bytes: u64) -> Transfer {
        Transfer { bytes, word: 0, position: 0 }
    }
}

/// What a transfer changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Count {
    /// So much has been read in addition.
    Read(u64),
    /// So much has been written in addition, or the position is so much further.
    Written(u64),
    /// The position is this.
    At(u64),
}

impl Counts {
    /// With a transfer added.
    #[must_use]
    pub fn with(self, count: Count) -> Counts {
        match count {
            Count::Read(bytes) => Counts { read: self.read.wrapping_add(bytes), ..self },
            Count::Written(bytes) => Counts { written: self.written.wrapping_add(bytes), ..self },
            Count::At(position) => Counts { written: position, ..self },
        }
    }
}
