//! The roster: every process of a group, in a file beside the segments that all of them map.
//!
//! A segment belongs to one process and its standby. What parents, children and the supervisor have to know of each
//! other stands here: who is whose child, and how a process ended that its parent can no longer ask the kernel about. Whoever
//! is in the group writes it, also with fewer rights than others: see the [`Registry`](crate::Registry).

use core::sync::atomic::{AtomicI32, AtomicU32, AtomicU64, Ordering};

use crate::connections::{CONNECTIONS_MAX, Sent};
use crate::family::{Family, TurnOrder};
use crate::segment::Line;

/// Processes that one group may have at a time. One more is made natively, and nobody else can speak for it.
pub const PROCESSES_MAX: usize = 4096;

/// Address at which every copy maps the roster.
pub const ROSTER_ADDRESS: usize = 0x2900_0000_0000;

/// One more than the highest signal.
pub const SIGNALS: usize = 65;

/// What `wait4` gives of a process that goes on after a stop: a value of [`Process::standing`].
pub const CONTINUED: u32 = 0xffff;

/// Set in [`Process::will`] where it says anything.
pub const WILL: i32 = 0x1_0000;

/// Bytes of the file.
pub const ROSTER_BYTES: usize = size_of::<Roster>();

/// Values of [`Process::state`].
pub mod process {
    /// Nobody.
    pub const FREE: u32 = 0;
    /// Being written by who has taken it.
    pub const TAKEN: u32 = 1;
    /// A process, until its parent has been told of its end.
    pub const LISTED: u32 = 2;
}

/// Values of [`Process::kin`].
pub mod kin {
    /// The kernel tells its parent's primary of its end.
    pub const KERNEL: u32 = 0;
    /// The supervisor does: its parent, or it itself, has failed over.
    pub const ADOPTED: u32 = 1;
}

/// Values of [`Process::end`].
pub mod end {
    /// It runs, or nobody has said otherwise.
    pub const NONE: u32 = 0;
    /// Its primary died and no standby takes over. Said only of those that the kernel still counts as their parent's.
    pub const FINAL: u32 = 1;
    /// [`Process::status`] says how it ended; nobody has been told yet.
    pub const ENDED: u32 = 2;
}

/// Values of [`Process::asked`].
pub mod asked {
    /// It may not be asked: its image may have no handler for the signal.
    pub const NEVER: u32 = 0;
    /// It may.
    pub const MAY: u32 = 1;
    /// The supervisor is about to send the signal.
    pub const NOW: u32 = 2;

    /// A process that has lived for so long is worth a standby, whatever it does, ns.
    pub const SETTLED_NS: u64 = 100_000_000;
}

/// One process.
#[repr(C, align(64))]
#[derive(Debug)]
pub struct Process {
    /// A value of [`process`]. Written last by who fills the entry in.
    pub state: AtomicU32,
    /// The number that its parent knows, for ever. Its parent or it itself, at its birth.
    pub pid: AtomicU32,
    /// Its parent's number of the same kind; 0 once that has ended for good.
    pub parent: AtomicU32,
    /// Not zero once it has a segment, `segment.PID` with its number; counts up when it makes another one. Itself.
    pub joined: AtomicU32,
    /// A value of [`kin`]. Supervisor, before it tells a standby to take over.
    pub kin: AtomicU32,
    /// A value of [`end`]. Supervisor, after `status`; with a wake of [`RosterHeader::ends`].
    pub end: AtomicU32,
    /// As `wait4` gives it.
    pub status: AtomicI32,
    /// Time that it has used, its waited-for children included: user, system, microseconds.
    pub used_us: [AtomicU64; 2],
    /// CLOCK_MONOTONIC of its birth, ns.
    pub born_ns: AtomicU64,
    /// Not zero once a process of the group has sent it SIGKILL: it is to die, and no standby takes over. Any process of
    /// the group, before the kernel is asked.
    pub doomed: AtomicU32,
    /// Not zero if orphans among its descendants become its children (`PR_SET_CHILD_SUBREAPER`): the kernel would give it
    /// standbys as well, so none of them joins. Itself.
    pub reaps_orphans: AtomicU32,
    /// How often processes of the group have sent it each signal. The sender, before the kernel is asked: a standby
    /// knows by it which signals its dead primary had not taken.
    pub sent: [AtomicU32; SIGNALS],
    /// Who sent it the last of them, by the group's number. The sender.
    pub last_sender: AtomicU32,
    /// As `wait4` gives it, with [`WILL`]: how it is about to end, once it has said that it leaves. A kill that meets it
    /// there comes too late, as natively. Itself.
    pub will: AtomicI32,
    /// Not zero while it is to be stopped: a process of the group has sent it SIGSTOP, and no SIGCONT since. The sender.
    pub stopped: AtomicU32,
    /// A stop or a continuation of which its parent has not been told, as `wait4` gives it, 0 for none. The kernel tells
    /// only of those that it counts as the parent's. Supervisor; a promoted copy of it; its parent, when it has been told.
    pub standing: AtomicU32,
    /// Its process group as it was last known, by the kernel's number: the kernel knows none of a primary that is gone. Whoever asks;
    /// supervisor, before `end`.
    pub group: AtomicU32,
    /// Not zero if its parent has been told of a stop, and of no continuation since. Its parent.
    pub told_stopped: AtomicU32,
    /// Not zero from before its promoted copy stops itself, in its predecessor's place, until the supervisor has seen that:
    /// who has let it go on meanwhile came too early. The standby that is promoted; supervisor.
    pub stops_itself: AtomicU32,
    /// Counts its promotions. What waits in the kernel for a standby is thrown away before it counts, and the letters to it
    /// are looked through behind that: who sends one meanwhile sees another count. The standby that is promoted.
    pub lives: AtomicU32,
    /// The signal that it is to be sent when its parent has ended for good (`PR_SET_PDEATHSIG`), 0 for none. Itself; whoever
    /// takes it from there sends it.
    pub death_signal: AtomicU32,
    /// The process group or session that it has made and leads, by the kernel's number, if that is not its own: it was made by a
    /// promoted copy. Itself; whoever has put it there.
    pub leads: AtomicU32,
    /// How many of its threads have counted a signal to another process of the group, and not yet asked the kernel. Itself.
    pub sending: AtomicU32,
    /// A value of [`asked`]: whether it may be asked by a signal to join. Itself; the supervisor, from `MAY` to `NOW` and back.
    pub asked: AtomicU32,
    /// Not zero once its table of connections has those that it has of its parent's. Itself.
    pub has_inherited: AtomicU32,
    /// Its real user at its end, or its last stop. Supervisor, before `end` or `standing`.
    pub user: AtomicU32,
    /// One more than its session at its end, by the kernel's number: that is 0 where it is outside of the pid namespace, as its group's
    /// may be. 0 while nobody knows the two. Supervisor, before `end`.
    pub session: AtomicU32,
}

