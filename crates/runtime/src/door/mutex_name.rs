//! The names of mutexes in the log: a ticket says which acquisition is meant, not of which mutex.

use core::sync::atomic::{AtomicU16, Ordering};

use us_abi::event::MUTEX_NAMES;

use super::mutex::Mutex;

/// Names given to mutexes, and none of two after each other the same.
static LAST_NAME: AtomicU16 = AtomicU16::new(0);

impl Mutex {
    /// Its name, 0 for none. A program that copies bytes of its own over a mutex has them in all copies.
    #[inline(always)]
    pub(super) fn known_name(&self) -> u16 {
        self.name.load(Ordering::Relaxed) as u16 & MUTEX_NAMES
    }

    /// The name under which the log knows it from here on. Those that processes share have none: its place is everybody's.
    #[cold]
    #[inline(never)]
    pub(super) fn give_name(&self) -> u16 {
        if self.shared() {
            return 0;
        }
        let name = LAST_NAME.fetch_add(1, Ordering::Relaxed) % MUTEX_NAMES + 1;
        self.name.store(name.into(), Ordering::Relaxed);
        name
    }

    /// As a standby: whether the log's next acquisition can be this mutex's.
    pub(super) fn is_named(&self, name: u16) -> bool {
        let known = self.known_name();
        known == 0 || name == 0 || known == name || self.shared()
    }

    /// As a standby, with the mutex: what the log calls it.
    pub(super) fn take_name(&self, name: u16) {
        if name != 0 && self.known_name() == 0 {
            self.name.store(name.into(), Ordering::Relaxed);
            // Where this copy goes on by itself.
            LAST_NAME.store(name, Ordering::Relaxed);
        }
    }
}
