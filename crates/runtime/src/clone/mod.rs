//! A new standby of a running program: every thread stands still, the process forks with all of them, and both
//! copies go on. This is how protection comes back after a failover, a divergence or a call that cannot be
//! replayed (the thread-preserving fork; FT-Linux, chapter 4.4, and CRANE, section 3.4, have no counterpart).
//!
//! A *coordinator*, a thread that libc knows nothing of and that lives for this work alone, asks the threads to
//! park. It has a descriptor table of its own: it reads `/proc` while the guest still opens files, and a guest sees
//! which numbers are free. When all stand still one of them, the first, forks: so it is the first thread of the new
//! process as well, under whose number the outside knows a process.

mod away;
pub mod baseline;
pub mod checkpoint;
pub mod child;
mod coordinator;
mod identity;
pub mod memory;
pub mod park;
pub mod signals;
pub mod upgrade;

use core::sync::atomic::{AtomicBool, AtomicI64, AtomicU32, Ordering};

use us_abi::{Cause, GroupState, SegmentHeader, Text, command, leaving, slot};
use us_ring::Position;

use crate::door::thread as threads;
use crate::door::{copies, limits, spawn, sync, timer};
use crate::fault::{self, Point};
use crate::invariant::{self, Still};
use crate::mapping::{pieces, unforked};
use crate::members::of_family;
use crate::proc;
use crate::raw::{self, failed, nr};
use crate::thread::{self, Mode};
use crate::turns::{live_turns, milestones, successor, turn_order};
use crate::{bound, family, fdtable, missing, paths, recorder, seats, state, tls};
use away::{fork_away, is_supervised};
pub use coordinator::{
    await_end_of, await_idle, await_quiet, has_promised, keep_promise, notice_command, number, see_off,
};
use park::{Place, word};

/// How long the threads may take to park, ns. The others stand still meanwhile, so it is far below the second after
/// which a client would look again.
const PARK_TIMEOUT_NS: u64 = 500_000_000;
/// How long the copy may take to make its memory its own, ns.
const STAGE_TIMEOUT_NS: u64 = 2_000_000_000;

/// Futex and result of the fork: 0 while it is not done.
static FORKED: AtomicU32 = AtomicU32::new(0);
static RESULT: AtomicI64 = AtomicI64::new(0);

/// Answers that it did not work. The program goes on as before.
fn fail(header: &SegmentHeader, why: &[&[u8]]) {
    state::write_text(&header.clone_error.0, Cause::CannotClone as u32, why);
    let _ = header.command.0.compare_exchange(
        command::CLONE,
        command::FOLLOW,
        Ordering::AcqRel,
        Ordering::Acquire,
    );
    header.clone_failures.fetch_add(1, Ordering::AcqRel);
    coordinator::is_done();
    state::attention();
}

fn refuse(header: &SegmentHeader, why: Obstacle) {
    in_words(why, |words| fail(header, words));
}

/// The same into a text of the segment.
fn fail_with(text: &Text, cause: Cause, why: Obstacle) {
    in_words(why, |words| state::write_text(text, cause as u32, words));
}

fn in_words((why, tid): Obstacle, say: impl FnOnce(&[&[u8]])) {
    let number = state::Decimal::new(u64::from(tid));
    let place = if core::ptr::eq(why, missing::WHY) { paths::folder() } else { b"" };
    let who: [&[u8]; 5] = [b"thread ", number.bytes(), b" ", why, place];
    say(if tid == 0 { &who[3..] } else { &who });
}

extern "C" fn coordinate(_: u64) {
    let Some(header) = state::header() else { return };
    coordinator::has_begun();
    match header.command.0.load(Ordering::Acquire) {
        command::CLONE => make(header),
        command::PARK => stand_still(header),
        command::CHECKPOINT => checkpoint::make(header),
        _ => {
            release_all();
            coordinator::is_done();
        }
    }
}

