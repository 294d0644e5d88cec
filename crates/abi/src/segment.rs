//! The shared segment: who writes each field, and when it may be read.
//!
//! A segment is a file of [`SEGMENT_BYTES`](crate::limits::SEGMENT_BYTES), mode 0600, made by the
//! supervisor. The guest process maps it at a fixed address; a fork therefore sees it at the same place.

use crate::Config;
use core::sync::atomic::{AtomicI32, AtomicU32, AtomicU64};

use crate::checkpoint::Stand;
use crate::limits::{CALLS_MAX, HEADER_BYTES, SEATS, SPARE_ENTRY_BYTES, THREAD_ENTRY_BYTES};
use crate::upgrade::Versions;

/// State of a group: the value of [`SegmentHeader::state`].
#[repr(u32)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GroupState {
    /// The program has been started; the runtime has not yet made a standby.
    Starting = 0,
    /// A standby follows.
    Protected = 1,
    /// No standby; [`SegmentHeader::why`] says for which reason.
    Unprotected = 2,
    /// The primary is gone and the standby drains, settles and goes live.
    Promoting = 3,
    /// The program ends (exit, or a signal whose default action ends it).
    Ended = 4,
}

impl GroupState {
    /// The state whose number is `value`; an unknown number reads as `Unprotected`.
    pub const fn from_u32(value: u32) -> GroupState {
        match value {
            0 => GroupState::Starting,
            1 => GroupState::Protected,
            3 => GroupState::Promoting,
            4 => GroupState::Ended,
            _ => GroupState::Unprotected,
        }
    }
}

/// Why a group has no standby: the code in front of the text in [`SegmentHeader::why`].
#[repr(u32)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cause {
    /// Nothing has happened.
    None = 0,
    /// The group was started with `--standbys 0`.
    NotAsked = 1,
    /// The standby did something else than the log says.
    Diverged = 2,
    /// A ring was full for longer than the lag timeout.
    Behind = 3,
    /// The standby's process is gone.
    StandbyLost = 4,
    /// A system call that cannot be replayed was made.
    RefusedCall = 5,
    /// The standby was promoted and there is no other.
    Promoted = 6,
    /// The standby could not be made.
    CannotClone = 7,
    /// A thread, a mapping or a signal of a kind that the log does not carry.
    CannotReplay = 8,
    /// The supervisor is gone.
    SupervisorLost = 9,
    /// The program replaced itself by exec.
    Exec = 10,
    /// The process has just joined the group, or has replaced itself: its first standby is still to be made.
    Newborn = 11,
    /// A call that cannot be replayed has bound the process to itself: no copy could be what it is. There is no other
    /// standby before its end, or its exec.
    Bound = 12,
    /// The process has another version of the runtime than its standby had.
    Upgraded = 13,
}

/// A short text written once by a process that may be dying; readable when `len` is not zero. Whoever has read it may
/// clear it, `len` first, while nobody writes: the next writer is the one that finds `code` zero.
#[repr(C)]
#[derive(Debug)]
pub struct Text {
    /// A [`Cause`], or a line number for last words. Stored before `len`.
    pub code: AtomicU32,
    /// Bytes of `bytes` that count. Stored last, with release; zero while the text is being written.
    pub len: AtomicU32,
    /// UTF-8, not terminated; eight bytes a word so that two processes may touch it without a race.
    pub words: [AtomicU64; 31],
}

/// Values of [`SegmentHeader::command`].
pub mod command {
    /// Follow the primary.
    pub const FOLLOW: u32 = 0;
    /// The primary is dead and fenced: drain, settle, go live.
    pub const PROMOTE: u32 = 1;
    /// The standby is no longer wanted and ends itself.
    pub const END: u32 = 2;
    /// To the primary, which has no standby: park every thread and make one. Answered by `clones` or `clone_failures`.
    pub const CLONE: u32 = 3;
    /// To the primary: park every thread and stay so, because the standby is to take over. Answered by `parked`.
    pub const PARK: u32 = 4;
    /// To a replay: its rings hold everything that was logged before a failover. Tickets that are missing do not come.
    pub const CLOSE_GAPS: u32 = 5;
    /// To the primary: park every thread, and make a copy that stands still for a checkpoint. Answered by
    /// [`Stand::state`](super::Stand::state).
    pub const CHECKPOINT: u32 = 6;
}

