//! What the kernel keeps of one thread alone, and gives a new thread of its maker's: ids, capabilities, and what goes with them.
//!
//! libc changes ids for a whole process. A thread that asks the kernel itself changes its own alone (a file server takes its
//! client's for each request), and must have them in a copy, where all threads are made by the first one. A copy in which one had
//! other rights is none.

use core::cell::UnsafeCell;
use core::sync::atomic::Ordering;

use super::Obstacle;
use super::park::{self, Place};
use crate::fdtable::{AT_FDCWD, Stat};
use crate::kernel::{
    PR_CAP_AMBIENT, PR_CAPBSET_DROP, PR_CAPBSET_READ, PR_GET_DUMPABLE, PR_GET_NO_NEW_PRIVS,
    PR_GET_SECUREBITS, PR_GET_TIMERSLACK, PR_SET_DUMPABLE, PR_SET_KEEPCAPS, PR_SET_NO_NEW_PRIVS,
    PR_SET_SECUREBITS, PR_SET_TIMERSLACK,
};
use crate::lock::Lock;
use crate::raw::nr::{
    CAPSET, GETGROUPS, GETRESGID, GETRESUID, PERSONALITY, SETFSGID, SETFSUID, SETGROUPS, SETRESGID, SETRESUID,
};
use crate::raw::{self, call1, call2, call3, call6, failed, nr};
use crate::state::{self, Decimal};

const AMBIENT_IS_SET: u64 = 1;
const AMBIENT_RAISE: u64 = 2;
const AMBIENT_CLEAR_ALL: u64 = 4;
/// Groups that are kept; of more, a sum is.
const GROUPS: usize = 32;
/// Those that the kernel keeps at most.
const GROUPS_MAX: usize = 65536;

/// Real, effective, saved, and that of files.
type Ids = [u32; 4];

/// Sets of capabilities.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Capabilities {
    effective: u64,
    permitted: u64,
    inheritable: u64,
    ambient: u64,
    bounding: u64,
}

/// What the kernel keeps of a thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Identity {
    users: Ids,
    groups: Ids,
    others: [u32; GROUPS],
    others_count: u32,
    others_sum: u64,
    capabilities: Capabilities,
    secure_bits: u32,
    no_new_privileges: u32,
    slack_ns: u64,
    persona: u32,
}

impl Identity {
    /// Of nobody.
    pub const NONE: Identity = Identity {
        users: [0; 4],
        groups: [0; 4],
        others: [0; GROUPS],
        others_count: 0,
        others_sum: 0,
        capabilities: Capabilities { effective: 0, permitted: 0, inheritable: 0, ambient: 0, bounding: 0 },
        secure_bits: 0,
        no_new_privileges: 0,
        slack_ns: 0,
        persona: 0,
    };

    /// The calling thread's.
    pub fn own() -> Identity {
        const ASKS: u64 = 0xffff_ffff;
        let mut own = Identity {
            users: ids(GETRESUID, SETFSUID),
            groups: ids(GETRESGID, SETFSGID),
            capabilities: Capabilities::own(),
            ..Identity::NONE
        };
        // SAFETY: questions about the calling thread; the kernel writes no more groups than there is room for.
        unsafe {
            own.others_count = call2(GETGROUPS, 0, 0).max(0) as u32;
            if own.others_count as usize <= GROUPS {
                call2(GETGROUPS, GROUPS as u64, own.others.as_mut_ptr() as u64);
            } else {
                own.others_sum = sum_of_others();
            }
            own.secure_bits = call1(nr::PRCTL, PR_GET_SECUREBITS) as u32;
            own.no_new_privileges = control(PR_GET_NO_NEW_PRIVS, 0, 0) as u32;
            own.slack_ns = call1(nr::PRCTL, PR_GET_TIMERSLACK) as u64;
            own.persona = call1(PERSONALITY, ASKS) as u32;
        }
        own
    }