/// Why there was no clone, and the thread that it was for, 0 for none.
type Obstacle = (&'static [u8], u32);

/// Parks every thread. `Err` says what stood in the way; then all go on again.
fn park_all(header: &SegmentHeader, asked: u32) -> Result<(), Obstacle> {
    let start = raw::now_ns();
    let own = raw::gettid();
    let mut is_alone = false;
    loop {
        let arrived = park::ARRIVED.load(Ordering::Acquire);
        let (mut missing, mut called) = call_known();
        if missing == 0 {
            // For what it reads of the kernel. Not before the guest stands still: the kernel makes the table by a copy that it
            // empties, which holds files open meanwhile. A pipe whose last reader had just been closed took a write instead
            // of raising SIGPIPE.
            if !is_alone && fdtable::leave() != 0 {
                return Err((b"the kernel gives the coordinator no descriptor table of its own", 0));
            }
            is_alone = true;
            missing = call_unknown(own)?;
            called = 1;
        }
        if header.leaving.0.load(Ordering::Acquire) != leaving::NO {
            return Err((b"the program is about to end", 0));
        }
        if bound::is_bound() {
            return Err((bound::WHY, 0));
        }
        if missing == 0 {
            return Ok(());
        }
        if header.command.0.load(Ordering::Acquire) != asked {
            return Err((b"the supervisor has taken its request back", 0));
        }
        if raw::now_ns() - start > PARK_TIMEOUT_NS {
            return Err((b"did not come to a point where it can be parked", missing));
        }
        await_arrivals(arrived, called);
    }
}

/// Waits until so many more have arrived than `before`, or long enough to ask again. Not after each arrival: where thousands are
/// asked, each would be asked as often as there are others.
fn await_arrivals(before: u32, called: u32) {
    const PAUSE_NS: u64 = 100_000;
    const EACH_NS: u64 = 2_000;
    let end = raw::now_ns() + PAUSE_NS + u64::from(called) * EACH_NS;
    loop {
        let (arrived, now) = (park::ARRIVED.load(Ordering::Acquire), raw::now_ns());
        if arrived.wrapping_sub(before) >= called || now >= end {
            return;
        }
        raw::futex_wait(&park::ARRIVED, arrived, end - now);
    }
}

/// Asks a thread to park. False if there is none.
fn call(tid: u32) -> bool {
    crate::sys::trap::nudge(tid)
}

/// Asks the threads that the runtime knows; one of those that do not stand still yet, 0 if all do, and how many they are.
fn call_known() -> (u32, u32) {
    let (mut missing, mut called) = (0, 0);
    thread::for_each(|thread| {
        let tid = thread.kernel_tid();
        let runs = thread.has_ring() && thread.entry().state.load(Ordering::Acquire) == slot::RUNNING;
        if runs && !park::stands(thread) && call(tid) {
            (missing, called) = (tid, called + 1);
        }
    });
    (missing, called)
}

/// Asks the threads that only the kernel knows; one of those that do not stand still yet, 0 if all do.
fn call_unknown(own: u32) -> Result<u32, Obstacle> {
    // Counted in this order: who stands still goes on standing. Mostly that is all, and then they are not listed: each would get
    // an entry in the kernel's cache of names, which takes longer than all of this and is in the way when they are killed.
    let standing = park::standing();
    if proc::count_threads() == Some(standing + 1) {
        return Ok(0);
    }
    if tls::may_be_foreign() {
        return Err((spawn::OUTSIDE, 0));
    }
    let mut missing = 0;
    let listed = proc::each_task(|tid| {
        if tid != own && park::of(tid).is_none() {
            missing = tid;
            call(tid);
        }
    });
    if listed { Ok(missing) } else { Err((b"the list of threads cannot be read", 0)) }
}

/// Lets every thread go on.
fn release_all() {
    limits::put_back();
    park::unwant();
    for place in park::places() {
        // SAFETY: an atomic, and a wake.
        let word = unsafe { &(*place).word };
        word.store(word::GO, Ordering::Release);
        raw::futex_wake(word, 1);
    }
    // The places are free for the next time once everybody has left.
    park::await_empty();
}

/// The first thread, or, where that has ended, any.
fn leader() -> Option<*mut Place> {
    let pid = state::REAL_PID.load(Ordering::Relaxed);
    let stands = |place: &*mut Place| {
        // SAFETY: parked threads' places are the coordinator's.
        let place = unsafe { &**place };
        place.tid.load(Ordering::Acquire) != 0 && !place.block.is_null()
    };
    park::of(pid).filter(stands).or_else(|| park::places().find(stands))
}

/// Gives memory of the rings back: a ring whose standby was far behind has used all of it. While every thread stands
/// still, since one that is inside a call may have it write into its ring.
fn empty_rings() {
    use crate::kernel::MADV_REMOVE;
    for slot in thread::slots() {
        // SAFETY: every thread is parked, and this is the coordinator.
        let block = unsafe { thread::standing(slot) };
        let entry = state::entry(slot);
        let tail = entry.tail.0.acquire();
        let recorded = recorder::is_recording() && entry.taken.0.acquire() != tail;
        let wanted = recorded || seats::slowest(slot).is_some_and(|at| at != tail);
        if block.ends.producer.populated > 2 * us_abi::RING_STEP && !wanted {
            // SAFETY: the ring's own mapping, in which nothing counts any more.
            unsafe {
                raw::call3(
                    nr::MADVISE,
                    thread::RingMemory::of(slot).0 as u64,
                    us_abi::RING_BYTES as u64,
                    MADV_REMOVE,
                )
            };
        }
    }
}

/// The whole of a clone.
fn make(header: &SegmentHeader) {
    let is_spare = seats::is_followed();
    IS_SPARE.store(is_spare, Ordering::Relaxed);
    successor::clone_begins(header, is_spare);
    if threads::are_beyond() {
        release_all();
        return fail(header, &[thread::BEYOND]);
    }
    if !recorder::goes_on_at_clone() {
        crate::thread::stop_logging();
    }
    // Asked again while everybody stands still: a thread may have been about to make one.
    let parked = park_all(header, command::CLONE);
    let parked = parked.and_then(|()| if threads::are_beyond() { Err((thread::BEYOND, 0)) } else { Ok(()) });
    if let Err(why) = parked {
        if of_family::is_forming(header) {
            // The others stand still and wait for this process.
            family::abandon(header, why.0);
        }
        release_all();
        return refuse(header, why);
    }
    if recorder::ended_before_clone() {
        // What a thread has given up while the others were being parked: their locks are as if there had been no log.
        crate::thread::stop_logging();
    }
    if is_spare && seats::is_followed() && thread::is_any_silent() {
        // Should not be: whoever follows has missed something.
        crate::verdict::drop_standby(Cause::CannotReplay, &[b"the log had a gap"]);
    }
    seats::followers().for_each(|seat| invariant::applied_is_published(header, seat));
    let why_not = if is_spare { no_spare(header) } else { no_heir(header) };
    if let Some(why) = why_not {
        release_all();
        return fail(header, &[why]);
    }
    recorder::about_to_fork();
    let start = raw::now_ns();
    let is_forming = !is_spare && of_family::is_forming(header);
    let outcome = prepare(header, is_forming, is_spare).and_then(|()| fork_now(header)).and_then(|pid| {
        // The copy has all that it needs from here on; others may still be copying what it shares with them.
        match is_forming {
            true => is_whole(pid).map(|()| pid),
            false => Ok(pid),
        }
    });
    match outcome {
        Ok(pid) => protected(header, pid, start),
        Err(why) => {
            if of_family::is_member() {
                of_family::fail(why.0);
            }
            if successor::is_made() {
                successor::is_not_made(header);
            }
            release_all();
            refuse(header, why);
        }
    }
}

/// Why no spare is made now, if so. Every thread stands still.
fn no_spare(header: &SegmentHeader) -> Option<&'static [u8]> {
    if of_family::is_member() || of_family::is_forming(header) {
        // They take over together, and each with one.
        return Some(b"processes that share memory have one standby each");
    }
    // The supervisor is about to say that there is no standby. One that is made now would be hit by that.
    (!seats::is_followed()).then_some(LOST)
}

