//! Atomic instructions of the program's own, as the log orders them.
//!
//! A primary takes a ticket of the address's clock with each, and logs what it has left: the flags, and the old value where an
//! exchange says it or a comparison has failed. The clock is held meanwhile. A standby's thread waits for its ticket and makes the same
//! instruction on its own memory.
//!
//! Plain loads and stores are not ordered. So its memory may not be what its primary's was, in one of two ways:
//!
//! - *It compares with what it has read too early.* Then the comparison fails where its primary's did not, and the event stays
//!   where it is: the program reads again and comes again.
//! - *A lock that is given back by a plain store* is still held here, or free again already. One that its primary took is waited
//!   for. Where its primary met it held, so does the standby, whatever it is here: nothing is written then, and the old
//!   value is the logged one.
//!
//! # Safety
//! The gate calls with a stub's head, and with the registers of its frame.

use core::arch::global_asm;
use core::sync::atomic::{AtomicU8, AtomicU64, Ordering};

use us_abi::event::EventKind;
use us_calls::Class;
use us_order::ticket;
use us_sites::{AtomicOp, NO_REGISTER, is_compare};

use crate::clock::{self, ATOMICS, AtomicClock};
use crate::door::sync::Caller;
use crate::guest::GuestPtr;
use crate::log::Next;
use crate::sys::atomics::{HIGHEST_SHARED, LOWEST_SHARED};
use crate::thread::atomics::Following;
use crate::thread::{Mode, Thread};
use crate::tls::AtomicWords;
use crate::{raw, signal, state, tls};

/// What a stub says of its instruction, see [`us_sites::emit_atomic_stub`].
#[repr(C)]
struct Head {
    at: u64,
    go: u64,
    done: u64,
    op: u8,
    size: u8,
    register: u8,
    expects_constant: u8,
    zero: u32,
    behind: u64,
}

/// The registers that a stub does not keep: rbx, rsi, rdi, r8 to r15, rbp.
type Registers = [u64; 12];

/// Places in [`AtomicWords`].
const RAX: usize = 0;
const RCX: usize = 1;
const RDX: usize = 2;
const FLAGS: usize = 3;
const VALUE: usize = 5;

/// The zero flag, as `lahf` has it.
const ZERO: u8 = 0x40;
/// How long a standby waits for a plain store that its primary's thread has seen, ns. The thread that makes it needs nothing of ours.
const STORE_NS: u64 = 1_000_000_000;
/// The same where it may be that the comparison is made again instead: at a site that has waited before, or that compares with a
/// constant as far as the text says; and at one of which nothing is known.
const LIKELY_NS: u64 = 50_000_000;
const UNKNOWN_NS: u64 = 2_000_000;

/// What a standby has learned of the comparisons at a site: whether it waits for a store, or comes again with another value.
static LEARNED: [AtomicU8; 1024] = [const { AtomicU8::new(UNKNOWN) }; 1024];
const UNKNOWN: u8 = 0;
const WAITS: u8 = 1;
const RETRIES: u8 = 2;

impl Head {
    fn learned(&self) -> &'static AtomicU8 {
        &LEARNED[core::ptr::from_ref(self) as usize / us_sites::ATOMIC_STUB_MAX % LEARNED.len()]
    }
}

// By name: the gate is assembly.
global_asm!(
    ".globl us_atomic_enter",
    ".hidden us_atomic_enter",
    "us_atomic_enter: jmp {enter}",
    ".globl us_atomic_leave",
    ".hidden us_atomic_leave",
    "us_atomic_leave: jmp {leave}",
    enter = sym enter,
    leave = sym leave,
);

extern "C" fn enter(head: &Head, address: u64, registers: &mut Registers) -> u64 {
    let words = tls::own_atomic_words();
    // A handler that runs meanwhile has instructions of its own.
    // SAFETY: the calling thread's own storage.
    let mut kept = unsafe { words.read() };
    let goes = begin(head, address, &mut kept, registers);
    // SAFETY: as above.
    unsafe { words.write(kept) };
    goes
}

