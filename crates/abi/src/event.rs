//! The entries of a ring.
//!
//! Every event is a 16-byte [`Header`] and `len` payload bytes, padded to [`EVENT_ALIGN`]. A thread
//! writes its own ring only; an event becomes visible when the ring's tail moves past it.
//!
//! A recorded system call is two events: [`EventKind::Enter`] before it and [`EventKind::Return`] after
//! it. A ring that ends with an `Enter` holds a call *in doubt*: the primary died inside it.

use crate::limits::EVENT_ALIGN;

/// Ticket of an event that takes none.
pub const NO_TICKET: u64 = u64::MAX;

/// In the `call` of a [`EventKind::Mutex`]: nothing but the mutex is acquired.
pub const LOCKED: u16 = 0;
/// In the `call` of a [`EventKind::Mutex`]: a conditional wait ends with it.
pub const AFTER_WAIT: u16 = 1;
/// The bits of the `call` of a [`EventKind::Mutex`] that say which of the two it is. Those above them say which mutex: the first
/// that was logged is 1, and it goes on with 1 after [`MUTEX_NAMES`]. A ticket alone would let a thread that has gone another
/// way wait for ever with the wrong mutex. 0 where the log does not say.
pub const MUTEX_HOW: u16 = 1;
/// See [`MUTEX_HOW`]: few enough that a recording has a short word for each.
pub const MUTEX_NAMES: u16 = 63;

/// The `call` of a [`EventKind::Mutex`].
pub const fn mutex_call(how: u16, name: u16) -> u16 {
    how | name << 1
}

/// Operations on hashed clocks: the upper four bits of an event's `call`. A standby whose thread is at
/// another kind of object than its primary's was is caught by them.
pub mod op {
    /// A robust mutex has been acquired.
    pub const ROBUST: u16 = 0;
    /// A read-write lock has been acquired for reading.
    pub const READ: u16 = 1;
    /// A read-write lock has been acquired for writing.
    pub const WRITE: u16 = 2;
    /// A semaphore has been taken.
    pub const SEM_WAIT: u16 = 3;
    /// A semaphore is about to be posted.
    pub const SEM_POST: u16 = 4;
    /// A semaphore's value has been read: the payload holds it.
    pub const SEM_VALUE: u16 = 5;
    /// A spin lock has been acquired.
    pub const SPIN: u16 = 6;
    /// A stream has been locked.
    pub const STREAM: u16 = 7;
    /// A family of libc functions with common state has been entered.
    pub const LIBC: u16 = 8;
    /// `pthread_once`, `call_once`.
    pub const ONCE: u16 = 9;
    /// A guarded function static.
    pub const GUARD: u16 = 10;
    /// A thread has been joined: its slot, and no ticket. It orders nothing; a copy that joins another thread, or none,
    /// is found out.
    pub const JOIN: u16 = 11;
    /// In memory that processes share: a mutex has been acquired, or not.
    pub const MUTEX: u16 = 12;
    /// The same: a mutex, read-write lock or spin lock is about to be released.
    pub const RELEASE: u16 = 13;
    /// The same: a thread is about to arrive at a barrier.
    pub const ARRIVE: u16 = 14;
    /// The same: it has come through it.
    pub const PASS: u16 = 15;
    /// The same: a system call is about to be made, or has been.
    pub const CALL: u16 = 16;
    // Above a clock's number or a slot there are four bits for the others; this one comes alone.
    const _: () = assert!(PASS < 1 << 4 && crate::THREADS_MAX <= 1 << 12);
}

/// What an event says.
#[repr(u8)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EventKind {
    /// A mutex operation ended: `flags` is its errno, `ticket` the value of the mutex's own clock when it
    /// was acquired, [`NO_TICKET`] when it was not; `call` is a [`mutex_call`].
    Mutex = 1,
    /// An operation on an object of a hashed clock: `call` is `op << 12 | clock`, `flags` its errno.
    Ordered = 2,
    /// A clock was read: `ticket` is the value in nanoseconds, `call` the reading function.
    Time = 3,
    /// A system call begins: `call` is its number, the payload [`CallArgs`], `ticket` that of a releasing call.
    Enter = 4,
    /// The call begun by the last `Enter` has returned: [`ReturnHead`], then what the kernel wrote.
    Return = 5,
    /// A whole system call that changes nothing: [`ReturnHead`], then what the kernel wrote.
    Call = 6,
    /// A signal is delivered here: the payload is a kernel `siginfo`.
    Signal = 7,
    /// A barrier let this thread go: `flags` is 1 for the serial thread.
    Barrier = 8,
    /// This thread runs an initialiser (`pthread_once`, a function static): `call` is `op << 12 | clock`.
    OnceRun = 9,
    /// First event of a thread: payload [`ThreadStart`].
    ThreadStart = 10,
    /// Last event of a thread.
    ThreadExit = 11,
    /// Nothing: the ring goes on at its beginning, so many bytes further.
    Skip = 12,
    /// In a recording, the first events of an image: a piece of [`ImageHead`](crate::image::ImageHead) and what follows
    /// it. `flags` is [`RETURN_MORE`] where another piece comes.
    Image = 13,
    /// In a recorded process, behind a `Return` with [`RETURN_OUTPUT`]: the bytes went to standard output (`flags` 1) or standard
    /// error (2); `ticket` counts such outputs of all processes.
    Output = 14,
    /// In a recording with `--order serial`: this thread waits for a lock, and others have their turn.
    Yield = 15,
    /// The same: this thread has the turn of the number `ticket`.
    Turn = 16,
    /// What is new in memory that processes share: `call` is an [`op`], `flags` the errno of the operation there; the payload
    /// is pieces of a number and 64 bytes.
    Common = 17,
    /// After a failover, in a log that goes on: the call begun by the last `Enter` had not been done when the primary died, or
    /// the last piece of a `Call` is missing, and it begins again. `flags` is 1 if the dead primary had entered the kernel with it.
    Again = 18,
    /// Written by the recorder: here the primary died and its standby took over, the kernel's pid `ticket`. All events of
    /// the process that come before are in the file before.
    Failover = 19,
    /// An atomic instruction of the program's own: `call` is what it does and its clock, as for [`EventKind::Ordered`], `flags` the
    /// processor's flags that it has left. The payload, if there is one, is the old value, in 16 bytes: of an exchange, or of a
    /// comparison that has failed.
    Atomic = 20,
    /// Written by the recorder for a gate: what whoever takes over from another machine has to know of a connection, or of the
    /// service's address. The payload is `us-gate`'s.
    Gate = 21,
    /// Directly before an `Enter`: from here on memory that processes share is kept alike, and *Common* events tell of it. The payload
    /// is a zero, start and length of eight regions, and their bytes.
    Alike = 22,
    /// Written by the recorder: a piece of an image of the program, or why there is none, for a machine that joins. Nobody replays it.
    Picture = 23,
}

