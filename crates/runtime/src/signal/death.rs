//! The signal that a process asks for at its parent's death (`PR_SET_PDEATHSIG`).
//!
//! The kernel sends it when the parent's primary dies, although the parent may go on; and never to a process that has
//! failed over, whose parent is the supervisor then. So the kernel is asked for SIGSYS instead, which is the runtime's
//! own: the process looks what the death means. Of a parent that has joined the group the supervisor tells its
//! children when it has ended for good; only the death of one that never had a standby is told from here.

use core::sync::atomic::{AtomicU32, Ordering};

use us_abi::Process;

use crate::kernel::{PR_GET_PDEATHSIG, PR_SET_PDEATHSIG};
use crate::siginfo::{Info, SI_USER};
use crate::{guest, members, raw, state};

const SIGKILL: u32 = linux_raw_sys::general::SIGKILL;
const SIGSYS: u32 = linux_raw_sys::general::SIGSYS;
const HIGHEST: u64 = 64;

/// What the guest has asked for, in every copy; 0 for nothing.
static WANTED: AtomicU32 = AtomicU32::new(0);
/// The kernel's number of the parent that it was asked about.
static PARENT: AtomicU32 = AtomicU32::new(0);

fn kernels_parent() -> u32 {
    // SAFETY: asks for a number.
    unsafe { raw::call1(raw::nr::GETPPID, 0) as u32 }
}

/// Asks the kernel for a signal.
fn arm(signal: u32) {
    // SAFETY: an attribute of our own process.
    unsafe { raw::call2(raw::nr::PRCTL, PR_SET_PDEATHSIG, u64::from(signal)) };
}

/// The entry of this process, if its parent is one that can fail over.
fn own_with_parent() -> Option<&'static Process> {
    let protected = members::config::get().is_some_and(|config| config.standbys != 0);
    members::own().filter(|_| protected && members::parent().is_some())
}

/// Sets it, in this copy.
pub fn set(signal: u64) -> i64 {
    if signal > HIGHEST {
        return raw::err::EINVAL;
    }
    let signal = signal as u32;
    WANTED.store(signal, Ordering::Relaxed);
    if !state::is_standby() {
        ask(signal);
    }
    0
}

fn ask(signal: u32) {
    let Some(own) = own_with_parent() else { return arm(signal) };
    PARENT.store(kernels_parent(), Ordering::Relaxed);
    own.death_signal.store(signal, Ordering::SeqCst);
    arm(if signal == 0 { 0 } else { SIGSYS });
}

/// What an image in a replay begins with.
pub fn inherit(signal: u32) {
    WANTED.store(signal, Ordering::Relaxed);
}

/// The signal that was asked for, 0 for none.
pub fn wanted() -> u32 {
    WANTED.load(Ordering::Relaxed)
}

/// `PR_GET_PDEATHSIG`.
pub fn get(to: u64) -> i64 {
    if guest::store(to, &WANTED.load(Ordering::Relaxed)) { 0 } else { -14 }
}

/// In a forked child, which has asked for nothing.
pub fn forget() {
    WANTED.store(0, Ordering::Relaxed);
}

/// What an image begins with: it is kept over an exec.
pub fn remember() {
    let mut signal = 0u32;
    // SAFETY: the kernel writes one word.
    unsafe { raw::call2(raw::nr::PRCTL, PR_GET_PDEATHSIG, &raw mut signal as u64) };
    // One that had failed over before has nothing in the kernel.
    let entry = members::own().filter(|_| !members::registry::doubts());
    let known = entry.map_or(0, |own| own.death_signal.load(Ordering::SeqCst));
    let signal = if signal == 0 { known } else { signal };
    WANTED.store(signal, Ordering::Relaxed);
    if signal != 0 && !state::is_standby() {
        ask(signal);
    }
}

/// Before an exec, and after one that has failed: a new image has no handler for what the runtime asks for, and perhaps no
/// runtime.
pub fn hand_on(to_new_image: bool) {
    let signal = WANTED.load(Ordering::Relaxed);
    let is_asked = members::own().is_some_and(|own| own.death_signal.load(Ordering::SeqCst) != 0);
    if signal != 0 && is_asked && PARENT.load(Ordering::Relaxed) == kernels_parent() {
        arm(if to_new_image { signal } else { SIGSYS });
    }
}

/// At a promotion. The program itself has the supervisor for a parent, now as before.
pub fn take_over() {
    if members::own().is_some_and(|own| members::index_of(own) == Some(0)) {
        arm(WANTED.load(Ordering::Relaxed));
    }
}

/// Whether a SIGSYS from this process is the kernel's, at its death. The kernel tells of each thread that has the process for a child,
/// and the one that made it may be the first to go of a parent that is killed: its number is the parent's still, then. Behind a
/// failover of the parent's the process is the supervisor's, who may end before it as well.
pub fn is_told_by(sender: u32) -> bool {
    let is_parent = PARENT.load(Ordering::Relaxed) == sender || members::registry::supervisor() == sender;
    // A relative that sends such a signal counts it first.
    let is_kernels = || kernels_parent() != sender || members::sent_so_far(SIGSYS as i32) == 0;
    WANTED.load(Ordering::Relaxed) != 0 && is_parent && is_kernels()
}

/// SIGSYS has come: perhaps from the kernel, at the death of the parent's primary. In a signal handler.
pub fn look() {
    if WANTED.load(Ordering::Relaxed) == 0
        || state::is_standby()
        || kernels_parent() == PARENT.load(Ordering::Relaxed)
    {
        return;
    }
    let Some(own) = members::own() else { return };
    let parent = own.parent.load(Ordering::Acquire);
    let is_watched = members::find(parent).is_some_and(members::may_have_standby);
    let signal = if is_watched { 0 } else { own.death_signal.swap(0, Ordering::SeqCst) };
    if signal == 0 || signal != WANTED.load(Ordering::Relaxed) {
        return;
    }
    if signal == SIGKILL {
        own.doomed.store(1, Ordering::SeqCst);
    } else {
        // A promoted copy knows by it that there is one to be taken.
        own.last_sender.store(parent, Ordering::Relaxed);
        own.sent[signal as usize].fetch_add(1, Ordering::SeqCst);
    }
    let mut info = Info::new(signal as i32, SI_USER);
    info.set_sender(parent);
    info.send(None);
}
