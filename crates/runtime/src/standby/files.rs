//! How far the calls in doubt on files came.
//!
//! A file's position tells, against the log's: but the log knows only of this process's calls that it has, and others may
//! have moved the position meanwhile, threads whose calls are in doubt as well or processes that share the open file. Where
//! that can be, the primary notes in the call's slot where the file was before (`witness::note_position`); what then lies
//! between there and here is looked at for the call's own bytes.

use us_abi::RING_BYTES;

use crate::door::carry::Source;
use crate::fdtable::{self, Kind, Shadow};
use crate::raw::{self, failed, nr};
use crate::standby::streams::{Part, Sharers, Verdict, Verdicts};
use crate::sys::guest;
use crate::sys::spans::{self, Vector};
use crate::sys::witness;
use crate::thread;

/// The most of a file that is looked at, bytes.
const LOOKED_AT: u64 = 4 << 20;

/// Where the next byte of a call goes, or comes from, as far as one that is about to be made can know: the file's position, or
/// of an append its size.
pub fn next_place(fd: i32, shadow: &Shadow, out: bool) -> Option<u64> {
    if out && shadow.kind() == Kind::Append { fdtable::size(fd) } else { fdtable::position(fd) }
}

/// Bytes by which the kernel's position of a file is ahead of the log's; `None` if it is behind, or nowhere.
pub fn moved_on(fd: i32, shadow: &Shadow) -> Option<u64> {
    fdtable::position(fd).and_then(|now| us_order::settle::file_moved(now, shadow.bytes_written()))
}

/// Sets a file's position.
pub fn put_back(fd: i32, position: u64) -> bool {
    // SAFETY: the position of the guest's own file, to where it was. Nobody acts.
    unsafe { raw::call3(nr::LSEEK, fd as u64, position, 0) >= 0 }
}

/// The calls in doubt on a file whose primary has noted where it was before, of each that it had entered the kernel with.
/// `false` if it has not.
fn by_place(fd: i32, shadow: &Shadow, all: &Sharers, verdicts: &mut Verdicts) -> bool {
    let entered = || all.parts().filter(|part| part.entered);
    // What is read into several places is logged piece by piece, and no slot but the first says that the kernel was entered.
    let may_be_told = |part: &Part| part.is_told || !(part.out || is_in_slot(part));
    if all.parts().any(|part| part.from.is_none() && (part.entered || may_be_told(part))) {
        return false;
    }
    let places = [false, true].map(|out| next_place(fd, shadow, out));
    let place_of = |part: &Part| places[usize::from(part.out)];
    if entered().any(|part| place_of(part).is_none()) {
        return false;
    }
    for part in all.parts() {
        // Of one that had not entered the kernel it makes no difference where the file is.
        let Some((from, now)) = part.from.filter(|_| part.entered).zip(place_of(part)) else {
            verdicts.put(part.slot, Verdict::Again);
            continue;
        };
        let verdict = match now.checked_sub(from) {
            Some(0) => Verdict::Again,
            Some(moved) if part.out => written(fd, part, from, moved),
            Some(moved) => match was_read(fd, part, from, moved.min(part.len)) {
                Some(true) => Verdict::Moved(moved.min(part.len)),
                // What others have read stays theirs.
                Some(false) => Verdict::Again,
                None if moved <= part.len && entered().count() == 1 && put_back(fd, from) => Verdict::Again,
                // Others have moved it.
                None => Verdict::Unknown,
            },
            // Somebody has set it back.
            None => Verdict::Unknown,
        };
        verdicts.put(part.slot, verdict);
    }
    true
}

/// A write before which the file was at `from`, and is now `moved` bytes further.
fn written(fd: i32, part: &Part, from: u64, moved: u64) -> Verdict {
    let len = part.len;
    match look(fd, part, from, moved) {
        Some(true) => Verdict::Moved(len),
        // A file system that is full takes a part.
        _ if moved < len => Verdict::Moved(moved),
        Some(false) => Verdict::Again,
        None => Verdict::Moved(len),
    }
}

