//! An invariant of the log is broken: the name is said, and the program goes on. With the runtime that is built with faults,
//! which breaks each of them once.

mod common;

use common::{Running, Sandbox, faulty_runtime, kill, pid, wait_for};
use rustix::process::Signal;
use serde_json::Value;
use us_order::invariant::Invariant;

/// A program with two standbys that counts signals.
struct Counting<'a> {
    sandbox: &'a Sandbox,
    running: Running<'a>,
    count: u32,
}

impl Counting<'_> {
    fn count_on(&mut self) {
        self.count += 1;
        assert!(self.sandbox.output(&["signal", "g", "USR1"]).status.success());
        self.running.wait_for_output(&format!("count {}\n", self.count));
    }

    fn process(&self) -> Value {
        self.sandbox.group()["processes"][0].clone()
    }

    fn standbys(&self) -> Vec<u32> {
        let two = || {
            let copies =
                self.process()["standbys"].as_array()?.iter().map(|copy| pid(&copy["pid"])).collect();
            Some(copies).filter(|copies: &Vec<u32>| copies.len() == 2)
        };
        wait_for(two, "two standbys")
    }

    /// The primary is killed while its standbys have much to apply.
    fn fail_over_behind(&mut self) {
        let (primary, standbys) = (pid(&self.process()["primary"]["pid"]), self.standbys());
        standbys.iter().for_each(|copy| kill(*copy, Signal::STOP));
        (0..3).for_each(|_| self.count_on());
        kill(primary, Signal::KILL);
        // Before that its threads would go on, and leave the promotion nothing to look at.
        let promotes = || (self.sandbox.group()["why"] == "the standby is taking over").then_some(());
        wait_for(promotes, "a promotion");
        standbys.iter().for_each(|copy| kill(*copy, Signal::CONT));
    }
}

fn is_broken(which: Invariant) {
    let test = format!("{which:?}");
    let Some(library) = faulty_runtime(&test) else { return };
    let mut sandbox = Sandbox::with_library(&library, "");
    sandbox.breaks = which as u32;
    let running = sandbox.start_with(&["--standbys", "2"], "g", &["count"]);
    sandbox.wait_for_event("protected");
    let mut counting = Counting { sandbox: &sandbox, running, count: 0 };
    let is_of_a_promotion =
        matches!(which, Invariant::TicketsAscend | Invariant::ClockIsNotAhead | Invariant::RingsAreFinal);
    if is_of_a_promotion {
        counting.fail_over_behind();
    }
    if which == Invariant::NobodyWritesParked {
        // The first two were made before anything was called protected.
        kill(counting.standbys()[1], Signal::KILL);
    }
    // A ring asks for room once in some events.
    for _ in 0..40 {
        counting.count_on();
        if sandbox.event("runtime_failed").is_some() {
            break;
        }
    }
    let said = sandbox.wait_for_event("runtime_failed");
    assert_eq!(said["why"], format!("an invariant is broken: {}", which.name()), "{said}");
    counting.count_on();
    kill(counting.running.child.id(), Signal::TERM);
    assert_eq!(counting.running.finish().0, Some(143));
    sandbox.assert_clean();
}

#[test]
fn a_reader_past_the_writer_ends_the_standby() {
    is_broken(Invariant::AppliedIsPublished);
}

#[test]
fn tickets_out_of_order_end_the_standby_that_takes_over() {
    is_broken(Invariant::TicketsAscend);
}

#[test]
fn a_clock_past_its_events_ends_the_standby_that_takes_over() {
    is_broken(Invariant::ClockIsNotAhead);
}

#[test]
fn a_second_writer_ends_the_log() {
    is_broken(Invariant::OneWriter);
}

#[test]
fn a_ring_that_grows_behind_the_fence_ends_the_standby_that_takes_over() {
    is_broken(Invariant::RingsAreFinal);
}

#[test]
fn an_event_while_all_are_parked_ends_the_log() {
    is_broken(Invariant::NobodyWritesParked);
}
