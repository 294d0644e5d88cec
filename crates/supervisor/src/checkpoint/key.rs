//! The file with the key of sealed checkpoints.

use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use checkpoint::{KEY_BYTES, Key};
use rustix::fs::MemfdFlags;
use zeroize::Zeroizing;

use crate::error::Error;

/// Bytes of such a file, at most.
pub(super) const LONGEST: u64 = *KEY_BYTES.end() as u64;

/// What such a file holds.
pub struct KeyFile {
    bytes: Zeroizing<Vec<u8>>,
}

/// Memory for a key: reading into it leaves no other copy behind.
pub(super) fn room() -> Zeroizing<Vec<u8>> {
    Zeroizing::new(Vec::with_capacity(LONGEST as usize + 2))
}

impl KeyFile {
    /// Reads it. Nobody but its owner, who is this user or root, may be able to.
    ///
    /// # Errors
    /// When it cannot be read, others can read it, or it holds no key.
    pub fn read(path: &Path) -> Result<KeyFile, Error> {
        let refuse = |why: String| Err(Error::NothingRun(format!("{}: {why}", path.display())));
        let fail = |cause| Error::file("read", path, cause);
        let file = File::open(path).map_err(fail)?;
        // Of the file that is read: the name may mean another one by then.
        let status = file.metadata().map_err(fail)?;
        let me = rustix::process::geteuid().as_raw();
        if status.uid() != me && status.uid() != 0 {
            return refuse(format!("the key belongs to user {}", status.uid()));
        }
        let mode = status.mode() & 0o777;
        if mode & 0o077 != 0 {
            return refuse(format!(
                "others can use the key (its mode is {mode:03o}); chmod 600 keeps it to you"
            ));
        }
        let mut bytes = room();
        file.take(LONGEST + 1).read_to_end(&mut bytes).map_err(fail)?;
        if Key::of(&bytes).is_none() {
            return refuse(format!(
                "a key has {} to {} bytes, at random: head -c 32 /dev/urandom makes one",
                KEY_BYTES.start(),
                KEY_BYTES.end()
            ));
        }
        Ok(KeyFile { bytes })
    }

    /// The key.
    pub(super) fn key(&self) -> Option<Key> {
        Key::of(&self.bytes)
    }

    /// A descriptor from which another process of this user can read it.
    pub(super) fn hold(&self) -> Result<OwnedFd, Error> {
        let fail = |cause: std::io::Error| Error::system("hand over a key", cause);
        let held =
            rustix::fs::memfd_create("key", MemfdFlags::CLOEXEC).map_err(|cause| fail(cause.into()))?;
        let mut file = File::from(held);
        file.write_all(&self.bytes).map_err(fail)?;
        Ok(file.into())
    }
}
