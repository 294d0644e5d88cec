//! Putting files back that were taken with a checkpoint.
//!
//! A file that is what it was is left alone. What stands where another one was is moved away, into the folder of the copies: nothing
//! is lost. A file that is there is written anew and not replaced, because a program may know it by its number (SQLite does).

use std::collections::BTreeSet;
use std::fs::{self, File, OpenOptions, Permissions};
use std::io;
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use checkpoint::{Content, Taken, TakenFile};
use rustix::fs::{AtFlags, CWD, FileType, Gid, Mode, Timespec, Timestamps, Uid};

use super::copy::{self, Budget};
use super::list;
use crate::checkpoint::{describe, raw};

/// What is to be done before the program goes on.
#[derive(Debug, Default)]
pub(in crate::checkpoint) struct Back {
    folder: PathBuf,
    /// Those that are not what they were, in the order in which they are made.
    differ: Vec<TakenFile>,
    /// What was not there, in folders of which all was taken.
    extra: Vec<String>,
}

impl Back {
    /// Compares what was taken with what is there, and with the copies in the `folder` that the caller names.
    ///
    /// # Errors
    /// Why the program cannot go on with the files that it had. Nothing has been changed then.
    pub(in crate::checkpoint) fn plan(taken: Option<&Taken>, folder: Option<&Path>) -> Result<Back, String> {
        let Some(taken) = taken else {
            return match folder {
                None => Ok(Back::default()),
                Some(_) => Err("no files were taken with it: go on without --with-files".into()),
            };
        };
        if !taken.files.iter().all(|one| is_whole(&one.path))
            || !taken.volumes.iter().all(|path| is_whole(path))
        {
            return Err("a file that was taken with it has no path".into());
        }
        let differ: Vec<TakenFile> = taken.files.iter().filter(|one| !is_there(one)).cloned().collect();
        let extra = extra(taken)?;
        let Some(folder) = folder else {
            return match differ.first().map(|one| &one.path).or(extra.first()) {
                None => Ok(Back::default()),
                Some(path) => Err(format!(
                    "{path} is not what it was: --with-files FOLDER puts back the files that were taken with the checkpoint"
                )),
            };
        };
        for one in &taken.files {
            if let Content::File { bytes, checksum } = one.content {
                let copy = copy::place(folder, &one.path);
                match copy::sum(&copy) {
                    Ok(sum) if sum == (bytes, checksum) => {}
                    Ok(_) => {
                        return Err(format!("{} is not the copy that was taken with it", copy.display()));
                    }
                    Err(cause) => return Err(format!("cannot read {}: {cause}", copy.display())),
                }
            }
        }
        let others = differ.iter().map(|one| &one.path).chain(&extra);
        if let Some(path) = others.into_iter().find(|path| is_written(path)) {
            return Err(format!("{path} is not what it was, and somebody has it open to write to it"));
        }
        Ok(Back { folder: folder.to_owned(), differ, extra })
    }

    /// Checks that files which are mapped will be what they were.
    ///
    /// # Errors
    /// Which one will not.
    pub(in crate::checkpoint) fn check(&self, mapped: &[checkpoint::File]) -> Result<(), String> {
        let brings = |file: &&checkpoint::File| {
            let content = Content::File { bytes: file.bytes, checksum: file.checksum };
            self.differ.iter().any(|one| one.path == file.path && one.content == content)
        };
        for file in mapped.iter().filter(|file| !brings(file)) {
            if describe::file(&file.path)? != *file {
                return Err(format!("{} is another file now", file.path));
            }
        }
        Ok(())
    }

    /// Puts the files back. What it says of that, if there was anything to do.
    ///
    /// # Errors
    /// What cannot be put back. What has been moved away is where that says.
    pub(in crate::checkpoint) fn perform(&self) -> Result<Option<String>, String> {
        if self.differ.is_empty() && self.extra.is_empty() {
            return Ok(None);
        }
        let aside = self
            .aside()
            .map_err(|cause| format!("cannot make a folder in {}: {cause}", self.folder.display()))?;
        let fail = |path: &str, cause: io::Error| {
            format!("cannot put {path} back: {cause}; what has been replaced is in {}", aside.display())
        };
        for path in &self.extra {
            copy::move_to(Path::new(path), &copy::place(&aside, path)).map_err(|cause| fail(path, cause))?;
        }
        for one in &self.differ {
            self.make(one, &aside).map_err(|cause| fail(&one.path, cause))?;
        }
        let count = self.differ.len() + self.extra.len();
        let files = if count == 1 { "1 file is" } else { &*format!("{count} files are") };
        let kept = match fs::remove_dir(&aside) {
            Ok(()) => String::new(),
            Err(_) => format!("; what was there now is in {}", aside.display()),
        };
        Ok(Some(format!("{files} as the checkpoint has them{kept}")))
    }

