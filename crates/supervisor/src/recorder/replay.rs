//! `understudy replay`: starts the program again and feeds it what the recording holds.
//!
//! Nothing of the original is needed but its files. Images that a start or an exec made are started from here; those
//! that a fork made fork. Each is a process of its own that applies its own log, so none waits for another but
//! where they write to the standard descriptors.

mod debugger;
mod ends;
mod heirs;
pub(in crate::recorder) mod joining;
mod middle;
pub mod mirror;
mod start;
pub mod takeover;

use std::collections::{HashMap, HashSet};
use std::fs::File;
use std::os::fd::AsFd;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use checkpoint::Recorded;
pub use debugger::Debugger;
use debugger::Onlooker;
use mirror::Mirror;
use recording::{How, Image, Item, Reader};
use rustix::event::{PollFd, PollFlags, poll};
use us_abi::{CONFIG_DETACHED, CONFIG_GATED, CONFIG_SERIAL, Config, EventKind};

use super::facts::Facts;
use super::feed::{Ending, Fed};
use super::rings::Rings;
use super::{of_recording, surroundings};
use crate::checkpoint::restore::Checkpoint;
use crate::clock;
use crate::dir::Dir;
use crate::error::Error;
use crate::folder::{GroupFolder, SEGMENT};
use crate::proc;
use crate::program;
use crate::reap;
use crate::roster::Roster;
use crate::segment::Segment;
use crate::spawn::{self, Layout, Signals};

/// Events that wait for the slowest process, bytes. More are read only for one that has none left.
const QUEUED_BYTES: usize = 16 << 20;
const NAP_NS: u64 = 200_000;
/// So long nothing may move once everything has been handed over, before the end of what can be replayed is assumed.
const STUCK_NS: u64 = 3_000_000_000;
/// So long no process may move, and then be found asleep at so many looks, each so long behind the last: they wait for each other.
const STANDS_NS: u64 = 1_000_000_000;
const ASLEEP_LOOKS: u32 = 5;
const LOOK_NS: u64 = 100_000_000;
/// A process whose log has been applied and that does not end by itself is ended.
const STILL_NS: u64 = 300_000_000;

/// What is asked for.
#[derive(Clone, Debug)]
pub struct Order {
    /// The recording.
    pub file: PathBuf,
    /// Who looks on.
    pub debugger: Debugger,
    /// To begin at the last checkpoint before the event of this number.
    pub from: Option<u64>,
    /// To stop before the event of this number, counted in the order of the file.
    pub until: Option<u64>,
    /// To replay although this machine differs.
    pub force: bool,
}

/// Replays; the exit code. `told` hears again and again how many bytes of the recording have been read.
///
/// # Errors
/// When the recording cannot be read, this is not the machine for it, or the program cannot be started.
pub fn replay(order: &Order, told: &dyn Fn(u64)) -> Result<i32, Error> {
    // What is looked at is what is read: the name may mean another file a moment later.
    let not_read = |cause| of_recording(&order.file, recording::Error::Io(cause));
    let file =
        File::options().read(true).custom_flags(libc::O_NONBLOCK).open(&order.file).map_err(not_read)?;
    let owner = file.metadata().map_err(not_read)?.uid();
    let me = rustix::process::geteuid().as_raw();
    if owner != me && owner != 0 && !order.force {
        return Err(Error::NotReplayed(format!(
            "{} belongs to user {owner}: a recording is a program, and a replay would run it as you; --force allows that",
            order.file.display()
        )));
    }
    let reader = Reader::of(file).map_err(|cause| of_recording(&order.file, cause))?;
    let differences = surroundings::differences(reader.header());
    if !differences.is_empty() && !order.force {
        return Err(Error::NotReplayed(format!("{}: {}", order.file.display(), differences.join("; "))));
    }
    let from = middle::find(order, reader.header())?;
    let library = program::library()?;
    let folder = GroupFolder::first_free("replay")?;
    Replay::new(order, told, (&folder.dir, library), reader, spawn::take_signals()?)?.run(from)
}

