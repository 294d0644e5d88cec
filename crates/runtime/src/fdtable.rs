//! Shadow of the descriptor table: what each number was, as far as this copy has come.
//!
//! The kernel's table is shared and, seen from a standby, in the future. What has to be known about a
//! descriptor *now* is kept here, in private memory: its kind, its identity (a number may have been closed
//! and given to another file meanwhile), and how many bytes the log says have moved.

mod connection;
mod stat;

use core::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, AtomicUsize, Ordering};

use stat::{S_IFIFO, S_IFMT, S_IFREG, S_IFSOCK};
use us_world::{Count, Counts, Direction, Stream as Logged, Transfer};

use crate::connections;
use crate::kernel::{
    AF_INET, AF_INET6, IPPROTO_TCP, SO_COOKIE, SO_DOMAIN, SO_PROTOCOL, SO_TYPE, SOCK_DGRAM, SOCK_RAW,
    SOCK_STREAM, SOL_SOCKET,
};
use crate::proc;
use crate::raw;

pub use connection::{has_connections, has_inherited, is_connection, is_on_machine};
pub use stat::{AT_FDCWD, Stat};
pub use us_world::Kind;

/// Descriptors above this number are not shadowed; calls in doubt on them are reported as unsettled.
pub const SHADOWED: usize = 1 << 17;

/// One descriptor.
pub struct Shadow {
    kind: AtomicU8,
    /// First epoll registration of this descriptor plus one; 0 for none.
    pub registration: AtomicU32,
    /// How often the log has given this number to a file.
    pub generation: AtomicU32,
    /// The open file behind it, plus one: duplicates share it. 0 for none.
    stream: AtomicU32,
    /// Socket cookie, or device and inode folded; 0 if unknown.
    pub identity: AtomicU64,
    /// The end of a pipe that is written to.
    write_end: AtomicBool,
    /// The kernel knows no transfer through this open file that does not wait: a named pipe, or one that was opened again.
    /// Known to who has tried.
    pub waits: AtomicBool,
}

/// What the log says of an open file, under however many numbers it is known; of a pipe, both ends.
struct Stream {
    users: AtomicU32,
    /// A pipe or eventfd that the group has made, and how many children it had then, plus one; 0 for any other.
    private: AtomicU32,
    /// The group has ended its own half of a connection.
    shut: AtomicBool,
    /// A call of the group's has been told that the connection has failed.
    failed: AtomicBool,
    /// It was opened by a call that only reads.
    read_only: AtomicBool,
    /// The error behind the messages that a call has brought, for the next one; 0 for none.
    late_error: AtomicU32,
    /// The error that the kernel has told in front of bytes, for the call that finds their end; 0 for none.
    held_error: AtomicU32,
    /// Where the row of its connection was found, plus one.
    row: AtomicU32,
    /// Bytes read, as logged; and of a connection before this machine had it, which its kernel does not know of.
    read: AtomicU64,
    before: AtomicU64,
    /// What of both the parent had read when this process was made.
    inherited: AtomicU64,
    /// Bytes written, or the position, as logged.
    written: AtomicU64,
    /// Of a connection: what had been written when that was counted anew, from what the kernel of another machine did not know.
    sent_before: AtomicU64,
}

static TABLE: [Shadow; SHADOWED] = [const {
    Shadow {
        kind: AtomicU8::new(0),
        registration: AtomicU32::new(0),
        generation: AtomicU32::new(0),
        stream: AtomicU32::new(0),
        identity: AtomicU64::new(0),
        write_end: AtomicBool::new(false),
        waits: AtomicBool::new(false),
    }
}; SHADOWED];

static STREAMS: [Stream; SHADOWED] = [const {
    Stream {
        users: AtomicU32::new(0),
        private: AtomicU32::new(0),
        shut: AtomicBool::new(false),
        failed: AtomicBool::new(false),
        read_only: AtomicBool::new(false),
        late_error: AtomicU32::new(0),
        held_error: AtomicU32::new(0),
        row: AtomicU32::new(0),
        read: AtomicU64::new(0),
        before: AtomicU64::new(0),
        inherited: AtomicU64::new(0),
        written: AtomicU64::new(0),
        sent_before: AtomicU64::new(0),
    }
}; SHADOWED];

