//! `replay` and `inspect`: recordings that are there.

use std::fs;
use std::io::{IsTerminal, Write};
use std::path::Path;

use us_supervisor::Error;
use us_supervisor::recorder::replay::{self, Debugger};

use super::print;
use crate::args::Replay;
use crate::progress::Progress;
use crate::{inspect, report};

pub fn replay(order: &Replay) -> Result<i32, Error> {
    let order = replay_order(order);
    // What the program writes on the terminal, and a debugger, would be in the line's way.
    if std::io::stdout().is_terminal() || order.debugger != Debugger::None {
        return replay::replay(&order, &|_| ());
    }
    let progress = Progress::new(order.file.metadata().map_or(0, |metadata| metadata.len()));
    replay::replay(&order, &|done| progress.at(done, "replaying"))
}

fn replay_order(order: &Replay) -> replay::Order {
    replay::Order {
        file: order.file.clone(),
        debugger: match (order.gdb_port, &order.held) {
            (Some(port), _) => Debugger::Port(port),
            (_, Some(file)) => Debugger::Held(file.clone()),
            _ if order.gdb => Debugger::Gdb(order.arguments.clone()),
            _ => Debugger::None,
        },
        from: order.from,
        until: order.until,
        force: order.force,
    }
}

pub fn show(file: &Path, json: bool, plot: Option<&Path>) -> Result<i32, Error> {
    let found = inspect::read(file)
        .map_err(|error| Error::Refused(format!("cannot read {}: {error}", file.display())))?;
    if let Some(picture) = plot {
        fs::write(picture, inspect::plot::draw(&found))
            .map_err(|cause| Error::Refused(format!("cannot write {}: {cause}", picture.display())))?;
    }
    let text = if json { report::json(&found) } else { inspect::text::write(&found) };
    Ok(print(text.as_bytes()))
}

pub fn show_events(file: &Path, process: Option<i32>) -> Result<i32, Error> {
    let mut out = std::io::BufWriter::new(std::io::stdout().lock());
    let written = inspect::events::write(file, process, &mut out).and_then(|()| Ok(out.flush()?));
    match written {
        // A reader that has seen enough (`| head`) is no failure.
        Err(recording::Error::Io(cause)) if cause.kind() == std::io::ErrorKind::BrokenPipe => Ok(0),
        Err(cause) => Err(Error::Refused(format!("{}: {cause}", file.display()))),
        Ok(()) => Ok(0),
    }
}
