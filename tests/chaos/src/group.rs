//! A group under test: started, watched, hurt and ended.

use std::ffi::OsString;
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, bail, ensure};
use rustix::process::Signal;
use serde_json::Value;
use us_kit::events::{self, Event};
use us_kit::process::{Ended, Launch, Sink, Tree, send};
use us_kit::servers::session::free_port;
use us_kit::strike::{Pair, Tracker, status};
use us_kit::trial::group_name;

/// How long a standby may hold the primary up. Long enough that a busy machine rarely drops one, short enough that
/// a stopped one is dropped within the round.
const LAG_TIMEOUT_MS: &str = "500";

/// Between two probes. Three of them have to fail in a row: a machine would have to be busy for seconds.
const PROBE_INTERVAL_MS: &str = "1000";

/// A group and where it can be reached.
pub struct Group {
    tree: Tree,
    /// Its run's folder.
    pub dir: PathBuf,
    understudy: PathBuf,
    name: String,
    events: PathBuf,
    /// Where its program listens.
    pub address: SocketAddr,
    limit: Duration,
    supervisor: u32,
}

impl Group {
    /// Starts the program that `program` names for a port, and waits until it listens and is protected.
    pub fn start(
        dir: PathBuf,
        understudy: &Path,
        program: impl FnOnce(u16) -> Vec<OsString>,
        probe: Option<String>,
        limit: Duration,
    ) -> Result<Self> {
        let port = free_port()?;
        let (name, events) = (group_name(&dir), dir.join("events"));
        let mut command: Vec<OsString> = vec![understudy.into()];
        command.extend(["run", "--lag-timeout", LAG_TIMEOUT_MS, "--name", &name, "--events"].map(Into::into));
        command.push(events.clone().into());
        if let Some(probe) = probe {
            let probe = probe.replace("PORT", &port.to_string());
            command.extend(["--probe", &probe, "--probe-interval", PROBE_INTERVAL_MS].map(Into::into));
        }
        command.push("--".into());
        command.extend(program(port));
        let tree = Launch { command, dir: dir.clone(), stdin: None, sink: Sink::File }.spawn()?;
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
        let understudy = understudy.to_path_buf();
        let mut group = Self { tree, dir, understudy, name, events, address, limit, supervisor: 0 };
        let until = Instant::now() + limit;
        while TcpStream::connect(address).is_err() {
            ensure!(!group.tree.has_ended(), "the program ended at its start");
            ensure!(Instant::now() < until, "the program never listened");
            thread::sleep(Duration::from_millis(2));
        }
        let path = group.events.clone();
        let started = move || events::read_all(&path).into_iter().find(|event| event.name == "started");
        let started = started().context("no event says that the group has started")?;
        group.supervisor = started.number("supervisor").and_then(|pid| u32::try_from(pid).ok()).unwrap_or(0);
        Ok(group)
    }

    /// A tracker of its two copies.
    pub fn tracker(&self) -> Tracker<'_> {
        Tracker::new(&self.events, &self.understudy, &self.name)
    }

    /// Waits until there are two copies that `wanted` likes. `alive` says whether to go on waiting.
    pub fn wait_for(
        &self,
        tracker: &mut Tracker,
        wanted: impl Fn(Pair) -> bool,
        alive: &dyn Fn() -> bool,
    ) -> Result<Pair> {
        let until = Instant::now() + self.limit;
        loop {
            // Looked at before the events: what was written until the end is still seen.
            let over = !alive();
            match tracker.pair() {
                Some(pair) if wanted(pair) => return Ok(pair),
                _ => {}
            }
            ensure!(!over, "the clients have given up");
            if Instant::now() > until {
                let group = self.status().unwrap_or_default();
                bail!("not protected again within {:?}: {}, {}", self.limit, group["state"], group["why"]);
            }
            thread::sleep(Duration::from_millis(1));
        }
    }

    /// The group's part of `status --json`.
    pub fn status(&self) -> Result<Value> {
        status(&self.understudy, &self.name).ok_or_else(|| anyhow!("status does not know the group"))
    }

    /// Orders a planned failover.
    pub fn fail_over(&self) -> Result<()> {
        let output = Command::new(&self.understudy).args(["failover", &self.name, "--json"]).output()?;
        let words = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.success(), "understudy failover: {}: {}", output.status, words.trim());
        Ok(())
    }

    /// Kills the supervisor, which is the process that was started, and waits until it is gone.
    pub fn kill_supervisor(&self) -> Result<()> {
        ensure!(send(self.supervisor, Signal::KILL), "the supervisor was gone before its kill");
        let until = Instant::now() + self.limit;
        while self.status()?["supervisor_pid"].as_u64() != Some(0) {
            ensure!(Instant::now() < until, "status does not notice that the supervisor is gone");
            thread::sleep(Duration::from_millis(5));
        }
        Ok(())
    }

    /// The lifecycle events so far.
    pub fn lifecycle(&self) -> Vec<Event> {
        events::read_all(&self.events)
    }

    /// Ends the program by SIGTERM: through its supervisor, or if that is gone, itself.
    pub fn stop(self, orphan: Option<u32>) -> Result<Ended> {
        match orphan {
            Some(pid) => ensure!(send(pid, Signal::TERM), "the program without a supervisor is gone"),
            None => self.tree.signal(Signal::TERM),
        }
        let limit = self.tree.age() + self.limit;
        self.tree.finish(limit)
    }

    /// Ends everything at once, with back traces of what is still there.
    pub fn abandon(self) {
        // The failure that led here is what is reported.
        let _ = self.tree.finish(Duration::ZERO);
    }
}
