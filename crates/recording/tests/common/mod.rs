//! Streams of events: such as running programs make, and others.
#![allow(dead_code, reason = "every test takes what it needs")]

use std::collections::BTreeMap;
use std::path::Path;

use recording::{Error, File, Header, How, Image, Item, Reader, Writer};

/// A generator of numbers that are the same each time (xorshift).
#[derive(Clone, Debug)]
pub struct Rng(pub u64);

impl Rng {
    pub fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }
    pub fn below(&mut self, end: u64) -> u64 {
        (self.next() >> 11) % end
    }
    /// About `mean`, as the times between independent events are.
    pub fn around(&mut self, mean: f64) -> u64 {
        let uniform = (self.next() >> 11) as f64 / (1u64 << 53) as f64;
        (-(1.0 - uniform).ln() * mean) as u64
    }
    pub fn bytes(&mut self, count: usize) -> Vec<u8> {
        let mut bytes: Vec<u8> = (0..count.div_ceil(8)).flat_map(|_| self.next().to_le_bytes()).collect();
        bytes.truncate(count);
        bytes
    }
}

/// An event as it lies in a ring; the padding is whatever lay there before.
pub fn event(kind: u8, flags: u8, call: u16, ticket: u64, payload: &[u8]) -> Vec<u8> {
    let word = u64::from(kind) | u64::from(flags) << 8 | u64::from(call) << 16 | (payload.len() as u64) << 32;
    let mut bytes = [word.to_le_bytes(), ticket.to_le_bytes()].concat();
    bytes.extend_from_slice(payload);
    bytes.resize(bytes.len().next_multiple_of(16), 0xa5);
    bytes
}

pub const NONE: u64 = u64::MAX;

/// `Enter` and `Return` of one call.
pub fn call(number: u16, fd: i32, digest: u32, asked: u64, ticket: u64, result: i64, out: &[u8]) -> Vec<u8> {
    let args = [&fd.to_le_bytes()[..], &digest.to_le_bytes(), &asked.to_le_bytes()].concat();
    let back = [&result.to_le_bytes()[..], &0u64.to_le_bytes(), out].concat();
    [event(4, 0, number, NONE, &args), event(5, 0, number, ticket, &back)].concat()
}

/// The second has more facts than fit between events.
pub fn image(number: u32) -> Image {
    let how = if number == 0 { How::Started } else { How::Forked };
    let facts = vec![number as u8; if number == 1 { 70_000 } else { 40 }];
    Image { number, pid: 100 + number as i32, parent: number.checked_sub(1), how, facts }
}

pub fn header() -> Header {
    Header {
        program: vec![b"prog".into(), b"--arg".into()],
        environment: vec![b"PATH=/bin".into(), b"X=\xff".into()],
        executable: "/bin/prog".into(),
        directory: "/".into(),
        umask: 0o22,
        files: vec![
            File { path: "/bin/prog".into(), size: 17, hash: [7; 32], build_id: Some(vec![1, 2, 3]) },
            File { path: "/lib/libc.so".into(), size: 18, hash: [8; 32], build_id: None },
        ],
        cpu: vec!["avx2".into(), "sse4_2".into()],
        kernel: "6.1".into(),
        limits: vec![(7, 1024, 4096)],
        started_unix_ns: 1_700_000_000_000_000_000,
        understudy: "0.1.0".into(),
        standard: [Some((1, 2)), None, Some((3, 4))],
        asked: vec![("standbys".into(), 2)],
    }
}

/// One of every kind of event, and a payload of every kind of length.
pub fn some_of_everything(rng: &mut Rng) -> Vec<u8> {
    let mut bytes = Vec::new();
    for (at, length) in [0, 1, 15, 16, 17, 32, 33, 100, 511, 512, 3000].into_iter().enumerate() {
        for kind in 0..12 {
            let payload = rng.bytes(length);
            bytes.extend(event(
                kind,
                at as u8,
                rng.below(1 << 16) as u16,
                rng.next() >> rng.below(64),
                &payload,
            ));
        }
        bytes.extend(call(0, 3, 9, 100, at as u64, length as i64, &rng.bytes(length)));
    }
    bytes
}

/// A recording with every kind of chunk at `path`.
pub fn small_recording(path: &Path) {
    let mut rng = Rng(77);
    let library = call(9, 3, 1, 5000, NONE, 5000, &rng.bytes(5000));
    let mut writer = Writer::create(path, &header()).unwrap();
    for number in 0..3 {
        writer.image(&image(number)).unwrap();
        for slot in 0..3 {
            writer.events(number, slot, &some_of_everything(&mut rng)).unwrap();
        }
        // From its second time on it has a chunk of its own.
        writer.events(number, 4, &library).unwrap();
        writer.flush().unwrap();
        for _ in 0..3 {
            writer.events(0, 0, &locks(&mut rng, 40, 3, 4)).unwrap();
            writer.flush().unwrap();
        }
    }
    writer.end(1, 9, b"facts").unwrap();
    writer.events(2, 1, &some_of_everything(&mut rng)).unwrap();
    writer.end(2, 0, &[3; 70_000]).unwrap();
    writer.end(0, 256, b"more facts").unwrap();
    writer.finish().unwrap();
}

/// Everything up to the end or to what is wrong.
pub fn read(path: &Path) -> (Vec<Item>, Option<Error>) {
    let mut reader = match Reader::open(path) {
        Ok(reader) => reader,
        Err(error) => return (Vec::new(), Some(error)),
    };
    let mut items = Vec::new();
    loop {
        match reader.next() {
            Ok(Some(item)) => items.push(item),
            Ok(None) => return (items, None),
            Err(error) => return (items, Some(error)),
        }
    }
}

/// The stream of each slot.
pub fn streams(items: &[Item]) -> BTreeMap<(u32, u16), Vec<u8>> {
    let mut streams = BTreeMap::<_, Vec<u8>>::new();
    for item in items {
        if let Item::Events { image, slot, bytes } = item {
            streams.entry((*image, *slot)).or_default().extend_from_slice(bytes);
        }
    }
    streams
}

/// One thread of `threads` that take `mutexes` mutexes at random, each as often as the others.
pub fn locks(rng: &mut Rng, events: usize, threads: u64, mutexes: usize) -> Vec<u8> {
    let mut tickets: Vec<u64> = (0..mutexes).map(|_| rng.below(100_000)).collect();
    (0..events)
        .flat_map(|_| {
            let mutex = rng.below(mutexes as u64) as usize;
            tickets[mutex] += 1 + if threads > 1 { rng.around(threads as f64 - 1.0) } else { 0 };
            event(1, 0, 0, tickets[mutex], &[])
        })
        .collect()
}
