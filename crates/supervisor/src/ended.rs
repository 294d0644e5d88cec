//! What stays of a group for a day: how it ended.
//!
//! One file for each name, in a folder beside those of the groups. No group can have that folder's name. All of it lies in memory,
//! as the groups do: it is little, bounded, and gone with the next boot.

use serde::{Deserialize, Serialize};

use crate::clock;
use crate::computed::Computed;
use crate::dir::Dir;
use crate::folder::{Meta, Recording};
use crate::history::{self, Divergence, Failover, History, Lost};
use crate::options::check_name;
use crate::place;
use crate::reap::End;

/// The folder's name.
pub const FOLDER: &str = "@ended";

/// How long a group's end is remembered, seconds.
const KEPT_S: u64 = 24 * 3600;

/// How many are, the last ones.
const KEPT: usize = 100;

/// How many entries of each kind are, the last ones.
const ENTRIES: usize = 10;

/// How much of a command line is, bytes.
const COMMAND_BYTES: usize = 4096;

/// No file of ours is longer.
const BYTES_MAX: u64 = 1 << 20;

/// One group that has ended.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Ended {
    /// Its name.
    pub name: String,
    /// PROGRAM and its arguments, as far as a few kilobytes go.
    pub program: Vec<String>,
    /// Its start, RFC 3339.
    pub since: String,
    /// Its end, RFC 3339.
    pub at: String,
    /// How it ended, in words.
    pub how: String,
    /// What `run` ended with; `None` when nobody saw the program's end.
    pub exit_code: Option<i32>,
    /// Share of its life under protection, 0 to 1.
    pub protected_share: f64,
    /// Failovers of all processes.
    pub failovers_total: u64,
    /// The last of them.
    pub failovers: Vec<Failover>,
    /// Divergences of all processes.
    pub divergences_total: u64,
    /// The last of them.
    pub divergences: Vec<Divergence>,
    /// Processes that were killed and that nobody took over for.
    pub lost_total: u64,
    /// The last of them.
    pub lost: Vec<Lost>,
    /// The recording that was written, if there was one.
    pub recording: Option<Recording>,
    /// Of an order that was computed: what it came to in the program itself.
    #[serde(flatten)]
    pub computed: Option<Computed>,
}

impl Ended {
    /// What is to be said of a group that ends now; without `end` nobody saw how.
    pub fn of(name: &str, meta: &Meta, history: &History, end: Option<End>) -> Ended {
        let unseen = "nobody saw how: its supervisor had been killed before";
        Ended {
            name: name.into(),
            program: beginning(&meta.program),
            since: meta.since.clone(),
            at: clock::now_text(),
            how: end.map_or(unseen.into(), End::words),
            exit_code: end.map(End::exit_code),
            protected_share: history.stretches.protected_share(meta.since_ns, clock::monotonic_ns()),
            failovers_total: history.failovers.total,
            failovers: last(&history.failovers.last),
            divergences_total: history.divergences.total,
            divergences: last(&history.divergences.last),
            lost_total: history.lost.total,
            lost: last(&history.lost.last),
            recording: meta.recording.clone(),
            computed: None,
        }
    }
}

fn last<T: Clone>(all: &std::collections::VecDeque<T>) -> Vec<T> {
    history::last(all, ENTRIES).cloned().collect()
}

/// As many of the words as are not too long together.
fn beginning(words: &[String]) -> Vec<String> {
    let mut bytes = 0;
    let fits = |word: &&String| {
        bytes += word.len();
        bytes <= COMMAND_BYTES
    };
    words.iter().take_while(fits).cloned().collect()
}

/// Keeps it in `state`. Where there is no room for it, `status` lacks it, and nothing else does.
pub fn keep(state: &Dir, ended: &Ended) {
    let _ = state.make_folder(FOLDER);
    let Ok(folder) = state.folder(FOLDER) else { return };
    if let Ok(bytes) = serde_json::to_vec(ended) {
        let _ = folder.replace(&file(&ended.name), &bytes);
    }
    clear(&folder);
}

fn file(name: &str) -> String {
    format!("{name}.json")
}

