//! The tables of `status`.

use std::collections::{BTreeSet, VecDeque};

use us_supervisor::ended::Ended;
use us_supervisor::history::{self, Divergence, Failover, Lost, Reclone};
use us_supervisor::recorder::cluster;
use us_supervisor::status::{Group, GuestProcess, Status};
use us_supervisor::terminal::plain;

use super::{size, widths};
use crate::style::Style;

/// Ends that are shown where nobody has asked for one of them, at most.
const ENDED_SHOWN: usize = 5;

/// Columns of the table of groups.
pub const COLUMNS: usize = 9;

/// What they are.
pub const HEAD: [&str; COLUMNS] =
    ["NAME", "STATE", "PRIMARY", "STANDBY", "LAG", "CPU s", "MEMORY", "EPOCH", "PROTECTED"];

/// The second column: the one with a colour.
pub const STATE: usize = 1;

/// The columns in the order in which a narrow terminal does without them.
const LEFT_OUT: [usize; 6] = [7, 6, 5, 8, 4, 3];

/// The table of groups, and below it what does not fit a table. `whole` says all there is to say of a group that has ended.
pub fn status(status: &Status, style: Style, whole: bool) -> String {
    let others = others(status);
    let ended: String = match whole {
        true => status.ended.iter().map(end).collect(),
        false => ends(&status.ended),
    };
    if status.groups.is_empty() {
        let none = if whole { "" } else { "no groups\n" };
        return format!("{none}{ended}{others}");
    }
    let mut rows = vec![HEAD.map(String::from)];
    rows.extend(status.groups.iter().flat_map(rows_of));
    let notes = status.groups.iter().flat_map(notes);
    table(&rows, style) + &notes.collect::<String>() + &ended + &others
}

/// The columns that fit into `width`, and how wide each is.
pub fn columns(rows: &[[String; COLUMNS]], width: Option<usize>) -> (Vec<usize>, Vec<usize>) {
    let widths = widths(rows);
    let mut shown: Vec<usize> = (0..COLUMNS).collect();
    for left_out in LEFT_OUT {
        let needed = shown.iter().map(|column| widths[*column] + 2).sum::<usize>() - 2;
        if width.is_none_or(|width| needed <= width) {
            break;
        }
        shown.retain(|column| *column != left_out);
    }
    (shown, widths)
}

/// The columns that fit a terminal, with colours if it has them.
fn table(rows: &[[String; COLUMNS]], style: Style) -> String {
    let (shown, widths) = columns(rows, style.width);
    let line = |row: &[String; COLUMNS]| {
        let cell = |column: &usize| {
            let padded = format!("{:<width$}", plain(&row[*column]), width = widths[*column]);
            if *column == STATE { style.state(&padded) } else { padded }
        };
        shown.iter().map(cell).collect::<Vec<_>>().join("  ").trim_end().to_owned() + "\n"
    };
    rows.iter().map(line).collect()
}

/// How the last groups have ended, a line each.
fn ends(ended: &[Ended]) -> String {
    let line = |ended: &Ended| format!("ended: {}, at {}: {}\n", ended.name, ended.at, plain(&ended.how));
    let shown: String = ended.iter().take(ENDED_SHOWN).map(line).collect();
    match ended.len().saturating_sub(ENDED_SHOWN) {
        0 => shown,
        more => format!("{shown}ended: {more} more in the last day (--json lists them)\n"),
    }
}

