//! Turns between a primary and its standby: who takes them, and from when on. See [`crate::turns::turn_order`] for the order itself.
//!
//! Only a process with several threads takes turns, and only while there is a log. Nobody waits for a turn while threads
//! are parked for a clone: there is no log then. All begin to take turns where they go on from there.

use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use us_abi::event::EventKind;
use us_abi::{CONFIG_AUTO, CONFIG_SERIAL, Cause, SegmentHeader};
use us_order::turns::{SHORT_LIFE_NS, Turns, may_ask};

use crate::above::above;
use crate::call::Call;
use crate::members::of_family;
use crate::raw::{self, Timespec};
use crate::state;
use crate::sys::milestones;
use crate::thread::{Mode, Thread};
use crate::turns::logical::Until;
use crate::turns::{logical, successor, turn_order};
use crate::verdict::drop_standby;

/// Standbys in a row that have diverged soon, and memory that processes share is followed however small it is.
const FAMILY_RACES: u32 = 4;
/// How long others wait for a thread that is on its way to a milestone, at most, ns.
const REACHES_NS: u64 = 1_000_000_000;

/// What this process knows of its races.
static TURNS: Turns = Turns::new();
/// Standbys that have diverged soon.
static DIVERGED: AtomicU32 = AtomicU32::new(0);
/// When the last standby was made, CLOCK_MONOTONIC ns; 0 for never.
static MADE_NS: AtomicU64 = AtomicU64::new(0);

/// Before a fork for a new standby: whether its threads are to take turns. A program whose standbys diverge has races that
/// no lock orders.
pub fn decide(header: &SegmentHeader) {
    if of_family::is_member() {
        state::take_turns(true);
        return header.turns.store(1, Ordering::Release);
    }
    let now_ns = raw::now_ns();
    let lived_ns = now_ns - MADE_NS.swap(now_ns, Ordering::Relaxed);
    if header.config.flags & (CONFIG_AUTO | CONFIG_SERIAL) != 0 && !state::is_recorded() {
        if header.why.0.code.load(Ordering::Acquire) == Cause::Diverged as u32 {
            let was_passed_over = turn_order::was_passed_over();
            TURNS.diverged(now_ns, lived_ns, state::takes_live_turns(), was_passed_over);
            if lived_ns < SHORT_LIFE_NS && DIVERGED.fetch_add(1, Ordering::Relaxed) + 1 == FAMILY_RACES {
                of_family::may_be_small();
            }
        }
        let is_asked_for = header.config.flags & CONFIG_SERIAL != 0;
        state::take_turns(is_asked_for && state::is_computed() || TURNS.are_taken(now_ns, is_asked_for));
    }
    header.turns.store(u32::from(state::takes_live_turns()), Ordering::Release);
}

/// The program has made `bytes` more of executable memory. Behind a compiler's threads take turns from the beginning.
pub fn made_code(thread: &Thread, bytes: u64) {
    let is_new = TURNS.made_code(bytes);
    let Some(header) = by_itself().filter(|_| is_new) else { return };
    if thread.locks() == Mode::Solo && thread.calls() != Mode::Solo {
        // Before the first other thread there is no order yet, and every copy comes by here.
        begin_here(header);
    } else {
        begin_anew(thread, b"the program makes code as it runs: from here on its threads take turns");
    }
}

/// In the constructor: the program's text has futex calls of its own, or it has raced in an earlier run. Its threads would race from
/// the first one on, before anything is noticed, and a kill in that time ends a program whose copy has gone another way.
pub fn races() {
    TURNS.races();
    if let Some(header) = by_itself() {
        begin_here(header);
    }
}

/// A thread waits by a futex call of the program's own, and takes no turns. Behind locks that no door sees they are taken from
/// the beginning.
pub fn waits_by_itself(thread: &Thread) {
    if TURNS.own_wait() && by_itself().is_some() {
        begin_anew(thread, b"the program has locks of its own: from here on its threads take turns");
    }
}

/// Such a wait is interrupted by a signal, and has no event at which the handler could run. With turns it has.
#[cold]
pub fn is_interrupted_by_itself(thread: &Thread) {
    if by_itself().is_some() {
        TURNS.races();
        begin_anew(
            thread,
            b"a signal interrupts a lock of the program's own: from here on its threads take turns",
        );
    }
}

/// A wait on a condition variable until some time.
pub struct TimedWait {
    place: usize,
    began_ns: u64,
    computed_ns: u64,
}

/// A thread begins such a wait, at `place`, with a mutex that nobody has had since its acquisition with the number `ticket`.
/// `None` where nobody asks how it ends. An interpreter's lock is one word and one condition: whoever waits for it in vain for
/// its time sets a flag, and waits again, and the thread that computes reads the flag without a lock. From the first such
/// question on it is a matter of luck whether a copy's thread sees it at the same place.
pub fn begins_timed_wait(thread: &mut Thread, place: usize, ticket: u64) -> Option<TimedWait> {
    if thread.calls() != Mode::Record || TURNS.is_known() || by_itself().is_none() {
        return None;
    }
    if core::mem::take(&mut thread.lately.asked) == (place, ticket) {
        if TURNS.races() {
            begin_anew(thread, b"its threads ask each other by flags: from here on they take turns");
        }
        return None;
    }
    Some(TimedWait { place, began_ns: raw::now_ns(), computed_ns: raw::computed_by_all() })
}

