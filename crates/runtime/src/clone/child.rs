//! The forked copy's first steps: a standby with all its threads.

use core::sync::atomic::{AtomicU32, Ordering};

use us_abi::{CONFIG_PINNED, Cause, OWNER_DIED, SegmentHeader, TID_MASK, WAITERS};

use super::park::{self, Place};
use crate::clone::{memory, reset_blocks, signals};
use crate::context::Context;
use crate::raw::{self, nr};
use crate::standby::{poll, promote};
use crate::state::{self, Decimal};
use crate::sys::wall;
use crate::thread::{Mode, Thread};
use crate::{door, family, mirror, seats, signal, verdict};

/// Stack on which a new thread runs until it has become the one that was parked.
const BOOT_BYTES: usize = 4096;
#[repr(align(64))]
struct Boot(core::cell::UnsafeCell<[u8; BOOT_BYTES]>);
// SAFETY: used by one new thread at a time; the maker waits until it has left.
unsafe impl Sync for Boot {}
static BOOT: Boot = Boot(core::cell::UnsafeCell::new([0; BOOT_BYTES]));
/// Futex: threads that have left the boot stack.
static ARRIVED: AtomicU32 = AtomicU32::new(0);

const VM_THREAD: u64 = 0x100 | 0x200 | 0x400 | 0x800 | 0x1_0000 | 0x4_0000; // VM FS FILES SIGHAND THREAD SYSVSEM
const SETTLS: u64 = 0x8_0000;

/// The thread that has forked, as the forked copy: makes the process a standby and every other thread anew.
pub fn lead(header: &SegmentHeader, own: *mut Place) {
    be_copy();
    super::take_seat();
    if super::is_spare() {
        seats::claim(header, seats::own(), state::REAL_PID.load(Ordering::Relaxed));
        let is_late = header.drained.load(Ordering::SeqCst) != super::DRAINED.load(Ordering::Relaxed);
        if is_late && !seats::is_awaited(header, super::EPOCH.load(Ordering::Relaxed)) {
            // The maker has died meanwhile, and the heir has taken over without this one: what it has logged since, or not
            // logged, has been meant for others.
            let why = b"the primary died while this spare was being made";
            seats::drop_spare(header, seats::own(), Cause::StandbyLost, &[why]);
            give_up();
        }
    }
    let copied = memory::make_own();
    header.clone_stage.store(if copied { 1 } else { 2 }, Ordering::Release);
    raw::futex_wake_shared(&header.clone_stage);
    // SAFETY: everybody in the table stood still when this copy was made.
    if !copied || !unsafe { be_whole(own) } || !poll::start() {
        give_up();
    }
    door::limits::put_back();
}

/// In a copy that has just been forked: it is no primary, and has a number of its own.
pub(super) fn be_copy() {
    state::LIVE.store(false, Ordering::SeqCst);
    promote::forget();
    family::forget();
    mirror::forget();
    door::common::forget();
    state::set_role(state::Role::Standby);
    learn_number();
    door::remap::in_copy();
}

/// Asks the kernel for this process's number.
pub(super) fn learn_number() {
    // SAFETY: asks for a number.
    state::REAL_PID.store(unsafe { raw::call1(nr::GETPID, 0) } as u32, Ordering::Relaxed);
}

/// Makes a copy follow whose seat is at the log's end, and makes every thread but the calling one, whose place is `own`. False if one
/// cannot be made.
///
/// # Safety
/// By the copy's only thread that runs guest code; everybody in the table stood still when it was made.
pub(super) unsafe fn be_whole(own: *mut Place) -> bool {
    reset_blocks(Mode::Replay);
    door::pending::adopt_queues(signals::each);
    // A slot may still name the thread of an older standby's: a promotion would send there what waits for one that this
    // copy is only about to make.
    crate::thread::for_each(|thread| seats::tid(thread.slot()).store(0, Ordering::Relaxed));
    promote::awaits_leader();
    // SAFETY: the caller's promise.
    let all = park::places().filter(|place| *place != own).all(|place| unsafe { remake(&mut *place) });
    super::forget();
    all
}

