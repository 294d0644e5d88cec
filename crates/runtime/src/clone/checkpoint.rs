//! A copy that stands still, so that the supervisor can write it down: a *checkpoint*. And its way back.
//!
//! Every thread parks as for a standby, and the first one forks. The copy has a table of descriptors of its own and one thread,
//! which stops at a place of which the segment tells. What the kernel keeps of the process and no file of `/proc` tells, the copy
//! notes in its own memory first. The program stands still until the supervisor has looked at what both share.
//!
//! In a process that has been given that memory, the thread goes on behind that place. It is then as if it had just been forked: it
//! makes the other threads, and becomes a primary as any standby does whose log is at its end.

use core::arch::naked_asm;
use core::cell::UnsafeCell;
use core::sync::atomic::{AtomicU64, Ordering};

use us_abi::{Cause, GroupState, SegmentHeader, command, stand};

use super::park::{self, Place, word};
use super::{FORKED, Obstacle, RESULT, baseline, child, coordinator, leader, park_all, release_all};
use crate::door::{limits, remap, timer};
use crate::mapping::unforked;
use crate::raw::{self, failed, nr};
use crate::standby::{poll, promote};
use crate::thread::Mode;
use crate::{bound, clone, door, fdtable, paths, proc, recorder, seats, state};

/// How long the supervisor may take to look, ns: the program stands still meanwhile.
const LOOK_NS: u64 = 2_000_000_000;
/// The same where the program ends when all of it has been written, ns.
const WRITE_NS: u64 = 3_600_000_000_000;

