//! Which children a call is about.

use core::sync::atomic::Ordering;

use us_abi::Process;

use super::{WAITID, WEXITED};
use crate::door::numbers;
use crate::members::{self, leader};
use crate::raw;

/// Which children a call is about.
#[derive(Clone, Copy)]
enum Whom {
    All,
    One(u32),
    /// A process group by the kernel's number, 0 for the caller's own.
    Group(u32),
}

/// A call of either kind, in waitid's terms.
pub(super) struct Ask {
    whom: Whom,
    /// The kernel's own words for it.
    pub(super) kernel: [u64; 2],
    pub(super) options: u64,
}

impl Ask {
    /// What the call asks for; `None` where the kernel knows best.
    pub(super) fn new(nr: u64, args: &[u64; 6]) -> Option<Ask> {
        use crate::kernel::{P_ALL, P_PGID, P_PID, P_PIDFD};
        let id = |value: u64| value as u32;
        let group_of = |value: u32| Whom::Group(leader::to_kernel(value));
        if nr == WAITID {
            let whom = match args[0] as u32 as u64 {
                P_ALL => Whom::All,
                P_PID => Whom::One(id(args[1])),
                P_PGID => group_of(id(args[1])),
                // Of the descriptor of a child's first primary the kernel tells nobody who that was. The child need not be listed yet:
                // a wait that the kernel alone has would tell the death of that primary as its end.
                P_PIDFD => Whom::One(numbers::meant_by(args[1] as i32)?),
                _ => return None,
            };
            let number = if let Whom::Group(group) = whom { group.into() } else { args[1] };
            return Some(Ask { whom, kernel: [args[0], number], options: args[3] });
        }
        let (whom, kernel) = match args[0] as u32 as i32 {
            -1 => (Whom::All, [P_ALL, 0]),
            0 => (Whom::Group(0), [P_PGID, 0]),
            pid if pid > 0 => (Whom::One(pid as u32), [P_PID, pid as u64]),
            i32::MIN => return None,
            group => {
                (group_of(group.unsigned_abs()), [P_PGID, u64::from(leader::to_kernel(group.unsigned_abs()))])
            }
        };
        // wait4 means ends unless it is told otherwise, and has no WEXITED.
        Some(Ask { whom, kernel, options: args[2] | WEXITED })
    }

    /// The child that it is about, if that is a certain one.
    pub(super) fn one(&self) -> Option<u32> {
        match self.whom {
            Whom::One(pid) => Some(pid),
            _ => None,
        }
    }

    /// Whether it is about this child; `None` while nobody knows: the group of one that has been reaped comes with the word of its
    /// end.
    pub(super) fn is_about(&self, entry: &Process) -> Option<bool> {
        match self.whom {
            Whom::All => Some(true),
            Whom::One(pid) => Some(entry.pid.load(Ordering::Relaxed) == pid),
            Whom::Group(0) => members::group_of(entry).map(|its| its == own_group()),
            Whom::Group(group) => members::group_of(entry).map(|its| its == group),
        }
    }
}

fn own_group() -> u32 {
    use crate::raw::nr::GETPGRP;
    // SAFETY: asks for a number.
    unsafe { raw::call1(GETPGRP, 0) as u32 }
}
