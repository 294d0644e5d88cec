//! The flags: one definition for the parser, `--help`, the man page and the shell completions.

pub mod checkpoint;

use std::ffi::OsString;
use std::path::PathBuf;

use clap::{Args as ClapArgs, Parser, Subcommand, ValueEnum};
use clap_complete::Shell;
use us_supervisor::options::{check_name, parse_cpus};
use us_supervisor::{CpuPair, signals};

use crate::commands::serve::address;

/// Keeps a live copy of a running program, ready to take over when it dies.
#[derive(Debug, Parser)]
#[command(name = "understudy", version, max_term_width = 100, subcommand_required = true)]
pub struct Args {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// The subcommands.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Run PROGRAM under protection, in the foreground
    Run(Box<Run>),
    /// Groups on this machine: their copies, lag and guarantees
    ///
    /// With NAME the exit code is 0 if it is protected, 4 if it runs unprotected, 3 if it does not run. How a group has ended is
    /// shown for a day.
    Status {
        /// Only this group
        #[arg(value_name = "NAME", value_parser = group_name)]
        name: Option<String>,
        /// Machine-readable
        #[arg(long)]
        json: bool,
        /// Again and again, every S seconds, until it is interrupted
        #[arg(short, long, value_name = "S", num_args = 0..=1, require_equals = true, default_missing_value = "1", value_parser = interval)]
        watch: Option<f64>,
        /// The groups of this user, by name or number, or of all users (root only)
        #[arg(long, value_name = "USER|all")]
        user: Option<String>,
        /// Where the copies of NAME have differed: a line for each place in the program, and how often
        #[arg(long, requires = "name", conflicts_with_all = ["json", "watch"])]
        divergences: bool,
    },
    /// Why a group's copies have differed: both events, both call stacks, the function and its library
    ///
    /// For a group that runs, or one that has ended in the last day. Of the last sixteen divergences (ten of a group that has ended)
    /// the call stacks are kept. Below them stand the calls that failovers could not settle: which call it was, on which descriptor,
    /// by which thread, and what was done with it.
    Explain {
        /// The group
        #[arg(value_name = "NAME", value_parser = group_name)]
        name: String,
        /// This one, as they are numbered from 1 on [default: the last one]
        #[arg(long, value_name = "N")]
        divergence: Option<u64>,
        /// Machine-readable: all that are kept
        #[arg(long, conflicts_with = "divergence")]
        json: bool,
        /// Write all that is known of them into FILE, which must not exist yet, to be sent to somebody who is to help: readable by
        /// you alone, and its first field says what it contains
        #[arg(long, value_name = "FILE", conflicts_with_all = ["divergence", "json"])]
        report: Option<PathBuf>,
        #[command(flatten)]
        owner: Owner,
    },
    /// The same, live, on the whole screen: failovers as they happen, curves of lag and events, keys to act
    Top {
        /// Only groups whose names contain this
        #[arg(value_name = "NAME", value_parser = group_name)]
        name: Option<String>,
        /// Seconds between two looks
        #[arg(short, long, value_name = "S", default_value = "1", value_parser = interval)]
        interval: f64,
        #[command(flatten)]
        owner: Owner,
    },
    /// Wait until a group is protected, or has ended
    ///
    /// A server may lose its first standby when it forks or executes something, and have the next one some milliseconds later. So a
    /// group counts as protected when it has been for a moment, which --for names, and each of its processes that has lived as long
    /// is protected as well. Processes that never get a standby do not count.
    ///
    /// The exit code is 0 when it is so, 3 if the group does not run, 4 if it is unprotected after S seconds, 1 if it runs then and
    /// was to end.
    Wait {
        /// The group; it may be about to start
        #[arg(value_name = "NAME", value_parser = group_name)]
        name: String,
        /// Until it is protected: the default
        #[arg(long, conflicts_with = "ended")]
        protected: bool,
        /// Until it has ended
        #[arg(long)]
        ended: bool,
        /// How long it has been protected then, in seconds, without a break; 0 is its first protected moment, whatever its other processes are
        #[arg(long = "for", value_name = "S", default_value = "0.2", allow_negative_numbers = true, value_parser = seconds, conflicts_with = "ended")]
        held: f64,
        /// Seconds to wait at most [default: 60 and those of --for with --protected, no limit with --ended]
        #[arg(long, value_name = "S", allow_negative_numbers = true, value_parser = seconds)]
        timeout: Option<f64>,
        #[command(flatten)]
        owner: Owner,
    },
    /// Figures of all groups of this user: a page at /, and /metrics for Prometheus
    Serve {
        /// Where to listen; a port alone is one of 127.0.0.1
        #[arg(long, value_name = "ADDR:PORT", default_value = "127.0.0.1:9464", value_parser = address)]
        metrics: std::net::SocketAddr,
        #[command(flatten)]
        owner: Owner,
    },
    /// End a group: signal its primary, then its other processes, wait, then kill
    Stop {
        /// The group
        #[arg(value_name = "NAME", value_parser = group_name)]
        name: String,
        /// The signal sent first
        #[arg(long, value_name = "SIG", default_value = "TERM", value_parser = signals::parse)]
        signal: i32,
        /// Seconds to wait before SIGKILL
        #[arg(long, value_name = "S", default_value = "10", allow_negative_numbers = true, value_parser = seconds)]
        timeout: f64,
        #[command(flatten)]
        owner: Owner,
    },
    /// Planned switch: the standby takes over now
    Failover {
        /// The group
        #[arg(value_name = "NAME", value_parser = group_name)]
        name: String,
        /// The process, by the pid that it knows as its own [default: the program itself]
        #[arg(long, value_name = "PID")]
        process: Option<u32>,
        /// Machine-readable
        #[arg(long)]
        json: bool,
        #[command(flatten)]
        owner: Owner,
    },
    /// Write a checkpoint of the program into a file, from which `run --from` goes on; the program itself goes on as well
    ///
    /// What it holds is the program as it was at one moment: its memory, its files by path and position, its pipes with what
    /// is in them. Its network connections are not in it: they are reset where it goes on.
    Checkpoint {
        /// The group
        #[arg(value_name = "NAME", value_parser = group_name)]
        name: String,
        #[command(flatten)]
        wanted: checkpoint::Order,
        /// Machine-readable
        #[arg(long)]
        json: bool,
        #[command(flatten)]
        owner: Owner,
    },
    /// Put the present version of the runtime into a program that runs
    ///
    /// Its processes, connections and memory stay what they are. All threads stand still for some milliseconds; then every
    /// call begins in the new version, and new standbys are made. Versions whose data is laid out in different ways cannot
    /// take each other's place: then nothing happens, and this command says so.
    Upgrade {
        /// The group
        #[arg(value_name = "NAME", value_parser = group_name)]
        name: String,
        /// Another libunderstudy.so than the one that belongs to this command
        #[arg(long, value_name = "FILE")]
        library: Option<PathBuf>,
        /// Machine-readable
        #[arg(long)]
        json: bool,
        #[command(flatten)]
        owner: Owner,
    },
    /// Signal the primary, whichever process that is now
    Signal {
        /// The group
        #[arg(value_name = "NAME", value_parser = group_name)]
        name: String,
        /// The signal, as TERM, SIGTERM or 15
        #[arg(value_name = "SIG", value_parser = signals::parse)]
        signal: i32,
        #[command(flatten)]
        owner: Owner,
    },
    /// What works on this machine; with PROGRAM, whether it can be protected and why not
    Doctor {
        /// Machine-readable
        #[arg(long)]
        json: bool,
        /// Run PROGRAM natively and protected while this command (of `sh -c`) uses it, and say what that shows: the share of the
        /// time under protection, where copies have differed, what it costs, and what to set
        #[arg(long, value_name = "COMMAND", requires = "program")]
        load: Option<OsString>,
        /// How long each load may take
        #[arg(long, value_name = "S", default_value = "5", value_parser = interval, requires = "load")]
        seconds: f64,
        /// The program to look at
        #[arg(value_name = "PROGRAM", trailing_var_arg = true)]
        program: Vec<OsString>,
    },
    /// Run PROGRAM and write a recording of it and of everything that it starts
    Record(Box<Record>),
    /// Run a recorded program again, exactly as it ran
    Replay(Replay),
    /// What a recording holds: events and bytes by class, thread and call
    Inspect {
        /// The recording; a damaged or unfinished one is read as far as possible
        #[arg(value_name = "FILE")]
        file: PathBuf,
        /// Machine-readable
        #[arg(long)]
        json: bool,
        /// Also draw the shares of the kinds of messages, as an SVG picture
        #[arg(long, value_name = "FILE.svg")]
        plot: Option<PathBuf>,
        /// The log itself: a line for each event, numbered as replay --until counts them
        #[arg(long, conflicts_with_all = ["json", "plot"])]
        events: bool,
        /// With --events: only those of this process, by the pid that it knew as its own
        #[arg(long, value_name = "PID", requires = "events")]
        process: Option<i32>,
    },
    /// Keep logs of other machines, which run programs with --cluster: each becomes a recording in this machine's folder
    ///
    /// What it keeps can be inspected and replayed, also while it grows and after its machine has died. With a section [standby] in
    /// its configuration it runs each program from its log, as the log comes: status shows how far behind that is, and failover has
    /// it take over, when the program's machine is lost.
    Node {
        /// This machine's name, address, keys and peers
        #[arg(long, value_name = "FILE", default_value = NODE_CONFIG)]
        config: PathBuf,
    },
    /// By a node: run what is in this log, as it comes
    #[command(hide = true)]
    Mirror {
        /// The log
        #[arg(value_name = "FILE")]
        file: PathBuf,
        /// The group that it is of
        #[arg(long, value_name = "NAME")]
        group: String,
        /// The machine on which that runs
        #[arg(long, value_name = "NODE")]
        leader: String,
        /// A folder to keep alike
        #[arg(long = "volume", value_name = "DIR")]
        volumes: Vec<PathBuf>,
        /// Take over when nothing has come for so long
        #[arg(long, value_name = "MS")]
        lease: Option<u64>,
        /// Ask for an image when it is still far behind after so long
        #[arg(long, value_name = "MS")]
        image_after: Option<u64>,
        /// It has been begun once more, and waits for an image that ends behind this byte
        #[arg(long, value_name = "BYTE")]
        waits: Option<u64>,
        /// It has been begun once more, without an image, for this reason
        #[arg(long, value_name = "WHY", conflicts_with = "waits")]
        without: Option<String>,
        #[command(flatten)]
        cluster: Cluster,
    },
    /// Write the completions of a shell to stdout
    Completions {
        /// The shell
        #[arg(value_name = "SHELL")]
        shell: Shell,
    },
    /// Write a manual page to stdout
    Man {
        /// The page of this command [default: the page of understudy itself]
        #[arg(value_name = "COMMAND")]
        command: Option<String>,
        /// Write all pages into this folder instead
        #[arg(short, long, value_name = "FOLDER", conflicts_with = "command")]
        output: Option<PathBuf>,
    },
    /// Names of this user's groups, one a line, for completions
    #[command(hide = true)]
    Names,
}

