//! The invariants in `docs/ARCHITECTURE.md` name the broken rules of the model, and nothing else.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use us_sim::mutation::Mutation;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// The invariants: what each says, and what stands behind *Model* and *Tests*.
fn invariants() -> Vec<[String; 3]> {
    let text = fs::read_to_string(root().join("docs/ARCHITECTURE.md")).expect("the document is there");
    let list = text.split("\n## Invariants\n").nth(1).expect("a section of that name");
    let behind = |item: &str, word: &str| item.split_once(word).map_or("", |(_, rest)| rest).to_owned();
    let items = list.split("\n- ").skip(1);
    items
        .map(|item| {
            let (says, tests) = (item.split("**").nth(1).unwrap_or(item), behind(item, "Tests:"));
            let model = behind(item, "Model:");
            [says.to_owned(), model.split("Tests:").next().unwrap_or_default().to_owned(), tests]
        })
        .collect()
}

/// What stands in backticks.
fn quoted(text: &str) -> impl Iterator<Item = &str> {
    text.split('`').skip(1).step_by(2)
}

/// What the invariants name behind *Model*.
fn named() -> BTreeSet<String> {
    invariants().iter().flat_map(|[_, model, _]| quoted(model).map(str::to_owned)).collect()
}

/// A sentence that nothing can prove wrong is none: each has a broken rule of the model, or a file that fails without it.
#[test]
fn every_invariant_names_what_fails_without_it() {
    let list = invariants();
    assert!(list.len() > 80, "only {} invariants found: the search is broken", list.len());
    let is_file = |name: &str| name.contains('/') && root().join(name).is_file();
    let has_witness = |model: &str, tests: &str| quoted(model).next().is_some() || quoted(tests).any(is_file);
    let without: Vec<_> =
        list.iter().filter(|[_, model, tests]| !has_witness(model, tests)).map(|[says, ..]| says).collect();
    assert!(without.is_empty(), "neither a broken rule nor a guest nor a test shows {without:#?}");
}

#[test]
fn every_broken_rule_stands_beside_an_invariant_and_only_those() {
    let known: BTreeSet<_> = Mutation::ALL.iter().map(|mutation| format!("{mutation:?}")).collect();
    let named = named();
    let unknown: Vec<_> = named.difference(&known).collect();
    let missing: Vec<_> = known.difference(&named).collect();
    assert!(unknown.is_empty(), "the document names {unknown:?}, which the model does not break");
    assert!(missing.is_empty(), "the model breaks {missing:?}, which no invariant names");
}
