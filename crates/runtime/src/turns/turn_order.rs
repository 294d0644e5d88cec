//! The order in which threads have the turn: one word that hands it on, and a number for each turn.
//!
//! There is one order at a time, of one scope: the threads of one process beside its standby, the processes of a family, or
//! all processes of a recording. In a primary, or a program that is recorded, taking a turn is an event with its number; a
//! standby, or a replay, waits until the turns before that number have ended.

use core::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};

use us_abi::event::EventKind;
use us_abi::{BELLS, Cause, TurnBell, TurnOrder};
use us_order::digest::Decided;
use us_order::turns::{self, Behind, GONE_NS, Passed, RECORDED_WAITS_NS, SHARED_COMPUTES_NS};

use crate::above::above;
use crate::members::{self, of_family};
use crate::sys::milestones;
use crate::sys::own_table::with_own_table;
use crate::thread::{Mode, Thread, own_turns};
use crate::turns::live_turns::{self, Local};
use crate::turns::{digest, logical, restore};
use crate::verdict::{give_up_log, report_divergence};
use crate::{family, proc, raw, state};

/// Nobody has the turn.
const FREE: u32 = 0;
/// Somebody has it.
const TAKEN: u32 = 1;
/// The same, and others wait for it.
const WANTED: u32 = 2;

/// Between two looks at who has the turn, ns.
const LOOK_NS: u64 = 5_000_000;
/// The same in a recording, where nobody waits for the end, and many may look.
const RECORDING_LOOK_NS: u64 = 100_000_000;
/// Processor time behind which a milestone is looked for on the way of a thread that others wait for, ns: it is about to be passed over.
/// Each milestone costs a standby, so one that comes to a door before is left alone.
const LOOKED_FOR_NS: u64 = us_order::turns::COMPUTES_NS / 2;
/// Turns of a family's that were passed over, after which it is let go: one at a time its threads do not come on.
const FORCED_MAX: u32 = 20;

/// Nobody has the turn.
const NOBODY: u64 = 0;
/// Somebody is about to say which turn it has.
const SOMEBODY: u64 = u64::MAX;

/// Of an event: the turn was taken at the side of the one that has the turn before it.
const PASSED_OVER: u8 = 1;

/// Whose turns they are.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Scope {
    /// Of the threads of this process, beside its standby. A fork copies the order, as it does the clocks.
    Process,
    /// Of processes that share memory, beside their standbys.
    Family,
    /// Of all processes of a recording, or of its replay.
    Recording,
}

impl Scope {
    #[inline(always)]
    fn of_this_process() -> Scope {
        if !state::takes_live_turns() {
            Scope::Recording
        } else if of_family::is_member() {
            Scope::Family
        } else {
            Scope::Process
        }
    }

    fn is_shared(self) -> bool {
        self != Scope::Process
    }

    fn order(self) -> Option<&'static TurnOrder> {
        match self {
            Scope::Process => Some(&own_turns::OWN),
            Scope::Family => of_family::order(),
            Scope::Recording => members::header().map(|roster| &roster.order),
        }
    }
}

/// Whether the turns are those of the threads of this process, beside its standby.
pub fn is_of_process() -> bool {
    state::takes_live_turns() && Scope::of_this_process() == Scope::Process
}

/// Scope and order of the turns that this process takes.
#[inline(always)]
fn current() -> Option<(Scope, &'static TurnOrder)> {
    let scope = Scope::of_this_process();
    scope.order().map(|order| (scope, order))
}

/// A new log begins, and every thread stands still.
pub fn reset() {
    if of_family::is_member() {
        // Its turns began with it.
        return;
    }
    own_turns::OWN.reset();
    logical::nobody_has();
    URGED.store(NOBODY, Ordering::Relaxed);
    WAITING.store(0, Ordering::Relaxed);
}

/// In a copy that has just been made beside others, and whose only thread this is: the log goes on, and so do its turns. Those
/// that have been taken have begun, and all have ended but the last, if a thread stands still that has it.
pub fn join() {
    join_at(&own_turns::OWN);
}

/// The same in a replay that begins in the middle of a recording: how many turns have been taken the supervisor has said.
pub fn join_recording() {
    if let Some((_, order)) = current().filter(|_| state::is_serial()) {
        join_at(order);
    }
}

fn join_at(order: &TurnOrder) {
    let next = order.next.load(Ordering::Relaxed);
    order.begun.store(next, Ordering::Relaxed);
    order.ended.store(next - u64::from(last_taker(next).is_some()), Ordering::Relaxed);
    order.bells.iter().for_each(|bell| bell.sleepers.store(0, Ordering::Relaxed));
    WAITING.store(0, Ordering::Relaxed);
}

