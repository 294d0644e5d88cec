//! The table knows every call of the kernel's headers and of the newest list at hand, under the same number.

use std::collections::BTreeMap;
use std::process::Command;

/// Calls newer than both lists: added with their kernels (6.17, 6.19, 7.0).
const NEWER: &[(&str, u16)] = &[("uprobe", 336), ("listns", 470), ("rseq_slice_yield", 471)];

/// `__NR_` names and numbers in a C header or in Rust constants.
fn numbers(text: &str) -> BTreeMap<String, u16> {
    let mut found = BTreeMap::new();
    for line in text.lines() {
        let Some(start) = line.find("__NR_") else { continue };
        let words: Vec<&str> = line[start + 5..]
            .split(|c: char| !c.is_alphanumeric() && c != '_')
            .filter(|w| !w.is_empty())
            .collect();
        if let (Some(name), Some(number)) = (words.first(), words.last().and_then(|w| w.parse().ok())) {
            found.insert((*name).to_string(), number);
        }
    }
    found
}

fn kernel_header() -> BTreeMap<String, u16> {
    let paths = ["/usr/include/x86_64-linux-gnu/asm/unistd_64.h", "/usr/include/asm/unistd_64.h"];
    let text = paths.iter().find_map(|path| std::fs::read_to_string(path).ok());
    numbers(&text.expect("the kernel's headers (linux-libc-dev, kernel-headers) are installed"))
}

/// The constants of linux-raw-sys cannot be enumerated from the compiled crate: its source is read, in whatever
/// versions the workspace has.
fn raw_sys() -> BTreeMap<String, u16> {
    let output = Command::new(env!("CARGO"))
        .args(["metadata", "--format-version", "1", "--offline"])
        .args(["--filter-platform", "x86_64-unknown-linux-gnu", "--manifest-path"])
        .arg(concat!(env!("CARGO_MANIFEST_DIR"), "/Cargo.toml"))
        .output()
        .expect("cargo metadata");
    assert!(output.status.success(), "cargo metadata: {}", String::from_utf8_lossy(&output.stderr));
    let text = String::from_utf8(output.stdout).expect("utf-8");
    let folders = text
        .split('"')
        .filter_map(|string| string.strip_suffix("/Cargo.toml"))
        .filter(|folder| folder.rsplit('/').next().is_some_and(|dir| dir.starts_with("linux-raw-sys-")));
    let mut found = BTreeMap::new();
    for folder in folders {
        let source = std::fs::read_to_string(format!("{folder}/src/x86_64/general.rs"));
        found.extend(numbers(&source.expect("source of linux-raw-sys")));
    }
    found
}

fn check(list: &BTreeMap<String, u16>, at_least: usize) {
    assert!(list.len() >= at_least, "only {} calls found: the list was not read", list.len());
    for (name, &nr) in list {
        assert_eq!(us_calls::name(nr.into()), name, "number {nr}");
    }
}

#[test]
fn every_call_of_the_kernel_header_has_its_row() {
    check(&kernel_header(), 340);
}

#[test]
fn every_call_of_the_newest_list_has_its_row() {
    check(&raw_sys(), 370);
}

#[test]
fn no_row_is_invented() {
    let (header, raw) = (kernel_header(), raw_sys());
    for row in us_calls::TABLE.iter().flatten() {
        let known = header.get(row.name) == Some(&row.nr)
            || raw.get(row.name) == Some(&row.nr)
            || NEWER.contains(&(row.name, row.nr));
        assert!(known, "{} {} is in no list", row.nr, row.name);
    }
}

#[test]
fn compiled_constants_agree() {
    use linux_raw_sys::general as raw;
    let samples = [
        (raw::__NR_read, "read"),
        (raw::__NR_clone3, "clone3"),
        (raw::__NR_futex_waitv, "futex_waitv"),
        (raw::__NR_file_setattr, "file_setattr"),
    ];
    for (nr, name) in samples {
        assert_eq!(us_calls::name(nr.into()), name);
    }
}

#[test]
fn lookup_answers_for_any_number() {
    for nr in 0..2000u64 {
        let row = us_calls::row(nr);
        assert_eq!(row.is_some(), us_calls::name(nr) != "unknown");
        assert!(row.is_none_or(|row| u64::from(row.nr) == nr));
    }
    // Holes, x32, and what a wild register may hold.
    for nr in [337, 423, 472, 512, 0x4000_0000, u64::MAX, 1 << 32] {
        assert!(us_calls::row(nr).is_none(), "{nr:#x}");
    }
    assert_eq!(us_calls::row(u64::from(us_calls::HIGHEST)).map(|row| row.nr), Some(us_calls::HIGHEST));
}

#[test]
fn names_are_unique() {
    let mut names: Vec<_> = us_calls::TABLE.iter().flatten().map(|row| row.name).collect();
    let before = names.len();
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), before);
}
