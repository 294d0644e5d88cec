//! Standing still: where a thread may be parked, what is kept of it, and how it goes on.
//!
//! A thread is parked in guest code, inside the SIGSYS handler on the runtime's own stack, or in a door that
//! has just come back from a wait with nothing done. Anywhere else in the runtime it is left alone: a door is
//! short, and the next signal finds it outside.
//!
//! # Safety
//! A place belongs to the thread that has claimed it, until its `tid` is published; then to the coordinator and,
//! in a forked copy, to the threads that are made from it. Nobody changes it while both may look.

use core::cell::UnsafeCell;
use core::ptr;
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use us_abi::THREADS_MAX;
use us_order::park::Claims;

use crate::clone::identity::Identity;
use crate::clone::{child, signals};
use crate::context::{Context, reg};
use crate::door::libc_state;
use crate::fault::{self, Point};
use crate::raw::{self, nr};
use crate::standby::promote;
use crate::sys::trap;
use crate::thread::{Mode, Shared, Thread};
use crate::{clone, notice, signal, state, tls, turns};

/// What a parked thread waits for: values of [`Place::word`].
pub mod word {
    /// Stand still.
    pub const HOLD: u32 = 0;
    /// To one thread: fork.
    pub const FORK: u32 = 1;
    /// Go on.
    pub const GO: u32 = 2;
    /// To one thread: note which signals wait for it, and stand still again.
    pub const TELL: u32 = 3;
    /// To one thread: fork a copy that stands still for a checkpoint.
    pub const STAND: u32 = 4;
}

/// A parked thread: what the kernel keeps of it and a fork does not copy.
#[repr(C)]
pub struct Place {
    /// rbx, rbp, r12 to r15, rsp at [`park_at`]'s return address; then mxcsr and the x87 control word.
    registers: [u64; 8],
    /// Futex: a value of [`word`].
    pub word: AtomicU32,
    /// Kernel's thread id in the process that was forked, 0 while the place is being filled.
    pub tid: AtomicU32,
    /// Base of its thread-local storage.
    pub tls: u64,
    /// Its robust list's head, and the size that the kernel wants to hear.
    pub robust: [u64; 2],
    /// Its block, null for a thread that the runtime does not know.
    pub block: *mut Thread,
    /// Whether libc's area for restartable sequences is registered.
    pub rseq: bool,
    /// Processors that it may run on.
    pub affinity: [u64; 16],
    /// Its name.
    pub name: [u8; 16],
    /// Its scheduling policy and priority.
    pub policy: [u32; 2],
    /// Its nice value, as `getpriority` tells it: 20 less nice.
    pub nice: u32,
    /// What the kernel keeps of it alone, where threads may differ in that.
    pub own: Identity,
    /// Signals that it is to tell of: its own, and the process's.
    pub pending: u64,
    /// As above.
    pub pending_shared: u64,
    /// The time for which it was claimed.
    wanted: u32,
}

/// Threads of an allocator's own, which have no slot.
const UNKNOWN_MAX: usize = 64;
/// Threads that can be parked.
pub const PLACES: usize = THREADS_MAX + UNKNOWN_MAX;

struct Table(UnsafeCell<[Place; PLACES]>);
// SAFETY: see the module.
unsafe impl Sync for Table {}

static TABLE: Table = Table(UnsafeCell::new(
    [const {
        Place {
            registers: [0; 8],
            word: AtomicU32::new(0),
            tid: AtomicU32::new(0),
            tls: 0,
            robust: [0; 2],
            block: ptr::null_mut(),
            rseq: false,
            affinity: [0; 16],
            name: [0; 16],
            policy: [0; 2],
            nice: 0,
            own: Identity::NONE,
            pending: 0,
            pending_shared: 0,
            wanted: 0,
        }
    }; PLACES],
));