/// At a promotion, before anybody is live: everything is applied, so the turns that have begun here are all that there have
/// been. Whoever has the last one goes on with it.
pub fn take_over() {
    if !state::takes_live_turns() || of_family::is_member() {
        return;
    }
    let order = &own_turns::OWN;
    let next = order.begun.load(Ordering::SeqCst);
    let (word, had, holder) = match last_taker(next) {
        Some(tid) => (TAKEN, next, tid),
        None => (FREE, NOBODY, 0),
    };
    restore::restore();
    order.next.store(next, Ordering::Relaxed);
    order.holder.store(holder, Ordering::Relaxed);
    order.had.store(had, Ordering::Relaxed);
    order.word.0.store(word, Ordering::Release);
    fence(Ordering::SeqCst);
    if had != NOBODY && last_taker(next).is_none() {
        // Given back meanwhile, where the log says nothing of it.
        release(Scope::Process, order, had - 1);
    }
}

/// The kernel's number of the thread that has the turn before `next`, `None` if that was given back.
fn last_taker(next: u64) -> Option<u32> {
    let mut taker = None;
    crate::thread::for_each(|thread| {
        if thread.has_ring() && thread.turn.is_own() && turns::after(thread.turn.number()) == next {
            taker = Some(thread.kernel_tid());
        }
    });
    taker
}

/// Whether one of this process's turns has been taken at another one's side since the log began.
pub fn was_passed_over() -> bool {
    own_turns::OWN.forced.load(Ordering::Relaxed) != 0
}

/// Whether somebody waits for the turn where processes take turns.
pub fn is_wanted() -> bool {
    current()
        .is_some_and(|(scope, order)| scope.is_shared() && order.word.0.load(Ordering::Relaxed) == WANTED)
}

/// Takes the turn.
pub fn take(thread: &mut Thread) {
    // Again where it has stood still meanwhile, and is in another mode.
    while !thread.turn.is_own() && crate::turns::applies(thread) {
        let Some((scope, order)) = current() else { return };
        let is_done = match thread.calls() {
            Mode::Solo => !logical::applies(thread) || acquire(thread, scope, order),
            Mode::Record => scope != Scope::Recording && !family::goes_on() || acquire(thread, scope, order),
            Mode::Replay => follow(thread, scope, order),
        };
        if is_done {
            return;
        }
    }
}

/// Gives it back.
pub fn give(thread: &Thread) {
    let Some((scope, order)) = current() else { return };
    if thread.calls() != Mode::Replay {
        return release(scope, order, thread.turn.number());
    }
    // One that was passed over comes behind those that have ended since.
    order.ended.fetch_max(turns::after(thread.turn.number()), Ordering::SeqCst);
    ring(scope, order, turns::after(thread.turn.number()));
    of_family::kick(order.ended.load(Ordering::SeqCst));
    if scope == Scope::Process {
        // Others may be live already, and wait for it: see `take_over`.
        fence(Ordering::SeqCst);
        release(scope, order, thread.turn.number());
    }
}

// ---- By those who write the log ----

/// How a turn was come by.
enum Taken {
    /// It was given back before.
    Free,
    /// Whoever had it is gone.
    Left,
    /// At the side of one who computes, or spins, and was waited for so long, ns.
    PassedOver(u64),
}

