//! What is sealed comes back with its key, and with no other; what is cut off or changed is told before a byte of it is believed.

mod common;

use std::io::Write;

use checkpoint::fuzz::example;
use checkpoint::{Error, Key, Opener, Reader, Sealer, Writer};
use common::{Numbers, cut_a_thousand_times, flip_a_thousand_bits};

fn key(first: u8) -> Key {
    let bytes: Vec<u8> = (0..32).map(|byte| byte * 7 + first).collect();
    Key::of(&bytes).unwrap()
}

/// A sealed checkpoint of a few pieces, and its pages.
fn sealed() -> (Vec<u8>, Vec<u8>) {
    let mut numbers = Numbers(88_172_645_463_325_252);
    let pages: Vec<u8> = (0..160 << 10).map(|_| numbers.below(256) as u8).collect();
    let mut writer = Writer::new(Sealer::new(Vec::new(), key(1)).unwrap(), &example()).unwrap();
    writer.pages(0x1000, &pages).unwrap();
    (writer.finish().unwrap().finish().unwrap(), pages)
}

fn read(bytes: &[u8], key: Key) -> Result<Vec<u8>, Error> {
    let mut reader = Reader::new(Opener::new(bytes, key)?)?;
    let mut pages = Vec::new();
    while let Some(chunk) = reader.pages()? {
        chunk.runs().for_each(|(_, content)| pages.extend_from_slice(content));
    }
    Ok(pages)
}

#[test]
fn what_is_sealed_comes_back_with_its_key_alone() {
    let (bytes, pages) = sealed();
    assert!(read(&bytes, key(1)).unwrap() == pages);
    assert!(matches!(read(&bytes, key(2)), Err(Error::OtherKey)));
    assert!(matches!(Reader::new(&*bytes), Err(Error::Sealed)));
    let plain = Writer::new(Vec::new(), &example()).unwrap().finish().unwrap();
    assert!(matches!(Opener::new(&*plain, key(1)), Err(Error::NotSealed)));
    assert!(matches!(Opener::new(&b"something else that is long"[..], key(1)), Err(Error::NotACheckpoint)));
    // Two files of one key have nothing in common but their beginning.
    let (again, _) = sealed();
    assert_eq!(again.len(), bytes.len());
    assert!(again[20..39] != bytes[20..39] && again[1000..1100] != bytes[1000..1100]);
}

#[test]
fn nothing_of_it_stands_in_the_file() {
    let (bytes, pages) = sealed();
    for word in [&b"understudy point"[..], b"/usr/bin/program", &pages[..16]] {
        assert!(!bytes.windows(word.len()).any(|window| window == word));
    }
}

#[test]
fn a_thousand_cuts() {
    cut_a_thousand_times(&sealed().0, |bytes| read(bytes, key(1)));
}

#[test]
fn a_thousand_flipped_bits() {
    // None is taken for a failure of the system's.
    let is_told = |error: &Error| !matches!(error, Error::System(_));
    flip_a_thousand_bits(&sealed().0, |bytes| read(bytes, key(1)), is_told);
}

/// Where each piece begins, and the end.
fn pieces(bytes: &[u8]) -> Vec<usize> {
    let mut at = 39;
    let mut all = vec![at];
    while at < bytes.len() {
        let length = u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap()) & !(1 << 31);
        at += 4 + length as usize;
        all.push(at);
    }
    all
}

#[test]
fn pieces_stay_in_their_places() {
    let (bytes, _) = sealed();
    let (other, _) = sealed();
    let at = pieces(&bytes);
    assert!(at.len() > 4);
    let joined = |order: &[(&[u8], usize)]| {
        let mut file = bytes[..39].to_vec();
        order.iter().for_each(|(from, piece)| file.extend(&from[at[*piece]..at[piece + 1]]));
        read(&file, key(1))
    };
    let (bytes, other) = (&bytes[..], &other[..]);
    assert!(joined(&[(bytes, 0), (bytes, 1), (bytes, 2), (bytes, 3)]).is_ok());
    assert!(joined(&[(bytes, 0), (bytes, 2), (bytes, 1), (bytes, 3)]).is_err());
    assert!(joined(&[(bytes, 0), (bytes, 1), (bytes, 3)]).is_err());
    assert!(joined(&[(bytes, 0), (bytes, 1), (bytes, 1), (bytes, 2), (bytes, 3)]).is_err());
    assert!(joined(&[(bytes, 0), (other, 1), (bytes, 2), (bytes, 3)]).is_err());
}

#[test]
fn a_key_is_long_enough() {
    assert!(Key::of(&[7; 31]).is_none() && Key::of(&vec![7; (64 << 10) + 1]).is_none());
    assert!(Key::of(&[7; 32]).is_some());
}

#[test]
fn what_is_written_in_any_pieces_is_the_same() {
    let mut sealer = Sealer::new(Vec::new(), key(3)).unwrap();
    let content: Vec<u8> = (0..200_000u32).map(|byte| (byte / 7) as u8).collect();
    let mut numbers = Numbers(9);
    let mut rest = &content[..];
    while !rest.is_empty() {
        let (now, later) = rest.split_at(rest.len().min(1 + numbers.below(9000) as usize));
        sealer.write_all(now).unwrap();
        rest = later;
    }
    let bytes = sealer.finish().unwrap();
    let mut opened = Vec::new();
    std::io::Read::read_to_end(&mut Opener::new(&*bytes, key(3)).unwrap(), &mut opened).unwrap();
    assert!(opened == content);
}
