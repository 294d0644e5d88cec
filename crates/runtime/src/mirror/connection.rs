//! Connections of a mirror: what a successor of each has to begin with. The bytes that went out last are kept in a file of the
//! supervisor's, which makes the connection anew from them and from what its machine's gate has said of it in the log.

use core::sync::atomic::{AtomicU32, Ordering};

use us_abi::{Connection, SENT_BYTES, Sent, connection, rebuild, world};

use super::{LOCK, Thing, call, close, files, streams, thing};
use crate::kernel::F_DUPFD_CLOEXEC;
use crate::raw::{self, failed};
use crate::sys::spans::Source;
use crate::{connections, fdtable, members, own_file, state};

/// So long a take-over waits for the supervisor to rebuild what it can.
const REBUILD_NS: u64 = 10_000_000_000;

/// The file, plus one; 0: there is none, and nothing is kept.
static SENT: AtomicU32 = AtomicU32::new(0);

/// At the beginning: opens the file, if there is a gate.
pub(super) fn begin() {
    use linux_raw_sys::general::__NR_fcntl;
    if !state::is_gated() {
        return;
    }
    let file = files::open_in_folder(b"sent\0", own_file::READ_WRITE);
    if failed(file) {
        return;
    }
    let kept = call(__NR_fcntl, [file as u64, F_DUPFD_CLOEXEC, 800, 0, 0, 0]);
    close(file);
    if !failed(kept) {
        SENT.store(kept as u32 + 1, Ordering::Relaxed);
    }
}

/// A connection that the image of the program has. What was written before is not here: whoever makes it anew is told how much that was,
/// and what the other side had of it.
pub(super) fn join(of: &world::Row) {
    let Some(row) = row(of.fd) else { return };
    let written = fdtable::get(of.fd).map_or(0, fdtable::Shadow::bytes_sent);
    row.written.store(written, Ordering::Release);
    row.queued.store(of.unacknowledged, Ordering::Release);
    row.flags.fetch_or(of.flags, Ordering::AcqRel);
    // As if this process had written all of it.
    if let Some((sent, _)) = place(row) {
        sent.end.store(written, Ordering::Release);
        sent.writer.store(state::GUEST_PID.load(Ordering::Relaxed), Ordering::Release);
    }
}

fn row(number: i32) -> Option<&'static Connection> {
    let is_kept = SENT.load(Ordering::Relaxed) != 0 && thing(number) == Thing::Connection;
    fdtable::get(number).filter(|_| is_kept)?.connection()
}

/// In a child, behind the descriptors that the log says it has.
pub fn in_child() {
    if SENT.load(Ordering::Relaxed) != 0 {
        LOCK.with(|| fdtable::has_inherited(|fd| thing(fd) == Thing::Connection));
    }
}

/// The process ends here, as its primary did: how far each of its connections is.
pub fn ends() {
    if SENT.load(Ordering::Relaxed) != 0 {
        // Without the lock: whoever has it does not move any more.
        for_each(say);
    }
}

fn for_each(mut f: impl FnMut(i32, &fdtable::Shadow, &Connection)) {
    fdtable::for_known(|fd, shadow| {
        let row = if thing(fd) == Thing::Connection { shadow.connection() } else { None };
        row.into_iter().for_each(|row| f(fd, shadow, row));
    });
}

fn say(_: i32, shadow: &fdtable::Shadow, row: &Connection) {
    row.read.store(shadow.bytes_read_here(), Ordering::Release);
    row.written.store(shadow.bytes_sent(), Ordering::Release);
    let flag = |is_so: bool, bit: u32| if is_so { bit } else { 0 };
    let flags = flag(shadow.is_shut(), connection::SHUT) | flag(shadow.has_failed(), connection::FAILED);
    row.flags.fetch_or(flags, Ordering::AcqRel);
}

/// The place of a connection in the file, of all processes that have it.
fn place(row: &Connection) -> Option<(&'static Sent, u64)> {
    let all = members::sent();
    let known = (row.place.load(Ordering::Relaxed) as usize).checked_sub(1);
    let identity = row.identity.load(Ordering::Relaxed);
    let at = known.or_else(|| {
        let is_its = |sent: &Sent| sent.identity.load(Ordering::Acquire) == identity;
        let take = |sent: &Sent| {
            let taken =
                sent.identity.compare_exchange(0, identity, Ordering::AcqRel, Ordering::Relaxed).is_ok();
            taken || is_its(sent)
        };
        all.iter().position(is_its).or_else(|| all.iter().position(take))
    })?;
    row.place.store(at as u32 + 1, Ordering::Release);
    Some((all.get(at)?, at as u64))
}

/// The program has read the end of what the other side sends.
pub fn ended(number: i32) {
    if let Some(row) = row(number) {
        row.flags.fetch_or(connection::ENDED, Ordering::AcqRel);
    }
}

