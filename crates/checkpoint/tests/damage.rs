//! What is written comes back; what is cut off or changed is told, and believed nowhere.

mod common;

use checkpoint::fuzz::{self, example};
use checkpoint::{Error, Head, Object, Owner, Reader, Writer};
use common::{Numbers, cut_a_thousand_times, flip_a_thousand_bits};

/// A checkpoint of some chunks, and its pages.
fn written() -> (Vec<u8>, Pages) {
    let mut numbers = Numbers(88_172_645_463_325_252);
    let mut writer = Writer::new(Vec::new(), &example()).unwrap();
    let mut pages = Vec::new();
    let mut at = 0x1000;
    for run in 0..24 {
        let bytes = 4096 * (1 + numbers.below(40)) as usize;
        // Every other one cannot be compressed.
        let content =
            (0..bytes).map(|byte| if run % 2 == 0 { byte as u8 / 16 } else { numbers.below(256) as u8 });
        let content: Vec<u8> = content.collect();
        // A third of them, one behind the other, are the first process's, the second one's, and nobody's alone.
        let owner = [Owner::Process(0), Owner::Process(1), Owner::Shared(0)][run / 8];
        if run % 8 == 0 {
            writer.begin(owner).unwrap();
        }
        writer.begin_mapping();
        writer.memory(at, &content).unwrap();
        pages.push((owner, at, content));
        at += bytes as u64 + 4096 * numbers.below(2);
    }
    (writer.finish().unwrap(), pages)
}

/// Whose they are, addresses and what stands there.
type Pages = Vec<(Owner, u64, Vec<u8>)>;

/// Reads all of it.
fn read(bytes: &[u8]) -> Result<(Head, Pages), Error> {
    let mut reader = Reader::new(bytes)?;
    let head = reader.head().clone();
    let mut pages = Pages::new();
    while let Some(chunk) = reader.pages()? {
        for (start, content) in chunk.runs() {
            pages.push((chunk.owner(), start, content.to_vec()));
        }
    }
    Ok((head, pages))
}

fn flat(pages: &Pages) -> Vec<(Owner, u64, u8)> {
    let of_run = |(owner, start, content): &(Owner, u64, Vec<u8>)| {
        let owner = *owner;
        let bytes: Vec<_> = (*start..).zip(content.iter().copied()).collect();
        bytes.into_iter().map(move |(at, byte)| (owner, at, byte))
    };
    pages.iter().flat_map(of_run).collect()
}

#[test]
fn what_is_written_comes_back() {
    let (bytes, pages) = written();
    let (got, again) = read(&bytes).unwrap();
    assert_eq!((got.root().pid, got.processes[1].pid, &got.program), (4711, 4712, &example().program));
    assert!(matches!(&got.objects[0], Object::Pipe { content, .. } if content == b"in the pipe"));
    assert!(flat(&again) == flat(&pages));
}

#[test]
fn a_thousand_cuts() {
    cut_a_thousand_times(&written().0, read);
}

#[test]
fn a_thousand_flipped_bits() {
    flip_a_thousand_bits(&written().0, read, |error| !error.to_string().is_empty());
}

#[test]
fn other_files_are_refused() {
    assert!(matches!(read(b""), Err(Error::NotACheckpoint)));
    assert!(matches!(read(&[7; 4096]), Err(Error::NotACheckpoint)));
    let (mut bytes, _) = written();
    bytes[16] = 99;
    assert!(matches!(read(&bytes), Err(Error::Version(99))));
}

#[test]
fn what_stands_behind_the_end_is_not_read() {
    let (mut bytes, pages) = written();
    bytes.extend([0xff; 100]);
    assert!(flat(&read(&bytes).unwrap().1) == flat(&pages));
}

#[test]
fn pages_of_nobody_are_refused() {
    for owner in [Owner::Process(2), Owner::Shared(1)] {
        let mut writer = Writer::new(Vec::new(), &example()).unwrap();
        writer.begin(owner).unwrap();
        writer.pages(0x1000, &[7; 4096]).unwrap();
        assert!(matches!(read(&writer.finish().unwrap()), Err(Error::Damaged { .. })));
    }
}

#[test]
fn a_checkpoint_of_nothing_is_refused() {
    let nothing = Head { processes: Vec::new(), ..example() };
    let bytes = Writer::new(Vec::new(), &nothing).unwrap().finish().unwrap();
    assert!(matches!(read(&bytes), Err(Error::Damaged { at: 20, .. })));
}

#[test]
fn lengths_are_not_believed() {
    let (bytes, _) = written();
    // The head's chunk says that it is enormous.
    for word in [1usize, 2] {
        let mut bytes = bytes.clone();
        let at = 20 + 4 * word;
        bytes[at..at + 4].copy_from_slice(&u32::MAX.to_le_bytes());
        assert!(matches!(read(&bytes), Err(Error::Damaged { at: 20, .. })));
    }
}

/// `FUZZ_CASES`, or so many that all of them take a second.
fn cases() -> u64 {
    std::env::var("FUZZ_CASES").ok().and_then(|cases| cases.parse().ok()).unwrap_or(20_000)
}

#[test]
fn forged_bytes_with_right_checksums_are_told_or_read() {
    let mut numbers = Numbers(1_442_695_040_888_963_407);
    let head = serde_json::to_vec(&example()).unwrap();
    for case in 0..cases() {
        let mut data = match case % 4 {
            1 => head.clone(),
            // One run, or two, of as many bytes as there are.
            2 => {
                let runs = 1 + numbers.below(2) as usize;
                let mut data = numbers.below(3).to_le_bytes().to_vec();
                data.extend((runs as u32).to_le_bytes());
                (0..runs).for_each(|run| {
                    data.extend((run as u64 * 4096).to_le_bytes());
                    data.extend(16u64.to_le_bytes());
                });
                data.resize(data.len() + 16 * runs, 7);
                data
            }
            _ => (0..numbers.below(64)).map(|_| numbers.below(256) as u8).collect(),
        };
        for _ in 0..numbers.below(4) {
            let Some(end) = std::num::NonZero::new(data.len() as u64) else { break };
            let at = numbers.below(end.get()) as usize;
            match numbers.below(3) {
                0 => data[at] ^= 1 << numbers.below(8),
                1 => data[at] = [0, 0xff, 0x7f, 0x80][numbers.below(4) as usize],
                _ => data.truncate(at),
            }
        }
        data.insert(0, case as u8 % 4);
        fuzz::entry(&data);
    }
}
