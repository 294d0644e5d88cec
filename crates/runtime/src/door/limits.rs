//! Limits of the process that the runtime's own memory and files would run into.
//!
//! The segment alone is larger than many a limit: a program that allows itself 200 MiB of address space would get no
//! memory any more, and one whose files may have 100 KiB would be ended by SIGXFSZ in the middle of joining.

use core::mem::offset_of;
use core::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use linux_raw_sys::general::rlimit64;
use us_abi::{LIBRARY_BYTES, LIBRARY_DATA_BYTES, RING_BYTES, SEGMENT_BYTES, THREADS_MAX};

use crate::call::Call;
use crate::guest::{GuestMut, GuestPtr};
use crate::raw::nr::{GETRLIMIT, SETRLIMIT};
use crate::raw::{self, failed};
use crate::{state, thread};

const PRLIMIT: u64 = crate::raw::nr::PRLIMIT64;
const FSIZE: u64 = linux_raw_sys::general::RLIMIT_FSIZE as u64;
const DATA: u64 = linux_raw_sys::general::RLIMIT_DATA as u64;
const NPROC: u64 = linux_raw_sys::general::RLIMIT_NPROC as u64;
const AS: u64 = linux_raw_sys::general::RLIMIT_AS as u64;
const INFINITY: u64 = u64::MAX;

/// Soft and hard limit, as the kernel has them.
type Limit = [u64; 2];
const _: () = assert!(
    size_of::<Limit>() == size_of::<rlimit64>() && offset_of!(rlimit64, rlim_max) == size_of::<u64>()
);

/// The limits that the runtime's own memory counts against. Of these the kernel has higher ones than the guest.
const RAISED: [u64; 2] = [DATA, AS];

/// What has been added to the guest's soft and hard limit of each, bytes; 0 while the guest has none, or where it could not be added.
static ADDED: [[AtomicU64; 2]; 2] = [const { [const { AtomicU64::new(0) }; 2] }; 2];

/// What the loader maps of the library and of what that needs, before the constructor runs: its tables, and all of its addresses.
const LOADED_BYTES: [u64; 2] = [LIBRARY_DATA_BYTES, LIBRARY_BYTES];

/// What of a limited kind is the runtime's, bytes.
fn own_bytes(which: u64) -> u64 {
    if which == DATA {
        return LIBRARY_DATA_BYTES;
    }
    let rings =
        u64::from(thread::SLOTS.load(Ordering::Relaxed).min(THREADS_MAX as u32)) * 2 * RING_BYTES as u64;
    SEGMENT_BYTES as u64 + rings + LIBRARY_BYTES
}

fn added(place: usize) -> Limit {
    ADDED[place].each_ref().map(|bytes| bytes.load(Ordering::Relaxed))
}

fn with(limit: Limit, more: Limit) -> Limit {
    let sum = |bytes: u64, more| if bytes == INFINITY { INFINITY } else { bytes.saturating_add(more) };
    [sum(limit[0], more[0]), sum(limit[1], more[1])]
}

fn without(limit: Limit, less: Limit) -> Limit {
    let rest = |bytes: u64, less| if bytes == INFINITY { INFINITY } else { bytes.saturating_sub(less) };
    [rest(limit[0], less[0]), rest(limit[1], less[1])]
}

/// Sets a limit as the guest wants it, with as much more as this process may have.
fn set_guests(place: usize, limit: Limit) -> i64 {
    // Kept once it is set: a process that may not raise its hard limit asks for the same number again.
    let before = added(place);
    let is_loaded_only = IS_WITHOUT_LOG.load(Ordering::Relaxed);
    let own = match before {
        [0, 0] => own_bytes(RAISED[place]),
        [soft, 0] if !is_loaded_only => soft,
        [_, 0] => own_bytes(RAISED[place]),
        [_, hard] => hard,
    };
    let soft = if is_loaded_only { LOADED_BYTES[place].min(own) } else { own };
    let mut result = 0;
    for more in [[soft, own], [soft, before[1]], [soft, 0], [0; 2]] {
        let wanted = with(limit, more);
        if wanted[0] > wanted[1] && more != [0; 2] {
            continue;
        }
        result = set(RAISED[place], Some(&wanted), &mut [0; 2]);
        if !failed(result) {
            // Nothing is added to what has no bound.
            let more = if limit[0] == INFINITY { [0; 2] } else { more };
            ADDED[place].iter().zip(more).for_each(|(word, bytes)| word.store(bytes, Ordering::Relaxed));
            break;
        }
    }
    result
}

/// What is the runtime's in the limits of an image that begins, of each that is raised: in the soft and in the hard one.
pub type Kept = [Limit; 2];

/// Whether there is no log in this process's memory: a child that has executed something, until it joins. What a log needs would be
/// the program's, against its limit.
static IS_WITHOUT_LOG: AtomicBool = AtomicBool::new(false);

