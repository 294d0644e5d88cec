//! The making of a thread, in one copy and in all.

use core::ffi::c_void;
use core::sync::atomic::Ordering;

use us_abi::event::{CallArgs, EventKind, NO_TICKET, ReturnHead};
use us_abi::{Cause, slot};
use us_order::create::{self, Fate, Place};

use super::numbers_again::named_unlike_others;
use super::random;
use super::thread::{
    Attributes, DETACHED, EAGAIN, JOINABLE, JOINED, Start, UNUSED, become_threaded, claim_again, claim_slot,
    hold, is_gone, let_go, prepare, row, run,
};
use super::thread_join::wait_gone;
use super::thread_stack::{self, attributes_for, beginning_of, mask_in};
use crate::above::above;
use crate::door::recorded::{begin, end, take_begin_with, take_end};
use crate::fault::{self, Point};
use crate::log::Next;
use crate::thread::{self, Mode, Shared, Thread};
use crate::tls::tid_word;
use crate::turns::logical;
use crate::verdict::give_up_log;
use crate::{milestones, raw, real, recorder, signal, state, turns};

/// Makes the thread in this copy.
fn make(slot: u32, handle: *mut u64, given: *const Attributes, block: &mut Thread) -> i32 {
    let mut own = Attributes::default();
    let Some((attributes, detached)) = attributes_for(slot, given, &mut own) else { return EAGAIN };
    let shared = block.shared();
    shared.fate.store(if detached { DETACHED } else { JOINABLE }, Ordering::Release);
    // SAFETY: libc's function, with a start routine of ours and a block that is the new thread's from there on.
    unsafe {
        block.born_on = beginning_of(attributes);
        let create: unsafe extern "C" fn(*mut u64, *const Attributes, Start, *mut c_void) -> i32 =
            core::mem::transmute(real::PTHREAD_CREATE.get());
        let mut made = 0u64;
        let result = create(&raw mut made, attributes, run, (&raw mut *block).cast());
        if result == 0 {
            shared.handle.store(made, Ordering::Release);
            *handle = made;
        }
        result
    }
}

/// What the thread is to run.
#[derive(Clone, Copy)]
struct Entry {
    start: Start,
    argument: *mut c_void,
    start_c11: *mut u8,
    /// The mask that its attributes ask for.
    mask: Option<u64>,
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
        above().join(parent);
    }
    become_threaded(parent);
    // Of the first thread that is made the order begins here.
    let enters = turns::doors::enter(parent);
    turns::take(parent);
    // SAFETY: the caller's promise.
    let result = unsafe { create_in_turn(parent, handle, attributes, start, argument, start_c11) };
    if enters {
        turns::doors::leave(parent);
    }
    result
}

