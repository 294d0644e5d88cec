//! A segment as a reader outside the group sees it: copied, never mapped.
//!
//! A mapping of a file that programs have could be made shorter under the reader and end it by SIGBUS. So `status` and
//! `stop` read copies.

use std::ffi::OsStr;
use std::fs::File;
use std::mem::offset_of;
use std::os::unix::fs::FileExt;

use rustix::fs::OFlags;
use us_abi::upgrade::{VERSIONS_MAX, Version, Versions};
use us_abi::{
    CALLS_MAX, CLASSES, EventKind, GroupState, HEADER_BYTES, Header, MAGIC, PROCESSES_MAX, Process,
    RING_BYTES, RINGS_OFFSET, ROSTER_BYTES, Registry, Roster, RosterHeader, SEATS, SPARE_ENTRY_BYTES,
    SPARES_BYTES, SPARES_OFFSET, Seat, SegmentHeader, SpareEntry, THREAD_ENTRY_BYTES, THREADS_MAX,
    THREADS_OFFSET, Text, ThreadEntry, VERSION, process, seat, slot,
};

use crate::computed::Computed;
use crate::dir::Dir;
use crate::roster;
use crate::verdict;

/// A copy of a segment's header and thread table.
pub struct Snapshot {
    file: File,
    header: Vec<u8>,
    threads: Vec<u8>,
}

/// What the standby has still to apply, and what it has applied.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Progress {
    /// Events published and not applied.
    pub lag_events: u64,
    /// Bytes published and not applied.
    pub lag_bytes: u64,
    /// Largest share of one ring that waits, bytes.
    pub lag_bytes_max: u64,
    /// Events applied.
    pub applied: u64,
    /// Bytes ever published.
    pub bytes: u64,
    /// Events applied, by class.
    pub by_class: [u64; CLASSES],
}

impl Snapshot {
    /// Copies the segment `name` in `dir`; `None` when it is gone, short, or of another version.
    pub fn read(dir: &Dir, name: impl AsRef<OsStr>) -> Option<Snapshot> {
        let file = dir.file(name, OFlags::RDONLY).ok()?;
        let mut header = vec![0; HEADER_BYTES];
        file.read_exact_at(&mut header, 0).ok()?;
        let slots = word(&header, offset_of!(SegmentHeader, slots)) as usize;
        let mut threads = vec![0; slots.min(THREADS_MAX) * THREAD_ENTRY_BYTES];
        file.read_exact_at(&mut threads, THREADS_OFFSET as u64).ok()?;
        let snapshot = Snapshot { file, header, threads };
        let version = snapshot.word(offset_of!(SegmentHeader, version));
        (long(&snapshot.header, offset_of!(SegmentHeader, magic)) == MAGIC && version == VERSION)
            .then_some(snapshot)
    }

    fn word(&self, offset: usize) -> u32 {
        word(&self.header, offset)
    }

    /// Slots that have been in use.
    fn slots(&self) -> usize {
        self.threads.len() / THREAD_ENTRY_BYTES
    }

    /// State of the group, as the processes of the group say it.
    pub fn state(&self) -> GroupState {
        GroupState::from_u32(self.word(offset_of!(SegmentHeader, state)))
    }

    /// Pid of the primary: the started process until the runtime has said another.
    pub fn primary_pid(&self) -> u32 {
        match self.word(offset_of!(SegmentHeader, primary_pid)) {
            0 => self.word(offset_of!(SegmentHeader, root_pid)),
            pid => pid,
        }
    }

    /// Pid of the standby, 0 for none.
    pub fn standby_pid(&self) -> u32 {
        self.word(offset_of!(SegmentHeader, standby_pid))
    }

    /// Pids of the spare standbys, and their seats.
    pub fn spares(&self) -> Vec<(usize, u32)> {
        let word = |at: usize, field: usize| {
            self.word(offset_of!(SegmentHeader, seats) + at * size_of::<Seat>() + field)
        };
        (0..SEATS)
            .filter(|at| word(*at, offset_of!(Seat, state)) == seat::FOLLOWS)
            .map(|at| (at, word(at, offset_of!(Seat, pid))))
            .collect()
    }

    /// The seat of the standby.
    fn heir(&self) -> usize {
        self.word(offset_of!(SegmentHeader, heir)) as usize
    }

