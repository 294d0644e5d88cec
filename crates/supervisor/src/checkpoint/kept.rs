//! Copies that outlive their checkpoint, so that the next one need not read what the program has not touched since.
//!
//! A copy that stands still has the program's own frames of memory until the program writes to them: then the kernel gives the
//! program others. So a page whose frame both copies have, the kept one and the new one, is what it was. Only root is told frames
//! (`pagemap`, bits 0 to 54); for others the word has none, and every page is read.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::sync::{Arc, Mutex};

use checkpoint::{Base, Head};

use super::image::PAGE;
use super::take::Copy;

/// Of a word in `pagemap`: the page is there, and its frame.
const THERE: u64 = 1 << 63;
const FRAME: u64 = (1 << 55) - 1;

/// Where a program's kept copies are, while it runs.
pub(crate) type Shelf = Arc<Mutex<Option<Kept>>>;

/// The copies of one checkpoint.
pub(crate) struct Kept {
    id: String,
    /// By the processes' places in the head, with the numbers that they know themselves by.
    copies: Vec<(u32, Copy)>,
}

impl Kept {
    /// Those of the checkpoint with this head.
    pub(super) fn new(head: &Head, copies: Vec<Copy>) -> Kept {
        let numbers = head.processes.iter().map(|process| process.pid);
        Kept { id: head.id.clone(), copies: numbers.zip(copies).collect() }
    }

    /// The frames of a process, if these copies are the base's and it has the same place there.
    pub(super) fn frames(&self, base: &Base, index: usize, pid: u32) -> Option<Frames> {
        let (_, copy) =
            self.copies.get(index).filter(|(number, _)| *number == pid && self.id == base.id())?;
        Some(Frames { table: crate::proc::open(copy.pid(), "pagemap").ok()?, words: Vec::new() })
    }
}

/// The frames of a kept copy.
pub(super) struct Frames {
    table: File,
    words: Vec<u64>,
}

impl Frames {
    /// Leaves of the `words`, which `table` has for the pages from `at` on, those whose frame the kept copy has in the same place; the
    /// others become 0.
    ///
    /// # Errors
    /// A table cannot be read.
    pub(super) fn keep_common(&mut self, table: &File, at: u64, words: &mut [u64]) -> io::Result<()> {
        // A frame that the kernel moves while we look has another number in one of the three.
        for table in [&self.table, table] {
            read(table, at, words.len(), &mut self.words)?;
            for (word, other) in words.iter_mut().zip(&self.words) {
                let is_common =
                    *word & THERE != 0 && *word & FRAME != 0 && (*word ^ other) & (THERE | FRAME) == 0;
                *word = if is_common { *word } else { 0 };
            }
        }
        Ok(())
    }
}

/// The words of so many pages from `at` on.
///
/// # Errors
/// The table cannot be read.
pub(super) fn read(table: &File, at: u64, pages: usize, words: &mut Vec<u64>) -> io::Result<()> {
    let mut bytes = vec![0; pages * 8];
    table.read_exact_at(&mut bytes, at / PAGE * 8)?;
    words.clear();
    words.extend(bytes.as_chunks().0.iter().copied().map(u64::from_le_bytes));
    Ok(())
}
