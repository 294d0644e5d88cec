//! Groups of more than one process, with a stand-in for the runtime whose children join as soon as they are forked.

mod common;

use std::mem::offset_of;

use common::{Running, Sandbox, built, is_alive, kill, pid, text, wait_for};
use rustix::process::Signal;
use serde_json::Value;
use us_abi::{PROCESSES_MAX, Process, Registry, Roster, RosterHeader, end, kin, process};

/// The group's processes as `status` has them.
fn processes(sandbox: &Sandbox) -> Vec<Value> {
    sandbox.group()["processes"].as_array().unwrap().clone()
}

/// The child of the program, once it is protected.
fn child(sandbox: &Sandbox) -> Value {
    let protected = |process: &Value| process["state"] == "protected" && process["standbys"][0].is_object();
    let child = || processes(sandbox).get(1).filter(|child| protected(child)).cloned();
    wait_for(child, "the child to be protected")
}

/// A field of the roster's entry of the process that knows itself as `pid`; `None` when there is none.
fn entry(sandbox: &Sandbox, pid: u32, field: usize) -> Option<u32> {
    let bytes = std::fs::read(sandbox.state().join("g/roster")).unwrap_or_default();
    let word = |at: usize| u32::from_ne_bytes(bytes[at..at + 4].try_into().unwrap());
    let used = if bytes.is_empty() { 0 } else { word(offset_of!(RosterHeader, used)) as usize };
    let entries = (0..used).map(|at| offset_of!(Roster, processes) + at * size_of::<Process>());
    let mut listed = entries.filter(|at| word(at + offset_of!(Process, state)) == process::LISTED);
    let at = listed.find(|at| word(at + offset_of!(Process, pid)) == pid)?;
    Some(word(at + field))
}

/// The kernel's number that the registry has of a process that has failed over.
fn successor(sandbox: &Sandbox, pid: u32) -> Option<u32> {
    let bytes = std::fs::read(sandbox.state().join("g/registry")).unwrap_or_default();
    let from = offset_of!(Registry, primaries);
    let words = bytes.get(from..from + 8 * PROCESSES_MAX).unwrap_or_default().chunks_exact(8);
    let mut words = words.map(|word| u64::from_ne_bytes(word.try_into().unwrap()));
    words.find(|word| (word >> 32) as u32 == pid).map(|word| word as u32)
}

fn wait_for_entry(sandbox: &Sandbox, pid: u32, field: usize, value: u32) {
    wait_for(|| (entry(sandbox, pid, field) == Some(value)).then_some(()), "the roster's word");
}

fn guest_pid(process: &Value) -> u32 {
    pid(&process["guest_pid"])
}

fn primary(process: &Value) -> u32 {
    pid(&process["primary"]["pid"])
}

fn standby(process: &Value) -> u32 {
    pid(&process["standbys"][0]["pid"])
}

/// Ends the program, whose child has ended before.
fn end_parent(sandbox: &Sandbox, mut running: Running) {
    kill(running.child.id(), Signal::TERM);
    running.wait_for_output("parent signal 15\n");
    assert_eq!(running.finish().0, Some(7));
    sandbox.assert_clean();
}

#[test]
fn a_child_joins_and_is_protected() {
    let sandbox = Sandbox::new("follow");
    let mut running = sandbox.start("g", &["parent", "wait"]);
    let root = pid(&sandbox.wait_for_event("protected")["primary"]);
    let child = child(&sandbox);
    assert_eq!((&child["parent_pid"], &child["program"]), (&root.into(), &"guest".into()));
    assert_eq!(guest_pid(&child), primary(&child));
    let told = sandbox.wait_for_events("protected", 2);
    assert_eq!((&told["process"], &told["primary"]), (&child["guest_pid"], &child["primary"]["pid"]));
    let group = sandbox.group();
    assert_eq!((&group["state"], &group["reclones_total"]), (&"protected".into(), &0.into()));
    assert_eq!(guest_pid(&group["processes"][0]), root);
    let table = text(&sandbox.output(&["status"]).stdout);
    let line = format!("\n  {} guest ", guest_pid(&child));
    assert!(table.contains(&line), "{table}");

    // Its end by its own will is nobody's failure, and its parent's to hear of.
    kill(primary(&child), Signal::TERM);
    running.wait_for_output("child signal\n");
    wait_for(|| (processes(&sandbox).len() == 1).then_some(()), "the child to be gone");
    assert!(!sandbox.state().join(format!("g/segment.{}", guest_pid(&child))).exists());
    assert_eq!(sandbox.event("recloned"), None);
    assert_eq!(sandbox.event("promoted"), None);
    end_parent(&sandbox, running);
}