/// Whose group it is.
#[derive(Debug, ClapArgs)]
pub struct Owner {
    /// A group of this user, by name or number (root only)
    #[arg(long, value_name = "USER")]
    pub user: Option<String>,
}

/// Where a machine's configuration is looked for.
const NODE_CONFIG: &str = "/etc/understudy/node.toml";

/// Other machines.
#[derive(Debug, ClapArgs)]
pub struct Cluster {
    /// Also keep the recording on these machines, peers of this one, where understudy node runs
    #[arg(long, value_name = "NODE,…", value_delimiter = ',')]
    pub cluster: Vec<String>,
    /// What counts as kept: what the other machine has in its memory, or on its disk
    #[arg(long, value_enum, value_name = "WHERE", default_value = "memory", requires = "cluster")]
    pub commit: Commit,
    /// This machine's name, keys and peers
    #[arg(long, value_name = "FILE", default_value = NODE_CONFIG, requires = "cluster")]
    pub cluster_config: PathBuf,
}

/// The address of a service.
#[derive(Debug, ClapArgs)]
pub struct Gate {
    /// The address at which the program serves, its network's bits and its device. What is sent from there waits until the other
    /// machines have the log of it, and the machine that takes over has it, with the connections
    #[arg(long, value_name = "IP/BITS%DEVICE", value_parser = service_address, requires = "cluster")]
    pub address: Option<us_supervisor::gate::Address>,
    /// With --address: nothing waits; a take-over resets connections, and may lose what clients have heard last
    #[arg(long, requires = "address")]
    pub relaxed: bool,
}

