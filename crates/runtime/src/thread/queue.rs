//! Signals that a thread has taken off the kernel's hands and that wait for its next door.

use core::sync::atomic::{AtomicU64, Ordering};

use crate::siginfo::{Info, bit};

/// One of each signal, which the kernel keeps back while one waits here (see `signal::doors`), so that none is ever too many.
const QUEUED_MAX: usize = 64;

/// Signals that wait for their thread's next door: a ring written by the handler, which runs with every
/// signal blocked, and read by the thread itself. The handler interrupts the thread that reads, so all of it is words that
/// are read and written whole.
pub struct Queue {
    infos: [Kept; QUEUED_MAX],
    /// Positions never wrap: behind a wrap a range between them is empty, and no signal ever comes again.
    head: AtomicU64,
    tail: AtomicU64,
}

/// One signal.
struct Kept([AtomicU64; 16]);

impl Kept {
    fn get(&self) -> Info {
        let mut info = Info([0; 16]);
        info.0.iter_mut().zip(&self.0).for_each(|(to, from)| *to = from.load(Ordering::Relaxed));
        info
    }

    fn set(&self, info: &Info) {
        self.0.iter().zip(info.0).for_each(|(to, from)| to.store(from, Ordering::Relaxed));
    }
}

impl Queue {
    /// An empty queue.
    pub const fn new() -> Queue {
        Queue {
            infos: [const { Kept([const { AtomicU64::new(0) }; 16]) }; QUEUED_MAX],
            head: AtomicU64::new(0),
            tail: AtomicU64::new(0),
        }
    }

    /// Empties it: its slot gets another thread.
    pub fn reset(&self) {
        self.head.store(0, Ordering::Relaxed);
        self.tail.store(0, Ordering::Release);
    }

    fn at(&self, position: u64) -> &Kept {
        &self.infos[position as usize % QUEUED_MAX]
    }

    /// Adds a signal. A standard signal that waits already is one signal, as in the kernel.
    pub fn push(&self, info: &Info) {
        let (head, tail) = (self.head.load(Ordering::Relaxed), self.tail.load(Ordering::Relaxed));
        let waiting = (head..tail).any(|at| self.at(at).get().signal() == info.signal());
        if (waiting && info.signal() < 32) || (tail - head) as usize == QUEUED_MAX {
            return;
        }
        self.at(tail).set(info);
        self.tail.store(tail + 1, Ordering::Release);
    }

    /// Takes the first signal that `mask` does not block.
    pub fn take(&self, mask: u64) -> Option<Info> {
        let (head, tail) = (self.head.load(Ordering::Relaxed), self.tail.load(Ordering::Acquire));
        for at in head..tail {
            let info = self.at(at).get();
            if mask & bit(info.signal()) != 0 {
                continue;
            }
            // Close the gap: those before it move up by one.
            for back in (head..at).rev() {
                self.at(back + 1).set(&self.at(back).get());
            }
            self.head.store(head + 1, Ordering::Release);
            return Some(info);
        }
        None
    }

    /// The signals that wait, as a set.
    pub fn waiting(&self) -> u64 {
        let (head, tail) = (self.head.load(Ordering::Relaxed), self.tail.load(Ordering::Acquire));
        (head..tail).fold(0, |set, at| set | bit(self.at(at).get().signal()))
    }

    /// How many of them `mask` does not block.
    pub fn deliverable(&self, mask: u64) -> u32 {
        self.each_deliverable(mask).count() as u32
    }

    /// Those that `mask` does not block, in the order in which they came.
    pub fn each_deliverable(&self, mask: u64) -> impl Iterator<Item = i32> {
        let (head, tail) = (self.head.load(Ordering::Relaxed), self.tail.load(Ordering::Acquire));
        (head..tail).map(|at| self.at(at).get().signal()).filter(move |signal| mask & bit(*signal) == 0)
    }
}
