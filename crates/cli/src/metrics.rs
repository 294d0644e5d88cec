//! Figures of all groups as Prometheus reads them, and as a page shows them. No socket and no clock in here.

pub mod histogram;
pub mod page;

use std::collections::BTreeMap;
use std::fmt::Write as _;

use us_supervisor::ended::Ended;
use us_supervisor::history;
use us_supervisor::status::{Group, Status};

use self::histogram::Histogram;

/// Seconds: from a tenth of a millisecond to ten.
const SECONDS: [f64; 11] = [0.0001, 0.0003, 0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0];

/// Bytes: from a kibibyte to a ring.
const BYTES: [f64; 8] = [0.0, 1024.0, 4096.0, 16384.0, 65536.0, 262_144.0, 1_048_576.0, 8_388_608.0];

/// One of the histograms.
type Which = fn(&Sums) -> &Histogram;

/// Every state of a group that `status` knows.
const STATES: [&str; 5] = ["starting", "protected", "reprotecting", "unprotected", "ended"];

/// What a history with an end adds up to: it keeps the last thousand of each kind.
#[derive(Debug)]
struct Sums {
    /// One that has been started anew under the name is another.
    since: String,
    failovers: u64,
    reclones: u64,
    blackout: Histogram,
    pause: Histogram,
    lag: Histogram,
}

impl Sums {
    fn of(group: &Group) -> Sums {
        Sums {
            since: group.since.clone(),
            failovers: 0,
            reclones: 0,
            blackout: Histogram::new(&SECONDS),
            pause: Histogram::new(&SECONDS),
            lag: Histogram::new(&BYTES),
        }
    }

    fn take(&mut self, group: &Group) {
        let told = history::news(&group.failovers, group.failovers_total, self.failovers);
        told.for_each(|failover| self.blackout.observe(failover.blackout_us as f64 / 1e6));
        let told = history::news(&group.reclones, group.reclones_total, self.reclones);
        told.for_each(|reclone| self.pause.observe(reclone.pause_us as f64 / 1e6));
        (self.failovers, self.reclones) = (group.failovers_total, group.reclones_total);
        let standbys = group.processes.iter().flat_map(|process| &process.standbys);
        standbys.for_each(|standby| self.lag.observe(standby.lag_bytes as f64));
    }
}

/// The figures of the groups that are there.
#[derive(Debug, Default)]
pub struct Metrics {
    sums: BTreeMap<String, Sums>,
    groups: Vec<Group>,
    /// Those that have ended in the last day, the last one first.
    ended: Vec<Ended>,
}

impl Metrics {
    /// Takes in how things stand. A lag is counted each time.
    pub fn take(&mut self, status: Status) {
        self.groups = status.groups;
        self.ended = status.ended;
        let groups = &self.groups;
        self.sums
            .retain(|name, sums| groups.iter().any(|group| group.name == *name && group.since == sums.since));
        for group in groups {
            self.sums.entry(group.name.clone()).or_insert_with(|| Sums::of(group)).take(group);
        }
    }

    /// All of it in the text format of Prometheus, version 0.0.4.
    pub fn text(&self) -> String {
        let mut out = String::new();
        head(&mut out, "build_info", "One, with the version of this understudy.", "gauge");
        line(&mut out, "build_info", concat!("version=\"", env!("CARGO_PKG_VERSION"), "\""), 1.0);
        self.gauge(&mut out, "group_protected", "Whether the group's program is protected.", |group| {
            f64::from(u8::from(group.state == "protected"))
        });
        self.states(&mut out);
        self.gauge(
            &mut out,
            "group_protected_ratio",
            "Share of the group's life under protection.",
            |group| group.protected_share,
        );
        self.gauge(&mut out, "group_processes", "Processes of the group.", |group| {
            group.processes.iter().filter(|process| process.state != "lost").count() as f64
        });
        self.counter(&mut out, "failovers_total", "Standbys that took over.", |group| u64::from(group.epoch));
        self.counter(
            &mut out,
            "unsettled_calls_total",
            "Calls at failovers of which nobody can say whether they were done.",
            |group| group.unsettled_total,
        );
        self.counter(&mut out, "reclones_total", "Standbys made of a running program.", |group| {
            group.reclones_total
        });
        self.counter(&mut out, "reclones_failed_total", "Standbys that could not be made.", |group| {
            group.reclones_failed
        });
        self.counter(
            &mut out,
            "divergences_total",
            "Standbys that did something else than the log.",
            |group| group.divergences_total,
        );
        self.counter(
            &mut out,
            "lost_processes_total",
            "Processes killed for whom nobody took over.",
            |group| group.lost_total,
        );
        self.counter(&mut out, "log_bytes_total", "Bytes published to standbys.", |group| group.bytes_total);
        self.events(&mut out);
        self.standbys(&mut out);
        self.machines(&mut out);
        let kinds: [(&str, &str, Which); 3] = [
            ("failover_blackout_seconds", "From a death noticed to the first thread live.", |sums| {
                &sums.blackout
            }),
            ("reclone_pause_seconds", "How long threads stood still for a new standby.", |sums| &sums.pause),
            ("standby_lag_sampled_bytes", "Bytes not applied, at each look.", |sums| &sums.lag),
        ];
        for (name, help, of) in kinds {
            head(&mut out, name, help, "histogram");
            for (group, sums) in &self.sums {
                of(sums).write(&mut out, &format!("understudy_{name}"), &format!("group=\"{group}\""));
            }
        }
        out
    }