/// Which time this is, and the places claimed in it: a [`Claims`]. In two words a thread that was late in one time claimed a place
/// of the next one: two threads had the same place, or the coordinator waited for ever, and the program with it.
static CLAIMS: AtomicU64 = AtomicU64::new(0);
/// Futex: counts arrivals.
pub static ARRIVED: AtomicU32 = AtomicU32::new(0);
/// Threads that have left their places again. Futex: the last one wakes the coordinator.
static LEFT: AtomicU32 = AtomicU32::new(0);

fn claims() -> Claims {
    Claims::from_word(CLAIMS.load(Ordering::SeqCst))
}

/// Changes the word as only the coordinator does, while threads may claim.
fn change(to: impl Fn(Claims) -> Claims) {
    let _ = CLAIMS
        .fetch_update(Ordering::SeqCst, Ordering::SeqCst, |word| Some(to(Claims::from_word(word)).word()));
}

/// Asks every thread that comes by to park.
pub fn want() {
    for place in places() {
        // SAFETY: nobody is parked: the places are the coordinator's.
        unsafe { (*place).tid.store(0, Ordering::Relaxed) };
    }
    LEFT.store(0, Ordering::Relaxed);
    change(Claims::begun);
}

/// Nobody parks any more.
pub fn unwant() {
    change(Claims::ended);
}

/// In the forked copy: as if nobody had ever parked.
pub fn forget() {
    change(Claims::inherited);
}

/// Whether threads are to park.
#[inline(always)]
pub fn is_wanted() -> bool {
    Claims::from_word(CLAIMS.load(Ordering::Relaxed)).is_wanted()
}

/// Waits until everybody who has claimed a place has left it. The coordinator does, and they wait for its end: a nap in here is
/// one of the whole program.
pub fn await_empty() {
    /// Who has missed a wake looks for itself.
    const LOOK_NS: u64 = 1_000_000;
    loop {
        let left = LEFT.load(Ordering::Acquire);
        if left == claims().claimed() {
            return;
        }
        raw::futex_wait(&LEFT, left, LOOK_NS);
    }
}

/// By a thread that has left its place.
fn has_left() {
    if LEFT.fetch_add(1, Ordering::AcqRel) + 1 == claims().claimed() {
        raw::futex_wake(&LEFT, 1);
    }
}

/// The places that have been claimed.
pub fn places() -> impl Iterator<Item = *mut Place> {
    let claimed = claims().claimed() as usize;
    // SAFETY: inside the table; nothing is read.
    (0..claimed).map(|at| unsafe { TABLE.0.get().cast::<Place>().add(at) })
}

/// How many threads stand still.
pub fn standing() -> usize {
    // SAFETY: an atomic.
    places().filter(|place| unsafe { (**place).tid.load(Ordering::Acquire) } != 0).count()
}

/// Whether this thread stands still.
pub fn stands(thread: &Shared) -> bool {
    thread.stands.load(Ordering::Acquire) == claims().time()
}

/// The place of the thread with this kernel's id, once it stands still.
pub fn of(tid: u32) -> Option<*mut Place> {
    // SAFETY: an atomic.
    places().find(|place| unsafe { (**place).tid.load(Ordering::Acquire) } == tid)
}

/// Instructions that keep at rdi what a function of the C ABI must preserve: rbx, rbp, r12 to r15, rsp; then mxcsr and the x87 control
/// word.
macro_rules! keep_registers {
    ($($rest:tt)*) => {
        core::arch::naked_asm!(
            "mov [rdi], rbx",
            "mov [rdi + 8], rbp",
            "mov [rdi + 16], r12",
            "mov [rdi + 24], r13",
            "mov [rdi + 32], r14",
            "mov [rdi + 40], r15",
            "mov [rdi + 48], rsp",
            "stmxcsr [rdi + 56]",
            "fnstcw [rdi + 60]",
            $($rest)*
        )
    };
}
/// Instructions that put it back from there.
macro_rules! put_registers_back {
    ($($rest:tt)*) => {
        core::arch::naked_asm!(
            "mov rbx, [rdi]",
            "mov rbp, [rdi + 8]",
            "mov r12, [rdi + 16]",
            "mov r13, [rdi + 24]",
            "mov r14, [rdi + 32]",
            "mov r15, [rdi + 40]",
            "mov rsp, [rdi + 48]",
            "ldmxcsr [rdi + 56]",
            "fldcw [rdi + 60]",
            $($rest)*
        )
    };
}
pub(super) use {keep_registers, put_registers_back};

