//! In-doubt calls: begun, and killed before their return was logged.
//!
//! Two numbers decide about a stream: what the kernel has moved in total, and what the log accounts for (the
//! sum of all returns that this standby has applied for the same open object). The difference belongs to
//! the calls in doubt. All functions expect figures read after the primary was fenced and while no thread is
//! live, twice with the same result (acknowledgements may still arrive).

/// What to do with an in-doubt call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Settled {
    /// It was done: append a return with this count of bytes.
    Done(u64),
    /// A blocking write was under way: carry on behind this many bytes, then return the full length.
    Continue(u64),
    /// It had no effect: issue it again, live.
    Reissue,
    /// The kernel's figures contradict the log or allow two readings. The failover must say so.
    Unknown,
}

/// Figures of `TCP_INFO` and `SIOCOUTQ` of a socket, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TcpSent {
    /// `tcpi_bytes_acked`.
    pub acked: u64,
    /// `SIOCOUTQ`: everything not acknowledged, unsent bytes included.
    pub outq: u64,
    /// The socket was connected by the guest, not accepted: its SYN is part of `acked`.
    pub syn_counted: bool,
    /// An own FIN was queued (shutdown for writing, or close): it counts as one byte, in `outq` until it is
    /// acknowledged and in `acked` from then on. States FIN_WAIT1, FIN_WAIT2, CLOSING, LAST_ACK, TIME_WAIT.
    pub fin_queued: bool,
}

/// Bytes that the guest has written to a TCP socket so far; `None` if the figures are impossible.
#[must_use]
pub fn tcp_written(sent: TcpSent) -> Option<u64> {
    let extra = u64::from(sent.syn_counted) + u64::from(sent.fin_queued);
    sent.acked.checked_add(sent.outq)?.checked_sub(extra)
}

/// Bytes that the guest has read from a TCP socket so far; `None` if the figures are impossible.
///
/// `bytes_received` is `tcpi_bytes_received`, `inq` is `SIOCINQ`; `fin_received` is true in CLOSE_WAIT,
/// LAST_ACK, CLOSING and TIME_WAIT, where the peer's FIN counts as a received byte.
#[must_use]
pub fn tcp_read(bytes_received: u64, inq: u64, fin_received: bool) -> Option<u64> {
    bytes_received.checked_sub(inq)?.checked_sub(u64::from(fin_received))
}

/// Bytes moved by an in-doubt call on a file whose offset is shared: the offset now, less the offset that the
/// log accounts for. `None` if it went backwards (another process seeks), which nothing can settle.
///
/// Not for O_APPEND writes of several writers, and not for pread and pwrite, which move no offset (they may
/// be issued again as they are: the same bytes at the same place).
#[must_use]
pub fn file_moved(offset_now: u64, offset_logged: u64) -> Option<u64> {
    offset_now.checked_sub(offset_logged)
}

/// Settles the only in-doubt write of a stream: `moved` bytes are beyond what the log accounts for.
#[must_use]
pub fn write(len: u64, moved: u64, nonblocking: bool) -> Settled {
    match moved {
        0 => Settled::Reissue,
        n if n == len => Settled::Done(n),
        n if n > len => Settled::Unknown,
        n if nonblocking => Settled::Done(n),
        n => Settled::Continue(n),
    }
}

/// Settles the only in-doubt read of a stream; its bytes lie in the ring's unpublished slot.
#[must_use]
pub fn read(len: u64, moved: u64) -> Settled {
    match moved {
        0 => Settled::Reissue,
        n if n <= len => Settled::Done(n),
        _ => Settled::Unknown,
    }
}

/// Settles one of several in-doubt writes of one stream. `own` is this call's length, `all` the sum of the lengths
/// of all in-doubt writes of that stream, `moved` as in [`write()`].
///
/// Totals tell only whether none or all were done. In between the figures do not say whose bytes left:
/// repeating one would lose the other.
#[must_use]
pub fn shared_write(own: u64, all: u64, moved: u64, nonblocking: bool) -> Settled {
    match moved {
        _ if own == all => write(own, moved, nonblocking),
        0 => Settled::Reissue,
        n if n == all => Settled::Done(own),
        _ => Settled::Unknown,
    }
}

