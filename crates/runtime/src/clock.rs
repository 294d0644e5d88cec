//! Clocks: counters that order events of different threads, and the wait for a ticket.
//!
//! They live in private memory. The primary counts the tickets it gives out; a standby, a fork of it,
//! counts those it has applied, and goes on with the same counter when it is promoted.
//!
//! Waiting: a thread notes in its block what it waits for and counts itself into the bucket of that
//! clock; whoever advances a clock looks at the bucket, and wakes exactly the threads that can go on. A
//! plain waiter count per clock is a thundering herd, and sleeping on the clock itself loses wake-ups.

use core::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};

use us_abi::CLOCKS;
use us_order::ticket;

use crate::thread::Thread;
use crate::{guest, raw, thread};

/// A counter on a cache line of its own.
#[repr(C, align(64))]
pub struct Clock(pub AtomicU64);

/// The first ticket of the kernel clock. What was there before the log is kept as if it had had a ticket below: a signal, say,
/// that waited when a copy was made, and that the very first ticket tells to have been taken.
pub const FIRST: u64 = 1;

/// The clock of all system calls that take a ticket.
pub static KERNEL: Clock = Clock(AtomicU64::new(FIRST));

static HASHED: [Clock; CLOCKS] = [const { Clock(AtomicU64::new(0)) }; CLOCKS];

/// A clock of atomic instructions. Who holds it makes one, and logs it before anybody else makes another: no ticket is ever
/// missing.
#[repr(C, align(64))]
pub struct AtomicClock {
    /// Ticket of the next one.
    pub clock: AtomicU64,
    /// 1 while somebody holds it.
    pub held: AtomicU32,
}

/// By the hash of the address, see [`atomic_number`].
pub static ATOMICS: [AtomicClock; CLOCKS] =
    [const { AtomicClock { clock: AtomicU64::new(0), held: AtomicU32::new(0) } }; CLOCKS];

/// Factor of the hash: a multiplier that an instruction can have as a constant.
pub const ATOMIC_FACTOR: u64 = 0x61c8_8647;

/// The number of the clock of the memory at an address. Sixteen bytes have one: an instruction may work on as many.
#[inline(always)]
pub fn atomic_number(address: u64) -> u16 {
    ((address >> 4).wrapping_mul(ATOMIC_FACTOR) >> 52) as u16
}

const BUCKETS: usize = 256;
static SLEEPERS: [AtomicU32; BUCKETS] = [const { AtomicU32::new(0) }; BUCKETS];

/// The number of the clock of an object without one of its own. Only the number enters the log, so the
/// object may lie elsewhere in another copy.
#[inline(always)]
pub fn number(object: usize) -> u16 {
    ((object as u64 >> 3).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 52) as u16
}

/// A hashed clock by its number.
#[inline(always)]
pub fn hashed(number: u16) -> &'static AtomicU64 {
    &HASHED[number as usize & (CLOCKS - 1)].0
}

/// By where it lies in its page, which is one place wherever the guest has mapped that.
#[inline(always)]
fn bucket(clock: *const AtomicU64) -> &'static AtomicU32 {
    &SLEEPERS[(clock as usize >> 4) & (BUCKETS - 1)]
}

/// Waits, as a standby, until `ticket` is due.
#[inline]
pub fn wait(thread: &Thread, clock: &AtomicU64, ticket: u64) {
    for _ in 0..64 {
        if ticket::is_due(clock.load(Ordering::Acquire), ticket) {
            return;
        }
        core::hint::spin_loop();
    }
    sleep(thread, clock, ticket);
}

#[cold]
fn sleep(thread: &Thread, clock: &AtomicU64, ticket: u64) {
    let bucket = bucket(clock);
    thread.awaited_ticket.store(ticket, Ordering::Relaxed);
    thread.awaited.store(clock.as_ptr().cast(), Ordering::Release);
    bucket.fetch_add(1, Ordering::SeqCst);
    // Whoever has to act first may sleep on an event that has come meanwhile: it must not wait for the poller.
    crate::thread::wake_sleepers();
    loop {
        let bell = thread.bell.load(Ordering::Acquire);
        // Pairs with the fence in `announce`: either this load sees the new value, or the other side sees
        // the bucket's count.
        fence(Ordering::SeqCst);
        if ticket::is_due(clock.load(Ordering::Acquire), ticket) {
            break;
        }
        raw::futex_wait(&thread.bell, bell, 0);
    }
    bucket.fetch_sub(1, Ordering::SeqCst);
    thread.awaited.store(core::ptr::null_mut(), Ordering::Release);
}

/// The event with this ticket has been applied, by a standby.
#[inline]
pub fn pass(clock: &AtomicU64, ticket: u64) {
    advance(clock, ticket::after(ticket));
}

/// Moves a clock on, as a standby, and wakes whoever waited for that.
#[inline]
pub fn advance(clock: &AtomicU64, to: u64) {
    clock.store(to, Ordering::Release);
    fence(Ordering::SeqCst);
    announce(clock);
}

/// Wakes the threads that wait for what `clock` now shows. A full barrier must lie between the change of
/// the clock and this call: an atomic read-modify-write, or the fence in [`advance`].
#[inline(always)]
pub fn announce(clock: &AtomicU64) {
    if bucket(clock).load(Ordering::Relaxed) != 0 {
        wake(clock);
    }
}

#[cold]
fn wake(clock: &AtomicU64) {
    /// Where in its page a clock lies: the same in each place at which memory is mapped.
    const IN_PAGE: usize = 0xfff;
    let (at, now) = (clock.as_ptr().addr(), clock.load(Ordering::Acquire));
    thread::for_each(|thread| {
        let awaited = thread.awaited.load(Ordering::Acquire);
        if awaited.is_null() || (awaited.addr() ^ at) & IN_PAGE != 0 {
            return;
        }
        // Its waiter may have gone on meanwhile, and given the object's memory back.
        let shown = if awaited.addr() == at { Some(now) } else { guest::load(awaited.addr() as u64) };
        if shown.is_some_and(|shown| ticket::is_due(shown, thread.awaited_ticket.load(Ordering::Relaxed))) {
            thread.ring_bell();
        }
    });
}

/// The next ticket of the kernel clock, as a primary.
#[inline(always)]
pub fn kernel_ticket() -> u64 {
    KERNEL.0.fetch_add(1, Ordering::AcqRel)
}