/// Values of [`SegmentHeader::recorder`].
pub mod recorder {
    /// Nobody takes the log into a recording.
    pub const NONE: u32 = 0;
    /// Somebody does, and the log goes on whatever becomes of the standby.
    pub const TAKES: u32 = 1;
    /// Somebody did. [`SegmentHeader::unrecorded`](super::SegmentHeader::unrecorded) says why no longer.
    pub const STOPPED: u32 = 2;
}

/// Values of [`Seat::state`].
pub mod seat {
    /// Nobody sits there, or the heir does: the standby that the header speaks of.
    pub const FREE: u32 = 0;
    /// A spare standby does, and its position in the rings counts.
    pub const FOLLOWS: u32 = 1;
    /// A spare standby did. [`Seat::why`](super::Seat::why) says why no longer; its process may still be there.
    pub const DROPPED: u32 = 2;
}

/// Values of [`SegmentHeader::leaving`].
pub mod leaving {
    /// The program runs.
    pub const NO: u32 = 0;
    /// It exits.
    pub const EXIT: u32 = 1;
    /// It ends by a signal's default action; no failover.
    pub const SIGNAL: u32 = 2;
    /// It replaces itself by exec.
    pub const EXEC: u32 = 3;
    /// It dies of a fault of its own; the standby is to be promoted although the core is still being written.
    pub const DYING: u32 = 4;
}

/// One cache line of its own, so that a word polled by one process does not slow a neighbour.
#[repr(C, align(64))]
#[derive(Debug)]
pub struct Line<T>(pub T);

/// A place for a standby: a position of its own in every ring.
#[repr(C, align(64))]
#[derive(Debug)]
pub struct Seat {
    /// A value of [`seat`]. Spare standby when it begins, whoever finds first that it cannot go on, supervisor when its
    /// process is gone or it is the heir.
    pub state: AtomicU32,
    /// Kernel's pid of the spare standby that sits there. Itself, or its maker.
    pub pid: AtomicU32,
    /// The last of [`SegmentHeader::promotions`] at which it has applied all that the dead primary had logged. Itself.
    pub attended: AtomicU32,
    /// The last of these at which the one that took over has waited for it. Chosen standby.
    pub awaited: AtomicU32,
    /// Kernel's pid of the standby of this seat that took over last, from before it opens files about itself until another one
    /// is primary. Itself; its successor, who finds such files in the shared table.
    pub taker: AtomicU32,
    /// Why it no longer follows; read before the seat is free again.
    pub why: Text,
}