extern "C" fn leave(head: &Head, _address: u64, _registers: &mut Registers) -> u64 {
    // SAFETY: the calling thread's own storage.
    let kept = unsafe { tls::own_atomic_words().read() };
    if let Some(thread) = Caller::get().thread() {
        if thread.atomics.held != 0 {
            record(thread, head, &kept);
        } else if core::mem::take(&mut thread.atomics.follows) {
            follow(thread, head, &kept);
        }
    }
    head.done
}

/// Where the thread goes on: at the instruction, or behind it if it has been made.
fn begin(head: &Head, address: u64, kept: &mut AtomicWords, registers: &mut Registers) -> u64 {
    loop {
        let Some(thread) = Caller::get().thread() else { return head.go };
        let is_shared = address >= LOWEST_SHARED.load(Ordering::Relaxed)
            && address < HIGHEST_SHARED.load(Ordering::Relaxed);
        if is_shared || thread.borrowed.load(Ordering::Relaxed) != 0 {
            return head.go;
        }
        match thread.locks() {
            Mode::Solo => return head.go,
            Mode::Record => {
                if thread.pending.load(Ordering::Relaxed) != 0 {
                    signal::deliver_at_lock(thread);
                    if thread.locks() != Mode::Record {
                        continue;
                    }
                }
                // Before the clock is held: who waited for the standby with it would hold up others.
                if thread.reserve(2 * size_of::<u64>()).is_some() {
                    let clock = &ATOMICS[usize::from(clock::atomic_number(address))];
                    hold(clock);
                    thread.atomics.held = &raw const *clock as u64;
                } else if thread.locks() != Mode::Solo {
                    continue;
                }
                return head.go;
            }
            Mode::Replay => {
                if let Some(goes) = replay(thread, head, address, kept, registers) {
                    return goes;
                }
            }
        }
    }
}

fn hold(clock: &AtomicClock) {
    let mut looks = 0u32;
    while clock.held.swap(1, Ordering::Acquire) != 0 {
        looks += 1;
        core::hint::spin_loop();
        if looks.is_multiple_of(200) {
            // SAFETY: gives the processor away, nothing else. Who holds it may wait for that.
            unsafe { raw::call1(raw::nr::SCHED_YIELD, 0) };
        }
    }
}

/// Behind the instruction, as a primary.
fn record(thread: &mut Thread, head: &Head, kept: &AtomicWords) {
    let number = (thread.atomics.held - ATOMICS.as_ptr() as u64) / size_of::<AtomicClock>() as u64;
    let clock = &ATOMICS[number as usize];
    let call = u16::from(head.op) << 12 | number as u16;
    let flags = (kept[FLAGS] >> 8) as u8;
    let now = clock.clock.load(Ordering::Relaxed);
    if head.op == AtomicOp::Exchange as u8 {
        thread.append(EventKind::Atomic, flags, call, now, &[kept[VALUE], 0]);
    } else if is_compare(head.op) && flags & ZERO == 0 {
        thread.append(EventKind::Atomic, flags, call, now, &[kept[RAX], kept[RDX]]);
    } else {
        thread.push(EventKind::Atomic, flags, call, now);
    }
    clock.clock.store(ticket::after(now), Ordering::Relaxed);
    thread.atomics.held = 0;
    clock.held.store(0, Ordering::Release);
}

