//! Where a checkpoint is written to, and by which key it is sealed: both are the caller's.

use std::fs::{File, OpenOptions};
use std::io::{self, BufWriter, Read, Write};
use std::os::unix::net::UnixStream;

use checkpoint::{Key, Sealer};

use super::key;
use crate::request::callers;

/// A checkpoint's file, sealed or not.
pub(crate) enum Output {
    Plain(BufWriter<File>),
    Sealed(Box<Sealer<BufWriter<File>>>),
}

impl Output {
    /// An empty file.
    ///
    /// # Errors
    /// The file's.
    pub(crate) fn new(file: File, key: Option<Key>) -> io::Result<Output> {
        let file = BufWriter::with_capacity(1 << 20, file);
        Ok(match key {
            None => Output::Plain(file),
            Some(key) => Output::Sealed(Box::new(Sealer::new(file, key)?)),
        })
    }

    /// Ends it; it is on the disk then.
    ///
    /// # Errors
    /// The file's.
    pub(super) fn finish(self) -> io::Result<File> {
        let file = match self {
            Output::Plain(file) => file,
            Output::Sealed(sealer) => sealer.finish()?,
        };
        let file = file.into_inner().map_err(|cause| cause.into_error())?;
        file.sync_data()?;
        Ok(file)
    }
}

impl Write for Output {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Output::Plain(file) => file.write(bytes),
            Output::Sealed(sealer) => sealer.write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match self {
            Output::Plain(file) => file.flush(),
            Output::Sealed(sealer) => sealer.flush(),
        }
    }
}

/// Opens the file that a caller has under this number.
pub(crate) fn callers_file(caller: &UnixStream, number: &str) -> Result<File, String> {
    let opened = OpenOptions::new().write(true).open(callers(caller, number)?);
    opened.map_err(|cause| format!("cannot write the checkpoint: {cause}"))
}

/// Reads the key that a caller has under this number.
pub(crate) fn callers_key(caller: &UnixStream, number: &str) -> Result<Key, String> {
    let mut bytes = key::room();
    let opened = File::open(callers(caller, number)?);
    let read = opened.and_then(|file| file.take(key::LONGEST + 1).read_to_end(&mut bytes));
    read.map_err(|cause| format!("cannot read the key: {cause}"))?;
    Key::of(&bytes).ok_or_else(|| "what was given is no key".into())
}
