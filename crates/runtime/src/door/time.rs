//! Clocks, by every way that leads to them: exported functions, the vDSO's, the system calls.
//!
//! The primary reads, logs the value in one 16-byte event and goes on; a standby takes the value. No
//! ticket: a clock orders nothing that a race-free program may rely on.

use core::arch::x86_64::{__rdtscp, _rdtsc};
use core::sync::atomic::Ordering;

use linux_raw_sys::general::{__NR_gettimeofday, __NR_time, __kernel_old_timeval, timezone};
use us_abi::event::EventKind;
use us_abi::event::time::{CLOCK, COUNTER, PROCESSOR};
use us_calls::{Class, Row};

use crate::above::above;
use crate::call::Call;
use crate::door::{numbers, recorded, usage};
use crate::guest::GuestMut;
use crate::log::Next;
use crate::raw::nr::CLOCK_GETRES;
use crate::raw::{self, Timespec, err, failed};
use crate::sys::gate_stack::clean_frame;
use crate::sys::{allocator, vdso};
use crate::thread::{Mode, Thread};
use crate::{family, real, signal, state, tls, turns};

const REALTIME: i32 = 0;
/// Clocks of every kernel: a look at one is an event.
const ALWAYS_THERE: core::ops::Range<i32> = 0..8;

/// Value of a clock, or a negated errno, the same in every copy. Not as a number: of a primary what the kernel has given is what
/// the caller wants, and who made nanoseconds of it would divide them again.
#[inline(always)]
fn read(clock: i32) -> Result<Timespec, i64> {
    let thread = tls::current();
    if thread.is_null() {
        return plain(clock);
    }
    // SAFETY: the calling thread's own block.
    let thread = unsafe { &mut *thread };
    if state::is_serial() {
        give_way(thread, clock);
    }
    let mode = thread.calls();
    let result = match mode {
        // First, and apart: otherwise the compiler makes an index of the modes, ten instructions.
        _ if mode == Mode::Record => {
            let value = plain(clock);
            let logs = thread.borrowed.load(Ordering::Relaxed) == 0;
            match value {
                Ok(value) if logs => thread.push(EventKind::Time, 0, CLOCK, value.ns()),
                Err(error) if logs && is_somebodys(clock) => {
                    thread.push(EventKind::Time, -error as u8, CLOCK, 0);
                }
                _ => {}
            }
            value
        }
        Mode::Replay => replay(thread, clock),
        _ => {
            let value = plain(clock);
            hear(thread);
            value
        }
    };
    family::tidy_up();
    result
}

/// Where threads take turns, others may wait for one that looks at clocks and comes to no other door.
#[cold]
fn give_way(thread: &mut Thread, clock: i32) {
    if ALWAYS_THERE.contains(&clock) && thread.borrowed.load(Ordering::Relaxed) == 0 {
        turns::at_look(thread);
    }
}

/// Without a log nobody else asks about a signal that came in here, and the guest may pass no other door.
#[inline(always)]
fn hear(thread: &mut Thread) {
    if signal::is_due(thread) && thread.borrowed.load(Ordering::Relaxed) == 0 {
        signal::deliver_late(thread);
    }
}

/// The same, and nothing in any log.
#[inline(always)]
pub(super) fn plain(clock: i32) -> Result<Timespec, i64> {
    let mut time = Timespec::default();
    match vdso::clock_gettime(numbers::clock_to_kernel(clock), &mut time) {
        0 if usage::is_clock(clock) => Ok(Timespec::from_ns(usage::clock(clock, time.ns()))),
        // What the log has of a time before the epoch.
        0 if time.sec < 0 => Ok(Timespec::default()),
        0 => Ok(time),
        error => Err(error),
    }
}

#[inline(never)]
fn replay(thread: &mut Thread, clock: i32) -> Result<Timespec, i64> {
    if !is_somebodys(clock) && !ALWAYS_THERE.contains(&clock) {
        // A clock that does not exist is an error in every copy, and no event in any. Those of every kernel are not asked for that.
        plain(clock)?;
    }
    match thread.expect(EventKind::Time, CLOCK) {
        // Of a recorded program this copy's readings are logged, too.
        Next::Live => read(clock),
        Next::Event(event) => {
            let (value, error) = (event.header.ticket, event.header.flags);
            if error == 0 && usage::is_clock(clock) {
                usage::clock_told(clock, value);
            }
            thread.close();
            thread.count(Class::of_event(EventKind::Time, CLOCK));
            if error == 0 { Ok(Timespec::from_ns(value)) } else { Err(-i64::from(error)) }
        }
    }
}

/// A clock of a process, a thread or a descriptor: whether there is one depends on who is there yet, or still, in this copy. So
/// an error is in the log as well.
#[inline(always)]
fn is_somebodys(clock: i32) -> bool {
    clock < 0
}

// By this name the gates of the counter call it.
core::arch::global_asm!(
    ".globl us_counter",
    ".hidden us_counter",
    "us_counter: jmp {counter}",
    counter = sym counter,
);

