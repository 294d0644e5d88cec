//! What this process is, and where the segment lies.
//!
//! All of it is private memory: a standby is a fork, so it starts with the primary's values and changes
//! its own.

use core::sync::atomic::{AtomicBool, AtomicPtr, AtomicU8, AtomicU32, AtomicU64, Ordering};

use us_abi::{
    CONFIG_COMPUTED, CONFIG_DETACHED, CONFIG_GATED, CONFIG_MIRRORED, CONFIG_PARALLEL, CONFIG_RECORDED,
    CONFIG_SERIAL, SEGMENT_ADDRESS, SegmentHeader, THREADS_MAX, THREADS_OFFSET, Text, ThreadEntry,
};

use crate::raw;

/// What this copy of the program is.
#[repr(u8)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// Not under protection: the constructor has not run, or found no group to join.
    Outside = 0,
    /// Its effects are real.
    Primary = 1,
    /// It replays.
    Standby = 2,
    /// A child process of a primary: effects are real, nothing is logged, the segment is not its own.
    Child = 3,
}

static ROLE: AtomicU8 = AtomicU8::new(0);
static HEADER: AtomicPtr<SegmentHeader> = AtomicPtr::new(core::ptr::null_mut());

/// Set once every ring is drained, every call in doubt settled: the standby's threads execute from here on.
pub static LIVE: AtomicBool = AtomicBool::new(false);
/// Set in a process that has been put together from a checkpoint, until it is primary.
pub static IS_RESTORED: AtomicBool = AtomicBool::new(false);
/// Whether the copies compare digests.
pub static VERIFY: AtomicBool = AtomicBool::new(true);
/// Pid that the guest sees.
pub static GUEST_PID: AtomicU32 = AtomicU32::new(0);
/// Pid that the kernel knows for this copy.
pub static REAL_PID: AtomicU32 = AtomicU32::new(0);
/// When this process became a primary, CLOCK_MONOTONIC ns; 0 if it has always been one.
pub static PROMOTED_NS: AtomicU64 = AtomicU64::new(0);
/// `--lead`, ns.
pub static LEAD_NS: AtomicU64 = AtomicU64::new(us_order::pace::LEAD_NS);
/// Longest time that the primary waits for room in a ring, ns.
pub static LAG_TIMEOUT_NS: AtomicU64 = AtomicU64::new(100_000_000);

/// Bytes of an affinity mask, as this kernel gives it.
pub static AFFINITY_BYTES: AtomicU32 = AtomicU32::new(8);
/// Bytes that a thread's standby may be behind.
pub static LAG_LIMIT: AtomicU64 = AtomicU64::new(0);

/// The log is taken into a recording.
static RECORDED: AtomicBool = AtomicBool::new(false);
/// This is a replay of a recording: a standby that shares nothing with the process whose log it follows.
static DETACHED: AtomicBool = AtomicBool::new(false);
/// The same, of one that has kernel objects of its own and may take over.
static MIRRORED: AtomicBool = AtomicBool::new(false);

/// A gate waits for what this process logs of its connections.
static GATED: AtomicBool = AtomicBool::new(false);

/// One thread runs at a time: 0 no, [`TURNS_RECORDED`] or [`TURNS_LIVE`].
pub static TURNS: AtomicU8 = AtomicU8::new(0);
/// Of a recorded group, or of a replay.
const TURNS_RECORDED: u8 = 1;
/// Of this process, beside its standby.
const TURNS_LIVE: u8 = 2;

/// Whose turn it is next is computed.
static COMPUTED: AtomicBool = AtomicBool::new(false);
/// Threads that take turns have them in doors alone.
static PARALLEL: AtomicBool = AtomicBool::new(false);

/// Notes what the supervisor wants this process for, besides protection.
pub fn set_purpose(config_flags: u32) {
    RECORDED.store(config_flags & CONFIG_RECORDED != 0, Ordering::Relaxed);
    DETACHED.store(config_flags & CONFIG_DETACHED != 0, Ordering::Relaxed);
    MIRRORED.store(config_flags & CONFIG_MIRRORED != 0, Ordering::Relaxed);
    GATED.store(config_flags & CONFIG_GATED != 0, Ordering::Relaxed);
    let recorded = config_flags & (CONFIG_RECORDED | CONFIG_DETACHED) != 0;
    let turns = match (config_flags & CONFIG_SERIAL != 0, recorded) {
        (false, _) => 0,
        (true, true) => TURNS_RECORDED,
        (true, false) => TURNS_LIVE,
    };
    TURNS.store(turns, Ordering::Relaxed);
    COMPUTED.store(config_flags & CONFIG_COMPUTED != 0 && turns == TURNS_LIVE, Ordering::Relaxed);
    PARALLEL.store(config_flags & CONFIG_PARALLEL != 0 && turns == TURNS_LIVE, Ordering::Relaxed);
}

/// This process is no part of a recording, although its group is: that of the process which has made it has ended.
pub fn is_not_recorded() {
    RECORDED.store(false, Ordering::Relaxed);
}

