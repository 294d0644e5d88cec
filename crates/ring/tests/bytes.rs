//! The ring against a queue, and across two real threads. Small enough for miri.
#![cfg(not(loom))]

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};

use proptest::prelude::*;
use us_abi::{EVENT_ALIGN, RING_BYTES};
use us_ring::{Consumer, Memory, Producer};

const RING: u64 = RING_BYTES as u64;

/// A whole ring, addressed by masked position as the doubled mapping does.
struct Bytes(Vec<AtomicU64>);

impl Bytes {
    fn new() -> Bytes {
        Bytes((0..RING_BYTES / 8).map(|_| AtomicU64::new(0)).collect())
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
        (1..RING_BYTES / 2 / EVENT_ALIGN).prop_map(|n| n * EVENT_ALIGN),
    ];
    let step = prop_oneof![3 => bytes.prop_map(Step::Produce), 2 => Just(Step::Consume)];
    proptest::collection::vec(step, 1..200)
}

proptest! {
    /// What comes out is what went in, in order, and nothing is overwritten before it was released: the
    /// first and last words of every event are checked when it is consumed.
    #[test]
    fn behaves_like_a_queue(start in (0..4 * RING / 16).prop_map(|n| n * 16), steps in steps()) {
        let memory = Bytes::new();
        let (tail, head) = (AtomicU64::new(start), AtomicU64::new(start));
        let (mut producer, mut consumer) = (Producer::new(start, start), Consumer::new(start));
        let mut queue: VecDeque<(u64, usize)> = VecDeque::new();
        let mut held = 0;
        for (n, step) in steps.into_iter().enumerate() {
            let n = n as u64;
            match step {
                Step::Produce(bytes) => {
                    // What is known may be too little, never too much; after a look it is exact.
                    prop_assert!(!producer.fits(bytes) || held + bytes <= RING_BYTES);
                    let fits = producer.fits(bytes) || producer.fits_after_refresh(bytes, &head);
                    prop_assert_eq!(fits, held + bytes <= RING_BYTES);
                    if fits {
                        (&memory).put(producer.at, n);
                        (&memory).put(producer.at + bytes as u64 - 8, !n);
                        producer.publish(bytes, &tail);
                        queue.push_back((n, bytes));
                        held += bytes;
                    }
                }
                Step::Consume => {
                    let ready = consumer.ready() || consumer.ready_after_refresh(&tail);
                    prop_assert_eq!(ready, !queue.is_empty());
                    if let Some((n, bytes)) = queue.pop_front() {
                        prop_assert_eq!((&memory).get(consumer.at), n);
                        prop_assert_eq!((&memory).get(consumer.at + bytes as u64 - 8), !n);
                        consumer.release(bytes, &head);
                        held -= bytes;
                    }
                }
            }
            prop_assert_eq!(tail.load(Ordering::Relaxed), producer.at);
            prop_assert_eq!(head.load(Ordering::Relaxed), consumer.at);
            prop_assert_eq!(producer.at - consumer.at, held as u64);
        }
    }
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
    assert!(!consumer.ready_after_refresh(&tail) && producer.fits_after_refresh(RING_BYTES, &head));
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
            for n in 0..events {
                while !producer.fits(16) && !producer.fits_after_refresh(16, &head) {
                    std::thread::yield_now();
                }
                producer.push(n, !n, &mut &memory, &tail);
            }
        });
        let mut consumer = Consumer::new(start);
        for n in 0..events {
            while !consumer.ready() && !consumer.ready_after_refresh(&tail) {
                std::thread::yield_now();
            }
            assert_eq!(((&memory).get(consumer.at), (&memory).get(consumer.at + 8)), (n, !n));
            consumer.release(16, &head);
        }
        assert!(!consumer.ready_after_refresh(&tail), "an event more than was written");
    });
}
