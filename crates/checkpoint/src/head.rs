//! What a program is made of, besides its pages.

use serde::{Deserialize, Serialize};

use crate::Taken;

/// Everything but the pages.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Head {
    /// The program as it was typed, and its arguments.
    pub program: Vec<String>,
    /// `--order` of the group.
    pub order: String,
    /// When the checkpoint was taken, RFC 3339.
    pub taken: String,
    /// Release of the kernel.
    pub kernel: String,
    /// Flags of the processor, as the kernel lists them.
    pub processor: Vec<String>,
    /// Version of the segment and the roster that the runtime in the checkpoint writes and reads.
    pub segment_version: u32,
    /// Files that are mapped.
    pub files: Vec<File>,
    /// Objects behind descriptors, of all processes.
    pub objects: Vec<Object>,
    /// Memory that processes share, or that one has in several places.
    pub shared: Vec<Shared>,
    /// The processes. The program itself is the first, and there is always that one.
    pub processes: Vec<Process>,
    /// Where in a recording it was taken. Then it has no descriptors: a replay has none.
    #[serde(default)]
    pub recorded: Option<Recorded>,
    /// Its number, drawn for it: 32 digits, hexadecimal.
    #[serde(default)]
    pub id: String,
    /// The seed of the digests in its [`Index`](crate::Index), `None` if it has none.
    #[serde(default)]
    pub seed: Option<u64>,
    /// The checkpoint that has the pages which this one lacks, `None` if it lacks none.
    #[serde(default)]
    pub base: Option<BuiltOn>,
    /// Files that were taken with it, `None` if it goes on with what its paths lead to.
    #[serde(default)]
    pub beside: Option<Taken>,
    /// What a machine that goes on with its recording has to know of its descriptors; `None` if it has none of these.
    #[serde(default)]
    pub joins: Option<Vec<Known>>,
}

impl Head {
    /// The program itself.
    pub fn root(&self) -> &Process {
        &self.processes[0]
    }
}

/// Another checkpoint, on which one builds.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BuiltOn {
    /// Where it was.
    pub path: String,
    /// Its [`Head::id`].
    pub id: String,
}

/// What is known of a descriptor besides what is behind it, by a machine that is to follow.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Known {
    /// Its number.
    pub fd: i32,
    /// Device and inode of its file, zeros if it is none.
    pub file: [u64; 2],
    /// Of a connection: bytes that were sent, and that the other side has not acknowledged.
    pub unacknowledged: u64,
    /// Likewise: what is known of how it was used.
    pub flags: u32,
}

/// A moment of a recording.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Recorded {
    /// When the recording began, nanoseconds since 1970: no other began then.
    pub recording: u64,
    /// Which of its images this is.
    pub image: u32,
    /// Where the file goes on: the byte, and the chunks, images, events and bytes of events before it.
    pub offset: u64,
    /// See `offset`.
    pub chunks: u64,
    /// See `offset`.
    pub images: u32,
    /// See `offset`.
    pub events: u64,
    /// See `offset`.
    pub bytes: u64,
    /// Outputs to the standard descriptors before it.
    pub outputs: u64,
    /// Turns that have been taken, where threads take turns.
    pub turns: u64,
    /// What the program knows its standard descriptors by.
    pub standard: [u64; 3],
    /// Flags of the group that a replay must have as well.
    pub flags: u32,
}

/// One process.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Process {
    /// The number by which it and its relatives know it.
    pub pid: u32,
    /// Its place in the roster.
    pub place: u32,
    /// Its file.
    pub executable: String,
    /// What its first thread calls itself, without a NUL.
    pub name: Vec<u8>,
    /// Its folder, and its mask for new files.
    pub folder: String,
    /// See `folder`.
    pub umask: u32,
    /// How willingly the kernel ends it for want of memory: `oom_score_adj`.
    pub oom_score: i32,
    /// Its users and groups, `None` if they are those of its supervisor.
    pub identity: Option<Identity>,
    /// Its session, by the number that relatives know; `None` for that of its supervisor.
    pub session: Option<u32>,
    /// The same of its process group.
    pub group: Option<u32>,
    /// Whether it leads its session, and whether its process group.
    pub leads: [bool; 2],
    /// Soft and hard limits, by the kernel's numbers.
    pub limits: Vec<[u64; 2]>,
    /// Which thread slots have been used.
    pub slots: u32,
    /// Where it goes on.
    pub resumes: Place,
    /// Code, data, heap, stack, arguments and environment: start and end of each, as the kernel keeps them; of the heap the end
    /// of what is in use, of the stack the start only.
    pub areas: [u64; 11],
    /// The auxiliary vector.
    pub auxiliary: Vec<u64>,
    /// Memory, by address.
    pub mappings: Vec<Mapping>,
    /// Descriptors, by number.
    pub descriptors: Vec<Descriptor>,
}

