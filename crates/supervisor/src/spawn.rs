//! Starting the program, and the calls of process control that no safe wrapper offers.
//!
//! # Safety
//! Between fork and exec the child calls only functions that are safe after a fork of a process with one
//! thread; everything it needs is prepared before.

use std::ffi::{CStr, CString, OsStr, OsString};
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;
use std::ptr;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};

use rustix::process::Resource;
use us_abi::{ENV_LIMITS, ENV_PRELOAD, ENV_SEED, ENV_SEGMENT};

use crate::child::Child;
use crate::error::Error;
use crate::limit;
use crate::options::CpuPair;
use crate::reap::reap;
use crate::roster::Roster;
use crate::segment::Segment;
use crate::service::Numbered;

/// Signal dispositions and descriptors that Rust's start-up code or the supervisor changes.
/// Bit 0: SIGPIPE was ignored. Bit 1: SIGCHLD was ignored. Bit 2: SIGXFSZ was ignored. Bits 8 to 10: descriptor 0 to 2 was closed.
static INHERITED: AtomicU32 = AtomicU32::new(0);
const PIPE_IGNORED: u32 = 1;
const CHLD_IGNORED: u32 = 2;
const XFSZ_IGNORED: u32 = 4;
const CLOSED: u32 = 1 << 8;

/// Runs before `main`: what Rust's start-up changes (SIGPIPE, closed standard descriptors) cannot be asked
/// for later, and the program must get what the user's shell gave to `run`.
#[used]
#[unsafe(link_section = ".init_array")]
static REMEMBER: extern "C" fn() = remember_inherited;

extern "C" fn remember_inherited() {
    let mut seen = 0;
    let asked = [(libc::SIGPIPE, PIPE_IGNORED), (libc::SIGCHLD, CHLD_IGNORED), (libc::SIGXFSZ, XFSZ_IGNORED)];
    for (signal, bit) in asked {
        // SAFETY: sigaction is plain old data for which zero bytes are valid; with a null new action the call only reads.
        let action = unsafe {
            let mut old: libc::sigaction = std::mem::zeroed();
            libc::sigaction(signal, ptr::null(), &mut old);
            old.sa_sigaction
        };
        seen |= if action == libc::SIG_IGN { bit } else { 0 };
    }
    for fd in 0..3 {
        // SAFETY: F_GETFD only reads.
        let closed = unsafe { libc::fcntl(fd, libc::F_GETFD) } == -1;
        seen |= if closed { CLOSED << fd } else { 0 };
    }
    INHERITED.store(seen, Ordering::Relaxed);
}

/// What to start, and how.
pub struct Start<'a> {
    /// The file to execute.
    pub path: &'a Path,
    /// PROGRAM and its arguments as typed.
    pub command: &'a [OsString],
    /// Its environment, as `NAME=value`: see [`environment`].
    pub environment: &'a [OsString],
    /// For a recording or its replay, and for a run that others are to be like: see [`Layout`].
    pub layout: Option<&'a Layout>,
    /// Where to run the primary's threads.
    pub cpus: Option<&'a CpuPair>,
    /// Signals blocked when `run` itself was started.
    pub mask: &'a libc::sigset_t,
}

/// What a program's addresses depend on besides its files: a replay has to have the same as its recording. Addresses are
/// not randomised.
#[derive(Clone, Debug, Default)]
pub struct Layout {
    /// The folder to start in, `None` for our own.
    pub directory: Option<CString>,
    /// Soft and hard limit of the stack, bytes; `None` for our own.
    pub stack: Option<(u64, u64)>,
}

const ADDR_NO_RANDOMIZE: libc::c_ulong = 0x0040000;

/// Whether a program can be started such that a replay of it lies at the same addresses. The filter of many a container forbids that.
pub fn has_equal_addresses() -> bool {
    const ASK: libc::c_ulong = 0xffff_ffff;
    // SAFETY: asks, and sets for a moment what no exec sees.
    unsafe {
        let before = libc::personality(ASK);
        let own = before as libc::c_ulong;
        let can_be = || libc::personality(own | ADDR_NO_RANDOMIZE) >= 0 && libc::personality(own) >= 0;
        before >= 0 && (own & ADDR_NO_RANDOMIZE != 0 || can_be())
    }
}