    /// Makes it the calling thread's, which has its maker's. Whether it has it now.
    pub fn restore(&self) -> bool {
        let has = Identity::own();
        if has == *self {
            return true;
        }
        // SAFETY: attributes of the calling thread; and of the process, which had this one before.
        unsafe {
            call2(nr::PRCTL, PR_SET_TIMERSLACK, self.slack_ns);
            call1(PERSONALITY, self.persona.into());
            let dumpable = call1(nr::PRCTL, PR_GET_DUMPABLE);
            self.take_ids(&has);
            if self.no_new_privileges != 0 {
                control(PR_SET_NO_NEW_PRIVS, 1, 0);
            }
            if dumpable == 1 {
                // Lost with the change. Its primary has it, though its thread has made that, too.
                call2(nr::PRCTL, PR_SET_DUMPABLE, 1);
            }
        }
        Identity::own() == *self
    }

    /// Ids and capabilities, by one who may have all those of `has`.
    ///
    /// # Safety
    /// For the calling thread's good only: see `restore`.
    unsafe fn take_ids(&self, has: &Identity) {
        // SAFETY: attributes of the calling thread; the kernel reads what it is given.
        unsafe {
            let all = Capabilities { effective: has.capabilities.permitted, ..has.capabilities };
            all.set();
            each_of(has.capabilities.bounding & !self.capabilities.bounding, |capability| {
                call2(nr::PRCTL, PR_CAPBSET_DROP, capability);
            });
            let is_same = (self.others, self.others_count) == (has.others, has.others_count);
            if !is_same && self.others_count as usize <= GROUPS {
                call2(SETGROUPS, self.others_count.into(), self.others.as_ptr() as u64);
            }
            if self.groups != has.groups {
                set_ids(SETRESGID, SETFSGID, self.groups, || {});
            }
            if self.users != has.users {
                call2(nr::PRCTL, PR_SET_KEEPCAPS, 1);
                set_ids(SETRESUID, SETFSUID, self.users, || all.set());
            }
            all.set();
            if call1(nr::PRCTL, PR_GET_SECUREBITS) as u32 != self.secure_bits {
                call2(nr::PRCTL, PR_SET_SECUREBITS, self.secure_bits.into());
            }
            // What is ambient is inheritable.
            Capabilities { inheritable: self.capabilities.inheritable, ..all }.set();
            if self.capabilities.ambient != has.capabilities.ambient || self.users != has.users {
                control(PR_CAP_AMBIENT, AMBIENT_CLEAR_ALL, 0);
                each_of(self.capabilities.ambient, |capability| {
                    control(PR_CAP_AMBIENT, AMBIENT_RAISE, capability);
                });
            }
            self.capabilities.set();
        }
    }
}

/// prctl with all of its arguments: of some the kernel wants those that mean nothing to be zero.
fn control(option: u64, second: u64, third: u64) -> i64 {
    // SAFETY: an attribute of the calling thread.
    unsafe { call6(nr::PRCTL, [option, second, third, 0, 0, 0]) }
}

/// What the calling thread has of one kind.
fn ids(asks: u64, of_files: u64) -> Ids {
    /// Nobody's: it changes nothing, and tells.
    const NOBODY: u64 = 0xffff_ffff;
    let mut ids = [0u32; 4];
    let [real, effective, saved, _] = ids.each_mut().map(|id| &raw mut *id as u64);
    // SAFETY: the kernel writes three words.
    unsafe {
        call3(asks, real, effective, saved);
        ids[3] = call1(of_files, NOBODY) as u32;
    }
    ids
}

/// # Safety
/// Of the calling thread.
unsafe fn set_ids(number: u64, of_files: u64, [real, effective, saved, file]: Ids, between: impl Fn()) {
    // SAFETY: the caller's promise.
    unsafe {
        call3(number, real.into(), effective.into(), saved.into());
        between();
        call1(of_files, file.into());
    }
}

fn each_of(set: u64, f: impl FnMut(u64)) {
    (0..u64::from(u64::BITS)).filter(|bit| set >> bit & 1 != 0).for_each(f);
}

