//! What sends a log to one other machine: a thread beside the one that writes it.

use std::fs::File;
use std::io::ErrorKind;
use std::net::{SocketAddr, TcpStream};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use recording::Chunks;
use rustix::event::{EventfdFlags, Timespec, eventfd, poll};
use rustix::event::{PollFd, PollFlags};
use serde::{Deserialize, Serialize};
use ship::{Act, Hello, Leader, Limits, Log, Place, Report};

use crate::config::Peer;
use crate::link::Link;
use crate::tls::Identity;
use crate::{Config, Error, now};

/// An attempt to connect takes so long at the most.
const CONNECT_MAX: Duration = Duration::from_secs(2);

/// Who ends waits so long for a machine that is not there.
const APART_MAX: Duration = Duration::from_millis(500);

/// One place of the log is kept in so many.
const STRIDE: u64 = 256;

/// What is known of the other machine's copy.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Seen {
    /// The machine.
    pub node: String,
    /// `shipping`, `apart`, `ended` or `given up`.
    pub state: String,
    /// Bytes of the log that it has acknowledged as was asked for.
    pub committed_bytes: u64,
    /// Bytes that it has not.
    pub lag_bytes: u64,
    /// How long the first of these has waited, microseconds.
    pub lag_us: u64,
    /// How long the last entry had waited when it was acknowledged, microseconds.
    pub last_us: u64,
    /// Links that there have been.
    pub links: u64,
    /// Entries that it had acknowledged and did not have any more.
    pub lost: u64,
    /// Why nothing is sent.
    pub trouble: Option<String>,
    /// The machine is there, and no node on it: it refuses connections. Nobody takes over there.
    #[serde(default)]
    pub is_refused: bool,
    /// What stands against running the program there.
    pub remarks: Vec<String>,
    /// Why that machine cannot take over, though it keeps the recording.
    #[serde(default)]
    pub obstacle: Option<String>,
    /// The last image of the program that it has asked for, by its own number; 0: none.
    #[serde(default)]
    pub wanted: u64,
}

impl Seen {
    fn of(node: &str, report: Report, is_refused: bool) -> Seen {
        let state = match &report {
            Report { is_given_up: true, .. } => "given up",
            Report { is_done: true, .. } => "ended",
            Report { is_linked: true, .. } => "shipping",
            _ => "apart",
        };
        Seen {
            node: node.into(),
            state: state.into(),
            committed_bytes: report.committed.offset,
            lag_bytes: report.lag_bytes,
            lag_us: report.lag_ns / 1000,
            last_us: report.last_ns / 1000,
            links: report.links,
            lost: report.lost,
            is_refused: is_refused && state == "apart",
            trouble: report.trouble,
            remarks: report.remarks,
            obstacle: report.obstacle,
            wanted: report.wanted,
        }
    }
}

/// Sends a recording to another machine while it is written. Nobody waits for it.
pub struct Shipper {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

struct Shared {
    bell: OwnedFd,
    is_finished: AtomicBool,
    is_over: AtomicBool,
    seen: Mutex<Seen>,
    /// Who is rung when more is committed, or it is no longer.
    listener: Mutex<Option<Arc<OwnedFd>>>,
}

/// What somebody else may know of a shipper.
#[derive(Clone)]
pub struct Watch(Arc<Shared>);

impl Watch {
    /// What is known of the copy.
    pub fn seen(&self) -> Seen {
        self.0.seen.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Rings this eventfd when that has changed.
    pub fn ring(&self, bell: &Arc<OwnedFd>) {
        *self.0.listener.lock().unwrap_or_else(PoisonError::into_inner) = Some(Arc::clone(bell));
    }
}

impl Shipper {
    /// For somebody else who wants to know of it.
    pub fn watch(&self) -> Watch {
        Watch(Arc::clone(&self.shared))
    }

