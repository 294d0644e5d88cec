//! Processes that share memory which no log tells of: fenced and promoted together. [`us_abi::Family`] says how they follow.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use rustix::process::Signal;
use us_abi::{Family, GroupState, SegmentHeader, broken, phase};
pub use us_order::family::Together;
use us_order::family::{self as rules, Fallen, Phase};

use crate::child::Child;
use crate::clock;
use crate::roster::Roster;
use crate::segment::{wake, write_text};
use crate::sentry::{self, Shared};

// The roster has the numbers of the phases, the rules have their names.
const _: () = assert!(phase::NONE == Phase::None as u32 && phase::FORMING == Phase::Forming as u32);
const _: () = assert!(phase::ACTIVE == Phase::Active as u32 && phase::BROKEN == Phase::Broken as u32);
const _: () = assert!(phase::PROMOTING == Phase::Promoting as u32);

/// How long a standby that was ready too late waits until the others have taken over, ns. They give up before.
const OTHERS_NS: u64 = 6_000_000_000;

/// What the threads of the supervisor know of the processes of a group.
#[derive(Default)]
pub struct Kin {
    all: Mutex<Vec<Weak<Shared>>>,
    /// While those of a family are fenced: how many of their standbys have come to a fault of the program's own. Those who wait for
    /// each other are counted behind that.
    fallen: Mutex<Option<u32>>,
}

impl std::fmt::Debug for Kin {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Kin")
    }
}

impl Kin {
    /// One more process is watched.
    pub fn add(&self, shared: &Arc<Shared>) {
        if let Ok(mut all) = self.all.lock() {
            all.retain(|known| known.strong_count() > 0);
            all.push(Arc::downgrade(shared));
        }
    }

    fn all(&self) -> Vec<Arc<Shared>> {
        self.all.lock().map(|all| all.iter().filter_map(Weak::upgrade).collect()).unwrap_or_default()
    }
}

/// The state of the group's family.
pub fn state(roster: &Roster) -> Phase {
    Phase::from_number(roster.family().state.0.load(Ordering::Acquire))
}

/// Whether the process is of the present family, or to be.
pub fn has(roster: &Roster, header: &SegmentHeader) -> bool {
    let number = header.family.load(Ordering::Acquire);
    number != 0 && number == roster.family().number.load(Ordering::Acquire)
}

/// Whether the process's standby follows for itself alone, or in a family whose order goes on.
pub fn may_take_over(shared: &Shared) -> bool {
    rules::may_take_over(has(&shared.roster, shared.segment.header()), state(&shared.roster))
}

/// Whether the process is of a family whose standbys are taking over.
pub fn is_promoting(shared: &Shared) -> bool {
    has(&shared.roster, shared.segment.header()) && state(&shared.roster) == Phase::Promoting
}

/// The log of a process has ended, and with it those of its family. `code` is a value of [`broken`].
pub fn break_up(roster: &Roster, header: &SegmentHeader, code: u32, why: &str) {
    let family = roster.family();
    if !has(roster, header) {
        return;
    }
    for from in Phase::CAN_BREAK.map(|phase| phase as u32) {
        let word = &family.state.0;
        if word.compare_exchange(from, phase::BROKEN, Ordering::AcqRel, Ordering::Acquire).is_ok() {
            write_text(&family.why, code, why);
            wake(&family.order.word.0);
        }
    }
}

/// The family that is being formed is none: its members are not all who share the memory.
pub fn give_up(roster: &Roster, why: &str) {
    let family = roster.family();
    write_text(&family.why, broken::MEMBERS, why);
    family.state.0.store(phase::BROKEN, Ordering::SeqCst);
}

/// A family is to be formed of so many processes, which all stand without a log: everything as it is before the first turn.
pub fn begin(family: &Family, members: u32) -> u32 {
    family.order.reset();
    for region in &family.regions {
        region.object.store(0, Ordering::Relaxed);
        region.range.iter().for_each(|word| word.store(0, Ordering::Relaxed));
        region.put_back.store(0, Ordering::Relaxed);
    }
    for count in [&family.standing, &family.forked, &family.settled, &family.whole, &family.live] {
        count.store(0, Ordering::Relaxed);
    }
    family.members.store(members, Ordering::Relaxed);
    let number = family.number.load(Ordering::Relaxed).wrapping_add(1).max(1);
    family.number.store(number, Ordering::Release);
    family.state.0.store(phase::FORMING, Ordering::SeqCst);
    number
}

/// The primary of one of a family dies: all of them are fenced, and all of their standbys take over. In a sentry's thread.
pub fn fail_over(of: &Shared, noticed_ns: u64) -> Together {
    if !has(&of.roster, of.segment.header()) {
        return Together::Alone;
    }
    if !begin_promoting(&of.roster) {
        return await_others(of);
    }
    take_over(&of.roster, noticed_ns);
    Together::Begun
}

