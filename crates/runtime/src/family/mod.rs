//! A *family*: processes that share memory which no log tells of, and whose standbys share one copy of it.
//!
//! One thread of all of them has the turn (`turns::turn_order`, with the word in the roster), so what is in the memory
//! is a function of the order of turns: in the primaries' memory as well as in the copy that their standbys work on. No byte
//! of it travels in a log. All members are cloned at one moment, fenced at one moment and promoted at one moment; a child
//! forked meanwhile is cloned before its first turn. What ends the log of one ends those of all.

use core::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering};

use us_abi::{Cause, Family, SegmentHeader, phase};
use us_order::family::{self as rules, Turn};

use crate::above::above;
use crate::members::{self, of_family};
use crate::state::{self, Role};
use crate::sys::trap;
use crate::thread::{self, Mode, Thread};
use crate::{raw, seats};

/// How long the members wait for each other while they stand still, ns.
const FORM_NS: u64 = 800_000_000;
/// How long one that takes over waits for the others, ns.
const TOGETHER_NS: u64 = 5_000_000_000;
/// How long one that ends waits until its standby has followed it to its end, ns.
const DEPART_NS: u64 = 10_000_000_000;

// ---- Forming ----

/// By the coordinator: every thread of this process stands still. Waits until all members say so.
pub fn stand(header: &SegmentHeader) -> Result<(), &'static [u8]> {
    of_family::NUMBER.store(header.family.load(Ordering::Acquire), Ordering::Relaxed);
    let Some(family) = of_family::own() else { return Err(of_family::ENDED) };
    await_all(family, &family.standing)?;
    // A child may have been made while the first of them stood still already, which would run without turns.
    members::tell();
    let start = raw::now_ns();
    while family.verified.load(Ordering::Acquire) != of_family::number() {
        if of_family::phase() != rules::Phase::Forming {
            return Err(of_family::ENDED);
        }
        if raw::now_ns() - start > FORM_NS {
            return Err(b"the supervisor did not look at who shares the memory");
        }
        raw::nap(of_family::LOOK_NS);
    }
    Ok(())
}

/// By the coordinator: the threads of this process do not come to stand still, and so there is no family.
pub fn abandon(header: &SegmentHeader, why: &[u8]) {
    of_family::NUMBER.store(header.family.load(Ordering::Acquire), Ordering::Relaxed);
    of_family::fail(why);
}

/// The copy has been made, and all that this process had to copy has been copied.
pub fn has_forked() -> Result<(), &'static [u8]> {
    let Some(family) = of_family::own() else { return Err(of_family::ENDED) };
    await_all(family, &family.forked)
}

/// The copy is good. With the last member's word the family is one.
pub fn is_ready() -> Result<(), &'static [u8]> {
    let Some(family) = of_family::own() else { return Err(of_family::ENDED) };
    await_all(family, &family.whole)?;
    let (from, to) = (phase::FORMING, phase::ACTIVE);
    let _ = family.state.0.compare_exchange(from, to, Ordering::AcqRel, Ordering::Acquire);
    of_family::phase().has_order().then_some(()).ok_or(of_family::ENDED)
}

/// Counts the caller in, and waits for the others.
fn await_all(family: &Family, count: &AtomicU32) -> Result<(), &'static [u8]> {
    count.fetch_add(1, Ordering::AcqRel);
    let start = raw::now_ns();
    while !are_all(family, count) {
        if !of_family::phase().may_become_whole() {
            return Err(of_family::ENDED);
        }
        if raw::now_ns() - start > FORM_NS {
            return Err(b"a process that shares memory did not come to stand still");
        }
        raw::nap(of_family::LOOK_NS);
    }
    Ok(())
}

fn are_all(family: &Family, count: &AtomicU32) -> bool {
    rules::are_all(count.load(Ordering::Acquire), family.members.load(Ordering::Acquire))
}

// ---- The end of a family ----

/// Whether a primary's thread may take a turn of the family's. If the family has ended, so has its own log.
pub fn goes_on() -> bool {
    let start = raw::now_ns();
    while of_family::is_member() {
        match rules::turn(of_family::phase()) {
            Turn::Take => return true,
            // A child whose standby was made while the others were being fenced is none of those who take over.
            Turn::Wait if raw::now_ns() - start < of_family::OTHERS_NS => raw::nap(of_family::LOOK_NS),
            Turn::Wait | Turn::Ended => {
                if state::role() == Role::Primary {
                    crate::verdict::drop_standby(Cause::CannotReplay, &[of_family::ENDED]);
                }
                return false;
            }
        }
    }
    true
}

/// The process is about to end, or to become another, by its own will, and its thread has given its turn back: what it has
/// done in its last turn its standby has to do before it goes.
pub fn depart(thread: &Thread) {
    let Some(order) = of_family::order().filter(|_| state::role() == Role::Primary) else { return };
    let start = raw::now_ns();
    let is_followed = || rules::is_followed(thread.turn.number(), order.ended.load(Ordering::Acquire));
    while thread.calls() == Mode::Record && !is_followed() {
        if !of_family::phase().has_order() {
            break;
        }
        if raw::now_ns() - start > DEPART_NS {
            of_family::break_up(&[b"the standby of a process that ended did not come to its end"]);
            break;
        }
        of_family::kick(order.ended.load(Ordering::SeqCst));
        raw::nap(of_family::LOOK_NS / 2);
    }
    of_family::leave_now();
}

