//! `status`, once or again and again.

use std::io::IsTerminal;
use std::time::Duration;

use us_abi::exit;
use us_supervisor::{Error, ended, folder, place, status};

use super::print;
use crate::report;
use crate::style::Style;

/// Names listed in a hint, at most.
const NAMES_MAX: usize = 10;

/// And of groups that have ended.
const ENDED_MAX: usize = 3;

/// Shows the groups, or the one called `name`: its exit code says what it is. With `watch` it does so until it is interrupted.
pub fn show(name: Option<&str>, json: bool, watch: Option<Duration>) -> Result<i32, Error> {
    let Some(interval) = watch else { return once(name, json, "") };
    // A terminal shows the present; a file, all that there was.
    let before = if std::io::stdout().is_terminal() && !json { "\u{1b}[H\u{1b}[2J\u{1b}[3J" } else { "" };
    loop {
        match once(name, json, before)? {
            // Nobody reads it any more, or there is nothing more to see.
            code @ (exit::FAILED | exit::NOT_RUNNING) => return Ok(code),
            _ => std::thread::sleep(interval),
        }
    }
}

fn once(name: Option<&str>, json: bool, before: &str) -> Result<i32, Error> {
    let status = status::read(name)?;
    let text = match json {
        true => report::json(&status),
        false => report::status(&status, Style::of_stdout(), name.is_some()),
    };
    Ok(match print((before.to_owned() + &text).as_bytes()) {
        0 => of_one(name, &status),
        failed => failed,
    })
}

/// What the exit code says of the one that was asked for.
pub fn of_one(name: Option<&str>, status: &status::Status) -> i32 {
    match (name, status.groups.first().map(|group| group.state)) {
        (None, _) | (_, Some("protected")) => 0,
        (_, None | Some("ended")) => exit::NOT_RUNNING,
        _ => exit::UNPROTECTED,
    }
}

/// That there is no such group, and what there is instead.
pub fn no_such(name: &str) -> String {
    let mut gone = ended::all();
    if let Some(ended) = gone.iter().find(|ended| ended.name == name) {
        return format!("{name} has ended at {}: {}", ended.at, ended.how);
    }
    let names: Vec<String> = folder::groups().into_iter().map(|group| group.name).collect();
    let running = match names.len() {
        0 => "no group is running".into(),
        1..=NAMES_MAX => format!("running: {}", names.join(", ")),
        more => format!("running: {} and {} more", names[..NAMES_MAX].join(", "), more - NAMES_MAX),
    };
    gone.retain(|ended| !names.contains(&ended.name));
    let gone: Vec<String> = gone.into_iter().take(ENDED_MAX).map(|ended| ended.name).collect();
    let gone = if gone.is_empty() { String::new() } else { format!("; ended last: {}", gone.join(", ")) };
    let others: usize = place::others().iter().map(|other| other.groups).sum();
    let others = if others > 0 { format!("; of other users: {others} (--user)") } else { String::new() };
    format!("{}; {running}{gone}{others}", Error::NoSuchGroup(name.into()))
}
