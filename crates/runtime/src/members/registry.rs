//! The registry, and what a process believes of the roster beside others that have fewer rights.
//!
//! Whoever may write the roster could name a process in it that it may not signal itself, and wait for a relative with more
//! rights to do so. So the number of another process comes from here, a file that only the supervisor writes; and once a process
//! of the group has given up the group's user, those that have not take nothing from the roster that would be done to
//! themselves or others: signals that were sent, stops, ends that the supervisor has not told.

use core::sync::atomic::{AtomicI64, AtomicPtr, Ordering};

use us_abi::{
    EARLIER_MAX, MAGIC, PROCESSES_MAX, Process, REGISTRY_ADDRESS, REGISTRY_BYTES, RING_BYTES, RINGS_ADDRESS,
    RINGS_OFFSET, ROSTER_ADDRESS, ROSTER_BYTES, Registry, SEGMENT_ADDRESS, SEGMENT_BYTES, THREADS_MAX,
    VERSION, pair,
};

use crate::call::Call;
use crate::raw::nr::GETEUID;
use crate::raw::{self, failed, nr};
use crate::{own_file, paths, proc, state};

static REGISTRY: AtomicPtr<Registry> = AtomicPtr::new(core::ptr::null_mut());
/// The user that the group's files belong to.
static OWNER: AtomicI64 = AtomicI64::new(-1);

fn user() -> i64 {
    // SAFETY: asks for a number.
    unsafe { raw::call1(GETEUID, 0) }
}

fn registry() -> Option<&'static Registry> {
    // SAFETY: null, or a mapping that is never removed, of atomics and constants only.
    unsafe { REGISTRY.load(Ordering::Relaxed).as_ref() }
}

/// Whose an open file is.
fn owner_of(file: u64) -> i64 {
    let mut status = [0u32; 36];
    // SAFETY: 144 bytes, as the kernel writes them.
    let asked = unsafe { raw::call2(nr::FSTAT, file, status.as_mut_ptr() as u64) };
    if asked == 0 { i64::from(status[7]) } else { -1 }
}

/// Maps the registry, for reading and for good: no later call makes such a mapping writable. In the constructor.
pub fn map() -> bool {
    const READ: u64 = 1;
    const SHARED_NOREPLACE: u64 = 0x10_0001;
    let mut path = [0u8; paths::PATH_BYTES];
    if paths::registry_path(&mut path).is_none() {
        return false;
    }
    // SAFETY: a path that ends with NUL; opens and maps a file that the supervisor has made. The descriptor does not stay.
    unsafe {
        let file = own_file::open(path.as_ptr(), own_file::READ);
        if failed(file) {
            return false;
        }
        let args = [REGISTRY_ADDRESS as u64, REGISTRY_BYTES as u64, READ, SHARED_NOREPLACE, file as u64, 0];
        let mapped = raw::call6(nr::MMAP, args);
        let owner = owner_of(file as u64);
        raw::call1(nr::CLOSE, file as u64);
        if mapped != REGISTRY_ADDRESS as i64 {
            return false;
        }
        let registry = REGISTRY_ADDRESS as *mut Registry;
        if (*registry).magic != MAGIC || (*registry).version != VERSION {
            raw::call2(nr::MUNMAP, REGISTRY_ADDRESS as u64, REGISTRY_BYTES as u64);
            return false;
        }
        OWNER.store(owner, Ordering::Relaxed);
        REGISTRY.store(registry, Ordering::Release);
    }
    true
}

/// This process is of no group any more.
pub(super) fn leave_group() {
    REGISTRY.store(core::ptr::null_mut(), Ordering::Release);
}

/// The numbers of those that have failed over, and the kernel's of their primaries.
fn primaries() -> impl Iterator<Item = (u32, u32)> {
    let used = registry().map_or(0, |registry| registry.used.load(Ordering::Acquire) as usize);
    let all = registry().map_or(&[][..], |registry| &registry.primaries[..used.min(PROCESSES_MAX)]);
    let words = all.iter().map(|word| word.load(Ordering::SeqCst)).filter(|word| *word != 0);
    words.map(|word| ((word >> 32) as u32, word as u32))
}

/// The kernel's number of the process that is `pid`'s primary now, if it has failed over.
pub fn successor(pid: u32) -> Option<u32> {
    primaries().find(|(number, _)| *number == pid).map(|(_, primary)| primary)
}

/// The number of the process that has failed over, and whose primary the kernel knows as `pid`.
pub fn succeeds(pid: u32) -> Option<u32> {
    primaries().find(|(_, primary)| *primary == pid).map(|(number, _)| number)
}

