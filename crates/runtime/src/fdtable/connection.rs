//! Of descriptors that are TCP connections: what a gate, and a mirror, have to know of each.

use core::sync::atomic::Ordering;

use us_abi::{Connection, connection};

use super::{MACHINE, SOL_SOCKET, Shadow, Stream, for_known, get, identify, kept, socket_option};
use crate::{connections, state};

impl Stream {
    fn sent(&self) -> u64 {
        self.sent_before.load(Ordering::Relaxed).wrapping_add(self.written.load(Ordering::Relaxed))
    }

    fn read_here(&self) -> u64 {
        let [read, before, inherited] =
            [&self.read, &self.before, &self.inherited].map(|count| count.load(Ordering::Relaxed));
        (read + before).saturating_sub(inherited)
    }
}

impl Shadow {
    #[cold]
    pub(super) fn ends_connection(&self, stream: &Stream) {
        if let Some(row) = connections::row(self.identity(), &stream.row) {
            let is_shut = stream.shut.load(Ordering::Relaxed);
            connections::closed(row, stream.read_here(), stream.sent(), is_shut);
        }
    }
    /// Its log goes on where there is a gate, and what is written is counted by so much less from here on: as the kernel counts, which
    /// may have it of another machine. All that has been sent is what it was.
    pub(super) fn sent_as_before(&self, stream: &Stream, less: u64) {
        if self.kind().is_tcp() && state::is_gated() {
            stream.sent_before.fetch_add(less, Ordering::Relaxed);
        }
    }
    /// Bytes that have been written on it, on all machines.
    pub fn bytes_sent(&self) -> u64 {
        self.stream().map_or(0, Stream::sent)
    }
    /// The row of its connection, if it is one and there is room.
    pub fn connection(&self) -> Option<&'static Connection> {
        let stream = self.stream().filter(|_| self.kind().is_tcp())?;
        connections::row(self.identity(), &stream.row)
    }
    /// What the log has of a read of this connection is there now; `is_end`: it has found the end.
    #[cold]
    pub fn is_logged(&self, is_end: bool) {
        if let Some(row) = self.connection() {
            row.read.store(self.bytes_read_here(), Ordering::Release);
            if is_end {
                row.flags.fetch_or(connection::ENDED, Ordering::AcqRel);
            }
        }
    }
    /// The same of a connection, without what the parent had read when this process was made, and with what was read on other
    /// machines.
    pub fn bytes_read_here(&self) -> u64 {
        self.stream().map_or(0, Stream::read_here)
    }
}

/// This machine has the program from here on, and its descriptors have the identities of this one's objects.
pub fn is_on_machine(number: u64) {
    MACHINE.store(us_abi::connection::of_machine(number), Ordering::Relaxed);
    for_known(|fd, shadow| {
        let identity = kept(identify(fd).0);
        if let Some(stream) = shadow.stream().filter(|_| shadow.kind().is_tcp()) {
            connections::rename(shadow.identity(), identity, &stream.row);
            stream.before.fetch_add(stream.read.swap(0, Ordering::Relaxed), Ordering::Relaxed);
        }
        shadow.identity.store(identity, Ordering::Relaxed);
    });
}

/// In a child with a table of connections of its own, before it goes on: those that it has of its parent's are in there, of which it
/// has read nothing yet.
pub fn has_inherited(is_connection: impl Fn(i32) -> bool) {
    let for_all = |f: fn(&'static Shadow, &'static Stream)| {
        for_known(|fd, shadow| {
            if let Some(stream) = shadow.stream().filter(|_| shadow.kind().is_tcp() && is_connection(fd)) {
                f(shadow, stream);
            }
        });
    };
    // A duplicate has the same.
    for_all(|_, stream| stream.row.store(0, Ordering::Relaxed));
    for_all(|shadow, stream| {
        let is_new = stream.row.load(Ordering::Relaxed) == 0;
        if let Some(row) = connections::row(shadow.identity(), &stream.row).filter(|_| is_new) {
            stream.inherited.fetch_add(stream.read_here(), Ordering::Relaxed);
            row.written.store(stream.sent(), Ordering::Release);
        }
    });
}

/// Whether this is a connection, and no listener.
pub fn is_connection(fd: i32) -> bool {
    const SO_ACCEPTCONN: u64 = 30;
    let is_tcp = get(fd).is_some_and(|shadow| shadow.kind().is_tcp());
    is_tcp && socket_option(fd, SOL_SOCKET, SO_ACCEPTCONN).is_some_and(|listens| listens & 0xffff_ffff == 0)
}

/// Whether any connection is open.
pub fn has_connections() -> bool {
    let mut any = false;
    for_known(|fd, _| any = any || is_connection(fd));
    any
}
