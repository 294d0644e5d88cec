//! `kit foreign --kills N`: the same programs with a standby, and their primaries killed at seeded moments as long as they
//! live. What they print, and how they end, must be as natively.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use anyhow::Result;

use super::list::{Task, Way};
use super::{Seen, Session, shell_code};
use crate::events::{self, Event};
use crate::judge;
use crate::process::{Launch, Sink};
use crate::rng::Rng;
use crate::strike::{Account, Assassin, Plan, Target};
use crate::trial::group_name;

/// Kills of one run, at most.
const PLANS: usize = 64;

/// Runs of which no kill was hit, or one met a process at its end, before a program is given up, for each kill that is wanted.
const IN_VAIN: u32 = 3;

/// So many runs may meet a process at its end in any case.
const VOID_MIN: u32 = 4;

/// The times from protection to a kill: a part of what the program takes natively, between these.
const WINDOW_MIN: Duration = Duration::from_millis(6);
const WINDOW_MAX: Duration = Duration::from_millis(400);

/// What the runs of one program came to.
#[derive(Default)]
struct Tally {
    runs: u32,
    hits: usize,
    void: u32,
    /// Milliseconds with two copies, and in all, of the program's first process.
    protected_ms: u64,
    all_ms: u64,
    orders: BTreeSet<String>,
    diverged: usize,
}

impl Session<'_> {
    /// One program, run and killed until it has been killed as often as asked.
    pub(super) fn killed(&self, task: &Task) -> Result<()> {
        let native = self.start(task, Way::Native)?;
        if native.code.is_none() {
            return self.fail(task, "native", "does not end natively", &native);
        }
        let mut tally = Tally::default();
        let mut seed = self.options.seed;
        while tally.hits < self.options.kills && tally.runs < self.options.kills as u32 * IN_VAIN {
            let (seen, account, told) = self.strike(task, seed, native.ended.elapsed)?;
            tally.note(&account, &told);
            let mut wrong = self.differences(task, &native, &seen);
            wrong.retain(|(case, _)| !self.known.iter().any(|known| known.covers(case, Way::Killed)));
            let wrong: Vec<&String> = wrong.iter().map(|(_, words)| words).collect();
            let met_an_end = judge::child_killed_at_its_end(&account, &told).is_some() && seen.code.is_some();
            // At most half of all runs may be made again for that.
            if wrong.is_empty() {
                fs::remove_dir_all(&seen.dir)?;
            } else if met_an_end && 2 * tally.void < tally.runs.max(VOID_MIN) {
                // Whoever waited for it was told of a signal, as natively.
                tally.void += 1;
                self.report.void();
                fs::remove_dir_all(&seen.dir)?;
            } else {
                let mut words: Vec<String> = wrong.into_iter().cloned().collect();
                words.push(format!("seed {seed}, kills, each after protection: {account}"));
                words
                    .extend(told.iter().filter(|event| matters(event)).map(|event| event.fields.to_string()));
                fs::remove_dir_all(&native.dir)?;
                return self.fail(task, "killed", &words.join("\n"), &seen);
            }
            seed += 1;
        }
        fs::remove_dir_all(&native.dir)?;
        if tally.hits == 0 {
            self.report.skip(&task.name, "no kill found a protected process");
            return Ok(());
        }
        (0..tally.hits).for_each(|_| self.report.kill(true));
        self.report.pass(&task.name, &tally.words(native.ended.elapsed));
        Ok(())
    }

    /// One run with kills.
    fn strike(&self, task: &Task, seed: u64, native: Duration) -> Result<(Seen, Account, Vec<Event>)> {
        let dir = self.place.fresh(&task.name)?;
        let group = group_name(&dir);
        let file = dir.join("events");
        let mut rng = Rng::new(seed, &task.name);
        let window = (native / 2).clamp(WINDOW_MIN, WINDOW_MAX);
        let plan = |_| Plan {
            target: Target::Primary,
            delay: window.mul_f64(rng.fraction()),
            choice: rng.draw(),
            again: None,
        };
        let plans: Vec<Plan> = (0..PLANS.min(self.options.kills)).map(plan).collect();
        let command = self.command(task, Way::Protected, &group, &dir);
        let tree = Launch { command, dir: dir.clone(), stdin: None, sink: Sink::Pipe }.spawn()?;
        let over = AtomicBool::new(false);
        let (ended, account) = thread::scope(|scope| {
            let assassin = Assassin {
                events: &file,
                understudy: &self.understudy,
                group: &group,
                tree: false,
                primaries_only: true,
                over: &over,
            };
            let killer = scope.spawn(move || assassin.strike_each(&plans));
            let ended = tree.finish(Duration::from_secs(self.options.timeout));
            over.store(true, Ordering::Release);
            (ended, killer.join().expect("the assassin does not panic"))
        });
        let ended = ended?;
        let code = ended.status.and_then(shell_code);
        let remains = code.is_some().then(|| judge::judge_folder(&group)).flatten();
        let told = events::read_all(Path::new(&file));
        Ok((Seen { code, ended, dir, remains }, account, told))
    }
}

