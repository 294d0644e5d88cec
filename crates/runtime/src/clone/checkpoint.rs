//! A copy that stands still, so that the supervisor can write it down: a *checkpoint*. And its way back.
//!
//! Every thread parks as for a standby. When those of all its relatives do, the first one forks. The copy has a table of descriptors of its own and one thread,
//! which stops at a place of which the segment tells. What the kernel keeps of the process and no file of `/proc` tells, the copy
//! notes in its own memory first. The program stands still until the supervisor has looked at what both share.
//!
//! In a process that has been given that memory, the thread goes on behind that place. It is then as if it had just been forked: it
//! makes the other threads, and becomes a primary as any standby does whose log is at its end.

use core::cell::UnsafeCell;
use core::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use us_abi::{CONFIG_DETACHED, Cause, GroupState, SegmentHeader, command, stand};

use super::memory::Purpose;
use super::park::{Place, keep_registers, put_registers_back, word};
use super::{Obstacle, baseline, child, coordinator, leader, park_all, release_all};
use crate::door::limits;
use crate::mapping::{pieces, unforked};
use crate::members::of_family;
use crate::raw::{self, nr};
use crate::standby::poll;
use crate::turns::turn_order;
use crate::{bound, clone, fdtable, kernel, members, mirror, paths, recorder, seats, state, twins, verdict};

/// How long the supervisor may take to look, ns: the program stands still meanwhile.
const LOOK_NS: u64 = 2_000_000_000;
/// How long its relatives may take to stand still as well, ns.
const OTHERS_NS: u64 = 5_000_000_000;
/// How long the copy may take to close what it has open, ns.
const CLOSE_NS: u64 = 1_000_000_000;
/// The same as [`LOOK_NS`] where the program ends when all of it has been written, ns.
const WRITE_NS: u64 = 3_600_000_000_000;

/// By the coordinator: the whole of it.
pub fn make(header: &SegmentHeader) {
    recorder::goes_on_at_clone();
    let is_upgrade = header.stand.state.load(Ordering::Acquire) == stand::ASKED_FOR_UPGRADE;
    let outcome = park_all(header, command::CHECKPOINT).and_then(|()| match is_upgrade {
        true => clone::upgrade::perform(header),
        false => stand(header),
    });
    if let Err(why) = outcome {
        clone::fail_with(&header.stand.why, Cause::CannotClone, why);
        header.stand.state.store(stand::FAILED, Ordering::Release);
    } else if is_upgrade {
        header.stand.state.store(stand::UPGRADED, Ordering::Release);
    }
    let word = &header.command.0;
    let _ = word.compare_exchange(command::CHECKPOINT, command::FOLLOW, Ordering::AcqRel, Ordering::Acquire);
    raw::futex_wake_shared(&header.stand.state);
    release_all();
    coordinator::is_done();
    state::attention();
}

/// Has the first thread fork, and waits until the supervisor has seen the copy.
fn stand(header: &SegmentHeader) -> Result<(), Obstacle> {
    if bound::is_bound() {
        return Err((bound::WHY, 0));
    }
    if of_family::is_member() {
        if of_family::phase().has_order() {
            return Err((b"processes that share memory follow one order, which has not ended", 0));
        }
        // It has, and this process has not come to notice.
        crate::verdict::drop_standby(Cause::CannotReplay, &[of_family::ENDED]);
    }
    let Some(leader) = leader() else { return Err((b"no thread is left that could fork", 0)) };
    clone::identity::are_together(Some(leader))?;
    let state = &header.stand.state;
    let asked = state.load(Ordering::Acquire);
    let is_for_replay = asked == stand::ASKED_FOR_REPLAY;
    let purpose = if is_for_replay { Purpose::Replay } else { Purpose::Checkpoint };
    GOES_ON_BY_LOG.store(is_for_replay, Ordering::Relaxed);
    clone::memory::list(header, purpose).map_err(|why| (why, 0))?;
    let patience_ns = if asked == stand::ASKED { LOOK_NS } else { WRITE_NS };
    if state.compare_exchange(asked, stand::PARKED, Ordering::AcqRel, Ordering::Acquire).is_err() {
        return Ok(());
    }
    raw::futex_wake_shared(state);
    if !await_supervisor(header, OTHERS_NS, |now| now == stand::FORK)? {
        return Ok(());
    }
    clone::have_forked(leader, word::STAND)?;
    if await_supervisor(header, patience_ns, |now| matches!(now, stand::DESCRIBED | stand::CLOSED))? {
        await_closed(header);
    }
    Ok(())
}

