//! Messages come back as they were given; and what no peer of ours would send is told, in bounded memory.

use proptest::prelude::*;
use ship::hello::{Commit, Hello, Program};
use ship::wire::{FRAME_MAX, Frames, HEAD, Message, SMALL_MAX};
use ship::{ENTRY_MAX, PROTOCOL, Place};

fn place() -> impl Strategy<Value = Place> {
    any::<(u64, u64)>().prop_map(|(number, offset)| Place { number, offset })
}

fn text() -> impl Strategy<Value = String> {
    "[a-zäö0-9 ./_-]{0,60}"
}

fn hello() -> impl Strategy<Value = Hello> {
    let numbers = any::<(u32, u64, [u8; 16], bool, [u8; 32])>();
    let texts = (text(), text(), text(), proptest::collection::vec(text(), 0..20));
    (numbers, texts).prop_map(|((format, session, stream, is_disk, hash), (group, build, path, features))| {
        Hello {
            protocol: PROTOCOL,
            format,
            session,
            stream,
            group,
            commit: if is_disk { Commit::Disk } else { Commit::Memory },
            build,
            features,
            program: Program { path, hash },
        }
    })
}

fn message() -> impl Strategy<Value = Message> {
    let bytes = proptest::collection::vec(any::<u8>(), 1..3000);
    let number = any::<u64>;
    prop_oneof![
        hello().prop_map(|hello| Message::Hello(Box::new(hello))),
        text().prop_map(Message::Refuse),
        (number(), place(), place(), any::<u32>(), proptest::collection::vec(text(), 0..8)).prop_map(
            |(session, at, disk, last, remarks)| Message::Welcome { session, at, disk, last, remarks }
        ),
        (number(), place(), bytes).prop_map(|(session, at, bytes)| Message::Entry { session, at, bytes }),
        (number(), number(), place(), place()).prop_map(|(session, sent, at, end)| Message::Beat {
            session,
            sent,
            at,
            end
        }),
        (number(), place(), place(), number()).prop_map(|(session, memory, disk, echo)| Message::Ack {
            session,
            memory,
            disk,
            echo
        }),
        (number(), place()).prop_map(|(session, at)| Message::End { session, at }),
        (number(), place()).prop_map(|(session, at)| Message::Ended { session, at }),
        (number(), text()).prop_map(|(session, why)| Message::Obstacle { session, why }),
        (number(), number()).prop_map(|(session, number)| Message::Wanted { session, number }),
    ]
}

/// All messages, given in pieces of so many bytes; and why there are no more.
fn read(bytes: &[u8], piece: usize) -> (Vec<Message>, Option<String>) {
    let (mut frames, mut found) = (Frames::new(FRAME_MAX), Vec::new());
    for piece in bytes.chunks(piece) {
        frames.push(piece);
        loop {
            match frames.next_message() {
                Ok(Some(message)) => found.push(message),
                Ok(None) => break,
                Err(fault) => {
                    assert_eq!(frames.next_message(), Err(fault.clone()), "a fault is for ever");
                    return (found, Some(fault.to_string()));
                }
            }
        }
        assert!(frames.waiting() <= HEAD + FRAME_MAX, "{} bytes are kept", frames.waiting());
    }
    (found, None)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, ..ProptestConfig::default() })]

    #[test]
    fn what_is_sent_comes(messages in proptest::collection::vec(message(), 1..6), piece in 1usize..4000) {
        let bytes: Vec<u8> = messages.iter().flat_map(Message::to_frame).collect();
        prop_assert_eq!(read(&bytes, piece), (messages, None));
    }

    #[test]
    fn cut_or_flipped_it_is_told(messages in proptest::collection::vec(message(), 1..4), cut: prop::sample::Index, bit in 0u8..8) {
        let bytes: Vec<u8> = messages.iter().flat_map(Message::to_frame).collect();
        let at = cut.index(bytes.len());
        let (found, fault) = read(&bytes[..at], 700);
        prop_assert!(fault.is_none() && found.len() < messages.len());
        prop_assert_eq!(&found[..], &messages[..found.len()]);

        let mut flipped = bytes.clone();
        flipped[at] ^= 1 << bit;
        let (found, _) = read(&flipped, 700);
        prop_assert!(found.len() < messages.len(), "a flipped bit was not seen");
        prop_assert_eq!(&found[..], &messages[..found.len()]);
    }

    /// With a checksum that is right, as a hostile peer would send it.
    #[test]
    fn any_bytes_are_read_without_harm(mut content in proptest::collection::vec(any::<u8>(), 0..400), kind in 0u8..10) {
        if let Some(first) = content.first_mut() {
            *first = kind;
        }
        let _ = read(&framed(&content), 64);
    }

    /// The same, near to what is right.
    #[test]
    fn forged_messages_are_read_without_harm(message in message(), at: prop::sample::Index, value: u8) {
        let mut content = message.to_frame().split_off(HEAD);
        let at = at.index(content.len());
        content[at] = value;
        if let (found, None) = read(&framed(&content), 64) {
            // What is taken is what it says that it is.
            prop_assert!(found.len() == 1 && found[0].to_frame().len() <= HEAD + content.len());
        }
    }
}

fn framed(content: &[u8]) -> Vec<u8> {
    let mut frame = (content.len() as u32).to_le_bytes().to_vec();
    frame.extend_from_slice(&crc32c::crc32c(content).to_le_bytes());
    frame.extend_from_slice(content);
    frame
}

#[test]
fn lengths_are_refused_before_anything_is_kept() {
    let mut frames = Frames::new(SMALL_MAX);
    frames.push(&(SMALL_MAX as u32 + 1).to_le_bytes());
    frames.push(&[0; 4]);
    assert_eq!(frames.next_message().unwrap_err().to_string(), "a message of 65537 bytes");
    assert_eq!(frames.waiting(), 0);

    let mut long = vec![5];
    long.resize(SMALL_MAX + 1, 0);
    assert_eq!(read(&framed(&long), 4096).1.unwrap(), "65537 bytes for a message of kind 5");
    let entry = Message::Entry { session: 1, at: Place::default(), bytes: vec![1; ENTRY_MAX + 1] };
    assert_eq!(read(&entry.to_frame(), 1 << 20).1.unwrap(), "an entry of 16793601 bytes");
}

#[test]
fn a_hello_of_another_version_is_known_by_its_version() {
    let mut content = vec![1];
    content.extend_from_slice(b"USship");
    content.extend_from_slice(&7u32.to_le_bytes());
    content.extend_from_slice(b"whatever version 7 says");
    let (found, fault) = read(&framed(&content), 64);
    assert_eq!(fault, None);
    assert!(matches!(&found[..], [Message::Hello(hello)] if hello.protocol == 7));
    assert_eq!(
        read(&framed(b"\x01GET / HTTP/1.1"), 64).1.unwrap(),
        "a peer that does not speak as a node does"
    );
}

/// Names are shown on terminals.
#[test]
fn control_characters_do_not_come_through() {
    let refuse = Message::Refuse("\u{1b}[2J".into());
    assert_eq!(read(&refuse.to_frame(), 64), (vec![Message::Refuse("?[2J".into())], None));
}