/// The number of the process whose primary was the kernel's `pid`, and is dead; the last one of several. Whoever has that number
/// of the kernel's now is to be told by it.
pub fn succeeded(pid: u32) -> Option<u32> {
    let registry = registry()?;
    let count = registry.earlier_count.load(Ordering::Acquire) as usize;
    let last = (count.saturating_sub(EARLIER_MAX)..count).rev();
    let mut words = last.map(|at| registry.earlier[at % EARLIER_MAX].load(Ordering::Acquire));
    let word = words.find(|word| *word as u32 == pid)?;
    (!super::exists(pid) || proc::is_ending(pid)).then_some((word >> 32) as u32)
}

/// The supervisor's number, 0 outside a group.
pub fn supervisor() -> u32 {
    registry().map_or(0, |registry| registry.supervisor_pid.load(Ordering::Relaxed))
}

/// Whether this process has rights that another one which writes the roster may lack. False in a group of one user.
pub fn doubts() -> bool {
    registry().is_some_and(|registry| {
        registry.mixed.load(Ordering::Relaxed) != 0 && user() == OWNER.load(Ordering::Relaxed)
    })
}

/// Whether the supervisor has told of this end as well, where the roster alone is not to be believed.
pub fn is_told(at: usize, entry: &Process) -> bool {
    let Some(registry) = registry().filter(|_| doubts()) else { return true };
    let end = pair(entry.pid.load(Ordering::Relaxed), entry.status.load(Ordering::Relaxed) as u32);
    registry.ends.get(at).is_some_and(|told| told.load(Ordering::Acquire) == end)
}

/// Whether after this call, of a process with the group's user, it may be another's; or be unable to say so.
fn gives_up(call: &Call) -> bool {
    use crate::raw::nr::{CHROOT, SETFSUID, SETRESUID, SETREUID, SETUID};
    const SAME: u32 = u32::MAX;
    let owner = OWNER.load(Ordering::Relaxed);
    let users = match call.nr {
        SETUID | SETFSUID => 1,
        SETREUID => 2,
        SETRESUID => 3,
        CHROOT => return true,
        _ => return false,
    };
    call.args[..users].iter().any(|user| *user as u32 != SAME && i64::from(*user as u32) != owner)
}

/// Before a call: if this process is about to give up the group's user, the others are told, in a file that it may write now and
/// not afterwards. What it had of its parent's log goes.
#[cold]
#[inline(never)]
pub fn before(call: &Call) {
    let Some(registry) = registry() else { return };
    if state::is_standby() || !gives_up(call) || user() != OWNER.load(Ordering::Relaxed) {
        return;
    }
    if registry.mixed.load(Ordering::Relaxed) == 0 && !say_so() {
        leave();
    }
    if state::header().is_none() {
        leave_parents_log();
    }
}

/// A child that has not joined, or cannot, has the segment that it was born with, and no use for it.
fn leave_parents_log() {
    const PRIVATE_FIXED_ANONYMOUS: u64 = 0x32;
    let start = SEGMENT_ADDRESS as u64;
    let head = [start, RINGS_OFFSET as u64, 3, PRIVATE_FIXED_ANONYMOUS, u64::MAX, 0];
    // SAFETY: the runtime's own addresses; without a header a process looks at no more than the table of threads.
    unsafe {
        raw::call6(nr::MMAP, head);
        raw::call2(nr::MUNMAP, start + RINGS_OFFSET as u64, (SEGMENT_BYTES - RINGS_OFFSET) as u64);
        raw::call2(nr::MUNMAP, RINGS_ADDRESS as u64, (2 * THREADS_MAX * RING_BYTES) as u64);
    }
}

/// Writes the word into the file.
fn say_so() -> bool {
    const PWRITE: u64 = 18;
    let mut path = [0u8; paths::PATH_BYTES];
    if paths::registry_path(&mut path).is_none() {
        return false;
    }
    let (word, at) = (1u32, core::mem::offset_of!(Registry, mixed) as u64);
    // SAFETY: a path that ends with NUL, and a word of our own; the descriptor does not stay.
    unsafe {
        let file = own_file::open(path.as_ptr(), own_file::READ_WRITE);
        if failed(file) {
            return false;
        }
        let written = raw::call4(PWRITE, file as u64, &raw const word as u64, 4, at);
        raw::call1(nr::CLOSE, file as u64);
        written == 4
    }
}

/// Nobody can be told: this process has a roster of its own from here on, as it is now.
fn leave() {
    const MREMAP_TO: u64 = 3; // MAYMOVE FIXED
    let bytes = ROSTER_BYTES as u64;
    // SAFETY: new memory takes the place of the mapping, with what that shows.
    unsafe {
        let copy = raw::call6(nr::MMAP, [0, bytes, 3, 0x22, u64::MAX, 0]);
        if failed(copy) {
            return;
        }
        core::ptr::copy_nonoverlapping(ROSTER_ADDRESS as *const u8, copy as *mut u8, ROSTER_BYTES);
        raw::call6(nr::MREMAP, [copy as u64, bytes, bytes, MREMAP_TO, ROSTER_ADDRESS as u64, 0]);
    }
}
