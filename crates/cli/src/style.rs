//! How a terminal is written to: its width, and whether it shows colours.

use std::io::IsTerminal;

/// What stdout is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Style {
    /// Colours are wanted.
    pub colours: bool,
    /// Characters in a line, where there is a limit.
    pub width: Option<usize>,
}

impl Style {
    /// Colours on a terminal that has them, unless `NO_COLOR` is set. A file and a pipe get all columns and no colours.
    pub fn of_stdout() -> Style {
        let stdout = std::io::stdout();
        if !stdout.is_terminal() {
            return Style::default();
        }
        let is_set = |name: &str| std::env::var_os(name).is_some_and(|value| !value.is_empty());
        let is_dumb = std::env::var_os("TERM").is_none_or(|term| term.is_empty() || term == "dumb");
        let width = rustix::termios::tcgetwinsize(&stdout).map_or(0, |size| usize::from(size.ws_col));
        Style { colours: !is_set("NO_COLOR") && !is_dumb, width: Some(width).filter(|width| *width > 0) }
    }

    /// The word for a state, padded already, in the colour of what it means.
    pub fn state(self, word: &str) -> String {
        match meaning(word.trim_end()) {
            Some(colour) if self.colours => format!("\u{1b}[{colour}m{word}\u{1b}[0m"),
            _ => word.into(),
        }
    }
}

/// The colour of what a state means, as a terminal counts them.
pub fn meaning(state: &str) -> Option<u8> {
    match state {
        "protected" => Some(32),
        "starting" | "reprotecting" | "behind" | "cloning" | "promoting" => Some(33),
        "unprotected" | "lost" | "diverged" => Some(31),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_state_has_a_colour_where_colours_are_wanted() {
        let style = Style { colours: true, width: None };
        assert_eq!(style.state("protected  "), "\u{1b}[32mprotected  \u{1b}[0m");
        assert_eq!(style.state("STATE"), "STATE");
        assert_eq!(Style::default().state("lost"), "lost");
    }
}
