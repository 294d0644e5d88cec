//! What a thread is in the middle of at an atomic instruction.

/// Of an instruction that the log has, and that this copy is about to make.
#[derive(Clone, Copy)]
pub struct Following {
    /// Its ticket.
    pub ticket: u64,
    /// The old value, where the log has it.
    pub value: u64,
    /// Operation and clock.
    pub call: u16,
    /// The flags that it left in the primary, as `lahf` has them.
    pub flags: u8,
}

/// Between the gate before the instruction and the one behind it.
#[repr(C)]
pub struct Atomics {
    /// The clock that it holds, 0 for none.
    pub held: u64,
    /// The tail of its ring.
    pub tail: u64,
    /// Address of the memory, and head of the stub.
    pub address: u64,
    /// See `address`.
    pub head: u64,
    /// Registers that the gate uses.
    pub kept: [u64; 2],
    /// Whether the instruction is the one that the log has next.
    pub follows: bool,
    /// That one.
    pub following: Following,
    /// Head of the stub whose comparison was to be made again, 0 for none.
    pub again: u64,
}

impl Atomics {
    /// At none.
    pub(super) const fn unused() -> Atomics {
        Atomics {
            held: 0,
            tail: 0,
            address: 0,
            head: 0,
            kept: [0; 2],
            follows: false,
            following: Following { ticket: 0, value: 0, call: 0, flags: 0 },
            again: 0,
        }
    }
}
