//! Understudy's own words: the JSON lines of `--events`, and the lines on stderr.

use std::fs::File;
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use serde::Serialize;
use serde_json::Value;

use crate::clock;
use crate::error::Error;
use crate::options::Verbosity;
use crate::terminal;

/// One line of `--events`.
#[derive(Serialize)]
struct Line<'a> {
    t: String,
    group: &'a str,
    event: &'a str,
    #[serde(flatten)]
    more: Value,
}

/// Where lifecycle events go.
#[derive(Debug)]
enum Sink {
    None,
    Stderr,
    File(File),
}

/// Opens a file for appending, and waits for nobody: the program is not started before.
fn open(path: &Path) -> std::io::Result<File> {
    let flags = libc::O_NONBLOCK | libc::O_NOCTTY;
    match File::options().append(true).create(true).custom_flags(flags).open(path) {
        // A FIFO that nobody reads yet. With an end for reading of our own it is open at once, and holds what fits in it for
        // whoever comes; what does not fit is lost.
        Err(cause) if cause.raw_os_error() == Some(libc::ENXIO) => {
            File::options().read(true).write(true).custom_flags(flags).open(path)
        }
        other => other,
    }
}

/// Says what happens to one group.
#[derive(Debug)]
pub struct Voice {
    group: String,
    sink: Sink,
    verbosity: Verbosity,
}

impl Voice {
    /// Opens the file of `--events`; `-` is stderr.
    ///
    /// # Errors
    /// When the file cannot be opened for appending.
    pub fn open(events: Option<&Path>, verbosity: Verbosity) -> Result<Voice, Error> {
        let sink = match events {
            None => Sink::None,
            Some(path) if path == "-" => Sink::Stderr,
            Some(path) => {
                let file = open(path).map_err(|cause| Error::file("write events to", path, cause))?;
                Sink::File(file)
            }
        };
        Ok(Voice { group: String::new(), sink, verbosity })
    }

    /// The group of which everything that follows is said.
    pub fn set_group(&mut self, name: &str) {
        self.group = name.into();
    }

    /// Writes one event: `{"t":…,"group":…,"event":…}` and the fields of `more`, an object.
    pub fn event(&mut self, event: &str, more: Value) {
        let line = Line { t: clock::now_text(), group: &self.group, event, more };
        let Ok(line) = serde_json::to_string(&line) else { return };
        // One write a line: several groups may share the file, and a reader never sees half a line.
        let line = terminal::plain_json(&line).into_owned() + "\n";
        let written = match &mut self.sink {
            Sink::None => Ok(()),
            Sink::Stderr => std::io::stderr().write_all(line.as_bytes()),
            Sink::File(file) => file.write_all(line.as_bytes()),
        };
        // A full disk or a closed terminal must not cost the program its protection.
        let _ = written;
    }

    /// Says a line at the given level: [`Verbosity::Normal`] is heard unless `-q`, and so on.
    pub fn say(&self, level: Verbosity, line: &str) {
        if level <= self.verbosity {
            terminal::say(line);
        }
    }
}