/// An address with its network's bits and its device.
fn service_address(text: &str) -> Result<us_supervisor::gate::Address, String> {
    let told =
        || "an IPv4 address, the bits of its network and a device are wanted: 192.0.2.9/24%eth0".to_string();
    let (own, device) = text.split_once('%').ok_or_else(told)?;
    let (address, bits) = own.split_once('/').ok_or_else(told)?;
    let address: std::net::Ipv4Addr = address.parse().map_err(|_| told())?;
    let bits = bits.parse().ok().filter(|bits| (1..=32).contains(bits)).ok_or_else(told)?;
    let is_name = (1..16).contains(&device.len()) && device.bytes().all(|byte| byte > b' ' && byte != b'/');
    let device = if is_name { device.to_string() } else { return Err(told()) };
    Ok(us_supervisor::gate::Address { address: address.octets(), bits, device })
}

/// `--commit`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Commit {
    /// In memory
    Memory,
    /// On disk
    Disk,
}

/// The options of `record`.
#[derive(Debug, ClapArgs)]
pub struct Record {
    /// The recording's file, which must not exist yet [default: the program's file name, .understudy]
    #[arg(short, long, value_name = "FILE")]
    pub output: Option<PathBuf>,
    /// schedule: threads run in parallel, and their locks are replayed in order. serial: one thread of all processes runs at a
    /// time, so that a replay also repeats data races, lock-free code, and what processes do to shared memory
    #[arg(long, value_enum, value_name = "ORDER", default_value = "schedule", hide_possible_values = true)]
    pub order: Order,
    /// The group's name, unique on the machine [default: the program's file name, then -2, -3, …]
    #[arg(long, value_name = "NAME", value_parser = group_name)]
    pub name: Option<String>,
    /// Also keep the program's state every S seconds, in the folder FILE.checkpoints, so that a replay can begin there: see replay --from
    #[arg(long, value_name = "S", value_parser = short_interval)]
    pub checkpoint_interval: Option<f64>,
    /// How long the program waits, in milliseconds, for a recorder that is a full ring behind; then the recording ends
    #[arg(long, value_name = "MS", default_value_t = 10_000, value_parser = milliseconds::<1, 600_000>)]
    pub lag_timeout: u32,
    #[command(flatten)]
    pub cluster: Cluster,
    /// Append lifecycle events, one JSON object a line, to FILE (- is stderr; journal: is systemd's journal, where each has fields)
    #[arg(long, value_name = "FILE")]
    pub events: Option<PathBuf>,
    /// Say only what stops a run
    #[arg(short, long, conflicts_with = "verbose")]
    pub quiet: bool,
    /// Say every lifecycle event
    #[arg(short, long)]
    pub verbose: bool,
    /// The program and its arguments
    #[arg(required = true, value_names = ["PROGRAM", "ARG"], num_args = 1.., trailing_var_arg = true)]
    pub command: Vec<OsString>,
}

