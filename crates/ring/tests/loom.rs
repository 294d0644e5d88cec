//! The ring in every interleaving, and under every reordering, that the memory model allows.
//!
//! `RUSTFLAGS="--cfg loom" cargo test --release -p us-ring --test loom`
//!
//! The code under test is the code that ships: only the position and the bytes are loom's. Loom reports a
//! word that is written while it is read, or read without being ordered behind its writing; the tests add
//! what must be seen. `careless_*` repeat a test with an ordering left out and must fail, so that a test
//! that has stopped looking is noticed.
#![cfg(loom)]

use loom::cell::UnsafeCell;
use loom::sync::Arc;
use loom::sync::atomic::{AtomicU64, Ordering};
use loom::thread;
use us_abi::event::{EventKind, Header, NO_TICKET};
use us_abi::{RING_BYTES, RING_STEP};
use us_ring::{Consumer, Memory, Position, Producer, Readers, Room};

const RING: u64 = RING_BYTES as u64;
const STEP: u64 = RING_STEP as u64;

/// A position with the orderings that [`Position`] asks for, or without them.
struct Shared {
    value: AtomicU64,
    store: Ordering,
    load: Ordering,
}

impl Position for Shared {
    fn acquire(&self) -> u64 {
        self.value.load(self.load)
    }
    fn release(&self, value: u64) {
        self.value.store(value, self.store);
    }
}

/// The words of the ring that a test touches: some at its start, at its end, and in front of its first boundary.
struct Words {
    cells: [UnsafeCell<u64>; KEPT.len()],
}

const KEPT: [u64; 12] =
    [0, 8, 16, 24, STEP - 48, STEP - 40, STEP - 32, STEP - 24, STEP - 16, STEP - 8, RING - 16, RING - 8];

impl Words {
    fn cell(&self, at: u64) -> &UnsafeCell<u64> {
        let index = KEPT.iter().position(|kept| *kept == at % RING);
        &self.cells[index.unwrap_or_else(|| panic!("position {at} is not kept in this model"))]
    }
}

/// One side's view of the words.
struct View(Arc<Ring>);

impl Memory for View {
    fn put(&mut self, at: u64, value: u64) {
        // SAFETY: whether this write may happen now is what loom checks.
        self.0.words.cell(at).with_mut(|word| unsafe { *word = value });
    }
    fn get(&self, at: u64) -> u64 {
        // SAFETY: whether this read may happen now is what loom checks.
        self.0.words.cell(at).with(|word| unsafe { *word })
    }
}

struct Ring {
    tail: Shared,
    head: Shared,
    words: Words,
}

fn ring_with(store: Ordering, load: Ordering) -> Arc<Ring> {
    let shared = || Shared { value: AtomicU64::new(0), store, load };
    let words = Words { cells: std::array::from_fn(|_| UnsafeCell::new(0)) };
    Arc::new(Ring { tail: shared(), head: shared(), words })
}

fn ring() -> Arc<Ring> {
    ring_with(Ordering::Release, Ordering::Acquire)
}

/// Word and ticket of event `n`: never zero, and of different values, so that a half shows.
fn event(n: u64) -> (u64, u64) {
    (n + 1, 100 + n)
}

/// Consumes what is there now; returns how many events it was. Each must be whole and the next in order.
fn drain(consumer: &mut Consumer, ring: &Arc<Ring>, next: &mut u64) -> u64 {
    let view = View(ring.clone());
    let before = *next;
    if consumer.ready_after_refresh(&ring.tail) {
        while consumer.ready() {
            assert_eq!((view.get(consumer.at), view.get(consumer.at + 8)), event(*next));
            consumer.release(16, &ring.head);
            *next += 1;
        }
    }
    *next - before
}

fn whole_events(ring: &Arc<Ring>) {
    let theirs = ring.clone();
    let writer = thread::spawn(move || {
        let (mut producer, mut view) = (Producer::new(0, RING), View(theirs.clone()));
        for n in 0..2 {
            let (word, ticket) = event(n);
            producer.push(word, ticket, &mut view, &theirs.tail);
        }
    });
    let (mut consumer, mut next) = (Consumer::new(0), 0);
    drain(&mut consumer, ring, &mut next);
    drain(&mut consumer, ring, &mut next);
    writer.join().unwrap();
    drain(&mut consumer, ring, &mut next);
    assert_eq!(next, 2);
}

#[test]
fn a_reader_sees_whole_events_in_order() {
    loom::model(|| whole_events(&ring()));
}

#[test]
#[should_panic(expected = "Causality violation")]
fn careless_publication_is_caught() {
    loom::model(|| whole_events(&ring_with(Ordering::Relaxed, Ordering::Acquire)));
}

