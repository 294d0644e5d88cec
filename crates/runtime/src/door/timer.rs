//! Timers that belong to a process: `setitimer`, `alarm`, `timer_create`.
//!
//! They die with the primary. Every copy keeps a shadow of what was set and when (the moment travels in the
//! log), and a promotion sets them again with what remains. A timer that fires once and whose signal nobody has
//! taken yet fires at once. The processor time that a dead process used up is not known: timers of processor
//! time start over.

use core::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use us_abi::Cause;
use us_calls::Row;

use crate::call::Call;
use crate::door::recorded::recorded_with;
use crate::siginfo::{Info, SI_TIMER};
use crate::thread::{Shared, Thread};
use crate::verdict::drop_standby;
use crate::{guest, raw, state};

const ALARM: u64 = 37;
const SETITIMER: u64 = 38;
const TIMER_CREATE: u64 = 222;
const TIMER_SETTIME: u64 = 223;
const TIMER_DELETE: u64 = 226;
const ITIMER_REAL: usize = 0;
const ITIMERS: usize = 3;
/// POSIX timers that can be kept: the numbers that the kernel gives are small.
const TIMERS: usize = 256;
const TIMER_ABSTIME: u64 = 1;
const SIGEV_THREAD_ID: u64 = 4;
const CLOCK_THREAD_CPUTIME: u64 = 3;
/// The lowest three bits of a thread's clock.
const THREADS_CLOCK: u32 = 6;
const SIGALRM: i32 = 14;
const SI_KERNEL: i32 = 0x80;

/// What a timer was set to.
struct Setting {
    /// First expiry: from `set_ns` on, or absolute; 0 when the timer is not set.
    value_ns: AtomicU64,
    interval_ns: AtomicU64,
    /// CLOCK_MONOTONIC in the primary when it was set.
    set_ns: AtomicU64,
    absolute: AtomicU64,
    /// Ticket of the call that set it.
    set_at: AtomicU64,
    /// Ticket at which a signal of it was last taken.
    fired_at: AtomicU64,
    /// A signal of it has come since it was set. Timers may have one signal: that it waits says not whose it is.
    has_come: AtomicBool,
}

impl Setting {
    const fn new() -> Setting {
        Setting {
            value_ns: AtomicU64::new(0),
            interval_ns: AtomicU64::new(0),
            set_ns: AtomicU64::new(0),
            absolute: AtomicU64::new(0),
            set_at: AtomicU64::new(0),
            fired_at: AtomicU64::new(0),
            has_come: AtomicBool::new(false),
        }
    }

    fn set(&self, thread: &Thread, value_ns: u64, interval_ns: u64, absolute: bool, set_ns: u64) {
        self.value_ns.store(value_ns, Ordering::Relaxed);
        self.interval_ns.store(interval_ns, Ordering::Relaxed);
        self.set_ns.store(set_ns, Ordering::Relaxed);
        self.absolute.store(u64::from(absolute), Ordering::Relaxed);
        self.set_at.store(thread.begun().ticket, Ordering::Relaxed);
    }

    /// What to set at a promotion: first expiry and interval; `None` for a timer that is not set, or done.
    fn left(&self, now_ns: u64, cpu_time: bool) -> Option<(u64, u64)> {
        let value = self.value_ns.load(Ordering::Relaxed);
        let interval = self.interval_ns.load(Ordering::Relaxed);
        let fired = self.fired_at.load(Ordering::Relaxed) > self.set_at.load(Ordering::Relaxed);
        if value == 0 || (interval == 0 && fired) {
            return None;
        }
        if cpu_time || self.absolute.load(Ordering::Relaxed) != 0 {
            return Some((value, interval));
        }
        let due = self.set_ns.load(Ordering::Relaxed) + value;
        if due > now_ns {
            return Some((due - now_ns, interval));
        }
        // Overdue: the signal was lost with the primary, or was one of many.
        let next = if interval == 0 { 1000 } else { interval - (now_ns - due) % interval };
        Some((next.max(1000), interval))
    }

    /// The same, of one that is set now.
    fn again(&self, now_ns: u64, cpu_time: bool) -> Option<(u64, u64)> {
        let left = self.left(now_ns, cpu_time);
        if left.is_some() {
            self.has_come.store(false, Ordering::Relaxed);
        }
        left
    }
}

