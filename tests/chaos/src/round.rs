//! One seed: a program, its clients, and faults, one after the other.

use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Result, bail, ensure};
use rustix::process::Signal;
use us_kit::events::Event;
use us_kit::place::Place;
use us_kit::process::send;
use us_kit::rng::Rng;
use us_kit::servers::Run;
use us_kit::servers::life::Load;
use us_kit::strike::{Pair, Tracker};

use crate::fault::{Act, Fault, schedule};
use crate::group::Group;
use crate::workload::{Errands, Workload};

/// What a round needs to know.
pub struct Round<'a> {
    /// Folders.
    pub place: &'a Place,
    /// The binary.
    pub understudy: &'a Path,
    /// The seed.
    pub seed: u64,
    /// The program.
    pub workload: Workload,
    /// Longest wait for anything.
    pub limit: Duration,
}

/// A round that failed.
pub struct Failed {
    /// In words.
    pub why: String,
    /// Its folder, if it came to exist.
    pub dir: Option<PathBuf>,
}

/// How a round ended that did not fail.
pub enum Outcome {
    /// In words.
    Pass(String),
    /// A kill met a primary whose standby had been dropped a moment before: the program is rightly lost.
    Missed(String),
}

impl Round<'_> {
    /// What will happen: the same for the same seed.
    pub fn acts(&self) -> Vec<Act> {
        let mut rng = Rng::new(self.seed, &format!("chaos {}", self.workload.name()));
        let probed = self.workload.can_be_probed();
        schedule(&mut rng, |fault| self.workload.takes(fault) && (probed || fault != Fault::StopPrimary))
    }

    /// Runs it.
    pub fn run(&self) -> Result<Outcome, Failed> {
        let acts = self.acts();
        let early = |error: anyhow::Error| Failed { why: format!("{error:#}"), dir: None };
        let dir = self.place.fresh(&format!("chaos-{}", self.workload.name())).map_err(early)?;
        let probe = acts.iter().any(|act| act.fault == Fault::StopPrimary).then(|| self.probe());
        let program = |port| self.workload.program(self.place, port);
        let group = Group::start(dir.clone(), self.understudy, program, probe, self.limit)
            .map_err(|error| Failed { why: format!("{error:#}"), dir: Some(dir.clone()) })?;
        let run = Run {
            place: self.place,
            understudy: Some(self.understudy.to_path_buf()),
            kill: true,
            record: None,
            life: None,
            standbys: 1,
            seed: self.seed,
            requests: u64::MAX,
            limit: self.limit,
        };
        let (load, errands) = (Load::new(0, true), Errands::default());
        let mut done = Vec::new();
        let (talked, hurt) = thread::scope(|scope| {
            let (load, errands, group, done) = (&load, &errands, &group, &mut done);
            let conductor = scope.spawn(move || {
                let hurt = Conductor { group, load, errands, limit: self.limit }.conduct(&acts, done);
                load.stop();
                hurt
            });
            let talked = self.workload.talk(&run, group.address, load, errands);
            load.stop();
            (talked, conductor.join().expect("the conductor does not panic"))
        });
        let told = done.iter().map(Fault::to_string).collect::<Vec<_>>().join(", ");
        let lifecycle = group.lifecycle();
        match (talked, hurt) {
            (Ok(words), Ok(orphan)) => self
                .finish(group, orphan, &done, &lifecycle)
                .map(|more| Outcome::Pass(format!("{told}; {words}{more}"))),
            (talked, hurt) => {
                let dir = group.dir.clone();
                group.abandon();
                if is_missed(&lifecycle, &done) {
                    let _ = std::fs::remove_dir_all(&dir);
                    return Ok(Outcome::Missed(told));
                }
                let mut why: Vec<String> = [talked.err(), hurt.err()]
                    .into_iter()
                    .flatten()
                    .map(|error| format!("{error:#}"))
                    .collect();
                why.push(format!("faults so far: {told}"));
                let news = |event: &&Event| !matches!(event.name.as_str(), "started" | "protected");
                let last: Vec<&Event> = lifecycle.iter().filter(news).collect();
                why.extend(
                    last.iter()
                        .rev()
                        .take(6)
                        .rev()
                        .map(|event| format!("event {}: {}", event.name, event.fields)),
                );
                Err(Failed { why: why.join("\n"), dir: Some(dir) })
            }
        }
    }

    fn probe(&self) -> String {
        let own = std::env::current_exe().unwrap_or_else(|_| "chaos".into());
        format!("'{}' --ask {} --port PORT", own.display(), self.workload.name())
    }

    /// The group is as it should be after all this, and ends as it should.
    fn finish(
        &self,
        group: Group,
        orphan: Option<u32>,
        done: &[Fault],
        lifecycle: &[Event],
    ) -> Result<String, Failed> {
        let dir = group.dir.clone();
        let mut complaints = judge(done, lifecycle);
        let mut more = String::new();
        match group.status() {
            Ok(status) => {
                let expected: u64 = done.iter().map(|fault| fault.promotions()).sum();
                if status["epoch"].as_u64() != Some(expected) {
                    complaints.push(format!("epoch {}, expected {expected}", status["epoch"]));
                }
                more = format!(
                    "; epoch {expected}, protected {:.3}",
                    status["protected_share"].as_f64().unwrap_or(0.0)
                );
            }
            Err(error) => complaints.push(format!("{error:#}")),
        }
        match group.stop(orphan) {
            Ok(ended) => {
                if ended.status.is_none() {
                    complaints.push("it did not end by SIGTERM".to_owned());
                }
                if !ended.left_behind.is_empty() {
                    complaints.push(format!("processes left behind: {:?}", ended.left_behind));
                }
            }
            Err(error) => complaints.push(format!("stopping it: {error:#}")),
        }
        if complaints.is_empty() {
            // A folder that stays is no failure of the group's.
            let _ = std::fs::remove_dir_all(&dir);
            return Ok(more);
        }
        Err(Failed { why: complaints.join("\n"), dir: Some(dir) })
    }
}

