//! The digest of an order that is computed: a running hash of who had each turn, for which door, and when in logical time.
//!
//! Two runs with the same digest had the same order, turn by turn. Each turn costs one multiplication.

/// What was decided of one turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Decided {
    /// The thread's slot.
    pub slot: u16,
    /// The door that it came to last: a number of its kind.
    pub door: u16,
    /// Its clock when the turn began.
    pub clock: u64,
    /// Whether the world has said when it came for that turn, or a guess by time.
    pub is_placed: bool,
}

/// Of all turns that there have been, in their order.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Digest(u64);

/// Odd, with bits all over: a multiplication by it loses nothing.
const FACTOR: u64 = 0x9e37_79b9_7f4a_7c15;
/// Where a clock lies in a turn's word. Above it is the door, which a clock of 2^32 turns begins to touch.
const CLOCK_AT: u32 = 16;
const DOOR_AT: u32 = 48;
const PLACED_AT: u32 = 15;

impl Digest {
    /// From what [`Digest::word`] has said.
    #[must_use]
    pub const fn from_word(word: u64) -> Digest {
        Digest(word)
    }

    /// As a number.
    #[must_use]
    pub const fn word(self) -> u64 {
        self.0
    }

    /// With one turn more.
    #[must_use]
    pub const fn with(self, turn: Decided) -> Digest {
        let placed = (turn.is_placed as u64) << PLACED_AT;
        let word = turn.slot as u64 ^ placed ^ turn.clock << CLOCK_AT ^ (turn.door as u64) << DOOR_AT;
        // What two turns do to the high bits alone must not cancel out: they come down before the next.
        Digest((self.0.rotate_left(29) ^ word).wrapping_add(1).wrapping_mul(FACTOR))
    }
}

#[cfg(test)]
mod tests {
    extern crate std;

    use std::vec::Vec;

    use super::*;

    const TURN: Decided = Decided { slot: 3, door: 7, clock: 1000, is_placed: false };

    fn of(turns: &[Decided]) -> Digest {
        turns.iter().fold(Digest::default(), |digest, turn| digest.with(*turn))
    }

    #[test]
    fn every_part_of_a_turn_counts() {
        let others = [
            Decided { slot: 4, ..TURN },
            Decided { door: 8, ..TURN },
            Decided { clock: 1001, ..TURN },
            Decided { is_placed: true, ..TURN },
        ];
        let mut all: Vec<_> = others.iter().map(|turn| of(&[*turn])).collect();
        all.push(of(&[TURN]));
        all.push(Digest::default());
        all.push(of(&[Decided { slot: 0, door: 0, clock: 0, is_placed: false }]));
        for (at, digest) in all.iter().enumerate() {
            assert!(!all[..at].contains(digest), "{at}");
        }
    }

    #[test]
    fn the_order_of_turns_counts() {
        let (one, other) = (TURN, Decided { slot: 9, clock: 1000, ..TURN });
        assert_ne!(of(&[one, other]), of(&[other, one]));
        assert_ne!(of(&[one, one, other]), of(&[one, other, one]));
        assert_ne!(of(&[one]), of(&[one, one]));
        assert_eq!(of(&[one, other]), Digest::from_word(of(&[one]).word()).with(other));
    }

    /// Races that differ in one turn out of a hundred, by as little as can be: their digests all differ.
    #[test]
    fn a_small_difference_anywhere_is_never_lost() {
        let turns = |changed: usize, by: u64| {
            let turn = |at: usize| Decided {
                slot: (at % 4) as u16,
                door: (at % 3) as u16,
                clock: at as u64 + if at == changed { by } else { 0 },
                is_placed: at.is_multiple_of(10),
            };
            (0..100).map(turn).collect::<Vec<_>>()
        };
        let mut all: Vec<u64> = (0..100)
            .flat_map(|changed| [1, 2, 1 << 20, 1 << 40].map(|by| of(&turns(changed, by)).word()))
            .collect();
        all.push(of(&turns(0, 0)).word());
        let count = all.len();
        all.sort_unstable();
        all.dedup();
        assert_eq!(all.len(), count);
    }
}
