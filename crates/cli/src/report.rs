//! What people read: tables, and JSON for their scripts.

use std::collections::VecDeque;

use serde_json::Value;
use us_supervisor::doctor::{Findings, ProgramCheck};
use us_supervisor::status::{Group, GuestProcess, Status};
use us_supervisor::terminal::{plain, plain_json};

/// A value as indented JSON with a final newline.
pub fn json(value: &impl serde::Serialize) -> String {
    serde_json::to_string_pretty(value)
        .map_or_else(|_| String::new(), |text| plain_json(&text).into_owned() + "\n")
}

/// The table of groups, and below it what does not fit a table.
pub fn status(status: &Status) -> String {
    let others = others(status);
    if status.groups.is_empty() {
        return format!("no groups\n{others}");
    }
    let head = ["NAME", "STATE", "PRIMARY", "STANDBY", "LAG", "CPU s", "MEMORY", "EPOCH", "PROTECTED"];
    let mut rows = vec![head.map(String::from)];
    rows.extend(status.groups.iter().flat_map(rows_of));
    let notes = status.groups.iter().flat_map(notes);
    table(&rows) + &notes.collect::<String>() + &others
}

/// How many groups other users have.
fn others(status: &Status) -> String {
    let all = status.others.iter().map(|other| format!("{} of user {}", other.groups, other.uid));
    match all.collect::<Vec<_>>() {
        all if all.is_empty() => String::new(),
        all => format!("groups of other users: {} (--user shows them)\n", all.join(", ")),
    }
}

/// A group's row with its first process in it, and one more for each of the others, as a tree.
fn rows_of(group: &Group) -> Vec<[String; 9]> {
    let first = group.processes.first();
    let mut rows = vec![row(group.name.clone(), group.state, first)];
    rows[0][7] = group.epoch.to_string();
    rows[0][8] = format!("{:.2} %", group.protected_share * 100.0);
    let all = &group.processes;
    let is_listed = |pid| all.iter().any(|process| process.guest_pid == pid);
    // Whose parent has ended stands beside the first.
    let is_top = |process: &&GuestProcess| !is_listed(process.parent_pid);
    for top in all.iter().filter(is_top) {
        let depth = usize::from(!std::ptr::eq(top, &all[0]));
        branch(all, top, depth, &mut rows);
    }
    rows
}

/// The row of `process`, unless it is the group's own, and below it those of its children.
fn branch(all: &[GuestProcess], process: &GuestProcess, depth: usize, rows: &mut Vec<[String; 9]>) {
    if depth > 0 {
        let name = format!("{}{} {}", "  ".repeat(depth), process.guest_pid, process.program);
        rows.push(row(name, process.state, Some(process)));
    }
    // A guest writes the parents, and could write a circle. No process is older than its parent.
    let from = all.iter().position(|other| std::ptr::eq(other, process)).map_or(all.len(), |at| at + 1);
    let children = all[from..].iter().filter(|child| child.parent_pid == process.guest_pid);
    children.for_each(|child| branch(all, child, depth + 1, rows));
}

fn row(name: String, state: &str, process: Option<&GuestProcess>) -> [String; 9] {
    let primary = process.and_then(|process| process.primary.as_ref());
    let standbys = process.map_or(&[][..], |process| &process.standbys);
    // The one that takes over.
    let standby = standbys.first();
    let pids: Vec<String> = standbys.iter().map(|copy| copy.pid.to_string()).collect();
    let cpu_s: f64 = standbys.iter().map(|copy| copy.cpu_s).sum();
    let or_dash = |text: Option<String>| text.unwrap_or_else(|| "-".into());
    [
        name,
        standby
            .map_or(state, |standby| match standby.state {
                "following" => state,
                other => other,
            })
            .to_string(),
        or_dash(primary.map(|copy| copy.pid.to_string())),
        or_dash(standby.map(|_| pids.join(", "))),
        or_dash(standby.map(|copy| format!("{} events, {}", copy.lag_events, size(copy.lag_bytes)))),
        or_dash(primary.map(|copy| match standby {
            Some(_) => format!("{:.1} + {cpu_s:.1}", copy.cpu_s),
            None => format!("{:.1}", copy.cpu_s),
        })),
        or_dash(primary.map(|copy| size(copy.rss_bytes))),
        String::new(),
        String::new(),
    ]
}

