//! Barriers. Every copy's threads meet locally; the log says only who was the serial thread.

use core::ffi::c_int;
use core::ptr;
use core::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering};

use us_abi::event::EventKind;
use us_calls::Class;
use us_order::barrier::is_serial;

use super::block::{Deadline, Wait};
use super::common;
use super::sync::{self, ALL, Caller, errno, op};
use crate::log::Next;
use crate::mapping::views;
use crate::thread::Mode;
use crate::turns::doors::{Scope, ordered_frame};

/// In the bytes of glibc's `pthread_barrier_t`.
#[repr(C)]
pub struct Barrier {
    arrived: AtomicU32,
    /// Complete rounds: what the waiters sleep on.
    rounds: AtomicU32,
    count: AtomicU32,
    shared: AtomicU32,
    /// One more than the last round whose serial thread is known.
    serial: AtomicU32,
    /// Threads between their arrival and their last touch of the object, and [`DESTROYING`].
    inside: AtomicU32,
}

/// Somebody waits in destroy for the last thread to leave.
const DESTROYING: u32 = 1 << 31;
/// `PTHREAD_BARRIER_SERIAL_THREAD`.
const SERIAL_THREAD: c_int = -1;

impl Barrier {
    fn shared(&self) -> bool {
        self.shared.load(Ordering::Relaxed) != 0
    }

    /// Makes the caller the round's serial thread; false if it has one.
    fn claim(&self, round: u32) -> bool {
        let next = round.wrapping_add(1);
        let claim = |serial: u32| (next.wrapping_sub(serial) as i32 > 0).then_some(next);
        self.serial.fetch_update(Ordering::AcqRel, Ordering::Acquire, claim).is_ok()
    }

    /// Counts the caller in. Tells the round; the last one completes it.
    fn arrive(&self) -> Arrival {
        self.inside.fetch_add(1, Ordering::Relaxed);
        // Stable: the round cannot end without the caller.
        let round = self.rounds.load(Ordering::Acquire);
        let last = common::arrive(&self.arrived, round) + 1 == self.count.load(Ordering::Relaxed);
        Arrival { round, last }
    }

    fn complete(&self, round: u32) {
        self.arrived.store(0, Ordering::Relaxed);
        self.rounds.store(round.wrapping_add(1), Ordering::Release);
        sync::wake(self.rounds.as_ptr(), ALL, self.shared());
    }

    /// Waits for the round's end. True, at once, if this has become a standby's thread meanwhile.
    fn await_round(&self, caller: Caller, round: u32) -> bool {
        while self.rounds.load(Ordering::Acquire) == round {
            if caller.sleep(&self.rounds, round, Deadline::None, self.shared()) == Wait::Follow {
                return true;
            }
        }
        false
    }

    fn leave(&self) {
        let (word, shared) = (self.inside.as_ptr(), self.shared());
        if self.inside.fetch_sub(1, Ordering::AcqRel) == DESTROYING | 1 {
            sync::wake(word, ALL, shared);
        }
    }

    /// Whether the log makes the caller the serial thread; `None` when it says nothing more.
    fn logged(&self, caller: Caller, round: u32) -> Option<bool> {
        let thread = caller.replaying()?;
        let Next::Event(event) = thread.expect(EventKind::Barrier, 0) else { return None };
        let serial = event.header.flags != 0;
        if serial {
            // Before the event is closed: whoever leaves live has seen every ring drained, and this with it.
            self.claim(round);
        }
        thread.close();
        thread.count(Class::of_event(EventKind::Barrier, 0));
        Some(serial)
    }

    fn wait(&self) -> bool {
        let caller = Caller::get();
        if let Some(serial) = self.wait_alike(caller) {
            return serial;
        }
        if caller.replaying().is_some()
            && views::is_elsewhere(self as *const Barrier as usize)
            && let Some(serial) = self.logged(caller, 0)
        {
            // Its other parties are other processes.
            return serial;
        }
        let Arrival { round, last } = self.arrive();
        // A primary's last arriver is serial. A standby's need not be: the log tells.
        let mut replays = caller.replaying().is_some();
        let first_claim = last && !replays && self.claim(round);
        if last {
            self.complete(round);
        }
        let mut logged = self.logged(caller, round);
        while self.await_round(caller, round) {
            // The log first: a signal may have been delivered in this wait. Asked again by a copy that was promoted in here
            // and cloned once more; but what an older log has said is in no later one.
            if logged.is_none() {
                (logged, replays) = (self.logged(caller, round), true);
            }
        }
        let serial = match (logged, replays) {
            (None, false) => first_claim,
            (None, true) => is_serial(None, !self.claim(round)),
            (logged, _) => is_serial(logged, false),
        };
        // One that was promoted in here has left the barrier by its primary's log.
        if logged.is_none()
            && let Some(thread) = caller.recording()
        {
            thread.push(EventKind::Barrier, u8::from(serial), 0, 0);
        }
        self.leave();
        serial
    }
}