/// Saves what a function of the C ABI must preserve, and calls `wait(place)`. Returns when that returns; in a
/// forked copy when another thread comes by [`go_on_at`].
#[unsafe(naked)]
unsafe extern "C" fn park_at(_place: *mut Place, _wait: unsafe extern "C" fn(*mut Place)) {
    keep_registers!("sub rsp, 8", "call rsi", "add rsp, 8", "ret",)
}

/// Becomes the thread that was parked there: on its stack, behind its call of [`park_at`].
///
/// # Safety
/// In a forked copy, once for each place, by a thread with that place's thread-local storage.
#[unsafe(naked)]
pub unsafe extern "C" fn go_on_at(_place: u64) {
    put_registers_back!("ret",)
}

unsafe extern "C" fn wait(place: *mut Place) {
    // SAFETY: the caller's own place.
    let this = unsafe { &*place };
    if claims().time() != this.wanted {
        // Came late: nobody counts on this thread.
        return;
    }
    this.tid.store(raw::gettid(), Ordering::Release);
    // SAFETY: null, or the caller's own block.
    if let Some(thread) = unsafe { this.block.as_ref() } {
        thread.stands.store(this.wanted, Ordering::Release);
    }
    ARRIVED.fetch_add(1, Ordering::AcqRel);
    raw::futex_wake(&ARRIVED, 1);
    loop {
        match this.word.load(Ordering::Acquire) {
            word::GO => return,
            word::FORK => {
                if clone::fork(place) {
                    return;
                }
            }
            word::STAND => {
                if clone::checkpoint::fork(place) {
                    return;
                }
            }
            word::TELL => {
                signals::tell(this);
                this.word.store(word::HOLD, Ordering::Release);
            }
            // Came late: those who let go have not seen it.
            _ if claims().time() != this.wanted => return,
            _ => {
                raw::futex_wait(&this.word, word::HOLD, 0);
            }
        }
    }
}

/// A place, and the time for which it is; `None` if nobody is to park, or there is no room: then this thread is never
/// found parked, and the coordinator gives up in time.
fn claim() -> Option<(usize, u32)> {
    let mut seen = claims();
    loop {
        let next = seen.with_one(PLACES as u32).filter(|_| !state::is_standby())?;
        fault::at(Point::Claim, 0);
        match CLAIMS.compare_exchange(seen.word(), next.word(), Ordering::AcqRel, Ordering::Acquire) {
            Ok(_) => return Some((seen.claimed() as usize, seen.time())),
            Err(now) => seen = Claims::from_word(now),
        }
    }
}

