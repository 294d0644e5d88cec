//! A folder of ours, held by its descriptor, and the files in it. Every file of a group is opened here.
//!
//! A path is looked up anew at each use, and whoever may write a folder on the way decides what it means at that moment.
//! So a state folder is opened once and looked at; whatever lies in it is reached from the descriptor, by names of one part,
//! through no link and no other mount. What has been opened is looked at before it is used: ours, not writable for
//! others, of the right kind. Nothing here waits: a FIFO is opened without a writer, and what is read has a bound.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, FileType, FlockOperation, Mode, OFlags, RenameFlags, ResolveFlags, Stat};
use rustix::io::Errno;
use rustix::process::Uid;

/// Flags of every opening.
const SAFE: OFlags = OFlags::NOFOLLOW.union(OFlags::CLOEXEC).union(OFlags::NONBLOCK);

/// A folder that only we may write.
#[derive(Debug)]
pub struct Dir {
    fd: OwnedFd,
    path: PathBuf,
    /// Device and inode.
    is: (u64, u64),
}

impl Dir {
    /// Opens the folder at `path`, whose last part is no link.
    ///
    /// # Errors
    /// When there is none, or somebody else owns it or may write it.
    pub fn open(path: &Path) -> io::Result<Dir> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | SAFE;
        Dir::of(rustix::fs::open(path, flags, Mode::empty())?, path.into())
    }

    fn of(fd: OwnedFd, path: PathBuf) -> io::Result<Dir> {
        let stat = rustix::fs::fstat(&fd)?;
        is_ours(&stat, FileType::Directory)?;
        Ok(Dir { fd, path, is: (stat.st_dev, stat.st_ino) })
    }

    /// Its path, for those who need one: messages, and other processes.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The path of a file in it.
    pub fn at(&self, name: impl AsRef<OsStr>) -> PathBuf {
        self.path.join(name.as_ref())
    }

    /// Another descriptor of it, with locks of its own.
    ///
    /// # Errors
    /// When the table of descriptors is full.
    pub fn again(&self) -> io::Result<Dir> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | SAFE;
        Dir::of(rustix::fs::openat(&self.fd, ".", flags, Mode::empty())?, self.path.clone())
    }

    /// Whether the path still leads to it.
    pub fn is_there(&self) -> bool {
        rustix::fs::lstat(&self.path).is_ok_and(|stat| (stat.st_dev, stat.st_ino) == self.is)
    }

    // ---- Folders in it ----

    /// The folder `name` in it.
    ///
    /// # Errors
    /// As [`Dir::open`].
    pub fn folder(&self, name: impl AsRef<OsStr>) -> io::Result<Dir> {
        let fd = self.open_at(name.as_ref(), OFlags::RDONLY | OFlags::DIRECTORY, Mode::empty())?;
        Dir::of(fd, self.at(name))
    }

    /// Makes the folder `name`, which must not be there.
    ///
    /// # Errors
    /// When it is, or cannot be made.
    pub fn make_folder(&self, name: impl AsRef<OsStr>) -> io::Result<Dir> {
        rustix::fs::mkdirat(&self.fd, one_part(name.as_ref())?, Mode::RWXU)?;
        self.folder(name)
    }

    /// What is in it; nothing when it cannot be read.
    pub fn names(&self) -> Vec<OsString> {
        names(&self.fd).unwrap_or_default()
    }

    // ---- Files in it ----

    /// Opens the file `name`: a regular one, ours.
    ///
    /// # Errors
    /// When it is not, or is not there.
    pub fn file(&self, name: impl AsRef<OsStr>, flags: OFlags) -> io::Result<File> {
        let fd = self.open_at(name.as_ref(), flags, Mode::empty())?;
        is_ours(&rustix::fs::fstat(&fd)?, FileType::RegularFile)?;
        Ok(fd.into())
    }

    /// Opens the file `name` of another user, for reading and writing: one that was made here, and given to that user.
    ///
    /// # Errors
    /// When it is not that user's, or is not there.
    pub fn file_of(&self, name: impl AsRef<OsStr>, user: Uid) -> io::Result<File> {
        let fd = self.open_at(name.as_ref(), OFlags::RDWR, Mode::empty())?;
        is_of(&rustix::fs::fstat(&fd)?, FileType::RegularFile, user)?;
        Ok(fd.into())
    }

    /// Makes the file `name`, for reading and writing. It must not be there, be it as a link.
    ///
    /// # Errors
    /// When it is, or cannot be made.
    pub fn make_file(&self, name: impl AsRef<OsStr>) -> io::Result<File> {
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL;
        Ok(self.open_at(name.as_ref(), flags, Mode::RUSR | Mode::WUSR)?.into())
    }

    /// The bytes of the file `name`.
    ///
    /// # Errors
    /// When it cannot be opened, or is longer than `limit`.
    pub fn read(&self, name: impl AsRef<OsStr>, limit: u64) -> io::Result<Vec<u8>> {
        let mut bytes = Vec::new();
        self.file(name, OFlags::RDONLY)?.take(limit + 1).read_to_end(&mut bytes)?;
        match bytes.len() as u64 > limit {
            true => Err(io::Error::other("it is too long for such a file")),
            false => Ok(bytes),
        }
    }

    /// Writes the file `name`, whole or not at all.
    ///
    /// # Errors
    /// When the folder cannot be written.
    pub fn replace(&self, name: &str, bytes: &[u8]) -> io::Result<()> {
        let new = format!("{name}.new");
        // One that was left half written.
        let _ = self.remove(&new);
        self.make_file(&new)?.write_all(bytes)?;
        self.rename(&new, name)
    }

    /// Gives the file `from` the name `to`, in place of what has it.
    ///
    /// # Errors
    /// When there is no such file.
    pub fn rename(&self, from: impl AsRef<OsStr>, to: impl AsRef<OsStr>) -> io::Result<()> {
        let (from, to) = (one_part(from.as_ref())?, one_part(to.as_ref())?);
        Ok(rustix::fs::renameat_with(&self.fd, from, &self.fd, to, RenameFlags::empty())?)
    }

    /// Makes the link `name` to `target`.
    ///
    /// # Errors
    /// When the name is taken.
    pub fn link(&self, target: &Path, name: impl AsRef<OsStr>) -> io::Result<()> {
        Ok(rustix::fs::symlinkat(target, &self.fd, one_part(name.as_ref())?)?)
    }

    /// Device and inode of what is there under `name`, a link itself included.
    pub fn identity(&self, name: impl AsRef<OsStr>) -> Option<(u64, u64)> {
        let stat = rustix::fs::statat(&self.fd, one_part(name.as_ref()).ok()?, AtFlags::SYMLINK_NOFOLLOW);
        stat.ok().map(|stat| (stat.st_dev, stat.st_ino))
    }

    /// When what is there under `name` was last changed, seconds since 1970.
    pub fn changed_s(&self, name: impl AsRef<OsStr>) -> Option<u64> {
        let stat = rustix::fs::statat(&self.fd, one_part(name.as_ref()).ok()?, AtFlags::SYMLINK_NOFOLLOW);
        u64::try_from(stat.ok()?.st_mtime).ok()
    }

    /// Removes the file `name`.
    ///
    /// # Errors
    /// When there is none, or it is a folder.
    pub fn remove(&self, name: impl AsRef<OsStr>) -> io::Result<()> {
        Ok(rustix::fs::unlinkat(&self.fd, one_part(name.as_ref())?, AtFlags::empty())?)
    }

    /// Removes whatever has the name `name`, and what is in it.
    ///
    /// # Errors
    /// When something of it stays, since somebody has made it just now.
    pub fn remove_all(&self, name: impl AsRef<OsStr>) -> io::Result<()> {
        remove_all(&self.fd, name.as_ref(), DEPTH)
    }

    fn open_at(&self, name: &OsStr, flags: OFlags, mode: Mode) -> io::Result<OwnedFd> {
        open_at(&self.fd, name, flags, mode)
    }

    // ---- Its lock ----

    /// Waits until nobody else has it locked.
    ///
    /// # Errors
    /// When the file system has no locks.
    pub fn lock(&self) -> io::Result<Locked<'_>> {
        rustix::fs::flock(&self.fd, FlockOperation::LockExclusive)?;
        Ok(Locked(self))
    }

    /// Whether somebody has it locked, by another descriptor than ours. Does not wait.
    pub fn is_locked(&self) -> bool {
        match rustix::fs::flock(&self.fd, FlockOperation::NonBlockingLockShared) {
            Err(cause) => cause == Errno::WOULDBLOCK,
            Ok(()) => {
                let _ = rustix::fs::flock(&self.fd, FlockOperation::Unlock);
                false
            }
        }
    }
}

