//! `understudy record`: runs a program without a standby and takes its log, and that of everything it becomes and makes,
//! into a file.

use std::fs;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use recording::Writer;
use rustix::event::{EventfdFlags, PollFd, PollFlags, eventfd, poll};
use us_abi::{CONFIG_GATED, CONFIG_RECORDED};

use super::checkpoints::Checkpoints;
use super::cluster::{self, Ships};
use super::images::Images;
use super::take::Taken;
use super::tape::{NAP_MAX_NS, NAP_MIN_NS, Tape};
use super::{padded, surroundings};
use crate::clock;
use crate::ended::Ended;
use crate::error::Error;
use crate::events::Voice;
use crate::folder::{GroupFolder, Meta, ProcessId, Recording, SEGMENT};
use crate::gate;
use crate::handout::Handout;
use crate::history::History;
use crate::options::{Options, Verbosity, default_name};
use crate::proc;
use crate::program;
use crate::reap::{self, End};
use crate::roster::Roster;
use crate::run;
use crate::segment::Segment;
use crate::service::Relay;
use crate::spawn::{self, Layout, Signals, Start};

/// Bytes that the paths of library and segment have in a recorded program's environment: more than most have, so that
/// a replay, where both lie elsewhere, can have the same.
pub const LIBRARY_BYTES: usize = 256;
/// See [`LIBRARY_BYTES`].
pub(super) const SEGMENT_BYTES: usize = 160;

/// Children that have not ended with the program are waited for so long, unless they are daemons.
const GRACE_NS: u64 = 500_000_000;

/// Records one run of a program. Its state is put beside the recording as often as `interval` says.
///
/// # Errors
/// Every error is from before the program started. What goes wrong with the recording later is said, and costs the
/// recording only.
pub fn record(options: &Options, path: &Path, interval: Option<Duration>) -> Result<End, Error> {
    let mut voice = Voice::open(options.events.as_deref(), options.verbosity)?;
    let program = program::resolve(&options.command[0])?;
    program::check(&options.command[0], &program)?;
    let library = program::library()?;
    let folder = match &options.name {
        Some(name) => GroupFolder::named(name)?,
        None => GroupFolder::first_free(&default_name(&options.command[0]))?,
    };
    voice.set_group(&folder.name);
    let cluster = options.cluster.as_ref().map(cluster::Prepared::new).transpose()?;
    let asked = options.cluster.as_ref().and_then(|asked| asked.gate.as_ref());
    let gate = asked.map(|asked| gate::Prepared::new(&asked.address, asked.is_relaxed)).transpose()?;
    let gated = if gate.is_some() { CONFIG_GATED } else { 0 };
    let bell = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK);
    let bell = Arc::new(bell.map_err(|cause| Error::system("make an eventfd", cause))?);
    let header = surroundings::header(options, &program, &library);
    let segment = Segment::create(&folder.dir, SEGMENT, options.config(CONFIG_RECORDED | gated))?;
    let roster = Arc::new(Roster::create(&folder.dir)?);
    let mut meta = run::meta(options);
    meta.recording = Some(Recording::into(path));
    folder.write_json("meta.json", &meta)?;
    rustix::process::set_child_subreaper(Some(rustix::process::getpid()))
        .map_err(|cause| Error::system("adopt the program's orphans", cause))?;
    let signals = spawn::take_signals()?;
    let segment_path = folder.segment_path()?;
    let mut environment =
        spawn::environment(&padded(&library, LIBRARY_BYTES), &padded(&segment_path, SEGMENT_BYTES));
    // Without it what is executed as another user is not recorded.
    let told = padded(&segment_path, SEGMENT_BYTES);
    let handout = Handout::open(&told, options.config(CONFIG_RECORDED)).ok();
    let relay = Relay::open();
    relay.iter().for_each(|relay| relay.enter(&mut environment));
    let start = Start {
        path: &program,
        command: &options.command,
        environment: &environment,
        layout: Some(&Layout::default()),
        cpus: options.cpus.as_ref(),
        mask: &signals.previous,
    };
    // Last, so that what has failed before leaves no file.
    let checkpoints =
        interval.map(|interval| Checkpoints::new(path, &header, &folder.dir, interval)).transpose()?;
    let writer = Writer::create(path, &header).map_err(|cause| not_made(path, cause));
    let writer = writer.inspect_err(|_| checkpoints.iter().for_each(Checkpoints::take_away))?;
    let pid = match spawn::start(&start, &segment, Some(&roster)) {
        Ok(pid) => pid,
        Err(cause) => {
            // Nothing was run, so there is nothing to keep.
            let _ = fs::remove_file(path);
            checkpoints.iter().for_each(Checkpoints::take_away);
            return Err(cause);
        }
    };
    let _ = handout.map(|handout| handout.start(Arc::clone(&folder.dir), Arc::clone(&roster), pid));
    meta.primary = ProcessId::of(pid);
    (meta.root, meta.lead) = (pid, pid);
    let _ = folder.write_json("meta.json", &meta);
    voice.event("started", run::started(&meta));
    let rings = super::rings::Rings::new(segment, &folder.dir, SEGMENT)?;
    let root = Taken::new(rings, &folder.dir, SEGMENT.into(), pid, None);
    let mut tape = Tape::new(&folder.dir, path, writer, root);
    let (mut watches, mut images) = (Vec::new(), None);
    if let Some(cluster) = &cluster {
        match Ships::start(cluster, path, &header, &folder.name, &folder.dir) {
            Ok(ships) => {
                watches = ships.watches();
                tape.ship(ships);
                images = Some(Images::new(path, &header, &folder.dir)?);
            }
            Err(cause) => voice.say(
                Verbosity::Normal,
                &format!("{}: nothing is sent to other machines: {}", folder.name, run::explain(&cause)),
            ),
        }
    }
    let rings = Arc::clone(&bell);
    let look = move || _ = rustix::io::write(&*rings, &1u64.to_ne_bytes());
    let gate = gate.and_then(|gate| {
        let started = gate.start(&folder.dir, watches, look);
        let told = |cause: &Error| {
            let why = run::explain(cause);
            voice.say(Verbosity::Normal, &format!("{}: nothing waits at a gate: {why}", folder.name));
        };
        started.inspect_err(told).ok()
    });
    gate.iter().for_each(|gate| tape.gate(gate.door(), &roster));
    let recorder = Recorder {
        bell,
        _gate: gate,
        folder: &folder,
        roster,
        signals,
        relay,
        voice,
        path,
        meta,
        root: pid,
        root_end: None,
        tape,
        checkpoints,
        images,
    };
    Ok(recorder.until_the_end())
}

