//! `kit foreign`: programs that nobody here wrote, each natively, with the runtime alone and with a standby. The bytes
//! of stdout and the status must be the same, but for what the table `tests/foreign/expected` says, with a reason.

mod kills;
mod list;

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::fs;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus};
use std::sync::Mutex;
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result};

use crate::events;
use crate::judge::{difference, judge_folder};
use crate::place::{Place, PlaceOptions, own_path};
use crate::process::{Ended, Launch, Sink};
use crate::report::Report;
use crate::trial::group_name;
use list::{Known, Task, Way};

/// Flags of `kit foreign`.
#[derive(Clone, Debug, clap::Args)]
pub struct Options {
    #[command(flatten)]
    place: PlaceOptions,
    /// The list of programs [default: tests/foreign/programs of the source tree]
    #[arg(long, value_name = "FILE")]
    list: Option<PathBuf>,
    /// Each line of a program's stdout is a case of its own, in any order, and compared by itself
    #[arg(long)]
    suites: bool,
    /// Only programs whose name contains this; a full name selects that one alone
    #[arg(long, value_name = "SUBSTR")]
    only: Option<String>,
    /// Programs run at a time
    #[arg(long, default_value_t = 1)]
    jobs: usize,
    /// Seconds that one run may take
    #[arg(long, value_name = "S", default_value_t = 60)]
    timeout: u64,
    /// Natively only, twice: proves that the lists' outputs are the same in every run
    #[arg(long)]
    native: bool,
    /// With a standby, and so many primaries of each program killed
    #[arg(long, value_name = "N", default_value_t = 0, conflicts_with_all = ["native", "inside", "suites"])]
    kills: usize,
    /// First seed of the kills
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// The root of another system, made by tests/foreign/rootfs.sh, in which everything is run (as root); the understudy
    /// binary is a path in it
    #[arg(long, value_name = "DIR")]
    inside: Option<PathBuf>,
    /// Print the packages of the list, and stop
    #[arg(long)]
    packages: bool,
}

/// What is tried again after a difference, to tell a race from a rule.
const AGAIN: u32 = 2;

/// Lines of a suite's differences that are shown.
const SHOWN: usize = 12;

/// What programs see of the machine's settings: nothing.
const ENVIRONMENT: [&str; 5] = [
    "PATH=/usr/sbin:/usr/bin:/sbin:/bin",
    "LC_ALL=C.UTF-8",
    "TZ=UTC",
    "TERM=dumb",
    "SOURCE_DATE_EPOCH=1000000000",
];

/// Runs the command. True if nothing failed.
pub fn run(options: &Options) -> Result<bool> {
    let place = options.place.place()?;
    let folder = place.root.join("tests/foreign");
    let all = list::tasks(&options.list.clone().unwrap_or_else(|| folder.join("programs")))?;
    let exact = all.iter().any(|task| Some(&task.name) == options.only.as_ref());
    let wanted = |task: &&Task| match &options.only {
        Some(name) if exact => task.name == *name,
        Some(part) => task.name.contains(part.as_str()),
        None => true,
    };
    let tasks: Vec<&Task> = all.iter().filter(wanted).collect();
    if options.packages {
        let packages: BTreeSet<&str> =
            tasks.iter().flat_map(|task| &task.packages).map(String::as_str).collect();
        packages.iter().for_each(|package| println!("{package}"));
        return Ok(true);
    }
    anyhow::ensure!(!tasks.is_empty(), "no program is named like {:?}", options.only);
    let understudy = match (&options.inside, &options.place.understudy) {
        (Some(_), Some(path)) => path.clone(),
        (Some(_), None) => anyhow::bail!("--inside needs --understudy, a path inside"),
        (None, _) if options.native => PathBuf::new(),
        (None, _) => options.place.understudy(&place).map_err(anyhow::Error::msg)?,
    };
    let session = Session {
        options,
        place: &place,
        understudy,
        known: list::known(&folder.join("expected"))?,
        installed: installed(options.inside.as_deref())?,
        report: Report::default(),
        told: Mutex::default(),
    };
    let queue = Mutex::new(tasks.iter());
    thread::scope(|scope| {
        for _ in 0..options.jobs.max(1) {
            scope.spawn(|| {
                loop {
                    let next = queue.lock().expect("no panic under this lock").next();
                    let Some(task) = next else { return };
                    if let Err(error) = session.one(task) {
                        session.report.fail(&task.name, &format!("{error:#}"), "", &session.repeat(task));
                    }
                }
            });
        }
    });
    session.summary();
    Ok(session.report.finish(0))
}

