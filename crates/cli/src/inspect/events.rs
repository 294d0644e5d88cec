//! `inspect --events`: the log itself, a line for each event.

use std::collections::HashMap;
use std::fmt::Write as _;
use std::io::Write;
use std::path::Path;

use recording::{Event, Events, How, Item, Reader};
use us_abi::NO_TICKET;
use us_abi::event::EventKind;
use us_supervisor::snapshot::call_name;
use us_supervisor::terminal::plain;

use super::operation;

/// Writes a line for every event, numbered as `replay --until` counts them; of one process only if `only` names it.
///
/// # Errors
/// Those of the reader at its start, and of writing. Where a recording ends early is said in the last line.
pub fn write(path: &Path, only: Option<i32>, to: &mut impl Write) -> Result<(), recording::Error> {
    let mut reader = Reader::open(path)?;
    let mut pids = HashMap::new();
    let mut number = 0u64;
    loop {
        match reader.next() {
            Ok(None) => return Ok(()),
            Err(end) => {
                writeln!(to, "# ends here: {}", plain(&end.to_string()))?;
                return Ok(());
            }
            Ok(Some(Item::Image(image))) => {
                pids.insert(image.number, image.pid);
                if only.is_some_and(|only| only != image.pid) {
                    continue;
                }
                let how = match image.how {
                    How::Started => "started",
                    How::Forked => "forked",
                    How::Executed => "executed",
                };
                writeln!(to, "# process {} {how}, image {}", image.pid, image.number)?;
            }
            Ok(Some(Item::End { image, status, .. })) => {
                let pid = pids.get(&image).copied().unwrap_or(0);
                if only.is_some_and(|only| only != pid) {
                    continue;
                }
                writeln!(to, "# process {pid} ends, image {image}, status {status}")?;
            }
            Ok(Some(Item::Events { image, slot, bytes })) => {
                let pid = pids.get(&image).copied().unwrap_or(0);
                for event in Events::new(&bytes) {
                    number += 1;
                    if only.is_none_or(|only| only == pid) {
                        writeln!(to, "{number:>8} {pid}/{slot} {}", line(&event))?;
                    }
                }
            }
            Ok(Some(Item::Complete(_))) => {}
        }
    }
}

fn line(event: &Event) -> String {
    let header = &event.header;
    let kind = EventKind::from_u8(header.kind);
    let mut text = String::new();
    // Writing to a string does not fail.
    let _ = match kind {
        Some(kind @ (EventKind::Enter | EventKind::Return | EventKind::Call)) => {
            write!(text, "{} {}", format!("{kind:?}").to_lowercase(), call_name(header.call.into()))
        }
        Some(EventKind::Time) => write!(text, "{} {}", operation(kind, header.call), header.ticket),
        _ => write!(text, "{}", operation(kind, header.call)),
    };
    let word =
        |at: usize| event.payload.get(at..at + 8)?.first_chunk::<8>().map(|bytes| i64::from_le_bytes(*bytes));
    match kind {
        Some(EventKind::Enter) => {
            let fd = word(0).map_or(-1, |word| word as i32);
            let _ = write!(text, " fd {fd} len {}", word(8).unwrap_or(0));
            if let Some(digest @ 1..) = word(0).map(|word| (word >> 32) as u32) {
                let _ = write!(text, " digest {digest:08x}");
            }
        }
        Some(EventKind::Return | EventKind::Call) => {
            let _ = write!(text, " = {}", word(0).unwrap_or(0));
            if let Some(identity @ 1..) = word(8).map(|word| word as u64) {
                let _ = write!(text, " of {identity}");
            }
        }
        Some(EventKind::ThreadStart) => {
            let _ = write!(text, " of {}", word(0).map_or(0, |word| word as u32));
        }
        _ => {}
    }
    if header.flags != 0 {
        let _ = write!(text, " flags {}", header.flags);
    }
    if header.ticket != NO_TICKET && kind != Some(EventKind::Time) {
        let _ = write!(text, " ticket {}", header.ticket);
    }
    if event.payload.len() > 16 {
        let _ = write!(text, " +{} bytes", event.payload.len() - 16);
    }
    text
}