/// # Safety
/// As [`create`].
unsafe fn create_in_turn(
    parent: &mut Thread,
    handle: *mut u64,
    attributes: *const Attributes,
    start: Start,
    argument: *mut c_void,
    start_c11: *mut u8,
) -> i32 {
    // libc is asked before it is known in which mode this goes on. A thread that stands in libc may be parked for a clone: a copy that
    // began as a primary would make the thread without the log, which has it once more.
    let mask = mask_in(attributes);
    let entry = Entry { start, argument, start_c11, mask };
    random::about_to_make_another(parent);
    // The slot that the dead primary had chosen.
    let mut chosen = None;
    loop {
        let replay = parent.calls() == Mode::Replay;
        // A slot, and as a standby which of its threads this is.
        let (slot, generation) = if replay {
            match take_begin_with(parent, row(), -1, 0, |_, _| ()) {
                Some(word) => (word as u32, (word >> 32) as u32),
                None => continue,
            }
        } else {
            match chosen.map_or_else(claim_slot, |slot| claim_again(slot, parent.slot())) {
                Some(slot) => {
                    if thread::is_beyond(slot) {
                        give_up_log(Cause::CannotReplay, &[thread::BEYOND]);
                    }
                    (slot, 0)
                }
                None => return EAGAIN,
            }
        };
        // SAFETY: the arguments are the C function's.
        match unsafe { create_in(parent, slot, generation, replay, handle, attributes, entry) } {
            Some(result) => {
                let_go(slot);
                return result;
            }
            // Promoted, with the slot not taken yet.
            None => chosen = Some(slot),
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
            hold(thread::shared(slot));
            thread::shared(slot).kept_for.store(0, Ordering::SeqCst);
            (head.result as i32, head.identity as u32)
        })?;
        if result != 0 {
            let block = thread::shared(slot);
            block.set_generation(generation);
            block.fate.store(JOINED, Ordering::Release);
            return Some(result);
        }
        group_tid = tid;
    }
    let block = match prepare(slot, parent) {
        Some(block) => block,
        None => return Some(EAGAIN),
    };
    if let Some(mask) = entry.mask {
        block.signals.mask = signal::blockable(mask);
    }
    random::give_stream(parent, block);
    let shared = block.shared();
    // The number that this thread has if its primary was killed before it could say so itself.
    shared.set_guest_tid(group_tid);
    shared.start.routine.store(entry.start as *mut u8, Ordering::Relaxed);
    shared.start.argument.store(entry.argument.cast(), Ordering::Relaxed);
    shared.start.c11.store(entry.start_c11, Ordering::Relaxed);
    let record = parent.calls() == Mode::Record;
    let (log, stops) = (recorder::log_number(), parent.stops);
    if record {
        announce_slot(slot, shared);
        let word = slot_word(slot, shared);
        begin(parent, row(), arguments(word));
        parent.creation = (word, log);
    }
    logical::enter(parent, slot);
    parent.making = true;
    parent.shared_with_guest();
    fault::at(Point::Make, slot);
    let result = make(slot, handle, attributes, block);
    parent.shared_with_guest();
    parent.making = false;
    let (creation, _) = core::mem::take(&mut parent.creation);
    // Of a detached thread beyond the slots not even the control block need be there any more.
    if result == 0 && !thread::is_beyond(slot) {
        // SAFETY: the handle that has just been stored.
        let word = tid_word(unsafe { *handle });
        let tid = word.load(Ordering::Acquire);
        if !replay || group_tid == 0 {
            // What is set for it from here on is found by its number, also before it has begun. It decides on the same.
            group_tid = if tid == 0 { 0 } else { named_unlike_others(shared, tid) };
        }
        if group_tid != 0 && tid != 0 && tid != group_tid {
            // What glibc takes from this word (a path under /proc, a signal's target) is the group's number in every
            // copy. The thread may have ended meanwhile; then the kernel's zero stays.
            if parent.stops == stops {
                // A signal that is sent now has to find it. In a copy that was made meanwhile it is the primary's.
                shared.real_tid.store(tid, Ordering::Release);
            }
            let _ = word.compare_exchange(tid, group_tid, Ordering::AcqRel, Ordering::Acquire);
        }
    }
    let made = ReturnHead { result: i64::from(result), identity: u64::from(group_tid) };
    if replay {
        // The log has had the whole of it, with the number. A copy that was made meanwhile has that as well.
    } else if parent.stops == stops {
        if record {
            end(parent, row(), 0, made);
        }
    } else if let Some(tid) = made_in_two_copies(
        parent,
        if log == recorder::log_number() { creation } else { 0 },
        // SAFETY: as above.
        (result == 0).then(|| unsafe { *handle }),
        made,
    ) && result == 0
        && tid != 0
    {
        // SAFETY: as above.
        let word = tid_word(unsafe { *handle });
        let own = word.load(Ordering::Acquire);
        let _ = (own != 0).then(|| word.compare_exchange(own, tid, Ordering::AcqRel, Ordering::Acquire));
        // The new thread reads it once, perhaps before; then it has the number from its first event.
        shared.set_guest_tid(tid);
    }
    if result != 0 {
        logical::exit(parent, slot, 0);
        shared.fate.store(JOINED, Ordering::Release);
        if replay {
            crate::verdict::report_divergence(parent, &[b"a thread could not be made in the standby"]);
        }
    }
    Some(result)
}

/// The process was cloned while this thread was inside libc's function: each copy has made the thread, or has it from the
/// other, and what they call it is the primary's number. If the log in which the creation began has gone on since, that said
/// `logged` of it; another one has no end of it, and gets the number alone. Returns that as a standby.
#[cold]
fn made_in_two_copies(
    parent: &mut Thread,
    logged: u64,
    handle: Option<u64>,
    made: ReturnHead,
) -> Option<u32> {
    let mut head = made;
    if logged != 0 {
        let number = follow_creation(parent);
        let in_doubt = parent.creation_in_doubt.swap(0, Ordering::Relaxed) != 0;
        if number.is_none() {
            if in_doubt && parent.calls() == Mode::Record {
                // It has said that it makes it again.
                begin(parent, row(), arguments(logged));
            }
            head.identity = own_number(handle);
            end(parent, row(), 0, head);
        }
        return number;
    }
    loop {
        match parent.calls() {
            Mode::Solo => return None,
            Mode::Record => {
                parent.append(EventKind::Call, 0, row().nr, NO_TICKET, &head);
                return None;
            }
            Mode::Replay => match parent.expect(EventKind::Call, row().nr) {
                Next::Live => head.identity = own_number(handle),
                Next::Event(event) => {
                    let tid = event.returned().0.identity as u32;
                    parent.close();
                    return Some(tid);
                }
            },
        }
    }
}

