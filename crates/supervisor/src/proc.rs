//! What `/proc` says of a process, and of the machine. Nobody else reads there; what a text means, [`text`] knows.
//!
//! A process chooses its name and those of its files, so what is read are bytes, which need not be UTF-8.

use std::fmt::Display;
use std::fs::{self, File};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use us_sites::maps::{self, Line};

use crate::reap::{Reaped, Whose};

pub mod text;

pub use text::field;

/// Our own executable file, also when another has taken its name.
pub const OWN_EXECUTABLE: &str = "/proc/self/exe";

/// Where the kernel tells something of a process: of a number, or of `self`.
pub fn path(pid: impl Display, what: impl Display) -> PathBuf {
    format!("/proc/{pid}/{what}").into()
}

/// The folder of a process.
fn folder(pid: impl Display) -> PathBuf {
    format!("/proc/{pid}").into()
}

/// Leads to what a process has open under this number, also when it has no name.
pub fn descriptor(pid: impl Display, fd: impl Display) -> PathBuf {
    path(pid, format_args!("fd/{fd}"))
}

/// The path of what the kernel tells of whoever looks, by its name there.
pub fn own(what: &str) -> String {
    format!("/proc/self/{what}")
}

/// Whether a path leads into `/proc`.
pub fn is_below(path: &Path) -> bool {
    path.starts_with("/proc")
}

/// What a path that leads to what the kernel tells of this process names there.
pub fn told_of(pid: impl Display, path: &str) -> Option<&str> {
    path.strip_prefix(&format!("/proc/{pid}/"))
}

/// All that the kernel tells of a process under a name.
///
/// # Errors
/// There is none, or it may not be looked at.
pub fn bytes(pid: impl Display, what: impl Display) -> io::Result<Vec<u8>> {
    fs::read(path(pid, what))
}

/// The same as text, in which what is none has been replaced; empty where there is nothing.
pub fn lossy(pid: impl Display, what: impl Display) -> String {
    String::from_utf8_lossy(&bytes(pid, what).unwrap_or_default()).into_owned()
}

/// Where a link of a process leads.
///
/// # Errors
/// There is none, or it may not be looked at.
pub fn link(pid: impl Display, what: impl Display) -> io::Result<PathBuf> {
    fs::read_link(path(pid, what))
}

/// Opens what the kernel tells of a process under a name.
///
/// # Errors
/// There is none, or it may not be looked at.
pub fn open(pid: impl Display, what: impl Display) -> io::Result<File> {
    File::open(path(pid, what))
}

/// The numbers that are names in a folder of a process, the lowest first: its threads, its descriptors.
///
/// # Errors
/// There is none, or it may not be looked at.
pub fn numbers(pid: impl Display, what: impl Display) -> io::Result<Vec<u32>> {
    let number = |entry: fs::DirEntry| entry.file_name().to_str()?.parse().ok();
    let mut numbers: Vec<u32> = fs::read_dir(path(pid, what))?.flatten().filter_map(number).collect();
    numbers.sort_unstable();
    Ok(numbers)
}

/// What the kernel tells of the machine under a name, empty where it does not.
fn of_machine(what: &str) -> String {
    fs::read_to_string(Path::new("/proc").join(what)).unwrap_or_default()
}

/// The processor's features, as the kernel names them.
pub fn features() -> Vec<String> {
    text::features(&of_machine("cpuinfo"))
}

/// Bytes of memory that the machine has to give.
pub fn available_bytes() -> Option<u64> {
    text::kib(field(&of_machine("meminfo"), "MemAvailable:")?)
}

/// Where file systems of this device are mounted.
pub fn mounts(device: (u32, u32)) -> Vec<PathBuf> {
    text::mounts(&lossy("self", "mountinfo"), device).map(PathBuf::from).collect()
}

/// A number below `/proc/sys`.
pub fn setting(name: &str) -> Option<u32> {
    of_machine(&format!("sys/{name}")).trim().parse().ok()
}

/// The score by which the kernel chooses whom to end when memory is short.
pub fn oom_score(pid: impl Display) -> Option<i32> {
    lossy(pid, "oom_score_adj").trim().parse().ok()
}

/// Sets it. False where that is not allowed.
pub fn set_oom_score(pid: impl Display, score: i32) -> bool {
    fs::write(path(pid, "oom_score_adj"), score.to_string()).is_ok()
}

/// Processor time of all our children that have been waited for, with theirs, seconds.
pub fn children_cpu_s() -> f64 {
    bytes("self", "stat").ok().and_then(|stat| text::children_cpu_s(&stat)).unwrap_or(0.0)
}