#[test]
fn a_killed_child_goes_on_and_its_end_is_told_to_its_parent() {
    let sandbox = Sandbox::new("follow");
    let mut running = sandbox.start("g", &["parent", "wait"]);
    let first = child(&sandbox);
    let number = guest_pid(&first);
    assert_eq!(entry(&sandbox, number, offset_of!(Process, kin)), Some(kin::KERNEL));
    kill(primary(&first), Signal::KILL);
    let promoted = sandbox.wait_for_event("promoted");
    assert_eq!((&promoted["process"], &promoted["primary"]), (&number.into(), &first["standbys"][0]["pid"]));
    assert_eq!(sandbox.wait_for_event("recloned")["process"], number);
    // The kernel has told the parent of the first primary's end, and we may have reminded it of that.
    running.wait_for_output("child signal\n");
    assert_eq!(entry(&sandbox, number, offset_of!(Process, kin)), Some(kin::ADOPTED));
    assert_eq!(successor(&sandbox, number), Some(standby(&first)));
    let group = sandbox.group();
    assert_eq!((&group["epoch"], &group["failovers"][0]["process"]), (&1.into(), &number.into()));
    let second = child(&sandbox);
    assert_eq!((guest_pid(&second), primary(&second)), (number, standby(&first)));
    kill(primary(&second), Signal::KILL);
    sandbox.wait_for_events("promoted", 2);
    let third = child(&sandbox);

    kill(primary(&third), Signal::USR1);
    wait_for_entry(&sandbox, number, offset_of!(Process, end), end::ENDED);
    assert_eq!(entry(&sandbox, number, offset_of!(Process, status)), Some(7 << 8));
    assert_eq!(sandbox.group()["epoch"], 2);
    end_parent(&sandbox, running);
}

#[test]
fn the_end_of_an_unprotected_child_is_confirmed() {
    let sandbox = Sandbox::new("barren");
    let mut running = sandbox.start("g", &["parent", "wait"]);
    let told = sandbox.wait_for_event("unprotected");
    assert_eq!(told["why"], "a thread could not be parked");
    let number = pid(&told["process"]);
    let child = &processes(&sandbox)[1];
    assert_eq!((guest_pid(child), &child["state"]), (number, &"reprotecting".into()));
    assert_eq!(child["why"], "it has just been made; no new one could be made: a thread could not be parked");
    assert_eq!(sandbox.group()["state"], "protected");
    kill(number, Signal::KILL);
    running.wait_for_output("child signal\n");
    wait_for_entry(&sandbox, number, offset_of!(Process, end), end::FINAL);
    wait_for(|| (processes(&sandbox).len() == 1).then_some(()), "the child to be gone");
    end_parent(&sandbox, running);
}

#[test]
fn a_doomed_child_is_not_carried_on() {
    use std::os::unix::fs::FileExt;
    let sandbox = Sandbox::new("follow");
    let mut running = sandbox.start("g", &["parent", "wait"]);
    let child = child(&sandbox);
    let roster = std::fs::File::options().write(true).open(sandbox.state().join("g/roster")).unwrap();
    let at = offset_of!(Roster, processes) + size_of::<Process>() + offset_of!(Process, doomed);
    roster.write_all_at(&1u32.to_ne_bytes(), at as u64).unwrap();
    kill(primary(&child), Signal::KILL);
    running.wait_for_output("child signal\n");
    wait_for_entry(&sandbox, guest_pid(&child), offset_of!(Process, end), end::FINAL);
    wait_for(|| (!is_alive(standby(&child))).then_some(()), "its standby to be gone");
    assert_eq!(sandbox.event("promoted"), None);
    end_parent(&sandbox, running);
}

