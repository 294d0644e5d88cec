//! Random situations of calls in doubt, judged by the rules here and by those that came before them, which stood in one function
//! for all kinds. Where the two differ, the reason is one of four, and the new verdict is the careful one.

mod children;
mod makers;
mod pending;
mod rules;
mod sets;
mod timers;

use proptest::prelude::*;
use us_world::{
    Copy, Direction, Kernel, Kind, Part, Sharers, Stream, TcpFigures, Told, Touched, Verdict, Verdicts,
};

const SLOTS: usize = 24;
const STREAMS: usize = 4;

/// What a kernel might say: figures by stream, slots by thread.
#[derive(Clone, Debug, PartialEq)]
struct Fake {
    tcp: [Option<TcpFigures>; STREAMS],
    queued: [Option<u64>; STREAMS],
    event: [Option<u64>; STREAMS],
    position: [Option<u64>; STREAMS],
    size: [Option<u64>; STREAMS],
    seekable: [bool; STREAMS],
    lies: Vec<Option<bool>>,
    came: Vec<Option<bool>>,
    touched: Vec<Touched>,
    words: Vec<u64>,
}

impl Kernel for Fake {
    const PATTERN_MAX: u64 = 40;

    fn tcp(&mut self, fd: i32) -> Option<TcpFigures> {
        self.tcp[fd as usize % STREAMS]
    }
    fn queued(&mut self, fd: i32) -> Option<u64> {
        self.queued[fd as usize % STREAMS]
    }
    fn event_count(&mut self, fd: i32) -> Option<u64> {
        self.event[fd as usize % STREAMS]
    }
    fn position(&mut self, fd: i32) -> Option<u64> {
        self.position[fd as usize % STREAMS]
    }
    fn size(&mut self, fd: i32) -> Option<u64> {
        self.size[fd as usize % STREAMS]
    }
    fn set_position(&mut self, fd: i32, position: u64) -> bool {
        let at = fd as usize % STREAMS;
        if self.seekable[at] {
            self.position[at] = Some(position);
        }
        self.seekable[at]
    }
    fn lies_at(&mut self, part: &Part, _from: u64, _bytes: u64) -> Option<bool> {
        self.lies[part.slot as usize]
    }
    fn came_from(&mut self, part: &Part, _from: u64, _bytes: u64) -> Option<bool> {
        self.came[part.slot as usize].filter(|_| part.is_in_slot)
    }
    fn touched(&mut self, part: &Part) -> Touched {
        self.touched[part.slot as usize]
    }
    fn first_word(&mut self, part: &Part) -> u64 {
        self.words[part.slot as usize]
    }
    fn whole_records(&mut self, part: &Part, bytes: u64) -> u64 {
        bytes.next_multiple_of(4).min(part.len)
    }
}

fn small() -> impl Strategy<Value = u64> {
    prop_oneof![Just(0u64), 1u64..6, 0u64..40, 4000u64..5000]
}

fn kinds() -> impl Strategy<Value = Kind> {
    (0usize..Kind::ALL.len()).prop_map(|at| Kind::ALL[at])
}

fn streams() -> impl Strategy<Value = [Option<Stream>; STREAMS]> {
    let one = (0u32..8, kinds(), small(), small(), any::<[bool; 3]>()).prop_map(
        |(key, kind, read, more, [is_private, is_shut, has_failed])| Stream {
            key,
            kind,
            read,
            written: read + more,
            is_private,
            is_own: is_private,
            is_shut,
            has_failed,
        },
    );
    let some = proptest::array::uniform4(proptest::option::weighted(0.95, one));
    some.prop_map(|mut all| {
        for (at, stream) in all.iter_mut().enumerate() {
            if let Some(stream) = stream {
                // Now and then the log does not say which stream it is.
                stream.key = if stream.key == 0 { 0 } else { at as u32 + 1 };
            }
        }
        all
    })
}

