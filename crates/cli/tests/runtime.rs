//! The same promises with the real runtime: `$UNDERSTUDY_LIB`, or `libunderstudy.so` beside the binary. Without
//! one the tests say so and check nothing.

mod common;

use std::fs::Permissions;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::PermissionsExt;
use std::process::Stdio;
use std::time::Duration;

use common::{
    Running, Sandbox, built, compile, interposed, is_alive, kill, pid, runtime, sanitized, text, wait_for,
};
use rustix::process::Signal;
use serde_json::Value;

#[test]
fn exit_codes() {
    let Some(library) = runtime("exit_codes") else { return };
    let sandbox = Sandbox::with_library(&library, "");
    let guest = built().guest.to_str().unwrap();
    for (arguments, code) in [(["exit", "0"], 0), (["exit", "3"], 3), (["die", "15"], 143)] {
        let out = sandbox.output(&["run", guest, arguments[0], arguments[1]]);
        assert_eq!(out.status.code(), Some(code), "{}", text(&out.stderr));
    }
    sandbox.assert_clean();
}

#[test]
fn the_program_does_not_see_how_it_was_started() {
    let Some(library) = runtime("the_program_does_not_see_how_it_was_started") else { return };
    let sandbox = Sandbox::with_library(&library, "");
    let out = sandbox.understudy(&["run", "env"]).env_remove("LD_PRELOAD").output().unwrap();
    let environment = text(&out.stdout);
    assert!(!environment.is_empty());
    for hidden in ["LD_PRELOAD=", "UNDERSTUDY_SEGMENT=", "UNDERSTUDY_PRELOAD=", "UNDERSTUDY_LIMITS="] {
        assert!(!environment.contains(hidden), "{environment}");
    }
}

/// A user's own preload is asked before the library, as it is before libc natively: libfaketime shifted nothing.
#[test]
fn a_library_that_is_preloaded_is_the_first_to_be_asked() {
    let Some(library) = runtime("a_library_that_is_preloaded_is_the_first_to_be_asked") else { return };
    let sandbox = Sandbox::with_library(&library, "");
    let (program, interposer) = interposed();
    let line = |round: u32| {
        let (locks, threads, reads) = (2000 * round, 2 * round, round - 1);
        format!("{round}: {locks} {threads} {reads} sum {locks} early 1\n")
    };
    let run = |arguments: &[&str], kills: bool| {
        let mut child = sandbox
            .understudy(arguments)
            .env("LD_PRELOAD", &interposer)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut input = child.stdin.take().unwrap();
        let mut output = BufReader::new(child.stdout.take().unwrap());
        for round in 1..=3 {
            let mut said = String::new();
            output.read_line(&mut said).unwrap();
            assert_eq!(said, line(round), "{arguments:?}");
            if kills && round == 1 {
                kill(pid(&sandbox.wait_for_event("protected")["primary"]), Signal::KILL);
                sandbox.wait_for_event("promoted");
            }
            input.write_all(b"on\n").unwrap();
        }
        assert_eq!(child.wait().unwrap().code(), Some(0));
    };
    let (program, events) = (program.to_str().unwrap(), sandbox.events_path());
    run(&["run", "--standbys", "0", program], false);
    run(&["run", "--events", events.to_str().unwrap(), program], true);
    // What a shell starts gets both as well.
    run(&["run", "--standbys", "0", "sh", "-c", &format!("{program}; exit $?")], false);
    sandbox.assert_clean();
}

