//! Creation and end of threads.
//!
//! A thread has a slot: a ring, a block, and a stack at a fixed address, so `pthread_self()` and every
//! address on the stack are equal in all copies. The parent publishes the slot before the thread is made
//! and the result after; the thread publishes its start before it runs guest code, so that a promoted copy
//! can tell a thread that was never made from one that was.

use core::ffi::c_void;
use core::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

use us_abi::event::{CallArgs, EventKind, NO_TICKET, ReturnHead, ThreadStart, op};
use us_abi::{RING_BYTES, RINGS_ADDRESS, RINGS_OFFSET, SEGMENT_ADDRESS, THREADS_MAX, slot};
use us_calls::{Class, Row};

use super::pending;
use super::sync::Caller;
use super::thread_stack::attributes_for;
use crate::clone::park;
use crate::log::Next;
use crate::members::join;
use crate::raw::{self, failed};
use crate::recording::{log, turns};
use crate::sys::recorded::{begin, end, take_begin_with, take_end};
use crate::sys::trap;
use crate::thread::{self, Mode, Thread};
use crate::{real, signal, standby, state, tls};

const EAGAIN: i32 = 11;

/// Offset of the kernel's thread id inside glibc's control block: zero once the thread is gone.
pub static TID_OFFSET: AtomicU64 = AtomicU64::new(0);

static LOCK: AtomicBool = AtomicBool::new(false);

/// A child process starts with nobody holding the lock.
pub fn reset_lock() {
    LOCK.store(false, Ordering::Release);
}

type Start = unsafe extern "C-unwind" fn(*mut c_void) -> *mut c_void;
/// glibc's `pthread_attr_t`.
pub(super) type Attributes = [u64; 7];

/// The word that the kernel clears at the end of the thread behind a handle.
fn tid_word(handle: u64) -> &'static AtomicU32 {
    // SAFETY: the control block of a thread that has not been joined yet, or lies in a stack of ours.
    unsafe { &*((handle + TID_OFFSET.load(Ordering::Relaxed)) as *const AtomicU32) }
}

/// The kernel's id of the thread behind a handle, as libc knows it; 0 once the thread is gone.
pub fn tid_of(handle: u64) -> u32 {
    tid_word(handle).load(Ordering::Acquire)
}

fn row() -> &'static Row {
    match us_calls::row(raw::nr::CLONE) {
        Some(row) => row,
        None => crate::last_words(&[b"no row for clone"]),
    }
}

/// From here on the program is multithreaded: what orders threads is logged.
fn become_threaded(thread: &Thread) {
    crate::clone::twins::stop();
    if thread.lock_mode.load(Ordering::Relaxed) == thread.call_mode.load(Ordering::Relaxed) {
        return;
    }
    thread.lock_mode.store(thread.call_mode.load(Ordering::Relaxed), Ordering::Relaxed);
}

/// Whether a slot can be given to a new thread.
fn is_free(other: &Thread) -> bool {
    let handle = other.handle.load(Ordering::Acquire);
    match other.fate.load(Ordering::Acquire) {
        JOINED => true,
        DETACHED => handle != 0 && tid_word(handle).load(Ordering::Acquire) == 0,
        _ => handle == 0 && other.generation == 0 && other.fate.load(Ordering::Acquire) == UNUSED,
    }
}

const UNUSED: i32 = 0;
const DETACHED: i32 = 1;
const JOINED: i32 = 2;
const JOINABLE: i32 = 3;
const CLAIMED: i32 = 4;

/// In a forked child: the slot of a thread that was left behind.
pub fn vacate(block: &mut Thread) {
    if block.generation != 0 {
        block.fate.store(JOINED, Ordering::Relaxed);
    }
    signal::reset(block);
    block.borrowed.store(0, Ordering::Relaxed);
}

/// Takes a slot, as the copy that decides.
fn claim_slot() -> Option<u32> {
    while LOCK.compare_exchange_weak(false, true, Ordering::Acquire, Ordering::Relaxed).is_err() {
        core::hint::spin_loop();
    }
    let found = (1..THREADS_MAX as u32).find(|slot| {
        // SAFETY: blocks are never freed; atomics, and a generation that only a holder of the lock changes.
        let block = unsafe { &*thread::block(*slot) };
        let free = is_free(block);
        if free {
            block.fate.store(CLAIMED, Ordering::Release);
        }
        free
    });
    LOCK.store(false, Ordering::Release);
    found
}

