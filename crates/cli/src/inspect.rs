//! `inspect`: what a recording holds, counted.

pub mod events;
pub mod plot;
pub mod text;

use std::collections::{BTreeMap, HashMap};
use std::path::Path;

use recording::{Error, Event, Events, Header, How, Item, Reader};
use serde::{Serialize, Serializer};
use us_abi::event::{AFTER_WAIT, EventKind, MUTEX_HOW, op, time};
use us_abi::{CLASS_NAMES, CLOCKS};
use us_calls::Class;
use us_supervisor::clock;
use us_supervisor::recorder::why_cut;
use us_supervisor::snapshot::call_name;

use crate::progress::Progress;

/// What `inspect --json` prints.
#[derive(Clone, Debug, Serialize)]
pub struct Inspection {
    /// Version of these fields.
    pub version: u32,
    /// PROGRAM and its arguments.
    pub program: Vec<String>,
    /// Its start, RFC 3339.
    pub started: String,
    /// Version of Understudy that recorded it.
    pub understudy: String,
    /// From the start to the last chunk, seconds.
    pub duration_s: f64,
    /// Threads that there have been.
    pub threads: u64,
    /// Processes that there have been: an exec makes none.
    pub processes: u64,
    /// Process images that there have been: an exec makes one.
    pub images: u64,
    /// Events.
    pub events: u64,
    /// What they took in the rings.
    pub bytes_raw: u64,
    /// Size of the file.
    pub bytes_file: u64,
    /// Whether the recording was finished, and holds all that its processes did.
    pub complete: bool,
    /// Where it ends if it is not.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub broken: Option<Broken>,
    /// Processes that went on behind the end of their logs.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub cut: Vec<Cut>,
    /// Every class of `status`' `events_by_class`.
    pub by_class: BTreeMap<&'static str, Count>,
    /// System calls, by name.
    pub by_call: BTreeMap<String, Count>,
    /// What is no system call, by what was done.
    pub by_operation: BTreeMap<&'static str, Count>,
    /// Every kind of message of [`MESSAGES`].
    pub by_message: BTreeMap<&'static str, Count>,
    /// Slots of every process image, in order.
    pub by_thread: Vec<ThreadCount>,
}

/// Where a recording ends that is not complete.
#[derive(Clone, Debug, Serialize)]
pub struct Broken {
    /// End of what can be read, bytes.
    pub offset: u64,
    /// Chunks that can be read.
    pub chunks: u64,
    /// False: somebody may still be writing it.
    pub damaged: bool,
    /// In a sentence.
    pub why: String,
}

/// A process whose log ends before it did.
#[derive(Clone, Debug, Serialize)]
pub struct Cut {
    /// The number of its image.
    pub image: u32,
    /// The pid that it knows as its own.
    pub pid: i32,
    /// In a sentence.
    pub why: String,
}

/// How much of something there is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Count {
    /// Events; a call has two, one that waits for nobody one.
    pub events: u64,
    /// What they took in the rings.
    pub bytes: u64,
    /// What they take in the file.
    #[serde(serialize_with = "whole")]
    pub bytes_file: f64,
}

/// Shares of a column are no whole bytes; nobody wants to read their fractions.
fn whole<S: Serializer>(value: &f64, to: S) -> Result<S::Ok, S::Error> {
    to.serialize_u64(value.round() as u64)
}

impl Count {
    fn add(&mut self, other: Count) {
        self.events += other.events;
        self.bytes += other.bytes;
        self.bytes_file += other.bytes_file;
    }
}

/// Events of one slot of one process image.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct ThreadCount {
    /// The number of the image.
    pub image: u32,
    /// The pid that it knows as its own.
    pub pid: i32,
    /// The slot, used by one thread after the other.
    pub slot: u16,
    /// Threads that began in it.
    pub begun: u64,
    /// What they logged.
    #[serde(flatten)]
    pub count: Count,
}

/// The kinds of messages that studies of replication count, in the order of a stack: what orders threads, reads of a
/// clock, system calls, and the rest, of which `output` is what went to the terminal.
pub const MESSAGES: [&str; 7] = ["schedule", "clock", "call", "output", "signal", "thread", "other"];

