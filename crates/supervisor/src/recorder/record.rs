//! `understudy record`: runs a program without a standby and takes its log, and that of everything it becomes and makes,
//! into a file.

use std::collections::HashMap;
use std::fs;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use recording::Writer;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::process::PidfdFlags;
use us_abi::CONFIG_RECORDED;

use super::take::{self, Book, Taken};
use super::{machine, padded};
use crate::child;
use crate::clock;
use crate::error::Error;
use crate::events::Voice;
use crate::folder::{GroupFolder, ProcessId};
use crate::options::{Options, Verbosity, default_name};
use crate::proc;
use crate::program;
use crate::roster::Roster;
use crate::run;
use crate::segment::Segment;
use crate::spawn::{self, End, Layout, Signals, Start};

/// Bytes that the paths of library and segment have in a recorded program's environment: more than most have, so that
/// a replay, where both lie elsewhere, can have the same.
pub const LIBRARY_BYTES: usize = 256;
const SEGMENT_BYTES: usize = 160;

/// Pauses between two looks at the rings: short while events come in, long while none do.
const NAP_MIN_NS: u64 = 300_000;
const NAP_MAX_NS: u64 = 5_000_000;
/// So long what has been taken waits for more before it is written to the file.
const FLUSH_NS: u64 = 200_000_000;
/// Children that have not ended with the program are waited for so long, unless they are daemons.
const GRACE_NS: u64 = 500_000_000;

/// Records one run of a program.
///
/// # Errors
/// Every error is from before the program started. What goes wrong with the recording later is said, and costs the
/// recording only.
pub fn record(options: &Options, path: &Path) -> Result<End, Error> {
    let mut voice = Voice::open(options.events.as_deref(), options.verbosity)?;
    let program = program::resolve(&options.command[0])?;
    program::check(&options.command[0], &program)?;
    let library = program::library()?;
    let folder = match &options.name {
        Some(name) => GroupFolder::named(name)?,
        None => GroupFolder::first_free(&default_name(&options.command[0]))?,
    };
    voice.set_group(&folder.name);
    let header = machine::header(options, &program, &library);
    let segment = Segment::create(&folder.segment_path(), options.config(CONFIG_RECORDED))?;
    let roster = Roster::create(&folder.roster_path())?;
    let mut meta = run::meta(options);
    folder.write_json("meta.json", &meta)?;
    rustix::process::set_child_subreaper(Some(rustix::process::getpid()))
        .map_err(|cause| Error::system("adopt the program's orphans", cause))?;
    let signals = spawn::take_signals()?;
    let segment_path = folder.segment_path().canonicalize();
    let segment_path = segment_path.map_err(|cause| Error::file("find", folder.segment_path(), cause))?;
    let start = Start {
        path: &program,
        command: &options.command,
        environment: &spawn::environment(
            &padded(&library, LIBRARY_BYTES),
            &padded(&segment_path, SEGMENT_BYTES),
        ),
        layout: Some(&Layout::default()),
        cpus: options.cpus.as_ref(),
        mask: &signals.previous,
    };
    // Last, so that what has failed before leaves no file.
    let writer = Writer::create(path, &header).map_err(|cause| not_made(path, cause))?;
    let pid = match spawn::start(&start, &segment, Some(&roster)) {
        Ok(pid) => pid,
        Err(cause) => {
            // Nothing was run, so there is nothing to keep.
            let _ = fs::remove_file(path);
            return Err(cause);
        }
    };
    meta.primary = ProcessId::of(pid);
    (meta.root, meta.lead) = (pid, pid);
    let _ = folder.write_json("meta.json", &meta);
    voice.event("started", run::started(&meta));
    let root = Taken::new(super::rings::Rings::new(segment, &segment_path)?, segment_path, pid, None);
    let recorder = Recorder {
        folder: &folder,
        roster,
        signals,
        voice,
        path,
        root: pid,
        root_end: None,
        taken: vec![root],
        known: HashMap::new(),
        news: None,
        file: File::Open(Box::new(writer)),
        images: 0,
        by_pid: HashMap::new(),
        flush_at_ns: 0,
    };
    Ok(recorder.until_the_end())
}

