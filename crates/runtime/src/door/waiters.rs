//! Who waits on which condition variable of this process, in the order in which they came.
//!
//! The queue is a standby's as much as a primary's: a standby's waiter joins it before it releases the mutex, and a
//! standby's signal takes the first out of it. Whoever is promoted inside a wait therefore knows whether it has
//! been woken, and if not it waits on. Programs exist that take every return from a wait for a signal
//! (memcached doubles its hash table), and glibc practically never returns without one.
//!
//! Nothing here touches the guest's object: it may be destroyed and freed as soon as its waiters are woken.

use core::cell::UnsafeCell;
use core::ptr::null_mut;
use core::sync::atomic::{AtomicU32, Ordering};

use super::sync;
use crate::lock::Lock;
use crate::thread::waiter::Waiter;

#[repr(C, align(64))]
struct Bucket {
    /// 0 free, 1 taken, 2 taken and somebody sleeps on it.
    lock: Lock,
    /// Waiters in the queue: what a signal for nobody looks at.
    count: AtomicU32,
    queue: UnsafeCell<Queue>,
}

struct Queue {
    first: *mut Waiter,
    last: *mut Waiter,
}

// SAFETY: the queue is touched under the lock only.
unsafe impl Sync for Bucket {}

const BUCKETS: usize = 256;
static TABLE: [Bucket; BUCKETS] = [const {
    Bucket {
        lock: Lock::new(),
        count: AtomicU32::new(0),
        queue: UnsafeCell::new(Queue { first: null_mut(), last: null_mut() }),
    }
}; BUCKETS];

fn bucket(key: usize) -> &'static Bucket {
    &TABLE[(key as u64 >> 3).wrapping_mul(0x9e37_79b9_7f4a_7c15) as usize >> 56]
}

impl Bucket {
    /// Runs `act` on the queue. No thread is parked in here: this is neither guest code nor a wait that came back.
    fn with<T>(&self, act: impl FnOnce(&mut Queue) -> T) -> T {
        // SAFETY: the lock is held.
        self.lock.with(|| act(unsafe { &mut *self.queue.get() }))
    }

    /// # Safety
    /// Under the lock; `waiter` is in this bucket's queue.
    unsafe fn take_out(&self, queue: &mut Queue, waiter: *mut Waiter) {
        // SAFETY: its neighbours are in the queue, so alive and unchanged under the lock.
        unsafe {
            let (previous, next) = ((*waiter).previous(), (*waiter).next());
            match previous.as_ref() {
                None => queue.first = next,
                Some(previous) => previous.set_next(next),
            }
            match next.as_ref() {
                None => queue.last = previous,
                Some(next) => next.set_previous(previous),
            }
            (*waiter).key.store(0, Ordering::Relaxed);
        }
        self.count.fetch_sub(1, Ordering::SeqCst);
    }
}

/// Joins the queue of the condition variable at `key`, while the mutex is held: a signal that is sent under it
/// later finds the waiter, in every copy.
///
/// # Safety
/// `waiter` is the calling thread's and stays where it is until [`leave`].
pub unsafe fn join(key: usize, waiter: *mut Waiter) {
    // A wait that was left by `longjmp`, or one around a signal handler that waits as well: its thread finds itself
    // woken.
    // SAFETY: the caller's.
    unsafe { leave(waiter) };
    let bucket = bucket(key);
    bucket.with(|queue| {
        // SAFETY: the caller's waiter, in no queue; the last one is alive under the lock.
        unsafe {
            (*waiter).woken.store(0, Ordering::Relaxed);
            (*waiter).key.store(key, Ordering::Relaxed);
            (*waiter).links(queue.last, null_mut());
            match queue.last.as_ref() {
                None => queue.first = waiter,
                Some(last) => last.set_next(waiter),
            }
        }
        queue.last = waiter;
        bucket.count.fetch_add(1, Ordering::SeqCst);
    });
}

/// Leaves the queue, if nobody has taken the waiter out of it. True: somebody has, it was woken.
///
/// # Safety
/// `waiter` is the calling thread's.
pub unsafe fn leave(waiter: *mut Waiter) -> bool {
    // SAFETY: the caller's; only its own thread sets a key.
    let key = unsafe { &*waiter }.key.load(Ordering::Relaxed);
    if key != 0 {
        let bucket = bucket(key);
        bucket.with(|queue| {
            // SAFETY: still there under the lock, so in the queue.
            unsafe {
                if (*waiter).key.load(Ordering::Relaxed) != 0 {
                    bucket.take_out(queue, waiter);
                }
            }
        });
    }
    // SAFETY: as above.
    unsafe { &*waiter }.is_woken()
}

/// Wakes up to `count` of those who wait at `key`, the oldest first.
#[inline]
pub fn notify(key: usize, count: u32) {
    // A waiter has counted itself before it released the mutex.
    if bucket(key).count.load(Ordering::SeqCst) != 0 {
        notify_some(key, count);
    }
}

#[cold]
#[inline(never)]
fn notify_some(key: usize, mut count: u32) {
    const AT_ONCE: usize = 32;
    loop {
        let mut words: [*const u32; AT_ONCE] = [core::ptr::null(); AT_ONCE];
        let found = bucket(key).with(|queue| take_first(bucket(key), queue, key, &mut words, count));
        // Their threads may be gone by now: then there is nobody at these addresses, and no harm.
        for word in &words[..found] {
            sync::wake(*word, 1, false);
        }
        count -= found as u32;
        if found < AT_ONCE || count == 0 {
            return;
        }
    }
}

/// Takes up to `count` waiters of `key` out, marks them as woken, and notes what they sleep on.
fn take_first(bucket: &Bucket, queue: &mut Queue, key: usize, words: &mut [*const u32], count: u32) -> usize {
    let (mut at, mut found) = (queue.first, 0);
    while !at.is_null() && found < words.len().min(count as usize) {
        // SAFETY: in the queue and under the lock, so alive; its successor is read before anybody may use it again.
        unsafe {
            let next = (*at).next();
            if (*at).key.load(Ordering::Relaxed) == key {
                bucket.take_out(queue, at);
                words[found] = (*at).woken.as_ptr();
                found += 1;
                (*at).woken.store(1, Ordering::Release);
            }
            at = next;
        }
    }
    found
}

/// In the child of a fork: its one thread waits for nothing, and the others are not there.
pub fn reset() {
    for bucket in &TABLE {
        bucket.count.store(0, Ordering::Relaxed);
        // SAFETY: the only thread of the process.
        unsafe { *bucket.queue.get() = Queue { first: null_mut(), last: null_mut() } };
    }
}