/// Complaints about the events: a divergence is never right here, a lost standby only if a fault explains it.
fn judge(done: &[Fault], lifecycle: &[Event]) -> Vec<String> {
    let mut complaints = Vec::new();
    let explained: usize = done.iter().map(|fault| fault.standbys()).sum();
    let lost = lifecycle.iter().filter(|event| event.name == "standby_lost").skip(explained);
    let never = lifecycle.iter().filter(|event| matches!(event.name.as_str(), "diverged" | "malformed"));
    complaints.extend(lost.chain(never).map(|event| format!("event {}: {}", event.name, event.fields)));
    complaints
}

/// Whether the last fault was a kill, and the standby was rightly dropped before it could take over.
fn is_missed(lifecycle: &[Event], done: &[Fault]) -> bool {
    let of_copies = |event: &&Event| !matches!(event.name.as_str(), "started" | "ended");
    let last = lifecycle.iter().rfind(of_copies);
    let dropped = last.is_some_and(|event| {
        let why = event.fields["why"].as_str().unwrap_or_default();
        event.name == "unprotected" && why.contains("lag timeout")
    });
    dropped && done.last().is_some_and(|fault| fault.promotions() > 0) && judge(done, lifecycle).is_empty()
}

/// Injects faults while the clients talk.
struct Conductor<'a> {
    group: &'a Group,
    load: &'a Load,
    errands: &'a Errands,
    limit: Duration,
}

