//! The lifecycle events that `understudy run --events FILE` writes, one JSON object a line.

use std::fs;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::Value;

/// One lifecycle event.
#[derive(Clone, Debug)]
pub struct Event {
    /// `started`, `protected`, `promoted`, …
    pub name: String,
    /// The whole object.
    pub fields: Value,
}

impl Event {
    /// A number field, for example the pid under `primary`.
    pub fn number(&self, field: &str) -> Option<u64> {
        self.fields.get(field)?.as_u64()
    }
}

/// Reads an events file while it grows.
pub struct Reader {
    path: PathBuf,
    lines_seen: usize,
}

impl Reader {
    /// A reader at the start of `path`, which need not exist yet.
    pub fn new(path: &Path) -> Self {
        Self { path: path.to_path_buf(), lines_seen: 0 }
    }

    /// The events that were completed since the last call. A line without its newline waits; a complete
    /// line that is no event is returned as an event named `malformed`, which no guest allows.
    pub fn fresh(&mut self) -> Vec<Event> {
        let text = fs::read_to_string(&self.path).unwrap_or_default();
        let complete = text.rfind('\n').map_or("", |end| &text[..end]);
        let events: Vec<Event> = complete.lines().skip(self.lines_seen).map(parse).collect();
        self.lines_seen += events.len();
        events
    }
}

fn parse(line: &str) -> Event {
    let fields: Value = serde_json::from_str(line).unwrap_or(Value::Null);
    match fields.get("event").and_then(Value::as_str) {
        Some(name) => Event { name: name.to_owned(), fields },
        None => Event { name: "malformed".to_owned(), fields: Value::String(line.to_owned()) },
    }
}

/// All events of a finished run.
pub fn read_all(path: &Path) -> Vec<Event> {
    Reader::new(path).fresh()
}

/// How long a program may take to be protected.
const PROTECTED: Duration = Duration::from_secs(20);

/// Waits until a run's first process is protected, or the run has ended.
pub fn await_protected(path: &Path) {
    let begun = Instant::now();
    let is_protected = || read_all(path).iter().any(|event| matches!(&*event.name, "protected" | "ended"));
    while !is_protected() && begun.elapsed() < PROTECTED {
        thread::sleep(Duration::from_millis(1));
    }
}

#[cfg(test)]
mod tests {
    use super::parse;

    #[test]
    fn events_and_others() {
        let event = parse(r#"{"t":"x","group":"g","event":"protected","primary":12,"standby":13}"#);
        assert_eq!((event.name.as_str(), event.number("primary")), ("protected", Some(12)));
        assert_eq!(parse("half a li").name, "malformed");
    }
}
