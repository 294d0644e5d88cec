//! `kit both`: both copies of a process are killed within a millisecond, as one kill of a process group or a lack of memory does
//! it. Nobody can take over; but everybody must hear of it, at once.

use std::ffi::OsString;
use std::fs;
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::Signal;

use super::{Failure, Options, Outcome, Run, Title};
use crate::judge::judge_folder;
use crate::process::{Launch, Sink, send};
use crate::rng::Rng;
use crate::strike::{Pair, ROOT, Tracker, status};
use crate::trial::group_name;

/// Three threads that wait, and one that makes calls.
const THREADS: &str = "
import threading, time
for _ in range(3):
    threading.Thread(target=time.sleep, args=(50,), daemon=True).start()
print('ready', flush=True)
while True: time.sleep(0.001)";

/// A parent, and a child that does nothing but live. What the parent is told of its end is what the kernel tells.
const PARENT: &str = "
import os, signal, time
os.write(1, b'ready\\n')
signal.signal(signal.SIGCHLD, lambda *_: os.write(1, b'SIGCHLD\\n'))
child = os.fork()
while child == 0: time.sleep(0.001)
got, status = os.waitpid(child, 0)
os.write(1, b'%d %s\\n' % (status, b'its own' if got == child else b'another'))
while not os.path.exists('seen'): time.sleep(0.01)";

/// What natively follows the child's end by SIGKILL.
const TOLD: &str = "ready\nSIGCHLD\n9 its own\n";

/// How long `run` may take to end.
const PROMPT: Duration = Duration::from_secs(1);

/// The latest moment of a kill, microseconds after protection began, and of the second behind the first.
const LATEST_US: u64 = 200_000;
const BETWEEN_US: u64 = 1000;

/// Runs the command. True if nothing failed.
pub fn run(options: &Options) -> Result<bool, anyhow::Error> {
    let title = Title { name: "both", flags: String::new() };
    super::campaign(options, &title, "python3", |_| Ok(()), one)
}

/// A program, and a program's child.
fn one(run: &Run) -> Result<Outcome, Failure> {
    if run.understudy.is_none() {
        return Ok(Outcome { detail: "natively there is one copy".into(), longest: None });
    }
    let mut rng = Rng::new(run.seed, "both");
    let longest = kill_both(run, false, &mut rng)?.max(kill_both(run, true, &mut rng)?);
    Ok(Outcome { detail: format!("both ends within {longest:.0?}"), longest: Some(longest) })
}

fn kill_both(run: &Run, is_child: bool, rng: &mut Rng) -> Result<Duration, Failure> {
    let Some(understudy) = &run.understudy else { return Ok(Duration::ZERO) };
    let dir = run.place.fresh("both")?;
    let (group, events) = (group_name(&dir), dir.join("events"));
    let mut command: Vec<OsString> = vec![understudy.into(), "run".into(), "--name".into()];
    command.extend([group.clone().into(), "--events".into(), events.clone().into()]);
    let program = if is_child { PARENT } else { THREADS };
    command.extend(["--", "python3", "-c", program].map(OsString::from));
    let launch = Launch { command, dir: dir.clone(), stdin: None, sink: Sink::File };
    let tree = launch.spawn()?;
    let fail = |why: String| Failure { why, dir: Some(dir.clone()) };

    let mut tracker = Tracker::new(&events, understudy, &group);
    let until = Instant::now() + run.limit;
    let out = || fs::read_to_string(dir.join("stdout")).unwrap_or_default();
    let mut await_pair = || -> Option<Pair> {
        loop {
            // What `python3` is may be a script that has children before it executes the program.
            if !out().starts_with("ready") {
                thread::sleep(Duration::from_millis(5));
                if Instant::now() > until {
                    return None;
                }
                continue;
            }
            let found: Vec<(u32, Pair)> = tracker.protected();
            let wanted = found.iter().find(|(process, _)| (*process != ROOT) == is_child);
            if let Some((_, pair)) = wanted.filter(|(_, pair)| pair.standby != 0) {
                return Some(*pair);
            }
            if Instant::now() > until {
                return None;
            }
            thread::sleep(Duration::from_millis(1));
        }
    };
    let _ = await_pair();
    thread::sleep(Duration::from_micros(rng.below(LATEST_US)));
    // As it is now: the first standby may have been replaced.
    let Some(pair) = await_pair() else { return Err(fail("there were never two copies".into())) };
    let order = if rng.below(2) == 0 { [pair.primary, pair.standby] } else { [pair.standby, pair.primary] };
    let gap = Duration::from_micros(rng.below(BETWEEN_US) * rng.below(2));
    send(order[0], Signal::KILL);
    let begin = Instant::now();
    while begin.elapsed() < gap {}
    send(order[1], Signal::KILL);
    let killed = Instant::now();

    let mut complaints = Vec::new();
    if is_child {
        // The parent, and `status`, hear of it.
        let lost = || {
            let group = status(understudy, &group)?;
            let has = group["processes"].as_array()?.iter().any(|process| process["state"] == "lost");
            (has && group["guarantee"].as_str()?.contains("was lost")).then_some(())
        };
        while killed.elapsed() < run.limit / 2 && (out() != TOLD || lost().is_none()) {
            thread::sleep(Duration::from_millis(5));
        }
        if out() != TOLD {
            complaints.push(format!("its parent was told {:?}", out()));
        }
        if lost().is_none() {
            complaints.push("status does not show it as lost".to_owned());
        }
        let _ = fs::write(dir.join("tmp/seen"), "");
    }
    let limit = tree.age() + run.limit;
    let ended = tree.finish(limit).map_err(|error| Failure::of(error, &dir))?;
    let took = ended.at.saturating_duration_since(killed);
    let expected = if is_child { 0 } else { 137 };
    match ended.status {
        None => complaints.push("it did not end".to_owned()),
        Some(status) if status.code() != Some(expected) => complaints.push(format!("it ended with {status}")),
        Some(_) if !is_child && took > PROMPT => complaints.push(format!("its end took {took:.1?}")),
        Some(_) => {}
    }
    let said = fs::read_to_string(dir.join("stderr")).unwrap_or_default();
    if said.matches(" is lost: ").count() != 1 || said.lines().count() > 2 {
        complaints.push(format!("it said {said:?}"));
    }
    complaints
        .extend((!ended.left_behind.is_empty()).then(|| format!("left behind: {:?}", ended.left_behind)));
    complaints.extend(judge_folder(&group));
    if complaints.is_empty() {
        fs::remove_dir_all(&dir).map_err(|error| Failure::of(error.into(), &dir))?;
        return Ok(if is_child { Duration::ZERO } else { took });
    }
    Err(fail(format!("{}: {}", if is_child { "a child" } else { "the program" }, complaints.join("\n"))))
}
