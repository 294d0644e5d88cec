//! Users, groups and rights of a process: what a supervisor can give to one that goes on, and how.
//!
//! It is started with the supervisor's own, and can only lose some, or, if that is root, become somebody else. Its root folder and
//! its filters of system calls are the supervisor's.

use checkpoint::{Identity, Rights};

use super::steps::Steps;
use crate::proc;
use crate::proc::text::field;

/// A process that is somebody else than we are, or may something else. `None` for one that is as we are.
///
/// # Errors
/// What cannot be given, in words.
pub(super) fn describe(pid: u32, status: &[u8], root: String) -> Result<Option<Identity>, String> {
    let (own, its) = (proc::lossy("self", "status"), String::from_utf8_lossy(status));
    let is_same = |name: &&str| field(&its, name) == field(&own, name);
    // Filters are inherited, and only ever added: those of a container are ours as well.
    if !["Seccomp:", "Seccomp_filters:"].iter().all(is_same) {
        return Err("the program has set a filter of system calls".into());
    }
    let own_root = proc::link("self", "root").ok();
    if own_root.is_none_or(|own| own.to_str() != Some(&root)) {
        return Err("the program is in another root folder than the supervisor".into());
    }
    let refusal = "the program has another user or other rights than the supervisor can give it";
    let (ours, rights) = (of(&own).ok_or(refusal)?, of(&its).ok_or(refusal)?);
    let is_other = !["Uid:", "Gid:", "Groups:"].iter().all(is_same);
    let is_root = rustix::process::geteuid().is_root();
    if is_other && !is_root || !can_give(&ours, &rights) {
        return Err(refusal.into());
    }
    let numbers = |name| -> Vec<u32> {
        let words = field(&its, name).unwrap_or_default().split_ascii_whitespace();
        words.filter_map(|word| word.parse().ok()).collect()
    };
    let three = |name| match numbers(name)[..] {
        // Files are opened as the effective one.
        [real, effective, saved, files] if files == effective => Some([real, effective, saved]),
        _ => None,
    };
    let (users, groups) = three("Uid:").zip(three("Gid:")).ok_or(refusal)?;
    if !is_other && rights == ours {
        return Ok(None);
    }
    // Of one that root becomes, and that nobody of its users is root, the kernel takes all rights.
    let follows = Rights { effective: 0, permitted: 0, ambient: 0, ..ours };
    let follows = if is_root && !users.contains(&0) { follows } else { ours };
    Ok(Some(Identity {
        users,
        groups,
        others: numbers("Groups:"),
        is_open: proc::owner(pid) == Some(users[1]),
        rights: Some(rights).filter(|rights| *rights != follows),
    }))
}

/// What a process may, by its `status`.
fn of(status: &str) -> Option<Rights> {
    let set = |name| u64::from_str_radix(field(status, name)?, 16).ok();
    Some(Rights {
        effective: set("CapEff:")?,
        permitted: set("CapPrm:")?,
        inheritable: set("CapInh:")?,
        ambient: set("CapAmb:")?,
        bounding: set("CapBnd:")?,
        gains_none: field(status, "NoNewPrivs:") == Some("1"),
    })
}

/// Who may give rights away for good.
const CAP_SETPCAP: u64 = 1 << 8;

/// Whether a process that has `ours` can come to have `its`.
fn can_give(ours: &Rights, its: &Rights) -> bool {
    let is_within = |its: u64, ours: u64| its & !ours == 0;
    let may_bound = ours.effective & CAP_SETPCAP != 0;
    is_within(its.permitted, ours.permitted)
        && is_within(its.effective, its.permitted)
        && is_within(its.ambient, its.permitted & its.inheritable)
        && is_within(its.inheritable, ours.inheritable | ours.permitted)
        && (its.bounding == ours.bounding || may_bound && is_within(its.bounding, ours.bounding))
        && (its.gains_none || !ours.gains_none)
}

