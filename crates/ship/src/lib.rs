//! The rules by which the log of a group travels to another machine.
//!
//! A *leader* has the log, a *follower* keeps a copy. Both are state machines: nothing here reads a clock, a socket or a
//! file. Times come in as numbers, the log and the copy are traits, and what is to be done comes out as an [`Act`]. So the
//! same code runs over TLS between machines (`crates/node`) and over a false network from one seed (`tests/simulate`).
//!
//! The log is a row of *entries*, each with a number and the byte at which it begins. Today an entry is a chunk of a
//! recording: it is whole, and what stands behind it is not needed to read it. Nothing is kept for a follower in memory:
//! the leader asks the log again for what it sends. So a link may be away for as long as it likes.
//!
//! | module | what |
//! |---|---|
//! | [`wire`] | messages as bytes, and back, of a peer that may be hostile |
//! | [`hello`] | who speaks to whom, and what does not fit |
//! | [`leader`] | what is sent, what counts as committed, when a link has ended |
//! | [`follower`] | what is taken, and what may be acknowledged |
#![forbid(unsafe_code)]

pub mod follower;
pub mod hello;
pub mod leader;
pub mod wire;

pub use follower::{Copy, Follower};
pub use hello::{Commit, Hello, Here, Program};
pub use leader::{Leader, Log, Report};
pub use wire::{Fault, Frames, Message};

/// Version of the messages. A node speaks one.
pub const PROTOCOL: u32 = 3;

/// Bytes of an entry: the longest chunk of a recording, and the head of its file.
pub const ENTRY_MAX: usize = (16 << 20) + (16 << 10);

/// A place between two entries.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Place {
    /// Entries before it.
    pub number: u64,
    /// Bytes before it.
    pub offset: u64,
}

impl Place {
    /// Whether neither number nor offset is beyond that place's: of two places that a peer has made up, one may be earlier in one
    /// and later in the other.
    pub fn is_within(self, other: Place) -> bool {
        self.number <= other.number && self.offset <= other.offset
    }

    /// The place behind an entry of so many bytes that begins here.
    #[must_use]
    pub fn behind(self, bytes: usize) -> Place {
        Place { number: self.number.saturating_add(1), offset: self.offset.saturating_add(bytes as u64) }
    }
}

/// What the caller is to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Act {
    /// Make a link to the peer, and say [`Leader::connected`] or [`Leader::broken`].
    Connect,
    /// Send this over the link.
    Send(Message),
    /// End the link, once what was sent before is on its way. Nothing need be said of it.
    Disconnect,
}

/// Times and sizes.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Bytes that may be on their way at once. One entry always may.
    pub window: u64,
    /// Entries likewise.
    pub entries: usize,
    /// A follower with so many bytes less than the log is given up.
    pub backlog: u64,
    /// Pause between two signs of life, nanoseconds.
    pub beat: u64,
    /// Without a sign of life for so long the peer counts as gone; also the lease that a follower's answer gives.
    pub silence: u64,
    /// Shortest and longest pause before another attempt to connect.
    pub pause: (u64, u64),
}

impl Default for Limits {
    fn default() -> Limits {
        Limits {
            window: 8 << 20,
            entries: 1024,
            backlog: 16 << 30,
            beat: 250_000_000,
            silence: 3_000_000_000,
            pause: (100_000_000, 5_000_000_000),
        }
    }
}

/// Rules that the simulator breaks, and must find broken. Nobody else does.
#[doc(hidden)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Broken {
    /// A follower takes whatever entry comes.
    Gaps,
    /// What is written counts as on disk.
    Unsynced,
    /// The leader goes on where it was, and not where the follower is.
    Resume,
    /// A follower that has lost something makes the leader forget that it was committed.
    TakenBack,
    /// The lease counts from when the answer came.
    Lease,
    /// Any number of entries may be on their way.
    Window,
    /// Whatever comes counts, also what an earlier link has left behind.
    Sessions,
    /// What lies behind a follower's place is not compared.
    Unlike,
}