/// False if the thread has stood still instead: in the copy that was made of it meanwhile the log says when it goes on.
fn acquire(thread: &mut Thread, scope: Scope, order: &TurnOrder) -> bool {
    let mut decided = None;
    let taken = if logical::applies(thread) {
        lock_in_time(thread, order).map(|(taken, turn)| {
            decided = Some(turn);
            taken
        })
    } else {
        lock(thread, scope, order)
    };
    let Some(taken) = taken else { return false };
    let number = order.next.load(Ordering::Relaxed);
    let own = if scope.is_shared() { state::REAL_PID.load(Ordering::Relaxed) } else { thread.kernel_tid() };
    order.holder.store(own, Ordering::Relaxed);
    of_family::note_taker(number);
    order.next.store(number + 1, Ordering::Release);
    order.had.store(number + 1, Ordering::Release);
    thread.turn.set_number(number);
    if let Some(turn) = decided {
        thread.turn.begin_at(turn.clock);
        digest::add(turn);
    }
    if thread.calls() == Mode::Solo && logical::applies(thread) {
        // There is no log, and the order is the same.
        thread.turn.set_own(true);
        return true;
    }
    if thread.calls() != Mode::Record {
        // The log has been given up meanwhile, and with it the order.
        release(scope, order, number);
        return true;
    }
    thread.turn.set_own(true);
    let flags = if matches!(taken, Taken::PassedOver(_)) { PASSED_OVER } else { 0 };
    match decided {
        Some(turn) => {
            thread.append(EventKind::Turn, flags, 0, number, &[turn.clock, u64::from(turn.is_placed)]);
        }
        None => thread.push(EventKind::Turn, flags, 0, number),
    }
    let Taken::PassedOver(waited_ns) = taken else { return true };
    if logical::applies(thread) {
        return true;
    }
    let times = order.forced.fetch_add(1, Ordering::Relaxed) + 1;
    let is_too_much = match scope {
        Scope::Process => live_turns::passed_over(waited_ns),
        Scope::Family => times >= FORCED_MAX,
        // It has no standby to lose.
        Scope::Recording => false,
    };
    if is_too_much {
        state::take_turns(false);
        if let Some(header) = state::header() {
            header.turns.store(0, Ordering::Release);
        }
        give_up_log(Cause::CannotReplay, &[b"threads that take turns wait for each other without a door"]);
    }
    true
}

/// The same where the order is computed.
fn lock_in_time(thread: &mut Thread, order: &TurnOrder) -> Option<(Taken, Decided)> {
    let door = thread.turn.door();
    let begun = logical::await_turn(thread)?;
    order.had.store(SOMEBODY, Ordering::Relaxed);
    thread.turn.set_out(false);
    let taken = if begun.is_beside { Taken::PassedOver(0) } else { Taken::Free };
    Some((taken, decided(thread, door, begun.clock, begun.is_placed)))
}

/// Of a thread's turn: what counts in the digest of the order.
fn decided(thread: &Thread, door: u16, clock: u64, is_placed: bool) -> Decided {
    Decided { slot: thread.slot() as u16, door, clock, is_placed }
}

/// The turn of this process's that others have waited for through a whole look: [`TurnOrder::had`] of it.
static URGED: AtomicU64 = AtomicU64::new(NOBODY);

/// Whether others wait for this thread's turn, and have for a while. It need not compute to the end: at a door it can give it
/// back, before one of them takes its own at this one's side.
#[inline(always)]
pub fn is_urged(thread: &Thread) -> bool {
    URGED.load(Ordering::Relaxed) == thread.turn.number() + 1
}

/// Waits for the word; `None` if there is no log any more.
fn lock(thread: &mut Thread, scope: Scope, order: &TurnOrder) -> Option<Taken> {
    let word = &order.word.0;
    if word.compare_exchange(FREE, TAKEN, Ordering::AcqRel, Ordering::Relaxed).is_ok() {
        return Some(Taken::Free);
    }
    let mut seen = Seen::default();
    let look_ns = if scope == Scope::Recording { RECORDING_LOOK_NS } else { LOOK_NS };
    while word.swap(WANTED, Ordering::AcqRel) != FREE {
        sleep(scope, word, WANTED, look_ns);
        // A planned failover: this is a place where nothing has begun.
        above().stand_still_with_others(thread);
        if scope != Scope::Recording && !family::goes_on() || thread.calls() != Mode::Record {
            return None;
        }
        let passed = seen.look(thread, scope, order);
        if passed == Passed::No && scope == Scope::Process && seen.is_old() {
            URGED.store(seen.had, Ordering::Relaxed);
            if seen.used_ns > LOOKED_FOR_NS
                && !logical::applies(thread)
                && live_turns::is_to_reach_milestone(thread, seen.holder)
                && thread.calls() != Mode::Record
            {
                return None;
            }
        }
        if passed != Passed::No
            && order.had.compare_exchange(seen.had, SOMEBODY, Ordering::AcqRel, Ordering::Relaxed).is_ok()
        {
            return Some(match passed {
                // What was waited for a milestone beyond that is none of the turn's.
                Passed::Over => Taken::PassedOver(seen.over_ns - seen.since_ns),
                _ => Taken::Left,
            });
        }
    }
    order.had.store(SOMEBODY, Ordering::Relaxed);
    Some(Taken::Free)
}

/// A turn that another thread waits for the end of.
#[derive(Default)]
struct Seen {
    had: u64,
    next: u64,
    since_ns: u64,
    cpu_ns: u64,
    /// Processor time that it has used since then, ns, and who it is.
    used_ns: u64,
    holder: u32,
    /// Milestones that there were: with another one it may come to that next. Once, whatever comes behind it.
    made: usize,
    has_another: bool,
    /// Since when it is too long.
    over_ns: u64,
}

