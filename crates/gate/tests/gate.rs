//! A gate by itself: packets in, packets out.

use gate::packet::flag::{ACK, FIN, SYN};
use gate::{Address, Adopted, End, Facts, Found, Gate, Mode, Note, PATIENCE_NS, Pair, Reading, Segment};

const FIRST: u32 = 0xffff_fff0;
const OTHER: u32 = 1000;

fn pair() -> Pair {
    let own = End { address: [10, 0, 0, 1], port: 80 };
    Pair { own, other: End { address: [10, 0, 0, 9], port: 4000 } }
}

fn packet(sequence: u32, acknowledged: u32, flags: u8) -> Vec<u8> {
    Segment::new(&pair(), sequence, acknowledged, flags, 100).into_bytes()
}

fn out(gate: &mut Gate) -> Vec<Segment> {
    std::iter::from_fn(|| gate.next_out()).map(|bytes| Segment::of(bytes).expect("a segment")).collect()
}

fn reading(read: u64) -> Reading {
    Reading { identity: 7, read, ..Reading::default() }
}

/// A gate at which one connection has just been found: its note waits for pass 1.
fn begun() -> Gate {
    let mut gate = Gate::default();
    gate.set_mode(Mode::Strict, 0);
    gate.arrived(packet(FIRST, OTHER + 1, SYN | ACK), 0);
    assert_eq!(gate.asks(0), [pair()]);
    gate.found(&pair(), Some(Found { identity: 7, segment_bytes: 1460, ..Found::default() }));
    let notes = gate.notes();
    assert!(matches!(
        &notes[..],
        [Note::Connection(Facts { identity: 7, first: FIRST, other_first: OTHER, .. })]
    ));
    gate.stamp(1, 0);
    gate
}

#[test]
fn a_packet_leaves_when_its_pass_is_committed_and_not_before() {
    let mut gate = begun();
    gate.committed(0, &[], 0);
    assert!(out(&mut gate).is_empty());
    gate.arrived(packet(FIRST + 1, OTHER + 1, ACK), 0);
    gate.stamp(2, 0);
    gate.committed(1, &[], 0);
    assert_eq!(out(&mut gate).len(), 1);
    gate.committed(2, &[], 0);
    assert_eq!(out(&mut gate).len(), 1);
}

#[test]
fn a_connection_whose_answer_waited_for_long_is_asked_for_again() {
    let mut gate = Gate::default();
    gate.set_mode(Mode::Strict, 0);
    gate.arrived(packet(FIRST, OTHER + 1, SYN | ACK), 0);
    let mut now = 0;
    while gate.is_asking() {
        gate.asks(now).iter().for_each(|pair| gate.found(pair, None));
        now += 1_000_000;
    }
    gate.arrived(packet(FIRST.wrapping_add(1), OTHER + 1, ACK), now);
    assert_eq!(gate.asks(now), [pair()]);
}

#[test]
fn an_acknowledgement_goes_as_far_as_what_was_read() {
    let mut gate = begun();
    gate.arrived(packet(FIRST.wrapping_add(1), OTHER + 51, ACK), 0);
    gate.stamp(2, 0);
    gate.committed(2, &[reading(20)], 0);
    let left = out(&mut gate);
    assert_eq!(left[1].acknowledged(), OTHER + 21);
    // The window ends where the kernel had it end.
    assert_eq!(left[1].window(), 130);
    // The same once more would say nothing.
    gate.arrived(packet(FIRST.wrapping_add(1), OTHER + 51, ACK), 0);
    gate.stamp(3, 0);
    gate.committed(3, &[reading(20)], 0);
    assert!(out(&mut gate).is_empty());
    // What has been read is acknowledged by a packet of the gate's own, with sums that are right.
    gate.committed(3, &[reading(50)], 0);
    let left = out(&mut gate);
    assert_eq!((left.len(), left[0].acknowledged(), left[0].window()), (1, OTHER + 51, 100));
    let mut again = left[0].clone();
    again.sum_up();
    assert_eq!(again.into_bytes(), left[0].clone().into_bytes());
}

