//! `kit pbzip2`: compress and decompress with 2, 4 and 8 threads; the bytes must be the native run's.

use std::ffi::OsString;
use std::fs;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use anyhow::{Result, anyhow};

use super::{Failure, Options, Outcome, Run, Title};
use crate::events;
use crate::process::{Ended, Launch, Sink};
use crate::rng::Rng;
use crate::strike::{Assassin, Plan, Target, protected_command};
use crate::trial::{Kills, difference, group_name, judge_events};

/// How often a kill that came too late is tried again at half the moment.
const RETRIES: u32 = 6;

/// Runs the command. True if nothing failed.
pub fn run(options: &Options) -> Result<bool> {
    super::campaign(options, &Title { name: "pbzip2", flags: String::new() }, "pbzip2", |_| Ok(()), one)
}

fn one(run: &Run) -> Result<Outcome, Failure> {
    let data = run.place.fresh("pbzip2-data")?;
    let plain = data.join("plain");
    fs::write(&plain, text(run.seed, run.requests * 1024)).map_err(anyhow::Error::from)?;
    let mut words = Vec::new();
    for threads in [2, 4, 8] {
        let packed = data.join("packed");
        let (bytes, detail) = both_ways(run, &["-c", "-z", &format!("-p{threads}")], &plain)?;
        fs::write(&packed, bytes).map_err(anyhow::Error::from)?;
        let (bytes, more) = both_ways(run, &["-c", "-d", &format!("-p{threads}")], &packed)?;
        if bytes != fs::read(&plain).map_err(anyhow::Error::from)? {
            return Err(anyhow!("decompressing does not give the original back").into());
        }
        words.push(format!("-p{threads}: {detail}, {more}"));
    }
    fs::remove_dir_all(&data).map_err(anyhow::Error::from)?;
    Ok(Outcome { detail: words.join("; "), longest: None })
}

/// The native run's bytes, after the protected run has shown the same.
fn both_ways(run: &Run, flags: &[&str], input: &Path) -> Result<(Vec<u8>, String), Failure> {
    let native = execute(run, flags, input, None)?;
    let reference = native.ended;
    fs::remove_dir_all(&native.dir).map_err(anyhow::Error::from)?;
    if run.understudy.is_none() {
        return Ok((reference.stdout, format!("{:.0?}", reference.elapsed)));
    }
    let mut moment = reference.elapsed.mul_f64(Rng::new(run.seed, &flags.join(" ")).fraction());
    for _ in 0..=RETRIES {
        let protected = execute(run, flags, input, Some(moment))?;
        if let Some(words) = difference(&reference.stdout, &protected.ended.stdout) {
            return Err(Failure { why: words, dir: Some(protected.dir) });
        }
        fs::remove_dir_all(&protected.dir).map_err(anyhow::Error::from)?;
        if !run.kill || protected.promoted {
            return Ok((reference.stdout, format!("{:.0?}", protected.ended.elapsed)));
        }
        moment /= 2;
    }
    Err(anyhow!("pbzip2 ended before each of {} kills", RETRIES + 1).into())
}

struct Executed {
    ended: Ended,
    dir: std::path::PathBuf,
    promoted: bool,
}

fn execute(run: &Run, flags: &[&str], input: &Path, kill: Option<Duration>) -> Result<Executed, Failure> {
    let dir = run.place.fresh("pbzip2")?;
    let (events_file, group) = (dir.join("events"), group_name(&dir));
    let mut program: Vec<OsString> = vec!["pbzip2".into()];
    program.extend(flags.iter().map(Into::into));
    program.push(input.into());
    let understudy = run.understudy.as_deref().filter(|_| kill.is_some());
    let command = match understudy {
        Some(understudy) => protected_command(understudy, &group, &events_file, program),
        None => program,
    };
    // A file: of a write to somebody else's pipe that is larger than the pipe, nobody can tell how much went out.
    let tree = Launch { command, dir: dir.clone(), stdin: None, sink: Sink::File }.spawn()?;
    let over = AtomicBool::new(false);
    let ended = thread::scope(|scope| {
        if let (Some(understudy), Some(moment), true) = (understudy, kill, run.kill) {
            let assassin = Assassin { events: &events_file, understudy, group: &group, over: &over };
            scope.spawn(move || assassin.strike_each(&[Plan { target: Target::Primary, delay: moment }]));
        }
        let ended = tree.finish(run.limit);
        over.store(true, Ordering::Release);
        ended
    })
    .map_err(|error| Failure::of(error, &dir))?;
    let lifecycle = events::read_all(&events_file);
    let complaints = match understudy {
        Some(_) => judge_events(&[], &lifecycle, &Kills { primary: run.kill, standbys: 0 }),
        None => Vec::new(),
    };
    let why = match ended.status {
        None => Some("timed out".to_owned()),
        Some(status) if !status.success() => Some(format!("ended with {status}")),
        _ if !complaints.is_empty() => Some(complaints.join("\n")),
        _ if !ended.left_behind.is_empty() => Some(format!("processes left behind: {:?}", ended.left_behind)),
        _ => None,
    };
    match why {
        Some(why) => Err(Failure { why, dir: Some(dir) }),
        None => {
            let promoted = lifecycle.iter().any(|event| event.name == "promoted");
            Ok(Executed { ended, dir, promoted })
        }
    }
}

/// Text that compresses by about half: words from a small list with numbers between.
fn text(seed: u64, size: u64) -> Vec<u8> {
    const WORDS: [&str; 8] = ["primary", "standby", "ring", "clock", "ticket", "guest", "event", "epoch"];
    let mut rng = Rng::new(seed, "pbzip2 text");
    let mut text = Vec::new();
    while (text.len() as u64) < size {
        let word = WORDS[rng.below(8) as usize];
        text.extend(format!("{word} {} ", rng.below(10_000)).into_bytes());
    }
    text
}