/// Something has moved of which nobody knows how much, or what.
pub(super) fn is_uncounted(number: i32) {
    if let Some(row) = row(number) {
        row.flags.fetch_or(connection::UNCOUNTED, Ordering::AcqRel);
    }
}

/// An output begins. At its turn.
pub fn begins(slot: u32, number: i32, source: Source, bytes: u64) {
    if thing(number) == Thing::Connection {
        LOCK.with(|| {
            let Some(row) = row(number) else { return };
            let at = fdtable::get(number).map_or(0, fdtable::Shadow::bytes_sent);
            let bytes = bytes.min(SENT_BYTES / 2);
            keep(row, at, source, bytes);
            row.written.store(at, Ordering::Release);
            row.slot.store(slot, Ordering::Release);
            row.begun.store(bytes, Ordering::Release);
        });
    }
}

/// It has come to its end, and has moved so many bytes, which are counted.
pub(super) fn has_sent(number: i32, source: Source, bytes: u64) {
    let Some(row) = row(number) else { return };
    let end = fdtable::get(number).map_or(0, fdtable::Shadow::bytes_sent);
    let at = end.saturating_sub(bytes);
    let is_there = row.written.load(Ordering::Acquire) == at && row.begun.load(Ordering::Acquire) >= bytes;
    if !is_there {
        keep(row, at, source, bytes);
    }
    row.written.store(end, Ordering::Release);
    row.begun.store(0, Ordering::Release);
    if let Some((sent, _)) = place(row) {
        sent.end.store(end, Ordering::Release);
    }
}

/// An output that had begun has failed: nothing of it has been sent.
pub fn wrote_nothing(number: i32) {
    if thing(number) == Thing::Connection {
        LOCK.with(|| row(number).into_iter().for_each(|row| row.begun.store(0, Ordering::Release)));
    }
}

/// Writes what goes out behind `at` bytes of a connection into the file, at the connection's place.
fn keep(row: &Connection, at: u64, source: Source, bytes: u64) {
    use linux_raw_sys::general::__NR_pwrite64;
    let Some(file) = SENT.load(Ordering::Relaxed).checked_sub(1) else { return };
    let Some((sent, number)) = place(row) else {
        row.flags.fetch_or(connection::UNCOUNTED, Ordering::AcqRel);
        return;
    };
    let own = state::GUEST_PID.load(Ordering::Relaxed);
    let writer = sent.writer.swap(own, Ordering::AcqRel);
    if writer != own && sent.end.load(Ordering::Acquire) != at {
        row.flags.fetch_or(connection::MIXED, Ordering::AcqRel);
    }
    let mut to = at;
    streams::for_pieces(source, bytes, |mut base, mut left| {
        while left > 0 {
            let place = to % SENT_BYTES;
            let part = left.min(SENT_BYTES - place);
            let done = call(__NR_pwrite64, [file.into(), base, part, number * SENT_BYTES + place, 0, 0]);
            if failed(done) || done == 0 {
                row.flags.fetch_or(connection::UNCOUNTED, Ordering::AcqRel);
                return;
            }
            base += done as u64;
            to += done as u64;
            left -= done as u64;
        }
    });
}

/// While this copy takes over, when its listeners are there: says how far each connection is, and waits until all processes have, and
/// the supervisor has made of the connections what it can.
pub(super) fn take_over() {
    let file = SENT.swap(0, Ordering::Relaxed).checked_sub(1);
    if file.is_some() {
        for_each(|fd, shadow, row| {
            say(fd, shadow, row);
            row.fd.store(fd, Ordering::Release);
        });
    }
    let word = &connections::table().rebuild;
    word.store(rebuild::ASKED, Ordering::Release);
    raw::futex_wake_shared(word);
    let until = raw::now_ns() + REBUILD_NS;
    while word.load(Ordering::Acquire) == rebuild::ASKED && raw::now_ns() < until {
        raw::futex_wait_shared(word, rebuild::ASKED, 100_000_000);
    }
    if let Some(file) = file {
        close(file.into());
    }
}

/// Of an output in doubt: how many of its bytes have been sent by the supervisor with the rebuilt connection. Once.
pub fn queued(slot: u32, number: i32) -> Option<i64> {
    let table = connections::table();
    let used = (table.used.load(Ordering::Acquire) as usize).min(table.rows.len());
    let is_its = |row: &&Connection| {
        row.fd.load(Ordering::Acquire) == number
            && row.slot.load(Ordering::Acquire) == slot
            && row.queued.load(Ordering::Acquire) != 0
    };
    let row = table.rows[..used].iter().find(is_its)?;
    Some(row.queued.swap(0, Ordering::AcqRel) as i64)
}