fn fakes(streams: [Option<Stream>; STREAMS]) -> impl Strategy<Value = Fake> {
    // Figures close to what the log has: anything else settles nothing.
    let ahead = proptest::array::uniform4((
        small(),
        small(),
        any::<bool>(),
        prop_oneof![0u8..12, Just(7)],
        any::<bool>(),
    ));
    let slots = proptest::collection::vec(
        (
            any::<Option<bool>>(),
            any::<Option<bool>>(),
            prop_oneof![Just(Touched::Unprepared), Just(Touched::Beyond), (0u64..40).prop_map(Touched::UpTo)],
            0u64..5,
        ),
        SLOTS,
    );
    (ahead, slots).prop_map(move |(ahead, slots)| {
        let by = |f: &dyn Fn(usize, Stream) -> Option<u64>| {
            core::array::from_fn(|at| streams[at].and_then(|stream| f(at, stream)))
        };
        let there = |at: usize| ahead[at].2 || at.is_multiple_of(2);
        Fake {
            tcp: core::array::from_fn(|at| {
                let (out, into, _, state, is_broken) = ahead[at];
                streams[at].filter(|_| there(at)).map(|stream| TcpFigures {
                    state,
                    acked: stream.written + out / 2,
                    unacknowledged: out - out / 2,
                    received: stream.read + into + 3,
                    unread: 3,
                    is_broken,
                    ..TcpFigures::default()
                })
            }),
            queued: by(&|at, stream| {
                there(at).then_some((stream.written - stream.read + ahead[at].0).saturating_sub(ahead[at].1))
            }),
            event: by(&|at, stream| {
                there(at).then_some((stream.written - stream.read + ahead[at].0).saturating_sub(ahead[at].1))
            }),
            position: by(&|at, stream| there(at).then_some(stream.written + ahead[at].0)),
            size: by(&|at, stream| there(at).then_some(stream.written + ahead[at].1)),
            seekable: core::array::from_fn(|at| ahead[at].2),
            lies: slots.iter().map(|slot| slot.0).collect(),
            came: slots.iter().map(|slot| slot.1).collect(),
            touched: slots.iter().map(|slot| slot.2).collect(),
            words: slots.iter().map(|slot| slot.3).collect(),
        }
    })
}

impl Fake {
    /// Says what a kernel would once each call has moved nothing, a half, or all.
    fn come_to_be(&mut self, streams: &[Option<Stream>; STREAMS], parts: &[Part], progress: &[u64]) {
        for (at, stream) in streams.iter().enumerate() {
            let Some(stream) = stream else { continue };
            let sum = |out: bool| -> u64 {
                let here = parts.iter().filter(|part| part.fd as usize == at && part.entered);
                here.filter(|part| part.is_output() == out).map(|part| moved(part, progress)).sum()
            };
            let (out, into) = (sum(true), sum(false));
            if let Some(tcp) = &mut self.tcp[at] {
                tcp.acked = stream.written + u64::from(stream.kind == Kind::Tcp) + out;
                tcp.unacknowledged = 0;
                tcp.received = stream.read + into + tcp.unread;
            }
            let held = (stream.written - stream.read + out).saturating_sub(into);
            self.queued[at] = self.queued[at].map(|_| held);
            self.event[at] = self.event[at].map(|_| held);
            self.position[at] = self.position[at].map(|_| stream.written + out + into);
            self.size[at] = self.size[at].map(|_| stream.written + out);
        }
        for part in parts.iter().filter(|part| !part.is_output()) {
            if let Touched::UpTo(got) = &mut self.touched[part.slot as usize] {
                *got = moved(part, progress).min(Fake::PATTERN_MAX);
            }
        }
    }
}

fn moved(part: &Part, progress: &[u64]) -> u64 {
    match progress[part.slot as usize] {
        0 | 1 => 0,
        2 => part.len / 2,
        _ => part.len,
    }
}

/// Calls: stream, direction, length, flags, what was noted, what was told; and the second stream of a copy.
type Drawn = (usize, bool, u64, [bool; 3], Option<u64>, Told, Option<(usize, bool)>);

fn calls() -> impl Strategy<Value = Vec<Drawn>> {
    let told = prop_oneof![
        6 => Just(Told::None),
        1 => Just(Told::Nothing),
        1 => (1u32..6).prop_map(Told::Moved),
    ];
    let second = proptest::option::weighted(0.15, (0..STREAMS, any::<bool>()));
    let one = (0..STREAMS, any::<bool>(), small(), any::<[bool; 3]>(), any::<bool>(), told, second);
    let one = (one, small()).prop_map(|((at, out, len, flags, noted, told, second), from)| {
        (at, out, len, flags, noted.then_some(from), told, second)
    });
    let one = one.boxed();
    // Some situations have more calls than are told apart one by one.
    prop_oneof![9 => proptest::collection::vec(one.clone(), 1..7), 1 => proptest::collection::vec(one, 17..SLOTS)]
}

