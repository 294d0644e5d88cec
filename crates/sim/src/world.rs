//! The state that is explored: two copies of a program, the rings between them, and the kernel they share.

use us_order::live;

use crate::queue::Queue;

/// Thread slots.
pub const SLOTS: usize = 4;
/// Events a ring can hold; no program fills one.
pub const RING: usize = 24;
/// Descriptor numbers.
pub const FDS: usize = 5;
/// Open objects over a program's life.
pub const OBJECTS: usize = 6;
/// Bytes that an object can be sent.
pub const OUT: usize = 12;
/// Clocks: one in each mutex, one for all hashed objects, one for kernel calls.
pub const CLOCKS: usize = 5;
/// The first clock that several objects share.
pub const HASHED: u8 = 3;
/// The kernel clock.
pub const KERNEL: u8 = 4;
/// "No clock": the event has no ticket.
pub const NO_CLOCK: u8 = u8::MAX;
/// Where an object came from that nobody outside can see: the kernel's own, without a name.
pub const ANONYMOUS: u8 = 8;
/// Where the object came from that a stranger has opened: see [`crate::stranger`].
pub const STRANGERS: u8 = 9;
/// The same of one that settling has closed, and that nobody has ever used: the next one without a name takes its place.
pub const DISCARDED: u8 = 10;
/// A call's answer when the number is not open.
pub const EBADF: u8 = 200;

/// What an event tells.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Kind {
    /// No event.
    #[default]
    None,
    /// A mutex was acquired.
    Lock,
    /// A try failed.
    TryFailed,
    /// Any other ordered operation.
    Ordered,
    /// A barrier was left.
    Barrier,
    /// An initialiser is about to run.
    Run,
    /// A call has begun.
    Enter,
    /// A call has returned.
    Return,
    /// A call has returned with a part of its bytes, and the rest is a call of its own.
    Part,
    /// A call that had begun was not done, and begins again.
    Again,
    /// A thread has the turn.
    Turn,
    /// A thread waits, and has given its turn to others.
    Yield,
    /// A thread has started.
    Start,
    /// A thread is about to end.
    Exit,
}

/// One event.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Event {
    /// What it tells.
    pub kind: Kind,
    /// Where in the program: stands for the digest that the two copies compare.
    pub pc: u8,
    /// Clock of the ticket, or [`NO_CLOCK`].
    pub clock: u8,
    /// The ticket.
    pub ticket: u8,
    /// Result, or slot.
    pub a: u8,
    /// Data, identity, or generation.
    pub b: u8,
}

/// An empty slot.
pub const NO_EVENT: Event = Event { kind: Kind::None, pc: 0, clock: NO_CLOCK, ticket: 0, a: 0, b: 0 };

/// All rings: final once the primary is dead.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Rings {
    /// Events by slot.
    pub events: [[Event; RING]; SLOTS],
    /// Published events by slot.
    pub tail: [u8; SLOTS],
    /// The unpublished slot at the tail, into which the kernel reads.
    pub scratch: [u8; SLOTS],
    /// Bytes that the kernel has moved for the call whose return is to come: it notes them in the unpublished slot.
    pub noted: [u8; SLOTS],
    /// The mark in that slot: the kernel has been entered.
    pub entered: [bool; SLOTS],
}

/// Life of a thread.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Status {
    /// Never created, or the slot is free.
    #[default]
    Absent,
    /// Exists.
    Running,
    /// Has ended.
    Ended,
}

/// A thread of one copy. `phase` counts the steps inside an operation; each copy's module names its own.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Thread {
    /// Life.
    pub status: Status,
    /// Next operation.
    pub pc: u8,
    /// Step within it.
    pub phase: u8,
    /// Ticket in hand, or the barrier round.
    pub ticket: u8,
    /// Result in hand.
    pub result: u8,
    /// Data in hand.
    pub data: u8,
    /// Operation whose LOCK is still to be published (a broken rule needs it).
    pub stash_pc: u8,
    /// Where to go on after the event has been consumed.
    pub next_pc: u8,
    /// Its phase.
    pub next_phase: u8,
    /// Identity and generation that the descriptor had at the ENTER.
    pub then: (u8, u8),
    /// Bytes of a write that have been moved.
    pub moved: u8,
    /// The same at its last ENTER.
    pub from: u8,
    /// The number of its turn plus one, 0 if it has none.
    pub turn: u8,
    /// Registers.
    pub regs: [u8; 4],
    /// What the descriptors in the registers really stand for: only the checks look at it.
    pub objects: [u8; 4],
}

