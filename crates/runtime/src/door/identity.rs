//! setuid and its like: in libc they are a process's, so each copy changes all its threads.
//!
//! With the lock of its list of threads held, libc sends a signal to each, waits until all handlers have run, and then makes the
//! call for the caller. Here nobody gets that signal: the threads it was meant for are asked when the caller's own call has
//! succeeded, while libc still holds the lock. Threads that are not in the list yet are made by one that has been asked.
//! Nothing of this is in a log: what a copy's threads are it knows itself.

use core::sync::atomic::{AtomicU32, Ordering};

use super::process::mirror;
use linux_raw_sys::general::__user_cap_header_struct;

use crate::above::above;
use crate::call::Call;
use crate::guest::GuestPtr;
use crate::raw::nr::CAPSET;
use crate::raw::{self, failed, nr};
use crate::signal::SIGSETXID;
use crate::signal::identity::{self, Answer};
use crate::sys::libc_text;
use crate::thread::{self, Thread};
use crate::{state, turns, verdict};

/// The thread that libc sends signals for, by its slot and one more; 0 for none. It holds libc's lock, which lets one in.
static FOR: AtomicU32 = AtomicU32::new(0);
/// The kernel's numbers of threads that it has sent one and that have no block yet, or never will. Threads are in that state for
/// some instructions, so they are few.
static UNKNOWN: [AtomicU32; UNKNOWN_MAX] = [const { AtomicU32::new(0) }; UNKNOWN_MAX];
const UNKNOWN_MAX: usize = 1024;
/// How many.
static COUNT: AtomicU32 = AtomicU32::new(0);
/// Between two looks at what another thread is about to do, ns.
const PAUSE_NS: u64 = 50_000;

/// Whether this call is one of libc's, to change another thread's ids.
pub fn is_of_libc(call: &Call) -> bool {
    call.nr == nr::TGKILL && call.args[2] as u32 as i32 == SIGSETXID && libc_text::is_own(call)
}

/// Notes whom libc has sent its signal, and answers that there is no such thread: libc does not wait for it then.
pub fn note(thread: &Thread, call: &Call) -> i64 {
    let own = thread.slot() + 1;
    if FOR.swap(own, Ordering::Relaxed) != own {
        COUNT.store(0, Ordering::Relaxed);
    }
    let number = call.args[1] as u32;
    let called = || thread::slots().map(thread::shared).filter(|other| other.guest_tid() == number);
    if called().all(|other| other.runs_as.load(Ordering::Acquire) == 0) {
        // In its first instructions. Its maker may have called it by the group's number already.
        called().for_each(|other| is_unknown(other.real_tid.load(Ordering::Acquire)));
        is_unknown(number);
    }
    raw::err::ESRCH
}

fn is_unknown(number: u32) {
    if number == 0 {
        return;
    }
    let mut count = COUNT.load(Ordering::Relaxed) as usize;
    while count == UNKNOWN_MAX {
        raw::nap(PAUSE_NS);
        count = 0;
        for place in &UNKNOWN {
            let known = place.load(Ordering::Relaxed);
            let has_block = |slot| thread::shared(slot).runs_as.load(Ordering::Acquire) == known;
            if !thread::slots().any(has_block) {
                UNKNOWN[count].store(known, Ordering::Relaxed);
                count += 1;
            }
        }
    }
    UNKNOWN[count].store(number, Ordering::Relaxed);
    COUNT.store(count as u32 + 1, Ordering::Relaxed);
}

/// A call that changes ids, of the calling thread or, where libc makes it for that, of all.
pub fn change(thread: &mut Thread, call: &Call) -> i64 {
    super::code::before_by(call);
    if FOR.load(Ordering::Relaxed) != thread.slot() + 1 {
        if !is_of_process(call) {
            state::changes_alone();
        }
        return if call.nr == CAPSET { set_capabilities(thread, call) } else { mirror(call) };
    }
    identity::say(call);
    let result = loop {
        let result = mirror(call);
        if failed(result) || others_follow(thread, result) {
            break result;
        }
        // In a copy, whose threads were all made by its first one: whatever they were asked before, they begin with its ids.
        COUNT.store(0, Ordering::Relaxed);
    };
    FOR.store(0, Ordering::Relaxed);
    result
}

/// Whether a call is about what all threads have: umask, getrlimit, setrlimit, prlimit64, pkey_alloc, pkey_free.
fn is_of_process(call: &Call) -> bool {
    matches!(call.nr, 95 | 97 | 160 | 302 | 330 | 331)
}

/// capset names the calling thread, which is the only one that it changes: by the group's number, of which the kernel knows nothing.
fn set_capabilities(thread: &Thread, call: &Call) -> i64 {
    let mut call = *call;
    let Some(given) = GuestPtr::<__user_cap_header_struct>::at(call.args[0]).load() else {
        return raw::err::EFAULT;
    };
    let own = __user_cap_header_struct { pid: 0, ..given };
    if given.pid as u32 == thread.guest_tid() {
        call.args[0] = &raw const own as u64;
    }
    mirror(&call)
}

/// Asks all others. False if this has become a copy meanwhile, where they are to be asked anew.
fn others_follow(thread: &mut Thread, own_result: i64) -> bool {
    let check = |result: i64| {
        if result != own_result {
            // libc ends the program here as well: some threads would have rights that others have given up.
            verdict::last_words(&[b"the ids of one thread could not be changed, and those of others are"]);
        }
    };
    // First, and without standing still: a copy knows them by other numbers.
    for number in &UNKNOWN[..COUNT.load(Ordering::Relaxed) as usize] {
        if let Answer::Made(result) = identity::ask(number.load(Ordering::Relaxed), || false) {
            check(result);
        }
    }
    let (own, process) = (thread.slot(), state::REAL_PID.load(Ordering::Relaxed));
    for slot in thread::slots().filter(|slot| *slot != own) {
        loop {
            let tid = thread::shared(slot).runs_as.load(Ordering::Acquire);
            if tid == 0 {
                break;
            }
            let answer = identity::ask(tid, || {
                above().stand_still_with_others(thread);
                turns::take(thread);
                state::REAL_PID.load(Ordering::Relaxed) != process
            });
            match answer {
                Answer::Made(result) => break check(result),
                // It says so itself at its end, before the kernel does; or it is one of a copy that is about to be made.
                Answer::Gone => raw::nap(PAUSE_NS),
                Answer::InCopy => return false,
            }
        }
    }
    true
}
