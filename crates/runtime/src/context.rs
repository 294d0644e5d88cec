//! What the kernel gives a signal handler: the registers of the thread that it interrupts.

/// Registers of the interrupted thread inside the kernel's `ucontext`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct Context {
    /// What the kernel says of what follows.
    pub flags: u64,
    /// Unused.
    pub link: u64,
    /// The alternate stack that the return sets: address, flags, size.
    pub stack: [u64; 3],
    /// r8 to r15, rdi, rsi, rbp, rbx, rdx, rax, rcx, rsp, rip, eflags, and more.
    pub regs: [u64; 23],
    /// Where the state of x87 and vectors lies.
    pub fpstate: u64,
    /// Unused.
    pub reserved: [u64; 8],
    /// The signal mask that the return restores.
    pub mask: u64,
}

/// Indices into [`Context::regs`].
pub mod reg {
    #![allow(missing_docs)]
    pub const R8: usize = 0;
    pub const R9: usize = 1;
    pub const R10: usize = 2;
    pub const R11: usize = 3;
    pub const R12: usize = 4;
    pub const RDI: usize = 8;
    pub const RSI: usize = 9;
    pub const RBP: usize = 10;
    pub const RBX: usize = 11;
    pub const RDX: usize = 12;
    pub const RAX: usize = 13;
    pub const RCX: usize = 14;
    pub const RSP: usize = 15;
    pub const RIP: usize = 16;
    pub const EFLAGS: usize = 17;
    pub const SEGMENTS: usize = 18;
    /// What the processor said of a fault.
    pub const ERROR: usize = 19;
    /// The number of the processor's exception.
    pub const EXCEPTION: usize = 20;
}
