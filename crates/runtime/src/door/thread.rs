//! Creation and end of threads.
//!
//! A thread has a slot: a ring, a block, and a stack at a fixed address, so `pthread_self()` and every
//! address on the stack are equal in all copies. The parent publishes the slot before the thread is made
//! and the result after; the thread publishes its start before it runs guest code, so that a promoted copy
//! can tell a thread that was never made from one that was.

use core::ffi::c_void;
use core::sync::atomic::{AtomicU32, Ordering};

use us_abi::THREADS_MAX;
use us_abi::event::{EventKind, NO_TICKET, ThreadStart};
use us_calls::{Class, Row};

use super::pending;
use super::thread_create::create;
use super::thread_place;
use super::thread_schedule::create_scheduled;
use super::thread_stack;
use crate::lock::Lock;
use crate::log::Next;
use crate::raw::{self};
use crate::state::Role;
use crate::sys::{gate_stack, wall};
use crate::thread::{self, Mode, Shared, Thread};
use crate::turns::doors::ordered_frame;
use crate::{bound, milestones, missing, notice, paths, real, signal, state, tls, turns};

pub(super) const EAGAIN: i32 = linux_raw_sys::errno::EAGAIN as i32;

static LOCK: Lock = Lock::new();

pub(super) type Start = unsafe extern "C-unwind" fn(*mut c_void) -> *mut c_void;
/// glibc's `pthread_attr_t`.
pub(super) type Attributes = [u64; 7];

pub(super) fn row() -> &'static Row {
    match us_calls::row(raw::nr::CLONE) {
        Some(row) => row,
        None => crate::verdict::last_words(&[b"no row for clone"]),
    }
}

/// From here on the program is multithreaded: what orders threads is logged.
pub(super) fn become_threaded(thread: &Thread) {
    crate::twins::stop();
    super::sync::becomes_threaded();
    turns::logical::begin(thread);
    if thread.lock_mode.load(Ordering::Relaxed) == thread.call_mode.load(Ordering::Relaxed) {
        return;
    }
    thread.lock_mode.store(thread.call_mode.load(Ordering::Relaxed), Ordering::Relaxed);
}

/// Whether the thread behind a handle, which has not been joined, is gone.
pub fn has_ended(handle: u64) -> bool {
    tls::end_word(handle).load(Ordering::Acquire) == 0
}

/// Whether a slot can be given to a new thread. Not before its last maker is through: between the moment when libc has cleared
/// the control block and the kernel's word in it, a thread that is being made looks like one that has ended, and one that has
/// ended before its maker was back is looked at by that. Two threads were given one stack.
fn is_free(other: &Shared) -> bool {
    if other.is_being_made.load(Ordering::Acquire) {
        return false;
    }
    match other.fate.load(Ordering::Acquire) {
        JOINED => true,
        DETACHED => is_gone(other),
        fate => fate == UNUSED && other.generation() == 0,
    }
}

/// Whether a detached thread has ended. Its control block tells only while it lies in a stack of ours: the guest may have
/// given the memory of its own to something else. Where the runtime has left, nobody asks the kernel: a filter that does not
/// know this call ended a process whose main thread has kept a number over a failover, at its first `pthread_create`.
pub(super) fn is_gone(other: &Shared) -> bool {
    let handle = other.handle.load(Ordering::Acquire);
    if thread_stack::is_ours(handle) {
        return has_ended(handle);
    }
    let (pid, tid) = (state::REAL_PID.load(Ordering::Relaxed), other.kernel_tid());
    // SAFETY: signal 0 only asks.
    handle != 0
        && tid != 0
        && !bound::has_left()
        && unsafe { raw::call3(raw::nr::TGKILL, u64::from(pid), u64::from(tid), 0) } == raw::err::ESRCH
}

pub(super) const UNUSED: i32 = 0;
pub(super) const DETACHED: i32 = 1;
pub(super) const JOINED: i32 = 2;
pub(super) const JOINABLE: i32 = 3;
pub(super) const CLAIMED: i32 = 4;