/// Makes a slot's memory ready in this copy: the ring mapped twice, the block reset.
fn prepare(slot: u32, parent: &Thread) -> Option<*mut Thread> {
    let block = thread::block(slot);
    if !map_ring(slot) {
        return None;
    }
    thread::SLOTS.fetch_max(slot + 1, Ordering::AcqRel);
    // SAFETY: the slot is free: its last thread is gone, and this copy's only user is the caller.
    unsafe {
        (*block).slot = slot;
        (*block).generation = (*block).generation.wrapping_add(1);
        (*block).lock_mode.store(parent.call_mode.load(Ordering::Relaxed), Ordering::Relaxed);
        (*block).call_mode.store(parent.call_mode.load(Ordering::Relaxed), Ordering::Relaxed);
        (*block).borrowed.store(0, Ordering::Relaxed);
        (*block).verify = parent.verify;
        (*block).in_doubt = u64::MAX;
        (*block).mask = parent.mask;
        (*block).name = parent.name;
        (*block).affinity = parent.affinity;
        (*block).alt_stack = [0, 2, 0];
        signal::reset(&mut *block);
        (*block).real_tid.store(0, Ordering::Relaxed);
        (*block).live = parent.live;
        if state::header().is_some() {
            (*block).attach_ring();
            if state::is_standby() {
                // The slot's last thread's.
                (*block).entry().standby_tid.store(0, Ordering::Relaxed);
            }
        }
    }
    Some(block)
}

/// Maps a slot's ring twice in a row. In a group only.
pub fn map_ring(slot: u32) -> bool {
    let Some(header) = state::header() else { return true };
    let base = (SEGMENT_ADDRESS + RINGS_OFFSET + slot as usize * RING_BYTES) as u64;
    let target = (RINGS_ADDRESS + slot as usize * 2 * RING_BYTES) as u64;
    header.slots.fetch_max(slot + 1, Ordering::AcqRel);
    // SAFETY: an old size of zero makes a second mapping of shared pages; both targets lie in our own range. The
    // memory of a ring that already has both is simply mapped again.
    unsafe {
        for half in 0..2 {
            const MAYMOVE_FIXED: u64 = 3;
            let at = target + half * RING_BYTES as u64;
            let result = raw::call6(raw::nr::MREMAP, [base, 0, RING_BYTES as u64, MAYMOVE_FIXED, at, 0]);
            if failed(result) {
                return false;
            }
        }
    }
    true
}

/// Makes the thread in this copy.
fn make(slot: u32, handle: *mut u64, given: *const Attributes, block: *mut Thread) -> i32 {
    let Some((attributes, detached)) = attributes_for(slot, given) else { return EAGAIN };
    // SAFETY: libc's function, with a start routine of ours and a block that outlives the thread.
    unsafe {
        (*block).fate.store(if detached { DETACHED } else { JOINABLE }, Ordering::Release);
        let create: unsafe extern "C" fn(*mut u64, *const Attributes, Start, *mut c_void) -> i32 =
            core::mem::transmute(real::PTHREAD_CREATE.get());
        let mut made = 0u64;
        let result = create(&raw mut made, &raw const attributes, run, block.cast());
        if result == 0 {
            (*block).handle.store(made, Ordering::Release);
            *handle = made;
        }
        result
    }
}

/// `pthread_create(3)`.
///
/// # Safety
/// As the C function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pthread_create(
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
    unsafe { create(&mut *current, handle, attributes.cast(), start, argument, core::ptr::null_mut()) }
}

/// What the thread is to run.
#[derive(Clone, Copy)]
struct Entry {
    start: Start,
    argument: *mut c_void,
    start_c11: *mut u8,
}