#[test]
fn the_end_is_acknowledged_once_it_was_read() {
    let mut gate = begun();
    gate.arrived(packet(FIRST.wrapping_add(1), OTHER + 12, ACK | FIN), 0);
    gate.stamp(2, 0);
    gate.committed(2, &[reading(10)], 0);
    assert_eq!(out(&mut gate)[1].acknowledged(), OTHER + 11);
    gate.committed(2, &[Reading { is_ended: true, ..reading(10) }], 0);
    assert_eq!(out(&mut gate)[0].acknowledged(), OTHER + 12);
}

#[test]
fn who_is_not_read_is_told_of_before_he_is_acknowledged() {
    let mut gate = begun();
    gate.arrived(packet(FIRST.wrapping_add(1), OTHER + 51, ACK), 0);
    gate.stamp(2, 0);
    gate.committed(2, &[], 0);
    out(&mut gate);
    gate.tick(PATIENCE_NS);
    assert_eq!(gate.notes(), [Note::Time(PATIENCE_NS)]);
    gate.tick(PATIENCE_NS + 1);
    assert_eq!(gate.notes(), [Note::Beyond { identity: 7, bytes: 50 }]);
    assert!(gate.wants_pass());
    gate.stamp(3, 0);
    gate.committed(2, &[], 0);
    assert!(out(&mut gate).is_empty());
    gate.committed(3, &[], 0);
    assert_eq!(out(&mut gate)[0].acknowledged(), OTHER + 51);
}

#[test]
fn an_open_gate_holds_nothing_and_says_later_what_it_let_pass() {
    let mut gate = begun();
    gate.set_mode(Mode::Open, 0);
    gate.arrived(packet(FIRST.wrapping_add(1), OTHER + 31, ACK), 0);
    gate.stamp(2, 0);
    assert_eq!(out(&mut gate)[1].acknowledged(), OTHER + 31);
    gate.set_mode(Mode::Strict, 0);
    assert_eq!(gate.notes(), [Note::Beyond { identity: 7, bytes: 30 }]);
    // What has been acknowledged is not taken back.
    gate.arrived(packet(FIRST.wrapping_add(1), OTHER + 41, ACK), 0);
    gate.stamp(3, 0);
    gate.committed(3, &[], 0);
    assert!(out(&mut gate).iter().all(|segment| segment.acknowledged() == OTHER + 31));
}

#[test]
fn nothing_leaves_a_gate_that_is_shut() {
    let mut gate = begun();
    gate.set_mode(Mode::Shut, 0);
    gate.arrived(packet(FIRST.wrapping_add(1), OTHER + 1, ACK), 0);
    gate.stamp(2, 0);
    gate.committed(9, &[], 0);
    assert!(out(&mut gate).is_empty());
    assert_eq!(gate.counted().lost, 2);
}

#[test]
fn notes_come_back_and_forgeries_do_not() {
    let facts =
        Facts { identity: 9, pair: pair(), first: 1, other_first: 2, scale: 7, at_ns: 3, ..Facts::default() };
    let address = Address { address: [10, 0, 0, 1], bits: 24, device: "eth0".into() };
    assert_eq!(Note::of(&Note::Relaxed.to_bytes()), Some(Note::Relaxed));
    for note in [
        Note::Connection(facts),
        Note::Address(address),
        Note::Beyond { identity: 1, bytes: 2 },
        Note::Time(3),
        Note::Renamed { from: 4, to: 5 },
    ] {
        let bytes = note.to_bytes();
        assert_eq!(Note::of(&bytes), Some(note));
        assert_eq!(Note::of(&bytes[..5]), None);
        for at in 0..bytes.len() {
            let mut other = bytes.clone();
            other[at] ^= 0xff;
            let _ = Note::of(&other);
        }
    }
}

