//! Which packets of a service may leave its machine, and what they may acknowledge, so that another machine can go on with its
//! connections.
//!
//! Whoever takes over has the log, as far as it was *committed*: kept by another machine. So a packet is held until everything is
//! committed that was logged before it was sent (its *pass* over the rings), and packets leave in the order in which they came.
//! What the kernel has taken in and the program has not read is in no log. So an acknowledgement goes no further than what the
//! program has read, in a log that is committed: the other side keeps the rest, and sends it to the successor.
//!
//! Nothing here reads a clock, a socket or a file. Times are numbers, packets are bytes.
//!
//! | module | what |
//! |---|---|
//! | [`packet`] | IPv4 and TCP, read and changed in place |
//! | [`note`] | what whoever takes over has to know of a connection |
#![forbid(unsafe_code)]

mod known;
pub mod note;
pub mod packet;

use std::collections::{BTreeSet, HashMap, VecDeque};

use known::Known;
pub use note::{Address, Facts, Note};
use packet::flag;
pub use packet::{End, Pair, Segment};

/// How a gate stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// Packets wait until they may leave.
    Strict,
    /// Nobody follows: they pass, as they are.
    Open,
    /// Somebody else has taken over: nothing leaves.
    Shut,
}

/// What the kernel says of a connection's socket.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Found {
    /// The socket's cookie, as the log has it.
    pub identity: u64,
    /// Largest segment that the other side takes.
    pub segment_bytes: u16,
    /// By how many bits the windows are shifted that the other side sends.
    pub scale: u8,
    /// Bits of [`note::agreed`].
    pub agreed: u8,
    /// Bytes that the other side has acknowledged of what this socket has sent, or one less.
    pub acknowledged: u64,
}

/// A connection that has been made anew on this machine, which took over.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Adopted {
    /// What was agreed upon when it began; the clock is this machine's.
    pub facts: Facts,
    /// The number behind the last byte that has been sent.
    pub sent: u32,
    /// Bytes read, the end of the stream counted as one.
    pub read: u64,
    /// Bytes of these that processes had read which are not there any more: no [`Reading`] has them.
    pub read_by_others: u64,
    /// Bytes that were not put into the new socket, since the other side had acknowledged them: its kernel counts from there.
    pub acknowledged: u64,
}

/// How far the program is with a connection, in the log.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Reading {
    /// The socket's cookie, as the log has it.
    pub identity: u64,
    /// Bytes read.
    pub read: u64,
    /// The end has been read.
    pub is_ended: bool,
    /// The program will read no more, or nobody counts what it reads.
    pub is_free: bool,
}

/// Bytes that wait at the most. What comes then is lost, as on a line that is full.
pub const HELD_MAX: usize = 64 << 20;

/// An acknowledgement is kept back so long for what the program has not read. Then the connection is one that nobody can take over,
/// until it has been read.
pub const PATIENCE_NS: u64 = 1_000_000_000;

/// Who a connection is, is asked for so often, and then so long after the last time.
const ASKED_MAX: u32 = 12;
const ASK_NS: u64 = 1_000_000;

/// Of one that sends much it is asked so often how much has been acknowledged, and only behind so many bytes.
const MEASURE_NS: u64 = 5_000_000;
const MEASURE_BYTES: u32 = 64 << 10;

/// Whoever takes over goes on with the clocks in the packets: it is told the time so often.
const TIME_NS: u64 = 1_000_000_000;

/// The same while packets leave: none of them is younger than what it has been told last by more than that, ns.
pub const BUSY_TIME_NS: u64 = 100_000_000;

/// A connection that is over is forgotten after so long.
const FORGET_NS: u64 = 120_000_000_000;

/// A packet that waits.
#[derive(Debug)]
enum Held {
    Tcp(Segment),
    Other(Vec<u8>),
}

impl Held {
    fn bytes(&self) -> usize {
        match self {
            Held::Tcp(segment) => segment.bytes(),
            Held::Other(bytes) => bytes.len(),
        }
    }
}

