//! Timers that belong to a process: `setitimer`, `alarm`, `timer_create`.
//!
//! They die with the primary. Every copy keeps a shadow of what was set and when (the moment travels in the
//! log), and a promotion sets them again with what remains. A timer that fires once and whose signal nobody has
//! taken yet fires at once. The processor time that a dead process used up is not known: timers of processor
//! time start over.

use core::mem::offset_of;
use core::sync::atomic::{AtomicBool, AtomicI32, AtomicU64, Ordering};

use linux_raw_sys::general::{__kernel_itimerspec, __kernel_old_itimerval, sigevent};
use us_abi::Cause;
use us_calls::Row;
use us_world::timer::{self, Clock, Now, ProcessorClock, Setting, Time, Whose};

use crate::call::Call;
use crate::door::recorded::recorded_with;
use crate::door::{numbers, usage};
use crate::guest::{GuestMut, GuestPtr};
use crate::kernel::{SIGEV_THREAD_ID, TIMER_ABSTIME};
use crate::raw::nr::{ALARM, SETITIMER, TIMER_CREATE, TIMER_DELETE, TIMER_SETTIME};
use crate::siginfo::Info;
use crate::thread::{Shared, Thread};
use crate::verdict::drop_standby;
use crate::{raw, state};

const ITIMER_REAL: usize = linux_raw_sys::general::ITIMER_REAL as usize;
const ITIMERS: usize = 3;
/// POSIX timers that can be kept: the numbers that the kernel gives are small.
const TIMERS: usize = 256;
const CLOCK_THREAD_CPUTIME: i32 = 3;
const SIGALRM: i32 = linux_raw_sys::general::SIGALRM as i32;
const SECOND_NS: u64 = 1_000_000_000;
const MICROSECOND_NS: u64 = 1000;

/// What a timer was set to, as the log has it, and what has come of it since.
struct Kept {
    first_ns: AtomicU64,
    interval_ns: AtomicU64,
    set_ns: AtomicU64,
    is_absolute: AtomicBool,
    set_at: AtomicU64,
    /// Ticket at which a signal of it was last taken.
    fired_at: AtomicU64,
    /// A signal of it has come since it was set. Timers may have one signal: that it waits says not whose it is.
    has_come: AtomicBool,
}

impl Kept {
    const fn new() -> Kept {
        Kept {
            first_ns: AtomicU64::new(0),
            interval_ns: AtomicU64::new(0),
            set_ns: AtomicU64::new(0),
            is_absolute: AtomicBool::new(false),
            set_at: AtomicU64::new(0),
            fired_at: AtomicU64::new(0),
            has_come: AtomicBool::new(false),
        }
    }

    fn set(&self, setting: Setting) {
        self.first_ns.store(setting.time.first_ns, Ordering::Relaxed);
        self.interval_ns.store(setting.time.interval_ns, Ordering::Relaxed);
        self.set_ns.store(setting.set_ns, Ordering::Relaxed);
        self.is_absolute.store(setting.is_absolute, Ordering::Relaxed);
        self.set_at.store(setting.set_at, Ordering::Relaxed);
    }

    fn setting(&self) -> Setting {
        Setting {
            time: Time {
                first_ns: self.first_ns.load(Ordering::Relaxed),
                interval_ns: self.interval_ns.load(Ordering::Relaxed),
            },
            set_ns: self.set_ns.load(Ordering::Relaxed),
            is_absolute: self.is_absolute.load(Ordering::Relaxed),
            set_at: self.set_at.load(Ordering::Relaxed),
        }
    }

    /// Not set any more.
    fn clear(&self) {
        self.first_ns.store(0, Ordering::Relaxed);
    }

    /// What to set at a promotion, now.
    fn again(&self, now: Now, clock: Clock) -> Option<Time> {
        let left = self.setting().left(self.fired_at.load(Ordering::Relaxed), now, clock);
        if left.is_some() {
            self.has_come.store(false, Ordering::Relaxed);
        }
        left
    }
}

