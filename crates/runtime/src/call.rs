//! A system call on its way from the gate to its door.

use crate::raw;

/// A system call as the guest made it.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Call {
    /// Its number.
    pub nr: u64,
    /// Its arguments.
    pub args: [u64; 6],
    /// An address inside the code that made it.
    pub caller: u64,
}

/// What of the guest's registers the gate does not keep: a handler is shown them, and may change them.
#[repr(C)]
#[derive(Debug)]
pub struct Entry {
    /// The call, in the gate's own frame.
    pub call: *mut Call,
    /// rbx, r12, r13, r14, r15.
    pub kept: [u64; 5],
    /// The gate's frame pointer.
    pub gate_frame: u64,
}

/// System call number.
pub const CLONE3: u64 = crate::raw::nr::CLONE3;

/// System call number.
pub const VFORK: u64 = crate::raw::nr::VFORK;

/// Whether a call of this number may make a child that runs on its parent's stack.
pub fn may_lend(nr: u64) -> bool {
    matches!(nr, raw::nr::CLONE | VFORK | CLONE3)
}