/// Whether an event says why a program was lost.
fn matters(event: &Event) -> bool {
    ["diverged", "standby_lost", "unprotected", "lost", "ended"].contains(&event.name.as_str())
}

impl Tally {
    fn note(&mut self, account: &Account, told: &[Event]) {
        self.runs += 1;
        self.hits += judge::count(told, "promoted").min(account.sent(Target::Primary));
        self.diverged += judge::count(told, "diverged");
        let order = |event: &Event| Some(event.fields.get("order")?.as_str()?.to_owned());
        self.orders.extend(told.iter().filter_map(order));
        let Some(start) = told.iter().find(|event| event.name == "started") else { return };
        let (root, mut since) = (start.number("primary"), None);
        for event in told {
            let own = event.number("process").is_none_or(|process| Some(process) == root);
            let Some(now) = time_ms(event).filter(|_| own) else { continue };
            match event.name.as_str() {
                "protected" | "recloned" | "confirmed" => since = since.or(Some(now)),
                "unprotected" | "promoted" | "standby_lost" | "diverged" | "behind" | "ended" => {
                    self.protected_ms += since.take().map_or(0, |from| now.saturating_sub(from));
                }
                _ => {}
            }
        }
        if let (Some(from), Some(to)) = (time_ms(start), told.last().and_then(time_ms)) {
            self.all_ms += to.saturating_sub(from);
        }
    }

    fn words(&self, native: Duration) -> String {
        let share = self.protected_ms as f64 * 100.0 / self.all_ms.max(1) as f64;
        let orders: Vec<&str> = self.orders.iter().map(String::as_str).collect();
        format!(
            "{} kills in {} runs of {native:.1?}, {} at an end; protected {share:.0} %; {} divergences; order {}",
            self.hits,
            self.runs,
            self.void,
            self.diverged,
            orders.join(", ")
        )
    }
}

/// Milliseconds of the day at which an event was told: `2026-11-24T10:44:27.666Z`. A run over midnight is nobody's figure.
fn time_ms(event: &Event) -> Option<u64> {
    let text = event.fields.get("t")?.as_str()?;
    let clock = text.split_once('T')?.1.trim_end_matches('Z');
    let mut parts = clock.split([':', '.']).map(|part| part.parse::<u64>().ok());
    let mut next = || parts.next().flatten();
    let (hours, minutes, seconds, ms) = (next()?, next()?, next()?, next()?);
    Some(((hours * 60 + minutes) * 60 + seconds) * 1000 + ms)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::{Tally, time_ms};
    use crate::events::Event;
    use crate::strike::Account;

    fn event(name: &str, ms: u64, process: u64) -> Event {
        let t = format!("2026-11-24T10:00:{:02}.{:03}Z", ms / 1000, ms % 1000);
        let fields = json!({ "t": t, "process": process, "primary": process, "order": "serial" });
        Event { name: name.to_owned(), fields }
    }

    #[test]
    fn the_share_is_of_the_first_process_and_of_two_copies() {
        let mut tally = Tally::default();
        let told = [
            event("started", 0, 7),
            event("protected", 100, 7),
            event("protected", 150, 8),
            event("unprotected", 200, 8),
            event("promoted", 600, 7),
            event("recloned", 610, 7),
            event("ended", 1000, 7),
        ];
        tally.note(&Account::default(), &told);
        assert_eq!((tally.protected_ms, tally.all_ms), (890, 1000));
        assert_eq!(tally.orders.len(), 1);
        assert_eq!(time_ms(&told[1]).map(|ms| ms % 1000), Some(100));
    }
}
