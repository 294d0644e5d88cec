//! What people read: tables, and JSON for their scripts.

mod explain;
mod status;
pub mod trial;

use serde::Deserialize;
use serde_json::Value;
use us_supervisor::doctor::{Findings, ProgramCheck, Sites};
use us_supervisor::history::Failover;
use us_supervisor::terminal::{plain, plain_json};

pub use self::explain::{Told, explained, places, unsettled};
pub use self::status::{
    COLUMNS, HEAD, STATE, columns, divergence as divergence_line, failover as failover_line, rows_of, status,
    whose,
};

/// A value as indented JSON with a final newline.
pub fn json(value: &impl serde::Serialize) -> String {
    serde_json::to_string_pretty(value)
        .map_or_else(|_| String::new(), |text| plain_json(&text).into_owned() + "\n")
}

/// What a planned switch came to.
pub fn failover(name: &str, done: &Value) -> String {
    let number = |field: &str| done[field].as_u64().unwrap_or_default();
    // A supervisor of another version may say less.
    let unsettled = Failover::deserialize(done)
        .map_or_else(|_| format!("unsettled {}", number("unsettled")), |failover| failover.unsettled_words());
    format!(
        "{name}: pid {} took over, blackout {:.1} ms, in doubt {}, {}\n",
        number("primary"),
        number("blackout_us") as f64 / 1000.0,
        number("in_doubt"),
        plain(&unsettled),
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
    let widths = widths(rows);
    let line = |row: &[String; N]| {
        let cells: Vec<String> =
            row.iter().zip(&widths).map(|(cell, width)| format!("{:<width$}", plain(cell))).collect();
        cells.join("  ").trim_end().to_owned() + "\n"
    };
    rows.iter().map(line).collect()
}

/// How wide each column has to be.
fn widths<const N: usize>(rows: &[[String; N]]) -> Vec<usize> {
    let width = |column: usize| rows.iter().map(|row| plain(&row[column]).chars().count()).max().unwrap_or(0);
    (0..N).map(width).collect()
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
            let way_out =
                if check.way_out.is_empty() { String::new() } else { format!(": {}", check.way_out) };
            [verdict.into(), check.name.into(), check.found.clone() + &way_out]
        })
        .collect();
    let program = findings.program.as_ref().map(|program| match &program.why {
        None => {
            format!(
                "\n{}{} can be protected{}\n",
                own_atomics(program),
                plain(&program.program),
                own_calls(program)
            )
        }
        Some(why) => format!("\n{}\n", plain(why)),
    });
    table(&rows) + &program.unwrap_or_default()
}

/// A hint for programs that call the kernel from their own code.
fn own_calls(program: &ProgramCheck) -> String {
    found("; system calls", program.sites).unwrap_or_default()
}

/// A line about programs whose threads meet at atomic instructions of their own.
fn own_atomics(program: &ProgramCheck) -> String {
    found("atomic instructions", program.atomics)
        .map_or_else(String::new, |found| found + " by --order schedule --atomics on\n")
}

fn found(what: &str, sites: Option<Sites>) -> Option<String> {
    let Sites { found, patchable } = sites.filter(|sites| sites.found > 0)?;
    Some(format!("{what} in its own code: {found}, of which {patchable} can be patched"))
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
