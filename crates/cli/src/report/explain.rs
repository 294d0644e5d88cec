//! Divergences, explained for people.

use std::fmt::Write;

use us_supervisor::explain::{Explanation, Frame, Stack};
use us_supervisor::history::{Divergence, Failover};
use us_supervisor::terminal::plain;

use super::table;

/// The divergences of a group, as far as they are kept.
pub struct Told<'a> {
    /// All that there were.
    pub total: u64,
    /// The last of them, in order.
    pub last: Vec<&'a Divergence>,
    /// The failovers that are kept, in order.
    pub failovers: Vec<&'a Failover>,
}

impl Told<'_> {
    /// The number of the first that is kept.
    pub fn first(&self) -> u64 {
        self.total.saturating_sub(self.last.len() as u64) + 1
    }
}

/// The function in which it happened, and its file, in words; `None` where no stack could be read.
pub fn place(explained: &Explanation) -> Option<String> {
    match (explained.function.as_str(), explained.library.as_str()) {
        ("", _) => None,
        (function, "") => Some(demangled(function)),
        // The place of a function without a name has the file's in it.
        (function, library) if function.starts_with(&format!("{library}+")) => {
            Some(format!("{function} (a function without a name)"))
        }
        (function, library) => Some(format!("{} of {library}", demangled(function))),
    }
}

/// Letters of a name that are shown.
const LETTERS: usize = 100;

/// A name as its author wrote it, or its beginning.
fn demangled(name: &str) -> String {
    let mut beginning = Beginning(String::new());
    if let Ok(rust) = rustc_demangle::try_demangle(name) {
        let _ = write!(beginning, "{rust:#}");
    } else if let Ok(cpp) = cpp_demangle::Symbol::new(name) {
        let options = cpp_demangle::DemangleOptions::new().no_params().no_return_type();
        let _ = cpp.structured_demangle(&mut beginning, &options);
    }
    if beginning.0.is_empty() {
        let _ = beginning.write_str(name);
    }
    beginning.0
}

/// As much of a name as fits in a line: some stand for gigabytes.
struct Beginning(String);

impl Write for Beginning {
    fn write_str(&mut self, more: &str) -> std::fmt::Result {
        let left = LETTERS.saturating_sub(self.0.chars().count());
        if left == 0 {
            return Err(std::fmt::Error);
        }
        match more.char_indices().nth(left) {
            Some((at, _)) => self.0.extend([&more[..at], "…"]),
            None => self.0.push_str(more),
        }
        Ok(())
    }
}

/// A line for each failover with calls that nobody can settle: which those are, and what was done with them.
pub fn unsettled(name: &str, told: &Told<'_>) -> String {
    let some = told.failovers.iter().filter(|failover| failover.unsettled > 0);
    let line = |failover: &&Failover| {
        let words = failover.unsettled_words();
        format!("{name}: failover {} of process {}: {words}\n", failover.at, failover.process)
    };
    plain_lines(&some.map(line).collect::<String>())
}

/// One place in the program, or one reason where no place is known.
struct Place {
    count: u64,
    words: String,
    thread: String,
    reason: String,
    last_at: String,
}

/// A line for each place in the program at which copies have differed, the most frequent first.
pub fn places(name: &str, told: &Told<'_>) -> String {
    if told.total == 0 {
        return format!("{name}: its copies have not differed\n");
    }
    let mut places: Vec<Place> = Vec::new();
    for found in &told.last {
        let words = found.explained.as_ref().and_then(place).unwrap_or_else(|| "-".into());
        let thread =
            found.explained.as_ref().map_or(String::new(), |explained| explained.thread_name.clone());
        let reason = reason(found).to_owned();
        match places.iter_mut().find(|place| place.words == words && place.thread == thread) {
            Some(place) => {
                place.count += 1;
                place.last_at.clone_from(&found.at);
                place.reason = reason;
            }
            None => places.push(Place { count: 1, words, thread, reason, last_at: found.at.clone() }),
        }
    }
    places.sort_by_key(|place| std::cmp::Reverse(place.count));
    let mut rows = vec![["TIMES", "FUNCTION", "THREAD", "LAST", "WHAT"].map(String::from)];
    rows.extend(
        places
            .into_iter()
            .map(|place| [place.count.to_string(), place.words, place.thread, place.last_at, place.reason]),
    );
    let earlier = match told.first() - 1 {
        0 => String::new(),
        earlier => format!("{name}: {earlier} divergences before these\n"),
    };
    table(&rows) + &earlier
}

