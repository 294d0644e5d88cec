//! `run` and `record`: from flags to the supervisor's options.

use std::path::PathBuf;
use std::time::Duration;

use us_supervisor::checkpoint::key::KeyFile;
use us_supervisor::checkpoint::restore::Checkpoint;
use us_supervisor::options::{Cluster, GateOrder};
use us_supervisor::probe::Order as ProbeOrder;
use us_supervisor::recorder::record;
use us_supervisor::{Error, Options, Verbosity, run, terminal};

use super::{later, serve};
use crate::args::{self, Atomics, Order, Record, Run, Verify};

pub fn run_program(run: &Run) -> Result<i32, Error> {
    let key = run.decrypt.as_deref().map(KeyFile::read).transpose()?;
    let files = run.with_files.as_deref();
    let checkpoint =
        run.from.as_deref().map(|file| Checkpoint::read(file, key.as_ref(), files)).transpose()?;
    drop(key);
    let mut options = options(run)?;
    if let Some(checkpoint) = &checkpoint {
        options.command = checkpoint.head().program.iter().map(Into::into).collect();
    }
    if let Some(pair) = &options.cpus {
        let told = us_supervisor::options::check_cpus(pair);
        let told = told.map_err(|why| Error::Usage(format!("--cpus: {why}")))?;
        if let Some(missing) = told.filter(|_| !run.quiet) {
            terminal::say(&format!("--cpus: {missing}"));
        }
    }
    if let Some(address) = run.metrics {
        let address = serve::beside_run(address)?;
        if !run.quiet {
            terminal::say(&format!("figures at http://{address}/metrics"));
        }
    }
    match &run.record {
        Some(file) if run.standbys == 0 => record::record(&options, file, None).map(|end| end.exit_code()),
        _ => run::run_from(&options, checkpoint.as_ref()).map(|end| end.exit_code()),
    }
}

pub fn record_program(record: &Record) -> Result<i32, Error> {
    if record.order == Order::Deterministic {
        return Err(later("--order deterministic"));
    }
    let options = Options {
        name: record.name.clone(),
        standbys: 0,
        order: if record.order == Order::Serial { "serial" } else { "schedule" }.into(),
        atomics: false,
        lag_timeout_ms: record.lag_timeout,
        reprotect: false,
        cluster: cluster(&record.cluster, None),
        events: record.events.clone(),
        verbosity: verbosity(record.quiet, record.verbose),
        ..Options::of(record.command.clone())
    };
    let file = record.output.clone().unwrap_or_else(|| {
        let program = us_supervisor::options::default_name(&record.command[0]);
        PathBuf::from(format!("{program}.understudy"))
    });
    let end = record::record(&options, &file, record.checkpoint_interval.map(Duration::from_secs_f64))?;
    // Who has named the file knows where it is.
    if record.output.is_none() && !record.quiet {
        terminal::say(&format!("recorded into {}", file.display()));
    }
    Ok(end.exit_code())
}

fn gate(asked: &args::Gate) -> Option<GateOrder> {
    asked.address.clone().map(|address| GateOrder { address, is_relaxed: asked.relaxed })
}

pub fn cluster(asked: &args::Cluster, gate: Option<GateOrder>) -> Option<Cluster> {
    let args::Cluster { cluster: nodes, commit, cluster_config: config } = asked;
    let on_disk = *commit == args::Commit::Disk;
    (!nodes.is_empty()).then(|| Cluster { nodes: nodes.clone(), on_disk, config: config.clone(), gate })
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
        ("--order deterministic with --record", run.order == Order::Deterministic && run.record.is_some()),
        ("--order serial with --record", run.order == Order::Serial && run.record.is_some()),
    ];
    if run.require_protection && run.standbys == 0 {
        return Err(Error::Usage(
            "--require-protection needs a standby, and --standbys 0 asks for none".into(),
        ));
    }
    if run.atomics == Atomics::On && run.order != Order::Schedule {
        return Err(Error::Usage("--atomics on needs --order schedule: no other order has them".into()));
    }
    if run.seed.is_some() && !matches!(run.order, Order::Serial | Order::Deterministic) {
        return Err(Error::Usage(
            "--seed needs --order serial or --order deterministic: otherwise runs differ whatever is drawn"
                .into(),
        ));
    }
    if !run.cluster.cluster.is_empty() && run.record.is_none() {
        return Err(Error::Usage(
            "--cluster needs --record FILE: what is written there is what is sent".into(),
        ));
    }
    if let Some((option, _)) = asked.iter().find(|(_, asked)| *asked) {
        return Err(later(option));
    }
    Ok(Options {
        name: run.name.clone(),
        standbys: run.standbys,
        order: match run.order {
            Order::Auto => "auto",
            Order::Serial => "serial",
            Order::Deterministic => "deterministic",
            Order::Schedule => "schedule",
        }
        .into(),
        seed: run.seed,
        atomics: run.atomics == Atomics::On,
        lag_timeout_ms: run.lag_timeout,
        lead_us: run.lead,
        lag_limit: run.lag_limit,
        verify: match run.verify {
            Verify::Off => 0,
            Verify::Fast => 1,
            Verify::Full => 2,
        },
        huge_pages: run.huge_pages,
        cpus: run.cpus.clone(),
        reprotect: !run.no_reprotect,
        is_required: run.require_protection,
        probe: run.probe.clone().map(|command| ProbeOrder { command, interval_ms: run.probe_interval }),
        record: run.record.clone(),
        cluster: cluster(&run.cluster, gate(&run.gate)),
        events: run.events.clone(),
        verbosity: verbosity(run.quiet, run.verbose),
        command: run.command.clone(),
    })
}
