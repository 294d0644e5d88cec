//! What the descriptors of a mirror stand for that is put together from an image: its supervisor makes the objects, and says what each
//! is in a file of the group's folder, row by row. A mirror that has followed from the log's beginning knows that by itself.

/// The file.
pub const NAME: &str = "world";

/// Bytes of the longest address, a path's.
pub const ADDRESS_BYTES: usize = 112;

/// One number.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Row {
    /// The descriptor.
    pub fd: i32,
    /// One of [`thing`].
    pub thing: u32,
    /// Bytes of the socket's own address, and of the one that it sends to; what `listen` was told, plus one, 0: it does not listen.
    pub own: u32,
    /// See `own`.
    pub other: u32,
    /// See `own`.
    pub backlog: u32,
    /// Bits of [`connection`](crate::connection).
    pub flags: u32,
    /// Device and inode by which the program knows the file, zeros if it is none.
    pub known: [u64; 2],
    /// Of a connection: so many bytes of what has been written the other side had not acknowledged.
    pub unacknowledged: u64,
    /// See `own`.
    pub addresses: [[u64; ADDRESS_BYTES / 8]; 2],
}

impl Row {
    /// Of a number that stands for nothing.
    pub const NONE: Row = Row {
        fd: 0,
        thing: thing::NONE,
        own: 0,
        other: 0,
        backlog: 0,
        flags: 0,
        known: [0; 2],
        unacknowledged: 0,
        addresses: [[0; ADDRESS_BYTES / 8]; 2],
    };
}

/// Values of [`Row::thing`].
pub mod thing {
    /// Nothing of ours.
    pub const NONE: u32 = 0;
    /// A regular file that is written here as well.
    pub const WRITTEN: u32 = 1;
    /// A regular file that is not, or only read.
    pub const READ: u32 = 2;
    /// An end of a pipe or of a pair of sockets.
    pub const STREAM: u32 = 3;
    /// An eventfd.
    pub const COUNTER: u32 = 4;
    /// A timer.
    pub const TIMER: u32 = 5;
    /// A socket that may listen.
    pub const SOCKET: u32 = 6;
    /// One that is connected: to nobody here.
    pub const CONNECTION: u32 = 7;
    /// Another object, made here as there.
    pub const OTHER: u32 = 8;
    /// No object of the program's: where standard output is shown, or error, whatever the program does with its own.
    pub const SHOWN: u32 = 16;
}

const _: () = assert!(size_of::<Row>() == 272);
