//! Turns between a primary and its standby. The word that hands the turn on is this process's own, as the clocks are: a
//! fork copies it, and processes that share memory have no order between them.
//!
//! Only a process with several threads takes turns, and only while there is a log. Nobody waits for a turn while threads
//! are parked for a clone: there is no log then. All begin to take turns where they go on from there.

use core::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};

use us_abi::event::EventKind;
use us_abi::{BELLS, CONFIG_AUTO, CONFIG_SERIAL, Cause, SegmentHeader, TurnBell, TurnOrder};
use us_order::turns::{SHORT_LIFE_NS, Turns};

use super::turns::{FREE, TAKEN, WANTED};
use crate::clone::park;
use crate::raw::Timespec;
use crate::standby::poll;
use crate::sys::gate::Call;
use crate::thread::{Mode, Thread};
use crate::{drop_standby, family, give_up_log, raw, report_divergence, state};

/// Between two looks at who has the turn, ns.
const LOOK_NS: u64 = 5_000_000;
/// Processor time that a thread may use up in one turn where processes take turns: what they share they may change at each
/// other's side, and no standby could repeat it. They have doors where they wait for each other, so it is rarely needed.
const FAMILY_COMPUTES_NS: u64 = 1_000_000_000;
/// Turns of a family's that were passed over, after which it is let go: one at a time its threads do not come on.
const FORCED_MAX: u32 = 20;
/// Standbys in a row that have diverged soon, and memory that processes share is followed however small it is.
const FAMILY_RACES: u32 = 4;

/// Nobody has the turn.
const NOBODY: u64 = 0;
/// Somebody is about to say which turn it has.
const SOMEBODY: u64 = u64::MAX;

/// The turns of this process by itself.
static OWN: TurnOrder = TurnOrder::new();

/// The turns that this process takes: its own, or its family's.
#[inline(always)]
fn order() -> &'static TurnOrder {
    family::order().unwrap_or(&OWN)
}

/// What this process knows of its races.
static TURNS: Turns = Turns::new();
/// Standbys that have diverged soon.
static DIVERGED: AtomicU32 = AtomicU32::new(0);
/// When the last standby was made, CLOCK_MONOTONIC ns; 0 for never.
static MADE_NS: AtomicU64 = AtomicU64::new(0);

/// Before a fork for a new standby: whether its threads are to take turns. A program whose standbys diverge has races that
/// no lock orders.
pub fn decide(header: &SegmentHeader) {
    if family::is_member() {
        state::take_turns(true);
        return header.turns.store(1, Ordering::Release);
    }
    let now_ns = raw::now_ns();
    let lived_ns = now_ns - MADE_NS.swap(now_ns, Ordering::Relaxed);
    if header.config.flags & (CONFIG_AUTO | CONFIG_SERIAL) != 0 && !state::is_recorded() {
        if header.why.0.code.load(Ordering::Acquire) == Cause::Diverged as u32 {
            let was_passed_over = OWN.forced.load(Ordering::Relaxed) != 0;
            TURNS.diverged(now_ns, lived_ns, state::takes_live_turns(), was_passed_over);
            if lived_ns < SHORT_LIFE_NS && DIVERGED.fetch_add(1, Ordering::Relaxed) + 1 == FAMILY_RACES {
                family::may_be_small();
            }
        }
        let is_asked_for = header.config.flags & CONFIG_SERIAL != 0;
        state::take_turns(TURNS.are_taken(now_ns, is_asked_for));
    }
    header.turns.store(u32::from(state::takes_live_turns()), Ordering::Release);
}

/// The program has made `bytes` more of executable memory. Behind a compiler's threads take turns from the beginning.
pub fn made_code(thread: &Thread, bytes: u64) {
    let is_new = TURNS.made_code(bytes);
    let Some(header) = by_itself().filter(|_| is_new) else { return };
    if thread.locks() == Mode::Solo && thread.calls() != Mode::Solo && header.config.standbys == 1 {
        // Before the first other thread there is no order yet, and every copy comes by here.
        state::take_turns(true);
        header.turns.store(1, Ordering::Release);
    } else {
        begin_anew(thread, b"the program makes code as it runs: from here on its threads take turns");
    }
}

/// A thread waits by a futex call of the program's own, and takes no turns. Behind locks that no door sees they are taken from
/// the beginning.
pub fn waits_by_itself(thread: &Thread) {
    if TURNS.own_wait() && by_itself().is_some() {
        begin_anew(thread, b"the program has locks of its own: from here on its threads take turns");
    }
}

