//! Whether a thread is to be cancelled, by libc's word in its control block, and how it ends then.

use core::ffi::{c_int, c_void};
use core::sync::atomic::{AtomicU32, AtomicUsize, Ordering};

use crate::thread::Thread;
use crate::{real, tls, turns};

/// `PTHREAD_CANCEL_ASYNCHRONOUS`.
pub const ASYNCHRONOUS: c_int = 1;

/// Bit of libc's word: cancellation is disabled.
pub const DISABLED: u32 = 1;
/// Bit of libc's word: it is asynchronous.
pub const ANYWHERE: u32 = 2;
/// Bits of libc's word: cancelled, and about to be. By itself: where others ask for it, the thread's block says so.
const CANCELED: u32 = 4 | 8;
/// Bit of libc's word: the thread is on its way out.
pub const EXITING: u32 = 16;

/// Distance of libc's word from the control block; 0 where it has not been found.
static WORD: AtomicUsize = AtomicUsize::new(0);

/// Makes such a call as an older libc does: cancellable at any instruction.
#[cold]
pub fn at_point(call: impl FnOnce() -> i64) -> i64 {
    let Some(word) = place() else { return call() };
    let before = word.fetch_or(ANYWHERE, Ordering::SeqCst);
    let result = call();
    if before & ANYWHERE == 0 {
        word.fetch_and(!ANYWHERE, Ordering::SeqCst);
    }
    result
}

/// Whether that word has been found.
pub fn is_known() -> bool {
    WORD.load(Ordering::Relaxed) != 0
}

/// Finds libc's word: the only one of the control block that the type of cancellation changes, and changes by
/// its bit. In the constructor.
pub fn find_word() {
    const WORDS: usize = 576;
    let block = tls::thread_pointer() as *const u32;
    let mut before = [0u32; WORDS];
    for (at, word) in before.iter_mut().enumerate() {
        // SAFETY: glibc's control block is no smaller.
        *word = unsafe { block.add(at).read_volatile() };
    }
    // SAFETY: nobody has asked for this thread's cancellation: there is no other.
    let old = unsafe { set_libc_type(ASYNCHRONOUS) };
    for (at, word) in before.iter().enumerate() {
        // SAFETY: as above.
        let now = unsafe { block.add(at).read_volatile() };
        if now == word | ANYWHERE && now != *word {
            WORD.store(at * 4, Ordering::Relaxed);
        }
    }
    // SAFETY: as it was.
    unsafe { set_libc_type(old) };
}

/// libc's word of the calling thread, where it is known.
pub fn place() -> Option<&'static AtomicU32> {
    match WORD.load(Ordering::Relaxed) {
        0 => None,
        at => {
            let place = (tls::thread_pointer() as usize + at) as *const AtomicU32;
            // SAFETY: inside the calling thread's control block.
            Some(unsafe { &*place })
        }
    }
}

/// Its value; cancellation off where it is not known.
pub fn word() -> u32 {
    place().map_or(DISABLED, |word| word.load(Ordering::Relaxed))
}

/// Whether the calling thread can be cancelled at a cancellation point.
pub fn is_enabled() -> bool {
    word() & (DISABLED | EXITING) == 0
}

/// Whether the calling thread has been cancelled, and this is where it ends: at a cancellation point, or
/// anywhere if the guest has asked for that.
#[inline(always)]
pub fn is_due(thread: &Thread) -> bool {
    thread.cancel.load(Ordering::Relaxed) != 0 && word() & (DISABLED | ANYWHERE | EXITING) == ANYWHERE
}

/// libc's own `pthread_setcanceltype`; the type before.
///
/// # Safety
/// With an asynchronous type, where the calling thread may end.
pub unsafe fn set_libc_type(kind: c_int) -> c_int {
    type Function = unsafe extern "C" fn(c_int, *mut c_int) -> c_int;
    let mut old = 0;
    let function = real::PTHREAD_SETCANCELTYPE.get();
    if !function.is_null() {
        // SAFETY: libc's function of that name has this type.
        unsafe { core::mem::transmute::<*mut c_void, Function>(function)(kind, &raw mut old) };
    }
    old
}

/// As [`set_libc_type`], in a door. The thread stays inside the runtime's own text where it need not end: libc's function is
/// guest code to a clone, and a thread that was parked there was in both copies between what it does and what the log says of it.
///
/// # Safety
/// As [`set_libc_type`].
pub unsafe fn set_type(kind: c_int) -> c_int {
    let Some(word) = place().filter(|word| word.load(Ordering::Relaxed) & CANCELED == 0) else {
        // SAFETY: the caller's promise.
        return unsafe { set_libc_type(kind) };
    };
    let before = match kind {
        ASYNCHRONOUS => word.fetch_or(ANYWHERE, Ordering::SeqCst),
        _ => word.fetch_and(!ANYWHERE, Ordering::SeqCst),
    };
    c_int::from(before & ANYWHERE != 0)
}

/// libc's `pthread_testcancel`, in a door; as [`set_type`].
///
/// # Safety
/// Where the calling thread may end.
pub unsafe fn test_libc() {
    let function = real::PTHREAD_TESTCANCEL.get();
    if !function.is_null() && place().is_none_or(|word| word.load(Ordering::Relaxed) & CANCELED != 0) {
        // SAFETY: libc's function of that name has this type.
        unsafe { core::mem::transmute::<*mut c_void, unsafe extern "C" fn()>(function)() };
    }
}

/// The calling thread.
pub fn current() -> Option<&'static mut Thread> {
    // SAFETY: the calling thread's own block.
    unsafe { tls::current().as_mut() }
}

/// Ends this thread as cancelled, because the primary's was.
pub fn end_thread() -> ! {
    const CANCELED: u64 = u64::MAX;
    if let Some(thread) = current() {
        thread.cancel.store(0, Ordering::Relaxed);
        // Out of a call in which others had theirs; what follows is guest code.
        thread.turn.set_gives(false);
        thread.signals.outcome_says = false;
        turns::take_for_guest(thread);
        thread.shared_with_guest();
    }
    let function = real::PTHREAD_EXIT.get();
    // SAFETY: libc's function of that name has this type; it unwinds through frames without clean-up.
    unsafe { core::mem::transmute::<*mut c_void, unsafe extern "C" fn(u64) -> !>(function)(CANCELED) }
}
