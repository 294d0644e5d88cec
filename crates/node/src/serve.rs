//! The daemon of a machine: takes links from the other machines, each in a thread of its own.

use std::io;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::{AsFd, OwnedFd};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use rustix::event::{EventfdFlags, PollFd, PollFlags, eventfd, poll};
use ship::wire::FRAME_MAX;
use ship::{Act, Commit, Follower, Here, Limits};

use crate::kept::{FENCED, Kept, Shelf};
use crate::link::Link;
use crate::tls::Identity;
use crate::{Config, Error, now};

/// Links at once; and of them such whose peer has not said who it is.
const LINKS_MAX: usize = 256;
const STRANGERS_MAX: usize = 32;

/// A peer says who it is, and whose log it has, within so long.
const GREETING_MAX: Duration = Duration::from_secs(5);

/// Hears what happens, in sentences.
pub type Say = Arc<dyn Fn(&str) + Send + Sync>;

/// A log that has begun to be kept, or goes on.
#[derive(Clone, Debug)]
pub struct Log {
    /// The copy.
    pub file: PathBuf,
    /// The group that it is of.
    pub group: String,
    /// The peer on which that runs.
    pub leader: String,
    /// What counts as kept there, as that one was asked.
    pub commit: Commit,
}

/// Hears of each link's log.
pub type Hear = Box<dyn Fn(Log) + Send + Sync>;

/// Ends a [`Node`].
#[derive(Clone, Debug)]
pub struct Stop(Arc<(OwnedFd, AtomicBool)>);

impl Stop {
    /// It takes no more links, and ends those that there are.
    pub fn stop(&self) {
        self.0.1.store(true, Ordering::SeqCst);
        let _ = rustix::io::write(&self.0.0, &1u64.to_ne_bytes());
    }

    fn is_asked(&self) -> bool {
        self.0.1.load(Ordering::SeqCst)
    }
}

/// A machine's part of a cluster.
pub struct Node {
    listener: TcpListener,
    shared: Arc<Shared>,
}

struct Shared {
    identity: Identity,
    here: Here,
    limits: Limits,
    shelf: Shelf,
    say: Say,
    stop: Stop,
    links: AtomicUsize,
    strangers: AtomicUsize,
    numbers: AtomicU64,
    hear: OnceLock<Hear>,
}

impl Node {
    /// Listens. `here` is what this machine is, but for its name, which the configuration has.
    ///
    /// # Errors
    /// What is wrong with the configuration's files, or with the address.
    pub fn new(config: &Config, here: Here, say: Say) -> Result<Node, Error> {
        let identity = Identity::read(config)?;
        let shelf = Shelf::open(&config.node.data)?;
        let address = config.node.listen;
        let told = |cause: io::Error| Error::new(format_args!("cannot listen at {address}: {cause}"));
        let listener = TcpListener::bind(address).map_err(told)?;
        listener.set_nonblocking(true).map_err(told)?;
        let bell = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK);
        let bell = bell.map_err(|cause| Error::new(format_args!("no eventfd: {cause}")))?;
        let shared = Shared {
            identity,
            here: Here { name: config.node.name.clone(), ..here },
            limits: config.limits(),
            shelf,
            say,
            stop: Stop(Arc::new((bell, AtomicBool::new(false)))),
            links: AtomicUsize::new(0),
            strangers: AtomicUsize::new(0),
            numbers: AtomicU64::new(1),
            hear: OnceLock::new(),
        };
        Ok(Node { listener, shared: Arc::new(shared) })
    }

    /// Where it listens.
    pub fn address(&self) -> Option<SocketAddr> {
        self.listener.local_addr().ok()
    }

    /// From here on `hear` is told of the log of each link.
    pub fn hear(&self, hear: Hear) {
        let _ = self.shared.hear.set(hear);
    }

    /// What ends it.
    pub fn stop(&self) -> Stop {
        self.shared.stop.clone()
    }

    /// Takes links until it is stopped; then waits for theirs to end.
    pub fn run(&self) {
        while !self.shared.stop.is_asked() {
            let bell = &self.shared.stop.0.0;
            let mut fds = [
                PollFd::from_borrowed_fd(self.listener.as_fd(), PollFlags::IN),
                PollFd::from_borrowed_fd(bell.as_fd(), PollFlags::IN),
            ];
            let _ = poll(&mut fds, None);
            match self.listener.accept() {
                Ok((tcp, from)) => self.take(tcp, from),
                Err(cause) if cause.kind() == io::ErrorKind::WouldBlock => {}
                // No descriptor is left, or the peer has gone: neither is helped by asking at once.
                Err(_) => std::thread::sleep(Duration::from_millis(50)),
            }
        }
        let until = Instant::now() + GREETING_MAX;
        while self.shared.links.load(Ordering::SeqCst) > 0 && Instant::now() < until {
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    fn take(&self, tcp: TcpStream, from: SocketAddr) {
        let is_full = self.shared.links.load(Ordering::SeqCst) >= LINKS_MAX
            || self.shared.strangers.load(Ordering::SeqCst) >= STRANGERS_MAX;
        if is_full {
            return;
        }
        let shared = Arc::clone(&self.shared);
        shared.links.fetch_add(1, Ordering::SeqCst);
        shared.strangers.fetch_add(1, Ordering::SeqCst);
        let begun = std::thread::Builder::new().name("link".into()).spawn(move || {
            let mut session = Session {
                shared: &shared,
                is_stranger: true,
                peer: from.to_string(),
                log: None,
                told: None,
                has_asked: 0,
            };
            let why = session.run(tcp);
            session.end(why);
            shared.links.fetch_sub(1, Ordering::SeqCst);
        });
        if begun.is_err() {
            self.shared.strangers.fetch_sub(1, Ordering::SeqCst);
            self.shared.links.fetch_sub(1, Ordering::SeqCst);
        }
    }
}

/// One link.
struct Session<'a> {
    shared: &'a Shared,
    is_stranger: bool,
    peer: String,
    /// The log's group, once that is known.
    log: Option<String>,
    /// Why this machine cannot take over, as that has been told.
    told: Option<String>,
    /// The last image that was asked for.
    has_asked: u64,
}

