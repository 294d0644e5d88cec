//! Plans of patched texts, kept in the group's folder: a tree of processes scans each library once.
//!
//! The file is made by the supervisor, empty, and no image ever makes it: so nothing is left where a group ends while
//! an image begins. It is nowhere mapped, and only the user of the folder may write it. A child that has given
//! up its identity can neither read nor forge it, and scans by itself.

use us_sites::{Plan, Site};

use crate::raw::{self, failed, nr};
use crate::{own_file, paths};

/// Words of the file, at most: three C libraries and more.
const WORDS: usize = 4096;
const BYTES: u64 = (WORDS * 8) as u64;

/// The plans that others have made.
pub struct Plans {
    file: Option<u64>,
    words: &'static mut [u64; WORDS],
    /// Words that the file had.
    len: usize,
}

impl Plans {
    /// Reads what there is: nothing, without a file that only this process's user can have written. `None` without
    /// memory. In the constructor.
    pub fn read() -> Option<Plans> {
        const PREAD: u64 = 17;
        // With a file or without: a replay has to find the same gaps in its memory as its original, whose file
        // may not have been there.
        // SAFETY: new memory, zeroed, aligned and nobody else's.
        let words = unsafe {
            let memory = raw::call6(nr::MMAP, [0, BYTES, 3, 0x22, u64::MAX, 0]);
            if failed(memory) {
                return None;
            }
            &mut *(memory as *mut [u64; WORDS])
        };
        let file = open();
        // SAFETY: reads into that memory.
        let got =
            file.map_or(0, |file| unsafe { raw::call4(PREAD, file, words.as_mut_ptr() as u64, BYTES, 0) });
        Some(Plans { file, words, len: got.max(0) as usize / 8 })
    }

    /// Whether there is a file, and any use in looking for a plan or keeping one.
    pub fn are_kept(&self) -> bool {
        self.file.is_some()
    }

    /// The plan of a text, if there is a sound one.
    pub fn find<'a>(&'a self, text: &'a [u8], fingerprint: u64) -> Option<Plan<'a>> {
        us_sites::find_plan(&self.words[..self.len], text, fingerprint).0
    }

    /// Keeps the plan of a text that was scanned. What others may have written meanwhile is lost, or this is: a mixture
    /// does not have its check, and the next image scans.
    pub fn keep(&mut self, sites: &[Site], text: &[u8], fingerprint: u64) {
        const PWRITE: u64 = 18;
        let Some(file) = self.file else { return };
        let at = us_sites::find_plan(&self.words[..self.len], text, fingerprint).1;
        let Some(words) = us_sites::write_plan(sites, text.len(), fingerprint, &mut self.words[at..]) else {
            return;
        };
        self.len = at + words;
        // SAFETY: writes what was made just now. A write that fails, or is cut short, leaves no whole plan.
        unsafe {
            raw::call4(PWRITE, file, self.words[at..].as_ptr() as u64, (words * 8) as u64, (at * 8) as u64)
        };
    }
}

impl Drop for Plans {
    fn drop(&mut self) {
        // SAFETY: both are this value's own, and nobody borrows the words any more.
        unsafe {
            raw::call2(nr::MUNMAP, self.words.as_ptr() as u64, BYTES);
            if let Some(file) = self.file {
                raw::call1(nr::CLOSE, file);
            }
        }
    }
}

fn open() -> Option<u64> {
    let mut path = [0u8; paths::PATH_BYTES];
    paths::plans_path(&mut path)?;
    // SAFETY: the path ends with NUL; the descriptor does not stay in the guest's table.
    let file = unsafe { own_file::open(path.as_ptr(), own_file::READ_WRITE) };
    (!failed(file)).then_some(file as u64)
}
