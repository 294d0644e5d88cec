//! Where a reader's bytes come from.

use std::fs;
use std::io;
use std::os::unix::fs::FileExt;

/// Where the bytes are.
#[derive(Debug)]
pub enum Source {
    /// Of a file.
    File(fs::File),
    /// In memory.
    Bytes(Vec<u8>),
}

impl Source {
    /// Up to `count` bytes from `offset`: fewer at the end. The caller has bounded `count`.
    pub fn read(&self, offset: u64, count: usize) -> io::Result<Vec<u8>> {
        let mut bytes = vec![0; count];
        let there = self.read_into(offset, &mut bytes)?;
        bytes.truncate(there);
        Ok(bytes)
    }

    /// The same into these bytes. How many there are.
    pub fn read_into(&self, offset: u64, into: &mut [u8]) -> io::Result<usize> {
        let mut done = 0;
        match self {
            Source::File(file) => {
                while done < into.len() {
                    match file.read_at(&mut into[done..], offset + done as u64) {
                        Ok(0) => break,
                        Ok(more) => done += more,
                        Err(cause) if cause.kind() == io::ErrorKind::Interrupted => {}
                        Err(cause) => return Err(cause),
                    }
                }
            }
            Source::Bytes(bytes) => {
                let behind = bytes.get(offset as usize..).unwrap_or_default();
                done = into.len().min(behind.len());
                into[..done].copy_from_slice(&behind[..done]);
            }
        }
        Ok(done)
    }

    /// Bytes that are there.
    pub fn length(&self) -> io::Result<u64> {
        match self {
            Source::File(file) => Ok(file.metadata()?.len()),
            Source::Bytes(bytes) => Ok(bytes.len() as u64),
        }
    }

    /// Whether the writer has the file open still: it holds the lock.
    pub fn has_writer(&self) -> bool {
        match self {
            Source::File(file) => match file.try_lock_shared() {
                Ok(()) => file.unlock().is_err(),
                // Where there are no locks nobody can know.
                Err(cause) => matches!(cause, fs::TryLockError::WouldBlock),
            },
            Source::Bytes(_) => false,
        }
    }
}