#[test]
fn the_children_of_a_killed_parent_are_told_of_to_its_successor() {
    let sandbox = Sandbox::new("follow");
    let mut running = sandbox.start("g", &["parent", "wait"]);
    let child = child(&sandbox);
    let number = guest_pid(&child);
    // The stand-in's first standby would begin anew; one that was made later goes on.
    kill(standby(&processes(&sandbox)[0]), Signal::KILL);
    let recloned = sandbox.wait_for_event("recloned");
    kill(pid(&recloned["primary"]), Signal::KILL);
    assert_eq!(sandbox.wait_for_event("promoted")["process"], recloned["process"]);
    assert_eq!(entry(&sandbox, number, offset_of!(Process, kin)), Some(kin::ADOPTED));
    sandbox.wait_for_events("recloned", 2);
    kill(primary(&child), Signal::TERM);
    running.wait_for_output("child signal\n");
    wait_for_entry(&sandbox, number, offset_of!(Process, end), end::ENDED);
    assert_eq!(entry(&sandbox, number, offset_of!(Process, status)), Some(7 << 8));
    end_parent(&sandbox, running);
}

#[test]
fn no_reprotect_leaves_a_child_its_first_standby() {
    let sandbox = Sandbox::new("follow");
    let mut running = sandbox.start_with(&["--no-reprotect"], "g", &["parent", "wait"]);
    let first = child(&sandbox);
    kill(primary(&first), Signal::KILL);
    let unprotected = sandbox.wait_for_event("unprotected");
    assert_eq!(
        (&unprotected["process"], &unprotected["why"]),
        (&first["guest_pid"], &"the standby was promoted".into())
    );
    running.wait_for_output("child signal\n");
    kill(standby(&first), Signal::KILL);
    wait_for_entry(&sandbox, guest_pid(&first), offset_of!(Process, end), end::ENDED);
    assert_eq!(entry(&sandbox, guest_pid(&first), offset_of!(Process, status)), Some(9));
    assert_eq!(sandbox.event("recloned"), None);
    end_parent(&sandbox, running);
}

#[test]
fn a_child_that_becomes_another_program_is_protected_again() {
    let sandbox = Sandbox::new("follow");
    let mut running = sandbox.start("g", &["parent", "become"]);
    running.wait_for_output("");
    let child = child(&sandbox);
    kill(primary(&child), Signal::KILL);
    // The program's first standby begins anew, in the child's second image.
    assert_eq!(sandbox.wait_for_event("promoted")["process"], child["guest_pid"]);
    running.wait_for_output("child signal\n");
    assert_eq!(sandbox.event("standby_lost"), None);
    assert_eq!(sandbox.event("unprotected"), None, "{:?}", sandbox.events());
    assert!(sandbox.output(&["stop", "g"]).status.success());
    running.finish();
    sandbox.assert_clean();
}

#[test]
fn a_planned_switch_of_one_process() {
    let sandbox = Sandbox::new("follow");
    let mut running = sandbox.start("g", &["parent", "wait"]);
    let child = child(&sandbox);
    let number = guest_pid(&child).to_string();
    let out = sandbox.output(&["failover", "g", "--process", &number, "--json"]);
    assert!(out.status.success(), "{}", text(&out.stderr));
    let done: Value = serde_json::from_slice(&out.stdout).unwrap();
    assert_eq!((&done["process"], &done["primary"]), (&child["guest_pid"], &child["standbys"][0]["pid"]));
    assert_eq!(done["reason"], "planned");
    running.wait_for_output("child signal\n");
    let out = sandbox.output(&["failover", "g", "--process", "1"]);
    let root = sandbox.group()["processes"][0]["guest_pid"].clone();
    assert_eq!(
        text(&out.stderr),
        format!("understudy: g: no process 1 is protected here; these are: {root}, {number}\n")
    );
    assert!(sandbox.output(&["stop", "g"]).status.success());
    running.finish();
    sandbox.assert_clean();
}