/// The segment of a process that takes no turns, and would without being asked for it.
fn by_itself() -> Option<&'static SegmentHeader> {
    let may = |header: &&SegmentHeader| header.config.flags & CONFIG_AUTO != 0 && header.config.standbys != 0;
    state::header().filter(may).filter(|_| !state::is_serial() && !state::is_recorded())
}

/// As a primary: the next standby, in turns, comes at once.
fn begin_anew(thread: &Thread, why: &[u8]) {
    if thread.calls() == Mode::Record && !family::is_member() {
        drop_standby(Cause::CannotReplay, &[why]);
    }
}

/// A standby besides the heir is about to be made: its life counts from now on.
pub fn copy_is_made() {
    MADE_NS.store(raw::now_ns(), Ordering::Relaxed);
}

/// A first standby is about to be made, with the program's beginning.
pub fn standby_is_made(header: &SegmentHeader) {
    copy_is_made();
    header.turns.store(u32::from(state::takes_live_turns()), Ordering::Release);
}

/// A new log begins, and every thread stands still.
pub fn reset() {
    if family::is_member() {
        // Its turns began with it.
        return;
    }
    OWN.reset();
    WAITING.store(0, Ordering::Relaxed);
}

/// There is no log any more: whoever waits for a turn goes on without.
pub fn nobody_waits() {
    raw::futex_wake(&OWN.word.0, u32::MAX >> 1);
}

/// Whether this thread takes turns.
#[inline(always)]
pub fn applies(thread: &Thread) -> bool {
    thread.locks() != Mode::Solo || family::is_member()
}

/// Takes the turn.
pub fn take(thread: &mut Thread) {
    if thread.has_turn || !applies(thread) {
        return;
    }
    match thread.calls() {
        Mode::Solo => {}
        Mode::Record if family::goes_on() => acquire(thread),
        Mode::Record => {}
        Mode::Replay => follow(thread),
    }
}

fn acquire(thread: &mut Thread) {
    let order = order();
    let Some(waited_ns) = lock(thread, order) else {
        // It has stood still here: in the copy that was made of it meanwhile the log says when it goes on.
        return take(thread);
    };
    let number = order.next.load(Ordering::Relaxed);
    let holder =
        if family::is_member() { state::REAL_PID.load(Ordering::Relaxed) } else { thread.kernel_tid() };
    order.holder.store(holder, Ordering::Relaxed);
    family::note_taker(number);
    order.next.store(number + 1, Ordering::Release);
    order.had.store(number + 1, Ordering::Release);
    thread.turn = number;
    if thread.calls() != Mode::Record {
        // The log has been given up meanwhile, and with it the order.
        return release(order, number);
    }
    thread.has_turn = true;
    thread.push(EventKind::Turn, u8::from(waited_ns.is_some()), 0, number);
    let Some(waited_ns) = waited_ns else { return };
    let times = order.forced.fetch_add(1, Ordering::Relaxed) + 1;
    let is_too_much =
        if family::is_member() { times >= FORCED_MAX } else { TURNS.passed_over(raw::now_ns(), waited_ns) };
    if is_too_much {
        state::take_turns(false);
        if let Some(header) = state::header() {
            header.turns.store(0, Ordering::Release);
        }
        give_up_log(Cause::CannotReplay, &[b"threads that take turns wait for each other without a door"]);
    }
}

/// Waits for the word. If somebody who has it is passed over, how long that was waited for, ns; `None` if there is no log any more.
fn lock(thread: &mut Thread, order: &TurnOrder) -> Option<Option<u64>> {
    let word = &order.word.0;
    if word.compare_exchange(FREE, TAKEN, Ordering::AcqRel, Ordering::Relaxed).is_ok() {
        return Some(None);
    }
    let mut seen = Seen { had: NOBODY, since_ns: 0, cpu_ns: 0 };
    while word.swap(WANTED, Ordering::AcqRel) != FREE {
        sleep(word, WANTED, LOOK_NS);
        if park::is_wanted() {
            // A planned failover: this is a place where nothing has begun.
            park::at_door(thread);
        }
        if !family::goes_on() || thread.calls() != Mode::Record {
            return None;
        }
        if seen.is_too_long(order)
            && order.had.compare_exchange(seen.had, SOMEBODY, Ordering::AcqRel, Ordering::Relaxed).is_ok()
        {
            return Some(Some(raw::now_ns() - seen.since_ns));
        }
    }
    order.had.store(SOMEBODY, Ordering::Relaxed);
    Some(None)
}

