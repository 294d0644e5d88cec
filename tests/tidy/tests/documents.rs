//! Documents that point somewhere point at something.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use us_tidy::{Complaints, Source, root, sources};

fn documents() -> Vec<Source> {
    sources().into_iter().filter(|file| file.path.ends_with(".md")).collect()
}

/// Lines outside fenced blocks.
fn prose(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let mut fenced = false;
    text.lines().enumerate().filter(move |(_, line)| {
        let fence = line.trim_start().starts_with("```");
        fenced ^= fence;
        !fenced && !fence
    })
}

/// The targets of `[words](target)`.
fn links(line: &str) -> impl Iterator<Item = &str> {
    line.match_indices("](").filter_map(|(at, _)| {
        let rest = &line[at + 2..];
        rest.find(')').map(|end| &rest[..end])
    })
}

/// The name that a heading gets as the target of a link.
fn anchor(heading: &str) -> String {
    let words = heading.trim_start_matches('#').trim().to_lowercase();
    let kept = words.chars().filter(|c| c.is_alphanumeric() || " -_".contains(*c));
    kept.map(|c| if c == ' ' { '-' } else { c }).collect()
}

#[test]
fn links_lead_somewhere() {
    let mut complaints = Complaints::default();
    let mut seen = 0;
    for file in documents() {
        let folder = root().join(&file.path);
        let folder = folder.parent().expect("a file lies in a folder");
        for (number, line) in prose(&file.text) {
            for link in links(line).filter(|link| !link.contains("://")) {
                seen += 1;
                let (path, name) = link.split_once('#').unwrap_or((link, ""));
                let target = if path.is_empty() { root().join(&file.path) } else { folder.join(path) };
                if !target.exists() {
                    complaints.add(format!("{}:{}: {link} does not exist", file.path, number + 1));
                    continue;
                }
                let text = fs::read_to_string(&target).unwrap_or_default();
                let has = prose(&text).any(|(_, line)| line.starts_with('#') && anchor(line) == name);
                if !name.is_empty() && !has {
                    complaints.add(format!("{}:{}: no heading #{name}", file.path, number + 1));
                }
            }
        }
    }
    assert!(seen > 10, "only {seen} links found: the search is broken");
    complaints.settle("dead links:");
}

/// A chapter that the list lacks is not built, and links to it lead nowhere in the book.
#[test]
fn the_book_has_every_document() {
    let summary = fs::read_to_string(root().join("docs/SUMMARY.md")).expect("the list of chapters");
    let listed: BTreeSet<String> =
        summary.lines().flat_map(links).map(|link| format!("docs/{link}")).collect();
    let mut there: BTreeSet<String> = documents().into_iter().map(|file| file.path).collect();
    there.retain(|path| path.starts_with("docs/") && path != "docs/SUMMARY.md");
    assert_eq!(listed, there, "docs/SUMMARY.md (left) and docs/ (right) differ");
}

/// `crates/x/y.rs` in a sentence is a promise that it is there.
#[test]
fn paths_in_sentences_exist() {
    const TOPS: [&str; 6] = ["crates/", "guests/", "tests/", "docs/", "scripts/", "bench/"];
    let mut complaints = Complaints::default();
    for file in documents().iter().filter(|file| file.path != "CHANGELOG.md") {
        for (number, line) in prose(&file.text) {
            for span in line.split('`').skip(1).step_by(2) {
                let path = span.split([' ', ':', '#']).next().unwrap_or_default();
                let here = TOPS.iter().any(|top| path.starts_with(top));
                let pattern = path.contains(['*', '<', '{', '$', '…']) || path.contains("NNNN");
                // From the top of the tree, or from the document's own folder.
                let own = root().join(&file.path).with_file_name(path);
                if here && !pattern && !root().join(path).exists() && !own.exists() {
                    complaints.add(format!("{}:{}: {path}", file.path, number + 1));
                }
            }
        }
    }
    complaints.settle("paths that do not exist:");
}

