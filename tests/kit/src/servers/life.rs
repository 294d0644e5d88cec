//! One group that lives through many kills: who is killed when, and what it cost.

use std::collections::BTreeMap;
use std::fmt;
use std::fs;
use std::ops::Range;
use std::path::Path;
use std::str::FromStr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, bail, ensure};
use serde_json::Value;

use crate::rng::Rng;
use crate::strike::{Pair, Target, Tracker, status};

/// From one kill to the next, `MIN..MAX` milliseconds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Every(pub Range<u64>);

impl FromStr for Every {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> Result<Self> {
        let (min, max) = text.split_once("..").context("write MIN..MAX, in milliseconds")?;
        let every = min.trim().parse()?..max.trim().parse()?;
        ensure!(every.start < every.end, "MIN must be below MAX");
        Ok(Self(every))
    }
}

impl fmt::Display for Every {
    fn fmt(&self, out: &mut fmt::Formatter) -> fmt::Result {
        write!(out, "{}..{}", self.0.start, self.0.end)
    }
}

/// What clients are to do: so many requests, or requests until they are told that it is enough.
pub struct Load {
    requests: u64,
    endless: bool,
    done: AtomicU64,
    enough: AtomicBool,
}

impl Load {
    /// `requests` for each client, or, if `endless`, until [`Load::stop`].
    pub fn new(requests: u64, endless: bool) -> Self {
        Self { requests, endless, done: AtomicU64::new(0), enough: AtomicBool::new(false) }
    }

    /// Whether a client that has made `made` requests makes another.
    pub fn goes_on(&self, made: u64) -> bool {
        !self.enough.load(Ordering::Acquire) && (self.endless || made < self.requests)
    }

    /// One request has been answered.
    pub fn answered(&self) {
        self.done.fetch_add(1, Ordering::Relaxed);
    }

    /// Requests that have been answered.
    pub fn done(&self) -> u64 {
        self.done.load(Ordering::Relaxed)
    }

    /// It is enough.
    pub fn stop(&self) {
        self.enough.store(true, Ordering::Release);
    }
}

/// Who is to be killed, how often.
pub struct Life<'a> {
    /// The events file of the run.
    pub events: &'a Path,
    /// For `status`.
    pub understudy: &'a Path,
    /// The group's name.
    pub group: &'a str,
    /// How often.
    pub kills: usize,
    /// How long after the last time.
    pub every: &'a Every,
    /// How many processes are protected when all is well. They are killed in turn.
    pub processes: usize,
    /// The longest wait for a new standby.
    pub limit: Duration,
}

impl Life<'_> {
    /// Kills the current primary again and again, each time only once there is a standby; `between` is called once
    /// all are protected again after a kill, with its number. Says what it cost.
    pub fn go_through(
        &self,
        seed: u64,
        load: &Load,
        between: impl Fn(usize) -> Result<()>,
    ) -> Result<String> {
        let mut rng = Rng::new(seed, "life");
        let mut tracker = Tracker::new(self.events, self.understudy, self.group);
        // The last primary killed of each process. Not all of them: over a long life the numbers of processes come again, and a
        // new primary would be waited for that has long been there.
        let mut killed = BTreeMap::new();
        let mut before = Weight::of(&self.wait_and_ask(&mut tracker, &killed, load)?);
        let mut last = Instant::now();
        for n in 0..self.kills {
            let gap = Duration::from_micros(
                self.every.0.start * 1000 + rng.below((self.every.0.end - self.every.0.start) * 1000),
            );
            thread::sleep((last + gap).saturating_duration_since(Instant::now()));
            // Killed in the very moment in which the group is seen to be protected, if that comes later.
            let found = self.wait(&mut tracker, &killed, load).with_context(|| format!("after kill {n}"))?;
            if n == 0 {
                // The last copy is weighed under load, and so is the first.
                before = Weight::of(&self.wait_and_ask(&mut tracker, &killed, load)?);
            }
            let (process, pair) = found[n % found.len()];
            let pid = tracker.kill(process, Target::Primary);
            ensure!(pid.is_some(), "kill {n}: the primary, pid {}, was gone before it", pair.primary);
            last = Instant::now();
            killed.insert(process, pair.primary);
            self.wait(&mut tracker, &killed, load).with_context(|| format!("after kill {}", n + 1))?;
            between(n)?;
        }
        let end = self.wait_and_ask(&mut tracker, &killed, load)?;
        let epoch = end["epoch"].as_u64();
        ensure!(epoch == Some(self.kills as u64), "epoch {epoch:?} after {} kills", self.kills);
        Ok(format!("{}; {}", costs(&end), before.against(&Weight::of(&end))))
    }

    /// Waits until all processes have two copies, none of them killed.
    fn wait(
        &self,
        tracker: &mut Tracker,
        killed: &BTreeMap<u32, u32>,
        load: &Load,
    ) -> Result<Vec<(u32, Pair)>> {
        let until = Instant::now() + self.limit;
        loop {
            let mut found = tracker.protected();
            found.retain(|(process, pair)| killed.get(process) != Some(&pair.primary));
            if found.len() >= self.processes {
                return Ok(found);
            }
            ensure!(load.goes_on(0), "the client has given up");
            if Instant::now() > until {
                let states = status(self.understudy, self.group).map(|group| states(&group));
                bail!("no standby for {:?}: {}", self.limit, states.unwrap_or_default());
            }
            thread::sleep(Duration::from_millis(1));
        }
    }

    /// The same: the group's status then.
    fn wait_and_ask(&self, tracker: &mut Tracker, killed: &BTreeMap<u32, u32>, load: &Load) -> Result<Value> {
        self.wait(tracker, killed, load)?;
        status(self.understudy, self.group).ok_or_else(|| anyhow!("status does not answer"))
    }
}

