//! Prints what the scan finds in an ELF file: `count [FILE...]`, the C library by default.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};
use us_sites::{Kind, Site, elf::Image, scan};

fn main() {
    let mut files: Vec<String> = std::env::args().skip(1).collect();
    let list = files.iter().position(|f| f == "--list").map(|i| files.remove(i)).is_some();
    if files.is_empty() {
        files = ["libc.so.6", "ld-linux-x86-64.so.2"].map(|f| format!("/lib/x86_64-linux-gnu/{f}")).into();
    }
    for file in files {
        match std::fs::read(&file) {
            Ok(bytes) => report(&file, &bytes, list),
            Err(error) => {
                eprintln!("count: reading {file}: {error}");
                std::process::exit(2);
            }
        }
    }
}

fn report(file: &str, bytes: &[u8], list: bool) {
    let Some(image) = Image::parse(bytes) else {
        eprintln!("count: {file}: not an x86-64 ELF file");
        std::process::exit(2);
    };
    let mut slots = vec![Site::EMPTY; 4096];
    let mut kinds: BTreeMap<String, usize> = BTreeMap::new();
    let (mut total, mut patched, mut text_len) = (0, 0, 0);
    let mut fastest = Duration::ZERO;
    for (text, addr) in image.executable() {
        let mut best = Duration::MAX;
        let mut found = Ok(0);
        for _ in 0..9 {
            let start = Instant::now();
            found = scan(text, addr, &mut slots);
            best = best.min(start.elapsed());
        }
        fastest += best;
        text_len += text.len();
        let found = match found {
            Ok(found) => found,
            Err(error) => {
                eprintln!("count: {file}: {error}");
                std::process::exit(1);
            }
        };
        for site in &slots[..found] {
            total += 1;
            patched += usize::from(site.is_patchable());
            *kinds.entry(name(site.kind)).or_default() += 1;
            if list {
                println!(
                    "{:#x} {} {:?} {:02x?}",
                    site.syscall_addr(),
                    name(site.kind),
                    site.nr,
                    site.window()
                );
            }
        }
    }
    println!("{file}: {text_len} bytes of text, scanned in {fastest:?}");
    for (kind, count) in &kinds {
        println!("  {count:5}  {kind}");
    }
    println!("  {total:5}  system calls, {patched} of them patched");
}

fn name(kind: Kind) -> String {
    match kind {
        Kind::Before { .. } => "Before".into(),
        other => format!("{other:?}"),
    }
}