/// Settles one of `readers` in-doubt reads of one stream. Reads may be short, so with more than one reader only
/// "nobody got anything" can be told from totals.
#[must_use]
pub fn shared_read(len: u64, readers: usize, moved: u64) -> Settled {
    match moved {
        _ if readers == 1 => read(len, moved),
        0 => Settled::Reissue,
        _ => Settled::Unknown,
    }
}

/// So many calls are told apart by what they sum up to.
const TOLD_APART: usize = 16;

/// Shares the total that several calls in doubt of one stream have moved out among them: `moved` gets each one's part.
/// `lens` are those that had entered the kernel. `false` if the total allows more than one answer, or none.
///
/// One call may have done a part. Of several, each is taken as whole or not done, which short writes are.
#[must_use]
pub fn shares(total: u64, lens: &[u64], moved: &mut [u64]) -> bool {
    if let [len] = lens {
        moved[0] = total;
        return total <= *len;
    }
    if lens.len() > TOLD_APART {
        // Too many to try each choice. All or nothing is the only one of its kind.
        let all = lens.iter().try_fold(0u64, |sum, len| sum.checked_add(*len));
        let is_all = all == Some(total) && !lens.contains(&0);
        moved.iter_mut().zip(lens).for_each(|(moved, len)| *moved = if is_all { *len } else { 0 });
        return is_all || total == 0;
    }
    let mut found = None;
    for chosen in 0u32..1 << lens.len() {
        let whole = |at: usize| chosen >> at & 1 != 0;
        let sum = lens.iter().enumerate().filter(|(at, _)| whole(*at)).map(|(_, len)| *len);
        if sum.fold(0u64, u64::saturating_add) == total && found.replace(chosen).is_some() {
            return false;
        }
    }
    let Some(chosen) = found else { return false };
    for (at, (moved, len)) in moved.iter_mut().zip(lens).enumerate() {
        *moved = if chosen >> at & 1 != 0 { *len } else { 0 };
    }
    true
}

/// A pipe inside the group, and the calls in doubt on it. All in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pipe {
    /// What the pipe holds now (`FIONREAD`).
    pub queued: u64,
    /// What it would hold by the log: logged writes less logged reads.
    pub logged: u64,
    /// Length of the writes in doubt, 0 if there is none.
    pub write_len: u64,
    /// There is one write, and it is done whole or not at all (up to PIPE_BUF).
    pub whole: bool,
    /// What the reads in doubt have got at least. The runtime puts a pattern into the slot before a read: what is no
    /// longer pattern has been read. Totals alone cannot tell "both done" from "neither".
    pub read_least: u64,
    /// What they can have got at most.
    pub read_most: u64,
    /// The pattern was still there behind `read_least`: that is the count, unless the input ended like the pattern
    /// and the figures say so.
    pub seen: bool,
}

/// What the writes and the reads in doubt have moved, `None` if the figures allow more than one answer or none.
#[must_use]
pub fn pipe(view: Pipe) -> Option<(u64, u64)> {
    let mut answers = (view.read_least..=view.read_most).filter_map(|read| {
        let written = (view.queued + read).checked_sub(view.logged)?;
        let possible = written == 0 || written == view.write_len || !view.whole;
        (possible && written <= view.write_len).then_some((written, read))
    });
    let first = answers.next()?;
    (view.seen || answers.next().is_none()).then_some(first)
}

/// Whether the two ends of a TCP connection count among its bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fins {
    /// An own FIN was queued.
    pub queued: bool,
    /// The peer's FIN has come.
    pub received: bool,
}

/// Judges by the state of a connection, `tcpi_state`. `shut`: the group has ended its half, by the log. `broken`: an
/// error waits.
///
/// A socket that has outlived its TIME_WAIT, or had none, says CLOSE like one that was reset: then the log knows of
/// the own FIN, and a connection that did not break had the peer's.
#[must_use]
pub fn fins(state: u8, shut: bool, broken: bool) -> Fins {
    // FIN_WAIT1, FIN_WAIT2, TIME_WAIT, LAST_ACK, CLOSING; TIME_WAIT, CLOSE_WAIT, LAST_ACK, CLOSING.
    const CLOSE: u8 = 7;
    Fins {
        queued: matches!(state, 4 | 5 | 6 | 9 | 11) || state == CLOSE && shut,
        received: matches!(state, 6 | 8 | 9 | 11) || state == CLOSE && !broken,
    }
}

