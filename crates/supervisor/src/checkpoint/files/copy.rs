//! Copies of files.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, ErrorKind, Read, Write};
use std::os::unix::fs::{DirBuilderExt, FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::Instant;

use rustix::fs::SeekFrom;
use rustix::io::Errno;

/// Bytes that are copied at once.
const STEP: u64 = 8 << 20;

/// How much may be copied, and until when.
pub(super) struct Budget {
    pub(super) bytes: u64,
    pub(super) by: Option<Instant>,
}

impl Budget {
    /// As much as there is.
    pub(super) fn none() -> Budget {
        Budget { bytes: u64::MAX, by: None }
    }

    fn spend(&mut self, bytes: u64) -> io::Result<()> {
        if self.bytes < bytes || self.by.is_some_and(|by| Instant::now() > by) {
            return Err(ErrorKind::TimedOut.into());
        }
        self.bytes -= bytes;
        Ok(())
    }
}

/// A folder that nobody else can read, and that was not there.
pub(super) fn make_folder(path: &Path) -> io::Result<()> {
    DirBuilder::new().mode(0o700).create(path)
}

/// Where the copy of a file is.
pub(super) fn place(folder: &Path, path: &str) -> PathBuf {
    folder.join(path.trim_start_matches('/'))
}

/// Copies the file of this path into the folder; how many bytes.
pub(super) fn into(path: &str, folder: &Path, budget: &mut Budget) -> io::Result<u64> {
    let from = File::open(path)?;
    let to = place(folder, path);
    fs::create_dir_all(to.parent().unwrap_or(folder))?;
    let to = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(to)?;
    content(&from, &to, budget)
}

/// Makes an empty file hold what another one does; how many bytes. Where the file system can, both have the same blocks from then on.
pub(super) fn content(from: &File, to: &File, budget: &mut Budget) -> io::Result<u64> {
    let bytes = from.metadata()?.len();
    if bytes != 0 && rustix::fs::ioctl_ficlone(to, from).is_ok() {
        return Ok(bytes);
    }
    to.set_len(bytes)?;
    let (mut at, mut copied) = (0, 0);
    let seek = |to| rustix::fs::seek(from, to);
    // Where nothing was ever written nothing is copied.
    while at < bytes {
        at = match seek(SeekFrom::Data(at)) {
            Ok(from) => from,
            Err(Errno::NXIO) => break,
            Err(_) => at,
        };
        let end = seek(SeekFrom::Hole(at)).unwrap_or(bytes);
        while at < end {
            let part = STEP.min(end - at);
            budget.spend(part)?;
            let got = part_of(from, to, at, part)?;
            if got == 0 {
                // It has become shorter meanwhile.
                return Ok(copied);
            }
            (at, copied) = (at + got, copied + got);
        }
    }
    Ok(copied)
}

fn part_of(from: &File, to: &File, at: u64, bytes: u64) -> io::Result<u64> {
    let (mut here, mut there) = (at, at);
    match rustix::fs::copy_file_range(from, Some(&mut here), to, Some(&mut there), bytes as usize) {
        Ok(got) if got != 0 => return Ok(got as u64),
        Err(cause @ (Errno::NOSPC | Errno::IO | Errno::DQUOT)) => return Err(cause.into()),
        _ => {}
    }
    let mut buffer = vec![0; bytes.min(1 << 20) as usize];
    let got = from.read_at(&mut buffer, at)?;
    to.write_all_at(&buffer[..got], at)?;
    Ok(got as u64)
}

/// Length and checksum of a file.
pub(in crate::checkpoint) fn sum(path: &Path) -> io::Result<(u64, u32)> {
    let mut file = File::open(path)?;
    let (mut bytes, mut checksum) = (0, 0);
    let mut buffer = vec![0; 1 << 20];
    loop {
        match file.read(&mut buffer)? {
            0 => return Ok((bytes, checksum)),
            got => {
                bytes += got as u64;
                checksum = crc32c::crc32c_append(checksum, &buffer[..got]);
            }
        }
    }
}

/// Moves something to another place, also to another file system.
pub(super) fn move_to(path: &Path, to: &Path) -> io::Result<()> {
    fs::create_dir_all(to.parent().unwrap_or(to))?;
    match fs::rename(path, to) {
        Err(cause) if cause.kind() == ErrorKind::CrossesDevices => {}
        result => return result,
    }
    let kind = fs::symlink_metadata(path)?.file_type();
    if kind.is_dir() {
        fs::create_dir_all(to)?;
        for entry in fs::read_dir(path)? {
            let entry = entry?;
            move_to(&entry.path(), &to.join(entry.file_name()))?;
        }
        return fs::remove_dir(path);
    }
    if kind.is_symlink() {
        std::os::unix::fs::symlink(fs::read_link(path)?, to)?;
    } else if kind.is_file() {
        keep(path, to)?;
    }
    fs::remove_file(path)
}

/// Copies a file to where there is none.
pub(super) fn keep(path: &Path, to: &Path) -> io::Result<()> {
    fs::create_dir_all(to.parent().unwrap_or(to))?;
    let mut new = OpenOptions::new().write(true).create_new(true).mode(0o600).open(to)?;
    content(&File::open(path)?, &new, &mut Budget::none())?;
    new.flush()
}