const LOST: &[u8] = b"the standby was lost while another was being made";

/// Why no heir is made now, if so: the last one has been given up, and the supervisor, which asked for a spare beside it, has not
/// heard of that. It would take the new one for the old one, which lives, and reads on.
fn no_heir(header: &SegmentHeader) -> Option<&'static [u8]> {
    let is_alone = !of_family::is_member() && !of_family::is_forming(header);
    (is_alone && seats::is_there(header, header.heir.load(Ordering::Acquire))).then_some(LOST)
}

/// Everything that comes before the fork, while every thread stands still.
fn prepare(header: &SegmentHeader, is_forming: bool, is_spare: bool) -> Result<(), Obstacle> {
    if !missing::share_again() || !missing::is_room_for_all() {
        return Err((missing::WHY, 0));
    }
    if is_forming {
        family::stand(header).map_err(|why| (why, 0))?;
    } else if !of_family::is_member() {
        header.family.store(0, Ordering::Release);
    }
    if is_spare {
        live_turns::copy_is_made();
    } else {
        live_turns::decide(header);
    }
    milestones::count_anew();
    identity::are_together(leader())?;
    let purpose = if is_forming { memory::Purpose::Family } else { memory::Purpose::Standby };
    memory::list(header, purpose).map_err(|why| (why, 0))
}

