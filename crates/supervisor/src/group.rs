//! The supervisor's main thread while the program runs: everything of which a group has one, and the processes that
//! it watches.
//!
//! The program itself is the first of them. A child process joins by an entry in the roster and a segment of its own,
//! and is then watched as the program is. The group ends with the program, unless that has left a daemon.

mod ends;
mod family;
mod join;
mod requests;

use std::collections::HashMap;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::rc::Rc;
use std::sync::Arc;
use std::thread::JoinHandle;

use rustix::event::{PollFd, PollFlags, poll};
use serde_json::json;
use us_abi::Cause;

use self::ends::Outcome;
use self::family::Kinship;
use crate::book::{Book, SharedBook};
use crate::child::Child;
use crate::clock;
use crate::options::Verbosity;
use crate::probe::{self, Probe};
use crate::recorder::beside::Beside;
use crate::request::{self, Desk};
use crate::roster::{Place, Roster};
use crate::run::{say_started, started};
use crate::sentry::{self, Shared};
use crate::service::Relay;
use crate::spawn::Signals;
use crate::undertaker::Undertaker;
use crate::watch::Watch;

/// One group being watched.
pub(crate) struct Group<'a> {
    book: SharedBook<'a>,
    roster: Arc<Roster>,
    signals: Signals,
    bell: Arc<OwnedFd>,
    desk: Option<Desk>,
    /// Requests that wait until it is known whether they can be met.
    requests: Vec<(String, UnixStream)>,
    probe: Option<Probe>,
    /// `--record`.
    recorder: Option<Beside>,
    /// Where the program speaks to the service manager.
    relay: Option<Relay>,
    /// Signals to pass on once there is a primary to take them.
    held: Vec<Held>,
    /// The program itself in the roster.
    root: Place,
    /// In the order of their joining, the program itself first.
    watches: Vec<Watch<'a>>,
    /// What has been acted on of each process in the roster: how often it had joined.
    seen: HashMap<Place, u32>,
    /// The roster's count of news at the last look.
    news: Option<u32>,
    /// When to look at the roster all the same, CLOCK_MONOTONIC ns.
    roster_at_ns: Option<u64>,
    /// When to look for processes that compute and have not joined, CLOCK_MONOTONIC ns.
    ask_at_ns: u64,
    /// Nobody rings at news in the roster.
    is_without_reader: bool,
    /// Copies whose descriptors have become readable: of which process, and the kernel's pid.
    gone: Vec<(Place, u32)>,
    /// Somebody wants the whole group to end, and waits for it.
    is_stopping: bool,
    /// Until when a checkpoint that cannot be taken yet is tried again, CLOCK_MONOTONIC ns, and how often it has been.
    checkpoint_by: Option<(u64, u32)>,
    /// The versions of the runtime that have been seen.
    versions: crate::upgrade::Versions,
    /// Who write checkpoints.
    writers: Vec<JoinHandle<()>>,
    /// Copies that stay when their checkpoint is written.
    shelf: crate::checkpoint::kept::Shelf,
    outcome: Outcome,
    undertaker: Undertaker,
    kinship: Kinship,
    /// When to look whether the group's folder is still there, CLOCK_MONOTONIC ns; never again once it is not.
    folder_at_ns: Option<u64>,
}

/// Between two looks at that.
const FOLDER_NS: u64 = 1_000_000_000;

