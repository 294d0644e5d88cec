//! Whether this program's instructions are executed by the processor, and its system calls so made by themselves.
//!
//! An emulator (valgrind) runs the runtime as a part of its guest and hands the guest's system calls on to the kernel
//! from a place of its own. Armed for such a thread, the wall of [`super::trap`] closes around the emulator: its next
//! system call dies of SIGSYS. The kernel says where a call came from, and the runtime's come from the runtime.

use crate::raw;
use crate::sys::trap;

/// Asks once, before the runtime changes anything. True as well where nobody tells.
pub fn is_executed() -> bool {
    let mut text = [0u8; 256];
    let bytes = raw::read_path(c"/proc/thread-self/syscall", &mut text);
    // The number, six arguments, the stack and the instruction: `0 0x3 … 0x7ffd… 0x7f01…`.
    let said = text.get(..bytes.max(0) as usize).unwrap_or_default().trim_ascii_end();
    let last = said.rsplit(|byte| *byte == b' ').next().unwrap_or_default();
    let digits = last.strip_prefix(b"0x").and_then(|digits| core::str::from_utf8(digits).ok());
    let place = digits.and_then(|digits| u64::from_str_radix(digits, 16).ok());
    place.is_none_or(trap::is_runtime)
}
