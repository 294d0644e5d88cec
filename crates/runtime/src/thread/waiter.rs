//! A thread among those who wait on a condition variable.

use core::ptr::null_mut;
use core::sync::atomic::{AtomicU32, AtomicUsize, Ordering};

/// One waiting thread. In the block of its thread, which is never freed: a guest that leaves a wait by `longjmp`
/// leaves this behind in the queue.
#[repr(C)]
pub struct Waiter {
    /// What it sleeps on: 1 once it is woken.
    pub woken: AtomicU32,
    /// The condition variable; 0 while it is in no queue. Written under the bucket's lock.
    pub key: AtomicUsize,
    /// Its neighbours there. Under the same lock.
    pub next: *mut Waiter,
    /// See `next`.
    pub previous: *mut Waiter,
}

impl Waiter {
    /// In no queue.
    pub const fn new() -> Waiter {
        Waiter { woken: AtomicU32::new(0), key: AtomicUsize::new(0), next: null_mut(), previous: null_mut() }
    }

    /// Whether it is in a queue.
    pub fn is_queued(&self) -> bool {
        self.key.load(Ordering::Acquire) != 0
    }

    /// Whether somebody has woken it.
    pub fn is_woken(&self) -> bool {
        self.woken.load(Ordering::Acquire) != 0
    }
}