/// Names of the packages that are installed.
fn installed(inside: Option<&Path>) -> Result<BTreeSet<String>> {
    let mut command = Command::new("dpkg-query");
    if let Some(root) = inside {
        command.arg(format!("--admindir={}", root.join("var/lib/dpkg").display()));
    }
    let output = command
        .args(["-W", "-f", "${db:Status-Status} ${Package}\n"])
        .output()
        .context("asking dpkg-query for the installed packages")?;
    let text = String::from_utf8_lossy(&output.stdout);
    Ok(text.lines().filter_map(|line| line.strip_prefix("installed ")).map(str::to_owned).collect())
}

/// What was seen, for the last lines.
#[derive(Default)]
struct Told {
    /// Time that all programs took, each way.
    time: BTreeMap<&'static str, Duration>,
    /// How often each lifecycle event was told.
    events: BTreeMap<String, usize>,
}

struct Session<'a> {
    options: &'a Options,
    place: &'a Place,
    understudy: PathBuf,
    known: Vec<Known>,
    installed: BTreeSet<String>,
    report: Report,
    told: Mutex<Told>,
}

/// What a run showed.
struct Seen {
    code: Option<i32>,
    ended: Ended,
    dir: PathBuf,
    /// What only understudy can leave.
    remains: Option<String>,
}

