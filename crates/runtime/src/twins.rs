//! Memory that processes share, kept alike in a standby.
//!
//! A standby has its own bytes where its primary has a mapping that others write to as well. Of small mappings, in a
//! process of one thread, the primary keeps a *twin*: the bytes as its log has last told of them. Where it can have
//! learned what others did (it took a lock that they share, a call returned that may have waited for them), and where
//! others can learn what it did, it compares and logs what is new. So whatever is ordered by locks or calls is seen by
//! the standby as the primary saw it.
//!
//! A standby's twin is its memory as it was at its last event. What differs from that at a promotion, the program has
//! written on its way from that event to the door where it stands. How far the dead primary came on the same way nobody
//! knows: these bytes are put where the others see them, and only these. Nobody else may have written them meanwhile,
//! or it would be a race.

pub mod choice;

use core::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, Ordering};

use us_abi::event::op;

use crate::guest;
use crate::raw::{self, failed, nr};

/// Bytes that are looked through at each such place, at most: about three microseconds.
const BYTES_MAX: u64 = 64 << 10;
const PAGE: usize = 4096;
/// What differs is logged in pieces of so many bytes.
const BLOCK: usize = 64;
const BLOCKS_MAX: usize = BYTES_MAX as usize / BLOCK;
/// A piece in the log: its number, and its bytes.
const PIECE: usize = 8 + BLOCK;
const REGIONS_MAX: usize = 8;

struct Region {
    /// Where the guest has it.
    start: AtomicU64,
    /// 0 for none.
    bytes: AtomicU64,
    /// So many bytes, and behind them as many for what a copy that is made has ([`ARE_FROZEN`]).
    twin: AtomicU64,
    /// In a copy that takes over: what the guest has there is what its dead primary had, and not this copy's own. Memory that was made
    /// behind the standby is each copy's own.
    is_primarys: AtomicBool,
}

static REGIONS: [Region; REGIONS_MAX] = [const { Region::none() }; REGIONS_MAX];

/// Whether there is one, and whether the log is to be told of another choice: [`ACTIVE`] and [`NEW`].
static STATE: AtomicU8 = AtomicU8::new(0);
/// In [`STATE`]: memory is kept alike.
const ACTIVE: u8 = 1;
/// In [`STATE`]: see [`choice`].
const NEW: u8 = 2;
/// In a standby that is being promoted: the guest has the memory itself back, of which the log tells nothing new.
static IS_REAL: AtomicBool = AtomicBool::new(false);

/// Looks at calls and at locks, in the window that began at the time behind them, ns.
static LOOKS: [AtomicU32; 2] = [const { AtomicU32::new(0) }; 2];
static WINDOW_NS: AtomicU64 = AtomicU64::new(0);
/// Looks at calls of a window.
const WINDOW: u32 = 4096;
/// A window that is shorter is too dear: several per cent of the program's time, ns.
const WINDOW_NS_MIN: u64 = WINDOW as u64 * 200_000;

/// As a primary: whether looking at every call costs more than it brings. nginx has small shared memory that decides
/// nothing, and each of its requests would take several times as long; who works with locks there is no such program.
/// The standby then has what it had before there were twins.
pub fn is_too_dear() -> bool {
    let [calls, locks] = LOOKS.each_ref().map(|count| count.load(Ordering::Relaxed));
    if calls < WINDOW {
        return false;
    }
    let now = raw::now_ns();
    let took = now - WINDOW_NS.swap(now, Ordering::Relaxed);
    LOOKS.iter().for_each(|count| count.store(0, Ordering::Relaxed));
    took < WINDOW_NS_MIN && locks < calls / 2
}

type Page = [u8; PAGE];

impl Region {
    const fn none() -> Region {
        let [start, bytes, twin] = [const { AtomicU64::new(0) }; 3];
        Region { start, bytes, twin, is_primarys: AtomicBool::new(false) }
    }

    fn get(&self) -> (u64, u64, u64) {
        let [start, bytes, twin] =
            [&self.start, &self.bytes, &self.twin].map(|word| word.load(Ordering::Relaxed));
        (start, bytes, twin)
    }