    /// A new folder for what is moved away.
    fn aside(&self) -> io::Result<PathBuf> {
        let mut number = 1;
        loop {
            let path = self.folder.join(format!("replaced-{number}"));
            match copy::make_folder(&path) {
                Err(cause) if cause.kind() == io::ErrorKind::AlreadyExists => number += 1,
                result => return result.and_then(|()| path.canonicalize()),
            }
        }
    }

    /// Makes one file what it was.
    fn make(&self, one: &TakenFile, aside: &Path) -> io::Result<()> {
        let path = Path::new(&one.path);
        let there = fs::symlink_metadata(path).ok();
        let is_alike = there.as_ref().is_some_and(|status| match one.content {
            Content::File { .. } => status.is_file(),
            Content::Folder => status.is_dir(),
            // Made anew.
            Content::Link(_) | Content::Pipe => false,
        });
        if there.is_some() && !is_alike {
            copy::move_to(path, &copy::place(aside, &one.path))?;
        }
        fs::create_dir_all(path.parent().unwrap_or(path))?;
        match &one.content {
            Content::Folder => fs::create_dir_all(path)?,
            Content::Link(to) => return std::os::unix::fs::symlink(to, path),
            Content::Pipe => rustix::fs::mknodat(CWD, path, FileType::Fifo, Mode::from_raw_mode(0o600), 0)?,
            Content::File { .. } => {
                if is_alike {
                    copy::keep(path, &copy::place(aside, &one.path))?;
                }
                let to = OpenOptions::new().write(true).create(true).truncate(true).open(path)?;
                let from = File::open(copy::place(&self.folder, &one.path))?;
                copy::content(&from, &to, &mut Budget::none())?;
            }
        }
        let now = fs::symlink_metadata(path)?;
        if [now.uid(), now.gid()] != one.owner {
            let [user, group] = one.owner;
            rustix::fs::chownat(
                CWD,
                path,
                Some(Uid::from_raw(user)),
                Some(Gid::from_raw(group)),
                AtFlags::empty(),
            )?;
        }
        fs::set_permissions(path, Permissions::from_mode(one.mode))?;
        if matches!(one.content, Content::File { .. }) {
            let last_access = Timespec { tv_sec: 0, tv_nsec: rustix::fs::UTIME_OMIT };
            let last_modification = Timespec { tv_sec: one.written.0, tv_nsec: one.written.1 };
            let times = Timestamps { last_access, last_modification };
            rustix::fs::utimensat(CWD, path, &times, AtFlags::empty())?;
        }
        Ok(())
    }
}

/// Whether a path says one place, whoever reads it.
fn is_whole(path: &str) -> bool {
    path.starts_with('/') && !path.contains('\0') && !path.split('/').any(|part| part == ".." || part == ".")
}

/// Whether a file is what it was.
fn is_there(one: &TakenFile) -> bool {
    let Ok(status) = fs::symlink_metadata(&one.path) else { return false };
    match &one.content {
        Content::Folder => status.is_dir(),
        Content::Pipe => status.file_type().is_fifo(),
        Content::Link(to) => fs::read_link(&one.path).is_ok_and(|now| now == Path::new(to)),
        Content::File { bytes, checksum } => {
            status.is_file()
                && status.len() == *bytes
                && copy::sum(Path::new(&one.path)).is_ok_and(|sum| sum == (*bytes, *checksum))
        }
    }
}

/// What lies in the volumes and did not: of a folder that folder alone. Sockets and devices were never listed.
fn extra(taken: &Taken) -> Result<Vec<String>, String> {
    let known: BTreeSet<&str> = taken.files.iter().map(|one| &*one.path).collect();
    let mut all = BTreeSet::new();
    for volume in taken.volumes.iter().filter(|volume| Path::new(volume).is_dir()) {
        list::tree(volume, &mut all)?;
    }
    let mut extra: Vec<String> = Vec::new();
    for path in all {
        let is_kept = |path: &str| {
            fs::symlink_metadata(path).map_or(true, |status| {
                let kind = status.file_type();
                kind.is_socket() || kind.is_block_device() || kind.is_char_device()
            })
        };
        let is_inside = extra.iter().any(|outer| Path::new(&path).starts_with(outer));
        if !known.contains(&*path) && !is_inside && !is_kept(&path) {
            extra.push(path);
        }
    }
    Ok(extra)
}

/// Whether somebody has a file open to write to it, as far as the kernel tells us.
fn is_written(path: &str) -> bool {
    let is_file = fs::symlink_metadata(path).is_ok_and(|status| status.is_file());
    is_file && File::open(path).is_ok_and(|file| raw::is_open_for_writing(&file))
}
