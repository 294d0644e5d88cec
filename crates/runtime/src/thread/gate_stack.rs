//! The part of a thread's block that the gate reads.

/// Pieces of a stack of the gate's. Memory is used when it is touched, and a thread that is on its own stack touches none.
pub const PIECES: usize = 8;

/// What the gate has to know of a thread's stacks.
#[repr(C)]
#[derive(Debug)]
pub struct GateStack {
    /// Lowest address at which the gate stays on the thread's own stack.
    pub own_low: u64,
    /// That stack's end; 0 for a stack of which nothing is known.
    pub own_end: u64,
    /// Lowest address of the pieces; 0 as long as there are none.
    pub low: u64,
    /// Their end.
    pub end: u64,
    /// End of the current piece; 0 for none.
    pub top: u64,
    /// For each piece that waits for a handler: where its word lies. 0 for a free one.
    pub waits: [u64; PIECES],
}

impl GateStack {
    /// Nothing is known yet: the gate stays where it is called.
    pub const fn new() -> GateStack {
        GateStack { own_low: 0, own_end: 0, low: 0, end: 0, top: 0, waits: [0; PIECES] }
    }
}
