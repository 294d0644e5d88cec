//! The table of connections ([`us_abi::Connections`]), which a gate or a mirror's supervisor reads: who has which row of it.
//!
//! A primary writes there behind the event that it counts, so that whoever has taken the log has what a figure stands for. A copy
//! that follows on the same machine writes nothing: its primary does.

use core::sync::atomic::{AtomicU32, Ordering};

use us_abi::{CONNECTIONS_MAX, CONNECTIONS_OFFSET, Connection, Connections, SEGMENT_ADDRESS, connection};

use crate::{raw, state};

/// Whether this copy writes in the table.
pub fn is_kept() -> bool {
    state::is_gated() && (state::is_mirrored() || state::role() == state::Role::Primary)
}

/// The table of this process's segment.
pub fn table() -> &'static Connections {
    let at = SEGMENT_ADDRESS + CONNECTIONS_OFFSET;
    // SAFETY: it lies in the segment, which is mapped there and never removed once a purpose has been set; all of it is atomics.
    unsafe { &*(at as *const Connections) }
}

/// The row of a connection by what is known of it: where it was found last, plus one. A new one if it has none; `None` if there is
/// no room, or nobody knows which connection it is.
pub fn row(identity: u64, found_at: &AtomicU32) -> Option<&'static Connection> {
    if identity == 0 {
        return None;
    }
    let table = table();
    let is_its = |row: &Connection| row.identity.load(Ordering::Acquire) == identity;
    let known = table.rows.get((found_at.load(Ordering::Relaxed) as usize).wrapping_sub(1));
    if let Some(row) = known.filter(|row| is_its(row)) {
        return Some(row);
    }
    let used = (table.used.load(Ordering::Acquire) as usize).min(CONNECTIONS_MAX);
    let at = table.rows[..used].iter().position(is_its).or_else(|| take(identity))?;
    found_at.store(at as u32 + 1, Ordering::Relaxed);
    Some(&table.rows[at])
}

/// A connection is known by another number from here on; `found_at` as for [`row`].
pub fn rename(before: u64, now: u64, found_at: &AtomicU32) {
    let table = table();
    let is_its = |row: &&Connection| row.identity.load(Ordering::Acquire) == before;
    let known = table.rows.get((found_at.load(Ordering::Relaxed) as usize).wrapping_sub(1));
    let used = (table.used.load(Ordering::Acquire) as usize).min(CONNECTIONS_MAX);
    let found = known.filter(is_its).or_else(|| table.rows[..used].iter().find(is_its));
    if let Some(row) = found.filter(|_| before != 0 && now != 0) {
        row.identity.store(now, Ordering::Release);
    }
}

/// A free row, which is that connection's from here on. All else in it is zero.
fn take(identity: u64) -> Option<usize> {
    let table = table();
    let take = |row: &Connection| {
        row.identity.compare_exchange(0, identity, Ordering::AcqRel, Ordering::Relaxed).is_ok()
    };
    let at = table.rows.iter().position(take)?;
    table.used.fetch_max(at as u32 + 1, Ordering::AcqRel);
    Some(at)
}

/// The last number of a connection is gone.
pub fn closed(row: &Connection, read: u64, written: u64, is_shut: bool) {
    row.read.store(read, Ordering::Release);
    row.written.store(written, Ordering::Release);
    row.closed_ns.store(raw::now_ns(), Ordering::Release);
    let shut = if is_shut { connection::SHUT } else { 0 };
    row.flags.fetch_or(connection::CLOSED | shut, Ordering::AcqRel);
}
