//! Functions of libc about another thread.
//!
//! libc holds a lock of the thread in question while it makes the system call. A standby's thread that had taken such a lock
//! would wait for its turn with it, and keep those out whose turn is earlier. So signals are sent from here, without a lock;
//! the rest of these functions enter in the order of the log.

use core::ffi::c_int;
use core::sync::atomic::Ordering;

use super::forward::{self, Domain};
use super::libc_state::Family;
use super::sync::{Caller, errno};
use super::thread::{has_ended, slot_of};
use crate::guest::GuestPtr;
use crate::raw::nr;
use crate::siginfo::{Info, SI_QUEUE};
use crate::thread::Shared;
use crate::tls::tid_of;
use crate::turns::doors::ordered_frame;
use crate::{clock, forward_doors, real, state, tls};

/// Signals of libc's own, which nobody else may send: of cancellation and of setuid.
const INTERNAL: core::ops::RangeInclusive<c_int> = 32..=33;

/// A system call as the guest would make it by libc's `syscall`: negative errors.
fn call(number: u64, args: [u64; 4]) -> i64 {
    type Syscall = unsafe extern "C" fn(u64, u64, u64, u64, u64) -> i64;
    // SAFETY: libc's errno of this thread is always there; `syscall` passes the arguments on as they are.
    unsafe {
        let errno = real::__errno_location();
        let before = *errno;
        let syscall: Syscall = core::mem::transmute(real::SYSCALL.get());
        let result = syscall(number, args[0], args[1], args[2], args[3]);
        let error = core::mem::replace(&mut *errno, before);
        if result == -1 { -i64::from(error) } else { result }
    }
}

/// The thread behind a handle, where signals to it go by the runtime.
fn target(handle: u64) -> Option<&'static Shared> {
    let known = state::header().is_some() && handle != tls::thread_pointer();
    if known { slot_of(handle) } else { None }
}

/// The number to send to. The call is made also where the thread has ended, with a number that nobody has: whether it has
/// is not the same in all copies.
fn number(thread: &Shared, handle: u64) -> u64 {
    const NOBODY: u64 = i32::MAX as u64;
    if !has_ended(handle) {
        return u64::from(tid_of(handle));
    }
    // This copy's thread may be ahead of what the log says about it.
    if state::is_standby() { u64::from(thread.guest_tid()) } else { NOBODY }
}

fn pid() -> u64 {
    u64::from(state::GUEST_PID.load(Ordering::Relaxed))
}

/// `pthread_kill(3)`: a thread that has ended and has not been joined takes any signal.
///
/// # Safety
/// As the C function.
#[unsafe(naked)]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pthread_kill(_handle: u64, _signal: c_int) -> c_int {
    ordered_frame!(CHANGES, kill)
}

unsafe extern "C" fn kill(handle: u64, signal: c_int) -> c_int {
    let Some(thread) = target(handle) else {
        // SAFETY: libc's function of that name has this type.
        return unsafe {
            let kill: unsafe extern "C" fn(u64, c_int) -> c_int =
                core::mem::transmute(real::PTHREAD_KILL.get());
            kill(handle, signal)
        };
    };
    if INTERNAL.contains(&signal) {
        return errno::EINVAL;
    }
    match -call(nr::TGKILL, [pid(), number(thread, handle), signal as u64, 0]) as c_int {
        errno::ESRCH => 0,
        error => error,
    }
}

/// `pthread_sigqueue(3)`.
///
/// # Safety
/// As the C function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pthread_sigqueue(handle: u64, signal: c_int, value: u64) -> c_int {
    use crate::raw::nr::GETUID;
    let Some(thread) = target(handle) else {
        // SAFETY: libc's function of that name has this type; a `union sigval` travels in a register.
        return unsafe {
            let queue: unsafe extern "C" fn(u64, c_int, u64) -> c_int =
                core::mem::transmute(real::PTHREAD_SIGQUEUE.get());
            queue(handle, signal, value)
        };
    };
    if INTERNAL.contains(&signal) {
        return errno::EINVAL;
    }
    let mut info = Info::new(signal, SI_QUEUE);
    info.set_sender(pid() as u32);
    info.set_user(call(GETUID, [0; 4]) as u32);
    info.set_value(value);
    let args = [pid(), number(thread, handle), signal as u64, &raw const info as u64];
    -call(nr::RT_TGSIGQUEUEINFO, args) as c_int
}

const FAMILIES: usize = 16;
/// By thread: more than one may share a lock, since none of these functions waits for another's.
static TARGETS: [Family; FAMILIES] = [const { Family::new() }; FAMILIES];

/// What libc keeps of one thread.
pub(super) struct Target(pub u64);

impl Target {
    fn family(&self) -> &'static Family {
        &TARGETS[clock::number(self.0 as usize) as usize % FAMILIES]
    }
}

impl Domain for Target {
    fn enter(&self, _caller: Caller) {
        self.family().enter_for(self.family() as *const Family as usize);
    }
    fn leave(&self) {
        self.family().leave();
    }
}

/// `pthread_setname_np(3)`: libc writes another thread's name to a file. A promoted copy's thread gives itself the name that
/// is kept here, at a moment of its own; so that is the new one before the file is written, perhaps for the second time.
///
/// # Safety
/// As the C function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pthread_setname_np(handle: u64, name: *const u8) -> c_int {
    if let Some(thread) = target(handle) {
        let mut kept = [0u8; 16];
        let given = GuestPtr::<u8>::at(name as u64);
        let len = given.string_len();
        if len < kept.len() && given.fill(&mut kept[..len]) {
            // The order of two who name the same thread is the guest's to keep.
            thread.place.set_name(kept);
        }
    }
    let arguments = [handle, name as u64, 0, 0, 0, 0, 0, 0];
    // SAFETY: the guest called the function of this name with these arguments.
    unsafe { forward::call::<_, u64>(Target(handle), &real::PTHREAD_SETNAME_NP, arguments) as c_int }
}

forward_doors! { u64,
    pthread_getname_np = PTHREAD_GETNAME_NP, |a| Target(a[0]);
    pthread_setschedparam = PTHREAD_SETSCHEDPARAM, |a| Target(a[0]);
    pthread_getschedparam = PTHREAD_GETSCHEDPARAM, |a| Target(a[0]);
    pthread_setschedprio = PTHREAD_SETSCHEDPRIO, |a| Target(a[0]);
}
