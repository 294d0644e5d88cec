//! What a replay depends on besides the log: files, processor, limits. Written into a recording's header, and compared.

use std::collections::BTreeSet;
use std::fs;
use std::io::Read;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use recording::{File, Header};
use rustix::process::Resource;
use sha2::{Digest, Sha256};

use crate::elf;
use crate::options::Options;
use crate::{proc, program};

/// What this machine and the files of `program` are, for a recording of `options`.
pub fn header(options: &Options, program: &Path, library: &Path) -> Header {
    let standard = [0, 1, 2].map(|fd| {
        // Rust has put something harmless where a descriptor was closed.
        let stat = fs::metadata(proc::descriptor("self", fd)).ok()?;
        use std::os::unix::fs::MetadataExt;
        Some((stat.dev(), stat.ino()))
    });
    // A replay may start in another folder.
    let program = &std::path::absolute(program).unwrap_or_else(|_| program.into());
    Header {
        program: options.command.iter().map(|word| word.as_bytes().to_vec()).collect(),
        environment: std::env::vars_os()
            .map(|(name, value)| [name.as_bytes(), b"=", value.as_bytes()].concat())
            .collect(),
        executable: program.into(),
        directory: std::env::current_dir().unwrap_or_default(),
        umask: proc::umask("self").unwrap_or(0),
        files: files(program, library),
        cpu: proc::features(),
        kernel: kernel(),
        limits: LIMITS.iter().map(|(number, limit)| limit_of(*number, *limit)).collect(),
        started_unix_ns: crate::clock::unix_ns(),
        understudy: env!("CARGO_PKG_VERSION").into(),
        standard,
        asked: options.asked(),
    }
}

/// The limits that a program's addresses, or its answers, depend on, by the kernel's numbers.
const LIMITS: [(u32, Resource); 4] =
    [(2, Resource::Data), (STACK, Resource::Stack), (7, Resource::Nofile), (9, Resource::As)];
const STACK: u32 = 3;

fn limit_of(number: u32, limit: Resource) -> (u32, u64, u64) {
    let limit = rustix::process::getrlimit(limit);
    (number, limit.current.unwrap_or(u64::MAX), limit.maximum.unwrap_or(u64::MAX))
}

/// The limits of the stack that a recording began with.
pub fn stack(header: &Header) -> Option<(u64, u64)> {
    header.limits.iter().find(|(number, ..)| *number == STACK).map(|(_, soft, hard)| (*soft, *hard))
}

/// Release of the kernel.
pub fn kernel() -> String {
    rustix::system::uname().release().to_string_lossy().into_owned()
}

/// The program, its loader and its libraries, as the loader itself says it would find them.
fn files(program: &Path, library: &Path) -> Vec<File> {
    let mut paths = BTreeSet::from([library.to_owned()]);
    let mut at = program.to_owned();
    loop {
        paths.insert(at.clone());
        let mut head = Vec::new();
        let read = fs::File::open(&at).and_then(|file| file.take(4096).read_to_end(&mut head));
        match read.map(|_| elf::kind(&head)) {
            Ok(elf::Kind::Script(interpreter)) if !paths.contains(Path::new(&interpreter)) => {
                at = interpreter.into();
            }
            Ok(elf::Kind::Dynamic(loader)) => {
                paths.extend(libraries(Path::new(&loader), &at));
                paths.insert(loader.into());
                break;
            }
            _ => break,
        }
    }
    paths.iter().filter_map(|path| file(path)).collect()
}

fn libraries(loader: &Path, program: &Path) -> Vec<PathBuf> {
    let asked = Command::new(loader).arg("--list").arg(program).stdin(Stdio::null()).output();
    let Ok(answer) = asked else { return Vec::new() };
    let text = String::from_utf8_lossy(&answer.stdout).into_owned();
    let paths = text.lines().filter_map(|line| line.split_once("=> ")?.1.split_whitespace().next());
    paths.filter(|path| path.starts_with('/')).map(PathBuf::from).collect()
}

/// What a recording says of a file, `None` if it cannot be read.
pub fn file(path: &Path) -> Option<File> {
    let mut opened = fs::File::open(path).ok()?;
    let mut hash = Sha256::new();
    let size = std::io::copy(&mut opened, &mut hash).ok()?;
    let mut head = Vec::new();
    use std::io::Seek;
    opened.rewind().ok()?;
    opened.take(HEAD_BYTES).read_to_end(&mut head).ok()?;
    Some(File { path: path.into(), size, hash: hash.finalize().into(), build_id: elf::build_id(&head) })
}

/// Where linkers put the note with the build id.
const HEAD_BYTES: u64 = 64 << 10;

/// In which respects this machine is not the one of the recording: a replay would go astray.
pub fn differences(header: &Header) -> Vec<String> {
    let mut found = Vec::new();
    // libc chooses its functions by them.
    let ours = proc::features();
    let (missing, extra): (Vec<_>, Vec<_>) =
        (lacking(&header.cpu, &ours).collect(), lacking(&ours, &header.cpu).collect());
    if !missing.is_empty() {
        found.push(format!("this processor does not have {}", missing.join(", ")));
    }
    if !extra.is_empty() {
        found.push(format!("this processor also has {}, so libc chooses other functions", extra.join(", ")));
    }
    for before in &header.files {
        match file(&before.path) {
            None => found.push(format!("{} does not exist here", before.path.display())),
            Some(now) if now.hash != before.hash => {
                found.push(format!("{} is another file{}", before.path.display(), build_ids(before, &now)));
            }
            Some(_) => {}
        }
    }
    // A replay runs under the runtime that is found here, which need not lie where the recording's did.
    let own = program::library().ok().filter(|own| header.files.iter().all(|before| before.path != *own));
    if let Some((own, now)) = own.and_then(|own| file(&own).map(|now| (own, now)))
        && header.files.iter().all(|before| before.hash != now.hash)
    {
        found.push(format!("the runtime here, {}, is another one than the recording's", own.display()));
    }
    found
}

/// Features that are wanted and not given, but for those that no program makes use of.
pub fn lacking<'a>(wanted: &'a [String], given: &'a [String]) -> impl Iterator<Item = &'a str> {
    wanted.iter().filter(|name| !given.contains(name) && !is_of_the_kernel(name)).map(String::as_str)
}

/// Features that only the kernel makes use of, and that differ from boot to boot.
pub fn is_of_the_kernel(name: &str) -> bool {
    const NAMES: [&str; 12] = [
        "ibrs",
        "ibpb",
        "stibp",
        "ssbd",
        "pti",
        "md_clear",
        "arch_capabilities",
        "flush_l1d",
        "hypervisor",
        "cpuid",
        "constant_tsc",
        "nopl",
    ];
    NAMES.contains(&name)
}

fn build_ids(before: &File, now: &File) -> String {
    let hex = |id: &Option<Vec<u8>>| {
        id.as_ref().map(|id| id.iter().map(|byte| format!("{byte:02x}")).collect::<String>())
    };
    match (hex(&before.build_id), hex(&now.build_id)) {
        (Some(before), Some(now)) if before != now => {
            format!(": build id {now}, the recording's has {before}")
        }
        _ => String::new(),
    }
}
