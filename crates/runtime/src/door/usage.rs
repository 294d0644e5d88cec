//! Processor time used: it goes on where the dead primary's stopped.
//!
//! A promoted copy is another process, which has used less. A program that takes a difference of two readings would get a
//! time before its beginning. So every copy remembers what was told last, and what it tells is never less.

use core::sync::atomic::Ordering;

use crate::call::Call;
use crate::thread::used::{Count, Used};
use crate::thread::{self, Shared, Thread};
use crate::{guest, state, tls};

/// System call number.
pub const GETRUSAGE: u64 = 98;
/// System call number.
pub const TIMES: u64 = 100;

const PROCESS_CPUTIME: i32 = 2;
const THREAD_CPUTIME: i32 = 3;
/// The lowest bits of a clock with the number of a process in it, and with that of a thread.
const PROCESSES_CLOCK: i32 = 2;
const THREADS_CLOCK: i32 = 6;

const CLOCK: usize = 0;
const USER: usize = 1;
const SYSTEM: usize = 2;
const USER_TICKS: usize = 3;
const SYSTEM_TICKS: usize = 4;
const PROCESS: usize = 0;
const CHILDREN: usize = 1;

static USED: [Used; 2] = [const { Used::new() }; 2];

fn of_thread(thread: &'static Shared) -> &'static Used {
    let used = &thread.used;
    if used.generation.swap(thread.generation(), Ordering::Relaxed) != thread.generation() {
        // The slot's last thread's.
        used.counts.iter().for_each(Count::reset);
    }
    used
}

/// Whether a clock counts processor time.
#[inline(always)]
pub fn is_clock(clock: i32) -> bool {
    matches!(clock, PROCESS_CPUTIME | THREAD_CPUTIME)
        || clock < 0 && matches!(clock & 7, PROCESSES_CLOCK | THREADS_CLOCK)
}

/// Whose clock it is, if it is this process's or one of its threads'.
fn of_clock(clock: i32) -> Option<&'static Count> {
    let number = !(clock >> 3) as u32;
    let used = match clock {
        PROCESS_CPUTIME => &USED[PROCESS],
        THREAD_CPUTIME => of_thread(tls::shared()?),
        _ if clock & 7 == PROCESSES_CLOCK => {
            (number == state::GUEST_PID.load(Ordering::Relaxed)).then_some(&USED[PROCESS])?
        }
        _ => {
            let mut found = None;
            thread::for_each(|thread| {
                if thread.guest_tid() == number {
                    found = Some(of_thread(thread));
                }
            });
            found?
        }
    };
    Some(&used.counts[CLOCK])
}

/// A CPU clock that the kernel says `own` of, ns. A standby's is its own.
pub fn clock(clock: i32, own: u64) -> u64 {
    match of_clock(clock) {
        Some(count) if !state::is_standby() => count.tell(own),
        _ => own,
    }
}

/// As a standby: what the log says that it showed, ns.
pub fn clock_told(clock: i32, ns: u64) {
    if let Some(count) = of_clock(clock) {
        count.told(ns);
    }
}

/// Behind `getrusage` and `times`, in every copy: the answer lies in the guest's memory, and is put right there.
pub fn told(thread: &Thread, call: &Call) {
    const RUSAGE_CHILDREN: i32 = -1;
    const RUSAGE_SELF: i32 = 0;
    let [who, place, ..] = call.args;
    if call.nr == TIMES {
        let Some(ticks) = guest::load::<[u64; 4]>(who) else { return };
        let counts = [PROCESS, CHILDREN].map(|used| &USED[used].counts);
        let [[user, system], [child_user, child_system]] =
            counts.map(|counts| [&counts[USER_TICKS], &counts[SYSTEM_TICKS]]);
        let mut told = [user, system, child_user, child_system].into_iter().zip(ticks);
        let ticks = [(); 4].map(|()| told.next().map_or(0, |(count, ticks)| put_right(count, ticks)));
        guest::store(who, &ticks);
        return;
    }
    let used = match who as u32 as i32 {
        RUSAGE_CHILDREN => &USED[CHILDREN],
        RUSAGE_SELF => &USED[PROCESS],
        _ => of_thread(thread.shared()),
    };
    let Some(times) = guest::load::<[[u64; 2]; 2]>(place) else { return };
    let [user, system] = times.map(|[seconds, us]| seconds * 1_000_000 + us);
    let told = [put_right(&used.counts[USER], user), put_right(&used.counts[SYSTEM], system)];
    guest::store(place, &told.map(|us| [us / 1_000_000, us % 1_000_000]));
}

fn put_right(count: &Count, value: u64) -> u64 {
    if !state::is_standby() {
        return count.tell(value);
    }
    count.told(value);
    value
}

/// In a forked child, which has used nothing.
pub fn forget() {
    for used in &USED {
        used.counts.iter().for_each(Count::reset);
    }
}
