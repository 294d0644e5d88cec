//! Whose turn it is where the order is computed: logical time.
//!
//! Each thread has a clock, which what it does itself moves on and nothing else: no time, no processor. Of those that can go
//! on the one with the least clock has the turn, and of equal clocks the one with the lower slot. So the order is the same in
//! every run in which the threads do the same, and no log need say it.
//!
//! A thread that waits for another one's doing leaves the race, and that other one puts it back, in its own turn: behind itself.
//! The same goes for a new thread. A thread that waits for the world comes back behind whoever has had the last turn: when that is
//! the world decides. Nobody ever comes back before the one who has the turn.
//!
//! | a thread | its clock | others |
//! |---|---|---|
//! | goes on | counts | wait for it, if theirs is greater |
//! | sleeps for another one | stands | do not wait for it |
//! | sleeps until a time | is the time's | as for one that goes on |
//! | is away, in the world | stands | do not wait for it |

/// Logical time.
pub type Clock = u64;

/// Bits of a rank for the slot.
const SLOT_BITS: u32 = 16;
/// No clock is greater than this.
const CLOCK_MAX: Clock = (1 << (64 - SLOT_BITS)) - 2;
/// Queues of sleepers.
const QUEUES: usize = 256;

/// Where a thread is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum At {
    /// Nowhere: there is no such thread.
    #[default]
    Gone,
    /// In the race: it computes, or waits for its turn.
    Here,
    /// In the world: in a call that waits for what is outside, or passed over.
    Away,
    /// It sleeps until somebody wakes those at this key, and perhaps until a time.
    Asleep {
        /// What it sleeps on.
        key: u64,
        /// Whether it is in the race meanwhile, at a later time.
        is_timed: bool,
    },
}

/// [`At`] in numbers: the memory of threads that there are not is all zero.
const GONE: u8 = 0;
const HERE: u8 = 1;
const AWAY: u8 = 2;
const ASLEEP: u8 = 3;
const TIMED: u8 = 4;

/// The clocks of up to `N` threads. All zero is none.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Logical<const N: usize> {
    /// Of each thread: where it is.
    place: [u8; N],
    /// What it sleeps on.
    key: [u64; N],
    /// Its clock: of one that sleeps until a time the clock that it had before.
    clock: [Clock; N],
    /// A tournament: the leaves. The greatest rank has the least clock; 0 is not in the race.
    leaves: [u64; N],
    /// Its inner nodes, each the greater of its two; the first one is unused.
    nodes: [u64; N],
    /// Sleepers by their keys, the first to come first: slots from 1, 0 for nobody.
    first: [u16; QUEUES],
    last: [u16; QUEUES],
    next: [u16; N],
    /// The greatest clock that has had a turn.
    now: Clock,
    /// How many sleep.
    asleep: u32,
}

/// Of a thread in the race: the greater, the earlier.
const fn rank(clock: Clock, slot: usize) -> u64 {
    !(clock << SLOT_BITS | slot as u64)
}

const fn queue_of(key: u64) -> usize {
    (key >> 2).wrapping_mul(0x9e37_79b9_7f4a_7c15) as usize >> 56
}

impl<const N: usize> Logical<N> {
    /// Nobody.
    #[allow(clippy::new_without_default, reason = "const only")]
    #[must_use]
    pub const fn new() -> Logical<N> {
        const { assert!(N.is_power_of_two() && N < 1 << SLOT_BITS) };
        Logical {
            place: [GONE; N],
            key: [0; N],
            clock: [0; N],
            leaves: [0; N],
            nodes: [0; N],
            first: [0; QUEUES],
            last: [0; QUEUES],
            next: [0; N],
            now: 0,
            asleep: 0,
        }
    }

    /// Where a thread is.
    #[must_use]
    pub fn at(&self, slot: usize) -> At {
        match self.place[slot] {
            HERE => At::Here,
            AWAY => At::Away,
            ASLEEP => At::Asleep { key: self.key[slot], is_timed: false },
            TIMED => At::Asleep { key: self.key[slot], is_timed: true },
            _ => At::Gone,
        }
    }