/// # Safety
/// As `pthread_create`; `start_c11` is the routine behind `run_c11`.
pub(super) unsafe fn create(
    parent: &mut Thread,
    handle: *mut u64,
    attributes: *const Attributes,
    start: Start,
    argument: *mut c_void,
    start_c11: *mut u8,
) -> i32 {
    if parent.newborn {
        join::join(parent);
    }
    become_threaded(parent);
    let entry = Entry { start, argument, start_c11 };
    loop {
        let replay = parent.calls() == Mode::Replay;
        // A slot, and as a standby which of its threads this is.
        let (slot, generation) = if replay {
            match take_begin_with(parent, row(), -1, 0, |_, _| ()) {
                Some(word) => (word as u32, (word >> 32) as u32),
                None => continue,
            }
        } else {
            match claim_slot() {
                Some(slot) => (slot, 0),
                None => return EAGAIN,
            }
        };
        // SAFETY: the arguments are the C function's.
        match unsafe { create_in(parent, slot, generation, replay, handle, attributes, entry) } {
            Some(result) => return result,
            None => continue,
        }
    }
}

/// # Safety
/// As `pthread_create`; the slot is claimed.
unsafe fn create_in(
    parent: &mut Thread,
    slot: u32,
    generation: u32,
    replay: bool,
    handle: *mut u64,
    attributes: *const Attributes,
    entry: Entry,
) -> Option<i32> {
    let mut group_tid = 0;
    if replay {
        let (result, tid) = take_end(parent, row(), |_, head, _, _| {
            await_slot(slot, generation);
            // Before the event is given back: with all rings empty others go live, and look for a free slot.
            // SAFETY: blocks are never freed.
            unsafe { (*thread::block(slot)).fate.store(CLAIMED, Ordering::Release) };
            (head.result as i32, head.identity as u32)
        })?;
        if result != 0 {
            // SAFETY: the slot's last thread is gone, and its next waits for this one's number.
            let block = unsafe { &mut *thread::block(slot) };
            block.generation = generation;
            block.fate.store(JOINED, Ordering::Release);
            return Some(result);
        }
        group_tid = tid;
    }
    let block = match prepare(slot, parent) {
        Some(block) => block,
        None => return Some(EAGAIN),
    };
    // SAFETY: prepared, and not running yet.
    unsafe {
        // The number that this thread has if its primary was killed before it could say so itself.
        (*block).guest_tid = group_tid;
        (*block).start.store(entry.start as *mut u8, Ordering::Relaxed);
        (*block).argument.store(entry.argument.cast(), Ordering::Relaxed);
        (*block).start_c11.store(entry.start_c11, Ordering::Relaxed);
    }
    let record = parent.calls() == Mode::Record;
    let stops = parent.stops;
    if record {
        announce_slot(slot, block);
        begin(parent, row(), CallArgs { fd: -1, digest: 0, len: slot_word(slot, block) });
    }
    parent.making = true;
    parent.shared_with_guest();
    let result = make(slot, handle, attributes, block);
    parent.shared_with_guest();
    parent.making = false;
    if result == 0 {
        // SAFETY: the handle that has just been stored.
        let word = tid_word(unsafe { *handle });
        let tid = word.load(Ordering::Acquire);
        if replay && group_tid != 0 && tid != 0 {
            // What glibc takes from this word (a path under /proc, a signal's target) is the group's number in every
            // copy. The thread may have ended meanwhile; then the kernel's zero stays.
            let _ = word.compare_exchange(tid, group_tid, Ordering::AcqRel, Ordering::Acquire);
        }
        group_tid = tid;
    }
    // Parked inside libc's function, the log in which this call began is not the one that there is now, unless it is
    // recorded: then it went on, and the copy that was made meanwhile finds the end of a call that it has not begun.
    if record && (parent.stops == stops || log::went_on_at_clone()) {
        if parent.calls() == Mode::Replay {
            let _ = take_end(parent, row(), |_, _, _, _| ());
        } else {
            end(parent, row(), 0, ReturnHead { result: i64::from(result), identity: u64::from(group_tid) });
        }
    }
    if result != 0 {
        // SAFETY: the block of a thread that was not made.
        unsafe { (*block).fate.store(JOINED, Ordering::Release) };
        if replay {
            crate::report_divergence(parent, &[b"a thread could not be made in the standby"]);
        }
    }
    Some(result)
}

/// What the log says of a thread that is made: its slot, and above that which of the slot's threads it is.
fn slot_word(slot: u32, block: *mut Thread) -> u64 {
    // SAFETY: prepared by the caller, and not running yet.
    u64::from(slot) | u64::from(unsafe { (*block).generation }) << 32
}

