//! From standby to primary: drain, settle, go live.
//!
//! The primary is dead and fenced, so the rings are final. A thread that has applied everything waits; only
//! when no ring of the group holds an unapplied event may anybody act, because such an event is something
//! that has already happened. Then the calls that the primary had begun and not finished are settled, and
//! every thread takes its place.

use core::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use us_abi::event::{EventKind, Header};
use us_abi::{CLOCKS, Cause, GroupState, NO_TICKET, SegmentHeader, command, slot};
use us_order::gap::{self, Pending};

use crate::clock::{self, KERNEL};
use crate::door::{numbers, own_files, witness};
use crate::fault::{self, Point};
use crate::invariant::{self, Still};
use crate::kernel::{PR_SET_NAME, PR_SET_PDEATHSIG};
use crate::mapping::{pieces, views};
use crate::members::{self, leader, of_family};
use crate::standby::stall::Stall;
use crate::standby::{makers, mirrored, poll, settle};
use crate::state::{self, Role};
use crate::sys::wall;
use crate::thread::{self, Mode, Thread};
use crate::turns::{milestones, successor, turn_order};
use crate::{backlog, family, fdtable, mirror, notice, raw, real, recorder, seats, signal, twins};

/// Looks at rings of which nothing moves, until shared memory is shown as it is: 50 ms.
const STUCK: u32 = 300;
/// The same where it is kept alike: 1 s. On a busy machine a thread that has work to do may not run for long.
const STUCK_ALIKE: u32 = 5_000;
/// The same, until a standby that is elsewhere gives up: 5 s.
const HOPELESS: u32 = 25_000;
/// How long a standby in which nothing happens at all is waited for, ns.
const HOPELESS_NS: u64 = 5_000_000_000;
/// How long a thread is given to come to its next door before memory that is kept alike is shown as it is, ns.
const ALIKE_NS: u64 = 1_000_000_000;
/// The same where every thread waits for another one: each moment longer is one in which nobody serves.
const ASLEEP_NS: u64 = 150_000_000;

/// The same where some thread computes, and no event is applied meanwhile, ns: it may spin on a plain load, for a store of a thread that
/// waits for this one. One that has only computed less than its primary is behind by a standby's lag at the most, and is given twice that.
const SPINS_NS: u64 = 10_000_000_000;

/// Whether this standby is the one that is to take over.
pub fn is_chosen(header: &SegmentHeader) -> bool {
    header.chosen.load(Ordering::Acquire) == state::REAL_PID.load(Ordering::Relaxed)
}

/// As a spare, while another standby takes over: applies all that the dead primary had logged, and what settling appends.
/// Gaps are closed as in the one that takes over, and no longer than that says: behind it a ticket that is missing is late.
pub fn attend(header: &SegmentHeader) {
    const LOOK_NS: u64 = 50_000;
    let own = &header.seats[seats::own() as usize].attended;
    let (mut before, mut still) = (u64::MAX, 0u32);
    while header.command.0.load(Ordering::Acquire) == command::PROMOTE && !is_chosen(header) {
        let promotion = header.promotions.load(Ordering::Acquire);
        if own.load(Ordering::Relaxed) == promotion {
            return;
        }
        if header.drained.load(Ordering::Acquire) == promotion {
            return own.store(promotion, Ordering::Release);
        }
        let now = seats::unapplied(header);
        still = if now != 0 && now == before { still + 1 } else { 0 };
        before = now;
        thread::wake_sleepers();
        if still > 2 {
            close_gaps(header);
        }
        raw::futex_wait_shared(&header.command.0, command::PROMOTE, LOOK_NS);
    }
}

/// The thread that has forked a copy is on its way to its place in it.
static AWAITS_LEADER: AtomicBool = AtomicBool::new(false);

/// In a new copy, before its poller: its first thread takes its place last.
pub fn awaits_leader() {
    AWAITS_LEADER.store(true, Ordering::Release);
}

/// By that thread, in its place.
pub fn leader_has_settled() {
    AWAITS_LEADER.store(false, Ordering::Release);
}

