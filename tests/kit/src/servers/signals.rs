//! `kit signals`: signals to a program whose primary is killed at that moment, by `understudy signal`, `understudy stop`, and to
//! `understudy run` itself. Each is handled once: none is lost, none comes twice.

use std::ffi::OsString;
use std::fs;
use std::path::Path;
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use rustix::process::Signal;

use super::{Failure, Options, Outcome, Run, Title};
use crate::judge::judge_folder;
use crate::process::{Launch, Sink, Tree, send};
use crate::rng::Rng;
use crate::strike::{protected_command, status};
use crate::trial::group_name;

/// Counts what it handles, and ends at SIGTERM with a word.
const COUNTER: &str = "
import os, signal, time
got = {signal.SIGUSR1: 0, signal.SIGTERM: 0}
def count(number, _): got[number] += 1
for number in got: signal.signal(number, count)
os.write(1, b'ready\\n')
said = 0
while got[signal.SIGTERM] == 0:
    time.sleep(0.001)
    while said < got[signal.SIGUSR1]:
        said += 1
        os.write(1, b'%d\\n' % said)
os.write(1, b'end %d\\n' % got[signal.SIGTERM])";

/// Of one kind before the last.
const ROUNDS: usize = 5;

/// Between a kill and its signal, microseconds.
const APART_US: u64 = 4000;

/// A signal that comes twice comes within this time.
const AGAIN: Duration = Duration::from_millis(60);

#[derive(Clone, Copy, Debug)]
enum How {
    /// To `understudy run`.
    Run,
    /// `understudy signal`.
    Signal,
    /// `understudy stop`, for the last one.
    Stop,
}

/// Runs the command. True if nothing failed.
pub fn run(options: &Options) -> Result<bool> {
    let title = Title { name: "signals", flags: String::new() };
    super::campaign(options, &title, "python3", |_| Ok(()), one)
}

/// Each way once.
fn one(run: &Run) -> Result<Outcome, Failure> {
    let Some(understudy) = &run.understudy else {
        return Ok(Outcome { detail: "natively nobody takes over".into(), longest: None });
    };
    let mut rng = Rng::new(run.seed, "signals");
    for how in [How::Run, How::Signal, How::Stop] {
        let dir = run.place.fresh("signals")?;
        let group = group_name(&dir);
        let program = ["python3", "-c", COUNTER].map(OsString::from).to_vec();
        let command = protected_command(understudy, run.standbys, &group, &dir.join("events"), program);
        let tree = Launch { command, dir: dir.clone(), stdin: None, sink: Sink::File }.spawn()?;
        let limit = run.limit;
        let mut scene =
            Scene { understudy, group: &group, dir: &dir, tree: &tree, how, limit, kill: run.kill };
        let done = scene.play(&mut rng);
        let until = tree.age() + limit;
        let ended = tree.finish(until).map_err(|error| Failure::of(error, &dir))?;
        let out = String::from_utf8_lossy(&ended.stdout).into_owned();
        let fail = |why: String| Failure { why: format!("{how:?}: {why}"), dir: Some(dir.clone()) };
        done.map_err(|error| fail(format!("{error:#}")))?;
        if !out.ends_with("end 1\n") || ended.status.and_then(|status| status.code()) != Some(0) {
            return Err(fail(format!("SIGTERM: {out:?}, {:?}", ended.status)));
        }
        if let Some(why) = judge_folder(&group) {
            return Err(fail(why));
        }
        fs::remove_dir_all(&dir).map_err(|error| Failure::of(error.into(), &dir))?;
    }
    Ok(Outcome { detail: format!("{} signals, each once", 3 * (ROUNDS + 1)), longest: None })
}

struct Scene<'a> {
    understudy: &'a Path,
    group: &'a str,
    dir: &'a Path,
    tree: &'a Tree,
    how: How,
    limit: Duration,
    kill: bool,
}

impl Scene<'_> {
    fn play(&mut self, rng: &mut Rng) -> Result<()> {
        self.await_output("ready\n")?;
        let mut expected = "ready\n".to_owned();
        for round in 1..=ROUNDS {
            expected += &format!("{round}\n");
            self.strike(Signal::USR1, rng)?;
            self.await_output(&expected)?;
            thread::sleep(AGAIN);
            ensure!(self.output() == expected, "SIGUSR1 {round}: {:?}", self.output());
        }
        self.strike(Signal::TERM, rng)
    }

    fn output(&self) -> String {
        fs::read_to_string(self.dir.join("stdout")).unwrap_or_default()
    }

    fn await_output(&self, expected: &str) -> Result<()> {
        let until = Instant::now() + self.limit;
        while self.output() != expected {
            ensure!(Instant::now() < until, "waited for {expected:?}, and got {:?}", self.output());
            thread::sleep(Duration::from_millis(1));
        }
        Ok(())
    }

    /// The primary's pid, once there is a standby.
    fn primary(&self) -> Result<u32> {
        let until = Instant::now() + self.limit;
        loop {
            let group = status(self.understudy, self.group).unwrap_or_default();
            let pid = group.pointer("/processes/0/primary/pid").and_then(|pid| pid.as_u64());
            match pid {
                Some(pid) if group["state"] == "protected" => return Ok(u32::try_from(pid)?),
                _ => ensure!(Instant::now() < until, "it is not protected any more"),
            }
            thread::sleep(Duration::from_millis(2));
        }
    }

    /// A signal and a kill, in either order.
    fn strike(&self, signal: Signal, rng: &mut Rng) -> Result<()> {
        let primary = self.primary()?;
        let (first, apart) = (rng.below(2) == 0, Duration::from_micros(rng.below(APART_US)));
        let kill = self.kill;
        thread::scope(|scope| {
            let killer = move || {
                if !first {
                    thread::sleep(apart);
                }
                if kill {
                    send(primary, Signal::KILL);
                }
            };
            let killer = scope.spawn(killer);
            if first {
                thread::sleep(apart);
            }
            let sent = self.send(signal);
            let _ = killer.join();
            sent
        })
    }

    fn send(&self, signal: Signal) -> Result<()> {
        let number = signal.as_raw().to_string();
        let mut command = Command::new(self.understudy);
        match (self.how, signal == Signal::TERM) {
            (How::Run, _) => {
                self.tree.signal(signal);
                return Ok(());
            }
            (How::Stop, true) => command.args(["stop", self.group, "--timeout", "20"]),
            _ => command.args(["signal", self.group, &number]),
        };
        let output = command.output()?;
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        ensure!(output.status.success(), "{:?} {number}: {said}", self.how);
        Ok(())
    }
}