struct Timer {
    /// 1 when the timer exists.
    exists: AtomicU64,
    clock: AtomicU64,
    /// The guest's `sigevent`: value, then signal and kind, then the thread.
    event: [AtomicU64; 3],
    /// The kernel's number for it in this process.
    real: AtomicU64,
    /// Whether a signal of it waits in the queue of the thread that it is for.
    waits: AtomicBool,
    setting: Setting,
}

static INTERVAL: [Setting; ITIMERS] = [const { Setting::new() }; ITIMERS];
static POSIX: [Timer; TIMERS] = [const {
    Timer {
        exists: AtomicU64::new(0),
        clock: AtomicU64::new(0),
        event: [const { AtomicU64::new(0) }; 3],
        real: AtomicU64::new(0),
        waits: AtomicBool::new(false),
        setting: Setting::new(),
    }
}; TIMERS];

/// Any call of the three families.
pub fn call(thread: &mut Thread, row: &'static Row, call: &Call) -> i64 {
    let set = match call.nr {
        ALARM => Some(&INTERVAL[ITIMER_REAL]),
        SETITIMER => INTERVAL.get(call.args[0] as usize),
        TIMER_SETTIME => POSIX.get(call.args[0] as usize).map(|timer| &timer.setting),
        _ => None,
    };
    if let Some(setting) = set {
        // Before the call: it may fire before that returns.
        setting.has_come.store(false, Ordering::Relaxed);
    }
    recorded_with(
        thread,
        row,
        call,
        |_, _, _| raw::now_ns(),
        |thread, _, set_ns| applied(thread, call, set_ns),
    )
}

/// In every copy, after a call that succeeded.
fn applied(thread: &mut Thread, call: &Call, set_ns: u64) {
    let [a, b, c, ..] = call.args;
    match call.nr {
        ALARM => INTERVAL[ITIMER_REAL].set(thread, a * 1_000_000_000, 0, false, set_ns),
        SETITIMER => {
            if let (Some(setting), Some(time)) = (INTERVAL.get(a as usize), load(b, 1000)) {
                setting.set(thread, time.1, time.0, false, set_ns);
            }
        }
        TIMER_CREATE => created(thread, a, b, c),
        TIMER_SETTIME => {
            if let (Some(timer), Some(time)) = (POSIX.get(a as usize), load(c, 1)) {
                timer.setting.set(thread, time.1, time.0, b & TIMER_ABSTIME != 0, set_ns);
            }
        }
        TIMER_DELETE => {
            if let Some(timer) = POSIX.get(a as usize) {
                timer.exists.store(0, Ordering::Release);
            }
        }
        _ => {}
    }
}

/// An `itimerval` or `itimerspec`: interval and value in nanoseconds. Null sets nothing.
fn load(from: u64, unit_ns: u64) -> Option<(u64, u64)> {
    let [seconds, parts, first_seconds, first_parts] = guest::load::<[u64; 4]>(from)?;
    let ns = |seconds: u64, parts: u64| seconds.saturating_mul(1_000_000_000).saturating_add(parts * unit_ns);
    Some((ns(seconds, parts), ns(first_seconds, first_parts)))
}

fn created(thread: &Thread, clock: u64, event: u64, place: u64) {
    let Some(real) = guest::load::<u32>(place) else { return };
    let mut number = real as usize;
    if state::is_renumbered() {
        // The number may be one that an older timer has kept since before the promotion.
        let taken = |number: &usize| {
            POSIX.get(*number).is_some_and(|timer| timer.exists.load(Ordering::Relaxed) != 0)
        };
        number = (0..TIMERS).map(|step| (number + step) % TIMERS).find(|at| !taken(at)).unwrap_or(number);
        guest::store(place, &(number as u32));
    }
    let Some(timer) = POSIX.get(number) else {
        drop_standby(Cause::CannotReplay, &[b"a timer with a number that is too high to be kept"]);
        return;
    };
    // Without a sigevent: SIGALRM with the timer's number.
    let [value, kind, target] = if event == 0 {
        [number as u64, SIGALRM as u64, 0]
    } else {
        guest::load::<[u64; 3]>(event).unwrap_or_default()
    };
    for (to, from) in timer.event.iter().zip([value, kind, target]) {
        to.store(from, Ordering::Relaxed);
    }
    // The clock of the calling thread, which libc names by no number: at a promotion another one calls.
    let is_own = clock == CLOCK_THREAD_CPUTIME || thread_of(clock) == Some(0);
    let clock = if is_own { clock_of(thread.guest_tid()) } else { clock };
    timer.clock.store(clock, Ordering::Relaxed);
    timer.real.store(u64::from(real), Ordering::Relaxed);
    timer.setting.value_ns.store(0, Ordering::Relaxed);
    timer.exists.store(1, Ordering::Release);
}

