//! Connections of another machine's are made anew on this one, which takes over: `TCP_REPAIR` of `tcp(7)`.
//!
//! The log says how much of each has been read and written, the other machine's gate what was agreed upon when it began, and a file
//! has what was written last. A socket of the mirror stands for each already, under all its numbers: that is the one that is made a
//! connection of. What cannot be is left as it is: the mirror resets it.

use std::collections::{BTreeMap, HashMap};
use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::atomic::Ordering;

use gate::{Address, Adopted, Facts, Note};
use rustix::process::{PidfdFlags, PidfdGetfdFlags};
use us_abi::{Connection, SENT_BYTES, connection};

use super::answers::{self, Question};
use super::socket::{self, Place, Socket};
use super::{kernel, net};
use crate::roster::Roster;
use crate::segment::Segment;
use crate::{child, clock};

/// The file of what was written last, in the group's folder.
pub const SENT: &str = "sent";

/// A closed connection is kept so long: the other side may not have got all of it.
const CLOSED_NS: u64 = 60_000_000_000;

/// What the other machine's gate has said.
#[derive(Clone, Debug, Default)]
pub struct Notes {
    /// The address of the service.
    pub address: Option<Address>,
    /// Its gate holds nothing back.
    pub is_relaxed: bool,
    /// How many machines have had it so far.
    pub machines: u64,
    /// By what the program's own table calls a connection that another one has renamed.
    renamed: HashMap<u64, u64>,
    facts: HashMap<u64, Facts>,
    beyond: HashMap<u64, u64>,
    acknowledged: HashMap<u64, u64>,
    /// What processes that have ended had of connections, by their identities.
    left: HashMap<u64, Whole>,
    /// How much had been written on connections when this machine began at an image: what was written before is not here.
    joined: HashMap<u64, u64>,
    /// By so much our clock is ahead of the other machine's at the most, ns.
    ahead_ns: Option<i64>,
}

impl Notes {
    /// One more, which came at this time.
    pub fn take(&mut self, bytes: &[u8], came_ns: u64) {
        let note = Note::of(bytes);
        if let Some(Note::Time(at_ns) | Note::Connection(Facts { at_ns, .. })) = note {
            let ahead = came_ns as i64 - at_ns as i64;
            self.ahead_ns = Some(self.ahead_ns.map_or(ahead, |known| known.min(ahead)));
        }
        match note {
            Some(Note::Time(_)) | None => {}
            Some(Note::Address(address)) => {
                self.address = Some(address);
                self.is_relaxed = false;
                self.machines += 1;
                // It has a clock of its own.
                self.ahead_ns = None;
            }
            Some(Note::Relaxed) => self.is_relaxed = true,
            Some(Note::Renamed { from, to }) => _ = self.renamed.insert(to, self.own(from)),
            Some(Note::Connection(facts)) => {
                let identity = self.own(facts.identity);
                self.facts.insert(identity, Facts { identity, ..facts });
            }
            Some(Note::Beyond { identity, bytes }) => _ = self.beyond.insert(self.own(identity), bytes),
            Some(Note::Acknowledged { identity, bytes }) => {
                self.acknowledged.insert(self.own(identity), bytes);
            }
        }
    }

    /// The program of this table was put together from an image, and these were said before the place that it is of: its connections
    /// have the names by which they were known there, and the program has said what it had written.
    pub fn join(&mut self, segment: &Segment) {
        for (_, identity, row) in segment.known_connections() {
            if let Some(before) = self.renamed.remove(&identity) {
                let facts = self.facts.remove(&before).map(|facts| Facts { identity, ..facts });
                facts.into_iter().for_each(|facts| _ = self.facts.insert(identity, facts));
                for figures in [&mut self.beyond, &mut self.acknowledged] {
                    let figure = figures.remove(&before);
                    figure.into_iter().for_each(|figure| _ = figures.insert(identity, figure));
                }
            }
            let written = row.written.load(Ordering::Acquire);
            let had = written.saturating_sub(row.queued.swap(0, Ordering::AcqRel));
            let known = self.acknowledged.entry(identity).or_default();
            *known = had.max(*known);
            self.joined.insert(identity, written);
        }
    }

    /// What the program's own table calls a connection.
    fn own(&self, identity: u64) -> u64 {
        self.renamed.get(&identity).copied().unwrap_or(identity)
    }

    /// A process has ended, which had this table.
    pub fn leaves(&mut self, segment: &Segment) {
        for (_, identity, row) in segment.known_connections() {
            self.left.entry(identity).or_default().leave(row, clock::monotonic_ns());
            super::ledger::free(row);
        }
    }

