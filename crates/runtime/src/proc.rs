//! What the runtime reads of its own process in `/proc`: in the constructor, where nobody else uses the table of descriptors,
//! and by threads that have a table of their own. What a line says, `us_sites::maps` knows.

use core::ffi::CStr;

use us_abi::COMMON_MEMORY;
use us_sites::maps::path;
pub use us_sites::maps::{EXEC, Line, READ, WRITE, hex, range};

use crate::inquiry;
use crate::raw::{self, decimal, failed, nr};
use crate::state::{self, Decimal};

/// A file of the kernel's about this process, and what it is called in a question.
pub struct File<'a> {
    /// Where it is.
    pub path: &'a CStr,
    /// Of [`inquiry`].
    pub subject: u32,
    /// The thread or descriptor that it is about.
    pub number: u32,
}

impl<'a> File<'a> {
    const fn of_process(path: &'a CStr, subject: u32) -> File<'a> {
        File { path, subject, number: 0 }
    }
}

/// Calls `f` with pieces of a file of the kernel's; what `f` returns is kept in front of the next piece.
fn read_file(file: &File, mut f: impl FnMut(&[u8]) -> usize) -> bool {
    let mut buffer = [0u8; 4096];
    let mut have = 0;
    // SAFETY: opens, reads into our buffer, closes, in the coordinator's own table.
    unsafe {
        let opened = raw::call3(nr::OPEN, file.path.as_ptr() as u64, 0o2000000, 0);
        if failed(opened) {
            return inquiry::is_missing(opened) && inquiry::read(file.subject, file.number, f);
        }
        loop {
            let room = (buffer.len() - have) as u64;
            let got = raw::call3(nr::READ, opened as u64, buffer.as_mut_ptr().add(have) as u64, room);
            if got <= 0 {
                break;
            }
            let all = have + got as usize;
            let used = f(&buffer[..all]);
            buffer.copy_within(used..all, 0);
            have = all - used;
        }
        raw::call1(nr::CLOSE, opened as u64);
    }
    true
}

/// Calls `f` for every line of `/proc/self/maps`.
pub fn each_mapping(f: impl FnMut(&[u8])) -> bool {
    each_line(&File::of_process(c"/proc/self/maps", inquiry::MAPS), f)
}

/// The same of `/proc/self/smaps`: behind the line of each mapping, what the kernel knows about it. Costs a walk over all
/// pages.
pub fn each_detail(f: impl FnMut(&[u8])) -> bool {
    each_line(&File::of_process(c"/proc/self/smaps", inquiry::DETAILS), f)
}

/// Calls `f` for every line of a file of the kernel's. In a thread with a descriptor table of its own.
pub fn each_line(file: &File, mut f: impl FnMut(&[u8])) -> bool {
    read_file(file, |bytes| {
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
    read_file(&File::of_process(c"/proc/self/statm", inquiry::MEMORY), |bytes| {
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
    let path = CStr::from_bytes_until_nul(&path).ok()?;
    read_file(&File { path, subject: inquiry::THREAD_STAT, number: tid }, |bytes| {
        // Behind the name, which may have anything in it.
        let end = bytes.iter().rposition(|byte| *byte == b')');
        letter = letter.or(end.and_then(|end| bytes.get(end + 2).copied()));
        bytes.len()
    });
    letter
}

/// Whether a process has ended and only waits to be asked for. One whose first thread has ended has others.
pub fn is_zombie(pid: u32) -> bool {
    of_process(pid).is_some_and(|[state, _, threads]| state == u64::from(b'Z') && threads <= 1)
}

/// Whether the first thread of a process has ended, or is ending.
pub fn is_ending(pid: u32) -> bool {
    const PF_EXITING: u64 = 4;
    of_process(pid).is_some_and(|[state, flags, _]| state == u64::from(b'Z') || flags & PF_EXITING != 0)
}

/// State, flags and number of threads of a process.
fn of_process(pid: u32) -> Option<[u64; 3]> {
    let path = state::joined(&[b"/proc/", Decimal::new(u64::from(pid)).bytes(), b"/stat"]);
    let path = CStr::from_bytes_until_nul(&path).ok()?;
    let mut found = None;
    read_file(&File { path, subject: inquiry::THREAD_STAT, number: pid }, |bytes| {
        let end = bytes.iter().rposition(|byte| *byte == b')').unwrap_or(0);
        let mut words = bytes[end..].split(|byte| *byte == b' ').skip(1);
        let state = words.next().and_then(|word| word.first()).map(|letter| u64::from(*letter));
        let mut number = |skipped| words.nth(skipped).and_then(decimal);
        let (flags, threads) = (number(5), number(10));
        found = state.zip(flags).zip(threads).map(|((state, flags), threads)| [state, flags, threads]);
        bytes.len()
    });
    found
}

/// How many threads this process has.
pub fn count_threads() -> Option<usize> {
    let mut count = None;
    read_file(&File::of_process(c"/proc/self/stat", inquiry::STAT), |bytes| {
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
    let path = CStr::from_bytes_until_nul(&path).ok()?;
    each_line(&File { path, subject: inquiry::THREAD_STATUS, number: tid }, |line| {
        own = own.or_else(|| hex(line.strip_prefix(b"SigPnd:\t")?));
        shared = shared.or_else(|| hex(line.strip_prefix(b"ShdPnd:\t")?));
    });
    Some((own?, own? | shared?))
}

/// Calls `f` with the kernel's id of every thread of this process. False if they cannot be listed.
pub fn each_task(mut f: impl FnMut(u32)) -> bool {
    raw::each_number(c"/proc/self/task", |tid, _| f(tid as u32))
        || inquiry::each_number(inquiry::THREADS, |tid| f(tid as u32))
}

/// `/proc/self/FOLDER/NUMBER`, with its NUL.
pub fn path_of(folder: &[u8], fd: i32) -> [u8; 40] {
    state::joined(&[b"/proc/self/", folder, b"/", Decimal::new(fd as u32 as u64).bytes()])
}

/// What kind of thing the kernel says is behind a descriptor: `pipe:[7]`, `anon_inode:[eventpoll]`, a path.
pub fn object_name(fd: i32, name: &mut [u8]) -> Option<&[u8]> {
    use crate::raw::nr::READLINK;
    let path = path_of(b"fd", fd);
    // SAFETY: the kernel reads a path and writes at most the name's room.
    let len =
        unsafe { raw::call3(READLINK, path.as_ptr() as u64, name.as_mut_ptr() as u64, name.len() as u64) };
    if inquiry::is_missing(len) && raw::is_open(fd) {
        return inquiry::text(inquiry::OBJECT, fd as u32, name);
    }
    name.get(..usize::try_from(len).ok()?)
}

/// What the kernel tells about a descriptor in `/proc/self/fdinfo`.
pub fn describe(fd: i32, text: &mut [u8]) -> Option<&[u8]> {
    let path = path_of(b"fdinfo", fd);
    let len = raw::read_path(CStr::from_bytes_until_nul(&path).ok()?, text);
    if inquiry::is_missing(len) && raw::is_open(fd) {
        return inquiry::text(inquiry::DESCRIPTOR, fd as u32, text);
    }
    text.get(..usize::try_from(len).ok()?)
}

/// Calls `f` with every open descriptor of this process.
pub fn each_descriptor(mut f: impl FnMut(i32)) {
    let listed = raw::each_number(c"/proc/self/fd", |fd, folder| {
        if fd != folder {
            f(fd as i32);
        }
    });
    if !listed {
        inquiry::each_number(inquiry::DESCRIPTORS, |fd| f(fd as i32));
    }
}

/// Whether a line's path is one of memory that processes share by a name.
pub fn is_common(line: &[u8]) -> bool {
    COMMON_MEMORY.iter().any(|common| path(line).starts_with(common.as_bytes()))
}
