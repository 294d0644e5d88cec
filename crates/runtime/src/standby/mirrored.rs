//! Calls in doubt of a mirror that takes over. Nothing of them has been done here, but for two kinds; of these the log is completed, as
//! behind a failover on one machine. By the poller, when the mirror has its objects.

use us_abi::event::{RETURN_PARTIAL, ReturnHead};
use us_calls::{Door, FdUse, Policy};

use crate::mirror;
use crate::standby::settle::{Doubt, complete, for_doubts};

/// Appends the `Return` of each call that has been done.
pub fn settle() {
    for_doubts(|doubt| {
        let done = match doubt.row.policy {
            Policy::Special(Door::Close) => closed(&doubt),
            // What the supervisor has put into the rebuilt connection has been sent.
            Policy::Special(Door::Write | Door::Writev | Door::Send | Door::SendMsg) => {
                mirror::queued(doubt.slot, doubt.args.fd)
            }
            _ => None,
        };
        if let Some(result) = done {
            let is_cut = result > 0 && (result as u64) < doubt.args.len;
            let flags = if is_cut { RETURN_PARTIAL } else { 0 };
            complete(&doubt, flags, ReturnHead { result, identity: 0 }, &[]);
        }
    });
}

/// A mirror closes at the call's beginning. One number that was not open is told so once more.
fn closed(doubt: &Doubt) -> Option<i64> {
    let was_open = doubt.so_far >> 32 != 0;
    (was_open || !matches!(doubt.row.fd, FdUse::Closes(_))).then_some(0)
}