impl TimedWait {
    /// It has ended by its time, and the thread has the mutex by its acquisition with the number `ticket`.
    pub fn timed_out(&self, thread: &mut Thread, ticket: u64) {
        // Not in a copy that has taken over meanwhile, whose processor time began anew, nor behind a filter, which may refuse the look.
        if thread.calls() != Mode::Record {
            return;
        }
        let waited_ns = raw::now_ns().saturating_sub(self.began_ns);
        if may_ask(waited_ns, raw::computed_by_all().saturating_sub(self.computed_ns)) {
            thread.lately.asked = (self.place, ticket);
        }
    }
}

/// The segment of a process that takes no turns, and would without being asked for it.
fn by_itself() -> Option<&'static SegmentHeader> {
    let may = |header: &&SegmentHeader| header.config.flags & CONFIG_AUTO != 0 && header.config.standbys != 0;
    state::header().filter(may).filter(|_| !state::is_serial() && !state::is_recorded())
}

/// Before the first other thread: threads take turns from here on.
fn begin_here(header: &SegmentHeader) {
    state::take_turns(true);
    header.turns.store(1, Ordering::Release);
}

/// As a primary: the next standby, in turns, comes at once.
fn begin_anew(thread: &Thread, why: &[u8]) {
    if thread.calls() == Mode::Record && !of_family::is_member() {
        drop_standby(Cause::CannotReplay, &[why]);
    }
}

/// A standby besides the heir is about to be made: its life counts from now on.
pub fn copy_is_made() {
    MADE_NS.store(raw::now_ns(), Ordering::Relaxed);
}

/// A thread waits for its turn, and the one that has it computes. Whether it is to have a milestone on its way, which the next standby's
/// text has as well: that comes at once.
pub fn is_to_reach_milestone(thread: &Thread, holder: u32) -> bool {
    let is_found = thread.calls() == Mode::Record && milestones::wanted(holder);
    if is_found && !successor::is_coming() {
        begin_anew(thread, successor::WHY);
    }
    is_found
}

/// Whether a thread that has computed for so long since others wait for its turn, and for `over_ns` too long, is on its way to a
/// milestone: who passed it over would race with it. A search takes as long as the machine takes for a step.
pub fn is_on_its_way(thread: &Thread, cpu_ns: u64, over_ns: u64) -> bool {
    over_ns < REACHES_NS
        && computes_too_long(cpu_ns)
        && thread.calls() == Mode::Record
        && !logical::applies(thread)
        && milestones::is_sought()
}

/// A first standby is about to be made, with the program's beginning.
pub fn standby_is_made(header: &SegmentHeader) {
    copy_is_made();
    header.turns.store(u32::from(state::takes_live_turns()), Ordering::Release);
    crate::seats::decide(header, false, false);
}

/// A thread has waited for a turn that another one did not give back. Whether turns rest from here on.
pub fn passed_over(waited_ns: u64) -> bool {
    TURNS.passed_over(raw::now_ns(), waited_ns)
}

/// Whether a thread that others wait for, with that use of its processor since then, is passed over.
pub fn is_too_long(cpu_ns: u64, clock_ns: u64) -> bool {
    TURNS.is_too_long(cpu_ns, clock_ns)
}

/// Whether it is for what it has computed, which no other program has a part in.
pub fn computes_too_long(cpu_ns: u64) -> bool {
    TURNS.computes_too_long(cpu_ns)
}

/// Whether this thread takes turns.
#[inline(always)]
pub fn applies(thread: &Thread) -> bool {
    if state::is_computed() && !of_family::is_member() {
        return logical::applies(thread);
    }
    thread.locks() != Mode::Solo || of_family::is_member()
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
        const OTHERS: [u64; 2] = [449, 455]; // futex_waitv, futex_wait
        OTHERS.contains(&call.nr) || call.nr == raw::nr::FUTEX && WAITS.contains(&(call.args[1] & COMMAND))
    }

    /// Whether there is something to wait for.
    pub fn is_to_wait(&self) -> bool {
        self.word.load(Ordering::Acquire) == self.value
    }

    /// When the wait ends by itself.
    pub fn until(&self) -> Option<Until> {
        self.deadline.map(|(clock, time)| Until { clock, time })
    }

    /// Sleeps as long as the word has the value, at most so long; 0 for as long as it takes.
    pub fn sleep(&self, limit_ns: u64) {
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
                crate::turns::follow_pause(thread);
                return if local.is_over() { raw::err::ETIMEDOUT } else { answer };
            }
            // It stood still in this wait, and its primary's has ended. Whom a wake here meets is another matter: the thread
            // whose turn it is must not wait for one that was woken in its place.
            Some(next) if next.kind == EventKind::Turn as u8 && !thread.turn.is_own() => return answer,
            Some(_) if answer == raw::err::ETIMEDOUT => return answer,
            // What of the lock's owner is to come may be behind a turn that this thread gives back in that.
            Some(_) if above().follow_making(thread) => {}
            Some(_) => local.sleep(SLICE_NS),
            // Its primary has died in the wait, and nobody may come to change the word.
            None if state::LIVE.load(Ordering::Acquire) => thread.wait_more(),
            None => thread.stand_while(|| local.sleep(SLICE_NS)),
        }
    }
    raw::err::EAGAIN
}
