//! Regular files opened with O_APPEND: an append puts the position at the end of what it wrote, wherever that is.

use super::Object;
use super::file::{self, File, by_place, moved_on};
use crate::count::{Count, Counts, Transfer};
use crate::kernel::Kernel;
use crate::kind::{Direction, Evidence};
use crate::part::Sharers;
use crate::verdict::Verdicts;

/// A regular file that is appended to.
pub struct Append;

impl Object for Append {
    fn evidence(_direction: Direction, _is_plain: bool) -> Evidence {
        Evidence::Position
    }

    fn count(direction: Direction, transfer: Transfer) -> Count {
        match direction {
            Direction::In => Count::Written(transfer.bytes),
            Direction::Out => Count::At(transfer.position),
        }
    }

    fn baseline(fd: i32, _is_shut: bool, kernel: &mut impl Kernel) -> Counts {
        file::at_position(fd, kernel)
    }

    /// Where an append began is known only from the second one on.
    fn judge(sharers: Sharers, kernel: &mut impl Kernel, verdicts: &mut Verdicts) {
        let Sharers { fd, stream, .. } = sharers;
        if sharers.side(Direction::In).next().is_some() {
            return File::judge(sharers, kernel, verdicts);
        }
        if by_place(sharers, kernel, verdicts) {
            return;
        }
        let entered = sharers.entered(Direction::Out);
        let wanted = entered.clone().fold(0u64, |sum, part| sum.saturating_add(part.len));
        let total = match moved_on(fd, stream, kernel) {
            // Others have appended in between, or nothing is known of the beginning.
            Some(moved) if moved > wanted && entered.count() == 1 => Some(wanted),
            moved => moved,
        };
        sharers.share(Direction::Out, total, verdicts);
    }
}