/// In a forked child: the slot of a thread that was left behind. How many threads it has had is not the child's: another thread of
/// the parent's may have been about to make the next, and no log says on which side of the fork.
pub fn vacate(slot: u32) {
    // SAFETY: this process has no other thread, and the slot is not the caller's.
    let block = unsafe { thread::standing(slot) };
    block.set_generation(0);
    block.fate.store(UNUSED, Ordering::Relaxed);
    block.is_being_made.store(false, Ordering::Relaxed);
    block.kept_for.store(0, Ordering::Relaxed);
    block.runs_as.store(0, Ordering::Relaxed);
    signal::reset(block);
    block.borrowed.store(0, Ordering::Relaxed);
}

/// The slot is its next thread's maker's, until [`let_go`].
pub(super) fn hold(block: &Shared) {
    block.is_being_made.store(true, Ordering::Release);
    block.fate.store(CLAIMED, Ordering::Release);
}

/// Its maker is through: from here on what counts is what becomes of the thread.
pub(super) fn let_go(slot: u32) {
    thread::shared(slot).is_being_made.store(false, Ordering::Release);
}

/// Takes a slot, as the copy that decides.
pub(super) fn claim_slot() -> Option<u32> {
    LOCK.with(|| {
        let has_place = |slot: &u32| thread::exists(*slot) && missing::has_entries(*slot);
        let mut slots = (1..THREADS_MAX as u32).take_while(has_place);
        slots.find(|slot| is_claimed(*slot, 0)).or_else(claim_beyond)
    })
}

/// At a promotion, before anybody is live: nobody else takes the slot of a thread whose making is in doubt. In a copy that was made
/// meanwhile it has that thread, and waits to hear of it.
pub fn keep_for(slot: u32, maker: u32) {
    thread::shared(slot).kept_for.store(maker + 1, Ordering::SeqCst);
}

/// Takes the slot that the dead primary had given to a thread, to make that again: another copy may have it there already. It
/// is free, or will be as soon as the thread that joins its last one comes by; if not, another one.
pub(super) fn claim_again(slot: u32, maker: u32) -> Option<u32> {
    const TRIES: u32 = 2_000;
    const PAUSE_NS: u64 = 50_000;
    for _ in 0..TRIES {
        if LOCK.with(|| is_claimed(slot, maker + 1)) {
            return Some(slot);
        }
        raw::nap(PAUSE_NS);
    }
    thread::shared(slot).kept_for.store(0, Ordering::SeqCst);
    claim_slot()
}

/// Takes this slot, if it is free, or kept for a thread of the slot below `maker`. With the lock held.
fn is_claimed(slot: u32, maker: u32) -> bool {
    let block = thread::shared(slot);
    let kept_for = block.kept_for.load(Ordering::SeqCst);
    let free = is_free(block) && (kept_for == 0 || kept_for == maker);
    if free {
        block.kept_for.store(0, Ordering::SeqCst);
        hold(block);
    }
    free
}

/// With all slots in use: a place beyond them, with the lock held. Of those that have been used a few are looked at, going on
/// where the last search ended: where all of many live, each new thread would look at all the others.
#[cold]
fn claim_beyond() -> Option<u32> {
    static USED: AtomicU32 = AtomicU32::new(0);
    static LAST: AtomicU32 = AtomicU32::new(0);
    const LOOKS: u32 = 256;
    let (first, most) = (THREADS_MAX as u32, thread::BEYOND_MAX as u32);
    let (used, last) = (USED.load(Ordering::Relaxed), LAST.load(Ordering::Relaxed));
    let looks = if used == most { most } else { used.min(LOOKS) };
    let found = (1..=looks).map(|step| (last + step) % used).find(|place| is_claimed(first + place, 0));
    let place = match found {
        Some(place) => place,
        None if used < most && thread::exists(first + used) && is_claimed(first + used, 0) => {
            USED.store(used + 1, Ordering::Relaxed);
            used
        }
        None => return None,
    };
    LAST.store(place, Ordering::Relaxed);
    Some(first + place)
}

