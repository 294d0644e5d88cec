//! `doctor`: what works on this machine, and whether a program can be protected.

use std::ffi::{OsStr, OsString};
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use serde::Serialize;

use crate::error::Error;
use crate::machine::{self, Text};
use crate::place;
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
}

/// The `syscall` instructions of one file.
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
        required("syscall user dispatch", machine::has_syscall_user_dispatch()),
        filter(),
        required("robust futexes", machine::has_robust_futexes()),
        required("membarrier", machine::has_membarrier()),
        call_sites("calls of libc", "libc.so.6"),
        call_sites("calls of ld.so", "ld-linux-x86-64.so.2"),
        vdso(),
        new_text(),
        state_folder(),
        room(),
        runtime(),
        cores(),
    ];
    let program = program.map(examine_program);
    let machine_ok = checks.iter().all(|check| check.ok || !check.required);
    let program_ok = program.as_ref().is_none_or(|program| program.ok);
    Findings { version: 1, ok: machine_ok && program_ok, checks, program }
}

fn required(name: &'static str, ok: bool) -> Check {
    Check { name, ok, required: true, found: if ok { "available" } else { "missing" }.into() }
}

/// A filter that was set before, by a unit or a container.
fn filter() -> Check {
    let missing = crate::filter::obstacle();
    let ok = missing.is_none();
    let found = missing.map_or("no needed call is blocked".into(), |call| format!("a filter blocks {call}"));
    Check { name: "system calls", ok, required: true, found }
}

fn at_least(found: &str, least: (u32, u32)) -> bool {
    let mut numbers = found.split(|c: char| !c.is_ascii_digit()).filter_map(|part| part.parse().ok());
    (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0)) >= least
}

fn kernel() -> Check {
    let found = rustix::system::uname().release().to_string_lossy().into_owned();
    let ok = at_least(&found, KERNEL_MIN) && cfg!(target_arch = "x86_64");
    Check { name: "kernel", ok, required: true, found }
}

/// Why no program can be protected under the C library that is here, in words.
pub(crate) fn old_libc() -> Option<String> {
    let (found, (major, minor)) = (machine::glibc_version(), GLIBC_MIN);
    (!at_least(&found, GLIBC_MIN))
        .then(|| format!("glibc {found} is too old; {major}.{minor} or newer is needed"))
}

fn glibc() -> Check {
    let found = machine::glibc_version();
    Check { name: "glibc", ok: at_least(&found, GLIBC_MIN), required: true, found }
}

/// The system calls in a library that every program has, in the copy that this process uses.
fn call_sites(name: &'static str, library: &str) -> Check {
    let maps = fs::read_to_string("/proc/self/maps").unwrap_or_default();
    let path = maps.lines().map(|line| OsStr::from_bytes(us_sites::maps::path(line.as_bytes())));
    let path = path.map(Path::new).find(|path| path.file_name() == Some(OsStr::new(library)));
    let sites = path.and_then(sites_of);
    // None found would mean that the scan does not understand this library.
    let ok = sites.is_some_and(|sites| sites.patchable > 0);
    let found = sites.map_or_else(
        || format!("{library} is not mapped or cannot be read"),
        |sites| format!("{} of {} can be patched", sites.patchable, sites.found),
    );
    Check { name, ok, required: false, found }
}

/// The system calls in the file at `path`, `None` when it is no ELF file.
fn sites_of(path: &Path) -> Option<Sites> {
    let bytes = fs::read(path).ok()?;
    let image = us_sites::elf::Image::parse(&bytes)?;
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

/// A sealed vDSO cannot be patched; the exported time functions still can.
fn vdso() -> Check {
    let maps = fs::read_to_string("/proc/self/smaps").unwrap_or_default();
    let flags =
        maps.lines().skip_while(|line| !line.ends_with("[vdso]")).find(|line| line.starts_with("VmFlags:"));
    let sealed = flags.is_some_and(|line| line.split_ascii_whitespace().any(|flag| flag == "sl"));
    let found = if sealed { "sealed: direct calls of it are not seen" } else { "can be patched" };
    Check { name: "vdso", ok: !sealed, required: false, found: found.into() }
}

/// Whether text can be made in memory here, as the runtime does it.
fn new_text() -> Check {
    let (ok, found) = match machine::can_make_text() {
        Text::OfMemory => (true, "memory can be made executable"),
        Text::OfFiles => (true, "written memory cannot be made executable, files in memory can be mapped"),
        Text::None => (false, "no memory can be made executable: programs run unprotected"),
    };
    Check { name: "new text", ok, required: true, found: found.into() }
}

fn state_folder() -> Check {
    let mut refused = Vec::new();
    for path in place::places() {
        let found = path.display().to_string();
        match place::usable(&path) {
            Ok(()) => return Check { name: "state folder", ok: true, required: true, found },
            Err(why) => refused.push(format!("{found}: {why}")),
        }
    }
    Check { name: "state folder", ok: false, required: true, found: refused.join("; ") }
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
    let found = match free {
        Some(free @ ..LITTLE) => {
            format!("{} MiB: a thread whose standby is behind takes up to 8", free >> 20)
        }
        Some(free) => format!("{} MiB", free >> 20),
        None => "unknown".into(),
    };
    Check { name: "room in it", ok: free.is_some_and(|free| free >= LITTLE), required: false, found }
}

fn runtime() -> Check {
    let library = program::library();
    let found = library.as_ref().map_or_else(Error::to_string, |path| path.display().to_string());
    Check { name: "runtime", ok: library.is_ok(), required: true, found }
}

fn cores() -> Check {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let found = if cores > 1 { cores.to_string() } else { "1: a standby shares it with its primary".into() };
    Check { name: "cores", ok: cores > 1, required: false, found }
}

fn examine_program(program: &OsString) -> ProgramCheck {
    let path = program::resolve(program);
    let sites = path.as_ref().ok().and_then(|path| sites_of(path));
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
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions() {
        assert!(at_least("6.18.44-x", (5, 11)) && at_least("5.11", (5, 11)) && at_least("2.36", (2, 34)));
        assert!(!at_least("5.4.0-99", (5, 11)) && !at_least("2.4", (2, 34)) && !at_least("", (2, 34)));
    }
}
