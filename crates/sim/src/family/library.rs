//! The programs of families.

use super::world::Op::{self, *};
use super::world::Program;

/// All of them.
#[must_use]
pub fn all() -> Vec<Program> {
    let base = |name, why, codes: &[&[Op]], there: usize| {
        let mut code = Vec::new();
        let entries: Vec<u8> = codes
            .iter()
            .map(|ops| {
                let entry = u8::try_from(code.len()).expect("short programs");
                code.extend_from_slice(ops);
                entry
            })
            .collect();
        let entries = entries[..there].to_vec();
        Program { name, why, code, entries, forms: false, kills: 1, losses: 0 }
    };
    vec![
        base(
            "family-counter",
            "what each reads of the other is put out",
            &[&[Add(0), Load(0), Put, Add(0), End], &[Add(0), Load(0), Put, End]],
            2,
        ),
        base(
            "family-yield",
            "turns are given back without a call, and what was written behind the last event is forgotten",
            &[&[Add(0), Yield, Add(0), Load(0), Put, End], &[Add(0), Yield, Load(0), Put, End]],
            2,
        ),
        base(
            "family-ends",
            "one ends while the other goes on",
            &[&[Add(0), End], &[Load(0), Put, Add(0), Load(0), Put, End]],
            2,
        ),
        base(
            "family-fault",
            "one makes a fault, which its standby comes to by itself while the others take over",
            &[&[Add(0), Fault], &[Add(0), Load(0), Put, End]],
            2,
        ),
        Program {
            kills: 2,
            ..base(
                "family-child",
                "a child is born, gets its standby, and may be too late to take over",
                &[&[Add(0), Fork(5), Load(0), Put, End], &[Add(0), Load(0), Put, End]],
                1,
            )
        },
        Program {
            losses: 1,
            ..base(
                "family-loss",
                "a standby is lost, and with it the order of all",
                &[&[Add(0), Yield, Add(0), End], &[Add(0), Load(0), Put, End]],
                2,
            )
        },
        Program {
            forms: true,
            ..base(
                "family-forms",
                "a family is formed of processes that run",
                &[&[Add(0), Load(0), Put, End], &[Add(0), Load(0), Put, End]],
                2,
            )
        },
        Program {
            forms: true,
            kills: 0,
            ..base(
                "family-forms-late",
                "somebody makes a child while a family is formed",
                &[&[Fork(6), Load(0), Put, End], &[Add(0), End], &[Add(0), End]],
                2,
            )
        },
    ]
}
