//! Which pages of shared memory have anything in them.
//!
//! Programs map much shared memory and touch little of it: a page that nobody has touched is not read, nor written, when the memory
//! is copied. A read would give it a page, for all who have it mapped.

use core::sync::atomic::{AtomicU32, Ordering};

use crate::raw::{self, failed};

const PAGE: u64 = 4096;

/// Which pages have, of memory in no file on a disk.
pub struct Touched {
    chunk: u64,
    core: [u8; CHUNK as usize],
}
const CHUNK: u64 = 512;

impl Touched {
    /// Of nothing yet.
    pub const fn new() -> Touched {
        Touched { chunk: u64::MAX, core: [0; CHUNK as usize] }
    }

    /// Whether the page there has. One that may have been swapped out has.
    pub fn has(&mut self, page: u64) -> bool {
        use crate::raw::nr::MINCORE;
        let chunk = page & !(CHUNK * PAGE - 1);
        if self.chunk != chunk {
            self.chunk = chunk;
            let core = self.core.as_mut_ptr() as u64;
            // SAFETY: the kernel writes one byte a page. Where not all is mapped, each page is asked for.
            unsafe {
                if failed(raw::call3(MINCORE, chunk, CHUNK * PAGE, core)) {
                    for index in 0..CHUNK {
                        if failed(raw::call3(MINCORE, chunk + index * PAGE, PAGE, core + index)) {
                            self.core[index as usize] = 0;
                        }
                    }
                }
            }
        }
        has_swap() || self.core[((page - chunk) / PAGE) as usize] & 1 != 0
    }

    /// Bytes of the pages of a range that have.
    pub fn bytes(&mut self, start: u64, len: u64) -> u64 {
        (0..len).step_by(PAGE as usize).filter(|at| self.has(start + at)).count() as u64 * PAGE
    }
}

/// Whether anything could have been swapped out. Asked once.
fn has_swap() -> bool {
    use crate::raw::nr::SYSINFO;
    static ANSWER: AtomicU32 = AtomicU32::new(0);
    match ANSWER.load(Ordering::Relaxed) {
        0 => {
            let mut info = [0u64; 16];
            // SAFETY: the kernel writes 112 bytes.
            unsafe { raw::call1(SYSINFO, info.as_mut_ptr() as u64) };
            // Uptime, three loads, then six sizes of memory, the last but one of which is all swap.
            let has = info[8] != 0;
            ANSWER.store(if has { 2 } else { 1 }, Ordering::Relaxed);
            has
        }
        answer => answer == 2,
    }
}