/// Users and groups of a process.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Identity {
    /// Real, effective and saved user.
    pub users: [u32; 3],
    /// The same of its group.
    pub groups: [u32; 3],
    /// Groups that it is in besides.
    pub others: Vec<u32>,
    /// Whether those with the same user may look into it.
    pub is_open: bool,
    /// What it may, where that is not what follows from the user.
    #[serde(default)]
    pub rights: Option<Rights>,
}

/// What a process may: sets of capabilities, bit n for number n (capabilities(7)).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Rights {
    /// Those that are checked.
    pub effective: u64,
    /// Those that it may take.
    pub permitted: u64,
    /// Those that come along to another program, if its file says so.
    pub inheritable: u64,
    /// Those that come along to another program.
    pub ambient: u64,
    /// Those that another program can give it.
    pub bounding: u64,
    /// No program gives it any (`PR_SET_NO_NEW_PRIVS`).
    pub gains_none: bool,
}

/// Where a process goes on.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct Place {
    /// Address of its registers.
    pub context: u64,
    /// Address of the function that goes on with them.
    pub resume: u64,
    /// Base of its thread-local storage.
    pub tls: u64,
    /// Address of the path of the group's folder.
    pub folder: u64,
}

/// A piece of memory.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Mapping {
    /// Its first byte.
    pub start: u64,
    /// The byte behind its last one.
    pub end: u64,
    /// As `mmap` has it.
    pub protection: u32,
    /// Whether it grows downwards.
    pub grows: bool,
    /// The file that it is a mapping of: its index, and the offset in it.
    pub file: Option<(usize, u64)>,
    /// Whether what is stored there is stored in the file.
    pub through: bool,
    /// The number of System V's memory that it shows.
    pub system_v: Option<u32>,
    /// The shared memory that it shows: its index, and the offset in it.
    pub shared: Option<(usize, u64)>,
    /// What the kernel calls it, if it is the kernel's own (`[vdso]`).
    pub kernel: Option<String>,
}

impl Mapping {
    /// Whether what stands there is the process's alone, so that its own pages hold it.
    pub fn is_own(&self) -> bool {
        self.shared.is_none() && self.system_v.is_none() && !self.through
    }
}

/// A piece of memory that mappings of one process or of several show.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Shared {
    /// The name that it was given, if it was.
    pub name: String,
    /// Where others can open it, and its mode, if they can.
    pub path: Option<(String, u32)>,
    /// Its length.
    pub bytes: u64,
}

/// A file that is mapped: it has to be the same.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct File {
    /// Where it is.
    pub path: String,
    /// Its length, bytes.
    pub bytes: u64,
    /// The checksum of all of it (CRC-32C).
    pub checksum: u32,
}

/// A descriptor.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Descriptor {
    /// Its number.
    pub fd: i32,
    /// Whether an exec closes it.
    pub closes: bool,
    /// The object behind it: its index.
    pub object: usize,
    /// Status flags of the open file, as `fcntl` gives them.
    pub flags: u32,
    /// The signal that it sends where that is not SIGIO, as `F_GETSIG` gives it.
    pub signal: i32,
    /// Locks that the program has taken by it.
    #[serde(default)]
    pub locks: Vec<Lock>,
}

/// A lock on a file, or on a part of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Lock {
    /// Whose it is.
    pub holder: Holder,
    /// Whether nobody else may have one there.
    pub is_exclusive: bool,
    /// Its first byte.
    pub first: u64,
    /// Its last byte, `None` if it has all behind the first.
    pub last: Option<u64>,
}

/// Who has a lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Holder {
    /// The process, until it closes any descriptor of the file: `fcntl`.
    Process,
    /// The open file: `fcntl` with `F_OFD_SETLK`.
    OpenFile,
    /// The open file, and all of it: `flock`.
    Whole,
}

