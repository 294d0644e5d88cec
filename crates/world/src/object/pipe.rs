//! Pipes: what one holds tells, as long as both of its ends are the group's alone; and of a call that was begun while
//! they were, also if a child was forked beside it, unless that child has moved bytes there since.

use super::{Object, Opaque};
use crate::count::Counts;
use crate::kernel::{Kernel, Touched};
use crate::kind::{Direction, Evidence};
use crate::part::{Part, Sharers, Stream, Told};
use crate::verdict::{Verdict, Verdicts};

/// A pipe, either end.
pub struct Pipe;

/// What a pipe takes whole or not at all, bytes.
const PIPE_BUF: u64 = 4096;

impl Object for Pipe {
    fn evidence(direction: Direction, _is_plain: bool) -> Evidence {
        match direction {
            Direction::In => Evidence::Pattern,
            Direction::Out => Evidence::Totals,
        }
    }

    fn baseline(fd: i32, _is_shut: bool, kernel: &mut impl Kernel) -> Counts {
        Counts { read: 0, written: kernel.queued(fd).unwrap_or(0) }
    }

    fn judge(sharers: Sharers, kernel: &mut impl Kernel, verdicts: &mut Verdicts) {
        let Sharers { fd, stream, .. } = sharers;
        // Of a call that its primary made in the plain way nothing but the pipe tells how far it came. Up to its
        // beginning the log has all that was moved, and a child that was made since has the pipe as it has all that
        // was open: few use it.
        let began_alone = stream.is_own && sharers.parts().any(|part| part.entered && part.is_plain);
        if !stream.is_private && !began_alone {
            return Opaque::judge(sharers, kernel, verdicts);
        }
        let (mut readers, mut least, mut most, mut seen) = (0, 0u64, 0u64, true);
        for part in sharers.entered(Direction::In) {
            let touched = kernel.touched(part);
            let (low, high) = match touched {
                // Also where nothing is to be seen: what little came may be like the pattern, and the totals tell.
                Touched::UpTo(got) => (got, part.len),
                Touched::Beyond => (pattern_max(kernel), part.len),
                Touched::Unprepared => (0, part.len),
            };
            seen &= matches!(touched, Touched::UpTo(_));
            readers += 1;
            least = least.saturating_add(low);
            most = most.saturating_add(high);
        }
        // Where others have the pipe its outputs are made piece by piece, and their slots tell: they need not be
        // found out.
        let is_found = |part: &&Part| stream.is_private || part.told == Told::None;
        let told = sharers.side(Direction::Out).filter(|part| !is_found(part)).fold(0u64, |sum, part| {
            match part.told {
                Told::Moved(moved) => sum + u64::from(moved),
                _ => sum,
            }
        });
        let writers = sharers.entered(Direction::Out).filter(is_found);
        let write_len = writers.clone().fold(0u64, |sum, part| sum.saturating_add(part.len));
        let answer = kernel.queued(fd).and_then(|queued| {
            let (written, read) = explain(View {
                // A long write that waits for room is one in doubt, and readers may have told already of what it put
                // in: more has come out by the log than went in.
                queued: queued + stream.read,
                logged: stream.written + told,
                write_len,
                whole: writers.count() == 1 && write_len <= PIPE_BUF,
                read_least: least,
                read_most: if readers > 1 { least } else { most },
                seen,
            })?;
            Some((written + told, read))
        });
        if answer.is_none() && !stream.is_private {
            // The child has used it.
            return Opaque::judge(sharers, kernel, verdicts);
        }
        sharers.share(Direction::Out, answer.map(|(written, _)| written), verdicts);
        for part in sharers.side(Direction::In) {
            let verdict = match (answer, kernel.touched(part)) {
                _ if !part.entered => Verdict::Again,
                (Some((_, read)), _) if readers == 1 => Verdict::Moved(read),
                (_, Touched::UpTo(got)) => Verdict::Moved(got),
                _ => Verdict::Unknown,
            };
            verdicts.put(part.slot, verdict);
        }
    }

    fn taken(fd: i32, stream: &Stream, kernel: &mut impl Kernel) -> Option<u64> {
        let held = stream.held().filter(|_| stream.is_private)?;
        held.checked_sub(kernel.queued(fd)?)
    }
}

