//! The address space.
//!
//! Memory is local: both copies map, unmap and protect their own. Three things need care: where the
//! guest's own mappings lie (equal in both copies, because a guest may show an address), what a mapping
//! of a file holds (a standby has no file of its own to map: the bytes travel in the log), and memory
//! that the kernel would share between the copies (a standby gets a private one).

use core::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use us_abi::event::{CallArgs, EventKind, NO_TICKET, RETURN_MORE, ReturnHead};
use us_abi::{Cause, GUEST_MAPS_ADDRESS, PAYLOAD_BYTES_MAX};
use us_calls::Row;

use crate::call::Call;
use crate::door::recorded::{begin, end, take_begin, take_end};
use crate::door::{code, heaps, huge, mapped, own_addresses, quiet, shared};
use crate::guest::{GuestMut, GuestPtr};
use crate::kernel::{
    MAP_ANONYMOUS, MAP_FIXED, MAP_FIXED_NOREPLACE, MAP_PRIVATE, MAP_SHARED, MAP_TYPE, PROT_WRITE,
};
use crate::mapping::{pieces, unforked, views};
use crate::members::of_family;
use crate::raw::{self, failed};
use crate::sys::{allocator, atomics, wall};
use crate::thread::{Mode, Thread};
use crate::verdict::drop_standby;
use crate::{fdtable, real, seats, tls, twins};

const PAGE: u64 = 4096;
/// Largest file mapping whose bytes are carried by the log.
const CARRIED_MAX: u64 = 64 << 20;

/// Next address offered to a mapping of the guest's that names none.
static NEXT: AtomicU64 = AtomicU64::new(GUEST_MAPS_ADDRESS as u64);

/// A call that both copies execute on their own memory.
pub fn local_of(thread: &Thread, call: &Call) -> i64 {
    use crate::raw::nr::PKEY_MPROTECT;
    let protects = matches!(call.nr, raw::nr::MPROTECT | PKEY_MPROTECT);
    if protects {
        code::before(call);
    }
    let result = local(call);
    if protects { code::note(thread, call, result) } else { result }
}

/// The same, of whoever it is.
pub fn local(call: &Call) -> i64 {
    if let Some(result) = own_addresses::answer(call) {
        return result;
    }
    // SAFETY: the guest's own call on its own memory.
    unsafe { raw::call6(call.nr, call.args) }
}

/// madvise.
pub fn advise(call: &Call) -> i64 {
    unforked::note(call.args[2]);
    local(call)
}

/// munmap.
pub fn unmap(thread: &mut Thread, call: &Call) -> i64 {
    twins::unmapped(call.args[0], call.args[1]);
    mapped::unmapped(call.args[0], call.args[1]);
    wall::forget(call.args[0], call.args[1]);
    let result = local(call);
    if result == 0 {
        pieces::unmapped(call.args[0], call.args[1]);
        spare(thread, call.args[0], call.args[1]);
        if crate::state::is_standby() {
            views::unmapped(call.args[0], call.args[1]);
        }
    }
    result
}

/// A thread has unmapped a range. The next mapping that it asks for may lie there: in the standby too the one comes behind the
/// other, which is true of no other thread. A server that maps and unmaps a file for each request would otherwise need new page
/// tables each time, a tenth of the request.
fn spare(thread: &mut Thread, start: u64, bytes: u64) {
    let end = start.saturating_add(bytes.next_multiple_of(PAGE));
    if start >= GUEST_MAPS_ADDRESS as u64 && end <= NEXT.load(Ordering::Relaxed) {
        thread.lately.unmapped = (start, end);
    }
}

