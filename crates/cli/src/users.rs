//! `status --user all`: the groups of every user, for root.
//!
//! Each user's are looked at by a process of its own that has become that user. One that a user stops or kills costs the view of
//! that user's groups, after a while.

use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use us_supervisor::{Error, identity, proc, status};

use crate::commands::print;
use crate::report;

/// How long one user's groups may take.
const PATIENCE: Duration = Duration::from_secs(10);

/// Most that one user's groups may come to, bytes.
const BYTES_MAX: u64 = 16 << 20;

/// Shows the groups of all users, or those of them that are called `name`.
pub fn show_all(name: Option<&str>, as_json: bool) -> Result<i32, Error> {
    let own = status::read(None)?;
    let uids = std::iter::once(identity::own()).chain(own.others.iter().map(|other| other.uid));
    let views = uids.map(|uid| (uid, look(uid, name, as_json)));
    let text = if as_json { merged(views) } else { one_by_one(views) };
    Ok(print(text.as_bytes()))
}

/// What `status` says as that user; `None` when it says nothing, or does not come to an end.
fn look(uid: u32, name: Option<&str>, as_json: bool) -> Option<String> {
    let mut command = Command::new(proc::OWN_EXECUTABLE);
    command.arg("status").args(["--user", &uid.to_string()]).args(as_json.then_some("--json")).args(name);
    let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().ok()?;
    let out = child.stdout.take()?;
    let reader = std::thread::spawn(move || {
        let mut text = String::new();
        std::io::Read::read_to_string(&mut std::io::Read::take(out, BYTES_MAX), &mut text).ok()?;
        Some(text)
    });
    let begun = Instant::now();
    while !reader.is_finished() && begun.elapsed() < PATIENCE {
        std::thread::sleep(Duration::from_millis(2));
    }
    let _ = child.kill();
    let _ = child.wait();
    reader.join().ok().flatten().filter(|text| !text.is_empty())
}

fn one_by_one(views: impl Iterator<Item = (u32, Option<String>)>) -> String {
    views.map(|(uid, text)| format!("user {uid}:\n{}", text.unwrap_or_else(|| "-\n".into()))).collect()
}

fn merged(views: impl Iterator<Item = (u32, Option<String>)>) -> String {
    let mut groups = Vec::new();
    for (uid, text) in views {
        let found: Value = serde_json::from_str(&text.unwrap_or_default()).unwrap_or_default();
        for group in found["groups"].as_array().into_iter().flatten() {
            let mut group = group.clone();
            group["uid"] = uid.into();
            groups.push(group);
        }
    }
    report::json(&json!({ "version": 1, "groups": groups, "others": [] }))
}