/// Waits until the copy has closed its descriptors: what the program closes next is closed, and not open there.
fn await_closed(header: &SegmentHeader) {
    let state = &header.stand.state;
    let start = raw::now_ns();
    while state.load(Ordering::Acquire) == stand::DESCRIBED
        && header.command.0.load(Ordering::Acquire) == command::CHECKPOINT
        && raw::now_ns() - start < CLOSE_NS
    {
        raw::futex_wait_shared(state, stand::DESCRIBED, 1_000_000);
    }
}

/// Waits until the supervisor has said so. False if it wants nothing more of this process.
fn await_supervisor(
    header: &SegmentHeader,
    patience_ns: u64,
    has_said: impl Fn(u32) -> bool,
) -> Result<bool, Obstacle> {
    let start = raw::now_ns();
    loop {
        let now = header.stand.state.load(Ordering::Acquire);
        if has_said(now) {
            return Ok(true);
        }
        if matches!(now, stand::DESCRIBED | stand::FAILED)
            || header.command.0.load(Ordering::Acquire) != command::CHECKPOINT
        {
            return Ok(false);
        }
        if raw::now_ns() - start > patience_ns || !recorder::is_taken() {
            return Err((b"the supervisor did not look at the copy in time", 0));
        }
        raw::futex_wait_shared(&header.stand.state, now, 1_000_000);
    }
}

/// Whether the copy that is being made follows a recording from there.
static GOES_ON_BY_LOG: AtomicBool = AtomicBool::new(false);

/// By the leader, parked: forks. True in the process that goes on in the copy's place.
pub fn fork(own: *mut Place) -> bool {
    baseline::take();
    unforked::take_back();
    let result = if clone::away::is_supervised() {
        // SAFETY: a fork on the same stack in its own memory, while every thread stands still.
        unsafe { raw::call6(nr::CLONE, [kernel::CLONE_PARENT | kernel::SIGCHLD, 0, 0, 0, 0, 0]) }
    } else {
        clone::away::fork_away_as(kernel::SIGCHLD)
    };
    unforked::give_again();
    if result == 0 {
        stop();
        // SAFETY: in a process with the copy's memory, by its only thread.
        unsafe { go_on(own) };
        return true;
    }
    // SAFETY: the leader's own place.
    unsafe { clone::has_forked(own, result) };
    false
}

/// Registers of a function that is called, and of the floating-point unit: rbx, rbp, r12 to r15, rsp, mxcsr with the control word.
struct Registers(UnsafeCell<[u64; 8]>);
// SAFETY: used by the only thread of a copy, and by the only thread of the process that goes on.
unsafe impl Sync for Registers {}
static REGISTERS: Registers = Registers(UnsafeCell::new([0; 8]));

