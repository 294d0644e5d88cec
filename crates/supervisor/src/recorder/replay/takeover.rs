//! A mirror takes over: it applies what it has of the log, gets what it needs of the kernel's, and is a program of this machine's that
//! is watched as `run` does.

use std::fs::File;
use std::os::unix::fs::OpenOptionsExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex};

use rustix::event::EventfdFlags;
use serde_json::json;
use us_abi::{CONFIG_GATED, CONFIG_RECORDED, CONFIG_SERIAL};

use super::Replay;
use super::heirs::{self, Heir};
use super::mirror::MIRROR;
use crate::book::Book;
use crate::error::Error;
use crate::events::Voice;
use crate::folder::{GroupFolder, Meta, ProcessId, Recording};
use crate::gate::rebuild::{self, Rebuilt};
use crate::gate::{self, net};
use crate::group::Group;
use crate::handout::Handout;
use crate::history::History;
use crate::options::{Cluster, Options, Verbosity};
use crate::reap::Reaped;
use crate::recorder::beside::{Beside, Prepared, padded_paths};
use crate::recorder::cluster;
use crate::recorder::feed::Ending;
use crate::recorder::take::UNKNOWN;
use crate::roster::{self, Place};
use crate::sentry::Shared;
use crate::{clock, request, run, terminal};

/// The file beside a log's copy that says that nothing more of it is taken here. `crates/node` looks for it.
pub fn fence(copy: &Path) -> PathBuf {
    copy.with_extension("taken")
}

/// So long nothing may move before the rest of the log is taken for one that lacks something.
pub(super) const STILL_NS: u64 = 20_000_000;

/// After so long the same holds although somebody computes.
pub(super) const OVER_NS: u64 = 1_000_000_000;

/// Somebody wants it to take over.
pub(super) struct Wish {
    /// Who waits to hear of it.
    callers: Vec<UnixStream>,
    /// When it was said, CLOCK_MONOTONIC ns.
    said_ns: u64,
    /// When something was applied last.
    moved_ns: u64,
}

impl Wish {
    /// Nothing more comes from the other machine from here on.
    ///
    /// # Errors
    /// When that cannot be written down.
    pub(super) fn new(copy: &Path) -> Result<Wish, Error> {
        let path = fence(copy);
        let written = File::options().write(true).create(true).truncate(true).mode(0o600).open(&path);
        written.and_then(|file| file.sync_all()).map_err(|cause| Error::file("write", &path, cause))?;
        let now = clock::monotonic_ns();
        Ok(Wish { callers: Vec::new(), said_ns: now, moved_ns: now })
    }

    pub(super) fn add(&mut self, caller: UnixStream) {
        self.callers.push(caller);
    }

    /// Whether nothing has moved for long enough; `moved`: something just has. The last event was applied at `last_ns`.
    pub(super) fn is_still(&mut self, moved: bool, last_ns: u64, now: u64) -> bool {
        self.moved_ns = if moved { now } else { self.moved_ns.max(last_ns) };
        now >= self.moved_ns + STILL_NS
    }

    /// Whether that has been so for so long that nobody will come to an event any more.
    pub(super) fn is_over(&self, now: u64) -> bool {
        now >= self.moved_ns + OVER_NS
    }

    fn answer(&mut self, answer: &serde_json::Value) {
        self.callers.drain(..).for_each(|caller| request::answer(caller, answer));
    }
}

impl Drop for Wish {
    fn drop(&mut self) {
        self.answer(&json!({ "error": "it did not take over" }));
    }
}

impl Replay<'_> {
    /// Why this replay cannot take over, if it cannot.
    pub(super) fn obstacle(&self) -> Option<String> {
        let Some(root) = &self.root else { return Some("nothing of its log is here".into()) };
        let is_there = self.fed.iter().any(|fed| fed.image == root.image && fed.process() != 0);
        (!is_there).then(|| "its program is not there".into())
    }

    /// A mirror's program has a child: it may ask for that one's end once it has taken over.
    pub(super) fn note_child(&self, parent: Option<u32>, pid: u32) {
        let parent = parent.and_then(|image| self.pids.get(&image));
        if let Some(parent) = parent.filter(|_| self.mirror.is_some()) {
            self.roster.enter_child(pid, *parent);
        }
    }

    /// That one has ended, and nobody has asked for it yet.
    pub(super) fn note_childs_end(&self, image: u32, ending: &Ending) {
        let is_end = self.mirror.is_some() && !ending.is_exec && ending.why.is_none();
        let pid = self.pids.get(&image).filter(|_| is_end && ending.status != UNKNOWN);
        let found = pid.and_then(|pid| self.roster.find(*pid));
        if let Some((place, _)) = found.filter(|(place, _)| place.at != roster::ROOT) {
            self.roster.ended(place, &Reaped::by(ending.status), |_| true);
        }
    }
}

