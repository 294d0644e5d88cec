//! The processes of a group: the roster that all of them map, and how a child joins.
//!
//! What parents and children must know of each other outlives each of their copies, so it stands neither in the log
//! nor in a segment: who is whose child, how one ended that the kernel can no longer tell its parent of. Which process is
//! a number's primary now is in the [`registry`].

mod asked;
pub mod config;
pub mod leader;
pub mod mail;
pub mod of_family;
pub mod registry;
mod sent;

use core::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, Ordering};

use us_abi::{
    CONTINUED, MAGIC, PROCESSES_MAX, Process, ROSTER_ADDRESS, ROSTER_BYTES, Roster, RosterHeader, VERSION,
    end, kin, process,
};

use crate::raw::{self, failed, nr};
use crate::{own_file, proc, state};

pub use asked::{is_not_asked, may_be_asked};
pub use sent::{
    Sending, each_unseen, is_raised_again, note_send, noted, seen, sender_of_raised, sent_so_far, take_back,
};

static ROSTER: AtomicPtr<Roster> = AtomicPtr::new(core::ptr::null_mut());
/// This process's entry.
static OWN: AtomicPtr<Process> = AtomicPtr::new(core::ptr::null_mut());

fn be(entry: Option<&'static Process>) {
    let entry = entry.map_or(core::ptr::null_mut(), |entry| (&raw const *entry).cast_mut());
    OWN.store(entry, Ordering::Relaxed);
    sent::forget();
}

fn roster() -> Option<&'static Roster> {
    // SAFETY: null, or a mapping that is never removed, of atomics and constants only.
    unsafe { ROSTER.load(Ordering::Relaxed).as_ref() }
}

/// Who has which place of the file of what connections have sent.
pub fn sent() -> &'static [us_abi::Sent] {
    roster().map_or(&[][..], |roster| &roster.sent)
}

/// The roster's head, `None` outside a group.
pub fn header() -> Option<&'static RosterHeader> {
    roster().map(|roster| &roster.header)
}

/// Whether the group ends, and nobody joins it any more.
pub fn is_closing() -> bool {
    header().is_some_and(|roster| roster.closing.load(Ordering::SeqCst) != 0)
}

/// The group's family, `None` outside a group.
pub fn family() -> Option<&'static us_abi::Family> {
    roster().map(|roster| &roster.family)
}

/// Maps the roster, a file of that path. In the constructor.
///
/// # Safety
/// The path ends with NUL.
pub unsafe fn map(path: *const u8) -> bool {
    const READ_WRITE: u64 = 3;
    const SHARED_NOREPLACE: u64 = 0x10_0001;
    // SAFETY: opens and maps a file that the supervisor has made; the descriptor does not stay in the guest's table.
    unsafe {
        let file = own_file::open(path, own_file::READ_WRITE);
        if failed(file) {
            return false;
        }
        let args = [ROSTER_ADDRESS as u64, ROSTER_BYTES as u64, READ_WRITE, SHARED_NOREPLACE, file as u64, 0];
        let mapped = raw::call6(nr::MMAP, args);
        raw::call1(nr::CLOSE, file as u64);
        if mapped != ROSTER_ADDRESS as i64 {
            return false;
        }
        let roster = ROSTER_ADDRESS as *mut Roster;
        if (*roster).header.magic != MAGIC || (*roster).header.version != VERSION || !registry::map() {
            raw::call2(nr::MUNMAP, ROSTER_ADDRESS as u64, ROSTER_BYTES as u64);
            return false;
        }
        ROSTER.store(roster, Ordering::Release);
    }
    true
}

/// Every process that is listed.
pub fn listed() -> impl Iterator<Item = &'static Process> {
    let used = header().map_or(0, |header| header.used.load(Ordering::Acquire) as usize).min(PROCESSES_MAX);
    let all = roster().map_or(&[][..], |roster| &roster.processes[..used]);
    all.iter().filter(|entry| entry.state.load(Ordering::Acquire) == process::LISTED)
}

/// The process with this number, as its relatives know it.
pub fn find(pid: u32) -> Option<&'static Process> {
    listed().find(|entry| entry.pid.load(Ordering::Relaxed) == pid)
}

