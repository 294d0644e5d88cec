//! What every thread of this copy may read of a thread, and write: atomics.

use core::sync::atomic::{AtomicBool, AtomicI32, AtomicPtr, AtomicU8, AtomicU32, AtomicU64, Ordering};

use crate::raw::{self, Look};
use crate::state;
use crate::thread::Mode;
use crate::thread::doubt::Doubt;
use crate::thread::milestones::Passed;
use crate::thread::place::Place;
use crate::thread::queue::Queue;
use crate::thread::turn::Turn;
use crate::thread::used::Used;
use crate::thread::waiter::Waiter;

/// The shared part of a block.
#[repr(C, align(128))]
pub struct Shared {
    /// Mode of the doors that order (locks, semaphores, streams). Solo until the program is multithreaded.
    pub lock_mode: AtomicU8,
    /// Mode of the doors that input and output pass.
    pub call_mode: AtomicU8,
    /// Not zero while a child made by vfork borrows this block: its calls are nobody's but its own.
    pub borrowed: AtomicU8,
    /// The selector byte of syscall user dispatch: always BLOCK.
    pub selector: AtomicU8,
    /// Whether dispatch is armed in it.
    pub is_armed: AtomicBool,
    /// Handlers that it is in and whose return is to be trapped.
    pub handlers: AtomicU32,
    /// Whether this thread has taken its place among the living after a promotion.
    is_live: AtomicBool,
    /// Whether this copy has mapped its ring, and the thread may use it.
    has_ring: AtomicBool,
    /// Whether signals are queued for this thread's next door.
    pub pending: Look,
    /// Whether a SIGSYS that this thread is sending to itself has not come in.
    pub awaits_own: AtomicBool,
    /// Somebody has asked for this thread's cancellation.
    pub cancel: AtomicU32,

    /// Slot number.
    slot: AtomicU32,
    /// How often the slot has been used.
    generation: AtomicU32,
    /// Thread id the guest sees.
    guest_tid: AtomicU32,
    /// Kernel's thread id in a promoted copy, 0 where it equals the guest's.
    pub real_tid: AtomicU32,
    /// The kernel's number of the thread that runs on this block now, 0 for none.
    pub runs_as: AtomicU32,
    /// glibc's handle of the thread: the address of its control block.
    pub handle: AtomicU64,

    /// Futex on which this thread sleeps as a standby; counts the reasons to look again.
    pub bell: AtomicU32,
    /// The time of parks in which it stands still, 0 outside.
    pub stands: AtomicU32,
    /// Whether it sleeps for an event of its ring.
    pub parked: AtomicBool,
    /// The clock it sleeps for, null for none, and the ticket.
    pub awaited: AtomicPtr<AtomicU64>,
    /// See `awaited`.
    pub awaited_ticket: AtomicU64,
    /// The call that it has begun.
    pub doubt: Doubt,

    /// Its turn.
    pub turn: Turn,
    /// The milestones that it has passed.
    pub milestones: Passed,

    /// What it runs.
    pub start: Start,
    /// See the door of threads.
    pub fate: AtomicI32,
    /// Its maker could not make it as asked: it ends before it begins.
    pub is_stillborn: AtomicBool,
    /// Whether its maker, in this copy, is still inside `pthread_create`: until then the slot is nobody else's, whatever has
    /// become of the thread.
    pub is_being_made: AtomicBool,
    /// At a promotion: the slot, and one more, of the thread that was making the slot's next one when the primary died, and makes it
    /// again; 0 for none.
    pub kept_for: AtomicU32,
    /// In a copy that was made while this thread made another one: what the log says of that, and its end not; 0 for none.
    pub creation_in_doubt: AtomicU64,
    /// Bytes of the slot's own stack, 0 if it has none yet.
    pub stack_bytes: AtomicU64,
    /// Bytes below it that nobody may touch.
    pub guard_bytes: AtomicU64,
    /// The runtime's own signal stack of the slot, 0 if it has none yet.
    pub signal_stack: AtomicU64,

    /// Where it runs.
    pub place: Place,
    /// The processor time that it has been told of.
    pub used: Used,
    /// Its place among those who wait on a condition variable.
    pub waiter: Waiter,
    /// Signals that wait for a door.
    pub queue: Queue,
}

/// The thread's entry point and argument, until it runs.
pub struct Start {
    /// The routine that it begins with.
    pub routine: AtomicPtr<u8>,
    /// That routine's argument.
    pub argument: AtomicPtr<u8>,
    /// The routine of a C11 thread.
    pub c11: AtomicPtr<u8>,
}

