//! What is told of a computed order of turns: in `status`, and at a group's end.

use serde::{Deserialize, Serialize};

/// An order as far as it has come. While the program runs its figures may be those of two turns that follow each other.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Computed {
    /// Of all turns: two orders with the same digest are the same one.
    pub order_digest: String,
    /// How many turns there have been.
    pub order_turns: u64,
    /// Of these: whose place the world has said, since their thread had waited for it. Without any the digest is the program's own.
    pub order_placed: u64,
    /// How often the order was guessed by time.
    pub order_guessed: u64,
}

impl Computed {
    /// From the words of a segment.
    pub(crate) fn of(digest: u64, turns: u64, placed: u64, guessed: u64) -> Computed {
        Computed {
            order_digest: format!("{digest:016x}"),
            order_turns: turns,
            order_placed: placed,
            order_guessed: guessed,
        }
    }
}
