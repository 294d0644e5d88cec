//! What this machine offers, as it is found by trying.

use std::ffi::CStr;
use std::os::fd::AsRawFd;
use std::ptr;

use crate::reap::{End, reap};

/// glibc's version, as in `2.36`.
pub fn glibc_version() -> String {
    // SAFETY: the function returns a static string.
    unsafe { CStr::from_ptr(libc::gnu_get_libc_version()) }.to_string_lossy().into_owned()
}

/// Whether the kernel offers Syscall User Dispatch. Tried in a child, which it would otherwise outlive.
pub fn has_syscall_user_dispatch() -> bool {
    const SET_SYSCALL_USER_DISPATCH: libc::c_int = 59;
    static ALLOW: u8 = 0;
    // SAFETY: the child calls only prctl and _exit; the selector is a static that says "allow".
    let pid = unsafe { libc::fork() };
    if pid == 0 {
        // SAFETY: as above.
        unsafe {
            libc::_exit(i32::from(libc::prctl(SET_SYSCALL_USER_DISPATCH, 1, 0, 0, &raw const ALLOW) != 0))
        }
    }
    pid > 0 && reap(pid as u32) == Some(End::Exited(0))
}

/// Whether the kernel offers `membarrier` with the commands that the runtime needs.
pub fn has_membarrier() -> bool {
    const QUERY: libc::c_int = 0;
    const GLOBAL_EXPEDITED: libc::c_long = 1 << 1;
    // SAFETY: a query changes nothing.
    let offered = unsafe { libc::syscall(libc::SYS_membarrier, QUERY, 0, 0) };
    offered > 0 && offered & GLOBAL_EXPEDITED != 0
}

/// Whether the kernel keeps robust futex lists.
pub fn has_robust_futexes() -> bool {
    let mut head: usize = 0;
    let mut length: usize = 0;
    // SAFETY: the call writes two words, into two locals.
    unsafe { libc::syscall(libc::SYS_get_robust_list, 0, &raw mut head, &raw mut length) == 0 }
}

/// How text can be made in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Text {
    /// Memory that has been written may become executable.
    OfMemory,
    /// Only a file in memory may be mapped as such.
    OfFiles,
    /// Not at all.
    None,
}

/// Tries it, as the runtime does at a program's start.
pub fn can_make_text() -> Text {
    const PAGE: usize = 4096;
    const READ_EXEC: libc::c_int = libc::PROT_READ | libc::PROT_EXEC;
    let map = |protection, fd| {
        let flags = libc::MAP_PRIVATE | if fd == -1 { libc::MAP_ANONYMOUS } else { 0 };
        // SAFETY: new memory, that nobody else knows of.
        let at = unsafe { libc::mmap(ptr::null_mut(), PAGE, protection, flags, fd, 0) };
        (at != libc::MAP_FAILED).then_some(at)
    };
    let Some(page) = map(libc::PROT_READ | libc::PROT_WRITE, -1) else { return Text::None };
    // SAFETY: the page that has just been mapped.
    let changed = unsafe {
        page.cast::<u8>().write(0xc3);
        let changed = libc::mprotect(page, PAGE, READ_EXEC) == 0;
        libc::munmap(page, PAGE);
        changed
    };
    if changed {
        return Text::OfMemory;
    }
    let file = rustix::fs::memfd_create("libunderstudy", rustix::fs::MemfdFlags::CLOEXEC);
    let filled = file.ok().filter(|file| rustix::io::write(file, &[0xc3; PAGE]).is_ok());
    match filled.and_then(|file| map(READ_EXEC, file.as_raw_fd())) {
        Some(page) => {
            // SAFETY: as above.
            unsafe { libc::munmap(page, PAGE) };
            Text::OfFiles
        }
        None => Text::None,
    }
}