/// Begins this very command anew, with the addresses of a recorded program, unless it has them: a process that it forks and that
/// becomes one in its middle then finds room where the recorded one found it. Where that cannot be it stays as it is.
pub fn begin_laid_out(layout: &Layout) {
    use std::os::unix::process::CommandExt;
    const ASK: libc::c_ulong = 0xffff_ffff;
    // SAFETY: asks, and changes what the next exec does.
    let is_new = unsafe {
        let before = libc::personality(ASK);
        before >= 0
            && before as libc::c_ulong & ADDR_NO_RANDOMIZE == 0
            && libc::personality(ADDR_NO_RANDOMIZE) >= 0
    };
    if let Ok(own) = std::env::current_exe()
        && is_new
    {
        // SAFETY: system calls on this process alone, which is about to be another.
        unsafe { lay_out(layout) };
        let mut words = std::env::args_os();
        let mut command = std::process::Command::new(own);
        command.arg0(words.next().unwrap_or_default()).args(words);
        let _ = command.exec();
    }
}

/// Starts the program and returns its pid once exec has succeeded. It is listed in `roster` as the program itself.
///
/// # Errors
/// When exec failed; no process is left then.
pub fn start(start: &Start, segment: &Segment, roster: Option<&Roster>) -> Result<u32, Error> {
    if start.layout.is_some() && !has_equal_addresses() {
        let why = "nothing is recorded, replayed or run with a seed here: a filter of system calls, as many a container has one, keeps \
                   a program's addresses random (personality); --security-opt seccomp=unconfined, or a profile that lets that call pass";
        return Err(Error::NothingRun(why.into()));
    }
    let path = c_string(start.path.as_os_str())?;
    let arguments = start.command.iter().map(|word| c_string(word)).collect::<Result<Vec<_>, _>>()?;
    let environment = start.environment.iter().map(|text| c_string(text)).collect::<Result<Vec<_>, _>>()?;
    let mut numbered = Numbered::of(environment.iter().map(CString::as_c_str));
    let argument_pointers = null_ended(&arguments);
    let mut environment_pointers = null_ended(&environment);
    let (reader, writer) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC)
        .map_err(|cause| Error::system("make a pipe", cause))?;

    // SAFETY: no other thread has been started yet, so the child inherits no lock held by one.
    let pid = unsafe { libc::fork() };
    match pid {
        -1 => Err(Error::system("start a process", io::Error::last_os_error())),
        0 => {
            numbered.fill_in(&mut environment_pointers, std::process::id());
            let names = (&segment.header().root_pid, roster);
            // SAFETY: this is the child; the pointers are null-ended arrays of strings that live until exec.
            unsafe {
                child(&path, &argument_pointers, &environment_pointers, start, names, writer.as_raw_fd())
            }
        }
        pid => {
            drop(writer);
            exec_outcome(pid as u32, reader, &start.command[0])
        }
    }
}

/// Waits until the child has executed the program or said why not.
fn exec_outcome(pid: u32, reader: OwnedFd, program: &OsStr) -> Result<u32, Error> {
    let mut errno = [0u8; 4];
    loop {
        match rustix::io::read(&reader, &mut errno) {
            Err(rustix::io::Errno::INTR) => {}
            // The writing end is closed by exec: nothing to read means success.
            Ok(0) | Err(_) => return Ok(pid),
            Ok(_) => {
                reap(pid);
                let program = program.to_string_lossy().into_owned();
                let cause = io::Error::from_raw_os_error(i32::from_ne_bytes(errno));
                return Err(match cause.kind() {
                    io::ErrorKind::NotFound => Error::NotFound(program),
                    _ => Error::NotExecutable { program, reason: cause.to_string() },
                });
            }
        }
    }
}

/// The child's way to exec: restores what the user's shell gave to `run`, then becomes the program.
///
/// # Safety
/// To be called after fork, in the child; both arrays end with a null pointer.
unsafe fn child(
    path: &CStr,
    arguments: &[*const libc::c_char],
    environment: &[*const libc::c_char],
    start: &Start,
    (root_pid, roster): (&AtomicU32, Option<&Roster>),
    report: RawFd,
) -> ! {
    // SAFETY: calls that are safe after fork, on memory prepared before it.
    unsafe {
        // The runtime acts only in the process named here: written by it, so that exec cannot come first.
        let own = libc::getpid() as u32;
        if let Some(roster) = roster {
            roster.enter_root(own);
        }
        root_pid.store(own, Ordering::Release);
        if let Some(layout) = start.layout {
            lay_out(layout);
        }
        if let Some(pair) = start.cpus {
            // A CPU that is not there leaves the program where it is: pinning is a wish.
            libc::sched_setaffinity(0, size_of_val(&pair.primary), pair.primary.as_ptr().cast());
        }
        restore_inherited();
        if limit::is_told(start.environment.iter().map(OsString::as_os_str)) {
            limit::make_room();
        }
        // Last, so that no signal is delivered to a half-restored process.
        libc::sigprocmask(libc::SIG_SETMASK, start.mask, ptr::null_mut());
        libc::execve(path.as_ptr(), arguments.as_ptr(), environment.as_ptr());
        let errno = (*libc::__errno_location()).to_ne_bytes();
        libc::write(report, errno.as_ptr().cast(), errno.len());
        libc::_exit(us_abi::exit::NOT_EXECUTABLE)
    }
}