/// mlock and its kin. Whether the kernel locks depends on limits and on what is locked already: the answer is the primary's, and
/// a standby that cannot follow does not fail.
pub fn lock(thread: &mut Thread, row: &'static Row, call: &Call) -> i64 {
    use crate::kernel::MCL_ONFAULT;
    use crate::raw::nr::MLOCKALL;
    let mut call = *call;
    if call.nr == MLOCKALL && call.args[0] & 3 != 0 {
        // What is there, and what will be, when it is touched: the segment's gigabytes have hardly a page, and would be given all.
        call.args[0] |= MCL_ONFAULT;
    }
    let arguments = CallArgs { fd: -1, digest: 0, len: call.args[1] };
    thread.attempt(|thread, mode| match mode {
        Mode::Solo => Some(local(&call)),
        Mode::Record => {
            begin(thread, row, arguments);
            let result = local(&call);
            end(thread, row, 0, ReturnHead { result, identity: 0 });
            Some(result)
        }
        Mode::Replay => {
            take_begin(thread, row, &arguments)?;
            let result = take_end(thread, row, |_, head, _, _| head.result)?;
            if !failed(result) {
                local(&call);
            }
            Some(result)
        }
    })
}

/// mmap by system call: the C library's own (allocator, loader, stacks). Anonymous memory is local; a file's
/// bytes are carried, its place is not imposed.
pub fn mmap(thread: &mut Thread, call: &Call) -> i64 {
    let call = &own_addresses::without_preference(call);
    code::before(call);
    let flags = call.args[3];
    let result = match flags & MAP_ANONYMOUS != 0 {
        true => heaps::map(thread, call, anonymous),
        false => file(thread, call, false),
    };
    if is_shared(flags) && !failed(result) && call.args[2] & PROT_WRITE != 0 {
        atomics::is_shared(result as u64, call.args[1]);
    }
    code::note(thread, call, result)
}

/// Anonymous memory. What is shared is a standby's own until it is promoted, and then its children's as well: private
/// memory would be lost to them.
fn anonymous(call: &Call) -> i64 {
    let mut call = *call;
    let is_common = call.args[3] & MAP_TYPE != MAP_PRIVATE;
    if is_common {
        // Only with an order between processes a replay shares as the recorded ones did: its children would see each
        // other's future.
        if crate::state::is_detached() && !crate::state::is_serial() {
            call.args[3] = call.args[3] & !MAP_TYPE | MAP_PRIVATE;
        }
        SHARED_LATELY.store(true, Ordering::Relaxed);
    }
    if call.args[3] & MAP_FIXED != 0 && crate::state::is_standby() {
        views::unmapped(call.args[0], call.args[1]);
    }
    let result = local(&call);
    huge::mapped(&call, result);
    if is_common {
        twins::choice::mapped(&call, result);
    }
    result
}

/// brk.
pub fn heap(call: &Call) -> i64 {
    let end = local(call);
    huge::heap(end);
    end
}

/// Shared memory has been made since the standby has.
static SHARED_LATELY: AtomicBool = AtomicBool::new(false);

/// A new standby has whatever is shared by now.
pub fn nothing_shared_lately() {
    SHARED_LATELY.store(false, Ordering::Relaxed);
    mapped::forget();
}

/// Bytes of memory that only children can share, and that the standby has for itself alone.
static UNSHARED: AtomicU64 = AtomicU64::new(0);

/// A standby is about to be made that has so much of such memory.
pub fn keeps_for_itself(bytes: u64) {
    UNSHARED.store(bytes, Ordering::Relaxed);
}

/// Before a fork, as a primary: memory that a child will share, and that the standby has for itself alone, could not be
/// put back at a promotion. Nor does the standby hear of what the child does there, if that is so much that only a family's does.
pub fn before_fork() {
    let is_newer = || SHARED_LATELY.load(Ordering::Relaxed);
    let is_for_a_family = || of_family::would_be_wanted(UNSHARED.load(Ordering::Relaxed));
    if !seats::is_followed() {
        return;
    }
    if is_newer() {
        drop_standby(Cause::CannotReplay, &[b"a child shares memory that is newer than the standby"]);
    } else if is_for_a_family() {
        drop_standby(Cause::CannotReplay, &[of_family::WHY]);
    }
}

fn row() -> &'static Row {
    match us_calls::row(raw::nr::MMAP) {
        Some(row) => row,
        None => crate::verdict::last_words(&[b"no row for mmap"]),
    }
}

/// A mapping of a file.
fn file(thread: &mut Thread, call: &Call, impose: bool) -> i64 {
    let result = map_file(thread, call, impose);
    if is_shared(call.args[3]) {
        twins::choice::mapped(call, result);
    }
    result
}

