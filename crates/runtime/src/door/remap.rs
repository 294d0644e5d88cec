//! mremap, and mappings that are one for the program and several for the kernel.
//!
//! Two neighbours that a fork has copied are never joined again: each has pages of its own kind (`anon_vma`) from then on. A
//! program that protects a page in the middle of a mapping, and takes that back, has one mapping again; a copy that was made
//! in between has three for ever. The kernel moves no more than one at a time (EFAULT), so a copy moves them one by one.

use core::sync::atomic::{AtomicBool, Ordering};

use us_abi::event::{CallArgs, ReturnHead};

use super::memory::{errno_or, follow, local, offer};
use super::{heaps, own_addresses};
use crate::call::Call;
use crate::door::recorded::{begin, end, take_begin, take_end};
use crate::kernel::MAP_FIXED;
use crate::mapping::views;
use crate::proc::{self, Line};
use crate::raw::{self, err, failed, nr};
use crate::sys::own_table::with_own_table;
use crate::sys::room::Room;
use crate::sys::{allocator, wall};
use crate::thread::{Mode, Thread};
use crate::{tls, twins};

const PAGE: u64 = 4096;
const MAYMOVE: u64 = 1;
const FIXED: u64 = 2;
const DONTUNMAP: u64 = 4;

/// This process, or one that it is a child of, is a copy.
static IS_COPY: AtomicBool = AtomicBool::new(false);
/// Start and length of the kernel's mappings of a range. The one thread's that has a table of its own.
static PARTS: Room<(u64, u64)> = Room::new();

/// In a new copy, before its threads run.
pub fn in_copy() {
    IS_COPY.store(true, Ordering::Relaxed);
}

/// mremap by system call: the C library's own, for its allocator.
pub fn remap(thread: &Thread, call: &Call) -> i64 {
    twins::unmapped(call.args[0], call.args[1]);
    let [_, old, new, flags, ..] = call.args;
    if flags != MAYMOVE || new <= old || !heaps::applies(thread) {
        return move_local(call);
    }
    // Where it cannot stay it comes to the same place in every copy.
    let mut here = *call;
    here.args[3] = 0;
    let stayed = move_local(&here);
    if stayed != err::ENOMEM {
        heaps::grown(call.args[0], new);
        return stayed;
    }
    let moved = heaps::place(new, |to| {
        const NOREPLACE: u64 = 0x10_0000;
        let reserved = reserve(new, Some(to), NOREPLACE);
        if failed(reserved) {
            return reserved;
        }
        let mut there = *call;
        (there.args[3], there.args[4]) = (MAYMOVE | FIXED, to);
        let moved = move_local(&there);
        if failed(moved) {
            // SAFETY: what has just been reserved.
            unsafe { raw::call2(nr::MUNMAP, to, new) };
        }
        moved
    });
    moved.unwrap_or_else(|| move_local(call))
}

/// mremap, and what a standby keeps for what is moved.
fn move_local(call: &Call) -> i64 {
    let result = kernel(call);
    if !failed(result) && crate::state::is_standby() {
        views::moved(call.args[0], call.args[1], result as u64, call.args[2]);
    }
    result
}

/// mremap(3), called by guest code.
///
/// # Safety
/// As the C function.
#[unsafe(no_mangle)]
#[unsafe(naked)]
pub unsafe extern "C" fn mremap(_: u64, _: u64, _: u64, _: u64, _: u64) -> u64 {
    core::arch::naked_asm!("mov r9, [rsp]", "jmp {inner}", inner = sym exported_mremap)
}

/// The sixth argument is the caller's address.
unsafe extern "C" fn exported_mremap(a: u64, b: u64, c: u64, d: u64, e: u64, caller: u64) -> u64 {
    let call = Call { nr: raw::nr::MREMAP, args: [a, b, c, d & 0xffff_ffff, e, 0], caller };
    // SAFETY: the calling thread's own block.
    let result = match unsafe { tls::current().as_mut() } {
        Some(thread) if !allocator::opaque(caller as usize) => guest_mremap(thread, call),
        _ => local(&call),
    };
    errno_or(result)
}

/// A guest's mremap that may move always moves when it grows: growing in place would depend on what other
/// threads have mapped and unmapped so far, which differs between the copies.
fn guest_mremap(thread: &mut Thread, mut call: Call) -> i64 {
    let [_, old, new, flags, ..] = call.args;
    if thread.borrowed.load(Ordering::Relaxed) != 0 || flags != MAYMOVE || new <= old {
        return move_local(&call);
    }
    let Some(row) = us_calls::row(raw::nr::MREMAP) else { return local(&call) };
    let arguments = CallArgs { fd: -1, digest: 0, len: new };
    call.args[3] |= FIXED;
    thread.attempt(|thread, mode| match mode {
        Mode::Solo => Some(to_an_offer(&mut call)),
        Mode::Record => {
            begin(thread, row, arguments);
            let result = to_an_offer(&mut call);
            end(thread, row, 0, ReturnHead { result, identity: 0 });
            Some(result)
        }
        Mode::Replay => {
            take_begin(thread, row, &arguments)?;
            let result = take_end(thread, row, |_, head, _, _| head.result)?;
            if failed(result) {
                return Some(result);
            }
            follow(result as u64, new);
            call.args[4] = result as u64;
            if move_local(&call) != result {
                crate::verdict::report_divergence(thread, &[b"a mapping could not be moved in the standby"]);
            }
            Some(result)
        }
    })
}