/// Start of the segment.
#[repr(C, align(64))]
#[derive(Debug)]
pub struct SegmentHeader {
    /// [`MAGIC`](crate::MAGIC). Supervisor, before the start.
    pub magic: u64,
    /// [`VERSION`](crate::VERSION). Supervisor, before the start.
    pub version: u32,
    /// Zero.
    pub zero: u32,
    /// Supervisor, before the start.
    pub config: Config,
    /// Pid of the supervisor. Supervisor, before the start.
    pub supervisor_pid: AtomicU32,
    /// Pid of the process it started: only this process is the group's first primary. Supervisor, before exec.
    pub root_pid: AtomicU32,
    /// Pid the guest sees as its own, in every copy, for ever. Runtime, at the start.
    pub guest_pid: AtomicU32,
    /// Kernel's pid of the current primary. Runtime at the start, standby at its promotion.
    pub primary_pid: AtomicU32,
    /// Kernel's pid of the standby, 0 for none. Runtime, when the standby has been made.
    pub standby_pid: AtomicU32,
    /// Promotions so far. Standby, at its promotion.
    pub epoch: AtomicU32,
    /// A [`GroupState`]. Runtime; supervisor when the processes that would write it are dead.
    pub state: Line<AtomicU32>,
    /// Futex: counts changes that the supervisor should look at. Any guest process, with a wake.
    pub attention: Line<AtomicU32>,
    /// Futex: a value of [`command`]. Supervisor, with a wake.
    pub command: Line<AtomicU32>,
    /// A value of [`leaving`]. Primary, before it ends by its own will.
    pub leaving: Line<AtomicU32>,
    /// Not zero while there is no standby that reads the rings: then [`ThreadEntry::head`] holds nobody up. Whoever finds
    /// the cause first.
    pub dropped: Line<AtomicU32>,
    /// Why there is no standby.
    pub why: Line<Text>,
    /// What a dying runtime had to say: `code` is the line of the panic.
    pub last_words: Line<Text>,
    /// CLOCK_MONOTONIC of the moment the supervisor noticed the primary's death, ns.
    pub death_ns: Line<AtomicU64>,
    /// The same clock when all rings were drained.
    pub drained_ns: AtomicU64,
    /// The same clock when the first guest thread was live.
    pub live_ns: AtomicU64,
    /// Calls begun and not done when the primary died.
    pub in_doubt: AtomicU32,
    /// Calls in doubt of which the kernel could not tell whether they were done.
    pub unsettled: AtomicU32,
    /// Highest thread slot in use plus one. Primary.
    pub slots: AtomicU32,
    /// Divergences found, 0 or 1 for one standby.
    pub divergences: AtomicU32,
    /// Slot of the thread that diverged.
    pub diverged_slot: AtomicU32,
    /// Ring position at which it diverged, bytes since the start.
    pub diverged_at: AtomicU64,
    /// Calls of the class refused-to-replay made by the guest, by number. Primary.
    pub refused: [AtomicU32; CALLS_MAX],
    /// `syscall` sites of the C library and the loader that were found, and how many were patched. Runtime.
    pub sites_found: AtomicU32,
    /// See `sites_found`.
    pub sites_patched: AtomicU32,
    /// System calls that arrived by a trap, from code that is not patched. Any copy.
    pub trapped: AtomicU64,
    /// Kernel's pid of the first standby that there ever was; kept when it is gone, for a supervisor that comes late to
    /// look. Runtime, when the standby has been made.
    pub first_standby: AtomicU32,
    /// Standbys made of a running primary, by its answer to [`command::CLONE`]. Primary, after `standby_pid`.
    pub clones: AtomicU32,
    /// Attempts of that kind given up; [`SegmentHeader::clone_error`] says why. Primary.
    pub clone_failures: AtomicU32,
    /// 1 once every thread is parked for [`command::PARK`], 2 if one would not. Primary.
    pub parked: AtomicU32,
    /// How long the threads stood still for the last clone, ns. Primary.
    pub clone_pause_ns: AtomicU64,
    /// Bytes that the primary had resident at the last clone. Primary.
    pub clone_bytes: AtomicU64,
    /// Futex: 1 once the copy of the running clone looks at no memory that changes with the primary, 2 if it cannot get
    /// so far. Primary clears it, the copy sets it.
    pub clone_stage: AtomicU32,
    /// Why the last attempt failed. Primary; cleared by the supervisor before it asks.
    pub clone_error: Line<Text>,
    /// Images whose first events have been published, in a recorded process. Primary, before the image makes a thread.
    pub images: AtomicU32,
    /// Not zero while a replayed process is held at its start, for a debugger. Supervisor; a futex.
    pub hold: AtomicU32,
    /// A value of [`recorder`]: whether [`ThreadEntry::taken`] counts. Whoever makes the segment; whoever finds first that
    /// the recording cannot go on.
    pub recorder: Line<AtomicU32>,
    /// Why the recording of this process has ended before the process did. Written before `recorder` says so.
    pub unrecorded: Line<Text>,
    /// Failovers of a recorded process: stored when [`ThreadEntry::cut`] is, before the new primary acts. Standby, at its
    /// promotion.
    pub cuts: AtomicU32,
    /// Kernel's pid of the copy that took over at the last of these. With `cuts`.
    pub cut_pid: AtomicU32,
    /// Of these, those that the recorder has come to. Recorder.
    pub cuts_taken: AtomicU32,
    /// 1 while the threads of the process take turns for its standby. Primary, when a standby is made or turns are given up.
    pub turns: AtomicU32,
    /// The seat of the standby that `standby_pid` names, the heir: the one that takes over. With `standby_pid`.
    pub heir: AtomicU32,
    /// Where standbys sit.
    pub seats: [Seat; SEATS],
    /// Kernel's pid of the standby that [`command::PROMOTE`] means. Supervisor, before the command.
    pub chosen: AtomicU32,
    /// How often a standby has been told to take over. Supervisor, before the command.
    pub promotions: AtomicU32,
    /// The last of these at which nothing more is to be applied: no ticket is missing any more. Chosen standby.
    pub drained: AtomicU32,
    /// Whether the process has one standby at the most, and why: see [`alone`]. Primary, when a standby is made.
    pub alone: AtomicU32,
    /// Whether a standby is wanted that takes the heir's place, which goes on following until then: its text has what the heir's has
    /// not. Primary.
    pub successor: AtomicU32,
    /// Number of the family that the process is of, or is to be of with its next standby; 0 for none. Supervisor; a newborn
    /// itself; a copy that leaves it.
    pub family: AtomicU32,
    /// How long threads have waited in all until a standby, or the recorder, had freed room in a ring, ns. Primary.
    pub room_wait_ns: AtomicU64,
    /// Not zero while a standby's poller naps for long on [`SegmentHeader::command`]. The poller sets it. A thread of the
    /// primary clears it behind a call, with a wake.
    pub dozing: Line<AtomicU32>,
    /// The first of the calls that `unsettled` counts. Standby, at its promotion, before `epoch`.
    pub unsettled_calls: [UnsettledCall; UNSETTLED_KEPT],
    /// What a copy asks about itself where its root has no `/proc`, and what the supervisor says.
    pub inquiry: Inquiry,
    /// The copy that is made for a checkpoint.
    pub stand: Stand,
    /// The versions of the runtime in the primary.
    pub versions: Versions,
    /// Atomic instructions of the program's own that pass the runtime, and those of them that are trapped. Runtime, at the start.
    pub atomics_found: AtomicU64,
    /// See `atomics_found`.
    pub atomics_trapped: AtomicU64,
    /// Comparisons that a standby made once more, since it had read too early. Standby.
    pub atomics_again: AtomicU64,
    /// Atomic instructions that left something else in a standby than in its primary. Standby.
    pub atomics_differ: AtomicU64,
    /// Where the order of turns is computed: how often it was guessed by time instead. Primary.
    pub guessed: AtomicU64,
    /// How many turns there have been in such an order. Primary.
    pub order_turns: AtomicU64,
    /// Of these: whose place the world has said, or a guess. Primary.
    pub order_placed: AtomicU64,
    /// The digest of all of them, in their order. Primary.
    pub order_digest: AtomicU64,
}

