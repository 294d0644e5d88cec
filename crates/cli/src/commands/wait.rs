//! `wait`: until a group is protected, or has ended.

use std::time::{Duration, Instant};

use us_abi::exit;
use us_supervisor::{Error, status, terminal};

/// Pause between two looks.
const LOOK: Duration = Duration::from_millis(20);

/// How long a group may take to be there and protected, unless another time is named.
const PROTECTED: Duration = Duration::from_secs(60);

/// Waits until the group `name` is protected. It need not be there yet: whoever waits may be quicker than whoever starts it.
pub fn until_protected(name: &str, timeout: Option<Duration>) -> Result<i32, Error> {
    let (begun, patience) = (Instant::now(), timeout.unwrap_or(PROTECTED));
    let mut has_run = false;
    loop {
        let found = status::read(Some(name));
        let group = found.as_ref().ok().and_then(|status| status.groups.first());
        let is_late = begun.elapsed() >= patience;
        match group.map(|group| (group.state, group.why.as_deref())) {
            Some(("protected", _)) => return Ok(0),
            Some((state, why)) if is_late => {
                let why = why.map_or(String::new(), |why| format!(": {why}"));
                say(&format!(
                    "{name} is not protected after {:.1} s, but {state}{why}",
                    patience.as_secs_f64()
                ));
                return Ok(exit::UNPROTECTED);
            }
            Some(_) => has_run = true,
            None if has_run || is_late => {
                let ended = found?.ended.into_iter().next().ok_or_else(|| Error::NoSuchGroup(name.into()))?;
                say(&format!("{name} has ended at {}: {}", ended.at, ended.how));
                return Ok(exit::NOT_RUNNING);
            }
            None => {}
        }
        std::thread::sleep(LOOK);
    }
}

/// Waits until the group `name` has ended.
pub fn until_ended(name: &str, timeout: Option<Duration>) -> Result<i32, Error> {
    let begun = Instant::now();
    let mut has_run = false;
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
        std::thread::sleep(LOOK);
    }
}

fn say(line: &str) {
    terminal::say(line);
}