/// A connection that was made anew here: the next machine is told of it, and nothing is acknowledged that was not read.
#[test]
fn a_connection_is_adopted() {
    let mut gate = Gate::default();
    gate.set_mode(Mode::Strict, 0);
    let facts = Facts { identity: 3, pair: pair(), first: FIRST, other_first: OTHER, ..Facts::default() };
    let adopted =
        Adopted { facts, sent: FIRST.wrapping_add(101), read: 50, read_by_others: 0, acknowledged: 0 };
    gate.adopt(&adopted, 7, 0);
    let notes = gate.notes();
    let told = Note::Connection(Facts { identity: 7, ..facts });
    assert_eq!(notes, [Note::Renamed { from: 3, to: 7 }, told]);
    // What has been read goes; of the next ten bytes the program has read five.
    gate.arrived(packet(FIRST.wrapping_add(101), OTHER + 51, ACK), 0);
    gate.arrived(packet(FIRST.wrapping_add(101), OTHER + 61, ACK), 0);
    gate.stamp(1, 0);
    gate.committed(0, &[], 0);
    assert!(out(&mut gate).is_empty());
    gate.committed(1, &[reading(55)], 0);
    let left = out(&mut gate);
    assert_eq!(left.iter().map(Segment::acknowledged).collect::<Vec<_>>(), [OTHER + 51, OTHER + 56]);
    assert!(!gate.is_asking());
}

/// A kernel counts from where its own socket began: what had been acknowledged on other machines is added.
#[test]
fn what_was_acknowledged_before_is_counted() {
    let mut gate = Gate::default();
    let facts = Facts { identity: 3, pair: pair(), first: FIRST, other_first: OTHER, ..Facts::default() };
    let (sent, before) = (FIRST.wrapping_add(1001), 900);
    gate.adopt(&Adopted { facts, sent, read: 0, read_by_others: 0, acknowledged: before }, 7, 0);
    gate.notes();
    gate.arrived(packet(sent.wrapping_add(100_000), OTHER + 1, ACK), 0);
    gate.stamp(1, 0);
    assert_eq!(gate.measures(0), [pair()]);
    gate.measured(&pair(), Some(Found { identity: 7, acknowledged: 50_000, ..Found::default() }));
    assert!(gate.notes().contains(&Note::Acknowledged { identity: 7, bytes: before + 50_000 }));
}

/// Who takes over goes on with the clock that it was told last: no packet may be much younger.
#[test]
fn the_time_is_told_more_often_while_packets_leave() {
    const MS: u64 = 1_000_000;
    let mut gate = Gate::default();
    let facts = Facts { identity: 3, pair: pair(), first: FIRST, other_first: OTHER, ..Facts::default() };
    gate.adopt(&Adopted { facts, sent: FIRST.wrapping_add(1), ..Adopted::default() }, 7, 0);
    let told = |gate: &mut Gate, at: u64| {
        gate.tick(at);
        gate.notes().contains(&Note::Time(at))
    };
    let start = 5000 * MS;
    assert!(told(&mut gate, start));
    assert!(!told(&mut gate, start + 999 * MS), "nothing has left");
    assert!(told(&mut gate, start + 1000 * MS));
    gate.arrived(packet(FIRST.wrapping_add(1), OTHER + 1, ACK), start + 1050 * MS);
    gate.stamp(1, start + 1050 * MS);
    assert!(!told(&mut gate, start + 1099 * MS));
    assert!(told(&mut gate, start + 1100 * MS), "a packet has left");
    assert!(!told(&mut gate, start + 1999 * MS));
}

/// A byte that is asked with is one of data, and the packet is whole: its sums are right as they stand.
#[test]
fn a_byte_may_be_added_to_a_segment() {
    let bytes = Segment::new(&pair(), FIRST, OTHER, ACK, 100).with_byte().into_bytes();
    let mut segment = Segment::of(bytes.clone()).expect("a segment");
    assert_eq!((segment.data_bytes(), segment.end()), (1, FIRST.wrapping_add(1)));
    segment.sum_up();
    assert_eq!(segment.into_bytes(), bytes);
}

#[test]
fn bytes_that_are_no_segment_pass_as_they_are() {
    let mut gate = Gate::default();
    for bytes in [vec![], vec![0x45], vec![0x60; 60], vec![0x45; 20], vec![0xff; 40]] {
        gate.arrived(bytes.clone(), 0);
        gate.stamp(1, 0);
        assert_eq!(gate.next_out(), Some(bytes));
    }
}
