//! Doors in front of libc functions that have a lock or common state of their own.
//!
//! The function itself stays libc's. The door puts it in a *domain*: a recursive lock with an ordered clock,
//! so that the copies enter in the same order. In a process that no copy can be made of a thread goes straight
//! through. Nothing is known here of a function's parameters: six registers and two stack words are passed
//! on as they came, which is right for every C function without floating point arguments.

use core::ffi::c_void;

use super::unwind;
use crate::door::sync::Caller;
use crate::real::{self, Real};
use crate::state;
use crate::thread::Mode;
use crate::turns::doors;

/// A door's arguments: what the ABI passes in registers, and two words of the caller's stack.
pub type Arguments = [u64; 8];

/// A lock with an order. Recursive, since guests may hold it already (`flockfile`).
pub trait Domain {
    /// Enters, logged or by the log.
    fn enter(&self, caller: Caller);
    /// Leaves.
    fn leave(&self);
}

/// What comes back from a function: a general register or a vector register.
pub trait Answer: Copy + Default {
    /// Calls the function at `address`.
    ///
    /// # Safety
    /// The function must accept the arguments and answer in this register.
    unsafe fn ask(address: *mut c_void, arguments: &Arguments) -> Self;
}

macro_rules! answers {
    ($($answer:ty),*) => { $(
        impl Answer for $answer {
            unsafe fn ask(address: *mut c_void, a: &Arguments) -> $answer {
                type Function = unsafe extern "C" fn(u64, u64, u64, u64, u64, u64, u64, u64) -> $answer;
                // SAFETY: the caller's promise; surplus arguments are never looked at.
                unsafe {
                    let function = core::mem::transmute::<*mut c_void, Function>(address);
                    function(a[0], a[1], a[2], a[3], a[4], a[5], a[6], a[7])
                }
            }
        }
    )* };
}
answers! { u64, f64 }

struct Pass<'a, D: Domain, A: Answer> {
    domain: &'a D,
    address: *mut c_void,
    arguments: Arguments,
    answer: A,
}

unsafe extern "C" fn body<D: Domain, A: Answer>(pass: *mut c_void) {
    // SAFETY: `call` passes its own.
    let pass = unsafe { &mut *pass.cast::<Pass<D, A>>() };
    // SAFETY: passed on from `call`.
    pass.answer = unsafe { A::ask(pass.address, &pass.arguments) };
}

/// Most of these functions are cancellation points.
unsafe extern "C" fn cancelled<D: Domain, A: Answer>(pass: *mut c_void) {
    // SAFETY: `call` passes its own.
    unsafe { (*pass.cast::<Pass<D, A>>()).domain.leave() };
}

/// Calls libc's function inside `domain`.
///
/// # Safety
/// As for [`Answer::ask`].
#[inline(always)]
pub unsafe fn call<D: Domain, A: Answer>(domain: D, real: &Real, arguments: Arguments) -> A {
    let caller = Caller::get();
    if caller.mode() == Mode::Solo && is_never_copied() && !state::is_parallel() {
        // SAFETY: passed on.
        return unsafe { A::ask(real.get(), &arguments) };
    }
    // SAFETY: passed on.
    unsafe { inside(caller, domain, real.get(), arguments) }
}

/// Whether no copy can be made while a thread waits for a lock of libc's inside one of these functions. It would be
/// parked behind the door: who comes next into that lock is then decided by each copy's own kernel. One that comes too
/// early has the lock, and waits for the ticket of the one that waits for the lock.
#[inline]
fn is_never_copied() -> bool {
    real::single_threaded() || !state::may_have_copies()
}

#[inline(never)]
unsafe fn inside<D: Domain, A: Answer>(
    caller: Caller,
    domain: D,
    address: *mut c_void,
    arguments: Arguments,
) -> A {
    let mut pass = Pass { domain: &domain, address, arguments, answer: A::default() };
    // SAFETY: `pass` outlives the call.
    let call = || unsafe { unwind::guarded(body::<D, A>, cancelled::<D, A>, (&raw mut pass).cast()) };
    within(caller, &domain, call);
    pass.answer
}

/// Calls `f` in a domain, as one door. What unwinds through it leaves the domain by itself.
#[inline(always)]
pub fn within<D: Domain, R>(caller: Caller, domain: &D, f: impl FnOnce() -> R) -> R {
    let enters = caller.thread().is_some_and(doors::enter);
    domain.enter(caller);
    let result = f();
    domain.leave();
    if enters {
        caller.thread().map(doors::leave);
    }
    result
}

/// Exports doors: `name = REAL, domain expression over the arguments;`.
#[macro_export]
macro_rules! forward_doors {
    ($answer:ty, $($name:ident = $real:ident, |$arguments:pat_param| $domain:expr;)*) => { $(
        #[doc = concat!("`", stringify!($name), "` in its domain.")]
        #[allow(clippy::too_many_arguments)]
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name(
            a: u64, b: u64, c: u64, d: u64, e: u64, f: u64, g: u64, h: u64,
        ) -> $answer {
            let arguments: $crate::door::forward::Arguments = [a, b, c, d, e, f, g, h];
            let $arguments = &arguments;
            let domain = $domain;
            // SAFETY: the guest called the function of this name with these arguments.
            unsafe { $crate::door::forward::call(domain, &$crate::real::$real, arguments) }
        }
    )* };
}