/// One past the highest number that has ever stood for a file.
static USED: AtomicUsize = AtomicUsize::new(0);

fn used() -> &'static [Shadow] {
    &TABLE[..USED.load(Ordering::Relaxed).min(SHADOWED)]
}

/// Whether this process may have the file of that identity, as [`kept`] has it, open to write it.
pub fn is_written(identity: u64) -> bool {
    used().iter().any(|shadow| shadow.identity.load(Ordering::Relaxed) == identity && shadow.may_be_written())
}

/// A call that the runtime does not know has been made: what it moved is not counted.
static UNCOUNTED: AtomicBool = AtomicBool::new(false);

/// Any descriptor may have moved bytes, and there may be new ones, of which nobody was told.
pub fn distrust() {
    UNCOUNTED.store(true, Ordering::Relaxed);
}

/// Every descriptor has been looked at.
pub fn trust() {
    UNCOUNTED.store(false, Ordering::Relaxed);
}

/// As [`Shadow::moved`], for a descriptor that may be none.
#[inline]
pub fn moved(fd: i32, direction: Direction, result: i64) {
    if let Some(shadow) = get(fd) {
        shadow.moved(direction, result);
    }
}

/// Calls `f` with every number that stands for a file, as far as this copy knows.
pub fn for_known(mut f: impl FnMut(i32, &'static Shadow)) {
    for (fd, shadow) in used().iter().enumerate().filter(|(_, shadow)| shadow.kind() != Kind::None) {
        f(fd as i32, shadow);
    }
}

/// How many descriptors are open; `None` where the kernel does not say (before 6.2).
pub fn open_count() -> Option<usize> {
    let stat = Stat::at(AT_FDCWD, c"/proc/self/fd".as_ptr() as u64, 0)?;
    (stat.size != 0).then_some(stat.size as usize)
}

/// Children that have been made so far, or twice as many.
static CHILDREN: AtomicU32 = AtomicU32::new(0);

/// A child process is or has been made, which may have any descriptor that was open then: what the log says of a
/// pipe is no longer all there is. To be called before and after, since a pipe made meanwhile is one of them.
pub fn child_made() {
    CHILDREN.fetch_add(1, Ordering::AcqRel);
}

/// The shadow of a descriptor, `None` for a number that is none or too large.
#[inline(always)]
pub fn get(fd: i32) -> Option<&'static Shadow> {
    TABLE.get(fd as u32 as usize)
}

/// A free stream with one user, plus one; 0 if there is none. Looked for from `near` on.
fn take_stream(near: usize) -> u32 {
    for step in 0..SHADOWED {
        let at = (near + step) % SHADOWED;
        let stream = &STREAMS[at];
        if stream.users.compare_exchange(0, 1, Ordering::AcqRel, Ordering::Relaxed).is_ok() {
            stream.private.store(0, Ordering::Relaxed);
            stream.shut.store(false, Ordering::Relaxed);
            stream.failed.store(false, Ordering::Relaxed);
            stream.read_only.store(false, Ordering::Relaxed);
            stream.late_error.store(0, Ordering::Relaxed);
            stream.held_error.store(0, Ordering::Relaxed);
            stream.row.store(0, Ordering::Relaxed);
            stream.read.store(0, Ordering::Relaxed);
            stream.before.store(0, Ordering::Relaxed);
            stream.inherited.store(0, Ordering::Relaxed);
            stream.written.store(0, Ordering::Relaxed);
            stream.sent_before.store(0, Ordering::Relaxed);
            return at as u32 + 1;
        }
    }
    0
}