/// This process's own entry.
pub fn own() -> Option<&'static Process> {
    // SAFETY: null, or an entry of the roster, which is never unmapped.
    let known = unsafe { OWN.load(Ordering::Relaxed).as_ref() };
    // The supervisor lists the group's first process, perhaps after that has begun.
    known.or_else(|| {
        let found = find(state::GUEST_PID.load(Ordering::Relaxed))?;
        OWN.store((&raw const *found).cast_mut(), Ordering::Relaxed);
        Some(found)
    })
}

/// The children of this process.
pub fn children() -> impl Iterator<Item = &'static Process> {
    let parent = state::GUEST_PID.load(Ordering::Relaxed);
    listed().filter(move |entry| entry.parent.load(Ordering::Relaxed) == parent)
}

/// Where an entry stands in the roster.
pub fn index_of(entry: &Process) -> Option<usize> {
    let base = (&raw const roster()?.processes).addr();
    Some(((&raw const *entry).addr() - base) / size_of::<Process>())
}

/// The children of this process of which the supervisor, and not the kernel, will tell.
pub fn adopted() -> impl Iterator<Item = &'static Process> {
    children().filter(|entry| entry.kin.load(Ordering::Acquire) == kin::ADOPTED)
}

/// Whether an adopted child has ended, and there is that to tell.
pub fn has_ended(entry: &Process) -> bool {
    entry.end.load(Ordering::Acquire) == end::ENDED
        && index_of(entry).is_some_and(|at| registry::is_told(at, entry))
}

/// The kernel's number of the process that is `pid`'s primary now. `None` if it is no other, or its parent has been told of its
/// end; where others have fewer rights, one of them may have struck itself off.
pub fn primary_of(pid: u32) -> Option<u32> {
    let primary = registry::successor(pid).filter(|primary| *primary != pid)?;
    (find(pid).is_some() || registry::doubts()).then_some(primary)
}

/// The kernel's number of a listed process's primary.
pub fn primary(entry: &Process) -> u32 {
    let pid = entry.pid.load(Ordering::Relaxed);
    primary_of(pid).unwrap_or(pid)
}

/// The number under which its relatives know the process that the kernel knows as `pid`, or knew as long as that was its primary.
pub fn known_as(pid: u32) -> Option<u32> {
    let heir = registry::succeeds(pid).filter(|number| find(*number).is_some());
    heir.or_else(|| find(pid).filter(|entry| primary(entry) == pid).map(|_| pid))
        .or_else(|| registry::succeeded(pid))
}

/// The same, also of one that takes over at this moment: a standby may act before the registry says whose successor it is.
pub fn known_soon(pid: u32) -> Option<u32> {
    const LOOKS: u32 = 100;
    const PAUSE_NS: u64 = 200_000;
    let is_dying = |entry: &Process| {
        let primary = primary(entry);
        is_between(entry.pid.load(Ordering::Relaxed)) && (!exists(primary) || proc::is_ending(primary))
    };
    for _ in 0..LOOKS {
        let known = known_as(pid);
        if known.is_some() || !listed().any(is_dying) {
            // The registry may have been told in between.
            return known.or_else(|| known_as(pid));
        }
        raw::nap(PAUSE_NS);
    }
    None
}

/// Takes a process off the list: its parent has been told of its end. One that led a process group by another number than its own
/// stays, and is nobody's child, as long as there is that group: its relatives know the group by its number.
pub fn strike_off(entry: &Process) {
    if !leader::outlives(entry) {
        forget(entry);
    }
}

fn forget(entry: &Process) {
    let _ = entry.state.compare_exchange(process::LISTED, process::FREE, Ordering::AcqRel, Ordering::Acquire);
}

/// The process group of a listed process, by the kernel's number. Of one that has ended, the one that it had then: its number may
/// be another process's by now, and without its group a wait for one would find all who have ended. Of one that is between two
/// primaries, what was last known: a signal to the group is sent to its standby as well, which does not take it. `None` if nobody
/// knows.
pub fn group_of(entry: &Process) -> Option<u32> {
    use crate::raw::nr::GETPGID;
    if has_ended(entry) {
        let is_known = entry.session.load(Ordering::Relaxed) != 0;
        return Some(entry.group.load(Ordering::Relaxed)).filter(|group| is_known || *group != 0);
    }
    // SAFETY: asks for a number.
    let group = unsafe { raw::call1(GETPGID, u64::from(primary(entry))) };
    if !failed(group) {
        entry.group.store(group as u32, Ordering::Relaxed);
        return Some(group as u32);
    }
    let known = entry.group.load(Ordering::Relaxed);
    (known != 0 && is_between(entry.pid.load(Ordering::Relaxed))).then_some(known)
}

