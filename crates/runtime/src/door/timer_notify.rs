//! Timers that call a function (`SIGEV_THREAD`).
//!
//! libc has a helper thread for them that nobody sees it make, and that would make threads of which no log knows. So the
//! helper is one of ours: a thread of the group like any other, made by the door of `pthread_create` in every copy. It
//! waits for the timers' signal, and makes a detached thread for each expiry. To the kernel such a timer is one that
//! signals the helper, which a promotion sets again like every other ([`super::timer`]).

use core::cell::UnsafeCell;
use core::ffi::{c_int, c_long, c_void};
use core::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering};

use super::mutex::{Mutex, pthread_mutex_lock, pthread_mutex_unlock};
use super::sem::{sem_post, sem_wait};
use super::sync::{as_errno, errno};
use super::thread::Attributes;
use super::thread_create::create;
use crate::call::Call;
use crate::siginfo::{Info, SI_TIMER};
use crate::signal;
use crate::thread::Thread;
use crate::tls::tid_of;
use crate::{raw, real, tls};

/// The notification that a function is called.
const SIGEV_THREAD: i32 = linux_raw_sys::general::SIGEV_THREAD as i32;
const SIGEV_THREAD_ID: i32 = linux_raw_sys::general::SIGEV_THREAD_ID as i32;
/// libc's own signal for this, which it lets no program block, wait for or handle.
const SIGTIMER: i32 = 32;
/// With which libc has all threads set their user at once: no thread of libc's ever blocks it.
const ALL_BUT_SETXID: u64 = !(1 << (signal::SIGSETXID - 1));
/// Timers of this kind that there can be at a time.
const NOTIFIERS: usize = 256;

/// The C library's `struct sigevent`.
#[repr(C)]
pub struct Event {
    value: *mut c_void,
    signal: i32,
    notify: i32,
    /// The function to call; of a timer that signals a thread, its number.
    function: *mut c_void,
    attributes: *const Attributes,
    rest: [u64; 4],
}

/// What is to be called when a timer expires. Changed and read with the lock held.
#[derive(Clone, Copy)]
struct Notifier {
    function: *mut c_void,
    value: *mut c_void,
    attributes: Attributes,
}

/// A place for one, in every copy the same.
struct Place {
    /// The timer's number and 1; 0 for a free place.
    timer: AtomicUsize,
    /// Which of the place's timers it is: what an old one has left in the kernel calls nothing.
    generation: AtomicU32,
    what: UnsafeCell<Notifier>,
}

// SAFETY: `what` is used by the holder of the lock only.
unsafe impl Sync for Place {}

const NOTHING: Notifier =
    Notifier { function: core::ptr::null_mut(), value: core::ptr::null_mut(), attributes: [0; 7] };
static PLACES: [Place; NOTIFIERS] = [const {
    Place { timer: AtomicUsize::new(0), generation: AtomicU32::new(0), what: UnsafeCell::new(NOTHING) }
}; NOTIFIERS];
/// The helper's handle; 0 before it is made.
static HELPER: AtomicU64 = AtomicU64::new(0);
/// A mutex of the guest's kind: who came first is in the log.
static LOCK: [AtomicU64; 5] = [const { AtomicU64::new(0) }; 5];
/// A semaphore of the guest's kind: the helper is open for timers.
static READY: [AtomicU64; 4] = [const { AtomicU64::new(0) }; 4];

const _: () = assert!(size_of::<Mutex>() == size_of_val(&LOCK));

/// Runs `f` with the lock held.
fn locked<R>(f: impl FnOnce() -> R) -> R {
    let lock = LOCK.as_ptr().cast::<Mutex>();
    // SAFETY: a mutex that lives as long as the process.
    unsafe { pthread_mutex_lock(lock) };
    let result = f();
    // SAFETY: as above; held by the caller.
    unsafe { pthread_mutex_unlock(lock) };
    result
}

/// In a forked child, which has neither helper nor timers.
pub fn forget() {
    HELPER.store(0, Ordering::Relaxed);
    LOCK.iter().chain(&READY).for_each(|word| word.store(0, Ordering::Relaxed));
    PLACES.iter().for_each(|place| place.timer.store(0, Ordering::Relaxed));
}

/// `timer_create(2)`.
///
/// # Safety
/// As the C function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn timer_create(clock: c_int, event: *mut Event, timer: *mut usize) -> c_int {
    // SAFETY: null or the guest's event.
    let asked = unsafe { event.as_ref() }.filter(|event| event.notify == SIGEV_THREAD);
    match (asked, tls::current().is_null()) {
        (Some(asked), false) => {
            let made = locked(|| make(clock, asked));
            match made {
                // SAFETY: the guest's result.
                Ok(number) => unsafe { timer.write(number) },
                Err(error) => return as_errno(error),
            }
            0
        }
        // SAFETY: the guest's own arguments.
        _ => unsafe { create_real(clock, event, timer) },
    }
}

