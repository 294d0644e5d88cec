//! Which subcommand does what: one file each.

mod checkpoint;
mod doctor;
mod explain;
mod manual;
mod recordings;
mod run;
pub mod serve;
mod status;
mod switch;
mod top;
mod trial;
mod upgrade;
mod wait;

use std::io::Write;
use std::time::Duration;

use us_abi::exit;
use us_supervisor::folder::{self, Found};
use us_supervisor::recorder::replay::mirror::{Wanted, mirror};
use us_supervisor::run::explain;
use us_supervisor::{Error, control, identity, terminal};

use crate::args::{Command, Owner};
use crate::progress::Progress;
use crate::users;

/// Carries out `command`; the exit code.
pub fn run(command: Command, definition: &mut clap::Command) -> i32 {
    let asks = matches!(command, Command::Status { .. } | Command::Wait { .. } | Command::Explain { .. });
    let result = match command {
        Command::Run(options) => run::run_program(&options),
        Command::Status { name, json, user: Some(user), .. } if user == "all" => {
            users::show_all(name.as_deref(), json)
        }
        Command::Status { name: Some(name), divergences: true, user, .. } => {
            become_owner(user.as_deref()).and_then(|()| explain::list(&name))
        }
        Command::Explain { name, divergence, json, report, owner } => become_owner(owner.user.as_deref())
            .and_then(|()| match report {
                Some(file) => explain::write_report(&name, &file),
                None if json => explain::show_json(&name),
                None => explain::show(&name, divergence),
            }),
        Command::Status { name, json, watch, user, .. } => become_owner(user.as_deref())
            .and_then(|()| status::show(name.as_deref(), json, watch.map(Duration::from_secs_f64))),
        Command::Wait { name, ended, held, timeout, owner, .. } => become_owner(owner.user.as_deref())
            .and_then(|()| match ended {
                true => wait::until_ended(&name, timeout.map(Duration::from_secs_f64)),
                false => wait::until_protected(&name, held, timeout.map(Duration::from_secs_f64)),
            }),
        Command::Serve { metrics, owner } => {
            become_owner(owner.user.as_deref()).and_then(|()| serve::serve(metrics))
        }
        Command::Stop { name, signal, timeout, owner } => find(&name, &owner)
            .and_then(|group| stop(&group, signal, Duration::from_secs_f64(timeout)))
            .map(|()| 0),
        Command::Failover { name, process, json, owner } => {
            find(&name, &owner).and_then(|group| switch::switch(&group, process, json))
        }
        Command::Checkpoint { name, wanted, json, owner } => {
            find(&name, &owner).and_then(|group| checkpoint::take(&group, &wanted, json))
        }
        Command::Upgrade { name, library, json, owner } => {
            find(&name, &owner).and_then(|group| upgrade::upgrade(&group, library.as_deref(), json))
        }
        Command::Signal { name, signal, owner } => {
            find(&name, &owner).and_then(|group| control::signal(&group, signal)).map(|()| 0)
        }
        Command::Doctor { json, load: Some(load), seconds, program } => {
            trial::show(json, &load, seconds, &program)
        }
        Command::Doctor { json, program, .. } => Ok(doctor::show(json, program.first())),
        Command::Inspect { file, events: true, process, .. } => recordings::show_events(&file, process),
        Command::Inspect { file, json, plot, .. } => recordings::show(&file, json, plot.as_deref()),
        Command::Completions { shell } => Ok(manual::completions(shell, definition)),
        Command::Man { output: Some(folder), .. } => manual::write_all(&folder, definition),
        Command::Man { command, .. } => manual::page(command.as_deref(), definition),
        Command::Names => Ok(manual::names()),
        Command::Top { name, interval, owner } => become_owner(owner.user.as_deref())
            .and_then(|()| top::run(name.as_deref(), Duration::from_secs_f64(interval))),
        Command::Node { config } => us_supervisor::recorder::cluster::serve(&config),
        Command::Mirror { file, group, leader, volumes, lease, image_after, waits, without, cluster } => {
            let (cluster, lease_ms) = (run::cluster(&cluster, None), lease);
            let image_after_ms = image_after;
            let wanted =
                Wanted { file, group, leader, volumes, lease_ms, cluster, image_after_ms, waits, without };
            mirror(&wanted)
        }
        Command::Record(record) => run::record_program(&record),
        Command::Replay(order) => recordings::replay(&order),
    };
    result.unwrap_or_else(|error| {
        terminal::say(&match &error {
            Error::NoSuchGroup(name) => status::no_such(name),
            error => explain(error),
        });
        match error {
            Error::NoSuchGroup(_) if asks => exit::NOT_RUNNING,
            error => error.exit_code(),
        }
    })
}

fn later(what: &str) -> Error {
    Error::Usage(format!("{what} is not available in this version"))
}

/// From here on we are the user whose groups are meant.
fn become_owner(user: Option<&str>) -> Result<(), Error> {
    user.map_or(Ok(()), identity::become_user)
}

fn find(name: &str, owner: &Owner) -> Result<Found, Error> {
    become_owner(owner.user.as_deref())?;
    folder::find(name)
}

/// Ends a group, and says meanwhile that it takes its time.
fn stop(group: &Found, signal: i32, timeout: Duration) -> Result<(), Error> {
    const LOOK: Duration = Duration::from_millis(5);
    std::thread::scope(|scope| {
        let ending = scope.spawn(|| control::stop(group, signal, timeout));
        let (progress, what) = (Progress::new(0), format!("{} is about to end", group.name));
        while !ending.is_finished() {
            progress.at(0, &what);
            std::thread::sleep(LOOK);
        }
        drop(progress);
        ending.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })
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