    /// The version of the runtime at work: its number, and the beginning of its build id.
    pub fn runtime(&self) -> Option<String> {
        let versions = offset_of!(SegmentHeader, versions);
        let count = self.word(versions + offset_of!(Versions, count)) as usize;
        let last = versions
            + offset_of!(Versions, all)
            + count.checked_sub(1).filter(|last| *last < VERSIONS_MAX)? * size_of::<Version>();
        let build = last + offset_of!(Version, build);
        let digits: String = self.header[build..build + 4].iter().map(|byte| format!("{byte:02x}")).collect();
        let (_, about) = self.text(versions + offset_of!(Versions, about))?;
        Some(format!("{} ({digits})", about.split(' ').next().unwrap_or_default()))
    }

    /// Pid that the guest sees as its own.
    pub fn guest_pid(&self) -> u32 {
        match self.word(offset_of!(SegmentHeader, guest_pid)) {
            0 => self.primary_pid(),
            pid => pid,
        }
    }

    /// Promotions so far.
    pub fn epoch(&self) -> u32 {
        self.word(offset_of!(SegmentHeader, epoch))
    }

    /// Whether the runtime has said who is primary.
    pub fn has_runtime(&self) -> bool {
        self.word(offset_of!(SegmentHeader, primary_pid)) != 0
    }

    /// A value of [`us_abi::leaving`].
    pub fn leaving(&self) -> u32 {
        self.word(offset_of!(SegmentHeader, leaving))
    }

    /// When the primary's death was noticed that a standby takes over from, CLOCK_MONOTONIC ns.
    pub fn death_ns(&self) -> u64 {
        long(&self.header, offset_of!(SegmentHeader, death_ns))
    }

    /// How long threads have waited in all for room in a ring, ns.
    pub fn room_wait_ns(&self) -> u64 {
        long(&self.header, offset_of!(SegmentHeader, room_wait_ns))
    }

    /// Whether the standby has been dropped.
    pub fn dropped(&self) -> bool {
        self.word(offset_of!(SegmentHeader, dropped)) != 0
    }