/// In the copy: notes what the kernel keeps, says where to go on, and stands still. Returns in the process that goes on.
fn stop() {
    let Some(header) = state::header() else { return };
    child::be_copy();
    // Until it is the supervisor's: the signal would come with the end of whoever has made it.
    const LOOKS: u32 = 1000;
    for _ in (0..LOOKS).take_while(|_| !clone::away::is_supervised()) {
        raw::nap(100_000);
    }
    // SAFETY: an attribute of our own new process.
    unsafe { raw::call2(nr::PRCTL, kernel::PR_SET_PDEATHSIG, kernel::SIGKILL) };
    // What others write is here as they have written it. Who follows the log from here on has what it has told so far, and what
    // comes next in it may be of this memory.
    if !GOES_ON_BY_LOG.load(Ordering::Relaxed) {
        twins::stop();
    }
    pieces::forget();
    if !clone::memory::make_own() {
        child::give_up();
    }
    KEPT.note();
    let stands = &header.stand;
    stands.pid.store(state::REAL_PID.load(Ordering::Relaxed), Ordering::Relaxed);
    stands.context.store(REGISTERS.0.get() as u64, Ordering::Relaxed);
    stands.resume.store(resume as *const () as u64, Ordering::Relaxed);
    stands.tls.store(crate::tls::thread_pointer(), Ordering::Relaxed);
    stands.folder.store(paths::folder().as_ptr() as u64, Ordering::Relaxed);
    // SAFETY: asks for a number.
    stands
        .heap_end
        .store(unsafe { raw::call1(linux_raw_sys::general::__NR_brk.into(), 0) } as u64, Ordering::Relaxed);
    // SAFETY: the registers' place is this thread's; see there.
    unsafe { freeze(REGISTERS.0.get().cast(), &header.stand.state) };
}

/// Keeps the registers, says that the copy stands, and sleeps for ever. Returns when [`resume`] comes back to it.
#[unsafe(naked)]
unsafe extern "C" fn freeze(_registers: *mut u64, _state: &core::sync::atomic::AtomicU32) {
    keep_registers!(
        "mov r12, rsi",
        "mov dword ptr [r12], {stands}",
        "mov rdi, r12",
        "mov esi, 1", // FUTEX_WAKE
        "mov edx, 0x7fffffff",
        "mov eax, {futex}",
        "syscall",
        "2:",
        "mov rdi, r12",
        "xor esi, esi", // FUTEX_WAIT
        "mov edx, {stands}",
        "xor r10d, r10d",
        "mov eax, {futex}",
        "syscall",
        "cmp dword ptr [r12], {stands}",
        "je 2b",
        // All that was wanted of the descriptors has been looked at, and the program may be about to close the last other one of a
        // pipe or a connection: it goes on when it hears that they are closed, if it still waits for that.
        "xor edi, edi",
        "mov esi, 0xffffffff",
        "xor edx, edx",
        "mov eax, {close_range}",
        "syscall",
        "mov eax, {described}",
        "mov ecx, {closed}",
        "lock cmpxchg [r12], ecx",
        "mov rdi, r12",
        "mov esi, 1", // FUTEX_WAKE
        "mov edx, 0x7fffffff",
        "mov eax, {futex}",
        "syscall",
        "3:",
        "mov eax, {pause}",
        "syscall",
        "jmp 3b",
        futex = const nr::FUTEX,
        close_range = const linux_raw_sys::general::__NR_close_range,
        pause = const linux_raw_sys::general::__NR_pause,
        stands = const stand::STANDS,
        described = const stand::DESCRIBED,
        closed = const stand::CLOSED,
    )
}

/// Where whoever has put the memory in place jumps to: the registers' address, and start and length of the memory that it has run
/// from, which goes away here.
#[unsafe(naked)]
unsafe extern "C" fn resume(_registers: *const u64, _from: u64, _bytes: u64) {
    put_registers_back!(
        "mov rdi, rsi",
        "mov rsi, rdx",
        "mov eax, {munmap}",
        "syscall",
        "ret",
        munmap = const nr::MUNMAP,
    )
}

/// What the kernel keeps of a process, and a new one does not have.
struct Kept {
    /// By signal: handler, flags, restorer, mask.
    actions: [[AtomicU64; 4]; 65],
}

static KEPT: Kept = Kept { actions: [const { [const { AtomicU64::new(0) }; 4] }; 65] };

impl Kept {
    fn note(&self) {
        self.each(|signal, place| {
            let mut action = [0u64; 4];
            // SAFETY: the kernel writes one action.
            unsafe { raw::call4(nr::RT_SIGACTION, signal, 0, action.as_mut_ptr() as u64, 8) };
            place.iter().zip(action).for_each(|(place, word)| place.store(word, Ordering::Relaxed));
        });
    }

