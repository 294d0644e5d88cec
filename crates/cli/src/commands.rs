//! What each subcommand does.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::Duration;

use us_abi::exit;
use us_supervisor::folder::{self, Found};
use us_supervisor::probe::Order as ProbeOrder;
use us_supervisor::recorder::replay::Debugger;
use us_supervisor::recorder::{record, replay};
use us_supervisor::run::explain;
use us_supervisor::{Error, Options, Verbosity, control, doctor, identity, request, run, status, terminal};

use crate::args::{Command, Order, Owner, Record, Replay, Run, Verify};
use crate::{inspect, report, users};

/// Carries out `command`; the exit code.
pub fn run(command: Command, definition: &mut clap::Command) -> i32 {
    let is_status = matches!(command, Command::Status { .. });
    let result = match command {
        Command::Run(options) => run_program(&options),
        Command::Status { name, json, user: Some(user) } if user == "all" => {
            users::show_all(name.as_deref(), json)
        }
        Command::Status { name, json, user } => {
            become_owner(user.as_deref()).and_then(|()| show_status(name.as_deref(), json))
        }
        Command::Stop { name, signal, timeout, owner } => find(&name, &owner)
            .and_then(|group| control::stop(&group, signal, Duration::from_secs_f64(timeout)))
            .map(|()| 0),
        Command::Failover { name, process, json, owner } => {
            find(&name, &owner).and_then(|group| switch(&group, process, json))
        }
        Command::Signal { name, signal, owner } => {
            find(&name, &owner).and_then(|group| control::signal(&group, signal)).map(|()| 0)
        }
        Command::Doctor { json, program } => Ok(show_doctor(json, program.first())),
        Command::Inspect { file, events: true, process, .. } => show_events(&file, process),
        Command::Inspect { file, json, plot, .. } => show_recording(&file, json, plot.as_deref()),
        Command::Completions { shell } => {
            let mut script = Vec::new();
            clap_complete::generate(shell, definition, "understudy", &mut script);
            Ok(print(&script))
        }
        Command::Man => Ok(manual(definition)),
        Command::Top(_) => Err(later("top")),
        Command::Record(record) => record_program(&record),
        Command::Replay(order) => replay::replay(&replay_order(&order)),
    };
    result.unwrap_or_else(|error| {
        terminal::say(&explain(&error));
        match error {
            Error::NoSuchGroup(_) if is_status => exit::NOT_RUNNING,
            error => error.exit_code(),
        }
    })
}

fn show_events(file: &Path, process: Option<i32>) -> Result<i32, Error> {
    let mut out = std::io::BufWriter::new(std::io::stdout().lock());
    let written = inspect::events::write(file, process, &mut out).and_then(|()| Ok(out.flush()?));
    match written {
        // A reader that has seen enough (`| head`) is no failure.
        Err(recording::Error::Io(cause)) if cause.kind() == std::io::ErrorKind::BrokenPipe => Ok(0),
        Err(cause) => Err(Error::Refused(format!("{}: {cause}", file.display()))),
        Ok(()) => Ok(0),
    }
}

fn later(what: &str) -> Error {
    Error::Usage(format!("{what} is not available in this version"))
}

fn run_program(run: &Run) -> Result<i32, Error> {
    let options = options(run)?;
    if let Some(pair) = &options.cpus {
        us_supervisor::options::check_cpus(pair).map_err(|why| Error::Usage(format!("--cpus: {why}")))?;
    }
    match &run.record {
        Some(file) if run.standbys == 0 => record::record(&options, file).map(|end| end.exit_code()),
        _ => run::run(&options).map(|end| end.exit_code()),
    }
}

fn record_program(record: &Record) -> Result<i32, Error> {
    if record.order == Order::Deterministic {
        return Err(later("--order deterministic"));
    }
    let options = Options {
        name: record.name.clone(),
        standbys: 0,
        order: if record.order == Order::Serial { "serial" } else { "schedule" }.into(),
        lag_timeout_ms: record.lag_timeout,
        lag_limit: us_abi::RING_BYTES as u64,
        verify: 1,
        cpus: None,
        reprotect: false,
        probe: None,
        record: None,
        events: record.events.clone(),
        verbosity: verbosity(record.quiet, record.verbose),
        command: record.command.clone(),
    };
    let file = record.output.clone().unwrap_or_else(|| {
        let program = us_supervisor::options::default_name(&record.command[0]);
        PathBuf::from(format!("{program}.understudy"))
    });
    record::record(&options, &file).map(|end| end.exit_code())
}