impl<'a> Replay<'a> {
    /// In a group's folder, with our library.
    fn new(
        order: &'a Order,
        told: &'a dyn Fn(u64),
        (dir, library): (&Arc<Dir>, PathBuf),
        reader: Reader,
        signals: Signals,
    ) -> Result<Replay<'a>, Error> {
        let roster = Arc::new(Roster::create(dir)?);
        rustix::process::set_child_subreaper(Some(rustix::process::getpid()))
            .map_err(|cause| Error::system("adopt the program's orphans", cause))?;
        let path = dir.path();
        let path = path.canonicalize().map_err(|cause| Error::file("find", path, cause))?;
        Ok(Replay {
            order,
            told,
            dir: Arc::clone(dir),
            path,
            library,
            roster,
            signals,
            layout: Layout { directory: None, stack: surroundings::stack(reader.header()) },
            reader,
            fed: Vec::new(),
            pids: HashMap::new(),
            slots: HashMap::new(),
            kin: HashSet::new(),
            waiting_facts: HashMap::new(),
            events: 0,
            is_read: false,
            incomplete: None,
            diverged: None,
            cut: Vec::new(),
            ended: HashMap::new(),
            ended_otherwise: None,
            stopped: false,
            debugger: None,
            ends: HashMap::new(),
            root: None,
            asleep: (0, 0),
            mirror: None,
        })
    }
}

struct Replay<'a> {
    order: &'a Order,
    told: &'a dyn Fn(u64),
    dir: Arc<Dir>,
    /// The folder's whole path, as the runtime is told it.
    path: PathBuf,
    library: PathBuf,
    roster: Arc<Roster>,
    signals: Signals,
    layout: Layout,
    reader: Reader,
    fed: Vec<Fed>,
    /// The number by which the process of an image knows itself.
    pids: HashMap<u32, u32>,
    /// Where an image lies in `fed`, while it does.
    slots: HashMap<u32, usize>,
    /// Images of the program itself, and of what it has made by forks alone.
    kin: HashSet<u32>,
    /// Facts of images of which no event has been read: the first one says in which slot they begin.
    waiting_facts: HashMap<u32, Vec<u8>>,
    events: u64,
    is_read: bool,
    /// Why the recording is not whole.
    incomplete: Option<String>,
    /// What a process that is gone did that the recording does not say.
    diverged: Option<(u32, String)>,
    /// Processes whose logs end before they did, and why.
    cut: Vec<(u32, String)>,
    /// How images have ended whose recorded end has not been read yet.
    ended: HashMap<u32, i32>,
    /// How a process that exited when it was recorded has ended instead: its number, the recorded status, the replay's.
    ended_otherwise: Option<(u32, i32, i32)>,
    /// The event that was asked for has been reached.
    stopped: bool,
    debugger: Option<Onlooker>,
    /// How processes that we started have ended, by the kernel's number.
    ends: HashMap<u32, i32>,
    root: Option<Root>,
    /// At how many looks all processes slept, and when the last one was taken.
    asleep: (u32, u64),
    /// The recording still grows.
    mirror: Option<Mirror>,
}

/// The program itself: its number, and what the recording says of its end.
#[derive(Clone, Debug)]
struct Root {
    pid: u32,
    /// Its last image so far.
    image: u32,
    ending: Option<Ending>,
}

