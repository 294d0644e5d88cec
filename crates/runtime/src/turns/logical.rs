//! Turns in an order that is computed: the threads of this process in logical time, see [`us_order::logical`].
//!
//! Every copy keeps the clocks, also where nobody follows. A standby takes its turns as the log says, and in them its threads change
//! the race as its primary's did: they sleep, wake, make and end each other by their own objects, wherever those lie. Where the world
//! decides, the log has the clock with the turn that follows, and until then the segment has the thread's place
//! ([`crate::turns::restore`]).
//!
//! Where the order would not come on, it is guessed by time: a thread that others wait for computes without passing a door, or it
//! waits where nobody knows of it. Each guess is counted, and `status` says so: from there on two runs may differ.

use core::cell::UnsafeCell;
use core::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use us_abi::THREADS_MAX;
use us_order::logical::{At, Logical, WAKES, ticks};

use crate::above::above;
use crate::kernel::{FUTEX_CLOCK_REALTIME, FUTEX_WAIT_BITSET};
use crate::lock::Lock;
use crate::members::of_family;
use crate::raw::{self, Timespec};
use crate::sys::own_table::with_own_table;
use crate::thread::turn::Waits;
use crate::thread::{self, Mode, Thread};
use crate::turns::{digest, live_turns};
use crate::{proc, state, tls};

/// Between two looks at who is awaited, ns.
const LOOK_NS: u64 = 5_000_000;
/// How long a thread waits behind its time for those who have not come so far in logical time, ns. While other programs leave
/// these no processor, nobody is late.
const LATE_NS: u64 = 50_000_000;
/// Looks at whose turn it is before a thread sleeps.
const SPINS: u32 = 200;
pub(super) const NOBODY: u32 = u32::MAX;
/// How long those sleep who do not look, ns: then they see whether they are to stand still.
const REST_NS: u64 = 50_000_000;
/// Who looks at whether somebody is awaited for too long.
pub(super) static WATCHER: AtomicU32 = AtomicU32::new(NOBODY);

pub(super) struct Race {
    lock: Lock,
    pub(super) times: UnsafeCell<Logical<THREADS_MAX>>,
}
// SAFETY: the clocks are touched under the lock only.
unsafe impl Sync for Race {}

pub(super) static RACE: Race = Race { lock: Lock::new(), times: UnsafeCell::new(Logical::new()) };
/// Whose turn it is, or will be.
pub(super) static LEAST: AtomicU32 = AtomicU32::new(NOBODY);
/// Who has the turn.
pub(super) static OWNER: AtomicU32 = AtomicU32::new(NOBODY);
/// There is a second thread, or has been.
pub(super) static HAS_BEGUN: AtomicBool = AtomicBool::new(false);
/// How many sleep in logical time.
static ASLEEP: AtomicU32 = AtomicU32::new(0);

/// Where a thread waits for its turn, or until it is woken.
struct Bell {
    rung: AtomicU32,
    is_awaited: AtomicBool,
}

static BELLS: [Bell; THREADS_MAX] =
    [const { Bell { rung: AtomicU32::new(0), is_awaited: AtomicBool::new(false) } }; THREADS_MAX];

/// How a sleep has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// Somebody has woken this thread.
    Woken,
    /// Its time has come.
    TimedOut,
    /// A signal waits, or this copy follows now.
    Interrupted,
}

/// When a sleep ends by itself.
#[derive(Clone, Copy)]
pub struct Until {
    /// The kernel's number of a clock.
    pub clock: u64,
    /// Its time.
    pub time: Timespec,
}

impl Until {
    /// How long that is from now on.
    #[must_use]
    pub fn left_ns(&self) -> u64 {
        let mut now = Timespec::default();
        // SAFETY: the kernel writes one timespec.
        unsafe { raw::call2(raw::nr::CLOCK_GETTIME, self.clock, &raw mut now as u64) };
        self.time.ns().saturating_sub(now.ns())
    }

    /// The same in logical time.
    #[must_use]
    pub fn ticks(&self) -> u64 {
        ticks(self.left_ns())
    }
}

/// Whether this thread takes turns in a computed order.
#[inline(always)]
pub fn applies(thread: &Thread) -> bool {
    state::is_computed()
        && HAS_BEGUN.load(Ordering::Relaxed)
        && !thread::is_beyond(thread.slot())
        && !of_family::is_member()
}