/// Whether an adopted child, whose group the kernel does not let this process set any more, is in that group, or comes there
/// within a moment: a shell and its child both set it, and either may be first. The child may be between two primaries.
pub fn is_in_group(child: u32, group: u32) -> bool {
    const LOOKS: u32 = 500;
    const PAUSE_NS: u64 = 200_000;
    let wanted = if group == 0 { child } else { group };
    for _ in 0..LOOKS {
        let wanted = leader::to_kernel(wanted);
        let Some(entry) = adopted().find(|entry| entry.pid.load(Ordering::Relaxed) == child) else {
            return false;
        };
        if group_of(entry) == Some(wanted) {
            return true;
        }
        raw::nap(PAUSE_NS);
    }
    false
}

/// A process joins: whoever signals its group finds it there also when it is between two primaries.
pub fn remember_group(entry: &Process) {
    let _ = group_of(entry);
}

/// Whether the kernel would give this process's standby to a guest: to an ancestor that reaps orphans.
pub fn is_below_a_reaper() -> bool {
    // An orphan's parent is off the list, and the kernel knows the next.
    let mut above = known_as(kernels_parent())
        .or_else(|| own().map(|own| own.parent.load(Ordering::Acquire)))
        .unwrap_or(0);
    for _ in 0..PROCESSES_MAX {
        let Some(entry) = find(above).filter(|_| above != 0) else { return false };
        if entry.reaps_orphans.load(Ordering::SeqCst) != 0 {
            return true;
        }
        above = entry.parent.load(Ordering::Acquire);
    }
    false
}

/// Whether a process may have a standby: it has joined, or is the program's first one, which begins with one.
pub fn may_have_standby(entry: &Process) -> bool {
    entry.joined.load(Ordering::Acquire) != 0 || index_of(entry) == Some(0)
}

/// Whether a process that the kernel does not know is about to be another: its standby takes over.
pub fn is_between(pid: u32) -> bool {
    find(pid).is_some_and(|entry| {
        may_have_standby(entry)
            && entry.doomed.load(Ordering::Acquire) == 0
            && entry.end.load(Ordering::Acquire) == end::NONE
    })
}

/// Whether a process has ended for good and its parent has not asked for it yet: natively it takes signals still.
pub fn is_unasked(pid: u32) -> bool {
    unasked(pid).is_some()
}

/// That process.
pub fn unasked(pid: u32) -> Option<&'static Process> {
    find(pid).filter(|entry| entry.end.load(Ordering::Acquire) == end::ENDED)
}

/// Such processes in a process group, by the kernel's number.
pub fn unasked_in(group: u32) -> impl Iterator<Item = &'static Process> {
    listed().filter(move |entry| has_ended(entry) && group_of(entry) == Some(group))
}

/// Waits for news of an end or an adoption, for a moment at most.
pub fn await_news() {
    if let Some(header) = header() {
        let seen = header.ends.0.load(Ordering::Acquire);
        raw::futex_wait_shared(&header.ends.0, seen, 1_000_000);
    }
}

/// At a promotion: whether this process is to be stopped. If it is not, and its parent has been told that it was, there is
/// that to tell.
pub fn is_to_stop() -> bool {
    let Some(own) = own() else { return false };
    // First the word: who lets it go on from here on is seen below, or by the supervisor.
    own.stops_itself.store(1, Ordering::SeqCst);
    let is_to_stop = own.stopped.load(Ordering::SeqCst) != 0 && !registry::doubts();
    if !is_to_stop {
        own.stops_itself.store(0, Ordering::SeqCst);
    }
    if !is_to_stop && own.told_stopped.load(Ordering::SeqCst) != 0 {
        own.standing.store(CONTINUED, Ordering::SeqCst);
        if let Some(header) = header() {
            header.ends.0.fetch_add(1, Ordering::AcqRel);
            raw::futex_wake_shared(&header.ends.0);
        }
    }
    is_to_stop
}