/// What is said of each process, for example `4711 unprotected "it has just been made"`.
fn states(group: &Value) -> String {
    let processes = group["processes"].as_array().map(Vec::as_slice).unwrap_or_default();
    let state = |process: &Value| {
        // Older ones say it of the group only.
        let of = if process["state"].is_null() { group } else { process };
        format!("{} {} {}", process["guest_pid"], of["state"].as_str().unwrap_or_default(), of["why"])
    };
    processes.iter().map(state).collect::<Vec<_>>().join(", ")
}

/// Blackouts and pauses of a group's life, from its status.
fn costs(group: &Value) -> String {
    let of = |list: &str, field: &str| {
        let entries = group[list].as_array().map(Vec::as_slice).unwrap_or_default();
        let mut us: Vec<u64> = entries.iter().filter_map(|entry| entry[field].as_u64()).collect();
        us.sort_unstable();
        let at = |share: f64| us.get(((us.len() as f64 * share) as usize).min(us.len().saturating_sub(1)));
        let ms =
            |us: Option<&u64>| us.map_or("none".to_owned(), |us| format!("{:.1} ms", *us as f64 / 1000.0));
        format!("median {}, p99 {}, longest {}", ms(at(0.5)), ms(at(0.99)), ms(us.last()))
    };
    let sum = |field: &str| {
        let entries = group["failovers"].as_array().map(Vec::as_slice).unwrap_or_default();
        entries.iter().filter_map(|entry| entry[field].as_u64()).sum::<u64>()
    };
    format!(
        "blackout {}; pause {}; gap {}; {} in doubt, {} unsettled, {} attempts failed",
        of("failovers", "blackout_us"),
        of("reclones", "pause_us"),
        of("reclones", "gap_us"),
        sum("in_doubt"),
        sum("unsettled"),
        group["reclones_failed"],
    )
}

/// What a group weighs.
struct Weight {
    primary_rss: u64,
    supervisor: (u64, usize, usize),
}

impl Weight {
    fn of(group: &Value) -> Self {
        let primary_rss = group.pointer("/processes/0/primary/rss_bytes").and_then(Value::as_u64);
        let pid = group["supervisor_pid"].as_u64().unwrap_or(0);
        let statm = fs::read_to_string(format!("/proc/{pid}/statm")).unwrap_or_default();
        let pages: u64 = statm.split(' ').nth(1).and_then(|pages| pages.parse().ok()).unwrap_or(0);
        let count = |what: &str| fs::read_dir(format!("/proc/{pid}/{what}")).map_or(0, Iterator::count);
        Self { primary_rss: primary_rss.unwrap_or(0), supervisor: (pages * 4, count("fd"), count("task")) }
    }

    fn against(&self, end: &Self) -> String {
        let mib = |bytes: u64| bytes as f64 / f64::from(1 << 20);
        let (kib, files, threads) = self.supervisor;
        let (end_kib, end_files, end_threads) = end.supervisor;
        format!(
            "primary {:.1} MiB, {:.2} times the first copy's {:.1} before its end; supervisor {end_kib} KiB, {end_files} files, {end_threads} threads, at \
             first {kib}, {files}, {threads}",
            mib(end.primary_rss),
            end.primary_rss as f64 / self.primary_rss.max(1) as f64,
            mib(self.primary_rss),
        )
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::{Every, costs};

    #[test]
    fn every_is_a_range() {
        assert_eq!("100..400".parse::<Every>().expect("valid").to_string(), "100..400");
        assert!("400..100".parse::<Every>().is_err() && "100".parse::<Every>().is_err());
    }

    #[test]
    fn costs_are_sorted() {
        let group = json!({
            "failovers": [{ "blackout_us": 9000, "in_doubt": 1 }, { "blackout_us": 1000, "in_doubt": 2 }],
            "reclones": [{ "pause_us": 1500, "gap_us": 1 }], "reclones_failed": 0,
        });
        let words = costs(&group);
        assert!(
            words.starts_with("blackout median 9.0 ms, p99 9.0 ms, longest 9.0 ms; pause median 1.5 ms"),
            "{words}"
        );
        assert!(words.contains("3 in doubt"), "{words}");
    }
}
