//! What a file holds of the calls in doubt: the bytes between where the primary noted that the file was before a call
//! (`witness::note_position`) and where it is now are looked at for the call's own.

use us_abi::RING_BYTES;
use us_world::Part;

use crate::door::witness;
use crate::raw::{self, failed, nr};
use crate::standby::settle::place_of;
use crate::sys::spans::{self, Source, Vector};
use crate::{fdtable, guest, thread};

/// The most of a file that is looked at, bytes.
const LOOKED_AT: u64 = 4 << 20;

/// Whether a read has brought so many bytes from there; `None` if that cannot be seen: of one into several places, and of a
/// file of `/proc`, which tells nothing more of a process that is dead.
pub fn came_from(part: &Part, from: u64, bytes: u64) -> Option<bool> {
    if !part.is_in_slot || bytes > RING_BYTES as u64 / 2 {
        return None;
    }
    // SAFETY: within the doubled mapping of a ring whose producer is dead.
    let got = unsafe { core::slice::from_raw_parts(witness::data_of(place_of(part.slot)), bytes as usize) };
    Memory::of_file(part.fd, from, bytes as usize).map(|file| file.bytes() == got)
}

/// Whether the bytes of an output lie in so much of a file; `None` if that cannot be seen.
pub fn lies_at(part: &Part, from: u64, bytes: u64) -> Option<bool> {
    let source = source_of(part)?;
    let len = part.len as usize;
    if bytes > LOOKED_AT || part.len > bytes {
        return None;
    }
    let own = Memory::anonymous(len)?;
    let mut at = 0;
    let mut copied = true;
    let mut take = |base: u64, count: usize| {
        copied &= guest::read(own.at(at), base, count);
        at += count;
    };
    match source {
        Source::Span(span) => take(span.base, span.len as usize),
        Source::Vectors(list, count) => {
            spans::for_vectors(list, count, u64::MAX, &mut |base, part| take(base, part))
        }
        Source::Message(_) => return None,
    }
    if !copied {
        return None;
    }
    let file = Memory::of_file(part.fd, from, bytes as usize)?;
    Some(file.bytes().windows(len).any(|window| window == own.bytes()))
}

/// What a call in doubt puts out, in this copy's memory.
fn source_of(part: &Part) -> Option<Source> {
    const WRITE: u16 = linux_raw_sys::general::__NR_write as u16;
    const WRITEV: u16 = linux_raw_sys::general::__NR_writev as u16;
    // SAFETY: the thread of a call in doubt sleeps until the bell rings.
    let begun = unsafe { thread::shared(part.slot).doubt.of_standing() };
    match begun.call.0 {
        WRITE => Some(Source::Span(Vector { base: begun.asked[1], len: begun.asked[2] })),
        WRITEV => Some(Source::Vectors(begun.asked[1], begun.asked[2])),
        _ => None,
    }
}

/// Memory for a look, given back at its end.
struct Memory {
    start: u64,
    whole: u64,
    skip: usize,
    len: usize,
}

impl Memory {
    fn map(whole: u64, flags: u64, fd: u64, from: u64, skip: usize, len: usize) -> Option<Memory> {
        const READ_WRITE: u64 = 3;
        // SAFETY: a new mapping where the kernel has room.
        let start = unsafe { raw::call6(nr::MMAP, [0, whole, READ_WRITE, flags, fd, from]) };
        (!failed(start)).then_some(Memory { start: start as u64, whole, skip, len })
    }

    fn anonymous(len: usize) -> Option<Memory> {
        const PRIVATE_ANONYMOUS: u64 = 0x22;
        Memory::map(len as u64, PRIVATE_ANONYMOUS, u64::MAX, 0, 0, len)
    }

    /// So much of a file: by a descriptor of its own, since the guest's may be for writing alone.
    fn of_file(fd: i32, from: u64, len: usize) -> Option<Memory> {
        const PRIVATE: u64 = 2;
        const PAGE: u64 = 4096;
        let file = fdtable::open_again(fd)?;
        let skip = from % PAGE;
        // The pages behind a file's end cannot be read: it has not become shorter since we looked, as nobody acts.
        let memory = Memory::map(len as u64 + skip, PRIVATE, file, from - skip, skip as usize, len);
        // SAFETY: opened above.
        unsafe { raw::call1(nr::CLOSE, file) };
        memory
    }

    fn at(&self, offset: usize) -> *mut u8 {
        (self.start as usize + self.skip + offset) as *mut u8
    }

    fn bytes(&self) -> &[u8] {
        // SAFETY: mapped for as long as this lives.
        unsafe { core::slice::from_raw_parts(self.at(0), self.len) }
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        // SAFETY: our own mapping, of which no reference is left.
        unsafe { raw::call2(nr::MUNMAP, self.start, self.whole) };
    }
}