/// Bytes of a text of `/proc` that one answer has room for.
pub const ANSWER_BYTES: usize = 32 << 10;

/// A question of a copy's, and the supervisor's answer.
#[repr(C, align(64))]
#[derive(Debug)]
pub struct Inquiry {
    /// Kernel's id of the thread that asks, 0 while nobody does. That thread; the supervisor, once the primary is fenced.
    pub asker: AtomicU32,
    /// Futex: a value of [`inquiry`], and above its bits the number of the question. Whoever asks counts, and says
    /// [`inquiry::ASKED`] last; the supervisor says the rest of that question, behind its answer.
    pub state: AtomicU32,
    /// Kernel's pid of the copy that asks, about itself. With the question.
    pub pid: AtomicU32,
    /// A value of [`subject`]. With the question.
    pub subject: AtomicU32,
    /// The thread or the descriptor, where the subject is one; of a folder the lowest number that is wanted. With the question.
    pub number: AtomicU32,
    /// How many bytes of `text` count. With the answer.
    pub bytes: AtomicU32,
    /// From which byte of the whole on. With the question.
    pub from: AtomicU64,
    /// Bytes, eight a word. With the answer.
    pub text: [AtomicU64; ANSWER_BYTES / 8],
}

/// Values of [`Inquiry::state`].
pub mod inquiry {
    /// Nothing is asked.
    pub const NONE: u32 = 0;
    /// There is a question.
    pub const ASKED: u32 = 1;
    /// There is its answer.
    pub const ANSWERED: u32 = 2;
    /// There is none: the kernel does not tell the supervisor either.
    pub const UNKNOWN: u32 = 3;
    /// The bits of these.
    pub const BITS: u32 = 3;
}

/// What a question is about: values of [`Inquiry::subject`]. Of folders the answer is a line for each number, the lowest first.
pub mod subject {
    /// `/proc/PID/maps`
    pub const MAPS: u32 = 1;
    /// `/proc/PID/smaps`
    pub const DETAILS: u32 = 2;
    /// `/proc/PID/statm`
    pub const MEMORY: u32 = 3;
    /// `/proc/PID/stat`
    pub const STAT: u32 = 4;
    /// `/proc/PID/task`
    pub const THREADS: u32 = 5;
    /// `/proc/PID/task/NUMBER/stat`
    pub const THREAD_STAT: u32 = 6;
    /// `/proc/PID/task/NUMBER/status`
    pub const THREAD_STATUS: u32 = 7;
    /// `/proc/PID/fd`
    pub const DESCRIPTORS: u32 = 8;
    /// `/proc/PID/fdinfo/NUMBER`
    pub const DESCRIPTOR: u32 = 9;
    /// What the link `/proc/PID/fd/NUMBER` says.
    pub const OBJECT: u32 = 10;
}

