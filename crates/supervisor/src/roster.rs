//! The roster as the supervisor has it: who is whose child, and the duties that follow.
//!
//! The kernel knows each process once; the group knows it through all of its copies. Where the two differ, because a
//! process or its parent has failed over, the supervisor is the process's parent in the kernel's eyes and says
//! here what the kernel would have said.
//!
//! The processes of a group write the roster, some perhaps with fewer rights than ours or others'. So what we believe of a
//! number is in the registry, which they cannot write.
//!
//! # Safety
//! References into the mapping borrow from the [`Roster`]. All fields that others write are atomics; the others are
//! written once, in [`Roster::create`], before any other process knows the file.

use std::sync::atomic::Ordering;

use rustix::fs::FallocateFlags;
use us_abi::{
    EARLIER_MAX, MAGIC, PROCESSES_MAX, Process, REGISTRY_BYTES, ROSTER_BYTES, Registry, RosterHeader,
    VERSION, WILL, end, kin, pair, process,
};

use crate::clock;
use crate::dir::Dir;
use crate::error::Error;
use crate::family::Kin;
use crate::mapping::Mapping;
use crate::reap::Reaped;
use crate::segment::wake;
use crate::spawn::{self};

mod kept;

pub(crate) use kept::Ends;

/// The roster's name in the group's folder.
pub const NAME: &str = "roster";

/// The registry's.
pub const REGISTRY: &str = "registry";

/// Index of the entry of the program itself.
pub const ROOT: usize = 0;

/// One process for ever: an entry is used again, and so is a number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Place {
    /// Index of the entry.
    pub at: usize,
    /// The number by which its relatives know it.
    pub pid: u32,
    /// Its birth.
    pub born_ns: u64,
}

/// The mapped roster.
#[derive(Debug)]
pub struct Roster {
    map: Mapping,
    registry: Mapping,
    /// The processes that are watched.
    pub kin: Kin,
}

impl Roster {
    /// Makes the file in `dir`, without anybody in it.
    ///
    /// # Errors
    /// When the file cannot be made, or there is no room for it.
    pub fn create(dir: &Dir) -> Result<Roster, Error> {
        let roster = Roster {
            map: make(dir, NAME, ROSTER_BYTES)?,
            registry: make(dir, REGISTRY, REGISTRY_BYTES)?,
            kin: Kin::default(),
        };
        let header: *mut RosterHeader = roster.map.base().as_ptr().cast();
        let registry: *mut Registry = roster.registry.base().as_ptr().cast();
        // SAFETY: the files were made a moment ago by this thread and no one else has them mapped; each head
        // fits its mapping and a page's start is aligned for it.
        unsafe {
            (&raw mut (*header).magic).write(MAGIC);
            (&raw mut (*header).version).write(VERSION);
            (&raw mut (*registry).magic).write(MAGIC);
            (&raw mut (*registry).version).write(VERSION);
        }
        roster.registry().supervisor_pid.store(std::process::id(), Ordering::Release);
        Ok(roster)
    }

    fn registry(&self) -> &Registry {
        // SAFETY: as in `shared`.
        unsafe { self.registry.base().cast().as_ref() }
    }

    /// Whether processes of more than one user may write the roster.
    pub fn is_mixed(&self) -> bool {
        self.registry().mixed.load(Ordering::Acquire) != 0
    }

    /// Says that processes of more than one user write the roster.
    pub fn note_other_user(&self) {
        self.registry().mixed.store(1, Ordering::Release);
    }

    /// The kernel's pid of the primary of the process that began with the number `pid`, if that has failed over. Nobody but us
    /// has written it.
    pub fn successor_of(&self, pid: u32) -> Option<u32> {
        let used = self.registry().used.load(Ordering::Relaxed) as usize;
        let words = self.registry().primaries.iter().take(used).map(|word| word.load(Ordering::SeqCst));
        words.filter(|word| *word != 0).find(|word| (word >> 32) as u32 == pid).map(|word| word as u32)
    }