/// Whether a thread beyond the slots runs, or has not been joined: no copy could have it.
pub fn are_beyond() -> bool {
    let used = thread::SLOTS.load(Ordering::Acquire);
    (THREADS_MAX as u32..used).any(|slot| !is_free(thread::shared(slot)))
}

/// Makes a slot's memory ready in this copy: the ring mapped twice, the block reset.
pub(super) fn prepare(slot: u32, parent: &Thread) -> Option<&'static mut Thread> {
    let beyond = thread::is_beyond(slot);
    if !beyond && !thread::map_ring(slot) {
        return None;
    }
    thread::SLOTS.fetch_max(slot + 1, Ordering::AcqRel);
    let mode = if beyond { Mode::Solo as u8 } else { parent.call_mode.load(Ordering::Relaxed) };
    // SAFETY: the caller has claimed the slot: its last thread is gone, and its next does not exist.
    let block = unsafe { thread::standing(slot) };
    block.set_slot(slot);
    block.set_generation(block.generation().wrapping_add(1));
    block.lock_mode.store(mode, Ordering::Relaxed);
    block.call_mode.store(mode, Ordering::Relaxed);
    block.borrowed.store(0, Ordering::Relaxed);
    block.verify = parent.verify;
    block.doubt.set_open(false);
    block.signals.mask = parent.signals.mask;
    thread_place::inherit(block, parent);
    block.signals.alt_stack = [0, crate::kernel::SS_DISABLE, 0];
    block.stop_short();
    block.is_stillborn.store(false, Ordering::Relaxed);
    signal::reset(block);
    block.real_tid.store(0, Ordering::Relaxed);
    // The last thread's, whose stack the guest may have given to another slot's.
    block.handle.store(0, Ordering::Release);
    block.set_live(parent.is_live());
    if state::header().is_some() && !beyond {
        block.attach_ring();
        if state::is_standby() {
            // The slot's last thread's.
            crate::seats::tid(slot).store(0, Ordering::Relaxed);
        }
    }
    Some(block)
}

/// `pthread_create(3)`.
///
/// # Safety
/// As the C function.
#[unsafe(naked)]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pthread_create(
    _handle: *mut u64,
    _attributes: *const c_void,
    _start: Start,
    _argument: *mut c_void,
) -> i32 {
    ordered_frame!(CHANGES, create_thread)
}

unsafe extern "C" fn create_thread(
    handle: *mut u64,
    attributes: *const c_void,
    start: Start,
    argument: *mut c_void,
) -> i32 {
    let current = tls::current();
    if current.is_null() {
        // SAFETY: libc's own function with the guest's arguments.
        return unsafe {
            let create: unsafe extern "C" fn(*mut u64, *const c_void, Start, *mut c_void) -> i32 =
                core::mem::transmute(real::PTHREAD_CREATE.get());
            create(handle, attributes, start, argument)
        };
    }
    // SAFETY: the calling thread's own block; the arguments are the C function's.
    unsafe {
        let (parent, attributes) = (&mut *current, attributes.cast());
        if let Some(result) = create_scheduled(parent, handle, attributes, start, argument) {
            return result;
        }
        create(&mut *current, handle, attributes, start, argument, core::ptr::null_mut())
    }
}

/// First function of every guest thread.
///
/// Guest code below it may be unwound by `pthread_exit`: nothing here has to be dropped.
pub(super) unsafe extern "C-unwind" fn run(block: *mut c_void) -> *mut c_void {
    // SAFETY: the block that the parent prepared for this thread alone.
    let (start, argument) = unsafe {
        let thread = &mut *block.cast::<Thread>();
        enter(thread);
        let start: Start = core::mem::transmute(thread.start.routine.load(Ordering::Relaxed));
        (start, thread.start.argument.load(Ordering::Relaxed))
    };
    // SAFETY: the guest's own start routine.
    unsafe { start(argument.cast()) }
}

