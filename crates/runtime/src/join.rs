//! How a child process becomes a member: with a segment of its own, for which the supervisor then makes a standby.
//!
//! Most children live for a moment and end, or become another program. So a child joins when it does something that
//! suggests a longer life: it makes a thread, it waits for something, or it has lived for a while. One that computes, and calls
//! nobody, is asked by a signal of the supervisor's. Until then, and until its standby has been made, its death is its death.

use core::sync::atomic::{AtomicU32, Ordering};

use us_abi::asked::SETTLED_NS;
use us_abi::{
    Cause, Config, GroupState, MAGIC, Process, RING_BYTES, RING_STEP, RINGS_ADDRESS, RINGS_OFFSET,
    SEGMENT_ADDRESS, SEGMENT_BYTES, SegmentHeader, THREADS_MAX, VERSION, head_parts, recorder,
};
use us_calls::{Door, EpollDoor, Policy, Row, SignalDoor};

use crate::call::Call;
use crate::door::futex;
use crate::door::limits::{self, FileRoom};
use crate::fault::{self, Point};
use crate::fdtable::{AT_FDCWD, Stat};
use crate::raw::{self, failed, nr};
use crate::state::{self, Role};
use crate::sys::{versions, wall};
use crate::thread::{self, Mode, Thread};
use crate::{bound, connections, fdtable, inquiry, missing, notice, own_file, paths};

/// A child that has lived for so long is worth a standby, ns.
const AGE_NS: u64 = 5_000_000;

/// How often a process that is not listed looks for its entry, over all its calls: where the list is full there is none.
const LOOKS_MAX: u32 = 1_000;
static LOOKS: AtomicU32 = AtomicU32::new(0);

/// This process's entry in the list, which its parent is about to make. It is looked for so many times.
pub fn own_within(looks: u32) -> Option<&'static Process> {
    const PAUSE_NS: u64 = 50_000;
    (0..looks).find_map(|look| {
        if look != 0 {
            raw::nap(PAUSE_NS);
        }
        crate::members::own()
    })
}

/// At a call of a newborn's: joins if this suggests a longer life, or changes what the process may do.
#[cold]
#[inline(never)]
pub fn consider(thread: &mut Thread, row: &Row, call: &Call) {
    // One that does not block says nothing of what comes next.
    let age = if row.blocks { AGE_NS } else { SETTLED_NS };
    if waits(row, call) || changes_identity(row) || (!ends_image(row) && is_older_than(age)) {
        join(thread);
    }
}

/// Whether a call is made to wait for something, or will have to. One that may wait for ever has to be known here: it may be the
/// last that this process makes.
fn waits(row: &Row, call: &Call) -> bool {
    use crate::kernel::{F_OFD_SETLKW, F_SETLKW, POLLIN, POLLOUT};
    if !row.blocks {
        return false;
    }
    // An error, too, is told at once.
    let is_ready = |events| raw::poll(call.args[0] as i32, events) != 0;
    let door = match row.policy {
        // Locks of files, semaphores and queues: nothing says whether they will have to, and few children are made for less.
        Policy::Recorded => return true,
        Policy::Special(door) => door,
        _ => return false,
    };
    match door {
        Door::Poll | Door::Select | Door::Wait | Door::Sleep | Door::Epoll(EpollDoor::Wait) => true,
        Door::Signal(SignalDoor::Wait | SignalDoor::Suspend) | Door::Receive | Door::Connect => true,
        Door::Read | Door::Readv | Door::Recv | Door::RecvMsg | Door::RecvMmsg | Door::Accept => {
            !is_ready(POLLIN)
        }
        Door::Write | Door::Writev | Door::Send | Door::SendMsg | Door::SendMmsg => !is_ready(POLLOUT),
        Door::Futex => futex::waits(call).is_some(),
        Door::Fcntl => matches!(call.args[1], F_SETLKW | F_OFD_SETLKW),
        Door::Open => opens_fifo(call),
        _ => false,
    }
}

/// Whether a call opens a FIFO, and waits for somebody at its other end.
fn opens_fifo(call: &Call) -> bool {
    use crate::kernel::O_NONBLOCK;
    let (folder, path, flags) = match call.nr {
        nr::OPEN => (AT_FDCWD, call.args[0], call.args[1]),
        nr::OPENAT => (call.args[0], call.args[1], call.args[2]),
        _ => return false,
    };
    flags & O_NONBLOCK == 0 && Stat::at(folder, path, 0).is_some_and(|stat| stat.is_fifo())
}