    /// The kernel's pid of the process's primary.
    pub fn primary_of(&self, place: Place) -> u32 {
        let word = self.registry().primaries[place.at].load(Ordering::SeqCst);
        if (word >> 32) as u32 == place.pid { word as u32 } else { place.pid }
    }

    /// Forgets what is said of processes that are listed no more and whose primaries have ended.
    pub fn forget_ended(&self, is_alive: impl Fn(u32) -> bool) {
        let registry = self.registry();
        let used = registry.used.load(Ordering::Relaxed) as usize;
        let words = registry.primaries.iter().zip(&registry.ends).zip(&self.shared().processes).take(used);
        for ((primary, end), entry) in words {
            let is_listed = |pid: u32| {
                entry.state.load(Ordering::Acquire) == process::LISTED
                    && entry.pid.load(Ordering::Relaxed) == pid
            };
            let word = primary.load(Ordering::Relaxed);
            if word != 0 && !is_listed((word >> 32) as u32) && !is_alive(word as u32) {
                self.note_earlier(word);
                primary.store(0, Ordering::SeqCst);
            }
            let word = end.load(Ordering::Relaxed);
            if word != 0 && !is_listed((word >> 32) as u32) {
                end.store(0, Ordering::SeqCst);
            }
        }
    }

    /// What this word of the registry said is over, 0 for none: that primary is dead.
    fn note_earlier(&self, word: u64) {
        if word != 0 {
            let registry = self.registry();
            let count = registry.earlier_count.load(Ordering::Relaxed);
            registry.earlier[count as usize % EARLIER_MAX].store(word, Ordering::Release);
            registry.earlier_count.store(count + 1, Ordering::Release);
        }
    }

    /// Says how a process has ended, before the roster says that it has.
    fn note_end(&self, at: usize, pid: u32, status: i32) {
        let registry = self.registry();
        registry.used.fetch_max(at as u32 + 1, Ordering::AcqRel);
        registry.ends[at].store(pair(pid, status as u32), Ordering::Release);
    }

    fn shared(&self) -> &us_abi::Roster {
        // SAFETY: mapped while we live, aligned, large enough; atomics, and fields that nobody writes any more.
        unsafe { self.map.base().cast().as_ref() }
    }

    /// Its start.
    pub fn header(&self) -> &RosterHeader {
        &self.shared().header
    }

    /// The group's family.
    pub fn family(&self) -> &us_abi::Family {
        &self.shared().family
    }

    /// Fills in the program itself, as the process `pid`. Calls nothing that a fork of a process with threads must not.
    pub fn enter_root(&self, pid: u32) {
        let entry = &self.shared().processes[ROOT];
        entry.pid.store(pid, Ordering::Relaxed);
        // Its parent is the supervisor, which is told by the kernel.
        entry.kin.store(kin::ADOPTED, Ordering::Relaxed);
        entry.born_ns.store(clock::monotonic_ns(), Ordering::Relaxed);
        self.header().used.fetch_max(ROOT as u32 + 1, Ordering::AcqRel);
        entry.state.store(process::LISTED, Ordering::SeqCst);
    }

    /// The registry says that the process of this place and number is the kernel's `primary`: a program is put together, and nobody
    /// runs yet. What it leads is led by that one.
    pub(crate) fn enter_restored(&self, at: usize, pid: u32, primary: u32, leads: bool) {
        let Some(entry) = self.shared().processes.get(at) else { return };
        self.registry().used.fetch_max(at as u32 + 1, Ordering::AcqRel);
        self.registry().primaries[at].store(pair(pid, primary), Ordering::SeqCst);
        entry.leads.store(if leads { primary } else { 0 }, Ordering::Release);
    }