impl Shadow {
    /// What it is.
    #[inline(always)]
    pub fn kind(&self) -> Kind {
        Kind::from_number(self.kind.load(Ordering::Relaxed))
    }
    fn stream(&self) -> Option<&'static Stream> {
        STREAMS.get((self.stream.load(Ordering::Relaxed) as usize).wrapping_sub(1))
    }
    fn leave_stream(&self, kind: Kind) {
        if let Some(stream) = STREAMS.get((self.stream.swap(0, Ordering::AcqRel) as usize).wrapping_sub(1)) {
            if kind.is_tcp() && connections::is_kept() && stream.users.load(Ordering::Acquire) == 1 {
                self.ends_connection(stream);
            }
            // In a primary two threads may cross here; never below nothing.
            let _ =
                stream.users.fetch_update(Ordering::AcqRel, Ordering::Relaxed, |users| users.checked_sub(1));
        }
    }
    /// A new file behind this number.
    pub fn open(&'static self, kind: Kind, identity: u64) {
        self.leave_stream(self.kind());
        // SAFETY: both lie in the same table.
        let number = unsafe { (&raw const *self).offset_from(TABLE.as_ptr()) } as usize;
        self.stream.store(take_stream(number), Ordering::Relaxed);
        self.begin(kind, identity);
    }
    fn begin(&self, kind: Kind, identity: u64) {
        // SAFETY: both lie in the same table.
        let number = unsafe { (&raw const *self).offset_from(TABLE.as_ptr()) } as usize;
        if number >= USED.load(Ordering::Relaxed) {
            USED.fetch_max(number + 1, Ordering::Relaxed);
        }
        // As the log has it, of whatever was found open when a log began as well: a close in doubt compares them.
        self.identity.store(kept(identity), Ordering::Relaxed);
        self.write_end.store(false, Ordering::Relaxed);
        self.waits.store(false, Ordering::Relaxed);
        self.registration.store(0, Ordering::Relaxed);
        self.generation.fetch_add(1, Ordering::Relaxed);
        self.kind.store(kind as u8, Ordering::Release);
    }
    /// The same open file as `other`, or the other end of the same pipe.
    pub fn share(&self, other: &Shadow) {
        self.leave_stream(self.kind());
        let stream = other.stream.load(Ordering::Relaxed);
        if let Some(stream) = STREAMS.get((stream as usize).wrapping_sub(1)) {
            stream.users.fetch_add(1, Ordering::AcqRel);
        }
        self.stream.store(stream, Ordering::Relaxed);
        self.begin(other.kind(), other.identity.load(Ordering::Relaxed));
        self.write_end.store(other.is_write_end(), Ordering::Relaxed);
    }
    /// Notes that this is the end of a pipe that is written to.
    pub fn set_write_end(&self) {
        self.write_end.store(true, Ordering::Relaxed);
    }
    /// Whether it is.
    pub fn is_write_end(&self) -> bool {
        self.write_end.load(Ordering::Relaxed)
    }
    /// Which file it is, as the log has it.
    pub fn identity(&self) -> u64 {
        self.identity.load(Ordering::Relaxed)
    }
    /// Changes what it is.
    pub fn set_kind(&self, kind: Kind) {
        self.kind.store(kind as u8, Ordering::Release);
    }
    /// The number is free again.
    pub fn close(&self) {
        let kind = Kind::from_number(self.kind.swap(Kind::None as u8, Ordering::AcqRel));
        self.leave_stream(kind);
    }
    /// Whether two numbers are known to stand for the same open file or pipe.
    pub fn same_stream(&self, other: &Shadow) -> bool {
        let stream = self.stream.load(Ordering::Relaxed);
        stream != 0 && stream == other.stream.load(Ordering::Relaxed)
    }
    /// Notes that this pipe, both its ends, or eventfd was made by the group, or that others have it now.
    pub fn set_private(&self, private: bool) {
        if let Some(stream) = self.stream() {
            let since = if private { CHILDREN.load(Ordering::Relaxed) + 1 } else { 0 };
            stream.private.store(since, Ordering::Relaxed);
        }
    }
    /// Whether nobody outside this process can have moved bytes here.
    pub fn is_private(&self) -> bool {
        let now = CHILDREN.load(Ordering::Relaxed) + 1;
        self.stream().is_some_and(|stream| stream.private.load(Ordering::Relaxed) == now)
    }
    /// Whether it was made by this process, whoever of its children may have it by now.
    pub fn is_own(&self) -> bool {
        self.stream().is_some_and(|stream| stream.private.load(Ordering::Relaxed) != 0)
    }
    /// Notes that the group has ended its half of the connection.
    pub fn set_shut(&self) {
        if let Some(stream) = self.stream() {
            stream.shut.store(true, Ordering::Relaxed);
        }
    }
    /// Whether it has.
    pub fn is_shut(&self) -> bool {
        self.stream().is_some_and(|stream| stream.shut.load(Ordering::Relaxed))
    }
    /// Notes that it was opened by a call that only reads.
    pub fn set_read_only(&self) {
        if let Some(stream) = self.stream() {
            stream.read_only.store(true, Ordering::Relaxed);
        }
    }

    /// Whether it was: nobody can write to the open file behind this number.
    pub fn is_read_only(&self) -> bool {
        self.stream().is_some_and(|stream| stream.read_only.load(Ordering::Relaxed))
    }

    fn may_be_written(&self) -> bool {
        self.kind() != Kind::None && !self.is_read_only()
    }

    /// Bytes read so far, as logged.
    pub fn bytes_read(&self) -> u64 {
        self.stream().map_or(0, |stream| stream.read.load(Ordering::Relaxed))
    }
    /// Bytes written so far, or the position, as logged.
    pub fn bytes_written(&self) -> u64 {
        self.stream().map_or(0, |stream| stream.written.load(Ordering::Relaxed))
    }
    /// The position of a file or folder, as logged. `None` where the log does not know it.
    pub fn position(&self) -> Option<u64> {
        self.kind().has_position().then(|| self.bytes_written()).filter(|position| *position < NOWHERE)
    }
    /// Notes the error that a call was told: that of a connection which has failed is told once.
    pub fn note_error(&self, result: i64) {
        const CALLERS: [i64; 6] = [-4, -9, -11, -14, -22, -105]; // EINTR, EBADF, EAGAIN, EFAULT, EINVAL, ENOBUFS
        if raw::failed(result)
            && !CALLERS.contains(&result)
            && let Some(stream) = self.stream()
        {
            stream.failed.store(true, Ordering::Relaxed);
        }
    }
    /// Whether a call has been told.
    pub fn has_failed(&self) -> bool {
        self.stream().is_some_and(|stream| stream.failed.load(Ordering::Relaxed))
    }
    /// A call has brought messages, and then met this error: the next call is told, as the kernel has it.
    pub fn set_late_error(&self, result: i64) {
        if let Some(stream) = self.stream() {
            stream.late_error.store(-result as u32, Ordering::Relaxed);
        }
    }
    /// That error, once.
    pub fn take_late_error(&self) -> Option<i64> {
        let stream = self.stream()?;
        let error = stream.late_error.load(Ordering::Relaxed);
        if error != 0 {
            stream.late_error.store(0, Ordering::Relaxed);
        }
        (error != 0).then(|| -i64::from(error))
    }
    /// Where the error lies that [`crate::door::held`] keeps.
    pub fn held_error(&self) -> Option<&'static AtomicU32> {
        self.stream().map(|stream| &stream.held_error)
    }
    /// Bytes have come in, or gone out; by a standby, at the call's turn.
    pub fn count(&self, direction: Direction, transfer: Transfer) {
        let Some(stream) = self.stream() else { return };
        match self.kind().count(direction, transfer) {
            Count::Read(bytes) => {
                stream.read.fetch_add(bytes, Ordering::Relaxed);
            }
            Count::Written(bytes) => {
                stream.written.fetch_add(bytes, Ordering::Relaxed);
            }
            Count::At(position) => stream.written.store(position, Ordering::Relaxed),
        }
    }
    /// A call that moves bytes has come back, in a copy that acts, with this result. Before anything else: its thread may park
    /// next, and a copy that is made then begins with what is counted here.
    #[inline]
    pub fn moved(&self, direction: Direction, result: i64) {
        if self.kind().is_counted() {
            match u64::try_from(result) {
                Ok(bytes) => self.count(direction, Transfer::of(bytes)),
                Err(_) => self.note_error(result),
            }
        }
    }
    /// Whether what is counted is all that there is: nobody else has the object, and each of its transfers has passed a door.
    pub fn is_counted(&self) -> bool {
        self.kind().is_counted() && self.is_private() && !UNCOUNTED.load(Ordering::Relaxed)
    }
    /// What is counted so far.
    pub fn counts(&self) -> Counts {
        Counts { read: self.bytes_read(), written: self.bytes_written() }
    }
    /// A log begins: what it accounts for is counted from here.
    pub fn count_from(&self, counts: Counts) {
        if let Some(stream) = self.stream() {
            stream.read.store(counts.read, Ordering::Relaxed);
            let before = stream.written.swap(counts.written, Ordering::Relaxed);
            self.sent_as_before(stream, before.wrapping_sub(counts.written));
        }
    }
    /// What the log says of it.
    pub fn logged(&self) -> Logged {
        Logged {
            key: self.stream.load(Ordering::Relaxed),
            kind: self.kind(),
            read: self.bytes_read(),
            written: self.bytes_written(),
            is_private: self.is_private(),
            is_own: self.is_own(),
            is_shut: self.is_shut(),
            has_failed: self.has_failed(),
        }
    }
    /// The position has been set.
    pub fn seek(&self, position: u64) {
        if let Some(stream) = self.stream()
            && self.kind().has_position()
        {
            stream.written.store(position, Ordering::Relaxed);
        }
    }
}