impl Seen {
    /// Whether it is not the first look at this turn.
    fn is_old(&self) -> bool {
        self.had != NOBODY && raw::now_ns() - self.since_ns >= LOOK_NS
    }

    /// Whether whoever has the turn is passed over.
    fn look(&mut self, thread: &Thread, scope: Scope, order: &TurnOrder) -> Passed {
        let had = order.had.load(Ordering::Acquire);
        // Of a family the supervisor tells who has died, and a thread dies with its process. In a recording one may be killed
        // between any two instructions.
        if (had == NOBODY || had == SOMEBODY) && scope != Scope::Recording {
            self.had = NOBODY;
            return Passed::No;
        }
        let holder = order.holder.load(Ordering::Relaxed);
        let cpu_ns = if scope.is_shared() { raw::computed_by(holder) } else { raw::computed_ns(holder) };
        let (now_ns, next) = (raw::now_ns(), order.next.load(Ordering::Relaxed));
        let made = milestones::made();
        let is_new = self.since_ns == 0 || had != self.had || next != self.next;
        if is_new || made != self.made && !self.has_another {
            let has_another = !is_new;
            *self = Seen {
                had,
                next,
                since_ns: now_ns,
                cpu_ns,
                used_ns: 0,
                holder,
                made,
                has_another,
                over_ns: 0,
            };
            return Passed::No;
        }
        let (cpu_ns, clock_ns) = (cpu_ns.saturating_sub(self.cpu_ns), now_ns - self.since_ns);
        self.used_ns = cpu_ns;
        let is_over = match scope {
            Scope::Process => live_turns::is_too_long(cpu_ns, clock_ns),
            Scope::Family => cpu_ns > SHARED_COMPUTES_NS || clock_ns > 4 * SHARED_COMPUTES_NS,
            Scope::Recording => {
                // Who has just taken it may not have put down its name, and who had it before may have ended.
                if clock_ns > GONE_NS && has_ended(holder) {
                    return Passed::Gone;
                }
                cpu_ns > SHARED_COMPUTES_NS || clock_ns > RECORDED_WAITS_NS
            }
        };
        if is_over && self.over_ns == 0 {
            self.over_ns = now_ns;
        }
        let is_awaited = scope == Scope::Process
            && is_over
            && live_turns::is_on_its_way(thread, cpu_ns, now_ns - self.over_ns);
        if is_over && !is_awaited { Passed::Over } else { Passed::No }
    }
}

fn release(scope: Scope, order: &TurnOrder, number: u64) {
    // Another one may have it by now, at this one's side.
    if order.had.compare_exchange(number + 1, NOBODY, Ordering::AcqRel, Ordering::Relaxed).is_ok()
        && order.word.0.swap(FREE, Ordering::AcqRel) == WANTED
    {
        if scope.is_shared() {
            raw::futex_wake_one_shared(&order.word.0);
        } else {
            raw::futex_wake(&order.word.0, 1);
        }
    }
}

// ---- By those who read it ----

/// By the log. False if this copy is live instead: where somebody follows it takes the next like any other.
fn follow(thread: &mut Thread, scope: Scope, order: &'static TurnOrder) -> bool {
    // Before a handler that runs on the way has come to others.
    let door = thread.turn.door();
    let header = loop {
        let is_in_doubt = thread.doubt.is_open();
        match thread.peek() {
            Some(header) if header.kind == EventKind::Turn as u8 => break header,
            // Its primary has had it before the door, where it runs in no turn.
            Some(header) if state::is_parallel() && header.kind == EventKind::Signal as u8 => {
                thread.take_signal();
            }
            // Its primary died while it waited here, in a call that whoever took over makes again. Of one that has taken over in
            // turn this copy may know it already.
            Some(header) if header.kind == EventKind::Again as u8 => {
                if thread.doubt.is_open() {
                    thread.doubt.set_open(false);
                    thread.begun_mut().was_entered = header.flags != 0;
                    thread.turn.set_begins_again();
                }
                thread.take_front(&header);
            }
            Some(other) => {
                let number = state::Decimal::new;
                let (kind, call) = (number(u64::from(other.kind)), number(u64::from(other.call)));
                let what: [&[u8]; 4] = [
                    b"a thread waits for its turn, the log says kind ",
                    kind.bytes(),
                    b" call ",
                    call.bytes(),
                ];
                report_divergence(thread, &what)
            }
            None => thread.wait_more(),
        }
        if thread.calls() != Mode::Replay {
            if is_in_doubt {
                // Where a copy is made of it before it has the turn, that is to know what follows.
                thread.turn.set_begins_again();
            }
            return false;
        }
    };
    // The event stays in the ring until then: who promotes this copy must not take it for applied.
    await_turn(scope, order, header.ticket, header.flags & PASSED_OVER != 0);
    let [clock, placed] = thread.front_words(&header);
    thread.turn.set_number(header.ticket);
    thread.turn.set_own(true);
    if logical::applies(thread) {
        thread.turn.set_out(false);
        // What has put this copy's thread back says nothing of its primary's.
        thread.turn.take_placed();
        logical::follow(thread, clock);
        thread.turn.begin_at(clock);
        digest::add(decided(thread, door, clock, placed != 0));
    }
    if scope == Scope::Recording {
        order.holder.store(state::REAL_PID.load(Ordering::Relaxed), Ordering::Relaxed);
    }
    order.begun.fetch_max(turns::after(header.ticket), Ordering::SeqCst);
    // Behind all that a promotion looks at: with all rings empty it numbers its own turns from there.
    thread.take_front(&header);
    ring(scope, order, turns::after(header.ticket));
    true
}

