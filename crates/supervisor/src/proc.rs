//! What `/proc` says of a process.

use std::fmt::Display;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use us_sites::maps::{self, Line};

/// A process at one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Process {
    /// State letter: `R`, `S`, `Z`, …
    pub state: char,
    /// Kernel's pid of the parent.
    pub parent: u32,
    /// Its session.
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
            let owner = fs::metadata(format!("/proc/{pid}")).ok().map(|folder| folder.uid());
            owner == Some(rustix::process::geteuid().as_raw()) || can_trace_others()
        };
        (!self.alive() && (self.status != 0 || is_told())).then_some(self.status)
    }
}

/// Whether processes of other users may be traced, and read as their tracers read them.
pub fn can_trace_others() -> bool {
    const CAP_SYS_PTRACE: u64 = 1 << 19;
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("CapEff:"));
    mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok())
        .is_some_and(|mask| mask & CAP_SYS_PTRACE != 0)
}

/// What is wrong with `/proc` here, in words: it tells us who is whose child, where our own files are, and what a copy needs.
pub fn obstacle() -> Option<&'static str> {
    match std::fs::read_link("/proc/self") {
        Err(_) => Some("there is no /proc here"),
        Ok(own) if own.to_str() != Some(std::process::id().to_string().as_str()) => Some(
            "/proc belongs to another pid namespace: mount one for this namespace (unshare --mount-proc)",
        ),
        Ok(_) => None,
    }
}

/// The value behind a name in a text of the kernel's.
pub fn field<'a>(text: &'a str, name: &str) -> Option<&'a str> {
    text.lines().find_map(|line| Some(line.strip_prefix(name)?.trim()))
}

/// The value behind a name in the `status` of a process: a number, or `self`. `None` when there is no such process.
pub fn status(pid: impl Display, name: &str) -> Option<String> {
    let text = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    field(&text, name).map(str::to_owned)
}

/// The mask for new files of a process: a number, or `self`.
pub fn umask(pid: impl Display) -> Option<u32> {
    u32::from_str_radix(&status(pid, "Umask:")?, 8).ok()
}

/// The process `pid`, or `None` when there is none.
pub fn read(pid: u32) -> Option<Process> {
    if pid == 0 {
        return None;
    }
    parse(&fs::read_to_string(format!("/proc/{pid}/stat")).ok()?)
}

/// Whether every thread of a process waits for something in the kernel, or is stopped. Not one that a debugger holds.
pub fn sleeps(pid: u32) -> bool {
    let threads: Vec<_> =
        std::fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten().collect();
    let sleeps = |folder: &std::fs::DirEntry| {
        let stat = std::fs::read_to_string(folder.path().join("stat")).unwrap_or_default();
        stat.rsplit_once(") ").is_some_and(|(_, rest)| rest.starts_with(['S', 'T']))
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

/// The name of the process, as `ps` shows it.
pub fn name(pid: u32) -> Option<String> {
    fs::read_to_string(format!("/proc/{pid}/comm")).ok().map(|name| name.trim_end().to_owned())
}

/// The name of one of its threads, without what acts on a terminal.
pub fn thread_name(pid: u32, tid: u32) -> Option<String> {
    let name = fs::read(format!("/proc/{pid}/task/{tid}/comm")).ok()?;
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
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok())
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
    let maps = fs::read_to_string(format!("/proc/{pid}/maps")).unwrap_or_default();
    let file = file.to_string_lossy();
    maps.lines().any(|line| line.ends_with(&*file))
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
    let maps = fs::read_to_string(format!("/proc/{pid}/maps")).unwrap_or_default();
    let parse = |line: &str| {
        let (map, path) = (Line::parse(line.as_bytes())?, maps::path(line.as_bytes()));
        let both = maps::READ | maps::WRITE;
        let is_one = map.protection & both == both
            && map.shared
            && us_abi::COMMON_MEMORY.iter().any(|kind| path.starts_with(kind.as_bytes()))
            && !path.starts_with(but.as_bytes());
        is_one.then_some(((map.device, map.inode), map.end.checked_sub(map.start)?))
    };
    maps.lines().filter_map(parse).collect()
}

/// The user that owns the process, `None` when there is none.
pub fn owner(pid: u32) -> Option<u32> {
    fs::metadata(format!("/proc/{pid}")).ok().map(|meta| meta.uid())
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
    let capabilities =
        status(from, "CapEff:").and_then(|mask| u64::from_str_radix(&mask, 16).ok()).unwrap_or(0);
    // Real or effective against real or saved.
    capabilities & CAP_KILL != 0
        || sender.iter().take(2).any(|user| receiver.first() == Some(user) || receiver.get(2) == Some(user))
}

/// Whether the process has a handler for `signal`: one without it would be ended by the signal.
pub fn catches(pid: u32, signal: i32) -> bool {
    let mask = status(pid, "SigCgt:").and_then(|mask| u64::from_str_radix(&mask, 16).ok());
    mask.is_some_and(|mask| mask & (1 << (signal - 1)) != 0)
}

fn parse(stat: &str) -> Option<Process> {
    // The name, in brackets, may hold spaces and brackets of its own.
    let after_name = stat.rsplit_once(')')?.1;
    let fields: Vec<&str> = after_name.split_ascii_whitespace().collect();
    let number = |at: usize| fields.get(at)?.parse::<u64>().ok();
    let ticks_per_s = rustix::param::clock_ticks_per_second() as f64;
    Some(Process {
        state: fields.first()?.chars().next()?,
        parent: number(1)? as u32,
        session: number(3)? as u32,
        threads: number(17)? as u32,
        cpu_s: (number(11)? + number(12)?) as f64 / ticks_per_s,
        rss_bytes: number(21)? * rustix::param::page_size() as u64,
        start: number(19)?,
        // Older kernels end the line before it.
        status: number(49).unwrap_or(0) as i32,
    })
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
    fn a_name_with_brackets_and_spaces() {
        let line = "7 (a) b (c) S 3 7 8 0 -1 0 0 0 0 0 150 50 0 0 20 0 4 0 999 0 10 0";
        let process = parse(line).unwrap();
        assert_eq!((process.state, process.parent, process.threads, process.start), ('S', 3, 4, 999));
        assert_eq!((process.session, process.status), (8, 0));
    }
}
