//! Regular files: the position tells, against the log's.
//!
//! The log knows only of this process's calls that it has. Others may have moved the position meanwhile: threads whose calls are
//! in doubt as well, or processes that share the open file. Where that can be, the primary notes in the call's slot where the file
//! was before; what lies between there and here is then looked at for the call's own bytes.

use super::Object;
use crate::count::{Count, Counts, Transfer};
use crate::kernel::Kernel;
use crate::kind::{Direction, Evidence, Kind};
use crate::part::{Part, Sharers, Stream};
use crate::verdict::{Verdict, Verdicts};

/// A regular file that is not appended to.
pub struct File;

impl Object for File {
    fn evidence(_direction: Direction, _is_plain: bool) -> Evidence {
        Evidence::Position
    }

    /// Both ways move the same position.
    fn count(_direction: Direction, transfer: Transfer) -> Count {
        Count::Written(transfer.bytes)
    }

    fn baseline(fd: i32, _is_shut: bool, kernel: &mut impl Kernel) -> Counts {
        at_position(fd, kernel)
    }

    /// One write is carried on from where it stopped. Reads have told nobody anything yet, and the same bytes may be written to
    /// the same place twice: for these the position is put back, and they are made again.
    fn judge(sharers: Sharers, kernel: &mut impl Kernel, verdicts: &mut Verdicts) {
        let Sharers { fd, stream, .. } = sharers;
        if by_place(sharers, kernel, verdicts) {
            return;
        }
        let moved = moved_on(fd, stream, kernel);
        if sharers.is_one() && sharers.side(Direction::Out).next().is_some() {
            return sharers.share(Direction::Out, moved, verdicts);
        }
        let wanted = sharers.parts().fold(0u64, |sum, part| sum.saturating_add(part.len));
        let undone = match moved {
            Some(0) => true,
            // Further than the calls in doubt could have moved it: others use the file.
            Some(moved) if moved <= wanted => kernel.set_position(fd, stream.written),
            _ => false,
        };
        for part in sharers.parts() {
            let verdict = match moved {
                _ if undone || !part.entered => Verdict::Again,
                // A file without a position to put back (some of the kernel's own).
                Some(moved) if sharers.is_one() && !part.is_elsewhere => Verdict::Moved(moved),
                _ => Verdict::Unknown,
            };
            verdicts.put(part.slot, verdict);
        }
    }

    fn taken(fd: i32, stream: &Stream, kernel: &mut impl Kernel) -> Option<u64> {
        moved_on(fd, stream, kernel)
    }
}

/// A file, or folder, counts from its position.
pub(super) fn at_position(fd: i32, kernel: &mut impl Kernel) -> Counts {
    Counts { read: 0, written: kernel.position(fd).unwrap_or(0) }
}

/// Bytes by which the kernel's position of a file is ahead of the log's; `None` if it is behind, or nowhere.
///
/// pread and pwrite move no position: they are issued again as they are.
pub(super) fn moved_on(fd: i32, stream: &Stream, kernel: &mut impl Kernel) -> Option<u64> {
    kernel.position(fd)?.checked_sub(stream.written)
}

/// Judges by the places that the primary has noted, of each call that it had entered the kernel with. `false` if it has not.
pub(super) fn by_place(sharers: Sharers, kernel: &mut impl Kernel, verdicts: &mut Verdicts) -> bool {
    let Sharers { fd, stream, .. } = sharers;
    let entered = || sharers.parts().filter(|part| part.entered);
    // What is read into several places is logged piece by piece, and no slot but the first says that the kernel was entered.
    let may_be_told = |part: &Part| part.is_told || !(part.is_output() || part.is_in_slot);
    if sharers.parts().any(|part| part.from.is_none() && (part.entered || may_be_told(part))) {
        return false;
    }
    // Of an append the next byte goes to the file's end.
    let appends = stream.kind == Kind::Append;
    let position = kernel.position(fd);
    let end = if appends { kernel.size(fd) } else { position };
    let place_of = |part: &Part| if part.is_output() { end } else { position };
    if entered().any(|part| place_of(part).is_none()) {
        return false;
    }
    for part in sharers.parts() {
        // Of one that had not entered the kernel it makes no difference where the file is.
        let Some((from, now)) = part.from.filter(|_| part.entered).zip(place_of(part)) else {
            verdicts.put(part.slot, Verdict::Again);
            continue;
        };
        let verdict = match now.checked_sub(from) {
            Some(0) => Verdict::Again,
            Some(moved) if part.is_output() => written(part, from, moved, kernel),
            Some(moved) => match kernel.came_from(part, from, moved.min(part.len)) {
                Some(true) => Verdict::Moved(moved.min(part.len)),
                // What others have read stays theirs.
                Some(false) => Verdict::Again,
                None if moved <= part.len && entered().count() == 1 && kernel.set_position(fd, from) => {
                    Verdict::Again
                }
                // Others have moved it.
                None => Verdict::Unknown,
            },
            // Somebody has set it back.
            None => Verdict::Unknown,
        };
        verdicts.put(part.slot, verdict);
    }
    true
}

/// A write before which the file was at `from`, and is now `moved` bytes further.
fn written(part: &Part, from: u64, moved: u64, kernel: &mut impl Kernel) -> Verdict {
    match kernel.lies_at(part, from, moved) {
        Some(true) => Verdict::Moved(part.len),
        // A file system that is full takes a part.
        _ if moved < part.len => Verdict::Moved(moved),
        Some(false) => Verdict::Again,
        None => Verdict::Moved(part.len),
    }
}