/// Stands still until the coordinator lets go. On return the modes are those of the copy that this now is.
///
/// # Safety
/// In guest code (with the handler's frame), or in a door with nothing begun; the block is the caller's.
unsafe fn park(thread: *mut Thread, frame: Option<&mut Context>) {
    let mut mask = 0u64;
    // SIGSYS as well: the coordinator repeats it, and a thread that the runtime does not know would park once more
    // on top of this.
    let blocked = signal::mask_of_faults() | 1 << 30;
    // SAFETY: the kernel reads and writes the words it is given.
    unsafe { raw::call4(nr::RT_SIGPROCMASK, 2, &raw const blocked as u64, &raw mut mask as u64, 8) };
    // Asked again behind the mask: a signal in between may have parked this thread, and it is in another copy now.
    fault::at(Point::Park, 0);
    let Some((at, wanted)) = claim() else {
        // SAFETY: as above.
        unsafe { raw::call4(nr::RT_SIGPROCMASK, 2, &raw const mask as u64, 0, 8) };
        return clone::see_off();
    };
    // SAFETY: the claimed place is this thread's; the kernel reads and writes the words it is given.
    unsafe {
        let place = TABLE.0.get().cast::<Place>().add(at);
        fill(&mut *place, thread);
        (*place).wanted = wanted;
        let parked_in = state::REAL_PID.load(Ordering::Relaxed);
        let slept = thread.as_ref().is_some_and(|thread| thread.calls() == Mode::Replay);
        notice::withdraw();
        park_at(place, wait);
        if let Some(thread) = thread.as_mut() {
            // In a copy as well, where the times begin anew.
            thread.stands.store(0, Ordering::Release);
            thread.stops = thread.stops.wrapping_add(1);
        }
        // In a copy. Not a question of its role: it may have taken over before this thread comes on.
        if state::REAL_PID.load(Ordering::Relaxed) != parked_in {
            clone::child::settle_in(&mut *place, frame);
            return;
        }
        (*place).tid.store(0, Ordering::Release);
        let coordinator = clone::number();
        has_left();
        // What comes next is the program's.
        clone::await_end_of(coordinator);
        raw::call4(nr::RT_SIGPROCMASK, 2, &raw const mask as u64, 0, 8);
        match thread.as_mut() {
            // The coordinator has made it live, in a wait without a log through which it had slept: the rest is its own to do.
            Some(thread) if slept && thread.calls() != Mode::Replay => promote::resume(thread),
            Some(thread) => notice::register(thread, raw::gettid()),
            None => {}
        }
    }
}

/// # Safety
/// The place and the block are the caller's.
unsafe fn fill(place: &mut Place, thread: *mut Thread) {
    use crate::raw::nr::{GETPRIORITY, SCHED_GETAFFINITY, SCHED_GETPARAM, SCHED_GETSCHEDULER};
    place.word.store(word::HOLD, Ordering::Relaxed);
    place.tls = tls::thread_pointer();
    place.block = thread;
    if let Some(list) = raw::robust_list() {
        place.robust = list;
    }
    // SAFETY: the kernel writes into the place.
    unsafe {
        place.rseq = has_rseq(place.tls);
        raw::call3(SCHED_GETAFFINITY, 0, 128, place.affinity.as_mut_ptr() as u64);
        raw::call2(nr::PRCTL, 16, place.name.as_mut_ptr() as u64);
        place.policy[0] = raw::call1(SCHED_GETSCHEDULER, 0).max(0) as u32;
        raw::call2(SCHED_GETPARAM, 0, &raw mut place.policy[1] as u64);
        place.nice = raw::call2(GETPRIORITY, 0, 0).max(1) as u32;
    }
    if state::may_threads_differ() {
        place.own = Identity::own();
    }
}

/// Whether libc has registered this thread's area for restartable sequences: the kernel says so when it is asked to
/// do it again. One that has just been made has not, and libc ends the program if it then cannot.
fn has_rseq(tls: u64) -> bool {
    use crate::raw::err::EBUSY;
    const UNREGISTER: u64 = 1;
    let Some(area) = child::rseq_area(tls) else { return false };
    // SAFETY: libc's area of the calling thread; what has been registered by mistake is taken back.
    unsafe {
        let result = raw::call4(child::RSEQ, area, child::RSEQ_BYTES, 0, child::RSEQ_SIGNATURE);
        if result == 0 {
            raw::call4(child::RSEQ, area, child::RSEQ_BYTES, UNREGISTER, child::RSEQ_SIGNATURE);
        }
        result == EBUSY
    }
}