impl Conductor<'_> {
    /// Carries out the acts, noting each in `done` as it begins. Gives the pid of a program that has no supervisor
    /// any more.
    fn conduct(&self, acts: &[Act], done: &mut Vec<Fault>) -> Result<Option<u32>> {
        let mut tracker = self.group.tracker();
        let mut pair = self.wait(&mut tracker, |_| true)?;
        for act in acts {
            thread::sleep(act.after);
            // What has happened meanwhile by itself, a standby that was too slow say, is over before the fault.
            pair = self.wait(&mut tracker, |_| true)?;
            done.push(act.fault);
            if act.fault == Fault::KillSupervisor {
                return self.without_supervisor(pair).map(Some);
            }
            pair = self.inject(&mut tracker, pair, act.fault)?;
        }
        let _ = pair;
        Ok(None)
    }

    fn wait(&self, tracker: &mut Tracker, wanted: impl Fn(Pair) -> bool) -> Result<Pair> {
        self.group.wait_for(tracker, wanted, &|| self.load.goes_on(0))
    }

    /// Injects one fault and waits until the group is protected again: by whom, then.
    fn inject(&self, tracker: &mut Tracker, pair: Pair, fault: Fault) -> Result<Pair> {
        let signal = |pid: u32, signal: Signal| {
            ensure!(send(pid, signal), "{fault}: process {pid} was gone before {signal:?}");
            Ok(())
        };
        let promoted = |now: Pair| now.primary != pair.primary;
        let replaced = |now: Pair| now.standby != pair.standby;
        match fault {
            Fault::KillPrimary => {
                signal(pair.primary, Signal::KILL)?;
                self.wait(tracker, promoted)
            }
            Fault::KillStandby => {
                signal(pair.standby, Signal::KILL)?;
                self.wait(tracker, replaced)
            }
            Fault::KillPrimaryOfStopped(time) => {
                signal(pair.standby, Signal::STOP)?;
                signal(pair.primary, Signal::KILL)?;
                thread::sleep(time.min(Duration::from_millis(200)));
                signal(pair.standby, Signal::CONT)?;
                self.wait(tracker, promoted)
            }
            Fault::StopStandby(time) | Fault::StopAndKillStandby(time) => {
                signal(pair.standby, Signal::STOP)?;
                self.until(time, || tracker.pair() != Some(pair));
                // If it has been dropped meanwhile it is gone, or going: then nobody hears the signal.
                let kill = matches!(fault, Fault::StopAndKillStandby(_));
                send(pair.standby, if kill { Signal::KILL } else { Signal::CONT });
                self.wait(tracker, |now| !kill || replaced(now))
            }
            Fault::StopPrimary => {
                signal(pair.primary, Signal::STOP)?;
                self.wait(tracker, promoted)
            }
            Fault::PlannedFailover => {
                self.group.fail_over()?;
                self.wait(tracker, promoted)
            }
            Fault::FillRings => {
                self.errands.ask();
                self.until_served()?;
                self.wait(tracker, |_| true)
            }
            Fault::RefusedCall => {
                self.errands.ask();
                self.until_served()?;
                self.wait(tracker, replaced)
            }
            Fault::KillSupervisor => bail!("the supervisor's end is no fault that passes"),
        }
    }

    /// Kills the supervisor: the program must serve on, and status must say how things are.
    fn without_supervisor(&self, pair: Pair) -> Result<u32> {
        self.group.kill_supervisor()?;
        let status = self.group.status()?;
        let said = (status["state"].as_str(), status["why"].as_str());
        ensure!(
            said == (Some("unprotected"), Some("the supervisor is gone")),
            "without its supervisor, status says {said:?}"
        );
        let enough = self.load.done() + 500;
        self.until(self.limit, || self.load.done() >= enough);
        ensure!(self.load.done() >= enough, "the program does not serve without its supervisor");
        Ok(pair.primary)
    }

    fn until_served(&self) -> Result<()> {
        self.until(self.limit, || self.errands.are_done() || !self.load.goes_on(0));
        ensure!(self.errands.are_done(), "the clients did not get an errand done");
        Ok(())
    }

    /// Waits until `over`, at most for `time`.
    fn until(&self, time: Duration, mut over: impl FnMut() -> bool) {
        let until = Instant::now() + time;
        while !over() && Instant::now() < until && self.load.goes_on(0) {
            thread::sleep(Duration::from_millis(1));
        }
    }
}
