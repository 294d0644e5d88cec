//! Locks in memory that processes share, where a standby keeps that memory up to date ([`crate::twins`]).
//!
//! A standby never works on such an object: what it reads there comes by the log. A primary logs an acquisition when it
//! has made it, and a release before it makes it, each with what is new in the memory. Between the two steps it can be
//! killed: so it notes in the segment what it changes, before and behind the one instruction that does it. At a
//! promotion a release that is in the log and was not made is made, and an acquisition that was made and is not in the
//! log is taken over by the thread that comes to it.

use core::ffi::c_int;
use core::sync::atomic::{
    AtomicBool, AtomicPtr, AtomicU32, AtomicU64, AtomicUsize, Ordering, compiler_fence,
};

use us_abi::event::{EventKind, NO_TICKET, op};
use us_abi::{ThreadEntry, change};
use us_calls::{Class, Row};
use us_ring::Position;

use super::sync::{self, ALL, Caller, Outcome};
use crate::guest::GuestPtr;
use crate::log::Next;
use crate::thread::{self, Mode, Thread};
use crate::{state, twins};

/// What is changed: place in [`ThreadEntry::changes`].
#[derive(Clone, Copy)]
pub enum Note {
    /// In order to take something.
    Take = 0,
    /// In order to give something back.
    Give = 1,
}

/// What the calling thread does at an object in memory that is kept alike; `None` if that is not where it lies.
#[inline]
pub fn mode(caller: Caller, address: usize) -> Option<Mode> {
    if !twins::contains(address) {
        return None;
    }
    let thread = caller.thread()?;
    (thread.borrowed.load(Ordering::Relaxed) == 0).then(|| thread.calls())
}

/// Whether the calling thread is a standby's at such an object.
pub fn follows(address: usize) -> bool {
    mode(Caller::get(), address) == Some(Mode::Replay)
}

/// The entry of the calling thread, if it records what it does at such an object.
fn recorded(address: usize) -> Option<&'static ThreadEntry> {
    let caller = Caller::get();
    match mode(caller, address)? {
        Mode::Record => caller.thread().map(|thread| thread.entry()),
        _ => None,
    }
}

/// Changes a word from `old` to `new` by `make`, which says whether it has, with a note of it.
fn noted<R>(
    note: Note,
    word: &AtomicU32,
    [old, new]: [u32; 2],
    make: impl FnOnce() -> Result<R, R>,
) -> Result<R, R> {
    let address = word.as_ptr() as usize;
    let Some(entry) = recorded(address) else { return make() };
    let [position, values, place] = &entry.changes[note as usize];
    place.store(change::NONE, Ordering::Release);
    position.store(entry.tail.0.acquire(), Ordering::Release);
    values.store(u64::from(old) << 32 | u64::from(new), Ordering::Release);
    place.store(address as u64 | change::BEGUN, Ordering::Release);
    compiler_fence(Ordering::SeqCst);
    let result = make();
    compiler_fence(Ordering::SeqCst);
    place.store(if result.is_ok() { address as u64 | change::MADE } else { change::NONE }, Ordering::Release);
    result
}

/// `compare_exchange`, with a note of it.
#[inline]
pub fn exchange(note: Note, word: &AtomicU32, old: u32, new: u32) -> Result<u32, u32> {
    noted(note, word, [old, new], || word.compare_exchange(old, new, Ordering::SeqCst, Ordering::SeqCst))
}

/// `swap` for zero, with a note of it.
pub fn give_up(word: &AtomicU32) -> u32 {
    let now = word.load(Ordering::Relaxed);
    noted(Note::Give, word, [now, 0], || Ok::<_, u32>(word.swap(0, Ordering::SeqCst))).unwrap_or(now)
}

/// Adds the caller to those who have come to a barrier, with a note of it and of `round`. Returns how many were there.
pub fn arrive(word: &AtomicU32, round: u32) -> u32 {
    // The note's first value is free: a count is only added to.
    let new = word.load(Ordering::SeqCst) + 1;
    noted(Note::Give, word, [round, new], || Ok::<_, u32>(word.fetch_add(1, Ordering::SeqCst))).unwrap_or(0)
}

/// `fetch_update`, with a note of it.
#[inline]
pub fn update(note: Note, word: &AtomicU32, f: impl Fn(u32) -> Option<u32>) -> Result<u32, u32> {
    let mut now = word.load(Ordering::SeqCst);
    while let Some(new) = f(now) {
        match exchange(note, word, now, new) {
            Ok(old) => return Ok(old),
            Err(other) => now = other,
        }
    }
    Err(now)
}

