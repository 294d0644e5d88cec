//! Which memory is kept alike, in a process whose log others read than the standby that is made of it: a recording, another
//! machine.
//!
//! They have no clone to learn it from. So the log says it, with the bytes that are there: directly before the beginning of a
//! call, since a reader waits for that and sees both at one place. The call is the first one behind the mapping, or behind a clone
//! that has found other memory than the log has told of. So it comes before a child has the memory as well, and a child that is
//! recorded begins with what its parent had chosen.

use core::sync::atomic::{AtomicU64, Ordering};

use us_abi::event::{EventKind, NO_TICKET};
use us_calls::Class;

use super::{ACTIVE, BYTES_MAX, IS_REAL, NEW, OWED, PAGE, REGIONS, REGIONS_MAX, STATE};
use crate::call::Call;
use crate::raw::{self, failed, nr};
use crate::thread::{Mode, Thread};
use crate::{guest, state};

/// Memory that others may share, and that can be written to: where it begins and ends. Nothing where the end is 0.
static FOUND: [[AtomicU64; 2]; REGIONS_MAX] = [const { [const { AtomicU64::new(0) }; 2] }; REGIONS_MAX];

fn found() -> impl Iterator<Item = (u64, u64)> {
    let places = FOUND.iter().map(|place| place.each_ref().map(|word| word.load(Ordering::Relaxed)));
    places.filter(|[_, end]| *end != 0).map(|[start, end]| (start, end))
}

/// Whether the log says it: not where processes take turns, whose replay shares the memory as they did.
fn is_in_log() -> bool {
    (state::is_recorded() || state::is_detached()) && !state::is_serial()
}

fn is_new() -> bool {
    STATE.load(Ordering::Relaxed) & NEW != 0
}

fn set_new(is: bool) {
    if is {
        STATE.fetch_or(NEW, Ordering::Relaxed);
    } else {
        STATE.fetch_and(!NEW, Ordering::Relaxed);
    }
}

/// The guest has mapped memory that others may share. At the same place in every copy.
pub fn mapped(call: &Call, result: i64) {
    const WRITE: u64 = 2;
    if failed(result) || call.args[2] & WRITE == 0 || !is_in_log() {
        return;
    }
    let start = result as u64;
    let end = start + call.args[1].next_multiple_of(PAGE as u64);
    // More than there is room for is as it always was: nobody keeps it alike.
    if let Some([from, to]) = FOUND.iter().find(|[_, end]| end.load(Ordering::Relaxed) == 0) {
        from.store(start, Ordering::Relaxed);
        to.store(end, Ordering::Relaxed);
        set_new(true);
    }
}

/// The guest's mapping of a range is going, or moving. At the same place in every copy.
pub fn unmapped(start: u64, bytes: u64) {
    let last = start.saturating_add(bytes);
    for [from, to] in &FOUND {
        let (begins, ends) = (from.load(Ordering::Relaxed), to.load(Ordering::Relaxed));
        if ends != 0 && begins < last && start < ends {
            to.store(0, Ordering::Relaxed);
        }
    }
}

/// By the coordinator, while everything stands still: `mappings` is what a standby is to keep alike. False if the log has no other
/// readers, or they may not be told of it. `goes_on`: the log did not begin with this clone.
pub fn at_clone(mappings: impl Iterator<Item = (u64, u64)>, goes_on: bool) -> bool {
    if !is_in_log() || !goes_on {
        return false;
    }
    FOUND.iter().for_each(|[_, to]| to.store(0, Ordering::Relaxed));
    for ([from, to], (start, end)) in FOUND.iter().zip(mappings) {
        from.store(start, Ordering::Relaxed);
        to.store(end, Ordering::Relaxed);
    }
    set_new(!super::those_of(found()).eq(super::regions()));
    super::freeze();
    true
}

/// Regions before their bytes, in the log.
const HEAD: usize = 8 * (1 + 2 * REGIONS_MAX);

