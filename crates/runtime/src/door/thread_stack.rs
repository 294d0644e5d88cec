//! Stacks of threads: at fixed addresses, so that what lies on them is at the same place in every copy.

use core::mem::MaybeUninit;
use core::sync::atomic::Ordering;

use us_abi::{STACK_STRIDE, STACKS_ADDRESS};

use super::thread::Attributes;
use crate::raw::{self, failed};
use crate::{real, thread};

const PAGE: u64 = 4096;

/// The stack of a slot: lowest usable address. A guard page lies below it.
fn stack_of(slot: u32, bytes: u64) -> Option<u64> {
    const STACK_FLAGS: u64 = 0x2_0000 | 0x4000 | 0x22; // STACK|NORESERVE|PRIVATE|ANONYMOUS
    const MAP_FIXED: u64 = 0x10;
    // SAFETY: blocks are never freed.
    let block = unsafe { &*thread::block(slot) };
    let top = (STACKS_ADDRESS + (slot as usize + 1) * STACK_STRIDE) as u64;
    let base = top - bytes;
    if bytes + 2 * PAGE > STACK_STRIDE as u64 {
        return None;
    }
    if block.stack_bytes.load(Ordering::Relaxed) < bytes {
        // SAFETY: the slot's own range; whatever an earlier thread left there is dead.
        let result = unsafe {
            raw::call6(raw::nr::MMAP, [base - PAGE, bytes + PAGE, 3, STACK_FLAGS | MAP_FIXED, u64::MAX, 0])
        };
        if failed(result) {
            return None;
        }
        // SAFETY: the guard page of the new mapping.
        unsafe { raw::call3(raw::nr::MPROTECT, base - PAGE, PAGE, 0) };
        block.stack_bytes.store(bytes, Ordering::Relaxed);
        block.stack.store(base, Ordering::Relaxed);
    }
    Some(base)
}

/// Calls libc's function of one attribute argument and one more.
fn attribute_call(function: &real::Real, attributes: *const Attributes, value: u64) -> i32 {
    // SAFETY: libc's function of that shape.
    unsafe {
        let function: unsafe extern "C" fn(*const Attributes, u64) -> i32 =
            core::mem::transmute(function.get());
        function(attributes, value)
    }
}

/// The attributes to create with: the guest's, with the slot's stack unless the guest has given one.
pub(super) fn attributes_for(slot: u32, given: *const Attributes) -> Option<(Attributes, bool)> {
    let mut own: MaybeUninit<Attributes> = MaybeUninit::uninit();
    // SAFETY: libc's functions on attribute objects: the guest's, or one that libc fills.
    unsafe {
        if given.is_null() {
            let default: unsafe extern "C" fn(*mut Attributes) -> i32 =
                core::mem::transmute(real::PTHREAD_GETATTR_DEFAULT.get());
            if default(own.as_mut_ptr()) != 0 {
                return None;
            }
        } else {
            own.as_mut_ptr().copy_from_nonoverlapping(given, 1);
        }
        let mut own = own.assume_init();
        let (mut base, mut bytes) = (0u64, 0u64);
        let getstack: unsafe extern "C" fn(*const Attributes, *mut u64, *mut u64) -> i32 =
            core::mem::transmute(real::PTHREAD_ATTR_GETSTACK.get());
        getstack(&raw const own, &raw mut base, &raw mut bytes);
        let mut detached = 0i32;
        attribute_call(&real::PTHREAD_ATTR_GETDETACHSTATE, &raw const own, &raw mut detached as u64);
        // An address that was never set reads as zero minus the size.
        if base.wrapping_add(bytes) != 0 && base != 0 {
            return Some((own, detached == 1));
        }
        if bytes == 0 {
            bytes = 8 << 20;
        }
        let bytes = bytes.next_multiple_of(PAGE);
        let base = stack_of(slot, bytes)?;
        let setstack: unsafe extern "C" fn(*mut Attributes, u64, u64) -> i32 =
            core::mem::transmute(real::PTHREAD_ATTR_SETSTACK.get());
        (setstack(&raw mut own, base, bytes) == 0).then_some((own, detached == 1))
    }
}

/// Lowest address of the stack that attributes name.
pub(super) fn beginning_of(attributes: &Attributes) -> u64 {
    let (mut base, mut bytes) = (0u64, 0u64);
    // SAFETY: libc's function of that name has this type.
    unsafe {
        let getstack: unsafe extern "C" fn(*const Attributes, *mut u64, *mut u64) -> i32 =
            core::mem::transmute(real::PTHREAD_ATTR_GETSTACK.get());
        getstack(attributes, &raw mut base, &raw mut bytes);
    }
    base
}

/// The signal mask that the attributes give a new thread, if they do; without one it has its maker's.
pub(super) fn mask_in(given: *const Attributes) -> Option<u64> {
    // A sigset_t of libc's has 1024 bits.
    let mut mask = [0u64; 16];
    let found = !given.is_null()
        && attribute_call(&real::PTHREAD_ATTR_GETSIGMASK_NP, given, mask.as_mut_ptr() as u64) == 0;
    found.then_some(mask[0])
}

/// `pthread_getattr_np(3)`: a stack that libc takes for the guest's own has no guard for it, and a run-time library that is
/// told so gives up (Rust's does, at the start of every thread).
///
/// # Safety
/// As the C function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pthread_getattr_np(handle: u64, attributes: *mut Attributes) -> i32 {
    // SAFETY: libc's functions of these names have these types; the arguments are the guest's.
    unsafe {
        let getattr: unsafe extern "C" fn(u64, *mut Attributes) -> i32 =
            core::mem::transmute(real::PTHREAD_GETATTR_NP.get());
        let result = getattr(handle, attributes);
        let (mut base, mut bytes) = (0u64, 0u64);
        let getstack: unsafe extern "C" fn(*const Attributes, *mut u64, *mut u64) -> i32 =
            core::mem::transmute(real::PTHREAD_ATTR_GETSTACK.get());
        if result == 0 && getstack(attributes, &raw mut base, &raw mut bytes) == 0 && is_ours(base) {
            attribute_call(&real::PTHREAD_ATTR_SETGUARDSIZE, attributes, PAGE);
        }
        result
    }
}

/// Whether a stack is a slot's.
fn is_ours(base: u64) -> bool {
    (STACKS_ADDRESS as u64..(STACKS_ADDRESS + us_abi::THREADS_MAX * STACK_STRIDE) as u64).contains(&base)
}