/// The sanitizer's runtime wants to be the first in front of libc's functions: with the library it did not start.
#[test]
fn a_program_with_a_sanitizer_runs_without_the_library() {
    const TEST: &str = "a_program_with_a_sanitizer_runs_without_the_library";
    let Some(library) = runtime(TEST) else { return };
    let sandbox = Sandbox::with_library(&library, "");
    for (sanitizer, is_one) in [("address", true), ("thread", true), ("leak", true), ("undefined", false)] {
        let Some(program) = sanitized(sanitizer) else {
            eprintln!("{TEST}: {sanitizer} skipped: the compiler has no such sanitizer");
            continue;
        };
        let program = program.to_str().unwrap();
        let run = |arguments: &[&str]| {
            let out = sandbox.understudy(arguments).env_remove("LD_PRELOAD").output().unwrap();
            (out.status.code(), text(&out.stdout).to_owned(), text(&out.stderr).to_owned())
        };
        let (code, out, err) = run(&["run", program]);
        assert_eq!((code, out.as_str()), (Some(3), "2000 0\n"), "{err}");
        assert_eq!(err.contains("runs unprotected: it is built with a sanitizer"), is_one, "{err}");
        let (code, out, err) = run(&["run", "sh", "-c", &format!("{program}; exit $?")]);
        assert_eq!((code, out.as_str()), (Some(3), "2000 0\n"), "{err}");
        let (_, out, _) = run(&["doctor", "--", program]);
        assert_eq!(out.contains("sanitizer"), is_one, "{out}");
    }
    sandbox.assert_clean();
}

#[test]
fn a_killed_primary_is_replaced() {
    let Some(library) = runtime("a_killed_primary_is_replaced") else { return };
    let sandbox = Sandbox::with_library(&library, "");
    let mut running = sandbox.start("g", &["wait"]);
    let protected = sandbox.wait_for_event("protected");
    kill(pid(&protected["primary"]), Signal::KILL);
    assert_eq!(sandbox.wait_for_event("promoted")["reason"], "killed by SIGKILL");
    kill(running.child.id(), Signal::TERM);
    running.wait_for_output("signal 15\n");
    assert_eq!(running.finish().0, Some(7));
    sandbox.assert_clean();
}

/// Large memory and a heap that grows are to have huge pages if that is wanted, and nothing else: not what the program has refused,
/// and nothing where nobody has asked for them.
#[test]
fn large_memory_has_huge_pages_where_that_is_wanted() {
    let Some(library) = runtime("large_memory_has_huge_pages_where_that_is_wanted") else { return };
    let program = compile("large.c", "large", &[]);
    let program = program.to_str().unwrap();
    for (options, is_huge) in [(&["--huge-pages"][..], 1), (&[][..], 0)] {
        let sandbox = Sandbox::with_library(&library, "");
        let events = sandbox.events_path();
        let named = ["run", "--name", "large", "--events", events.to_str().unwrap()];
        let mut command = sandbox.understudy(&[&named, options, &[program]].concat());
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let mut input = child.stdin.take().unwrap();
        let mut output = BufReader::new(child.stdout.take().unwrap());
        for round in 0..3 {
            let mut line = String::new();
            output.read_line(&mut line).unwrap();
            if line == "none\n" {
                println!("skipped: this kernel has no huge pages");
                break;
            }
            assert_eq!(line, format!("large {is_huge} small 0 refused 0 heap {is_huge}\n"), "round {round}");
            // The successor does as the dead one did.
            let protected = || sandbox.group()["state"] == "protected";
            wait_for(|| protected().then_some(()), "protection");
            kill(pid(&sandbox.group()["processes"][0]["primary"]["pid"]), Signal::KILL);
            sandbox.wait_for_events("promoted", round + 1);
            writeln!(input).unwrap();
        }
        drop(input);
        assert_eq!(child.wait().unwrap().code(), Some(0));
        sandbox.assert_clean();
    }
}

/// A process that stays behind when its program has ended goes on alone. It had failed over, and waits for a child that the
/// supervisor had adopted: nobody tells it of that child's end any more, and it must not wait for ever.
#[test]
fn who_is_left_alone_hears_of_a_childs_end() {
    let Some(library) = runtime("who_is_left_alone_hears_of_a_childs_end") else { return };
    let sandbox = Sandbox::with_library(&library, "");
    let events = sandbox.events_path();
    let done = sandbox.state().join("done");
    let script = format!("(sleep 3; echo on > {}) & read end", done.display());
    let named = ["run", "--name", "g", "--events", events.to_str().unwrap(), "--", "sh", "-c", &script];
    let mut child = sandbox.understudy(&named).stdin(Stdio::piped()).spawn().unwrap();
    sandbox.wait_for_event("protected");
    // The shell, its subshell and that one's child.
    let subshell = || {
        let group = sandbox.group();
        let processes = group["processes"].as_array()?;
        let protected = processes.len() == 3 && processes[1]["state"] == "protected";
        protected.then(|| pid(&processes[1]["primary"]["pid"]))
    };
    kill(wait_for(subshell, "the subshell to be protected"), Signal::KILL);
    sandbox.wait_for_event("promoted");
    drop(child.stdin.take());
    child.wait().unwrap();
    wait_for(|| done.exists().then_some(()), "the subshell's line behind the end of its child");
}