/// Closes what we were started with besides the three streams: it is the program's, which has it now. A socket that the program
/// closes is to be closed, and a pipe to have an end.
pub fn let_go_of_inherited() {
    let open = crate::proc::numbers("self", "fd").unwrap_or_default();
    for fd in open.into_iter().map(|fd| fd as RawFd).filter(|fd| *fd > libc::STDERR_FILENO) {
        // SAFETY: a question about a number. What we have opened ourselves is closed by an exec, so what is not came with ours, and
        // nobody in this process has it.
        unsafe {
            let flags = libc::fcntl(fd, libc::F_GETFD);
            if flags != -1 && flags & libc::FD_CLOEXEC == 0 {
                libc::close(fd);
            }
        }
    }
}

/// Becomes the program, as if it had been started without `run`. To be called before anything of this process has been changed
/// that an exec does not undo.
///
/// # Errors
/// Always: it returns only when it has not worked.
pub fn become_program(path: &Path, command: &[OsString]) -> Error {
    let (path, arguments) =
        match (c_string(path.as_os_str()), command.iter().map(|word| c_string(word)).collect()) {
            (Ok(path), Ok::<Vec<CString>, Error>(arguments)) => (path, arguments),
            (Err(error), _) | (_, Err(error)) => return error,
        };
    let _ = rustix::process::set_child_subreaper(None);
    // SAFETY: a string and a null-ended array of strings that live until the call returns; this process has one thread.
    unsafe {
        restore_inherited();
        PREVIOUS.get().map(|mask| libc::sigprocmask(libc::SIG_SETMASK, mask, ptr::null_mut()));
        libc::execv(path.as_ptr(), null_ended(&arguments).as_ptr());
    }
    let program = command[0].to_string_lossy().into_owned();
    Error::NotExecutable { program, reason: io::Error::last_os_error().to_string() }
}

/// # Safety
/// To be called after fork, in the child.
unsafe fn lay_out(layout: &Layout) {
    // SAFETY: system calls on the calling process alone, with strings and structures that live until they return.
    unsafe {
        libc::personality(ADDR_NO_RANDOMIZE);
        if let Some((soft, hard)) = layout.stack {
            let mut limit = libc::rlimit { rlim_cur: soft, rlim_max: hard };
            if libc::setrlimit(libc::RLIMIT_STACK, &limit) != 0 {
                // The soft one alone decides where mappings begin.
                libc::getrlimit(libc::RLIMIT_STACK, &mut limit);
                limit.rlim_cur = soft;
                libc::setrlimit(libc::RLIMIT_STACK, &limit);
            }
        }
        if let Some(directory) = &layout.directory {
            // A folder that is gone matters to a loader that looks for libraries in it: exec tells.
            libc::chdir(directory.as_ptr());
        }
    }
}

/// Gives back what Rust's start-up code and the supervisor have changed of what the user's shell gave.
///
/// # Safety
/// Just before an exec, in a process of one thread: it closes descriptors.
unsafe fn restore_inherited() {
    let inherited = INHERITED.load(Ordering::Relaxed);
    let disposition = |bit| if inherited & bit != 0 { libc::SIG_IGN } else { libc::SIG_DFL };
    // SAFETY: calls that are safe after fork, on memory prepared before it.
    unsafe {
        if let Some((soft, hard)) = FILE_SIZE.get() {
            let bytes = |limit: &Option<u64>| limit.unwrap_or(libc::RLIM_INFINITY);
            let limit = libc::rlimit { rlim_cur: bytes(soft), rlim_max: bytes(hard) };
            libc::setrlimit(libc::RLIMIT_FSIZE, &limit);
        }
        libc::signal(libc::SIGPIPE, disposition(PIPE_IGNORED));
        libc::signal(libc::SIGCHLD, disposition(CHLD_IGNORED));
        libc::signal(libc::SIGXFSZ, disposition(XFSZ_IGNORED));
        (0..3).filter(|fd| inherited & (CLOSED << fd) != 0).for_each(|fd| {
            libc::close(fd);
        });
    }
}

