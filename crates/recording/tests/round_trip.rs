//! What is written comes back.

mod common;

use std::collections::BTreeMap;
use std::path::Path;

use common::{event, header, image, read, streams};
use proptest::prelude::*;
use recording::{Error, Item, Reader, Writer, canonical};

#[test]
fn every_kind_of_item() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("r");
    let mut writer = Writer::create(&path, &header()).unwrap();
    assert!(matches!(Writer::create(&path, &header()), Err(Error::Exists(_))));
    assert!(matches!(writer.events(0, 0, &[]), Err(Error::Misuse(_))));
    writer.image(&image(0)).unwrap();
    assert!(matches!(writer.image(&image(0)), Err(Error::Misuse(_))));
    let events = [event(1, 0, 0, 5, &[]), event(5, 0, 7, u64::MAX, &[3; 21]), event(12, 0, 0, 0, &[0; 64])];
    let events = events.concat();
    writer.events(0, 3, &events).unwrap();
    assert!(matches!(writer.events(0, 3, &events[..8]), Err(Error::Misuse(_))));
    writer.end(0, 256, b"f").unwrap();
    writer.flush().unwrap();
    let mut reader = Reader::open(&path).unwrap();
    assert_eq!(reader.header(), &header());
    assert_eq!(reader.next().unwrap(), Some(Item::Image(image(0))));
    let bytes = canonical(&events).unwrap();
    assert_eq!(reader.next().unwrap(), Some(Item::Events { image: 0, slot: 3, bytes }));
    assert_eq!(reader.next().unwrap(), Some(Item::End { image: 0, status: 256, facts: b"f".into() }));
    // Another try goes on where this one ended.
    assert!(matches!(reader.next(), Err(Error::Unfinished { rest: 0, .. })));
    let done = writer.finish().unwrap();
    assert_eq!((done.images, done.events, done.bytes_raw), (1, 2, 64));
    assert_eq!(reader.next().unwrap(), Some(Item::Complete(done)));
    assert_eq!(reader.next().unwrap(), None);
    assert_eq!(reader.next().unwrap(), None);
}

/// Somebody else goes on with a recording whose writer has died in the middle of a chunk.
#[test]
fn another_writer_goes_on() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("r");
    let (first, second) = (event(5, 0, 7, u64::MAX, &[3; 21]), event(5, 0, 8, 3, &[9; 4000]));
    let mut writer = Writer::create(&path, &header()).unwrap();
    writer.image(&image(0)).unwrap();
    writer.events(0, 3, &[first.clone(), second.clone()].concat()).unwrap();
    let read = |path: &Path| {
        let mut reader = Reader::open(path).unwrap();
        while let Ok(Some(_)) = reader.next() {}
        reader
    };
    writer.flush().unwrap();
    let reader = read(&path);
    assert!(matches!(Writer::resume(&path, &reader), Err(Error::Io(_))), "two write it");
    drop(writer);
    let whole = std::fs::read(&path).unwrap();
    std::fs::write(&path, [&whole[..], &whole[40..200]].concat()).unwrap();
    let mut writer = Writer::resume(&path, &reader).unwrap();
    assert!(matches!(writer.image(&image(0)), Err(Error::Misuse(_))));
    writer.events(0, 3, &second).unwrap();
    writer.events(0, 4, &first).unwrap();
    writer.end(0, 9, &[]).unwrap();
    let done = writer.finish().unwrap();
    assert_eq!((done.images, done.events), (1, 4));
    assert!(std::fs::read(&path).unwrap().starts_with(&whole));
    let (items, error) = common::read(&path);
    assert!(error.is_none(), "{error:?}");
    let wanted = [((0, 3), [first.clone(), second.clone(), second].concat()), ((0, 4), first)];
    let wanted = wanted.map(|(slot, bytes)| (slot, canonical(&bytes).unwrap()));
    assert_eq!(streams(&items), BTreeMap::from(wanted));
}

#[test]
fn only_the_owner_may_read_it() {
    use std::os::unix::fs::PermissionsExt;
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("r");
    Writer::create(&path, &header()).unwrap();
    assert_eq!(path.metadata().unwrap().permissions().mode() & 0o777, 0o600);
}

/// A chunk bears so many slots; the next one bears the others.
#[test]
fn more_slots_than_a_chunk_bears() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("r");
    let mut writer = Writer::create(&path, &header()).unwrap();
    writer.image(&image(0)).unwrap();
    let one = |slot: u16| event(1, 0, 0, slot.into(), &[]);
    (0..3000).for_each(|slot| writer.events(0, slot, &one(slot)).unwrap());
    writer.finish().unwrap();
    let (items, error) = read(&path);
    assert!(error.is_none(), "{error:?}");
    assert_eq!(streams(&items), (0..3000).map(|slot| ((0, slot), one(slot))).collect());
}

/// Events whose headers, and clocks, are more than the dictionaries bear.
#[test]
fn more_headers_than_the_dictionary_bears() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("r");
    let mut events = Vec::new();
    for round in 0..2u64 {
        (0..1000).for_each(|call| events.extend(event(9, 0, call, round, &[])));
        (0..4096).for_each(|clock| events.extend(event(2, 0, 3 << 12 | clock, round + 5, &[])));
    }
    round_trip(&path, &[(0, 0, events, false)]);
}