impl Session<'_> {
    fn say(&self, what: &str) {
        (self.shared.say)(what);
    }

    fn is_known(&mut self) {
        if std::mem::take(&mut self.is_stranger) {
            self.shared.strangers.fetch_sub(1, Ordering::SeqCst);
        }
    }

    fn end(&mut self, why: Result<(), String>) {
        self.is_known();
        let log = self.log.as_deref().unwrap_or("no log");
        match why {
            Ok(()) => self.say(&format!("{}: {log} is at its end, and kept whole", self.peer)),
            Err(why) => self.say(&format!("{}: {log}: {why}", self.peer)),
        }
    }

    fn run(&mut self, tcp: TcpStream) -> Result<(), String> {
        let shared = self.shared;
        let server = shared.identity.server().map_err(|error| error.to_string())?;
        let mut link = Link::new(tcp, server).map_err(|cause| cause.to_string())?;
        let number = shared.numbers.fetch_add(1, Ordering::SeqCst);
        let mut kept = Kept::new(&shared.shelf, number);
        let mut follower = Follower::new(shared.here.clone(), shared.limits, now());
        let why = self.talk(&mut link, &mut follower, &mut kept);
        // Before the last words are taken: who hears them may read the copy.
        drop(kept);
        // Who has heard that all is there may have gone first.
        let is_well = follower.is_ended();
        link.finish();
        if is_well { Ok(()) } else { why }
    }

    fn talk(&mut self, link: &mut Link, follower: &mut Follower, kept: &mut Kept) -> Result<(), String> {
        let shared = self.shared;
        let greeting_until = Instant::now() + GREETING_MAX;
        loop {
            if shared.stop.is_asked() {
                follower.refuse(format!("{} is being stopped", shared.here.name));
            }
            if kept.is_outdated() {
                follower.refuse("a newer link of this log is there".into());
            }
            if kept.is_fenced() {
                follower.refuse(FENCED.into());
            }
            if follower.is_open() {
                // One that is there no more is told as well.
                let obstacle = kept.obstacle();
                if obstacle != self.told {
                    follower.cannot_take_over(obstacle.clone().unwrap_or_default());
                    self.told = obstacle;
                }
                let wanted = kept.wanted();
                if wanted != self.has_asked && wanted != 0 {
                    follower.wants_image(wanted);
                }
                self.has_asked = wanted;
            }
            if link.has_room()
                && let Some(act) = follower.next(now())
            {
                match act {
                    Act::Send(message) => {
                        link.send(&message);
                        link.push()?;
                    }
                    _ => return follower.why().map_or(Ok(()), |why| Err(why.into())),
                }
            }
            if !link.has_room() && follower.is_silent(now()) {
                return Err("the leader has fallen silent".into());
            }
            link.wait(self.pause(follower, link), Some(shared.stop.0.0.as_fd()));
            if link.pump()? {
                follower.alive(now());
            }
            if self.is_stranger && !link.tls().is_handshaking() {
                self.recognise(link)?;
            }
            while let Some(message) = link.next_message()? {
                follower.heard(message, kept, now());
                if follower.is_open() && self.log.is_none() {
                    link.allow(FRAME_MAX);
                    self.opened(follower, kept);
                }
            }
            follower.settle(kept);
            if self.log.is_none() && follower.why().is_none() && Instant::now() > greeting_until {
                return Err("it did not say in time whose log it has".into());
            }
        }
    }

    fn recognise(&mut self, link: &Link) -> Result<(), String> {
        match self.shared.identity.peer_of(link.tls().peer_certificates()) {
            Some(name) => self.peer = name.into(),
            None => return Err("its certificate is no peer's of this node".into()),
        }
        self.is_known();
        Ok(())
    }

    fn opened(&mut self, follower: &Follower, kept: &Kept) {
        let hello = follower.hello();
        self.log = Some(hello.group.clone());
        let (at, path) = (follower.progress().0.number, kept.path().display());
        let again = if hello.session > 1 { format!(", again, from entry {at} on") } else { String::new() };
        self.say(&format!("{}: {} is kept in {path}{again}", self.peer, hello.group));
        if let Some(hear) = self.shared.hear.get() {
            let (group, leader) = (hello.group.clone(), self.peer.clone());
            hear(Log { file: kept.path().into(), group, leader, commit: hello.commit });
        }
    }

    fn pause(&self, follower: &Follower, link: &Link) -> Duration {
        let most = if self.log.is_some() { self.shared.limits.beat } else { 100_000_000 };
        let due = follower.due().filter(|_| link.has_room());
        let pause = due.map_or(most, |due| due.saturating_sub(now()).min(most));
        Duration::from_nanos(pause)
    }
}
