//! Files that go with a checkpoint (`--with-files`): copies of them as they were at its moment, in a folder of their own.
//!
//! Taken are the files that a process has open to be written, or writes by a mapping, and all that lies in the *volumes* that the
//! caller names. The caller copies them while the program runs ([`prepare`]). While all processes stand still the supervisor copies
//! once more what has changed since ([`Wanted::finish`]): a file's times tell. So the program stands still for what has just been
//! written, and not for all that it has.

pub(super) mod back;
pub(super) mod copy;
pub(super) mod list;

use std::collections::{BTreeSet, HashMap, HashSet};
use std::fs::{self, File, Metadata};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime};

use checkpoint::{Content, Taken, TakenFile};
use serde::{Deserialize, Serialize};

use self::copy::Budget;
use super::memory;
use crate::error::Error;
use crate::folder::Found;
use crate::proc;
use crate::request::callers;

/// Bytes that are copied while the program stands still, at most, unless it ends there.
const STANDING_BYTES: u64 = 256 << 20;
/// How long that may take.
const STANDING: Duration = Duration::from_secs(2);
/// How often all is looked through while the program runs, at most, and of how many changed bytes on that is of use.
const PASSES: usize = 3;
const WORTH_BYTES: u64 = 8 << 20;

/// What tells a file that has changed: nobody changes one without a new time, on the file systems of this machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Note {
    file: (u64, u64),
    bytes: u64,
    changed: (i64, i64),
}

impl Note {
    fn of(status: &Metadata) -> Note {
        let changed = (status.ctime(), status.ctime_nsec());
        Note { file: (status.dev(), status.ino()), bytes: status.len(), changed }
    }

    /// Whether whoever writes to it from this moment on leaves another time: the kernel's clock for files goes in steps.
    fn is_settled(&self, now: SystemTime) -> bool {
        const STEP: Duration = Duration::from_millis(50);
        let now = now.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        let changed =
            Duration::new(self.changed.0.max(0) as u64, self.changed.1.clamp(0, 999_999_999) as u32);
        changed + STEP < now
    }
}

/// What the caller asks for, and has copied so far.
#[derive(Debug, Serialize, Deserialize)]
struct Plan {
    /// The folder of the copies, by the caller's descriptor.
    folder: i32,
    volumes: Vec<String>,
    /// Files whose copies are good unless they have changed.
    known: HashMap<String, Note>,
}

/// The caller's side: copies, and the plan in a file in memory. The folder goes with it unless it is [kept](Prepared::keep).
#[derive(Debug)]
pub struct Prepared {
    path: PathBuf,
    folder: Option<File>,
    plan: File,
}

impl Prepared {
    /// The number of the plan's descriptor.
    pub(super) fn number(&self) -> i32 {
        self.plan.as_raw_fd()
    }

    /// The copies are those of a checkpoint.
    pub fn keep(mut self) {
        self.folder = None;
    }
}

impl Drop for Prepared {
    fn drop(&mut self) {
        if self.folder.take().is_some() {
            let _ = fs::remove_dir_all(&self.path);
        }
    }
}

/// Makes the folder for the copies, and copies what can be copied while the program runs.
///
/// # Errors
/// When the folder is there, or lies in a volume, or a file cannot be copied.
pub fn prepare(group: &Found, path: &Path, volumes: &[PathBuf]) -> Result<Prepared, Error> {
    let volumes = volumes.iter().map(|volume| {
        let whole = volume.canonicalize().map_err(|cause| Error::file("find", volume, cause))?;
        let whole = whole.into_os_string().into_string().ok().filter(|path| Path::new(path).is_dir());
        whole.ok_or_else(|| Error::Refused(format!("{} is no folder that can be taken", volume.display())))
    });
    let volumes: Vec<String> = volumes.collect::<Result<_, _>>()?;
    copy::make_folder(path).map_err(|cause| Error::file("make", path, cause))?;
    let opened = File::open(path).and_then(|folder| Ok((folder, memory::new("plan")?, path.canonicalize()?)));
    let (folder, plan, whole) = opened.map_err(|cause| Error::file("open", path, cause))?;
    let mut known = Plan { folder: folder.as_raw_fd(), volumes, known: HashMap::new() };
    let prepared = Prepared { path: whole.clone(), folder: Some(folder), plan };
    if let Some(volume) = known.volumes.iter().find(|volume| whole.starts_with(volume)) {
        return Err(Error::Refused(format!("{} lies in {volume}, of which all is taken", path.display())));
    }
    let refuse = |why: String| Error::Refused(format!("{}: {why}", group.name));
    for _ in 0..PASSES {
        let mut all = list::open_for_writing(group.primaries().iter().map(|primary| primary.pid));
        for volume in &known.volumes {
            list::tree(volume, &mut all).map_err(refuse)?;
        }
        let mut copied = 0;
        for path in &all {
            copied += before(path, &prepared.path, &mut known.known).map_err(refuse)?;
        }
        if copied < WORTH_BYTES {
            break;
        }
    }
    let written = serde_json::to_writer(&prepared.plan, &known).map_err(io::Error::from);
    written.map_err(|cause| Error::system("write down what was copied", cause))?;
    Ok(prepared)
}

