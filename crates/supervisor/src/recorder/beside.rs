//! The recorder beside live standbys: a thread of `run`'s supervisor that empties the rings into the file.
//!
//! It decides nothing about the group. Of the ends of processes that could have a successor the main thread tells it;
//! of what becomes of the recording it tells the main thread, which says it.

use std::fs;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

use recording::{Header, Reader, Writer};

use super::cluster::{self, Ships};
use super::images::Images;
use super::rings::Rings;
use super::take::{self, Taken};
use super::tape::{NAP_MAX_NS, NAP_MIN_NS, Tape};
use super::{of_recording, padded, record, surroundings};
use crate::clock;
use crate::error::Error;
use crate::folder::{GroupFolder, SEGMENT, member};
use crate::gate;
use crate::options::Options;
use crate::roster::Roster;
use crate::run;
use crate::segment::Segment;

/// A process of which the main thread says nothing, and that could have had a successor, counts as ended after so long.
const UNTOLD_NS: u64 = 10_000_000_000;

/// What the main thread says.
enum Word {
    /// The process with this number has ended for good, with this status if that is known.
    Ended(u32, Option<i32>),
    /// So has the group.
    Over,
    /// A gate waits for a pass.
    Look,
}

/// What the recorder says.
#[derive(Debug, Default)]
struct News {
    lines: Vec<String>,
    /// Of other machines.
    shipped: Vec<String>,
    ended: Option<String>,
}

/// Of a recording that somebody else has begun.
struct Before {
    /// Images in it.
    images: u32,
    /// The program's, and those of its children that go on, by their numbers.
    image: u32,
    children: Vec<(u32, u32)>,
}

/// What the start of a recorded program needs.
pub(crate) struct Prepared {
    before: Option<Before>,
    path: PathBuf,
    writer: Writer,
    /// Other machines that are to keep it, and what they have to be told.
    cluster: Option<(cluster::Prepared, Header)>,
    /// The gate of the service's address.
    gate: Option<gate::Prepared>,
}

impl Prepared {
    /// Makes the file, with everything that a replay depends on.
    ///
    /// # Errors
    /// When it cannot be made, or is there already.
    pub(crate) fn new(
        options: &Options,
        path: &Path,
        program: &Path,
        library: &Path,
    ) -> Result<Prepared, Error> {
        let cluster = options.cluster.as_ref().map(cluster::Prepared::new).transpose()?;
        let gate = match options.cluster.as_ref().and_then(|asked| asked.gate.as_ref()) {
            Some(asked) => Some(gate::Prepared::new(&asked.address, asked.is_relaxed)?),
            None => None,
        };
        let header = surroundings::header(options, program, library);
        let writer = Writer::create(path, &header).map_err(|cause| record::not_made(path, cause))?;
        let cluster = cluster.map(|cluster| (cluster, header));
        Ok(Prepared { path: path.into(), writer, cluster, gate, before: None })
    }

    /// Goes on with the recording at `path`, as far as it has been read: the program, which is `image` there, is to take over, and so are
    /// these children of its, each with its number. `ended`: images whose processes end with that.
    ///
    /// # Errors
    /// When it cannot be written.
    pub(crate) fn behind(
        path: &Path,
        read: &Reader,
        (image, children): (u32, Vec<(u32, u32)>),
        ended: &[u32],
        (cluster, gate): (cluster::Prepared, Option<gate::Prepared>),
    ) -> Result<Prepared, Error> {
        let told = |cause| of_recording(path, cause);
        let mut writer = Writer::resume(path, read).map_err(told)?;
        for child in ended {
            writer.end(*child, libc::SIGKILL, &[]).map_err(told)?;
        }
        let (images, header) = (read.seen().images, read.header().clone());
        let before = Some(Before { images, image, children });
        Ok(Prepared { path: path.into(), writer, cluster: Some((cluster, header)), gate, before })
    }

    /// The gate, which is to have the address of the service and connections that were made anew.
    pub(crate) fn gate(&mut self) -> Option<&mut gate::Prepared> {
        self.gate.as_mut()
    }

    /// Nothing was run, so there is nothing to keep.
    pub(crate) fn discard(self) {
        let _ = fs::remove_file(&self.path);
    }
}

/// Paths as long as those of any replay.
pub(crate) fn padded_paths(library: &Path, segment: &Path) -> (PathBuf, PathBuf) {
    (padded(library, record::LIBRARY_BYTES), padded(segment, record::SEGMENT_BYTES))
}

/// The running recorder.
pub(crate) struct Beside {
    words: Sender<Word>,
    news: Arc<Mutex<News>>,
    thread: Option<JoinHandle<()>>,
    /// Ends behind the recorder: what is committed by then may leave.
    _gate: Option<gate::Running>,
}

