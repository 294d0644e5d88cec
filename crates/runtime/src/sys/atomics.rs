//! The program's own atomic instructions: where they are, and their stubs.
//!
//! Looked for and patched by the constructor, before any thread exists: in the program and in the libraries that it is linked with,
//! but not in libc and the loader, whose functions are doors, nor in an allocator of its own.

use core::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use us_abi::{CONFIG_ATOMICS, Config};
use us_sites::{ATOMIC_HEAD, ATOMIC_STUB_MAX, Atomic, Functions, Memory, Ways};

use crate::clock::ATOMICS;
use crate::context::{Context, reg};
use crate::raw::{self, nr};
use crate::sys::patch::Maps;
use crate::sys::room::Room;
use crate::sys::{atomic_gate, milestones, program, text, trap};
use crate::{guest, proc, state, tls};

/// The gates' addresses, in front of the stubs.
const SLOTS: u64 = 64;
const STUB: u64 = ATOMIC_STUB_MAX as u64;
/// Sites of a text for which there is room at first.
const SITES_USUAL: usize = 4096;
const PAGE: u64 = 4096;

/// The stubs of each text: their start and end.
static STUBS: Room<(u64, u64)> = Room::new();
/// Texts with sites: their start, and bytes.
static TEXTS: Room<(u64, u64)> = Room::new();

/// A site that has been patched.
#[derive(Clone, Copy)]
struct Patched {
    at: u64,
    stub: u64,
    is_trapped: bool,
    /// What stood there, and how much of it has been written over.
    bytes: [u8; us_sites::PATCH_MAX],
    len: u8,
}
static SITES: Room<Patched> = Room::new();
/// The lowest address of a stub, and the highest one behind them.
static LOWEST: AtomicU64 = AtomicU64::new(u64::MAX);
static HIGHEST: AtomicU64 = AtomicU64::new(0);

/// Memory that processes may share lies between these. What is there is not ordered.
pub static LOWEST_SHARED: AtomicU64 = AtomicU64::new(u64::MAX);
/// See there.
pub static HIGHEST_SHARED: AtomicU64 = AtomicU64::new(0);

/// Whether they are ordered in this process.
static ARE_ORDERED: AtomicBool = AtomicBool::new(false);

/// Whether atomic instructions of the program pass gates.
pub fn are_ordered() -> bool {
    ARE_ORDERED.load(Ordering::Relaxed)
}

/// The process shares memory of so many bytes with others from here on, perhaps.
pub fn is_shared(address: u64, bytes: u64) {
    LOWEST_SHARED.fetch_min(address, Ordering::Relaxed);
    HIGHEST_SHARED.fetch_max(address.saturating_add(bytes), Ordering::Relaxed);
}

/// Whether an instruction is one of a stub's: its thread is as if in a door.
#[inline(always)]
pub fn is_inside(ip: u64) -> bool {
    ip >= LOWEST.load(Ordering::Relaxed)
        && ip < HIGHEST.load(Ordering::Relaxed)
        // SAFETY: filled in the constructor; nobody changes it any more.
        && unsafe { STUBS.all() }.iter().any(|(start, end)| ip >= *start && ip < *end)
}

/// In a child that has been forked: those who held a clock are not here.
pub fn forget() {
    if are_ordered() {
        ATOMICS.iter().for_each(|one| one.held.store(0, Ordering::Relaxed));
    }
}

/// Memory of this process, which may not be there.
struct Own;

impl Memory for Own {
    fn read(&self, from: u64, to: &mut [u8]) -> bool {
        guest::read(to.as_mut_ptr(), from, to.len())
    }
}

/// Patches all texts, if that is wanted.
pub fn patch_all(config: &Config, maps: &Maps) {
    if config.flags & CONFIG_ATOMICS == 0
        || state::is_recorded()
        || state::is_detached()
        || !text::is_by_protection()
    {
        return;
    }
    let known = [maps.libc, maps.loader, maps.allocator];
    let (own, own_bytes) = trap::text_range();
    proc::each_mapping(|line| {
        let Some(mapping) = proc::Line::parse(line) else { return };
        let (start, end) = (mapping.start, mapping.end);
        let is_own = own < end && start < own + own_bytes;
        if mapping.is_text() && !is_own && !known.contains(&(start, end)) {
            patch(start, end, mapping.offset);
        }
    });
    ARE_ORDERED.store(SITES.count() != 0, Ordering::Relaxed);
    if let Some(header) = state::header() {
        // SAFETY: filled a moment before; there is one thread.
        let trapped = unsafe { SITES.all() }.iter().filter(|site| site.is_trapped).count();
        header.atomics_found.store(SITES.count() as u64, Ordering::Relaxed);
        header.atomics_trapped.store(trapped as u64, Ordering::Relaxed);
    }
}

