//! Signals that a thread has taken off the kernel's hands and that wait for its next door.

use core::sync::atomic::{AtomicU64, Ordering};

use crate::siginfo::{Info, bit};

/// One of each signal, which the kernel keeps back while one waits here (see `signal::doors`), so that none is ever too many.
const QUEUED_MAX: usize = 64;

/// Signals that wait for their thread's next door: a ring written by the handler, which runs with every
/// signal blocked, and read by the thread itself.
pub struct Queue {
    infos: [Info; QUEUED_MAX],
    /// Positions never wrap: behind a wrap a range between them is empty, and no signal ever comes again.
    head: AtomicU64,
    tail: AtomicU64,
}

impl Queue {
    /// An empty queue.
    pub const fn new() -> Queue {
        Queue { infos: [Info([0; 16]); QUEUED_MAX], head: AtomicU64::new(0), tail: AtomicU64::new(0) }
    }

    /// Adds a signal. A standard signal that waits already is one signal, as in the kernel.
    pub fn push(&mut self, info: &Info) {
        let (head, tail) = (self.head.load(Ordering::Relaxed), self.tail.load(Ordering::Relaxed));
        let waiting = (head..tail).any(|at| self.infos[at as usize % QUEUED_MAX].signal() == info.signal());
        if (waiting && info.signal() < 32) || (tail - head) as usize == QUEUED_MAX {
            return;
        }
        self.infos[tail as usize % QUEUED_MAX] = *info;
        self.tail.store(tail + 1, Ordering::Release);
    }

    /// Takes the first signal that `mask` does not block.
    pub fn take(&mut self, mask: u64) -> Option<Info> {
        let (head, tail) = (self.head.load(Ordering::Relaxed), self.tail.load(Ordering::Acquire));
        for at in head..tail {
            let info = self.infos[at as usize % QUEUED_MAX];
            if mask & bit(info.signal()) != 0 {
                continue;
            }
            // Close the gap: those before it move up by one.
            for back in (head..at).rev() {
                self.infos[(back as usize + 1) % QUEUED_MAX] = self.infos[back as usize % QUEUED_MAX];
            }
            self.head.store(head + 1, Ordering::Release);
            return Some(info);
        }
        None
    }

    /// The signals that wait, as a set.
    pub fn waiting(&self) -> u64 {
        let (head, tail) = (self.head.load(Ordering::Relaxed), self.tail.load(Ordering::Acquire));
        (head..tail).fold(0, |set, at| set | bit(self.infos[at as usize % QUEUED_MAX].signal()))
    }

    /// How many of them `mask` does not block.
    pub fn deliverable(&self, mask: u64) -> u32 {
        self.each_deliverable(mask).count() as u32
    }

    /// Those that `mask` does not block, in the order in which they came.
    pub fn each_deliverable(&self, mask: u64) -> impl Iterator<Item = i32> {
        let (head, tail) = (self.head.load(Ordering::Relaxed), self.tail.load(Ordering::Acquire));
        (head..tail)
            .map(|at| self.infos[at as usize % QUEUED_MAX].signal())
            .filter(move |signal| mask & bit(*signal) == 0)
    }
}
