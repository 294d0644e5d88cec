//! Damage, and numbers to choose it by.
#![allow(dead_code)] // Each test has its own copy, and uses a part of it.

use checkpoint::Error;

/// A generator of numbers that are always the same (xorshift).
pub struct Numbers(pub u64);

impl Numbers {
    /// One below `end`.
    pub fn below(&mut self, end: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % end
    }
}

/// A file that is cut off anywhere says where, or is none.
pub fn cut_a_thousand_times<T>(bytes: &[u8], read: impl Fn(&[u8]) -> Result<T, Error>) {
    let mut numbers = Numbers(1);
    for _ in 0..1000 {
        let at = numbers.below(bytes.len() as u64) as usize;
        match read(&bytes[..at]) {
            Err(Error::Cut(place)) => assert!(place <= at as u64),
            Err(Error::NotACheckpoint) => assert!(at < 20),
            other => panic!("cut at {at}: {:?}", other.map(|_| ())),
        }
    }
}

/// A file of which one bit is another is believed nowhere; `is_told` is asked about the error.
pub fn flip_a_thousand_bits<T>(
    bytes: &[u8],
    read: impl Fn(&[u8]) -> Result<T, Error>,
    is_told: impl Fn(&Error) -> bool,
) {
    let mut numbers = Numbers(2);
    for _ in 0..1000 {
        let at = numbers.below(bytes.len() as u64) as usize;
        let mut bytes = bytes.to_vec();
        bytes[at] ^= 1 << numbers.below(8);
        match read(&bytes) {
            Err(error) => assert!(is_told(&error), "a flipped bit in byte {at}: {error}"),
            Ok(_) => panic!("a flipped bit in byte {at} is believed"),
        }
    }
}
