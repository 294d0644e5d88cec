//! What a person reads of a recording.

use std::cmp::Reverse;

use us_supervisor::terminal::plain;

use super::{Count, Inspection, MESSAGES};
use crate::report::{size, table};

/// Rows that a person may want to read of a long table.
const SHOWN: usize = 20;

/// Everything, as tables.
pub fn write(found: &Inspection) -> String {
    let mut text = head(found);
    let total = Count {
        events: found.events,
        bytes: found.bytes_raw,
        bytes_file: found.by_class.values().map(|count| count.bytes_file).sum(),
    };
    let classes = us_abi::CLASS_NAMES.map(|name| (name.to_owned(), found.by_class[name]));
    let messages = MESSAGES.map(|name| (name.to_owned(), found.by_message[name]));
    let calls = found.by_call.iter().map(|(name, count)| (name.clone(), *count));
    let others = found.by_operation.iter().map(|(name, count)| ((*name).to_owned(), *count));
    let threads = found.by_thread.iter();
    let threads = threads.map(|thread| (format!("{}/{}", thread.pid, thread.slot), thread.count));
    text += &section("CLASS", classes.into(), total, false);
    text += &section("MESSAGE", messages.into(), total, false);
    text += &section("CALL", calls.collect(), total, true);
    text += &section("NO CALL", others.collect(), total, true);
    text += &section("PID/SLOT", threads.collect(), total, true);
    text
}

fn head(found: &Inspection) -> String {
    let number =
        |count: u64, one: &str, many: &str| format!("{count} {}", if count == 1 { one } else { many });
    let mut text = format!(
        "{}\nrecorded {} by understudy {}, {:.3} s\n{}, {}, {}\n{}: {} in the rings, {} in the file\n",
        plain(&found.command()),
        plain(&found.started),
        plain(&found.understudy),
        found.duration_s,
        number(found.processes, "process", "processes"),
        number(found.images, "image", "images"),
        number(found.threads, "thread", "threads"),
        number(found.events, "event", "events"),
        size(found.bytes_raw),
        size(found.bytes_file),
    );
    text += &match &found.broken {
        None => format!("complete: {}\n", found.complete),
        Some(broken) => format!("complete: false; {}\n", plain(&broken.why)),
    };
    for cut in &found.cut {
        text += &format!("the log of process {} ends before it did: {}\n", cut.pid, plain(&cut.why));
    }
    text
}

/// A table of what there is, with its shares of `total`; the largest first if it is `ranked`.
fn section(title: &str, mut counts: Vec<(String, Count)>, total: Count, ranked: bool) -> String {
    counts.retain(|(_, count)| count.events > 0);
    if counts.is_empty() {
        return String::new();
    }
    if ranked {
        counts.sort_by_key(|(_, count)| Reverse(count.events));
    }
    let mut rows =
        vec![[title, "EVENTS", "SHARE", "BYTES", "SHARE", "IN FILE", "SHARE", "EACH"].map(String::from)];
    rows.extend(counts.iter().take(SHOWN).map(|(name, count)| row(name, *count, total)));
    if counts.len() > SHOWN {
        let rest = counts[SHOWN..].iter().fold(Count::default(), |mut sum, (_, count)| {
            sum.add(*count);
            sum
        });
        rows.push(row(&format!("{} others", counts.len() - SHOWN), rest, total));
    }
    format!("\n{}", table(&rows))
}

fn row(name: &str, count: Count, total: Count) -> [String; 8] {
    let share =
        |part: f64, whole: f64| format!("{:.1} %", if whole > 0.0 { part / whole * 100.0 } else { 0.0 });
    [
        name.into(),
        count.events.to_string(),
        share(count.events as f64, total.events as f64),
        size(count.bytes),
        share(count.bytes as f64, total.bytes as f64),
        size(count.bytes_file.round() as u64),
        share(count.bytes_file, total.bytes_file),
        format!("{:.2} B", count.bytes_file / count.events as f64),
    ]
}
