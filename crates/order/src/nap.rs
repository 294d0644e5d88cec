//! How long does a standby's poller nap between two looks at the rings?
//!
//! Each look with a batch costs two switches: the poller's, and that of the thread which it wakes. A longer nap makes fewer of
//! them. What it may cost is bounded three times: at a promotion the poller is woken at once, and has at most the events of
//! one nap to apply, which a standby does in a fraction of it; a thread with too long a lead wakes the poller itself
//! ([`crate::pace`]); and bytes that would leave the cache before the next look shorten the nap.

/// Nap while events come in, ns. A redis with 50 clients publishes 280 events in it, which are applied in 200 us.
pub const BATCH_NS: u64 = 1_000_000;
/// Nap while more bytes come in than half of a ring's near part between two looks, ns.
pub const FLOOD_NS: u64 = 50_000;
/// Longest nap of a reader that does not doze, with nothing to do, ns.
pub const LONGEST_NS: u64 = 10_000_000;
/// A standby that found nothing after such a nap dozes, ns. So many are between two wakes that a primary makes.
pub const LAST_NS: u64 = 2_000_000;

/// The nap behind one of `last_ns`, after which the longest lead of a thread was `lag` bytes; `near` bytes of a ring stay in a
/// cache.
pub fn after(last_ns: u64, lag: u64, near: u64) -> u64 {
    if lag == 0 {
        (last_ns + last_ns / 2).min(LONGEST_NS)
    } else if lag > near / 2 {
        FLOOD_NS
    } else if lag > near / 8 {
        // About right: who naps for longer finds a flood.
        last_ns.min(BATCH_NS)
    } else {
        (last_ns * 2).min(BATCH_NS)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NEAR: u64 = 512 << 10;

    /// Naps and leads of a primary that publishes so many bytes a microsecond.
    fn settled(bytes_per_us: u64) -> (u64, u64) {
        let mut nap = BATCH_NS;
        let mut worst = 0;
        for round in 0..100 {
            let lag = nap / 1000 * bytes_per_us;
            nap = after(nap, lag, NEAR);
            if round > 10 {
                worst = worst.max(lag);
            }
        }
        (nap, worst)
    }

    #[test]
    fn a_servers_events_come_in_one_batch_a_millisecond() {
        assert_eq!(settled(20), (BATCH_NS, 20_000));
    }

    #[test]
    fn a_flood_stays_in_the_cache() {
        for rate in [200, 400, 800, 1600, 4000] {
            let (nap, worst) = settled(rate);
            assert!(worst <= NEAR, "{rate} bytes/us: {worst} bytes after naps of up to {nap} ns");
        }
    }

    #[test]
    fn silence_makes_naps_longer_up_to_a_bound() {
        assert_eq!(after(BATCH_NS, 0, NEAR), 1_500_000);
        assert_eq!(after(LONGEST_NS, 0, NEAR), LONGEST_NS);
        // And the first event makes them short again.
        assert_eq!(after(LONGEST_NS, 24, NEAR), BATCH_NS);
    }
}
