//! The thread that blocks on futexes: it notices a dying primary, fences it and tells the standby.
//!
//! It waits on one set of words: the header's `attention` and the death notices of a few threads. A
//! notice fires before the address space is torn down (2 ms where a pidfd takes 155 ms for a process of
//! 2 GB), so everything from there to the word "promote" is done here, with nothing in between.

use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use rustix::thread::futex;
use rustix::time::ClockId;
use us_abi::{GroupState, OWNER_DIED, TID_MASK, ThreadEntry, WAITERS, command, leaving, slot};
use us_order::detect::{Cause, Decision, Leaving, Standby, decide, is_fenced};

use crate::child::Child;
use crate::clock;
use crate::family::{self, Together};
use crate::inquiry;
use crate::memory::{self, Raised};
use crate::roster::{Place, Roster};
use crate::segment::{Segment, wake};

/// Death notices waited for at once. All threads of a killed process die together, so a few say it as soon
/// as all would; fewer words also mean fewer wake-ups by threads that merely end.
const WATCHED: usize = 8;

/// Pause between two looks where the kernel cannot wait for several futexes (before 5.16).
const LOOK_NS: i64 = 2_000_000;

/// First pause between two looks at threads that have not given notice yet: each doubles, up to the last.
const UNREADY_NS: i64 = 1_000_000;
const UNREADY_NS_MAX: i64 = 64_000_000;

/// How often, and how long apart, the sentry looks whether the main thread knows the standby.
const ATTACH_LOOKS: u32 = 2000;
const ATTACH_PAUSE: Duration = Duration::from_micros(50);

/// Pause between two looks at threads that are being killed.
const FENCE_PAUSE_NS: i64 = 50_000;

/// Stack of a thread of ours, bytes: there may be one for each process of the group.
const STACK_BYTES: usize = 128 << 10;

/// What the main thread and a process's sentry share.
pub struct Shared {
    /// The process's segment.
    pub segment: Segment,
    /// The group's roster, and where the process stands in it.
    pub roster: Arc<Roster>,
    /// See `roster`.
    pub place: Place,
    /// The process that is primary now.
    pub primary: Mutex<Option<Child>>,
    /// Pid of the standby that the main thread has taken up.
    pub standby_pid: AtomicU32,
    /// Held by whoever chooses the standby that is to take over.
    pub choice: Mutex<()>,
    /// An eventfd: readable when the main thread should look at the segment.
    pub bell: Arc<OwnedFd>,
    /// The process is no longer watched.
    pub done: AtomicBool,
    /// The standbys' scores, which are not the program's.
    pub scores: Mutex<Vec<Raised>>,
    /// The standby that was ended because memory runs out, 0 for none.
    pub relieved: AtomicU32,
}

/// Wakes the main thread.
pub(crate) fn ring(bell: &OwnedFd) {
    // Full only after 2^64 rings.
    let _ = rustix::io::write(bell, &1u64.to_ne_bytes());
}

impl Shared {
    /// Wakes the main thread.
    pub fn ring_bell(&self) {
        ring(&self.bell);
    }

    /// Ends the sentry.
    pub fn dismiss(&self) {
        self.done.store(true, Ordering::Release);
        let attention = &self.segment.header().attention.0;
        // It may be about to wait for the value that it has seen.
        attention.fetch_add(1, Ordering::AcqRel);
        wake(attention);
    }

    /// Waits until the main thread knows the standby: it would not know its new primary otherwise. A group may be
    /// killed the moment that its standby is there.
    pub(crate) fn await_standby(&self) {
        let named = || self.segment.header().standby_pid.load(Ordering::Acquire);
        for _ in 0..ATTACH_LOOKS {
            if self.standby_pid.load(Ordering::Acquire) == named() {
                return;
            }
            self.ring_bell();
            std::thread::sleep(ATTACH_PAUSE);
        }
    }

    /// The standby `standby` is to be ended first where memory runs out. Not one that has been told to take over: under the lock,
    /// under which it is told so.
    pub(crate) fn raise_score(&self, standby: u32, primary: u32) {
        if let Ok(mut scores) = self.scores.lock()
            && self.segment.header().command.0.load(Ordering::Acquire) != command::PROMOTE
        {
            scores.retain(Raised::is_of_use);
            scores.extend(Raised::new(standby, primary));
        }
    }

