//! C11's threads: the same threads by other names.

use core::ffi::c_void;
use core::sync::atomic::Ordering;

use crate::door::thread_create::create;
use crate::door::thread_join::{pthread_detach, pthread_join};
use crate::{real, tls};

type StartC11 = unsafe extern "C-unwind" fn(*mut c_void) -> i32;

/// A C11 thread's start: the two words are on the heap of neither copy but in the block of the slot.
unsafe extern "C-unwind" fn run_c11(argument: *mut c_void) -> *mut c_void {
    let Some(thread) = tls::shared() else { return core::ptr::null_mut() };
    // SAFETY: the block holds what `thrd_create` was given.
    let start: StartC11 = unsafe { core::mem::transmute(thread.start.c11.load(Ordering::Relaxed)) };
    // SAFETY: the guest's own start routine.
    (unsafe { start(argument) }) as isize as *mut c_void
}

/// `thrd_create(3)`.
///
/// # Safety
/// As the C function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn thrd_create(handle: *mut u64, start: StartC11, argument: *mut c_void) -> i32 {
    const THRD_SUCCESS: i32 = 0;
    const THRD_ERROR: i32 = 2;
    const THRD_NOMEM: i32 = 3;
    const ENOMEM: i32 = linux_raw_sys::errno::ENOMEM as i32;
    let current = tls::current();
    if current.is_null() {
        // SAFETY: libc's own function with the guest's arguments.
        return unsafe {
            let create: unsafe extern "C" fn(*mut u64, StartC11, *mut c_void) -> i32 =
                core::mem::transmute(real::THRD_CREATE.get());
            create(handle, start, argument)
        };
    }
    // SAFETY: the calling thread's own block; the arguments are the C function's.
    match unsafe { create(&mut *current, handle, core::ptr::null(), run_c11, argument, start as *mut u8) } {
        0 => THRD_SUCCESS,
        ENOMEM => THRD_NOMEM,
        _ => THRD_ERROR,
    }
}

/// `thrd_join(3)`.
///
/// # Safety
/// As the C function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn thrd_join(handle: u64, result: *mut i32) -> i32 {
    const THRD_ERROR: i32 = 2;
    let mut value = core::ptr::null_mut();
    // SAFETY: as the C function.
    unsafe {
        if pthread_join(handle, &raw mut value) != 0 {
            return THRD_ERROR;
        }
        if !result.is_null() {
            *result = value as isize as i32;
        }
    }
    0
}

/// `thrd_detach(3)`.
///
/// # Safety
/// As the C function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn thrd_detach(handle: u64) -> i32 {
    const THRD_ERROR: i32 = 2;
    // SAFETY: as the C function.
    if unsafe { pthread_detach(handle) } == 0 { 0 } else { THRD_ERROR }
}
