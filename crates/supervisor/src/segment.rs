//! The shared segment as the supervisor maps it.
//!
//! # Safety
//! References into the mapping borrow from the [`Segment`]. Every field that another process may write is an atomic;
//! the others are written once, by whoever makes the file, before any other process knows it.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use rustix::fs::{FallocateFlags, MemfdFlags, OFlags};
use rustix::thread::futex;
use us_abi::{
    CONFIG_GATED, CONFIG_RECORDED, CONNECTIONS_OFFSET, Config, Connection, Connections, MAGIC, RING_STEP,
    RINGS_OFFSET, SEATS, SEGMENT_BYTES, SPARE_ENTRY_BYTES, SPARES_BYTES, SPARES_OFFSET, SegmentHeader,
    SpareEntry, THREAD_ENTRY_BYTES, THREADS_MAX, THREADS_OFFSET, Text, ThreadEntry, VERSION, head_parts,
    recorder,
};

use crate::dir::Dir;
use crate::error::Error;
use crate::mapping::Mapping;
use crate::verdict;

/// A mapped segment.
#[derive(Debug)]
pub struct Segment {
    map: Mapping,
    /// Device and inode of its file.
    file: (u64, u64),
}

impl Segment {
    /// Makes the file `name` in `dir` and writes what the supervisor decides before the start.
    ///
    /// # Errors
    /// When the file cannot be made, or there is no room for the header and the first ring.
    pub fn create(dir: &Dir, name: &str, config: Config) -> Result<Segment, Error> {
        crate::spawn::raise_file_size_limit()?;
        let fail = |step| move |cause: io::Error| Error::file(step, dir.at(name), cause);
        let file = dir.make_file(name).map_err(fail("make"))?;
        rustix::fs::ftruncate(&file, SEGMENT_BYTES as u64).map_err(|cause| fail("size")(cause.into()))?;
        // A full file system shows as SIGBUS at the first touch of a sparse page: reserve what every run touches.
        let is_kept = config.flags & CONFIG_GATED != 0;
        let connections = is_kept.then_some((CONNECTIONS_OFFSET, size_of::<Connections>()));
        for (at, bytes) in head_parts(1).into_iter().chain([(RINGS_OFFSET, RING_STEP)]).chain(connections) {
            rustix::fs::fallocate(&file, FallocateFlags::empty(), at as u64, bytes as u64)
                .map_err(|cause| fail("reserve room for")(cause.into()))?;
        }
        let segment = Segment::map(dir, name, &file)?;
        segment.write_constants(config);
        Ok(segment)
    }

    /// A file like a new segment, in no folder: what the supervisor decides before the start, and nothing else.
    ///
    /// # Errors
    /// When it cannot be made.
    pub fn likeness(config: Config) -> Result<File, Error> {
        crate::spawn::raise_file_size_limit()?;
        let fail = |cause: io::Error| Error::system("make a file in memory", cause);
        let file = in_memory().map_err(fail)?;
        let map = Mapping::new(Path::new("likeness"), &file, RINGS_OFFSET)?;
        Segment { map, file: (0, 0) }.write_constants(config);
        Ok(file)
    }

    /// Another of the same kind.
    ///
    /// # Errors
    /// When it cannot be made.
    pub fn likeness_of(first: &File) -> io::Result<File> {
        let mut head = [0; size_of::<SegmentHeader>()];
        first.read_exact_at(&mut head, 0)?;
        let file = in_memory()?;
        file.write_all_at(&head, 0)?;
        Ok(file)
    }

    /// Makes the segment's file for a process that cannot; what is in it is that one's affair.
    ///
    /// # Errors
    /// When the file is there, or cannot be made.
    pub fn make_file(dir: &Dir, name: &str) -> io::Result<File> {
        let file = dir.make_file(name)?;
        rustix::fs::ftruncate(&file, SEGMENT_BYTES as u64)?;
        Ok(file)
    }