    /// Ends the standby `standby` of `primary` before memory runs out below the limit of a group of processes: whoever the
    /// kernel chooses may be both. Until it has gone.
    pub(crate) fn watch_memory(self: &Arc<Self>, standby: u32, primary: u32) {
        let Some(process) = Pid::from_raw(standby as i32) else { return };
        let Ok(process) = pidfd_open(process, PidfdFlags::empty()) else { return };
        if memory::relief(primary).is_none() {
            return;
        }
        let shared = Arc::clone(self);
        let body = move || {
            while let Some(pause) = memory::relief(primary) {
                if pause.is_zero() {
                    return shared.relieve(standby, &process);
                }
                let limit = Timespec { tv_sec: 0, tv_nsec: pause.as_nanos() as i64 };
                let mut end = [PollFd::new(&process, PollFlags::IN)];
                if !matches!(poll(&mut end, Some(&limit)), Ok(0) | Err(Errno::INTR)) {
                    return;
                }
            }
        };
        // Without it, it is the kernel that chooses.
        let _ = thread("memory", body);
    }

    /// Not one that has been told to take over: under the lock, as in [`Shared::raise_score`].
    fn relieve(&self, standby: u32, process: &OwnedFd) {
        if let Ok(scores) = self.scores.lock()
            && self.segment.header().command.0.load(Ordering::Acquire) != command::PROMOTE
            && scores.iter().any(|score| score.is_of(standby))
        {
            self.relieved.store(standby, Ordering::Release);
            let _ = pidfd_send_signal(process, Signal::KILL);
        }
    }

    /// The kernel's pid of the standby. What the segment says is believed where nobody writes it who has fewer rights than we.
    pub(crate) fn standby(&self) -> u32 {
        let known = self.standby_pid.load(Ordering::Acquire);
        if self.roster.is_mixed() { known } else { self.segment.header().standby_pid.load(Ordering::Acquire) }
    }

    /// What the score of the primary is that its standby is to get: nobody can ask for it behind its being reaped.
    pub(crate) fn keep_score(&self, primary: u32) {
        if let Ok(scores) = self.scores.lock() {
            scores.iter().for_each(|score| score.keep(primary));
        }
    }

    /// The process that is primary now.
    pub(crate) fn primary(&self) -> Option<Child> {
        self.primary.lock().ok().and_then(|primary| primary.clone())
    }
}

/// Starts the thread. It ends when it is dismissed.
///
/// # Errors
/// When the system has no room for it.
pub fn start(shared: Arc<Shared>) -> std::io::Result<()> {
    thread("sentry", move || keep_watch(&shared)).map(|_| ())
}

/// Starts the thread that rings the bell at news in the roster. It ends with the process.
///
/// # Errors
/// When the system has no room for it.
pub fn start_reader(roster: Arc<Roster>, bell: Arc<OwnedFd>) -> std::io::Result<()> {
    thread("reader", move || {
        let news = &roster.header().news.0;
        // From before the start, as above: somebody may have joined while this thread was being made.
        let mut seen = 0;
        loop {
            // Every outcome means the same: look again.
            let _ = futex::wait(news, futex::Flags::empty(), seen, None);
            let now = news.load(Ordering::Acquire);
            if now != seen {
                seen = now;
                ring(&bell);
            }
        }
    })
    .map(|_| ())
}

/// Starts a thread of ours.
///
/// # Errors
/// When the system has no room for it.
pub(crate) fn thread<T: Send + 'static>(
    name: &str,
    body: impl FnOnce() -> T + Send + 'static,
) -> std::io::Result<JoinHandle<T>> {
    std::thread::Builder::new().name(name.into()).stack_size(STACK_BYTES).spawn(body)
}

fn keep_watch(shared: &Shared) {
    let header = shared.segment.header();
    // The value from before the start: the runtime may have answered while this thread was being made, and
    // nobody would look at that answer until the next one.
    let mut seen = 0;
    let mut unready_ns = UNREADY_NS;
    while !shared.done.load(Ordering::Acquire) {
        // Whose notices these are is asked first: by the time that they have been acted on, another may be primary.
        let primary = shared.primary();
        let protected = state(&shared.segment) == GroupState::Protected;
        let notices = if protected { notices(shared) } else { Notices::NOTHING };
        match notices {
            Notices::Died => {
                let noticed_ns = clock::monotonic_ns();
                shared.await_standby();
                if let Some(primary) = primary {
                    fail_over_with(shared, &primary, noticed_ns, family::fail_over);
                }
            }
            Notices::Watch { words, all_ready } => {
                let look_again = (!all_ready).then_some(unready_ns);
                unready_ns = if all_ready { UNREADY_NS } else { (unready_ns * 2).min(UNREADY_NS_MAX) };
                wait_for(&header.attention.0, seen, &words, protected, look_again);
            }
        }
        let now = header.attention.0.load(Ordering::Acquire);
        if now != seen {
            seen = now;
            shared.ring_bell();
        }
        // Behind the look: what is asked from there on wakes this thread again.
        inquiry::answer(shared);
    }
}

