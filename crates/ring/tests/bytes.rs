//! The ring against a queue, and across two real threads. Small enough for miri.
#![cfg(not(loom))]

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};

use proptest::prelude::*;
use us_abi::event::{EventKind, Header, NO_TICKET};
use us_abi::{EVENT_ALIGN, PAYLOAD_BYTES_MAX, RING_BYTES, RING_PIECE, RING_STEP};
use us_ring::{Consumer, Memory, Producer, Readers, Room};

const RING: u64 = RING_BYTES as u64;

/// A whole ring, addressed by masked position as the doubled mapping does.
struct Bytes(Vec<AtomicU64>);

impl Bytes {
    fn new() -> Bytes {
        Bytes((0..RING_BYTES / 8).map(|_| AtomicU64::new(0)).collect())
    }
    fn get_word(&self, at: u64) -> u64 {
        (&self).get(at)
    }
    fn word(&self, at: u64) -> &AtomicU64 {
        assert!(at.is_multiple_of(8), "the contract of Memory");
        &self.0[(at % RING / 8) as usize]
    }
}

impl Memory for &Bytes {
    fn put(&mut self, at: u64, value: u64) {
        self.word(at).store(value, Ordering::Relaxed);
    }
    fn get(&self, at: u64) -> u64 {
        self.word(at).load(Ordering::Relaxed)
    }
}

/// One step of a history.
#[derive(Clone, Debug)]
enum Step {
    /// Writes an event of this many bytes if it fits.
    Produce(usize),
    /// Applies the oldest event if one is there.
    Consume,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let bytes = prop_oneof![
        Just(EVENT_ALIGN),
        (1..64_usize).prop_map(|n| n * EVENT_ALIGN),
        (1..PAYLOAD_BYTES_MAX / EVENT_ALIGN).prop_map(|n| n * EVENT_ALIGN),
    ];
    let step = prop_oneof![3 => bytes.prop_map(Step::Produce), 2 => Just(Step::Consume)];
    proptest::collection::vec(step, 1..200)
}

/// Whether there is room for `bytes`, without a bound on the lead, in memory that is there.
fn has_room(
    producer: &mut Producer,
    bytes: usize,
    memory: &Bytes,
    head: &AtomicU64,
    tail: &AtomicU64,
) -> bool {
    let at = head.load(Ordering::Acquire);
    producer.fits(bytes)
        || producer.make_room(bytes, at, u64::MAX, (&mut &*memory, tail), |_, _| true).0 == Room::Made
}

/// Applies the skips at the front. They are no event. Whether any was there.
fn pass_skips(consumer: &mut Consumer, memory: &Bytes, head: &AtomicU64, tail: &AtomicU64) -> bool {
    let before = consumer.at;
    let front = consumer.front(&memory, tail, head);
    assert!(front.is_none_or(|header| header.kind != EventKind::Skip as u8));
    consumer.at != before
}

/// The first word of event `n`: one that is no skip's.
fn first(n: u64) -> u64 {
    n << 8 | EventKind::Time as u64
}

proptest! {
    /// What comes out is what went in, in order, and nothing is overwritten before it was released: the
    /// first and last words of every event are checked when it is consumed.
    #[test]
    fn behaves_like_a_queue(start in (0..4 * RING / 16).prop_map(|n| n * 16), steps in steps()) {
        let memory = Bytes::new();
        let (tail, head) = (AtomicU64::new(start), AtomicU64::new(start));
        let (mut producer, mut consumer) = (Producer::new(start, RING), Consumer::new(start));
        let mut queue: VecDeque<(u64, usize)> = VecDeque::new();
        for (n, step) in steps.into_iter().enumerate() {
            let n = n as u64;
            match step {
                Step::Produce(bytes) => {
                    let before = producer.at;
                    let fits = has_room(&mut producer, bytes, &memory, &head, &tail);
                    let used = producer.at - head.load(Ordering::Relaxed);
                    prop_assert_eq!(fits, used + bytes as u64 <= RING, "{} used", used);
                    // At a boundary it goes back or passes over it: no event but one crosses it.
                    prop_assert!(before / RING == producer.at / RING || producer.at.is_multiple_of(RING));
                    if fits {
                        (&memory).put(producer.at, first(n));
                        (&memory).put(producer.at + bytes as u64 - 8, !n);
                        producer.publish(bytes, &tail);
                        queue.push_back((n, bytes));
                    }
                }
                Step::Consume => {
                    pass_skips(&mut consumer, &memory, &head, &tail);
                    prop_assert_eq!(consumer.ready(), !queue.is_empty());
                    if let Some((n, bytes)) = queue.pop_front() {
                        prop_assert_eq!((&memory).get(consumer.at), first(n));
                        prop_assert_eq!((&memory).get(consumer.at + bytes as u64 - 8), !n);
                        consumer.release(bytes, &head);
                    }
                }
            }
            prop_assert_eq!(tail.load(Ordering::Relaxed), producer.at);
            prop_assert_eq!(head.load(Ordering::Relaxed), consumer.at);
        }
    }
}