/// After these the group's folder may be out of reach.
fn changes_identity(row: &Row) -> bool {
    const CHROOT: u16 = linux_raw_sys::general::__NR_chroot as u16;
    const PIVOT_ROOT: u16 = linux_raw_sys::general::__NR_pivot_root as u16;
    const UNSHARE: u16 = linux_raw_sys::general::__NR_unshare as u16;
    const SETNS: u16 = linux_raw_sys::general::__NR_setns as u16;
    const CAPSET: u16 = linux_raw_sys::general::__NR_capset as u16;
    // setuid, setgid, setreuid, setregid, setgroups, setresuid, setresgid, setfsuid, setfsgid
    matches!(row.nr, 105 | 106 | 113 | 114 | 116 | 117 | 119 | 122 | 123)
        || matches!(row.nr, CHROOT | PIVOT_ROOT | UNSHARE | SETNS | CAPSET)
}

/// Behind these there is nothing to protect, or another image.
fn ends_image(row: &Row) -> bool {
    matches!(row.policy, Policy::Special(Door::Exec | Door::Exit | Door::ExitGroup))
}

fn is_older_than(age_ns: u64) -> bool {
    crate::members::own().is_some_and(|own| raw::now_ns() - own.born_ns.load(Ordering::Relaxed) > age_ns)
}

/// By a process that logs and has a segment already: the supervisor is to make its standby.
fn ask_for_standby() {
    let Some(own) = crate::members::own() else { return };
    if !crate::members::is_below_a_reaper() {
        own.joined.fetch_add(1, Ordering::AcqRel);
        crate::members::tell();
    }
}

/// Joins, once. A child that cannot is one that nobody protects.
pub fn join(thread: &mut Thread) {
    // One that waits for a year at its first call has no later one at which to look. The parent is on its way.
    const TRIES: u32 = 200;
    thread.newborn = false;
    if state::role() == Role::Primary {
        return ask_for_standby();
    }
    let looks = LOOKS.fetch_add(1, Ordering::Relaxed);
    let Some(own) = own_within(if looks == 0 { TRIES } else { 1 }) else {
        thread.newborn = looks < LOOKS_MAX;
        return;
    };
    if crate::members::header().is_none() {
        return;
    }
    // Its standby would be found among a guest's children.
    if !state::is_recorded() && crate::members::is_below_a_reaper() {
        return;
    }
    if state::role() != Role::Child || crate::members::is_closing() || bound::is_bound() {
        return;
    }
    let Some(config) = crate::members::config::get() else { return };
    fault::at(Point::Join, 0);
    let pid = own.pid.load(Ordering::Relaxed);
    let mut path = [0u8; paths::PATH_BYTES];
    if paths::segment_path(pid, &mut path).is_none() || !make_segment(&path, thread.slot()) {
        return;
    }
    // SAFETY: mapped a moment ago, by the only thread that knows of it.
    let header = unsafe { fill(config, crate::members::registry::supervisor(), pid) };
    state::set_header(header);
    if !thread::map_ring(thread.slot()) {
        state::set_header(core::ptr::null_mut());
        return;
    }
    paths::SEGMENT.store(pid, Ordering::Relaxed);
    // SAFETY: mapped for as long as the process lives; all of it but the configuration is atomics.
    versions::publish(unsafe { &*header });
    // What a new image has inherited has not been looked at: most have no use for it. In a root without /proc nobody could tell
    // yet what is open, and an ancestor of the same image has looked.
    inquiry::keep_silent(true);
    fdtable::take_stock();
    wall::lower();
    inquiry::keep_silent(false);
    thread.verify = state::VERIFY.load(Ordering::Relaxed);
    begin_alone(thread, Mode::Solo);
    state::set_role(Role::Primary);
    notice::register(thread, raw::gettid());
    wall::settle(thread);
    // As long as nobody could take over its parent is told of its end by the kernel alone.
    if !state::is_recorded() {
        own.joined.fetch_add(1, Ordering::AcqRel);
    }
    crate::members::remember_group(own);
    if connections::is_kept() {
        fdtable::has_inherited(fdtable::is_connection);
    }
    own.has_inherited.store(1, Ordering::Release);
    crate::members::tell();
}

