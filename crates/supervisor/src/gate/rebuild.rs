//! Connections of another machine's are made anew on this one, which takes over: `TCP_REPAIR` of `tcp(7)`.
//!
//! The log says how much of each has been read and written, the other machine's gate what was agreed upon when it began, and a file
//! has what was written last. A socket of the mirror stands for each already, under all its numbers: that is the one that is made a
//! connection of. What cannot be is left as it is: the mirror resets it.

use std::collections::{BTreeMap, HashMap};
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::sync::atomic::Ordering;

use gate::note::agreed;
use gate::packet::flag;
use gate::{Address, Adopted, Facts, Note, Pair};
use rustix::net::{SendFlags, Shutdown};
use rustix::process::{PidfdFlags, PidfdGetfdFlags};
use us_abi::{Connection, SENT_BYTES, connection};

use super::{kernel, net};
use crate::roster::Roster;
use crate::segment::Segment;
use crate::{child, clock};

/// The file of what was written last, in the group's folder.
pub const SENT: &str = "sent";

/// A closed connection is kept so long: the other side may not have got all of it.
const CLOSED_NS: u64 = 60_000_000_000;

/// The clock in the packets is to be so far ahead of what it may have been: what seems to be old is thrown away. Not further: the
/// kernel takes for the time of a round trip by how much the other side's echo is behind.
const AHEAD_MS: u64 = 30;

/// The room that the other side is thought to have, besides what is under way, until it says so.
const WINDOW: u32 = 64 << 10;

/// What the other machine's gate has said.
#[derive(Debug, Default)]
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
struct Whole {
    read: u64,
    /// Of these, what processes have read that have ended.
    read_by_others: u64,
    written: u64,
    /// An output in doubt, and in which process's row it is.
    begun: u64,
    doubt: Option<(usize, usize)>,
    flags: u32,
    /// The process that has it open, and under which number.
    open: Option<(usize, i32)>,
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
}

struct Socket {
    fd: OwnedFd,
    /// What was agreed upon, with this machine's clock, and so many bytes have been read.
    facts: Facts,
    read: u64,
    /// See [`Adopted`].
    read_by_others: u64,
    /// So many bytes had been acknowledged: what was sent behind them is in its queue.
    from: u64,
    pair: Pair,
    /// The first number of this side's that the other one may lack, the next one, and that of the other side.
    oldest: u32,
    next: u32,
    other_next: u32,
    /// The other side has sent its end, which has been read.
    is_ended: bool,
    is_shut: bool,
    is_closed: bool,
    is_mapped: bool,
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

    /// The address is this machine's, and the program is live: connections come to themselves.
    pub fn wake(self) {
        let sender = kernel::sender(net::MARK).ok();
        for socket in &self.sockets {
            let off = 0;
            let (level, name) = transparent(socket.is_mapped);
            let _ = kernel::set(&socket.fd, level, name, &off);
            if let Some(sender) = sender.as_ref().filter(|_| socket.is_ended) {
                // What the other side sent last has been read, and it does not send that again.
                let Pair { own, other } = socket.pair;
                let (from, flags) = (Pair { own: other, other: own }, flag::FIN | flag::ACK);
                let end = gate::Segment::new(&from, socket.other_next, socket.next, flags, u16::MAX);
                let _ = kernel::send(sender, &end.into_bytes());
            }
            if socket.is_shut || socket.is_closed {
                let _ = rustix::net::shutdown(&socket.fd, Shutdown::Write);
            }
            if let Some(sender) = &sender {
                // An old byte is asked for: the other side answers where it is.
                let before = socket.oldest.wrapping_sub(1);
                let asks = gate::Segment::new(&socket.pair, before, socket.other_next, flag::ACK, u16::MAX);
                let _ = kernel::send(sender, &asks.into_bytes());
            }
        }
    }
}

fn transparent(is_mapped: bool) -> (i32, i32) {
    const IPV6_TRANSPARENT: i32 = 75;
    if is_mapped { (libc::IPPROTO_IPV6, IPV6_TRANSPARENT) } else { (libc::IPPROTO_IP, libc::IP_TRANSPARENT) }
}

