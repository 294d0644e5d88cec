//! Interception of system calls: the gate, the patches, the trap.

pub mod allocator;
pub mod atomic_gate;
pub mod atomics;
pub mod gate;
pub mod gate_stack;
pub mod libc_text;
pub mod milestones;
pub mod own_table;
pub mod patch;
pub mod plans;
pub mod point;
pub mod probe;
pub mod program;
pub mod room;
pub mod spans;
pub mod text;
pub mod trap;
pub mod vdso;
pub mod versions;
pub mod wall;
