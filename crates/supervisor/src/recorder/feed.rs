//! One image being replayed: the events that wait for it, and the process that applies them.

use std::collections::{BTreeMap, VecDeque};
use std::path::PathBuf;
use std::sync::atomic::Ordering;

use us_abi::event::RETURN_MORE;
use us_abi::{EventKind, PAYLOAD_BYTES_MAX, command};

use super::rings::{self, Rings, first_event};
use super::take::{EXECUTED, UNKNOWN, why_cut};
use crate::error::Error;
use crate::proc;
use crate::segment::{self, read_text};
use crate::spawn;

/// Events are handed over in pieces of about so many bytes.
const PIECE: usize = 256 << 10;

/// So long nothing is applied before a look is taken whether anybody computes.
const STUCK_NS: u64 = 10_000_000_000;
/// `kill`, `tkill`, `tgkill`.
const SENDS: [u16; 3] = [62, 200, 234];

/// How the recording says that an image ended.
#[derive(Clone, Debug)]
pub struct Ending {
    /// As `wait` gives it, [`UNKNOWN`] if nobody knew.
    pub status: i32,
    /// Another image took its place.
    pub is_exec: bool,
    /// Why the log ends before the process did, if it does.
    pub why: Option<String>,
}

impl Ending {
    /// As the recording has it.
    pub fn new(status: i32, facts: &[u8]) -> Ending {
        let is_exec = facts == EXECUTED;
        Ending { status, is_exec, why: why_cut(facts) }
    }

    /// The signal of which it died.
    pub fn signal(&self) -> Option<i32> {
        let died =
            !self.is_exec && self.why.is_none() && self.status != UNKNOWN && libc::WIFSIGNALED(self.status);
        died.then(|| libc::WTERMSIG(self.status))
    }

    /// Whether the process ended by its own will, at a place that the log has.
    pub fn is_exit(&self) -> bool {
        !self.is_exec && self.why.is_none() && self.status != UNKNOWN && libc::WIFEXITED(self.status)
    }
}

/// Something that waits for a failover to be passed.
#[derive(Debug)]
enum Behind {
    /// To the copy with this kernel's pid.
    Failover(u32),
    Events(u16, Vec<u8>),
}

/// An image being replayed.
#[derive(Debug)]
pub struct Fed {
    /// Its number in the recording.
    pub image: u32,
    /// The number that it knows itself by.
    pub pid: u32,
    /// The kernel's number of the replaying process where we started it ourselves.
    pub child: Option<u32>,
    /// Its rings.
    pub rings: Rings,
    /// Their file.
    pub path: PathBuf,
    queues: BTreeMap<u16, VecDeque<Vec<u8>>>,
    /// What stands behind a failover that has not been applied yet.
    behind: VecDeque<Behind>,
    queued: usize,
    /// The slot that has called for a signal last, and not come back from it.
    sender: Option<u16>,
    has_died: bool,
    /// What the recording says of its end, once that has been read.
    pub ending: Option<Ending>,
    /// When everything was found applied, CLOCK_MONOTONIC ns.
    pub still_since_ns: Option<u64>,
    progress: u64,
    /// When that was last seen to grow.
    pub progress_ns: u64,
    /// Processor time that the replaying process had used then, seconds.
    progress_cpu_s: f64,
}

impl Fed {
    /// An image whose first events, in the slot in which it begins, say what it is.
    ///
    /// # Errors
    /// When the rings' file is not there.
    pub fn new(image: u32, pid: u32, rings: Rings, path: PathBuf) -> Result<Fed, Error> {
        Ok(Fed {
            image,
            pid,
            child: None,
            rings,
            path,
            queues: BTreeMap::new(),
            behind: VecDeque::new(),
            queued: 0,
            sender: None,
            has_died: false,
            ending: None,
            still_since_ns: None,
            progress: 0,
            progress_ns: 0,
            progress_cpu_s: 0.0,
        })
    }

