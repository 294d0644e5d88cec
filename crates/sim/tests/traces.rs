//! Traces of single promotions, word for word.
//!
//! They are there to be read: each shows one rule at work. `BLESS=1 cargo test -p us-sim --test traces` writes them
//! again.

use std::fs;
use std::path::{Path, PathBuf};

use us_sim::explore::Copies;
use us_sim::trace::{Choice, trace};
use us_sim::{family, library};

/// A file of `tests/traces`, its program, and the run that it shows.
fn traces() -> Vec<(&'static str, &'static str, Choice)> {
    let seeded = |seed| Choice { seed, ..Choice::default() };
    let killed = |seed, at| Choice { kill_at: Some(at), ..seeded(seed) };
    vec![
        ("creation_in_doubt", "create", killed(0, 3)),
        ("gap", "unlocked-senders", killed(1, 3)),
        ("partial_write", "long-write", killed(0, 7)),
        ("echo", "echo", seeded(3)),
        ("several_readers", "unlocked-receivers", seeded(2)),
        ("accept_and_dup", "dup-and-accept", seeded(3)),
        ("close_behind_a_spare", "close-and-dup", Choice { copies: Copies::Spares, ..killed(0, 13) }),
        ("signal_passed_on", "signal-passed-on", killed(2, 13)),
        ("turns", "turns-lock", killed(1, 12)),
    ]
}

/// The same of processes that share memory.
fn family_traces() -> Vec<(&'static str, &'static str, u64, usize)> {
    vec![("family_in_a_turn", "family-yield", 1, 12), ("family_child_too_late", "family-child", 1, 11)]
}

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/traces")
}

#[test]
fn traces_are_what_they_were() {
    let programs = library::all();
    let families = family::library::all();
    let of_one = traces().into_iter().map(|(file, name, choice)| {
        let program = programs.iter().find(|program| program.name == name).expect("a program of the library");
        (file, trace(program, choice))
    });
    let of_family = family_traces().into_iter().map(|(file, name, seed, kill_at)| {
        let program = families.iter().find(|program| program.name == name).expect("a program of the library");
        (file, family::trace::trace(program, seed, Some(kill_at)))
    });
    let mut others = Vec::new();
    for (file, now) in of_one.chain(of_family) {
        let path = folder().join(file).with_extension("txt");
        if std::env::var_os("BLESS").is_some() {
            fs::write(&path, &now).expect("the folder is there");
        }
        if fs::read_to_string(&path).unwrap_or_default() != now {
            println!("--- {file} is now:\n{now}");
            others.push(file);
        }
    }
    assert!(
        others.is_empty(),
        "other traces than in crates/sim/tests/traces: {others:?}. If they are right, \
         `BLESS=1 cargo test -p us-sim --test traces` writes them there"
    );
}

#[test]
fn every_trace_is_of_a_run() {
    let mut found: Vec<_> = fs::read_dir(folder())
        .expect("the folder is there")
        .map(|entry| entry.expect("readable").file_name().into_string().expect("a name"))
        .collect();
    found.sort();
    let names = traces().into_iter().map(|(file, ..)| file);
    let names = names.chain(family_traces().into_iter().map(|(file, ..)| file));
    let mut wanted: Vec<_> = names.map(|file| format!("{file}.txt")).collect();
    wanted.sort();
    assert_eq!(found, wanted);
}