impl<'a> Group<'a> {
    /// A group whose program has just been started.
    pub(crate) fn new(
        book: Book<'a>,
        shared: Arc<Shared>,
        signals: Signals,
        primary: Child,
        probe: Option<probe::Order>,
        recorder: Option<Beside>,
        relay: Option<Relay>,
    ) -> Group<'a> {
        let standbys = book.meta.standbys;
        let book = Rc::new(std::cell::RefCell::new(book));
        let (roster, bell) = (Arc::clone(&shared.roster), Arc::clone(&shared.bell));
        let outcome = Outcome::new(shared.place.pid);
        let undertaker = Undertaker::new(Arc::clone(&bell));
        let mut group = Group {
            root: shared.place,
            watches: vec![Watch::root(Rc::clone(&book), shared, primary)],
            book,
            roster,
            signals,
            bell,
            desk: None,
            requests: Vec::new(),
            probe: probe.map(Probe::new),
            recorder,
            relay,
            held: Vec::new(),
            seen: HashMap::new(),
            news: None,
            roster_at_ns: None,
            ask_at_ns: 0,
            is_without_reader: false,
            gone: Vec::new(),
            is_stopping: false,
            checkpoint_by: None,
            versions: crate::upgrade::Versions::new(),
            writers: Vec::new(),
            shelf: crate::checkpoint::kept::Shelf::default(),
            outcome,
            undertaker,
            kinship: Kinship::default(),
            folder_at_ns: Some(0),
        };
        group.book.borrow().save();
        group.open_desk();
        group.say_started();
        if standbys == 0 {
            group.watches[0].drop_protection(Cause::NotAsked, "started with --standbys 0");
        }
        group.start_threads();
        group
    }

    fn say_started(&self) {
        let mut book = self.book.borrow_mut();
        let fields = started(&book.meta);
        book.voice.event("started", fields);
        say_started(&book.voice, &book.folder.name, &book.meta);
    }

    fn start_threads(&mut self) {
        if let Err(cause) = self.watches[0].start_sentry() {
            // The supervisor cannot do its work: the program goes on without it.
            self.book.borrow_mut().meta.reprotect = false;
            self.watches[0].drop_protection(Cause::CannotReplay, &format!("cannot start a thread: {cause}"));
        }
        let reader = sentry::start_reader(Arc::clone(&self.roster), Arc::clone(&self.bell));
        self.is_without_reader = reader.is_err();
    }

    fn open_desk(&mut self) {
        let desk = Desk::open(&self.book.borrow().folder.dir);
        match desk {
            Ok(desk) => self.desk = Some(desk),
            Err(cause) => self.say(Verbosity::Verbose, &format!("no requests can be taken: {cause}")),
        }
    }

    /// Says a line of the group as a whole.
    fn say(&self, level: Verbosity, line: &str) {
        self.book.borrow().voice.say(level, line);
    }

    fn name(&self) -> String {
        self.book.borrow().folder.name.clone()
    }

    /// The process that the group is judged by, and that signals go to.
    fn lead(&mut self) -> Option<&mut Watch<'a>> {
        self.watches.iter_mut().find(|watch| watch.leads)
    }

    /// Acts on what has changed.
    fn look(&mut self) {
        self.watches.iter_mut().for_each(Watch::look);
        self.drive_family();
        self.hear_requests();
        self.drive_probe();
        self.hear_recorder();
        self.book.borrow_mut().hear_explanations();
        self.look_for_folder();
    }

    /// Says it once if somebody has removed the group's folder: logind does, when an ordinary user's last session ends. What is
    /// mapped and open stays, so that the program and its standbys go on. Nobody else finds the group any more.
    fn look_for_folder(&mut self) {
        let now = clock::monotonic_ns();
        if self.folder_at_ns.is_none_or(|at_ns| now < at_ns) {
            return;
        }
        let mut book = self.book.borrow_mut();
        if book.folder.dir.is_there() {
            self.folder_at_ns = Some(now + FOLDER_NS);
            return;
        }
        self.folder_at_ns = None;
        let path = book.folder.dir.path().display().to_string();
        let line = format!(
            "{}: {path} was removed, by a logout (RemoveIPC of logind) or by somebody: what is protected stays so, but status, stop \
             and failover do not find the group, and no new process joins it",
            book.folder.name
        );
        book.voice.event("folder_removed", json!({ "folder": path }));
        book.voice.say(Verbosity::Normal, &line);
    }

    /// Says what has become of the recording.
    fn hear_recorder(&mut self) {
        let Some(recorder) = &self.recorder else { return };
        let ((lines, ended), shipped) = (recorder.said(), recorder.shipped());
        for line in shipped {
            self.say(Verbosity::Normal, &format!("{}: {line}", self.name()));
            self.book.borrow_mut().voice.event("shipping", json!({ "words": line }));
        }
        if lines.is_empty() {
            return;
        }
        for line in &lines {
            self.say(Verbosity::Normal, &format!("{}: {line}", self.name()));
        }
        let mut book = self.book.borrow_mut();
        for line in lines {
            book.voice.event("recording_ended", json!({ "why": line }));
        }
        if let Some(recording) = &mut book.meta.recording {
            recording.ended = ended;
        }
        book.save();
    }

    // ---- Sleeping and signals ----

    fn sleep(&mut self) {
        let now = clock::monotonic_ns();
        let moments = [
            self.probe_at_ns(),
            self.roster_at_ns,
            Some(self.ask_at_ns),
            self.outcome_at_ns(),
            self.kinship.look_at_ns,
            self.checkpoint_at_ns(),
        ];
        let watches = self.watches.iter_mut().filter_map(Watch::look_at_ns);
        let until_ns = moments.into_iter().flatten().chain(watches).min();
        let timeout = until_ns.map(|at_ns| clock::timespec(at_ns.saturating_sub(now)));

        let mut fds: Vec<BorrowedFd> = vec![self.signals.fd.as_fd(), self.bell.as_fd()];
        fds.extend(self.desk.iter().flat_map(|desk| desk.fds()));
        fds.extend(self.relay.iter().map(Relay::fd));
        let first_copy = fds.len();
        let mut copies = Vec::new();
        for watch in &self.watches {
            for copy in watch.polled() {
                copies.push((watch.shared().place, copy.pid));
                fds.push(copy.pidfd.as_fd());
            }
        }
        let mut fds: Vec<PollFd> =
            fds.into_iter().map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN)).collect();
        // Interrupted or timed out: the loop looks at everything anyway.
        let _ = poll(&mut fds, timeout.as_ref());
        let readable = fds[first_copy..].iter().map(|fd| !fd.revents().is_empty());
        self.gone
            .extend(copies.into_iter().zip(readable).filter(|(_, readable)| *readable).map(|(copy, _)| copy));
        drop(fds);
        let _ = rustix::io::read(&self.bell, &mut [0u8; 8]);
        while let Some(arrived) = self.signals.next() {
            if arrived.is_to_be_passed_on() {
                self.held.push(Held { number: arrived.signal, caller: None });
            }
        }
    }

    fn pass_signals_on(&mut self) {
        for held in std::mem::take(&mut self.held) {
            match self.lead() {
                Some(lead) if lead.pass_on(held.number) => {
                    // Whoever sends it to us waits for the program's end, and not for that of what it leaves.
                    let ends = lead.is_root() && held.caller.is_none() && held.number == libc::SIGTERM;
                    self.outcome.is_awaited |= ends;
                    held.answer(&json!({}));
                }
                None if held.caller.is_some() => held.answer(&json!({ "error": "the program has ended" })),
                _ => self.held.push(held),
            }
        }
    }
}

/// A signal that is to be passed on.
struct Held {
    number: i32,
    /// Who waits to hear that it has been.
    caller: Option<UnixStream>,
}

impl Held {
    fn answer(self, answer: &serde_json::Value) {
        if let Some(caller) = self.caller {
            request::answer(caller, answer);
        }
    }
}