#[test]
#[should_panic(expected = "Causality violation")]
fn careless_look_at_the_tail_is_caught() {
    loom::model(|| whole_events(&ring_with(Ordering::Release, Ordering::Relaxed)));
}

/// SIGKILL between any two steps of the second event: the reader gets the events that were published, and
/// nothing of the one that was not.
#[test]
fn a_writer_that_dies_mid_event_leaves_whole_events() {
    for steps in 0..=3 {
        loom::model(move || {
            let ring = ring();
            let theirs = ring.clone();
            let writer = thread::spawn(move || {
                let (mut producer, mut view) = (Producer::new(0, RING), View(theirs.clone()));
                let (word, ticket) = event(0);
                producer.push(word, ticket, &mut view, &theirs.tail);
                let (word, ticket) = event(1);
                let at = producer.at;
                if steps > 0 {
                    view.put(at, word);
                }
                if steps > 1 {
                    view.put(at + 8, ticket);
                }
                if steps > 2 {
                    producer.publish(16, &theirs.tail);
                }
            });
            let (mut consumer, mut next) = (Consumer::new(0), 0);
            drain(&mut consumer, &ring, &mut next);
            writer.join().unwrap();
            drain(&mut consumer, &ring, &mut next);
            assert_eq!(next, if steps > 2 { 2 } else { 1 });
            assert_eq!(drain(&mut consumer, &ring, &mut next), 0);
        });
    }
}

/// A ring that is all but full: one event has room, and the next takes the place of the first, for which it must wait. What lies
/// between is a skip, which nobody looks into.
fn full_ring(ring: &Arc<Ring>) {
    const END: u64 = RING - 16;
    let mut view = View(ring.clone());
    view.put(0, event(0).0 << 8);
    view.put(8, event(0).1);
    view.put(16, Header::word(EventKind::Skip, 0, 0, (END - 32) as u32));
    view.put(24, NO_TICKET);
    ring.tail.release(END);
    let theirs = ring.clone();
    let writer = thread::spawn(move || {
        let (mut producer, mut view) = (Producer::new(END, RING), View(theirs.clone()));
        for n in 1..3 {
            while !producer.fits(16) {
                let head = theirs.head.acquire();
                let ends = (&mut view, &theirs.tail);
                if producer.make_room(16, head, u64::MAX, ends, |_, _| true) == (Room::Full, 0) {
                    thread::yield_now();
                }
            }
            let (word, ticket) = event(n);
            producer.push(word << 8, ticket, &mut view, &theirs.tail);
        }
        assert_eq!(producer.at, RING + 16);
    });
    let mut consumer = Consumer::new(0);
    for n in 0..3 {
        let (word, ticket) = event(n);
        let header = loop {
            match consumer.front(&view, &ring.tail, &ring.head) {
                Some(header) => break header,
                None => thread::yield_now(),
            }
        };
        assert_eq!(header, Header::from_words(word << 8, ticket));
        consumer.release(16, &ring.head);
    }
    assert!(!consumer.ready_after_refresh(&ring.tail));
    writer.join().unwrap();
}

#[test]
fn a_full_ring_is_not_overwritten_before_its_release() {
    loom::model(|| full_ring(&ring()));
}

#[test]
#[should_panic(expected = "Causality violation")]
fn careless_release_of_a_full_ring_is_caught() {
    loom::model(|| full_ring(&ring_with(Ordering::Relaxed, Ordering::Relaxed)));
}

/// At a boundary the ring goes back, by an event that says nothing: the reader finds the next one at the beginning.
fn goes_back(ring: &Arc<Ring>) {
    const START: u64 = STEP - 48;
    ring.tail.release(START);
    ring.head.release(START);
    let theirs = ring.clone();
    let writer = thread::spawn(move || {
        let (mut producer, mut view) = (Producer::new(START, RING), View(theirs.clone()));
        for n in 0..3 {
            if !producer.fits(16) {
                let head = theirs.head.acquire();
                let (room, skipped) =
                    producer.make_room(16, head, u64::MAX, (&mut view, &theirs.tail), |_, _| true);
                assert_eq!(room, Room::Made);
                assert!(skipped == 0 || producer.at == RING);
            }
            let (word, ticket) = event(n);
            producer.push(word << 8, ticket, &mut view, &theirs.tail);
        }
        assert_eq!(producer.at, RING + 16);
    });
    let (mut consumer, view, mut next) = (Consumer::new(START), View(ring.clone()), 0);
    let mut drain = |consumer: &mut Consumer| {
        while let Some(header) = consumer.front(&view, &ring.tail, &ring.head) {
            let (word, ticket) = event(next);
            assert_eq!(header, Header::from_words(word << 8, ticket));
            consumer.release(16, &ring.head);
            next += 1;
        }
        next
    };
    drain(&mut consumer);
    writer.join().unwrap();
    assert_eq!(drain(&mut consumer), 3);
}