/// Tells the supervisor that there is something to look at.
pub fn tell() {
    if let Some(header) = header() {
        header.news.0.fetch_add(1, Ordering::AcqRel);
        raw::futex_wake_shared(&header.news.0);
    }
}

/// A child of this process, be it off the list because the end has been told.
pub fn find_child(pid: u32) -> Option<&'static Process> {
    find(pid).or_else(|| struck_off(pid))
}

/// A child of this process whose end it has been told of, while nobody else has its entry.
pub fn struck_off(pid: u32) -> Option<&'static Process> {
    let used = header().map_or(0, |header| header.used.load(Ordering::Acquire) as usize).min(PROCESSES_MAX);
    let all = roster().map_or(&[][..], |roster| &roster.processes[..used]);
    let own = state::GUEST_PID.load(Ordering::Relaxed);
    all.iter()
        .filter(|entry| entry.state.load(Ordering::Acquire) == process::FREE)
        .filter(|entry| entry.parent.load(Ordering::Relaxed) == own)
        .filter(|entry| entry.pid.load(Ordering::Relaxed) == pid)
        .max_by_key(|entry| entry.born_ns.load(Ordering::Relaxed))
}

/// Whether the kernel knows a process of this number, which may be a zombie.
pub fn exists(pid: u32) -> bool {
    // SAFETY: signal 0 only asks.
    unsafe { raw::call2(nr::KILL, u64::from(pid), 0) != raw::err::ESRCH }
}

/// Takes an entry that nobody uses, or whose process has gone without anybody asking for it.
fn take() -> Option<&'static Process> {
    let roster = roster()?;
    let free = |entry: &&Process| {
        entry
            .state
            .compare_exchange(process::FREE, process::TAKEN, Ordering::AcqRel, Ordering::Acquire)
            .is_ok()
    };
    let forgotten = |entry: &&Process| {
        entry.state.load(Ordering::Acquire) == process::LISTED
            && entry.kin.load(Ordering::Acquire) == kin::KERNEL
            && !exists(primary(entry))
            && entry
                .state
                .compare_exchange(process::LISTED, process::TAKEN, Ordering::AcqRel, Ordering::Acquire)
                .is_ok()
    };
    let (at, entry) = roster
        .processes
        .iter()
        .enumerate()
        .find(|(_, entry)| free(entry))
        .or_else(|| roster.processes.iter().enumerate().find(|(_, entry)| forgotten(entry)))?;
    roster.header.used.fetch_max(at as u32 + 1, Ordering::AcqRel);
    Some(entry)
}

/// Whoever was a child of this number before `since_ns`, when nobody had it, is one of its last holder's, which has ended: nobody
/// asks for its end. Where a process of the program reaps orphans the kernel tells that one.
fn disown(number: u32, since_ns: u64) {
    let is_older = |entry: &&Process| entry.born_ns.load(Ordering::Relaxed) < since_ns;
    for orphan in listed().filter(|entry| entry.parent.load(Ordering::Acquire) == number).filter(is_older) {
        orphan.parent.store(0, Ordering::Release);
        if orphan.end.load(Ordering::Acquire) == end::ENDED {
            strike_off(orphan);
        }
    }
}

/// Lists a process that has been made since `since_ns`. Without room it is one that only the kernel knows. Its maker may come late,
/// when it has made, and become, others.
pub fn list(pid: u32, parent: u32, since_ns: u64) -> Option<&'static Process> {
    // The last process of that number: its parent takes no interest in its children's ends.
    if let Some(old) = find(pid) {
        forget(old);
    }
    disown(pid, since_ns);
    mail::forget(pid);
    let entry = take()?;
    entry.be_new(pid, parent);
    for sent in &entry.sent {
        sent.store(0, Ordering::Relaxed);
    }
    entry.born_ns.store(raw::now_ns(), Ordering::Relaxed);
    entry.state.store(process::LISTED, Ordering::SeqCst);
    Some(entry)
}

/// Makes a process one of `parent`'s children whose end the supervisor has seen without knowing whose it was. False if there
/// is none of this number.
pub fn claim_end(pid: u32, parent: u32) -> bool {
    let Some(entry) = find(pid).filter(|entry| entry.end.load(Ordering::Acquire) == end::ENDED) else {
        return false;
    };
    entry.parent.compare_exchange(0, parent, Ordering::AcqRel, Ordering::Acquire).is_ok()
}

