//! Work that needs a descriptor for a moment, in a thread with a table of its own: in the guest's one somebody might see it,
//! and a standby must not touch that at all.

use core::sync::atomic::{AtomicI64, AtomicU32, Ordering};

use crate::fdtable;
use crate::lock::Lock;
use crate::raw::{self, nr};
use crate::sys::gate;
use crate::thread::Stack;

/// One at a time.
static BUSY: Lock = Lock::new();
static STACK: Stack = Stack::new();
/// Futex: 1 once the work is done.
static DONE: AtomicU32 = AtomicU32::new(0);
static RESULT: AtomicI64 = AtomicI64::new(0);
/// 1 while a thread is on the stack; the kernel clears it.
static ON_STACK: AtomicU32 = AtomicU32::new(0);

/// What is to be done: a function and its argument.
struct Job<'a> {
    work: fn(&mut dyn FnMut() -> i64) -> i64,
    given: &'a mut dyn FnMut() -> i64,
}

extern "C" fn run(job: u64) {
    // SAFETY: the caller's job, which it keeps until it is done.
    let job = unsafe { &mut *(job as *mut Job) };
    let result = match fdtable::leave() {
        0 => (job.work)(job.given),
        error => error,
    };
    RESULT.store(result, Ordering::Relaxed);
    DONE.store(1, Ordering::Release);
    raw::futex_wake(&DONE, 1);
}

/// Does `work` there, and gives its result back; an error if there can be no such thread.
pub fn with_own_table(mut work: impl FnMut() -> i64) -> i64 {
    // VM FS FILES SIGHAND THREAD SYSVSEM CHILD_CLEARTID
    const CLONE: u64 = 0x100 | 0x200 | 0x400 | 0x800 | 0x1_0000 | 0x4_0000 | 0x20_0000;
    BUSY.take();
    DONE.store(0, Ordering::Relaxed);
    let mut job = Job { work: |given| given(), given: &mut work };
    // It has the caller's thread-local storage: a signal there would be taken for the caller's.
    let blocked = u64::MAX;
    let mut mask = 0u64;
    // SAFETY: a thread on its own stack that inherits a mask with every signal blocked; the job outlives it.
    let made = unsafe {
        raw::call4(nr::RT_SIGPROCMASK, 2, &raw const blocked as u64, &raw mut mask as u64, 8);
        ON_STACK.store(1, Ordering::Release);
        let made = gate::spawn(CLONE, STACK.top(), run, &raw mut job as u64, &raw const ON_STACK);
        raw::call4(nr::RT_SIGPROCMASK, 2, &raw const mask as u64, 0, 8);
        made
    };
    while made > 0 && DONE.load(Ordering::Acquire) == 0 {
        raw::futex_wait(&DONE, 0, 0);
    }
    // The next one's stack is the same, and a copy that is forked meanwhile would wait for a thread that it has not.
    // Nor may the program see it.
    raw::await_end(if made > 0 { made as u32 } else { 0 });
    let result = if made > 0 { RESULT.load(Ordering::Relaxed) } else { made };
    BUSY.give();
    result
}
