//! What one group has done since `top` looks at it.

use std::collections::VecDeque;

use us_supervisor::history;
use us_supervisor::status::Group;

use crate::report;

/// Moments that a curve has, at most: no terminal is wider.
const MOMENTS: usize = 512;

/// The curves of one group, and what has been told of it.
#[derive(Debug, Default)]
pub struct Track {
    /// Bytes that the standbys have not applied, at each look.
    pub lag: VecDeque<u64>,
    /// Events a second, between each two looks.
    pub rate: VecDeque<u64>,
    /// Events at the last look, and when that was.
    last: Option<(u64, f64)>,
    failovers: u64,
    divergences: u64,
    lost: u64,
    state: &'static str,
}

impl Track {
    /// Takes in how things stand; what is new.
    pub fn take(&mut self, group: &Group, now_s: f64) -> Vec<String> {
        let standbys = group.processes.iter().flat_map(|process| &process.standbys);
        keep(&mut self.lag, standbys.map(|standby| standby.lag_bytes).sum());
        if let Some((events, at_s)) = self.last {
            let passed_s = (now_s - at_s).max(0.001);
            // A process that has ended takes a part of its sum along for a moment.
            keep(&mut self.rate, (group.events_total.saturating_sub(events) as f64 / passed_s) as u64);
        }
        self.last = Some((group.events_total, now_s));
        self.news(group)
    }

    fn news(&mut self, group: &Group) -> Vec<String> {
        let name = &group.name;
        let mut news = Vec::new();
        let told = history::news(&group.failovers, group.failovers_total, self.failovers);
        news.extend(
            told.map(|failover| {
                report::failover_line(name, &report::whose(group, failover.process), failover)
            }),
        );
        let told = history::news(&group.divergences, group.divergences_total, self.divergences);
        news.extend(
            told.map(|found| report::divergence_line(name, &report::whose(group, found.process), found)),
        );
        let told = history::news(&group.lost, group.lost_total, self.lost);
        news.extend(
            told.map(|lost| format!("{name}: lost {}: process {}: {}", lost.at, lost.process, lost.why)),
        );
        if self.state != group.state {
            let why = group.why.as_ref().map_or(String::new(), |why| format!(": {why}"));
            news.push(format!("{name} is {}{why}", group.state));
        }
        (self.failovers, self.divergences) = (group.failovers_total, group.divergences_total);
        (self.lost, self.state) = (group.lost_total, group.state);
        news
    }
}

fn keep(curve: &mut VecDeque<u64>, value: u64) {
    if curve.len() == MOMENTS {
        curve.pop_front();
    }
    curve.push_back(value);
}