    /// How its threads are ordered, in the words of `--order`.
    pub fn order(&self) -> &'static str {
        match self.word(offset_of!(SegmentHeader, turns)) {
            // Turns in doors alone.
            _ if self.config_flags() & us_abi::CONFIG_PARALLEL != 0 => "deterministic",
            0 => "schedule",
            _ => "serial",
        }
    }

    /// What is told of a computed order; `None` where none is computed.
    pub fn computed(&self) -> Option<Computed> {
        let is_computed = self.config_flags() & us_abi::CONFIG_COMPUTED != 0;
        let [digest, turns, placed, guessed] = [
            offset_of!(SegmentHeader, order_digest),
            offset_of!(SegmentHeader, order_turns),
            offset_of!(SegmentHeader, order_placed),
            offset_of!(SegmentHeader, guessed),
        ]
        .map(|at| long(&self.header, at));
        is_computed.then(|| Computed::of(digest, turns, placed, guessed))
    }

    fn config_flags(&self) -> u32 {
        self.word(offset_of!(SegmentHeader, config) + offset_of!(us_abi::Config, flags))
    }

    /// Whether its log goes into a recording.
    pub fn is_recorded(&self) -> bool {
        let at = offset_of!(SegmentHeader, config) + offset_of!(us_abi::Config, flags);
        self.word(at) & us_abi::CONFIG_RECORDED != 0
    }

    /// Why there is no standby: a [`us_abi::Cause`] and its text.
    pub fn why(&self) -> Option<(u32, String)> {
        self.text(offset_of!(SegmentHeader, why)).map(|(code, words)| (code, verdict::in_words(words)))
    }

    /// A text of the header, as it was written.
    fn text(&self, at: usize) -> Option<(u32, String)> {
        let length = self.word(at + offset_of!(Text, len)) as usize;
        let from = at + offset_of!(Text, words);
        let bytes = &self.header[from..from + length.min(size_of::<Text>() - offset_of!(Text, words))];
        (length > 0)
            .then(|| (self.word(at + offset_of!(Text, code)), String::from_utf8_lossy(bytes).into_owned()))
    }

    /// Calls of the class refused-to-replay: number and count.
    pub fn refused(&self) -> Vec<(u32, u32)> {
        let from = offset_of!(SegmentHeader, refused);
        (0..CALLS_MAX)
            .map(|call| (call as u32, self.word(from + 4 * call)))
            .filter(|(_, count)| *count > 0)
            .collect()
    }

    /// How far the standby has come, over all threads.
    pub fn progress(&self) -> Progress {
        self.progress_at(self.heir())
    }

    /// The same of the standby that sits at `seat`; events applied are counted by the heir alone.
    pub fn progress_at(&self, seat: usize) -> Progress {
        (0..self.slots()).fold(Progress::default(), |sum, at| self.add_thread(sum, at, seat))
    }

    /// Where the standby that sits at `seat` is in a slot's ring, given the slot's entry.
    fn head(&self, entry: &[u8], at: usize, seat: usize) -> u64 {
        if seat == 0 || seat >= SEATS {
            return long(entry, offset_of!(ThreadEntry, head));
        }
        let place = SPARES_OFFSET + at * SPARES_BYTES + (seat - 1) * SPARE_ENTRY_BYTES;
        let mut bytes = [0; 8];
        let read = self.file.read_exact_at(&mut bytes, (place + offset_of!(SpareEntry, head)) as u64);
        read.map_or(u64::MAX, |()| u64::from_ne_bytes(bytes))
    }

    fn add_thread(&self, mut sum: Progress, at: usize, seat: usize) -> Progress {
        let entry = &self.threads[at * THREAD_ENTRY_BYTES..(at + 1) * THREAD_ENTRY_BYTES];
        let tail = long(entry, offset_of!(ThreadEntry, tail));
        // The copy is not one moment: a head read after its tail may be past it.
        let head = self.head(entry, at, seat).min(tail);
        let lag = (tail - head).min(RING_BYTES as u64);
        let (events, skipped) = self.count_events(at, head, lag as usize);
        let lag = lag.saturating_sub(skipped);
        sum.bytes += tail.saturating_sub(long(entry, offset_of!(ThreadEntry, skipped)));
        sum.lag_bytes += lag;
        sum.lag_bytes_max = sum.lag_bytes_max.max(lag);
        sum.lag_events += events;
        for (class, count) in sum.by_class.iter_mut().enumerate() {
            let applied = long(entry, offset_of!(ThreadEntry, events) + 8 * class);
            *count += applied;
            sum.applied += applied;
        }
        sum
    }

    /// Events in the `lag` bytes behind `head` of a ring, and the bytes there that hold none. The ring moves on
    /// meanwhile: a figure, not a proof.
    fn count_events(&self, at: usize, head: u64, lag: usize) -> (u64, u64) {
        let mut ring = vec![0; RING_BYTES];
        if lag == 0 || self.file.read_exact_at(&mut ring, (RINGS_OFFSET + at * RING_BYTES) as u64).is_err() {
            return (0, 0);
        }
        let (mut done, mut events, mut skipped) = (0, 0, 0);
        while done < lag {
            let position = (head as usize + done) & (RING_BYTES - 1) & !(size_of::<Header>() - 1);
            let size = Header::size(word(&ring, position + offset_of!(Header, len)));
            if ring[position] == EventKind::Skip as u8 {
                skipped += size as u64;
            } else {
                events += 1;
            }
            done += size;
        }
        (events, skipped)
    }

    /// Threads of the primary that the runtime knows.
    pub fn running_threads(&self) -> usize {
        (0..self.slots())
            .filter(|at| {
                word(&self.threads, at * THREAD_ENTRY_BYTES + offset_of!(ThreadEntry, state)) == slot::RUNNING
            })
            .count()
    }
}

/// An event of the log, and what comes behind it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Logged {
    /// A value of [`EventKind`].
    pub kind: u8,
    /// System call number, or operation and clock.
    pub call: u16,
    /// Events behind it in its ring.
    pub behind: u64,
}

/// The event at `position` in a ring that ends at `tail`, of the segment `name` in `dir`. `None` when there is none, when the
/// ring has gone on over it, or is much further.
pub fn logged(dir: &Dir, name: &str, slot: usize, position: u64, tail: u64) -> Option<Logged> {
    const FAR: u64 = 1 << 20;
    let lag = tail.checked_sub(position).filter(|lag| (1..FAR).contains(lag))? as usize;
    let file = dir.file(name, OFlags::RDONLY).ok()?;
    let mut bytes = vec![0; lag];
    let ring = (RINGS_OFFSET + slot * RING_BYTES) as u64;
    let from = position as usize & (RING_BYTES - 1);
    let first = lag.min(RING_BYTES - from);
    file.read_exact_at(&mut bytes[..first], ring + from as u64).ok()?;
    file.read_exact_at(&mut bytes[first..], ring).ok()?;
    let mut events = Vec::new();
    let mut at = 0;
    while at + size_of::<Header>() <= lag {
        let call = u16::from_ne_bytes([
            bytes[at + offset_of!(Header, call)],
            bytes[at + offset_of!(Header, call) + 1],
        ]);
        if bytes[at] != EventKind::Skip as u8 {
            events.push((bytes[at], call));
        }
        at += Header::size(word(&bytes, at + offset_of!(Header, len)));
    }
    let (kind, call) = *events.first()?;
    Some(Logged { kind, call, behind: events.len() as u64 - 1 })
}