    /// A thread's clock.
    #[must_use]
    pub fn clock(&self, slot: usize) -> Clock {
        self.clock[slot]
    }

    /// The clock with which it is in the race: of one that sleeps until a time that one's. 0 if it is not.
    #[must_use]
    pub fn due(&self, slot: usize) -> Clock {
        if self.leaves[slot] == 0 { 0 } else { !self.leaves[slot] >> SLOT_BITS }
    }

    /// Whether a thread in the race comes before another one.
    #[must_use]
    pub fn is_before(&self, slot: usize, other: usize) -> bool {
        self.leaves[slot] > self.leaves[other]
    }

    /// The thread whose turn it is, or will be once it comes for it.
    #[must_use]
    pub fn least(&self) -> Option<usize> {
        let top = if N == 1 { self.leaves[0] } else { self.nodes[1] };
        (top != 0).then_some((!top & ((1 << SLOT_BITS) - 1)) as usize)
    }

    /// The clock behind all turns that there have been.
    #[must_use]
    pub fn behind_all(&self) -> Clock {
        self.now + 1
    }

    /// A thread is made, by one that has the turn: it comes behind that.
    pub fn enter(&mut self, slot: usize) {
        self.leave_queue(slot);
        self.put(slot, self.behind_all());
    }

    /// A thread has ended, or it could not be made.
    pub fn exit(&mut self, slot: usize) {
        self.leave_queue(slot);
        self.place[slot] = GONE;
        self.set(slot, 0);
    }

    /// Has the turn begin, if it is this thread's.
    pub fn begin(&mut self, slot: usize) -> bool {
        let is_its = self.place[slot] == HERE && self.least() == Some(slot);
        if is_its {
            self.now = self.now.max(self.clock[slot]);
        }
        is_its
    }

    /// Moves a thread's own clock on: behind what it has done in its turn, or where it says how much it has computed.
    pub fn tick(&mut self, slot: usize, count: u64) {
        if self.place[slot] == HERE {
            self.put(slot, self.clock[slot].saturating_add(count));
        } else {
            self.clock[slot] = self.clock[slot].saturating_add(count).min(CLOCK_MAX);
        }
    }

    /// Goes into the world: nobody waits for it.
    pub fn leave(&mut self, slot: usize) {
        self.leave_queue(slot);
        self.place[slot] = AWAY;
        self.set(slot, 0);
    }

    /// Is back from there, or has woken for what nobody of the threads has done. Behind the last turn: an earlier place may have
    /// been passed.
    pub fn come_back(&mut self, slot: usize) {
        let clock = self.clock[slot].max(self.behind_all());
        self.leave_queue(slot);
        self.put(slot, clock);
    }

    /// In a copy that follows: this thread begins a turn with this clock, as the log says. When it came back from the world was for
    /// the one that acts to decide.
    pub fn follow(&mut self, slot: usize, clock: Clock) {
        self.put_back(slot, clock);
        self.now = self.now.max(clock);
    }

    /// In a copy that takes over: a thread that was in the world is here, with this clock.
    pub fn put_back(&mut self, slot: usize, clock: Clock) {
        self.leave_queue(slot);
        self.put(slot, clock);
    }

    /// How many threads sleep.
    #[must_use]
    pub fn asleep(&self) -> u32 {
        self.asleep
    }

    /// By one that has the turn: sleeps until it is woken, and if `ticks` are given not longer than those.
    pub fn sleep(&mut self, slot: usize, key: u64, ticks: Option<u64>) {
        self.leave_queue(slot);
        self.place[slot] = if ticks.is_some() { TIMED } else { ASLEEP };
        self.key[slot] = key;
        self.asleep += 1;
        let until = |ticks: u64| self.clock[slot].saturating_add(ticks).min(CLOCK_MAX);
        self.set(slot, ticks.map_or(0, |ticks| rank(until(ticks), slot)));
        let (queue, own) = (queue_of(key), slot as u16 + 1);
        self.next[slot] = 0;
        match self.last[queue] {
            0 => self.first[queue] = own,
            last => self.next[usize::from(last) - 1] = own,
        }
        self.last[queue] = own;
    }