fn map_file(thread: &mut Thread, call: &Call, impose: bool) -> i64 {
    let [_, bytes, _, _, fd, offset] = call.args;
    let arguments = CallArgs { fd: fd as i32, digest: (offset / PAGE) as u32, len: bytes };
    let asked = call;
    thread.attempt(|thread, mode| {
        // Here and not before: a copy that is promoted at this door has an address of its own to offer.
        let call = &place(thread, *asked, impose);
        match mode {
            Mode::Solo => Some(local(call)),
            Mode::Record => {
                // A recording has one process's view of it, for whoever looks later.
                let followed = seats::is_followed();
                let is_common = followed && is_common(call);
                if followed && !is_common && is_shared(call.args[3]) && call.args[2] & PROT_WRITE != 0 {
                    // Its stores reach a file that others read, and a standby's stand-in does not see theirs.
                    drop_standby(Cause::CannotReplay, &[b"a writable shared mapping of a file"]);
                    return None;
                }
                let quiet =
                    if followed && !crate::recorder::is_recording() { quiet::facts(call) } else { None };
                if bytes > CARRIED_MAX && quiet.is_none() && !crate::recorder::is_recording() {
                    drop_standby(Cause::CannotReplay, &[b"a mapping of a file larger than 64 MiB"]);
                    return None;
                }
                begin(thread, row(), arguments);
                let result = local(call);
                if let Some(facts) = quiet.filter(|_| !failed(result)) {
                    quiet::log(thread, call, result, &facts);
                    return Some(result);
                }
                if is_common && !failed(result) {
                    log_common(thread, call, result);
                } else {
                    log_content(thread, call, result);
                }
                if is_shared(call.args[3]) && !failed(result) {
                    mapped::add(thread, fd as i32, result as u64, bytes);
                }
                Some(result)
            }
            Mode::Replay => {
                take_begin(thread, row(), &arguments)?;
                take_content(thread, call, impose)
            }
        }
    })
}

/// Bytes of a mapping that the file really has: what lies behind its last page must not be touched.
fn content_bytes(call: &Call) -> u64 {
    let [_, bytes, _, _, fd, offset] = call.args;
    bytes.min(fdtable::size(fd as i32).unwrap_or(0).saturating_sub(offset))
}

/// In the identity of a `Return`: what has been mapped is memory that a family shares, and the number of the region.
const COMMON: u64 = 1 << 63;

/// Whether what is mapped writably is memory that the processes of this one's family may share, and nobody else.
fn is_common(call: &Call) -> bool {
    let [_, _, prot, flags, fd, _] = call.args;
    if !of_family::is_member() || !is_shared(flags) || prot & PROT_WRITE == 0 {
        return false;
    }
    use crate::raw::nr::READLINK;
    let number = crate::state::Decimal::new(fd);
    let path = crate::state::joined(&[b"/proc/self/fd/", number.bytes()]);
    let mut name = [0u8; 64];
    // SAFETY: the kernel writes into our buffer.
    unsafe { raw::call3(READLINK, path.as_ptr() as u64, name.as_mut_ptr() as u64, 64) };
    name.starts_with(b"/dev/shm/") || name.starts_with(b"/memfd:")
}

/// Logs where memory of the family's has been mapped. Its bytes are where the standbys share them.
fn log_common(thread: &mut Thread, call: &Call, result: i64) {
    let [_, bytes, _, _, fd, offset] = call.args;
    let object =
        fdtable::get(fd as i32).map_or(0, |file| fdtable::kept(file.identity.load(Ordering::Relaxed)));
    let region = pieces::add_new(result as u64, bytes, object, offset);
    if region.is_none() {
        drop_standby(Cause::CannotReplay, &[b"a writable shared mapping of a file"]);
    }
    let identity = COMMON | region.unwrap_or(0);
    let head = ReturnHead { result, identity };
    thread.append(EventKind::Return, 0, raw::nr::MMAP as u16, NO_TICKET, &head);
}

