//! One guest that is recorded with its states besides, and replayed from each of them.

use std::fs;
use std::path::Path;
use std::time::Duration;

use anyhow::Result;

use crate::guest::Guest;
use crate::judge;
use crate::process::{Launch, Sink};
use crate::servers::recorded;
use crate::trial::{Reference, Stage, Verdict, group_name, launch, program, verdict};

/// Replays of one recording, at most.
const REPLAYS: usize = 4;

/// States kept of one run, about so many.
const STATES: u32 = 5;

/// The shortest time between two.
const SHORTEST: Duration = Duration::from_millis(10);

impl Stage<'_> {
    /// Records the guest with some of its states, and replays from several of them, and from the beginning: each shows the end of what
    /// the recorded run has shown, and ends as it did. Also how many began in the middle.
    pub fn middle(&self, guest: &Guest, sink: Sink, reference: &Reference) -> Result<(Verdict, usize)> {
        let understudy = self.understudy.expect("recorded runs are planned only with a binary");
        let dir = self.place.fresh(&guest.name)?;
        let group = group_name(&dir);
        let file = dir.join("recording");
        let serial = guest.wants.serial.is_some();
        let mut command = recorded::command(understudy, serial, &group, &file, program(guest));
        let interval = (reference.elapsed / STATES).max(SHORTEST).as_secs_f64().to_string();
        command.splice(2..2, ["--checkpoint-interval".into(), interval.into()]);
        let ended = launch(guest, command, &dir, sink)?.finish(self.limit)?;
        let mut complaints = judge::judge_output(guest, &ended, Some(&reference.stdout));
        complaints.extend(judge::judge_code(guest.wants.end, ended.status));
        complaints.extend(judge::judge_remains(Some(&dir), &ended, Some(&group)));
        let states = states(&file);
        // The first, the last, and some between.
        let step = states.len().div_ceil(REPLAYS).max(1);
        let chosen = states.iter().rev().step_by(step).copied().chain([0]);
        for event in chosen {
            if !complaints.is_empty() {
                break;
            }
            let folder = dir.join(format!("replay-{event}"));
            fs::create_dir_all(folder.join("tmp"))?;
            let command = vec![
                understudy.into(),
                "replay".into(),
                "--from".into(),
                event.to_string().into(),
                file.clone().into(),
            ];
            let again =
                Launch { command, dir: folder.clone(), stdin: None, sink }.spawn()?.finish(self.limit)?;
            let what = |text: String| format!("replay from {event}: {text}");
            if !ended.stdout.ends_with(&again.stdout) || event == 0 && ended.stdout != again.stdout {
                complaints.push(what("stdout is not the end of the recorded run's".into()));
            }
            complaints.extend(judge::judge_code(guest.wants.end, again.status).into_iter().map(what));
            let said = fs::read_to_string(folder.join("stderr")).unwrap_or_default();
            let is_news =
                |line: &&str| !line.contains(": from event ") && !line.contains(": from its beginning");
            let ours = said.lines().filter(|line| line.starts_with("understudy")).filter(is_news);
            complaints.extend(ours.map(|line| what(line.to_owned())));
        }
        let active = ended.elapsed;
        Ok((verdict(complaints, dir, ended, active, 0)?, states.len()))
    }
}

/// The events before which there is a state, in order.
fn states(file: &Path) -> Vec<u64> {
    let mut folder = file.as_os_str().to_owned();
    folder.push(".checkpoints");
    let names = fs::read_dir(folder).into_iter().flatten().filter_map(Result::ok);
    let mut all: Vec<u64> = names.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect();
    all.sort_unstable();
    all
}