/// What differed, without thread and position.
fn reason(found: &Divergence) -> &str {
    match found.reason.split_once(": ") {
        Some((at, reason)) if at.starts_with("thread ") => reason,
        _ => &found.reason,
    }
}

/// All that is known of one of them, the last where no number is given, below the list of places. `None` when there is none.
pub fn explained(name: &str, told: &Told<'_>, number: Option<u64>) -> Option<String> {
    let number = number.unwrap_or(told.total);
    let at = number.checked_sub(told.first())?;
    let found = told.last.get(usize::try_from(at).ok()?)?;
    let mut text = places(name, told);
    let _ = write!(
        text,
        "\n{name}: divergence {number} of {}, {}, process {}, thread {}",
        told.total, found.at, found.process, found.thread
    );
    let Some(explained) = &found.explained else {
        let _ = writeln!(
            text,
            ", position {}:\n  {}\n  nothing more was seen of it",
            found.position, found.reason
        );
        return Some(plain_lines(&text));
    };
    let _ = writeln!(text, " ({}), position {}:", explained.thread_name, found.position);
    let _ = writeln!(text, "  the log has:   {}", explained.log);
    let _ = writeln!(text, "  the copy had:  {}", explained.copy);
    if let Some(place) = place(explained) {
        let _ = writeln!(text, "  in:            {place}");
    }
    stack(&mut text, "the copy's call stack", &explained.standby);
    let primary = match explained.primary_ahead {
        Some(0) => "the primary's call stack, in that very call".into(),
        Some(ahead) => format!("the primary's call stack, {ahead} events of the thread later"),
        None => "the primary's call stack, a moment later".to_owned(),
    };
    stack(&mut text, &primary, &explained.primary);
    text += "\n";
    text += advice(explained);
    Some(plain_lines(&text))
}

/// What it means.
fn advice(explained: &Explanation) -> &'static str {
    match explained.turns {
        false => {
            "Up to this place a thread has decided something by memory that another one changes without a lock, or by the\n\
             processor, as the manual's LIMITS say under Divergence. --order auto (the default) lets the threads take\n\
             turns from here on; --order serial does so from the start.\n"
        }
        true => {
            "The threads took turns: no data race of theirs is the cause, unless one of them computed for long. This is worth a\n\
             report: explain NAME --report FILE.\n"
        }
    }
}

fn stack(text: &mut String, title: &str, stack: &Stack) {
    match &stack.missing {
        Some(why) => {
            let _ = writeln!(text, "  {title}: {why}");
        }
        None => {
            let _ = writeln!(text, "  {title}:");
            let rows: Vec<[String; 3]> = stack.frames.iter().enumerate().map(row).collect();
            text.extend(table(&rows).lines().map(|line| format!("    {line}\n")));
        }
    }
}

fn row((at, frame): (usize, &Frame)) -> [String; 3] {
    let library = if frame.library.is_empty() { "code in no file" } else { &frame.library };
    let place = match &frame.function {
        Some(name) => format!("{}+{:#x}", demangled(name), frame.offset),
        // As `addr2line` takes it.
        None => format!("{:#x}", frame.start.wrapping_add(frame.offset)),
    };
    [format!("#{at}"), place, library.into()]
}

