//! Calls of epoll_ctl in doubt.
//!
//! Each is made good before anybody acts, oldest first: `us_world::set` says how, and why.

use us_abi::event::ReturnHead;
use us_calls::{Door, EpollDoor, Policy};
use us_world::set::{self, Answer, Change, Control, Good, Registrations};

use crate::door::epoll::{self, CTL_ADD, CTL_DEL, CTL_MOD};
use crate::raw::err::{EEXIST, EINVAL, ENOENT};
use crate::raw::failed;
use crate::standby::settle::{Doubt, complete, for_doubts};

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

/// The call's result; `None` if it is to be made again.
fn make_good(doubt: &Doubt) -> Option<i64> {
    let [_, op, fd, ..] = doubt.asked;
    let change = match op {
        CTL_ADD => Change::Add,
        CTL_DEL => Change::Delete,
        _ => Change::Modify,
    };
    let own = (doubt.args.len as u32).checked_sub(1);
    match set::make_good(Control { change, own }, &mut Known { epoll: doubt.args.fd, fd: fd as i32 }) {
        Good::Done => Some(0),
        Good::WasThere => Some(EEXIST),
        Good::Again => None,
    }
}

/// A descriptor in a set, as the table of registrations and the kernel have it.
struct Known {
    epoll: i32,
    fd: i32,
}

impl Registrations for Known {
    fn newest(&mut self) -> Option<u32> {
        epoll::find(self.epoll, self.fd)
    }

    fn count(&mut self) -> usize {
        epoll::count(self.epoll, self.fd)
    }

    fn is_in_doubt(&mut self, registration: u32) -> bool {
        is_in_doubt(registration)
    }

    fn make(&mut self, registration: u32, change: Change) -> Answer {
        let operation = match change {
            Change::Add => CTL_ADD,
            Change::Delete => CTL_DEL,
            Change::Modify => CTL_MOD,
        };
        match epoll::control_kernel(registration, operation) {
            ENOENT => Answer::Missing,
            EEXIST => Answer::There,
            EINVAL => Answer::Invalid,
            result if failed(result) => Answer::Refused,
            _ => Answer::Done,
        }
    }
}

/// Whether the call that has made a registration is in doubt itself.
fn is_in_doubt(place: u32) -> bool {
    let mut any = false;
    for_doubts(|doubt| any |= is_control(&doubt) && doubt.args.len == u64::from(place) + 1);
    any
}