/// Waits for the other members' forks. If one of them cannot, there is none.
fn is_whole(pid: u32) -> Result<(), Obstacle> {
    let forked = family::has_forked();
    let whole = forked.and_then(|()| match pieces::are_whole() {
        true => Ok(()),
        false => Err(&b"processes share different parts of one memory"[..]),
    });
    // Only then does the header speak of the standby: a kill before that is one of a process without.
    whole.and_then(|()| family::is_ready()).map_err(|why| {
        end_copy(pid);
        (why, 0)
    })
}

/// Has the leader fork, and waits until the copy no longer looks at memory that it shares with us.
fn fork_now(header: &SegmentHeader) -> Result<u32, Obstacle> {
    let Some(leader) = leader() else { return Err((b"no thread is left that could fork", 0)) };
    let Some(seat) = seats::free(header) else { return Err((b"there is no seat for another standby", 0)) };
    SEAT.store(seat, Ordering::Relaxed);
    DRAINED.store(header.drained.load(Ordering::SeqCst), Ordering::Relaxed);
    EPOCH.store(header.epoch.load(Ordering::Acquire), Ordering::Relaxed);
    seats::begin_at_tails(header, seat);
    seats::keep_free(header, seat);
    empty_rings();
    let rings = Still::parked_now(header);
    header.clone_stage.store(0, Ordering::Release);
    let pid = have_forked(leader, word::FORK)?;
    if !rings.goes_on(header) {
        end_copy(pid);
        return Err((b"the log went on while every thread was parked", 0));
    }
    if !memory::is_empty() && !is_settled(header) {
        end_copy(pid);
        seats::drop_spare(header, seat, Cause::CannotClone, &[b"the copy could not make its memory its own"]);
        return Err((b"the copy could not make its memory its own", 0));
    }
    Ok(pid)
}

/// Has the leader fork, by this word, when it is known which signals wait for the threads; the copy's number.
fn have_forked(leader: *mut Place, how: u32) -> Result<u32, Obstacle> {
    signals::collect(park::places(), leader);
    timer::look_at_threads(|tid| proc::pending_signals(tid).map_or(0, |(own, _)| own));
    FORKED.store(0, Ordering::Release);
    limits::lift_processes();
    // SAFETY: an atomic, and a wake.
    unsafe {
        (*leader).word.store(how, Ordering::Release);
        raw::futex_wake(&(*leader).word, 1);
    }
    while FORKED.load(Ordering::Acquire) == 0 {
        raw::futex_wait(&FORKED, 0, 0);
    }
    let pid = RESULT.load(Ordering::Acquire);
    if failed(pid) { Err((b"the kernel refused to fork", 0)) } else { Ok(pid as u32) }
}