    /// Maps the segment that a process of the group has made in `dir`.
    ///
    /// # Errors
    /// When there is none, or it is not one of ours.
    pub fn open(dir: &Dir, name: &str) -> Result<Segment, Error> {
        let fail = |step| move |cause: io::Error| Error::file(step, dir.at(name), cause);
        let file = dir.file(name, OFlags::RDWR).map_err(fail("open"))?;
        let refuse = || fail("use")(io::Error::other("it is not a segment of this version"));
        // Beyond the end of a shorter file a look would be our end.
        if file.metadata().map_err(fail("look at"))?.len() != SEGMENT_BYTES as u64 {
            return Err(refuse());
        }
        let segment = Segment::map(dir, name, &file)?;
        let header: *const SegmentHeader = segment.map.base().as_ptr().cast();
        // SAFETY: inside the mapping, and read as bytes that somebody may still write.
        let (magic, version) = unsafe {
            ((&raw const (*header).magic).read_volatile(), (&raw const (*header).version).read_volatile())
        };
        if (magic, version) == (MAGIC, VERSION) { Ok(segment) } else { Err(refuse()) }
    }

    fn map(dir: &Dir, name: &str, file: &File) -> Result<Segment, Error> {
        let stat = rustix::fs::fstat(file).map_err(|cause| Error::file("look at", dir.at(name), cause))?;
        // The rings are the copies' own.
        let map = Mapping::new(&dir.at(name), file, RINGS_OFFSET)?;
        Ok(Segment { map, file: (stat.st_dev, stat.st_ino) })
    }

    /// Removes the file `name` if it is this segment's, and not that of another process of the same number.
    pub fn remove(&self, dir: &Dir, name: &str) {
        if dir.identity(name) == Some(self.file) {
            let _ = dir.remove(name);
        }
    }

    fn write_constants(&self, config: Config) {
        let header: *mut SegmentHeader = self.map.base().as_ptr().cast();
        // SAFETY: the file was made a moment ago by this thread and no one else has it mapped; the header
        // fits the mapping (asserted in us-abi) and a page's start is aligned for it.
        unsafe {
            (&raw mut (*header).magic).write(MAGIC);
            (&raw mut (*header).version).write(VERSION);
            (&raw mut (*header).config).write(config);
        }
        if self.header().config.flags & CONFIG_RECORDED != 0 {
            self.header().recorder.0.store(recorder::TAKES, Ordering::Release);
        }
        self.header().supervisor_pid.store(std::process::id(), Ordering::Release);
    }

    /// The header.
    pub fn header(&self) -> &SegmentHeader {
        // SAFETY: mapped while we live, aligned, large enough; see the module's head for who writes what.
        unsafe { self.map.base().cast().as_ref() }
    }

    /// The thread slot `slot`.
    ///
    /// # Panics
    /// When `slot` is not below [`THREADS_MAX`].
    pub fn thread(&self, slot: usize) -> &ThreadEntry {
        assert!(slot < THREADS_MAX);
        // SAFETY: the table lies inside the mapping (asserted in us-abi) and holds atomics only.
        unsafe { self.map.base().add(THREADS_OFFSET + slot * THREAD_ENTRY_BYTES).cast().as_ref() }
    }

    /// The table of connections.
    pub fn connection_table(&self) -> &Connections {
        // SAFETY: the table lies inside the mapping (asserted in us-abi) and holds atomics only.
        unsafe { self.map.base().add(CONNECTIONS_OFFSET).cast().as_ref() }
    }

    /// Its rows that have been used.
    pub fn connections(&self) -> &[Connection] {
        let table = self.connection_table();
        let used = (table.used.load(Ordering::Acquire) as usize).min(table.rows.len());
        &table.rows[..used]
    }

    /// Those of them that are a connection's: where each is, and the connection's identity.
    pub fn known_connections(&self) -> impl Iterator<Item = (usize, u64, &Connection)> {
        let all = self.connections().iter().enumerate();
        let all = all.map(|(at, row)| (at, row.identity.load(Ordering::Acquire), row));
        all.filter(|(_, identity, _)| *identity != 0)
    }

    /// The bytes of all thread slots that have been used, as they are now.
    pub fn thread_entries(&self) -> Vec<u8> {
        let words = self.slots() * THREAD_ENTRY_BYTES / size_of::<u64>();
        // SAFETY: as above; eight bytes of a table of atomics that is aligned to lines.
        let word = |at: usize| unsafe {
            self.map.base().add(THREADS_OFFSET).cast::<AtomicU64>().add(at).as_ref().load(Ordering::Relaxed)
        };
        (0..words).flat_map(|at| word(at).to_le_bytes()).collect()
    }