/// The process's state.
pub fn state(segment: &Segment) -> GroupState {
    GroupState::from_u32(segment.header().state.0.load(Ordering::Acquire))
}

enum Notices<'a> {
    /// The kernel says that the primary dies.
    Died,
    /// Nothing yet.
    Watch {
        /// Words to wait for, and their present values.
        words: Vec<(&'a AtomicU32, u32)>,
        /// No thread had still to give notice, as each does when it resumes after a clone.
        all_ready: bool,
    },
}

impl Notices<'_> {
    const NOTHING: Notices<'static> = Notices::Watch { words: Vec::new(), all_ready: true };
}

/// Looks at every thread's notice, and prepares the first few of them for waiting.
fn notices(shared: &Shared) -> Notices<'_> {
    let segment = &shared.segment;
    let would_promote = || verdict(shared, Cause::OwnersDied) == Decision::Promote;
    if !would_promote() {
        return Notices::NOTHING;
    }
    let mut all_ready = true;
    let mut words = Vec::with_capacity(WATCHED);
    for entry in (0..segment.slots()).map(|at| segment.thread(at)) {
        if entry.state.load(Ordering::Acquire) != slot::RUNNING {
            continue;
        }
        // Looked at again behind the death: a thread says that it leaves before it may die of its own will.
        if entry.died() && entry.state.load(Ordering::Acquire) == slot::RUNNING {
            if would_promote() {
                return Notices::Died;
            }
            continue;
        }
        if words.len() == WATCHED {
            continue;
        }
        match ask_for_wake(entry) {
            Some(value) => words.push((&entry.notice.word, value)),
            None => all_ready = false,
        }
    }
    Notices::Watch { words, all_ready }
}

/// What is to be done about a primary that ends, or has ended, by `cause`.
pub fn verdict(shared: &Shared, cause: Cause) -> Decision {
    let header = shared.segment.header();
    let leaving = match header.leaving.0.load(Ordering::Acquire) {
        // One of the group's own wants it dead: that is the program's will.
        _ if shared.roster.is_doomed(shared.place) => Leaving::Yes,
        leaving::NO => Leaving::No,
        leaving::DYING => Leaving::Dying,
        _ => Leaving::Yes,
    };
    let standby = match state(&shared.segment) {
        _ if header.dropped.0.load(Ordering::Acquire) != 0 => Standby::Diverged,
        _ if !family::may_take_over(shared) => Standby::Diverged,
        GroupState::Protected | GroupState::Promoting => Standby::Following,
        _ => Standby::Absent,
    };
    decide(leaving, cause, standby)
}

/// Sets the bit without which the kernel wakes nobody at the owner's death; the value to wait for.
fn ask_for_wake(entry: &ThreadEntry) -> Option<u32> {
    let word = &entry.notice.word;
    let value = word.load(Ordering::Acquire);
    if value & TID_MASK == 0 || value & OWNER_DIED != 0 {
        return None;
    }
    let asked = value | WAITERS;
    // Only against the value just seen: a plain "or" could mark a slot that was freed and taken again.
    word.compare_exchange(value, asked, Ordering::AcqRel, Ordering::Acquire).is_ok().then_some(asked)
}

/// Sleeps until `attention` differs from `seen`, one of `words` changes, or `look_again` ns have passed.
fn wait_for(
    attention: &AtomicU32,
    seen: u32,
    words: &[(&AtomicU32, u32)],
    protected: bool,
    look_again: Option<i64>,
) {
    let waiter = |word: &AtomicU32, value: u32| {
        let mut wait = futex::Wait::new();
        wait.val = u64::from(value);
        wait.uaddr = futex::WaitPtr::new(word.as_ptr().cast());
        wait.flags = futex::WaitFlags::SIZE_U32;
        wait
    };
    let mut waits = vec![waiter(attention, seen)];
    waits.extend(words.iter().map(|(word, value)| waiter(word, *value)));
    let until = look_again.map(|ns| clock::timespec(clock::monotonic_ns() + ns as u64));
    let result = futex::waitv(&waits, futex::WaitvFlags::empty(), until.as_ref(), ClockId::Monotonic);
    if matches!(result, Err(Errno::NOSYS | Errno::PERM)) {
        let pause = Timespec { tv_sec: 0, tv_nsec: LOOK_NS };
        // Every outcome means the same: look again.
        let _ = futex::wait(attention, futex::Flags::empty(), seen, protected.then_some(&pause));
    }
}

