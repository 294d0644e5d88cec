//! How a process begins its log, and its first standby.

use core::sync::atomic::Ordering;

use us_abi::{CONFIG_PINNED, Cause, GroupState, SEATS, SegmentHeader, leaving};

use crate::raw::{self, failed, nr};
use crate::standby::poll;
use crate::state::{self, Role};
use crate::sys::wall;
use crate::thread::{self, Mode, Thread};
use crate::{notice, recorder, seats, signal, tls, turns};

/// The main thread's block.
pub fn main_block() -> &'static mut Thread {
    // SAFETY: the first slot belongs to the main thread, and this is it.
    unsafe { &mut *thread::own(0) }
}

/// Says that there is no standby, and why.
pub fn go_unprotected(header: &SegmentHeader, cause: Cause, why: &[u8]) {
    header.primary_pid.store(state::REAL_PID.load(Ordering::Relaxed), Ordering::Release);
    state::write_text(&header.why.0, cause as u32, &[why]);
    header.dropped.0.store(cause as u32, Ordering::Release);
    header.state.0.store(GroupState::Unprotected as u32, Ordering::Release);
    state::attention();
}

/// Forks: from here on there are two.
pub fn make_standby(header: &SegmentHeader) {
    use crate::kernel::{CLONE_FILES, CLONE_PARENT, CLONE_SYSVSEM, SIGCHLD};
    use crate::raw::nr::SET_ROBUST_LIST;
    if !thread::map_ring(0) {
        state::set_role(Role::Primary);
        go_unprotected(header, Cause::CannotClone, b"the rings could not be mapped");
        become_member(header, alone());
        return;
    }
    turns::live_turns::standby_is_made(header);
    seats::begin_at_tails(header, 0);
    let primary = state::REAL_PID.load(Ordering::Relaxed);
    header.primary_pid.store(primary, Ordering::Release);
    // The kernel forgets a robust list at a fork. libc's fork registers it again; this one has to do it itself.
    let [robust, robust_len] = raw::robust_list().unwrap_or_default();
    // What waits from before an exec is in no log.
    crate::door::pending::take_stock(crate::door::pending::waiting());
    // The standby's kernel parent is the supervisor: a guest's own wait must not see it.
    let flags = CLONE_FILES | CLONE_SYSVSEM | CLONE_PARENT | SIGCHLD;
    // SAFETY: a fork on the same stack, in its own memory; no other thread exists.
    let result = unsafe { raw::call6(nr::CLONE, [flags, 0, 0, 0, 0, 0]) };
    match result {
        0 => {
            if robust != 0 {
                // SAFETY: the address that libc had registered for this thread, in this copy's own memory.
                unsafe { raw::call2(SET_ROBUST_LIST, robust, robust_len) };
            }
            crate::door::pending::adopt_queues(crate::clone::signals::each);
            be_standby(header);
        }
        pid if !failed(pid) => {
            state::set_role(Role::Primary);
            if make_spares(header, flags, robust, robust_len) {
                return;
            }
            header.heir.store(0, Ordering::Release);
            header.standby_pid.store(pid as u32, Ordering::Release);
            let _ = header.first_standby.compare_exchange(0, pid as u32, Ordering::AcqRel, Ordering::Acquire);
            become_member(header, Mode::Record);
            header.leaving.0.store(leaving::NO, Ordering::SeqCst);
            header.state.0.store(GroupState::Protected as u32, Ordering::Release);
            state::attention();
        }
        _ => {
            state::set_role(Role::Primary);
            go_unprotected(header, Cause::CannotClone, b"the kernel refused to fork");
            become_member(header, alone());
        }
    }
}

/// The standbys besides the first, as many as are asked for. True in one of them.
pub fn make_spares(header: &SegmentHeader, flags: u64, robust: u64, robust_len: u64) -> bool {
    use crate::raw::nr::SET_ROBUST_LIST;
    for seat in 1..header.config.standbys.min(SEATS as u32) {
        seats::begin_at_tails(header, seat);
        seats::keep_free(header, seat);
        // SAFETY: as the first one: a fork on the same stack, in its own memory; no other thread exists.
        let pid = unsafe { raw::call6(nr::CLONE, [flags, 0, 0, 0, 0, 0]) };
        if pid == 0 {
            if robust != 0 {
                // SAFETY: as the first one's.
                unsafe { raw::call2(SET_ROBUST_LIST, robust, robust_len) };
            }
            seats::sit(seat, true);
            crate::door::pending::adopt_queues(crate::clone::signals::each);
            be_standby(header);
            return true;
        }
        if failed(pid) {
            return false;
        }
        seats::claim(header, seat, pid as u32);
    }
    false
}

/// How a primary goes on that has no standby.
pub fn alone() -> Mode {
    if recorder::is_recording() { Mode::Record } else { Mode::Solo }
}

/// The main thread takes its place.
pub fn become_member(_header: &SegmentHeader, mode: Mode) {
    let thread = main_block();
    thread.attach_ring();
    take_place(thread, mode);
    if mode != Mode::Replay {
        notice::register(thread, raw::gettid());
    }
}

/// The main thread begins to log, before there is a standby.
pub fn begin_log() {
    let thread = main_block();
    thread.attach_ring();
    take_place(thread, Mode::Record);
}

/// The main thread's block, in a group and outside.
pub fn take_place(thread: &mut Thread, mode: Mode) {
    thread.set_slot(0);
    thread.set_generation(1);
    thread.doubt.set_open(false);
    thread.signals.alt_stack = [0, 2, 0];
    thread.verify = state::VERIFY.load(Ordering::Relaxed);
    thread.set_guest_tid(state::GUEST_PID.load(Ordering::Relaxed));
    thread.set_kernel_tid(raw::gettid());
    thread.handle.store(tls::thread_pointer(), Ordering::Release);
    // Locks are not ordered before there is a second thread.
    thread.call_mode.store(mode as u8, Ordering::Release);
    tls::set_current(thread);
    // What the image before it blocked of the signals that the runtime needs is blocked in shadow only. Not before this thread has
    // its block: of these signals one may wait since before the exec, and comes at once.
    signal::apply_mask(thread.signals.mask);
    wall::begin(thread);
}

/// The standby's first steps.
pub fn be_standby(header: &SegmentHeader) {
    use crate::kernel::PR_SET_NAME;
    state::set_role(Role::Standby);
    // SAFETY: attributes of our own new process.
    unsafe {
        let pid = raw::call1(nr::GETPID, 0) as u32;
        state::REAL_PID.store(pid, Ordering::Relaxed);
        raw::call2(nr::PRCTL, PR_SET_NAME, c"understudy".as_ptr() as u64);
        if header.config.flags & CONFIG_PINNED != 0 {
            let mask = &header.config.standby_cpus;
            raw::call3(nr::SCHED_SETAFFINITY, 0, 128, mask.as_ptr() as u64);
        }
        seats::tid(0).store(pid, Ordering::Relaxed);
    }
    if !seats::counts() {
        seats::claim(header, seats::own(), state::REAL_PID.load(Ordering::Relaxed));
    }
    signal::apply_mask(0);
    become_member(header, Mode::Replay);
    if !poll::start() {
        if seats::counts() {
            let why = b"the standby's poller could not be started";
            state::write_text(&header.why.0, Cause::CannotClone as u32, &[why]);
        }
        // SAFETY: ends the standby; the primary notices that it is gone.
        unsafe { raw::call1(nr::EXIT_GROUP, 0) };
    }
}
