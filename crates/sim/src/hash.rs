//! Fingerprints of states. Visited states are kept as 128 bits each, so that memory stays small; with 2^24 states the
//! chance that two of them share a fingerprint is about 2^-81.

use std::hash::{Hash, Hasher};

/// A fast 128-bit hasher for states: two independent folded multiplications.
pub struct Fingerprint {
    low: u64,
    high: u64,
}

impl Fingerprint {
    /// The fingerprint of a value.
    pub fn of(value: impl Hash) -> u128 {
        let mut state = Self { low: 0x9e37_79b9_7f4a_7c15, high: 0xd1b5_4a32_d192_ed03 };
        value.hash(&mut state);
        u128::from(state.low) << 64 | u128::from(state.high)
    }

    fn mix(&mut self, word: u64) {
        self.low = fold(self.low ^ word, 0xa076_1d64_78bd_642f);
        self.high = fold(self.high.wrapping_add(word), 0xe703_7ed1_a0b4_28db);
    }
}

/// The word in the low half is odd-mixed first: a factor of zero must not swallow what came before.
fn fold(a: u64, b: u64) -> u64 {
    let product = u128::from(a) * u128::from(b);
    (product as u64) ^ ((product >> 64) as u64) ^ a.rotate_left(29)
}

impl Hasher for Fingerprint {
    fn finish(&self) -> u64 {
        self.low
    }

    fn write(&mut self, bytes: &[u8]) {
        for chunk in bytes.chunks(8) {
            let mut word = [0; 8];
            word[..chunk.len()].copy_from_slice(chunk);
            self.mix(u64::from_le_bytes(word));
        }
    }

    fn write_u8(&mut self, value: u8) {
        self.mix(value.into());
    }

    fn write_usize(&mut self, value: usize) {
        self.mix(value as u64);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn small_differences_show() {
        let mut seen = std::collections::HashSet::new();
        for i in 0..=255u8 {
            for place in 0..32 {
                let mut bytes = [0u8; 32];
                bytes[place] = i;
                seen.insert(Fingerprint::of(bytes));
            }
        }
        assert_eq!(seen.len(), 1 + 255 * 32);
    }
}
