//! `--cluster`: what the recorder writes goes to other machines as well. `understudy node` is the other side.
//!
//! A shipper reads the file that the recorder writes: one more reader of the file, and none more of the rings. So a machine
//! that is slow, or away, costs the program nothing, and what it lacks is in the file when it comes back.

use std::collections::HashMap;
use std::fs::File;
use std::io::Read;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use node::config::Standby;
use node::{Config, Log, Node, Seen, Shipper, Watch};
use recording::Header;
use rustix::event::{EventfdFlags, PollFd, PollFlags, eventfd, poll};
use ship::{Commit, Hello, Here, Program};

use super::replay::takeover::fence;
use super::surroundings;
use crate::clock;
use crate::dir::Dir;
use crate::error::Error;
use crate::options::Cluster;
use crate::spawn::{self, Signals};
use crate::{proc, program, terminal};

/// Where `status` finds what is known of the other machines.
pub const MACHINES: &str = "machines.json";

/// How often that is written down.
const LOOK_NS: u64 = 250_000_000;

/// So long the end of a group waits for the other machines to have all.
const PATIENCE: Duration = Duration::from_secs(5);

/// A machine that is so far behind is told of.
const LATE_US: u64 = 10_000_000;

/// Who the other machines are, looked at before anything is run.
pub struct Prepared {
    config: Config,
    nodes: Vec<String>,
    commit: Commit,
}

impl Prepared {
    /// As was asked for.
    ///
    /// # Errors
    /// What is wrong with the configuration.
    pub fn new(asked: &Cluster) -> Result<Prepared, Error> {
        let told = |error: node::Error| Error::NothingRun(error.to_string());
        let config = Config::read(&asked.config).map_err(told)?;
        for name in &asked.nodes {
            config.peer(name).map_err(told)?;
        }
        config.check_keys().map_err(told)?;
        let commit = if asked.on_disk { Commit::Disk } else { Commit::Memory };
        Ok(Prepared { config, nodes: asked.nodes.clone(), commit })
    }
}

/// The other machines that keep a recording.
pub struct Ships {
    dir: Arc<Dir>,
    shippers: Vec<Shipper>,
    /// What has been told of each, and whether it was called late.
    told: Vec<(String, Option<String>, bool)>,
    look_at_ns: u64,
    written: Vec<Seen>,
}

impl Ships {
    /// Begins to send the recording at `path` of the group in `dir`.
    ///
    /// # Errors
    /// What could not be begun; nothing is sent then.
    pub fn start(
        prepared: &Prepared,
        path: &Path,
        header: &Header,
        group: &str,
        dir: &Arc<Dir>,
    ) -> Result<Ships, Error> {
        let hello = hello(header, group, prepared.commit)
            .map_err(|cause| Error::file("read", "/dev/urandom", cause))?;
        let mut shippers = Vec::new();
        for name in &prepared.nodes {
            let file = File::open(path).map_err(|cause| Error::file("read", path, cause))?;
            let shipper = Shipper::start(&prepared.config, name, file, hello.clone());
            shippers.push(shipper.map_err(|error| Error::Refused(error.to_string()))?);
        }
        let told = shippers.iter().map(|_| (String::new(), None, false)).collect();
        Ok(Ships { dir: Arc::clone(dir), shippers, told, look_at_ns: 0, written: Vec::new() })
    }

    /// What a gate may know of the machines.
    pub fn watches(&self) -> Vec<Watch> {
        self.shippers.iter().map(Shipper::watch).collect()
    }

    /// Which image of the program each machine has asked for last.
    pub fn wishes(&self) -> impl Iterator<Item = (String, u64)> {
        let wish = |seen: Seen| (seen.wanted != 0).then_some((seen.node, seen.wanted));
        self.shippers.iter().map(Shipper::seen).filter_map(wish)
    }

    /// There is more in the file.
    pub fn ring(&self) {
        self.shippers.iter().for_each(Shipper::ring);
    }

    /// Writes down what is known of the machines, now and then; what somebody should hear.
    pub fn look(&mut self) -> Vec<String> {
        let now = clock::monotonic_ns();
        if now < self.look_at_ns {
            return Vec::new();
        }
        self.look_at_ns = now + LOOK_NS;
        let seen = self.shippers.iter().map(Shipper::seen).collect();
        self.note(seen)
    }