/// Which open object a descriptor number stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Identity {
    /// What the kernel says: socket cookie, or device and inode folded into one word by the caller.
    pub object: u64,
    /// How often the *log* has given this number to a new object. The kernel's answer alone is not enough:
    /// a duplicate of the same socket may have taken the number again.
    pub generation: u32,
}

/// Settles an in-doubt close.
///
/// `then` is the identity when the standby applied the `ENTER`, in ticket order. `object_now` is the kernel's
/// answer for the number (`None`: not open), `generation_now` the shadow table's after the drain.
///
/// "Not open, so it was done" holds; "open, so it was not done" does not: another thread's accept may own the
/// number by now, and closing it would cut off a client.
#[must_use]
pub fn close(then: Identity, object_now: Option<u64>, generation_now: u32) -> Settled {
    match object_now {
        Some(object) if object == then.object && generation_now == then.generation => Settled::Reissue,
        _ => Settled::Done(0),
    }
}

/// A call on names or addresses whose second attempt finds the effect of the first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Repeat {
    /// unlink, rmdir: the name is gone.
    Removal,
    /// mkdir, link, symlink, mknod: the name is there.
    Making,
    /// rename: the old name is gone, the new one is the object.
    Renaming,
    /// connect: the socket has, or is about to have, a peer.
    Connecting,
    /// bind: the socket has its address.
    Binding,
    /// shutdown: the connection is over.
    Shutting,
    /// msgget, semget with IPC_EXCL, setxattr with XATTR_CREATE: it is there.
    Creating,
    /// removexattr: it is gone.
    Erasing,
}

/// What was seen around a call that is made a second time. Objects are 0 where there is none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Seen {
    /// The object just before the first attempt: behind the name, or 1 for a socket that had a peer or an address.
    pub before: u64,
    /// The object after the second attempt: behind the new name of a rename, or 1 for a socket that has the
    /// address that was asked for.
    pub now: u64,
}

/// The result to give for a second attempt that ended with the positive errno `error`, `None` if the error is
/// genuine: the first attempt would have met it too.
#[must_use]
pub fn repeated(kind: Repeat, error: i32, seen: Seen) -> Option<i64> {
    const ENOENT: i32 = 2;
    const EEXIST: i32 = 17;
    const EINVAL: i32 = 22;
    const EADDRINUSE: i32 = 98;
    const EISCONN: i32 = 106;
    const EALREADY: i32 = 114;
    const ENOTCONN: i32 = 107;
    const ENODATA: i32 = 61;
    const EINPROGRESS: i64 = 115;
    match (kind, error) {
        (Repeat::Removal, ENOENT) if seen.before != 0 => Some(0),
        (Repeat::Making | Repeat::Creating, EEXIST) if seen.before == 0 => Some(0),
        (Repeat::Erasing, ENODATA) if seen.before != 0 => Some(0),
        (Repeat::Shutting, ENOTCONN) if seen.before != 0 => Some(0),
        (Repeat::Renaming, ENOENT) if seen.before != 0 && seen.now == seen.before => Some(0),
        (Repeat::Connecting, EISCONN) if seen.before == 0 => Some(0),
        (Repeat::Connecting, EALREADY) if seen.before == 0 => Some(-EINPROGRESS),
        (Repeat::Binding, EINVAL | EADDRINUSE) if seen.before == 0 && seen.now != 0 => Some(0),
        _ => None,
    }
}

/// How far a read from a pipe came in which `waiting` bytes had waited, where a pattern lay before and all from `seen` on is
/// as the pattern. All of them came, unless another reader was quicker, or the pipe is one of packets. Of the last two bytes the
/// pattern says little: they may be like it.
pub fn counted(seen: u64, waiting: u64) -> u64 {
    const CHANCE: u64 = 2;
    if seen > 0 && waiting - seen <= CHANCE { waiting } else { seen }
}

