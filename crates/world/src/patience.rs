//! What remains of a wait that is made again.

/// A wait that ends by time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Patience {
    /// CLOCK_MONOTONIC at its beginning, ns; 0 if it has not begun, or does not end by time.
    pub began_ns: u64,
    /// How long it may take, ns.
    pub whole_ns: u64,
}

/// Seconds and nanoseconds as the guest has them: what is longer than anybody lives is as long as can be.
#[must_use]
pub const fn whole_ns(seconds: i64, ns: i64) -> u64 {
    if seconds < 0 {
        return 0;
    }
    (seconds as u64).saturating_mul(1_000_000_000).saturating_add(ns as u64)
}

impl Patience {
    /// What is left of it, ns: nothing once its time is over.
    #[must_use]
    pub const fn left_ns(self, now_ns: u64) -> u64 {
        self.whole_ns.saturating_sub(now_ns.saturating_sub(self.began_ns))
    }

    /// The same, rounded up: never less than what was asked for.
    #[must_use]
    pub const fn left_ms(self, now_ns: u64) -> u64 {
        self.left_ns(now_ns).div_ceil(1_000_000)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wait_that_is_made_again_ends_when_the_first_would_have() {
        let wait = Patience { began_ns: 1_000, whole_ns: 5_000_000 };
        assert_eq!(wait.left_ns(1_000), 5_000_000);
        assert_eq!((wait.left_ns(2_000_500), wait.left_ms(2_000_500)), (3_000_500, 4));
        assert_eq!((wait.left_ns(9_000_000), wait.left_ms(9_000_000)), (0, 0));
        assert_eq!(wait.left_ns(0), 5_000_000, "a clock that is behind adds nothing");
    }

    #[test]
    fn for_ever_is_not_a_moment() {
        assert_eq!(whole_ns(3, 7), 3_000_000_007);
        assert_eq!(whole_ns(-1, 7), 0);
        assert_eq!(whole_ns(36_893_488_148, 0), u64::MAX, "twice all that fit, and a half a second");
    }
}