/// The same, of one that acts: who follows takes its turns from the log.
#[inline(always)]
pub fn decides(thread: &Thread) -> bool {
    applies(thread) && thread.calls() != Mode::Replay
}

/// Whether anybody sleeps: who gives an object back looks for those of whom the object itself says nothing. In a copy it does not.
#[inline(always)]
pub fn somebody_sleeps() -> bool {
    ASLEEP.load(Ordering::Relaxed) != 0
}

/// Runs `act` on the clocks, and rings for whoever is the least then.
pub(super) fn with<T>(own: usize, act: impl FnOnce(&mut Logical<THREADS_MAX>) -> T) -> T {
    let (result, least) = RACE.lock.with(|| {
        // SAFETY: the lock is held.
        let times = unsafe { &mut *RACE.times.get() };
        let result = act(times);
        let least = times.least().map_or(NOBODY, |slot| slot as u32);
        LEAST.store(least, Ordering::Release);
        ASLEEP.store(times.asleep(), Ordering::Relaxed);
        (result, least)
    });
    if least != NOBODY && least as usize != own {
        ring(least as usize);
    }
    result
}

fn ring(slot: usize) {
    let bell = &BELLS[slot];
    if bell.is_awaited.load(Ordering::Acquire) {
        bell.rung.fetch_add(1, Ordering::Release);
        raw::futex_wake(&bell.rung, 1);
    }
}

/// What the segment says of a thread: its place, in two bits, and its clock.
pub(super) mod place {
    pub const GONE: u64 = 0;
    pub const HERE: u64 = 1;
    pub const AWAY: u64 = 2;
    pub const ASLEEP: u64 = 3;
    pub const BITS: u32 = 2;
}

/// Tells whoever takes over where this thread is.
fn note(times: &Logical<THREADS_MAX>, slot: usize) {
    let mut clock = times.clock(slot);
    let place = match times.at(slot) {
        At::Gone => place::GONE,
        At::Here => place::HERE,
        At::Away => place::AWAY,
        // It looks at its time anew.
        At::Asleep { is_timed: true, .. } => {
            clock = times.due(slot);
            place::HERE
        }
        At::Asleep { .. } => place::ASLEEP,
    };
    tell(slot, place, clock);
}

fn tell(slot: usize, place: u64, clock: u64) {
    if state::header().is_some() && !state::is_standby() {
        state::entry(slot as u32).logical.store(clock << place::BITS | place, Ordering::Release);
    }
}

/// Tells whoever takes over where this thread, whose turn it is, will be once the log says that its call has begun. Told behind that,
/// a primary that dies in between would leave the place of a turn that is over.
pub fn announce(thread: &Thread, waits: Waits) {
    let slot = thread.slot() as usize;
    let clock = with(slot, |times| times.clock(slot));
    match waits {
        Waits::ForWorld => tell(slot, place::AWAY, clock),
        Waits::ForNobody => tell(slot, place::HERE, clock.saturating_add(1 + thread.turn.ticks())),
        Waits::For(wait_ns) => tell(slot, place::HERE, clock.saturating_add(ticks(wait_ns))),
    }
}

/// A lone thread is about to make another: from here on there is an order.
pub fn begin(thread: &Thread) {
    let slot = thread.slot() as usize;
    if !state::is_computed() || HAS_BEGUN.load(Ordering::Relaxed) || thread::is_beyond(thread.slot()) {
        return;
    }
    with(slot, |times| {
        times.enter(slot);
        note(times, slot);
    });
    HAS_BEGUN.store(true, Ordering::Release);
}

/// In a forked child: its only thread has no order.
pub fn forget() {
    if HAS_BEGUN.swap(false, Ordering::Relaxed) {
        // SAFETY: this process has one thread.
        unsafe { *RACE.times.get() = Logical::new() };
        digest::forget();
        nobody_has();
    }
}

/// The runtime leaves this process: whoever waits for its turn goes on, and who sleeps looks again.
pub fn stop() {
    state::computes_no_more();
    thread::for_each(|thread| {
        if !thread::is_beyond(thread.slot()) {
            ring(thread.slot() as usize);
        }
    });
}

/// A new log begins, and every thread stands still: each takes its turn anew, in the order of their clocks.
pub fn nobody_has() {
    WATCHER.store(NOBODY, Ordering::Relaxed);
    OWNER.store(NOBODY, Ordering::Relaxed);
}

