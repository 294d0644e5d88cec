//! What a thread keeps for a child that borrows its memory until it executes a file.

use linux_raw_sys::general::clone_args;

use crate::guest::{GuestMut, GuestPtr};

/// Memory of an environment with our variables: address and bytes, zeros for none.
pub type Lent = [u64; 2];

/// The first words of what a child that borrows our memory was given: glibc's `posix_spawn` has its child put
/// the error there.
pub type ChildWords = [u64; CHILD_WORDS];

/// How many they are.
pub const CHILD_WORDS: usize = 32;

/// Of a clone3 that asks for nothing.
pub const NO_CLONE: clone_args = clone_args {
    flags: 0,
    pidfd: 0,
    child_tid: 0,
    parent_tid: 0,
    exit_signal: 0,
    stack: 0,
    stack_size: 0,
    tls: 0,
    set_tid: 0,
    set_tid_size: 0,
    cgroup: 0,
};

/// Where the kernel stores for the parent of a clone the child's number, and a descriptor of the child; 0 for nowhere.
#[derive(Clone, Copy)]
pub struct Stored {
    /// The number.
    pub number: GuestMut<u32>,
    /// The descriptor.
    pub descriptor: GuestMut<i32>,
}

impl Stored {
    /// Nothing.
    pub const NOTHING: Stored = Stored { number: GuestMut::at(0), descriptor: GuestMut::at(0) };
}

/// The child.
pub struct Spawn {
    /// Memory that it was given for its exec.
    pub lent: Lent,
    /// The call that made it.
    pub call: u16,
    /// When that began, CLOCK_MONOTONIC ns.
    pub since_ns: u64,
    /// Where its argument lies.
    pub argument: GuestPtr<ChildWords>,
    /// What was there before it ran.
    pub words: ChildWords,
    /// Whether it is made like vfork.
    pub lends: bool,
    /// What the kernel stores for its parent.
    pub stored: Stored,
    /// What the kernel reads of a clone3 in the guest's place.
    pub clone_args: clone_args,
}

impl Spawn {
    /// No child.
    pub(super) const fn unused() -> Spawn {
        Spawn {
            lent: [0; 2],
            call: 0,
            since_ns: 0,
            argument: GuestPtr::at(0),
            words: [0; _],
            lends: false,
            stored: Stored::NOTHING,
            clone_args: NO_CLONE,
        }
    }
}
