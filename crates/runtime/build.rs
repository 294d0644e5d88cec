//! Link arguments of `libunderstudy.so`, the small C part, and a sum of how its data is laid out.

use std::path::{Path, PathBuf};
use std::process::Command;

fn main() {
    for argument in [
        // No start-up files: the library has neither a main nor constructors of its own beyond one entry.
        "-nostartfiles",
        // The constructor must run before those of every other library: what they do is to be recorded.
        "-Wl,-z,initfirst",
        "-Wl,-z,now",
        "-Wl,-soname,libunderstudy.so",
        // A guest that unloads and reloads libraries must never unload this one.
        "-Wl,-z,nodelete",
        // libc loads the unwinder when a thread is first cancelled or leaves by pthread_exit. That has system calls,
        // and its moment may come earlier in one copy than in the other: so it is there from the start.
        "-Wl,--push-state,--no-as-needed,-l:libgcc_s.so.1,--pop-state",
    ] {
        println!("cargo:rustc-cdylib-link-arg={argument}");
    }
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rustc-env=UNDERSTUDY_STATE={:016x}", state());
    // Variadic functions can only be written in C, and types of libc's without a layout are best used there. Their names are
    // hidden: the exports are in Rust, because rustc's list of exported symbols knows nothing of C.
    cc::Build::new()
        .file("c/stdio.c")
        .file("c/shell.c")
        .opt_level(2)
        .flag("-fno-stack-protector")
        .flag("-fvisibility=hidden")
        .flag("-fno-builtin")
        .flag("-fexceptions")
        .compile("us_libc");
    println!("cargo:rerun-if-changed=c");
}

/// Crates whose types are in the runtime's data.
const CRATES: [&str; 6] = ["abi", "order", "ring", "runtime", "sites", "world"];

/// A sum of everything that says how the runtime's data is laid out and what is in it: of every type, every variable and every
/// constant, and of the compiler, which chooses the places of fields. Two versions with the same one can work on the same data.
fn state() -> u64 {
    let mut files: Vec<PathBuf> = Vec::new();
    for name in CRATES {
        let folder = Path::new("..").join(name).join("src");
        println!("cargo:rerun-if-changed={}", folder.display());
        collect(&folder, &mut files);
    }
    files.sort();
    let mut sum = Sum(0xcbf2_9ce4_8422_2325);
    let compiler = std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
    sum.add(&Command::new(compiler).arg("-vV").output().map(|output| output.stdout).unwrap_or_default());
    for name in ["CARGO_FEATURE_FAULTS", "PROFILE", "CARGO_ENCODED_RUSTFLAGS"] {
        sum.add(std::env::var(name).unwrap_or_default().as_bytes());
    }
    // Has data of its own, too.
    sum.add(&std::fs::read("c/shell.c").unwrap_or_default());
    for file in files {
        let text = std::fs::read_to_string(&file).unwrap_or_default();
        let words = words(&text);
        each_item(&words, |item| item.iter().for_each(|word| sum.add(word.as_bytes())));
    }
    sum.0
}

fn collect(folder: &Path, files: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
        let path = entry.path();
        if path.is_dir() {
            collect(&path, files);
        } else if path.extension().is_some_and(|ending| ending == "rs") {
            files.push(path);
        }
    }
}

/// FNV-1a, with an end behind each word.
struct Sum(u64);

impl Sum {
    fn add(&mut self, bytes: &[u8]) {
        for byte in bytes.iter().chain(&[0xff]) {
            self.0 = (self.0 ^ u64::from(*byte)).wrapping_mul(0x100_0000_01b3);
        }
    }
}

/// The words and signs of a source text, without its comments. A string is one word.
fn words(text: &str) -> Vec<String> {
    let bytes = text.as_bytes();
    let (mut words, mut at) = (Vec::new(), 0);
    let is_name = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
    while let Some(byte) = bytes.get(at) {
        let start = at;
        match byte {
            b'/' if bytes[at..].starts_with(b"//") => {
                while bytes.get(at).is_some_and(|byte| *byte != b'\n') {
                    at += 1;
                }
                continue;
            }
            b'"' => {
                at += 1;
                while bytes.get(at).is_some_and(|byte| *byte != b'"') {
                    at += if bytes[at] == b'\\' { 2 } else { 1 };
                }
                at += 1;
            }
            // A character, and no lifetime.
            b'\'' if bytes.get(at + 1) == Some(&b'\\') || bytes.get(at + 2) == Some(&b'\'') => {
                at += if bytes[at + 1] == b'\\' { 3 } else { 2 };
                while bytes.get(at).is_some_and(|byte| *byte != b'\'') {
                    at += 1;
                }
                at += 1;
            }
            byte if is_name(*byte) => {
                while bytes.get(at).is_some_and(|byte| is_name(*byte)) {
                    at += 1;
                }
            }
            _ => at += 1,
        }
        let end = at.min(bytes.len());
        let word = String::from_utf8_lossy(&bytes[start..end]);
        if !word.trim().is_empty() {
            words.push(word.into_owned());
        }
    }
    words
}

/// Calls `found` with the words of each declaration of a type, a trait, a variable or a constant.
fn each_item(words: &[String], mut found: impl FnMut(&[String])) {
    const KINDS: [&str; 7] = ["struct", "enum", "union", "trait", "type", "static", "const"];
    let word = |at: usize| words.get(at).map_or("", String::as_str);
    for start in (0..words.len()).filter(|start| KINDS.contains(&word(*start))) {
        // `const fn`, a block, a pointer to what is constant, a lifetime.
        let is_other = matches!(word(start + 1), "fn" | "unsafe" | "extern" | "{" | "async")
            || start > 0 && matches!(word(start - 1), "*" | "'" | "<" | ",");
        if is_other {
            continue;
        }
        let has_value = matches!(word(start), "static" | "const" | "type");
        let mut depth = 0i32;
        let mut end = start;
        while end < words.len() {
            match word(end) {
                "{" | "(" | "[" => depth += 1,
                "}" | ")" | "]" => {
                    depth -= 1;
                    if depth == 0 && word(end) == "}" && !has_value {
                        break;
                    }
                }
                ";" if depth == 0 => break,
                _ => {}
            }
            if depth < 0 {
                break;
            }
            end += 1;
        }
        found(&words[start..end.min(words.len())]);
    }
}
