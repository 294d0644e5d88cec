//! Buffers that an input is to fill: whether the kernel would find them.
//!
//! Input is taken into the log first. What the kernel would leave in a pipe, a stream or a queue, since the guest has no place
//! for it, must not be taken for the log either; and a call whose lists cannot be read fails before it takes anything.

use crate::door::witness::Shape;
use crate::guest::{GuestMut, GuestPtr, Plain};
use crate::sys::spans::{MessageHeader, Vector};
use crate::thread::Thread;

/// Longest list that the kernel takes (UIO_MAXIOV).
pub const VECTORS_MAX: u64 = 1024;
/// Most that the kernel moves in one call; of more it moves so much, or says that it is too much.
pub const BYTES_MAX: u64 = 0x7fff_f000;

/// Whether a buffer can be written, by its first and its last page. Asked once a page, while the same ones are read into.
#[inline(always)]
pub fn is_there(thread: &mut Thread, at: u64, bytes: u64) -> bool {
    if bytes == 0 {
        return true;
    }
    let (first, last) = ((at >> 12) + 1, (at.saturating_add(bytes - 1) >> 12) + 1);
    first == thread.lately.read_into && (last == first || last == thread.lately.read_up_to)
        || are_pages(thread, first, last)
}

#[cold]
#[inline(never)]
fn are_pages(thread: &mut Thread, first: u64, last: u64) -> bool {
    let lately = &mut thread.lately;
    for (page, known) in [(first, &mut lately.read_into), (last, &mut lately.read_up_to)] {
        *known = if GuestMut::at((page - 1) << 12).is_writable() { page } else { 0 };
        if *known == 0 {
            return false;
        }
    }
    true
}

/// Whether the kernel would find everything that a gathered input of so many bytes names, and would take something.
pub fn are_there(thread: &mut Thread, shape: Shape, wanted: u64) -> bool {
    match shape {
        Shape::From([to, bytes, ..]) => is_there(thread, to, bytes),
        // Without a byte to fill nothing is read, not even an empty message.
        Shape::Vectors(list, count) => wanted != 0 && are_vectors(thread, list, count),
        Shape::Message(at) => at
            .written()
            .is_some_and(|header| are_vectors(thread, GuestPtr::at(header.vectors), header.vector_count)),
    }
}

// SAFETY: numbers, and addresses that nobody follows.
unsafe impl Plain for MessageHeader {}
// SAFETY: as above.
unsafe impl Plain for Vector {}

fn are_vectors(thread: &mut Thread, list: GuestPtr<Vector>, count: u64) -> bool {
    count <= VECTORS_MAX
        && (0..count).all(|index| {
            list.nth(index)
                .load()
                .is_some_and(|vector| vector.len <= BYTES_MAX && is_there(thread, vector.base, vector.len))
        })
}
