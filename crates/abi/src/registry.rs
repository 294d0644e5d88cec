//! The registry: what of a group only its supervisor may say, in a file that every other process maps for reading.
//!
//! All processes of a group write the roster, also one that has given up its privileges. So no number in it becomes that of a
//! process to signal: which process a number stands for, once that is another than the one of that number, stands here.

use core::sync::atomic::{AtomicU32, AtomicU64};

use crate::roster::{PROCESSES_MAX, ROSTER_ADDRESS, ROSTER_BYTES};

/// Address at which every copy maps the registry.
pub const REGISTRY_ADDRESS: usize = 0x2980_0000_0000;

/// Bytes of the file.
pub const REGISTRY_BYTES: usize = size_of::<Registry>();

/// The whole file.
#[repr(C, align(64))]
#[derive(Debug)]
pub struct Registry {
    /// [`MAGIC`](crate::MAGIC). Supervisor, before the start.
    pub magic: u64,
    /// [`VERSION`](crate::VERSION). Supervisor, before the start.
    pub version: u32,
    /// Pid of the supervisor. Supervisor, before the start.
    pub supervisor_pid: AtomicU32,
    /// Not zero once processes of more than one user may have the roster mapped. Who gives up the group's user, into the
    /// file, as long as it may still open that.
    pub mixed: AtomicU32,
    /// One past the highest place that has ever been used below. Supervisor.
    pub used: AtomicU32,
    /// Of each process in the roster that has failed over: its number above, the kernel's pid of its primary below; 0 for
    /// any other. Supervisor, before the standby is told to take over.
    pub primaries: [AtomicU64; PROCESSES_MAX],
    /// Of each process in the roster whose end the supervisor has told: its number above, its status as `wait4` gives it below.
    /// Supervisor, before the roster says so.
    pub ends: [AtomicU64; PROCESSES_MAX],
    /// Primaries that are dead, as in [`primaries`](Registry::primaries): what they have sent, and who was at the other end of their
    /// sockets, is told by the kernel's number for as long as it waits. The last ones, in a circle. Supervisor.
    pub earlier: [AtomicU64; EARLIER_MAX],
    /// How many have been written there, ever. Supervisor.
    pub earlier_count: AtomicU64,
}

/// So many dead primaries are remembered.
pub const EARLIER_MAX: usize = 256;

/// A word of [`Registry::primaries`] or [`Registry::ends`].
pub const fn pair(number: u32, value: u32) -> u64 {
    (number as u64) << 32 | value as u64
}

const _: () = {
    assert!(ROSTER_ADDRESS + ROSTER_BYTES <= REGISTRY_ADDRESS);
    assert!(REGISTRY_ADDRESS + REGISTRY_BYTES <= crate::limits::SEGMENT_ADDRESS);
};
