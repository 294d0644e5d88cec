//! The poller: one helper thread of a standby that libc knows nothing of.
//!
//! The poller looks at the tails for the threads that sleep and rings their bells; in between it naps on the
//! supervisor's command word, so that a promotion wakes it at once. It must nap: a reader that looks all the time
//! pulls the line that the primary is about to write. Where nothing has come for some naps it *dozes*: it naps for
//! long, and says so in a word that the primary's threads read behind each call. The first of them wakes it.
//! So a primary that is busy never makes a system call for its standby.

use core::sync::atomic::{AtomicU32, Ordering};

use us_abi::{RING_NEAR, SegmentHeader, command};
use us_order::nap::{self, BATCH_NS};

use crate::standby::promote;
use crate::standby::stall::{self, Stall};
use crate::sys::gate;
use crate::thread::Stack;
use crate::{invariant, members, mirror, raw, verdict};
use crate::{seats, state, thread};

/// How long a standby dozes, ns: a thousandth of a core. It is also how late the standby sees what a thread of the
/// primary does behind a silence without a logged call: taking locks, say, until it has a lead that it waits for.
const DOZE_NS: u64 = 100_000_000;
/// How long a standby may stand still with something to do, ns.
const STALL_NS: u64 = 2_000_000_000;

/// Starts the poller. In a standby, before its guest code runs.
pub fn start() -> bool {
    const CLONE: u64 = 0x100 | 0x200 | 0x400 | 0x800 | 0x1_0000 | 0x4_0000; // VM FS FILES SIGHAND THREAD SYSVSEM
    // A copy of a copy has the stack of the last poller, which ended when it was promoted.
    // SAFETY: a stack for a thread that runs only `main`, which uses no TLS.
    let made = unsafe { gate::spawn(CLONE, STACK.top(), main, 0, core::ptr::null()) };
    POLLER.store(made.max(0) as u32, Ordering::Relaxed);
    made > 0
}

/// The kernel's number of the poller.
static POLLER: AtomicU32 = AtomicU32::new(0);

/// In a promoted copy: waits until the poller is gone, for a program that would see that it is not alone.
pub fn await_end() {
    raw::await_end(POLLER.load(Ordering::Relaxed));
}

/// The same before a filter is set, which may be for all threads and allow none of the poller's calls: it looks after a promotion
/// for a millisecond longer. The number may be another thread's by now, so the wait is bounded.
pub fn await_end_briefly() {
    const LOOK_NS: u64 = 50_000;
    const LOOKS: u32 = 1000;
    let poller = POLLER.load(Ordering::Relaxed);
    for _ in 0..LOOKS {
        if poller == 0 || !raw::has_thread(poller) {
            return;
        }
        raw::nap(LOOK_NS);
    }
}

/// No mapping of its own, like the coordinator's.
static STACK: Stack = Stack::new();

/// A standby ends with its supervisor. By this thread, because the kernel keeps the wish for each thread, and at a
/// promotion it is this one that takes it back: a promoted program must not end with its supervisor.
fn end_with_supervisor(header: &SegmentHeader) {
    use crate::kernel::PR_SET_PDEATHSIG;
    let supervised = || {
        // SAFETY: asks for a number.
        let parent = unsafe { raw::call1(raw::nr::GETPPID, 0) } as u32;
        parent == header.supervisor_pid.load(Ordering::Relaxed)
    };
    // A copy's first parent may have been a process in between, whose end must not be taken for the supervisor's.
    for _ in 0..ADOPTION_LOOKS {
        if supervised() {
            break;
        }
        raw::nap(ADOPTION_PAUSE_NS);
    }
    // SAFETY: an attribute of the calling thread; ends a standby whose supervisor is gone already.
    unsafe {
        raw::call2(raw::nr::PRCTL, PR_SET_PDEATHSIG, 9);
        if !supervised() {
            raw::call1(raw::nr::EXIT_GROUP, 0);
        }
    }
}

/// Once in so many naps a replay, which may be the child of another one, looks for the supervisor itself; and a standby at all
/// rings.
const LOOKS: u32 = 64;

/// How often, and how long apart, a new standby looks whether it is the supervisor's child.
const ADOPTION_LOOKS: u32 = 10_000;
const ADOPTION_PAUSE_NS: u64 = 50_000;

/// How long to nap where nothing has come for so long that the last nap was of `nap_ns`.
fn doze(header: &SegmentHeader, nap_ns: u64) -> u64 {
    let word = &header.dozing.0;
    if nap_ns == DOZE_NS {
        // Roused, and the threads are awake by themselves: who dozed again at once would be roused by each call.
        return if word.load(Ordering::Relaxed) == 0 { BATCH_NS } else { DOZE_NS };
    }
    word.swap(1, Ordering::SeqCst);
    // What came before the primary could see that word.
    if thread::wake_sleepers() == 0 {
        return DOZE_NS;
    }
    word.store(0, Ordering::Relaxed);
    BATCH_NS
}

extern "C" fn main(_: u64) {
    let Some(header) = state::header() else { return };
    if !state::is_detached() {
        end_with_supervisor(header);
    }
    let mut nap_ns = BATCH_NS;
    let mut looks = 0u32;
    let mut stall = Stall::new();
    loop {
        looks = looks.wrapping_add(1);
        if state::is_detached() && looks.is_multiple_of(LOOKS) && !members::is_fed() {
            verdict::end_replay(0);
        }
        let command = header.command.0.load(Ordering::Acquire);
        match command {
            command::PROMOTE if promote::is_chosen(header) => return promote::run(header),
            command::PROMOTE => promote::attend(header),
            command::CLOSE_GAPS => promote::close_gaps(header),
            command::END => {
                mirror::ends();
                verdict::end_replay(0)
            }
            _ => {}
        }
        seats::notice_place(header);
        if looks.is_multiple_of(LOOKS) {
            // Not at each look: it pulls the lines of all rings, which the primary's threads are about to write.
            invariant::applied_is_published(header, seats::own());
        }
        // A debugger may hold a replay for as long as it likes.
        if !state::is_detached() && stall.is_one(header, STALL_NS) {
            stall::report(header);
        }
        nap_ns = match thread::wake_sleepers() {
            0 if nap_ns >= nap::LAST_NS && !state::is_detached() => doze(header, nap_ns),
            lag => nap::after(nap_ns, lag, RING_NEAR as u64),
        };
        // The value just seen: while the primary parks for a switch it is another than `FOLLOW`.
        raw::futex_wait_shared(&header.command.0, command, nap_ns);
    }
}
