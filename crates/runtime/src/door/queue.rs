//! Messages that go into a queue of the kernel's, and semaphores of a set that are taken.
//!
//! The kernel does not say afterwards whether such a call was done. A thread that is killed while it waits for room must not be
//! taken for one that has sent, and one whose message has filled the queue must not send it again. So, as with [a pipe that others
//! have](crate::door::pipe), the wait is made apart where there is a way, and the call itself does not wait: once the kernel was
//! entered with it, it was done. The slot of the call's `Return` says so.
//!
//! Another process may take the room, or the semaphore, between the look and the call. It is then told, and looks again.

use linux_raw_sys::general::{__NR_mq_getsetattr, __NR_mq_timedsend, __NR_msgsnd};
use us_abi::event::ReturnHead;

use crate::door::carry::O_NONBLOCK;
use crate::door::witness;
use crate::fault::{self, Point};
use crate::guest::GuestPtr;
use crate::kernel::POLLOUT;
use crate::raw::err::{EAGAIN, EIDRM, EINTR, ETIMEDOUT};
use crate::raw::nr::{MSGCTL, NANOSLEEP, PPOLL, SEMTIMEDOP};
use crate::raw::{self, Timespec, failed};
use crate::thread::Thread;

/// System call number.
pub const MSGSND: u64 = __NR_msgsnd as u64;
/// System call number.
pub const MQ_TIMEDSEND: u64 = __NR_mq_timedsend as u64;

const IPC_NOWAIT: u64 = 0o4000;
const NOWAIT: i16 = IPC_NOWAIT as i16;
/// Most operations of a call that takes from semaphores.
const OPERATIONS: usize = 8;
/// A sleep that finds no room lasts an eighth of the wait so far, within these, ns: that much later than natively it ends.
const NAP_NS: core::ops::RangeInclusive<u64> = 20_000..=2_000_000;

/// Makes such a call for real. `None`: in the plain way, with nothing done.
pub fn make(thread: &mut Thread, nr: u64, args: &[u64; 6]) -> Option<i64> {
    let place = thread.reserve(size_of::<ReturnHead>())?;
    let result = match nr {
        MSGSND => send_here(thread, args, place)?,
        MQ_TIMEDSEND => send_there(thread, args, place)?,
        _ => take(thread, nr, args, place)?,
    };
    // Its `Return` is about to be written over the mark that says whether it was done.
    witness::is_laid_out(thread);
    Some(result)
}

/// A call that does not wait: its result.
fn at_once(thread: &Thread, nr: u64, args: &[u64; 6], place: *mut u8) -> i64 {
    witness::begin_piece(thread, place, 0, 1);
    fault::at(Point::Call, nr as u32);
    // SAFETY: the guest's own call, but that it does not wait.
    let result = unsafe { raw::marked(nr, args, &thread.pending, witness::mark_of(thread)) };
    fault::at(Point::Called, nr as u32);
    if failed(result) {
        witness::end_piece(thread, place, 0);
    }
    result
}

/// msgsnd. No call tells when a queue has room again, so that is looked for between sleeps.
fn send_here(thread: &Thread, args: &[u64; 6], place: *mut u8) -> Option<i64> {
    let [queue, text, len, flags, ..] = *args;
    let waits = flags & IPC_NOWAIT == 0;
    let mut began_ns = None;
    loop {
        let Some(room) = Room::of(queue) else { return began_ns.map(|_| EIDRM) };
        if len > room.most {
            return None;
        }
        if room.has(len) {
            match at_once(thread, MSGSND, &[queue, text, len, flags | IPC_NOWAIT, 0, 0], place) {
                EAGAIN if waits => {}
                result => return Some(result),
            }
        }
        if !waits {
            return Some(EAGAIN);
        }
        let now_ns = raw::now_ns();
        let began_ns = *began_ns.get_or_insert(now_ns);
        let nap = Timespec::from_ns(((now_ns - began_ns) / 8).clamp(*NAP_NS.start(), *NAP_NS.end()));
        let nap = [&raw const nap as u64, 0, 0, 0, 0, 0];
        // SAFETY: the kernel reads the time.
        if unsafe { raw::blocking(NANOSLEEP, &nap, &thread.pending) } == EINTR {
            return Some(EINTR);
        }
    }
}

/// What a System V queue holds.
pub struct Room {
    held: u64,
    count: u64,
    most: u64,
}

impl Room {
    /// `None`: there is no such queue, or it may not be looked at.
    pub fn of(queue: u64) -> Option<Room> {
        let mut stat = [0u64; 15];
        // SAFETY: the kernel writes one struct msqid64_ds of 120 bytes.
        let known = unsafe { raw::call3(MSGCTL, queue, raw::IPC_STAT, stat.as_mut_ptr() as u64) } == 0;
        known.then_some(Room { held: stat[9], count: stat[10], most: stat[11] })
    }

    /// Whether it would take a message of this length.
    pub fn has(&self, len: u64) -> bool {
        self.held + len <= self.most && self.count < self.most
    }
}

/// The kernel's `struct mq_attr`.
#[repr(C)]
#[derive(Default)]
struct Attributes {
    flags: i64,
    most: i64,
    bytes: i64,
    count: i64,
    rest: [i64; 4],
}

