//! Files of the group's folder, opened: the one place where the runtime trusts a path.
//!
//! What lies in a segment or the roster names processes to signal and bytes to believe. A path that somebody else may have
//! changed since the supervisor made it must lead to nothing: no link at its end, and a regular file of this
//! process's own user that nobody else may read or write. What the path does not lead to the supervisor may give
//! ([`handout`]): the process has another user than the folder, or another root.

use us_abi::handout as wanted;

use crate::raw::{self, failed, nr};
use crate::{guest, handout};

/// Opens what is there, for reading.
pub const READ: u64 = 0;
/// Opens what is there, for reading and writing.
pub const READ_WRITE: u64 = 2;
/// Makes the file, which must not be there.
pub const MAKE: u64 = READ_WRITE | 0o300; // CREAT EXCL
/// Makes the file if it is not there.
pub const MAKE_OR_FIND: u64 = READ_WRITE | 0o100; // CREAT

/// Opens the file at `path`, or has it given. The descriptor, which must not stay in the guest's table, or an errno below zero.
///
/// # Safety
/// The path ends with NUL.
pub unsafe fn open(path: *const u8, flags: u64) -> i64 {
    use crate::raw::err::ENOTDIR;
    // SAFETY: the caller's promise is passed on.
    let file = unsafe { open_here(path, flags) };
    match file {
        // SAFETY: as above.
        raw::err::ENOENT | raw::err::EACCES | ENOTDIR => unsafe { ask(path, flags) }.unwrap_or(file),
        _ => file,
    }
}

/// # Safety
/// The path ends with NUL.
unsafe fn ask(path: *const u8, flags: u64) -> Option<i64> {
    let wanted = match flags {
        READ => wanted::READ,
        READ_WRITE => wanted::READ_WRITE,
        MAKE => wanted::MAKE,
        MAKE_OR_FIND => wanted::MAKE_OR_FIND,
        _ => return None,
    };
    // SAFETY: a string that ends with NUL, by the caller.
    let path = unsafe { core::slice::from_raw_parts(path, guest::string_len(path as u64)) };
    let folder = path.iter().rposition(|byte| *byte == b'/')? + 1;
    handout::ask(&path[..folder], &path[folder..], wanted)
}

/// As [`open`], of a file that nobody is asked for.
///
/// # Safety
/// The path ends with NUL.
pub unsafe fn open_here(path: *const u8, flags: u64) -> i64 {
    const NONBLOCK_NOFOLLOW_CLOEXEC: u64 = 0o2_404_000;
    const OWNER_ONLY: u64 = 0o600;
    // SAFETY: a path that ends with NUL, by the caller; what was opened here is closed here if it is not used.
    unsafe {
        let file = raw::call3(nr::OPEN, path as u64, flags | NONBLOCK_NOFOLLOW_CLOEXEC, OWNER_ONLY);
        if failed(file) || is_own(file as u64) {
            return file;
        }
        raw::call1(nr::CLOSE, file as u64);
        raw::err::EACCES
    }
}

/// Whether the open file is a regular one of this process's user, which nobody else may read or write.
fn is_own(file: u64) -> bool {
    use crate::raw::nr::GETEUID;
    const KIND_AND_OTHERS: u32 = 0o170_077;
    const REGULAR: u32 = 0o100_000;
    let mut status = [0u32; 36];
    // SAFETY: 144 bytes, as the kernel writes them.
    let (asked, user) =
        unsafe { (raw::call2(nr::FSTAT, file, status.as_mut_ptr() as u64), raw::call1(GETEUID, 0)) };
    let (mode, owner) = (status[6], status[7]);
    asked == 0 && mode & KIND_AND_OTHERS == REGULAR && i64::from(owner) == user
}