    /// Where the standby that sits at `seat` is in the ring of `slot`.
    ///
    /// # Panics
    /// When `slot` is not below [`THREADS_MAX`].
    pub fn head(&self, slot: usize, seat: usize) -> u64 {
        match self.spare(slot, seat) {
            None => self.thread(slot).head.0.load(Ordering::Acquire),
            Some(spare) => spare.head.load(Ordering::Acquire),
        }
    }

    /// What a standby that does not sit at the first seat writes of a slot.
    fn spare(&self, slot: usize, seat: usize) -> Option<&SpareEntry> {
        assert!(slot < THREADS_MAX);
        if seat == 0 || seat >= SEATS {
            return None;
        }
        let at = SPARES_OFFSET + slot * SPARES_BYTES + (seat - 1) * SPARE_ENTRY_BYTES;
        // SAFETY: as above; the table of the spares ends before the rings.
        Some(unsafe { self.map.base().add(at).cast().as_ref() })
    }

    /// Kernel's id of the thread of `slot` in the standby that sits at `seat`.
    ///
    /// # Panics
    /// When `slot` is not below [`THREADS_MAX`].
    pub fn standby_tid(&self, slot: usize, seat: usize) -> u32 {
        match self.spare(slot, seat) {
            None => self.thread(slot).standby_tid.load(Ordering::Acquire),
            Some(spare) => spare.tid.load(Ordering::Acquire),
        }
    }

    /// Thread slots in use, as far as the primary has said.
    pub fn slots(&self) -> usize {
        // Written by the guest's process: a wild value must not lead outside the table.
        (self.header().slots.load(Ordering::Acquire) as usize).min(THREADS_MAX)
    }
}

/// A file of a segment's size in memory.
fn in_memory() -> io::Result<File> {
    let file = rustix::fs::memfd_create("segment", MemfdFlags::CLOEXEC)?;
    rustix::fs::ftruncate(&file, SEGMENT_BYTES as u64)?;
    Ok(file.into())
}

/// Wakes every process that waits on `word`.
pub fn wake(word: &AtomicU32) {
    // Not private: the waiters are other processes. A futex in mapped memory cannot fail to be woken.
    let _ = futex::wake(word, futex::Flags::empty(), i32::MAX as u32);
}

/// Writes a text that may be written only once: the caller has won [`SegmentHeader::dropped`] or is alone.
pub fn write_text(text: &Text, code: u32, words: &str) {
    let bytes = words.as_bytes();
    let length = bytes.len().min(text.words.len() * 8);
    for (word, chunk) in text.words.iter().zip(bytes[..length].chunks(8)) {
        let mut eight = [0u8; 8];
        eight[..chunk.len()].copy_from_slice(chunk);
        word.store(u64::from_le_bytes(eight), Ordering::Relaxed);
    }
    text.code.store(code, Ordering::Relaxed);
    // Pairs with the acquire in `read_text`: whoever sees the length sees the text.
    text.len.store(length as u32, Ordering::Release);
}

/// Makes room for another text, while nobody writes: the next writer is the one that finds `code` zero.
pub fn clear_text(text: &Text) {
    text.len.store(0, Ordering::Release);
    text.code.store(0, Ordering::Release);
}

/// A text and its code, or `None` while there is none.
pub fn read_text(text: &Text) -> Option<(u32, String)> {
    raw_text(text).map(|(code, words)| (code, verdict::in_words(words)))
}

/// The same, with numbers as the runtime wrote them.
pub fn raw_text(text: &Text) -> Option<(u32, String)> {
    let length = text.len.load(Ordering::Acquire) as usize;
    let bytes: Vec<u8> =
        text.words.iter().flat_map(|word| word.load(Ordering::Relaxed).to_le_bytes()).take(length).collect();
    let words = || String::from_utf8_lossy(&bytes).into_owned();
    (length > 0).then(|| (text.code.load(Ordering::Relaxed), words()))
}
