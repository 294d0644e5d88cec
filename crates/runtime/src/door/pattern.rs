//! How far a read in doubt came: what is no longer the pattern, with which its slot was filled before the call, has been read.
//!
//! # Safety
//! As in [`witness`](super::witness).

use core::arch::x86_64::__m128i;

use us_abi::PAYLOAD_BYTES_MAX;
use us_abi::event::ReturnHead;

use super::witness::{HEAD, mark};

/// First word of a slot that was filled with the pattern before a read.
const PATTERN_MARK: u64 = 0x7573_7061_7474_6572;
/// The same before a read of what waits in a pipe: all of it comes, but where another reader is quicker.
const COUNT_MARK: u64 = 0x7573_6279_636f_756e;
/// The same before a read of a pipe that others share, in which nothing waited a moment before.
const LATE_MARK: u64 = 0x7573_6c61_7465_6c79;
/// Longest part of a slot that gets the pattern, bytes.
pub const PATTERN_MAX: usize = 64 << 10;

/// The pattern's byte at a place of the slot.
pub const fn pattern(at: usize) -> u8 {
    (at as u8).wrapping_mul(0x4d) ^ 0xa7
}

/// All of it before it repeats.
static PATTERN: Repeated = {
    let mut bytes = [0; 256];
    let mut at = 0;
    while at < bytes.len() {
        bytes[at] = pattern(at);
        at += 1;
    }
    Repeated(bytes)
};

#[repr(align(16))]
struct Repeated([u8; 256]);

/// Fills the slot at `place` with the pattern before a read of `bytes`.
#[inline(always)]
pub fn lay_pattern(place: *mut u8, bytes: usize) {
    lay(place, bytes);
    mark(place, PATTERN_MARK, bytes as u64);
}

/// The same before a read of `bytes` that wait in a pipe.
pub fn lay_count(place: *mut u8, bytes: usize) {
    lay(place, bytes);
    mark(place, COUNT_MARK, bytes as u64);
}

/// The same before a read that does not wait, of a pipe that others share and that was empty.
pub fn lay_late(place: *mut u8, bytes: usize) {
    lay(place, bytes);
    mark(place, LATE_MARK, bytes as u64);
}

/// Whether a slot was prepared for a read that is made in the plain way: of a pipe that its reader had to itself.
pub fn is_plain_read(slot: *const u8) -> bool {
    // SAFETY: the place of a header in a mapped ring.
    unsafe { slot.cast::<u64>().read() == PATTERN_MARK }
}

#[inline(always)]
fn lay(place: *mut u8, bytes: usize) {
    let count = bytes.min(PATTERN_MAX);
    // SAFETY: reserved by the caller, and aligned like every event; an event's bytes are so many that the last store is one of
    // its own. The pattern repeats every 256 bytes.
    unsafe {
        let data = place.add(size_of::<ReturnHead>());
        let mut laid = 0;
        while laid < count.min(size_of::<Repeated>()) {
            let part = PATTERN.0.as_ptr().add(laid).cast::<__m128i>().read();
            // Volatile: a loop that copies is made a call otherwise, and most reads are short.
            data.add(laid).cast::<__m128i>().write_volatile(part);
            laid += size_of::<__m128i>();
        }
        if count > laid {
            lay_on(data, laid, count);
        }
    }
}

/// # Safety
/// `count` bytes at `data` are the caller's, and the first `laid` of them have the pattern.
#[inline(never)]
unsafe fn lay_on(data: *mut u8, mut laid: usize, count: usize) {
    while laid < count {
        let part = laid.min(count - laid);
        // SAFETY: the caller's.
        unsafe { core::ptr::copy_nonoverlapping(data, data.add(laid), part) };
        laid += part;
    }
}

/// How far a read into a slot with the pattern came. The outer `None`: there is no pattern; the inner one: all of it
/// is gone.
pub fn touched(slot: *const u8) -> Option<Option<usize>> {
    // SAFETY: the place of a header in a mapped ring.
    unsafe {
        let (word, bytes) = (slot.cast::<u64>().read(), slot.cast::<u64>().add(1).read());
        if !matches!(word, PATTERN_MARK | COUNT_MARK | LATE_MARK) || bytes as usize > PAYLOAD_BYTES_MAX {
            return None;
        }
        let data = core::slice::from_raw_parts(slot.add(HEAD), (bytes as usize).min(PATTERN_MAX));
        match us_world::object::touched(data, pattern) {
            Some(seen) if word == COUNT_MARK => {
                Some(Some(us_world::object::counted(seen as u64, bytes) as usize))
            }
            // The whole of a short read: eight bytes from an eventfd.
            None if bytes as usize <= PATTERN_MAX => Some(Some(bytes as usize)),
            found => Some(found),
        }
    }
}