/// Behind the position of any file: that of one which came with a message, where the log does not say how far it had been read. What
/// is settled by a position finds none, and goes by what the primary has noted in a call's slot.
pub const NOWHERE: u64 = 1 << 62;

/// Identity and kind of an open file, asked from the kernel by the copy whose effects are real.
pub fn identify(fd: i32) -> (u64, Kind) {
    identify_as(fd, is_append)
}

/// The same, where somebody knows already whether a file is appended to.
pub fn identify_as(fd: i32, is_append: impl Fn(i32) -> bool) -> (u64, Kind) {
    let Some(stat) = Stat::of(fd) else { return (0, Kind::None) };
    match stat.mode & S_IFMT {
        S_IFSOCK => (cookie(fd), if is_tcp(fd) { Kind::Tcp } else { Kind::Socket }),
        S_IFIFO => (stat.identity(), Kind::Pipe),
        S_IFREG => (stat.identity(), if is_append(fd) { Kind::Append } else { Kind::File }),
        _ => (stat.identity(), Kind::Other),
    }
}

/// The part of a kernel's identity that is kept: where it travels, the kind takes the highest four bits.
pub fn kept(identity: u64) -> u64 {
    identity & !(15 << 60)
}

/// The identity of a file, by its device and inode.
pub fn identity_of(device: u64, inode: u64) -> u64 {
    (device.rotate_left(40) ^ inode).wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1
}