impl Thread {
    /// Gives the calling thread the number that the group has for it. glibc names threads to the kernel by the word in the
    /// control block, and a guest compares them: the group's number, in every copy. The kernel clears it at the thread's end
    /// all the same. What the kernel calls it comes first: who finds the number sends signals there.
    fn call_group(&mut self, tid: u32, number: u32) {
        self.set_guest_tid(number);
        self.set_kernel_tid(tid);
        tls::tid_word(tls::thread_pointer()).store(number, Ordering::Release);
    }
}

/// What a thread does before its first guest instruction.
fn enter(thread: &mut Thread) {
    tls::set_current(thread);
    thread.handle.store(tls::thread_pointer(), Ordering::Release);
    milestones::begin(thread);
    let named = tls::tid_of(tls::thread_pointer());
    // A filter need not allow the question.
    let tid = if bound::has_left() { named } else { raw::gettid() };
    // Forked in its first instructions it has another number than its maker knows.
    let group_tid = if thread.guest_tid() == 0 && named != tid { named } else { thread.guest_tid() };
    if group_tid == 0 && thread.calls() == Mode::Replay {
        // Otherwise others may be looking for this thread by its number already, to send it a signal.
        thread.set_guest_tid(tid);
    }
    loop {
        if thread.calls() != Mode::Replay {
            let number = if group_tid == 0 {
                super::numbers_again::named_unlike_others(thread, tid)
            } else {
                group_tid
            };
            if group_tid != 0 || number != tid {
                thread.call_group(tid, number);
            }
        }
        match thread.calls() {
            Mode::Solo => break,
            Mode::Record => {
                let start = ThreadStart { tid: thread.guest_tid(), generation: thread.generation(), zero: 0 };
                thread.append(EventKind::ThreadStart, 0, 0, NO_TICKET, &start);
                break;
            }
            Mode::Replay => match thread.expect(EventKind::ThreadStart, 0) {
                Next::Live => continue,
                Next::Event(event) => {
                    let number = event.payload().first_chunk::<4>().map(|bytes| u32::from_le_bytes(*bytes));
                    crate::seats::tid(thread.slot()).store(tid, Ordering::Relaxed);
                    thread.call_group(tid, number.unwrap_or(tid));
                    thread.close();
                    thread.count(Class::of_event(EventKind::ThreadStart, 0));
                    break;
                }
            },
        }
    }
    thread.set_kernel_tid(tid);
    if state::role() == Role::Outside || bound::has_left() {
        return;
    }
    pending::has_begun(thread.slot(), thread.guest_tid());
    // Also in a process that nobody follows: its signals and their masks are the runtime's, and so are the returns of its handlers.
    signal::set_stack(thread);
    gate_stack::begin_thread(thread, thread.born_on, tls::thread_pointer());
    wall::begin(thread);
    if state::header().is_some() && !state::is_standby() {
        notice::register(thread, tid);
    }
    signal::entered(thread);
    if !state::is_standby() {
        pending::raise_for(thread.slot(), tid);
    }
    turns::take_for_guest(thread);
}

/// The block of the thread behind a handle, if it is one of ours.
pub fn slot_of(handle: u64) -> Option<&'static Shared> {
    let is_its = |block: &&Shared| {
        let fate = block.fate.load(Ordering::Acquire);
        // On a stack of the guest's own another slot's thread may have its control block by now.
        let was = || fate == DETACHED && !thread_stack::is_ours(handle) && is_gone(block);
        block.handle.load(Ordering::Acquire) == handle && fate != JOINED && !was()
    };
    // The stack tells most: a program that joins thousands of threads would look at each of them each time.
    let by_stack = thread_stack::slot_of(handle).filter(|slot| thread::slots().contains(slot));
    by_stack.map(thread::shared).filter(is_its).or_else(|| thread::slots().map(thread::shared).find(is_its))
}

/// In a forked child: what of the parent's threads and segment is not its own.
pub fn forget_relatives(thread: &mut Thread) {
    paths::SEGMENT.store(0, Ordering::Relaxed);
    let own = thread.slot();
    for slot in thread::slots() {
        let block = thread::shared(slot);
        block.set_ring(false);
        block.waiter.reset();
        if slot != own {
            vacate(slot);
        }
    }
    thread.newborn = false;
}
