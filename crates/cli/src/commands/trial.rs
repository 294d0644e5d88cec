//! `doctor --load`: a program is run natively and protected under its user's load, and what was seen is compared.

use std::ffi::OsString;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, WaitId, WaitIdOptions};
use us_supervisor::{Error, doctor, proc, spawn, status};

use super::print;
use crate::progress::Progress;
use crate::report;
use crate::report::trial::{Run, Trial};

/// How long a program may take from its start to its first answers, before the load begins.
const SETTLE: Duration = Duration::from_millis(500);

/// How long its end may take.
const END: Duration = Duration::from_secs(10);

/// Pause between two looks.
const LOOK: Duration = Duration::from_millis(10);

/// Runs of a program that ends by itself, at most.
const RUNS_MAX: u32 = 50;

/// Runs it natively, protected, and in turns if its copies differ; shows what that has shown.
pub fn show(json: bool, load: &OsString, seconds: f64, command: &[OsString]) -> Result<i32, Error> {
    let program = command.first().ok_or_else(|| Error::Usage("doctor --load wants a PROGRAM".into()))?;
    let findings = doctor::examine(Some(program));
    if !findings.ok {
        // No load would say more.
        let text = if json { report::json(&findings) } else { report::doctor(&findings) };
        print(text.as_bytes());
        return Ok(us_abi::exit::FAILED);
    }
    let bench = Bench { load, length: Duration::from_secs_f64(seconds), command };
    let mut trial = Trial { version: 1, seconds, runs: vec![bench.run(None)?], ..Trial::default() };
    trial.runs.push(bench.run(Some("schedule"))?);
    let differed = trial.runs[1].divergences_total > 0;
    if differed {
        trial.runs.push(bench.run(Some("serial"))?);
    }
    trial.conclude();
    let text = if json { report::json(&trial) } else { report::trial::trial(&trial) };
    Ok(print(text.as_bytes()))
}

/// What is run, and under which load.
struct Bench<'a> {
    load: &'a OsString,
    length: Duration,
    command: &'a [OsString],
}

impl Bench<'_> {
    /// With this order of threads, or natively.
    fn run(&self, order: Option<&str>) -> Result<Run, Error> {
        let mut all = Run { order: order.map(Into::into), ..Run::default() };
        let begun = Instant::now();
        let progress = Progress::new(self.length.as_millis() as u64);
        let how = order.map_or("natively".into(), |order| format!("protected, --order {order}"));
        let wait = || {
            progress.at(begun.elapsed().as_millis() as u64, &how);
            std::thread::sleep(LOOK);
        };
        loop {
            all.times += 1;
            self.once(order, &mut all, &wait)?;
            // A program that ends by itself is run again: a race may need many runs.
            if !all.ended_by_itself || all.times >= RUNS_MAX || begun.elapsed() >= self.length {
                return Ok(all);
            }
        }
    }

    /// Once, with `wait` between two looks.
    fn once(&self, order: Option<&str>, all: &mut Run, wait: &dyn Fn()) -> Result<(), Error> {
        let name = format!("doctor-{}-{}-{}", std::process::id(), order.unwrap_or("native"), all.times);
        let before_s = proc::children_cpu_s();
        let started = Instant::now();
        let mut program = Process(self.start(order, &name)?);
        while program.runs() && started.elapsed() < SETTLE {
            wait();
        }
        let (began, before_load_s) = (Instant::now(), proc::children_cpu_s());
        if program.runs() {
            let mut load = Process(start_load(self.load)?);
            while program.runs() && load.runs() && began.elapsed() < self.length {
                wait();
            }
            all.load_ended |= !load.runs();
            all.load_failed |= matches!(load.0.try_wait(), Ok(Some(end)) if !end.success());
            load.end_group();
        }
        let load_cpu_s = proc::children_cpu_s() - before_load_s;
        all.ended_by_itself = !program.runs();
        let time = if all.ended_by_itself { started.elapsed() } else { began.elapsed() };
        // What the status of a running group has is more than what is kept of one that has ended.
        let found = order.filter(|_| !all.ended_by_itself).and_then(|_| status::read(Some(&name)).ok());
        program.end();
        let found = found.or_else(|| order.and_then(|_| status::read(Some(&name)).ok()));
        found.into_iter().for_each(|found| all.note(&name, &found, time.as_secs_f64()));
        all.time_s += time.as_secs_f64();
        all.cpu_s += (proc::children_cpu_s() - before_s - load_cpu_s).max(0.0);
        Ok(())
    }

    fn start(&self, order: Option<&str>, name: &str) -> Result<Child, Error> {
        let mut command = match order {
            None => {
                let mut command = Command::new(&self.command[0]);
                command.args(&self.command[1..]);
                command
            }
            Some(order) => {
                let mut command = Command::new(own_path());
                command.args(["run", "-q", "--name", name, "--order", order, "--"]).args(self.command);
                command
            }
        };
        let started = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn();
        started.map_err(|cause| Error::system("start the program", cause))
    }
}

/// This program, also when its file has been replaced.
fn own_path() -> PathBuf {
    std::env::current_exe().unwrap_or_else(|_| proc::OWN_EXECUTABLE.into())
}

fn start_load(load: &OsString) -> Result<Child, Error> {
    use std::os::unix::process::CommandExt;
    let mut command = Command::new("sh");
    command.arg("-c").arg(load).process_group(0);
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    command.spawn().map_err(|cause| Error::system("start the load", cause))
}

/// A child of ours, that is not left behind.
struct Process(Child);

impl Process {
    /// It is not reaped: its processor time would count as that of whoever else is looked at now.
    fn runs(&self) -> bool {
        let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
        matches!(rustix::process::waitid(WaitId::Pid(Pid::from_child(&self.0)), options), Ok(None))
    }

    /// Ends it by SIGTERM, and by SIGKILL if it takes no notice.
    fn end(&mut self) {
        if self.runs() {
            let _ = rustix::process::kill_process(Pid::from_child(&self.0), Signal::TERM);
        }
        let until = Instant::now() + END;
        while self.runs() && Instant::now() < until {
            std::thread::sleep(LOOK);
        }
        if self.runs() {
            let _ = self.0.kill();
        }
        let _ = self.0.wait();
    }

    /// Ends it, and whatever it has started in its group.
    fn end_group(&mut self) {
        if self.runs() {
            spawn::kill_group(self.0.id());
        }
        let _ = self.0.wait();
    }
}