    /// Forgets connections that all processes closed long ago, and what was sent on them.
    pub fn sweep(&mut self, segments: &[&Segment], roster: &Roster, sent: &File) {
        let now = clock::monotonic_ns();
        let is_old = |whole: &Whole| whole.open.is_none() && now > whole.closed_ns + CLOSED_NS;
        for (identity, whole) in self.whole(segments).iter().filter(|(_, whole)| is_old(whole)) {
            self.facts.remove(identity);
            self.beyond.remove(identity);
            self.acknowledged.remove(identity);
            self.joined.remove(identity);
            self.left.remove(identity);
            self.renamed.retain(|_, own| own != identity);
            let rows = segments.iter().flat_map(|segment| segment.known_connections());
            rows.filter(|(_, its, _)| its == identity).for_each(|(.., row)| super::ledger::free(row));
            if let Some(at) = whole.place {
                // A file system that does not know how keeps it.
                let how = rustix::fs::FallocateFlags::PUNCH_HOLE | rustix::fs::FallocateFlags::KEEP_SIZE;
                let _ = rustix::fs::fallocate(sent, how, u64::from(at) * SENT_BYTES, SENT_BYTES);
                roster.free_sent(at as usize);
            }
        }
    }

    /// Each connection, over the processes that have these tables and those that have ended.
    fn whole(&self, segments: &[&Segment]) -> BTreeMap<u64, Whole> {
        let mut all: BTreeMap<u64, Whole> =
            self.left.iter().map(|(identity, left)| (*identity, left.clone())).collect();
        for (process, segment) in segments.iter().enumerate() {
            for (at, identity, row) in segment.known_connections() {
                all.entry(identity).or_default().add(row, (process, at));
            }
        }
        all
    }
}

/// How far a connection is, over all processes.
#[derive(Clone, Debug, Default)]
pub(super) struct Whole {
    pub(super) read: u64,
    /// Of these, what processes have read that have ended.
    pub(super) read_by_others: u64,
    pub(super) written: u64,
    /// An output in doubt, and in which process's row it is.
    pub(super) begun: u64,
    doubt: Option<(usize, usize)>,
    pub(super) flags: u32,
    /// The process that has it open, and under which number.
    pub(super) open: Option<(usize, i32)>,
    closed_ns: u64,
    /// Where what was written last lies.
    place: Option<u32>,
}

impl Whole {
    fn add(&mut self, row: &Connection, at: (usize, usize)) {
        let flags = row.flags.load(Ordering::Acquire);
        self.read += row.read.load(Ordering::Acquire);
        self.written = self.written.max(row.written.load(Ordering::Acquire));
        self.flags |= flags & !connection::CLOSED;
        self.place = self.place.or(row.place.load(Ordering::Acquire).checked_sub(1));
        if flags & connection::CLOSED != 0 {
            self.closed_ns = self.closed_ns.max(row.closed_ns.load(Ordering::Acquire));
            return;
        }
        self.open = Some((at.0, row.fd.load(Ordering::Acquire)));
        let begun = row.begun.load(Ordering::Acquire);
        if begun != 0 {
            (self.begun, self.doubt) = (begun, Some(at));
        }
    }

    /// Its process ends now.
    fn leave(&mut self, row: &Connection, now: u64) {
        self.add(row, (0, 0));
        self.read_by_others += row.read.load(Ordering::Acquire);
        (self.open, self.begun, self.doubt) = (None, 0, None);
        self.closed_ns = self.closed_ns.max(now);
    }
}

/// What has come of it.
#[derive(Default)]
pub struct Rebuilt {
    /// Connections that go on.
    pub made: u32,
    /// Connections that do not, by the reason.
    pub reset: HashMap<&'static str, u32>,
    sockets: Vec<Socket>,
    /// What their packets are sent by besides.
    sender: Option<OwnedFd>,
}

impl Rebuilt {
    /// In words.
    pub fn words(&self) -> String {
        let reset: u32 = self.reset.values().sum();
        let why: Vec<String> = self.reset.iter().map(|(why, count)| format!("{count} {why}")).collect();
        match reset {
            0 => format!("{} connections go on", self.made),
            _ => format!("{} connections go on, {reset} are reset ({})", self.made, why.join(", ")),
        }
    }

    /// Connections that go on, for a gate.
    pub fn adopted(&self) -> Vec<Adopted> {
        let go_on = self.sockets.iter().filter(|socket| !socket.is_closed);
        let adopted = |socket: &Socket| Adopted {
            facts: socket.facts,
            sent: socket.next,
            read: socket.read + u64::from(socket.is_ended),
            read_by_others: socket.read_by_others,
            acknowledged: socket.from,
        };
        go_on.map(adopted).collect()
    }