/// The options of `replay`.
#[derive(Debug, ClapArgs)]
pub struct Replay {
    /// The recording
    #[arg(value_name = "FILE")]
    pub file: PathBuf,
    /// Open gdb on the program, before its own code runs; ARGs are gdb's
    #[arg(long, conflicts_with = "gdb_port")]
    pub gdb: bool,
    /// Let a gdb connect: gdbserver listens on PORT
    #[arg(long, value_name = "PORT")]
    pub gdb_port: Option<u16>,
    /// Write the process's number to a file, and hold it until a debugger has it: for reverse-continue
    #[arg(long, value_name = "FILE", hide = true, conflicts_with_all = ["gdb", "gdb_port"])]
    pub held: Option<PathBuf>,
    /// Stop before the event of this number, counted as inspect counts them
    #[arg(long, value_name = "EVENT")]
    pub until: Option<u64>,
    /// Begin at the last state that was kept before the event of this number (record --checkpoint-interval)
    #[arg(long, value_name = "EVENT")]
    pub from: Option<u64>,
    /// Replay even if the processor or a file has changed, or the recording belongs to another user: it is a program, and
    /// runs as you
    #[arg(long)]
    pub force: bool,
    /// Further arguments for gdb
    #[arg(value_name = "ARG", last = true, requires = "gdb")]
    pub arguments: Vec<OsString>,
}