/// In a forked child, which inherits none of them.
pub fn forget() {
    for setting in INTERVAL.iter().chain(POSIX.iter().map(|timer| &timer.setting)) {
        setting.value_ns.store(0, Ordering::Relaxed);
    }
    for timer in &POSIX {
        timer.exists.store(0, Ordering::Relaxed);
    }
}

/// The kernel's number for a timer of the guest's.
pub fn to_kernel(row: &Row, number: u64) -> u64 {
    if u64::from(row.nr) <= TIMER_CREATE {
        return number;
    }
    POSIX.get(number as usize).map_or(number, |timer| timer.real.load(Ordering::Relaxed))
}

/// The guest's number for a timer of the kernel's.
pub fn to_guest(real: u32) -> u32 {
    let number = POSIX.iter().position(|timer| {
        timer.exists.load(Ordering::Acquire) != 0 && timer.real.load(Ordering::Relaxed) == u64::from(real)
    });
    number.map_or(real, |number| number as u32)
}

/// A signal was taken, in a standby: what has fired and does not repeat is done.
pub fn fired(info: &Info, ticket: u64) {
    if let Some(setting) = setting_of(info) {
        setting.fired_at.fetch_max(ticket, Ordering::Relaxed);
        setting.has_come.store(true, Ordering::Relaxed);
    }
}

/// The kernel has delivered a signal. In a handler; from here on it may wait in a thread's queue, which a copy has too.
pub fn came(info: &Info) {
    if let Some(setting) = setting_of(info) {
        setting.has_come.store(true, Ordering::Relaxed);
    }
}

/// The timer whose signal this is.
fn setting_of(info: &Info) -> Option<&'static Setting> {
    match info.code() {
        SI_KERNEL if info.signal() == SIGALRM => Some(&INTERVAL[ITIMER_REAL]),
        SI_TIMER => POSIX.get(info.0[2] as u32 as usize).map(|timer| &timer.setting),
        _ => None,
    }
}

/// By the coordinator, before [`take_stock`]: which timers' signals wait for a single thread, of which `waiting` tells. No other
/// thread sees them, and without this one that has fired and is not taken yet would count as done.
pub fn look_at_threads(waiting: impl Fn(u32) -> u64) {
    for timer in POSIX.iter().filter(|timer| timer.exists.load(Ordering::Acquire) != 0) {
        let [_, kind, target] = timer.event.each_ref().map(|word| word.load(Ordering::Relaxed));
        let bit = 1u64.unbounded_shl((kind as u32).wrapping_sub(1));
        let waits =
            kind >> 32 == SIGEV_THREAD_ID && waiting(number_of(target as u32, Shared::kernel_tid)) & bit != 0;
        timer.waits.store(waits, Ordering::Relaxed);
    }
}