/// State of a once-object.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum OnceState {
    /// Not run.
    #[default]
    Idle,
    /// Somebody runs it.
    Running,
    /// Completed.
    Done,
}

/// An entry of the shadow table of descriptors.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Shadow {
    /// The object plus one, 0 if closed.
    pub object: u8,
    /// How often the log has given the number away.
    pub generation: u8,
}

/// The order of turns. A copy that acts uses the first two, one that follows the others.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Turns {
    /// The next number.
    pub next: u8,
    /// Number of the turn that somebody has, plus one; 0 if nobody has it.
    pub had: u8,
    /// Turns that have begun.
    pub begun: u8,
    /// Turns that have ended.
    pub ended: u8,
}

/// One copy of the program: its memory and its threads.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Side {
    /// Threads by slot.
    pub threads: [Thread; SLOTS],
    /// Clocks.
    pub clocks: [u8; CLOCKS],
    /// Owner's slot plus one.
    pub mutex: [u8; 3],
    /// Who waits on each condition.
    pub waiters: [Queue; 2],
    /// Semaphore values.
    pub sems: [u8; 2],
    /// Reading slots, as bits.
    pub readers: u8,
    /// Writing slot plus one.
    pub writer: u8,
    /// Arrivals of the barrier's round.
    pub arrived: u8,
    /// The barrier's round.
    pub round: u8,
    /// Whether the serial thread of an even / odd round has left.
    pub serial: [bool; 2],
    /// Once-objects.
    pub once: [OnceState; 2],
    /// The program's variables.
    pub vars: [u16; 4],
    /// Users that a slot has had.
    pub generation: [u8; SLOTS],
    /// Whether somebody has joined a slot's last thread.
    pub joined: [bool; SLOTS],
    /// What the log says about descriptors.
    pub shadow: [Shadow; FDS],
    /// Bytes written per object, by the log.
    pub written: [u8; OBJECTS],
    /// Bytes read per object, by the log.
    pub read: [u8; OBJECTS],
    /// Whose turn it is.
    pub turns: Turns,
}

/// The kernel: it survives the primary.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Kernel {
    /// Object plus one, by number.
    pub fds: [u8; FDS],
    /// Where an object came from.
    pub origin: [u8; OBJECTS],
    /// Every byte that an outside observer has received, by object.
    pub out: [[u8; OUT]; OBJECTS],
    /// How many.
    pub out_len: [u8; OBJECTS],
    /// Bytes consumed of each object's input, which is 1, 2, 3, …
    pub consumed: [u8; OBJECTS],
    /// Objects made so far.
    pub made: u8,
    /// A process that shares the table, and is no copy.
    pub stranger: Stranger,
}

/// How far a stranger is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Stranger {
    /// It waits for the program to open something.
    #[default]
    Waits,
    /// It has opened something: number and object.
    Has(u8, u8),
    /// It has used it, and closed it.
    Done,
}

impl Kernel {
    /// Where the object behind an open number came from.
    #[must_use]
    pub fn origin_of(&self, number: usize) -> u8 {
        self.origin[usize::from(self.fds[number] - 1)]
    }

    /// Settling closes a descriptor of which the log says nothing.
    pub fn close_orphan(&mut self, number: usize) {
        let object = std::mem::take(&mut self.fds[number]);
        let index = usize::from(object - 1);
        if self.origin[index] == ANONYMOUS && !self.fds.contains(&object) {
            self.origin[index] = DISCARDED;
        }
    }

    /// The object that a call without a name makes.
    #[must_use]
    pub fn next_nameless(&self) -> u8 {
        let made = &self.origin[..usize::from(self.made)];
        let free = made.iter().position(|origin| *origin == DISCARDED);
        free.map_or(self.made, |index| u8::try_from(index).expect("few objects"))
    }

    /// What of it somebody can see in the end. Of what has no name nobody can tell how often it was made: all of it is one object.
    #[must_use]
    pub fn seen(&self) -> Kernel {
        const NAMELESS: u8 = 100;
        let mut seen = Kernel {
            origin: [0; OBJECTS],
            out: [[0; OUT]; OBJECTS],
            out_len: [0; OBJECTS],
            consumed: [0; OBJECTS],
            made: 0,
            ..*self
        };
        let mut numbered = [NAMELESS; OBJECTS];
        let has_name = |object: &usize| !matches!(self.origin[*object], ANONYMOUS | DISCARDED);
        for from in (0..usize::from(self.made)).filter(has_name) {
            let to = usize::from(seen.made);
            numbered[from] = seen.made;
            seen.origin[to] = self.origin[from];
            (seen.out[to], seen.out_len[to]) = (self.out[from], self.out_len[from]);
            seen.consumed[to] = self.consumed[from];
            seen.made += 1;
        }
        for object in seen.fds.iter_mut().filter(|object| **object != 0) {
            *object = numbered[usize::from(*object - 1)] + 1;
        }
        seen
    }
}

