//! Signals by a descriptor of a process. The kernel's descriptor is of that process's first primary; the guest means the process,
//! whichever copy it is now. A SIGKILL by it would only end a copy.

use us_calls::Row;

use super::numbers;
use crate::guest::GuestPtr;
use crate::raw::{self, nr};
use crate::{members, proc};

/// The call.
pub const SEND_SIGNAL: u64 = 424;

/// The process of the group that a descriptor names, while it is one.
fn named_by(fd: i32) -> Option<u32> {
    let pid = numbers::meant_by(fd)?;
    let primary = members::primary(members::find(pid)?);
    // Of one that is gone, and whose number no other process of the group has by now.
    let is_the_same =
        || primary != pid || members::is_unasked(pid) || members::is_between(pid) && !members::exists(pid);
    (process_of(fd)? > 0 || is_the_same()).then_some(pid)
}

/// A signal by a descriptor as one by the number of the process, if that is one of the group.
pub fn by_number(args: &[u64; 6]) -> Option<(&'static Row, [u64; 6])> {
    let [fd, signal, info, flags, ..] = *args;
    let is_plain = flags == 0 && (info == 0 || GuestPtr::<u32>::at(info).load() == Some(signal as u32));
    let pid = named_by(fd as i32).filter(|_| is_plain)?;
    let number = if info == 0 { nr::KILL } else { nr::RT_SIGQUEUEINFO };
    Some((us_calls::row(number)?, [pid.into(), signal, info, 0, 0, 0]))
}

/// The process that the kernel says a descriptor is of: -1 once it is gone, `None` for any other descriptor.
pub fn process_of(fd: i32) -> Option<i64> {
    const NAME: &[u8] = b"Pid:\t";
    let mut text = [0u8; 512];
    let text = proc::describe(fd, &mut text)?;
    let value = text.split(|byte| *byte == b'\n').find_map(|line| line.strip_prefix(NAME))?;
    Some(if value.first() == Some(&b'-') { -1 } else { raw::decimal(value)? as i64 })
}
