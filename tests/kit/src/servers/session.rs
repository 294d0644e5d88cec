//! One server, started for one run, watched, killed once and stopped.

use std::ffi::OsString;
use std::fs;
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use rustix::process::Signal;

use super::{Failure, Run};
use crate::events::{self, Reader};
use crate::process::{Launch, Sink, Tree, send};
use crate::rng::Rng;
use crate::strike::{primary_of, protected_command};
use crate::trial::{group_name, judge_events};

/// A running server.
pub struct Session {
    tree: Tree,
    dir: PathBuf,
    events: PathBuf,
    /// Where clients connect.
    pub address: SocketAddr,
    primary: Option<u32>,
}

/// A loopback port that was free a moment ago.
pub fn free_port() -> Result<u16> {
    let probe = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).context("finding a free port")?;
    Ok(probe.local_addr()?.port())
}

impl Session {
    /// Starts `program`, which will listen on `port`, and waits until it does and, under Understudy,
    /// until the group is protected.
    pub fn start(run: &Run, label: &str, program: Vec<OsString>, port: u16) -> Result<Self, Failure> {
        let dir = run.place.fresh(label)?;
        let events = dir.join("events");
        let group = group_name(&dir);
        let command = match &run.understudy {
            Some(understudy) => protected_command(understudy, &group, &events, program),
            None => program,
        };
        let tree = Launch { command, dir: dir.clone(), stdin: None, sink: Sink::File }.spawn()?;
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
        let mut session = Self { tree, dir: dir.clone(), events, address, primary: None };
        let ready = session.wait_ready(run, &group, Instant::now() + run.limit);
        match ready {
            Ok(()) => Ok(session),
            Err(error) => Err(session.failed(format!("{error:#}"))),
        }
    }

    fn wait_ready(&mut self, run: &Run, group: &str, until: Instant) -> Result<()> {
        while TcpStream::connect(self.address).is_err() {
            self.still_running(until, "the server never listened")?;
        }
        let mut reader = Reader::new(&self.events);
        while let (Some(understudy), None) = (&run.understudy, self.primary) {
            let protected = reader.fresh().into_iter().find(|event| event.name == "protected");
            self.primary = protected.and_then(|event| primary_of(&event, understudy, group));
            self.still_running(until, "the group was never protected")?;
        }
        Ok(())
    }

    fn still_running(&mut self, until: Instant, otherwise: &str) -> Result<()> {
        if self.tree.has_ended() {
            bail!("the server ended at its start");
        }
        if Instant::now() > until {
            bail!("{otherwise}");
        }
        thread::sleep(Duration::from_millis(2));
        Ok(())
    }

    /// Runs `work` while a second thread kills the primary: once `progress` (which `work` counts up to
    /// `total`) has passed a seeded point, plus up to a millisecond, so that the kill falls anywhere
    /// inside a request. Then stops the server and checks how the run went.
    pub fn with_kill<T>(
        self,
        run: &Run,
        total: u64,
        work: impl FnOnce(&AtomicU64) -> Result<T>,
    ) -> Result<T, Failure> {
        let mut rng = Rng::new(run.seed, "server kill");
        let point = rng.below(total * 9 / 10);
        let extra = Duration::from_micros(rng.below(1000));
        let (progress, over) = (AtomicU64::new(0), AtomicBool::new(false));
        let victim = self.primary.filter(|_| run.kill);
        let (outcome, killed) = thread::scope(|scope| {
            let killer = scope.spawn(|| {
                let Some(pid) = victim else { return true };
                while progress.load(Ordering::Relaxed) < point {
                    if over.load(Ordering::Acquire) {
                        return false;
                    }
                    thread::sleep(Duration::from_micros(100));
                }
                thread::sleep(extra);
                send(pid, Signal::KILL)
            });
            let outcome = work(&progress);
            over.store(true, Ordering::Release);
            (outcome, killer.join().expect("the killer does not panic"))
        });
        match outcome {
            Err(error) => {
                Err(self.failed(format!("{error:#} (kill planned at request {point} + {extra:?})")))
            }
            Ok(_) if !killed => Err(self.failed("the primary was gone before the kill".to_owned())),
            Ok(value) => self.stop(run, value),
        }
    }

    /// Ends the server by SIGTERM, as a user would, and looks at what is left.
    fn stop<T>(self, run: &Run, value: T) -> Result<T, Failure> {
        self.tree.signal(Signal::TERM);
        let limit = self.tree.age() + run.limit;
        let ended = self.tree.finish(limit).map_err(|error| Failure::of(error, &self.dir))?;
        let mut complaints = Vec::new();
        if ended.status.is_none() {
            complaints.push("the server did not end by SIGTERM".to_owned());
        }
        if !ended.left_behind.is_empty() {
            complaints.push(format!("processes left behind: {:?}", ended.left_behind));
        }
        if run.understudy.is_some() {
            let lifecycle = events::read_all(&self.events);
            let promoted = lifecycle.iter().filter(|event| event.name == "promoted").count();
            if promoted != usize::from(run.kill) {
                complaints.push(format!("{promoted} promotions, expected {}", usize::from(run.kill)));
            }
            complaints.extend(judge_events(&[], &lifecycle, run.kill));
        }
        if complaints.is_empty() {
            fs::remove_dir_all(&self.dir).map_err(|error| Failure::of(error.into(), &self.dir))?;
            return Ok(value);
        }
        Err(Failure { why: complaints.join("\n"), dir: Some(self.dir) })
    }

    /// Ends the run after a failure at once, so that the watchdog writes what every process is doing now.
    fn failed(self, why: String) -> Failure {
        let dir = self.dir.clone();
        // A reset connection often has its cause here: the standby was gone before the kill.
        let told: String = events::read_all(&self.events)
            .iter()
            .filter(|event| !matches!(event.name.as_str(), "started" | "protected"))
            .map(|event| format!("\nevent {}: {}", event.name, event.fields))
            .collect();
        let why = format!("{why}{told}");
        let why = match self.tree.finish(Duration::ZERO) {
            Ok(_) => why,
            Err(error) => format!("{why}\nand stopping it: {error:#}"),
        };
        Failure { why, dir: Some(dir) }
    }
}

impl Failure {
    /// An error with the folder of its run.
    pub fn of(error: anyhow::Error, dir: &std::path::Path) -> Self {
        Self { why: format!("{error:#}"), dir: Some(dir.to_path_buf()) }
    }
}