/// A standby that cannot be whole is none: the primary's supervisor sees it end.
pub(super) fn give_up() -> ! {
    loop {
        // SAFETY: ends this copy, which has no effects of its own.
        unsafe { raw::call1(nr::EXIT_GROUP, 0) };
    }
}

/// # Safety
/// In the forked copy, by its only thread that runs guest code.
unsafe fn remake(place: &mut Place) -> bool {
    if place.tid.load(Ordering::Relaxed) == 0 {
        // Claimed, and never stood still: there was no such thread when all were counted.
        return true;
    }
    let before = ARRIVED.load(Ordering::Acquire);
    // SAFETY: the boot stack is free; the entry restores the parked thread's registers.
    let made = unsafe {
        let top = BOOT.0.get().cast::<u8>().add(BOOT_BYTES);
        spawn_with_tls(VM_THREAD | SETTLS, top, &raw mut *place, place.tls)
    };
    if raw::failed(made) {
        return false;
    }
    while ARRIVED.load(Ordering::Acquire) == before {
        raw::futex_wait(&ARRIVED, before, 1_000_000);
    }
    true
}

/// A raw clone whose child becomes the thread that was parked at `place`.
#[unsafe(naked)]
unsafe extern "C" fn spawn_with_tls(_flags: u64, _top: *mut u8, _place: *mut Place, _tls: u64) -> i64 {
    core::arch::naked_asm!(
        "and rsi, -16",
        "sub rsi, 8",
        "mov [rsi], rdx",
        "mov r8, rcx",
        "xor edx, edx",
        "xor r10d, r10d",
        "mov eax, 56",
        "syscall",
        "test rax, rax",
        "jz 2f",
        "ret",
        "2: pop rdi",
        "jmp {go_on}",
        go_on = sym park::go_on_at,
    )
}

/// Every thread of the forked copy, back on its own stack: what the kernel has to know of it.
///
/// # Safety
/// The caller's own place; `frame` is the kernel's, if it was parked in the handler.
pub unsafe fn settle_in(place: &mut Place, frame: Option<&mut Context>) {
    use crate::raw::nr::{SET_ROBUST_LIST, SET_TID_ADDRESS};
    let tid = raw::gettid();
    let leads = tid == state::REAL_PID.load(Ordering::Relaxed);
    // SAFETY: addresses in this thread's own control block, as libc had registered them in the primary.
    unsafe {
        let [head, len] = place.robust;
        if head != 0 {
            rename_owner(head, place.tid.load(Ordering::Relaxed), tid);
            raw::call2(SET_ROBUST_LIST, head, len);
        }
        let word = place.tls + crate::tls::END_OFFSET.load(Ordering::Relaxed);
        raw::call1(SET_TID_ADDRESS, word);
        if !leads {
            take_rseq(place);
        }
        restore_scheduling(place, leads);
        if state::may_threads_differ() && !place.own.restore() {
            let number = Decimal::new(place.tid.load(Ordering::Relaxed).into());
            verdict::give_up_standby(&[
                b"thread ",
                number.bytes(),
                b" has changed its own ids or rights alone, and no thread of a copy can have them",
            ]);
        }
        raw::call2(nr::PRCTL, 15, c"understudy".as_ptr() as u64);
    }
    // Until it is live.
    let mask = signal::mask_of_faults();
    // SAFETY: the block of the thread that this now is; the mask of the calling thread.
    unsafe {
        if let Some(thread) = place.block.as_mut() {
            thread.place.set_name(place.name);
            door::thread_place::give_io_priority(&thread.place, tid);
            adopt(thread, tid);
        } else {
            call_unborn(crate::tls::tid_of(place.tls), tid);
        }
        raw::call4(nr::RT_SIGPROCMASK, 2, &raw const mask as u64, 0, 8);
    }
    if let Some(frame) = frame {
        frame.mask = mask;
    }
    if leads {
        promote::leader_has_settled();
    } else {
        ARRIVED.fetch_add(1, Ordering::AcqRel);
        raw::futex_wake(&ARRIVED, 1);
    }
}