impl AsFd for Dir {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// The lock on a folder, until it is dropped.
#[derive(Debug)]
pub struct Locked<'a>(&'a Dir);

impl Locked<'_> {
    /// Leaves the folder locked for as long as its descriptor is open.
    pub fn for_good(self) {
        std::mem::forget(self);
    }
}

impl Drop for Locked<'_> {
    fn drop(&mut self) {
        let _ = rustix::fs::flock(&self.0.fd, FlockOperation::Unlock);
    }
}

/// Folders in folders that we follow to remove them; a group has none in its own.
const DEPTH: u32 = 8;

/// A name that leads nowhere else.
fn one_part(name: &OsStr) -> io::Result<&OsStr> {
    match name.as_bytes() {
        b"" | b"." | b".." => Err(Errno::INVAL.into()),
        bytes if bytes.contains(&b'/') => Err(Errno::INVAL.into()),
        _ => Ok(name),
    }
}

fn open_at(folder: &OwnedFd, name: &OsStr, flags: OFlags, mode: Mode) -> io::Result<OwnedFd> {
    let (name, flags) = (one_part(name)?, flags | SAFE);
    let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_XDEV;
    match rustix::fs::openat2(folder, name, flags, mode, resolve) {
        // A container's filter of calls that does not know it. A name of one part, which is no link, leads nowhere else.
        Err(Errno::NOSYS | Errno::PERM) => Ok(rustix::fs::openat(folder, name, flags, mode)?),
        other => Ok(other?),
    }
}