/// A turn that another thread waits for the end of.
struct Seen {
    had: u64,
    since_ns: u64,
    cpu_ns: u64,
}

impl Seen {
    fn is_too_long(&mut self, order: &TurnOrder) -> bool {
        let had = order.had.load(Ordering::Acquire);
        if had == NOBODY || had == SOMEBODY {
            self.had = NOBODY;
            return false;
        }
        let holder = order.holder.load(Ordering::Relaxed);
        let cpu_ns = if family::is_member() { raw::computed_by(holder) } else { raw::computed_ns(holder) };
        let now_ns = raw::now_ns();
        if had != self.had {
            *self = Seen { had, since_ns: now_ns, cpu_ns };
            return false;
        }
        let (cpu_ns, clock_ns) = (cpu_ns.saturating_sub(self.cpu_ns), now_ns - self.since_ns);
        if family::is_member() {
            return cpu_ns > FAMILY_COMPUTES_NS || clock_ns > 4 * FAMILY_COMPUTES_NS;
        }
        TURNS.is_too_long(cpu_ns, clock_ns)
    }
}

fn release(order: &TurnOrder, number: u64) {
    // Another one may have it by now, at this one's side.
    if order.had.compare_exchange(number + 1, NOBODY, Ordering::AcqRel, Ordering::Relaxed).is_ok()
        && order.word.0.swap(FREE, Ordering::AcqRel) == WANTED
    {
        if family::is_member() {
            raw::futex_wake_one_shared(&order.word.0);
        } else {
            raw::futex_wake(&order.word.0, 1);
        }
    }
}

/// Gives the turn back.
pub fn give(thread: &Thread) {
    if thread.calls() != Mode::Replay {
        return release(order(), thread.turn);
    }
    let order = order();
    order.ended.fetch_max(thread.turn + 1, Ordering::SeqCst);
    ring(thread.turn + 1);
    family::kick(order.ended.load(Ordering::SeqCst));
}

fn bell(number: u64) -> &'static TurnBell {
    &order().bells[number as usize % BELLS]
}

/// Sleeps on a word of an order.
fn sleep(word: &AtomicU32, value: u32, limit_ns: u64) {
    Local::new(word, value, family::is_member()).sleep(limit_ns);
}

fn ring(number: u64) {
    fence(Ordering::SeqCst);
    let bell = bell(number);
    if bell.sleepers.load(Ordering::SeqCst) != 0 {
        bell.rung.fetch_add(1, Ordering::SeqCst);
        if family::is_member() {
            raw::futex_wake_shared(&bell.rung);
        } else {
            raw::futex_wake(&bell.rung, u32::MAX >> 1);
        }
    }
}

/// By the log, as a standby.
fn follow(thread: &mut Thread) {
    let header = loop {
        match thread.peek() {
            Some(header) if header.kind == EventKind::Turn as u8 => break header,
            Some(other) => {
                let number = state::Decimal::new;
                let (kind, call) = (number(u64::from(other.kind)), number(u64::from(other.call)));
                let what: [&[u8]; 4] = [
                    b"the standby waits for its turn, the log says kind ",
                    kind.bytes(),
                    b" call ",
                    call.bytes(),
                ];
                report_divergence(thread, &what)
            }
            None => thread.wait_more(),
        }
        if thread.calls() != Mode::Replay {
            // Live, and nobody logs.
            return;
        }
    };
    // The event stays in the ring until then: who promotes this copy must not take it for applied.
    await_turn(header.ticket, header.flags != 0);
    thread.take_front(&header);
    thread.turn = header.ticket;
    thread.has_turn = true;
    order().begun.fetch_max(header.ticket + 1, Ordering::SeqCst);
    ring(header.ticket + 1);
}

/// Of a futex call's second argument: what it does.
const COMMAND: u64 = 127;

/// A wait of a standby's thread on memory of its own.
pub struct Local<'a> {
    word: &'a AtomicU32,
    value: u32,
    shared: bool,
    /// A clock's number, and its time at which the wait ends.
    deadline: Option<(u64, Timespec)>,
}