/// The calling thread has libc's area for restartable sequences again, if it had it.
///
/// # Safety
/// By the thread that was parked there, or the one that is made in its place.
pub unsafe fn take_rseq(place: &Place) {
    if let Some(area) = rseq_area(place.tls).filter(|_| place.rseq) {
        // SAFETY: libc's area of the calling thread.
        unsafe { raw::call4(RSEQ, area, RSEQ_BYTES, 0, RSEQ_SIGNATURE) };
    }
}

fn adopt(thread: &mut Thread, tid: u32) {
    thread.set_kernel_tid(tid);
    thread.runs_as.store(tid, Ordering::Relaxed);
    seats::tid(thread.slot()).store(tid, Ordering::Relaxed);
    signal::set_stack(thread);
    wall::begin(thread);
}

/// The thread that the program knows by `number` is `tid` here, and in its first instructions: until it says so itself, who
/// sends it a signal would send it to the number that it had where this copy was made.
fn call_unborn(number: u32, tid: u32) {
    crate::thread::for_each(|thread| {
        if number != 0
            && thread.guest_tid() == number
            && seats::tid(thread.slot()).load(Ordering::Relaxed) == 0
        {
            thread.set_kernel_tid(tid);
        }
    });
}

/// Robust mutexes that the thread holds name their owner by the kernel's number, and the kernel looks at it.
///
/// # Safety
/// `head` is the calling thread's robust list, whose nodes are mutexes that it holds.
unsafe fn rename_owner(head: u64, from: u32, to: u32) {
    // SAFETY: glibc's list: a link, the distance to the futex word, a pending entry; the lowest bit of a link
    // marks priority inheritance.
    unsafe {
        let distance = ((head + 8) as *const i64).read();
        let pending = ((head + 16) as *const u64).read() & !1;
        let rename = |node: u64| {
            let word = &*((node as i64 + distance) as *const AtomicU32);
            let now = word.load(Ordering::Relaxed);
            if now & TID_MASK == from {
                word.store(now & (WAITERS | OWNER_DIED) | to, Ordering::Relaxed);
            }
        };
        let mut node = (head as *const u64).read() & !1;
        for _ in 0..2048 {
            if node == head || node == 0 {
                break;
            }
            rename(node);
            node = (node as *const u64).read() & !1;
        }
        if pending != 0 {
            rename(pending);
        }
    }
}

/// System call number, and what glibc registers with.
pub const RSEQ: u64 = crate::raw::nr::RSEQ;
/// See [`RSEQ`].
pub const RSEQ_SIGNATURE: u64 = 0x5305_3053;
/// See [`RSEQ`].
pub const RSEQ_BYTES: u64 = 32;

/// libc's area for restartable sequences of the thread with this control block.
pub fn rseq_area(tls: u64) -> Option<u64> {
    crate::real::rseq_offset().map(|offset| tls.wrapping_add(offset as u64))
}

/// # Safety
/// Attributes of the calling thread only.
unsafe fn restore_scheduling(place: &Place, leads: bool) {
    use crate::raw::nr::{SCHED_SETSCHEDULER, SETPRIORITY};
    let pinned = state::header().filter(|header| header.config.flags & CONFIG_PINNED != 0);
    // SAFETY: the kernel reads the words it is given.
    unsafe {
        match pinned {
            Some(header) => {
                let mask = &header.config.standby_cpus;
                raw::call3(nr::SCHED_SETAFFINITY, 0, 128, mask.as_ptr() as u64);
            }
            None => {
                raw::call3(nr::SCHED_SETAFFINITY, 0, 128, place.affinity.as_ptr() as u64);
            }
        }
        if leads {
            return;
        }
        let [policy, priority] = place.policy;
        raw::call3(SCHED_SETSCHEDULER, 0, u64::from(policy), &raw const priority as u64);
        raw::call3(SETPRIORITY, 0, 0, (20 - i64::from(place.nice)) as u64);
    }
}