/// A thread is about to be made, in the turn of its maker.
pub fn enter(maker: &Thread, slot: u32) {
    if applies(maker) && !thread::is_beyond(slot) {
        let slot = slot as usize;
        with(slot, |times| {
            times.enter(slot);
            note(times, slot);
        });
    }
}

/// It could not be made, or it ends, in its turn. Those who wait for its end sleep on `key`.
pub fn exit(by: &Thread, slot: u32, key: u64) {
    if !applies(by) || thread::is_beyond(slot) {
        return;
    }
    let own = slot as usize;
    // While the turn is had: those who are woken come behind it, and not behind whoever has the next one.
    wake(key, 1);
    no_owner(own);
    with(own, |times| {
        times.exit(own);
        note(times, own);
    });
}

/// Whether a thread has not ended in logical time.
pub fn lives(slot: u32) -> bool {
    let slot = slot as usize;
    slot < THREADS_MAX && with(slot, |times| times.at(slot) != At::Gone)
}

/// Whether this thread, which acts, is in the race or sleeps in it: others wait for it, or wake it.
pub fn is_in_race(thread: &Thread) -> bool {
    let slot = thread.slot() as usize;
    decides(thread) && with(slot, |times| matches!(times.at(slot), At::Here | At::Asleep { .. }))
}

fn no_owner(slot: usize) {
    let _ = OWNER.compare_exchange(slot as u32, NOBODY, Ordering::Relaxed, Ordering::Relaxed);
}

/// Gives its turn to the next, and stays in the race behind it.
pub fn let_others(thread: &Thread) {
    tick(thread, 1 + thread.turn.take_ticks());
}

/// By a thread that says how much it has computed: its clock goes on, also in its turn, which it keeps.
pub fn tick_by(thread: &Thread, count: u64) {
    if thread.turn.is_own() {
        thread.turn.add_ticks(count);
    } else {
        tick(thread, count);
    }
}

/// This thread's own clock goes on.
fn tick(thread: &Thread, count: u64) {
    let slot = thread.slot() as usize;
    no_owner(slot);
    with(slot, |times| {
        times.tick(slot, count);
        note(times, slot);
    });
}

/// Gives its turn to the next, and goes where nobody waits for it.
pub fn leave(thread: &Thread) {
    let slot = thread.slot() as usize;
    no_owner(slot);
    with(slot, |times| {
        if !matches!(times.at(slot), At::Gone | At::Asleep { .. }) {
            times.leave(slot);
            note(times, slot);
        }
    });
}

/// Gives its turn to the next, and sleeps until somebody wakes those at this key, or for so many ticks. [`sleep`] is next.
pub fn fall_asleep(thread: &Thread, key: u64, wait: Option<u64>) {
    let slot = thread.slot() as usize;
    no_owner(slot);
    with(slot, |times| {
        times.sleep(slot, key, wait);
        note(times, slot);
    });
}

/// Gives its turn to the next, and sleeps in the kernel for so long: nobody wakes it.
pub fn sleep_in_kernel(thread: &Thread, wait_ns: u64) {
    const NOBODYS: u64 = 1 << 63;
    fall_asleep(thread, NOBODYS | u64::from(thread.slot()) << 2, Some(ticks(wait_ns)));
}

/// In a copy that follows: this thread's turn begins, with the clock that the log has.
pub fn follow(thread: &Thread, clock: u64) {
    let slot = thread.slot() as usize;
    with(slot, |times| times.follow(slot, clock));
    OWNER.store(slot as u32, Ordering::Relaxed);
}

/// Wakes up to `count` of those who sleep at `key`, the first to come first. How many there were.
pub fn wake(key: u64, count: u32) -> u32 {
    if !state::is_computed() || !HAS_BEGUN.load(Ordering::Relaxed) {
        return 0;
    }
    let waker = tls::shared().filter(|thread| thread.turn.is_own());
    let mut woken = 0;
    while woken < count {
        let first = with(THREADS_MAX, |times| {
            let first = times.wake(key);
            first.inspect(|slot| note(times, *slot))
        });
        let Some(slot) = first else { break };
        if waker.is_none() {
            thread::shared(slot as u32).turn.set_placed();
        }
        ring(slot);
        woken += 1;
    }
    if let Some(thread) = waker.filter(|_| woken != 0) {
        thread.turn.add_ticks(WAKES);
    }
    woken
}

/// What this thread sleeps for has come already, by one that has no turns.
pub fn wake_up(thread: &Thread) {
    thread.turn.set_placed();
    come_back(thread.slot() as usize);
}

