//! TCP sockets: the kernel's totals tell.

use super::Object;
use crate::count::Counts;
use crate::kernel::{Kernel, TcpFigures};
use crate::kind::{Direction, Evidence};
use crate::part::{Part, Sharers};
use crate::verdict::{Verdict, Verdicts};

/// A TCP socket. One that the guest connected counts its SYN among the bytes acknowledged; one that it accepted does not.
pub struct Tcp<const SYN_COUNTED: bool>;

const CLOSE: u8 = 7;
/// Readings until two agree: acknowledgements may still arrive.
const READINGS_MAX: u32 = 100;

impl<const SYN_COUNTED: bool> Object for Tcp<SYN_COUNTED> {
    /// Asking takes eight system calls a connection, which is most of a clone's pause where a server has thousands.
    const IS_COUNTED: bool = true;

    fn evidence(direction: Direction, is_plain: bool) -> Evidence {
        // The socket's figures tell as much as the kernel would note in a slot. What comes in from several places is received
        // into the slot all the same, where it outlives the primary.
        match direction {
            Direction::In if !is_plain => Evidence::Message,
            _ => Evidence::Totals,
        }
    }

    fn baseline(fd: i32, is_shut: bool, kernel: &mut impl Kernel) -> Counts {
        steady(fd, kernel).map_or_else(Counts::default, |now| Self::counts(&now, is_shut))
    }

    /// A connection that is about to be made, has failed, or has urgent data, has figures of its own.
    fn exact(fd: i32, is_shut: bool, kernel: &mut impl Kernel) -> Option<Counts> {
        const ESTABLISHED: u8 = 1;
        let now = steady(fd, kernel)?;
        (now.state == ESTABLISHED && !now.is_broken && !now.has_mark).then(|| Self::counts(&now, is_shut))
    }

    fn judge(sharers: Sharers, kernel: &mut impl Kernel, verdicts: &mut Verdicts) {
        let Sharers { fd, stream, .. } = sharers;
        let Some(now) = steady(fd, kernel) else {
            sharers.share(Direction::Out, None, verdicts);
            return sharers.share(Direction::In, None, verdicts);
        };
        let fins = fins(&now, stream.is_shut);
        let sent = written(&now, SYN_COUNTED, fins.queued).and_then(|all| all.checked_sub(stream.written));
        // A connection that has failed may look like one that was closed in order.
        let plain = read(&now, stream.read, false);
        let came = read(&now, stream.read, fins.received).or(plain);
        let was_connected = now.acked > 0 || !SYN_COUNTED;
        let is_closed = now.state == CLOSE && !now.is_broken && was_connected;
        if is_closed && plain == Some(0) && sent == Some(0) && !stream.has_failed {
            // There was no end in order, no error waits, and the log knows of nobody who has been told. Who asks for
            // bytes gets those that wait before.
            let may_be_told =
                |part: &&Part| part.entered && (part.direction == Direction::Out || now.unread == 0);
            if let Some(first) = sharers.parts().find(may_be_told) {
                verdicts.put(first.slot, Verdict::Failed);
            }
        }
        sharers.share(Direction::Out, sent, verdicts);
        sharers.share(Direction::In, came.filter(|_| !now.has_mark), verdicts);
    }
}

impl<const SYN_COUNTED: bool> Tcp<SYN_COUNTED> {
    /// What these figures come to.
    fn counts(now: &TcpFigures, is_shut: bool) -> Counts {
        let fins = fins(now, is_shut);
        Counts {
            read: read(now, 0, fins.received).unwrap_or(0),
            written: written(now, SYN_COUNTED, fins.queued).unwrap_or(0),
        }
    }
}

/// The figures, once two readings agree.
fn steady(fd: i32, kernel: &mut impl Kernel) -> Option<TcpFigures> {
    let mut last = kernel.tcp(fd)?;
    for _ in 0..READINGS_MAX {
        let now = kernel.tcp(fd)?;
        if now == last {
            break;
        }
        last = now;
    }
    Some(last)
}

/// Bytes that the guest has written so far; `None` if the figures are impossible. An own FIN counts as one byte: unacknowledged
/// at first, acknowledged from then on.
fn written(now: &TcpFigures, syn_counted: bool, fin_queued: bool) -> Option<u64> {
    let extra = u64::from(syn_counted) + u64::from(fin_queued);
    now.acked.checked_add(now.unacknowledged)?.checked_sub(extra)
}

/// Bytes that the guest has read beyond those that the log has; `None` if the figures are impossible. The peer's FIN counts as
/// one byte received.
fn read(now: &TcpFigures, logged: u64, fin_received: bool) -> Option<u64> {
    now.received.checked_sub(now.unread)?.checked_sub(u64::from(fin_received))?.checked_sub(logged)
}

/// Whether the two ends of a connection count among its bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Fins {
    /// An own FIN was queued.
    queued: bool,
    /// The peer's FIN has come.
    received: bool,
}

/// A socket that has outlived its TIME_WAIT, or had none, says CLOSE like one that was reset: then the log knows of the own FIN,
/// and a connection that did not break had the peer's.
fn fins(now: &TcpFigures, is_shut: bool) -> Fins {
    // FIN_WAIT1, FIN_WAIT2, TIME_WAIT, LAST_ACK, CLOSING; TIME_WAIT, CLOSE_WAIT, LAST_ACK, CLOSING.
    Fins {
        queued: matches!(now.state, 4 | 5 | 6 | 9 | 11) || now.state == CLOSE && is_shut,
        received: matches!(now.state, 6 | 8 | 9 | 11) || now.state == CLOSE && !now.is_broken,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn figures(state: u8, is_broken: bool) -> TcpFigures {
        TcpFigures { state, is_broken, ..TcpFigures::default() }
    }

    #[test]
    fn a_closed_connection_had_its_fins_unless_it_broke() {
        assert_eq!(fins(&figures(1, false), false), Fins { queued: false, received: false });
        assert_eq!(fins(&figures(8, false), false), Fins { queued: false, received: true });
        assert_eq!(fins(&figures(7, false), true), Fins { queued: true, received: true });
        assert_eq!(fins(&figures(7, true), false), Fins { queued: false, received: false });
    }

    #[test]
    fn impossible_figures_settle_nothing() {
        assert_eq!(written(&figures(1, false), true, false), None);
        let now = TcpFigures { received: 3, unread: 4, ..figures(1, false) };
        assert_eq!(read(&now, 0, false), None);
    }

    proptest! {
        /// A socket simulated byte by byte: whatever is acknowledged, the sum is what was written.
        #[test]
        fn sums_are_exact(
            all in 0u64..1 << 40, acked_part in 0u64..=100, syn in any::<bool>(), fin in any::<bool>(),
        ) {
            let in_flight = all + u64::from(fin);
            let acked = in_flight * acked_part / 100;
            let now = TcpFigures {
                acked: acked + u64::from(syn), unacknowledged: in_flight - acked, ..figures(1, false)
            };
            prop_assert_eq!(written(&now, syn, fin), Some(all));
        }

        #[test]
        fn reads_are_exact(all in 0u64..1 << 40, unread in 0u64..1 << 20, fin in any::<bool>()) {
            let now = TcpFigures { received: all + unread + u64::from(fin), unread, ..figures(1, false) };
            prop_assert_eq!(read(&now, 0, fin), Some(all));
        }
    }
}