    fn has(&self, address: u64) -> bool {
        let (start, bytes, _) = self.get();
        address.wrapping_sub(start) < bytes
    }

    /// Calls `f` for each page, with the address of its first byte and that of its twin's.
    fn each_page(&self, mut f: impl FnMut(u64, u64)) {
        let (start, bytes, twin) = self.get();
        (0..bytes).step_by(PAGE).for_each(|at| f(start + at, twin + at));
    }

    /// The same for each page that differs from its twin, with the bytes of both.
    fn each_changed(&self, mut f: impl FnMut(u64, u64, &Page, &Page)) {
        self.each_page(|at, twin| {
            if let (Some(now), Some(then)) = (page(at), page(twin))
                && now != then
            {
                f(at, twin, &now, &then);
            }
        });
    }

    fn drop(&self) {
        let (_, bytes, twin) = self.get();
        if bytes != 0 {
            self.bytes.store(0, Ordering::Relaxed);
            // SAFETY: memory of ours, of which nobody else knows.
            unsafe { raw::call2(nr::MUNMAP, twin, 2 * bytes) };
        }
    }
}

/// Whether any memory is kept alike.
#[inline(always)]
pub fn is_active() -> bool {
    STATE.load(Ordering::Relaxed) & ACTIVE != 0
}

/// Whether there is anything to do before a call that others may observe.
#[inline(always)]
pub fn concern_calls() -> bool {
    STATE.load(Ordering::Relaxed) != 0
}

/// Whether this address lies in memory that is kept alike.
pub fn contains(address: usize) -> bool {
    is_active() && REGIONS.iter().any(|region| region.has(address as u64))
}

/// Whether it does in what a dead primary had as well: what that did behind its last event is there.
pub fn is_primarys(address: usize) -> bool {
    is_active()
        && REGIONS
            .iter()
            .any(|region| region.has(address as u64) && region.is_primarys.load(Ordering::Relaxed))
}

/// The guest works in memory that this copy, or a standby of it, follows with.
fn nothing_is_real() {
    IS_REAL.store(false, Ordering::Relaxed);
    REGIONS.iter().for_each(|region| region.is_primarys.store(false, Ordering::Relaxed));
}

/// By the coordinator, while everything of this process stands still: takes the twins of what the next standby is to keep
/// alike. `mappings`: start and end of all that is writable and shared; of a process of several threads none.
pub fn choose(mappings: impl Iterator<Item = (u64, u64)>) {
    stop();
    LOOKS.iter().for_each(|count| count.store(0, Ordering::Relaxed));
    WINDOW_NS.store(raw::now_ns(), Ordering::Relaxed);
    for ((start, bytes), region) in those_of(mappings).zip(&REGIONS) {
        // SAFETY: new memory.
        let twin = unsafe { raw::call6(nr::MMAP, [0, 2 * bytes, 3, 0x22, u64::MAX, 0]) };
        if failed(twin) {
            break;
        }
        for (word, value) in [(&region.start, start), (&region.bytes, bytes), (&region.twin, twin as u64)] {
            word.store(value, Ordering::Relaxed);
        }
        // Behind the end of a file there is nothing to read.
        region.each_page(|at, twin| {
            guest::read(twin as *mut u8, at, PAGE);
        });
    }
    if regions().next().is_some() {
        STATE.fetch_or(ACTIVE, Ordering::Release);
    }
}

/// Where the regions are that are kept alike: start and length.
fn regions() -> impl Iterator<Item = (u64, u64)> {
    REGIONS.iter().map(Region::get).map(|(start, bytes, _)| (start, bytes)).filter(|(_, bytes)| *bytes != 0)
}

/// Those of these mappings that [`choose`] takes: start and length.
fn those_of(mappings: impl Iterator<Item = (u64, u64)>) -> impl Iterator<Item = (u64, u64)> {
    let mut all = 0;
    let mut fits = move |bytes: u64| {
        let does = all + bytes <= BYTES_MAX;
        all += if does { bytes } else { 0 };
        does
    };
    mappings.map(|(start, end)| (start, end - start)).filter(move |(_, bytes)| fits(*bytes)).take(REGIONS_MAX)
}

