//! What a recording has to know of a process image so that the program can be started again as it was: the payload of
//! [`EventKind::Image`](crate::EventKind::Image).
//!
//! An image is what a start, a fork or an exec makes. Behind the head come the inherited descriptors, then strings that
//! end with NUL: the executed file as it was named, the file itself, the current folder, every argument, every variable of
//! the environment.

/// Values of [`ImageHead::how`].
pub mod how {
    /// The program itself.
    pub const STARTED: u32 = 0;
    /// A fork: the memory is the parent's, so there are no strings.
    pub const FORKED: u32 = 1;
    /// An exec.
    pub const EXECUTED: u32 = 2;
}

/// Start of the payload.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ImageHead {
    /// The number that the guest sees.
    pub pid: u32,
    /// That of its parent.
    pub parent: u32,
    /// A value of [`how`].
    pub how: u32,
    /// The flags of the [`Config`](crate::Config) under which it was recorded.
    pub flags: u32,
    /// [`Inherited`] that follow.
    pub descriptors: u32,
    /// Strings that are arguments.
    pub arguments: u32,
    /// Strings that are variables of the environment, ours among them.
    pub variables: u32,
    /// The signal that it has asked for at its parent's death, 0 for none.
    pub death_signal: u32,
    /// Where the kernel has put the random bytes.
    pub random_at: u64,
    /// The bytes: libc's canary and pointer guard are made of them.
    pub random: [u64; 2],
    /// libc's words at 40 and 48 bytes from the thread pointer: canary, pointer guard.
    pub guards: [u64; 2],
    /// Signals that were blocked, and those that were ignored: bit n-1 for signal n.
    pub signals: [u64; 2],
}

/// A descriptor that the image has inherited.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Inherited {
    /// Its number.
    pub fd: i32,
    /// What the runtime takes it for.
    pub kind: u32,
    /// The open file's identity, as the log has it.
    pub identity: u64,
}

const _: () = {
    assert!(size_of::<ImageHead>() == 88);
    assert!(size_of::<Inherited>() == 16);
};