impl<'a> Local<'a> {
    /// One without a deadline.
    pub fn new(word: &'a AtomicU32, value: u32, shared: bool) -> Local<'a> {
        Local { word, value, shared, deadline: None }
    }

    /// That of a call; a lock of libc's knows absolute times only.
    pub fn of(call: &Call) -> Local<'a> {
        const PRIVATE: u64 = 128;
        const CLOCK_REALTIME: u64 = 256;
        let clock = u64::from(call.args[1] & CLOCK_REALTIME == 0);
        let time = call.args[3] as *const Timespec;
        // SAFETY: libc's own word, and its own time or null.
        let (word, time) = unsafe { (&*(call.args[0] as *const AtomicU32), time.as_ref()) };
        const WAIT_BITSET: u64 = 9;
        let is_absolute = call.args[1] & COMMAND == WAIT_BITSET;
        let deadline = time.filter(|_| is_absolute).map(|time| (clock, *time));
        Local { word, value: call.args[2] as u32, shared: call.args[1] & PRIVATE == 0, deadline }
    }

    /// Whether a call is one.
    pub fn is_one(call: &Call) -> bool {
        const WAITS: [u64; 5] = [0, 6, 9, 11, 13]; // WAIT, LOCK_PI, WAIT_BITSET, WAIT_REQUEUE_PI, LOCK_PI2
        WAITS.contains(&(call.args[1] & COMMAND))
    }

    fn sleep(&self, limit_ns: u64) {
        match self.shared {
            true => raw::futex_wait_shared(self.word, self.value, limit_ns),
            false => raw::futex_wait(self.word, self.value, limit_ns),
        };
    }

    fn is_over(&self) -> bool {
        self.deadline.is_some_and(|(clock, end)| {
            let mut now = Timespec::default();
            // SAFETY: the kernel writes one timespec.
            unsafe { raw::call2(raw::nr::CLOCK_GETTIME, clock, &raw mut now as u64) };
            (now.sec, now.nsec) >= (end.sec, end.nsec)
        })
    }
}

/// The wait itself, as the kernel would answer it. The primary's thread has waited as well, and given its turn to whoever ends
/// the wait: the log says so with a *Yield*. To wait here until that comes would be to wait for a thread that needs the turn.
pub fn wait_by_log(thread: &mut Thread, local: &Local) -> i64 {
    const SLICE_NS: u64 = 1_000_000;
    while thread.calls() == Mode::Replay && local.word.load(Ordering::Acquire) == local.value {
        let next = thread.peek();
        // The clock has gone on since the primary looked at it; but a wait that follows has a *Yield* of its own.
        let answer = if local.is_over() { raw::err::ETIMEDOUT } else { raw::err::EAGAIN };
        match next {
            Some(next) if next.kind == EventKind::Yield as u8 => {
                super::turns::follow_pause(thread);
                return if local.is_over() { raw::err::ETIMEDOUT } else { answer };
            }
            // It stood still in this wait, and its primary's has ended. Whom a wake here meets is another matter: the thread
            // whose turn it is must not wait for one that was woken in its place.
            Some(next) if next.kind == EventKind::Turn as u8 && !thread.has_turn => return answer,
            Some(_) if answer == raw::err::ETIMEDOUT => return answer,
            Some(_) => local.sleep(SLICE_NS),
            // Its primary has died in the wait, and nobody may come to change the word.
            None if state::LIVE.load(Ordering::Acquire) => thread.wait_more(),
            None => thread.stand_while(|| local.sleep(SLICE_NS)),
        }
    }
    raw::err::EAGAIN
}

fn await_turn(number: u64, forced: bool) {
    let order = order();
    let is_due = || {
        order.ended.load(Ordering::SeqCst) >= number
            || (forced && order.begun.load(Ordering::SeqCst) >= number)
    };
    for _ in 0..64 {
        if is_due() {
            return;
        }
        core::hint::spin_loop();
    }
    let bell = bell(number);
    bell.sleepers.fetch_add(1, Ordering::SeqCst);
    WAITING.fetch_add(1, Ordering::SeqCst);
    // Whoever has it may sleep on an event that has come meanwhile.
    poll::wake_sleepers();
    family::kick(order.ended.load(Ordering::SeqCst));
    loop {
        let rung = bell.rung.load(Ordering::SeqCst);
        if is_due() {
            break;
        }
        // In a family the copy that is awaited may be gone.
        sleep(&bell.rung, rung, if family::is_member() { LOOK_NS } else { 0 });
    }
    WAITING.fetch_sub(1, Ordering::SeqCst);
    bell.sleepers.fetch_sub(1, Ordering::SeqCst);
}

/// Threads of this standby that wait for a turn.
static WAITING: AtomicU32 = AtomicU32::new(0);

/// Whether what this standby stands still for is another process's: a turn of its family. How far that is.
pub fn awaited_of_family() -> Option<u64> {
    let is_awaited = family::is_member() && WAITING.load(Ordering::SeqCst) != 0;
    is_awaited.then(|| order().ended.load(Ordering::SeqCst))
}