    /// What the runtime has to be told of the image, before all events of its first slot.
    pub fn begin(&mut self, slot: u16, facts: &[u8]) {
        let pieces = facts.chunks(PAYLOAD_BYTES_MAX).count();
        for (at, piece) in facts.chunks(PAYLOAD_BYTES_MAX).enumerate() {
            let more = if at + 1 < pieces { RETURN_MORE } else { 0 };
            self.push(slot, rings::event(EventKind::Image, more, piece));
        }
    }

    /// Whole events for a slot.
    pub fn push(&mut self, slot: u16, mut events: Vec<u8>) {
        let mut at = 0;
        let mut failover = None;
        let mut sends = None;
        for event in recording::Events::new(&events) {
            if event.header.kind == EventKind::Failover as u8 {
                failover = Some((at, event.size(), event.header.ticket as u32));
                break;
            }
            at += event.size();
            sends = Some(event.header.kind == EventKind::Enter as u8 && SENDS.contains(&event.header.call));
        }
        let rest = failover.map(|(at, size, pid)| {
            let rest = events.split_off(at + size);
            events.truncate(at);
            (rest, pid)
        });
        match (self.sender, sends) {
            (_, Some(true)) => self.sender = Some(slot),
            (Some(sender), Some(false)) if sender == slot => self.sender = None,
            _ => {}
        }
        self.put(slot, events);
        if let Some((rest, pid)) = rest {
            self.behind.push_back(Behind::Failover(pid));
            self.push(slot, rest);
        }
    }

    fn put(&mut self, slot: u16, events: Vec<u8>) {
        self.queued += events.len();
        match self.behind.is_empty() {
            _ if events.is_empty() => {}
            true => self.queues.entry(slot).or_default().push_back(events),
            false => self.behind.push_back(Behind::Events(slot, events)),
        }
    }

    /// Where the primary died and another went on, tickets may be missing for good. All that was logged before has been
    /// handed over, so the replaying process can tell which; what comes behind waits until it has applied everything.
    fn pass_failover(&mut self) {
        let Some(Behind::Failover(pid)) = self.behind.front() else { return };
        if self.queues.values().any(|queue| !queue.is_empty()) {
            return;
        }
        let header = self.rings.segment.header();
        let word = &header.command.0;
        if self.unapplied() > 0 {
            if word.swap(command::CLOSE_GAPS, Ordering::AcqRel) != command::CLOSE_GAPS {
                segment::wake(word);
            }
            return;
        }
        // Signals that it sends itself say so by this number.
        header.primary_pid.store(*pid, Ordering::Release);
        word.store(command::FOLLOW, Ordering::Release);
        self.behind.pop_front();
        while let Some(Behind::Events(..)) = self.behind.front() {
            if let Some(Behind::Events(slot, events)) = self.behind.pop_front() {
                self.queues.entry(slot).or_default().push_back(events);
            }
        }
    }

    /// Whether all of its events have been handed over.
    pub fn has_all(&self) -> bool {
        self.queued == 0 && self.behind.is_empty()
    }

    /// Bytes that wait for room.
    pub fn queued(&self) -> usize {
        self.queued
    }

    /// Whether any of its slots could go on if there were more. Only slots that exist in the replaying process ask.
    pub fn is_hungry(&self) -> bool {
        self.queued == 0 && self.behind.is_empty() && self.ending.is_none() && self.unapplied() < PIECE as u64
    }

    /// Hands over what there is room for. Returns how many bytes.
    ///
    /// # Errors
    /// When there is no memory for the rings.
    pub fn feed(&mut self) -> std::io::Result<usize> {
        self.pass_failover();
        let mut done = 0;
        for (slot, queue) in &mut self.queues {
            let slot = usize::from(*slot);
            while let Some(first) = queue.front_mut() {
                let whole = fitting(first, self.rings.room(slot));
                if whole == 0 {
                    break;
                }
                self.rings.write(slot, &first[..whole])?;
                self.rings.segment.header().slots.fetch_max(slot as u32 + 1, Ordering::AcqRel);
                done += whole;
                self.queued -= whole;
                if whole == first.len() {
                    queue.pop_front();
                } else {
                    first.drain(..whole);
                }
            }
        }
        Ok(done)
    }