/// libc's function.
unsafe fn create_real(clock: c_int, event: *mut Event, timer: *mut usize) -> c_int {
    type Function = unsafe extern "C" fn(c_int, *mut Event, *mut usize) -> c_int;
    // SAFETY: libc's function of that name has this type; the caller's arguments.
    unsafe { core::mem::transmute::<*mut c_void, Function>(real::TIMER_CREATE.get())(clock, event, timer) }
}

/// Makes such a timer, with the lock held. Its number, or a positive errno.
fn make(clock: c_int, asked: &Event) -> Result<usize, c_int> {
    let free = PLACES.iter().position(|place| place.timer.load(Ordering::Relaxed) == 0);
    let index = free.ok_or(errno::EAGAIN)?;
    let place = &PLACES[index];
    let helper = helper()?;
    let attributes = detached(asked.attributes)?;
    let generation = place.generation.load(Ordering::Relaxed).wrapping_add(1);
    let value = (u64::from(generation) << 32 | index as u64) as *mut c_void;
    let mut event = Event {
        value,
        signal: SIGTIMER,
        notify: SIGEV_THREAD_ID,
        function: tid_of(helper) as usize as *mut c_void,
        attributes: core::ptr::null(),
        rest: [0; 4],
    };
    let mut number = 0usize;
    // SAFETY: an event and a result of our own.
    if unsafe { create_real(clock, &raw mut event, &raw mut number) } != 0 {
        // SAFETY: libc's errno of this thread, which the door has set.
        return Err(unsafe { *real::__errno_location() });
    }
    place.generation.store(generation, Ordering::Relaxed);
    // SAFETY: the lock is held.
    unsafe { *place.what.get() = Notifier { function: asked.function, value: asked.value, attributes } };
    place.timer.store(number + 1, Ordering::Relaxed);
    Ok(number)
}

/// The attributes of the threads that are made: those that the guest has given, as far as libc looks at them for this, and
/// always detached.
fn detached(given: *const Attributes) -> Result<Attributes, c_int> {
    const DETACHED: c_int = 1;
    /// Words of the object that are libc's scheduling, flags, guard and stack. Behind them lies memory of the object's own,
    /// which it may free.
    const PLAIN: usize = 5;
    let mut own: Attributes = [0; 7];
    // SAFETY: libc's functions on attribute objects; the guest's is only read.
    unsafe {
        if given.is_null() {
            let default: unsafe extern "C" fn(*mut Attributes) -> c_int =
                core::mem::transmute(real::PTHREAD_GETATTR_DEFAULT.get());
            if default(&raw mut own) != 0 {
                return Err(errno::EAGAIN);
            }
        } else {
            own[..PLAIN].copy_from_slice(&(&*given)[..PLAIN]);
        }
        let set: unsafe extern "C" fn(*mut Attributes, c_int) -> c_int =
            core::mem::transmute(real::PTHREAD_ATTR_SETDETACHSTATE.get());
        set(&raw mut own, DETACHED);
    }
    Ok(own)
}

/// The helper's handle; it is made if there is none. With the lock held.
fn helper() -> Result<u64, c_int> {
    let known = HELPER.load(Ordering::Relaxed);
    if known != 0 {
        return Ok(known);
    }
    let attributes = detached(core::ptr::null())?;
    let before = current()?.signals.mask;
    set_mask(ALL_BUT_SETXID);
    let mut handle = 0u64;
    let nothing = core::ptr::null_mut();
    // SAFETY: the calling thread's block; a start routine that never returns.
    let error = unsafe {
        let maker = current()?;
        create(maker, &raw mut handle, &raw const attributes, help, nothing, core::ptr::null_mut())
    };
    set_mask(before);
    if error != 0 {
        return Err(error);
    }
    // No cancellation point, as libc's has none: the lock is held.
    let before = set_cancel_state(DISABLED);
    // SAFETY: a semaphore that lives as long as the process.
    while unsafe { sem_wait(READY.as_ptr().cast()) } != 0 {}
    set_cancel_state(before);
    HELPER.store(handle, Ordering::Relaxed);
    Ok(handle)
}

fn current() -> Result<&'static mut Thread, c_int> {
    // SAFETY: the calling thread's own block. No two references of one door live at once: each is dropped before the
    // next is asked for.
    unsafe { tls::current().as_mut() }.ok_or(errno::EAGAIN)
}

