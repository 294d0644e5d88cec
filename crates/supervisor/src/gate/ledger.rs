//! How far a program is with its connections, over all of its processes: each has a table of its own, in which a connection counts that
//! it has inherited as one of which it has read nothing.

use std::collections::{BTreeMap, HashSet};
use std::sync::atomic::Ordering;

use gate::Reading;
use us_abi::{Connection, connection};

use crate::segment::Segment;

/// What processes have read that have the connection no more, by its identity.
#[derive(Debug, Default)]
pub struct Ledger {
    gone: BTreeMap<u64, (u64, bool)>,
    /// Where rows lie that were seen closed.
    closed: HashSet<usize>,
}

impl Ledger {
    /// Looks for what has been closed. A process that had the connection before is among those of which [`Ledger::read`] is told next.
    pub fn see_closed<'a>(&mut self, tables: impl Iterator<Item = &'a Segment>) {
        let is_closed = |row: &&Connection| row.flags.load(Ordering::Acquire) & connection::CLOSED != 0;
        self.closed.clear();
        self.closed.extend(tables.flat_map(Segment::connections).filter(is_closed).map(address));
    }

    /// How far each connection is, in the logs of processes that have these tables. Rows of what was seen closed are free from here on.
    pub fn read<'a>(&mut self, tables: impl Iterator<Item = &'a Segment>) -> Vec<Reading> {
        let mut open = BTreeMap::<u64, Reading>::new();
        for (_, identity, row) in tables.flat_map(Segment::known_connections) {
            if self.closed.contains(&address(row)) {
                self.leave(identity, row);
                continue;
            }
            let flags = row.flags.load(Ordering::Acquire);
            let reading = open.entry(identity).or_insert(Reading { identity, ..Reading::default() });
            reading.read += row.read.load(Ordering::Acquire);
            reading.is_ended |= flags & connection::ENDED != 0;
            reading.is_free |= flags & connection::UNCOUNTED != 0;
        }
        for (identity, (read, is_ended)) in &self.gone {
            // What nobody has any more is over.
            let over = Reading { identity: *identity, is_free: true, ..Reading::default() };
            let reading = open.entry(*identity).or_insert(over);
            reading.read += read;
            reading.is_ended |= is_ended;
        }
        self.gone.retain(|identity, _| open.get(identity).is_some_and(|reading| !reading.is_free));
        open.into_values().collect()
    }

    /// The process of this table has ended.
    pub fn ended(&mut self, table: &Segment) {
        table.known_connections().for_each(|(_, identity, row)| self.leave(identity, row));
    }

    fn leave(&mut self, identity: u64, row: &Connection) {
        let (read, is_ended) = self.gone.entry(identity).or_default();
        *read += row.read.load(Ordering::Acquire);
        *is_ended |= row.flags.load(Ordering::Acquire) & connection::ENDED != 0;
        free(row);
    }
}

fn address(row: &Connection) -> usize {
    (&raw const *row).addr()
}

/// The row is another connection's from here on.
pub fn free(row: &Connection) {
    for word in [&row.read, &row.written, &row.begun, &row.queued, &row.closed_ns] {
        word.store(0, Ordering::Relaxed);
    }
    row.flags.store(0, Ordering::Relaxed);
    row.fd.store(0, Ordering::Relaxed);
    row.place.store(0, Ordering::Relaxed);
    row.identity.store(0, Ordering::Release);
}