/// The groups of this user that have ended in the last day, the last one first.
pub fn all() -> Vec<Ended> {
    let mut all: Vec<Ended> = place::existing().iter().flat_map(read).collect();
    all.sort_by(|a, b| b.at.cmp(&a.at));
    all
}

fn read(state: &Dir) -> Vec<Ended> {
    let Ok(folder) = state.folder(FOLDER) else { return Vec::new() };
    clear(&folder);
    let names = folder.names().into_iter().filter_map(|name| name.into_string().ok());
    let all = names.filter_map(|name| {
        let ended: Ended = serde_json::from_slice(&folder.read(&name, BYTES_MAX).ok()?).ok()?;
        (check_name(&ended.name).is_ok() && file(&ended.name) == name).then_some(ended)
    });
    all.collect()
}

/// Forgets what is too old, and the oldest of too many.
fn clear(folder: &Dir) {
    let now_s = clock::unix_ns() / 1_000_000_000;
    let mut all: Vec<_> =
        folder.names().into_iter().map(|name| (folder.changed_s(&name).unwrap_or(0), name)).collect();
    all.sort();
    let too_many = all.len().saturating_sub(KEPT);
    for (at, (changed_s, name)) in all.into_iter().enumerate() {
        if at < too_many || changed_s + KEPT_S <= now_s {
            // Another may have been quicker.
            let _ = folder.remove(name);
        }
    }
}

/// Removes the folder if nothing is in it that is still to be kept.
pub fn leave(state: &Dir) {
    if let Ok(folder) = state.folder(FOLDER) {
        clear(&folder);
        if folder.names().is_empty() {
            let _ = state.remove_all(FOLDER);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::time::{Duration, SystemTime};

    use super::*;

    fn ended(name: &str) -> Ended {
        let program = vec!["server".into(), "x".repeat(COMMAND_BYTES)];
        let meta = Meta {
            version: 1,
            program,
            order: "auto".into(),
            since: "2026-01-01T00:00:00.000Z".into(),
            since_ns: 0,
            supervisor: crate::folder::ProcessId::default(),
            root: 1,
            lead: 1,
            primary: crate::folder::ProcessId::default(),
            standbys: 1,
            reprotect: true,
            probe: None,
            recording: None,
        };
        Ended::of(name, &meta, &History::default(), Some(End::Killed(9)))
    }

    #[test]
    fn an_end_is_kept_for_a_day_and_the_last_hundred_are() {
        let temp = tempfile::tempdir().unwrap();
        let state = Dir::open(temp.path()).unwrap();
        keep(&state, &ended("a"));
        assert_eq!(
            read(&state).iter().map(|ended| ended.how.as_str()).collect::<Vec<_>>(),
            ["killed by SIGKILL"]
        );
        assert_eq!(
            (&read(&state)[0].program, read(&state)[0].exit_code),
            (&vec!["server".into()], Some(137))
        );
        let age = |name: &str, hours: u64| {
            let path = temp.path().join(FOLDER).join(file(name));
            let at = SystemTime::now() - Duration::from_secs(hours * 3600);
            File::options().write(true).open(path).unwrap().set_modified(at).unwrap();
        };
        age("a", 23);
        assert_eq!(read(&state).len(), 1);
        (0..KEPT).for_each(|number| keep(&state, &ended(&format!("b{number}"))));
        assert!(read(&state).len() == KEPT && read(&state).iter().all(|ended| ended.name != "a"));
        (0..KEPT).for_each(|number| age(&format!("b{number}"), 25));
        leave(&state);
        assert!(!temp.path().join(FOLDER).exists());
    }

    #[test]
    fn a_planted_file_is_passed_over() {
        let temp = tempfile::tempdir().unwrap();
        let state = Dir::open(temp.path()).unwrap();
        keep(&state, &ended("a"));
        let folder = temp.path().join(FOLDER);
        std::fs::copy(folder.join("a.json"), folder.join("b.json")).unwrap();
        std::fs::write(folder.join("c.json"), "nonsense").unwrap();
        std::os::unix::fs::symlink(folder.join("a.json"), folder.join("d.json")).unwrap();
        assert_eq!(read(&state).len(), 1);
    }
}