impl EventKind {
    /// The kind whose number is `value`, if there is one.
    pub const fn from_u8(value: u8) -> Option<EventKind> {
        use EventKind::*;
        const KINDS: [EventKind; 23] = [
            Mutex,
            Ordered,
            Time,
            Enter,
            Return,
            Call,
            Signal,
            Barrier,
            OnceRun,
            ThreadStart,
            ThreadExit,
            Skip,
            Image,
            Output,
            Yield,
            Turn,
            Common,
            Again,
            Failover,
            Atomic,
            Gate,
            Alike,
            Picture,
        ];
        if value == 0 || value as usize > KINDS.len() { None } else { Some(KINDS[value as usize - 1]) }
    }
}

/// First 16 bytes of every event.
#[repr(C, align(16))]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// An [`EventKind`].
    pub kind: u8,
    /// Meaning depends on the kind; mostly an errno, which fits for every value Linux has.
    pub flags: u8,
    /// System call number, or `op << 12 | clock`.
    pub call: u16,
    /// Payload bytes behind the header, without padding.
    pub len: u32,
    /// Ticket, or the value of a [`EventKind::Time`].
    pub ticket: u64,
}

impl Header {
    /// The first eight bytes as one word, so that a short event is two stores.
    pub const fn word(kind: EventKind, flags: u8, call: u16, len: u32) -> u64 {
        kind as u64 | (flags as u64) << 8 | (call as u64) << 16 | (len as u64) << 32
    }

    /// The header in an event's first two words.
    pub const fn from_words(word: u64, ticket: u64) -> Header {
        let (kind, flags) = (word as u8, (word >> 8) as u8);
        Header { kind, flags, call: (word >> 16) as u16, len: (word >> 32) as u32, ticket }
    }

    /// Bytes that an event with this payload takes in the ring.
    pub const fn size(len: u32) -> usize {
        size_of::<Header>() + (len as usize).next_multiple_of(EVENT_ALIGN)
    }
}

/// `Header::call` of a [`EventKind::Time`]: what was read.
pub mod time {
    /// A clock of the kernel's, in nanoseconds.
    pub const CLOCK: u16 = 0;
    /// The processor's time-stamp counter.
    pub const COUNTER: u16 = 1;
    /// The number of the processor that the counter was read on: the event behind one of those.
    pub const PROCESSOR: u16 = 2;
}

/// Payload of [`EventKind::Enter`]: enough to compare the copies and to settle a call in doubt.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CallArgs {
    /// The descriptor the call works on, -1 for none.
    pub fd: i32,
    /// CRC32C over the scalar arguments and every input byte; no address enters it.
    pub digest: u32,
    /// Bytes the call asks to move.
    pub len: u64,
}

/// Flag of an [`EventKind::Return`]: the standby has to wait for further `Return` events of this call.
pub const RETURN_MORE: u8 = 1;
/// Flag of an [`EventKind::Return`] written at promotion: `result` bytes are done, the rest is to be continued live.
pub const RETURN_PARTIAL: u8 = 2;

/// Flag of an [`EventKind::Return`] in a recorded process: an [`EventKind::Output`] follows.
pub const RETURN_OUTPUT: u8 = 8;

/// Head of the payload of [`EventKind::Return`] and [`EventKind::Call`].
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReturnHead {
    /// What the kernel returned: a value, or a negated errno.
    pub result: i64,
    /// Identity of a descriptor that the call created: socket cookie, or device and inode folded. In a
    /// [`Call`](EventKind::Call): its descriptor, and the digest of its inputs above.
    pub identity: u64,
}

/// Payload of [`EventKind::ThreadStart`].
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ThreadStart {
    /// Thread id that the guest sees in every copy.
    pub tid: u32,
    /// How often this slot had been used before.
    pub generation: u32,
    /// Padding, zero.
    pub zero: u64,
}

const _: () = {
    assert!(size_of::<Header>() == 16 && align_of::<Header>() == EVENT_ALIGN);
    assert!(size_of::<CallArgs>() == 16);
    assert!(size_of::<ReturnHead>() == 16);
    assert!(size_of::<ThreadStart>() == 16);
};