/// The flags of an open file, or an error.
pub fn status_flags(fd: i32) -> i64 {
    use crate::kernel::F_GETFL;
    // SAFETY: asks for flags.
    unsafe { raw::call2(raw::nr::FCNTL, fd as u32 as u64, F_GETFL) }
}

fn is_append(fd: i32) -> bool {
    const O_APPEND: i64 = linux_raw_sys::general::O_APPEND as i64;
    let flags = status_flags(fd);
    flags > 0 && flags & O_APPEND != 0
}

/// A number that no other socket of this machine has had since it started; 0 if the kernel does not say.
pub fn cookie(fd: i32) -> u64 {
    let of_kernel = socket_option(fd, SOL_SOCKET, SO_COOKIE).unwrap_or(0);
    if of_kernel == 0 { 0 } else { of_kernel ^ MACHINE.load(Ordering::Relaxed) }
}

/// Which machine's numbers these are, of those that have had the program: others have counted the same.
static MACHINE: AtomicU64 = AtomicU64::new(0);

/// Datagrams of the internet have 16 bits for their length.
pub const DATAGRAM_MAX: u64 = 1 << 16;

/// The most bytes that one receive can bring from a socket, if that follows from what it is. Whoever offers more room, in 150 pieces
/// perhaps, is given no more than that.
pub fn most_of_one_message(fd: i32) -> Option<u64> {
    let option = |name| socket_option(fd, SOL_SOCKET, name).map(|value| value & 0xffff_ffff);
    let is_datagram =
        matches!(option(SO_DOMAIN)?, AF_INET | AF_INET6) && matches!(option(SO_TYPE)?, SOCK_DGRAM | SOCK_RAW);
    is_datagram.then_some(DATAGRAM_MAX)
}

fn is_tcp(fd: i32) -> bool {
    socket_option(fd, SOL_SOCKET, SO_PROTOCOL).is_some_and(|protocol| protocol & 0xffff_ffff == IPPROTO_TCP)
}

