//! The copies that this machine keeps: one file for each log, which is a recording like any other.

use std::collections::HashMap;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read};
use std::os::unix::fs::{DirBuilderExt, FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};
use std::time::{Duration, Instant};

use rustix::fs::OFlags;
use sha2::{Digest, Sha256};
use ship::follower::Opened;
use ship::hello::Hello;
use ship::{Copy, Place};

use crate::Error;

/// A link waits so long for an older one of the same log to end.
const PATIENCE: Duration = Duration::from_secs(1);

/// What the other machine is told then.
pub const FENCED: &str = "the program has been taken over here";

/// Beside a copy there is a file with this ending if its machine cannot take over; it says why.
pub const OBSTACLE: &str = "astray";

/// The same: which image of the program the mirror wants, a number.
pub const WANTED: &str = "wanted";

/// More of that is not told.
const OBSTACLE_MAX: u64 = 1024;

/// Larger programs are not looked at.
const PROGRAM_MAX: u64 = 1 << 30;

/// What is known of a copy: it is read once, and then known by its length.
#[derive(Debug, Default)]
struct Known {
    at: Place,
    last: u32,
    /// Not all that was written may be on the disk.
    is_dirty: bool,
    is_looked_at: bool,
}

/// A log's copy, and the session that is to have it.
#[derive(Debug, Default)]
struct Stream {
    known: Mutex<Known>,
    newest: Mutex<(u64, u64)>,
}

/// The folder of all copies.
#[derive(Debug)]
pub struct Shelf {
    folder: PathBuf,
    streams: Mutex<HashMap<[u8; 16], Arc<Stream>>>,
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Shelf {
    /// In this folder, which is made if it is not there. Only its owner may look into it.
    pub fn open(folder: &Path) -> Result<Shelf, Error> {
        let said = |cause: &dyn std::fmt::Display| Error::new(format_args!("{}: {cause}", folder.display()));
        fs::DirBuilder::new().recursive(true).mode(0o700).create(folder).map_err(|cause| said(&cause))?;
        let metadata = fs::metadata(folder).map_err(|cause| said(&cause))?;
        if metadata.uid() != rustix::process::geteuid().as_raw() || metadata.mode() & 0o077 != 0 {
            return Err(said(&"others may look into it; it is to be this user's alone (chmod 700)"));
        }
        Ok(Shelf { folder: folder.into(), streams: Mutex::default() })
    }

    /// The file of this log.
    fn path(&self, hello: &Hello) -> PathBuf {
        let stream: String = hello.stream.iter().map(|byte| format!("{byte:02x}")).collect();
        self.folder.join(format!("{}-{stream}.understudy", hello.group))
    }
}

/// What one link writes to.
pub struct Kept<'a> {
    shelf: &'a Shelf,
    link: u64,
    stream: Option<Arc<Stream>>,
    file: Option<File>,
    at: Place,
    last: u32,
    is_dirty: bool,
    /// The same of what is on the disk.
    disk: (Place, u32),
    path: PathBuf,
}

impl<'a> Kept<'a> {
    /// For the link of this number.
    pub fn new(shelf: &'a Shelf, link: u64) -> Kept<'a> {
        Kept {
            shelf,
            link,
            stream: None,
            file: None,
            at: Place::default(),
            last: 0,
            is_dirty: false,
            disk: (Place::default(), 0),
            path: PathBuf::new(),
        }
    }

    /// The copy's file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Whether a newer link wants this log.
    pub fn is_outdated(&self) -> bool {
        self.stream.as_ref().is_some_and(|stream| locked(&stream.newest).1 != self.link)
    }

    /// Whether this machine has taken over: nothing more of this log is wanted.
    pub fn is_fenced(&self) -> bool {
        self.stream.is_some() && self.path.with_extension("taken").exists()
    }

    /// Why this machine cannot take over, if that is so.
    pub fn obstacle(&self) -> Option<String> {
        self.stream.as_ref()?;
        let file = File::open(self.path.with_extension(OBSTACLE)).ok()?;
        let mut why = Vec::new();
        file.take(OBSTACLE_MAX).read_to_end(&mut why).ok()?;
        // It may have been made a moment ago.
        Some(String::from_utf8_lossy(&why).trim().to_owned()).filter(|why| !why.is_empty())
    }

    /// Which image of the program is wanted here; 0: none.
    pub fn wanted(&self) -> u64 {
        let text =
            self.stream.as_ref().and_then(|_| fs::read_to_string(self.path.with_extension(WANTED)).ok());
        text.and_then(|text| text.trim().parse().ok()).unwrap_or(0)
    }

    fn take(&mut self, hello: &Hello) -> Result<Opened, String> {
        self.path = self.shelf.path(hello);
        if self.path.with_extension("taken").exists() {
            return Err(FENCED.into());
        }
        let stream = Arc::clone(locked(&self.shelf.streams).entry(hello.stream).or_default());
        {
            let mut newest = locked(&stream.newest);
            if hello.session < newest.0 {
                return Err("a newer link of this log is there".into());
            }
            *newest = (hello.session, self.link);
        }
        let began = Instant::now();
        let file = loop {
            match open(&self.path)? {
                Some(file) => break file,
                None if began.elapsed() > PATIENCE => {
                    return Err(format!("{} is in use", self.path.display()));
                }
                None => std::thread::sleep(Duration::from_millis(10)),
            }
        };
        let mut known = match stream.known.try_lock() {
            Ok(known) => known,
            Err(TryLockError::Poisoned(known)) => known.into_inner(),
            Err(TryLockError::WouldBlock) => return Err("what is there is being looked at".into()),
        };
        let told = |cause: io::Error| format!("{}: {cause}", self.path.display());
        let length = file.metadata().map_err(told)?.len();
        if !known.is_looked_at || length != known.at.offset {
            (known.at, known.last) = look(&file).map_err(told)?;
            known.is_looked_at = true;
            known.is_dirty = true;
            // What is behind the last whole entry is the rest of one that a crash has torn.
            file.set_len(known.at.offset).map_err(told)?;
        }
        if known.is_dirty {
            file.sync_data().map_err(told)?;
            known.is_dirty = false;
        }
        if known.at == Place::default() {
            // Its name is to be on the disk as well.
            File::open(&self.shelf.folder).and_then(|folder| folder.sync_all()).map_err(told)?;
        }
        (self.at, self.last) = (known.at, known.last);
        self.disk = (known.at, known.last);
        drop(known);
        (self.stream, self.file) = (Some(stream), Some(file));
        let program = program(Path::new(&hello.program.path));
        Ok(Opened { at: self.at, disk: self.at, last: self.last, program })
    }
}

impl Copy for Kept<'_> {
    fn open(&mut self, hello: &Hello) -> Result<Opened, String> {
        self.take(hello)
    }

