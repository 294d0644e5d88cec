//! The invariants in `docs/ARCHITECTURE.md` name the broken rules of the model, and nothing else.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use us_sim::mutation::Mutation;

/// What the invariants name behind *Model*, up to *Tests*.
fn named() -> BTreeSet<String> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/ARCHITECTURE.md");
    let text = fs::read_to_string(path).expect("the document is there");
    let list = text.split("\n## Invariants\n").nth(1).expect("a section of that name");
    let of_model = list.split("\n- ").filter_map(|item| item.split("Model:").nth(1)?.split("Tests:").next());
    of_model.flat_map(|names| names.split('`').skip(1).step_by(2)).map(str::to_owned).collect()
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
