//! What is written comes back.

use recording::{Error, Header, How, Image, Item, Reader, Writer, canonical};

fn image(number: u32) -> Image {
    Image {
        number,
        pid: 100 + number as i32,
        parent: number.checked_sub(1),
        how: How::Forked,
        facts: vec![1; 9],
    }
}

fn event(kind: u8, call: u16, ticket: u64, payload: &[u8]) -> Vec<u8> {
    let word = u64::from(kind) | u64::from(call) << 16 | (payload.len() as u64) << 32;
    let mut bytes = [word.to_le_bytes(), ticket.to_le_bytes()].concat();
    bytes.extend_from_slice(payload);
    bytes.resize(bytes.len().next_multiple_of(16), 0xaa);
    bytes
}

#[test]
fn every_kind_of_item() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("r");
    let header =
        Header { program: vec![b"a".into()], standard: [Some((1, 2)), None, None], ..Header::default() };
    let mut writer = Writer::create(&path, &header).unwrap();
    assert!(matches!(Writer::create(&path, &header), Err(Error::Exists(_))));
    assert!(matches!(writer.events(0, 0, &[]), Err(Error::Misuse(_))));
    writer.image(&image(0)).unwrap();
    assert!(matches!(writer.image(&image(0)), Err(Error::Misuse(_))));
    let events = [event(1, 0, 5, &[]), event(5, 7, u64::MAX, &[3; 21]), event(12, 0, 0, &[0; 64])].concat();
    writer.events(0, 3, &events).unwrap();
    assert!(matches!(writer.events(0, 3, &events[..8]), Err(Error::Misuse(_))));
    writer.end(0, 256, b"f").unwrap();
    let mut reader = Reader::open(&path).unwrap();
    assert_eq!(reader.header(), &header);
    assert_eq!(reader.next().unwrap(), Some(Item::Image(image(0))));
    let bytes = canonical(&events).unwrap();
    assert_eq!(reader.next().unwrap(), Some(Item::Events { image: 0, slot: 3, bytes }));
    assert_eq!(reader.next().unwrap(), Some(Item::End { image: 0, status: 256, facts: b"f".into() }));
    assert!(matches!(reader.next(), Err(Error::Unfinished { rest: 0, .. })));
    let done = writer.finish().unwrap();
    assert_eq!((done.images, done.events, done.bytes_raw), (1, 2, 64));
    assert_eq!(reader.next().unwrap(), Some(Item::Complete(done)));
    assert_eq!(reader.next().unwrap(), None);
    assert_eq!(reader.next().unwrap(), None);
}