    /// The same of a process group, or session, whose leader has ended: its members know it by the number `pid`, and the kernel by
    /// `leads`.
    pub(crate) fn enter_leader(&self, pid: u32, leads: u32) {
        let is_free = |entry: &&Process| entry.state.load(Ordering::Relaxed) == process::FREE;
        let places = self.shared().processes.iter();
        let Some((at, entry)) = places.enumerate().find(|(_, entry)| is_free(entry)) else { return };
        entry.be_new(pid, 0);
        entry.leads.store(leads, Ordering::Relaxed);
        self.header().used.fetch_max(at as u32 + 1, Ordering::AcqRel);
        entry.state.store(process::LISTED, Ordering::SeqCst);
    }

    /// The number by which relatives know a process group or session of the kernel's.
    pub(crate) fn group_known_as(&self, group: u32) -> u32 {
        let leads = |entry: &Process| entry.leads.load(Ordering::Acquire) == group;
        let leader = self.listed().find(|(place, entry)| leads(entry) || self.primary_of(*place) == group);
        leader.map_or(group, |(place, _)| place.pid)
    }

    /// Every process that is listed.
    pub fn listed(&self) -> impl Iterator<Item = (Place, &Process)> {
        // Written by the guests: a wild value must not lead outside the table.
        let used = (self.header().used.load(Ordering::Acquire) as usize).min(PROCESSES_MAX);
        self.shared().processes[..used].iter().enumerate().filter_map(|(at, entry)| {
            let listed = entry.state.load(Ordering::SeqCst) == process::LISTED;
            listed.then(|| (place(at, entry), entry))
        })
    }

    /// The entry of this very process, while it is listed.
    pub fn get(&self, of: Place) -> Option<&Process> {
        let entry = self.shared().processes.get(of.at)?;
        let listed = entry.state.load(Ordering::Acquire) == process::LISTED;
        (listed && place(of.at, entry) == of).then_some(entry)
    }

    /// The process that its relatives know as `pid`: the youngest, since nobody may have asked for the end of another.
    /// Where others have more rights, one that has failed over goes before any that gives its number for its own.
    pub fn find(&self, pid: u32) -> Option<(Place, &Process)> {
        self.listed()
            .filter(|(place, _)| place.pid == pid && !self.poses_as_another(*place))
            .max_by_key(|(place, _)| place.born_ns)
    }

    /// The process whose primary the kernel knows as `pid`.
    pub fn with_primary(&self, pid: u32) -> Option<(Place, &Process)> {
        self.listed()
            .filter(|(place, _)| self.primary_of(*place) == pid && !self.poses_as_another(*place))
            .max_by_key(|(place, _)| place.born_ns)
    }

    /// Whether, where others have more rights, the number of this entry is in the registry that of a process with another entry,
    /// which has failed over. The end of that one's first primary would be told as its own.
    fn poses_as_another(&self, place: Place) -> bool {
        let registry = self.registry();
        let used = registry.used.load(Ordering::Relaxed) as usize;
        let others = registry.primaries.iter().take(used).enumerate().filter(|(at, _)| *at != place.at);
        let mut numbers = others.map(|(_, word)| (word.load(Ordering::SeqCst) >> 32) as u32);
        self.is_mixed() && numbers.any(|number| number == place.pid)
    }

    /// Nobody who is listed is to be carried on any more.
    pub fn doom_all(&self) {
        self.listed().for_each(|(_, entry)| entry.doomed.store(1, Ordering::SeqCst));
    }

    /// Whether the process is to die by the will of another of its group. One that has made its entry another's, where others
    /// have more rights, may have done so to hide from that.
    pub fn is_doomed(&self, place: Place) -> bool {
        self.get(place).map_or_else(|| self.is_mixed(), |entry| entry.doomed.load(Ordering::SeqCst) != 0)
    }