/// The poller's last work.
pub fn run(header: &SegmentHeader) {
    // A thread without its place has no number: a signal that waits for it alone would be sent to nobody, and it would not be
    // called to life. It waits for nobody.
    while AWAITS_LEADER.load(Ordering::Acquire) {
        raw::nap(20_000);
    }
    // First: once the supervisor has reaped the dead primary nobody knows its group.
    numbers::join_group();
    successor::take_over(header);
    fault::at(Point::Drain, 0);
    let rings = Still::final_now(header);
    milestones::set_final(true);
    invariant::tickets_ascend(header, &Shared::Kernel, KERNEL.0.load(Ordering::Acquire), pending);
    drain(header);
    let is_mirrored = state::is_mirrored();
    // What a mirror's rings hold beyond their tails is nobody's.
    if !is_mirrored {
        if settle::publish_whole() {
            drain(header);
        }
        settle::creations_of_two();
        drain(header);
    }
    header.drained_ns.store(raw::now_ns(), Ordering::Relaxed);
    fault::at(Point::Settle, 0);
    recorder::await_room(header);
    seats::await_spares(header);
    invariant::applied_is_published(header, seats::own());
    rings.goes_on(header);
    if is_mirrored {
        mirror::take_over(header);
    }
    // Before what was in doubt is judged: where the position of a file about a process that is gone is set, the kernel makes it 0.
    own_files::open_again(header);
    if is_mirrored {
        mirrored::settle();
        drain(header);
    } else {
        settle_all(header);
    }
    seats::await_spares(header);
    seats::let_spares_go_on(header);
    family::settle_together(pieces::put_back);
    let family = of_family::taken_over();
    if twins::is_active() {
        // What a thread stores on its way to its next door the dead primary may have stored: done to the memory itself, an addition
        // would be made twice, and one between the last look and the change of the mapping not at all.
        family::await_standing(ALIKE_NS, 2 * ALIKE_NS);
    }
    views::make_real();
    if is_mirrored {
        twins::choice::share_again();
    }
    crate::door::common::finish();
    views::nothing_is_elsewhere();
    crate::door::epoll::rearm();
    // Those that calls in doubt have opened are known only now.
    own_files::open_again(header);
    leader::lead_again();
    fault::at(Point::Become, 0);
    recorder::cut(header);
    become_primary(header);
    fault::at(Point::Open, 0);
    family::has_taken_over(family);
    if members::is_to_stop() {
        // Before anybody may go on: a thread that looks just now would take a step.
        stop(header);
    }
    state::LIVE.store(true, Ordering::SeqCst);
    milestones::set_final(false);
    thread::wake_all();
    // A thread that was between its last look and its sleep hears the second bell.
    for _ in 0..5 {
        if is_all_live() {
            return;
        }
        raw::nap(200_000);
        thread::wake_all();
        call_to_life();
    }
}

/// Completes the calls in doubt that the dead primary had done.
fn settle_all(header: &SegmentHeader) {
    let (in_doubt, unsettled, claimed) = settle::all(header);
    header.in_doubt.store(in_doubt, Ordering::Relaxed);
    header.unsettled.store(unsettled, Ordering::Relaxed);
    if unsettled != 0 {
        // What those calls have moved is in no count: the next clone asks the kernel.
        fdtable::distrust();
    }
    // Threads that were completed by settlement apply that first.
    drain(header);
    if header.config.standbys > 1 {
        makers::close_left_open(&claimed);
    }
}

/// Whether no thread follows any more. Asked of a process of one thread alone, which waits for the end of this one: of others
/// some may be about to begin.
fn is_all_live() -> bool {
    let mut all = real::single_threaded();
    thread::for_each(|thread| {
        all &= seats::tid(thread.slot()).load(Ordering::Relaxed) == 0 || thread.calls() != Mode::Replay;
    });
    all
}

/// The dead primary was stopped, so no thread goes on before somebody lets this one go on.
fn stop(header: &SegmentHeader) {
    use crate::kernel::SIGSTOP;
    is_live(header);
    // SAFETY: to our own process.
    unsafe { raw::call2(raw::nr::KILL, u64::from(state::REAL_PID.load(Ordering::Relaxed)), SIGSTOP) };
}

/// This copy has said that it is live. Its threads go live one by one, and by the time that the last one does the group may
/// be protected again, by a spare.
static IS_SAID: AtomicBool = AtomicBool::new(false);

/// In a new standby: what its primary once said is not said of it.
pub fn forget() {
    IS_SAID.store(false, Ordering::Relaxed);
}

/// Says, once, that this copy is live.
fn is_live(header: &SegmentHeader) {
    if IS_SAID.swap(true, Ordering::AcqRel) {
        return;
    }
    if header.live_ns.compare_exchange(0, raw::now_ns(), Ordering::AcqRel, Ordering::Acquire).is_ok() {
        if let Some(own) = members::own() {
            // The fault that the dead primary was about to die of. A copy that comes to it before it is live has died of it
            // as well; one that comes to it later says so again.
            own.will.store(0, Ordering::SeqCst);
        }
        header.state.0.store(GroupState::Unprotected as u32, Ordering::Release);
        state::attention();
    }
}

