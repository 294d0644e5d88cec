//! What stands at each place of a text that looks like a way into the kernel, against another decoder.

use std::path::{Path, PathBuf};

use iced_x86::{Decoder, DecoderOptions, Mnemonic};
use us_sites::elf::{self, Image};
use us_sites::{Entry, Functions, Memory, each_entry, judge};

/// An object as the loader would map it, at an address of its own.
struct Mapped {
    base: u64,
    bytes: Vec<u8>,
}

impl Memory for Mapped {
    fn read(&self, from: u64, to: &mut [u8]) -> bool {
        let at = from.wrapping_sub(self.base) as usize;
        let found = at.checked_add(to.len()).and_then(|end| self.bytes.get(at..end));
        found.is_some_and(|bytes| {
            to.copy_from_slice(bytes);
            true
        })
    }
}

/// The object, and where its text is: address, offset in the file, bytes.
fn map(path: &Path) -> (Mapped, u64, u64, usize) {
    const BASE: u64 = 0x7f12_3456_7000;
    let file = std::fs::read(path).expect("the file");
    let image = Image::parse(&file).expect("an x86-64 ELF file");
    let mut bytes = Vec::new();
    let mut text = None;
    for segment in image.segments().filter(|segment| segment.kind == elf::LOAD) {
        let content = image.content(&segment).expect("the segment's bytes");
        let end = (segment.addr + segment.mem_len) as usize;
        bytes.resize(bytes.len().max(end.next_multiple_of(4096)), 0);
        bytes[segment.addr as usize..][..content.len()].copy_from_slice(content);
        if segment.flags & elf::EXECUTABLE != 0 {
            text = Some((segment.addr & !4095, segment.offset & !4095, content.len()));
        }
    }
    let (addr, offset, len) = text.expect("a text");
    (Mapped { base: BASE, bytes }, BASE + addr, offset, len)
}

fn libraries() -> Vec<PathBuf> {
    let maps = std::fs::read_to_string("/proc/self/maps").expect("the mappings");
    let mut paths: Vec<PathBuf> = maps
        .lines()
        .filter(|line| line.contains("r-xp") && line.contains(" /"))
        .map(|line| PathBuf::from(&line[line.find('/').expect("a path")..]))
        .collect();
    // What a machine has besides: code of a cipher's, with tables in it.
    paths.extend(["/usr/lib/x86_64-linux-gnu/libcrypto.so.3", "/usr/bin/bash"].map(PathBuf::from));
    paths.retain(|path| path.exists());
    paths
}

/// Whether a way into the kernel stands there, by the other decoder, which counts from the same start.
fn is_real(text: &[u8], start: usize, at: usize) -> bool {
    let mut decoder = Decoder::with_ip(64, &text[start..], start as u64, DecoderOptions::NONE);
    while decoder.can_decode() {
        let insn = decoder.decode();
        if insn.next_ip() > at as u64 {
            let enters = matches!(insn.mnemonic(), Mnemonic::Syscall | Mnemonic::Sysenter)
                || insn.mnemonic() == Mnemonic::Int && insn.immediate8() == 0x80;
            return enters && insn.next_ip() == at as u64 + 2;
        }
    }
    panic!("{at:#x}: behind the text's end");
}

#[test]
fn what_a_place_is_another_decoder_says_as_well() {
    let mut seen = [0; 4];
    for path in libraries() {
        let (object, start, offset, len) = map(&path);
        let text = &object.bytes[(start - object.base) as usize..][..len];
        let functions = Functions::find(&object, start, offset).expect("a table of functions");
        each_entry(text, |at| {
            let Some(from) = functions.start_of(&object, start + at as u64) else {
                seen[3] += 1;
                return;
            };
            let from = (from - start) as usize;
            let found = judge(text, from, at);
            let real = is_real(text, from, at);
            let name = path.display();
            assert_eq!(
                real,
                found != Entry::Inside,
                "{name}: {at:#x} in the function at {from:#x}: {found:?}"
            );
            seen[found as usize] += 1;
        });
    }
    println!("inside, real, sigreturn, between functions: {seen:?}");
    assert!(seen[Entry::Inside as usize] > 0 && seen[Entry::Real as usize] > 300, "{seen:?}");
    assert!(seen[Entry::SigReturn as usize] > 0, "{seen:?}");
}