/// Whether it is a stream: of any other socket the kernel tells an error first.
pub fn is_stream(fd: i32) -> bool {
    socket_option(fd, SOL_SOCKET, SO_TYPE).is_some_and(|kind| kind & 0xffff_ffff == SOCK_STREAM)
}

fn socket_option(fd: i32, level: u64, name: u64) -> Option<u64> {
    let mut value = 0u64;
    let mut len = 8u32;
    let args = [fd as u64, level, name, &raw mut value as u64, &raw mut len as u64, 0];
    // SAFETY: the kernel writes at most eight bytes and the length.
    (unsafe { raw::call6(raw::nr::GETSOCKOPT, args) } == 0).then_some(value)
}

/// Gives the calling thread, one of the runtime's own, a descriptor table of its own with nothing in it. 0, or the kernel's refusal.
pub fn leave() -> i64 {
    use crate::raw::nr::CLOSE_RANGE;
    const CLOSE_RANGE_UNSHARE: u64 = 2;
    // SAFETY: unshares this thread's descriptor table.
    unsafe { raw::call3(CLOSE_RANGE, 0, u64::from(u32::MAX), CLOSE_RANGE_UNSHARE) }
}

/// The size of a file, as the kernel has it.
pub fn size(fd: i32) -> Option<u64> {
    Stat::of(fd).map(|stat| stat.size)
}

/// Opens the file behind a descriptor once more, to read it.
pub fn open_again(fd: i32) -> Option<u64> {
    const CLOEXEC: u64 = 0o2000000;
    let path = proc::path_of(b"fd", fd);
    // SAFETY: the kernel reads a path.
    let file = unsafe { raw::call3(raw::nr::OPEN, path.as_ptr() as u64, CLOEXEC, 0) };
    u64::try_from(file).ok()
}

/// The file position of a descriptor, as the kernel has it.
pub fn position(fd: i32) -> Option<u64> {
    use crate::kernel::SEEK_CUR;
    // SAFETY: asks for the position.
    let position = unsafe { raw::call3(raw::nr::LSEEK, fd as u64, 0, SEEK_CUR) };
    u64::try_from(position).ok()
}

/// Bytes that wait in a pipe.
pub fn queued(fd: i32) -> Option<u64> {
    use crate::kernel::FIONREAD;
    let mut queued = 0i32;
    // SAFETY: the kernel writes one int.
    let asked = unsafe { raw::call3(raw::nr::IOCTL, fd as u64, FIONREAD, &raw mut queued as u64) };
    (asked == 0).then_some(queued as u64)
}

/// Where the next byte of a call goes, or comes from, as far as one that is about to be made can know: the file's position, or
/// of an append its size.
pub fn next_place(fd: i32, shadow: &Shadow, out: bool) -> Option<u64> {
    if out && shadow.kind() == Kind::Append { size(fd) } else { position(fd) }
}

/// Calls `f` with every open descriptor, as the kernel lists them.
pub fn for_open(f: impl FnMut(i32)) {
    proc::each_descriptor(f);
}

/// Looks at what the program has inherited: before the standby is made, so that both copies know.
pub fn take_stock() {
    for_open(|fd| {
        let Some(shadow) = get(fd).filter(|shadow| shadow.stream().is_none()) else { return };
        let (identity, kind) = identify(fd);
        // A shell gives the same open file as standard output and standard error.
        match (0..fd.min(64)).find(|other| is_same_file(*other, fd)).and_then(get) {
            Some(other) if other.kind() == kind => shadow.share(other),
            _ => {
                shadow.open(kind, identity);
                shadow.seek(position(fd).unwrap_or(0));
            }
        }
    });
}

/// Whether two numbers stand for the same open file.
pub fn is_same_file(a: i32, b: i32) -> bool {
    use crate::raw::nr::KCMP;
    const KCMP_FILE: u64 = 0;
    // SAFETY: asks about two numbers of our own table.
    unsafe {
        let pid = raw::call1(raw::nr::GETPID, 0) as u64;
        raw::call6(KCMP, [pid, pid, KCMP_FILE, a as u64, b as u64, 0]) == 0
    }
}