fn replay_order(order: &Replay) -> replay::Order {
    replay::Order {
        file: order.file.clone(),
        debugger: match order.gdb_port {
            Some(port) => Debugger::Port(port),
            None if order.gdb => Debugger::Gdb(order.arguments.clone()),
            None => Debugger::None,
        },
        until: order.until,
        force: order.force,
    }
}

fn verbosity(quiet: bool, verbose: bool) -> Verbosity {
    match (quiet, verbose) {
        (true, _) => Verbosity::Quiet,
        (_, true) => Verbosity::Verbose,
        _ => Verbosity::Normal,
    }
}

fn options(run: &Run) -> Result<Options, Error> {
    let asked = [
        ("--metrics", run.later.metrics.is_some()),
        ("--order deterministic", run.order == Order::Deterministic),
        ("--order serial with --record", run.order == Order::Serial && run.record.is_some()),
        ("--order serial with several standbys", run.order == Order::Serial && run.standbys > 1),
        ("--record with several standbys", run.record.is_some() && run.standbys > 1),
    ];
    if let Some((option, _)) = asked.iter().find(|(_, asked)| *asked) {
        return Err(later(option));
    }
    Ok(Options {
        name: run.name.clone(),
        standbys: run.standbys,
        order: match run.order {
            Order::Auto => "auto",
            Order::Serial => "serial",
            Order::Schedule | Order::Deterministic => "schedule",
        }
        .into(),
        lag_timeout_ms: run.lag_timeout,
        lag_limit: run.lag_limit,
        verify: match run.verify {
            Verify::Off => 0,
            Verify::Fast => 1,
            Verify::Full => 2,
        },
        cpus: run.cpus.clone(),
        reprotect: !run.no_reprotect,
        probe: run.probe.clone().map(|command| ProbeOrder { command, interval_ms: run.probe_interval }),
        record: run.record.clone(),
        events: run.events.clone(),
        verbosity: verbosity(run.quiet, run.verbose),
        command: run.command.clone(),
    })
}

fn show_status(name: Option<&str>, json: bool) -> Result<i32, Error> {
    let status = status::read(name)?;
    let text = if json { report::json(&status) } else { report::status(&status) };
    let of_one = match (name, status.groups.first().map(|group| group.state)) {
        (None, _) | (_, Some("protected")) => 0,
        (_, None | Some("ended")) => exit::NOT_RUNNING,
        _ => exit::UNPROTECTED,
    };
    Ok(match print(text.as_bytes()) {
        0 => of_one,
        failed => failed,
    })
}

/// From here on we are the user whose groups are meant.
fn become_owner(user: Option<&str>) -> Result<(), Error> {
    user.map_or(Ok(()), identity::become_user)
}

fn find(name: &str, owner: &Owner) -> Result<Found, Error> {
    become_owner(owner.user.as_deref())?;
    folder::find(name)
}

fn switch(group: &Found, process: Option<u32>, json: bool) -> Result<i32, Error> {
    let whom = process.map_or(String::new(), |pid| format!(" {pid}"));
    let done = request::ask(group, &format!("{}{whom}", request::FAILOVER))?;
    let text = if json { report::json(&done) } else { report::failover(&group.name, &done) };
    Ok(print(text.as_bytes()))
}

fn show_doctor(json: bool, program: Option<&std::ffi::OsString>) -> i32 {
    let findings = doctor::examine(program);
    let text = if json { report::json(&findings) } else { report::doctor(&findings) };
    match print(text.as_bytes()) {
        0 if !findings.ok => exit::FAILED,
        code => code,
    }
}

fn show_recording(file: &Path, json: bool, plot: Option<&Path>) -> Result<i32, Error> {
    let found = inspect::read(file)
        .map_err(|error| Error::Refused(format!("cannot read {}: {error}", file.display())))?;
    if let Some(picture) = plot {
        fs::write(picture, inspect::plot::draw(&found))
            .map_err(|cause| Error::Refused(format!("cannot write {}: {cause}", picture.display())))?;
    }
    let text = if json { report::json(&found) } else { inspect::text::write(&found) };
    Ok(print(text.as_bytes()))
}

fn manual(definition: &clap::Command) -> i32 {
    let mut page = Vec::new();
    match clap_mangen::Man::new(definition.clone()).render(&mut page) {
        Ok(()) => print(&page),
        Err(_) => exit::FAILED,
    }
}

/// Writes to stdout. A reader that has seen enough (`| head`) is no failure.
pub fn print(bytes: &[u8]) -> i32 {
    let mut out = std::io::stdout().lock();
    match out.write_all(bytes).and_then(|()| out.flush()) {
        Err(cause) if cause.kind() != std::io::ErrorKind::BrokenPipe => {
            terminal::say(&format!("cannot write to stdout: {cause}"));
            exit::FAILED
        }
        _ => 0,
    }
}
