//! The fuzzer's entry, on a bounded number of cases: random bytes, and recordings with changes.

mod common;

use common::{Rng, small_recording};
use recording::fuzz::{columns, entry};

fn cases() -> usize {
    std::env::var("FUZZ_CASES").ok().and_then(|cases| cases.parse().ok()).unwrap_or(20_000)
}

#[test]
fn random_bytes() {
    let mut rng = Rng(11);
    for _ in 0..cases() {
        let length = rng.below(600) as usize;
        let mut bytes = rng.bytes(length);
        // Mostly small numbers: lengths that fit, entries that are there.
        if rng.below(2) == 0 {
            bytes.iter_mut().skip(1).for_each(|byte| *byte &= 0x13);
        }
        entry(&bytes);
    }
}

/// Kind and content of each chunk of a small recording.
fn contents() -> Vec<(u8, Vec<u8>)> {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("r");
    small_recording(&path);
    let file = std::fs::read(&path).unwrap();
    let mut contents = Vec::new();
    let mut at = 16;
    while at < file.len() {
        let length = u32::from_le_bytes(file[at + 24..at + 28].try_into().unwrap()) as usize;
        contents.push((file[at + 4], file[at + 40..at + 40 + length].to_vec()));
        at += 40 + length;
    }
    contents
}

/// A few bytes of `bytes` become others; the first stays.
fn change(rng: &mut Rng, bytes: &mut [u8]) {
    for _ in 0..rng.below(4) {
        let at = 1 + rng.below(bytes.len() as u64 - 1) as usize;
        bytes[at] = match rng.below(3) {
            0 => rng.next() as u8,
            1 => bytes[at] ^ 1 << rng.below(8),
            _ => bytes[at].wrapping_add(1),
        };
    }
}

/// Contents of real chunks, changed, with right checksums.
#[test]
fn changed_contents() {
    let contents = contents();
    // Which way the entry takes a content of this kind as it is.
    let ways = [0, 0x84, 0x85, 2, 0x86, 0x87, 0x42];
    let mut rng = Rng(12);
    for _ in 0..cases() / 10 {
        let (kind, content) = &contents[rng.below(contents.len() as u64) as usize];
        let mut bytes = [&[ways[*kind as usize]], &content[..]].concat();
        change(&mut rng, &mut bytes);
        entry(&bytes);
    }
}

/// The columns of real chunks, changed: a wrong number where the decoder expects a good one.
#[test]
fn changed_columns() {
    const EVENTS: u8 = 3;
    let contents = contents();
    let good: Vec<Vec<u8>> =
        contents.iter().filter(|(kind, _)| *kind == EVENTS).map(|(_, content)| columns(content)).collect();
    assert!(good.len() > 4);
    let mut rng = Rng(13);
    for _ in 0..cases() / 10 {
        let mut bytes = good[rng.below(good.len() as u64) as usize].clone();
        // The small columns come first.
        let end = [bytes.len(), 600][rng.below(2) as usize].min(bytes.len());
        change(&mut rng, &mut bytes[..end]);
        entry(&bytes);
    }
}