/// The options of `run`.
#[derive(Debug, ClapArgs)]
pub struct Run {
    /// The group's name, unique on the machine [default: the program's file name, then -2, -3, …]
    #[arg(long, value_name = "NAME", value_parser = group_name)]
    pub name: Option<String>,
    /// Live standbys: 0 to 3
    #[arg(long, value_name = "N", default_value = "1", allow_negative_numbers = true, value_parser = standbys)]
    pub standbys: u32,
    /// schedule: threads run in parallel, and their locks are replicated in order. serial: one thread of a process runs at
    /// a time, so that races are replicated too, and whose turn it is next is computed: runs with equal input do the same.
    /// deterministic: the turns are those of locks and calls alone, and threads run in parallel between them. auto:
    /// schedule, and serial for a process whose standbys diverge
    #[arg(long, value_enum, value_name = "ORDER", default_value = "auto", hide_possible_values = true)]
    pub order: Order,
    /// With --order serial or deterministic: random numbers follow from N, and addresses are not randomised, so that runs with equal
    /// input do the same
    #[arg(long, value_name = "N", conflicts_with = "from")]
    pub seed: Option<u64>,
    /// With --order schedule, whether atomic instructions in the program's own code are replicated in order as well: on or off
    #[arg(long, value_enum, value_name = "WHETHER", default_value = "off", hide_possible_values = true)]
    pub atomics: Atomics,
    /// How far a thread's standby may fall behind, as in 4MiB: at most a ring, 8 MiB, and more counts as that
    #[arg(long, value_name = "SIZE", default_value = "8MiB", value_parser = lag_limit)]
    pub lag_limit: u64,
    /// How long the standby may need for what it is behind, in milliseconds: less makes failovers shorter, more makes threads wait
    /// less for each other
    #[arg(long, value_name = "MS", default_value = "2", value_parser = lead)]
    pub lead: u32,
    /// How long the primary waits, in milliseconds, for a standby that is a full ring behind
    #[arg(long, value_name = "MS", default_value_t = 1000, value_parser = milliseconds::<1, 600_000>)]
    pub lag_timeout: u32,
    /// What the standby compares
    #[arg(long, value_enum, value_name = "WHAT", default_value = "fast")]
    pub verify: Verify,
    /// Ask for huge pages wherever the program maps a MiB or more: a new standby of a large program holds it up for a shorter
    /// time. Each page that is written to while another copy still has it takes 2 MiB
    #[arg(long)]
    pub huge_pages: bool,
    /// CPU lists to pin each copy's threads to, as in 0-3:4-7
    #[arg(long, value_name = "PRIMARY:STANDBY", value_parser = parse_cpus)]
    pub cpus: Option<CpuPair>,
    /// Do not make a new standby after a failover or a divergence
    #[arg(long)]
    pub no_reprotect: bool,
    /// Run nothing, and end with 125, where it is known before the start that nothing can be protected; otherwise PROGRAM runs
    /// unprotected, and one sentence says why
    #[arg(long)]
    pub require_protection: bool,
    /// A command for sh that exits 0 while the primary is well; three failures in a row fence it
    #[arg(long, value_name = "COMMAND")]
    pub probe: Option<OsString>,
    /// Milliseconds between two probes, and the time that one may take
    #[arg(long, value_name = "MS", default_value_t = 1000, value_parser = milliseconds::<10, 3_600_000>)]
    pub probe_interval: u32,
    /// Append lifecycle events, one JSON object a line, to FILE (- is stderr; journal: is systemd's journal, where each has fields)
    #[arg(long, value_name = "FILE")]
    pub events: Option<PathBuf>,
    /// Say only what stops a run
    #[arg(short, long, conflicts_with = "verbose")]
    pub quiet: bool,
    /// Say every lifecycle event
    #[arg(short, long)]
    pub verbose: bool,
    /// Also write a recording, which goes on over failovers; it ends, and the program goes on, if the disk is slower than
    /// --lag-timeout allows
    #[arg(long, value_name = "FILE")]
    pub record: Option<PathBuf>,
    #[command(flatten)]
    pub cluster: Cluster,
    #[command(flatten)]
    pub gate: Gate,
    /// Figures of this group: a page at /, and /metrics for Prometheus, for as long as it lives; a port alone is one of 127.0.0.1
    #[arg(long, value_name = "ADDR:PORT", value_parser = address)]
    pub metrics: Option<std::net::SocketAddr>,
    /// Go on with the program of this checkpoint
    #[arg(long, value_name = "FILE", conflicts_with_all = ["record", "command"])]
    pub from: Option<PathBuf>,
    /// The checkpoint is encrypted with the key in KEYFILE, and with no other
    #[arg(long, value_name = "KEYFILE", requires = "from")]
    pub decrypt: Option<PathBuf>,
    /// Put back the files that were taken with it, whose copies are in DIR; what stands there now is kept in DIR
    #[arg(long, value_name = "DIR", requires = "from")]
    pub with_files: Option<PathBuf>,
    /// The program and its arguments
    #[arg(required_unless_present = "from", value_names = ["PROGRAM", "ARG"], num_args = 1.., trailing_var_arg = true)]
    pub command: Vec<OsString>,
}

