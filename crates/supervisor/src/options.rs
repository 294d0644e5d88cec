//! What `understudy run` was asked for.

use std::ffi::OsString;
use std::path::PathBuf;

use rustix::io::Errno;
use rustix::thread::CpuSet;
use us_abi::{
    CONFIG_ATOMICS, CONFIG_AUTO, CONFIG_COMPUTED, CONFIG_HUGE, CONFIG_PARALLEL, CONFIG_PINNED, CONFIG_SERIAL,
    Config,
};
/// `--lead`, if it is not given, microseconds.
pub use us_order::pace::LEAD_US;

/// How much Understudy itself says on stderr.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Verbosity {
    /// Only what stops a run.
    Quiet,
    /// Problems, and what a person at the terminal wants to know: a failover, protection lost.
    Normal,
    /// Every lifecycle event.
    Verbose,
}

/// Two CPU lists: where the primary's threads and where the standby's may run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CpuPair {
    /// Affinity mask of the primary.
    pub primary: [u64; 16],
    /// Affinity mask of the standby.
    pub standby: [u64; 16],
}

/// `--cluster`, `--commit` and `--cluster-config`.
#[derive(Clone, Debug)]
pub struct Cluster {
    /// Names of machines.
    pub nodes: Vec<String>,
    /// Whether an entry is committed only once it is on the other machine's disk.
    pub on_disk: bool,
    /// This machine's configuration.
    pub config: PathBuf,
    /// `--address` and `--relaxed`.
    pub gate: Option<GateOrder>,
}

/// `--address` and `--relaxed`.
#[derive(Clone, Debug)]
pub struct GateOrder {
    /// The address at which the program serves.
    pub address: gate::Address,
    /// Nothing is held back.
    pub is_relaxed: bool,
}

/// The options of one run.
#[derive(Clone, Debug)]
pub struct Options {
    /// `--name`, or `None` to derive one from the program.
    pub name: Option<String>,
    /// `--standbys`: 0 to 3.
    pub standbys: u32,
    /// `--order`.
    pub order: String,
    /// `--seed`: what random numbers follow from.
    pub seed: Option<u64>,
    /// `--atomics`: with an order of `schedule`, the program's own atomic instructions are ordered.
    pub atomics: bool,
    /// `--lag-timeout`, milliseconds.
    pub lag_timeout_ms: u32,
    /// `--lead`, microseconds.
    pub lead_us: u32,
    /// `--lag-limit`, bytes.
    pub lag_limit: u64,
    /// `--verify`: 0 off, 1 fast, 2 full.
    pub verify: u32,
    /// `--huge-pages`.
    pub huge_pages: bool,
    /// `--cpus`.
    pub cpus: Option<CpuPair>,
    /// Make a new standby where one is gone; not so with `--no-reprotect`.
    pub reprotect: bool,
    /// `--require-protection`: where nothing can be protected, nothing is run.
    pub is_required: bool,
    /// `--probe`.
    pub probe: Option<crate::probe::Order>,
    /// `--record`: the file.
    pub record: Option<PathBuf>,
    /// `--cluster`: the machines that keep the recording as well.
    pub cluster: Option<Cluster>,
    /// `--events`: a file, or `-` for stderr.
    pub events: Option<PathBuf>,
    /// `-q`, `-v`.
    pub verbosity: Verbosity,
    /// PROGRAM and its arguments, as typed. Never empty.
    pub command: Vec<OsString>,
}

