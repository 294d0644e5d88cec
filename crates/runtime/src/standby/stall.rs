//! A standby that stands still although it has something to do.
//!
//! A race may leave no trace in the log but a wait that never ends: one copy joins a thread that the other has not seen
//! to be done, and the thread that is to take its slot is not made. Nothing is compared then, and `status` would call
//! the program protected until the day on which it has to be taken over. Seen with a program that reads a flag without
//! a lock before it joins.

use us_abi::SegmentHeader;
use us_ring::Position;

use crate::proc;
use crate::turns::turn_order;
use crate::{raw, seats, state};

/// One part of the time in this many that its threads may compute meanwhile: waits of ours look up now and then.
const BUSY_PART: u64 = 25;
/// The longest time between two looks that counts, ns. Somebody may have stopped the whole process.
const LOOK_MAX_NS: u64 = 50_000_000;

/// From one look at what the threads do to the next, and looks of which each must find all asleep, ns.
const ASLEEP_NS: u64 = 20_000_000;
const ASLEEP_LOOKS: u32 = 3;

/// How long a standby may wait for a turn of another process, ns.
const FAMILY_NS: u64 = 20_000_000_000;

/// What was seen at the last looks.
pub struct Stall {
    heads: u64,
    cpu_ns: u64,
    looked_ns: u64,
    still_ns: u64,
    asleep: u32,
    asleep_ns: u64,
}

impl Stall {
    /// Nothing has been seen yet.
    pub const fn new() -> Stall {
        Stall { heads: u64::MAX, cpu_ns: 0, looked_ns: 0, still_ns: 0, asleep: 0, asleep_ns: 0 }
    }

    /// One look, by the poller: whether no event has been applied for `limit_ns` although there are some, and no thread
    /// has computed.
    pub fn is_one(&mut self, header: &SegmentHeader, limit_ns: u64) -> bool {
        if seats::unapplied(header) == 0 {
            self.heads = u64::MAX;
            return false;
        }
        let slots = 0..header.slots.load(core::sync::atomic::Ordering::Acquire);
        let heads: u64 = slots.map(|slot| seats::head(slot).acquire()).sum();
        // The one whose turn it is in another process may compute for long, and is asked for itself.
        let awaited = turn_order::awaited_of_family();
        let (heads, limit_ns) = match awaited {
            Some(ended) => (heads.wrapping_add(ended), limit_ns.max(FAMILY_NS)),
            None => (heads, limit_ns),
        };
        let now_ns = raw::now_ns();
        if heads != self.heads {
            *self = Stall { heads, looked_ns: now_ns, ..Stall::new() };
            return false;
        }
        if self.still_ns == 0 {
            self.cpu_ns = computed_ns();
        }
        self.still_ns += (now_ns - self.looked_ns).min(LOOK_MAX_NS);
        self.looked_ns = now_ns;
        if self.still_ns < limit_ns {
            return false;
        }
        let cpu_ns = computed_ns();
        // The two clocks behind it are read one after the other, so it may be a moment less than before.
        if cpu_ns.saturating_sub(self.cpu_ns) < self.still_ns / BUSY_PART {
            return true;
        }
        (self.cpu_ns, self.still_ns) = (cpu_ns, 0);
        false
    }

    /// For how long nothing has moved, ns.
    pub fn still_ns(&self) -> u64 {
        self.still_ns
    }

    /// Where [`Stall::is_one`] says so: whether no thread can move, since each waits for another. One that only waits for a
    /// processor, a disk or a debugger does not sleep. Looked at several times, each a moment after the last.
    pub fn is_asleep(&mut self) -> bool {
        let now_ns = raw::now_ns();
        if now_ns >= self.asleep_ns + ASLEEP_NS {
            self.asleep_ns = now_ns;
            self.asleep = if all_sleep() { self.asleep + 1 } else { 0 };
        }
        self.asleep >= ASLEEP_LOOKS
    }
}

/// Whether every thread but the caller waits in the kernel for something that another one does.
fn all_sleep() -> bool {
    let own = raw::gettid();
    let mut all = true;
    let listed = proc::each_task(|tid| {
        all &= tid == own || matches!(proc::task_state(tid), Some(b'S') | None);
    });
    listed && all
}

/// Processor time of all threads but the caller, ns.
fn computed_ns() -> u64 {
    const OF_PROCESS: u64 = 2;
    const OF_THREAD: u64 = 3;
    let clock = |which: u64| {
        let mut time = [0u64; 2];
        // SAFETY: the kernel writes two words.
        unsafe { raw::call2(raw::nr::CLOCK_GETTIME, which, time.as_mut_ptr() as u64) };
        time[0] * 1_000_000_000 + time[1]
    };
    let own = clock(OF_THREAD);
    clock(OF_PROCESS).saturating_sub(own)
}

/// Ends a standby that stands still; it is a divergence that nobody could compare.
pub fn report(header: &SegmentHeader) -> ! {
    let slots = header.slots.load(core::sync::atomic::Ordering::Acquire);
    let is_behind = |slot: &u32| state::entry(*slot).tail.0.acquire() > seats::head(*slot).acquire();
    let slot = (0..slots).find(is_behind).unwrap_or(0);
    crate::verdict::report_at(
        slot,
        seats::head(slot).acquire(),
        &[b"the standby stands still while the log goes on"],
    )
}
