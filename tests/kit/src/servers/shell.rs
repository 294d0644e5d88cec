//! `kit shell`: a pipeline of five commands, and `make -j4` of a generated program, with one of their processes killed.
//! What they print and make must be what they print and make natively.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;
use std::time::Duration;

use anyhow::{Result, anyhow};

use super::batch::{Executed, Job, RETRIES};
use super::{Failure, Options, Outcome, Run, Title};
use crate::judge::difference;
use crate::place::installed;
use crate::rng::Rng;
use crate::strike::{Plan, Target};

/// Source files of the generated program.
const FILES: u64 = 16;

/// Runs the command. True if nothing failed.
pub fn run(options: &Options) -> Result<bool> {
    super::campaign(options, &Title { name: "shell", flags: String::new() }, "bash", |_| Ok(()), one)
}

fn one(run: &Run) -> Result<Outcome, Failure> {
    let script = pipeline(run.requests * 8);
    let nothing = |_: &Path| Ok(());
    let pipeline = Job {
        label: "shell-pipeline",
        program: ["bash", "-c", &script].map(Into::into).to_vec(),
        tree: true,
        prepare: &nothing,
    };
    let mut detail = format!("pipeline {}", both_ways(run, &pipeline, &|_| Ok(Vec::new()))?);
    if installed("make").is_none() || installed("cc").is_none() {
        return Ok(Outcome { detail: detail + "; make or cc is not installed", longest: None });
    }
    let seed = run.seed;
    let project = move |folder: &Path| project(folder, seed);
    let make = Job {
        label: "shell-make",
        program: ["make", "-s", "-j4"].map(Into::into).to_vec(),
        tree: true,
        prepare: &project,
    };
    let made = |dir: &Path| Ok(fs::read(dir.join("tmp/program"))?);
    write!(detail, "; make {}", both_ways(run, &make, &made)?).map_err(anyhow::Error::from)?;
    Ok(Outcome { detail, longest: None })
}

/// Five commands, of which the first has a process of its own for each tenth of the lines.
fn pipeline(lines: u64) -> String {
    format!(
        "set +m; set -o pipefail\n\
         for tenth in 0 1 2 3 4 5 6 7 8 9; do\n\
         (i=0; while [ $i -lt {tenth} ]; do echo \"$tenth $i $(((tenth * 7919 + i * 104729) % 9973))\"; \
         i=$((i + 1)); done)\n\
         done | awk '{{ print $3, $1, $2 }}' | sort -n | sed 's/7/seven/g' | tee sorted | cksum\n\
         wc -l <sorted; cksum <sorted; rm sorted",
        tenth = lines.div_ceil(10)
    )
}

/// A program of many files and its Makefile. Paths are relative: the same bytes in every folder.
fn project(folder: &Path, seed: u64) -> Result<()> {
    let mut rng = Rng::new(seed, "make");
    let mut main = "#include <stdio.h>\n".to_owned();
    let mut body = String::new();
    for file in 0..FILES {
        let mut text = String::from("#include <stdio.h>\n#include <stdlib.h>\n#include <string.h>\n");
        for function in 0..30 {
            let (a, b) = (rng.below(1 << 30), rng.below(1 << 30));
            writeln!(
                text,
                "static unsigned long f{function}(unsigned long x) {{ char s[64]; snprintf(s, sizeof s, \"%lu\", x ^ \
                 {a}ul); return strtoul(s, NULL, 10) * {b}ul + strlen(s); }}"
            )?;
        }
        let calls: String = (0..30).map(|function| format!("x = f{function}(x); ")).collect();
        writeln!(text, "unsigned long part{file}(unsigned long x) {{ {calls}return x; }}")?;
        fs::write(folder.join(format!("part{file}.c")), text)?;
        writeln!(main, "unsigned long part{file}(unsigned long x);")?;
        write!(body, "x = part{file}(x); ")?;
    }
    writeln!(main, "int main(void) {{ unsigned long x = 1; {body}printf(\"%lu\\n\", x); return 0; }}")?;
    fs::write(folder.join("main.c"), main)?;
    let objects: String = (0..FILES).map(|file| format!(" part{file}.o")).collect();
    let makefile = format!(
        "check: program\n\t./program\n\nprogram: main.o{objects}\n\tcc -o $@ $^\n\n%.o: %.c\n\tcc -O1 -c -o $@ $<\n"
    );
    Ok(fs::write(folder.join("Makefile"), makefile)?)
}

/// The native run, and protected ones until a kill has led to a promotion: the same output, the same file.
fn both_ways(run: &Run, job: &Job, made: &dyn Fn(&Path) -> Result<Vec<u8>>) -> Result<String, Failure> {
    let native = job.execute(run, None)?;
    let file = made(&native.dir)?;
    native.remove()?;
    let reference = native.ended;
    if run.understudy.is_none() {
        return Ok(format!("{:.0?}", reference.elapsed));
    }
    let mut rng = Rng::new(run.seed, job.label);
    let mut window = reference.elapsed;
    for _ in 0..=RETRIES {
        let plans = plans(run, &mut rng, window);
        let protected = job.execute(run, Some(&plans))?;
        let same = difference(&reference.stdout, &protected.ended.stdout)
            .or_else(|| differs(&file, made(&protected.dir)));
        match same {
            Some(_) if protected.is_void => {}
            Some(words) => return Err(failed(words, protected)),
            None if !run.kill || protected.promoted > 0 => {
                protected.remove()?;
                let (elapsed, promoted) = (protected.ended.elapsed, protected.promoted);
                return Ok(format!("{elapsed:.0?}, {promoted} promotions ({})", protected.kills));
            }
            None => {}
        }
        protected.remove()?;
        window /= 2;
    }
    Err(anyhow!("{} ended before each of {} kills", job.label, RETRIES + 1).into())
}

fn plans(run: &Run, rng: &mut Rng, window: Duration) -> Vec<Plan> {
    let plan = |delay: Duration, rng: &mut Rng| Plan {
        target: Target::Primary,
        delay,
        choice: rng.draw(),
        again: None,
    };
    match &run.life {
        _ if !run.kill => Vec::new(),
        None => vec![plan(window.mul_f64(rng.fraction()), rng)],
        Some((kills, every)) => {
            let gap = |rng: &mut Rng| every.0.start + rng.below(every.0.end - every.0.start);
            (0..*kills).map(|_| plan(Duration::from_millis(gap(rng)), rng)).collect()
        }
    }
}

fn differs(expected: &[u8], made: Result<Vec<u8>>) -> Option<String> {
    match made {
        Ok(made) if made == expected => None,
        Ok(made) => Some(format!("what was made differs: {} bytes, natively {}", made.len(), expected.len())),
        Err(error) => Some(format!("what was made cannot be read: {error:#}")),
    }
}

fn failed(why: String, executed: Executed) -> Failure {
    Failure {
        why: format!("{why}\nkills, each after protection: {}", executed.kills),
        dir: Some(executed.dir),
    }
}
