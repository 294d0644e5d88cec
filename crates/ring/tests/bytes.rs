//! The ring against a queue, and across two real threads. Small enough for miri.
#![cfg(not(loom))]

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};

use proptest::prelude::*;
use us_abi::event::{EventKind, Header};
use us_abi::{EVENT_ALIGN, PAYLOAD_BYTES_MAX, RING_BYTES, RING_STEP};
use us_ring::{Consumer, Memory, Producer};

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

/// As the runtime does: goes back where that is allowed, and then looks how far it may write. Whether `bytes` fit.
fn has_room(
    producer: &mut Producer,
    bytes: usize,
    memory: &Bytes,
    head: &AtomicU64,
    tail: &AtomicU64,
) -> bool {
    if producer.fits(bytes) {
        return true;
    }
    let at = head.load(Ordering::Acquire);
    if let Some(distance) = producer.way_back(bytes, at) {
        producer.go_back(distance, &mut &*memory, tail);
    }
    producer.extend(bytes, at)
}

/// Applies the skips at the front. They are no event.
fn pass_skips(consumer: &mut Consumer, memory: &Bytes, head: &AtomicU64, tail: &AtomicU64) -> u64 {
    let mut passed = 0;
    while consumer.ready() || consumer.ready_after_refresh(tail) {
        let word = memory.get_word(consumer.at);
        if word as u8 != EventKind::Skip as u8 {
            break;
        }
        consumer.release(Header::size((word >> 32) as u32), head);
        passed += 1;
    }
    passed
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
        let (mut producer, mut consumer) = (Producer::new(start, start), Consumer::new(start));
        // Nothing is known but that no boundary has been passed: as after a clone.
        producer.limit = start;
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
    let (mut producer, mut consumer) = (Producer::new(0, 0), Consumer::new(0));
    producer.limit = 0;
    let mut skips = 0;
    for n in 0..3 * (RING_STEP as u64 / 16 - 1) {
        assert!(has_room(&mut producer, 16, &memory, &head, &tail));
        producer.push(first(n), !n, &mut &memory, &tail);
        skips += pass_skips(&mut consumer, &memory, &head, &tail);
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
    let (mut producer, mut consumer) = (Producer::new(far, far), Consumer::new(far));
    assert!(producer.fits(RING_BYTES) && !producer.fits(RING_BYTES + 16));
    producer.push(3, 4, &mut &memory, &tail);
    assert!(!consumer.ready() && consumer.ready_after_refresh(&tail));
    assert_eq!(((&memory).get(far), (&memory).get(far + 8)), (3, 4));
    consumer.release(16, &head);
    assert!(!consumer.ready_after_refresh(&tail) && producer.extend(RING_STEP, consumer.at));
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
            let mut producer = Producer::new(start, start);
            producer.limit = start;
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