impl Replay<'_> {
    /// Has the log go on behind the take-over, to other machines; says what stands against it.
    fn prepare(&self, cluster: &Cluster, heirs: &[Heir], ended: &[u32], name: &str) -> Option<Prepared> {
        let images = heirs.iter().map(|heir| (heir.fed.pid, heir.fed.image));
        let program = &heirs.first()?.fed;
        let made = match program.rings.segment.header().config.flags & CONFIG_SERIAL {
            0 => cluster::Prepared::new(cluster).and_then(|cluster| {
                let gate = self.prepare_gate(name);
                let images = (program.image, images.skip(1).collect());
                Prepared::behind(&self.order.file, &self.reader, images, ended, (cluster, gate))
            }),
            _ => Err(Error::Refused("its threads take turns".into())),
        };
        let told = |cause: &Error| {
            terminal::say(&format!("{name}: it will not be followed: {}", run::explain(cause)));
        };
        made.inspect_err(told).ok()
    }

    /// A gate for the address of the service, if it has one: before this machine has that.
    fn prepare_gate(&self, name: &str) -> Option<gate::Prepared> {
        let notes = &self.mirror.as_ref()?.notes;
        let told = |cause: &Error| {
            terminal::say(&format!("{name}: nothing waits at a gate: {}", run::explain(cause)));
        };
        gate::Prepared::before(notes.address.as_ref()?, notes.is_relaxed).inspect_err(told).ok()
    }
}

/// The address of the service is this machine's from here on. Whether somebody has to give it back who takes no gate there.
fn move_here(address: &gate::Address, gate: Option<&mut gate::Prepared>, name: &str) -> bool {
    let is_gated = gate.is_some();
    let taken = match gate {
        Some(gate) => gate.take().map_err(|cause| run::explain(&cause)).map(|()| true),
        None => net::take(address),
    };
    let announced = |is_new| net::announce(address).map(|()| is_new).map_err(|cause| cause.to_string());
    let moved = taken.and_then(announced).inspect_err(|why| {
        terminal::say(&format!("{name}: the address of the service is not here: {why}"));
    });
    moved == Ok(true) && !is_gated
}

