//! A replay: the program started again, or forked again, with the log of a recording in its rings.

use core::sync::atomic::Ordering;

use us_abi::{SEGMENT_ADDRESS, SegmentHeader};

use crate::call::Call;
use crate::door::process;
use crate::raw::{self, failed, nr};
use crate::recording::{image, reset_clocks};
use crate::standby::poll;
use crate::state::{self, Role};
use crate::sys::wall;
use crate::thread::{self, Mode, Thread};
use crate::{begin, guest, join, members, mirror, own_file, paths, signal, turns, verdict};

/// In the constructor: this image is to become what the recording says.
pub fn begin(header: &'static SegmentHeader) {
    state::set_role(Role::Standby);
    if !thread::map_ring(0) {
        crate::verdict::last_words(&[b"the rings could not be mapped"]);
    }
    // Nothing from outside reaches a replay: a key of the terminal is the supervisor's business.
    signal::apply_mask(0);
    crate::seats::tid(0).store(state::REAL_PID.load(Ordering::Relaxed), Ordering::Relaxed);
    if state::is_mirrored() {
        mirror::begin();
    }
    begin::become_member(header, Mode::Replay);
    follow(header, begin::main_block());
    while header.hold.load(Ordering::Acquire) != 0 {
        raw::futex_wait_shared(&header.hold, 1, 0);
    }
}

fn follow(header: &SegmentHeader, thread: &mut Thread) {
    header.standby_pid.store(state::REAL_PID.load(Ordering::Relaxed), Ordering::Release);
    if !poll::start() {
        crate::verdict::last_words(&[b"the poller of a replay could not be started"]);
    }
    image::take(thread);
    turns::take(thread);
}

/// Makes the child that the recording tells of. `true` in that child.
pub fn fork(thread: &mut Thread, call: &Call, pid: u32) -> bool {
    use crate::kernel::{CLONE_PARENT, SIGCHLD};
    // What goes on elsewhere is, as behind a failover, not its parent's to the kernel: it is the supervisor who tells of its end.
    let beside = if state::is_mirrored() { CLONE_PARENT } else { 0 };
    // SAFETY: a fork on the same stack, in its own memory.
    let made = unsafe { raw::call6(nr::CLONE, [SIGCHLD | beside, 0, 0, 0, 0, 0]) };
    if failed(made) {
        crate::verdict::report_divergence(thread, &[b"a child of the recording could not be made"]);
    }
    if made != 0 {
        return false;
    }
    process::forget_parent(thread, pid);
    signal::apply_mask(thread.signals.mask);
    name_child(call, pid);
    be_child(thread, pid);
    true
}

/// What the kernel would have done for libc: the child's number in its control block.
fn name_child(call: &Call, pid: u32) {
    use crate::kernel::{CLONE_CHILD_CLEARTID, CLONE_CHILD_SETTID};
    use crate::raw::nr::SET_TID_ADDRESS;
    if call.nr != nr::CLONE {
        return;
    }
    let [flags, _, _, word, ..] = call.args;
    if flags & CLONE_CHILD_SETTID != 0 {
        guest::store(word, &pid);
    }
    if flags & CLONE_CHILD_CLEARTID != 0 {
        // SAFETY: the guest's own wish.
        unsafe { raw::call1(SET_TID_ADDRESS, word) };
    }
}

fn be_child(thread: &mut Thread, pid: u32) {
    let mut path = [0u8; paths::PATH_BYTES];
    if paths::segment_path(pid, &mut path).is_none() {
        verdict::end_replay(1);
    }
    while !map_segment(&path) {
        if !members::is_fed() {
            verdict::end_replay(0);
        }
        raw::nap(500_000);
    }
    let header = SEGMENT_ADDRESS as *mut SegmentHeader;
    state::set_header(header);
    state::set_role(Role::Standby);
    reset_clocks();
    if !thread::map_ring(thread.slot()) {
        verdict::end_replay(1);
    }
    join::begin_alone(thread, Mode::Replay);
    crate::seats::tid(thread.slot()).store(raw::gettid(), Ordering::Relaxed);
    wall::begin(thread);
    // SAFETY: mapped for ever; atomics and constants.
    follow(unsafe { &*header }, thread);
    if state::is_mirrored() {
        mirror::in_child();
    }
}

/// Maps the child's own segment in place of its parent's, once the supervisor has made it.
fn map_segment(path: &[u8]) -> bool {
    // SAFETY: opens a file of the supervisor's, which the only thread of a forked child maps.
    unsafe {
        let file = own_file::open(path.as_ptr(), own_file::READ_WRITE);
        !failed(file) && join::map_in_place(file)
    }
}
