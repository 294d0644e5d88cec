//! One entry for a fuzzer: bytes that somebody forged, with checksums that are right.

use crate::chunk::{self, Head, Kind};
use crate::decode::Found;
use crate::event::{Event, Events, canonical};
use crate::header::{Header, How, Image, Item};
use crate::shelf::{Place, SHARE_MIN};
use crate::{Reader, content, encode, streams};

/// Reads `data` in the way that its first byte says. Panics if something comes back that was not given.
pub fn entry(data: &[u8]) {
    let Some((way, data)) = data.split_first() else { return };
    match way & 7 {
        0 => drop(read(data.to_vec())),
        1 => events(data),
        2 if way & 0x40 != 0 => forged(Kind::Payload, data),
        2 => forged(Kind::Events, data),
        // Columns without compression, so that a changed byte is one of theirs.
        3 => forged(Kind::Events, &plain(data)),
        kind => {
            let kind = [Kind::Header, Kind::Image, Kind::End, Kind::Complete][kind as usize - 4];
            if way & 0x80 == 0 { forged(kind, &pack(data)) } else { forged(kind, data) }
        }
    }
}

fn pack(bytes: &[u8]) -> Vec<u8> {
    let mut packed = Vec::new();
    content::pack(bytes, &mut packed);
    packed
}

/// A file that begins well, and goes on with a chunk of this content.
fn forged(kind: Kind, data: &[u8]) {
    let mut file = chunk::file_head().to_vec();
    let mut number = 0;
    let mut append = |kind, content: &[u8]| {
        let place = Place { offset: file.len() as u64, number };
        let crc = crc32c::crc32c(content);
        let head = Head { kind, number, at_ns: number, stored: content.len() as u32, crc };
        file.extend_from_slice(&head.to_bytes());
        file.extend_from_slice(content);
        number += 1;
        place
    };
    if kind != Kind::Header {
        append(Kind::Header, &pack(&Header::default().to_bytes()));
        let image = Image { number: 0, pid: 1, parent: None, how: How::Started, facts: Vec::new() };
        append(Kind::Image, &pack(&image.to_bytes()));
        // Which a forged chunk may name.
        append(Kind::Payload, &pack(&[7; 4096]));
    }
    let place = append(kind, data);
    if kind == Kind::Payload {
        append(Kind::Events, &sharing(place, data));
    }
    for item in read(file) {
        // What can be read can be written.
        if let Item::Events { bytes, .. } = item {
            events(&bytes);
        }
    }
}

/// A content with an event whose payload is at `place`, where `stored` is.
fn sharing(place: Place, stored: &[u8]) -> Vec<u8> {
    let length = stored.get(1..5).map_or(0, |word| u32::from_le_bytes(word.try_into().expect("four bytes")));
    let payload = vec![0; (length as usize).clamp(SHARE_MIN, 1 << 16)];
    let kind = us_abi::EventKind::Output as u8;
    let header = us_abi::Header { kind, flags: 0, call: 0, len: payload.len() as u32, ticket: 1 };
    let Ok(mut encoder) = encode::Encoder::new() else { return Vec::new() };
    encoder.push(0, 0, &Event { header, payload: &payload }, Some(place));
    encoder.finish(|pieces| pieces.concat())
}

/// A content whose columns are cut out of `data`: three bytes of length each, then the bytes.
fn plain(data: &[u8]) -> Vec<u8> {
    let (lengths, mut rest) = data.split_at((3 * streams::STREAMS).min(data.len()));
    let mut lengths = lengths.chunks_exact(3);
    let mut content = vec![streams::STREAMS as u8];
    let mut columns = Vec::new();
    for _ in 0..streams::STREAMS {
        let length = lengths.next().map_or(0, |low| u32::from_le_bytes([low[0], low[1], low[2], 0]) as usize);
        let (column, behind) = rest.split_at(length.min(rest.len()));
        crate::bytes::varint(&mut content, column.len() as u64);
        content.push(streams::SHARED);
        columns.extend_from_slice(column);
        rest = behind;
    }
    content.push(content::PLAIN);
    crate::bytes::varint(&mut content, columns.len() as u64);
    [content, columns].concat()
}

/// Input for [`entry`] that says the same as the content of a good chunk of events.
pub fn columns(content: &[u8]) -> Vec<u8> {
    let mut unpacker = streams::Unpacker::new().expect("memory");
    let columns = streams::Columns::unpack(&mut unpacker, content).expect("a good content");
    let mut input = vec![3];
    columns.bytes().for_each(|column| input.extend_from_slice(&(column.len() as u32).to_le_bytes()[..3]));
    columns.bytes().for_each(|column| input.extend_from_slice(column));
    input
}

fn read(file: Vec<u8>) -> Vec<Item> {
    let Ok(mut reader) = Reader::from_bytes(file) else { return Vec::new() };
    reader.measure();
    let mut items = Vec::new();
    while let Ok(Some(item)) = reader.next() {
        items.push(item);
    }
    items
}

/// Events come back as they were given.
fn events(bytes: &[u8]) {
    let whole = &bytes[..bytes.len() - rest_of(bytes)];
    let Some(expected) = canonical(whole) else { return };
    let Ok(mut encoder) = encode::Encoder::new() else { return };
    if expected.is_empty() || expected.len() > crate::CHUNK_MAX {
        return;
    }
    for (at, event) in Events::new(&expected).enumerate() {
        encoder.push(0, (at / 16 % 3) as u16, &event, None);
    }
    let packed = encoder.finish(|pieces| pieces.concat());
    let Ok(mut unpacker) = streams::Unpacker::new() else { return };
    let mut decoder = crate::decode::Decoder::new(&mut unpacker, &packed).expect("it has just been made");
    let mut found = Vec::new();
    while let Some(Found::Run(run)) =
        decoder.next(None, &mut |_, _| Err("nothing is shared".into())).expect("it has just been made")
    {
        found.extend(run.bytes);
    }
    // Sixteen events of each slot in turn, so their order is that of the runs.
    assert!(found == expected, "events have changed");
}

/// Bytes behind the last whole event.
fn rest_of(bytes: &[u8]) -> usize {
    let mut events = Events::new(bytes);
    events.by_ref().for_each(drop);
    events.rest().len()
}
