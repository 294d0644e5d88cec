//! The folders of the runtime: which of them import each other, both ways. There are too many of these pairs; there must be no
//! other, and one that is gone stays gone.

use std::collections::{BTreeMap, BTreeSet};

use us_tidy::{Complaints, Source, root, sources};

/// The pairs that are left, `A B` a line, with a comment behind `#`.
const LEFT: &str = "tests/tidy/circles.txt";

const TOP: &str = "crates/runtime/src/";

/// Which of the runtime's top modules a file belongs to, and how many modules it lies below the crate.
fn place(path: &str) -> Option<(String, usize)> {
    let within = path.strip_prefix(TOP)?.strip_suffix(".rs")?;
    let mut parts: Vec<&str> = within.split('/').collect();
    if parts.last() == Some(&"mod") {
        parts.pop();
    }
    (parts != ["lib"]).then(|| (parts[0].to_owned(), parts.len()))
}

/// Without comments and the tests at a file's end.
fn code(text: &str) -> String {
    let shipped = text.split("#[cfg(test)]\nmod tests").next().unwrap_or_default();
    shipped.lines().filter(|line| !line.trim_start().starts_with("//")).collect::<Vec<_>>().join("\n")
}

/// The first names behind `prefix`, of a list in braces all of them.
fn names_behind(text: &str, prefix: &str) -> Vec<String> {
    let mut names = Vec::new();
    for (at, _) in text.match_indices(prefix) {
        let before = text[..at].chars().next_back();
        if before.is_some_and(|c| c.is_alphanumeric() || c == '_' || c == ':') {
            continue;
        }
        let rest = &text[at + prefix.len()..];
        let Some(list) = rest.strip_prefix('{') else {
            names.push(rest.chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect());
            continue;
        };
        let mut depth = 0;
        let mut word = String::new();
        for c in list.chars() {
            match c {
                '}' if depth == 0 => break,
                '{' => depth += 1,
                '}' => depth -= 1,
                ',' if depth == 0 => names.push(std::mem::take(&mut word)),
                _ if depth == 0 => word.push(c),
                _ => {}
            }
        }
        names.push(word);
    }
    let first = |name: String| name.trim().split([':', ' ']).next().unwrap_or_default().to_owned();
    names.into_iter().map(first).filter(|name| !name.is_empty()).collect()
}

/// Who imports whom, by top modules.
fn imports(files: &[Source]) -> BTreeMap<String, BTreeSet<String>> {
    let placed: Vec<_> =
        files.iter().filter_map(|file| Some((place(&file.path)?, code(&file.text)))).collect();
    let modules: BTreeSet<&str> = placed.iter().map(|((module, _), _)| module.as_str()).collect();
    let mut found: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for ((module, depth), text) in &placed {
        let mut names = names_behind(text, "crate::");
        names.extend(names_behind(text, &"super::".repeat(*depth)));
        let others = names.into_iter().filter(|name| modules.contains(name.as_str()) && name != module);
        found.entry(module.clone()).or_default().extend(others);
    }
    found
}

/// Pairs of which each imports the other, in the order of their names.
fn circles(imports: &BTreeMap<String, BTreeSet<String>>) -> BTreeSet<(String, String)> {
    let back = |from: &str, to: &str| imports.get(to).is_some_and(|names| names.contains(from));
    let arrows = imports.iter().flat_map(|(from, names)| names.iter().map(move |to| (from, to)));
    arrows.filter(|(from, to)| from < to && back(from, to)).map(|(a, b)| (a.clone(), b.clone())).collect()
}

#[test]
fn no_new_circles_in_the_runtime() {
    let found = circles(&imports(&sources()));
    let text = std::fs::read_to_string(root().join(LEFT)).expect("the list of circles");
    let lines = text.lines().map(|line| line.split('#').next().unwrap_or_default().trim());
    let left: BTreeSet<(String, String)> = lines
        .filter_map(|line| line.split_once(' '))
        .map(|(a, b)| (a.to_owned(), b.trim().to_owned()))
        .collect();
    let mut complaints = Complaints::default();
    for (a, b) in found.difference(&left) {
        complaints.add(format!("{a} {b}: import each other, and did not before"));
    }
    for (a, b) in left.difference(&found) {
        complaints.add(format!("{a} {b}: no longer import each other; strike it off"));
    }
    complaints.settle(&format!("the runtime's borders, as {LEFT} has them:"));
}

fn file(path: &str, text: &str) -> Source {
    Source { path: format!("{TOP}{path}"), text: text.to_owned() }
}

#[test]
fn imports_of_every_shape_are_seen() {
    let files = [
        file("raw.rs", "use crate::{door::{self, io}, state};\n#[cfg(test)]\nmod tests { use crate::sys; }"),
        file("door/io.rs", "fn f() { crate::raw::g(); super::super::sys::h(); super::mine(); }"),
        file("sys/mod.rs", "// crate::door\nuse super::{\n    raw::{self, x},\n    state::y,\n};"),
        file("state.rs", "use us_crate::raw;"),
    ];
    let found = imports(&files);
    let names = |module: &str| found[module].iter().map(String::as_str).collect::<Vec<_>>();
    assert_eq!(names("raw"), ["door", "state"]);
    assert_eq!(names("door"), ["raw", "sys"]);
    assert_eq!(names("sys"), ["raw", "state"]);
    assert!(names("state").is_empty());
    assert_eq!(circles(&found), BTreeSet::from([("door".to_owned(), "raw".to_owned())]));
}