#[test]
fn every_function_is_found_by_each_of_its_bytes() {
    let path = std::env::current_exe().expect("this program");
    let (object, start, offset, len) = map(&path);
    let functions = Functions::find(&object, start, offset).expect("a table of functions");
    let mut starts = std::collections::BTreeSet::new();
    for address in start..start + len as u64 {
        if let Some(function) = functions.start_of(&object, address) {
            assert!(function <= address && function >= start);
            starts.insert(function);
        }
    }
    assert!(starts.len() > 1000, "{} functions", starts.len());
}

#[test]
fn a_damaged_table_is_none() {
    let (mut object, start, offset, len) = map(&std::env::current_exe().expect("this program"));
    let whole = object.bytes.clone();
    let mut at = 0x9e37_79b9_7f4a_7c15_u64;
    let mut next = |below: usize| {
        at = at.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (at >> 33) as usize % below
    };
    for _ in 0..1000 {
        let (byte, bit) = (next(whole.len().min(1 << 16)), next(8));
        object.bytes[byte] ^= 1 << bit;
        // Whatever it says, it says.
        if let Some(functions) = Functions::find(&object, start, offset) {
            functions.start_of(&object, start + next(len) as u64);
        }
        object.bytes[byte] = whole[byte];
    }
    object.bytes.truncate(2000);
    assert!(Functions::find(&object, start, offset).is_none_or(|it| it.start_of(&object, start).is_none()));
}

#[test]
fn prefixes_do_not_hide_an_entry() {
    let text = [0x90, 0x48, 0x0f, 0x05, 0x66, 0xcd, 0x80, 0xb8, 0x0f, 0x05, 0xcd, 0x80, 0x0f, 0x34, 0x90];
    let mut found = Vec::new();
    each_entry(&text, |at| found.push((at, judge(&text, 0, at))));
    let real = Entry::Real;
    assert_eq!(found, [(2, real), (5, real), (8, Entry::Inside), (10, Entry::Inside), (12, real)]);
    assert_eq!(judge(&[0x48, 0xc7, 0xc0, 0x0f, 0, 0, 0, 0x0f, 0x05], 0, 7), Entry::SigReturn);
    assert_eq!(judge(&[0x06, 0x0f, 0x05], 0, 1), Entry::Unknown);
    assert_eq!(judge(&[0x90, 0x0f, 0x05], 0, 1), real);
}

/// Rust's library has locks of its own, and so has this program; libc's text has the calls of libc's locks, which are made otherwise.
#[test]
fn own_futexes_are_found_by_their_bytes() {
    let path = std::env::current_exe().expect("this program");
    let (object, start, _, len) = map(&path);
    assert!(us_sites::has_own_futexes(&object.bytes[(start - object.base) as usize..][..len]));
    // mov $202, %edi; mov %rbx, %rsi; mov $OPERATION, %edx; call
    let call = |operation: u8| {
        [&[0xbf, 202, 0, 0, 0, 0x48, 0x89, 0xde, 0xba, operation, 0, 0, 0, 0xe8][..], &[0x90; 80]].concat()
    };
    assert!(us_sites::has_own_futexes(&call(0x81)) && us_sites::has_own_futexes(&call(0x80)));
    // With other processes; another function of 202.
    assert!(!us_sites::has_own_futexes(&call(1)) && !us_sites::has_own_futexes(&call(7)));
    let far = [&[0xba, 0x81, 0, 0, 0][..], &[0x90; 64], &call(7)].concat();
    assert!(!us_sites::has_own_futexes(&far));
    // mov $202, %eax; syscall
    assert!(us_sites::has_own_futexes(&[0x90, 0xb8, 202, 0, 0, 0, 0x0f, 0x05, 0x90]));
    assert!(!us_sites::has_own_futexes(&[0x90, 0xb8, 202, 0, 0, 0, 0x0f, 0x0b, 0x90]));
    for cut in 0..14 {
        assert!(!us_sites::has_own_futexes(&call(0x81)[..cut.min(12)]));
    }
}