/// Where the twin of what is at `address` is, which is itself where nothing is kept alike.
fn twin_of(address: u64) -> u64 {
    copy_of(address, |_| 0)
}

/// The same, so many bytes behind the twin, which a region's length says.
fn copy_of(address: u64, behind: impl FnOnce(u64) -> u64) -> u64 {
    let region = REGIONS.iter().find(|region| region.has(address));
    region.map_or(address, |region| {
        let (start, bytes, twin) = region.get();
        twin + behind(bytes) + (address - start)
    })
}

/// Where a new standby finds the bytes of the page at `address`: others go on writing to the page itself.
pub fn source(address: u64) -> u64 {
    copy_of(address, |bytes| if ARE_FROZEN.load(Ordering::Relaxed) { bytes } else { 0 })
}

/// Nothing is kept alike any more. At the same place in every copy.
pub fn stop() {
    STATE.fetch_and(!ACTIVE, Ordering::Relaxed);
    nothing_is_real();
    ARE_FROZEN.store(false, Ordering::Relaxed);
    REGIONS.iter().for_each(Region::drop);
}

/// The guest's mapping of a range is going, or moving. At the same place in every copy.
pub fn unmapped(start: u64, bytes: u64) {
    choice::unmapped(start, bytes);
    if !is_active() {
        return;
    }
    for region in &REGIONS {
        let (from, len, _) = region.get();
        if len != 0 && start < from + len && from < start.saturating_add(bytes) {
            region.drop();
        }
    }
}

/// The page there, if it can be read.
pub fn page(at: u64) -> Option<Page> {
    let mut page = [0; PAGE];
    guest::read(page.as_mut_ptr(), at, PAGE).then_some(page)
}

/// A bit for each block.
type Blocks = [u64; BLOCKS_MAX / 64];

/// Blocks that the next look tells of whether they have changed or not: a standby that was made between has them as they were then.
static OWED: [AtomicU64; BLOCKS_MAX / 64] = [const { AtomicU64::new(0) }; BLOCKS_MAX / 64];

/// Adds the blocks that differ from their twins.
fn changed(blocks: &mut Blocks) {
    let mut first = 0;
    for region in &REGIONS {
        let (start, bytes, _) = region.get();
        region.each_changed(|at, _, now, then| {
            let at_block = first + (at - start) as usize / BLOCK;
            for (index, (now, then)) in now.chunks(BLOCK).zip(then.chunks(BLOCK)).enumerate() {
                if now != then {
                    blocks[(at_block + index) / 64] |= 1 << ((at_block + index) % 64);
                }
            }
        });
        first += bytes as usize / BLOCK;
    }
}

/// A standby is about to be made, and the log has readers besides, for whom the twins must stay what they are: the copy has the
/// memory as it is now, which is kept behind the twins for it.
static ARE_FROZEN: AtomicBool = AtomicBool::new(false);

/// By the coordinator: see [`ARE_FROZEN`].
fn freeze() {
    nothing_is_real();
    for region in &REGIONS {
        let (_, bytes, _) = region.get();
        region.each_page(|at, twin| {
            guest::read((twin + bytes) as *mut u8, at, PAGE);
        });
    }
    let mut owed: Blocks = OWED.each_ref().map(|word| word.load(Ordering::Relaxed));
    changed(&mut owed);
    OWED.iter().zip(owed).for_each(|(word, bits)| word.store(bits, Ordering::Relaxed));
    ARE_FROZEN.store(is_active(), Ordering::Relaxed);
}

/// In the copy, which has its own memory: its twins are what it has.
pub fn in_copy() {
    OWED.iter().for_each(|word| word.store(0, Ordering::Relaxed));
    if ARE_FROZEN.swap(false, Ordering::Relaxed) {
        REGIONS.iter().for_each(|region| {
            let (_, bytes, _) = region.get();
            region.each_page(|_, twin| {
                guest::read(twin as *mut u8, twin + bytes, PAGE);
            });
        });
    }
}