/// The largest event that a chunk bears, and one that it does not.
#[test]
fn large_events() {
    let folder = tempfile::tempdir().unwrap();
    let mut rng = common::Rng(5);
    let largest = event(7, 0, 0, 0, &rng.bytes((4 << 20) - 16));
    round_trip(&folder.path().join("r"), &[(0, 0, largest, false), (0, 1, event(1, 0, 0, 1, &[]), false)]);
    let mut writer = Writer::create(&folder.path().join("s"), &header()).unwrap();
    writer.image(&image(0)).unwrap();
    let larger = event(7, 0, 0, 0, &vec![0; (4 << 20) - 15]);
    assert!(matches!(writer.events(0, 0, &larger), Err(Error::Misuse(_))));
}

/// Libraries that every process maps: in the file once among the events, and once by themselves.
#[test]
fn what_comes_again_is_shared() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("r");
    let mut rng = common::Rng(8);
    // More than a writer or a reader has at hand.
    let libraries: Vec<Vec<u8>> = (0..40).map(|_| rng.bytes(100_000)).collect();
    let mut given = Vec::new();
    for process in 0..10u16 {
        for library in &libraries {
            given.push((0, process, common::call(9, 3, 1, 100_000, 7, 100_000, library), false));
            // One byte less, and one byte another: payloads of their own.
            given.push((0, process, event(7, 0, 0, 0, &library[1..]), process == 3));
        }
        let mut other = libraries[0].clone();
        other[50_000 + usize::from(process)] ^= 1;
        given.push((0, process, event(7, 0, 0, 0, &other), false));
    }
    round_trip(&path, &given);
    let bytes = path.metadata().unwrap().len();
    assert!(bytes < 18_500_000, "{bytes}");
}

/// A payload that has the checksum of another one, and its length, is not taken for it.
#[test]
fn the_same_checksum_is_not_the_same_payload() {
    let folder = tempfile::tempdir().unwrap();
    let one = common::Rng(9).bytes(8192);
    let mut other = one.clone();
    other[100..104].copy_from_slice(&[1, 2, 3, 4]);
    // The last four bytes bring it back: the register of a CRC takes as many bits from them as it has.
    let wanted = crc32c::crc32c(&one);
    let mut last: u32 = 0;
    for _ in 0..2 {
        other[8188..].copy_from_slice(&last.to_le_bytes());
        let off = crc32c::crc32c(&other) ^ wanted;
        last ^= before(off);
    }
    other[8188..].copy_from_slice(&last.to_le_bytes());
    assert!(crc32c::crc32c(&other) == wanted && other != one);
    let all = [&one, &one, &other, &one, &other, &other].map(|bytes| (0, 0, event(7, 0, 0, 0, bytes), false));
    round_trip(&folder.path().join("r"), &all);
}

/// The difference of four bytes that makes this difference of the checksum behind them.
fn before(mut off: u32) -> u32 {
    const REVERSED: u32 = 0x82f6_3b78;
    for _ in 0..32 {
        off = if off & 1 << 31 != 0 { (off ^ REVERSED) << 1 | 1 } else { off << 1 };
    }
    off
}

type Given = (u32, u16, Vec<u8>, bool);

/// Writes these, image by image as they come, and compares what comes back.
fn round_trip(path: &Path, given: &[Given]) {
    let mut writer = Writer::create(path, &header()).unwrap();
    let images = given.iter().map(|given| given.0).max().map_or(0, |last| last + 1);
    (0..images).for_each(|number| writer.image(&image(number)).unwrap());
    let mut expected = BTreeMap::<_, Vec<u8>>::new();
    for (image, slot, bytes, flush) in given {
        writer.events(*image, *slot, bytes).unwrap();
        let bytes = canonical(bytes).unwrap();
        if !bytes.is_empty() {
            expected.entry((*image, *slot)).or_default().extend(bytes);
        }
        if *flush {
            writer.flush().unwrap();
        }
    }
    let done = writer.finish().unwrap();
    let (items, error) = read(path);
    assert!(error.is_none(), "{error:?}");
    assert!(streams(&items) == expected, "what comes back is not what was given");
    assert_eq!(items.last(), Some(&Item::Complete(done)));
}

/// A ticket: none, a near one, any.
fn tickets() -> impl Strategy<Value = u64> {
    prop_oneof![Just(u64::MAX), Just(0), 0..300u64, 1_000_000..1_001_000u64, any::<u64>()]
}

fn payloads() -> impl Strategy<Value = Vec<u8>> {
    use proptest::collection::vec;
    prop_oneof![
        4 => Just(Vec::new()),
        4 => vec(any::<u8>(), 16),
        2 => vec(prop_oneof![Just(0u8), any::<u8>()], 0..80),
        1 => (any::<u8>(), 0..5000usize).prop_map(|(byte, length)| vec![byte; length]),
        1 => vec(any::<u8>(), 400..600),
    ]
}

fn any_event() -> impl Strategy<Value = Vec<u8>> {
    let kinds = prop_oneof![8 => 1..=12u8, 1 => any::<u8>()];
    let calls = prop_oneof![Just(0u16), 0..4u16, any::<u16>()];
    (kinds, prop_oneof![Just(0u8), any::<u8>()], calls, tickets(), payloads())
        .prop_map(|(kind, flags, call, ticket, payload)| event(kind, flags, call, ticket, &payload))
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, failure_persistence: None, ..ProptestConfig::default() })]

    /// Whatever whole events are given come back byte for byte.
    #[test]
    fn arbitrary_events(
        given in proptest::collection::vec(
            (0..3u32, 0..4u16, proptest::collection::vec(any_event(), 0..40), proptest::bool::weighted(0.2)),
            0..20,
        )
    ) {
        let folder = tempfile::tempdir().unwrap();
        let given: Vec<Given> =
            given.into_iter().map(|(image, slot, events, flush)| (image, slot, events.concat(), flush)).collect();
        round_trip(&folder.path().join("r"), &given);
    }
}
