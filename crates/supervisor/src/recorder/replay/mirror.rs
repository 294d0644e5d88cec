//! A *mirror*: a replay of a recording that is still written, on another machine than the program's. `understudy node` starts one
//! for each log that it keeps, if it is asked to.
//!
//! It has a group's folder under the group's name, so `status` of that machine shows how far it is. What it must not follow (another
//! runtime, processor or program, or a program that went another way) it says, and stays only to show it: the log is kept all the same.

use std::collections::VecDeque;
use std::fs::File;
use std::os::fd::{AsFd, OwnedFd};
use std::path::PathBuf;
use std::time::Duration;

use recording::{Header, Reader};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::fs::inotify;
use serde::{Deserialize, Serialize};
use serde_json::json;
use us_abi::CONFIG_MIRRORED;

use super::joining;
use super::takeover::{self, OVER_NS, STILL_NS, Wish};
use super::{Debugger, NAP_NS, Order, Replay};
use crate::error::Error;
use crate::folder::{GroupFolder, Meta, ProcessId};
use crate::gate::rebuild::{Notes, SENT};
use crate::options::{Cluster, Options};
use crate::recorder::feed::Fed;
use crate::recorder::{of_recording, surroundings};
use crate::request::{self, Desk};
use crate::segment::Segment;
use crate::spawn::{self, Layout, Signals};
use crate::{clock, program, run, terminal};

/// Where `status` finds how far a mirror is.
pub const MIRROR: &str = "mirror.json";

/// How often that is written down.
const LOOK_NS: u64 = 250_000_000;

/// So long a mirror waits at once for more, if nothing is under way.
const PAUSE_NS: u64 = 50_000_000;

/// Entries must come for so long behind the last event that was applied before it is said that a program went another way.
const CAME_NS: u64 = 1_000_000_000;

/// The same begins anew behind a pause of so long in which none came.
const GAP_NS: u64 = 300_000_000;

/// One that has gone another way although it had begun at an image asks for the next one after so long.
const ASTRAY_NS: u64 = 60_000_000_000;

/// What is to be mirrored.
#[derive(Clone, Debug)]
pub struct Wanted {
    /// The copy of the recording.
    pub file: PathBuf,
    /// The group that it is of.
    pub group: String,
    /// The machine on which that runs.
    pub leader: String,
    /// Folders that both machines have, and that are kept alike here.
    pub volumes: Vec<PathBuf>,
    /// So long nothing may come from the other machine before this one takes over by itself, milliseconds.
    pub lease_ms: Option<u64>,
    /// Where its log goes on to once it has taken over.
    pub cluster: Option<Cluster>,
    /// After so long it asks for an image, if it is still far behind, milliseconds; `None`: never.
    pub image_after_ms: Option<u64>,
    /// It begins once more, and waits for an image that ends behind this byte of the log.
    pub waits: Option<u64>,
    /// It begins once more, without an image, for this reason.
    pub without: Option<String>,
}

/// How far a mirror is.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Following {
    /// The machine on which the program runs.
    pub leader: String,
    /// `following`; `apart` while nothing comes from there; `astray`: the log is kept, and not followed; `ended` with the program.
    pub state: String,
    /// Events handed over.
    pub events: u64,
    /// Bytes of the recording that have not been read.
    pub behind_bytes: u64,
    /// How long the first event that has not been applied has been there, microseconds.
    pub behind_us: u64,
    /// Why it is not followed, or not from an image.
    pub why: Option<String>,
    /// The event at which it began, if that was an image.
    #[serde(default)]
    pub joined_at: Option<u64>,
}

impl Following {
    /// In words.
    pub fn words(&self) -> String {
        let Following { leader, state, events, .. } = self;
        let behind =
            format!("{} bytes and {:.1} ms behind", self.behind_bytes, self.behind_us as f64 / 1000.0);
        match (state.as_str(), &self.why) {
            ("following", None) => format!("follows {leader}, at event {events}, {behind}"),
            ("following", Some(why)) => {
                format!("follows {leader} from its log's beginning ({why}), at event {events}, {behind}")
            }
            ("joining", _) => format!("waits for an image of the program on {leader}"),
            ("apart", _) => format!("nothing comes from {leader}; at event {events}, {behind}"),
            ("ended", _) => format!("the program has ended on {leader}"),
            (_, why) => {
                let why = why.as_deref().unwrap_or("no reason was given");
                format!("the log of {leader} is kept, and not followed: {why}")
            }
        }
    }
}

