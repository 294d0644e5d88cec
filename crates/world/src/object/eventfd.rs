//! Eventfds: the count tells, and what the readers' slots hold.

use super::{Object, Opaque};
use crate::count::{Count, Counts, Transfer};
use crate::kernel::{Kernel, Touched};
use crate::kind::{Direction, Evidence};
use crate::part::Sharers;
use crate::verdict::{Verdict, Verdicts};

/// An eventfd. What counts as its bytes is what is added and taken.
pub struct Eventfd;

/// Bytes that a read or a write moves.
const WORD: u64 = 8;

impl Object for Eventfd {
    fn evidence(direction: Direction, _is_plain: bool) -> Evidence {
        match direction {
            Direction::In => Evidence::Pattern,
            Direction::Out => Evidence::Totals,
        }
    }

    fn count(direction: Direction, transfer: Transfer) -> Count {
        let amount = if transfer.bytes == WORD { transfer.word } else { transfer.bytes };
        match direction {
            Direction::In => Count::Read(amount),
            Direction::Out => Count::Written(amount),
        }
    }

    fn baseline(fd: i32, _is_shut: bool, kernel: &mut impl Kernel) -> Counts {
        Counts { read: 0, written: kernel.event_count(fd).unwrap_or(0) }
    }

    fn judge(sharers: Sharers, kernel: &mut impl Kernel, verdicts: &mut Verdicts) {
        let Sharers { fd, stream, .. } = sharers;
        if !stream.is_private {
            return Opaque::judge(sharers, kernel, verdicts);
        }
        let mut taken = 0u64;
        for part in sharers.side(Direction::In) {
            let got = part.entered && !matches!(kernel.touched(part), Touched::Unprepared | Touched::UpTo(0));
            if got {
                taken = taken.wrapping_add(kernel.first_word(part));
            }
            verdicts.put(part.slot, if got { Verdict::Moved(WORD) } else { Verdict::Again });
        }
        let now = kernel.event_count(fd).and_then(|now| now.checked_add(taken));
        let added = now.zip(stream.held()).and_then(|(now, held)| now.checked_sub(held));
        sharers.share_by(Direction::Out, added, |part, verdict| {
            let verdict = match verdict {
                Verdict::Moved(added) if added > 0 => Verdict::Moved(WORD),
                Verdict::Unknown => Verdict::Unknown,
                _ => Verdict::Again,
            };
            verdicts.put(part.slot, verdict);
        });
    }
}
