//! Seeded numbers: a failure is repeated with its seed, so nothing random comes from elsewhere.

/// SplitMix64: small, good enough for moments and payloads, the same on every machine.
pub struct Rng(u64);

impl Rng {
    /// A stream that depends on the seed and on a label, so that two guests with one seed differ.
    pub fn new(seed: u64, label: &str) -> Self {
        let hash = label
            .bytes()
            .fold(0xcbf2_9ce4_8422_2325_u64, |h, b| (h ^ u64::from(b)).wrapping_mul(0x0100_0000_01b3));
        let mut rng = Self(seed ^ hash);
        rng.draw();
        rng
    }

    /// The next 64 bits.
    pub fn draw(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut x = self.0;
        x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        x ^ (x >> 31)
    }

    /// A number below `bound` (which is at least 1).
    pub fn below(&mut self, bound: u64) -> u64 {
        self.draw() % bound.max(1)
    }

    /// A fraction in [0, 1).
    pub fn fraction(&mut self) -> f64 {
        (self.draw() >> 11) as f64 / (1_u64 << 53) as f64
    }
}

#[cfg(test)]
mod tests {
    use super::Rng;

    #[test]
    fn same_seed_same_numbers() {
        let (mut a, mut b, mut c) = (Rng::new(7, "x"), Rng::new(7, "x"), Rng::new(7, "y"));
        let (a, b, c) = (a.draw(), b.draw(), c.draw());
        assert_eq!(a, b);
        assert_ne!(a, c);
    }

    #[test]
    fn fraction_stays_in_range() {
        let mut rng = Rng::new(1, "range");
        assert!((0..10_000).map(|_| rng.fraction()).all(|f| (0.0..1.0).contains(&f)));
    }
}
