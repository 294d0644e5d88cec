//! The ledger: how many instructions and stores of ours a call costs in the primary.
//!
//! Returns behind a system call from functions that were entered before it are counted as well: the kernel empties the
//! processor's record of returns, so each is mispredicted, and costs as much as some twenty instructions.
//!
//! A program makes a call some times between two marks. Its primary is followed instruction by instruction, so the figures
//! need no clock and no quiet machine: a change that makes a door dearer shows in `bench/ledger.txt`, which the commit then
//! changes as well. What the kernel, libc and the program do is not counted.

mod trace;

use std::collections::BTreeMap;
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use clap::Parser;
use trace::{Cost, Traced};

/// What is counted, as `calls.c` names it.
const CALLS: [&str; 24] = [
    "lock",
    "rwlock",
    "semaphore",
    "clock",
    "getppid",
    "read64",
    "read16k",
    "write64",
    "send64",
    "recv64",
    "epoll",
    "control",
    "poll",
    "sendmsg64",
    "recvmsg64",
    "writev64",
    "readv64",
    "recv0",
    "pipe_w64",
    "pipe_r64",
    "pread64",
    "pwrite64",
    "fstat",
    "openclose",
];

/// Passages that are counted of each call.
const PASSAGES: usize = 16;

/// A figure may differ by so much, in hundredths: which path a door takes depends on alignment as well.
const TOLERANCE: u64 = 5;

/// Counts the instructions and stores of calls in a protected primary.
#[derive(Parser)]
struct Arguments {
    /// The command under test
    #[arg(long, env = "UNDERSTUDY", default_value = "target/release/understudy")]
    understudy: PathBuf,
    /// The ledger
    #[arg(long, default_value = "bench/ledger.txt")]
    ledger: PathBuf,
    /// Where the program is built
    #[arg(long, default_value = "target/ledger")]
    target: PathBuf,
    /// Write the ledger, instead of comparing with it
    #[arg(long)]
    write: bool,
    /// List the instructions of one passage of this call, as addresses of the library, instead
    #[arg(long, value_name = "CALL")]
    list: Option<String>,
}

