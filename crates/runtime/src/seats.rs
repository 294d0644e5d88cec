//! Where the standbys of a process sit: each has a position of its own in every ring.
//!
//! One of them is the *heir*, of whom the segment's header speaks and who takes over. The others are *spares*: they
//! follow as the heir does, and go on following when it has taken over. Who is heir is the supervisor's to say.

use core::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering, fence};

use us_abi::{Cause, SEATS, SPARES_OFFSET, SegmentHeader, SpareEntry, THREADS_MAX, alone, seat};
use us_order::live::{self, RingView};
use us_ring::Position;

use crate::{raw, state};

/// The seat of this copy, as a standby.
static OWN: AtomicU32 = AtomicU32::new(0);
/// Whether this copy counts the events that it applies. Of several standbys one does.
static COUNTS: AtomicBool = AtomicBool::new(true);

/// The seat of this copy, as a standby.
pub fn own() -> u32 {
    OWN.load(Ordering::Relaxed)
}

/// Whether this copy counts events.
#[inline(always)]
pub fn counts() -> bool {
    COUNTS.load(Ordering::Relaxed)
}

/// One that has diverged ends by itself, once it has been looked at.
static STAYS: AtomicBool = AtomicBool::new(false);

/// From here on the thread that calls ends this standby, and the poller does not. False if another thread has said so before.
pub fn stay() -> bool {
    !STAYS.swap(true, Ordering::AcqRel)
}

/// Takes a seat, as a new standby whose only thread this is.
pub fn sit(number: u32, is_spare: bool) {
    OWN.store(number, Ordering::Relaxed);
    COUNTS.store(!is_spare, Ordering::Relaxed);
}

/// A seat that a new standby is about to take.
pub fn keep_free(header: &SegmentHeader, number: u32) {
    let seat = &header.seats[number as usize];
    seat.pid.store(0, Ordering::Release);
    seat.taker.store(0, Ordering::Release);
}

/// The spare `pid` sits at `number` from here on. Said by itself and by its maker, which may die meanwhile, and done by
/// whoever is first: the second could put one back that has been given up, or is heir.
pub fn claim(header: &SegmentHeader, number: u32, pid: u32) {
    let seat = &header.seats[number as usize];
    if seat.pid.compare_exchange(0, pid, Ordering::AcqRel, Ordering::Acquire).is_ok() {
        // Before it looks whether somebody has taken over meanwhile: see `let_spares_go_on`.
        return seat.state.store(seat::FOLLOWS, Ordering::SeqCst);
    }
    // The other one is between these two steps.
    const LOOKS: u32 = 2000;
    const PAUSE_NS: u64 = 50_000;
    for _ in 0..LOOKS {
        if seat.state.load(Ordering::Acquire) != seat::FREE
            || header.standby_pid.load(Ordering::Acquire) == pid
        {
            return;
        }
        raw::nap(PAUSE_NS);
    }
}

/// By the poller of a spare: whether it is heir by now. One for whom there is no place ends.
pub fn notice_place(header: &SegmentHeader) {
    if counts() {
        return;
    }
    let (seat, own) = (&header.seats[own() as usize], state::REAL_PID.load(Ordering::Relaxed));
    match seat.state.load(Ordering::Acquire) {
        seat::FOLLOWS if seat.pid.load(Ordering::Acquire) == own => {}
        seat::FREE if header.standby_pid.load(Ordering::Acquire) == own => {
            COUNTS.store(true, Ordering::Relaxed)
        }
        _ if STAYS.load(Ordering::Acquire) => {}
        // SAFETY: a standby has no effects of its own to finish.
        _ => unsafe {
            raw::call1(raw::nr::EXIT_GROUP, 0);
        },
    }
}

/// Whether this standby is not the one that takes over.
pub fn is_spare(header: &SegmentHeader) -> bool {
    // One that has taken over may find another in its seat.
    state::is_standby() && header.seats[own() as usize].state.load(Ordering::Acquire) != seat::FREE
}

