//! Programs under test, and clients that know every answer.

use std::ffi::OsString;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use anyhow::{Result, bail, ensure};
use us_kit::place::{Place, installed};
use us_kit::servers::client::Connection;
use us_kit::servers::life::Load;
use us_kit::servers::{Run, echo, memcached, threads16};
use us_kit::{guest, rng::Rng};

use crate::fault::Fault;
use crate::redis;

/// A program and its clients.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Workload {
    /// Numbered bytes, to workers on one epoll set
    EchoEpoll,
    /// Numbered bytes, to a thread for each connection
    EchoThreads,
    /// Counters, lists and registers
    Redis,
    /// incr and cas over several connections
    Memcached,
    /// Sixteen threads that share locks of every kind
    Threads16,
}

/// Things that a client does when it is told to.
#[derive(Default)]
pub struct Errands {
    asked: AtomicUsize,
    done: AtomicUsize,
}

impl Errands {
    /// One more is to be done.
    pub fn ask(&self) {
        self.asked.fetch_add(1, Ordering::AcqRel);
    }

    /// Whether all are done.
    pub fn are_done(&self) -> bool {
        self.asked.load(Ordering::Acquire) == self.done.load(Ordering::Acquire)
    }

    /// Does what has been asked for, until the load is over.
    pub fn serve(&self, load: &Load, mut errand: impl FnMut(usize) -> Result<()>) -> Result<()> {
        while load.goes_on(0) {
            if self.are_done() {
                std::thread::sleep(Duration::from_millis(1));
                continue;
            }
            errand(self.done.load(Ordering::Acquire))?;
            self.done.fetch_add(1, Ordering::AcqRel);
        }
        Ok(())
    }
}

impl Workload {
    /// Every one of them.
    pub const ALL: [Self; 5] =
        [Self::Redis, Self::EchoEpoll, Self::Threads16, Self::Memcached, Self::EchoThreads];

    /// Its name on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Self::EchoEpoll => "echo-epoll",
            Self::EchoThreads => "echo-threads",
            Self::Redis => "redis",
            Self::Memcached => "memcached",
            Self::Threads16 => "threads16",
        }
    }

    /// The installed program that it needs, if that is missing.
    pub fn missing(self) -> Option<&'static str> {
        let program = match self {
            Self::Redis => "redis-server",
            Self::Memcached => "memcached",
            _ => return None,
        };
        installed(program).is_none().then_some(program)
    }

    /// Builds the servers that are our own.
    pub fn build(place: &Place) -> Result<()> {
        let servers = guest::discover(place, "guests/servers", None)?;
        match guest::build(place, &servers, 2)?.pop() {
            Some((name, words)) => bail!("building {name}: {words}"),
            None => Ok(()),
        }
    }

    /// Whether it can take this fault.
    pub fn takes(self, fault: Fault) -> bool {
        match fault {
            Fault::FillRings => matches!(self, Self::EchoEpoll | Self::EchoThreads | Self::Redis),
            Fault::RefusedCall => self == Self::Threads16,
            _ => true,
        }
    }

    /// Its command line.
    pub fn program(self, place: &Place, port: u16) -> Vec<OsString> {
        let own = |name: &str| place.guests().join(name).into_os_string();
        let port = port.to_string();
        let words: Vec<&str> = match self {
            Self::EchoEpoll => vec!["epoll", &port, "4"],
            Self::EchoThreads => vec!["threads", &port, "0"],
            Self::Threads16 => vec![&port],
            Self::Redis => redis::words(&port),
            Self::Memcached => memcached::words(&port),
        };
        let program = match self {
            Self::EchoEpoll | Self::EchoThreads => own("echo_server"),
            Self::Threads16 => own("server_threads16"),
            Self::Redis => "redis-server".into(),
            Self::Memcached => "memcached".into(),
        };
        std::iter::once(program).chain(words.into_iter().map(Into::into)).collect()
    }

    /// Asks it one thing, as a probe does: anybody who answers is well.
    pub fn ask(self, address: SocketAddr, limit: Duration) -> Result<()> {
        let mut client = Connection::open(address, limit)?;
        match self {
            Self::Redis => {
                client.send(b"PING\r\n")?;
                client.expect("+PONG", 0)
            }
            Self::Memcached => {
                client.send(b"version\r\n")?;
                client.line().map(|_| ())
            }
            Self::EchoEpoll | Self::EchoThreads => {
                let mut answer = [0; 8];
                client.send(b"how goes")?;
                client.receive(&mut answer)
            }
            // Its counts are exact: nobody may ask beside the clients. A listener that accepts says enough.
            Self::Threads16 => Ok(()),
        }
    }

    /// Whether [`Workload::ask`] can tell a stopped program from a running one.
    pub fn can_be_probed(self) -> bool {
        self != Self::Threads16
    }

    /// Talks to it until the load is over, and checks every answer.
    pub fn talk(self, run: &Run, address: SocketAddr, load: &Load, errands: &Errands) -> Result<String> {
        match self {
            Self::Redis => redis::talk(run, address, load, errands),
            Self::Memcached => {
                memcached::talk_all(run, address, load)?;
                Ok(format!("{} requests", load.done()))
            }
            Self::Threads16 => {
                let refuse = || {
                    let asked = !errands.are_done();
                    if asked {
                        errands.done.fetch_add(1, Ordering::AcqRel);
                    }
                    asked
                };
                threads16::talk_all(run, address, load, &refuse)?;
                Ok(format!("{} requests", load.done()))
            }
            Self::EchoEpoll | Self::EchoThreads => {
                std::thread::scope(|scope| {
                    let burst = scope.spawn(|| {
                        let done = errands.serve(load, |n| echo_burst(run, address, n));
                        if done.is_err() {
                            load.stop();
                        }
                        done
                    });
                    let talk = echo::talk_all(run, address, 3, load);
                    load.stop();
                    burst.join().expect("a client does not panic").and(talk.map(|_| ()))
                })?;
                Ok(format!("{} requests", load.done()))
            }
        }
    }
}

/// Sixteen MiB through one connection of its own, sent and received at once.
fn echo_burst(run: &Run, address: SocketAddr, n: usize) -> Result<()> {
    const BLOCK: usize = 64 << 10;
    const BLOCKS: usize = 256;
    let block = |at: usize| {
        let mut rng = Rng::new(at as u64, &format!("burst {n}"));
        let mut bytes = Vec::with_capacity(BLOCK);
        while bytes.len() < BLOCK {
            bytes.extend(rng.draw().to_le_bytes());
        }
        bytes
    };
    let mut client = Connection::open(address, run.limit)?;
    let mut sender = client.second()?;
    std::thread::scope(|scope| {
        let sending = scope.spawn(move || (0..BLOCKS).try_for_each(|at| sender.send(&block(at))));
        let mut got = vec![0; BLOCK];
        let received = (0..BLOCKS).try_for_each(|at| {
            client.receive(&mut got)?;
            ensure!(got == block(at), "burst {n}: block {at} is not what was sent");
            Ok(())
        });
        if received.is_err() {
            client.close();
        }
        received.and(sending.join().expect("a client does not panic"))
    })?;
    client.expect_silence()
}