/// Sleeps, behind [`fall_asleep`] and without the turn. What comes next is to take the turn. With `is_point` a thread that has been
/// cancelled is interrupted.
pub fn sleep(thread: &mut Thread, until: Option<&Until>, is_point: bool) -> End {
    let slot = thread.slot() as usize;
    let bell = &BELLS[slot];
    let end = loop {
        let rung = bell.rung.load(Ordering::Acquire);
        bell.is_awaited.store(true, Ordering::SeqCst);
        if thread.calls() == Mode::Replay {
            break End::Interrupted;
        }
        if !applies(thread) || with(slot, |times| !matches!(times.at(slot), At::Asleep { .. })) {
            break End::Woken;
        }
        if until.is_some_and(|until| until.left_ns() == 0) {
            break End::TimedOut;
        }
        let is_over = is_interrupted(thread, wait(thread, &bell.rung, rung, until));
        if is_over || is_point && above().is_cancelled(thread) {
            if thread.calls() != Mode::Replay {
                come_back(slot);
            }
            break End::Interrupted;
        }
    };
    bell.is_awaited.store(false, Ordering::Relaxed);
    end
}

/// Waits on a bell so that a signal ends it.
fn wait(thread: &Thread, word: &AtomicU32, value: u32, until: Option<&Until>) -> i64 {
    const PRIVATE: u64 = linux_raw_sys::general::FUTEX_PRIVATE_FLAG as u64;
    let clock = if until.is_some_and(|until| until.clock == 0) { FUTEX_CLOCK_REALTIME } else { 0 };
    let time = until.map_or(core::ptr::null(), |until| &raw const until.time);
    let op = FUTEX_WAIT_BITSET | PRIVATE | clock;
    let args = [word.as_ptr() as u64, op, u64::from(value), time as u64, 0, u64::from(u32::MAX)];
    // SAFETY: the word and the time outlive the call; a futex wait changes no memory.
    unsafe { raw::blocking(raw::nr::FUTEX, &args, &thread.pending) }
}

/// Whether what has broken a wait off is the guest's business. If not, the thread has stood still where that was wanted.
fn is_interrupted(thread: &mut Thread, result: i64) -> bool {
    if result != raw::err::EINTR && thread.pending.load(Ordering::Relaxed) == 0 {
        return false;
    }
    above().stand_still(thread);
    // A copy that takes over makes its threads look: whoever sleeps on keeps its place.
    thread.calls() == Mode::Replay || above().is_for_guest(thread)
}

/// Nobody of the threads has woken it.
fn come_back(slot: usize) {
    with(slot, |times| {
        if times.at(slot) != At::Here {
            times.come_back(slot);
            note(times, slot);
        }
    });
}

/// What a thread has found when its turn began.
pub struct Begun {
    /// Somebody else has not given it back, and is passed over.
    pub is_beside: bool,
    /// The thread's clock.
    pub clock: u64,
    /// That is where the world has put it, or a guess.
    pub is_placed: bool,
}

