//! Where the pages of a process stand that are to be read into its memory.

/// A run of pages.
#[derive(Clone, Copy)]
pub(super) struct Run {
    /// Where they belong.
    pub(super) address: u64,
    /// How many bytes.
    pub(super) bytes: u64,
    /// Where they stand.
    pub(super) from: From,
}

/// Bytes of the longest run: a call of the kernel's reads less than 2 GiB.
pub(super) const LONGEST: u64 = 1 << 30;

/// Where a run stands.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum From {
    /// At this offset of the checkpoint itself, as it is: it is read once more in place of being copied twice.
    Checkpoint(u64),
    /// At this offset of what has been put into memory.
    Memory(u64),
}

impl From {
    /// What stands so many bytes behind it.
    pub(super) fn behind(self, bytes: u64) -> From {
        match self {
            From::Checkpoint(at) => From::Checkpoint(at + bytes),
            From::Memory(at) => From::Memory(at + bytes),
        }
    }
}
