//! A *family*: processes that share memory which no log tells of, and whose standbys share one copy of it.
//!
//! One thread of all of them has the turn (`recording::turn_order`, with the word in the roster), so what is in the memory
//! is a function of the order of turns: in the primaries' memory as well as in the copy that their standbys work on. No byte
//! of it travels in a log. All members are cloned at one moment, fenced at one moment and promoted at one moment; a child
//! forked meanwhile is cloned before its first turn. What ends the log of one ends those of all.

pub mod pieces;

use core::sync::atomic::{AtomicU32, AtomicUsize, Ordering, fence};

use us_abi::{CONFIG_AUTO, CONFIG_SERIAL, Cause, Family, SegmentHeader, TAKERS, TurnOrder, broken, phase};

use crate::clone::park;
use crate::members::{self, join};
use crate::raw;
use crate::state::{self, Role};
use crate::thread::{self, Mode, Thread};

/// How long the members wait for each other while they stand still, ns.
const FORM_NS: u64 = 800_000_000;
/// How long one that takes over waits for the others, ns.
const TOGETHER_NS: u64 = 5_000_000_000;
/// How long one that ends waits until its standby has followed it to its end, ns.
const DEPART_NS: u64 = 10_000_000_000;
/// Between two looks at the others, ns.
const LOOK_NS: u64 = 100_000;

/// What a process says that should be one of a family and is not yet.
pub const WHY: &[u8] = b"processes that share memory get their standbys together";
const ENDED: &[u8] = b"the order of processes that share memory has ended";

/// The number of the family that this process is of, 0 for none.
static NUMBER: AtomicU32 = AtomicU32::new(0);

/// Whether this process is of a family.
#[inline(always)]
pub fn is_member() -> bool {
    NUMBER.load(Ordering::Relaxed) != 0
}

/// The number of the family that this process is of.
pub fn number() -> u32 {
    NUMBER.load(Ordering::Relaxed)
}

fn family() -> Option<&'static Family> {
    members::family().filter(|_| is_member())
}

/// The turns of the family, `None` for a process by itself.
#[inline(always)]
pub fn order() -> Option<&'static TurnOrder> {
    if is_member() { members::family().map(|family| &family.order) } else { None }
}

fn is_in(phases: &[u32]) -> bool {
    family().is_some_and(|family| {
        phases.contains(&family.state.0.load(Ordering::Acquire))
            && family.number.load(Ordering::Relaxed) == number()
    })
}

/// Whether this process may be one of a family's: turns are allowed, and nobody records.
pub fn may_be() -> bool {
    let flags = join::config().map_or(0, |config| config.flags);
    flags & (CONFIG_AUTO | CONFIG_SERIAL) != 0 && !state::is_recorded() && !state::is_detached()
}

/// How much memory processes must share to be a family, bytes.
pub fn least_bytes() -> u64 {
    members::family().map_or(u64::MAX, us_abi::Family::least)
}

/// This process goes another way again and again although its threads take turns: others change what it reads. If it shares
/// memory at all, of whatever size, that is to be followed as well.
pub fn may_be_small() {
    if let Some(family) = members::family().filter(|_| may_be()) {
        family.small.store(1, Ordering::Release);
    }
}

/// This process should be of a family. False if families have been tried and do not last.
pub fn want() -> bool {
    let Some(family) = members::family() else { return false };
    if family.wanted.load(Ordering::Acquire) == us_abi::FAMILY_HOPELESS {
        return false;
    }
    let _ = family.wanted.compare_exchange(0, 1, Ordering::AcqRel, Ordering::Relaxed);
    members::tell();
    true
}

/// Whether the clone that is asked for is one of a family that is being formed.
pub fn is_forming(header: &SegmentHeader) -> bool {
    let Some(family) = members::family() else { return false };
    let asked = header.family.load(Ordering::Acquire);
    asked != 0
        && asked == family.number.load(Ordering::Acquire)
        && family.state.0.load(Ordering::Acquire) == phase::FORMING
}

// ---- Forming ----

