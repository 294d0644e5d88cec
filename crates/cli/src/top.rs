//! What `top` knows and shows: no terminal and no clock in here.

pub mod draw;
pub mod track;

use std::cell::Cell;
use std::collections::BTreeMap;

use us_supervisor::status::Status;
use us_supervisor::terminal::plain;

use self::track::Track;
use crate::report;

/// Lines of news that are remembered.
const NEWS_MAX: usize = 100;

/// One row of the table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Line {
    /// The group.
    pub group: String,
    /// As in the table of `status`.
    pub cells: [String; report::COLUMNS],
}

/// What the keys mean at the moment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Mode {
    /// Moving about.
    #[default]
    Look,
    /// Typing what names have to contain.
    Filter,
    /// Asked whether this is to be done to this group.
    Confirm(Act, String),
}

/// What can be done to a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Act {
    /// Its standby takes over.
    Failover,
    /// It ends.
    Stop,
}

/// A key, as far as it matters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Key {
    /// A character.
    Char(char),
    /// One line up.
    Up,
    /// One line down.
    Down,
    /// One screen of rows up.
    PageUp,
    /// One screen of rows down.
    PageDown,
    /// Enter.
    Enter,
    /// Backspace.
    Back,
    /// Escape.
    Escape,
}

/// What follows from a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Then {
    /// Nothing but what is shown.
    Go,
    /// The end.
    Quit,
    /// This is to be done to this group.
    Do(Act, String),
}

/// All that is shown.
#[derive(Debug, Default)]
pub struct Screen {
    /// The rows, of all groups.
    lines: Vec<Line>,
    /// Of each group, by name.
    tracks: BTreeMap<String, Track>,
    /// What happened, the last of it at the end.
    news: Vec<String>,
    /// The group that acts are for.
    selected: Option<String>,
    /// Screens of rows below the place at which the chosen group is in sight; drawing keeps it to what there is.
    pages: Cell<isize>,
    /// What names have to contain.
    filter: String,
    mode: Mode,
}

impl Screen {
    /// One that shows the groups whose names contain `filter`.
    pub fn new(filter: &str) -> Screen {
        Screen { filter: filter.into(), ..Screen::default() }
    }

    /// Takes in how things stand at `now_s`, seconds of any clock that does not go back.
    pub fn update(&mut self, status: &Status, now_s: f64) {
        self.lines = status
            .groups
            .iter()
            .flat_map(|group| {
                let rows = report::rows_of(group).into_iter();
                rows.map(|cells| Line { group: group.name.clone(), cells })
            })
            .collect();
        for group in &status.groups {
            let is_new = !self.tracks.contains_key(&group.name);
            let track = self.tracks.entry(group.name.clone()).or_default();
            let news = track.take(group, now_s);
            // What was before we looked is no news.
            if !is_new {
                news.iter().for_each(|line| Self::tell(&mut self.news, line));
            }
        }
        let gone = |name: &String| !status.groups.iter().any(|group| group.name == *name);
        let names: Vec<String> = self.tracks.keys().filter(|name| gone(name)).cloned().collect();
        for name in names {
            self.tracks.remove(&name);
            let found = status.ended.iter().find(|ended| ended.name == name);
            let how = found.map_or(String::new(), |ended| format!(": {}", ended.how));
            Self::tell(&mut self.news, &format!("{name} has ended{how}"));
        }
        self.keep_selection();
    }

    /// Something that happened.
    pub fn say(&mut self, line: &str) {
        Self::tell(&mut self.news, line);
    }

    fn tell(news: &mut Vec<String>, line: &str) {
        news.push(plain(line).into_owned());
        let too_many = news.len().saturating_sub(NEWS_MAX);
        news.drain(..too_many);
    }

    /// The rows that are shown.
    fn shown(&self) -> impl Iterator<Item = &Line> {
        self.lines.iter().filter(|line| line.group.contains(&self.filter))
    }

    /// Names of the groups that are shown, each once.
    fn names(&self) -> Vec<&str> {
        let mut names: Vec<&str> = self.shown().map(|line| line.group.as_str()).collect();
        names.dedup();
        names
    }

    fn keep_selection(&mut self) {
        let names = self.names();
        if !self.selected.as_deref().is_some_and(|selected| names.contains(&selected)) {
            self.selected = names.first().map(|name| (*name).to_owned());
        }
    }

    fn step(&mut self, by: isize) {
        let names = self.names();
        let at =
            self.selected.as_deref().and_then(|selected| names.iter().position(|name| *name == selected));
        let last = names.len().saturating_sub(1);
        let to = at.unwrap_or(0).saturating_add_signed(by).min(last);
        self.selected = names.get(to).map(|name| (*name).to_owned());
        self.pages.set(0);
    }

    /// Follows a key.
    pub fn key(&mut self, key: Key) -> Then {
        match (std::mem::take(&mut self.mode), key) {
            (Mode::Look, Key::Char('q') | Key::Escape) => return Then::Quit,
            (Mode::Look, Key::Up | Key::Char('k')) => self.step(-1),
            (Mode::Look, Key::Down | Key::Char('j')) => self.step(1),
            (Mode::Look, Key::PageUp) => self.pages.set(self.pages.get() - 1),
            (Mode::Look, Key::PageDown) => self.pages.set(self.pages.get() + 1),
            (Mode::Look, Key::Char('/')) => self.mode = Mode::Filter,
            (Mode::Look, Key::Char('f')) => self.ask(Act::Failover),
            (Mode::Look, Key::Char('s')) => self.ask(Act::Stop),
            (Mode::Look, _) => {}
            (Mode::Confirm(act, group), Key::Char('y')) => return Then::Do(act, group),
            (Mode::Confirm(..), _) => {}
            (Mode::Filter, Key::Enter) => {}
            (Mode::Filter, Key::Escape) => {
                self.filter.clear();
                self.keep_selection();
            }
            (Mode::Filter, other) => {
                match other {
                    Key::Back => _ = self.filter.pop(),
                    Key::Char(c) if !c.is_control() => self.filter.push(c),
                    _ => {}
                }
                self.mode = Mode::Filter;
                self.keep_selection();
            }
        }
        Then::Go
    }

    fn ask(&mut self, act: Act) {
        if let Some(group) = &self.selected {
            self.mode = Mode::Confirm(act, group.clone());
        }
    }
}

#[cfg(test)]
mod tests;
