//! Calls of epoll_ctl in doubt.
//!
//! From the moment at which the kernel has armed a descriptor its next event may be another thread's, who handles it
//! and arms the next, all before the call that armed it comes back. Such a call, made again by a copy that is live,
//! would give the descriptor to a second thread. So it is made good before anybody acts, oldest first: what the log's
//! registrations say is made true in the kernel's set, whether the dead primary had done it or not.

use us_abi::event::ReturnHead;
use us_calls::{Door, EpollDoor, Policy};

use crate::door::epoll::{self, CTL_ADD, CTL_DEL, CTL_MOD};
use crate::raw::failed;
use crate::standby::settle::{Doubt, complete, for_doubts};

const ENOENT: i64 = -2;
const EEXIST: i64 = -17;
const EINVAL: i64 = -22;

/// Settles all of them. By the poller, while nobody acts.
pub fn settle() {
    let mut last = None;
    while let Some(doubt) = oldest_after(last) {
        last = Some(doubt.ticket);
        if let Some(result) = make_good(&doubt) {
            complete(&doubt, 0, ReturnHead { result, identity: 0 }, &[]);
        }
    }
}

fn is_control(doubt: &Doubt) -> bool {
    matches!(doubt.row.policy, Policy::Special(Door::Epoll(EpollDoor::Ctl)))
}

/// The one that began first of those that began after `last`.
fn oldest_after(last: Option<u64>) -> Option<Doubt> {
    let mut oldest: Option<Doubt> = None;
    for_doubts(|doubt| {
        let is_older = oldest.as_ref().is_none_or(|oldest| doubt.ticket < oldest.ticket);
        if is_control(&doubt) && last.is_none_or(|last| doubt.ticket > last) && is_older {
            oldest = Some(doubt);
        }
    });
    oldest
}

/// The call's result; `None` if it is to be made again, because it fails or says nothing that the table knows.
fn make_good(doubt: &Doubt) -> Option<i64> {
    let [_, op, fd, ..] = doubt.asked;
    let (epoll, fd) = (doubt.args.fd, fd as i32);
    let newest = epoll::find(epoll, fd)?;
    if op == CTL_DEL {
        // Who has seen it gone may have added the descriptor again, and that is no longer in doubt.
        if epoll::count(epoll, fd) > 1 && !is_in_doubt(newest) {
            return Some(0);
        }
        let result = epoll::control_kernel(newest, CTL_DEL);
        return (!failed(result) || result == ENOENT).then_some(0);
    }
    let own = (doubt.args.len as u32).checked_sub(1)?;
    if newest != own {
        // A younger one is there: whoever made it had this one's event.
        return Some(0);
    }
    if op == CTL_ADD {
        let result = epoll::control_kernel(own, CTL_ADD);
        if result != EEXIST {
            return (!failed(result)).then_some(0);
        }
        if epoll::count(epoll, fd) > 1 {
            return Some(EEXIST);
        }
    }
    // An exclusive one cannot be modified, and is there as it was asked for.
    let result = epoll::control_kernel(own, CTL_MOD);
    (!failed(result) || op == CTL_ADD && result == EINVAL).then_some(0)
}

/// Whether the call that has made a registration is in doubt itself.
fn is_in_doubt(place: u32) -> bool {
    let mut any = false;
    for_doubts(|doubt| any |= is_control(&doubt) && doubt.args.len == u64::from(place) + 1);
    any
}