/// Counted since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counted {
    /// Packets that have left.
    pub left: u64,
    /// Packets that were lost for want of room, or because the gate is shut.
    pub lost: u64,
    /// Acknowledgements that went less far than the kernel's.
    pub shortened: u64,
    /// How long the last packet has waited, ns.
    pub waited_ns: u64,
    /// Connections whose acknowledgements have gone further than what was read: see [`PATIENCE_NS`].
    pub beyond: u64,
}

/// The gate of one address.
#[derive(Debug)]
pub struct Gate {
    mode: Mode,
    known: HashMap<Pair, Known>,
    by_identity: HashMap<u64, Pair>,
    /// Those whose last acknowledgement goes less far than the kernel's.
    behind: BTreeSet<Pair>,
    /// Those of which nobody knows who they are.
    nameless: BTreeSet<Pair>,
    fresh: Vec<Held>,
    held: VecDeque<(u64, u64, Held)>,
    held_bytes: usize,
    out: VecDeque<Vec<u8>>,
    notes: Vec<Note>,
    /// Whether a connection waits for the pass that will have its note.
    has_unstamped: bool,
    sweep_at_ns: u64,
    /// Those that have sent much since it was last asked what of it has been acknowledged.
    sends: BTreeSet<Pair>,
    measure_at_ns: u64,
    /// When the time was said last, and whether packets have left since.
    time_ns: u64,
    has_left: bool,
    counted: Counted,
}

impl Default for Gate {
    fn default() -> Gate {
        Gate {
            mode: Mode::Open,
            known: HashMap::new(),
            by_identity: HashMap::new(),
            behind: BTreeSet::new(),
            nameless: BTreeSet::new(),
            fresh: Vec::new(),
            held: VecDeque::new(),
            held_bytes: 0,
            out: VecDeque::new(),
            notes: Vec::new(),
            has_unstamped: false,
            sweep_at_ns: 0,
            sends: BTreeSet::new(),
            measure_at_ns: 0,
            time_ns: 0,
            has_left: true,
            counted: Counted::default(),
        }
    }
}

impl Gate {
    /// How it stands.
    pub fn mode(&self) -> Mode {
        self.mode
    }

    /// What has been counted.
    pub fn counted(&self) -> Counted {
        self.counted
    }

    /// Connections known, and bytes that wait.
    pub fn load(&self) -> (usize, usize) {
        (self.known.len(), self.held_bytes)
    }

    /// Whether it is to be asked soon who a connection is.
    pub fn is_asking(&self) -> bool {
        !self.nameless.is_empty()
    }

    /// Stands in another way from now on.
    pub fn set_mode(&mut self, mode: Mode, now: u64) {
        if self.mode == mode {
            return;
        }
        self.mode = mode;
        match mode {
            Mode::Open => {
                for (_, _, held) in std::mem::take(&mut self.held) {
                    self.release(held, now);
                }
                self.held_bytes = 0;
            }
            Mode::Strict => {
                // What has been said so far was heard late: how late, nobody knows.
                (self.time_ns, self.has_left) = (0, true);
                // What has passed meanwhile cannot be taken back.
                for known in self.known.values_mut() {
                    self.notes.extend(known.is_beyond());
                    self.has_unstamped = true;
                }
            }
            Mode::Shut => {
                self.counted.lost += self.held.len() as u64;
                self.held.clear();
                self.held_bytes = 0;
            }
        }
    }

    /// A packet that the kernel wants to send. `now`: CLOCK_MONOTONIC, as everywhere.
    pub fn arrived(&mut self, bytes: Vec<u8>, now: u64) {
        match Segment::of(bytes) {
            Ok(segment) => {
                self.learn(&segment, now);
                self.fresh.push(Held::Tcp(segment));
            }
            Err(bytes) => self.fresh.push(Held::Other(bytes)),
        }
    }

    fn learn(&mut self, segment: &Segment, now: u64) {
        let pair = segment.pair();
        if segment.has(flag::SYN) {
            let is_same = |known: &&mut Known| known.first == segment.sequence();
            if self.known.get_mut(&pair).filter(is_same).is_none() {
                self.forget(&pair);
                self.known.insert(pair, Known::of(segment, now));
                self.nameless.insert(pair);
            }
        }
        if let Some(known) = self.known.get_mut(&pair) {
            known.seen_ns = now;
            if segment.has(flag::ACK) && known.other_first.is_none() {
                known.other_first = Some(segment.acknowledged().wrapping_sub(1));
            }
            if !segment.has(flag::SYN) && known.is_there() {
                // Its answer may have waited for longer than anybody asked.
                self.nameless.insert(pair);
                known.ask_at_ns = now;
            }
        }
    }