/// By the coordinator: every thread of this process stands still. Waits until all members say so.
pub fn stand(header: &SegmentHeader) -> Result<(), &'static [u8]> {
    NUMBER.store(header.family.load(Ordering::Acquire), Ordering::Relaxed);
    let Some(family) = family() else { return Err(ENDED) };
    await_all(family, &family.standing)?;
    // A child may have been made while the first of them stood still already, which would run without turns.
    members::tell();
    let start = raw::now_ns();
    while family.verified.load(Ordering::Acquire) != number() {
        if !is_in(&[phase::FORMING]) {
            return Err(ENDED);
        }
        if raw::now_ns() - start > FORM_NS {
            return Err(b"the supervisor did not look at who shares the memory");
        }
        raw::nap(LOOK_NS);
    }
    Ok(())
}

/// By the coordinator: the threads of this process do not come to stand still, and so there is no family.
pub fn abandon(header: &SegmentHeader, why: &[u8]) {
    NUMBER.store(header.family.load(Ordering::Acquire), Ordering::Relaxed);
    fail(why);
}

/// The copy has been made, and all that this process had to copy has been copied.
pub fn has_forked() -> Result<(), &'static [u8]> {
    let Some(family) = family() else { return Err(ENDED) };
    await_all(family, &family.forked)
}

/// The copy is good. With the last member's word the family is one.
pub fn is_ready() -> Result<(), &'static [u8]> {
    let Some(family) = family() else { return Err(ENDED) };
    await_all(family, &family.whole)?;
    let (from, to) = (phase::FORMING, phase::ACTIVE);
    let _ = family.state.0.compare_exchange(from, to, Ordering::AcqRel, Ordering::Acquire);
    is_in(&[phase::ACTIVE, phase::PROMOTING]).then_some(()).ok_or(ENDED)
}

/// Counts the caller in, and waits for the others.
fn await_all(family: &Family, count: &AtomicU32) -> Result<(), &'static [u8]> {
    count.fetch_add(1, Ordering::AcqRel);
    let start = raw::now_ns();
    while count.load(Ordering::Acquire) < family.members.load(Ordering::Acquire) {
        if !is_in(&[phase::FORMING, phase::ACTIVE]) {
            return Err(ENDED);
        }
        if raw::now_ns() - start > FORM_NS {
            return Err(b"a process that shares memory did not come to stand still");
        }
        raw::nap(LOOK_NS);
    }
    Ok(())
}

/// This process has no standby in the family that it was to be of.
pub fn fail(why: &[u8]) {
    fail_with(&[why]);
}

/// The same, with the reason in parts.
pub fn fail_with(why: &[&[u8]]) {
    break_up(why);
    leave_now();
}

// ---- The end of a family ----

/// What ends one log ends those of all.
pub fn break_up(why: &[&[u8]]) {
    let Some(family) = family().filter(|family| family.number.load(Ordering::Relaxed) == number()) else {
        return;
    };
    for from in [phase::ACTIVE, phase::FORMING] {
        let state = &family.state.0;
        if state.compare_exchange(from, phase::BROKEN, Ordering::AcqRel, Ordering::Acquire).is_ok() {
            state::overwrite_text(&family.why, broken::LOG, why);
            raw::futex_wake_shared(&family.order.word.0);
            members::tell();
        }
    }
}

/// This process is of no family any more, and its threads take no turns.
pub fn leave() {
    if NUMBER.swap(0, Ordering::Relaxed) != 0 {
        state::take_turns(false);
        if let Some(header) = state::header() {
            header.family.store(0, Ordering::Release);
            header.turns.store(0, Ordering::Release);
        }
    }
}

/// The same as a primary whose standby is about to be ended. While the others take over it stands still: if it was still one
/// of them when they began, it is killed here, and its standby is awaited by all.
fn leave_now() {
    let was = number();
    leave();
    // Either whoever has them take over sees that this process has left, or we see that they do.
    fence(Ordering::SeqCst);
    let Some(family) = members::family().filter(|_| was != 0 && state::role() == Role::Primary) else {
        return;
    };
    while family.state.0.load(Ordering::SeqCst) == phase::PROMOTING
        && family.number.load(Ordering::Acquire) == was
    {
        raw::nap(LOOK_NS);
    }
}

