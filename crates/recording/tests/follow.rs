//! A reader that follows a writer.

mod common;

use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use common::{Rng, header, image, locks, streams};
use recording::{Error, Item, Reader, Writer};

/// Long enough for any machine; only a reader that hangs comes here.
const PATIENCE: Duration = Duration::from_secs(60);

/// Follows the recording at `path` in a thread of its own; items come one by one, then the end or what is wrong.
fn follow(path: std::path::PathBuf) -> mpsc::Receiver<Result<Option<Item>, Error>> {
    let (to, from) = mpsc::channel();
    thread::spawn(move || {
        let mut reader = Reader::open(&path).unwrap();
        reader.follow(true);
        loop {
            let next = reader.next();
            let is_last = !matches!(next, Ok(Some(_)));
            if to.send(next).is_err() || is_last {
                return;
            }
        }
    });
    from
}

#[test]
fn until_the_recording_is_finished() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("r");
    let mut writer = Writer::create(&path, &header()).unwrap();
    let items = follow(path);
    writer.image(&image(0)).unwrap();
    writer.flush().unwrap();
    assert_eq!(items.recv_timeout(PATIENCE).unwrap().unwrap(), Some(Item::Image(image(0))));
    let mut rng = Rng(1);
    let (mut given, mut found) = (Vec::new(), Vec::new());
    for _ in 0..20 {
        let events = locks(&mut rng, 100, 2, 2);
        writer.events(0, 0, &events).unwrap();
        writer.flush().unwrap();
        given.extend(events);
        // What has been flushed is there for others.
        found.push(items.recv_timeout(PATIENCE).unwrap().unwrap().unwrap());
        assert_eq!(streams(&found)[&(0, 0)], given);
    }
    let done = writer.finish().unwrap();
    assert_eq!(items.recv_timeout(PATIENCE).unwrap().unwrap(), Some(Item::Complete(done)));
    assert_eq!(items.recv_timeout(PATIENCE).unwrap().unwrap(), None);
}

#[test]
fn until_the_writer_is_gone() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("r");
    let mut writer = Writer::create(&path, &header()).unwrap();
    writer.image(&image(0)).unwrap();
    writer.flush().unwrap();
    let items = follow(path);
    assert!(matches!(items.recv_timeout(PATIENCE).unwrap(), Ok(Some(Item::Image(_)))));
    assert!(items.recv_timeout(Duration::from_millis(50)).is_err(), "it does not wait");
    writer.events(0, 0, &locks(&mut Rng(1), 10, 1, 1)).unwrap();
    drop(writer);
    assert!(matches!(items.recv_timeout(PATIENCE).unwrap(), Ok(Some(Item::Events { .. }))));
    assert!(matches!(items.recv_timeout(PATIENCE).unwrap(), Err(Error::Unfinished { rest: 0, .. })));
}

/// A chunk that is there in part only is not read, and is read once it is whole.
#[test]
fn a_chunk_that_comes_in_pieces() {
    use std::io::Write;
    let folder = tempfile::tempdir().unwrap();
    let whole = folder.path().join("whole");
    common::small_recording(&whole);
    let bytes = std::fs::read(&whole).unwrap();
    let (expected, _) = common::read(&whole);
    let path = folder.path().join("pieces");
    let mut file = std::fs::File::create(&path).unwrap();
    let header_ends = 16 + 40 + u32::from_le_bytes(bytes[40..44].try_into().unwrap()) as usize;
    file.write_all(&bytes[..header_ends]).unwrap();
    let mut reader = Reader::open(&path).unwrap();
    let (mut rng, mut found) = (Rng(9), Vec::new());
    let mut rest = &bytes[header_ends..];
    loop {
        match reader.next() {
            Ok(Some(item)) => found.push(item),
            Ok(None) => break,
            Err(Error::Unfinished { .. }) => {
                let (piece, behind) = rest.split_at((1 + rng.below(900) as usize).min(rest.len()));
                assert!(!piece.is_empty(), "everything is there");
                file.write_all(piece).unwrap();
                rest = behind;
            }
            Err(other) => panic!("{other}"),
        }
    }
    assert_eq!(found, expected);
}