/// `PTHREAD_CANCEL_DISABLE`.
const DISABLED: c_int = 1;

/// libc's `pthread_setcancelstate`; returns the state before.
fn set_cancel_state(state: c_int) -> c_int {
    type Function = unsafe extern "C" fn(c_int, *mut c_int) -> c_int;
    let mut before = 0;
    // SAFETY: libc's function of that name has this type.
    unsafe {
        core::mem::transmute::<*mut c_void, Function>(real::PTHREAD_SETCANCELSTATE.get())(
            state,
            &raw mut before,
        );
    }
    before
}

/// Sets the calling thread's mask, as the guest would.
fn set_mask(mask: u64) {
    use crate::kernel::SIG_SETMASK;
    if let Ok(thread) = current() {
        let args = [SIG_SETMASK, &raw const mask as u64, 0, 8, 0, 0];
        signal::mask(thread, &Call { nr: raw::nr::RT_SIGPROCMASK, args, caller: 0 });
    }
}

/// The helper: everything is blocked for it.
unsafe extern "C-unwind" fn help(_: *mut c_void) -> *mut c_void {
    type Function = unsafe extern "C" fn(c_long, ...) -> c_long;
    let set = 1u64 << (SIGTIMER - 1);
    if let Ok(thread) = current() {
        // libc lets no thread begin with this signal blocked: one that came between two waits would be taken for a
        // cancellation, and be lost.
        signal::set_mask(thread, ALL_BUT_SETXID);
    }
    // SAFETY: a semaphore that lives as long as the process.
    unsafe { sem_post(READY.as_ptr().cast()) };
    loop {
        let mut info = Info::default();
        // SAFETY: libc's function of that name has this type; a set and a result of our own.
        let taken = unsafe {
            let call: Function = core::mem::transmute(real::SYSCALL.get());
            let nr = raw::nr::RT_SIGTIMEDWAIT as c_long;
            call(nr, &raw const set, &raw mut info, core::ptr::null::<c_void>(), 8usize)
        };
        if taken == c_long::from(SIGTIMER) && info.code() == SI_TIMER {
            notify(info.value());
        }
    }
}

/// A timer has expired of which the event has this value.
fn notify(value: u64) {
    let Some(place) = PLACES.get(value as u32 as usize) else { return };
    let what = locked(|| {
        let is_its = place.timer.load(Ordering::Relaxed) != 0
            && place.generation.load(Ordering::Relaxed) == (value >> 32) as u32;
        // SAFETY: the lock is held.
        is_its.then(|| unsafe { *place.what.get() })
    });
    let (Some(what), Ok(maker)) = (what, current()) else { return };
    let mut handle = 0u64;
    // SAFETY: the calling thread's block; a start routine of ours, which finds the guest's in its block. Without a
    // thread the expiry is lost, as with libc's.
    unsafe {
        create(maker, &raw mut handle, &raw const what.attributes, run, what.value, what.function.cast());
    }
}

/// First function of a thread that calls a timer's. As with libc's, everything is blocked for it but libc's own signals.
unsafe extern "C-unwind" fn run(value: *mut c_void) -> *mut c_void {
    set_mask(ALL_BUT_SETXID & !(1 << (SIGTIMER - 1)));
    let Ok(thread) = current() else { return core::ptr::null_mut() };
    // SAFETY: what the guest has named in its event; a union of a pointer's size is handed over like a pointer.
    unsafe {
        let function: unsafe extern "C-unwind" fn(*mut c_void) =
            core::mem::transmute(thread.start.c11.load(Ordering::Relaxed));
        function(value);
    }
    core::ptr::null_mut()
}

/// `timer_delete(2)`: nothing is called for the timer any more.
///
/// # Safety
/// As the C function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn timer_delete(timer: usize) -> c_int {
    type Function = unsafe extern "C" fn(usize) -> c_int;
    // SAFETY: libc's function of that name has this type; the guest's argument.
    let delete = || unsafe { core::mem::transmute::<*mut c_void, Function>(real::TIMER_DELETE.get())(timer) };
    // Who knows a timer's number has it from its maker: no need of the lock to see that it is none of these.
    let own = PLACES.iter().find(|place| place.timer.load(Ordering::Relaxed) == timer.wrapping_add(1));
    let Some(place) = own.filter(|_| timer != usize::MAX) else { return delete() };
    locked(|| {
        let result = delete();
        if result == 0 {
            place.timer.store(0, Ordering::Relaxed);
        }
        result
    })
}