/// A barrier at which a dead primary has arrived, the round, and whether it was the last.
static JOINED: AtomicUsize = AtomicUsize::new(0);
static JOINED_ROUND: AtomicU64 = AtomicU64::new(0);

/// At a promotion: an arrival that the log has.
fn finish_arrival(address: usize, made: bool) {
    let Some(values) = common::given(made) else { return };
    JOINED_ROUND.store(values, Ordering::Relaxed);
    JOINED.store(address, Ordering::Relaxed);
}

impl Barrier {
    /// Of several processes, in one of one thread: arrives, and comes through. `None` in any other.
    fn wait_alike(&self, caller: Caller) -> Option<bool> {
        if !self.shared() || caller.mode() != Mode::Solo {
            return None;
        }
        let address = self.arrived.as_ptr() as usize;
        if !common::releases(caller, op::ARRIVE, address, finish_arrival, || {}) {
            if let Some(serial) = common::followed(caller, op::PASS) {
                return Some(serial != 0);
            }
            if JOINED.compare_exchange(address, 0, Ordering::Relaxed, Ordering::Relaxed).is_ok() {
                return Some(self.go_on(caller, JOINED_ROUND.load(Ordering::Relaxed)));
            }
        }
        let Arrival { round, last } = self.arrive();
        let serial = last && self.claim(round);
        if last {
            self.complete(round);
        }
        Some(self.come_through(caller, round, serial))
    }

    /// In a dead primary's place, which has arrived: by the values that it has noted.
    fn go_on(&self, caller: Caller, values: u64) -> bool {
        let (round, arrived) = ((values >> 32) as u32, values as u32);
        let last = arrived == self.count.load(Ordering::Relaxed);
        if last && self.rounds.load(Ordering::Acquire) == round {
            self.claim(round);
            self.complete(round);
        }
        self.come_through(caller, round, last)
    }

    /// Waits for the end of a round in which the caller, or its primary, has arrived.
    fn come_through(&self, caller: Caller, round: u32, serial: bool) -> bool {
        while self.await_round(caller, round) {
            // A standby's thread by now, that was made in the wait: the log says how it ends, or this is live again and
            // waits on. It must not go through by itself: others may not have arrived.
            if let Some(serial) = common::followed(caller, op::PASS) {
                return serial != 0;
            }
        }
        common::tell(caller, op::PASS, self.arrived.as_ptr() as usize, c_int::from(serial));
        self.leave();
        serial
    }
}

struct Arrival {
    round: u32,
    last: bool,
}

/// `pthread_barrier_init`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pthread_barrier_init(
    barrier: *mut Barrier,
    attribute: *const u32,
    count: u32,
) -> c_int {
    if count == 0 || count > i32::MAX as u32 {
        return errno::EINVAL;
    }
    // SAFETY: null or the guest's attribute: whether processes share it.
    let shared = unsafe { attribute.as_ref() }.copied().unwrap_or(0);
    // SAFETY: the guest's bytes, of which nobody else knows yet.
    let this = unsafe {
        barrier.write_bytes(0, 1);
        &*barrier
    };
    this.shared.store(shared, Ordering::Relaxed);
    this.count.store(count, Ordering::Release);
    0
}

/// `pthread_barrier_destroy`: the serial thread may call it while the others have not yet left.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pthread_barrier_destroy(barrier: *const Barrier) -> c_int {
    // SAFETY: the guest's barrier.
    let barrier = unsafe { &*barrier };
    let _door = Scope::begin(ptr::from_ref(barrier).addr());
    let caller = Caller::get();
    let mut inside = barrier.inside.fetch_or(DESTROYING, Ordering::AcqRel) | DESTROYING;
    while inside != DESTROYING {
        caller.sleep(&barrier.inside, inside, Deadline::None, barrier.shared());
        inside = barrier.inside.load(Ordering::Acquire);
    }
    0
}

/// `pthread_barrier_wait`.
#[unsafe(naked)]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pthread_barrier_wait(_barrier: *const Barrier) -> c_int {
    ordered_frame!(CHANGES, wait_at)
}

unsafe extern "C" fn wait_at(barrier: *const Barrier) -> c_int {
    // SAFETY: the guest's barrier.
    if unsafe { &*barrier }.wait() { SERIAL_THREAD } else { 0 }
}