/// Patches what this text has.
fn patch(start: u64, end: u64, offset: u64) {
    if end - start > program::TEXT_MAX {
        return;
    }
    let Some(functions) = Functions::find(&Own, start, offset) else { return };
    // SAFETY: the mapped text of a file, which nobody writes.
    let bytes = unsafe { core::slice::from_raw_parts(start as *const u8, (end - start) as usize) };
    let mut room = SITES_USUAL;
    while let Err(needed) = scan(bytes, start, &functions, room) {
        if needed <= room {
            return;
        }
        room = needed;
    }
}

/// Looks for the sites, and patches them. An error says for how many there is to be room.
fn scan(bytes: &[u8], start: u64, functions: &Functions, room: usize) -> Result<(), usize> {
    let words = us_sites::target_words(bytes.len());
    let table_bytes = (room * size_of::<Atomic>()) as u64;
    let Some(table) = text::map_new(table_bytes) else { return Ok(()) };
    let Some(bitmap) = text::map_new(8 * words as u64) else { return Ok(()) };
    // SAFETY: new memory of the right size, filled before use.
    let (sites, targets) = unsafe {
        let sites = table as *mut Atomic;
        (0..room).for_each(|index| sites.add(index).write(Atomic::EMPTY));
        (
            core::slice::from_raw_parts_mut(sites, room),
            core::slice::from_raw_parts_mut(bitmap as *mut u64, words),
        )
    };
    let within = |(at, len): (u64, u64)| Some((at.checked_sub(start)? as usize, len as usize));
    let found = us_sites::scan_atomics(bytes, start, functions.each(&Own).filter_map(within), targets, sites);
    let result = match found {
        Ok(all) => {
            write_all(&sites[..all.found], start, start + bytes.len() as u64);
            Ok(())
        }
        Err(us_sites::ScanError::TooManySites(needed)) => Err(needed),
        Err(us_sites::ScanError::TextTooLong) => Ok(()),
    };
    // SAFETY: neither is needed any more.
    unsafe {
        raw::call2(nr::MUNMAP, table, table_bytes);
        raw::call2(nr::MUNMAP, bitmap, 8 * words as u64);
    }
    result
}

/// Writes the stubs of a text's sites, and the jumps to them.
fn write_all(sites: &[Atomic], start: u64, end: u64) {
    if sites.is_empty() {
        return;
    }
    let bytes = (SLOTS + sites.len() as u64 * STUB).next_multiple_of(PAGE);
    let Some(stubs) = program::map_near(start, end, bytes) else { return };
    // SAFETY: the start of our own new memory.
    unsafe {
        (stubs as *mut [u64; 2])
            .write([atomic_gate::enter as *const () as u64, atomic_gate::leave as *const () as u64]);
    }
    if !STUBS.push((stubs, stubs + bytes)) || !TEXTS.push((start, end - start)) {
        return;
    }
    LOWEST.fetch_min(stubs, Ordering::Relaxed);
    HIGHEST.fetch_max(stubs + bytes, Ordering::Relaxed);
    let ways = Ways { words: tls::atomic_words(), enter_slot: stubs, leave_slot: stubs + 8 };
    text::rewrite(start, end - start, |_| {
        let mut at = stubs + SLOTS;
        for atomic in sites {
            if write(atomic, at, &ways) {
                at += STUB;
            }
        }
    });
    text::finish(stubs, bytes);
}