/// What holds on another machine as well: its name in the log, its figure, and how it is put back.
type Asked = (&'static str, fn(&Options) -> u64, fn(&mut Options, u64));

/// See [`Options::asked`].
const ASKED: [Asked; 8] = [
    ("standbys", |of| of.standbys.into(), |of, figure| of.standbys = small(figure)),
    (
        "schedule",
        |of| u64::from(of.order == "schedule"),
        |of, figure| {
            if figure != 0 {
                of.order = "schedule".into();
            }
        },
    ),
    ("lag-timeout", |of| of.lag_timeout_ms.into(), |of, figure| of.lag_timeout_ms = small(figure)),
    ("lead", |of| of.lead_us.into(), |of, figure| of.lead_us = small(figure)),
    ("lag-limit", |of| of.lag_limit, |of, figure| of.lag_limit = figure),
    ("verify", |of| of.verify.into(), |of, figure| of.verify = small(figure)),
    ("huge-pages", |of| of.huge_pages.into(), |of, figure| of.huge_pages = figure != 0),
    ("reprotect", |of| of.reprotect.into(), |of, figure| of.reprotect = figure != 0),
];

fn small(figure: u64) -> u32 {
    u32::try_from(figure).unwrap_or(u32::MAX)
}

impl Options {
    /// Of a program of which nothing is asked: a standby that is made again, order `auto`, quick comparisons.
    pub fn of(command: Vec<OsString>) -> Options {
        Options {
            name: None,
            standbys: 1,
            order: "auto".into(),
            seed: None,
            atomics: false,
            lag_timeout_ms: 1000,
            lead_us: LEAD_US,
            lag_limit: us_abi::RING_BYTES as u64,
            verify: 1,
            huge_pages: false,
            cpus: None,
            reprotect: true,
            is_required: false,
            probe: None,
            record: None,
            cluster: None,
            events: None,
            verbosity: Verbosity::Normal,
            command,
        }
    }

    /// What holds on another machine that takes over as well, for the log. Not what is a machine's own: processors, files, ports, who
    /// is sent the log. Nothing of a program that `record` runs: where it takes over it has a standby.
    pub fn asked(&self) -> Vec<(String, u64)> {
        let is_run = self.record.is_some();
        let all = ASKED.iter().filter(|_| is_run);
        all.map(|(name, figure, _)| ((*name).into(), figure(self))).collect()
    }

    /// As another machine was asked. A name that this version does not know says nothing to it.
    pub fn keep(&mut self, asked: &[(String, u64)]) {
        for (name, figure) in asked {
            if let Some((_, _, put)) = ASKED.iter().find(|(known, _, _)| known == name) {
                put(self, *figure);
            }
        }
    }

    /// What the segments of the group say, with these further flags.
    pub fn config(&self, flags: u32) -> Config {
        let pair = self.cpus.as_ref();
        Config {
            lag_timeout_ms: self.lag_timeout_ms,
            lag_limit: self.lag_limit,
            lead_us: self.lead_us,
            pad: 0,
            standbys: self.standbys,
            verify: self.verify,
            flags: flags
                | match self.order.as_str() {
                    "serial" => CONFIG_SERIAL | CONFIG_COMPUTED,
                    "deterministic" => CONFIG_SERIAL | CONFIG_COMPUTED | CONFIG_PARALLEL,
                    "auto" => CONFIG_AUTO,
                    "schedule" if self.atomics => CONFIG_ATOMICS,
                    _ => 0,
                }
                | if pair.is_some() { CONFIG_PINNED } else { 0 }
                | if self.huge_pages { CONFIG_HUGE } else { 0 },
            primary_cpus: pair.map_or([0; 16], |pair| pair.primary),
            standby_cpus: pair.map_or([0; 16], |pair| pair.standby),
        }
    }
}

/// Why `name` cannot be a group's name, if it cannot.
pub fn check_name(name: &str) -> Result<(), String> {
    let legal = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '.' | '-');
    if name.is_empty() || name.len() > 64 || !name.chars().all(legal) {
        return Err("a group's name is 1 to 64 characters of A-Z a-z 0-9 _ . -".into());
    }
    // The name is a folder's name, and these two already mean something.
    if name == "." || name == ".." {
        return Err(format!("{name:?} cannot be a group's name"));
    }
    Ok(())
}

/// The name that a group gets from its program's path when none was asked for.
pub fn default_name(program: &OsString) -> String {
    let file = std::path::Path::new(program).file_name().unwrap_or_default().to_string_lossy();
    let legal = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '.' | '-');
    // 56 leaves room for "-" and a number.
    let name: String = file.chars().map(|c| if legal(c) { c } else { '_' }).take(56).collect();
    if check_name(&name).is_ok() { name } else { "program".into() }
}

/// The CPU pair of `--cpus PRIMARY:STANDBY`, each a list like `0-3,8`.
pub fn parse_cpus(text: &str) -> Result<CpuPair, String> {
    let (primary, standby) =
        text.split_once(':').ok_or("no colon is in it; PRIMARY:STANDBY is meant, as in 0-3:4-7")?;
    Ok(CpuPair { primary: parse_cpu_list(primary)?, standby: parse_cpu_list(standby)? })
}