/// The primary dies or is dead: makes sure of it, then tells the standby to take over.
///
/// Whoever moves the state from `Protected` does it, and does it once: the notices and the main thread (by
/// the primary's end) may both come here, and the standby may be lost at the same moment. `noticed_ns` is when
/// the blackout began. `false` when somebody was first, or there is no standby any more.
pub fn fail_over(shared: &Shared, primary: &Child, noticed_ns: u64) -> bool {
    fail_over_with(shared, primary, noticed_ns, family::fail_over_aside)
}

/// See [`fail_over`]; that is for the main thread, which must not wait for the rest of a family.
fn fail_over_with(
    shared: &Shared,
    primary: &Child,
    noticed_ns: u64,
    of_family: fn(&Shared, u64) -> Together,
) -> bool {
    let header = shared.segment.header();
    if header.family.load(Ordering::Acquire) != 0 {
        match of_family(shared, noticed_ns) {
            Together::Begun => return true,
            Together::Settled => return false,
            Together::Alone => {}
        }
    }
    // Whoever finds that the heir has died chooses the next one, and must not do so before the primary is fenced.
    let _choice = shared.choice.lock();
    if !begin_promotion(shared, primary) {
        return false;
    }
    header.death_ns.0.store(noticed_ns, Ordering::Release);
    fence(&shared.segment, primary);
    // A standby that diverged up to now is never promoted; after this line it may still refuse by itself.
    let heir = shared.standby();
    // Nobody: it has ended meanwhile, as the main thread has found.
    if header.dropped.0.load(Ordering::Acquire) == 0 && heir != 0 {
        choose(shared, heir);
        wake(&header.state.0);
    }
    shared.ring_bell();
    true
}

/// Tells the standby `pid` to take over. The primary is dead and fenced.
pub fn choose(shared: &Shared, pid: u32) {
    shared.roster.failed_over(shared.place, pid, crate::spawn::exists);
    promote(shared, pid);
}

/// Gives the standby `pid` the word, and nothing else.
pub(crate) fn promote(shared: &Shared, pid: u32) {
    let scores = shared.scores.lock();
    if let Ok(scores) = &scores {
        let primary = shared.primary().map(|primary| primary.pid);
        scores.iter().for_each(|score| score.restore(pid, primary));
    }
    let header = shared.segment.header();
    inquiry::forget(header);
    header.chosen.store(pid, Ordering::Release);
    header.promotions.fetch_add(1, Ordering::AcqRel);
    header.command.0.store(command::PROMOTE, Ordering::Release);
    wake(&header.command.0);
    // Behind the registry's word for the heir. Who has sent the process SIGKILL since our verdict has asked for the dead primary's end,
    // and nobody else ends the copy; who does so from here on asks for the heir's.
    if shared.roster.is_doomed(shared.place) {
        Child::of_descendant(pid).iter().for_each(Child::kill);
    }
}

/// Moves the state from `Protected`, if `primary` is still the one that is protected. One that died a while ago may have
/// a successor, with a standby of its own, whom the same words would end. That one is asked for its standby only after it
/// has been named as primary, under the lock.
pub(crate) fn begin_promotion(shared: &Shared, primary: &Child) -> bool {
    let (from, to) = (GroupState::Protected as u32, GroupState::Promoting as u32);
    let Ok(current) = shared.primary.lock() else { return false };
    current.as_ref().is_some_and(|current| current.pid == primary.pid)
        && shared
            .segment
            .header()
            .state
            .0
            .compare_exchange(from, to, Ordering::AcqRel, Ordering::Acquire)
            .is_ok()
}

/// Kills the primary and returns when none of its threads can be in a system call any more.
pub(crate) fn fence(segment: &Segment, primary: &Child) {
    let _ = rustix::process::pidfd_send_signal(&primary.pidfd, Signal::KILL);
    let mut ended = false;
    while !is_fenced(deaths(segment), ended) {
        ended = has_ended(&primary.pidfd, FENCE_PAUSE_NS);
    }
}

/// Of each thread that may run guest code, whether it has been reported dead. A thread that is being created
/// has no notice yet: the word in its slot may be the last owner's, and the pidfd alone can speak for it.
fn deaths(segment: &Segment) -> impl Iterator<Item = bool> + '_ {
    (0..segment.slots()).map(|at| segment.thread(at)).filter_map(|entry| {
        match entry.state.load(Ordering::Acquire) {
            slot::RUNNING => Some(entry.died()),
            slot::CREATING => Some(false),
            _ => None,
        }
    })
}

/// Whether the process behind `pidfd` has ended; waits up to `pause_ns` for it.
fn has_ended(pidfd: &OwnedFd, pause_ns: i64) -> bool {
    let mut fds = [PollFd::new(pidfd, PollFlags::IN)];
    let pause = Timespec { tv_sec: 0, tv_nsec: pause_ns };
    matches!(poll(&mut fds, Some(&pause)), Ok(ready) if ready > 0)
}
