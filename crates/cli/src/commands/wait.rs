//! `wait`: until a group is protected, or has ended.

use std::time::{Duration, Instant};

use us_abi::exit;
use us_supervisor::status::Group;
use us_supervisor::terminal::plain;
use us_supervisor::{Error, status, terminal};

use crate::progress::Progress;

/// Pause between two looks.
const LOOK: Duration = Duration::from_millis(20);

/// How long a group may take to be there and protected, unless another time is named.
const PROTECTED: Duration = Duration::from_secs(60);

/// Waits until the group `name` has been protected for `held_s` seconds without a break. It need not be there yet: whoever waits may
/// be quicker than whoever starts it.
pub fn until_protected(name: &str, held_s: f64, timeout: Option<Duration>) -> Result<i32, Error> {
    let begun = Instant::now();
    let patience = timeout.unwrap_or(PROTECTED + Duration::from_secs_f64(held_s));
    let mut has_run = false;
    let progress = Progress::new(0);
    loop {
        let found = status::read(Some(name));
        let group = found.as_ref().ok().and_then(|status| status.groups.first());
        let is_late = begun.elapsed() >= patience;
        match group.map(|group| missing(group, held_s)) {
            Some(None) => return Ok(0),
            Some(Some(what)) if is_late => {
                say(&format!("{name} is not protected after {:.1} s, but {what}", patience.as_secs_f64()));
                return Ok(exit::UNPROTECTED);
            }
            Some(Some(what)) => {
                progress.at(0, &plain(&format!("{name}: {what}")));
                has_run = true;
            }
            None if has_run || is_late => {
                let ended = found?.ended.into_iter().next().ok_or_else(|| Error::NoSuchGroup(name.into()))?;
                say(&format!("{name} has ended at {}: {}", ended.at, ended.how));
                return Ok(exit::NOT_RUNNING);
            }
            None => progress.at(0, &format!("{name} is not there yet")),
        }
        std::thread::sleep(LOOK);
    }
}

/// What a group lacks that is to have been protected for `held_s` seconds. Its processes count as soon as they have lived as long,
/// unless they are such as never get a standby; for a mere moment the first one speaks for all.
fn missing(group: &Group, held_s: f64) -> Option<String> {
    let because = |why: &Option<String>| why.as_ref().map_or(String::new(), |why| format!(": {why}"));
    if group.state != "protected" {
        return Some(format!("{}{}", group.state, because(&group.why)));
    }
    if group.protected_s < held_s {
        return Some(format!("has been for the last {:.1} s only", group.protected_s));
    }
    let counts = |age_s| held_s > 0.0 && age_s >= held_s;
    let mut late = group.processes.iter().filter(|process| process.is_coming && counts(process.age_s));
    late.next().map(|process| {
        format!(
            "its process {} ({}) is {}{}",
            process.guest_pid,
            process.program,
            process.state,
            because(&process.why)
        )
    })
}

/// Waits until the group `name` has ended.
pub fn until_ended(name: &str, timeout: Option<Duration>) -> Result<i32, Error> {
    let begun = Instant::now();
    let mut has_run = false;
    let progress = Progress::new(0);
    loop {
        match status::read(Some(name)) {
            Ok(found) if found.groups.iter().any(|group| group.state != "ended") => has_run = true,
            Ok(_) => return Ok(0),
            Err(Error::NoSuchGroup(_)) if has_run => return Ok(0),
            Err(other) => return Err(other),
        }
        if let Some(patience) = timeout.filter(|patience| begun.elapsed() >= *patience) {
            say(&format!("{name} has not ended after {:.1} s", patience.as_secs_f64()));
            return Ok(exit::FAILED);
        }
        progress.at(0, &format!("{name} runs"));
        std::thread::sleep(LOOK);
    }
}

fn say(line: &str) {
    terminal::say(line);
}
