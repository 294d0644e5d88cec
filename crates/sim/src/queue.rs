//! Who waits on a condition, in the order in which they came.
//!
//! A waiter that is in no queue any more has been woken: nothing else marks it.

use crate::program::Op;
use crate::world::SLOTS;

/// The waiting slots plus one, the oldest first; 0 behind the last.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Queue([u8; SLOTS]);

impl Queue {
    /// True if this slot's thread waits here.
    #[must_use]
    pub fn has(&self, t: usize) -> bool {
        self.0.contains(&place(t))
    }

    /// Takes the last place. A thread has one place only: it may have left an earlier one behind.
    pub fn join(&mut self, t: usize) {
        self.leave(t);
        let free = self.0.iter().position(|&p| p == 0).expect("a place for every slot");
        self.0[free] = place(t);
    }

    /// Leaves; false if somebody has taken the thread out, because it was woken.
    pub fn leave(&mut self, t: usize) -> bool {
        let found = self.0.iter().position(|&p| p == place(t));
        if let Some(at) = found {
            self.0[at..].rotate_left(1);
            self.0[SLOTS - 1] = 0;
        }
        found.is_some()
    }

    /// Wakes as a signal or broadcast does: the oldest, or all.
    pub fn wake(&mut self, op: Op) {
        match op {
            Op::Broadcast(_) => *self = Self::default(),
            _ => self.wake_one(),
        }
    }

    /// Wakes the oldest.
    pub fn wake_one(&mut self) {
        self.0[0] = 0;
        self.0.rotate_left(1);
    }

    /// What is left over for each way in which POSIX lets a wake-up choose.
    #[must_use]
    pub fn wake_all_ways(self, op: Op) -> Vec<Self> {
        let one_each = || {
            (0..SLOTS).filter(|&t| self.has(t)).map(|t| {
                let mut left = self;
                left.leave(t);
                left
            })
        };
        match op {
            Op::Signal(_) if self != Self::default() => one_each().collect(),
            _ => vec![Self::default()],
        }
    }
}

fn place(t: usize) -> u8 {
    u8::try_from(t).expect("few slots") + 1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_is_woken_first() {
        let mut queue = Queue::default();
        [2, 0, 3].into_iter().for_each(|t| queue.join(t));
        queue.wake(Op::Signal(0));
        assert!(!queue.has(2) && queue.has(0) && queue.has(3));
        queue.join(0);
        assert!(queue.leave(3) && !queue.leave(3));
        assert_eq!(queue.wake_all_ways(Op::Signal(0)), [Queue::default()]);
        queue.wake(Op::Broadcast(0));
        assert_eq!(queue, Queue::default());
    }

    #[test]
    fn a_place_left_behind_is_given_up() {
        let mut queue = Queue::default();
        [1, 2, 1].into_iter().for_each(|t| queue.join(t));
        queue.wake_one();
        assert!(queue.has(1) && !queue.has(2));
    }

    #[test]
    fn natively_anybody_may_be_woken() {
        let mut queue = Queue::default();
        [1, 2].into_iter().for_each(|t| queue.join(t));
        let left = queue.wake_all_ways(Op::Signal(0));
        assert_eq!(
            left.iter().map(|q| (q.has(1), q.has(2))).collect::<Vec<_>>(),
            [(false, true), (true, false)]
        );
        assert_eq!(queue.wake_all_ways(Op::Broadcast(0)).len(), 1);
    }
}