fn await_turn(scope: Scope, order: &TurnOrder, number: u64, passed_over: bool) {
    let has_begun = || order.begun.load(Ordering::SeqCst) >= number;
    let is_due = || {
        let (begun, ended) = (order.begun.load(Ordering::SeqCst), order.ended.load(Ordering::SeqCst));
        turns::is_due(number, passed_over, Behind { begun, ended })
    };
    for _ in 0..64 {
        if is_due() {
            return;
        }
        core::hint::spin_loop();
    }
    let bell = bell(order, number);
    bell.sleepers.fetch_add(1, Ordering::SeqCst);
    WAITING.fetch_add(1, Ordering::SeqCst);
    // Whoever has it may sleep on an event that has come meanwhile.
    crate::thread::wake_sleepers();
    of_family::kick(order.ended.load(Ordering::SeqCst));
    let mut gone_since = None;
    loop {
        let rung = bell.rung.load(Ordering::SeqCst);
        if is_due() {
            break;
        }
        let look_ns = match scope {
            Scope::Process => 0,
            // The copy that is awaited may be gone.
            Scope::Family => LOOK_NS,
            Scope::Recording => {
                // Whoever had it was killed, and nobody says so in the log.
                let holder = order.holder.load(Ordering::Relaxed);
                let is_left = holder != 0 && has_ended(holder) && has_begun();
                gone_since = gone_since.filter(|_| is_left).or(is_left.then(raw::now_ns));
                if gone_since.is_some_and(|since| raw::now_ns() - since > GONE_NS) {
                    break;
                }
                RECORDING_LOOK_NS
            }
        };
        sleep(scope, &bell.rung, rung, look_ns);
    }
    WAITING.fetch_sub(1, Ordering::SeqCst);
    bell.sleepers.fetch_sub(1, Ordering::SeqCst);
}

/// Whether who had a turn of a recording has ended, of itself or by a fault. Its parent may ask for it only in a turn.
fn has_ended(holder: u32) -> bool {
    !members::exists(holder) || with_own_table(|| i64::from(proc::is_zombie(holder))) == 1
}

/// Threads of this standby that wait for a turn.
static WAITING: AtomicU32 = AtomicU32::new(0);

/// Whether what this standby stands still for is another process's: a turn of its family. How far that is.
pub fn awaited_of_family() -> Option<u64> {
    let order = of_family::order().filter(|_| WAITING.load(Ordering::SeqCst) != 0)?;
    Some(order.ended.load(Ordering::SeqCst))
}

fn bell(order: &TurnOrder, number: u64) -> &TurnBell {
    &order.bells[number as usize % BELLS]
}

fn ring(scope: Scope, order: &TurnOrder, number: u64) {
    fence(Ordering::SeqCst);
    let bell = bell(order, number);
    if bell.sleepers.load(Ordering::SeqCst) != 0 {
        bell.rung.fetch_add(1, Ordering::SeqCst);
        if scope.is_shared() {
            raw::futex_wake_shared(&bell.rung);
        } else {
            raw::futex_wake(&bell.rung, u32::MAX >> 1);
        }
    }
}

/// Sleeps on a word of an order.
fn sleep(scope: Scope, word: &AtomicU32, value: u32, limit_ns: u64) {
    Local::new(word, value, scope.is_shared()).sleep(limit_ns);
}
