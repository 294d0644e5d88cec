//! The baseline of a log: what is known of every descriptor at the moment of the fork.
//!
//! A settlement compares what the kernel has moved with what the log accounts for. A log that begins in the middle of a program's
//! life begins with what the primary has counted; where it counts nothing, or not all of it, with the kernel's figures. By the
//! thread that forks, while every other stands still.

use core::sync::atomic::{AtomicUsize, Ordering};

use us_world::Counts;

use crate::door::{pending, timer};
use crate::fdtable::{self, Kind};
use crate::standby::kernel;
use crate::state::Decimal;

/// Counts of so many streams are compared with the kernel's at each clone: some tens of microseconds. A build with faults compares
/// all of them.
const COMPARED: usize = if cfg!(feature = "faults") { usize::MAX } else { 8 };

/// Sets the baseline of descriptors, timers and waiting signals.
pub fn take() {
    let mut known = 0;
    fdtable::for_known(|_, _| known += 1);
    if fdtable::open_count() != Some(known) {
        fdtable::for_open(|fd| {
            if let Some(shadow) = fdtable::get(fd).filter(|shadow| shadow.kind() == Kind::None) {
                // Came by a way that nobody logged.
                let (identity, kind) = fdtable::identify(fd);
                shadow.open(kind, identity);
            }
        });
    }
    compare();
    fdtable::for_known(|fd, shadow| {
        if !shadow.is_counted() {
            shadow.count_from(kernel::baseline(fd, shadow));
        }
    });
    fdtable::trust();
    let waiting = pending::waiting();
    let of_timers = timer::take_stock(waiting);
    pending::take_stock(waiting & !of_timers);
}

/// Asks the kernel about some of the streams that are counted, each time about the next ones. If one is not what was counted, the
/// kernel is asked about all.
fn compare() {
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    let from = NEXT.load(Ordering::Relaxed);
    let (mut left, mut next) = (COMPARED, 0);
    fdtable::for_known(|fd, shadow| {
        if left == 0 || (fd as usize) < from || !shadow.is_counted() {
            return;
        }
        left -= 1;
        next = fd as usize + 1;
        if let Some(exact) = kernel::exact(fd, shadow).filter(|exact| *exact != shadow.counts()) {
            is_wrong(fd, exact, shadow.counts());
        }
    });
    // Around once everything has had its turn.
    NEXT.store(if left == 0 { next } else { 0 }, Ordering::Relaxed);
}

/// A count that is not the kernel's: a transfer that passed no door, or that a door has not counted. A build with faults ends here.
#[cold]
fn is_wrong(fd: i32, exact: Counts, counted: Counts) {
    if cfg!(feature = "faults") {
        let number = Decimal::new;
        crate::verdict::last_words(&[
            b"miscounted: descriptor ",
            number(fd as u64).bytes(),
            b": read ",
            number(counted.read).bytes(),
            b" not ",
            number(exact.read).bytes(),
            b", written ",
            number(counted.written).bytes(),
            b" not ",
            number(exact.written).bytes(),
        ]);
    }
    fdtable::distrust();
}