fn notes(group: &Group) -> Vec<String> {
    let name = &group.name;
    let mut lines = vec![format!("{name}: guarantee: {}", group.guarantee)];
    let told = |total: u64, shown: usize, what: &str| {
        let earlier = total.saturating_sub(shown as u64);
        (earlier > 0).then(|| format!("{name}: {earlier} {what} before these"))
    };
    let shown = last(&group.failovers);
    lines.extend(told(u64::from(group.epoch), shown.len(), "failovers"));
    lines.extend(shown.iter().map(|failover| {
        format!(
            "{name}: failover{} {}: {}, blackout {:.1} ms, in doubt {}, unsettled {}",
            whose(group, failover.process),
            failover.at,
            failover.reason,
            failover.blackout_us as f64 / 1000.0,
            failover.in_doubt,
            failover.unsettled
        )
    }));
    let shown = last(&group.reclones);
    lines.extend(told(group.reclones_total, shown.len(), "new standbys"));
    lines.extend(shown.iter().map(|reclone| {
        format!(
            "{name}: new standby{} {}: {} ({}), missing for {:.1} ms, pause {:.1} ms, {}",
            whose(group, reclone.process),
            reclone.at,
            reclone.reason,
            reclone.why,
            reclone.gap_us as f64 / 1000.0,
            reclone.pause_us as f64 / 1000.0,
            size(reclone.bytes),
        )
    }));
    let shown = last(&group.divergences);
    lines.extend(told(group.divergences_total, shown.len(), "divergences"));
    lines.extend(shown.iter().map(|found| {
        format!("{name}: divergence{} {}: {}", whose(group, found.process), found.at, found.reason)
    }));
    // A tenth of a second is a standby that was late once.
    if group.lag_waits_ms >= 500 {
        lines.push(format!(
            "{name}: warning: its threads have waited {:.1} s in all for a standby that was a full ring behind: \
             more processors, --cpus, or a shorter --lag-timeout",
            group.lag_waits_ms as f64 / 1000.0
        ));
    }
    if let Some(recording) = &group.recording {
        let how =
            recording.ended.as_ref().map_or("recording into".into(), |why| format!("{why}; recorded into"));
        lines.push(format!("{name}: {how} {}", recording.file));
    }
    if let Some(probe) = group.probe.as_ref().filter(|probe| probe.waits) {
        lines.push(format!("{name}: the probe waits until there is a standby: {}", probe.command));
    }
    if !group.refused_calls.is_empty() {
        let calls: Vec<String> =
            group.refused_calls.iter().map(|(call, count)| format!("{call} ({count})")).collect();
        lines.push(format!("{name}: calls that cannot be replayed: {}", calls.join(", ")));
    }
    lines.iter().map(|line| plain(line).into_owned() + "\n").collect()
}

/// Of which process something is told, where that is not the group's own.
fn whose(group: &Group, process: u32) -> String {
    let own = group.processes.first().is_some_and(|first| first.guest_pid == process);
    if own { String::new() } else { format!(" of process {process}") }
}

/// The end of a list that a person may want to read.
fn last<T>(all: &VecDeque<T>) -> Vec<&T> {
    const SHOWN: usize = 10;
    all.range(all.len().saturating_sub(SHOWN)..).collect()
}

/// What a planned switch came to.
pub fn failover(name: &str, done: &Value) -> String {
    let number = |field: &str| done[field].as_u64().unwrap_or_default();
    format!(
        "{name}: pid {} took over, blackout {:.1} ms, in doubt {}, unsettled {}\n",
        number("primary"),
        number("blackout_us") as f64 / 1000.0,
        number("in_doubt"),
        number("unsettled"),
    )
}

/// Bytes in the largest unit that leaves a number of at least one.
pub fn size(bytes: u64) -> String {
    const UNITS: [&str; 4] = ["KiB", "MiB", "GiB", "TiB"];
    if bytes < 1024 {
        return format!("{bytes} B");
    }
    let mut value = bytes as f64 / 1024.0;
    let mut unit = 0;
    while value >= 1024.0 && unit + 1 < UNITS.len() {
        value /= 1024.0;
        unit += 1;
    }
    format!("{value:.1} {}", UNITS[unit])
}

/// Columns side by side, as wide as they have to be.
pub fn table<const N: usize>(rows: &[[String; N]]) -> String {
    let width = |column: usize| rows.iter().map(|row| plain(&row[column]).chars().count()).max().unwrap_or(0);
    let widths: Vec<usize> = (0..N).map(width).collect();
    let line = |row: &[String; N]| {
        let cells: Vec<String> =
            row.iter().zip(&widths).map(|(cell, width)| format!("{:<width$}", plain(cell))).collect();
        cells.join("  ").trim_end().to_owned() + "\n"
    };
    rows.iter().map(line).collect()
}

/// The findings of `doctor`.
pub fn doctor(findings: &Findings) -> String {
    let rows: Vec<[String; 3]> = findings
        .checks
        .iter()
        .map(|check| {
            let verdict = match (check.ok, check.required) {
                (true, _) => "ok",
                (false, true) => "FAILED",
                (false, false) => "note",
            };
            [verdict.into(), check.name.into(), check.found.clone()]
        })
        .collect();
    let program = findings.program.as_ref().map(|program| match &program.why {
        None => format!("\n{} can be protected{}\n", plain(&program.program), own_calls(program)),
        Some(why) => format!("\n{}\n", plain(why)),
    });
    table(&rows) + &program.unwrap_or_default()
}

/// A hint for programs that call the kernel from their own code.
fn own_calls(program: &ProgramCheck) -> String {
    match program.sites {
        Some(sites) if sites.found > 0 => {
            format!(
                "; system calls in its own code: {}, of which {} can be patched",
                sites.found, sites.patchable
            )
        }
        _ => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes() {
        assert_eq!((size(0), size(1023), size(1024)), ("0 B".into(), "1023 B".into(), "1.0 KiB".into()));
        assert_eq!((size(1 << 20), size(3 << 40)), ("1.0 MiB".into(), "3.0 TiB".into()));
    }

    #[test]
    fn columns_line_up() {
        let rows = [["a", "bbb"], ["cc", "d"]].map(|row| row.map(String::from));
        assert_eq!(table(&rows), "a   bbb\ncc  d\n");
    }
}