/// The soft limit of addresses follows whether a log is mapped.
pub fn be_without_log(is_without: bool) {
    const PLACE: usize = 1;
    let mut limit: Limit = [INFINITY; 2];
    let was_without = IS_WITHOUT_LOG.swap(is_without, Ordering::Relaxed);
    if was_without != is_without
        && added(PLACE)[0] != 0
        && !failed(set(AS, None, &mut limit))
        && limit[0] != INFINITY
    {
        set_guests(PLACE, without(limit, added(PLACE)));
    }
}

/// In the constructor, before anything is mapped: the limits that the program has been started with. `kept` is what the image
/// before has left of its own in them.
pub fn begin(kept: Kept) {
    for (place, which) in RAISED.into_iter().enumerate() {
        let mut limit: Limit = [INFINITY; 2];
        if failed(set(which, None, &mut limit)) {
            continue;
        }
        let is_kept =
            |end: usize| kept[place][end] != 0 && kept[place][end] < limit[end] && limit[end] != INFINITY;
        let (soft_kept, hard_kept) = (is_kept(0), is_kept(1));
        let mut guests = limit;
        if soft_kept {
            guests[0] -= kept[place][0];
        }
        if hard_kept {
            guests[1] -= kept[place][1];
            guests[0] = guests[0].min(guests[1]);
            if !may_raise() {
                ADDED[place].iter().for_each(|word| word.store(kept[place][1], Ordering::Relaxed));
            }
        }
        if hard_kept || guests[0] != INFINITY {
            set_guests(place, guests);
        }
    }
}

/// What stays in the limits at an exec of an image that takes it out again. In the soft ones there is room for what the loader maps
/// of the library: it does so before the constructor runs, and what the program has set may hold no more than the program. The hard
/// ones are as they are: a process that may not raise them could not do so in its next image either.
pub fn kept() -> Option<Kept> {
    let kept = [0, 1].map(|place| {
        let more = added(place);
        [more[0].min(LOADED_BYTES[place]), more[1]]
    });
    (kept != [[0; 2]; 2]).then_some(kept)
}

/// Before an exec, and after one that has failed: the new image begins with the guest's own limits. Those that a child in its
/// parent's memory has set by itself are its own already. An image that `knows` what of them is ours keeps that.
pub fn hand_on(to_new_image: bool, knows: bool) {
    let kept = kept().filter(|_| knows);
    let mut processes: Limit = [INFINITY; 2];
    if to_new_image && !failed(set(NPROC, None, &mut processes)) && processes[1] > hard_of_guest() {
        set(NPROC, Some(&[processes[0], hard_of_guest()]), &mut [0; 2]);
    }
    static HANDED: [[AtomicU64; 2]; 2] = [const { [const { AtomicU64::new(0) }; 2] }; 2];
    static IS_HANDED: [AtomicBool; 2] = [const { AtomicBool::new(false) }; 2];
    for (place, which) in RAISED.into_iter().enumerate() {
        let more = added(place);
        let mut limit: Limit = [INFINITY; 2];
        let was_handed = IS_HANDED[place].swap(false, Ordering::Relaxed);
        if more[0] == 0 || failed(set(which, None, &mut limit)) {
            continue;
        }
        if !to_new_image {
            if was_handed {
                set_guests(place, HANDED[place].each_ref().map(|word| word.load(Ordering::Relaxed)));
            }
        } else if limit[0] != INFINITY && limit[0] > more[0] {
            IS_HANDED[place].store(true, Ordering::Relaxed);
            let guests = without(limit, more);
            HANDED[place].iter().zip(guests).for_each(|(word, bytes)| word.store(bytes, Ordering::Relaxed));
            let handed = kept.map_or(guests, |kept| with(guests, kept[place]));
            set(which, Some(&handed), &mut [0; 2]);
        }
    }
}

/// Whether the loader could map the library into a new image: where it could not it would say so, and might not go on. A process
/// whose limit cannot hold what is the runtime's is not protected either.
pub fn leave_room() -> bool {
    const LEAST: u64 = 40 << 20;
    let is_roomy = |place: usize, least: u64| {
        let mut limit: Limit = [INFINITY; 2];
        let asked = set(RAISED[place], None, &mut limit);
        failed(asked) || limit[0] == INFINITY || without(limit, added(place))[0] >= least
    };
    is_roomy(0, LEAST) && (added(1)[0] != 0 || is_roomy(1, own_bytes(AS)))
}

/// The guest's question for, or change of, one of its own limits that are raised: without what is ours. `None` for any other call.
pub fn raised(call: &Call) -> Option<i64> {
    let (whom, which, new, old) = match call.nr {
        GETRLIMIT => (0, call.args[0], 0, call.args[1]),
        SETRLIMIT => (0, call.args[0], call.args[1], 0),
        PRLIMIT => (call.args[0], call.args[1], call.args[2], call.args[3]),
        _ => return None,
    };
    let own = whom as u32 == 0 || whom as u32 == state::GUEST_PID.load(Ordering::Relaxed);
    if which as u32 as u64 == NPROC && own {
        return Some(of_processes(GuestPtr::at(new), GuestMut::at(old)));
    }
    let place = RAISED.into_iter().position(|raised| raised == which as u32 as u64).filter(|_| own)?;
    let wanted = match GuestPtr::<Limit>::at(new).given() {
        Ok(wanted) => wanted,
        Err(error) => return Some(error),
    };
    let mut before: Limit = [0; 2];
    let asked = set(RAISED[place], None, &mut before);
    let shown = without(before, added(place));
    let result = wanted.map_or(asked, |limit| set_guests(place, limit));
    if failed(result) {
        return Some(result);
    }
    match GuestMut::at(old).tell(&shown) {
        0 => Some(result),
        error => Some(error),
    }
}