/// A pipe inside the group, and the calls in doubt on it. All in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct View {
    /// What the pipe holds now, and what has come out by the log.
    queued: u64,
    /// What has gone in by the log.
    logged: u64,
    /// Length of the writes in doubt, 0 if there is none.
    write_len: u64,
    /// There is one write, and it is done whole or not at all.
    whole: bool,
    /// What the reads in doubt have got at least. Totals alone cannot tell "both done" from "neither".
    read_least: u64,
    /// What they can have got at most.
    read_most: u64,
    /// The pattern was still there behind `read_least`: that is the count, unless the input ended like the pattern
    /// and the figures say so.
    seen: bool,
}

/// What the writes and the reads in doubt have moved, `None` if the figures allow more than one answer or none.
///
/// The reads that fit lie in one range, since each byte more that was read is one more that was written.
fn explain(view: View) -> Option<(u64, u64)> {
    let balance = |read: u64| (view.queued + read).checked_sub(view.logged);
    // Whatever was read, between nothing and all has been written.
    let low = view.read_least.max(view.logged.saturating_sub(view.queued));
    let high = view.read_most.min((view.logged + view.write_len).checked_sub(view.queued)?);
    if low > high {
        return None;
    }
    let (none, all) = (balance(low)? == 0, balance(high)? == view.write_len);
    let mut answers = match view.whole {
        // Only the two ends of the range write nothing or all.
        true => [none.then_some(low), all.then_some(high)],
        false => [Some(low), Some(high)],
    };
    if low == high {
        answers[1] = answers[1].filter(|_| answers[0].is_none());
    }
    let mut answers = answers.into_iter().flatten();
    let first = answers.next()?;
    (view.seen || answers.next().is_none()).then_some((balance(first)?, first))
}

/// How far a read from a pipe came in which `waiting` bytes had waited, where a pattern lay before and all from `seen` on is
/// as the pattern. All of them came, unless another reader was quicker, or the pipe is one of packets. Of the last two bytes the
/// pattern says little: they may be like it.
#[must_use]
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