/// Whether a primary's thread may take a turn of the family's. If the family has ended, so has its own log.
pub fn goes_on() -> bool {
    // A child whose standby was made while the others were being fenced is none of those who take over: what it would do now
    // the memory is about to forget.
    while is_member() && is_in(&[phase::PROMOTING]) {
        raw::nap(LOOK_NS);
    }
    if !is_member() || is_in(&[phase::ACTIVE]) {
        return true;
    }
    if state::role() == Role::Primary {
        crate::drop_standby(Cause::CannotReplay, &[ENDED]);
    }
    false
}

/// The process is about to end, or to become another, by its own will, and its thread has given its turn back: what it has
/// done in its last turn its standby has to do before it goes.
pub fn depart(thread: &Thread) {
    let Some(order) = order().filter(|_| state::role() == Role::Primary) else { return };
    let start = raw::now_ns();
    while thread.calls() == Mode::Record && order.ended.load(Ordering::Acquire) <= thread.turn {
        if !is_in(&[phase::ACTIVE, phase::PROMOTING]) {
            break;
        }
        if raw::now_ns() - start > DEPART_NS {
            break_up(&[b"the standby of a process that ended did not come to its end"]);
            break;
        }
        kick(order.ended.load(Ordering::SeqCst));
        raw::nap(LOOK_NS / 2);
    }
    leave_now();
}

// ---- Children ----

/// In a forked child, before its first instruction: it is of the family of its parent, and gets its standby now.
pub fn is_born(thread: &mut Thread) {
    if !is_member() {
        return;
    }
    if !is_in(&[phase::ACTIVE, phase::PROMOTING]) {
        return leave();
    }
    join::join(thread);
    let joined = state::role() == Role::Primary;
    if let Some(header) = state::header().filter(|_| joined) {
        header.family.store(number(), Ordering::Release);
        members::tell();
        await_standby(thread);
    } else {
        break_up(&[b"a child that shares memory could not join the group"]);
    }
    if thread.calls() == Mode::Solo {
        leave();
    }
}

/// Until the child has its standby, or there is no family any more.
fn await_standby(thread: &mut Thread) {
    const LIMIT_NS: u64 = 3_000_000_000;
    let start = raw::now_ns();
    while thread.calls() == Mode::Solo && is_in(&[phase::ACTIVE, phase::PROMOTING]) {
        if !park::at_door(thread) {
            raw::nap(LOOK_NS / 2);
        }
        if raw::now_ns() - start > LIMIT_NS {
            return break_up(&[b"no standby was made of a child that shares memory"]);
        }
    }
}

// ---- What is left on the stack ----

/// Bytes below a door's frame that it may have used.
const SCRUBBED: usize = 16 << 10;
/// How much of the first thread's stack is sure to be there, bytes.
const STACK_BYTES: usize = 4 << 20;
/// An address on the first thread's stack, from its beginning.
static STACK: AtomicUsize = AtomicUsize::new(0);

/// Remembers where the first thread's stack begins. In the constructor.
pub fn note_stack() {
    let here = 0u8;
    STACK.store((&raw const here).addr(), Ordering::Relaxed);
}

/// Behind a door: what that has left on the guest's stack differs between a copy that acts and one that follows, and a program
/// may put bytes out that it has never written (PostgreSQL does so, in its log).
#[inline(always)]
pub fn tidy_up() {
    if is_member() {
        scrub_below();
    }
}

#[cold]
#[inline(never)]
fn scrub_below() {
    let here = 0u8;
    let used = STACK.load(Ordering::Relaxed).wrapping_sub((&raw const here).addr());
    if used < STACK_BYTES {
        // SAFETY: below all frames, in a stack that grows.
        unsafe { scrub() };
    }
}