/// Our environment with the runtime behind what `LD_PRELOAD` named before; every other variable keeps its place.
/// In front of it the runtime would take functions from the user's library (libfaketime's `clock_gettime`), which natively is
/// the first to be asked, and hands on what it does not do itself.
pub fn environment(library: &Path, segment_path: &Path) -> Vec<OsString> {
    let previous = std::env::var_os("LD_PRELOAD");
    let before = previous.iter().filter(|text| !text.is_empty()).map(OsString::as_os_str);
    let preload = before.chain([library.as_os_str()]).collect::<Vec<_>>().join(OsStr::new(":"));
    let mut variables: Vec<(OsString, OsString)> = std::env::vars_os()
        .filter(|(name, _)| ![ENV_SEGMENT, ENV_PRELOAD, ENV_LIMITS, ENV_SEED].iter().any(|own| name == own))
        .map(|(name, value)| if name == "LD_PRELOAD" { (name, preload.clone()) } else { (name, value) })
        .collect();
    match previous {
        Some(previous) => variables.push((ENV_PRELOAD.into(), previous)),
        None => variables.push(("LD_PRELOAD".into(), preload)),
    }
    variables.push((ENV_SEGMENT.into(), segment_path.into()));
    variables.extend(limit::variable());
    let joined = variables.into_iter().map(|(mut variable, value)| {
        variable.push("=");
        variable.push(value);
        variable
    });
    joined.collect()
}

fn c_string(text: &OsStr) -> Result<CString, Error> {
    CString::new(text.to_owned().into_vec())
        .map_err(|_| Error::Usage(format!("{:?} holds a zero byte", OsStr::from_bytes(text.as_bytes()))))
}

fn null_ended(strings: &[CString]) -> Vec<*const libc::c_char> {
    strings.iter().map(|text| text.as_ptr()).chain([ptr::null()]).collect()
}

/// Signals that `run` takes by descriptor: what it passes on, and the ends of its children. All that would end it by
/// default are among them, since a program may send any of them to its whole process group, which we are of. Not faults of our own,
/// the terminal's stops, and what others ignore or libc has for itself.
fn taken() -> impl Iterator<Item = libc::c_int> {
    const LEFT: [libc::c_int; 18] = [
        libc::SIGKILL,
        libc::SIGSTOP,
        libc::SIGSEGV,
        libc::SIGBUS,
        libc::SIGFPE,
        libc::SIGILL,
        libc::SIGTRAP,
        libc::SIGSYS,
        libc::SIGABRT,
        libc::SIGTSTP,
        libc::SIGTTIN,
        libc::SIGTTOU,
        libc::SIGCONT,
        libc::SIGURG,
        libc::SIGPIPE,
        libc::SIGXFSZ,
        32,
        33,
    ];
    (1..=64).filter(|signal| !LEFT.contains(signal))
}

/// The supervisor's signals, as a descriptor, and the mask that was in force before.
pub struct Signals {
    /// Readable when a signal waits.
    pub fd: OwnedFd,
    /// The mask `run` was started with.
    pub previous: libc::sigset_t,
}

/// A signal that came to the supervisor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Arrived {
    /// Its number.
    pub signal: i32,
    /// Whether the kernel sent it (a terminal's key): then the primary, in the same foreground group, has its own.
    pub from_kernel: bool,
    /// Who sent it, if somebody did.
    pub sender: u32,
}

impl Arrived {
    /// Whether it is meant for the program, which has not got it. One that a process of the program's has sent was for the whole
    /// process group, in which we happen to be.
    pub fn is_to_be_passed_on(self) -> bool {
        self.signal != libc::SIGCHLD
            && !self.from_kernel
            && !crate::proc::is_descendant(self.sender, std::process::id())
    }
}

/// The mask that was in force before [`take_signals`].
static PREVIOUS: OnceLock<libc::sigset_t> = OnceLock::new();

/// A file that has come to its size limit costs the file, be it the one that our messages go to: the write fails, and the program
/// goes on. The program begins with what it would have had without us.
pub fn outlive_full_files() {
    // SAFETY: an ignored signal runs nothing.
    unsafe { libc::signal(libc::SIGXFSZ, libc::SIG_IGN) };
}