#[test]
fn a_ring_that_goes_back_loses_nothing() {
    loom::model(|| goes_back(&ring()));
}

#[test]
#[should_panic(expected = "Causality violation")]
fn careless_publication_of_a_skip_is_caught() {
    loom::model(|| goes_back(&ring_with(Ordering::Relaxed, Ordering::Acquire)));
}

/// As [`full_ring`] with another reader, which has a head of its own: the event at the first one's place waits for both. Everybody
/// looks once.
fn two_readers(looks_at_both: bool) {
    let ring = ring();
    let taken =
        Arc::new(Shared { value: AtomicU64::new(0), store: Ordering::Release, load: Ordering::Acquire });
    let (mut producer, mut view) = (Producer::new(RING, RING), View(ring.clone()));
    view.put(0, event(0).0);
    view.put(8, event(0).1);
    ring.tail.release(RING);
    let (theirs, others) = (ring.clone(), taken.clone());
    let writer = thread::spawn(move || {
        let recorder = looks_at_both.then(|| others.acquire());
        let readers = Readers { standby: Some(theirs.head.acquire()), recorder };
        let head = readers.slowest().expect("somebody reads");
        let ends = (&mut view, &theirs.tail);
        if producer.make_room(16, head, u64::MAX, ends, |_, _| true).0 == Room::Made {
            let (word, ticket) = event(1);
            producer.push(word, ticket, &mut view, &theirs.tail);
        }
    });
    let read = |ring: Arc<Ring>, head: &Shared| {
        let (mut consumer, view) = (Consumer::new(0), View(ring.clone()));
        let header = consumer.front(&view, &ring.tail, head);
        assert_eq!(header, Some(Header::from_words(event(0).0, event(0).1)));
        consumer.release(16, head);
    };
    let ours = ring.clone();
    let recorder = thread::spawn(move || read(ours, &taken));
    read(ring.clone(), &ring.head);
    recorder.join().unwrap();
    writer.join().unwrap();
}

#[test]
fn the_slower_of_two_readers_is_waited_for() {
    loom::model(|| two_readers(true));
}

#[test]
#[should_panic(expected = "Causality violation")]
fn looking_at_one_of_two_readers_is_caught() {
    loom::model(|| two_readers(false));
}

/// A reader that sleeps is woken by the writer, or by nobody in particular; it must look again each time.
#[test]
fn a_spurious_wake_shows_nothing_that_is_not_there() {
    loom::model(|| {
        let ring = ring();
        let ours = ring.clone();
        let reader = thread::spawn(move || {
            let (mut consumer, mut next) = (Consumer::new(0), 0);
            while drain(&mut consumer, &ours, &mut next) == 0 {
                thread::park();
            }
            next
        });
        let sleeper = reader.thread().clone();
        let stranger = thread::spawn(move || sleeper.unpark());
        let (mut producer, mut view) = (Producer::new(0, RING), View(ring.clone()));
        let (word, ticket) = event(0);
        producer.push(word, ticket, &mut view, &ring.tail);
        reader.thread().unpark();
        stranger.join().unwrap();
        assert_eq!(reader.join().unwrap(), 1);
    });
}

/// Whoever sees the head past an event sees what its application did: a promotion that finds all rings
/// drained may believe the memory it goes live with.
#[test]
fn a_drained_ring_means_applied_events() {
    loom::model(|| {
        let ring = ring();
        let effect = Arc::new(UnsafeCell::new(0));
        let (word, ticket) = event(0);
        Producer::new(0, RING).push(word, ticket, &mut View(ring.clone()), &ring.tail);
        let (theirs, applied) = (ring.clone(), effect.clone());
        let replayer = thread::spawn(move || {
            let mut consumer = Consumer::new(0);
            assert!(consumer.ready_after_refresh(&theirs.tail));
            // SAFETY: ordered before the release of the head; loom checks it.
            applied.with_mut(|place| unsafe { *place = 7 });
            consumer.release(16, &theirs.head);
        });
        if ring.head.acquire() == 16 {
            // SAFETY: the head says that the writer of this place is done with it; loom checks it.
            assert_eq!(effect.with(|place| unsafe { *place }), 7);
        }
        replayer.join().unwrap();
    });
}
