//! Writing the memory of copies that stand still.

use std::fs::File;
use std::io::Write;
use std::os::unix::fs::FileExt;

use checkpoint::{Error, Mapping, Owner, Writer};
use us_abi::{SEGMENT_ADDRESS, THREADS_OFFSET};

use super::bases::BaseFile;
use super::describe::Described;
use super::image::PAGE;
use super::kept::{self, Frames, Kept};
use super::output::Output;
use super::take::Copy;
use super::{memory, raw};

/// Pages that are looked at at once.
const PAGES: usize = 4096;
/// Those that are read at once: few enough to be in the processor's caches until they have been written.
const READ: usize = 64;

/// What has been written.
pub(crate) struct Written {
    /// Bytes of the file.
    pub(super) bytes: u64,
    /// Bytes of memory that the checkpoint has.
    pub(super) memory: u64,
    /// Those of them that are in its own file.
    pub(super) changed: u64,
}

/// Writes a checkpoint: of memory that may be in the base what is not. What the base's copies show to be unchanged is not read.
///
/// # Errors
/// What cannot be read or written.
pub(crate) fn write(
    copies: &[Copy],
    described: &mut Described,
    output: Output,
    base: Option<(BaseFile, Option<&Kept>)>,
) -> Result<Written, Error> {
    described.read_files().map_err(std::io::Error::other)?;
    let mut frames: Vec<Option<Frames>> = copies.iter().map(|_| None).collect();
    let mut on = None;
    if let Some((file, kept)) = base {
        let (base, built_on) = file.read()?;
        for (index, process) in described.head.processes.iter().enumerate() {
            frames[index] = kept.and_then(|kept| kept.frames(&base, index, process.pid));
        }
        (described.head.seed, described.head.base) = (Some(base.seed()), Some(built_on));
        on = Some(base);
    }
    let head = &described.head;
    let mut writer = Writer::new(output, head)?;
    on.into_iter().for_each(|base| writer.build_on(base));
    let mut bytes = Count::default();
    let mut buffer = vec![0u8; READ * PAGE as usize];
    for (index, (copy, process)) in copies.iter().zip(&head.processes).enumerate() {
        let proc = |name: &str| crate::proc::open(copy.pid(), name);
        let (memory, table) = (proc("mem")?, proc("pagemap")?);
        writer.begin(Owner::Process(index as u32))?;
        writer.pages((SEGMENT_ADDRESS + THREADS_OFFSET) as u64, &described.entries[index])?;
        if index == 0 {
            for (address, bytes) in &described.roster {
                writer.begin_mapping();
                writer.pages(*address, bytes)?;
            }
        }
        let is_own = |mapping: &&Mapping| mapping.kernel.is_none() && mapping.is_own();
        for mapping in process.mappings.iter().filter(is_own) {
            let place = (mapping.start, mapping.end);
            match described.whole.contains(&place) {
                true => write_whole(&mut writer, place, &memory, (&mut buffer, &mut bytes))?,
                false => {
                    let of = (copy.pid(), &memory, &table, frames[index].as_mut());
                    write_mapping(&mut writer, place, of, (&mut buffer, &mut bytes))?;
                }
            }
        }
    }
    for (index, file) in described.memory.iter().enumerate() {
        writer.begin(Owner::Shared(index as u32))?;
        memory::each_there(file, |at, part| {
            bytes.add(part, writer.memory(at, part)?);
            Ok::<(), Error>(())
        })?;
    }
    let file = writer.finish()?.finish()?;
    Ok(Written { bytes: file.metadata()?.len(), memory: bytes.memory, changed: bytes.changed })
}

/// Bytes of memory that were looked at, and those that were written.
#[derive(Default)]
struct Count {
    memory: u64,
    changed: u64,
}

impl Count {
    fn add(&mut self, part: &[u8], changed: u64) {
        self.memory += part.len() as u64;
        self.changed += changed;
    }
}

fn write_mapping(
    writer: &mut Writer<impl Write>,
    (start, end): (u64, u64),
    (pid, memory, table, mut kept): (u32, &File, &File, Option<&mut Frames>),
    (buffer, count): (&mut [u8], &mut Count),
) -> Result<(), Error> {
    /// The page is there, or swapped out; and it is of a file, or nobody's.
    const IS_THERE: u64 = 3 << 62;
    const OF_FILE: u64 = 1 << 61;
    writer.begin_mapping();
    let mut words = Vec::new();
    let mut common = Vec::new();
    let mut at = start;
    while at < end {
        let pages = (((end - at) / PAGE) as usize).min(PAGES);
        kept::read(table, at, pages, &mut words)?;
        common.clear();
        if let Some(kept) = &mut kept {
            common.extend_from_slice(&words);
            kept.keep_common(table, at, &mut common)?;
            for (page, word) in common.iter_mut().enumerate() {
                if *word != 0 && !writer.is_in_base(at + page as u64 * PAGE) {
                    *word = 0;
                }
            }
        }
        let is_own = |page: usize| words[page] & IS_THERE != 0 && words[page] & OF_FILE == 0;
        let is_unchanged = |page: usize| common.get(page).is_some_and(|word| *word != 0);
        let mut page = 0;
        while page < pages {
            let first = page;
            if !is_own(page) {
                page += 1;
            } else if is_unchanged(page) {
                writer.unchanged(at + page as u64 * PAGE);
                count.memory += PAGE;
                page += 1;
            } else {
                let is_to_read = |page: &usize| is_own(*page) && !is_unchanged(*page);
                let end = pages.min(first + READ);
                page = (first..end).find(|page| !is_to_read(page)).unwrap_or(end);
                let (from, len) = (at + first as u64 * PAGE, (page - first) * PAGE as usize);
                let part = &mut buffer[..len];
                // What the program may not read itself is among its memory as well.
                raw::read_memory(pid, from, part).or_else(|_| memory.read_exact_at(part, from))?;
                count.add(&buffer[..len], writer.memory(from, &buffer[..len])?);
            }
        }
        at += pages as u64 * PAGE;
    }
    Ok(())
}

/// Writes all that can be read of a mapping: behind the end of its file there is nothing.
fn write_whole(
    writer: &mut Writer<impl Write>,
    (start, end): (u64, u64),
    memory: &File,
    (buffer, count): (&mut [u8], &mut Count),
) -> Result<(), Error> {
    writer.begin_mapping();
    let mut at = start;
    while at < end {
        let len = ((end - at) as usize).min(buffer.len());
        match memory.read_at(&mut buffer[..len], at) {
            Ok(got) if got >= PAGE as usize => {
                let got = got / PAGE as usize * PAGE as usize;
                count.add(&buffer[..got], writer.memory(at, &buffer[..got])?);
                at += got as u64;
            }
            _ => break,
        }
    }
    Ok(())
}
