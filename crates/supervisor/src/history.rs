//! What happened to a group since its start: kept by the supervisor, read by `status`.

use std::collections::{BTreeMap, VecDeque, vec_deque};

use serde::{Deserialize, Serialize};
use us_abi::CLASSES;

use crate::explain::Explanation;

/// Entries kept of each kind: a group may live through any number of failovers, its supervisor must not grow
/// with them.
pub const KEPT: usize = 1000;

/// Divergences of which all is kept: the file that they are in is written at every event.
pub const EXPLAINED: usize = 16;

/// A standby that took over.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Failover {
    /// The process, by the pid that it knows as its own.
    pub process: u32,
    /// When the death was noticed, RFC 3339.
    pub at: String,
    /// How the primary ended, or on whose wish.
    pub reason: String,
    /// From the death noticed to the first guest thread live, us.
    pub blackout_us: u64,
    /// Calls begun and not done when the primary died.
    pub in_doubt: u32,
    /// Calls in doubt of which nobody can say whether they were done.
    pub unsettled: u32,
    /// The first of these.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub unsettled_calls: Vec<Unsettled>,
}

/// A call in doubt of which nobody can say whether it was done.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Unsettled {
    /// Its name; `None` where a descriptor is all that shows of it.
    pub call: Option<String>,
    /// Its descriptor, if it has one.
    pub descriptor: Option<i32>,
    /// The thread, by the number that it knows as its own.
    pub thread: u32,
    /// Its name, as `ps -L` shows it.
    pub thread_name: String,
    /// What was done with it: `done`, it was taken for that; `again`, it was made again; `short`, it ended with what it had moved
    /// before; `open`, its descriptor stays open.
    pub outcome: String,
}

impl Unsettled {
    /// It in words.
    pub fn words(&self) -> String {
        let on = self.descriptor.map_or(String::new(), |fd| format!(" on descriptor {fd}"));
        let Some(call) = &self.call else {
            return format!("a call that is not known has made descriptor {}", self.descriptor.unwrap_or(-1));
        };
        let name =
            if self.thread_name.is_empty() { String::new() } else { format!(" ({})", self.thread_name) };
        let outcome = match self.outcome.as_str() {
            "done" => "taken for done",
            "short" => "ended with what it had moved before",
            _ => "made again",
        };
        format!("{call}{on} by thread {}{name}, {outcome}", self.thread)
    }
}

impl Failover {
    /// How many calls are unsettled, and which.
    pub fn unsettled_words(&self) -> String {
        let mut all: Vec<String> = self.unsettled_calls.iter().map(Unsettled::words).collect();
        match (self.unsettled as usize).saturating_sub(all.len()) {
            more if more > 0 && !all.is_empty() => all.push(format!("and {more} more")),
            _ => {}
        }
        let colon = if all.is_empty() { "" } else { ": " };
        format!("unsettled {}{colon}{}", self.unsettled, all.join("; "))
    }
}

/// A standby made of a running primary.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reclone {
    /// The process, by the pid that it knows as its own.
    pub process: u32,
    /// When it was protected again, RFC 3339.
    pub at: String,
    /// What had become of the standby before it, in a word or two.
    pub reason: String,
    /// The same as its finder wrote it down.
    pub why: String,
    /// How long the program's threads stood still, us.
    pub pause_us: u64,
    /// Bytes that the primary had resident.
    pub bytes: u64,
    /// How long there was no standby, us.
    pub gap_us: u64,
}

/// A process that was killed, and that nobody took over for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Lost {
    /// The process, by the pid that it knew as its own.
    pub process: u32,
    /// Its parent's number of the same kind, 0 for none.
    pub parent: u32,
    /// The name of its program.
    pub program: String,
    /// When the supervisor heard of it, RFC 3339.
    pub at: String,
    /// How it came about.
    pub why: String,
}

/// A standby that did something else than the log says.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Divergence {
    /// The process, by the pid that it knows as its own.
    pub process: u32,
    /// When the supervisor heard of it, RFC 3339.
    pub at: String,
    /// What differed.
    pub reason: String,
    /// Thread slot.
    pub thread: u32,
    /// Position in that thread's ring, bytes since the start.
    pub position: u64,
    /// What explains it, once that is known; of those before the last [`EXPLAINED`] without the stacks.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub explained: Option<Explanation>,
}

