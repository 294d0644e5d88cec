//! Finding PROGRAM, and whether the runtime can enter it.

use std::ffi::{OsStr, OsString};
use std::fs::{self, File};
use std::io::Read;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use rustix::fs::Access;

use crate::elf::{self, Kind};
use crate::error::Error;

/// glibc's loader on x86-64, by file name: distributions differ in the folder only.
const GLIBC_LOADER: &str = "ld-linux-x86-64.so.2";

/// Interpreters of interpreters that the kernel follows.
const SCRIPT_DEPTH_MAX: usize = 5;

/// Overrides where `libunderstudy.so` is looked for; for tests and for trying another build.
pub const ENV_LIBRARY: &str = "UNDERSTUDY_LIB";

/// Finds `program` as execvp would.
///
/// # Errors
/// [`Error::NotFound`] or [`Error::NotExecutable`].
pub fn resolve(program: &OsStr) -> Result<PathBuf, Error> {
    let typed = program.to_string_lossy().into_owned();
    if program.is_empty() {
        return Err(Error::NotFound("\"\"".into()));
    }
    if program.as_bytes().contains(&b'/') {
        return executable(Path::new(program)).map(|()| program.into()).map_err(|reason| match reason {
            None => Error::NotFound(typed),
            Some(reason) => Error::NotExecutable { program: typed, reason },
        });
    }
    let path = std::env::var_os("PATH").unwrap_or_else(|| OsString::from("/bin:/usr/bin"));
    let mut refused = None;
    for folder in path.as_bytes().split(|byte| *byte == b':') {
        // An empty entry is the working folder, as for the shell.
        let folder = if folder.is_empty() { OsStr::new(".") } else { OsStr::from_bytes(folder) };
        let candidate = Path::new(folder).join(program);
        match executable(&candidate) {
            Ok(()) => return Ok(candidate),
            Err(Some(reason)) if candidate.is_file() => refused = Some(reason),
            Err(_) => {}
        }
    }
    Err(match refused {
        Some(reason) => Error::NotExecutable { program: typed, reason },
        None => Error::NotFound(typed),
    })
}

/// `Err(None)` when there is no such file, `Err(Some(reason))` when it cannot be executed.
fn executable(path: &Path) -> Result<(), Option<String>> {
    let meta = fs::metadata(path).map_err(|cause| match cause.kind() {
        std::io::ErrorKind::NotFound | std::io::ErrorKind::NotADirectory => None,
        _ => Some(words(&cause)),
    })?;
    if meta.is_dir() {
        return Err(Some("it is a folder".into()));
    }
    if !meta.is_file() {
        return Err(Some("it is not a regular file".into()));
    }
    rustix::fs::access(path, Access::EXEC_OK).map_err(|cause| Some(words(&cause.into())))
}

fn words(cause: &std::io::Error) -> String {
    match cause.kind() {
        std::io::ErrorKind::PermissionDenied => "permission denied".into(),
        _ => cause.to_string(),
    }
}

/// Refuses a program that the runtime cannot enter.
///
/// # Errors
/// [`Error::CannotProtect`] with the reason, or [`Error::NotExecutable`] for a file that no exec accepts.
pub fn check(program: &OsStr, path: &Path) -> Result<(), Error> {
    let program = program.to_string_lossy().into_owned();
    let mut file = path.to_owned();
    for _ in 0..SCRIPT_DEPTH_MAX {
        match check_file(&file) {
            Verdict::Enter => return Ok(()),
            Verdict::Interpreter(next) => file = next,
            Verdict::NoExec(reason) => return Err(Error::NotExecutable { program, reason }),
            Verdict::Refuse(reason) => {
                // A script's own file is fine: say which interpreter is not.
                let reason = if file == path {
                    reason
                } else {
                    format!("its interpreter {}: {reason}", file.display())
                };
                return Err(Error::CannotProtect { program, reason });
            }
        }
    }
    Err(Error::NotExecutable { program, reason: "its chain of script interpreters does not end".into() })
}

enum Verdict {
    Enter,
    Interpreter(PathBuf),
    NoExec(String),
    Refuse(String),
}

