//! `doctor`: what works on this machine, and whether a program can be protected.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use serde::Serialize;

use crate::error::Error;
use crate::limit;
use crate::machine::{self, Text};
use crate::place;
use crate::proc;
use crate::program;

/// Oldest kernel with all that the runtime needs.
const KERNEL_MIN: (u32, u32) = (5, 11);

/// Oldest glibc whose libc.so holds the threads.
const GLIBC_MIN: (u32, u32) = (2, 34);

/// One thing looked at.
#[derive(Clone, Debug, Serialize)]
pub struct Check {
    /// What.
    pub name: &'static str,
    /// Whether it is as it should be.
    pub ok: bool,
    /// Whether nothing can be protected without it.
    pub required: bool,
    /// What was found.
    pub found: String,
    /// What it costs and the way out, where it is not as it should be; empty where there is none.
    #[serde(skip_serializing_if = "str::is_empty")]
    pub way_out: &'static str,
}

impl Check {
    fn new(
        name: &'static str,
        ok: bool,
        required: bool,
        found: impl Into<String>,
        way_out: &'static str,
    ) -> Check {
        Check { name, ok, required, found: found.into(), way_out: if ok { "" } else { way_out } }
    }
}

/// The program that was asked about.
#[derive(Clone, Debug, Serialize)]
pub struct ProgramCheck {
    /// As typed.
    pub program: String,
    /// Whether `run` would start it.
    pub ok: bool,
    /// Why not.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub why: Option<String>,
    /// System calls in its own code.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sites: Option<Sites>,
    /// Atomic instructions in its own code.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub atomics: Option<Sites>,
}

/// The `syscall` instructions of one file, or its atomic ones.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Sites {
    /// How many there are.
    pub found: usize,
    /// How many can be patched; each call from the others costs a trap.
    pub patchable: usize,
}

/// Everything found.
#[derive(Clone, Debug, Serialize)]
pub struct Findings {
    /// Version of these fields.
    pub version: u32,
    /// Whether every required check passed, the program's included.
    pub ok: bool,
    /// The machine.
    pub checks: Vec<Check>,
    /// The program.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub program: Option<ProgramCheck>,
}

/// Looks at the machine and, if one is named, at a program.
pub fn examine(program: Option<&OsString>) -> Findings {
    let checks = vec![
        kernel(),
        glibc(),
        required(
            "syscall user dispatch",
            machine::has_syscall_user_dispatch(),
            "a kernel with it, or a container that does not filter prctl",
        ),
        filter(),
        required("robust futexes", machine::has_robust_futexes(), "a kernel with them"),
        required("membarrier", machine::has_membarrier(), "a kernel with it, or allow the call"),
        proc_folder(),
        limits(),
        call_sites("calls of libc", "libc.so.6"),
        call_sites("calls of ld.so", "ld-linux-x86-64.so.2"),
        vdso(),
        new_text(),
        state_folder(),
        room(),
        runtime(),
        cores(),
        memory_limit(),
        overcommit(),
        call_stacks(),
        addresses(),
        other_users(),
        logout(),
    ];
    let program = program.map(examine_program);
    let machine_ok = checks.iter().all(|check| check.ok || !check.required);
    let program_ok = program.as_ref().is_none_or(|program| program.ok);
    Findings { version: 1, ok: machine_ok && program_ok, checks, program }
}

fn required(name: &'static str, ok: bool, way_out: &'static str) -> Check {
    Check::new(name, ok, true, if ok { "available" } else { "missing: programs run unprotected" }, way_out)
}

fn proc_folder() -> Check {
    const WAY_OUT: &str = "programs run unprotected; mount /proc in this namespace";
    let obstacle = proc::obstacle();
    Check::new("/proc", obstacle.is_none(), true, obstacle.unwrap_or("is that of this namespace"), WAY_OUT)
}

fn limits() -> Check {
    const WAY_OUT: &str = "programs run unprotected; a higher limit";
    let tight = limit::tight();
    Check::new("limits", tight.is_none(), true, tight.unwrap_or("leave room for the runtime"), WAY_OUT)
}