/// Ends the copy that has just been made. The supervisor may have reaped it meanwhile, and its number be another process's: it is
/// held first, and then looked at.
fn end_copy(pid: u32) {
    let Some(leader) = leader() else { return };
    // The coordinator has a table of descriptors of its own; a copy has the leader's.
    // SAFETY: a place of a thread that stands still.
    let tid = unsafe { (*leader).tid.load(Ordering::Acquire) };
    copies::kill(pid, tid);
}

/// The seat of the copy that is being made.
static SEAT: AtomicU32 = AtomicU32::new(0);
/// The last promotion that was through when it was forked.
static DRAINED: AtomicU32 = AtomicU32::new(0);
/// The number of promotions by then.
static EPOCH: AtomicU32 = AtomicU32::new(0);
/// Whether others follow already: then it is not the one that takes over.
static IS_SPARE: AtomicBool = AtomicBool::new(false);

/// Whether the copy that is being made is a spare.
fn is_spare() -> bool {
    IS_SPARE.load(Ordering::Relaxed)
}

/// In the forked copy.
fn take_seat() {
    seats::sit(SEAT.load(Ordering::Relaxed), is_spare());
}

fn is_settled(header: &SegmentHeader) -> bool {
    let start = raw::now_ns();
    while header.clone_stage.load(Ordering::Acquire) == 0 {
        raw::futex_wait_shared(&header.clone_stage, 0, 1_000_000);
        if raw::now_ns() - start > STAGE_TIMEOUT_NS {
            return false;
        }
    }
    header.clone_stage.load(Ordering::Acquire) == 1
}

/// By the leader, parked: forks. True in the copy.
pub fn fork(own: *mut Place) -> bool {
    const CLONE: u64 = 0x400 | 0x8000 | 0x4_0000 | 17; // FILES PARENT SYSVSEM, SIGCHLD
    // In this thread, because the coordinator has another descriptor table.
    baseline::take();
    unforked::take_back();
    fault::at(Point::Fork, 0);
    // SAFETY: a fork on the same stack in its own memory, while every thread stands still.
    let result =
        unsafe { if is_supervised() { raw::call6(nr::CLONE, [CLONE, 0, 0, 0, 0, 0]) } else { fork_away() } };
    unforked::give_again();
    if result == 0 {
        fault::at(Point::Born, 0);
        if let Some(header) = state::header() {
            child::lead(header, own);
        }
        return true;
    }
    // SAFETY: the leader's own place.
    unsafe { has_forked(own, result) };
    false
}

/// By the leader: stands still again, and says what has become of its fork.
///
/// # Safety
/// The caller's own place.
unsafe fn has_forked(own: *mut Place, result: i64) {
    // SAFETY: the caller's promise.
    unsafe { (*own).word.store(word::HOLD, Ordering::Release) };
    RESULT.store(result, Ordering::Release);
    FORKED.store(1, Ordering::Release);
    raw::futex_wake(&FORKED, 1);
}

/// In the forked copy: the coordinator is not here.
pub fn forget() {
    park::forget();
    coordinator::forget();
}

/// Sets every thread's block for the log that begins now.
pub fn reset_blocks(mode: Mode) {
    let locks = if sync::is_threaded() { mode } else { Mode::Solo };
    // In a log that goes on the turns do as well.
    let turns_are_new = state::takes_live_turns() && !recorder::went_on_at_clone();
    let counts_anew = milestones::is_counted_anew();
    if turns_are_new {
        turn_order::reset();
    } else if state::takes_live_turns() && mode == Mode::Replay {
        turn_order::join();
    }
    for slot in thread::slots() {
        // SAFETY: every other thread is parked, and this is the coordinator, or the copy's first thread.
        let block = unsafe { thread::standing(slot) };
        if !block.has_ring() {
            continue;
        }
        // A log that goes on has what it had: the thread may be about to make the first other one.
        let locks = match (recorder::went_on_at_clone(), block.locks()) {
            (true, Mode::Solo) => Mode::Solo,
            (true, _) => mode,
            (false, _) => locks,
        };
        block.lock_mode.store(locks as u8, Ordering::Relaxed);
        block.call_mode.store(mode as u8, Ordering::Relaxed);
        if counts_anew {
            crate::milestones::reset(block);
        }
        block.attach_ring();
        block.doubt.set_open(false);
        let (creation, log) = block.creation;
        let goes_on = recorder::went_on_at_clone() && log == recorder::log_number();
        match (goes_on, mode) {
            (true, Mode::Replay) => block.creation_in_doubt.store(creation, Ordering::Relaxed),
            // One that has taken over has said that it makes the thread again, and is about to.
            (true, _) => {}
            (false, _) => block.creation_in_doubt.store(0, Ordering::Relaxed),
        }
        (block.begun_mut().pieces, block.begun_mut().is_in_pieces) = (0, false);
        (block.begun_mut().ticket, block.ends.open) = (0, 0);
        block.awaited.store(core::ptr::null_mut(), Ordering::Relaxed);
        block.parked.store(false, Ordering::Relaxed);
        block.set_live(mode != Mode::Replay);
        if turns_are_new {
            block.turn.leave();
        }
    }
}