/// Whether a call reads into its slot.
fn is_in_slot(part: &Part) -> bool {
    const READ: u16 = 0;
    // SAFETY: blocks are never freed; the thread sleeps until the bell rings.
    unsafe { (*thread::block(part.slot)).doubted.0 == READ }
}

/// Whether a read has brought so many bytes from there; `None` if that cannot be seen: of one into several places, and of a
/// file of `/proc`, which tells nothing more of a process that is dead.
fn was_read(fd: i32, part: &Part, from: u64, bytes: u64) -> Option<bool> {
    if !is_in_slot(part) || bytes > RING_BYTES as u64 / 2 {
        return None;
    }
    // SAFETY: within the doubled mapping of a ring whose producer is dead.
    let got = unsafe { core::slice::from_raw_parts(witness::data_of(part.place()), bytes as usize) };
    Memory::of_file(fd, from, bytes as usize).map(|file| file.bytes() == got)
}

/// Whether the bytes of an output lie in so much of a file; `None` if that cannot be seen.
fn look(fd: i32, part: &Part, from: u64, bytes: u64) -> Option<bool> {
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
    let file = Memory::of_file(fd, from, bytes as usize)?;
    Some(file.bytes().windows(len).any(|window| window == own.bytes()))
}

/// What a call in doubt puts out, in this copy's memory.
fn source_of(part: &Part) -> Option<Source> {
    const WRITE: u16 = 1;
    const WRITEV: u16 = 20;
    // SAFETY: blocks are never freed; the thread sleeps until the bell rings.
    let thread = unsafe { &*thread::block(part.slot) };
    match thread.doubted.0 {
        WRITE => Some(Source::Span(Vector { base: thread.asked[1], len: thread.asked[2] })),
        WRITEV => Some(Source::Vectors(thread.asked[1], thread.asked[2])),
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

/// A file: one write is carried on from where it stopped. Reads have told nobody anything yet, and the same bytes
/// may be written to the same place twice: for these the position is put back, and they are made again.
pub fn file(fd: i32, shadow: &Shadow, all: &Sharers, verdicts: &mut Verdicts) {
    if by_place(fd, shadow, all, verdicts) {
        return;
    }
    let moved = moved_on(fd, shadow);
    if all.is_one() && all.side(true).next().is_some() {
        return all.share(true, moved, verdicts);
    }
    let wanted = all.parts().fold(0u64, |sum, part| sum.saturating_add(part.len));
    let undone = match moved {
        Some(0) => true,
        // Further than the calls in doubt could have moved it: others use the file.
        Some(moved) if moved <= wanted => put_back(fd, shadow.bytes_written()),
        _ => false,
    };
    for part in all.parts() {
        let verdict = match moved {
            _ if undone || !part.entered => Verdict::Again,
            // A file without a position to put back (some of the kernel's own).
            Some(moved) if all.is_one() => Verdict::Moved(moved),
            _ => Verdict::Unknown,
        };
        verdicts.put(part.slot, verdict);
    }
}

/// Appends put the position at the end of what they wrote; that is known only from the second one on.
pub fn append(fd: i32, shadow: &Shadow, all: &Sharers, verdicts: &mut Verdicts) {
    if by_place(fd, shadow, all, verdicts) {
        return;
    }
    if all.side(false).next().is_some() {
        return file(fd, shadow, all, verdicts);
    }
    let entered = || all.side(true).filter(|part| part.entered);
    let wanted = entered().fold(0u64, |sum, part| sum.saturating_add(part.len));
    match fdtable::position(fd).map(|now| now.checked_sub(shadow.bytes_written())) {
        // Others have appended in between, or nothing is known of the beginning.
        Some(Some(moved)) if moved > wanted && entered().count() == 1 => {
            all.share(true, Some(wanted), verdicts)
        }
        Some(moved) => all.share(true, moved, verdicts),
        None => all.share(true, None, verdicts),
    }
}