/// Moves a mapping to a place that is offered. Where the kernel does not like that place for a reason of its own (the range that is
/// said to be mapped reaches to it), the answer is that of the guest's own call, which names none.
fn to_an_offer(call: &mut Call) -> i64 {
    call.args[4] = offer(call.args[2]);
    let result = kernel(call);
    if result != err::EINVAL {
        return result;
    }
    kernel(&Call { args: [call.args[0], call.args[1], call.args[2], MAYMOVE, 0, 0], ..*call })
}

/// The call as the program would see it natively, where the kernel joins what a fork has kept apart here.
fn kernel(call: &Call) -> i64 {
    wall::forget(call.args[0], call.args[1]);
    let result = local(call);
    if result != err::EFAULT || !IS_COPY.load(Ordering::Relaxed) || own_addresses::answer(call).is_some() {
        return result;
    }
    match with_own_table(|| part_by_part(call)) {
        done if failed(done) && done != err::ENOMEM => result,
        done => done,
    }
}

/// The call, in several, if natively its range is one mapping; EFAULT otherwise.
fn part_by_part(call: &Call) -> i64 {
    let [start, old, new, flags, to, _] = call.args;
    let pages = |bytes: u64| bytes.checked_next_multiple_of(PAGE);
    let (Some(old), Some(new)) = (pages(old), pages(new)) else { return err::EINVAL };
    if !list_parts(start, old.min(new)) {
        return err::EFAULT;
    }
    // SAFETY: filled above; no other thread of that kind exists.
    let parts = unsafe { PARTS.all() };
    let Some(&(last, last_bytes)) = parts.last().filter(|_| parts.len() > 1) else { return err::EFAULT };
    let grows = new.saturating_sub(old);
    // SAFETY: the program's own call on its own memory, in pieces; the new place is nobody's yet, or the program wants it
    // replaced.
    unsafe {
        if flags & MAYMOVE == 0 {
            let there = raw::call6(nr::MREMAP, [last, last_bytes, last_bytes + grows, 0, 0, 0]);
            return if failed(there) { there } else { start as i64 };
        }
        let to = match reserve(new, (flags & FIXED != 0).then_some(to), MAP_FIXED) {
            there if failed(there) => return there,
            there => there as u64,
        };
        if old > new {
            raw::call2(nr::MUNMAP, start + new, old - new);
        }
        for (index, &(at, bytes)) in parts.iter().enumerate() {
            let wanted = if at == last { bytes + grows } else { bytes };
            let how = MAYMOVE | FIXED | flags & DONTUNMAP;
            let moved = raw::call6(nr::MREMAP, [at, bytes, wanted, how, to + (at - start), 0]);
            if failed(moved) {
                for &(at, bytes) in &parts[..index] {
                    raw::call6(nr::MREMAP, [to + (at - start), bytes, bytes, MAYMOVE | FIXED, at, 0]);
                }
                raw::call2(nr::MUNMAP, to, new);
                return moved;
            }
        }
        to as i64
    }
}

/// Room for `bytes` bytes, `at` that place as `how` says, so that nothing else comes there meanwhile.
fn reserve(bytes: u64, at: Option<u64>, how: u64) -> i64 {
    const PRIVATE_ANONYMOUS_NORESERVE: u64 = 0x4022;
    let fixed = if at.is_some() { how } else { 0 };
    let how = [at.unwrap_or(0), bytes, 0, PRIVATE_ANONYMOUS_NORESERVE | fixed, u64::MAX, 0];
    // SAFETY: new memory, or where the program wants what it has replaced.
    unsafe { raw::call6(nr::MMAP, how) }
}

/// Lists the kernel's mappings of a range. False unless they lie side by side and the kernel would have joined them, had
/// they never been copied. What was advised about them (`madvise`) is not compared.
fn list_parts(start: u64, bytes: u64) -> bool {
    let end = start.saturating_add(bytes);
    PARTS.clear();
    let (mut next, mut all, mut last) = (start, true, None::<Line>);
    let read = proc::each_mapping(|line| {
        let Some(line) = Line::parse(line).filter(|line| line.start < end && line.end > start) else {
            return;
        };
        let from = line.start.max(start);
        next = line.end.min(end);
        let goes_on = last.as_ref().map_or(from == start, |last| line.continues(last));
        all &= goes_on && PARTS.push((from, next - from));
        last = Some(line);
    });
    read && all && next == end
}
