//! Interception of system calls: the gate, the dispatcher, the patches, the trap.

pub mod allocator;
pub mod bound;
pub mod compat;
pub mod dispatch;
pub mod gate;
pub mod gate_stack;
pub mod libc_text;
pub mod own_table;
pub mod patch;
pub mod patience;
pub mod plans;
pub mod probe;
pub mod recorded;
pub mod room;
pub mod spans;
pub mod taken;
pub mod text;
pub mod trap;
pub mod vdso;
pub mod witness;
