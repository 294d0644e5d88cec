//! What the kernel says of a file.

use core::mem::offset_of;

use linux_raw_sys::general::stat;

use super::identity_of;
use crate::raw;

/// The kernel's `struct stat`, as far as it is looked at.
#[repr(C)]
#[derive(Default)]
pub struct Stat {
    /// The device that the file lies on.
    pub dev: u64,
    /// Its number there.
    pub ino: u64,
    nlink: u64,
    pub(super) mode: u32,
    owner: [u32; 3],
    /// The device that it is, if it is one.
    pub rdev: u64,
    /// Bytes.
    pub size: u64,
    blocks: [u64; 2],
    accessed: [u64; 2],
    modified: [u64; 2],
    changed: [u64; 2],
    rest: [u64; 3],
}

const _: () = assert!(
    size_of::<Stat>() == size_of::<stat>()
        && offset_of!(Stat, mode) == offset_of!(stat, st_mode)
        && offset_of!(Stat, rdev) == offset_of!(stat, st_rdev)
        && offset_of!(Stat, size) == offset_of!(stat, st_size)
        && offset_of!(Stat, modified) == offset_of!(stat, st_mtime)
        && offset_of!(Stat, changed) == offset_of!(stat, st_ctime)
);

/// The folder from which a path is looked up that says none.
pub const AT_FDCWD: u64 = -100i64 as u64;

impl Stat {
    /// Of an open file; `None` if the kernel refuses.
    pub fn of(fd: i32) -> Option<Stat> {
        let mut stat = Stat::default();
        // SAFETY: the kernel writes one struct stat.
        (unsafe { raw::call2(raw::nr::FSTAT, fd as u64, &raw mut stat as u64) } == 0).then_some(stat)
    }

    /// Of what a path leads to, from this folder on, as `fstatat`.
    pub fn at(folder: u64, path: u64, flags: u64) -> Option<Stat> {
        use crate::raw::nr::NEWFSTATAT;
        let mut stat = Stat::default();
        // SAFETY: the kernel reads a path, and writes one struct stat.
        let result = unsafe { raw::call4(NEWFSTATAT, folder, path, &raw mut stat as u64, flags) };
        (result == 0).then_some(stat)
    }

    /// The identity of what it is of.
    pub fn identity(&self) -> u64 {
        identity_of(self.dev, self.ino)
    }

    /// Whether it is a regular file.
    pub fn is_regular(&self) -> bool {
        self.mode & S_IFMT == S_IFREG
    }

    /// Whether it is a pipe, with a name or without.
    pub fn is_fifo(&self) -> bool {
        self.mode & S_IFMT == S_IFIFO
    }

    /// When it was modified, and when anything about it was changed, ns.
    pub fn times_ns(&self) -> [u64; 2] {
        [self.modified, self.changed].map(|[s, ns]| s.wrapping_mul(1_000_000_000).wrapping_add(ns))
    }

    /// Whether both are of one file.
    pub fn is_same(&self, other: &Stat) -> bool {
        (self.dev, self.ino) == (other.dev, other.ino)
    }
}

pub(super) const S_IFMT: u32 = linux_raw_sys::general::S_IFMT;
pub(super) const S_IFIFO: u32 = linux_raw_sys::general::S_IFIFO;
pub(super) const S_IFREG: u32 = linux_raw_sys::general::S_IFREG;
pub(super) const S_IFSOCK: u32 = linux_raw_sys::general::S_IFSOCK;