/// Waits for the ticket of the next event, as a standby. `None`: this copy is live.
fn replay(
    thread: &mut Thread,
    head: &Head,
    address: u64,
    kept: &mut AtomicWords,
    registers: &mut Registers,
) -> Option<u64> {
    let event = match thread.next() {
        Next::Event(event) => event,
        Next::Live => {
            signal::deliver_promoted(thread);
            return None;
        }
    };
    let header = event.header;
    if header.kind == EventKind::Call as u8 && u64::from(header.call) == raw::nr::FUTEX && header.flags == 0 {
        // Its primary's thread has looked in vain, by plain loads, and waited. That has changed no memory.
        thread.close();
        return None;
    }
    if header.kind != EventKind::Atomic as u8 || header.call >> 12 != u16::from(head.op) {
        crate::verdict::diverge(thread, EventKind::Atomic, u16::from(head.op) << 12, &event);
    }
    let mut values = [0u64; 2];
    let logged = event.payload();
    if logged.len() == size_of_val(&values) {
        // SAFETY: as many bytes, 16-byte aligned like every payload.
        values = unsafe { event.payload.cast::<[u64; 2]>().read() };
    }
    clock::wait(thread, clock_of(header.call), header.ticket);
    let following =
        Following { ticket: header.ticket, value: values[0], call: header.call, flags: header.flags };
    let place = Place { address, size: usize::from(head.size) };
    let is_logged = if head.op == AtomicOp::Exchange as u8 {
        exchange(head, &place, values[0], kept, registers)
    } else if is_compare(head.op) {
        compare(head, &place, &following, values, kept)
    } else {
        false
    };
    if is_logged {
        apply(thread, &following);
        return Some(head.done);
    }
    (thread.atomics.following, thread.atomics.follows) = (following, true);
    Some(head.go)
}

fn clock_of(call: u16) -> &'static AtomicU64 {
    &ATOMICS[usize::from(call & 0xfff)].clock
}

/// The event has been applied.
fn apply(thread: &mut Thread, following: &Following) {
    clock::pass(clock_of(following.call), following.ticket);
    thread.close();
    thread.count(Class::of_event(EventKind::Atomic, following.call));
}

/// The memory that an instruction works on.
struct Place {
    address: u64,
    size: usize,
}

impl Place {
    /// Its low bytes, as a number.
    fn cut(&self, value: u64) -> u64 {
        if self.size >= 8 { value } else { value & ((1 << (8 * self.size)) - 1) }
    }

    /// A register that gets its low bytes from here.
    fn into(&self, register: u64, value: u64) -> u64 {
        match self.size {
            1 | 2 => register & !((1 << (8 * self.size)) - 1) | self.cut(value),
            _ => self.cut(value),
        }
    }

    /// What is there. Memory that cannot be read holds nothing: the instruction itself is to fault.
    fn now(&self) -> [u64; 2] {
        let word = match self.size {
            1 => GuestPtr::<u8>::at(self.address).load().map(u64::from),
            2 => GuestPtr::<u16>::at(self.address).load().map(u64::from),
            4 => GuestPtr::<u32>::at(self.address).load().map(u64::from),
            _ => GuestPtr::<u64>::at(self.address).load(),
        };
        let upper = if self.size == 16 { GuestPtr::<u64>::at(self.address + 8).load() } else { None };
        [word.unwrap_or(0), upper.unwrap_or(0)]
    }
}

/// Waits until `is_there`, which another thread's plain store will make true. False if that does not come.
fn wait_for(limit_ns: u64, is_there: impl Fn() -> bool) -> bool {
    const LOOKS: u32 = 100;
    let begun_ns = raw::now_ns();
    loop {
        for _ in 0..LOOKS {
            if is_there() {
                return true;
            }
            core::hint::spin_loop();
        }
        // It may sleep on an event that has come meanwhile, or wait for this processor.
        crate::thread::wake_sleepers();
        // SAFETY: gives the processor away, nothing else.
        unsafe { raw::call1(raw::nr::SCHED_YIELD, 0) };
        if raw::now_ns() - begun_ns > limit_ns {
            return is_there();
        }
    }
}

/// Before an exchange. True if it is done, as it was logged.
fn exchange(head: &Head, place: &Place, old: u64, kept: &mut AtomicWords, registers: &mut Registers) -> bool {
    let Some(register) = register(head.register, kept, registers) else { return false };
    let (new, old) = (place.cut(*register), place.cut(old));
    if place.now()[0] == old {
        return false;
    }
    if old == new {
        // It has changed nothing: a lock that was held. Here it has been given back already.
        *register = place.into(*register, old);
        return true;
    }
    // It was free, and has not been given back here.
    wait_for(if place.now()[0] == new { STORE_NS } else { 0 }, || place.now()[0] != new);
    false
}