    fn give_back(&self) {
        self.each(|signal, place| {
            let action: [u64; 4] = core::array::from_fn(|at| place[at].load(Ordering::Relaxed));
            // SAFETY: what the kernel has told before.
            unsafe { raw::call4(nr::RT_SIGACTION, signal, action.as_ptr() as u64, 0, 8) };
        });
    }

    /// Calls `f` with each signal whose action can be changed.
    fn each(&self, f: impl Fn(u64, &[AtomicU64; 4])) {
        use crate::kernel::{SIGKILL, SIGSTOP};
        let all =
            (1..).zip(&self.actions[1..]).filter(|(signal, _)| *signal != SIGKILL && *signal != SIGSTOP);
        all.for_each(|(signal, place)| f(signal, place));
    }
}

/// In the process that goes on: makes it whole, and has it take over.
///
/// # Safety
/// By its only thread; `own` is that thread's place.
unsafe fn go_on(own: *mut Place) {
    let Some(header) = state::header() else { child::give_up() };
    child::learn_number();
    KEPT.give_back();
    unforked::give_again();
    // SAFETY: the place of the calling thread, which nobody else looks at.
    unsafe { child::take_rseq(&*own) };
    if header.config.flags & CONFIG_DETACHED != 0 {
        // SAFETY: the caller's promise.
        return unsafe { replay(header, own) };
    }
    state::IS_RESTORED.store(true, Ordering::Relaxed);
    if !crate::thread::slots().all(crate::thread::map_ring) {
        give_up(header, b"the rings could not be mapped");
    }
    seats::sit(0, false);
    seats::begin_at_tails(header, 0);
    identify_again();
    // SAFETY: everybody in the table stood still when the copy was made.
    if !unsafe { child::be_whole(own) } {
        give_up(header, b"a thread could not be made");
    }
    // As if its primary had just died, and the log were at its end.
    header.death_ns.0.store(raw::now_ns(), Ordering::Relaxed);
    header.chosen.store(state::REAL_PID.load(Ordering::Relaxed), Ordering::Relaxed);
    header.promotions.store(1, Ordering::Relaxed);
    header.command.0.store(command::PROMOTE, Ordering::Release);
    if !poll::start() {
        give_up(header, b"the poller could not be started");
    }
    limits::put_back();
}

/// The same for a replay: it takes over from nobody, and follows what it is fed. Its descriptors are numbers, as they are in every
/// replay, and stand for what they stood for.
///
/// # Safety
/// As [`go_on`].
unsafe fn replay(header: &SegmentHeader, own: *mut Place) {
    state::set_purpose(header.config.flags);
    // SAFETY: no other thread exists.
    unsafe { members::config::keep(&header.config) };
    if state::is_mirrored() {
        mirror::begin_joined();
    }
    header.standby_pid.store(state::REAL_PID.load(Ordering::Relaxed), Ordering::Release);
    // Until it is said where each ring begins, and a debugger has come.
    while header.hold.load(Ordering::Acquire) != 0 {
        raw::futex_wait_shared(&header.hold, 1, 100_000_000);
        if !members::is_fed() {
            verdict::end_replay(0);
        }
    }
    seats::sit(0, false);
    turn_order::join_recording();
    // SAFETY: everybody in the table stood still when the copy was made.
    let is_whole = || crate::thread::slots().all(crate::thread::map_ring) && unsafe { child::be_whole(own) };
    if !is_whole() || !poll::start() {
        verdict::last_words(&[b"a replay could not be begun at a checkpoint"]);
    }
    limits::put_back();
}

fn give_up(header: &SegmentHeader, why: &[u8]) -> ! {
    state::write_text(&header.why.0, Cause::CannotClone as u32, &[why]);
    header.state.0.store(GroupState::Unprotected as u32, Ordering::Release);
    state::attention();
    child::give_up()
}

/// The same numbers stand for other open files.
fn identify_again() {
    fdtable::for_known(|fd, shadow| {
        let (identity, _) = fdtable::identify(fd);
        shadow.identity.store(identity, Ordering::Relaxed);
    });
    fdtable::distrust();
}
