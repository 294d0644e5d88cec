//! The ids of users and groups, which the kernel keeps for each thread and libc for a process.
//!
//! libc sends a signal of its own to each thread and waits for all of them. Who gets one, and where in its code, is in no log:
//! threads begin and end meanwhile, at other moments in each copy. So each copy asks its own threads, with the runtime's
//! signal, and they answer in its handler, wherever they are.

use core::sync::atomic::{AtomicI64, AtomicU32, AtomicU64, Ordering};

use crate::call::Call;
use crate::raw;
use crate::sys::trap;

/// The call that is asked for: its number and its arguments.
static CALL: [AtomicU64; 4] = [const { AtomicU64::new(0) }; 4];
/// Futex: the kernel's number of the thread that is asked, 0 once it has answered.
static ASKED: AtomicU32 = AtomicU32::new(0);
/// In that word: it is about to answer.
const ANSWERS: u32 = 1 << 31;
/// What it answers.
static RESULT: AtomicI64 = AtomicI64::new(0);

/// How long a thread may take until it is asked again, ns. One signal at a time waits for a thread, and another may have been in
/// the way.
const AGAIN_NS: u64 = 2_000_000;

/// What has become of a thread that was asked.
pub enum Answer {
    /// It has made the call, with this result.
    Made(i64),
    /// It has ended.
    Gone,
    /// The caller has stood still meanwhile, and this is a copy.
    InCopy,
}

/// Says what threads are to be asked for. By one caller at a time, until the last of them has answered.
pub fn say(call: &Call) {
    let [a, b, c, ..] = call.args;
    for (place, word) in CALL.iter().zip([call.nr, a, b, c]) {
        place.store(word, Ordering::Relaxed);
    }
}

/// Asks the thread that the kernel calls `tid`, and waits for its answer. `stands_still` is asked now and then; true says that
/// this is a copy.
pub fn ask(tid: u32, mut stands_still: impl FnMut() -> bool) -> Answer {
    ASKED.store(tid, Ordering::SeqCst);
    while trap::nudge(tid) {
        let seen = ASKED.load(Ordering::Acquire);
        if seen != 0 {
            raw::futex_wait(&ASKED, seen, AGAIN_NS);
        }
        if ASKED.load(Ordering::Acquire) == 0 {
            break;
        }
        if stands_still() {
            ASKED.store(0, Ordering::Relaxed);
            return Answer::InCopy;
        }
    }
    if ASKED.swap(0, Ordering::AcqRel) == 0 {
        Answer::Made(RESULT.load(Ordering::Relaxed))
    } else {
        Answer::Gone
    }
}

/// In the handler: the calling thread answers, if it is the one that is asked.
pub(super) fn answer() {
    let asked = ASKED.load(Ordering::Acquire);
    if asked & !ANSWERS == 0 || asked != raw::gettid() {
        return;
    }
    // Once: the handler may be interrupted by itself.
    if ASKED.compare_exchange(asked, asked | ANSWERS, Ordering::AcqRel, Ordering::Acquire).is_err() {
        return;
    }
    let [number, a, b, c] = [0, 1, 2, 3].map(|at: usize| CALL[at].load(Ordering::Relaxed));
    // SAFETY: a call that changes ids of the calling thread, and reads what its maker, who waits, has for it.
    RESULT.store(unsafe { raw::call3(number, a, b, c) }, Ordering::Relaxed);
    ASKED.store(0, Ordering::Release);
    raw::futex_wake(&ASKED, 1);
}
