//! A family: processes of one thread each, the memory that they share, their logs, and the supervisor.

use us_order::family::{self, Phase};
use us_order::turns::Behind;

use crate::mutation::Mutation;

/// Processes.
pub const PROCESSES: usize = 3;
/// Words of the memory that they share.
pub const WORDS: usize = 2;
/// Events that a ring holds; no program fills one.
pub const RING: usize = 14;
/// Bytes that a process puts out.
pub const OUT: usize = 3;

/// An operation of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Op {
    /// Reads a word of the shared memory.
    Load(u8),
    /// Adds one to a word: it is read, and then written.
    Add(u8),
    /// Puts out what it has read. The call may block, so others get the turn.
    Put,
    /// Gives others the turn.
    Yield,
    /// Makes a child, which begins at this operation.
    Fork(u8),
    /// Ends.
    End,
    /// Ends of a fault. The primary ends by its own will, as a signal would have it; a copy that follows comes to it by itself.
    Fault,
}

/// What the processes do.
#[derive(Clone, Debug)]
pub struct Program {
    /// Its name.
    pub name: &'static str,
    /// What it is there for.
    pub why: &'static str,
    /// The operations of all, one behind the other.
    pub code: Vec<Op>,
    /// Where each process begins that is there from the beginning.
    pub entries: Vec<u8>,
    /// Whether it begins without a family, and one is formed while it runs.
    pub forms: bool,
    /// Processes that may be killed.
    pub kills: u8,
    /// Standbys that may be lost.
    pub losses: u8,
}

/// What is explored.
#[derive(Clone, Copy)]
pub struct Context<'a> {
    /// The program.
    pub program: &'a Program,
    /// The rule that is broken, if any.
    pub mutation: Option<Mutation>,
}

impl Context<'_> {
    /// True if this rule is broken.
    #[must_use]
    pub fn has(&self, mutation: Mutation) -> bool {
        self.mutation == Some(mutation)
    }

    /// The operation at which a copy is.
    #[must_use]
    pub fn op(&self, side: &Side) -> Op {
        self.program.code[usize::from(side.pc)]
    }
}

/// What an event tells.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Kind {
    /// No event.
    #[default]
    None,
    /// A turn has been taken: its number.
    Turn,
    /// A call has begun: the digest of what it puts out.
    Enter,
    /// A call has returned.
    Return,
    /// The last turn has been given back.
    Yield,
}

/// One event.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Event {
    /// What it tells.
    pub kind: Kind,
    /// What of.
    pub value: u8,
}

/// Where a copy is within an operation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Step {
    /// A child that waits for its standby.
    Newborn,
    /// It comes to take the turn, and goes on at its `resume` then.
    Turn,
    /// It has the turn, and the log does not say so yet.
    Taken,
    /// In guest code, or at the door that the operation is.
    #[default]
    Guest,
    /// It has read the word, and is about to write it.
    Store,
    /// The log says that the call has begun; the turn is to be given back.
    Entered,
    /// The turn is given back; the call is to be made, or, in a standby, to be heard of.
    Given,
    /// It is made; the log does not say so yet.
    Made,
    /// The same of a fork, during which the turn is kept.
    Forking,
    /// See there.
    Forked,
    /// The last turn is given back; the standby is awaited.
    Departing,
    /// It is of the family no more, and about to end.
    Left,
}

/// Life of a copy.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Life {
    /// There is none.
    #[default]
    Absent,
    /// It runs.
    Running,
    /// Killed; of a standby: dead of a fault that the program has made.
    Dead,
    /// It has ended by its own will.
    Ended,
}

/// One copy of a process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Side {
    /// Its life.
    pub life: Life,
    /// Its operation.
    pub pc: u8,
    /// Where it is in it.
    pub step: Step,
    /// Where it goes on once it has the turn.
    pub resume: Step,
    /// What it has read to add to.
    pub hand: u8,
    /// What it has read.
    pub register: u8,
    /// The number of its turn plus one, 0 if it has none.
    pub turn: u8,
}

/// How far a standby is that has been told to take over.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Over {
    /// It has not been told.
    #[default]
    No,
    /// It is among those who take over, or takes over by itself.
    Chosen,
    /// It drains its ring.
    Draining,
    /// What was in doubt is settled.
    Settled,
    /// It waits for the others.
    Waiting,
    /// The memory is as it is to be; it waits for the others to see the same.
    Whole,
}

/// A process: both copies, and the log between them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Process {
    /// The copy that acts.
    pub primary: Side,
    /// The one that follows.
    pub standby: Side,
    /// The log.
    pub ring: [Event; RING],
    /// Events applied, and published.
    pub head: u8,
    /// See there.
    pub tail: u8,
    /// The kernel has been entered with the call whose return is to come, and has done it.
    pub done: bool,
    /// It is of the family.
    pub is_member: bool,
    /// It has a log, and a standby that follows it.
    pub is_protected: bool,
    /// It is to stand still, because a family is formed.
    pub asked: bool,
    /// It stands still.
    pub stands: bool,
    /// Of those who stand still: it has forked.
    pub has_forked: bool,
    /// And its standby is good.
    pub is_ready: bool,
    /// How far its standby takes over.
    pub over: Over,
}