/// Whether each copy can be pinned where `--cpus` says: to one at least of its CPUs, as the kernel has it. It is tried, with
/// the calling thread: those that this one is pinned to now say nothing of where a copy may be.
///
/// # Errors
/// Which list names none that this process may use. `Ok` names those that are passed over, if there are any.
pub fn check_cpus(pair: &CpuPair) -> Result<Option<String>, String> {
    let Ok(mine) = rustix::thread::sched_getaffinity(None) else { return Ok(None) };
    let can_pin = |mask: &[u64; 16]| {
        let mut set = CpuSet::new();
        (0..CpuSet::MAX_CPU.min(1024))
            .filter(|cpu| mask[cpu / 64] & 1 << (cpu % 64) != 0)
            .for_each(|cpu| set.set(cpu));
        rustix::thread::sched_setaffinity(None, &set) != Err(Errno::INVAL)
    };
    let bad =
        [("PRIMARY", &pair.primary), ("STANDBY", &pair.standby)].into_iter().find(|(_, mask)| !can_pin(mask));
    let usable = can_pin(&[u64::MAX; 16]).then(|| rustix::thread::sched_getaffinity(None).ok()).flatten();
    // Where this fails all is as it was: nothing above has succeeded then.
    let _ = rustix::thread::sched_setaffinity(None, &mine);
    let usable = usable.unwrap_or(mine);
    let known: Vec<String> = (0..1024).filter(|cpu| usable.is_set(*cpu)).map(|cpu| cpu.to_string()).collect();
    let known = known.join(",");
    match bad {
        None => {
            let is_named =
                |cpu: usize| (pair.primary[cpu / 64] | pair.standby[cpu / 64]) & 1 << (cpu % 64) != 0;
            let missing = (0..1024).find(|cpu| is_named(*cpu) && !usable.is_set(*cpu));
            Ok(missing.map(|cpu| format!("there is no processor {cpu} to use here, only {known}")))
        }
        Some((whose, mask)) => {
            let first = (0..1024).find(|cpu| mask[cpu / 64] & 1 << (cpu % 64) != 0).unwrap_or(0);
            Err(format!("{whose}: there is no processor {first} to use here, only {known}"))
        }
    }
}

fn parse_cpu_list(text: &str) -> Result<[u64; 16], String> {
    let bad = || format!("{text:?} is not a list of CPUs (0 to 1023), as in 0-3,8");
    let mut mask = [0u64; 16];
    for part in text.split(',') {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let first: usize = first.parse().map_err(|_| bad())?;
        let last: usize = last.parse().map_err(|_| bad())?;
        if first > last || last >= 1024 {
            return Err(bad());
        }
        (first..=last).for_each(|cpu| mask[cpu / 64] |= 1 << (cpu % 64));
    }
    Ok(mask)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_asked_for_is_kept() {
        let program = || vec!["true".into()];
        let asked = Options {
            standbys: 3,
            order: "schedule".into(),
            lag_timeout_ms: 17,
            lead_us: 9000,
            lag_limit: 1 << 21,
            verify: 2,
            huge_pages: true,
            reprotect: false,
            record: Some("log".into()),
            ..Options::of(program())
        };
        let mut kept = Options::of(program());
        kept.keep(&asked.asked());
        kept.record.clone_from(&asked.record);
        assert_eq!(kept.asked(), asked.asked());
        let (word, other) = (format!("{:?}", kept.config(0)), format!("{:?}", asked.config(0)));
        assert_eq!(word, other);
        assert!(Options { record: None, ..asked }.asked().is_empty(), "of one that `record` runs");
    }

    #[test]
    fn names() {
        for good in ["a", "redis-server", "A_b.c-9", &"x".repeat(64)] {
            assert!(check_name(good).is_ok(), "{good}");
        }
        for bad in ["", ".", "..", "a/b", "a b", "ä", &"x".repeat(65)] {
            assert!(check_name(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn default_names_are_always_legal() {
        for path in ["/usr/bin/redis-server", "..", "/", "a b", "ünï", &"x".repeat(300), "/opt/x+y"] {
            assert!(check_name(&default_name(&path.into())).is_ok(), "{path}");
        }
        assert_eq!(default_name(&"/usr/bin/redis-server".into()), "redis-server");
    }

    #[test]
    fn cpu_lists() {
        let pair = parse_cpus("0-3,8:64").unwrap();
        assert_eq!((pair.primary[0], pair.standby[1]), (0x10f, 1));
        for bad in ["", "0", "a:b", "3-1:0", "0:1024", "0-:1", "0,:1"] {
            assert!(parse_cpus(bad).is_err(), "{bad}");
        }
    }
}