    /// A connection has been made anew, and is `identity` in the log from here on: whoever takes over next is told.
    pub fn adopt(&mut self, adopted: &Adopted, identity: u64, now: u64) {
        let before = adopted.facts.identity;
        let facts = Facts { identity, ..adopted.facts };
        self.forget(&facts.pair);
        self.known.insert(facts.pair, Known::adopted(&Adopted { facts, ..*adopted }, now));
        self.by_identity.insert(identity, facts.pair);
        self.notes.extend([Note::Renamed { from: before, to: identity }, Note::Connection(facts)]);
    }

    fn forget(&mut self, pair: &Pair) {
        let known = self.known.remove(pair);
        if let Some(identity) = known.and_then(|known| known.identity) {
            self.by_identity.remove(&identity);
        }
        self.behind.remove(pair);
        self.nameless.remove(pair);
        self.sends.remove(pair);
    }

    /// Connections of which is to be asked now who they are.
    pub fn asks(&mut self, now: u64) -> Vec<Pair> {
        let mut asks = Vec::new();
        for pair in &self.nameless {
            if let Some(known) = self.known.get_mut(pair).filter(|known| known.ask_at_ns <= now) {
                known.ask_at_ns = now + (ASK_NS << known.asked);
                known.asked += 1;
                asks.push(*pair);
            }
        }
        asks
    }

    /// Connections of which is to be asked now how much the other side has acknowledged.
    pub fn measures(&mut self, now: u64) -> Vec<Pair> {
        if now < self.measure_at_ns || self.sends.is_empty() {
            return Vec::new();
        }
        self.measure_at_ns = now + MEASURE_NS;
        std::mem::take(&mut self.sends).into_iter().collect()
    }

    /// Of all connections it is asked next, however little they have sent: somebody begins to follow who knows nothing of that.
    pub fn measure_all(&mut self) {
        let named = self.known.iter().filter(|(_, known)| known.identity.is_some() && !known.is_free);
        self.sends.extend(named.map(|(pair, _)| *pair));
        self.measure_at_ns = 0;
    }

    /// What the kernel has said to that.
    pub fn measured(&mut self, pair: &Pair, found: Option<Found>) {
        let known = self.known.get_mut(pair).filter(|known| !known.is_free);
        if let (Some(known), Some(found)) = (known, found) {
            known.measured_at = known.sent();
            if known.identity == Some(found.identity) {
                let bytes = known.acknowledged_before + found.acknowledged;
                self.notes.push(Note::Acknowledged { identity: found.identity, bytes });
            }
        }
    }

    /// What the kernel has said; `None`: it knows of none that is established.
    pub fn found(&mut self, pair: &Pair, found: Option<Found>) {
        let Some(known) = self.known.get_mut(pair) else { return };
        match found {
            Some(found) if known.other_first.is_some() => {
                self.nameless.remove(pair);
                known.identity = Some(found.identity);
                self.by_identity.insert(found.identity, *pair);
                self.notes.push(Note::Connection(known.facts(*pair, &found)));
            }
            _ if known.asked >= ASKED_MAX => {
                self.nameless.remove(pair);
                known.is_free = true;
            }
            _ => {}
        }
    }

    /// What is to be said in the log, before the pass of which [`Gate::stamp`] hears.
    pub fn notes(&mut self) -> Vec<Note> {
        std::mem::take(&mut self.notes)
    }

    /// Whether something waits for a pass that has not begun.
    pub fn wants_pass(&self) -> bool {
        !self.fresh.is_empty() || self.has_unstamped || !self.notes.is_empty()
    }