    fn append(&mut self, at: Place, bytes: &[u8]) -> Result<(), String> {
        let file = self.file.as_ref().ok_or("no copy is open")?;
        if !recording::is_whole(bytes, at.number) {
            return Err(format!("entry {} is damaged", at.number));
        }
        if let Err(cause) = file.write_all_at(bytes, at.offset) {
            // Whoever reads it finds an end there and no torn entry.
            let _ = file.set_len(at.offset);
            return Err(format!("{}: {cause}", self.path.display()));
        }
        self.is_dirty = true;
        (self.at, self.last) = (at.behind(bytes.len()), crc32c::crc32c(bytes));
        Ok(())
    }

    fn sync(&mut self) -> Result<(), String> {
        let file = self.file.as_ref().ok_or("no copy is open")?;
        if let Err(cause) = file.sync_data() {
            // Asked again the kernel may say that all is well, and have forgotten the bytes.
            (self.at, self.last) = self.disk;
            let _ = file.set_len(self.at.offset);
            return Err(format!("{}: {cause}", self.path.display()));
        }
        self.disk = (self.at, self.last);
        self.is_dirty = false;
        Ok(())
    }
}

impl Drop for Kept<'_> {
    fn drop(&mut self) {
        if let (Some(stream), Some(_)) = (&self.stream, &self.file) {
            let mut known = locked(&stream.known);
            (known.at, known.last, known.is_dirty) = (self.at, self.last, self.is_dirty);
        }
        // With the file its lock goes: who reads it knows that nobody writes.
    }
}

/// Opens the file and takes its lock, which tells its readers that there may be more; `None` while somebody else has that.
fn open(path: &Path) -> Result<Option<File>, String> {
    let told = |cause: io::Error| format!("{}: {cause}", path.display());
    let flags = OFlags::NOFOLLOW.bits() as i32;
    let file = OpenOptions::new()
        .read(true)
        .write(true)
        .create(true)
        .truncate(false)
        .mode(0o600)
        .custom_flags(flags)
        .open(path)
        .map_err(told)?;
    match file.try_lock() {
        Ok(()) => Ok(Some(file)),
        Err(fs::TryLockError::WouldBlock) => Ok(None),
        Err(fs::TryLockError::Error(cause)) => Err(told(cause)),
    }
}

/// How far the file goes with whole entries, and the checksum of the last.
fn look(file: &File) -> io::Result<(Place, u32)> {
    let mut chunks = recording::Chunks::of(file.try_clone()?);
    let (mut at, mut last) = (Place::default(), 0);
    while let Some(bytes) = chunks.read(at.number, at.offset) {
        (at, last) = (at.behind(bytes.len()), crc32c::crc32c(&bytes));
    }
    Ok((at, last))
}

/// SHA-256 of a program's file, if there is one here.
fn program(path: &Path) -> Option<[u8; 32]> {
    let flags = OFlags::NONBLOCK.bits() as i32;
    let file = OpenOptions::new().read(true).custom_flags(flags).open(path).ok()?;
    let metadata = file.metadata().ok()?;
    if !metadata.is_file() || metadata.len() > PROGRAM_MAX {
        return None;
    }
    let mut hash = Sha256::new();
    io::copy(&mut file.take(PROGRAM_MAX), &mut hash).ok()?;
    Some(hash.finalize().into())
}