/// The same by the main thread, which waits for nobody here: a member's standby is not known before that thread has looked, and
/// one that took over unknown was taken for a death without a standby.
pub fn fail_over_aside(of: &Shared, noticed_ns: u64) -> Together {
    if !has(&of.roster, of.segment.header()) {
        return Together::Alone;
    }
    if !begin_promoting(&of.roster) {
        return rules::together(state(&of.roster), sentry::state(&of.segment) == GroupState::Protected);
    }
    let roster = Arc::clone(&of.roster);
    if sentry::thread("family", move || take_over(&roster, noticed_ns)).is_err() {
        take_over(&of.roster, noticed_ns);
    }
    Together::Begun
}

fn begin_promoting(roster: &Roster) -> bool {
    let (from, to) = (phase::ACTIVE, phase::PROMOTING);
    let state = &roster.family().state.0;
    // Under the lock: a standby that ends from here on is one of those who take over.
    roster.kin.fallen.lock().is_ok_and(|mut fallen| {
        let is_first = state.compare_exchange(from, to, Ordering::SeqCst, Ordering::Acquire).is_ok();
        if is_first {
            *fallen = Some(0);
        }
        is_first
    })
}

/// Everything behind the word that says so.
fn take_over(roster: &Roster, noticed_ns: u64) {
    let family = roster.family();
    let follows = |shared: &Arc<Shared>| {
        let is_member = has(roster, shared.segment.header());
        rules::takes_part(is_member, sentry::state(&shared.segment) == GroupState::Protected)
    };
    let mut members: Vec<(Arc<Shared>, Child)> = roster
        .kin
        .all()
        .into_iter()
        .filter(follows)
        .filter_map(|shared| shared.primary().map(|primary| (shared, primary)))
        .collect();
    members.iter().for_each(|(shared, _)| shared.await_standby());
    members.retain(|(shared, primary)| sentry::begin_promotion(shared, primary));
    for (_, primary) in &members {
        let _ = rustix::process::pidfd_send_signal(&primary.pidfd, Signal::KILL);
    }
    members.iter().for_each(|(shared, primary)| sentry::fence(&shared.segment, primary));
    for count in [&family.settled, &family.whole, &family.live] {
        count.store(0, Ordering::Relaxed);
    }
    if let Ok(mut fallen) = roster.kin.fallen.lock() {
        let left = rules::to_take_over(members.len() as u32, fallen.take().unwrap_or_default());
        family.members.store(left, Ordering::Release);
        if left == 0 {
            comes_to_nothing(family);
        }
    }
    // One whose standby has ended meanwhile has nobody, as the main thread has found.
    let heir_of = |shared: &Shared| Some(shared.standby()).filter(|heir| *heir != 0);
    for (shared, _) in &members {
        shared.segment.header().death_ns.0.store(noticed_ns, Ordering::Release);
        if let Some(heir) = heir_of(shared) {
            roster.failed_over(shared.place, heir, crate::spawn::exists);
        }
    }
    for (shared, _) in &members {
        if let Some(heir) = heir_of(shared) {
            sentry::promote(shared, heir);
        }
        wake(&shared.segment.header().state.0);
        shared.ring_bell();
    }
}

/// The standby of one of a family has ended while all take over.
pub fn cannot_take_over(of: &Shared, is_fault: bool) {
    if !is_promoting(of) {
        return;
    }
    let family = of.roster.family();
    let Ok(mut fallen) = of.roster.kin.fallen.lock() else { return };
    if let Some(fallen) = fallen.as_mut().filter(|_| is_fault) {
        *fallen += 1;
        return;
    }
    match rules::fallen(is_fault, family.members.load(Ordering::Acquire)) {
        Fallen::Fewer => drop(family.members.fetch_sub(1, Ordering::AcqRel)),
        Fallen::Nobody => comes_to_nothing(family),
    }
}

/// Nobody takes over.
fn comes_to_nothing(family: &Family) {
    let (from, to) = (phase::PROMOTING, phase::BROKEN);
    let _ = family.state.0.compare_exchange(from, to, Ordering::AcqRel, Ordering::Acquire);
}

/// Somebody was first.
fn await_others(of: &Shared) -> Together {
    let until_ns = clock::monotonic_ns() + OTHERS_NS;
    while state(&of.roster) == Phase::Promoting && clock::monotonic_ns() < until_ns {
        std::thread::sleep(Duration::from_micros(100));
    }
    rules::together(state(&of.roster), sentry::state(&of.segment) == GroupState::Protected)
}