/// Whether this standby has been given up, and the log goes on without it: of its header's words none is about it any more.
pub fn is_given_up(header: &SegmentHeader) -> bool {
    let (own, pid) = (own(), state::REAL_PID.load(Ordering::Relaxed));
    // Whoever is not quite dead yet may find another in its seat. Nobody is named while one is being made.
    let is_another = |named: &AtomicU32| {
        let named = named.load(Ordering::Acquire);
        named != 0 && named != pid
    };
    let seat = &header.seats[own as usize];
    state::is_standby()
        && match seat.state.load(Ordering::Acquire) {
            seat::FOLLOWS => is_another(&seat.pid),
            seat::FREE => {
                header.heir.load(Ordering::Acquire) != own
                    || header.dropped.0.load(Ordering::Acquire) != 0
                    || is_another(&header.standby_pid)
            }
            _ => true,
        }
}

/// What the standby at `number` writes of a slot.
fn spare_entry(number: u32, slot: u32) -> &'static SpareEntry {
    debug_assert!((slot as usize) < THREADS_MAX, "a thread beyond the slots has no standby");
    let base = state::header().map_or(0, |header| core::ptr::from_ref(header) as usize) + SPARES_OFFSET;
    let at = slot as usize * (SEATS - 1) + number as usize - 1;
    // SAFETY: seats are below SEATS and slots below THREADS_MAX; the table lies in the mapped segment; atomics only.
    unsafe { &*(base as *const SpareEntry).add(at) }
}

/// Bytes of a slot's ring that the standby at `number` has applied. Only inside a group.
pub fn head_of(number: u32, slot: u32) -> &'static AtomicU64 {
    match number {
        0 => &state::entry(slot).head.0,
        _ => &spare_entry(number, slot).head,
    }
}

/// The same of this standby.
pub fn head(slot: u32) -> &'static AtomicU64 {
    head_of(own(), slot)
}

/// Kernel's id of a slot's thread in this standby, 0 before it exists.
pub fn tid(slot: u32) -> &'static AtomicU32 {
    tid_at(own(), slot)
}

/// The same in the standby at `number`.
fn tid_at(number: u32, slot: u32) -> &'static AtomicU32 {
    match number {
        0 => &state::entry(slot).standby_tid,
        number => &spare_entry(number, slot).tid,
    }
}

// ---- The primary's side ----

/// Whether there is a spare.
pub fn has_spares() -> bool {
    let follows = |of: &us_abi::Seat| of.state.load(Ordering::Acquire) == seat::FOLLOWS;
    state::header().is_some_and(|header| header.seats.iter().any(follows))
}

/// Whether any standby reads the log.
pub fn is_followed() -> bool {
    // In this order: a spare that becomes the heir is one before it is no spare any more.
    has_spares() || state::has_standby()
}

/// The seats of those who do.
pub fn followers() -> impl Iterator<Item = u32> + Clone {
    let header = state::header();
    // In this order, as above.
    let spares: [bool; SEATS] = core::array::from_fn(|number| {
        header.is_some_and(|header| header.seats[number].state.load(Ordering::Acquire) == seat::FOLLOWS)
    });
    let heir = header.filter(|_| state::has_standby()).map(|header| header.heir.load(Ordering::Acquire));
    (0..SEATS as u32).filter(move |number| Some(*number) == heir || spares[*number as usize])
}

/// Where the slowest of them is in a slot's ring, `None` if there is nobody.
pub fn slowest(slot: u32) -> Option<u64> {
    followers().map(|number| head_of(number, slot).acquire()).min()
}

/// How far the standby at `number` is in this ring.
pub fn view(number: u32, slot: u32) -> RingView {
    // The head first: it is never past a tail that is read later.
    let head = head_of(number, slot).acquire();
    RingView { head, tail: state::entry(slot).tail.0.acquire() }
}

/// The same in all rings.
pub fn views(number: u32, header: &SegmentHeader) -> impl Iterator<Item = RingView> {
    (0..header.slots.load(Ordering::Acquire)).map(move |slot| view(number, slot))
}

/// Bytes that the standby at `number` has not applied, in all rings.
pub fn unapplied_by(number: u32, header: &SegmentHeader) -> u64 {
    live::unapplied(views(number, header))
}

