//! What events take in the file, and how fast they are taken: streams such as programs make.
//!
//! `cargo run --release -p us-recording --example measure [FOLDER [DUMP]...]`: recordings are made in FOLDER; a DUMP is
//! a folder of files `slotN` with the events of a slot, and takes the place of the made-up streams.

#[path = "../tests/common/mod.rs"]
mod common;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Instant;

use common::{NONE, Rng, call, event, header, image, locks};
use recording::{Events, Item, Reader, Writer};

/// A recorder looks at the rings about so often: events of one slot at a time.
const BATCH: usize = 64 << 10;

/// The streams of a case: one for each slot.
type Make = fn(&mut Rng) -> Vec<Vec<u8>>;

fn main() {
    let mut arguments = std::env::args_os().skip(1).map(PathBuf::from);
    let folder = arguments.next().unwrap_or("/dev/shm".into());
    println!("{:<44} {:>12} {:>12} {:>10} {:>10}", "", "B/event raw", "B/event file", "MB/s", "read MB/s");
    let dumps: Vec<PathBuf> = arguments.collect();
    for dump in &dumps {
        measure(&folder, &dump.display().to_string(), &slots_of(dump));
    }
    if !dumps.is_empty() {
        return;
    }
    let cases: [(&str, Make); 12] = [
        ("locks: one thread, 4 mutexes", |rng| vec![locks(rng, 500_000, 1, 4)]),
        ("locks: 4 threads, one mutex", |rng| threads(4, rng, |rng| locks(rng, 200_000, 4, 1))),
        ("locks: 16 threads, 8 mutexes", |rng| threads(16, rng, |rng| locks(rng, 50_000, 16, 8))),
        ("locks: 16 threads, 200 mutexes", |rng| threads(16, rng, |rng| locks(rng, 50_000, 16, 200))),
        ("rwlocks: 8 threads, 50 clocks", |rng| threads(8, rng, |rng| hashed(rng, 100_000, 8, 50))),
        ("times: one clock, every 2 us", |rng| vec![times(rng, 500_000, 1, 2_000.0)]),
        ("times: two clocks, every 100 us", |rng| vec![times(rng, 500_000, 2, 100_000.0)]),
        ("server: epoll, read 120, write", |rng| threads(4, rng, |rng| server(rng, 50_000))),
        ("reads of 64 KiB, incompressible", |rng| vec![reads(rng, 4096, 64 << 10, false)]),
        ("reads of 4 KiB, incompressible", |rng| vec![reads(rng, 64 << 10, 4 << 10, false)]),
        ("reads of 64 KiB, text", |rng| vec![reads(rng, 4096, 64 << 10, true)]),
        ("reads of 4 KiB, text", |rng| vec![reads(rng, 64 << 10, 4 << 10, true)]),
    ];
    for (name, make) in cases {
        measure(&folder, name, &make(&mut Rng(1)));
    }
}

fn slots_of(dump: &Path) -> Vec<Vec<u8>> {
    let entries = dump.read_dir().expect("a folder");
    let mut files: Vec<PathBuf> = entries.map(|entry| entry.expect("readable").path()).collect();
    files.sort();
    files.iter().map(|file| std::fs::read(file).expect("readable")).collect()
}

fn threads(count: usize, rng: &mut Rng, each: fn(&mut Rng) -> Vec<u8>) -> Vec<Vec<u8>> {
    (0..count).map(|_| each(rng)).collect()
}

fn hashed(rng: &mut Rng, events: usize, threads: u64, clocks: u64) -> Vec<u8> {
    let mut tickets = vec![1000; clocks as usize];
    (0..events)
        .flat_map(|_| {
            let clock = rng.below(clocks) as usize;
            tickets[clock] += 1 + rng.around(threads as f64 - 1.0);
            event(2, 0, 1 << 12 | (clock as u16 * 37), tickets[clock], &[])
        })
        .collect()
}

fn times(rng: &mut Rng, events: usize, clocks: usize, apart: f64) -> Vec<u8> {
    let begins = [1_790_000_000_000_000_000u64, 5_000_000_000_000];
    let mut passed = 0;
    (0..events)
        .flat_map(|_| {
            passed += 30 + rng.around(apart);
            event(3, 0, 0, begins[rng.below(clocks as u64) as usize] + passed, &[])
        })
        .collect()
}