/// Where the calling thread's counts are noted. Also without a standby: one may be made while it waits.
fn counted() -> Option<&'static AtomicU64> {
    state::header()?;
    Caller::get().thread().map(|thread| &thread.entry().counted)
}

/// Counts the caller among those who wait at a shared object, where a promotion takes it out again.
pub fn count_in(word: &AtomicU32) {
    let address = word.as_ptr() as u64;
    let note = |how: u64| counted().into_iter().for_each(|note| note.store(address | how, Ordering::Release));
    note(change::BEGUN);
    word.fetch_add(1, Ordering::SeqCst);
    note(change::MADE);
}

/// The reverse. Returns what the word was; `None` in a standby, which has never been counted.
pub fn count_out(word: &AtomicU32) -> Option<u32> {
    if follows(word.as_ptr() as usize) {
        return None;
    }
    counted().into_iter().for_each(|note| note.store(change::NONE, Ordering::Release));
    Some(word.fetch_sub(1, Ordering::SeqCst))
}

// ---- The log ----

/// Tells what is new. False where nobody reads the log any more: then the twins are not what the memory is, either.
fn log(thread: &mut Thread, op: u16, errno: c_int) -> bool {
    let told = twins::take_new(op, |bytes| thread.reserve(bytes));
    if let Some(bytes) = told {
        thread.publish(EventKind::Common, errno as u8, op, NO_TICKET, bytes);
    }
    told.is_some()
}

/// Takes the next event, as a standby; `also` is done with its errno and the position behind it. `None`: live from here on.
///
/// All of it before the event is closed: once a ring is empty a promotion takes its thread for one that has caught up, puts the memory
/// itself in place, and looks at what is to be finished.
fn follow(thread: &mut Thread, op: u16, also: impl FnOnce(c_int, u64)) -> Option<c_int> {
    let Next::Event(event) = thread.expect(EventKind::Common, op) else { return None };
    twins::apply(event.payload());
    let errno = c_int::from(event.header.flags);
    also(errno, thread.ends.consumer.at + thread.ends.open as u64);
    thread.close();
    thread.count(Class::of_event(EventKind::Common, op));
    Some(errno)
}

/// A call that others may observe is about to be made.
#[inline(always)]
pub fn before_call(thread: &mut Thread, row: &Row) {
    if twins::concern_calls() && row.order.at_entry() {
        if twins::is_active() {
            at_call(thread);
        }
        twins::choice::make(thread, sync::is_threaded);
    }
}

/// A call has returned that may have learned what others did. One that only waits, a sleep, tells nothing of them; but who
/// looks at memory at intervals sees behind it what they have stored meanwhile.
#[inline(always)]
pub fn after_call(thread: &mut Thread, row: &Row) {
    if twins::is_active() && (row.order.at_return() || row.blocks) {
        at_call(thread);
    }
}

#[cold]
fn at_call(thread: &mut Thread) {
    thread.attempt(|thread, mode| {
        match mode {
            Mode::Solo => {}
            Mode::Record => {
                let gives_up = twins::is_too_dear();
                log(thread, op::CALL, c_int::from(gives_up));
                if gives_up {
                    twins::stop();
                }
            }
            // `None` where this copy has taken over here: where the log goes on it has nothing of this place yet.
            Mode::Replay => {
                let gives_up = |how: c_int, _| {
                    if how == 1 {
                        twins::stop();
                    }
                };
                follow(thread, op::CALL, gives_up)?;
            }
        }
        Some(())
    });
}

/// An acquisition by `attempt` of the object at `address`. Where a dead primary has made it, `taken` does what is to be done behind
/// that. `None` if the caller is to go the usual way.
pub fn acquire(
    caller: Caller,
    op: u16,
    address: usize,
    say: c_int,
    attempt: impl Fn(Caller) -> Outcome,
    taken: impl Fn(Caller),
) -> Option<c_int> {
    let take_over = || {
        let is_taken = is_taken_over(address);
        if is_taken {
            taken(caller);
        }
        is_taken
    };
    loop {
        match mode(caller, address)? {
            Mode::Solo if take_over() => return Some(say),
            Mode::Solo => return None,
            Mode::Record => {
                // The log goes on, or a clone has come between the promotion and this.
                let outcome = if take_over() { Outcome::OK } else { attempt(caller) };
                if outcome == Outcome::FOLLOW {
                    continue;
                }
                let errno = if outcome.acquired { say } else { outcome.errno };
                tell(caller, op, address, errno);
                return Some(errno);
            }
            Mode::Replay => {
                if let Some(errno) = followed(caller, op) {
                    return Some(errno);
                }
                // A sleeper that the dead primary was woken in place of has nobody else who would wake it.
                sync::wake(address as *const u32, ALL, true);
            }
        }
    }
}

