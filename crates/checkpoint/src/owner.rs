//! Whose pages are in a chunk.

/// Whose memory it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Owner {
    /// A process's own, by its index; the address is its own.
    Process(u32),
    /// A piece of memory that processes share, by its index; the address is the offset in it.
    Shared(u32),
}

impl Owner {
    pub(crate) fn word(self) -> u64 {
        let (kind, index) = match self {
            Owner::Process(index) => (0u32, index),
            Owner::Shared(index) => (1, index),
        };
        u64::from(kind) << 32 | u64::from(index)
    }

    pub(crate) fn bytes(self) -> [u8; 8] {
        self.word().to_le_bytes()
    }

    pub(crate) fn from_bytes(bytes: [u8; 8]) -> Option<Owner> {
        let word = u64::from_le_bytes(bytes);
        match word >> 32 {
            0 => Some(Owner::Process(word as u32)),
            1 => Some(Owner::Shared(word as u32)),
            _ => None,
        }
    }
}
