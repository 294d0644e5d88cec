//! Words that have no place in the tree, files that know too much, and lints that must hold everywhere.

use us_tidy::{Complaints, has_word, sources};

/// Files of more lines are tables, or are split.
const LINES_MAX: usize = 600;

/// Tables: one row each thing, and nothing else.
const TABLES: &[&str] = &["crates/calls/src/table.rs"];

const CODE: &[&str] = &[".rs", ".c", ".cc", ".h", ".sh", "Makefile", "/run", ".toml"];
const PROSE: &[&str] = &[".md", ".rs", ".c", ".cc", ".h", ".sh", "Makefile", "/run", ".toml"];

/// Leftovers of unfinished work. Taken apart here so that this file does not find itself.
const REMINDERS: &[&str] =
    &[concat!("TO", "DO"), concat!("FIX", "ME"), concat!("X", "XX"), concat!("HA", "CK")];
const LEFTOVERS: &[&str] = &[
    concat!("to", "do!("),
    concat!("unimple", "mented!("),
    concat!("#[ig", "nore"),
    concat!("db", "g!("),
    concat!("<<<", "<<<< "),
];

#[test]
fn no_reminders_and_no_tests_switched_off() {
    let mut complaints = Complaints::default();
    for file in sources().iter().filter(|file| file.ends_with(PROSE)) {
        for (number, line) in file.text.lines().enumerate() {
            for word in REMINDERS.iter().filter(|word| has_word(line, word)) {
                complaints.add(format!("{}:{}: {word}", file.path, number + 1));
            }
            for word in LEFTOVERS.iter().filter(|word| line.contains(**word)) {
                complaints.add(format!("{}:{}: {word}", file.path, number + 1));
            }
        }
    }
    complaints.settle("finish it, or say in docs/LIMITS.md that it is missing:");
}

/// Folders that exist on one desk only.
#[test]
fn no_paths_of_one_machine() {
    let private = [concat!("/wo", "rk/"), concat!("/tmp/tar", "get"), concat!("/ho", "me/")];
    let mut complaints = Complaints::default();
    for file in sources().iter().filter(|file| file.ends_with(PROSE)) {
        for (number, line) in file.text.lines().enumerate() {
            for path in private {
                // `kit/work/x` is a relative path.
                let alone = line.match_indices(path).any(|(at, _)| {
                    !line[..at]
                        .chars()
                        .next_back()
                        .is_some_and(|c| c.is_ascii_alphanumeric() || "_-.})".contains(c))
                });
                if alone {
                    complaints.add(format!("{}:{}: {path}", file.path, number + 1));
                }
            }
        }
    }
    complaints.settle("a path that only one machine has:");
}

#[test]
fn files_are_short() {
    let mut complaints = Complaints::default();
    for file in sources().iter().filter(|file| file.ends_with(CODE)) {
        let lines = file.text.lines().count();
        let table = TABLES.contains(&file.path.as_str());
        if lines > LINES_MAX && !table {
            complaints.add(format!("{}: {lines} lines", file.path));
        }
        if lines <= LINES_MAX && table {
            complaints.add(format!("{}: needs no exemption any more", file.path));
        }
    }
    complaints.settle("more than 600 lines and not a table:");
}

/// Clippy finds every `unsafe` without its reason, if it is asked to: every crate must take the workspace's
/// lints, and no file may switch that one off.
#[test]
fn every_unsafe_is_looked_at() {
    let mut complaints = Complaints::default();
    let lint = concat!("undocumented_", "unsafe_blocks");
    let all = sources();
    let top = all.iter().find(|file| file.path == "Cargo.toml").expect("a workspace");
    if !top.text.contains(&format!("{lint} = \"deny\"")) {
        complaints.add(format!("Cargo.toml does not deny {lint}"));
    }
    for file in &all {
        if file.path.ends_with("/Cargo.toml") && !file.text.contains("[lints]\nworkspace = true") {
            complaints.add(format!("{}: does not take the workspace's lints", file.path));
        }
        if file.path.ends_with(".rs") && file.text.contains(lint) {
            complaints.add(format!("{}: names {lint}", file.path));
        }
    }
    complaints.settle("unsafe code that no lint looks at:");
}

/// In a forked child a lock that another thread of the parent's held must be free: `lock.rs` sees to that, and to no other lock.
#[test]
fn the_runtime_has_one_kind_of_lock() {
    // The layout of glibc's mutex, and a static one of that kind.
    const OF_THE_GUEST: [&str; 2] =
        ["crates/runtime/src/door/mutex.rs", "crates/runtime/src/door/timer_notify.rs"];
    let mut complaints = Complaints::default();
    let is_own = |path: &str| path.starts_with("crates/runtime/src/") && !OF_THE_GUEST.contains(&path);
    for file in sources().iter().filter(|file| is_own(&file.path) && file.ends_with(&[".rs"])) {
        for (number, line) in file.text.lines().enumerate() {
            let spins = line.contains("compare_exchange") && line.contains("(false, true");
            let kinds = ["lock: Atomic", "static LOCK: Atomic", "static LOCK: [Atomic"];
            let named = kinds.iter().any(|kind| line.trim_start().starts_with(kind));
            if spins || named {
                complaints.add(format!("{}:{}: {}", file.path, number + 1, line.trim()));
            }
        }
    }
    complaints.settle("a lock that a forked child may find held; use `crate::lock::Lock`:");
}
