//! A *family*: the processes of a group that share memory which no log tells of, whose standbys share one copy of it.
//!
//! Lies in the roster. One thread of the family has the turn; the order of turns is all that their standbys need.

use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use crate::roster::PROCESSES_MAX;
use crate::segment::{Line, Text};

/// Bells of those that wait for a turn, by its number.
pub const BELLS: usize = 64;
/// Turns of which it is known who has taken them.
pub const TAKERS: usize = 4096;
/// Pieces of shared memory that one family may have.
pub const REGIONS_MAX: usize = 16;
/// Value of [`Family::wanted`]: families have been tried, and do not last.
pub const FAMILY_HOPELESS: u32 = 2;
/// Processes that share less than this with relatives are no family, bytes: figures that decide little. Unless [`Family::small`] says
/// that they decide something.
pub const FAMILY_BYTES_MIN: u64 = 1 << 20;

/// How the kernel's names of memory begin that processes share and no file outside shows, in `/proc/PID/maps`.
pub const COMMON_MEMORY: [&str; 4] = ["/dev/zero", "/SYSV", "/memfd:", "/dev/shm/"];

/// Values of [`Family::state`].
pub mod phase {
    /// There is none.
    pub const NONE: u32 = 0;
    /// Its members stand still, and each forks. Supervisor.
    pub const FORMING: u32 = 1;
    /// Its standbys follow. The last of those who have forked.
    pub const ACTIVE: u32 = 2;
    /// One of its logs has ended, and with it all of them. Whoever finds that first; the supervisor then ends the standbys.
    pub const BROKEN: u32 = 3;
    /// Its primaries are fenced, its standbys take over. Supervisor; the last standby to be live stores `NONE`.
    pub const PROMOTING: u32 = 4;
}

/// Why a family is [`phase::BROKEN`]: codes of [`Family::why`].
pub mod broken {
    /// The log of one of its members has ended.
    pub const LOG: u32 = 1;
    /// Its members are not who they were: one has ended, or another has come, while it was formed.
    pub const MEMBERS: u32 = 2;
}

/// Where threads wait for a turn of a number.
#[repr(C)]
#[derive(Debug)]
pub struct TurnBell {
    /// Futex: counts rings.
    pub rung: AtomicU32,
    /// How many sleep there.
    pub sleepers: AtomicU32,
}

/// Turns, of one process or of a family.
#[repr(C, align(64))]
#[derive(Debug)]
pub struct TurnOrder {
    /// Futex of the primaries: 0 free, 1 taken, 2 wanted.
    pub word: Line<AtomicU32>,
    /// The next turn's number.
    pub next: AtomicU64,
    /// One more than the number of the turn that is had, 0 for nobody, all ones for somebody who has not said which.
    pub had: AtomicU64,
    /// The kernel's number of the thread that has it; in a family that of its process.
    pub holder: AtomicU32,
    /// Turns taken at another one's side since the log began.
    pub forced: AtomicU32,
    /// In standbys: the turns below have begun.
    pub begun: AtomicU64,
    /// In standbys: the turns below have ended.
    pub ended: AtomicU64,
    /// Where standbys' threads wait for their turn.
    pub bells: [TurnBell; BELLS],
}

impl TurnOrder {
    /// Nobody has taken a turn.
    pub const fn new() -> TurnOrder {
        TurnOrder {
            word: Line(AtomicU32::new(0)),
            next: AtomicU64::new(0),
            had: AtomicU64::new(0),
            holder: AtomicU32::new(0),
            forced: AtomicU32::new(0),
            begun: AtomicU64::new(0),
            ended: AtomicU64::new(0),
            bells: [const { TurnBell { rung: AtomicU32::new(0), sleepers: AtomicU32::new(0) } }; BELLS],
        }
    }
}

impl TurnOrder {
    /// As before the first turn. Nobody takes one meanwhile.
    pub fn reset(&self) {
        self.word.0.store(0, Ordering::Relaxed);
        for count in [&self.next, &self.had, &self.begun, &self.ended] {
            count.store(0, Ordering::Relaxed);
        }
        self.forced.store(0, Ordering::Relaxed);
        for bell in &self.bells {
            bell.sleepers.store(0, Ordering::Relaxed);
        }
    }
}

impl Default for TurnOrder {
    fn default() -> TurnOrder {
        TurnOrder::new()
    }
}

/// One piece of shared memory of a family, by the kernel's object behind it.
#[repr(C)]
#[derive(Debug)]
pub struct Region {
    /// What names the object: made of device and inode. 0 for none. Whoever claims it.
    pub object: AtomicU64,
    /// The range of it that has been copied, bytes from its beginning. Who has claimed it, before it has forked.
    pub range: [AtomicU64; 2],
    /// Not zero once a promoted copy has taken it upon itself to put it back. That copy.
    pub put_back: AtomicU32,
    /// Zero.
    pub pad: u32,
}

/// The family of a group.
#[repr(C, align(64))]
#[derive(Debug)]
pub struct Family {
    /// A value of [`phase`].
    pub state: Line<AtomicU32>,
    /// Counts the families that there have been: the number of the present one. Supervisor.
    pub number: AtomicU32,
    /// Not zero once a process has found that it should be one's. Any process, with news; cleared by the supervisor.
    pub wanted: AtomicU32,
    /// Not zero once a process that shares memory has gone another way again and again: then memory of any size counts. Any
    /// process; never cleared.
    pub small: AtomicU32,
    /// How many are to form it, or to take over. Supervisor.
    pub members: AtomicU32,
    /// Of these, who stands still with all its threads.
    pub standing: AtomicU32,
    /// The number of a family of which all stand still, and of whose memory no other process has any. Supervisor.
    pub verified: AtomicU32,
    /// Of the members, who has forked.
    pub forked: AtomicU32,
    /// Of these, whose standby has come to the log's end and has settled what was in doubt.
    pub settled: AtomicU32,
    /// Of these, whose standby has put back what it has taken upon itself.
    pub whole: AtomicU32,
    /// Of these, whose standby is live.
    pub live: AtomicU32,
    /// Why the last one has ended, with a value of [`broken`] as its code. Whoever ends it.
    pub why: Text,
    /// See there.
    pub order: TurnOrder,
    /// One more than the place in the roster of the process that has taken a turn, by the turn's number.
    pub takers: [AtomicU32; TAKERS],
    /// Futexes: what a standby's threads sleep on, by the place in the roster of their process.
    pub kicks: [AtomicU32; PROCESSES_MAX],
    /// See there.
    pub regions: [Region; REGIONS_MAX],
}

impl Family {
    /// How much memory processes must share to be one, bytes.
    pub fn least(&self) -> u64 {
        if self.small.load(Ordering::Acquire) == 0 { FAMILY_BYTES_MIN } else { 1 }
    }
}
