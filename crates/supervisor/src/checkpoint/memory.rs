//! Memory that processes share, or that one has in several places: what of it a checkpoint can have, and what stands there.
//!
//! The copies that stand still have it as the processes themselves have it, so it is copied before any of these goes on.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};

use checkpoint::Shared;
use rustix::fs::{MemfdFlags, SeekFrom};
use us_sites::maps::Line;

use crate::proc;
use crate::proc::text;

/// Bytes that are copied at once.
const STEP: usize = 1 << 20;
const PAGE: usize = 4096;

/// A mapping of a piece.
struct Seen {
    pid: u32,
    start: u64,
    end: u64,
    offset: u64,
}

/// A piece while it is looked at.
struct Piece {
    device: u64,
    inode: u64,
    shared: Shared,
    seen: Vec<Seen>,
}

/// All pieces of a program.
#[derive(Default)]
pub(super) struct Pieces(Vec<Piece>);

/// Where files lie that are memory.
const FILES: &str = "/dev/shm/";
/// What is behind the name of a file that has been removed.
const REMOVED: &str = " (deleted)";

/// Whether a mapping of this name is of memory that a checkpoint holds: nobody outside the program can open it, or the program does
/// not go on (`stays`). What the kernel then writes into the locks of those who end is not the program's.
fn is_common(name: &str, stays: bool) -> bool {
    name.starts_with("/dev/zero")
        || name.starts_with("/memfd:")
        || name.starts_with(FILES) && (stays || name.ends_with(REMOVED))
}

impl Pieces {
    /// What the processes `copies` have mapped.
    ///
    /// # Errors
    /// When a list of mappings cannot be read.
    pub(super) fn look(copies: impl Iterator<Item = u32>, stays: bool) -> Result<Pieces, String> {
        let mut pieces = Pieces(Vec::new());
        for pid in copies {
            let maps =
                proc::bytes(pid, "maps").map_err(|cause| format!("cannot read maps of the copy: {cause}"))?;
            for (mapping, name) in text::mappings(&maps) {
                let name = String::from_utf8_lossy(name);
                if mapping.shared && is_common(&name, stays) && !us_abi::is_of_group(mapping.start as usize) {
                    pieces.note(pid, &mapping, &name);
                }
            }
        }
        Ok(pieces)
    }

    fn note(&mut self, pid: u32, mapping: &Line, name: &str) {
        let at = self.index_of(mapping).unwrap_or_else(|| {
            let path = Some(name).filter(|name| name.starts_with(FILES) && !name.ends_with(REMOVED));
            let mode = |path: &str| std::fs::metadata(path).map_or(0o600, |status| status.mode() & 0o7777);
            let path = path.map(|path| (path.to_owned(), mode(path)));
            let name = name.trim_start_matches("/memfd:").trim_start_matches("/dev/");
            let name = name.trim_end_matches(REMOVED).to_owned();
            self.0.push(Piece {
                device: mapping.device,
                inode: mapping.inode,
                shared: Shared { name, path, bytes: 0 },
                seen: Vec::new(),
            });
            self.0.len() - 1
        });
        let piece = &mut self.0[at];
        let (start, end, offset) = (mapping.start, mapping.end, mapping.offset);
        piece.shared.bytes = piece.shared.bytes.max(offset + (end - start));
        piece.seen.push(Seen { pid, start, end, offset });
    }

    /// The piece that a mapping shows.
    pub(super) fn index_of(&self, mapping: &Line) -> Option<usize> {
        self.0.iter().position(|piece| (piece.device, piece.inode) == (mapping.device, mapping.inode))
    }

    /// The piece that a file is, by its device and inode.
    pub(super) fn find(&self, (device, inode): (u64, u64)) -> Option<usize> {
        self.0.iter().position(|piece| (piece.device, piece.inode) == (device, inode))
    }

