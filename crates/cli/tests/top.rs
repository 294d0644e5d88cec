//! `top` on a terminal.

mod common;

use std::time::{Duration, Instant};

use common::{Sandbox, terminal, text, wait_for};

#[test]
fn groups_are_watched_and_switched_on_a_terminal() {
    let sandbox = Sandbox::new("follow");
    let _running = sandbox.start("g", &["wait"]);
    sandbox.wait_for_event("protected");
    let (ours, theirs) = terminal(100);
    let mut command = sandbox.understudy(&["top", "--interval", "0.1"]);
    command.env("TERM", "xterm").stdout(theirs.try_clone().unwrap()).stdin(theirs);
    let mut child = command.spawn().unwrap();
    drop(command);
    rustix::io::ioctl_fionbio(&ours, true).unwrap();
    let mut shown = String::new();
    let mut until = |part: &str| {
        let begun = Instant::now();
        while !shown.contains(part) {
            let mut bytes = [0; 4096];
            match rustix::io::read(&ours, &mut bytes) {
                Ok(length) if length > 0 => shown.push_str(&text(&bytes[..length])),
                _ => std::thread::sleep(Duration::from_millis(5)),
            }
            assert!(begun.elapsed() < Duration::from_secs(60), "{part:?} did not come: {shown:?}");
        }
    };
    until("protected");
    rustix::io::write(&ours, b"f").unwrap();
    until("y/n");
    rustix::io::write(&ours, b"y").unwrap();
    sandbox.wait_for_event("promoted");
    until("planned");
    rustix::io::write(&ours, b"q").unwrap();
    // The screen that was there before comes back.
    until("\u{1b}[?1049l");
    let status = wait_for(|| child.try_wait().unwrap(), "top to end");
    assert_eq!(status.code(), Some(0));
    assert!(sandbox.output(&["stop", "g"]).status.success());
}

#[test]
fn top_needs_a_terminal() {
    let sandbox = Sandbox::new("silent");
    let out = sandbox.output(&["top"]);
    assert_eq!(
        (out.status.code(), text(&out.stderr)),
        (Some(2), "understudy: top needs a terminal; status --watch writes to anything\n".into())
    );
}
