//! Stacks of threads: at fixed addresses, so that what lies on them is at the same place in every copy.

use core::sync::atomic::Ordering;

use us_abi::{slot_of_stack, stack_range};

use super::forward;
use super::thread::Attributes;
use super::thread_target::Target;
use crate::raw::{self, failed};
use crate::{real, thread};

const PAGE: u64 = 4096;

/// The stack of a slot: lowest usable address. Below it lies what nobody may touch: a thread that needs more than it has
/// asked for ends there, also where the slot's last one had more.
fn stack_of(slot: u32, bytes: u64, guard: u64) -> Option<u64> {
    const STACK_FLAGS: u64 = 0x2_0000 | 0x4000 | 0x22; // STACK|NORESERVE|PRIVATE|ANONYMOUS
    use crate::kernel::MAP_FIXED;
    let block = thread::shared(slot);
    let (start, room) = stack_range(slot as usize);
    let top = (start + room) as u64;
    let base = top - bytes;
    if bytes.checked_add(guard)? > room as u64 {
        return None;
    }
    let (had, guarded) =
        (block.stack_bytes.load(Ordering::Relaxed), block.guard_bytes.load(Ordering::Relaxed));
    if had != bytes || guarded != guard {
        // SAFETY: the slot's own range; whatever an earlier thread left there is dead.
        unsafe {
            if had + guarded > bytes + guard {
                raw::call2(raw::nr::MUNMAP, top - had - guarded, had + guarded - bytes - guard);
            }
            let all = [base - guard, bytes + guard, 3, STACK_FLAGS | MAP_FIXED, u64::MAX, 0];
            if failed(raw::call6(raw::nr::MMAP, all)) {
                block.stack_bytes.store(0, Ordering::Relaxed);
                block.guard_bytes.store(0, Ordering::Relaxed);
                return None;
            }
            if guard != 0 {
                raw::call3(raw::nr::MPROTECT, base - guard, guard, 0);
            }
        }
        block.stack_bytes.store(bytes, Ordering::Relaxed);
        block.guard_bytes.store(guard, Ordering::Relaxed);
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

/// The attributes to create with: the guest's, or in `own` those with the slot's stack, unless the guest has given one or the
/// thread lies beyond the slots. And whether the thread is detached.
pub(super) fn attributes_for(
    slot: u32,
    given: *const Attributes,
    own: &mut Attributes,
) -> Option<(*const Attributes, bool)> {
    // SAFETY: libc's functions on attribute objects: the guest's, or one that libc fills.
    unsafe {
        if given.is_null() {
            if thread::is_beyond(slot) {
                return Some((given, false));
            }
            let default: unsafe extern "C" fn(*mut Attributes) -> i32 =
                core::mem::transmute(real::PTHREAD_GETATTR_DEFAULT.get());
            if default(&raw mut *own) != 0 {
                return None;
            }
        } else {
            *own = given.read();
        }
        let (mut base, mut bytes) = (0u64, 0u64);
        let getstack: unsafe extern "C" fn(*const Attributes, *mut u64, *mut u64) -> i32 =
            core::mem::transmute(real::PTHREAD_ATTR_GETSTACK.get());
        getstack(&raw const *own, &raw mut base, &raw mut bytes);
        let mut detached = 0i32;
        attribute_call(&real::PTHREAD_ATTR_GETDETACHSTATE, &raw const *own, &raw mut detached as u64);
        // An address that was never set reads as zero minus the size.
        if thread::is_beyond(slot) || base.wrapping_add(bytes) != 0 && base != 0 {
            return Some((given, detached == 1));
        }
        if bytes == 0 {
            bytes = 8 << 20;
        }
        let bytes = bytes.next_multiple_of(PAGE);
        let mut guard = PAGE;
        attribute_call(&real::PTHREAD_ATTR_GETGUARDSIZE, &raw const *own, &raw mut guard as u64);
        let base = stack_of(slot, bytes, guard.checked_next_multiple_of(PAGE)?)?;
        let setstack: unsafe extern "C" fn(*mut Attributes, u64, u64) -> i32 =
            core::mem::transmute(real::PTHREAD_ATTR_SETSTACK.get());
        (setstack(&raw mut *own, base, bytes) == 0).then_some((&raw const *own, detached == 1))
    }
}

/// Lowest address of the stack that attributes name, 0 without attributes.
pub(super) fn beginning_of(attributes: *const Attributes) -> u64 {
    let (mut base, mut bytes) = (0u64, 0u64);
    if attributes.is_null() {
        return 0;
    }
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
        let arguments = [handle, attributes as u64, 0, 0, 0, 0, 0, 0];
        let result = forward::call::<_, u64>(Target(handle), &real::PTHREAD_GETATTR_NP, arguments) as i32;
        let (mut base, mut bytes) = (0u64, 0u64);
        let getstack: unsafe extern "C" fn(*const Attributes, *mut u64, *mut u64) -> i32 =
            core::mem::transmute(real::PTHREAD_ATTR_GETSTACK.get());
        if result == 0
            && getstack(attributes, &raw mut base, &raw mut bytes) == 0
            && let Some(slot) = slot_of_stack(base as usize)
        {
            let guard = thread::shared(slot as u32).guard_bytes.load(Ordering::Relaxed);
            attribute_call(&real::PTHREAD_ATTR_SETGUARDSIZE, attributes, guard);
        }
        result
    }
}

/// Whether an address lies in a slot's stack.
pub(super) fn is_ours(address: u64) -> bool {
    slot_of(address).is_some()
}

/// The slot in whose range of stack an address lies.
pub(super) fn slot_of(address: u64) -> Option<u32> {
    slot_of_stack(address as usize).map(|slot| slot as u32)
}
