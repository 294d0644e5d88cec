//! Process groups, and sessions, under the group's numbers.
//!
//! A process that makes a process group of its own gives it its number. The copy that has taken over has another one, and the
//! kernel makes no group with the number of a process that is gone. So the roster says which group it is that such a process leads,
//! and everybody goes on calling it by the number that the process has for its relatives.
//!
//! A standby goes where its primary is. A group whose only member was a primary that has been reaped is gone: then the copy that
//! takes over makes it anew, with its own number.

use core::sync::atomic::{AtomicU64, Ordering};

use us_abi::{Process, end, kin};

use super::{find, listed, own, primary, registry};
use crate::call::Call;
use crate::raw::nr::{GETSID, SETPGID, SETSID};
use crate::raw::{self, failed};
use crate::state;

/// What this process leads, by the log: [`NOTHING`], [`GROUP`] or [`SESSION`], below the number that it has there. A forked child
/// has another one.
static LEADS: AtomicU64 = AtomicU64::new(0);
const NOTHING: u64 = 0;
const GROUP: u64 = 1;
const SESSION: u64 = 2;

/// Those that lead a group. Nothing of that is believed where it would decide whom one signals that has more rights than who wrote
/// it.
fn leaders() -> impl Iterator<Item = &'static Process> {
    let is_believed = !registry::doubts();
    listed().filter(move |entry| is_believed && entry.leads.load(Ordering::Acquire) != 0)
}

/// The kernel's number of a process group or session.
pub fn to_kernel(group: u32) -> u32 {
    let leader = leaders().find(|entry| entry.pid.load(Ordering::Relaxed) == group);
    leader.map_or(group, |entry| entry.leads.load(Ordering::Acquire))
}

/// The group's number for one of the kernel's.
pub fn to_guest(group: u32) -> u32 {
    let leader = leaders().find(|entry| entry.leads.load(Ordering::Acquire) == group);
    leader.map_or(group, |entry| entry.pid.load(Ordering::Relaxed))
}

/// Whether a process group lives on that this process led, which has ended, and whose number only its entry tells. The entry is no
/// process's any more then.
pub(super) fn outlives(entry: &Process) -> bool {
    let led = entry.leads.load(Ordering::Acquire);
    if led == 0 || led == entry.pid.load(Ordering::Relaxed) || registry::doubts() {
        return false;
    }
    // The kernel has nothing left of one that has ended and that the supervisor has asked it for, and whose parent has yet to hear.
    let was_in_it = |other: &Process| {
        !core::ptr::eq(other, entry) && super::has_ended(other) && other.group.load(Ordering::Relaxed) == led
    };
    // SAFETY: signal 0 only asks.
    let is_gone = unsafe { raw::call2(raw::nr::KILL, u64::from(led).wrapping_neg(), 0) } == raw::err::ESRCH;
    if is_gone && !super::listed().any(was_in_it) {
        return false;
    }
    entry.parent.store(0, Ordering::Release);
    entry.joined.store(0, Ordering::Release);
    // One that nobody asks for any more, and whose place is somebody else's where the list is full.
    entry.kin.store(kin::KERNEL, Ordering::Release);
    entry.end.store(end::NONE, Ordering::Release);
    true
}

/// The process group, by the kernel's number, of a process that the kernel knows by this one.
pub fn group_of(pid: u32) -> Option<u32> {
    use crate::raw::nr::GETPGID;
    // SAFETY: asks for a number.
    let group = unsafe { raw::call1(GETPGID, pid.into()) };
    (!failed(group)).then_some(group as u32)
}

/// The kernel's arguments of a setpgid, as the guest makes it, but for the process's number. A group of its own, in which the process
/// is already, is that which the kernel knows: by its own number it would make another one, with the number of this copy.
pub fn wanted(args: &[u64; 6]) -> u32 {
    let whom = if args[0] as u32 == 0 { own_number() } else { args[0] as u32 };
    let group = if args[1] as u32 == 0 { whom } else { args[1] as u32 };
    if group != whom {
        return to_kernel(group);
    }
    let led = to_kernel(whom);
    let kernels = find(whom).map_or(whom, primary);
    if group_of(kernels) == Some(led) { led } else { 0 }
}

/// In every copy, by the log: a setpgid with these arguments, or a setsid, has come to this.
pub fn follow(call: &Call, result: i64) {
    let [whom, group, ..] = call.args.map(|arg| arg as u32);
    let is_itself = |number: u32| number == 0 || number == own_number();
    let leads = match call.nr {
        SETSID => SESSION,
        _ if !is_itself(whom) => return,
        _ if is_itself(group) => GROUP,
        _ => NOTHING,
    };
    if !failed(result) {
        LEADS.store(leads | u64::from(own_number()) << 32, Ordering::Relaxed);
    }
}

/// As a copy that acts: a setpgid or setsid has been made for a process, which leads a group now, or none any more.
pub fn has_changed(pid: u32) {
    let pid = if pid == 0 { own_number() } else { pid };
    let Some(entry) = find(pid) else { return };
    let (kernels, led) = (primary(entry), entry.leads.load(Ordering::Acquire));
    let leads = group_of(kernels).filter(|group| [pid, kernels, led].contains(group));
    entry.leads.store(leads.unwrap_or(0), Ordering::Release);
}

/// As a standby: goes to where its primary is, or was when it died. A group that has no other process is gone with the last one of
/// its own, and a terminal lets only those of its group read.
pub fn join(primary: u32) {
    // SAFETY: a change of our own process alone; a number that is no primary's any more is no group's of this session, or one that
    // this process may be in.
    let go_to = |group: u32| unsafe { raw::call2(SETPGID, 0, group.into()) };
    if let Some(group) = group_of(primary).filter(|group| primary != 0 && group_of(0) != Some(*group)) {
        go_to(group);
    }
}

/// At a promotion, once the log has been applied: makes the group or session anew that the dead primary led and that went with it.
pub fn lead_again() {
    let leads = LEADS.load(Ordering::Relaxed);
    let Some(entry) = own().filter(|_| (leads >> 32) as u32 == own_number()) else { return };
    let led = Some(entry.leads.load(Ordering::Acquire)).filter(|led| *led != 0).unwrap_or(own_number());
    // SAFETY: a question, and changes of our own process alone.
    unsafe {
        let is_there = match leads & 0xffff_ffff {
            GROUP => group_of(0) == Some(led) || !failed(raw::call2(SETPGID, 0, led.into())),
            SESSION => raw::call1(GETSID, 0) == i64::from(led),
            _ => return,
        };
        if !is_there {
            let make = if leads & 0xffff_ffff == SESSION { SETSID } else { SETPGID };
            raw::call2(make, 0, 0);
        }
    }
    // The registry may not have this copy yet.
    let group =
        group_of(0).filter(|group| *group == led || *group == state::REAL_PID.load(Ordering::Relaxed));
    entry.leads.store(group.unwrap_or(0), Ordering::Release);
}

fn own_number() -> u32 {
    state::GUEST_PID.load(Ordering::Relaxed)
}