/// The last [`KEPT`] entries of a kind, and how many there have been.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ledger<T> {
    /// All that ever were.
    pub total: u64,
    /// The last of them, in order.
    pub last: VecDeque<T>,
}

impl<T> Default for Ledger<T> {
    fn default() -> Ledger<T> {
        Ledger { total: 0, last: VecDeque::new() }
    }
}

impl<T> Ledger<T> {
    /// Writes one more down.
    pub fn push(&mut self, entry: T) {
        self.total += 1;
        if self.last.len() == KEPT {
            self.last.pop_front();
        }
        self.last.push_back(entry);
    }
}

impl Ledger<Divergence> {
    /// Adds to the entry of this number, counted from 1 on, what explains it. Of older ones the stacks are forgotten. `None` when it
    /// is not kept any more.
    pub fn explain(&mut self, number: u64, explained: Explanation) -> Option<&Divergence> {
        let from_end = usize::try_from(self.total.checked_sub(number)?).ok()?;
        let at = self.last.len().checked_sub(from_end.checked_add(1)?)?;
        self.last[at].explained = Some(explained);
        let old = self.last.len().saturating_sub(EXPLAINED);
        let old = self.last.iter_mut().take(old).filter_map(|found| found.explained.as_mut());
        old.for_each(Explanation::forget_stacks);
        self.last.get(at)
    }
}

/// The last `most` of a list, in order.
pub fn last<T>(all: &VecDeque<T>, most: usize) -> vec_deque::Iter<'_, T> {
    all.range(all.len().saturating_sub(most)..)
}

/// What a list that keeps the last of `total` has beyond the first `seen` of them.
pub fn news<T>(all: &VecDeque<T>, total: u64, seen: u64) -> vec_deque::Iter<'_, T> {
    last(all, total.saturating_sub(seen) as usize)
}

/// `history.json`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct History {
    /// Promotions.
    pub failovers: Ledger<Failover>,
    /// Standbys made anew.
    pub reclones: Ledger<Reclone>,
    /// Divergences.
    pub divergences: Ledger<Divergence>,
    /// Processes lost.
    #[serde(default)]
    pub lost: Ledger<Lost>,
    /// Calls of all failovers of which nobody can say whether they were done.
    pub unsettled: u64,
    /// Attempts to make a standby anew that did not succeed.
    pub failed_reclones: u64,
    /// Of each process for which the last attempt did not, by the pid that it knows as its own: why, until one does.
    pub reclone_errors: BTreeMap<u32, String>,
    /// Of each process whose standby has not applied what was logged half a second ago: since when, RFC 3339.
    #[serde(default)]
    pub behind: BTreeMap<u32, String>,
    /// Time under protection of the process that the group is judged by.
    pub stretches: Stretches,
    /// Signals that waited longer than [`us_abi::SIGNAL_WAIT_NS_MAX`] for a thread's next door.
    pub signals_late: u64,
    /// What the processes that have ended leave behind.
    pub ended: Ended,
}

/// Sums over the processes that have ended.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ended {
    /// Promotions.
    pub epochs: u32,
    /// Events published.
    pub events: u64,
    /// Bytes published.
    pub bytes: u64,
    /// Events applied, by class.
    pub by_class: [u64; CLASSES],
    /// Calls that cannot be replayed, by number.
    pub refused: BTreeMap<u32, u32>,
}

/// Time under protection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stretches {
    /// All of it, ns, without the present stretch.
    pub protected_ns: u64,
    /// CLOCK_MONOTONIC at which the present stretch began, ns; 0 while unprotected.
    pub protected_since_ns: u64,
}

impl Stretches {
    /// A stretch under protection begins.
    pub fn protected(&mut self, now_ns: u64) {
        if self.protected_since_ns == 0 {
            self.protected_since_ns = now_ns;
        }
    }