/// Shows the supervisor a slot that is about to have a thread.
fn announce_slot(slot: u32, block: *mut Thread) {
    let entry = state::entry(slot);
    // SAFETY: prepared by the caller.
    entry.generation.store(unsafe { (*block).generation }, Ordering::Relaxed);
    entry.notice.word.store(0, Ordering::Relaxed);
    entry.state.store(slot::CREATING, Ordering::Release);
}

/// Waits, in a standby, until every earlier thread of a slot has been made, is gone, and has been joined by whoever
/// joins it: its ring, block and stack are reused. The log does not order a creation behind the end of the slot's
/// last thread, nor behind its making by another: too early, the new thread would find the old one's events, and a
/// joiner that comes late would wait for the new one.
fn await_slot(slot: u32, generation: u32) {
    // SAFETY: blocks are never freed.
    let block = unsafe { &*thread::block(slot) };
    let mut nap_ns = 50_000;
    loop {
        // SAFETY: a word that only the maker of the slot's next thread changes, who waits here like us.
        let made = unsafe { (&raw const block.generation).read_volatile() };
        let handle = block.handle.load(Ordering::Acquire);
        match block.fate.load(Ordering::Acquire) {
            // glibc marks a joined thread in the very word that the kernel has cleared.
            UNUSED | JOINED if made.wrapping_add(1) == generation => return,
            DETACHED if made.wrapping_add(1) == generation && handle != 0 => return wait_gone(handle, None),
            _ => {}
        }
        raw::nap(nap_ns);
        // A standby that waits here for ever must not look busy.
        nap_ns = (nap_ns + nap_ns / 16).min(2_000_000);
    }
}

/// Waits for the end of the thread behind a handle. With a thread of ours, its signals are delivered meanwhile.
fn wait_gone(handle: u64, mut waiter: Option<&mut Thread>) {
    let word = tid_word(handle);
    loop {
        let tid = word.load(Ordering::Acquire);
        if tid == 0 {
            return;
        }
        match waiter.as_deref_mut() {
            Some(thread) if thread.calls() == Mode::Replay => {
                // The primary may have delivered a signal while it waited here.
                let next = thread.peek().map_or(0, |next| next.kind);
                if next == EventKind::Signal as u8 {
                    thread.take_signal();
                } else if next == EventKind::Yield as u8 {
                    turns::follow_pause(thread);
                } else if state::LIVE.load(Ordering::Acquire) {
                    // Whoever waits here after a promotion has to be open for signals like any other.
                    standby::promote::go_live(thread);
                } else {
                    raw::futex_wait_shared(word, tid, 1_000_000);
                }
            }
            Some(thread) => {
                signal::cancellation_point(thread);
                let args = [word.as_ptr() as u64, 0, u64::from(tid), 0, 0, 0];
                turns::pause(thread);
                // SAFETY: a futex wait on a word of our own memory; shared, as the kernel's wake is.
                let result = unsafe { raw::blocking(raw::nr::FUTEX, &args, &thread.pending) };
                turns::take(thread);
                if result == raw::err::EINTR {
                    signal::deliver(thread);
                    park::at_door(thread);
                }
            }
            None => {
                raw::futex_wait_shared(word, tid, 0);
            }
        }
    }
}

/// First function of every guest thread.
///
/// Guest code below it may be unwound by `pthread_exit`: nothing here has to be dropped.
unsafe extern "C-unwind" fn run(block: *mut c_void) -> *mut c_void {
    // SAFETY: the block that the parent prepared for this thread alone.
    let (start, argument) = unsafe {
        let thread = &mut *block.cast::<Thread>();
        enter(thread);
        let start: Start = core::mem::transmute(thread.start.load(Ordering::Relaxed));
        (start, thread.argument.load(Ordering::Relaxed))
    };
    // SAFETY: the guest's own start routine.
    unsafe { start(argument.cast()) }
}

