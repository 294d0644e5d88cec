//! Processors, priority and policy of threads: the primary's are real, a standby has its own place, and a promoted
//! one gives its threads theirs.

use core::sync::atomic::{Ordering, fence};

use us_abi::SegmentHeader;
use us_calls::Row;

use super::numbers;
use crate::call::Call;
use crate::guest::{GuestMut, GuestPtr};
use crate::lock::Lock;
use crate::raw::nr::{
    IOPRIO_SET, SCHED_GETAFFINITY, SCHED_SETATTR, SCHED_SETPARAM, SCHED_SETSCHEDULER, SETPRIORITY,
};
use crate::raw::{self, failed};
use crate::thread::place::{Place, SchedAttr};
use crate::thread::{self, Mode, Shared, Thread};
use crate::{seats, state};

/// In the policy of sched_setscheduler, and what a `sched_attr` says for it.
const RESET_ON_FORK: u32 = linux_raw_sys::general::SCHED_RESET_ON_FORK;
const FLAG_RESET_ON_FORK: u64 = linux_raw_sys::general::SCHED_FLAG_RESET_ON_FORK as u64;
/// SCHED_FLAG_KEEP_ALL: policy or parameters stay as they are.
const FLAGS_KEEP: u64 = linux_raw_sys::general::SCHED_FLAG_KEEP_ALL as u64;

/// A call that asks for, or changes, the place of a thread.
pub fn thread_state(thread: &mut Thread, row: &'static Row, call: &Call) -> i64 {
    let own = call.args[0] as u32 == 0 || call.args[0] as u32 == thread.guest_tid();
    if own && call.nr == SCHED_GETAFFINITY {
        return own_affinity(thread, call);
    }
    let result = numbers::named(thread, row, call);
    if result == 0 {
        note(thread, call);
    }
    result
}

/// Remembers, in every copy, what has been set for this or another thread of the guest's.
fn note(thread: &mut Thread, call: &Call) {
    const PRIO_PROCESS: u32 = linux_raw_sys::general::PRIO_PROCESS;
    const IOPRIO_WHO_PROCESS: u32 = 1;
    let whom = match call.nr {
        raw::nr::SCHED_SETAFFINITY | SCHED_SETPARAM | SCHED_SETSCHEDULER | SCHED_SETATTR => {
            call.args[0] as u32
        }
        SETPRIORITY if call.args[0] as u32 == PRIO_PROCESS => call.args[1] as u32,
        IOPRIO_SET if call.args[0] as u32 == IOPRIO_WHO_PROCESS => call.args[1] as u32,
        _ => return,
    };
    if whom == 0 || whom == thread.guest_tid() {
        set(&thread.place, call);
        return give_late(thread.calls(), thread);
    }
    thread::called(whom).for_each(|other| {
        set(&other.place, call);
        give_late(thread.calls(), other);
    });
}

/// What the log says of a thread to which a promotion has given its place already. An event counts as applied a moment
/// before it is noted here; without this line a copy that takes over in that moment leaves the thread where it was.
fn give_late(noted_by: Mode, thread: &Shared) {
    fence(Ordering::SeqCst);
    if noted_by == Mode::Replay
        && (thread.is_live() || thread.place.is_given.load(Ordering::Acquire))
        && let Some(header) = state::header()
    {
        give(header, thread, seats::tid(thread.slot()).load(Ordering::Relaxed));
    }
}

/// At a promotion, before anybody is live: gives a thread, of this number here, what has been noted of it. One of another user the
/// kernel may refuse us, where root has no CAP_SYS_NICE: that thread gives it itself, when it goes live.
pub fn give_early(header: &SegmentHeader, thread: &Shared, tid: u32) {
    thread.place.is_given.store(true, Ordering::Release);
    fence(Ordering::SeqCst);
    if !give(header, thread, tid) {
        thread.place.is_given.store(false, Ordering::Release);
    }
}

fn set(place: &Place, call: &Call) {
    const HIGHEST: i32 = -20;
    const LOWEST: i32 = 19;
    let [_, second, third, ..] = call.args;
    match call.nr {
        raw::nr::SCHED_SETAFFINITY => {
            let mut affinity = [0u64; 16];
            let bytes = (second as usize).min(size_of_val(&affinity));
            GuestPtr::<u8>::at(third).copy_to(affinity.as_mut_ptr().cast(), bytes);
            TRIED.with(|| place.set_affinity(of_those_there(affinity)));
        }
        SETPRIORITY => place.set_nice(Some((third as u32 as i32).clamp(HIGHEST, LOWEST) as i8)),
        IOPRIO_SET => place.set_io_priority(Some(third as u32)),
        SCHED_SETPARAM => {
            if let (Some(priority), Some(mut attributes)) = (GuestPtr::at(second).load(), place.scheduling())
            {
                attributes.priority = priority;
                place.set_scheduling(Some(attributes));
            }
        }
        SCHED_SETSCHEDULER => {
            let given = second as u32;
            let policy = given & !RESET_ON_FORK;
            place.set_scheduling(Some(SchedAttr {
                policy,
                flags: if given == policy { 0 } else { FLAG_RESET_ON_FORK },
                priority: GuestPtr::at(third).load().unwrap_or(0),
                ..SchedAttr::default()
            }));
        }
        _ => {
            let mut attributes = SchedAttr::default();
            let bytes = GuestPtr::<u32>::at(second).load().unwrap_or(0) as usize;
            let bytes = bytes.min(size_of::<SchedAttr>());
            GuestPtr::<u8>::at(second).copy_to((&raw mut attributes).cast(), bytes);
            if attributes.flags & FLAGS_KEEP != 0 {
                return;
            }
            place.set_scheduling(Some(attributes));
            // This one says it as well.
            place.set_nice(None);
        }
    }
}