/// In a forked child: its own entry. `made_by` is the kernel's number of the copy that has made it.
pub fn born(parent: u32, made_by: u32) {
    let pid = state::REAL_PID.load(Ordering::Relaxed);
    PARENT.store(parent, Ordering::Relaxed);
    be(None);
    let real = kernels_parent();
    if real == 0 {
        return leave();
    }
    let Some(entry) = list(pid, parent, raw::now_ns()) else { return };
    be(Some(entry));
    // Its parent may have died meanwhile, and whoever adopted that one's children has not seen this one. The parent's
    // successor is named before its children are looked through, and this one was listed before it looks there: one of
    // the two sees the other. The kernel may be late in giving it another parent.
    let has_successor = find(parent).is_some_and(|entry| primary(entry) != made_by);
    if has_successor || registry::supervisor() == real {
        entry.kin.store(kin::ADOPTED, Ordering::Release);
    }
}

/// The number of the parent that the kernel has for this process. 0 if that one is in another pid namespace.
pub fn kernels_parent() -> u32 {
    // SAFETY: asks for a number.
    unsafe { raw::call1(nr::GETPPID, 0) as u32 }
}

/// In a child whose parent is in another pid namespace, and has no number here: the group's numbers are others, and its own may
/// be another one's there. It is of no group, nor is what it makes or executes: the kernel alone tells of all these, as natively.
fn leave() {
    ROSTER.store(core::ptr::null_mut(), Ordering::Release);
    registry::leave_group();
}

/// In the constructor of a new image: the entry of the process that it is.
pub fn recognise() {
    if kernels_parent() == 0 {
        return leave();
    }
    let pid = state::GUEST_PID.load(Ordering::Relaxed);
    be(find(pid));
    sent::adopt();
}

/// The parent that it was born with; 0 in a new image.
static PARENT: AtomicU32 = AtomicU32::new(0);

/// The parent that the roster names, if this process has other reasons to believe it: a program may signal its parent.
fn own_parent() -> Option<u32> {
    let parent = own()?.parent.load(Ordering::Acquire);
    let is_known = || {
        parent == PARENT.load(Ordering::Relaxed)
            || registry::successor(parent).is_some()
            || known_as(kernels_parent()) == Some(parent)
    };
    (parent == 0 || !registry::doubts() || is_known()).then_some(parent)
}

/// What the guest sees as its parent: the group's number of it while that lives. One that has ended is listed until its own
/// parent has asked for it, and is nobody's parent any more.
#[inline]
pub fn parent() -> Option<u32> {
    own_parent().filter(|parent| *parent != 0).and_then(listed_parent)
}

#[inline(never)]
fn listed_parent(parent: u32) -> Option<u32> {
    let entry = find(parent)?;
    // Of a copy the kernel knows another parent, and so it does behind a parent that has failed over, or is about to.
    let is_born = state::REAL_PID.load(Ordering::Relaxed) == state::GUEST_PID.load(Ordering::Relaxed);
    let primary = primary(entry);
    let has_no_successor = !may_have_standby(entry) && primary == entry.pid.load(Ordering::Acquire);
    let is_left = is_born && has_no_successor && primary != kernels_parent();
    (!is_left && entry.end.load(Ordering::Acquire) != us_abi::end::ENDED).then_some(parent)
}

/// Set once the guest may know a process by another number than the kernel: after a promotion, and where it has
/// relatives that may be promoted.
static NUMBERED: AtomicBool = AtomicBool::new(false);

/// The guest has, or is, a child process.
pub fn has_relatives() {
    NUMBERED.store(true, Ordering::Relaxed);
}

/// Whether there may be other processes that have memory of this one's. Not so in a standby or after a promotion only.
pub fn may_have_relatives() -> bool {
    NUMBERED.load(Ordering::Relaxed)
}

/// Whether numbers that the guest names have to be looked up.
#[inline(always)]
pub fn is_numbered() -> bool {
    NUMBERED.load(Ordering::Relaxed) || state::is_renumbered()
}

/// The supervisor's process, for as long as it is there. Without it no more events come.
pub fn is_fed() -> bool {
    let supervisor = registry::supervisor();
    !is_closing() && exists(supervisor)
}