fn check_file(path: &Path) -> Verdict {
    let mut head = Vec::new();
    match File::open(path).and_then(|file| file.take(4096).read_to_end(&mut head)) {
        Ok(_) => {}
        Err(cause) if cause.kind() == std::io::ErrorKind::NotFound => {
            return Verdict::NoExec(format!("{} does not exist", path.display()));
        }
        // Executable and not readable: what it is cannot be known, and is not guessed.
        Err(cause) => return Verdict::Refuse(format!("it cannot be read ({})", words(&cause))),
    }
    match elf::kind(&head) {
        Kind::Script(interpreter) => Verdict::Interpreter(interpreter.into()),
        Kind::Unknown => Verdict::NoExec("neither an ELF file nor a script with #!".into()),
        Kind::Foreign(what) => Verdict::Refuse(format!("it is {what}")),
        Kind::Static => Verdict::Refuse(
            "it is statically linked, and the runtime enters through the dynamic loader".into(),
        ),
        Kind::Dynamic(loader) => check_dynamic(path, &loader),
    }
}

fn check_dynamic(path: &Path, loader: &str) -> Verdict {
    if Path::new(loader).file_name() != Some(OsStr::new(GLIBC_LOADER)) {
        return Verdict::Refuse(format!("its loader is {loader}, not glibc's"));
    }
    if !Path::new(loader).exists() {
        return Verdict::NoExec(format!("its loader {loader} does not exist"));
    }
    // Refused for root too, for whom the bits may change nothing: whether a program can be protected should
    // not depend on who asks.
    let mode = fs::metadata(path).map_or(0, |meta| meta.mode());
    if mode & (libc::S_ISUID | libc::S_ISGID) != 0 {
        return Verdict::Refuse(
            "it is setuid or setgid, and the loader preloads nothing into such programs".into(),
        );
    }
    if rustix::fs::getxattr(path, "security.capability", &mut [0u8; 64]).is_ok_and(|length: usize| length > 0)
    {
        return Verdict::Refuse(
            "it has file capabilities, and the loader preloads nothing into such programs".into(),
        );
    }
    Verdict::Enter
}

/// Whether a sanitizer's runtime is what this program begins with: it takes the same functions over as ours, and programs that have
/// one run without ours. Its entry is named in the file, whether it is linked statically or not.
pub fn has_sanitizer(path: &Path) -> bool {
    const ENTRIES: [&[u8]; 5] = [
        b"\0__asan_init\0",
        b"\0__tsan_init\0",
        b"\0__msan_init\0",
        b"\0__hwasan_init\0",
        b"\0__lsan_init\0",
    ];
    let Ok(bytes) = fs::read(path) else { return false };
    ENTRIES.iter().any(|entry| bytes.windows(entry.len()).any(|window| window == *entry))
}

/// The runtime's file: beside the running binary, or in the library folder beside its folder.
///
/// # Errors
/// [`Error::Runtime`] when it is missing, or when `LD_PRELOAD` cannot name it.
pub fn library() -> Result<PathBuf, Error> {
    const NAME: &str = "libunderstudy.so";
    let named = std::env::var_os(ENV_LIBRARY).map(PathBuf::from);
    let found = match &named {
        Some(path) => Some(path.clone()).filter(|path| path.is_file()),
        None => crate::proc::link("self", "exe").ok().and_then(|binary| {
            let folder = binary.parent()?;
            let places = [folder.join(NAME), folder.join("../lib/understudy").join(NAME)];
            places.into_iter().find(|path| path.is_file())
        }),
    };
    let found = found.and_then(|path| path.canonicalize().ok());
    let path = found.ok_or_else(|| {
        Error::Runtime(match named {
            Some(path) => format!("{ENV_LIBRARY} names {}, and no such file is there", path.display()),
            None => format!("{NAME} is missing: neither beside this binary nor in ../lib/understudy"),
        })
    })?;
    // The loader splits LD_PRELOAD at both, and knows no way to quote them.
    if path.as_os_str().as_bytes().iter().any(|byte| matches!(byte, b':' | b' ')) {
        return Err(Error::Runtime(format!(
            "{} cannot be preloaded: a colon or a space is in its path",
            path.display()
        )));
    }
    Ok(path)
}