/// A thread is somewhere else for a moment, to see whether there is such a place: a promotion that gives it its own there, and then, would
/// be taken for the answer, and be undone.
static TRIED: Lock = Lock::new();

/// Those of a set's processors that there are. The kernel tells no other way than by trying: the calling thread runs there for a
/// moment, in a standby as in the primary, where it is there already or soon again where it was.
fn of_those_there(set: [u64; 16]) -> [u64; 16] {
    let of = |number: u64, set: *const u64| {
        // SAFETY: the calling thread's own set, of the size that is said.
        unsafe { raw::call3(number, 0, size_of::<[u64; 16]>() as u64, set as u64) }
    };
    let (mut before, mut there) = ([0u64; 16], [0u64; 16]);
    let is_known = !failed(of(SCHED_GETAFFINITY, before.as_mut_ptr()))
        && !failed(of(raw::nr::SCHED_SETAFFINITY, set.as_ptr()))
        && !failed(of(SCHED_GETAFFINITY, there.as_mut_ptr()));
    of(raw::nr::SCHED_SETAFFINITY, before.as_ptr());
    if is_known { there } else { set }
}

/// A new thread has what its maker has.
pub fn inherit(thread: &Shared, parent: &Shared) {
    let (own, place) = (&thread.place, &parent.place);
    own.set_name(place.name());
    own.set_affinity(place.affinity());
    own.set_nice(place.nice());
    own.set_io_priority(place.io_priority());
    own.set_scheduling(place.scheduling().filter(|attributes| attributes.flags & FLAG_RESET_ON_FORK == 0));
}

/// Gives the thread of this number the priority of its input and output that has been noted of it. Whether it has it.
pub fn give_io_priority(place: &Place, tid: u32) -> bool {
    const IOPRIO_WHO_PROCESS: u64 = 1;
    place.io_priority().is_none_or(|priority| {
        // SAFETY: of a thread of this process.
        !failed(unsafe { raw::call3(IOPRIO_SET, IOPRIO_WHO_PROCESS, tid.into(), priority.into()) })
    })
}

/// At a promotion: the place that the guest has given a thread while it followed. Whether all of it was given.
pub fn give(header: &SegmentHeader, thread: &Shared, tid: u32) -> bool {
    let pinned = header.config.flags & us_abi::CONFIG_PINNED != 0;
    let place = &thread.place;
    let mut is_given = give_io_priority(place, tid);
    TRIED.with(|| {
        let affinity = place.affinity();
        let processors = if pinned { header.config.primary_cpus.as_ptr() } else { affinity.as_ptr().cast() };
        // SAFETY: of a thread of this process. Where it is not allowed it is as it was.
        let result =
            unsafe { raw::call3(raw::nr::SCHED_SETAFFINITY, u64::from(tid), 128, processors as u64) };
        is_given &= !failed(result);
    });
    // SAFETY: as above.
    unsafe {
        if let Some(mut attributes) = place.scheduling() {
            if let Some(nice) = place.nice() {
                attributes.nice = i32::from(nice);
            }
            is_given &= !failed(raw::call3(SCHED_SETATTR, u64::from(tid), &raw const attributes as u64, 0));
        }
        if let Some(nice) = place.nice() {
            is_given &= !failed(raw::call3(SETPRIORITY, 0, u64::from(tid), i64::from(nice) as u64));
        }
    }
    is_given
}

/// The calling thread's affinity as the guest has it, without a word in the log: an allocator asks for it at
/// moments of its own (how many arenas?), and a standby's real one says where the standby is to run.
fn own_affinity(thread: &Thread, call: &Call) -> i64 {
    let mut bytes = state::AFFINITY_BYTES.load(Ordering::Relaxed) as usize;
    let given = (call.args[1] & 0xffff_ffff) as usize;
    if given < bytes {
        // The kernel asks for room for the processors that there may be, and its own set may be larger.
        let mut set = [0u64; 16];
        // SAFETY: the kernel writes no more than it is told that there is room for, which is less than the set's own.
        let result = unsafe { raw::call3(SCHED_GETAFFINITY, 0, given as u64, set.as_mut_ptr() as u64) };
        if failed(result) {
            return result;
        }
        bytes = given;
    }
    if given & 7 != 0 {
        return raw::err::EINVAL;
    }
    let affinity = thread.place.affinity();
    let is_told = GuestMut::<u8>::at(call.args[2]).copy_from(affinity.as_ptr().cast(), bytes);
    if is_told { bytes as i64 } else { raw::err::EFAULT }
}