/// The only thread of a process that has just mapped a segment of its own takes the ring in it. Locks are not ordered
/// before there is a second thread.
pub fn begin_alone(thread: &mut Thread, mode: Mode) {
    thread.set_generation(1);
    thread.doubt.set_open(false);
    thread.attach_ring();
    thread.lock_mode.store(Mode::Solo as u8, Ordering::Relaxed);
    thread.call_mode.store(mode as u8, Ordering::Relaxed);
    thread.set_live(mode != Mode::Replay);
}

/// Maps a segment's file in place of the segment that this process has inherited, and closes it.
///
/// # Safety
/// By the only thread of the process, which has no reference into the old one.
pub unsafe fn map_in_place(file: i64) -> bool {
    const SHARED_FIXED: u64 = 0x11;
    let args = [SEGMENT_ADDRESS as u64, SEGMENT_BYTES as u64, 3, SHARED_FIXED, file as u64, 0];
    limits::be_without_log(false);
    // SAFETY: addresses that belong to the runtime; the descriptor does not stay.
    unsafe {
        let mapped = raw::call6(nr::MMAP, args) == SEGMENT_ADDRESS as i64;
        raw::call1(nr::CLOSE, file as u64);
        if mapped {
            raw::call2(nr::MUNMAP, RINGS_ADDRESS as u64, (2 * THREADS_MAX * RING_BYTES) as u64);
        }
        mapped
    }
}

/// Makes the segment's file and maps it in place of the one that this process has inherited.
fn make_segment(path: &[u8], slot: u32) -> bool {
    use crate::raw::nr::{FTRUNCATE, UNLINK};
    let ring = RINGS_OFFSET + slot as usize * RING_BYTES;
    let Some(_room) = FileRoom::make(SEGMENT_BYTES as u64) else { return false };
    // SAFETY: a new file; the caller is the only thread.
    unsafe {
        let file = own_file::open(path.as_ptr(), own_file::MAKE);
        if failed(file) {
            return false;
        }
        // A full file system shows as SIGBUS at the first touch of a sparse page. And whoever removes the group's folder
        // says so before it looks what is there: a segment that it did not see must not bring the folder back.
        let fit = !failed(raw::call2(FTRUNCATE, file as u64, SEGMENT_BYTES as u64))
            && head_parts(slot as usize + 1).into_iter().chain([(ring, RING_STEP)]).all(|(at, bytes)| {
                !failed(raw::call4(nr::FALLOCATE, file as u64, 0, at as u64, bytes as u64))
            })
            && !crate::members::is_closing();
        if !fit {
            raw::call1(nr::CLOSE, file as u64);
        }
        let made = fit && map_in_place(file);
        if made {
            missing::has_slots(slot + 1);
        } else {
            raw::call1(UNLINK, path.as_ptr() as u64);
        }
        made
    }
}

/// # Safety
/// The segment has just been mapped and nobody else knows it.
unsafe fn fill(config: &Config, supervisor: u32, pid: u32) -> *mut SegmentHeader {
    let header = SEGMENT_ADDRESS as *mut SegmentHeader;
    let real = state::REAL_PID.load(Ordering::Relaxed);
    // SAFETY: the caller's promise.
    let this = unsafe {
        (&raw mut (*header).magic).write(MAGIC);
        (&raw mut (*header).version).write(VERSION);
        (&raw mut (*header).config).write(core::ptr::read(config));
        &*header
    };
    for (word, value) in [
        (&this.supervisor_pid, supervisor),
        (&this.root_pid, real),
        (&this.guest_pid, pid),
        (&this.primary_pid, real),
    ] {
        word.store(value, Ordering::Relaxed);
    }
    if state::is_recorded() {
        this.recorder.0.store(recorder::TAKES, Ordering::Release);
    }
    match config.standbys {
        0 => this.dropped.0.store(Cause::NotAsked as u32, Ordering::Release),
        _ => be_newborn(this),
    }
    header
}

/// There is no standby yet, and that is how it should be.
pub fn be_newborn(header: &SegmentHeader) {
    state::write_text(&header.why.0, Cause::Newborn as u32, &[b"it has just been made"]);
    header.dropped.0.store(Cause::Newborn as u32, Ordering::Release);
    header.state.0.store(GroupState::Unprotected as u32, Ordering::Release);
}