/// Waits until it is this thread's turn. `None`: it has stood still, and follows a log now; or there is another order, or none.
pub fn await_turn(thread: &mut Thread) -> Option<Begun> {
    let slot = thread.slot() as usize;
    let bell = &BELLS[slot];
    let (mut seen, mut since_ns, mut since_cpu_ns) = (Seen::default(), 0, 0);
    let is_away = with(slot, |times| matches!(times.at(slot), At::Away | At::Gone));
    if is_away {
        come_back(slot);
    }
    let mut is_placed = thread.turn.take_placed() || is_away;
    let begun = loop {
        let rung = bell.rung.load(Ordering::Acquire);
        bell.is_awaited.store(true, Ordering::SeqCst);
        if !applies(thread) {
            break None;
        }
        let (begins, at, clock) = with(slot, |times| {
            let begins = times.begin(slot) || times.begin_in_time(slot);
            if begins {
                note(times, slot);
            }
            (begins, times.at(slot), times.clock(slot))
        });
        if begins {
            let owner = OWNER.swap(slot as u32, Ordering::Relaxed);
            let is_beside = owner != NOBODY && owner != slot as u32;
            break Some(Begun { is_beside, clock, is_placed });
        }
        match at {
            At::Asleep { is_timed: false, .. } => {
                // It slept when its primary died. Where it can be cancelled it asks behind its turn; the primary, which was
                // asleep in such a place, has ended without one.
                let is_over = is_interrupted(thread, wait(thread, &bell.rung, rung, None));
                if (is_over || above().is_cancelled(thread)) && thread.calls() != Mode::Replay {
                    is_placed = true;
                    come_back(slot);
                }
                if thread.calls() == Mode::Replay {
                    break None;
                }
                // It looks for nobody: who is asleep would never give that up.
                watches_no_more(slot as u32);
                continue;
            }
            _ => {
                let is_near = || {
                    (0..SPINS).any(|_| {
                        core::hint::spin_loop();
                        LEAST.load(Ordering::Acquire) == slot as u32
                    })
                };
                if !is_near() {
                    let is_watcher = watches(slot as u32);
                    raw::futex_wait(&bell.rung, rung, if is_watcher { LOOK_NS } else { REST_NS });
                }
                above().stand_still_with_others(thread);
            }
        }
        if thread.calls() == Mode::Replay {
            break None;
        }
        if LEAST.load(Ordering::Acquire) == slot as u32 {
            continue;
        }
        let now_ns = raw::now_ns();
        if since_ns == 0 {
            (since_ns, since_cpu_ns) = (now_ns, raw::computed_by_all());
        }
        if matches!(at, At::Asleep { is_timed: true, .. }) && now_ns - since_ns > LATE_NS {
            if raw::computed_by_all() - since_cpu_ns <= LATE_NS
                && starves(tid_of(LEAST.load(Ordering::Relaxed)))
            {
                since_ns = now_ns;
            } else {
                is_placed = true;
                come_back(slot);
                guessed();
            }
        }
        if watches(slot as u32) {
            seen.look(slot, now_ns);
        }
    };
    watches_no_more(slot as u32);
    bell.is_awaited.store(false, Ordering::Relaxed);
    begun
}

/// Whether it is this thread that looks for all who wait: thousands would have no time for anything else.
fn watches(slot: u32) -> bool {
    let taken = WATCHER.compare_exchange(NOBODY, slot, Ordering::Relaxed, Ordering::Relaxed);
    taken.is_ok() || taken == Err(slot)
}

fn watches_no_more(slot: u32) {
    let _ = WATCHER.compare_exchange(slot, NOBODY, Ordering::Relaxed, Ordering::Relaxed);
}

/// The kernel's number of a slot's thread; 0 if it has none.
fn tid_of(slot: u32) -> u32 {
    if slot == NOBODY { 0 } else { thread::shared(slot).kernel_tid() }
}

/// Whether a thread could go on and has no processor: other programs leave it none. How long that takes says nothing of the order.
#[cold]
fn starves(tid: u32) -> bool {
    tid != 0 && with_own_table(|| i64::from(proc::task_state(tid) == Some(b'R'))) == 1
}

/// A thread that others wait for.
#[derive(Default)]
struct Seen {
    slot: usize,
    clock: u64,
    since_ns: u64,
    cpu_ns: u64,
}

impl Seen {
    /// Passes over whoever has been awaited for too long, see [`live_turns::is_too_long`].
    fn look(&mut self, own: usize, now_ns: u64) {
        let awaited = with(own, |times| times.least().map(|slot| (slot, times.clock(slot), times.at(slot))));
        let Some((slot, clock, at)) = awaited else { return };
        if slot == own || at != At::Here || BELLS[slot].is_awaited.load(Ordering::Relaxed) {
            self.since_ns = 0;
            return;
        }
        let tid = tid_of(slot as u32);
        let cpu_ns = if tid == 0 { 0 } else { raw::computed_ns(tid) };
        if self.since_ns == 0 || (slot, clock) != (self.slot, self.clock) {
            *self = Seen { slot, clock, since_ns: now_ns, cpu_ns };
            return;
        }
        let computed_ns = cpu_ns.saturating_sub(self.cpu_ns);
        if live_turns::is_too_long(computed_ns, now_ns - self.since_ns) {
            if !live_turns::computes_too_long(computed_ns) && starves(tid) {
                self.since_ns = now_ns;
                return;
            }
            let is_passed = with(own, |times| {
                let is_same =
                    times.least() == Some(slot) && times.clock(slot) == clock && times.at(slot) == At::Here;
                if is_same {
                    times.leave(slot);
                    note(times, slot);
                }
                is_same
            });
            if is_passed {
                guessed();
            }
        }
    }
}

/// The order was not computed here, but guessed by time.
#[cold]
fn guessed() {
    if let Some(header) = state::header() {
        header.guessed.fetch_add(1, Ordering::Relaxed);
    }
}