    /// We are about to send the process this signal: a standby that takes over, and does not find in the log that it was taken,
    /// raises it, as it does one of a relative's.
    pub fn note_signal(&self, place: Place, number: i32) {
        let entry = self.get(place);
        if let Some((entry, sent)) = entry.and_then(|entry| Some((entry, entry.sent.get(number as usize)?))) {
            entry.last_sender.store(std::process::id(), Ordering::Relaxed);
            sent.fetch_add(1, Ordering::SeqCst);
        }
    }

    // ---- Duties ----

    /// Tells everybody who waits that something has been said.
    pub fn tell(&self) {
        let ends = &self.header().ends.0;
        ends.fetch_add(1, Ordering::AcqRel);
        wake(ends);
    }

    /// The process is about to be carried on by the kernel's `primary`: it, and its children, are ours from now on.
    /// Before the standby takes over, which may ask for their ends at once. `exists` says whether the kernel knows a process
    /// of a number, be it a zombie.
    pub fn failed_over(&self, place: Place, primary: u32, exists: impl Fn(u32) -> bool) {
        let entry = self.get(place);
        // Before its children are looked through: one that is being born looks here after it has been listed.
        let registry = self.registry();
        // Where others have more rights, a younger one with this number may be one that has taken it for its own.
        let is_anothers = !self.is_mixed() && self.find(place.pid).is_some_and(|(other, _)| other != place);
        if !is_anothers {
            registry.used.fetch_max(place.at as u32 + 1, Ordering::AcqRel);
            self.note_earlier(registry.primaries[place.at].load(Ordering::Relaxed));
            registry.primaries[place.at].store(pair(place.pid, primary), Ordering::SeqCst);
        }
        self.adopt_children(place.pid, u64::MAX, exists);
        let was_kernels =
            entry.is_some_and(|entry| entry.kin.swap(kin::ADOPTED, Ordering::AcqRel) == kin::KERNEL);
        self.tell();
        if let Some(entry) = entry.filter(|_| was_kernels) {
            self.remind_parent(entry);
        }
    }

    /// The kernel has told the parent of a primary's death, and the runtime has not passed that on before it is known
    /// what it means. Nor what came with it: of several ends the kernel tells one.
    fn remind_parent(&self, entry: &Process) {
        let parent = entry.parent.load(Ordering::Acquire);
        if let Some((parent, _)) = (parent != 0).then(|| self.find(parent)).flatten() {
            spawn::signal(self.primary_of(parent), libc::SIGCHLD);
        }
    }

    /// The kernel has given us the children of `parent` that were born before `until_ns`. `true` when there was one
    /// that we did not have already.
    pub fn adopt_children(&self, parent: u32, until_ns: u64, exists: impl Fn(u32) -> bool) -> bool {
        let mut any = false;
        for (place, entry) in self.children(parent) {
            if was_discarded(entry, || exists(self.primary_of(place))) {
                // Nobody would ever hear of its end, and its parent's next copy would wait for that.
                self.free(place);
                continue;
            }
            // The others have been made by its new primary.
            if place.born_ns < until_ns && entry.kin.swap(kin::ADOPTED, Ordering::AcqRel) == kin::KERNEL {
                any = true;
            }
        }
        any
    }

    /// The process's primary is dead, or as good as that, and nobody takes over: what the kernel tells its parent is
    /// true.
    pub fn is_final(&self, place: Place) {
        if let Some(entry) = self.get(place)
            && entry.kin.load(Ordering::Acquire) == kin::KERNEL
        {
            let (from, to) = (end::NONE, end::FINAL);
            let news = entry.end.compare_exchange(from, to, Ordering::AcqRel, Ordering::Acquire).is_ok();
            self.tell();
            // Of an exit the kernel's word is believed at once. A reminder that comes before it is all that the parent gets:
            // the kernel makes one signal of the two, and behind the parent's wait a reminder tells of nobody.
            let will = entry.will.load(Ordering::SeqCst);
            let exits = will & WILL != 0 && libc::WIFEXITED(will & !WILL);
            if news && !exits {
                self.remind_parent(entry);
            }
        }
    }