/// What a pattern says that was put into a buffer before a read: the bytes up to the last one that differs were
/// written. Input that happens to end like the pattern looks shorter, so a count from elsewhere is to be
/// preferred where there is one. `None`: the whole pattern is gone, and there may be more behind it.
#[must_use]
pub fn touched(buffer: &[u8], pattern: impl Fn(usize) -> u8) -> Option<usize> {
    let last = (0..buffer.len()).rev().find(|&at| buffer[at] != pattern(at));
    match last {
        None => Some(0),
        Some(at) if at + 1 == buffer.len() => None,
        Some(at) => Some(at + 1),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn what_waited_has_come_though_its_end_is_like_the_pattern() {
        assert_eq!(counted(100, 100), 100);
        assert_eq!(counted(99, 100), 100);
        assert_eq!(counted(8, 16), 8, "a packet, or another reader");
        // It had not begun, or another one was quicker.
        assert_eq!(counted(0, 1), 0);
    }

    #[test]
    fn a_close_is_repeated_only_on_the_same_object_and_generation() {
        let then = Identity { object: 9, generation: 2 };
        assert_eq!(close(then, None, 2), Settled::Done(0));
        assert_eq!(close(then, Some(9), 2), Settled::Reissue);
        assert_eq!(close(then, Some(10), 2), Settled::Done(0));
        assert_eq!(close(then, Some(9), 3), Settled::Done(0));
    }

    /// Every state that a one-byte write and a one-byte read can leave is told apart.
    #[test]
    fn one_byte_pipes_are_settled_exactly() {
        for logged in 0..3 {
            for (written, read) in [(0u64, 0u64), (0, 1), (1, 0), (1, 1)] {
                let Some(queued) = (logged + written).checked_sub(read) else { continue };
                let view = Pipe {
                    queued,
                    logged,
                    write_len: 1,
                    whole: true,
                    read_least: read,
                    read_most: read,
                    seen: true,
                };
                assert_eq!(pipe(view), Some((written, read)));
            }
        }
    }

    #[test]
    fn a_short_write_is_done_whole_or_not_and_a_read_that_looks_shorter_is_found() {
        let view = Pipe {
            queued: 0,
            logged: 1,
            write_len: 9,
            whole: true,
            read_least: 1,
            read_most: 64,
            seen: true,
        };
        assert_eq!(pipe(view), Some((0, 1)));
        // Ten bytes came, of which the last looks like the pattern.
        assert_eq!(pipe(Pipe { read_least: 9, ..view }), Some((9, 10)));
        assert_eq!(pipe(Pipe { read_least: 0, seen: false, ..view }), None);
        assert_eq!(pipe(Pipe { queued: 90, ..view }), None);
    }

    #[test]
    fn shares_are_found_where_they_are_the_only_ones() {
        let mut moved = [0; 3];
        assert!(shares(0, &[3, 4, 5], &mut moved) && moved == [0, 0, 0]);
        assert!(shares(12, &[3, 4, 5], &mut moved) && moved == [3, 4, 5]);
        assert!(shares(9, &[3, 4, 5], &mut moved) && moved == [0, 4, 5]);
        assert!(!shares(4, &[4, 4, 5], &mut moved));
        assert!(shares(2, &[3], &mut moved[..1]) && moved[0] == 2);
        assert!(!shares(4, &[3], &mut moved[..1]) && !shares(1, &[], &mut []));
        assert!(shares(0, &[], &mut []));
    }

    #[test]
    fn many_are_told_apart_only_at_the_ends() {
        let (lens, mut moved) = ([4; 40], [9; 40]);
        assert!(shares(0, &lens, &mut moved) && moved == [0; 40]);
        assert!(shares(160, &lens, &mut moved) && moved == lens);
        assert!(!shares(4, &lens, &mut moved) && !shares(156, &lens, &mut moved));
    }

    #[test]
    fn a_closed_connection_had_its_fins_unless_it_broke() {
        assert_eq!(fins(1, false, false), Fins { queued: false, received: false });
        assert_eq!(fins(8, false, false), Fins { queued: false, received: true });
        assert_eq!(fins(7, true, false), Fins { queued: true, received: true });
        assert_eq!(fins(7, false, true), Fins { queued: false, received: false });
    }

    #[test]
    fn impossible_figures_settle_nothing() {
        let sent = TcpSent { acked: 0, outq: 0, syn_counted: true, fin_queued: false };
        assert_eq!(tcp_written(sent), None);
        assert_eq!(tcp_read(3, 4, false), None);
        assert_eq!(file_moved(3, 4), None);
        assert_eq!(write(4, 5, false), Settled::Unknown);
        assert_eq!(read(4, 5), Settled::Unknown);
    }

    #[test]
    fn several_writers_are_told_apart_only_at_the_ends() {
        assert_eq!(shared_write(4, 7, 0, false), Settled::Reissue);
        assert_eq!(shared_write(4, 7, 7, false), Settled::Done(4));
        assert_eq!(shared_write(4, 7, 4, false), Settled::Unknown);
        assert_eq!(shared_read(4, 2, 1), Settled::Unknown);
    }

    #[test]
    fn a_second_attempt_that_finds_the_first_succeeds() {
        let seen = |before, now| Seen { before, now };
        assert_eq!(repeated(Repeat::Removal, 2, seen(7, 0)), Some(0));
        assert_eq!(repeated(Repeat::Making, 17, seen(0, 0)), Some(0));
        assert_eq!(repeated(Repeat::Renaming, 2, seen(7, 7)), Some(0));
        assert_eq!(repeated(Repeat::Connecting, 106, seen(0, 0)), Some(0));
        assert_eq!(repeated(Repeat::Connecting, 114, seen(0, 0)), Some(-115));
        assert_eq!(repeated(Repeat::Binding, 22, seen(0, 1)), Some(0));
        assert_eq!(repeated(Repeat::Shutting, 107, seen(1, 0)), Some(0));
        assert_eq!(repeated(Repeat::Creating, 17, seen(0, 0)), Some(0));
        assert_eq!(repeated(Repeat::Erasing, 61, seen(1, 0)), Some(0));
    }

    #[test]
    fn a_genuine_error_stays_one() {
        let seen = |before, now| Seen { before, now };
        assert_eq!(repeated(Repeat::Removal, 2, seen(0, 0)), None);
        assert_eq!(repeated(Repeat::Removal, 13, seen(7, 0)), None);
        assert_eq!(repeated(Repeat::Making, 17, seen(7, 0)), None);
        assert_eq!(repeated(Repeat::Renaming, 2, seen(7, 8)), None);
        assert_eq!(repeated(Repeat::Renaming, 2, seen(0, 0)), None);
        assert_eq!(repeated(Repeat::Connecting, 106, seen(1, 0)), None);
        assert_eq!(repeated(Repeat::Connecting, 111, seen(0, 0)), None);
        assert_eq!(repeated(Repeat::Binding, 98, seen(0, 0)), None);
        assert_eq!(repeated(Repeat::Shutting, 107, seen(0, 0)), None);
        assert_eq!(repeated(Repeat::Creating, 17, seen(1, 0)), None);
        assert_eq!(repeated(Repeat::Erasing, 61, seen(0, 0)), None);
    }

    #[test]
    fn a_pattern_shows_how_far_a_read_came() {
        let pattern = |at: usize| at as u8 ^ 0x5a;
        let mut buffer = [0u8; 16];
        for (at, byte) in buffer.iter_mut().enumerate() {
            *byte = pattern(at);
        }
        assert_eq!(touched(&buffer, pattern), Some(0));
        buffer[3] ^= 1;
        assert_eq!(touched(&buffer, pattern), Some(4));
        buffer[15] ^= 1;
        assert_eq!(touched(&buffer, pattern), None);
        assert_eq!(touched(&[], pattern), Some(0));
    }

    proptest! {
        /// A socket simulated byte by byte: whatever is acknowledged, the sum is what was written.
        #[test]
        fn tcp_sums_are_exact(
            written in 0u64..1 << 40, acked_part in 0u64..=100, syn in any::<bool>(), fin in any::<bool>(),
        ) {
            let in_flight = written + u64::from(fin);
            let acked = in_flight * acked_part / 100;
            let sent = TcpSent {
                acked: acked + u64::from(syn), outq: in_flight - acked, syn_counted: syn, fin_queued: fin,
            };
            prop_assert_eq!(tcp_written(sent), Some(written));
        }

        #[test]
        fn tcp_reads_are_exact(read_bytes in 0u64..1 << 40, unread in 0u64..1 << 20, fin in any::<bool>()) {
            let received = read_bytes + unread + u64::from(fin);
            prop_assert_eq!(tcp_read(received, unread, fin), Some(read_bytes));
        }

        /// After settlement exactly `len` bytes have left, however many had before.
        #[test]
        fn a_blocking_write_ends_up_whole(len in 1u64..1 << 20, done in 0u64..1 << 20) {
            let moved = done.min(len);
            let more = match write(len, moved, false) {
                Settled::Done(n) => { prop_assert_eq!(n, len); 0 }
                Settled::Continue(n) => len - n,
                Settled::Reissue => len,
                Settled::Unknown => unreachable!("moved is within the length"),
            };
            prop_assert_eq!(moved + more, len);
        }
    }
}