/// Blocks the signals that `run` takes, for this thread and those it starts later.
///
/// # Errors
/// When the kernel refuses the descriptor.
pub fn take_signals() -> Result<Signals, Error> {
    outlive_full_files();
    // SAFETY: sigset_t and sigaction are plain old data; every pointer is to a local of the right type.
    unsafe {
        // An inherited "ignore" would let the kernel reap the primary before we learn how it ended.
        libc::signal(libc::SIGCHLD, libc::SIG_DFL);
        let mut set: libc::sigset_t = std::mem::zeroed();
        let mut previous: libc::sigset_t = std::mem::zeroed();
        libc::sigemptyset(&mut set);
        taken().for_each(|signal| {
            libc::sigaddset(&mut set, signal);
        });
        libc::pthread_sigmask(libc::SIG_BLOCK, &set, &mut previous);
        let _ = PREVIOUS.set(previous);
        match libc::signalfd(-1, &set, libc::SFD_CLOEXEC | libc::SFD_NONBLOCK) {
            -1 => Err(Error::system("take signals", io::Error::last_os_error())),
            fd => Ok(Signals { fd: OwnedFd::from_raw_fd(fd), previous }),
        }
    }
}

impl Signals {
    /// The next signal that waits, if any.
    pub fn next(&self) -> Option<Arrived> {
        let mut bytes = [0u8; size_of::<libc::signalfd_siginfo>()];
        let got = rustix::io::read(&self.fd, &mut bytes).ok()?;
        let word = |at: usize| i32::from_ne_bytes(bytes[at..at + 4].try_into().expect("four bytes were cut"));
        let code = word(std::mem::offset_of!(libc::signalfd_siginfo, ssi_code));
        let sender = word(std::mem::offset_of!(libc::signalfd_siginfo, ssi_pid)) as u32;
        (got == bytes.len()).then(|| Arrived {
            signal: word(0),
            from_kernel: code == libc::SI_KERNEL,
            sender,
        })
    }
}

/// Lets this process hold as many descriptors as it may. Each member of a group takes two.
pub fn raise_descriptor_limit() {
    let limit = rustix::process::getrlimit(Resource::Nofile);
    let raised = rustix::process::Rlimit { current: limit.maximum, maximum: limit.maximum };
    // Without it some members run unprotected.
    let _ = rustix::process::setrlimit(Resource::Nofile, raised);
}

/// Lets this process make files as large as a segment, although the user's limit is lower. The program gets the user's:
/// see [`child`].
///
/// # Errors
/// When the hard limit is lower as well. Without this the kernel would end us by SIGXFSZ.
pub fn raise_file_size_limit() -> Result<(), Error> {
    let limit = rustix::process::getrlimit(Resource::Fsize);
    if limit.current.is_none_or(|bytes| bytes >= us_abi::SEGMENT_BYTES as u64) {
        return Ok(());
    }
    let _ = FILE_SIZE.set((limit.current, limit.maximum));
    let hard = |maximum| {
        rustix::process::setrlimit(Resource::Fsize, rustix::process::Rlimit { current: maximum, maximum })
    };
    // Root may raise the hard one too.
    if limit.maximum.is_none_or(|bytes| bytes >= us_abi::SEGMENT_BYTES as u64) {
        hard(limit.maximum)
    } else {
        hard(None)
    }
    .map_err(|cause| {
        Error::system("make a file as large as a segment: the limit is too low (ulimit -f)", cause)
    })
}

/// The file size limit, soft and hard, that `run` was started with, if it was raised.
static FILE_SIZE: OnceLock<(Option<u64>, Option<u64>)> = OnceLock::new();

/// Sends the signal `number` to `pid` if that is a process of ours, or of theirs: the roster, from which most numbers come, is
/// written by programs, of which one may have given up rights that we have.
pub fn signal(pid: u32, number: i32) {
    if let Some(process) = Child::of_descendant(pid) {
        process.signal(number);
    }
}

/// Whether the kernel knows a process of this number, which may be a zombie.
pub fn exists(pid: u32) -> bool {
    let Some(pid) = i32::try_from(pid).ok().filter(|pid| *pid > 0) else { return false };
    // SAFETY: signal 0 only asks. Of another user's it says EPERM.
    unsafe { libc::kill(pid, 0) == 0 || *libc::__errno_location() != libc::ESRCH }
}