/// Logs how an operation has ended, as a primary whose standby may have been made meanwhile.
pub fn tell(caller: Caller, op: u16, address: usize, errno: c_int) {
    if mode(caller, address) == Some(Mode::Record)
        && let Some(thread) = caller.thread()
    {
        log(thread, op, errno);
    }
}

/// The value of a word, the same in every copy.
pub fn look(caller: Caller, op: u16, address: usize) -> u32 {
    let now = || GuestPtr::at(address as u64).load().unwrap_or(0);
    let Some(thread) = caller.thread() else { return now() };
    thread.attempt(|thread, mode| match mode {
        Mode::Solo => Some(now()),
        Mode::Record => log(thread, op, 0).then(|| twins::word(address)),
        Mode::Replay => {
            let mut told = 0;
            follow(thread, op, |_, _| told = now())?;
            Some(told)
        }
    })
}

/// How the log says that an acquisition ended. If there was anything to take over, its primary has.
pub fn followed(caller: Caller, op: u16) -> Option<c_int> {
    follow(caller.thread()?, op, |_, _| TAKEN.store(0, Ordering::Relaxed))
}

/// Finishes a release that the log has, of the object at this address: it has been made, or not.
pub type Finish = fn(usize, bool);

/// A release is about to be made. False in a standby, which has nothing to do but to `pass` over it: should it be promoted before
/// anything else is logged, `finish` is called.
pub fn releases(caller: Caller, op: u16, address: usize, finish: Finish, pass: impl Fn()) -> bool {
    if mode(caller, address).is_none() {
        return true;
    }
    let Some(thread) = caller.thread() else { return true };
    thread.attempt(|thread, mode| match mode {
        Mode::Solo => Some(true),
        Mode::Record => {
            log(thread, op, 0);
            Some(true)
        }
        Mode::Replay => {
            follow(thread, op, |_, behind| {
                pass();
                RELEASED.store(address, Ordering::Relaxed);
                FINISH.store(finish as *mut (), Ordering::Relaxed);
                RELEASED_AT.store(behind, Ordering::Relaxed);
            })?;
            Some(false)
        }
    })
}

/// In a standby: the object that was released by the last event of this kind, and the position behind that.
static RELEASED: AtomicUsize = AtomicUsize::new(0);
static RELEASED_AT: AtomicU64 = AtomicU64::new(0);
/// See `RELEASED`: a [`Finish`].
static FINISH: AtomicPtr<()> = AtomicPtr::new(core::ptr::null_mut());
/// The object that a dead primary has taken and not told of. A copy that is made before the thread comes to it inherits that: it
/// takes over from one that has not taken it either.
static TAKEN: AtomicUsize = AtomicUsize::new(0);

fn is_taken_over(address: usize) -> bool {
    TAKEN.compare_exchange(address, 0, Ordering::Relaxed, Ordering::Relaxed).is_ok()
}

/// Conditions that the standby's thread has come by since its last event.
static NOTIFIED: [AtomicUsize; 8] = [const { AtomicUsize::new(0) }; 8];
static NOTIFIED_AT: AtomicU64 = AtomicU64::new(0);

/// A promotion has looked at them, or is about to: who notes one from here on may come too late.
static IS_LOOKED_AT: AtomicBool = AtomicBool::new(false);

/// By the coordinator, while everything stands still: nobody is between a change and what the log says of it. What was noted where a
/// log ended would be taken for the next one's, which begins at the same place.
pub fn forget_notes() {
    thread::for_each(|thread| {
        if thread.has_ring() {
            thread
                .entry()
                .changes
                .iter()
                .for_each(|[_, _, place]| place.store(change::NONE, Ordering::Release));
        }
    });
}

/// In a new standby.
pub fn forget() {
    IS_LOOKED_AT.store(false, Ordering::SeqCst);
}