/// In which login the kernel has a process; empty where it counts none.
pub fn login(pid: u32) -> Vec<u8> {
    bytes(pid, "loginuid").unwrap_or_default()
}

/// Stack pointer and next instruction of a thread, `None` while it runs, or when it may not be looked at.
pub fn stands(pid: u32, tid: u32) -> Option<(u64, u64)> {
    text::stands(&String::from_utf8_lossy(&bytes(pid, format_args!("task/{tid}/syscall")).ok()?))
}

/// A process at one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Process {
    /// State letter: `R`, `S`, `Z`, …
    pub state: char,
    /// Kernel's pid of the parent.
    pub parent: u32,
    /// Its process group, and its session: 0 where they are outside of the pid namespace, as in many a container.
    pub group: u32,
    /// See [`Process::group`].
    pub session: u32,
    /// Threads.
    pub threads: u32,
    /// User and system time, seconds.
    pub cpu_s: f64,
    /// Resident bytes.
    pub rss_bytes: u64,
    /// Start, in clock ticks since boot: with the pid it names one process for ever.
    pub start: u64,
    /// Of one that has ended: how, as `wait4` gives it.
    pub status: i32,
}

impl Process {
    /// Whether it still runs: a zombie does not.
    pub fn alive(&self) -> bool {
        !matches!(self.state, 'Z' | 'X')
    }

    /// How it, whose number is `pid`, has ended. `None` while it runs, or where the kernel does not say: it tells those who could
    /// trace the process, and shows the others a zero.
    pub fn end(&self, pid: u32) -> Option<i32> {
        let is_told = || {
            let owner = owner(pid);
            owner == Some(rustix::process::geteuid().as_raw()) || can_trace_others()
        };
        (!self.alive() && (self.status != 0 || is_told())).then_some(self.status)
    }

    /// How it, whose number is `pid`, has ended, as far as a file tells: see [`Process::end`].
    pub fn reaped(&self, pid: u32) -> Option<Reaped> {
        let user = || status(pid, "Uid:")?.split_whitespace().next()?.parse().ok();
        let whose = |user| Whose { group: self.group, session: self.session, user };
        let whose = user().map(whose);
        Some(Reaped { whose, ..Reaped::by(self.end(pid)?) })
    }
}

/// Whether processes of other users may be traced, and read as their tracers read them.
pub fn can_trace_others() -> bool {
    const CAP_SYS_PTRACE: u64 = 1 << 19;
    capabilities("self") & CAP_SYS_PTRACE != 0
}

/// Whether we may say of a process of ours which file it executes. A container's root may not.
pub fn can_name_executables() -> bool {
    const CAP_SYS_ADMIN: u64 = 1 << 21;
    const CAP_CHECKPOINT_RESTORE: u64 = 1 << 40;
    capabilities("self") & (CAP_SYS_ADMIN | CAP_CHECKPOINT_RESTORE) != 0
}

/// Whether we may raise hard limits. A container's root may not.
pub fn can_raise_limits() -> bool {
    const CAP_SYS_RESOURCE: u64 = 1 << 24;
    capabilities("self") & CAP_SYS_RESOURCE != 0
}

/// What is wrong with `/proc` here, in words: it tells us who is whose child, where our own files are, and what a copy needs.
pub fn obstacle() -> Option<&'static str> {
    match fs::read_link(folder("self")) {
        Err(_) => Some("there is no /proc here"),
        Ok(own) if own.to_str() != Some(std::process::id().to_string().as_str()) => Some(
            "/proc belongs to another pid namespace: mount one for this namespace (unshare --mount-proc)",
        ),
        Ok(_) => None,
    }
}

/// The value behind a name in the `status` of a process: a number, or `self`. `None` when there is no such process.
pub fn status(pid: impl Display, name: &str) -> Option<String> {
    text::bytes_field(&bytes(pid, "status").ok()?, name)
}

/// The same, as a number in hexadecimal: a mask.
fn mask(pid: impl Display, name: &str) -> Option<u64> {
    text::hex_field(&lossy(pid, "status"), name)
}

/// The capabilities that a process has in force.
fn capabilities(pid: impl Display) -> u64 {
    mask(pid, "CapEff:").unwrap_or(0)
}

/// The mask for new files of a process: a number, or `self`.
pub fn umask(pid: impl Display) -> Option<u32> {
    text::octal_field(&lossy(pid, "status"), "Umask:")
}

/// The process `pid`, or `None` when there is none.
pub fn read(pid: u32) -> Option<Process> {
    if pid == 0 {
        return None;
    }
    text::process(&bytes(pid, "stat").ok()?)
}