/// Of a unit, or a container.
fn memory_limit() -> Check {
    const WAY_OUT: &str =
        "both copies count: near the limit the standby is ended first; set it for two copies";
    let found = crate::memory::room(std::process::id());
    let words = found.map_or("none".into(), |bytes| format!("{} MiB are left for both copies", bytes >> 20));
    Check::new("memory limit", found.is_none(), false, words, WAY_OUT)
}

fn overcommit() -> Check {
    const WAY_OUT: &str =
        "a copy needs room for all memory that its program may write; set vm.overcommit_memory to 0";
    let strict = proc::setting("vm/overcommit_memory") == Some(2);
    let found = if strict { "strict (vm.overcommit_memory is 2)" } else { "copies share what nobody writes" };
    Check::new("overcommit", !strict, false, found, WAY_OUT)
}

/// What `explain` needs: it reads memory of our own children.
fn call_stacks() -> Check {
    const WAY_OUT: &str =
        "explain has no call stacks; set kernel.yama.ptrace_scope to 1 or 0, or run as root";
    let scope = proc::setting("kernel/yama/ptrace_scope").unwrap_or(0);
    let ok = scope < 2 || (scope == 2 && rustix::process::geteuid().is_root());
    let found = if ok { "can be read" } else { "may not be read (kernel.yama.ptrace_scope)" };
    Check::new("call stacks", ok, false, found, WAY_OUT)
}

/// What a recording needs: that its replay lies at the same addresses.
fn addresses() -> Check {
    const WAY_OUT: &str =
        "nothing can be recorded; --security-opt seccomp=unconfined, or a profile that lets personality pass";
    let ok = crate::spawn::has_equal_addresses();
    let found = if ok { "can be the same in a replay" } else { "stay random, by a filter" };
    Check::new("addresses", ok, false, found, WAY_OUT)
}

/// What a container's root may lack. Processes of an ordinary user cannot become another's.
fn other_users() -> Check {
    const WAY_OUT: &str = "how a process ended that has changed its user is not seen, nor its call stacks; --cap-add SYS_PTRACE";
    let ok = !rustix::process::geteuid().is_root() || crate::proc::can_trace_others();
    let found = if ok { "nothing is hidden" } else { "CAP_SYS_PTRACE is missing, as in most containers" };
    Check::new("users' processes", ok, false, found, WAY_OUT)
}

/// Whether logind removes a group's files when its user's last session ends.
fn logout() -> Check {
    const WAY_OUT: &str = "logind removes them with your last session (RemoveIPC), and `status` finds a group no more; \
                           loginctl enable-linger, a user below 1000, or UNDERSTUDY_DIR with a folder elsewhere";
    let removed = !place::is_named() && removes_ipc(Path::new("/"), rustix::process::geteuid().as_raw());
    let found = if removed { "takes the groups' files along" } else { "leaves the groups' files" };
    Check::new("logout", !removed, false, found, WAY_OUT)
}

/// Whether the logind of the machine below `root` removes what this user has in `/dev/shm`. Of system users it removes nothing.
fn removes_ipc(root: &Path, uid: u32) -> bool {
    const FIRST_ORDINARY: u32 = 1000;
    let is_own = |name: OsString| name.to_str().and_then(crate::identity::number_of) == Some(uid);
    let lingers = || {
        let names = fs::read_dir(root.join("var/lib/systemd/linger")).into_iter().flatten().flatten();
        names.map(|entry| entry.file_name()).any(is_own)
    };
    uid >= FIRST_ORDINARY
        && root.join("run/systemd/users").is_dir()
        && setting_of_logind(root, "RemoveIPC")
            .is_none_or(|value| !matches!(&*value, "no" | "false" | "off" | "0"))
        && !lingers()
}

