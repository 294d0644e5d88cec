//! Threads that are made with a policy, a priority or processors of their own.
//!
//! libc asks the kernel for them between the making of the thread and its first instruction, in the middle of a call that is
//! one event here, and with a number that only one copy has. So libc makes the thread without, and its maker asks for them
//! behind that, by doors like any other; the thread waits for the answer before it begins.

use core::ffi::{c_int, c_void};
use core::sync::atomic::Ordering;

use super::libc_state::Family;
use super::sync::Caller;
use super::thread::{Attributes, JOINABLE, Start, slot_of};
use super::thread_create::create;
use super::thread_join::pthread_join;
use super::thread_stack::mask_in;
use super::thread_target::pthread_setschedparam;
use crate::thread::Thread;
use crate::{real, tls};

/// Held by a maker from before its thread is made until that may begin.
static BIRTH: Family = Family::new();

/// As many processors as the kernel has a bit for.
type Processors = [u64; 128];

/// What the attributes of a new thread ask of the scheduler.
struct Wanted {
    /// Policy and priority.
    policy: Option<(c_int, c_int)>,
    has_processors: bool,
}

/// Bits of the word of flags in glibc's `pthread_attr_t`.
mod flag {
    pub const EXPLICIT: u64 = 2;
    pub const PRIORITY_SET: u64 = 0x20;
    pub const POLICY_SET: u64 = 0x40;
}

/// glibc says that a thread may run everywhere where its attributes do not say anything.
fn processors_of(attributes: &Attributes, processors: &mut Processors) -> bool {
    *processors = [u64::MAX; 128];
    // SAFETY: libc's function of that name has this type.
    let told = unsafe {
        let get: unsafe extern "C" fn(*const Attributes, usize, *mut Processors) -> c_int =
            core::mem::transmute(real::PTHREAD_ATTR_GETAFFINITY_NP.get());
        get(attributes, size_of::<Processors>(), processors)
    };
    told == 0 && processors.iter().any(|word| *word != u64::MAX)
}

fn current_policy() -> (c_int, c_int) {
    let (mut policy, mut priority) = (0, 0);
    // SAFETY: libc's function of that name has this type; the calling thread's own.
    unsafe {
        let get: unsafe extern "C" fn(u64, *mut c_int, *mut c_int) -> c_int =
            core::mem::transmute(real::PTHREAD_GETSCHEDPARAM.get());
        get(tls::thread_pointer(), &raw mut policy, &raw mut priority);
    }
    (policy, priority)
}

impl Wanted {
    /// What they ask for, if anything.
    fn of(attributes: &Attributes) -> Option<Wanted> {
        let [schedule, flags, ..] = *attributes;
        let policy = (flags & flag::EXPLICIT != 0).then(|| {
            let given = ((schedule >> 32) as c_int, schedule as u32 as c_int);
            match flags & (flag::PRIORITY_SET | flag::POLICY_SET) {
                flag::POLICY_SET => (given.0, current_policy().1),
                flag::PRIORITY_SET => (current_policy().0, given.1),
                _ => given,
            }
        });
        let has_processors = processors_of(attributes, &mut [0; 128]);
        (policy.is_some() || has_processors).then_some(Wanted { policy, has_processors })
    }

    /// Asks the kernel for it.
    fn ask(&self, handle: u64, given: &Attributes) -> c_int {
        let mut processors = [0; 128];
        if self.has_processors && processors_of(given, &mut processors) {
            // Of what the kernel does not know, or this machine does not have, libc passes on what it was given.
            let words = processors.iter().rposition(|word| *word != 0).map_or(1, |last| last + 1).max(16);
            // SAFETY: libc's function of that name has this type.
            let result = unsafe {
                let set: unsafe extern "C" fn(u64, usize, *const Processors) -> c_int =
                    core::mem::transmute(real::PTHREAD_SETAFFINITY_NP.get());
                set(handle, words * 8, &raw const processors)
            };
            if result != 0 {
                return result;
            }
        }
        match self.policy {
            // SAFETY: the door of that name; a `sched_param` is a priority.
            Some((policy, priority)) => unsafe {
                pthread_setschedparam(handle, policy as u64, &raw const priority as u64, 0, 0, 0, 0, 0)
                    as c_int
            },
            None => 0,
        }
    }
}