    /// The process's primary is gone and nobody takes over, whoever was told how it ended: perhaps a parent that has died
    /// since, and whose next copy looks here whether to believe what it finds.
    pub fn nobody_follows(&self, place: Place) {
        if let Some(entry) = self.get(place) {
            let _ = entry.end.compare_exchange(end::NONE, end::FINAL, Ordering::AcqRel, Ordering::Acquire);
            self.tell();
        }
    }

    /// The process has ended for good, and we are the one who knows how. The number of the parent that is to be sent
    /// SIGCHLD, unless there is none that could ask; then the entry is free. `lives` says whether the kernel's
    /// process of a number is there.
    pub fn ended(&self, place: Place, how: &Reaped, lives: impl Fn(u32) -> bool) -> Option<u32> {
        let entry = self.get(place)?;
        let parent = entry.parent.load(Ordering::Acquire);
        if !self.can_ask(parent, lives) {
            self.free(place);
            return None;
        }
        self.note_end(place.at, place.pid, how.status);
        note_how(entry, how);
        // One that its parent listed late may still count as the kernel's.
        entry.kin.store(kin::ADOPTED, Ordering::Release);
        entry.end.store(end::ENDED, Ordering::Release);
        self.tell();
        Some(parent)
    }

    /// The kernel's process `pid` of `user`, which is ours to ask about, has been stopped or goes on, as `status` says. The number of
    /// the parent that is to be sent SIGCHLD.
    pub fn stands(&self, pid: u32, status: u32, user: u32) -> Option<u32> {
        let (_, entry) = self.with_primary(pid)?;
        let is_stop = status != us_abi::CONTINUED;
        if is_stop
            && entry.stops_itself.swap(0, Ordering::SeqCst) != 0
            && entry.stopped.load(Ordering::SeqCst) == 0
        {
            // A relative let it go on when it had not stopped itself yet.
            spawn::signal(pid, libc::SIGCONT);
        }
        entry.user.store(user, Ordering::Relaxed);
        entry.standing.store(status, Ordering::SeqCst);
        self.tell();
        let parent = entry.parent.load(Ordering::Acquire);
        (parent != 0).then_some(parent)
    }

