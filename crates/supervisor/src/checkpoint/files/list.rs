//! Which files there are to take.

use std::collections::{BTreeSet, HashSet};
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;

use us_sites::maps::WRITE;

use crate::checkpoint::memory::Pieces;
use crate::proc;
use crate::proc::text;

/// File systems of this machine that give a file a new time with every change: ext, xfs, btrfs, tmpfs, overlay, f2fs, bcachefs, zfs.
const TELLING: [i64; 8] =
    [0xef53, 0x5846_5342, 0x9123_683e, 0x0102_1994, 0x794c_7630, 0xf2f5_2010, 0xca45_1a4e, 0x2fc1_2fc1];

/// File systems in which the kernel tells of itself: proc, sysfs, cgroup (2), tracefs, debugfs, securityfs, mqueue.
const KERNELS: [i64; 8] =
    [0x9fa0, 0x6265_6572, 0x0027_e0eb, 0x6367_7270, 0x7472_6163, 0x6462_6720, 0x7363_6673, 0x1980_0202];

fn kind_of(path: &str) -> i64 {
    rustix::fs::statfs(path).map_or(0, |status| status.f_type)
}

/// Whether a file's times tell that it has changed.
pub(super) fn tells_changes(path: &str) -> bool {
    TELLING.contains(&kind_of(path))
}

/// Whether it is a file of the kernel's, which nobody could put back.
pub(super) fn is_kernels(path: &str) -> bool {
    KERNELS.contains(&kind_of(path))
}

/// Files that these processes have open to be written, as far as they can be seen while they run.
pub(super) fn open_for_writing(pids: impl Iterator<Item = u32>) -> BTreeSet<String> {
    let mut all = BTreeSet::new();
    for pid in pids {
        for fd in proc::numbers(pid, "fd").unwrap_or_default() {
            let info = proc::lossy(pid, format_args!("fdinfo/{fd}"));
            let writes = text::octal_field(&info, "flags:").is_some_and(writes);
            let name = fs::read_link(proc::descriptor(pid, fd)).ok().filter(|_| writes);
            let name = name.and_then(|name| name.into_os_string().into_string().ok());
            all.extend(name.filter(|name| is_file(name)));
        }
    }
    all
}

/// Whether status flags of a descriptor let it be written.
pub(in crate::checkpoint) fn writes(flags: u32) -> bool {
    flags & libc::O_ACCMODE as u32 != libc::O_RDONLY as u32 && flags & libc::O_PATH as u32 == 0
}

/// Whether there is a file of this path that can be taken.
pub(in crate::checkpoint) fn is_file(path: &str) -> bool {
    fs::symlink_metadata(path).is_ok_and(|status| status.is_file()) && !is_kernels(path)
}

/// Files that a process writes by a mapping: not those that are memory of the program's own.
pub(in crate::checkpoint) fn mapped_for_writing(pid: u32, pieces: &Pieces) -> HashSet<String> {
    let maps = proc::bytes(pid, "maps").unwrap_or_default();
    let through = text::mappings(&maps).filter(|(mapping, _)| {
        mapping.shared
            && mapping.inode != 0
            && mapping.protection & WRITE != 0
            && pieces.index_of(mapping).is_none()
            && !us_abi::is_of_group(mapping.start as usize)
    });
    let names = through.filter_map(|(_, name)| String::from_utf8(name.to_vec()).ok());
    names.filter(|name| name.starts_with('/') && is_file(name)).collect()
}

/// All that lies in a folder, and itself.
///
/// # Errors
/// What cannot be read.
pub(super) fn tree(volume: &str, all: &mut BTreeSet<String>) -> Result<(), String> {
    let device = |path: &str| fs::symlink_metadata(path).map(|status| status.dev()).ok();
    let mut left = vec![(volume.to_owned(), None)];
    while let Some((folder, outer)) = left.pop() {
        let own = device(&folder);
        if own != outer && is_kernels(&folder) {
            continue;
        }
        all.insert(folder.clone());
        let fail = |cause: std::io::Error| format!("cannot read {folder}: {cause}");
        let entries = match fs::read_dir(&folder) {
            Err(cause) if cause.kind() == std::io::ErrorKind::NotFound && outer.is_some() => continue,
            entries => entries.map_err(fail)?,
        };
        for entry in entries {
            let entry = entry.map_err(fail)?;
            let is_folder = entry.file_type().is_ok_and(|kind| kind.is_dir());
            let path: PathBuf = entry.path();
            let path = path.into_os_string().into_string();
            let path = path.map_err(|path| format!("{} is not UTF-8", path.display()))?;
            if is_folder {
                left.push((path, own));
            } else {
                all.insert(path);
            }
        }
    }
    Ok(())
}
