//! Anything where the kernel keeps no count that is the group's alone.

use super::Object;
use super::file::at_position;
use crate::count::Counts;
use crate::kernel::{Kernel, Touched};
use crate::kind::{Direction, Evidence};
use crate::part::{Sharers, Told};
use crate::verdict::{Verdict, Verdicts};

/// What is none of the others. An input's slot shows what has come.
pub struct Opaque;

impl Object for Opaque {
    fn evidence(direction: Direction, is_plain: bool) -> Evidence {
        match direction {
            // Some devices take readv apart by themselves: a read in its place would not be the same.
            Direction::In if is_plain => Evidence::Pattern,
            _ => Evidence::Totals,
        }
    }

    /// Folders have a position.
    fn baseline(fd: i32, _is_shut: bool, kernel: &mut impl Kernel) -> Counts {
        at_position(fd, kernel)
    }

    fn judge(sharers: Sharers, kernel: &mut impl Kernel, verdicts: &mut Verdicts) {
        for part in sharers.parts() {
            let verdict = match part.told {
                Told::Nothing => Verdict::Again,
                Told::Moved(moved) => Verdict::Moved(moved.into()),
                Told::None if !part.entered => Verdict::Again,
                Told::None if part.is_output() => Verdict::Unknown,
                Told::None => match kernel.touched(part) {
                    Touched::UpTo(got) => Verdict::Moved(kernel.whole_records(part, got)),
                    // All is gone; or, of a further piece, only what was there already is taken.
                    Touched::Beyond | Touched::Unprepared => Verdict::Unknown,
                },
            };
            verdicts.put(part.slot, verdict);
        }
    }
}