// ---- Ends of groups ----

#[test]
fn a_program_that_ends_leaves_its_children_alone() {
    let sandbox = Sandbox::new("follow");
    let mut running = sandbox.start("g", &["parent", "wait"]);
    let child = child(&sandbox);
    kill(running.child.id(), Signal::TERM);
    running.wait_for_output("parent signal 15\n");
    // Not "finish": whoever is left holds stderr open.
    assert_eq!(running.child.wait().unwrap().code(), Some(7));
    assert!(!sandbox.state().join("g").exists());
    assert_eq!(sandbox.processes(), [primary(&child)]);
    kill(primary(&child), Signal::TERM);
    sandbox.assert_clean();
}

#[test]
fn stop_ends_every_process() {
    let sandbox = Sandbox::new("follow");
    let mut running = sandbox.start("g", &["parent", "wait"]);
    let child = child(&sandbox);
    assert!(sandbox.output(&["stop", "g"]).status.success());
    running.wait_for_output("parent signal 15\n");
    assert!(!is_alive(primary(&child)) && !is_alive(standby(&child)));
    assert_eq!(running.finish().0, Some(7));
    sandbox.assert_clean();
}

#[test]
fn stop_kills_a_stubborn_child() {
    for (stand_in, arguments) in [
        ("follow", &["stop", "g", "--timeout", "0.3"][..]),
        ("solitary", &["stop", "g", "--timeout", "0.3"]),
        ("follow", &["stop", "g", "--signal", "KILL"]),
    ] {
        let sandbox = Sandbox::new(stand_in);
        let running = sandbox.start("g", &["parent", "stubborn"]);
        sandbox.wait_for_event("protected");
        assert!(sandbox.output(arguments).status.success());
        running.finish();
        assert_eq!(sandbox.event("promoted"), None);
        sandbox.assert_clean();
    }
}

#[test]
fn status_says_why_a_child_is_not_protected() {
    let sandbox = Sandbox::new("solitary");
    let running = sandbox.start("g", &["parent", "stubborn"]);
    sandbox.wait_for_event("protected");
    let is_said = |why: &str| {
        let said = text(&sandbox.output(&["status", "g"]).stdout);
        let line = said.lines().find(|line| line.starts_with("g: process "))?.to_owned();
        line.ends_with(&format!(" is not protected: {why}")).then_some(())
    };
    // Nobody waits for one that does not join.
    wait_for(|| is_said("it is not under the runtime"), "the reason");
    assert_eq!(sandbox.output(&["wait", "g", "--timeout", "5"]).status.code(), Some(0));
    assert!(sandbox.output(&["stop", "g", "--timeout", "0.3"]).status.success());
    running.finish();
}

#[test]
fn stop_ends_every_process_without_a_supervisor() {
    let sandbox = Sandbox::new("follow");
    let mut running = sandbox.start("g", &["parent", "stubborn"]);
    child(&sandbox);
    running.child.kill().unwrap();
    running.child.wait().unwrap();
    assert!(sandbox.output(&["stop", "g", "--timeout", "0.3"]).status.success());
    sandbox.assert_clean();
}