/// Gives a command the signal mask that we were started with: a debugger with our own would not hear of its children.
pub fn with_mask<'a>(command: &'a mut Command, signals: &Signals) -> &'a mut Command {
    let mask = signals.previous;
    let restore = move || {
        // SAFETY: sets the calling thread's mask; nothing is written.
        match unsafe { libc::sigprocmask(libc::SIG_SETMASK, &mask, ptr::null_mut()) } {
            0 => Ok(()),
            _ => Err(io::Error::last_os_error()),
        }
    };
    // SAFETY: the closure makes one system call.
    unsafe { command.pre_exec(restore) }
}

/// Starts threads, by `f`, that no signal comes to: they have the mask of the one that makes them. Of the calling thread it is put
/// back.
pub fn without_signals<R>(f: impl FnOnce() -> R) -> R {
    // SAFETY: sigset_t is plain old data for which zero bytes are valid; every pointer is to a local.
    let before = unsafe {
        let (mut all, mut before): (libc::sigset_t, libc::sigset_t) =
            (std::mem::zeroed(), std::mem::zeroed());
        libc::sigfillset(&mut all);
        libc::pthread_sigmask(libc::SIG_BLOCK, &all, &mut before);
        before
    };
    let result = f();
    // SAFETY: the mask from before.
    unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &before, ptr::null_mut()) };
    result
}

/// Asks a thread of the primary to look: at a signal that has waited too long, or at the header's command. The
/// runtime keeps SIGSYS open in every mask, and knows by its code that it is no system call of the guest's.
pub fn nudge(primary: u32, tid: u32) {
    if primary == 0 || tid == 0 {
        return;
    }
    // SAFETY: a siginfo is plain data.
    let mut info: libc::siginfo_t = unsafe { std::mem::zeroed() };
    (info.si_signo, info.si_code) = (libc::SIGSYS, us_abi::NUDGE_CODE);
    // SAFETY: queues a signal, by numbers; a thread that is gone answers ESRCH. The kernel reads the siginfo.
    unsafe { libc::syscall(libc::SYS_rt_tgsigqueueinfo, primary, tid, libc::SIGSYS, &raw const info) };
}

/// Sends a signal to a thread of a process of ours, or of theirs.
pub fn signal_thread(pid: u32, tid: u32, number: i32) {
    if tid != 0 && Child::of_descendant(pid).is_some() {
        // SAFETY: sends a signal, by numbers; a thread that is gone answers ESRCH.
        unsafe { libc::syscall(libc::SYS_tgkill, pid, tid, number) };
    }
}

/// Ends every process of the group that the child `leader` leads and that has not been reaped.
pub fn kill_group(leader: u32) {
    // SAFETY: a signal to the group of an unreaped child reaches nobody else.
    unsafe { libc::kill(-(leader as libc::pid_t), libc::SIGKILL) };
}

/// Ends and reaps the child `pid`, which must not have been reaped.
pub fn kill_child(pid: u32) {
    // SAFETY: a signal to an unreaped child reaches nobody else.
    unsafe { libc::kill(pid as libc::pid_t, libc::SIGKILL) };
    reap(pid);
}

/// Sends the signal `number`, which may be a real-time one, to the process behind `pidfd`.
///
/// # Errors
/// When it has ended, or is not ours to signal.
pub fn pidfd_signal(pidfd: &OwnedFd, number: i32) -> io::Result<()> {
    let no_info: *const libc::siginfo_t = ptr::null();
    // SAFETY: with a null siginfo the kernel fills in its own; nothing is written.
    let result = unsafe { libc::syscall(libc::SYS_pidfd_send_signal, pidfd.as_raw_fd(), number, no_info, 0) };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_our_own_are_signalled() {
        // Its parent is gone, and whoever has it now is none of ours.
        let orphan = Command::new("sh").args(["-c", "sleep 100 >/dev/null 2>&1 & echo $!"]).output().unwrap();
        let orphan: u32 = String::from_utf8_lossy(&orphan.stdout).trim().parse().unwrap();
        signal(orphan, libc::SIGKILL);
        let mut own = Command::new("sleep").arg("100").spawn().unwrap();
        signal(own.id(), libc::SIGKILL);
        assert!(!own.wait().unwrap().success());
        assert!(crate::proc::read(orphan).is_some_and(|process| process.alive()));
        let pidfd = rustix::process::pidfd_open(
            crate::child::raw(orphan).unwrap(),
            rustix::process::PidfdFlags::empty(),
        );
        pidfd_signal(&pidfd.unwrap(), libc::SIGKILL).unwrap();
        signal(0, libc::SIGKILL);
        signal(u32::MAX, libc::SIGKILL);
    }
}