/// A thread that computes meets no door for a while, and blocks every signal until it is live: it is told.
fn call_to_life() {
    thread::for_each(|thread| {
        let tid = seats::tid(thread.slot()).load(Ordering::Relaxed);
        if tid != 0 && thread.calls() == Mode::Replay {
            crate::sys::trap::nudge(tid);
        }
    });
}

/// Until every ring is applied. Where nothing moves, a ticket may be missing that the primary took and never
/// published, or a thread that it made without having said so.
fn drain(header: &SegmentHeader) {
    let mut before = u64::MAX;
    let mut still = 0u32;
    let mut stall = Stall::new();
    let mut moved_ns = raw::now_ns();
    loop {
        let now = seats::unapplied(header);
        if now == 0 {
            return;
        }
        still = if now == before { still + 1 } else { 0 };
        if still == 0 {
            moved_ns = raw::now_ns();
        }
        before = now;
        thread::wake_sleepers();
        if still > 2 {
            settle::creations(header);
            close_gaps(header);
        }
        if still == STUCK && views::is_any_elsewhere() {
            // A thread may be spinning on what it sees of memory that others have changed since: shown as it is now.
            views::make_unknown_real();
        }
        if still == STUCK_ALIKE && views::is_any_elsewhere() {
            views::make_real();
        }
        if still == HOPELESS && views::is_any_elsewhere() {
            // It has gone another way than its primary, for a reason that is in no log. Nobody takes over.
            crate::verdict::give_up_standby(&[
                b"the standby of a process that shares memory did not come to the log's end",
            ]);
        }
        if stall.is_one(header, ASLEEP_NS)
            && (stall.still_ns() >= HOPELESS_NS || (!views::is_any_elsewhere() && stall.is_asleep()))
        {
            // Whoever waits for it would wait for ever; its end can at least be seen.
            crate::verdict::give_up_standby(&[b"the standby stood still and did not come to the log's end"]);
        }
        if raw::now_ns() - moved_ns > SPINS_NS.max(2 * state::LAG_TIMEOUT_NS.load(Ordering::Relaxed)) {
            crate::verdict::give_up_standby(&[b"the standby spun and did not come to the log's end"]);
        }
        raw::nap(if still < 50 { 20_000 } else { 200_000 });
    }
}

/// Skips tickets that can never come: nobody has published anything lower for that clock.
pub fn close_gaps(header: &SegmentHeader) {
    thread::for_each(|thread| {
        let awaited = thread.awaited.load(Ordering::Acquire);
        // SAFETY: clocks are statics, or lie in guest objects that their waiter keeps alive.
        let Some(clock) = (unsafe { awaited.as_ref() }) else { return };
        let Some(number) = shared_number(clock) else { return };
        let slots = 0..header.slots.load(Ordering::Acquire);
        let lowest = gap::lowest_unconsumed(slots.flat_map(backlog::unapplied).filter_map(pending), &number);
        // Read after the scan: an older value could set the clock back behind an event just applied.
        let shown = clock.load(Ordering::Acquire);
        if let Some(to) = gap::skip_to(shown, lowest) {
            invariant::tickets_ascend(header, &number, shown, pending);
            clock::advance(clock, to);
        }
    });
}

/// A clock that several objects or threads share and that can therefore have a gap. The clock inside a mutex
/// cannot: its ticket is published before the mutex is released.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Shared {
    Kernel,
    Hashed(u16),
}

fn shared_number(clock: &AtomicU64) -> Option<Shared> {
    if core::ptr::eq(clock, &KERNEL.0) {
        return Some(Shared::Kernel);
    }
    (0..CLOCKS as u16).find(|number| core::ptr::eq(clock, clock::hashed(*number))).map(Shared::Hashed)
}

/// What of an event matters to gaps: its ticket, if that is of a clock that can have one.
fn pending(event: Header) -> Option<Pending<Shared>> {
    let clock = clock_of(&event).filter(|_| event.ticket != NO_TICKET)?;
    Some(Pending { clock, ticket: event.ticket })
}

fn clock_of(event: &Header) -> Option<Shared> {
    match EventKind::from_u8(event.kind)? {
        EventKind::Enter | EventKind::Return | EventKind::Call | EventKind::Signal => Some(Shared::Kernel),
        EventKind::Ordered | EventKind::OnceRun => Some(Shared::Hashed(event.call & (CLOCKS as u16 - 1))),
        _ => None,
    }
}