#[test]
fn a_daemon_keeps_its_group() {
    let sandbox = Sandbox::new("follow");
    let mut running = sandbox.start("g", &["daemon"]);
    let program = pid(&sandbox.wait_for_event("started")["primary"]);
    let is_it = |process: &Value| process["state"] == "protected" && guest_pid(process) != program;
    let daemon =
        || Some(processes(&sandbox)).filter(|all| all.len() == 1).and_then(|all| all.into_iter().find(is_it));
    let daemon = wait_for(daemon, "the daemon to be alone and protected");
    kill(primary(&daemon), Signal::KILL);
    assert_eq!(sandbox.wait_for_event("promoted")["process"], daemon["guest_pid"]);
    sandbox.wait_for_event("recloned");
    let group =
        wait_for(|| Some(sandbox.group()).filter(|group| group["state"] == "protected"), "protection");
    assert_eq!(group["processes"][0]["guest_pid"], daemon["guest_pid"]);
    assert!(sandbox.output(&["failover", "g"]).status.success());
    // Signals to the group are for it, and its exit code is the group's, if it has outlived the program by half a second.
    std::thread::sleep(std::time::Duration::from_millis(600));
    kill(running.child.id(), Signal::USR1);
    running.wait_for_output("signal 10\n");
    assert_eq!(running.finish().0, Some(7));
    sandbox.assert_clean();
}

#[test]
fn who_ends_run_does_not_wait_for_sessions_that_go_on() {
    let sandbox = Sandbox::new("follow");
    let mut running = sandbox.start("g", &["sessions"]);
    let program = pid(&sandbox.wait_for_event("started")["primary"]);
    let session = wait_for(
        || {
            let is_it = |one: &Value| one["state"] == "protected" && guest_pid(one) != program;
            processes(&sandbox).into_iter().find(is_it)
        },
        "the session to be protected",
    );
    kill(running.child.id(), Signal::TERM);
    assert_eq!(running.child.wait().unwrap().code(), Some(0));
    // As natively: it goes on by itself, and ends when it is told to.
    kill(guest_pid(&session), Signal::TERM);
    running.wait_for_output("signal 15\n");
    sandbox.assert_clean();
}

#[test]
fn how_an_orphan_ends_is_not_how_the_program_ended() {
    let sandbox = Sandbox::new("follow");
    let out = sandbox.output(&["run", "--", built().guest.to_str().unwrap(), "orphan"]);
    assert_eq!(out.status.code(), Some(0), "{}", text(&out.stderr));
    sandbox.assert_clean();
}

#[test]
fn the_programs_own_failure_is_the_groups() {
    let sandbox = Sandbox::new("follow");
    let mut running = sandbox.start("g", &["leave"]);
    // Its child is in the program's own session.
    assert_eq!(running.child.wait().unwrap().code(), Some(3));
    let left = sandbox.processes();
    assert_eq!(left.len(), 1);
    kill(left[0], Signal::TERM);
    sandbox.assert_clean();
}

#[test]
fn children_that_are_gone_at_once_leave_nothing() {
    let sandbox = Sandbox::new("follow");
    let running = sandbox.start("g", &["brood", "300"]);
    let held = || {
        let folder = |name: &str| std::fs::read_dir(format!("/proc/{}/{name}", running.child.id())).unwrap();
        let maps = std::fs::read_to_string(format!("/proc/{}/maps", running.child.id())).unwrap();
        let files = std::fs::read_dir(sandbox.state().join("g")).unwrap().count();
        let segments = maps.lines().filter(|line| line.contains("/segment")).count();
        (folder("fd").count(), folder("task").count(), segments, files)
    };
    sandbox.wait_for_event("protected");
    // Signals, bell, segment, roster and registry are mapped; both sockets, what is handed out at one of them, both folders, three
    // streams, events and two copies.
    wait_for(|| (held().2 == 1).then_some(()), "as few segments");
    wait_for(|| (held().1 == 4).then_some(()), "as few threads");
    // Segment, roster, registry, plans, known races, two of what was started and what happened, and the socket.
    wait_for(|| (held().3 == 8).then_some(()), "as few files");
    wait_for(|| (held().0 <= 15).then_some(()), "as few descriptors");
    assert_eq!(processes(&sandbox).len(), 1);
    kill(running.child.id(), Signal::TERM);
    assert_eq!(running.finish().0, Some(7));
    sandbox.assert_clean();
}
