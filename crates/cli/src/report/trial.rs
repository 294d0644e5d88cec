//! What a trial of a program under load has shown, for people.

use std::fmt::Write;

use serde::Serialize;
use us_supervisor::history::Divergence;
use us_supervisor::status::Status;
use us_supervisor::terminal::plain;

use super::{Told, places, table};

/// A program's runs, and what follows from them.
#[derive(Debug, Default, Serialize)]
pub struct Trial {
    /// Version of these fields.
    pub version: u32,
    /// How long each load was allowed to take.
    pub seconds: f64,
    /// Natively, protected, and in turns if the copies differed.
    pub runs: Vec<Run>,
    /// What to set, and what else is to be known.
    pub advice: Vec<String>,
}

/// The program's runs in one way.
#[derive(Debug, Default, Serialize)]
pub struct Run {
    /// `--order`; none where it ran natively.
    pub order: Option<String>,
    /// How often it was run: one that ends by itself, again and again.
    pub times: u32,
    /// How long the load took, or the program where that ends by itself, all times together.
    pub time_s: f64,
    /// Processor time of the program, with Understudy's part.
    pub cpu_s: f64,
    /// Share of its time under protection.
    pub protected_share: f64,
    /// How often copies have differed.
    pub divergences_total: u64,
    /// As far as they are kept, in order.
    pub divergences: Vec<Divergence>,
    /// Group of the last divergence: `explain` knows it for a day.
    pub group: Option<String>,
    /// Why it was unprotected when it was looked at last.
    pub why: Option<String>,
    /// It ended by itself.
    pub ended_by_itself: bool,
    /// The load came to its end.
    pub load_ended: bool,
    /// The load ended with an error.
    pub load_failed: bool,
}

impl Run {
    /// Of the group `name`, which lived for so long.
    pub fn note(&mut self, name: &str, found: &Status, time_s: f64) {
        let (share, total, mut last, why) = match (found.groups.first(), found.ended.first()) {
            (Some(group), _) => (
                group.protected_share,
                group.divergences_total,
                group.divergences.iter().cloned().collect(),
                group.why.clone(),
            ),
            (None, Some(ended)) => {
                (ended.protected_share, ended.divergences_total, ended.divergences.clone(), None)
            }
            (None, None) => return,
        };
        let before_s = self.time_s;
        self.protected_share =
            (self.protected_share * before_s + share * time_s) / (before_s + time_s).max(f64::EPSILON);
        if total > 0 {
            self.group = Some(name.into());
        }
        self.divergences_total += total;
        self.divergences.append(&mut last);
        self.why = why;
    }
}

impl Trial {
    /// Says what to set.
    pub fn conclude(&mut self) {
        const NEARLY_ALWAYS: f64 = 0.95;
        let mut advice = Vec::new();
        let percent = |run: &Run| format!("{:.1} %", run.protected_share * 100.0);
        if let [native, scheduled, turns @ ..] = &self.runs[..] {
            if native.load_failed || scheduled.load_failed {
                advice.push("The load ended with an error: what is measured is of little use.".to_owned());
            }
            if native.ended_by_itself
                && native.times == 1
                && native.time_s < 0.5
                && !scheduled.ended_by_itself
            {
                advice.push("Natively the program ended before its load began.".into());
            }
            match turns.first() {
                None if scheduled.protected_share >= NEARLY_ALWAYS => {
                    advice.push("Nothing need be set: its copies have not differed.".into());
                }
                None => {
                    let why = scheduled.why.as_deref().unwrap_or("see LIMITS, Protection ends");
                    advice.push(format!(
                        "Its copies have not differed, but it was protected {} of the time: {why}",
                        percent(scheduled)
                    ));
                }
                Some(turns) if turns.divergences_total < scheduled.divergences_total => {
                    advice.push(format!(
                        "Turns help: protected {} of the time instead of {}, and its threads use one processor. Set --order \
                         serial, or leave --order auto, which begins with turns after the first divergence.",
                        percent(turns),
                        percent(scheduled)
                    ));
                }
                Some(_) => advice.push(
                    "Turns do not help: it differs by something else than the order of its threads (LIMITS, Divergence)."
                        .into(),
                ),
            }
            if let Some(group) = &scheduled.group {
                advice.push(format!("understudy explain {group} shows the call stacks, for a day."));
            }
        }
        self.advice = advice;
    }
}

