//! The runtime's verdicts in words: it writes numbers, since it has no room for names.

use us_abi::EventKind;

use crate::snapshot::call_name;

/// What the runtime says of a standby that was not where the log is, with names in the place of numbers.
pub fn in_words(text: String) -> String {
    told(&text).unwrap_or(text)
}

fn told(text: &str) -> Option<String> {
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
        for other in [
            "arguments of write differ",
            "the standby was at event kind x call 0, the log says kind 1 call 2",
        ] {
            assert_eq!(in_words(other.into()), other);
        }
    }
}
