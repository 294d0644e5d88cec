//! The log of a recorded process: who takes it, where it ends, and how it goes on over a clone and a failover.
//!
//! While it is taken, a primary logs whether it has a standby or not. Each reader has a position of its own in every
//! ring, and each may be given up without the other.

use core::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use us_abi::event::{EventKind, NO_TICKET};
use us_abi::{PAYLOAD_BYTES_MAX, RING_BYTES, SegmentHeader, recorder};
use us_ring::Position;

use crate::members;
use crate::thread::Thread;
use crate::{raw, seats, state};

/// Whether the log of this process is being taken into a recording.
pub fn is_recording() -> bool {
    state::is_recorded() && state::header().is_some_and(is_taken_of)
}

/// Whether the log goes on although the heir is gone, takes over or is still to be made: it is taken into a recording, or a
/// spare standby follows.
pub fn goes_on() -> bool {
    is_recording() || seats::has_spares()
}

fn is_taken_of(header: &SegmentHeader) -> bool {
    header.recorder.0.load(Ordering::Acquire) == recorder::TAKES
}

/// Whether anybody reads the log: of a process that has taken over, a spare that may be the heir by now.
pub fn is_read() -> bool {
    is_recording() || seats::is_followed()
}

/// Whether the supervisor that takes the events is there.
pub fn is_taken() -> bool {
    let Some(header) = state::header() else { return false };
    let pid = header.supervisor_pid.load(Ordering::Relaxed);
    pid != 0 && members::exists(pid)
}

/// The recording of this process ends here. Its standby, if it has one, stays.
#[cold]
pub fn stop(why: &[&[u8]]) {
    let Some(header) = state::header() else { return };
    if !is_recording() {
        return;
    }
    // First the reason: whoever sees the word looks for it.
    state::write_text(&header.unrecorded.0, 1, why);
    header.recorder.0.store(recorder::STOPPED, Ordering::Release);
    if !seats::is_followed() {
        crate::thread::stop_logging();
    }
    state::attention();
}

/// Bytes that the recorder has not taken out of the ring that it is furthest behind in.
fn untaken(header: &SegmentHeader) -> u64 {
    let each = (0..header.slots.load(Ordering::Acquire)).map(state::entry);
    each.map(|entry| entry.tail.0.acquire() - entry.taken.0.acquire()).max().unwrap_or(0)
}

/// Waits until everything in the rings is taken: the next image begins with empty ones. For some seconds at most.
pub fn await_taken(header: &SegmentHeader) {
    const TRIES: u32 = 50_000;
    state::attention();
    for _ in 0..TRIES {
        if untaken(header) == 0 || !is_recording() || !is_taken() {
            return;
        }
        raw::nap(100_000);
    }
}

// ---- A clone ----

/// Whether the log went on when this process was cloned last. As it was at that moment, in both copies.
static WENT_ON: AtomicBool = AtomicBool::new(false);

/// A clone begins, or may be given up before there is one; or the threads are to stand still because the heir is to take
/// over. Whether the threads log on until they stand still.
pub fn goes_on_at_clone() -> bool {
    let goes_on = goes_on_while_parking();
    WENT_ON.store(goes_on, Ordering::Relaxed);
    goes_on
}

/// Whether a call that is broken off for a thread to park is part of a log that goes on. Of several standbys each follows
/// behind the clone of another. Not a question of what the threads park for: a thread may ask before it has been said.
pub fn goes_on_while_parking() -> bool {
    goes_on() || state::has_standby()
}

/// Every thread stands still. Whether the log has ended since the clone began: whoever ended it has put the threads' locks
/// into solo mode, and a copy made as if it had gone on would find them in no order.
pub fn ended_before_clone() -> bool {
    WENT_ON.load(Ordering::Relaxed) && !goes_on_at_clone()
}

/// Whether a call that had begun before the last clone is in a log that is still taken.
pub fn went_on_at_clone() -> bool {
    WENT_ON.load(Ordering::Relaxed)
}

/// Counts the logs that have begun with a clone, in all copies that follow them.
static LOGS: AtomicU32 = AtomicU32::new(0);

/// The number of the present log, or of the last one.
pub fn log_number() -> u32 {
    LOGS.load(Ordering::Relaxed)
}

/// Every thread stands still, and the process forks next: is it a log that goes on, or another one?
pub fn about_to_fork() {
    if !went_on_at_clone() {
        LOGS.fetch_add(1, Ordering::Relaxed);
    }
}

// ---- A failover ----

/// Before the calls in doubt are settled: what settling appends needs room, which a standby has made by applying
/// everything, and the recorder may not have.
pub fn await_room(header: &SegmentHeader) {
    const ROOM: u64 = 4 * PAYLOAD_BYTES_MAX as u64;
    let start = raw::now_ns();
    while is_recording() && untaken(header) > RING_BYTES as u64 - ROOM {
        if raw::now_ns() - start > state::LAG_TIMEOUT_NS.load(Ordering::Relaxed) {
            stop(&[b"the recorder did not free room in a ring within the lag timeout"]);
        }
        raw::nap(100_000);
    }
}

/// Everything is applied and settled, and nobody acts: here the log of the dead primary ends, and that of this one begins.
/// In a replay tickets that were never published can be told from late ones by that.
pub fn cut(header: &SegmentHeader) {
    if !is_recording() {
        return;
    }
    let before = header.cuts.load(Ordering::Relaxed);
    let start = raw::now_ns();
    // The place of the last one must not be forgotten before the recorder has come there.
    while header.cuts_taken.load(Ordering::Acquire) != before {
        if raw::now_ns() - start > state::LAG_TIMEOUT_NS.load(Ordering::Relaxed) || !is_taken() {
            return stop(&[b"the recorder had not come to the last failover when the next one came"]);
        }
        raw::nap(100_000);
    }
    for entry in (0..header.slots.load(Ordering::Acquire)).map(state::entry) {
        entry.cut.store(entry.tail.0.acquire(), Ordering::Relaxed);
    }
    header.cut_pid.store(state::REAL_PID.load(Ordering::Relaxed), Ordering::Relaxed);
    header.cuts.store(before + 1, Ordering::Release);
}

/// A thread of a promoted copy goes on with the dead primary's ring.
pub fn take_over(thread: &mut Thread) {
    thread.attach_ring();
    let is_open = thread.doubt.is_open();
    let is_in_pieces = core::mem::take(&mut thread.begun_mut().is_in_pieces);
    if is_open || is_in_pieces || thread.creation_in_doubt.load(Ordering::Relaxed) != 0 {
        // It was not done, and is made again. Who follows may have to make it once more, and asks then what has been tried.
        thread.push(EventKind::Again, u8::from(is_open && thread.begun().was_entered), 0, NO_TICKET);
    }
}
