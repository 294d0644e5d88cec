//! What happened to a group since its start: kept by the supervisor, read by `status`.

use serde::{Deserialize, Serialize};

/// A standby that took over.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Failover {
    /// When the death was noticed, RFC 3339.
    pub at: String,
    /// How the primary ended.
    pub reason: String,
    /// From the death noticed to the first guest thread live, us.
    pub blackout_us: u64,
    /// Calls begun and not done when the primary died.
    pub in_doubt: u32,
    /// Calls in doubt of which nobody can say whether they were done.
    pub unsettled: u32,
}

/// A standby that did something else than the log says.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Divergence {
    /// When the supervisor heard of it, RFC 3339.
    pub at: String,
    /// What differed.
    pub reason: String,
    /// Thread slot.
    pub thread: u32,
    /// Position in that thread's ring, bytes since the start.
    pub position: u64,
}

/// `history.json`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct History {
    /// In order.
    pub failovers: Vec<Failover>,
    /// In order.
    pub divergences: Vec<Divergence>,
    /// Time under protection, ns, without the present stretch.
    pub protected_ns: u64,
    /// CLOCK_MONOTONIC at which the present stretch began, ns; 0 while unprotected.
    pub protected_since_ns: u64,
    /// Signals that waited longer than [`crate::watch::SIGNAL_WAIT_NS_MAX`] for a thread's next door.
    pub signals_late: u64,
}

impl History {
    /// A stretch under protection begins.
    pub fn protected(&mut self, now_ns: u64) {
        if self.protected_since_ns == 0 {
            self.protected_since_ns = now_ns;
        }
    }

    /// It ends.
    pub fn unprotected(&mut self, now_ns: u64) {
        self.protected_ns = self.protected_until(now_ns);
        self.protected_since_ns = 0;
    }

    /// Share of the time since `since_ns` under protection, 0 to 1.
    pub fn protected_share(&self, since_ns: u64, now_ns: u64) -> f64 {
        let whole = now_ns.saturating_sub(since_ns).max(1);
        (self.protected_until(now_ns) as f64 / whole as f64).min(1.0)
    }

    fn protected_until(&self, now_ns: u64) -> u64 {
        let stretch =
            if self.protected_since_ns == 0 { 0 } else { now_ns.saturating_sub(self.protected_since_ns) };
        self.protected_ns + stretch
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_share_counts_every_stretch() {
        let mut history = History::default();
        assert_eq!(history.protected_share(0, 100), 0.0);
        history.protected(20);
        history.protected(30);
        assert_eq!(history.protected_share(0, 100), 0.8);
        history.unprotected(60);
        history.unprotected(80);
        assert_eq!(history.protected_share(0, 100), 0.4);
        history.protected(90);
        assert_eq!(history.protected_share(0, 100), 0.5);
    }
}