/// A socket without a connection.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Socket {
    /// As `socket` has them.
    pub domain: i32,
    /// Kind of socket.
    pub kind: i32,
    /// Protocol.
    pub protocol: i32,
    /// The bytes of its address, none if it has no name.
    pub name: Vec<u8>,
    /// The length of its queue of connections, `None` if it does not listen.
    pub backlog: Option<i32>,
    /// Its options: level, name, bytes.
    #[serde(default)]
    pub values: Vec<(i32, i32, Vec<u8>)>,
    /// The bytes of the address that messages go to and come from, none if that is anybody.
    #[serde(default)]
    pub peer: Vec<u8>,
    /// Messages wait at it, which are lost.
    #[serde(default)]
    pub loses: bool,
    /// The filter of packets (classic BPF), none if there is none.
    #[serde(default)]
    pub filter: Vec<u8>,
}

/// What is behind a descriptor.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum Object {
    /// What the restored program is started with, of this number: a terminal, or the outside's end of a stream.
    Inherited(i32),
    /// A file, folder or device, by its path.
    File {
        /// Where it is.
        path: String,
        /// The position in it.
        position: u64,
    },
    /// A file that nobody can open any more: it was removed, or never had a name.
    Removed {
        /// Which file. What is in it stands at the first one with its number.
        number: u64,
        /// The name that it has been told to have.
        name: String,
        /// What is in it.
        content: Vec<u8>,
        /// The position in it.
        position: u64,
    },
    /// Shared memory, as a file.
    Memory {
        /// Its index.
        piece: usize,
        /// The position in it.
        position: u64,
    },
    /// One end of a pipe of the program's own. Both ends have the same number.
    Pipe {
        /// Which pipe.
        number: u64,
        /// Bytes that it can hold.
        room: u32,
        /// What is in it.
        content: Vec<u8>,
    },
    /// An end of a pipe that has a name, or both.
    NamedPipe {
        /// Where it is.
        path: String,
        /// Bytes that it can hold.
        room: u32,
        /// What is in it, at the first descriptor that can read it.
        content: Vec<u8>,
    },
    /// One end of a pair of local sockets, both of the program's own. Both ends have the same number.
    Pair {
        /// Which pair.
        number: u64,
        /// Kind of socket.
        kind: i32,
        /// What waits to be read at this end: messages, or the pieces of a stream.
        content: Vec<Vec<u8>>,
        /// Room for what this end has sent and nobody has read, as `SO_SNDBUF` is set.
        room: i32,
        /// Whether the other end has said that nothing more comes.
        is_shut: bool,
        /// Whether who sent a message is told with it.
        tells_sender: bool,
    },
    /// A counter of events.
    Events {
        /// Its count.
        count: u64,
        /// Whether a read takes one.
        is_semaphore: bool,
    },
    /// A timer that is read.
    Timer {
        /// Its clock.
        clock: i32,
        /// How often it has come without having been read.
        ticks: u64,
        /// Until it comes next, and then between two times: seconds and nanoseconds. Zero for never.
        left: [(i64, i64); 2],
    },
    /// Signals that are read: bit n-1 for signal n.
    Signals(u64),
    /// A process, by its index; `None` for one that has ended.
    Process(Option<usize>),
    /// A set of descriptors that are watched.
    Epoll(Vec<Registered>),
    /// Files and folders that are watched (inotify).
    Watches(Vec<Watch>),
    /// A socket that accepts connections, or is of messages, and its peer, if it has one, knows nothing of it.
    Socket(Socket),
    /// A connection, which has broken.
    Broken {
        /// As `socket` has it.
        domain: i32,
    },
    /// A stream whose other end is gone: a reader finds its end, a writer nobody.
    Ended {
        /// Whether this end is written to.
        is_written: bool,
    },
}

/// A descriptor in an epoll set.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct Registered {
    /// Its number.
    pub fd: i32,
    /// What is watched for.
    pub events: u32,
    /// What the kernel gives back.
    pub data: u64,
}

/// A file or folder that is watched.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Watch {
    /// Its number.
    pub number: u32,
    /// Where it is.
    pub path: String,
    /// What is told of it, as `inotify_add_watch` has it.
    pub events: u32,
}