/// Writes one stub, and the way to it; false if that cannot be.
fn write(atomic: &Atomic, at: u64, ways: &Ways) -> bool {
    let mut stub = [0u8; ATOMIC_STUB_MAX];
    let site = &atomic.site;
    let Ok(len) = us_sites::emit_atomic_stub(atomic, at, ways, &mut stub) else { return false };
    let begins = at + ATOMIC_HEAD as u64;
    let Ok((patch, patch_len)) = us_sites::emit_patch(site, begins) else { return false };
    let pages = [site.patch_addr(), site.back_addr() - 1].map(|address| address & !(PAGE - 1));
    if !program::will_write(pages[0]) || !program::will_write(pages[1]) {
        return false;
    }
    let patch_len = if atomic.is_trapped { 1 } else { patch_len };
    let mut bytes = [0; us_sites::PATCH_MAX];
    bytes[..patch_len].copy_from_slice(&site.window()[..patch_len]);
    let (at_site, is_trapped) = (site.patch_addr(), atomic.is_trapped);
    if !SITES.push(Patched { at: at_site, stub: begins, is_trapped, bytes, len: patch_len as u8 }) {
        return false;
    }
    let patch = if atomic.is_trapped { [INT3; us_sites::PATCH_MAX] } else { patch };
    let window = site.patch_addr() as *mut u8;
    // SAFETY: the stub lies in our own new memory; the site's bytes are those that were scanned, and nothing runs there.
    unsafe {
        core::ptr::copy_nonoverlapping(stub.as_ptr(), at as *mut u8, len);
        core::ptr::copy_nonoverlapping(patch.as_ptr(), window, patch_len);
    }
    true
}

const INT3: u8 = 0xcc;

/// A trap behind this instruction: true if it is a site's, and the thread goes on in its stub.
pub fn trapped(context: &mut Context) -> bool {
    let at = context.regs[reg::RIP].wrapping_sub(1);
    // SAFETY: filled in the constructor; nobody changes it any more. Texts may come in any order.
    let Some(site) = unsafe { SITES.all() }.iter().find(|site| site.at == at) else { return false };
    context.regs[reg::RIP] = site.stub;
    true
}

/// As [`tls::are_foreign`], of a group in which atomic instructions may be ordered.
pub fn are_foreign() {
    leave_alone();
    milestones::leave_alone();
    tls::are_foreign();
}

/// The texts are as they were, and nothing is ordered any more: a thread is about to run whose thread pointer is not libc's, where a
/// stub's storage would be anybody's. Others may run there meanwhile: they find whole instructions, or a trap.
fn leave_alone() {
    if !ARE_ORDERED.swap(false, Ordering::SeqCst) {
        return;
    }
    // SAFETY: filled in the constructor; nobody changes them any more.
    let (texts, sites) = unsafe { (TEXTS.all(), SITES.all()) };
    for (start, bytes) in texts {
        let own = || sites.iter().filter(|site| site.at >= *start && site.at < start + bytes);
        let put = |site: &Patched, at: usize, byte: u8| {
            // SAFETY: a byte of a text that the runtime has written before, writable at this moment.
            unsafe { ((site.at as usize + at) as *mut u8).write_volatile(byte) };
        };
        // The end of each change is seen by all processors: they have to forget that the text could be written.
        text::rewrite(*start, *bytes, |_| own().for_each(|site| put(site, 0, INT3)));
        text::rewrite(*start, *bytes, |_| {
            own().for_each(|site| (1..usize::from(site.len)).for_each(|at| put(site, at, site.bytes[at])));
        });
        text::rewrite(*start, *bytes, |_| own().for_each(|site| put(site, 0, site.bytes[0])));
    }
}

/// The instruction itself has faulted: for the program it stands at its site, and has not been made.
pub fn faulted(context: &mut Context) {
    let ip = context.regs[reg::RIP];
    if !is_inside(ip) {
        return;
    }
    // SAFETY: filled in the constructor; nobody changes it any more.
    let stubs = unsafe { STUBS.all() }.iter().find(|(start, end)| ip >= *start && ip < *end);
    let Some(first) = stubs.map(|(start, _)| start + SLOTS) else { return };
    let head = first + (ip - first) / STUB * STUB;
    // SAFETY: a stub's head; the calling thread's own block.
    unsafe {
        context.regs[reg::RIP] = *(head as *const u64);
        if let Some(thread) = tls::current().as_mut() {
            if thread.atomics.held != 0 {
                let clock = thread.atomics.held as *const crate::clock::AtomicClock;
                (*clock).held.store(0, Ordering::Release);
                thread.atomics.held = 0;
            }
            if thread.atomics.follows {
                thread.atomics.follows = false;
                thread.ends.open = 0;
            }
        }
    }
}
