//! The tally and the words of a kit run.

use std::collections::BTreeMap;
use std::sync::Mutex;

/// Counts, shared by all workers.
#[derive(Default)]
pub struct Report {
    inner: Mutex<Counts>,
}

#[derive(Default)]
struct Counts {
    passed: u32,
    failed: u32,
    skipped: u32,
    kills_hit: u32,
    kills_missed: u32,
    storm_kills: usize,
    void: u32,
    unsteady: Vec<String>,
    failures: Vec<String>,
    skips: BTreeMap<String, Vec<String>>,
}

impl Report {
    fn with<T>(&self, change: impl FnOnce(&mut Counts) -> T) -> T {
        change(&mut self.inner.lock().expect("no panic under this lock"))
    }

    /// One case passed.
    pub fn pass(&self, what: &str, detail: &str) {
        self.with(|counts| {
            counts.passed += 1;
            println!("pass  {what}  {detail}");
        });
    }

    /// One case failed: why, where its artifacts are, and the command that repeats it.
    pub fn fail(&self, what: &str, why: &str, artifacts: &str, repeat: &str) {
        self.with(|counts| {
            counts.failed += 1;
            counts.failures.push(what.to_owned());
            tell("FAIL", what, why, artifacts, repeat);
        });
    }

    /// One case with kills failed, and will be tried again: the same words. [`Report::cleared`] says how it ended.
    pub fn suspect(&self, what: &str, why: &str, artifacts: &str, repeat: &str) {
        self.with(|_| tell("RACE", what, why, artifacts, repeat));
    }

    /// A case that failed once was tried again several times.
    pub fn cleared(&self, what: &str, passed: bool) {
        self.with(|counts| {
            if passed {
                counts.unsteady.push(what.to_owned());
            } else {
                counts.failed += 1;
                counts.failures.push(what.to_owned());
            }
        });
    }

    /// How many cases have failed so far.
    pub fn failed(&self) -> u32 {
        self.with(|counts| counts.failed)
    }

    /// One case was not run.
    pub fn skip(&self, what: &str, why: &str) {
        self.with(|counts| {
            counts.skipped += 1;
            counts.skips.entry(why.to_owned()).or_default().push(what.to_owned());
        });
    }

    /// A kill that led to a promotion, or one that came after the guest's end.
    pub fn kill(&self, hit: bool) {
        self.with(|counts| if hit { counts.kills_hit += 1 } else { counts.kills_missed += 1 });
    }

    /// A storm of so many kills.
    pub fn storm(&self, kills: usize) {
        self.with(|counts| counts.storm_kills += kills);
    }

    /// A run with a kill that met a child process at its end, and was made again.
    pub fn void(&self) {
        self.with(|counts| counts.void += 1);
    }

    /// Prints the summary; true if nothing failed, and no more than `unsteady` cases failed once of many times.
    pub fn finish(&self, unsteady: usize) -> bool {
        self.with(|counts| {
            if !counts.unsteady.is_empty() {
                let (count, names) = (counts.unsteady.len(), counts.unsteady.join(", "));
                println!(
                    "unsteady: {names} ({count}, at most {unsteady}): failed once, and in at most one of five runs after that"
                );
                if count > unsteady {
                    counts.failed += count as u32;
                }
            }
            for (why, whats) in &counts.skips {
                println!("skip  {} ({}): {why}", whats.join(", "), whats.len());
            }
            if !counts.failures.is_empty() {
                println!("failed: {}", counts.failures.join(", "));
            }
            if counts.kills_hit + counts.kills_missed > 0 {
                println!("kills: {} hit, {} missed", counts.kills_hit, counts.kills_missed);
            }
            if counts.storm_kills > 0 {
                println!("kills of storms: {}", counts.storm_kills);
            }
            if counts.void > 0 {
                println!("runs made again, a kill having met a child at its end: {}", counts.void);
            }
            println!("{} passed, {} failed, {} skipped", counts.passed, counts.failed, counts.skipped);
            counts.failed == 0
        })
    }
}

fn tell(verdict: &str, what: &str, why: &str, artifacts: &str, repeat: &str) {
    println!("{verdict}  {what}\n      {}", why.replace('\n', "\n      "));
    if !artifacts.is_empty() {
        println!("      artifacts: {artifacts}");
    }
    println!("      repeat:    {repeat}");
}