    /// It ends; how long it was, ns. `None` when there was none.
    pub fn unprotected(&mut self, now_ns: u64) -> Option<u64> {
        let stretch_ns = self.stretch_until(now_ns);
        let ended = self.protected_since_ns != 0;
        self.protected_ns += stretch_ns;
        self.protected_since_ns = 0;
        ended.then_some(stretch_ns)
    }

    /// Share of the time since `since_ns` under protection, 0 to 1.
    pub fn protected_share(&self, since_ns: u64, now_ns: u64) -> f64 {
        let whole = now_ns.saturating_sub(since_ns).max(1);
        ((self.protected_ns + self.stretch_until(now_ns)) as f64 / whole as f64).min(1.0)
    }

    fn stretch_until(&self, now_ns: u64) -> u64 {
        if self.protected_since_ns == 0 { 0 } else { now_ns.saturating_sub(self.protected_since_ns) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stacks_of_the_last_divergences_are_kept() {
        use crate::explain::Stack;

        let mut all = Ledger::default();
        let entry = |at: u64| Divergence {
            process: 7,
            at: String::new(),
            reason: String::new(),
            thread: 0,
            position: at,
            explained: None,
        };
        let explained = |name: &str| Explanation { function: name.into(), ..Explanation::default() };
        assert_eq!(all.explain(1, explained("f")), None);
        for number in 1..=40 {
            all.push(entry(number));
            // Some come late, and some never.
            if number % 3 == 0 {
                assert!(all.explain(number - 1, explained("late")).is_some());
                assert_eq!(all.explain(number, explained("f")).unwrap().position, number);
            }
        }
        let with_stacks = |found: &&Divergence| {
            found.explained.as_ref().is_some_and(|explained| explained.standby == Stack::default())
        };
        assert_eq!(all.last.iter().filter(with_stacks).map(|found| found.position).min(), Some(24));
        assert!(all.last.iter().take(24).all(|found| found.position % 3 == 1 || found.explained.is_some()));
        assert_eq!(all.explain(0, explained("f")), None);
        assert_eq!(all.explain(41, explained("f")), None);
    }

    #[test]
    fn unsettled_calls_are_named() {
        let call = |call: Option<&str>, descriptor, name: &str, outcome: &str| Unsettled {
            call: call.map(Into::into),
            descriptor,
            thread: 7,
            thread_name: name.into(),
            outcome: outcome.into(),
        };
        let mut failover = Failover {
            process: 7,
            at: String::new(),
            reason: String::new(),
            blackout_us: 0,
            in_doubt: 4,
            unsettled: 0,
            unsettled_calls: Vec::new(),
        };
        assert_eq!(failover.unsettled_words(), "unsettled 0");
        failover.unsettled = 4;
        assert_eq!(failover.unsettled_words(), "unsettled 4");
        failover.unsettled_calls = vec![
            call(Some("write"), Some(5), "worker", "done"),
            call(Some("msgsnd"), None, "", "again"),
            call(None, Some(9), "", "open"),
        ];
        assert_eq!(
            failover.unsettled_words(),
            "unsettled 4: write on descriptor 5 by thread 7 (worker), taken for done; msgsnd by thread 7, made again; \
             a call that is not known has made descriptor 9; and 1 more"
        );
    }

    #[test]
    fn the_share_counts_every_stretch() {
        let mut stretches = Stretches::default();
        assert_eq!(stretches.protected_share(0, 100), 0.0);
        stretches.protected(20);
        stretches.protected(30);
        assert_eq!(stretches.protected_share(0, 100), 0.8);
        assert_eq!(stretches.unprotected(60), Some(40));
        assert_eq!(stretches.unprotected(80), None);
        assert_eq!(stretches.protected_share(0, 100), 0.4);
        stretches.protected(90);
        assert_eq!(stretches.protected_share(0, 100), 0.5);
    }

    #[test]
    fn a_ledger_forgets_the_oldest_and_counts_all() {
        let mut ledger = Ledger::default();
        (0..KEPT + 7).for_each(|entry| ledger.push(entry));
        assert_eq!((ledger.total, ledger.last.len()), (KEPT as u64 + 7, KEPT));
        assert_eq!((ledger.last.front(), ledger.last.back()), (Some(&7), Some(&(KEPT + 6))));
    }
}