/// Who compiled the runtime: figures of another compiler are other figures.
fn compiler() -> Result<String> {
    let output = Command::new("rustc").arg("--version").output().context("run rustc")?;
    Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

fn build(target: &Path) -> Result<PathBuf> {
    fs::create_dir_all(target)?;
    let program = target.join("calls");
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("calls.c");
    let compiler = std::env::var("CC").unwrap_or_else(|_| "cc".into());
    // At a fixed address, and each operation a function of its own.
    let status = Command::new(compiler)
        .args(["-O1", "-g", "-no-pie", "-pthread", "-o"])
        .args([&program, &source])
        .status()
        .context("run the C compiler")?;
    ensure!(status.success(), "{} does not compile", source.display());
    Ok(program)
}

/// A protected program, which is ended with this.
struct Run {
    child: Child,
    folder: PathBuf,
    /// Both copies, once there are two: a primary outlives its supervisor, and would keep our output open for ever.
    copies: Vec<OwnedFd>,
}

/// Holds a process, whatever becomes of its number.
fn hold(pid: u32) -> Option<OwnedFd> {
    // SAFETY: asks for a descriptor, which is nobody else's.
    unsafe {
        let fd = libc::syscall(libc::SYS_pidfd_open, pid, 0);
        (fd >= 0).then(|| OwnedFd::from_raw_fd(fd as i32))
    }
}

impl Run {
    fn start(understudy: &Path, program: &Path, call: &str) -> Result<Run> {
        // In memory, and not among the user's own groups.
        let folder = PathBuf::from(format!("/dev/shm/ledger-{}-{call}", std::process::id()));
        fs::DirBuilder::new().mode(0o700).create(&folder)?;
        let child = Command::new(understudy)
            .env("UNDERSTUDY_DIR", folder.join("state"))
            .args(["run", "-q", "--name"])
            .arg(format!("ledger-{}-{call}", std::process::id()))
            .arg("--events")
            .arg(folder.join("events"))
            .arg("--")
            .args([program.as_os_str(), call.as_ref()])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .with_context(|| format!("start {}", understudy.display()))?;
        Ok(Run { child, folder, copies: Vec::new() })
    }

    /// The primary and its standby, once there is one.
    fn copies(&mut self) -> Result<(u32, u32)> {
        let begin = Instant::now();
        while begin.elapsed() < Duration::from_secs(20) {
            let events = fs::read_to_string(self.folder.join("events")).unwrap_or_default();
            let protected = events
                .lines()
                .filter_map(|line| serde_json::from_str::<serde_json::Value>(line).ok())
                .find(|event| event["event"] == "protected");
            let copy = |name| protected.as_ref().and_then(|event| event[name].as_u64());
            if let (Some(primary), Some(standby)) = (copy("primary"), copy("standby")) {
                self.copies.extend([primary, standby].iter().filter_map(|pid| hold(*pid as u32)));
                return Ok((primary as u32, standby as u32));
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        bail!("the program is not protected after 20 s")
    }
}

impl Drop for Run {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        for copy in &self.copies {
            // SAFETY: a signal to the process that is held.
            unsafe {
                libc::syscall(libc::SYS_pidfd_send_signal, copy.as_raw_fd(), libc::SIGKILL, 0, 0);
            }
        }
        let _ = fs::remove_dir_all(&self.folder);
    }
}

/// What most passages cost: one that waits for its standby, or begins a new lap of the ring, is another path.
fn typical(costs: &[Cost]) -> Option<Cost> {
    let mut counts = BTreeMap::<Cost, usize>::new();
    costs.iter().for_each(|cost| *counts.entry(*cost).or_default() += 1);
    counts.into_iter().max_by_key(|(cost, count)| (*count, std::cmp::Reverse(*cost))).map(|(cost, _)| cost)
}

fn count(arguments: &Arguments, program: &Path, call: &str) -> Result<Cost> {
    let mut run = Run::start(&arguments.understudy, program, call)?;
    let (primary, standby) = run.copies()?;
    let mut line = String::new();
    let output = run.child.stdout.take().context("the program's output")?;
    BufReader::new(output).read_line(&mut line)?;
    let address = |text: &str| u64::from_str_radix(text.trim_start_matches("0x"), 16);
    let (mark, done) = line.trim().split_once(' ').context("the program says where its marks are")?;
    let (mark, done) = (address(mark)?, address(done)?);
    let mut traced = Traced::seize(primary)?;
    run.child.stdin.as_mut().context("the program's input")?.write_all(b"x")?;
    // To the standby a primary that is followed step by step is a silent one, and each passage would rouse it: a system call.
    // SAFETY: a signal to a child of our child, which is there as long as that is.
    unsafe { libc::kill(standby as libc::pid_t, libc::SIGSTOP) };
    let mut costs = Vec::new();
    for _ in 0..PASSAGES {
        traced.run_to(mark)?;
        costs.push(traced.count_to(done, |_| {})?);
    }
    if arguments.list.is_some() {
        let base = traced.runtime_base()?;
        traced.run_to(mark)?;
        traced.count_to(done, |at| println!("{:x}", at.wrapping_sub(base)))?;
    }
    typical(&costs).context("nothing was counted")
}

/// The lines of a ledger: its compiler, and what each call costs.
fn parse(text: &str) -> (Option<&str>, BTreeMap<&str, Cost>) {
    let compiler = text.lines().find_map(|line| line.strip_prefix("# compiler: "));
    let costs = text.lines().filter(|line| !line.starts_with('#')).filter_map(|line| {
        let mut fields = line.split_whitespace();
        let name = fields.next()?;
        let mut number = || fields.next()?.parse().ok();
        Some((name, Cost { instructions: number()?, stores: number()?, returns: number()? }))
    });
    (compiler, costs.collect())
}

fn differs(old: u64, new: u64) -> bool {
    old.abs_diff(new) * 100 > old * TOLERANCE
}

fn write(path: &Path, compiler: &str, costs: &[(&str, Cost)]) -> Result<()> {
    let mut text = format!(
        "# Instructions, stores and mispredicted returns of the runtime in one call of a protected primary, kernel and libc\n\
         # apart.\n\
         # `make ledger` compares, `make ledger WRITE=1` writes. A commit that changes a line says why.\n\
         # compiler: {compiler}\n"
    );
    for (name, cost) in costs {
        text += &format!("{name:<10} {:>6} {:>5} {:>2}\n", cost.instructions, cost.stores, cost.returns);
    }
    fs::write(path, text).with_context(|| format!("write {}", path.display()))
}

fn run() -> Result<bool> {
    let arguments = Arguments::parse();
    let compiler = compiler()?;
    let program = build(&arguments.target)?;
    if let Some(call) = &arguments.list {
        return count(&arguments, &program, call).map(|_| true);
    }
    let mut costs = Vec::new();
    for call in CALLS {
        costs.push((call, count(&arguments, &program, call).with_context(|| format!("count {call}"))?));
    }
    if arguments.write {
        write(&arguments.ledger, &compiler, &costs)?;
        return Ok(true);
    }
    let text = fs::read_to_string(&arguments.ledger)
        .with_context(|| format!("read {}", arguments.ledger.display()))?;
    let (made_by, known) = parse(&text);
    let is_same = made_by == Some(&compiler);
    let mut failed = 0;
    for (name, cost) in &costs {
        let old = known.get(name).copied().unwrap_or_default();
        let is_bad = differs(old.instructions, cost.instructions)
            || differs(old.stores, cost.stores)
            || old.returns != cost.returns;
        failed += usize::from(is_bad && is_same);
        println!(
            "{}  ledger {name:<10} {} instructions, {} stores, {} returns{}",
            if is_bad && is_same { "FAIL" } else { "pass" },
            cost.instructions,
            cost.stores,
            cost.returns,
            if is_bad {
                format!("; the ledger says {}, {} and {}", old.instructions, old.stores, old.returns)
            } else {
                String::new()
            }
        );
    }
    let (passed, skipped) = if is_same { (costs.len() - failed, 0) } else { (0, costs.len()) };
    if !is_same {
        println!("not compared: the ledger is of {}, this is {compiler}", made_by.unwrap_or("no compiler"));
    }
    println!("{passed} passed, {failed} failed, {skipped} skipped");
    Ok(failed == 0)
}

fn main() -> ExitCode {
    match run() {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("ledger: {error:#}");
            ExitCode::FAILURE
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn five_hundredths_are_borne_and_more_are_not() {
        assert!(!differs(100, 105) && !differs(100, 95) && !differs(0, 0));
        assert!(differs(100, 106) && differs(100, 94) && differs(0, 1));
    }

    #[test]
    fn what_most_passages_cost_is_told() {
        let cost = |instructions| Cost { instructions, stores: 1, returns: 0 };
        assert_eq!(typical(&[cost(9), cost(7), cost(9), cost(7), cost(7)]), Some(cost(7)));
        assert_eq!(typical(&[]), None);
    }

    #[test]
    fn what_is_written_is_read() {
        let (compiler, costs) = parse("# a\n# compiler: rustc 1\nlock 10 3 2\n");
        assert_eq!(compiler, Some("rustc 1"));
        assert_eq!(costs["lock"], Cost { instructions: 10, stores: 3, returns: 2 });
    }
}
