//! The runtime's verdicts in words: it writes numbers, since it has no room for names.

use us_abi::EventKind;

use crate::snapshot::call_name;

/// What the runtime says of a standby or a replay that was not where the log is, with names in the place of numbers.
pub fn in_words(text: String) -> String {
    place(&text).or_else(|| arguments(&text)).unwrap_or(text)
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
    let (at, log) =
        text.strip_prefix("the standby was at event kind ")?.split_once(", the log says kind ")?;
    let (at, log) = (event(at)?, event(log)?);
    Some(format!("the standby came to {at} where the log has {log}: probably a data race"))
}

/// An event given as `K call C`.
fn event(numbers: &str) -> Option<String> {
    let (kind, call) = numbers.split_once(" call ")?;
    let (kind, call): (u8, usize) = (kind.parse().ok()?, call.parse().ok()?);
    let call = call_name(call);
    Some(match EventKind::from_u8(kind)? {
        EventKind::Mutex => "a mutex".into(),
        EventKind::Ordered => "a lock or another ordered object".into(),
        EventKind::Time => "a look at a clock".into(),
        EventKind::Enter => format!("the beginning of {call}"),
        EventKind::Return => format!("the end of {call}"),
        EventKind::Call => call,
        EventKind::Signal => "a signal".into(),
        EventKind::Barrier => "a barrier".into(),
        EventKind::OnceRun => "an initialiser".into(),
        EventKind::ThreadStart => "the start of a thread".into(),
        EventKind::ThreadExit => "the end of a thread".into(),
        other => format!("an event of the log's own ({other:?})"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

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
        for other in [
            "arguments of write differ",
            "the standby was at event kind x call 0, the log says kind 1 call 2",
        ] {
            assert_eq!(in_words(other.into()), other);
        }
    }
}