/// The same attributes without what is asked of the scheduler. Their mask is a copy: [`discard`].
fn without_schedule(given: &Attributes) -> Attributes {
    const SCHEDULE_FLAGS: u64 = flag::EXPLICIT | flag::PRIORITY_SET | flag::POLICY_SET;
    const EXTENSION: usize = 5;
    let mut own = *given;
    own[0] = 0;
    own[1] &= !SCHEDULE_FLAGS;
    // Processors and mask lie in memory that `given` owns.
    own[EXTENSION] = 0;
    own[EXTENSION + 1] = 0;
    if let Some(mask) = mask_in(given) {
        let mut set = [0u64; 16];
        set[0] = mask;
        // SAFETY: libc's function of that name has this type.
        unsafe {
            let set_mask: unsafe extern "C" fn(*mut Attributes, *const [u64; 16]) -> c_int =
                core::mem::transmute(real::PTHREAD_ATTR_SETSIGMASK_NP.get());
            set_mask(&raw mut own, &raw const set);
        }
    }
    own
}

/// Gives back what [`without_schedule`] has allocated.
fn discard(mut own: Attributes) {
    // SAFETY: libc's function of that name has this type.
    unsafe {
        let destroy: unsafe extern "C" fn(*mut Attributes) -> c_int =
            core::mem::transmute(real::PTHREAD_ATTR_DESTROY.get());
        destroy(&raw mut own);
    }
}

/// First function of such a thread.
unsafe extern "C-unwind" fn begin(argument: *mut c_void) -> *mut c_void {
    let caller = Caller::get();
    let Some(thread) = caller.thread() else { return core::ptr::null_mut() };
    BIRTH.enter_for(&raw const BIRTH as usize);
    BIRTH.leave();
    if thread.is_stillborn.swap(false, Ordering::Acquire) {
        return core::ptr::null_mut();
    }
    // SAFETY: what [`create_scheduled`] was given.
    unsafe {
        let start: Start = core::mem::transmute(thread.start.c11.load(Ordering::Relaxed));
        start(argument)
    }
}

/// Makes a thread whose attributes ask the scheduler for something; `None` for any other.
///
/// # Safety
/// As `pthread_create`.
pub(super) unsafe fn create_scheduled(
    parent: &mut Thread,
    handle: *mut u64,
    attributes: *const Attributes,
    start: Start,
    argument: *mut c_void,
) -> Option<c_int> {
    // SAFETY: null or the guest's attributes.
    let given = unsafe { attributes.as_ref() }?;
    let wanted = Wanted::of(given)?;
    let own = without_schedule(given);
    BIRTH.enter_for(&raw const BIRTH as usize);
    let mut made = 0;
    // SAFETY: the caller's promise.
    let mut result =
        unsafe { create(parent, &raw mut made, &raw const own, begin, argument, start as *mut u8) };
    let mut leaves = false;
    if result == 0 {
        result = wanted.ask(made, given);
        let thread = slot_of(made).filter(|_| result != 0);
        if let Some(thread) = thread {
            thread.is_stillborn.store(true, Ordering::Release);
            leaves = thread.fate.load(Ordering::Acquire) == JOINABLE;
        }
        if result == 0 {
            // SAFETY: the guest's place for it.
            unsafe { *handle = made };
        }
    }
    BIRTH.leave();
    discard(own);
    if leaves {
        // SAFETY: nobody else knows it.
        unsafe { pthread_join(made, core::ptr::null_mut()) };
    }
    Some(result)
}
