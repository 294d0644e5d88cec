//! What a thread keeps for a child that borrows its memory until it executes a file.

/// Memory of an environment with our variables: address and bytes, zeros for none.
pub type Lent = [u64; 2];

/// The first words of what a child that borrows our memory was given: glibc's `posix_spawn` has its child put
/// the error there.
pub type ChildWords = [u64; 32];

/// The structure of a clone3, with an address of ours in it.
pub type CloneArgs = [u64; CLONE_ARGS_BYTES / 8];

/// Bytes of the kernel's `struct clone_args`, as far as it is known here.
pub const CLONE_ARGS_BYTES: usize = 88;

/// Where the kernel stores for the parent of a clone the child's number, and a descriptor of the child; 0 for nowhere.
#[derive(Clone, Copy, Debug)]
pub struct Stored {
    /// The number.
    pub number: u64,
    /// The descriptor.
    pub descriptor: u64,
}

impl Stored {
    /// Nothing.
    pub const NOTHING: Stored = Stored { number: 0, descriptor: 0 };
}

/// The child.
pub struct Spawn {
    /// Memory that it was given for its exec.
    pub lent: Lent,
    /// The call that made it.
    pub call: u16,
    /// Where its argument lies.
    pub argument: u64,
    /// What was there before it ran.
    pub words: ChildWords,
    /// Whether it is made like vfork.
    pub lends: bool,
    /// What the kernel stores for its parent.
    pub stored: Stored,
    /// What the kernel reads of a clone3 in the guest's place.
    pub clone_args: CloneArgs,
}

impl Spawn {
    /// No child.
    pub(super) const fn unused() -> Spawn {
        Spawn {
            lent: [0; 2],
            call: 0,
            argument: 0,
            words: [0; 32],
            lends: false,
            stored: Stored::NOTHING,
            clone_args: [0; 11],
        }
    }
}