/// An entry of the roster.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Listed {
    /// The number by which its relatives know it.
    pub pid: u32,
    /// Its parent's, 0 once that has ended.
    pub parent: u32,
    /// Kernel's pid of its primary.
    pub primary: u32,
    /// It has, or had, a segment of its own.
    pub joined: bool,
    /// CLOCK_MONOTONIC of its birth, ns.
    pub born_ns: u64,
    /// It is the first entry, which the program itself has as long as it lives.
    pub is_first: bool,
}

/// The processes in the roster in `dir`, in the order of their births; nobody when it is gone or of another version.
pub fn listed(dir: &Dir) -> Vec<Listed> {
    let read = || {
        let file = dir.file(roster::NAME, OFlags::RDONLY).ok()?;
        let mut bytes = vec![0; ROSTER_BYTES];
        file.read_exact_at(&mut bytes, 0).ok()?;
        let version = word(&bytes, offset_of!(RosterHeader, version));
        (long(&bytes, offset_of!(RosterHeader, magic)) == MAGIC && version == VERSION).then_some(bytes)
    };
    let bytes = read().unwrap_or_default();
    let registry = dir.file(roster::REGISTRY, OFlags::RDONLY);
    let primary_of = |at: usize, pid: u32| {
        let mut pair = [0; 8];
        let from = offset_of!(Registry, primaries) + at * size_of::<u64>();
        let is_read = registry.as_ref().is_ok_and(|file| file.read_exact_at(&mut pair, from as u64).is_ok());
        let word = if is_read { u64::from_ne_bytes(pair) } else { 0 };
        if (word >> 32) as u32 == pid { word as u32 } else { pid }
    };
    let used = if bytes.is_empty() { 0 } else { word(&bytes, offset_of!(RosterHeader, used)) as usize };
    let entries = (0..used.min(PROCESSES_MAX)).map(|at| {
        let from = offset_of!(Roster, processes) + at * size_of::<Process>();
        (at, &bytes[from..from + size_of::<Process>()])
    });
    let in_use = entries.filter(|(_, entry)| word(entry, offset_of!(Process, state)) == process::LISTED);
    let mut listed: Vec<Listed> = in_use
        .map(|(at, entry)| Listed {
            pid: word(entry, offset_of!(Process, pid)),
            parent: word(entry, offset_of!(Process, parent)),
            primary: primary_of(at, word(entry, offset_of!(Process, pid))),
            joined: word(entry, offset_of!(Process, joined)) != 0,
            born_ns: long(entry, offset_of!(Process, born_ns)),
            is_first: at == 0,
        })
        .collect();
    listed.sort_by_key(|entry| (!entry.is_first, entry.born_ns));
    listed
}

/// Says in the roster in `dir` that nobody joins its group any more, which is about to be removed.
pub fn close(dir: &Dir) {
    let file = dir.file(roster::NAME, OFlags::WRONLY);
    let at = offset_of!(Roster, header) + offset_of!(RosterHeader, closing);
    // A roster that is gone already is nobody's.
    let _ = file.and_then(|file| file.write_all_at(&1u32.to_ne_bytes(), at as u64));
}

/// The name of a system call, `syscall_N` when the table has none.
pub fn call_name(call: usize) -> String {
    match us_calls::name(call as u64) {
        "unknown" => format!("syscall_{call}"),
        name => name.into(),
    }
}

fn word(bytes: &[u8], offset: usize) -> u32 {
    u32::from_ne_bytes(bytes[offset..offset + 4].try_into().expect("four bytes were cut"))
}

fn long(bytes: &[u8], offset: usize) -> u64 {
    u64::from_ne_bytes(bytes[offset..offset + 8].try_into().expect("eight bytes were cut"))
}
