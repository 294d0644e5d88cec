//! Stepping aside: the program begins again without the library, before its first instruction.
//!
//! Some programs cannot be what they are with the library in them, even if it did nothing: a sanitizer's runtime has doors of
//! its own in front of libc's functions, and wants to be the first there. And in some places the library cannot do its
//! work. Nothing has been changed when the constructor notices, so the same file is executed again: descriptors, masks and
//! limits outlive that, and the environment is what the user gave.

use core::sync::atomic::Ordering;

use us_abi::{Cause, GroupState, MAGIC, SegmentHeader, VERSION, leaving};

use crate::raw::{self, failed, nr};
use crate::sys::text;
use crate::{real, state};

/// Why this program must be without the library.
fn reason() -> Option<&'static [u8]> {
    if real::has_sanitizer() {
        return Some(b"it is built with a sanitizer, whose runtime takes the same functions over");
    }
    (!text::is_possible()).then_some(
        b"no memory can be made executable here (MemoryDenyWriteExecute), nor a file in memory be mapped",
    )
}

/// Executes the program again without the library if that must be; comes back if not, or if it cannot be.
///
/// # Safety
/// In the constructor: the process's own arrays, the environment without what belongs to the library; `segment` is a path, and so
/// is `executed`, the file as it was named, unless it is 0.
pub unsafe fn step_if_needed(
    arguments: *mut *mut u8,
    environment: *mut *mut u8,
    segment: *const u8,
    executed: u64,
) -> bool {
    use crate::raw::nr::EXECVE;
    let Some(why) = reason() else { return false };
    // SAFETY: the caller's promise; nothing else is mapped, and no other thread exists.
    unsafe {
        say(segment, why);
        for file in [executed, c"/proc/self/exe".as_ptr() as u64] {
            if file != 0 {
                raw::call3(EXECVE, file, arguments as u64, environment as u64);
            }
        }
    }
    true
}

/// Tells the supervisor, if this process is the one that the segment is for.
///
/// # Safety
/// In the constructor; `path` ends with NUL.
unsafe fn say(path: *const u8, why: &[u8]) {
    const READ_WRITE_CLOEXEC: u64 = 0o2000002;
    const SHARED: u64 = 1;
    // SAFETY: opens and maps a file that the supervisor names, where there is room; the exec unmaps it.
    let header = unsafe {
        let file = raw::call3(nr::OPEN, path as u64, READ_WRITE_CLOEXEC, 0);
        if failed(file) {
            return;
        }
        let bytes = size_of::<SegmentHeader>() as u64;
        let at = raw::call6(nr::MMAP, [0, bytes, 3, SHARED, file as u64, 0]);
        raw::call1(nr::CLOSE, file as u64);
        if failed(at) {
            return;
        }
        &*(at as *const SegmentHeader)
    };
    // SAFETY: asks for a number.
    let pid = unsafe { raw::call1(nr::GETPID, 0) } as u32;
    let known = header.magic == MAGIC && header.version == VERSION;
    let begins =
        || header.root_pid.load(Ordering::Acquire) == pid && header.guest_pid.load(Ordering::Acquire) == 0;
    let comes_back = || {
        header.leaving.0.load(Ordering::Acquire) == leaving::EXEC
            && header.primary_pid.load(Ordering::Relaxed) == pid
    };
    if !known || !(begins() || comes_back()) {
        return;
    }
    state::set_header(core::ptr::from_ref(header).cast_mut());
    header.guest_pid.store(pid, Ordering::Release);
    header.primary_pid.store(pid, Ordering::Release);
    header.leaving.0.store(leaving::NO, Ordering::SeqCst);
    state::overwrite_text(&header.why.0, Cause::Bound as u32, &[why]);
    header.dropped.0.store(Cause::Bound as u32, Ordering::Release);
    header.state.0.store(GroupState::Unprotected as u32, Ordering::Release);
    state::attention();
}
