//! `explain`, and `status --divergences`: why a group's copies have differed.

use std::fs::File;
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use serde_json::json;
use us_abi::exit;
use us_supervisor::history::{Divergence, Failover};
use us_supervisor::status::{self, Status};
use us_supervisor::{Error, machine, terminal};

use super::print;
use crate::report::{self, Told};

/// What a report has in it, for whoever is to send it.
const CONTAINS: &str = "names and arguments of the program, names of its threads, functions and libraries, the system calls \
at which its copies differed, times, and the versions of Understudy, kernel and C library. No memory of the program, no data \
that it has read or written";

/// A line for each place.
pub fn list(name: &str) -> Result<i32, Error> {
    let status = status::read(Some(name))?;
    Ok(print(report::places(name, &told(&status)).as_bytes()))
}

/// The places, and one divergence with all that is known of it: the last, or that of a number. Then the calls that failovers could
/// not settle.
pub fn show(name: &str, number: Option<u64>) -> Result<i32, Error> {
    let status = status::read(Some(name))?;
    let told = told(&status);
    let unsettled = report::unsettled(name, &told);
    match report::explained(name, &told, number) {
        Some(text) => Ok(print((text + &unsettled).as_bytes())),
        None if told.total == 0 && number.is_none() && !unsettled.is_empty() => {
            Ok(print((report::places(name, &told) + &unsettled).as_bytes()))
        }
        None => {
            let (first, last) = (told.first(), told.total);
            terminal::say(&match last {
                0 => format!("{name}: its copies have not differed"),
                _ => format!("{name}: of its divergences the ones from {first} to {last} are kept"),
            });
            Ok(exit::FAILED)
        }
    }
}

/// All that is kept, for programs.
pub fn show_json(name: &str) -> Result<i32, Error> {
    let status = status::read(Some(name))?;
    let told = told(&status);
    let all = json!({
        "version": 1,
        "name": name,
        "divergences_total": told.total,
        "first": told.first(),
        "divergences": told.last,
        "unsettled": told.failovers.iter().filter(|failover| failover.unsettled > 0).collect::<Vec<_>>(),
    });
    Ok(print(report::json(&all).as_bytes()))
}

/// The same and what else may help, in a file that only its owner can read.
pub fn write_report(name: &str, path: &Path) -> Result<i32, Error> {
    let status = status::read(Some(name))?;
    let kernel = rustix::system::uname();
    let all = json!({
        "contains": CONTAINS,
        "version": 1,
        "understudy": env!("CARGO_PKG_VERSION"),
        "kernel": kernel.release().to_string_lossy(),
        "glibc": machine::glibc_version(),
        "processors": std::thread::available_parallelism().map_or(1, usize::from),
        "groups": status.groups,
        "ended": status.ended,
    });
    let written = File::options()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(path)
        .and_then(|mut file| file.write_all(report::json(&all).as_bytes()));
    written.map_err(|cause| Error::file("write", path, cause))?;
    Ok(print(
        format!("{} is written, and only you can read it. It contains {CONTAINS}.\n", path.display())
            .as_bytes(),
    ))
}

/// The divergences of the one group that was asked for.
fn told(status: &Status) -> Told<'_> {
    if let Some(group) = status.groups.first() {
        let (last, failovers) = (group.divergences.iter().collect(), group.failovers.iter().collect());
        return Told { total: group.divergences_total, last, failovers };
    }
    let ended = status.ended.first();
    let last: Vec<&Divergence> = ended.iter().flat_map(|ended| &ended.divergences).collect();
    let failovers: Vec<&Failover> = ended.iter().flat_map(|ended| &ended.failovers).collect();
    Told { total: ended.map_or(0, |ended| ended.divergences_total), last, failovers }
}