    /// Begins to send `file` to the peer of this name.
    ///
    /// # Errors
    /// What is wrong with the configuration, or that there is no room for a thread.
    pub fn start(config: &Config, peer: &str, file: File, hello: Hello) -> Result<Shipper, Error> {
        let identity = Identity::read(config)?;
        let Peer { name, address } = config.peer(peer)?.clone();
        let bell = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK);
        let bell = bell.map_err(|cause| Error::new(format_args!("no eventfd: {cause}")))?;
        let again = file.try_clone();
        let again = again.map_err(|cause| Error::new(format_args!("no descriptor: {cause}")))?;
        let chunks = Chunks::of(again);
        let seen = Seen { node: name.clone(), state: "apart".into(), ..Seen::default() };
        let shared = Arc::new(Shared {
            bell,
            is_finished: AtomicBool::new(false),
            is_over: AtomicBool::new(false),
            seen: Mutex::new(seen),
            listener: Mutex::new(None),
        });
        let limits = config.limits();
        let mut shipping = Shipping {
            shared: Arc::clone(&shared),
            identity,
            name,
            address,
            limits,
            leader: Leader::new(hello, limits, now()),
            log: Entries { chunks, tail: Chunks::of(file), marks: vec![0], end: Place::default() },
            link: None,
            is_refused: false,
        };
        let thread = std::thread::Builder::new().name("shipper".into()).spawn(move || shipping.run());
        let thread = thread.map_err(|cause| Error::new(format_args!("cannot start a shipper: {cause}")))?;
        Ok(Shipper { shared, thread: Some(thread) })
    }

    /// There is more in the file.
    pub fn ring(&self) {
        let _ = rustix::io::write(&self.shared.bell, &1u64.to_ne_bytes());
    }

    /// What is known of the copy.
    pub fn seen(&self) -> Seen {
        self.shared.seen.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The file is at its end.
    pub fn end(&self) {
        self.shared.is_finished.store(true, Ordering::SeqCst);
        self.ring();
    }

    /// The file is at its end. Waits for the other machine to have it all, but not longer than this.
    pub fn finish(mut self, patience: Duration) -> Seen {
        self.end();
        let until = Instant::now() + patience;
        let is_through = |thread: &JoinHandle<()>| thread.is_finished();
        let soon = Instant::now() + APART_MAX.min(patience);
        while self.thread.as_ref().is_some_and(|thread| !is_through(thread)) && Instant::now() < until {
            if Instant::now() > soon && self.seen().state == "apart" {
                break;
            }
            std::thread::sleep(Duration::from_millis(2));
        }
        self.shared.is_over.store(true, Ordering::SeqCst);
        self.ring();
        // One that is connecting still ends by itself.
        if let Some(thread) = self.thread.take().filter(is_through) {
            let _ = thread.join();
        }
        self.seen()
    }
}

/// The file as entries.
struct Entries {
    /// For what is sent, which may be far from the file's end.
    chunks: Chunks,
    /// For what is new at its end.
    tail: Chunks,
    /// Where every 256th entry begins.
    marks: Vec<u64>,
    end: Place,
}

impl Entries {
    /// Looks how far the file goes.
    fn look(&mut self) -> Place {
        while let Some(length) = self.tail.length(self.end.number, self.end.offset) {
            self.end = self.end.behind(length);
            if self.end.number.is_multiple_of(STRIDE) {
                self.marks.push(self.end.offset);
            }
        }
        self.end
    }
}

impl Log for Entries {
    fn entry(&mut self, at: Place) -> Option<Vec<u8>> {
        self.chunks.read(at.number, at.offset)
    }

    fn before(&mut self, at: Place) -> Option<u32> {
        let Some(last) = at.number.checked_sub(1) else { return (at.offset == 0).then_some(0) };
        let mark = last / STRIDE;
        let mut place =
            Place { number: mark * STRIDE, offset: *self.marks.get(usize::try_from(mark).ok()?)? };
        while place.number < last {
            place = place.behind(self.chunks.length(place.number, place.offset)?);
        }
        let bytes = self.chunks.read(place.number, place.offset)?;
        (place.behind(bytes.len()) == at).then(|| crc32c::crc32c(&bytes))
    }
}

struct Shipping {
    shared: Arc<Shared>,
    identity: Identity,
    name: String,
    address: SocketAddr,
    limits: Limits,
    leader: Leader,
    log: Entries,
    link: Option<Link>,
    /// The last try to make one was refused.
    is_refused: bool,
}

impl Shipping {
    fn run(&mut self) {
        while !self.shared.is_over.load(Ordering::SeqCst) {
            // Asked first: what was written before the end is there afterwards.
            let is_finished = self.shared.is_finished.load(Ordering::SeqCst);
            self.leader.grew(self.log.look(), now());
            if is_finished {
                self.leader.finished();
            }
            while self.link.as_ref().is_none_or(Link::has_room)
                && let Some(act) = self.leader.next(&mut self.log, now())
            {
                self.act(act);
                if self.link.as_ref().is_some_and(|link| !link.has_room()) {
                    self.push();
                }
            }
            self.push();
            if self.link.as_ref().is_some_and(|link| !link.has_room()) && self.leader.is_silent(now()) {
                self.lose("it takes nothing, and says nothing");
            }
            if self.tell() {
                break;
            }
            self.wait();
            self.hear();
        }
        if let Some(link) = self.link.take() {
            link.finish();
        }
    }

