//! Where groups have their folders.
//!
//! The segments of a group are sparse files of 8 GiB that programs map: they belong into memory, and where there is much of it.
//! That is `/dev/shm`. `/run` is as safe, but small, and a machine whose `/run` is full does not work. Anybody may make a folder in
//! `/dev/shm`, so one that is there is ours only if its owner is; where somebody else has taken our name, we go where nobody
//! could: `/run` for root, the session's folder for others.

use std::path::{Path, PathBuf};

use rustix::fs::{Access, AtFlags, FileType, Mode, OFlags, ResolveFlags};
use rustix::process::geteuid;
use serde::Serialize;

use crate::dir::{Dir, Locked};
use crate::ended;
use crate::error::Error;

/// Names another place than the user's own.
pub const ENV_STATE: &str = "UNDERSTUDY_DIR";

/// Names the folder of a user's session.
const ENV_SESSION: &str = "XDG_RUNTIME_DIR";

/// A file system in memory that every user may write.
const SHM: &str = "/dev/shm";

/// What this user's folder is called there, before the user's number.
const PREFIX: &str = "understudy-";

fn named() -> Option<PathBuf> {
    std::env::var_os(ENV_STATE).filter(|path| !path.is_empty()).map(PathBuf::from)
}

/// What helps where a place is full.
pub const WAY_OUT: &str =
    "a larger /dev/shm (--shm-size of a container), or UNDERSTUDY_DIR with a folder of your own in memory";

/// Whether it is a place of ours that is full: `cause` is what became of a step on a file at `path`.
pub fn is_full(path: &Path, cause: &std::io::Error) -> bool {
    let is_full = matches!(cause.raw_os_error(), Some(libc::ENOSPC | libc::EDQUOT));
    is_full && places().iter().any(|place| path.starts_with(place))
}

/// Bytes that are free where `dir` lies; `None` if nobody knows.
pub fn free(dir: &Dir) -> Option<u64> {
    let stat = rustix::fs::statvfs(dir.path()).ok()?;
    Some(stat.f_bavail.saturating_mul(stat.f_frsize))
}

/// Whether the user has named the place. It is the user's then, and stays when no group is left in it.
pub fn is_named() -> bool {
    named().is_some()
}

/// The places in which this user's groups may be, the best one first.
pub fn places() -> Vec<PathBuf> {
    if let Some(path) = named() {
        return vec![path];
    }
    let me = geteuid();
    let first = Path::new(SHM).join(format!("{PREFIX}{}", me.as_raw()));
    let session = || {
        let session = PathBuf::from(std::env::var_os(ENV_SESSION)?);
        session.is_absolute().then(|| session.join("understudy"))
    };
    let second = if me.is_root() { Some("/run/understudy".into()) } else { session() };
    std::iter::once(first).chain(second).collect()
}

/// The places of this user that are there, and are this user's.
pub fn existing() -> Vec<Dir> {
    places().iter().filter_map(|path| open(path).ok()).collect()
}

/// Opens a place that is there.
fn open(path: &Path) -> std::io::Result<Dir> {
    if !is_named() {
        check_parent(path.parent().unwrap_or(path))?;
    }
    Dir::open(path)
}

/// In a folder that others may write, and whose entries they may rename, nothing stays ours.
fn check_parent(parent: &Path) -> std::io::Result<()> {
    const STICKY: u32 = 0o1000;
    let stat = rustix::fs::lstat(parent)?;
    let trusted = stat.st_uid == 0 || stat.st_uid == geteuid().as_raw();
    let guarded = stat.st_mode & 0o022 == 0 || stat.st_mode & STICKY != 0;
    match FileType::from_raw_mode(stat.st_mode).is_dir() && trusted && guarded {
        true => Ok(()),
        false => Err(std::io::Error::other(format!("other users may rename files in {}", parent.display()))),
    }
}

/// Makes sure of a place for a new group: the first that is ours, or can be made.
///
/// # Errors
/// When there is none, and why each is not.
pub fn make() -> Result<Dir, Error> {
    let mut refused: Vec<Error> = Vec::new();
    for path in places() {
        match make_at(&path) {
            Ok(dir) => return Ok(dir),
            Err(cause) => refused.push(cause),
        }
    }
    if refused.len() == 1 {
        return Err(refused.remove(0));
    }
    let why: Vec<String> = refused.iter().map(crate::run::explain).collect();
    Err(Error::NothingRun(format!("{}; set {ENV_STATE} to use another place", why.join(", and "))))
}