impl Session<'_> {
    /// One program, each way.
    fn one(&self, task: &Task) -> Result<()> {
        let missing: Vec<&str> =
            task.packages.iter().map(String::as_str).filter(|name| !self.installed.contains(*name)).collect();
        if !missing.is_empty() {
            self.report.skip(&task.name, &format!("not installed: {}", missing.join(" ")));
            return Ok(());
        }
        if self.options.kills != 0 {
            return self.killed(task);
        }
        let native = self.start(task, Way::Native)?;
        if native.code.is_none() {
            self.fail(task, "native", "does not end natively", &native)?;
            return Ok(());
        }
        let mut times = format!("native {:.1?}", native.ended.elapsed);
        let mut failed = false;
        let ways: &[Way] = if self.options.native { &[Way::Native] } else { &[Way::Bare, Way::Protected] };
        for way in ways {
            let seen = self.start(task, *way)?;
            times += &format!(", {} {:.1?}", way.name(), seen.ended.elapsed);
            failed |= !self.compare(task, *way, &native, seen)?;
        }
        fs::remove_dir_all(&native.dir)?;
        if !failed {
            self.report.pass(&task.name, &times);
        }
        Ok(())
    }

    /// Compares one run with the native one, and runs it again if it differs. True if all is as it is said to be.
    fn compare(&self, task: &Task, way: Way, native: &Seen, seen: Seen) -> Result<bool> {
        let mut wrong = self.differences(task, native, &seen);
        let mut words = String::new();
        if !wrong.is_empty() && way != Way::Native {
            let (mut differed, mut natively) = (1, 0);
            for _ in 0..AGAIN {
                let again = self.start(task, way)?;
                differed += u32::from(!self.differences(task, native, &again).is_empty());
                fs::remove_dir_all(&again.dir)?;
                let again = self.start(task, Way::Native)?;
                natively += u32::from(!self.differences(task, native, &again).is_empty());
                fs::remove_dir_all(&again.dir)?;
            }
            words = format!("{differed} of {} runs differ, of native ones {natively} of {AGAIN}", AGAIN + 1);
        }
        let covers = |case: &str, known: &&Known| known.covers(case, way);
        let cases = format!("{}/", task.name);
        let mended: Vec<&Known> = self
            .known
            .iter()
            .filter(|known| !known.sometimes && known.ways.contains(&way))
            .filter(|known| known.covers(&task.name, way) || known.name.starts_with(&cases))
            .filter(|known| !wrong.iter().any(|(case, _)| known.covers(case, way)))
            .collect();
        let mended: Vec<String> = mended.iter().map(|known| known.name.clone()).collect();
        wrong.retain(|(case, _)| !self.known.iter().any(|known| covers(case, &known)));
        if wrong.is_empty() && mended.is_empty() {
            fs::remove_dir_all(&seen.dir)?;
            return Ok(true);
        }
        let mut lines: Vec<String> = wrong.iter().take(SHOWN).map(|(_, words)| words.clone()).collect();
        if wrong.len() > SHOWN {
            lines.push(format!("and {} more", wrong.len() - SHOWN));
        }
        lines.extend(mended.iter().map(|name| format!("{name} no longer differs: take it out of the table")));
        lines.extend((!words.is_empty()).then_some(words));
        self.fail(task, way.name(), &lines.join("\n"), &seen)?;
        Ok(false)
    }

    /// What differs, as names for the table and in words.
    fn differences(&self, task: &Task, native: &Seen, seen: &Seen) -> Vec<(String, String)> {
        let mut found = Vec::new();
        if seen.code != native.code {
            let show = |code: Option<i32>| code.map_or("no end".to_owned(), |code| format!("status {code}"));
            found.push((task.name.clone(), format!("{}, natively {}", show(seen.code), show(native.code))));
        }
        if self.options.suites {
            let lines = |bytes: &[u8]| -> BTreeSet<String> {
                String::from_utf8_lossy(bytes).lines().map(str::to_owned).collect()
            };
            let (expected, got) = (lines(&native.ended.stdout), lines(&seen.ended.stdout));
            let case = |line: &str| format!("{}/{}", task.name, line.split(' ').next().unwrap_or_default());
            found
                .extend(expected.difference(&got).map(|line| (case(line), format!("natively only: {line}"))));
            found
                .extend(got.difference(&expected).map(|line| (case(line), format!("not natively:  {line}"))));
        } else {
            let other = difference(&native.ended.stdout, &seen.ended.stdout);
            found.extend(other.map(|words| (task.name.clone(), words)));
        }
        if seen.ended.left_behind.len() > native.ended.left_behind.len() {
            let words = format!("processes left behind: {:?}", seen.ended.left_behind);
            found.push((task.name.clone(), words));
        }
        found.extend(seen.remains.iter().map(|words| (task.name.clone(), words.clone())));
        found
    }

    /// Runs a program to its end.
    fn start(&self, task: &Task, way: Way) -> Result<Seen> {
        let dir = match &self.options.inside {
            // Its current folder has to be in the other root.
            Some(root) => {
                let inner = Place { root: self.place.root.clone(), target: root.join("tmp").canonicalize()? };
                inner.fresh(&task.name)?
            }
            None => self.place.fresh(&task.name)?,
        };
        let group = group_name(&dir);
        let command = self.command(task, way, &group, &dir);
        let tree = Launch { command, dir: dir.clone(), stdin: None, sink: Sink::Pipe }.spawn()?;
        let ended = tree.finish(Duration::from_secs(self.options.timeout))?;
        let code = ended.status.and_then(shell_code);
        let mut told = self.told.lock().expect("no panic under this lock");
        *told.time.entry(way.name()).or_default() += ended.elapsed;
        if way == Way::Protected {
            for event in events::read_all(&dir.join("events")) {
                *told.events.entry(event.name).or_default() += 1;
            }
        }
        drop(told);
        let ours = way != Way::Native && self.options.inside.is_none() && code.is_some();
        let remains = ours.then(|| judge_folder(&group)).flatten();
        Ok(Seen { code, ended, dir, remains })
    }

    /// The words to start: the settings, understudy or nothing, and a shell.
    fn command(&self, task: &Task, way: Way, group: &str, dir: &Path) -> Vec<OsString> {
        let mut command: Vec<OsString> = Vec::new();
        let seen = |path: &Path| match &self.options.inside {
            Some(root) => {
                let within = root
                    .canonicalize()
                    .ok()
                    .and_then(|root| path.strip_prefix(root).ok().map(Path::to_path_buf));
                Path::new("/").join(within.unwrap_or_else(|| path.to_path_buf()))
            }
            None => path.to_path_buf(),
        };
        let tmp = seen(&dir.join("tmp"));
        if let Some(root) = &self.options.inside {
            let enter = self.place.root.join("tests/foreign/rootfs.sh");
            command.extend([enter.into_os_string(), "--enter".into(), root.clone().into_os_string()]);
        }
        command.push("env".into());
        // What names the folder names it as the program sees it.
        for name in ["--chdir=", "HOME=", "TMPDIR="] {
            let mut word = OsString::from(name);
            word.push(&tmp);
            command.push(word);
        }
        command.extend(ENVIRONMENT.map(OsString::from));
        let mut tree = OsString::from("TREE=");
        tree.push(if self.options.inside.is_some() { Path::new("/tree") } else { &self.place.root });
        command.push(tree);
        if way != Way::Native {
            command.push(self.understudy.clone().into());
            command.extend(["run", "-q", "--name", group, "--events"].map(OsString::from));
            command.push(seen(&dir.join("events")).into());
            if way == Way::Bare {
                command.extend(["--standbys", "0"].map(OsString::from));
            }
            command.push("--".into());
        }
        command.extend(["sh", "-c", &task.command].map(OsString::from));
        command
    }

    fn fail(&self, task: &Task, way: &str, why: &str, seen: &Seen) -> Result<()> {
        let stderr = fs::read(seen.dir.join("stderr")).unwrap_or_default();
        let mut words = why.to_owned();
        for line in String::from_utf8_lossy(&stderr).lines().take(3) {
            words += &format!("\nstderr: {}", line.chars().take(200).collect::<String>());
        }
        let kept = self.place.keep(&seen.dir, &format!("foreign-{}-{way}", task.name))?;
        let what = format!("{} {way}", task.name);
        self.report.fail(&what, &words, &kept.display().to_string(), &self.repeat(task));
        Ok(())
    }

    fn repeat(&self, task: &Task) -> String {
        let mut words = format!("{} foreign --only {}{}", own_path(), task.name, self.options.place.repeat());
        for (flag, path) in [("--list", &self.options.list), ("--inside", &self.options.inside)] {
            words += &path.as_ref().map_or(String::new(), |path| format!(" {flag} {}", path.display()));
        }
        if self.options.kills != 0 {
            words += &format!(" --kills {} --seed {}", self.options.kills, self.options.seed);
        }
        words + if self.options.suites { " --suites" } else { "" }
    }

    fn summary(&self) {
        let told = self.told.lock().expect("no panic under this lock");
        let times: Vec<String> = told.time.iter().map(|(way, time)| format!("{way} {time:.1?}")).collect();
        println!("time: {}", times.join(", "));
        let events: Vec<String> = told.events.iter().map(|(name, count)| format!("{name} {count}")).collect();
        println!("events: {}", events.join(", "));
    }
}

/// As a shell tells it; `understudy run` does the same.
fn shell_code(status: ExitStatus) -> Option<i32> {
    status.code().or_else(|| status.signal().map(|signal| 128 + signal))
}