    /// The same of one whose time has come, if it is its turn.
    pub fn begin_in_time(&mut self, slot: usize) -> bool {
        if self.place[slot] != TIMED || self.least() != Some(slot) {
            return false;
        }
        let clock = self.due(slot);
        self.leave_queue(slot);
        self.put(slot, clock);
        self.now = self.now.max(clock);
        true
    }

    /// Wakes the first of those who sleep at a key, behind whoever has the turn. `None` if nobody does.
    pub fn wake(&mut self, key: u64) -> Option<usize> {
        let mut at = self.first[queue_of(key)];
        while at != 0 {
            let slot = usize::from(at) - 1;
            if self.is_asleep(slot) && self.key[slot] == key {
                self.come_back(slot);
                return Some(slot);
            }
            at = self.next[slot];
        }
        None
    }

    fn is_asleep(&self, slot: usize) -> bool {
        matches!(self.place[slot], ASLEEP | TIMED)
    }

    /// Into the race, at this time.
    fn put(&mut self, slot: usize, clock: Clock) {
        let clock = clock.min(CLOCK_MAX);
        (self.place[slot], self.clock[slot]) = (HERE, clock);
        self.set(slot, rank(clock, slot));
    }

    /// Changes a leaf of the tournament, and the nodes above it.
    fn set(&mut self, slot: usize, rank: u64) {
        self.leaves[slot] = rank;
        let mut node = (N + slot) / 2;
        while node != 0 {
            let below = |child: usize| if child >= N { self.leaves[child - N] } else { self.nodes[child] };
            let greater = below(2 * node).max(below(2 * node + 1));
            self.nodes[node] = greater;
            node /= 2;
        }
    }

    /// Takes a thread out of the queue in which it sleeps.
    fn leave_queue(&mut self, slot: usize) {
        if !self.is_asleep(slot) {
            return;
        }
        let (queue, own) = (queue_of(self.key[slot]), slot as u16 + 1);
        let (mut before, mut at) = (0, self.first[queue]);
        while at != own {
            if at == 0 {
                return;
            }
            (before, at) = (at, self.next[usize::from(at) - 1]);
        }
        let next = self.next[slot];
        match before {
            0 => self.first[queue] = next,
            before => self.next[usize::from(before) - 1] = next,
        }
        if self.last[queue] == own {
            self.last[queue] = before;
        }
        self.next[slot] = 0;
        self.place[slot] = AWAY;
        self.asleep -= 1;
    }
}

/// Ticks in a millisecond: what a wait until a time is in logical time. So many turns a thread may have in that.
pub const TICKS_IN_MS: u64 = 1_000;

/// A wait of that many nanoseconds, in ticks. By whole milliseconds: how long a wait until a point in time is, a look at a clock says,
/// and that is never the same twice.
#[must_use]
pub const fn ticks(wait_ns: u64) -> u64 {
    wait_ns.div_ceil(1_000_000).saturating_mul(TICKS_IN_MS)
}

/// Ticks of one that wakes others: they come before it. A thread that gives a lock back and takes it again at once would have it
/// each time that the one it has woken looks, and for good, since nothing else ever makes that come earlier.
pub const WAKES: u64 = 1;

/// Doors that a thread passes in one turn, where threads run one at a time: then it lets the next one.
pub const DOORS: u32 = 64;

#[cfg(test)]
mod tests {
    use super::*;

    fn four() -> Logical<4> {
        let mut times = Logical::new();
        (0..4).for_each(|slot| times.enter(slot));
        times
    }

    #[test]
    fn the_least_clock_goes_first_and_of_equal_ones_the_lower_slot() {
        let mut times = four();
        assert_eq!(times.least(), Some(0));
        times.tick(0, 5);
        assert!(!times.begin(0) && times.begin(1));
        times.tick(1, 5);
        times.tick(2, 5);
        times.tick(3, 4);
        assert_eq!(times.least(), Some(3));
        times.tick(3, 1);
        assert_eq!(times.least(), Some(0));
    }