/// Whether every thread of a process waits for something in the kernel, or is stopped. Not one that a debugger holds.
pub fn sleeps(pid: u32) -> bool {
    let threads = numbers(pid, "task").unwrap_or_default();
    let sleeps = |tid: &u32| {
        let stat = bytes(pid, format_args!("task/{tid}/stat")).unwrap_or_default();
        matches!(text::state(&stat), Some('S' | 'T'))
    };
    !threads.is_empty() && threads.iter().all(sleeps)
}

/// Whether `pid` is alive and is the process that began at `start`.
pub fn is_alive(pid: u32, start: u64) -> bool {
    read(pid).is_some_and(|process| process.alive() && process.start == start)
}

/// How the process ended, as `wait4` gives it, while its parent has not asked; see [`Process::end`].
pub fn end_of(pid: u32) -> Option<i32> {
    read(pid)?.end(pid)
}

/// What the kernel knows of the file that a process executes.
pub fn executable(pid: u32) -> Option<fs::Metadata> {
    fs::metadata(folder(pid).join("exe")).ok()
}

/// The name of the process, as `ps` shows it.
pub fn name(pid: u32) -> Option<String> {
    let name = bytes(pid, "comm").ok()?;
    Some(String::from_utf8_lossy(&name).trim_end().to_owned())
}

/// The name of one of its threads, without what acts on a terminal.
pub fn thread_name(pid: u32, tid: u32) -> Option<String> {
    let name = bytes(pid, format_args!("task/{tid}/comm")).ok()?;
    Some(crate::symbols::plain(name.trim_ascii_end()))
}

fn descends(pid: u32, ancestor: u32) -> bool {
    // Far more than a shell has of shells in it; a loop cannot be, but a parent may end between two looks.
    const GENERATIONS: usize = 1000;
    let mut at = pid;
    for _ in 0..GENERATIONS {
        match read(at) {
            Some(process) if process.parent == ancestor => return true,
            Some(process) if process.parent > 1 => at = process.parent,
            _ => return false,
        }
    }
    false
}

/// Whether `pid` is a child of `ancestor`'s, or of one of its children, and so on. Looked at again, since somebody
/// between the two may just have ended.
pub fn is_descendant(pid: u32, ancestor: u32) -> bool {
    // The parent of one that was put into our namespace from outside reads as 0.
    ancestor != 0 && (0..3).any(|_| descends(pid, ancestor))
}

/// Every process.
pub fn all() -> impl Iterator<Item = u32> {
    numbers("", "").unwrap_or_default().into_iter()
}

/// The children of `parent`.
pub fn children(parent: u32) -> impl Iterator<Item = u32> {
    all().filter(move |pid| read(*pid).is_some_and(|process| process.parent == parent))
}

/// Whether the process has `file` mapped: the proof that it is one of those who were told of it.
pub fn maps(pid: u32, file: &Path) -> bool {
    file.canonicalize().is_ok_and(|file| maps_path(pid, &file))
}

fn maps_path(pid: u32, file: &Path) -> bool {
    let maps = bytes(pid, "maps").unwrap_or_default();
    text::mappings(&maps).any(|(_, path)| path == file.as_os_str().as_bytes())
}

/// Whether the process has ended, or is about to: it has given its memory back.
pub fn has_no_memory(pid: u32) -> bool {
    bytes(pid, "maps").is_ok_and(|maps| maps.is_empty())
}

/// The processes that have `file` mapped, whoever their parents are.
pub fn mapping(file: &Path) -> Vec<u32> {
    let Ok(file) = file.canonicalize() else { return Vec::new() };
    all().filter(|pid| maps_path(*pid, &file)).collect()
}

/// What names memory that processes share: the device and the number of its file.
pub type Object = (u64, u64);

/// Memory that the process may share with others and that no file outside shows: what names each, and its bytes. What lies in
/// `but`, a folder, is left out.
pub fn common_memory(pid: u32, but: &str) -> Vec<(Object, u64)> {
    let maps = bytes(pid, "maps").unwrap_or_default();
    let one = |(map, path): (Line, &[u8])| {
        let both = maps::READ | maps::WRITE;
        let is_one = map.protection & both == both
            && map.shared
            && us_abi::COMMON_MEMORY.iter().any(|kind| path.starts_with(kind.as_bytes()))
            && !path.starts_with(but.as_bytes());
        is_one.then_some(((map.device, map.inode), map.end.checked_sub(map.start)?))
    };
    text::mappings(&maps).filter_map(one).collect()
}

/// The user that owns the process, `None` when there is none.
pub fn owner(pid: u32) -> Option<u32> {
    fs::metadata(folder(pid)).ok().map(|meta| meta.uid())
}