/// A reading of the processor's time-stamp counter, the same in every copy; and the number of the processor, if there is a
/// place for it. A promoted copy goes on with the same counter, which is the machine's.
extern "C" fn counter(processor: *mut u64) -> u64 {
    let asks = !processor.is_null();
    let here = || {
        let mut number = 0;
        // SAFETY: reads a register of the processor, which the site has, too.
        let value = if asks { unsafe { __rdtscp(&raw mut number) } } else { unsafe { _rdtsc() } };
        (value, number)
    };
    // SAFETY: the calling thread's own block.
    let Some(thread) = (unsafe { tls::current().as_mut() }) else {
        let (value, number) = here();
        give(processor, number);
        return value;
    };
    if state::is_serial() {
        give_way(thread, REALTIME);
    }
    let (value, number) = match thread.calls() {
        Mode::Record => {
            let (value, number) = here();
            if thread.borrowed.load(Ordering::Relaxed) == 0 {
                thread.push(EventKind::Time, 0, COUNTER, value);
                if asks {
                    thread.push(EventKind::Time, 0, PROCESSOR, u64::from(number));
                }
            }
            (value, number)
        }
        Mode::Solo => {
            let read = here();
            hear(thread);
            read
        }
        Mode::Replay => match told(thread, COUNTER) {
            // It has taken over here.
            None => return counter(processor),
            Some(value) if !asks => (value, 0),
            Some(value) => {
                let number = told(thread, PROCESSOR).map(|number| number as u32);
                (value, number.unwrap_or_else(|| logged_anew(thread, here().1)))
            }
        },
    };
    give(processor, number);
    family::tidy_up();
    value
}

/// The primary died between the two readings of one instruction. Who follows this copy has the first, and waits for the other.
fn logged_anew(thread: &mut Thread, number: u32) -> u32 {
    if thread.calls() == Mode::Record {
        thread.push(EventKind::Time, 0, PROCESSOR, u64::from(number));
    }
    number
}

fn give(processor: *mut u64, number: u32) {
    if !processor.is_null() {
        // SAFETY: a word of the gate's frame.
        unsafe { processor.write(u64::from(number)) };
    }
}

/// What the log has next, `None` where it ends.
fn told(thread: &mut Thread, what: u16) -> Option<u64> {
    match thread.expect(EventKind::Time, what) {
        Next::Live => None,
        Next::Event(event) => {
            let value = event.header.ticket;
            thread.close();
            thread.count(Class::of_event(EventKind::Time, what));
            Some(value)
        }
    }
}

fn fill(clock: i32, to: GuestMut<Timespec>) -> i64 {
    match read(clock) {
        Ok(time) if to.store(&time) => 0,
        Ok(_) => err::EFAULT,
        Err(error) => error,
    }
}

/// The vDSO's `clock_gettime`: 0 or a negated errno.
pub extern "C" fn vdso_clock_gettime(clock: i32, to: GuestMut<Timespec>) -> i32 {
    fill(clock, to) as i32
}

/// The vDSO's `gettimeofday`.
pub extern "C" fn vdso_gettimeofday(to: GuestMut<__kernel_old_timeval>, zone: GuestMut<timezone>) -> i32 {
    match read(REALTIME) {
        Ok(time) => match to.tell(&of_day(time)) {
            0 => zone.tell(&timezone { tz_minuteswest: 0, tz_dsttime: 0 }) as i32,
            error => error as i32,
        },
        Err(error) => error as i32,
    }
}

const fn of_day(time: Timespec) -> __kernel_old_timeval {
    __kernel_old_timeval { tv_sec: time.sec, tv_usec: time.nsec / 1000 }
}

/// The vDSO's `time`.
pub extern "C" fn vdso_time(to: GuestMut<i64>) -> i64 {
    let seconds = seconds();
    to.tell(&seconds);
    seconds
}

fn seconds() -> i64 {
    read(REALTIME).map_or(0, |time| time.sec)
}

/// The vDSO's `clock_getres`: the same in both copies, so not logged, but for clocks that need not be there in both.
pub extern "C" fn vdso_clock_getres(clock: i32, to: GuestMut<Timespec>) -> i32 {
    if is_somebodys(clock) {
        return by_gate(CLOCK_GETRES, [clock as u64, to.address(), 0, 0, 0, 0]) as i32;
    }
    // SAFETY: the kernel writes one timespec, or nothing.
    unsafe { raw::call2(CLOCK_GETRES, clock as u64, to.address()) as i32 }
}

/// The vDSO's `getcpu`. Which processor a thread is on is nothing that a copy can repeat: always the first.
pub extern "C" fn vdso_getcpu(cpu: GuestMut<u32>, node: GuestMut<u32>, _cache: GuestMut<u8>) -> i32 {
    match cpu.tell(&0) {
        0 => node.tell(&0) as i32,
        error => error as i32,
    }
}

