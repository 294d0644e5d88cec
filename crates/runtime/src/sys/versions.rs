//! The versions of the runtime that are in this process: the one that the program was started with, and those that an upgrade has put
//! beside it.
//!
//! Data is of the process: all versions work on that of the first one. Text is of a version. A call that has begun ends in the text
//! that it has begun in, and every new one begins in the newest. So a signal is handled by the version in whose text it has found
//! the thread, which alone knows what stands there ([`crate::signal::entries`]), and every version has its own
//! answer to what is the [runtime's text](crate::sys::trap::is_runtime).

use core::arch::global_asm;
use core::mem::offset_of;
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use us_abi::{SegmentHeader, VERSIONS_MAX, upgrade};

use crate::state;

// Where later versions are put: nowhere else would be near enough to the first one's data for an instruction to reach it, and
// inside the range whose system calls are let through. It costs addresses only.
global_asm!(
    ".section .us_berth, \"a\", @nobits",
    ".hidden us_berth",
    ".globl us_berth",
    ".balign 4096",
    "us_berth: .skip {bytes}",
    ".text",
    bytes = const upgrade::BERTH_BYTES,
);

unsafe extern "C" {
    static us_berth: u8;
    /// The ELF header of this library, from the linker.
    static __ehdr_start: u8;
}

/// What this is, in words that the supervisor finds in the file: the version, that of the segment, and a sum of everything that says
/// how data is laid out.
const ABOUT: &str = concat!(env!("CARGO_PKG_VERSION"), " ", env!("UNDERSTUDY_STATE"));

#[used]
#[unsafe(link_section = ".us_about")]
static TEXT: [u8; ABOUT.len()] = {
    let mut text = [0; ABOUT.len()];
    text.copy_from_slice(ABOUT.as_bytes());
    text
};

/// One version.
#[repr(C)]
pub struct Version {
    /// Its text: start and length.
    start: AtomicU64,
    len: AtomicU64,
    /// Its handlers of signals: of ordinary ones, of SIGSYS, and of faults.
    handlers: [AtomicU64; 3],
    /// Where it begins, and where an unwinder finds its tables.
    base: AtomicU64,
    tables: AtomicU64,
    build: [AtomicU64; 3],
}

/// Bytes of an entry, and where in it the text and the handlers stand.
pub const STRIDE: usize = size_of::<Version>();
/// See [`STRIDE`].
pub const LEN_AT: usize = offset_of!(Version, len);
/// See [`STRIDE`].
pub const HANDLERS_AT: usize = offset_of!(Version, handlers);

/// In the order of their coming. Not changed before all threads stand still.
pub static VERSIONS: [Version; VERSIONS_MAX] = [const {
    Version {
        start: AtomicU64::new(0),
        len: AtomicU64::new(0),
        handlers: [const { AtomicU64::new(0) }; 3],
        base: AtomicU64::new(0),
        tables: AtomicU64::new(0),
        build: [const { AtomicU64::new(0) }; 3],
    }
}; VERSIONS_MAX];
/// How many there are.
pub static COUNT: AtomicU32 = AtomicU32::new(0);

/// The range whose system calls are let through: that of the first version, with the berth behind its head.
static PASSES: [AtomicU64; 2] = [const { AtomicU64::new(0) }; 2];

/// That range, start and length. Without one, before the constructor has come so far, nothing is let through.
pub fn passes() -> (u64, u64) {
    (PASSES[0].load(Ordering::Relaxed), PASSES[1].load(Ordering::Relaxed))
}

/// By the first version: the range reaches from its berth to the end of its text.
fn let_through(own: (u64, u64)) {
    let berth = &raw const us_berth as u64;
    let start = berth.min(own.0);
    let end = (berth + upgrade::BERTH_BYTES as u64).max(own.0 + own.1);
    PASSES[0].store(start, Ordering::Relaxed);
    PASSES[1].store(end - start, Ordering::Relaxed);
}

fn base() -> u64 {
    &raw const __ehdr_start as u64
}