/// What a thread does before its first guest instruction.
fn enter(thread: &mut Thread) {
    tls::set_current(thread);
    thread.handle.store(tls::thread_pointer(), Ordering::Release);
    let tid = raw::gettid();
    let group_tid = thread.guest_tid;
    if group_tid == 0 {
        // Otherwise others may be looking for this thread by its number already, to send it a signal.
        thread.guest_tid = tid;
    }
    loop {
        match thread.calls() {
            Mode::Solo => {
                if group_tid != 0 {
                    tid_word(tls::thread_pointer()).store(group_tid, Ordering::Release);
                }
                break;
            }
            Mode::Record => {
                let start = ThreadStart { tid, generation: thread.generation, zero: 0 };
                thread.append(EventKind::ThreadStart, 0, 0, NO_TICKET, &start);
                break;
            }
            Mode::Replay => match thread.expect(EventKind::ThreadStart, 0) {
                Next::Live => continue,
                Next::Event(event) => {
                    if let Some(bytes) = event.payload().first_chunk::<4>() {
                        thread.guest_tid = u32::from_le_bytes(*bytes);
                    }
                    thread.entry().standby_tid.store(tid, Ordering::Relaxed);
                    // glibc names threads to the kernel by this word, and a guest compares them: the group's number,
                    // in every copy. The kernel clears it at the thread's end all the same.
                    tid_word(tls::thread_pointer()).store(thread.guest_tid, Ordering::Release);
                    thread.close();
                    thread.count(Class::of_event(EventKind::ThreadStart, 0));
                    break;
                }
            },
        }
    }
    thread.real_tid.store(if thread.guest_tid == tid { 0 } else { tid }, Ordering::Relaxed);
    if state::header().is_none() {
        return;
    }
    signal::set_stack(thread);
    trap::arm(thread);
    if !state::is_standby() {
        standby::notice::register(thread, tid);
    }
    signal::entered(thread);
    if !state::is_standby() {
        pending::raise_for(thread.slot, tid);
    }
    turns::take(thread);
}

/// `pthread_join(3)`: a wait of our own first, so that nobody is ever left inside libc's.
///
/// # Safety
/// As the C function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pthread_join(handle: u64, result: *mut *mut c_void) -> i32 {
    let block = slot_of(handle);
    if let Some(other) = block
        && other.fate.load(Ordering::Acquire) == JOINABLE
        && handle != tls::thread_pointer()
    {
        // SAFETY: the calling thread's own block.
        wait_gone(handle, unsafe { tls::current().as_mut() });
    }
    // SAFETY: libc's function with the guest's arguments.
    let outcome = unsafe {
        let join: unsafe extern "C" fn(u64, *mut *mut c_void) -> i32 =
            core::mem::transmute(real::PTHREAD_JOIN.get());
        join(handle, result)
    };
    if outcome == 0
        && let Some(other) = block
    {
        other.fate.store(JOINED, Ordering::Release);
        joined(other.slot);
    }
    outcome
}

/// A thread has been joined. The log says so although nothing is ordered by it: where one copy has joined a thread and the
/// other has not, the slot is never free for the thread that is to have it next, and nothing else is compared.
fn joined(slot: u32) {
    let caller = Caller::get();
    let call = op::JOIN << 12 | slot as u16;
    if let Some(thread) = caller.replaying()
        && let Next::Event(_) = thread.expect(EventKind::Ordered, call)
    {
        thread.close();
        return thread.count(Class::Thread);
    }
    // Also where the log ended just here, and goes on.
    if let Some(thread) = caller.recording() {
        thread.push(EventKind::Ordered, 0, call, NO_TICKET);
    }
}

/// `pthread_detach(3)`.
///
/// # Safety
/// As the C function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pthread_detach(handle: u64) -> i32 {
    let block = slot_of(handle);
    // SAFETY: libc's function with the guest's argument.
    let outcome = unsafe {
        let detach: unsafe extern "C" fn(u64) -> i32 = core::mem::transmute(real::PTHREAD_DETACH.get());
        detach(handle)
    };
    if outcome == 0
        && let Some(other) = block
    {
        other.fate.store(DETACHED, Ordering::Release);
    }
    outcome
}

/// The block of the thread behind a handle, if it is one of ours.
pub fn slot_of(handle: u64) -> Option<&'static Thread> {
    (0..thread::SLOTS.load(Ordering::Acquire))
        // SAFETY: blocks are never freed; atomics only.
        .map(|slot| unsafe { &*thread::block(slot) })
        .find(|block| {
            block.handle.load(Ordering::Acquire) == handle && block.fate.load(Ordering::Acquire) != JOINED
        })
}
