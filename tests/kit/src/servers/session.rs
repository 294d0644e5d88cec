//! One server, started for one run, watched, killed and stopped.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::fs;
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::path::PathBuf;
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use rustix::process::Signal;
use serde_json::Value;

use super::life::{Every, Life, Load};
use super::{Failure, Outcome, Run, recorded};
use crate::events::{self, Event};
use crate::judge::{Kills, count, judge_events, judge_folder};
use crate::process::{Launch, Sink, Tree};
use crate::rng::Rng;
use crate::strike::{ROOT, Target, Tracker, choose, protected_command, status};
use crate::trial::group_name;

/// A running server.
pub struct Session {
    tree: Tree,
    dir: PathBuf,
    events: PathBuf,
    group: String,
    understudy: Option<PathBuf>,
    /// Where clients connect.
    pub address: SocketAddr,
    /// How many processes are protected when all is well.
    processes: usize,
    /// Lifecycle events that are no failure, each with the reason.
    allowed: Vec<(String, String)>,
    /// With each primary that is killed those of others are, and all of their standbys take over.
    is_family: bool,
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
        Self::start_in(run, dir, program, port, 1)
    }

    /// The same in a folder that is made already; protected means that so many processes are.
    pub fn start_in(
        run: &Run,
        dir: PathBuf,
        program: Vec<OsString>,
        port: u16,
        processes: usize,
    ) -> Result<Self, Failure> {
        let events = dir.join("events");
        let group = group_name(&dir);
        let command = match (&run.understudy, run.record) {
            (Some(understudy), Some(serial)) => {
                recorded::command(understudy, serial, &group, &dir.join("recording"), program)
            }
            (Some(understudy), None) => protected_command(understudy, run.standbys, &group, &events, program),
            (None, _) => program,
        };
        let tree = Launch { command, dir: dir.clone(), stdin: None, sink: Sink::File }.spawn()?;
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
        let understudy = run.understudy.clone();
        let mut session = Self {
            tree,
            dir,
            events,
            group,
            understudy,
            address,
            processes,
            allowed: Vec::new(),
            is_family: false,
        };
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
        if let Some(understudy) = run.understudy.as_ref().filter(|_| run.record.is_none()) {
            let (events, group) = (self.events.clone(), self.group.clone());
            let mut tracker = Tracker::new(&events, understudy, &group);
            while tracker.protected().len() < self.processes {
                self.still_running(until, "the group was never protected")?;
            }
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
        self.with(run, work, |session, load| match &run.life {
            Some(life) => session.kill_many(run, life, load, |_| Ok(())),
            None => session.kill_once(run, total, load),
        })
    }

    /// The same of clients that make requests over so many connections and come to their longest wait: what the run was.
    pub fn talk_with_kill(
        self,
        run: &Run,
        connections: u64,
        talk: impl FnOnce(&Load) -> Result<Duration>,
    ) -> Result<Outcome, Failure> {
        let ((requests, longest), words) = self.with_kill(run, run.requests * connections, |load| {
            let longest = talk(load)?;
            Ok((load.done(), longest))
        })?;
        let detail = format!(
            "{requests} requests over {connections} connections, longest wait {longest:.1?}; {words}"
        );
        Ok(Outcome { detail, longest: Some(longest) })
    }

    /// The same with a `disturb` of the caller's own.
    pub fn with<T>(
        self,
        run: &Run,
        work: impl FnOnce(&Load) -> Result<T>,
        disturb: impl FnOnce(&Session, &Load) -> Result<String> + Send,
    ) -> Result<(T, String), Failure> {
        let load = Load::new(run.requests, run.life.is_some());
        let (outcome, disturbed) = thread::scope(|scope| {
            let disturber = scope.spawn(|| {
                let disturbed = disturb(&self, &load);
                if run.life.is_some() || disturbed.is_err() {
                    load.stop();
                }
                disturbed
            });
            let outcome = work(&load);
            load.stop();
            (outcome, disturber.join().expect("the killer does not panic"))
        });
        match (outcome, disturbed) {
            (Err(error), Ok(words)) => Err(self.failed(format!("{error:#} ({words})"))),
            (Err(error), Err(other)) => Err(self.failed(format!("{error:#} ({other:#})"))),
            (Ok(_), Err(error)) => Err(self.failed(format!("{error:#}"))),
            (Ok(value), Ok(words)) => self.stop(run, (value, words)),
        }
    }

    /// Kills one primary once a seeded number of requests has been answered, plus up to a millisecond, so that the
    /// kill falls anywhere inside a request.
    pub fn kill_once(&self, run: &Run, total: u64, load: &Load) -> Result<String> {
        let mut rng = Rng::new(run.seed, "server kill");
        let point = rng.below(total * 9 / 10);
        let extra = Duration::from_micros(rng.below(1000));
        let Some(understudy) = run.understudy.as_deref().filter(|_| run.kill) else {
            return Ok(String::new());
        };
        let mut tracker = Tracker::new(&self.events, understudy, &self.group);
        tracker.protected();
        let words = format!("kill planned at request {point} + {extra:?}");
        self.wait_until(load, point).with_context(|| words.clone())?;
        thread::sleep(extra);
        let mut found = tracker.protected();
        let until = Instant::now() + run.limit;
        // Between two standbys, where a server is allowed to lose one.
        while found.is_empty() && Instant::now() < until {
            thread::sleep(Duration::from_millis(1));
            found = tracker.protected();
        }
        let process = choose(&found, rng.draw()).with_context(|| format!("{words}: nobody is protected"))?;
        let killed = tracker.kill(process, Target::Primary);
        ensure!(killed.is_some(), "{words}, but the primary was gone before it");
        if process == ROOT { Ok(words) } else { Ok(format!("{words}, of process {process}")) }
    }

    /// Kills the primaries in turn, as often as the life says; `between` as for [`Life::go_through`].
    pub fn kill_many(
        &self,
        run: &Run,
        (kills, every): &(usize, Every),
        load: &Load,
        between: impl Fn(usize) -> Result<()>,
    ) -> Result<String> {
        let understudy = run.understudy.as_deref().context("many kills need Understudy")?;
        let life = Life {
            events: &self.events,
            understudy,
            group: &self.group,
            kills: *kills,
            every,
            processes: self.processes,
            limit: run.limit,
        };
        life.go_through(run.seed, load, between)
    }

    /// Waits until the events tell of a promotion.
    pub fn wait_promoted(&self, run: &Run) -> Result<()> {
        let until = Instant::now() + run.limit;
        while count(&events::read_all(&self.events), "promoted") == 0 {
            ensure!(Instant::now() < until, "nobody was promoted for {:?}", run.limit);
            thread::sleep(Duration::from_millis(1));
        }
        Ok(())
    }

    /// This lifecycle event is no failure, for a reason.
    pub fn allow(&mut self, event: &str, why: &str) {
        self.allowed.push((event.to_owned(), why.to_owned()));
    }

    /// Its processes share memory: they fail over together.
    pub fn is_family(&mut self) {
        self.is_family = true;
    }

    /// Waits until so many requests have been answered.
    pub fn wait_until(&self, load: &Load, point: u64) -> Result<()> {
        while load.done() < point {
            ensure!(load.goes_on(0), "the clients have given up");
            thread::sleep(Duration::from_micros(100));
        }
        Ok(())
    }

    /// Sends a signal to the program, whichever process that is now.
    pub fn signal_program(&self, run: &Run, signal: Signal, name: &str) -> Result<()> {
        let Some(understudy) = &run.understudy else {
            self.tree.signal(signal);
            return Ok(());
        };
        let status = Command::new(understudy).args(["signal", &self.group, name]).status()?;
        ensure!(status.success(), "understudy signal {name} ended with {status}");
        Ok(())
    }

    /// The program's child processes, by the pids that it knows, and whether all of them, and it, are protected.
    pub fn children(&self, run: &Run) -> Result<(BTreeSet<u32>, bool)> {
        let Some(understudy) = &run.understudy else {
            let pid = self.tree.pid();
            let children = fs::read_to_string(format!("/proc/{pid}/task/{pid}/children"))?;
            return Ok((children.split_whitespace().filter_map(|pid| pid.parse().ok()).collect(), true));
        };
        let group = status(understudy, &self.group).context("status does not answer")?;
        let processes = group["processes"].as_array().map(Vec::as_slice).unwrap_or_default();
        let follows = |process: &Value| {
            let standbys = process["standbys"].as_array().map(Vec::as_slice).unwrap_or_default();
            standbys.iter().any(|standby| standby["state"] == "following" || standby["state"] == "behind")
        };
        let pids = processes.iter().skip(1).filter_map(|process| process["guest_pid"].as_u64());
        Ok((
            pids.filter_map(|pid| u32::try_from(pid).ok()).collect(),
            run.record.is_some() || processes.iter().all(follows),
        ))
    }

    /// How often standbys diverged and were made again, and what part of its time each process had one: in words.
    pub fn protection(&self) -> String {
        if self.understudy.is_none() {
            return String::new();
        }
        let told = events::read_all(&self.events);
        let shares: Vec<String> = shares(&told)
            .into_iter()
            .map(|(process, share)| format!("{process} {:.0} %", share * 100.0))
            .collect();
        let (diverged, again) = (count(&told, "diverged"), count(&told, "recloned"));
        format!("{diverged} divergences, {again} standbys made again; protected: {}", shares.join(", "))
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
        if run.record.is_some() {
            let file = self.dir.join("recording");
            let judged = recorded::judge(run, &self.dir, &file, &ended);
            complaints.extend(judged.map_err(|error| Failure::of(error, &self.dir))?);
        } else if run.understudy.is_some() {
            let lifecycle = events::read_all(&self.events);
            let promoted = count(&lifecycle, "promoted");
            let expected = run.life.as_ref().map_or(usize::from(run.kill), |(kills, _)| *kills);
            if promoted < expected || promoted > expected && !self.is_family {
                complaints.push(format!("{promoted} promotions, expected {expected}"));
            }
            complaints.extend(judge_events(
                &self.allowed,
                &lifecycle,
                &Kills { primary: run.kill, standbys: 0 },
            ));
            complaints.extend(judge_folder(&self.group));
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
        // Whoever asks clears away what a dead group has left.
        self.understudy.and_then(|understudy| status(&understudy, &self.group));
        Failure { why, dir: Some(dir) }
    }
}

/// The part of the time, from its first event on, in which each process had a standby that followed.
fn shares(told: &[Event]) -> BTreeMap<u64, f64> {
    let at = |event: &Event| event.fields["t"].as_str().and_then(seconds).unwrap_or(0.0);
    let end = told.last().map_or(0.0, at);
    let root = told.first().and_then(|event| event.number("primary")).unwrap_or(0);
    // Since when it is known, how long it was protected, and since when it is.
    let mut known: BTreeMap<u64, (f64, f64, Option<f64>)> = BTreeMap::new();
    for event in told {
        let now = at(event);
        let entry = known.entry(event.number("process").unwrap_or(root)).or_insert((now, 0.0, None));
        match event.name.as_str() {
            "protected" | "recloned" => entry.2 = entry.2.or(Some(now)),
            _ => entry.1 += entry.2.take().map_or(0.0, |since| now - since),
        }
    }
    let share = |(first, sum, since): (f64, f64, Option<f64>)| {
        (sum + since.map_or(0.0, |since| end - since)) / (end - first).max(0.001)
    };
    known.into_iter().map(|(process, times)| (process, share(times))).collect()
}

/// Seconds of the day in `…T10:00:00.000Z`.
fn seconds(time: &str) -> Option<f64> {
    let (_, clock) = time.trim_end_matches('Z').split_once('T')?;
    let mut parts = clock.split(':').map(str::parse::<f64>);
    let mut next = || parts.next()?.ok();
    Some(next()? * 3600.0 + next()? * 60.0 + next()?)
}

impl Failure {
    /// An error with the folder of its run.
    pub fn of(error: anyhow::Error, dir: &std::path::Path) -> Self {
        Self { why: format!("{error:#}"), dir: Some(dir.to_path_buf()) }
    }
}
