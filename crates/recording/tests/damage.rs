//! A recording that is cut, or has a flipped bit: everything before is read, and the place is named.

mod common;

use std::fs;
use std::path::Path;

use common::{Rng, read, small_recording};
use recording::{Error, Item, Reader};

const TRIES: usize = 1000;

/// A small recording with every kind of chunk, what it holds, and where its chunks begin.
struct Good {
    bytes: Vec<u8>,
    items: Vec<Item>,
    chunks: Vec<u64>,
    /// Of every chunk, how many items stand before it.
    before: Vec<usize>,
}

fn good(folder: &Path) -> Good {
    let path = folder.join("good");
    small_recording(&path);
    let (mut items, mut before) = (Vec::new(), Vec::new());
    let mut reader = Reader::open(&path).unwrap();
    while let Some(item) = reader.next().unwrap() {
        // The item is of the last chunk that has been read.
        before.resize(reader.chunks() as usize, items.len());
        items.push(item);
    }
    let bytes = fs::read(&path).unwrap();
    let mut chunks = vec![16];
    while let Some(at) = chunks.last().copied().filter(|at| *at < bytes.len() as u64) {
        // As docs/RECORDING.md has it: the length of the content is at byte 24 of a chunk.
        let length = &bytes[at as usize + 24..][..4];
        chunks.push(at + 40 + u64::from(u32::from_le_bytes(length.try_into().unwrap())));
    }
    assert!(chunks.len() > 12 && chunks.last() == Some(&(bytes.len() as u64)));
    let kind = |at: &u64| bytes[*at as usize + 4];
    assert!((1..=6).all(|wanted| chunks[..chunks.len() - 1].iter().any(|at| kind(at) == wanted)));
    Good { bytes, items, chunks, before }
}

impl Good {
    /// The number of the chunk that byte `at` is in, and where that begins. Bytes of the file's head are chunk 0's.
    fn place(&self, at: u64) -> (u64, u64) {
        let number = self.chunks.iter().rposition(|begin| *begin <= at).unwrap_or(0);
        (number as u64, self.chunks[number])
    }

    /// Whether these are the items of a file whose chunk `number` is the first that is not good.
    fn is_all_before(&self, items: &[Item], number: u64) -> bool {
        items == &self.items[..self.before[number as usize]]
    }
}

#[test]
fn a_cut_anywhere_is_an_unfinished_recording() {
    let folder = tempfile::tempdir().unwrap();
    let good = good(folder.path());
    let path = folder.path().join("cut");
    let mut rng = Rng(3);
    for _ in 0..TRIES {
        let cut = rng.below(good.bytes.len() as u64);
        fs::write(&path, &good.bytes[..cut as usize]).unwrap();
        let (items, error) = read(&path);
        let (number, begin) = good.place(cut);
        match error.expect("the end is missing") {
            Error::NotARecording(_) => assert!(cut < 16, "{cut}"),
            Error::Unfinished { offset, chunk, rest } => {
                assert_eq!((offset, chunk, rest), (begin, number, cut - begin), "cut at {cut}");
            }
            other => panic!("cut at {cut}: {other}"),
        }
        assert!(good.is_all_before(&items, number), "cut at {cut}");
    }
}

#[test]
fn a_flipped_bit_anywhere_is_noticed() {
    let folder = tempfile::tempdir().unwrap();
    let good = good(folder.path());
    let path = folder.path().join("flipped");
    let mut rng = Rng(4);
    // The head of the file and of a chunk bit by bit, then anywhere.
    let heads = 0..8 * (16 + 40);
    for bit in heads.chain((0..TRIES).map(|_| rng.below(8 * good.bytes.len() as u64))) {
        let at = bit / 8;
        let mut bytes = good.bytes.clone();
        bytes[at as usize] ^= 1 << (bit % 8);
        fs::write(&path, &bytes).unwrap();
        let (items, error) = read(&path);
        let (number, begin) = good.place(at);
        match error.unwrap_or_else(|| panic!("bit {bit} was flipped and nobody noticed")) {
            Error::NotARecording(_) => assert!(at < 8, "{at}"),
            Error::Damaged { offset, chunk, what } => {
                let begin = if at < 16 { 0 } else { begin };
                assert_eq!((offset, chunk), (begin, number), "bit {bit}: {what}");
            }
            other => panic!("bit {bit}: {other}"),
        }
        assert!(good.is_all_before(&items, number), "bit {bit}");
    }
}

/// What a machine that lost its power leaves: zeros where the last chunks should be.
#[test]
fn zeros_at_the_end() {
    let folder = tempfile::tempdir().unwrap();
    let good = good(folder.path());
    let path = folder.path().join("zeros");
    let begin = good.chunks[7];
    let mut bytes = good.bytes.clone();
    bytes[begin as usize..].fill(0);
    fs::write(&path, &bytes).unwrap();
    let (items, error) = read(&path);
    assert!(matches!(error, Some(Error::Damaged { offset, chunk: 7, .. }) if offset == begin), "{error:?}");
    assert!(good.is_all_before(&items, 7));
}

/// A chunk that is missing, or there twice, or behind the end.
#[test]
fn chunks_out_of_order() {
    let folder = tempfile::tempdir().unwrap();
    let good = good(folder.path());
    let path = folder.path().join("order");
    let (begin, end) = (good.chunks[5] as usize, good.chunks[6] as usize);
    let missing = [&good.bytes[..begin], &good.bytes[end..]].concat();
    let twice = [&good.bytes[..end], &good.bytes[begin..]].concat();
    let behind = [&good.bytes[..], b"x"].concat();
    let last = good.chunks.len() as u64 - 1;
    for (bytes, number) in [(missing, 5), (twice, 6), (behind, last)] {
        fs::write(&path, &bytes).unwrap();
        let (_, error) = read(&path);
        assert!(
            matches!(error, Some(Error::Damaged { chunk, .. }) if chunk == number),
            "{number}: {error:?}"
        );
    }
}

/// Files that are none.
#[test]
fn no_recordings() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("none");
    assert!(matches!(read(&path).1, Some(Error::Io(_))));
    assert!(matches!(read(folder.path()).1, Some(Error::NotARecording(_))));
    for bytes in [&b""[..], b"\x7fELF", &[0; 4096]] {
        fs::write(&path, bytes).unwrap();
        assert!(matches!(read(&path).1, Some(Error::NotARecording(_))));
    }
    // A version that this program does not know, with the right checksum.
    let mut head = good(folder.path()).bytes;
    head[8] = 99;
    let crc = crc32c::crc32c(&head[..12]);
    head[12..16].copy_from_slice(&crc.to_le_bytes());
    fs::write(&path, &head).unwrap();
    assert!(matches!(read(&path).1, Some(Error::Version(99))));
}