// ---- Children ----

/// In a forked child, before its first instruction: it is of the family of its parent, and gets its standby now.
pub fn is_born(thread: &mut Thread) {
    if !of_family::is_member() {
        return;
    }
    if !of_family::phase().has_order() {
        return of_family::leave();
    }
    above().join(thread);
    let joined = state::role() == Role::Primary;
    if let Some(header) = state::header().filter(|_| joined) {
        header.family.store(of_family::number(), Ordering::Release);
        members::tell();
        await_standby(thread);
    } else {
        of_family::break_up(&[b"a child that shares memory could not join the group"]);
    }
    if thread.calls() == Mode::Solo {
        of_family::leave();
    }
}

/// Until the child has its standby, or there is no family any more.
fn await_standby(thread: &mut Thread) {
    const LIMIT_NS: u64 = 3_000_000_000;
    let start = raw::now_ns();
    while thread.calls() == Mode::Solo && of_family::phase().has_order() {
        if !above().stand_still(thread) {
            raw::nap(of_family::LOOK_NS / 2);
        }
        if raw::now_ns() - start > LIMIT_NS {
            return of_family::break_up(&[b"no standby was made of a child that shares memory"]);
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
    if of_family::is_member() {
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

/// What this copy marks with what it has taken upon itself.
pub fn own_mark() -> u32 {
    state::REAL_PID.load(Ordering::Relaxed)
}

/// At a promotion, when this copy has settled everything: waits until all have, and has the memory put back. Nobody acts before
/// that, or it would see what another one's dead primary has done and its standby has not.
pub fn settle_together(put_back: impl FnOnce(&Family)) {
    let Some(family) = of_family::taking_over() else { return };
    if !await_standing(0, TOGETHER_NS) {
        crate::verdict::give_up_standby(&[b"a thread of the standby did not come to a door"]);
    }
    together(family, &family.settled);
    put_back(family);
    together(family, &family.whole);
}

/// The threads of this copy are to stand still, those as well that come to no door.
static IS_TO_STAND: AtomicBool = AtomicBool::new(false);
/// How often it is looked before those that run are asked, and between two times: a thread that has the turn mostly is on its way to
/// its next door.
const LOOKS: u32 = 40;

/// Until no thread of this copy runs guest code: one that has the turn may still be on its way to its next door. One that computes,
/// or spins for what another process does, may have no door for minutes: behind `patience_ns` it is asked to stand still where it is.
/// False if one does neither in `most_ns`.
pub fn await_standing(patience_ns: u64, most_ns: u64) -> bool {
    let start = raw::now_ns();
    let mut look = 0u32;
    loop {
        let waited_ns = raw::now_ns() - start;
        let mut runs = false;
        if waited_ns >= patience_ns {
            IS_TO_STAND.store(true, Ordering::SeqCst);
            look += 1;
        }
        thread::for_each(|thread| {
            let tid = seats::tid(thread.slot()).load(Ordering::Relaxed);
            let stands = !thread.has_ring() || tid == 0 || thread.parked.load(Ordering::SeqCst);
            if !stands && look != 0 && look.is_multiple_of(LOOKS) {
                trap::nudge(tid);
            }
            runs |= !stands;
        });
        if !runs || waited_ns > most_ns {
            return !runs;
        }
        thread::wake_sleepers();
        raw::nap(of_family::LOOK_NS / 2);
    }
}

/// In a new standby, of a copy that has taken over perhaps.
pub fn forget() {
    IS_TO_STAND.store(false, Ordering::SeqCst);
}

/// Whether threads that compute are to stand still.
pub fn is_to_stand() -> bool {
    IS_TO_STAND.load(Ordering::SeqCst)
}

/// In the SIGSYS handler, above guest code of a thread that has nothing left to apply: stands still until this copy is live, if the
/// memory that it works in is about to be put back.
pub fn stand_in_guest_code(thread: &Thread) {
    while is_to_stand() && !state::LIVE.load(Ordering::SeqCst) {
        thread.parked.store(true, Ordering::SeqCst);
        raw::nap(of_family::LOOK_NS);
    }
    thread.parked.store(false, Ordering::SeqCst);
}

fn together(family: &Family, count: &AtomicU32) {
    count.fetch_add(1, Ordering::AcqRel);
    let start = raw::now_ns();
    while !are_all(family, count) {
        if raw::now_ns() - start > TOGETHER_NS {
            crate::verdict::give_up_standby(&[b"another process that shares memory could not take over"]);
        }
        raw::nap(of_family::LOOK_NS / 2);
    }
}

/// This copy has taken over. The last one says that the family is no more.
pub fn has_taken_over(family: Option<&'static Family>) {
    let Some(family) = family else { return };
    let before = family.live.fetch_add(1, Ordering::AcqRel);
    if rules::is_last(before, family.members.load(Ordering::Acquire)) {
        family.wanted.store(1, Ordering::Release);
        let (from, to) = (phase::PROMOTING, phase::NONE);
        let _ = family.state.0.compare_exchange(from, to, Ordering::AcqRel, Ordering::Acquire);
        members::tell();
    }
}
