//! A filter of system calls (seccomp) that was set before `run`: by a unit's `SystemCallFilter`, by a container.
//!
//! It judges the supervisor's and the runtime's calls as well, and may end whoever makes one that it does not let pass: at the
//! program's start, or at the failover. So they are tried, in a child that may be ended by it.
//!
//! # Safety
//! Between fork and its end the child makes plain system calls, with arguments that change nothing.

use std::io;
use std::os::fd::AsRawFd;
use std::sync::atomic::AtomicU64;

use libc::{c_long, pid_t};

use crate::proc;
use crate::reap::reap;

/// What the runtime does when a call fails.
#[derive(Clone, Copy, PartialEq)]
enum Need {
    /// It cannot do without.
    Success,
    /// The same, where no harmless arguments succeed: it must not be the filter that answers.
    Answer,
    /// It goes on without it, but has to outlive the attempt.
    Survival,
}
use Need::{Answer, Success, Survival};

/// A call to try, with arguments that do no harm.
struct Try(&'static str, c_long, [u64; 6], Need);

const NONE: u64 = u64::MAX;
static ALLOW: u8 = 0;
/// Room for an address, or its size.
static LIST: AtomicU64 = AtomicU64::new(0);

fn tries(own: pid_t) -> Vec<Try> {
    const SYSCALL_USER_DISPATCH: u64 = 59;
    let own = own as u64;
    let list = &raw const LIST as u64;
    vec![
        Try("sigaltstack", libc::SYS_sigaltstack, [0; 6], Success),
        Try("mremap", libc::SYS_mremap, [0, 0, 0, 1, 0, 0], Answer),
        Try("madvise", libc::SYS_madvise, [0, 0, 0, 0, 0, 0], Success),
        Try("mprotect", libc::SYS_mprotect, [0, 0, 0, 0, 0, 0], Success),
        Try("prlimit64", libc::SYS_prlimit64, [0, libc::RLIMIT_STACK as u64, 0, 0, 0, 0], Success),
        Try("get_robust_list", libc::SYS_get_robust_list, [0, list, list, 0, 0, 0], Success),
        Try("membarrier", libc::SYS_membarrier, [0; 6], Success),
        Try("rt_sigpending", libc::SYS_rt_sigpending, [0, 8, 0, 0, 0, 0], Survival),
        Try("rt_sigtimedwait", libc::SYS_rt_sigtimedwait, [0, 0, 0, 8, 0, 0], Survival),
        Try("rt_sigqueueinfo", libc::SYS_rt_sigqueueinfo, [own, 0, 0, 0, 0, 0], Survival),
        Try("rt_tgsigqueueinfo", libc::SYS_rt_tgsigqueueinfo, [own, own, 0, 0, 0, 0], Answer),
        Try("tgkill", libc::SYS_tgkill, [own, own, 0, 0, 0, 0], Success),
        Try("kill", libc::SYS_kill, [own, 0, 0, 0, 0, 0], Success),
        Try("kcmp", libc::SYS_kcmp, [own, own, 0, 0, 0, 0], Survival),
        Try("pidfd_open", libc::SYS_pidfd_open, [own, 0, 0, 0, 0, 0], Success),
        Try("pidfd_send_signal", libc::SYS_pidfd_send_signal, [NONE, 0, 0, 0, 0, 0], Survival),
        Try("poll", libc::SYS_poll, [0; 6], Survival),
        Try("ioctl", libc::SYS_ioctl, [NONE, 0, 0, 0, 0, 0], Survival),
        Try("preadv2", libc::SYS_preadv2, [NONE, 0, 0, 0, 0, 0], Survival),
        Try("pwritev2", libc::SYS_pwritev2, [NONE, 0, 0, 0, 0, 0], Survival),
        Try("sched_getaffinity", libc::SYS_sched_getaffinity, [0, 0, 0, 0, 0, 0], Survival),
        Try("sched_setaffinity", libc::SYS_sched_setaffinity, [0, 0, 0, 0, 0, 0], Survival),
        Try("sched_getscheduler", libc::SYS_sched_getscheduler, [0; 6], Survival),
        Try("sched_getparam", libc::SYS_sched_getparam, [0; 6], Survival),
        Try("sched_setscheduler", libc::SYS_sched_setscheduler, [0, NONE, 0, 0, 0, 0], Survival),
        Try("getpriority", libc::SYS_getpriority, [0; 6], Survival),
        Try("setpriority", libc::SYS_setpriority, [NONE, 0, 0, 0, 0, 0], Survival),
        Try("setitimer", libc::SYS_setitimer, [NONE, 0, 0, 0, 0, 0], Survival),
        Try("timer_delete", libc::SYS_timer_delete, [NONE, 0, 0, 0, 0, 0], Survival),
        Try("fallocate", libc::SYS_fallocate, [NONE, 0, 0, 1, 0, 0], Survival),
        Try("flock", libc::SYS_flock, [NONE, 0, 0, 0, 0, 0], Survival),
        Try("statx", libc::SYS_statx, [NONE, 0, 0, 0, 0, 0], Survival),
        Try("getdents64", libc::SYS_getdents64, [NONE, 0, 0, 0, 0, 0], Survival),
        Try("pread64", libc::SYS_pread64, [NONE, 0, 0, 0, 0, 0], Survival),
        Try("pwrite64", libc::SYS_pwrite64, [NONE, 0, 0, 0, 0, 0], Survival),
        Try("close_range", libc::SYS_close_range, [NONE, NONE, 0, 0, 0, 0], Survival),
        Try("faccessat", libc::SYS_faccessat, [NONE, 0, 0, 0, 0, 0], Survival),
        Try("socket", libc::SYS_socket, [NONE, 0, 0, 0, 0, 0], Survival),
        Try("bind", libc::SYS_bind, [NONE, 0, 0, 0, 0, 0], Survival),
        Try("accept4", libc::SYS_accept4, [NONE, 0, 0, 0, 0, 0], Survival),
        Try("getsockopt", libc::SYS_getsockopt, [NONE, 0, 0, 0, 0, 0], Survival),
        Try("sendto", libc::SYS_sendto, [NONE, 0, 0, 0, 0, 0], Survival),
        Try("recvfrom", libc::SYS_recvfrom, [NONE, 0, 0, 0, 0, 0], Survival),
        Try("epoll_ctl", libc::SYS_epoll_ctl, [NONE, 0, 0, 0, 0, 0], Survival),
        Try("signalfd4", libc::SYS_signalfd4, [NONE, 0, 0, 0, 0, 0], Survival),
        Try("eventfd2", libc::SYS_eventfd2, [0; 6], Success),
        Try("ppoll", libc::SYS_ppoll, [0, 0, NONE, 0, 0, 0], Survival),
        Try("futex_waitv", libc::SYS_futex_waitv, [0; 6], Survival),
        Try("waitid", libc::SYS_waitid, [NONE, 0, 0, 0, 0, 0], Survival),
        Try("getrandom", libc::SYS_getrandom, [0; 6], Success),
        Try("getxattr", libc::SYS_getxattr, [0; 6], Survival),
        Try("rename", libc::SYS_rename, [0; 6], Survival),
        Try("mkdir", libc::SYS_mkdir, [0; 6], Survival),
        Try("rmdir", libc::SYS_rmdir, [0; 6], Survival),
        Try("unlinkat", libc::SYS_unlinkat, [NONE, 0, 0, 0, 0, 0], Survival),
        Try("ftruncate", libc::SYS_ftruncate, [NONE, 0, 0, 0, 0, 0], Survival),
        // Names, parents' deaths, orphans: what all `prctl`s share is that they are one call to most filters.
        Try("prctl", libc::SYS_prctl, [libc::PR_GET_DUMPABLE as u64, 0, 0, 0, 0, 0], Success),
        Try("prctl", libc::SYS_prctl, [SYSCALL_USER_DISPATCH, 1, 0, 0, &raw const ALLOW as u64, 0], Success),
    ]
}

/// The name of a call that a filter does not let pass, or may not; `None` if all is well.
pub fn obstacle() -> Option<String> {
    let is_filtered = proc::status("self", "Seccomp:").is_some_and(|mode| mode != "0");
    if is_filtered { first_missing() } else { None }
}

fn first_missing() -> Option<String> {
    let Ok((reader, writer)) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC) else {
        return Some("pipe2".into());
    };
    // SAFETY: the child makes system calls on memory that was prepared here, and ends.
    let pid = unsafe { libc::fork() };
    if pid == 0 {
        // SAFETY: as above.
        unsafe { attempt(&tries(libc::getpid()), writer.as_raw_fd()) }
    }
    drop(writer);
    if pid < 0 {
        return Some("clone".into());
    }
    let mut passed = 0;
    let mut bytes = [0u8; 64];
    while let Ok(count @ 1..) = rustix::io::read(&reader, &mut bytes) {
        passed += count;
    }
    reap(pid as u32);
    tries(pid).get(passed).map(|call| call.0.into())
}

/// Tries one after the other, and says of each that it has passed.
///
/// # Safety
/// In a forked child.
unsafe fn attempt(tries: &[Try], report: i32) -> ! {
    for Try(_, number, [a, b, c, d, e, f], need) in tries {
        // SAFETY: with these arguments the calls change nothing but attributes of this process, which ends.
        unsafe {
            let failed = libc::syscall(*number, *a, *b, *c, *d, *e, *f) < 0;
            let refused = matches!(
                io::Error::last_os_error().raw_os_error(),
                Some(libc::EPERM | libc::ENOSYS | libc::EACCES)
            );
            if failed && (*need == Success || *need == Answer && refused) {
                libc::_exit(1);
            }
            libc::write(report, [0u8].as_ptr().cast(), 1);
        }
    }
    // SAFETY: the end of the child.
    unsafe { libc::_exit(0) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn everything_passes_without_a_filter() {
        assert_eq!(first_missing(), None);
    }
}