/// A table of the runs, the places, and the advice.
pub fn trial(trial: &Trial) -> String {
    let mut rows = vec![["RUN", "TIMES", "PROTECTED", "DIVERGENCES", "TIME", "CPU"].map(String::from)];
    let native = trial.runs.first();
    rows.extend(trial.runs.iter().map(|run| {
        let is_native = run.order.is_none();
        let or_nothing = |text: String| if is_native { "-".into() } else { text };
        [
            run.order.as_deref().map_or("native".into(), |order| format!("--order {order}")),
            run.times.to_string(),
            or_nothing(format!("{:.1} %", run.protected_share * 100.0)),
            or_nothing(run.divergences_total.to_string()),
            figure(per_run(run, run.time_s), native.map(|native| per_run(native, native.time_s)), is_native),
            figure(per_run(run, run.cpu_s), native.map(|native| per_run(native, native.cpu_s)), is_native),
        ]
    }));
    let mut text = table(&rows);
    for run in trial.runs.iter().filter(|run| run.divergences_total > 0) {
        let order = run.order.as_deref().unwrap_or_default();
        let _ = writeln!(text, "\nWhere copies differed with --order {order}:");
        let last = run.divergences.iter().collect();
        text += &places("it", &Told { total: run.divergences_total, last, failovers: Vec::new() });
    }
    text += "\n";
    for line in &trial.advice {
        let _ = writeln!(text, "{}", plain(line));
    }
    text
}

fn per_run(run: &Run, sum: f64) -> f64 {
    sum / f64::from(run.times.max(1))
}

/// Seconds, and how much more than natively that is.
fn figure(found: f64, native: Option<f64>, is_native: bool) -> String {
    // Processor time is counted in hundredths of a second.
    const LITTLE_S: f64 = 0.05;
    match native {
        Some(native) if !is_native && native >= LITTLE_S => {
            format!("{found:.2} s ({:+.0} %)", (found / native - 1.0) * 100.0)
        }
        _ => format!("{found:.2} s"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(order: Option<&str>, share: f64, divergences_total: u64) -> Run {
        let order = order.map(Into::into);
        Run {
            order,
            times: 2,
            time_s: 4.0,
            cpu_s: 1.0,
            protected_share: share,
            divergences_total,
            ..Run::default()
        }
    }

    fn concluded(runs: Vec<Run>) -> String {
        let mut all = Trial { version: 1, seconds: 5.0, runs, ..Trial::default() };
        all.conclude();
        trial(&all)
    }

    #[test]
    fn what_to_set() {
        let native = || run(None, 0.0, 0);
        let said = concluded(vec![native(), run(Some("schedule"), 0.999, 0)]);
        assert!(said.ends_with("\nNothing need be set: its copies have not differed.\n"), "{said}");
        let mut unprotected = run(Some("schedule"), 0.0, 0);
        unprotected.why = Some("io_uring".into());
        let said = concluded(vec![native(), unprotected]);
        assert!(said.contains("protected 0.0 % of the time: io_uring\n"), "{said}");
        let mut dear = run(Some("serial"), 0.99, 0);
        dear.cpu_s = 1.5;
        let said = concluded(vec![native(), run(Some("schedule"), 0.1, 9), dear]);
        assert!(said.contains("Turns help: protected 99.0 % of the time instead of 10.0 %"), "{said}");
        assert!(said.contains("0.75 s (+50 %)") && said.contains("2.00 s (+0 %)"), "{said}");
        let said = concluded(vec![native(), run(Some("schedule"), 0.1, 9), run(Some("serial"), 0.1, 9)]);
        assert!(said.contains("Turns do not help"), "{said}");
    }
}
