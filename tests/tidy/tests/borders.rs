//! The layers of the runtime, as the picture in `docs/ARCHITECTURE.md` draws them: a module imports only what lies below it.

use std::collections::{BTreeMap, BTreeSet};

use us_tidy::{Complaints, Source, root, sources};

/// Where the picture is: a block in fences that say `layers`, the highest layer first, the lowest module of a layer leftmost.
const PICTURE: &str = "docs/ARCHITECTURE.md";

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

/// Macros that files define, which lie at the crate's root for those who import them.
fn macros(placed: &[((String, usize), String)]) -> BTreeMap<&str, &str> {
    placed
        .iter()
        .flat_map(|((module, _), text)| defines(text).map(move |name| (name, module.as_str())))
        .collect()
}

fn defines(text: &str) -> impl Iterator<Item = &str> {
    let after = text.match_indices("macro_rules! ").map(|(at, word)| &text[at + word.len()..]);
    after.filter_map(|rest| rest.split([' ', '{', '(']).next())
}

/// What stands for the crate's root itself.
const ROOT: &str = "lib";

/// Who imports whom, by top modules.
fn imports(files: &[Source]) -> BTreeMap<String, BTreeSet<String>> {
    let placed: Vec<_> =
        files.iter().filter_map(|file| Some((place(&file.path)?, code(&file.text)))).collect();
    let modules: BTreeSet<&str> = placed.iter().map(|((module, _), _)| module.as_str()).collect();
    let macros = macros(&placed);
    let mut found: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for ((module, depth), text) in &placed {
        let known = |name: &String| {
            let module = modules.get(name.as_str()).or_else(|| macros.get(name.as_str()));
            module.map(|module| (*module).to_owned())
        };
        let by_crate = names_behind(text, "crate::");
        // Inside a module that stands in the file itself the same words lead to the file.
        let by_super = names_behind(text, &"super::".repeat(*depth));
        let of_root = |name: &String| known(name).unwrap_or_else(|| ROOT.to_owned());
        let others = by_crate.iter().map(of_root).chain(by_super.iter().filter_map(known));
        let others = others.filter(|name| name != module);
        found.entry(module.clone()).or_default().extend(others);
    }
    found
}

/// The modules of the picture, lowest first.
fn drawn(document: &str) -> Vec<String> {
    let block = document.split("```layers\n").nth(1).and_then(|rest| rest.split("```").next());
    let layers = block.unwrap_or_default().lines().rev();
    let modules = layers.filter_map(|line| line.split_once(' ')).flat_map(|(_, modules)| modules.split('·'));
    modules.map(|name| name.trim().to_owned()).collect()
}

/// What is wrong with these imports in that picture.
fn faults(imports: &BTreeMap<String, BTreeSet<String>>, drawn: &[String]) -> Vec<String> {
    let mut faults = Vec::new();
    for (at, name) in drawn.iter().enumerate() {
        if !imports.contains_key(name) {
            faults.push(format!("{name}: drawn, and no module"));
        }
        if drawn[..at].contains(name) {
            faults.push(format!("{name}: drawn twice"));
        }
    }
    let height = |name: &str| drawn.iter().position(|drawn| drawn == name);
    for (module, others) in imports {
        let Some(own) = height(module) else {
            faults.push(format!("{module}: not drawn"));
            continue;
        };
        for other in others {
            if other == ROOT {
                faults.push(format!("{module}: imports from the crate's root, which is no layer"));
            } else if height(other).is_some_and(|other| other > own) {
                faults.push(format!("{module}: imports {other}, which lies above it"));
            }
        }
    }
    faults
}

/// What the runtime asks `/proc` about its own process, in one file.
#[test]
fn one_file_reads_what_the_kernel_says_of_this_process() {
    const READER: &str = "crates/runtime/src/proc.rs";
    const FILES: [&str; 5] = ["/maps\"", "/smaps\"", "/stat\"", "/statm\"", "/status\""];
    let named = |text: &str| {
        // `/proc/stat` is the machine's.
        let text = code(text).replace("/proc/stat", "");
        FILES.into_iter().filter(|file| text.contains(file)).collect::<Vec<_>>()
    };
    let mut complaints = Complaints::default();
    for file in sources().iter().filter(|file| file.path.starts_with(TOP)) {
        let found = named(&file.text);
        if file.path == READER {
            assert_eq!(found, FILES, "what {READER} reads has moved: this test looks for something else");
        } else if !found.is_empty() {
            complaints.add(format!("{}: {found:?}", file.path));
        }
    }
    complaints.settle(&format!("{READER} reads these"));
}

