//! Prints `docs/SYSCALLS.md` from the table.
//!
//! `cargo run -p us-calls --example table > docs/SYSCALLS.md`

use std::fmt::Write as _;

use us_calls::{Order, Policy, Row, TABLE};

/// A section: heading, what it means, which rows.
type Section = (&'static str, &'static str, fn(&Row) -> bool);

const SECTIONS: &[Section] = &[
    ("Local", "Both copies execute the call; nothing is logged.", |row| row.policy == Policy::Local),
    (
        "Recorded",
        "The primary executes the call and logs its result and output; the standby copies them.",
        |row| row.policy == Policy::Recorded,
    ),
    (
        "By hand",
        "As recorded, with a door of its own where the plain way would lose or tell something wrong.",
        |row| matches!(row.policy, Policy::Special(_)),
    ),
    (
        "Refused",
        "The program gets the call as always; its standby cannot follow and is made anew. *Sticky*: not before the \
         object is gone.",
        |row| row.policy == Policy::Refused,
    ),
    ("Denied", "Answered with an error without being executed; programs have another way.", |row| {
        matches!(row.policy, Policy::Denied(_) | Policy::Declined(_))
    }),
];

fn ticket(order: Order) -> &'static str {
    match order {
        Order::None => "",
        Order::Enter => "entry",
        Order::Return => "return",
        Order::Both => "both",
    }
}

fn door(row: &Row) -> String {
    match row.policy {
        Policy::Special(door) if row.observes => format!("{door:?}, one event"),
        Policy::Special(door) => format!("{door:?}"),
        Policy::Recorded if row.observes => "one event".to_string(),
        Policy::Refused if row.sticky => "sticky".to_string(),
        Policy::Denied(38) => "ENOSYS".to_string(),
        Policy::Declined(_) => "ENOSYS beside a standby".to_string(),
        Policy::Denied(errno) => format!("errno {errno}"),
        _ => String::new(),
    }
}

fn markdown() -> String {
    let mut text = String::from(
        "# System calls\n\nGenerated from the table in `crates/calls`; `cargo run -p us-calls --example table` \
         prints it.\n\nA call that is not listed answers ENOSYS where the process has or may get a copy, \
         as on an older\nkernel; with `--standbys 0` it is executed. *Ticket*: when\nthe call takes its place in the order of calls; at entry when others \
         may observe it, at return when it learns of others.\n*One event*: the call changes nothing, so it is never in doubt, \
         and its end says all of it.\n",
    );
    let rows = || TABLE.iter().flatten();
    text.push_str("\n| Policy | Calls |\n|---|---:|\n");
    for (title, _, belongs) in SECTIONS {
        let count = rows().filter(|row| belongs(row)).count();
        let _ = writeln!(text, "| [{title}](#{}) | {count} |", title.to_lowercase().replace(' ', "-"));
    }
    for (title, meaning, belongs) in SECTIONS {
        let _ = write!(
            text,
            "\n## {title}\n\n{meaning}\n\n| Nr | Call | Ticket | Class | Door | Why | Guest |\n|---:|---|---|---|---|---|---|\n"
        );
        for row in rows().filter(|row| belongs(row)) {
            let _ = writeln!(
                text,
                "| {} | `{}` | {} | {} | {} | {} | {} |",
                row.nr,
                row.name,
                ticket(row.order),
                row.class.name(),
                door(row),
                row.why,
                row.guest
            );
        }
    }
    text
}

fn main() {
    print!("{}", markdown());
}