/// The same as a standby.
fn take_common(call: &Call, base: i64, region: u64) -> i64 {
    let [_, bytes, prot, _, _, offset] = call.args;
    follow(base as u64, bytes);
    if !pieces::follow_new(base as u64, bytes, region, offset, prot) {
        crate::verdict::give_up_standby(&[b"memory that processes share could not be mapped in the standby"]);
    }
    views::add_repeated(base as u64, &call.args);
    base
}

/// Logs where a file has been mapped, and its bytes.
fn log_content(thread: &mut Thread, call: &Call, result: i64) {
    if !failed(result) && log_mapped(thread, call, result) {
        return;
    }
    let mut left = if failed(result) { 0 } else { content_bytes(call) };
    let mut offset = call.args[5];
    let piece_max = PAYLOAD_BYTES_MAX - size_of::<ReturnHead>();
    loop {
        let piece = left.min(piece_max as u64) as usize;
        let Some(place) = thread.reserve(size_of::<ReturnHead>() + piece) else { return };
        // The bytes are read from the file and not from the mapping, which may not be readable.
        // SAFETY: the kernel writes into the reserved payload.
        let got = unsafe {
            place.cast::<ReturnHead>().write(ReturnHead { result, identity: left });
            let to = place.add(size_of::<ReturnHead>());
            if piece == 0 { 0 } else { raw::call4(17, call.args[4], to as u64, piece as u64, offset) }
        };
        let got = got.max(0) as usize;
        left -= got as u64;
        offset += got as u64;
        let more = left > 0 && got > 0;
        let flags = if more { RETURN_MORE } else { 0 };
        thread.publish(
            EventKind::Return,
            flags,
            raw::nr::MMAP as u16,
            NO_TICKET,
            size_of::<ReturnHead>() + got,
        );
        if !more {
            return;
        }
    }
}

/// The same of a small mapping that may be read: from there, since the program is about to touch it anyway. False if it
/// cannot be: there are pages behind the file's end.
fn log_mapped(thread: &mut Thread, call: &Call, result: i64) -> bool {
    const SMALL: usize = 64 << 10;
    use crate::kernel::PROT_READ;
    let [_, bytes, prot, _, fd, _] = call.args;
    let bytes = bytes as usize;
    // What looking at a device's memory does is the program's own business.
    let is_file = fdtable::get(fd as i32).is_some_and(|shadow| shadow.kind().is_file());
    if !is_file || bytes > SMALL || prot & PROT_READ == 0 {
        return false;
    }
    let size = size_of::<ReturnHead>() + bytes;
    let Some(place) = thread.reserve(size) else { return true };
    // SAFETY: the payload lies behind the head, both reserved.
    let to = unsafe {
        place.cast::<ReturnHead>().write(ReturnHead { result, identity: bytes as u64 });
        place.add(size_of::<ReturnHead>())
    };
    if !GuestPtr::<u8>::at(result as u64).copy_to(to, bytes) {
        return false;
    }
    thread.publish(EventKind::Return, 0, raw::nr::MMAP as u16, NO_TICKET, size);
    true
}

/// Builds a standby's stand-in for a file mapping: anonymous memory with the same bytes.
fn take_content(thread: &mut Thread, call: &Call, impose: bool) -> Option<i64> {
    let mut base = 0i64;
    let mut at = 0u64;
    let (mut is_common, mut is_real) = (false, false);
    loop {
        let Some(more) = take_end(thread, row(), |_, head, content, flags| {
            if at == 0 && head.identity & COMMON != 0 && !failed(head.result) {
                base = take_common(call, head.result, head.identity & !COMMON);
                is_common = true;
            } else if at == 0 && head.identity & quiet::QUIET != 0 {
                base = quiet::map(&repeated(call, head.result, impose), content);
                is_real = true;
                return false;
            } else if at == 0 {
                base = if failed(head.result) { head.result } else { stand_in(call, head.result, impose) };
            }
            if !failed(base) {
                GuestMut::<u8>::at(base as u64 + at).copy_from(content.as_ptr(), content.len());
            }
            at += content.len() as u64;
            flags & RETURN_MORE != 0
        }) else {
            views::never_was(call, base, at);
            return None;
        };
        if !more {
            break;
        }
    }
    if impose {
        // As the primary's, which has taken it for this or has not.
        thread.lately.unmapped = (0, 0);
    }
    if !failed(base) && call.args[2] & PROT_WRITE == 0 && !is_common && !is_real {
        // SAFETY: the stand-in gets the protection that was asked for, now that it is filled.
        unsafe { raw::call3(raw::nr::MPROTECT, base as u64, call.args[1], call.args[2]) };
    }
    Some(base)
}