/// Whether it is of that kind, of our user, and nobody else may write it.
fn is_ours(stat: &Stat, kind: FileType) -> io::Result<()> {
    is_of(stat, kind, rustix::process::geteuid())
}

fn is_of(stat: &Stat, kind: FileType, user: Uid) -> io::Result<()> {
    let refuse = |why: &str| Err(io::Error::new(io::ErrorKind::PermissionDenied, why));
    if FileType::from_raw_mode(stat.st_mode) != kind {
        return Err(io::Error::other("it is of another kind"));
    }
    if stat.st_uid != user.as_raw() {
        return refuse("it belongs to another user");
    }
    if stat.st_mode & 0o022 != 0 {
        return refuse("other users may write to it");
    }
    Ok(())
}

fn names(folder: &OwnedFd) -> io::Result<Vec<OsString>> {
    let mut names = Vec::new();
    for entry in rustix::fs::Dir::read_from(folder)? {
        let name = OsStr::from_bytes(entry?.file_name().to_bytes()).to_owned();
        if name != "." && name != ".." {
            names.push(name);
        }
    }
    Ok(names)
}

fn remove_all(folder: &OwnedFd, name: &OsStr, depth: u32) -> io::Result<()> {
    match rustix::fs::unlinkat(folder, one_part(name)?, AtFlags::empty()) {
        Err(Errno::ISDIR) if depth > 0 => {}
        other => return Ok(other?),
    }
    let inner = open_at(folder, name, OFlags::RDONLY | OFlags::DIRECTORY, Mode::empty())?;
    for entry in names(&inner)? {
        match remove_all(&inner, &entry, depth - 1) {
            Err(cause) if cause.kind() != io::ErrorKind::NotFound => return Err(cause),
            _ => {}
        }
    }
    Ok(rustix::fs::unlinkat(folder, name, AtFlags::REMOVEDIR)?)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt, symlink};
    use std::time::{Duration, Instant};

    use super::*;

    fn folder() -> (tempfile::TempDir, Dir) {
        let temp = tempfile::tempdir().unwrap();
        let dir = Dir::open(temp.path()).unwrap();
        (temp, dir)
    }

    #[test]
    fn a_link_leads_nowhere() {
        let (temp, dir) = folder();
        let (outside, _) = folder();
        let secret = outside.path().join("secret");
        std::fs::write(&secret, "kept").unwrap();
        symlink(&secret, temp.path().join("meta.json")).unwrap();
        symlink(&secret, temp.path().join("meta.json.new")).unwrap();
        symlink(outside.path(), temp.path().join("group")).unwrap();
        assert!(dir.read("meta.json", 100).is_err() && dir.make_file("meta.json").is_err());
        assert!(dir.folder("group").is_err() && Dir::open(&temp.path().join("group")).is_err());
        dir.replace("meta.json", b"new").unwrap();
        dir.remove_all("group").unwrap();
        assert_eq!(std::fs::read_to_string(&secret).unwrap(), "kept");
        assert_eq!(dir.read("meta.json", 100).unwrap(), b"new");
        for name in ["..", ".", "", "../secret", "a/b"] {
            assert!(dir.read(name, 100).is_err() && dir.remove_all(name).is_err(), "{name}");
        }
    }

    #[test]
    fn removal_follows_no_link() {
        let (temp, dir) = folder();
        let (outside, _) = folder();
        std::fs::write(outside.path().join("file"), "kept").unwrap();
        let group = temp.path().join("group");
        std::fs::create_dir_all(group.join("inner")).unwrap();
        symlink(outside.path(), group.join("inner/link")).unwrap();
        std::fs::write(group.join("segment"), "").unwrap();
        dir.remove_all("group").unwrap();
        assert!(!group.exists() && outside.path().join("file").exists());
    }

    #[test]
    fn nothing_holds_us_up() {
        let (temp, dir) = folder();
        let begun = Instant::now();
        let fifo = std::process::Command::new("mkfifo").arg(temp.path().join("fifo")).status().unwrap();
        assert!(fifo.success() && dir.read("fifo", 100).is_err());
        std::fs::write(temp.path().join("long"), [b'x'; 101]).unwrap();
        assert!(dir.read("long", 100).is_err());
        let other = dir.again().unwrap();
        other.lock().unwrap().for_good();
        assert!(dir.is_locked() && !other.is_locked());
        assert!(begun.elapsed() < Duration::from_secs(20));
    }

    #[test]
    fn what_others_may_write_is_not_ours() {
        let (temp, dir) = folder();
        std::fs::write(temp.path().join("file"), "").unwrap();
        let allow =
            |path: &Path, mode| std::fs::set_permissions(path, PermissionsExt::from_mode(mode)).unwrap();
        allow(&temp.path().join("file"), 0o666);
        assert!(dir.read("file", 100).is_err());
        allow(temp.path(), 0o777);
        assert!(Dir::open(temp.path()).is_err());
        allow(temp.path(), 0o700);
    }
}
