//! `understudy upgrade`: another version of the runtime in a program that runs.

use std::path::Path;

use us_supervisor::folder::Found;
use us_supervisor::{Error, program, upgrade};

use super::print;

/// Puts the version in `library`, or the one that belongs to this command, into a group, and says what has come of it.
pub fn upgrade(group: &Found, library: Option<&Path>, json: bool) -> Result<i32, Error> {
    let own = library.map_or_else(|| program::library().map(Some), |_| Ok(None))?;
    let path = library.or(own.as_deref()).unwrap_or(Path::new(""));
    let answer = upgrade::ask(group, path)?;
    if json {
        return Ok(print(format!("{answer}\n").as_bytes()));
    }
    let text = |name: &str| answer[name].as_str().unwrap_or("?").to_owned();
    let number = |name: &str| answer[name].as_u64().unwrap_or(0);
    let which = format!("{} ({})", text("version"), text("build"));
    let name = &group.name;
    let line = match (number("processes"), number("had_it")) {
        (0, _) => format!("{name}: runs {which} already\n"),
        (count, _) => {
            let longest = answer["paused_ms"].as_array().into_iter().flatten().filter_map(|it| it.as_f64());
            let longest = longest.fold(0.0, f64::max);
            let processes = if count == 1 { "process".into() } else { format!("{count} processes") };
            format!("{name}: {processes} with {which} now, at a stop of {longest:.1} ms at the most\n")
        }
    };
    Ok(print(line.as_bytes()))
}