/// Copies a file, unless its copy is good; how many bytes. A file that is gone is none.
fn before(path: &str, folder: &Path, known: &mut HashMap<String, Note>) -> Result<u64, String> {
    let now = SystemTime::now();
    let Some(status) = fs::symlink_metadata(path).ok().filter(Metadata::is_file) else { return Ok(0) };
    let note = Note::of(&status);
    if known.get(path) == Some(&note) {
        return Ok(0);
    }
    known.remove(path);
    match copy::into(path, folder, &mut Budget::none()) {
        Ok(bytes) => {
            if note.is_settled(now) && list::tells_changes(path) {
                known.insert(path.to_owned(), note);
            }
            Ok(bytes)
        }
        Err(cause) if cause.kind() == io::ErrorKind::NotFound => Ok(0),
        Err(cause) => Err(format!("cannot copy {path}: {cause}")),
    }
}

/// The supervisor's side.
pub(crate) struct Wanted {
    folder: File,
    plan: Plan,
}

/// What it has cost.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Spent {
    /// Bytes that were copied while the program stood still.
    pub(super) standing_bytes: u64,
}

impl Wanted {
    /// What a caller wants who has the plan under this number.
    ///
    /// # Errors
    /// When it cannot be read.
    pub(crate) fn of_caller(caller: &UnixStream, number: &str) -> Result<Wanted, String> {
        let fail = |cause: io::Error| format!("cannot read which files are to be taken: {cause}");
        let plan = File::open(callers(caller, number)?).map_err(fail)?;
        let plan: Plan = serde_json::from_reader(io::BufReader::new(plan)).map_err(|why| fail(why.into()))?;
        let folder = File::open(callers(caller, &plan.folder.to_string())?).map_err(fail)?;
        Ok(Wanted { folder, plan })
    }

    /// Where the copies are.
    fn path(&self) -> PathBuf {
        proc::descriptor("self", self.folder.as_raw_fd())
    }

    /// Copies what has changed, while the program stands still: of the files that are `opened` to be written, those that are
    /// `mapped` so, and all in the volumes. What is mapped is written without a new time. `ends` if the program does.
    ///
    /// # Errors
    /// What cannot be copied, or is more than a program can stand still for.
    pub(super) fn finish(
        &self,
        opened: BTreeSet<String>,
        mapped: &HashSet<String>,
        ends: bool,
    ) -> Result<(Taken, Spent), String> {
        let since = Instant::now();
        let mut budget =
            if ends { Budget::none() } else { Budget { bytes: STANDING_BYTES, by: Some(since + STANDING) } };
        let mut all = opened;
        all.extend(mapped.iter().cloned());
        for volume in &self.plan.volumes {
            list::tree(volume, &mut all)?;
        }
        let (folder, before) = (self.path(), budget.bytes);
        let mut files = Vec::new();
        for path in all {
            let Ok(status) = fs::symlink_metadata(&path) else { continue };
            let Some(content) = content(&path, &status)? else { continue };
            let is_good = || {
                !mapped.contains(&path)
                    && self.plan.known.get(&path).is_some_and(|note| *note == Note::of(&status))
            };
            if status.is_file() && !is_good() {
                copy::into(&path, &folder, &mut budget).map_err(|cause| match cause.kind() {
                    io::ErrorKind::TimedOut => format!(
                        "what has been written to files meanwhile takes too long to copy (the last is {path}): only --stop takes it"
                    ),
                    _ => format!("cannot copy {path}: {cause}"),
                })?;
            }
            files.push(TakenFile {
                path,
                mode: status.mode() & 0o7777,
                owner: [status.uid(), status.gid()],
                written: (status.mtime(), status.mtime_nsec()),
                content,
            });
        }
        let spent = Spent { standing_bytes: before - budget.bytes };
        Ok((Taken { volumes: self.plan.volumes.clone(), files }, spent))
    }

    /// Reads the copies, which nobody changes any more, and has them on the disk. Those of files that had gone are taken away.
    ///
    /// # Errors
    /// Which one cannot be read.
    pub(super) fn read(&self, taken: &mut Taken) -> Result<(), String> {
        let folder = self.path();
        let mut wanted = HashSet::new();
        for one in &mut taken.files {
            if let Content::File { bytes, checksum } = &mut one.content {
                let copy = copy::place(&folder, &one.path);
                let fail = |cause: io::Error| format!("cannot keep the copy of {}: {cause}", one.path);
                File::open(&copy).and_then(|file| file.sync_data()).map_err(fail)?;
                (*bytes, *checksum) = copy::sum(&copy).map_err(fail)?;
                wanted.insert(one.path.clone());
            }
        }
        let gone = self.plan.known.keys().filter(|path| !wanted.contains(*path));
        gone.for_each(|path| _ = fs::remove_file(copy::place(&folder, path)));
        Ok(())
    }
}

/// What a file holds, as far as its name tells: `None` for one that is made anew by whoever needs it.
fn content(path: &str, status: &Metadata) -> Result<Option<Content>, String> {
    let kind = status.file_type();
    Ok(match kind {
        _ if kind.is_dir() => Some(Content::Folder),
        _ if kind.is_file() => Some(Content::File { bytes: status.len(), checksum: 0 }),
        _ if kind.is_fifo() => Some(Content::Pipe),
        _ if kind.is_symlink() => {
            let to = fs::read_link(path).ok().and_then(|to| to.into_os_string().into_string().ok());
            Some(Content::Link(to.ok_or_else(|| format!("{path} leads to what cannot be written down"))?))
        }
        _ => None,
    })
}