    fn gauge(&self, out: &mut String, name: &str, help: &str, value: impl Fn(&Group) -> f64) {
        head(out, name, help, "gauge");
        for group in &self.groups {
            line(out, name, &format!("group=\"{}\"", group.name), value(group));
        }
    }

    fn counter(&self, out: &mut String, name: &str, help: &str, value: impl Fn(&Group) -> u64) {
        head(out, name, help, "counter");
        for group in &self.groups {
            line(out, name, &format!("group=\"{}\"", group.name), value(group) as f64);
        }
    }

    fn states(&self, out: &mut String) {
        head(out, "group_state", "One for the state that the group is in, zero for the others.", "gauge");
        for group in &self.groups {
            for state in STATES {
                let labels = format!("group=\"{}\",state=\"{state}\"", group.name);
                line(out, "group_state", &labels, f64::from(u8::from(group.state == state)));
            }
        }
    }

    fn events(&self, out: &mut String) {
        head(out, "events_total", "Events that standbys have applied.", "counter");
        for group in &self.groups {
            for (class, count) in &group.events_by_class {
                let labels = format!("group=\"{}\",class=\"{class}\"", group.name);
                line(out, "events_total", &labels, *count as f64);
            }
        }
    }

    fn standbys(&self, out: &mut String) {
        let copies = |value: fn(&us_supervisor::status::StandbyCopy) -> u64| {
            let groups = self.groups.iter();
            groups.flat_map(move |group| {
                let processes = group.processes.iter();
                processes.flat_map(move |process| {
                    let standbys = process.standbys.iter();
                    standbys.map(move |standby| {
                        let labels = format!(
                            "group=\"{}\",process=\"{}\",pid=\"{}\"",
                            group.name, process.guest_pid, standby.pid
                        );
                        (labels, value(standby))
                    })
                })
            })
        };
        head(out, "standby_lag_bytes", "Bytes published and not applied.", "gauge");
        copies(|standby| standby.lag_bytes)
            .for_each(|(labels, value)| line(out, "standby_lag_bytes", &labels, value as f64));
        head(out, "standby_lag_events", "Events published and not applied.", "gauge");
        copies(|standby| standby.lag_events)
            .for_each(|(labels, value)| line(out, "standby_lag_events", &labels, value as f64));
    }

    /// Of groups whose recording other machines keep.
    fn machines(&self, out: &mut String) {
        type Figure = (&'static str, &'static str, fn(&us_supervisor::Machine) -> f64);
        let figures: [Figure; 3] = [
            ("machine_shipping", "Whether the log goes to the machine now.", |machine| {
                f64::from(u8::from(machine.state == "shipping"))
            }),
            (
                "machine_lag_bytes",
                "Bytes of the recording that the machine has not acknowledged.",
                |machine| machine.lag_bytes as f64,
            ),
            ("machine_lag_seconds", "How long the first of these has waited.", |machine| {
                machine.lag_us as f64 / 1e6
            }),
        ];
        for (name, help, value) in figures {
            head(out, name, help, "gauge");
            for group in &self.groups {
                for machine in &group.machines {
                    // The file that it comes from is one of the group's.
                    let legal = |c: &char| c.is_ascii_alphanumeric() || *c == '-';
                    let node: String = machine.node.chars().filter(legal).collect();
                    line(out, name, &format!("group=\"{}\",node=\"{node}\"", group.name), value(machine));
                }
            }
        }
    }
}

fn head(out: &mut String, name: &str, help: &str, kind: &str) {
    // Writing to a string does not fail.
    let _ = writeln!(out, "# HELP understudy_{name} {help}\n# TYPE understudy_{name} {kind}");
}

fn line(out: &mut String, name: &str, labels: &str, value: f64) {
    let _ = writeln!(out, "understudy_{name}{{{labels}}} {value}");
}
