//! `stop` and `signal`: acting on a group from outside, whether its supervisor lives or not.

use std::time::{Duration, Instant};

use crate::error::Error;
use crate::folder::{Found, Held};
use crate::request;

/// Pause between two looks at a group that is to end.
const LOOK: Duration = Duration::from_millis(10);

/// How long killed processes, and the supervisor that reports them, may take to be gone.
const KILLED: Duration = Duration::from_secs(30);

/// Sends `number` to the program, whichever of its copies that is: its supervisor does so, who knows what a copy has not
/// taken when it dies. Without a supervisor there is one copy.
///
/// # Errors
/// [`Error::NoSuchGroup`] when the program is gone, or a refusal.
pub fn signal(group: &Found, number: i32) -> Result<(), Error> {
    // SIGKILL is what a standby is for. A supervisor that does not answer is about to end, or has not begun.
    if number != libc::SIGKILL && group.has_supervisor() && pass_on(group, number).is_ok() {
        return Ok(());
    }
    let primary = group.primary().and_then(|primary| group.hold(primary));
    let primary = primary.ok_or_else(|| Error::NoSuchGroup(group.name.clone()))?;
    send(&primary, number)
}

fn pass_on(group: &Found, number: i32) -> Result<(), Error> {
    request::ask(group, &format!("{} {number}", request::SIGNAL)).map(|_| ())
}

/// Sends `number` to the primary, and when that has ended to every process that is left; waits until the group is
/// gone, and kills what is left after `timeout`.
///
/// # Errors
/// When the group belongs to somebody else, or a process cannot be killed.
pub fn stop(group: &Found, number: i32, timeout: Duration) -> Result<(), Error> {
    // Its supervisor, if it has one, stays until nobody is left. It may end at this very moment.
    let _ = request::ask(group, request::STOP);
    // A primary that is merely killed is what a standby is for: SIGKILL has an order of its own.
    let asked = Instant::now();
    let mut told = Vec::new();
    // Its supervisor sees to it that the program gets it, and gets it once.
    let passed_on = number != libc::SIGKILL
        && group.has_program()
        && group.has_supervisor()
        && pass_on(group, number).is_ok();
    while number != libc::SIGKILL && asked.elapsed() < timeout {
        let whom = match group.has_program() {
            true if passed_on && group.has_supervisor() => Vec::new(),
            true => group.primary().into_iter().collect(),
            false => group.primaries(),
        };
        for primary in whom.into_iter().filter_map(|primary| group.hold(primary)) {
            // Again to a standby that took over: the signal may have ended the primary without its consent.
            if !told.contains(&primary.id) {
                told.push(primary.id);
                send(&primary, number)?;
            }
        }
        if is_gone(group) {
            return Ok(());
        }
        std::thread::sleep(LOOK);
    }
    kill_all(group)
}

/// Kills until nobody is left: a promotion may make a new primary between two looks.
fn kill_all(group: &Found) -> Result<(), Error> {
    let begun = Instant::now();
    let _ = request::ask(group, request::KILL);
    while begun.elapsed() < KILLED {
        // The standbys first: they must not be promoted by the deaths that follow.
        let all = group.standbys().into_iter().chain(group.primaries());
        for process in all.filter_map(|process| group.hold(process)) {
            send(&process, libc::SIGKILL)?;
        }
        if is_gone(group) {
            return Ok(());
        }
        std::thread::sleep(LOOK);
    }
    Err(Error::StillAlive(group.name.clone()))
}

/// Whether nothing of the group is left; without a supervisor, its folder is removed here.
fn is_gone(group: &Found) -> bool {
    !group.exists() || (!group.has_supervisor() && group.remove_if_dead())
}

fn send(process: &Held, number: i32) -> Result<(), Error> {
    process.signal(number).map_err(|cause| Error::system("signal the primary", cause))
}