/// Whether the heir reads the log, as a primary. See `is_followed` of `seats` for any standby.
pub fn has_standby() -> bool {
    header().is_some_and(|header| header.dropped.0.load(Ordering::Acquire) == 0)
}

/// Whether this process began as part of a recording. That may have ended since: see `recorder::goes_on`.
#[inline(always)]
pub fn is_recorded() -> bool {
    RECORDED.load(Ordering::Relaxed)
}

/// Whether this process has, or may get, a standby, or is recorded or replayed: not where nobody has asked for one.
pub fn may_have_copies() -> bool {
    const READ: u32 = CONFIG_RECORDED | CONFIG_DETACHED;
    header().is_some_and(|header| header.config.standbys != 0 || header.config.flags & READ != 0)
}

/// Whether one thread of the group, or of this process, runs at a time.
#[inline(always)]
pub fn is_serial() -> bool {
    TURNS.load(Ordering::Relaxed) != 0
}

/// Whether it is this process alone, for its standby.
#[inline(always)]
pub fn takes_live_turns() -> bool {
    TURNS.load(Ordering::Relaxed) == TURNS_LIVE
}

/// Whether whose turn it is next is computed.
#[inline(always)]
pub fn is_computed() -> bool {
    COMPUTED.load(Ordering::Relaxed) && takes_live_turns()
}

/// From here on nobody takes turns in a computed order.
pub fn computes_no_more() {
    COMPUTED.store(false, Ordering::Relaxed);
    PARALLEL.store(false, Ordering::Relaxed);
}

/// Whether threads have their turns in doors alone, and run at the same time between them.
#[inline(always)]
pub fn is_parallel() -> bool {
    PARALLEL.load(Ordering::Relaxed) && takes_live_turns()
}

/// Threads of this process take turns from here on, or no longer.
pub fn take_turns(wanted: bool) {
    TURNS.store(if wanted { TURNS_LIVE } else { 0 }, Ordering::Relaxed);
}

/// Whether this is a replay of a recording.
#[inline(always)]
pub fn is_detached() -> bool {
    DETACHED.load(Ordering::Relaxed)
}

/// Whether a gate waits for what this process logs of its connections.
#[inline(always)]
pub fn is_gated() -> bool {
    GATED.load(Ordering::Relaxed)
}

/// Whether this is a replay that has kernel objects of its own.
#[inline(always)]
pub fn is_mirrored() -> bool {
    MIRRORED.load(Ordering::Relaxed)
}

/// A thread has changed what the kernel keeps of it alone.
static THREADS_DIFFER: AtomicBool = AtomicBool::new(false);

/// Whether threads may differ in what a new one gets of its maker's: ids, rights.
pub fn may_threads_differ() -> bool {
    THREADS_DIFFER.load(Ordering::Relaxed)
}

/// The calling thread is about to change such a thing, of itself alone. The first one of a process has nobody to differ from.
pub fn changes_alone() {
    if !crate::real::single_threaded() {
        THREADS_DIFFER.store(true, Ordering::Relaxed);
    }
}

/// A thread has left a folder, or name spaces, that it shared with the others.
static MAY_BE_APART: AtomicBool = AtomicBool::new(false);

/// Whether threads may be in different folders, or name spaces.
pub fn may_be_apart() -> bool {
    MAY_BE_APART.load(Ordering::Relaxed)
}

/// The calling thread may have left those of the others, if there are any.
pub fn comes_apart() {
    if !crate::real::single_threaded() {
        MAY_BE_APART.store(true, Ordering::Relaxed);
    }
}

/// This copy's role.
#[inline(always)]
pub fn role() -> Role {
    match ROLE.load(Ordering::Relaxed) {
        1 => Role::Primary,
        2 => Role::Standby,
        3 => Role::Child,
        _ => Role::Outside,
    }
}

/// Changes this copy's role.
pub fn set_role(role: Role) {
    ROLE.store(role as u8, Ordering::Release);
}

/// Whether this copy replays and has not been promoted.
#[inline(always)]
pub fn is_standby() -> bool {
    role() == Role::Standby
}

/// The segment's header, `None` outside a group.
pub fn header() -> Option<&'static SegmentHeader> {
    // SAFETY: set once to a mapping that is never removed, of atomics and constants only.
    unsafe { HEADER.load(Ordering::Relaxed).as_ref() }
}

/// Records where the segment is mapped; null when it is no longer this process's business.
pub fn set_header(header: *mut SegmentHeader) {
    HEADER.store(header, Ordering::Release);
}

/// The thread table's entry of a slot. Only inside a group.
#[inline(always)]
pub fn entry(slot: u32) -> &'static ThreadEntry {
    if slot as usize >= THREADS_MAX {
        return nowhere();
    }
    // Not from the header's pointer: another thread may be about to leave the group.
    let base = SEGMENT_ADDRESS + THREADS_OFFSET;
    // SAFETY: slots are below THREADS_MAX, the table lies in the segment, which is mapped there and is never removed, and all
    // fields are atomics.
    unsafe { &*((base as *const ThreadEntry).add(slot as usize)) }
}

