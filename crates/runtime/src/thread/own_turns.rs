//! The turns of this process by itself.

use us_abi::TurnOrder;

use crate::raw;

/// The turns of this process by itself.
pub static OWN: TurnOrder = TurnOrder::new();

/// There is no log any more: whoever waits for a turn goes on without.
pub fn nobody_waits() {
    raw::futex_wake(&OWN.word.0, u32::MAX >> 1);
}