    /// The address is this machine's, and the program is not live yet: what is under way goes on its way again.
    pub fn resume(&mut self, sent: &File) {
        let sender = kernel::sender(net::MARK).ok();
        let questions: Vec<Question> = self.sockets.iter().filter_map(Socket::question).collect();
        let answers = sender.as_ref().map(|sender| answers::hear(&questions, sender)).unwrap_or_default();
        let mut is_believed = true;
        for mut socket in std::mem::take(&mut self.sockets) {
            let answer = answers.get(&socket.pair).filter(|_| is_believed);
            match socket.resume(sent, answer.zip(sender.as_ref())) {
                // Where one packet does not arrive none does, and each is waited for.
                Ok(told) => {
                    is_believed &= told;
                    self.sockets.push(socket);
                }
                Err(cause) => {
                    self.made -= u32::from(!socket.is_closed);
                    self.cannot(&cause);
                }
            }
        }
        self.sender = sender;
    }

    fn cannot(&mut self, cause: &io::Error) {
        crate::terminal::say(&format!("a connection cannot be rebuilt: {cause}"));
        *self.reset.entry("that the kernel does not rebuild").or_default() += 1;
    }

    /// The program is live: connections come to themselves.
    pub fn wake(self) {
        self.sockets.iter().for_each(|socket| socket.wake(self.sender.as_ref()));
        socket::look_after(self.sockets, self.sender);
    }
}

/// Why a connection is not made anew.
enum Refused {
    Because(&'static str),
    Kernel(io::Error),
}

/// A process of the mirror: its table, and this kernel's number.
pub type Of<'a> = (&'a Segment, u32);

/// Makes what can be made, of the connections of a mirror's processes. The last of the log came at `came_ns`.
pub fn rebuild(processes: &[Of], notes: &Notes, came_ns: u64) -> Rebuilt {
    let mut rebuilt = Rebuilt::default();
    let segments: Vec<&Segment> = processes.iter().map(|(segment, _)| *segment).collect();
    let open = |pid: u32| rustix::process::pidfd_open(child::raw(pid)?, PidfdFlags::empty()).ok();
    let pidfds: Vec<Option<OwnedFd>> = processes.iter().map(|(_, pid)| open(*pid)).collect();
    for (identity, whole) in notes.whole(&segments) {
        let facts = obstacle(&whole, notes, identity).map_err(Refused::Because);
        let made = facts.and_then(|facts| {
            let fd = match whole.open.map(|(process, fd)| (&pidfds[process], fd)) {
                None => rustix::net::socket(
                    rustix::net::AddressFamily::INET,
                    rustix::net::SocketType::STREAM,
                    None,
                ),
                Some((Some(process), fd)) => {
                    rustix::process::pidfd_getfd(process, fd, PidfdGetfdFlags::empty())
                }
                Some((None, _)) => return Err(Refused::Because("whose process cannot be looked into")),
            };
            let fd = fd.map_err(|_| Refused::Because("whose socket is not to be had"))?;
            let from = notes.acknowledged.get(&identity).copied().unwrap_or(0);
            let ahead_ns = notes.ahead_ns.unwrap_or_default();
            let there_ns = (came_ns as i64).saturating_sub(ahead_ns);
            let passed_ms = there_ns.saturating_sub(facts.at_ns as i64).max(0) as u64 / 1_000_000;
            let at = u64::from(whole.place.unwrap_or(0)) * SENT_BYTES;
            let place = Place { at, from, passed_ms };
            let socket = Socket::make(fd, facts, &whole, &place).map_err(Refused::Kernel)?;
            if let Some((process, at)) = whole.doubt {
                segments[process].connections()[at].queued.store(whole.begun, Ordering::Release);
            }
            Ok(socket)
        });
        match made {
            Ok(socket) => {
                rebuilt.made += u32::from(whole.open.is_some());
                rebuilt.sockets.push(socket);
            }
            // Nobody has it open any more.
            Err(_) if whole.open.is_none() => {}
            Err(Refused::Because(why)) => *rebuilt.reset.entry(why).or_default() += 1,
            Err(Refused::Kernel(cause)) => rebuilt.cannot(&cause),
        }
    }
    rebuilt
}

fn obstacle<'a>(whole: &Whole, notes: &'a Notes, identity: u64) -> Result<&'a Facts, &'static str> {
    let read = whole.read + u64::from(whole.flags & connection::ENDED != 0);
    let facts = notes.facts.get(&identity).ok_or("of which the gate has said nothing")?;
    if whole.flags & connection::FAILED != 0 {
        return Err("that had failed");
    }
    if whole.flags & connection::UNCOUNTED != 0 {
        return Err("with bytes that nobody counts");
    }
    let acknowledged = notes.acknowledged.get(&identity).copied().unwrap_or(0);
    if notes.joined.get(&identity).is_some_and(|before| acknowledged < *before) {
        return Err("with bytes under way that were sent before this machine joined");
    }
    if whole.flags & connection::MIXED != 0 {
        return Err("that several processes had written to");
    }
    if notes.beyond.get(&identity).is_some_and(|beyond| *beyond > read) {
        return Err("with input that was acknowledged and not read");
    }
    Ok(facts)
}