    /// Bytes handed over and not applied yet.
    pub fn unapplied(&self) -> u64 {
        (0..self.rings.segment.slots())
            .map(|slot| self.rings.waiting(slot))
            .map(|(head, tail)| tail - head)
            .sum()
    }

    /// Notes whether anything has been applied since the last look. No time passes while the output waits for its reader.
    pub fn look(&mut self, now_ns: u64, output_waits: bool) {
        let heads = (0..self.rings.segment.slots()).map(|slot| self.rings.waiting(slot).0);
        let progress = heads.fold(0u64, u64::wrapping_add);
        if progress != self.progress || self.progress_ns == 0 || output_waits {
            (self.progress, self.progress_ns) = (progress, now_ns);
            self.progress_cpu_s = self.cpu_s();
        }
        match self.queued == 0 && self.behind.is_empty() && self.unapplied() == 0 {
            true if output_waits => self.still_since_ns = Some(now_ns),
            true => _ = self.still_since_ns.get_or_insert(now_ns),
            false => self.still_since_ns = None,
        }
    }

    fn cpu_s(&self) -> f64 {
        proc::read(self.process()).map_or(0.0, |process| process.cpu_s)
    }

    /// Whether there are events that nobody comes to: all threads wait for one another. One that computes does not wait.
    pub fn is_stuck(&self, now_ns: u64) -> bool {
        const COMPUTES_S: f64 = 0.5;
        self.waits(now_ns, STUCK_NS) && self.cpu_s() - self.progress_cpu_s < COMPUTES_S
    }

    /// Whether there are events and nobody has come to the next one for so long.
    pub fn waits(&self, now_ns: u64, limit_ns: u64) -> bool {
        self.unapplied() > 0 && now_ns.saturating_sub(self.progress_ns) > limit_ns && self.process() != 0
    }

    /// Whether it can move nobody else: it has not moved for so long, and all its threads sleep.
    pub fn sleeps(&self, now_ns: u64, limit_ns: u64) -> bool {
        self.process() == 0
            || now_ns.saturating_sub(self.progress_ns) > limit_ns && proc::sleeps(self.process())
    }

    /// The kernel's number of the replaying process, 0 while there is none.
    pub fn process(&self) -> u32 {
        self.child.unwrap_or_else(|| self.rings.segment.header().standby_pid.load(Ordering::Acquire))
    }

    /// Where the replay did something else than the recording says, and what.
    pub fn divergence(&self) -> Option<String> {
        let header = self.rings.segment.header();
        let words = read_text(&header.last_words.0).map(|(_, words)| format!("internal error: {words}"));
        let why = || read_text(&header.why.0).map_or("no reason was given".into(), |(_, why)| why);
        words.or_else(|| (header.divergences.load(Ordering::Acquire) > 0).then(why))
    }

    /// The recorded process was killed here. No replay dies by itself of a signal, which waits behind every door; whoever
    /// looks on is stopped in the thread that sent it, if the log has that. Going on is the end. Whether this was the
    /// first time.
    pub fn die(&mut self) -> bool {
        let first = !std::mem::replace(&mut self.has_died, true);
        let sender = self.sender.map(|slot| self.rings.segment.thread(usize::from(slot)));
        match sender.map(|entry| entry.standby_tid.load(Ordering::Acquire)).filter(|tid| *tid != 0) {
            _ if !first => spawn::signal(self.process(), libc::SIGKILL),
            Some(tid) => spawn::signal_thread(self.process(), tid, libc::SIGSTOP),
            None => spawn::signal(self.process(), libc::SIGSTOP),
        }
        self.still_since_ns = None;
        first
    }

    /// Ends the replaying process: there is nothing more for it.
    pub fn end(&self) {
        let word = &self.rings.segment.header().command.0;
        word.store(command::END, Ordering::Release);
        segment::wake(word);
    }
}

/// Bytes of the whole events at the start of `events` that fit into `room`, at most about a piece.
fn fitting(events: &[u8], room: usize) -> usize {
    let mut at = 0;
    while let Some((size, _)) = first_event(&events[at..]) {
        if at + size > room || (at > 0 && at + size > PIECE) {
            break;
        }
        at += size;
    }
    at
}