/// A program with two threads that counts signals; its output is broken if a copy loses or repeats anything.
struct Counting<'a> {
    sandbox: &'a Sandbox,
    running: Running<'a>,
    count: u32,
}

impl<'a> Counting<'a> {
    fn start(sandbox: &'a Sandbox, options: &[&str]) -> Counting<'a> {
        let running = sandbox.start_with(options, "g", &["count"]);
        sandbox.wait_for_event("protected");
        Counting { sandbox, running, count: 0 }
    }

    fn count_on(&mut self) {
        self.count += 1;
        assert!(self.sandbox.output(&["signal", "g", "USR1"]).status.success());
        self.running.wait_for_output(&format!("count {}\n", self.count));
    }

    fn wait_for_state(&self, state: &str) -> Value {
        let there = || Some(self.sandbox.group()).filter(|group| group["state"] == state);
        wait_for(there, &format!("the state {state}"))
    }

    /// The primary's pid, once there is a standby as well.
    fn primary(&self) -> u32 {
        pid(&self.wait_for_state("protected")["processes"][0]["primary"]["pid"])
    }

    fn end(self) {
        kill(self.running.child.id(), Signal::TERM);
        assert_eq!(self.running.finish().0, Some(143));
        self.sandbox.assert_clean();
    }
}

#[test]
fn a_group_survives_one_kill_after_the_other() {
    const KILLS: usize = 10;
    let Some(library) = runtime("a_group_survives_one_kill_after_the_other") else { return };
    let sandbox = Sandbox::with_library(&library, "");
    let mut counting = Counting::start(&sandbox, &[]);
    for round in 1..=KILLS {
        counting.count_on();
        kill(counting.primary(), Signal::KILL);
        let recloned = sandbox.wait_for_events("recloned", round);
        assert_eq!(recloned["reason"], "promotion");
        assert!(recloned["bytes"].as_u64().unwrap() > 0, "{recloned}");
    }
    counting.count_on();
    let group = counting.wait_for_state("protected");
    assert_eq!((&group["epoch"], &group["reclones_total"]), (&KILLS.into(), &KILLS.into()));
    counting.end();
}

/// As logind does when a user's last session ends.
#[test]
fn a_folder_that_is_removed_costs_no_protection() {
    let Some(library) = runtime("a_folder_that_is_removed_costs_no_protection") else { return };
    let sandbox = Sandbox::with_library(&library, "");
    let mut counting = Counting::start(&sandbox, &[]);
    std::fs::remove_dir_all(sandbox.state()).unwrap();
    let removed = sandbox.wait_for_event("folder_removed");
    assert_eq!(removed["folder"], sandbox.state().join("g").to_str().unwrap());
    let mut primary = pid(&sandbox.wait_for_event("protected")["primary"]);
    for round in 1..=3 {
        kill(primary, Signal::KILL);
        primary = pid(&sandbox.wait_for_events("recloned", round)["primary"]);
        kill(counting.running.child.id(), Signal::USR1);
        counting.running.wait_for_output(&format!("count {round}\n"));
    }
    assert_eq!(sandbox.output(&["status", "g"]).status.code(), Some(3));
    kill(counting.running.child.id(), Signal::TERM);
    let (code, said) = counting.running.finish();
    assert_eq!(code, Some(143));
    assert_eq!(said.matches(" was removed, ").count(), 1, "{said}");
    sandbox.await_processes();
}

#[test]
fn a_lost_standby_is_replaced() {
    let Some(library) = runtime("a_lost_standby_is_replaced") else { return };
    let sandbox = Sandbox::with_library(&library, "");
    let mut counting = Counting::start(&sandbox, &[]);
    let primary = counting.primary();
    for round in 1..=3 {
        counting.count_on();
        let group = counting.wait_for_state("protected");
        kill(pid(&group["processes"][0]["standbys"][0]["pid"]), Signal::KILL);
        assert_eq!(sandbox.wait_for_events("recloned", round)["reason"], "standby lost");
    }
    assert_eq!(counting.primary(), primary);
    kill(primary, Signal::KILL);
    sandbox.wait_for_event("promoted");
    counting.count_on();
    counting.end();
}

/// How often the threads of a process have gone to sleep.
fn sleeps(process: u32) -> u64 {
    let tasks = std::fs::read_dir(format!("/proc/{process}/task")).unwrap();
    let counts = tasks.map(|task| {
        let status = std::fs::read_to_string(task.unwrap().path().join("status")).unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"));
        line.unwrap().trim().parse::<u64>().unwrap()
    });
    counts.sum()
}

/// Where the primary is silent the standby dozes, a tenth of a second at a time; it looked a hundred times a second.
#[test]
fn the_standby_of_a_silent_program_sleeps() {
    let Some(library) = runtime("the_standby_of_a_silent_program_sleeps") else { return };
    let sandbox = Sandbox::with_library(&library, "");
    let running = sandbox.start("g", &["wait"]);
    let standby = pid(&sandbox.wait_for_event("protected")["standby"]);
    std::thread::sleep(Duration::from_secs(1));
    let before = sleeps(standby);
    std::thread::sleep(Duration::from_secs(2));
    let slept = sleeps(standby) - before;
    assert!((1..=60).contains(&slept), "{slept}");
    kill(running.child.id(), Signal::TERM);
    running.finish();
    sandbox.assert_clean();
}

#[test]
fn a_spare_is_heir_when_the_heir_has_taken_over() {
    let Some(library) = runtime("a_spare_is_heir_when_the_heir_has_taken_over") else { return };
    let sandbox = Sandbox::with_library(&library, "");
    let mut counting = Counting::start(&sandbox, &["--standbys", "2"]);
    sandbox.wait_for_event("spare_standby");
    for round in 1..=3 {
        let copies = counting.wait_for_state("protected")["processes"][0]["standbys"].clone();
        let (heir, spare) = (pid(&copies[0]["pid"]), pid(&copies[1]["pid"]));
        kill(counting.primary(), Signal::KILL);
        let up = sandbox.wait_for_events("moved_up", round);
        assert_eq!((pid(&up["primary"]), pid(&up["standby"])), (heir, spare), "{up}");
        let recloned = sandbox.wait_for_events("recloned", round);
        assert_eq!((&recloned["reason"], &recloned["order"]), (&"spare".into(), &"schedule".into()));
        counting.count_on();
    }
    let table = sandbox.output(&["status", "g"]);
    let copies = counting.wait_for_state("protected")["processes"][0]["standbys"].clone();
    let pids = format!("{}, {}", copies[0]["pid"], copies[1]["pid"]);
    assert!(text(&table.stdout).contains(&pids), "{pids}: {}", text(&table.stdout));
    counting.end();
}

#[test]
fn no_reprotect_means_no_second_standby() {
    let Some(library) = runtime("no_reprotect_means_no_second_standby") else { return };
    let sandbox = Sandbox::with_library(&library, "");
    let mut counting = Counting::start(&sandbox, &["--no-reprotect"]);
    kill(counting.primary(), Signal::KILL);
    counting.wait_for_state("unprotected");
    sandbox.wait_for_event("unprotected");
    counting.count_on();
    assert_eq!(sandbox.event("recloned"), None);
    counting.end();
}

#[test]
fn planned_switches_one_after_the_other() {
    let Some(library) = runtime("planned_switches_one_after_the_other") else { return };
    let sandbox = Sandbox::with_library(&library, "");
    let mut counting = Counting::start(&sandbox, &[]);
    for epoch in 1..=5 {
        counting.count_on();
        let before = counting.primary();
        let out = sandbox.output(&["failover", "g", "--json"]);
        assert!(out.status.success(), "{}", text(&out.stderr));
        let done: Value = serde_json::from_slice(&out.stdout).unwrap();
        assert_eq!(
            (&done["reason"], &done["epoch"], &done["unsettled"]),
            (&"planned".into(), &epoch.into(), &0.into())
        );
        assert_ne!(pid(&done["primary"]), before);
    }
    counting.count_on();
    counting.end();
}

#[test]
fn a_stopped_primary_is_fenced_by_its_probe() {
    let Some(library) = runtime("a_stopped_primary_is_fenced_by_its_probe") else { return };
    let sandbox = Sandbox::with_library(&library, "");
    let stopped = sandbox.folder.path().join("primary");
    let command = format!("! grep -q '^State:.T' /proc/$(cat {})/status", stopped.display());
    let mut counting = Counting::start(&sandbox, &["--probe", &command, "--probe-interval", "100"]);
    counting.count_on();
    let primary = counting.primary();
    std::fs::write(&stopped, primary.to_string()).unwrap();
    kill(primary, Signal::STOP);
    assert_eq!(sandbox.wait_for_event("promoted")["reason"], "probe failed 3 times");
    sandbox.wait_for_event("recloned");
    counting.count_on();
    counting.end();
}

/// One that does not apply what is logged is not what a kill needs.
#[test]
fn a_standby_that_is_behind_is_no_protection() {
    let Some(library) = runtime("a_standby_that_is_behind_is_no_protection") else { return };
    let sandbox = Sandbox::with_library(&library, "");
    let mut counting = Counting::start(&sandbox, &[]);
    let standby = pid(&counting.wait_for_state("protected")["processes"][0]["standbys"][0]["pid"]);
    kill(standby, Signal::STOP);
    counting.count_on();
    assert_eq!(sandbox.output(&["status", "g"]).status.code(), Some(0));
    let group = counting.wait_for_state("unprotected");
    assert_eq!(sandbox.output(&["status", "g"]).status.code(), Some(4));
    assert!(group["why"].as_str().unwrap().starts_with("the standby is behind"), "{group}");
    assert!(group["guarantee"].as_str().unwrap().starts_with("none: the standby is behind"), "{group}");
    assert_eq!(group["processes"][0]["standbys"][0]["state"], "behind");
    sandbox.wait_for_event("behind");
    kill(standby, Signal::CONT);
    sandbox.wait_for_event("confirmed");
    let group = counting.wait_for_state("protected");
    assert_eq!(group["processes"][0]["standbys"][0]["pid"], standby);
    assert_eq!(group["reclones_total"], 0);
    counting.count_on();
    counting.end();
}

#[test]
fn an_exec_while_a_standby_is_being_made_does_no_harm() {
    let Some(library) = runtime("an_exec_while_a_standby_is_being_made_does_no_harm") else { return };
    for _ in 0..5 {
        let sandbox = Sandbox::with_library(&library, "");
        let mut running = sandbox.start("g", &["replace"]);
        let protected = sandbox.wait_for_event("protected");
        kill(pid(&protected["standby"]), Signal::KILL);
        assert!(sandbox.output(&["signal", "g", "USR1"]).status.success());
        running.wait_for_output("ready\n");
        let mut counting = Counting { sandbox: &sandbox, running, count: 0 };
        counting.count_on();
        assert_eq!(counting.primary(), pid(&protected["primary"]));
        kill(counting.primary(), Signal::KILL);
        sandbox.wait_for_event("promoted");
        counting.count_on();
        counting.end();
    }
}

#[test]
fn plans_that_are_damaged_or_foreign_are_not_believed() {
    let Some(library) = runtime("plans_that_are_damaged_or_foreign_are_not_believed") else { return };
    let sandbox = Sandbox::with_library(&library, "");
    let mut command = sandbox.understudy(&["run", "--name", "g", "sh", "-c"]);
    command.arg("while read word; do env echo $word; done").stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let mut input = child.stdin.take().unwrap();
    let mut output = BufReader::new(child.stdout.take().unwrap()).lines();
    // An image of its own for each word.
    let mut say = |word: &str| {
        writeln!(input, "{word}").unwrap();
        assert_eq!(output.next().unwrap().unwrap(), word);
    };
    say("first");
    let file = sandbox.state().join("g/sites");
    let plans = std::fs::read(&file).unwrap();
    assert!(plans.len() > 1000, "libc and the loader have hundreds of sites: {} bytes", plans.len());
    for at in (0..plans.len()).step_by(plans.len() / 20) {
        let mut damaged = plans.clone();
        damaged[at] ^= 0x10;
        std::fs::write(&file, damaged).unwrap();
        say("damaged");
        assert!(std::fs::read(&file).unwrap() == plans, "mended at {at}");
        std::fs::write(&file, &plans[..at]).unwrap();
        say("cut");
        assert!(std::fs::read(&file).unwrap() == plans, "mended from {at}");
    }
    std::fs::write(&file, vec![0xcc; 100_000]).unwrap();
    say("nonsense");
    std::fs::write(&file, "").unwrap();
    std::fs::set_permissions(&file, Permissions::from_mode(0o620)).unwrap();
    say("writable by others");
    assert_eq!(std::fs::read(&file).unwrap(), b"", "left alone");
    std::fs::remove_file(&file).unwrap();
    say("none");
    assert!(!file.exists(), "an image never makes it");
    drop(input);
    assert!(child.wait().unwrap().success());
    sandbox.assert_clean();
}

/// The call in which each of them waits is the only one that it ever makes.
#[test]
fn processes_that_wait_at_once_are_protected() {
    let Some(library) = runtime("processes_that_wait_at_once_are_protected") else { return };
    let sandbox = Sandbox::with_library(&library, "");
    let lock = sandbox.state().join("lock");
    let running = sandbox.start("g", &["waiters", lock.to_str().unwrap()]);
    let all = || sandbox.group()["processes"].as_array().unwrap().clone();
    let protected = |process: &Value| process["state"] == "protected" && process["primary"].is_object();
    let waiting = || Some(all()).filter(|all| all.len() == 10 && all.iter().all(protected));
    wait_for(waiting, "all to be protected");
    std::fs::remove_file(lock).unwrap();
    kill(running.child.id(), Signal::TERM);
    assert_eq!(running.finish().0, Some(0));
    sandbox.assert_clean();
}

/// Neither comes to a door at which it could join: one was forked, the other one executed.
#[test]
fn processes_that_only_compute_are_protected() {
    let Some(library) = runtime("processes_that_only_compute_are_protected") else { return };
    let sandbox = Sandbox::with_library(&library, "");
    let events = sandbox.events_path();
    let mut command =
        sandbox.understudy(&["run", "--name", "g", "--events", events.to_str().unwrap(), "sh", "-c"]);
    command.arg("(while :; do :; done) & awk 'BEGIN { while (1) n++ }' & wait; echo over");
    let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
    sandbox.wait_for_event("protected");
    let computing = || {
        let all = sandbox.group()["processes"].as_array().unwrap().clone();
        let protected = |process: &&Value| process["state"] == "protected" && process["primary"].is_object();
        Some(all).filter(|all| all.len() == 3 && all.iter().filter(protected).count() == 3)
    };
    for at in [1, 2, 1] {
        let primary = pid(&wait_for(computing, "all to be protected")[at]["primary"]["pid"]);
        kill(primary, Signal::KILL);
        wait_for(|| (!is_alive(primary)).then_some(()), "its end");
    }
    for process in &wait_for(computing, "all to be protected again")[1..] {
        kill(pid(&process["primary"]["pid"]), Signal::TERM);
    }
    assert!(child.wait().unwrap().success());
    sandbox.assert_clean();
}

/// A ring of packets has its pages in one mapping alone, and a promoted copy would die of the other. A program that has one is
/// not said to be protected.
#[test]
fn a_ring_of_packets_is_not_protected_in_vain() {
    const TEST: &str = "a_ring_of_packets_is_not_protected_in_vain";
    let Some(library) = runtime(TEST) else { return };
    let sandbox = Sandbox::with_library(&library, "");
    let running = sandbox.start_program(&[], "g", &compile("ring.c", "ring", &[]));
    if running.out.starts_with("none") {
        eprintln!("{TEST}: skipped: no packet sockets here");
        return;
    }
    let why = "the copy could not make its memory its own";
    let is_refused =
        || Some(sandbox.group()).filter(|group| group["guarantee"].as_str().unwrap().contains(why));
    let group = wait_for(is_refused, why);
    assert_ne!(group["state"], "protected");
    kill(running.child.id(), Signal::TERM);
    assert_eq!(running.finish().0, Some(143));
    sandbox.assert_clean();
}
