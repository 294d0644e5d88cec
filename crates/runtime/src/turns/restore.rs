//! The race of [`crate::turns::logical`], made anew by a copy that takes over.

use core::sync::atomic::Ordering;

use us_abi::THREADS_MAX;
use us_order::logical::{At, Logical};

use crate::guest::{GuestMut, GuestPtr};
use crate::turns::logical::{HAS_BEGUN, LEAST, NOBODY, OWNER, RACE, SLEEPS, WATCHER, place};
use crate::{state, thread};

/// At a promotion, before anybody is live: the race as the dead primary has left it. `owner` has the last turn that the log knows. In
/// that turn its thread here may have come further than there: what it has changed shows whom it would have woken.
pub fn restore(owner: Option<u32>) {
    if !HAS_BEGUN.load(Ordering::Relaxed) || !state::is_computed() {
        return;
    }
    // SAFETY: nobody of this copy has touched the clocks, or does before this has ended.
    let times = unsafe { &mut *RACE.times.get() };
    *times = Logical::new();
    times.has_been(state::header().map_or(0, |header| header.logical_now.load(Ordering::Relaxed)));
    let mut asleep = 0;
    each(|slot| asleep += u32::from(put_back(times, slot, owner)));
    // The segment may know of a place what the log does not yet: two would have the turn at once.
    if let Some(owner) = owner {
        let owner = owner as usize;
        each(|slot| {
            if slot as usize != owner && times.is_before(slot as usize, owner) {
                times.has_been(times.clock(owner));
                times.come_back(slot as usize);
            }
        });
    }
    // In the order in which they fell asleep: their number is small where this is long.
    let mut after = None;
    for _ in 0..asleep {
        let mut first: Option<(u64, u32)> = None;
        each(|slot| {
            let order = state::entry(slot).logical[2].load(Ordering::Relaxed);
            let is_next =
                after.is_none_or(|after| order > after) && first.is_none_or(|(least, _)| order < least);
            if is_next && owner != Some(slot) && place_of(slot).0 == place::ASLEEP {
                first = Some((order, slot));
            }
        });
        let Some((order, slot)) = first else { break };
        times.sleep(slot as usize, state::entry(slot).logical[1].load(Ordering::Relaxed), None);
        after = Some(order);
    }
    SLEEPS.store(after.map_or(0, |after| after + 1), Ordering::Relaxed);
    let mut freed = Freed { keys: [0; 64], count: 0 };
    each(|slot| wake_if_changed(times, slot, &mut freed));
    let least = times.least().map_or(NOBODY, |slot| slot as u32);
    LEAST.store(least, Ordering::Release);
    WATCHER.store(NOBODY, Ordering::Relaxed);
    OWNER.store(owner.unwrap_or(NOBODY), Ordering::Release);
}

/// Every thread with a place in the segment that has not ended in this copy.
fn each(mut act: impl FnMut(u32)) {
    thread::for_each(|thread| {
        if !thread::is_beyond(thread.slot()) && thread.has_ring() && !thread.turn.has_ended() {
            act(thread.slot());
        }
    });
}

/// What the segment says of a thread.
fn place_of(slot: u32) -> (u64, u64) {
    let word = state::entry(slot).logical[0].load(Ordering::Acquire);
    (word & ((1 << place::BITS) - 1), word >> place::BITS)
}

/// Puts a thread into its place. Whether it is still to be put to sleep.
fn put_back(times: &mut Logical<THREADS_MAX>, slot: u32, owner: Option<u32>) -> bool {
    let (place, clock) = place_of(slot);
    let own = slot as usize;
    if place == place::GONE && owner != Some(slot) {
        return false;
    }
    times.put_back(own, clock);
    if owner == Some(slot) {
        return false;
    }
    // A call that was begun is made again, or waits.
    if place == place::AWAY || thread::shared(slot).doubt.is_open() {
        times.leave(own);
    }
    place == place::ASLEEP
}

/// Wakes those at the word of a thread that sleeps, if it has another value in this copy.
fn wake_if_changed(times: &mut Logical<THREADS_MAX>, slot: u32, freed: &mut Freed) {
    const HELD: u32 = 1;
    const SLEPT_ON: u32 = 2;
    let At::Asleep { key, is_timed: false } = times.at(slot as usize) else { return };
    if state::is_parallel() {
        // Objects may lie at other addresses here. Who is woken for nothing looks again.
        _ = times.wake(key);
        return;
    }
    let value = state::entry(slot).logical[3].load(Ordering::Relaxed) as u32;
    match (value, GuestPtr::<u32>::at(key).load()) {
        (_, Some(now)) if now == value => {}
        // No log says that a lock is waited for.
        (SLEPT_ON, Some(HELD)) => _ = GuestMut::<u32>::at(key).store(&SLEPT_ON),
        // Its holder has woken one of them.
        (SLEPT_ON, Some(0)) if freed.is_new(key) => _ = times.wake(key),
        (SLEPT_ON, Some(0)) => {}
        _ => while times.wake(key).is_some() {},
    }
}

/// The locks that have been found free: as far as they are remembered, one is woken at each.
struct Freed {
    keys: [u64; 64],
    count: usize,
}

impl Freed {
    fn is_new(&mut self, key: u64) -> bool {
        let is_new = !self.keys[..self.count].contains(&key);
        if is_new && self.count < self.keys.len() {
            self.keys[self.count] = key;
            self.count += 1;
        }
        is_new
    }
}
