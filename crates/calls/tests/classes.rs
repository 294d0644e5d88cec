//! What status, standbys and recordings count by.

use us_abi::event::{AFTER_WAIT, EventKind, LOCKED};
use us_abi::{CLASS_NAMES, CLASSES};
use us_calls::{Class, TABLE};

#[test]
fn every_class_has_the_place_of_its_name() {
    use Class::*;
    let all = [Lock, Cond, Read, Write, Poll, Time, Memory, Thread, Signal, Other];
    assert_eq!(all.len(), CLASSES);
    for (place, class) in all.into_iter().enumerate() {
        assert_eq!(class.index(), place);
        assert_eq!(
            (format!("{class:?}").to_lowercase().as_str(), class.name()),
            (CLASS_NAMES[place], CLASS_NAMES[place])
        );
    }
}

#[test]
fn a_call_counts_in_the_class_of_its_row() {
    for row in TABLE.iter().flatten() {
        for kind in [EventKind::Enter, EventKind::Return, EventKind::Call] {
            assert_eq!(Class::of_event(kind, row.nr), row.class);
        }
    }
    assert_eq!(Class::of_event(EventKind::Enter, u16::MAX), Class::Other);
}

#[test]
fn the_end_of_a_wait_is_no_lock() {
    assert_eq!(Class::of_event(EventKind::Mutex, LOCKED), Class::Lock);
    assert_eq!(Class::of_event(EventKind::Mutex, AFTER_WAIT), Class::Cond);
}