impl Shared {
    /// All zero, so that the table costs no bytes in the library's file and no memory before it is used.
    pub(super) const fn unused() -> Shared {
        Shared {
            lock_mode: AtomicU8::new(0),
            call_mode: AtomicU8::new(0),
            borrowed: AtomicU8::new(0),
            selector: AtomicU8::new(0),
            is_armed: AtomicBool::new(false),
            handlers: AtomicU32::new(0),
            is_live: AtomicBool::new(false),
            has_ring: AtomicBool::new(false),
            pending: Look::new(),
            awaits_own: AtomicBool::new(false),
            cancel: AtomicU32::new(0),
            slot: AtomicU32::new(0),
            generation: AtomicU32::new(0),
            guest_tid: AtomicU32::new(0),
            real_tid: AtomicU32::new(0),
            runs_as: AtomicU32::new(0),
            handle: AtomicU64::new(0),
            bell: AtomicU32::new(0),
            stands: AtomicU32::new(0),
            parked: AtomicBool::new(false),
            awaited: AtomicPtr::new(core::ptr::null_mut()),
            awaited_ticket: AtomicU64::new(0),
            doubt: Doubt::new(),
            turn: Turn::unused(),
            milestones: Passed::none(),
            start: Start {
                routine: AtomicPtr::new(core::ptr::null_mut()),
                argument: AtomicPtr::new(core::ptr::null_mut()),
                c11: AtomicPtr::new(core::ptr::null_mut()),
            },
            fate: AtomicI32::new(0),
            is_stillborn: AtomicBool::new(false),
            is_being_made: AtomicBool::new(false),
            kept_for: AtomicU32::new(0),
            creation_in_doubt: AtomicU64::new(0),
            stack_bytes: AtomicU64::new(0),
            guard_bytes: AtomicU64::new(0),
            signal_stack: AtomicU64::new(0),
            place: Place::new(),
            used: Used::new(),
            waiter: Waiter::new(),
            queue: Queue::new(),
        }
    }

    /// Mode of the ordering doors.
    #[inline(always)]
    pub fn locks(&self) -> Mode {
        mode(self.lock_mode.load(Ordering::Relaxed))
    }

    /// Mode of the input and output doors.
    #[inline(always)]
    pub fn calls(&self) -> Mode {
        mode(self.call_mode.load(Ordering::Relaxed))
    }

    /// Whether this thread has taken its place among the living after a promotion.
    #[inline(always)]
    pub fn is_live(&self) -> bool {
        self.is_live.load(Ordering::Relaxed)
    }

    /// Sets that.
    pub fn set_live(&self, is_live: bool) {
        self.is_live.store(is_live, Ordering::Relaxed);
    }

    /// Whether this copy has mapped its ring, and the thread may use it.
    pub fn has_ring(&self) -> bool {
        self.has_ring.load(Ordering::Acquire)
    }

    /// Sets that.
    pub fn set_ring(&self, has_ring: bool) {
        self.has_ring.store(has_ring, Ordering::Release);
    }

    /// The slot's number.
    #[inline(always)]
    pub fn slot(&self) -> u32 {
        self.slot.load(Ordering::Relaxed)
    }

    /// Sets it: the block is used for the first time.
    pub fn set_slot(&self, slot: u32) {
        self.slot.store(slot, Ordering::Relaxed);
    }

    /// How often the slot has been used.
    pub fn generation(&self) -> u32 {
        self.generation.load(Ordering::Relaxed)
    }

    /// Sets it: the slot gets another thread.
    pub fn set_generation(&self, generation: u32) {
        self.generation.store(generation, Ordering::Relaxed);
    }

    /// The thread's number as the guest knows it.
    #[inline(always)]
    pub fn guest_tid(&self) -> u32 {
        self.guest_tid.load(Ordering::Relaxed)
    }

    /// Sets it.
    pub fn set_guest_tid(&self, tid: u32) {
        self.guest_tid.store(tid, Ordering::Relaxed);
    }

    /// Sets it, unless somebody has. What it is now.
    pub fn decide_guest_tid(&self, tid: u32) -> u32 {
        let decided = self.guest_tid.compare_exchange(0, tid, Ordering::Relaxed, Ordering::Relaxed);
        decided.map_or_else(|now| now, |_| tid)
    }

    /// Notes the kernel's number of this thread, behind the guest's.
    pub fn set_kernel_tid(&self, tid: u32) {
        self.real_tid.store(if self.guest_tid() == tid { 0 } else { tid }, Ordering::Release);
    }

    /// The kernel's number of this thread.
    pub fn kernel_tid(&self) -> u32 {
        match self.real_tid.load(Ordering::Relaxed) {
            0 => self.guest_tid(),
            tid => tid,
        }
    }

    /// The shared entry of this slot in the segment.
    #[inline(always)]
    pub fn entry(&self) -> &'static us_abi::ThreadEntry {
        state::entry(self.slot())
    }

    /// Wakes the thread if it sleeps as a standby.
    pub fn ring_bell(&self) {
        self.bell.fetch_add(1, Ordering::AcqRel);
        raw::futex_wake(&self.bell, 1);
        if let Some(kick) = crate::members::of_family::own_kick() {
            kick.fetch_add(1, Ordering::AcqRel);
            raw::futex_wake_shared(kick);
        }
    }
}

#[inline(always)]
fn mode(value: u8) -> Mode {
    match value {
        1 => Mode::Record,
        2 => Mode::Replay,
        _ => Mode::Solo,
    }
}