/// How far a promotion is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Phase {
    /// The primary lives.
    Replay,
    /// The primary is dead, rings are drained.
    Draining,
    /// Drained; settlement is to come (a broken rule lets threads act here).
    Drained,
    /// Drained, and the spare is waited for: then the calls in doubt are settled.
    Attended,
    /// Settled, rings are drained of what that has appended.
    Settled,
    /// Drained again, and the spare is waited for once more.
    Spare,
    /// All threads act.
    Live,
}

/// What went wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Violation {
    /// Some thread can never go on.
    Deadlock,
    /// The standby did something else than the log says.
    Divergence,
    /// Two threads in one critical section.
    MutualExclusion,
    /// A call on a descriptor that now means another object.
    WrongDescriptor,
    /// A gap on a mutex's own clock, which there must never be.
    MutexGap,
    /// A clock has passed a ticket whose event was still to come.
    TicketPassed,
    /// Memory, registers, or what the outside saw are none that the program could have had natively.
    NotNative,
    /// A complete log did not lead to the primary's own final state.
    ReplayDiffers,
    /// The failover was refused though the program gives no reason for it.
    Refused,
}

/// Everything.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct World {
    /// The primary.
    pub primary: Side,
    /// The standby, later the promoted copy; also the program run natively.
    pub standby: Side,
    /// The log.
    pub rings: Rings,
    /// Consumed events by slot.
    pub head: [u8; SLOTS],
    /// The kernel.
    pub kernel: Kernel,
    /// A second standby, and what it has consumed of each ring. Only where there are spares.
    pub spare: Side,
    /// See there.
    pub spare_head: [u8; SLOTS],
    /// The clock that the poller has looked through the rings for, what the clock showed then, and the lowest ticket.
    pub scan: Option<(u8, u8, Option<u8>)>,
    /// Standbys that have been made after the first, or have become heir.
    pub copies: u8,
    /// Promotion.
    pub phase: Phase,
    /// Settlement gave up and said so.
    pub refused: bool,
    /// A violation seen by a step.
    pub bad: Option<Violation>,
}

/// What a run leaves behind: what tests compare.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Outcome {
    /// Variables.
    pub vars: [u16; 4],
    /// Registers of all threads.
    pub regs: [[u8; 4]; SLOTS],
    /// Semaphores.
    pub sems: [u8; 2],
    /// What the outside saw, and what is open.
    pub kernel: Kernel,
}

impl Side {
    /// True when every thread that was ever created has ended.
    #[must_use]
    pub fn has_ended(&self) -> bool {
        self.threads.iter().all(|t| t.status != Status::Running)
    }

    /// The outcome of a side that has ended.
    #[must_use]
    pub fn outcome(&self, kernel: &Kernel) -> Outcome {
        Outcome {
            vars: self.vars,
            regs: self.threads.map(|t| t.regs),
            sems: self.sems,
            kernel: kernel.seen(),
        }
    }
}

impl World {
    /// The event at the head of a slot's ring.
    #[must_use]
    pub fn head_event(&self, t: usize) -> Option<Event> {
        (self.head[t] < self.rings.tail[t]).then(|| self.rings.events[t][usize::from(self.head[t])])
    }

    /// All unconsumed events of a slot's ring.
    #[must_use]
    pub fn unconsumed(&self, t: usize) -> &[Event] {
        &self.rings.events[t][usize::from(self.head[t])..usize::from(self.rings.tail[t])]
    }

    /// What the standby has still to apply.
    #[must_use]
    pub fn unapplied(&self) -> u64 {
        let view = |t| live::RingView { head: u64::from(self.head[t]), tail: u64::from(self.rings.tail[t]) };
        live::unapplied((0..SLOTS).map(view))
    }

    /// Appends an event to a dead primary's ring.
    pub fn append(&mut self, t: usize, event: Event) {
        let tail = &mut self.rings.tail[t];
        self.rings.events[t][usize::from(*tail)] = event;
        *tail += 1;
    }

    /// The standby and the spare change places.
    pub fn swap(&mut self) {
        std::mem::swap(&mut self.standby, &mut self.spare);
        std::mem::swap(&mut self.head, &mut self.spare_head);
    }

    /// Notes a violation; the first one counts.
    pub fn blame(&mut self, violation: Violation) {
        self.bad.get_or_insert(violation);
    }
}