/// All that is left of a group.
fn end(ended: &Ended) -> String {
    let name = &ended.name;
    let mut lines = vec![
        format!("{name} ended at {}: {}", ended.at, ended.how),
        format!("{name}: it was {}, started at {}", ended.program.join(" "), ended.since),
        format!(
            "{name}: protected {:.2} % of the time; failovers: {}, divergences: {}, processes lost: {}",
            ended.protected_share * 100.0,
            ended.failovers_total,
            ended.divergences_total,
            ended.lost_total
        ),
    ];
    let mut told: Vec<(&str, String)> = Vec::new();
    let processes = ended.failovers.iter().map(|entry| entry.process);
    let processes: BTreeSet<u32> =
        processes.chain(ended.divergences.iter().map(|entry| entry.process)).collect();
    let whose = |process| if processes.len() > 1 { format!(" of process {process}") } else { String::new() };
    let failovers = ended.failovers.iter();
    told.extend(failovers.map(|entry| (&*entry.at, failover(name, &whose(entry.process), entry))));
    let divergences = ended.divergences.iter();
    told.extend(divergences.map(|entry| (&*entry.at, divergence(name, &whose(entry.process), entry))));
    told.extend(ended.lost.iter().map(|entry| (&*entry.at, lost(name, entry))));
    told.sort();
    lines.extend(told.into_iter().map(|(_, line)| line));
    if let Some(recording) = &ended.recording {
        let why = recording.ended.as_ref().map_or(String::new(), |why| format!("{why}; "));
        lines.push(format!("{name}: {why}recorded into {}", recording.file));
    }
    lines.iter().map(|line| plain(line).into_owned() + "\n").collect()
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
pub fn rows_of(group: &Group) -> Vec<[String; 9]> {
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

/// What there is to say of a group besides its row: what holds now, then what happened, in order.
fn notes(group: &Group) -> Vec<String> {
    let name = &group.name;
    let mut lines = vec![format!("{name}: guarantee: {}", group.guarantee)];
    // Otherwise the guarantee says it: there is none.
    lines.extend(group.why.iter().filter(|_| group.state == "protected").map(|why| format!("{name}: {why}")));
    lines.extend(without_standby(group));
    let taking_turns = group.processes.iter().filter(|process| process.order == "serial").count();
    match (taking_turns, group.processes.len()) {
        (0, _) => {}
        (1, 1) => lines.push(format!("{name}: its threads take turns: they use one processor at a time")),
        (some, _) => {
            lines.push(format!(
                "{name}: in {some} of its processes the threads take turns: one processor at a time"
            ));
        }
    }
    let computed = group.processes.iter().filter_map(|process| process.computed.as_ref());
    let guessed: u64 = computed.map(|order| order.order_guessed).sum();
    if guessed > 0 {
        lines.push(format!(
            "{name}: the order of its threads was guessed by time {}: two runs may differ",
            if guessed == 1 { "once".into() } else { format!("{guessed} times") }
        ));
    }
    let told = |total: u64, shown: usize, what: &str| {
        let earlier = total.saturating_sub(shown as u64);
        (earlier > 0).then(|| format!("{name}: {earlier} {what} before these"))
    };
    let mut history: Vec<(&str, String)> = Vec::new();
    let failovers = last(&group.failovers);
    lines.extend(told(u64::from(group.epoch), failovers.len(), "failovers"));
    history.extend(
        failovers.iter().map(|entry| (&*entry.at, failover(name, &whose(group, entry.process), entry))),
    );
    let reclones = last(&group.reclones);
    lines.extend(told(group.reclones_total, reclones.len(), "new standbys"));
    history.extend(
        reclones.iter().map(|entry| (&*entry.at, reclone(name, &whose(group, entry.process), entry))),
    );
    let divergences = last(&group.divergences);
    lines.extend(told(group.divergences_total, divergences.len(), "divergences"));
    history.extend(
        divergences.iter().map(|entry| (&*entry.at, divergence(name, &whose(group, entry.process), entry))),
    );
    let losses = last(&group.lost);
    lines.extend(told(group.lost_total, losses.len(), "lost processes"));
    history.extend(losses.iter().map(|entry| (&*entry.at, lost(name, entry))));
    // What happened at one moment stays in the order of cause and effect: divergence, failover, new standby.
    history.sort_by(|a, b| a.0.cmp(b.0));
    lines.extend(history.into_iter().map(|(_, line)| line));
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
    if let Some(mirror) = &group.mirror {
        lines.push(format!("{name}: {}", mirror.words()));
    }
    if let Some(gate) = &group.gate {
        lines.push(format!("{name}: {}", gate.words()));
    }
    for machine in &group.machines {
        lines.push(format!("{name}: {}", cluster::words(machine)));
        lines.extend(
            machine.remarks.iter().map(|remark| format!("{name}: a replay there may go astray: {remark}")),
        );
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

/// Processes besides the first one that are not protected, by the reason.
fn without_standby(group: &Group) -> Vec<String> {
    const REASONS_MAX: usize = 4;
    let mut reasons: Vec<(&str, Vec<u32>)> = Vec::new();
    let others = group.processes.iter().skip(1);
    for process in others.filter(|process| !matches!(process.state, "protected" | "lost")) {
        let Some(why) = process.why.as_deref() else { continue };
        match reasons.iter_mut().find(|(known, _)| *known == why) {
            Some((_, pids)) => pids.push(process.guest_pid),
            None => reasons.push((why, vec![process.guest_pid])),
        }
    }
    let more = reasons.len().saturating_sub(REASONS_MAX);
    let line = |(why, pids): &(&str, Vec<u32>)| match pids[..] {
        [pid] => format!("{}: process {pid} is not protected: {why}", group.name),
        _ => format!("{}: {} processes are not protected: {why}", group.name, pids.len()),
    };
    let mut lines: Vec<String> = reasons.iter().take(REASONS_MAX).map(line).collect();
    lines.extend((more > 0).then(|| format!("{}: and {more} reasons more (--json has them)", group.name)));
    lines
}

/// What is said of a failover.
pub fn failover(name: &str, whose: &str, failover: &Failover) -> String {
    format!(
        "{name}: failover{whose} {}: {}, blackout {:.1} ms, in doubt {}, {}",
        failover.at,
        failover.reason,
        failover.blackout_us as f64 / 1000.0,
        failover.in_doubt,
        failover.unsettled_words()
    )
}

fn reclone(name: &str, whose: &str, reclone: &Reclone) -> String {
    let (pause_ms, bytes) = (reclone.pause_us as f64 / 1000.0, size(reclone.bytes));
    let (at, reason) = (&reclone.at, &reclone.reason);
    // A spare: there was a standby all the time.
    if reclone.why.is_empty() && reclone.gap_us == 0 {
        return format!("{name}: new standby{whose} {at}: {reason}, pause {pause_ms:.1} ms, {bytes}");
    }
    let gap_ms = reclone.gap_us as f64 / 1000.0;
    let why = &reclone.why;
    format!(
        "{name}: new standby{whose} {at}: {reason} ({why}), missing for {gap_ms:.1} ms, pause {pause_ms:.1} ms, {bytes}"
    )
}

/// What is said of a divergence.
pub fn divergence(name: &str, whose: &str, found: &Divergence) -> String {
    let place = found.explained.as_ref().and_then(super::explain::place);
    let place = place.map_or(String::new(), |place| format!("; in {place}"));
    format!("{name}: divergence{whose} {}: {}{place}", found.at, found.reason)
}

fn lost(name: &str, lost: &Lost) -> String {
    format!("{name}: lost {}: process {} ({}): {}", lost.at, lost.process, lost.program, lost.why)
}

/// Of which process something is told, where that is not the group's own.
/// Whose failover, standby or divergence it is, unless it is the first process's.
pub fn whose(group: &Group, process: u32) -> String {
    let own = group.processes.first().is_some_and(|first| first.guest_pid == process);
    if own { String::new() } else { format!(" of process {process}") }
}

/// The end of a list that a person may want to read.
fn last<T>(all: &VecDeque<T>) -> Vec<&T> {
    const SHOWN: usize = 10;
    history::last(all, SHOWN).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rows() -> Vec<[String; COLUMNS]> {
        let head = ["NAME", "STATE", "PRIMARY", "STANDBY", "LAG", "CPU s", "MEMORY", "EPOCH", "PROTECTED"];
        let row =
            ["redis", "protected", "11", "12", "0 events, 0 B", "0.0 + 0.0", "13.0 MiB", "0", "99.06 %"];
        [head, row].map(|row| row.map(String::from)).to_vec()
    }

    #[test]
    fn columns_line_up_and_a_narrow_terminal_has_fewer() {
        let wide = table(&rows(), Style::default());
        assert_eq!(
            wide,
            "NAME   STATE      PRIMARY  STANDBY  LAG            CPU s      MEMORY    EPOCH  PROTECTED\n\
             redis  protected  11       12       0 events, 0 B  0.0 + 0.0  13.0 MiB  0      99.06 %\n"
        );
        let of_width = |width| table(&rows(), Style { colours: false, width: Some(width) });
        assert_eq!(of_width(200), wide);
        assert_eq!(
            of_width(50),
            "NAME   STATE      PRIMARY  STANDBY  LAG\nredis  protected  11       12       0 events, 0 B\n"
        );
        for width in 30..90 {
            assert!(of_width(width).lines().all(|line| line.chars().count() <= width), "{width}");
        }
        assert_eq!(of_width(1), "NAME   STATE      PRIMARY\nredis  protected  11\n");
        let coloured = table(&rows(), Style { colours: true, width: Some(30) });
        assert_eq!(coloured, "NAME   STATE      PRIMARY\nredis  \u{1b}[32mprotected\u{1b}[0m  11\n");
    }
}