/// At a door whose wait was interrupted before anything happened: parks if that was what for. True if so, and
/// then the mode may be another.
#[cold]
#[inline(never)]
pub fn at_door(thread: &mut Thread) -> bool {
    let has_promised = || thread.calls() != Mode::Replay && clone::has_promised();
    if state::is_standby() || !(is_wanted() || has_promised()) {
        clone::see_off();
        return false;
    }
    // The signal that brought us here is no guest's.
    signal::look_again(thread);
    // Behind that: what is delivered first must not see the coordinator.
    if thread.pending.load(Ordering::SeqCst) != 0 || !(is_wanted() || clone::keep_promise()) {
        return false;
    }
    stand(thread);
    true
}

/// Parks the calling thread, in a door with nothing begun.
fn stand(thread: &mut Thread) {
    thread.shared_with_guest();
    // SAFETY: the calling thread's own block, at a door.
    unsafe { park(&raw mut *thread, None) };
    thread.shared_with_guest();
    libc_state::goes_on_in_fork(thread);
}

/// Where a thread waits for its turn: parks with the signals that have come for it. They are delivered at the door behind the
/// turn, and whoever has that may be standing already: a thread that wanted to deliver first neither stood still nor went on, and
/// the coordinator waited for it until it gave up.
pub fn at_turn(thread: &mut Thread) {
    if state::is_standby() || !is_wanted() {
        return clone::see_off();
    }
    signal::look_again(thread);
    stand(thread);
}

/// A thread that spins in a door looks here from time to time.
#[inline(always)]
pub fn spinning() -> bool {
    if !is_wanted() {
        return false;
    }
    // SAFETY: the calling thread's own block.
    let Some(thread) = (unsafe { tls::current().as_mut() }) else { return false };
    let parked = at_door(thread);
    turns::take(thread);
    parked
}

/// In the SIGSYS handler: whether a thread that is asked to park now does so before it does anything else.
pub fn comes_at_once(context: &Context) -> bool {
    let ip = context.regs[reg::RIP];
    let Some(thread) = tls::shared() else { return false };
    if thread.borrowed.load(Ordering::Relaxed) != 0 || thread.calls() == Mode::Replay {
        return false;
    }
    // In a door only if that waits, and now knows that it has been interrupted.
    !trap::is_in_door(ip)
        || raw::is_in_window(ip)
        || raw::is_window_end(ip) && context.regs[reg::RAX] as i64 == raw::err::EINTR
}

/// In the SIGSYS handler: parks, if that is wanted and this is a place for it. True if the signal was about that.
///
/// # Safety
/// In the handler, with the kernel's own frame.
pub unsafe fn in_handler(context: &mut Context) -> bool {
    if !is_wanted() || state::is_standby() {
        clone::see_off();
        return false;
    }
    let thread = tls::current();
    let inside = trap::is_in_door(context.regs[reg::RIP]);
    // SAFETY: the calling thread's own block.
    match unsafe { thread.as_mut() } {
        // A thread of an allocator's, one in its first instructions, or in its last: its way through the runtime
        // depends on no mode.
        None => {}
        Some(thread) if thread.borrowed.load(Ordering::Relaxed) != 0 => return true,
        // Promoted, and not yet live.
        Some(thread) if thread.calls() == Mode::Replay => return false,
        Some(thread) if inside => {
            thread.pending.store(1, Ordering::SeqCst);
            raw::rewind(context, &thread.pending);
            return true;
        }
        Some(_) => {}
    }
    // SAFETY: the calling thread's own block.
    let had_turn = unsafe { thread.as_ref() }.is_some_and(|thread| thread.turn.is_own());
    // SAFETY: guest code, or a thread without a block.
    unsafe { park(thread, Some(context)) };
    // SAFETY: the calling thread's own block. Behind this is guest code.
    if let Some(thread) = unsafe { thread.as_mut() } {
        libc_state::goes_on_in_fork(thread);
        if had_turn {
            turns::take(thread)
        } else {
            turns::take_for_guest(thread)
        }
        if thread.calls() != Mode::Replay {
            // It may have become live while it waited for its turn, and the frame blocks still what a standby does.
            context.mask = signal::kernel_mask(thread.signals.mask | signal::held(thread));
        }
    }
    true
}
