//! What a process and its supervisor say to each other about its runtime's versions, and how another one is put into it.

use core::sync::atomic::{AtomicU32, AtomicU64};

use crate::segment::Text;

/// Bytes of the berth behind the head of the library, in which later versions are put.
pub const BERTH_BYTES: usize = 36 << 20;

/// Versions that one process can have in its life.
pub const VERSIONS_MAX: usize = 32;

/// The versions of the runtime that are in a process. The last one is at work.
#[repr(C, align(64))]
#[derive(Debug)]
pub struct Versions {
    /// How many there are. Runtime, last.
    pub count: AtomicU32,
    /// Where the berth begins. Runtime.
    pub berth: AtomicU64,
    /// What the one at work says of itself. Runtime.
    pub about: Text,
    /// In the order of their coming.
    pub all: [Version; VERSIONS_MAX],
}

/// One of them.
#[repr(C)]
#[derive(Debug)]
pub struct Version {
    /// Where its file's first byte is.
    pub base: AtomicU64,
    /// The twenty bytes of its build id, and zeros behind.
    pub build: [AtomicU64; 3],
}

/// First eight bytes of the file that says how a version is put into a process.
pub const STEPS_MAGIC: u64 = u64::from_le_bytes(*b"upgrade1");

/// That file begins with these words, and [`Step`]s behind them: system calls that the process makes, one after the other, while
/// all its threads stand still.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Head {
    /// [`STEPS_MAGIC`]
    pub magic: u64,
    /// How many steps there are.
    pub steps: u64,
    /// Before this one nothing of what was there has been changed.
    pub changes: u64,
    /// Where the new version's function is that is to be called when all steps have been made.
    pub then: u64,
}

/// A system call of it.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Step {
    /// Its number.
    pub number: u64,
    /// Its arguments; [`DESCRIPTOR`] stands for the file itself.
    pub arguments: [u64; 6],
    /// The result that it must have.
    pub result: u64,
}

/// Bytes in front of the steps.
pub const HEAD_BYTES: usize = 64;

/// Bytes of the steps at most.
pub const STEPS_MAX: usize = 1 << 16;

/// See [`Step::arguments`].
pub const DESCRIPTOR: u64 = 0xde5c_de5c_de5c_de5c;

const _: () = {
    assert!(size_of::<Step>() == 64);
    assert!(size_of::<Head>() <= HEAD_BYTES);
};