/// Calls of [`SegmentHeader::unsettled_calls`] at most.
pub const UNSETTLED_KEPT: usize = 8;

/// A call in doubt of which the kernel could not tell whether it was done.
#[repr(C)]
#[derive(Debug)]
pub struct UnsettledCall {
    /// Its number; [`NO_CALL`](settlement::NO_CALL) for a descriptor that some call has made.
    pub call: AtomicU32,
    /// Its descriptor, -1 for none.
    pub fd: AtomicI32,
    /// Id of the thread that made it, as the guest sees it.
    pub guest_tid: AtomicU32,
    /// A value of [`settlement`].
    pub outcome: AtomicU32,
    /// The thread's name, up to a zero byte.
    pub name: [AtomicU64; 2],
}

/// What was done with a call of which nobody can say whether it was done: values of [`UnsettledCall::outcome`].
pub mod settlement {
    /// It was made again.
    pub const AGAIN: u32 = 0;
    /// It was taken for done.
    pub const DONE: u32 = 1;
    /// It ended with what it had moved before.
    pub const SHORT: u32 = 2;
    /// [`UnsettledCall::call`](super::UnsettledCall::call) where it is not known which call it was.
    pub const NO_CALL: u32 = u32::MAX;
}

/// [`SegmentHeader::alone`]: why a process has no standby besides the one that takes over.
pub mod alone {
    /// It may have others.
    pub const NO: u32 = 0;
    /// It has memory that other processes share, or may: its bytes are kept alike for one.
    pub const MEMORY: u32 = 1;
    /// It is of a family: its processes take over together, each with one.
    pub const FAMILY: u32 = 2;
}

/// How far a change has come: the low bits of the address in [`ThreadEntry::changes`].
pub mod change {
    /// There is none, or it has failed.
    pub const NONE: u64 = 0;
    /// About to be made.
    pub const BEGUN: u64 = 1;
    /// Made.
    pub const MADE: u64 = 2;
    /// The bits.
    pub const BITS: u64 = 3;
}

/// States of a thread slot: values of [`ThreadEntry::state`].
pub mod slot {
    /// No thread.
    pub const FREE: u32 = 0;
    /// Taken by a thread that is being created.
    pub const CREATING: u32 = 1;
    /// Its thread runs.
    pub const RUNNING: u32 = 2;
    /// Its thread has published its last event: its death is no longer a sign of the primary's.
    pub const LEAVING: u32 = 3;
}

/// Event classes counted by a standby, in the order of `events_by_class` of `status --json`.
pub const CLASSES: usize = 10;

/// Names of the classes.
pub const CLASS_NAMES: [&str; CLASSES] =
    ["lock", "cond", "read", "write", "poll", "time", "memory", "thread", "signal", "other"];

/// The death notice of one primary thread: a node of its robust list.
///
/// The kernel finds the futex word 32 bytes before the node, as glibc's robust mutexes have it, and sets
/// `FUTEX_OWNER_DIED` in it when the thread dies, before the address space is torn down.
#[repr(C, align(64))]
#[derive(Debug)]
pub struct DeathNotice {
    /// Thread id of the owner; `FUTEX_OWNER_DIED` (0x4000_0000) when it is dead.
    pub word: AtomicU32,
    /// Zero.
    pub zero: [u32; 7],
    /// The robust list's link: an address in the owner's memory.
    pub next: AtomicU64,
    /// Zero.
    pub pad: [u64; 3],
}

/// `FUTEX_OWNER_DIED` of the kernel.
pub const OWNER_DIED: u32 = 0x4000_0000;
/// `FUTEX_WAITERS` of the kernel.
pub const WAITERS: u32 = 0x8000_0000;
/// `FUTEX_TID_MASK` of the kernel.
pub const TID_MASK: u32 = 0x3fff_ffff;