fn pattern_max<K: Kernel>(_kernel: &K) -> u64 {
    K::PATTERN_MAX
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

    /// Every state that a one-byte write and a one-byte read can leave is told apart.
    #[test]
    fn one_byte_pipes_are_settled_exactly() {
        for logged in 0..3 {
            for (written, read) in [(0u64, 0u64), (0, 1), (1, 0), (1, 1)] {
                let Some(queued) = (logged + written).checked_sub(read) else { continue };
                let view = View {
                    queued,
                    logged,
                    write_len: 1,
                    whole: true,
                    read_least: read,
                    read_most: read,
                    seen: true,
                };
                assert_eq!(explain(view), Some((written, read)));
            }
        }
    }

    #[test]
    fn a_short_write_is_done_whole_or_not_and_a_read_that_looks_shorter_is_found() {
        let view = View {
            queued: 0,
            logged: 1,
            write_len: 9,
            whole: true,
            read_least: 1,
            read_most: 64,
            seen: true,
        };
        assert_eq!(explain(view), Some((0, 1)));
        // Ten bytes came, of which the last looks like the pattern.
        assert_eq!(explain(View { read_least: 9, ..view }), Some((9, 10)));
        assert_eq!(explain(View { read_least: 0, seen: false, ..view }), None);
        assert_eq!(explain(View { queued: 90, ..view }), None);
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

    /// The definition: every count of bytes read is tried.
    fn tried(view: View) -> Option<(u64, u64)> {
        let mut answers = (view.read_least..=view.read_most).filter_map(|read| {
            let written = (view.queued + read).checked_sub(view.logged)?;
            let possible = written == 0 || written == view.write_len || !view.whole;
            (possible && written <= view.write_len).then_some((written, read))
        });
        let first = answers.next()?;
        (view.seen || answers.next().is_none()).then_some(first)
    }

    /// A kernel with one pipe, and what is in the slot of whoever reads from it.
    struct OnePipe {
        queued: u64,
        touched: Touched,
    }

    impl Kernel for OnePipe {
        const PATTERN_MAX: u64 = 64;

        fn tcp(&mut self, _fd: i32) -> Option<crate::TcpFigures> {
            None
        }
        fn queued(&mut self, _fd: i32) -> Option<u64> {
            Some(self.queued)
        }
        fn event_count(&mut self, _fd: i32) -> Option<u64> {
            None
        }
        fn position(&mut self, _fd: i32) -> Option<u64> {
            None
        }
        fn size(&mut self, _fd: i32) -> Option<u64> {
            None
        }
        fn set_position(&mut self, _fd: i32, _position: u64) -> bool {
            false
        }
        fn lies_at(&mut self, _part: &Part, _from: u64, _bytes: u64) -> Option<bool> {
            None
        }
        fn came_from(&mut self, _part: &Part, _from: u64, _bytes: u64) -> Option<bool> {
            None
        }
        fn touched(&mut self, _part: &Part) -> Touched {
            self.touched
        }
        fn first_word(&mut self, _part: &Part) -> u64 {
            0
        }
        fn whole_records(&mut self, _part: &Part, bytes: u64) -> u64 {
            bytes
        }
    }

    /// The verdict on one call, entered and made in the plain way, on a pipe of which the log has these figures.
    fn judged(
        direction: Direction,
        len: u64,
        logged: [u64; 2],
        is_private: bool,
        kernel: &mut OnePipe,
    ) -> Verdict {
        let stream = Stream {
            key: 1,
            kind: crate::Kind::Pipe,
            read: logged[0],
            written: logged[1],
            is_private,
            is_own: true,
            is_shut: false,
            has_failed: false,
        };
        let part = Part {
            slot: 0,
            fd: 3,
            direction,
            len,
            entered: true,
            is_told: false,
            is_in_slot: direction == Direction::In,
            is_elsewhere: false,
            from: None,
            told: Told::None,
            is_plain: true,
            copy: crate::Copy::No,
            stream: Some(stream),
        };
        let mut list = [None];
        let mut verdicts = Verdicts::new(&mut list);
        crate::judge(&[part], kernel, &mut verdicts);
        verdicts.of(0).expect("a verdict")
    }

    /// A write of 200 000 bytes has put 130 000 in, of which 100 000 are read and told, whether a child was made
    /// since or not.
    #[test]
    fn a_long_write_is_found_though_readers_have_told_of_its_beginning() {
        for is_private in [true, false] {
            let mut kernel = OnePipe { queued: 30_000, touched: Touched::Unprepared };
            let verdict = judged(Direction::Out, 200_000, [100_000, 0], is_private, &mut kernel);
            assert_eq!(verdict, Verdict::Moved(130_000));
        }
    }

    /// One byte has come that is like the pattern, and nobody writes.
    #[test]
    fn a_byte_that_is_like_the_pattern_is_found() {
        let mut kernel = OnePipe { queued: 4, touched: Touched::UpTo(0) };
        assert_eq!(judged(Direction::In, 1, [10, 15], true, &mut kernel), Verdict::Moved(1));
        kernel.queued = 5;
        assert_eq!(judged(Direction::In, 1, [10, 15], true, &mut kernel), Verdict::Moved(0));
    }

    /// All eight bytes have come, of which the last is like the pattern, and a child was made meanwhile.
    #[test]
    fn a_read_that_began_before_a_fork_goes_by_what_the_pipe_holds() {
        let touched = Touched::UpTo(7);
        let verdict = judged(Direction::In, 8, [16, 24], false, &mut OnePipe { queued: 0, touched });
        assert_eq!(verdict, Verdict::Moved(8));
        // The child has written there: its slot is all that tells.
        let verdict = judged(Direction::In, 8, [16, 24], false, &mut OnePipe { queued: 5, touched });
        assert_eq!(verdict, Verdict::Moved(7));
    }

    proptest! {
        #[test]
        fn the_range_has_the_answers_that_trying_finds(
            queued in 0u64..20, logged in 0u64..20, write_len in 0u64..20, whole in any::<bool>(),
            read_least in 0u64..20, more in 0u64..20, seen in any::<bool>(),
        ) {
            let view = View { queued, logged, write_len, whole, read_least, read_most: read_least + more, seen };
            prop_assert_eq!(explain(view), tried(view));
        }
    }
}