    /// Copies what stands there, while nobody writes: each into a file in memory.
    ///
    /// # Errors
    /// When one cannot be read.
    pub(super) fn freeze(&self) -> Result<(Vec<Shared>, Vec<File>), String> {
        let frozen = self.0.iter().map(|piece| {
            let frozen = piece.freeze();
            frozen.map_err(|cause| format!("cannot read memory that is shared: {cause}"))
        });
        frozen.collect()
    }
}

impl Piece {
    fn freeze(&self) -> io::Result<(Shared, File)> {
        let to = new(&self.shared.name)?;
        if let Some(file) = self.seen.iter().find_map(|seen| self.open(seen)) {
            // It may be longer than what is mapped of it, or shorter.
            let bytes = file.metadata()?.len();
            to.set_len(bytes)?;
            each_there(&file, |at, bytes| to.write_all_at(bytes, at))?;
            return Ok((Shared { bytes, ..self.shared.clone() }, to));
        }
        to.set_len(self.shared.bytes)?;
        let mut buffer = vec![0u8; STEP];
        for seen in &self.seen {
            let memory = proc::open(seen.pid, "mem")?;
            for at in (seen.start..seen.end).step_by(STEP) {
                let part = &mut buffer[..STEP.min((seen.end - at) as usize)];
                // Behind its end there is nothing.
                let got = memory.read_at(part, at).unwrap_or(0);
                for (index, page) in part[..got].chunks(PAGE).enumerate() {
                    if page.iter().any(|byte| *byte != 0) {
                        to.write_all_at(page, seen.offset + (at - seen.start) + (index * PAGE) as u64)?;
                    }
                }
            }
        }
        Ok((self.shared.clone(), to))
    }

    /// The file behind a mapping: root may open it by that, and others if the process has a descriptor of it.
    fn open(&self, seen: &Seen) -> Option<File> {
        let by_mapping = proc::path(seen.pid, format_args!("map_files/{:x}-{:x}", seen.start, seen.end));
        let is_it = |file: &File| file.metadata().is_ok_and(|status| status.ino() == self.inode);
        let open = |path| OpenOptions::new().read(true).open(path).ok().filter(is_it);
        open(by_mapping).or_else(|| {
            let mut numbers = proc::numbers(seen.pid, "fd").ok()?.into_iter();
            numbers.find_map(|fd| {
                let path = proc::descriptor(seen.pid, fd);
                let is_it = std::fs::metadata(&path).is_ok_and(|status| status.ino() == self.inode);
                is_it.then(|| open(path)).flatten()
            })
        })
    }
}

/// A piece where others can open it, with what stands in `from`; that itself if they cannot.
pub(super) fn placed(piece: &Shared, from: &File) -> io::Result<File> {
    let Some((path, mode)) = &piece.path else { return from.try_clone() };
    let mut how = OpenOptions::new();
    let to = how.read(true).write(true).create(true).truncate(true).mode(*mode).open(path)?;
    to.set_len(piece.bytes)?;
    each_there(from, |at, bytes| to.write_all_at(bytes, at))?;
    Ok(to)
}

/// A new file in memory.
pub(super) fn new(name: &str) -> io::Result<File> {
    let made: OwnedFd = rustix::fs::memfd_create(name, MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?;
    Ok(made.into())
}

/// Calls `f` with each part of a file in memory in which there is anything, and where that is.
pub(super) fn each_there<E: From<io::Error>>(
    file: &File,
    mut f: impl FnMut(u64, &[u8]) -> Result<(), E>,
) -> Result<(), E> {
    let mut buffer = vec![0u8; STEP];
    let mut at = 0;
    let seek = |to| rustix::fs::seek(file, to);
    while let Ok(from) = seek(SeekFrom::Data(at)) {
        let end = seek(SeekFrom::Hole(from)).map_err(io::Error::from)?;
        at = from;
        while at < end {
            let part = &mut buffer[..STEP.min((end - at) as usize)];
            file.read_exact_at(part, at)?;
            f(at, part)?;
            at += part.len() as u64;
        }
    }
    Ok(())
}