#[unsafe(naked)]
unsafe extern "C" fn scrub() {
    core::arch::naked_asm!(
        "lea rdi, [rsp - {bytes}]",
        "mov ecx, {words}",
        "xor eax, eax",
        "rep stosq",
        "ret",
        bytes = const SCRUBBED,
        words = const SCRUBBED / 8,
    )
}

// ---- Standbys ----

/// Notes who has a turn, so that the standbys know whom to wake for it. By its primary, before the log says so.
pub fn note_taker(number: u64) {
    if let (Some(family), Some(at)) = (family(), members::own().and_then(members::index_of)) {
        family.takers[number as usize % TAKERS].store(at as u32 + 1, Ordering::Relaxed);
    }
}

/// The turns below `number` have ended: whoever has that one may sleep on an event that has come meanwhile.
pub fn kick(number: u64) {
    let Some(family) = family().filter(|family| family.order.next.load(Ordering::Acquire) > number) else {
        return;
    };
    let taker = family.takers[number as usize % TAKERS].load(Ordering::Relaxed);
    if let Some(kick) = family.kicks.get((taker as usize).wrapping_sub(1)) {
        kick.fetch_add(1, Ordering::AcqRel);
        raw::futex_wake_shared(kick);
    }
}

/// What the threads of this process's standby sleep on.
pub fn own_kick() -> Option<&'static AtomicU32> {
    let family = family()?;
    family.kicks.get(members::index_of(members::own()?)?)
}

/// What this copy marks with what it has taken upon itself.
fn own_mark() -> u32 {
    state::REAL_PID.load(Ordering::Relaxed)
}

/// At a promotion, when this copy has settled everything: waits until all have, and puts the memory back. Nobody acts before
/// that, or it would see what another one's dead primary has done and its standby has not.
pub fn settle_together() {
    let Some(family) = taking_over() else { return };
    await_standing();
    together(family, &family.settled);
    pieces::put_back(family);
    together(family, &family.whole);
}

/// Until no thread of this copy runs guest code: one that has the turn may still be on its way to its next door.
fn await_standing() {
    let start = raw::now_ns();
    loop {
        let mut runs = false;
        thread::for_each(|thread| {
            let entry = thread.entry();
            runs |= !thread.ring.0.is_null()
                && entry.standby_tid.load(Ordering::Relaxed) != 0
                && !thread.parked.load(Ordering::SeqCst);
        });
        if !runs {
            return;
        }
        if raw::now_ns() - start > TOGETHER_NS {
            crate::give_up_standby(&[b"a thread of the standby did not come to a door"]);
        }
        thread::wake_sleepers();
        raw::nap(LOOK_NS / 2);
    }
}

fn together(family: &Family, count: &AtomicU32) {
    count.fetch_add(1, Ordering::AcqRel);
    let start = raw::now_ns();
    while count.load(Ordering::Acquire) < family.members.load(Ordering::Acquire) {
        if raw::now_ns() - start > TOGETHER_NS {
            crate::give_up_standby(&[b"another process that shares memory could not take over"]);
        }
        raw::nap(LOOK_NS / 2);
    }
}

/// This copy has taken over. The last one says that the family is no more.
pub fn has_taken_over(family: Option<&'static Family>) {
    let Some(family) = family else { return };
    if family.live.fetch_add(1, Ordering::AcqRel) + 1 == family.members.load(Ordering::Acquire) {
        family.wanted.store(1, Ordering::Release);
        let (from, to) = (phase::PROMOTING, phase::NONE);
        let _ = family.state.0.compare_exchange(from, to, Ordering::AcqRel, Ordering::Acquire);
        members::tell();
    }
}

/// The family that this copy takes over with. `None` by itself: also when the others were about to when it was made, and
/// have; then it has not taken a turn.
fn taking_over() -> Option<&'static Family> {
    family().filter(|_| is_in(&[phase::PROMOTING]))
}

/// The family that this copy takes over with. It is of none any more.
pub fn taken_over() -> Option<&'static Family> {
    let family = taking_over();
    leave();
    family
}
