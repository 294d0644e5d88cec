//! Who is told by a signal what happens to a descriptor: `F_SETOWN`, `F_SETOWN_EX`, and whoever takes a lease.
//!
//! The kernel keeps the process or thread itself, not its number, and so nobody once the primary is dead. Every copy remembers
//! the owner in the group's numbers; a promotion makes it the kernel's again, and has the signal sent once where something
//! may have happened while nobody was told.

use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use linux_raw_sys::general::f_owner_ex;
use us_calls::Row;

use crate::call::Call;
use crate::door::recorded::recorded_with;
use crate::door::{numbers, timer};
use crate::guest::GuestPtr;
use crate::kernel::{F_GETFL, F_GETLEASE, F_GETSIG, F_UNLCK, POLLIN, SIGIO};
use crate::raw::nr::FCNTL;
use crate::raw::{self, failed};
use crate::thread::Thread;
use crate::{fdtable, members, state};

const F_SETOWN: u32 = linux_raw_sys::general::F_SETOWN;
const F_SETOWN_EX: u32 = linux_raw_sys::general::F_SETOWN_EX;
const F_GETOWN_EX: u32 = linux_raw_sys::general::F_GETOWN_EX;
const F_SETLEASE: u32 = linux_raw_sys::general::F_SETLEASE;
const O_ASYNC: i64 = 0o20000;
/// Descriptors whose owner is remembered.
const DESCRIPTORS: usize = 4096;

struct Owner {
    /// One more than the kind of owner, above the group's number for it; 0 for none.
    who: AtomicU64,
    /// Which of the files that had this number it belongs to.
    generation: AtomicU32,
    /// The owner holds a lease on the file.
    leased: AtomicU32,
}

static OWNERS: [Owner; DESCRIPTORS] =
    [const { Owner { who: AtomicU64::new(0), generation: AtomicU32::new(0), leased: AtomicU32::new(0) } };
        DESCRIPTORS];

/// Whether a command of fcntl is about the owner.
pub fn concerns(command: u64) -> bool {
    matches!(command as u32, F_SETOWN | F_SETOWN_EX | F_GETOWN_EX | F_SETLEASE)
}

/// fcntl with such a command.
pub fn fcntl(thread: &mut Thread, row: &'static Row, call: &Call) -> i64 {
    recorded_with(thread, row, call, |_, _, _| 0, |_, _, _| applied(call))
}

/// In every copy, behind a call that succeeded.
fn applied(call: &Call) {
    let [fd, command, argument, ..] = call.args;
    match command as u32 {
        F_SETOWN => {
            let number = argument as u32 as i32;
            // A group of processes is as it was after a promotion.
            set(fd as i32, (number > 0).then_some([numbers::F_OWNER_PID, number as u32]));
        }
        F_SETOWN_EX => {
            let given = GuestPtr::<f_owner_ex>::at(argument).load();
            let given = given.map(|owner| [owner.type_ as u32, owner.pid as u32]);
            set(fd as i32, given.filter(|[kind, number]| *kind <= numbers::F_OWNER_PID && *number != 0));
        }
        F_SETLEASE => lease(fd as i32, argument != F_UNLCK),
        _ => {}
    }
}

fn place(fd: i32) -> Option<(&'static Owner, u32)> {
    let shadow = fdtable::get(fd)?;
    Some((OWNERS.get(fd as u32 as usize)?, shadow.generation.load(Ordering::Relaxed)))
}

fn set(fd: i32, who: Option<[u32; 2]>) {
    let Some((owner, generation)) = place(fd) else { return };
    if owner.generation.swap(generation, Ordering::Relaxed) != generation {
        owner.leased.store(0, Ordering::Relaxed);
    }
    let word = who.map_or(0, |[kind, number]| u64::from(kind + 1) << 32 | u64::from(number));
    owner.who.store(word, Ordering::Relaxed);
}

/// Who takes a lease is the owner, if there is none.
fn lease(fd: i32, taken: bool) {
    let Some((owner, generation)) = place(fd) else { return };
    let known =
        owner.generation.load(Ordering::Relaxed) == generation && owner.who.load(Ordering::Relaxed) != 0;
    if taken && !known {
        set(fd, Some([numbers::F_OWNER_PID, state::GUEST_PID.load(Ordering::Relaxed)]));
    }
    owner.leased.store(u32::from(taken), Ordering::Relaxed);
}

/// At a promotion: this process and its threads own what the dead one's did.
pub fn set_again() {
    for (fd, owner) in OWNERS.iter().enumerate() {
        let who = owner.who.load(Ordering::Relaxed);
        let is_its = fdtable::get(fd as i32).is_some_and(|shadow| {
            shadow.kind() != fdtable::Kind::None
                && shadow.generation.load(Ordering::Relaxed) == owner.generation.load(Ordering::Relaxed)
        });
        if who != 0 && is_its {
            take(fd as u64, (who >> 32) as u32 - 1, who as u32, owner.leased.load(Ordering::Relaxed) != 0);
        }
    }
}

fn take(fd: u64, kind: u32, number: u32, leased: bool) {
    let process = state::REAL_PID.load(Ordering::Relaxed);
    let is_others = kind == numbers::F_OWNER_PID && number != state::GUEST_PID.load(Ordering::Relaxed);
    let real = match kind {
        numbers::F_OWNER_PID if is_others => members::find(number).map_or(0, members::primary),
        numbers::F_OWNER_PID => process,
        _ => timer::standby_tid(number),
    };
    if real == 0 {
        return;
    }
    let owner = f_owner_ex { type_: kind as i32, pid: real as i32 };
    // SAFETY: the kernel reads the owner, and answers questions about a descriptor that the program has.
    let (set, flags, signal, lease) = unsafe {
        (
            raw::call3(FCNTL, fd, F_SETOWN_EX.into(), &raw const owner as u64),
            raw::call3(FCNTL, fd, F_GETFL, 0),
            raw::call3(FCNTL, fd, F_GETSIG, 0),
            raw::call3(FCNTL, fd, F_GETLEASE, 0),
        )
    };
    // A lease that somebody waits for is told as what it is to become.
    let is_broken = leased && lease == F_UNLCK as i64;
    let is_ready =
        !failed(flags) && flags & O_ASYNC != 0 && raw::poll(fd as i32, POLLIN) & POLLIN as i64 != 0;
    // A relative looks for itself, when it takes over.
    if failed(set) || is_others || !(is_broken || is_ready) {
        return;
    }
    let signal = if signal > 0 { signal as u64 } else { SIGIO };
    // SAFETY: to our own process, whose threads block everything until they are live.
    unsafe {
        match kind {
            numbers::F_OWNER_PID => raw::call2(raw::nr::KILL, process.into(), signal),
            _ => raw::call3(raw::nr::TGKILL, process.into(), real.into(), signal),
        };
    }
}
