//! Understudy's own words: the JSON lines of `--events` or the fields that the journal gets, and the lines on stderr.

use std::fs::File;
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::os::unix::net::UnixDatagram;
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
    Journal(UnixDatagram),
}

/// What `--events` calls systemd's journal.
const JOURNAL: &str = "journal:";

/// Where that listens.
const JOURNAL_SOCKET: &str = "/run/systemd/journal/socket";

/// A socket to the journal, which is to be there. One that does not read must hold nobody up.
fn open_journal() -> std::io::Result<UnixDatagram> {
    let socket = UnixDatagram::unbound()?;
    socket.set_nonblocking(true)?;
    socket.connect(JOURNAL_SOCKET)?;
    Ok(socket)
}

/// An event as the journal takes it: a field a line. A value has no line break in it, whoever has written it.
fn fields(line: &Line) -> String {
    let text = |value: &Value| match value {
        Value::String(text) => terminal::plain(text).into_owned(),
        other => terminal::plain_json(&other.to_string()).into_owned(),
    };
    let more: Vec<(&String, String)> =
        line.more.as_object().into_iter().flatten().map(|(name, value)| (name, text(value))).collect();
    let shown: Vec<String> =
        more.iter().map(|(name, value)| format!("{} {value}", name.replace('_', " "))).collect();
    let colon = if shown.is_empty() { "" } else { ": " };
    let priority = match line.event {
        "lost" | "runtime_failed" => 3,
        "diverged" | "standby_lost" | "unprotected" | "behind" | "folder_removed" => 4,
        "promoted" => 5,
        _ => 6,
    };
    let mut out = format!(
        "MESSAGE={group}: {event}{colon}{}\nPRIORITY={priority}\nSYSLOG_IDENTIFIER=understudy\n\
         UNDERSTUDY_GROUP={group}\nUNDERSTUDY_EVENT={event}\n",
        shown.join(", "),
        group = line.group,
        event = line.event,
    );
    for (name, value) in more {
        out += &format!("UNDERSTUDY_{}={value}\n", name.to_ascii_uppercase());
    }
    out
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

/// How much of `bytes` was written, and why that is not all.
fn put(to: &mut impl Write, bytes: &[u8]) -> (usize, Option<std::io::Error>) {
    let mut written = 0;
    while written < bytes.len() {
        match to.write(&bytes[written..]) {
            Ok(0) => return (written, Some(std::io::ErrorKind::WriteZero.into())),
            Ok(more) => written += more,
            Err(cause) if cause.kind() == std::io::ErrorKind::Interrupted => {}
            Err(cause) => return (written, Some(cause)),
        }
    }
    (written, None)
}

/// Says what happens to one group.
#[derive(Debug)]
pub struct Voice {
    group: String,
    sink: Sink,
    /// The last event could not be written.
    is_lost: bool,
    /// What was written last is half a line.
    is_cut: bool,
    verbosity: Verbosity,
}

impl Voice {
    /// Opens the file of `--events`; `-` is stderr, `journal:` is systemd's journal.
    ///
    /// # Errors
    /// When the file cannot be opened for appending.
    pub fn open(events: Option<&Path>, verbosity: Verbosity) -> Result<Voice, Error> {
        let sink = match events {
            None => Sink::None,
            Some(path) if path == "-" => Sink::Stderr,
            Some(path) if path == JOURNAL => Sink::Journal(
                open_journal()
                    .map_err(|cause| Error::file("write events to the journal at", JOURNAL_SOCKET, cause))?,
            ),
            Some(path) => {
                let file = open(path).map_err(|cause| Error::file("write events to", path, cause))?;
                Sink::File(file)
            }
        };
        Ok(Voice { group: String::new(), sink, is_lost: false, is_cut: false, verbosity })
    }

    /// The group of which everything that follows is said.
    pub fn set_group(&mut self, name: &str) {
        self.group = name.into();
    }

    /// Writes one event: `{"t":…,"group":…,"event":…}` and the fields of `more`, an object.
    pub fn event(&mut self, event: &str, more: Value) {
        let line = Line { t: clock::now_text(), group: &self.group, event, more };
        if let Sink::Journal(socket) = &self.sink {
            // Full, or gone: as below.
            let _ = socket.send(fields(&line).as_bytes());
            return;
        }
        let Ok(line) = serde_json::to_string(&line) else { return };
        // One write a line: several groups may share the file, and a reader never sees half a line. Behind one that was cut begins a
        // new one.
        let line = terminal::plain_json(&line).into_owned() + "\n";
        let line = if self.is_cut { format!("\n{line}") } else { line };
        let (written, failed) = match &mut self.sink {
            Sink::None | Sink::Journal(_) => return,
            Sink::Stderr => put(&mut std::io::stderr(), line.as_bytes()),
            Sink::File(file) => put(file, line.as_bytes()),
        };
        // A full disk or a closed terminal must not cost the program its protection.
        self.is_cut = written > 0 && failed.is_some() || written == 0 && self.is_cut;
        let was_lost = std::mem::replace(&mut self.is_lost, failed.is_some());
        if let (Some(cause), Sink::File(_), false) = (failed, &self.sink, was_lost) {
            let group = &self.group;
            let line =
                format!("{group}: events are lost, until the file of --events can be written again: {cause}");
            self.say(Verbosity::Normal, &line);
        }
    }

    /// Says a line at the given level: [`Verbosity::Normal`] is heard unless `-q`, and so on.
    pub fn say(&self, level: Verbosity, line: &str) {
        if level <= self.verbosity {
            terminal::say(line);
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// A file system of so many bytes.
    struct Small(Vec<u8>, usize);

    impl Write for Small {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            let room = self.1 - self.0.len();
            if room == 0 {
                return Err(std::io::ErrorKind::StorageFull.into());
            }
            self.0.extend(&bytes[..bytes.len().min(room)]);
            Ok(bytes.len().min(room))
        }

        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn a_line_that_does_not_fit() {
        let mut small = Small(Vec::new(), 5);
        assert!(matches!(put(&mut small, b"abc"), (3, None)));
        assert!(matches!(put(&mut small, b"def"), (2, Some(_))));
        assert!(matches!(put(&mut small, b"g"), (0, Some(_))));
    }

    #[test]
    fn an_event_in_fields() {
        let more = json!({ "reason": "killed\nPRIORITY=0", "in_doubt": 1, "calls": [{ "call": "write" }] });
        let line = Line { t: String::new(), group: "g", event: "promoted", more };
        assert_eq!(
            fields(&line),
            "MESSAGE=g: promoted: calls [{\"call\":\"write\"}], in doubt 1, reason killed\\nPRIORITY=0\n\
             PRIORITY=5\nSYSLOG_IDENTIFIER=understudy\nUNDERSTUDY_GROUP=g\nUNDERSTUDY_EVENT=promoted\n\
             UNDERSTUDY_CALLS=[{\"call\":\"write\"}]\nUNDERSTUDY_IN_DOUBT=1\nUNDERSTUDY_REASON=killed\\nPRIORITY=0\n"
        );
        let line = Line { t: String::new(), group: "g", event: "started", more: json!({}) };
        assert!(fields(&line).starts_with("MESSAGE=g: started\nPRIORITY=6\n"));
    }
}