struct Timer {
    /// 1 when the timer exists.
    exists: AtomicU64,
    /// The guest's, by the group's numbers.
    clock: AtomicI32,
    /// The guest's `sigevent`: value, then signal and kind, then the thread.
    event: [AtomicU64; size_of::<Event>() / size_of::<u64>()],
    /// The kernel's number for it in this process.
    real: AtomicU64,
    /// Whether a signal of it waits in the queue of the thread that it is for.
    waits: AtomicBool,
    kept: Kept,
}

static INTERVAL: [Kept; ITIMERS] = [const { Kept::new() }; ITIMERS];
static POSIX: [Timer; TIMERS] = [const {
    Timer {
        exists: AtomicU64::new(0),
        clock: AtomicI32::new(0),
        event: [const { AtomicU64::new(0) }; 3],
        real: AtomicU64::new(0),
        waits: AtomicBool::new(false),
        kept: Kept::new(),
    }
}; TIMERS];

/// Any call of the three families.
pub fn call(thread: &mut Thread, row: &'static Row, call: &Call) -> i64 {
    let set = match call.nr {
        ALARM => Some(&INTERVAL[ITIMER_REAL]),
        SETITIMER => INTERVAL.get(call.args[0] as usize),
        TIMER_SETTIME => POSIX.get(call.args[0] as usize).map(|timer| &timer.kept),
        _ => None,
    };
    if let Some(kept) = set {
        // Before the call: it may fire before that returns.
        kept.has_come.store(false, Ordering::Relaxed);
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
    let set = |kept: &Kept, time, is_absolute| {
        kept.set(Setting { time, set_ns, is_absolute, set_at: thread.begun().ticket });
    };
    match call.nr {
        ALARM => {
            set(&INTERVAL[ITIMER_REAL], Time { first_ns: a as u32 as u64 * SECOND_NS, interval_ns: 0 }, false)
        }
        SETITIMER => {
            if let (Some(kept), Some(time)) =
                (INTERVAL.get(a as usize), load(GuestPtr::at(b), MICROSECOND_NS))
            {
                set(kept, time, false);
            }
        }
        TIMER_CREATE => created(thread, a, GuestPtr::at(b), GuestMut::at(c)),
        TIMER_SETTIME => {
            if let (Some(timer), Some(time)) = (POSIX.get(a as usize), load(GuestPtr::at(c), 1)) {
                set(&timer.kept, time, b & TIMER_ABSTIME != 0);
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

/// What a call sets. Null sets nothing.
fn load(from: GuestPtr<Words>, unit_ns: u64) -> Option<Time> {
    from.load().map(|words| Time::from_words(words, unit_ns))
}

/// What setitimer and timer_settime are given: the interval and the first time, in seconds and parts of one.
type Words = [u64; 4];
const _: () = assert!(
    size_of::<Words>() == size_of::<__kernel_old_itimerval>()
        && size_of::<Words>() == size_of::<__kernel_itimerspec>()
        && offset_of!(__kernel_old_itimerval, it_value) == 2 * size_of::<u64>()
        && offset_of!(__kernel_itimerspec, it_value) == 2 * size_of::<u64>()
);

/// The first words of a `sigevent`: value, then signal and kind, then the thread. Those behind mean nothing to the kernel.
type Event = [u64; 3];
/// All of one, for a call.
type WholeEvent = [u64; size_of::<sigevent>() / size_of::<u64>()];
const _: () = assert!(
    offset_of!(sigevent, sigev_signo) == size_of::<u64>()
        && offset_of!(sigevent, sigev_notify) == size_of::<u64>() + size_of::<u32>()
        && offset_of!(sigevent, _sigev_un) == 2 * size_of::<u64>()
);

fn created(thread: &Thread, clock: u64, event: GuestPtr<Event>, place: GuestMut<u32>) {
    let Some(real) = place.written() else { return };
    let mut number = real as usize;
    if state::is_renumbered() {
        // The number may be one that an older timer has kept since before the promotion.
        let taken = |number: &usize| {
            POSIX.get(*number).is_some_and(|timer| timer.exists.load(Ordering::Relaxed) != 0)
        };
        number = (0..TIMERS).map(|step| (number + step) % TIMERS).find(|at| !taken(at)).unwrap_or(number);
        place.store(&(number as u32));
    }
    let Some(timer) = POSIX.get(number) else {
        drop_standby(Cause::CannotReplay, &[b"a timer with a number that is too high to be kept"]);
        return;
    };
    // Without a sigevent: SIGALRM with the timer's number.
    let [value, kind, target] = if event.is_nowhere() {
        [number as u64, SIGALRM as u64, 0]
    } else {
        event.load().unwrap_or_default()
    };
    for (to, from) in timer.event.iter().zip([value, kind, target]) {
        to.store(from, Ordering::Relaxed);
    }
    // The clock of the calling thread, which libc names by no number: at a promotion another one calls.
    const WHOLE: usize = 2;
    let own = |part| ProcessorClock { number: thread.guest_tid(), is_thread: true, part };
    let clock = clock as i32;
    let clock = match ProcessorClock::of(clock) {
        Some(ProcessorClock { number: 0, is_thread: true, part }) => own(part).word(),
        None if clock == CLOCK_THREAD_CPUTIME => own(WHOLE).word(),
        _ => clock,
    };
    timer.clock.store(clock, Ordering::Relaxed);
    timer.real.store(u64::from(real), Ordering::Relaxed);
    timer.kept.clear();
    timer.exists.store(1, Ordering::Release);
}

/// In a forked child, which inherits none of them.
pub fn forget() {
    INTERVAL.iter().chain(POSIX.iter().map(|timer| &timer.kept)).for_each(Kept::clear);
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
    if let Some(kept) = kept_of(info) {
        kept.fired_at.fetch_max(ticket, Ordering::Relaxed);
        kept.has_come.store(true, Ordering::Relaxed);
    }
}

/// The kernel has delivered a signal. In a handler; from here on it may wait in a thread's queue, which a copy has too.
pub fn came(info: &Info) {
    if let Some(kept) = kept_of(info) {
        kept.has_come.store(true, Ordering::Relaxed);
    }
}

/// The timer whose signal this is.
fn kept_of(info: &Info) -> Option<&'static Kept> {
    match timer::whose(info.signal(), info.code(), info.sender())? {
        Whose::Interval(which) => INTERVAL.get(which),
        Whose::Made(number) => POSIX.get(number as usize).map(|timer| &timer.kept),
    }
}

/// Whether a setitimer or timer_settime in doubt, with which the kernel was entered, is not to be made again.
pub fn was_set(number: u64, asked: &[u64; 6], ticket: u64) -> bool {
    let [which, _, third, fourth, ..] = *asked;
    let (kept, time, old, unit_ns) = match number {
        SETITIMER => (INTERVAL.get(which as usize), asked[1], third, MICROSECOND_NS),
        TIMER_SETTIME => (POSIX.get(which as usize).map(|timer| &timer.kept), third, fourth, 1),
        _ => return false,
    };
    let (Some(kept), Some(time)) = (kept, load(GuestPtr::at(time), unit_ns)) else { return false };
    let fired_at = kept.fired_at.load(Ordering::Relaxed);
    let of = timer::Owner::Process { time, set_at: ticket, fired_at };
    // Its signal was taken: it was not refused.
    timer::was_set(timer::Setter { of, is_refused: false, tells: old != 0 })
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
/// has fired before is not in it. Returns those of the signals that are timers'.
pub fn take_stock(waiting: u64) -> u64 {
    use crate::raw::nr::{GETITIMER, TIMER_GETTIME};
    let now = raw::now_ns();
    let mut time: Words = [0; _];
    let mut explained = 0;
    let bit = |signal: u64| 1u64.unbounded_shl((signal as u32).wrapping_sub(1));
    let mut note = |kept: &Kept, time, signal, waits| {
        let setting = Setting::at_clone(time, now, waits, kept.has_come.load(Ordering::Relaxed));
        kept.set(setting);
        kept.fired_at.store(0, Ordering::Relaxed);
        if setting.explains(time, waits) {
            explained |= bit(signal);
        }
    };
    let is_waiting = |signal: u64| waiting & bit(signal) != 0;
    for (which, kept) in INTERVAL.iter().enumerate() {
        // SAFETY: the kernel writes four words.
        if unsafe { raw::call2(GETITIMER, which as u64, time.as_mut_ptr() as u64) } == 0 {
            let signal = timer::INTERVAL_SIGNALS[which] as u64;
            note(kept, Time::from_words(time, MICROSECOND_NS), signal, is_waiting(signal));
        }
    }
    for timer in POSIX.iter().filter(|timer| timer.exists.load(Ordering::Acquire) != 0) {
        let real = timer.real.load(Ordering::Relaxed);
        // SAFETY: the kernel writes four words.
        if unsafe { raw::call2(TIMER_GETTIME, real, time.as_mut_ptr() as u64) } == 0 {
            let signal = timer.event[1].load(Ordering::Relaxed);
            // What waits for its thread does so besides what waits for the process.
            let its_thread = timer.waits.load(Ordering::Relaxed);
            let of_process = if its_thread { 0 } else { signal };
            note(&timer.kept, Time::from_words(time, 1), of_process, its_thread || is_waiting(signal));
        }
    }
    explained
}

/// At a promotion: sets every timer in this process.
pub fn set_again() {
    let now = raw::now_ns();
    for (which, kept) in INTERVAL.iter().enumerate() {
        let clock = if which == ITIMER_REAL { Clock::Time } else { Clock::Processor };
        let Some(left) = kept.again(Now { monotonic_ns: now, own_ns: now }, clock) else { continue };
        let time = left.words(MICROSECOND_NS);
        // SAFETY: the kernel reads four words.
        unsafe { raw::call3(SETITIMER, which as u64, time.as_ptr() as u64, 0) };
    }
    for timer in POSIX.iter().filter(|timer| timer.exists.load(Ordering::Acquire) != 0) {
        create_again(timer);
    }
}

fn create_again(timer: &Timer) {
    let mut event: WholeEvent = [0; _];
    for (to, from) in event.iter_mut().zip(&timer.event) {
        *to = from.load(Ordering::Relaxed);
    }
    if event[1] >> 32 == SIGEV_THREAD_ID {
        event[2] = u64::from(standby_tid(event[2] as u32));
    }
    let guests = timer.clock.load(Ordering::Relaxed);
    let counts = if usage::is_clock(guests) { Clock::Processor } else { Clock::Time };
    let clock = u64::from(numbers::clock_to_kernel(guests) as u32);
    let mut real = 0u32;
    // SAFETY: the kernel reads a sigevent and four words, and writes a number and a time.
    unsafe {
        raw::call3(TIMER_CREATE, clock, event.as_ptr() as u64, &raw mut real as u64);
        timer.real.store(u64::from(real), Ordering::Relaxed);
        let mut own = raw::Timespec::default();
        raw::call2(raw::nr::CLOCK_GETTIME, clock, &raw mut own as u64);
        let now = Now { monotonic_ns: raw::now_ns(), own_ns: own.ns() };
        if let Some(mut left) = timer.kept.again(now, counts) {
            let absolute = u64::from(timer.kept.setting().is_absolute);
            if absolute != 0 {
                left.first_ns = usage::to_own(guests, left.first_ns);
            }
            let time = left.words(1);
            raw::call4(TIMER_SETTIME, u64::from(real), absolute, time.as_ptr() as u64, 0);
        }
    }
}

/// The moment at which a call with TIMER_ABSTIME sets a timer, as this process's own clock shows it; `None` where that is what the
/// guest has said.
pub fn own_time(args: &[u64; 6]) -> Option<Words> {
    let [number, flags, time, ..] = *args;
    let clock = POSIX.get(number as usize)?.clock.load(Ordering::Relaxed);
    if flags & TIMER_ABSTIME == 0 || !usage::is_clock(clock) {
        return None;
    }
    let mut time = load(GuestPtr::at(time), 1).filter(|time| time.first_ns != 0)?;
    time.first_ns = usage::to_own(clock, time.first_ns);
    Some(time.words(1))
}

/// The kernel's number, in this copy, of a thread of the group.
pub fn standby_tid(tid: u32) -> u32 {
    number_of(tid, |thread| crate::seats::tid(thread.slot()).load(Ordering::Relaxed))
}

/// What `of` says of the thread that the guest calls `tid`; that number if there is none.
fn number_of(tid: u32, of: impl Fn(&Shared) -> u32) -> u32 {
    crate::thread::called(tid).last().map_or(tid, of)
}
