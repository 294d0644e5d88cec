//! One ring with its two readers, explored: every interleaving of the thread that writes it, the standby and the recorder, with a
//! kill of the writer between any two steps. All ends are the code that ships ([`us_ring`]), with the sizes that it ships with.
//!
//! What loom shows of two words in every memory order, this shows of whole laps: that nothing is written over what somebody has still
//! to read, or where there is no memory, that every reader finds every event, and that a ring goes back to its beginning where its
//! readers keep up.

use std::cell::Cell;
use std::collections::{BTreeMap, HashSet};

use us_abi::event::{EventKind, Header, NO_TICKET};
use us_abi::{EVENT_ALIGN, RING_BYTES, RING_NEAR, RING_STEP};
use us_ring::{Consumer, Memory, Position, Producer, Readers, Room};

use crate::hash::Fingerprint;
use crate::mutation::Mutation;

const RING: u64 = RING_BYTES as u64;
const STEP: u64 = RING_STEP as u64;

/// What the thread writes, and what the ring is like when it begins.
#[derive(Clone, Debug)]
pub struct Program {
    /// Its name.
    pub name: &'static str,
    /// What it is for.
    pub why: &'static str,
    /// Where the log goes on.
    pub start: u64,
    /// Up to where the readers have read. If that is elsewhere, the first event lies there, and behind it a skip.
    pub read: u64,
    /// Payloads of the events.
    pub events: &'static [u32],
    /// Bytes of the ring for which its file system has room. If that is all, they have been asked for before.
    pub memory: usize,
    /// Bytes that the writer may be ahead before it looks again.
    pub lead: u64,
}

/// The programs.
#[must_use]
pub fn programs() -> Vec<Program> {
    let of = |name, why, start, events| Program {
        name,
        why,
        start,
        read: start,
        events,
        memory: RING_BYTES,
        lead: u64::MAX,
    };
    vec![
        of("ring-boundary", "a boundary lies between the events", STEP - 48, &[0, 0, 8, 0]),
        of(
            "ring-large",
            "an event is larger than what is left before a boundary",
            STEP - 4096,
            &[16, 8192, 0],
        ),
        of("ring-end", "the last bytes of a lap are too few for a skip", RING - 16, &[0, 0, 0]),
        Program {
            read: 0,
            ..of(
                "ring-full",
                "a ring that is all but full: the first event's place",
                RING - 32,
                &[64, 0, 0, 0],
            )
        },
        Program {
            read: STEP - 32 - RING_NEAR as u64 - 64,
            ..of(
                "ring-behind",
                "the readers are just too far behind, until they read",
                STEP - 32,
                &[0, 0, 0, 0],
            )
        },
        Program {
            memory: STEP as usize,
            ..of(
                "ring-no-room",
                "the file system is full behind the first part",
                STEP - 8192,
                &[4096, 4096, 0],
            )
        },
        Program { memory: 0, ..of("ring-no-skip", "there is no memory for the skip", STEP - 16, &[64]) },
        Program { memory: 0, ..of("ring-nothing", "the file system is full from the beginning", 0, &[0]) },
        Program {
            lead: 32,
            ..of("ring-lead", "the writer looks again after two events", 0, &[0, 0, 0, 0, 0])
        },
    ]
}

/// What went wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Violation {
    /// Bytes were written that a reader had not given back.
    Overwritten,
    /// Bytes were written behind which there is no memory: SIGBUS, natively unheard of.
    NoMemory,
    /// A reader found something else than the next event.
    WrongEvent,
    /// Nobody can go on, and somebody has not come to the end.
    Deadlock,
    /// The ring went on behind a boundary, though its readers kept up when the writer looked.
    NotGoneBack,
}

/// Where the writer is with its next event.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
enum Phase {
    #[default]
    Begins,
    /// It has seen where the readers are.
    Looked(Readers),
    /// Written, and not published.
    Written,
    /// It is dead, or there is no log any more.
    Over,
}

/// A reader.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
struct Reader {
    end: Consumer,
    head: u64,
    /// Events read.
    count: usize,
    /// It has an event in hand, of so many bytes.
    open: usize,
    /// The supervisor has given it up.
    is_gone: bool,
}

/// Everything.
#[derive(Clone, Debug, Hash)]
struct State {
    producer: Producer,
    phase: Phase,
    written: usize,
    tail: u64,
    words: BTreeMap<u64, u64>,
    memory: usize,
    /// The next event may lie across a boundary: the readers are far behind, or the lap has no room for a skip.
    may_cross: bool,
    readers: [Reader; 2],
    bad: Option<Violation>,
}

/// A position that both sides see at once: what may be seen later is loom's.
struct Seen<'a>(&'a Cell<u64>);

impl Position for Seen<'_> {
    fn acquire(&self) -> u64 {
        self.0.get()
    }
    fn release(&self, value: u64) {
        self.0.set(value);
    }
}