/// Whether somebody traces the process, or it has asked its parent to (`PTRACE_TRACEME`): each signal would stop it until that one
/// lets it go on.
pub fn is_traced(pid: u32) -> bool {
    status(pid, "TracerPid:").is_some_and(|tracer| tracer != "0")
}

/// Whether a signal of ours can be sent to the process: its runtime is there to take it, and nobody would hold it up.
pub fn takes_nudges(pid: u32) -> bool {
    catches(pid, libc::SIGSYS) && !is_traced(pid)
}

/// Whether the process `from` could send the process `to` a signal.
pub fn may_signal(from: u32, to: u32) -> bool {
    const CAP_KILL: u64 = 1 << 5;
    let users = |pid: u32| -> Option<Vec<u32>> {
        status(pid, "Uid:")?.split_ascii_whitespace().map(|user| user.parse().ok()).collect()
    };
    let (Some(sender), Some(receiver)) = (users(from), users(to)) else { return false };
    // Real or effective against real or saved.
    capabilities(from) & CAP_KILL != 0
        || sender.iter().take(2).any(|user| receiver.first() == Some(user) || receiver.get(2) == Some(user))
}

/// Whether the process has a handler for `signal`: one without it would be ended by the signal.
pub fn catches(pid: u32, signal: i32) -> bool {
    mask(pid, "SigCgt:").is_some_and(|mask| mask & (1 << (signal - 1)) != 0)
}

/// Whether the kernel drops what comes in on a network device if it would not send the answer there (`rp_filter` is 1).
pub fn drops_unroutable(device: &str) -> bool {
    let strictness = |name: &str| {
        let path = format!("/proc/sys/net/ipv4/conf/{name}/rp_filter");
        fs::read_to_string(path).ok().and_then(|text| text.trim().parse::<u32>().ok()).unwrap_or(0)
    };
    strictness("all").max(strictness(device)) == 1
}

/// Has a device of ours send nothing of IPv6 by itself, where there is any.
pub fn disable_ipv6(device: &str) {
    let _ = fs::write(format!("/proc/sys/net/ipv6/conf/{device}/disable_ipv6"), "1");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_process_is_alive() {
        let me = read(std::process::id()).unwrap();
        assert!(me.alive() && me.rss_bytes > 0 && me.threads > 0);
        assert!(is_alive(std::process::id(), me.start));
        assert!(!is_alive(std::process::id(), me.start + 1));
        assert_eq!(read(0), None);
    }

    #[test]
    fn descent() {
        let me = std::process::id();
        let parent = read(me).unwrap().parent;
        let mut child = std::process::Command::new("sleep").arg("1000").spawn().unwrap();
        assert!(
            is_descendant(me, parent) && is_descendant(child.id(), me) && is_descendant(child.id(), parent)
        );
        assert!(!is_descendant(parent, me) && !is_descendant(me, me) && !is_descendant(0, me));
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(!name(me).unwrap().is_empty());
    }

    #[test]
    fn caught_signals() {
        // Rust's runtime takes SIGSEGV for its guard pages; nobody here takes the last real-time signal.
        assert!(catches(std::process::id(), libc::SIGSEGV));
        assert!(!catches(std::process::id(), 64));
        assert!(!catches(0, libc::SIGSEGV));
    }

    #[test]
    fn numbers_come_in_order() {
        let all = numbers("self", "fd").unwrap();
        assert!(all.is_sorted() && all.contains(&0));
        assert!(numbers(0, "fd").is_err());
    }

    #[test]
    fn a_process_whose_name_is_no_text() {
        use std::ffi::OsStr;
        let folder = tempfile::tempdir().unwrap();
        let program = folder.path().join(OsStr::from_bytes(b"\xff) Z (\xfe"));
        fs::copy("/bin/sleep", &program).unwrap();
        let mut child = std::process::Command::new(&program).arg("1000").spawn().unwrap();
        let pid = child.id();
        let found = read(pid).unwrap();
        assert!(found.alive() && is_alive(pid, found.start) && is_descendant(pid, std::process::id()));
        assert!(name(pid).is_some_and(|name| name.ends_with(") Z (\u{fffd}")));
        // The parent hears that the exec went well before the kernel has mapped the file.
        while !maps(pid, &program) {
            std::thread::yield_now();
        }
        assert_eq!(mapping(&program), [pid]);
        assert_eq!((umask(pid), status(pid, "TracerPid:").as_deref()), (umask("self"), Some("0")));
        child.kill().unwrap();
        child.wait().unwrap();
    }
}