/// Reads the recording at `path` as far as it goes.
///
/// # Errors
/// Those of [`Reader::open`]: without its header nothing can be said.
pub fn read(path: &Path) -> Result<Inspection, Error> {
    let mut reader = Reader::open(path)?;
    reader.measure();
    let bytes_file = path.metadata()?.len();
    let progress = Progress::new(bytes_file);
    let mut counts = Counts::default();
    let broken = loop {
        progress.at(reader.offset(), "reading");
        match reader.next() {
            Ok(Some(item)) => counts.item(&item, reader.costs()),
            Ok(None) => break None,
            Err(error) => break Some(broken(error, &reader)),
        }
    };
    drop(progress);
    let seen = reader.seen();
    let header = reader.header();
    let mut found = Inspection {
        version: 1,
        program: header.program.iter().map(|word| String::from_utf8_lossy(word).into_owned()).collect(),
        started: started(header),
        understudy: header.understudy.clone(),
        duration_s: (seen.duration_ns / 1_000_000) as f64 / 1000.0,
        threads: counts.threads,
        processes: counts.processes,
        images: counts.pids.len() as u64,
        events: seen.events,
        bytes_raw: seen.bytes_raw,
        bytes_file,
        complete: broken.is_none() && counts.cut.is_empty(),
        broken,
        cut: counts.cut,
        by_class: CLASS_NAMES.map(|name| (name, Count::default())).into(),
        by_call: BTreeMap::new(),
        by_operation: BTreeMap::new(),
        by_message: MESSAGES.map(|name| (name, Count::default())).into(),
        by_thread: counts.slots.into_values().collect(),
    };
    counts.kinds.iter().for_each(|(what, count)| found.add(*what, *count));
    Ok(found)
}

fn started(header: &Header) -> String {
    let ns = header.started_unix_ns;
    clock::rfc3339(ns / 1_000_000_000, (ns / 1_000_000 % 1000) as u32)
}

fn broken(error: Error, reader: &Reader) -> Broken {
    let why = error.to_string();
    match error {
        Error::Damaged { offset, chunk, .. } => Broken { offset, chunks: chunk, damaged: true, why },
        Error::Unfinished { offset, chunk, .. } => Broken { offset, chunks: chunk, damaged: false, why },
        _ => Broken { offset: reader.offset(), chunks: reader.chunks(), damaged: true, why },
    }
}

impl Inspection {
    /// PROGRAM and its arguments on one line. Whoever made the recording wrote them, and a terminal obeys control
    /// characters.
    fn command(&self) -> String {
        let command = self.program.join(" ");
        command.chars().map(|c| if c.is_control() { char::REPLACEMENT_CHARACTER } else { c }).collect()
    }

    /// Adds all events of one kind and call, the class being that of `status`.
    fn add(&mut self, (kind, call): (u8, u16), count: Count) {
        let kind = EventKind::from_u8(kind);
        let class = kind.map_or(Class::Other, |kind| Class::of_event(kind, call));
        self.by_class.entry(class.name()).or_default().add(count);
        let message = match kind {
            Some(EventKind::Enter | EventKind::Return | EventKind::Call) => {
                self.by_call.entry(call_name(call.into())).or_default().add(count);
                self.by_message.entry("call").or_default().add(count);
                return;
            }
            Some(EventKind::Time) => "clock",
            Some(EventKind::Signal) => "signal",
            Some(EventKind::ThreadStart | EventKind::ThreadExit) => "thread",
            Some(EventKind::Output) => "output",
            Some(EventKind::Yield | EventKind::Turn) => "schedule",
            Some(
                EventKind::Mutex
                | EventKind::Ordered
                | EventKind::Barrier
                | EventKind::OnceRun
                | EventKind::Atomic,
            ) => "schedule",
            _ => "other",
        };
        self.by_message.entry(message).or_default().add(count);
        self.by_operation.entry(operation(kind, call)).or_default().add(count);
    }
}