/// The ring's bytes, by words. What is written is noted, and judged afterwards.
struct Bytes<'a> {
    words: &'a mut BTreeMap<u64, u64>,
    touched: Vec<u64>,
}

impl Memory for Bytes<'_> {
    fn put(&mut self, at: u64, value: u64) {
        self.words.insert(at % RING, value);
        self.touched.push(at);
    }
    fn get(&self, at: u64) -> u64 {
        self.words.get(&(at % RING)).copied().unwrap_or(0)
    }
}

/// What an exploration saw.
#[derive(Clone, Debug, Default)]
pub struct Report {
    /// Distinct states.
    pub states: usize,
    /// The first violation, and the way to it.
    pub failure: Option<(Violation, Vec<String>)>,
}

/// Explores a program, with one rule broken or none.
#[must_use]
pub fn check(program: &Program, mutation: Option<Mutation>) -> Report {
    let mut report = Report::default();
    let mut nodes: Vec<(usize, String)> = vec![(0, String::new())];
    let start = State::new(program);
    let mut seen = HashSet::from([Fingerprint::of(&start)]);
    let mut queue = std::collections::VecDeque::from([(start, 0)]);
    while let Some((state, node)) = queue.pop_front() {
        let next = state.successors(program, mutation);
        let stuck = next.is_empty() && state.is_unfinished();
        if let Some(violation) = state.bad.or(stuck.then_some(Violation::Deadlock)) {
            let mut lines = Vec::new();
            let mut at = node;
            while at != 0 {
                lines.push(nodes[at].1.clone());
                at = nodes[at].0;
            }
            lines.reverse();
            report.failure = Some((violation, lines));
            break;
        }
        for (state, label) in next {
            if seen.insert(Fingerprint::of(&state)) {
                nodes.push((node, label));
                queue.push_back((state, nodes.len() - 1));
            }
        }
    }
    report.states = seen.len();
    report
}

impl State {
    fn new(program: &Program) -> State {
        let mut words = BTreeMap::new();
        if program.read < program.start {
            let (at, first) = (program.read % RING, Header::size(program.events[0]) as u64);
            let rest = program.start - program.read - first - EVENT_ALIGN as u64;
            let skip = Header::word(EventKind::Skip, 0, 0, u32::try_from(rest).expect("less than a ring"));
            words.extend([(at, Header::word(EventKind::Time, 0, 0, program.events[0])), (at + 8, 0)]);
            words.extend([(at + first, skip), (at + first + 8, NO_TICKET)]);
        }
        let there = if program.memory == RING_BYTES { RING_BYTES } else { 0 };
        let reader = Reader { end: Consumer::new(program.read), head: program.read, ..Reader::default() };
        State {
            producer: Producer { populated: there, ..Producer::new(program.start, RING) },
            phase: Phase::Begins,
            written: usize::from(program.read < program.start),
            tail: program.start,
            words,
            memory: there,
            may_cross: false,
            readers: [reader; 2],
            bad: None,
        }
    }

    /// Who reads.
    fn heads(&self) -> Readers {
        let of = |reader: &Reader| (!reader.is_gone).then_some(reader.head);
        Readers { standby: of(&self.readers[0]), recorder: of(&self.readers[1]) }
    }

    fn is_unfinished(&self) -> bool {
        let has_all = |reader: &Reader| reader.is_gone || reader.head == self.tail;
        self.phase != Phase::Over || !self.readers.iter().all(has_all)
    }

    fn successors(&self, program: &Program, mutation: Option<Mutation>) -> Vec<(State, String)> {
        let mut next = Vec::new();
        if self.bad.is_some() {
            return next;
        }
        if self.phase != Phase::Over {
            let mut writes = self.clone();
            let label = writes.write(program, mutation);
            // A step that changes nothing waits for a reader.
            if writes.phase != self.phase || writes.producer != self.producer {
                next.push((writes, format!("writer    {label}")));
            }
            next.push((State { phase: Phase::Over, ..self.clone() }, "writer    is killed".into()));
        }
        for (at, who) in ["standby", "recorder"].into_iter().enumerate() {
            let mut reads = self.clone();
            if let Some(label) = reads.read(at, program, mutation) {
                next.push((reads, format!("{who:<9} {label}")));
            }
        }
        if self.phase != Phase::Over && !self.readers[1].is_gone {
            let mut gone = self.clone();
            gone.readers[1].is_gone = true;
            next.push((gone, "recorder  is given up".into()));
        }
        next
    }