/// Calls `found` with type, flags, offset, address, bytes in memory of each segment of this library.
pub fn each_segment(mut found: impl FnMut(u32, u32, u64, u64)) {
    let base = &raw const __ehdr_start;
    // SAFETY: this library's own headers, mapped with its first segment: e_phoff at 32, e_phnum at 56, entries of 56 bytes with
    // type, flags, offset, address, ..., bytes in memory at 40.
    unsafe {
        let table = base.add(base.add(32).cast::<u64>().read() as usize);
        for index in 0..base.add(56).cast::<u16>().read() as usize {
            let header = table.add(index * 56);
            let (kind, flags) = (header.cast::<u32>().read(), header.add(4).cast::<u32>().read());
            let (address, bytes) = (header.add(16).cast::<u64>().read(), header.add(40).cast::<u64>().read());
            found(kind, flags, base as u64 + address, bytes);
        }
    }
}

/// This version is there. By its constructor, or when an upgrade has put it there and all threads stand still; `text` is its own.
pub fn add(text: (u64, u64), handlers: [u64; 3]) {
    const PT_NOTE: u32 = 4;
    const PT_GNU_EH_FRAME: u32 = 0x6474_e550;
    let at = COUNT.load(Ordering::Relaxed) as usize;
    let Some(version) = VERSIONS.get(at) else { return };
    if at == 0 {
        let_through(text);
    }
    each_segment(|kind, _, address, bytes| match kind {
        PT_GNU_EH_FRAME => version.tables.store(address, Ordering::Relaxed),
        PT_NOTE => remember_build(version, address, bytes),
        _ => {}
    });
    version.start.store(text.0, Ordering::Relaxed);
    version.len.store(text.1, Ordering::Relaxed);
    version.handlers.iter().zip(handlers).for_each(|(word, at)| word.store(at, Ordering::Relaxed));
    version.base.store(base(), Ordering::Relaxed);
    COUNT.store(at as u32 + 1, Ordering::Release);
    if let Some(header) = state::header() {
        publish(header);
    }
}

/// Twenty bytes behind the words of their note.
fn remember_build(version: &Version, note: u64, bytes: u64) {
    const CONTENT: u64 = 16;
    const BYTES: u64 = 20;
    if bytes < CONTENT + BYTES {
        return;
    }
    // SAFETY: a segment of this library, of so many bytes.
    let words = unsafe { ((note + CONTENT) as *const [u32; 5]).read_unaligned() };
    for (at, word) in version.build.iter().enumerate() {
        let half = |at: usize| u64::from(words.get(at).copied().unwrap_or(0));
        word.store(half(2 * at) | half(2 * at + 1) << 32, Ordering::Relaxed);
    }
}

/// Tells the supervisor which versions this process has.
pub fn publish(header: &SegmentHeader) {
    let versions = &header.versions;
    let count = COUNT.load(Ordering::Acquire);
    for (version, to) in VERSIONS.iter().zip(&versions.all).take(count as usize) {
        to.base.store(version.base.load(Ordering::Relaxed), Ordering::Relaxed);
        for (word, to) in version.build.iter().zip(&to.build) {
            to.store(word.load(Ordering::Relaxed), Ordering::Relaxed);
        }
    }
    versions.berth.store(core::hint::black_box(&raw const us_berth) as u64, Ordering::Relaxed);
    let text = core::hint::black_box(&TEXT);
    state::overwrite_text(&versions.about, 1, &[text]);
    versions.count.store(count, Ordering::Release);
}

/// The version besides the first in whose text this address is: its first and last byte, and its unwinder's tables.
pub fn later_at(address: u64) -> Option<(u64, u64, u64)> {
    let count = COUNT.load(Ordering::Acquire) as usize;
    let read = |word: &AtomicU64| word.load(Ordering::Relaxed);
    VERSIONS.iter().take(count).skip(1).find_map(|version| {
        let (start, len) = (read(&version.start), read(&version.len));
        (address.wrapping_sub(start) < len).then(|| (start, start + len, read(&version.tables)))
    })
}