/// As a primary: writes what is new to where `reserve` has room for so many bytes, and takes it into the twins. How many those
/// were; `None` without room. `call` says at what kind of place.
pub fn take_new(call: u16, reserve: impl FnOnce(usize) -> Option<*mut u8>) -> Option<usize> {
    let mut new: Blocks = OWED.each_ref().map(|word| word.swap(0, Ordering::Relaxed));
    changed(&mut new);
    let count: usize = new.iter().map(|word| word.count_ones() as usize).sum();
    let looks = &LOOKS[usize::from(call != op::CALL)];
    looks.store(looks.load(Ordering::Relaxed).saturating_add(1), Ordering::Relaxed);
    let mut place = reserve(count * PIECE)?;
    for block in (0..BLOCKS_MAX).filter(|block| new[block / 64] & 1 << (block % 64) != 0) {
        let Some((at, twin)) = place_of(block) else { continue };
        let mut bytes = [0u8; BLOCK];
        // Once, for the twin and the log: the next store of another process may come between two looks.
        guest::read(bytes.as_mut_ptr(), at, BLOCK);
        // SAFETY: the twin is ours; the payload is reserved.
        unsafe {
            (twin as *mut [u8; BLOCK]).write(bytes);
            place.cast::<u64>().write(block as u64);
            place.add(8).cast::<[u8; BLOCK]>().write(bytes);
            place = place.add(PIECE);
        }
    }
    Some(count * PIECE)
}

/// The addresses of a block and of its twin.
fn place_of(block: usize) -> Option<(u64, u64)> {
    let mut offset = (block * BLOCK) as u64;
    for region in &REGIONS {
        let (start, bytes, twin) = region.get();
        if offset < bytes {
            return Some((start + offset, twin + offset));
        }
        offset -= bytes;
    }
    None
}

/// Applies what [`take_new`] has written, as a standby.
pub fn apply(payload: &[u8]) {
    if IS_REAL.load(Ordering::Relaxed) {
        return;
    }
    for piece in payload.chunks_exact(PIECE) {
        let (block, bytes) = piece.split_at(8);
        let block = block.iter().rev().fold(0, |value, byte| value << 8 | usize::from(*byte));
        let Some((at, twin)) = place_of(block) else { continue };
        guest::write(twin, bytes.as_ptr(), BLOCK);
        guest::write(at, bytes.as_ptr(), BLOCK);
    }
}

/// A standby has come to an event: its primary had written all that the standby has.
#[inline(always)]
pub fn passed() {
    if is_active() && !IS_REAL.load(Ordering::Relaxed) {
        pass();
    }
}

#[cold]
fn pass() {
    for region in &REGIONS {
        region.each_changed(|_, twin, now, _| {
            guest::write(twin, now.as_ptr(), PAGE);
        });
    }
}

/// A word of a lock that a standby passes over and its guest may look at: written, and not by the guest.
pub fn set_word(address: usize, value: u32) {
    if IS_REAL.load(Ordering::Relaxed) {
        return;
    }
    let address = address as u64;
    guest::store(address, &value);
    let twin = twin_of(address);
    if twin != address {
        guest::store(twin, &value);
    }
}

/// A word as the log has told of it last.
pub fn word(address: usize) -> u32 {
    guest::load(twin_of(address as u64)).unwrap_or(0)
}

/// At a promotion: writes to the real memory at `real`, which the guest will have at `start`, what the guest has written
/// behind its last event. False if it is not kept alike.
pub fn redo(start: u64, real: u64, is_in_call: bool) -> bool {
    let Some(region) = REGIONS.iter().find(|region| is_active() && region.has(start)) else { return false };
    IS_REAL.store(true, Ordering::Relaxed);
    region.is_primarys.store(true, Ordering::Relaxed);
    // A call of which the log has the beginning was made behind all of that.
    if !is_in_call {
        region.each_changed(|at, _, now, then| {
            for (index, (byte, _)) in now.iter().zip(then).enumerate().filter(|(_, (now, then))| now != then)
            {
                guest::write(real + (at - start) + index as u64, &raw const *byte, 1);
            }
        });
    }
    true
}