/// What all of them map.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Family {
    /// What it is at.
    pub phase: Phase,
    /// The next turn's number.
    pub next: u8,
    /// The number of the turn that is had plus one, 0 for nobody.
    pub had: u8,
    /// How far the standbys' turns have come.
    pub behind: Behind,
    /// How many are to form it, or to take over.
    pub members: u8,
    /// Of these, who stands still, has forked, is ready, has settled, sees the memory whole, is live.
    pub standing: u8,
    /// See there.
    pub forked: u8,
    /// See there.
    pub ready: u8,
    /// See there.
    pub settled: u8,
    /// See there.
    pub whole: u8,
    /// See there.
    pub live: u8,
    /// The supervisor has looked who has the memory.
    pub verified: bool,
    /// Somebody has copied the memory.
    pub copied: bool,
    /// Somebody has put it back.
    pub put_back: bool,
    /// Of those who were chosen to take over: who came to a fault before they were counted.
    pub fallen: u8,
}

/// What the supervisor is doing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Watch {
    /// It waits.
    #[default]
    Idle,
    /// It has said that all take over.
    Begun,
    /// It knows who they are, and kills them.
    Fencing,
}

/// A broken promise.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Violation {
    /// A standby did something else than the log says.
    Diverged,
    /// Nobody can go on.
    Deadlock,
    /// It ended as it could not have ended natively.
    NotNative,
}

/// Everything.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct World {
    /// The memory, as the primaries have it.
    pub memory: [u8; WORDS],
    /// The standbys' copy.
    pub copy: [u8; WORDS],
    /// What each process has put out, and how much.
    pub out: [[u8; OUT]; PROCESSES],
    /// See there.
    pub out_len: [u8; PROCESSES],
    /// The processes.
    pub all: [Process; PROCESSES],
    /// What they map.
    pub family: Family,
    /// The supervisor.
    pub watch: Watch,
    /// Processes that may still be killed.
    pub kills: u8,
    /// Standbys that may still be lost.
    pub losses: u8,
    /// Families that may still be formed.
    pub forms: u8,
    /// The first violation.
    pub bad: Option<Violation>,
}

/// What somebody outside can know in the end.
pub type Outcome = ([u8; WORDS], [[u8; OUT]; PROCESSES], [u8; PROCESSES]);

impl World {
    /// The beginning.
    #[must_use]
    pub fn new(program: &Program) -> World {
        let mut world = World {
            kills: program.kills,
            losses: program.losses,
            forms: u8::from(program.forms),
            ..World::default()
        };
        for (process, pc) in world.all.iter_mut().zip(&program.entries) {
            let side = Side { life: Life::Running, pc: *pc, step: Step::Turn, ..Side::default() };
            process.primary = side;
            if !program.forms {
                process.standby = side;
                (process.is_member, process.is_protected) = (true, true);
            }
        }
        if !program.forms {
            world.family.phase = Phase::Active;
        }
        world
    }

    /// How it ended, `None` while somebody runs.
    #[must_use]
    pub fn outcome(&self) -> Option<Outcome> {
        let has_ended = |process: &Process| matches!(process.primary.life, Life::Ended | Life::Absent);
        self.all.iter().all(has_ended).then_some((self.memory, self.out, self.out_len))
    }

    /// Whether one has died and the order has ended before anybody has seen that: two failures at once, and the program is lost.
    #[must_use]
    pub fn is_lost(&self) -> bool {
        let is_left = |process: &Process| process.primary.life == Life::Dead && process.over == Over::No;
        let is_alone = |process: &Process| !family::may_take_over(process.is_member, self.family.phase);
        self.all.iter().any(|process| is_left(process) && (is_alone(process) || !process.is_protected))
    }

    /// Puts a byte out.
    pub fn put(&mut self, p: usize, byte: u8) {
        self.out[p][usize::from(self.out_len[p])] = byte;
        self.out_len[p] += 1;
    }

    /// Notes a violation; the first one counts.
    pub fn blame(&mut self, violation: Violation) {
        self.bad.get_or_insert(violation);
    }
}

impl Process {
    /// Appends an event.
    pub fn publish(&mut self, kind: Kind, value: u8) {
        self.ring[usize::from(self.tail)] = Event { kind, value };
        self.tail += 1;
    }

    /// The event that is to be applied next.
    #[must_use]
    pub fn front(&self) -> Option<Event> {
        (self.head < self.tail).then(|| self.ring[usize::from(self.head)])
    }

    /// The log is at its end, and no standby follows.
    pub fn forget_log(&mut self) {
        (self.is_protected, self.is_member, self.over) = (false, false, Over::No);
        self.standby = Side::default();
        (self.ring, self.head, self.tail) = ([Event::default(); RING], 0, 0);
    }
}

impl Side {
    /// Goes on with the next operation, without a turn.
    pub fn pass(&mut self) {
        self.pc += 1;
        (self.step, self.resume) = (Step::Turn, Step::Guest);
    }
}
