//! The program's own system calls, and its readings of the time-stamp counter.
//!
//! A call from elsewhere than the C library is trapped, which costs twenty times as much as a patched one. A reading of the
//! counter is seen by nobody: each copy has its own value, and a program that uses it for more than its statistics
//! diverges. So the texts of the program and of its libraries are looked through, before any thread exists, for those
//! that are instructions beyond doubt. What is left, and what is mapped later, is as before.

use us_sites::{JUMP_LEN, Kind, STUB_MAX, Site};

use crate::raw::{self, failed, nr};
use crate::sys::room::Room;
use crate::sys::{gate, text};

/// A text of more bytes is not looked through: it would all be read from the disk while the program waits.
pub const TEXT_MAX: u64 = 32 << 20;
/// Sites of one text.
const SITES_MAX: usize = 512;
/// The gates' addresses, in front of the stubs.
const SLOTS: u64 = 32;

/// Pages that were written.
static WRITTEN: Room<u64> = Room::new();
const PAGE: u64 = 4096;

/// Gives the texts back as their files have them: the runtime leaves, and a filter of system calls may ask where they are made.
/// Page by page at once, so that a thread may be there; one that is in a stub goes on behind its site.
pub fn restore() {
    const DONTNEED: u64 = 4;
    // Of locked memory, from Linux 5.18 on.
    const DONTNEED_LOCKED: u64 = 24;
    // SAFETY: filled in the constructor, and while every thread stands still.
    for page in unsafe { WRITTEN.all() } {
        for how in [DONTNEED, DONTNEED_LOCKED] {
            // SAFETY: a page of a private mapping of a file, in which the runtime alone has written.
            if unsafe { raw::call3(nr::MADVISE, *page, PAGE, how) } == 0 {
                break;
            }
        }
    }
}

/// A page of a text is about to be written. False if nobody could give it back.
pub fn will_write(page: u64) -> bool {
    // SAFETY: in the constructor, or while every thread stands still.
    unsafe { WRITTEN.all() }.last() == Some(&page) || WRITTEN.push(page)
}

/// Whether the program has locks of its own, as far as its text says so.
pub fn has_own_locks((start, end): (u64, u64)) -> bool {
    // SAFETY: the mapped text of a file, which nobody writes.
    let bytes = || unsafe { core::slice::from_raw_parts(start as *const u8, (end - start) as usize) };
    start < end && end - start <= TEXT_MAX && us_sites::has_own_futexes(bytes())
}

/// Patches what this text has.
pub fn patch(start: u64, end: u64) {
    if end - start > TEXT_MAX || !text::is_by_protection() {
        return;
    }
    // SAFETY: the mapped text of a file, which nobody writes.
    let bytes = unsafe { core::slice::from_raw_parts(start as *const u8, (end - start) as usize) };
    let room = us_sites::has_program_sites(bytes).min(SITES_MAX);
    if room == 0 {
        return;
    }
    // Stubs first, see `patch::patch_text`.
    let stub_bytes = (SLOTS + (room * STUB_MAX.next_multiple_of(16)) as u64).next_multiple_of(4096);
    let Some(stubs) = map_near(start, end, stub_bytes) else { return };
    text::with_sites(room, |sites| {
        if let Ok(found) = us_sites::scan_program(bytes, start, sites) {
            text::rewrite(start, end - start, |shift| write(&sites[..found], stubs, shift));
        }
    });
    text::finish(stubs, stub_bytes);
}

/// Writes the stubs and the jumps to them.
fn write(sites: &[Site], stubs: u64, shift: u64) {
    let gates =
        [gate::program_gate as *const (), gate::counter_gate as *const (), gate::processor_gate as *const ()];
    // SAFETY: the start of our own new page.
    unsafe { (stubs as *mut [u64; 3]).write(gates.map(|gate| gate as u64)) };
    let mut at = stubs + SLOTS;
    for site in sites {
        let mut stub = [0u8; STUB_MAX];
        let made = match site.kind {
            Kind::Counter => {
                let slot = stubs + 8 + 8 * u64::from(site.tells_processor());
                us_sites::emit_counter_stub(site, at, slot, &mut stub)
            }
            // Made by the stub in any case, see `gate::program_gate`, and trapped there as here.
            Kind::CloneLike => continue,
            _ => us_sites::emit_stub(site, at, stubs, &mut stub),
        };
        let Ok(made) = made else { continue };
        let page = |address: u64| address & !(PAGE - 1);
        let (first, last) = (page(site.patch_addr()), page(site.back_addr() - 1));
        let hop = site.hop_addr().map_or([first; 2], |hop| [page(hop), page(hop + JUMP_LEN as u64 - 1)]);
        let mut others = [last].into_iter().chain(hop).filter(|other| *other != first);
        if !WRITTEN.push(first) || !others.all(|other| WRITTEN.push(other)) {
            return;
        }
        if !text::install(site, at, &stub[..made.len], shift) {
            continue;
        }
        at += (made.len as u64).next_multiple_of(16);
    }
}

/// New memory from where a jump reaches all of a text: a program's own text lies far from what is mapped without a wish. In
/// front of it, since behind it lies its heap.
pub fn map_near(start: u64, end: u64, bytes: u64) -> Option<u64> {
    /// Less than a jump reaches, by the text's own length.
    const REACH: u64 = (1 << 31) - TEXT_MAX - (16 << 20);
    /// Between it and the program's headers and constants, which stand before its text.
    const STEP: u64 = 2 << 20;
    let is_near = |at: u64| at.abs_diff(start).max(at.abs_diff(end)) < REACH;
    let mut wish = 0;
    for _ in 0..16 {
        // SAFETY: new memory.
        let got = unsafe { raw::call6(nr::MMAP, [wish, bytes, 3, 0x22, u64::MAX, 0]) };
        if failed(got) {
            return None;
        }
        if is_near(got as u64) {
            return Some(got as u64);
        }
        // SAFETY: what has just been mapped.
        unsafe { raw::call2(nr::MUNMAP, got as u64, bytes) };
        wish = if wish == 0 { (start & !(STEP - 1)).saturating_sub(STEP) } else { wish.saturating_sub(STEP) };
        if wish < STEP {
            wish = 1 << 16;
        }
    }
    None
}
