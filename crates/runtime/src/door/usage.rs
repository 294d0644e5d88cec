//! Processor time used: it goes on where the dead primary's stopped.
//!
//! A promoted copy is another process, which has used less. A program that takes a difference of two readings would get a
//! time before its beginning. So every copy remembers what was told last, and what it tells is never less.

use core::sync::atomic::Ordering;

use linux_raw_sys::general::{__kernel_old_timeval, rusage};
use us_world::timer::ProcessorClock;

use crate::call::Call;
use crate::door::numbers;
use crate::guest::{GuestMut, part};
use crate::raw::{self, Timespec};
use crate::thread::used::{Count, Used};
use crate::thread::{self, Shared, Thread};
use crate::{state, tls};

/// System call number.
pub const GETRUSAGE: u64 = crate::raw::nr::GETRUSAGE;
/// System call number.
pub const TIMES: u64 = crate::raw::nr::TIMES;

const PROCESS_CPUTIME: i32 = 2;
const THREAD_CPUTIME: i32 = 3;
const CLOCK: usize = 0;
const USER: usize = 1;
const SYSTEM: usize = 2;
const USER_TICKS: usize = 3;
const SYSTEM_TICKS: usize = 4;
/// By what a clock with a number in it counts.
const CLOCKS: [usize; 3] = [5, 6, CLOCK];
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
    matches!(clock, PROCESS_CPUTIME | THREAD_CPUTIME) || clock < 0 && is_numbered(clock)
}

/// Of a clock with a number in it: out of the way of all others.
#[cold]
#[inline(never)]
fn is_numbered(clock: i32) -> bool {
    ProcessorClock::is_one(clock)
}

/// Whose clock it is, if it is this process's or one of its threads'.
fn of_clock(clock: i32) -> Option<&'static Count> {
    let used = match (clock, ProcessorClock::of(clock)) {
        (PROCESS_CPUTIME, _) => &USED[PROCESS],
        (THREAD_CPUTIME, _) => of_thread(tls::shared()?),
        (_, Some(ProcessorClock { number, is_thread: false, .. })) => {
            let is_own = number == 0 || number == state::GUEST_PID.load(Ordering::Relaxed);
            is_own.then_some(&USED[PROCESS])?
        }
        (_, Some(ProcessorClock { number: 0, .. })) => of_thread(tls::shared()?),
        (_, counted) => {
            let number = counted?.number;
            let mut found = None;
            thread::for_each(|thread| {
                if thread.guest_tid() == number {
                    found = Some(of_thread(thread));
                }
            });
            found?
        }
    };
    Some(&used.counts[ProcessorClock::of(clock).map_or(CLOCK, |counted| CLOCKS[counted.part])])
}

/// A moment of such a clock, ns, as this process's own shows it.
pub fn to_own(clock: i32, ns: u64) -> u64 {
    let mut own = Timespec::default();
    let kernels = u64::from(numbers::clock_to_kernel(clock) as u32);
    // SAFETY: the kernel writes one timespec.
    let ahead = match unsafe { raw::call2(raw::nr::CLOCK_GETTIME, kernels, &raw mut own as u64) } {
        0 if is_clock(clock) => of_clock(clock).map_or(0, |count| count.ahead_of(own.ns())),
        _ => 0,
    };
    // Never a time of zero, which sets no timer.
    ns.saturating_sub(ahead).max(1)
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

/// The kernel's `struct tms`: user and system time, the process's and its children's.
type Ticks = [u64; 4];

/// Behind `getrusage` and `times`, in every copy: the answer lies in the guest's memory, and is put right there.
pub fn told(thread: &Thread, call: &Call) {
    const RUSAGE_CHILDREN: i32 = linux_raw_sys::general::RUSAGE_CHILDREN;
    const RUSAGE_SELF: i32 = linux_raw_sys::general::RUSAGE_SELF as i32;
    let [who, place, ..] = call.args;
    if call.nr == TIMES {
        let place = GuestMut::<Ticks>::at(who);
        let Some(ticks) = place.written() else { return };
        let counts = [PROCESS, CHILDREN].map(|used| &USED[used].counts);
        let [[user, system], [child_user, child_system]] =
            counts.map(|counts| [&counts[USER_TICKS], &counts[SYSTEM_TICKS]]);
        let mut told = [user, system, child_user, child_system].into_iter().zip(ticks);
        let ticks = [(); 4].map(|()| told.next().map_or(0, |(count, ticks)| put_right(count, ticks)));
        place.store(&ticks);
        return;
    }
    let used = match who as u32 as i32 {
        RUSAGE_CHILDREN => &USED[CHILDREN],
        RUSAGE_SELF => &USED[PROCESS],
        _ => of_thread(thread.shared()),
    };
    let place = GuestMut::<rusage>::at(place);
    for (place, which) in [(part!(place, rusage, ru_utime), USER), (part!(place, rusage, ru_stime), SYSTEM)] {
        let Some(time) = place.written() else { return };
        let us = put_right(&used.counts[which], time.tv_sec as u64 * 1_000_000 + time.tv_usec as u64) as i64;
        place.store(&__kernel_old_timeval { tv_sec: us / 1_000_000, tv_usec: us % 1_000_000 });
    }
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