/// Before a comparison. True if it is done: it has failed, as it was logged.
fn compare(
    head: &Head,
    place: &Place,
    following: &Following,
    logged: [u64; 2],
    kept: &mut AtomicWords,
) -> bool {
    let is_wide = head.op == AtomicOp::CompareExchangeWide as u8;
    // `cmpxchg8b` compares with eax and edx.
    let expected = match (is_wide, place.size) {
        (true, 8) => [kept[RAX] & 0xffff_ffff | kept[RDX] << 32, 0],
        (true, _) => [kept[RAX], kept[RDX]],
        _ => [place.cut(kept[RAX]), 0],
    };
    if following.flags & ZERO != 0 {
        await_success(head, || place.now() == expected);
        return false;
    }
    if place.now() != expected {
        return false;
    }
    if is_wide {
        (kept[RAX], kept[RDX]) = (logged[0], logged[1]);
    } else {
        kept[RAX] = place.into(kept[RAX], logged[0]);
    }
    kept[FLAGS] = u64::from(following.flags) << 8;
    true
}

/// Before a comparison that did not fail in the primary. What is there may be a lock that is still to be given back by a plain store:
/// that is waited for. Or what is compared was read too early: then the program reads it again.
fn await_success(head: &Head, is_there: impl Fn() -> bool) {
    let learned = head.learned();
    if is_there() || learned.load(Ordering::Relaxed) == RETRIES {
        return;
    }
    let is_likely = head.expects_constant != 0 || learned.load(Ordering::Relaxed) == WAITS;
    let came = wait_for(if is_likely { LIKELY_NS } else { UNKNOWN_NS }, is_there);
    learned.store(if came { WAITS } else { UNKNOWN }, Ordering::Relaxed);
}

/// A register of the interrupted code, by its number.
fn register<'a>(number: u8, kept: &'a mut AtomicWords, registers: &'a mut Registers) -> Option<&'a mut u64> {
    Some(match number {
        0 => &mut kept[RAX],
        1 => &mut kept[RCX],
        2 => &mut kept[RDX],
        3 => &mut registers[0],
        5 => &mut registers[11],
        6 => &mut registers[1],
        7 => &mut registers[2],
        8..NO_REGISTER => &mut registers[usize::from(number) - 5],
        _ => return None,
    })
}

/// Behind the instruction that the log has next, as a standby.
fn follow(thread: &mut Thread, head: &Head, kept: &AtomicWords) {
    let following = thread.atomics.following;
    let flags = (kept[FLAGS] >> 8) as u8;
    let has_failed = is_compare(head.op) && flags & ZERO == 0;
    if has_failed && following.flags & ZERO != 0 {
        // It has compared with what it had read too early, and comes again.
        thread.ends.open = 0;
        thread.atomics.again = core::ptr::from_ref(head) as u64;
        return note(|header| &header.atomics_again);
    }
    if core::mem::take(&mut thread.atomics.again) == core::ptr::from_ref(head) as u64 {
        head.learned().store(RETRIES, Ordering::Relaxed);
    }
    // An exchange says nothing by flags; larger values may be addresses, which differ.
    let place = Place { address: 0, size: usize::from(head.size) };
    let differs = match head.op {
        op if op == AtomicOp::Exchange as u8 => {
            place.size <= 4 && place.cut(kept[VALUE]) != place.cut(following.value)
        }
        _ if place.size <= 4 => flags != following.flags,
        _ => (flags ^ following.flags) & ZERO != 0,
    };
    if differs {
        note(|header| &header.atomics_differ);
    }
    apply(thread, &following);
}

/// One more.
#[cold]
fn note(of: impl Fn(&us_abi::SegmentHeader) -> &AtomicU64) {
    if let Some(header) = state::header() {
        of(header).fetch_add(1, Ordering::Relaxed);
    }
}