    fn note(&mut self, seen: Vec<Seen>) -> Vec<String> {
        if seen != self.written {
            // A full folder costs `status` this, nothing else.
            let bytes = serde_json::to_vec(&seen).unwrap_or_default();
            let _ = self.dir.replace(MACHINES, &bytes);
        }
        let mut lines = Vec::new();
        for (seen, (state, trouble, late)) in seen.iter().zip(&mut self.told) {
            let is_late = seen.lag_us > LATE_US;
            let is_told = *state == seen.state && *trouble == seen.trouble && *late == is_late;
            let is_first = state.is_empty() && seen.state == "apart" && seen.trouble.is_none();
            if is_told || is_first {
                continue;
            }
            (*state, *trouble, *late) = (seen.state.clone(), seen.trouble.clone(), is_late);
            lines.push(words(seen));
        }
        self.written = seen;
        lines
    }

    /// The file is at its end: waits a while for the machines to have it all. What somebody should hear.
    pub fn finish(mut self) -> Vec<String> {
        let all = std::mem::take(&mut self.shippers);
        all.iter().for_each(Shipper::end);
        let until = clock::monotonic_ns() + PATIENCE.as_nanos() as u64;
        let mut seen = Vec::new();
        for shipper in all {
            let left = Duration::from_nanos(until.saturating_sub(clock::monotonic_ns()));
            seen.push(shipper.finish(left));
        }
        let mut lines = self.note(seen.clone());
        for seen in seen.iter().filter(|seen| seen.state != "ended") {
            lines.push(format!(
                "{} does not have the last {} bytes of the recording",
                seen.node, seen.lag_bytes
            ));
        }
        lines
    }
}

/// What is said of a machine.
pub fn words(seen: &Seen) -> String {
    let Seen { node, state, lag_bytes, .. } = seen;
    let behind = format!("{lag_bytes} bytes and {:.1} ms behind", seen.lag_us as f64 / 1000.0);
    match (state.as_str(), &seen.trouble) {
        ("ended", _) => format!("{node} has the whole recording"),
        ("shipping", _) => match &seen.obstacle {
            None => format!("{node} keeps the recording, {behind}"),
            Some(why) => format!("{node} keeps the recording, {behind}, and cannot take over: {why}"),
        },
        ("given up", Some(why)) => format!("{node} is sent nothing more: {why}"),
        (_, Some(why)) => format!("{node} is sent nothing at present: {why}; {behind}"),
        (_, None) => format!("{node} is sent nothing at present; {behind}"),
    }
}

fn hello(header: &Header, group: &str, commit: Commit) -> std::io::Result<Hello> {
    let mut stream = [0; 16];
    File::open("/dev/urandom")?.read_exact(&mut stream)?;
    let here = here();
    let program = header.files.iter().find(|file| file.path == header.executable);
    Ok(Hello {
        format: here.format,
        stream,
        group: group.into(),
        commit,
        build: here.build,
        features: here.features,
        program: Program {
            path: header.executable.to_string_lossy().into_owned(),
            hash: program.map_or([0; 32], |file| file.hash),
        },
        ..Hello::default()
    })
}

/// What this machine is for a log of another one, but for its name.
fn here() -> Here {
    let library = program::library().ok().and_then(|library| surroundings::file(&library));
    let hex = |bytes: &[u8]| bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
    let build = library.map_or("none".into(), |file| match &file.build_id {
        Some(id) => hex(id),
        None => hex(&file.hash[..20]),
    });
    let mut features = proc::features();
    features.retain(|name| !surroundings::is_of_the_kernel(name));
    Here {
        name: String::new(),
        format: recording::VERSION,
        build: format!("{} ({build})", env!("CARGO_PKG_VERSION")),
        features,
    }
}

