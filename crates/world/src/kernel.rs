//! What a judgement may ask.

use crate::part::Part;

/// What the kernel says of a TCP socket. All in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TcpFigures {
    /// `tcpi_state`.
    pub state: u8,
    /// `tcpi_bytes_acked`.
    pub acked: u64,
    /// `tcpi_bytes_received`.
    pub received: u64,
    /// `SIOCINQ`: what has come and nobody has read.
    pub unread: u64,
    /// `SIOCOUTQ`: everything not acknowledged, unsent bytes included.
    pub unacknowledged: u64,
    /// An error waits.
    pub is_broken: bool,
    /// Urgent data waits, or a mark behind it: `unread` ends there, and more may lie behind.
    pub has_mark: bool,
}

/// How far a read into a slot with the pattern came, bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Touched {
    /// No pattern was laid.
    Unprepared,
    /// So far.
    UpTo(u64),
    /// The whole pattern is gone, and there may be more behind it; or the bytes went elsewhere.
    Beyond,
}

/// The kernel, and the dead primary's slots, as a judgement sees them. Asked by one thread while nobody acts.
pub trait Kernel {
    /// Longest pattern that is laid, bytes.
    const PATTERN_MAX: u64;

    /// The figures of a TCP socket; `None` if it is none any more. Acknowledgements may arrive between two calls.
    fn tcp(&mut self, fd: i32) -> Option<TcpFigures>;
    /// Bytes that wait in a pipe.
    fn queued(&mut self, fd: i32) -> Option<u64>;
    /// What an eventfd holds.
    fn event_count(&mut self, fd: i32) -> Option<u64>;
    /// The position of a file.
    fn position(&mut self, fd: i32) -> Option<u64>;
    /// The size of a file, bytes.
    fn size(&mut self, fd: i32) -> Option<u64>;
    /// Sets the position of a file. `false` if it has none.
    fn set_position(&mut self, fd: i32, position: u64) -> bool;
    /// Whether the bytes of an output lie in the `bytes` of its file from `from` on; `None` if that cannot be seen.
    fn lies_at(&mut self, part: &Part, from: u64, bytes: u64) -> Option<bool>;
    /// Whether an input's slot holds the `bytes` of its file from `from` on; `None` if that cannot be seen.
    fn came_from(&mut self, part: &Part, from: u64, bytes: u64) -> Option<bool>;
    /// How far a read with the pattern came.
    fn touched(&mut self, part: &Part) -> Touched;
    /// The first eight bytes of an input's slot as a number.
    fn first_word(&mut self, part: &Part) -> u64;
    /// Some objects hand out whole records only: input that ends like the pattern looks shorter than it is. Bytes of whole records.
    fn whole_records(&mut self, part: &Part, bytes: u64) -> u64;
}