/// First cells of the rows of the table below a heading.
fn table_below(text: &str, heading: &str) -> BTreeSet<String> {
    text.lines()
        .skip_while(|line| *line != heading)
        .skip(1)
        .take_while(|line| !line.starts_with('#'))
        .filter_map(|line| line.strip_prefix("| `"))
        .filter_map(|line| line.split('`').next())
        .map(str::to_owned)
        .collect()
}

/// README's table names every folder that a newcomer sees, and no other.
#[test]
fn readme_lists_the_folders() {
    let top = root();
    let readme = fs::read_to_string(top.join("README.md")).expect("a README");
    let listed = table_below(&readme, "## Where things live");
    let files = sources();
    let mut there = BTreeSet::new();
    for file in &files {
        let mut parts = file.path.split('/');
        let (first, second, third) = (parts.next(), parts.next(), parts.next());
        match (first, second, third) {
            (Some(group @ ("crates" | "tests")), Some(name), Some(_)) => {
                there.insert(format!("{group}/{name}"))
            }
            (Some(folder), Some(_), _) if !folder.starts_with('.') => there.insert(folder.to_owned()),
            _ => false,
        };
    }
    assert!(there.len() > 5, "no folders found in {}", top.display());
    assert_eq!(listed, there, "README.md: 'Where things live' (left) and the tree (right) differ");
}

/// Names on the left of `=` in the dependency tables of a manifest, but for the workspace's own crates.
fn dependencies(manifest: &str) -> Vec<String> {
    let mut inside = false;
    let mut names = Vec::new();
    for line in manifest.lines() {
        if line.starts_with('[') {
            inside = line.trim_end_matches(']').ends_with("dependencies");
        } else if let Some((name, value)) = line.split_once('=')
            && inside
            && !line.starts_with('#')
            && !value.contains("path =")
        {
            names.push(name.trim().to_owned());
        }
    }
    names
}

#[test]
fn every_dependency_has_a_reason() {
    let text = fs::read_to_string(root().join("docs/decisions/dependencies.md")).expect("the list");
    let listed = table_below(&text, "# Dependencies");
    let mut used = BTreeSet::new();
    for file in sources().iter().filter(|file| Path::new(&file.path).ends_with("Cargo.toml")) {
        used.extend(dependencies(&file.text));
    }
    assert!(used.len() > 5, "no dependencies found");
    assert_eq!(listed, used, "docs/decisions/dependencies.md (left) and the manifests (right) differ");
}

/// A line that fits into a window.
const COLUMNS_MAX: usize = 120;

/// Documents of people; what a tool has generated is as wide as it is.
fn is_written(path: &str) -> bool {
    let here = path == "README.md"
        || path == "tests/kit/README.md"
        || path == "bench/README.md"
        || path == "CHANGELOG.md"
        || path.starts_with("docs/");
    here && path != "docs/SYSCALLS.md"
}

/// tests/tidy/long_lines.txt counts the longer lines that there still are. A number may only become smaller.
#[test]
fn lines_fit_into_a_window() {
    let mut complaints = Complaints::default();
    let list = fs::read_to_string(root().join("tests/tidy/long_lines.txt")).expect("the exceptions");
    let lines = list.lines().filter(|line| !line.starts_with('#'));
    let mut allowed: BTreeMap<&str, usize> = lines
        .map(|line| line.split_once(' ').expect("a count and a path"))
        .map(|(count, path)| (path, count.parse().expect("a number")))
        .collect();
    for file in documents().iter().filter(|file| is_written(&file.path)) {
        let long: Vec<usize> = prose(&file.text)
            .filter(|(_, line)| line.chars().count() > COLUMNS_MAX)
            .map(|(number, _)| number + 1)
            .collect();
        let there = allowed.remove(file.path.as_str()).unwrap_or(0);
        if long.len() > there {
            complaints.add(format!("{}: lines {long:?}; {there} are excepted", file.path));
        } else if long.len() < there {
            complaints.add(format!("tests/tidy/long_lines.txt: {} has {} now", file.path, long.len()));
        }
    }
    for path in allowed.keys() {
        complaints.add(format!("tests/tidy/long_lines.txt: {path} is not one of the documents"));
    }
    complaints.settle("lines of more than 120 columns:");
}