/// Never the exit code of a program that has failed: whoever records until it does would take it for that.
pub(super) fn not_made(path: &Path, cause: recording::Error) -> Error {
    match cause {
        recording::Error::Exists(path) => {
            Error::NothingRun(format!("{} already exists; choose another file, or remove it", path.display()))
        }
        recording::Error::Io(cause) => Error::file("make", path, cause),
        other => Error::NothingRun(format!("{}: {other}", path.display())),
    }
}

struct Recorder<'a> {
    folder: &'a GroupFolder,
    roster: Arc<Roster>,
    signals: Signals,
    relay: Option<Relay>,
    voice: Voice,
    path: &'a Path,
    meta: Meta,
    root: u32,
    /// How the program ended, and when.
    root_end: Option<(reap::Reaped, u64)>,
    tape: Tape,
    checkpoints: Option<Checkpoints>,
    /// For machines that join.
    images: Option<Images>,
    /// Rung when the gate waits for a pass.
    bell: Arc<OwnedFd>,
    _gate: Option<gate::Running>,
}

impl Recorder<'_> {
    fn until_the_end(mut self) -> End {
        let mut nap_ns = NAP_MIN_NS;
        loop {
            self.tape.find_new(&self.roster);
            let bytes = self.tape.take();
            self.take_checkpoint();
            self.take_image();
            self.reap();
            self.bury();
            self.say_news();
            if self.is_over() {
                return self.finish();
            }
            let now = clock::monotonic_ns();
            self.tape.taken.iter().for_each(|taken| taken.ask_for_late_signals(now));
            nap_ns = if bytes > 0 { NAP_MIN_NS } else { (nap_ns * 2).min(NAP_MAX_NS) };
            self.sleep(nap_ns);
        }
    }

    fn take_checkpoint(&mut self) {
        if self.root_end.is_none()
            && let Some(checkpoints) = &mut self.checkpoints
            && let Some(line) = checkpoints.drive(&mut self.tape, &self.roster, self.root)
        {
            self.voice.say(Verbosity::Normal, &format!("{}: {line}", self.folder.name));
        }
    }

    fn take_image(&mut self) {
        if self.root_end.is_none()
            && let Some(images) = &mut self.images
            && let Some(line) = images.drive(&mut self.tape, &self.roster)
        {
            self.voice.say(Verbosity::Normal, &format!("{}: {line}", self.folder.name));
        }
    }

    fn say_news(&mut self) {
        for line in self.tape.shipped() {
            self.voice.event("shipping", serde_json::json!({ "words": line }));
            self.voice.say(Verbosity::Normal, &format!("{}: {line}", self.folder.name));
        }
        let (lines, ended) = self.tape.said();
        if let Some(recording) = &mut self.meta.recording {
            recording.ended = ended.map(String::from);
        }
        for line in lines {
            self.voice.say(Verbosity::Normal, &format!("{}: {line}", self.folder.name));
        }
    }

    fn reap(&mut self) {
        while let Some(pid) = reap::next_ended_child() {
            // Once it is reaped nobody knows any more whose child it was.
            self.relay.iter().for_each(Relay::pass_on);
            let Some(reaped) = reap::take(pid) else { return };
            if pid == self.root {
                self.root_end = Some((reaped, clock::monotonic_ns()));
            }
        }
    }

    /// Processes that have ended: what is left of their log, and their end.
    fn bury(&mut self) {
        let (root, root_end) = (self.root, self.root_end);
        self.tape.bury(|taken| match root_end {
            _ if taken.pid != root => taken.has_ended().then_some(None),
            Some((reaped, _)) => Some(Some(reaped.status)),
            None => None,
        });
    }

    fn is_over(&mut self) -> bool {
        let Some((_, ended_ns)) = self.root_end else { return false };
        if self.tape.taken.is_empty() {
            // One that was made a moment before the end.
            self.tape.find_all(&self.roster);
            return self.tape.taken.is_empty();
        }
        let own = proc::read(std::process::id()).map_or(0, |process| process.session);
        let is_daemon = |taken: &Taken| {
            proc::read(taken.pid)
                .is_some_and(|process| process.session != own && process.session != self.root)
        };
        clock::monotonic_ns() > ended_ns + GRACE_NS && !self.tape.taken.iter().any(is_daemon)
    }

    fn sleep(&mut self, nap_ns: u64) {
        let mut fds: Vec<BorrowedFd> = vec![self.signals.fd.as_fd(), self.bell.as_fd()];
        fds.extend(self.relay.iter().map(Relay::fd));
        fds.extend(
            self.tape.taken.iter().filter_map(|taken| taken.pidfd.as_ref()).map(|pidfd| pidfd.as_fd()),
        );
        let mut fds: Vec<PollFd> =
            fds.into_iter().map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN)).collect();
        let _ = poll(&mut fds, Some(&clock::timespec(nap_ns)));
        drop(fds);
        let _ = rustix::io::read(&*self.bell, &mut [0u8; 8]);
        self.relay.iter().for_each(Relay::pass_on);
        while let Some(arrived) = self.signals.next() {
            if arrived.is_to_be_passed_on() && self.root_end.is_none() {
                spawn::signal(self.root, arrived.signal);
            }
        }
    }

    fn finish(mut self) -> End {
        self.roster.header().closing.store(1, Ordering::SeqCst);
        self.tape.finish_left();
        if let Some(line) = self.checkpoints.as_mut().and_then(Checkpoints::finish) {
            self.voice.say(Verbosity::Normal, &format!("{}: {line}", self.folder.name));
        }
        let sums = self.tape.close();
        self.say_news();
        if let Some((sums, file_bytes)) = sums {
            self.voice.say(
                Verbosity::Verbose,
                &format!("{}: {} events, {file_bytes} bytes", self.path.display(), sums.events),
            );
        }
        let end = self.root_end.map_or(End::Exited(0), |(reaped, _)| reaped.end());
        self.folder.keep_end(&Ended::of(&self.folder.name, &self.meta, &History::default(), Some(end)));
        self.voice.event("ended", serde_json::json!({ "exit_code": end.exit_code() }));
        end
    }
}
