//! Children that have ended, or been stopped: what the kernel tells of them, and taking leave.

use std::io;
use std::ptr;

/// How a process ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// By exit, with this code.
    Exited(i32),
    /// By this signal.
    Killed(i32),
}

impl End {
    /// The exit code by which a shell would report it.
    pub fn exit_code(self) -> i32 {
        match self {
            End::Exited(code) => code,
            End::Killed(signal) => 128 + signal,
        }
    }

    /// In words: `exit code 3`, `killed by SIGKILL`.
    pub fn words(self) -> String {
        match self {
            End::Exited(code) => format!("exit code {code}"),
            End::Killed(signal) => format!("killed by {}", crate::signals::name(signal)),
        }
    }
}

/// What the kernel tells a parent of a child that has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reaped {
    /// As `wait4` gives it.
    pub status: i32,
    /// Time that it has used, its waited-for children included: user, system, microseconds.
    pub used_us: [u64; 2],
    /// Its process group, session and real user; `None` where the kernel was not asked before it forgot them.
    pub whose: Option<Whose>,
}

/// What the kernel knows of a process until it is reaped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Whose {
    /// Its process group.
    pub group: u32,
    /// Its session.
    pub session: u32,
    /// Its real user.
    pub user: u32,
}

impl Reaped {
    /// Of a process of which only its end is known.
    pub fn by(status: i32) -> Reaped {
        Reaped { status, used_us: [0; 2], whose: None }
    }

    /// How it ended.
    pub fn end(self) -> End {
        if libc::WIFSIGNALED(self.status) {
            End::Killed(libc::WTERMSIG(self.status))
        } else {
            End::Exited(libc::WEXITSTATUS(self.status))
        }
    }
}

/// A child that has ended and has not been reaped. It stays so: the caller knows whose it is.
pub fn next_ended_child() -> Option<u32> {
    loop {
        // SAFETY: siginfo_t is plain old data; the kernel fills it. Its pid is the valid member of the union once a
        // child was reported, and zero if none was.
        unsafe {
            let mut info: libc::siginfo_t = std::mem::zeroed();
            match libc::waitid(libc::P_ALL, 0, &mut info, libc::WEXITED | libc::WNOHANG | libc::WNOWAIT) {
                0 => return (info.si_pid() != 0).then(|| info.si_pid() as u32),
                _ if io::Error::last_os_error().kind() == io::ErrorKind::Interrupted => {}
                _ => return None,
            }
        }
    }
}

/// How the child `pid` has ended; `None` while it has not. It stays unreaped.
pub fn end_of(pid: u32) -> Option<Reaped> {
    const DUMPED: i32 = 0x80;
    // SAFETY: siginfo_t and rusage are plain old data, and the kernel fills them. libc's own function does not ask for the
    // latter.
    let (got, info, used) = unsafe {
        let mut info: libc::siginfo_t = std::mem::zeroed();
        let mut used: libc::rusage = std::mem::zeroed();
        let options = libc::WEXITED | libc::WNOHANG | libc::WNOWAIT;
        let got = libc::syscall(libc::SYS_waitid, libc::P_PID, pid, &raw mut info, options, &raw mut used);
        (got, info, used)
    };
    // SAFETY: valid in what tells of a child; zero if there was none.
    let (found, user, value) = unsafe { (info.si_pid(), info.si_uid(), info.si_status()) };
    if got != 0 || found == 0 {
        return None;
    }
    let status = match info.si_code {
        libc::CLD_EXITED => (value & 0xff) << 8,
        libc::CLD_DUMPED => value | DUMPED,
        _ => value,
    };
    // SAFETY: asks for two numbers.
    let [group, session] = unsafe { [libc::getpgid(found), libc::getsid(found)] }.map(u32::try_from);
    let whose = group.ok().zip(session.ok()).map(|(group, session)| Whose { group, session, user });
    Some(Reaped { status, used_us: [micros(used.ru_utime), micros(used.ru_stime)], whose })
}

/// A child that has been stopped or goes on, of which we have not been told, its status as `wait4` gives it, and its real user.
pub fn next_standing_child() -> Option<(u32, u32, u32)> {
    loop {
        // SAFETY: as above; the status is valid as well.
        unsafe {
            let mut info: libc::siginfo_t = std::mem::zeroed();
            let options = libc::WSTOPPED | libc::WCONTINUED | libc::WNOHANG;
            match libc::waitid(libc::P_ALL, 0, &mut info, options) {
                0 if info.si_pid() == 0 => return None,
                0 => {
                    let stopped = info.si_code != libc::CLD_CONTINUED;
                    let status =
                        if stopped { (info.si_status() as u32) << 8 | 0x7f } else { us_abi::CONTINUED };
                    return Some((info.si_pid() as u32, status, info.si_uid()));
                }
                _ if io::Error::last_os_error().kind() == io::ErrorKind::Interrupted => {}
                _ => return None,
            }
        }
    }
}

/// Whether the kernel says that both processes have one table of descriptors, as copies have. `false` where it may not say.
pub fn share_descriptors(one: u32, other: u32) -> bool {
    const FILES: libc::c_int = 2;
    // SAFETY: asks about two processes.
    unsafe { libc::syscall(libc::SYS_kcmp, one, other, FILES, 0, 0) == 0 }
}

/// Whether we have any child, alive or not reaped.
pub fn has_children() -> bool {
    // SAFETY: with a null place for its answer the call only says whether there is anybody to wait for.
    let answer = unsafe {
        libc::waitid(libc::P_ALL, 0, ptr::null_mut(), libc::WEXITED | libc::WNOHANG | libc::WNOWAIT)
    };
    answer == 0
}

/// Waits for the child `pid`, reaps it and says how it ended; `None` when it is no child of ours.
pub fn reap(pid: u32) -> Option<End> {
    take(pid).map(Reaped::end)
}

/// Waits for the child `pid`, which has been killed, for `limit` at most; whether it is gone. A debugger may hold it.
pub fn reap_within(pid: u32, limit: std::time::Duration) -> bool {
    const PAUSE: std::time::Duration = std::time::Duration::from_micros(50);
    let end = std::time::Instant::now() + limit;
    loop {
        // SAFETY: asks for nothing but the end itself.
        let got = unsafe { libc::waitpid(pid as libc::pid_t, ptr::null_mut(), libc::WNOHANG) };
        // An error: somebody has reaped it already.
        if got != 0 {
            return true;
        }
        if std::time::Instant::now() >= end {
            return false;
        }
        std::thread::sleep(PAUSE);
    }
}

/// As [`reap`], with all that the kernel tells.
pub fn take(pid: u32) -> Option<Reaped> {
    // Of one that has not ended yet, which is waited for, nobody asks whose it was.
    let whose = end_of(pid).and_then(|ended| ended.whose);
    loop {
        let mut status = 0;
        // SAFETY: rusage is plain old data; both places are locals of the right type.
        let (got, used) = unsafe {
            let mut used: libc::rusage = std::mem::zeroed();
            (libc::wait4(pid as libc::pid_t, &mut status, 0, &mut used), used)
        };
        if got == pid as libc::pid_t {
            return Some(Reaped { status, used_us: [micros(used.ru_utime), micros(used.ru_stime)], whose });
        }
        if io::Error::last_os_error().kind() != io::ErrorKind::Interrupted {
            return None;
        }
    }
}

fn micros(time: libc::timeval) -> u64 {
    time.tv_sec as u64 * 1_000_000 + time.tv_usec as u64
}