fn parts(streams: &[Option<Stream>; STREAMS], calls: &[Drawn]) -> Vec<Part> {
    let mut parts = Vec::new();
    for (slot, (at, out, len, [entered, is_told, is_in_slot], from, told, second)) in calls.iter().enumerate()
    {
        let copy = match second {
            None => Copy::No,
            Some((_, true)) => Copy::Undoable,
            Some((_, false)) => Copy::Kept,
        };
        let part = |at: usize, direction| Part {
            slot: slot as u32,
            fd: at as i32,
            direction,
            len: *len,
            // Most calls in doubt had entered the kernel.
            entered: *entered || slot.is_multiple_of(2),
            is_told: *is_told,
            is_in_slot: *is_in_slot,
            is_elsewhere: false,
            from: streams[at].and_then(|stream| from.map(|back| (stream.written + back) / 2 * 2)),
            told: *told,
            is_plain: false,
            copy,
            stream: streams[at],
        };
        let direction = if *out || copy != Copy::No { Direction::Out } else { Direction::In };
        parts.push(part(*at, direction));
        if let Some((from, _)) = second {
            parts.push(part(*from, Direction::In));
        }
    }
    parts
}

fn inputs_on(sharers: Sharers) -> usize {
    sharers.parts().filter(|part| !part.is_output() && part.entered).count()
}

/// Why the two may differ about a call; `None` if they may not.
fn explained(part: &Part, parts: &[Part], verdicts: [Verdict; 2]) -> Option<&'static str> {
    if verdicts.contains(&Verdict::Failed) {
        return Some("bytes wait in front of a failure: it was told to who asked for them");
    }
    let call: Vec<_> = parts.iter().filter(|other| other.slot == part.slot).collect();
    for part in &call {
        let Some(stream) = &part.stream else { continue };
        if stream.key == 0 {
            return Some("a stream that the log does not know: made again in silence");
        }
        let sharers = Sharers::new(parts, part.fd, stream);
        if stream.kind.is_tcp() && inputs_on(sharers) > 1 {
            return Some("several inputs: a part of the total was given to whose length it is");
        }
        if stream.kind == Kind::Pipe && stream.is_private && inputs_on(sharers) == 1 {
            return Some("a read of a pipe that left no trace: it counted as one that brought nothing");
        }
        if part.copy != Copy::No && !part.is_output() {
            return match sharers.parts().count() {
                1 => Some("a copy alone at its source: asked only if no other call had come first"),
                _ => Some("a copy whose source others use: all that had gone was its own"),
            };
        }
    }
    None
}

#[test]
fn random_doubts_are_judged_as_before_or_more_carefully() {
    const CASES: u32 = 20_000;
    let seen = std::cell::RefCell::new(std::collections::BTreeMap::<&str, u32>::new());
    let judged = std::cell::RefCell::new([0u32; 4]);
    let mut config = ProptestConfig::with_cases(CASES);
    config.failure_persistence = None;
    let mut runner = proptest::test_runner::TestRunner::new(config);
    let progress = proptest::option::weighted(0.8, proptest::collection::vec(0u64..4, SLOTS));
    let situation = (streams(), progress);
    let situation = situation
        .prop_flat_map(|(streams, progress)| (Just(streams), fakes(streams), calls(), Just(progress)));
    let result = runner.run(&situation, |(streams, mut fake, calls, progress)| {
        let parts = parts(&streams, &calls);
        if let Some(progress) = progress {
            fake.come_to_be(&streams, &parts, &progress);
        }
        let mut before = fake.clone();
        let former = rules::verdicts(&parts, &mut before);
        let mut after = fake.clone();
        let mut list = [None; SLOTS];
        let mut verdicts = Verdicts::new(&mut list);
        us_world::judge(&parts, &mut after, &mut verdicts);
        let mut all_equal = true;
        for call in parts.chunk_by(|one, next| one.slot == next.slot) {
            let part = &call[0];
            // A call of which nothing was said was made again.
            let was = former[part.slot as usize].unwrap_or(Verdict::Again);
            let is = verdicts.of(part.slot).expect("every part has a verdict");
            let kind = match is {
                Verdict::Again => 0,
                Verdict::Moved(_) => 1,
                Verdict::Failed => 2,
                Verdict::Unknown => 3,
            };
            judged.borrow_mut()[kind] += 1;
            if was != is {
                all_equal = false;
                let why = explained(part, &parts, [was, is]);
                prop_assert!(why.is_some(), "slot {}: was {was:?}, is {is:?}: {part:?}", part.slot);
                *seen.borrow_mut().entry(why.unwrap_or_default()).or_default() += 1;
            }
        }
        // What was made again in silence was not put back either.
        let all_known = parts.iter().all(|part| part.stream.is_none_or(|stream| stream.key != 0));
        prop_assert!(!all_equal || !all_known || before == after, "the kernel was left otherwise");
        Ok(())
    });
    println!("{:?} made again, moved, failed, unknown; {:#?}", judged.borrow(), seen.borrow());
    result.expect("the same verdicts");
    assert!(judged.borrow().iter().all(|count| *count > 10), "every verdict comes up: {:?}", judged.borrow());
    assert_eq!(seen.borrow().len(), 6, "every reason comes up: {:?}", seen.borrow());
}