#[test]
fn the_runtime_imports_downwards() {
    let text = std::fs::read_to_string(root().join(PICTURE)).expect("the document with the picture");
    let mut complaints = Complaints::default();
    for fault in faults(&imports(&sources()), &drawn(&text)) {
        complaints.add(fault);
    }
    complaints.settle(&format!("the runtime's layers, as {PICTURE} draws them:"));
}

fn file(path: &str, text: &str) -> Source {
    Source { path: format!("{TOP}{path}"), text: text.to_owned() }
}

#[test]
fn imports_of_every_shape_are_seen() {
    let files = [
        file("raw.rs", "use crate::{door::{self, io}, state};\n#[cfg(test)]\nmod tests { use crate::sys; }"),
        file(
            "door/io.rs",
            "fn f() { crate::raw::g(); super::super::sys::h(); super::mine(); crate::stub! {} }",
        ),
        file("sys/mod.rs", "// crate::door\nuse super::{\n    raw::{self, x},\n    state::y,\n};"),
        file("state.rs", "use us_crate::raw; macro_rules! stub { () => { $crate::raw::f() } }"),
    ];
    let found = imports(&files);
    let names = |module: &str| found[module].iter().map(String::as_str).collect::<Vec<_>>();
    assert_eq!(names("raw"), ["door", "state"]);
    assert_eq!(names("door"), ["raw", "state", "sys"]);
    assert_eq!(names("sys"), ["raw", "state"]);
    assert_eq!(names("state"), ["raw"]);
}

#[test]
fn what_is_wrong_with_a_picture_is_said() {
    let picture = "a\n```layers\nhigh  b · c\nlow   a · b · e\n```\n";
    let drawn = drawn(picture);
    assert_eq!(drawn, ["a", "b", "e", "b", "c"]);
    let to = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<BTreeSet<_>>();
    let imports = BTreeMap::from([
        ("a".to_owned(), to(&["c", "lib"])),
        ("b".to_owned(), to(&["a"])),
        ("c".to_owned(), to(&["a", "b"])),
        ("d".to_owned(), to(&[])),
    ]);
    let expected = [
        "e: drawn, and no module",
        "b: drawn twice",
        "a: imports c, which lies above it",
        "a: imports from the crate's root, which is no layer",
        "d: not drawn",
    ];
    assert_eq!(faults(&imports, &drawn), expected);
}

/// A number that the runtime has from the kernel's headers is written down nowhere else in it.
#[test]
fn numbers_of_the_kernel_are_taken_from_it() {
    const LIST: &str = "crates/runtime/src/kernel.rs";
    let sources = sources();
    let list = sources.iter().find(|file| file.path == LIST).expect("the list");
    let words = list.text.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
    let known: BTreeSet<&str> =
        words.filter(|word| word.contains('_') && *word == word.to_ascii_uppercase()).collect();
    assert!(known.contains("PR_SET_NAME") && known.len() > 50, "the list has moved: {known:?}");
    let mut complaints = Complaints::default();
    for file in sources.iter().filter(|file| file.path.starts_with(TOP)) {
        for (number, line) in file.text.lines().enumerate() {
            let Some((name, rest)) =
                line.split_once("const ").and_then(|(_, constant)| constant.split_once(": "))
            else {
                continue;
            };
            let is_number = rest
                .split_once(" = ")
                .is_some_and(|(_, value)| value.starts_with(|c: char| c.is_ascii_digit()));
            if is_number && known.contains(name) {
                complaints.add(format!("{}:{}: {name}", file.path, number + 1));
            }
        }
    }
    complaints.settle(&format!("{LIST} has these"));
}