fn make_at(path: &Path) -> Result<Dir, Error> {
    match rustix::fs::mkdir(path, Mode::RWXU) {
        Err(cause) if cause != rustix::io::Errno::EXIST => return Err(Error::file("make", path, cause)),
        _ => {}
    }
    open(path).map_err(|cause| Error::file("use", path, cause))
}

/// Whether a place is ours and can be written, or could be made. Nothing is left behind.
///
/// # Errors
/// Why not.
pub fn usable(path: &Path) -> std::io::Result<()> {
    if rustix::fs::lstat(path).is_err() {
        rustix::fs::mkdir(path, Mode::RWXU)?;
        let checked = open(path).map(drop);
        rustix::fs::rmdir(path)?;
        return checked;
    }
    let wanted = Access::READ_OK | Access::WRITE_OK | Access::EXEC_OK;
    Ok(rustix::fs::accessat(&open(path)?, ".", wanted, AtFlags::empty())?)
}

/// Locks the place in which a new group is made: it stays while the lock is held.
///
/// # Errors
/// When there is no place.
pub fn with_lock<T>(act: impl FnOnce(&Dir) -> Result<T, Error>) -> Result<T, Error> {
    loop {
        let dir = make()?;
        let lock = dir.lock().map_err(|cause| Error::file("lock", dir.path(), cause))?;
        // Else it was removed by the end of another group between the two lines above.
        if dir.is_there() {
            let done = act(&dir);
            drop(lock);
            return done;
        }
    }
}

/// Removes a place in which no group is left and no group's end is kept, unless the user has named it.
pub fn leave(place: &Dir, _lock: &Locked) {
    ended::leave(place);
    if !is_named() && place.is_there() {
        // Fails while other groups are in it, as it should.
        let _ = rustix::fs::rmdir(place.path());
    }
}

/// Groups of another user, counted and not looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Other {
    /// The user.
    pub uid: u32,
    /// How many.
    pub groups: usize,
}

/// Groups of other users, for root alone. Nothing that a user has written there is opened, and none of it is followed.
pub fn others() -> Vec<Other> {
    if !geteuid().is_root() || is_named() {
        return Vec::new();
    }
    let look = || -> std::io::Result<Vec<Other>> {
        let shm = rustix::fs::open(SHM, OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?;
        let mut others = Vec::new();
        for entry in rustix::fs::Dir::read_from(&shm)? {
            let entry = entry?;
            let name = entry.file_name().to_str().ok();
            let Some(uid) = name.and_then(|name| name.strip_prefix(PREFIX)?.parse().ok()) else { continue };
            let groups = count(&shm, entry.file_name(), uid);
            others.extend(groups.map(|groups| Other { uid, groups }));
        }
        Ok(others)
    };
    let mut others = look().unwrap_or_default();
    others.retain(|other| other.uid != 0 && other.groups > 0);
    others.sort_by_key(|other| other.uid);
    others.dedup_by_key(|other| other.uid);
    others
}

/// Folders in the folder of `uid`; `None` unless that user owns it.
fn count(shm: &rustix::fd::OwnedFd, name: &std::ffi::CStr, uid: u32) -> Option<usize> {
    /// More than anybody runs; a user may make as many names as there is memory for.
    const GROUPS_MAX: usize = 10_000;
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC | OFlags::NONBLOCK;
    // A user may mount a file system of one's own there, which answers when it likes.
    let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_XDEV;
    let folder = rustix::fs::openat2(shm, name, flags | OFlags::NOFOLLOW, Mode::empty(), resolve).ok()?;
    if rustix::fs::fstat(&folder).ok()?.st_uid != uid {
        return None;
    }
    let entries = rustix::fs::Dir::read_from(&folder).ok()?.take(GROUPS_MAX).flatten();
    let is_group = |entry: &rustix::fs::DirEntry| {
        let name = entry.file_name().to_bytes();
        entry.file_type().is_dir() && !matches!(name, b"." | b"..") && name != ended::FOLDER.as_bytes()
    };
    Some(entries.filter(is_group).count())
}