/// A reader that keeps up sees the ring's first step only; one that does not has the whole ring.
#[test]
fn the_ring_goes_back_only_for_a_reader_that_keeps_up() {
    let memory = Bytes::new();
    let (tail, head) = (AtomicU64::new(0), AtomicU64::new(0));
    let (mut producer, mut consumer) = (Producer::new(0, RING), Consumer::new(0));
    let mut skips = 0_u64;
    for n in 0..3 * (RING_STEP as u64 / 16 - 1) {
        assert!(has_room(&mut producer, 16, &memory, &head, &tail));
        producer.push(first(n), !n, &mut &memory, &tail);
        skips += u64::from(pass_skips(&mut consumer, &memory, &head, &tail));
        assert!(consumer.ready() && consumer.at % RING < RING_STEP as u64);
        consumer.release(16, &head);
    }
    assert_eq!(skips, 2);
    let mut written = 0;
    while has_room(&mut producer, 16, &memory, &head, &tail) {
        producer.push(first(written), !written, &mut &memory, &tail);
        // What is skipped counts as in use until the reader has passed it; then it stands still.
        pass_skips(&mut consumer, &memory, &head, &tail);
        written += 1;
    }
    assert_eq!(written, RING / 16, "nobody reads: it does not go back, and the ring is full");
}

/// Positions count from zero for ever: at 1 GiB a second they overflow after centuries, and until then the
/// sum in `fits` does not.
#[test]
fn positions_far_from_zero_work() {
    let far = (u64::MAX - 4 * RING) / 16 * 16;
    let memory = Bytes::new();
    let (tail, head) = (AtomicU64::new(far), AtomicU64::new(far));
    let (mut producer, mut consumer) = (Producer::new(far, RING), Consumer::new(far));
    assert!(!producer.is_held_by(far, RING_BYTES) && producer.is_held_by(far, RING_BYTES + 16));
    assert!(!producer.fits(16) && has_room(&mut producer, 16, &memory, &head, &tail));
    producer.push(3, 4, &mut &memory, &tail);
    assert!(!consumer.ready() && consumer.ready_after_refresh(&tail));
    assert_eq!(((&memory).get(far), (&memory).get(far + 8)), (3, 4));
    consumer.release(16, &head);
    assert!(!consumer.ready_after_refresh(&tail));
    assert!(has_room(&mut producer, RING_STEP / 2, &memory, &head, &tail));
}

/// More bytes than the ring holds go through two real threads; the reader is often the slower one.
#[test]
fn two_threads_lose_nothing() {
    let events: u64 = if cfg!(miri) { 300 } else { 3 * RING / 16 };
    let memory = Bytes::new();
    // Nearly full from the start, so that few events are enough to wrap and to wait.
    let start = RING - 64;
    let (tail, head) = (AtomicU64::new(start), AtomicU64::new(start));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut producer = Producer::new(start, RING);
            for n in 0..events {
                while !has_room(&mut producer, 16, &memory, &head, &tail) {
                    std::thread::yield_now();
                }
                producer.push(first(n), !n, &mut &memory, &tail);
            }
        });
        let mut consumer = Consumer::new(start);
        for n in 0..events {
            while {
                pass_skips(&mut consumer, &memory, &head, &tail);
                !consumer.ready()
            } {
                std::thread::yield_now();
            }
            assert_eq!(((&memory).get(consumer.at), (&memory).get(consumer.at + 8)), (first(n), !n));
            consumer.release(16, &head);
        }
        assert!(!consumer.ready_after_refresh(&tail), "an event more than was written");
    });
}