/// What the process itself has to become.
fn become_primary(header: &SegmentHeader) {
    let pid = state::REAL_PID.load(Ordering::Relaxed);
    // SAFETY: attributes of our own process and its main thread.
    unsafe {
        raw::call2(raw::nr::PRCTL, PR_SET_PDEATHSIG, 0);
    }
    // Before anybody is live: a thread may ask for another one's, and set it.
    thread::for_each(|thread| {
        let tid = seats::tid(thread.slot()).load(Ordering::Relaxed);
        // SAFETY: asks whether there is such a thread; the slot's last one may be gone.
        if tid != 0 && unsafe { raw::call3(raw::nr::TGKILL, u64::from(pid), u64::from(tid), 0) } == 0 {
            thread.set_kernel_tid(tid);
            crate::door::thread_place::give_early(header, thread, tid);
        }
    });
    turn_order::take_over();
    header.primary_pid.store(pid, Ordering::Release);
    seats::has_taken(header);
    header.standby_pid.store(0, Ordering::Release);
    // The dead primary's notices must not be taken for ours.
    for slot in 0..header.slots.load(Ordering::Acquire) {
        let entry = state::entry(slot);
        entry.notice.word.store(0, Ordering::Release);
        if entry.state.load(Ordering::Relaxed) == slot::CREATING {
            entry.state.store(slot::FREE, Ordering::Relaxed);
        }
    }
    // One that has been put together from a checkpoint follows nobody.
    let is_first = state::IS_RESTORED.swap(false, Ordering::Relaxed);
    header.epoch.fetch_add(u32::from(!is_first), Ordering::AcqRel);
    header.dropped.0.store(Cause::Promoted as u32, Ordering::Release);
    state::write_text(
        &header.why.0,
        Cause::Promoted as u32,
        &[b"the standby was promoted and there is no other"],
    );
    state::PROMOTED_NS.store(raw::now_ns(), Ordering::Relaxed);
    state::set_role(Role::Primary);
    crate::sys::versions::publish(header);
    crate::door::process::take_over_attributes();
    crate::door::pending::forget_strays();
    crate::door::timer::set_again();
    crate::door::owner::set_again();
    crate::door::pending::raise_all();
}

/// Takes the calling thread's place among the living.
pub fn go_live(thread: &mut Thread) {
    if thread.is_live() {
        return;
    }
    thread.set_live(true);
    thread.signals.resumed = true;
    // Whatever has begun in the log is begun anew, perhaps in a copy that is made before the fork's own door.
    thread.begun_mut().is_fork = false;
    thread.begun_mut().was_entered = !mirror::has_taken_over() && witness::entered(thread.entry());
    let mode = if recorder::is_read() { Mode::Record } else { Mode::Solo };
    // As it has followed: a thread that is about to make the first other one is in order with it already.
    let locks = if thread.locks() == Mode::Solo { Mode::Solo } else { mode };
    thread.lock_mode.store(locks as u8, Ordering::Relaxed);
    thread.call_mode.store(mode as u8, Ordering::Relaxed);
    if mode == Mode::Record {
        recorder::take_over(thread);
        if !recorder::is_read() {
            // Ended meanwhile, by one who may have come by here before us.
            crate::thread::stop_logging();
        }
    }
    resume(thread);
}

/// What a thread that has become live gives itself: its name, what it asked of the scheduler, the signals that were kept for it, and
/// the guest's mask instead of a standby's.
pub fn resume(thread: &mut Thread) {
    let tid = raw::gettid();
    // SAFETY: the name that the guest gave this thread, instead of the one that says "standby".
    unsafe { raw::call2(raw::nr::PRCTL, PR_SET_NAME, thread.place.name().as_ptr() as u64) };
    if !thread.place.is_given.swap(false, Ordering::AcqRel)
        && let Some(header) = state::header()
    {
        thread.set_kernel_tid(tid);
        crate::door::thread_place::give(header, thread, tid);
    }
    notice::register(thread, tid);
    if let Some(header) = state::header() {
        is_live(header);
    }
    crate::door::pending::requeue(thread);
    if real::single_threaded() {
        poll::await_end();
    }
    wall::settle(thread);
    // Last: a fatal signal that was raised again ends a live program here, not a standby.
    signal::set_mask(thread, thread.signals.mask);
    signal::notice_cancellation(thread);
}