/// The last word of logind's settings: its own file first, then those of the folders beside it, by their names.
fn setting_of_logind(root: &Path, name: &str) -> Option<String> {
    let folders = ["usr/lib", "run", "etc"].map(|folder| root.join(folder).join("systemd/logind.conf.d"));
    // A file takes the place of one of the same name in a folder before.
    let mut files: BTreeMap<OsString, PathBuf> = BTreeMap::new();
    for entry in folders.iter().filter_map(|folder| fs::read_dir(folder).ok()).flatten().flatten() {
        files.insert(entry.file_name(), entry.path());
    }
    let texts = std::iter::once(root.join("etc/systemd/logind.conf")).chain(files.into_values());
    let lines = texts.filter_map(|file| fs::read_to_string(file).ok());
    let values = lines.flat_map(|text| {
        let of_line = |line: &str| {
            let (key, value) = line.split_once('=')?;
            (key.trim() == name).then(|| value.trim().to_lowercase())
        };
        text.lines().filter_map(of_line).collect::<Vec<_>>()
    });
    values.last()
}

/// A filter that was set before, by a unit or a container.
fn filter() -> Check {
    let missing = crate::filter::obstacle();
    let ok = missing.is_none();
    let found = missing.map_or("no needed call is blocked".into(), |call| format!("a filter blocks {call}"));
    Check::new(
        "system calls",
        ok,
        true,
        found,
        "programs run unprotected; allow the call in the unit or the container",
    )
}

fn at_least(found: &str, least: (u32, u32)) -> bool {
    let mut numbers = found.split(|c: char| !c.is_ascii_digit()).filter_map(|part| part.parse().ok());
    (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0)) >= least
}

fn kernel() -> Check {
    let found = crate::recorder::surroundings::kernel();
    let ok = at_least(&found, KERNEL_MIN) && cfg!(target_arch = "x86_64");
    Check::new("kernel", ok, true, found, "Linux 5.11 or newer on x86-64")
}

/// Why no program can be protected under the C library that is here, in words.
pub(crate) fn old_libc() -> Option<String> {
    let (found, (major, minor)) = (machine::glibc_version(), GLIBC_MIN);
    (!at_least(&found, GLIBC_MIN))
        .then(|| format!("glibc {found} is too old; {major}.{minor} or newer is needed"))
}

fn glibc() -> Check {
    let found = machine::glibc_version();
    Check::new("glibc", at_least(&found, GLIBC_MIN), true, found, "glibc 2.34 or newer: a newer distribution")
}

/// The system calls in a library that every program has, in the copy that this process uses.
fn call_sites(name: &'static str, library: &str) -> Check {
    let maps = proc::bytes("self", "maps").unwrap_or_default();
    let paths = proc::text::mappings(&maps).map(|(_, path)| Path::new(OsStr::from_bytes(path)));
    let path = paths.into_iter().find(|path| path.file_name() == Some(OsStr::new(library)));
    let sites = path.and_then(|path| sites_of(&fs::read(path).ok()?));
    // None found would mean that the scan does not understand this library.
    let ok = sites.is_some_and(|sites| sites.patchable > 0);
    let found = sites.map_or_else(
        || format!("{library} is not mapped or cannot be read"),
        |sites| format!("{} of {} can be patched", sites.patchable, sites.found),
    );
    Check::new(name, ok, false, found, "each call costs a trap, about a microsecond")
}

/// The system calls in the file at `path`, `None` when it is no ELF file.
fn sites_of(bytes: &[u8]) -> Option<Sites> {
    let image = us_sites::elf::Image::parse(bytes)?;
    image.executable().try_fold(Sites::default(), |sum, (text, address)| {
        let (found, patchable) = scan(text, address)?;
        Some(Sites { found: sum.found + found, patchable: sum.patchable + patchable })
    })
}

/// How many sites a text has, and how many of them can be patched.
fn scan(text: &[u8], address: u64) -> Option<(usize, usize)> {
    let mut sites = vec![us_sites::Site::EMPTY; 1024];
    let found = match us_sites::scan(text, address, &mut sites) {
        Err(us_sites::ScanError::TooManySites(needed)) => {
            sites.resize(needed, us_sites::Site::EMPTY);
            us_sites::scan(text, address, &mut sites).ok()?
        }
        other => other.ok()?,
    };
    Some((found, sites[..found].iter().filter(|site| site.is_patchable()).count()))
}

