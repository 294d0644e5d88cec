//! Under a service manager: notifications, and numbers that name the program.

mod common;

use std::io::IoSliceMut;
use std::mem::MaybeUninit;
use std::os::unix::net::UnixDatagram;

use common::{Sandbox, text};
use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, sockopt};

/// What a manager hears next, and of which process.
fn hear(manager: &UnixDatagram) -> (String, u32) {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmCredentials(1))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let mut bytes = [0; 1024];
    let mut parts = [IoSliceMut::new(&mut bytes)];
    let got = rustix::net::recvmsg(manager, &mut parts, &mut control, RecvFlags::empty()).unwrap();
    let sender = control.drain().find_map(|message| match message {
        RecvAncillaryMessage::ScmCredentials(who) => Some(who.pid.as_raw_nonzero().get() as u32),
        _ => None,
    });
    (text(&bytes[..got.bytes]), sender.unwrap())
}

#[test]
fn notifications_are_the_main_processes() {
    notifications(&["run", "--name", "g", "--"]);
}

#[test]
fn notifications_of_a_recorded_program_are_as_well() {
    let recording = tempfile::tempdir().unwrap();
    let file = recording.path().join("r");
    notifications(&["record", "--name", "g", "-o", file.to_str().unwrap(), "--"]);
}

fn notifications(words: &[&str]) {
    let sandbox = Sandbox::new("follow");
    let path = sandbox.folder.path().join("manager");
    let manager = UnixDatagram::bind(&path).unwrap();
    manager.set_read_timeout(Some(std::time::Duration::from_secs(60))).unwrap();
    sockopt::set_socket_passcred(&manager, true).unwrap();
    let mut command = sandbox.understudy(words);
    command.arg(&common::built().guest).arg("notify").env("NOTIFY_SOCKET", &path);
    let mut child = command.spawn().unwrap();
    assert_eq!(hear(&manager), ("READY=1\nSTATUS=up".into(), child.id()));
    assert_eq!(hear(&manager), ("STOPPING=1".into(), child.id()));
    assert_eq!(child.wait().unwrap().code(), Some(0));
    sandbox.assert_clean();
}

/// A socket that was handed over, or a pipe, is closed when the program closes it.
#[test]
fn descriptors_are_the_programs_alone() {
    let sandbox = Sandbox::new("follow");
    let binary = env!("CARGO_BIN_EXE_understudy");
    let script = format!(
        "exec 7>&1 >/dev/null; exec {binary} run -q --name g -- sh -c 'echo here >&7; exec 7>&-; exec sleep 60'"
    );
    let mut sh = std::process::Command::new("sh");
    sh.arg("-c").arg(&script).stdout(std::process::Stdio::piped());
    for (name, value) in sandbox.understudy(&[]).get_envs() {
        sh.env(name, value.unwrap());
    }
    let mut child = sh.spawn().unwrap();
    let mut said = String::new();
    let begun = std::time::Instant::now();
    std::io::Read::read_to_string(&mut child.stdout.take().unwrap(), &mut said).unwrap();
    assert_eq!(said, "here\n");
    assert!(begun.elapsed() < std::time::Duration::from_secs(30), "its end came with the program's");
    assert!(sandbox.output(&["stop", "g", "--signal", "KILL"]).status.success());
    child.wait().unwrap();
}

#[test]
fn a_manager_that_does_not_listen_costs_nothing() {
    let sandbox = Sandbox::new("follow");
    for socket in ["/no/such/socket", "@no-such-socket", "vsock:2:1", ""] {
        let mut command = sandbox.understudy(&["run", "--", "true"]);
        assert_eq!(command.env("NOTIFY_SOCKET", socket).output().unwrap().status.code(), Some(0), "{socket}");
    }
    sandbox.assert_clean();
}

#[test]
fn descriptors_and_the_watchdog_are_the_programs() {
    let sandbox = Sandbox::new("silent");
    let binary = env!("CARGO_BIN_EXE_understudy");
    let script = "echo $LISTEN_PID $WATCHDOG_PID $$";
    // The shell becomes understudy, with its number.
    let shell = format!("LISTEN_PID=$$ WATCHDOG_PID=$$ exec {binary} run -q -- sh -c '{script}'");
    let command = sandbox.understudy(&[]);
    let run = |shell: &str| {
        let mut sh = std::process::Command::new("sh");
        sh.arg("-c").arg(shell);
        for (name, value) in command.get_envs() {
            sh.env(name, value.unwrap());
        }
        text(&sh.output().unwrap().stdout)
    };
    let said = run(&shell);
    let numbers: Vec<&str> = said.split_whitespace().collect();
    assert!(numbers.len() == 3 && numbers[0] == numbers[2] && numbers[1] == numbers[2], "{said}");
    // What is for somebody else stays so.
    let said = run(&shell.replace("LISTEN_PID=$$", "LISTEN_PID=1"));
    assert!(said.starts_with("1 "), "{said}");
    sandbox.assert_clean();
}