/// The call as a standby repeats it, where the primary's mapping has come to lie at `logged`.
fn repeated(call: &Call, logged: i64, impose: bool) -> [u64; 6] {
    let [address, bytes, prot, flags, fd, offset] = call.args;
    follow(logged as u64, bytes);
    if flags & MAP_FIXED != 0 {
        views::unmapped(address, bytes);
        return call.args;
    }
    [logged as u64, bytes, prot, flags | if impose { MAP_FIXED_NOREPLACE } else { 0 }, fd, offset]
}

fn stand_in(call: &Call, logged: i64, impose: bool) -> i64 {
    let [address, bytes, prot, flags, ..] = call.args;
    follow(logged as u64, bytes);
    let fixed = if flags & MAP_FIXED != 0 {
        MAP_FIXED
    } else if impose {
        MAP_FIXED_NOREPLACE
    } else {
        0
    };
    let address = if flags & MAP_FIXED != 0 { address } else { logged as u64 };
    if crate::state::is_detached()
        && crate::state::is_serial()
        && is_shared(flags)
        && let Some(shared) = shared::file(call, address, fixed)
    {
        return shared;
    }
    if fixed == MAP_FIXED {
        views::unmapped(address, bytes);
    }
    let args = [address, bytes, prot | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | fixed, u64::MAX, 0];
    // SAFETY: new memory in place of the mapping that the guest asked for.
    let made = unsafe { raw::call6(raw::nr::MMAP, args) };
    if is_shared(flags) && !failed(made) {
        views::add_repeated(made as u64, &call.args);
    }
    made
}

/// mmap(3), called by guest code.
///
/// # Safety
/// As the C function.
#[unsafe(no_mangle)]
#[unsafe(naked)]
pub unsafe extern "C" fn mmap64(_: u64, _: u64, _: u64, _: u64, _: u64, _: u64) -> u64 {
    core::arch::naked_asm!("mov rax, [rsp]", "push rax", "call {inner}", "add rsp, 8", "ret", inner = sym exported_mmap)
}

/// mmap(3), called by guest code.
///
/// # Safety
/// As the C function.
#[unsafe(naked)]
#[unsafe(export_name = "mmap")]
pub unsafe extern "C" fn mmap_exported(_: u64, _: u64, _: u64, _: u64, _: u64, _: u64) -> u64 {
    core::arch::naked_asm!("mov rax, [rsp]", "push rax", "call {inner}", "add rsp, 8", "ret", inner = sym exported_mmap)
}

/// The seventh argument is the caller's address, on the stack.
unsafe extern "C" fn exported_mmap(a: u64, b: u64, c: u64, d: u64, e: u64, f: u64, caller: u64) -> u64 {
    let call = Call { nr: raw::nr::MMAP, args: [a, b, c, d, e & 0xffff_ffff, f], caller };
    // Also before the runtime has begun: an allocator of the program's own may be asked by the loader.
    let call = own_addresses::without_preference(&call);
    let thread = tls::current();
    let result = if thread.is_null() {
        local(&call)
    } else {
        // SAFETY: the calling thread's own block.
        let thread = unsafe { &mut *thread };
        code::before(&call);
        let result = guest_mmap(thread, call);
        code::note(thread, &call, result)
    };
    errno_or(result)
}

/// What a C function returns for a result of the kernel's; sets the calling thread's errno.
pub fn errno_or(result: i64) -> u64 {
    if failed(result) {
        // SAFETY: the calling thread's errno.
        unsafe { *real::__errno_location() = -result as i32 };
        return u64::MAX;
    }
    result as u64
}