/// The vDSO's `getrandom`: the system call of that name, which is recorded. Its state is not used. Whoever asks how large that
/// is hears that there is no such function, and makes the system call; a C library has asked before the constructor ran.
pub extern "C" fn vdso_getrandom(
    to: GuestMut<u8>,
    len: usize,
    flags: u32,
    _state: GuestMut<u8>,
    state_len: usize,
) -> isize {
    const QUESTION: usize = usize::MAX;
    if state_len == QUESTION {
        return err::ENOSYS as isize;
    }
    by_gate(raw::nr::GETRANDOM, [to.address(), len as u64, u64::from(flags), 0, 0, 0]) as isize
}

/// What a system call comes to that the guest makes by such a function.
pub(super) fn by_gate(nr: u64, args: [u64; 6]) -> i64 {
    let call = Call { nr, args, caller: 0 };
    // SAFETY: the calling thread's own block, or none.
    let thread = unsafe { tls::current().as_mut() };
    match thread.filter(|thread| thread.borrowed.load(Ordering::Relaxed) == 0) {
        Some(thread) => {
            let result = above().serve(thread, &call);
            family::tidy_up();
            result
        }
        // SAFETY: the guest's own call.
        None => unsafe { raw::call6(call.nr, call.args) },
    }
}

fn with_errno(result: i64) -> i32 {
    if failed(result) {
        // SAFETY: the calling thread's errno.
        unsafe { *real::__errno_location() = -result as i32 };
        return -1;
    }
    result as i32
}

/// Value of a clock for a caller at `caller`: an allocator's clock is its own business. When it looks depends
/// on where memory lies, which differs between the copies.
#[inline(always)]
fn read_for(clock: i32, caller: usize) -> Result<Timespec, i64> {
    if allocator::opaque(caller) { plain(clock) } else { read(clock) }
}

/// `clock_gettime(3)`.
///
/// # Safety
/// As the C function.
#[unsafe(no_mangle)]
#[unsafe(naked)]
pub unsafe extern "C" fn clock_gettime(_clock: i32, _to: *mut Timespec) -> i32 {
    clean_frame!(clock_gettime_for, "rdx")
}

unsafe extern "C" fn clock_gettime_for(clock: i32, to: *mut Timespec, caller: usize) -> i32 {
    match read_for(clock, caller) {
        Ok(time) => {
            // SAFETY: the caller's timespec, as for the C function.
            unsafe { *to = time };
            0
        }
        Err(error) => with_errno(error),
    }
}

/// `gettimeofday(3)`.
///
/// # Safety
/// As the C function.
#[unsafe(no_mangle)]
#[unsafe(naked)]
pub unsafe extern "C" fn gettimeofday(_to: *mut __kernel_old_timeval, _zone: *mut timezone) -> i32 {
    clean_frame!(gettimeofday_for, "rdx")
}

unsafe extern "C" fn gettimeofday_for(
    to: *mut __kernel_old_timeval,
    zone: *mut timezone,
    caller: usize,
) -> i32 {
    if !zone.is_null() || to.is_null() {
        let (to, zone) = (GuestMut::at(to as u64), GuestMut::at(zone as u64));
        return with_errno(i64::from(vdso_gettimeofday(to, zone)));
    }
    match read_for(REALTIME, caller) {
        Ok(time) => {
            // SAFETY: the caller's timeval, as for the C function.
            unsafe { *to = of_day(time) };
            0
        }
        Err(error) => with_errno(error),
    }
}

/// `time(3)`.
///
/// # Safety
/// As the C function.
#[unsafe(naked)]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn time(_to: *mut i64) -> i64 {
    clean_frame!(vdso_time)
}

/// A clock read by system call.
pub fn by_call(thread: &mut Thread, row: &'static Row, call: &Call) -> i64 {
    const CLOCK_GETTIME: u64 = raw::nr::CLOCK_GETTIME;
    const GETTIMEOFDAY: u64 = __NR_gettimeofday as u64;
    const TIME: u64 = __NR_time as u64;
    match call.nr {
        CLOCK_GETTIME => fill(call.args[0] as i32, GuestMut::at(call.args[1])),
        GETTIMEOFDAY => i64::from(vdso_gettimeofday(GuestMut::at(call.args[0]), GuestMut::at(call.args[1]))),
        TIME => {
            let seconds = seconds();
            match GuestMut::at(call.args[0]).tell(&seconds) {
                0 => seconds,
                error => error,
            }
        }
        _ => recorded::recorded(thread, row, call),
    }
}

/// The doors of the vDSO's functions, by their names.
pub fn vdso_doors() -> [(&'static [u8], u64); 6] {
    [
        (b"clock_gettime", vdso_clock_gettime as *const () as u64),
        (b"gettimeofday", vdso_gettimeofday as *const () as u64),
        (b"time", vdso_time as *const () as u64),
        (b"clock_getres", vdso_clock_getres as *const () as u64),
        (b"getcpu", vdso_getcpu as *const () as u64),
        (b"getrandom", vdso_getrandom as *const () as u64),
    ]
}