/// Has the replayed program take over, and watches it to its end; the exit code.
///
/// # Errors
/// When it did not come to be live.
pub(super) fn take_over(
    mut replay: Replay,
    mut wish: Wish,
    mut options: Options,
    cluster: Option<&Cluster>,
    folder: &GroupFolder,
    mut meta: Meta,
) -> Result<i32, Error> {
    let refuse = |why: &str| Error::NotReplayed(why.into());
    if let Some(why) = replay.obstacle() {
        wish.answer(&json!({ "error": why }));
        return Err(refuse(&why));
    }
    let (mut heirs, ended) = replay.heirs().ok_or_else(|| refuse("its program is gone"))?;
    // What ends with the node is what follows.
    let _ = rustix::process::set_parent_process_death_signal(None);
    let before = heirs[0].fed.rings.segment.header().config.flags;
    let mut prepared = cluster.and_then(|cluster| replay.prepare(cluster, &heirs, &ended, &folder.name));
    let machine = replay.mirror.as_ref().map_or(0, |mirror| mirror.notes.machines);
    let mut flags = 0;
    if let Some(prepared) = &mut prepared {
        // In the order that the log has, which goes on.
        options.order = "schedule".into();
        flags = CONFIG_RECORDED | if prepared.gate().is_some() { before & CONFIG_GATED } else { 0 };
    }
    for heir in &heirs {
        heir.is_program(&options.config(flags), prepared.as_ref().map(|_| machine))?;
    }
    let (mut rebuilt, name) = (None, &folder.name);
    let known = replay.mirror.as_ref().map(|mirror| (&mirror.notes, &mirror.sent, mirror.last_came_ns()));
    let mut is_here = false;
    let mut live = heirs::take_over(&heirs, |there| {
        let Some((notes, sent, came_ns)) = known else { return };
        let all: Vec<rebuild::Of> =
            there.iter().map(|heir| (&heir.fed.rings.segment, heir.child.pid)).collect();
        let mut connections = rebuild::rebuild(&all, notes, came_ns);
        // Not before: what comes for a connection that is not there is answered by a reset.
        if let Some(address) = &notes.address {
            is_here = move_here(address, prepared.as_mut().and_then(Prepared::gate), name);
        }
        connections.resume(sent);
        rebuilt = Some(connections);
    });
    let Some(live_ns) = live.remove(0) else {
        if let Some(address) = known.and_then(|(notes, ..)| notes.address.as_ref()).filter(|_| is_here) {
            net::leave(address);
        }
        return Err(refuse(&heirs[0].why_not()));
    };
    // It is asked for other things from here on.
    heirs.iter().for_each(Heir::has_taken_over);
    let Heir { fed, child } = heirs.remove(0);
    let (pid, guest_pid) = (child.pid, fed.pid);
    heirs.iter().for_each(|heir| replay.roster.tell_of_ended(heir.fed.pid, heir.child.pid));
    replay.roster.tell_of_ended(guest_pid, pid);
    if let Some(gate) = prepared.as_mut().and_then(Prepared::gate) {
        gate.adopt(rebuilt.iter().flat_map(Rebuilt::adopted).collect(), machine);
    }
    let connections = rebuilt.as_ref().map(Rebuilt::words);
    rebuilt.into_iter().for_each(Rebuilt::wake);
    if let Some(connections) = &connections {
        terminal::say(&format!("{name}: {connections}"));
    }
    let _ = folder.dir.remove(rebuild::SENT);
    let blackout_us = (live_ns.saturating_sub(wish.said_ns)) / 1000;
    terminal::say(&format!(
        "{name}: pid {pid} took over from another machine, {:.1} ms after it was told to",
        blackout_us as f64 / 1000.0
    ));
    let _ = folder.dir.remove(MIRROR);
    // The group's own takes its place.
    let _ = folder.dir.remove(request::NAME);
    wish.answer(&json!({ "primary": pid, "blackout_us": blackout_us, "in_doubt": 0, "unsettled": 0 }));
    drop(wish);
    meta.primary = ProcessId::of(pid);
    (meta.root, meta.lead) = (guest_pid, guest_pid);
    let path = match &prepared {
        Some(_) => padded_paths(&replay.library, &folder.segment_path()?).1,
        None => folder.segment_path()?,
    };
    let handout = Handout::open(&path, options.config(flags))
        .and_then(|handout| handout.start(Arc::clone(&folder.dir), Arc::clone(&replay.roster), pid));
    let mut voice = Voice::open(None, Verbosity::Normal)?;
    voice.set_group(name);
    if let Err(cause) = handout {
        let line = format!("{name}: who changes the user or the root cannot join later: {cause}");
        voice.say(Verbosity::Verbose, &line);
    }
    let bell = rustix::event::eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)
        .map_err(|cause| Error::system("make an eventfd", cause))?;
    let bell = Arc::new(bell);
    meta.recording = prepared.as_ref().map(|_| Recording::into(&replay.order.file));
    let beside = prepared.and_then(|prepared| {
        let begun = Beside::start(prepared, folder, guest_pid, Arc::clone(&replay.roster), Arc::clone(&bell));
        begun
            .inspect_err(|cause| {
                let header = fed.rings.segment.header();
                header.recorder.0.store(us_abi::recorder::STOPPED, Ordering::Release);
                terminal::say(&format!("{name}: its log ends here: {}", run::explain(cause)));
            })
            .ok()
    });
    let mut others = Vec::new();
    for (heir, live_ns) in heirs.into_iter().zip(live) {
        if live_ns.is_some() {
            others.push(heir.restored(&replay.roster));
            continue;
        }
        // As by a signal, while its parent goes on.
        terminal::say(&format!("{name}: process {} did not take over: {}", heir.fed.pid, heir.why_not()));
        beside.iter().for_each(|beside| beside.ended(heir.fed.pid, Some(libc::SIGKILL)));
        if let Some((place, _)) = replay.roster.find(heir.fed.pid) {
            replay.roster.ended(place, &Reaped::by(libc::SIGKILL), |_| true);
            replay.roster.tell_of_ended(guest_pid, pid);
        }
    }
    let place = replay.roster.find(guest_pid).map(|(place, _)| place);
    let shared = Arc::new(Shared {
        segment: fed.rings.segment,
        place: place.unwrap_or(Place { at: roster::ROOT, pid: guest_pid, born_ns: 0 }),
        roster: Arc::clone(&replay.roster),
        primary: Mutex::new(Some(child.clone())),
        standby_pid: AtomicU32::new(0),
        choice: Mutex::new(()),
        bell,
        done: AtomicBool::new(false),
        scores: Mutex::default(),
        relieved: AtomicU32::new(0),
    });
    let book = Book { folder, meta, history: History::default(), voice, explaining: Vec::new() };
    let Replay { signals, .. } = replay;
    let mut group = Group::new(book, shared, signals, child, None, beside, None);
    others.into_iter().for_each(|other| group.go_on_with(other));
    Ok(group.until_the_end().exit_code())
}
