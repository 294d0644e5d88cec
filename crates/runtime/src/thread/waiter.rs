//! A thread among those who wait on a condition variable.

use core::ptr::null_mut;
use core::sync::atomic::{AtomicPtr, AtomicU32, AtomicUsize, Ordering};

/// One waiting thread. In the block of its thread, which is never freed: a guest that leaves a wait by `longjmp`
/// leaves this behind in the queue.
#[repr(C)]
pub struct Waiter {
    /// What it sleeps on: 1 once it is woken.
    pub woken: AtomicU32,
    /// The condition variable; 0 while it is in no queue. Written under the bucket's lock.
    pub key: AtomicUsize,
    next: AtomicPtr<Waiter>,
    previous: AtomicPtr<Waiter>,
}

impl Waiter {
    /// In no queue.
    pub const fn new() -> Waiter {
        Waiter {
            woken: AtomicU32::new(0),
            key: AtomicUsize::new(0),
            next: AtomicPtr::new(null_mut()),
            previous: AtomicPtr::new(null_mut()),
        }
    }

    /// As it was in the beginning: in a forked child, which has none of these queues.
    pub fn reset(&self) {
        self.woken.store(0, Ordering::Relaxed);
        self.key.store(0, Ordering::Relaxed);
        self.links(null_mut(), null_mut());
    }

    /// Whether it is in a queue.
    pub fn is_queued(&self) -> bool {
        self.key.load(Ordering::Acquire) != 0
    }

    /// Whether somebody has woken it.
    pub fn is_woken(&self) -> bool {
        self.woken.load(Ordering::Acquire) != 0
    }

    /// Its neighbour in the queue that came after it. Under the bucket's lock.
    pub fn next(&self) -> *mut Waiter {
        self.next.load(Ordering::Relaxed)
    }

    /// The one that came before it. Under the same lock.
    pub fn previous(&self) -> *mut Waiter {
        self.previous.load(Ordering::Relaxed)
    }

    /// Sets the neighbour that came after it. Under the same lock.
    pub fn set_next(&self, next: *mut Waiter) {
        self.next.store(next, Ordering::Relaxed);
    }

    /// Sets the neighbour that came before it. Under the same lock.
    pub fn set_previous(&self, previous: *mut Waiter) {
        self.previous.store(previous, Ordering::Relaxed);
    }

    /// Sets both.
    pub fn links(&self, previous: *mut Waiter, next: *mut Waiter) {
        self.set_previous(previous);
        self.set_next(next);
    }
}
