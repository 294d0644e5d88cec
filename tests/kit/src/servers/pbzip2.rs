//! `kit pbzip2`: compress and decompress with 2, 4 and 8 threads; the bytes must be the native run's.

use std::ffi::OsString;
use std::fs;
use std::path::Path;

use anyhow::{Result, anyhow};

use super::batch::{Job, RETRIES};
use super::{Failure, Options, Outcome, Run, Title};
use crate::judge::difference;
use crate::rng::Rng;
use crate::strike::{Plan, Target};

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
    let mut program: Vec<OsString> = vec!["pbzip2".into()];
    program.extend(flags.iter().map(Into::into));
    program.push(input.into());
    let job = Job { label: "pbzip2", program, tree: false, prepare: &|_| Ok(()) };
    let native = job.execute(run, None)?;
    native.remove()?;
    let reference = native.ended;
    if run.understudy.is_none() {
        return Ok((reference.stdout, format!("{:.0?}", reference.elapsed)));
    }
    let mut moment = reference.elapsed.mul_f64(Rng::new(run.seed, &flags.join(" ")).fraction());
    for _ in 0..=RETRIES {
        let plan = Plan { target: Target::Primary, delay: moment, choice: 0, again: None };
        let protected = job.execute(run, Some(if run.kill { std::slice::from_ref(&plan) } else { &[] }))?;
        if let Some(words) = difference(&reference.stdout, &protected.ended.stdout) {
            return Err(Failure { why: words, dir: Some(protected.dir) });
        }
        protected.remove()?;
        if !run.kill || protected.promoted > 0 {
            return Ok((reference.stdout, format!("{:.0?}", protected.ended.elapsed)));
        }
        moment /= 2;
    }
    Err(anyhow!("pbzip2 ended before each of {} kills", RETRIES + 1).into())
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
