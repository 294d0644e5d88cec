//! Mutexes as objects: what `pthread_mutex_init` makes of its attributes, and what can be asked of one. The algorithm
//! is in [`super::mutex`].

use core::ffi::c_int;
use core::sync::atomic::Ordering;

use super::mutex::{Mutex, Patience, kind, lock};
use super::robust;
use super::sync::{Caller, errno};

/// Bits of glibc's `pthread_mutexattr_t`.
mod attribute {
    pub const FLAGS: u32 = 0xf0ff_f000;
    pub const PROTOCOL_SHIFT: u32 = 28;
    pub const PROTOCOL: u32 = 3;
    pub const ROBUST: u32 = 0x4000_0000;
    pub const SHARED: u32 = 0x8000_0000;
    pub const CEILING_SHIFT: u32 = 12;
    pub const CEILING: u32 = 0xfff;
}

/// `pthread_mutex_init`, from glibc's attribute object.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pthread_mutex_init(mutex: *mut Mutex, attribute: *const u32) -> c_int {
    // SAFETY: null or the guest's attribute.
    let attribute = unsafe { attribute.as_ref() }.copied().unwrap_or(0);
    let protocol = attribute >> attribute::PROTOCOL_SHIFT & attribute::PROTOCOL;
    let robust = attribute & attribute::ROBUST != 0;
    let mut kind = attribute & !attribute::FLAGS;
    match protocol {
        0 => {}
        1 => kind |= kind::INHERIT,
        _ if robust => return errno::ENOTSUP,
        _ => kind |= kind::PROTECT,
    }
    if robust {
        kind |= kind::ROBUST;
    }
    if attribute & (attribute::ROBUST | attribute::SHARED) != 0 {
        kind |= kind::SHARED;
    }
    // SAFETY: the guest's bytes, of which nobody else knows yet.
    let mutex = unsafe {
        mutex.write_bytes(0, 1);
        &*mutex
    };
    let ceiling = attribute >> attribute::CEILING_SHIFT & attribute::CEILING;
    mutex.ceiling.store(ceiling as i16, Ordering::Relaxed);
    mutex.kind.store(kind, Ordering::Release);
    0
}

/// `pthread_mutex_destroy`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pthread_mutex_destroy(mutex: *const Mutex) -> c_int {
    // SAFETY: the guest's mutex.
    let mutex = unsafe { &*mutex };
    // A robust mutex whose owner is dead may be destroyed held, as in glibc.
    if !mutex.robust() && mutex.lock.load(Ordering::Acquire) != 0 {
        return errno::EBUSY;
    }
    mutex.kind.store(kind::DESTROYED, Ordering::Relaxed);
    0
}

/// `pthread_mutex_getprioceiling`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pthread_mutex_getprioceiling(mutex: *const Mutex, ceiling: *mut c_int) -> c_int {
    // SAFETY: the guest's mutex and result.
    let (mutex, ceiling) = unsafe { (&*mutex, &mut *ceiling) };
    if mutex.kind.load(Ordering::Relaxed) & kind::PROTECT == 0 {
        return errno::EINVAL;
    }
    *ceiling = c_int::from(mutex.ceiling.load(Ordering::Relaxed));
    0
}

/// `pthread_mutex_setprioceiling`: the ceiling is kept and reported.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pthread_mutex_setprioceiling(
    mutex: *const Mutex,
    ceiling: c_int,
    old: *mut c_int,
) -> c_int {
    // SAFETY: the guest's mutex.
    let this = unsafe { &*mutex };
    if this.kind.load(Ordering::Relaxed) & kind::PROTECT == 0 || !(0..1024).contains(&ceiling) {
        return errno::EINVAL;
    }
    let locked = lock(this, false, Patience::Block);
    if locked != 0 && locked != errno::EDEADLK {
        return locked;
    }
    let before = this.ceiling.swap(ceiling as i16, Ordering::Relaxed);
    // SAFETY: null or the guest's result.
    if let Some(old) = unsafe { old.as_mut() } {
        *old = c_int::from(before);
    }
    if locked == 0 { this.unlock(Caller::get()) } else { 0 }
}

/// `pthread_mutex_consistent`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pthread_mutex_consistent(mutex: *const Mutex) -> c_int {
    // SAFETY: the guest's mutex.
    robust::consistent(unsafe { &*mutex })
}

/// The old name of [`pthread_mutex_consistent`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pthread_mutex_consistent_np(mutex: *const Mutex) -> c_int {
    // SAFETY: the guest's mutex.
    robust::consistent(unsafe { &*mutex })
}
