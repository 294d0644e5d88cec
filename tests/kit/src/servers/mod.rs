//! Real servers: clients that can tell a lost, repeated or reset answer, and one kill in the middle, or many.

pub mod apache;
pub mod batch;
pub mod both;
pub mod client;
pub mod echo;
pub mod haproxy;
pub mod http;
pub mod life;
pub mod memcached;
pub mod mosquitto;
pub mod nginx;
pub mod pbzip2;
pub mod postgres;
pub mod python;
pub mod recorded;
pub mod redis;
pub mod session;
pub mod shell;
pub mod signals;
pub mod stop;
pub mod threads16;

use std::path::PathBuf;
use std::time::Duration;

use anyhow::Result;

use crate::place::{Place, PlaceOptions, installed, own_path};
use crate::report::Report;

/// Flags that all server commands share.
#[derive(Clone, Debug, clap::Args)]
pub struct Options {
    #[command(flatten)]
    place: PlaceOptions,
    /// Runs; each starts a fresh server and kills its primary once
    #[arg(long, default_value_t = 1)]
    runs: u64,
    /// The first run's seed; the next runs use the numbers after it
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Without Understudy and without a kill: proves the client
    #[arg(long)]
    native: bool,
    /// Under protection, but without a kill
    #[arg(long, conflicts_with = "native")]
    no_kill: bool,
    /// Recorded instead of protected, replayed, and replayed again with the recording changed
    #[arg(long, conflicts_with_all = ["native", "no_kill", "kills"])]
    record: bool,
    /// With --record: one thread at a time, for a server that races
    #[arg(long, requires = "record")]
    serial: bool,
    /// Kills of one group's current primary, one after the other; more than one: requests go on until all are done
    #[arg(long, value_name = "N", default_value_t = 1)]
    kills: usize,
    /// Milliseconds from one of many kills to the next; but none before there is a standby again
    #[arg(long, value_name = "MIN..MAX", default_value = "100..400")]
    every: life::Every,
    /// Standbys of the server
    #[arg(long, value_name = "N", default_value_t = 1)]
    standbys: u32,
    /// Requests of one connection in one run (for pbzip2: KiB of input)
    #[arg(long, default_value_t = 6000)]
    requests: u64,
    /// Seconds that one run may take; also the longest silence that a client accepts
    #[arg(long, value_name = "S", default_value_t = 60)]
    timeout: u64,
}

impl Options {
    fn life(&self) -> Option<(usize, life::Every)> {
        let many = self.kills > 1 && !self.native && !self.no_kill;
        many.then(|| (self.kills, self.every.clone()))
    }
}

/// What one run needs to know.
pub struct Run<'a> {
    /// Folders.
    pub place: &'a Place,
    /// The binary; `None` in native runs.
    pub understudy: Option<PathBuf>,
    /// Whether the primary is killed.
    pub kill: bool,
    /// How many kills, and how often, if there is more than one.
    pub life: Option<(usize, life::Every)>,
    /// It is recorded instead; `Some(true)` for one thread at a time.
    pub record: Option<bool>,
    /// Standbys of the program.
    pub standbys: u32,
    /// The seed of this run.
    pub seed: u64,
    /// Requests of one connection.
    pub requests: u64,
    /// The limit of the run.
    pub limit: Duration,
}

/// A failed run: why, and the folder to keep.
pub struct Failure {
    /// In words.
    pub why: String,
    /// The run's folder, if it came to exist.
    pub dir: Option<PathBuf>,
}

impl From<anyhow::Error> for Failure {
    fn from(error: anyhow::Error) -> Self {
        Self { why: format!("{error:#}"), dir: None }
    }
}

/// What one good run showed.
pub struct Outcome {
    /// In words.
    pub detail: String,
    /// The longest wait of any client for an answer, where there are clients.
    pub longest: Option<Duration>,
}

/// The name of a command and the flags of its own, for the command that repeats a failure.
pub struct Title<'a> {
    /// `echo`, `redis`, …
    pub name: &'a str,
    /// For example ` --shape epoll`.
    pub flags: String,
}

/// Runs `one` for every seed and reports; `program` is looked up on the PATH unless it is empty.
fn campaign(
    options: &Options,
    title: &Title,
    program: &str,
    prepare: impl FnOnce(&Place) -> Result<()>,
    one: impl Fn(&Run) -> Result<Outcome, Failure>,
) -> Result<bool> {
    let place = options.place.place()?;
    let report = Report::default();
    let mut waits = Vec::new();
    let understudy = if options.native { Ok(None) } else { options.place.understudy(&place).map(Some) };
    let available = match program {
        "" => Ok(()),
        _ => installed(program).map(|_| ()).ok_or_else(|| format!("{program} is not installed")),
    };
    match available.and(understudy) {
        Err(why) => report.skip(title.name, &why),
        Ok(understudy) => {
            prepare(&place)?;
            for seed in options.seed..options.seed + options.runs {
                let run = Run {
                    place: &place,
                    understudy: understudy.clone(),
                    kill: !options.native && !options.no_kill && !options.record,
                    record: options.record.then_some(options.serial),
                    life: options.life(),
                    standbys: options.standbys,
                    seed,
                    requests: options.requests,
                    limit: Duration::from_secs(options.timeout),
                };
                let what = format!("{} seed {seed}", title.name);
                match one(&run) {
                    Ok(outcome) => {
                        waits.extend(outcome.longest);
                        for _ in 0..run.life.as_ref().map_or(usize::from(run.kill), |(kills, _)| *kills) {
                            report.kill(true);
                        }
                        report.pass(&what, &outcome.detail);
                    }
                    Err(failure) => report_failure(options, &place, &report, title, seed, failure)?,
                }
            }
        }
    }
    waits.sort();
    if let (Some(longest), Some(median)) = (waits.last(), waits.get(waits.len() / 2)) {
        println!("longest wait for an answer: {longest:.1?}; median of the runs' longest: {median:.1?}");
    }
    Ok(report.finish(0))
}

fn report_failure(
    options: &Options,
    place: &Place,
    report: &Report,
    title: &Title,
    seed: u64,
    failure: Failure,
) -> Result<()> {
    let label = format!("{}-{seed}", title.name);
    let kept = match failure.dir {
        Some(dir) if dir.exists() => place.keep(&dir, &label)?.display().to_string(),
        _ => String::new(),
    };
    let mut repeat = format!("{} {} --seed {seed} --requests {}", own_path(), title.name, options.requests);
    repeat += &title.flags;
    repeat += &options.place.repeat();
    if options.kills > 1 {
        repeat += &format!(" --kills {} --every {}", options.kills, options.every);
    }
    if options.standbys != 1 {
        repeat += &format!(" --standbys {}", options.standbys);
    }
    for (set, flag) in [
        (options.native, " --native"),
        (options.no_kill, " --no-kill"),
        (options.record, " --record"),
        (options.serial, " --serial"),
    ] {
        if set {
            repeat += flag;
        }
    }
    report.fail(&format!("{} seed {seed}", title.name), &failure.why, &kept, &repeat);
    Ok(())
}