/// What a replay has besides if it is one.
pub(super) struct Mirror {
    /// Wakes at a change of the file.
    news: Option<OwnedFd>,
    pub(super) file: File,
    /// Lengths that the file had, and since when.
    lengths: VecDeque<(u64, u64)>,
    /// The same of what has been read, in bytes of events.
    reads: VecDeque<(u64, u64)>,
    /// When an entry was read last.
    came_ns: u64,
    /// Since when they have come without a pause.
    flows_ns: u64,
    look_at_ns: u64,
    /// When that was last looked at.
    pub(super) looked_ns: u64,
    pub(super) shown: Following,
    /// Somebody wants it to take over.
    pub(super) wish: Option<Wish>,
    /// Since when nothing comes from the other machine.
    pub(super) apart_ns: Option<u64>,
    /// What that one's gate has said.
    pub(super) notes: Notes,
    /// What connections have sent last.
    pub(super) sent: File,
    /// When it began, and when it asks for an image if it is far behind then.
    pub(super) image_after_ns: Option<(u64, u64)>,
}

impl Mirror {
    /// What the gate has said in the entry that ends at this byte. It may have been here for a while: the mirror reads no faster than
    /// the program runs.
    pub(super) fn take_note(&mut self, note: &[u8], end: u64) {
        let came = self.lengths.iter().find(|(length, _)| *length >= end);
        let came_ns = came.map_or_else(clock::monotonic_ns, |(_, came_ns)| *came_ns);
        self.notes.take(note, came_ns);
    }

    /// When the last of the log came here, CLOCK_MONOTONIC ns.
    pub(super) fn last_came_ns(&self) -> u64 {
        self.lengths.back().map_or_else(clock::monotonic_ns, |(_, came_ns)| *came_ns)
    }
}