/// In a copy that is live now, whose dead primary had not said how it calls the thread: the thread has its number, since its
/// first event has been applied.
fn own_number(handle: Option<u64>) -> u64 {
    handle.map_or(0, |handle| u64::from(tid_word(handle).load(Ordering::Acquire)))
}

/// In a copy that was made while its thread was inside libc's function: the number of the thread, once the log has it. Where the
/// primary was killed before it could say how that ended, the one that has taken over begins the call once more. `None` if that is
/// this copy.
fn follow_creation(parent: &mut Thread) -> Option<u32> {
    // Not in a copy that acts, whose ring has what it has said itself: it has stood still, for a checkpoint or for a switch that
    // was called off, and the log begins where it began.
    while parent.calls() == Mode::Replay {
        match parent.peek() {
            // Whoever makes it again may wait for one of libc's locks in that, and give its turn back.
            Some(header) if header.kind == EventKind::Yield as u8 => turns::follow_pause(parent),
            Some(_) if follow_making(parent) => {}
            Some(_) => return take_end(parent, row(), |_, head, _, _| head.identity as u32),
            None => parent.wait_more(),
        }
    }
    None
}

/// In such a copy: whether the front of the ring is of a thread that is made again by the one that has taken over. Then it is taken.
pub fn follow_making(parent: &mut Thread) -> bool {
    let logged = parent.creation_in_doubt.load(Ordering::Relaxed);
    let Some(header) = parent.peek().filter(|_| logged != 0) else { return false };
    match EventKind::from_u8(header.kind) {
        Some(EventKind::Again) => parent.take_front(&header),
        Some(EventKind::Enter) if header.call == row().nr => {
            let Some(word) = take_begin_with(parent, row(), -1, 0, |_, _| ()) else { return true };
            parent.doubt.set_open(false);
            if word != logged {
                let why = b"a thread that was made again has another slot";
                crate::verdict::report_divergence(parent, &[why]);
            }
        }
        _ => return false,
    }
    true
}

fn arguments(word: u64) -> CallArgs {
    CallArgs { fd: -1, digest: 0, len: word }
}

/// What the log says of a thread that is made: its slot, and above that which of the slot's threads it is.
fn slot_word(slot: u32, block: &Shared) -> u64 {
    u64::from(slot) | u64::from(block.generation()) << 32
}

/// Shows the supervisor a slot that is about to have a thread.
fn announce_slot(slot: u32, block: &Shared) {
    let entry = state::entry(slot);
    entry.generation.store(block.generation(), Ordering::Relaxed);
    entry.notice.word.store(0, Ordering::Relaxed);
    milestones::pass_none(entry);
    entry.state.store(slot::CREATING, Ordering::Release);
}

/// Waits, in a standby, until every earlier thread of a slot has been made, is gone, and has been joined by whoever
/// joins it: its ring, block and stack are reused. The log does not order a creation behind the end of the slot's
/// last thread, nor behind its making by another: too early, the new thread would find the old one's events, and a
/// joiner that comes late would wait for the new one.
fn await_slot(slot: u32, generation: u32) {
    let block = thread::shared(slot);
    let mut nap_ns = 50_000;
    loop {
        let made = block.generation();
        let is_being_made = block.is_being_made.load(Ordering::Acquire);
        let fate = match block.fate.load(Ordering::Acquire) {
            // glibc marks a joined thread in the very word that the kernel has cleared.
            UNUSED | JOINED => Fate::Joined,
            DETACHED => Fate::Detached,
            _ => Fate::Joinable,
        };
        match create::place_of(create::Slot { made, is_being_made, fate }, generation) {
            Place::Free => return,
            Place::WhenGone => {
                let handle = block.handle.load(Ordering::Acquire);
                if thread_stack::is_ours(handle) {
                    return wait_gone(handle, None);
                }
                if is_gone(block) {
                    return;
                }
            }
            Place::NotYet => {}
        }
        raw::nap(nap_ns);
        // A standby that waits here for ever must not look busy.
        nap_ns = (nap_ns + nap_ns / 16).min(2_000_000);
    }
}