/// What threads beyond the slots have for an entry: nobody looks at it.
#[cold]
fn nowhere() -> &'static ThreadEntry {
    #[repr(align(64))]
    struct Nowhere(core::cell::UnsafeCell<[u8; size_of::<ThreadEntry>()]>);
    // SAFETY: used as a `ThreadEntry`, which is atomics only.
    unsafe impl Sync for Nowhere {}
    static NOWHERE: Nowhere = Nowhere(core::cell::UnsafeCell::new([0; size_of::<ThreadEntry>()]));
    // SAFETY: aligned and of that size; an entry that is all zero is one of an unused slot.
    unsafe { &*NOWHERE.0.get().cast::<ThreadEntry>() }
}

/// Tells the supervisor that something has changed.
pub fn attention() {
    if let Some(header) = header() {
        header.attention.0.fetch_add(1, Ordering::AcqRel);
        raw::futex_wake_shared(&header.attention.0);
    }
}

/// Writes `parts` into a text of the segment, once: the first cause is the one that counts.
pub fn write_text(text: &Text, code: u32, parts: &[&[u8]]) {
    if text.code.compare_exchange(0, code, Ordering::AcqRel, Ordering::Acquire).is_err() {
        return;
    }
    let mut at = 0usize;
    let mut word = [0u8; 8];
    for byte in parts.iter().flat_map(|part| part.iter()) {
        if at == text.words.len() * 8 {
            break;
        }
        word[at % 8] = *byte;
        at += 1;
        if at.is_multiple_of(8) {
            text.words[at / 8 - 1].store(u64::from_le_bytes(word), Ordering::Relaxed);
            word = [0; 8];
        }
    }
    if !at.is_multiple_of(8) {
        text.words[at / 8].store(u64::from_le_bytes(word), Ordering::Relaxed);
    }
    text.len.store(at as u32, Ordering::Release);
}

/// Writes `parts` in place of whatever the text says: a cause that ends all others.
pub fn overwrite_text(text: &Text, code: u32, parts: &[&[u8]]) {
    text.len.store(0, Ordering::Release);
    text.code.store(0, Ordering::Release);
    write_text(text, code, parts);
}

/// A short path from its parts, with a NUL behind it.
pub fn joined(parts: &[&[u8]]) -> [u8; 40] {
    let mut path = [0u8; 40];
    let mut at = 0;
    for part in parts {
        path[at..at + part.len()].copy_from_slice(part);
        at += part.len();
    }
    path
}

/// A number as decimal digits, without allocation.
#[derive(Clone, Copy)]
pub struct Decimal {
    digits: [u8; 20],
    start: usize,
}

impl Decimal {
    /// The digits of `value`.
    pub fn new(mut value: u64) -> Decimal {
        let mut digits = [b'0'; 20];
        let mut start = 20;
        loop {
            start -= 1;
            digits[start] = b'0' + (value % 10) as u8;
            value /= 10;
            if value == 0 {
                return Decimal { digits, start };
            }
        }
    }
    /// The digits as bytes.
    pub fn bytes(&self) -> &[u8] {
        &self.digits[self.start..]
    }
}

/// See [`PROMOTED_NS`].
pub fn promoted_ns() -> u64 {
    PROMOTED_NS.load(Ordering::Relaxed)
}

/// Whether this copy's numbers differ from those that the guest knows: after a promotion.
#[inline(always)]
pub fn is_renumbered() -> bool {
    GUEST_PID.load(Ordering::Relaxed) != REAL_PID.load(Ordering::Relaxed)
}

/// The auxiliary vector: it does not change, so it is read once.
pub static AUXILIARY: [AtomicU64; 128] = [const { AtomicU64::new(0) }; 128];

/// Reads it. In the constructor.
pub fn read_auxiliary() {
    let path = c"/proc/self/auxv";
    // SAFETY: opens, reads into our static, closes; no other thread exists.
    unsafe {
        let file = raw::call3(raw::nr::OPEN, path.as_ptr() as u64, 0o2000000, 0);
        if !raw::failed(file) {
            raw::call3(raw::nr::READ, file as u64, AUXILIARY.as_ptr() as u64, size_of_val(&AUXILIARY) as u64);
            raw::call1(raw::nr::CLOSE, file as u64);
        }
    }
}

/// Of the auxiliary vector: where the kernel has laid down 16 random bytes.
pub const AT_RANDOM: u64 = 25;

/// A value of the auxiliary vector, 0 where it has none of that kind.
pub fn auxiliary(kind: u64) -> u64 {
    let word = |at: usize| AUXILIARY[at].load(Ordering::Relaxed);
    (0..AUXILIARY.len()).step_by(2).find(|at| word(*at) == kind).map_or(0, |at| word(at + 1))
}
