//! A shared file in our memory: a segment or the roster.
//!
//! # Safety
//! The mapping stays while its owner lives, and a reference into it borrows from the owner. The file is never made
//! shorter by those who keep to the rules; a guest that does so anyway ends its own protection.

use std::os::fd::AsFd;
use std::path::Path;
use std::ptr::{self, NonNull};

use rustix::mm::{MapFlags, ProtFlags};

use crate::error::Error;

/// Memory that other processes have as well.
#[derive(Debug)]
pub(crate) struct Mapping {
    base: NonNull<u8>,
    bytes: usize,
}

// SAFETY: an address range; what lies in it is shared between processes, let alone threads.
unsafe impl Send for Mapping {}
// SAFETY: as above.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// Maps the first `bytes` of `file`, which has that many.
    ///
    /// # Errors
    /// When the kernel has no room for it.
    pub(crate) fn new(path: &Path, file: impl AsFd, bytes: usize) -> Result<Mapping, Error> {
        let prot = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a new mapping at an address of the kernel's choice replaces nothing.
        let base = unsafe { rustix::mm::mmap(ptr::null_mut(), bytes, prot, MapFlags::SHARED, file, 0) }
            .map_err(|cause| Error::file("map", path, cause))?;
        let base = NonNull::new(base.cast()).ok_or_else(|| {
            Error::file("map", path, std::io::Error::other("the kernel mapped it at address zero"))
        })?;
        Ok(Mapping { base, bytes })
    }

    /// Where it begins: at a page.
    pub(crate) fn base(&self) -> NonNull<u8> {
        self.base
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: our own range, and nobody borrows from its owner any more.
        let _ = unsafe { rustix::mm::munmap(self.base.as_ptr().cast(), self.bytes) };
    }
}
