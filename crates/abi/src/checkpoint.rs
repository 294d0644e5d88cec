//! What a process and its supervisor say to each other about a checkpoint.

use core::sync::atomic::{AtomicU32, AtomicU64};

use crate::segment::Text;

/// A copy that stands still, so that somebody can write it down, and what it takes to go on in its place.
#[repr(C, align(64))]
#[derive(Debug)]
pub struct Stand {
    /// Futex: a value of [`stand`]. Supervisor before it asks, copy, supervisor.
    pub state: AtomicU32,
    /// Kernel's pid of the copy. Copy.
    pub pid: AtomicU32,
    /// Address of the registers with which it goes on. Copy.
    pub context: AtomicU64,
    /// Address of the function that goes on with them. Copy.
    pub resume: AtomicU64,
    /// Base of the thread-local storage of the thread that goes on. Copy.
    pub tls: AtomicU64,
    /// Address of the path of the group's folder, where there is room for one of any length. Copy.
    pub folder: AtomicU64,
    /// End of the heap. Copy.
    pub heap_end: AtomicU64,
    /// Why there is none, with [`stand::FAILED`].
    pub why: Text,
}

/// Values of [`Stand::state`].
pub mod stand {
    /// It is asked for.
    pub const ASKED: u32 = 0;
    /// It stands still, and the program as well: what both share can be looked at.
    pub const STANDS: u32 = 1;
    /// That has been done, and the program may go on.
    pub const DESCRIBED: u32 = 2;
    /// There is none.
    pub const FAILED: u32 = 3;
    /// It is asked for, and the program is to stand still until all of it has been written.
    pub const ASKED_FOR_LONG: u32 = 4;
    /// The process stands still, and waits for its relatives to do so. Coordinator.
    pub const PARKED: u32 = 5;
    /// All of them do, and each is to fork its copy. Supervisor.
    pub const FORK: u32 = 6;
    /// The copy has closed its descriptors. Copy, after [`DESCRIBED`].
    pub const CLOSED: u32 = 7;
    /// It is asked for, as a place at which a replay begins, and the program is to stand still until its log has been taken.
    pub const ASKED_FOR_REPLAY: u32 = 8;
    /// No copy is asked for: another version of the runtime is to be put into the process while it stands still.
    pub const ASKED_FOR_UPGRADE: u32 = 9;
    /// That has been done. Coordinator.
    pub const UPGRADED: u32 = 10;
}