impl Capabilities {
    fn own() -> Capabilities {
        let words = raw::capabilities().unwrap_or_default();
        let set = |at: usize| u64::from(words[at]) | u64::from(words[at + 3]) << 32;
        let (mut ambient, mut bounding) = (0, 0);
        for capability in 0..u64::from(u64::BITS) {
            let is_bounding = control(PR_CAPBSET_READ, capability, 0);
            if failed(is_bounding) {
                break;
            }
            bounding |= (is_bounding as u64) << capability;
            ambient |= (control(PR_CAP_AMBIENT, AMBIENT_IS_SET, capability).max(0) as u64) << capability;
        }
        Capabilities { effective: set(0), permitted: set(1), inheritable: set(2), ambient, bounding }
    }

    /// The three that a call sets.
    fn set(&self) {
        let mut words = [0u32; 6];
        for (at, set) in [self.effective, self.permitted, self.inheritable].into_iter().enumerate() {
            (words[at], words[at + 3]) = (set as u32, (set >> 32) as u32);
        }
        // SAFETY: of the calling thread; the kernel reads six words.
        unsafe { call2(CAPSET, raw::CAP_HEADER.as_ptr() as u64, words.as_ptr() as u64) };
    }
}

/// The kernel's number of the thread that stands still at a place, 0 for none.
fn tid_of(place: *mut Place) -> u32 {
    // SAFETY: an atomic.
    unsafe { (*place).tid.load(Ordering::Acquire) }
}

/// Whether all threads are where the one that forks is; if not, which is elsewhere.
pub fn are_together(leader: Option<*mut Place>) -> Result<(), Obstacle> {
    let leader = leader.map_or(0, tid_of);
    match park::places().map(tid_of).find(|tid| is_apart(*tid, leader)) {
        Some(tid) => Err((b"is in a folder, or in name spaces, of its own", tid)),
        None => Ok(()),
    }
}

/// Whether a thread, which stands still, is in another folder, or in other name spaces, than the one that forks. In a thread of
/// the runtime's own.
fn is_apart(tid: u32, leader: u32) -> bool {
    use crate::raw::nr::KCMP;
    const KCMP_FS: u64 = 3;
    const SPACES: [&[u8]; 7] =
        [b"/ns/mnt", b"/ns/net", b"/ns/ipc", b"/ns/uts", b"/ns/cgroup", b"/ns/user", b"/ns/time"];
    if !state::may_be_apart() || tid == leader || tid == 0 {
        return false;
    }
    // SAFETY: a question. A kernel that does not answer it is one where nobody knows.
    let order = unsafe { call6(KCMP, [tid.into(), leader.into(), KCMP_FS, 0, 0, 0]) };
    let link = |tid: u32, name: &[u8]| {
        let path = state::joined(&[b"/proc/self/task/", Decimal::new(tid.into()).bytes(), name]);
        Stat::at(AT_FDCWD, path.as_ptr() as u64, 0)
    };
    let is_elsewhere = |name: &&[u8]| match (link(tid, name), link(leader, name)) {
        (Some(own), Some(leaders)) => !own.is_same(&leaders),
        (own, leaders) => own.is_some() != leaders.is_some(),
    };
    order != 0 || SPACES.iter().any(is_elsewhere)
}

/// Room for the groups of one who has many.
struct Room(UnsafeCell<[u32; GROUPS_MAX]>);
// SAFETY: used by the holder of the lock only.
unsafe impl Sync for Room {}
static ROOM: Room = Room(UnsafeCell::new([0; GROUPS_MAX]));
static LOCK: Lock = Lock::new();

fn sum_of_others() -> u64 {
    const PRIME: u64 = 0x0100_0000_01b3;
    // SAFETY: the lock is held; the kernel writes as many as there is room for, and says how many.
    LOCK.with(|| unsafe {
        let room = ROOM.0.get();
        let count = call2(GETGROUPS, GROUPS_MAX as u64, room as u64).max(0) as usize;
        (&(*room))[..count]
            .iter()
            .fold(count as u64, |sum, group| (sum ^ u64::from(*group)).wrapping_mul(PRIME))
    })
}