/// The process becomes who the program was. `None` without room.
pub(super) fn take(steps: &mut Steps, identity: &Identity) -> Option<()> {
    const PR_SET_DUMPABLE: u64 = 4;
    const PR_SET_KEEPCAPS: u64 = 8;
    let Identity { users, groups, others, is_open, rights } = identity;
    if let Some(rights) = rights {
        bound(steps, rights);
        steps.must(libc::SYS_prctl, &[PR_SET_KEEPCAPS, 1, 0, 0, 0], 0);
    }
    // Nobody else can be another one, or is.
    if rustix::process::geteuid().is_root() {
        let list: Vec<u8> = others.iter().flat_map(|group| group.to_le_bytes()).collect();
        let list_at = steps.keep(&list)?;
        steps.must(libc::SYS_setgroups, &[others.len() as u64, list_at], 0);
        steps.must(libc::SYS_setresgid, &groups.map(u64::from), 0);
        steps.must(libc::SYS_setresuid, &users.map(u64::from), 0);
    }
    if let Some(rights) = rights {
        steps.must(libc::SYS_prctl, &[PR_SET_KEEPCAPS, 0, 0, 0, 0], 0);
        lower(steps, rights)?;
    }
    steps.call(libc::SYS_prctl, &[PR_SET_DUMPABLE, (*is_open).into()]);
    Some(())
}

/// Gives up what no program is to get any more.
fn bound(steps: &mut Steps, rights: &Rights) {
    const PR_CAPBSET_DROP: u64 = 24;
    let ours = of(&proc::lossy("self", "status")).map_or(0, |ours| ours.bounding);
    for number in bits(ours & !rights.bounding) {
        steps.must(libc::SYS_prctl, &[PR_CAPBSET_DROP, number, 0, 0, 0], 0);
    }
}

/// Takes the rights that are left.
fn lower(steps: &mut Steps, rights: &Rights) -> Option<()> {
    const VERSION: u32 = 0x2008_0522;
    const PR_SET_NO_NEW_PRIVS: u64 = 38;
    const PR_CAP_AMBIENT: u64 = 47;
    const RAISE: u64 = 2;
    const CLEAR_ALL: u64 = 4;
    let header = steps.keep(&[VERSION.to_le_bytes(), [0; 4]].concat())?;
    let halves = |shift: u32| {
        [rights.effective, rights.permitted, rights.inheritable]
            .map(|set| ((set >> shift) as u32).to_le_bytes())
            .concat()
    };
    let sets = steps.keep(&[halves(0), halves(32)].concat())?;
    steps.must(libc::SYS_prctl, &[PR_CAP_AMBIENT, CLEAR_ALL, 0, 0, 0], 0);
    steps.must(libc::SYS_capset, &[header, sets], 0);
    for number in bits(rights.ambient) {
        steps.must(libc::SYS_prctl, &[PR_CAP_AMBIENT, RAISE, number, 0, 0], 0);
    }
    if rights.gains_none {
        steps.must(libc::SYS_prctl, &[PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0], 0);
    }
    Some(())
}

fn bits(set: u64) -> impl Iterator<Item = u64> {
    (0..64).filter(move |bit| set & 1 << bit != 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    const ROOT: Rights = Rights {
        effective: !0 >> 23,
        permitted: !0 >> 23,
        inheritable: 0,
        ambient: 0,
        bounding: !0 >> 23,
        gains_none: false,
    };

    #[test]
    fn what_is_less_can_be_given() {
        let none = Rights { effective: 0, permitted: 0, bounding: 0, gains_none: true, ..ROOT };
        let one = Rights { effective: 1 << 10, permitted: 1 << 10, ..ROOT };
        let along = Rights { inheritable: 1 << 10, ambient: 1 << 10, ..ROOT };
        for its in [ROOT, none, one, along] {
            assert!(can_give(&ROOT, &its), "{its:?}");
        }
    }

    #[test]
    fn what_is_more_cannot() {
        let user = Rights { effective: 0, permitted: 0, ..ROOT };
        let bound = Rights { bounding: 0, ..user };
        let fixed = Rights { gains_none: true, ..ROOT };
        for (ours, its) in [(user, ROOT), (user, bound), (bound, user), (fixed, ROOT)] {
            assert!(!can_give(&ours, &its), "{ours:?} {its:?}");
        }
    }
}