/// An object's file, read as it would be mapped.
struct Unmapped<'a> {
    bytes: &'a [u8],
    image: us_sites::elf::Image<'a>,
    /// Where it is taken to lie.
    base: u64,
}

impl us_sites::Memory for Unmapped<'_> {
    fn read(&self, from: u64, to: &mut [u8]) -> bool {
        let found = from.checked_sub(self.base).and_then(|address| {
            let is_it = |segment: &us_sites::elf::Segment| {
                segment.kind == us_sites::elf::LOAD
                    && address >= segment.addr
                    && address - segment.addr < segment.file_len
            };
            let segment = self.image.segments().find(is_it)?;
            let at = usize::try_from(segment.offset + (address - segment.addr)).ok()?;
            self.bytes.get(at..at.checked_add(to.len())?)
        });
        found.is_some_and(|bytes| {
            to.copy_from_slice(bytes);
            true
        })
    }
}

/// The atomic instructions in the file at `path`, `None` where it says nothing of its functions.
fn atomics_of(bytes: &[u8]) -> Option<Sites> {
    use us_sites::elf::{EXECUTABLE, Image, LOAD};
    /// Where the table is looked for below a text's address, there is to be something.
    const BASE: u64 = 1 << 32;
    const PAGE: u64 = 4096;
    let object = Unmapped { bytes, image: Image::parse(bytes)?, base: BASE };
    let is_text = |segment: &us_sites::elf::Segment| segment.kind == LOAD && segment.flags & EXECUTABLE != 0;
    let segment = object.image.segments().find(is_text)?;
    let (text, start) = (object.image.content(&segment)?, BASE + segment.addr);
    let functions = us_sites::Functions::find(&object, start & !(PAGE - 1), segment.offset & !(PAGE - 1))?;
    let within = |(at, len): (u64, u64)| Some((usize::try_from(at.checked_sub(start)?).ok()?, len as usize));
    let mut sites = vec![us_sites::Atomic::EMPTY; 4096];
    loop {
        let mut targets = vec![0; us_sites::target_words(text.len())];
        let functions = functions.each(&object).filter_map(within);
        match us_sites::scan_atomics(text, start, functions, &mut targets, &mut sites) {
            Ok(all) => return Some(Sites { found: all.found, patchable: all.found - all.trapped }),
            Err(us_sites::ScanError::TooManySites(needed)) => sites.resize(needed, us_sites::Atomic::EMPTY),
            Err(us_sites::ScanError::TextTooLong) => return None,
        }
    }
}

/// A sealed vDSO cannot be patched; the exported time functions still can.
fn vdso() -> Check {
    let sealed = proc::text::has_sealed_vdso(&proc::lossy("self", "smaps"));
    let found = if sealed { "sealed: direct calls of it are not seen" } else { "can be patched" };
    Check::new(
        "vdso",
        !sealed,
        false,
        found,
        "a program that calls it by itself may differ: --order serial, or none",
    )
}

/// Whether text can be made in memory here, as the runtime does it.
fn new_text() -> Check {
    let (ok, found) = match machine::can_make_text() {
        Text::OfMemory => (true, "memory can be made executable"),
        Text::OfFiles => (true, "written memory cannot be made executable, files in memory can be mapped"),
        Text::None => (false, "no memory can be made executable: programs run unprotected"),
    };
    Check::new("new text", ok, true, found, "allow memfd_create, or set vm.memfd_noexec below 2")
}

fn state_folder() -> Check {
    let mut refused = Vec::new();
    for path in place::places() {
        let found = path.display().to_string();
        match place::usable(&path) {
            Ok(()) => return Check::new("state folder", true, true, found, ""),
            Err(why) => refused.push(format!("{found}: {why}")),
        }
    }
    const WAY_OUT: &str = "UNDERSTUDY_DIR with a folder of your own, in memory";
    Check::new("state folder", false, true, refused.join("; "), WAY_OUT)
}