    fn take_free<'a>(&self, processes: &'a [Process]) -> Option<(usize, &'a Process)> {
        // The first is the program's own.
        let free = processes.iter().enumerate().skip(ROOT + 1).find(|(_, entry)| {
            let (from, to) = (process::FREE, process::TAKEN);
            entry.state.compare_exchange(from, to, Ordering::AcqRel, Ordering::Acquire).is_ok()
        });
        let (at, entry) = free?;
        self.header().used.fetch_max(at as u32 + 1, Ordering::AcqRel);
        Some((at, entry))
    }

    /// Nobody has this place of the file of what connections have sent any more.
    pub(crate) fn free_sent(&self, at: usize) {
        if let Some(sent) = self.shared().sent.get(at) {
            sent.end.store(0, Ordering::Relaxed);
            sent.writer.store(0, Ordering::Relaxed);
            sent.identity.store(0, Ordering::Release);
        }
    }

    /// The kernel's process `primary`, which relatives know as `pid`, has just taken over: of children that have ended it may not have heard.
    pub(crate) fn tell_of_ended(&self, pid: u32, primary: u32) {
        if self.children(pid).any(|(_, entry)| entry.end.load(Ordering::Acquire) == end::ENDED) {
            spawn::signal(primary, libc::SIGCHLD);
        }
    }

    /// A child that a replay has made: its parent may come and ask once that has taken over.
    pub(crate) fn enter_child(&self, pid: u32, parent: u32) {
        let Some((_, entry)) = self.take_free(&self.shared().processes) else { return };
        entry.be_new(pid, parent);
        entry.kin.store(kin::ADOPTED, Ordering::Relaxed);
        entry.born_ns.store(clock::monotonic_ns(), Ordering::Relaxed);
        entry.state.store(process::LISTED, Ordering::SeqCst);
    }

    /// A process has ended that is not on the list: it is put there, without a parent. The next copy of the one that made
    /// it a moment before its own death may come and ask. `false` if there is no room.
    pub fn ended_unlisted(&self, pid: u32, how: &Reaped) -> bool {
        let processes = &self.shared().processes;
        let Some((at, entry)) = self.take_free(processes) else { return false };
        entry.be_new(pid, 0);
        entry.kin.store(kin::ADOPTED, Ordering::Relaxed);
        entry.end.store(end::ENDED, Ordering::Relaxed);
        self.note_end(at, pid, how.status);
        note_how(entry, how);
        entry.born_ns.store(clock::monotonic_ns(), Ordering::Relaxed);
        entry.state.store(process::LISTED, Ordering::SeqCst);
        self.tell();
        true
    }

    /// Strikes off those that were listed so before `until_ns`: nobody has come.
    pub fn forget_unlisted(&self, until_ns: u64) {
        let unasked = |place: &Place, entry: &Process| {
            place.at != ROOT && place.born_ns < until_ns && entry.end.load(Ordering::Acquire) == end::ENDED
        };
        self.children(0)
            .filter(|(place, entry)| unasked(place, entry))
            .for_each(|(place, _)| self.free(place));
    }

    /// Strikes off those whose parent has ended since their end was noted for it, and without anybody watching it.
    pub fn forget_unasked(&self, lives: impl Fn(u32) -> bool) {
        let ended = |entry: &Process| entry.end.load(Ordering::Acquire) == end::ENDED;
        let parents: Vec<u32> = self
            .listed()
            .filter(|(_, entry)| ended(entry))
            .map(|(_, entry)| entry.parent.load(Ordering::Acquire))
            .filter(|parent| *parent != 0 && !self.can_ask(*parent, &lives))
            .collect();
        parents.into_iter().for_each(|parent| self.orphan(parent));
    }

    /// Whether there is a parent of this number to ask for its children's ends.
    fn can_ask(&self, parent: u32, lives: impl Fn(u32) -> bool) -> bool {
        let listed = (parent != 0).then(|| self.find(parent)).flatten();
        listed.is_some_and(|(place, entry)| match entry.end.load(Ordering::Acquire) {
            // One that has never joined nobody can follow. The program itself begins with a segment.
            end::NONE => {
                place.at == ROOT || entry.joined.load(Ordering::Acquire) != 0 || lives(self.primary_of(place))
            }
            end::FINAL => lives(self.primary_of(place)),
            _ => false,
        })
    }

    /// The process of this number has ended for good: its children are those of the next of its ancestors that reaps
    /// orphans. If there is none, nobody asks for them any more.
    pub fn orphan(&self, pid: u32) {
        let reaper = self.reaper_above(pid);
        for (place, entry) in self.children(pid) {
            entry.parent.store(reaper, Ordering::Release);
            if entry.end.load(Ordering::Acquire) == end::ENDED {
                match reaper {
                    0 => self.free(place),
                    _ => self.remind_parent(entry),
                }
            }
        }
        self.tell();
    }

    /// The process of this number has ended for good: its children that want to hear of it, each by the kernel's number of
    /// its primary and the signal that it is to be sent. Before they are [`orphan`](Roster::orphan)s. `may_ask` says whether
    /// whoever may have written so could send that signal.
    pub fn mourners(&self, pid: u32, may_ask: impl Fn(u32) -> bool) -> Vec<(u32, i32)> {
        let mut mourners = Vec::new();
        for (place, entry) in self.children(pid) {
            let primary = self.primary_of(place);
            if !may_ask(primary) {
                continue;
            }
            // Written by a guest: a wild value is none.
            let signal = entry.death_signal.swap(0, Ordering::SeqCst);
            let Some(sent) = entry.sent.get(signal as usize).filter(|_| signal != 0) else { continue };
            if signal as i32 == libc::SIGKILL {
                entry.doomed.store(1, Ordering::SeqCst);
            } else {
                // A promoted copy knows by it that there is one to be taken.
                entry.last_sender.store(pid, Ordering::Relaxed);
                sent.fetch_add(1, Ordering::SeqCst);
            }
            mourners.push((primary, signal as i32));
        }
        mourners
    }

    fn reaper_above(&self, pid: u32) -> u32 {
        // Itself it may be off the list already: what its entry says stays until another takes it.
        let used = (self.header().used.load(Ordering::Acquire) as usize).min(PROCESSES_MAX);
        let known =
            self.shared().processes[..used].iter().find(|entry| entry.pid.load(Ordering::Relaxed) == pid);
        let mut above = known.map_or(0, |entry| entry.parent.load(Ordering::Acquire));
        // Numbers may be used again: no chain is longer than the list.
        for _ in 0..PROCESSES_MAX {
            let Some((_, entry)) = (above != 0).then(|| self.find(above)).flatten() else { return 0 };
            if entry.reaps_orphans.load(Ordering::SeqCst) != 0 {
                return above;
            }
            above = entry.parent.load(Ordering::Acquire);
        }
        0
    }

    /// Strikes a process off the list, if it is still this one.
    pub fn free(&self, place: Place) {
        if let Some(entry) = self.get(place) {
            let (from, to) = (process::LISTED, process::FREE);
            let _ = entry.state.compare_exchange(from, to, Ordering::AcqRel, Ordering::Acquire);
        }
    }

    fn children(&self, parent: u32) -> impl Iterator<Item = (Place, &Process)> {
        self.listed().filter(move |(_, entry)| entry.parent.load(Ordering::Acquire) == parent)
    }
}