/// Follows until the program, the node or the recording has ended; the exit code.
///
/// # Errors
/// When the recording cannot be read, or there is no room for a group.
pub fn mirror(wanted: &Wanted) -> Result<i32, Error> {
    spawn::outlive_full_files();
    let ends = rustix::process::set_parent_process_death_signal(Some(rustix::process::Signal::TERM));
    ends.map_err(|cause| Error::system("end with the node", cause))?;
    let not_read = |cause| Error::file("read", &wanted.file, cause);
    let file = File::open(&wanted.file).map_err(not_read)?;
    let own = file.try_clone().map_err(not_read)?;
    let reader = begin(wanted, file)?;
    // As a recorded program is: it may have to be put together from an image.
    spawn::begin_laid_out(&Layout { directory: None, stack: surroundings::stack(reader.header()) });
    let signals = spawn::take_signals()?;
    // What another mirror of this log has said was so of that one.
    let told = wanted.file.with_extension(node::OBSTACLE);
    let _ = std::fs::remove_file(&told);
    let folder = GroupFolder::first_free(&wanted.group)?;
    let options = options(&folder.name, reader.header());
    let mut meta = run::meta(&options);
    meta.primary = ProcessId::default();
    let state = if wanted.waits.is_some() { "joining" } else { "following" };
    let why = wanted.without.clone();
    let shown = Following { leader: wanted.leader.clone(), state: state.into(), why, ..Following::default() };
    show(&folder, &shown);
    folder.write_json("meta.json", &meta)?;
    write_volumes(&folder, &wanted.volumes)?;
    let sent = folder.dir.make_file(SENT).map_err(|cause| Error::file("make", folder.dir.at(SENT), cause))?;
    let news = inotify::init(inotify::CreateFlags::CLOEXEC | inotify::CreateFlags::NONBLOCK).ok();
    let news =
        news.filter(|news| inotify::add_watch(news, &wanted.file, inotify::WatchFlags::MODIFY).is_ok());
    let order =
        Order { file: wanted.file.clone(), debugger: Debugger::None, from: None, until: None, force: false };
    let differences = surroundings::differences(reader.header());
    let mut replay = Replay::new(&order, &|_| (), (&folder.dir, program::library()?), reader, signals)?;
    replay.mirror = Some(Mirror {
        news,
        file: own,
        lengths: VecDeque::new(),
        reads: VecDeque::new(),
        came_ns: 0,
        flows_ns: 0,
        look_at_ns: 0,
        looked_ns: 0,
        shown,
        wish: None,
        apart_ns: None,
        notes: Notes::default(),
        sent,
        image_after_ns: None,
    });
    let mut desk = Desk::open(&folder.dir).map_err(|cause| Error::system("take requests", cause))?;
    let outcome = match differences.is_empty() {
        true => {
            let begun = replay.begin_mirror(wanted, &mut desk);
            begun.and_then(|next| match next {
                None => replay.follow(&folder, &mut meta, &mut desk, wanted.lease_ms),
                Some(next) => Ok(next),
            })
        }
        false => Err(Error::NotReplayed(differences.join("; "))),
    };
    let cause = match outcome {
        Ok(Next::End) => {
            replay.end_all(false);
            return Ok(0);
        }
        Ok(Next::TakeOver(wish)) => {
            drop(desk);
            return takeover::take_over(replay, wish, options, wanted.cluster.as_ref(), &folder, meta);
        }
        Ok(Next::Image) => {
            replay.end_all(false);
            let behind = joining::ask(&wanted.file)?;
            let Replay { signals, .. } = replay;
            drop((desk, folder));
            return Err(joining::begin_at_image(behind, &signals));
        }
        Ok(Next::Without(why)) => {
            replay.end_all(true);
            terminal::say(&format!("{}: the image of it is not used: {why}", folder.name));
            let Replay { signals, .. } = replay;
            drop((desk, folder));
            return Err(joining::begin_without(&why, &signals));
        }
        Err(cause) => cause,
    };
    replay.end_all(true);
    let why = match cause {
        Error::NotReplayed(why) => why,
        other => run::explain(&other),
    };
    let before = replay.mirror.map(|mirror| mirror.shown).unwrap_or_default();
    let shown = Following { state: "astray".into(), why: Some(why), ..before };
    terminal::say(&format!("{}: {}", folder.name, shown.words()));
    show(&folder, &shown);
    // For the node, which tells the other machine.
    let _ = std::fs::write(&told, shown.why.as_deref().unwrap_or_default());
    // One that has just begun at an image is not asked for another one at once.
    let pause = if wanted.waits.is_some() { ASTRAY_NS } else { CAME_NS };
    let due_ns = clock::monotonic_ns() + pause;
    let may_join = differences.is_empty() && joining::may_join(wanted);
    while !is_told_to_end(&replay.signals, Duration::from_millis(100)) {
        if may_join
            && clock::monotonic_ns() > due_ns
            && File::open(&wanted.file).is_ok_and(|file| is_written(&file))
        {
            let behind = joining::ask(&wanted.file)?;
            drop((desk, folder));
            return Err(joining::begin_at_image(behind, &replay.signals));
        }
        for (request, caller) in desk.requests() {
            let why = format!("it cannot take over: {}", shown.why.as_deref().unwrap_or_default());
            match request.as_str() {
                request::STOP | request::KILL => {
                    request::answer(caller, &json!({}));
                    return Ok(0);
                }
                _ => request::answer(caller, &json!({ "error": why })),
            }
        }
    }
    Ok(0)
}

/// Where the runtime finds which folders it is to keep alike: their whole paths, each with a NUL behind it.
fn write_volumes(folder: &GroupFolder, volumes: &[PathBuf]) -> Result<(), Error> {
    use std::os::unix::ffi::OsStrExt;
    let mut bytes = Vec::new();
    for volume in volumes {
        let whole = volume.canonicalize().map_err(|cause| Error::file("find", volume, cause))?;
        bytes.extend_from_slice(whole.as_os_str().as_bytes());
        bytes.push(0);
    }
    folder
        .dir
        .replace("volumes", &bytes)
        .map_err(|cause| Error::file("write", folder.dir.at("volumes"), cause))
}