    /// One step of the writer.
    fn write(&mut self, program: &Program, mutation: Option<Mutation>) -> &'static str {
        let Some(payload) = program.events.get(self.written).copied() else {
            self.phase = Phase::Over;
            return "ends";
        };
        let bytes = Header::size(payload);
        match self.phase {
            Phase::Begins if !self.producer.fits(bytes + EVENT_ALIGN) => {
                let mut readers = self.heads();
                if mutation == Some(Mutation::RingRecorderIgnored) {
                    readers.recorder = None;
                }
                self.phase = Phase::Looked(readers);
                "looks where the readers are"
            }
            Phase::Begins => {
                let (at, words) = (self.producer.at, &mut self.words);
                words.insert(at % RING, Header::word(EventKind::Time, 0, 0, payload));
                words.insert((at + 8) % RING, self.written as u64);
                words.insert((at + bytes as u64 - 8) % RING, self.written as u64);
                self.judge(at, bytes as u64);
                if !self.may_cross && at / STEP != (at + bytes as u64) / STEP {
                    self.bad = Some(Violation::NotGoneBack);
                }
                self.phase = Phase::Written;
                "writes an event"
            }
            Phase::Looked(readers) => self.make_room(bytes + EVENT_ALIGN, readers, program, mutation),
            Phase::Written => {
                let tail = Cell::new(self.tail);
                self.producer.publish(bytes, &Seen(&tail));
                (self.tail, self.phase) = (tail.get(), Phase::Begins);
                self.written += 1;
                "publishes it"
            }
            Phase::Over => unreachable!("over"),
        }
    }

    fn make_room(
        &mut self,
        bytes: usize,
        readers: Readers,
        program: &Program,
        mutation: Option<Mutation>,
    ) -> &'static str {
        self.phase = Phase::Begins;
        let Some(head) = readers.slowest() else {
            self.phase = Phase::Over;
            return "has no reader, and ends its log";
        };
        let at = self.producer.at;
        self.may_cross = at - head > RING_NEAR as u64 || RING - at % RING < 2 * EVENT_ALIGN as u64;
        let (tail, mut memory) = (Cell::new(self.tail), self.memory);
        let mut ring = Bytes { words: &mut self.words, touched: Vec::new() };
        let back = |from: usize, bytes: usize| {
            if mutation != Some(Mutation::RingMemoryNotAsked) && from + bytes > program.memory {
                return false;
            }
            memory = memory.max((from + bytes).min(program.memory));
            true
        };
        let room = self.producer.make_room(bytes, head, program.lead, (&mut ring, &Seen(&tail)), back);
        let touched = std::mem::take(&mut ring.touched);
        (self.tail, self.memory) = (tail.get(), memory);
        touched.into_iter().for_each(|at| self.judge(at, 8));
        match room {
            (Room::Made, 0) => "has room",
            (Room::Made, _) => "goes back, and has room",
            (Room::Full, 0) => "has no room",
            (Room::Full, _) => "goes back, and has no room",
            (Room::NoMemory, _) => {
                self.phase = Phase::Over;
                "gets no memory, and ends its log"
            }
        }
    }

    /// What is wrong with a write of these bytes.
    fn judge(&mut self, at: u64, bytes: u64) {
        let heads = self.heads();
        if heads.slowest().is_some_and(|head| at + bytes > head + RING) {
            self.bad = Some(Violation::Overwritten);
        }
        // The doubled mapping goes on with the ring's beginning, which has memory.
        if (at % RING + bytes).min(RING) > self.memory as u64 {
            self.bad = Some(Violation::NoMemory);
        }
    }

    /// One step of a reader.
    fn read(&mut self, at: usize, program: &Program, mutation: Option<Mutation>) -> Option<&'static str> {
        let early = mutation == Some(Mutation::RingReleasedBeforeApply);
        let (head, tail) = (Cell::new(self.readers[at].head), Cell::new(self.tail));
        let ring = Bytes { words: &mut self.words, touched: Vec::new() };
        let reader = &mut self.readers[at];
        if reader.is_gone {
            return None;
        }
        if reader.open == 0 {
            let Some(event) = reader.end.front(&ring, &Seen(&tail), &Seen(&head)) else {
                // What it has passed on the way counts.
                let moved = reader.head != head.get();
                reader.head = head.get();
                return moved.then_some("passes a skip");
            };
            let wanted = (EventKind::Time as u8, program.events.get(reader.count), reader.count as u64);
            if (event.kind, Some(&event.len), event.ticket) != wanted {
                self.bad = Some(Violation::WrongEvent);
                return Some("finds another event");
            }
            reader.open = Header::size(event.len);
            if early {
                reader.end.release(reader.open, &Seen(&head));
            }
            reader.head = head.get();
            return Some("takes an event");
        }
        let begin = if early { reader.end.at - reader.open as u64 } else { reader.end.at };
        let places = [begin + 8, begin + reader.open as u64 - 8];
        if places.iter().any(|place| ring.get(*place) != reader.count as u64) {
            self.bad = Some(Violation::WrongEvent);
            return Some("applies another event");
        }
        if !early {
            reader.end.release(reader.open, &Seen(&head));
        }
        (reader.head, reader.open) = (head.get(), 0);
        reader.count += 1;
        Some("applies it, and gives it back")
    }
}