/// There are two copies from here on.
fn protected(header: &SegmentHeader, pid: u32, start: u64) {
    reset_blocks(Mode::Record);
    let seat = SEAT.load(Ordering::Relaxed);
    if is_spare() {
        seats::claim(header, seat, pid);
        header.clone_bytes.store(proc::resident_bytes(), Ordering::Relaxed);
        // The primary may be dying, and the heir have been told so by this word.
        let word = &header.command.0;
        let _ = word.compare_exchange(command::CLONE, command::FOLLOW, Ordering::AcqRel, Ordering::Acquire);
        return made(header, start);
    }
    crate::door::memory::nothing_shared_lately();
    successor::is_heir(header);
    // Before the reason is gone: without one this would look like a standby that had been given up at once.
    header.dropped.0.store(0, Ordering::Release);
    for text in [&header.why.0, &header.clone_error.0] {
        text.len.store(0, Ordering::Release);
        text.code.store(0, Ordering::Release);
    }
    for time in [&header.death_ns.0, &header.drained_ns, &header.live_ns, &header.clone_pause_ns] {
        time.store(0, Ordering::Relaxed);
    }
    header.clone_bytes.store(proc::resident_bytes(), Ordering::Relaxed);
    header.heir.store(seat, Ordering::Release);
    header.standby_pid.store(pid, Ordering::Release);
    header.command.0.store(command::FOLLOW, Ordering::Release);
    // In order before the look at the family: whoever has it take over sees this process, or is seen.
    header.state.0.store(GroupState::Protected as u32, Ordering::SeqCst);
    made(header, start);
}

/// The threads go on, and the supervisor hears of it.
fn made(header: &SegmentHeader, start: u64) {
    header.clone_pause_ns.store(raw::now_ns() - start, Ordering::Relaxed);
    header.clones.fetch_add(1, Ordering::AcqRel);
    if successor::is_made() {
        // The supervisor takes a spare up once it is counted, and from here on there is nobody else.
        successor::takes_place(header, SEAT.load(Ordering::Relaxed));
    }
    // Of a family that takes over, or has ended, meanwhile.
    family::goes_on();
    release_all();
    coordinator::is_done();
    state::attention();
}

/// Holds every thread where it is, because the standby is to take over: what is then in doubt is nothing that has
/// begun to happen. Returns only if it is called off.
fn stand_still(header: &SegmentHeader) {
    recorder::goes_on_at_clone();
    let parked = park_all(header, command::PARK);
    header.parked.store(if parked.is_ok() { 1 } else { 2 }, Ordering::Release);
    raw::futex_wake_shared(&header.parked);
    state::attention();
    let start = raw::now_ns();
    while parked.is_ok()
        && header.command.0.load(Ordering::Acquire) == command::PARK
        && raw::now_ns() - start < STAGE_TIMEOUT_NS
    {
        raw::nap(100_000);
    }
    // Not killed: calls that were broken off begin again, and the standby has their first beginning. It is given up.
    crate::verdict::drop_standby(Cause::CannotReplay, &[b"a planned failover was called off"]);
    release_all();
    coordinator::is_done();
}