/// A program chooses the names of its functions and threads.
fn plain_lines(text: &str) -> String {
    text.lines().map(|line| plain(line).into_owned() + "\n").collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(function: Option<&str>, start: u64, library: &str) -> Frame {
        Frame { function: function.map(Into::into), offset: 0x1c, start, library: library.into() }
    }

    fn divergence(function: Option<&str>) -> Divergence {
        let mut explained = Explanation {
            thread_name: "mc-lrumaint".into(),
            log: "the beginning of clock_nanosleep".into(),
            copy: "a mutex".into(),
            primary_ahead: Some(2),
            standby: Stack {
                frames: vec![
                    frame(Some("pthread_mutex_lock"), 16, "libc.so.6"),
                    frame(function, 0x1230, "memcached"),
                ],
                missing: None,
            },
            primary: Stack::missing("it was running, or is gone"),
            ..Explanation::default()
        };
        explained.name_place();
        Divergence {
            process: 7,
            at: "2026-01-01T00:00:00.000Z".into(),
            reason: "thread 8 at 64: the standby came to a mutex".into(),
            thread: 8,
            position: 64,
            explained: Some(explained),
        }
    }

    #[test]
    fn names_as_their_authors_wrote_them() {
        assert_eq!(demangled("_ZN4Game4tickEi"), "Game::tick");
        assert_eq!(demangled("_ZN4core9panicking5panic17h0123456789abcdefE"), "core::panicking::panic");
        assert_eq!(demangled("lru_maintainer_thread"), "lru_maintainer_thread");
        assert_eq!(demangled(&"a".repeat(500)).chars().count(), LETTERS + 1);
        // Each part stands for the one before it, twice: a terabyte.
        let doubles: String = (0..35).map(|at| format!("S{at:X}_S{at:X}_")).collect();
        for name in [format!("_Z1fI1aIiiEE{doubles}"), format!("_Z1f1aIiE{}", "S_S_".repeat(40)), "_Z".into()]
        {
            assert!(demangled(&name).chars().count() <= LETTERS + 1);
        }
    }

    #[test]
    fn places_are_counted() {
        let all = [divergence(None), divergence(Some("tick")), divergence(Some("tick"))];
        let told = Told { total: 5, last: all.iter().collect(), failovers: Vec::new() };
        let lines = places("mc", &told);
        let lines: Vec<String> =
            lines.lines().map(|line| line.split_whitespace().collect::<Vec<_>>().join(" ")).collect();
        assert_eq!(
            lines,
            [
                "TIMES FUNCTION THREAD LAST WHAT",
                "2 tick of memcached mc-lrumaint 2026-01-01T00:00:00.000Z the standby came to a mutex",
                "1 memcached+0x1230 (a function without a name) mc-lrumaint 2026-01-01T00:00:00.000Z the standby \
                 came to a mutex",
                "mc: 2 divergences before these",
            ]
        );
        let none = Told { total: 0, last: Vec::new(), failovers: Vec::new() };
        assert_eq!(places("mc", &none), "mc: its copies have not differed\n");
    }

    #[test]
    fn one_is_explained() {
        let all = [divergence(Some("tick"))];
        let told = Told { total: 3, last: all.iter().collect(), failovers: Vec::new() };
        assert!(explained("mc", &told, Some(2)).is_none() && explained("mc", &told, Some(4)).is_none());
        let text = explained("mc", &told, None).unwrap();
        let expected = "\nmc: divergence 3 of 3, 2026-01-01T00:00:00.000Z, process 7, thread 8 (mc-lrumaint), position 64:\n\
            \x20 the log has:   the beginning of clock_nanosleep\n\
            \x20 the copy had:  a mutex\n\
            \x20 in:            tick of memcached\n\
            \x20 the copy's call stack:\n\
            \x20   #0  pthread_mutex_lock+0x1c  libc.so.6\n\
            \x20   #1  tick+0x1c                memcached\n\
            \x20 the primary's call stack, 2 events of the thread later: it was running, or is gone\n";
        assert!(text.contains(expected), "{text}");
    }
}
