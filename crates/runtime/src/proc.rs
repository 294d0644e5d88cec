//! What the runtime reads of its own process in `/proc`: in the constructor, where nobody else uses the table of descriptors,
//! and by threads that have a table of their own. What a line says, `us_sites::maps` knows.

use core::ffi::CStr;

use us_abi::COMMON_MEMORY;
use us_sites::maps::path;
pub use us_sites::maps::{EXEC, Line, READ, WRITE, hex, range};

use crate::raw::{self, decimal, failed, nr};
use crate::state::{self, Decimal};

/// Calls `f` with pieces of a file of the kernel's; what `f` returns is kept in front of the next piece.
fn read_file(path: &CStr, mut f: impl FnMut(&[u8]) -> usize) -> bool {
    let mut buffer = [0u8; 4096];
    let mut have = 0;
    // SAFETY: opens, reads into our buffer, closes, in the coordinator's own table.
    unsafe {
        let file = raw::call3(nr::OPEN, path.as_ptr() as u64, 0o2000000, 0);
        if failed(file) {
            return false;
        }
        loop {
            let room = (buffer.len() - have) as u64;
            let got = raw::call3(nr::READ, file as u64, buffer.as_mut_ptr().add(have) as u64, room);
            if got <= 0 {
                break;
            }
            let all = have + got as usize;
            let used = f(&buffer[..all]);
            buffer.copy_within(used..all, 0);
            have = all - used;
        }
        raw::call1(nr::CLOSE, file as u64);
    }
    true
}

/// Calls `f` for every line of `/proc/self/maps`.
pub fn each_mapping(f: impl FnMut(&[u8])) -> bool {
    each_line(c"/proc/self/maps", f)
}

/// The same of `/proc/self/smaps`: behind the line of each mapping, what the kernel knows about it. Costs a walk over all
/// pages.
pub fn each_detail(f: impl FnMut(&[u8])) -> bool {
    each_line(c"/proc/self/smaps", f)
}

/// Calls `f` for every line of a file of the kernel's. In a thread with a descriptor table of its own.
pub fn each_line(path: &CStr, mut f: impl FnMut(&[u8])) -> bool {
    read_file(path, |bytes| {
        let mut start = 0;
        while let Some(end) = bytes[start..].iter().position(|byte| *byte == b'\n') {
            f(&bytes[start..start + end]);
            start += end + 1;
        }
        // A line longer than the buffer has a path that nobody needs whole.
        if start == 0 && bytes.len() == 4096 { bytes.len() } else { start }
    })
}

/// Bytes of memory that this process has resident, 0 if unknown.
pub fn resident_bytes() -> u64 {
    let mut pages = 0;
    read_file(c"/proc/self/statm", |bytes| {
        let field = bytes.split(|byte| *byte == b' ').nth(1).unwrap_or(&[]);
        pages = decimal(field).unwrap_or(0);
        bytes.len()
    });
    pages * 4096
}

/// The letter for what a thread of this process does: `R`, `S`, `D`, … `None` if it is gone.
pub fn task_state(tid: u32) -> Option<u8> {
    let path = state::joined(&[b"/proc/self/task/", Decimal::new(u64::from(tid)).bytes(), b"/stat"]);
    let mut letter = None;
    read_file(CStr::from_bytes_until_nul(&path).ok()?, |bytes| {
        // Behind the name, which may have anything in it.
        let end = bytes.iter().rposition(|byte| *byte == b')');
        letter = letter.or(end.and_then(|end| bytes.get(end + 2).copied()));
        bytes.len()
    });
    letter
}

/// How many threads this process has.
pub fn count_threads() -> Option<usize> {
    let mut count = None;
    read_file(c"/proc/self/stat", |bytes| {
        // The name may have anything in it, blanks and brackets as well. Behind it the number of threads is the eighteenth.
        let end = bytes.iter().rposition(|byte| *byte == b')').unwrap_or(0);
        count =
            bytes[end..].split(|byte| *byte == b' ').nth(18).and_then(decimal).map(|count| count as usize);
        bytes.len()
    });
    count
}

/// The signals that wait for a thread of this process, and those together with the process's own.
pub fn pending_signals(tid: u32) -> Option<(u64, u64)> {
    let path = state::joined(&[b"/proc/self/task/", Decimal::new(u64::from(tid)).bytes(), b"/status"]);
    let (mut own, mut shared) = (None, None);
    each_line(CStr::from_bytes_until_nul(&path).ok()?, |line| {
        own = own.or_else(|| hex(line.strip_prefix(b"SigPnd:\t")?));
        shared = shared.or_else(|| hex(line.strip_prefix(b"ShdPnd:\t")?));
    });
    Some((own?, own? | shared?))
}

/// Calls `f` with the kernel's id of every thread of this process. False if they cannot be listed.
pub fn each_task(mut f: impl FnMut(u32)) -> bool {
    raw::each_number(c"/proc/self/task", |tid, _| f(tid as u32))
}

/// Whether a line's path is one of memory that processes share by a name.
pub fn is_common(line: &[u8]) -> bool {
    COMMON_MEMORY.iter().any(|common| path(line).starts_with(common.as_bytes()))
}