/// As soon as the recording says what it is of. There is nothing yet that a signal must not end.
fn begin(wanted: &Wanted, file: File) -> Result<Reader, Error> {
    loop {
        let again = file.try_clone().map_err(|cause| Error::file("read", &wanted.file, cause))?;
        match Reader::of(again) {
            Ok(reader) => return Ok(reader),
            // Its first entry is on its way.
            Err(recording::Error::NotARecording(_) | recording::Error::Unfinished { .. }) => {}
            Err(cause) => return Err(of_recording(&wanted.file, cause)),
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// What comes of a mirror.
pub(super) enum Next {
    /// Nothing more: the program has ended, or nobody wants it any more.
    End,
    /// It takes over.
    TakeOver(Wish),
    /// It begins once more, at an image that it asks for.
    Image,
    /// It begins once more, at the beginning, because an image is of no use.
    Without(String),
}

/// Whether somebody says so, within this time.
fn is_told_to_end(signals: &Signals, patience: Duration) -> bool {
    let mut fds = [PollFd::from_borrowed_fd(signals.fd.as_fd(), PollFlags::IN)];
    let _ = poll(&mut fds, Some(&clock::timespec(patience.as_nanos() as u64)));
    std::iter::from_fn(|| signals.next()).any(|arrived| is_end(arrived.signal))
}

pub(super) fn is_end(signal: i32) -> bool {
    matches!(signal, libc::SIGINT | libc::SIGTERM | libc::SIGHUP | libc::SIGQUIT)
}

/// As `run` would have been asked for it here.
fn options(name: &str, header: &Header) -> Options {
    use std::os::unix::ffi::OsStringExt;
    let words = header.program.iter().map(|word| std::ffi::OsString::from_vec(word.clone()));
    let mut options = Options { name: Some(name.into()), ..Options::of(words.collect()) };
    options.keep(&header.asked);
    options
}

/// Whether more may come: whoever writes holds the lock.
pub(super) fn is_written(file: &File) -> bool {
    match file.try_lock_shared() {
        Ok(()) => file.unlock().is_err(),
        Err(_) => true,
    }
}

fn show(folder: &GroupFolder, shown: &Following) {
    // A full folder costs `status` this, nothing else.
    let _ = folder.write_json(MIRROR, shown);
}

impl Replay<'_> {
    /// What a segment of this replay says that it is for.
    pub(super) fn purpose(&self) -> u32 {
        if self.mirror.is_some() { CONFIG_MIRRORED } else { 0 }
    }

    /// Follows until somebody wants it to take over, or there is nothing to follow.
    fn follow(
        &mut self,
        folder: &GroupFolder,
        meta: &mut Meta,
        desk: &mut Desk,
        lease_ms: Option<u64>,
    ) -> Result<Next, Error> {
        loop {
            let waits = self.waits_for_an_end(clock::monotonic_ns());
            let read = !waits && self.read()?;
            if let Some(cause) = &self.incomplete {
                return Err(Error::NotReplayed(cause.clone()));
            }
            let mut moved = 0;
            for fed in &mut self.fed {
                moved += fed.feed().map_err(|cause| Error::file("write", &fed.path, cause))?;
            }
            self.reap();
            self.check_way()?;
            self.end_finished();
            self.check_way()?;
            let now = clock::monotonic_ns();
            self.check_mirror(now, read)?;
            self.show(folder, meta, now);
            if self.is_read && self.fed.is_empty() {
                return Ok(Next::End);
            }
            if self.hear(desk)? {
                return Ok(Next::End);
            }
            if self.is_far(now) {
                return Ok(Next::Image);
            }
            self.heed_lease(lease_ms, now)?;
            if let Some(wish) = self.is_to_take_over(waits || read || moved > 0, now) {
                return Ok(Next::TakeOver(wish));
            }
            if !read && moved == 0 {
                self.pause(desk);
            }
            if std::iter::from_fn(|| self.signals.next()).any(|arrived| is_end(arrived.signal)) {
                return Ok(Next::End);
            }
        }
    }

    /// Whether a process of which the log has the end has not come there. Processes apply their logs each for itself, and whoever came
    /// behind that one, in its place, may change the same files: nothing more is read until it is there, or does not move any more.
    fn waits_for_an_end(&self, now: u64) -> bool {
        let is_behind = |fed: &Fed| {
            let is_there = fed.has_all() && fed.unapplied() == 0;
            fed.ending.is_some() && !is_there && (fed.process() == 0 || !fed.sleeps(now, STILL_NS))
        };
        now < self.last_ns() + OVER_NS && self.fed.iter().any(is_behind)
    }

    /// Takes requests. Whether somebody wants its end.
    fn hear(&mut self, desk: &mut Desk) -> Result<bool, Error> {
        let file = self.order.file.clone();
        for (request, caller) in desk.requests() {
            let obstacle = self.obstacle();
            let Some(mirror) = &mut self.mirror else { continue };
            let leader = &mirror.shown.leader;
            let is_there = format!(
                "{leader} is there, and runs it: end it there first, or ask again when nothing comes from {leader} any more"
            );
            let obstacle = obstacle.or_else(|| is_written(&mirror.file).then_some(is_there));
            match (request.split_ascii_whitespace().next(), obstacle) {
                (Some(request::FAILOVER), None) => match &mut mirror.wish {
                    Some(wish) => wish.add(caller),
                    None => mirror.wish.insert(Wish::new(&file)?).add(caller),
                },
                (Some(request::FAILOVER), Some(why)) => request::answer(caller, &json!({ "error": why })),
                (Some(request::STOP | request::KILL), _) => {
                    request::answer(caller, &json!({}));
                    return Ok(true);
                }
                _ => request::answer(
                    caller,
                    &json!({ "error": "it runs on another machine, and is followed here" }),
                ),
            }
        }
        Ok(false)
    }

    /// Takes over without being told to, if nothing has come for as long as that was said to be allowed.
    fn heed_lease(&mut self, lease_ms: Option<u64>, now: u64) -> Result<(), Error> {
        let (file, obstacle) = (self.order.file.clone(), self.obstacle());
        let (Some(lease_ms), Some(mirror)) = (lease_ms, &mut self.mirror) else { return Ok(()) };
        let is_late = mirror.apart_ns.is_some_and(|since| now >= since + lease_ms * 1_000_000);
        if is_late && mirror.wish.is_none() && obstacle.is_none() && !self.is_read {
            mirror.wish = Some(Wish::new(&file)?);
        }
        Ok(())
    }

    /// When a process has moved last, ns.
    fn last_ns(&self) -> u64 {
        self.fed.iter().map(|fed| fed.progress_ns).max().unwrap_or(0)
    }

    /// Whether all that is here of the log has been handed over and nothing moves any more, and somebody wants it to take over.
    fn is_to_take_over(&mut self, moved: bool, now: u64) -> Option<Wish> {
        let last_ns = self.last_ns();
        let mirror = self.mirror.as_mut()?;
        let wish = mirror.wish.as_mut()?;
        let is_written = is_written(&mirror.file);
        let has_all = self.fed.iter().all(Fed::has_all);
        let is_still = wish.is_still(moved || is_written || !has_all, last_ns, now);
        // A child ends with what it has applied: who is about to come to its next event is waited for.
        let is_done = |fed: &Fed| fed.unapplied() == 0 || is_still && fed.sleeps(now, STILL_NS);
        let goes_on = wish.is_over(now) || self.fed.iter().all(is_done);
        (!is_written && !moved && has_all && goes_on).then(|| mirror.wish.take()).flatten()
    }

    /// Rings are emptied one by one, so an event may wait for one that comes with the next entry. One that waits although entries
    /// have come waits for ever. Behind a pause, of the link or of this machine, it has waited for nothing else: that does not count.
    fn check_mirror(&mut self, now: u64, read: bool) -> Result<(), Error> {
        let Some(mirror) = &mut self.mirror else { return Ok(()) };
        if read {
            if now > mirror.came_ns + GAP_NS {
                mirror.flows_ns = now;
            }
            mirror.came_ns = now;
        }
        let (came_ns, flows_ns) = (mirror.came_ns, mirror.flows_ns);
        let waits = |fed: &&Fed| came_ns > fed.progress_ns.max(flows_ns) + CAME_NS && fed.is_stuck(now);
        match self.fed.iter().find(waits) {
            Some(fed) => Err(Error::NotReplayed(format!(
                "the replay of process {} does not reach its next event: its threads went another way",
                fed.pid
            ))),
            None => Ok(()),
        }
    }

    /// Writes down how far it is, now and then.
    fn show(&mut self, folder: &GroupFolder, meta: &mut Meta, now: u64) {
        let offset = self.reader.offset();
        let (events, root) = (self.events, self.root.as_ref().map(|root| root.pid));
        let read = self.reader.seen().bytes_raw;
        let left: u64 = self.fed.iter().map(|fed| fed.queued() as u64 + fed.unapplied()).sum();
        let Some(mirror) = &mut self.mirror else { return };
        if let Some(pid) = root.filter(|pid| meta.root != *pid) {
            (meta.root, meta.lead) = (pid, pid);
            let _ = folder.write_json("meta.json", meta);
        }
        let length = mirror.file.metadata().map_or(offset, |metadata| metadata.len());
        if mirror.lengths.back().is_none_or(|(known, _)| *known != length) {
            mirror.lengths.push_back((length, now));
        }
        while mirror.lengths.front().is_some_and(|(known, _)| *known < offset) && mirror.lengths.len() > 1 {
            mirror.lengths.pop_front();
        }
        if now < mirror.look_at_ns {
            return;
        }
        (mirror.look_at_ns, mirror.looked_ns) = (now + LOOK_NS, now);
        if mirror.reads.back().is_none_or(|(known, _)| *known != read) {
            mirror.reads.push_back((read, now));
        }
        let applied = read.saturating_sub(left);
        while mirror.reads.front().is_some_and(|(known, _)| *known <= applied) {
            mirror.reads.pop_front();
        }
        let segments: Vec<&Segment> = self.fed.iter().map(|fed| &fed.rings.segment).collect();
        mirror.notes.sweep(&segments, &self.roster, &mirror.sent);
        // What has been read waits for its thread, and what has not been may have been here for longer.
        let unread = mirror.lengths.iter().find(|(known, _)| *known > offset);
        let behind = mirror.reads.front().into_iter().chain(unread).map(|(_, since)| *since).min();
        let is_written = is_written(&mirror.file);
        mirror.apart_ns = if is_written { None } else { mirror.apart_ns.or(Some(now)) };
        let shown = Following {
            state: if is_written { "following" } else { "apart" }.into(),
            events,
            behind_bytes: length.saturating_sub(offset),
            behind_us: behind.map_or(0, |since| (now - since) / 1000),
            ..mirror.shown.clone()
        };
        if shown != mirror.shown {
            show(folder, &shown);
            mirror.shown = shown;
        }
    }

    /// Until there is more, or for a moment if something is under way.
    fn pause(&mut self, desk: &Desk) {
        let is_wanted = self.mirror.as_ref().is_some_and(|mirror| mirror.wish.is_some());
        let is_under_way = is_wanted || self.fed.iter().any(|fed| fed.queued() > 0 || fed.unapplied() > 0);
        let news = self.mirror.as_ref().and_then(|mirror| mirror.news.as_ref());
        let mut fds = vec![PollFd::from_borrowed_fd(self.signals.fd.as_fd(), PollFlags::IN)];
        fds.extend(desk.fds().map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN)));
        fds.extend(news.map(|news| PollFd::from_borrowed_fd(news.as_fd(), PollFlags::IN)));
        let limit = if is_under_way { NAP_NS } else { PAUSE_NS };
        let _ = poll(&mut fds, Some(&clock::timespec(limit)));
        if let Some(news) = news {
            let _ = rustix::io::read(news, &mut [0u8; 4096]);
        }
    }
}