impl Beside {
    /// Starts to record the group in `folder`, whose program is `pid`. `bell` is rung when there is something to say.
    ///
    /// # Errors
    /// When the segment cannot be opened once more, or there is no room for a thread.
    pub(crate) fn start(
        prepared: Prepared,
        folder: &GroupFolder,
        pid: u32,
        roster: Arc<Roster>,
        bell: Arc<OwnedFd>,
    ) -> Result<Beside, Error> {
        let segment = Segment::open(&folder.dir, SEGMENT)?;
        let rings = Rings::new(segment, &folder.dir, SEGMENT)?;
        let mut root = Taken::new(rings, &folder.dir, SEGMENT.into(), pid, None);
        prepared.before.iter().for_each(|before| root.goes_on_as(before.image));
        let mut tape = Tape::new(&folder.dir, &prepared.path, prepared.writer, root);
        if let Some(before) = &prepared.before {
            for (pid, image) in &before.children {
                let mut child = take::open(&folder.dir, member(*pid), *pid)?;
                child.goes_on_as(*image);
                tape.goes_on_with(child);
            }
            tape.goes_on_behind(before.images);
        }
        let (words, heard) = channel();
        let mut news = News::default();
        let (mut watches, mut images) = (Vec::new(), None);
        if let Some((cluster, header)) = &prepared.cluster {
            match Ships::start(cluster, &prepared.path, header, &folder.name, &folder.dir) {
                Ok(ships) => {
                    watches = ships.watches();
                    tape.ship(ships);
                    images = Some(Images::new(&prepared.path, header, &folder.dir)?);
                }
                Err(cause) => {
                    let why = run::explain(&cause);
                    news.shipped.push(format!("nothing is sent to other machines: {why}"));
                }
            }
        }
        let gate = prepared.gate.map(|gate| {
            let words = words.clone();
            gate.start(&folder.dir, watches, move || _ = words.send(Word::Look))
        });
        let gate = gate.transpose()?;
        gate.iter().for_each(|gate| tape.gate(gate.door(), &roster));
        let news = Arc::new(Mutex::new(news));
        let mut recorder = Recorder { tape, images, roster, root: pid, heard, news: Arc::clone(&news), bell };
        let thread = std::thread::Builder::new()
            .name("recorder".into())
            .spawn(move || recorder.until_the_end())
            .map_err(|cause| Error::system("start the recorder", cause))?;
        Ok(Beside { words, news, thread: Some(thread), _gate: gate })
    }

    /// The process with this number has ended for good.
    pub(crate) fn ended(&self, pid: u32, status: Option<i32>) {
        // One that does not hear has said why.
        let _ = self.words.send(Word::Ended(pid, status));
    }

    /// Lines to say, and why the recording is not whole, if it is not.
    pub(crate) fn said(&self) -> (Vec<String>, Option<String>) {
        let Ok(mut news) = self.news.lock() else { return Default::default() };
        (std::mem::take(&mut news.lines), news.ended.clone())
    }

    /// Lines to say of other machines.
    pub(crate) fn shipped(&self) -> Vec<String> {
        let Ok(mut news) = self.news.lock() else { return Vec::new() };
        std::mem::take(&mut news.shipped)
    }

    /// The group has ended: what is left is written, and the file is ended.
    pub(crate) fn finish(&mut self) {
        let _ = self.words.send(Word::Over);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

struct Recorder {
    tape: Tape,
    /// For machines that join.
    images: Option<Images>,
    roster: Arc<Roster>,
    root: u32,
    heard: Receiver<Word>,
    news: Arc<Mutex<News>>,
    bell: Arc<OwnedFd>,
}

impl Recorder {
    fn until_the_end(&mut self) {
        let mut nap_ns = NAP_MIN_NS;
        loop {
            self.tape.find_new(&self.roster);
            let bytes = self.tape.take();
            self.take_image();
            self.bury_untold();
            self.tell();
            nap_ns = if bytes > 0 { NAP_MIN_NS } else { (nap_ns * 2).min(NAP_MAX_NS) };
            match self.heard.recv_timeout(Duration::from_nanos(nap_ns)) {
                Ok(Word::Ended(pid, status)) => self.bury(pid, status),
                Ok(Word::Look) | Err(RecvTimeoutError::Timeout) => {}
                Ok(Word::Over) | Err(RecvTimeoutError::Disconnected) => break,
            }
        }
        self.tape.find_all(&self.roster);
        self.bury_untold();
        self.tape.finish_left();
        self.tape.close();
        self.tell();
    }

    fn take_image(&mut self) {
        let line = self.images.as_mut().and_then(|images| images.drive(&mut self.tape, &self.roster));
        if let Some(line) = line
            && let Ok(mut news) = self.news.lock()
        {
            news.shipped.push(line);
        }
    }

    fn bury(&mut self, pid: u32, status: Option<i32>) {
        // It may have made its segment, and ended, since the last look.
        self.tape.find_all(&self.roster);
        self.tape.bury(|taken| (taken.pid == pid).then_some(status));
    }

    /// Processes that have ended and could not have had a successor: nobody tells of these.
    fn bury_untold(&mut self) {
        let (root, roster) = (self.root, &self.roster);
        let now = clock::monotonic_ns();
        self.tape.bury(|taken| {
            if taken.pid == root {
                return None;
            }
            taken.look_at_primary();
            if !taken.has_ended() {
                return None;
            }
            let watched =
                roster.find(taken.pid).is_some_and(|(_, entry)| entry.joined.load(Ordering::Acquire) != 0);
            let since = *taken.gone_ns.get_or_insert(now);
            (!watched || now > since + UNTOLD_NS).then_some(None)
        });
    }

    fn tell(&mut self) {
        let shipped = self.tape.shipped();
        let (lines, ended) = self.tape.said();
        if lines.is_empty() && shipped.is_empty() {
            return;
        }
        if let Ok(mut news) = self.news.lock() {
            news.lines.extend(lines);
            news.shipped.extend(shipped);
            news.ended = ended.map(Into::into);
        }
        let _ = rustix::io::write(&self.bell, &1u64.to_ne_bytes());
    }
}