/// Nothing is written behind which there is no memory, a skip included, and whoever asks again is told again.
#[test]
fn nothing_is_written_where_there_is_no_memory() {
    let step = if cfg!(miri) { 2 * RING_STEP } else { RING_PIECE };
    for exists in (0..=2 * RING_STEP).step_by(step) {
        let memory = Bytes::new();
        let tail = AtomicU64::new(0);
        let mut producer = Producer::new(0, RING);
        let mut asked = 0;
        let (mut back, mut room) = (
            |from: usize, bytes: usize| {
                assert_eq!(from, asked, "each piece is asked for once");
                if from + bytes > exists {
                    return false;
                }
                asked += bytes;
                true
            },
            Room::Made,
        );
        // A reader that is so far behind that the ring does not go back.
        while room == Room::Made {
            while producer.fits(EVENT_ALIGN) {
                producer.push(first(1), 0, &mut &memory, &tail);
                assert!(producer.at <= exists as u64, "written at {:#x} of {exists:#x}", producer.at);
            }
            room = producer.make_room(EVENT_ALIGN, 0, u64::MAX, (&mut &memory, &tail), &mut back).0;
        }
        assert_eq!((room, producer.at), (Room::NoMemory, exists as u64));
        assert!(!producer.fits(EVENT_ALIGN) && tail.load(Ordering::Relaxed) == producer.at);
        let again = producer.make_room(EVENT_ALIGN, 0, u64::MAX, (&mut &memory, &tail), &mut back);
        assert_eq!(again, (Room::NoMemory, 0));
    }
}

/// At a boundary the skip is the first that needs the memory: without it the ring stays where it is.
#[test]
fn no_skip_is_written_where_there_is_no_memory() {
    let memory = Bytes::new();
    let start = (RING_STEP - EVENT_ALIGN) as u64;
    let tail = AtomicU64::new(start);
    let mut producer = Producer::new(start, RING);
    let ask = |producer: &mut Producer, exists: bool| {
        producer.make_room(64, start, u64::MAX, (&mut &memory, &tail), |_, _| exists)
    };
    let none = ask(&mut producer, false);
    assert_eq!((none, producer.at, memory.get_word(start)), ((Room::NoMemory, 0), start, 0));
    assert_eq!((ask(&mut producer, true), producer.at), ((Room::Made, RING - start), RING));
    let events: Vec<_> = us_ring::events(&memory, start, tail.load(Ordering::Relaxed)).collect();
    let rest = (RING - start) as u32 - EVENT_ALIGN as u32;
    let skip = Header::from_words(Header::word(EventKind::Skip, 0, 0, rest), NO_TICKET);
    assert_eq!(events, [(start, skip)]);
}

/// The lead bounds how much may be written before the next look; room for the event that asked is part of it.
#[test]
fn a_lead_is_not_exceeded_without_another_look() {
    let memory = Bytes::new();
    let tail = AtomicU64::new(0);
    let mut producer = Producer::new(0, RING);
    let ask = |producer: &mut Producer, bytes, lead| {
        producer.make_room(bytes, 0, lead, (&mut &memory, &tail), |_, _| true).0
    };
    assert_eq!(ask(&mut producer, 64, 4096), Room::Made);
    assert!(producer.fits(4096) && !producer.fits(4096 + EVENT_ALIGN));
    assert_eq!(ask(&mut producer, 64, 32), Room::Full);
    producer.window = 128;
    assert_eq!(ask(&mut producer, 144, u64::MAX), Room::Full);
    assert!(producer.is_held_by(0, 144) && !producer.is_held_by(0, 128));
}

/// The slower of the two counts, and a reader that is not there does not.
#[test]
fn the_slowest_reader_is_the_one_that_holds_up() {
    let of = |standby, recorder| Readers { standby, recorder }.slowest();
    assert_eq!((of(Some(3), Some(5)), of(Some(5), Some(3))), (Some(3), Some(3)));
    assert_eq!((of(Some(3), None), of(None, Some(5)), of(None, None)), (Some(3), Some(5), None));
}