fn server(rng: &mut Rng, requests: usize) -> Vec<u8> {
    let mut ticket = 100;
    let mut now = 1_790_000_000_000_000_000;
    (0..requests)
        .flat_map(|_| {
            ticket += 1 + rng.around(3.0);
            now += 5_000 + rng.around(20_000.0);
            let fd = 10 + rng.below(100) as i32;
            let ready = [&1u32.to_le_bytes()[..], &(fd as u64).to_le_bytes()].concat();
            let request =
                format!("GET /item/{} HTTP/1.1\r\nHost: example\r\nAccept: */*\r\n\r\n", rng.below(100_000));
            let (digest, length) = (rng.next() as u32, request.len() as i64);
            [
                call(232, 5, 0x1234, 64, ticket, 1, &ready),
                event(3, 0, 0, now, &[]),
                call(0, fd, 0x4321, 4096, ticket + 1, length, request.as_bytes()),
                event(1, 0, 0, ticket / 2, &[]),
                call(1, fd, digest, 300, NONE, 300, &[]),
            ]
            .concat()
        })
        .collect()
}

fn reads(rng: &mut Rng, count: usize, length: usize, text: bool) -> Vec<u8> {
    const WORDS: [&str; 16] = [
        "the ",
        "standby ",
        "replays ",
        "what ",
        "a ",
        "primary ",
        "does, ",
        "and ",
        "in ",
        "order ",
        "of ",
        "its ",
        "tickets. ",
        "No ",
        "event ",
        "passes ",
    ];
    (0..count)
        .flat_map(|at| {
            let bytes = match text {
                false => rng.bytes(length),
                true => {
                    let words = std::iter::repeat_with(|| WORDS[rng.below(16) as usize].bytes());
                    words.flatten().take(length).collect()
                }
            };
            call(0, 7, 0x1111, length as u64, at as u64, length as i64, &bytes)
        })
        .collect()
}

fn measure(folder: &Path, name: &str, slots: &[Vec<u8>]) {
    let path = folder.join(format!("measure-{}", std::process::id()));
    let raw: usize = slots.iter().map(Vec::len).sum();
    let events: usize = slots.iter().map(|bytes| Events::new(bytes).count()).sum();
    let mut batches = batches(slots);
    let begin = Instant::now();
    let mut writer = Writer::create(&path, &header()).expect("a new file");
    writer.image(&image(0)).expect("room for it");
    for (slot, bytes) in batches.drain(..) {
        writer.events(0, slot, bytes).expect("whole events");
    }
    writer.finish().expect("room for it");
    let wrote = begin.elapsed().as_secs_f64();
    let file = path.metadata().expect("it is there").len();
    let begin = Instant::now();
    let mut reader = Reader::open(&path).expect("a recording");
    while reader.next().expect("a whole recording").is_some() {}
    let read = begin.elapsed().as_secs_f64();
    let kinds = kinds(&path);
    std::fs::remove_file(&path).expect("it is there");
    let each = |bytes: f64| bytes / events as f64;
    let rate = |seconds: f64| raw as f64 / seconds / 1e6;
    println!(
        "{name:<44} {:>12.2} {:>12.3} {:>10.0} {:>10.0}",
        each(raw as f64),
        each(file as f64),
        rate(wrote),
        rate(read)
    );
    for (kind, (count, cost)) in kinds {
        println!("    kind {kind:>2} {count:>10} events {:>10.3} bytes each", cost / count as f64);
    }
}

/// How many events there are of each kind, and what they take in the file.
fn kinds(path: &Path) -> BTreeMap<u8, (usize, f64)> {
    let mut reader = Reader::open(path).expect("a recording");
    reader.measure();
    let mut kinds = BTreeMap::<u8, (usize, f64)>::new();
    while let Some(item) = reader.next().expect("a whole recording") {
        let Item::Events { bytes, .. } = item else { continue };
        for (event, cost) in Events::new(&bytes).zip(reader.costs()) {
            let kind = kinds.entry(event.header.kind).or_default();
            kind.0 += 1;
            kind.1 += f64::from(*cost);
        }
    }
    kinds
}

/// Whole events of each slot in turn.
fn batches(slots: &[Vec<u8>]) -> Vec<(u16, &[u8])> {
    let mut batches = Vec::new();
    let mut rest: Vec<&[u8]> = slots.iter().map(Vec::as_slice).collect();
    while rest.iter().any(|rest| !rest.is_empty()) {
        for (slot, rest) in rest.iter_mut().enumerate().filter(|(_, rest)| !rest.is_empty()) {
            let mut events = Events::new(rest);
            let mut taken = 0;
            while taken < BATCH
                && let Some(event) = events.next()
            {
                taken += event.size();
            }
            let (batch, behind) = rest.split_at(taken);
            batches.push((slot as u16, batch));
            *rest = behind;
        }
    }
    batches
}