/// `understudy node`: keeps logs of other machines until it is told to end.
///
/// # Errors
/// What is wrong with the configuration, or with the address.
pub fn serve(path: &Path) -> Result<i32, Error> {
    let told = |error: node::Error| Error::Refused(error.to_string());
    let config = Config::read(path).map_err(told)?;
    let name = config.node.name.clone();
    let signals = spawn::take_signals()?;
    let prefix = name.clone();
    let say = Arc::new(move |line: &str| terminal::say(&format!("{prefix}: {line}")));
    let node = Node::new(&config, here(), say).map_err(told)?;
    if let Some(address) = node.address() {
        terminal::say(&format!("{name}: listens at {address}, keeps logs in {}", config.node.data.display()));
    }
    let stop = node.stop();
    let (logs, bell) = (Arc::new(Mutex::new(Vec::new())), bell()?);
    if config.standby.is_some() {
        let (logs, bell) = (Arc::clone(&logs), Arc::clone(&bell));
        node.hear(Box::new(move |log| {
            logs.lock().unwrap_or_else(PoisonError::into_inner).push(log);
            let _ = rustix::io::write(&*bell, &1u64.to_ne_bytes());
        }));
    }
    let standby = config.standby.clone().unwrap_or_default();
    let mut mirrors = Mirrors { standby, config: path.into(), running: HashMap::new() };
    let running = std::thread::Builder::new().name("node".into()).spawn(move || node.run());
    let running = running.map_err(|cause| Error::system("start the node", cause))?;
    loop {
        let fds = [signals.fd.as_fd(), bell.as_fd()];
        let _ = poll(&mut fds.map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN)), None);
        let _ = rustix::io::read(&*bell, &mut [0u8; 8]);
        for log in std::mem::take(&mut *logs.lock().unwrap_or_else(PoisonError::into_inner)) {
            mirrors.begin(&log, &signals);
        }
        let is_end = |signal| matches!(signal, libc::SIGTERM | libc::SIGINT | libc::SIGQUIT);
        if std::iter::from_fn(|| signals.next()).any(|arrived| is_end(arrived.signal)) {
            break;
        }
    }
    stop.stop();
    let _ = running.join();
    mirrors.end();
    Ok(0)
}

fn bell() -> Result<Arc<OwnedFd>, Error> {
    let made = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK);
    made.map(Arc::new).map_err(|cause| Error::system("make an eventfd", cause))
}

/// The processes that run what is kept, by the copies' files.
struct Mirrors {
    standby: Standby,
    /// The file that says so.
    config: PathBuf,
    running: HashMap<PathBuf, Child>,
}

impl Mirrors {
    /// Has a process run this log, if none does. By the thread that stays to the end: they end with it.
    fn begin(&mut self, log: &Log, signals: &Signals) {
        self.running.retain(|_, child| matches!(child.try_wait(), Ok(None)));
        if self.running.contains_key(&log.file) {
            return;
        }
        let start = || {
            let shown = log.file.with_extension("out");
            let shown = File::options().append(true).create(true).mode(0o600).open(shown)?;
            let mut command = Command::new(std::env::current_exe()?);
            command.arg("mirror").arg(&log.file).args(["--group", &log.group, "--leader", &log.leader]);
            for volume in &self.standby.volumes {
                command.arg("--volume").arg(volume);
            }
            if let Some(lease) = self.standby.lease_ms {
                command.arg("--lease").arg(lease.to_string());
            }
            if let Some(after) = self.standby.image_after_ms.filter(|after| *after > 0) {
                command.arg("--image-after").arg(after.to_string());
            }
            // What another mirror has asked for it has not been given.
            let _ = std::fs::remove_file(log.file.with_extension(node::WANTED));
            if !self.standby.cluster.is_empty() {
                let commit = match self.standby.commit.unwrap_or(log.commit) {
                    Commit::Disk => "disk",
                    Commit::Memory => "memory",
                };
                command.arg("--cluster").arg(self.standby.cluster.join(",")).args(["--commit", commit]);
                command.arg("--cluster-config").arg(&self.config);
            }
            command.stdin(Stdio::null()).stdout(shown);
            spawn::with_mask(&mut command, signals).spawn()
        };
        match start() {
            Ok(child) => _ = self.running.insert(log.file.clone(), child),
            Err(cause) => terminal::say(&format!("{} is kept, and not followed: {cause}", log.group)),
        }
    }

    /// Ends those that still follow. What has taken over is a program, and stays.
    fn end(self) {
        let is_taken = |file: &PathBuf| fence(file).exists();
        for (_, mut child) in self.running.into_iter().filter(|(file, _)| !is_taken(file)) {
            spawn::signal(child.id(), libc::SIGTERM);
            let _ = child.wait();
        }
    }
}
