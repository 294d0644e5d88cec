//! Executable memory, also where memory that has been written must not become executable.
//!
//! `MemoryDenyWriteExecute=` of a service manager and `PR_SET_MDWE` refuse that, so that nobody who writes into a process's
//! memory gets it executed. A mapping of a file that is executable from the beginning is not refused: there the bytes go
//! into a file in memory first. What is mapped is as unwritable as any library.

use core::sync::atomic::{AtomicBool, Ordering};

use us_sites::Site;

use crate::raw::{self, failed, nr};
use crate::sys::room::Room;

const READ_WRITE: u64 = 3;
const READ_EXEC: u64 = 5;
const PRIVATE: u64 = 0x2;
const FIXED: u64 = 0x10;
const ANONYMOUS: u64 = 0x20;
const PAGE: u64 = 4096;

/// Whether bytes become text by way of a file.
static BY_FILE: AtomicBool = AtomicBool::new(false);

/// Whether text can be made here at all; finds out how. In the constructor, before anything is changed.
pub fn is_possible() -> bool {
    let Some(page) = map_new(PAGE) else { return false };
    // SAFETY: our own new page, which is returned.
    let by_protection = unsafe {
        (page as *mut u8).write(0xc3);
        raw::call3(nr::MPROTECT, page, PAGE, READ_EXEC) == 0
    };
    let possible = by_protection || (has_room_for_files() && from_file(page, page, PAGE));
    BY_FILE.store(possible && !by_protection, Ordering::Relaxed);
    // SAFETY: as above.
    unsafe { raw::call2(nr::MUNMAP, page, PAGE) };
    possible
}

/// Whether written memory becomes text without a file: then a text that is changed keeps its file's name.
pub fn is_by_protection() -> bool {
    !BY_FILE.load(Ordering::Relaxed)
}

/// New memory to be written, of so many bytes.
pub fn map_new(bytes: u64) -> Option<u64> {
    // SAFETY: new memory.
    let memory = unsafe { raw::call6(nr::MMAP, [0, bytes, READ_WRITE, PRIVATE | ANONYMOUS, u64::MAX, 0]) };
    (!failed(memory)).then_some(memory as u64)
}

/// Calls `scan` with so many slots for sites; nothing is called without memory.
pub fn with_sites(slots: usize, scan: impl FnOnce(&mut [Site])) {
    let bytes = (slots * size_of::<Site>()) as u64;
    let Some(table) = map_new(bytes) else { return };
    // SAFETY: new memory of the right size, filled before use.
    let sites = unsafe {
        let sites = table as *mut Site;
        (0..slots).for_each(|index| sites.add(index).write(Site::EMPTY));
        core::slice::from_raw_parts_mut(sites, slots)
    };
    scan(sites);
    // SAFETY: the table is no longer needed.
    unsafe { raw::call2(nr::MUNMAP, table, bytes) };
}

/// Writes a site's stub at `at`, and the jump to it at this distance from the site. False where it does not reach.
pub fn install(site: &Site, at: u64, stub: &[u8], shift: u64) -> bool {
    let (Ok((patch, len)), Ok(hop)) = (us_sites::emit_patch(site, at), us_sites::emit_hop(site, at)) else {
        return false;
    };
    let window = site.patch_addr().wrapping_add(shift) as *mut u8;
    // SAFETY: the stub lies in the caller's new page; the site's bytes are those that were scanned, and nothing runs there.
    unsafe {
        core::ptr::copy_nonoverlapping(stub.as_ptr(), at as *mut u8, stub.len());
        core::ptr::copy_nonoverlapping(patch.as_ptr(), window, len);
        if let Some((padding, jump)) = hop {
            let padding = padding.wrapping_add(shift) as *mut u8;
            core::ptr::copy_nonoverlapping(jump.as_ptr(), padding, jump.len());
        }
    }
    true
}

/// The mappings that [`finish`] has made text of.
static OWN: Room<(u64, u64)> = Room::new();

/// Whether a mapping that begins there is text that the runtime has made.
pub fn is_own(start: u64) -> bool {
    // SAFETY: filled in the constructor, and while every thread stands still.
    unsafe { OWN.all() }.iter().any(|(from, to)| start >= *from && start < *to)
}

/// Makes text of memory that has been written. Before any thread exists, or while all stand still.
pub fn finish(at: u64, bytes: u64) -> bool {
    OWN.push((at, at + bytes.next_multiple_of(PAGE)));
    if BY_FILE.load(Ordering::Relaxed) {
        return from_file(at, at, bytes);
    }
    // SAFETY: the caller's own memory becomes read-only text.
    unsafe { raw::call3(nr::MPROTECT, at, bytes, READ_EXEC) == 0 }
}

/// Has `change` write into a text: it is given the distance from the text to where it has to write. False where the text
/// is as it was.
pub fn rewrite(start: u64, bytes: u64, change: impl FnOnce(u64)) -> bool {
    const READ_WRITE_EXEC: u64 = 7;
    if !BY_FILE.load(Ordering::Relaxed) {
        // SAFETY: our own process's text; no other thread exists or runs, or whoever runs there finds whole instructions.
        if unsafe { raw::call3(nr::MPROTECT, start, bytes, READ_WRITE_EXEC) } != 0 {
            return false;
        }
        change(0);
        // SAFETY: back to what it was.
        return unsafe { raw::call3(nr::MPROTECT, start, bytes, READ_EXEC) } == 0;
    }
    let Some(copy) = map_new(bytes) else { return false };
    // SAFETY: the text is readable, and the copy as large.
    unsafe { core::ptr::copy_nonoverlapping(start as *const u8, copy as *mut u8, bytes as usize) };
    change(copy.wrapping_sub(start));
    let done = from_file(copy, start, bytes);
    // SAFETY: our own copy.
    unsafe { raw::call2(nr::MUNMAP, copy, bytes) };
    done
}

/// Puts a file in memory with the bytes at `from` in the place of what is at `to`, as text.
fn from_file(from: u64, to: u64, bytes: u64) -> bool {
    use crate::raw::nr::MEMFD_CREATE;
    const CLOEXEC: u64 = 1;
    // SAFETY: a descriptor of our own, closed before the program's first instruction; the mapping replaces memory whose bytes
    // the file has.
    unsafe {
        let file = raw::call2(MEMFD_CREATE, c"libunderstudy".as_ptr() as u64, CLOEXEC);
        if failed(file) {
            return false;
        }
        let mut done = 0;
        while done < bytes {
            let wrote = raw::call3(nr::WRITE, file as u64, from + done, bytes - done);
            if wrote <= 0 {
                break;
            }
            done += wrote as u64;
        }
        let mapped = done == bytes
            && !failed(raw::call6(nr::MMAP, [to, bytes, READ_EXEC, PRIVATE | FIXED, file as u64, 0]));
        raw::call1(nr::CLOSE, file as u64);
        mapped
    }
}

/// Whether a file may be as large as a library's text: otherwise writing one would end the program with SIGXFSZ.
fn has_room_for_files() -> bool {
    use crate::kernel::RLIMIT_FSIZE;
    const ENOUGH: u64 = 64 << 20;
    let mut limit = [0u64; 2];
    // SAFETY: the kernel writes two words.
    let told = unsafe { raw::call4(nr::PRLIMIT64, 0, RLIMIT_FSIZE, 0, limit.as_mut_ptr() as u64) } == 0;
    told && limit[0] >= ENOUGH
}
