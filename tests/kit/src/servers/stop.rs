//! `kit stop`: a tree of processes that is ended in one of five ways, at any moment of its first third of a second.
//! Nothing may be left of it: no process, no segment, no folder.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use rustix::process::{Pid, Signal, kill_process_group};

use super::{Failure, Options, Outcome, Run, Title};
use crate::judge::judge_folder;
use crate::process::{Launch, Sink, Tree, send};
use crate::rng::Rng;
use crate::strike::{protected_command, status};
use crate::trial::group_name;

/// A shell with children, a shell with one of its own among them, and a process with threads. All of them end when the
/// first is asked to.
const TREE: &str = r#"
trap 'kill $(jobs -p) 2>/dev/null; exit 0' TERM INT
sleep 50 &
bash -c 'trap "kill %1 2>/dev/null; exit 0" TERM INT; sleep 50 & wait' &
python3 -c '
import threading, time
for _ in range(3):
    threading.Thread(target=time.sleep, args=(50,), daemon=True).start()
time.sleep(50)' &
wait
"#;

/// The latest moment of an end, milliseconds after the start.
const LATEST_MS: u64 = 300;

/// How a tree is ended.
#[derive(Clone, Copy, Debug)]
enum How {
    /// `understudy stop`.
    Stop,
    /// The terminal's Ctrl-C: SIGINT to all.
    Interrupt,
    /// SIGTERM to `understudy run`.
    Terminate,
    /// SIGKILL to `understudy run`, and then a stop of what goes on without it.
    KillSupervisor,
    /// SIGKILL to the program, and then a stop of whoever took over.
    KillProgram,
}

/// Runs the command. True if nothing failed.
pub fn run(options: &Options) -> Result<bool> {
    super::campaign(options, &Title { name: "stop", flags: String::new() }, "bash", |_| Ok(()), one)
}

/// Each way once.
fn one(run: &Run) -> Result<Outcome, Failure> {
    let mut rng = Rng::new(run.seed, "stop");
    let mut longest = Duration::ZERO;
    let mut words = Vec::new();
    for how in [How::Stop, How::Interrupt, How::Terminate, How::KillSupervisor, How::KillProgram] {
        let delay = Duration::from_micros(rng.below(LATEST_MS * 1000));
        let took = interrupt(run, how, delay, &mut rng)?;
        longest = longest.max(took);
        words.push(format!("{how:?} after {delay:.0?} took {took:.0?}"));
    }
    Ok(Outcome { detail: words.join(", "), longest: Some(longest) })
}

/// Starts a tree and ends it: how long that took.
fn interrupt(run: &Run, how: How, delay: Duration, rng: &mut Rng) -> Result<Duration, Failure> {
    let dir = run.place.fresh("stop")?;
    let group = group_name(&dir);
    let program = ["bash", "-c", TREE].map(Into::into).to_vec();
    let command = match &run.understudy {
        Some(understudy) => protected_command(understudy, run.standbys, &group, &dir.join("events"), program),
        None => program,
    };
    let mut tree = Launch { command, dir: dir.clone(), stdin: None, sink: Sink::File }.spawn()?;
    thread::sleep(delay);
    let begin = Instant::now();
    let limit = tree.age() + run.limit;
    let what = format!("{how:?} after {delay:.1?}");
    act(run, how, &mut tree, &group, rng).map_err(|error| Failure::of(error.context(what.clone()), &dir))?;
    let ended = tree.finish(limit).map_err(|error| Failure::of(error, &dir))?;
    let took = ended.at - begin;
    let mut complaints = Vec::new();
    if ended.status.is_none() {
        complaints.push("it did not end".to_owned());
    }
    if !ended.left_behind.is_empty() {
        complaints.push(format!("processes left behind: {:?}", ended.left_behind));
    }
    complaints.extend(judge_folder(&group));
    if complaints.is_empty() {
        std::fs::remove_dir_all(&dir).map_err(|error| Failure::of(error.into(), &dir))?;
        return Ok(took);
    }
    Err(Failure { why: format!("{what}: {}", complaints.join("\n")), dir: Some(dir) })
}

fn act(run: &Run, how: How, tree: &mut Tree, group: &str, rng: &mut Rng) -> Result<()> {
    let until = Instant::now() + run.limit;
    let Some(understudy) = &run.understudy else {
        tree.signal(Signal::TERM);
        return Ok(());
    };
    match how {
        How::Stop => stop(understudy, tree, group, until),
        How::Interrupt => {
            let pid = i32::try_from(tree.pid()).ok().and_then(Pid::from_raw).context("a pid")?;
            kill_process_group(pid, Signal::INT).context("interrupting the process group")
        }
        How::Terminate => {
            tree.signal(Signal::TERM);
            Ok(())
        }
        How::KillSupervisor => {
            tree.signal(Signal::KILL);
            thread::sleep(Duration::from_micros(rng.below(100_000)));
            stop(understudy, tree, group, until)
        }
        How::KillProgram => {
            let primary = || status(understudy, group)?.pointer("/processes/0/primary/pid")?.as_u64();
            if let Some(pid) = primary().and_then(|pid| u32::try_from(pid).ok()) {
                send(pid, Signal::KILL);
            }
            thread::sleep(Duration::from_micros(rng.below(100_000)));
            stop(understudy, tree, group, until)
        }
    }
}

/// Stops the group, if there is one, or will be one in a moment.
fn stop(understudy: &PathBuf, tree: &mut Tree, group: &str, until: Instant) -> Result<()> {
    loop {
        let output = Command::new(understudy).args(["stop", group, "--timeout", "5"]).output()?;
        if output.status.success() || is_over(tree, understudy, group) || Instant::now() > until {
            return Ok(());
        }
        thread::sleep(Duration::from_millis(5));
    }
}

/// Nobody is left who could still make the group.
fn is_over(tree: &mut Tree, understudy: &Path, group: &str) -> bool {
    tree.has_ended() && status(understudy, group).is_none()
}