/// A condition is signalled by a standby's thread. Its primary has done that, unless it died before: then a promotion does. False
/// if that may have looked already, and the caller is live now: it does so itself. A second signal wakes somebody who looks again.
pub fn note_signal(caller: Caller, address: usize) -> bool {
    let Some(thread) = caller.thread() else { return true };
    if NOTIFIED_AT.swap(thread.ends.consumer.at, Ordering::Relaxed) != thread.ends.consumer.at {
        NOTIFIED.iter().for_each(|place| place.store(0, Ordering::Relaxed));
    }
    let free = NOTIFIED.iter().find(|place| matches!(place.load(Ordering::Relaxed), 0));
    // More of them than there is room for: their waiters look again when they are signalled next.
    free.unwrap_or(&NOTIFIED[0]).store(address, Ordering::SeqCst);
    let is_late = IS_LOOKED_AT.load(Ordering::SeqCst) && thread.peek().is_none();
    if is_late {
        thread.await_live();
    }
    !is_late
}

/// The change that a dead primary's thread had noted behind its last event: address, and whether it was made.
fn noted_by(entry: &ThreadEntry, note: Note) -> Option<(usize, bool)> {
    let [position, values, place] =
        entry.changes[note as usize].each_ref().map(|word| word.load(Ordering::Acquire));
    let address = (place & !change::BITS) as usize;
    // What it did in memory of its own went with it.
    if position != entry.tail.0.acquire() || !twins::is_primarys(address) {
        return None;
    }
    let made = match place & change::BITS {
        change::MADE => true,
        // Killed at the very instruction: by what is there.
        change::BEGUN => GuestPtr::<u32>::at(address as u64).load() == Some(values as u32),
        _ => return None,
    };
    Some((address, made))
}

/// A word of a lock that a standby's guest may look at, and that its release would have made zero.
pub fn pass_over(word: &AtomicU32) {
    twins::set_word(word.as_ptr() as usize, 0);
}

/// In a [`Finish`]: the values that the dead primary had noted, if it had made the change.
pub fn given(made: bool) -> Option<u64> {
    made.then(|| GIVEN.load(Ordering::Relaxed))
}
static GIVEN: AtomicU64 = AtomicU64::new(0);

/// At a promotion, once the memory is where the guest has it and before anybody acts: finishes what the dead primary's
/// thread was about.
pub fn finish() {
    IS_LOOKED_AT.store(true, Ordering::SeqCst);
    if !twins::is_active() {
        return;
    }
    thread::for_each(|thread| {
        if !thread.has_ring() {
            return;
        }
        let entry = thread.entry();
        let counted = entry.counted.swap(0, Ordering::AcqRel);
        let counter = (counted & !change::BITS) as usize;
        if counted & change::BITS == change::MADE && twins::is_primarys(counter) {
            // SAFETY: a word of a lock in memory of the guest's that is still mapped, or it would not be kept alike.
            unsafe { &*(counter as *const AtomicU32) }.fetch_sub(1, Ordering::SeqCst);
        }
        let taken = noted_by(entry, Note::Take).filter(|(_, made)| *made);
        if let Some((address, _)) = taken {
            TAKEN.store(address, Ordering::Relaxed);
        }
        let tail = entry.tail.0.acquire();
        if RELEASED_AT.load(Ordering::Relaxed) == tail {
            let object = RELEASED.swap(0, Ordering::Relaxed);
            GIVEN.store(entry.changes[Note::Give as usize][1].load(Ordering::Acquire), Ordering::Relaxed);
            let made = noted_by(entry, Note::Give).is_some_and(|(address, made)| address == object && made);
            let finish = FINISH.load(Ordering::Relaxed);
            if object != 0 && !finish.is_null() {
                // SAFETY: stored from a `Finish`, before the object was.
                let finish = unsafe { core::mem::transmute::<*mut (), Finish>(finish) };
                finish(object, made);
            }
        }
        if NOTIFIED_AT.load(Ordering::Relaxed) == tail {
            for place in &NOTIFIED {
                let cond = place.swap(0, Ordering::Relaxed);
                if cond != 0 {
                    // SAFETY: the guest's condition variable, which its thread has just signalled.
                    unsafe { super::cond::wake_all(cond) };
                }
            }
        }
        for place in entry.changes.iter().map(|[_, _, place]| place) {
            place.store(change::NONE, Ordering::Release);
        }
    });
}
