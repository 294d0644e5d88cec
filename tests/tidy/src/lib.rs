//! What the house-rule tests share: the tree's own files, and a list of complaints.

use std::fs;
use std::path::{Path, PathBuf};

/// The top of the source tree.
pub fn root() -> PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.ancestors().nth(2).expect("tests/tidy lies two folders down").to_path_buf()
}

/// A text file of the tree.
#[derive(Clone, Debug)]
pub struct Source {
    /// Its path from the top of the tree, with `/`.
    pub path: String,
    /// What it says.
    pub text: String,
}

impl Source {
    /// Whether the name ends with one of these, dots included.
    pub fn ends_with(&self, endings: &[&str]) -> bool {
        endings.iter().any(|ending| self.path.ends_with(ending))
    }
}

/// Every text file of the tree. Built things, git's own and recorded results are not part of it.
pub fn sources() -> Vec<Source> {
    let mut found = Vec::new();
    let top = root();
    collect(&top, &top, &mut found);
    found.sort_by(|a, b| a.path.cmp(&b.path));
    assert!(found.len() > 100, "only {} files in {}", found.len(), top.display());
    found
}

/// What builds, benchmarks and fuzzers leave.
const OUTPUT: [&str; 5] = ["target", "bench/results", "fuzz/target", "fuzz/corpus", "fuzz/artifacts"];

fn collect(top: &Path, folder: &Path, found: &mut Vec<Source>) {
    let entries = fs::read_dir(folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
    for entry in entries {
        let path = entry.expect("a readable folder").path();
        let name = path.file_name().expect("entries have names").to_string_lossy().into_owned();
        let within = path.strip_prefix(top).expect("below the top").to_string_lossy().into_owned();
        if path.is_symlink() || name == ".git" || OUTPUT.contains(&within.as_str()) {
            continue;
        }
        if path.is_dir() {
            collect(top, &path, found);
        } else if let Ok(text) = fs::read_to_string(&path) {
            found.push(Source { path: within, text });
        }
    }
}

/// Whether `word` stands in `text` as a word of its own.
pub fn has_word(text: &str, word: &str) -> bool {
    let part = |c: char| c.is_ascii_alphanumeric() || c == '_';
    text.match_indices(word).any(|(at, _)| {
        !text[..at].chars().next_back().is_some_and(part)
            && !text[at + word.len()..].chars().next().is_some_and(part)
    })
}

/// What the whole tree got wrong, told at once.
#[derive(Debug, Default)]
pub struct Complaints(Vec<String>);

impl Complaints {
    /// One thing wrong.
    pub fn add(&mut self, what: String) {
        self.0.push(what);
    }

    /// Fails the test with all of them.
    pub fn settle(self, rule: &str) {
        assert!(self.0.is_empty(), "{rule}\n  {}\n", self.0.join("\n  "));
    }
}