/// One thread slot.
#[repr(C, align(64))]
#[derive(Debug)]
pub struct ThreadEntry {
    /// Bytes ever published to the ring. Producer: stored with release after the event's bytes.
    pub tail: Line<AtomicU64>,
    /// Bytes ever applied. Standby: stored with release after the event has been applied, clock first.
    pub head: Line<AtomicU64>,
    /// See [`DeathNotice`]. Written by the primary's thread, and by the kernel at its death.
    pub notice: DeathNotice,
    /// A value of [`slot`].
    pub state: AtomicU32,
    /// How often the slot has been taken.
    pub generation: AtomicU32,
    /// Kernel's id of the thread in the primary.
    pub primary_tid: AtomicU32,
    /// Kernel's id of the thread in the standby, 0 before it exists there.
    pub standby_tid: AtomicU32,
    /// Thread id that the guest sees in every copy.
    pub guest_tid: AtomicU32,
    /// A signal waits for this thread's next door: its number, 0 for none.
    pub pending_signal: AtomicI32,
    /// CLOCK_MONOTONIC when it began to wait, ns.
    pub pending_since_ns: AtomicU64,
    /// Bytes of `tail` that hold no events, because the ring went back to its beginning. Producer.
    pub skipped: AtomicU64,
    /// The position at which the `Return` will lie of the call with which the kernel was entered last, and the one to
    /// be put there when it is. Producer; read at a promotion.
    pub entered: [AtomicU64; 2],
    /// Beginnings of calls applied, which [`Self::events`] does not count. Consumer.
    pub begun: AtomicU64,
    /// Events applied, by class. Consumer.
    pub events: [AtomicU64; CLASSES],
    /// In memory that processes share: what the thread is about to change, or has changed, in order to take something
    /// (the position of the event that will say so; the word's values before and behind; its address and a value of
    /// [`change`]), and then the same in order to give. Primary; read at a promotion.
    pub changes: [[AtomicU64; 3]; 2],
    /// Bytes ever taken into a recording. Recorder: stored with release after they have been copied.
    pub taken: Line<AtomicU64>,
    /// The tail at the last failover. Standby, at its promotion; see [`SegmentHeader::cuts`].
    pub cut: AtomicU64,
    /// The same as `changes` of a word where it is counted as one who waits: address and a value of [`change`].
    pub counted: AtomicU64,
    /// A signal to relatives that the thread has counted in the roster, and of which it has not yet asked the kernel: the signal, the
    /// low bits of how often the process that is to have it has been promoted, and whom `kill` names. Primary; read at a promotion.
    pub sent: AtomicU64,
    /// Where the order of turns is computed: the thread's place and clock. Primary, whoever of its threads has the clocks' lock; read
    /// at a promotion, of a thread in a call.
    pub logical: AtomicU64,
    /// Milestones that the thread has passed since the log began: where threads take turns, and it computes without a door. Producer: stored
    /// with release, behind the event of the last turn that it has given at one.
    pub milestones: AtomicU64,
    /// The same of a standby, as of its last look. Consumer; of several the one that has looked last.
    pub milestones_followed: AtomicU64,
    /// Zero.
    pub pad3: [u64; 2],
}

/// What a standby that does not sit in the first seat writes of a thread slot. That of the first one is in
/// [`ThreadEntry::head`] and [`ThreadEntry::standby_tid`].
#[repr(C, align(64))]
#[derive(Debug)]
pub struct SpareEntry {
    /// Bytes ever applied. As [`ThreadEntry::head`].
    pub head: AtomicU64,
    /// Kernel's id of the thread in this standby.
    pub tid: AtomicU32,
}

impl ThreadEntry {
    /// Whether the kernel has said that the primary's thread of this slot is dead.
    pub fn died(&self) -> bool {
        self.notice.word.load(core::sync::atomic::Ordering::Acquire) & OWNER_DIED != 0
    }
}

const _: () = {
    assert!(size_of::<SegmentHeader>() <= HEADER_BYTES);
    assert!(size_of::<ThreadEntry>() == THREAD_ENTRY_BYTES);
    assert!(size_of::<SpareEntry>() == SPARE_ENTRY_BYTES);
    assert!(core::mem::offset_of!(DeathNotice, next) - core::mem::offset_of!(DeathNotice, word) == 32);
    assert!(core::mem::offset_of!(ThreadEntry, head) == 64);
    assert!(core::mem::offset_of!(ThreadEntry, notice) == 128);
    assert!(core::mem::offset_of!(ThreadEntry, taken).is_multiple_of(64));
};