/// A mapping asked for by guest code: an allocator's are its own business; anything else lies at the same
/// address in every copy.
fn guest_mmap(thread: &mut Thread, mut call: Call) -> i64 {
    if thread.borrowed.load(Ordering::Relaxed) != 0 || allocator::opaque(call.caller as usize) {
        return if call.args[3] & MAP_ANONYMOUS != 0 {
            heaps::map(thread, &call, anonymous)
        } else {
            mmap(thread, &call)
        };
    }
    let placed = call.args[0] == 0 && call.args[3] & (MAP_FIXED | MAP_FIXED_NOREPLACE) == 0;
    if call.args[3] & MAP_ANONYMOUS == 0 {
        return file(thread, &call, placed);
    }
    let arguments = CallArgs { fd: -1, digest: 0, len: call.args[1] };
    thread.attempt(|thread, mode| {
        call = place(thread, call, placed);
        match mode {
            Mode::Solo => Some(anonymous(&call)),
            Mode::Record => {
                begin(thread, row(), arguments);
                let result = anonymous(&call);
                let head = ReturnHead { result, identity: 0 };
                thread.append(EventKind::Return, 0, raw::nr::MMAP as u16, NO_TICKET, &head);
                Some(result)
            }
            Mode::Replay => {
                take_begin(thread, row(), &arguments)?;
                let result = take_end(thread, row(), |_, head, _, _| head.result)?;
                if failed(result) {
                    return Some(result);
                }
                if placed {
                    thread.lately.unmapped = (0, 0);
                }
                follow(result as u64, call.args[1]);
                if call.args[3] & MAP_FIXED == 0 {
                    call.args[0] = result as u64;
                    call.args[3] |= MAP_FIXED_NOREPLACE;
                }
                let ours = anonymous(&call);
                if ours != result {
                    crate::verdict::report_divergence(
                        thread,
                        &[b"a mapping's address was taken in the standby"],
                    );
                }
                Some(ours)
            }
        }
    })
}

/// Mappings of so many bytes begin at a multiple of it, so that they may have large pages.
const HUGE: u64 = 2 << 20;

/// The call with the address that a copy that acts asks for, if it may choose one.
fn place(thread: &mut Thread, mut call: Call, placed: bool) -> Call {
    if placed && call.args[0] == 0 && thread.calls() != Mode::Replay {
        call.args[0] = offer_again(thread, call.args[1]);
    }
    call
}

/// As [`offer`]: where this thread has unmapped something, if it fits there.
fn offer_again(thread: &mut Thread, bytes: u64) -> u64 {
    let (start, end) = core::mem::take(&mut thread.lately.unmapped);
    let fits = bytes != 0 && bytes < HUGE && bytes <= end - start;
    if fits { start } else { offer(bytes) }
}

/// An address for a mapping of `bytes` bytes: a hint to the kernel, which moves it if it is taken.
pub fn offer(bytes: u64) -> u64 {
    let grain = if bytes >= HUGE { HUGE } else { PAGE };
    let mut next = NEXT.load(Ordering::Relaxed);
    loop {
        let start = next.next_multiple_of(grain);
        // A guard page between neighbours keeps the kernel from merging them, as its own placing would not.
        let end = start.saturating_add(bytes.next_multiple_of(PAGE)).saturating_add(PAGE);
        match NEXT.compare_exchange_weak(next, end, Ordering::Relaxed, Ordering::Relaxed) {
            Ok(_) => return start,
            Err(now) => next = now,
        }
    }
}

/// A standby has repeated a mapping of the primary's: what it offers itself, once it is one, lies behind.
pub fn follow(start: u64, bytes: u64) {
    const REACH: u64 = 16 << 40;
    // An address that the kernel chose, because the one offered was taken, lies far above.
    if start.wrapping_sub(GUEST_MAPS_ADDRESS as u64) < REACH {
        NEXT.fetch_max(start + bytes.next_multiple_of(PAGE) + PAGE, Ordering::Relaxed);
    }
}

/// Whether a mapping is shared with others than this process.
pub const fn is_shared(flags: u64) -> bool {
    flags & MAP_TYPE != MAP_PRIVATE && flags & MAP_TYPE >= MAP_SHARED
}
