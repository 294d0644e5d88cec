//! Incremental checkpoints: what one builds on, and where its pages are found again.

use std::collections::HashMap;
use std::fs::File;
use std::io::BufReader;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};

use checkpoint::{Base, BuiltOn, Digest, Error, Key, Opener, Owner, PAGE_BYTES, Reader, Skip};

use crate::request::callers;

/// How many checkpoints may build on each other.
const LONGEST: usize = 256;

/// A checkpoint's file, sealed if there is a key.
///
/// # Errors
/// The file's, or that it is sealed in another way.
pub(super) fn open(file: File, key: Option<Key>) -> Result<Box<dyn Skip>, Error> {
    let file = BufReader::with_capacity(1 << 20, file);
    Ok(match key {
        None => Box::new(file),
        Some(key) => Box::new(Opener::new(file, key)?),
    })
}

/// The file of a checkpoint on which one is to build.
pub(crate) struct BaseFile {
    path: String,
    file: File,
    key: Option<Key>,
}

impl BaseFile {
    /// The one that a caller has under this number. It is sealed as the new one is to be.
    ///
    /// # Errors
    /// Why it cannot be read.
    pub(crate) fn of_caller(caller: &UnixStream, number: &str, key: Option<Key>) -> Result<BaseFile, String> {
        let path = callers(caller, number)?;
        let name = std::fs::read_link(&path).ok().and_then(|name| name.into_os_string().into_string().ok());
        let name = name.ok_or("the path of the base is not UTF-8")?;
        let file = File::open(&path).map_err(|cause| format!("cannot read {name}: {cause}"))?;
        Ok(BaseFile { path: name, file, key })
    }

    /// Reads what the new one needs of it, and what that says of it.
    ///
    /// # Errors
    /// When nothing can build on it.
    pub(super) fn read(self) -> std::io::Result<(Base, BuiltOn)> {
        let refuse = |why: Error| std::io::Error::other(format!("{}: {why}", self.path));
        let base = open(self.file, self.key).and_then(Base::read).map_err(refuse)?;
        let built_on = BuiltOn { path: self.path.clone(), id: base.id().into() };
        Ok((base, built_on))
    }
}

/// Pages that a checkpoint has and its file has not.
pub(super) struct Missing {
    seed: u64,
    pages: HashMap<(Owner, u64), Digest>,
}

impl Missing {
    /// All pages of one that has been read to its end; those that were in it are [taken](Missing::found) off.
    pub(super) fn of(reader: &Reader<impl std::io::Read>, seed: u64) -> Missing {
        let pages = reader.index().pages().map(|(owner, address, digest)| ((owner, address), digest));
        Missing { seed, pages: pages.collect() }
    }

    /// So many bytes from this address on are there.
    pub(super) fn found(&mut self, owner: Owner, address: u64, bytes: u64) {
        for at in (0..bytes).step_by(PAGE_BYTES) {
            self.pages.remove(&(owner, address + at));
        }
    }

    /// Finds all of them in the checkpoint's base, in what that builds on, and so on. `key` opens each; `put` takes each page.
    ///
    /// # Errors
    /// What cannot be read, or is not the one that was built on.
    pub(super) fn find(
        mut self,
        of: &Path,
        base: &BuiltOn,
        key: impl Fn() -> Option<Key>,
        mut put: impl FnMut(Owner, u64, &[u8]) -> Result<(), String>,
    ) -> Result<(), String> {
        let (mut of, mut base) = (of.to_owned(), base.clone());
        for _ in 0..LONGEST {
            if self.pages.is_empty() {
                return Ok(());
            }
            let (path, file) = self::find(&of, &base)?;
            let refuse =
                |why: &dyn std::fmt::Display| format!("{}, on which it builds: {why}", path.display());
            let mut reader = open(file, key()).and_then(Reader::new).map_err(|error| refuse(&error))?;
            if reader.head().id != base.id {
                return Err(refuse(&"it is another checkpoint than the one that was there"));
            }
            while let Some(chunk) = reader.pages().map_err(|error| refuse(&error))? {
                for (start, bytes) in chunk.runs() {
                    self.take(chunk.owner(), start, bytes, &mut put)?;
                }
            }
            let Some(next) = reader.head().base.clone() else { break };
            (of, base) = (path, next);
        }
        match self.pages.len() {
            0 => Ok(()),
            count => Err(format!("{count} of its pages are in none of the checkpoints on which it builds")),
        }
    }

    /// Takes off what is among these pages; those that are next to each other are put together.
    fn take(
        &mut self,
        owner: Owner,
        start: u64,
        bytes: &[u8],
        put: &mut impl FnMut(Owner, u64, &[u8]) -> Result<(), String>,
    ) -> Result<(), String> {
        let place = |page: usize| start + (page * PAGE_BYTES) as u64;
        let pages = bytes.as_chunks::<PAGE_BYTES>().0;
        let mut from = 0;
        for (at, page) in pages.iter().enumerate() {
            let wanted = (owner, place(at));
            if self.pages.get(&wanted).is_some_and(|digest| *digest == Digest::of(self.seed, page)) {
                self.pages.remove(&wanted);
                continue;
            }
            if from < at {
                put(owner, place(from), &bytes[from * PAGE_BYTES..at * PAGE_BYTES])?;
            }
            from = at + 1;
        }
        if from < pages.len() {
            put(owner, place(from), &bytes[from * PAGE_BYTES..pages.len() * PAGE_BYTES])?;
        }
        Ok(())
    }
}

/// The file of a base: where it was, or, if there is none any more, beside the one that builds on it.
fn find(of: &Path, base: &BuiltOn) -> Result<(PathBuf, File), String> {
    let path = Path::new(&base.path);
    let beside = of.parent().zip(path.file_name()).map(|(folder, name)| folder.join(name));
    let opened = File::open(path).map(|file| (path.to_owned(), file));
    opened.or_else(|cause| match beside.map(|path| (File::open(&path), path)) {
        Some((Ok(file), path)) => Ok((path, file)),
        _ => Err(format!("it builds on {}, which cannot be opened: {cause}", base.path)),
    })
}