/// How a process has ended, and whose it was. The kernel forgets that with it, and its parent may wait for a process group.
fn note_how(entry: &Process, how: &Reaped) {
    entry.status.store(how.status, Ordering::Relaxed);
    for (word, used) in entry.used_us.iter().zip(how.used_us) {
        word.store(used, Ordering::Relaxed);
    }
    if let Some(whose) = how.whose {
        entry.group.store(whose.group, Ordering::Relaxed);
        entry.session.store(whose.session + 1, Ordering::Relaxed);
        entry.user.store(whose.user, Ordering::Relaxed);
    }
}

/// Whether the kernel has done away with a child that it counted as its parent's, without anybody asking: the parent ignores
/// SIGCHLD. One that has joined may be between two primaries, or may have said how it wanted to end: its parent's next copy
/// looks for itself.
fn was_discarded(entry: &Process, exists: impl Fn() -> bool) -> bool {
    entry.kin.load(Ordering::Acquire) == kin::KERNEL
        && entry.end.load(Ordering::Acquire) == end::NONE
        && entry.joined.load(Ordering::Acquire) == 0
        && !exists()
}

/// Makes and maps a file for all processes of a group.
fn make(dir: &Dir, name: &str, bytes: usize) -> Result<Mapping, Error> {
    let path = dir.at(name);
    let file = dir.make_file(name).map_err(|cause| Error::file("make", &path, cause))?;
    // All of it, which is little: on a full file system a hole would show as SIGBUS in whoever touches it first.
    rustix::fs::fallocate(&file, FallocateFlags::empty(), 0, bytes as u64)
        .map_err(|cause| Error::file("reserve room for", &path, cause))?;
    Mapping::new(&path, &file, bytes)
}

fn place(at: usize, entry: &Process) -> Place {
    Place { at, pid: entry.pid.load(Ordering::Relaxed), born_ns: entry.born_ns.load(Ordering::Relaxed) }
}

#[cfg(test)]
mod tests;