impl Replay<'_> {
    fn run(mut self, from: Option<(Checkpoint, Recorded)>) -> Result<i32, Error> {
        let begun = from.map_or(Ok(()), |(checkpoint, at)| self.begin_at(&checkpoint, &at));
        let outcome = begun.and_then(|()| self.until_the_end());
        self.end_all(outcome.is_err());
        outcome.map(|()| self.verdict())
    }

    /// Nothing is left of what was started.
    fn end_all(&mut self, has_failed: bool) {
        self.roster.header().closing.store(1, Ordering::SeqCst);
        let left: Vec<u32> = self.fed.iter().map(Fed::process).filter(|pid| *pid > 1).collect();
        for pid in left {
            if proc::is_descendant(pid, std::process::id()) {
                spawn::signal(pid, libc::SIGKILL);
            }
        }
        if let Some(debugger) = &mut self.debugger {
            debugger.end(has_failed);
        }
        while reap::has_children() {
            match reap::next_ended_child() {
                Some(pid) => _ = reap::take(pid),
                None => std::thread::sleep(std::time::Duration::from_millis(1)),
            }
        }
    }

    fn until_the_end(&mut self) -> Result<(), Error> {
        loop {
            let read = self.read()?;
            (self.told)(self.reader.offset());
            let mut moved = 0;
            for fed in &mut self.fed {
                moved += fed.feed().map_err(|cause| Error::file("write", &fed.path, cause))?;
            }
            self.reap();
            self.check_way()?;
            self.end_finished();
            // Of those that have just ended as well: nobody may be left to look at next time.
            self.check_way()?;
            self.check_progress()?;
            let debugged = self.debugger.as_mut().is_some_and(Onlooker::is_there);
            if self.is_read && self.fed.is_empty() && !debugged {
                return Ok(());
            }
            if self.debugger.is_some() && !debugged {
                // Whoever looked on has gone.
                return Ok(());
            }
            if !read && moved == 0 {
                self.sleep();
            }
            if self.interrupted() {
                return Err(Error::NotReplayed("interrupted".into()));
            }
        }
    }

    fn check_way(&self) -> Result<(), Error> {
        let diverged = || self.fed.iter().find_map(|fed| Some((fed.pid, fed.divergence()?)));
        match self.diverged.clone().or_else(diverged) {
            Some((pid, what)) => Err(Error::NotReplayed(format!(
                "the replay of process {pid} went another way than the recording: {what}"
            ))),
            None => Ok(()),
        }
    }

    fn sleep(&self) {
        let mut fds = [PollFd::from_borrowed_fd(self.signals.fd.as_fd(), PollFlags::IN)];
        let _ = poll(&mut fds, Some(&clock::timespec(NAP_NS)));
    }

    fn interrupted(&self) -> bool {
        let ends = |signal| matches!(signal, libc::SIGINT | libc::SIGTERM | libc::SIGHUP | libc::SIGQUIT);
        let under_gdb = matches!(self.order.debugger, Debugger::Gdb(_));
        // A debugger has its own use for the keys of its terminal.
        std::iter::from_fn(|| self.signals.next())
            .any(|arrived| ends(arrived.signal) && !(under_gdb && arrived.from_kernel))
    }

    /// A race may also end in threads that wait for each other: no event says of which lock it is.
    fn check_progress(&mut self) -> Result<(), Error> {
        // Others may wait for one that is held by a debugger.
        if self.debugger.is_some() {
            return Ok(());
        }
        let now = clock::monotonic_ns();
        let waits = |fed: &&Fed| fed.waits(now, STANDS_NS);
        let all_sleep = self.do_all_sleep(now);
        // Rings are emptied one by one: where a file is cut off, or is to be read no further, an event may follow from one that would
        // have come.
        let is_cut = self.incomplete.is_some() || self.stopped;
        if is_cut && self.fed.iter().all(|fed| fed.queued() == 0) {
            self.fed.iter().filter(|_| all_sleep).for_each(Fed::end);
            return Ok(());
        }
        let stuck = self.fed.iter().find(|fed| fed.is_stuck(now) || all_sleep && waits(fed));
        match stuck {
            // Once everything has been handed over, the end of the log may be why.
            Some(fed) if fed.ending.as_ref().is_none_or(Ending::is_exit) => Err(Error::NotReplayed(format!(
                "the replay of process {} does not reach its next event: its threads went another way than the recording",
                fed.pid
            ))),
            _ => Ok(()),
        }
    }

    /// Whether no process can move another one any more.
    fn do_all_sleep(&mut self, now: u64) -> bool {
        let (looks, looked_ns) = self.asleep;
        if now < looked_ns + LOOK_NS {
            return false;
        }
        let all = self.fed.iter().any(|fed| fed.waits(now, STANDS_NS))
            && self.fed.iter().all(|fed| fed.sleeps(now, STANDS_NS));
        self.asleep = (if all { looks + 1 } else { 0 }, now);
        self.asleep.0 >= ASLEEP_LOOKS
    }

    // ---- Reading ----

    /// Reads on if anybody has a use for it. Returns whether it has read anything.
    fn read(&mut self) -> Result<bool, Error> {
        let queued: usize = self.fed.iter().map(Fed::queued).sum();
        let wanted = self.fed.is_empty() || queued < QUEUED_BYTES || self.fed.iter().any(Fed::is_hungry);
        if self.is_read || !wanted {
            return Ok(false);
        }
        match self.reader.next() {
            Ok(Some(item)) => self.take(item)?,
            Ok(None) => self.is_read = true,
            Err(recording::Error::Unfinished { .. }) if self.mirror.is_some() => return Ok(false),
            Err(cause) => {
                self.is_read = true;
                self.incomplete = Some(cause.to_string());
            }
        }
        Ok(true)
    }

    fn take(&mut self, item: Item) -> Result<(), Error> {
        match item {
            Item::Image(image) => self.take_image(&image),
            Item::Events { image, slot, bytes } => {
                self.take_events(image, slot, bytes);
                Ok(())
            }
            Item::End { image, status, facts } => {
                self.take_end(image, Ending::new(status, &facts));
                Ok(())
            }
            Item::Complete(_) => Ok(()),
        }
    }

    fn take_events(&mut self, image: u32, slot: u16, mut bytes: Vec<u8>) {
        if let Some(until) = self.order.until {
            let count = recording::Events::new(&bytes).count() as u64;
            if self.events + count > until {
                let keep = (until - self.events) as usize;
                let size: usize = recording::Events::new(&bytes).take(keep).map(|event| event.size()).sum();
                bytes.truncate(size);
                self.is_read = true;
                self.stopped = true;
            }
        }
        self.events += recording::Events::new(&bytes).count() as u64;
        self.take_notes(&mut bytes);
        let Some(fed) = self.slots.get(&image).map(|at| &mut self.fed[*at]) else { return };
        if let Some(facts) = self.waiting_facts.remove(&image) {
            fed.begin(slot, &facts);
        }
        fed.push(slot, bytes);
    }

    /// What a gate has said is no event of the program's. Nor is an image for a machine that joins.
    fn take_notes(&mut self, bytes: &mut Vec<u8>) {
        let is_picture = |event: &recording::Event| event.header.kind == EventKind::Picture as u8;
        let is_note =
            |event: &recording::Event| event.header.kind == EventKind::Gate as u8 || is_picture(event);
        if !recording::Events::new(bytes).any(|event| is_note(&event)) {
            return;
        }
        let (mut left, mut at) = (Vec::new(), 0);
        for event in recording::Events::new(bytes) {
            let end = at + event.size();
            match (is_note(&event), &mut self.mirror) {
                (true, Some(mirror)) if !is_picture(&event) => {
                    mirror.take_note(event.payload, self.reader.offset())
                }
                (true, _) => {}
                (false, _) => left.extend_from_slice(&bytes[at..end]),
            }
            at = end;
        }
        *bytes = left;
    }

    fn take_end(&mut self, image: u32, ending: Ending) {
        if let Some(root) = self.root.as_mut().filter(|root| root.image == image && !ending.is_exec) {
            root.ending = Some(ending.clone());
        }
        if let (Some(why), Some(pid)) = (&ending.why, self.pids.get(&image)) {
            self.cut.push((*pid, why.clone()));
        }
        // Its process may have come to its end before we have read of it.
        if let Some(status) = self.ended.remove(&image) {
            self.compare_end(image, &ending, status);
        }
        self.note_childs_end(image, &ending);
        let Some(fed) = self.slots.get(&image).map(|at| &mut self.fed[*at]) else { return };
        if let Some(facts) = self.waiting_facts.remove(&image) {
            fed.begin(0, &facts);
        }
        fed.ending = Some(ending);
    }

    // ---- Images ----

    fn take_image(&mut self, image: &Image) -> Result<(), Error> {
        let facts = Facts::read(&image.facts);
        let facts = facts.ok_or_else(|| self.refuse("it does not describe one of its processes"))?;
        if let Some(root) =
            self.root.as_mut().filter(|root| image.how == How::Executed && image.parent == Some(root.image))
            && root.pid == facts.pid
        {
            root.image = image.number;
        }
        if self.root.is_none() {
            self.root = Some(Root { pid: facts.pid, image: image.number, ending: None });
            if self.mirror.is_some() {
                self.roster.enter_root(facts.pid);
            }
            for (place, identity) in self.roster.header().standard.iter().zip(facts.standard) {
                place.store(identity, Ordering::Release);
            }
        }
        let is_roots = self.root.as_ref().is_some_and(|root| root.image == image.number);
        let name = match image.how {
            How::Forked => format!("segment.{}", facts.pid),
            // As in a group that runs: what follows is to be one.
            _ if self.mirror.is_some() && is_roots => SEGMENT.into(),
            // As long as `segment`.
            _ => format!("s{:06}", image.number),
        };
        const NEW: &str = "new";
        let path = self.path.join(&name);
        // The number may have been another's, whose process has this file mapped or is gone.
        let _ = self.dir.remove(&name);
        let kept = CONFIG_SERIAL | if self.mirror.is_some() { CONFIG_GATED } else { 0 };
        let segment = Segment::create(&self.dir, NEW, config(self.purpose() | facts.flags & kept))?;
        let header = segment.header();
        header.guest_pid.store(facts.pid, Ordering::Release);
        let mut fed = Fed::new(image.number, facts.pid, Rings::new(segment, &self.dir, NEW)?, path.clone())?;
        let started = image.how != How::Forked;
        if started {
            // It begins in its first slot. A forked one begins in that of the thread that forked.
            fed.begin(0, &image.facts);
            fed.feed().map_err(|cause| Error::file("write", self.dir.at(NEW), cause))?;
        } else {
            self.waiting_facts.insert(image.number, image.facts.clone());
        }
        // Whole at once for a child that waits for it.
        self.dir.rename(NEW, &name).map_err(|cause| Error::file("make", &path, cause))?;
        if started {
            self.start(&mut fed, &facts)?;
        }
        let is_kin =
            image.how == How::Forked && image.parent.is_some_and(|parent| self.kin.contains(&parent));
        if is_roots || is_kin {
            self.kin.insert(image.number);
        }
        if image.how == How::Forked {
            self.note_child(image.parent, facts.pid);
        }
        self.pids.insert(image.number, facts.pid);
        self.slots.insert(image.number, self.fed.len());
        self.fed.push(fed);
        Ok(())
    }

    fn refuse(&self, why: &str) -> Error {
        Error::NotReplayed(format!("{}: {why}", self.order.file.display()))
    }
}

fn config(flags: u32) -> Config {
    Config {
        lag_timeout_ms: 100,
        standbys: 0,
        lag_limit: u64::MAX,
        verify: 1,
        flags: CONFIG_DETACHED | flags,
        lead_us: us_order::pace::LEAD_US,
        pad: 0,
        primary_cpus: [0; 16],
        standby_cpus: [0; 16],
    }
}
