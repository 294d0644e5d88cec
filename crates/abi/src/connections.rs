//! What is known of TCP connections where a gate, or a mirror, has a use for it: a table in the segment, behind the threads.
//!
//! In a primary ([`CONFIG_GATED`](crate::CONFIG_GATED)) the table says what of each connection has been read *in the log*: a figure
//! is stored behind the event that it counts. In a mirror it says what a successor of the connection has to begin with.

use core::sync::atomic::{AtomicI32, AtomicU32, AtomicU64};

use crate::limits::{RINGS_OFFSET, THREAD_ENTRY_BYTES, THREADS_MAX, THREADS_OFFSET};

/// Connections that the table has room for.
pub const CONNECTIONS_MAX: usize = 4096;

/// Offset of the table in the segment.
pub const CONNECTIONS_OFFSET: usize = 3 << 20;

/// Bytes of each connection that a mirror keeps of what was written last: the kernel's send buffers have 4 MiB as a rule.
pub const SENT_BYTES: u64 = 8 << 20;

/// One connection.
#[repr(C, align(64))]
#[derive(Debug)]
pub struct Connection {
    /// The socket's cookie, as the log has it; 0: the row is free. Runtime; cleared by the supervisor once it is closed.
    pub identity: AtomicU64,
    /// Bytes that this process has read: of one that its parent had as well, since it was made.
    pub read: AtomicU64,
    /// Mirror: bytes written.
    pub written: AtomicU64,
    /// Mirror: bytes of an output that has begun behind these, and whose end is not in the log.
    pub begun: AtomicU64,
    /// Mirror: of these, what the supervisor has given to the rebuilt connection already. Taken by the thread that goes on with it.
    pub queued: AtomicU64,
    /// Mirror: CLOCK_MONOTONIC when it was closed, ns.
    pub closed_ns: AtomicU64,
    /// Bits of [`connection`].
    pub flags: AtomicU32,
    /// Mirror: a number under which it is open.
    pub fd: AtomicI32,
    /// Mirror: the slot whose output `begun` is.
    pub slot: AtomicU32,
    /// Mirror: its place among all [`Sent`], plus one; 0: it has none yet.
    pub place: AtomicU32,
}

/// Who has a place of the file in which a mirror keeps what was written last. One for all processes that have the connection.
#[repr(C)]
#[derive(Debug)]
pub struct Sent {
    /// The connection's identity; 0: nobody has the place. Runtime; cleared by the supervisor once all have closed it.
    pub identity: AtomicU64,
    /// Behind the last byte there. Runtime.
    pub end: AtomicU64,
    /// The number of the process that has written there last. Runtime.
    pub writer: AtomicU32,
    /// Zero.
    pub zero: AtomicU32,
}

/// Bits of [`Connection::flags`].
pub mod connection {
    /// The program has read the end of what the other side sends.
    pub const ENDED: u32 = 1;
    /// The program has closed it.
    pub const CLOSED: u32 = 2;
    /// Something was moved by a call that is not counted: nobody can say how far it is.
    pub const UNCOUNTED: u32 = 4;
    /// Mirror: the program has ended its own half.
    pub const SHUT: u32 = 8;
    /// Mirror: a call has been told that it has failed.
    pub const FAILED: u32 = 16;
    /// Mirror: several processes have written to it, and nobody can say in which order.
    pub const MIXED: u32 = 32;

    /// By which bits the identities differ that a machine's sockets have, of those that have had the program.
    pub const fn of_machine(number: u64) -> u64 {
        (number & 0xfff) << 48
    }
}

/// The table.
#[repr(C, align(64))]
#[derive(Debug)]
pub struct Connections {
    /// One past the last row that has ever been used. Runtime.
    pub used: AtomicU32,
    /// Futex: a value of [`rebuild`].
    pub rebuild: AtomicU32,
    /// Mirror: of which machine in the row of those that have had the program the cookies are, once it has taken over: 0 of the first.
    /// Supervisor, before it is told to.
    pub machine: AtomicU64,
    /// Rows.
    pub rows: [Connection; CONNECTIONS_MAX],
}

/// Values of [`Connections::rebuild`].
pub mod rebuild {
    /// Nothing is to be done.
    pub const NONE: u32 = 0;
    /// The mirror's listeners are there: connections can be made beside them. Mirror, while it takes over.
    pub const ASKED: u32 = 1;
    /// What could be rebuilt is. Supervisor.
    pub const DONE: u32 = 2;
}

const _: () = {
    assert!(size_of::<Connection>() == 64);
    assert!(THREADS_OFFSET + THREADS_MAX * THREAD_ENTRY_BYTES <= CONNECTIONS_OFFSET);
    assert!(CONNECTIONS_OFFSET + size_of::<Connections>() <= RINGS_OFFSET);
};