impl Process {
    /// Says everything of a process that has just been made, but for its birth and what relatives have sent it. By whoever has taken
    /// the entry.
    pub fn be_new(&self, pid: u32, parent: u32) {
        for (word, value) in [
            (&self.pid, pid),
            (&self.parent, parent),
            (&self.joined, 0),
            (&self.doomed, 0),
            (&self.reaps_orphans, 0),
            (&self.stopped, 0),
            (&self.group, 0),
            (&self.leads, 0),
            (&self.sending, 0),
            (&self.asked, asked::NEVER),
            (&self.standing, 0),
            (&self.told_stopped, 0),
            (&self.death_signal, 0),
            (&self.has_inherited, 0),
            (&self.user, 0),
            (&self.session, 0),
            (&self.stops_itself, 0),
            (&self.kin, kin::KERNEL),
            (&self.end, end::NONE),
        ] {
            word.store(value, Ordering::Relaxed);
        }
        self.will.store(0, Ordering::Relaxed);
    }
}

/// Letters that can be on their way at a time. Of one more the value is not known to a standby.
pub const MAIL_MAX: usize = 512;

/// The low bits of [`Mail::state`]: how far a letter has come. Above them is its number, which is never given again.
pub mod mail {
    /// Nobody's: the whole word.
    pub const FREE: u64 = 0;
    /// Being written: the whole word.
    pub const TAKEN: u64 = 1;
    /// The kernel is about to be asked.
    pub const SENDING: u64 = 2;
    /// The kernel has taken the signal.
    pub const SENT: u64 = 3;
    /// The bits.
    pub const STAGE: u64 = 3;
    /// How many they are.
    pub const STAGE_BITS: u32 = 2;
}

/// A queued signal that one process of the group has sent another, until the log says that it has been taken.
#[repr(C)]
#[derive(Debug)]
pub struct Mail {
    /// See [`mail`]. Sender, last; whoever takes it away.
    pub state: AtomicU64,
    /// The number of the process that is to take it. Sender.
    pub to: AtomicU32,
    /// The sender's. Sender.
    pub from: AtomicU32,
    /// The signal. Sender.
    pub signal: AtomicU32,
    /// The user in whose name it was sent. Sender.
    pub uid: AtomicU32,
    /// What it carries. Sender.
    pub value: AtomicU64,
    /// Not zero once its signal has reached the receiver's present primary, who takes them in this order. Receiver.
    pub arrived: AtomicU32,
    /// Zero.
    pub pad: u32,
}

/// Start of the roster.
#[repr(C, align(64))]
#[derive(Debug)]
pub struct RosterHeader {
    /// [`MAGIC`](crate::MAGIC). Supervisor, before the start.
    pub magic: u64,
    /// [`VERSION`](crate::VERSION). Supervisor, before the start.
    pub version: u32,
    /// Not zero once the group ends or its supervisor is about to: nobody joins any more. Supervisor.
    pub closing: AtomicU32,
    /// One past the highest entry that has ever been used. Whoever takes an entry.
    pub used: AtomicU32,
    /// Futex: counts what the supervisor should look at. Any process of the group, with a wake.
    pub news: Line<AtomicU32>,
    /// Futex: counts ends and adoptions. Supervisor, with a wake.
    pub ends: Line<AtomicU32>,
    /// Outputs to the standard descriptors so far, of all processes of a recording; in a replay, those made again.
    pub outputs: Line<AtomicU64>,
    /// With `record --order serial`, and in its replay: the turns of all processes.
    pub order: TurnOrder,
    /// Identities of the open files behind standard input, output and error when the program started. Its runtime; in a
    /// replay the supervisor.
    pub standard: [AtomicU64; 3],
    /// The last number that a letter was given.
    pub letters: AtomicU64,
}

/// The whole file.
#[repr(C)]
#[derive(Debug)]
pub struct Roster {
    /// See [`RosterHeader`].
    pub header: RosterHeader,
    /// See [`Process`].
    pub processes: [Process; PROCESSES_MAX],
    /// Queued signals on their way, in no order.
    pub mail: [Mail; MAIL_MAX],
    /// See [`Family`].
    pub family: Family,
    /// Of a mirror. See [`Sent`].
    pub sent: [Sent; CONNECTIONS_MAX],
}

const _: () = {
    assert!(size_of::<Process>() == 384);
    assert!(ROSTER_ADDRESS + ROSTER_BYTES <= crate::limits::SEGMENT_ADDRESS);
};