fn attributes(queue: u64) -> Option<Attributes> {
    let mut attributes = Attributes::default();
    // SAFETY: the kernel writes one struct mq_attr.
    let result = unsafe { raw::call3(__NR_mq_getsetattr.into(), queue, 0, &raw mut attributes as u64) };
    (result == 0).then_some(attributes)
}

/// Whether a mq_timedsend with these arguments fails whatever the queue holds.
pub fn is_refused(args: &[u64; 6]) -> bool {
    const PRIORITIES: u64 = 32768;
    let [queue, text, len, priority, time, _] = *args;
    let is_time = |time: Timespec| time.sec >= 0 && (0..1_000_000_000).contains(&time.nsec);
    priority & 0xffff_ffff >= PRIORITIES
        || time != 0 && !GuestPtr::<Timespec>::at(time).load().is_some_and(is_time)
        || len > 0 && GuestPtr::<u8>::at(text).load().is_none()
        || attributes(queue).is_none_or(|attributes| len > attributes.bytes as u64)
}

/// mq_timedsend.
fn send_there(thread: &Thread, args: &[u64; 6], place: *mut u8) -> Option<i64> {
    // A moment that is past: the call says ETIMEDOUT in place of waiting.
    static PAST: [u64; 2] = [0; 2];
    if is_refused(args) {
        return None;
    }
    let [queue, text, len, priority, time, _] = *args;
    let until = GuestPtr::<Timespec>::at(time).load();
    let now = [queue, text, len, priority, PAST.as_ptr() as u64, 0];
    loop {
        let attributes = attributes(queue)?;
        let waits = attributes.flags & O_NONBLOCK == 0;
        if attributes.count < attributes.most {
            match at_once(thread, MQ_TIMEDSEND, &now, place) {
                ETIMEDOUT if waits => {}
                result => return Some(result),
            }
        }
        if !waits {
            return Some(EAGAIN);
        }
        let left = until.map(|until| Timespec::from_ns(until.ns().saturating_sub(raw::real_ns())));
        let left = left.as_ref().map_or(0, |left| &raw const *left as u64);
        let mut poll = queue & 0xffff_ffff | POLLOUT << 32;
        let args = [&raw mut poll as u64, 1, left, 0, 0, 0];
        // SAFETY: the kernel reads and writes one struct pollfd, and the time.
        match unsafe { raw::blocking(PPOLL, &args, &thread.pending) } {
            EINTR => return Some(EINTR),
            0 => return Some(ETIMEDOUT),
            _ => {}
        }
    }
}

/// The kernel's `struct sembuf`.
#[repr(C)]
#[derive(Clone, Copy, Default)]
struct Operation {
    which: u16,
    by: i16,
    flags: i16,
}

/// semop, semtimedop that take, or wait for zero. The wait is made by the same operations, followed by those that undo them: they
/// are done all at once, when all of them can be, and then nothing has changed.
fn take(thread: &Thread, nr: u64, args: &[u64; 6], place: *mut u8) -> Option<i64> {
    let [set, list, count, time, ..] = *args;
    let count = usize::try_from(count).ok().filter(|count| *count <= OPERATIONS)?;
    let (mut now, mut waits) = ([Operation::default(); OPERATIONS], [Operation::default(); 2 * OPERATIONS]);
    for (index, operation) in now.iter_mut().enumerate().take(count) {
        let [which, by, flags] = GuestPtr::<[i16; 3]>::at(list).nth(index as u64).load()?;
        *operation = Operation { which: which as u16, by, flags: flags | NOWAIT };
        waits[index] = Operation { flags: flags & NOWAIT, ..*operation };
        waits[2 * count - 1 - index] = Operation { by: by.checked_neg()?, flags: NOWAIT, ..*operation };
    }
    if now[..count].iter().all(|operation| operation.by > 0) {
        // It waits for nothing, as settlement knows.
        return None;
    }
    let mut left = time_out(nr, time)?;
    let began_ns = raw::now_ns();
    loop {
        let time = left.as_ref().map_or(0, |left| &raw const *left as u64);
        let wait = [set, waits.as_ptr() as u64, 2 * count as u64, time, 0, 0];
        // SAFETY: the kernel reads the operations, which change nothing, and the time.
        let awaited = unsafe { raw::blocking(nr, &wait, &thread.pending) };
        if failed(awaited) {
            return Some(awaited);
        }
        match at_once(thread, nr, &[set, now.as_ptr() as u64, count as u64, 0, 0, 0], place) {
            // Somebody was quicker.
            EAGAIN => {
                let whole = time_out(nr, args[3])?;
                let spent_ns = raw::now_ns() - began_ns;
                left = whole.map(|whole| Timespec::from_ns(whole.ns().saturating_sub(spent_ns)));
            }
            result => return Some(result),
        }
    }
}

/// How long a call on semaphores may wait; the outer `None` if the kernel is to say what is wrong with that.
fn time_out(nr: u64, time: u64) -> Option<Option<Timespec>> {
    if nr != SEMTIMEDOP || time == 0 {
        return Some(None);
    }
    let time = GuestPtr::<Timespec>::at(time).load()?;
    (time.sec >= 0 && (0..1_000_000_000).contains(&time.nsec)).then_some(Some(time))
}
