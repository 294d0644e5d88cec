//! One server, started for one run, watched, killed and stopped.

use std::ffi::OsString;
use std::fs;
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::path::PathBuf;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use rustix::process::Signal;

use super::life::{Every, Life, Load};
use super::{Failure, Run};
use crate::events::{self, Reader};
use crate::process::{Launch, Sink, Tree, send};
use crate::rng::Rng;
use crate::strike::{primary_of, protected_command};
use crate::trial::{Kills, group_name, judge_events};

/// A running server.
pub struct Session {
    tree: Tree,
    dir: PathBuf,
    events: PathBuf,
    group: String,
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
        let mut session = Self { tree, dir: dir.clone(), events, group, address, primary: None };
        let ready = session.wait_ready(run, Instant::now() + run.limit);
        match ready {
            Ok(()) => Ok(session),
            Err(error) => Err(session.failed(format!("{error:#}"))),
        }
    }

    fn wait_ready(&mut self, run: &Run, until: Instant) -> Result<()> {
        while TcpStream::connect(self.address).is_err() {
            self.still_running(until, "the server never listened")?;
        }
        let mut reader = Reader::new(&self.events);
        while let (Some(understudy), None) = (&run.understudy, self.primary) {
            let protected = reader.fresh().into_iter().find(|event| event.name == "protected");
            self.primary = protected.and_then(|event| primary_of(&event, understudy, &self.group));
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

    /// Runs `work`, whose clients together make `total` requests, while a second thread kills the primary: once,
    /// or as often as the run says. Then stops the server and checks how the run went. Gives back what `work` did,
    /// and in words what a life of many kills cost.
    pub fn with_kill<T>(
        self,
        run: &Run,
        total: u64,
        work: impl FnOnce(&Load) -> Result<T>,
    ) -> Result<(T, String), Failure> {
        let load = Load::new(run.requests, run.life.is_some());
        let (outcome, killed) = thread::scope(|scope| {
            let killer = scope.spawn(|| {
                let killed = match &run.life {
                    Some((kills, every)) => self.kill_many(run, *kills, every, &load),
                    None => self.kill_once(run, total, &load),
                };
                if run.life.is_some() || killed.is_err() {
                    load.stop();
                }
                killed
            });
            let outcome = work(&load);
            load.stop();
            (outcome, killer.join().expect("the killer does not panic"))
        });
        match (outcome, killed) {
            (Err(error), Ok(words)) => Err(self.failed(format!("{error:#} ({words})"))),
            (Err(error), Err(other)) => Err(self.failed(format!("{error:#} ({other:#})"))),
            (Ok(_), Err(error)) => Err(self.failed(format!("{error:#}"))),
            (Ok(value), Ok(words)) => self.stop(run, (value, words)),
        }
    }

    /// Kills the primary once a seeded number of requests has been answered, plus up to a millisecond, so that the
    /// kill falls anywhere inside a request.
    fn kill_once(&self, run: &Run, total: u64, load: &Load) -> Result<String> {
        let mut rng = Rng::new(run.seed, "server kill");
        let point = rng.below(total * 9 / 10);
        let extra = Duration::from_micros(rng.below(1000));
        let Some(pid) = self.primary.filter(|_| run.kill) else { return Ok(String::new()) };
        let words = format!("kill planned at request {point} + {extra:?}");
        while load.done() < point {
            ensure!(load.goes_on(0), "{words}, but the clients have given up");
            thread::sleep(Duration::from_micros(100));
        }
        thread::sleep(extra);
        ensure!(send(pid, Signal::KILL), "{words}, but the primary was gone before it");
        Ok(words)
    }

    fn kill_many(&self, run: &Run, kills: usize, every: &Every, load: &Load) -> Result<String> {
        let understudy = run.understudy.as_deref().context("many kills need Understudy")?;
        let life =
            Life { events: &self.events, understudy, group: &self.group, kills, every, limit: run.limit };
        life.go_through(run.seed, load)
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
            let expected = run.life.as_ref().map_or(usize::from(run.kill), |(kills, _)| *kills);
            if promoted != expected {
                complaints.push(format!("{promoted} promotions, expected {expected}"));
            }
            complaints.extend(judge_events(&[], &lifecycle, &Kills { primary: run.kill, standbys: 0 }));
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
            .rev()
            .take(6)
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
