//! Calls whose second attempt would find less than the first: a message taken from a queue, an error that is told
//! once. Several messages at a time are [`batch`]'s.
//!
//! They are made with buffers in the ring's unpublished slot instead of the guest's. What the kernel has handed
//! over is then there when the primary is not, and the slot shows whether it has.
//!
//! # Safety
//! All of it lies in the calling thread's ring, above the tail, at places that the thread has reserved.

use us_abi::event::ReturnHead;
use us_calls::Row;

use crate::call::Call;
use crate::door::recorded::execute_marked;
use crate::door::{batch, numbers, pattern, pidfd, queue, wait, witness};
use crate::guest::{GuestMut, GuestPtr};
use crate::members;
use crate::raw::err::EFAULT;
use crate::raw::failed;
use crate::raw::nr::{
    self as calls, GETSOCKOPT, MQ_TIMEDRECEIVE, MSGRCV, RECVMMSG, SEMOP, SEMTIMEDOP, SENDMMSG,
};
use crate::thread::Thread;

/// What no error and no count is.
const NEVER: u32 = u32::MAX;

/// Makes a recorded call for real, with what it takes going through the slot where that matters.
#[inline(always)]
pub fn make(thread: &mut Thread, row: &'static Row, nr: u64, args: &[u64; 6]) -> i64 {
    let special = match nr {
        wait::WAIT4 | wait::WAITID => Some(wait::make_recorded(thread, nr, args)),
        62 | 129 | 234 | 297 if members::is_numbered() => {
            Some(numbers::send(nr, args, |args| execute_marked(thread, row, nr, args)))
        }
        pidfd::SEND_SIGNAL if members::is_numbered() => pidfd::by_number(args).map(|(row, args)| {
            let nr = row.nr.into();
            numbers::send(nr, &args, |args| execute_marked(thread, row, nr, args))
        }),
        calls::SETSID => {
            let result = numbers::session(|| execute_marked(thread, row, nr, args));
            Some(numbers::answered(row, args, result))
        }
        _ if members::is_numbered()
            && numbers::answers_a_number(row.nr)
            && !is_through_the_slot(nr, args) =>
        {
            let result = execute_marked(thread, row, nr, args);
            Some(numbers::answered(row, args, result))
        }
        GETSOCKOPT | MSGRCV | MQ_TIMEDRECEIVE => through_the_slot(thread, row, nr, *args),
        RECVMMSG => batch::take(thread, row, args),
        SENDMMSG => batch::put_out(thread, row, args),
        queue::MSGSND | queue::MQ_TIMEDSEND | SEMOP | SEMTIMEDOP => queue::make(thread, nr, args),
        _ => None,
    };
    special.unwrap_or_else(|| execute_marked(thread, row, nr, args))
}

/// Whether a call's answer comes into the ring's slot first.
fn is_through_the_slot(nr: u64, args: &[u64; 6]) -> bool {
    nr == GETSOCKOPT && asks_error(args)
}

#[inline(never)]
fn through_the_slot(thread: &mut Thread, row: &'static Row, nr: u64, args: [u64; 6]) -> Option<i64> {
    let call = &Call { nr, args, caller: 0 };
    match nr {
        GETSOCKOPT => pending_error(thread, row, call),
        // A type of eight bytes comes before the text.
        MSGRCV => receive(thread, row, call, args[2].checked_add(8)?),
        _ => receive(thread, row, call, args[2]),
    }
}

/// A message from a queue.
fn receive(thread: &mut Thread, row: &'static Row, call: &Call, bytes: u64) -> Option<i64> {
    if bytes == 0 || bytes > pattern::PATTERN_MAX as u64 {
        return None;
    }
    let (bytes, behind) = (bytes as usize, (bytes as usize).next_multiple_of(8));
    let place = thread.reserve(size_of::<ReturnHead>() + behind + 8)?;
    pattern::lay_pattern(place, bytes);
    // SAFETY: reserved, the priority's word included.
    let (data, priority) = unsafe {
        let data = place.add(size_of::<ReturnHead>());
        (data, data.add(behind))
    };
    let mut args = call.args;
    args[1] = data as u64;
    let wants_priority = call.nr == MQ_TIMEDRECEIVE && args[3] != 0;
    if wants_priority {
        args[3] = priority as u64;
    }
    let result = execute_marked(thread, row, call.nr, &args);
    if !failed(result) {
        let got = if call.nr == MSGRCV { result as usize + 8 } else { result as usize };
        // What cannot be written there is gone all the same, as the kernel has it.
        if !GuestMut::<u8>::at(call.args[1]).copy_from(data, got)
            || wants_priority && !GuestMut::<u8>::at(call.args[3]).copy_from(priority, size_of::<u32>())
        {
            return Some(EFAULT);
        }
    }
    Some(result)
}

/// The payload of the missing `Return` of such a call, put together in its slot: its bytes and the call's result.
/// `None`: nothing was taken.
pub fn received(slot: *mut u8, nr: u64, asked: &[u64; 6]) -> Option<(usize, i64)> {
    let room = if nr == MSGRCV { asked[2].checked_add(8)? } else { asked[2] } as usize;
    let got = match pattern::touched(slot)? {
        Some(0) => return None,
        Some(got) => got.min(room),
        None => room,
    };
    if nr == MSGRCV {
        return Some((got.max(8), got.max(8) as i64 - 8));
    }
    if asked[3] == 0 {
        return Some((got, got as i64));
    }
    // SAFETY: the slot of a dead primary, as `receive` has laid it out.
    unsafe {
        let data = witness::data_of(slot);
        core::ptr::copy(data.add(room.next_multiple_of(8)), data.add(got), 4);
    }
    Some((got + 4, got as i64))
}

/// getsockopt(SO_ERROR): the error is told once.
fn pending_error(thread: &mut Thread, row: &'static Row, call: &Call) -> Option<i64> {
    let [_, _, _, value, len, _] = call.args;
    if !asks_error(&call.args) || GuestPtr::<u32>::at(len).load()? != 4 {
        return None;
    }
    let place = thread.reserve(size_of::<ReturnHead>() + 8)?;
    // SAFETY: reserved; the length, then the value, as in the published event.
    let data = unsafe {
        let data = place.add(size_of::<ReturnHead>());
        data.cast::<[u32; 2]>().write([4, NEVER]);
        data
    };
    let mut args = call.args;
    (args[3], args[4]) = (data as u64 + 4, data as u64);
    let result = execute_marked(thread, row, call.nr, &args);
    if !failed(result) {
        // SAFETY: as above; the kernel has written there.
        let [told_len, told] = unsafe { data.cast::<[u32; 2]>().read() };
        if !GuestMut::at(value).store(&told) || !GuestMut::at(len).store(&told_len) {
            return Some(EFAULT);
        }
    }
    Some(result)
}

/// Whether a getsockopt asks for the error that waits.
pub fn asks_error(asked: &[u64; 6]) -> bool {
    use crate::kernel::{SO_ERROR, SOL_SOCKET};
    asked[1] & 0xffff_ffff == SOL_SOCKET && asked[2] & 0xffff_ffff == SO_ERROR
}

/// Whether the error lies in the slot of a dead primary that had asked for it.
pub fn error_told(slot: *mut u8, asked: &[u64; 6]) -> bool {
    // SAFETY: the slot of a dead primary, as `pending_error` has laid it out.
    asks_error(asked)
        && GuestPtr::<u32>::at(asked[4]).load() == Some(4)
        && unsafe { witness::data_of(slot).add(4).cast::<u32>().read_unaligned() } != NEVER
}