/// `--order`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Order {
    /// As the process needs it
    Auto,
    /// Locks are replayed in the primary's order, in parallel
    Schedule,
    /// The order of locks is computed, in parallel
    Deterministic,
    /// One thread at a time
    Serial,
}

/// `--atomics`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Atomics {
    /// They are ordered
    On,
    /// They are made as they come
    Off,
}

/// `--verify`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Verify {
    /// Nothing
    Off,
    /// Calls and every output byte
    Fast,
    /// The same, and the program ends only once the standby has applied everything
    Full,
}

fn group_name(text: &str) -> Result<String, String> {
    check_name(text).map(|()| text.to_owned())
}

fn standbys(text: &str) -> Result<u32, String> {
    match text.parse() {
        Ok(count @ 0..=3) => Ok(count),
        _ => Err("0, 1, 2 or 3".into()),
    }
}

fn seconds(text: &str) -> Result<f64, String> {
    // A day is more than anybody waits, and far from what overflows.
    let legal = text.parse().ok().filter(|seconds| (0.0..=86_400.0).contains(seconds));
    legal.ok_or_else(|| "a number of seconds, 0 to 86400".into())
}

fn interval(text: &str) -> Result<f64, String> {
    let legal = text.parse().ok().filter(|seconds| (0.1..=86_400.0).contains(seconds));
    legal.ok_or_else(|| "a number of seconds, 0.1 to 86400".into())
}

fn short_interval(text: &str) -> Result<f64, String> {
    let legal = text.parse().ok().filter(|seconds| (0.01..=86_400.0).contains(seconds));
    legal.ok_or_else(|| "a number of seconds, 0.01 to 86400".into())
}

fn milliseconds<const LEAST: u32, const MOST: u32>(text: &str) -> Result<u32, String> {
    let legal = text.parse().ok().filter(|ms| (LEAST..=MOST).contains(ms));
    legal.ok_or_else(|| format!("a number of milliseconds, {LEAST} to {MOST}"))
}

/// A lead, in microseconds.
fn lead(text: &str) -> Result<u32, String> {
    let legal = text.parse().ok().filter(|ms| (0.2..=100.0).contains(ms));
    legal.map(|ms: f64| (ms * 1000.0) as u32).ok_or_else(|| "a number of milliseconds, 0.2 to 100".into())
}

/// A size in bytes: a number with an optional unit.
fn lag_limit(text: &str) -> Result<u64, String> {
    let digits = text.len() - text.trim_start_matches(|c: char| c.is_ascii_digit()).len();
    let (number, unit) = text.split_at(digits);
    let factor: u64 = match unit {
        "" | "B" => 1,
        "K" | "KiB" => 1 << 10,
        "M" | "MiB" => 1 << 20,
        "G" | "GiB" => 1 << 30,
        _ => return Err(format!("{unit:?} is not a unit: KiB, MiB or GiB")),
    };
    let bytes = number.parse::<u64>().ok().and_then(|number| number.checked_mul(factor));
    match bytes {
        Some(bytes) if bytes >= us_abi::LAG_LIMIT_MIN => Ok(bytes),
        Some(_) => Err(format!(
            "a lag limit is at least {} bytes: the largest event must fit",
            us_abi::LAG_LIMIT_MIN
        )),
        None => Err("a size is a number with a unit, as in 4MiB".into()),
    }
}