/// What an event that is no system call was about.
fn operation(kind: Option<EventKind>, call: u16) -> &'static str {
    match kind {
        Some(EventKind::Mutex) if call & MUTEX_HOW == AFTER_WAIT => "condition wait",
        Some(EventKind::Mutex) => "mutex",
        Some(EventKind::Ordered) => match call >> 12 {
            op::ROBUST => "robust mutex",
            op::READ => "rwlock read",
            op::WRITE => "rwlock write",
            op::SEM_WAIT => "semaphore wait",
            op::SEM_POST => "semaphore post",
            op::SEM_VALUE => "semaphore value",
            op::SPIN => "spin lock",
            op::STREAM => "stream",
            op::LIBC => "libc",
            op::ONCE => "once",
            op::GUARD => "guard",
            op::JOIN => "join",
            _ => "unknown",
        },
        Some(EventKind::Barrier) => "barrier",
        Some(EventKind::OnceRun) => "initialiser",
        Some(EventKind::Time) => match call {
            time::COUNTER => "counter read",
            time::PROCESSOR => "processor read",
            _ => "clock read",
        },
        Some(EventKind::Signal) => "signal",
        Some(EventKind::ThreadStart) => "thread start",
        Some(EventKind::ThreadExit) => "thread exit",
        Some(EventKind::Image) => "process image",
        Some(EventKind::Output) => "output",
        Some(EventKind::Yield) => "yield",
        Some(EventKind::Turn) => "turn",
        Some(EventKind::Common) => "shared memory",
        Some(EventKind::Alike) => "shared memory chosen",
        Some(EventKind::Again) => "call begun again",
        Some(EventKind::Failover) => "failover",
        Some(EventKind::Atomic) => "atomic instruction",
        Some(EventKind::Gate) => "connection at the gate",
        Some(EventKind::Picture) => "piece of an image",
        _ => "unknown",
    }
}

/// What is counted on the way.
#[derive(Debug, Default)]
struct Counts {
    /// By kind and call; of hashed clocks the operation alone.
    kinds: HashMap<(u8, u16), Count>,
    slots: BTreeMap<(u32, u16), ThreadCount>,
    /// Of every image, its pid.
    pids: Vec<i32>,
    processes: u64,
    threads: u64,
    cut: Vec<Cut>,
}

impl Counts {
    fn item(&mut self, item: &Item, costs: &[f32]) {
        match item {
            Item::Image(image) => {
                self.pids.push(image.pid);
                if image.how != How::Executed {
                    // Its first thread is made with it, and says nothing.
                    self.processes += 1;
                    self.threads += 1;
                }
            }
            Item::Events { image, slot, bytes } => self.events((*image, *slot), bytes, costs),
            Item::End { image, facts, .. } => self.cut.extend(why_cut(facts).map(|why| Cut {
                image: *image,
                pid: self.pids.get(*image as usize).copied().unwrap_or_default(),
                why,
            })),
            Item::Complete(_) => {}
        }
    }

    fn events(&mut self, whose: (u32, u16), bytes: &[u8], costs: &[f32]) {
        let pid = self.pids.get(whose.0 as usize).copied().unwrap_or_default();
        let (image, slot) = whose;
        let thread =
            self.slots.entry(whose).or_insert(ThreadCount { image, pid, slot, ..ThreadCount::default() });
        for (event, cost) in Events::new(bytes).zip(costs) {
            let count = Count { events: 1, bytes: event.size() as u64, bytes_file: f64::from(*cost) };
            self.kinds.entry(key(&event)).or_default().add(count);
            thread.count.add(count);
            if event.header.kind == EventKind::ThreadStart as u8 {
                thread.begun += 1;
                self.threads += 1;
            }
        }
    }
}

fn key(event: &Event) -> (u8, u16) {
    let header = &event.header;
    let is_hashed = header.kind == EventKind::Ordered as u8 || header.kind == EventKind::OnceRun as u8;
    (header.kind, if is_hashed { header.call & !(CLOCKS as u16 - 1) } else { header.call })
}