/// By the coordinator: the whole of it.
pub fn make(header: &SegmentHeader) {
    recorder::goes_on_at_clone();
    let outcome = park_all(header, command::CHECKPOINT).and_then(|()| stand(header));
    if let Err(why) = outcome {
        super::fail_with(&header.stand.why, Cause::CannotClone, why);
        header.stand.state.store(stand::FAILED, Ordering::Release);
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
    if !super::away::is_supervised() {
        return Err((b"the supervisor is not the process's parent", 0));
    }
    let Some(leader) = leader() else { return Err((b"no thread is left that could fork", 0)) };
    super::memory::list(header, false).map_err(|why| (why, 0))?;
    super::signals::collect(park::places(), leader);
    timer::look_at_threads(|tid| proc::pending_signals(tid).map_or(0, |(own, _)| own));
    let is_long = header.stand.state.load(Ordering::Acquire) == stand::ASKED_FOR_LONG;
    let patience_ns = if is_long { WRITE_NS } else { LOOK_NS };
    FORKED.store(0, Ordering::Release);
    limits::lift_processes();
    // SAFETY: an atomic, and a wake.
    unsafe {
        (*leader).word.store(word::STAND, Ordering::Release);
        raw::futex_wake(&(*leader).word, 1);
    }
    while FORKED.load(Ordering::Acquire) == 0 {
        raw::futex_wait(&FORKED, 0, 0);
    }
    if failed(RESULT.load(Ordering::Acquire)) {
        return Err((b"the kernel refused to fork", 0));
    }
    let start = raw::now_ns();
    loop {
        let now = header.stand.state.load(Ordering::Acquire);
        if matches!(now, stand::DESCRIBED | stand::FAILED)
            || header.command.0.load(Ordering::Acquire) != command::CHECKPOINT
        {
            return Ok(());
        }
        if raw::now_ns() - start > patience_ns || !recorder::is_taken() {
            return Err((b"the supervisor did not look at the copy in time", 0));
        }
        raw::futex_wait_shared(&header.stand.state, now, 1_000_000);
    }
}

/// By the leader, parked: forks. True in the process that goes on in the copy's place.
pub fn fork(own: *mut Place) -> bool {
    const PARENT: u64 = 0x8000;
    const SIGCHLD: u64 = 17;
    baseline::take();
    unforked::take_back();
    // SAFETY: a fork on the same stack in its own memory, while every thread stands still.
    let result = unsafe { raw::call6(nr::CLONE, [PARENT | SIGCHLD, 0, 0, 0, 0, 0]) };
    unforked::give_again();
    if result == 0 {
        stop();
        // SAFETY: in a process with the copy's memory, by its only thread.
        unsafe { go_on(own) };
        return true;
    }
    // SAFETY: the leader's own place.
    unsafe { (*own).word.store(word::HOLD, Ordering::Release) };
    RESULT.store(result, Ordering::Release);
    FORKED.store(1, Ordering::Release);
    raw::futex_wake(&FORKED, 1);
    false
}

/// Registers of a function that is called, and of the floating-point unit: rbx, rbp, r12 to r15, rsp, mxcsr with the control word.
struct Registers(UnsafeCell<[u64; 8]>);
// SAFETY: used by the only thread of a copy, and by the only thread of the process that goes on.
unsafe impl Sync for Registers {}
static REGISTERS: Registers = Registers(UnsafeCell::new([0; 8]));

/// In the copy: notes what the kernel keeps, says where to go on, and stands still. Returns in the process that goes on.
fn stop() {
    const SET_PDEATHSIG: u64 = 1;
    const SIGKILL: u64 = 9;
    const BRK: u64 = 12;
    let Some(header) = state::header() else { return };
    state::LIVE.store(false, Ordering::SeqCst);
    promote::forget();
    door::common::forget();
    state::set_role(state::Role::Standby);
    // SAFETY: attributes of our own new process.
    unsafe {
        state::REAL_PID.store(raw::call1(nr::GETPID, 0) as u32, Ordering::Relaxed);
        raw::call2(nr::PRCTL, SET_PDEATHSIG, SIGKILL);
    }
    remap::in_copy();
    if !super::memory::make_own() {
        end();
    }
    KEPT.note();
    let stands = &header.stand;
    stands.pid.store(state::REAL_PID.load(Ordering::Relaxed), Ordering::Relaxed);
    stands.context.store(REGISTERS.0.get() as u64, Ordering::Relaxed);
    stands.resume.store(resume as *const () as u64, Ordering::Relaxed);
    stands.tls.store(crate::tls::thread_pointer(), Ordering::Relaxed);
    stands.folder.store(paths::folder().as_ptr() as u64, Ordering::Relaxed);
    // SAFETY: asks for a number.
    stands.heap_end.store(unsafe { raw::call1(BRK, 0) } as u64, Ordering::Relaxed);
    // SAFETY: the registers' place is this thread's; see there.
    unsafe { freeze(REGISTERS.0.get().cast(), &header.stand.state) };
}

fn end() -> ! {
    loop {
        // SAFETY: ends this copy, which has no effects of its own.
        unsafe { raw::call1(nr::EXIT_GROUP, 0) };
    }
}

/// Keeps the registers, says that the copy stands, and sleeps for ever. Returns when [`resume`] comes back to it.
#[unsafe(naked)]
unsafe extern "C" fn freeze(_registers: *mut u64, _state: &core::sync::atomic::AtomicU32) {
    naked_asm!(
        "mov [rdi], rbx",
        "mov [rdi + 8], rbp",
        "mov [rdi + 16], r12",
        "mov [rdi + 24], r13",
        "mov [rdi + 32], r14",
        "mov [rdi + 40], r15",
        "mov [rdi + 48], rsp",
        "stmxcsr [rdi + 56]",
        "fnstcw [rdi + 60]",
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
        // connection.
        "xor edi, edi",
        "mov esi, 0xffffffff",
        "xor edx, edx",
        "mov eax, {close_range}",
        "syscall",
        "3:",
        "mov eax, {pause}",
        "syscall",
        "jmp 3b",
        futex = const nr::FUTEX,
        close_range = const linux_raw_sys::general::__NR_close_range,
        pause = const linux_raw_sys::general::__NR_pause,
        stands = const stand::STANDS,
    )
}

/// Where whoever has put the memory in place jumps to: the registers' address, and start and length of the memory that it has run
/// from, which goes away here.
#[unsafe(naked)]
unsafe extern "C" fn resume(_registers: *const u64, _from: u64, _bytes: u64) {
    naked_asm!(
        "mov rbx, [rdi]",
        "mov rbp, [rdi + 8]",
        "mov r12, [rdi + 16]",
        "mov r13, [rdi + 24]",
        "mov r14, [rdi + 32]",
        "mov r15, [rdi + 40]",
        "mov rsp, [rdi + 48]",
        "ldmxcsr [rdi + 56]",
        "fldcw [rdi + 60]",
        "mov rdi, rsi",
        "mov rsi, rdx",
        "mov eax, 11", // munmap
        "syscall",
        "ret",
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
        const SIGKILL: u64 = 9;
        const SIGSTOP: u64 = 19;
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
    let Some(header) = state::header() else { end() };
    state::IS_RESTORED.store(true, Ordering::Relaxed);
    // SAFETY: asks for a number.
    state::REAL_PID.store(unsafe { raw::call1(nr::GETPID, 0) } as u32, Ordering::Relaxed);
    KEPT.give_back();
    // SAFETY: the place of the calling thread, which nobody else looks at.
    unsafe { child::take_rseq(&*own) };
    if !crate::thread::slots().all(crate::thread::map_ring) {
        give_up(header, b"the rings could not be mapped");
    }
    seats::sit(0, false);
    seats::begin_at_tails(header, 0);
    identify_again();
    clone::reset_blocks(Mode::Replay);
    door::pending::adopt_queues(super::signals::each);
    crate::thread::for_each(|thread| seats::tid(thread.slot()).store(0, Ordering::Relaxed));
    // SAFETY: everybody in the table stood still when the copy was made.
    if !unsafe { child::remake_all(own) } {
        give_up(header, b"a thread could not be made");
    }
    clone::forget();
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

fn give_up(header: &SegmentHeader, why: &[u8]) -> ! {
    state::write_text(&header.why.0, Cause::CannotClone as u32, &[why]);
    header.state.0.store(GroupState::Unprotected as u32, Ordering::Release);
    state::attention();
    end()
}

/// The same numbers stand for other open files.
fn identify_again() {
    fdtable::for_known(|fd, shadow| {
        let (identity, _) = fdtable::identify(fd);
        shadow.identity.store(identity, Ordering::Relaxed);
    });
    fdtable::distrust();
}
