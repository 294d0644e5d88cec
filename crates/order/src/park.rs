//! Which thread parks for which clone (`crates/runtime/src/clone/park.rs`).
//!
//! A coordinator asks the threads to park, and each claims a place. The coordinator may give up and ask again at any moment, while
//! a thread is between seeing that it is to park and claiming its place. A claim counts for the time that the thread has seen, or
//! not at all: in one word lie the number of the time and the places claimed in it.

/// The word: the number of times in its upper half, odd while threads are to park; the places claimed in its lower half.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Claims(u64);

impl Claims {
    /// From the word.
    pub const fn from_word(word: u64) -> Claims {
        Claims(word)
    }

    /// The word.
    pub const fn word(self) -> u64 {
        self.0
    }

    /// Whether threads are to park.
    pub const fn is_wanted(self) -> bool {
        self.time() & 1 != 0
    }

    /// The number of this time, or of the pause behind it.
    pub const fn time(self) -> u32 {
        (self.0 >> 32) as u32
    }

    /// Places claimed in this time.
    pub const fn claimed(self) -> u32 {
        self.0 as u32
    }

    /// Threads are to park from here on, and no place is claimed. Only behind [`Claims::ended`], with everybody gone who had claimed.
    #[must_use]
    pub const fn begun(self) -> Claims {
        Claims((self.time().wrapping_add(1) as u64) << 32)
    }

    /// Nobody claims any more. What was claimed counts until it is left.
    #[must_use]
    pub const fn ended(self) -> Claims {
        Claims((self.time().wrapping_add(1) as u64) << 32 | self.claimed() as u64)
    }

    /// With one more place claimed, of at most `places`; `None` where no thread is to park, or there is no place left. Stored only
    /// if the word is still this.
    pub const fn with_one(self, places: u32) -> Option<Claims> {
        if self.is_wanted() && self.claimed() < places { Some(Claims(self.0 + 1)) } else { None }
    }

    /// In a copy that was forked in this time: it is over, and the places are what they were.
    #[must_use]
    pub const fn inherited(self) -> Claims {
        Claims(self.claimed() as u64)
    }
}

#[cfg(test)]
mod tests {
    extern crate std;

    use std::vec::Vec;

    use super::*;

    /// Each coordinator's time: it asks, gives up, and waits until everybody has left.
    const TIMES: u32 = 3;
    const THREADS: usize = 3;
    const PLACES: u32 = 8;

    #[derive(Clone, Copy, PartialEq, Eq)]
    enum At {
        Outside,
        /// Has seen that it is to park, and this word.
        Seen(Claims),
        /// Has a place of that time.
        Parked {
            place: u32,
            time: u32,
        },
    }

    #[derive(Clone)]
    struct State {
        word: Claims,
        left: u32,
        threads: [At; THREADS],
        /// What the coordinator does next: begin, end, wait.
        step: u32,
        rounds: u32,
    }

    /// Steps of a thread, by one rule or the other. `is_one`: the claim is stored only if the word is what was seen.
    fn thread_step(state: &mut State, which: usize, is_one: bool) {
        state.threads[which] = match state.threads[which] {
            At::Outside if state.word.is_wanted() => At::Seen(state.word),
            At::Outside => At::Outside,
            At::Seen(seen) if is_one => match seen.with_one(PLACES) {
                Some(next) if state.word == seen => {
                    state.word = next;
                    At::Parked { place: seen.claimed(), time: seen.time() }
                }
                // Looks again.
                _ => At::Outside,
            },
            At::Seen(seen) => {
                let place = state.word.claimed();
                state.word = Claims(state.word.0 + 1);
                At::Parked { place, time: seen.time() }
            }
            At::Parked { time, .. } if state.word.time() != time => {
                state.left += 1;
                At::Outside
            }
            parked @ At::Parked { .. } => parked,
        };
    }

    /// False while it waits.
    fn coordinator_step(state: &mut State) -> bool {
        match state.step {
            0 if state.rounds < TIMES => {
                state.left = 0;
                state.word = state.word.begun();
                (state.step, state.rounds) = (1, state.rounds + 1);
            }
            1 => {
                state.word = state.word.ended();
                state.step = 2;
            }
            2 if state.left == state.word.claimed() => state.step = 0,
            _ => return false,
        }
        true
    }

    /// Explores every interleaving: whether a place is two threads', or the coordinator waits for ever.
    fn goes_wrong(is_one: bool) -> bool {
        let first = State { word: Claims(0), left: 0, threads: [At::Outside; THREADS], step: 0, rounds: 0 };
        let mut todo = Vec::from([(first, 0)]);
        while let Some((state, depth)) = todo.pop() {
            let places: Vec<u32> = state
                .threads
                .iter()
                .filter_map(|at| if let At::Parked { place, .. } = at { Some(*place) } else { None })
                .collect();
            let is_shared = (1..places.len()).any(|at| places[..at].contains(&places[at]));
            let is_quiet = state.threads.iter().all(|at| *at == At::Outside);
            let waits_for_ever = is_quiet && state.step == 2 && state.left != state.word.claimed();
            if is_shared || waits_for_ever {
                return true;
            }
            if depth == 16 {
                continue;
            }
            let mut next = state.clone();
            if coordinator_step(&mut next) {
                todo.push((next, depth + 1));
            }
            for which in 0..THREADS {
                let mut next = state.clone();
                thread_step(&mut next, which, is_one);
                if next.threads[which] != state.threads[which] {
                    todo.push((next, depth + 1));
                }
            }
        }
        false
    }

    #[test]
    fn a_late_claim_counts_for_its_own_time_or_not_at_all() {
        assert!(!goes_wrong(true));
    }

    #[test]
    fn two_words_would_lose_a_claim() {
        assert!(goes_wrong(false));
    }

    #[test]
    fn places_run_out() {
        let full = Claims(0).begun().with_one(1).unwrap();
        assert_eq!(full.with_one(1), None);
        assert_eq!(full.ended().claimed(), 1);
        assert_eq!(full.ended().with_one(2), None);
        assert!(!full.inherited().is_wanted());
    }
}