/// A process of the mirror: its table, and this kernel's number.
pub type Of<'a> = (&'a Segment, u32);

/// Makes what can be made, of the connections of a mirror's processes.
pub fn rebuild(processes: &[Of], notes: &Notes, sent: &File) -> Rebuilt {
    let mut rebuilt = Rebuilt::default();
    let segments: Vec<&Segment> = processes.iter().map(|(segment, _)| *segment).collect();
    let open = |pid: u32| rustix::process::pidfd_open(child::raw(pid)?, PidfdFlags::empty()).ok();
    let pidfds: Vec<Option<OwnedFd>> = processes.iter().map(|(_, pid)| open(*pid)).collect();
    for (identity, whole) in notes.whole(&segments) {
        let made = obstacle(&whole, notes, identity).and_then(|facts| {
            let fd = match whole.open.map(|(process, fd)| (&pidfds[process], fd)) {
                None => rustix::net::socket(
                    rustix::net::AddressFamily::INET,
                    rustix::net::SocketType::STREAM,
                    None,
                ),
                Some((Some(process), fd)) => {
                    rustix::process::pidfd_getfd(process, fd, PidfdGetfdFlags::empty())
                }
                Some((None, _)) => return Err("whose process cannot be looked into"),
            };
            let fd = fd.map_err(|_| "whose socket is not to be had")?;
            let from = notes.acknowledged.get(&identity).copied().unwrap_or(0);
            let ahead_ns = notes.ahead_ns.unwrap_or_default();
            let there_ns = (clock::monotonic_ns() as i64).saturating_sub(ahead_ns);
            let passed_ms = there_ns.saturating_sub(facts.at_ns as i64).max(0) as u64 / 1_000_000;
            let at = u64::from(whole.place.unwrap_or(0)) * SENT_BYTES;
            let place = Place { file: sent, at, from, passed_ms };
            let socket = make(fd, facts, &whole, &place).map_err(|cause| {
                crate::terminal::say(&format!("a connection cannot be rebuilt: {cause}"));
                "that the kernel does not rebuild"
            })?;
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
            Err(why) => *rebuilt.reset.entry(why).or_default() += 1,
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
    if whole.flags & connection::MIXED != 0 {
        return Err("that several processes had written to");
    }
    if notes.beyond.get(&identity).is_some_and(|beyond| *beyond > read) {
        return Err("with input that was acknowledged and not read");
    }
    Ok(facts)
}

/// Where the bytes lie that were written last.
struct Place<'a> {
    file: &'a File,
    at: u64,
    /// So many have been acknowledged.
    from: u64,
    /// So long the connection has been there.
    passed_ms: u64,
}

const TCP_REPAIR: i32 = 19;
const TCP_REPAIR_QUEUE: i32 = 20;
const TCP_QUEUE_SEQ: i32 = 21;
const TCP_REPAIR_OPTIONS: i32 = 22;
const TCP_TIMESTAMP: i32 = 24;
const TCP_REPAIR_WINDOW: i32 = 29;
const SO_BUF_LOCK: i32 = 72;
const QUEUE_IN: i32 = 1;
const QUEUE_OUT: i32 = 2;
const ON: i32 = 1;
/// Off, and nothing is sent.
const QUIETLY_OFF: i32 = -1;

fn make(fd: OwnedFd, facts: &Facts, whole: &Whole, place: &Place) -> io::Result<Socket> {
    let tcp = libc::IPPROTO_TCP;
    let of_sockets = libc::SOL_SOCKET;
    let Whole { read, written, begun, flags, .. } = *whole;
    let is_closed = whole.open.is_none();
    let end = written + begun;
    let from = place.from.min(written);
    if end - from > SENT_BYTES {
        let told = format!("{} of {end} bytes that it has sent are under way, more than is kept", end - from);
        return Err(io::Error::other(told));
    }
    let number = |first: u32, bytes: u64| first.wrapping_add(1).wrapping_add(bytes as u32);
    let (next_in, first_out) = (number(facts.other_first, read), number(facts.first, from));

    let is_mapped = kernel::get(&fd, of_sockets, libc::SO_DOMAIN)? == libc::AF_INET6;
    let reuses = kernel::get(&fd, of_sockets, libc::SO_REUSEADDR)?;
    let buffer = kernel::get(&fd, of_sockets, libc::SO_SNDBUF)?;
    let lock = kernel::get(&fd, of_sockets, SO_BUF_LOCK)?;
    let (level, name) = transparent(is_mapped);
    kernel::set(&fd, level, name, &ON)?;
    kernel::set(&fd, tcp, TCP_REPAIR, &ON)?;
    for (queue, number) in [(QUEUE_IN, next_in), (QUEUE_OUT, first_out)] {
        kernel::set(&fd, tcp, TCP_REPAIR_QUEUE, &queue)?;
        kernel::set(&fd, tcp, TCP_QUEUE_SEQ, &number)?;
    }
    kernel::join(&fd, &facts.pair.own, &facts.pair.other, is_mapped)?;
    let mut options = vec![[2u32, facts.segment_bytes.max(536).into()]];
    if facts.agreed & agreed::SCALE != 0 {
        options.push([3, u32::from(facts.scale) | u32::from(facts.own_scale) << 16]);
    }
    if facts.agreed & agreed::SACK != 0 {
        options.push([4, 0]);
    }
    if facts.agreed & agreed::TIME != 0 {
        options.push([8, 0]);
    }
    kernel::set_all(&fd, tcp, TCP_REPAIR_OPTIONS, &options)?;
    // Before it is set: who takes over next may think it further than it is, and not less far.
    let at_ns = clock::monotonic_ns();
    // An odd number would have newer kernels (6.7) count microseconds.
    let time = facts.time.wrapping_add((place.passed_ms + AHEAD_MS) as u32 + 1) & !1;
    if facts.agreed & agreed::TIME != 0 {
        kernel::set(&fd, tcp, TCP_TIMESTAMP, &time)?;
    }
    let room = (SENT_BYTES as i32) * 2;
    kernel::set(&fd, of_sockets, libc::SO_SNDBUFFORCE, &room)?;
    put_out(&fd, from, end, place)?;
    // As it was: what a larger one took besides would be more than is kept for whoever takes over next. The kernel counts double.
    kernel::set(&fd, of_sockets, libc::SO_SNDBUFFORCE, &(buffer / 2))?;
    kernel::set(&fd, of_sockets, SO_BUF_LOCK, &lock)?;
    // All that is under way had room there. With less the kernel would acknowledge from within it: from numbers that are old to the
    // other side, which throws such packets away, while its own lie beyond the window here.
    let there = WINDOW + (end - from) as u32;
    let window = [next_in, there, there, WINDOW >> 1, next_in];
    kernel::set(&fd, tcp, TCP_REPAIR_WINDOW, &window)?;
    kernel::set(&fd, tcp, TCP_REPAIR, &QUIETLY_OFF)?;
    // Repairing takes it away.
    kernel::set(&fd, of_sockets, libc::SO_REUSEADDR, &reuses)?;
    Ok(Socket {
        fd,
        facts: Facts { time, at_ns, ..*facts },
        read,
        read_by_others: whole.read_by_others,
        from,
        pair: facts.pair,
        oldest: first_out,
        next: number(facts.first, end),
        other_next: next_in,
        is_ended: flags & connection::ENDED != 0,
        is_shut: flags & connection::SHUT != 0,
        is_closed,
        is_mapped,
    })
}

/// Puts what was written last into the queue of what has been sent.
fn put_out(fd: impl AsFd, mut from: u64, end: u64, place: &Place) -> io::Result<()> {
    let mut room = vec![0; 64 << 10];
    while from < end {
        let at = from % SENT_BYTES;
        let part = (end - from).min(SENT_BYTES - at).min(room.len() as u64) as usize;
        place.file.read_exact_at(&mut room[..part], place.at + at)?;
        let done = rustix::net::send(&fd, &room[..part], SendFlags::DONTWAIT | SendFlags::NOSIGNAL)?;
        from += done as u64;
    }
    Ok(())
}
