//! What is shown to people. Names, reasons and arguments come from programs, from recordings and from other users, and a terminal
//! obeys what it is shown: it may be told to hide a line, or to type one. All that we print passes here.

use std::borrow::Cow;
use std::fmt::Write as _;
use std::io::Write as _;

/// Characters that a terminal, or its reader, is led astray by: controls, and those that turn the direction of writing.
fn is_active(c: char) -> bool {
    let turns =
        matches!(c, '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
    c.is_control() || turns || matches!(c, '\u{2028}' | '\u{2029}' | '\u{feff}')
}

/// One line of text in which nothing acts: `\u{1b}` is shown as such.
pub fn plain(text: &str) -> Cow<'_, str> {
    if !text.chars().any(is_active) {
        return text.into();
    }
    let shown = |c: char| if is_active(c) { c.escape_default().to_string() } else { c.to_string() };
    text.chars().map(shown).collect::<String>().into()
}

/// JSON in which nothing acts. What JSON itself demands has been done; such characters are in its strings only.
pub fn plain_json(text: &str) -> Cow<'_, str> {
    let is_left = |c: char| is_active(c) && !c.is_ascii_control() || c == '\u{7f}';
    if !text.chars().any(is_left) {
        return text.into();
    }
    let mut plain = String::with_capacity(text.len());
    for c in text.chars() {
        match is_left(c) {
            // All of them are below the sixteenth bit. Writing to a string does not fail.
            true => _ = write!(plain, "\\u{:04x}", c as u32),
            false => plain.push(c),
        }
    }
    plain.into()
}

/// Says a line on stderr. A closed terminal is no failure.
pub fn say(line: &str) {
    let _ = std::io::stderr().write_all(format!("understudy: {}\n", plain(line)).as_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_acts() {
        assert_eq!(plain("a b-\u{e9}\u{4e16}"), "a b-\u{e9}\u{4e16}");
        assert_eq!(
            plain("\u{1b}[31mred\n\r\u{9b}2J\u{202e}x\u{7f}"),
            r"\u{1b}[31mred\n\r\u{9b}2J\u{202e}x\u{7f}"
        );
        let json = serde_json::to_string("a\u{1b}\u{9b}\u{7f}\u{202e}\n").unwrap();
        let plain = plain_json(&json);
        assert_eq!(plain, r#""a\u001b\u009b\u007f\u202e\n""#);
        assert_eq!(serde_json::from_str::<String>(&plain).unwrap(), "a\u{1b}\u{9b}\u{7f}\u{202e}\n");
    }
}
