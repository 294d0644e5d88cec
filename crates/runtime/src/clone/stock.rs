//! What the log counts from: the kernel's figures at the moment of the fork.
//!
//! A settlement compares what the kernel has moved with what the log accounts for. A log that begins in the middle
//! of a program's life begins with the kernel's figures. By the thread that forks, while every other stands still.

use crate::door::{pending, timer};
use crate::fdtable::{self, Kind};
use crate::standby::kernel;

/// Takes stock of descriptors, timers and waiting signals.
pub fn take() {
    fdtable::for_open(|fd| {
        let (identity, kind) = fdtable::identify(fd);
        let Some(shadow) = fdtable::get(fd) else { return };
        if shadow.kind() == Kind::None {
            // Came by a way that nobody logged.
            shadow.open(kind, identity);
        }
        shadow.count_from(kernel::baseline(fd, shadow));
    });
    let waiting = pending::waiting();
    timer::take_stock(waiting);
    pending::take_stock(waiting);
}