    #[test]
    fn nobody_waits_for_one_that_is_away_and_it_comes_back_behind_the_last_turn() {
        let mut times = four();
        times.leave(0);
        times.tick(1, 10);
        assert!(times.begin(2));
        times.tick(2, 20);
        times.tick(3, 20);
        assert!(times.begin(1));
        times.come_back(0);
        assert_eq!((times.clock(0), times.least()), (12, Some(1)), "not before who has the turn");
    }

    #[test]
    fn sleepers_wake_in_the_order_in_which_they_came() {
        let mut times = four();
        times.sleep(2, 64, None);
        times.sleep(0, 64, None);
        times.sleep(1, 128, None);
        assert!(times.begin(3));
        assert_eq!((times.wake(64), times.wake(64), times.wake(64)), (Some(2), Some(0), None));
        assert_eq!(times.wake(128), Some(1));
        assert_eq!(times.least(), Some(3));
        times.tick(3, 1);
        assert_eq!(times.least(), Some(0), "all at one time: the lower slot");
    }

    #[test]
    fn who_takes_a_lock_again_and_again_leaves_it_to_the_one_that_it_wakes() {
        // One holds the lock in every second turn of its own; the other looks in a turn of its own whenever it has been woken.
        let rounds = |ticks_of_waker: u64| {
            let mut times = Logical::<2>::new();
            times.enter(0);
            times.enter(1);
            let mut is_held = false;
            for round in 0..1000 {
                let slot = times.least().unwrap();
                assert!(times.begin(slot));
                match (slot, is_held) {
                    (1, true) => times.sleep(1, 64, None),
                    (1, false) => return Some(round),
                    _ => {
                        is_held = !is_held;
                        let woken = !is_held && times.wake(64).is_some();
                        times.tick(0, 1 + if woken { ticks_of_waker } else { 0 });
                    }
                }
            }
            None
        };
        assert_eq!(rounds(0), None);
        assert!(rounds(WAKES).is_some_and(|round| round < 8));
    }

    #[test]
    fn a_wait_until_a_time_is_passed_by_nobody() {
        let mut times = four();
        times.sleep(0, 64, Some(10));
        (1..4).for_each(|slot| times.tick(slot, 10));
        assert!(times.begin_in_time(0) && times.at(0) == At::Here && times.clock(0) == 11);
        assert_eq!(times.wake(64), None);
        times.sleep(0, 64, Some(10));
        assert!(times.begin(1) && !times.begin_in_time(0));
        assert_eq!(times.wake(64), Some(0));
        assert!(!times.begin_in_time(0) && times.clock(0) == 12);
    }

    /// What a list of all threads says, against the tournament.
    #[test]
    fn the_tournament_is_the_least_of_all() {
        let (mut times, mut seed) = (Logical::<64>::new(), 7u64);
        let mut draw = |below: u64| {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (seed >> 33) % below
        };
        for _ in 0..20_000 {
            let slot = draw(64) as usize;
            match (draw(8), times.at(slot)) {
                (_, At::Gone) => times.enter(slot),
                (0, _) => times.exit(slot),
                (1, _) => times.leave(slot),
                (2, At::Here) => times.sleep(slot, draw(4) * 64, None),
                (3, _) => _ = times.wake(draw(4) * 64),
                (4, _) => times.come_back(slot),
                (5, At::Here) => _ = times.begin(slot),
                _ => times.tick(slot, draw(9)),
            }
            let here = |slot: &usize| times.at(*slot) == At::Here;
            let least = (0..64).filter(here).min_by_key(|slot| (times.clock(*slot), *slot));
            assert_eq!(times.least(), least);
        }
    }

    #[test]
    fn waits_are_counted_in_whole_milliseconds() {
        assert_eq!((ticks(0), ticks(1), ticks(1_000_000), ticks(1_000_001)), (0, 1000, 1000, 2000));
        assert!(ticks(u64::MAX) > ticks(1_000_000_000));
    }
}