/// What a group may need there: a log of each thread, and small memory besides.
fn room() -> Check {
    const LITTLE: u64 = 256 << 20;
    // A place that is not there yet will lie where its parent does.
    let places = place::places().into_iter().find(|path| place::usable(path).is_ok());
    let at = places
        .map(|path| if path.is_dir() { path } else { path.parent().map_or(path.clone(), Path::to_path_buf) });
    let free = at
        .and_then(|path| rustix::fs::statvfs(&path).ok())
        .map(|stat| stat.f_bavail.saturating_mul(stat.f_frsize));
    let found = free.map_or("unknown".into(), |free| {
        // Connections have none: the log is a thread's.
        let threads = (free / us_abi::RING_BYTES as u64).min(us_abi::THREADS_MAX as u64);
        format!("{} MiB: for {threads} threads whose standbys are behind, as far as they can be", free >> 20)
    });
    const WAY_OUT: &str =
        "where it is full a standby is given up; a larger /dev/shm (--shm-size), or UNDERSTUDY_DIR";
    Check::new("room in it", free.is_some_and(|free| free >= LITTLE), false, found, WAY_OUT)
}

fn runtime() -> Check {
    let library = program::library();
    let found = library.as_ref().map_or_else(Error::to_string, |path| path.display().to_string());
    Check::new(
        "runtime",
        library.is_ok(),
        true,
        found,
        "install it beside the command, or name it in UNDERSTUDY_LIB",
    )
}

fn cores() -> Check {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    const WAY_OUT: &str = "a standby shares it with its primary, which is slower under load; give it two";
    Check::new("cores", cores > 1, false, cores.to_string(), WAY_OUT)
}

fn examine_program(program: &OsString) -> ProgramCheck {
    let path = program::resolve(program);
    let bytes = path.as_ref().ok().and_then(|path| fs::read(path).ok());
    let sites = bytes.as_deref().and_then(sites_of);
    let atomics = bytes.as_deref().and_then(atomics_of);
    let outcome = path.and_then(|path| program::check(program, &path).map(|()| path));
    let sanitized = outcome.as_ref().is_ok_and(|path| program::has_sanitizer(path));
    let aside = sanitized.then(|| {
        "it runs unprotected: it is built with a sanitizer, whose runtime replaces the same functions".into()
    });
    ProgramCheck {
        program: program.to_string_lossy().into_owned(),
        ok: outcome.is_ok() && !sanitized,
        why: outcome.err().map(|error| error.to_string()).or(aside),
        sites,
        atomics,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_logind_removes() {
        let root = tempfile::tempdir().unwrap();
        let at = |path: &str| root.path().join(path);
        let put = |path: &str, text: &str| {
            fs::create_dir_all(at(path).parent().unwrap()).unwrap();
            fs::write(at(path), text).unwrap();
        };
        assert!(!removes_ipc(root.path(), 1000));
        fs::create_dir_all(at("run/systemd/users")).unwrap();
        assert!(
            removes_ipc(root.path(), 1000) && !removes_ipc(root.path(), 0) && !removes_ipc(root.path(), 999)
        );
        put("etc/systemd/logind.conf", "[Login]\n#RemoveIPC=no\n");
        assert!(removes_ipc(root.path(), 1000));
        put("etc/systemd/logind.conf", "[Login]\nRemoveIPC=no\n");
        assert!(!removes_ipc(root.path(), 1000));
        put("usr/lib/systemd/logind.conf.d/50.conf", "[Login]\nRemoveIPC = yes\n");
        assert!(removes_ipc(root.path(), 1000));
        put("etc/systemd/logind.conf.d/50.conf", "");
        assert!(!removes_ipc(root.path(), 1000));
        fs::remove_file(at("etc/systemd/logind.conf")).unwrap();
        // A user that every machine has, below any number that is asked for here.
        put("var/lib/systemd/linger/nobody", "");
        assert!(removes_ipc(root.path(), 1000));
        let nobody = crate::identity::number_of("nobody").unwrap();
        assert!(!removes_ipc(root.path(), nobody));
    }

    #[test]
    fn versions() {
        assert!(at_least("6.18.44-x", (5, 11)) && at_least("5.11", (5, 11)) && at_least("2.36", (2, 34)));
        assert!(!at_least("5.4.0-99", (5, 11)) && !at_least("2.4", (2, 34)) && !at_least("", (2, 34)));
    }
}
