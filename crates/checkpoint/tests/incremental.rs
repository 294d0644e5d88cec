//! What builds on another checkpoint holds what is not there, and knows all pages.

mod common;

use checkpoint::fuzz::example;
use checkpoint::{Base, BuiltOn, Digest, Error, Head, Owner, PAGE_BYTES, Reader, Writer};
use common::Numbers;

const PAGES: usize = 1000;
const START: u64 = 0x40_0000;

fn content() -> Vec<u8> {
    let mut numbers = Numbers(7);
    (0..PAGES * PAGE_BYTES).map(|_| numbers.below(256) as u8).collect()
}

/// A checkpoint of one piece of memory that builds on that one.
fn written(content: &[u8], base: Option<&[u8]>, id: &str) -> (Vec<u8>, u64) {
    let base = base.map(|bytes| Base::read(bytes).unwrap());
    let built_on = base.as_ref().map(|base| BuiltOn { path: "base".into(), id: base.id().into() });
    let seed = base.as_ref().map_or(99, Base::seed);
    let head = Head { id: id.into(), seed: Some(seed), base: built_on, ..example() };
    let mut writer = Writer::new(Vec::new(), &head).unwrap();
    base.into_iter().for_each(|base| writer.build_on(base));
    writer.begin(Owner::Process(1)).unwrap();
    // An odd number of bytes before, as of a table that is no memory.
    writer.pages(1, &[5; 777]).unwrap();
    writer.begin_mapping();
    let changed = writer.memory(START, content).unwrap();
    (writer.finish().unwrap(), changed)
}

/// Pages and their addresses.
type Pages = Vec<(u64, Vec<u8>)>;

/// Its pages, and behind that what its list says.
fn read(bytes: &[u8]) -> (Pages, Vec<(u64, Digest)>) {
    let mut reader = Reader::new(bytes).unwrap();
    let mut pages = Vec::new();
    while let Some(chunk) = reader.pages().unwrap() {
        for (start, content) in chunk.runs().filter(|(start, _)| *start >= START) {
            assert!(
                start % PAGE_BYTES as u64 == 0 && content.len() % PAGE_BYTES == 0,
                "a page is in two chunks"
            );
            let all = (start..).step_by(PAGE_BYTES).zip(content.chunks(PAGE_BYTES));
            pages.extend(all.map(|(at, page)| (at, page.to_vec())));
        }
    }
    (pages, reader.index().pages().map(|(_, at, digest)| (at, digest)).collect())
}

#[test]
fn only_what_has_changed_is_held() {
    let mut now = content();
    let (base, all) = written(&now, None, "first");
    assert_eq!(all as usize, now.len());
    for page in [0, 1, 17, 500, PAGES - 1] {
        now[page * PAGE_BYTES + 9] ^= 1;
    }
    let (next, changed) = written(&now, Some(&base), "second");
    assert_eq!(changed as usize, 5 * PAGE_BYTES);
    assert!(next.len() < base.len() / 50, "{} of {}", next.len(), base.len());
    let (pages, list) = read(&next);
    let address = |page: usize| START + (page * PAGE_BYTES) as u64;
    let held: Vec<u64> = pages.iter().map(|(at, _)| *at).collect();
    assert_eq!(held, [0, 1, 17, 500, PAGES - 1].map(address));
    for (page, content) in now.chunks(PAGE_BYTES).enumerate() {
        assert!(list.contains(&(address(page), Digest::of(99, content))), "page {page} is not in the list");
    }
    assert_eq!(list.len(), PAGES);
    // The third one knows the pages of the first by the list of the second.
    now[20 * PAGE_BYTES] ^= 1;
    let (last, changed) = written(&now, Some(&next), "third");
    assert_eq!((changed as usize, read(&last).0.len()), (PAGE_BYTES, 1));
}

#[test]
fn pages_that_are_gone_or_are_elsewhere_are_not_found() {
    let now = content();
    let (base, _) = written(&now, None, "first");
    // All of it a page further on: nothing is where it was.
    let mut moved = now[PAGE_BYTES..].to_vec();
    moved.extend(&now[..PAGE_BYTES]);
    assert_eq!(written(&moved, Some(&base), "second").1 as usize, moved.len());
    let (half, changed) = written(&now[..now.len() / 2], Some(&base), "second");
    assert_eq!((changed, read(&half).1.len()), (0, PAGES / 2));
}

#[test]
fn no_base_is_believed_that_is_cut_off_or_has_no_list() {
    let (base, _) = written(&content()[..20 * PAGE_BYTES], None, "first");
    for at in (0..base.len()).step_by(41) {
        let cut = Base::read(&base[..at]);
        assert!(matches!(cut, Err(Error::Cut(_) | Error::NotACheckpoint)), "cut at {at}: {cut:?}");
    }
    let head = Head { seed: None, ..example() };
    let without = Writer::new(Vec::new(), &head).unwrap().finish().unwrap();
    assert!(matches!(Base::read(&*without), Err(Error::NoBase)));
}
