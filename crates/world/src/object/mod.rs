//! One file a kind of object.

mod append;
mod eventfd;
mod file;
mod opaque;
mod pipe;
mod socket;
mod tcp;

pub use append::Append;
pub use eventfd::Eventfd;
pub use file::File;
pub use opaque::Opaque;
pub use pipe::{Pipe, counted, touched};
pub use socket::Socket;
pub use tcp::Tcp;

use crate::count::{Count, Counts, Transfer};
use crate::kernel::Kernel;
use crate::kind::{Direction, Evidence};
use crate::part::{Sharers, Stream};
use crate::verdict::Verdicts;

/// What a kind of object answers.
pub trait Object {
    /// Whether what the copy that acts counts, from the object's making on, is what the kernel would say. Then a log that begins
    /// in the middle of a program's life need not ask it.
    const IS_COUNTED: bool = false;

    /// What a primary prepares before a call. `is_plain`: one span of memory and no flags.
    fn evidence(direction: Direction, is_plain: bool) -> Evidence;

    /// What the log counts of a transfer.
    fn count(direction: Direction, transfer: Transfer) -> Count {
        match direction {
            Direction::In => Count::Read(transfer.bytes),
            Direction::Out => Count::Written(transfer.bytes),
        }
    }

    /// Where counting begins when a log does in the middle of a program's life.
    fn baseline(_fd: i32, _is_shut: bool, _kernel: &mut impl Kernel) -> Counts {
        Counts::default()
    }

    /// The same, where the kernel's figures are exact; `None` where they need not be: for a check of what was counted.
    fn exact(fd: i32, is_shut: bool, kernel: &mut impl Kernel) -> Option<Counts> {
        Some(Self::baseline(fd, is_shut, kernel))
    }

    /// Judges all calls in doubt on one stream. A part without a verdict afterwards counts as Unknown.
    fn judge(sharers: Sharers, kernel: &mut impl Kernel, verdicts: &mut Verdicts);

    /// Bytes that a copy in doubt, alone on this stream, has taken from here; `None` where what is left tells nothing.
    fn taken(_fd: i32, _stream: &Stream, _kernel: &mut impl Kernel) -> Option<u64> {
        None
    }
}
