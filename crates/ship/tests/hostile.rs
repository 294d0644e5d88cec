//! Peers that have a certificate, and mean no good: whatever they say, nothing panics, nothing comes into the copy out of order,
//! and nothing counts as committed that the log does not have.

use proptest::prelude::*;
use ship::follower::Opened;
use ship::{Act, Commit, Copy, Follower, Hello, Here, Leader, Limits, Log, Message, PROTOCOL, Place};

const BYTES: usize = 10;

fn at(number: u64) -> Place {
    Place { number, offset: number * BYTES as u64 }
}

/// Places that are right, nearly right, and far from it.
fn place() -> impl Strategy<Value = Place> {
    let near = (0u64..8, 0u64..80).prop_map(|(number, offset)| Place { number, offset });
    let far = (prop_oneof![Just(0), Just(u64::MAX), 0u64..8], prop_oneof![Just(0), Just(u64::MAX), 0u64..80])
        .prop_map(|(number, offset)| Place { number, offset });
    prop_oneof![4 => (0u64..8).prop_map(at), 1 => near, 1 => far]
}

fn session() -> impl Strategy<Value = u64> {
    prop_oneof![4 => Just(1u64), 1 => Just(2), 1 => any::<u64>()]
}

fn hello(commit: Commit) -> Hello {
    Hello { protocol: PROTOCOL, session: 1, group: "group".into(), commit, ..Hello::default() }
}

fn message() -> impl Strategy<Value = Message> {
    let number = || prop_oneof![Just(0), Just(u64::MAX), 0u64..100];
    let bytes = prop_oneof![4 => Just(vec![1; BYTES]), 1 => proptest::collection::vec(any::<u8>(), 1..20)];
    prop_oneof![
        2 => any::<bool>().prop_map(|disk| {
            Message::Hello(Box::new(hello(if disk { Commit::Disk } else { Commit::Memory })))
        }),
        2 => (session(), place(), place(), prop_oneof![Just(0u32), any::<u32>()]).prop_map(
            |(session, at, disk, last)| Message::Welcome { session, at, disk, last, remarks: Vec::new() }
        ),
        8 => (session(), place(), bytes).prop_map(|(session, at, bytes)| Message::Entry { session, at, bytes }),
        4 => (session(), number(), place(), place())
            .prop_map(|(session, sent, at, end)| Message::Beat { session, sent, at, end }),
        8 => (session(), place(), place(), number())
            .prop_map(|(session, memory, disk, echo)| Message::Ack { session, memory, disk, echo }),
        1 => (session(), place()).prop_map(|(session, at)| Message::End { session, at }),
        1 => (session(), place()).prop_map(|(session, at)| Message::Ended { session, at }),
        1 => session().prop_map(|session| Message::Obstacle { session, why: "astray".into() }),
        1 => (session(), number()).prop_map(|(session, number)| Message::Wanted { session, number }),
        1 => Just(Message::Refuse("no".into())),
    ]
}

#[derive(Default)]
struct Kept(Place);

impl Copy for Kept {
    fn open(&mut self, _: &Hello) -> Result<Opened, String> {
        Ok(Opened { at: self.0, disk: self.0, ..Opened::default() })
    }
    fn append(&mut self, at: Place, bytes: &[u8]) -> Result<(), String> {
        assert_eq!(at, self.0, "out of order");
        self.0 = at.behind(bytes.len());
        Ok(())
    }
    fn sync(&mut self) -> Result<(), String> {
        Ok(())
    }
}

/// Six entries.
struct Six;

impl Log for Six {
    fn entry(&mut self, from: Place) -> Option<Vec<u8>> {
        assert_eq!(from, at(from.number), "asked where no entry begins");
        (from.number < 6).then(|| vec![1; BYTES])
    }
    fn before(&mut self, to: Place) -> Option<u32> {
        (to.number <= 6 && to == at(to.number)).then_some(0)
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, ..ProptestConfig::default() })]

    #[test]
    fn a_leader_that_means_no_good(messages in proptest::collection::vec(message(), 0..30), greets: bool) {
        let mut copy = Kept::default();
        let here = Here { name: "n2".into(), ..Here::default() };
        let mut follower = Follower::new(here, Limits::default(), 1);
        let first = greets.then(|| Message::Hello(Box::new(hello(Commit::Disk))));
        for (now, message) in first.into_iter().chain(messages).enumerate() {
            follower.heard(message, &mut copy, now as u64);
            follower.settle(&mut copy);
            let mut acts = 0;
            while let Some(act) = follower.next(now as u64) {
                if let Act::Send(Message::Ack { memory, disk, .. }) = act {
                    prop_assert!(memory <= copy.0 && disk <= memory);
                }
                acts += 1;
                prop_assert!(acts < 4, "it never falls silent");
            }
        }
    }

    #[test]
    fn a_follower_that_means_no_good(messages in proptest::collection::vec(message(), 0..30), on_disk: bool) {
        let commit = if on_disk { Commit::Disk } else { Commit::Memory };
        let limits = Limits { pause: (0, 0), ..Limits::default() };
        let mut leader = Leader::new(hello(commit), limits, 1);
        let (mut now, mut grown) = (1, 0);
        for message in messages {
            now += 1;
            grown = (grown + 1).min(6);
            leader.grew(at(grown), now);
            for _ in 0..40 {
                match leader.next(&mut Six, now) {
                    Some(Act::Connect) => leader.connected(now),
                    Some(_) => {}
                    None => break,
                }
            }
            // Of the link that there is.
            let message = match message {
                Message::Welcome { at, disk, last, remarks, session: 1 } => {
                    Message::Welcome { at, disk, last, remarks, session: leader.session() }
                }
                Message::Ack { memory, disk, echo, session: 1 } => {
                    Message::Ack { memory, disk, echo, session: leader.session() }
                }
                other => other,
            };
            let before = leader.report(now).committed;
            leader.heard(message, &mut Six, now);
            let report = leader.report(now);
            let committed = report.committed;
            prop_assert!(committed >= before && committed.offset >= before.offset, "taken back");
            prop_assert!(committed.number <= grown && committed.offset <= at(grown).offset, "{committed:?} of {grown}");
            prop_assert!(report.lag_bytes <= at(grown).offset);
            prop_assert!(leader.leased_until() <= now + limits.silence);
        }
    }
}
