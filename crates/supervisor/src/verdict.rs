//! The runtime's verdicts in words: it writes numbers, since it has no room for names.

use us_abi::EventKind;
use us_abi::event::time;

use crate::place::WAY_OUT;
use crate::snapshot::call_name;

/// What it says where its file system is full; the folder follows.
const NO_ROOM: &str = "no room for the log in ";

/// What the runtime says of a standby or a replay that was not where the log is, with names in the place of numbers.
pub fn in_words(text: String) -> String {
    if text.starts_with(NO_ROOM) {
        return format!("{text}; the way out is {WAY_OUT}");
    }
    let (at, what) = divided(&text);
    place(what).or_else(|| arguments(what)).map_or_else(|| text.clone(), |words| format!("{at}{words}"))
}

/// Thread and position, which a report begins with, and what it says.
fn divided(text: &str) -> (&str, &str) {
    match (thread_and_position(text), text.split_once(": ")) {
        (Some(_), Some((_, what))) => text.split_at(text.len() - what.len()),
        _ => ("", text),
    }
}

/// The thread slot that a report of the runtime's is of, and how far that was in its ring.
pub fn thread_and_position(text: &str) -> Option<(u32, u64)> {
    let (slot, position) = text.split_once(": ")?.0.strip_prefix("thread ")?.split_once(" at ")?;
    Some((slot.parse().ok()?, position.parse().ok()?))
}

/// What the copy did, and what the log has in its place if the report says that.
pub fn sides(text: &str) -> (String, Option<String>) {
    let (_, what) = divided(text);
    match events(what) {
        Some((copy, log)) => (copy, Some(log)),
        None => (arguments(what).unwrap_or_else(|| what.into()), None),
    }
}

/// Of a call that was another: what of it, and no more.
fn arguments(text: &str) -> Option<String> {
    let (call, rest) = text.strip_prefix("arguments of ")?.split_once(" differ: descriptor ")?;
    let (fds, rest) = rest.split_once(", length ")?;
    let (lengths, content) = rest.strip_suffix(", other content").map_or((rest, false), |rest| (rest, true));
    let ((fd, logged_fd), (length, logged_length)) = (fds.split_once(" not ")?, lengths.split_once(" not ")?);
    // "None" as the runtime writes it.
    let on = if fd == u32::MAX.to_string() { String::new() } else { format!(" on descriptor {fd}") };
    let mut parts = Vec::new();
    if fd != logged_fd {
        parts.push(format!("the descriptor is {logged_fd} in the log"));
    }
    if length != logged_length {
        parts.push(format!("its length is {length}, {logged_length} in the log"));
    }
    if content {
        parts.push("its content is another".into());
    }
    (!parts.is_empty()).then(|| format!("{call}{on}: {}", parts.join(", ")))
}

fn place(text: &str) -> Option<String> {
    let (at, log) = events(text)?;
    Some(format!("the standby came to {at} where the log has {log}: probably a data race"))
}

/// Where the standby was, and what the log has.
fn events(text: &str) -> Option<(String, String)> {
    let (at, log) =
        text.strip_prefix("the standby was at event kind ")?.split_once(", the log says kind ")?;
    let of_numbers = |numbers: &str| {
        let (kind, call) = numbers.split_once(" call ")?;
        event(kind.parse().ok()?, call.parse().ok()?)
    };
    Some((of_numbers(at)?, of_numbers(log)?))
}

/// An event of this kind and call.
pub fn event(kind: u8, number: u16) -> Option<String> {
    let call = call_name(usize::from(number));
    Some(match EventKind::from_u8(kind)? {
        EventKind::Mutex => "a mutex".into(),
        EventKind::Ordered => "a lock or another ordered object".into(),
        EventKind::Time if number == time::CLOCK => "a look at a clock".into(),
        EventKind::Time => "a look at the time-stamp counter".into(),
        EventKind::Enter => format!("the beginning of {call}"),
        EventKind::Return => format!("the end of {call}"),
        EventKind::Call => call,
        EventKind::Signal => "a signal".into(),
        EventKind::Barrier => "a barrier".into(),
        EventKind::OnceRun => "an initialiser".into(),
        EventKind::ThreadStart => "the start of a thread".into(),
        EventKind::ThreadExit => "the end of a thread".into(),
        EventKind::Atomic => "an atomic instruction of the program's own".into(),
        other => format!("an event of the log's own ({other:?})"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_sides_are_told() {
        let raced = "thread 3 at 16: the standby was at event kind 1 call 0, the log says kind 4 call 230";
        assert_eq!(sides(raced), ("a mutex".into(), Some("the beginning of clock_nanosleep".into())));
        let other =
            "thread 3 at 16: arguments of write differ: descriptor 1 not 1, length 17 not 17, other content";
        assert_eq!(sides(other), ("write on descriptor 1: its content is another".into(), None));
        let stands = "thread 3 at 16: the standby stands still while the log goes on";
        assert_eq!(sides(stands), ("the standby stands still while the log goes on".into(), None));
    }

    #[test]
    fn numbers_have_names() {
        let told = in_words("the standby was at event kind 1 call 0, the log says kind 4 call 230".into());
        assert_eq!(
            told,
            "the standby came to a mutex where the log has the beginning of clock_nanosleep: probably a data race"
        );
        for (text, told) in [
            (
                "arguments of write differ: descriptor 1 not 1, length 17 not 17, other content",
                "write on descriptor 1: its content is another",
            ),
            (
                "arguments of read differ: descriptor 3 not 4, length 17 not 18",
                "read on descriptor 3: the descriptor is 4 in the log, its length is 17, 18 in the log",
            ),
            (
                "arguments of getpid differ: descriptor 4294967295 not 4294967295, length 0 not 1",
                "getpid: its length is 0, 1 in the log",
            ),
        ] {
            assert_eq!(in_words(text.into()), told);
        }
        let told = in_words(
            "thread 0 at 16: the standby was at event kind 4 call 110, the log says kind 4 call 230".into(),
        );
        assert_eq!(
            told,
            "thread 0 at 16: the standby came to the beginning of getppid where the log has the beginning of \
             clock_nanosleep: probably a data race"
        );
        for other in [
            "thread 7 at noon: arguments of write differ: descriptor 1 not 2, length 0 not 0",
            "arguments of write differ",
            "the standby was at event kind x call 0, the log says kind 1 call 2",
        ] {
            assert_eq!(in_words(other.into()), other);
        }
    }
}