    fn act(&mut self, act: Act) {
        match (act, &mut self.link) {
            (Act::Connect, _) => match self.connect() {
                Ok(link) => {
                    self.link = Some(link);
                    self.leader.connected(now());
                }
                Err(why) => self.leader.broken(&why, now()),
            },
            // What is to be sent at once goes together.
            (Act::Send(message), Some(link)) => link.send(&message),
            (Act::Send(_), None) => self.leader.broken("there is no link", now()),
            (Act::Disconnect, _) => self.link.take().into_iter().for_each(Link::finish),
        }
    }

    /// Sends what has been given to the link.
    fn push(&mut self) {
        if let Some(Err(why)) = self.link.as_mut().map(Link::push) {
            self.lose(&why);
        }
    }

    fn connect(&mut self) -> Result<Link, String> {
        let tls = self.identity.client(&self.name).map_err(|error| error.to_string())?;
        let tcp = TcpStream::connect_timeout(&self.address, CONNECT_MAX);
        self.is_refused = tcp.as_ref().is_err_and(|cause| cause.kind() == ErrorKind::ConnectionRefused);
        let tcp = tcp.map_err(|cause| format!("cannot connect to {}: {cause}", self.address))?;
        Link::new(tcp, tls).map_err(|cause| cause.to_string())
    }

    fn lose(&mut self, why: &str) {
        // What it said before may say better why.
        let _ = self.listen();
        self.link = None;
        self.leader.broken(why, now());
    }

    /// Whether there is nothing more to do.
    fn tell(&mut self) -> bool {
        let seen = Seen::of(&self.name, self.leader.report(now()), self.is_refused);
        let is_through = matches!(seen.state.as_str(), "ended" | "given up") && self.link.is_none()
            || seen.state == "ended";
        let mut known = self.shared.seen.lock().unwrap_or_else(PoisonError::into_inner);
        let is_news = (known.committed_bytes, &known.state, known.is_refused)
            != (seen.committed_bytes, &seen.state, seen.is_refused);
        *known = seen;
        drop(known);
        if is_news && let Some(bell) = &*self.shared.listener.lock().unwrap_or_else(PoisonError::into_inner) {
            let _ = rustix::io::write(&**bell, &1u64.to_ne_bytes());
        }
        is_through
    }

    fn wait(&mut self) {
        let most = self.limits.beat;
        let has_room = self.link.as_ref().is_none_or(Link::has_room);
        let due = self.leader.due().filter(|_| has_room);
        let pause = Duration::from_nanos(due.map_or(most, |due| due.saturating_sub(now()).min(most)));
        let bell = self.shared.bell.as_fd();
        match &self.link {
            Some(link) => link.wait(pause, Some(bell)),
            None => {
                let mut fds = [PollFd::from_borrowed_fd(bell, PollFlags::IN)];
                let limit = Timespec { tv_sec: pause.as_secs() as i64, tv_nsec: pause.subsec_nanos().into() };
                let _ = poll(&mut fds, Some(&limit));
            }
        }
        let _ = rustix::io::read(&self.shared.bell, &mut [0; 8]);
    }

    fn hear(&mut self) {
        let Some(link) = &mut self.link else { return };
        match link.pump() {
            Ok(true) => self.leader.alive(now()),
            Ok(false) => {}
            Err(why) => return self.lose(&why),
        }
        if let Err(why) = self.listen() {
            self.link = None;
            self.leader.broken(&why, now());
        }
    }

    fn listen(&mut self) -> Result<(), String> {
        while let Some(link) = &mut self.link {
            let Some(message) = link.next_message()? else { return Ok(()) };
            self.leader.heard(message, &mut self.log, now());
        }
        Ok(())
    }
}
