//! The border of `libunderstudy.so`: what it takes from the process and what it puts in front of others.
//!
//! Looks at `$UNDERSTUDY_LIB`, or at `target/release/libunderstudy.so`.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::process::Command;

use us_abi::{LIBRARY_BYTES, LIBRARY_DATA_BYTES};
use us_tidy::{Complaints, has_word, root, sources};

/// The only symbols that the library may want from the process. It runs before every other constructor,
/// where most of the C library must not be called yet.
const WANTED: &[(&str, &str)] = &[
    ("__errno_location", "doors that stand in front of libc's functions set errno as those do"),
    ("__libc_single_threaded", "tells libc, and programs that look, that a second thread exists"),
    ("dlsym", "finds the functions behind the doors"),
    ("dlvsym", "finds the right one of several versions"),
    ("stderr", "streams that printf and its kin use without naming them"),
    ("stdin", "see stderr"),
    ("stdout", "see stderr"),
];

/// Exported symbols that no guest calls by name, one reason a line.
const WITHOUT_GUEST: &str = include_str!("../without_guest.txt");

fn library() -> PathBuf {
    let asked = std::env::var_os("UNDERSTUDY_LIB").map(PathBuf::from);
    let path = asked.unwrap_or_else(|| PathBuf::from("target/release/libunderstudy.so"));
    // Tests run in their package's folder; the variable is relative to the top, as a person types it.
    let path = root().join(path);
    assert!(path.is_file(), "{} does not exist: run 'make build' first", path.display());
    path
}

fn symbols(which: &str) -> BTreeSet<String> {
    let run = Command::new("nm").args(["-D", which]).arg(library()).output().expect("nm, from binutils");
    assert!(run.status.success(), "{}", String::from_utf8_lossy(&run.stderr));
    let text = String::from_utf8(run.stdout).expect("symbols are ASCII");
    let names = text.lines().filter_map(|line| line.split_whitespace().last());
    names.map(|name| name.split('@').next().unwrap_or(name).to_owned()).collect()
}

#[test]
fn the_library_wants_nearly_nothing() {
    let allowed: BTreeSet<String> = WANTED.iter().map(|(name, _)| (*name).to_owned()).collect();
    assert_eq!(symbols("--undefined-only"), allowed, "undefined symbols (left) and those allowed (right)");
}

/// Tables of thousands of blocks are zero until they are used: then they are no bytes of the file, and no memory.
#[test]
fn the_library_is_small() {
    const DATA_MAX: u64 = 1 << 20;
    const SIGNAL_STACKS: u64 = 1 << 20;
    const OTHERS: u64 = 8 << 20;
    let run = Command::new("size").arg(library()).output().expect("size, from binutils");
    let text = String::from_utf8(run.stdout).expect("numbers are ASCII");
    let columns =
        text.lines().nth(1).map(|line| line.split_whitespace()).expect("figures in the second line");
    let columns: Vec<u64> = columns.map_while(|bytes| bytes.parse().ok()).collect();
    let [_, data, zeros, ..] = columns[..] else { panic!("text, data and zeros are expected: {text}") };
    assert!(data < DATA_MAX, "{data} bytes of data: a table does not begin as zeros");
    // A program under a limit of memory is started with so much more: what does not fit would be the program's.
    let has = data + zeros + SIGNAL_STACKS;
    assert!(
        has <= LIBRARY_DATA_BYTES,
        "{has} bytes of data, and a limit of data leaves {LIBRARY_DATA_BYTES}"
    );
    let addresses =
        Command::new("readelf").arg("-lW").arg(library()).output().expect("readelf, from binutils");
    let addresses = String::from_utf8(addresses.stdout).expect("a table is ASCII");
    let end = |line: &str| {
        let words: Vec<&str> = line.split_whitespace().collect();
        let number = |at: usize| u64::from_str_radix(words.get(at)?.trim_start_matches("0x"), 16).ok();
        (words.first() == Some(&"LOAD")).then(|| Some(number(2)? + number(5)?)).flatten()
    };
    let has = addresses.lines().filter_map(end).max().expect("something is loaded") + OTHERS;
    assert!(has <= LIBRARY_BYTES, "{has} bytes of addresses, and a limit of memory leaves {LIBRARY_BYTES}");
}

fn exemptions() -> BTreeSet<&'static str> {
    let mut names = BTreeSet::new();
    for line in WITHOUT_GUEST.lines().filter(|line| !line.is_empty() && !line.starts_with('#')) {
        let (symbols, reason) = line.split_once(':').unwrap_or((line, ""));
        assert!(reason.len() > 10, "no reason in: {line}");
        for name in symbols.split_whitespace() {
            assert!(names.insert(name), "{name} is exempted twice");
        }
    }
    names
}

#[test]
fn every_door_has_a_guest() {
    let exempt = exemptions();
    let exported = symbols("--defined-only");
    assert!(exported.len() > 100, "only {} exported symbols", exported.len());
    let guests: Vec<_> = sources().into_iter().filter(|file| file.path.starts_with("guests/")).collect();
    let code: Vec<_> = guests.iter().filter(|file| file.ends_with(&[".c", ".cc", ".h"])).collect();
    let mut complaints = Complaints::default();
    for name in &exported {
        let called = code.iter().any(|file| has_word(&file.text, name));
        match (called, exempt.contains(name.as_str())) {
            (false, false) => complaints.add(format!("{name}: no guest calls it")),
            (true, true) => complaints.add(format!("{name}: exempted, but a guest calls it")),
            _ => {}
        }
    }
    for name in exempt.iter().filter(|name| !exported.contains(**name)) {
        complaints.add(format!("{name}: exempted, but not exported"));
    }
    complaints.settle("exports and guests (exemptions are in tests/tidy/without_guest.txt):");
}

/// The command starts where protection is not to be had, to say so: under glibc 2.31 (Debian 11).
#[test]
fn the_command_starts_under_an_older_libc() {
    const NEWEST: (u32, u32) = (2, 31);
    let command = library().with_file_name("understudy");
    assert!(command.is_file(), "{} does not exist: run 'make build' first", command.display());
    let run = Command::new("objdump").arg("-T").arg(&command).output().expect("objdump, from binutils");
    assert!(run.status.success(), "{}", String::from_utf8_lossy(&run.stderr));
    let text = String::from_utf8_lossy(&run.stdout);
    let mut complaints = Complaints::default();
    for line in text.lines() {
        let Some((_, version)) = line.split_once("GLIBC_") else { continue };
        let mut words =
            version.split(|c: char| c.is_whitespace() || c == ')').filter(|word| !word.is_empty());
        let (version, name) = (words.next().unwrap_or(""), words.next().unwrap_or("?"));
        let mut numbers = version.split('.').map(|number| number.parse().unwrap_or(0));
        if (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0)) > NEWEST {
            complaints.add(format!(
                "{name} of glibc {version}: an older version belongs into crates/cli/c/older_glibc.c"
            ));
        }
    }
    complaints.settle("symbols of understudy that glibc 2.31 has not:");
}