/// Whether the standby at `number` still exists. Asked only when a ring is full.
pub fn is_there(header: &SegmentHeader, number: u32) -> bool {
    let seat = &header.seats[number as usize];
    let pid = match seat.state.load(Ordering::Acquire) {
        seat::FREE => &header.standby_pid,
        _ => &seat.pid,
    };
    let pid = pid.load(Ordering::Relaxed);
    // SAFETY: signal 0 only asks.
    pid != 0 && unsafe { raw::call2(raw::nr::KILL, u64::from(pid), 0) } == 0
}

/// From here on the standby at `number` does not follow, if it is a spare that does.
pub fn drop_spare(header: &SegmentHeader, number: u32, cause: Cause, why: &[&[u8]]) -> bool {
    let seat = &header.seats[number as usize];
    let (from, to) = (seat::FOLLOWS, seat::DROPPED);
    if seat.state.load(Ordering::Acquire) != from {
        return false;
    }
    // First the reason: whoever sees the word looks for it.
    state::write_text(&seat.why, cause as u32, why);
    seat.state.compare_exchange(from, to, Ordering::AcqRel, Ordering::Acquire).is_ok()
}

/// The same of every spare: what no standby can follow.
pub fn drop_spares(header: &SegmentHeader, cause: Cause, why: &[&[u8]]) {
    drop_others(header, None, cause, why);
}

/// The same of every spare but the one in this seat.
pub fn drop_others(header: &SegmentHeader, stays: Option<u32>, cause: Cause, why: &[&[u8]]) {
    (0..SEATS as u32).filter(|number| Some(*number) != stays).for_each(|number| {
        drop_spare(header, number, cause, why);
    });
}

/// A standby is about to be made: whether there may be others besides it. See [`alone`].
pub fn decide(header: &SegmentHeader, in_family: bool, shares_memory: bool) {
    let alone = match shares_memory {
        _ if in_family => alone::FAMILY,
        true => alone::MEMORY,
        false => alone::NO,
    };
    header.alone.store(alone, Ordering::Release);
}

/// A free seat for a new standby. Those that sit elsewhere stay, and so does an heir that has been given up and is not dead yet: it
/// still says how far it comes.
pub fn free(header: &SegmentHeader) -> Option<u32> {
    let heir = header.heir.load(Ordering::Acquire);
    let heir = (state::has_standby() || is_there(header, heir)).then_some(heir);
    let is_free = |number: &u32| {
        let state = &header.seats[*number as usize].state;
        state.load(Ordering::Acquire) == seat::FREE && Some(*number) != heir
    };
    (0..SEATS as u32).find(is_free)
}

/// A standby that is made now and sits at `number` has nothing to apply.
pub fn begin_at_tails(header: &SegmentHeader, number: u32) {
    // The first slot is in use before it has been said.
    for slot in 0..header.slots.load(Ordering::Acquire).max(1) {
        head_of(number, slot).release(state::entry(slot).tail.0.load(Ordering::Acquire));
    }
}

/// Pids of spares, whether they follow or have been dropped and are about to end.
pub fn spares(header: &SegmentHeader) -> impl Iterator<Item = u32> {
    let there = header.seats.iter().filter(|seat| seat.state.load(Ordering::Acquire) != seat::FREE);
    there.map(|seat| seat.pid.load(Ordering::Acquire)).filter(|pid| *pid != 0)
}

/// The processes of all standbys. The heir comes last, and is asked for behind the others: one of them may be it by then.
pub fn copies() -> impl Iterator<Item = u32> {
    state::header().into_iter().flat_map(|header| {
        let heir = core::iter::once_with(|| header.standby_pid.load(Ordering::Acquire));
        spares(header).chain(heir.filter(|pid| *pid != 0))
    })
}

// ---- A promotion ----

/// As the chosen standby, which may be killed before it is primary: files about this process come into the shared table.
pub fn takes(header: &SegmentHeader) {
    header.seats[own() as usize].taker.store(state::REAL_PID.load(Ordering::Relaxed), Ordering::Release);
}

/// This copy is the primary, and there are no files about those that died on their way.
pub fn has_taken(header: &SegmentHeader) {
    let others = header.seats.iter().enumerate().filter(|(number, _)| *number != own() as usize);
    others.for_each(|(_, seat)| seat.taker.store(0, Ordering::Release));
}