/// Never the exit code of a program that has failed: whoever records until it does would take it for that.
fn not_made(path: &Path, cause: recording::Error) -> Error {
    match cause {
        recording::Error::Exists(path) => Error::NothingRun(format!(
            "{} is there already; choose another file, or remove it",
            path.display()
        )),
        recording::Error::Io(cause) => Error::file("make", path, cause),
        other => Error::NothingRun(format!("{}: {other}", path.display())),
    }
}

/// The file, for as long as it can be written.
enum File {
    Open(Box<Writer>),
    Closed,
}

struct Recorder<'a> {
    folder: &'a GroupFolder,
    roster: Roster,
    signals: Signals,
    voice: Voice,
    path: &'a Path,
    root: u32,
    /// How the program ended, and when.
    root_end: Option<(spawn::Reaped, u64)>,
    taken: Vec<Taken>,
    /// Segments that are being taken, by number, with their inode: a number may be used again.
    known: HashMap<u32, u64>,
    news: Option<u32>,
    file: File,
    images: u32,
    by_pid: HashMap<u32, u32>,
    flush_at_ns: u64,
}

impl Recorder<'_> {
    fn until_the_end(mut self) -> End {
        let mut nap_ns = NAP_MIN_NS;
        loop {
            self.find_new();
            let bytes = self.take();
            self.reap();
            self.bury();
            if self.is_over() {
                return self.finish();
            }
            let now = clock::monotonic_ns();
            self.taken.iter().for_each(|taken| taken.ask_for_late_signals(now));
            nap_ns = if bytes > 0 { NAP_MIN_NS } else { (nap_ns * 2).min(NAP_MAX_NS) };
            self.sleep(nap_ns);
        }
    }

    /// Processes that have made a segment. The folder is asked and not the roster: a child may have ended, and its parent
    /// been told so, between two looks.
    fn find_new(&mut self) {
        let news = Some(self.roster.header().news.0.load(Ordering::Acquire));
        if self.news == news {
            return;
        }
        self.news = news;
        for entry in fs::read_dir(&self.folder.path).into_iter().flatten().flatten() {
            let name = entry.file_name();
            let number = name.to_str().and_then(|name| name.strip_prefix("segment.")?.parse::<u32>().ok());
            let Some(pid) = number else { continue };
            use std::os::unix::fs::DirEntryExt;
            if self.known.get(&pid) == Some(&entry.ino()) {
                continue;
            }
            match open_member(entry.path(), pid) {
                Ok(member) => {
                    self.known.insert(pid, entry.ino());
                    self.taken.push(member);
                }
                // Its maker has not filled it in yet: it will tell.
                Err(_) => self.news = None,
            }
        }
    }

    /// Empties the rings into the file. Returns how many bytes came.
    fn take(&mut self) -> u64 {
        let now = clock::monotonic_ns();
        let flush = now >= self.flush_at_ns;
        let (mut bytes, mut failure) = (0, None);
        let mut stopped = Vec::new();
        let File::Open(writer) = &mut self.file else {
            return self.taken.iter().map(Taken::discard).sum();
        };
        let mut book = Book { writer, images: self.images, by_pid: std::mem::take(&mut self.by_pid) };
        for taken in &mut self.taken {
            match taken.drain(&mut book) {
                Ok(more) => bytes += more,
                Err(cause) => failure = Some(cause),
            }
            stopped.extend(taken.stops_now().map(|why| (taken.pid, why)));
        }
        (self.images, self.by_pid) = (book.images, book.by_pid);
        if flush {
            self.flush_at_ns = now + FLUSH_NS;
            failure = failure.or(writer.flush().err());
        }
        for (pid, why) in stopped {
            self.say(&format!("the recording of process {pid} ends here: {why}"));
        }
        if let Some(cause) = failure {
            self.give_up(cause);
        }
        bytes
    }

    /// The file cannot be written any more. The program goes on, and what it logs is thrown away.
    fn give_up(&mut self, cause: recording::Error) {
        self.say(&format!("{}: the recording ends here: {cause}", self.path.display()));
        self.file = File::Closed;
    }

    fn say(&self, line: &str) {
        self.voice.say(Verbosity::Normal, &format!("{}: {line}", self.folder.name));
    }

    fn reap(&mut self) {
        while let Some(pid) = spawn::next_ended_child() {
            let Some(reaped) = spawn::take(pid) else { return };
            if pid == self.root {
                self.root_end = Some((reaped, clock::monotonic_ns()));
            }
        }
    }

    /// Processes that have ended: what is left of their log, and their end.
    fn bury(&mut self) {
        let (root, root_end) = (self.root, self.root_end);
        let over = |taken: &Taken| match &taken.pidfd {
            _ if taken.pid == root => root_end.is_some(),
            Some(pidfd) => has_ended(pidfd.as_fd()),
            None => true,
        };
        let (ended, living): (Vec<Taken>, Vec<Taken>) =
            std::mem::take(&mut self.taken).into_iter().partition(over);
        self.taken = living;
        for mut taken in ended {
            let status = root_end.filter(|_| taken.pid == root).map(|(reaped, _)| reaped.status);
            let mut failure = None;
            if let File::Open(writer) = &mut self.file {
                let mut book = Book { writer, images: self.images, by_pid: std::mem::take(&mut self.by_pid) };
                failure = taken.finish(status, &mut book).err();
                (self.images, self.by_pid) = (book.images, book.by_pid);
            }
            self.known.remove(&taken.pid);
            taken.remove();
            if let Some(cause) = failure {
                self.give_up(cause);
            }
        }
    }

    fn is_over(&mut self) -> bool {
        let Some((_, ended_ns)) = self.root_end else { return false };
        if self.taken.is_empty() {
            // One that was made a moment before the end.
            self.news = None;
            self.find_new();
            return self.taken.is_empty();
        }
        let own = proc::read(std::process::id()).map_or(0, |process| process.session);
        let is_daemon = |taken: &Taken| {
            proc::read(taken.pid)
                .is_some_and(|process| process.session != own && process.session != self.root)
        };
        clock::monotonic_ns() > ended_ns + GRACE_NS && !self.taken.iter().any(is_daemon)
    }

    fn sleep(&mut self, nap_ns: u64) {
        let mut fds: Vec<BorrowedFd> = vec![self.signals.fd.as_fd()];
        fds.extend(self.taken.iter().filter_map(|taken| taken.pidfd.as_ref()).map(|pidfd| pidfd.as_fd()));
        let mut fds: Vec<PollFd> =
            fds.into_iter().map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN)).collect();
        let _ = poll(&mut fds, Some(&clock::timespec(nap_ns)));
        drop(fds);
        while let Some(arrived) = self.signals.next() {
            // A key of the terminal reaches the whole foreground group.
            if arrived.signal != libc::SIGCHLD && !arrived.from_kernel && self.root_end.is_none() {
                spawn::signal(self.root, arrived.signal);
            }
        }
    }

    fn finish(mut self) -> End {
        self.roster.header().closing.store(1, Ordering::SeqCst);
        let whole = self.taken.is_empty();
        for mut taken in std::mem::take(&mut self.taken) {
            if let File::Open(writer) = &mut self.file {
                let mut book = Book { writer, images: self.images, by_pid: std::mem::take(&mut self.by_pid) };
                let _ = taken.finish(None, &mut book);
                (self.images, self.by_pid) = (book.images, book.by_pid);
            }
        }
        if !whole {
            self.say("the program has ended; of the processes that it left nothing more is recorded");
        }
        if let File::Open(writer) = std::mem::replace(&mut self.file, File::Closed) {
            let file_bytes = writer.bytes_file();
            match writer.finish() {
                Err(cause) => self.give_up(cause),
                Ok(sums) => self.voice.say(
                    Verbosity::Verbose,
                    &format!("{}: {} events, {file_bytes} bytes", self.path.display(), sums.events),
                ),
            }
        }
        let end = self.root_end.map_or(End::Exited(0), |(reaped, _)| reaped.end());
        self.voice.event("ended", serde_json::json!({ "exit_code": end.exit_code() }));
        end
    }
}

fn open_member(path: PathBuf, pid: u32) -> Result<Taken, Error> {
    let pidfd = child::raw(pid).and_then(|pid| rustix::process::pidfd_open(pid, PidfdFlags::empty()).ok());
    take::open(path, pid, pidfd.map(Arc::new))
}

fn has_ended(pidfd: BorrowedFd) -> bool {
    let mut fds = [PollFd::from_borrowed_fd(pidfd, PollFlags::IN)];
    poll(&mut fds, Some(&clock::timespec(0))).is_ok_and(|ready| ready > 0)
}
