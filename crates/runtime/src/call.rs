//! A system call on its way from the gate to its door.

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