/// What every timer has left, as the kernel says, where `waiting` signals wait for the process: a log begins here, and what
/// has fired before is not in it.
pub fn take_stock(waiting: u64) {
    const GETITIMER: u64 = 36;
    const TIMER_GETTIME: u64 = 224;
    let now = raw::now_ns();
    let mut time = [0u64; 4];
    let note = |setting: &Setting, time: &[u64; 4], unit_ns: u64, waits: bool| {
        let (interval, mut value) =
            (time[0] * 1_000_000_000 + time[1] * unit_ns, time[2] * 1_000_000_000 + time[3] * unit_ns);
        // One whose signal waits to be taken shows as nothing left: it runs on when that is taken, and it has not been yet.
        // What waits may be another timer's.
        let waits = waits && !setting.has_come.load(Ordering::Relaxed);
        if value == 0 && (interval != 0 || waits) {
            value = 1;
        }
        setting.value_ns.store(value, Ordering::Relaxed);
        setting.interval_ns.store(interval, Ordering::Relaxed);
        setting.set_ns.store(now, Ordering::Relaxed);
        setting.absolute.store(0, Ordering::Relaxed);
        setting.set_at.store(0, Ordering::Relaxed);
        setting.fired_at.store(0, Ordering::Relaxed);
    };
    let is_waiting = |signal: u64| waiting & 1u64.unbounded_shl((signal as u32).wrapping_sub(1)) != 0;
    for (which, setting) in INTERVAL.iter().enumerate() {
        // SAFETY: the kernel writes four words.
        if unsafe { raw::call2(GETITIMER, which as u64, time.as_mut_ptr() as u64) } == 0 {
            // SIGALRM, SIGVTALRM, SIGPROF
            note(setting, &time, 1000, is_waiting([14, 26, 27][which]));
        }
    }
    for timer in POSIX.iter().filter(|timer| timer.exists.load(Ordering::Acquire) != 0) {
        let real = timer.real.load(Ordering::Relaxed);
        // SAFETY: the kernel writes four words.
        if unsafe { raw::call2(TIMER_GETTIME, real, time.as_mut_ptr() as u64) } == 0 {
            let waits =
                timer.waits.load(Ordering::Relaxed) || is_waiting(timer.event[1].load(Ordering::Relaxed));
            note(&timer.setting, &time, 1, waits);
        }
    }
}

/// At a promotion: sets every timer in this process.
pub fn set_again() {
    let now = raw::now_ns();
    for (which, setting) in INTERVAL.iter().enumerate() {
        let Some((value, interval)) = setting.again(now, which != ITIMER_REAL) else { continue };
        let time = [
            interval / 1_000_000_000,
            interval / 1000 % 1_000_000,
            value / 1_000_000_000,
            value / 1000 % 1_000_000,
        ];
        // SAFETY: the kernel reads four words.
        unsafe { raw::call3(SETITIMER, which as u64, time.as_ptr() as u64, 0) };
    }
    for timer in POSIX.iter().filter(|timer| timer.exists.load(Ordering::Acquire) != 0) {
        create_again(timer, now);
    }
}

fn create_again(timer: &Timer, now: u64) {
    const CLOCK_PROCESS_CPUTIME: u64 = 2;
    let mut event = [0u64; 8];
    for (to, from) in event.iter_mut().zip(&timer.event) {
        *to = from.load(Ordering::Relaxed);
    }
    if event[1] >> 32 == SIGEV_THREAD_ID {
        event[2] = u64::from(standby_tid(event[2] as u32));
    }
    let mut clock = timer.clock.load(Ordering::Relaxed);
    let thread = thread_of(clock);
    let cpu_time = clock == CLOCK_PROCESS_CPUTIME || thread.is_some();
    if let Some(tid) = thread {
        clock = clock_of(standby_tid(tid));
    }
    let mut real = 0u32;
    // SAFETY: the kernel reads a sigevent and four words, and writes a number.
    unsafe {
        raw::call3(TIMER_CREATE, clock, event.as_ptr() as u64, &raw mut real as u64);
        timer.real.store(u64::from(real), Ordering::Relaxed);
        if let Some((value, interval)) = timer.setting.again(now, cpu_time) {
            let ns = 1_000_000_000;
            let time = [interval / ns, interval % ns, value / ns, value % ns];
            let absolute = timer.setting.absolute.load(Ordering::Relaxed);
            raw::call4(TIMER_SETTIME, u64::from(real), absolute, time.as_ptr() as u64, 0);
        }
    }
}

/// The clock that counts the processor time of a thread, as the kernel writes it.
fn clock_of(tid: u32) -> u64 {
    u64::from(!tid << 3 | THREADS_CLOCK)
}

/// The thread whose processor time a clock counts.
fn thread_of(clock: u64) -> Option<u32> {
    let clock = clock as u32;
    ((clock as i32) < 0 && clock & 7 == THREADS_CLOCK).then_some(!(clock as i32 >> 3) as u32)
}

/// The kernel's number, in this copy, of a thread of the group.
pub fn standby_tid(tid: u32) -> u32 {
    number_of(tid, |thread| crate::seats::tid(thread.slot()).load(Ordering::Relaxed))
}

/// What `of` says of the thread that the guest calls `tid`; that number if there is none.
fn number_of(tid: u32, of: impl Fn(&Shared) -> u32) -> u32 {
    crate::thread::called(tid).last().map_or(tid, of)
}
