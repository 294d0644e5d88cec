//! C11 threads' mutexes and condition variables: the pthread objects with other return codes.
//! Thread-specific storage stays libc's: it is local to a thread.

use core::ffi::c_int;

use super::cond::{
    Cond, pthread_cond_broadcast, pthread_cond_destroy, pthread_cond_init, pthread_cond_signal,
    pthread_cond_timedwait, pthread_cond_wait,
};
use super::mutex::{
    Mutex, pthread_mutex_destroy, pthread_mutex_init, pthread_mutex_lock, pthread_mutex_timedlock,
    pthread_mutex_trylock, pthread_mutex_unlock,
};
use super::sync::errno;
use crate::raw::Timespec;

const SUCCESS: c_int = 0;
const BUSY: c_int = 1;
const ERROR: c_int = 2;
const TIMED_OUT: c_int = 4;

/// `mtx_recursive`.
const RECURSIVE: c_int = 1;
/// `mtx_recursive | mtx_timed`: all types there are.
const TYPES: c_int = 3;

fn code(errno: c_int) -> c_int {
    match errno {
        0 => SUCCESS,
        errno::EBUSY => BUSY,
        errno::ETIMEDOUT => TIMED_OUT,
        _ => ERROR,
    }
}

/// `mtx_init`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mtx_init(mutex: *mut Mutex, kind: c_int) -> c_int {
    if kind & !TYPES != 0 {
        return ERROR;
    }
    let attribute = (kind & RECURSIVE) as u32;
    // SAFETY: the guest's mutex; the attribute is one word of which the type is the low two bits.
    code(unsafe { pthread_mutex_init(mutex, &raw const attribute) })
}

/// `mtx_destroy`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mtx_destroy(mutex: *const Mutex) {
    // SAFETY: the guest's mutex.
    unsafe { pthread_mutex_destroy(mutex) };
}

/// `mtx_timedlock`, until a time of CLOCK_REALTIME.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mtx_timedlock(mutex: *const Mutex, time: *const Timespec) -> c_int {
    // SAFETY: the guest's mutex and time.
    code(unsafe { pthread_mutex_timedlock(mutex, time) })
}

/// `cnd_init`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cnd_init(cond: *mut Cond) -> c_int {
    // SAFETY: the guest's condition variable.
    code(unsafe { pthread_cond_init(cond, core::ptr::null()) })
}

/// `cnd_destroy`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cnd_destroy(cond: *const Cond) {
    // SAFETY: the guest's condition variable.
    unsafe { pthread_cond_destroy(cond) };
}

/// `cnd_wait`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cnd_wait(cond: *const Cond, mutex: *const Mutex) -> c_int {
    // SAFETY: the guest's objects.
    code(unsafe { pthread_cond_wait(cond, mutex) })
}

/// `cnd_timedwait`, until a time of CLOCK_REALTIME.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cnd_timedwait(
    cond: *const Cond,
    mutex: *const Mutex,
    time: *const Timespec,
) -> c_int {
    // SAFETY: the guest's objects.
    code(unsafe { pthread_cond_timedwait(cond, mutex, time) })
}

macro_rules! one_mutex {
    ($($name:ident = $real:ident;)*) => { $(
        #[doc = concat!("`", stringify!($name), "`.")]
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name(mutex: *const Mutex) -> c_int {
            // SAFETY: the guest's mutex.
            code(unsafe { $real(mutex) })
        }
    )* };
}
one_mutex! {
    mtx_lock = pthread_mutex_lock;
    mtx_trylock = pthread_mutex_trylock;
    mtx_unlock = pthread_mutex_unlock;
}

macro_rules! one_cond {
    ($($name:ident = $real:ident;)*) => { $(
        #[doc = concat!("`", stringify!($name), "`.")]
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name(cond: *const Cond) -> c_int {
            // SAFETY: the guest's condition variable.
            code(unsafe { $real(cond) })
        }
    )* };
}
one_cond! {
    cnd_signal = pthread_cond_signal;
    cnd_broadcast = pthread_cond_broadcast;
}
