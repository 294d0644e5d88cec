//! Signals that the log has announced: behind a call's end it says how many handlers run there.

use core::sync::atomic::Ordering;

use us_abi::event::{EventKind, NO_TICKET};

use crate::above::above;
use crate::siginfo::Info;
use crate::signal::{deliver, deliver_all, deliver_one};
use crate::state;
use crate::thread::{Mode, Thread};

/// As a primary: one was announced here, and there is none. The log must have it all the same.
pub(super) fn none_came(thread: &mut Thread) {
    if thread.calls() == Mode::Record {
        thread.append(EventKind::Signal, 0, 0, NO_TICKET, &Info::default());
    }
}

/// A handler ran, and meanwhile this became a standby's thread: what else is delivered at this door, the log says.
pub(super) fn follows(thread: &mut Thread) -> bool {
    if thread.calls() != Mode::Replay {
        return false;
    }
    loop {
        match thread.peek() {
            Some(header) if header.kind == EventKind::Signal as u8 => thread.take_signal(),
            Some(_) => return true,
            None if state::LIVE.load(Ordering::Acquire) => {
                above().go_live(thread);
                deliver(thread);
                return true;
            }
            None => thread.wait_more(),
        }
    }
}

/// Takes one, as a standby. Whether there was one.
pub(super) fn replay_next(thread: &mut Thread) -> bool {
    // `next` delivers signals on its way to the next event; only one has to be taken here.
    loop {
        match thread.peek() {
            Some(header) if header.kind == EventKind::Signal as u8 => {
                thread.take_signal();
                return header.call != 0;
            }
            Some(header) => {
                let number = crate::state::Decimal::new;
                crate::verdict::report_divergence(
                    thread,
                    &[
                        b"a signal was announced and is not in the log: event kind ",
                        number(u64::from(header.kind)).bytes(),
                        b" call ",
                        number(u64::from(header.call)).bytes(),
                    ],
                )
            }
            None if state::LIVE.load(Ordering::Acquire) => {
                // Announced, and lost with the primary before it was logged: if it was the guest's own, the promotion
                // has raised it again.
                above().go_live(thread);
                if thread.calls() != Mode::Record {
                    return deliver_all(thread);
                }
                // Whoever follows waits for one here, and would take others at its next door only.
                let has_come = deliver_one(thread);
                if !has_come {
                    none_came(thread);
                }
                return has_come;
            }
            None => thread.wait_more(),
        }
    }
}
