//! Words that have no place in the tree, files that know too much, and lints that must hold everywhere.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;

use us_tidy::{Complaints, has_word, root, sources};

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

/// Words as names of modules spell them: `re-clone` is `reclone`, `in doubt` is `indoubt`.
fn spelled(word: &str) -> String {
    word.chars().filter(|c| c.is_alphanumeric()).collect()
}

/// The words that docs/WORDS.md explains: bold, in the first cell of a row.
fn explained() -> Vec<String> {
    let text = fs::read_to_string(root().join("docs/WORDS.md")).expect("the words");
    let rows = text.lines().filter_map(|line| line.strip_prefix("| **"));
    let cells = rows.filter_map(|row| row.split('|').next());
    cells
        .flat_map(|cell| cell.split("**, **"))
        .map(|word| word.trim().trim_end_matches("**").to_owned())
        .collect()
}

/// The words in names of files and folders with the runtime's, the supervisor's and the rules' code, each with one such name.
fn words_of_modules() -> BTreeMap<String, String> {
    let mut words = BTreeMap::new();
    for file in sources() {
        let mut parts = file.path.split('/');
        let home = (parts.next(), parts.next(), parts.next());
        let (Some("crates"), Some("runtime" | "supervisor" | "world" | "order"), Some("src")) = home else {
            continue;
        };
        for name in parts {
            for word in name.trim_end_matches(".rs").trim_end_matches(".py").split('_') {
                words.entry(word.to_owned()).or_insert_with(|| file.path.clone());
            }
        }
    }
    words
}

/// Whether one of these words is meant, in the singular or in the plural.
fn names<'a>(words: &'a BTreeSet<String>, word: &str) -> Option<&'a String> {
    let singular = word.strip_suffix("ies").map(|stem| format!("{stem}y"));
    let singular = singular.or_else(|| word.strip_suffix('s').map(str::to_owned));
    words.get(word).or_else(|| words.get(&singular?))
}

/// A name that a newcomer meets in the tree is a word of docs/WORDS.md, or a plain one.
#[test]
fn names_of_modules_are_words() {
    let mut complaints = Complaints::default();
    let explained: BTreeSet<String> = explained().iter().map(|word| spelled(word)).collect();
    let list = fs::read_to_string(root().join("tests/tidy/plain.txt")).expect("the plain words");
    let lines = list.lines().filter(|line| !line.starts_with('#'));
    let plain: BTreeSet<String> = lines.flat_map(str::split_whitespace).map(str::to_owned).collect();
    let found = words_of_modules();
    assert!(explained.len() > 50 && found.len() > 100, "words or modules were not found");
    for (word, path) in &found {
        if names(&explained, word).is_none() && names(&plain, word).is_none() {
            complaints.add(format!("{path}: {word}"));
        }
    }
    let used: BTreeSet<&String> = found.keys().filter_map(|word| names(&plain, word)).collect();
    for word in &plain {
        if !used.contains(word) {
            complaints.add(format!("tests/tidy/plain.txt: {word}: no module has it any more"));
        }
        if explained.contains(word) {
            complaints.add(format!("tests/tidy/plain.txt: {word}: docs/WORDS.md explains it"));
        }
    }
    complaints
        .settle("explain it in docs/WORDS.md, or list it in tests/tidy/plain.txt if it is a plain word:");
}

#[test]
fn no_word_is_explained_twice() {
    let mut complaints = Complaints::default();
    let mut seen = BTreeSet::new();
    for word in explained() {
        if !seen.insert(spelled(&word)) {
            complaints.add(format!("docs/WORDS.md: {word}"));
        }
    }
    complaints.settle("one word for one thing, with one meaning:");
}