/// Asks for a limit of this process and sets another, if one is given.
fn set(which: u64, new: Option<&Limit>, before: &mut Limit) -> i64 {
    let new = new.map_or(0, |limit| limit.as_ptr() as u64);
    // SAFETY: the kernel reads and writes two words each.
    unsafe { raw::call4(PRLIMIT, 0, which, new, before.as_mut_ptr() as u64) }
}

/// The hard limit of processes that the guest has chosen. The kernel's stays higher: a server that shuts itself up allows itself
/// none (HAProxy, vsftpd), and what a clone needs counts as well. Its soft one is the guest's and holds whatever the guest makes.
static HARD: AtomicU64 = AtomicU64::new(INFINITY);
/// The guest's soft one, while the kernel's is lifted.
static KEPT: AtomicU64 = AtomicU64::new(0);
static IS_LIFTED: AtomicBool = AtomicBool::new(false);

fn hard_of_guest() -> u64 {
    HARD.load(Ordering::Relaxed)
}

fn is_lifted() -> bool {
    IS_LIFTED.load(Ordering::Acquire)
}

/// For a clone: as many processes as the kernel's hard limit says, until [`put_back`], which every copy does for itself. False if
/// that are no more.
pub fn lift_processes() -> bool {
    let mut limit: Limit = [INFINITY; 2];
    if failed(set(NPROC, None, &mut limit)) || limit[0] >= limit[1] {
        return false;
    }
    KEPT.store(limit[0], Ordering::Relaxed);
    IS_LIFTED.store(true, Ordering::Release);
    !failed(set(NPROC, Some(&[limit[1]; 2]), &mut [0; 2]))
}

/// The soft limit of processes is the guest's again.
pub fn put_back() {
    let mut limit: Limit = [INFINITY; 2];
    if is_lifted() && !failed(set(NPROC, None, &mut limit)) {
        set(NPROC, Some(&[KEPT.load(Ordering::Relaxed), limit[1]]), &mut [0; 2]);
        IS_LIFTED.store(false, Ordering::Release);
    }
}

/// Whether a child would be one too many while the limit is lifted: where none is allowed. Who makes it is one itself.
pub fn allows_no_child() -> bool {
    is_lifted() && KEPT.load(Ordering::Relaxed) <= 1
}

/// The guest's question for, or change of, its limit of processes.
fn of_processes(new: GuestPtr<Limit>, old: GuestMut<Limit>) -> i64 {
    use crate::raw::err::EINVAL;
    let mut limit: Limit = [0; 2];
    let asked = set(NPROC, None, &mut limit);
    if failed(asked) {
        return asked;
    }
    let soft = if is_lifted() { KEPT.load(Ordering::Relaxed) } else { limit[0] };
    let shown = [soft, limit[1].min(hard_of_guest())];
    let wanted = match new.given() {
        Err(error) => return error,
        Ok(Some(wanted)) if wanted[0] > wanted[1] => return EINVAL,
        Ok(Some(wanted)) if wanted[1] > shown[1] && !may_raise() => return raw::err::EPERM,
        Ok(wanted) => wanted,
    };
    if let Some(wanted) = wanted {
        if is_lifted() {
            KEPT.store(wanted[0], Ordering::Relaxed);
        } else {
            let set = set(NPROC, Some(&[wanted[0], limit[1].max(wanted[1])]), &mut [0; 2]);
            if failed(set) {
                return set;
            }
        }
        HARD.store(wanted[1], Ordering::Relaxed);
    }
    old.tell(&shown)
}

/// Whether the process may raise its hard limits (CAP_SYS_RESOURCE).
fn may_raise() -> bool {
    const SYS_RESOURCE: u32 = 1 << 24;
    raw::capabilities().is_some_and(|sets| sets[0] & SYS_RESOURCE != 0)
}

/// While it lives the process may make files of some size. By the only thread of a process.
pub struct FileRoom(Option<Limit>);

impl FileRoom {
    /// `None` if the limit is lower and cannot be raised: the kernel would end the process for trying.
    pub fn make(bytes: u64) -> Option<FileRoom> {
        let mut limit: Limit = [0; 2];
        if failed(set(FSIZE, None, &mut limit)) || limit[0] >= bytes {
            return Some(FileRoom(None));
        }
        let hard = if limit[1] >= bytes { limit[1] } else { INFINITY };
        let raised = set(FSIZE, Some(&[hard; 2]), &mut [0; 2]);
        (!failed(raised)).then_some(FileRoom(Some(limit)))
    }
}

impl Drop for FileRoom {
    fn drop(&mut self) {
        if let Some(limit) = &self.0 {
            set(FSIZE, Some(limit), &mut [0; 2]);
        }
    }
}