/// The seats of those who may have left such files.
fn takers(header: &SegmentHeader) -> impl Iterator<Item = (u32, u32)> {
    let pids = header.seats.iter().map(|seat| seat.taker.load(Ordering::Acquire));
    (0..).zip(pids).filter(|(_, pid)| *pid != 0)
}

/// Whether `pid` is a copy that took over before this one, whether or not it became primary.
pub fn is_taker(header: &SegmentHeader, pid: u32) -> bool {
    takers(header).any(|(_, taker)| taker == pid)
}

/// Whether `tid` was a slot's thread in such a copy.
pub fn was_of_taker(header: &SegmentHeader, slot: u32, tid: u32) -> bool {
    takers(header).any(|(number, _)| tid_at(number, slot).load(Ordering::Relaxed) == tid)
}

/// Pause between two looks at spares that are awaited, ns.
const LOOK_NS: u64 = 20_000;

/// As the chosen standby: waits until every spare has applied what it has itself, or is given up because it does not
/// move. What settling appends needs room in the rings, and behind the promotion no spare could tell a ticket that
/// died with the primary from one that is late.
pub fn await_spares(header: &SegmentHeader) {
    await_each(header, |number| unapplied_by(number, header) == 0);
}

/// As the chosen standby: nothing more is to be applied. Waits until every spare has heard of it, and closes no gaps
/// any more.
pub fn let_spares_go_on(header: &SegmentHeader) {
    let promotion = header.promotions.load(Ordering::Acquire);
    // Before the look at who is there: a spare that comes now sees it, or is waited for.
    header.drained.store(promotion, Ordering::SeqCst);
    fence(Ordering::SeqCst);
    raw::futex_wake_shared(&header.command.0);
    await_each(header, |number| {
        let seat = &header.seats[number as usize];
        // Whoever is only being born hears by this that nothing has happened without it.
        seat.awaited.store(promotion, Ordering::Release);
        seat.attended.load(Ordering::Acquire) == promotion
    });
}

/// As a spare whose first step has come behind the last word of a promotion, and whose maker has died: whether it is one of those
/// who follow. It is if the one that took over waits for it, or has died itself before it acted. `epoch` was that of its maker.
pub fn is_awaited(header: &SegmentHeader, epoch: u32) -> bool {
    const LOOKS: u32 = 50_000;
    let seat = &header.seats[own() as usize];
    for _ in 0..LOOKS {
        if seat.awaited.load(Ordering::Acquire) == header.promotions.load(Ordering::Acquire) {
            return true;
        }
        // In this order: it is named only when the other one is dead.
        let is_chosen = header.chosen.load(Ordering::Acquire) == state::REAL_PID.load(Ordering::Relaxed);
        if header.epoch.load(Ordering::Acquire) != epoch {
            return false;
        }
        if is_chosen {
            return true;
        }
        raw::nap(LOOK_NS);
    }
    false
}

fn await_each(header: &SegmentHeader, is_ready: impl Fn(u32) -> bool) {
    let limit_ns = state::LAG_TIMEOUT_NS.load(Ordering::Relaxed);
    let (start, mut moved_ns, mut before) = (raw::now_ns(), raw::now_ns(), u64::MAX);
    loop {
        let late = |number: &u32| {
            let follows = header.seats[*number as usize].state.load(Ordering::Acquire) == seat::FOLLOWS;
            follows && !is_ready(*number)
        };
        let waits = || (0..SEATS as u32).filter(late);
        if waits().next().is_none() {
            return;
        }
        let (now_ns, behind) = (raw::now_ns(), waits().map(|number| unapplied_by(number, header)).sum());
        if behind != before {
            (moved_ns, before) = (now_ns, behind);
        }
        if now_ns - moved_ns > limit_ns || now_ns - start > LIMITS * limit_ns {
            for number in waits() {
                let why = b"the spare standby did not come to the end of the dead primary's log in time";
                drop_spare(header, number, Cause::Behind, &[why]);
            }
            state::attention();
        }
        raw::nap(LOOK_NS);
    }
}

/// A spare that moves is waited for this many times as long as one that does not.
const LIMITS: u64 = 10;

/// Bytes in all rings that have been published and not been applied, by this standby.
pub fn unapplied(header: &SegmentHeader) -> u64 {
    unapplied_by(own(), header)
}