/// Before a call: makes the choice, and logs it; none for a process of several threads.
#[cold]
pub fn make(thread: &mut Thread, is_threaded: impl FnOnce() -> bool) {
    if !is_new() || thread.calls() != Mode::Record {
        return;
    }
    set_new(false);
    if is_threaded() {
        return;
    }
    let Some(place) = thread.reserve(HEAD + BYTES_MAX as usize) else { return };
    super::choose(found());
    OWED.iter().for_each(|word| word.store(0, Ordering::Relaxed));
    let mut at = HEAD;
    for (index, region) in REGIONS.iter().enumerate() {
        let (start, bytes, twin) = region.get();
        // SAFETY: reserved: the head has room for all regions, and all of their bytes are no more than the rest. The twins are ours.
        unsafe {
            let words = place.cast::<u64>().add(1 + 2 * index);
            words.write(start);
            words.add(1).write(bytes);
            if bytes != 0 {
                core::ptr::copy_nonoverlapping(twin as *const u8, place.add(at), bytes as usize);
            }
        }
        at += bytes as usize;
    }
    // SAFETY: as above.
    unsafe { place.cast::<u64>().write(0) };
    thread.publish(EventKind::Alike, 0, 0, NO_TICKET, at);
}

/// The log says what has been chosen.
#[cold]
pub fn follow(thread: &mut Thread, payload: &[u8]) {
    set_new(false);
    let word = |index: usize| {
        let bytes = payload.get(8 * index..8 * index + 8).and_then(|bytes| bytes.try_into().ok());
        bytes.map_or(0, u64::from_le_bytes)
    };
    let chosen = || (0..REGIONS_MAX).map(|index| (word(1 + 2 * index), word(2 + 2 * index)));
    // The guest has the memory itself back: nothing is put there any more.
    let is_real = IS_REAL.load(Ordering::Relaxed);
    let mut rest = payload.get(HEAD..).unwrap_or(&[]);
    for (start, bytes) in chosen() {
        let Some((there, others)) = rest.split_at_checked(bytes as usize) else { break };
        if !is_real {
            // By pages: what lies behind the end of a file cannot be written.
            for (page, at) in there.chunks(PAGE).zip((start..).step_by(PAGE)) {
                guest::write(at, page.as_ptr(), page.len());
            }
        }
        rest = others;
    }
    super::choose(chosen().filter(|(_, bytes)| *bytes != 0).map(|(start, bytes)| (start, start + bytes)));
    IS_REAL.store(is_real, Ordering::Relaxed);
    REGIONS.iter().for_each(|region| region.is_primarys.store(is_real, Ordering::Relaxed));
    thread.count(Class::of_event(EventKind::Alike, 0));
}

/// In a forked child: what its parent had chosen goes on where the log of the child is read from its beginning.
pub fn in_child() {
    if is_in_log() {
        super::nothing_is_real();
    } else {
        super::stop();
        set_new(false);
    }
}

/// On the machine that takes over: what processes share was this one's alone while it followed, and is its children's from here on.
pub fn share_again() {
    const SHARED_ANONYMOUS: u64 = 0x21;
    const MAYMOVE_FIXED: u64 = 3;
    for (start, end) in found() {
        let bytes = end - start;
        let how = [0, bytes, 3, SHARED_ANONYMOUS, u64::MAX, 0];
        // SAFETY: new memory takes the place of a mapping of the same length, while every thread of the guest sleeps.
        unsafe {
            let shared = raw::call6(nr::MMAP, how);
            if failed(shared) {
                continue;
            }
            let shared = shared as u64;
            for page in (0..bytes).step_by(PAGE) {
                guest::read((shared + page) as *mut u8, start + page, PAGE);
            }
            raw::call6(nr::MREMAP, [shared, bytes, bytes, MAYMOVE_FIXED, start, 0]);
        }
    }
}

const _: () = assert!(ACTIVE != NEW && HEAD + BYTES_MAX as usize <= us_abi::PAYLOAD_BYTES_MAX);
