//! What a call on a stream has moved, and what is counted of it.

use crate::call::Call;
use crate::fdtable::{self, Kind};
use crate::sys::spans::Source;

/// Whether an input with these flags takes what it brings from the stream.
pub fn takes(flags: u64) -> bool {
    use crate::kernel::{MSG_ERRQUEUE, MSG_PEEK};
    flags & (MSG_PEEK | MSG_ERRQUEUE) == 0
}

/// What a transfer has changed an eventfd by; 0 for anything else, whose bytes need not be looked at.
pub fn word_of(shadow: &fdtable::Shadow, source: Source) -> u64 {
    if shadow.kind() == Kind::Event { source.first_word() } else { 0 }
}

/// Where an appending write has ended: the one thing about it that a standby cannot compute.
pub fn append_position(call: &Call, result: i64) -> u64 {
    let fd = call.args[0] as i32;
    match fdtable::get(fd) {
        Some(shadow) if result > 0 && shadow.kind() == fdtable::Kind::Append => {
            fdtable::position(fd).unwrap_or(0)
        }
        _ => 0,
    }
}

/// A call has moved bytes of connections, of which nobody counts how many have been read.
pub fn is_uncounted(number: u16, args: &[u64; 6]) {
    use linux_raw_sys::general::{__NR_recvmmsg as RECVMMSG, __NR_splice as SPLICE};
    if matches!(u32::from(number), RECVMMSG | SPLICE)
        && let Some(row) = fdtable::get(args[0] as i32).and_then(fdtable::Shadow::connection)
    {
        row.flags.fetch_or(us_abi::connection::UNCOUNTED, core::sync::atomic::Ordering::AcqRel);
    }
}