    /// The next pass over the rings has not begun, and has this number: what has come, and the notes, are to be committed with it.
    pub fn stamp(&mut self, pass: u64, now: u64) {
        if std::mem::take(&mut self.has_unstamped) {
            self.known.values_mut().for_each(|known| known.stamp(pass));
        }
        for held in std::mem::take(&mut self.fresh) {
            match self.mode {
                Mode::Open => self.release(held, now),
                Mode::Shut => self.counted.lost += 1,
                Mode::Strict if self.held_bytes + held.bytes() > HELD_MAX => self.counted.lost += 1,
                Mode::Strict => {
                    self.held_bytes += held.bytes();
                    self.held.push_back((pass, now, held));
                }
            }
        }
    }

    /// Everything up to the end of this pass is committed; when it began the program was so far.
    pub fn committed(&mut self, pass: u64, readings: &[Reading], now: u64) {
        for reading in readings {
            let Some(pair) = self.by_identity.get(&reading.identity) else { continue };
            if let Some(known) = self.known.get_mut(pair) {
                known.has_read(reading);
            }
        }
        let behind: Vec<Pair> = self.behind.iter().copied().collect();
        for pair in &behind {
            if let Some(known) = self.known.get_mut(pair) {
                known.committed(pass);
            }
        }
        if self.mode != Mode::Strict {
            return;
        }
        while self.held.front().is_some_and(|(stamp, ..)| *stamp <= pass) {
            if let Some((_, since, held)) = self.held.pop_front() {
                self.counted.waited_ns = now.saturating_sub(since);
                self.held_bytes -= held.bytes();
                self.release(held, now);
            }
        }
        for pair in behind {
            self.catch_up(&pair, now);
        }
    }

    /// What is due by the time alone.
    pub fn tick(&mut self, now: u64) {
        for pair in &self.behind {
            let Some(known) = self.known.get_mut(pair) else { continue };
            if self.mode == Mode::Strict && known.is_impatient(now) {
                self.counted.beyond += 1;
                self.notes.extend(known.is_beyond());
                self.has_unstamped = true;
            }
        }
        let often = if self.has_left { BUSY_TIME_NS } else { TIME_NS };
        if now >= self.time_ns + often && !self.by_identity.is_empty() {
            (self.time_ns, self.has_left) = (now, false);
            self.notes.push(Note::Time(now));
        }
        if now >= self.sweep_at_ns {
            self.sweep_at_ns = now + FORGET_NS / 8;
            let is_over = |known: &Known| known.is_free || known.identity.is_none();
            let over: Vec<Pair> = self
                .known
                .iter()
                .filter(|(_, known)| is_over(known) && now > known.seen_ns + FORGET_NS)
                .map(|(pair, _)| *pair)
                .collect();
            over.iter().for_each(|pair| self.forget(pair));
        }
    }

    fn release(&mut self, held: Held, now: u64) {
        let mut segment = match held {
            Held::Tcp(segment) => segment,
            Held::Other(bytes) => return self.leaves(bytes),
        };
        let pair = segment.pair();
        let is_strict = self.mode == Mode::Strict;
        let mut leaves = true;
        if let Some(known) = self.known.get_mut(&pair) {
            let was_short = known.passes(&mut segment, is_strict, now);
            if known.identity.is_some() && known.sent().wrapping_sub(known.measured_at) >= MEASURE_BYTES {
                self.sends.insert(pair);
            }
            leaves = was_short != Some(known::Short::Nothing);
            match was_short {
                None => _ = self.behind.remove(&pair),
                Some(_) => {
                    self.counted.shortened += 1;
                    self.behind.insert(pair);
                }
            }
        }
        if leaves {
            self.leaves(segment.into_bytes());
        }
    }

    /// The other side hears of what has been read since the last packet.
    fn catch_up(&mut self, pair: &Pair, now: u64) {
        let Some(known) = self.known.get_mut(pair) else { return };
        let (more, is_level) = known.catch_up(now);
        if is_level {
            self.behind.remove(pair);
        }
        if let Some(segment) = more {
            self.leaves(segment.into_bytes());
        }
    }

    fn leaves(&mut self, bytes: Vec<u8>) {
        self.has_left = true;
        self.counted.left += 1;
        self.out.push_back(bytes);
    }

    /// The next packet that leaves.
    pub fn next_out(&mut self) -> Option<Vec<u8>> {
        self.out.pop_front()
    }
}
